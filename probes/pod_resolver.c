/* SPDX-License-Identifier: Apache-2.0 */
/* Which nameservers does kubelet hand to pods? A loopback address is the node's own stub to the
 * node, and the pod itself to a pod: CoreDNS then asks itself in a circle. */
#include <errno.h>
#include <jansson.h>

#include "probe.h"

enum { PATH_BYTES = 256, RESOLV_CONF_MAX = 65536 };

/* The dns probe looks every five seconds, the apiserver probe every 90. */
static const usec_t fresh = 120 * USEC_PER_SEC;
static const char by_default[] = "/etc/resolv.conf";

struct state {
	char path[PATH_BYTES], from[PATH_BYTES];
};

/* Without resolvConf, what is known already stays. */
static void on_config(const json_t *part, const char *path, void *userdata)
{
	const char *value = json_string_value(json_object_get(part, "resolvConf"));
	struct state *s = userdata;

	if (!value)
		return;
	(void) text_format(s->path, sizeof(s->path), "%s", value);
	(void) text_format(s->from, sizeof(s->from), "%s", path);
}

/* False: there is no kubelet here, or it keeps its configuration where nobody looks. */
static bool find_path(struct run *r)
{
	struct state *s = run_state(r);
	char value[PATH_BYTES];
	const char *from;
	bool configured;

	(void) text_format(s->path, sizeof(s->path), "%s", by_default);
	(void) text_format(s->from, sizeof(s->from), "kubelet's default");
	configured = kubelet_config_read(run_files(r), on_config, s);
	from = kubelet_argument(run_files(r), "--resolv-conf", value, sizeof(value));
	if (from) {
		(void) text_format(s->path, sizeof(s->path), "%s", value);
		(void) text_format(s->from, sizeof(s->from), "%s", from);
	}
	return configured || from;
}

static bool is_resolved(const struct endpoint *e, usec_t now)
{
	return e->n > 0 && !e->literal && e->resolved_at && now - e->resolved_at < fresh;
}

static bool host_resolves(struct run *r)
{
	const struct node *n = run_node(r);

	for (enum service i = 0; i < _SERVICE_MAX; i++)
		if (is_resolved(&n->endpoints[i], run_now(r)))
			return true;
	return is_resolved(&n->apiserver, run_now(r));
}

static void describe(const struct observation *o, char *dst, size_t size)
{
	(void) text_format(dst, size,
	                   "pods are handed %s (%s), which names only %s, there the pod itself; "
	                   "the host resolves",
	                   o->subject, evidence_get_text(o, "from"),
	                   evidence_get_text(o, "server"));
}

static void observe(struct run *r, const struct resolv_conf *conf)
{
	const struct state *s = run_state(r);
	char server[ADDRESS_TEXT_MAX];
	struct observation *o;
	size_t own = 0;

	while (own < conf->n && address_is_loopback(&conf->servers[own]))
		own++;
	o = run_observe(r, LAYER_DNS, "", s->path,
	                own < conf->n      ? OUTCOME_OK
	                : host_resolves(r) ? OUTCOME_FAILED
	                                   : OUTCOME_UNKNOWN,
	                0);
	if (!o)
		return;
	address_format(&conf->servers[own < conf->n ? own : 0], server);
	observation_text(o, "server", "%s", server);
	observation_text(o, "from", "%s", s->from);
	if (o->outcome == OUTCOME_FAILED)
		describe(o, o->detail, sizeof(o->detail));
	else
		observation_detail(o,
		                   o->outcome == OUTCOME_OK
		                           ? "pods are handed nameserver %s"
		                           : "cannot tell: pods are handed %s, and nobody has "
		                             "resolved a name on the host either",
		                   server);
}

static void look(struct run *r)
{
	struct state *s = run_state(r);
	struct resolv_conf conf;
	const char *text;
	size_t len;
	int e;

	if (!find_path(r)) {
		observation_detail(run_observe(r, LAYER_DNS, "", "", OUTCOME_SKIPPED, 0),
		                   "no configuration of a kubelet here");
		return;
	}
	if (!s->path[0]) {
		observation_detail(run_observe(r, LAYER_DNS, "", "", OUTCOME_SKIPPED, 0),
		                   "kubelet is told to hand out none (%s)", s->from);
		return;
	}
	e = s->path[0] == '/' ? run_read(r, s->path, RESOLV_CONF_MAX, &text, &len) : -EINVAL;
	if (e < 0) {
		observation_detail(run_observe(r, LAYER_DNS, "", "", OUTCOME_UNKNOWN, -e),
		                   "cannot tell: %s: %s", s->path, strerrordesc_np(-e));
		return;
	}
	resolv_conf_parse(&conf, text, len);
	if (conf.n > 0)
		observe(r, &conf);
	else
		observation_detail(run_observe(r, LAYER_DNS, "", "", OUTCOME_SKIPPED, 0),
		                   "%s has no nameserver line", s->path);
}

static int start(struct run *r)
{
	look(r);
	run_end(r);
	return 0;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome != OUTCOME_FAILED)
		return CODE_NONE;
	describe(o, ret->summary, sizeof(ret->summary));
	return CODE_PodResolverLoop;
}

const struct probe probe_pod_resolver = {
	.name = "pod-resolver",
	.what = "the nameservers that kubelet hands to pods",
	.layer = LAYER_DNS,
	.every = 60 * USEC_PER_SEC,
	.failing = 10 * USEC_PER_SEC,
	.timeout = 2 * USEC_PER_SEC,
	.grace = 60 * USEC_PER_SEC, /* nodeadm may still be writing */
	.after = "dns",             /* whether the host resolves */
	.state_size = sizeof(struct state),
	.watch = {"/etc/resolv.conf", "/etc/kubernetes/kubelet",
                  "/etc/kubernetes/kubelet/config.json.d", "/etc/eks/kubelet/environment"},
	.start = start,
	.judge = judge,
	.codes = {CODE_PodResolverLoop, CODE_NONE},
};
