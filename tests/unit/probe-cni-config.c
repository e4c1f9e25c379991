/* SPDX-License-Identifier: Apache-2.0 */
#define run_uptime fake_uptime
#define run_timer  fake_timer
#include "../fakerun.h"

usec_t fake_uptime(const struct run *r)
{
	return r->now; /* no other time has passed */
}

static unsigned timers, registered_after;

/* It runs out at once; what is learnt meanwhile is learnt then. */
int fake_timer(struct run *r, usec_t after, run_timer_t done_cb, uintptr_t tag)
{
	if (++timers == registered_after) {
		r->node.registered = YES;
		r->node.registered_at = r->now - 20 * USEC_PER_SEC;
	}
	done_cb(r, tag);
	return 0;
}

#include "../../probes/cni_config.c"

#include <ftw.h>

#include "../tap.h"

static char base[64];

static const char aws[] = "{\"cniVersion\":\"0.4.0\",\"name\":\"aws-cni\",\"plugins\":[{\"type\":"
			  "\"aws-cni\"},{\"type\":\"egress-cni\"},{\"type\":\"portmap\"}]}";

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

/* Makes the directories on the way, as mkdir -p. */
static void put(const char *path, const char *text, mode_t mode)
{
	char full[512];
	FILE *f;

	(void) text_format(full, sizeof(full), "%s%s", base, path);
	for (char *p = full + strlen(base) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		(void) mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "we");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0 || chmod(full, mode) < 0)
		printf("# cannot write %s\n", full);
}

static void drop(const char *path)
{
	char full[512];

	(void) text_format(full, sizeof(full), "%s%s", base, path);
	(void) nftw(full, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void put_plugins(const char *dir)
{
	static const char *const names[] = {"aws-cni", "egress-cni", "portmap"};
	char path[256];

	for (size_t i = 0; i < ELEMENTS(names); i++) {
		(void) text_format(path, sizeof(path), "%s/%s", dir, names[i]);
		put(path, "#!/bin/sh\n", 0755);
	}
}

/* The codes of the three observations, or CODE_NONE. */
static bool says(struct run *r, enum code config, enum code binary, enum code dir)
{
	enum code a, b, c;

	if (fake_run(r, &tested_cni_config) < 0 || !r->ended || r->n_seen == 0)
		return false;
	a = fake_judge(r, &tested_cni_config, "config");
	b = fake_judge(r, &tested_cni_config, "binary");
	c = fake_judge(r, &tested_cni_config, "dir");
	if (a == config && b == binary && c == dir)
		return true;
	printf("# got %d %d %d\n", a, b, c);
	return false;
}

#define CONFLIST "/etc/cni/net.d/10-aws.conflist"

static void test_config(struct run *r)
{
	const struct observation *o;

	/* nothing is scheduled to a node that is not set up, and a while passes until it is */
	r->node.ec2 = EC2_YES;
	r->now = 299 * USEC_PER_SEC; /* the ledger holds it */
	ok(says(r, CODE_CniConfigMissing, CODE_NONE, CODE_NONE));
	r->now = 900 * USEC_PER_SEC;
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	ok(fake_find(r, "config", "")->outcome == OUTCOME_SKIPPED);
	r->node.kubeconfig_present = true;
	r->node.registered = NO;
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	r->node.registered = CANNOT_TELL;
	r->now += 299 * USEC_PER_SEC;
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	r->node.registered = YES;
	r->node.registered_at = r->now;
	r->now += 2 * USEC_PER_SEC;
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	r->now += 298 * USEC_PER_SEC;
	ok(says(r, CODE_CniConfigMissing, CODE_NONE,
	        CODE_NONE)); /* a directory that is not there */
	put(CONFLIST, aws, 0644);
	ok(says(r, CODE_NONE, CODE_CniBinaryMissing, CODE_NONE));
	put_plugins("/opt/cni/bin");
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	ok(fake_find(r, "config", "")->outcome == OUTCOME_OK);
	ok(fake_find(r, "binary", "")->outcome == OUTCOME_OK);
	put("/opt/cni/bin/egress-cni", "", 0644);
	ok(says(r, CODE_NONE, CODE_CniBinaryMissing, CODE_NONE));
	ok(fake_find(r, "binary", "egress-cni")->outcome == OUTCOME_DENIED);
	drop("/opt/cni/bin/egress-cni");
	put("/opt/cni/bin/egress-cni/a-directory-is-no-plugin", "", 0755);
	ok(says(r, CODE_NONE, CODE_CniBinaryMissing, CODE_NONE));
	drop("/opt/cni/bin/egress-cni");
	put_plugins("/opt/cni/bin");
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));

	put(CONFLIST, "{\n\"name\": \"aws-cni\",\n\"plugins\": [\n", 0644);
	ok(says(r, CODE_CniConfigInvalid, CODE_NONE, CODE_NONE));
	o = fake_find(r, "config", CONFLIST);
	ok(o && o->outcome == OUTCOME_MALFORMED && o->code >= 3);
	put(CONFLIST, "", 0644);
	ok(says(r, CODE_CniConfigInvalid, CODE_NONE, CODE_NONE));
	put(CONFLIST, "{\"name\":\"x\",\"plugins\":[]}", 0644);
	ok(says(r, CODE_CniConfigInvalid, CODE_NONE, CODE_NONE));
	put(CONFLIST, "{\"name\":\"x\",\"plugins\":[{\"type\":\"../sh\"}]}", 0644);
	ok(says(r, CODE_CniConfigInvalid, CODE_NONE, CODE_NONE));
	put(CONFLIST, "[1]", 0644);
	ok(says(r, CODE_CniConfigInvalid, CODE_NONE, CODE_NONE));
	put(CONFLIST, aws, 0644);
}

