/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The daemon's own words about itself (never about the node: those are the sinks'). Used by main,
 * manager and sinks only. */

#include <syslog.h>

#include "util.h"

struct log {
	bool journal; /* to the journal; else to standard error */
};

void log_message(const struct log *l, int priority, const char *format, ...) _printf_(3, 4);
