/* SPDX-License-Identifier: Apache-2.0 */
#define run_timer fake_timer

#include "../fakecni.h"

#include "../../probes/ipamd.c"

#include "../tap.h"

#define ID     "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define BUNDLE "run/containerd/io.containerd.runtime.v2.task/k8s.io/" ID "/config.json"
#define PODS   "var/log/pods/kube-system_aws-node-x7k2p_0a1b/"
#define OCI(env, tag)                                                                              \
	"{\"process\":{\"env\":[\"SECRET=hush\"" env "]},\"annotations\":{"                        \
	"\"io.kubernetes.cri.container-name\":\"aws-node\",\"io.kubernetes.cri.image-name\":"      \
	"\"registry/amazon-k8s-cni:" tag "\"}}"

static unsigned timers, registered_after;

/* The timer runs out when it is set: what else is learnt meanwhile is learnt then. */
int fake_timer(struct run *r, usec_t after, run_timer_t done_cb, uintptr_t tag)
{
	if (++timers == registered_after)
		r->node.registered = YES;
	done_cb(r, tag);
	return 0;
}

static const struct fake_port serving[] = {
	{50051, OUTCOME_MALFORMED, HTTP_WAITING, 0, NULL},
	{61679, OUTCOME_OK, HTTP_DONE, 200,
         "{\"0\":{\"TotalIPs\":9,\"AssignedIPs\":4,\"ENIs\":{\"eni-1\":{\"ID\":\"eni-1\"}}}}"},
	{61678, OUTCOME_OK, HTTP_DONE, 404, "404"},
	{0, 0, 0, 0, NULL},
};

static void put_process(int pid, const char *comm, uint64_t began)
{
	char path[64], text[256];

	(void) text_format(path, sizeof(path), "proc/%d/comm", pid);
	(void) text_format(text, sizeof(text), "%s\n", comm);
	put_file(path, text);
	(void) text_format(path, sizeof(path), "proc/%d/stat", pid);
	(void) text_format(text, sizeof(text),
	                   "%d (%s ) x) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 %llu 9 9\n",
	                   pid, comm, (unsigned long long) began);
	put_file(path, text);
	(void) text_format(path, sizeof(path), "proc/%d/cgroup", pid);
	put_file(path, "0::/kubepods.slice/kubepods-pod0a.slice/cri-containerd-" ID ".scope\n");
}

static void put_log(const char *container, int number, int64_t ended)
{
	char path[256], full[512];

	(void) text_format(path, sizeof(path), PODS "%s/%d.log", container, number);
	put_file(path, "x\n");
	(void) text_format(full, sizeof(full), "%s/%s", world.base, path);
	(void) utimensat(AT_FDCWD, full,
	                 (const struct timespec[]){{.tv_sec = ended}, {.tv_sec = ended}}, 0);
}

static struct run *make(struct files *f)
{
	struct run *r = calloc(1, sizeof(*r));

