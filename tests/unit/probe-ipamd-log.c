/* SPDX-License-Identifier: Apache-2.0 */
#define run_tail        fake_tail
#define probe_ipamd_log tested_ipamd_log

#include "../fakecni.h"

#include <time.h>

/* The probe on real files: the instrument itself answers. */
struct tailed {
	struct run *run;
	run_tail_line_t line;
	run_tail_t end;
	uintptr_t tag;
	struct tail_read *read;
	bool over;
	struct tail_end result;
};
static struct tailed tailed;
static sd_event *event;

static void tailed_line(const char *line, size_t len, void *userdata)
{
	tailed.line(tailed.run, line, len, tailed.tag);
}

static void tailed_end(struct tail_read *t, const struct tail_end *e, void *userdata)
{
	tailed.over = true;
	tailed.result = *e;
}

int fake_tail(struct run *r, const struct tail_query *q, struct tail *where, run_tail_line_t line,
              run_tail_t end, uintptr_t tag)
{
	tailed = (struct tailed){.run = r, .line = line, .end = end, .tag = tag};
	return tail_read_new(&tailed.read, event, r->files, q, where, tailed_line, tailed_end,
	                     NULL);
}

#include "../../probes/ipamd_log.c"

#include "../tap.h"

#define LOG    "var/log/aws-routed-eni/ipamd.log"
#define CNILOG "var/log/aws-routed-eni/plugin.log"
#define NPALOG "var/log/aws-routed-eni/network-policy-agent.log"

#define EC2_DENIED(api)                                                                            \
	"operation error EC2: " api ", https response error StatusCode: 403, RequestID: 1b2c, "    \
	"api error UnauthorizedOperation: You are not authorized to perform this operation. "      \
	"User: arn:aws:sts::123456789012:assumed-role/node-role/i-0a1b is not authorized to "      \
	"perform: ec2:" api " because no identity-based policy allows the ec2:" api " action"

static struct run *make(void)
{
	struct run *r = calloc(1, sizeof(*r));

	if (!r)
		abort();
	r->now = 86400 * USEC_PER_SEC;
	r->files = tree_new();
	r->node.ec2 = EC2_YES;
	r->node.network.enis_max = 3;
	r->node.network.enis_attached = 2;
	r->node.network.known = true;
	world.uptime = r->now;
	world.realtime = UINT64_C(1787220000) * USEC_PER_SEC; /* 2026-08-20T09:20:00Z */
	return r;
}

static void unmake(struct run *r)
{
	tree_free((struct files *) r->files);
	fake_free(r);
	free(r);
}

static void later(struct run *r, unsigned seconds)
{
	r->now += seconds * USEC_PER_SEC;
	world.uptime += seconds * USEC_PER_SEC;
	world.realtime += seconds * USEC_PER_SEC;
}

static void append(const char *name, const char *text)
{
	struct timespec t[2];
	char path[512];
	FILE *f;

	(void) text_format(path, sizeof(path), "%s/%s", world.base, name);
	if (access(path, F_OK) < 0)
		put_file(name, "");
	f = fopen(path, "ae");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		abort();
	t[0].tv_sec = t[1].tv_sec = (time_t) (world.realtime / USEC_PER_SEC);
	t[0].tv_nsec = t[1].tv_nsec = 0;
	(void) utimensat(AT_FDCWD, path, t, 0);
}

/* A line of so many seconds ago. */
static void say_in(const char *name, const char *level, int before, const char *msg)
{
	time_t at = (time_t) (world.realtime / USEC_PER_SEC) - before;
	char stamp[32], line[2048];
	struct tm tm;

	(void) strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", gmtime_r(&at, &tm));
	(void) snprintf(line, sizeof(line),
	                "{\"level\":\"%s\",\"ts\":\"%s.123Z\",\"caller\":\"ipamd/ipamd.go:986\","
	                "\"msg\":\"%s\"}\n",
	                level, stamp, msg);
	append(name, line);
}

static void log_in(const char *level, int before, const char *msg)
{
	say_in(LOG, level, before, msg);
}

