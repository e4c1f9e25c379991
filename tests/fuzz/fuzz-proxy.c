/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "proxy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What may be shown of a proxy is a host's name; what stood before its '@' is nowhere in it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct proxy_env e = {0};
	struct proxy_url u;
	char line[600];

	proxy_env_take(&e, "Environment", (const char *) data, size);
	assert(strlen(e.http) < PROXY_TEXT_MAX && strlen(e.no) < PROXY_TEXT_MAX);
	if (proxy_url(e.https, &u) == 0)
		assert(u.host[0] && u.port && !strpbrk(u.host, "@/ "));
	(void) proxy_bypasses(e.no, "169.254.169.254", 80);
	if (size >= sizeof(line))
		return 0;
	memcpy(line, data, size);
	line[size] = 0;
	if (proxy_url(line, &u) == 0)
		assert(u.host[0] && u.port && !strpbrk(u.host, "@/ "));
	(void) proxy_bypasses(line, "a.eks.amazonaws.com", 443);
	return 0;
}