	r->now = 10000 * USEC_PER_SEC;
	r->files = f;
	r->node.ec2 = EC2_YES;
	r->node.registered = YES;
	world.uptime = r->now;
	world.realtime = UINT64_C(1787220020) * USEC_PER_SEC;
	put_process(1, "systemd", 1);
	put_file("etc/cni/net.d/10-aws.conflist", "{}");
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

static enum outcome look(struct run *r)
{
	ok(cni_run(r, &tested_ipamd) == 0 && r->ended);
	return fake_find(r, "", "")->outcome;
}

static void test_serving(void)
{
	struct run *r = make(tree_new());
	const struct node *n = &r->node;

	put_process(77, "aws-k8s-agent", 500000);
	put_file(BUNDLE,
	         OCI(",\"WARM_ENI_TARGET=1\",\"ENABLE_PREFIX_DELEGATION=true\"", "v1.22.1"));
	put_log("aws-node", 0, 0);
	world.ports = serving;
	ok(look(r) == OUTCOME_OK && r->n_seen == 1);
	ok(n->cni.known && n->cni.prefix && n->cni.warm_eni == 1 && n->cni.warm_ip == -1);
	ok(strcmp(n->cni_version, "v1.22.1") == 0);
	ok(n->ipamd.at == r->now && n->ipamd.total == 9 && n->ipamd.assigned == 4);
	ok(n->ipamd.served_at == r->now && n->ipamd.began == 5000 * USEC_PER_SEC);
	ok(strcmp(world.remembered, "v1.22.1 PD ENI=1") == 0);
	ok(world.asked == 2);
	later(r, 10);
	ok(look(r) == OUTCOME_OK && world.asked == 1); /* the long answer is a minute's */
	world.woken = true;
	later(r, 1);
	ok(look(r) == OUTCOME_OK && world.asked == 0); /* a pod starts */
	world.woken = false;
	later(r, 61);
	ok(look(r) == OUTCOME_OK && world.asked == 2);

	/* an upgrade: for some seconds nobody, then another */
	drop_file("proc/77/comm");
	world.ports = NULL;
	later(r, 10);
	ok(look(r) == OUTCOME_UNKNOWN);
	put_process(99, "aws-k8s-agent", 1009000);
	put_file(BUNDLE, OCI(",\"WARM_ENI_TARGET=1\"", "v1.23.1"));
	later(r, 10);
	ok(look(r) == OUTCOME_UNKNOWN); /* it starts */
	world.ports = serving;
	later(r, 10);
	ok(look(r) == OUTCOME_OK && fake_judge(r, &tested_ipamd, "changed") == CODE_CniChanged);
	ok(strcmp(n->cni_version, "v1.23.1") == 0 && !n->cni.prefix);
	later(r, 901);
	ok(look(r) == OUTCOME_OK && !fake_find(r, "changed", NULL));
	unmake(r);
}

static void test_absent(void)
{
	struct run *r = make(tree_new());

	ok(look(r) == OUTCOME_UNKNOWN); /* registered just now */
	later(r, 121);
	ok(look(r) == OUTCOME_ABSENT);
	ok(fake_judge(r, &tested_ipamd, "") == CODE_AwsNodeNotRunning);
	r->node.registered = CANNOT_TELL;
	ok(look(r) == OUTCOME_SKIPPED);
	r->node.registered = YES;
	ok(look(r) == OUTCOME_UNKNOWN);
	later(r, 121);
	ok(look(r) == OUTCOME_ABSENT);
	drop_file("etc/cni/net.d/10-aws.conflist");
	put_file("etc/cni/net.d/05-cilium.conflist", "{}");
	ok(look(r) == OUTCOME_SKIPPED && r->n_seen == 1);
	drop_file("etc/cni/net.d/05-cilium.conflist");
	ok(look(r) == OUTCOME_ABSENT);
	put_file("opt/cni/bin/calico", "");
	ok(look(r) == OUTCOME_SKIPPED);
	r->node.hybrid = true;
	ok(look(r) == OUTCOME_SKIPPED);
	unmake(r);

	/* no /proc to see anybody in */
	r = make(tree_new());
	drop_file("proc/1/comm");
	drop_file("proc/1/stat");
	drop_file("proc/1/cgroup");
	drop_file("proc/1");
	r->once = true;
	ok(look(r) == OUTCOME_UNKNOWN);
	put_process(4321, "nodewhy", 900000); /* hidepid=: one sees oneself, and nobody else */
	ok(look(r) == OUTCOME_UNKNOWN);
	unmake(r);
}

static void test_silent(void)
{
	struct run *r = make(tree_new());
	static const struct fake_port hung[] = {{50051, OUTCOME_TIMEOUT, HTTP_WAITING, 0, NULL},
	                                        {61679, OUTCOME_TIMEOUT, HTTP_WAITING, 0, NULL},
	                                        {0, 0, 0, 0, NULL}};

	put_process(77, "aws-k8s-agent", 990000); /* 100 s ago */
	ok(look(r) == OUTCOME_REFUSED);
	ok(fake_judge(r, &tested_ipamd, "") == CODE_IpamdNotServing);
	ok(evidence_number(fake_find(r, "", ""), "alive_s", 0) == 100);
	world.ports = hung;
	ok(look(r) == OUTCOME_TIMEOUT);
	ok(fake_judge(r, &tested_ipamd, "") == CODE_IpamdNotServing);
	world.ports = serving;
	ok(look(r) == OUTCOME_OK && fake_judge(r, &tested_ipamd, "") == CODE_NONE);
	unmake(r);

	r = make(tree_new());
	put_process(77, "aws-k8s-agent", 995000); /* 50 s ago */
	ok(look(r) == OUTCOME_UNKNOWN);
	unmake(r);
}

/* From 1.23 on: a socket that only root may connect to. */
static void test_socket(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct run *r = make(tree_new());
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	put_process(77, "aws-k8s-agent", 500000);
	put_file("var/run/aws-node/ipam.json", "{}");
	(void) text_format(a.sun_path, sizeof(a.sun_path), "%s/var/run/aws-node/ipamd.sock",
	                   world.base);
	ok(bind(fd, (struct sockaddr *) &a, sizeof(a)) == 0);
	world.grpc = OUTCOME_OK;
	ok(look(r) == OUTCOME_OK);
	world.grpc = OUTCOME_DENIED;
	later(r, 200);
	ok(look(r) == OUTCOME_REFUSED);
	put_file("proc/1/net/unix",
	         "Num RefCount Protocol Flags Type St Inode Path\n"
	         "0: 00000003 00000000 00000000 0001 03 12 /var/run/aws-node/ipamd.sock\n");
	ok(look(r) == OUTCOME_REFUSED);
	put_file("proc/1/net/unix",
	         "0: 00000002 00000000 00010000 0001 01 12 /var/run/aws-node/ipamd.sock\n");
	ok(look(r) == OUTCOME_OK);
	(void) close(fd);
	unmake(r);
}

static void test_loop(void)
{
	static const char *const lines[] = {
		"\"Probe failed\" probeType=\"Liveness\" pod=\"kube-system/aws-node-x7k2p\"",
		"\"Probe failed\" probeType=\"Liveness\" pod=\"kube-system/aws-node-x7k2p\"",
		"Container aws-node failed liveness probe, will be restarted", NULL};
	static const char *const other[] = {
		"\"Probe failed\" probeType=\"Readiness\" pod=\"kube-system/aws-node-x7k2p\"",
		NULL};
	static const uint8_t list[] = "\x0a\x09\x0a\x03"
				      "abc\x30\x02\x38\x05";
	static const uint8_t killed[] = "\x0a\x05\x18\x02\x38\x89\x01";
	static const uint8_t oom[] = "\x0a\x10\x18\x02\x38\x89\x01\x52\x09OOMKilled";
	static const struct fake_cri old_runtime[] = {
		{"/runtime.v1alpha2.RuntimeService/ListContainers", list, sizeof(list) - 1},
		{"/runtime.v1alpha2.RuntimeService/ContainerStatus", killed, sizeof(killed) - 1},
		{NULL, NULL, 0}};
	static const struct fake_cri runtime[] = {
		{"/runtime.v1.RuntimeService/ListContainers", list, sizeof(list) - 1},
		{"/runtime.v1.RuntimeService/ContainerStatus", oom, sizeof(oom) - 1},
		{NULL, NULL, 0}};
	struct run *r = make(tree_new());
	int64_t now = (int64_t) (world.realtime / USEC_PER_SEC);

	put_log("aws-node", 16, now - 200);
	put_log("aws-node", 17, now - 30);
	world.lines = other;
	ok(look(r) == OUTCOME_REFUSED);
	ok(fake_judge(r, &tested_ipamd, "container") == CODE_AwsNodeCrashLooping);
	ok(evidence_number(fake_find(r, "container", NULL), "restarts", 0) == 17);
	ok(!fake_find(r, "probe", NULL));
	world.lines = lines;
	ok(look(r) == OUTCOME_REFUSED);
	ok(fake_judge(r, &tested_ipamd, "probe") == CODE_AwsNodeProbeKilled);
	/* how it ended, by a runtime of the old version and of the new */
	ok(evidence_number(fake_find(r, "container", NULL), "exit_code", -1) == -1);
	world.cri = old_runtime;
	ok(look(r) == OUTCOME_REFUSED);
	ok(evidence_number(fake_find(r, "probe", NULL), "exit_code", -1) == 137);
	world.cri = runtime;
	ok(look(r) == OUTCOME_REFUSED && !fake_find(r, "probe", NULL)); /* it was its memory */
	ok(evidence_number(fake_find(r, "container", NULL), "exit_code", -1) == 137);
	ok(fake_judge(r, &tested_ipamd, "container") == CODE_AwsNodeCrashLooping);
	world.cri = NULL;
	put_file("var/log/aws-routed-eni/ipamd.log", "{\"level\":\"error\",\"msg\":\"x\"}\n");
	ok(look(r) == OUTCOME_REFUSED && !fake_find(r, "probe", NULL)); /* the log says why */
	ok(strcmp(evidence_get_text(fake_find(r, "container", NULL), "error"), "x") == 0);
	/* it comes to serve */
	put_process(77, "aws-k8s-agent", 999900);
	world.ports = serving;
	ok(look(r) == OUTCOME_OK && !fake_find(r, "container", NULL));
	unmake(r);

	/* restarts of long ago are none of today */
	r = make(tree_new());
	put_log("aws-node", 3, now - 86400 * 30);
	put_log("aws-node", 4, now - 5);
	ok(look(r) == OUTCOME_UNKNOWN && r->n_seen == 1);
	/* but those that are seen to follow one another are, while each is young */
	for (int i = 5; i < 8; i++) {
		later(r, 120);
		put_process(77, "aws-k8s-agent", world.uptime / TICK - 200);
		put_log("aws-node", i, now - 86400);
		(void) look(r);
	}
	ok(fake_judge(r, &tested_ipamd, "container") == CODE_AwsNodeCrashLooping);
	unmake(r);
}

static void test_agent(void)
{
	struct run *r = make(tree_new());
	int64_t now = (int64_t) (world.realtime / USEC_PER_SEC);
	static const struct fake_port with_agent[] = {
		{50051, OUTCOME_MALFORMED, HTTP_WAITING, 0, NULL},
		{8163, OUTCOME_OK, HTTP_DONE, 200, "ok"},
		{0, 0, 0, 0, NULL}};

	put_process(77, "aws-k8s-agent", 500000);
	world.ports = serving;
	put_log("aws-node", 0, now);
	put_log("aws-eks-nodeagent", 13, now - 200);
	put_log("aws-eks-nodeagent", 14, now - 20);
	put_file("proc/1/mountinfo", "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n");
	ok(look(r) == OUTCOME_OK);
	ok(fake_judge(r, &tested_ipamd, "nodeagent") == CODE_NetworkPolicyAgentFailing);
	ok(evidence_number(fake_find(r, "nodeagent", NULL), "bpffs", -1) == 0);
	put_file("proc/1/mountinfo", "1 0 0:1 / /sys/fs/bpf rw shared:9 - bpf bpf rw\n");
	ok(look(r) == OUTCOME_OK);
	ok(evidence_number(fake_find(r, "nodeagent", NULL), "bpffs", -1) == 1);
	world.ports = with_agent;
	ok(look(r) == OUTCOME_OK && fake_judge(r, &tested_ipamd, "nodeagent") == CODE_NONE);
	unmake(r);
}

static void test_identity(void)
{
	struct run *r = make(tree_new());
	static const struct fake_port agent[] = {{80, OUTCOME_OK, HTTP_DONE, 400, ""},
	                                         {0, 0, 0, 0, NULL}};

	put_process(77, "aws-k8s-agent", 500000);
	put_file(BUNDLE, OCI(",\"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://169.254.170.23/v1/"
	                     "credentials\"",
	                     "v1.23.1"));
	ok(look(r) == OUTCOME_REFUSED);
	ok(fake_judge(r, &tested_ipamd, "identity") == CODE_CniIdentityUnreachable);
	world.ports = agent;
	ok(look(r) == OUTCOME_REFUSED && fake_judge(r, &tested_ipamd, "identity") == CODE_NONE);
	for (size_t i = 0; i < r->n_seen; i++) /* nothing of the environment but what is listed */
		ok(!memmem(&r->seen[i], sizeof(r->seen[i]), "hush", 4));
	unmake(r);
}

static void date_conflist(int64_t before_boot)
{
	struct timespec t = {.tv_sec = (int64_t) ((world.realtime - world.uptime) / USEC_PER_SEC) -
	                               before_boot};
	char path[256];

	(void) text_format(path, sizeof(path), "%s/etc/cni/net.d/10-aws.conflist", world.base);
	ok(utimensat(AT_FDCWD, path, (const struct timespec[]){t, t}, 0) == 0);
}

/* The configuration of the boot before makes a node look ready that is not. */
static void test_left_over(void)
{
	struct run *r = make(tree_new());
	const struct observation *o;

	/* of this boot, as far as the wall clock can be trusted */
	date_conflist(0);
	(void) look(r);
	later(r, 301);
	ok(look(r) == OUTCOME_ABSENT && !fake_find(r, "left-over", NULL));
	date_conflist(60);
	ok(look(r) == OUTCOME_ABSENT && !fake_find(r, "left-over", NULL));
	date_conflist(7200);
	ok(look(r) == OUTCOME_ABSENT);
	o = fake_find(r, "left-over", "/etc/cni/net.d/10-aws.conflist");
	ok(o && o->outcome == OUTCOME_EXPIRED && evidence_number(o, "older_s", 0) == 7200);
	ok(fake_judge(r, &tested_ipamd, "left-over") == CODE_CniConfigStale);
	/* aws-node starts, and may take its time */
	put_process(77, "aws-k8s-agent", world.uptime / TICK - 2000);
	ok(look(r) == OUTCOME_UNKNOWN);
	ok(fake_judge(r, &tested_ipamd, "left-over") == CODE_NONE);
	world.ports = serving;
	ok(look(r) == OUTCOME_OK && !fake_find(r, "left-over", NULL));
	/* it has served in this boot, whatever the file's date */
	drop_file("proc/77/comm");
	world.ports = NULL;
	(void) look(r);
	later(r, 400);
	ok(look(r) == OUTCOME_ABSENT && !fake_find(r, "left-over", NULL));
	unmake(r);

	/* the first minutes of a boot, and a node that has not joined */
	r = make(tree_new());
	world.uptime = 299 * USEC_PER_SEC;
	date_conflist(7200);
	r->once = true;
	(void) look(r);
	ok(fake_judge(r, &tested_ipamd, "left-over") == CODE_NONE);
	world.uptime = 3000 * USEC_PER_SEC;
	date_conflist(7200);
	ok(look(r) == OUTCOME_ABSENT);
	ok(fake_judge(r, &tested_ipamd, "left-over") == CODE_CniConfigStale);
	r->node.registered = NO;
	ok(look(r) == OUTCOME_SKIPPED);
	ok(fake_judge(r, &tested_ipamd, "left-over") == CODE_NONE);
	unmake(r);
}

/* A check has one look: whether the node is registered may be learnt a moment later. */
static void test_absent_at_once(void)
{
	struct run *r = make(tree_new());

	put_file("proc/self/stat", "1 (x) S\n");
	put_process(77, "bash", 500000);
	r->once = true;
	r->node.registered = CANNOT_TELL;
	timers = 0;
	registered_after = 3;
	ok(look(r) == OUTCOME_ABSENT && timers == 3);
	ok(fake_judge(r, &tested_ipamd, "") == CODE_AwsNodeNotRunning);
	r->node.registered = CANNOT_TELL;
	timers = registered_after = 0;
	ok(look(r) == OUTCOME_SKIPPED && timers == 1500 / 20);
	r->node.registered = NO;
	timers = 0;
	ok(look(r) == OUTCOME_SKIPPED && timers == 0);
	unmake(r);
}

int main(void)
{
	test_absent_at_once();
	test_serving();
	test_absent();
	test_silent();
	test_socket();
	test_loop();
	test_agent();
	test_identity();
	test_left_over();
	return done();
}
