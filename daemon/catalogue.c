/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <syslog.h>

#include "catalogue.h"

static const struct cause causes[_CODE_MAX] = {
#define FINDING(code, layer_, condition_, severity_, kind_, explains_, from_, decided, remedy_)    \
	[CODE_##code] = {.name = #code,                                                            \
	                 .layer = LAYER_##layer_,                                                  \
	                 .condition = CONDITION_##condition_,                                      \
	                 .severity = SEVERITY_##severity_,                                         \
	                 .kind = KIND_##kind_,                                                     \
	                 .explains = EXPLAINS_##explains_,                                         \
	                 .from = FROM_##from_,                                                     \
	                 .decided_by = decided,                                                    \
	                 .remedy = remedy_},
#include "catalogue.def"
#undef FINDING
};

static const char *const conditions[] = {[CONDITION_None] = "-",
#define X(name) [CONDITION_##name] = #name,
                                         CONDITIONS(X)
#undef X
};

const struct cause *cause_of(enum code c)
{
	assert(c > CODE_NONE && c < _CODE_MAX);
	return &causes[c];
}

enum code code_from_name(const char *s)
{
	for (int i = CODE_NONE + 1; i < _CODE_MAX; i++)
		if (strcmp(causes[i].name, s) == 0)
			return (enum code) i;
	return CODE_NONE;
}

const char *condition_name(enum condition c)
{
	return conditions[c];
}

int condition_from_name(const char *s)
{
	for (int i = CONDITION_None + 1; i < _CONDITION_MAX; i++)
		if (strcmp(conditions[i], s) == 0)
			return i;
	return -EINVAL;
}

const char *severity_name(enum severity s)
{
	static const char *const names[] = {"notice", "degraded", "fatal"};

	return names[s];
}

int severity_priority(enum severity s)
{
	static const int priorities[] = {LOG_NOTICE, LOG_WARNING, LOG_ERR};

	return priorities[s];
}

void code_message_id(const char *name, char ret[static 33])
{
	uint64_t high = hash_text(UINT64_C(0x6e6f6465776879), name), low = hash_text(high, name);

	(void) snprintf(ret, 33, "%016llx%016llx", (unsigned long long) high,
	                (unsigned long long) low);
}
