/* SPDX-License-Identifier: Apache-2.0 */
/* Kubelet in every state that a unit, its health check and its lines can be in. */
#define run_unit           fake_unit
#define run_journal        fake_journal
#define run_http           fake_http
#define run_from_monotonic fake_from_monotonic
#define file_watches_left  fake_watches_left
#define probe_kubelet      tested_kubelet

#include "../fakerun.h"

#include "../../probes/kubelet.c"

#include <ftw.h>

#include "../tap.h"

enum { LINES_MAX = 64, QUEUE_MAX = 16 };
#define S        USEC_PER_SEC
#define UPTIME   (1000 * S) /* of the first look */
#define OFFSET   (7 * S)    /* CLOCK_BOOTTIME is ahead of the unit's clock by so much */
#define KUBELET_ "kubelet.service"

/* ---- the world ---- */

static struct {
	struct unit units[8];
	size_t n_units;
	int bus_error, journal_error;
	struct {
		usec_t at;
		const char *identifier;
		char message[512];
	} lines[LINES_MAX];
	size_t n_lines, read;
	bool early; /* kubelet's first line of this boot is older than what is read */
	struct http_reply healthz, tls;
	unsigned tls_asked, healthz_asked, units_asked;
	int watches;
} world;

enum call { UNIT, JOURNAL, HTTP };
static struct {
	enum call kind;
	char name[UNIT_NAME_MAX];
	uintptr_t tag;
	union {
		run_unit_t unit;
		run_lines_t lines;
		run_http_t http;
	} done;
	run_line_t line;
	unsigned most;
	usec_t newest;
	uint16_t port;
} queue[QUEUE_MAX];
static size_t n_queue;
static char base[] = "/tmp/nodewhy-kubelet-XXXXXX";

int fake_unit(struct run *r, const char *unit, usec_t timeout, run_unit_t done_cb, uintptr_t tag)
{
	if (n_queue == QUEUE_MAX)
		return -ENOSPC;
	queue[n_queue].kind = UNIT;
	queue[n_queue].tag = tag;
	queue[n_queue].done.unit = done_cb;
	(void) text_format(queue[n_queue++].name, UNIT_NAME_MAX, "%s", unit);
	return 0;
}

int fake_journal(struct run *r, const struct journal_query *q,
                 char cursor[static JOURNAL_CURSOR_MAX], run_line_t line, run_lines_t done_cb,
                 uintptr_t tag)
{
	if (n_queue == QUEUE_MAX)
		return -ENOSPC;
	queue[n_queue].kind = JOURNAL;
	queue[n_queue].tag = tag;
	queue[n_queue].line = line;
	queue[n_queue].most = q->entries_max;
	queue[n_queue].newest = q->newest_only;
	queue[n_queue++].done.lines = done_cb;
	return 0;
}

int fake_http(struct run *r, const struct http_request *rq, run_http_t done_cb, uintptr_t tag)
{
	if (n_queue == QUEUE_MAX)
		return -ENOSPC;
	queue[n_queue].kind = HTTP;
	queue[n_queue].tag = tag;
	queue[n_queue].port = rq->port;
	queue[n_queue++].done.http = done_cb;
	return 0;
}

int fake_watches_left(void)
{
	return world.watches;
}

usec_t fake_from_monotonic(const struct run *r, usec_t monotonic)
{
	return monotonic + OFFSET;
}

static void answer_unit(struct run *r, size_t i)
{
	struct unit none = {.load = "not-found", .active = "inactive", .sub = "dead"};
	struct bus_reply reply = {.error = world.bus_error, .unit = &none};

	world.units_asked++;
	for (size_t k = 0; k < world.n_units; k++)
		if (strcmp(world.units[k].name, queue[i].name) == 0)
			reply.unit = &world.units[k];
	if (reply.error)
		reply.unit = NULL;
	queue[i].done.unit(r, &reply, queue[i].tag);
}

