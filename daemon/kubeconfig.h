/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* kubelet's kubeconfig: where the API server is, whom to trust, who the node is. */

#include "aws.h"
#include "util.h"

enum { KUBECONFIG_CA_MAX = 65536, KUBECONFIG_FILE_MAX = 262144 };

struct kubeconfig {
	char server[256]; /* as it stands there */
	char scheme[8], host[AWS_HOST_MAX];
	uint16_t port;
	char ca_path[256]; /* certificate-authority, "" when inline or absent */
	char *ca_pem;      /* certificate-authority-data, decoded; NULL when absent */
	size_t ca_len;
	bool insecure;     /* insecure-skip-tls-verify */
	char command[128]; /* of the exec plugin: "aws", "/usr/bin/aws-iam-authenticator" */
	char cluster[104], region[AWS_REGION_MAX], role[256]; /* of its arguments; "" unknown */
	bool token, client_certificate; /* other ways of identifying: present, never read */
};

/* The paths at which kubelets of EKS nodes keep it, in the order to look: NULL-terminated. Source:
 * facts/eks-node.md 2.4, 2.6, 2.9 (AL2023 and AL2, Bottlerocket, Ubuntu). */
extern const char *const kubeconfig_paths[];

/* Of the current context. -EBADMSG with one line in ret_error when it is no kubeconfig; what is
 * merely absent in it is empty. The caller frees with kubeconfig_done(). */
int kubeconfig_parse(const char *text, size_t len, struct kubeconfig *ret, char *ret_error,
                     size_t error_size);
void kubeconfig_done(struct kubeconfig *k);

/* How many certificates a PEM text holds. 0 as well when one of them cannot be read: kubelet then
 * takes none. Pure. */
size_t kubeconfig_certificates(const char *pem, size_t len);
