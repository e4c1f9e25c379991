/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs. The only place that ends the process. */
#include <ares.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <locale.h>
#include <sys/prctl.h>
#include <sysexits.h>

#include "clock.h"
#include "manager.h"
#include "redact.h"
#include "report-text.h"
#include "sink.h"
#include "version.h"
#include "watch.h"

struct options {
	bool json, no_color, redact, help;
	const char *root, *config, *only, *lang;
	usec_t timeout;
	int argc; /* what is left after the options */
	char **argv;
};

struct verb {
	const char *name, *arguments, *what;
	int (*run)(const struct options *o);
	int min_args, max_args;
};

static int fail(int code, const char *format, ...) _printf_(2, 3);
static int fail(int code, const char *format, ...)
{
	char raw[1024], clean[2048];
	va_list ap;
	size_t n;

	/* a file's text or name may be in it */
	va_start(ap, format);
	n = text_vformat(raw, sizeof(raw), format, ap);
	va_end(ap);
	(void) text_clean(clean, sizeof(clean), raw, n);
	(void) fprintf(stderr, "nodewhy: %s\n", clean);
	return code;
}

static void on_config_warning(const char *message, void *userdata)
{
	log_message(userdata, LOG_WARNING, "%s", message);
}

/* Exit code of a verdict: CONTRACT.md section 1. */
static int exit_code(const char *state)
{
	switch (state_from_name(state)) {
	case STATE_HEALTHY:
	case STATE_STARTING:
		return 0;
	case STATE_DEGRADED:
		return 1;
	case STATE_BROKEN:
		return 2;
	default:
		return 3;
	}
}

static const char *state_of(const json_t *status)
{
	const char *s =
		json_string_value(json_object_get(json_object_get(status, "verdict"), "state"));

	return s ? s : "";
}

/* no-color.org: set and not empty */
static bool want_color(const struct options *o)
{
	const char *no = getenv("NO_COLOR");

	return !o->no_color && !(no && *no) && isatty(STDOUT_FILENO);
}

/* --lang, else the variables of POSIX in their order. */
static enum language language_of(const struct options *o)
{
	const char *const from[] = {o->lang, getenv("LC_ALL"), getenv("LC_MESSAGES"),
	                            getenv("LANG")};

	for (size_t i = 0; i < ELEMENTS(from); i++)
		if (from[i] && from[i][0])
			return strncmp(from[i], "ko", 2) == 0 ? LANGUAGE_KO : LANGUAGE_EN;
	return LANGUAGE_EN;
}

static int show(const json_t *status, const struct options *o)
{
	struct text_options text = {
		.color = want_color(o), .now = clock_realtime(), .language = language_of(o)};

	if (o->json) {
		if (json_dumpf(status, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) < 0 &&
		    !ferror(stdout))
			return fail(EX_SOFTWARE, "out of memory");
		(void) fputc('\n', stdout);
	} else {
		report_text(stdout, status, &text);
	}
	return exit_code(state_of(status));
}

static int make_manager(struct manager **ret, const struct options *o, enum schedule_mode mode,
                        struct config *config, const struct log *log)
{
	struct manager_options mo = {.mode = mode,
	                             .root = o->root,
	                             .only = o->only,
	                             .timeout = o->timeout,
	                             .config = config,
	                             .log = log};
	char error[256];
	int r;

	config_init(config);
	r = config_load(config, o->config, on_config_warning, (void *) log);
	if (r < 0)
		return fail(errno_is_ours(r) ? EX_SOFTWARE : EX_USAGE, "cannot read %s: %s",
		            o->config ? o->config : "/etc/nodewhy", strerror(-r));
	/* what a probe holds for a moment (a token) must not end in a core file */
	(void) prctl(PR_SET_DUMPABLE, 0);
	if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 ||
	    ares_library_init(ARES_LIB_INIT_ALL) != ARES_SUCCESS)
		return fail(EX_SOFTWARE, "cannot start libcurl or c-ares");
	r = manager_new(ret, &mo, error, sizeof(error));
	if (r < 0)
		return fail(r == -EINVAL || r == -ENOENT || r == -ENOTDIR ? EX_USAGE : EX_SOFTWARE,
		            "%s", error);
	return 0;
}

