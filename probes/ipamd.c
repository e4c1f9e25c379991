/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/socket.h>

#include "probe.h"

#define AGENT      "aws-k8s-agent"
#define POD_LOGS   "/var/log/pods"
#define POD_PREFIX "kube-system_aws-node-"
#define BUNDLES    "/run/containerd/io.containerd.runtime.v2.task/k8s.io"
#define HEALTH     "/grpc.health.v1.Health/Check"
#define CONTAINERD "/run/containerd/containerd.sock"

#define ANSWER    USEC_PER_SEC
#define REFRESH   (60 * USEC_PER_SEC) /* of introspection while ipamd serves */
#define START     (90 * USEC_PER_SEC) /* facts/eks-node.md 3.4: some API calls wait 10 s, 12 times */
#define SHORT     (60 * USEC_PER_SEC)  /* a life that did not come to serve */
#define RECENT    (900 * USEC_PER_SEC) /* three lives within it are a loop: back-off ends at 5 min */
#define SCHEDULE  (120 * USEC_PER_SEC) /* from registration until aws-node's image is there */
#define REPLACE   (300 * USEC_PER_SEC) /* an upgrade stops one pod and then starts another */
#define BOOTED    (300 * USEC_PER_SEC) /* a node that was rebooted has its pods again by then */
#define SHOWN     (900 * USEC_PER_SEC) /* so long a change is told */
#define OFTEN     3                    /* restarts below this are nothing */
#define HOLD      (2 * USEC_PER_SEC)   /* a pod that starts rewrites the checkpoint, and wakes us */
#define TICK      (USEC_PER_SEC / 100) /* USER_HZ, the same on all of Linux */
#define LOG       "/var/log/aws-routed-eni/ipamd.log"
#define CONFLIST  "/etc/cni/net.d/10-aws.conflist"
#define ENIS_PATH "/v1/enis"

enum {
	GRPC_PORT = 50051, /* up to 1.22 */
	INTROSPECTION_PORT = 61679,
	METRICS_PORT = 61678,
	POLICY_HEALTH_PORT = 8163,
	BODY_MAX = 4 << 20,
	CONFIG_MAX = 1 << 20,
	LOG_END = 65536,
	SETTINGS_MAX = 64,
	RISES = 3,
	CLOCK_SLACK_S = 60, /* of the wall clock, between a boot and the one before */
};

static const char *const run_dirs[] = {"/var/run/aws-node", "/run/aws-node"};

/* A container of the pod, by the numbers of its log files: N.log is that of its Nth restart. */
struct container {
	int restarts;         /* -1: no log */
	int64_t previous_end; /* wall clock, s: last word of the life before */
	usec_t rises[RISES];  /* CLOCK_BOOTTIME at which restarts was seen to rise, newest first */
	int seen;             /* restarts at the last look */
};

struct memory {
	int pid;
	uint64_t began; /* of the process, in ticks since boot */
	usec_t gone_since, registered_since, seen_at, served_at, asked_at, enis_at;
	bool settings_read; /* of this process */
	char before[SETTINGS_MAX], after[SETTINGS_MAX];
	usec_t changed_at;
	struct container node, agent;
	char cursor[JOURNAL_CURSOR_MAX];
	usec_t killed_at[RISES]; /* by the kubelet, for its probe */
	usec_t oom_at;
};

enum question { SOCKET, PORT, INTROSPECTION, METRICS, POLICY, IDENTITY, QUESTIONS };

/* Of the runtime: which container ended last, and how. */
struct runtime_question {
	bool asked, known;
	bool alpha; /* it serves v1alpha2 only */
	const char *container;
	uint8_t message[192];
	char id[CRI_ID_MAX];
	struct cri_exit exit;
};

struct state {
	unsigned open; /* questions without an answer yet */
	bool asked[QUESTIONS];
	enum outcome answer[QUESTIONS];
	int code[QUESTIONS];
	bool no_proc; /* nothing can be told of processes */
	size_t pods;  /* directories of aws-node's logs */
	char pod[NAME_BYTES_MAX];
	char path[512];
	struct names names;
	struct runtime_question runtime;
	bool journal; /* was read */
	bool serving;
	usec_t waited;
};

static void finish(struct run *r);

static void answered(struct run *r)
{
	struct state *s = run_state(r);

	if (--s->open == 0)
		finish(r); /* r is gone */
}

/* ---- the process ---- */

static bool is_number(const char *s)
{
	return *s && s[strspn(s, "0123456789")] == 0;
}

/* Field 22 of stat; the name in parentheses may hold anything. */
static uint64_t start_of(const struct files *files, const char *pid)
{
	char path[64], line[1024];
	const char *p;

	(void) text_format(path, sizeof(path), "/proc/%s/stat", pid);
	if (file_read_line(files, path, line, sizeof(line)) < 0)
		return 0;
	p = strrchr(line, ')');
	for (int field = 2; p && field < 22; field++) {
		p = strchr(p, ' ');
		p += p != NULL;
	}
	return p ? strtoul(p, NULL, 10) : 0;
}

static bool is_agent(const struct files *files, const char *pid, bool *ret_denied)
{
	char path[64], comm[32];
	int r;

	(void) text_format(path, sizeof(path), "/proc/%s/comm", pid);
	r = file_read_line(files, path, comm, sizeof(comm));
	*ret_denied = r == -EPERM || r == -EACCES;
	return r == 0 && strcmp(comm, AGENT) == 0;
}

struct scan {
	const struct files *files;
	bool init, denied; /* under hidepid=: no pid 1 to be seen, or not its name */
	int pid;
	uint64_t began;
};

