/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "probe.h"

#define REFUSED_LATELY                                                                             \
	(300 * USEC_PER_SEC)             /* findings.tsv: a limit counts while a pod feels it      \
	                                  */
#define FRESH       (120 * USEC_PER_SEC) /* of what introspection said */
#define TRUNK_GRACE (600 * USEC_PER_SEC) /* another controller attaches it, after registration */

enum { PER_PREFIX = 16, PODS_OF_HOST = 2 };

struct state {
	usec_t waited;
};

struct memory {
	char type[sizeof(((struct node *) NULL)->instance_type)];
	struct limits limits;
	bool known;
};

/* The node's addresses in the mode that it is in. */
struct picture {
	const struct limits *limits;
	bool prefix, ipv6, custom, pod_eni, trunk, viewed;
	int attached, enis_max; /* on the default card; every ENI takes a slot, EFA-only too */
	int usable;             /* of the attached: those that carry pods' addresses */
	int per_eni;            /* addresses for pods of one */
	int addresses_max;      /* that the type gives in this mode */
	int assigned, in_use, cooling, prefixes;
	usec_t refused; /* ago; USEC_INFINITY: not lately */
};

/* The ENI limits of a type never change. */
static const struct limits *find_limits(struct run *r)
{
	const char *type = run_node(r)->instance_type;
	struct memory *m = run_memory(r);
	unsigned bad_rows = 0;

	if (!type[0])
		return NULL;
	if (strcmp(type, m->type) != 0) {
		m->known = limits_lookup(type, &m->limits, &bad_rows) == 0;
		(void) text_format(m->type, sizeof(m->type), "%s", type);
	}
	return m->known ? &m->limits : NULL;
}

/* Source: trunking_compatible of vpc-resource-controller's limits, which agrees over all 1401
 * types: nitro or metal, but for these families. */
static bool can_trunk(const struct limits *l, const char *type)
{
	static const char *const not [] = {"t3.", "t3a.", "t4g.", "u-6tb1."};

	for (size_t i = 0; i < ELEMENTS(not ); i++)
		if (strncmp(type, not [i], strlen(not [i])) == 0)
			return false;
	return l->prefixes;
}

static const struct ipamd_eni *seen_by_ipamd(const struct node *n, const struct eni *e)
{
	for (size_t i = 0; i < n->ipamd.n; i++)
		if (e->eni_id[0] && strcmp(n->ipamd.enis[i].id, e->eni_id) == 0)
			return &n->ipamd.enis[i];
	return NULL;
}

/* An ENI that carries no pod's address, or not by the VPC CNI's doing. */
static bool carries_pods(const struct node *n, const struct eni *e, const struct picture *p)
{
	const struct ipamd_eni *x = seen_by_ipamd(n, e);

	if (p->viewed && (!x || x->efa || x->excluded || x->trunk))
		return false;
	if (!e->in_kernel && e->ipv4.family == 0)
		return false; /* EFA-only */
	return !(p->custom && e->managed_by == MANAGED_PRIMARY);
}

static void count(const struct run *r, struct picture *p)
{
	const struct node *n = run_node(r);
	const struct network *w = &n->network;

	for (size_t i = 0; i < w->n_enis; i++) {
		bool here = w->enis[i].card <= 0;

		p->attached += here;
		p->usable += here && carries_pods(n, &w->enis[i], p);
		p->prefixes += w->enis[i].prefixes > 0 ? w->enis[i].prefixes : 0;
	}
	for (size_t i = 0; i < n->ipamd.n; i++)
		p->trunk = p->trunk || (p->viewed && n->ipamd.enis[i].trunk);
	p->in_use = p->viewed ? n->ipamd.assigned : w->pod_ips_in_use;
	p->assigned = p->viewed ? n->ipamd.total : w->ips_assigned;
	p->cooling = p->viewed ? n->ipamd.cooling : 0;
}

static void look(struct run *r, const struct limits *l, struct picture *p)
{
	const struct node *n = run_node(r);
	const struct network *w = &n->network;
	int slots;

	*p = (struct picture){
		.limits = l,
		.ipv6 = n->cni.known ? n->cni.ipv6 : w->ipv6,
		.prefix = l->prefixes && (n->cni.known ? n->cni.prefix : w->prefix_mode),
		.custom = n->cni.known && n->cni.custom,
		.pod_eni = n->cni.known && n->cni.pod_eni,
		.viewed = n->ipamd.at && run_now(r) - n->ipamd.at < FRESH,
		.enis_max = l->max_enis,
		.refused = USEC_INFINITY,
	};
	count(r, p);
	slots = p->enis_max - p->custom - p->pod_eni;
	p->per_eni = (l->ipv4_per_eni - 1) * (p->prefix ? PER_PREFIX : 1);
	p->addresses_max = slots > 0 ? slots * p->per_eni : 0;
	if (w->pod_refused_at && run_now(r) - w->pod_refused_at < REFUSED_LATELY)
		p->refused = run_now(r) - w->pod_refused_at;
}

