/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>

#include "probe.h"

#define CALL_TIMEOUT (2 * USEC_PER_SEC)
/* After this, a runtime that says that it is starting is one that does not come up. */
#define STARTING_MAX (30 * USEC_PER_SEC)
/* The kubelet tries a pull again after at most 5 minutes: two of them without a line is over. */
#define PULL_VALID (600 * USEC_PER_SEC)
/* An image that was there is looked for once a minute: only garbage collection takes it away. */
#define IMAGE_VALID    (55 * USEC_PER_SEC)
#define DEFAULT_SOCKET "/run/containerd/containerd.sock"
#define CONTAINERD     "containerd.service"

enum {
	PATH_BYTES = 256,
	IMAGE_BYTES = 256,
	TEXT_BYTES = 72, /* what evidence holds */
	PULLS_MAX = 8,
	LINES_MAX = 2000,     /* of the journal in one look */
	SAME_ATTEMPT_MAX = 2, /* seconds: containerd, CRI and kubelet each say a refusal once */
};

/* A pull that was refused, by the lines of the journal. */
struct pull {
	char image[IMAGE_BYTES]; /* "": a free place */
	char why[TEXT_BYTES];
	int status; /* 401 or 403; 0: it failed, and was not refused */
	bool layer; /* it is a layer that was refused, by S3: the registry let the node in */
	usec_t at;  /* CLOCK_BOOTTIME of the last line */
	int64_t seen;
};

struct memory {
	char version[TEXT_BYTES]; /* "containerd 2.2.4"; "": to be asked */
	char name[TEXT_BYTES];    /* "containerd" */
	bool alpha;               /* it serves v1alpha2 only */
	ino_t socket;             /* whose version that is */
	usec_t starting_since;    /* it says that it is not initialised; 0: it does not */
	char image[IMAGE_BYTES];  /* that was there at image_at */
	usec_t image_at;
	char cursor[JOURNAL_CURSOR_MAX];
	struct pull pulls[PULLS_MAX];
	bool ran; /* containerd, since boot: systemd forgets a unit that nothing refers to */
	char plugin_error[TEXT_BYTES]; /* why the CRI plugin was not loaded; "" not said */
};

/* What became of the CRI calls. */
struct answer {
	const char *call; /* the last one that was made: "Version" */
	enum outcome outcome;
	int code, status;
	char error[TEXT_BYTES];
	usec_t took;
	enum tristate runtime_ready, network_ready;
	char reason[TEXT_BYTES], message[TEXT_BYTES]; /* of what is not ready, the runtime first */
};

struct unit_seen {
	int error; /* of the bus; 1: not asked */
	bool never_started;
	char load[16], active[16], sub[24], result[24];
	usec_t inactive_exit; /* CLOCK_BOOTTIME */
	uint32_t restarts;
	int32_t status; /* exit status of its main process */
};

struct state {
	char socket[PATH_BYTES];
	ino_t inode;                 /* 0: no such socket */
	char image[IMAGE_BYTES];     /* the sandbox image that containerd is told to use */
	bool config_found;           /* of containerd */
	bool cri_done, journal_done; /* the two go side by side */
	int journal_error;
	struct answer answer;
	enum tristate image_here;
	struct unit_seen unit, bootstrap, puller;
	uint8_t question[IMAGE_BYTES + 32];
};

/* ---- what the runtime is told, and where it listens ---- */

static int read_for_us(void *userdata, const char *path, size_t max, const char **ret, size_t *len)
{
	return run_read(userdata, path, max, ret, len);
}

static void take_setting(const char *path, const char *value, size_t index, void *userdata)
{
	static const char *const keys[] = {
		"plugins\x1f"
		"io.containerd.cri.v1.images\x1f"
		"pinned_images\x1f"
		"sandbox",
		"plugins\x1f"
		"io.containerd.grpc.v1.cri\x1f"
		"sandbox_image",
		"plugins\x1f"
		"cri\x1f"
		"sandbox_image",
	};
	struct state *s = userdata;

	for (size_t i = 0; i < ELEMENTS(keys); i++)
		if (strcmp(path, keys[i]) == 0 && strlen(value) < sizeof(s->image))
			memcpy(s->image, value, strlen(value) + 1);
}