static void answer_journal(struct run *r, size_t i)
{
	struct journal_end end = {.error = world.journal_error};
	run_lines_t done_cb = queue[i].done.lines;
	run_line_t line = queue[i].line;
	unsigned most = queue[i].most;
	uintptr_t tag = queue[i].tag;
	const struct journal_entry first = {.message = "x", .len = 1, .identifier = "kubelet"};

	if (world.early && !queue[i].newest)
		line(r, &first, tag);
	for (; !end.error && world.read < world.n_lines && end.entries < most; end.entries++) {
		struct journal_entry e = {.message = world.lines[world.read].message,
		                          .len = strlen(world.lines[world.read].message),
		                          .unit = KUBELET_,
		                          .identifier = world.lines[world.read].identifier,
		                          .at = world.lines[world.read].at - OFFSET,
		                          .priority = 6};

		world.read++;
		line(r, &e, tag);
	}
	end.more = world.read < world.n_lines;
	done_cb(r, &end, tag);
}

static void answer_http(struct run *r, size_t i)
{
	unsigned *asked = queue[i].port == API_PORT ? &world.tls_asked : &world.healthz_asked;

	(*asked)++;
	queue[i].done.http(r, queue[i].port == API_PORT ? &world.tls : &world.healthz,
	                   queue[i].tag);
}

static bool look(struct run *r)
{
	bool good;

	free(r->state);
	r->state = calloc(1, tested_kubelet.state_size);
	if (!r->memory)
		r->memory = calloc(1, tested_kubelet.memory_size);
	r->ended = false;
	r->n_seen = n_queue = 0;
	world.tls_asked = world.healthz_asked = world.units_asked = 0;
	good = tested_kubelet.start(r) == 0;
	for (size_t i = 0; good && !r->ended && i < n_queue; i++) {
		if (queue[i].kind == UNIT)
			answer_unit(r, i);
		else if (queue[i].kind == JOURNAL)
			answer_journal(r, i);
		else
			answer_http(r, i);
	}
	for (size_t i = 0; i < r->n_reads; i++)
		free(r->reads[i]);
	r->n_reads = 0;
	r->now += 10 * S;
	return good && r->ended;
}

static void say(usec_t at, const char *text)
{
	world.lines[world.n_lines].at = at;
	world.lines[world.n_lines].identifier = "kubelet";
	(void) text_format(world.lines[world.n_lines++].message, 512,
	                   "E0726 15:04:05.123456    1902 some.go:72] %s", text);
}

static void init_says(usec_t at, const char *text)
{
	world.lines[world.n_lines].at = at;
	world.lines[world.n_lines].identifier = "systemd";
	(void) text_format(world.lines[world.n_lines++].message, 512, "%s", text);
}

static struct unit *unit(const char *name, const char *active, const char *sub)
{
	struct unit *u = NULL;

	for (size_t i = 0; i < world.n_units && !u; i++)
		if (strcmp(world.units[i].name, name) == 0)
			u = &world.units[i];
	if (!u)
		u = &world.units[world.n_units++];
	*u = (struct unit){.load = "loaded"};
	(void) text_format(u->name, sizeof(u->name), "%s", name);
	(void) text_format(u->active, sizeof(u->active), "%s", active);
	(void) text_format(u->sub, sizeof(u->sub), "%s", sub);
	return u;
}

static const struct http_reply healthy = {.outcome = OUTCOME_OK,
                                          .stage = HTTP_DONE,
                                          .code = 200,
                                          .status = 200,
                                          .body = "ok",
                                          .body_len = 2,
                                          .total = 900};
static const struct http_reply refused = {
	.outcome = OUTCOME_REFUSED, .stage = HTTP_CONNECTING, .code = ECONNREFUSED, .body = ""};

