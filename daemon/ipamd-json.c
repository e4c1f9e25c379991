/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/socket.h>

#include "ipamd-json.h"

#define COOLDOWN (30 * USEC_PER_SEC) /* facts/eks-node.md 3.4: IP_COOLDOWN_PERIOD's default */

enum { DEPTH_MAX = 32, VALUE_MAX = 256 };

/* ---- JSON, read once from left to right ---- */

struct scan {
	const char *p, *end;
	unsigned depth;
};

/* A part of the text as it stands there: the escapes of a string are not undone. */
struct slice {
	const char *p;
	size_t len;
};

/* Reads the value of a member, or of an element (then key is empty). 0 or -EBADMSG. */
typedef int (*value_t)(struct scan *s, const struct slice *key, void *userdata);

/* The first byte of the next token; 0 at the end. */
static char peek(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
		s->p++;
	return s->p < s->end ? *s->p : (char) 0;
}

static bool take(struct scan *s, char c)
{
	if (peek(s) != c)
		return false;
	s->p++;
	return true;
}

static int string(struct scan *s, struct slice *ret)
{
	if (!take(s, '"'))
		return -EBADMSG;
	ret->p = s->p;
	for (; s->p < s->end && *s->p != '"'; s->p++) {
		if ((unsigned char) *s->p < 0x20)
			return -EBADMSG;
		if (*s->p == '\\' && ++s->p == s->end)
			return -EBADMSG;
	}
	if (s->p == s->end)
		return -EBADMSG;
	ret->len = (size_t) (s->p - ret->p);
	s->p++;
	return 0;
}

/* A number, true, false or null. */
static int word(struct scan *s, struct slice *ret)
{
	(void) peek(s);
	ret->p = s->p;
	while (s->p < s->end && ((*s->p >= '0' && *s->p <= '9') || (*s->p >= 'a' && *s->p <= 'z') ||
	                         *s->p == '-' || *s->p == '+' || *s->p == '.' || *s->p == 'E'))
		s->p++;
	ret->len = (size_t) (s->p - ret->p);
	return ret->len ? 0 : -EBADMSG;
}

/* An object or an array: each value is handed on. */
static int each(struct scan *s, char open, char close, value_t value, void *userdata)
{
	int r;

	if (!take(s, open) || ++s->depth > DEPTH_MAX)
		return -EBADMSG;
	if (take(s, close))
		return s->depth--, 0;
	do {
		struct slice key = {s->p, 0};

		if (open == '{') {
			r = string(s, &key);
			if (r < 0 || !take(s, ':'))
				return -EBADMSG;
		}
		r = value(s, &key, userdata);
		if (r < 0)
			return r;
	} while (take(s, ','));
	if (!take(s, close))
		return -EBADMSG;
	s->depth--;
	return 0;
}

static int skip_value(struct scan *s, const struct slice *key, void *userdata)
{
	struct slice nothing;
	char c = peek(s);

	if (c == '{')
		return each(s, '{', '}', skip_value, userdata);
	if (c == '[')
		return each(s, '[', ']', skip_value, userdata);
	return c == '"' ? string(s, &nothing) : word(s, &nothing);
}

static int skip(struct scan *s)
{
	return skip_value(s, NULL, NULL);
}

/* What is of another type than wanted is passed over: a member that a later version changed must
 * not hide the rest. */
static int object(struct scan *s, value_t member, void *userdata)
{
	return peek(s) == '{' ? each(s, '{', '}', member, userdata) : skip(s);
}

static int array(struct scan *s, value_t element, void *userdata)
{
	return peek(s) == '[' ? each(s, '[', ']', element, userdata) : skip(s);
}

static bool is(const struct slice *s, const char *text)
{
	return s->len == strlen(text) && memcmp(s->p, text, s->len) == 0;
}

static int hex4(const char *p)
{
	int n = 0;

	for (size_t i = 0; i < 4; i++) {
		char c = p[i];

		if (c >= '0' && c <= '9')
			n = n * 16 + c - '0';
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			n = n * 16 + (c | 0x20) - 'a' + 10;
		else
			return -1;
	}
	return n;
}

