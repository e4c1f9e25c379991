/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "envfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void note(const char *name, const char *value, void *userdata)
{
	if (!*name || strlen(name) >= ENVFILE_NAME_MAX || strlen(value) >= ENVFILE_VALUE_MAX)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A block of its own, exactly as long, so that a byte read too many is seen. */
	char *text = malloc(size ? size : 1);

	if (!text)
		return 0;
	memcpy(text, data, size);
	envfile_parse(text, size, note, NULL);
	free(text);
	return 0;
}