static bool has_socket(struct run *r, const char *path, ino_t *ret)
{
	struct stat st;

	if (file_stat(run_files(r), path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return false;
	*ret = st.st_ino;
	return true;
}

/* kubelet's containerRuntimeEndpoint, as a path; where it names none, what is known stays. */
static void on_config(const json_t *part, const char *path, void *userdata)
{
	static const char scheme[] = "unix://";
	const char *value = json_string_value(json_object_get(part, "containerRuntimeEndpoint"));
	char *socket = userdata;

	if (value && strncmp(value, scheme, sizeof(scheme) - 1) == 0)
		value += sizeof(scheme) - 1;
	if (value && strncmp(value, "/var/run/", 9) == 0)
		value += 4; /* a link on every node, not below every root */
	if (value && value[0] == '/' && strlen(value) < PATH_BYTES)
		memcpy(socket, value, strlen(value) + 1);
}

static void find_socket(struct run *r, struct state *s)
{
	static const char older[] = "/run/dockershim.sock";

	(void) text_format(s->socket, sizeof(s->socket), "%s", DEFAULT_SOCKET);
	if (has_socket(r, s->socket, &s->inode))
		return;
	(void) kubelet_config_read(run_files(r), on_config, s->socket);
	if (!has_socket(r, s->socket, &s->inode) && has_socket(r, older, &s->inode))
		memcpy(s->socket, older, sizeof(older));
}

static bool exists(struct run *r, const char *path)
{
	struct stat st;

	return file_stat(run_files(r), path, &st) == 0;
}

/* A machine that is no EC2 instance and has no sign of Kubernetes: its containerd, where it has
 * one, need not speak CRI. (Who looks at another root was told to look: that is a node.) */
static bool is_no_node(struct run *r)
{
	static const char *const signs[] = {"/etc/kubernetes", "/etc/eks", "/etc/cni/net.d",
	                                    "/var/lib/kubelet", "/usr/bin/kubelet"};

	if (run_node(r)->ec2 != EC2_NO || !files_is_host(run_files(r)))
		return false;
	for (size_t i = 0; i < ELEMENTS(signs); i++)
		if (exists(r, signs[i]))
			return false;
	return true;
}

/* "eks/pause:3.5" of "<account>.dkr.ecr.<region>.amazonaws.com/eks/pause:3.5". */
static const char *short_name(const char *image)
{
	const char *slash = strchr(image, '/');

	return slash && memchr(image, '.', (size_t) (slash - image)) ? slash + 1 : image;
}

/* And without ":latest". */
static void subject_of(char *dst, size_t size, const char *image)
{
	static const char tag[] = ":latest";
	size_t n = text_format(dst, size, "%s", short_name(image));

	if (n >= sizeof(tag) && strcmp(dst + n - (sizeof(tag) - 1), tag) == 0)
		dst[n - (sizeof(tag) - 1)] = 0;
}

/* ---- the journal: pulls that were refused ---- */

/* What stands in quotes, escaped or not, right behind the marker. */
static bool quoted(const char *line, const char *marker, char *ret, size_t size)
{
	const char *p = strstr(line, marker);
	size_t n;

	if (!p)
		return false;
	p += strlen(marker);
	p += strspn(p, "\\");
	if (*p++ != '"')
		return false;
	n = strcspn(p, "\"\\");
	if (n == 0 || n >= size)
		return false;
	memcpy(ret, p, n);
	ret[n] = 0;
	return true;
}

/* 401, 403, or 0 when the line tells of something else than a refusal. */
static int refusal(const char *line)
{
	static const struct {
		const char *text;
		int status;
	} table[] = {
		{"401 Unauthorized", 401},
		{"no basic auth credentials", 401},
		{"403 Forbidden", 403},
		{"is not authorized to perform: ecr:", 403},
		{"authorization token has expired", 403},
	};

	for (size_t i = 0; i < ELEMENTS(table); i++)
		if (strstr(line, table[i].text))
			return table[i].status;
	return 0;
}

static bool is_s3(const char *host)
{
	size_t n = strcspn(host, "/:?\" ");

	return memmem(host, n, ".s3.", 4) || memmem(host, n, ".s3-", 4);
}

/* ECR redirects to S3 for a layer. containerd 2 names whom it asked at last; 1 names the registry,
 * and quotes its message where the refusal has one: S3 has none that a registry's client reads. */
static bool is_layer(const char *line)
{
	static const char last[] = "request to https://",
			  first[] = "unexpected status code https://";
	const char *p = strstr(line, last), *blob, *end;

	if (p)
		return is_s3(p + strlen(last)) && strstr(p, ": 403 Forbidden");
	p = strstr(line, first);
	blob = p ? strstr(p, "/blobs/sha256:") : NULL;
	end = blob ? strstr(blob, ": 403 Forbidden") : NULL;
	return end && !memchr(blob, ' ', (size_t) (end - blob)) &&
	       strncmp(end + strlen(": 403 Forbidden"), " - Server message", 17) != 0;
}

/* The last part of the chain of reasons that ends with the quote: what went wrong at the bottom. */
static void last_reason(char *dst, size_t size, const char *line)
{
	static const char *const known[] = {"401 Unauthorized", "no basic auth credentials",
	                                    "403 Forbidden"};
	size_t len, from = 0;
	const char *error;

	for (size_t i = 0; i < ELEMENTS(known); i++)
		if (strstr(line, known[i])) {
			(void) text_format(dst, size, "%s", known[i]);
			return;
		}
	error = strstr(line, "error=\"");
	error = error ? error + strlen("error=\"") : line;
	len = strlen(error);
	for (size_t i = 1; i < len; i++) {
		if (error[i] == '"' && error[i - 1] != '\\')
			len = i;
		else if (error[i] == ' ' && error[i - 1] == ':')
			from = i + 1;
	}
	(void) text_clean(dst, size, error + from, len > from ? len - from : 0);
	text_hide_secrets(dst, size);
}

enum line { LINE_OTHER, LINE_PULLED, LINE_FAILED };

/* What a line of containerd or of the kubelet tells of the pull of one image. Repetitions that are
 * no attempt ("Back-off pulling") are left out. */
static enum line read_line(const char *line, struct pull *ret)
{
	static const char *const failed[] = {"failed to get sandbox image ",
	                                     "failed to pull and unpack image ",
	                                     "failed to resolve image ", "failed to pull image "};

	*ret = (struct pull){0};
	if (!strstr(line, "image") || strstr(line, "Back-off"))
		return LINE_OTHER;
	if (strstr(line, "returns image reference"))
		return quoted(line, "PullImage ", ret->image, sizeof(ret->image)) ? LINE_PULLED
		                                                                  : LINE_OTHER;
	for (size_t i = 0; i < ELEMENTS(failed); i++) {
		if (!quoted(line, failed[i], ret->image, sizeof(ret->image)))
			continue;
		ret->status = refusal(line);
		ret->layer = is_layer(line);
		last_reason(ret->why, sizeof(ret->why), line);
		return LINE_FAILED;
	}
	return LINE_OTHER;
}

static bool same_registry(const char *a, const char *b)
{
	size_t n = strcspn(a, "/"), m = strcspn(b, "/");

	return n == m && strncmp(a, b, n) == 0;
}

/* What came through proves that the node is let in by that registry: but the sandbox image is
 * pulled by containerd, that of pods with the kubelet's credentials. */
static void forget_refusals(struct memory *m, const char *image, const char *sandbox)
{
	for (size_t i = 0; i < PULLS_MAX; i++) {
		const char *other = m->pulls[i].image;

		if (strcmp(other, image) == 0 ||
		    (strcmp(other, sandbox) != 0 && same_registry(other, image)))
			m->pulls[i] = (struct pull){0};
	}
}

static void note_failure(struct memory *m, const struct pull *p, usec_t at)
{
	struct pull *place = &m->pulls[0];
	int64_t seen = 0;
	bool again;

	for (size_t i = 0; i < PULLS_MAX; i++) {
		if (strcmp(m->pulls[i].image, p->image) == 0) {
			place = &m->pulls[i];
			break;
		}
		if (m->pulls[i].at < place->at)
			place = &m->pulls[i];
	}
	again = strcmp(place->image, p->image) == 0;
	if (again)
		seen = place->seen;
	if (!again || at > place->at + SAME_ATTEMPT_MAX * USEC_PER_SEC)
		seen++;
	*place = *p;
	place->at = at;
	place->seen = seen;
}

/* Of pods' images only those of ECR are the node's own affair: what another registry asks for is in
 * the pod's pull secrets. */
static bool is_ours(const char *image, const char *sandbox)
{
	return strcmp(image, sandbox) == 0 || strstr(image, ".dkr.ecr.") ||
	       strstr(image, ".dkr-ecr.");
}

static void note_plugin(struct memory *m, const char *line)
{
	static const char *const plugins[] = {"failed to load plugin io.containerd.grpc.v1.cri",
	                                      "failed to load plugin io.containerd.cri.v1"};

	if (strstr(line, "msg=\"starting containerd\""))
		m->plugin_error[0] = 0;
	for (size_t i = 0; i < ELEMENTS(plugins); i++)
		if (strstr(line, plugins[i]))
			last_reason(m->plugin_error, sizeof(m->plugin_error), line);
}

static void on_line(struct run *r, const struct journal_entry *e, uintptr_t tag)
{
	struct memory *m = run_memory(r);
	const struct state *s = run_state(r);
	struct pull p;

	m->ran = m->ran ||
	         (strcmp(e->unit, CONTAINERD) == 0 && strcmp(e->identifier, "systemd") != 0);
	note_plugin(m, e->message);
	switch (read_line(e->message, &p)) {
	case LINE_PULLED:
		forget_refusals(m, p.image, s->image);
		break;
	case LINE_FAILED:
		if (is_ours(p.image, s->image))
			note_failure(m, &p, run_from_monotonic(r, e->at));
		break;
	default:
		break;
	}
}

/* ---- what is said of it all ---- */

static bool serves(const struct answer *a)
{
	return a->outcome == OUTCOME_OK && a->status == GRPC_OK;
}

static void tell_ready(struct run *r, const struct memory *m, const struct answer *a)
{
	bool down = a->runtime_ready == NO;
	struct observation *o =
		run_observe(r, LAYER_RUNTIME, "", "", down ? OUTCOME_FAILED : OUTCOME_OK, 0);

	observation_text(o, "version", "%s", m->version);
	observation_number(o, "status_ms", (int64_t) ((a->took + 999) / USEC_PER_MSEC));
	if (a->network_ready == NO)
		observation_number(o, "network_ready", 0);
	if (down)
		observation_number(o, "runtime_ready", 0);
	if (a->reason[0])
		observation_text(o, "reason", "%s", a->reason);
	if (a->message[0])
		observation_text(o, "message", "%s", a->message);
	observation_detail(o, "%s %s: %s%s%s", m->name, m->version,
	                   down ? "runtime not ready: " : "RuntimeReady, ",
	                   down                     ? a->message
	                   : a->network_ready == NO ? "network not ready: "
	                                            : "NetworkReady",
	                   !down && a->network_ready == NO ? a->message : "");
	if (o)
		o->took = a->took;
}

/* The socket's own failure, with what systemd says of the unit. */
static void tell_down(struct run *r, const struct state *s)
{
	const struct answer *a = &s->answer;
	const struct unit_seen *u = &s->unit;
	struct observation *o = run_observe(r, LAYER_RUNTIME, "", "", a->outcome, a->code);

	observation_text(o, "socket", "%s", s->socket);
	if (u->error == 0 && strcmp(u->load, "not-found") != 0) {
		observation_text(o, "unit_state", "%s",
		                 strcmp(u->load, "masked") == 0 ? u->load : u->active);
		observation_text(o, "unit_result", "%s", u->result);
		observation_number(o, "restarts", u->restarts);
		if (u->status)
			observation_number(o, "exit_status", u->status);
	}
	observation_detail(o, "%s: %s%s%s", s->socket,
	                   a->code ? strerrordesc_np(a->code) : outcome_name(a->outcome),
	                   u->error == 0 ? ", containerd.service " : "",
	                   u->error == 0 ? u->active : "");
}

static void tell_failed_call(struct run *r, const struct state *s, const struct memory *m)
{
	const struct answer *a = &s->answer;
	bool late = a->outcome == OUTCOME_TIMEOUT || a->status == GRPC_DEADLINE_EXCEEDED;
	struct observation *o =
		run_observe(r, LAYER_RUNTIME, "", "", late ? OUTCOME_TIMEOUT : OUTCOME_FAILED,
	                    a->status > 0 ? a->status : a->code);
	bool no_cri = a->status == GRPC_UNIMPLEMENTED;

	observation_text(o, "call", "%s", a->call);
	observation_number(o, "took_ms", (int64_t) (a->took / USEC_PER_MSEC));
	if (a->status > 0)
		observation_number(o, "grpc_status", a->status);
	if (no_cri && m->plugin_error[0])
		observation_text(o, "error", "%s", m->plugin_error);
	else if (a->error[0])
		observation_text(o, "error", "%s", a->error);
	observation_detail(o, "CRI %s: %s%s%s%s", a->call,
	                   late     ? "no answer in time"
	                   : no_cri ? "Unimplemented: "
	                            : "",
	                   late ? "" : a->error, no_cri && m->plugin_error[0] ? ": " : "",
	                   no_cri ? m->plugin_error : "");
	if (o)
		o->took = a->took;
}

static void tell_quiet(struct run *r, enum outcome outcome, const char *why)
{
	observation_detail(run_observe(r, LAYER_RUNTIME, "", "", outcome, 0), "%s", why);
	observation_detail(run_observe(r, LAYER_RUNTIME, "image", "", outcome, 0), "%s",
	                   outcome == OUTCOME_SKIPPED ? "containerd is not running"
	                                              : "cannot tell: CRI was not asked");
}

/* Why there is nothing to judge yet, or nothing to be known, although the socket does not serve;
 * NULL: it is to be judged. */
static const char *excuse(struct run *r, const struct state *s, enum outcome *ret)
{
	const struct memory *m = run_memory(r);
	const struct unit_seen *u = &s->unit;
	bool known = u->error == 0 && strcmp(u->load, "not-found") != 0;

	*ret = OUTCOME_SKIPPED;
	if (known && u->never_started && !m->ran) {
		/* not by our Node object: that outlives a reboot */
		bool over = s->bootstrap.error == 0 && !s->bootstrap.never_started &&
		            s->bootstrap.status == 0 &&
		            strcmp(s->bootstrap.result, "success") == 0 &&
		            strcmp(s->bootstrap.active, "activating") != 0;

		return over ? NULL : "bootstrap has not started containerd";
	}
	if (known)
		return strcmp(u->active, "activating") == 0 && u->restarts == 0 &&
		                       run_now(r) < u->inactive_exit + STARTING_MAX
		               ? "containerd is starting"
		               : NULL;
	/* without systemd's word: a runtime that was set up and made its directory was there */
	if (s->inode || (s->config_found && exists(r, "/run/containerd")))
		return NULL;
	if (u->error == 0)
		return "neither a containerd.service nor a trace of it";
	*ret = OUTCOME_UNKNOWN;
	return "cannot tell: no bus to ask, and no trace of containerd";
}

static void tell_status(struct run *r, struct state *s, struct memory *m)
{
	const struct answer *a = &s->answer;
	enum outcome quiet = OUTCOME_UNKNOWN;
	const char *why = NULL;

	if (serves(a)) {
		m->ran = true;
		tell_ready(r, m, a);
		return;
	}
	switch (a->outcome) {
	case OUTCOME_OK: /* an error in gRPC */
	case OUTCOME_TIMEOUT:
		if (m->starting_since && run_now(r) < m->starting_since + STARTING_MAX) {
			quiet = OUTCOME_SKIPPED;
			why = "containerd is starting: its CRI plugin is not initialised";
		}
		break;
	case OUTCOME_UNKNOWN:
		why = a->code == EOPNOTSUPP ? "cannot tell: this libcurl has no HTTP/2"
		                            : "cannot tell: the call could not be made";
		break;
	case OUTCOME_DENIED:
		why = "cannot tell: not permitted to connect to containerd's socket";
		break;
	default:
		why = excuse(r, s, &quiet);
		break;
	}
	if (why)
		tell_quiet(r, quiet, why);
	else if (a->outcome == OUTCOME_OK || a->outcome == OUTCOME_TIMEOUT)
		tell_failed_call(r, s, m);
	else
		tell_down(r, s);
	if (!why)
		observation_detail(run_observe(r, LAYER_RUNTIME, "image", "", OUTCOME_UNKNOWN, 0),
		                   "cannot tell: CRI %s",
		                   a->status == GRPC_UNIMPLEMENTED ? "is not implemented"
		                                                   : "does not answer");
}

static const struct pull *pull_of(const struct memory *m, const char *image, usec_t now)
{
	for (size_t i = 0; i < PULLS_MAX; i++)
		if (strcmp(m->pulls[i].image, image) == 0 && now < m->pulls[i].at + PULL_VALID)
			return &m->pulls[i];
	return NULL;
}

/* Absent is a fault only where it cannot come: a local image that no registry has, a pull that
 * fails, the unit that fetches it failed. */
static void tell_image(struct run *r, const struct state *s, const struct memory *m)
{
	const struct pull *p = s->image[0] ? pull_of(m, s->image, run_now(r)) : NULL;
	bool local = strncmp(s->image, "localhost/", 10) == 0;
	bool failed = s->puller.error == 0 && strcmp(s->puller.active, "failed") == 0;
	char subject[SUBJECT_MAX];
	struct observation *o;

	subject_of(subject, sizeof(subject), s->image);
	if (s->image_here != NO) {
		o = run_observe(r, LAYER_RUNTIME, "image", subject,
		                !s->image[0]           ? OUTCOME_SKIPPED
		                : s->image_here == YES ? OUTCOME_OK
		                                       : OUTCOME_UNKNOWN,
		                0);
		observation_detail(o, "%s",
		                   !s->image[0]           ? "no sandbox image is configured"
		                   : s->image_here == YES ? "sandbox image present"
		                                          : "cannot tell: ImageStatus failed");
		return;
	}
	o = run_observe(r, LAYER_RUNTIME, "image", failed ? "sandbox-image.service" : subject,
	                failed       ? OUTCOME_FAILED
	                : local || p ? OUTCOME_ABSENT
	                             : OUTCOME_SKIPPED,
	                0);
	observation_text(o, "image", "%s", subject);
	if (failed)
		observation_number(o, "status", s->puller.status);
	else if (p)
		observation_text(o, "why", "%s", p->why);
	observation_detail(o, "sandbox image %s is absent%s%s", subject,
	                   failed  ? ": sandbox-image.service failed"
	                   : local ? ", and no registry has it"
	                   : p     ? " and its pull fails: "
	                           : ", to be pulled when it is needed",
	                   !failed && !local && p ? p->why : "");
}

/* The refusal that came last; layer: of those by S3. */
static const struct pull *last_refusal(const struct memory *m, bool layer, usec_t now)
{
	const struct pull *last = NULL;

	for (size_t i = 0; i < PULLS_MAX; i++) {
		const struct pull *p = &m->pulls[i];

		if (p->image[0] && p->status && now < p->at + PULL_VALID && (p->layer || !layer) &&
		    (!last || p->at > last->at))
			last = p;
	}
	return last;
}

static void tell_refusal(struct run *r, const struct pull *p, struct observation *o)
{
	usec_t now = run_now(r), age = now > p->at ? now - p->at : 0;

	observation_number(o, "http_status", p->status);
	observation_text(o, "image", "%s", short_name(p->image));
	observation_text(o, "why", "%s", p->why);
	observation_number(o, "age_s", (int64_t) (age / USEC_PER_SEC));
	observation_number(o, "seen", p->seen);
}

/* An unsigned request to S3 is always refused: only who has a signed link to a layer can tell. */
static void tell_layers(struct run *r, const struct memory *m)
{
	const struct pull *p = last_refusal(m, true, run_now(r));
	struct observation *o;

	if (!p)
		return;
	o = run_observe(r, LAYER_ENDPOINT, "layer", "s3", OUTCOME_DENIED, p->status);
	tell_refusal(r, p, o);
	observation_detail(o, "layers of %s: %s by s3, though the registry gave its manifest",
	                   short_name(p->image), p->why);
}

static void tell_pulls(struct run *r, const struct state *s, const struct memory *m)
{
	const struct pull *worst = last_refusal(m, false, run_now(r));
	struct observation *o;

	if (!worst) {
		o = run_observe(r, LAYER_RUNTIME, "pull", "",
		                s->journal_error ? OUTCOME_UNKNOWN : OUTCOME_OK, 0);
		if (s->journal_error)
			observation_detail(o, "cannot tell: no journal to read: %s",
			                   strerrordesc_np(-s->journal_error));
		else
			observation_detail(o, "no pull of the node's own was refused");
		return;
	}
	tell_layers(r, m);
	o = run_observe(r, LAYER_RUNTIME, "pull", "ecr.dkr", OUTCOME_DENIED, worst->status);
	tell_refusal(r, worst, o);
	observation_detail(o, "pull of %s: %s", short_name(worst->image), worst->why);
}

static void finish(struct run *r)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);

	if (!s->cri_done || !s->journal_done)
		return;
	tell_status(r, s, m);
	if (serves(&s->answer))
		tell_image(r, s, m);
	tell_pulls(r, s, m);
	run_end(r);
}

