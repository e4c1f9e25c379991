/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>

#include "aws.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever is found must be shaped like a region: the text is not ours. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char region[AWS_REGION_MAX], host[64], scheme[8], line[300];
	uint16_t port;

	if (size >= sizeof(line))
		return 0;
	memcpy(line, data, size);
	line[size] = 0;
	if (region_from_search(line, region) == 0)
		assert(aws_is_region(region));
	if (aws_is_region(line))
		assert(aws_partition_of(line));
	if (aws_is_cluster(line))
		assert(line[0] && text_is_clean(line, strlen(line)));
	if (aws_endpoint_url(line, scheme, host, sizeof(host), &port) == 0)
		assert(host[0] && port != 0);
	return 0;
}