static void fresh(struct run *r)
{
	const struct files *files = r->files;

	fake_free(r);
	memset(r, 0, sizeof(*r));
	memset(&world, 0, sizeof(world));
	r->files = files;
	r->now = UPTIME + OFFSET;
	world.healthz = healthy;
	unit(KUBELET_, "active", "running")->main_start = 41 * S;
}

static void put(const char *path, const char *text)
{
	char full[512];
	FILE *f;

	(void) text_format(full, sizeof(full), "%s%s", base, path);
	for (char *p = full + strlen(base) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		(void) mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "we");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		printf("# cannot write %s\n", full);
}

static void take(const char *path)
{
	char full[512];

	(void) text_format(full, sizeof(full), "%s%s", base, path);
	(void) remove(full);
}

static enum code says(const struct run *r, const char *aspect)
{
	return fake_judge(r, &tested_kubelet, aspect);
}

static bool summary_has(const struct run *r, const char *aspect, const char *text)
{
	const struct observation *o = fake_find(r, aspect, NULL);
	struct words w = {0};

	if (!o || tested_kubelet.judge(o, &w) == CODE_NONE)
		return false;
	if (!strstr(w.summary, text))
		printf("# %s\n", w.summary);
	return strstr(w.summary, text);
}

static unsigned findings(const struct run *r)
{
	struct words w;
	unsigned n = 0;

	for (size_t i = 0; i < r->n_seen; i++)
		n += tested_kubelet.judge(&r->seen[i], &w) != CODE_NONE;
	return n;
}

static enum outcome outcome(const struct run *r, const char *aspect)
{
	const struct observation *o = fake_find(r, aspect, NULL);

	return o ? o->outcome : _OUTCOME_MAX;
}

/* ---- sound nodes ---- */

static void test_sound(struct run *r)
{
	fresh(r);
	say(r->now - 900 * S,
	    "\"Skipping pod synchronization\" err=\"PLEG is not healthy: pleg has "
	    "yet to be successful\"");
	say(r->now - 890 * S, "\"Unable to register node with API server\" err=\"Unauthorized\" "
	                      "node=\"ip-10-0-0-1.ec2.internal\"");
	say(r->now - 880 * S, "\"Kubelet version\" kubeletVersion=\"v1.33.1-eks-1de0d4f\"");
	say(r->now - 880 * S, "\"Successfully registered node\" node=\"ip-10-0-0-1.ec2.internal\"");
	ok(look(r) && findings(r) == 0);
	ok(outcome(r, "unit") == OUTCOME_OK && outcome(r, "healthz") == OUTCOME_OK);
	ok(outcome(r, "pleg") == OUTCOME_OK && outcome(r, "serving") == OUTCOME_OK);
	ok(outcome(r, "config") == OUTCOME_OK && !fake_find(r, "register", NULL));
	ok(r->node.registered == YES);
	ok(strcmp(r->node.node_name, "ip-10-0-0-1.ec2.internal") == 0);
	ok(strcmp(r->node.kubelet_version, "v1.33.1-eks-1de0d4f") == 0);
	ok(world.tls_asked == 0); /* which kubelet would log */
	/* one restart says nothing */
	world.units[0].restarts = 1;
	world.units[0].main_start = r->now - OFFSET - 2 * S;
	world.healthz = refused;
	ok(look(r) && findings(r) == 0 && outcome(r, "healthz") == OUTCOME_SKIPPED);
	/* no bus, no journal, no kubelet: nothing is known, nobody accused */
	fresh(r);
	world.bus_error = -ENOENT;
	world.journal_error = -ENOENT;
	world.healthz = refused;
	ok(look(r) && findings(r) == 0 && outcome(r, "unit") == OUTCOME_UNKNOWN);
	ok(outcome(r, "pleg") == OUTCOME_UNKNOWN && outcome(r, "healthz") == OUTCOME_SKIPPED);
	fresh(r);
	world.n_units = 0;
	ok(look(r) && findings(r) == 0 && outcome(r, "unit") == OUTCOME_SKIPPED);
	/* Ubuntu */
	fresh(r);
	world.n_units = 0;
	unit("snap.kubelet-eks.daemon.service", "active", "running")->main_start = 41 * S;
	ok(look(r) && findings(r) == 0 && outcome(r, "healthz") == OUTCOME_OK);
	ok(fake_find(r, "unit", "snap.kubelet-eks.daemon.service"));
}