static void look(struct run *r)
{
	if (fake_run(r, &tested_ipamd_log) < 0)
		abort();
	while (!r->ended) {
		struct tailed t;

		while (!tailed.over)
			if (sd_event_run(event, 10 * USEC_PER_SEC) < 0)
				abort();
		t = tailed;
		tailed.read = tail_read_free(tailed.read);
		t.end(r, &t.result, t.tag);
	}
	for (size_t i = 0; i < r->n_reads; i++)
		free(r->reads[i]);
	r->n_reads = 0;
}

static bool is_good(const struct observation *o)
{
	return o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	       o->outcome == OUTCOME_UNKNOWN;
}

/* The one code that a look finds; CODE_NONE for none, _CODE_MAX for several. */
static enum code found(struct run *r, char summary[static SUMMARY_MAX])
{
	enum code code = CODE_NONE;

	summary[0] = 0;
	for (size_t i = 0; i < r->n_seen; i++) {
		struct words w = {0};
		enum code c =
			is_good(&r->seen[i]) ? CODE_NONE : tested_ipamd_log.judge(&r->seen[i], &w);

		if (c == CODE_NONE)
			continue;
		printf("# %s: %s (valid %llu s)\n", cause_of(c)->name, w.summary,
		       (unsigned long long) (r->seen[i].valid_for / USEC_PER_SEC));
		code = code == CODE_NONE ? c : _CODE_MAX;
		memcpy(summary, w.summary, sizeof(w.summary));
	}
	return code;
}

static bool finds(struct run *r, enum code want, const char *says)
{
	char summary[SUMMARY_MAX];
	enum code got;

	look(r);
	got = found(r, summary);
	if (got == want && (!says || strstr(summary, says)))
		return true;
	printf("# got %s \"%s\"\n",
	       got == CODE_NONE   ? "none"
	       : got == _CODE_MAX ? "several"
	                          : cause_of(got)->name,
	       summary);
	return false;
}

static const struct observation *seen(struct run *r, const char *aspect)
{
	static const struct observation none = {.outcome = _OUTCOME_MAX};
	const struct observation *o = fake_find(r, aspect, NULL);

	return o ? o : &none;
}

static void start_ipamd(int before)
{
	log_in("info", before, "Starting L-IPAMD v1.23.1  ...");
}

static void test_times(void)
{
	static const struct {
		const char *line;
		uint64_t at;
	} times[] = {
		{"{\"level\":\"info\",\"ts\":\"2026-08-20T09:20:00.000Z\",\"msg\":\"\"}",
	         1787217600},
		{"{\"ts\":\"1970-01-01T00:00:01Z\"}", 1},
		{"{\"ts\":\"2024-02-29T23:59:60Z\"}", 1709251200},
		{"{\"ts\":\"2026-08-20T11:20:00.5+0200\"}", 1787217600},
		{"{\"ts\":\"2026-08-20T03:50:00-05:30\"}", 1787217600},
		{"2026-08-20T09:20:00.785Z [DEBUG] an old version", 1787217600},
		{"{\"ts\":\"2026-13-20T09:20:00Z\"}", 0},
		{"{\"ts\":1787217600.5}", 0},
		{"{\"ts\":\"2026-08-2", 0},
		{"", 0},
		{"no time", 0},
	};
	unsigned bad = 0;

	for (size_t i = 0; i < ELEMENTS(times); i++) {
		char *exact = malloc(strlen(times[i].line) + 1);
		size_t len = strlen(times[i].line);

		if (!exact)
			continue;
		memcpy(exact, times[i].line, len);
		if (time_of(exact, len) != times[i].at * USEC_PER_SEC) {
			bad++;
			printf("# %s: %llu\n", times[i].line,
			       (unsigned long long) time_of(exact, len));
		}
		free(exact);
	}
	ok(bad == 0);
}

