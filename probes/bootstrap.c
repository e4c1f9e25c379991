/* SPDX-License-Identifier: Apache-2.0 */
/* Did what turns this instance into a node come to its end? The units that do it, the last error
 * that they wrote, the shape of the user data they were given, and how long there is to go. */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>

#include "probe.h"

enum {
	USERDATA_BYTES = 65536, /* EC2 takes 16 KiB */
	ENTRIES_MAX = 500,
	READINGS_MAX = 8,
	PAST_MAX = 50,   /* of kubelet's first lines since boot */
	ERROR_MAX = 142, /* two texts of evidence */
	LINE_BYTES = 1024,
	WORTH_SAYING_S = 60,      /* that it is still running */
	NODEADM_GIVES_UP_S = 660, /* it waits 10 min for EC2/DescribeInstances, then it ends */
	CLOUD_INIT_ENDS_S = 120,
	NEAR_S = 600,
	DEADLINE_S = 900,
	PAST_S = 300, /* so long after the deadline nobody is coming to delete the instance */
};

/* The first ones make a node; the last ones tell whether kubelet was started in the end. */
enum unit_id { CONFIG, RUN, CLOUD_INIT, CLOUD_FINAL, N_BOOT, KUBELET = N_BOOT, SNAP, N_UNITS };

static const char *const unit_names[N_UNITS] = {
	"nodeadm-config.service", "nodeadm-run.service", "cloud-init.service",
	"cloud-final.service",    "kubelet.service",     "snap.kubelet-eks.daemon.service"};
static const char *const kubelet_units[] = {"kubelet.service", "snap.kubelet-eks.daemon.service",
                                            NULL};
static const char *const journal_units[N_BOOT + 1] = {"nodeadm-config.service",
                                                      "nodeadm-run.service", "cloud-init.service",
                                                      "cloud-final.service", NULL};

/* NOT_HERE: this image has no such unit; WAITING: it was not started since boot. */
enum phase { NOT_HERE, WAITING, RUNNING, DONE, BROKEN };

/* What an error line is about. */
enum class { PLAIN, THROTTLED, USER_DATA, BAD_CA };

/* How much a line tells: systemd's and a wrapper's only say that something before them failed. */
enum weight { NOTHING, SYSTEMD, WRAPPER, ERROR };

struct line {
	usec_t at; /* CLOCK_MONOTONIC of the host */
	enum weight weight;
	enum class class;
	char text[ERROR_MAX];
};

struct memory {
	char cursor[JOURNAL_CURSOR_MAX];
	struct line last[N_BOOT]; /* of the heaviest lines the latest */
	usec_t stub_at;           /* bootstrap.sh said that it is gone; 0: it did not */
	char retrying[48];        /* the call that nodeadm makes again and again */
	unsigned retries;
	bool kubelet_ran; /* since boot: systemd may have forgotten it */
	bool shape_known, no_userdata;
	struct userdata_shape shape;
	usec_t ask_again; /* for the user data, when it could not be had */
};

struct look {
	enum phase phase;
	char result[24];
	int status;
	usec_t started; /* CLOCK_MONOTONIC of the host */
	bool ran;       /* its main process, at some time since boot */
};

struct state {
	struct look units[N_UNITS];
	char cursor[JOURNAL_CURSOR_MAX]; /* for kubelet's first lines */
	unsigned pending, readings;
	int bus_error, journal_error;
	bool nodeadm;      /* else cloud-init makes the node */
	bool eks;          /* the image is made to join a cluster */
	bool launched;     /* kubelet was started: they all did their work */
	enum unit_id unit; /* the one that there is something to say about */
	int userdata_http; /* status of an answer that was none */
	const char *userdata_error;
};

/* ---- a line of the journal ---- */

static bool contains(const char *text, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcasestr(text, words[i]))
			return true;
	return false;
}
#define CONTAINS(text, words) contains(text, words, ELEMENTS(words))

static enum class class_of(const char *text) {
	static const char *const throttled[] = {"RequestLimitExceeded", "ThrottlingException",
	                                        "(Throttling)", "Throttling: ",
	                                        "TooManyRequestsException", "Rate exceeded"};
	static const char *const registry[] = {".ecr.", "toomanyrequests: "};
	static const char *const ca[] = {"illegal base64 data", "base64: invalid input",
	                                 "unable to load client CA file",
	                                 "does not contain any valid RSA or ECDSA certificates"};
	static const char *const userdata[] =
		{
			"bootstrap.sh has been removed",
			"could not find NodeConfig",
			"is missing in cluster configuration",
			"\"cluster\":{}",
			"no config in chain",
			"mime: ",
			"multipart: ",
			"malformed MIME",
			"'Kind' is missing",
			"json parse error",
			"strict decoding error",
			"decode user data",
			"decompress user data",
		};