/* There is one; of several (one that ends while another begins) the youngest counts. */
static bool scan_process(const char *name, void *userdata)
{
	struct scan *s = userdata;
	uint64_t pid, began;
	bool agent, denied;

	if (!is_number(name) || text_to_uint(name, 1, 1 << 30, &pid) < 0)
		return true;
	agent = is_agent(s->files, name, &denied);
	s->init = s->init || pid == 1;
	s->denied = s->denied || denied;
	if (!agent)
		return true;
	began = start_of(s->files, name);
	if (!s->pid || began >= s->began) {
		s->pid = (int) pid;
		s->began = began;
	}
	return true;
}

/* Nobody else's name is looked for while the one we know still lives. */
static void find_process(struct run *r)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	struct scan scan = {.files = run_files(r)};
	char pid[16];
	bool denied;

	(void) text_format(pid, sizeof(pid), "%d", m->pid);
	if (m->pid && is_agent(scan.files, pid, &denied) && start_of(scan.files, pid) == m->began) {
		m->seen_at = run_now(r);
		return;
	}
	(void) file_each(scan.files, "/proc", scan_process, &scan);
	s->no_proc = !scan.init || scan.denied;
	if (scan.pid) {
		m->settings_read = false;
		m->seen_at = run_now(r);
		m->gone_since = 0;
	} else if (!m->gone_since) {
		m->gone_since = run_now(r);
	}
	m->pid = scan.pid;
	m->began = scan.began;
}

/* For so long the process has been there, by the node's uptime. */
static usec_t age(const struct run *r, const struct memory *m)
{
	usec_t began = m->began * TICK;

	return m->pid && run_uptime(r) > began ? run_uptime(r) - began : 0;
}

/* ---- its settings ---- */

/* The container's id: the last 64 hexadecimal digits in the path of its cgroup. */
static bool container_of(struct run *r, int pid, char ret[static 65])
{
	struct state *s = run_state(r);
	const char *text;
	size_t len;

	(void) text_format(s->path, sizeof(s->path), "/proc/%d/cgroup", pid);
	if (run_read(r, s->path, 65536, &text, &len) < 0)
		return false;
	ret[0] = 0;
	while (*text) {
		size_t n = strspn(text, "0123456789abcdef");

		if (n == 64) {
			memcpy(ret, text, n);
			ret[n] = 0;
		}
		text += n;
		text += strcspn(text, "0123456789abcdef");
	}
	return ret[0] != 0;
}

/* Of the bundle, which needs no right over the process; its environment in /proc needs that of
 * ptrace(2), which the daemon does not have. */
static bool read_container(struct run *r, int pid, struct oci_container *ret)
{
	struct state *s = run_state(r);
	char id[65], *text = NULL;
	size_t len = 0;
	int e = -ENOENT;

	if (container_of(r, pid, id)) {
		(void) text_format(s->path, sizeof(s->path), BUNDLES "/%s/config.json", id);
		e = file_read(run_files(r), s->path, CONFIG_MAX, &text, &len);
	}
	if (e == 0 && oci_config_parse(text, len, ret) < 0)
		ret->settings.known = false;
	if (e < 0 || !ret->settings.known) {
		if (text)
			explicit_bzero(text, len);
		free(text);
		text = NULL;
		(void) text_format(s->path, sizeof(s->path), "/proc/%d/environ", pid);
		e = file_read(run_files(r), s->path, CONFIG_MAX, &text, &len);
		if (e == 0)
			ipamd_environ_parse(text, len, ret);
	}
	if (text) /* it may hold what is none of our business */
		explicit_bzero(text, len);
	free(text);
	return e == 0 && ret->settings.known;
}

static void target_text(char *dst, size_t size, const char *name, int value)
{
	if (value >= 0)
		(void) text_append(dst, size, " %s=%d", name, value);
}

static void settings_text(char dst[static SETTINGS_MAX], const struct oci_container *c)
{
	const struct cni_settings *n = &c->settings;

	(void) text_format(dst, SETTINGS_MAX, "%.20s", c->version[0] ? c->version : "v?");
	(void) text_append(dst, SETTINGS_MAX, "%s%s%s%s", n->prefix ? " PD" : "",
	                   n->custom ? " CUSTOM" : "", n->pod_eni ? " PODENI" : "",
	                   n->ipv6 ? " IPv6" : "");
	target_text(dst, SETTINGS_MAX, "ENI", n->warm_eni);
	target_text(dst, SETTINGS_MAX, "IP", n->warm_ip);
	target_text(dst, SETTINGS_MAX, "MINIP", n->minimum_ip);
	target_text(dst, SETTINGS_MAX, "PREFIX", n->warm_prefix);
}

static void read_settings(struct run *r)
{
	struct memory *m = run_memory(r);
	struct node *n = run_learn(r);
	struct oci_container c = {0};
	char text[SETTINGS_MAX];
	const char *had;

	if (!m->pid || m->settings_read || !read_container(r, m->pid, &c))
		return;
	m->settings_read = true;
	n->cni = c.settings;
	if (c.version[0])
		(void) text_format(n->cni_version, sizeof(n->cni_version), "%s", c.version);
	settings_text(text, &c);
	had = run_recall(r, "ipamd.settings");
	if (had && strcmp(had, text) != 0) {
		(void) text_format(m->before, sizeof(m->before), "%s", had);
		(void) text_format(m->after, sizeof(m->after), "%s", text);
		m->changed_at = run_now(r);
	}
	run_remember(r, "ipamd.settings", text);
}

/* ---- its containers' restarts ---- */

struct logs {
	uint64_t last;
	bool any;
};

/* "17.log", and not "17.log.20260820-100000.gz" */
static bool scan_log(const char *name, void *userdata)
{
	struct logs *l = userdata;
	size_t n = strspn(name, "0123456789");
	char digits[12];
	uint64_t number;

	if (n == 0 || n >= sizeof(digits) || strcmp(name + n, ".log") != 0)
		return true;
	memcpy(digits, name, n);
	digits[n] = 0;
	if (text_to_uint(digits, 0, 1 << 30, &number) == 0 && (!l->any || number > l->last)) {
		l->last = number;
		l->any = true;
	}
	return true;
}

