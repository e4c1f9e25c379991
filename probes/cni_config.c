/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>

#include "probe.h"

#define DEFAULT_CONF_DIR "/etc/cni/net.d"
#define DEFAULT_BIN_DIR  "/opt/cni/bin"

enum {
	PATH_BYTES = CONTAINERD_PATH_MAX,
	CONFIG_BYTES = 1 << 20,
	BIN_DIRS_MAX = 8,
	PLUGINS_MAX = 16,
	TYPE_BYTES = 64,
};

/* Where containerd looks. */
struct dirs {
	char conf[PATH_BYTES];
	char bin[BIN_DIRS_MAX][PATH_BYTES];
	size_t n_bin;
	struct containerd_config read; /* with an unreadable file, where it looks is a guess */
};

/* What one network configuration says. */
struct config {
	char type[PLUGINS_MAX][TYPE_BYTES];
	size_t n_types;
	bool ours;
	int line; /* of the JSON error, 0: it is JSON */
	char error[96];
};

/* From the moment at which the node is registered until aws-node, which is scheduled and pulled
 * then, is healthy: it writes the file last. */
#define AWAITED (300 * USEC_PER_SEC)

struct memory {
	bool found;         /* it was there once: its absence is none of a start */
	usec_t unjoined_at; /* when it was last seen that the node has not joined; 0: never */
};

struct state {
	struct dirs dirs;
	struct config config;
	struct names names;
	usec_t waited;
	char kubelet_conf[PATH_BYTES],
		kubelet_bin[PATH_BYTES]; /* "" unless kubelet's arguments say */
};

/* ---- containerd's configuration ---- */

static void set_path(char ret[static PATH_BYTES], const char *value)
{
	if (value[0] == '/' && strlen(value) < PATH_BYTES)
		memcpy(ret, value, strlen(value) + 1);
}

/* The key below the CRI plugin's cni table of any version of the file, or NULL. */
static const char *cni_key(const char *path)
{
	static const char *const tables[] = {
		"plugins\x1fio.containerd.cri.v1.runtime\x1f"
		"cni\x1f",
		"plugins\x1fio.containerd.grpc.v1.cri\x1f"
		"cni\x1f",
		"plugins\x1f"
		"cri\x1f"
		"cni\x1f",
	};

	for (size_t i = 0; i < ELEMENTS(tables); i++)
		if (strncmp(path, tables[i], strlen(tables[i])) == 0)
			return path + strlen(tables[i]);
	return NULL;
}

static void take_setting(const char *path, const char *value, size_t index, void *userdata)
{
	struct dirs *d = userdata;
	const char *key = cni_key(path);

	if (key && strcmp(key, "conf_dir") == 0) {
		set_path(d->conf, value);
	} else if (key && (strcmp(key, "bin_dir") == 0 || strcmp(key, "bin_dirs") == 0)) {
		if (value[0] != '/' || index >= BIN_DIRS_MAX)
			return;
		/* a later list takes the place of an earlier one */
		if (index == 0)
			d->n_bin = 0;
		if (d->n_bin < BIN_DIRS_MAX)
			set_path(d->bin[d->n_bin++], value);
	}
}

static int read_for_us(void *userdata, const char *path, size_t max, const char **ret, size_t *len)
{
	return run_read(userdata, path, max, ret, len);
}

static int find_dirs(struct run *r, struct dirs *d)
{
	struct containerd_reader from = {.files = run_files(r), .read = read_for_us, .userdata = r};
	int e;

	e = containerd_config_read(&from, take_setting, d, &d->read);
	if (e < 0)
		return e;
	if (!d->conf[0])
		set_path(d->conf, DEFAULT_CONF_DIR);
	if (d->n_bin == 0)
		set_path(d->bin[d->n_bin++], DEFAULT_BIN_DIR);
	return 0;
}

/* ---- kubelet's arguments: up to 1.23 it was told where the CNI is ---- */

