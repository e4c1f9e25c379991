/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime probe on pictures of a node; the real containerd is in tests/containerd.t. */
#define run_grpc           fake_grpc
#define run_unit           fake_unit
#define run_journal        fake_journal
#define run_from_monotonic fake_from_monotonic
#define probe_runtime      tested_runtime

#include "../fakerun.h"

#include "../../probes/runtime.c"

#include <ftw.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "../tap.h"

/* ---- a world ---- */

enum { ASKED_MAX = 8 };

struct cri {
	const char *method;
	enum outcome outcome;
	int code, status;
	const char *error;
	const void *message;
	size_t len;
};

static struct world {
	const struct cri *cri; /* closed by a NULL method; a method that is not there times out */
	const struct unit *units;
	size_t n_units; /* others are not found */
	int bus_error, journal_error;
	const char *const *lines; /* of the journal, closed by NULL */
	usec_t line_at;
	/* what was asked and is to be answered */
	char asked[ASKED_MAX][96];
	uint8_t question[ASKED_MAX][128];
	size_t n_asked, n_version, n_status, n_image;
	struct {
		run_grpc_t grpc;
		run_unit_t unit;
		char name[96];
		uintptr_t tag;
	} next;
	run_line_t line;
	run_lines_t lines_done;
} w;

static char base[64];

usec_t fake_from_monotonic(const struct run *r, usec_t monotonic)
{
	return monotonic;
}

int fake_grpc(struct run *r, const char *path, const char *method, const void *message, size_t len,
              usec_t timeout, run_grpc_t done_cb, uintptr_t tag)
{
	w.n_version += strstr(method, "/Version") != NULL;
	w.n_status += strstr(method, "/Status") != NULL;
	w.n_image += strstr(method, "/ImageStatus") != NULL;
	if (w.n_asked < ASKED_MAX) {
		(void) text_format(w.asked[w.n_asked], 96, "%s %s", path, method);
		if (len <= 128 && len)
			memcpy(w.question[w.n_asked], message, len);
		w.n_asked++;
	}
	w.next.grpc = done_cb;
	w.next.tag = tag;
	(void) text_format(w.next.name, sizeof(w.next.name), "%s", method);
	return 0;
}

int fake_unit(struct run *r, const char *unit, usec_t timeout, run_unit_t done_cb, uintptr_t tag)
{
	w.next.unit = done_cb;
	w.next.tag = tag;
	(void) text_format(w.next.name, sizeof(w.next.name), "%s", unit);
	return 0;
}

int fake_journal(struct run *r, const struct journal_query *q,
                 char cursor[static JOURNAL_CURSOR_MAX], run_line_t line, run_lines_t done_cb,
                 uintptr_t tag)
{
	w.line = line;
	w.lines_done = done_cb;
	return 0;
}

static void answer_grpc(struct run *r, run_grpc_t cb)
{
	struct grpc_reply reply = {.outcome = OUTCOME_TIMEOUT,
	                           .status = -1,
	                           .error = "",
	                           .message = (const uint8_t *) "",
	                           .took = 2 * USEC_PER_SEC};

	for (const struct cri *c = w.cri; c && c->method; c++) {
		if (!strstr(w.next.name, c->method))
			continue;
		reply.outcome = c->outcome;
		reply.code = c->code;
		reply.status = c->outcome == OUTCOME_OK ? c->status : -1;
		reply.error = c->error ? c->error : "";
		reply.message = c->message ? c->message : "";
		reply.len = c->len;
		reply.took = 700;
		break;
	}
	cb(r, &reply, w.next.tag);
}

static void answer_unit(struct run *r, run_unit_t cb)
{
	struct unit none = {.load = "not-found", .active = "inactive", .sub = "dead"};
	struct bus_reply reply = {.error = w.bus_error};

	if (!w.bus_error)
		reply.unit = &none;
	for (size_t i = 0; i < w.n_units && !w.bus_error; i++)
		if (strcmp(w.units[i].name, w.next.name) == 0)
			reply.unit = &w.units[i];
	cb(r, &reply, w.next.tag);
}

