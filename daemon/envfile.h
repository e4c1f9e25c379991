/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Files of variables as EnvironmentFile= of a unit names them. Pure. */

#include "util.h"

/* name and value are NUL-terminated and valid during the callback only. */
typedef void (*envfile_variable_t)(const char *name, const char *value, void *userdata);

/* Hands over every assignment, in order. The rules are those of systemd.exec(5): comments by # and
 * ;, quotes, a backslash before a line's end joins. A line that is no assignment is passed over, as
 * is a value longer than ENVFILE_VALUE_MAX. */
enum { ENVFILE_NAME_MAX = 128, ENVFILE_VALUE_MAX = 4096 };
void envfile_parse(const char *text, size_t len, envfile_variable_t variable, void *userdata);
