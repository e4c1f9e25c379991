/* SPDX-License-Identifier: Apache-2.0 */
/* util.c, address.c, clock.c, catalogue.c: the small pure things. */
#include <errno.h>

#include "../tap.h"
#include "address.h"
#include "catalogue.h"
#include "clock.h"

static void test_text(void)
{
	char s[12], t[64], big[SUMMARY_MAX];

	ok(text_format(s, sizeof(s), "%s", "short") == 5 && strcmp(s, "short") == 0);
	ok(text_format(s, sizeof(s), "%s", "exactly 11c") == 11);
	(void) text_format(s, sizeof(s), "%s", "one byte too many");
	ok(strcmp(s, "one byte…") == 0); /* 8 + 3 bytes */
	(void) text_format(s, sizeof(s), "%s", "abcdefg한글한글");
	ok(strcmp(s, "abcdefg…") == 0); /* never half a character */
	(void) text_format(s, sizeof(s), "%s", "abc");
	(void) text_append(s, sizeof(s), "%s", "def");
	ok(strcmp(s, "abcdef") == 0);
	ok(text_append(s, sizeof(s), "%s", "ghijklmnopq") == strlen(s) && strlen(s) < sizeof(s));

	(void) text_clean(t, sizeof(t), "a\033[31mb\0c\xff\xc2\x85", 12);
	ok(strcmp(t, "a\\x1b[31mb\\x00c\\xff\\xc2\\x85") == 0);
	(void) text_clean(t, sizeof(t), "네트워크", strlen("네트워크"));
	ok(strcmp(t, "네트워크") == 0);
	(void) text_clean(t, sizeof(t), "\xed\xa0\x80\xc0\xaf\xf4\x90\x80\x80",
	                  9); /* surrogate, overlong, too high */
	ok(strncmp(t, "\\xed\\xa0\\x80\\xc0\\xaf\\xf4", 24) == 0);
	memset(big, 0, sizeof(big));
	for (size_t n = 0; n < sizeof(big); n++) { /* any size of buffer stays in its bounds */
		char in[] = "12345678\x01\xe2\x82\xac"
			    "9abcdefgh\x7f";
		char *b = malloc(n + 1);
		size_t len;

		b[n] = 'X';
		len = text_clean(b, n, in, sizeof(in) - 1);
		if (b[n] != 'X' || (n > 0 && (len >= n || strlen(b) != len)))
			ok(false, "%zu", n);
		free(b);
	}
	ok(text_is_clean("a\tb\n", 4));
	ok(!text_is_clean("a\033b", 3));
	ok(!text_is_clean("a\0b", 3));

	(void) text_ascii(t, sizeof(t), "90% of 한글… é\n");
	ok(strcmp(t, "90pct of ??... ??") == 0);
	(void) text_ascii(s, 4, "ab%cd");
	ok(strcmp(s, "ab") == 0);
}

static void test_numbers(void)
{
	uint64_t v = 7;

	ok(text_to_uint("0", 0, 10, &v) == 0 && v == 0);
	ok(text_to_uint("18446744073709551615", 0, UINT64_MAX, &v) == 0 && v == UINT64_MAX);
	ok(text_to_uint("18446744073709551616", 0, UINT64_MAX, &v) == -ERANGE);
	ok(text_to_uint("11", 0, 10, &v) == -ERANGE);
	ok(text_to_uint("", 0, 10, &v) == -EINVAL);
	ok(text_to_uint("-1", 0, 10, &v) == -EINVAL);
	ok(text_to_uint(" 1", 0, 10, &v) == -EINVAL);
	ok(text_to_uint("1x", 0, 10, &v) == -EINVAL);
	ok(v == UINT64_MAX); /* written on success only */
}

static bool is(const char *what, const char *address, bool (*predicate)(const struct address *))
{
	struct address a;
	bool yes = address_parse(&a, address) == 0 && predicate(&a);

	printf("# %s %s: %d\n", address, what, yes);
	return yes;
}

static void test_address(void)
{
	static const char *const kinds[][2] = {
		{"127.0.0.9", "loopback"},        {"::1", "loopback"},
		{"169.254.1.1", "link-local"},    {"fe80::1", "link-local"},
		{"10.0.0.1", "private"},          {"fd00::1", "private"},
		{"0.0.0.0", "reserved"},          {"::", "reserved"},
		{"::ffff:127.0.0.1", "reserved"}, {"239.1.2.3", "reserved"},
		{"255.255.255.255", "reserved"},  {"52.94.1.1", "public"},
		{"2600:1f14::1", "public"}};
	struct address a, p;
	char s[ADDRESS_TEXT_MAX];

	ok(address_parse(&a, "169.254.169.254") == 0 &&
	   strcmp(address_format(&a, s), "169.254.169.254") == 0);
	ok(address_parse(&a, "[fd00:ec2::254]") == 0 &&
	   strcmp(address_format(&a, s), "fd00:ec2::254") == 0);
	ok(address_parse(&a, "1.2.3") == -EINVAL);
	ok(address_parse(&a, "") == -EINVAL);
	ok(address_parse(&a, "ec2.amazonaws.com") == -EINVAL);
	ok(address_parse(&a, "1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa:bbbb:cccc") ==
	   -EINVAL);
	ok(is("private", "172.31.255.1", address_is_private));
	ok(!is("private", "172.32.0.1", address_is_private));
	ok(is("private", "100.64.1.1", address_is_private));
	ok(is("private", "fd12::1", address_is_private));
	ok(!is("private", "52.94.1.1", address_is_private));
	for (size_t i = 0; i < ELEMENTS(kinds); i++)
		ok(address_parse(&a, kinds[i][0]) == 0 &&
		   strcmp(address_kind(&a), kinds[i][1]) == 0);
	ok(is("loopback", "127.0.0.53", address_is_loopback));
	ok(is("link-local", "fe80::1", address_is_link_local));
	ok(address_parse(&a, "10.0.1.130") == 0 && address_parse(&p, "10.0.1.128") == 0);
	ok(address_in(&a, &p, 25) && !address_in(&a, &p, 31) && address_in(&a, &p, 0));
	ok(!address_in(&a, &p, 33));
}

