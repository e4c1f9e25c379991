/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "diagnose.h"

#define L(x) (UINT32_C(1) << LAYER_##x)

/* So long after it was registered a node that is not ready yet is starting. */
enum { NETWORKING_S = 300 };

/* Without these a node reaches nothing, whatever the layer. */
#define FLOOR (L(HOST) | L(LINK) | L(ROUTE))

/* The causal graph. A row names earlier layers only, so that there is no cycle to detect, and it
 * names all of them, not only the nearest: a healthy layer in between must not carry an excuse. A
 * 401 (identity) is never explained by an AWS endpoint. */
const uint32_t needs[_LAYER_MAX] = {
	[LAYER_HOST] = 0,
	[LAYER_CLOCK] = L(HOST),
	[LAYER_LINK] = L(HOST),
	[LAYER_ROUTE] = L(HOST) | L(LINK),
	[LAYER_METADATA] = FLOOR,
	[LAYER_CREDENTIALS] = FLOOR | L(CLOCK) | L(METADATA),
	[LAYER_DNS] = FLOOR,
	[LAYER_ENDPOINT] = FLOOR | L(CLOCK) | L(DNS),
	[LAYER_BOOTSTRAP] = FLOOR | L(CLOCK) | L(METADATA) | L(CREDENTIALS) | L(DNS) | L(ENDPOINT),
	[LAYER_RUNTIME] = FLOOR | L(CLOCK) | L(METADATA) | L(CREDENTIALS) | L(DNS) | L(ENDPOINT) |
                          L(BOOTSTRAP),
	[LAYER_APISERVER] = FLOOR | L(CLOCK) | L(DNS) | L(BOOTSTRAP),
	[LAYER_IDENTITY] =
		FLOOR | L(CLOCK) | L(METADATA) | L(CREDENTIALS) | L(BOOTSTRAP) | L(APISERVER),
	[LAYER_KUBELET] = FLOOR | L(CLOCK) | L(METADATA) | L(CREDENTIALS) | L(DNS) | L(ENDPOINT) |
                          L(BOOTSTRAP) | L(RUNTIME) | L(APISERVER) | L(IDENTITY),
	[LAYER_CNI] = FLOOR | L(CLOCK) | L(METADATA) | L(CREDENTIALS) | L(DNS) | L(ENDPOINT) |
                      L(BOOTSTRAP) | L(RUNTIME) | L(APISERVER) | L(IDENTITY) | L(KUBELET),
	[LAYER_ADDRESS] = FLOOR | L(METADATA) | L(CREDENTIALS) | L(DNS) | L(ENDPOINT) | L(CNI),
	[LAYER_PODNET] = FLOOR | L(CNI) | L(ADDRESS),
	[LAYER_LIFECYCLE] = 0,
};

/* Of what its row explains, the layers that a cause can reach: a full disk stops programs, it does
 * not stop packets. */
static const uint32_t reach[] = {
	[EXPLAINS_NOTHING] = 0,
	[EXPLAINS_CNI] = L(CNI),
	[EXPLAINS_LINKLOCAL] = L(METADATA) | L(DNS),
	[EXPLAINS_LOCAL] = L(DNS) | L(RUNTIME) | L(KUBELET) | L(CNI),
	[EXPLAINS_WORK] = L(BOOTSTRAP) | L(RUNTIME) | L(KUBELET) | L(CNI),
	[EXPLAINS_PACKETS] = L(METADATA) | L(DNS) | L(ENDPOINT) | L(BOOTSTRAP) | L(RUNTIME) |
                             L(APISERVER) | L(KUBELET) | L(CNI),
	[EXPLAINS_METADATA] = L(METADATA) | L(CREDENTIALS) | L(BOOTSTRAP) | L(RUNTIME) |
                              L(IDENTITY) | L(KUBELET) | L(CNI) | L(ADDRESS),
	[EXPLAINS_SUBJECT] = UINT32_MAX,
	[EXPLAINS_SYMPTOMS] = UINT32_MAX,
	[EXPLAINS_BELOW] = UINT32_MAX,
};

