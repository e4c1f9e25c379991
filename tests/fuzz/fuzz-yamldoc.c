/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "yamldoc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *j = NULL;

	if (yamldoc_json((const char *) data, size, &j) == 0) {
		assert(j);
		json_decref(j);
	} else {
		assert(!j);
	}
	return 0;
}
