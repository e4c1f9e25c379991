/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

/* When a look is due, by who looks and how the last look left things. */
enum when { NEVER, AFTER, ON_GRID }; /* so long after the last one; at this machine's own moments */
enum interval { EVERY, FAILING, RETRY, CHECK_RETRY };

static const struct {
	enum when when;
	enum interval interval;
} table[][_PACE_MAX] = {
	[SCHEDULE_DAEMON] =
		{
			[PACE_CALM] = {ON_GRID, EVERY},
			/* what is broken is watched more closely: people wait for it to come back
                         */
			[PACE_FAILING] = {ON_GRID, FAILING},
			[PACE_UNSURE] = {AFTER, RETRY},
		},
	[SCHEDULE_CHECK] =
		{
			[PACE_CALM] = {NEVER},
			[PACE_FAILING] = {NEVER},
			/* A person is waiting, and what fails twice a quarter of a second apart is
                         * no lost packet, since the look itself waited for retransmissions. */
			[PACE_UNSURE] = {AFTER, CHECK_RETRY},
		},
};

static usec_t length(const struct schedule_slot *s, enum interval i)
{
	return i == EVERY     ? s->every
	       : i == FAILING ? s->failing
	       : i == RETRY   ? s->retry
	                      : 250 * USEC_PER_MSEC;
}

/* What thousands share is looked at for the first time within this: a verdict waits for it. */
static const usec_t first_within = 20 * USEC_PER_SEC;

unsigned schedule_confirm(enum schedule_mode mode)
{
	return mode == SCHEDULE_CHECK ? CONFIRM_CHECK : CONFIRM_DAEMON;
}

/* The first moment after t that lies on this slot's grid of that interval. */
static usec_t on_grid(const struct schedule_slot *s, usec_t interval, usec_t t)
{
	usec_t since = (t + interval - s->phase % interval) % interval;

	return t + interval - since;
}

usec_t schedule_first(const struct schedule_slot *s, const struct probe *p, usec_t now)
{
	return p->spread ? now + (on_grid(s, s->every, now) - now) % first_within : now;
}

void schedule_init(struct schedule_slot *s, const struct probe *p, unsigned slot, uint64_t seed,
                   usec_t every, usec_t now)
{
	unsigned slots = p->slots ? p->slots : 1, rarer = 1;

	if (slot < PROBE_SLOTS_MAX && p->rarer[slot])
		rarer = p->rarer[slot];
	*s = (struct schedule_slot){.every = (every ? every : p->every) * rarer,
	                            .retry = p->retry ? p->retry : USEC_PER_SEC};
	s->failing = p->failing ? p->failing : s->every / 2;
	if (s->failing > s->every)
		s->failing = s->every;
	if (s->retry > s->every)
		s->retry = s->every;
	if (s->failing < s->retry)
		s->failing = s->retry;
	/* One place for all probes of a machine: to wake up with cold caches costs more than most
	 * looks do, and what several of them find together is one pass. */
	s->phase = (seed + slot * (s->every / slots)) % s->every;
	s->due = schedule_first(s, p, now);
}

usec_t schedule_next(const struct schedule_slot *s, enum schedule_mode mode, enum pace pace,
                     usec_t now)
{
	usec_t interval = length(s, table[mode][pace].interval), next;

	if (table[mode][pace].when == NEVER)
		return USEC_INFINITY;
	if (table[mode][pace].when == AFTER)
		return now + interval;
	next = on_grid(s, interval, now);
	/* A look that was out of turn moves back onto the grid without a second one right after it.
	 * Not later than that: the pause is added to the time until a fault is known. */
	return next - now < interval / 5 ? next + interval : next;
}

bool schedule_may_ask(enum schedule_mode mode, usec_t ask_every, usec_t asked_at, usec_t now)
{
	return !asked_at || (mode == SCHEDULE_DAEMON && now - asked_at >= ask_every);
}

usec_t schedule_ask(const struct schedule_slot *s, const struct probe *p, enum schedule_mode mode,
                    usec_t now)
{
	usec_t within = p->ask_every / 6;

	if (mode == SCHEDULE_CHECK || !p->spread || within == 0)
		return now;
	return now + s->phase % within;
}
