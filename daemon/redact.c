/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>

#include "address.h"
#include "redact.h"

enum { KNOWN_MAX = 1024, TOKEN_MAX = 256, KINDS = 12 };

struct known {
	char from[TOKEN_MAX], to[TOKEN_MAX];
};

struct redactor {
	struct known *known;
	size_t n;
	unsigned counts[KINDS];
	bool failed;
};

/* Prefixes of the ids of EC2 resources. */
static const char *const prefixes[] = {"i-",  "eni-", "subnet-", "vpc-",
                                       "sg-", "ami-", "vol-",    "rtb-"};

/* What is the same on every node says nothing about this one: link-local services, loopback. */
static bool is_common(const struct address *a)
{
	static const char *const common[] = {
		"169.254.169.254", "169.254.169.253", "169.254.169.123", "169.254.170.23",
		"fd00:ec2::254",   "fd00:ec2::253",   "0.0.0.0",         "::"};

	for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++) {
		struct address c;

		if (address_parse(&c, common[i]) == 0 && address_equal(a, &c))
			return true;
	}
	return address_is_loopback(a);
}

static bool all_of(const char *s, size_t n, const char *set)
{
	return n > 0 && strspn(s, set) >= n;
}

/* A place of its own among the stand-ins of a kind. */
static void stand_in(struct redactor *r, int kind, const char *format, char *dst, size_t size)
{
	char number[16];
	size_t used = 0;

	(void) snprintf(number, sizeof(number), "%u", ++r->counts[kind]);
	for (; *format && used + sizeof(number) < size; format++) {
		if (*format == '#')
			used += (size_t) snprintf(dst + used, size - used, "%s", number);
		else
			dst[used++] = *format;
	}
	dst[used] = 0;
}

static const char *lookup(struct redactor *r, const char *token, int kind, const char *format)
{
	struct known *k;

	for (size_t i = 0; i < r->n; i++)
		if (strcmp(r->known[i].from, token) == 0)
			return r->known[i].to;
	if (r->n == KNOWN_MAX) {
		r->failed = true;
		return "redacted";
	}
	k = &r->known[r->n++];
	(void) snprintf(k->from, sizeof(k->from), "%s", token);
	stand_in(r, kind, format, k->to, sizeof(k->to));
	return k->to;
}

static bool is_mac(const char *s, size_t n)
{
	if (n != 17)
		return false;
	for (size_t i = 0; i < n; i++)
		if (i % 3 == 2 ? s[i] != ':' : !isxdigit((unsigned char) s[i]))
			return false;
	return true;
}

static const char *replace_address(struct redactor *r, const char *token)
{
	struct address a;

	if (address_parse(&a, token) < 0 || is_common(&a))
		return NULL;
	if (a.family == AF_INET6)
		return lookup(r, token, 1, "2001:db8::#");
	/* a private address stays private: whether it is a VPC endpoint is part of the picture */
	return address_is_private(&a) ? lookup(r, token, 2, "10.255.0.#")
	                              : lookup(r, token, 3, "192.0.2.#");
}

/* A host name of this node, cluster or account; those of AWS's own services say nothing. */
static const char *replace_name(struct redactor *r, const char *token, size_t n)
{
	const char *dot = strchr(token, '.');

	if (strncmp(token, "ip-", 3) == 0 && isdigit((unsigned char) token[3]))
		return lookup(r, token, 4, "ip-node-#.internal");
	if (strstr(token, ".eks.") && dot &&
	    all_of(token, (size_t) (dot - token), "0123456789ABCDEFabcdef"))
		return lookup(r, token, 5, "cluster-#.eks.example");
	if (n > 9 && strcmp(token + n - 9, ".internal") == 0)
		return lookup(r, token, 4, "host-#.internal");
	return NULL;
}