/* ---- which limit it is ---- */

static bool is_refused(const struct picture *p)
{
	return p->refused != USEC_INFINITY;
}

/* What was assigned is all given out, or waits to be given out again. */
static bool is_used_up(const struct picture *p)
{
	return p->assigned >= 0 && p->in_use >= 0 && p->in_use + p->cooling >= p->assigned;
}

static bool has_free_slot(const struct picture *p)
{
	return p->attached < p->enis_max - (p->pod_eni && !p->trunk);
}

/* The type gives no more: else it is the subnet or the API, which say so in ipamd's log. */
static bool is_at_limit(const struct picture *p)
{
	return is_used_up(p) && !has_free_slot(p) && p->assigned >= p->usable * p->per_eni;
}

static bool is_cooling(const struct picture *p)
{
	return is_used_up(p) && p->cooling > 0 && p->in_use < p->assigned;
}

/* A type that cannot have a trunk gives its slot away for nothing, which is felt only at the limit.
 */
static bool is_trunk_missing(const struct run *r, const struct picture *p)
{
	const struct node *n = run_node(r);
	bool waited = n->ipamd.began && run_now(r) - n->ipamd.began >= TRUNK_GRACE;

	if (!p->pod_eni || !p->viewed || p->trunk || !waited)
		return false;
	return can_trunk(p->limits, n->instance_type) ||
	       (is_refused(p) && is_at_limit(p) && !is_cooling(p));
}

/* A pod went without, as nothing more can be given: which limit is to blame, is told apart below. A
 * slot held for nothing comes first. */
static bool is_felt(const struct run *r, const struct picture *p)
{
	return is_refused(p) && is_at_limit(p) && !is_cooling(p) && !p->ipv6 &&
	       !is_trunk_missing(r, p);
}

/* ---- observations ---- */

static void describe_cards(struct run *r, struct observation *o, const struct picture *p)
{
	const struct network *w = &run_node(r)->network;
	char text[64] = "";

	for (int card = 0; card < p->limits->network_cards && card < CARDS_MAX; card++) {
		int limit = limits_card_enis(run_node(r)->instance_type, card), attached = 0;

		for (size_t i = 0; i < w->n_enis; i++)
			attached += w->enis[i].card == card || (card == 0 && w->enis[i].card < 0);
		if (attached > 0)
			(void) text_append(text, sizeof(text), "%s%d:%d/%d", text[0] ? " " : "",
			                   card, attached, limit);
	}
	observation_text(o, "cards", "%s", text);
}

static void add_numbers(struct run *r, struct observation *o, const struct picture *p)
{
	observation_number(o, "enis_attached", p->attached);
	observation_number(o, "enis_max", p->enis_max);
	observation_number(o, "in_use", p->in_use);
	observation_number(o, "addresses", p->addresses_max);
	observation_text(o, "instance_type", "%s", run_node(r)->instance_type);
	if (is_refused(p))
		observation_number(o, "refused_s", (int64_t) (p->refused / USEC_PER_SEC));
}

static void observe_pool(struct run *r, const struct picture *p)
{
	bool full = is_felt(r, p) && p->in_use >= p->addresses_max;
	struct observation *o =
		run_observe(r, LAYER_ADDRESS, "", "", full ? OUTCOME_EXHAUSTED : OUTCOME_OK, 0);

	add_numbers(r, o, p);
	observation_number(o, "assigned", p->assigned);
	if (p->viewed)
		observation_number(o, "cooling", p->cooling);
	if (p->prefixes > 0)
		observation_number(o, "prefixes", p->prefixes);
	if (p->limits->network_cards > 1)
		describe_cards(r, o, p);
	observation_detail(o, "%d of %d ENIs, %d of %d addresses in use, %d assigned, %d cooling",
	                   p->attached, p->enis_max, p->in_use, p->addresses_max, p->assigned,
	                   p->cooling);
}