/* In a check, what looks at the Node object may be a moment later. */
static void test_waits(struct run *r)
{
	struct memory *m = r->memory;

	drop(CONFLIST);
	m->found = false; /* as of a daemon that has just begun */
	r->now += 900 * USEC_PER_SEC;
	r->once = true;
	r->node.registered = CANNOT_TELL;
	r->node.registered_at = 0;
	registered_after = 5;
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE) && timers == 5);
	ok(fake_find(r, "config", "")->outcome == OUTCOME_SKIPPED);
	r->node.registered = CANNOT_TELL;
	r->node.registered_at = 0;
	registered_after = timers = 0;
	ok(says(r, CODE_CniConfigMissing, CODE_NONE, CODE_NONE) && timers == 1500 / 20);
	r->once = false;
	timers = 0;
	ok(says(r, CODE_CniConfigMissing, CODE_NONE, CODE_NONE) && timers == 0);
	put(CONFLIST, aws, 0644);
}

static void test_order(struct run *r)
{
	put("/etc/cni/net.d/05-old.conf", "{\"name\":\"o\",\"type\":\"weave-net\"}", 0644);
	put("/etc/cni/net.d/00-notes.txt", "not JSON", 0644);
	put("/etc/cni/net.d/00-dir.conf/x", "", 0644);
	ok(says(r, CODE_CniConfigForeign, CODE_NONE, CODE_NONE));
	ok(fake_find(r, "config", "/etc/cni/net.d/05-old.conf") != NULL);
	put("/opt/cni/bin/weave-net", "", 0755);
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE)); /* a whole CNI of another kind is a CNI */
	drop("/opt/cni/bin/weave-net");
	drop("/etc/cni/net.d/05-old.conf");
	put("/etc/cni/net.d/05-chain.conflist",
	    "{\"name\":\"c\",\"plugins\":[{\"type\":\"aws-cni\"},{\"type\":\"cilium-cni\"}]}",
	    0644);
	ok(says(r, CODE_NONE, CODE_CniBinaryMissing, CODE_NONE)); /* ours, with another's plugin */
	drop("/etc/cni/net.d/05-chain.conflist");
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
}

