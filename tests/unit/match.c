/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "match.h"

#include "../tap.h"

/* What a reader who looks for each pattern in turn would find. */
static struct match_set slowly(const char *const *patterns, size_t n, const char *text, size_t len)
{
	struct match_set set = {0};

	for (size_t i = 0; i < n; i++)
		if (memmem(text, len, patterns[i], strlen(patterns[i])))
			set.bits[i / 64] |= UINT64_C(1) << i % 64;
	return set;
}

static bool same(const struct matcher *m, const char *text, size_t len)
{
	struct match_set want = slowly(m->patterns, m->n, text, len), got;
	/* Nothing beyond its ends is read: a heap block of its own, for the sanitizer. */
	char *copy = malloc(len + !len);
	bool any;

	if (!copy)
		return false;
	memcpy(copy, text, len);
	any = matcher_find(m, copy, len, &got);
	free(copy);
	return memcmp(&want, &got, sizeof(want)) == 0 && any == (want.bits[0] || want.bits[1]);
}

static void test_bounds(void)
{
	static const char long_one[] =
		"0123456789012345678901234567890123456789012345678901234567890123456789012345678901"
		"2345678901234567890123456789012345678901234567890123456789012345678901234567890123"
		"4567890123456789012345678901234567890123456789012345678901234567890123456789012345"
		"6789abcde";
	const char *patterns[MATCH_PATTERNS_MAX + 1];
	struct match_set set;
	struct matcher m;

	for (size_t i = 0; i < ELEMENTS(patterns); i++)
		patterns[i] = "same";
	ok(matcher_init(&m, patterns, 0) == -EINVAL);
	ok(matcher_init(&m, patterns, MATCH_PATTERNS_MAX + 1) == -EINVAL);
	ok(matcher_init(&m, patterns, MATCH_PATTERNS_MAX) == 0);
	ok(matcher_find(&m, "the same", 8, &set) && set.bits[0] == UINT64_MAX &&
	   set.bits[1] == UINT32_MAX);
	ok(!matcher_find(&m, "the sam", 7, &set) && !matcher_find(&m, "", 0, &set));
	patterns[1] = "abc";
	ok(matcher_init(&m, patterns, 2) == -EINVAL);
	patterns[1] = long_one;
	ok(strlen(long_one) == MATCH_LONGEST && matcher_init(&m, patterns, 2) == 0);
	ok(matcher_find(&m, long_one, MATCH_LONGEST, &set) && match_has(&set, 1) &&
	   !match_has(&set, 0));
	ok(!matcher_find(&m, long_one, MATCH_LONGEST - 1, &set));
	ok(matcher_init(&m, patterns + 1, 1) == 0 && same(&m, long_one, MATCH_LONGEST));
}

static void test_places(void)
{
	static const char *const patterns[] = {
		"UnauthorizedOperation", "Unauthorized",     "Operation",        "ationUna",
		"\"level\":\"error\"",   "Failed to attach", "Failed to detach", "to attach ENI"};
	static const char nul[] = "x\0Operation\0Failed to attach ENI eni-0123";
	struct match_set set;
	struct matcher m;

	ok(matcher_init(&m, patterns, ELEMENTS(patterns)) == 0);
	ok(same(&m, "UnauthorizedOperation", 21));
	ok(same(&m, "UnauthorizedOperationUnauthorized", 33));
	ok(same(&m, "nauthorizedOperatio", 19));
	ok(same(&m, nul, sizeof(nul)));
	ok(matcher_find(&m, nul, sizeof(nul), &set) && match_has(&set, 2) && match_has(&set, 5) &&
	   match_has(&set, 7) && !match_has(&set, 0) && !match_has(&set, 6));
}

/* Short patterns of few letters: every shift, overlap and bucket is met. */
static void test_random(void)
{
	unsigned seed = 7, bad = 0, hits = 0;

	for (unsigned round = 0; round < 3000; round++) {
		unsigned letters = 2 + round % 3;
		char words[12][12], text[200];
		const char *patterns[12];
		struct matcher m;
		size_t len;

		for (size_t i = 0; i < ELEMENTS(words); i++) {
			size_t n = 4 + (size_t) rand_r(&seed) % 7;

			for (size_t k = 0; k < n; k++)
				words[i][k] = (char) ('a' + (unsigned) rand_r(&seed) % letters);
			words[i][n] = 0;
			patterns[i] = words[i];
		}
		len = (size_t) rand_r(&seed) % sizeof(text);
		for (size_t k = 0; k < len; k++)
			text[k] = (char) ('a' + (unsigned) rand_r(&seed) % letters);
		if (matcher_init(&m, patterns, 1 + round % ELEMENTS(words)) < 0 ||
		    !same(&m, text, len))
			bad++;
		else
			hits += slowly(patterns, m.n, text, len).bits[0] != 0;
	}
	ok(bad == 0 && hits > 300 && hits < 2900);
}

int main(void)
{
	test_bounds();
	test_places();
	test_random();
	return done();
}
