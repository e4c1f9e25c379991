/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "grpc.h"

int grpc_call_new(struct grpc_call **ret, struct http *http, const struct files *files,
                  const char *path, const char *method, const void *message, size_t len,
                  usec_t timeout, grpc_done_t done, void *userdata)
{
	return -EOPNOTSUPP;
}

struct grpc_call *grpc_call_free(struct grpc_call *c)
{
	return NULL;
}