static void test_dirs(struct run *r)
{
	put("/etc/containerd/config.toml",
	    "version = 2\nimports = [\"/etc/containerd/config.d/*.toml\"]\n"
	    "[plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/opt/cni/bin\"\n"
	    "conf_dir = \"/etc/other\"\n",
	    0644);
	ok(says(r, CODE_CniConfigMissing, CODE_NONE, CODE_CniDirMismatch));
	ok(fake_find(r, "dir", "")->layer == LAYER_RUNTIME);
	/* A drop-in says otherwise, and the last of them wins. */
	put("/etc/containerd/config.d/10.toml",
	    "[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/etc/wrong'\n", 0644);
	put("/etc/containerd/config.d/20.toml",
	    "[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/etc/cni/net.d'\n"
	    "bin_dirs = ['/usr/lib/cni']\n",
	    0644);
	ok(says(r, CODE_NONE, CODE_CniBinaryMissing, CODE_CniDirMismatch));
	put("/etc/containerd/config.d/30.toml",
	    "[plugins.'io.containerd.cri.v1.runtime'.cni]\n"
	    "bin_dirs = ['/usr/lib/cni', '/opt/cni/bin']\n",
	    0644);
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	/* Where containerd looks cannot be told: what is not at the default place may be there. */
	drop("/etc/containerd");
	put("/etc/containerd/config.toml/x", "", 0644);
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	drop(CONFLIST);
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	ok(fake_find(r, "config", "")->outcome == OUTCOME_UNKNOWN);
	put(CONFLIST, "{\"name\":\"c\",\"plugins\":[{\"type\":\"nowhere\"}]}", 0644);
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	ok(fake_find(r, "binary", "nowhere")->outcome == OUTCOME_UNKNOWN);
	put(CONFLIST, aws, 0644);
	drop("/etc/containerd");
	/* The reverse: containerd at its defaults, the CNI where kubelet was told. */
	put("/etc/kept/10-aws.conflist", aws, 0644);
	drop(CONFLIST);
	put("/etc/eks/kubelet/environment",
	    "NODEADM_KUBELET_ARGS=\"--cni-conf-dir=/etc/kept --x\"\n", 0644);
	ok(says(r, CODE_CniConfigMissing, CODE_NONE, CODE_CniDirMismatch));
	drop("/etc/eks");
	put("/etc/eks/containerd/containerd-config.toml",
	    "[plugins.cri.cni]\nconf_dir = \"/etc/kept\"\n", 0644);
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE)); /* AL2's place, and version 1 */
	drop("/etc/eks");
	put(CONFLIST, aws, 0644);
}

static void test_not_a_node(struct run *r)
{
	drop("/etc/cni");
	r->node.ec2 = EC2_UNKNOWN;
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	ok(fake_find(r, "config", "")->outcome == OUTCOME_UNKNOWN);
	r->node.ec2 = EC2_NO;
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	ok(fake_find(r, "config", "")->outcome == OUTCOME_SKIPPED);
	put("/usr/bin/kubelet", "", 0755);
	ok(says(r, CODE_CniConfigMissing, CODE_NONE, CODE_NONE));
	r->node.ec2 = EC2_YES;
}

static void test_unreadable(struct run *r)
{
	char full[256];

	put(CONFLIST, aws, 0644);
	drop(CONFLIST);
	(void) text_format(full, sizeof(full), "%s%s", base, CONFLIST);
	ok(mkfifo(full, 0644) == 0); /* neither waits nor is taken for a configuration */
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE));
	ok(fake_find(r, "config", "")->outcome == OUTCOME_UNKNOWN);
}

int main(void)
{
	struct run *r = calloc(1, sizeof(*r));
	struct files *f = NULL;

	(void) text_format(base, sizeof(base), "/tmp/cni-test-XXXXXX");
	if (!r || !mkdtemp(base) || files_new(&f, base) < 0)
		return 1;
	r->files = f;
	r->node.ec2 = EC2_YES;
	test_config(r);
	test_waits(r);
	test_order(r);
	test_dirs(r);
	test_not_a_node(r);
	test_unreadable(r);
	fake_free(r);
	free(r);
	files_free(f);
	(void) nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return done();
}
