/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What `explain` says of each code, in the languages it speaks: constant data, made by
 * packaging/generate of packaging/catalog/words. */

#include "catalogue.h"

enum language { LANGUAGE_EN, LANGUAGE_KO, _LANGUAGE_MAX };

/* Each a paragraph, with the placeholders of a remedy; `type` is commands, one a line. */
struct explanation {
	const char *title, *means, *decided, *confused, *type, *otherwise;
};

/* CODE_NONE < c < _CODE_MAX. NULL when nothing is written of a code that was only just added: then
 * packaging/generate refuses to work, and so do the tests. */
const struct explanation *explanation_of(enum code c, enum language l);