	if (CONTAINS(text, throttled) && !CONTAINS(text, registry)) return THROTTLED;
	if (CONTAINS(text, ca)) return BAD_CA;
	return CONTAINS(text, userdata) ? USER_DATA : PLAIN;
}

static enum weight weight_of(const struct journal_entry *e, const char *text)
{
	static const char *const noise[] = {"failed=0", "errors=0", "0 errors",
	                                    "0 failed", "no error", "without error"};
	static const char *const systemd[] = {"failed", "exited"};
	static const char *const wrappers[] = {"Exited with error on line",
	                                       "Failed to run module",
	                                       "Failed running /var/lib/cloud",
	                                       "running scripts-user failed",
	                                       "Running module",
	                                       "modules failed",
	                                       "cc_scripts"};
	static const char *const errors[] = {
		"error",     "failed",    "fatal",    "panic:",    "denied",    "cannot ",
		"unable to", "not found", "no such ", "timed out", "is missing"};

	if (text[0] == '+' || CONTAINS(text, noise)) /* + is what a shell traces */
		return NOTHING;
	if (strcmp(e->identifier, "systemd") == 0)
		return CONTAINS(text, systemd) ? SYSTEMD : NOTHING;
	if (CONTAINS(text, wrappers))
		return WRAPPER;
	if ((e->priority >= 0 && e->priority <= 3) || CONTAINS(text, errors))
		return ERROR;
	return class_of(text) == PLAIN ? NOTHING : ERROR;
}

/* nodeadm writes a JSON object a line. True when it was one. */
static bool from_json(const char *message, size_t len, char *dst, size_t size, enum weight *ret)
{
	json_t *j = message[0] == '{' ? json_loadb(message, len, 0, NULL) : NULL;
	const char *level, *msg, *error;

	if (!json_is_object(j)) {
		json_decref(j);
		return false;
	}
	level = json_string_value(json_object_get(j, "level"));
	msg = json_string_value(json_object_get(j, "msg"));
	error = json_string_value(json_object_get(j, "error"));
	*ret = level && (strcmp(level, "error") == 0 || strcmp(level, "fatal") == 0 ||
	                 strcmp(level, "panic") == 0)
	               ? ERROR
	               : NOTHING;
	(void) text_format(dst, size, "%s", error ? error : msg ? msg : "");
	json_decref(j);
	return true;
}

static void cut_at(char *text, const char *mark, const char *instead)
{
	char *at = strstr(text, mark);

	if (at) {
		size_t room = LINE_BYTES - (size_t) (at - text);

		(void) text_format(at, room, "%s", instead);
	}
}

static void cut_out(char *text, const char *from, const char *to)
{
	char *at = strstr(text, from), *end = at ? strstr(at + strlen(from), to) : NULL;

	if (end)
		memmove(at, end + strlen(to), strlen(end + strlen(to)) + 1);
}

/* What the AWS SDK puts before the reason: there is room for the reason only. */
static void shorten(char *text)
{
	cut_out(text, "https response", " error ");
	cut_out(text, "RequestID: ", ", ");
	cut_out(text, "HostID: ", ", ");
}

static void take_retry(struct memory *m, const char *text)
{
	static const char mark[] = "retrying request ";
	const char *at = strstr(text, mark);

	if (!at)
		return;
	at += sizeof(mark) - 1;
	(void) text_clean(m->retrying, sizeof(m->retrying), at, strcspn(at, ", \"\n"));
	m->retries++;
}

static void take_line(struct memory *m, const struct journal_entry *e)
{
	char text[LINE_BYTES];
	enum weight weight = NOTHING;
	enum unit_id u = CONFIG;
	struct line *last;
	size_t prefix;
	bool json;

	while (u < N_BOOT && strcmp(e->unit, unit_names[u]) != 0)
		u++;
	if (u == N_BOOT)
		return;
	last = &m->last[u];
	prefix = strlen(unit_names[u]);
	json = from_json(e->message, e->len, text, sizeof(text), &weight);
	if (!json)
		(void) text_format(text, sizeof(text), "%s", e->message);
	take_retry(m, text);
	if (strstr(text, "bootstrap.sh has been removed"))
		m->stub_at = e->at ? e->at : 1;
	if (!json)
		weight = weight_of(e, text);
	if (weight == NOTHING || weight < last->weight)
		return;
	*last = (struct line){.at = e->at, .weight = weight, .class = class_of(text)};
	/* nodeadm quotes the whole user data when it is no object */
	cut_at(text, "is missing in '", "is missing in what it was given");
	text_hide_secrets(text, sizeof(text));
	shorten(text);
	/* its name is said anyway */
	prefix = strncmp(text, unit_names[u], prefix) == 0 && text[prefix] == ':' ? prefix + 2 : 0;
	if (strlen(text) <= prefix)
		prefix = 0;
	(void) text_clean(last->text, sizeof(last->text), text + prefix, strlen(text + prefix));
}

