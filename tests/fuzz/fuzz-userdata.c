/* SPDX-License-Identifier: Apache-2.0 */
/* User data as metadata gives it: what anybody wrote into a launch template. */
#include "userdata.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct userdata_shape s;
	char *copy = malloc(size ? size : 1); /* without a NUL behind it */

	if (!copy)
		return 0;
	memcpy(copy, data, size);
	userdata_parse(copy, size, &s);
	if (s.form >= _USERDATA_FORM_MAX || s.fault >= _USERDATA_FAULT_MAX ||
	    (s.cluster && !s.node_config) || s.cluster & ~(unsigned) USERDATA_CLUSTER)
		abort();
	(void) userdata_form_name(s.form);
	(void) userdata_fault_text(s.fault);
	free(copy);
	return 0;
}
