/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What a person is told of a code: the English texts of packaging/catalog/texts.json, which are
 * part of the program. */

/* One line without a full stop, and paragraphs parted by newlines; both are the caller's. -ENOENT
 * when the code has no text: no probe of this version raises it. */
int texts_get(const char *code, char **ret_title, char **ret_body);
