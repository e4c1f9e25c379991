/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Follows a log file line by line: through rotation, truncation, half lines, and its absence; in
 * bounded steps that never hold the loop. */

#include <systemd/sd-event.h>

#include "file.h"

struct tail_read;

enum { TAIL_LINE_MAX = 16384 };

/* Where a reader of one file stands: a plain value in its own memory, zero at first. */
struct tail {
	uint64_t device, inode, offset; /* of the next line's first byte */
	bool begun;
};

struct tail_query {
	const char *path; /* below the root: "/var/log/aws-routed-eni/ipamd.log" */
	/* When nothing was read yet: begin with lines not older than this wall clock time, 0: with
	 * the whole of what is there, rotated siblings (also gzip) included. */
	usec_t since_realtime;
	/* The wall clock time of a line, 0 when it has none; NULL: files are read from the start.
	 */
	usec_t (*time_of)(const char *line, size_t len);
};

struct tail_end {
	/* 0; -ENOENT: no such file; -EACCES; else why it could not be read to the end */
	int error;
	uint64_t bytes, lines;            /* read now */
	bool rotated, truncated, skipped; /* skipped: lines were lost between two readings */
};

/* line is not NUL-terminated, without its newline, valid during the callback only; longer ones than
 * TAIL_LINE_MAX are cut there. */
typedef void (*tail_line_t)(const char *line, size_t len, void *userdata);
typedef void (*tail_done_t)(struct tail_read *t, const struct tail_end *e, void *userdata);

/* Hands every whole new line to line(), then calls done() once, both from the loop and never from
 * inside. *where is the caller's and must live as long as the reading. */
int tail_read_new(struct tail_read **ret, sd_event *event, const struct files *files,
                  const struct tail_query *q, struct tail *where, tail_line_t line,
                  tail_done_t done, void *userdata);
struct tail_read *tail_read_free(struct tail_read *t);