static void read_journal(struct run *r)
{
	struct journal_end end = {.error = w.journal_error};

	for (const char *const *l = w.lines; l && *l; l++) {
		struct journal_entry e = {.message = *l,
		                          .len = strlen(*l),
		                          .unit = "containerd.service",
		                          .identifier = "containerd",
		                          .at = w.line_at};

		w.line(r, &e, 0);
	}
	w.lines_done(r, &end, 0);
}

/* One look, as the manager would let it happen. Memory is kept. */
static enum code look(struct run *r)
{
	run_grpc_t grpc;
	run_unit_t unit;
	int e;

	w.n_asked = w.n_version = w.n_status = w.n_image = 0;
	w.lines_done = NULL;
	e = fake_run(r, &tested_runtime); /* no metadata call: only starts */
	if (e == 0 && !r->ended)
		read_journal(r);
	while (e == 0 && !r->ended) {
		grpc = w.next.grpc;
		unit = w.next.unit;
		w.next.grpc = NULL;
		w.next.unit = NULL;
		if (grpc)
			answer_grpc(r, grpc);
		else if (unit)
			answer_unit(r, unit);
		else
			break;
	}
	ok(e == 0 && r->ended);
	return fake_judge(r, &tested_runtime, "");
}

static void forget(struct run *r)
{
	fake_free(r);
}

/* ---- the node's files ---- */

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
	f = text ? fopen(full, "we") : NULL;
	if (f && (fputs(text, f) < 0 || fclose(f) != 0))
		printf("# cannot write %s\n", full);
}

