/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What changed from one report to the next. Pure. */

#include "diagnose.h"

struct report_diff {
	uint64_t raised[(FINDINGS_MAX + 63) / 64];  /* bits by index in the new report */
	uint64_t cleared[(FINDINGS_MAX + 63) / 64]; /* bits by index in the old report */
	bool verdict;                               /* state, root or the root's subject */
	bool material; /* anything that a reader of the status file would want to know at once */
};

/* before NULL: everything is new. A finding whose subject changed counts as raised. */
void report_diff(const struct report *before, const struct report *after, struct report_diff *ret);

static inline bool diff_bit(const uint64_t *bits, size_t i)
{
	return bits[i / 64] >> (i % 64) & 1;
}