static void cri_is_done(struct run *r)
{
	struct state *s = run_state(r);

	s->cri_done = true;
	finish(r);
}

static void on_lines(struct run *r, const struct journal_end *e, uintptr_t tag)
{
	struct state *s = run_state(r);

	s->journal_error = e->error;
	s->journal_done = true;
	finish(r);
}

/* ---- units, asked only once something is wrong ---- */

enum { UNIT_RUNTIME, UNIT_BOOTSTRAP, UNIT_PULLER };

static void ask_unit(struct run *r, uintptr_t which);

static struct unit_seen *seen_of(struct state *s, uintptr_t which)
{
	return which == UNIT_RUNTIME     ? &s->unit
	       : which == UNIT_BOOTSTRAP ? &s->bootstrap
	                                 : &s->puller;
}

static void on_unit(struct run *r, const struct bus_reply *reply, uintptr_t which)
{
	struct state *s = run_state(r);
	struct unit_seen *u = seen_of(s, which);
	const struct unit *unit = reply->unit;

	u->error = unit ? 0 : reply->error ? reply->error : -EIO;
	if (unit) {
		u->never_started = unit->main_start == 0 && unit->active_enter == 0 &&
		                   unit->inactive_exit == 0;
		memcpy(u->load, unit->load, sizeof(u->load));
		memcpy(u->active, unit->active, sizeof(u->active));
		memcpy(u->sub, unit->sub, sizeof(u->sub));
		memcpy(u->result, unit->result, sizeof(u->result));
		u->inactive_exit =
			unit->inactive_exit ? run_from_monotonic(r, unit->inactive_exit) : 0;
		u->restarts = unit->restarts;
		u->status = unit->main_status;
	}
	if (which == UNIT_RUNTIME && unit && u->never_started)
		ask_unit(r, UNIT_BOOTSTRAP);
	else
		cri_is_done(r);
}

