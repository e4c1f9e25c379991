/* SPDX-License-Identifier: Apache-2.0 */
/* What a runtime says of containers and of how one ended. */
#include <stdlib.h>

#include "cri.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A block of its own, exactly as long, so that a byte read too many is seen. */
	uint8_t *message = malloc(size ? size : 1);
	char id[CRI_ID_MAX];
	struct cri_exit e;

	if (!message)
		return 0;
	memcpy(message, data, size);
	if (cri_newest_exited(message, size, id) == 0 && (!id[0] || strlen(id) >= sizeof(id)))
		abort();
	if (cri_exit_read(message, size, &e) == 0 && !text_is_clean(e.reason, strlen(e.reason)))
		abort();
	free(message);
	return 0;
}