static void put_socket(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	put(path, NULL); /* its directory */
	(void) text_format(a.sun_path, sizeof(a.sun_path), "%s%s", base, path);
	if (fd < 0 || bind(fd, (struct sockaddr *) &a, sizeof(a)) < 0)
		printf("# cannot bind %s\n", a.sun_path);
	close(fd);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

static void drop(const char *path)
{
	char full[512];

	(void) text_format(full, sizeof(full), "%s%s", base, path);
	(void) nftw(full, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#define SOCK "/run/containerd/containerd.sock"
#define ECR  "123456789012.dkr.ecr.us-west-2.amazonaws.com/"

static void configure(const char *image)
{
	char text[512];

	(void) text_format(text, sizeof(text),
	                   "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = "
	                   "\"%s\"\n",
	                   image);
	put("/etc/containerd/config.toml", text);
}

/* ---- what CRI says ---- */

#define MESSAGE(s) .message = (s), .len = sizeof(s) - 1

#define VERSION_1                                                                                  \
	"\x0A\x05"                                                                                 \
	"0.1.0"                                                                                    \
	"\x12\x0A"                                                                                 \
	"containerd"                                                                               \
	"\x1A\x06"                                                                                 \
	"v2.2.4"                                                                                   \
	"\x22\x02"                                                                                 \
	"v1"
/* RuntimeStatus { RuntimeReady true, NetworkReady true } */
#define READY                                                                                      \
	"\x0A\x26"                                                                                 \
	"\x0A\x10\x0A\x0CRuntimeReady\x10\x01"                                                     \
	"\x0A\x12\x0A\x0CNetworkReady\x10\x01\x1A\x00"
#define NOT_READY                                                                                  \
	"\x0A\x29"                                                                                 \
	"\x0A\x15\x0A\x0CRuntimeReady\x1A\x01r\x22\x02no"                                          \
	"\x0A\x10\x0A\x0CNetworkReady\x10\x01"
#define NO_NETWORK                                                                                 \
	"\x0A\x28"                                                                                 \
	"\x0A\x10\x0A\x0CRuntimeReady\x10\x01"                                                     \
	"\x0A\x14\x0A\x0CNetworkReady\x22\x04"                                                     \
	"cni?"

static const struct cri healthy[] = {
	{.method = "v1.RuntimeService/Version", .outcome = OUTCOME_OK, MESSAGE(VERSION_1)},
	{.method = "v1.RuntimeService/Status", .outcome = OUTCOME_OK, MESSAGE(READY)},
	{.method = "ImageStatus", .outcome = OUTCOME_OK, MESSAGE("\x0A\x02\x0A\x00")},
	{0}};

static bool is(const struct run *r, const char *aspect, enum outcome outcome)
{
	const struct observation *o = fake_find(r, aspect, NULL);

	if (o && o->outcome == outcome)
		return true;
	printf("# %s: %s %s\n", aspect, o ? outcome_name(o->outcome) : "not seen",
	       o ? o->detail : "");
	return false;
}

static void test_healthy(struct run *r)
{
	size_t statuses = 0, images = 0;

	configure("localhost/kubernetes/pause");
	put_socket(SOCK);
	w.cri = healthy;
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_OK) && is(r, "image", OUTCOME_OK) &&
	   is(r, "pull", OUTCOME_OK));
	ok(strcmp(r->node.runtime, "containerd://2.2.4") == 0);
	ok(strcmp(fake_find(r, "", NULL)->detail, "containerd 2.2.4: RuntimeReady, NetworkReady") ==
	   0);
	ok(fake_find(r, "image", "localhost/kubernetes/pause") != NULL);
	ok(w.n_version == 1 && w.n_status == 1 && w.n_image == 1);
	ok(strcmp(w.asked[2], SOCK " /runtime.v1.ImageService/ImageStatus") == 0 &&
	   memcmp(w.question[2], "\x0A\x1C\x0A\x1Alocalhost/kubernetes/pause", 30) == 0);
	/* some minutes more: one Status a look, the image once a minute, the version never */
	for (int i = 0; i < 30; i++) {
		r->now += tested_runtime.every;
		ok(look(r) == CODE_NONE && is(r, "image", OUTCOME_OK) && w.n_version == 0);
		statuses += w.n_status;
		images += w.n_image;
	}
	ok(statuses == 30 && images <= 30 * tested_runtime.every / (60 * USEC_PER_SEC) + 1);
	ok(tested_runtime.every >= 10 * USEC_PER_SEC);
	ok(tested_runtime.every >= 10 * USEC_PER_SEC);
}

static void test_status(struct run *r)
{
	struct cri c[ELEMENTS(healthy)];
	struct words words;

	memcpy(c, healthy, sizeof(c));
	w.cri = c;
	c[1] = (struct cri){"Status", OUTCOME_OK, 0, 0, NULL, MESSAGE(NO_NETWORK)};
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_OK));
	ok(evidence_number(fake_find(r, "", NULL), "network_ready", 1) == 0);
	c[1] = (struct cri){"Status", OUTCOME_OK, 0, 0, NULL, MESSAGE(NOT_READY)};
	ok(look(r) == CODE_RuntimeUnresponsive && is(r, "", OUTCOME_FAILED));
	ok(tested_runtime.judge(fake_find(r, "", NULL), &words) == CODE_RuntimeUnresponsive &&
	   strcmp(words.summary, "containerd says RuntimeReady=false: r: no") == 0);
	c[1] = (struct cri){"Status", OUTCOME_OK, 0, 0, NULL, MESSAGE("\x0A\x7F")};
	ok(look(r) == CODE_RuntimeDown && is(r, "", OUTCOME_MALFORMED));
	c[1] = (struct cri){"Status", OUTCOME_OK, 0, GRPC_DEADLINE_EXCEEDED, "late"};
	ok(look(r) == CODE_RuntimeUnresponsive && is(r, "", OUTCOME_TIMEOUT) &&
	   is(r, "image", OUTCOME_UNKNOWN));
	c[1] = (struct cri){"Status", OUTCOME_TIMEOUT};
	ok(look(r) == CODE_RuntimeUnresponsive && w.n_version == 1); /* it is asked anew */
	c[1] = (struct cri){"Status", OUTCOME_OK, 0, GRPC_UNAVAILABLE, "shutting down"};
	ok(look(r) == CODE_RuntimeUnresponsive && is(r, "", OUTCOME_FAILED));
	c[1] = (struct cri){"Status", OUTCOME_DENIED, EACCES};
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_UNKNOWN));
	c[1] = (struct cri){"Status", OUTCOME_UNKNOWN, EOPNOTSUPP};
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_UNKNOWN));
	/* starting is excused, for a while */
	c[1] = (struct cri){"Status", OUTCOME_OK, 0, 2, "server is not initialized yet"};
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_SKIPPED));
	r->now += STARTING_MAX - 1;
	ok(look(r) == CODE_NONE);
	r->now += 1;
	ok(look(r) == CODE_RuntimeUnresponsive);
	w.cri = healthy;
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_OK));
	/* one that speaks the older API only */
	c[0].method = "v1alpha2.RuntimeService/Version";
	c[1] = healthy[1];
	c[1].method = "v1alpha2.RuntimeService/Status";
	c[3] = (struct cri){0};
	w.cri = c;
	forget(r);
	ok(look(r) == CODE_RuntimeUnresponsive); /* v1 does not answer here: no reason to go on */
	{
		const struct cri old[] = {
			{"v1.RuntimeService", OUTCOME_OK, 0, GRPC_UNIMPLEMENTED, "unknown service"},
			c[0],
			c[1],
			c[2],
			{0}};

		w.cri = old;
		ok(look(r) == CODE_NONE && is(r, "", OUTCOME_OK) && is(r, "image", OUTCOME_OK));
		ok(look(r) == CODE_NONE && w.n_version == 0);
	}
	forget(r);
}

