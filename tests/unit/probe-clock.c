/* SPDX-License-Identifier: Apache-2.0 */
#include "../fakejoin.h"

#include "../../probes/clock.c"

#include "../tap.h"

static void hear(struct run *r, enum witness w, int64_t offset_s)
{
	r->node.witnesses[w] = (struct witness_seen){.offset_s = offset_s, .at = r->now};
}

static bool says(struct run *r, enum outcome outcome)
{
	return join_run(r, &tested_clock) == 0 &&
	       join_is(r, &tested_clock, "", outcome,
	               outcome == OUTCOME_FAILED ? CODE_ClockSkewed : CODE_NONE);
}

static void test_witnesses(struct run *r)
{
	ok(says(r, OUTCOME_UNKNOWN)); /* nobody has spoken */
	hear(r, WITNESS_METADATA, -1022);
	ok(says(r, OUTCOME_UNKNOWN)); /* one alone, and the kernel says that all is well */
	world.synchronised = false;
	ok(says(r, OUTCOME_FAILED));
	world.kernel_error = -EPERM;
	ok(says(r, OUTCOME_UNKNOWN));
	hear(r, WITNESS_ENDPOINT, -1020);
	ok(says(r, OUTCOME_FAILED));
	ok(evidence_number(fake_find(r, "", NULL), "synchronised", -1) == -1);
	world.kernel_error = 0;
	ok(says(r, OUTCOME_FAILED));
	hear(r, WITNESS_APISERVER, 0);
	ok(says(r, OUTCOME_FAILED)); /* two of three */
	ok(evidence_number(fake_find(r, "", NULL), "witnesses", 0) == 2 &&
	   evidence_number(fake_find(r, "", NULL), "heard", 0) == 3);
	hear(r, WITNESS_ENDPOINT, 300);
	ok(says(r, OUTCOME_UNKNOWN)); /* each says something else */
	hear(r, WITNESS_ENDPOINT, 1);
	ok(says(r, OUTCOME_OK));
	hear(r, WITNESS_METADATA, 60);
	hear(r, WITNESS_ENDPOINT, 58);
	hear(r, WITNESS_APISERVER, 57);
	ok(says(r, OUTCOME_OK));
	hear(r, WITNESS_METADATA, -30);
	hear(r, WITNESS_ENDPOINT, 0);
	hear(r, WITNESS_APISERVER, 30);
	ok(says(r, OUTCOME_OK)); /* no two agree, and none says that it is wrong */
}

static void test_age(struct run *r)
{
	struct clock_said said;

	hear(r, WITNESS_METADATA, 600);
	hear(r, WITNESS_ENDPOINT, 601);
	hear(r, WITNESS_APISERVER, 600);
	ok(says(r, OUTCOME_FAILED));
	r->now += 5 * 60 * USEC_PER_SEC;
	world.realtime += 5 * 60 * USEC_PER_SEC;
	ok(says(r, OUTCOME_FAILED));
	r->now += 2 * 60 * USEC_PER_SEC;
	world.realtime += 2 * 60 * USEC_PER_SEC;
	ok(says(r, OUTCOME_UNKNOWN)); /* too long ago */
	node_clock(&r->node, r->now, &said);
	ok(said.heard == 0 && said.sound == CANNOT_TELL);

	/* chronyd sets the clock: what was said of the old one is not held against the new */
	hear(r, WITNESS_METADATA, 600);
	hear(r, WITNESS_ENDPOINT, 600);
	ok(says(r, OUTCOME_FAILED));
	r->now += USEC_PER_SEC;
	world.realtime -= 599 * USEC_PER_SEC;
	ok(says(r, OUTCOME_UNKNOWN));
	hear(r, WITNESS_METADATA, 0);
	ok(says(r, OUTCOME_OK));
	r->now += 3600 * USEC_PER_SEC; /* a suspend is no step: both clocks went on */
	world.realtime += 3600 * USEC_PER_SEC;
	hear(r, WITNESS_METADATA, 0);
	ok(says(r, OUTCOME_OK));
}

int main(void)
{
	struct run *r = calloc(1, sizeof(*r));

	if (!r)
		return 1;
	r->now = 1000 * USEC_PER_SEC;
	world.realtime = UINT64_C(1796073419) * USEC_PER_SEC;
	world.synchronised = true;
	test_witnesses(r);
	test_age(r);
	ok(tested_clock.judge(&(struct observation){.outcome = OUTCOME_OK}, &(struct words){0}) ==
	   CODE_NONE);
	fake_free(r);
	free(r);
	return done();
}
