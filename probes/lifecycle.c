/* SPDX-License-Identifier: Apache-2.0 */
/* Is somebody about to take this instance away, or did it stop without being asked to? What
 * metadata announces, and a sign of life that outlasts a boot. */
#include <errno.h>
#include <jansson.h>
#include <utmp.h>

#include "probe.h"

enum {
	BODY_MAX = 8192,
	WTMP_MAX = 1 << 20,
	MONTHS = 12,
	PRESSED = 10,    /* % of a minute in which nothing ran for want of memory or of a disk */
	GAP_MIN_S = 120, /* within a boot */
	GAP_TIMES = 5,   /* of the usual pause between two looks */
	TOLD_S = 3600,   /* so long a gap is worth a line */
	GAP_MAX_S = 30 * 86400,
};

static const usec_t ask_every = 9 * USEC_PER_SEC;     /* a confirmation asks nobody again */
static const usec_t alive_every = 600 * USEC_PER_SEC; /* it is a write to the disk */
static const usec_t believed = 300 * USEC_PER_SEC;    /* an answer, while there is no newer */

/* The key of spot comes first: it leaves two minutes. */
enum notice { SPOT, REBALANCE, AUTOSCALING, MAINTENANCE, N_NOTICES };

/* At most 8 requests a minute together, but for the first one, as metadata is asked by others too:
 * every so many looks, shifted against each other. Only spot instances are asked about what only
 * they are told: 0 is never. */
static const struct {
	const char *aspect, *path;
	unsigned spot_every, spot_shift, else_every, else_shift;
} notices[N_NOTICES] = {
	{"spot", "/latest/meta-data/spot/instance-action", 1, 0, 0, 0},
	{"rebalance", "/latest/meta-data/events/recommendations/rebalance", 6, 0, 0, 0},
	{"autoscaling", "/latest/meta-data/autoscaling/target-lifecycle-state", 12, 9, 3, 0},
	{"maintenance", "/latest/meta-data/events/maintenance/scheduled", 12, 3, 6, 1},
};
enum { FIRST_MINUTE = 6 }; /* looks, after the one that asks for everything */

static const char life_cycle_path[] = "/latest/meta-data/instance-life-cycle";
static const char alive_key[] = "lifecycle.alive", gap_key[] = "lifecycle.gap";

enum answer { NEVER_ASKED, NO_ANSWER, NOTHING, ANNOUNCED, NOT_UNDERSTOOD };

struct known {
	enum answer answer;
	usec_t at;     /* of that answer */
	int64_t when;  /* seconds since 1970; 0: it does not say */
	char what[32]; /* terminate, system-reboot, Terminated */
};

struct memory {
	struct known known[N_NOTICES];
	bool life_known, spot;
	unsigned turn;
	usec_t asked_at, looked_at, pause; /* pause: between the two looks before */
	usec_t alive_at;
	usec_t stalled_at; /* a gap within this boot ended then; 0: none */
	int64_t stalled_s;
	char boot[40];
};

struct state {
	unsigned pending;
};

/* ---- dates ---- */

/* Days since 1970-01-01 of a Gregorian date. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
	int64_t y = month <= 2 ? year - 1 : year, era = y / 400, of_era = y - era * 400;
	int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

static int64_t seconds_of(int year, int month, int day, int hour, int minute, int second)
{
	if (year < 1970 || year > 9999 || month < 1 || month > MONTHS || day < 1 || day > 31 ||
	    hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
		return 0;
	return ((days_of(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
}

/* "2026-11-30T21:18:03Z" or "21 Jan 2026 09:00:43 GMT", as metadata has them; 0 otherwise. */
static int64_t parse_date(const char *s)
{
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	int year, month, day, hour, minute, second;
	const char *found;
	char name[4];

	if (!s)
		return 0;
	if (sscanf(s, "%4d-%2d-%2dT%2d:%2d:%2d", &year, &month, &day, &hour, &minute, &second) == 6)
		return seconds_of(year, month, day, hour, minute, second);
	if (sscanf(s, "%2d %3s %4d %2d:%2d:%2d", &day, name, &year, &hour, &minute, &second) != 6)
		return 0;
	found = strstr(months, name);
	if (!found || strlen(name) != 3 || (found - months) % 3 != 0)
		return 0;
	return seconds_of(year, (int) (found - months) / 3 + 1, day, hour, minute, second);
}