/* ---- units ---- */

static enum phase phase_of(const struct unit *u)
{
	if (strcmp(u->load, "loaded") != 0)
		return NOT_HERE;
	if (strcmp(u->active, "failed") == 0)
		return BROKEN;
	if (strcmp(u->active, "inactive") == 0)
		return u->inactive_exit ? DONE : WAITING;
	return strcmp(u->active, "active") == 0 ? DONE : RUNNING;
}

static void take_unit(struct look *l, const struct unit *u)
{
	*l = (struct look){.phase = phase_of(u),
	                   .status = u->main_status,
	                   .started = u->inactive_exit,
	                   .ran = u->main_start != 0};
	(void) text_format(l->result, sizeof(l->result), "%s", u->result);
}

static bool exists(struct run *r, const char *path)
{
	struct stat st;

	return file_stat(run_files(r), path, &st) == 0;
}

static bool in_phase(const struct state *s, enum unit_id u, enum phase p)
{
	return s->units[u].phase == p;
}

/* Of those that make the node, the first that failed, else that runs, else that waits. */
static enum unit_id which_unit(const struct state *s)
{
	static const enum phase order[] = {BROKEN, RUNNING, WAITING};
	enum unit_id first = s->nodeadm ? CONFIG : CLOUD_INIT;

	for (size_t i = 0; i < ELEMENTS(order); i++)
		for (enum unit_id u = first; u < first + 2; u++)
			if (in_phase(s, u, order[i]))
				return u;
	return in_phase(s, first + 1, NOT_HERE) ? first : first + 1;
}

static void understand(struct run *r)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);

	s->nodeadm = !in_phase(s, CONFIG, NOT_HERE) || !in_phase(s, RUN, NOT_HERE);
	s->eks = s->nodeadm || exists(r, "/etc/eks");
	m->kubelet_ran = m->kubelet_ran || s->units[KUBELET].ran || s->units[SNAP].ran;
	s->launched = m->kubelet_ran;
	s->unit = which_unit(s);
}

/* Seconds since a unit was last started. */
static int64_t running_s(struct run *r, const struct look *l)
{
	usec_t started = run_from_monotonic(r, l->started), now = run_now(r);

	return l->started && now > started ? (int64_t) ((now - started) / USEC_PER_SEC) : 0;
}

/* Lines of an earlier start are not about this one. */
static const struct line *last_error(const struct state *s, const struct memory *m, enum unit_id u)
{
	const struct line *l = &m->last[u];

	return l->weight != NOTHING && (!l->at || l->at >= s->units[u].started) ? l : NULL;
}

/* ---- observations ---- */

/* A line of evidence may be longer than one text holds. */
static void add_error(struct observation *o, const char *text)
{
	size_t len = strlen(text), cut = sizeof(o->evidence[0].text) - 1;

	if (!o || !len)
		return;
	while (len > cut && cut > 0 && (text[cut] & 0xc0) == 0x80)
		cut--;
	observation_text(o, "error", "%.*s", (int) cut, text);
	if (len > cut)
		observation_text(o, "error_end", "%s", text + cut);
}

static void observe_broken(struct run *r)
{
	const struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	const struct look *l = &s->units[s->unit];
	const struct line *last = last_error(s, m, s->unit);
	bool throttled = last && last->class == THROTTLED;
	struct observation *o = run_observe(r, LAYER_BOOTSTRAP, "unit", unit_names[s->unit],
	                                    throttled ? OUTCOME_EXHAUSTED : OUTCOME_FAILED, 0);

	observation_text(o, "result", "%s", l->result);
	if (l->status)
		observation_number(o, "status", l->status);
	add_error(o, last ? last->text : "");
	if (m->retries) {
		observation_text(o, "retrying", "%s", m->retrying);
		observation_number(o, "tries", m->retries);
	}
	if (s->journal_error)
		observation_number(o, "journal_errno", -s->journal_error);
	observation_detail(o, "%s failed (%s %d)%s%s", unit_names[s->unit], l->result, l->status,
	                   last ? ": " : "", last ? last->text : "");
}

