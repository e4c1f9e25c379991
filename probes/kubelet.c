/* SPDX-License-Identifier: Apache-2.0 */
/* Kubelet: its unit, its health check, its serving certificate, and what it says in the journal.
 * A line of the journal is only ever believed for a while: each kind has an age beyond which it
 * says nothing, and a later line of success, or an answer seen live, takes it back. */
#include <errno.h>
#include <inttypes.h>

#include "probe.h"

enum {
	HEALTHZ_PORT = 10248,
	API_PORT = 10250,
	ERROR_MAX = 256,        /* of a line: as much as is kept */
	ENTRIES_MAX = 2000,     /* of the journal in one reading */
	READINGS_MAX = 10,      /* in one look: what is left comes with the next */
	RESTARTS_LOOPING = 2,   /* one restart, as after a change of configuration, says nothing */
	UNAUTHORIZED_TIMES = 2, /* kubelet tries again at least every 7 s */
	PAST_MAX = 50,
	CONFIG_BYTES_MAX = 262144,
};

#define NEWEST          (1200 * USEC_PER_SEC) /* how far back the first reading goes */
#define FRESH           (60 * USEC_PER_SEC)   /* what kubelet would have repeated by now */
#define WATCHES_FRESH   (300 * USEC_PER_SEC) /* said when a container comes, or a log is followed */
#define PLEG_FRESH      (20 * USEC_PER_SEC)  /* said every 5 s at least while it lasts */
#define STARTING        (30 * USEC_PER_SEC)  /* from exec to the first answer of healthz */
#define STABLE          (60 * USEC_PER_SEC)  /* a kubelet that lives so long no longer loops */
#define STABLE_MAX      (600 * USEC_PER_SEC)
#define APPROVAL        (180 * USEC_PER_SEC) /* a serving certificate is approved by then */
#define SERVING_EVERY   (60 * USEC_PER_SEC)  /* kubelet logs each handshake that fails */
#define UNIT_TIMEOUT    USEC_PER_SEC
#define HEALTHZ_TIMEOUT (2 * USEC_PER_SEC)

enum unit_id { KUBELET, SNAP, NODEADM_RUN, CLOUD_FINAL, SANDBOX_IMAGE, N_UNITS };
static const char *const unit_names[N_UNITS] = {
	"kubelet.service", "snap.kubelet-eks.daemon.service", "nodeadm-run.service",
	"cloud-final.service", "sandbox-image.service"};
static const char *const logged_units[] = {"kubelet.service", "snap.kubelet-eks.daemon.service",
                                           NULL};
static const struct journal_query newest = {
	.units = logged_units, .newest_only = NEWEST, .entries_max = ENTRIES_MAX};

/* ---- what lines say ---- */

enum line {
	REGISTERED,
	READY_NOW,
	NOT_REGISTERED,
	NOT_ALLOWED,
	NO_NAME,
	NO_NAME_ESCAPED,
	UNAUTHORIZED,
	LEASE,
	LEASE_UPDATE,
	NODE_STATUS,
	CREDENTIALS,
	PLEG,
	NO_CERTIFICATE,
	CONFIG_FILE,
	CONFIG_FILE_OLD,
	CONFIG_DIRECTORY,
	CONFIG_INVALID,
	FLAGS_INVALID,
	FLAG_PARSE,
	FLAG_UNKNOWN,
	GATE_UNKNOWN,
	COMMAND_FAILED,
	RUN_FAILED,
	PANIC,
	GO_FATAL,
	CLIENT_CA,
	VERSION_LINE,
	EXITED,
	DEPENDENCY,
	INOTIFY_INIT,
	INOTIFY_INIT1,
	INOTIFY_CREATE,
	FSNOTIFY,
	INOTIFY_ADD,
	NO_SPACE,
	N_LINES
};

static const char *const lines[N_LINES] = {
	[REGISTERED] = "Successfully registered node",
	[READY_NOW] = "Fast updating node status as it just became ready",
	[NOT_REGISTERED] = "Unable to register node",
	[NOT_ALLOWED] = "is not allowed to modify node",
	[NO_NAME] = "system:node:\"",
	[NO_NAME_ESCAPED] = "system:node:\\\"",
	[UNAUTHORIZED] = "Unauthorized",
	[LEASE] = "Failed to ensure lease exists",
	[LEASE_UPDATE] = "Failed to update lease",
	[NODE_STATUS] = "Error updating node status",
	[CREDENTIALS] = "getting credentials: exec",
	[PLEG] = "PLEG is not healthy: pleg was last seen active ",
	[NO_CERTIFICATE] = "no serving certificate available for the kubelet",
	[CONFIG_FILE] = "failed to load kubelet config file",
	[CONFIG_FILE_OLD] = "failed to load Kubelet config file",
	[CONFIG_DIRECTORY] = "failed to merge kubelet configs",
	[CONFIG_INVALID] = "failed to validate kubelet configuration",
	[FLAGS_INVALID] = "failed to validate kubelet flags",
	[FLAG_PARSE] = "failed to parse kubelet flag",
	[FLAG_UNKNOWN] = "unknown flag: ",
	[GATE_UNKNOWN] = "unrecognized feature gate",
	[COMMAND_FAILED] = "\"command failed\"",
	[RUN_FAILED] = "failed to run Kubelet",
	[PANIC] = "panic: ",
	[GO_FATAL] = "fatal error: ",
	[CLIENT_CA] = "unable to load client CA file",
	[VERSION_LINE] = "\"Kubelet version\" kubeletVersion=\"",
	[EXITED] = "Main process exited",
	[DEPENDENCY] = "with result 'dependency'",
	/* cAdvisor's words, those of static pods' directory, of logs that are followed */
	[INOTIFY_INIT] = "inotify_init: too many open files",
	[INOTIFY_INIT1] = "inotify_init1: too many open files",
	[INOTIFY_CREATE] = "create inotify: too many open files",
	[FSNOTIFY] = "fsnotify watcher: too many open files",
	[INOTIFY_ADD] = "inotify_add_watch ",
	[NO_SPACE] = ": no space left on device",
};

/* Those that kubelet ends with, and of them those that are about its configuration. */
static bool is_config(const struct match_set *s)
{
	for (enum line l = CONFIG_FILE; l <= GATE_UNKNOWN; l++)
		if (match_has(s, l))
			return true;
	return false;
}

