/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "bus.h"

struct bus {
	bus_changed_t changed;
};

int bus_new(struct bus **ret, sd_event *event, const struct files *files, bus_changed_t changed,
            void *userdata)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

struct bus *bus_free(struct bus *b)
{
	free(b);
	return NULL;
}

int bus_watch(struct bus *b, const char *unit)
{
	return -EOPNOTSUPP;
}

int bus_call_new(struct bus_call **ret, struct bus *b, const char *unit, usec_t timeout,
                 bus_done_t done, void *userdata)
{
	return -EOPNOTSUPP;
}

struct bus_call *bus_call_free(struct bus_call *c)
{
	return NULL;
}
