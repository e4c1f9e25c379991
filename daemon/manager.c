/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/inotify.h>
#include <systemd/sd-daemon.h>

#include "clock.h"
#include "manager.h"
#include "pass.h"
#include "run.h"
#include "sink.h"

enum { SLOTS_MAX = 64, PROBES_MAX = CONFIG_PROBES_MAX, STATE_FILE_MAX = 256 * 1024 };

/* The status file is written at least this often, though nothing changed: half of the time for
 * which readers may believe it. */
static const usec_t write_every = STATUS_VALID_S / 2 * USEC_PER_SEC;
/* A pass that comes so soon before that writes: we are awake anyway. */
static const usec_t write_early = 6 * USEC_PER_SEC;
/* A sink that failed is tried again after this long. */
static const usec_t write_retry = 5 * USEC_PER_SEC;
/* Events come in bursts (a directory is written file by file): look once they are over. Where they
 * do not end (pods that start by the hundred), look no oftener than so, or than the probe has it.
 */
static const usec_t wake_delay = 20 * USEC_PER_MSEC;
static const usec_t wake_hold = 100 * USEC_PER_MSEC;
/* What is as it was can wait for the looks that are under way: one pass for all of them. */
static const usec_t pass_delay = 100 * USEC_PER_MSEC;

struct slot {
	struct manager *manager;
	const struct probe *probe;
	size_t probe_index;
	unsigned slot;
	struct schedule_slot schedule;
	struct run *run;
	bool waiting; /* for the first result of probe->after */
	bool looked, woken, again;
	usec_t began;    /* the last look */
	enum code asked; /* the finding that asks for the next look */
	usec_t asked_at; /* when one last did */
};

struct watch {
	struct manager *manager;
	size_t probe_index;
	const char *path;
	sd_event_source *source;
	bool failed; /* and it was said */
};

enum sink { SINK_RUN, SINK_TEXTFILE, SINK_HISTORY, SINK_JOURNAL, _SINK_MAX };

struct manager {
	struct run_context context;
	struct files *files;
	const struct config *config;
	struct log log;
	struct http *http;
	struct dns *dns;
	struct imds *imds;
	struct netlink *netlink;
	struct bus *bus;
	struct journal *log_reader;
	sd_event_source *timer, *pass, *pass_later, *deadline;
	bool pass_waits; /* for pass_later */
	size_t n_slots, n_watches;
	struct slot slots[SLOTS_MAX];
	struct watch watches[PROBES_MAX * PROBE_WATCH_MAX];
	void *memory[PROBES_MAX];
	bool selected[PROBES_MAX], looked[PROBES_MAX];
	struct probe_stats stats[PROBES_MAX];
	struct ledger ledger;
	struct pass passes;
	struct report_meta meta;
	struct journal_memory journal;
	struct console console;
	struct report *unsaid; /* the last report that the journal knows, while it takes no more */
	bool sink_failed[_SINK_MAX];
	usec_t written;
	char saved_region[AWS_REGION_MAX]; /* what the state file holds */
	bool cut_short;                    /* a check whose time ran out before it was sure */
	bool resumed; /* the daemon was here before, in this boot, and had looked at everything */
	enum state presumed; /* what it said then: stands until everything was looked at again */
};

int node_uptime(const struct files *f, usec_t *ret)
{
	char line[64], *end;
	double v;
	int r;

	r = file_read_line(f, "/proc/uptime", line, sizeof(line));
	if (r < 0)
		return r;
	v = strtod(line, &end);
	if (end == line || v < 0 || v > 1e10)
		return -EBADMSG;
	*ret = (usec_t) (v * 1e6);
	return 0;
}

int node_boot_id(const struct files *f, char *ret, size_t size)
{
	char line[64];
	int r;

	r = file_read_line(f, "/proc/sys/kernel/random/boot_id", line, sizeof(line));
	if (r < 0)
		return r;
	(void) text_clean(ret, size, line, strlen(line));
	return 0;
}

static size_t index_of(const struct probe *p)
{
	size_t i = 0;

	while (probes[i] != p)
		i++;
	return i;
}

/* ---- a pass: ledger to report to sinks ---- */

static bool complete(const struct manager *m)
{
	for (size_t i = 0; probes[i]; i++)
		if (m->selected[i] && !m->looked[i])
			return false;
	return true;
}

static void note_since(struct manager *m, const struct report *before, const struct report *now,
                       const struct report_diff *d)
{
	if (d->verdict)
		m->meta.verdict_since = now->at;
	for (int c = 0; c < _CONDITION_MAX; c++)
		if (!before || before->conditions[c].status != now->conditions[c].status)
			m->meta.condition_since[c] = now->at;
}