/* A slot is held by something that carries no pods. */
static void observe_enis(struct run *r, const struct picture *p)
{
	struct observation *o;

	if (!is_felt(r, p) || p->in_use >= p->addresses_max || p->attached < p->enis_max)
		return;
	o = run_observe(r, LAYER_ADDRESS, "enis", "", OUTCOME_EXHAUSTED, 0);
	add_numbers(r, o, p);
	observation_number(o, "usable", p->usable);
	observation_detail(o, "%d of %d ENIs attached, %d of them carry pods", p->attached,
	                   p->enis_max, p->usable);
}

static void observe_cooldown(struct run *r, const struct picture *p)
{
	struct observation *o;

	if (!is_refused(p) || !is_cooling(p) || p->ipv6)
		return;
	o = run_observe(r, LAYER_ADDRESS, "cooldown", "", OUTCOME_EXHAUSTED, 0);
	add_numbers(r, o, p);
	observation_number(o, "assigned", p->assigned);
	observation_number(o, "cooling", p->cooling);
	observation_detail(o, "%d of %d assigned addresses cool down", p->cooling, p->assigned);
}

static void observe_max_pods(struct run *r, const struct picture *p)
{
	const struct network *w = &run_node(r)->network;
	int capacity = p->addresses_max + PODS_OF_HOST;
	struct observation *o;
	bool over;

	if (w->max_pods <= 0 || p->ipv6)
		return;
	over = w->max_pods > capacity && is_felt(r, p);
	o = run_observe(r, LAYER_ADDRESS, "max-pods", "", over ? OUTCOME_EXHAUSTED : OUTCOME_OK, 0);
	observation_number(o, "max_pods", w->max_pods);
	observation_number(o, "capacity", capacity);
	observation_number(o, "enis", p->enis_max - p->custom - p->pod_eni);
	observation_number(o, "per_eni", p->per_eni);
	add_numbers(r, o, p);
	observation_detail(o, "maxPods %d, addresses for %d pods", w->max_pods, capacity);
}

/* ipamd falls back to single addresses where prefixes cannot be; that is no fault unless somebody
 * counted on them. Without IPv4 there is nothing to fall back to. */
static void observe_mode(struct run *r, const struct picture *p)
{
	const struct node *n = run_node(r);
	bool wanted = n->cni.known && (n->cni.prefix || n->cni.ipv6);
	bool needed = n->cni.ipv6 || n->network.max_pods > p->addresses_max + PODS_OF_HOST ||
	              !n->ipamd.served_at || run_now(r) - n->ipamd.served_at > FRESH;
	struct observation *o;

	if (!wanted)
		return;
	o = run_observe(r, LAYER_ADDRESS, "mode", "",
	                p->limits->prefixes ? OUTCOME_OK
	                : needed            ? OUTCOME_FAILED
	                                    : OUTCOME_OK,
	                0);
	observation_text(o, "instance_type", "%s", n->instance_type);
	observation_text(o, "mode", "%s", n->cni.ipv6 ? "ENABLE_IPv6" : "ENABLE_PREFIX_DELEGATION");
	observation_number(o, "prefixes", p->limits->prefixes);
	observation_detail(o, "%s on %s, which %s prefixes",
	                   n->cni.ipv6 ? "ENABLE_IPv6" : "ENABLE_PREFIX_DELEGATION",
	                   n->instance_type, p->limits->prefixes ? "carries" : "cannot carry");
}

static void observe_trunk(struct run *r, const struct picture *p)
{
	bool missing = is_trunk_missing(r, p);
	struct observation *o;

	if (!p->pod_eni || !p->viewed)
		return;
	o = run_observe(r, LAYER_ADDRESS, "trunk", "", missing ? OUTCOME_ABSENT : OUTCOME_OK, 0);
	observation_number(o, "pod_eni", 1);
	add_numbers(r, o, p);
	observation_detail(o, "ENABLE_POD_ENI, %s",
	                   p->trunk ? "the trunk is attached" : "no trunk");
}

static void go_on(struct run *r)
{
	const struct node *n = run_node(r);
	const struct limits *l = find_limits(r);
	struct observation *o;
	struct picture p;

	if (n->hybrid || !n->network.known || !l) {
		o = run_observe(r, LAYER_ADDRESS, "", "",
		                n->hybrid ? OUTCOME_SKIPPED : OUTCOME_UNKNOWN, 0);
		observation_detail(o, "%s",
		                   n->hybrid           ? "a hybrid node has no ENIs of ours"
		                   : !n->network.known ? "the kernel's tables were not read"
		                                       : "the type's limits are not known");
		run_end(r);
		return;
	}
	look(r, l, &p);
	observe_pool(r, &p);
	observe_enis(r, &p);
	observe_cooldown(r, &p);
	observe_max_pods(r, &p);
	observe_mode(r, &p);
	observe_trunk(r, &p);
	run_end(r);
}

