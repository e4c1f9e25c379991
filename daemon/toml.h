/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The part of TOML that containerd's configuration uses: tables, dotted and quoted keys, strings,
 * arrays of strings, integers; everything else is skipped. Pure. */

#include "util.h"

/* Called for each key with a string, each string of an array (index counts up) and each integer or
 * boolean (as text). path is the full dotted name with quoted parts unquoted, joined by '\x1f' (so
 * that dots inside a part stay): "plugins\x1fio.containerd.grpc.v1.cri\x1fcni\x1fconf_dir". */
typedef void (*toml_value_t)(const char *path, const char *value, size_t index, void *userdata);

/* 0, or -EBADMSG with the line of the first error in *ret_line; values before it were reported. */
int toml_parse(const char *text, size_t len, toml_value_t value, void *userdata, size_t *ret_line);
