/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Signature version 4 where libcurl does not sign: presigned URLs, as kubelets' exec plugins make
 * their tokens. HMAC and SHA-256 are libcrypto's. */

#include "util.h"

/* What a run holds while it signs; wiped with credentials_wipe() when it ends. */
struct credentials {
	char key_id[136], secret[136], token[4096];
	char role[128];
	uint64_t expires; /* seconds since 1970; 0: not known */
};
void credentials_wipe(struct credentials *c);

enum { PRESIGNED_MAX = 8192, EKS_TOKEN_MAX = 12288 };

struct presign {
	const char *host, *region, *service; /* "sts.us-west-2.amazonaws.com", "us-west-2", "sts" */
	const char *query;                   /* "Action=GetCallerIdentity&Version=2011-06-15" */
	const char *header_name, *header_value; /* one more signed header, lower case:
	                                           "x-k8s-aws-id", the cluster's name; or NULL */
	unsigned valid_s;
	uint64_t now; /* seconds since 1970 */
};
/* "https://host/?...&X-Amz-Signature=..." into ret. -ENOSPC. */
int sigv4_presign(const struct presign *p, const struct credentials *c, char *ret, size_t size);
/* "k8s-aws-v1." and the URL in unpadded base64url: the bearer token of an EKS node. -ENOSPC. */
int eks_token(const char *cluster, const char *sts_host, const char *region,
              const struct credentials *c, uint64_t now, char ret[static EKS_TOKEN_MAX]);
