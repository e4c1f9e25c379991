/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What EC2's query API answers to DescribeSubnets and DescribeInstanceTypes. Pure. */

#include "util.h"

struct subnet {
	char id[32];   /* "subnet-0123456789abcdef0" */
	char cidr[24]; /* IPv4; "" of an IPv6-only subnet */
	int64_t free;  /* AvailableIpAddressCount */
	int64_t total; /* addresses of the CIDR but the five that AWS keeps; 0 without one */
};

/* The subnets of a DescribeSubnetsResponse, at most max. -EBADMSG when it is none. */
int subnets_parse(const char *text, size_t len, struct subnet *ret, size_t max, size_t *ret_n);

/* Of the default network card, as packaging/data/eni-limits.tsv has it. */
struct type_limits {
	char instance_type[40];
	int max_enis, ipv4_per_eni, network_cards, enis_all_cards;
	bool prefixes; /* nitro or bare metal */
};

/* The first type of a DescribeInstanceTypesResponse. -EBADMSG. */
int instance_type_parse(const char *text, size_t len, struct type_limits *ret);

/* SubnetWatch=, SubnetLowPercent=, SubnetLowAddresses=: free addresses below either are low. */
struct subnet_watch {
	bool on;                            /* no */
	int64_t low_percent, low_addresses; /* 20, 256 */
};