static int verb_run(const struct options *o)
{
	/* a person who starts it by hand sees on the terminal what it says of itself */
	struct log log = {.journal = access("/run/systemd/journal/socket", W_OK) == 0 &&
	                             !isatty(STDERR_FILENO)};
	struct manager *m = NULL;
	struct config config;
	int r;

	r = make_manager(&m, o, SCHEDULE_DAEMON, &config, &log);
	if (r)
		return r;
	r = manager_loop(m);
	manager_free(m);
	return r < 0 ? fail(EX_SOFTWARE, "the event loop failed: %s", strerror(-r)) : 0;
}

/* One pass now. 0 and the report, or an exit code after saying why not. */
static int look_once(const struct options *o, json_t **ret)
{
	const struct log log = {.journal = false};
	struct report_meta meta;
	struct manager *m = NULL;
	struct config config;
	const struct report *report;
	int r;

	r = make_manager(&m, o, SCHEDULE_CHECK, &config, &log);
	if (r)
		return r;
	r = manager_loop(m);
	if (r < 0) {
		manager_free(m);
		return fail(EX_SOFTWARE, "the event loop failed: %s", strerror(-r));
	}
	report = manager_report(m, &meta);
	*ret = report_to_json(report, &meta);
	manager_free(m);
	return *ret ? 0 : fail(EX_SOFTWARE, "out of memory");
}

static int verb_check(const struct options *o)
{
	json_t *j = NULL;
	int r;

	r = look_once(o, &j);
	if (r == 0)
		r = show(j, o);
	json_decref(j);
	return r;
}

/* Private to its owner: it names the node, though no secret is in it. */
static int write_capture(const char *path, const json_t *j)
{
	_cleanup_(fclosep) FILE *f = NULL;
	int fd;

	if (strcmp(path, "-") == 0)
		return json_dumpf(j, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) < 0 ||
		                       putchar('\n') == EOF || fflush(stdout) != 0
		               ? -EIO
		               : 0;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	f = fdopen(fd, "w");
	if (!f) {
		(void) close(fd);
		return -ENOMEM;
	}
	return json_dumpf(j, f, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) < 0 ||
	                       fputc('\n', f) == EOF || fflush(f) != 0
	               ? -EIO
	               : 0;
}

static int verb_capture(const struct options *o)
{
	const char *path = o->argc > 0 ? o->argv[0] : "nodewhy-capture.json";
	json_t *j = NULL;
	int r;

	r = look_once(o, &j);
	if (r)
		return r;
	r = o->redact ? redact(j) : 0;
	if (r < 0)
		r = fail(EX_SOFTWARE, "cannot redact: %s, nothing written", strerror(-r));
	else if ((r = write_capture(path, j)) < 0)
		r = fail(EX_SOFTWARE, "cannot write %s: %s", path, strerror(-r));
	else if (strcmp(path, "-") != 0)
		(void) printf("%s: %zu looks, verdict %s%s\n", path,
		              json_array_size(json_object_get(j, "probes")), state_of(j),
		              o->redact ? ", redacted"
		                        : "; --redact leaves out who and where it is");
	json_decref(j);
	return r;
}

/* ---- reading what the daemon wrote ---- */

/* 0 and a document of our schema, or an exit code (3) after saying why not. */
static int load_status(const struct options *o, struct files **ret_files, json_t **ret)
{
	_cleanup_(freep) char *text = NULL;
	json_error_t error;
	const char *schema;
	size_t len;
	json_t *j;
	int r;

	r = files_new(ret_files, o->root);
	if (r < 0)
		return fail(errno_is_ours(r) ? EX_SOFTWARE : EX_USAGE, "cannot open %s: %s",
		            o->root, strerror(-r));
	r = file_read(*ret_files, "/run/nodewhy/status.json", STATUS_FILE_MAX, &text, &len);
	if (r == -ENOENT)
		return fail(3, "no status file: is the daemon running? (systemctl status nodewhy; "
		               "nodewhy check looks without it)");
	if (r < 0)
		return fail(3, "cannot read /run/nodewhy/status.json: %s", strerror(-r));
	j = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
	schema = json_string_value(json_object_get(j, "schema"));
	if (!schema || strcmp(schema, STATUS_SCHEMA) != 0) {
		json_decref(j);
		return fail(3, "/run/nodewhy/status.json is not a status file%s%s", j ? "" : ": ",
		            j ? "" : error.text);
	}
	if (report_json_clean(j) < 0) {
		json_decref(j);
		return fail(EX_SOFTWARE, "out of memory");
	}
	*ret = j;
	return 0;
}

