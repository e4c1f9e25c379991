/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <strings.h>

#include "aws.h"
#include "proxy.h"

/* ---- systemd's lines ---- */

static char *field_of(struct proxy_env *e, const char *name, size_t len)
{
	if (len == 10 && strncasecmp(name, "http_proxy", len) == 0)
		return e->http;
	if (len == 11 && strncasecmp(name, "https_proxy", len) == 0)
		return e->https;
	return len == 8 && strncasecmp(name, "no_proxy", len) == 0 ? e->no : NULL;
}

/* What does not fit is as good as unset: a cut list would accuse somebody of what was cut off. */
static void take_word(struct proxy_env *e, const char *word, size_t len)
{
	const char *equals = memchr(word, '=', len);
	char *field = equals ? field_of(e, word, (size_t) (equals - word)) : NULL;
	size_t n;

	if (!field)
		return;
	n = len - (size_t) (equals + 1 - word);
	if (n >= PROXY_TEXT_MAX)
		n = 0;
	memcpy(field, equals + 1, n);
	field[n] = 0;
}

/* Space, and the end of a line that goes on in the next one. */
static size_t blank(const char *p, const char *end)
{
	if (*p == ' ' || *p == '\t' || *p == '\r')
		return 1;
	return *p == '\\' && end - p > 1 && p[1] == '\n' ? 2 : 0;
}

/* One assignment's words, from behind its "="; returns where its last line ends. */
static const char *take_words(struct proxy_env *e, const char *p, const char *end)
{
	char word[PROXY_TEXT_MAX + 32];
	bool any = false;
	size_t n;

	for (;;) {
		char quote = 0;

		while (p < end && (n = blank(p, end)) > 0)
			p += n;
		if (p == end || *p == '\n')
			break;
		for (n = 0; p < end && (quote || (*p != '\n' && blank(p, end) == 0)); p++) {
			if (quote ? *p == quote : *p == '"' || *p == '\'') {
				quote = quote ? 0 : *p;
				continue;
			}
			if (*p == '\\' && end - p > 1)
				p++;
			if (n < sizeof(word))
				word[n] = *p;
			n++;
		}
		any = true;
		if (n <= sizeof(word))
			take_word(e, word, n);
	}
	if (!any)
		*e = (struct proxy_env){0};
	explicit_bzero(word, sizeof(word));
	return p;
}

void proxy_env_take(struct proxy_env *e, const char *key, const char *text, size_t len)
{
	const char *p = text, *end = text + len;
	size_t n = strlen(key);

	while (p < end) {
		const char *line = memchr(p, '\n', (size_t) (end - p));

		while (p < end && (*p == ' ' || *p == '\t'))
			p++;
		if ((size_t) (end - p) > n && memcmp(p, key, n) == 0) {
			const char *equals = p + n;

			while (equals < end && (*equals == ' ' || *equals == '\t'))
				equals++;
			if (equals < end && *equals == '=') {
				line = take_words(e, equals + 1, end);
				if (line == end)
					return;
			}
		}
		if (!line)
			return;
		p = line + 1;
	}
}

/* ---- a proxy's URL ---- */

int proxy_url(const char *text, struct proxy_url *ret)
{
	const char *rest = strstr(text, "://"), *at, *end;
	struct proxy_url u = {0};
	char url[PROXY_TEXT_MAX + 16];
	int n, r;

	if (rest && strncasecmp(text, "http://", 7) != 0 && strncasecmp(text, "https://", 8) != 0)
		return -EINVAL;
	rest = rest ? rest + 3 : text;
	end = rest + strcspn(rest, "/?#");
	at = memrchr(rest, '@', (size_t) (end - rest));
	u.user = at != NULL;
	n = snprintf(url, sizeof(url), "%s://%s",
	             strncasecmp(text, "https:", 6) == 0 ? "https" : "http", at ? at + 1 : rest);
	r = n < 0 || (size_t) n >= sizeof(url)
	            ? -EINVAL
	            : aws_endpoint_url(url, u.scheme, u.host, sizeof(u.host), &u.port);
	explicit_bzero(url, sizeof(url));
	if (r == 0)
		*ret = u;
	return r;
}

/* ---- NO_PROXY ---- */

/* "host", "host:port", "[v6]:port": cuts the port off in place. False when it is another port's. */
static bool take_port(char *entry, uint16_t port)
{
	char *colon = strrchr(entry, ':'), *bracket = strrchr(entry, ']');
	uint64_t n;

	if (!colon || (strchr(entry, ':') != colon && !bracket) || (bracket && colon < bracket))
		return true;
	*colon = 0;
	return text_to_uint(colon + 1, 1, UINT16_MAX, &n) == 0 && n == port;
}

static bool in_range(const char *entry, const struct address *a)
{
	char text[ADDRESS_TEXT_MAX];
	const char *slash = strchr(entry, '/');
	struct address prefix;
	uint64_t bits;

	if (!slash || (size_t) (slash - entry) >= sizeof(text))
		return false;
	memcpy(text, entry, (size_t) (slash - entry));
	text[slash - entry] = 0;
	return address_parse(&prefix, text) == 0 && prefix.family == a->family &&
	       text_to_uint(slash + 1, 0, 128, &bits) == 0 &&
	       address_in(a, &prefix, (unsigned) bits);
}

/* "x.y": it and what lies below; ".x.y", "*.x.y": what lies below. */
static bool in_domain(const char *entry, const char *host)
{
	size_t n, m = strlen(host);

	if (entry[0] == '*' && entry[1] == '.')
		entry++;
	n = strlen(entry);
	if (n == 0 || n > m || strcasecmp(host + m - n, entry) != 0)
		return false;
	return entry[0] == '.' ? m > n : m == n || host[m - n - 1] == '.';
}

static bool matches(char *entry, const char *host, const struct address *a, uint16_t port)
{
	struct address literal;

	if (strcmp(entry, "*") == 0)
		return true;
	if (strchr(entry, '/'))
		return a && in_range(entry, a);
	if (!take_port(entry, port))
		return false;
	if (address_parse(&literal, entry) == 0)
		return a && address_equal(a, &literal);
	return !a && in_domain(entry, host);
}

bool proxy_bypasses(const char *no_proxy, const char *host, uint16_t port)
{
	struct address a;
	bool literal = address_parse(&a, host) == 0;
	char list[PROXY_TEXT_MAX], *rest = list, *entry;

	if (strcasecmp(host, "localhost") == 0 || (literal && address_is_loopback(&a)))
		return true;
	(void) snprintf(list, sizeof(list), "%s", no_proxy);
	while ((entry = strsep(&rest, ",")))
		if (matches(text_trim(entry), host, literal ? &a : NULL, port))
			return true;
	return false;
}
