/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Signature version 4 where libcurl does not sign: presigned URLs, as kubelets' exec plugins make
 * their tokens. HMAC and SHA-256 are libcrypto's. Pure. */

#include "util.h"

/* What a run holds while it signs; wiped with credentials_wipe() when it ends. */
struct credentials {
	char key_id[136], secret[136], token[4096];
	char role[128];
	uint64_t expires; /* seconds since 1970; 0: not known */
};
void credentials_wipe(struct credentials *c);

/* What metadata says of a role's credentials, without them. */
struct credentials_said {
	char code[64];             /* "Success", or why there are none; "" absent */
	uint64_t updated, expires; /* seconds since 1970; 0: not known */
	bool complete;             /* key id, secret and token are all there */
};

/* The body of iam/security-credentials/ROLE, and of iam/info, whose keys are a part of it. The
 * secrets go to ret, which may be NULL, and nowhere else: no copy is left behind. ret->role stays
 * as it is. -EBADMSG when it is no JSON object of that kind. */
int credentials_parse(const char *text, size_t len, struct credentials_said *ret_said,
                      struct credentials *ret);

/* "2026-11-30T21:16:59Z", as metadata and Kubernetes write it: seconds since 1970, 0 when it is
 * none. */
uint64_t sigv4_date_parse(const char *s);

enum { PRESIGNED_MAX = 8192, EKS_TOKEN_MAX = 12288 };

struct presign {
	const char *host, *region, *service; /* "sts.us-west-2.amazonaws.com", "us-west-2", "sts" */
	/* "Action=GetCallerIdentity&Version=2011-06-15": encoded, sorted, and before "X-Amz-" */
	const char *query;
	const char *header_name, *header_value; /* one more signed header, lower case:
	                                           "x-k8s-aws-id", the cluster's name; or NULL */
	unsigned valid_s;
	uint64_t now; /* seconds since 1970 */
};
/* "https://host/?...&X-Amz-Signature=..." into ret. -ENOSPC; -EINVAL for a query out of order or
 * without credentials; -EIO when libcrypto refuses. */
int sigv4_presign(const struct presign *p, const struct credentials *c, char *ret, size_t size);
/* "k8s-aws-v1." and the URL in unpadded base64url: the bearer token of an EKS node. As above. */
int eks_token(const char *cluster, const char *sts_host, const char *region,
              const struct credentials *c, uint64_t now, char ret[static EKS_TOKEN_MAX]);
