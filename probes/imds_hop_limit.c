/* SPDX-License-Identifier: Apache-2.0 */
/* Can pods get a metadata token? Seen from the host, by the IP TTL of the token PUT's answer. */
#include <arpa/inet.h>

#include "probe.h"

static const usec_t patience = 2 * USEC_PER_SEC;

static bool look(struct run *r, int family);

static void on_hop(struct run *r, const struct hop_reply *reply, uintptr_t family)
{
	bool known = reply->outcome == OUTCOME_OK && reply->status == 200;
	bool low = known && reply->hop_limit == 1 && (reply->counted || reply->exact);
	struct observation *o;

	/* a family that is not there says nothing; the other one may */
	if (!known && family == AF_INET && look(r, AF_INET6))
		return;
	o = run_observe(r, LAYER_METADATA, "", "",
	                low     ? OUTCOME_EXHAUSTED
	                : known ? OUTCOME_OK
	                        : OUTCOME_UNKNOWN,
	                reply->error ? reply->error : reply->status);
	observation_number(o, "family", family == AF_INET6 ? 6 : 4);
	if (known) {
		observation_number(o, "hop_limit", reply->hop_limit);
		observation_number(o, "exact", reply->exact);
		observation_number(o, "counted", reply->counted);
		observation_detail(o, "hop limit %d%s", reply->hop_limit,
		                   reply->exact || low ? "" : " or more");
	} else {
		observation_detail(o, "cannot tell: the token PUT ended with %s",
		                   outcome_name(reply->outcome));
	}
	run_end(r);
}

static bool look(struct run *r, int family)
{
	struct address a;
	uint16_t port;

	return run_imds_endpoint(r, family, &a, &port) &&
	       run_hop(r, &a, port, patience, on_hop, (uintptr_t) family) == 0;
}

static int start(struct run *r)
{
	if (run_node(r)->metadata_answers && (look(r, AF_INET) || look(r, AF_INET6)))
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
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_ImdsHopLimitLow, CODE_NONE},
};