static void observe_running(struct run *r)
{
	const struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	int64_t ran = running_s(r, &s->units[s->unit]);
	struct observation *o = run_observe(r, LAYER_BOOTSTRAP, "unit", unit_names[s->unit],
	                                    ran < WORTH_SAYING_S ? OUTCOME_OK : OUTCOME_SLOW, 0);

	observation_number(o, "running_s", ran);
	if (s->unit <= RUN)
		observation_number(o, "limit_s", NODEADM_GIVES_UP_S);
	if (m->retries) {
		observation_text(o, "retrying", "%s", m->retrying);
		observation_number(o, "tries", m->retries);
	}
	observation_detail(o, "%s runs for %lld s%s%s", unit_names[s->unit], (long long) ran,
	                   m->retries ? ", retrying " : "", m->retrying);
}

static void observe_quiet(struct run *r)
{
	const struct state *s = run_state(r);
	const struct look *l = &s->units[s->unit];
	struct observation *o =
		run_observe(r, LAYER_BOOTSTRAP, "unit", unit_names[s->unit], OUTCOME_OK, 0);

	observation_text(o, "result", "%s", l->result);
	if (l->phase == BROKEN)
		observation_detail(o, "%s failed (%s), but kubelet was started",
		                   unit_names[s->unit], l->result);
	else if (l->phase == WAITING)
		observation_detail(o, "%s was not started yet%s", unit_names[s->unit],
		                   s->nodeadm && in_phase(s, CLOUD_FINAL, RUNNING)
		                           ? ": cloud-final.service still runs"
		                           : "");
	else
		observation_detail(o, s->nodeadm ? "nodeadm-config and nodeadm-run succeeded"
		                                 : "cloud-final succeeded");
}

static void observe_unit(struct run *r)
{
	const struct state *s = run_state(r);
	const struct look *l = &s->units[s->unit];
	if (s->bus_error)
		observation_detail(
			run_observe(r, LAYER_BOOTSTRAP, "unit", "",
		                    s->eks ? OUTCOME_UNKNOWN : OUTCOME_SKIPPED, -s->bus_error),
			"cannot tell: systemd does not say (%s)", strerrordesc_np(-s->bus_error));
	else if (!s->eks || l->phase == NOT_HERE)
		observation_detail(run_observe(r, LAYER_BOOTSTRAP, "unit", "", OUTCOME_SKIPPED, 0),
		                   "no unit here makes a node");
	else if (l->phase == BROKEN && !s->launched)
		observe_broken(r);
	else if (l->phase == RUNNING)
		observe_running(r);
	else
		observe_quiet(r);
}

/* ---- user data ---- */

static bool waits_for_nobody(const struct state *s)
{
	return in_phase(s, CLOUD_FINAL, DONE) || in_phase(s, CLOUD_FINAL, BROKEN);
}

/* Nothing is asked of the user data of a node that came up, and before it could. */
static bool userdata_matters(struct run *r)
{
	const struct state *s = run_state(r);

	if (s->bus_error || !s->eks || s->launched || run_node(r)->registered == YES)
		return false;
	if (in_phase(s, s->unit, BROKEN))
		return true;
	if (run_uptime(r) < CLOUD_INIT_ENDS_S * USEC_PER_SEC)
		return false;
	return s->nodeadm || waits_for_nobody(s);
}

static bool has_local_config(struct run *r)
{
	struct names *names = calloc(1, sizeof(*names));
	bool some =
		names && file_list(run_files(r), "/etc/eks/nodeadm.d", names) == 0 && names->n > 0;

	free(names);
	return some;
}

/* For an image with nodeadm, whose first unit failed: what a line of it says of its configuration
 * counts, and the bytes where there is no line. */
static enum outcome nodeadm_outcome(const struct memory *m, const struct line *last)
{
	const struct userdata_shape *u = &m->shape;
	bool refused = last && last->class == USER_DATA;

	if (m->no_userdata || u->form == USERDATA_EMPTY)
		return OUTCOME_ABSENT;
	if (u->node_config)
		return refused || (!last && (u->fault != USERDATA_SOUND || !u->cluster))
		               ? OUTCOME_MALFORMED
		               : OUTCOME_OK;
	if (u->fault != USERDATA_SOUND)
		return OUTCOME_MALFORMED;
	if (u->compressed)
		return refused ? OUTCOME_MALFORMED : OUTCOME_UNKNOWN;
	return u->bootstrap_call ? OUTCOME_FOREIGN : OUTCOME_ABSENT;
}

/* For one that is made by bootstrap.sh, when cloud-init has ended and kubelet never began. */
static enum outcome bootstrap_outcome(const struct memory *m)
{
	const struct userdata_shape *u = &m->shape;