static void ask_unit(struct run *r, uintptr_t which)
{
	static const char *const names[] = {[UNIT_RUNTIME] = CONTAINERD,
	                                    [UNIT_BOOTSTRAP] = "nodeadm-run.service",
	                                    [UNIT_PULLER] = "sandbox-image.service"};
	struct state *s = run_state(r);
	int e;

	e = run_unit(r, names[which], USEC_PER_SEC, on_unit, which);
	if (e < 0) {
		seen_of(s, which)->error = e;
		cri_is_done(r);
	}
}

/* ---- CRI ---- */

static int text_of(const uint8_t *message, size_t len, uint32_t field, char *ret, size_t size)
{
	struct pb_field f;
	int r;

	r = pb_find(message, len, field, 2, &f);
	if (r > 0)
		(void) text_clean(ret, size, f.bytes, f.len);
	return r;
}

/* VersionResponse: runtime_name 2, runtime_version 3. */
static int read_version(const uint8_t *message, size_t len, struct memory *m)
{
	char version[TEXT_BYTES] = "";
	int r;

	m->name[0] = 0;
	r = text_of(message, len, 2, m->name, sizeof(m->name));
	if (r >= 0)
		r = text_of(message, len, 3, version, sizeof(version));
	if (r <= 0 || !m->name[0])
		return -EBADMSG;
	(void) text_format(m->version, sizeof(m->version), "%s",
	                   version[0] == 'v' ? version + 1 : version);
	return 0;
}

