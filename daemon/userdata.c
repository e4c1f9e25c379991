/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <strings.h>

#include "userdata.h"

enum { BOUNDARY_MAX = 72, TYPE_MAX = 64, DEPTH_MAX = 3, PARTS_MAX = 64 };

struct text {
	const char *at;
	size_t len;
};

static bool has(struct text t, const char *what)
{
	return memmem(t.at, t.len, what, strlen(what));
}

static bool begins(struct text t, const char *what)
{
	return t.len >= strlen(what) && strncasecmp(t.at, what, strlen(what)) == 0;
}

static struct text skip_space(struct text t)
{
	while (t.len > 0 && isspace((unsigned char) *t.at))
		t = (struct text){t.at + 1, t.len - 1};
	return t;
}

/* Takes the first line off, without its end. False when nothing is left. */
static bool next_line(struct text *t, struct text *ret)
{
	const char *end;

	if (t->len == 0)
		return false;
	end = memchr(t->at, '\n', t->len);
	*ret = (struct text){t->at, end ? (size_t) (end - t->at) : t->len};
	*t = (struct text){t->at + ret->len + (end != NULL), t->len - ret->len - (end != NULL)};
	if (ret->len > 0 && ret->at[ret->len - 1] == '\r')
		ret->len--;
	return true;
}

static bool is_gzip(struct text t)
{
	return t.len >= 2 && t.at[0] == '\x1f' && t.at[1] == '\x8b';
}

/* ---- base64 ---- */

static int digit(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *p = c ? strchr(digits, c) : NULL;

	return p ? (int) (p - digits) : -1;
}

/* Into dst, which has room for t.len bytes; white space is skipped. -EBADMSG. */
static int decode(struct text t, char *dst, size_t *ret_len)
{
	unsigned bits = 0, n = 0;
	size_t len = 0, padding = 0;

	for (size_t i = 0; i < t.len; i++) {
		int d = digit(t.at[i]);

		if (isspace((unsigned char) t.at[i]))
			continue;
		if (t.at[i] == '=') {
			padding++;
			continue;
		}
		if (d < 0 || padding > 0)
			return -EBADMSG;
		bits = (bits << 6 | (unsigned) d) & 0xffffff;
		if (++n % 4 != 1)
			dst[len++] = (char) (bits >> (6 - 2 * ((n - 1) % 4)));
	}
	if (n % 4 == 1 || padding > 2)
		return -EBADMSG;
	*ret_len = len;
	return 0;
}

/* Whether all of it is base64 and nothing else: nodeadm takes user data and parts like that. */
static bool looks_encoded(struct text t)
{
	size_t n = 0;

	for (size_t i = 0; i < t.len; i++) {
		if (t.at[i] == '\n' || t.at[i] == '\r' || t.at[i] == '=')
			continue;
		if (digit(t.at[i]) < 0)
			return false;
		n++;
	}
	return n >= 16;
}

/* ---- what a part says ---- */

/* A key with a value on its line, in YAML or JSON. */
static bool sets(struct text line, const char *key)
{
	const char *at = memmem(line.at, line.len, key, strlen(key));
	struct text rest;

	if (!at)
		return false;
	rest = (struct text){at + strlen(key), line.len - (size_t) (at - line.at) - strlen(key)};
	if (begins(rest, "\""))
		rest = (struct text){rest.at + 1, rest.len - 1};
	rest = skip_space(rest);
	if (!begins(rest, ":"))
		return false;
	rest = skip_space((struct text){rest.at + 1, rest.len - 1});
	return rest.len > 0 && !begins(rest, "\"\"") && !begins(rest, "''") &&
	       !begins(rest, "null") && !begins(rest, "#");
}

static void take_node_config(struct text t, struct userdata_shape *s)
{
	static const struct {
		const char *key;
		unsigned bit;
	} keys[] = {{"name", USERDATA_NAME},
	            {"apiServerEndpoint", USERDATA_ENDPOINT},
	            {"certificateAuthority", USERDATA_CA},
	            {"cidr", USERDATA_CIDR}};
	struct text line;

	s->node_config = true;
	while (next_line(&t, &line))
		for (size_t i = 0; i < ELEMENTS(keys); i++)
			if (sets(line, keys[i].key))
				s->cluster |= keys[i].bit;
}

static bool is_node_config(struct text t)
{
	return has(t, "node.eks.aws/") && has(t, "NodeConfig");
}

