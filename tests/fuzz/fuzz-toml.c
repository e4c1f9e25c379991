/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "toml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void note(const char *path, const char *value, size_t index, void *userdata)
{
	size_t *bytes = userdata;

	*bytes += strlen(path) + strlen(value) + index;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A block of its own, exactly as long, so that a byte read too many is seen. */
	char *text = malloc(size ? size : 1);
	size_t bytes = 0, line = 0;

	if (!text)
		return 0;
	memcpy(text, data, size);
	if (toml_parse(text, size, note, &bytes, &line) < 0 && line == 0)
		abort();
	free(text);
	return 0;
}
