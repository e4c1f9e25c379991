/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Looks for many literal strings in a line in one pass. The patterns live in the tables of those
 * who look; this only finds them. */

#include "util.h"

/* A plain value without pointers of its own, so that it can live in a probe's memory. The patterns
 * must outlive it: string literals in static tables. */
enum {
	MATCH_PATTERNS_MAX = 96,
	MATCH_SHORTEST = 4,
	MATCH_LONGEST = 255,
	MATCH_TABLE_BITS = 12,
};

struct match_set {
	uint64_t bits[2];
};

struct matcher {
	const char *const *patterns;
	size_t n, shortest;
	/* By the hash of three bytes: how far the window may move, or, from 128 on, the first
	 * pattern whose window ends in such bytes. */
	uint8_t table[1 << MATCH_TABLE_BITS];
	uint8_t next[MATCH_PATTERNS_MAX];   /* index + 1 of the next of the same bytes; 0: none */
	uint8_t length[MATCH_PATTERNS_MAX]; /* bytes of each */
	uint8_t start[MATCH_PATTERNS_MAX];  /* where in the pattern its window begins */
};

/* patterns: n literals of MATCH_SHORTEST to MATCH_LONGEST bytes; the longer the shortest of them,
 * the faster. -EINVAL otherwise. */
int matcher_init(struct matcher *m, const char *const *patterns, size_t n);
/* All patterns that occur in the text, in one pass: true when there is any. */
bool matcher_find(const struct matcher *m, const char *text, size_t len, struct match_set *ret);
static inline bool match_has(const struct match_set *s, size_t pattern)
{
	return s->bits[pattern / 64] >> pattern % 64 & 1;
}