/* Lines of a script or of a cloud-config, without comments. */
static void take_calls(struct text t, struct userdata_shape *s)
{
	static const char *const others[] = {
		"bootstrap", "nodeadm",    "kubelet", "kubeadm",   "eksctl",
		"curl ",     "wget ",      "s3://",   "aws s3",    "ansible",
		"git clone", "docker run", "ctr run", "encoding:",
	};
	struct text line;

	if (begins(t, "#include") || begins(t, "#part-handler"))
		s->other_call = true;
	while (next_line(&t, &line)) {
		line = skip_space(line);
		if (begins(line, "#"))
			continue;
		if (has(line, "/etc/eks/bootstrap.sh"))
			s->bootstrap_call = true;
		for (size_t i = 0; i < ELEMENTS(others); i++)
			s->other_call |= has(line, others[i]);
	}
}

/* ---- headers ---- */

struct header {
	char boundary[BOUNDARY_MAX], type[TYPE_MAX];
	bool base64;
};

static void copy(char *dst, size_t size, struct text t)
{
	size_t n = t.len < size ? t.len : size - 1;

	memcpy(dst, t.at, n);
	dst[n] = 0;
}

static void take_boundary(struct text value, struct header *h)
{
	const char *at = memmem(value.at, value.len, "boundary=", strlen("boundary="));
	struct text b;
	const char *end;

	if (!at)
		return;
	at += strlen("boundary=");
	b = (struct text){at, value.len - (size_t) (at - value.at)};
	if (begins(b, "\"")) {
		b = (struct text){b.at + 1, b.len - 1};
		end = memchr(b.at, '"', b.len);
	} else {
		end = memchr(b.at, ';', b.len);
	}
	if (end)
		b.len = (size_t) (end - b.at);
	while (b.len > 0 && isspace((unsigned char) b.at[b.len - 1]))
		b.len--;
	/* one that is too long for us is too long for MIME */
	if (b.len < sizeof(h->boundary))
		copy(h->boundary, sizeof(h->boundary), b);
}

static void take_field(struct text line, struct header *h)
{
	static const char type[] = "content-type:", encoding[] = "content-transfer-encoding:";
	struct text value;
	size_t n = 0;

	if (begins(line, type)) {
		value = skip_space(
			(struct text){line.at + sizeof(type) - 1, line.len - (sizeof(type) - 1)});
		while (n < value.len && value.at[n] != ';' && !isspace((unsigned char) value.at[n]))
			n++;
		copy(h->type, sizeof(h->type), (struct text){value.at, n});
		take_boundary(value, h);
	} else if (begins(line, encoding)) {
		value = skip_space((struct text){line.at + sizeof(encoding) - 1,
		                                 line.len - (sizeof(encoding) - 1)});
		h->base64 = begins(value, "base64");
	} else if (line.len > 0 && isspace((unsigned char) *line.at)) {
		take_boundary(line, h); /* folded */
	}
}

/* Takes the header off, with the empty line that ends it. */
static void take_header(struct text *t, struct header *ret)
{
	struct text line;

	*ret = (struct header){.type = ""};
	while (next_line(t, &line) && line.len > 0)
		take_field(line, ret);
}

/* ---- parts ---- */

static void take(struct text t, const char *type, unsigned depth, struct userdata_shape *s);

/* declared: the header says so. */
static void take_encoded(struct text t, const char *type, unsigned depth, bool declared,
                         struct userdata_shape *s)
{
	char *plain = malloc(t.len + 1);
	size_t len;

	if (!plain) {
		s->compressed = true; /* not looked into, which is all that this says */
		return;
	}
	if (decode(t, plain, &len) == 0)
		take((struct text){plain, len}, type, depth + 1, s);
	else if (declared)
		s->fault = USERDATA_BAD_ENCODING;
	explicit_bzero(plain, t.len + 1);
	free(plain);
}

static void take_part(struct text t, unsigned depth, struct userdata_shape *s)
{
	struct header h;

	s->parts++;
	take_header(&t, &h);
	if (h.base64)
		take_encoded(t, h.type, depth, true, s);
	else
		take(t, h.type, depth + 1, s);
}

/* "--boundary" is 1, "--boundary--" 2, else 0. */
static int is_boundary(struct text line, const char *boundary)
{
	size_t n = strlen(boundary);

	while (line.len > 0 && isspace((unsigned char) line.at[line.len - 1]))
		line.len--;
	if (line.len < n + 2 || memcmp(line.at, "--", 2) != 0 ||
	    memcmp(line.at + 2, boundary, n) != 0)
		return 0;
	if (line.len == n + 2)
		return 1;
	return line.len == n + 4 && memcmp(line.at + n + 2, "--", 2) == 0 ? 2 : 0;
}