/* Of what its layer needs, the layers that can bring a finding about. */
static const uint32_t origin[] = {
	[FROM_ALONE] = 0,
	[FROM_PATH] = FLOOR | L(METADATA) | L(DNS),
	[FROM_TRUST] = L(CLOCK) | L(METADATA) | L(BOOTSTRAP),
	[FROM_SETUP] = L(HOST) | L(BOOTSTRAP),
	[FROM_PULL] = FLOOR | L(CLOCK) | L(METADATA) | L(CREDENTIALS) | L(DNS) | L(ENDPOINT),
	[FROM_NEEDS] = UINT32_MAX,
	[FROM_ANY] = UINT32_MAX,
};

/* Causes of a cause that its layer alone would not tell. */
static const struct {
	enum code cause, effect;
} also[] = {
	{CODE_MemoryStarved, CODE_ResolverStubDead},   /* killed for its memory */
	{CODE_LoopbackDown, CODE_ResolverUnreachable}, /* a stub, and no other nameserver */
	{CODE_LoopbackDown, CODE_ResolverStubDead},
	{CODE_LoopbackDown, CODE_RuntimeDown},
	{CODE_LoopbackDown, CODE_AwsNodeProbeKilled},
	{CODE_ConntrackFull, CODE_KubeletConnectionDead},
	{CODE_ImdsMalformed, CODE_InstanceProfileMissing}, /* another service answers */
	{CODE_ImdsMalformed, CODE_InstanceProfileInvalid},
	{CODE_ImdsMalformed, CODE_RoleReplaced},
	{CODE_DiskFull, CODE_CniBinaryMissing},
	{CODE_DiskFull, CODE_AllocationsLost}, /* the checkpoint was not written */
	{CODE_FilesystemReadOnly, CODE_AllocationsLost},
	{CODE_PathMtuBlackhole, CODE_SandboxImageMissing},
	{CODE_PathMtuBlackhole, CODE_ApiServerTimeout}, /* of its TLS */
	{CODE_RoleReplaced, CODE_NodeRoleNotMapped},
	{CODE_RoleReplaced, CODE_IpamdUnauthorized},
	{CODE_EndpointDenied, CODE_IpamdUnauthorized},
	{CODE_ClusterCaInvalid, CODE_NodeRoleNotMapped}, /* a token for another cluster's name */
	{CODE_ImagePullDenied, CODE_CniBinaryMissing},   /* aws-vpc-cni-init brings it */
	{CODE_CniDirMismatch, CODE_CniBinaryMissing},
	{CODE_ServiceAddressUnreachable, CODE_NetworkPolicyAgentFailing},
	{CODE_MaxPodsExceedsCapacity, CODE_EniLimitReached},
	{CODE_MaxPodsExceedsCapacity, CODE_AddressLimitReached},
};

/* The AWS endpoints without which a later layer's finding can arise; one that is not listed here
 * may come from any of them. */
static const struct {
	enum code effect;
	const char *services;
} uses[] = {
	{CODE_BootstrapFailed, "ec2,eks"},
	{CODE_ClusterCaInvalid, "ec2,eks"},
	{CODE_SandboxImageMissing, "ecr.api,ecr.dkr,s3"},
	{CODE_ImagePullDenied, "ecr.api,ecr.dkr,s3"},
	{CODE_ApiServerUnresolvable, ""},
	{CODE_ApiServerTimeout, ""},
	{CODE_ApiServerRefused, ""},
	{CODE_ServiceAddressUnreachable, ""},
	{CODE_KubeletConnectionDead, ""},
	{CODE_KubeletInactive, "ec2,eks"},
	{CODE_KubeletCrashLooping, "ec2,eks"},
	{CODE_KubeletUnhealthy, "ec2,eks"},
	{CODE_CniConfigStale, "ec2,sts"},
	{CODE_AwsNodeNotRunning, "ec2,eks,ecr.api,ecr.dkr,s3"},
	{CODE_AwsNodeCrashLooping, "ec2,sts"},
	{CODE_AwsNodeProbeKilled, "ec2,sts"},
	{CODE_IpamdNotServing, "ec2,sts"},
	{CODE_IpamdUnauthorized, "ec2"},
	{CODE_CniIdentityUnreachable, "sts"},
	{CODE_CniApiServerUnreachable, ""},
	{CODE_EniUnconfigured, "ec2"},
	{CODE_AllocationsLost, "ec2"},
};