static void count_restarts(struct run *r, struct container *c, const char *name)
{
	struct state *s = run_state(r);
	struct logs l = {0};
	struct stat st;

	(void) text_format(s->path, sizeof(s->path), POD_LOGS "/%s/%s", s->pod, name);
	(void) file_each(run_files(r), s->path, scan_log, &l);
	c->restarts = l.any ? (int) l.last : -1;
	c->previous_end = 0;
	if (c->restarts > 0) {
		(void) text_format(s->path, sizeof(s->path), POD_LOGS "/%s/%s/%d.log", s->pod, name,
		                   c->restarts - 1);
		if (file_stat(run_files(r), s->path, &st) == 0)
			c->previous_end = st.st_mtim.tv_sec;
	}
	if (c->restarts > c->seen) {
		memmove(&c->rises[1], &c->rises[0], sizeof(c->rises) - sizeof(c->rises[0]));
		c->rises[0] =
			c->seen >= 0 ? run_now(r) : 0; /* what was before us is not seen to rise */
	}
	c->seen = c->restarts;
}

struct pods {
	struct run *run;
	struct state *state;
	int64_t newest;
};

/* kubelet's directory of a pod: namespace_name_uid. The youngest counts: the one of before an
 * upgrade stays for a while. */
static bool scan_pod(const char *name, void *userdata)
{
	struct pods *p = userdata;
	struct state *s = p->state;
	struct stat st;

	if (strncmp(name, POD_PREFIX, strlen(POD_PREFIX)) != 0 || strlen(name) >= sizeof(s->pod))
		return true;
	s->pods++;
	(void) text_format(s->path, sizeof(s->path), POD_LOGS "/%s", name);
	if (file_stat(run_files(p->run), s->path, &st) < 0 || st.st_mtim.tv_sec < p->newest)
		return true;
	p->newest = st.st_mtim.tv_sec;
	memcpy(s->pod, name, strlen(name) + 1);
	return true;
}

static void read_restarts(struct run *r)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	struct pods p = {.run = r, .state = s};

	m->node.restarts = m->agent.restarts = -1;
	(void) file_each(run_files(r), POD_LOGS, scan_pod, &p);
	if (!s->pod[0])
		return;
	count_restarts(r, &m->node, "aws-node");
	count_restarts(r, &m->agent, "aws-eks-nodeagent");
}

/* The life before this one ended a moment ago, by the wall clock of its log. */
static bool ended_lately(const struct run *r, const struct container *c)
{
	int64_t now = (int64_t) (run_realtime(r) / USEC_PER_SEC);

	return c->previous_end > 0 && now - c->previous_end < (int64_t) (RECENT / USEC_PER_SEC) &&
	       c->previous_end - now < 60;
}

static bool rises_often(const struct run *r, const struct container *c)
{
	return c->rises[1] && run_now(r) - c->rises[1] < 2 * RECENT;
}

/* ---- questions ---- */

static void on_grpc(struct run *r, const struct grpc_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);

	s->answer[SOCKET] = reply->outcome;
	s->code[SOCKET] = reply->code;
	answered(r);
}

/* A gRPC server turns our HTTP/1.1 away in its own way: that the connection stood is the answer.
 * What the kernel accepts for a server that hangs is none. */
static enum outcome port_outcome(const struct http_reply *reply)
{
	bool spoke = reply->stage > HTTP_TLS && reply->outcome != OUTCOME_TIMEOUT &&
	             reply->outcome != OUTCOME_UNKNOWN;

	return spoke ? OUTCOME_OK : reply->outcome;
}

static void take_enis(struct run *r, const struct http_reply *reply)
{
	_cleanup_(freep) struct ipamd_view *v = malloc(sizeof(*v));
	struct memory *m = run_memory(r);

	if (!v || reply->outcome != OUTCOME_OK || reply->code != 200 ||
	    ipamd_enis_parse(reply->body, reply->body_len, run_realtime(r), v) < 0)
		return;
	v->at = m->enis_at = run_now(r);
	run_learn(r)->ipamd = *v;
}

static void on_http(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);

	s->answer[tag] = tag == PORT ? port_outcome(reply) : reply->outcome;
	s->code[tag] = reply->code;
	if (tag == INTROSPECTION)
		take_enis(r, reply);
	answered(r);
}

static void ask_http(struct run *r, enum question q, const char *address, uint16_t port,
                     const char *path)
{
	struct state *s = run_state(r);
	struct http_request rq = {
		.method = "GET",
		.scheme = "http",
		.host = address,
		.port = port,
		.path = path,
		.connect_timeout = ANSWER,
		.timeout = ANSWER,
		.body_max = BODY_MAX,
	};

	if (address_parse(&rq.address, address) < 0)
		return;
	s->asked[q] = true;
	s->answer[q] = OUTCOME_UNKNOWN;
	if (run_http(r, &rq, on_http, q) == 0)
		s->open++;
}

static const char *find_socket(struct run *r)
{
	struct state *s = run_state(r);
	struct stat st;

	for (size_t i = 0; i < ELEMENTS(run_dirs); i++) {
		(void) text_format(s->path, sizeof(s->path), "%s/ipamd.sock", run_dirs[i]);
		if (file_stat(run_files(r), s->path, &st) == 0 && S_ISSOCK(st.st_mode))
			return s->path;
	}
	return NULL;
}

static bool served_lately(const struct run *r, const struct memory *m)
{
	return m->served_at && run_now(r) - m->served_at <= 2 * REFRESH;
}

