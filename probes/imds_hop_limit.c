/* SPDX-License-Identifier: Apache-2.0 */
/* Can pods get a metadata token? Seen from the host, by the IP TTL of the token PUT's answer. */
#include <arpa/inet.h>

#include "probe.h"

static const usec_t patience = 2 * USEC_PER_SEC;

struct state {
	unsigned pending;
};

/* The imds probe keeps one token for hours: only this look sees that no new one can be had. */
static enum outcome outcome_of(const struct hop_reply *reply)
{
	bool answered = reply->outcome == OUTCOME_OK;

	if (answered && reply->status == 403)
		return OUTCOME_DENIED;
	if (reply->outcome == OUTCOME_TIMEOUT && reply->error == 0) /* connected, then silence */
		return OUTCOME_TIMEOUT;
	if (!answered || reply->status != 200)
		return OUTCOME_UNKNOWN;
	return reply->hop_limit == 1 && (reply->counted || reply->exact) ? OUTCOME_EXHAUSTED
	                                                                 : OUTCOME_OK;
}

static void observe(struct run *r, const struct hop_reply *reply, bool v6)
{
	enum outcome outcome = outcome_of(reply);
	struct observation *o;

	o = run_observe(r, LAYER_METADATA, "", "", outcome,
	                reply->error ? reply->error : reply->status);
	observation_number(o, "family", v6 ? 6 : 4);
	observation_number(o, "took_ms", (int64_t) (reply->took / USEC_PER_MSEC));
	if (reply->status)
		observation_number(o, "http_status", reply->status);
	if (outcome != OUTCOME_OK && outcome != OUTCOME_EXHAUSTED) {
		observation_detail(o, "cannot tell: the token PUT ended with %s",
		                   reply->status ? "another HTTP status"
		                                 : outcome_name(reply->outcome));
		return;
	}
	observation_number(o, "hop_limit", reply->hop_limit);
	observation_number(o, "exact", reply->exact);
	observation_number(o, "counted", reply->counted);
	observation_detail(o, "hop limit %d%s", reply->hop_limit,
	                   reply->exact || outcome == OUTCOME_EXHAUSTED ? "" : " or more");
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
	switch (o->outcome) {
	case OUTCOME_EXHAUSTED:
		(void) text_format(ret->summary, sizeof(ret->summary),
		                   "token PUT is answered with hop limit 1 (%s): pods without "
		                   "hostNetwork get no token",
		                   evidence_number(o, "exact", 0) ? "read from the packet"
		                                                  : "the kernel counted the drop");
		return CODE_ImdsHopLimitLow;
	case OUTCOME_TIMEOUT:
		(void) text_format(
			ret->summary, sizeof(ret->summary),
			"a new token PUT: connected, no answer in %.1f s; what has a token "
			"still works",
			(double) evidence_number(o, "took_ms", 0) / 1e3);
		return CODE_ImdsTokenTimeout;
	case OUTCOME_DENIED:
		(void) text_format(ret->summary, sizeof(ret->summary),
		                   "a new token PUT: HTTP 403; what has a token still works");
		return CODE_ImdsDisabled;
	default:
		return CODE_NONE;
	}
}

const struct probe probe_imds_hop_limit = {
	.name = "imds-hop-limit",
	.what = "the hop limit of metadata's token answers, which decides whether pods get a token",
	.layer = LAYER_METADATA,
	.every = 300 * USEC_PER_SEC,
	.timeout = 5 * USEC_PER_SEC,
	.grace = 60 * USEC_PER_SEC, /* DHCP may still be at it */
	.after = "imds",
	.state_size = sizeof(struct state),
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_ImdsTokenTimeout, CODE_ImdsDisabled, CODE_ImdsHopLimitLow, CODE_NONE},
};
