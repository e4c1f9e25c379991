/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdarg.h>

#include "kubeconfig.h"
#include "yamldoc.h"

enum { BASE64_MAX = KUBECONFIG_CA_MAX / 3 * 4 + 4096 };

const char *const kubeconfig_paths[] = {
	"/var/lib/kubelet/kubeconfig",
	"/etc/kubernetes/kubelet/kubeconfig",
	"/etc/eksctl/kubeconfig.yaml",
	NULL,
};

struct reader {
	yaml_document_t *doc;
	char *error;
	size_t error_size;
};

static int _printf_(2, 3) fail(const struct reader *rd, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void) text_vformat(rd->error, rd->error_size, format, ap);
	va_end(ap);
	return -EBADMSG;
}

/* ---- lookups; each takes NULL for what is not there ---- */

static const char *string_of(const yaml_node_t *n)
{
	return n && n->type == YAML_SCALAR_NODE &&
	                       strlen((const char *) n->data.scalar.value) == n->data.scalar.length
	               ? (const char *) n->data.scalar.value
	               : "";
}

static yaml_node_t *get(const struct reader *rd, const yaml_node_t *map, const char *key)
{
	if (!map || map->type != YAML_MAPPING_NODE)
		return NULL;
	for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top;
	     p++)
		if (strcmp(string_of(yaml_document_get_node(rd->doc, p->key)), key) == 0)
			return yaml_document_get_node(rd->doc, p->value);
	return NULL;
}

static bool has_text(const struct reader *rd, const yaml_node_t *map, const char *key)
{
	const yaml_node_t *n = get(rd, map, key);

	return n && n->type == YAML_SCALAR_NODE && n->data.scalar.length > 0;
}

static size_t length(const yaml_node_t *list)
{
	return list && list->type == YAML_SEQUENCE_NODE
	               ? (size_t) (list->data.sequence.items.top - list->data.sequence.items.start)
	               : 0;
}

static yaml_node_t *item(const struct reader *rd, const yaml_node_t *list, size_t i)
{
	return yaml_document_get_node(rd->doc, list->data.sequence.items.start[i]);
}

/* The part of "clusters", "contexts" or "users" with that name; where no name is asked for, the
 * only one. */
static yaml_node_t *named(const struct reader *rd, const yaml_node_t *root, const char *list_name,
                          const char *part, const char *name)
{
	const yaml_node_t *list = get(rd, root, list_name);
	size_t n = length(list);

	if (!name[0])
		return n == 1 ? get(rd, item(rd, list, 0), part) : NULL;
	for (size_t i = 0; i < n; i++)
		if (strcmp(string_of(get(rd, item(rd, list, i), "name")), name) == 0)
			return get(rd, item(rd, list, i), part);
	return NULL;
}

/* ---- what is taken ---- */

static void take(char *dst, size_t size, const yaml_node_t *n)
{
	const char *s = string_of(n);

	(void) text_clean(dst, size, s, strlen(s));
}

/* X.yl4.R.eks.amazonaws.com, or X.gr7.eks-cluster.R.api.aws for clusters with dual-stack names. */
static void region_from_host(const char *name, char ret[static AWS_REGION_MAX])
{
	char copy[AWS_HOST_MAX], *host = copy, *before = NULL, *label;

	(void) snprintf(copy, sizeof(copy), "%s", name);
	while ((label = strsep(&host, "."))) {
		const char *found = NULL;

		if (before && strcmp(label, "eks") == 0)
			found = before;
		else if (before && strcmp(before, "eks-cluster") == 0)
			found = label;
		if (found && aws_is_region(found)) {
			(void) snprintf(ret, AWS_REGION_MAX, "%s", found);
			return;
		}
		before = label;
	}
}

/* As Go's base64 does: line ends are skipped, anything else is an error. */
static int take_pem(const struct reader *rd, const yaml_node_t *n, struct kubeconfig *k)
{
	EVP_ENCODE_CTX *c = NULL;
	int more = 0, len = 0;
	unsigned char *out;

	if (n->data.scalar.length > BASE64_MAX)
		return fail(rd, "certificate-authority-data is longer than %d bytes",
		            KUBECONFIG_CA_MAX);
	out = malloc(n->data.scalar.length + 4);
	c = EVP_ENCODE_CTX_new();
	if (!out || !c) {
		EVP_ENCODE_CTX_free(c);
		free(out);
		return -ENOMEM;
	}
	EVP_DecodeInit(c);
	if (EVP_DecodeUpdate(c, out, &len, n->data.scalar.value, (int) n->data.scalar.length) < 0 ||
	    EVP_DecodeFinal(c, out + len, &more) < 0 || len + more > KUBECONFIG_CA_MAX) {
		EVP_ENCODE_CTX_free(c);
		free(out);
		return fail(rd, "certificate-authority-data is not base64");
	}
	EVP_ENCODE_CTX_free(c);
	k->ca_len = (size_t) len + (size_t) more;
	out[k->ca_len] = 0;
	k->ca_pem = (char *) out;
	return 0;
}