/* Our wall clock, set right by the Date header of metadata's last answer. */
static int64_t now_s(struct run *r)
{
	const struct witness_seen *w = &run_node(r)->witnesses[WITNESS_METADATA];
	int64_t now = (int64_t) (run_realtime(r) / USEC_PER_SEC);

	return w->at && run_now(r) - w->at < believed ? now - w->offset_s : now;
}

/* ---- what metadata announces ---- */

static void take_word(struct known *k, const char *word)
{
	(void) text_clean(k->what, sizeof(k->what), word, strlen(word));
}

static enum answer take_spot(struct known *k, const json_t *j)
{
	const char *action = json_string_value(json_object_get(j, "action"));

	if (!action || !action[0])
		return NOT_UNDERSTOOD;
	take_word(k, action);
	k->when = parse_date(json_string_value(json_object_get(j, "time")));
	return ANNOUNCED;
}

static enum answer take_rebalance(struct known *k, const json_t *j)
{
	k->when = parse_date(json_string_value(json_object_get(j, "noticeTime")));
	return json_is_object(j) ? ANNOUNCED : NOT_UNDERSTOOD;
}

/* The first to come of those that are not over. */
static enum answer take_maintenance(struct known *k, const json_t *j)
{
	enum answer a = NOTHING;

	if (!json_is_array(j))
		return NOT_UNDERSTOOD;
	for (size_t i = 0; i < json_array_size(j); i++) {
		const json_t *event = json_array_get(j, i);
		const char *code = json_string_value(json_object_get(event, "Code"));
		const char *state = json_string_value(json_object_get(event, "State"));
		int64_t when = parse_date(json_string_value(json_object_get(event, "NotBefore")));

		if (!code || !code[0] || (state && strcmp(state, "active") != 0))
			continue;
		if (a == ANNOUNCED && (!when || (k->when && k->when <= when)))
			continue;
		a = ANNOUNCED;
		take_word(k, code);
		k->when = when;
	}
	return a;
}

static enum answer take_state(struct known *k, const char *body, size_t len)
{
	static const char *const ends[] = {"Terminated", "Warmed:Terminated"};

	len = strnlen(body, len);
	while (len > 0 && (body[len - 1] == '\n' || body[len - 1] == '\r'))
		len--;
	if (len == 0 || len >= sizeof(k->what))
		return NOT_UNDERSTOOD;
	(void) text_clean(k->what, sizeof(k->what), body, len);
	for (size_t i = 0; i < ELEMENTS(ends); i++)
		if (strcmp(k->what, ends[i]) == 0)
			return ANNOUNCED;
	return NOTHING;
}

static void take_body(struct known *k, enum notice n, const char *body, size_t len)
{
	json_t *j;

	k->when = 0;
	k->what[0] = 0;
	if (n == AUTOSCALING) {
		k->answer = take_state(k, body, len);
		return;
	}
	j = json_loadb(body, len, 0, NULL);
	k->answer = n == SPOT        ? take_spot(k, j)
	            : n == REBALANCE ? take_rebalance(k, j)
	                             : take_maintenance(k, j);
	json_decref(j);
}

static void take_reply(struct run *r, enum notice n, const struct imds_reply *reply)
{
	struct memory *m = run_memory(r);
	struct known *k = &m->known[n];
	bool answered = reply->step == IMDS_GET && reply->http.outcome == OUTCOME_OK;

	if (reply->throttled || reply->disabled)
		return; /* what was known stands until it is too old */
	if (answered)
		run_witness(r, WITNESS_METADATA, &reply->http);
	if (answered && reply->http.code == 404)
		*k = (struct known){.answer = NOTHING, .at = run_now(r)};
	else if (answered && reply->http.code == 200) {
		take_body(k, n, reply->http.body, reply->http.body_len);
		k->at = run_now(r);
	} else if (k->answer == NEVER_ASKED) {
		k->answer = NO_ANSWER;
	}
}

/* ---- words ---- */

/* "3 d 4 h", "14 min", "118 s". */
static const char *span(int64_t s, char dst[static 32])
{
	static const int64_t minute = 60, hour = 3600, day = 86400;

	if (s >= 2 * day)
		(void) snprintf(dst, 32, "%lld d %lld h", (long long) (s / day),
		                (long long) (s % day / hour));
	else if (s >= 2 * hour)
		(void) snprintf(dst, 32, "%lld h %lld min", (long long) (s / hour),
		                (long long) (s % hour / minute));
	else if (s >= 3 * minute)
		(void) snprintf(dst, 32, "%lld min", (long long) (s / minute));
	else
		(void) snprintf(dst, 32, "%lld s", (long long) s);
	return dst;
}