/* RuntimeCondition: type 1, status 2, reason 3, message 4. */
static int read_condition(const uint8_t *message, size_t len, struct answer *a)
{
	char type[32] = "";
	struct pb_field f = {0};
	enum tristate ready;
	int r;

	r = text_of(message, len, 1, type, sizeof(type));
	if (r < 0)
		return r;
	r = pb_find(message, len, 2, 0, &f);
	if (r < 0)
		return r;
	ready = r > 0 && f.value ? YES : NO;
	if (strcmp(type, "RuntimeReady") == 0)
		a->runtime_ready = ready;
	else if (strcmp(type, "NetworkReady") == 0)
		a->network_ready = ready;
	if (ready == YES || (a->reason[0] && strcmp(type, "RuntimeReady") != 0))
		return 0;
	r = text_of(message, len, 3, a->reason, sizeof(a->reason));
	return r < 0 ? r : text_of(message, len, 4, a->message, sizeof(a->message));
}

/* StatusResponse: status 1 { conditions 1 }. */
static int read_status(const uint8_t *message, size_t len, struct answer *a)
{
	const uint8_t *p, *end;
	struct pb_field f;
	int r;

	r = pb_find(message, len, 1, 2, &f);
	if (r <= 0)
		return -EBADMSG;
	p = f.bytes;
	end = p + f.len;
	while ((r = pb_next(&p, end, &f)) > 0)
		if (f.number == 1 && f.wire == 2 && read_condition(f.bytes, f.len, a) < 0)
			return -EBADMSG;
	return r;
}

