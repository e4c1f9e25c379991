/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "eni-limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size ? size : 1);
	struct limits l;
	unsigned bad;

	if (!text)
		return 0;
	memcpy(text, data, size);
	/* As both tables at once: each has its own idea of a row. */
	if (limits_parse(text, size, text, size, "m5.large", &l, &bad) == 0 &&
	    (l.max_enis < 1 || l.ipv4_per_eni < 1 || limits_max_pods(&l, true, true) < 2))
		abort();
	free(text);
	return 0;
}