/* ---- the unit ---- */

static void test_inactive(struct run *r)
{
	fresh(r);
	unit(KUBELET_, "inactive", "dead");
	unit("nodeadm-run.service", "inactive", "dead");
	ok(look(r) && says(r, "unit") == CODE_KubeletInactive);
	ok(summary_has(r, "unit", "never started since boot: nodeadm-run.service has not"));
	ok(outcome(r, "healthz") == OUTCOME_SKIPPED && world.healthz_asked == 0);
	ok(findings(r) == 1);
	unit("cloud-final.service", "activating", "start");
	ok(look(r) && findings(r) == 0 && outcome(r, "unit") == OUTCOME_SKIPPED);
	unit("cloud-final.service", "active", "exited")->main_start = 8 * S;
	unit("nodeadm-run.service", "inactive", "dead")->main_start = 9 * S;
	init_says(r->now - 100 * S,
	          "kubelet.service: Job kubelet.service/start failed with result 'dependency'.");
	ok(look(r) && summary_has(r, "unit", "a unit that it needs failed"));
	unit("sandbox-image.service", "failed", "failed");
	ok(look(r) && summary_has(r, "unit", "sandbox-image.service, which it needs, failed"));
	fresh(r);
	(void) text_format(unit(KUBELET_, "inactive", "dead")->load, 16, "masked");
	ok(look(r) && says(r, "unit") == CODE_KubeletInactive);
	ok(summary_has(r, "unit", "is masked"));
	fresh(r);
	unit(KUBELET_, "inactive", "dead")->active_exit = r->now - OFFSET - 33 * S;
	ok(look(r) && summary_has(r, "unit", "stopped 33 s ago"));
	/* systemd has forgotten it; its lines have not: of a while ago, or of early in this boot */
	fresh(r);
	unit(KUBELET_, "inactive", "dead");
	say(r->now - 75 * S, "\"Shutting down\"");
	ok(look(r) && summary_has(r, "unit", "inactive (dead), last heard of 75 s ago"));
	fresh(r);
	unit(KUBELET_, "inactive", "dead");
	world.early = true;
	ok(look(r) && summary_has(r, "unit", "it ran earlier in this boot"));
	fresh(r);
	unit(KUBELET_, "inactive", "dead");
	world.journal_error = -EACCES;
	ok(look(r) && says(r, "unit") == CODE_KubeletInactive);
	ok(!strstr(fake_find(r, "unit", NULL)->detail, "never")); /* who knows */
}

static void crash(struct run *r, uint32_t restarts, const char *sub, const char *text)
{
	struct unit *u = unit(KUBELET_, strcmp(sub, "running") == 0 ? "active" : "activating", sub);

	u->restarts = restarts;
	u->main_start = r->now - OFFSET - S;
	(void) text_format(u->result, sizeof(u->result), "exit-code");
	u->main_code = 1;
	u->main_status = 1;
	if (!text)
		return;
	say(r->now - S, text);
	say(r->now - S, "\"Something else that is an error\"");
	init_says(r->now - S,
	          "kubelet.service: Main process exited, code=exited, status=1/FAILURE");
}