/* ImageStatusResponse: image 1, absent when there is none. */
static enum tristate read_image(const uint8_t *message, size_t len)
{
	struct pb_field f;
	int r;

	r = pb_find(message, len, 1, 2, &f);
	return r < 0 ? CANNOT_TELL : r > 0 ? YES : NO;
}

/* ImageStatusRequest: image 1 { image 1 }. The length, or -ENOSPC. */
static ssize_t image_question(uint8_t *dst, size_t size, const char *image)
{
	uint8_t spec[IMAGE_BYTES + 8];
	ssize_t n;

	n = pb_put_bytes(spec, sizeof(spec), 0, 1, image, strlen(image));
	return n < 0 ? n : pb_put_bytes(dst, size, 0, 1, spec, (size_t) n);
}

/* A call failed: whatever was known of the runtime is to be asked again. */
static void fail(struct run *r)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	const struct answer *a = &s->answer;

	m->version[0] = 0;
	m->image_at = 0;
	if (!strstr(a->error, "not initialized yet"))
		m->starting_since = 0;
	else if (m->starting_since == 0)
		m->starting_since = run_now(r);
	if (a->outcome == OUTCOME_OK || a->outcome == OUTCOME_TIMEOUT ||
	    a->outcome == OUTCOME_UNKNOWN || a->outcome == OUTCOME_DENIED)
		cri_is_done(r);
	else
		ask_unit(r, UNIT_RUNTIME);
}

