/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Names of AWS: partitions, regions, endpoint host names. Pure. */

#include "util.h"

enum { AWS_HOST_MAX = 160, AWS_REGION_MAX = 32 };

/* Endpoint subjects, in the order in which CONTRACT.md section 6 lists them. */
/* clang-format off */
#define SERVICES(X) \
	X(EC2, "ec2") \
	X(STS, "sts") \
	X(EKS, "eks") \
	X(ECR_API, "ecr.api") \
	X(ECR_DKR, "ecr.dkr") \
	X(S3, "s3")
/* clang-format on */

enum service {
#define X(id, name) SERVICE_##id,
	SERVICES(X)
#undef X
		_SERVICE_MAX
};

const char *service_name(enum service s);
int service_from_name(const char *s); /* -EINVAL */

struct partition {
	const char *name, *suffix, *dualstack_suffix, *region_prefix;
};

/* The partition of a region by its prefix ("us-gov-", "cn-"; "aws" for the rest), or NULL when the
 * text is not shaped like a region. Source: aws-sdk-go-v2 partitions.json of 2026-03-02. */
const struct partition *aws_partition_of(const char *region);
bool aws_is_region(const char *s); /* shaped like one: us-west-2, us-gov-east-1, eusc-de-east-1 */
bool aws_is_domain(const char *s); /* what the names of some partition end in */

struct aws_name_options {
	const char *region;
	/* metadata's services/domain; by the table when NULL or not a domain of AWS: whoever can
	 * answer for metadata must not choose where this node connects to */
	const char *domain;
	bool dualstack, fips;
	const char *account; /* twelve digits: the registry's names begin with it */
};

/* The host name the SDKs would use. -EINVAL without a region; -ENODATA without the account that it
 * takes; -EOPNOTSUPP where the SDK has no such name (dual-stack in the iso partitions, FIPS for S3
 * in China). The registry's is the one that stands in an image's name, whatever the options. */
int aws_host(enum service s, const struct aws_name_options *o, char *ret, size_t size);

/* "https://host[:port][/path]" of AWS_ENDPOINT_URL*: -EINVAL when it is not an http(s) URL. */
int aws_endpoint_url(const char *url, char ret_scheme[8], char *ret_host, size_t host_size,
                     uint16_t *ret_port);

/* Where a region can be read when metadata is silent: a search domain "R.compute.internal";
 * "ec2.internal" is us-east-1. 0 and a region, or -ENOENT. */
int region_from_search(const char *search, char ret[static AWS_REGION_MAX]);
/* Shaped like a cluster's name: at most 100 letters, digits, '-' and '_', no '-' first. */
bool aws_is_cluster(const char *s);