static bool is_fatal(const struct match_set *s)
{
	for (enum line l = COMMAND_FAILED; l <= CLIENT_CA; l++)
		if (match_has(s, l))
			return true;
	return is_config(s);
}

/* Something that kubelet says: when last, and how often without a pause. */
struct said {
	usec_t at, since; /* CLOCK_BOOTTIME; 0: never */
	unsigned times;
	char text[ERROR_MAX];
};

struct last_words {
	unsigned rank; /* how much it looks like the reason: 2 surely, 1 an error, 0 nothing */
	bool config;
	char text[ERROR_MAX];
};

enum denial { DENIAL_NONE, DENIAL_UNAUTHORIZED, DENIAL_NOT_ALLOWED, DENIAL_NO_NAME };

struct memory {
	bool prepared;
	bool watch; /* what was not given: a watch */
	struct matcher matcher;
	char cursor[JOURNAL_CURSOR_MAX];
	struct said denied, api, pleg, no_certificate, dependency;
	struct said watches;  /* the kernel gave no inotify instance, or no watch */
	uint64_t watches_max; /* the limit then */
	enum denial denial;
	usec_t heard;   /* the last time that it said anything */
	usec_t success; /* the last time that it said that the API server took the node */
	uint32_t pleg_age_s;
	struct last_words words, fatal; /* of the running process; of the last that ended */
	bool exited;
	usec_t fatal_at;
	/* restarts, from look to look */
	bool counted;
	uint32_t restarts, rises;
	usec_t rose_at, interval;
	/* the serving certificate */
	usec_t served_at;
	bool alert;
};

struct state {
	enum unit_id id;
	bool known, expected;
	int bus_error, journal_error;
	struct unit unit;
	bool booting, boot_failed, sandbox_failed;
	unsigned readings, waiting;
	bool ran; /* in this boot, but longer ago than lines are read */
	char cursor[JOURNAL_CURSOR_MAX];
	bool failed_now; /* a new line says that the API server refused the node */
};

/* ---- text of lines ---- */

/* "E0102 15:04:05.000000    1902 run.go:72] text" */
static const char *without_header(const char *text)
{
	const char *end = strstr(text, "] ");

	if (strchr("IWEF", text[0]) && text[0] && text[1] >= '0' && text[1] <= '9' && end)
		return end + 2;
	return text;
}

/* The value of err="...", unquoted, or all of it. */
static void copy_error(char dst[static ERROR_MAX], const char *text)
{
	char plain[JOURNAL_MESSAGE_MAX];
	const char *p = without_header(text), *err = strstr(p, "err=\"");
	size_t n = 0;

	if (err)
		p = err + strlen("err=\"");
	for (; *p && n + 1 < sizeof(plain) && !(err && *p == '"'); p++) {
		if (err && *p == '\\' && p[1])
			p++;
		plain[n++] = *p;
	}
	plain[n] = 0;
	text_hide_secrets(plain, sizeof(plain));
	(void) text_clean(dst, ERROR_MAX, plain, strlen(plain));
}

/* "3m7.25s" as Go prints a duration, in seconds; 0 when it is none. */
static uint32_t duration_s(const char *text)
{
	uint64_t total = 0, value = 0;
	bool digits = false;

	for (; total < UINT32_MAX; text++) {
		if (*text >= '0' && *text <= '9' && value < UINT32_MAX) {
			value = value * 10 + (uint64_t) (*text - '0');
			digits = true;
			continue;
		}
		if (!digits)
			break;
		if (*text == 'h')
			total += value * 3600;
		else if (*text == 'm' && text[1] != 's')
			total += value * 60;
		else if (*text == 's' || *text == '.')
			return (uint32_t) (total + value);
		else
			break;
		value = 0;
		digits = false;
	}
	return (uint32_t) (total < UINT32_MAX ? total : UINT32_MAX);
}

/* name="value" of structured logging. */
static void copy_value(char *dst, size_t size, const char *text, const char *key)
{
	const char *p = strstr(text, key);

	if (p && !dst[0])
		(void) text_clean(dst, size, p + strlen(key), strcspn(p + strlen(key), "\"\\"));
}

static void note(struct said *s, usec_t at, const char *text)
{
	if (s->at && at < s->at + FRESH) {
		s->times++;
	} else {
		s->times = 1;
		s->since = at;
	}
	s->at = at;
	copy_error(s->text, text);
}

static bool is_fresh(const struct said *s, usec_t fresh, usec_t now)
{
	return s->at && now < s->at + fresh;
}

/* ---- the journal ---- */

static void note_words(struct memory *m, const char *text, const struct match_set *found)
{
	unsigned rank = is_fatal(found) || text[0] == 'F' ? 2 : text[0] == 'E' ? 1 : 0;

	if (rank == 0 || rank < m->words.rank)
		return;
	m->words.rank = rank;
	m->words.config = is_config(found);
	copy_error(m->words.text, text);
}

static void note_end(struct memory *m, usec_t at)
{
	m->fatal = m->words;
	m->fatal_at = at;
	m->exited = true;
	m->words = (struct last_words){0};
}

static enum denial denial_of(const struct match_set *found)
{
	if (match_has(found, NO_NAME) || match_has(found, NO_NAME_ESCAPED))
		return DENIAL_NO_NAME;
	if (match_has(found, NOT_ALLOWED))
		return DENIAL_NOT_ALLOWED;
	if (match_has(found, UNAUTHORIZED) &&
	    (match_has(found, NOT_REGISTERED) || match_has(found, LEASE) ||
	     match_has(found, LEASE_UPDATE) || match_has(found, NODE_STATUS)))
		return DENIAL_UNAUTHORIZED; /* a registry answers so, too */
	return DENIAL_NONE;
}

static void note_api(struct run *r, usec_t at, const char *text, const struct match_set *found)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	enum denial d = denial_of(found);

	if (match_has(found, REGISTERED) || match_has(found, READY_NOW)) {
		m->success = at;
		m->denied = m->api = (struct said){0};
		s->failed_now = false;
		copy_value(run_learn(r)->node_name, sizeof(run_learn(r)->node_name), text,
		           " node=\"");
		run_learn(r)->registered = YES;
		return;
	}
	if (d != DENIAL_NONE) {
		if (d != m->denial)
			m->denied = (struct said){0};
		m->denial = d;
		note(&m->denied, at, text);
		s->failed_now = true;
	}
	if (match_has(found, LEASE) || match_has(found, LEASE_UPDATE) ||
	    match_has(found, NODE_STATUS) || match_has(found, NOT_REGISTERED) ||
	    match_has(found, CREDENTIALS))
		note(&m->api, at, text);
}

