/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* containerd's configuration: the file and all that it imports, wherever the node image keeps it.
 */

#include "file.h"
#include "toml.h"

enum { CONTAINERD_PATH_MAX = 256 };

/* Who reads, so that a run owns the text: as run_read(). */
struct containerd_reader {
	const struct files *files;
	int (*read)(void *userdata, const char *path, size_t max, const char **ret,
	            size_t *ret_len);
	void *userdata;
};

struct containerd_config {
	bool found;     /* a configuration was read */
	int unreadable; /* errno of a file that is there and was not read; 0: none */
	char unread[CONTAINERD_PATH_MAX]; /* which */
};

/* Hands every setting to value(), in the order in which they are said: the last one counts. A
 * broken file is containerd's own trouble; what stands before the error is reported. -ENOMEM. */
int containerd_config_read(const struct containerd_reader *from, toml_value_t value, void *userdata,
                           struct containerd_config *ret);