static void test_absent(void)
{
	struct run *r = make();

	ok(finds(r, CODE_NONE, NULL) && seen(r, "log")->outcome == OUTCOME_SKIPPED);
	put_file("var/log/aws-routed-eni/ebpf-sdk.log", "");
	ok(finds(r, CODE_NONE, NULL) && seen(r, "log")->outcome == OUTCOME_UNKNOWN);
	ok(seen(r, "log")->code == ENOENT && r->n_seen == 1);
	start_ipamd(10);
	ok(finds(r, CODE_NONE, NULL) && seen(r, "log")->outcome == OUTCOME_OK);
	ok(strcmp(evidence_get_text(seen(r, "log"), "version"), "v1.23.1") == 0 &&
	   evidence_number(seen(r, "log"), "started_s", 0) == 10);
	/* written in an earlier life of this machine */
	world.uptime = 5 * USEC_PER_SEC;
	world.realtime += 60 * USEC_PER_SEC;
	ok(finds(r, CODE_NONE, NULL) && seen(r, "log")->outcome == OUTCOME_UNKNOWN);
	r->node.hybrid = true;
	ok(finds(r, CODE_NONE, NULL) && seen(r, "log")->outcome == OUTCOME_SKIPPED);
	unmake(r);
}

/* A node that boots: kube-proxy comes late, and pods come and go. */
static void test_sound(void)
{
	struct run *r = make();

	start_ipamd(100);
	log_in("error", 95,
	       "Unable to reach API Server: Get \\\"https://172.20.0.1:443/version\\\": dial tcp "
	       "172.20.0.1:443: i/o timeout");
	log_in("info", 90, "Successful communication with the Cluster! Cluster Version is: v1.33");
	log_in("debug", 80, "Skipping ENI allocation as the max ENI limit is already reached");
	log_in("debug", 60,
	       "AssignPrivateIpAddresses returned PrivateIpAddressLimitExceeded. This can happen "
	       "if the data store is out of sync.");
	log_in("debug", 50, "a pod named unauthorizedoperation: UnauthorizedOperation");
	log_in("warn", 40, "Failed to call ec2:DescribeSubnets: " EC2_DENIED("DescribeSubnets"));
	log_in("warn", 40, "Failed to call ec2:DescribeSubnets: " EC2_DENIED("DescribeSubnets"));
	log_in("debug", 5, "IP pool stats: Total IPs/Prefixes = 14/0, AssignedIPs: 9");
	append(LOG, "\n{\n{\"level\":\"error\"\nnot JSON at all\n");
	ok(finds(r, CODE_NONE, NULL));
	ok(seen(r, "apiserver")->outcome == OUTCOME_SKIPPED); /* not OK: it has not served */
	ok(evidence_number(seen(r, "apiserver"), "cancelled_s", -1) == 90);
	r->node.ipamd.served_at = r->now;
	ok(finds(r, CODE_NONE, NULL) && seen(r, "apiserver")->outcome == OUTCOME_OK);
	ok(r->node.network.pod_refused_at == 0);
	unmake(r);
}