/* Cheap ways first; the long answer only now and then while all is well. */
static void ask(struct run *r)
{
	static const uint8_t nothing[1] = {0};
	const struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	const char *socket = find_socket(r);

	if (socket) {
		s->asked[SOCKET] = true;
		s->answer[SOCKET] = OUTCOME_UNKNOWN;
		if (run_grpc(r, socket, HEALTH, nothing, 0, ANSWER, on_grpc, 0) == 0)
			s->open++;
	} else {
		ask_http(r, PORT, "127.0.0.1", GRPC_PORT, "/");
	}
	if (!served_lately(r, m) || !m->enis_at || run_now(r) - m->enis_at >= REFRESH)
		ask_http(r, INTROSPECTION, "127.0.0.1", INTROSPECTION_PORT, ENIS_PATH);
	else if (socket) /* where we may not use the socket this is what answers */
		ask_http(r, METRICS, "127.0.0.1", METRICS_PORT, "/");
	if (m->agent.restarts >= OFTEN)
		ask_http(r, POLICY, "127.0.0.1", POLICY_HEALTH_PORT, "/");
	if (run_node(r)->cni.pod_identity && !served_lately(r, m))
		ask_http(r, IDENTITY, "169.254.170.23", 80, "/");
}

/* Bound and listening, by the kernel's list, which everybody may read. */
static bool listens(struct run *r)
{
	const char *text, *line;
	size_t len;

	if (run_read(r, "/proc/net/unix", 1 << 20, &text, &len) < 0)
		return false;
	for (line = strstr(text, "/aws-node/ipamd.sock"); line;
	     line = strstr(line + 1, "/aws-node/ipamd.sock")) {
		const char *from = line;

		while (from > text && from[-1] != '\n')
			from--;
		/* Num RefCount Protocol Flags: __SO_ACCEPTCON */
		if (memmem(from, (size_t) (line - from), " 00010000 ", 10))
			return true;
	}
	return false;
}

static bool serves(struct run *r)
{
	const struct state *s = run_state(r);
	bool any = false;

	for (int q = SOCKET; q <= METRICS; q++)
		any = any || (s->asked[q] && s->answer[q] == OUTCOME_OK);
	if (!any && s->asked[SOCKET] &&
	    (s->answer[SOCKET] == OUTCOME_DENIED || s->answer[SOCKET] == OUTCOME_UNKNOWN))
		any = listens(r);
	return any;
}

/* How it does not serve: the way that says most. */
static enum outcome refusal(const struct state *s, int *ret_code)
{
	enum question q = s->asked[SOCKET] && s->answer[SOCKET] != OUTCOME_DENIED &&
	                                  s->answer[SOCKET] != OUTCOME_UNKNOWN
	                          ? SOCKET
	                  : s->asked[PORT] ? PORT
	                                   : INTROSPECTION;
	enum outcome o = s->asked[q] ? s->answer[q] : OUTCOME_UNKNOWN;

	*ret_code = s->code[q];
	if (o == OUTCOME_ABSENT) {
		*ret_code = ECONNREFUSED;
		return OUTCOME_REFUSED;
	}
	return o;
}

/* ---- why it dies ---- */

static void on_line(struct run *r, const struct journal_entry *e, uintptr_t tag)
{
	struct memory *m = run_memory(r);
	usec_t at = run_from_monotonic(r, e->at);
	const char *t = e->message;

	if (strstr(t, AGENT) && (strcasestr(t, "oom") || strstr(t, "Out of memory"))) {
		m->oom_at = at;
	} else if (strstr(t, "aws-node") && strstr(t, "iveness") &&
	           !strstr(t, "aws-eks-nodeagent") &&
	           (strstr(t, "failed liveness probe") || strstr(t, "Probe failed"))) {
		memmove(&m->killed_at[1], &m->killed_at[0],
		        sizeof(m->killed_at) - sizeof(m->killed_at[0]));
		m->killed_at[0] = at;
	}
}

static void observe(struct run *r);

static void on_lines(struct run *r, const struct journal_end *e, uintptr_t tag)
{
	struct state *s = run_state(r);

	s->journal = e->error == 0;
	observe(r);
	run_end(r);
}

/* Restarts that follow one another while it does not come to serve. */
static bool is_looping(const struct run *r, const struct memory *m)
{
	const struct container *c = &m->node;

	if (rises_often(r, c))
		return !m->pid || age(r, m) < RECENT;
	return c->restarts >= OFTEN && ended_lately(r, c) && (!m->pid || age(r, m) >= SHORT);
}

static bool log_error(struct run *r, char *ret, size_t size)
{
	static const char gives_up[] = "Initialization failure: ";
	_cleanup_(freep) char *text = NULL;
	size_t len, n = sizeof(gives_up) - 1;

	if (file_read_end(run_files(r), LOG, LOG_END, &text, &len) < 0 ||
	    !ipamd_log_error(text, len, ret, size))
		return false;
	if (strncmp(ret, gives_up, n) == 0)
		memmove(ret, ret + n, strlen(ret + n) + 1);
	return true;
}

/* Of the periods in which its cgroup had work, those in which it was held back; -1 not known. */
static int throttled_percent(struct run *r)
{
	const struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	unsigned long periods = 0, throttled = 0;
	const char *text, *at;
	char group[256];
	size_t len;

	if (!m->pid)
		return -1;
	(void) text_format(s->path, sizeof(s->path), "/proc/%d/cgroup", m->pid);
	if (run_read(r, s->path, 65536, &text, &len) < 0 || strncmp(text, "0::/", 4) != 0)
		return -1;
	(void) text_format(group, sizeof(group), "%.*s", (int) strcspn(text + 3, "\n"), text + 3);
	(void) text_format(s->path, sizeof(s->path), "/sys/fs/cgroup%s/cpu.stat", group);
	if (run_read(r, s->path, 4096, &text, &len) < 0)
		return -1;
	at = strstr(text, "nr_periods ");
	periods = at ? strtoul(at + 11, NULL, 10) : 0;
	at = strstr(text, "nr_throttled ");
	throttled = at ? strtoul(at + 13, NULL, 10) : 0;
	return periods && throttled <= periods ? (int) (throttled * 100 / periods) : -1;
}

