/* SPDX-License-Identifier: Apache-2.0 */
/* One root: who explains whom, in which order, and what the conditions say. */
#include "diagnose.h"
#include "../tap.h"
#include "report-diff.h"

enum { N = 16 };
static struct fact facts[N];
static const struct fact *order[N];
static size_t n;
static struct report a, b;
static struct node node;

static void begin(void)
{
	n = 0;
}

static void found(enum code code, const char *probe, const char *subject)
{
	struct fact *f = &facts[n];

	*f = (struct fact){.code = code, .since = 100, .last_seen = 200, .seen = 3};
	f->latest.layer = cause_of(code)->layer;
	f->latest.outcome = OUTCOME_FAILED;
	(void) text_format(f->latest.probe, sizeof(f->latest.probe), "%s", probe);
	(void) text_format(f->latest.subject, sizeof(f->latest.subject), "%s", subject);
	f->bad = f->latest;
	(void) text_format(f->summary, sizeof(f->summary), "summary of %s", cause_of(code)->name);
	order[n] = f;
	n++;
}

static void saw(enum outcome outcome, enum layer layer, const char *probe, const char *subject)
{
	struct fact *f = &facts[n];

	*f = (struct fact){.latest = {.layer = layer, .outcome = outcome}};
	(void) text_format(f->latest.probe, sizeof(f->latest.probe), "%s", probe);
	(void) text_format(f->latest.subject, sizeof(f->latest.subject), "%s", subject);
	order[n] = f;
	n++;
}

static const struct report *judge(struct report *r)
{
	struct diagnose_input in = {.node = &node, .now = 1000, .uptime = 5000, .complete = true};

	diagnose(order, n, &in, r);
	return r;
}

static const char *because(const struct report *r, enum code code)
{
	for (size_t i = 0; i < r->n_findings; i++)
		if (r->findings[i].code == code)
			return r->findings[i].because < 0
			               ? "root"
			               : cause_of(r->findings[r->findings[i].because].code)->name;
	return "absent";
}

#define IS(code, why) ok(strcmp(because(&a, CODE_##code), why) == 0)

static void test_table(void)
{
	for (int l = 0; l < _LAYER_MAX; l++)
		ok((needs[l] & ~((UINT32_C(1) << l) - 1)) == 0, "%s needs earlier layers only",
		   layer_name((enum layer) l));
}

static void test_chain(void)
{
	begin();
	found(CODE_DefaultRouteMissing, "link", "");
	found(CODE_ImdsUnreachable, "imds", "");
	found(CODE_ResolverUnreachable, "dns", "10.0.0.2");
	found(CODE_CniConfigMissing, "cni-config", "/etc/cni/net.d");
	judge(&a);
	ok(a.n_findings == 4 && a.verdict.root == 0 &&
	   a.findings[0].code == CODE_DefaultRouteMissing);
	ok(a.verdict.state == STATE_BROKEN);
	IS(DefaultRouteMissing, "root");
	IS(ImdsUnreachable, "DefaultRouteMissing");
	IS(ResolverUnreachable, "DefaultRouteMissing");
	IS(CniConfigMissing, "ResolverUnreachable"); /* the nearest, whose own cause is the route */
	/* a consequence does not page: only the root's condition is true */
	ok(a.conditions[CONDITION_HostNetworkProblem].status == CONDITION_TRUE);
	ok(a.conditions[CONDITION_DnsProblem].status != CONDITION_TRUE);
	ok(a.conditions[CONDITION_CniProblem].status != CONDITION_TRUE);
	ok(a.conditions[CONDITION_KubeletProblem].status == CONDITION_UNKNOWN);
}

static void test_two_roots(void)
{
	begin();
	found(CODE_ImdsHopLimitLow, "imds-hop-limit", "");
	found(CODE_NameNotFound, "dns", "sts");
	found(CODE_EndpointTimeout, "endpoint", "ec2");
	judge(&a);
	IS(ImdsHopLimitLow, "root"); /* a fault that only pods feel explains nothing on the host */
	IS(NameNotFound, "root");
	IS(EndpointTimeout, "root"); /* sts that does not resolve is no reason for ec2 */
	ok(a.findings[0].code == CODE_NameNotFound &&
	   a.findings[2].code == CODE_ImdsHopLimitLow); /* worst first */
	begin();
	found(CODE_ImdsDisabled, "imds", "");
	found(CODE_ResolverUnreachable, "dns", "10.0.0.2");
	judge(&a);
	IS(ImdsDisabled, "root");
	IS(ResolverUnreachable, "root");
	ok(a.findings[0].code == CODE_ImdsDisabled);
}