/* Undoes the escapes that stand for ASCII, as Go makes them of < > &; cleans and cuts. */
static void copy(const struct slice *s, char *ret, size_t size)
{
	char plain[VALUE_MAX];
	size_t n = 0;

	for (size_t i = 0; i < s->len && n < sizeof(plain); i++) {
		char c = s->p[i];

		if (c == '\\' && i + 1 < s->len) {
			c = s->p[++i];
			if (c == 'u' && s->len - i > 4) {
				int code = hex4(s->p + i + 1);

				c = code > 0 && code < 0x80 ? (char) code : '?';
				i += 4;
			}
		}
		plain[n++] = c;
	}
	(void) text_clean(ret, size, plain, n);
}

static int text_value(struct scan *s, char *ret, size_t size)
{
	struct slice v;
	int r;

	if (peek(s) != '"')
		return skip(s);
	r = string(s, &v);
	if (r == 0)
		copy(&v, ret, size);
	return r;
}

static int number_value(struct scan *s, uint64_t max, uint64_t *ret)
{
	char digits[24];
	struct slice v;
	uint64_t n;

	if (peek(s) == '"' || peek(s) == '{' || peek(s) == '[')
		return skip(s);
	if (word(s, &v) < 0)
		return -EBADMSG;
	if (v.len >= sizeof(digits))
		return 0;
	memcpy(digits, v.p, v.len);
	digits[v.len] = 0;
	if (text_to_uint(digits, 0, max, &n) == 0)
		*ret = n;
	return 0;
}

static int int_value(struct scan *s, int *ret)
{
	uint64_t n = UINT64_MAX;
	int r = number_value(s, INT32_MAX, &n);

	if (r == 0 && n <= INT32_MAX)
		*ret = (int) n;
	return r;
}

static int bool_value(struct scan *s, bool *ret)
{
	struct slice v;

	if (peek(s) != 't' && peek(s) != 'f')
		return skip(s);
	if (word(s, &v) < 0)
		return -EBADMSG;
	*ret = is(&v, "true");
	return 0;
}

static int whole(struct scan *s, const char *text, size_t len, value_t member, void *userdata)
{
	int r;

	*s = (struct scan){text, text + len, 0};
	r = each(s, '{', '}', member, userdata);
	if (r == 0)
		r = peek(s) == 0 && s->p == s->end ? 0 : -EBADMSG;
	return r;
}

/* ---- times: "2026-08-20T10:00:00.123456789Z" ---- */