/* Whether the status may still be believed; else why not, in ret_why. */
static bool is_fresh(const struct files *f, const json_t *status, char *ret_why, size_t size)
{
	const char *boot = json_string_value(json_object_get(status, "boot_id"));
	double written = json_number_value(json_object_get(status, "uptime_s"));
	double valid = json_number_value(json_object_get(status, "valid_for_s"));
	char now_boot[64];
	usec_t uptime;

	if (node_uptime(f, &uptime) < 0 || node_boot_id(f, now_boot, sizeof(now_boot)) < 0) {
		(void) text_format(ret_why, size, "cannot tell how old it is");
		return false;
	}
	if (!boot || strcmp(boot, now_boot) != 0) {
		(void) text_format(ret_why, size, "it is of an earlier boot");
		return false;
	}
	if ((double) uptime / 1e6 > written + valid || (double) uptime / 1e6 + 5 < written) {
		(void) text_format(ret_why, size,
		                   "it was written %.0f s ago and is valid for %.0f s",
		                   (double) uptime / 1e6 - written, valid);
		return false;
	}
	return true;
}

static int verb_status(const struct options *o)
{
	struct files *f = NULL;
	json_t *j = NULL;
	char why[128];
	int r;

	r = load_status(o, &f, &j);
	if (r == 0 && !is_fresh(f, j, why, sizeof(why))) {
		(void) fail(3, "the status is stale: %s; is the daemon running?", why);
		(void) show(j, o);
		r = 3;
	} else if (r == 0) {
		r = show(j, o);
	}
	json_decref(j);
	files_free(f);
	return r;
}

struct watcher {
	const struct options *options;
	struct files *files;
};

/* The screen of `watch`: the status, or why there is none. */
static int render(char **ret, void *userdata)
{
	struct watcher *w = userdata;
	struct text_options text = {.color = !w->options->no_color && !getenv("NO_COLOR") &&
	                                     isatty(STDOUT_FILENO),
	                            .now = clock_realtime()};
	_cleanup_(freep) char *file = NULL;
	char why[128] = "";
	size_t len, size;
	json_t *j = NULL;
	FILE *out;
	int r;

	r = file_read(w->files, "/run/nodewhy/status.json", STATUS_FILE_MAX, &file, &len);
	if (r >= 0)
		j = json_loadb(file, len, JSON_REJECT_DUPLICATES, NULL);
	out = open_memstream(ret, &size);
	if (!out) {
		json_decref(j);
		return -ENOMEM;
	}
	if (!j)
		(void) fprintf(out, "no status: %s (is the daemon running?)\n",
		               r < 0 ? strerror(-r) : "not a status file");
	else if (!is_fresh(w->files, j, why, sizeof(why)))
		(void) fprintf(out, "stale: %s\n\n", why);
	if (j)
		report_text(out, j, &text);
	json_decref(j);
	return fclose(out) == 0 ? 0 : -ENOMEM;
}

static int verb_watch(const struct options *o)
{
	struct watcher w = {.options = o};
	int r;

	r = files_new(&w.files, o->root);
	if (r < 0)
		return fail(EX_USAGE, "cannot open %s: %s", o->root, strerror(-r));
	r = watch_run(w.files, render, &w);
	files_free(w.files);
	return r < 0 ? fail(EX_SOFTWARE, "cannot watch: %s", strerror(-r)) : 0;
}

