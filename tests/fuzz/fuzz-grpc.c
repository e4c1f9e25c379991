/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "grpc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Each field lies within the message; what is read again as a message of its own, as an inner one
 * would be, does too. */
static void walk(const uint8_t *message, size_t len, int depth)
{
	const uint8_t *p = message, *end = message + len, *before = p;
	struct pb_field f, last;
	int r;

	while ((r = pb_next(&p, end, &f)) > 0) {
		if (p <= before || p > end || f.number == 0)
			abort();
		before = p;
		if (f.wire == 2 && (f.bytes < message || f.bytes + f.len > end))
			abort();
		if (f.wire == 2 && depth < 4)
			walk(f.bytes, f.len, depth + 1);
	}
	if (r != 0 && r != -EBADMSG)
		abort();
	if ((pb_find(message, len, 1, 2, &last) < 0) != (r < 0))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* A block of its own, exactly as long, so that a byte read too many is seen. */
	uint8_t *body = malloc(size ? size : 1);
	const uint8_t *message;
	size_t len;

	if (!body)
		return 0;
	memcpy(body, data, size);
	if (grpc_frame_read(body, size, &message, &len) == 0) {
		if (message < body || message + len != body + size)
			abort();
		walk(message, len, 0);
	}
	walk(body, size, 0);
	free(body);
	return 0;
}