static void tell_manager(const struct report *r)
{
	char message[SUMMARY_MAX + REMEDY_MAX + 128];

	verdict_message(r, message, sizeof(message));
	(void) sd_notifyf(false, "STATUS=%s", message);
}

static void note_sink(struct manager *m, enum sink s, int r)
{
	static const char *const what[] = {"/run/nodewhy", "the file in TextfileDir=",
	                                   "/var/lib/nodewhy/history.jsonl", "the journal"};

	if (r < 0 && !m->sink_failed[s])
		log_message(&m->log, LOG_WARNING, "cannot write %s: %s, trying again", what[s],
		            strerror(-r));
	else if (r >= 0 && m->sink_failed[s])
		log_message(&m->log, LOG_NOTICE, "%s is written again", what[s]);
	m->sink_failed[s] = r < 0;
}

/* A sink that had nothing to write has not written again. */
static bool changes_findings(const struct report_diff *d)
{
	for (size_t i = 0; i < ELEMENTS(d->raised); i++)
		if (d->raised[i] || d->cleared[i])
			return true;
	return false;
}

/* What the journal did not take is said once it does: what has changed since by then. */
static void tell_journal(struct manager *m, const struct report *before, const struct report *now,
                         const struct report_diff *d)
{
	struct report_diff since = *d;
	int r;

	if (m->unsaid)
		report_diff(m->unsaid, now, &since);
	r = sink_journal(&m->journal, m->unsaid ? m->unsaid : before, now, &since);
	if (r < 0 || since.verdict || changes_findings(&since))
		note_sink(m, SINK_JOURNAL, r);
	if (r < 0 && before && !m->unsaid) {
		m->unsaid = malloc(sizeof(*m->unsaid));
		if (m->unsaid)
			*m->unsaid = *before;
	} else if (r >= 0) {
		free(m->unsaid);
		m->unsaid = NULL;
	}
}

static void write_files(struct manager *m, const struct report *r)
{
	int first, ret;

	m->written = r->at;
	/* the status last: who sees it new finds the rest new */
	first = sink_conditions(m->files, r);
	ret = sink_metrics(m->files, r, m->stats);
	first = first < 0 ? first : ret;
	ret = sink_status(m->files, r, &m->meta);
	note_sink(m, SINK_RUN, first < 0 ? first : ret);
	if (m->config->textfile_dir[0])
		note_sink(m, SINK_TEXTFILE, sink_textfile(m->config->textfile_dir, r, m->stats));
}

/* One of those that write_files() writes: the others write when there is something to say. */
static bool files_failed(const struct manager *m)
{
	return m->sink_failed[SINK_RUN] || m->sink_failed[SINK_TEXTFILE];
}

static struct diagnose_input input(struct manager *m)
{
	usec_t now = clock_boottime();
	enum state presumed = m->context.mode == SCHEDULE_CHECK ? STATE_BLIND
	                      : m->resumed                      ? m->presumed
	                                                        : STATE_STARTING;

	m->meta.realtime = clock_realtime();
	return (struct diagnose_input){.node = &m->context.node,
	                               .now = now,
	                               .uptime = run_context_uptime(&m->context, now),
	                               .complete = complete(m) && !m->cut_short,
	                               .presumed = presumed};
}

static void wake(struct manager *m, size_t probe_index);
static void ask(struct manager *m, usec_t now);
static void arm(struct manager *m);

/* ---- what survives a restart ---- */

static const char state_path[] = "/var/lib/nodewhy/state.json";

static void machine_id(const struct files *f, char *ret, size_t size)
{
	ret[0] = 0;
	(void) file_read_line(f, "/etc/machine-id", ret, size);
}

static json_t *fact_to_state(const struct manager *m, const struct ledger_entry *e)
{
	const struct fact *f = &e->fact;
	const struct observation *o = &f->bad;

	return json_pack(
		"{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:o}", "probe", e->probe->name,
		"slot", (int) e->slot, "aspect", o->aspect, "layer", layer_name(o->layer),
		"subject", o->subject, "code", cause_of(f->code)->name, "summary", f->summary,
		"since_us", (json_int_t) run_context_uptime(&m->context, f->since), "seen",
		(json_int_t) f->seen, "evidence", evidence_to_json(o->evidence, o->n_evidence));
}

/* What is saved lets a restarted daemon go on as if it had not been away: same findings, same
 * since. */
