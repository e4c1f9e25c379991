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
enum part {
	LINK_,
	ROUTE_,
	IMDS,
	DNS,
	EC2,
	STS,
	CNI,
	UNIT,        /* of the bootstrap: SLOW while it runs, DENIED when it has failed */
	KUBECONFIG,  /* GONE until it is written */
	REGISTERED,  /* GONE until the API server has a Node object */
	READY,       /* GONE until it says Ready */
	CREDENTIALS, /* GONE while metadata has none */
	SPOT,        /* GONE when the instance is taken back */
	WALL,        /* DROP while the wall clock is hours off */
	PODS,        /* SLOW: as many as the type gives; DENIED: and one more wants in */
	ENI,         /* GONE while metadata lists one that the kernel has not got yet */
	N_PARTS
};
enum sky { FINE, GONE, DROP, SLOW, DENIED, INVALID };

struct change {
	usec_t from, until, every; /* every: comes again after so long; 0: once */
	enum part part;
	enum sky sky;
};

struct script {
	const char *name;
	usec_t length, boots_at[4]; /* moments of further boots; 0 ends */
	struct change changes[20];  /* closed by until 0; later ones win */
	usec_t sleeps_at, sleeps;   /* suspended: CLOCK_BOOTTIME goes on, nobody looks */
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

/* probes/bootstrap.c: from 10 minutes after boot to 5 after the deadline. */
static usec_t look_bootstrap(const struct script *s, const struct probe *p, usec_t t, usec_t uptime)
{
	enum sky unit = sky_at(s, UNIT, t);
	bool near = sky_at(s, REGISTERED, t) == GONE && uptime >= S(600) && uptime < S(1200);
	struct observation *o;

	o = see(p, LAYER_BOOTSTRAP, "deadline", "", near ? OUTCOME_SLOW : OUTCOME_OK, t);
	observation_number(o, "uptime_s", (int64_t) (uptime / S(1)));
	observation_number(o, "left_s", uptime < S(900) ? (int64_t) ((S(900) - uptime) / S(1)) : 0);
	o = see(p, LAYER_BOOTSTRAP, "unit", "nodeadm-config.service",
	        unit == DENIED                   ? OUTCOME_FAILED
	        : unit == SLOW && uptime > S(65) ? OUTCOME_SLOW
	                                         : OUTCOME_OK,
	        t);
	observation_text(o, "result", "%s", unit == DENIED ? "exit-code" : "success");
	observation_number(o, "running_s", unit == SLOW ? (int64_t) ((uptime - S(5)) / S(1)) : 0);
	observation_number(o, "limit_s", 660);
	return S(0.01);
}

/* probes/lifecycle.c: a pause out of all proportion is told for an hour. */
static usec_t look_lifecycle(const struct script *s, const struct probe *p, usec_t t)
{
	bool spot = sky_at(s, SPOT, t) == GONE;
	bool slept =
		s->sleeps && t >= s->sleeps_at + s->sleeps && t < s->sleeps_at + s->sleeps + HOUR;
	struct observation *o;

	o = see(p, LAYER_LIFECYCLE, "spot", "", spot ? OUTCOME_EXPIRED : OUTCOME_OK, t);
	observation_text(o, "action", "terminate");
	o = see(p, LAYER_LIFECYCLE, "gap", "", slept ? OUTCOME_FAILED : OUTCOME_OK, t);
	observation_number(o, "gap_s", (int64_t) (s->sleeps / S(1)));
	observation_number(o, "same_boot", 1);
	return S(0.003);
}

static usec_t look_credentials(const struct script *s, const struct probe *p, usec_t t)
{
	struct observation *o =
		see(p, LAYER_CREDENTIALS, "", "",
	            sky_at(s, CREDENTIALS, t) == GONE ? OUTCOME_ABSENT : OUTCOME_OK, t);

	observation_text(o, "role", "node-role");
	observation_number(o, "expires_s", 21600 - (int64_t) (t % (6 * HOUR) / S(1)));
	return S(0.003);
}

static usec_t look_clock(const struct script *s, const struct probe *p, usec_t t)
{
	bool wrong = sky_at(s, WALL, t) == DROP;
	struct observation *o = see(p, LAYER_CLOCK, "", "", wrong ? OUTCOME_FAILED : OUTCOME_OK, t);

	observation_number(o, "offset_ms", wrong ? -3 * 3600 * 1000 : 2);
	observation_number(o, "witnesses", 2);
	return S(0.001);
}

/* probes/addresses.c: at the limit, a pod that was refused in the last five minutes makes the
 * difference. An m5.large has 27 addresses for pods. */
static usec_t look_addresses(const struct script *s, const struct probe *p, usec_t t)
{
	bool refused = sky_at(s, PODS, t) == DENIED ||
	               (t >= S(300) && sky_at(s, PODS, t - S(300)) == DENIED);
	bool full = sky_at(s, PODS, t) != FINE;
	struct observation *o =
		see(p, LAYER_ADDRESS, "", "", full && refused ? OUTCOME_EXHAUSTED : OUTCOME_OK, t);

	observation_number(o, "enis_attached", full ? 3 : 2);
	observation_number(o, "enis_max", 3);
	observation_number(o, "in_use", full ? 27 : 11);
	observation_number(o, "addresses", 27);
	if (refused)
		observation_number(o, "refused_s", 4);
	observation_text(o, "instance_type", "m5.large");
	return S(0.001);
}

/* probes/eni.c: an ENI that is being attached is in metadata and in the kernel at different
 * moments; it is missing only after ten seconds. */
static usec_t look_eni(const struct script *s, const struct probe *p, usec_t t)
{
	bool gone = sky_at(s, ENI, t) == GONE;
	bool ripe = gone && t >= S(10) && sky_at(s, ENI, t - S(10)) == GONE;
	struct observation *o;

	(void) see(p, LAYER_ADDRESS, "", "", OUTCOME_OK, t);
	o = see(p, LAYER_ADDRESS, "link", "eni-2",
	        ripe   ? OUTCOME_ABSENT
	        : gone ? OUTCOME_UNKNOWN
	               : OUTCOME_OK,
	        t);
	observation_text(o, "mac", "02:00:00:00:00:02");
	return S(0.004);
}

static usec_t look(const struct script *s, const struct probe *p, unsigned slot, usec_t t,
                   usec_t uptime)
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
	if (strcmp(p->name, "bootstrap") == 0)
		return look_bootstrap(s, p, t, uptime);
	if (strcmp(p->name, "lifecycle") == 0)
		return look_lifecycle(s, p, t);
	if (strcmp(p->name, "credentials") == 0)
		return look_credentials(s, p, t);
	if (strcmp(p->name, "clock") == 0)
		return look_clock(s, p, t);
	if (strcmp(p->name, "addresses") == 0)
		return look_addresses(s, p, t);
	if (strcmp(p->name, "eni") == 0)
		return look_eni(s, p, t);
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

enum { EVENTS_MAX = 4096, STAGES_MAX = 16 };

struct event {
	usec_t at;
	bool raised, root; /* else cleared */
	enum code code;
};

static struct life {
	struct event events[EVENTS_MAX];
	size_t n_events, looks, alarms; /* alarms: raised findings but notices */
	enum stage stages[STAGES_MAX];  /* in the order in which they came */
	usec_t stage_at[STAGES_MAX];
	size_t n_stages;
	int deadline_at_10; /* of the last pass before minute ten */
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

/* What the probes have learnt of the node by now. */
static struct node node_at(const struct script *s, usec_t t)
{
	bool asked = sky_at(s, KUBECONFIG, t) == FINE; /* nobody knows before there is a server */