static void test_denied(void)
{
	struct run *r = make();

	r->node.cni = (struct cni_settings){.known = true};
	r->node.ipamd.served_at = r->now - 5 * USEC_PER_SEC;
	start_ipamd(4000);
	log_in("error", 20,
	       "Failed to CreateNetworkInterface " EC2_DENIED("CreateNetworkInterface"));
	ok(finds(r, CODE_NONE, NULL)); /* one line may be chance */
	log_in("error", 15,
	       "Failed to CreateNetworkInterface " EC2_DENIED("CreateNetworkInterface"));
	ok(finds(r, CODE_IpamdUnauthorized,
	         "ec2:CreateNetworkInterface: UnauthorizedOperation for "
	         "role node-role, 15 s ago, 2 times"));
	ok(seen(r, "")->valid_for == 285 * USEC_PER_SEC && seen(r, "")->code == 403);
	ok(seen(r, "")->layer == LAYER_CNI && !strstr(seen(r, "")->detail, "123456789012"));
	for (size_t i = 0; i < seen(r, "")->n_evidence; i++)
		ok(!strstr(seen(r, "")->evidence[i].text, "123456789012"));
	later(r, 284);
	ok(finds(r, CODE_IpamdUnauthorized, "4 min ago"));
	later(r, 2);
	ok(finds(r, CODE_NONE, NULL) && is_good(seen(r, "")));
	later(r, 3600);
	ok(finds(r, CODE_NONE, NULL) && !fake_find(r, "", NULL));
	unmake(r);

	/* it does not come to serve: every start ends so, and the kubelet waits longer and longer
	 */
	r = make();
	r->node.cni = (struct cni_settings){.known = true, .web_identity = true};
	(void) text_format(r->node.cni.role_arn, sizeof(r->node.cni.role_arn),
	                   "arn:aws:iam::123456789012:role/path/aws-node-irsa");
	start_ipamd(30);
	log_in("fatal", 9,
	       "Initialization failure: discoverCustomSecurityGroups: operation error EC2: "
	       "DescribeSecurityGroups, https response error StatusCode: 403, api error "
	       "UnauthorizedOperation: You are not authorized");
	ok(finds(r, CODE_IpamdUnauthorized,
	         "DescribeSecurityGroups: UnauthorizedOperation for "
	         "role aws-node-irsa, 9 s ago"));
	later(r, 100);
	start_ipamd(1);
	ok(finds(r, CODE_IpamdUnauthorized, NULL)); /* a start alone proves nothing */
	log_in("fatal", 0, "Initialization failure: " EC2_DENIED("DescribeSecurityGroups"));
	later(r, 299);
	start_ipamd(0);
	later(r, 100);
	ok(finds(r, CODE_IpamdUnauthorized, NULL)); /* it came back after a start */
	/* the policy is attached: this start goes through */
	log_in("debug", 30, "Reconciling ENI/IP pool info");
	later(r, 60);
	log_in("debug", 0, "Reconciling ENI/IP pool info");
	ok(finds(r, CODE_NONE, NULL));
	unmake(r);

	r = make();
	start_ipamd(30);
	log_in("error", 8,
	       "failed to refresh cached credentials, operation error STS: "
	       "AssumeRoleWithWebIdentity, https response error StatusCode: 403, api error "
	       "AccessDenied: Not authorized to perform sts:AssumeRoleWithWebIdentity");
	log_in("error", 5, "Initialization failure: WebIdentityErr: AccessDenied");
	ok(finds(r, CODE_IpamdUnauthorized, "AssumeRoleWithWebIdentity: AccessDenied"));
	unmake(r);
}

static void test_starts(void)
{
	struct run *r = make();

	/* the type is the cause, the call that is denied its second half */
	(void) text_format(r->node.instance_type, sizeof(r->node.instance_type), "m99.large");
	start_ipamd(60);
	log_in("error", 10,
	       "Failed calling DescribeInstanceTypes for `m99.large`: " EC2_DENIED(
		       "DescribeInstanceTypes"));
	log_in("error", 9, "Initialization failure: " EC2_DENIED("DescribeInstanceTypes"));
	log_in("error", 9, "Failed to get ENI limits from file:vpc_ip_limits or EC2 for m99.large");
	ok(finds(r, CODE_InstanceTypeUnknown, "m99.large, 9 s ago"));
	later(r, 10);
	r->node.ipamd.served_at = r->now;
	ok(finds(r, CODE_NONE, NULL) && is_good(seen(r, "type")) && is_good(seen(r, "")));
	unmake(r);

	r = make();
	(void) text_format(r->node.zone, sizeof(r->node.zone), "us-west-2a");
	start_ipamd(60);
	log_in("error", 13, "No ENIConfig could be found for this node");
	log_in("error", 12,
	       "error while retrieving eniconfig: ENIConfig.crd.k8s.amazonaws.com "
	       "\\\"us-west-2b\\\" "
	       "not found");
	log_in("error", 11,
	       "Initialization failure: Failed to attach any ENIs for custom networking");
	ok(finds(r, CODE_EniConfigMissing, "no ENIConfig us-west-2b, 12 s ago, 2 times"));
	ok(seen(r, "eniconfig")->outcome == OUTCOME_ABSENT);
	later(r, 20);
	r->node.ipamd.served_at = r->now;
	ok(finds(r, CODE_NONE, NULL) && seen(r, "eniconfig")->outcome == OUTCOME_OK);
	unmake(r);
}