	if (u->bootstrap_call)
		return OUTCOME_OK;
	if (u->compressed || u->other_call)
		return OUTCOME_UNKNOWN;
	if (u->node_config || u->fault == USERDATA_WRONG_TYPE)
		return OUTCOME_FOREIGN;
	return !m->no_userdata && u->fault != USERDATA_SOUND ? OUTCOME_MALFORMED : OUTCOME_ABSENT;
}

static enum outcome userdata_outcome(struct run *r)
{
	const struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	const bool broken = in_phase(s, s->unit, BROKEN);
	const struct line *last = broken ? last_error(s, m, s->unit) : NULL;
	const bool refused = s->nodeadm && last && last->class == USER_DATA;

	if (!m->shape_known && s->nodeadm && broken && m->stub_at)
		return OUTCOME_FOREIGN;
	if (!m->shape_known)
		return refused ? OUTCOME_MALFORMED : OUTCOME_UNKNOWN;
	if (!s->nodeadm)
		return bootstrap_outcome(m);
	/* it got over its configuration, or has another one */
	if (!broken || s->unit != CONFIG || has_local_config(r))
		return refused ? OUTCOME_MALFORMED : OUTCOME_OK;
	return nodeadm_outcome(m, last);
}

static void list_missing(struct observation *o, unsigned cluster)
{
	static const char *const names[] = {"name", "apiServerEndpoint", "certificateAuthority",
	                                    "cidr"};
	char list[64] = "";

	for (size_t i = 0; i < ELEMENTS(names); i++)
		if (!(cluster & 1u << i))
			(void) text_append(list, sizeof(list), "%s%s", list[0] ? ", " : "",
			                   names[i]);
	if (list[0])
		observation_text(o, "missing", "%s", list);
}

static void add_shape(struct observation *o, const struct memory *m)
{
	const struct userdata_shape *u = &m->shape;

	observation_text(o, "form", "%s", m->no_userdata ? "none" : userdata_form_name(u->form));
	observation_number(o, "parts", u->parts);
	observation_number(o, "node_config", u->node_config);
	observation_number(o, "bootstrap_sh", u->bootstrap_call);
	if (u->compressed)
		observation_number(o, "compressed", 1);
	if (u->fault != USERDATA_SOUND)
		observation_text(o, "fault", "%s", userdata_fault_text(u->fault));
	if (u->node_config)
		list_missing(o, u->cluster);
}

static void describe_userdata(const struct observation *o, char *dst, size_t size);

static void observe_userdata(struct run *r)
{
	const struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	const struct line *last;
	struct observation *o;

	if (!userdata_matters(r))
		return;
	o = run_observe(r, LAYER_BOOTSTRAP, "user-data", "", userdata_outcome(r), 0);
	if (!o)
		return;
	if (m->shape_known)
		add_shape(o, m);
	else if (o->outcome == OUTCOME_FOREIGN)
		observation_number(o, "bootstrap_sh", 1);
	last = o->outcome == OUTCOME_MALFORMED ? last_error(s, m, s->unit) : NULL;
	if (last && last->class == USER_DATA)
		add_error(o, last->text);
	observation_number(o, "nodeadm", s->nodeadm);
	if (o->outcome == OUTCOME_UNKNOWN && !m->shape_known)
		observation_detail(o, "cannot tell: user data was not read (%s)",
		                   s->userdata_error ? s->userdata_error : "not asked yet");
	else if (o->outcome == OUTCOME_UNKNOWN)
		observation_detail(o, "cannot tell what user data of form %s does",
		                   userdata_form_name(m->shape.form));
	else if (o->outcome == OUTCOME_OK)
		observation_detail(o, "%s, as this image needs it",
		                   m->shape.node_config ? "a NodeConfig" : "a bootstrap call");
	else
		describe_userdata(o, o->detail, sizeof(o->detail));
}

static void observe_ca(struct run *r)
{
	const struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	const struct line *last = last_error(s, m, s->unit);
	struct observation *o;

	if (s->bus_error || s->launched || !in_phase(s, s->unit, BROKEN) || !last ||
	    last->class != BAD_CA)
		return;
	o = run_observe(r, LAYER_BOOTSTRAP, "ca", unit_names[s->unit], OUTCOME_MALFORMED, 0);
	add_error(o, last->text);
	observation_detail(o, "%s", last->text);
}

/* ---- the deadline ---- */

/* What a pod leaves outlives a reboot: it says that the node had registered, now or before. The
 * conflist is written by one. */

static enum tristate had_pods(struct run *r)
{
	struct names *names;
	enum tristate t;
	int e;