static const char *replacement(struct redactor *r, const char *token)
{
	size_t n = strlen(token);
	const char *to;

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
		size_t p = strlen(prefixes[i]);
		char format[24];

		if (strncmp(token, prefixes[i], p) != 0 || n < p + 8 ||
		    !all_of(token + p, n - p, "0123456789abcdef"))
			continue;
		(void) snprintf(format, sizeof(format), "%sredacted#", prefixes[i]);
		return lookup(r, token, 6, format);
	}
	if (n == 12 && all_of(token, n, "0123456789"))
		return lookup(r, token, 7, "account#");
	if (is_mac(token, n))
		return lookup(r, token, 8, "02:00:00:00:00:#");
	to = replace_address(r, token);
	return to ? to : replace_name(r, token, n);
}

static bool in_token(char c)
{
	return isalnum((unsigned char) c) || c == '-' || c == '.' || c == ':' || c == '_';
}

/* An account's number or an id within a longer word: an ARN, a registry's name, an address with a
 * port. */
static void write_parts(struct redactor *r, const char *token, FILE *f)
{
	while (*token) {
		size_t n = strcspn(token, ":.");
		char part[TOKEN_MAX];
		const char *to;

		memcpy(part, token, n);
		part[n] = 0;
		to = replacement(r, part);
		(void) fputs(to ? to : part, f);
		token += n;
		if (*token)
			(void) fputc(*token++, f);
	}
}

/* "10.0.1.5:443": the address before a port. */
static bool write_with_port(struct redactor *r, const char *token, FILE *f)
{
	const char *colon = strrchr(token, ':'), *to;
	char host[TOKEN_MAX];

	if (!colon || !all_of(colon + 1, strlen(colon + 1), "0123456789"))
		return false;
	(void) snprintf(host, sizeof(host), "%.*s", (int) (colon - token), token);
	to = replacement(r, host);
	if (!to)
		return false;
	(void) fprintf(f, "%s%s", to, colon);
	return true;
}

/* Rewrites s token by token. malloc'ed; NULL without memory. */
static char *rewrite(struct redactor *r, const char *s)
{
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	if (!f)
		return NULL;
	while (*s) {
		char token[TOKEN_MAX];
		const char *to = NULL;
		size_t n = 0, keep;

		while (in_token(s[n]))
			n++;
		keep = n;
		/* punctuation that ends a sentence or a "name: " is not part of the word */
		while (keep > 0 && (s[keep - 1] == '.' || s[keep - 1] == ':'))
			keep--;
		if (keep > 0 && keep < sizeof(token)) {
			memcpy(token, s, keep);
			token[keep] = 0;
			to = replacement(r, token);
		}
		if (to)
			(void) fputs(to, f);
		else if (keep >= sizeof(token))
			(void) fputs("redacted", f); /* nothing of ours is that long */
		else if (keep > 0 && !write_with_port(r, token, f))
			write_parts(r, token, f);
		s += keep;
		if (*s)
			(void) fputc(*s++, f);
	}
	if (fclose(f) != 0) {
		free(out);
		return NULL;
	}
	return out;
}

static void walk(struct redactor *r, json_t *j);

static void walk_string(struct redactor *r, json_t *j)
{
	char *to = rewrite(r, json_string_value(j));

	if (!to || json_string_set(j, to) < 0)
		r->failed = true;
	free(to);
}

/* Names of people's things that have no shape: replaced by their key. */
static const char *by_key(const char *key)
{
	return strcmp(key, "cluster") == 0       ? "cluster-redacted"
	       : strcmp(key, "node_name") == 0   ? "node-redacted"
	       : strcmp(key, "private_dns") == 0 ? "host-redacted.internal"
	                                         : NULL;
}

static void walk(struct redactor *r, json_t *j)
{
	const char *key;
	json_t *value;
	size_t i;

	json_array_foreach (j, i, value) {
		walk(r, value);
	}
	json_object_foreach (j, key, value) {
		if (json_is_string(value) && by_key(key) && json_string_value(value)[0])
			r->failed |= json_string_set(value, by_key(key)) < 0;
		else
			walk(r, value);
	}
	if (json_is_string(j))
		walk_string(r, j);
}

int redact(json_t *j)
{
	struct redactor r = {.known = calloc(KNOWN_MAX, sizeof(*r.known))};

	if (!r.known)
		return -ENOMEM;
	walk(&r, j);
	free(r.known);
	return r.failed ? -ENOMEM : 0;
}
