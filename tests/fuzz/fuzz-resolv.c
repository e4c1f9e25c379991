/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct resolv_conf c;

	resolv_conf_parse(&c, (const char *) data, size);
	assert(c.n <= RESOLV_SERVERS_MAX);
	for (size_t i = 0; i < c.n; i++)
		assert(c.servers[i].family);
	assert(text_is_clean(c.search, strlen(c.search)));
	return 0;
}