/* One line of history.jsonl for people; what is no such line is passed over. */
static bool say_history(const char *line, size_t len)
{
	json_t *j = json_loadb(line, len, 0, NULL);
	const char *at = json_string_value(json_object_get(j, "at")),
		   *state = json_string_value(json_object_get(j, "state")),
		   *code = json_string_value(json_object_get(j, "code")),
		   *subject = json_string_value(json_object_get(j, "subject")),
		   *summary = json_string_value(json_object_get(j, "summary")),
		   *because = json_string_value(json_object_get(j, "because"));
	bool good = at && state && code && subject && summary && because;
	char raw[1024], clean[1024];

	if (good) {
		(void) text_format(raw, sizeof(raw), "%s %-7s %s%s%s%s%s: %s", at, state, code,
		                   subject[0] ? " " : "", subject, because[0] ? " because of " : "",
		                   because, summary);
		(void) text_clean(clean, sizeof(clean), raw, strlen(raw));
		text_wrap(stdout, clean, 0, 4);
	}
	json_decref(j);
	return good;
}

static int verb_history(const struct options *o)
{
	_cleanup_(freep) char *text = NULL;
	struct files *f = NULL;
	size_t len, bad = 0;
	int r;

	r = files_new(&f, o->root);
	if (r < 0)
		return fail(EX_USAGE, "cannot open %s: %s", o->root, strerror(-r));
	r = file_read(f, "/var/lib/nodewhy/history.jsonl", HISTORY_FILE_MAX, &text, &len);
	files_free(f);
	if (r == -ENOENT)
		return fail(3, "no history yet");
	if (r < 0)
		return fail(3, "cannot read /var/lib/nodewhy/history.jsonl: %s", strerror(-r));
	if (o->json)
		return fwrite(text, 1, len, stdout) == len ? 0 : EX_SOFTWARE;
	for (const char *p = text, *end = text + len; p < end;) {
		const char *nl = memchr(p, '\n', (size_t) (end - p));
		size_t n = (size_t) ((nl ? nl : end) - p);

		bad += n > 0 && !say_history(p, n);
		p += n + 1;
	}
	if (bad)
		(void) fail(0, "%zu lines of the history cannot be read", bad);
	return 0;
}

static const json_t *condition_of(const json_t *status, const char *type)
{
	const json_t *c;
	size_t i;

	json_array_foreach (json_object_get(status, "conditions"), i, c) {
		const char *s = json_string_value(json_object_get(c, "type"));

		if (s && strcmp(s, type) == 0)
			return c;
	}
	return NULL;
}

/* node-problem-detector's protocol: a line of at most 80 bytes, exit 0 no problem, 1 problem, 2
 * cannot tell. */
static int say_condition(int code, const char *reason, const char *message)
{
	char line[CONDITION_LINE_MAX];

	condition_line(code == 1 ? reason : "", message, line);
	(void) puts(line);
	return code;
}

static int verb_condition(const struct options *o)
{
	const char *type = o->argv[0], *status, *reason, *message;
	struct files *f = NULL;
	const json_t *c;
	json_t *j = NULL;
	char why[128];
	int r;

	if (condition_from_name(type) < 0)
		return fail(EX_USAGE, "there is no condition %s", type);
	if (load_status(o, &f, &j) != 0) {
		r = say_condition(2, "", "nodewhy: no status file");
	} else if (!is_fresh(f, j, why, sizeof(why))) {
		r = say_condition(2, "", "nodewhy: the status is stale");
	} else {
		c = condition_of(j, type);
		status = json_string_value(json_object_get(c, "status"));
		reason = json_string_value(json_object_get(c, "reason"));
		message = json_string_value(json_object_get(c, "message"));
		if (!status || !reason || !message)
			r = say_condition(2, "",
			                  "nodewhy: the status does not hold this condition");
		else
			r = say_condition(strcmp(status, "True") == 0    ? 1
			                  : strcmp(status, "False") == 0 ? 0
			                                                 : 2,
			                  reason, message);
	}
	json_decref(j);
	files_free(f);
	return r;
}

/* ---- diagnosing again ---- */