static void state_save(struct manager *m, const struct report *r)
{
	const struct node *n = &m->context.node;
	json_t *findings = json_array(), *j;
	_cleanup_(freep) char *text = NULL;
	char id[64];

	machine_id(m->files, id, sizeof(id));
	for (size_t i = 0; i < m->ledger.n; i++)
		if (m->ledger.entries[i].fact.code != CODE_NONE)
			(void) json_array_append_new(findings,
			                             fact_to_state(m, &m->ledger.entries[i]));
	j = json_pack(
		"{s:s, s:s, s:s, s:s, s:I, s:b, s:o, s:O}", "machine_id", id, "boot_id",
		m->meta.boot_id, "region",
		n->region_source == REGION_METADATA || n->region_source == REGION_STATE ? n->region
											: "",
		"verdict", state_name(r->verdict.state), "verdict_since_us",
		(json_int_t) run_context_uptime(&m->context, m->meta.verdict_since), "complete",
		complete(m), "findings", findings, "remembered", m->context.remembered);
	text = j ? json_dumps(j, JSON_COMPACT) : NULL;
	json_decref(j);
	if (!text || !id[0])
		return;
	/* without it the next start begins anew: no reason for an alarm */
	if (file_replace(m->files, state_path, text, strlen(text), 0644) == 0)
		(void) text_format(m->saved_region, sizeof(m->saved_region), "%s", n->region);
	m->context.remember = false;
}

static void state_finding(struct manager *m, const json_t *j)
{
	const char *name, *aspect, *layer, *subject, *code, *summary, *key;
	json_int_t since, seen;
	json_t *evidence, *value;
	struct fact f = {0};
	const struct probe *p;
	int slot, l;

	if (json_unpack((json_t *) j, "{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:o}", "probe",
	                &name, "slot", &slot, "aspect", &aspect, "layer", &layer, "subject",
	                &subject, "code", &code, "summary", &summary, "since_us", &since, "seen",
	                &seen, "evidence", &evidence) < 0)
		return;
	p = probe_by_name(name);
	l = layer_from_name(layer);
	f.code = code_from_name(code);
	if (!p || l < 0 || f.code == CODE_NONE || slot < 0 ||
	    (unsigned) slot >= (p->slots ? p->slots : 1) || !m->selected[index_of(p)])
		return;
	f.since = run_context_boottime(&m->context, since > 0 ? (usec_t) since : 0);
	f.last_seen = f.since;
	f.seen = seen > 0 && seen < UINT32_MAX ? (uint32_t) seen : 1;
	f.bad = (struct observation){.layer = (enum layer) l, .outcome = OUTCOME_FAILED};
	(void) text_format(f.bad.probe, sizeof(f.bad.probe), "%s", p->name);
	(void) text_clean(f.bad.aspect, sizeof(f.bad.aspect), aspect, strlen(aspect));
	(void) text_clean(f.bad.subject, sizeof(f.bad.subject), subject, strlen(subject));
	(void) text_clean(f.summary, sizeof(f.summary), summary, strlen(summary));
	json_object_foreach (evidence, key, value) {
		if (json_is_integer(value))
			observation_number(&f.bad, key, json_integer_value(value));
		else if (json_is_string(value))
			observation_text(&f.bad, key, "%s", json_string_value(value));
	}
	f.latest = f.bad;
	f.latest.outcome = OUTCOME_UNKNOWN; /* nobody has looked since */
	(void) ledger_restore(&m->ledger, p, (unsigned) slot, &f);
}

static void state_same_boot(struct manager *m, const json_t *j)
{
	const char *state = json_string_value(json_object_get(j, "verdict"));
	json_int_t since = json_integer_value(json_object_get(j, "verdict_since_us"));
	struct diagnose_input in = input(m);
	struct report_diff d;
	uint32_t again;
	const json_t *f;
	size_t i;

	json_array_foreach (json_object_get(j, "findings"), i, f) {
		state_finding(m, f);
	}
	pass_make(&m->passes, &m->ledger, &in, &d, &again);
	m->resumed = json_is_true(json_object_get(j, "complete")) && state &&
	             state_from_name(state) >= 0;
	if (m->resumed) {
		m->presumed = (enum state) state_from_name(state);
		m->passes.reports[m->passes.current].verdict.state = m->presumed;
	}
	m->meta.verdict_since = run_context_boottime(&m->context, since > 0 ? (usec_t) since : 0);
	for (int c = 0; c < _CONDITION_MAX; c++)
		m->meta.condition_since[c] = m->meta.verdict_since;
	m->journal.heartbeat = in.now;
	journal_resume(&m->journal, pass_report(&m->passes));
}

static void state_remembered(struct manager *m, json_t *j)
{
	const char *key;
	json_t *value;

	json_object_foreach (j, key, value) {
		if (json_is_string(value) && json_string_length(value) <= REMEMBER_MAX)
			(void) json_object_set(m->context.remembered, key, value);
	}
}

