/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "../tap.h"
#include "proxy.h"

static struct proxy_env taken(const char *text)
{
	struct proxy_env e = {0};

	proxy_env_take(&e, "Environment", text, strlen(text));
	return e;
}

static void lines(void)
{
	static const char dropin[] =
		"[Service]\n# Environment=HTTP_PROXY=http://no:1\n"
		"Environment=\"HTTPS_PROXY=http://u:p w@proxy:3128\" 'no_proxy=a,b' X=y\n"
		" Environment = http_proxy=http://proxy:80 \\\n  \"NO_PROXY=c, d\"\n"
		"EnvironmentFile=/etc/NO_PROXY=x\nDefaultEnvironment=NO_PROXY=y";
	struct proxy_env e = taken(dropin);
	char longer[PROXY_TEXT_MAX * 2], text[PROXY_TEXT_MAX * 2 + 64];

	ok(strcmp(e.https, "http://u:p w@proxy:3128") == 0);
	ok(strcmp(e.http, "http://proxy:80") == 0 && strcmp(e.no, "c, d") == 0);
	e = taken("Environment=NO_PROXY=a\nEnvironment=\n");
	ok(!e.no[0]);
	e = taken("Environment=NO_PROXY=a\\\\b \"HTTP_PROXY=x");
	ok(strcmp(e.no, "a\\b") == 0 && strcmp(e.http, "x") == 0);
	e = taken("Environment=NO_PROXY\nEnvironment=HTTP_PROXYS=x\nEnvironment");
	ok(!e.no[0] && !e.http[0]);
	e = taken("");
	ok(!e.http[0] && !e.https[0] && !e.no[0]);
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = 0;
	(void) snprintf(text, sizeof(text), "Environment=NO_PROXY=%s\nEnvironment=HTTP_PROXY=h",
	                longer);
	e = taken(text);
	ok(!e.no[0] && strcmp(e.http, "h") == 0);
}

static bool url_is(const char *text, const char *scheme, const char *host, unsigned port, bool user)
{
	struct proxy_url u;

	return proxy_url(text, &u) == 0 && strcmp(u.scheme, scheme) == 0 &&
	       strcmp(u.host, host) == 0 && u.port == port && u.user == user;
}

static void urls(void)
{
	static const char *const bad[] = {"", "socks5://x:1", "http://", "http://u@", "a b", "x:0"};
	struct proxy_url u;

	ok(url_is("http://proxy.corp:3128", "http", "proxy.corp", 3128, false));
	ok(url_is("HTTPS://proxy.corp/", "https", "proxy.corp", 443, false));
	ok(url_is("proxy.corp:8080", "http", "proxy.corp", 8080, false));
	ok(url_is("http://user:p@ss@10.0.0.9:80", "http", "10.0.0.9", 80, true));
	ok(url_is("http://u:p@[fd00::1]:3128", "http", "fd00::1", 3128, true));
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		ok(proxy_url(bad[i], &u) == -EINVAL);
}

static void exemptions(void)
{
	static const struct {
		const char *list, *host;
		bool bypasses;
	} rows[] = {
		{"", "x", false},
		{"", "localhost", true},
		{"", "127.0.0.1", true},
		{"", "::1", true},
		{"*", "x", true},
		{"169.254.169.254", "169.254.169.254", true},
		{"a, 169.254.169.254 ,b", "169.254.169.254", true},
		{"169.254.0.0/16", "169.254.169.254", true},
		{"169.254.0.0/99", "169.254.169.254", false},
		{"169.254.169.253", "169.254.169.254", false},
		{"10.0.0.0/8", "169.254.169.254", false},
		{"10.0.0.0/8", "x.internal", false}, /* a name is not resolved first */
		{"fd00::/8", "fd00:ec2::254", true},
		{"[fd00:ec2::254]:443", "fd00:ec2::254", true},
		{"eks.amazonaws.com", "a.gr7.us-west-2.eks.amazonaws.com", true},
		{".eks.amazonaws.com", "a.gr7.us-west-2.eks.amazonaws.com", true},
		{"*.EKS.amazonaws.com", "a.gr7.us-west-2.eks.amazonaws.com", true},
		{".eks.amazonaws.com", "eks.amazonaws.com", false},
		{"eks.amazonaws.com", "eks.amazonaws.com", true},
		{"ks.amazonaws.com", "a.eks.amazonaws.com", false},
		{"x:443", "x", true},
		{"x:80", "x", false},
		{"x:nonsense", "x", false},
		{",,", "x", false},
	};

	for (size_t i = 0; i < ELEMENTS(rows); i++)
		if (proxy_bypasses(rows[i].list, rows[i].host, 443) != rows[i].bypasses) {
			printf("# %s, %s\n", rows[i].list, rows[i].host);
			ok(false);
		} else {
			ok(true);
		}
}

int main(void)
{
	lines();
	urls();
	exemptions();
	return done();
}
