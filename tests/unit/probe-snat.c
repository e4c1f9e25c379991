/* SPDX-License-Identifier: Apache-2.0 */
#define run_http   fake_http
#define run_env    fake_env
#define probe_snat tested_snat

#include "../fakerun.h"

#include "../../probes/snat.c"

#include "../tap.h"

enum { ASKED_MAX = 16 };

/* Which connects come through: those from low and those from high ports. */
static struct {
	bool low, high, busy; /* busy: the first low port is somebody else's */
	size_t n;
	struct http_request asked[ASKED_MAX];
	run_http_t reply;
	uintptr_t tags[ASKED_MAX];
} way;

const char *fake_env(const struct run *r, const char *name)
{
	return NULL;
}

int fake_http(struct run *r, const struct http_request *rq, run_http_t done_cb, uintptr_t tag)
{
	if (way.n == ASKED_MAX)
		return -ENOMEM;
	way.asked[way.n] = *rq;
	way.tags[way.n++] = tag;
	way.reply = done_cb;
	return 0;
}

static void look(struct run *r)
{
	way.n = 0;
	ok(fake_run(r, &tested_snat) == 0);
	for (size_t i = 0; i < way.n && !r->ended; i++) {
		bool low = way.asked[i].local_port < 32768;
		struct http_reply reply = {.outcome = OUTCOME_OK, .stage = HTTP_DONE, .code = 200};

		if (low && way.busy && i == 0)
			reply = (struct http_reply){.outcome = OUTCOME_FAILED};
		else if (!(low ? way.low : way.high))
			reply = (struct http_reply){.outcome = OUTCOME_TIMEOUT};
		way.reply(r, &reply, way.tags[i]);
	}
	ok(r->ended && r->n_seen == 1);
}

static struct run *make(void)
{
	struct run *r = calloc(1, sizeof(*r));
	struct endpoint *e = &r->node.endpoints[SERVICE_STS];

	r->now = UINT64_C(1234567890123);
	r->node.cni.known = true;
	(void) text_format(e->host, sizeof(e->host), "sts.example");
	(void) text_format(e->scheme, sizeof(e->scheme), "https");
	e->port = 443;
	e->n = 1;
	(void) address_parse(&e->addresses[0], "54.240.250.20");
	way.low = way.high = true;
	way.busy = false;
	return r;
}

static void test_ways(void)
{
	struct run *r = make();
	bool apart = true;

	look(r);
	ok(way.n == 2 && r->seen[0].outcome == OUTCOME_OK);
	ok(way.asked[0].local_port >= 2048 && way.asked[0].local_port < 30000);
	ok(way.asked[1].local_port >= 32768 && way.asked[1].local_port < 61000);
	ok(fake_judge(r, &tested_snat, "") == CODE_NONE);

	/* half an hour is good on one good look */
	r->now += GOOD_FOR - 1;
	look(r);
	ok(way.n == 0 && r->seen[0].outcome == OUTCOME_OK);
	ok(evidence_number(&r->seen[0], "connects", 0) == 2);
	r->now += 1;
	way.low = false;
	look(r);
	ok(way.n == 6 && r->seen[0].outcome == OUTCOME_TIMEOUT);
	for (size_t i = 0; i < way.n; i++)
		for (size_t k = 0; k < i; k++)
			apart = apart && way.asked[i].local_port != way.asked[k].local_port;
	ok(apart);
	ok(fake_judge(r, &tested_snat, "") == CODE_SnatPortsBlocked);
	ok(evidence_number(&r->seen[0], "failed_low", 0) == 3 &&
	   evidence_number(&r->seen[0], "connects", 0) == 6);

	/* nothing comes through: not to be told from an endpoint that is silent */
	way.high = false;
	look(r);
	ok(way.n == 2 && r->seen[0].outcome == OUTCOME_UNKNOWN);
	/* the others get lost: no ACL of this kind */
	way.low = true;
	look(r);
	ok(way.n == 2 && r->seen[0].outcome == OUTCOME_OK);
	r->now += GOOD_FOR;
	/* a port that is taken says nothing */
	way.low = false;
	way.high = way.busy = true;
	look(r);
	ok(r->seen[0].outcome == OUTCOME_UNKNOWN);
	fake_free(r);
	free(r);
}

static void test_skipped(void)
{
	struct run *r = make();
	struct endpoint *e = &r->node.endpoints[SERVICE_STS];

	r->node.cni.kept_ports = true;
	look(r);
	ok(way.n == 0 && r->seen[0].outcome == OUTCOME_SKIPPED);
	r->node.cni.ipv6 = true; /* there the setting is not asked for */
	look(r);
	ok(way.n == 2);
	r->node.cni.external_snat = true;
	look(r);
	ok(way.n == 0 && r->seen[0].outcome == OUTCOME_SKIPPED);
	r->node.cni.external_snat = false;
	r->node.cni.known = false;
	look(r);
	ok(way.n == 0 && r->seen[0].outcome == OUTCOME_SKIPPED);
	r->node.ipamd.began = 1;
	look(r);
	ok(way.n == 0 && r->seen[0].outcome == OUTCOME_UNKNOWN);
	r->node.cni.known = true;
	r->now += GOOD_FOR;
	(void) address_parse(&e->addresses[0], "10.0.1.9");
	look(r);
	ok(way.n == 0 && r->seen[0].outcome == OUTCOME_SKIPPED);
	(void) address_parse(&e->addresses[0], "2600::1");
	look(r);
	ok(way.n == 0 && r->seen[0].outcome == OUTCOME_SKIPPED);
	fake_free(r);
	free(r);
}

int main(void)
{
	test_ways();
	test_skipped();
	return done();
}
