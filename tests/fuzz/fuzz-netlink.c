/* SPDX-License-Identifier: Apache-2.0 */
#include "netlink.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct net_builder *b = net_builder_new();
	const struct address metadata = {AF_INET, {169, 254, 169, 254}};
	char *buf = malloc(size ? size : 1);
	struct net net;

	if (b && buf) {
		memcpy(buf, data, size);
		(void) net_builder_parse(b, buf, size);
		net_builder_view(b, &net);
		(void) net_default_route(&net, AF_INET6, 254);
		(void) net_route_to(&net, &metadata, 254);
		for (size_t i = 0; i < net.n_links; i++)
			if (!net_link_by_mac(&net, net.links[i].mac) && net.links[i].mac[0])
				abort();
	}
	free(buf);
	net_builder_free(b);
	return 0;
}
