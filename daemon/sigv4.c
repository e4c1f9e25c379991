/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <openssl/evp.h>

#include "sigv4.h"

enum { SHA256_BYTES = 32, SHA256_HEX = 65, DATE_MAX = 40 };

void credentials_wipe(struct credentials *c)
{
	explicit_bzero(c, sizeof(*c));
}

/* ---- a JSON object of strings, read without a copy of what is in it ---- */

/* jansson frees its copies as they are. This reads the few strings that are wanted straight into
 * where they are to be, and steps over the rest. */
struct scan {
	const char *p, *end;
};

static void skip_space(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
		s->p++;
}

static bool take(struct scan *s, char c)
{
	skip_space(s);
	if (s->p == s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

/* The one character of an escape behind the backslash, 0 when it is none that these bodies use. */
static char unescape(char c)
{
	return c == '"' || c == '\\' || c == '/' ? c : 0;
}

/* A string into dst, or over it where dst is NULL. */
static bool read_string(struct scan *s, char *dst, size_t size)
{
	size_t n = 0;

	if (!take(s, '"'))
		return false;
	while (s->p < s->end && *s->p != '"') {
		char c = *s->p++;

		if ((unsigned char) c < ' ')
			return false;
		if (c == '\\') {
			if (s->p == s->end)
				return false;
			c = unescape(*s->p++);
			if (!c && dst)
				return false;
		}
		if (!dst)
			continue;
		if (n + 1 >= size)
			return false;
		dst[n++] = c;
	}
	if (s->p == s->end)
		return false;
	s->p++;
	if (dst)
		dst[n] = 0;
	return true;
}

/* Whatever stands at s, up to the comma or brace behind it; not whether it is well formed. */
static bool skip_value(struct scan *s)
{
	size_t depth = 0;
	bool any = false;

	for (skip_space(s); s->p < s->end; skip_space(s)) {
		char c = *s->p;

		if (depth == 0 && (c == ',' || c == '}'))
			return any;
		any = true;
		if (c == '"') {
			if (!read_string(s, NULL, 0))
				return false;
			continue;
		}
		if (c == '{' || c == '[')
			depth++;
		else if (c == '}' || c == ']')
			depth -= depth > 0;
		s->p++;
	}
	return false;
}

/* ---- dates, without a time zone to look up ---- */

/* Days since 1970 of a date in the Gregorian calendar; years begin in March. */
static int64_t days_of(int64_t y, unsigned m, unsigned d)
{
	unsigned of_year = (153 * (m > 2 ? m - 3 : m + 9) + 2) / 5 + d - 1;
	int64_t era;

	y -= m <= 2;
	era = y / 400;
	y -= era * 400;
	return era * 146097 + y * 365 + y / 4 - y / 100 + of_year - 719468;
}

static bool number(const char *s, size_t digits, unsigned max, unsigned *ret)
{
	unsigned v = 0;

	for (size_t i = 0; i < digits; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		v = v * 10 + (unsigned) (s[i] - '0');
	}
	*ret = v;
	return v <= max;
}

uint64_t sigv4_date_parse(const char *s)
{
	unsigned y, mon, d, h, min, sec;

	if (strlen(s) != strlen("2026-11-30T21:16:59Z") || s[4] != '-' || s[7] != '-' ||
	    s[10] != 'T' || s[13] != ':' || s[16] != ':' || s[19] != 'Z')
		return 0;
	if (!number(s, 4, 9999, &y) || !number(s + 5, 2, 12, &mon) || !number(s + 8, 2, 31, &d) ||
	    !number(s + 11, 2, 23, &h) || !number(s + 14, 2, 59, &min) ||
	    !number(s + 17, 2, 60, &sec) || y < 1970 || mon < 1 || d < 1)
		return 0;
	return (uint64_t) days_of(y, mon, d) * 86400 + UINT64_C(3600) * h + UINT64_C(60) * min +
	       sec;
}

/* "20261130T211659Z" */
static void amz_date(uint64_t now, char ret[static DATE_MAX])
{
	uint64_t days = now / 86400 + 719468, seconds = now % 86400;
	uint64_t era = days / 146097, of_era = days % 146097;
	uint64_t y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	uint64_t of_year = of_era - (365 * y + y / 4 - y / 100);
	uint64_t m = (5 * of_year + 2) / 153, d = of_year - (153 * m + 2) / 5 + 1;

	m = m < 10 ? m + 3 : m - 9;
	y += era * 400 + (m <= 2);
	(void) snprintf(ret, DATE_MAX, "%04u%02u%02uT%02u%02u%02uZ", (unsigned) (y % 10000),
	                (unsigned) m, (unsigned) d, (unsigned) (seconds / 3600),
	                (unsigned) (seconds / 60 % 60), (unsigned) (seconds % 60));
}

/* ---- credentials ---- */

static bool is_token_text(const char *s)
{
	for (; *s; s++)
		if (*s <= ' ' || *s == 0x7F) /* it becomes part of a header */
			return false;
	return true;
}

static int read_members(struct scan *s, struct credentials_said *said, struct credentials *c)
{
	char key[32], updated[32] = "", expires[32] = "";
	const struct {
		const char *key;
		char *dst;
		size_t size;
	} wanted[] = {
		{"Code", said->code, sizeof(said->code)},
		{"LastUpdated", updated, sizeof(updated)},
		{"Expiration", expires, sizeof(expires)},
		{"AccessKeyId", c->key_id, sizeof(c->key_id)},
		{"SecretAccessKey", c->secret, sizeof(c->secret)},
		{"Token", c->token, sizeof(c->token)},
	};

	do {
		size_t i = 0;
		struct scan at;

		skip_space(s);
		at = *s;
		if (!read_string(s, key, sizeof(key))) {
			key[0] = 0; /* a key that is longer than any of ours */
			*s = at;
			if (!read_string(s, NULL, 0))
				return -EBADMSG;
		}
		if (!take(s, ':'))
			return -EBADMSG;
		while (i < ELEMENTS(wanted) && strcmp(wanted[i].key, key) != 0)
			i++;
		if (i < ELEMENTS(wanted) ? !read_string(s, wanted[i].dst, wanted[i].size)
		                         : !skip_value(s))
			return -EBADMSG;
	} while (take(s, ','));
	said->updated = sigv4_date_parse(updated);
	said->expires = c->expires = sigv4_date_parse(expires);
	return take(s, '}') ? 0 : -EBADMSG;
}

int credentials_parse(const char *text, size_t len, struct credentials_said *ret_said,
                      struct credentials *ret)
{
	struct scan s = {.p = text, .end = text + len};
	struct credentials_said said = {0};
	struct credentials c = {0};
	int r = -EBADMSG;

	if (take(&s, '{'))
		r = take(&s, '}') ? 0 : read_members(&s, &said, &c);
	skip_space(&s);
	if (r == 0 &&
	    (s.p != s.end || !text_is_clean(said.code, strlen(said.code)) ||
	     !is_token_text(c.key_id) || !is_token_text(c.secret) || !is_token_text(c.token)))
		r = -EBADMSG;
	if (r == 0) {
		said.complete = c.key_id[0] && c.secret[0] && c.token[0];
		*ret_said = said;
		if (ret) {
			memcpy(c.role, ret->role, sizeof(c.role));
			*ret = c;
		}
	}
	credentials_wipe(&c);
	return r;
}

/* ---- signing ---- */

struct text {
	char *p;
	size_t size, len;
	bool full;
};

static void put(struct text *t, const char *s)
{
	size_t n = strlen(s);

	if (t->full || n >= t->size - t->len) {
		t->full = true;
		return;
	}
	memcpy(t->p + t->len, s, n + 1);
	t->len += n;
}

/* Percent encoding as the signature wants it: everything but the unreserved, in upper case. */
static void put_encoded(struct text *t, const char *s)
{
	static const char unreserved[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
					 "0123456789-._~";

	for (; *s; s++) {
		char one[4] = {*s};

		if (!strchr(unreserved, *s))
			(void) snprintf(one, sizeof(one), "%%%02X", (unsigned char) *s);
		put(t, one);
	}
}

static int sha256_hex(const char *s, size_t len, char ret[static SHA256_HEX])
{
	unsigned char digest[SHA256_BYTES];
	unsigned n = 0;

	if (EVP_Digest(s, len, digest, &n, EVP_sha256(), NULL) != 1 || n != sizeof(digest))
		return -EIO;
	for (size_t i = 0; i < sizeof(digest); i++)
		(void) snprintf(ret + 2 * i, 3, "%02x", digest[i]);
	return 0;
}

static int hmac(unsigned char key[static SHA256_BYTES], const char *first, size_t first_len,
                const char *s)
{
	size_t n = 0;
	bool good = EVP_Q_mac(NULL, "HMAC", NULL, "SHA256", NULL, first ? (void *) first : key,
	                      first ? first_len : SHA256_BYTES, (const unsigned char *) s,
	                      strlen(s), key, SHA256_BYTES, &n);

	return good && n == SHA256_BYTES ? 0 : -EIO;
}

/* The key of the day, region and service, and with it the signature of what is to be signed. */
static int sign(const struct presign *p, const struct credentials *c, const char *date,
                const char *to_sign, char ret[static SHA256_HEX])
{
	char first[sizeof(c->secret) + 4], day[9];
	const char *const steps[] = {p->region, p->service, "aws4_request", to_sign};
	unsigned char key[SHA256_BYTES];
	int n, r;

	(void) snprintf(day, sizeof(day), "%.8s", date);
	n = snprintf(first, sizeof(first), "AWS4%s", c->secret);
	r = hmac(key, first, (size_t) n, day);
	for (size_t i = 0; i < ELEMENTS(steps) && r == 0; i++)
		r = hmac(key, NULL, 0, steps[i]);
	for (size_t i = 0; i < sizeof(key) && r == 0; i++)
		(void) snprintf(ret + 2 * i, 3, "%02x", key[i]);
	explicit_bzero(first, sizeof(first));
	explicit_bzero(key, sizeof(key));
	return r;
}

/* Parameters in order of their names, all of them before ours. */
static bool in_order(const char *query)
{
	char before[64] = "";

	while (*query) {
		char name[64];
		size_t n = strcspn(query, "=&");

		if (n == 0 || n >= sizeof(name))
			return false;
		memcpy(name, query, n);
		name[n] = 0;
		if (strcmp(before, name) > 0 || strcmp(name, "X-Amz-") >= 0)
			return false;
		memcpy(before, name, n + 1);
		query += strcspn(query, "&");
		query += *query == '&';
	}
	return true;
}

static bool header_first(const struct presign *p)
{
	return p->header_name && strcmp(p->header_name, "host") < 0;
}

static void put_names(struct text *t, const struct presign *p, const char *separator)
{
	if (header_first(p)) {
		put(t, p->header_name);
		put(t, separator);
	}
	put(t, "host");
	if (p->header_name && !header_first(p)) {
		put(t, separator);
		put(t, p->header_name);
	}
}

static void put_header(struct text *t, const char *name, const char *value)
{
	put(t, name);
	put(t, ":");
	put(t, value);
	put(t, "\n");
}

static void put_query(struct text *t, const struct presign *p, const struct credentials *c,
                      const char *date, const char *scope)
{
	char valid[16];

	(void) snprintf(valid, sizeof(valid), "%u", p->valid_s);
	put(t, p->query);
	put(t, p->query[0] ? "&" : "");
	put(t, "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=");
	put_encoded(t, c->key_id);
	put_encoded(t, "/");
	put_encoded(t, scope);
	put(t, "&X-Amz-Date=");
	put(t, date);
	put(t, "&X-Amz-Expires=");
	put(t, valid);
	if (c->token[0]) {
		put(t, "&X-Amz-Security-Token=");
		put_encoded(t, c->token);
	}
	put(t, "&X-Amz-SignedHeaders=");
	put_names(t, p, "%3B");
}

static void put_request(struct text *t, const struct presign *p, const char *query,
                        const char *empty_hash)
{
	put(t, "GET\n/\n");
	put(t, query);
	put(t, "\n");
	if (header_first(p))
		put_header(t, p->header_name, p->header_value);
	put_header(t, "host", p->host);
	if (p->header_name && !header_first(p))
		put_header(t, p->header_name, p->header_value);
	put(t, "\n");
	put_names(t, p, ";");
	put(t, "\n");
	put(t, empty_hash);
}

/* Signs the query, which is at the end of url, and appends the signature. */
static int sign_url(const struct presign *p, const struct credentials *c, const char *query,
                    const char *date, const char *scope, struct text *url)
{
	char request[PRESIGNED_MAX + 1024], to_sign[256], hash[SHA256_HEX], signature[SHA256_HEX];
	struct text t = {.p = request, .size = sizeof(request)};
	int n, r;

	r = sha256_hex("", 0, hash);
	if (r < 0)
		return r;
	put_request(&t, p, query, hash);
	r = t.full || url->full ? -ENOSPC : sha256_hex(request, t.len, hash);
	explicit_bzero(request, sizeof(request));
	if (r < 0)
		return r;
	n = snprintf(to_sign, sizeof(to_sign), "AWS4-HMAC-SHA256\n%s\n%s\n%s", date, scope, hash);
	if (n < 0 || (size_t) n >= sizeof(to_sign))
		return -ENOSPC;
	r = sign(p, c, date, to_sign, signature);
	if (r < 0)
		return r;
	put(url, "&X-Amz-Signature=");
	put(url, signature);
	return url->full ? -ENOSPC : 0;
}

int sigv4_presign(const struct presign *p, const struct credentials *c, char *ret, size_t size)
{
	char date[DATE_MAX], scope[128];
	struct text url = {.p = ret, .size = size};
	size_t start;
	int n, r;

	if (!c->key_id[0] || !c->secret[0] || !in_order(p->query) || size == 0)
		return -EINVAL;
	amz_date(p->now, date);
	n = snprintf(scope, sizeof(scope), "%.8s/%s/%s/aws4_request", date, p->region, p->service);
	if (n < 0 || (size_t) n >= sizeof(scope))
		return -ENOSPC;
	put(&url, "https://");
	put(&url, p->host);
	put(&url, "/?");
	start = url.len;
	put_query(&url, p, c, date, scope);
	r = sign_url(p, c, ret + start, date, scope, &url);
	if (r < 0)
		explicit_bzero(ret, size);
	return r;
}

/* ---- the token ---- */

static void base64url(const char *s, size_t len, char *dst)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	uint32_t bits = 0;
	unsigned n = 0;

	for (size_t i = 0; i < len; i++) {
		bits = bits << 8 | (unsigned char) s[i];
		for (n += 8; n >= 6; n -= 6)
			*dst++ = digits[bits >> (n - 6) & 63];
	}
	if (n > 0)
		*dst++ = digits[bits << (6 - n) & 63];
	*dst = 0;
}

int eks_token(const char *cluster, const char *sts_host, const char *region,
              const struct credentials *c, uint64_t now, char ret[static EKS_TOKEN_MAX])
{
	static const char prefix[] = "k8s-aws-v1.";
	const struct presign p = {.host = sts_host,
	                          .region = region,
	                          .service = "sts",
	                          .query = "Action=GetCallerIdentity&Version=2011-06-15",
	                          .header_name = "x-k8s-aws-id",
	                          .header_value = cluster,
	                          .valid_s = 60,
	                          .now = now};
	char url[PRESIGNED_MAX];
	int r;

	_Static_assert(sizeof(prefix) + (sizeof(url) + 2) / 3 * 4 <= EKS_TOKEN_MAX,
	               "a token of the longest URL fits");
	r = sigv4_presign(&p, c, url, sizeof(url));
	if (r < 0)
		return r;
	memcpy(ret, prefix, sizeof(prefix));
	base64url(url, strlen(url), ret + sizeof(prefix) - 1);
	explicit_bzero(url, sizeof(url));
	return 0;
}
