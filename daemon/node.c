/* SPDX-License-Identifier: Apache-2.0 */
#include "node.h"

const char *region_source_name(enum region_source s)
{
	static const char *const names[] = {"unknown",    "metadata", "environment",
	                                    "kubeconfig", "resolv",   "state"};

	return names[s];
}

const char *managed_by_name(enum managed_by m)
{
	static const char *const names[] = {NULL, "primary", "cni", "networkd", "nobody"};

	return names[m];
}
