/* SPDX-License-Identifier: Apache-2.0 */
/* When to look next, and that a fleet does not look all at once. */
#include "schedule.h"
#include "../tap.h"

enum { NODES = 10000, SECONDS = 120 };

static const struct probe shared = {.name = "endpoint",
                                    .every = 20 * USEC_PER_SEC,
                                    .retry = 2 * USEC_PER_SEC,
                                    .slots = 2,
                                    .spread = true};
static const struct probe uneven = {
	.name = "apiserver", .every = 20 * USEC_PER_SEC, .slots = 2, .rarer = {[1] = 3}};
static const struct probe own = {.name = "imds", .every = 5 * USEC_PER_SEC};

static void test_one(void)
{
	struct schedule_slot s;
	usec_t t = 1000 * USEC_PER_SEC, next;

	schedule_init(&s, &own, 0, 42, 0, t);
	ok(s.due == t); /* the first look is at once */
	ok(s.retry == USEC_PER_SEC);
	next = schedule_next(&s, SCHEDULE_DAEMON, PACE_UNSURE, t);
	ok(next == t + USEC_PER_SEC); /* a failure is tried again after a second */
	next = schedule_next(&s, SCHEDULE_DAEMON, PACE_CALM, t);
	for (uint64_t machine = 0; machine < 1000; machine++) { /* back onto the grid */
		schedule_init(&s, &own, 0, machine, 0, t);
		next = schedule_next(&s, SCHEDULE_DAEMON, PACE_CALM, t);
		if (next < t + own.every / 5 || next > t + own.every + own.every / 5)
			ok(false, "%llu", (unsigned long long) (next - t));
	}
	for (int i = 0; i < 100; i++) { /* then on the grid, exactly */
		t = next;
		next = schedule_next(&s, SCHEDULE_DAEMON, PACE_CALM, t);
		if (next - t != own.every)
			ok(false, "%llu", (unsigned long long) (next - t));
		/* a look takes a while: the grid does not drift */
		t += 300 * USEC_PER_MSEC;
		if (schedule_next(&s, SCHEDULE_DAEMON, PACE_CALM, t) != next)
			ok(false);
	}
	next = schedule_next(&s, SCHEDULE_DAEMON, PACE_FAILING, t);
	for (int i = 0; i < 20; i++) { /* what fails is watched at its own pace, on a grid too */
		t = next;
		next = schedule_next(&s, SCHEDULE_DAEMON, PACE_FAILING, t);
		ok(next - t == own.every / 2);
	}
	ok(schedule_next(&s, SCHEDULE_CHECK, PACE_FAILING, t) == USEC_INFINITY);
	ok(schedule_next(&s, SCHEDULE_CHECK, PACE_CALM, t) == USEC_INFINITY);
	ok(schedule_next(&s, SCHEDULE_CHECK, PACE_UNSURE, t) < t + USEC_PER_SEC);
	schedule_init(&s, &own, 0, 42, 60 * USEC_PER_SEC, t);
	ok(s.every == 60 * USEC_PER_SEC);
	schedule_init(&s, &uneven, 0, 42, 0, t);
	ok(s.every == 20 * USEC_PER_SEC);
	schedule_init(&s, &uneven, 1, 42, 0, t);
	ok(s.every == 60 * USEC_PER_SEC && s.phase < s.every);
	schedule_init(&s, &uneven, 1, 42, 5 * USEC_PER_SEC,
	              t); /* what is configured is scaled too */
	ok(s.every == 15 * USEC_PER_SEC);
}

static unsigned most(const unsigned *looks, unsigned from, unsigned to)
{
	unsigned max = 0;

	for (unsigned i = from; i < to; i++)
		if (looks[i] > max)
			max = looks[i];
	return max;
}

/* Booted in the same second, 10,000 nodes put no more than twice the mean rate on one endpoint:
 * while it is well, while all of them make sure that it is not, and while it stays broken. */