static const char *const watch_limits[] = {"/proc/sys/fs/inotify/max_user_instances",
                                           "/proc/sys/fs/inotify/max_user_watches"};

/* 0: not known. */
static uint64_t watch_limit(struct run *r)
{
	const struct memory *m = run_memory(r);
	char line[64];
	uint64_t max;

	return file_read_line(run_files(r), watch_limits[m->watch], line, sizeof(line)) >= 0 &&
	                       text_to_uint(line, 0, UINT64_MAX, &max) == 0
	               ? max
	               : 0;
}

static void note_watches(struct run *r, usec_t at, const char *text, const struct match_set *found)
{
	bool watch = match_has(found, INOTIFY_ADD) && match_has(found, NO_SPACE);
	bool instance = false;
	struct memory *m = run_memory(r);

	/* "too many open files in system" is of another limit */
	for (enum line l = INOTIFY_INIT; l <= FSNOTIFY; l++)
		if (match_has(found, l))
			instance = instance || strncmp(strstr(text, lines[l]) + strlen(lines[l]),
			                               " in system", 10) != 0;
	if (!watch && !instance)
		return;
	m->watch = watch;
	m->watches_max = watch_limit(r);
	note(&m->watches, at, text);
}

static void note_kubelet(struct run *r, usec_t at, const char *text, const struct match_set *found)
{
	struct memory *m = run_memory(r);

	if (match_has(found, VERSION_LINE)) {
		m->words = (struct last_words){0}; /* a new process */
		copy_value(run_learn(r)->kubelet_version, sizeof(run_learn(r)->kubelet_version),
		           text, lines[VERSION_LINE]);
	}
	if (match_has(found, PLEG)) {
		note(&m->pleg, at, text);
		m->pleg_age_s = duration_s(strstr(text, lines[PLEG]) + strlen(lines[PLEG]));
	}
	if (match_has(found, NO_CERTIFICATE))
		note(&m->no_certificate, at, text);
	note_watches(r, at, text, found);
	note_api(r, at, text, found);
	note_words(m, text, found);
}

static void on_line(struct run *r, const struct journal_entry *e, uintptr_t tag)
{
	struct memory *m = run_memory(r);
	usec_t at = run_from_monotonic(r, e->at);
	bool init = strcmp(e->identifier, "systemd") == 0;
	struct match_set found = {0};

	if (!init)
		m->heard = at;
	if (!matcher_find(&m->matcher, e->message, e->len, &found) && e->message[0] != 'E' &&
	    e->message[0] != 'F')
		return;
	if (!init)
		note_kubelet(r, at, e->message, &found);
	else if (match_has(&found, EXITED))
		note_end(m, at);
	else if (match_has(&found, DEPENDENCY))
		note(&m->dependency, at, e->message);
}

/* ---- the unit: how it stands ---- */