static void take_argument(const char *text, const char *name, char ret[static PATH_BYTES])
{
	size_t n = strlen(name), len;
	char value[PATH_BYTES];

	for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
		if (at[n] != '=' && at[n] != ' ')
			continue;
		len = strcspn(at + n + 1, " \t\r\n\"'\\");
		if (len == 0 || len >= sizeof(value))
			continue;
		memcpy(value, at + n + 1, len);
		value[len] = 0;
		set_path(ret, value);
	}
}

static void read_kubelet(struct run *r, struct state *s)
{
	static const char *const files[] = {
		"/etc/systemd/system/kubelet.service.d/10-kubelet-args.conf",
		"/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf",
		"/etc/eks/kubelet/environment",
	};
	const char *text;
	size_t len;

	for (size_t i = 0; i < ELEMENTS(files); i++) {
		if (run_read(r, files[i], CONFIG_BYTES, &text, &len) < 0)
			continue;
		take_argument(text, "--cni-conf-dir", s->kubelet_conf);
		take_argument(text, "--cni-bin-dir", s->kubelet_bin);
	}
}

/* ---- a network configuration ---- */

static int fail(struct config *c, const char *error)
{
	(void) text_format(c->error, sizeof(c->error), "%s", error);
	return -EBADMSG;
}

static int take_type(struct config *c, const json_t *plugin)
{
	const char *type = json_string_value(json_object_get(plugin, "type"));

	if (!type || !type[0])
		return fail(c, "a plugin without a type");
	if (strchr(type, '/') || strlen(type) >= TYPE_BYTES)
		return fail(c, "a plugin type that cannot be a file name");
	if (strcmp(type, "aws-cni") == 0)
		c->ours = true;
	if (c->n_types < PLUGINS_MAX)
		memcpy(c->type[c->n_types++], type, strlen(type) + 1);
	return 0;
}

static int take_list(struct config *c, const json_t *root)
{
	const json_t *plugins = json_object_get(root, "plugins");
	const char *name = json_string_value(json_object_get(root, "name"));
	int r = 0;

	if (!name || !name[0])
		return fail(c, "a list without a name");
	if (!json_is_array(plugins) || json_array_size(plugins) == 0)
		return fail(c, "a list without plugins");
	for (size_t i = 0; i < json_array_size(plugins) && r == 0; i++)
		r = take_type(c, json_array_get(plugins, i));
	return r;
}

static int parse_config(const char *text, size_t len, bool list, struct config *ret)
{
	json_error_t error;
	json_t *root;
	int r;

	if (len == 0) {
		ret->line = 1;
		return fail(ret, "the file is empty");
	}
	root = json_loadb(text, len, 0, &error);
	if (!root) {
		ret->line = error.line > 0 ? error.line : 1;
		(void) text_clean(ret->error, sizeof(ret->error), error.text, strlen(error.text));
		return -EBADMSG;
	}
	r = list ? take_list(ret, root) : take_type(ret, root);
	json_decref(root);
	return r;
}

/* ---- which file ---- */

