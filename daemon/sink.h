/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Where a report goes. A sink writes what the report says and decides nothing. Each returns 0 or
 * the negative errno of what could not be written. */

#include "report-diff.h"
#include "report-json.h"

enum { FLAP_PER_HOUR = 6 }; /* CONTRACT.md section 5 */

/* What the journal sink remembers: how often each code was said in the hour that runs, and the last
 * verdict that was said. */
struct journal_memory {
	struct {
		usec_t hour_began;
		unsigned said, held_back;
	} codes[_CODE_MAX];
	struct {
		enum state state;
		enum code root;
		char subject[SUBJECT_MAX];
	} verdict;
	usec_t heartbeat;
};

/* Raised, cleared and verdict lines of a change; the heartbeat once an hour. before may be NULL. */
int sink_journal(struct journal_memory *m, const struct report *before, const struct report *after,
                 const struct report_diff *d);
/* Takes the verdict of r as said: by this life of the daemon or the one before. */
void journal_resume(struct journal_memory *m, const struct report *r);
/* Fields of one finding for the journal; exposed for the tests. */
void finding_message(const struct finding *f, bool cleared, char *ret, size_t size);
void verdict_message(const struct report *r, char *ret, size_t size);

/* The serial console while the node has not joined: at most one line a minute, CONSOLE_LINES in
 * all, printable ASCII; never waited for. */
enum { CONSOLE_LINES = 30 };
struct console {
	int fd; /* -1: there is none, or it is turned off */
	bool owned, pending;
	unsigned said;
	usec_t at;
};
void console_open(struct console *c, const struct files *f);
void console_close(struct console *c);
void sink_console(struct console *c, const struct report *r, bool verdict_changed);

int sink_status(const struct files *f, const struct report *r, const struct report_meta *m);
/* Appends what was raised or cleared, one JSON object a line; keeps the last HISTORY_LINES. */
enum { HISTORY_LINES = 512, HISTORY_FILE_MAX = 1024 * 1024 };
int sink_history(const struct files *f, const struct report *before, const struct report *after,
                 const struct report_diff *d, const struct report_meta *m);

/* What node-problem-detector shows: at most 80 bytes of printable ASCII without '%'. reason may be
 * "". */
enum { CONDITION_LINE_MAX = 81 };
void condition_line(const char *reason, const char *message, char ret[static CONDITION_LINE_MAX]);
int sink_conditions(const struct files *f, const struct report *r);
/* The text of one condition file, three lines. Returns its length. */
size_t condition_text(const struct report *r, enum condition c, char *ret, size_t size);

/* Per probe: how often it ran and how long it took, for the metrics. */
struct probe_stats {
	uint64_t runs, failures;
};
int sink_metrics(const struct files *f, const struct report *r, const struct probe_stats *stats);
/* The same as nodewhy.prom in node_exporter's directory, a path of the process's own. */
int sink_textfile(const char *dir, const struct report *r, const struct probe_stats *stats);
