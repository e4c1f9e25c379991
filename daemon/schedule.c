/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

/* `check` repeats a failed look after this long: a person is waiting, and what fails twice a
 * quarter of a second apart is no lost packet, since the look itself waited for retransmissions. */
static const usec_t check_retry = 250 * USEC_PER_MSEC;

/* What thousands share is looked at for the first time within this: a verdict waits for it. */
static const usec_t first_within = 20 * USEC_PER_SEC;

unsigned schedule_confirm(enum schedule_mode mode)
{
	return mode == SCHEDULE_CHECK ? CONFIRM_CHECK : CONFIRM_DAEMON;
}

/* The first moment after t that lies on this slot's grid. */
static usec_t on_grid(const struct schedule_slot *s, usec_t t)
{
	usec_t since = (t + s->every - s->phase) % s->every;

	return t + s->every - since;
}

usec_t schedule_first(const struct schedule_slot *s, const struct probe *p, usec_t now)
{
	return p->spread ? now + (on_grid(s, now) - now) % first_within : now;
}

void schedule_init(struct schedule_slot *s, const struct probe *p, unsigned slot, uint64_t seed,
                   usec_t every, usec_t now)
{
	unsigned slots = p->slots ? p->slots : 1, rarer = 1;

	if (slot < PROBE_SLOTS_MAX && p->rarer[slot])
		rarer = p->rarer[slot];
	*s = (struct schedule_slot){.every = (every ? every : p->every) * rarer,
	                            .retry = p->retry ? p->retry : USEC_PER_SEC};
	if (s->retry > s->every)
		s->retry = s->every;
	/* One place for all probes of a machine: to wake up with cold caches costs more than most
	 * looks do, and what several of them find together is one pass. */
	s->phase = (seed + slot * (s->every / slots)) % s->every;
	s->due = schedule_first(s, p, now);
}

usec_t schedule_next(const struct schedule_slot *s, enum schedule_mode mode, bool unsure,
                     usec_t now)
{
	usec_t next;

	if (unsure)
		return now + (mode == SCHEDULE_CHECK ? check_retry : s->retry);
	if (mode == SCHEDULE_CHECK)
		return USEC_INFINITY;
	next = on_grid(s, now);
	/* A look that was out of turn moves back onto the grid without a second one right after it.
	 * Not later than that: the pause is added to the time until a fault is known. */
	return next - now < s->every / 5 ? next + s->every : next;
}
