/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* When to look next. Pure: a slot's history and the time in, the next due time out. */

#include "probe.h"

struct schedule_slot {
	usec_t every, failing, retry; /* the intervals in force */
	usec_t phase;                 /* this machine's own place in the interval */
	usec_t due; /* CLOCK_BOOTTIME; USEC_INFINITY while it runs or waits for another */
};

enum schedule_mode { SCHEDULE_DAEMON, SCHEDULE_CHECK };

/* How the last look left a slot. */
enum pace {
	PACE_CALM,    /* nothing was found */
	PACE_FAILING, /* what is found is confirmed */
	PACE_UNSURE, /* about to change: a failure not yet confirmed, a recovery not yet believed */
	_PACE_MAX
};

/* How often a failure must repeat before it is a finding. Three times: at one look a second that
 * outlasts a lost packet, a restarted resolver and a link that flaps for a second; `check` has a
 * person waiting and takes two. */
enum { CONFIRM_DAEMON = 3, CONFIRM_CHECK = 2 };
/* How many good looks take a finding back: one could be luck. */
enum { CLEAR_AFTER = 2 };

unsigned schedule_confirm(enum schedule_mode mode);

/* seed is made of the machine id, so that 10,000 nodes booted in one second look at 10,000
 * different moments. every 0: the probe's own. */
void schedule_init(struct schedule_slot *s, const struct probe *p, unsigned slot, uint64_t seed,
                   usec_t every, usec_t now);
/* When the first look is due of a slot that may look from now on. */
usec_t schedule_first(const struct schedule_slot *s, const struct probe *p, usec_t now);
/* After a look. */
usec_t schedule_next(const struct schedule_slot *s, enum schedule_mode mode, enum pace pace,
                     usec_t now);
/* Whether a finding may ask for a look out of turn: asked_at is when one last did, 0: never. A
 * check asks once; the daemon keeps ask_every, which is the budget of looks that cost too much. */
bool schedule_may_ask(enum schedule_mode mode, usec_t ask_every, usec_t asked_at, usec_t now);
/* When a look that was asked for is due: at once, but where thousands may be asked by the same
 * event, at this machine's own moment within a sixth of ask_every. */
usec_t schedule_ask(const struct schedule_slot *s, const struct probe *p, enum schedule_mode mode,
                    usec_t now);