static int diagnose_again(const json_t *in, json_t **ret, char *ret_error, size_t error_size)
{
	_cleanup_(freep) struct observation *seen = calloc(LEDGER_MAX, sizeof(*seen));
	_cleanup_(freep) struct fact *facts = calloc(LEDGER_MAX, sizeof(*facts));
	_cleanup_(freep) struct report *report = calloc(1, sizeof(*report));
	enum code judged[LEDGER_MAX];
	const struct fact *order[LEDGER_MAX];
	struct report_meta meta = {.seq = 1};
	struct diagnose_input di = {.complete = true};
	size_t n = 0, placed = 0;
	struct node node;
	const char *text;
	usec_t uptime;
	int r;

	if (!seen || !facts || !report)
		return -ENOMEM;
	r = report_observations_from_json(in, seen, judged, LEDGER_MAX, &n, &node, &uptime,
	                                  ret_error, error_size);
	if (r < 0)
		return r;
	for (const struct probe *const *p = probes;; p++) { /* those of other builds come last */
		for (size_t i = 0; i < n; i++)
			if (*p ? strcmp(seen[i].probe, (*p)->name) == 0
			       : !probe_by_name(seen[i].probe)) {
				fact_from_observation(&facts[placed], &seen[i], judged[i]);
				order[placed] = &facts[placed];
				placed++;
			}
		if (!*p)
			break;
	}
	di.node = &node;
	di.now = di.uptime = uptime;
	diagnose(order, placed, &di, report);
	text = json_string_value(json_object_get(in, "boot_id"));
	(void) text_format(meta.boot_id, sizeof(meta.boot_id), "%s", text ? text : "");
	text = json_string_value(json_object_get(in, "written_at"));
	if (!text || clock_parse(text, &meta.realtime) < 0)
		meta.realtime = 0;
	meta.verdict_since = report->at;
	for (int c = 0; c < _CONDITION_MAX; c++)
		meta.condition_since[c] = report->at;
	*ret = report_to_json(report, &meta);
	return *ret ? 0 : -ENOMEM;
}

/* What json_load_callback() reads from: a file, a pipe, or something without an end. */
struct bounded {
	FILE *f;
	size_t left;
};

static size_t read_bounded(void *buf, size_t len, void *userdata)
{
	struct bounded *b = userdata;
	size_t n = fread(buf, 1, len, b->f);

	if (n > b->left || ferror(b->f))
		return SIZE_MAX;
	b->left -= n;
	return n;
}

static json_t *load_bounded(const char *path, json_error_t *ret_error)
{
	struct bounded b = {.left = STATUS_FILE_MAX};
	json_t *j;

	b.f = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	if (!b.f) {
		*ret_error = (json_error_t){0};
		(void) text_format(ret_error->text, sizeof(ret_error->text), "%s", strerror(errno));
		return NULL;
	}
	j = json_load_callback(read_bounded, &b, JSON_REJECT_DUPLICATES, ret_error);
	if (!j && b.left < BUFSIZ)
		(void) text_format(ret_error->text, sizeof(ret_error->text), "longer than %d MiB",
		                   STATUS_FILE_MAX / 1024 / 1024);
	if (b.f != stdin)
		(void) fclose(b.f);
	if (j && report_json_clean(j) < 0) {
		json_decref(j);
		j = NULL;
		(void) text_format(ret_error->text, sizeof(ret_error->text), "out of memory");
	}
	return j;
}

static int replay(const struct options *o, const char *path)
{
	json_error_t error;
	char why[256] = "";
	json_t *in, *out = NULL;
	int r;

	in = load_bounded(path, &error);
	if (!in && error.line < 0)
		return fail(3, "%s", error.text); /* it names the file */
	if (!in)
		return fail(3, "%s:%d: %s", path, error.line, error.text);
	r = diagnose_again(in, &out, why, sizeof(why));
	json_decref(in);
	if (r == -ENOMEM)
		return fail(EX_SOFTWARE, "out of memory");
	if (r < 0)
		return fail(3, "%s: %s", path, why);
	if (o->argc > 1 && !o->json)
		(void) printf("%s\n", path);
	r = show(out, o);
	json_decref(out);
	return r;
}

