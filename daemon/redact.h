/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Replaces what names an account, an instance or a place in it, consistently within one document:
 * the same id becomes the same stand-in, so that the picture stays whole. Pure. */

#include <jansson.h>

/* In place, every string value and key below j. -ENOMEM: the document must not be given away. */
int redact(json_t *j);
