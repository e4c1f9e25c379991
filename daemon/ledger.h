/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The latest observation of everything that is looked at, and how often in a row it was good or
 * bad: hysteresis lives here and nowhere else. Pure but for its own memory. */

#include "probe.h"
#include "schedule.h"

enum { LEDGER_MAX = 224 };

/* What the diagnosis is made from. */
struct fact {
	struct observation latest; /* the last look */
	struct observation bad;    /* the look that decided; only with a code */
	enum code code;            /* raised: confirmed by enough looks; else CODE_NONE */
	char summary[SUMMARY_MAX];
	usec_t since, last_seen; /* CLOCK_BOOTTIME of the first and the last look of this streak */
	uint32_t seen;           /* looks that found it */
	enum code pending;       /* found, but not often enough yet, or still within the grace */
	bool graced;             /* pending only because the node has just booted */
	bool held;               /* raised, but what may explain it is not yet sure: see pass.h */
	bool announced;          /* raised and in the last report */
};

struct ledger_entry {
	const struct probe *probe;
	unsigned slot;
	struct fact fact;
	enum code streak_code;
	unsigned streak, bad, good; /* looks in a row: of this very code, of any code, of none */
	usec_t streak_since;
	usec_t blind_since; /* first of the looks in a row that could not tell; 0: the last one
	                       could */
};

struct ledger {
	bool news; /* a look was not like the one before it, or was judged anew: the reader takes it
	              back */
	size_t n;
	struct ledger_entry entries[LEDGER_MAX];
};

/* Takes in everything that one run of a slot saw; what that slot saw before and this run did not
 * see again is gone. confirm: looks in a row that make a finding. uptime is the node's, for the
 * grace. Returns what this leaves the slot in, for schedule_next(). */
enum pace ledger_put(struct ledger *l, const struct probe *p, unsigned slot,
                     const struct observation *seen, size_t n, bool whole, unsigned confirm,
                     usec_t uptime);
/* Puts a finding of an earlier life of the daemon back, as raised since f->since. The next looks
 * decide whether it still stands. False when there is no room. */
bool ledger_restore(struct ledger *l, const struct probe *p, unsigned slot, const struct fact *f);
/* Takes back a finding whose cause was cleared: whether it is a fault of its own has to be
 * confirmed anew. Returns a bit for each index of probes[] that saw it. */
uint32_t ledger_doubt(struct ledger *l, enum code code);
/* Takes back what is older than its observation says it may be believed (valid_for). */
void ledger_expire(struct ledger *l, usec_t now);
/* What the observation's own probe says of it; CODE_NONE too when this build has no such probe. */
enum code observation_judge(const struct observation *o, struct words *ret);
/* A fact of one look, as replay needs it: judged again where this build has the probe, else with
 * the judgement that the capture carries. */
void fact_from_observation(struct fact *ret, const struct observation *o, enum code judged);