static int call(struct run *r, const char *service, const char *name, size_t len, run_grpc_t done)
{
	struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	char method[96];

	(void) text_format(method, sizeof(method), "/runtime.%s.%s/%s",
	                   m->alpha ? "v1alpha2" : "v1", service, name);
	return run_grpc(r, s->socket, method, s->question, len, CALL_TIMEOUT, done, 0);
}

static void call_runtime(struct run *r, const char *name, run_grpc_t done)
{
	struct state *s = run_state(r);
	int e;

	s->answer.call = name;
	e = call(r, "RuntimeService", name, 0, done);
	if (e < 0) {
		s->answer.outcome = OUTCOME_UNKNOWN;
		s->answer.code = -e;
		fail(r);
	}
}

static bool took_answer(struct state *s, const struct grpc_reply *reply)
{
	struct answer *a = &s->answer;

	a->outcome = reply->outcome;
	a->code = reply->outcome == OUTCOME_UNKNOWN && reply->code < 0 ? -reply->code : reply->code;
	a->status = reply->status;
	a->took = reply->took;
	(void) text_format(a->error, sizeof(a->error), "%s", reply->error);
	return serves(a);
}

/* An image that cannot be asked for says nothing of the runtime. */
static void on_image(struct run *r, const struct grpc_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);

	s->image_here = reply->outcome == OUTCOME_OK && reply->status == GRPC_OK
	                        ? read_image(reply->message, reply->len)
	                        : CANNOT_TELL;
	m->image_at = s->image_here == YES ? run_now(r) : 0;
	(void) text_format(m->image, sizeof(m->image), "%s", s->image);
	if (s->image_here == NO)
		ask_unit(r, UNIT_PULLER);
	else
		cri_is_done(r);
}

static void ask_image(struct run *r)
{
	struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	bool known = m->image_at && run_now(r) < m->image_at + IMAGE_VALID &&
	             strcmp(m->image, s->image) == 0;
	ssize_t n;

	s->image_here = known ? YES : CANNOT_TELL;
	n = known || !s->image[0] ? -ENODATA
	                          : image_question(s->question, sizeof(s->question), s->image);
	if (n < 0 || call(r, "ImageService", "ImageStatus", (size_t) n, on_image) < 0)
		cri_is_done(r);
}

static void on_status(struct run *r, const struct grpc_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);

	if (took_answer(s, reply) && read_status(reply->message, reply->len, &s->answer) < 0) {
		s->answer.outcome = OUTCOME_MALFORMED;
		s->answer.status = -1;
	}
	if (!serves(&s->answer)) {
		fail(r);
		return;
	}
	m->starting_since = 0;
	ask_image(r);
}

static void ask_status(struct run *r)
{
	call_runtime(r, "Status", on_status);
}

static void ask_version(struct run *r);

static void on_version(struct run *r, const struct grpc_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);

	if (took_answer(s, reply) && read_version(reply->message, reply->len, m) < 0) {
		s->answer.outcome = OUTCOME_MALFORMED;
		s->answer.status = -1;
	}
	if (serves(&s->answer)) {
		struct node *n = run_learn(r);

		m->socket = s->inode;
		(void) text_format(n->runtime, sizeof(n->runtime), "%s://%s", m->name, m->version);
		ask_status(r);
	} else if (s->answer.status == GRPC_UNIMPLEMENTED && !m->alpha) {
		m->alpha = true;
		ask_version(r);
	} else {
		m->alpha = false;
		fail(r);
	}
}

static void ask_version(struct run *r)
{
	call_runtime(r, "Version", on_version);
}

static int start(struct run *r)
{
	static const char *const units[] = {CONTAINERD, "kubelet.service",
	                                    "snap.kubelet-eks.daemon.service", NULL};
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	struct containerd_reader from = {.files = run_files(r), .read = read_for_us, .userdata = r};
	struct journal_query q = {
		.units = units, .newest_only = PULL_VALID, .entries_max = LINES_MAX};
	struct containerd_config config;
	int e;

	if (is_no_node(r)) {
		tell_quiet(r, OUTCOME_SKIPPED, "neither EC2 nor a sign of Kubernetes");
		run_end(r);
		return 0;
	}
	s->unit.error = s->bootstrap.error = s->puller.error = 1;
	s->answer.status = -1;
	e = containerd_config_read(&from, take_setting, s, &config);
	if (e < 0)
		return e;
	s->config_found = config.found || config.unreadable;
	find_socket(r, s);
	e = run_journal(r, &q, m->cursor, on_line, on_lines, 0);
	s->journal_error = e < 0 ? e : 0;
	s->journal_done = e < 0;
	if (m->version[0] && m->socket == s->inode) {
		ask_status(r);
	} else {
		m->alpha = false;
		ask_version(r);
	}
	return 0;
}

/* ---- what it means ---- */

static enum code judge_down(const struct observation *o, struct words *ret)
{
	const char *unit = evidence_get_text(o, "unit_state");
	const char *result = evidence_get_text(o, "unit_result");
	int64_t restarts = evidence_number(o, "restarts", 0);
	char *s = ret->summary;

