/* SPDX-License-Identifier: Apache-2.0 */
#include "../fakejoin.h"

#include "../../daemon/run-credentials.c"

#include "../../probes/identity.c"

#include <ftw.h>

#include "../tap.h"

#define NAME "ip-10-0-1-5.us-west-2.compute.internal"
#define UNREADY                                                                                    \
	"container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "    \
	"message:Network plugin returns error: cni plugin not initialized"
#define NODE(created, ready, reason, message, spec)                                                \
	"{\"kind\":\"Node\",\"metadata\":{\"name\":\"" NAME "\",\"creationTimestamp\":\"" created  \
	"\"},\"spec\":{" spec                                                                      \
	"},\"status\":{\"conditions\":[{\"type\":\"DiskPressure\",\"status\":"                     \
	"\"False\"},{\"type\":\"Ready\",\"status\":\"" ready "\",\"reason\":\"" reason             \
	"\",\"message\":\"" message "\"}]}}"
#define FORBIDDEN(user, name)                                                                      \
	"{\"kind\":\"Status\",\"status\":\"Failure\",\"message\":\"nodes \\\"" name "\\\" is "     \
	"forbidden: User \\\"" user "\\\" cannot get resource \\\"nodes\\\"\",\"code\":403}"
#define OLD "2026-11-30T10:00:00Z"
#define OK_NODE                                                                                    \
	NODE(OLD, "True", "KubeletReady", "posting", "\"providerID\":\"aws:///us-west-2a/i-0a1b\"")

static const char set[] =
	"{\"Code\":\"Success\",\"AccessKeyId\":\"ASIAX\",\"SecretAccessKey\":\"sec/ret\",\"Token\":"
	"\"tok/en\",\"Expiration\":\"2026-12-01T02:28:59Z\"}";
static const char kubeconfig[] =
	"apiVersion: v1\nkind: Config\nclusters:\n- name: kubernetes\n  cluster:\n    server: "
	"https://0123.gr7.us-west-2.eks.amazonaws.com\n    certificate-authority: "
	"/etc/kubernetes/pki/ca.crt\ncontexts:\n- name: kubelet\n  context: {cluster: kubernetes, "
	"user: "
	"kubelet}\ncurrent-context: kubelet\nusers:\n- name: kubelet\n  user:\n    exec:\n      "
	"apiVersion: client.authentication.k8s.io/v1beta1\n      command: aws\n      args: [eks, "
	"get-token, --cluster-name, world-1, --region, us-west-2]\n";

static char base[64];

static void put(const char *path, const char *text)
{
	char full[512];
	FILE *f;

	(void) text_format(full, sizeof(full), "%s%s", base, path);
	for (char *p = full + strlen(base) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		(void) mkdir(full, 0755);
		*p = '/';
	}
	if (!text) {
		(void) remove(full);
		return;
	}
	f = fopen(full, "we");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		printf("# cannot write %s\n", full);
}

static void answer(int status, const char *body)
{
	memset(world.answers, 0, sizeof(world.answers));
	world.answers[0] = (struct join_answer){"/security-credentials/", 200, "node-role"};
	world.answers[1] = (struct join_answer){"/node-role", 200, set};
	world.answers[2] = (struct join_answer){"", status, body};
}

/* With what it remembers of the looks before. */
static bool says_next(struct run *r, enum outcome outcome, enum code code)
{
	bool good = join_run(r, &tested_identity) == 0 &&
	            join_is(r, &tested_identity, "", outcome, code);

	for (size_t i = 0; i < r->n_seen; i++)
		if (memmem(&r->seen[i], sizeof(r->seen[i]), "sec/ret", 7) ||
		    memmem(&r->seen[i], sizeof(r->seen[i]), "k8s-aws-v1", 10)) {
			printf("# a secret is shown\n");
			good = false;
		}
	return good;
}

static bool says(struct run *r, enum outcome outcome, enum code code)
{
	fake_free(r);
	return says_next(r, outcome, code);
}

static bool is_ready(struct run *r, enum outcome outcome, enum code code)
{
	return join_is(r, &tested_identity, "ready", outcome, code);
}

