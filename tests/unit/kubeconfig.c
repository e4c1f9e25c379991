/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "../tap.h"
#include "kubeconfig.h"

#define HOST "0123456789ABCDEF0123456789ABCDEF.gr7.us-east-2.eks.amazonaws.com"

static char error[128];

static bool parses(const char *text, struct kubeconfig *ret)
{
	int r;

	error[0] = 0;
	*ret = (struct kubeconfig){0};
	r = kubeconfig_parse(text, strlen(text), ret, error, sizeof(error));
	if (r < 0)
		printf("# %d %s\n", r, error);
	return r == 0;
}

static void al2023(void)
{
	static const char text[] =
		"apiVersion: v1\nkind: Config\nclusters:\n"
		"  - name: kubernetes\n    cluster:\n"
		"      certificate-authority: /etc/kubernetes/pki/ca.crt\n"
		"      server: https://" HOST "\n"
		"current-context: kubelet\ncontexts:\n  - name: kubelet\n    context:\n"
		"      cluster: kubernetes\n      user: kubelet\n"
		"users:\n  - name: kubelet\n    user:\n      exec:\n"
		"        apiVersion: client.authentication.k8s.io/v1beta1\n"
		"        command: aws\n        args:\n          - \"eks\"\n"
		"          - get-token\n          - \"--cluster-name\"\n"
		"          - \"prod_1\"\n          - --region\n          - us-west-2\n";
	struct kubeconfig k;

	ok(parses(text, &k));
	ok(strcmp(k.server, "https://" HOST) == 0 && strcmp(k.scheme, "https") == 0);
	ok(strcmp(k.host, HOST) == 0 && k.port == 443);
	ok(strcmp(k.ca_path, "/etc/kubernetes/pki/ca.crt") == 0 && !k.ca_pem && !k.insecure);
	ok(strcmp(k.command, "aws") == 0 && strcmp(k.cluster, "prod_1") == 0);
	ok(strcmp(k.region, "us-west-2") == 0 && k.role[0] == 0);
	ok(!k.token && !k.client_certificate);
	kubeconfig_done(&k);
}

/* AL2's, as JSON, with the CA inline, several of each, and a shared part. */
static void other_forms(void)
{
	static const char json[] =
		"{\"clusters\": [{\"name\": \"a\", \"cluster\": {\"server\": \"http://a:8080\"}},"
		"{\"name\": \"b\", \"cluster\": {\"server\": \"https://[fd00::1]:6443/x\","
		"\"certificate-authority\": \"/x\", \"insecure-skip-tls-verify\": true,"
		"\"certificate-authority-data\": \"aGVs\\nbG8=\"}}],"
		"\"contexts\": [{\"name\": \"c\", \"context\": {\"cluster\": \"b\", \"user\": "
		"\"u\"}}],"
		"\"current-context\": \"c\", \"users\": [{\"name\": \"v\", \"user\": {}},"
		"{\"name\": \"u\", \"user\": {\"token\": \"MARKER\", \"client-certificate-data\": "
		"\"eA==\","
		"\"client-key-data\": \"MARKER\", \"exec\": {\"command\": "
		"\"/usr/bin/aws-iam-authenticator\","
		"\"args\": [\"token\", \"-i\", \"my-cluster\", \"--region=cn-north-1\", \"-r\", "
		"\"arn:x\"]}}}]}";
	static const char alias[] =
		"clusters:\n- &a\n  name: x\n  cluster: &c {server: 'https://A.gr7.eks-cluster."
		"eu-west-3.api.aws', more: *c, back: *a}\n- {name: y, cluster: *c}\n"
		"contexts: [{name: y, context: {cluster: y}}]\ncurrent-context: y\n";
	struct kubeconfig k;

	ok(parses(json, &k));
	ok(strcmp(k.host, "fd00::1") == 0 && k.port == 6443 && k.insecure);
	ok(k.ca_path[0] == 0 && k.ca_pem && k.ca_len == 5 && strcmp(k.ca_pem, "hello") == 0);
	ok(strcmp(k.cluster, "my-cluster") == 0 && strcmp(k.region, "cn-north-1") == 0);
	ok(strcmp(k.role, "arn:x") == 0 && k.token && k.client_certificate);
	kubeconfig_done(&k);
	ok(!memmem(&k, sizeof(k), "MARKER", 6));
	ok(parses(alias, &k) && strcmp(k.region, "eu-west-3") == 0);
	kubeconfig_done(&k);
	/* a single cluster, nothing that selects it */
	ok(parses("clusters: [{cluster: {server: 'https://x:1'}}]", &k) && k.port == 1);
	kubeconfig_done(&k);
	ok(parses("clusters: [{cluster: {}}]", &k) && !k.server[0] && !k.host[0]);
	kubeconfig_done(&k);
}