/* Several are shown one after the other, and the worst of them is the exit code. */
static int verb_replay(const struct options *o)
{
	int worst = 0;

	for (int i = 0; i < o->argc; i++) {
		int r = replay(o, o->argv[i]);

		if (r > worst)
			worst = r;
	}
	return worst;
}

/* ---- the catalogue ---- */

static int verb_findings(const struct options *o)
{
	json_t *all;

	if (!o->json) {
		(void) printf("%-26s %-9s %-12s %s\n", "CODE", "SEVERITY", "LAYER", "CONDITION");
		for (int i = CODE_NONE + 1; i < _CODE_MAX; i++) {
			const struct cause *c = cause_of((enum code) i);

			(void) printf("%-26s %-9s %-12s %s\n", c->name, severity_name(c->severity),
			              layer_name(c->layer), condition_name(c->condition));
		}
		return 0;
	}
	all = catalogue_to_json();
	if (!all || (json_dumpf(all, stdout, JSON_INDENT(1)) < 0 && !ferror(stdout)))
		return fail(EX_SOFTWARE, "out of memory");
	(void) fputc('\n', stdout);
	json_decref(all);
	return 0;
}

/* ---- explain ---- */

struct context {
	struct node node;
	char subject[SUBJECT_MAX]; /* of the finding, where this node has it now */
};

/* The node's own ids for the commands, when a status file is there. */
static void context_from_status(const struct options *o, const char *code, struct context *ret)
{
	_cleanup_(freep) struct observation *seen = calloc(LEDGER_MAX, sizeof(*seen));
	_cleanup_(freep) char *text = NULL;
	enum code judged[LEDGER_MAX];
	struct files *f = NULL;
	json_t *j = NULL, *finding;
	usec_t uptime;
	char why[256];
	size_t len, n, i;

	*ret = (struct context){0};
	if (seen && files_new(&f, o->root) == 0 &&
	    file_read(f, "/run/nodewhy/status.json", STATUS_FILE_MAX, &text, &len) == 0) {
		j = json_loadb(text, len, 0, NULL);
		(void) report_observations_from_json(j, seen, judged, LEDGER_MAX, &n, &ret->node,
		                                     &uptime, why, sizeof(why));
	}
	json_array_foreach (json_object_get(j, "findings"), i, finding) {
		const char *c = json_string_value(json_object_get(finding, "code"));
		const char *s = json_string_value(json_object_get(finding, "subject"));

		if (c && s && strcmp(c, code) == 0 && !ret->subject[0])
			(void) text_clean(ret->subject, sizeof(ret->subject), s, strlen(s));
	}
	json_decref(j);
	files_free(f);
}

enum part { MEANS, DECIDED, CONFUSED, TYPE, OTHERWISE, REMEDY, LAYERS, SAID, _PART_MAX };

static const char *const heads[_LANGUAGE_MAX][_PART_MAX] = {
	[LANGUAGE_EN] = {"What it means", "How it was decided", "What else it could be",
                         "What to type", "If nothing is done", "In one line",
                         "It is only a consequence when one of these layers is at fault",
                         "What this node said of it"},
	[LANGUAGE_KO] = {"의미", "판단 근거", "혼동하기 쉬운 것", "입력할 명령", "그대로 두면",
                         "한 줄 조치", "다음 계층에 문제가 있으면 이것은 그 결과입니다",
                         "이 노드의 기록"},
};

static void paragraph(enum language l, enum part part, const char *text, const struct context *c)
{
	char filled[2048];

	remedy_fill(text, &c->node, c->subject, filled, sizeof(filled));
	(void) printf("\n%s\n", heads[l][part]);
	for (char *s = filled, *next; s; s = next) {
		next = strchr(s, '\n');
		if (next)
			*next++ = 0;
		(void) printf("  ");
		if (part == TYPE || part == SAID)
			text_wrap_command(stdout, s, 2, 6);
		else
			text_wrap(stdout, s, 2, 2);
	}
}

