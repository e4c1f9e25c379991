/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The catalogue of findings and of node conditions: constant data. */

#include "observation.h"

enum code {
	CODE_NONE,
#define FINDING(code, ...) CODE_##code,
#include "catalogue.def"
#undef FINDING
	_CODE_MAX
};

/* clang-format off */
#define CONDITIONS(X) \
	X(HostProblem) \
	X(HostNetworkProblem) \
	X(InstanceMetadataProblem) \
	X(InstanceCredentialsProblem) \
	X(DnsProblem) \
	X(AwsEndpointProblem) \
	X(BootstrapProblem) \
	X(ContainerRuntimeProblem) \
	X(ControlPlaneProblem) \
	X(NodeIdentityProblem) \
	X(KubeletProblem) \
	X(CniProblem) \
	X(PodAddressProblem)
/* clang-format on */

enum condition {
	CONDITION_None,
#define X(name) CONDITION_##name,
	CONDITIONS(X)
#undef X
		_CONDITION_MAX
};

enum severity { SEVERITY_NOTICE, SEVERITY_DEGRADED, SEVERITY_FATAL, _SEVERITY_MAX };
enum kind { KIND_CAUSE, KIND_SYMPTOM };
enum explains {
	EXPLAINS_NOTHING,
	EXPLAINS_CNI,
	EXPLAINS_LINKLOCAL,
	EXPLAINS_LOCAL,
	EXPLAINS_WORK,
	EXPLAINS_PACKETS,
	EXPLAINS_METADATA,
	EXPLAINS_SUBJECT,
	EXPLAINS_SYMPTOMS,
	EXPLAINS_BELOW,
};
enum from { FROM_ALONE, FROM_PATH, FROM_TRUST, FROM_SETUP, FROM_PULL, FROM_NEEDS, FROM_ANY };

struct cause {
	const char *name;
	enum layer layer;
	enum condition condition;
	enum severity severity;
	enum kind kind;
	enum explains explains;
	enum from from;
	const char *decided_by, *remedy;
};

/* CODE_NONE < c < _CODE_MAX. */
const struct cause *cause_of(enum code c);
enum code code_from_name(const char *s); /* CODE_NONE when there is none */
const char *condition_name(enum condition c);
int condition_from_name(const char *s); /* -EINVAL */
const char *severity_name(enum severity s);
int severity_priority(enum severity s); /* LOG_ERR, LOG_WARNING, LOG_NOTICE */
/* The journal's MESSAGE_ID of a code: 32 hex digits, made of the code's name, the same for ever. */
void code_message_id(const char *name, char ret[static 33]);