static void test_plugin(struct run *r)
{
	static const char *const lines[] = {
		"time=\"2026-11-30T21:00:00Z\" level=warning msg=\"failed to load plugin "
		"io.containerd.grpc.v1.cri\" error=\"invalid plugin config: mirrors cannot be set "
		"when config_path is provided\"",
		NULL};
	static const struct cri none[] = {
		{"/", OUTCOME_OK, 0, GRPC_UNIMPLEMENTED, "unknown service runtime.v1"}, {0}};
	struct words words;

	w.cri = none;
	ok(look(r) == CODE_RuntimePluginMissing && w.n_version == 2 && w.n_status == 0);
	w.lines = lines;
	w.line_at = r->now;
	ok(look(r) == CODE_RuntimePluginMissing);
	(void) tested_runtime.judge(fake_find(r, "", NULL), &words);
	ok(strcmp(words.summary, "CRI Version: Unimplemented: mirrors cannot be set when "
	                         "config_path is provided") == 0);
	ok(is(r, "image", OUTCOME_UNKNOWN));
	w.lines = NULL;
	forget(r);
}

static void test_unit(struct run *r)
{
	static const struct cri refused[] = {{"/", OUTCOME_REFUSED, ECONNREFUSED}, {0}};
	struct unit u[2] = {{.name = "containerd.service",
	                     .load = "loaded",
	                     .active = "inactive",
	                     .sub = "dead",
	                     .result = "success"},
	                    {.name = "nodeadm-run.service",
	                     .load = "loaded",
	                     .active = "activating",
	                     .sub = "start",
	                     .result = "success",
	                     .main_start = 5,
	                     .inactive_exit = 5}};

	w.cri = refused;
	w.units = u;
	w.n_units = 2;
	/* never started, and bootstrap is at work, waits, or failed: not the runtime's fault */
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_SKIPPED) && is(r, "image", OUTCOME_SKIPPED));
	u[1].main_start = u[1].inactive_exit = 0;
	(void) strcpy(u[1].active, "inactive");
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_SKIPPED));
	u[1].main_start = u[1].inactive_exit = 5;
	u[1].main_status = 1;
	(void) strcpy(u[1].active, "failed");
	(void) strcpy(u[1].result, "exit-code");
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_SKIPPED));
	w.n_units = 1; /* no nodeadm here */
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_SKIPPED));
	r->node.registered = YES; /* since another boot */
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_SKIPPED));
	r->node.registered = CANNOT_TELL;
	w.n_units = 2;
	u[1].main_status = 0;
	(void) strcpy(u[1].active, "inactive");
	(void) strcpy(u[1].result, "success");
	ok(look(r) == CODE_RuntimeDown); /* bootstrap is through */
	/* started, for the first time */
	u[0].inactive_exit = r->now - USEC_PER_SEC;
	(void) strcpy(u[0].active, "activating");
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_SKIPPED));
	r->now += STARTING_MAX;
	ok(look(r) == CODE_RuntimeDown);
	u[0].inactive_exit = r->now - 1;
	u[0].restarts = 3;
	ok(look(r) == CODE_RuntimeDown); /* again and again */
	(void) strcpy(u[0].active, "failed");
	(void) strcpy(u[0].result, "exit-code");
	u[0].main_status = 1;
	ok(look(r) == CODE_RuntimeDown);
	ok(strcmp(evidence_get_text(fake_find(r, "", NULL), "unit_state"), "failed") == 0);
	/* what serves is there, whatever systemd says */
	w.cri = healthy;
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_OK));
	/* without a bus, and without such a unit: the traces decide */
	w.cri = (const struct cri[]){{"/", OUTCOME_ABSENT, ENOENT}, {0}};
	drop(SOCK);
	for (int i = 0; i < 2; i++) {
		w.bus_error = i ? -ENOENT : 0;
		w.n_units = 0;
		ok(look(r) == CODE_RuntimeDown && is(r, "", OUTCOME_ABSENT));
		drop("/run/containerd");
		ok(look(r) == CODE_NONE && is(r, "", i ? OUTCOME_UNKNOWN : OUTCOME_SKIPPED));
		put("/run/containerd/x", NULL);
	}
	drop("/etc/containerd/config.toml");
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_UNKNOWN));
	w.bus_error = 0;
	put_socket(SOCK);
	forget(r);
}