static void observe_exit(const struct state *s, struct observation *o)
{
	const struct cri_exit *e = &s->runtime.exit;

	if (!s->runtime.known)
		return;
	observation_number(o, "exit_code", e->code);
	if (e->reason[0])
		observation_text(o, "exit_reason", "%s", e->reason);
}

static void observe_killed(struct run *r)
{
	const struct memory *m = run_memory(r);
	const struct state *s = run_state(r);
	usec_t last = m->killed_at[RISES - 1];
	struct observation *o;
	int throttled;

	/* failures of three looks at least, all of the lives that are counted */
	if (!s->journal || !last || run_now(r) - last > 2 * RECENT ||
	    (m->oom_at && run_now(r) - m->oom_at < 2 * RECENT) ||
	    strcmp(s->runtime.exit.reason, "OOMKilled") == 0)
		return;
	o = run_observe(r, LAYER_CNI, "probe", "aws-node", OUTCOME_FAILED, 0);
	observation_number(o, "restarts", m->node.restarts);
	observe_exit(s, o);
	throttled = throttled_percent(r);
	if (throttled >= 0)
		observation_number(o, "throttled_percent", throttled);
	observation_detail(o, "killed by its liveness probe, no error in ipamd.log");
}

static void observe_loop(struct run *r)
{
	const struct memory *m = run_memory(r);
	const struct state *s = run_state(r);
	struct observation *o;
	char error[96];
	bool says;

	says = log_error(r, error, sizeof(error));
	o = run_observe(r, LAYER_CNI, "container", "aws-node", OUTCOME_FAILED, 0);
	observation_number(o, "restarts", m->node.restarts);
	observe_exit(s, o);
	if (m->pid)
		observation_number(o, "alive_s", (int64_t) (age(r, m) / USEC_PER_SEC));
	if (says)
		observation_text(o, "error", "%s", error);
	observation_detail(o, "aws-node restarted %d times and does not come to serve",
	                   m->node.restarts);
	if (!says)
		observe_killed(r);
}

/* ---- the node agent of network policies ---- */

/* -1: not known */
static int has_bpffs(struct run *r)
{
	const char *text;
	size_t len;

	if (run_read(r, "/proc/self/mountinfo", 1 << 20, &text, &len) < 0)
		return -1;
	for (const char *at = strstr(text, " /sys/fs/bpf "); at;
	     at = strstr(at + 1, " /sys/fs/bpf ")) {
		const char *type = strstr(at, " - "), *end = strchr(at, '\n');

		if (type && (!end || type < end) && strncmp(type, " - bpf ", 7) == 0)
			return 1;
	}
	return 0;
}

static bool agent_fails(struct run *r)
{
	const struct container *c = &((const struct memory *) run_memory(r))->agent;
	const struct state *s = run_state(r);

	return c->restarts >= OFTEN && s->asked[POLICY] && s->answer[POLICY] != OUTCOME_OK &&
	       s->answer[POLICY] != OUTCOME_UNKNOWN && (ended_lately(r, c) || rises_often(r, c));
}

static void observe_agent(struct run *r)
{
	const struct memory *m = run_memory(r);
	const struct state *s = run_state(r);
	const struct container *c = &m->agent;
	bool failing = agent_fails(r);
	struct observation *o;
	int bpffs;

	if (c->restarts < 0)
		return;
	o = run_observe(r, LAYER_CNI, "nodeagent", "aws-eks-nodeagent",
	                failing ? OUTCOME_FAILED : OUTCOME_OK, 0);
	observation_number(o, "restarts", c->restarts);
	if (!failing) {
		observation_detail(o, "restarted %d times", c->restarts);
		return;
	}
	if (s->runtime.container && strcmp(s->runtime.container, "aws-eks-nodeagent") == 0)
		observe_exit(s, o);
	bpffs = has_bpffs(r);
	if (bpffs >= 0)
		observation_number(o, "bpffs", bpffs);
	observation_detail(o, "restarted %d times, port %d does not answer%s", c->restarts,
	                   POLICY_HEALTH_PORT, bpffs == 0 ? ", /sys/fs/bpf is no bpffs" : "");
}

/* ---- what came of it ---- */

static void observe_change(struct run *r)
{
	const struct memory *m = run_memory(r);
	struct observation *o;

	if (!m->changed_at || run_now(r) - m->changed_at > SHOWN)
		return;
	o = run_observe(r, LAYER_CNI, "changed", "", OUTCOME_FOREIGN, 0);
	observation_text(o, "before", "%s", m->before);
	observation_text(o, "after", "%s", m->after);
	observation_detail(o, "VPC CNI changed from %s to %s", m->before, m->after);
}

static void observe_identity(struct run *r)
{
	const struct state *s = run_state(r);
	struct observation *o;
	bool answers;

	if (!s->asked[IDENTITY])
		return;
	answers = s->answer[IDENTITY] == OUTCOME_OK || s->answer[IDENTITY] == OUTCOME_MALFORMED;
	o = run_observe(r, LAYER_CNI, "identity", "", answers ? OUTCOME_OK : s->answer[IDENTITY],
	                s->code[IDENTITY]);
	observation_text(o, "address", "169.254.170.23:80");
	observation_detail(o, "pod identity agent, 169.254.170.23:80");
}

