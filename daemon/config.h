/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* nodewhy.conf(5): optional, ini as systemd's own. What is wrong in it is a warning with file and
 * line, never a refusal to start. */

#include "ec2-query.h"

enum { CONFIG_PROBES_MAX = 32, CONFIG_PATH_MAX = 256 };

struct probe_config {
	bool enabled;
	usec_t every, timeout; /* 0: the probe's own */
};

struct config {
	struct probe_config probes[CONFIG_PROBES_MAX]; /* by index of probes[] */
	struct subnet_watch subnet_watch;
	bool console;                       /* Console=; yes */
	char textfile_dir[CONFIG_PATH_MAX]; /* TextfileDir=; "": none */
};

/* One line a problem: "FILE:LINE: what". */
typedef void (*config_warn_t)(const char *message, void *userdata);

void config_init(struct config *c);
/* Later values win. Pure. */
void config_parse(struct config *c, const char *file, const char *text, size_t len,
                  config_warn_t warn, void *userdata);
/* file, or with NULL /etc/nodewhy/nodewhy.conf and nodewhy.conf.d/ in lexical order, where
 * absence is no error. Negative errno only when a file that was named cannot be read. */
int config_load(struct config *c, const char *file, config_warn_t warn, void *userdata);
