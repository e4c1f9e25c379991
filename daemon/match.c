/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "match.h"

/* Wu and Manber's search: a window as long as the shortest pattern moves over the text, and the
 * last bytes in it say how far it may jump without missing any pattern. In a log most windows hold
 * nothing that any pattern has, so most steps are as long as a window. A loop of memmem(), fast as
 * one is, would read the text once for every pattern; a vectorized filter on the first bytes finds
 * a candidate in every few words of English. */

/* In the table: the longest step, and what a pattern's number is added to. */
enum { BLOCK = 3, SHIFT_MAX = 127, HIT };

static inline size_t hash(uint32_t block)
{
	return block * UINT32_C(2654435761) >> (32 - MATCH_TABLE_BITS);
}

static inline uint32_t block_of(const char *at)
{
	return (uint32_t) (uint8_t) at[0] | (uint32_t) (uint8_t) at[1] << 8 |
	       (uint32_t) (uint8_t) at[2] << 16;
}

/* The same where a byte stands before it: one load of four instead of three of one. */
static inline uint32_t block_behind(const char *at)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	uint32_t x;

	memcpy(&x, at - 1, sizeof(x));
	return x >> 8;
#else
	return block_of(at);
#endif
}

/* The window of a pattern may be any part of it as long as the shortest pattern. */
static void add(struct matcher *m, size_t i)
{
	const char *window = m->patterns[i] + m->start[i];
	size_t last = m->shortest - BLOCK;
	uint8_t *v;

	for (size_t at = 0; at < last; at++) {
		v = &m->table[hash(block_of(window + at))];
		if (*v<HIT && * v> last - at)
			*v = (uint8_t) (last - at);
	}
	v = &m->table[hash(block_of(window + last))];
	m->next[i] = *v < HIT ? 0 : (uint8_t) (*v - HIT + 1);
	*v = (uint8_t) (HIT + i);
}

int matcher_init(struct matcher *m, const char *const *patterns, size_t n)
{
	size_t most;

	if (n == 0 || n > MATCH_PATTERNS_MAX)
		return -EINVAL;
	*m = (struct matcher){.patterns = patterns, .n = n, .shortest = MATCH_LONGEST};
	for (size_t i = 0; i < n; i++) {
		size_t len = strlen(patterns[i]);

		if (len < MATCH_SHORTEST || len > MATCH_LONGEST)
			return -EINVAL;
		m->length[i] = (uint8_t) len;
		if (len < m->shortest)
			m->shortest = len;
	}
	most = m->shortest - BLOCK + 1; /* bytes that no window has: past all of them */
	memset(m->table, most < SHIFT_MAX ? (int) most : SHIFT_MAX, sizeof(m->table));
	for (size_t i = 0; i < n; i++)
		add(m, i);
	return 0;
}

static bool check(const struct matcher *m, size_t head, const char *text, size_t len, size_t window,
                  struct match_set *set)
{
	bool any = false;

	for (size_t i = head + 1; i; i = m->next[i - 1]) {
		size_t p = i - 1, start = m->start[p];

		if (start > window || len - (window - start) < m->length[p] ||
		    memcmp(text + window - start, m->patterns[p], m->length[p]) != 0)
			continue;
		set->bits[p / 64] |= UINT64_C(1) << p % 64;
		any = true;
	}
	return any;
}

bool matcher_find(const struct matcher *m, const char *text, size_t len, struct match_set *ret)
{
	size_t last = m->shortest - BLOCK;
	bool any = false;

	*ret = (struct match_set){0};
	if (len < m->shortest)
		return false;
	for (size_t at = last; at <= len - BLOCK;) {
		uint8_t v = m->table[hash(block_behind(text + at))];

		if (v < HIT) {
			at += v;
			continue;
		}
		any |= check(m, v - HIT, text, len, at - last, ret);
		at++;
	}
	return any;
}