/* Only a state of this very machine counts: an image may carry the one of the machine it was baked
 * on. Of an earlier boot only the region does. */
static void state_load(struct manager *m)
{
	struct node *n = &m->context.node;
	_cleanup_(freep) char *text = NULL;
	const char *region, *of, *boot;
	char id[64];
	size_t len;
	json_t *j;

	machine_id(m->files, id, sizeof(id));
	if (!id[0] || file_read(m->files, state_path, STATE_FILE_MAX, &text, &len) < 0)
		return;
	j = json_loadb(text, len, 0, NULL);
	region = json_string_value(json_object_get(j, "region"));
	of = json_string_value(json_object_get(j, "machine_id"));
	boot = json_string_value(json_object_get(j, "boot_id"));
	if (of && strcmp(of, id) == 0) {
		if (region && aws_is_region(region)) {
			(void) text_format(n->region, sizeof(n->region), "%s", region);
			n->region_source = REGION_STATE;
		}
		state_remembered(m, json_object_get(j, "remembered"));
		if (m->context.mode == SCHEDULE_DAEMON && boot && m->meta.boot_id[0] &&
		    strcmp(boot, m->meta.boot_id) == 0)
			state_same_boot(m, j);
	}
	json_decref(j);
}

/* The first finding, confirmed or not, that asks for a look of this probe. */
static enum code who_asks(const struct manager *m, const struct probe *p)
{
	for (size_t i = 0; i < m->ledger.n; i++) {
		const struct fact *f = &m->ledger.entries[i].fact;

		for (size_t c = 0; c < PROBE_ASKED_MAX && p->asked_by[c] != CODE_NONE; c++)
			if (f->code == p->asked_by[c] || f->pending == p->asked_by[c])
				return p->asked_by[c];
	}
	return CODE_NONE;
}

static void ask(struct manager *m, usec_t now)
{
	for (size_t i = 0; i < m->n_slots; i++) {
		struct slot *s = &m->slots[i];
		enum code c = s->run || s->waiting ? CODE_NONE : who_asks(m, s->probe);

		if (c == CODE_NONE ||
		    !schedule_may_ask(m->context.mode, s->probe->ask_every, s->asked_at, now))
			continue;
		s->asked = c;
		s->asked_at = now;
		s->woken = true;
		s->schedule.due = schedule_ask(&s->schedule, s->probe, m->context.mode, now);
	}
}

static void pass(struct manager *m)
{
	struct diagnose_input in = input(m);
	const struct report *now, *before;
	struct report_diff d;
	uint32_t again;
	usec_t due;

	m->ledger.news = m->pass_waits = false;
	(void) sd_event_source_set_enabled(m->pass, SD_EVENT_OFF);
	(void) sd_event_source_set_enabled(m->pass_later, SD_EVENT_OFF);
	pass_make(&m->passes, &m->ledger, &in, &d, &again);
	/* not what a whole fleet looks at: a network that heals, heals for thousands at once */
	for (size_t i = 0; probes[i]; i++)
		if (again & UINT32_C(1) << i && !probes[i]->spread)
			wake(m, i);
	ask(m, in.now);
	arm(m);
	m->meta.seq++;
	now = pass_report(&m->passes);
	before = pass_before(&m->passes);
	note_since(m, before, now, &d);
	if (m->context.mode == SCHEDULE_CHECK)
		return;
	tell_journal(m, before, now, &d);
	if (changes_findings(&d))
		note_sink(m, SINK_HISTORY, sink_history(m->files, before, now, &d, &m->meta));
	sink_console(&m->console, now, d.verdict);
	if (d.verdict)
		tell_manager(now);
	due = m->written + (files_failed(m) ? write_retry : write_every - write_early);
	if (d.material || now->at >= due)
		write_files(m, now);
	if (d.verdict || d.raised[0] || d.cleared[0] || m->context.remember ||
	    strcmp(m->saved_region, m->context.node.region) != 0)
		state_save(m, now);
}

static bool is_looking(const struct manager *m)
{
	for (size_t i = 0; i < m->n_slots; i++)
		if (m->slots[i].run)
			return true;
	return false;
}

/* What other looks that are under way may still change, unless something has changed already. */
static bool can_wait(const struct manager *m)
{
	return m->context.mode == SCHEDULE_DAEMON && !m->ledger.news && is_looking(m);
}

static void pass_soon(struct manager *m)
{
	if (m->pass_waits)
		return;
	m->pass_waits = true;
	(void) sd_event_source_set_time_relative(m->pass_later, pass_delay);
	(void) sd_event_source_set_enabled(m->pass_later, SD_EVENT_ONESHOT);
}