/* Symptoms of one layer that come from one another, the earlier explains the later: the chain of
 * CONTRACT.md section 6, and the like of other layers. */
static const enum code symptom_order[] = {
	CODE_BootstrapFailed,         CODE_JoinDeadlineNear,    CODE_RuntimeUnresponsive,
	CODE_PlegUnhealthy,           CODE_KubeletInactive,     CODE_KubeletCrashLooping,
	CODE_KubeletUnhealthy,        CODE_AwsNodeNotRunning,   CODE_CniIdentityUnreachable,
	CODE_CniApiServerUnreachable, CODE_AwsNodeCrashLooping, CODE_IpamdNotServing,
	CODE_CniConfigMissing,        CODE_CniConfigStale,
};

static int symptom_rank(enum code c)
{
	for (size_t i = 0; i < ELEMENTS(symptom_order); i++)
		if (symptom_order[i] == c)
			return (int) i;
	return -1;
}

static bool symptom_precedes(enum code c, enum code e)
{
	int rc = symptom_rank(c), re = symptom_rank(e);

	return rc >= 0 && re >= 0 && rc < re;
}

static bool causes_also(enum code c, enum code e)
{
	for (size_t i = 0; i < ELEMENTS(also); i++)
		if (also[i].cause == c && also[i].effect == e)
			return true;
	return false;
}

/* Whether a list "ec2,sts" holds this subject. */
static bool list_has(const char *list, const char *subject)
{
	size_t len = strlen(subject);

	for (const char *p = list; *p; p += strcspn(p, ","), p += *p != 0)
		if (strcspn(p, ",") == len && strncmp(p, subject, len) == 0)
			return true;
	return false;
}

/* Whether what a finding about one endpoint says covers another finding. */
static bool covers(const struct fact *c, const struct fact *e)
{
	if (cause_of(c->code)->explains != EXPLAINS_SUBJECT)
		return true;
	if (cause_of(e->code)->layer <= LAYER_ENDPOINT)
		return strcmp(c->bad.subject, e->bad.subject) == 0;
	for (size_t i = 0; i < ELEMENTS(uses); i++)
		if (uses[i].effect == e->code)
			return list_has(uses[i].services, c->bad.subject);
	return true;
}

static bool explains(const struct fact *c, const struct fact *e)
{
	const struct cause *cause = cause_of(c->code), *effect = cause_of(e->code);
	const uint32_t layer = UINT32_C(1) << cause->layer;

	if (c->code == e->code || cause->severity == SEVERITY_NOTICE)
		return false;
	if (effect->from == FROM_ANY)
		return true;
	if (!covers(c, e))
		return false;
	if (causes_also(c->code, e->code))
		return true;
	if (!(reach[cause->explains] & UINT32_C(1) << effect->layer))
		return false;
	if (effect->kind != KIND_SYMPTOM &&
	    (cause->explains == EXPLAINS_SYMPTOMS || cause->explains == EXPLAINS_LOCAL))
		return false;
	if (cause->layer != effect->layer)
		return needs[effect->layer] & origin[effect->from] & layer;
	return effect->kind == KIND_SYMPTOM && effect->from != FROM_ALONE &&
	       (cause->kind == KIND_CAUSE || symptom_precedes(c->code, e->code));
}

bool code_explains(enum code cause, const char *cause_subject, enum code effect,
                   const char *effect_subject)
{
	struct fact c = {.code = cause}, e = {.code = effect};

	(void) text_format(c.bad.subject, sizeof(c.bad.subject), "%s", cause_subject);
	(void) text_format(e.bad.subject, sizeof(e.bad.subject), "%s", effect_subject);
	return explains(&c, &e);
}

/* The nearest cause of an effect: the latest layer, so that the whole chain can be told; within it
 * a cause before a symptom, the later symptom of a chain, the worse before the lesser, then the
 * order of the catalogue. What anything can bring about is from the worst first: it is no lack of
 * addresses that makes a node NotReady which has no runtime. */