static void test_socket(struct run *r)
{
	w.cri = healthy;
	drop(SOCK);
	put_socket("/run/dockershim.sock");
	ok(look(r) == CODE_NONE && strncmp(w.asked[0], "/run/dockershim.sock ", 21) == 0);
	put("/etc/kubernetes/kubelet/config.json",
	    "{\"containerRuntimeEndpoint\": \"unix:///var/run/crio/crio.sock\"}");
	put_socket("/run/crio/crio.sock");
	ok(look(r) == CODE_NONE && strncmp(w.asked[0], "/run/crio/crio.sock ", 20) == 0);
	put("/etc/kubernetes/kubelet/config.json", "{\"containerRuntimeEndpoint\": 7}");
	ok(look(r) == CODE_NONE && strncmp(w.asked[0], "/run/dockershim.sock ", 21) == 0);
	put("/etc/kubernetes/kubelet/config.json", "not JSON");
	put_socket(SOCK);
	ok(look(r) == CODE_NONE && strncmp(w.asked[0], SOCK " ", sizeof(SOCK)) == 0);
	forget(r);
}

#define FAILED_SANDBOX                                                                             \
	"time=\"2026-11-30T21:00:00Z\" level=error msg=\"RunPodSandbox for "                       \
	"&PodSandboxMetadata{Name:x,} failed, error\" error=\"failed to get sandbox image "        \
	"\\\"" ECR "eks/pause:3.5\\\": failed to pull image \\\"" ECR                              \
	"eks/pause:3.5\\\": failed to pull and unpack image \\\"" ECR "eks/pause:3.5\\\": "        \
	"failed to resolve reference \\\"" ECR "eks/pause:3.5\\\": pulling from host: "
#define FAILED(image, why)                                                                         \
	"time=\"2026-11-30T21:00:00Z\" level=error msg=\"PullImage \\\"" image                     \
	"\\\" failed\" error=\"failed to pull and unpack image \\\"" image                         \
	"\\\": failed to resolve reference: " why "\""
