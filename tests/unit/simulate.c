/* SPDX-License-Identifier: Apache-2.0 */
/* Days of a node's life in seconds: the real schedule, ledger, judges, diagnosis and difference
 * under a clock of our own. Only the looks are made up, as the real probes would make them in that
 * weather. */
#include <errno.h>
#include <stddef.h>

#include "../tap.h"
#include "diagnose.h"
#include "pass.h"
#include "schedule.h"

#define S(x) ((usec_t) ((x) *1e6))
#define HOUR S(3600)
#define DAY  (24 * HOUR)

/* What the node's surroundings are like at one moment. */
enum part { LINK_, ROUTE_, IMDS, DNS, EC2, STS, CNI, N_PARTS };
enum sky { FINE, GONE, DROP, SLOW, DENIED, INVALID };

struct change {
	usec_t from, until, every; /* every: comes again after so long; 0: once */
	enum part part;
	enum sky sky;
};

struct script {
	const char *name;
	usec_t length, boots_at[4]; /* moments of further boots; 0 ends */
	struct change changes[12];  /* closed by until 0; later ones win */
};

/* Latest state of one part at t. */
static enum sky sky_at(const struct script *s, enum part part, usec_t t)
{
	enum sky sky = FINE;

	for (const struct change *c = s->changes; c->until; c++) {
		usec_t at = t;

		if (c->part != part || t < c->from)
			continue;
		if (c->every)
			at = c->from + (t - c->from) % c->every;
		if (at >= c->from && at < c->until)
			sky = c->sky;
	}
	return sky;
}

/* ---- the looks ---- */

static struct observation seen[16];
static size_t n_seen;

static struct observation *see(const struct probe *p, enum layer layer, const char *aspect,
                               const char *subject, enum outcome outcome, usec_t t)
{
	struct observation *o = &seen[n_seen++];

	*o = (struct observation){.layer = layer, .outcome = outcome, .at = t};
	(void) text_format(o->probe, sizeof(o->probe), "%s", p->name);
	(void) text_format(o->aspect, sizeof(o->aspect), "%s", aspect);
	(void) text_format(o->subject, sizeof(o->subject), "%s", subject);
	return o;
}

static usec_t look_link(const struct script *s, const struct probe *p, usec_t t)
{
	bool link = sky_at(s, LINK_, t) == FINE, route = link && sky_at(s, ROUTE_, t) == FINE;
	struct observation *o;

	observation_number(see(p, LAYER_HOST, "loopback", "lo", OUTCOME_OK, t), "present", 1);
	o = see(p, LAYER_LINK, "link", "ens5", link ? OUTCOME_OK : OUTCOME_ABSENT, t);
	observation_number(o, "present", 1);
	observation_number(o, "up", link);
	o = see(p, LAYER_ROUTE, "default", "", route ? OUTCOME_OK : OUTCOME_ABSENT, t);
	observation_text(o, "family", "IPv4");
	return S(0.001);
}

static usec_t look_imds(const struct script *s, const struct probe *p, usec_t t, bool reached)
{
	enum sky sky = sky_at(s, IMDS, t);
	struct observation *o;
	enum outcome outcome = !reached        ? OUTCOME_UNREACHABLE
	                       : sky == DROP   ? OUTCOME_TIMEOUT
	                       : sky == SLOW   ? OUTCOME_SLOW
	                       : sky == DENIED ? OUTCOME_DENIED
	                                       : OUTCOME_OK;

	o = see(p, LAYER_METADATA, "", "", outcome, t);
	observation_text(o, "endpoint", "169.254.169.254");
	observation_text(o, "step", "%s",
	                 !reached || sky == DROP ? "connect"
	                 : sky == SLOW           ? "GET"
	                                         : "PUT");
	observation_number(o, "total_ms", sky == SLOW ? 1500 : 1000);
	if (!reached)
		observation_number(o, "errno", ENETUNREACH);
	else if (sky != DROP)
		observation_number(o, "http_status", sky == DENIED ? 403 : 200);
	return !reached ? S(0.001) : sky == DROP ? S(1) : sky == SLOW ? S(1.5) : S(0.002);
}