static bool nearer(enum code a, enum code b, enum code effect)
{
	const struct cause *ca = cause_of(a), *cb = cause_of(b);

	if (cause_of(effect)->from == FROM_ANY && ca->severity != cb->severity)
		return ca->severity > cb->severity;
	if (ca->layer != cb->layer)
		return ca->layer > cb->layer;
	if (ca->kind != cb->kind)
		return ca->kind == KIND_CAUSE;
	if (symptom_rank(a) != symptom_rank(b))
		return symptom_rank(a) > symptom_rank(b);
	if (ca->severity != cb->severity)
		return ca->severity > cb->severity;
	return a < b;
}

/* A fact with a code, what explains it, and the finding that it becomes part of. */
struct suspect {
	const struct fact *fact;
	int because, finding;
};

static int explain(const struct suspect *s, size_t n, const struct fact *e)
{
	int best = -1;

	for (size_t c = 0; c < n; c++)
		if (explains(s[c].fact, e) &&
		    (best < 0 || nearer(s[c].fact->code, s[best].fact->code, e->code)))
			best = (int) c;
	return best;
}

static void finding_from_fact(struct finding *f, const struct fact *fact)
{
	*f = (struct finding){.code = fact->code,
	                      .because = -1,
	                      .since = fact->since,
	                      .last_seen = fact->last_seen,
	                      .seen = fact->seen,
	                      .n_evidence = fact->bad.n_evidence};
	memcpy(f->subject, fact->bad.subject, sizeof(f->subject));
	memcpy(f->summary, fact->summary, sizeof(f->summary));
	memcpy(f->evidence, fact->bad.evidence, sizeof(f->evidence));
}

/* Facts alike are one finding whose subject lists them. What names its subject tells more than what
 * does not: the subnet and its count of free addresses, rather than a line about a subnet. */
static void merge(struct finding *into, const struct fact *fact)
{
	if (!into->subject[0] && fact->bad.subject[0]) {
		memcpy(into->summary, fact->summary, sizeof(into->summary));
		memcpy(into->evidence, fact->bad.evidence, sizeof(into->evidence));
		into->n_evidence = fact->bad.n_evidence;
	}
	if (fact->bad.subject[0] && !list_has(into->subject, fact->bad.subject))
		(void) text_append(into->subject, sizeof(into->subject), ",%s", fact->bad.subject);
	if (fact->since < into->since)
		into->since = fact->since;
	if (fact->last_seen > into->last_seen)
		into->last_seen = fact->last_seen;
	if (fact->seen > into->seen)
		into->seen = fact->seen;
}

/* Whether a look at that service, in the layer of the finding, came to anything. */
static bool was_seen(const struct fact *const *facts, size_t n, enum layer layer, const char *name)
{
	for (size_t i = 0; i < n; i++) {
		const struct observation *o = &facts[i]->latest;

		if (o->layer == layer && strcmp(o->subject, name) == 0 &&
		    o->outcome != OUTCOME_SKIPPED && o->outcome != OUTCOME_UNKNOWN)
			return true;
	}
	return false;
}

/* All that could be looked at, be it fewer than the table has: a node does not ask every service.
 */
static void say_all(struct finding *f, const struct fact *const *facts, size_t n)
{
	int listed = 0;

	for (int i = 0; i < _SERVICE_MAX; i++) {
		const char *name = service_name((enum service) i);

		if (list_has(f->subject, name))
			listed++;
		else if (was_seen(facts, n, cause_of(f->code)->layer, name))
			return;
	}
	if (listed > 1)
		(void) text_format(f->subject, sizeof(f->subject), "all");
}

/* By code, and endpoints in the order of their table, so that the order in which probes looked does
 * not show; other subjects come in the order of theirs. */
static bool fact_precedes(const struct fact *a, const struct fact *b)
{
	int sa = service_from_name(a->bad.subject), sb = service_from_name(b->bad.subject);

	if (a->code != b->code)
		return a->code < b->code;
	return sa >= 0 && sb >= 0 && sa < sb;
}

static size_t gather(const struct fact *const *facts, size_t n, struct suspect *ret)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		size_t at = found;

		if (facts[i]->code == CODE_NONE || facts[i]->held)
			continue;
		for (; at > 0 && fact_precedes(facts[i], ret[at - 1].fact); at--)
			ret[at] = ret[at - 1];
		ret[at] = (struct suspect){.fact = facts[i], .because = -1, .finding = -1};
		found++;
	}
	for (size_t i = 0; i < found; i++)
		ret[i].because = explain(ret, found, ret[i].fact);
	return found;
}