static void vouch(struct run *r, int64_t offset_s)
{
	for (enum witness w = 0; w < _WITNESS_MAX; w++)
		r->node.witnesses[w] = (struct witness_seen){offset_s, r->now};
}

static void test_node(struct run *r)
{
	answer(200, OK_NODE);
	ok(says(r, OUTCOME_OK, CODE_NONE) && is_ready(r, OUTCOME_OK, CODE_NONE));
	ok(r->node.registered == YES && r->node.ready == YES &&
	   strcmp(r->node.node_name, NAME) == 0);
	ok(strcmp(world.sent_path, "/api/v1/nodes/" NAME) == 0);
	ok(strncmp(world.sent, "Authorization: Bearer k8s-aws-v1.aHR0cHM6Ly9zdHMudXMtd2VzdC0y",
	           60) == 0);

	answer(200, NODE(OLD, "False", "KubeletNotReady", UNREADY, ""));
	ok(says(r, OUTCOME_OK, CODE_NONE) && is_ready(r, OUTCOME_FAILED, CODE_NodeNotReady));
	ok(r->node.registered == YES && r->node.ready == NO);
	answer(200, NODE(OLD, "Unknown", "NodeStatusUnknown",
	                 "Kubelet stopped posting node status.", ""));
	ok(says(r, OUTCOME_OK, CODE_NONE) && is_ready(r, OUTCOME_FAILED, CODE_NodeNotReady));
	/* it joined a minute ago */
	answer(200, NODE("2026-11-30T21:15:59Z", "False", "KubeletNotReady", UNREADY,
	                 "\"taints\":[{\"key\":\"karpenter.sh/unregistered\"},{\"key\":\"node."
	                 "kubernetes.io/not-ready\"}]"));
	ok(says(r, OUTCOME_OK, CODE_NONE) && is_ready(r, OUTCOME_SKIPPED, CODE_NONE));
	ok(strcmp(evidence_get_text(fake_find(r, "", NULL), "taints"),
	          "karpenter.sh/unregistered,node.kubernetes.io/not-ready") == 0);
	/* by the API server's own clock, not by ours which is an hour ahead */
	world.realtime += 3600 * USEC_PER_SEC;
	vouch(r, 3600);
	ok(says(r, OUTCOME_OK, CODE_NONE) && is_ready(r, OUTCOME_SKIPPED, CODE_NONE));
	world.realtime -= 3600 * USEC_PER_SEC;
	vouch(r, 0);
	answer(200, "{\"kind\":\"Node\"}");
	ok(says(r, OUTCOME_OK, CODE_NONE) && is_ready(r, OUTCOME_SKIPPED, CODE_NONE) &&
	   r->node.ready == CANNOT_TELL);
	answer(200, NODE(OLD, "True", "KubeletReady", "",
	                 "\"providerID\":\"eks-hybrid:///us-west-2/world/mi-1\""));
	ok(says(r, OUTCOME_OK, CODE_NONE) && r->node.hybrid);
	r->node.hybrid = false;
	answer(404, "{\"kind\":\"Status\"}");
	ok(says(r, OUTCOME_ABSENT, CODE_NONE) && r->node.registered == NO &&
	   !fake_find(r, "ready", NULL));
}

static void test_401(struct run *r)
{
	answer(401, "{}");
	ok(says(r, OUTCOME_DENIED, CODE_NodeUnauthorized));
	r->node.sts_accepts = YES;
	r->node.sts_at = r->now - USEC_PER_SEC;
	ok(says(r, OUTCOME_DENIED, CODE_NodeRoleNotMapped));
	vouch(r, -1022);
	ok(says(r, OUTCOME_DENIED, CODE_NodeUnauthorized));
	memset(r->node.witnesses, 0, sizeof(r->node.witnesses));
	ok(says(r, OUTCOME_DENIED, CODE_NodeUnauthorized));
	vouch(r, 0);
	r->node.sts_accepts = NO;
	ok(says(r, OUTCOME_DENIED, CODE_NodeUnauthorized));
	r->node.sts_accepts = YES;
	r->node.sts_at = r->now - 600 * USEC_PER_SEC; /* what it said of another set */
	ok(says(r, OUTCOME_DENIED, CODE_NodeUnauthorized) && world.timers == 0);
}