static void test_fleet(void)
{
	static unsigned looks[SECONDS];
	unsigned calm, turning, failing;

	for (unsigned node = 0; node < NODES; node++) {
		struct schedule_slot s;
		unsigned bad = 0;
		char id[33];
		usec_t t;

		(void) snprintf(id, sizeof(id), "%08x%08x", node * 2654435761u, node);
		schedule_init(&s, &shared, 1, hash_text(0, id), 0, 5 * USEC_PER_SEC);
		for (t = s.due; t < SECONDS * USEC_PER_SEC;) {
			looks[t / USEC_PER_SEC]++;
			if (t > 60 * USEC_PER_SEC)
				bad++;
			t = schedule_next(&s, SCHEDULE_DAEMON,
			                  bad == 0               ? PACE_CALM
			                  : bad < CONFIRM_DAEMON ? PACE_UNSURE
			                                         : PACE_FAILING,
			                  t);
		}
	}
	calm = most(looks, 6, 60);
	turning = most(looks, 60, 90);
	failing = most(looks, 90, SECONDS);
	printf("# worst second: calm %u of %u, turning %u, failing %u of %u\n", calm, NODES / 20,
	       turning, failing, NODES / 10);
	ok(calm > 0 && calm <= 2 * NODES / 20);
	/* three looks in place of one while all make sure, the first of them at the faster pace */
	ok(turning > calm && turning <= 2 * 3 * NODES / 20);
	ok(failing > calm && failing <= 2 * NODES / 10);
}

static void test_ask(void)
{
	const usec_t every = 60 * USEC_PER_SEC, t = 1000 * USEC_PER_SEC;

	ok(schedule_may_ask(SCHEDULE_DAEMON, every, 0, t));
	ok(!schedule_may_ask(SCHEDULE_DAEMON, every, t, t + every - 1));
	ok(schedule_may_ask(SCHEDULE_DAEMON, every, t, t + every));
	ok(schedule_may_ask(SCHEDULE_CHECK, every, 0, t));
	ok(!schedule_may_ask(SCHEDULE_CHECK, every, t, t + 2 * every));
}

/* How often a slot is looked at in a day on which nothing is found, on the machine that looks most.
 */
static unsigned looks_a_day(const char *name, unsigned slot)
{
	const struct probe *p = probe_by_name(name);
	const usec_t day = 86400 * USEC_PER_SEC, boot = 7 * USEC_PER_SEC;
	unsigned max = 0;

	for (uint64_t machine = 1; p && machine <= 20; machine++) {
		struct schedule_slot s;
		unsigned looks = 0;

		schedule_init(&s, p, slot, machine * 2654435761u, 0, boot);
		for (usec_t t = schedule_first(&s, p, boot); t < boot + day; looks++)
			t = schedule_next(&s, SCHEDULE_DAEMON, PACE_CALM, t + 20 * USEC_PER_MSEC);
		if (looks > max)
			max = looks;
	}
	return max;
}

static unsigned slots_of(const char *name)
{
	const struct probe *p = probe_by_name(name);

	return p && p->slots ? p->slots : 1;
}

/* What a healthy node may cost those whom thousands of it share, by the intervals of the real
 * probes. Each look is one call, but for the Node object, asked for at every fifth
 * (probe-identity.c), the endpoints, of whose looks one in three is a whole request, and EKS, which
 * AL2023 does not ask (both probe-endpoint.c). What asks EC2 is asked only by findings
 * (probe-subnet.c). */
static void test_budget(void)
{
	const unsigned day = 86400, first = 8; /* looks at the start, beside the grid */
	unsigned node = looks_a_day("identity", 0) / 5, sts = looks_a_day("sts", 0),
		 cri = looks_a_day("runtime", 0), api = 0, tls = 0;

	for (unsigned i = 0; i < slots_of("apiserver"); i++)
		api += looks_a_day("apiserver", i);
	for (unsigned i = 0; i < slots_of("endpoint"); i++)
		tls += i == SERVICE_EKS ? 0 : looks_a_day("endpoint", i);
	printf("# a day: STS %u, Node object %u, API server %u more, CRI Status %u, endpoints %u\n",
	       sts, node, api, cri, tls);
	ok(sts > 0 && sts <= day / 900 + first);
	ok(node > 0 && api > 0 && node + api <= day / 60 + first);
	ok(cri > day / 20 && cri <= day / 10 + first);
	ok(tls > 0 && tls / 3 + node + api + sts <= day / 10);
	ok(probe_by_name("subnet")->asked_by[0] != CODE_NONE);
}

int main(void)
{
	test_budget();
	test_one();
	test_fleet();
	test_ask();
	return done();
}