static enum code code_of(const struct suspect *s, int i)
{
	return i < 0 ? CODE_NONE : s[i].fact->code;
}

/* One finding per code and cause. */
static size_t collect(const struct fact *const *facts, size_t n, struct finding *ret)
{
	struct suspect s[LEDGER_MAX];
	size_t suspects = gather(facts, n, s), found = 0;

	for (size_t i = 0; i < suspects; i++) {
		enum code why = code_of(s, s[i].because);
		size_t j;

		for (j = 0; j < i; j++)
			if (code_of(s, (int) j) == code_of(s, (int) i) &&
			    code_of(s, s[j].because) == why && s[j].finding >= 0)
				break;
		if (j < i) {
			s[i].finding = s[j].finding;
			merge(&ret[s[i].finding], s[i].fact);
		} else if (found < FINDINGS_MAX) {
			s[i].finding = (int) found;
			finding_from_fact(&ret[found++], s[i].fact);
		}
	}
	for (size_t i = 0; i < suspects; i++)
		if (s[i].finding >= 0 && s[i].because >= 0)
			ret[s[i].finding].because = s[s[i].because].finding;
	for (size_t i = 0; i < found; i++)
		say_all(&ret[i], facts, n);
	return found;
}

/* Roots first; then the worse; a root that is a cause before one that is only a symptom, as what
 * decided it can be acted on; the earlier layer, the order of the catalogue. */
static bool comes_before(const struct finding *a, const struct finding *b)
{
	const struct cause *ca = cause_of(a->code), *cb = cause_of(b->code);

	if ((a->because < 0) != (b->because < 0))
		return a->because < 0;
	if (ca->severity != cb->severity)
		return ca->severity > cb->severity;
	if (a->because < 0 && ca->kind != cb->kind)
		return ca->kind == KIND_CAUSE;
	return a->code < b->code; /* the catalogue is in causal order of layers */
}

static void sort(struct finding *f, size_t n)
{
	int place[FINDINGS_MAX], back[FINDINGS_MAX];

	for (size_t i = 0; i < n; i++) {
		size_t at = i;

		for (; at > 0 && comes_before(&f[i], &f[place[at - 1]]); at--)
			place[at] = place[at - 1];
		place[at] = (int) i;
	}
	for (size_t i = 0; i < n; i++)
		back[place[i]] = (int) i;
	for (size_t i = 0; i < n; i++)
		if (f[i].because >= 0)
			f[i].because = back[f[i].because];
	/* follow each cycle of the permutation, one spare finding at a time */
	for (size_t i = 0; i < n; i++) {
		struct finding spare = f[i];
		size_t at = i;

		while ((size_t) place[at] != i) {
			size_t from = (size_t) place[at];

			f[at] = f[from];
			place[at] = (int) at;
			at = from;
		}
		f[at] = spare;
		place[at] = (int) at;
	}
}

static void judge_conditions(const struct fact *const *facts, size_t n, struct report *r)
{
	for (int c = 0; c < _CONDITION_MAX; c++)
		r->conditions[c] = (struct condition_state){CONDITION_UNKNOWN, -1};
	for (size_t i = 0; i < n; i++) {
		const struct fact *f = facts[i];
		const struct probe *p = probe_by_name(f->latest.probe);

		/* a look that said something speaks for every condition that its probe can raise */
		if (!p || f->latest.outcome == OUTCOME_UNKNOWN)
			continue;
		for (size_t k = 0; k < PROBE_CODES_MAX && p->codes[k] != CODE_NONE; k++)
			if (cause_of(p->codes[k])->layer == f->latest.layer)
				r->conditions[cause_of(p->codes[k])->condition].status =
					CONDITION_FALSE;
	}
	for (size_t i = r->n_findings; i-- > 0;) {
		const struct finding *f = &r->findings[i];
		const struct cause *c = cause_of(f->code);

		if (f->because < 0 && c->severity != SEVERITY_NOTICE)
			r->conditions[c->condition] =
				(struct condition_state){CONDITION_TRUE, (int) i};
	}
}