static void sts_speaks(struct run *r)
{
	if (world.timers == 3) {
		r->node.sts_accepts = YES;
		r->node.sts_at = r->now;
	}
}

/* A check looks at sts at the same time, and waits for it. */
static void test_401_once(struct run *r)
{
	r->once = true;
	r->node.sts_at = 0;
	ok(says(r, OUTCOME_DENIED, CODE_NodeUnauthorized) && world.timers == STS_POLLS);
	world.on_timer = sts_speaks;
	ok(says(r, OUTCOME_DENIED, CODE_NodeRoleNotMapped) && world.timers == 3);
	world.on_timer = NULL;
	r->once = false;
}

static void test_403(struct run *r)
{
	answer(403, FORBIDDEN("system:node:ip-10-0-1-5.ec2.internal", NAME));
	ok(says(r, OUTCOME_DENIED, CODE_NodeNameMismatch) && world.http_calls == 1);
	answer(403, FORBIDDEN("system:node:", NAME));
	ok(says(r, OUTCOME_DENIED, CODE_NodeNameEmpty));
	answer(403, FORBIDDEN("system:node:" NAME, NAME));
	ok(says(r, OUTCOME_DENIED, CODE_NodeRoleNotMapped)); /* without its groups */
	answer(403, FORBIDDEN("deployer", NAME));
	ok(says(r, OUTCOME_DENIED, CODE_NodeRoleNotMapped)); /* as somebody else */
	answer(403, FORBIDDEN("system:anonymous", NAME));
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	answer(403, "<html>proxy</html>");
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	answer(503, "{}");
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	answer(200, "<html>portal</html>");
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	answer(0, "");
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 1);
	r->node.apiserver.n = 2;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 2);
	r->node.apiserver.n = 1;
}

/* Where kubelet's own name is not known, metadata's may be one with the VPC's domain. */
static void test_name(struct run *r)
{
	char name[128];

	put("/etc/eks/kubelet/environment", NULL);
	r->node.node_name[0] = 0;
	strcpy(r->node.private_dns, "ip-10-0-1-5.corp.example");
	answer(403, FORBIDDEN("system:node:" NAME, "ip-10-0-1-5.corp.example"));
	ok(says(r, OUTCOME_DENIED, CODE_NodeRoleNotMapped) && world.http_calls == 2);
	ok(strcmp(world.sent_path, "/api/v1/nodes/" NAME) == 0);
	answer(404, "{}");
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	r->node.private_dns[0] = 0;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && world.imds_calls == 0);
	strcpy(r->node.node_name, "from-the-log");
	answer(200, OK_NODE);
	ok(says(r, OUTCOME_OK, CODE_NONE) &&
	   strcmp(world.sent_path, "/api/v1/nodes/from-the-log") == 0);
	ok(override_parse("A=\"--x --hostname-override=Abc.d --y\"", 37, name, sizeof(name)) &&
	   strcmp(name, "abc.d") == 0);
	ok(override_parse("--hostname-override abc", 23, name, sizeof(name)) &&
	   strcmp(name, "abc") == 0);
	ok(!override_parse("--hostname-override", 19, name, sizeof(name)) &&
	   !override_parse("--hostname-override-x=1", 23, name, sizeof(name)) &&
	   !override_parse("--hostname-override=../a", 24, name, sizeof(name)) &&
	   !override_parse("--hostname-override=", 20, name, sizeof(name)));
	strcpy(r->node.node_name, NAME);
}

static void unfit(struct run *r, const char *text)
{
	put("/var/lib/kubelet/kubeconfig", text);
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 0);
}

static void replaced(struct run *r, const char *what, const char *by)
{
	char text[2048], *p;

	(void) snprintf(text, sizeof(text), "%s", kubeconfig);
	p = strstr(text, what);
	(void) snprintf(p, sizeof(text) - (size_t) (p - text), "%s%s", by,
	                strstr(kubeconfig, what) + strlen(what));
	unfit(r, text);
}

