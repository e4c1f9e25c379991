/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* One run of one probe: its deadline, its calls, its observations. The other side of probe.h. */

#include "probe.h"
#include "schedule.h"

enum { RUN_OBSERVATIONS_MAX = 48 };

/* What all runs share; owned by the manager. */
struct run_context {
	sd_event *event;
	const struct files *files;
	struct http *http;
	struct dns *dns;
	struct imds *imds;
	struct netlink *netlink; /* NULL when the kernel does not give us one: -error below */
	int netlink_error;
	struct bus *bus;
	struct journal *journal;
	struct subnet_watch subnet_watch;
	struct json_t *remembered; /* an object of strings */
	bool remember;             /* it has changed since it was saved */
	struct node node;
	enum schedule_mode mode;
	int64_t uptime_offset; /* uptime of the node minus CLOCK_BOOTTIME */
};

/* From CLOCK_BOOTTIME to the node's uptime, and back. */
usec_t run_context_uptime(const struct run_context *c, usec_t now);
usec_t run_context_boottime(const struct run_context *c, usec_t uptime);

struct run_result {
	const struct observation *observations;
	size_t n;
	bool whole; /* false: it could not look, or not to the end */
	usec_t took;
};

/* Called once, from the loop or from inside run_new(), when the run is over; the run is freed right
 * after it. */
typedef void (*run_done_t)(const struct run_result *result, void *userdata);

/* Starts; *ret is set before start() runs and is NULL again when it has ended meanwhile. */
int run_new(struct run **ret, struct run_context *c, const struct probe *p, unsigned slot,
            void *memory, usec_t timeout, bool woken, enum code asked, run_done_t done,
            void *userdata);
/* Ends without calling done. */
struct run *run_free(struct run *r);