	return (struct node){
		.ec2 = EC2_YES,
		.metadata_at = sky_at(s, LINK_, t) == FINE && sky_at(s, IMDS, t) == FINE,
		.kubeconfig_present = asked,
		.registered = !asked                             ? CANNOT_TELL
	                      : sky_at(s, REGISTERED, t) == FINE ? YES
	                                                         : NO,
		.ready = !asked || sky_at(s, REGISTERED, t) == GONE ? CANNOT_TELL
	                 : sky_at(s, READY, t) == FINE              ? YES
	                                                            : NO,
	};
}

static void note_stage(struct life *l, const struct report *r)
{
	enum stage stage = r->verdict.stage;

	if (r->uptime < S(600))
		l->deadline_at_10 = r->verdict.deadline;
	if (l->n_stages == STAGES_MAX || (l->n_stages > 0 && l->stages[l->n_stages - 1] == stage))
		return;
	l->stages[l->n_stages] = stage;
	l->stage_at[l->n_stages++] = r->uptime;
}

static uint32_t pass(struct life *l, struct ledger *ledger, const struct node *node, usec_t t,
                     usec_t uptime, bool complete)
{
	struct diagnose_input in = {.node = node,
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
	note_stage(l, now);
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
		             sky_at(s, CNI, before) != sky_at(s, CNI, t)) ||
		            (strcmp(p->name, "bootstrap") == 0 &&
		             sky_at(s, UNIT, before) != sky_at(s, UNIT, t));

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
		bool complete = true;
		enum pace pace;
		struct node node;
		uint32_t again;

		next = next_slot(slots, n);
		before = t;
		/* what changes between two looks is seen by those who watch, at most a second later
		 */
		t = next->schedule.due < t + S(1) ? next->schedule.due : t + S(1);
		if (s->sleeps && before < s->sleeps_at && t >= s->sleeps_at)
			t += s->sleeps;
		if (t < before) /* what came due while it looked, or slept */
			t = before;
		if (t >= s->length)
			break;
		if (s->boots_at[boots] && t >= s->boots_at[boots]) {
			booted = s->boots_at[boots++];
			ledger.n = 0;
			n = boot(slots, machine, booted);
			life.passes.made = 0;
			life.n_stages = 0;
			continue;
		}
		wake(s, slots, n, before, t);
		next = next_slot(slots, n);
		if (next->schedule.due > t)
			continue;
		took = look(s, next->probe, next->slot, t, t - booted);
		next->looked = true;
		pace = ledger_put(&ledger, next->probe, next->slot, seen, n_seen, true, confirm,
		                  t + took - booted);
		next->schedule.due =
			schedule_next(&next->schedule, SCHEDULE_DAEMON, pace, t + took);
		for (size_t i = 0; i < n; i++)
			complete &= slots[i].looked;
		node = node_at(s, t); /* what it knew when it looked */
		again = pass(&life, &ledger, &node, t + took, t + took - booted, complete);
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
		{IMDS, SLOW, CODE_ImdsSlow, S(20), S(15)}, /* throttled, too */
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

/* ---- how it becomes a node ---- */

/* Power on, metadata, nodeadm, kubelet, Node object, aws-node, Ready: seconds after boot. */
#define JOIN(config, registers, cni_comes, ready_comes)                                            \
	{0, S(4), 0, LINK_, GONE}, {0, S(4), 0, ROUTE_, GONE}, {0, S(5), 0, IMDS, DROP},           \
		{0, S(6), 0, DNS, DROP}, {0, config, 0, UNIT, SLOW},                               \
		{0, config, 0, KUBECONFIG, GONE}, {0, registers, 0, REGISTERED, GONE},             \
		{0, cni_comes, 0, CNI, GONE},                                                      \
	{                                                                                          \
		0, ready_comes, 0, READY, GONE                                                     \
	}

static size_t times(enum code code, bool raised)
{
	size_t n = 0;

	for (size_t i = 0; i < life.n_events; i++)
		n += life.events[i].code == code && life.events[i].raised == raised;
	return n;
}

static void tell_stages(void)
{
	for (size_t i = 0; i < life.n_stages; i++)
		printf("#   %8.1f s %s\n", (double) life.stage_at[i] / 1e6,
		       stage_name(life.stages[i]));
}

/* All five stages, each once, in their order. */
static bool every_stage_once(void)
{
	for (size_t i = 0; i < life.n_stages; i++)
		if (life.stages[i] != (enum stage) i)
			return false;
	return life.n_stages == STAGE_READY + 1;
}

static void joins(void)
{
	static const struct script days[] = {
		{"a join", HOUR, {0}, {JOIN(S(12), S(14), S(38), S(40))}},
		{"a slow join", HOUR, {0}, {JOIN(S(150), S(170), S(260), S(290))}},
	};
	static const struct script again = {"a reboot of a node",
	                                    3 * HOUR,
	                                    {2 * HOUR},
	                                    {JOIN(S(12), S(14), S(38), S(40)),
	                                     {2 * HOUR, 2 * HOUR + S(4), 0, LINK_, GONE},
	                                     {2 * HOUR, 2 * HOUR + S(5), 0, IMDS, DROP},
	                                     {2 * HOUR, 2 * HOUR + S(20), 0, UNIT, SLOW},
	                                     {2 * HOUR, 2 * HOUR + S(30), 0, READY, GONE}}};

	for (size_t i = 0; i < ELEMENTS(days); i++) {
		live(&days[i], "machine-2");
		tell(&days[i]);
		tell_stages();
		ok(life.alarms == 0 && life.n_events == 0 && healthy_at_the_end());
		ok(every_stage_once());
		ok(life.stage_at[STAGE_NETWORKING] <= days[i].changes[6].until + S(6));
		ok(life.stage_at[STAGE_READY] >= days[i].changes[8].until &&
		   life.stage_at[STAGE_READY] <= days[i].changes[8].until + S(6));
		ok(life.deadline_at_10 == -1);
	}
	live(&again, "machine-2");
	tell(&again);
	tell_stages();
	/* its Node object and its kubeconfig are still there */
	ok(life.alarms == 0 && life.n_events == 0 && healthy_at_the_end());
	ok(life.n_stages == 2 && life.stages[0] == STAGE_NETWORKING &&
	   life.stages[1] == STAGE_READY);
}

/* nodeadm fails: what follows is told as its consequence, the deadline once and in time; then
 * somebody repairs it. */
static void join_fails(void)
{
	static const struct script s = {"nodeadm fails, and is repaired",
	                                HOUR,
	                                {0},
	                                {JOIN(S(700), S(710), S(730), S(740)),
	                                 {S(12), S(690), 0, UNIT, DENIED},
	                                 {S(690), S(700), 0, UNIT, FINE}}};
	static const struct script never = {"a node that nobody deletes",
	                                    2 * HOUR,
	                                    {0},
	                                    {JOIN(S(20), 2 * HOUR, 2 * HOUR, 2 * HOUR)}};
	const struct event *e;

	live(&s, "machine-5");
	tell(&s);
	tell_stages();
	e = first(CODE_BootstrapFailed, true, 0);
	ok(e && e->root && e->at >= S(60) && e->at < S(100));
	e = first(CODE_CniConfigMissing, true, 0);
	ok(e && !e->root && e->at >= S(300));
	e = first(CODE_JoinDeadlineNear, true, 0);
	ok(e && !e->root && e->at >= S(600) && e->at < S(650));
	ok(times(CODE_JoinDeadlineNear, true) == 1 && times(CODE_JoinDeadlineNear, false) == 1);
	ok(times(CODE_BootstrapFailed, true) == 1 && times(CODE_BootstrapFailed, false) == 1);
	ok(life.deadline_at_10 > 300 && life.deadline_at_10 < 340);
	ok(every_stage_once() && healthy_at_the_end() && !life.wrong_chain);

	live(&never, "machine-6");
	tell(&never);
	ok(times(CODE_JoinDeadlineNear, true) == 1);
	e = first(CODE_JoinDeadlineNear, false, 0);
	ok(e && e->at >= S(1200) && e->at < S(1300));
	ok(pass_report(&life.passes)->verdict.stage == STAGE_JOINING &&
	   pass_report(&life.passes)->verdict.deadline == -1);
}

/* ---- what happens to it then ---- */

static void rotations(void)
{
	static const struct script day = {
		"credentials are rotated every 6 hours",
		DAY,
		{0},
		{JOIN(S(12), S(14), S(38), S(40)),
	         {6 * HOUR, 6 * HOUR + S(3), 6 * HOUR, CREDENTIALS, GONE}}};
	static const struct script gone = {
		"credentials are gone",
		2 * HOUR,
		{0},
		{JOIN(S(12), S(14), S(38), S(40)), {HOUR, HOUR + S(900), 0, CREDENTIALS, GONE}}};

	live(&day, "machine-8");
	tell(&day);
	ok(life.alarms == 0 && life.n_events == 0 && healthy_at_the_end());
	if (!probe_by_name("credentials")) {
		ok(true); /* SKIP: this build does not look at credentials */
		return;
	}
	live(&gone, "machine-8");
	tell(&gone);
	ok(life.alarms > 0 && times(CODE_CredentialsMissing, true) == 1);
	ok(healthy_at_the_end());
}

static void spot(void)
{
	static const struct script s = {"spot takes it back",
	                                S(3600 + 118),
	                                {0},
	                                {JOIN(S(12), S(14), S(38), S(40)),
	                                 {HOUR, 2 * HOUR, 0, SPOT, GONE},
	                                 {HOUR + S(100), 2 * HOUR, 0, CNI, GONE}}};
	const struct event *e;

	live(&s, "machine-9");
	tell(&s);
	e = first(CODE_SpotInterruption, true, 0);
	ok(e && e->root && e->at >= HOUR && e->at <= HOUR + S(15));
	ok(times(CODE_SpotInterruption, true) == 1);
	/* a notice is nobody's excuse: what breaks meanwhile is a root of its own */
	e = first(CODE_CniConfigMissing, true, HOUR);
	ok(e && e->root);
	ok(pass_report(&life.passes)->verdict.state == STATE_BROKEN);
	ok(life.alarms == 1);
}

/* Pods come until the type gives no more, and ENIs with them: full by design is no fault. One pod
 * more is, for as long as it is felt; and so is an ENI that never arrives. */
static void scale_ups(void)
{
	static const struct script full = {"a scale-up to max pods, each hour",
	                                   DAY,
	                                   {0},
	                                   {JOIN(S(12), S(14), S(38), S(40)),
	                                    {HOUR, HOUR + S(2400), HOUR, PODS, SLOW},
	                                    {HOUR, HOUR + S(7), HOUR, ENI, GONE}}};
	static const struct script more = {"a pod more than the type gives",
	                                   3 * HOUR,
	                                   {0},
	                                   {JOIN(S(12), S(14), S(38), S(40)),
	                                    {HOUR, 2 * HOUR, 0, PODS, SLOW},
	                                    {HOUR + S(60), HOUR + S(900), 0, PODS, DENIED}}};
	static const struct script lost = {
		"a scale-up whose ENI never arrives",
		3 * HOUR,
		{0},
		{JOIN(S(12), S(14), S(38), S(40)), {HOUR, 2 * HOUR, 0, ENI, GONE}}};
	const struct event *e;

	live(&full, "machine-10");
	tell(&full);
	ok(life.alarms == 0 && life.n_events == 0 && healthy_at_the_end());
	live(&more, "machine-10");
	tell(&more);
	expect(CODE_AddressLimitReached, HOUR + S(60), S(20), HOUR + S(1200), S(30));
	ok(healthy_at_the_end() && life.alarms == 1);
	e = first(CODE_AddressLimitReached, false, 0);
	ok(e && e->at >= HOUR + S(1200)); /* five minutes after it was felt last */
	live(&lost, "machine-10");
	tell(&lost);
	expect(CODE_EniLinkMissing, HOUR, S(25), 2 * HOUR, S(15));
	ok(healthy_at_the_end() && life.alarms == 1);
}

/* The wall clock is for people: when it is set, nothing is forgotten and nothing made up. */
static void clock_steps(void)
{
	static const struct script quick = {"the clock is set by hours in its first minutes",
	                                    2 * HOUR,
	                                    {0},
	                                    {JOIN(S(12), S(14), S(38), S(40)),
	                                     {0, S(50), 0, WALL, DROP},
	                                     {HOUR, HOUR + S(2), 0, WALL, DROP}}};
	static const struct script amid = {"the clock is hours off, amid a fault",
	                                   2 * HOUR,
	                                   {0},
	                                   {JOIN(S(12), S(14), S(38), S(40)),
	                                    {S(2000), S(4000), 0, DNS, DROP},
	                                    {S(2600), S(3200), 0, WALL, DROP}}};

	live(&quick, "machine-4");
	tell(&quick);
	ok(life.alarms == 0 && life.n_events == 0 && healthy_at_the_end());
	live(&amid, "machine-4");
	tell(&amid);
	ok(times(CODE_ResolverUnreachable, true) == 1 &&
	   times(CODE_ResolverUnreachable, false) == 1);
	ok(first(CODE_ResolverUnreachable, false, S(4000)) != NULL); /* not lost meanwhile */
	ok(times(CODE_ClockSkewed, true) == 1 && times(CODE_ClockSkewed, false) == 1);
	ok(first(CODE_ClockSkewed, true, 0)->root && first(CODE_ClockSkewed, false, S(3200)));
	ok(healthy_at_the_end() && !life.wrong_chain);
}

/* CLOCK_BOOTTIME leaps: every look is overdue at once, and the network comes a moment later. */
static void suspends(void)
{
	static const struct script sound = {"suspended for three hours",
	                                    8 * HOUR,
	                                    {0},
	                                    {JOIN(S(12), S(14), S(38), S(40)),
	                                     {5 * HOUR, 5 * HOUR + S(1.2), 0, ROUTE_, GONE},
	                                     {5 * HOUR, 5 * HOUR + S(1.5), 0, IMDS, DROP},
	                                     {5 * HOUR, 5 * HOUR + S(1.5), 0, DNS, DROP}},
	                                    2 * HOUR,
	                                    3 * HOUR};
	static const struct script ill = {
		"suspended amid a fault",
		8 * HOUR,
		{0},
		{JOIN(S(12), S(14), S(38), S(40)), {HOUR, 6 * HOUR, 0, DNS, DROP}},
		2 * HOUR,
		3 * HOUR};
	static const struct script cured = {
		"a fault that went by while it slept",
		8 * HOUR,
		{0},
		{JOIN(S(12), S(14), S(38), S(40)), {HOUR, 4 * HOUR, 0, DNS, DROP}},
		2 * HOUR,
		3 * HOUR};

	live(&sound, "machine-4");
	tell(&sound);
	ok(life.alarms == 0 && healthy_at_the_end());
	ok(times(CODE_HostGap, true) == 1 && times(CODE_HostGap, false) == 1);
	ok(life.n_events == 2);
	live(&ill, "machine-4");
	tell(&ill);
	ok(times(CODE_ResolverUnreachable, true) == 1);
	ok(first(CODE_ResolverUnreachable, false, 6 * HOUR) != NULL);
	ok(times(CODE_ResolverUnreachable, false) == 1 && life.alarms == 1 && healthy_at_the_end());
	live(&cured, "machine-4");
	tell(&cured);
	ok(first(CODE_ResolverUnreachable, false, 5 * HOUR) &&
	   first(CODE_ResolverUnreachable, false, 5 * HOUR)->at < 5 * HOUR + S(15));
	ok(life.alarms == 1 && healthy_at_the_end());
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
	joins();
	join_fails();
	rotations();
	spot();
	scale_ups();
	clock_steps();
	suspends();
	planted();
	return done();
}