static void test_apiserver(void)
{
	struct run *r = make();

	/* three days ago, and nothing since: no verdict */
	r->now = world.uptime = 4 * 86400 * USEC_PER_SEC;
	start_ipamd(259210);
	log_in("error", 259200, "Unable to reach API Server, context deadline exceeded");
	ok(finds(r, CODE_NONE, NULL));
	log_in("error", 12, "Unable to reach API Server, dial tcp 172.20.0.1:443: i/o timeout");
	log_in("error", 4,
	       "Unable to reach API Server, dial tcp 172.20.0.1:443: connect: connection refused");
	ok(finds(r, CODE_CniApiServerUnreachable, "service address: refused, 4 s ago, 2 times"));
	log_in("info", 1, "Successful communication with the Cluster! Cluster Version is: v1.33");
	ok(finds(r, CODE_NONE, NULL));
	log_in("error", 0, "Failed to check API server connectivity: i/o timeout");
	later(r, 5);
	ok(finds(r, CODE_CniApiServerUnreachable, "timeout"));
	r->node.ipamd.served_at = r->now;
	ok(finds(r, CODE_NONE, NULL));
	r->node.ipamd.served_at = 0;
	later(r, 116);
	ok(finds(r, CODE_NONE, NULL)); /* it went on without, and says no more */
	unmake(r);
}

static void test_identity(void)
{
	struct run *r = make();

	start_ipamd(60);
	log_in("error", 6,
	       "failed to refresh cached credentials, failed to retrieve credentials, operation "
	       "error STS: AssumeRoleWithWebIdentity, exceeded maximum number of attempts, 3, "
	       "https response error StatusCode: 0, RequestID: , request send failed, Post "
	       "\\\"https://sts.us-west-2.amazonaws.com/\\\": dial tcp 10.0.9.9:443: i/o timeout");
	ok(finds(r, CODE_CniIdentityUnreachable,
	         "no credentials from sts.us-west-2.amazonaws.com: timeout, 6 s ago"));
	unmake(r);

	/* nothing but silence */
	r = make();
	start_ipamd(700);
	log_in("info", 699, "Testing communication with server");
	start_ipamd(600);
	log_in("info", 599, "Testing communication with server");
	start_ipamd(300);
	log_in("info", 299, "Testing communication with server");
	ok(finds(r, CODE_NONE, NULL) && evidence_number(seen(r, "log"), "silent_starts", 0) == 2);
	r->node.cni = (struct cni_settings){.known = true, .web_identity = true};
	ok(finds(r, CODE_CniIdentityUnreachable,
	         "from sts: its log stops in 2 starts, silent for 299 s"));
	r->node.ipamd.served_at = r->now - 200 * USEC_PER_SEC;
	ok(finds(r, CODE_NONE, NULL)); /* this start came through */
	r->node.ipamd.served_at = 0;
	later(r, 700);
	ok(finds(r, CODE_NONE, NULL));
	unmake(r);

	/* an upgrade: a run that worked ends, another begins */
	r = make();
	r->node.cni = (struct cni_settings){.known = true, .web_identity = true};
	for (int i = 0; i < 4; i++) {
		start_ipamd(2000 - i * 400);
		log_in("debug", 2000 - i * 400 - 370, "Reconciling ENI/IP pool info");
	}
	ok(finds(r, CODE_NONE, NULL) && !evidence_number(seen(r, "log"), "silent_starts", 0));
	unmake(r);
}