static bool cluster_is(const char *args, const char *want)
{
	char text[512];
	struct kubeconfig k;
	bool same;

	(void) snprintf(text, sizeof(text),
	                "clusters: [{cluster: {server: 'https://x'}}]\n"
	                "users: [{user: {exec: {command: aws, args: %s}}}]",
	                args);
	if (!parses(text, &k))
		return false;
	same = strcmp(k.cluster, want) == 0;
	kubeconfig_done(&k);
	return same;
}

static void arguments(void)
{
	/* as it stands, so that it can be judged */
	ok(cluster_is("[token, -i, --enable-docker-bridge]", "--enable-docker-bridge"));
	ok(cluster_is("[eks, get-token, --cluster-name]", ""));
	ok(cluster_is("[eks, get-token, --cluster-name, \"\", --region, us-west-2]", ""));
	ok(cluster_is("[eks, get-token, --cluster-id=abc]", "abc"));
	ok(cluster_is("[--cluster-name, [a]]", ""));
	ok(cluster_is("nothing", ""));
	ok(cluster_is("[-i, \"a\\x1bb\"]", "a\\x1bb"));
}

static void refused(void)
{
	static const char *const bad[] = {
		"",
		"hello",
		"[]",
		"kind: Config",
		"clusters: [{cluster: {server: x}",
		"clusters: []",
		"clusters: [{name: a, cluster: {}}, {name: b, cluster: {}}]",
		"clusters: [{name: a, cluster: {}}]\ncurrent-context: b",
		"clusters: [{name: a}]\ncontexts: [{name: b, context: {cluster: "
		"c}}]\ncurrent-context: b",
		"clusters: [{cluster: {certificate-authority-data: '***'}}]",
		"clusters: *none",
		"\xff\xfe\xff",
		"a: b: c",
	};
	_cleanup_(freep) char *deep = malloc(5001);
	_cleanup_(freep) char *big = calloc(1, KUBECONFIG_FILE_MAX + 2);
	struct kubeconfig k;

	for (size_t i = 0; i < ELEMENTS(bad); i++) {
		ok(!parses(bad[i], &k));
		ok(error[0] && text_is_clean(error, strlen(error)));
	}
	if (!deep || !big) {
		ok(false);
		return;
	}
	memset(deep, '[', 5000);
	deep[5000] = 0;
	ok(!parses(deep, &k) && strstr(error, "deep"));
	memset(big, ' ', KUBECONFIG_FILE_MAX + 1);
	ok(kubeconfig_parse(big, KUBECONFIG_FILE_MAX + 1, &k, error, sizeof(error)) == -EBADMSG);
}

static const char certificate[] =
	"-----BEGIN CERTIFICATE-----\n"
	"MIIBjzCCATWgAwIBAgIUIESe7HWA0SMSrGDgUOETF+fyM3QwCgYIKoZIzj0EAwIw\n"
	"FTETMBEGA1UEAwwKa3ViZXJuZXRlczAeFw0yNjExMzAyMzE2MTNaFw0yNzAxMjky\n"
	"MzE2MTNaMBUxEzARBgNVBAMMCmt1YmVybmV0ZXMwWTATBgcqhkjOPQIBBggqhkjO\n"
	"PQMBBwNCAATogFMeKDYoHuc+k5rsoC0vZroBEv6GkfnRaStN+KJ5Eeobqi5PJ8w7\n"
	"i+k8FN57DBUMgn2S8Zn5WYiUVnHhgGfTo2MwYTAdBgNVHQ4EFgQUgM975uss+wAJ\n"
	"oUXPBK0PDXmFqmIwHwYDVR0jBBgwFoAUgM975uss+wAJoUXPBK0PDXmFqmIwDwYD\n"
	"VR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMCAQYwCgYIKoZIzj0EAwIDSAAwRQIg\n"
	"By13eExOLdkO+j2aoQm2n8atLFGFzRCfDCQuTt4yPg4CIQDvrOYLDVt6jMgNdG/H\n"
	"mwjHlG3a7B6O49UWOqkzNcnhHw==\n"
	"-----END CERTIFICATE-----\n";

static void certificates(void)
{
	char text[4096];
	int n = snprintf(text, sizeof(text), "a comment\n%s\n%s", certificate, certificate);

	ok(kubeconfig_certificates(certificate, strlen(certificate)) == 1);
	ok(kubeconfig_certificates(text, (size_t) n) == 2);
	ok(kubeconfig_certificates("", 0) == 0);
	ok(kubeconfig_certificates("-----BEGIN CERTIFICATE-----\n", 28) == 0);
	ok(kubeconfig_certificates(certificate, strlen(certificate) / 2) == 0);
	n = snprintf(text, sizeof(text),
	             "%s-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n",
	             certificate);
	ok(kubeconfig_certificates(text, (size_t) n) == 0);
}

int main(void)
{
	certificates();
	al2023();
	other_forms();
	arguments();
	refused();
	return done();
}
