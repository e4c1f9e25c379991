/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* YAML, by libyaml, of files that somebody else may have written: nested no deeper than 32, nothing
 * expanded. Pure. */

#include <jansson.h>
#include <yaml.h>

#include "util.h"

/* -EBADMSG with one line in ret_error when it is no YAML or nested too deeply. The caller frees
 * with yamldoc_done(), which wipes it: it may hold a token or a key. */
int yamldoc_load(const char *text, size_t len, yaml_document_t *ret, char *ret_error,
                 size_t error_size);
void yamldoc_done(yaml_document_t *d);

/* The first document as JSON, as Kubernetes' programs take it: plain scalars are null, booleans or
 * whole numbers where they look like it, all else is text. -EBADMSG also where aliases make it more
 * than 10,000 values, or where a key is none. The caller owns *ret. */
int yamldoc_json(const char *text, size_t len, json_t **ret);