/* What a node goes through after its boot, however long that took; only what is known for sure, as
 * one that nobody can ask about may be ready for days. */
static bool is_joining(const struct diagnose_input *in, enum stage stage)
{
	const struct node *n = in->node;

	if (stage == STAGE_NETWORKING)
		return n->registered_at && in->now < n->registered_at + NETWORKING_S * USEC_PER_SEC;
	if (stage == STAGE_JOINING)
		return n->registered == NO;
	return stage == STAGE_BOOTSTRAPPING && n->ec2 == EC2_YES && n->metadata_at;
}

static enum state judge_state(const struct fact *const *facts, size_t n, const struct report *r,
                              const struct diagnose_input *in)
{
	enum severity worst = SEVERITY_NOTICE;
	bool known = false, graced = false;

	for (size_t i = 0; i < r->n_findings; i++)
		if (cause_of(r->findings[i].code)->severity > worst)
			worst = cause_of(r->findings[i].code)->severity;
	if (worst != SEVERITY_NOTICE)
		return worst == SEVERITY_FATAL ? STATE_BROKEN : STATE_DEGRADED;
	for (size_t i = 0; i < n; i++) {
		known |= facts[i]->latest.outcome != OUTCOME_UNKNOWN;
		graced |= facts[i]->graced;
	}
	if (!in->complete || graced)
		return STATE_STARTING;
	if (!known)
		return STATE_BLIND;
	return is_joining(in, r->verdict.stage) ? STATE_STARTING : STATE_HEALTHY;
}

/* What the looks at the CNI say together, and whether the bootstrap was found to have failed. */
struct progress {
	bool cni_good, cni_broken, bootstrap_failed;
};

static struct progress judge_progress(const struct fact *const *facts, size_t n)
{
	struct progress p = {0};
	bool bad = false;

	for (size_t i = 0; i < n; i++) {
		const struct observation *o = &facts[i]->latest;
		bool fatal = facts[i]->code != CODE_NONE &&
		             cause_of(facts[i]->code)->severity == SEVERITY_FATAL;

		p.bootstrap_failed |= fatal && o->layer == LAYER_BOOTSTRAP;
		if (o->layer != LAYER_CNI)
			continue;
		p.cni_broken |= fatal;
		p.cni_good |= o->outcome == OUTCOME_OK;
		bad |= o->outcome != OUTCOME_OK && o->outcome != OUTCOME_SKIPPED &&
		       o->outcome != OUTCOME_UNKNOWN;
	}
	p.cni_good &= !bad;
	return p;
}

/* The API server's word is the last one, in both directions: pods and a CNI's configuration lie on
 * the disk and may be of an earlier boot, so they count only while it says nothing. */
static bool is_registered(const struct node *node, const struct progress *p)
{
	if (node->registered != CANNOT_TELL)
		return node->registered == YES;
	return node->ready != CANNOT_TELL || node->has_pods || p->cni_good;
}

/* How far the node has come. A machine that is no node of EKS has nothing to come to here. */
static enum stage judge_stage(const struct progress *p, const struct node *node)
{
	if (node->ec2 == EC2_NO && !node->hybrid)
		return STAGE_READY;
	if (is_registered(node, p)) {
		if (node->ready == CANNOT_TELL)
			return p->cni_good ? STAGE_READY : STAGE_NETWORKING;
		return node->ready == YES && !p->cni_broken ? STAGE_READY : STAGE_NETWORKING;
	}
	if (node->kubeconfig_present)
		return STAGE_JOINING;
	/* what failed in it had begun, and a node outside of AWS has no metadata to wait for */
	return node->metadata_at || node->hybrid || p->bootstrap_failed ? STAGE_BOOTSTRAPPING
	                                                                : STAGE_BOOTING;
}

/* Only an instance that has never registered is deleted: pods, or what the CNI's own pod wrote,
 * tell that it did, in this boot or before; and outside of AWS nobody deletes it. */