static int on_pass(sd_event_source *s, void *userdata)
{
	struct manager *m = userdata;

	if (can_wait(m)) /* they began after this was asked for */
		pass_soon(m);
	else
		pass(m);
	return 0;
}

static int on_pass_later(sd_event_source *s, uint64_t usec, void *userdata)
{
	pass(userdata);
	return 0;
}

static void want_pass(struct manager *m)
{
	if (can_wait(m))
		pass_soon(m);
	else
		(void) sd_event_source_set_enabled(m->pass, SD_EVENT_ONESHOT);
}

/* ---- looking ---- */

static void arm(struct manager *m)
{
	usec_t due = USEC_INFINITY;

	for (size_t i = 0; i < m->n_slots; i++)
		if (m->slots[i].schedule.due < due)
			due = m->slots[i].schedule.due;
	if (m->context.mode == SCHEDULE_DAEMON && m->written + write_every < due)
		due = m->written + write_every;
	if (due == USEC_INFINITY) {
		(void) sd_event_source_set_enabled(m->timer, SD_EVENT_OFF);
		return;
	}
	(void) sd_event_source_set_time(m->timer, due);
	(void) sd_event_source_set_enabled(m->timer, SD_EVENT_ONESHOT);
}

static void finish_check(struct manager *m)
{
	for (size_t i = 0; i < m->n_slots; i++)
		if (m->slots[i].run || m->slots[i].schedule.due != USEC_INFINITY ||
		    m->slots[i].waiting)
			return;
	(void) sd_event_exit(m->context.event, 0);
}

static void release_waiting(struct manager *m, const struct probe *p, usec_t now)
{
	for (size_t i = 0; i < m->n_slots; i++) {
		struct slot *s = &m->slots[i];

		if (!s->waiting || strcmp(s->probe->after, p->name) != 0)
			continue;
		s->waiting = false;
		s->schedule.due = m->context.mode == SCHEDULE_DAEMON
		                          ? schedule_first(&s->schedule, s->probe, now)
		                          : now;
	}
}

/* The probe has looked once when all its slots have. */
static bool probe_looked(const struct manager *m, const struct probe *p)
{
	for (size_t i = 0; i < m->n_slots; i++)
		if (m->slots[i].probe == p && !m->slots[i].looked)
			return false;
	return true;
}

static usec_t woken_at(const struct slot *s, usec_t now)
{
	usec_t hold = s->began + (s->probe->hold ? s->probe->hold : wake_hold);

	return hold > now + wake_delay ? hold : now + wake_delay;
}

static void on_run_done(const struct run_result *result, void *userdata)
{
	struct slot *s = userdata;
	struct manager *m = s->manager;
	usec_t now = clock_boottime();
	enum pace pace;

	s->looked = true;
	m->stats[s->probe_index].runs++;
	m->stats[s->probe_index].failures += !result->whole;
	pace = ledger_put(&m->ledger, s->probe, s->slot, result->observations, result->n,
	                  result->whole, schedule_confirm(m->context.mode),
	                  run_context_uptime(&m->context, now));
	s->schedule.due = schedule_next(&s->schedule, m->context.mode, pace, now);
	if (s->again && s->schedule.due > woken_at(s, now))
		s->schedule.due = woken_at(s, now);
	s->woken = s->again;
	s->again = false;
	if (!m->looked[s->probe_index] && probe_looked(m, s->probe)) {
		m->looked[s->probe_index] = true;
		release_waiting(m, s->probe, now);
	}
	want_pass(m);
	if (m->context.mode == SCHEDULE_CHECK) {
		ask(m, now);
		finish_check(m);
	}
	arm(m);
}

static void watch_arm(struct watch *w);

static void look(struct slot *s)
{
	struct manager *m = s->manager;
	const struct probe_config *pc = &m->config->probes[s->probe_index];
	bool woken = s->woken;
	enum code asked = s->asked;
	int r;

	for (size_t i = 0; i < m->n_watches && m->context.mode == SCHEDULE_DAEMON; i++)
		if (m->watches[i].probe_index == s->probe_index && !m->watches[i].source)
			watch_arm(&m->watches[i]);
	s->woken = false;
	s->asked = CODE_NONE;
	s->schedule.due = USEC_INFINITY;
	s->began = clock_boottime();
	r = run_new(&s->run, &m->context, s->probe, s->slot, m->memory[s->probe_index],
	            pc->timeout ? pc->timeout : s->probe->timeout, woken, asked, on_run_done, s);
	if (r < 0) {
		log_message(&m->log, LOG_WARNING, "cannot run probe %s: %s", s->probe->name,
		            strerror(-r));
		s->schedule.due = clock_boottime() + s->schedule.every;
		arm(m);
	}
}

