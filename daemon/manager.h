/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The one mutable root: owns the loop, the instruments, the ledger, and passes the time on. */

#include "config.h"
#include "log.h"
#include "report-diff.h"
#include "report-json.h"
#include "schedule.h"

struct manager;

struct manager_options {
	enum schedule_mode mode;
	const char *root; /* "/" or the DIR of --root */
	const char *only; /* names of probes, comma separated; NULL: all that are enabled */
	usec_t timeout;   /* of a check as a whole */
	const struct config *config;
	const struct log *log;
};

/* -EINVAL with one line in ret_error for an unknown name in --only or an endpoint variable that is
 * no literal address; another negative errno with its line otherwise. */
int manager_new(struct manager **ret, const struct manager_options *o, char *ret_error,
                size_t error_size);
struct manager *manager_free(struct manager *m);
/* SCHEDULE_CHECK: until every probe is sure; SCHEDULE_DAEMON: until SIGTERM or SIGINT. */
int manager_loop(struct manager *m);
/* The last report, valid until the next pass or manager_free(). */
const struct report *manager_report(const struct manager *m, struct report_meta *ret_meta);

/* Of the node below root: 0 or a negative errno. */
int node_uptime(const struct files *f, usec_t *ret);
int node_boot_id(const struct files *f, char *ret, size_t size);