static void test_clock(void)
{
	char s[CLOCK_TEXT_MAX];
	usec_t t, back;

	t = UINT64_C(1796000000123000);
	ok(clock_parse(clock_format(t, s), &back) == 0 && back == t);
	printf("# %s\n", s);
	ok(clock_parse("2026-11-30T20:00:00Z", &t) == 0 && t % USEC_PER_SEC == 0);
	ok(clock_parse("2026-11-30 20:00:00", &t) == -EINVAL);
	ok(clock_parse("yesterday", &t) == -EINVAL);
	t = clock_boottime();
	ok(clock_boottime() >= t);
}

static void test_catalogue(void)
{
	char a[33], b[33];
	int n = 0;

	for (int i = CODE_NONE + 1; i < _CODE_MAX; i++, n++) {
		const struct cause *c = cause_of((enum code) i);

		if (code_from_name(c->name) != (enum code) i || !c->decided_by[0] || !c->remedy[0])
			ok(false, "%s", c->name);
		if (i > 1 && c->layer < cause_of((enum code)(i - 1))->layer)
			ok(false, "%s is out of order", c->name);
		/* an alert of a notice would be a false alarm by construction */
		if (c->severity == SEVERITY_NOTICE && c->explains != EXPLAINS_NOTHING)
			ok(false, "%s is a notice that explains", c->name);
	}
	ok(n >= 125);
	ok(code_from_name("Nonsense") == CODE_NONE);
	code_message_id("ImdsUnreachable", a);
	code_message_id("ImdsUnreachablf", b);
	ok(strlen(a) == 32 && strspn(a, "0123456789abcdef") == 32 && strcmp(a, b) != 0);
	/* for ever: dashboards rely on it */
	printf("# %s\n", a);
}

static void columns(void)
{
	ok(text_columns("abc", 3) == 3 && text_columns("한글", 6) == 4 &&
	   text_columns("é", 2) == 1);
	ok(text_columns("e\xcc\x81", 3) == 1 && text_columns("\xff\xfe", 2) == 2);
	ok(text_columns("🎉", 4) == 2 && text_columns("", 0) == 0);
	ok(text_fit("한글", 6, 3) == 3 && text_fit("한글", 6, 4) == 6 &&
	   text_fit("abc", 3, 2) == 2);
	ok(text_fit("한글", 6, 1) == 0);
}

static void turned(void)
{
	char s[64];

	(void) text_clean(s, sizeof(s),
	                  "a\xe2\x80\xae"
	                  "b\xe2\x80\xa8",
	                  8);
	ok(strcmp(s, "a\\xe2\\x80\\xaeb\\xe2\\x80\\xa8") == 0);
	ok(!text_is_clean("\xe2\x81\xa6", 3) && text_is_clean("\xe2\x80\xa6", 3));
}

static bool hides(const char *text, const char *want)
{
	char s[160];

	(void) text_format(s, sizeof(s), "%s", text);
	text_hide_secrets(s, sizeof(s));
	if (strcmp(s, want) == 0)
		return true;
	printf("# %s\n", s);
	return false;
}

static void secrets(void)
{
	ok(hides("exec: AWS_SECRET_ACCESS_KEY=abc AWS_SESSION_TOKEN=def",
	         "exec: AWS_SECRET_ACCESS_KEY=…"));
	ok(hides("GET /?X-Amz-Credential=A&X-Amz-Signature=f", "GET /?X-Amz-Credential=…"));
	ok(hides("DB_PASSWORD_FILE: x", "DB_PASSWORD_FILE:…"));
	ok(hides("dial http://me:pw@proxy:3128/", "dial http://*****@proxy:3128/"));
	ok(hides("got k8sAws4aHR0cHM6Ly9zdHMuYW1hem9uYXdz",
	         "got ***********************************"));
	ok(hides("no basic auth credentials", "no basic auth credentials"));
	ok(hides("secret \"x\" not found", "secret \"x\" not found"));
	ok(hides("password=", "password="));
	ok(hides("", ""));
}

int main(void)
{
	secrets();
	test_text();
	test_numbers();
	test_address();
	test_clock();
	test_catalogue();
	columns();
	turned();
	return done();
}