	if (run_node(r)->has_pods || exists(r, "/etc/cni/net.d/10-aws.conflist"))
		return YES;
	names = calloc(1, sizeof(*names));
	if (!names)
		return CANNOT_TELL;
	e = file_list(run_files(r), "/var/lib/kubelet/pods", names);
	t = e == 0 ? names->n > 0 ? YES : NO : e == -ENOENT || e == -ENOTDIR ? NO : CANNOT_TELL;
	free(names);
	return t;
}

static struct observation *observe_deadline_as(struct run *r, enum outcome outcome)
{
	return run_observe(r, LAYER_BOOTSTRAP, "deadline", "", outcome, 0);
}

static void observe_near(struct run *r, int64_t up)
{
	const struct state *s = run_state(r);
	struct observation *o = observe_deadline_as(r, OUTCOME_SLOW);

	observation_number(o, "uptime_s", up);
	observation_number(o, "left_s", up < DEADLINE_S ? DEADLINE_S - up : 0);
	if (!s->bus_error && in_phase(s, s->unit, RUNNING))
		observation_text(o, "running", "%s", unit_names[s->unit]);
	else if (!s->bus_error && in_phase(s, RUN, WAITING) && in_phase(s, CLOUD_FINAL, RUNNING))
		observation_text(o, "running", "%s", unit_names[CLOUD_FINAL]);
	observation_detail(
		o,
		"not registered %lld s after boot, the provisioner deletes the instance in %lld s",
		(long long) up, (long long) (up < DEADLINE_S ? DEADLINE_S - up : 0));
}

static void observe_deadline(struct run *r)
{
	int64_t up = (int64_t) (run_uptime(r) / USEC_PER_SEC);
	const struct state *s = run_state(r);
	enum tristate pods;

	if (run_node(r)->hybrid || !s->eks)
		return; /* nobody deletes it */
	if (run_node(r)->registered == YES || run_node(r)->ready == YES) {
		observation_detail(observe_deadline_as(r, OUTCOME_OK), "registered");
		return;
	}
	if (up < NEAR_S) {
		observation_detail(observe_deadline_as(r, OUTCOME_OK),
		                   "%lld s after boot there is time to register", (long long) up);
		return;
	}
	pods = had_pods(r);
	if (pods == YES)
		observation_detail(observe_deadline_as(r, OUTCOME_OK), "it was given pods");
	else if (pods == CANNOT_TELL)
		observation_detail(observe_deadline_as(r, OUTCOME_UNKNOWN),
		                   "cannot tell whether it has registered");
	else if (up < DEADLINE_S + PAST_S)
		observe_near(r, up);
	else
		observation_detail(observe_deadline_as(r, OUTCOME_OK),
		                   "not registered %lld s after boot, and nobody deleted it",
		                   (long long) up);
}

/* ---- the run ---- */

static void conclude(struct run *r)
{
	observe_deadline(r);
	observe_userdata(r);
	observe_ca(r);
	observe_unit(r);
	run_end(r);
}

static void on_userdata(struct run *r, const struct imds_reply *reply, uintptr_t tag)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	const struct http_reply *h = &reply->http;

	if (reply->throttled || reply->disabled) {
		s->userdata_error = reply->disabled ? "AWS_EC2_METADATA_DISABLED is true"
		                                    : "later: too many requests in a minute";
	} else if (reply->step == IMDS_GET && h->outcome == OUTCOME_OK && h->code == 404) {
		m->shape_known = m->no_userdata = true;
	} else if (reply->step == IMDS_GET && h->outcome == OUTCOME_OK && h->code == 200) {
		userdata_parse(h->body, h->body_len, &m->shape);
		m->shape_known = true;
	} else {
		s->userdata_error = "metadata did not give it";
	}
	m->ask_again = run_now(r) + 30 * USEC_PER_SEC;
	conclude(r);
}

static void after_journal(struct run *r)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);

	if (!userdata_matters(r) || m->shape_known || (run_now(r) < m->ask_again && !run_once(r))) {
		if (!m->shape_known)
			s->userdata_error = "metadata did not give it";
		conclude(r);
		return;
	}
	if (run_imds(r, "/latest/user-data", USERDATA_BYTES, true, on_userdata, 0) < 0) {
		s->userdata_error = "metadata cannot be asked";
		conclude(r);
	}
}

static void read_journal(struct run *r);

static void on_line(struct run *r, const struct journal_entry *e, uintptr_t tag)
{
	take_line(run_memory(r), e);
}

static void on_lines(struct run *r, const struct journal_end *e, uintptr_t tag)
{
	struct state *s = run_state(r);

	if (e->error == 0 && e->more && ++s->readings < READINGS_MAX) {
		read_journal(r);
		return;
	}
	s->journal_error = e->error;
	after_journal(r);
}