static int verb_explain(const struct options *o)
{
	enum code code = code_from_name(o->argv[0]);
	enum language l = language_of(o);
	const struct explanation *e;
	struct context context;
	const struct cause *c;
	char text[512] = "";

	if (code == CODE_NONE)
		return fail(EX_USAGE, "there is no code %s (nodewhy findings lists them)",
		            o->argv[0]);
	c = cause_of(code);
	e = explanation_of(code, l);
	context_from_status(o, c->name, &context);
	(void) text_format(text, sizeof(text), "%s: %s", c->name, e ? e->title : c->decided_by);
	text_wrap(stdout, text, 0, 2);
	(void) printf("(%s, layer %s, node condition %s)\n", severity_name(c->severity),
	              layer_name(c->layer), condition_name(c->condition));
	if (e) {
		paragraph(l, MEANS, e->means, &context);
		paragraph(l, DECIDED, e->decided, &context);
		paragraph(l, CONFUSED, e->confused, &context);
		paragraph(l, TYPE, e->type, &context);
		paragraph(l, OTHERWISE, e->otherwise, &context);
	}
	paragraph(l, REMEDY, c->remedy, &context);
	text[0] = 0;
	for (int i = 0; i < _LAYER_MAX; i++)
		if (needs[c->layer] & UINT32_C(1) << i)
			(void) text_append(text, sizeof(text), "%s%s", text[0] ? ", " : "",
			                   layer_name((enum layer) i));
	if (text[0])
		paragraph(l, LAYERS, text, &context);
	(void) text_format(text, sizeof(text), "journalctl -t nodewhy NODEWHY_CODE=%s", c->name);
	paragraph(l, SAID, text, &context);
	return 0;
}

static int verb_version(const struct options *o)
{
	const curl_version_info_data *curl = curl_version_info(CURLVERSION_NOW);

	(void) printf("nodewhy %s\n", nodewhy_version());
	(void) printf("libcurl %s (%s), c-ares %s, jansson %s, HTTP/2 %s\n", curl->version,
	              curl->ssl_version ? curl->ssl_version : "no TLS", ares_version(NULL),
	              JANSSON_VERSION, curl->features & CURL_VERSION_HTTP2 ? "yes" : "no");
	return 0;
}

/* ---- the command line ---- */

static const struct verb verbs[] = {
	{"run", "", "the daemon", verb_run, 0, 0},
	{"check", "", "look once, now, without the daemon", verb_check, 0, 0},
	{"status", "", "show what the daemon last wrote", verb_status, 0, 0},
	{"watch", "", "follow the status on a terminal", verb_watch, 0, 0},
	{"history", "", "what was raised and cleared, also before a reboot", verb_history, 0, 0},
	{"capture", "[FILE]", "look once, every look to a file that can be mailed", verb_capture, 0,
         1},
	{"explain", "CODE", "what a finding means and what to type", verb_explain, 1, 1},
	{"findings", "", "the whole catalogue", verb_findings, 0, 0},
	{"replay", "FILE", "diagnose a status file again, on any machine", verb_replay, 1, INT_MAX},
	{"condition", "TYPE", "for node-problem-detector: exit 0, 1 or 2 and a line",
         verb_condition, 1, 1},
	{"version", "", "version and build", verb_version, 0, 0},
};

static int help(void)
{
	(void) puts("nodewhy VERB [options]: why this EKS node is, or is about to be, NotReady\n");
	for (size_t i = 0; i < ELEMENTS(verbs); i++)
		(void) printf("  %-9s %-6s  %s\n", verbs[i].name, verbs[i].arguments,
		              verbs[i].what);
	(void) puts(
		"\n"
		"  --json            machine-readable (check, status, replay, findings)\n"
		"  --redact          capture: replace account, instance, address, host names\n"
		"  --root DIR        the host's file system, when run in a container\n"
		"  --config FILE     instead of /etc/nodewhy/nodewhy.conf and its drop-ins\n"
		"  --only A[,B]      only these probes, and those they build on\n"
		"  --timeout S       end a check after so many seconds (10)\n"
		"  --no-color        plain text; NO_COLOR is honoured too\n"
		"  --lang en|ko      the language of explain, instead of the locale's\n"
		"  --help            this text\n\n"
		"exit code of check, status, replay: 0 healthy or starting, 1 degraded, 2 broken,\n"
		"3 cannot tell; 64 wrong usage, 70 own failure");
	return 0;
}

