/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "kubeconfig.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool clean(const char *s)
{
	return text_is_clean(s, strlen(s));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kubeconfig k = {0};
	char error[96] = "";

	(void) kubeconfig_certificates((const char *) data, size);
	if (kubeconfig_parse((const char *) data, size, &k, error, sizeof(error)) < 0) {
		assert(error[0] && clean(error) && !k.ca_pem);
		return 0;
	}
	assert(clean(k.server) && clean(k.ca_path) && clean(k.command) && clean(k.cluster) &&
	       clean(k.role) && clean(k.host));
	assert(!k.region[0] || aws_partition_of(k.region));
	assert(!k.ca_pem || k.ca_len <= KUBECONFIG_CA_MAX);
	assert(!k.host[0] || k.port);
	kubeconfig_done(&k);
	return 0;
}