static void test_subnet(void)
{
	struct run *r = make();

	start_ipamd(4000);
	log_in("error", 21,
	       "failed to allocate all available IP addresses on ENI eni-0a, err: operation error "
	       "EC2: AssignPrivateIpAddresses, https response error StatusCode: 400, api error "
	       "InsufficientFreeAddressesInSubnet: The specified subnet does not have enough free "
	       "addresses");
	log_in("error", 21,
	       "Unable to attach IPs/Prefixes for the ENI, subnet doesn't seem to have enough "
	       "IPs/Prefixes. InsufficientFreeAddressesInSubnet");
	ok(finds(r, CODE_SubnetExhausted,
	         "InsufficientFreeAddressesInSubnet, 21 s ago, 2 times; 2 "
	         "of 3 ENIs attached"));
	ok(seen(r, "")->layer == LAYER_ADDRESS &&
	   strcmp(evidence_get_text(seen(r, ""), "api"), "AssignPrivateIpAddresses") == 0);
	/* while it waits it does not ask, and says so */
	later(r, 100);
	log_in("debug", 0,
	       "Recently we had InsufficientCidr error hence will wait for 2m0s before retrying");
	later(r, 290);
	ok(finds(r, CODE_SubnetExhausted, "4 min ago"));
	later(r, 11);
	ok(finds(r, CODE_NONE, NULL));
	log_in("debug", 0,
	       "Recently we had InsufficientCidr error hence will wait for 2m0s before retrying");
	ok(finds(r, CODE_NONE, NULL));
	log_in("error", 2,
	       "Failed to allocate a private IP/Prefix addresses on ENI eni-0a: "
	       "InsufficientCidrBlocks:"
	       " There aren't sufficient free Ipv4 addresses or prefixes");
	ok(finds(r, CODE_SubnetFragmented, "no free /28"));
	unmake(r);

	/* without a code the mode tells */
	r = make();
	r->node.cni.prefix = true;
	log_in("error", 2, "Unable to attach IPs/Prefixes for the ENI, subnet doesn't seem to");
	ok(finds(r, CODE_SubnetFragmented, NULL));
	unmake(r);

	r = make();
	log_in("error", 5,
	       "Failed to CreateNetworkInterface operation error EC2: CreateNetworkInterface, api "
	       "error NetworkInterfaceLimitExceeded: limit of 5000");
	ok(finds(r, CODE_EniQuotaReached, "NetworkInterfaceLimitExceeded, 5 s ago"));
	unmake(r);

	r = make();
	log_in("error", 5, "awsGetFreeDeviceNumber: no available device number for network card 0");
	ok(finds(r, CODE_EniAttachFailed, "no device number"));
	ok(seen(r, "attach")->outcome == OUTCOME_EXHAUSTED);
	unmake(r);

	r = make();
	log_in("error", 5, "operation error EC2: AssignPrivateIpAddresses, RequestLimitExceeded");
	log_in("error", 5, "Failed to retrieve region data from instance metadata timeout");
	ok(finds(r, CODE_NONE, NULL) && seen(r, "throttled")->outcome == OUTCOME_SLOW &&
	   seen(r, "metadata")->outcome == OUTCOME_FAILED);
	unmake(r);
}

static void test_refused(void)
{
	struct run *r = make();

	log_in("debug", 30, "Skipping ENI allocation as the max ENI limit is already reached");
	log_in("error", 20, "DataStore has no available IP/Prefix addresses");
	say_in(CNILOG, "error", 19, "Failed to assign an IP address to container 3f0c");
	ok(finds(r, CODE_NONE, NULL)); /* the numbers of this type are known: they decide */
	ok(seen(r, "refused")->outcome == OUTCOME_EXHAUSTED);
	ok(r->node.network.pod_refused_at == r->now - 19 * USEC_PER_SEC);
	r->node.network.enis_max = -1;
	ok(finds(r, CODE_EniLimitReached, "limit of ENIs"));
	/* the limits probe has not looked yet, and the tables have the type */
	(void) text_format(r->node.instance_type, sizeof(r->node.instance_type), "m5.large");
	ok(finds(r, CODE_NONE, NULL));
	r->node.instance_type[0] = 0;
	later(r, 290);
	log_in("debug", 0, "Skipping ENI allocation as the max ENI limit is already reached");
	ok(finds(r, CODE_NONE, NULL)); /* full, and nobody asks */
	ok(is_good(seen(r, "refused")));
	unmake(r);
}

