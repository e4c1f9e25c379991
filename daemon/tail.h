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
	uint64_t device, inode;
	uint64_t offset; /* of the next line's first byte, before compression */
	uint64_t head;   /* hash of the file's first head_len bytes: it may get another name, be */
	uint32_t head_len; /* copied or compressed, and its inode be given to another file */
	bool begun;
	bool cut; /* offset is inside a line too long, whose first part was handed over */
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
	/* 0; -ENOENT: no such file; -EACCES; -ETIMEDOUT: the disk does not answer; else why it
	 * could not be read to the end */
	int error;
	usec_t modified;       /* wall clock time of the last write to path; 0: not known */
	uint64_t bytes, lines; /* read now */
	bool rotated;          /* what was read last time goes on under another name */
	bool truncated;        /* the file has become shorter, or another one of the same inode */
	bool skipped;          /* lines may have been lost between two readings */
};

/* line is not NUL-terminated, without its newline, valid during the callback only; longer ones than
 * TAIL_LINE_MAX are cut there. It must not free the reading. */
typedef void (*tail_line_t)(const char *line, size_t len, void *userdata);
typedef void (*tail_done_t)(struct tail_read *t, const struct tail_end *e, void *userdata);

/* Hands every whole new line to line(), then calls done() once, both from the loop and never from
 * inside. *where is the caller's and must live as long as the reading; it is right at every line,
 * so that a reading that was dropped goes on where it was. */
int tail_read_new(struct tail_read **ret, sd_event *event, const struct files *files,
                  const struct tail_query *q, struct tail *where, tail_line_t line,
                  tail_done_t done, void *userdata);
struct tail_read *tail_read_free(struct tail_read *t);