static bool has_suffix(const char *name, const char *suffix)
{
	size_t n = strlen(name), m = strlen(suffix);

	return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* The first file in lexical order, as libcni reads: -ENOENT when there is none. */
static int first_config(struct run *r, const char *dir, char *ret, size_t size)
{
	static const char *const suffixes[] = {".conf", ".conflist", ".json"};
	struct state *s = run_state(r);
	char path[PATH_BYTES * 2];
	struct stat st;
	int e;

	e = file_list(run_files(r), dir, &s->names);
	if (e < 0)
		return e;
	for (size_t i = 0; i < s->names.n; i++) {
		bool match = false;

		for (size_t k = 0; k < ELEMENTS(suffixes); k++)
			match = match || has_suffix(s->names.name[i], suffixes[k]);
		(void) text_format(path, sizeof(path), "%s/%s", dir, s->names.name[i]);
		if (!match || (file_stat(run_files(r), path, &st) == 0 && S_ISDIR(st.st_mode)))
			continue;
		if (strlen(path) >= size)
			return -ENAMETOOLONG;
		memcpy(ret, path, strlen(path) + 1);
		return 0;
	}
	return -ENOENT;
}

/* 0, -ENOENT, -EACCES when it is there but not to be executed, or why it cannot be told. */
static int check_binary(struct run *r, const struct dirs *d, const char *type)
{
	char path[PATH_BYTES + TYPE_BYTES];
	int worst = -ENOENT, e;
	struct stat st;

	for (size_t i = 0; i < d->n_bin; i++) {
		(void) text_format(path, sizeof(path), "%s/%s", d->bin[i], type);
		e = file_stat(run_files(r), path, &st);
		if (e == 0 && S_ISREG(st.st_mode) && (st.st_mode & 0111))
			return 0;
		if (e == 0 && S_ISREG(st.st_mode))
			worst = -EACCES;
		else if (e < 0 && e != -ENOENT && e != -ENOTDIR && worst == -ENOENT)
			worst = -EIO;
	}
	return worst;
}

/* ---- observations ---- */

static bool exists(struct run *r, const char *path)
{
	struct stat st;

	return file_stat(run_files(r), path, &st) == 0;
}

/* A machine without a sign of Kubernetes has no CNI to miss, unless it is known to be EC2. */
static bool is_no_node(struct run *r, const struct state *s)
{
	static const char *const signs[] = {
		"/etc/kubernetes/kubelet", "/var/lib/kubelet/kubeconfig",
		"/etc/systemd/system/kubelet.service", "/usr/bin/kubelet"};

	if (run_node(r)->ec2 == EC2_YES || exists(r, s->dirs.conf))
		return false;
	for (size_t i = 0; i < ELEMENTS(signs); i++)
		if (exists(r, signs[i]))
			return false;
	return true;
}

/* Only a node that has registered is given pods (EKS has no static ones). */
static bool has_pods(struct run *r)
{
	struct names *names = calloc(1, sizeof(*names));
	bool some = names && file_list(run_files(r), "/var/lib/kubelet/pods", names) == 0 &&
	            names->n > 0;

	free(names);
	return some;
}

static struct observation *observe_config(struct run *r, const char *subject, enum outcome outcome,
                                          int code)
{
	struct state *s = run_state(r);
	struct observation *o;

	if (outcome != OUTCOME_OK)
		run_learn(r)->has_pods = has_pods(r);
	o = run_observe(r, LAYER_CNI, "config", subject, outcome, code);

	observation_text(o, "conf_dir", "%s", s->dirs.conf);
	observation_text(o, "bin_dir", "%s", s->dirs.bin[0]);
	return o;
}

static void observe_unreadable(struct run *r, const char *path, int e)
{
	struct observation *o = observe_config(r, "", OUTCOME_UNKNOWN, -e);

	observation_detail(o, "cannot read %s: %s", path, strerrordesc_np(-e));
}

/* Plugin binaries that are in none of bin_dirs, in words; what they are is in the evidence. */
struct binaries {
	char missing[DETAIL_MAX];
	size_t n_missing;
	const char *first; /* missing or not executable */
	bool not_executable, unreadable;
};

static struct binaries check_binaries(struct run *r, const struct dirs *d, const struct config *c)
{
	struct binaries b = {0};

	for (size_t i = 0; i < c->n_types; i++) {
		int e = check_binary(r, d, c->type[i]);

		if (e == 0)
			continue;
		if (e == -EIO) {
			b.unreadable = true;
			continue;
		}
		if (e == -EACCES)
			b.not_executable = true;
		else
			b.n_missing++;
		if (!b.first)
			b.first = c->type[i];
		(void) text_append(b.missing, sizeof(b.missing), "%s%s", b.missing[0] ? ", " : "",
		                   c->type[i]);
	}
	return b;
}

static void observe_binaries(struct run *r, const struct binaries *b)
{
	struct state *s = run_state(r);
	bool guess = s->dirs.read.unreadable && (b->n_missing || b->not_executable);
	enum outcome outcome = guess               ? OUTCOME_UNKNOWN
	                       : b->n_missing      ? OUTCOME_ABSENT
	                       : b->not_executable ? OUTCOME_DENIED
	                       : b->unreadable     ? OUTCOME_UNKNOWN
	                                           : OUTCOME_OK;
	struct observation *o =
		run_observe(r, LAYER_CNI, "binary", b->first ? b->first : "", outcome, 0);

	observation_text(o, "bin_dir", "%s", s->dirs.bin[0]);
	observation_number(o, "plugins", (int64_t) s->config.n_types);
	if (b->missing[0])
		observation_text(o, "missing", "%s", b->missing);
	if (guess) {
		observation_detail(o, "cannot read %s: %s", s->dirs.read.unread,
		                   strerrordesc_np(s->dirs.read.unreadable));
		return;
	}
	observation_detail(o, "%s%s%s",
	                   outcome == OUTCOME_OK        ? "every plugin is executable"
	                   : outcome == OUTCOME_UNKNOWN ? "cannot look at the plugins in "
	                   : outcome == OUTCOME_DENIED  ? "not executable: "
	                                                : "not there: ",
	                   outcome == OUTCOME_UNKNOWN ? s->dirs.bin[0] : b->missing, "");
}

/* Where else a CNI may have been installed: what kubelet was told, or the default place. */
static const char *other_dir(const char *kubelet, const char *fallback, const char *used)
{
	if (kubelet[0] && strcmp(kubelet, used) != 0)
		return kubelet;
	return strcmp(fallback, used) != 0 ? fallback : NULL;
}

static void observe_mismatch(struct run *r, const char *what, const char *used, const char *other)
{
	struct observation *o = run_observe(r, LAYER_RUNTIME, "dir", "", OUTCOME_FAILED, 0);

	observation_text(o, "what", "%s", what);
	observation_text(o, "containerd", "%s", used);
	observation_text(o, "cni", "%s", other);
	observation_detail(o, "containerd looks in %s, the CNI is in %s", used, other);
}

/* One dir observation a run: of the configuration first, as without it no plugin is asked for. */
static void compare_dirs(struct run *r, bool config_here, const struct binaries *b)
{
	struct state *s = run_state(r);
	const char *conf = other_dir(s->kubelet_conf, DEFAULT_CONF_DIR, s->dirs.conf);
	const char *bin = other_dir(s->kubelet_bin, DEFAULT_BIN_DIR, s->dirs.bin[0]);
	struct dirs elsewhere = {.n_bin = 1};
	char path[PATH_BYTES * 2];
	struct observation *o;

	if (!config_here && conf && first_config(r, conf, path, sizeof(path)) == 0) {
		observe_mismatch(r, "conf_dir", s->dirs.conf, conf);
		return;
	}
	if (b && b->first && bin) {
		set_path(elsewhere.bin[0], bin);
		if (check_binary(r, &elsewhere, b->first) == 0) {
			observe_mismatch(r, "bin_dir", s->dirs.bin[0], bin);
			return;
		}
	}
	o = run_observe(r, LAYER_RUNTIME, "dir", "", OUTCOME_OK, 0);
	observation_detail(o, "conf_dir %s, bin_dir %s", s->dirs.conf, s->dirs.bin[0]);
}

static void look_at_config(struct run *r, const char *path)
{
	struct state *s = run_state(r);
	struct observation *o;
	struct binaries b;
	const char *text;
	size_t len;
	int e;

	e = run_read(r, path, CONFIG_BYTES, &text, &len);
	if (e < 0 && e != -EFBIG) {
		observe_unreadable(r, path, e);
		return;
	}
	e = e < 0 ? fail(&s->config, "the file is longer than 1 MiB")
	          : parse_config(text, len, has_suffix(path, ".conflist"), &s->config);
	if (e < 0) {
		o = observe_config(r, path, OUTCOME_MALFORMED, s->config.line);
		observation_number(o, "line", s->config.line);
		observation_text(o, "error", "%s", s->config.error);
		observation_detail(o, "%s line %d: %s", path, s->config.line, s->config.error);
		compare_dirs(r, true, NULL);
		return;
	}
	b = check_binaries(r, &s->dirs, &s->config);
	if (!s->config.ours && b.n_missing > 0 && !s->dirs.read.unreadable) {
		o = observe_config(r, path, OUTCOME_FOREIGN, 0);
		observation_text(o, "type", "%s", s->config.type[0]);
		observation_text(o, "missing", "%s", b.missing);
		observation_detail(o, "%s of another CNI, without its plugin %s", path, b.missing);
		compare_dirs(r, true, &b);
		return;
	}
	o = observe_config(r, "", OUTCOME_OK, 0);
	observation_text(o, "file", "%s", path);
	observation_text(o, "type", "%s", s->config.type[0]);
	observation_detail(o, "%s%s%s%s", path, s->config.ours ? "" : " of another CNI (",
	                   s->config.ours ? "" : s->config.type[0], s->config.ours ? "" : ")");
	observe_binaries(r, &b);
	compare_dirs(r, true, &b);
}

/* Nothing is scheduled to a node that is not set up, or that nobody has registered. */
static bool has_not_joined(struct run *r)
{
	const struct node *n = run_node(r);

	if (n->registered == YES || has_pods(r))
		return false;
	return n->registered == NO || (n->ec2 == EC2_YES && !n->kubeconfig_present);
}

/* Why the file is not to be missed yet; NULL when it is. */
static const char *why_awaited(struct run *r)
{
	const struct node *n = run_node(r);
	struct memory *m = run_memory(r);
	usec_t now = run_now(r);

	if (m->found)
		return NULL;
	if (has_not_joined(r)) {
		m->unjoined_at = now;
		return run_uptime(r) < AWAITED ? NULL : "the node has not joined yet";
	}
	if (run_uptime(r) < AWAITED) /* the probe's own grace */
		return NULL;
	if (m->unjoined_at && now - m->unjoined_at < AWAITED)
		return "the node has not joined for long";
	if (n->registered == YES && n->registered_at && now - n->registered_at < AWAITED)
		return "the node was registered a moment ago";
	return NULL;
}

static void observe_none(struct run *r, int e)
{
	struct state *s = run_state(r);
	const char *why = why_awaited(r);
	struct observation *o =
		observe_config(r, "", why ? OUTCOME_SKIPPED : OUTCOME_ABSENT, why ? 0 : -e);

	observation_detail(o, "no network configuration in %s%s%s", s->dirs.conf, why ? ": " : "",
	                   why ? why : "");
	compare_dirs(r, false, NULL);
}

static int look(struct run *r);

static void look_again(struct run *r, uintptr_t tag)
{
	int e = look(r);

	if (e >= 0)
		return;
	observation_detail(observe_config(r, "", OUTCOME_UNKNOWN, -e), "cannot look: %s",
	                   strerror(-e));
	run_end(r);
}

/* Whose file is missing is not accused before it is known whether it has joined. */
static bool waits(struct run *r, usec_t *waited)
{
	return run_node(r)->kubeconfig_present && !has_pods(r) &&
	       run_awaits(r, run_node(r)->registered != CANNOT_TELL, waited, look_again);
}

static int look(struct run *r)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	char path[PATH_BYTES * 2];
	struct observation *o;
	int e;

	e = find_dirs(r, &s->dirs);
	if (e < 0)
		return e;
	read_kubelet(r, s);
	if (is_no_node(r, s)) {
		bool known = run_node(r)->ec2 == EC2_NO;

		o = observe_config(r, "", known ? OUTCOME_SKIPPED : OUTCOME_UNKNOWN, 0);
		observation_detail(o, "no sign of Kubernetes%s",
		                   known ? "" : ", and not known yet whether this is EC2");
		run_end(r);
		return 0;
	}
	e = first_config(r, s->dirs.conf, path, sizeof(path));
	if (e == 0) {
		m->found = true;
		look_at_config(r, path);
	} else if ((e == -ENOENT || e == -ENOTDIR) && s->dirs.read.unreadable) {
		observe_unreadable(r, s->dirs.read.unread, -s->dirs.read.unreadable);
	} else if (e == -ENOENT || e == -ENOTDIR) {
		if (!m->found && waits(r, &s->waited))
			return 0;
		observe_none(r, e);
	} else {
		observe_unreadable(r, s->dirs.conf, e);
	}
	run_end(r);
	return 0;
}

