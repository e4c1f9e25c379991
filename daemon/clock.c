/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/timex.h>
#include <time.h>

#include "clock.h"

static usec_t read_clock(clockid_t id)
{
	struct timespec ts = {0};

	/* these clocks exist on every kernel that we run on: the call cannot fail */
	(void) clock_gettime(id, &ts);
	return (usec_t) ts.tv_sec * USEC_PER_SEC + (usec_t) ts.tv_nsec / 1000;
}

usec_t clock_boottime(void)
{
	return read_clock(CLOCK_BOOTTIME);
}

usec_t clock_realtime(void)
{
	return read_clock(CLOCK_REALTIME);
}

usec_t clock_cpu(void)
{
	return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

int clock_ask_kernel(struct clock_kernel *ret)
{
	struct timex t = {.modes = 0}; /* reads only */

	if (adjtimex(&t) < 0)
		return -errno;
	*ret = (struct clock_kernel){.synchronised = !(t.status & STA_UNSYNC),
	                             .max_error_ms = t.maxerror / 1000};
	return 0;
}

const char *clock_format(usec_t realtime, char dst[static CLOCK_TEXT_MAX])
{
	time_t t = (time_t) (realtime / USEC_PER_SEC);
	struct tm tm;
	size_t n = 0;

	if (gmtime_r(&t, &tm))
		n = strftime(dst, CLOCK_TEXT_MAX, "%Y-%m-%dT%H:%M:%S", &tm);
	(void) snprintf(dst + n, CLOCK_TEXT_MAX - n, ".%03uZ",
	                (unsigned) (realtime % USEC_PER_SEC / 1000));
	return dst;
}

int clock_parse(const char *s, usec_t *ret)
{
	struct tm tm = {0};
	const char *end = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);
	usec_t fraction = 0;
	time_t t;

	if (!end)
		return -EINVAL;
	if (*end == '.') {
		usec_t unit = 100000;

		for (end++; *end >= '0' && *end <= '9'; end++, unit /= 10)
			fraction += (usec_t) (*end - '0') * unit;
	}
	if (strcmp(end, "Z") != 0)
		return -EINVAL;
	t = timegm(&tm);
	if (t < 0)
		return -EINVAL;
	*ret = (usec_t) t * USEC_PER_SEC + fraction;
	return 0;
}
