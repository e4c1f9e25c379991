/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Looks for many literal strings in a line in one pass. The patterns live in the tables of those
 * who look; this only finds them. */

#include "util.h"

/* A plain value without pointers of its own, so that it can live in a probe's memory. The patterns
 * must outlive it: string literals in static tables. */
enum { MATCH_PATTERNS_MAX = 96, MATCH_TABLE = 4096 };

struct match_set {
	uint64_t bits[2];
};

struct matcher {
	const char *const *patterns;
	size_t n, shortest;
	uint8_t shift[MATCH_TABLE];
	uint8_t first[MATCH_TABLE];         /* index + 1 of the first pattern of a bucket; 0 none */
	uint8_t next[MATCH_PATTERNS_MAX];   /* index + 1 of the next in it */
	uint8_t length[MATCH_PATTERNS_MAX]; /* bytes of each */
};

/* patterns: n literals of 4 to 255 bytes. -EINVAL otherwise. */
int matcher_init(struct matcher *m, const char *const *patterns, size_t n);
/* All patterns that occur in the text, in one pass: true when there is any. */
bool matcher_find(const struct matcher *m, const char *text, size_t len, struct match_set *ret);
static inline bool match_has(const struct match_set *s, size_t pattern)
{
	return s->bits[pattern / 64] >> pattern % 64 & 1;
}