static void append_left(const struct observation *o, char *dst, size_t size)
{
	int64_t left = evidence_number(o, "left_s", INT64_MIN);
	char text[32];

	if (left == INT64_MIN)
		return;
	if (left > 0)
		(void) text_append(dst, size, " in %s", span(left, text));
	else
		(void) text_append(dst, size, " due %s ago", span(-left, text));
}

static void describe_gap(const struct observation *o, char *dst, size_t size)
{
	char text[32];

	(void) span(evidence_number(o, "gap_s", 0), text);
	if (evidence_number(o, "same_boot", 0))
		(void) text_format(
			dst, size,
			"no look for %s, without a boot in between: the host stood still, "
			"the instance was suspended, or nodewhy was stopped",
			text);
	else
		(void) text_format(dst, size,
		                   "it stopped without a shutdown, last sign of life %s before "
		                   "this boot%s",
		                   text,
		                   evidence_number(o, "pressure", 0) == 0
		                           ? ", no memory or disk pressure with it"
		                           : "");
}

static void describe(const struct observation *o, char *dst, size_t size)
{
	char text[32];

	if (strcmp(o->aspect, notices[SPOT].aspect) == 0) {
		(void) text_format(dst, size, "spot/instance-action: %s",
		                   evidence_get_text(o, "action"));
		append_left(o, dst, size);
	} else if (strcmp(o->aspect, notices[REBALANCE].aspect) == 0) {
		(void) text_format(dst, size, "rebalance recommended");
		if (evidence_number(o, "age_s", -1) >= 0)
			(void) text_append(dst, size, " %s ago",
			                   span(evidence_number(o, "age_s", 0), text));
	} else if (strcmp(o->aspect, notices[MAINTENANCE].aspect) == 0) {
		(void) text_format(dst, size, "events/maintenance: %s",
		                   evidence_get_text(o, "event"));
		append_left(o, dst, size);
	} else if (strcmp(o->aspect, notices[AUTOSCALING].aspect) == 0) {
		(void) text_format(dst, size, "autoscaling/target-lifecycle-state is %s",
		                   evidence_get_text(o, "state"));
	} else {
		describe_gap(o, dst, size);
	}
}

/* ---- observations ---- */

static void add_evidence(struct run *r, struct observation *o, enum notice n)
{
	static const char *const keys[N_NOTICES] = {"action", NULL, "state", "event"};
	const struct memory *m = run_memory(r);
	const struct known *k = &m->known[n];

	if (keys[n] && k->what[0])
		observation_text(o, keys[n], "%s", k->what);
	if (!k->when)
		return;
	if (n == REBALANCE)
		observation_number(o, "age_s", now_s(r) > k->when ? now_s(r) - k->when : 0);
	else
		observation_number(o, "left_s", k->when - now_s(r));
}

static void observe_notice(struct run *r, enum notice n)
{
	const struct memory *m = run_memory(r);
	const struct known *k = &m->known[n];
	bool fresh = k->at && run_now(r) - k->at <= believed;
	struct observation *o;

	if (k->answer == NEVER_ASKED)
		return;
	if (k->answer == NO_ANSWER || k->answer == NOT_UNDERSTOOD || !fresh) {
		observation_detail(
			run_observe(r, LAYER_LIFECYCLE, notices[n].aspect, "", OUTCOME_UNKNOWN, 0),
			k->answer == NOT_UNDERSTOOD ? "cannot tell: metadata's answer is not "
						      "understood"
						    : "cannot tell: metadata does not answer");
		return;
	}
	o = run_observe(r, LAYER_LIFECYCLE, notices[n].aspect, "",
	                k->answer == ANNOUNCED ? OUTCOME_EXPIRED : OUTCOME_OK,
	                k->answer == ANNOUNCED ? 200 : 0);
	if (!o)
		return;
	add_evidence(r, o, n);
	if (k->answer == ANNOUNCED)
		describe(o, o->detail, sizeof(o->detail));
	else
		observation_detail(o, "nothing announced");
}

/* ---- signs of life ---- */

/* How the boot before this one ended, by what init writes into wtmp: the last "reboot" is this
 * boot's; a "shutdown" before it, or the boot before. A file that was rotated or shortened says
 * nothing. */
static enum tristate was_clean(const void *wtmp, size_t len)
{
	bool booted = false;

