/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The report as CONTRACT.md section 3 writes it. The status file, a fixture and a bug report are
 * one format. */

#include <jansson.h>

#include "diagnose.h"

enum { STATUS_VALID_S = 90, STATUS_FILE_MAX = 4 * 1024 * 1024 };
#define STATUS_SCHEMA "nodewhy.status/1"

struct report_meta {
	usec_t realtime;      /* wall clock at report.at */
	char boot_id[40];     /* of the node */
	uint64_t seq;         /* counts the reports of this daemon */
	usec_t verdict_since; /* CLOCK_BOOTTIME at which the verdict became what it is */
	usec_t condition_since[_CONDITION_MAX];
};

/* A new reference, or NULL without memory: a report is whole or it is not there. */
json_t *report_to_json(const struct report *r, const struct report_meta *m);

/* Makes each text and key of a document that others wrote fit to be shown. -ENOMEM. */
int report_json_clean(json_t *j);

/* Reads "probes" and "node" back, for replay; ret_judged holds what was judged of each look when it
 * was captured. A look of a probe that this build does not have is taken as it was judged then; an
 * outcome or a layer that is not known is refused. -EBADMSG with one line in ret_error; -E2BIG. */
int report_observations_from_json(const json_t *j, struct observation *ret, enum code *ret_judged,
                                  size_t max, size_t *ret_n, struct node *ret_node,
                                  usec_t *ret_uptime, char *ret_error, size_t error_size);

/* What a condition says of itself; f is the finding that makes it true, or NULL. */
const char *condition_message(const struct condition_state *s, const struct finding *f);

/* One finding's or observation's evidence; NULL without memory. */
json_t *evidence_to_json(const struct evidence *e, size_t n);
/* The catalogue as an array: what `findings --json` prints. */
json_t *catalogue_to_json(void);