static void test_looping(struct run *r)
{
	static const char ca[] =
		"\"command failed\" err=\"failed to construct kubelet dependencies: unable to load "
		"client CA file /etc/kubernetes/pki/ca.crt: data does not contain any valid RSA\"";

	fresh(r);
	ok(look(r) && findings(r) == 0);
	crash(r, 0, "auto-restart", ca);
	ok(look(r) && findings(r) == 0);
	crash(r, 1, "auto-restart", ca);
	ok(look(r) && findings(r) == 0);
	crash(r, 3, "auto-restart", ca);
	ok(look(r) && says(r, "unit") == CODE_KubeletCrashLooping && findings(r) == 1);
	ok(summary_has(r, "unit", "restarted 3 times (exit-code): failed to construct kubelet"));
	ok(summary_has(r, "unit", "unable to load client CA file /etc/kubernetes/pki/ca.crt"));
	/* between two ends it runs for a moment */
	crash(r, 4, "running", NULL);
	ok(look(r) && says(r, "unit") == CODE_KubeletCrashLooping);
	/* cured: it lives on */
	unit(KUBELET_, "active", "running")->main_start = r->now - OFFSET - 5 * S;
	world.units[0].restarts = 4;
	ok(look(r) && says(r, "unit") == CODE_KubeletCrashLooping);
	r->now += 60 * S;
	ok(look(r) && findings(r) == 0);
	r->now += 500 * S;
	ok(look(r) && findings(r) == 0);
	/* a daemon that comes later does not hold old restarts against it */
	fresh(r);
	world.units[0].restarts = 9;
	ok(look(r) && findings(r) == 0);
	fresh(r);
	crash(r, 9, "running", NULL);
	ok(look(r) && says(r, "unit") == CODE_KubeletCrashLooping);
	/* systemd gave up */
	fresh(r);
	(void) text_format(unit(KUBELET_, "failed", "failed")->result, 24, "start-limit-hit");
	ok(look(r) && says(r, "unit") == CODE_KubeletCrashLooping);
	ok(summary_has(r, "unit", "failed (start-limit-hit)"));
}

static void test_config(struct run *r)
{
	static const char bad[] =
		"\"command failed\" err=\"failed to load kubelet config file, path: "
		"/etc/kubernetes/kubelet/config.json, error: json: cannot unmarshal\"";

	fresh(r);
	crash(r, 3, "auto-restart", bad);
	ok(look(r) && says(r, "config") == CODE_KubeletConfigInvalid);
	ok(summary_has(r, "config", "failed to load kubelet config file, path: /etc/kubernetes"));
	ok(says(r, "unit") == CODE_KubeletCrashLooping && findings(r) == 2);
	/* the same line, and a kubelet that runs: the line is history */
	unit(KUBELET_, "active", "running")->main_start = r->now - OFFSET - 300 * S;
	world.units[0].restarts = 3;
	ok(look(r) && findings(r) == 0 && outcome(r, "config") == OUTCOME_OK);
	/* it ends for another reason now */
	crash(r, 6, "auto-restart", "\"command failed\" err=\"failed to run Kubelet: no space\"");
	ok(look(r) && says(r, "unit") == CODE_KubeletCrashLooping && findings(r) == 1);
	/* as it was said up to 1.22, and by its flags */
	fresh(r);
	crash(r, 3, "auto-restart", "failed to load Kubelet config file /x: no such file");
	ok(look(r) && says(r, "config") == CODE_KubeletConfigInvalid);
	fresh(r);
	crash(r, 3, "auto-restart",
	      "\"command failed\" err=\"failed to parse kubelet flag: unknown flag: --no-such\"");
	ok(look(r) && says(r, "config") == CODE_KubeletConfigInvalid);
}

/* ---- healthz ---- */

