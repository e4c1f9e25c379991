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
	next = schedule_next(&s, SCHEDULE_DAEMON, true, t);
	ok(next == t + USEC_PER_SEC); /* a failure is tried again after a second */
	next = schedule_next(&s, SCHEDULE_DAEMON, false, t);
	for (uint64_t machine = 0; machine < 1000; machine++) { /* back onto the grid */
		schedule_init(&s, &own, 0, machine, 0, t);
		next = schedule_next(&s, SCHEDULE_DAEMON, false, t);
		if (next < t + own.every / 5 || next > t + own.every + own.every / 5)
			ok(false, "%llu", (unsigned long long) (next - t));
	}
	for (int i = 0; i < 100; i++) { /* then on the grid, exactly */
		t = next;
		next = schedule_next(&s, SCHEDULE_DAEMON, false, t);
		if (next - t != own.every)
			ok(false, "%llu", (unsigned long long) (next - t));
		/* a look takes a while: the grid does not drift */
		t += 300 * USEC_PER_MSEC;
		if (schedule_next(&s, SCHEDULE_DAEMON, false, t) != next)
			ok(false);
	}
	ok(schedule_next(&s, SCHEDULE_CHECK, false, t) == USEC_INFINITY);
	ok(schedule_next(&s, SCHEDULE_CHECK, true, t) < t + USEC_PER_SEC);
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

/* Booted in the same second, 10,000 nodes put no more than twice the mean rate on one endpoint. */
static void test_fleet(bool failing)
{
	static unsigned looks[SECONDS];
	unsigned max = 0, total = 0;
	double mean;

	memset(looks, 0, sizeof(looks));
	for (unsigned node = 0; node < NODES; node++) {
		struct schedule_slot s;
		char id[33];
		usec_t t;

		(void) snprintf(id, sizeof(id), "%08x%08x", node * 2654435761u, node);
		schedule_init(&s, &shared, 1, hash_text(0, id), 0, 5 * USEC_PER_SEC);
		for (t = s.due; t < SECONDS * USEC_PER_SEC;) {
			looks[t / USEC_PER_SEC]++;
			total++;
			/* everything is down from the 60th second on: three looks two seconds
			 * apart, then sure */
			t = schedule_next(&s, SCHEDULE_DAEMON, false, t);
			if (failing && t > 60 * USEC_PER_SEC && t < 80 * USEC_PER_SEC) {
				for (int i = 0; i < 2; i++) {
					usec_t again = schedule_next(&s, SCHEDULE_DAEMON, true,
					                             t + (usec_t) i * s.retry);

					looks[again / USEC_PER_SEC]++;
				}
			}
		}
	}
	mean = (double) NODES / 20;
	for (unsigned i = 6; i < SECONDS; i++)
		if (looks[i] > max)
			max = looks[i];
	printf("# %s: mean %.0f a second by interval, worst second %u, %u looks\n",
	       failing ? "failing" : "calm", mean, max, total);
	/* three looks in place of one while 10,000 nodes make sure: still spread like the looks */
	ok(max <= (failing ? 2 * 3 : 2) * mean);
	ok(total >= NODES * (SECONDS - 25) / 20);
}

int main(void)
{
	test_one();
	test_fleet(false);
	test_fleet(true);
	return done();
}