static int start(struct run *r)
{
	return look(r);
}

/* ---- what it means ---- */

static enum code judge_config(const struct observation *o, struct words *ret)
{
	char *s = ret->summary;

	switch (o->outcome) {
	case OUTCOME_ABSENT:
		(void) text_format(s, SUMMARY_MAX, "no network configuration in %s",
		                   evidence_get_text(o, "conf_dir"));
		return CODE_CniConfigMissing;
	case OUTCOME_MALFORMED:
		(void) text_format(s, SUMMARY_MAX, "%s", o->subject);
		if (o->code > 0)
			(void) text_append(s, SUMMARY_MAX, " line %d", o->code);
		(void) text_append(s, SUMMARY_MAX, ": %s", evidence_get_text(o, "error"));
		return CODE_CniConfigInvalid;
	case OUTCOME_FOREIGN:
		(void) text_format(s, SUMMARY_MAX,
		                   "%s is the first configuration, of another CNI whose plugin is "
		                   "not there: %s",
		                   o->subject, evidence_get_text(o, "missing"));
		return CODE_CniConfigForeign;
	default:
		return CODE_NONE;
	}
}

static enum code judge_binary(const struct observation *o, struct words *ret)
{
	(void) text_format(ret->summary, SUMMARY_MAX, "%s in %s: %s",
	                   o->outcome == OUTCOME_DENIED ? "CNI plugin not executable"
	                                                : "CNI plugin not there",
	                   evidence_get_text(o, "bin_dir"), evidence_get_text(o, "missing"));
	return CODE_CniBinaryMissing;
}