static usec_t look_dns(const struct script *s, const struct probe *p, usec_t t, bool reached)
{
	bool good = reached && sky_at(s, DNS, t) == FINE;
	struct observation *o = see(p, LAYER_DNS, "server", "10.0.0.2",
	                            good      ? OUTCOME_OK
	                            : reached ? OUTCOME_TIMEOUT
	                                      : OUTCOME_UNREACHABLE,
	                            t);

	observation_number(o, "asked", 2);
	observation_number(o, "failed", good ? 0 : 2);
	observation_number(o, "others_ok", 0);
	for (int i = 0; i < _SERVICE_MAX; i++)
		(void) see(p, LAYER_DNS, "name", service_name((enum service) i),
		           good ? OUTCOME_OK : OUTCOME_UNKNOWN, t);
	return good ? S(0.002) : reached ? S(1) : S(0.001);
}

static usec_t look_endpoint(const struct script *s, const struct probe *p, unsigned slot, usec_t t,
                            bool reached)
{
	static const char *const aspects[] = {"tcp", "tls", "http"};
	bool good = reached && sky_at(s, slot == 0 ? EC2 : STS, t) == FINE;

	for (size_t i = 0; i < ELEMENTS(aspects); i++) {
		enum outcome outcome = good      ? OUTCOME_OK
		                       : i > 0   ? OUTCOME_UNKNOWN
		                       : reached ? OUTCOME_TIMEOUT
		                                 : OUTCOME_UNREACHABLE;
		struct observation *o = see(p, LAYER_ENDPOINT, aspects[i],
		                            service_name((enum service) slot), outcome, t);

		observation_text(o, "address", "10.0.10.1");
		observation_number(o, "private", 1);
	}
	return good ? S(0.006) : reached ? S(1.2) : S(0.001);
}

static usec_t look(const struct script *s, const struct probe *p, unsigned slot, usec_t t)
{
	bool reached = sky_at(s, LINK_, t) == FINE && sky_at(s, ROUTE_, t) == FINE;

	n_seen = 0;
	if (strcmp(p->name, "link") == 0)
		return look_link(s, p, t);
	if (strcmp(p->name, "imds") == 0)
		return look_imds(s, p, t, reached);
	if (strcmp(p->name, "dns") == 0)
		return look_dns(s, p, t, reached);
	if (strcmp(p->name, "endpoint") == 0)
		return look_endpoint(s, p, slot, t, reached);
	if (strcmp(p->name, "cni-config") == 0)
		(void) see(p, LAYER_CNI, "config", "",
		           sky_at(s, CNI, t) == FINE      ? OUTCOME_OK
		           : sky_at(s, CNI, t) == INVALID ? OUTCOME_MALFORMED
		                                          : OUTCOME_ABSENT,
		           t);
	else
		(void) see(p, p->layer, "", "", OUTCOME_OK, t);
	return S(0.001);
}

/* ---- the life ---- */

enum { EVENTS_MAX = 4096 };

struct event {
	usec_t at;
	bool raised, root; /* else cleared */
	enum code code;
};

static struct life {
	struct event events[EVENTS_MAX];
	size_t n_events, looks, alarms; /* alarms: raised findings but notices */
	struct pass passes;
	bool wrong_chain;
} life;

static void note(struct life *l, usec_t at, bool raised, const struct finding *f)
{
	if (l->n_events < EVENTS_MAX)
		l->events[l->n_events++] = (struct event){
			.at = at, .raised = raised, .root = f->because < 0, .code = f->code};
	l->alarms += raised && cause_of(f->code)->severity != SEVERITY_NOTICE;
}

