/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "sockdiag.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The kernel is trusted, and the layout of what it says is not. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tcp_sockets found = {0};
	_cleanup_(freep) void *aligned = malloc(size ? size : 1);
	struct address to;

	if (!aligned)
		return 0;
	memcpy(aligned, data, size);
	(void) address_parse(&to, size % 2 ? "10.0.2.90" : "fd00::1");
	(void) sockdiag_parse(&found, aligned, size, &to, 443);
	assert(found.n <= SOCKETS_MAX);
	return 0;
}
