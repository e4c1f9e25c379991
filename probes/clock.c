/* SPDX-License-Identifier: Apache-2.0 */
/* Is the wall clock right? Asks nobody: every Date header that another probe receives is a witness,
 * and one alone may be wrong. Signatures, tokens and certificates all fail with a wrong clock. */
#include "probe.h"

struct memory {
	int64_t base_s; /* wall clock minus CLOCK_BOOTTIME at the last look */
	bool looked;
};

/* What was heard before the clock was set says nothing of how it is now. */
static void forget_after_step(struct run *r)
{
	int64_t base_s =
		((int64_t) run_realtime(r) - (int64_t) run_now(r)) / (int64_t) USEC_PER_SEC;
	struct memory *m = run_memory(r);
	struct node *n = run_learn(r);
	int64_t step_s = base_s - m->base_s;

	if (m->looked && (step_s < -1 || step_s > 1))
		for (enum witness w = 0; w < _WITNESS_MAX; w++)
			n->witnesses[w].at = 0;
	m->base_s = base_s;
	m->looked = true;
}

static void list(unsigned who, char *dst, size_t size)
{
	dst[0] = 0;
	for (enum witness w = 0; w < _WITNESS_MAX; w++)
		if (who & 1u << w)
			(void) text_append(dst, size, "%s%s", dst[0] ? ", " : "", witness_name(w));
}

static void describe(const struct observation *o, char *dst, size_t size)
{
	long long s = (long long) evidence_number(o, "offset_ms", 0) / 1000;
	int witnesses = (int) evidence_number(o, "witnesses", 0);
	int synchronised = (int) evidence_number(o, "synchronised", -1);
	const char *sources = evidence_get_text(o, "sources");

	if (s >= -CLOCK_SOUND_S && s <= CLOCK_SOUND_S)
		(void) text_format(dst, size, "offset %lld s", s);
	else
		(void) text_format(dst, size, "clock is %lld s %s", s < 0 ? -s : s,
		                   s < 0 ? "behind" : "ahead");
	if (witnesses)
		(void) text_append(dst, size, " by %d of %d Date headers", witnesses,
		                   (int) evidence_number(o, "heard", witnesses));
	if (sources[0])
		(void) text_append(dst, size, " (%s)", sources);
	if (synchronised >= 0)
		(void) text_append(dst, size, "; %ssynchronised by the kernel's account",
		                   synchronised ? "" : "not ");
}

static void describe_unknown(struct observation *o, const struct clock_said *said)
{
	int synchronised = (int) evidence_number(o, "synchronised", -1);

	if (!said->heard)
		observation_detail(o, "cannot tell: no answer with a date yet%s",
		                   synchronised < 0 ? ""
		                   : synchronised   ? "; synchronised by the kernel's account"
		                                    : "; not synchronised by the kernel's account");
	else if (said->heard > 1)
		observation_detail(o, "cannot tell: %u Date headers that do not agree",
		                   said->heard);
	else
		observation_detail(o, "cannot tell: only %s says that it is %lld s off",
		                   evidence_get_text(o, "sources"), (long long) said->offset_s);
}

static enum outcome outcome_of(const struct clock_said *said, bool synchronised)
{
	if (said->sound == YES)
		return OUTCOME_OK;
	/* one witness alone is believed where nobody sets the clock */
	if (said->sound == NO || (said->heard == 1 && !synchronised))
		return OUTCOME_FAILED;
	return OUTCOME_UNKNOWN;
}

static int start(struct run *r)
{
	struct clock_kernel k = {0};
	struct clock_said said;
	struct observation *o;
	bool told = clock_ask_kernel(&k) == 0;
	char sources[64];

	forget_after_step(r);
	node_clock(run_node(r), run_now(r), &said);
	list(said.who, sources, sizeof(sources));
	o = run_observe(r, LAYER_CLOCK, "", "", outcome_of(&said, !told || k.synchronised), 0);
	if (said.heard) {
		observation_number(o, "offset_ms", said.offset_s * 1000);
		observation_number(o, "witnesses", said.agree);
		observation_number(o, "heard", said.heard);
		observation_text(o, "sources", "%s", sources);
	}
	if (told) {
		observation_number(o, "synchronised", k.synchronised);
		observation_number(o, "max_error_ms", k.max_error_ms);
	}
	if (o && o->outcome == OUTCOME_UNKNOWN)
		describe_unknown(o, &said);
	else if (o)
		describe(o, o->detail, sizeof(o->detail));
	run_end(r);
	return 0;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome != OUTCOME_FAILED)
		return CODE_NONE;
	describe(o, ret->summary, sizeof(ret->summary));
	return CODE_ClockSkewed;
}

const struct probe probe_clock = {
	.name = "clock",
	.what = "the wall clock, by the Date headers of metadata, AWS endpoints and the API server",
	.layer = LAYER_CLOCK,
	.every = 15 * USEC_PER_SEC,
	.failing = 5 * USEC_PER_SEC,
	.timeout = USEC_PER_SEC,
	.grace = 120 * USEC_PER_SEC, /* until chronyd has had its first answers */
	.after = "endpoint",         /* whose answers are witnesses */
	.memory_size = sizeof(struct memory),
	.start = start,
	.judge = judge,
	.codes = {CODE_ClockSkewed, CODE_NONE},
};
