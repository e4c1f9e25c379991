/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Reads the host's journal: one boot, some units, from where the last reading ended, in steps that
 * do not hold the loop. */

#include <systemd/sd-event.h>

#include "file.h"

struct journal;
struct journal_read;

enum { JOURNAL_CURSOR_MAX = 256, JOURNAL_MESSAGE_MAX = 4096 };

struct journal_entry {
	const char *message; /* NUL-terminated, at most JOURNAL_MESSAGE_MAX bytes, not cleaned;
	                        valid during the callback only */
	size_t len;
	const char *unit; /* _SYSTEMD_UNIT (or UNIT of systemd's own lines about it); "" if none */
	const char *identifier; /* SYSLOG_IDENTIFIER, "" if none */
	usec_t at;              /* CLOCK_MONOTONIC of the host when it was received */
	int priority;           /* 0 to 7; -1: not given */
};

struct journal_query {
	const char *const
		*units; /* NULL-terminated; lines of any of them, and systemd's about them */
	bool kernel;    /* also the kernel's lines */
	/* Without a cursor: start so long before now, 0: from the start of this boot. */
	usec_t newest_only;
	unsigned entries_max; /* at most so many a reading; what is left over comes with the next */
};

struct journal_end {
	/* 0; -ENOENT: no journal below this root, or none of this boot; -EACCES; else why it could
	 * not be read to the end */
	int error;
	unsigned entries; /* that were handed over */
	bool more;        /* entries_max was reached */
	bool skipped;     /* the cursor is no longer there (rotated away): lines were lost */
};

typedef void (*journal_line_t)(const struct journal_entry *e, void *userdata);
typedef void (*journal_done_t)(struct journal_read *r, const struct journal_end *e, void *userdata);

/* boot_id: 32 hex digits or with dashes. Opens nothing yet. */
int journal_new(struct journal **ret, sd_event *event, const struct files *files,
                const char *boot_id);
struct journal *journal_free(struct journal *j);

/* Hands every new entry to line(), then calls done() once, both from the loop and never from
 * inside. cursor is the caller's: "" at first, moved on as entries are handed over; it must live
 * as long as the reading. Costs next to nothing when the journal has not changed since. */
int journal_read_new(struct journal_read **ret, struct journal *j, const struct journal_query *q,
                     char cursor[static JOURNAL_CURSOR_MAX], journal_line_t line,
                     journal_done_t done, void *userdata);
struct journal_read *journal_read_free(struct journal_read *r);