/* Nobody gets a token whom the cluster's CA does not vouch for. */
static void test_kubeconfig(struct run *r)
{
	answer(200, OK_NODE);
	put("/var/lib/kubelet/kubeconfig", NULL);
	ok(says(r, OUTCOME_SKIPPED, CODE_NONE) && world.imds_calls == 0);
	unfit(r, "\tnot yaml: [");
	replaced(r, "https://", "http://");
	replaced(r, "certificate-authority: /etc/kubernetes/pki/ca.crt",
	         "insecure-skip-tls-verify: true");
	replaced(r, "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/no.crt");
	replaced(r, "--cluster-name, world-1, ", "");
	replaced(r, "get-token", "get-token, --role-arn, \"arn:aws:iam::1:role/x\"");
	replaced(r, "gr7.", "gr8.");
	put("/var/lib/kubelet/kubeconfig", kubeconfig);
	r->node.apiserver.n = 0;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	r->node.apiserver.n = 1;
	world.answers[1].status = 404;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 0);
	r->node.metadata_answers = false;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && world.imds_calls == 0);
	r->node.metadata_answers = true;
	r->node.role[0] = 0;
	answer(200, OK_NODE);
	ok(says(r, OUTCOME_OK, CODE_NONE) && world.imds_calls == 2);
}

static void test_sparing(struct run *r)
{
	usec_t at = r->now;

	fake_free(r);
	answer(200, OK_NODE);
	ok(says_next(r, OUTCOME_OK, CODE_NONE) && world.http_calls == 1);
	for (int i = 0; i < 4; i++) {
		r->now += 60 * USEC_PER_SEC;
		ok(says_next(r, OUTCOME_OK, CODE_NONE) &&
		   world.imds_calls + world.http_calls == 0 && is_ready(r, OUTCOME_OK, CODE_NONE) &&
		   fake_find(r, "ready", NULL)->at == at);
	}
	r->now += 60 * USEC_PER_SEC;
	ok(says_next(r, OUTCOME_OK, CODE_NONE) && world.http_calls == 1);
	world.asked = CODE_PlegUnhealthy;
	ok(says_next(r, OUTCOME_OK, CODE_NONE) && world.http_calls == 1);
	world.asked = CODE_NONE;
	world.woken = true;
	answer(200, NODE(OLD, "False", "KubeletNotReady", UNREADY, ""));
	ok(says_next(r, OUTCOME_OK, CODE_NONE) && is_ready(r, OUTCOME_FAILED, CODE_NodeNotReady));
	world.woken = false;
	ok(says_next(r, OUTCOME_OK, CODE_NONE) && world.http_calls == 1); /* not Ready: no pause */
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

int main(void)
{
	struct run *r = calloc(1, sizeof(*r));
	struct files *f = NULL;

	(void) text_format(base, sizeof(base), "/tmp/identity-test-XXXXXX");
	if (!r || !mkdtemp(base) || files_new(&f, base) < 0)
		return 1;
	r->files = f;
	r->now = 21600 * USEC_PER_SEC;
	r->node =
		(struct node){.metadata_answers = true, .role = "node-role", .region = "us-west-2"};
	r->node.apiserver = (struct endpoint){.host = "0123.gr7.us-west-2.eks.amazonaws.com",
	                                      .scheme = "https",
	                                      .port = 443,
	                                      .n = 1};
	(void) address_parse(&r->node.apiserver.addresses[0], "10.0.9.20");
	world.realtime = UINT64_C(1796073419) * USEC_PER_SEC;
	put("/var/lib/kubelet/kubeconfig", kubeconfig);
	put("/etc/kubernetes/pki/ca.crt", "-----BEGIN CERTIFICATE-----\n");
	put("/etc/eks/kubelet/environment",
	    "NODEADM_KUBELET_ARGS=\"--node-ip=10.0.1.5 --hostname-override=" NAME " --v=2\"\n");
	vouch(r, 0);
	test_node(r);
	test_401(r);
	test_401_once(r);
	test_403(r);
	test_name(r);
	test_kubeconfig(r);
	test_sparing(r);
	fake_free(r);
	free(r);
	files_free(f);
	(void) nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return done();
}
