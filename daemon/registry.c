/* SPDX-License-Identifier: Apache-2.0 */
#include "probe.h"

const struct probe *const probes[] = {
#define PROBE(id) &probe_##id,
#include "../probes/list.h"
#undef PROBE
	NULL,
};

const struct probe *probe_by_name(const char *name)
{
	for (const struct probe *const *p = probes; *p; p++)
		if (strcmp((*p)->name, name) == 0)
			return *p;
	return NULL;
}

size_t probe_count(void)
{
	return ELEMENTS(probes) - 1;
}
