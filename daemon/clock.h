/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The only place that asks the kernel what time it is. */

#include "util.h"

enum { CLOCK_TEXT_MAX = 32 };

usec_t clock_boottime(void); /* CLOCK_BOOTTIME: runs on through a suspend; for intervals */
usec_t clock_realtime(void); /* wall time since the epoch; for people */
usec_t clock_cpu(void);      /* processor time of this process */

/* What the kernel knows of the discipline of its wall clock, which chronyd and the like tell it.
 * Not allowed to ask: -EPERM. */
struct clock_kernel {
	bool synchronised;
	int64_t max_error_ms;
};
int clock_ask_kernel(struct clock_kernel *ret);

/* RFC 3339 in UTC with milliseconds. Pure. */
const char *clock_format(usec_t realtime, char dst[static CLOCK_TEXT_MAX]);
/* Reads clock_format() back, with or without the fraction. -EINVAL. Pure. */
int clock_parse(const char *s, usec_t *ret);