	for (size_t i = len / sizeof(struct utmp); i-- > 0;) {
		struct utmp u;
		bool shutdown;

		memcpy(&u, (const char *) wtmp + i * sizeof(u), sizeof(u));
		shutdown = u.ut_type == RUN_LVL &&
		           strncmp(u.ut_user, "shutdown", sizeof(u.ut_user)) == 0;
		if (u.ut_type == BOOT_TIME && booted)
			return NO;
		if (shutdown)
			return booted ? YES : CANNOT_TELL;
		booted |= u.ut_type == BOOT_TIME;
	}
	return CANNOT_TELL;
}

/* % of the last minute in which every task stood still for want of it; -1: the kernel does not
 * count. */
static int pressure(struct run *r, const char *path)
{
	const char *text, *full;
	size_t len;
	double avg;

	if (run_read(r, path, 4096, &text, &len) < 0)
		return -1;
	full = strstr(text, "full ");
	full = full ? strstr(full, "avg60=") : NULL;
	if (!full || sscanf(full, "avg60=%lf", &avg) != 1 || !(avg >= 0 && avg <= 100))
		return -1;
	return (int) avg;
}

/* What is known of the boot before: with it, or 0, goes how long ago it was last alive. */
struct ending {
	char boot[40];
	int64_t gap_s;
	int clean, pressed; /* pressed: -1 when it is not known */
};

static bool parse_ending(const char *text, struct ending *ret)
{
	long long gap;

	if (!text ||
	    sscanf(text, "%39s %lld %d %d", ret->boot, &gap, &ret->clean, &ret->pressed) != 4)
		return false;
	ret->gap_s = gap;
	return true;
}

/* Once a boot: what the last life of the daemon left behind is held against this boot's start. */
static void look_back(struct run *r, const char *boot)
{
	const char *alive = run_recall(r, alive_key), *text;
	int64_t began = now_s(r) - (int64_t) (run_uptime(r) / USEC_PER_SEC);
	enum tristate clean;
	int memory, io;
	long long at;
	char before[40], value[96];
	size_t len;

	if (!alive || sscanf(alive, "%39s %lld %d %d", before, &at, &memory, &io) != 4 ||
	    strcmp(before, boot) == 0)
		return;
	clean = run_read(r, "/var/log/wtmp", WTMP_MAX, &text, &len) < 0 ? CANNOT_TELL
	                                                                : was_clean(text, len);
	/* a clock that was set in between would make it up */
	if (clean == CANNOT_TELL || at > began || began - at > GAP_MAX_S)
		run_remember(r, gap_key, NULL);
	else {
		(void) snprintf(value, sizeof(value), "%s %lld %d %d", boot, (long long) began - at,
		                clean == YES, memory >= PRESSED || io >= PRESSED);
		run_remember(r, gap_key, value);
	}
}

static void stay_alive(struct run *r)
{
	struct memory *m = run_memory(r);
	char value[96];

	if (m->alive_at && run_now(r) - m->alive_at < alive_every)
		return;
	m->alive_at = run_now(r);
	(void) snprintf(value, sizeof(value), "%s %lld %d %d", m->boot, (long long) now_s(r),
	                pressure(r, "/proc/pressure/memory"), pressure(r, "/proc/pressure/io"));
	run_remember(r, alive_key, value);
}

/* A pause that is out of all proportion to the one before: our interval may be any. */
static void watch_pause(struct run *r)
{
	struct memory *m = run_memory(r);
	usec_t now = run_now(r), pause = m->looked_at ? now - m->looked_at : 0;

	if (m->pause && pause > GAP_MIN_S * USEC_PER_SEC && pause > GAP_TIMES * m->pause) {
		m->stalled_at = now;
		m->stalled_s = (int64_t) (pause / USEC_PER_SEC);
	} else if (pause >= ask_every) {
		m->pause = pause;
	}
	m->looked_at = now;
}

static void observe_gap(struct run *r)
{
	const struct memory *m = run_memory(r);
	bool young = run_uptime(r) < TOLD_S * USEC_PER_SEC;
	struct ending e = {.boot = ""};
	struct observation *o;

	if (m->stalled_at && run_now(r) - m->stalled_at < TOLD_S * USEC_PER_SEC) {
		o = run_observe(r, LAYER_LIFECYCLE, "gap", "", OUTCOME_FAILED, 0);
		observation_number(o, "gap_s", m->stalled_s);
		observation_number(o, "same_boot", 1);
	} else if (parse_ending(run_recall(r, gap_key), &e) && strcmp(e.boot, m->boot) == 0) {
		o = run_observe(r, LAYER_LIFECYCLE, "gap", "",
		                young && !e.clean && e.pressed <= 0 ? OUTCOME_FAILED : OUTCOME_OK,
		                0);
		observation_number(o, "gap_s", e.gap_s);
		observation_number(o, "clean", e.clean);
		observation_number(o, "pressure", e.pressed);
	} else {
		return;
	}
	if (!o)
		return;
	if (o->outcome == OUTCOME_FAILED)
		describe(o, o->detail, sizeof(o->detail));
	else
		observation_detail(o,
		                   e.clean ? "a clean shutdown before this boot"
		                           : "the boot before ended without a shutdown%s",
		                   e.pressed > 0 ? ", under memory or disk pressure" : "");
}

