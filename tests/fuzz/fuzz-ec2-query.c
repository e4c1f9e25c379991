/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "ec2-query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct subnet s[4];
	struct type_limits l;
	size_t n;

	if (subnets_parse((const char *) data, size, s, ELEMENTS(s), &n) == 0) {
		assert(n <= ELEMENTS(s));
		for (size_t i = 0; i < n; i++)
			assert(s[i].free >= 0 && s[i].total >= 0 &&
			       text_is_clean(s[i].id, strlen(s[i].id)));
	}
	if (instance_type_parse((const char *) data, size, &l) == 0)
		assert(l.max_enis > 0 && l.ipv4_per_eni > 0 && l.enis_all_cards >= l.max_enis);
	return 0;
}
