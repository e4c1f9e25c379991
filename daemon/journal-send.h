/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Entries for the journal, sent without ever waiting. sd_journal_send() waits while the socket is
 * full, and journald stops reading when its disk hangs: just then this process has to go on. */

#include "util.h"

struct journal_field {
	const char *name, *value; /* name: upper case, as systemd.journal-fields(7) */
};

/* The value of PRIORITY. */
const char *priority_text(int priority);

/* 0 when sent, or when there is no journal; -EAGAIN when it does not take it now; -ENOMEM … */
int journal_send(const struct journal_field *fields, size_t n);
