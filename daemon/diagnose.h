/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Facts in, findings and one root out. Pure. */

#include "ledger.h"

enum { FINDINGS_MAX = 48 };
/* Karpenter's registration TTL, and how long a managed node group waits, in seconds after boot
 * (launch, in truth: the instance booted a little later, so what is left is at most this). */
enum { JOIN_DEADLINE_S = 15 * 60 };

enum state { STATE_HEALTHY, STATE_STARTING, STATE_DEGRADED, STATE_BROKEN, STATE_BLIND, _STATE_MAX };
enum stage { STAGE_BOOTING, STAGE_BOOTSTRAPPING, STAGE_JOINING, STAGE_NETWORKING, STAGE_READY };

struct finding {
	enum code code;
	char subject[SUBJECT_MAX]; /* several alike: a list in the order of their table, or "all" */
	char summary[SUMMARY_MAX];
	char remedy[REMEDY_MAX];
	int because; /* index of the finding that explains this one; -1: a root */
	usec_t since, last_seen;
	uint32_t seen;
	struct evidence evidence[EVIDENCE_MAX];
	uint8_t n_evidence;
};

enum condition_status { CONDITION_FALSE, CONDITION_TRUE, CONDITION_UNKNOWN };

struct condition_state {
	enum condition_status status;
	int finding; /* the one that makes it true, or -1 */
};

struct verdict {
	enum state state;
	enum stage stage;
	int root;            /* index of a finding, or -1 */
	uint32_t unverified; /* a bit for each layer where a look could not tell and none found a
	                        fault */
	int deadline; /* seconds until the provisioner deletes a node that has not registered; -1 */
};

/* One look at everything: a plain value. */
struct report {
	usec_t at, uptime; /* CLOCK_BOOTTIME; of the node */
	struct node node;
	size_t n_observations, n_findings;
	struct observation observations[LEDGER_MAX];
	enum code codes[LEDGER_MAX];           /* what each of them was found to be */
	struct finding findings[FINDINGS_MAX]; /* roots first, worst first, a cause before a
	                                         symptom, then in causal order */
	struct condition_state conditions[_CONDITION_MAX];
	struct verdict verdict;
};

/* For each layer the earlier layers whose causes can explain its findings. Complete by itself: it
 * is not followed from row to row. */
extern const uint32_t needs[_LAYER_MAX];

struct diagnose_input {
	const struct node *node;
	usec_t now, uptime;
	bool complete; /* every probe has looked at least once */
	/* What the verdict is while nothing was found and not everything was looked at: STARTING,
	 * or what a daemon that was restarted said before. Read by pass_make(). */
	enum state presumed;
};

/* Writes the findings, conditions and the verdict of n <= LEDGER_MAX facts, which come in the order
 * of probes/list.h: same facts in, same bytes out. */
void diagnose(const struct fact *const *facts, size_t n, const struct diagnose_input *in,
              struct report *ret);

/* Whether a finding of the one code about that subject would be the cause of the other. */
bool code_explains(enum code cause, const char *cause_subject, enum code effect,
                   const char *effect_subject);

const char *state_name(enum state s);
int state_from_name(const char *s);
const char *stage_name(enum stage s);
/* Fills {instance_id} and the like in a remedy; what is not known stays as "<instance_id>". */
void remedy_fill(const char *remedy, const struct node *node, const char *subject, char *ret,
                 size_t size);