/* ---- the run ---- */

static void conclude(struct run *r)
{
	for (enum notice n = 0; n < N_NOTICES; n++)
		observe_notice(r, n);
	observe_gap(r);
	run_end(r);
}

static void on_notice(struct run *r, const struct imds_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);

	take_reply(r, (enum notice) tag, reply);
	if (--s->pending == 0)
		conclude(r);
}

static bool is_due(const struct memory *m, enum notice n)
{
	unsigned every = m->spot ? notices[n].spot_every : notices[n].else_every;
	unsigned shift = m->spot ? notices[n].spot_shift : notices[n].else_shift;

	if (every <= 1 || m->turn == 0)
		return every != 0;
	return m->turn >= FIRST_MINUTE && m->turn % every == shift;
}

static void ask(struct run *r)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);

	for (enum notice n = 0; n < N_NOTICES; n++)
		if (is_due(m, n) && run_imds(r, notices[n].path, BODY_MAX, true, on_notice, n) == 0)
			s->pending++;
	m->turn++;
	if (s->pending == 0)
		conclude(r);
}

/* Asked once: what kind of instance it is does not change. While it is not known, it may be spot.
 */
static void on_life_cycle(struct run *r, const struct imds_reply *reply, uintptr_t tag)
{
	struct memory *m = run_memory(r);
	const struct http_reply *h = &reply->http;

	m->spot = true;
	if (!reply->throttled && !reply->disabled && reply->step == IMDS_GET &&
	    h->outcome == OUTCOME_OK && h->code == 200) {
		m->life_known = true;
		m->spot = h->body_len < 9 || memcmp(h->body, "on-demand", 9) != 0;
	}
	ask(r);
}

static int start(struct run *r)
{
	struct memory *m = run_memory(r);
	usec_t now = run_now(r);

	if (!m->boot[0] &&
	    file_read_line(run_files(r), "/proc/sys/kernel/random/boot_id", m->boot,
	                   sizeof(m->boot)) == 0 &&
	    m->boot[0])
		look_back(r, m->boot);
	if (m->boot[0])
		stay_alive(r);
	watch_pause(r);
	if ((m->asked_at && now - m->asked_at < ask_every) || !run_node(r)->metadata_answers) {
		conclude(r);
		return 0;
	}
	m->asked_at = now;
	if (!m->life_known)
		return run_imds(r, life_cycle_path, BODY_MAX, true, on_life_cycle, 0);
	ask(r);
	return 0;
}

/* ---- the judgement ---- */

static enum code judge(const struct observation *o, struct words *ret)
{
	static const enum code codes[N_NOTICES] = {CODE_SpotInterruption, CODE_RebalanceRecommended,
	                                           CODE_TerminationPending,
	                                           CODE_MaintenanceScheduled};

	for (enum notice n = 0; n < N_NOTICES; n++)
		if (strcmp(o->aspect, notices[n].aspect) == 0 && o->outcome == OUTCOME_EXPIRED) {
			describe(o, ret->summary, sizeof(ret->summary));
			return codes[n];
		}
	if (strcmp(o->aspect, "gap") != 0 || o->outcome != OUTCOME_FAILED)
		return CODE_NONE;
	describe(o, ret->summary, sizeof(ret->summary));
	return CODE_HostGap;
}

const struct probe probe_lifecycle = {
	.name = "lifecycle",
	.what = "what metadata announces: spot interruption, rebalance, maintenance, scale-in; and "
		"whether the boot before ended by a shutdown",
	.layer = LAYER_LIFECYCLE,
	.every = 15 * USEC_PER_SEC,
	.failing = 5 * USEC_PER_SEC,
	.timeout = 6 * USEC_PER_SEC,
	.after = "imds",
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_SpotInterruption, CODE_RebalanceRecommended, CODE_MaintenanceScheduled,
                  CODE_TerminationPending, CODE_HostGap, CODE_NONE},
};