static void test_healthz(struct run *r)
{
	fresh(r);
	world.healthz = refused;
	ok(look(r) && says(r, "healthz") == CODE_KubeletUnhealthy);
	ok(summary_has(r, "healthz", "127.0.0.1:10248/healthz: Connection refused"));
	world.healthz = (struct http_reply){
		.outcome = OUTCOME_TIMEOUT, .stage = HTTP_WAITING, .body = "", .total = 2000000};
	ok(look(r) && summary_has(r, "healthz", "no answer in 2.0 s"));
	world.healthz = healthy;
	world.healthz.code = world.healthz.status = 500;
	world.healthz.body = "[-]syncloop failed\n";
	ok(look(r) && summary_has(r, "healthz", "HTTP 500 [-]syncloop failed"));
	world.healthz.status = 200; /* somebody else's */
	ok(look(r) && says(r, "healthz") == CODE_KubeletUnhealthy);
	world.healthz = refused;
	put("/etc/kubernetes/kubelet/config.json", "{\"healthzPort\": 0}");
	ok(look(r) && findings(r) == 0);
	put("/etc/kubernetes/kubelet/config.json", "{\"healthzPort\": 10248}");
	ok(look(r) && findings(r) == 1);
	put("/etc/kubernetes/kubelet/config.json.d/50-x.conf", "healthzPort: 10300\n");
	ok(look(r) && findings(r) == 0);
	take("/etc/kubernetes/kubelet/config.json.d/50-x.conf");
	take("/etc/kubernetes/kubelet/config.json");
	/* without a bus, where kubelet should run */
	world.bus_error = -ECONNREFUSED;
	put("/var/lib/kubelet/kubeconfig", "x");
	ok(look(r) && says(r, "healthz") == CODE_KubeletUnhealthy);
	take("/var/lib/kubelet/kubeconfig");
}

/* ---- lines ---- */

static void test_pleg(struct run *r)
{
	static const char text[] =
		"\"Skipping pod synchronization\" err=\"PLEG is not healthy: pleg was last seen "
		"active 3m7.25s ago; threshold is 3m0s\"";

	fresh(r);
	put("/proc/stat", "cpu 1 2 3\nprocs_running 1\nprocs_blocked 2\n");
	say(r->now - 3 * S, text);
	ok(look(r) && says(r, "pleg") == CODE_PlegUnhealthy && findings(r) == 1);
	ok(summary_has(r, "pleg", "last seen active 3m7s ago; 2 tasks wait in D state"));
	ok(fake_find(r, "pleg", NULL)->layer == LAYER_RUNTIME);
	ok(fake_find(r, "pleg", NULL)->valid_for <= FRESH);
	/* not said again: over */
	r->now += 30 * S;
	ok(look(r) && findings(r) == 0);
	ok(duration_s("3m7.2s") == 187 && duration_s("1h2m3s ago") == 3723 &&
	   duration_s("45.1s") == 45);
	ok(duration_s("") == 0 && duration_s("ago") == 0 && duration_s("250ms") == 0);
	ok(duration_s("99999999999999999999h") <= UINT32_MAX && duration_s("7") == 0);
}

static void test_watches(struct run *r)
{
	static const char start[] =
		"E0110 21:30:25.764493  42304 kubelet.go:1566] \"Failed to start "
		"cAdvisor\" err=\"inotify_init: too many open files\"";
	static const char cgroup[] =
		"W0813 12:48:05.682241   81153 raw.go:87] Error while processing event "
		"(\"/sys/fs/cgroup/kubepods/x\": 0x40000100 == IN_CREATE|IN_ISDIR): "
		"inotify_add_watch /sys/fs/cgroup/kubepods/x: no space left on device";

	fresh(r);
	world.watches = -EPERM;
	put("/proc/sys/fs/inotify/max_user_instances", "128\n");
	say(r->now - 3 * S, start);
	ok(look(r) && says(r, "inotify") == CODE_InotifyExhausted && findings(r) == 1);
	ok(summary_has(r, "inotify",
	               "kubelet: fs.inotify.max_user_instances (128) is reached, 3 s ago: "
	               "inotify_init: too many open files"));
	ok(fake_find(r, "inotify", NULL)->layer == LAYER_HOST);
	/* root, which is given one now, knows better */
	world.watches = 0;
	ok(look(r) && findings(r) == 0);
	world.watches = -EPERM;
	ok(look(r) && findings(r) == 1);
	put("/proc/sys/fs/inotify/max_user_instances", "8192\n");
	ok(look(r) && findings(r) == 0); /* raised since */
	say(r->now - S, cgroup);
	ok(look(r) && says(r, "inotify") == CODE_InotifyExhausted);
	ok(summary_has(r, "inotify", "kubelet: fs.inotify.max_user_watches is reached, 1 s ago"));
	r->now += WATCHES_FRESH;
	ok(look(r) && findings(r) == 0);
	say(r->now - S, "failed to create fsnotify watcher: too many open files");
	ok(look(r) && says(r, "inotify") == CODE_InotifyExhausted);
	/* other limits, in the same words */
	fresh(r);
	world.watches = -EPERM;
	say(r->now - S, "\"x\" err=\"inotify_init: too many open files in system\"");
	say(r->now - S, "\"x\" err=\"open /var/lib/kubelet/x: too many open files\"");
	say(r->now - S,
	    "\"x\" err=\"write /var/lib/kubelet/inotify_add: no space left on device\"");
	ok(look(r) && findings(r) == 0);
	take("/proc/sys/fs/inotify/max_user_instances");
	world.watches = 0;
}