static void test_rules_of_the_contract(void)
{
	begin();
	found(CODE_EndpointTimeout, "endpoint", "sts");
	found(CODE_NodeUnauthorized, "imds", "");
	found(CODE_IpamdNotServing, "imds", "");
	found(CODE_CniConfigMissing, "cni-config", "");
	found(CODE_AwsNodeCrashLooping, "imds", "");
	found(CODE_NodeNotReady, "imds", "");
	judge(&a);
	IS(NodeUnauthorized, "root"); /* a 401 is never explained by an endpoint */
	IS(AwsNodeCrashLooping, "NodeUnauthorized");
	begin();
	found(CODE_IpamdNotServing, "imds", "");
	found(CODE_CniConfigMissing, "cni-config", "");
	found(CODE_AwsNodeCrashLooping, "imds", "");
	found(CODE_NodeNotReady, "imds", "");
	judge(&a);
	IS(AwsNodeCrashLooping, "root");
	IS(IpamdNotServing, "AwsNodeCrashLooping");
	IS(CniConfigMissing, "IpamdNotServing");                 /* the direct cause */
	ok(strcmp(because(&a, CODE_NodeNotReady), "root") != 0); /* judged last */
	begin();
	found(CODE_PathMtuBlackhole, "link", "");
	found(CODE_EndpointTlsStalled, "endpoint", "ec2");
	judge(&a);
	IS(EndpointTlsStalled, "PathMtuBlackhole");
	ok(a.verdict.state == STATE_BROKEN); /* the worst finding, consequences included */
	begin();
	found(CODE_ImdsNotEc2, "imds", "");
	judge(&a);
	ok(a.verdict.state == STATE_HEALTHY && a.verdict.root == -1 && a.n_findings == 1);
}

/* A fault explains only what its subject covers, and only what it can reach. */
static void test_cover(void)
{
	begin();
	found(CODE_NameNotFound, "dns", "ec2");
	found(CODE_EndpointTimeout, "endpoint", "ecr.api");
	found(CODE_SandboxImageMissing, "runtime", "eks/pause:3.5");
	found(CODE_ApiServerUnresolvable, "apiserver", "");
	found(CODE_KubeletCrashLooping, "kubelet", "kubelet.service");
	judge(&a);
	IS(SandboxImageMissing, "EndpointTimeout");
	IS(EndpointTimeout, "root");
	IS(ApiServerUnresolvable, "root"); /* no AWS endpoint's name is that of the cluster */
	IS(KubeletCrashLooping, "ApiServerUnresolvable");
	begin();
	found(CODE_EndpointTimeout, "endpoint", "sts");
	found(CODE_SandboxImageMissing, "runtime", "eks/pause:3.5");
	found(CODE_ImagePullDenied, "runtime", "");
	judge(&a);
	IS(SandboxImageMissing, "root");
	IS(ImagePullDenied, "SandboxImageMissing");
	begin();
	found(CODE_CredentialsMissing, "credentials", "");
	found(CODE_NodeUnauthorized, "identity", "");
	found(CODE_IpamdNotServing, "ipamd", "");
	judge(&a);
	IS(NodeUnauthorized, "root"); /* without credentials there is no token to refuse */
	facts[0].code = CODE_CredentialsExpired;
	judge(&a);
	IS(NodeUnauthorized, "CredentialsExpired"); /* the token is signed with them */
	begin();
	found(CODE_DiskFull, "host", "/");
	found(CODE_ImdsUnreachable, "imds", "");
	found(CODE_RuntimeUnresponsive, "runtime", "");
	found(CODE_CniConfigInvalid, "cni-config", "10-aws.conflist");
	found(CODE_ImdsHopLimitLow, "imds-hop-limit", "");
	found(CODE_NodeNotReady, "identity", "");
	judge(&a);
	IS(ImdsUnreachable, "root");  /* a full disk stops no packet */
	IS(CniConfigInvalid, "root"); /* a broken file is a fault of its own */
	IS(RuntimeUnresponsive, "DiskFull");
	IS(NodeNotReady, "CniConfigInvalid");
	begin();
	found(CODE_ImdsHopLimitLow, "imds-hop-limit", "");
	found(CODE_NodeNotReady, "identity", "");
	judge(&a);
	IS(NodeNotReady, "ImdsHopLimitLow"); /* any finding but a notice */
	begin();
	found(CODE_SpotInterruption, "lifecycle", "");
	found(CODE_NodeNotReady, "identity", "");
	judge(&a);
	IS(NodeNotReady, "root");
}

