/* SPDX-License-Identifier: Apache-2.0 */
/* Can pods get a metadata token? Seen from the host, by the IP TTL of the token PUT's answer. */
#include <arpa/inet.h>

#include "probe.h"

static const usec_t patience = 2 * USEC_PER_SEC;

struct state {
	unsigned pending;
};

static void observe(struct run *r, const struct hop_reply *reply, bool v6)
{
	bool known = reply->outcome == OUTCOME_OK && reply->status == 200;
	bool low = known && reply->hop_limit == 1 && (reply->counted || reply->exact);
	struct observation *o;

	o = run_observe(r, LAYER_METADATA, "", "",
	                low     ? OUTCOME_EXHAUSTED
	                : known ? OUTCOME_OK
	                        : OUTCOME_UNKNOWN,
	                reply->error ? reply->error : reply->status);
	observation_number(o, "family", v6 ? 6 : 4);
	if (!known) {
		observation_detail(o, "cannot tell: the token PUT ended with %s",
		                   outcome_name(reply->outcome));
		return;
	}
	observation_number(o, "hop_limit", reply->hop_limit);
	observation_number(o, "exact", reply->exact);
	observation_number(o, "counted", reply->counted);
	observation_detail(o, "hop limit %d%s", reply->hop_limit,
	                   reply->exact || low ? "" : " or more");
}

/* The option is one for both families: whichever answers first tells it. */
static void on_hop(struct run *r, const struct hop_reply *reply, uintptr_t family)
{
	struct state *s = run_state(r);
	bool known = reply->outcome == OUTCOME_OK && reply->status == 200;

	s->pending--;
	if (!known && s->pending > 0)
		return;
	observe(r, reply, family == AF_INET6);
	run_end(r);
}

static int start(struct run *r)
{
	static const int families[] = {AF_INET, AF_INET6};
	struct state *s = run_state(r);
	struct address a;
	uint16_t port;

	for (size_t i = 0; i < ELEMENTS(families) && run_node(r)->metadata_answers; i++)
		if (run_imds_endpoint(r, families[i], &a, &port) &&
		    run_hop(r, &a, port, patience, on_hop, (uintptr_t) families[i]) == 0)
			s->pending++;
	if (s->pending > 0)
		return 0;
	observation_detail(run_observe(r, LAYER_METADATA, "", "", OUTCOME_SKIPPED, 0),
	                   "metadata does not answer");
	run_end(r);
	return 0;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome != OUTCOME_EXHAUSTED)
		return CODE_NONE;
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "token PUT is answered with hop limit 1 (%s): pods without hostNetwork "
	                   "get no token",
	                   evidence_number(o, "exact", 0) ? "read from the packet"
	                                                  : "the kernel counted the drop");
	return CODE_ImdsHopLimitLow;
}

const struct probe probe_imds_hop_limit = {
	.name = "imds-hop-limit",
	.what = "the hop limit of metadata's token answers, which decides whether pods get a token",
	.layer = LAYER_METADATA,
	.every = 300 * USEC_PER_SEC,
	.timeout = 5 * USEC_PER_SEC,
	.after = "imds",
	.state_size = sizeof(struct state),
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_ImdsHopLimitLow, CODE_NONE},
};