static uint32_t pass(struct life *l, struct ledger *ledger, usec_t t, usec_t uptime, bool complete)
{
	static const struct node node = {.ec2 = EC2_YES, .metadata_at = 1};
	struct diagnose_input in = {.node = &node,
	                            .now = t,
	                            .uptime = uptime,
	                            .complete = complete,
	                            .presumed = STATE_STARTING};
	const struct report *now, *before;
	struct report_diff d;
	uint32_t again;

	pass_make(&l->passes, ledger, &in, &d, &again);
	now = pass_report(&l->passes);
	before = pass_before(&l->passes);
	for (size_t i = 0; i < now->n_findings; i++) {
		size_t steps = 0;

		if (diff_bit(d.raised, i))
			note(l, t, true, &now->findings[i]);
		for (int at = (int) i; now->findings[at].because >= 0;
		     at = now->findings[at].because)
			l->wrong_chain |= ++steps > FINDINGS_MAX;
	}
	for (size_t i = 0; before && i < before->n_findings; i++)
		if (diff_bit(d.cleared, i))
			note(l, t, false, &before->findings[i]);
	return again;
}

struct sim_slot {
	const struct probe *probe;
	unsigned slot;
	struct schedule_slot schedule;
	bool looked;
};

static size_t boot(struct sim_slot *slots, const char *machine, usec_t t)
{
	size_t n = 0;

	for (const struct probe *const *p = probes; *p; p++)
		for (unsigned i = 0; i < ((*p)->slots ? (*p)->slots : 1); i++) {
			slots[n] = (struct sim_slot){.probe = *p, .slot = i};
			schedule_init(&slots[n++].schedule, *p, i, hash_text(0, machine), 0, t);
		}
	return n;
}

/* The kernel and inotify wake those who watch, as soon as something changes. */
static void wake(const struct script *s, struct sim_slot *slots, size_t n, usec_t before, usec_t t)
{
	for (size_t i = 0; i < n; i++) {
		const struct probe *p = slots[i].probe;
		bool news = (p->on_net && (sky_at(s, LINK_, before) != sky_at(s, LINK_, t) ||
		                           sky_at(s, ROUTE_, before) != sky_at(s, ROUTE_, t))) ||
		            (strcmp(p->name, "cni-config") == 0 &&
		             sky_at(s, CNI, before) != sky_at(s, CNI, t));

		if (news && slots[i].schedule.due > t + S(0.02))
			slots[i].schedule.due = t + S(0.02);
	}
}

static struct sim_slot *next_slot(struct sim_slot *slots, size_t n)
{
	struct sim_slot *next = &slots[0];

	for (size_t i = 1; i < n; i++)
		if (slots[i].schedule.due < next->schedule.due)
			next = &slots[i];
	return next;
}

static void live_with(const struct script *s, const char *machine, unsigned confirm)
{
	static struct ledger ledger;
	struct sim_slot slots[48], *next;
	size_t n = boot(slots, machine, S(0.5)), boots = 0;
	usec_t t = 0, booted = 0, before;

	memset(&life, 0, offsetof(struct life, passes));
	life.wrong_chain = false;
	life.passes.made = 0;
	ledger.n = 0;
	for (;;) {
		usec_t took;
		bool unsure, complete = true;
		uint32_t again;

		next = next_slot(slots, n);
		before = t;
		/* what changes between two looks is seen by those who watch, at most a second later
		 */
		t = next->schedule.due < t + S(1) ? next->schedule.due : t + S(1);
		if (t >= s->length)
			break;
		if (s->boots_at[boots] && t >= s->boots_at[boots]) {
			booted = s->boots_at[boots++];
			ledger.n = 0;
			n = boot(slots, machine, booted);
			life.passes.made = 0;
			continue;
		}
		wake(s, slots, n, before, t);
		next = next_slot(slots, n);
		if (next->schedule.due > t)
			continue;
		took = look(s, next->probe, next->slot, t);
		next->looked = true;
		unsure = ledger_put(&ledger, next->probe, next->slot, seen, n_seen, true, confirm,
		                    t + took - booted);
		next->schedule.due =
			schedule_next(&next->schedule, SCHEDULE_DAEMON, unsure, t + took);
		for (size_t i = 0; i < n; i++)
			complete &= slots[i].looked;
		again = pass(&life, &ledger, t + took, t + took - booted, complete);
		for (size_t i = 0; i < n; i++)
			for (unsigned k = 0; probes[k]; k++)
				if (again & UINT32_C(1) << k && slots[i].probe == probes[k] &&
				    !probes[k]->spread)
					slots[i].schedule.due = t + took + S(0.02);
		life.looks++;
	}
}