static int on_timer(sd_event_source *source, uint64_t usec, void *userdata)
{
	struct manager *m = userdata;
	usec_t now = clock_boottime();

	for (size_t i = 0; i < m->n_slots; i++)
		if (m->slots[i].schedule.due <= now)
			look(&m->slots[i]);
	/* not put off to the idle source: this timer would be due again before that is reached */
	if (m->context.mode == SCHEDULE_DAEMON && now >= m->written + write_every)
		pass(m);
	arm(m);
	return 0;
}

static void wake(struct manager *m, size_t probe_index)
{
	usec_t now = clock_boottime();

	for (size_t i = 0; i < m->n_slots; i++) {
		struct slot *s = &m->slots[i];

		if (s->probe_index != probe_index || s->waiting)
			continue;
		s->woken = true;
		if (s->run)
			s->again = true;
		else if (s->schedule.due > woken_at(s, now))
			s->schedule.due = woken_at(s, now);
	}
	arm(m);
}

static void on_net_changed(void *userdata)
{
	struct manager *m = userdata;

	for (size_t i = 0; probes[i]; i++)
		if (m->selected[i] && probes[i]->on_net)
			wake(m, i);
}

static void on_unit_changed(const char *unit, void *userdata)
{
	struct manager *m = userdata;

	for (size_t i = 0; probes[i]; i++)
		for (size_t u = 0; u < PROBE_UNITS_MAX && probes[i]->units[u]; u++)
			if (m->selected[i] && strcmp(probes[i]->units[u], unit) == 0)
				wake(m, i);
}

static int on_file_changed(sd_event_source *source, const struct inotify_event *e, void *userdata)
{
	struct watch *w = userdata;

	/* what was watched is gone or was replaced: watch what is there at the next look */
	if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT))
		w->source = sd_event_source_disable_unref(w->source);
	wake(w->manager, w->probe_index);
	return 0;
}

/* Absence is no fault: most paths are absent on most nodes, and every look is repeated anyway. */
static void watch_arm(struct watch *w)
{
	struct manager *m = w->manager;
	int fd = file_open(m->files, w->path, O_PATH), r;

	if (fd == -ENOENT || fd == -ENOTDIR)
		return;
	r = fd < 0 ? fd
	           : sd_event_add_inotify_fd(m->context.event, &w->source, fd,
	                                     IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM |
	                                             IN_CLOSE_WRITE | IN_ATTRIB | IN_DELETE_SELF |
	                                             IN_MOVE_SELF,
	                                     on_file_changed, w);
	if (fd >= 0)
		(void) close(fd);
	if (r < 0 && !w->failed)
		log_message(&m->log, LOG_NOTICE, "cannot watch %s: %s, looking at intervals only",
		            w->path, strerror(-r));
	w->failed = r < 0;
}

/* ---- setting up ---- */

static bool named(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = list; *p; p += strcspn(p, ","), p += *p != 0)
		if (strcspn(p, ",") == n && strncmp(p, name, n) == 0)
			return true;
	return false;
}

static int check_names(const char *list, char *ret_error, size_t error_size)
{
	if (!*list) {
		(void) text_format(ret_error, error_size, "--only names no probe");
		return -EINVAL;
	}
	for (const char *p = list; *p; p += strcspn(p, ","), p += *p != 0) {
		char name[64];

		(void) text_clean(name, sizeof(name), p, strcspn(p, ","));
		if (!probe_by_name(name)) {
			(void) text_format(ret_error, error_size, "there is no probe \"%s\"", name);
			return -EINVAL;
		}
	}
	return 0;
}

/* Those that --only names and those whose first result these wait for. */
static int select_probes(struct manager *m, const char *only, char *ret_error, size_t error_size)
{
	int r = only ? check_names(only, ret_error, error_size) : 0;

	if (r < 0)
		return r;
	for (size_t i = 0; probes[i]; i++)
		m->selected[i] = only ? named(only, probes[i]->name) : m->config->probes[i].enabled;
	for (size_t i = 0; only && probes[i]; i++)
		for (const struct probe *p = probes[i]; m->selected[i] && p->after;
		     p = probe_by_name(p->after))
			m->selected[index_of(probe_by_name(p->after))] = true;
	return 0;
}

static uint64_t seed(const struct files *f)
{
	char id[64];

	machine_id(f, id, sizeof(id));
	return hash_text(0, id);
}