static void test_merge(void)
{
	begin();
	found(CODE_EndpointTimeout, "endpoint", "ec2");
	found(CODE_EndpointTimeout, "endpoint", "sts");
	judge(&a);
	ok(a.n_findings == 1 && strcmp(a.findings[0].subject, "all") == 0);
	begin();
	found(CODE_ResolverUnreachable, "dns", "10.0.0.2");
	found(CODE_ResolverUnreachable, "dns", "10.0.0.3");
	judge(&a);
	ok(a.n_findings == 1 && strcmp(a.findings[0].subject, "10.0.0.2,10.0.0.3") == 0);
}

static void test_states(void)
{
	begin();
	saw(OUTCOME_UNKNOWN, LAYER_DNS, "dns", "");
	judge(&a);
	ok(a.verdict.state == STATE_BLIND);
	ok(a.conditions[CONDITION_DnsProblem].status == CONDITION_UNKNOWN);
	saw(OUTCOME_OK, LAYER_METADATA, "imds", "");
	judge(&a);
	ok(a.verdict.state == STATE_HEALTHY);
	ok(a.conditions[CONDITION_InstanceMetadataProblem].status == CONDITION_FALSE);
	facts[1].graced = true;
	judge(&a);
	ok(a.verdict.state == STATE_STARTING);
}

static void test_stage(void)
{
	static struct report r;
	struct node young = {.ec2 = EC2_YES};
	struct diagnose_input in = {
		.node = &young, .now = 1000, .uptime = 300 * USEC_PER_SEC, .complete = true};

	begin();
	saw(OUTCOME_UNKNOWN, LAYER_ENDPOINT, "endpoint", "ec2");
	saw(OUTCOME_ABSENT, LAYER_CNI, "cni-config", "");
	diagnose(order, 2, &in, &r);
	ok(r.verdict.stage == STAGE_BOOTING && r.verdict.deadline == 600);
	ok(r.verdict.unverified == UINT32_C(1) << LAYER_ENDPOINT);
	young.metadata_at = 1;
	diagnose(order, 2, &in, &r);
	ok(r.verdict.stage == STAGE_BOOTSTRAPPING);
	young.kubeconfig_present = true;
	diagnose(order, 2, &in, &r);
	ok(r.verdict.stage == STAGE_JOINING && r.verdict.deadline == 600);
	in.uptime = 901 * USEC_PER_SEC;
	diagnose(order, 2, &in, &r);
	ok(r.verdict.deadline == -1); /* it has passed, and the node is still here */
	in.uptime = 300 * USEC_PER_SEC;
	young.has_pods = true;
	diagnose(order, 2, &in, &r);
	ok(r.verdict.stage == STAGE_NETWORKING && r.verdict.deadline == -1);
	facts[1].latest.outcome = OUTCOME_OK;
	facts[0].latest.outcome = OUTCOME_OK;
	diagnose(order, 2, &in, &r);
	ok(r.verdict.stage == STAGE_READY && r.verdict.unverified == 0);
}