static void test_denied(struct run *r)
{
	static const char unauthorized[] =
		"\"Unable to register node with API server\" err=\"Unauthorized\" node=\"n\"";

	fresh(r);
	say(r->now - 9 * S, unauthorized);
	ok(look(r) && findings(r) == 0); /* once is not enough */
	say(r->now - 9 * S, unauthorized);
	ok(look(r) && says(r, "register") == CODE_NodeUnauthorized);
	ok(fake_find(r, "register", NULL)->layer == LAYER_IDENTITY);
	ok(fake_find(r, "register", NULL)->code == 401 && r->node.registered == NO);
	ok(summary_has(r, "register", "401 Unauthorized, 9 s ago, 2 times"));
	ok(outcome(r, "api") == OUTCOME_DENIED && says(r, "api") == CODE_NONE);
	/* the API server itself says that we are in, after that line */
	r->node.registered = YES;
	ok(look(r) && findings(r) == 0);
	say(r->now - S, unauthorized);
	ok(look(r) && says(r, "register") == CODE_NodeUnauthorized); /* and again, later */
	say(r->now - S, "\"Successfully registered node\" node=\"n\"");
	ok(look(r) && findings(r) == 0 && r->node.registered == YES);
	/* it expires */
	fresh(r);
	say(r->now - 9 * S, unauthorized);
	say(r->now - 2 * S, unauthorized);
	ok(look(r) && findings(r) == 1);
	r->now += 60 * S;
	ok(look(r) && findings(r) == 0);
	/* an image that may not be pulled is another matter */
	fresh(r);
	for (int i = 0; i < 3; i++)
		say(r->now - 9 * S, "\"Failed to pull image\" err=\"401 Unauthorized\"");
	ok(look(r) && findings(r) == 0);
}

static void test_names(struct run *r)
{
	fresh(r);
	for (int i = 0; i < 2; i++)
		say(r->now - 9 * S,
		    "\"Unable to register node with API server\" err=\"nodes "
		    "\\\"ip-192-0-2-62.ec2.internal\\\" is forbidden: node "
		    "\\\"ip-192-0-2-62.eu-west-1.compute.internal\\\" is not allowed to modify "
		    "node \\\"ip-192-0-2-62.ec2.internal\\\"\" node=\"x\"");
	ok(look(r) && says(r, "register") == CODE_NodeNameMismatch);
	ok(summary_has(r, "register",
	               "403, node ip-192-0-2-62.eu-west-1.compute.internal may not modify node "
	               "ip-192-0-2-62.ec2.internal"));
	for (int i = 0; i < 2; i++)
		say(r->now - 2 * S,
		    "\"Unable to register node with API server\" err=\"nodes is forbidden: User "
		    "\\\"system:node:\\\" cannot create resource \\\"nodes\\\" in API group "
		    "\\\"\\\" at the cluster scope: unknown node for user \\\"system:node:\\\"\"");
	ok(look(r) && says(r, "register") == CODE_NodeNameEmpty);
	fresh(r);
	for (int i = 0; i < 2; i++) /* one with a name is none without */
		say(r->now - 2 * S, "nodes is forbidden: User \"system:node:ip-10-0-0-1\" cannot "
		                    "create resource");
	ok(look(r) && findings(r) == 0);
}