static bool is_registered(struct run *r)
{
	struct memory *m = run_memory(r);

	if (run_node(r)->registered != YES && !run_node(r)->has_pods)
		return m->registered_since = 0, false;
	if (run_node(r)->registered_at)
		m->registered_since = run_node(r)->registered_at;
	else if (!m->registered_since)
		m->registered_since = run_now(r);
	return true;
}

/* The log was written a moment ago: one pod ends, the next begins. */
static bool logged_lately(const struct run *r)
{
	int64_t now = (int64_t) (run_realtime(r) / USEC_PER_SEC);
	struct stat st;

	return file_stat(run_files(r), LOG, &st) == 0 &&
	       now - st.st_mtim.tv_sec < (int64_t) (REPLACE / USEC_PER_SEC);
}

/* Of a registered node: it has been one for so long, as far as can be told. */
static bool may_be_missed(struct run *r, usec_t after)
{
	const struct memory *m = run_memory(r);
	bool known = !run_once(r) || run_node(r)->registered_at; /* a check has no past */

	return !known || run_now(r) - m->registered_since >= after;
}

static void observe_absent(struct run *r)
{
	const struct memory *m = run_memory(r);
	const struct state *s = run_state(r);
	bool registered = is_registered(r), replaced = logged_lately(r);
	usec_t wait = m->seen_at ? REPLACE : SCHEDULE;
	bool waited =
		may_be_missed(r, SCHEDULE) && (run_once(r) || run_now(r) - m->gone_since >= wait);
	bool ripe = registered && !s->no_proc && !replaced && waited;
	struct observation *o;

	/* nothing is scheduled to a node that nobody has registered */
	o = run_observe(r, LAYER_CNI, "", "",
	                ripe                       ? OUTCOME_ABSENT
	                : registered || s->no_proc ? OUTCOME_UNKNOWN
	                                           : OUTCOME_SKIPPED,
	                0);
	if (s->no_proc) {
		observation_detail(o, "cannot see processes");
	} else if (!registered) {
		observation_detail(o, "no " AGENT "; the node is not known to be registered");
	} else {
		observation_number(o, "pods", (int64_t) s->pods);
		observation_detail(o, "no " AGENT ", %s",
		                   s->pods ? "though its pod was here"
		                           : "and its pod was never here");
	}
}

static void observe_silent(struct run *r, bool looping)
{
	const struct memory *m = run_memory(r);
	bool ripe = looping || (age(r, m) >= START && !run_node(r)->hybrid);
	int code = 0;
	enum outcome outcome = refusal(run_state(r), &code);
	struct observation *o;

	o = run_observe(r, LAYER_CNI, "", "", ripe ? outcome : OUTCOME_UNKNOWN, code);
	if (m->pid)
		observation_number(o, "alive_s", (int64_t) (age(r, m) / USEC_PER_SEC));
	observation_detail(o, "%s for %llu s, nothing of it answers: %s",
	                   m->pid ? AGENT " alive" : "no " AGENT,
	                   (unsigned long long) (age(r, m) / USEC_PER_SEC), outcome_name(outcome));
}

static void observe_serving(struct run *r)
{
	const struct node *n = run_node(r);
	const struct memory *m = run_memory(r);
	struct observation *o = run_observe(r, LAYER_CNI, "", "", OUTCOME_OK, 0);

	if (n->cni_version[0])
		observation_text(o, "version", "%s", n->cni_version);
	if (m->node.restarts >= 0)
		observation_number(o, "restarts", m->node.restarts);
	if (n->ipamd.at) {
		observation_number(o, "total", n->ipamd.total);
		observation_number(o, "assigned", n->ipamd.assigned);
		observation_number(o, "cooling", n->ipamd.cooling);
	}
	observation_detail(o, "ipamd serves%s%s", n->cni_version[0] ? ", VPC CNI " : "",
	                   n->cni_version);
}

/* aws-node writes the configuration each time it has become healthy: one that is older than the
 * boot was left over from the one before, and lets the node look ready. */
static void observe_left_over(struct run *r, bool looping)
{
	const struct memory *m = run_memory(r);
	int64_t booted = (int64_t) (run_realtime(r) / USEC_PER_SEC) -
	                 (int64_t) (run_uptime(r) / USEC_PER_SEC);
	struct observation *o;
	struct stat st;
	bool ripe;

	if (m->served_at || file_stat(run_files(r), CONFLIST, &st) < 0 ||
	    st.st_mtim.tv_sec + CLOCK_SLACK_S >= booted)
		return;
	ripe = run_uptime(r) >= BOOTED && is_registered(r) && may_be_missed(r, BOOTED) &&
	       (looping || !m->pid || age(r, m) >= START);
	o = run_observe(r, LAYER_CNI, "left-over", CONFLIST,
	                ripe ? OUTCOME_EXPIRED : OUTCOME_UNKNOWN, 0);
	observation_number(o, "older_s", booted - st.st_mtim.tv_sec);
	observation_number(o, "uptime_s", (int64_t) (run_uptime(r) / USEC_PER_SEC));
	observation_detail(o, CONFLIST " is %lld s older than this boot, ipamd does not serve",
	                   (long long) (booted - st.st_mtim.tv_sec));
}

static void observe(struct run *r)
{
	const struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	struct node *n = run_learn(r);
	bool looping;

	looping = !s->serving && is_looping(r, m);
	if (s->serving)
		observe_serving(r);
	else if (m->pid || looping)
		observe_silent(r, looping);
	else
		observe_absent(r);
	n->ipamd.served_at = m->served_at;
	n->ipamd.began = m->pid ? run_now(r) - age(r, m) : 0;
	if (!s->serving)
		observe_left_over(r, looping);
	if (looping)
		observe_loop(r);
	observe_identity(r);
	observe_agent(r);
	observe_change(r);
}