/* The stages of a boot, and who is believed: the API server before what lies on the disk. */
static void test_join(void)
{
	static const struct {
		enum tristate registered, ready;
		bool kubeconfig, pods, metadata, hybrid;
		enum outcome cni;
		enum stage stage;
		int deadline;
	} rows[] = {
		/* a boot, step by step */
		{CANNOT_TELL, CANNOT_TELL, 0, 0, 0, 0, OUTCOME_ABSENT, STAGE_BOOTING, 600},
		{CANNOT_TELL, CANNOT_TELL, 0, 0, 1, 0, OUTCOME_ABSENT, STAGE_BOOTSTRAPPING, 600},
		{CANNOT_TELL, CANNOT_TELL, 1, 0, 1, 0, OUTCOME_ABSENT, STAGE_JOINING, 600},
		{NO, CANNOT_TELL, 1, 0, 1, 0, OUTCOME_ABSENT, STAGE_JOINING, 600},
		{YES, CANNOT_TELL, 1, 0, 1, 0, OUTCOME_ABSENT, STAGE_NETWORKING, -1},
		{YES, NO, 1, 1, 1, 0, OUTCOME_ABSENT, STAGE_NETWORKING, -1},
		{YES, NO, 1, 1, 1, 0, OUTCOME_OK, STAGE_NETWORKING, -1}, /* not yet, it says */
		{YES, YES, 1, 1, 1, 0, OUTCOME_OK, STAGE_READY, -1},
		/* nobody can ask the API server */
		{CANNOT_TELL, CANNOT_TELL, 1, 1, 1, 0, OUTCOME_ABSENT, STAGE_NETWORKING, -1},
		{CANNOT_TELL, CANNOT_TELL, 1, 1, 1, 0, OUTCOME_OK, STAGE_READY, -1},
		{CANNOT_TELL, CANNOT_TELL, 1, 0, 1, 0, OUTCOME_OK, STAGE_READY, -1},
		{CANNOT_TELL, YES, 1, 0, 1, 0, OUTCOME_UNKNOWN, STAGE_READY, -1},
		/* its Node object is gone: it joins again, but nobody deletes the instance */
		{NO, CANNOT_TELL, 1, 1, 1, 0, OUTCOME_OK, STAGE_JOINING, -1},
		{NO, CANNOT_TELL, 1, 0, 1, 0, OUTCOME_OK, STAGE_JOINING, -1},
		{NO, CANNOT_TELL, 1, 1, 1, 0, OUTCOME_ABSENT, STAGE_JOINING, -1},
		/* registered already, its metadata is off */
		{YES, YES, 1, 0, 0, 0, OUTCOME_OK, STAGE_READY, -1},
		/* outside of AWS */
		{CANNOT_TELL, CANNOT_TELL, 0, 0, 0, 1, OUTCOME_UNKNOWN, STAGE_BOOTSTRAPPING, -1},
		{NO, CANNOT_TELL, 1, 0, 0, 1, OUTCOME_UNKNOWN, STAGE_JOINING, -1},
		{YES, YES, 1, 1, 0, 1, OUTCOME_UNKNOWN, STAGE_READY, -1},
	};
	static struct report r;

	for (size_t i = 0; i < ELEMENTS(rows); i++) {
		struct node young = {.ec2 = rows[i].hybrid ? EC2_NO : EC2_YES,
		                     .hybrid = rows[i].hybrid,
		                     .registered = rows[i].registered,
		                     .ready = rows[i].ready,
		                     .kubeconfig_present = rows[i].kubeconfig,
		                     .has_pods = rows[i].pods,
		                     .metadata_at = rows[i].metadata};
		struct diagnose_input in = {
			.node = &young, .now = 1, .uptime = 300 * USEC_PER_SEC, .complete = true};

		begin();
		saw(rows[i].cni, LAYER_CNI, "cni-config", "");
		diagnose(order, n, &in, &r);
		printf("# %zu: %s, %d s\n", i, stage_name(r.verdict.stage), r.verdict.deadline);
		ok(r.verdict.stage == rows[i].stage && r.verdict.deadline == rows[i].deadline);
	}
}

static void test_join_findings(void)
{
	static struct report r;
	struct node young = {
		.ec2 = EC2_YES, .registered = YES, .ready = YES, .kubeconfig_present = true};
	struct diagnose_input in = {
		.node = &young, .now = 1, .uptime = 300 * USEC_PER_SEC, .complete = true};

	begin(); /* the Node object is minutes old, the CNI's fault is seconds old */
	saw(OUTCOME_OK, LAYER_CNI, "cni-config", "");
	found(CODE_IpamdNotServing, "ipamd", "");
	diagnose(order, n, &in, &r);
	ok(r.verdict.stage == STAGE_NETWORKING);
	begin(); /* of no account to its readiness */
	saw(OUTCOME_OK, LAYER_CNI, "cni-config", "");
	found(CODE_NetworkPolicyAgentFailing, "ipamd", "");
	diagnose(order, n, &in, &r);
	ok(r.verdict.stage == STAGE_READY);
	begin(); /* one good look at the CNI does not make up for a bad one */
	saw(OUTCOME_OK, LAYER_CNI, "cni-config", "");
	saw(OUTCOME_ABSENT, LAYER_CNI, "ipamd", "");
	young.ready = CANNOT_TELL;
	diagnose(order, n, &in, &r);
	ok(r.verdict.stage == STAGE_NETWORKING);
	begin(); /* metadata is off, so that nodeadm gave up: it had begun */
	young = (struct node){.ec2 = EC2_YES};
	found(CODE_BootstrapFailed, "bootstrap", "nodeadm-config.service");
	diagnose(order, n, &in, &r);
	ok(r.verdict.stage == STAGE_BOOTSTRAPPING && r.verdict.deadline == 600);
	begin();
	found(CODE_JoinDeadlineNear, "bootstrap", "");
	diagnose(order, n, &in, &r);
	ok(r.verdict.stage == STAGE_BOOTING);
	young.ec2 = EC2_NO; /* no node at all */
	diagnose(order, n, &in, &r);
	ok(r.verdict.stage == STAGE_READY && r.verdict.deadline == -1);
}