static void test_lost(void)
{
	struct net_rule rules_of_pods[] = {{.family = AF_INET, .priority = 512, .dst_len = 32},
	                                   {.family = AF_INET, .priority = 1024, .dst_len = 32}};
	struct net_link veth = {.index = 7, .name = "eni0123", .kind = "veth"};
	struct net_route route = {.family = AF_INET, .dst_len = 32, .table = 254, .oif = 7};
	struct net net = {.rules = rules_of_pods,
	                  .n_rules = 2,
	                  .links = &veth,
	                  .n_links = 1,
	                  .routes = &route,
	                  .n_routes = 1};
	struct run *r = make();

	(void) address_parse(&rules_of_pods[0].dst, "10.0.1.7");
	(void) address_parse(&rules_of_pods[1].dst, "10.0.1.9");
	(void) address_parse(&route.dst, "10.0.1.8");
	r->net = &net;
	start_ipamd(40);
	for (int i = 7; i < 10; i++) {
		char msg[128];

		(void) snprintf(msg, sizeof(msg),
		                "datastore: Sandbox aws-cni/3f%d/eth0 uses unknown IP Address "
		                "10.0.1.%d - presuming stale/dead",
		                i, i);
		log_in("warn", 38, msg);
	}
	log_in("warn", 38, "uses unknown IP Address nonsense - presuming stale/dead");
	ok(finds(r, CODE_NONE, NULL) && seen(r, "allocations")->outcome == OUTCOME_UNKNOWN);
	later(r, 60);
	ok(finds(r, CODE_NONE, NULL) && seen(r, "allocations")->outcome == OUTCOME_UNKNOWN);
	put_file("var/run/aws-node/ipam.json",
	         "{\"version\":\"vpc-cni-ipam/1\",\"allocations\":[]}");
	ok(finds(r, CODE_AllocationsLost,
	         "gave up 2 addresses that pods still have, 10.0.1.7 first, 98 s ago"));
	/* one was given to another pod, the pod of the other is gone */
	put_file("var/run/aws-node/ipam.json",
	         "{\"version\":\"vpc-cni-ipam/1\",\"allocations\":[{\"ipv4\":\"10.0.1.7\"}]}");
	ok(finds(r, CODE_AllocationsLost, "1 addresses that pods still have, 10.0.1.8"));
	net.n_routes = 0;
	ok(finds(r, CODE_NONE, NULL) && seen(r, "allocations")->outcome == OUTCOME_OK);
	r->net_error = -EPERM;
	ok(finds(r, CODE_NONE, NULL) && seen(r, "allocations")->outcome == OUTCOME_UNKNOWN);
	unmake(r);
}

static void test_agent(void)
{
	static const char forbidden[] =
		"Failed to watch *v1alpha1.PolicyEndpoint: policyendpoints.networking.k8s.aws is "
		"forbidden: User \\\"system:serviceaccount:kube-system:aws-node\\\" cannot list";
	struct run *r = make();

	start_ipamd(500);
	say_in(NPALOG, "error", 90, forbidden);
	say_in(NPALOG, "error", 80, forbidden);
	say_in(NPALOG, "error", 70, forbidden);
	ok(finds(r, CODE_NONE, NULL)); /* the roles may come a little after the agent */
	say_in(NPALOG, "error", 5, forbidden);
	ok(finds(r, CODE_NetworkPolicyAgentFailing, "by its log, 5 s ago, 4 times"));
	later(r, 181);
	ok(finds(r, CODE_NONE, NULL));
	unmake(r);
}

static void test_rotated(void)
{
	struct run *r = make();
	char old[256], new[256];

	start_ipamd(400);
	ok(finds(r, CODE_NONE, NULL));
	log_in("error", 5, "NetworkInterfaceLimitExceeded");
	(void) text_format(old, sizeof(old), "%s/" LOG, world.base);
	(void) text_format(new, sizeof(new),
	                   "%s/var/log/aws-routed-eni/ipamd-2026-08-20T09-19-58.000.log",
	                   world.base);
	ok(rename(old, new) == 0);
	log_in("debug", 1, "IP pool stats");
	ok(finds(r, CODE_EniQuotaReached, "5 s ago"));
	later(r, 2);
	ok(finds(r, CODE_EniQuotaReached, "7 s ago") &&
	   evidence_number(seen(r, "quota"), "seen", 0) == 1);
	unmake(r);
}

int main(void)
{
	if (sd_event_new(&event) < 0)
		return 1;
	test_times();
	test_absent();
	test_sound();
	test_denied();
	test_starts();
	test_apiserver();
	test_identity();
	test_subnet();
	test_refused();
	test_lost();
	test_agent();
	test_rotated();
	sd_event_unref(event);
	return done();
}