static int add_slots(struct manager *m, size_t index, uint64_t machine, usec_t now)
{
	const struct probe *p = probes[index];
	const struct probe *after = p->after ? probe_by_name(p->after) : NULL;
	bool wait = after && m->selected[index_of(after)];

	if (p->memory_size) {
		m->memory[index] = calloc(1, p->memory_size);
		if (!m->memory[index])
			return -ENOMEM;
	}
	for (unsigned i = 0; i < (p->slots ? p->slots : 1); i++) {
		struct slot *s = &m->slots[m->n_slots++];

		assert(m->n_slots <= SLOTS_MAX);
		*s = (struct slot){.manager = m, .probe = p, .probe_index = index, .slot = i};
		schedule_init(&s->schedule, p, i, machine, m->config->probes[index].every, now);
		s->waiting = wait;
		if (wait)
			s->schedule.due = USEC_INFINITY;
		else if (m->context.mode == SCHEDULE_CHECK)
			s->schedule.due = now;
	}
	for (size_t i = 0; i < PROBE_UNITS_MAX && p->units[i]; i++)
		if (m->context.mode == SCHEDULE_DAEMON)
			(void) bus_watch(m->bus,
			                 p->units[i]); /* else it is looked at by interval only */
	for (size_t i = 0; i < PROBE_WATCH_MAX && p->watch[i]; i++)
		m->watches[m->n_watches++] =
			(struct watch){.manager = m, .probe_index = index, .path = p->watch[i]};
	return 0;
}

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *si, void *userdata)
{
	struct manager *m = userdata;

	(void) sd_notify(false, "STOPPING=1");
	return sd_event_exit(m->context.event, 0);
}

static int on_check_deadline(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct manager *m = userdata;

	m->cut_short = true; /* what it had not confirmed yet, it cannot vouch for */
	return sd_event_exit(m->context.event, 0);
}

static int add_sources(struct manager *m, const struct manager_options *o)
{
	sd_event *e = m->context.event;
	sigset_t stop;
	int r;

	r = sd_event_add_time(e, &m->timer, CLOCK_BOOTTIME, 0, 1000, on_timer, m);
	if (r < 0)
		return r;
	r = sd_event_add_defer(e, &m->pass, on_pass, m);
	if (r < 0)
		return r;
	/* after everything else that is ready, so that many runs that end together are one pass */
	r = sd_event_source_set_priority(m->pass, SD_EVENT_PRIORITY_IDLE);
	if (r < 0)
		return r;
	(void) sd_event_source_set_enabled(m->pass, SD_EVENT_OFF);
	r = sd_event_add_time(e, &m->pass_later, CLOCK_BOOTTIME, 0, pass_delay / 2, on_pass_later,
	                      m);
	if (r < 0)
		return r;
	(void) sd_event_source_set_enabled(m->pass_later, SD_EVENT_OFF);
	if (o->mode == SCHEDULE_CHECK)
		return sd_event_add_time_relative(e, &m->deadline, CLOCK_BOOTTIME, o->timeout, 1000,
		                                  on_check_deadline, m);
	(void) sigemptyset(&stop);
	(void) sigaddset(&stop, SIGTERM);
	(void) sigaddset(&stop, SIGINT);
	if (sigprocmask(SIG_BLOCK, &stop, NULL) < 0)
		return -errno;
	r = sd_event_add_signal(e, NULL, SIGTERM, on_signal, m);
	if (r < 0)
		return r;
	r = sd_event_add_signal(e, NULL, SIGINT, on_signal, m);
	if (r < 0)
		return r;
	return sd_event_set_watchdog(e, true);
}

static int add_instruments(struct manager *m, const struct manager_options *o, char *ret_error,
                           size_t error_size)
{
	struct imds_options imds = {
		.endpoint = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
		.mode = getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"),
		.disabled = getenv("AWS_EC2_METADATA_DISABLED"),
		/* CONTRACT.md section 7: 60 in any minute at most; of them the imds probe itself
	         * takes 12, or up to 18 more while a failure is being confirmed */
		.spare_per_minute = o->mode == SCHEDULE_DAEMON ? 42 : 0,
	};
	sd_event *e = m->context.event;
	int r;

	r = http_new(&m->http, e);
	if (r < 0)
		return r;
	r = dns_new(&m->dns, e);
	if (r < 0)
		return r;
	r = imds_new(&m->imds, e, m->http, &imds, ret_error, error_size);
	if (r < 0)
		return r;
	/* a kernel or a sandbox that gives us no netlink costs us those probes, not the daemon */
	m->context.netlink_error =
		netlink_new(&m->netlink, o->mode == SCHEDULE_DAEMON ? e : NULL, on_net_changed, m);
	r = bus_new(&m->bus, e, m->files, on_unit_changed, m);
	if (r < 0)
		return r;
	r = journal_new(&m->log_reader, e, m->files, m->meta.boot_id);
	if (r < 0)
		return r;
	m->context.bus = m->bus;
	m->context.journal = m->log_reader;
	m->context.http = m->http;
	m->context.dns = m->dns;
	m->context.imds = m->imds;
	m->context.netlink = m->netlink;
	return 0;
}