static void test_remedy(void)
{
	char s[REMEDY_MAX];

	(void) text_format(node.instance_id, sizeof(node.instance_id), "i-0123");
	remedy_fill("aws --region {region} --id {instance_id} {x} {subject}", &node, "ec2", s,
	            sizeof(s));
	ok(strcmp(s, "aws --region <region> --id i-0123 {x} ec2") == 0);
	remedy_fill("open { brace", &node, "", s, sizeof(s));
	ok(strcmp(s, "open { brace") == 0);
	remedy_fill("{instance_id}", &node, "", s, 4);
	ok(strlen(s) < 4);
}

static void test_diff(void)
{
	struct report_diff d;

	begin();
	saw(OUTCOME_OK, LAYER_METADATA, "imds", "");
	judge(&a);
	report_diff(NULL, &a, &d);
	ok(d.verdict && d.material);
	judge(&b);
	report_diff(&a, &b, &d);
	ok(!d.verdict && !d.material && !d.raised[0] && !d.cleared[0]);
	begin();
	found(CODE_ImdsUnreachable, "imds", "");
	judge(&b);
	report_diff(&a, &b, &d);
	ok(d.verdict && d.material && diff_bit(d.raised, 0) && !d.cleared[0]);
	report_diff(&b, &a, &d);
	ok(d.verdict && diff_bit(d.cleared, 0) && !d.raised[0]);
	facts[0].latest.took = 5;
	facts[0].last_seen = 999;
	judge(&a);
	report_diff(&b, &a, &d);
	ok(!d.material); /* times alone are no news */
	/* one code twice, with causes of their own: news is told by the subject */
	begin();
	found(CODE_NameNotFound, "dns", "ec2");
	found(CODE_EndpointTimeout, "endpoint", "ec2");
	found(CODE_EndpointTimeout, "endpoint", "sts");
	judge(&a);
	judge(&b);
	report_diff(&a, &b, &d);
	ok(a.n_findings == 3 && !d.raised[0] && !d.cleared[0]);
	n--;
	judge(&b);
	report_diff(&a, &b, &d);
	ok(b.n_findings == 2 && !d.raised[0] && diff_bit(d.cleared, 1) && !diff_bit(d.cleared, 2));
	report_diff(&b, &a, &d);
	ok(diff_bit(d.raised, 1) && !diff_bit(d.raised, 2) && !d.cleared[0]);
	begin();
	saw(OUTCOME_OK, LAYER_METADATA, "imds", "");
	judge(&a);
	facts[0].latest.outcome = OUTCOME_TIMEOUT;
	judge(&b);
	report_diff(&a, &b, &d);
	ok(d.material && !d.verdict); /* noticed, though not yet sure */
}

/* Same facts, same bytes: findings have one order whatever the order of the table walk. */
static void test_deterministic(void)
{
	begin();
	found(CODE_DefaultRouteMissing, "link", "");
	found(CODE_ImdsUnreachable, "imds", "");
	found(CODE_EndpointTimeout, "endpoint", "ec2");
	found(CODE_LimitsUnknown, "limits", "");
	found(CODE_ImdsHopLimitLow, "imds-hop-limit", "");
	judge(&a);
	for (int turn = 0; turn < 20; turn++) {
		const struct fact *first = order[0];
		size_t k = (size_t) turn % (n - 1);

		memmove(order, order + 1, (n - 1) * sizeof(order[0]));
		order[n - 1] = first;
		first = order[k];
		order[k] = order[k + 1];
		order[k + 1] = first;
		judge(&b);
		for (size_t i = 0; i < a.n_findings; i++)
			if (a.findings[i].code != b.findings[i].code ||
			    a.findings[i].because != b.findings[i].because)
				ok(false, "turn %d finding %zu", turn, i);
	}
	ok(b.n_findings == 5);
}

int main(void)
{
	test_table();
	test_chain();
	test_two_roots();
	test_rules_of_the_contract();
	test_cover();
	test_merge();
	test_states();
	test_stage();
	test_join();
	test_join_findings();
	test_remedy();
	test_diff();
	test_deterministic();
	return done();
}