static void take_parts(struct text t, const char *boundary, unsigned depth,
                       struct userdata_shape *s)
{
	const char *part = NULL;
	struct text line;
	int kind = 0;

	while (kind != 2 && next_line(&t, &line)) {
		kind = is_boundary(line, boundary);
		if (!kind)
			continue;
		if (part && s->parts < PARTS_MAX)
			take_part((struct text){part, (size_t) (line.at - part)}, depth, s);
		part = t.at;
	}
	if (!part)
		s->fault = USERDATA_NO_PART;
	else if (kind != 2) {
		take_part((struct text){part, (size_t) (t.at - part)}, depth, s);
		s->fault = USERDATA_NOT_CLOSED;
	}
}

static void take_multipart(struct text t, unsigned depth, struct userdata_shape *s)
{
	struct header h;

	take_header(&t, &h);
	if (h.boundary[0])
		take_parts(t, h.boundary, depth, s);
	else
		s->fault = USERDATA_NO_BOUNDARY;
}

static bool is_multipart(struct text t)
{
	return (begins(t, "mime-version:") || begins(t, "content-type:")) && has(t, "multipart/");
}

static bool is_toml(struct text t)
{
	struct text line;

	while (next_line(&t, &line)) {
		line = skip_space(line);
		if (line.len > 0 && !begins(line, "#"))
			return begins(line, "[settings") || begins(line, "settings.");
	}
	return false;
}

static enum userdata_form form_of(struct text t)
{
	struct text first = skip_space(t);

	if (first.len == 0)
		return USERDATA_EMPTY;
	if (is_gzip(t))
		return USERDATA_GZIP;
	if (is_multipart(first))
		return USERDATA_MULTIPART;
	if (begins(t, "#!"))
		return USERDATA_SCRIPT;
	if (begins(t, "#cloud-config"))
		return USERDATA_CLOUD_CONFIG;
	if (begins(first, "{") && has(first, "\"ignition\""))
		return USERDATA_IGNITION;
	if (is_toml(first))
		return USERDATA_TOML;
	return is_node_config(first) ? USERDATA_NODE_CONFIG : USERDATA_OTHER;
}

/* type: what the header of this part said, "" for the whole, which nodeadm takes as a NodeConfig
 * when it is no MIME document. */
static void take(struct text t, const char *type, unsigned depth, struct userdata_shape *s)
{
	static const char node_config[] = "application/node.eks.aws";
	enum userdata_form form = form_of(t);
	bool whole = !type[0] && s->parts == 0;

	if (depth == 0 || (whole && s->form == USERDATA_OTHER))
		s->form = form;
	if (form == USERDATA_EMPTY)
		return;
	if (form == USERDATA_GZIP) {
		s->compressed = true;
		return;
	}
	if (form == USERDATA_MULTIPART && depth < DEPTH_MAX) {
		/* Go's parser and cloud-init's want the header in the first line */
		if (isspace((unsigned char) *t.at))
			s->fault = USERDATA_NOT_FIRST;
		take_multipart(skip_space(t), depth, s);
		return;
	}
	if (depth < DEPTH_MAX && looks_encoded(t)) {
		take_encoded(t, type, depth, false, s);
		return;
	}
	if (strcasecmp(type, node_config) == 0 || (whole && form == USERDATA_NODE_CONFIG))
		take_node_config(t, s);
	else if (form == USERDATA_NODE_CONFIG)
		s->fault = USERDATA_WRONG_TYPE;
	else
		take_calls(t, s);
}

void userdata_parse(const char *data, size_t len, struct userdata_shape *ret)
{
	*ret = (struct userdata_shape){.form = USERDATA_OTHER};
	take((struct text){data, len}, "", 0, ret);
	/* a NodeConfig that is found makes up for one that is not */
	if (ret->fault == USERDATA_WRONG_TYPE && ret->node_config)
		ret->fault = USERDATA_SOUND;
}

const char *userdata_form_name(enum userdata_form f)
{
	static const char *const names[_USERDATA_FORM_MAX] = {
		"empty", "multipart", "NodeConfig", "script", "cloud-config",
		"TOML",  "ignition",  "gzip",       "other"};

	return names[f];
}

const char *userdata_fault_text(enum userdata_fault f)
{
	static const char *const texts[_USERDATA_FAULT_MAX] = {
		"",
		"something stands before the MIME header",
		"the MIME header names no boundary",
		"the MIME boundary of the header never comes",
		"the closing MIME boundary is missing",
		"NodeConfig in a part that is not application/node.eks.aws",
		"a part says base64 and is none",
	};

	return texts[f];
}