/* ipamd's log tells of refused pods. */
static void on_waited(struct run *r, uintptr_t tag)
{
	struct state *s = run_state(r);

	if (!run_awaits(r, run_node(r)->cni_log_read, &s->waited, on_waited))
		go_on(r);
}

static int start(struct run *r)
{
	on_waited(r, 0);
	return 0;
}

/* ---- what it means ---- */

static int get(const struct observation *o, const char *key)
{
	return (int) evidence_number(o, key, -1);
}

/* "3 of 3 ENIs, 27 of 27 addresses in use, m5.large", of what is known. */
static void say_numbers(const struct observation *o, struct words *ret)
{
	const char *type = evidence_get_text(o, "instance_type");

	if (get(o, "enis_attached") >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary), "; %d of %d ENIs",
		                   get(o, "enis_attached"), get(o, "enis_max"));
	if (get(o, "in_use") >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary),
		                   ", %d of %d addresses in use", get(o, "in_use"),
		                   get(o, "addresses"));
	if (type[0])
		(void) text_append(ret->summary, sizeof(ret->summary), ", %s", type);
}

static void say(const struct observation *o, struct words *ret, const char *what)
{
	(void) text_format(ret->summary, sizeof(ret->summary), "%s", what);
	if (get(o, "refused_s") >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary),
		                   ", a pod was refused an address %d s ago", get(o, "refused_s"));
	say_numbers(o, ret);
}

static enum code judge_max_pods(const struct observation *o, struct words *ret)
{
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "maxPods is %d, the addresses are enough for %d pods",
	                   get(o, "max_pods"), get(o, "capacity"));
	if (get(o, "per_eni") >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary),
		                   " (%d ENIs x %d, and 2 of the host)", get(o, "enis"),
		                   get(o, "per_eni"));
	say_numbers(o, ret);
	return CODE_MaxPodsExceedsCapacity;
}

static enum code judge_mode(const struct observation *o, struct words *ret)
{
	const char *mode = evidence_get_text(o, "mode");

	(void) text_format(
		ret->summary, sizeof(ret->summary),
		"%s is on, and %s cannot carry prefixes: only nitro types and bare metal can",
		mode[0] ? mode : "prefix mode", evidence_get_text(o, "instance_type"));
	return CODE_PrefixModeUnsupported;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome != OUTCOME_EXHAUSTED && o->outcome != OUTCOME_ABSENT &&
	    o->outcome != OUTCOME_FAILED)
		return CODE_NONE;
	if (strcmp(o->aspect, "max-pods") == 0)
		return judge_max_pods(o, ret);
	if (strcmp(o->aspect, "mode") == 0)
		return judge_mode(o, ret);
	if (strcmp(o->aspect, "enis") == 0)
		return say(o, ret, "no ENI slot is free"), CODE_EniLimitReached;
	if (strcmp(o->aspect, "trunk") == 0)
		return say(o, ret, "ENABLE_POD_ENI holds an ENI slot for a trunk that never came"),
		       CODE_TrunkEniMissing;
	if (strcmp(o->aspect, "cooldown") == 0) {
		say(o, ret, "all free addresses cool down");
		(void) text_append(ret->summary, sizeof(ret->summary), ", %d cooling",
		                   get(o, "cooling"));
		return CODE_AddressCooldown;
	}
	if (o->aspect[0])
		return CODE_NONE;
	return say(o, ret, "every address of this type is in use"), CODE_AddressLimitReached;
}

const struct probe probe_addresses = {
	.name = "addresses",
	.what = "ENIs and pod addresses in use against what the instance type gives",
	.layer = LAYER_ADDRESS,
	.every = 15 * USEC_PER_SEC,
	.failing = 5 * USEC_PER_SEC,
	.retry = USEC_PER_SEC,
	.timeout = 2 * USEC_PER_SEC,
	.after = "limits",
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_EniLimitReached, CODE_AddressLimitReached, CODE_MaxPodsExceedsCapacity,
                  CODE_AddressCooldown, CODE_TrunkEniMissing, CODE_PrefixModeUnsupported},
};
