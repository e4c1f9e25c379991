/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* One pass: the ledger's facts to a report, and what changed. Pure but for its own memory; the
 * daemon and the simulation of its days make their passes here. */

#include "report-diff.h"

struct pass {
	struct report reports[2]; /* the last and the one before, taking turns */
	unsigned current;         /* index of the last */
	uint64_t made;            /* passes so far; 0: neither report is valid */
};

/* Makes the next report of p from the ledger. Two things keep one fault one root while it comes and
 * while it goes:
 * - a finding that is new waits while what would explain it is about to be confirmed;
 * - when a cause is cleared, what was explained by it falls with it, and has to be confirmed anew
 * as a fault of its own. ret_again has a bit for each index of probes[] that should look again
 * soon. */
void pass_make(struct pass *p, struct ledger *l, const struct diagnose_input *in,
               struct report_diff *ret_diff, uint32_t *ret_again);

static inline const struct report *pass_report(const struct pass *p)
{
	return &p->reports[p->current];
}

static inline const struct report *pass_before(const struct pass *p)
{
	return p->made > 1 ? &p->reports[1 - p->current] : NULL;
}