static void read_journal(struct run *r)
{
	static const struct journal_query q = {.units = journal_units, .entries_max = ENTRIES_MAX};
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	int e;

	e = run_journal(r, &q, m->cursor, on_line, on_lines, 0);
	if (e < 0) {
		s->journal_error = e;
		after_journal(r);
	}
}

/* Nobody reads the lines of units that do well. */
static bool lines_matter(struct run *r)
{
	const struct state *s = run_state(r);

	if (s->bus_error || !s->eks || s->launched)
		return false;
	return in_phase(s, s->unit, BROKEN) || (in_phase(s, s->unit, RUNNING) &&
	                                        running_s(r, &s->units[s->unit]) >= WORTH_SAYING_S);
}

static void after_past(struct run *r)
{
	struct state *s = run_state(r);

	s->launched = ((const struct memory *) run_memory(r))->kubelet_ran;
	if (lines_matter(r))
		read_journal(r);
	else
		after_journal(r);
}

static void on_past_line(struct run *r, const struct journal_entry *e, uintptr_t tag)
{
	struct memory *m = run_memory(r);

	m->kubelet_ran = m->kubelet_ran || strcmp(e->identifier, "systemd") != 0;
}

static void on_past(struct run *r, const struct journal_end *e, uintptr_t tag)
{
	after_past(r);
}

/* systemd forgets a unit that has ended and that nothing refers to, as kubelet's on AL2023: then it
 * looks as if it had never been started, and its own first lines alone tell that it was. */
static bool past_matters(struct run *r)
{
	const struct state *s = run_state(r);
	bool waits = in_phase(s, KUBELET, WAITING) || in_phase(s, SNAP, WAITING);

	return !s->bus_error && s->eks && !s->launched && waits &&
	       (in_phase(s, s->unit, BROKEN) || waits_for_nobody(s));
}

static void after_units(struct run *r)
{
	static const struct journal_query q = {.units = kubelet_units, .entries_max = PAST_MAX};
	struct state *s = run_state(r);

	understand(r);
	if (!past_matters(r) || run_journal(r, &q, s->cursor, on_past_line, on_past, 0) < 0)
		after_past(r);
}

static void on_unit(struct run *r, const struct bus_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);

	if (reply->error < 0)
		s->bus_error = reply->error;
	else
		take_unit(&s->units[tag], reply->unit);
	if (--s->pending == 0)
		after_units(r);
}

static int start(struct run *r)
{
	struct state *s = run_state(r);

	for (unsigned i = 0; i < N_UNITS; i++) {
		int e = run_unit(r, unit_names[i], USEC_PER_SEC, on_unit, i);

		if (e < 0)
			s->bus_error = e;
		else
			s->pending++;
	}
	if (s->pending == 0)
		after_units(r);
	return 0;
}

/* ---- the judgement ---- */

static void append_error(const struct observation *o, char *dst, size_t size)
{
	const char *error = evidence_get_text(o, "error");

	if (error[0])
		(void) text_append(dst, size, ": %s%s", error, evidence_get_text(o, "error_end"));
}

static void describe_userdata(const struct observation *o, char *dst, size_t size)
{
	int parts = (int) evidence_number(o, "parts", 0);
	const char *fault = evidence_get_text(o, "fault"),
		   *missing = evidence_get_text(o, "missing"), *form = evidence_get_text(o, "form");

	if (o->outcome == OUTCOME_FOREIGN) {
		(void) text_format(dst, size, "%s",
		                   evidence_number(o, "bootstrap_sh", 0)
		                           ? "user data calls /etc/eks/bootstrap.sh, which this "
		                             "AL2023 image does not have: it needs a NodeConfig"
		                           : "user data has a NodeConfig, but this image has no "
		                             "nodeadm: it needs a call of /etc/eks/bootstrap.sh");
	} else if (o->outcome == OUTCOME_ABSENT && strcmp(form, "none") == 0) {
		(void) text_format(dst, size,
		                   "the instance has no user data: neither NodeConfig nor a "
		                   "bootstrap call");
	} else if (o->outcome == OUTCOME_ABSENT) {
		(void) text_format(dst, size,
		                   "user data%s has neither NodeConfig nor a bootstrap call",
		                   strcmp(form, "empty") == 0 ? ", which is empty," : "");
		if (parts > 0)
			(void) text_format(dst, size,
			                   "user data of %d MIME part%s has neither NodeConfig nor "
			                   "a bootstrap call",
			                   parts, parts == 1 ? "" : "s");
	} else if (fault[0]) {
		(void) text_format(dst, size, "user data is malformed: %s", fault);
	} else {
		(void) text_format(dst, size, "NodeConfig in user data cannot be used");
		if (missing[0])
			(void) text_append(dst, size, ", without %s", missing);
		append_error(o, dst, size);
	}
}

