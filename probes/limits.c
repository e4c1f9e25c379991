/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>

#include "probe.h"

enum { KUBELET_DEFAULT_MAX_PODS = 110, MAX_PODS_MAX = 1 << 20 };

struct state {
	int max_pods; /* -1: not known */
	char from[96];
};

static void set_max_pods(struct state *s, int64_t n, const char *from)
{
	if (n < 1 || n > MAX_PODS_MAX)
		return;
	s->max_pods = (int) n;
	(void) text_format(s->from, sizeof(s->from), "%s", from);
}

/* Without maxPods, what is known already stays. */
static void on_config(const json_t *part, const char *path, void *userdata)
{
	const json_t *n = json_object_get(part, "maxPods");

	if (json_is_integer(n))
		set_max_pods(userdata, json_integer_value(n), path);
}

/* Later places override earlier ones; the command line overrides the files. */
static void find_max_pods(struct run *r)
{
	struct state *s = run_state(r);
	const char *from;
	char value[12];
	bool configured;
	uint64_t n;

	s->max_pods = -1;
	configured = kubelet_config_read(run_files(r), on_config, s);
	from = kubelet_argument(run_files(r), "--max-pods", value, sizeof(value));
	if (from && text_to_uint(value, 1, MAX_PODS_MAX, &n) == 0)
		set_max_pods(s, (int64_t) n, from);
	if (configured && s->max_pods < 0)
		set_max_pods(s, KUBELET_DEFAULT_MAX_PODS, "kubelet's default");
}

/* What the type gives in the mode that ipamd was told, or else that the eni probe saw. Pods get
 * addresses of the default card's ENIs; in an IPv6 cluster the one /80 is never used up. */
static void learn(struct run *r, const struct limits *l)
{
	struct network *n = &run_learn(r)->network;
	const struct cni_settings *cni = &run_node(r)->cni;
	const struct state *s = run_state(r);
	bool asked = cni->known ? cni->prefix || cni->ipv6 : n->prefix_mode || n->ipv6;
	bool prefix = l && l->prefixes && asked, custom = cni->known && cni->custom;

	n->max_pods = s->max_pods;
	n->enis_max = n->ipv4_per_eni = n->ips_max = n->max_pods_by_type = -1;
	n->limits_source[0] = 0;
	if (!l)
		return;
	n->enis_max = l->network_cards > 1 ? l->enis_all_cards : l->max_enis;
	n->ipv4_per_eni = l->ipv4_per_eni;
	/* beside what metadata assigns, which counts the ENIs of every card */
	n->ips_max =
		n->ipv6 ? -1 : (n->enis_max - custom) * (l->ipv4_per_eni - 1) * (prefix ? 16 : 1);
	n->max_pods_by_type = limits_max_pods(l, prefix, custom);
	(void) text_format(n->limits_source, sizeof(n->limits_source), "%s", l->source);
}

static void observe_known(struct run *r, const struct limits *l, unsigned bad_rows)
{
	const struct state *s = run_state(r);
	const struct network *n = &run_node(r)->network;
	const char *type = run_node(r)->instance_type;
	struct observation *o = run_observe(r, LAYER_ADDRESS, "", "", OUTCOME_OK, 0);
	int pods = limits_max_pods(l, false, false);

	observation_text(o, "instance_type", "%s", type);
	observation_number(o, "enis_max", n->enis_max);
	observation_number(o, "ipv4_per_eni", l->ipv4_per_eni);
	observation_number(o, "ips_max", n->ips_max);
	observation_number(o, "max_pods_secondary", pods);
	observation_number(o, "max_pods_prefix",
	                   l->prefixes ? limits_max_pods(l, true, false) : -1);
	observation_number(o, "max_pods", s->max_pods);
	observation_text(o, "max_pods_from", "%s", s->from);
	observation_text(o, "limits_source", "%s", l->source);
	if (bad_rows > 0)
		observation_number(o, "bad_rows", bad_rows);
	observation_detail(o, "%s: %d ENIs, %d addresses each, %d pods (%d with prefixes)", type,
	                   n->enis_max, l->ipv4_per_eni, pods,
	                   l->prefixes ? limits_max_pods(l, true, false) : pods);
}

/* A type newer than the tables: what the subnet probe was told of it. */
static bool limits_by_ec2(struct run *r, struct limits *ret)
{
	const struct type_limits *l = &run_node(r)->asked_limits;

	if (!l->instance_type[0] || strcmp(l->instance_type, run_node(r)->instance_type) != 0)
		return false;
	*ret = (struct limits){.max_enis = l->max_enis,
	                       .ipv4_per_eni = l->ipv4_per_eni,
	                       .network_cards = l->network_cards,
	                       .enis_all_cards = l->enis_all_cards,
	                       .prefixes = l->prefixes,
	                       .source = "EC2"};
	ret->max_pods = limits_max_pods(ret, false, false);
	return true;
}

static int start(struct run *r)
{
	const char *type = run_node(r)->instance_type;
	struct observation *o;
	unsigned bad_rows = 0;
	struct limits l;
	int e;

	find_max_pods(r);
	if (!type[0]) {
		learn(r, NULL);
		o = run_observe(r, LAYER_ADDRESS, "", "", OUTCOME_UNKNOWN, 0);
		observation_detail(o, "instance type not known: metadata has not answered");
		run_end(r);
		return 0;
	}
	e = limits_lookup(type, &l, &bad_rows);
	if (e == -ENOENT && limits_by_ec2(r, &l))
		e = 0;
	if (e < 0 && e != -ENOENT)
		return e;
	learn(r, e == 0 ? &l : NULL);
	if (e == 0) {
		observe_known(r, &l, bad_rows);
	} else {
		o = run_observe(r, LAYER_ADDRESS, "", "", OUTCOME_ABSENT, 0);
		observation_text(o, "instance_type", "%s", type);
		observation_detail(o, "%s is in no limits table", type);
	}
	run_end(r);
	return 0;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome != OUTCOME_ABSENT)
		return CODE_NONE;
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "instance type %s is in no limits table: counts are shown without a "
	                   "judgement",
	                   evidence_get_text(o, "instance_type"));
	return CODE_LimitsUnknown;
}

const struct probe probe_limits = {
	.name = "limits",
	.what = "how many ENIs, addresses and pods the instance type carries, and kubelet's "
		"maxPods",
	.layer = LAYER_ADDRESS,
	.every = 60 * USEC_PER_SEC,
	.retry = USEC_PER_SEC,
	.failing = 10 * USEC_PER_SEC, /* EC2 may have told what no table knows */
	.timeout = 2 * USEC_PER_SEC,
	.after = "eni",
	.needs_ec2 = true,
	.state_size = sizeof(struct state),
	.start = start,
	.judge = judge,
	.codes = {CODE_LimitsUnknown},
};