static void read_clock_of_node(struct manager *m, usec_t now)
{
	usec_t uptime;
	int r;

	r = node_uptime(m->files, &uptime);
	if (r < 0)
		log_message(&m->log, LOG_WARNING, "cannot read /proc/uptime: %s", strerror(-r));
	else
		m->context.uptime_offset = (int64_t) uptime - (int64_t) now;
	r = node_boot_id(m->files, m->meta.boot_id, sizeof(m->meta.boot_id));
	if (r < 0)
		log_message(&m->log, LOG_WARNING, "cannot read the boot id: %s", strerror(-r));
}

static void network_init(struct network *n)
{
	n->enis_attached = n->enis_max = n->ipv4_per_eni = n->ips_assigned = n->ips_max = -1;
	n->pod_ips_in_use = n->max_pods = n->max_pods_by_type = -1;
}

static int set_up(struct manager *m, const struct manager_options *o, char *ret_error,
                  size_t error_size)
{
	usec_t now = clock_boottime();
	struct stat st;
	uint64_t machine;
	int r;

	m->written = now;
	r = files_new(&m->files, o->root);
	if (r < 0) {
		(void) text_format(ret_error, error_size, "cannot open %s: %s", o->root,
		                   strerror(-r));
		return r;
	}
	m->context.files = m->files;
	m->context.subnet_watch = o->config->subnet_watch;
	r = select_probes(m, o->only, ret_error, error_size);
	if (r < 0)
		return r;
	r = sd_event_new(&m->context.event);
	if (r < 0)
		return r;
	r = add_sources(m, o);
	if (r < 0)
		return r;
	read_clock_of_node(m, now);
	m->context.remembered = json_object();
	if (!m->context.remembered)
		return -ENOMEM;
	r = add_instruments(m, o, ret_error, error_size);
	if (r < 0)
		return r;
	if (o->mode == SCHEDULE_DAEMON && o->config->console)
		console_open(&m->console, m->files);
	network_init(&m->context.node.network);
	m->context.node.kubeconfig_present =
		file_stat(m->files, "/var/lib/kubelet/kubeconfig", &st) == 0;
	state_load(m);
	machine = seed(m->files);
	for (size_t i = 0; probes[i]; i++) {
		r = m->selected[i] ? add_slots(m, i, machine, now) : 0;
		if (r < 0)
			return r;
	}
	return 0;
}

struct manager *manager_free(struct manager *m)
{
	if (!m)
		return NULL;
	for (size_t i = 0; i < m->n_slots; i++)
		run_free(m->slots[i].run);
	for (size_t i = 0; i < m->n_watches; i++)
		sd_event_source_disable_unref(m->watches[i].source);
	for (size_t i = 0; i < PROBES_MAX; i++)
		free(m->memory[i]);
	sd_event_source_disable_unref(m->timer);
	sd_event_source_disable_unref(m->pass);
	sd_event_source_disable_unref(m->pass_later);
	sd_event_source_disable_unref(m->deadline);
	free(m->unsaid);
	netlink_free(m->netlink);
	journal_free(m->log_reader);
	bus_free(m->bus);
	json_decref(m->context.remembered);
	imds_free(m->imds);
	dns_free(m->dns);
	http_free(m->http);
	console_close(&m->console);
	sd_event_unref(m->context.event);
	files_free(m->files);
	free(m);
	return NULL;
}

int manager_new(struct manager **ret, const struct manager_options *o, char *ret_error,
                size_t error_size)
{
	struct manager *m = calloc(1, sizeof(*m));
	int r;

	ret_error[0] = 0;
	if (!m)
		return -ENOMEM;
	m->console.fd = -1;
	m->config = o->config;
	m->log = *o->log;
	m->context.mode = o->mode;
	r = set_up(m, o, ret_error, error_size);
	if (r < 0) {
		if (!ret_error[0])
			(void) text_format(ret_error, error_size, "cannot start: %s", strerror(-r));
		manager_free(m);
		return r;
	}
	*ret = m;
	return 0;
}

int manager_loop(struct manager *m)
{
	int r;

	arm(m);
	if (m->context.mode == SCHEDULE_DAEMON)
		(void) sd_notify(false, "READY=1");
	else
		finish_check(m);
	r = sd_event_loop(m->context.event);
	if (m->context.mode == SCHEDULE_CHECK)
		pass(m);
	return r;
}

const struct report *manager_report(const struct manager *m, struct report_meta *ret_meta)
{
	*ret_meta = m->meta;
	return pass_report(&m->passes);
}