static bool is(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

static bool is_active(const struct unit *u)
{
	return is(u->active, "active") || is(u->active, "reloading");
}

/* How long the main process has lived. */
static usec_t process_age(struct run *r, const struct unit *u)
{
	usec_t start = run_from_monotonic(r, u->main_start), now = run_now(r);

	return u->main_start && now > start ? now - start : 0;
}

static usec_t stable_after(const struct memory *m)
{
	usec_t t = 2 * m->interval > STABLE ? 2 * m->interval : STABLE;

	return t < STABLE_MAX ? t : STABLE_MAX;
}

/* Restarts count from the unit's last start by hand. Those before our first look were quick ones
 * only if the process is still young. */
static void count_restarts(struct run *r, const struct unit *u)
{
	struct memory *m = run_memory(r);
	usec_t now = run_now(r);

	if (!m->counted || u->restarts < m->restarts) {
		m->rises = m->counted || is_active(u) ? 0 : u->restarts;
		if (is_active(u) && process_age(r, u) < STABLE)
			m->rises = u->restarts;
		m->rose_at = now;
	} else if (u->restarts > m->restarts) {
		m->interval = m->rises ? (now - m->rose_at) / (u->restarts - m->restarts) : 0;
		m->rises += u->restarts - m->restarts;
		m->rose_at = now;
	} else if (is_active(u) && process_age(r, u) >= stable_after(m)) {
		m->rises = 0;
	}
	m->counted = true;
	m->restarts = u->restarts;
}

static bool is_looping(struct run *r, const struct unit *u)
{
	const struct memory *m = run_memory(r);

	if (is(u->active, "failed"))
		return true;
	if (is(u->active, "activating") && is(u->sub, "auto-restart"))
		return u->restarts >= RESTARTS_LOOPING;
	return m->rises >= RESTARTS_LOOPING &&
	       (!is_active(u) || process_age(r, u) < stable_after(m));
}

/* Evidence holds 71 bytes a text: a longer line goes on in a second one. */
static void add_error(struct observation *o, const char *text)
{
	size_t room = sizeof(o->evidence[0].text) - 1, cut = strlen(text);

	if (!text[0])
		return;
	if (cut > room)
		for (cut = room; cut > 0 && ((unsigned char) text[cut] & 0xC0) == 0x80;)
			cut--;
	observation_text(o, "error", "%.*s", (int) cut, text);
	if (text[cut])
		observation_text(o, "error_end", "%s", text + cut);
}

static void add_exit(struct observation *o, const struct unit *u)
{
	if (u->result[0] && !is(u->result, "success"))
		observation_text(o, "result", "%s", u->result);
	if (u->main_code)
		observation_number(o, "exit_status", u->main_status);
}

static void summarize(const struct observation *o, char *dst, size_t size);

/* The words of what kubelet ended with; while it starts anew, those of the process before. */
static const struct last_words *reason(const struct memory *m)
{
	return m->fatal.text[0] ? &m->fatal : &m->words;
}

static void observe_config(struct run *r, bool refused)
{
	const struct last_words *w = reason(run_memory(r));
	struct observation *o = run_observe(r, LAYER_KUBELET, "config", "",
	                                    refused ? OUTCOME_MALFORMED : OUTCOME_OK, 0);

	if (!o)
		return;
	if (refused) {
		add_error(o, w->text);
		summarize(o, o->detail, sizeof(o->detail));
	} else {
		observation_detail(o, "kubelet runs with it");
	}
}

/* systemd forgets a unit that has ended and that nothing refers to, as kubelet's: then the journal
 * alone knows whether it ever ran. */
static void add_past(struct run *r, struct observation *o)
{
	const struct memory *m = run_memory(r);
	const struct state *s = run_state(r);
	usec_t now = run_now(r),
	       ended = s->unit.active_exit ? s->unit.active_exit : s->unit.main_exit;

	if (ended)
		observation_number(o, "stopped_s",
		                   (int64_t) ((now - run_from_monotonic(r, ended)) / USEC_PER_SEC));
	else if (m->heard)
		observation_number(o, "heard_s", (int64_t) ((now - m->heard) / USEC_PER_SEC));
	else if (s->ran || !s->journal_error)
		observation_number(o, "ran", s->ran);
}

static void observe_stopped(struct run *r, const struct state *s)
{
	const struct memory *m = run_memory(r);
	struct observation *o;

	if (s->booting) {
		observation_detail(run_observe(r, LAYER_KUBELET, "unit", unit_names[s->id],
		                               OUTCOME_SKIPPED, 0),
		                   "not started yet: bootstrap is at it");
		return;
	}
	o = run_observe(r, LAYER_KUBELET, "unit", unit_names[s->id], OUTCOME_ABSENT, 0);
	observation_text(o, "active", "%s", s->unit.active);
	observation_text(o, "sub", "%s", s->unit.sub);
	observation_number(o, "restarts", s->unit.restarts);
	if (is(s->unit.load, "masked"))
		observation_text(o, "load", "masked");
	add_past(r, o);
	if (m->dependency.at)
		observation_text(o, "dependency", "%s",
		                 s->sandbox_failed ? unit_names[SANDBOX_IMAGE] : "failed");
	else if (s->boot_failed)
		observation_text(o, "waits_for", "%s", unit_names[NODEADM_RUN]);
	if (o)
		summarize(o, o->detail, sizeof(o->detail));
}

static void observe_looping(struct run *r, const struct state *s)
{
	const struct last_words *w = reason(run_memory(r));
	struct observation *o = run_observe(r, LAYER_KUBELET, "unit", unit_names[s->id],
	                                    OUTCOME_FAILED, s->unit.main_status);

	observation_number(o, "restarts", s->unit.restarts);
	observation_text(o, "active", "%s", s->unit.active);
	if (!o)
		return;
	add_exit(o, &s->unit);
	add_error(o, w->text);
	summarize(o, o->detail, sizeof(o->detail));
	if (w->config)
		observe_config(r, true);
}

static void observe_running(struct run *r, const struct state *s)
{
	struct observation *o =
		run_observe(r, LAYER_KUBELET, "unit", unit_names[s->id], OUTCOME_OK, 0);

	observation_number(o, "restarts", s->unit.restarts);
	observation_detail(o, "%s (%s) for %" PRIu64 " s, %u restarts", s->unit.active, s->unit.sub,
	                   process_age(r, &s->unit) / USEC_PER_SEC, s->unit.restarts);
	if (is_active(&s->unit))
		observe_config(r, false);
}

static void observe_unit(struct run *r)
{
	const struct state *s = run_state(r);
	const char *why = s->bus_error == -ENOENT         ? "no systemd bus here"
	                  : s->bus_error == -ECONNREFUSED ? "systemd's bus does not answer"
	                  : s->bus_error == -ETIMEDOUT    ? "systemd does not answer in time"
	                  : s->bus_error                  ? strerror(-s->bus_error)
	                                                  : "";

	if (!s->known) {
		observation_detail(run_observe(r, LAYER_KUBELET, "unit", "",
		                               s->bus_error ? OUTCOME_UNKNOWN : OUTCOME_SKIPPED, 0),
		                   "%s%s", s->bus_error ? "cannot tell: " : "no kubelet unit here",
		                   why);
		return;
	}
	if (is_looping(r, &s->unit))
		observe_looping(r, s);
	else if (is(s->unit.active, "inactive"))
		observe_stopped(r, s);
	else
		observe_running(r, s);
}

/* ---- what it says of the API server ---- */

static const struct {
	const char *text;
	enum outcome outcome;
} kinds[] = {
	{"Unauthorized", OUTCOME_DENIED},
	{"forbidden", OUTCOME_DENIED},
	{"x509:", OUTCOME_UNTRUSTED},
	{"no such host", OUTCOME_ABSENT},
	{"connection refused", OUTCOME_REFUSED},
	{"connection reset", OUTCOME_RESET},
	{"i/o timeout", OUTCOME_TIMEOUT},
	{"TLS handshake timeout", OUTCOME_TIMEOUT},
	{"deadline exceeded", OUTCOME_TIMEOUT},
	{"Client.Timeout", OUTCOME_TIMEOUT},
	{"no route to host", OUTCOME_UNREACHABLE},
	{"network is unreachable", OUTCOME_UNREACHABLE},
};

static void add_age(struct observation *o, const struct said *s, usec_t fresh, usec_t now)
{
	observation_number(o, "line_age_s", (int64_t) ((now - s->at) / USEC_PER_SEC));
	observation_number(o, "seen", s->times);
	if (o)
		o->valid_for = s->at + fresh - now;
}

/* No verdict: the probes of the API server and of the identity look for themselves. But what they
 * see may differ from what kubelet does, and the line says why. */
static void observe_api(struct run *r)
{
	const struct memory *m = run_memory(r);
	enum outcome outcome = OUTCOME_FAILED;
	struct observation *o;

	if (!is_fresh(&m->api, FRESH, run_now(r)))
		return;
	for (size_t i = 0; i < ELEMENTS(kinds) && outcome == OUTCOME_FAILED; i++)
		if (strstr(m->api.text, kinds[i].text))
			outcome = kinds[i].outcome;
	o = run_observe(r, LAYER_KUBELET, "api", "", outcome, 0);
	if (!o)
		return;
	add_age(o, &m->api, FRESH, run_now(r));
	add_error(o, m->api.text);
	summarize(o, o->detail, sizeof(o->detail));
}

/* The name between the first or second pair of quotes after "node", as in
 * node "A" is not allowed to modify node "B". */
static void copy_node(char *dst, size_t size, const char *text, bool second)
{
	const char *p = strstr(text, "node \"");

	if (p && second)
		p = strstr(p + 1, "node \"");
	dst[0] = 0;
	if (p)
		(void) text_format(dst, size, "%.*s", (int) strcspn(p + 6, "\""), p + 6);
}

static void observe_denied(struct run *r)
{
	const struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	struct observation *o;
	char name[72];

	if (m->denial == DENIAL_NONE || !is_fresh(&m->denied, FRESH, run_now(r)) ||
	    m->denied.at < m->success || m->denied.times < UNAUTHORIZED_TIMES)
		return;
	if (s->failed_now)
		run_learn(r)->registered = NO;
	if (run_node(r)->registered == YES)
		return; /* seen live since */
	o = run_observe(r, LAYER_IDENTITY, "register", "", OUTCOME_DENIED,
	                m->denial == DENIAL_UNAUTHORIZED ? 401 : 403);
	if (!o)
		return;
	add_age(o, &m->denied, FRESH, run_now(r));
	observation_number(o, "http_status", o->code);
	if (m->denial == DENIAL_NOT_ALLOWED) {
		copy_node(name, sizeof(name), m->denied.text, false);
		observation_text(o, "identity", "%s", name);
		copy_node(name, sizeof(name), m->denied.text, true);
		observation_text(o, "node_name", "%s", name);
	} else if (m->denial == DENIAL_NO_NAME) {
		observation_text(o, "identity", "system:node:");
	}
	summarize(o, o->detail, sizeof(o->detail));
}

/* The kernel refused root once. It no longer does where the limit was raised since, or where, as
 * root, we are given one ourselves. */
static void observe_watches(struct run *r)
{
	const struct memory *m = run_memory(r);
	struct observation *o;

	if (!is_fresh(&m->watches, WATCHES_FRESH, run_now(r)) || watch_limit(r) > m->watches_max ||
	    file_watches_left() == 0)
		return;
	o = run_observe(r, LAYER_HOST, "inotify", "", OUTCOME_EXHAUSTED,
	                m->watch ? ENOSPC : EMFILE);
	if (!o)
		return;
	add_age(o, &m->watches, WATCHES_FRESH, run_now(r));
	observation_text(o, "limit", "%s", strrchr(watch_limits[m->watch], '/') + 1);
	if (m->watches_max)
		observation_number(
			o, "max",
			(int64_t) (m->watches_max > INT64_MAX ? INT64_MAX : m->watches_max));
	add_error(o, m->watches.text);
	summarize(o, o->detail, sizeof(o->detail));
}

/* ---- PLEG ---- */

/* Tasks that wait for a device without being interruptible: what a hung runtime often hangs in. */
static int64_t tasks_in_d(struct run *r)
{
	static const char key[] = "procs_blocked ";
	const char *text, *p;
	size_t len;

	if (run_read(r, "/proc/stat", CONFIG_BYTES_MAX, &text, &len) < 0)
		return -1;
	p = strstr(text, key);
	return p ? (int64_t) strtoul(p + strlen(key), NULL, 10) : -1;
}

static void observe_pleg(struct run *r)
{
	const struct memory *m = run_memory(r);
	const struct state *s = run_state(r);
	bool slow = is_fresh(&m->pleg, PLEG_FRESH, run_now(r)) && m->pleg_age_s;
	struct observation *o;
	int64_t blocked;

	if (s->known && !is_active(&s->unit))
		return;
	if (s->journal_error) {
		observation_detail(run_observe(r, LAYER_RUNTIME, "pleg", "", OUTCOME_UNKNOWN, 0),
		                   "cannot tell: %s",
		                   s->journal_error == -ENOENT ? "no journal of this boot"
		                                               : strerror(-s->journal_error));
		return;
	}
	o = run_observe(r, LAYER_RUNTIME, "pleg", "", slow ? OUTCOME_SLOW : OUTCOME_OK, 0);
	if (!slow) {
		observation_detail(o, "kubelet says nothing against it");
		return;
	}
	observation_number(o, "age_s", m->pleg_age_s);
	add_age(o, &m->pleg, FRESH, run_now(r));
	blocked = tasks_in_d(r);
	if (blocked >= 0)
		observation_number(o, "tasks_in_d", blocked);
	if (o)
		summarize(o, o->detail, sizeof(o->detail));
}

/* ---- the serving certificate ---- */

static bool exists(struct run *r, const char *path)
{
	struct stat st;

	return file_stat(run_files(r), path, &st) == 0;
}

/* It made one for itself, or was given one: nothing to approve. */
static bool has_certificate(struct run *r)
{
	return exists(r, "/var/lib/kubelet/pki/kubelet-server-current.pem") ||
	       exists(r, "/var/lib/kubelet/pki/kubelet.crt");
}

/* Since when it could have had one. */
static usec_t pending_for(struct run *r)
{
	const struct memory *m = run_memory(r);
	const struct state *s = run_state(r);

	if (s->known && s->unit.main_start)
		return process_age(r, &s->unit);
	return m->no_certificate.at ? run_now(r) - m->no_certificate.since : 0;
}

static void observe_serving(struct run *r)
{
	const struct memory *m = run_memory(r);
	usec_t age = pending_for(r);
	struct observation *o;

	if (!m->alert || has_certificate(r)) {
		observation_detail(run_observe(r, LAYER_IDENTITY, "serving", "", OUTCOME_OK, 0),
		                   "nothing says that kubelet lacks a certificate");
		return;
	}
	o = run_observe(r, LAYER_IDENTITY, "serving", "",
	                age < APPROVAL ? OUTCOME_SKIPPED : OUTCOME_ABSENT, 0);
	if (!o)
		return;
	if (o->outcome == OUTCOME_SKIPPED) {
		observation_detail(o, "no serving certificate yet, %" PRIu64 " s after the start",
		                   age / USEC_PER_SEC);
		return;
	}
	observation_number(o, "alert", 80);
	observation_number(o, "age_s", (int64_t) (age / USEC_PER_SEC));
	summarize(o, o->detail, sizeof(o->detail));
}

static void on_tls(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct memory *m = run_memory(r);

	/* only the handshake is of interest: kubelet's certificate is of no CA that we know */
	m->alert = reply->stage == HTTP_TLS && strstr(reply->tls_error, "alert internal error");
	observe_serving(r);
	run_end(r);
}

/* Not more often than it may log that we hung up. */
static int look_at_serving(struct run *r)
{
	struct memory *m = run_memory(r);
	struct http_request rq = {
		.method = "GET",
		.scheme = "https",
		.host = "127.0.0.1",
		.port = API_PORT,
		.path = "/healthz",
		.connect_timeout = USEC_PER_SEC,
		.timeout = HEALTHZ_TIMEOUT,
		.body_max = 4096,
	};
	int e;

	if (!has_certificate(r) && (!m->served_at || run_now(r) >= m->served_at + SERVING_EVERY)) {
		m->served_at = run_now(r);
		e = address_parse(&rq.address, "127.0.0.1");
		return e < 0 ? e : run_http(r, &rq, on_tls, 0);
	}
	observe_serving(r);
	run_end(r);
	return 0;
}

/* ---- healthz ---- */

static bool names_another_port(const char *text, const char *key)
{
	const char *p = strstr(text, key);

	if (!p)
		return false;
	p += strlen(key);
	p += strspn(p, "\"':= \t");
	return *p >= '0' && *p <= '9' && strtoul(p, NULL, 10) != HEALTHZ_PORT;
}

static bool file_names_another_port(struct run *r, const char *path)
{
	const char *text;
	size_t len;

	return run_read(r, path, CONFIG_BYTES_MAX, &text, &len) == 0 &&
	       (names_another_port(text, "healthzPort") ||
	        names_another_port(text, "--healthz-port"));
}

/* 0 turns it off. Asked only when nobody answers where it usually is. */
static bool is_elsewhere(struct run *r)
{
	static const char drop_ins[] = "/etc/kubernetes/kubelet/config.json.d";
	static const char *const paths[] = {
		"/etc/kubernetes/kubelet/config.json",
		"/etc/kubernetes/kubelet/kubelet-config.json",
		"/etc/kubernetes/kubelet/config",
		"/etc/eks/kubelet/environment",
		"/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf",
	};
	_cleanup_(freep) struct names *names = malloc(sizeof(*names));
	char path[sizeof(drop_ins) + NAME_BYTES_MAX + 1];
	bool found = false;

	for (size_t i = 0; i < ELEMENTS(paths) && !found; i++)
		found = file_names_another_port(r, paths[i]);
	if (found || !names || file_list(run_files(r), drop_ins, names) < 0)
		return found;
	for (size_t i = 0; i < names->n && !found; i++) {
		(void) text_format(path, sizeof(path), "%s/%s", drop_ins, names->name[i]);
		found = file_names_another_port(r, path);
	}
	return found;
}

static void skip_healthz(struct run *r, enum outcome outcome, const char *why)
{
	observation_detail(run_observe(r, LAYER_KUBELET, "healthz", "", outcome, 0), "%s", why);
}

static enum outcome outcome_of_healthz(const struct http_reply *reply)
{
	if (reply->outcome != OUTCOME_OK)
		return reply->outcome;
	if (reply->status == 200 && strncmp(reply->body, "ok", 2) == 0)
		return OUTCOME_OK;
	return OUTCOME_FAILED;
}

/* It holds its port from early on; a process that has just begun may not. */
static bool is_young(struct run *r)
{
	const struct state *s = run_state(r);

	return s->known && s->unit.main_start && process_age(r, &s->unit) < STARTING;
}

static void observe_healthz(struct run *r, const struct http_reply *reply)
{
	enum outcome outcome = outcome_of_healthz(reply);
	struct observation *o;

	if (outcome != OUTCOME_OK && is_young(r)) {
		skip_healthz(r, OUTCOME_SKIPPED, "kubelet has just started");
		return;
	}
	if (outcome == OUTCOME_REFUSED && is_elsewhere(r)) {
		skip_healthz(r, OUTCOME_SKIPPED, "healthz is configured to another port, or off");
		return;
	}
	o = run_observe(r, LAYER_KUBELET, "healthz", "", outcome,
	                reply->status ? reply->status : reply->code);
	if (!o)
		return;
	o->took = reply->total;
	if (reply->status)
		observation_number(o, "http_status", reply->status);
	if (reply->status && outcome != OUTCOME_OK) {
		char body[64];

		(void) text_clean(body, sizeof(body), reply->body, strcspn(reply->body, "\r\n"));
		observation_text(o, "body", "%s", body);
	}
	observation_number(o, "total_ms", (int64_t) (reply->total / USEC_PER_MSEC));
	if (outcome == OUTCOME_OK)
		observation_detail(o, "127.0.0.1:10248/healthz: ok in %.1f ms",
		                   (double) reply->total / USEC_PER_MSEC);
	else
		summarize(o, o->detail, sizeof(o->detail));
}

static void on_healthz(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	int e = 0;

	observe_healthz(r, reply);
	/* who does not answer here will not serve TLS either, and that is told already */
	if (reply->outcome == OUTCOME_OK)
		e = look_at_serving(r);
	else
		run_end(r);
	if (e < 0)
		run_end(r);
}

static int look_at_healthz(struct run *r)
{
	struct state *s = run_state(r);
	struct http_request rq = {
		.method = "GET",
		.scheme = "http",
		.host = "127.0.0.1",
		.port = HEALTHZ_PORT,
		.path = "/healthz",
		.connect_timeout = HEALTHZ_TIMEOUT,
		.timeout = HEALTHZ_TIMEOUT,
		.body_max = 65536,
	};
	int e;

	if (s->known ? !is_active(&s->unit) : !s->expected) {
		skip_healthz(r, OUTCOME_SKIPPED,
		             s->known ? "kubelet is not running" : "no kubelet here");
		run_end(r);
		return 0;
	}
	e = address_parse(&rq.address, "127.0.0.1");
	return e < 0 ? e : run_http(r, &rq, on_healthz, 0);
}

/* ---- the order of a look ---- */

static void give_up(struct run *r, int error)
{
	if (error < 0) {
		skip_healthz(r, OUTCOME_UNKNOWN, strerror(-error));
		run_end(r);
	}
}

static void after_units(struct run *r)
{
	observe_unit(r);
	observe_denied(r);
	observe_api(r);
	observe_pleg(r);
	observe_watches(r);
	give_up(r, look_at_healthz(r));
}

static void on_other_unit(struct run *r, const struct bus_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	const struct unit *u = reply->unit;

	if (u && tag == SANDBOX_IMAGE)
		s->sandbox_failed = is(u->active, "failed");
	else if (u && is(u->active, "activating"))
		s->booting = true;
	else if (u && tag == NODEADM_RUN)
		s->boot_failed =
			is(u->load, "loaded") && (is(u->active, "failed") || u->main_start == 0);
	if (--s->waiting == 0)
		after_units(r);
}

/* One that was never started: whose turn is it? */
static void look_at_starters(struct run *r)
{
	struct state *s = run_state(r);
	int e = 0;

	for (enum unit_id i = NODEADM_RUN; i < N_UNITS && e == 0; i++) {
		e = run_unit(r, unit_names[i], UNIT_TIMEOUT, on_other_unit, i);
		s->waiting += e == 0;
	}
	if (s->waiting == 0)
		after_units(r);
}

static void on_past(struct run *r, const struct journal_end *e, uintptr_t tag)
{
	look_at_starters(r);
}

static void on_past_line(struct run *r, const struct journal_entry *e, uintptr_t tag)
{
	struct state *s = run_state(r);

	s->ran = s->ran || strcmp(e->identifier, "systemd") != 0;
}

/* The first lines of this boot: what kubelet, if it ran at all, began with is among them. */
static void look_at_past(struct run *r)
{
	static const struct journal_query q = {.units = logged_units, .entries_max = PAST_MAX};
	const struct memory *m = run_memory(r);
	struct state *s = run_state(r);

	if (m->heard || s->unit.active_exit || s->unit.main_exit || s->journal_error ||
	    run_journal(r, &q, s->cursor, on_past_line, on_past, 0) < 0)
		look_at_starters(r);
}

static void on_lines(struct run *r, const struct journal_end *e, uintptr_t tag)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);

	s->journal_error = e->error;
	if (e->more && ++s->readings < READINGS_MAX &&
	    run_journal(r, &newest, m->cursor, on_line, on_lines, 0) == 0)
		return;
	if (s->known && is(s->unit.active, "inactive"))
		look_at_past(r);
	else
		after_units(r);
}