static void live(const struct script *s, const char *machine)
{
	live_with(s, machine, CONFIRM_DAEMON);
}

/* ---- what must be said ---- */

static const struct event *first(enum code code, bool raised, usec_t after)
{
	for (size_t i = 0; i < life.n_events; i++)
		if (life.events[i].code == code && life.events[i].raised == raised &&
		    life.events[i].at >= after)
			return &life.events[i];
	return NULL;
}

static void tell(const struct script *s)
{
	printf("# %s: %zu looks in %.1f h, %zu alarms, %zu events\n", s->name, life.looks,
	       (double) s->length / (double) HOUR, life.alarms, life.n_events);
	for (size_t i = 0; i < life.n_events && i < 12; i++)
		printf("#   %10.3f s %s %s%s\n", (double) life.events[i].at / 1e6,
		       life.events[i].raised ? "raised " : "cleared",
		       cause_of(life.events[i].code)->name,
		       life.events[i].raised && !life.events[i].root ? " (consequence)" : "");
}

static bool healthy_at_the_end(void)
{
	const struct report *r = pass_report(&life.passes);

	return r->verdict.state == STATE_HEALTHY && r->n_findings == 0;
}

/* Raised once, as a root, within so long after the fault; cleared within so long after its end; and
 * nothing else is a root meanwhile. */
static void expect(enum code code, usec_t fault, usec_t within, usec_t healed, usec_t clear_within)
{
	const struct event *up = first(code, true, fault), *down = first(code, false, healed);
	size_t others = 0, times = 0;

	for (size_t i = 0; i < life.n_events; i++) {
		const struct event *e = &life.events[i];

		if (e->at < fault || e->at > healed + clear_within || !e->raised)
			continue;
		times += e->code == code;
		others += e->root && e->code != code;
	}
	ok(up && up->root && up->at <= fault + within);
	ok(down && down->at <= healed + clear_within);
	ok(times == 1);
	ok(others == 0);
}

#define BOOT(network, cni)                                                                         \
	{0, network, 0, LINK_, GONE}, {0, network, 0, ROUTE_, GONE},                               \
		{0, (network) + S(1), 0, IMDS, DROP}, {0, (network) + S(2), 0, DNS, DROP},         \
	{                                                                                          \
		0, cni, 0, CNI, GONE                                                               \
	}

/* Periods share no factor with the intervals of the looks: else a glitch would always fall between
 * two. */
static void sound_days(void)
{
	static const struct script days[] = {
		{"a sound day", DAY, {0}, {BOOT(S(4), S(70))}},
		{"a slow boot", HOUR, {0}, {BOOT(S(45), S(280))}},
		{"a reboot",
	         2 * HOUR,
	         {HOUR},
	         {BOOT(S(4), S(70)),
	          {HOUR, HOUR + S(5), 0, LINK_, GONE},
	          {HOUR, HOUR + S(6), 0, IMDS, DROP}}},
		/* aws-node is replaced: its conflist is written anew, file by file */
		{"an aws-node upgrade every hour",
	         DAY,
	         {0},
	         {BOOT(S(4), S(70)),
	          {HOUR, HOUR + S(0.3), HOUR, CNI, GONE},
	          {HOUR + S(0.3), HOUR + S(0.35), HOUR, CNI, INVALID}}},
		{"a one-second glitch of everything every ten minutes",
	         DAY,
	         {0},
	         {BOOT(S(4), S(70)),
	          {S(600), S(601), S(607), IMDS, DROP},
	          {S(600), S(601), S(607), DNS, DROP},
	          {S(600), S(601), S(607), EC2, DROP},
	          {S(600), S(601), S(607), ROUTE_, GONE}}},
		{"a resolver that misses two seconds in 21",
	         6 * HOUR,
	         {0},
	         {BOOT(S(4), S(70)), {S(100), S(102), S(21), DNS, DROP}}},
		{"faults that heal before they are confirmed",
	         HOUR,
	         {0},
	         {BOOT(S(4), S(70)),
	          {S(1000), S(1002), 0, DNS, DROP},
	          {S(2000), S(2002), 0, IMDS, DROP},
	          {S(3000), S(3001), 0, ROUTE_, GONE}}},
	};

	for (size_t i = 0; i < ELEMENTS(days); i++)
		for (int machine = 0; machine < (days[i].length < DAY ? 4 : 1); machine++) {
			char id[16];

			(void) snprintf(id, sizeof(id), "machine-%d", machine);
			live(&days[i], id);
			tell(&days[i]);
			ok(life.alarms == 0);
			ok(healthy_at_the_end() && !life.wrong_chain && life.looks > 1000);
		}
}

