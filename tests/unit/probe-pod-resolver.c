/* SPDX-License-Identifier: Apache-2.0 */
/* What kubelet hands to pods, by its configuration, its arguments and its default. */
#define probe_pod_resolver tested_pod_resolver

#include "../fakerun.h"

#include "../../probes/pod_resolver.c"

#include <ftw.h>

#include "../tap.h"

static char base[64];

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

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
	f = fopen(full, "we");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		printf("# cannot write %s\n", full);
}

/* The host has resolved a name, so long ago. */
static void resolves(struct run *r, struct endpoint *e, usec_t ago)
{
	*e = (struct endpoint){.n = 1, .resolved_at = r->now - ago};
}

static bool says(struct run *r, enum outcome want, enum code code)
{
	const struct observation *o;

	if (fake_run(r, &tested_pod_resolver) < 0 || !r->ended || r->n_seen != 1)
		return false;
	o = &r->seen[0];
	if (o->outcome != want)
		printf("# %s: %s\n", outcome_name(o->outcome), o->detail);
	return o->outcome == want && fake_judge(r, &tested_pod_resolver, "") == code;
}

#define IS_LOOP(r)  says(r, OUTCOME_FAILED, CODE_PodResolverLoop)
#define IS_SOUND(r) says(r, OUTCOME_OK, CODE_NONE)

static bool summary_is(struct run *r, const char *want)
{
	struct words w = {{0}};

	(void) tested_pod_resolver.judge(&r->seen[0], &w);
	if (strcmp(w.summary, want) != 0)
		printf("# %s\n", w.summary);
	return strcmp(w.summary, want) == 0;
}

static void test_places(struct run *r)
{
	put("/etc/resolv.conf", "nameserver 127.0.0.53\noptions edns0\n");
	put("/run/systemd/resolve/resolv.conf", "nameserver 10.0.0.2\n");
	ok(says(r, OUTCOME_SKIPPED, CODE_NONE)); /* no kubelet */
	put("/etc/kubernetes/kubelet/config", "kind: KubeletConfiguration\n");
	ok(IS_LOOP(r));
	ok(summary_is(r, "pods are handed /etc/resolv.conf (kubelet's default), which names only "
	                 "127.0.0.53, there the pod itself; the host resolves"));
	put("/etc/kubernetes/kubelet/config", "resolvConf: /run/systemd/resolve/resolv.conf\n");
	ok(IS_SOUND(r));
	put("/etc/kubernetes/kubelet/kubelet-config.json", "{}"); /* AL2 */
	ok(IS_LOOP(r));
	put("/etc/kubernetes/kubelet/config.json",
	    "{\"resolvConf\": \"/run/systemd/resolve/resolv.conf\"}");
	ok(IS_SOUND(r));
	put("/etc/kubernetes/kubelet/config.json.d/50-user.conf",
	    "{\"resolvConf\": \"/etc/resolv.conf\"}");
	ok(IS_LOOP(r) && strstr(evidence_get_text(&r->seen[0], "from"), "50-user.conf"));
	put("/etc/eks/kubelet/environment", "NODEADM_KUBELET_ARGS=\"--node-ip=10.0.1.5 "
	                                    "--resolv-conf=/run/systemd/resolve/resolv.conf\"\n");
	ok(IS_SOUND(r));
	ok(strcmp(evidence_get_text(&r->seen[0], "from"), "/etc/eks/kubelet/environment") == 0);
	put("/etc/eks/kubelet/environment", "NODEADM_KUBELET_ARGS=\"--resolv-conf=\"\n");
	ok(says(r, OUTCOME_SKIPPED, CODE_NONE)); /* none at all is what somebody wants */
	put("/etc/eks/kubelet/environment", "NODEADM_KUBELET_ARGS=\"--resolv-conf=/gone\"\n");
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && r->seen[0].code == ENOENT);
	put("/etc/eks/kubelet/environment", "NODEADM_KUBELET_ARGS=\"--resolv-conf=etc/x\"\n");
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && r->seen[0].code == EINVAL);
	put("/etc/eks/kubelet/environment", "");
}

static void test_servers(struct run *r)
{
	static const struct {
		const char *text;
		enum outcome outcome;
	} table[] = {
		{"nameserver 127.0.0.53\nnameserver 10.0.0.2\n", OUTCOME_OK},
		{"nameserver 10.0.0.2\nnameserver 127.0.0.1\n", OUTCOME_OK},
		{"nameserver 169.254.20.10\n", OUTCOME_OK}, /* NodeLocal DNSCache */
		{"nameserver 169.254.169.253\n", OUTCOME_OK},
		{"nameserver 127.0.0.1\nnameserver ::1\n", OUTCOME_FAILED},
		{"nameserver ::1\n", OUTCOME_FAILED},
		{"# nothing\n", OUTCOME_SKIPPED},
		{"nameserver nobody\n", OUTCOME_SKIPPED},
	};

	for (size_t i = 0; i < ELEMENTS(table); i++) {
		put("/etc/resolv.conf", table[i].text);
		ok(says(r, table[i].outcome,
		        table[i].outcome == OUTCOME_FAILED ? CODE_PodResolverLoop : CODE_NONE));
	}
}

/* A stub that is dead for the host as well is another finding. */
static void test_host(struct run *r)
{
	put("/etc/resolv.conf", "nameserver 127.0.0.53\n");
	resolves(r, &r->node.endpoints[SERVICE_EC2], fresh);
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	resolves(r, &r->node.apiserver, 0);
	ok(IS_LOOP(r)); /* a hybrid node has no other name to resolve */
	r->node.apiserver.literal = true;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	resolves(r, &r->node.endpoints[SERVICE_S3], fresh - 1);
	ok(IS_LOOP(r));
	r->node.endpoints[SERVICE_S3].n = 0;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
}

int main(void)
{
	struct run *r = calloc(1, sizeof(*r));
	struct files *f = NULL;

	(void) text_format(base, sizeof(base), "/tmp/pod-resolver-XXXXXX");
	if (!r || !mkdtemp(base) || files_new(&f, base) < 0)
		return 1;
	r->files = f;
	r->now = 1000 * USEC_PER_SEC;
	resolves(r, &r->node.endpoints[SERVICE_EC2], 5 * USEC_PER_SEC);
	test_places(r);
	test_servers(r);
	test_host(r);
	fake_free(r);
	free(r);
	files_free(f);
	(void) nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return done();
}