static int judge_deadline(const struct progress *p, const struct node *node, enum stage stage,
                          usec_t uptime)
{
	usec_t up = uptime / USEC_PER_SEC;

	if (stage >= STAGE_NETWORKING || up >= JOIN_DEADLINE_S || node->ec2 == EC2_NO ||
	    node->hybrid || node->has_pods || p->cni_good)
		return -1;
	return (int) (JOIN_DEADLINE_S - up);
}

static uint32_t judge_unverified(const struct fact *const *facts, size_t n, const struct report *r)
{
	uint32_t unknown = 0;

	for (size_t i = 0; i < n; i++)
		if (facts[i]->latest.outcome == OUTCOME_UNKNOWN)
			unknown |= UINT32_C(1) << facts[i]->latest.layer;
	for (size_t i = 0; i < r->n_findings; i++)
		unknown &= ~(UINT32_C(1) << cause_of(r->findings[i].code)->layer);
	return unknown;
}

static const char *lookup(const char *key, size_t len, const struct node *n, const char *subject)
{
	const struct {
		const char *key, *value;
	} table[] = {
		{"instance_id", n->instance_id},
		{"instance_type", n->instance_type},
		{"region", n->region},
		{"mac", n->mac},
		{"eni_id", n->network.n_enis ? n->network.enis[0].eni_id : ""},
		{"subnet_id", n->network.n_enis ? n->network.enis[0].subnet_id : ""},
		{"subject", subject},
	};

	for (size_t i = 0; i < ELEMENTS(table); i++)
		if (strlen(table[i].key) == len && memcmp(table[i].key, key, len) == 0)
			return table[i].value;
	return NULL;
}

void remedy_fill(const char *remedy, const struct node *node, const char *subject, char *ret,
                 size_t size)
{
	ret[0] = 0;
	while (*remedy) {
		size_t plain = strcspn(remedy, "{"), len;
		const char *value;

		(void) text_append(ret, size, "%.*s", (int) plain, remedy);
		remedy += plain;
		if (!*remedy)
			return;
		len = strcspn(remedy + 1, "}");
		value = lookup(remedy + 1, len, node, subject);
		if (!value || remedy[1 + len] != '}') {
			(void) text_append(ret, size, "{");
			remedy++;
			continue;
		}
		if (value[0])
			(void) text_append(ret, size, "%s", value);
		else
			(void) text_append(ret, size, "<%.*s>", (int) len, remedy + 1);
		remedy += len + 2;
	}
}

void diagnose(const struct fact *const *facts, size_t n, const struct diagnose_input *in,
              struct report *ret)
{
	struct finding *f = ret->findings;
	struct progress progress;

	assert(n <= LEDGER_MAX);
	ret->at = in->now;
	ret->uptime = in->uptime;
	ret->node = *in->node;
	ret->n_observations = n;
	for (size_t i = 0; i < n; i++) {
		ret->observations[i] = facts[i]->latest;
		ret->codes[i] = facts[i]->code;
	}

	ret->n_findings = collect(facts, n, f);
	for (size_t i = 0; i < ret->n_findings; i++)
		remedy_fill(cause_of(f[i].code)->remedy, in->node, f[i].subject, f[i].remedy,
		            sizeof(f[i].remedy));
	sort(f, ret->n_findings);
	judge_conditions(facts, n, ret);
	progress = judge_progress(facts, n);
	ret->verdict.stage = judge_stage(&progress, in->node);
	ret->verdict.state = judge_state(facts, n, ret, in);
	ret->verdict.deadline = judge_deadline(&progress, in->node, ret->verdict.stage, in->uptime);
	ret->verdict.unverified = judge_unverified(facts, n, ret);
	ret->verdict.root = -1;
	if (ret->n_findings > 0 && cause_of(f[0].code)->severity != SEVERITY_NOTICE)
		ret->verdict.root = 0;
}

static const char *const states[] = {"healthy", "starting", "degraded", "broken", "blind"};

const char *state_name(enum state s)
{
	return states[s];
}

int state_from_name(const char *s)
{
	for (int i = 0; i < _STATE_MAX; i++)
		if (strcmp(states[i], s) == 0)
			return i;
	return -1;
}

const char *stage_name(enum stage s)
{
	static const char *const names[] = {"booting", "bootstrapping", "joining", "networking",
	                                    "ready"};

	return names[s];
}