/* ---- how its container ended ---- */

static bool call_runtime(struct run *r, const char *method, ssize_t len, run_grpc_t done)
{
	struct state *s = run_state(r);

	if (len < 0)
		return false;
	(void) text_format(s->path, sizeof(s->path), "/runtime.%s.RuntimeService/%s",
	                   s->runtime.alpha ? "v1alpha2" : "v1", method);
	return run_grpc(r, CONTAINERD, s->path, s->runtime.message, (size_t) len, ANSWER, done,
	                0) == 0;
}

static void on_ended(struct run *r, const struct grpc_reply *reply, uintptr_t tag)
{
	struct runtime_question *q = &((struct state *) run_state(r))->runtime;

	q->known = reply->outcome == OUTCOME_OK && reply->status == GRPC_OK &&
	           cri_exit_read(reply->message, reply->len, &q->exit) == 0;
	finish(r);
}

static bool list_containers(struct run *r);

static void on_list(struct run *r, const struct grpc_reply *reply, uintptr_t tag)
{
	struct runtime_question *q = &((struct state *) run_state(r))->runtime;

	if (reply->outcome == OUTCOME_OK && reply->status == GRPC_UNIMPLEMENTED && !q->alpha) {
		q->alpha = true;
		if (list_containers(r))
			return;
	}
	if (reply->outcome == OUTCOME_OK && reply->status == GRPC_OK &&
	    cri_newest_exited(reply->message, reply->len, q->id) == 0 &&
	    call_runtime(r, "ContainerStatus",
	                 cri_status_request(q->message, sizeof(q->message), q->id), on_ended))
		return;
	finish(r);
}

static bool list_containers(struct run *r)
{
	struct runtime_question *q = &((struct state *) run_state(r))->runtime;

	return call_runtime(r, "ListContainers",
	                    cri_list_request(q->message, sizeof(q->message), q->container),
	                    on_list);
}

/* Only of a container that ends again and again, and once a look. */
static bool asks_runtime(struct run *r, bool looping)
{
	struct runtime_question *q = &((struct state *) run_state(r))->runtime;

	q->container = looping ? "aws-node" : agent_fails(r) ? "aws-eks-nodeagent" : NULL;
	if (q->asked || !q->container)
		return false;
	q->asked = true;
	return list_containers(r);
}

static void on_step(struct run *r, uintptr_t tag)
{
	finish(r);
}

static void finish(struct run *r)
{
	static const char *const units[] = {"kubelet.service", NULL};
	const struct journal_query q = {
		.units = units, .kernel = true, .newest_only = 2 * RECENT, .entries_max = 4000};
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	bool looping;

	s->serving = s->serving || serves(r);
	looping = !s->serving && is_looping(r, m);
	if (!s->serving && !m->pid &&
	    run_awaits(r, run_node(r)->registered != CANNOT_TELL || run_node(r)->has_pods,
	               &s->waited, on_step))
		return;
	if (s->serving)
		m->served_at = run_now(r);
	if (asks_runtime(r, looping))
		return;
	if (looping && run_journal(r, &q, m->cursor, on_line, on_lines, 0) == 0)
		return;
	observe(r);
	run_end(r);
}

/* ---- whose node is it ---- */

static bool is_of(const char *name, const char *ending)
{
	size_t n = strlen(name), e = strlen(ending);

	return n > e && strcmp(name + n - e, ending) == 0;
}

/* Another CNI's configuration comes first, or only another's plugin is there. */
static const char *other_cni(struct run *r)
{
	static const char *const plugins[] = {"cilium-cni", "calico", "weave-net", "flannel",
	                                      "azure-vnet"};
	struct state *s = run_state(r);
	struct stat st;

	if (file_list(run_files(r), "/etc/cni/net.d", &s->names) == 0)
		for (size_t i = 0; i < s->names.n; i++) {
			const char *name = s->names.name[i];

			if (is_of(name, ".conflist") || is_of(name, ".conf") ||
			    is_of(name, ".json"))
				return strstr(name, "aws") ? NULL : name;
		}
	if (file_stat(run_files(r), "/opt/cni/bin/aws-cni", &st) == 0)
		return NULL;
	for (size_t i = 0; i < ELEMENTS(plugins); i++) {
		(void) text_format(s->path, sizeof(s->path), "/opt/cni/bin/%s", plugins[i]);
		if (file_stat(run_files(r), s->path, &st) == 0)
			return plugins[i];
	}
	return NULL;
}

static int skip(struct run *r, const char *why, const char *what)
{
	struct observation *o = run_observe(r, LAYER_CNI, "", "", OUTCOME_SKIPPED, 0);

	observation_detail(o, "%s%s", why, what);
	run_end(r);
	return 0;
}

static int start(struct run *r)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	const char *other = NULL;

	if (run_node(r)->hybrid)
		return skip(r, "a hybrid node has no VPC CNI", "");
	if (m->seen_at == 0 && m->node.seen == 0)
		m->node.seen = m->agent.seen = -1;
	find_process(r);
	if (!m->pid)
		other = other_cni(r);
	if (other)
		return skip(r, "this node uses another CNI: ", other);
	read_settings(r);
	read_restarts(r);
	s->serving = run_woken(r) && m->pid && m->served_at && m->served_at >= m->asked_at &&
	             run_now(r) - m->asked_at < HOLD;
	if (!s->serving) {
		m->asked_at = run_now(r);
		ask(r);
	}
	if (s->open == 0)
		finish(r);
	return 0;
}

/* ---- what it means ---- */