static int64_t days_since_1970(int64_t y, int64_t m, int64_t d)
{
	int64_t shifted = m <= 2 ? y - 1 : y, era = shifted / 400, of_era = shifted - era * 400;
	int64_t day = (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1;

	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + day - 719468;
}

static int digits(const char *p, size_t n)
{
	int v = 0;

	for (size_t i = 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return -1;
		v = v * 10 + p[i] - '0';
	}
	return v;
}

/* 0 when it is none, or before 1970: Go's zero time is of the year 1. */
static usec_t parse_time(const struct slice *s)
{
	static const size_t at[] = {0, 5, 8, 11, 14, 17}, width[] = {4, 2, 2, 2, 2, 2};
	int v[6], hours, minutes;
	const char *zone;
	int64_t seconds;
	size_t i;

	if (s->len < 20)
		return 0;
	for (i = 0; i < ELEMENTS(v); i++) {
		v[i] = digits(s->p + at[i], width[i]);
		if (v[i] < 0)
			return 0;
	}
	if (v[0] < 1970 || v[1] < 1 || v[1] > 12)
		return 0;
	seconds = ((days_since_1970(v[0], v[1], v[2]) * 24 + v[3]) * 60 + v[4]) * 60 + v[5];
	for (i = 19; i < s->len && (s->p[i] == '.' || (s->p[i] >= '0' && s->p[i] <= '9')); i++)
		;
	zone = s->p + i;
	if (s->len - i >= 6 && (*zone == '+' || *zone == '-')) {
		hours = digits(zone + 1, 2);
		minutes = digits(zone + 4, 2);
		if (hours < 0 || minutes < 0)
			return 0;
		seconds += INT64_C(60) * (*zone == '+' ? -1 : 1) * (hours * 60 + minutes);
	}
	return seconds > 0 ? (usec_t) seconds * USEC_PER_SEC : 0;
}

/* ---- introspection ---- */

struct enis {
	struct ipamd_view *view;
	usec_t realtime;
	int card;
	bool seen; /* there was an object ENIs */
	struct ipamd_eni spare, *eni;
	struct { /* the CIDR at hand */
		int assigned, cooling;
		bool prefix;
	} cidr;
	struct { /* the address at hand */
		bool taken;
		usec_t given_back;
	} address;
};

static int take_key(struct scan *s, const struct slice *key, void *userdata)
{
	struct enis *e = userdata;
	struct slice v;

	/* the container's id is blank since 1.23, the network's name is not */
	if (peek(s) != '"')
		return skip(s);
	if (string(s, &v) < 0)
		return -EBADMSG;
	if ((is(key, "networkName") || is(key, "containerID")) && v.len > 0)
		e->address.taken = true;
	return 0;
}

static int take_address(struct scan *s, const struct slice *key, void *userdata)
{
	struct enis *e = userdata;
	struct slice v;

	if (is(key, "IPAMKey"))
		return object(s, take_key, e);
	if (!is(key, "UnassignedTime") || peek(s) != '"')
		return skip(s);
	if (string(s, &v) < 0)
		return -EBADMSG;
	e->address.given_back = parse_time(&v);
	return 0;
}

static int take_addresses(struct scan *s, const struct slice *key, void *userdata)
{
	struct enis *e = userdata;
	usec_t since;
	int r;

	e->address.taken = false;
	e->address.given_back = 0;
	r = object(s, take_address, e);
	if (r < 0)
		return r;
	since = e->address.given_back;
	if (e->address.taken)
		e->cidr.assigned++;
	else if (since && since <= e->realtime && e->realtime - since < COOLDOWN)
		e->cidr.cooling++;
	return 0;
}

static int take_cidr(struct scan *s, const struct slice *key, void *userdata)
{
	struct enis *e = userdata;

	if (is(key, "IPAddresses"))
		return object(s, take_addresses, e);
	if (is(key, "IsPrefix"))
		return bool_value(s, &e->cidr.prefix);
	return skip(s);
}

static int take_cidrs4(struct scan *s, const struct slice *key, void *userdata)
{
	struct enis *e = userdata;
	int r;

	e->cidr.assigned = e->cidr.cooling = 0;
	e->cidr.prefix = false;
	r = object(s, take_cidr, e);
	if (r < 0)
		return r;
	e->eni->total += e->cidr.prefix ? 16 : 1;
	e->eni->prefixes4 += e->cidr.prefix;
	e->eni->assigned += e->cidr.assigned;
	e->eni->cooling += e->cidr.cooling;
	return 0;
}

static int take_cidrs6(struct scan *s, const struct slice *key, void *userdata)
{
	struct enis *e = userdata;
	int r;

	e->cidr.prefix = false;
	r = object(s, take_cidr, e);
	e->eni->prefixes6 += e->cidr.prefix;
	return r;
}

static int take_eni(struct scan *s, const struct slice *key, void *userdata)
{
	struct enis *e = userdata;
	struct ipamd_eni *x = e->eni;
	uint64_t table = x->table;
	int r;

	if (is(key, "ID"))
		return text_value(s, x->id, sizeof(x->id));
	if (is(key, "SubnetID"))
		return text_value(s, x->subnet, sizeof(x->subnet));
	if (is(key, "IsPrimary"))
		return bool_value(s, &x->primary);
	if (is(key, "IsTrunk"))
		return bool_value(s, &x->trunk);
	if (is(key, "IsEFA"))
		return bool_value(s, &x->efa);
	if (is(key, "IsExcludedForPodIPs"))
		return bool_value(s, &x->excluded);
	if (is(key, "DeviceNumber"))
		return int_value(s, &x->device);
	if (is(key, "AvailableIPv4Cidrs"))
		return object(s, take_cidrs4, e);
	if (is(key, "IPv6Cidrs"))
		return object(s, take_cidrs6, e);
	if (!is(key, "RouteTableID"))
		return skip(s);
	r = number_value(s, UINT32_MAX, &table);
	x->table = (uint32_t) table;
	return r;
}

static int take_enis(struct scan *s, const struct slice *key, void *userdata)
{
	struct enis *e = userdata;
	struct ipamd_view *v = e->view;
	int r;

	v->more = v->more || v->n == ENIS_MAX;
	e->eni = v->n < ENIS_MAX ? &v->enis[v->n] : &e->spare;
	*e->eni = (struct ipamd_eni){.card = e->card, .device = -1};
	copy(key, e->eni->id, sizeof(e->eni->id));
	r = object(s, take_eni, e);
	v->cooling += e->eni->cooling;
	v->n += v->n < ENIS_MAX;
	return r;
}

/* A network card's pool; before 1.20 the whole answer. */
static int take_pool(struct scan *s, const struct slice *key, void *userdata)
{
	struct enis *e = userdata;
	int n = 0, r;

	if (is(key, "ENIs")) {
		e->seen = e->seen || peek(s) == '{';
		return object(s, take_enis, e);
	}
	if (!is(key, "TotalIPs") && !is(key, "AssignedIPs"))
		return skip(s);
	r = int_value(s, &n);
	if (n < 1 << 20)
		*(is(key, "TotalIPs") ? &e->view->total : &e->view->assigned) += n;
	return r;
}

static int take_answer(struct scan *s, const struct slice *key, void *userdata)
{
	struct enis *e = userdata;
	int card = key->len >= 1 && key->len <= 2 ? digits(key->p, key->len) : -1;

	if (card < 0)
		return take_pool(s, key, e);
	if (card >= CARDS_MAX || peek(s) != '{')
		return skip(s);
	e->card = card;
	e->view->by_card = true;
	return each(s, '{', '}', take_pool, e);
}

int ipamd_enis_parse(const char *text, size_t len, usec_t realtime, struct ipamd_view *ret)
{
	_cleanup_(freep) struct ipamd_view *v = calloc(1, sizeof(*v));
	struct enis e = {.view = v, .realtime = realtime};
	struct scan s;
	int r;

	if (!v)
		return -ENOMEM;
	r = whole(&s, text, len, take_answer, &e);
	if (r < 0)
		return r;
	if (!e.seen && !v->by_card)
		return -ENOENT;
	*ret = *v;
	return 0;
}

/* ---- the checkpoint ---- */

struct checkpoint {
	struct ipamd_allocation *allocations, at_hand;
	size_t max, n;
	bool more, known;
};

static int take_allocation(struct scan *s, const struct slice *key, void *userdata)
{
	struct checkpoint *c = userdata;
	char text[ADDRESS_TEXT_MAX] = "";
	uint64_t ns = 0;
	struct address a;
	int r;

	if (is(key, "allocationTimestamp")) {
		r = number_value(s, INT64_MAX, &ns);
		c->at_hand.at = ns / 1000;
		return r;
	}
	if (!is(key, "ipv4") && !is(key, "ipv6"))
		return skip(s);
	r = text_value(s, text, sizeof(text));
	if (r == 0 && address_parse(&a, text) == 0)
		c->at_hand.address = a;
	return r;
}

static int take_allocations(struct scan *s, const struct slice *key, void *userdata)
{
	struct checkpoint *c = userdata;
	int r;

	c->at_hand = (struct ipamd_allocation){0};
	r = object(s, take_allocation, c);
	if (r < 0 || !c->at_hand.address.family)
		return r;
	if (c->n < c->max)
		c->allocations[c->n++] = c->at_hand;
	else
		c->more = true;
	return 0;
}

static int take_checkpoint(struct scan *s, const struct slice *key, void *userdata)
{
	struct checkpoint *c = userdata;
	char version[32] = "";
	int r;

	if (is(key, "allocations"))
		return array(s, take_allocations, c);
	if (!is(key, "version"))
		return skip(s);
	r = text_value(s, version, sizeof(version));
	c->known = strcmp(version, "vpc-cni-ipam/1") == 0;
	return r;
}

int ipamd_checkpoint_parse(const char *text, size_t len, struct ipamd_allocation *allocations,
                           size_t max, size_t *ret_n, bool *ret_more)
{
	struct checkpoint c = {.allocations = allocations, .max = max};
	struct scan s;
	int r;

	r = whole(&s, text, len, take_checkpoint, &c);
	if (r < 0)
		return r;
	if (!c.known)
		return -EPROTONOSUPPORT;
	*ret_n = c.n;
	*ret_more = c.more;
	return 0;
}

/* ---- the environment ---- */

static bool is_true(const char *value)
{
	return strcmp(value, "true") == 0 || strcmp(value, "1") == 0 ||
	       strcmp(value, "True") == 0 || strcmp(value, "TRUE") == 0 ||
	       strcmp(value, "t") == 0 || strcmp(value, "T") == 0;
}

static void take_target(const char *value, int *ret)
{
	uint64_t n;

	if (text_to_uint(value, 0, 1 << 16, &n) == 0)
		*ret = (int) n;
}

static bool starts(const struct slice *s, const char *name, struct slice *ret_value)
{
	size_t n = strlen(name);

	if (s->len <= n || memcmp(s->p, name, n) != 0 || s->p[n] != '=')
		return false;
	*ret_value = (struct slice){s->p + n + 1, s->len - n - 1};
	return true;
}

/* The names are all that is ever copied out of an environment: what else is there may be secret. */
static void take_variable(const struct slice *variable, struct oci_container *c)
{
	enum {
		PREFIX,
		CUSTOM,
		POD_ENI,
		IPV6,
		EXTERNAL_SNAT,
		RANDOM_SNAT,
		WEB,
		POD_IDENTITY,
		ENI,
		IP,
		MINIMUM,
		WARM_PREFIX
	};
	static const char *const names[] = {
		[PREFIX] = "ENABLE_PREFIX_DELEGATION",
		[CUSTOM] = "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG",
		[POD_ENI] = "ENABLE_POD_ENI",
		[IPV6] = "ENABLE_IPv6",
		[EXTERNAL_SNAT] = "AWS_VPC_K8S_CNI_EXTERNALSNAT",
		[RANDOM_SNAT] = "AWS_VPC_K8S_CNI_RANDOMIZESNAT",
		[WEB] = "AWS_ROLE_ARN",
		[POD_IDENTITY] = "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		[ENI] = "WARM_ENI_TARGET",
		[IP] = "WARM_IP_TARGET",
		[MINIMUM] = "MINIMUM_IP_TARGET",
		[WARM_PREFIX] = "WARM_PREFIX_TARGET",
	};
	struct cni_settings *n = &c->settings;
	bool *const flags[] = {
		[PREFIX] = &n->prefix,
		[CUSTOM] = &n->custom,
		[POD_ENI] = &n->pod_eni,
		[IPV6] = &n->ipv6,
		[EXTERNAL_SNAT] = &n->external_snat,
	};
	int *const targets[] = {
		[ENI] = &n->warm_eni,
		[IP] = &n->warm_ip,
		[MINIMUM] = &n->minimum_ip,
		[WARM_PREFIX] = &n->warm_prefix,
	};
	char value[sizeof(n->role_arn)];
	struct slice v;

	if (starts(variable, "VPC_CNI_VERSION", &v))
		copy(&v, c->version, sizeof(c->version));
	for (size_t i = 0; i < ELEMENTS(names); i++) {
		if (!starts(variable, names[i], &v))
			continue;
		copy(&v, value, sizeof(value));
		if (i <= EXTERNAL_SNAT)
			*flags[i] = is_true(value);
		else if (i >= ENI)
			take_target(value, targets[i]);
		else if (i == RANDOM_SNAT)
			n->kept_ports = strcmp(value, "none") == 0;
		else if (i == POD_IDENTITY)
			n->pod_identity = value[0] != 0;
		else
			memcpy(n->role_arn, value, sizeof(value));
		if (i == WEB)
			n->web_identity = value[0] != 0;
		return;
	}
}

static void settings_clear(struct oci_container *c)
{
	*c = (struct oci_container){
		.settings = {.warm_eni = -1, .warm_ip = -1, .minimum_ip = -1, .warm_prefix = -1}};
}

static int take_env(struct scan *s, const struct slice *key, void *userdata)
{
	struct oci_container *c = userdata;
	struct slice v;

	if (peek(s) != '"')
		return skip(s);
	if (string(s, &v) < 0)
		return -EBADMSG;
	take_variable(&v, c);
	return 0;
}

static int take_process(struct scan *s, const struct slice *key, void *userdata)
{
	struct oci_container *c = userdata;

	if (!is(key, "env"))
		return skip(s);
	c->settings.known = true;
	return array(s, take_env, c);
}

static int take_annotation(struct scan *s, const struct slice *key, void *userdata)
{
	struct oci_container *c = userdata;

	if (is(key, "io.kubernetes.cri.container-name"))
		return text_value(s, c->name, sizeof(c->name));
	if (is(key, "io.kubernetes.cri.sandbox-name"))
		return text_value(s, c->pod, sizeof(c->pod));
	if (is(key, "io.kubernetes.cri.image-name"))
		return text_value(s, c->image, sizeof(c->image));
	return skip(s);
}

static int take_oci(struct scan *s, const struct slice *key, void *userdata)
{
	if (is(key, "process"))
		return object(s, take_process, userdata);
	if (is(key, "annotations"))
		return object(s, take_annotation, userdata);
	return skip(s);
}

/* "registry/amazon-k8s-cni:v1.23.1-eksbuild.1"; a digest is no version. */
static void version_from_image(struct oci_container *c)
{
	const char *slash = strrchr(c->image, '/'), *colon;

	colon = strchr(slash ? slash : c->image, ':');
	if (!c->version[0] && colon && colon[1] == 'v' && !strchr(c->image, '@'))
		(void) text_format(c->version, sizeof(c->version), "%s", colon + 1);
}

int oci_config_parse(const char *text, size_t len, struct oci_container *ret)
{
	struct oci_container c;
	struct scan s;
	int r;

	settings_clear(&c);
	r = whole(&s, text, len, take_oci, &c);
	if (r < 0)
		return r;
	version_from_image(&c);
	*ret = c;
	return 0;
}

void ipamd_environ_parse(const char *text, size_t len, struct oci_container *ret)
{
	settings_clear(ret);
	ret->settings.known = len > 0;
	for (size_t at = 0; at < len;) {
		struct slice v = {text + at, strnlen(text + at, len - at)};

		take_variable(&v, ret);
		at += v.len + 1;
	}
}

/* ---- the end of its log ---- */

/* Behind the last start but one; the whole where there are fewer. */
static const char *last_lives(const char *text, const char *end)
{
	static const char start[] = "Starting L-IPAMD";
	const char *last = text, *before = text, *at = text;

	while ((at = memmem(at, (size_t) (end - at), start, sizeof(start) - 1))) {
		before = last;
		last = at;
		at += sizeof(start) - 1;
	}
	return before;
}

/* A JSON string's bytes up to its quote, each escaped character as it is. */
static void take_string(const char *p, const char *end, char *ret, size_t size)
{
	char text[256];
	size_t n = 0;

	while (p < end && *p != '"' && n < sizeof(text)) {
		if (*p == '\\' && p + 1 < end)
			p++;
		text[n++] = *p++;
	}
	(void) text_clean(ret, size, text, n);
}

bool ipamd_log_error(const char *text, size_t len, char *ret, size_t size)
{
	static const char *const levels[] = {"\"level\":\"error\"", "\"level\":\"fatal\""};
	static const char mark[] = "\"msg\":\"";
	const char *end = text + len, *newline;
	bool found = false;

	for (const char *p = last_lives(text, end); p < end; p = newline + 1) {
		const char *message;
		bool bad = false;

		newline = memchr(p, '\n', (size_t) (end - p));
		if (!newline) /* it is still being written */
			break;
		for (size_t i = 0; i < ELEMENTS(levels); i++)
			bad = bad ||
			      memmem(p, (size_t) (newline - p), levels[i], strlen(levels[i]));
		message = bad ? memmem(p, (size_t) (newline - p), mark, sizeof(mark) - 1) : NULL;
		if (!message)
			continue;
		take_string(message + sizeof(mark) - 1, newline, ret, size);
		found = true;
	}
	return found;
}
