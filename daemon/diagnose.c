/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "diagnose.h"

#define L(x) (UINT32_C(1) << LAYER_##x)

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
	[LAYER_RUNTIME] =
		FLOOR | L(METADATA) | L(CREDENTIALS) | L(DNS) | L(ENDPOINT) | L(BOOTSTRAP),
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

/* Symptoms of one chain, the earlier explains the later (CONTRACT.md section 6). */
static const enum code symptom_order[] = {
	CODE_AwsNodeNotRunning, CODE_AwsNodeCrashLooping, CODE_IpamdNotServing,
	CODE_CniConfigMissing,  CODE_CniConfigStale,
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

/* Whether a list "ec2,sts" (or "all") names a subject that another one names too. */
static bool subjects_meet(const char *a, const char *b)
{
	if (!a[0] || !b[0] || strcmp(a, "all") == 0 || strcmp(b, "all") == 0)
		return true;
	for (size_t n; *a; a += n + (a[n] != 0)) {
		n = strcspn(a, ",");
		for (const char *p = b; *p; p += strcspn(p, ","), p += *p != 0)
			if (strcspn(p, ",") == n && strncmp(a, p, n) == 0)
				return true;
	}
	return false;
}

/* What talks over the loopback: a stub resolver, containerd's, kubelet's and ipamd's local ports.
 */
static const uint32_t local = L(DNS) | L(RUNTIME) | L(KUBELET) | L(CNI);

/* Whether a cause can reach a finding of that layer at all. */
static bool reaches(const struct cause *cause, enum layer layer)
{
	switch (cause->explains) {
	case EXPLAINS_NOTHING:
		return false;
	case EXPLAINS_METADATA:
		return layer == LAYER_METADATA || needs[layer] & L(METADATA);
	case EXPLAINS_LOCAL:
		return local & UINT32_C(1) << layer;
	case EXPLAINS_SUBJECT:
	case EXPLAINS_BELOW:
	default:
		return needs[layer] & UINT32_C(1) << cause->layer;
	}
}

static bool explains(const struct finding *c, const struct finding *e)
{
	const struct cause *cause = cause_of(c->code), *effect = cause_of(e->code);

	if (c->code == e->code || cause->explains == EXPLAINS_NOTHING)
		return false;
	if (e->code == CODE_NodeNotReady)
		return cause->severity != SEVERITY_NOTICE;
	if (cause->explains == EXPLAINS_SUBJECT && effect->layer <= LAYER_ENDPOINT &&
	    !subjects_meet(c->subject, e->subject))
		return false;
	if (reaches(cause, effect->layer))
		return true;
	if (effect->kind != KIND_SYMPTOM || cause->layer != effect->layer)
		return false;
	return cause->kind == KIND_CAUSE || symptom_precedes(c->code, e->code);
}

bool code_explains(enum code cause, const char *cause_subject, enum code effect,
                   const char *effect_subject)
{
	struct finding c = {.code = cause}, e = {.code = effect};

	(void) text_format(c.subject, sizeof(c.subject), "%s", cause_subject);
	(void) text_format(e.subject, sizeof(e.subject), "%s", effect_subject);
	return explains(&c, &e);
}

/* The nearest cause: the latest layer, so that the whole chain can be told; within it a cause
 * before a symptom, the worse before the lesser, then the order of the catalogue. */
static bool nearer(const struct finding *a, const struct finding *b)
{
	const struct cause *ca = cause_of(a->code), *cb = cause_of(b->code);

	if (ca->layer != cb->layer)
		return ca->layer > cb->layer;
	if (ca->kind != cb->kind)
		return ca->kind == KIND_CAUSE;
	if (ca->severity != cb->severity)
		return ca->severity > cb->severity;
	return a->code < b->code;
}

static int explain(const struct finding *f, size_t n, size_t e)
{
	int best = -1;

	for (size_t c = 0; c < n; c++)
		if (explains(&f[c], &f[e]) && (best < 0 || nearer(&f[c], &f[best])))
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

/* Facts alike are one finding whose subject lists them; facts come in the order of their tables. */
static void merge(struct finding *into, const struct fact *fact)
{
	if (!subjects_meet(into->subject, fact->bad.subject))
		(void) text_append(into->subject, sizeof(into->subject), ",%s", fact->bad.subject);
	if (fact->since < into->since)
		into->since = fact->since;
	if (fact->last_seen > into->last_seen)
		into->last_seen = fact->last_seen;
	if (fact->seen > into->seen)
		into->seen = fact->seen;
}

static void say_all(struct finding *f)
{
	char every[SUBJECT_MAX] = "";

	for (int i = 0; i < _SERVICE_MAX; i++)
		(void) text_append(every, sizeof(every), "%s%s", i ? "," : "",
		                   service_name((enum service) i));
	if (strcmp(f->subject, every) == 0)
		(void) text_format(f->subject, sizeof(f->subject), "all");
}

static size_t collect(const struct fact *const *facts, size_t n, struct finding *ret)
{
	size_t found = 0;

	for (size_t i = 0; i < n; i++) {
		size_t j;

		if (facts[i]->code == CODE_NONE || facts[i]->held)
			continue;
		for (j = 0; j < found && ret[j].code != facts[i]->code; j++)
			;
		if (j < found)
			merge(&ret[j], facts[i]);
		else if (found < FINDINGS_MAX)
			finding_from_fact(&ret[found++], facts[i]);
	}
	for (size_t i = 0; i < found; i++)
		say_all(&ret[i]);
	return found;
}

/* Roots first; then the worse, the earlier layer, the order of the catalogue. */
static bool comes_before(const struct finding *a, const struct finding *b)
{
	const struct cause *ca = cause_of(a->code), *cb = cause_of(b->code);

	if ((a->because < 0) != (b->because < 0))
		return a->because < 0;
	if (ca->severity != cb->severity)
		return ca->severity > cb->severity;
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

static enum state judge_state(const struct fact *const *facts, size_t n, const struct report *r,
                              bool complete)
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
	if (!complete || graced)
		return STATE_STARTING;
	return known ? STATE_HEALTHY : STATE_BLIND;
}

/* How far the node has come, by what lies on its disk: joining it is proved only by the API server,
 * whose probe comes later. */
static enum stage judge_stage(const struct fact *const *facts, size_t n, const struct node *node)
{
	for (size_t i = 0; i < n; i++)
		if (facts[i]->latest.layer == LAYER_CNI && facts[i]->latest.outcome == OUTCOME_OK)
			return STAGE_READY;
	if (node->kubeconfig_present)
		return STAGE_JOINING;
	return node->metadata_at ? STAGE_BOOTSTRAPPING : STAGE_BOOTING;
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

	assert(n <= LEDGER_MAX);
	ret->at = in->now;
	ret->uptime = in->uptime;
	ret->node = *in->node;
	ret->n_observations = n;
	for (size_t i = 0; i < n; i++)
		ret->observations[i] = facts[i]->latest;

	ret->n_findings = collect(facts, n, f);
	for (size_t i = 0; i < ret->n_findings; i++) {
		f[i].because = explain(f, ret->n_findings, i);
		remedy_fill(cause_of(f[i].code)->remedy, in->node, f[i].subject, f[i].remedy,
		            sizeof(f[i].remedy));
	}
	sort(f, ret->n_findings);
	judge_conditions(facts, n, ret);
	ret->verdict.state = judge_state(facts, n, ret, in->complete);
	ret->verdict.stage = judge_stage(facts, n, in->node);
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