static enum code judge_dir(const struct observation *o, struct words *ret)
{
	(void) text_format(ret->summary, SUMMARY_MAX, "containerd's %s is %s, but the CNI is in %s",
	                   evidence_get_text(o, "what"), evidence_get_text(o, "containerd"),
	                   evidence_get_text(o, "cni"));
	return CODE_CniDirMismatch;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	    o->outcome == OUTCOME_UNKNOWN)
		return CODE_NONE;
	if (strcmp(o->aspect, "config") == 0)
		return judge_config(o, ret);
	if (strcmp(o->aspect, "binary") == 0)
		return judge_binary(o, ret);
	return strcmp(o->aspect, "dir") == 0 ? judge_dir(o, ret) : CODE_NONE;
}

const struct probe probe_cni_config = {
	.name = "cni-config",
	.what = "the network configuration that containerd takes, its plugins, and where both look",
	.layer = LAYER_CNI,
	.every = 15 * USEC_PER_SEC,
	.failing = 5 * USEC_PER_SEC,
	.retry = USEC_PER_SEC,
	.timeout = 2 * USEC_PER_SEC,
	.after = "imds", /* whether this is EC2 decides what the absence of Kubernetes means */
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.watch = {"/etc/cni/net.d", "/opt/cni/bin", "/etc/containerd", "/etc/containerd/config.d",
                  "/etc/eks/containerd"},
	.grace = 300 * USEC_PER_SEC, /* aws-node writes it once it is healthy */
	.start = start,
	.judge = judge,
	.codes = {CODE_CniConfigMissing, CODE_CniConfigInvalid, CODE_CniConfigForeign,
                  CODE_CniBinaryMissing, CODE_CniDirMismatch},
};