static void look_at_journal(struct run *r)
{
	struct memory *m = run_memory(r);
	int e = run_journal(r, &newest, m->cursor, on_line, on_lines, 0);

	if (e < 0)
		on_lines(r, &(struct journal_end){.error = e}, 0);
}

static void on_unit(struct run *r, const struct bus_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	const struct unit *u = reply->unit;

	s->bus_error = reply->error;
	if (u && is(u->load, "not-found") && tag == KUBELET &&
	    run_unit(r, unit_names[SNAP], UNIT_TIMEOUT, on_unit, SNAP) == 0)
		return;
	if (u && !is(u->load, "not-found")) {
		s->known = true;
		s->id = (enum unit_id) tag;
		s->unit = *u;
		count_restarts(r, u);
	}
	look_at_journal(r);
}

/* Whether this node is meant to have a kubelet that runs: it has been told where its cluster is. */
static bool is_expected(struct run *r)
{
	for (size_t i = 0; kubeconfig_paths[i]; i++)
		if (exists(r, kubeconfig_paths[i]))
			return true;
	return false;
}

static int start(struct run *r)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	int e;

	if (!m->prepared) {
		e = matcher_init(&m->matcher, lines, N_LINES);
		if (e < 0)
			return e;
		m->prepared = true;
	}
	s->expected = is_expected(r);
	return run_unit(r, unit_names[KUBELET], UNIT_TIMEOUT, on_unit, KUBELET);
}