#define PULLED(image)                                                                              \
	"time=\"2026-11-30T21:00:09Z\" level=info msg=\"PullImage \\\"" image                      \
	"\\\" returns image reference \\\"sha256:0123\\\"\""

static void hear(struct run *r, const char *line)
{
	const char *lines[] = {line, NULL};

	w.lines = lines;
	w.line_at = r->now;
	(void) look(r);
	w.lines = NULL;
}

/* Stopped, and forgotten by systemd: its own lines tell that it ran, systemd's that it could not.
 */
static void test_forgotten(struct run *r)
{
	static const struct cri refused[] = {{"/", OUTCOME_REFUSED, ECONNREFUSED}, {0}};
	static const struct unit u = {.name = "containerd.service",
	                              .load = "loaded",
	                              .active = "inactive",
	                              .sub = "dead",
	                              .result = "success"};

	w.cri = refused;
	w.units = &u;
	w.n_units = 1;
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_SKIPPED));
	hear(r, "time=\"2026-11-30T21:00:00Z\" level=info msg=\"Stop CRI service\"");
	ok(fake_judge(r, &tested_runtime, "") == CODE_RuntimeDown);
	forget(r);
	w.cri = healthy; /* or it was seen to serve */
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_OK));
	w.cri = refused;
	ok(look(r) == CODE_RuntimeDown);
	w.n_units = 0;
	forget(r);
}

static enum code pull(struct run *r)
{
	return fake_judge(r, &tested_runtime, "pull");
}

static void test_image(struct run *r)
{
	static const struct unit failed = {.name = "sandbox-image.service",
	                                   .load = "loaded",
	                                   .active = "failed",
	                                   .result = "exit-code",
	                                   .main_status = 2,
	                                   .main_start = 1};
	struct cri c[ELEMENTS(healthy)];
	const struct observation *o;

	memcpy(c, healthy, sizeof(c));
	c[2].len = 0; /* no such image */
	w.cri = c;
	configure(ECR "eks/pause:3.5");
	ok(look(r) == CODE_NONE &&
	   is(r, "image", OUTCOME_SKIPPED)); /* it comes when it is needed */
	hear(r, FAILED_SANDBOX "unexpected status: 401 Unauthorized\"");
	ok(is(r, "image", OUTCOME_ABSENT) &&
	   fake_judge(r, &tested_runtime, "image") == CODE_SandboxImageMissing);
	o = fake_find(r, "image", "eks/pause:3.5");
	ok(o && strcmp(evidence_get_text(o, "why"), "401 Unauthorized") == 0);
	ok(is(r, "pull", OUTCOME_DENIED) && pull(r) == CODE_ImagePullDenied);
	r->now += PULL_VALID;
	ok(look(r) == CODE_NONE && is(r, "image", OUTCOME_SKIPPED) && is(r, "pull", OUTCOME_OK));
	/* not refused, and not to be had either */
	hear(r, FAILED_SANDBOX "dial tcp 10.0.1.2:443: i/o timeout\"");
	ok(is(r, "image", OUTCOME_ABSENT) && is(r, "pull", OUTCOME_OK));
	ok(strcmp(evidence_get_text(fake_find(r, "image", NULL), "why"), "i/o timeout") == 0);
	/* another image of that registry came through, by the kubelet's credentials */
	hear(r, PULLED(ECR "eks/coredns:v1"));
	ok(is(r, "image", OUTCOME_ABSENT));
	hear(r, PULLED(ECR "eks/pause:3.5"));
	ok(is(r, "image", OUTCOME_SKIPPED));
	/* the unit that fetches it */
	w.units = &failed;
	w.n_units = 1;
	(void) look(r);
	ok(is(r, "image", OUTCOME_FAILED) && fake_find(r, "image", "sandbox-image.service") &&
	   fake_judge(r, &tested_runtime, "image") == CODE_SandboxImageMissing);
	w.n_units = 0;
	configure("localhost/kubernetes/pause");
	(void) look(r);
	ok(is(r, "image", OUTCOME_ABSENT) &&
	   fake_judge(r, &tested_runtime, "image") == CODE_SandboxImageMissing);
	c[2] = (struct cri){"ImageStatus", OUTCOME_TIMEOUT};
	ok(look(r) == CODE_NONE && is(r, "", OUTCOME_OK) && is(r, "image", OUTCOME_UNKNOWN));
	configure("");
	ok(look(r) == CODE_NONE && is(r, "image", OUTCOME_SKIPPED) && w.n_image == 0);
	/* the newer form of the configuration */
	put("/etc/containerd/config.toml", "version = 3\n[plugins.'io.containerd.cri.v1.images'."
	                                   "pinned_images]\nsandbox = 'localhost/p:latest'\n");
	c[2] = healthy[2];
	ok(look(r) == CODE_NONE && fake_find(r, "image", "localhost/p"));
	forget(r);
}

