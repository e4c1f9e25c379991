/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "tail.h"

int tail_read_new(struct tail_read **ret, sd_event *event, const struct files *files,
                  const struct tail_query *q, struct tail *where, tail_line_t line,
                  tail_done_t done, void *userdata)
{
	return -EOPNOTSUPP;
}

struct tail_read *tail_read_free(struct tail_read *t)
{
	return NULL;
}