/* ---- the judgement ---- */

static enum code code_of(const struct observation *o)
{
	static const struct {
		const char *aspect;
		enum outcome outcome;
		int code; /* 0: any */
		enum code finding;
	} known[] = {
		{"unit", OUTCOME_ABSENT, 0, CODE_KubeletInactive},
		{"unit", OUTCOME_FAILED, 0, CODE_KubeletCrashLooping},
		{"config", OUTCOME_MALFORMED, 0, CODE_KubeletConfigInvalid},
		{"pleg", OUTCOME_SLOW, 0, CODE_PlegUnhealthy},
		{"serving", OUTCOME_ABSENT, 0, CODE_ServingCertificatePending},
		{"register", OUTCOME_DENIED, 401, CODE_NodeUnauthorized},
		{"inotify", OUTCOME_EXHAUSTED, 0, CODE_InotifyExhausted},
	};

	if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	    o->outcome == OUTCOME_UNKNOWN)
		return CODE_NONE;
	for (size_t i = 0; i < ELEMENTS(known); i++)
		if (is(o->aspect, known[i].aspect) && o->outcome == known[i].outcome &&
		    (!known[i].code || o->code == known[i].code))
			return known[i].finding;
	if (is(o->aspect, "register") && o->code == 403)
		return evidence_get_text(o, "node_name")[0] ? CODE_NodeNameMismatch
		                                            : CODE_NodeNameEmpty;
	return is(o->aspect, "healthz") ? CODE_KubeletUnhealthy : CODE_NONE;
}

