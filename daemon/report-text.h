/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The report for people at a terminal: the verdict first, then the chain of layers, then ENIs.
 * Works on the JSON, so that `status` shows what another process wrote. At most 80 columns. */

#include <jansson.h>
#include <stdio.h>

#include "words.h"

struct text_options {
	bool color;
	usec_t now; /* wall time, for ages; 0: none shown */
	enum language language;
};

void report_text(FILE *out, const json_t *status, const struct text_options *o);
/* Writes s wrapped at 80 columns, each line after the first indented; the first is taken to begin
 * at column `at`. */
void text_wrap(FILE *out, const char *s, size_t at, size_t indent);
/* The same of a shell command: where a line is broken it ends in a backslash, so that it can be
 * copied as it stands. */
void text_wrap_command(FILE *out, const char *s, size_t at, size_t indent);
