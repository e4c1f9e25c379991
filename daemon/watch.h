/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Follows the status file on a terminal: redraws only the lines that changed, survives a resize. */

#include "file.h"

/* Renders the screen into a malloc'ed text of lines; called at each change and each second. */
typedef int (*watch_render_t)(char **ret, void *userdata);

/* Until SIGINT or SIGTERM. Without a terminal on standard output each change is printed whole. */
int watch_run(const struct files *f, watch_render_t render, void *userdata);