static void say_restarts(const struct observation *o, struct words *ret, const char *name)
{
	int64_t restarts = evidence_number(o, "restarts", -1);
	int exit_code = (int) evidence_number(o, "exit_code", -1);
	const char *meaning = cri_exit_meaning(exit_code, evidence_get_text(o, "exit_reason"));

	(void) text_format(ret->summary, sizeof(ret->summary), "%s restarts again and again", name);
	if (restarts > 0)
		(void) text_format(ret->summary, sizeof(ret->summary), "%s restarted %d times",
		                   name, (int) restarts);
	if (exit_code >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary), ", exit code %d%s%s%s",
		                   exit_code, meaning[0] ? " (" : "", meaning,
		                   meaning[0] ? ")" : "");
}

static enum code judge_container(const struct observation *o, struct words *ret)
{
	int64_t alive = evidence_number(o, "alive_s", -1);
	const char *error = evidence_get_text(o, "error");

	say_restarts(o, ret, "aws-node");
	(void) text_append(ret->summary, sizeof(ret->summary), " and does not come to serve");
	if (alive >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary), ", this time for %d s",
		                   (int) alive);
	if (error[0])
		(void) text_append(ret->summary, sizeof(ret->summary), "; ipamd: %s", error);
	return CODE_AwsNodeCrashLooping;
}

static enum code judge_killed(const struct observation *o, struct words *ret)
{
	int64_t throttled = evidence_number(o, "throttled_percent", -1);

	say_restarts(o, ret, "aws-node");
	(void) text_append(ret->summary, sizeof(ret->summary),
	                   ": killed by its liveness probe, no error in ipamd.log");
	if (throttled >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary), ", throttled %d %%",
		                   (int) throttled);
	return CODE_AwsNodeProbeKilled;
}

static enum code judge_agent(const struct observation *o, struct words *ret)
{
	int64_t one_way = evidence_number(o, "one_way", 0);

	if (evidence_number(o, "restarts", 0) > 0)
		say_restarts(o, ret, "aws-eks-nodeagent");
	else
		(void) text_format(ret->summary, sizeof(ret->summary),
		                   "aws-eks-nodeagent runs but does not work");
	if (one_way > 0)
		(void) text_append(ret->summary, sizeof(ret->summary),
		                   ", %d of %d pod links carry nothing", (int) one_way,
		                   (int) evidence_number(o, "links", 0));
	if (evidence_number(o, "bpffs", 1) == 0)
		(void) text_append(ret->summary, sizeof(ret->summary),
		                   ", /sys/fs/bpf is not a bpf file system");
	return CODE_NetworkPolicyAgentFailing;
}

static enum code judge_serving(const struct observation *o, struct words *ret)
{
	int64_t alive = evidence_number(o, "alive_s", -1), pods = evidence_number(o, "pods", -1);

	if (o->outcome == OUTCOME_ABSENT) {
		(void) text_format(ret->summary, sizeof(ret->summary),
		                   "aws-node is not running: no " AGENT " process%s",
		                   pods == 0  ? ", its pod was never on this node"
		                   : pods > 0 ? ", though its pod was here"
		                              : "");
		return CODE_AwsNodeNotRunning;
	}
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "ipamd does not serve: its socket and ports 50051 and 61679: %s",
	                   outcome_name(o->outcome));
	if (alive >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary), ", process alive for %d s",
		                   (int) alive);
	return CODE_IpamdNotServing;
}

static enum code judge_left_over(const struct observation *o, struct words *ret)
{
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "%s is %d min older than this boot, and ipamd has not served since, "
	                   "for %d min",
	                   o->subject, (int) (evidence_number(o, "older_s", 0) / 60),
	                   (int) (evidence_number(o, "uptime_s", 0) / 60));
	return CODE_CniConfigStale;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	    o->outcome == OUTCOME_UNKNOWN)
		return CODE_NONE;
	if (strcmp(o->aspect, "container") == 0)
		return judge_container(o, ret);
	if (strcmp(o->aspect, "probe") == 0)
		return judge_killed(o, ret);
	if (strcmp(o->aspect, "nodeagent") == 0)
		return judge_agent(o, ret);
	if (strcmp(o->aspect, "identity") == 0) {
		(void) text_format(
			ret->summary, sizeof(ret->summary),
			"aws-node uses pod identity, and its agent at %s does not answer: %s",
			evidence_get_text(o, "address"), outcome_name(o->outcome));
		return CODE_CniIdentityUnreachable;
	}
	if (strcmp(o->aspect, "changed") == 0) {
		(void) text_format(ret->summary, sizeof(ret->summary),
		                   "VPC CNI changed: %s, before %s", evidence_get_text(o, "after"),
		                   evidence_get_text(o, "before"));
		return CODE_CniChanged;
	}
	if (strcmp(o->aspect, "left-over") == 0)
		return judge_left_over(o, ret);
	return o->aspect[0] ? CODE_NONE : judge_serving(o, ret);
}

const struct probe probe_ipamd = {
	.name = "ipamd",
	.what = "the VPC CNI's own daemon: alive, serving, restarting, how it is set up",
	.layer = LAYER_CNI,
	.every = 15 * USEC_PER_SEC,
	.failing = 5 * USEC_PER_SEC,
	.hold = HOLD,
	.retry = 2 * USEC_PER_SEC,
	.timeout = 8 * USEC_PER_SEC,
	.after = "imds",
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.watch = {"/var/run/aws-node", "/run/aws-node"},
	.needs_ec2 = true,
	.grace = 180 * USEC_PER_SEC,
	.start = start,
	.judge = judge,
	.codes = {CODE_AwsNodeNotRunning, CODE_AwsNodeCrashLooping, CODE_AwsNodeProbeKilled,
                  CODE_IpamdNotServing, CODE_CniConfigStale, CODE_CniIdentityUnreachable,
                  CODE_NetworkPolicyAgentFailing, CODE_CniChanged},
};