static int take_cluster(const struct reader *rd, const yaml_node_t *cluster, struct kubeconfig *k)
{
	const char *url = string_of(get(rd, cluster, "server"));

	take(k->server, sizeof(k->server), get(rd, cluster, "server"));
	take(k->ca_path, sizeof(k->ca_path), get(rd, cluster, "certificate-authority"));
	k->insecure = strcmp(string_of(get(rd, cluster, "insecure-skip-tls-verify")), "true") == 0;
	if (aws_endpoint_url(url, k->scheme, k->host, sizeof(k->host), &k->port) == 0)
		region_from_host(k->host, k->region);
	if (!has_text(rd, cluster, "certificate-authority-data"))
		return 0;
	k->ca_path[0] = 0; /* inline data wins in client-go */
	return take_pem(rd, get(rd, cluster, "certificate-authority-data"), k);
}

/* "--flag VALUE", "--flag=VALUE". */
static bool take_argument(const struct reader *rd, const yaml_node_t *args, const char *flag,
                          char *dst, size_t size)
{
	size_t n = length(args), len = strlen(flag);

	for (size_t i = 0; i < n; i++) {
		const char *arg = string_of(item(rd, args, i));

		if (strcmp(arg, flag) == 0) {
			if (i + 1 < n)
				take(dst, size, item(rd, args, i + 1));
			return true;
		}
		if (strncmp(arg, flag, len) == 0 && arg[len] == '=') {
			(void) text_clean(dst, size, arg + len + 1, strlen(arg + len + 1));
			return true;
		}
	}
	return false;
}

static void take_user(const struct reader *rd, const yaml_node_t *user, struct kubeconfig *k)
{
	static const char *const cluster[] = {"--cluster-name", "--cluster-id", "-i"};
	static const char *const role[] = {"--role-arn", "--role", "-r"};
	const yaml_node_t *exec = get(rd, user, "exec"), *args = get(rd, exec, "args");
	char region[AWS_REGION_MAX] = "";
	bool found = false;

	take(k->command, sizeof(k->command), get(rd, exec, "command"));
	for (size_t i = 0; i < ELEMENTS(cluster) && !found; i++)
		found = take_argument(rd, args, cluster[i], k->cluster, sizeof(k->cluster));
	found = false;
	for (size_t i = 0; i < ELEMENTS(role) && !found; i++)
		found = take_argument(rd, args, role[i], k->role, sizeof(k->role));
	if (take_argument(rd, args, "--region", region, sizeof(region)) && aws_is_region(region))
		memcpy(k->region, region, sizeof(region));
	k->token = has_text(rd, user, "token") || has_text(rd, user, "tokenFile");
	k->client_certificate = has_text(rd, user, "client-certificate") ||
	                        has_text(rd, user, "client-certificate-data");
}

static int take_all(const struct reader *rd, struct kubeconfig *k)
{
	const yaml_node_t *root = yaml_document_get_root_node(rd->doc), *context;
	const char *current = string_of(get(rd, root, "current-context"));
	const yaml_node_t *cluster;
	int r;

	if (!root || root->type != YAML_MAPPING_NODE || !get(rd, root, "clusters"))
		return fail(rd, "not a kubeconfig: no clusters in it");
	context = named(rd, root, "contexts", "context", current);
	if (!context && current[0])
		return fail(rd, "its current-context is not among its contexts");
	cluster = named(rd, root, "clusters", "cluster", string_of(get(rd, context, "cluster")));
	if (!cluster)
		return fail(rd, "no cluster for its current-context");
	r = take_cluster(rd, cluster, k);
	if (r < 0)
		return r;
	take_user(rd, named(rd, root, "users", "user", string_of(get(rd, context, "user"))), k);
	return 0;
}

int kubeconfig_parse(const char *text, size_t len, struct kubeconfig *ret, char *ret_error,
                     size_t error_size)
{
	struct kubeconfig k = {0};
	yaml_document_t doc;
	struct reader rd = {&doc, ret_error, error_size};
	int r;

	if (len > KUBECONFIG_FILE_MAX)
		return fail(&rd, "longer than %d bytes", KUBECONFIG_FILE_MAX);
	r = yamldoc_load(text, len, &doc, ret_error, error_size);
	if (r < 0)
		return r;
	r = take_all(&rd, &k);
	yamldoc_done(&doc);
	if (r < 0)
		kubeconfig_done(&k);
	else
		*ret = k;
	return r;
}

void kubeconfig_done(struct kubeconfig *k)
{
	free(TAKE(k->ca_pem));
}

static bool is_certificate(const unsigned char *der, long len)
{
	X509 *x = d2i_X509(NULL, &der, len);
	bool good = x != NULL;

	X509_free(x);
	return good;
}

size_t kubeconfig_certificates(const char *pem, size_t len)
{
	BIO *bio = len > INT32_MAX ? NULL : BIO_new_mem_buf(pem, (int) len);
	char *name, *header;
	unsigned char *data;
	size_t n = 0;
	bool bad = !bio;
	long size;

	while (!bad && PEM_read_bio(bio, &name, &header, &data, &size)) {
		if (strcmp(name, PEM_STRING_X509) == 0) {
			bad = !is_certificate(data, size);
			n += !bad;
		}
		OPENSSL_free(name);
		OPENSSL_free(header);
		OPENSSL_clear_free(data, (size_t) size);
	}
	BIO_free(bio);
	ERR_clear_error();
	return bad ? 0 : n;
}