static void append_error(const struct observation *o, char *dst, size_t size)
{
	const char *error = evidence_get_text(o, "error");

	if (error[0])
		(void) text_append(dst, size, ": %s%s", error, evidence_get_text(o, "error_end"));
}

static void append_age(const struct observation *o, char *dst, size_t size)
{
	int64_t age = evidence_number(o, "line_age_s", -1), seen = evidence_number(o, "seen", 0);

	if (age >= 0)
		(void) text_append(dst, size, ", %" PRId64 " s ago", age);
	if (seen > 1)
		(void) text_append(dst, size, ", %" PRId64 " times", seen);
}

static void summarize_stopped(const struct observation *o, char *dst, size_t size)
{
	const char *sub = evidence_get_text(o, "sub"), *dep = evidence_get_text(o, "dependency"),
		   *waits = evidence_get_text(o, "waits_for");
	int64_t stopped = evidence_number(o, "stopped_s", -1),
		heard = evidence_number(o, "heard_s", -1), ran = evidence_number(o, "ran", -1);

	if (is(evidence_get_text(o, "load"), "masked"))
		(void) text_format(dst, size, "%s is masked", o->subject);
	else
		(void) text_format(dst, size, "%s inactive (%s)", o->subject, *sub ? sub : "dead");
	if (stopped >= 0)
		(void) text_append(dst, size, ", stopped %" PRId64 " s ago", stopped);
	else if (heard >= 0)
		(void) text_append(dst, size, ", last heard of %" PRId64 " s ago", heard);
	else if (ran >= 0)
		(void) text_append(dst, size,
		                   ran ? ", it ran earlier in this boot"
		                       : ", never started since boot");
	if (is(dep, "failed"))
		(void) text_append(dst, size, ": a unit that it needs failed");
	else if (*dep)
		(void) text_append(dst, size, ": %s, which it needs, failed", dep);
	else if (*waits)
		(void) text_append(dst, size, ": %s has not started it", waits);
}