#define OF_LAYER  "failed to copy: httpReadSeeker: failed open: unexpected status "
#define OF_ECR    OF_LAYER "code https://" ECR
#define BLOB      "v2/app/blobs/sha256:0a1b2c: "
#define OF_BUCKET OF_LAYER "from GET request to https://prod-us-west-2-starport-layer-bucket."
#define SIGNED    "s3.us-west-2.amazonaws.com/a/b?X-Amz-Security-Token=s3cr3t&X-Amz-Expires=3600: "

/* S3 refuses the layers of what the registry lets the node have. */
static void test_layers(struct run *r)
{
	static const struct {
		const char *line;
		bool is;
	} lines[] = {
		{FAILED(ECR "app:1", OF_ECR BLOB "403 Forbidden"), true}, /* containerd 1 */
		{FAILED(ECR "app:1", OF_BUCKET SIGNED "403 Forbidden"), true},
		{FAILED(ECR "app:1",
	                OF_ECR BLOB "403 Forbidden - Server message: denied: User is not "
	                            "authorized"),
	         false}, /* that is the registry */
		{FAILED(ECR "app:1", OF_ECR "v2/app/manifests/1: 403 Forbidden"), false},
		{FAILED(ECR "app:1", OF_LAYER "from HEAD request to https://" ECR
	                                      "v2/app/manifests/1: 403 Forbidden"),
	         false},
		{FAILED(ECR "app:1",
	                OF_LAYER "from GET request to https://" ECR BLOB "403 Forbidden"),
	         false},
		{FAILED(ECR "app:1", OF_BUCKET SIGNED "503 Slow Down"), false},
		{FAILED(ECR "app:1", OF_ECR BLOB "401 Unauthorized"), false},
	};

	for (size_t i = 0; i < ELEMENTS(lines); i++) {
		const struct observation *o;

		hear(r, lines[i].line);
		o = fake_find(r, "layer", "s3");
		ok((o && o->outcome == OUTCOME_DENIED) == lines[i].is);
		ok(!o || (o->layer == LAYER_ENDPOINT && strlen(o->detail) < 100 &&
		          fake_judge(r, &tested_runtime, "layer") == CODE_EndpointDenied));
		ok(!lines[i].is || pull(r) == CODE_ImagePullDenied);
	}
	hear(r, FAILED(ECR "app:1", OF_BUCKET SIGNED "403 Forbidden"));
	ok(fake_find(r, "layer", "s3") && !strstr(fake_find(r, "layer", "s3")->detail, "s3cr3t"));
	hear(r, PULLED(ECR "app:1"));
	ok(!fake_find(r, "layer", "s3") && pull(r) == CODE_NONE);
}