static int parse_timeout(const char *s, usec_t *ret)
{
	char *end;
	double v = strtod(s, &end);

	if (end == s || *end || !(v >= 0.1 && v <= 600))
		return -EINVAL;
	*ret = (usec_t) (v * 1e6);
	return 0;
}

static int parse(int argc, char *argv[], struct options *o)
{
	enum { JSON = 256, REDACT, ROOT, CONFIG, ONLY, TIMEOUT, NO_COLOR, LANG };
	static const struct option known[] = {
		{"redact", no_argument, NULL, REDACT},
		{"json", no_argument, NULL, JSON},
		{"root", required_argument, NULL, ROOT},
		{"config", required_argument, NULL, CONFIG},
		{"only", required_argument, NULL, ONLY},
		{"timeout", required_argument, NULL, TIMEOUT},
		{"no-color", no_argument, NULL, NO_COLOR},
		{"lang", required_argument, NULL, LANG},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, ":h", known, NULL)) != -1) {
		switch (c) {
		case JSON:
			o->json = true;
			break;
		case REDACT:
			o->redact = true;
			break;
		case ROOT:
			o->root = optarg;
			break;
		case CONFIG:
			o->config = optarg;
			break;
		case ONLY:
			o->only = optarg;
			break;
		case TIMEOUT:
			if (parse_timeout(optarg, &o->timeout) < 0)
				return fail(EX_USAGE,
				            "--timeout %s is not between 0.1 and 600 seconds",
				            optarg);
			break;
		case NO_COLOR:
			o->no_color = true;
			break;
		case LANG:
			if (strcmp(optarg, "en") != 0 && strcmp(optarg, "ko") != 0)
				return fail(EX_USAGE, "--lang %s is neither en nor ko", optarg);
			o->lang = optarg;
			break;
		case 'h':
			o->help = true;
			break;
		case ':':
			return fail(EX_USAGE, "%s needs a value", argv[optind - 1]);
		default:
			if (optopt > 0 && optopt < JSON) /* a letter, perhaps one of several */
				return fail(EX_USAGE, "unknown option -%c (nodewhy --help)",
				            optopt);
			return fail(EX_USAGE, "unknown option %s (nodewhy --help)",
			            argv[optind - 1]);
		}
	}
	o->argc = argc - optind;
	o->argv = argv + optind;
	return 0;
}

/* What was said and could not be written was not said: a full disk must not look like success. */
static int said(int code)
{
	bool lost = ferror(stdout);

	errno = 0;
	if (fflush(stdout) != 0 || lost)
		return fail(EX_SOFTWARE, "cannot write: %s",
		            errno ? strerror(errno) : "output error");
	return code;
}

int main(int argc, char *argv[])
{
	struct options o = {.root = "/", .timeout = 10 * USEC_PER_SEC};
	int r;

	/* standard descriptors that are closed would be given to our sockets */
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			(void) open("/dev/null", O_RDWR);
	r = parse(argc, argv, &o);
	if (r)
		return r;
	if (o.help)
		return said(help());
	if (o.argc == 0)
		return fail(EX_USAGE, "a verb is missing (nodewhy --help)");
	for (size_t i = 0; i < ELEMENTS(verbs); i++) {
		const struct verb *v = &verbs[i];

		if (strcmp(o.argv[0], v->name) != 0)
			continue;
		o.argc--;
		o.argv++;
		if (o.argc < v->min_args)
			return fail(EX_USAGE, "%s needs %s", v->name, v->arguments);
		if (o.argc > v->max_args)
			return fail(EX_USAGE, "%s takes no \"%s\"", v->name, o.argv[v->max_args]);
		return said(v->run(&o));
	}
	return fail(EX_USAGE, "unknown verb %s (nodewhy --help)", o.argv[0]);
}