static void single_faults(void)
{
	static const struct {
		enum part part;
		enum sky sky;
		enum code code;
		usec_t within, clear;
	} faults[] = {
		/* noticed in 5 s or by an event, confirmed by two further looks a second apart */
		{IMDS, DROP, CODE_ImdsUnreachable, S(15), S(15)},
		{IMDS, DENIED, CODE_ImdsDisabled, S(15), S(15)},
		{IMDS, SLOW, CODE_ImdsSlow, S(20), S(15)},
		{DNS, DROP, CODE_ResolverUnreachable, S(15), S(15)},
		{EC2, DROP, CODE_EndpointTimeout, S(40), S(30)},
		{LINK_, GONE, CODE_PrimaryInterfaceDown, S(5), S(5)},
		{ROUTE_, GONE, CODE_DefaultRouteMissing, S(5), S(5)},
		{CNI, GONE, CODE_CniConfigMissing, S(5), S(5)},
		{CNI, INVALID, CODE_CniConfigInvalid, S(5), S(5)},
	};

	for (size_t i = 0; i < ELEMENTS(faults); i++) {
		struct script s = {"one fault", HOUR, {0}, {BOOT(S(4), S(70))}};

		s.changes[5] = (struct change){S(1000), S(2000), 0, faults[i].part, faults[i].sky};
		s.name = cause_of(faults[i].code)->name;
		live(&s, "machine-7");
		tell(&s);
		expect(faults[i].code, S(1000), faults[i].within, S(2000), faults[i].clear);
		ok(healthy_at_the_end() && !life.wrong_chain);
	}
}

static void overlapping_faults(void)
{
	static const struct script s = {"two that overlap",
	                                HOUR,
	                                {0},
	                                {BOOT(S(4), S(70)),
	                                 {S(1000), S(2000), 0, IMDS, DROP},
	                                 {S(1500), S(2500), 0, EC2, DROP}}};
	const struct event *a, *b;

	live(&s, "machine-3");
	tell(&s);
	a = first(CODE_ImdsUnreachable, true, 0);
	b = first(CODE_EndpointTimeout, true, 0);
	ok(a && a->root && a->at < S(1015));
	ok(b && b->root && b->at > S(1500) &&
	   b->at < S(1550)); /* its own root: metadata is no reason for ec2 */
	ok(first(CODE_ImdsUnreachable, false, S(2000)) &&
	   first(CODE_EndpointTimeout, false, S(2500)));
	ok(healthy_at_the_end());
}

/* The tests above must be able to fail: a node that is sick from the start is not sound. */
static void planted(void)
{
	static const struct script s = {"planted", HOUR, {0}, {{0, HOUR, 0, DNS, DROP}}};

	static const struct script glitches = {
		"glitches", HOUR, {0}, {BOOT(S(4), S(70)), {S(600), S(601), S(61), DNS, DROP}}};

	live(&s, "machine-1");
	ok(life.alarms > 0 && !healthy_at_the_end());
	ok(first(CODE_ResolverUnreachable, true, S(60)) != NULL); /* and not while booting */
	ok(first(CODE_ResolverUnreachable, true, 0)->at >= S(60));
	/* without hysteresis a glitch is an alarm, and the sound days above would say so */
	live_with(&glitches, "machine-1", 1);
	ok(life.alarms > 0);
}

int main(void)
{
	sound_days();
	single_faults();
	overlapping_faults();
	planted();
	return done();
}