static void test_pulls(struct run *r)
{
	w.cri = healthy;
	configure(ECR "eks/pause:3.5");
	hear(r, FAILED(ECR "app:1", "unexpected status code: 403 Forbidden"));
	ok(pull(r) == CODE_ImagePullDenied && fake_find(r, "pull", "ecr.dkr")->code == 403);
	ok(strcmp(evidence_get_text(fake_find(r, "pull", NULL), "image"), "app:1") == 0);
	/* the kubelet repeats what containerd said: that is one attempt */
	hear(r, "E1130 21:00:00.1 77 log.go:32] \"PullImage from image service failed\" err=\"rpc "
	        "error: code = Unknown desc = failed to pull and unpack image \\\"" ECR
	        "app:1\\\": 403 Forbidden\" image=\"" ECR "app:1\"");
	ok(evidence_number(fake_find(r, "pull", NULL), "seen", 0) == 1);
	r->now += 20 * USEC_PER_SEC;
	hear(r, FAILED(ECR "app:1", "unexpected status code: 403 Forbidden"));
	ok(evidence_number(fake_find(r, "pull", NULL), "seen", 0) == 2);
	r->now += 20 * USEC_PER_SEC;
	hear(r, "E1130 pod_workers.go] \"Error syncing pod, skipping\" err=\"ImagePullBackOff: "
	        "Back-off pulling image \\\"" ECR "app:1\\\": 403 Forbidden\"");
	ok(evidence_number(fake_find(r, "pull", NULL), "age_s", 0) == 20);
	hear(r, PULLED("docker.io/library/busybox:1"));
	ok(pull(r) == CODE_ImagePullDenied);
	hear(r, PULLED(ECR "app:1"));
	ok(pull(r) == CODE_NONE && is(r, "pull", OUTCOME_OK));
	/* what a pod's own registry says is the pod's own affair; a broken network is no refusal */
	hear(r, FAILED("docker.io/me/private:1", "pull access denied: 401 Unauthorized"));
	ok(pull(r) == CODE_NONE);
	hear(r, FAILED(ECR "app:1", "dial tcp 10.0.1.2:443: i/o timeout"));
	ok(pull(r) == CODE_NONE);
	hear(r, FAILED(ECR "app:1", "no basic auth credentials"));
	ok(pull(r) == CODE_ImagePullDenied);
	test_layers(r);
	/* more images than there is room for: the newest stay */
	for (int i = 0; i < 3 * PULLS_MAX; i++) {
		char line[512];

		r->now += USEC_PER_SEC;
		(void) text_format(line, sizeof(line), FAILED(ECR "app:%d", "403 Forbidden"), i, i);
		hear(r, line);
	}
	ok(strcmp(evidence_get_text(fake_find(r, "pull", NULL), "image"), "app:23") == 0);
	w.journal_error = -ENOENT;
	ok(look(r) == CODE_NONE && pull(r) == CODE_ImagePullDenied); /* what was read is known */
	r->now += PULL_VALID;
	ok(look(r) == CODE_NONE && is(r, "pull", OUTCOME_UNKNOWN));
	w.journal_error = 0;
	forget(r);
}

static void test_no_node(struct run *r)
{
	struct files *host = NULL;

	ok(files_new(&host, "/") == 0);
	r->files = host;
	r->node.ec2 = EC2_NO;
	if (exists(r, "/etc/kubernetes") || exists(r, "/etc/eks") || exists(r, "/etc/cni/net.d") ||
	    exists(r, "/var/lib/kubelet") || exists(r, "/usr/bin/kubelet"))
		puts("# this machine looks like a node");
	else
		ok(look(r) == CODE_NONE && is(r, "", OUTCOME_SKIPPED) && w.n_asked == 0);
	forget(r);
	files_free(host);
}

int main(void)
{
	struct run *r = calloc(1, sizeof(*r));
	struct files *f = NULL;

	(void) snprintf(base, sizeof(base), "/tmp/nodewhy-runtime-XXXXXX");
	if (!r || !mkdtemp(base) || files_new(&f, base) < 0)
		return 1;
	r->now = 86400 * USEC_PER_SEC;
	r->files = f;
	test_healthy(r);
	test_status(r);
	test_plugin(r);
	test_unit(r);
	test_socket(r);
	test_forgotten(r);
	test_image(r);
	test_pulls(r);
	test_no_node(r);
	fake_free(r);
	free(r);
	files_free(f);
	drop("");
	return done();
}