static enum code judge_unit(const struct observation *o, struct words *ret)
{
	int status = (int) evidence_number(o, "status", 0);
	int64_t ran = evidence_number(o, "running_s", 0), limit = evidence_number(o, "limit_s", 0);
	const char *result = evidence_get_text(o, "result"),
		   *retrying = evidence_get_text(o, "retrying");
	char *s = ret->summary;

	if (o->outcome == OUTCOME_SLOW) {
		if (limit == 0 || ran < limit)
			return CODE_NONE;
		(void) text_format(s, SUMMARY_MAX, "%s still runs after %lld min%s%s", o->subject,
		                   (long long) ran / 60, retrying[0] ? ", retrying " : "",
		                   retrying);
		return CODE_BootstrapFailed;
	}
	if (o->outcome != OUTCOME_FAILED && o->outcome != OUTCOME_EXHAUSTED)
		return CODE_NONE;
	(void) text_format(s, SUMMARY_MAX, "%s failed", o->subject);
	if (evidence_get_text(o, "error")[0])
		append_error(o, s, SUMMARY_MAX);
	else if (status)
		(void) text_append(s, SUMMARY_MAX, " (%s, status %d)", result, status);
	else
		(void) text_append(s, SUMMARY_MAX, " (%s)", result);
	if (o->outcome == OUTCOME_EXHAUSTED)
		return CODE_BootstrapThrottled;
	if (retrying[0])
		(void) text_append(s, SUMMARY_MAX, " (%s tried again %lld times)", retrying,
		                   (long long) evidence_number(o, "tries", 0));
	return CODE_BootstrapFailed;
}

static enum code judge_userdata(const struct observation *o, struct words *ret)
{
	if (o->outcome != OUTCOME_ABSENT && o->outcome != OUTCOME_FOREIGN &&
	    o->outcome != OUTCOME_MALFORMED)
		return CODE_NONE;
	describe_userdata(o, ret->summary, sizeof(ret->summary));
	return CODE_UserDataUnusable;
}

static enum code judge_ca(const struct observation *o, struct words *ret)
{
	if (o->outcome != OUTCOME_MALFORMED)
		return CODE_NONE;
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "the cluster CA that %s was given is not usable", o->subject);
	append_error(o, ret->summary, sizeof(ret->summary));
	return CODE_ClusterCaInvalid;
}

static enum code judge_deadline(const struct observation *o, struct words *ret)
{
	int64_t up = evidence_number(o, "uptime_s", 0), left = evidence_number(o, "left_s", 0);
	const char *running = evidence_get_text(o, "running");
	char *s = ret->summary;

	if (o->outcome != OUTCOME_SLOW)
		return CODE_NONE;
	(void) text_format(s, SUMMARY_MAX,
	                   "not registered %lld min after boot: ", (long long) up / 60);
	if (left > 0)
		(void) text_append(s, SUMMARY_MAX,
		                   "a provisioner deletes the instance in about %lld min",
		                   (long long) (left + 59) / 60);
	else
		(void) text_append(s, SUMMARY_MAX, "a provisioner deletes the instance about now");
	if (running[0])
		(void) text_append(s, SUMMARY_MAX, "; %s still runs", running);
	return CODE_JoinDeadlineNear;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (strcmp(o->aspect, "unit") == 0)
		return judge_unit(o, ret);
	if (strcmp(o->aspect, "user-data") == 0)
		return judge_userdata(o, ret);
	if (strcmp(o->aspect, "ca") == 0)
		return judge_ca(o, ret);
	return strcmp(o->aspect, "deadline") == 0 ? judge_deadline(o, ret) : CODE_NONE;
}

const struct probe probe_bootstrap = {
	.name = "bootstrap",
	.what = "what makes this instance a node: nodeadm or cloud-init, the shape of its user "
		"data, "
		"and the time left to register",
	.layer = LAYER_BOOTSTRAP,
	.every = 30 * USEC_PER_SEC,
	.failing = 20 * USEC_PER_SEC, /* the units wake it */
	.timeout = 8 * USEC_PER_SEC,
	.after = "imds", /* whether this is EC2 */
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.units = {"nodeadm-config.service", "nodeadm-run.service", "cloud-init.service",
                  "cloud-final.service"},
	.needs_ec2 = true,
	.grace = 60 * USEC_PER_SEC, /* as long as what may be to blame has */
	.start = start,
	.judge = judge,
	.codes = {CODE_UserDataUnusable, CODE_BootstrapThrottled, CODE_BootstrapFailed,
                  CODE_ClusterCaInvalid, CODE_JoinDeadlineNear, CODE_NONE},
};
