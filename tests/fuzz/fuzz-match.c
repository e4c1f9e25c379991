/* SPDX-License-Identifier: Apache-2.0 */
/* The patterns are the input's first lines, the text what follows an empty one: what is found must
 * be what memmem() finds. */

#include <assert.h>

#include "match.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *copy = malloc(size + 1);
	const char *patterns[MATCH_PATTERNS_MAX + 1] = {0};
	struct match_set set;
	struct matcher m;
	size_t n = 0, at = 0;

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	copy[size] = 0;
	while (at < size && copy[at] != '\n' && n < ELEMENTS(patterns)) {
		size_t len = strcspn(copy + at, "\n");

		patterns[n++] = copy + at;
		if (at + len < size)
			copy[at + len] = 0;
		at += len + (at + len < size);
	}
	if (matcher_init(&m, patterns, n) == 0) {
		bool any = matcher_find(&m, copy + at, size - at, &set), found = false;

		for (size_t i = 0; i < n; i++) {
			bool has = memmem(copy + at, size - at, patterns[i], strlen(patterns[i]));

			assert(has == match_has(&set, i));
			found |= has;
		}
		assert(any == found);
	}
	free(copy);
	return 0;
}