static void summarize_looping(const struct observation *o, char *dst, size_t size)
{
	const char *result = evidence_get_text(o, "result");
	int64_t restarts = evidence_number(o, "restarts", 0);

	if (is(evidence_get_text(o, "active"), "failed") && restarts == 0)
		(void) text_format(dst, size, "failed");
	else if (is(evidence_get_text(o, "active"), "failed"))
		(void) text_format(dst, size, "failed after %" PRId64 " restarts", restarts);
	else
		(void) text_format(dst, size, "restarted %" PRId64 " times", restarts);
	if (*result)
		(void) text_append(dst, size, " (%s)", result);
	append_error(o, dst, size);
}

static void summarize_healthz(const struct observation *o, char *dst, size_t size)
{
	int64_t status = evidence_number(o, "http_status", 0),
		ms = evidence_number(o, "total_ms", 2000);
	const char *body = evidence_get_text(o, "body");

	(void) text_format(dst, size, "127.0.0.1:10248/healthz: ");
	if (status)
		(void) text_append(dst, size, "HTTP %" PRId64 "%s%s", status, *body ? " " : "",
		                   body);
	else if (o->outcome == OUTCOME_TIMEOUT)
		(void) text_append(dst, size, "no answer in %" PRId64 ".%" PRId64 " s", ms / 1000,
		                   ms % 1000 / 100);
	else if (o->code)
		(void) text_append(dst, size, "%s", strerror(o->code));
	else
		(void) text_append(dst, size, "no HTTP answer");
}

static void summarize_denied(const struct observation *o, char *dst, size_t size)
{
	const char *name = evidence_get_text(o, "node_name");

	if (o->code == 401)
		(void) text_format(dst, size, "kubelet: the API server answers 401 Unauthorized");
	else if (*name)
		(void) text_format(dst, size, "kubelet: 403, node %s may not modify node %s",
		                   evidence_get_text(o, "identity"), name);
	else
		(void) text_format(dst, size,
		                   "kubelet: 403, its identity is \"system:node:\" with no name");
	append_age(o, dst, size);
}

static void summarize_pleg(const struct observation *o, char *dst, size_t size)
{
	int64_t age = evidence_number(o, "age_s", 0), blocked = evidence_number(o, "tasks_in_d", 0),
		cri = evidence_number(o, "cri_ms", -1);

	(void) text_format(dst, size,
	                   "kubelet: PLEG is not healthy, last seen active %" PRId64 "m%" PRId64
	                   "s ago",
	                   age / 60, age % 60);
	if (cri >= 0)
		(void) text_append(dst, size, "; CRI answers in %" PRId64 " ms", cri);
	if (blocked > 0)
		(void) text_append(dst, size, "; %" PRId64 " tasks wait in D state", blocked);
}

static void summarize_watches(const struct observation *o, char *dst, size_t size)
{
	int64_t max = evidence_number(o, "max", 0);

	(void) text_format(dst, size, "kubelet: fs.inotify.%s", evidence_get_text(o, "limit"));
	if (max > 0)
		(void) text_append(dst, size, " (%" PRId64 ")", max);
	(void) text_append(dst, size, " is reached");
	append_age(o, dst, size);
	append_error(o, dst, size);
}

static void summarize(const struct observation *o, char *dst, size_t size)
{
	if (is(o->aspect, "unit") && o->outcome == OUTCOME_ABSENT) {
		summarize_stopped(o, dst, size);
	} else if (is(o->aspect, "unit")) {
		summarize_looping(o, dst, size);
	} else if (is(o->aspect, "config")) {
		(void) text_format(dst, size, "kubelet refuses its configuration");
		append_error(o, dst, size);
	} else if (is(o->aspect, "healthz")) {
		summarize_healthz(o, dst, size);
	} else if (is(o->aspect, "register")) {
		summarize_denied(o, dst, size);
	} else if (is(o->aspect, "pleg")) {
		summarize_pleg(o, dst, size);
	} else if (is(o->aspect, "inotify")) {
		summarize_watches(o, dst, size);
	} else if (is(o->aspect, "serving")) {
		(void) text_format(dst, size,
		                   "127.0.0.1:10250 answers TLS alert internal_error %" PRId64
		                   " min after kubelet's start: no serving certificate",
		                   evidence_number(o, "age_s", 0) / 60);
	} else {
		(void) text_format(dst, size, "kubelet to the API server");
		append_error(o, dst, size);
		append_age(o, dst, size);
	}
}

static enum code judge(const struct observation *o, struct words *ret)
{
	enum code c = code_of(o);

	if (c != CODE_NONE)
		summarize(o, ret->summary, sizeof(ret->summary));
	return c;
}

const struct probe probe_kubelet = {
	.name = "kubelet",
	.what = "kubelet's unit and restarts, its health check and serving certificate, and what "
		"it "
		"says in the journal",
	.layer = LAYER_KUBELET,
	.every = 15 * USEC_PER_SEC,
	.failing = 5 * USEC_PER_SEC,
	.retry = 2 * USEC_PER_SEC,
	.timeout = 10 * USEC_PER_SEC,
	.grace = 180 * USEC_PER_SEC, /* nodeadm starts it after cloud-init is through */
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.units = {"kubelet.service", "snap.kubelet-eks.daemon.service"},
	.start = start,
	.judge = judge,
	.codes = {CODE_KubeletInactive, CODE_KubeletCrashLooping, CODE_KubeletUnhealthy,
                  CODE_KubeletConfigInvalid, CODE_PlegUnhealthy, CODE_NodeUnauthorized,
                  CODE_NodeNameMismatch, CODE_NodeNameEmpty, CODE_ServingCertificatePending,
                  CODE_InotifyExhausted, CODE_NONE},
};