static void test_api(struct run *r)
{
	fresh(r);
	say(r->now - 9 * S,
	    "\"Failed to ensure lease exists, will retry\" err=\"Get \\\"https://x/apis?timeout=10s"
	    "\\\": getting credentials: exec: executable aws failed with exit code 255\"");
	ok(look(r) && outcome(r, "api") == OUTCOME_FAILED && findings(r) == 0);
	ok(strstr(fake_find(r, "api", NULL)->detail, "executable aws failed with exit code 255"));
	say(r->now - 2 * S, "\"Error updating node status, will retry\" err=\"dial tcp "
	                    "10.0.0.9:443: i/o timeout\"");
	ok(look(r) && outcome(r, "api") == OUTCOME_TIMEOUT);
	r->now += 60 * S;
	ok(look(r) && !fake_find(r, "api", NULL));
}

static void test_serving(struct run *r)
{
	fresh(r);
	take("/var/lib/kubelet/pki/kubelet-server-current.pem");
	world.tls = (struct http_reply){.outcome = OUTCOME_FAILED, .stage = HTTP_TLS};
	(void) text_format(world.tls.tls_error, sizeof(world.tls.tls_error), "%s",
	                   "error:0A000438:SSL routines::tlsv1 alert internal error");
	world.units[0].main_start = r->now - OFFSET - 60 * S;
	ok(look(r) && findings(r) == 0 && outcome(r, "serving") == OUTCOME_SKIPPED);
	ok(world.tls_asked == 1);
	ok(look(r) && world.tls_asked == 0); /* not at every look */
	r->now += 1500 * S;
	ok(look(r) && says(r, "serving") == CODE_ServingCertificatePending && findings(r) == 1);
	ok(summary_has(r, "serving", "TLS alert internal_error 26 min after kubelet's start"));
	ok(fake_find(r, "serving", NULL)->layer == LAYER_IDENTITY);
	/* it serves one that we cannot verify: as always */
	r->now += 60 * S;
	world.tls = (struct http_reply){.outcome = OUTCOME_UNTRUSTED, .stage = HTTP_TLS};
	ok(look(r) && findings(r) == 0);
	world.tls.outcome = OUTCOME_FAILED;
	put("/var/lib/kubelet/pki/kubelet-server-current.pem", "x");
	r->now += 60 * S;
	ok(look(r) && findings(r) == 0 && world.tls_asked == 0);
}

/* More lines than one reading takes. */
static void test_many(struct run *r)
{
	fresh(r);
	for (size_t i = 0; i < LINES_MAX; i++)
		say(r->now - S, "\"Failed to update lease\" err=\"x\"");
	ok(look(r) && world.read == LINES_MAX);
	ok(evidence_number(fake_find(r, "api", NULL), "seen", 0) == LINES_MAX);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

int main(void)
{
	struct run *r = calloc(1, sizeof(*r));
	struct files *f = NULL;

	ok(r && mkdtemp(base) && files_new(&f, base) == 0);
	if (!r || !f)
		return done();
	r->files = f;
	put("/var/lib/kubelet/pki/kubelet-server-current.pem", "x");
	test_sound(r);
	test_inactive(r);
	test_looping(r);
	test_config(r);
	test_healthz(r);
	test_pleg(r);
	test_watches(r);
	test_denied(r);
	test_names(r);
	test_api(r);
	test_serving(r);
	test_many(r);
	fake_free(r);
	free(r);
	files_free(f);
	(void) nftw(base, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	return done();
}