	s[0] = 0;
	if (unit[0])
		(void) text_append(s, SUMMARY_MAX, "containerd.service is %s", unit);
	if (unit[0] && result[0] && strcmp(result, "success") != 0)
		(void) text_append(s, SUMMARY_MAX, " (%s %d)", result,
		                   (int) evidence_number(o, "exit_status", 0));
	if (restarts > 0)
		(void) text_append(s, SUMMARY_MAX, ", restarted %d times", (int) restarts);
	(void) text_append(s, SUMMARY_MAX, "%s%s: %s", s[0] ? "; " : "",
	                   evidence_get_text(o, "socket"),
	                   o->outcome == OUTCOME_RESET       ? "connections are closed unanswered"
	                   : o->outcome == OUTCOME_MALFORMED ? "what answers is not gRPC"
	                   : o->code                         ? strerrordesc_np(o->code)
	                                                     : outcome_name(o->outcome));
	return CODE_RuntimeDown;
}

static enum code judge_status(const struct observation *o, struct words *ret)
{
	const char *error = evidence_get_text(o, "error"), *call = evidence_get_text(o, "call");
	int64_t status = evidence_number(o, "grpc_status", -1);
	char *s = ret->summary;

	if (!call[0])
		call = status == GRPC_UNIMPLEMENTED ? "Version" : "Status";
	if (o->outcome == OUTCOME_TIMEOUT) {
		(void) text_format(s, SUMMARY_MAX, "CRI %s: no answer in %.1f s", call,
		                   (double) evidence_number(o, "took_ms", 2000) / 1000);
		return CODE_RuntimeUnresponsive;
	}
	if (o->outcome != OUTCOME_FAILED)
		return judge_down(o, ret);
	if (status == GRPC_UNIMPLEMENTED) {
		(void) text_format(s, SUMMARY_MAX, "CRI %s: Unimplemented%s%s", call,
		                   error[0] ? ": " : "", error);
		return CODE_RuntimePluginMissing;
	}
	if (evidence_number(o, "runtime_ready", 1) == 0)
		(void) text_format(s, SUMMARY_MAX, "containerd says RuntimeReady=false: %s: %s",
		                   evidence_get_text(o, "reason"), evidence_get_text(o, "message"));
	else
		(void) text_format(s, SUMMARY_MAX, "CRI %s fails with code %d: %s", call,
		                   (int) status, error);
	return CODE_RuntimeUnresponsive;
}

static enum code judge_image(const struct observation *o, struct words *ret)
{
	const char *image = evidence_get_text(o, "image"), *why = evidence_get_text(o, "why");
	char *s = ret->summary;

	if (!image[0] && o->outcome == OUTCOME_ABSENT)
		image = o->subject;
	(void) text_format(s, SUMMARY_MAX, "sandbox image%s%s is absent", image[0] ? " " : "",
	                   image);
	if (o->outcome == OUTCOME_FAILED)
		(void) text_append(s, SUMMARY_MAX, ": %s failed with status %d", o->subject,
		                   (int) evidence_number(o, "status", 0));
	else if (why[0])
		(void) text_append(s, SUMMARY_MAX, " and its pull fails: %s", why);
	else if (strncmp(image, "localhost/", 10) == 0)
		(void) text_append(s, SUMMARY_MAX, ", and no registry has it");
	return CODE_SandboxImageMissing;
}

static enum code judge_pull(const struct observation *o, struct words *ret)
{
	const char *image = evidence_get_text(o, "image"), *why = evidence_get_text(o, "why");
	int64_t age = evidence_number(o, "age_s", -1), seen = evidence_number(o, "seen", 0);
	bool layer = o->layer == LAYER_ENDPOINT;
	char *s = ret->summary;

	(void) text_format(s, SUMMARY_MAX, "%s of %s: ", layer ? "layers" : "pull",
	                   image[0] ? image : "an image");
	if (layer)
		(void) text_append(s, SUMMARY_MAX,
		                   "HTTP %d by s3, though the registry gave the manifest", o->code);
	else if (why[0])
		(void) text_append(s, SUMMARY_MAX, "%s", why);
	else
		(void) text_append(s, SUMMARY_MAX, "refused with %d", o->code);
	if (age >= 0)
		(void) text_append(s, SUMMARY_MAX, ", %d s ago", (int) age);
	if (seen > 1)
		(void) text_append(s, SUMMARY_MAX, ", %d times", (int) seen);
	return layer ? CODE_EndpointDenied : CODE_ImagePullDenied;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	    o->outcome == OUTCOME_UNKNOWN)
		return CODE_NONE;
	if (o->aspect[0] == 0)
		return judge_status(o, ret);
	if (strcmp(o->aspect, "image") == 0)
		return judge_image(o, ret);
	if (strcmp(o->aspect, "pull") == 0 || strcmp(o->aspect, "layer") == 0)
		return judge_pull(o, ret);
	return CODE_NONE;
}

const struct probe probe_runtime = {
	.name = "runtime",
	.what = "whether containerd answers CRI and is ready, its sandbox image, and pulls that a "
		"registry refused",
	.layer = LAYER_RUNTIME,
	.every = 15 * USEC_PER_SEC, /* one CRI Status each */
	.failing = 5 * USEC_PER_SEC,
	.retry = USEC_PER_SEC,
	.timeout = 9 * USEC_PER_SEC,
	.after = "imds", /* whether this is EC2 decides what the absence of Kubernetes means */
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.units = {CONTAINERD},
	.grace = 120 * USEC_PER_SEC, /* bootstrap starts it, then loads its images */
	.start = start,
	.judge = judge,
	.codes = {CODE_RuntimeDown, CODE_RuntimePluginMissing, CODE_RuntimeUnresponsive,
                  CODE_SandboxImageMissing, CODE_ImagePullDenied, CODE_EndpointDenied},
};
