/* SPDX-License-Identifier: Apache-2.0 */
#include "../fakerun.h"

#include "../../probes/limits.c"

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

static int max_pods(struct run *r)
{
	return fake_run(r, &tested_limits) == 0 && r->ended ? r->node.network.max_pods : -2;
}

static void test_max_pods(struct run *r)
{
	ok(max_pods(r) == -1);
	put("/etc/kubernetes/kubelet/kubelet-config.json", "{\"maxPods\": 17}"); /* AL2 */
	ok(max_pods(r) == 17);
	put("/etc/kubernetes/kubelet/config.json", "{\"kind\": \"KubeletConfiguration\"}");
	ok(max_pods(r) == 110);
	put("/etc/kubernetes/kubelet/config.json", "{\"maxPods\": 29}");
	ok(max_pods(r) == 29);
	put("/etc/kubernetes/kubelet/config.json.d/50-b.conf", "{\"maxPods\": 50}");
	put("/etc/kubernetes/kubelet/config.json.d/40-a.conf", "{\"maxPods\": 40}");
	put("/etc/kubernetes/kubelet/config.json.d/60-c.txt", "{\"maxPods\": 60}");
	put("/etc/kubernetes/kubelet/config.json.d/70-d.conf", "{\"maxPods\": -1}");
	put("/etc/kubernetes/kubelet/config.json.d/80-e.conf", "{\"maxPods\": \"9\"");
	ok(max_pods(r) == 50);
	put("/etc/eks/kubelet/environment", "NODEADM_KUBELET_ARGS=\"--x=1 --max-pods=58 --y\"\n");
	ok(max_pods(r) == 58);
	ok(strcmp(evidence_get_text(fake_find(r, "", ""), "max_pods_from"),
	          "/etc/eks/kubelet/environment") == 0);
	put("/etc/eks/kubelet/environment",
	    "NODEADM_KUBELET_ARGS=\"--max-pods-x=7 --max-pods=99999999999999 --max-pods=\"\n");
	ok(max_pods(r) == 50);
}

static void test_types(struct run *r)
{
	struct network *n = &r->node.network;
	const struct observation *o;

	ok(fake_run(r, &tested_limits) == 0 && fake_find(r, "", "")->outcome == OUTCOME_OK);
	ok(n->enis_max == 3 && n->ipv4_per_eni == 10 && n->ips_max == 27 &&
	   n->max_pods_by_type == 29);
	ok(n->limits_source[0]);
	n->prefix_mode = true;
	ok(fake_run(r, &tested_limits) == 0 && n->ips_max == 432 && n->max_pods_by_type == 434);
	n->ipv6 = true;
	ok(fake_run(r, &tested_limits) == 0 && n->ips_max == -1);
	n->prefix_mode = n->ipv6 = false;
	strcpy(r->node.instance_type, "p5.48xlarge");
	ok(fake_run(r, &tested_limits) == 0 && n->enis_max == 64 && n->max_pods_by_type == 100);
	ok(fake_judge(r, &tested_limits, "") == CODE_NONE);

	strcpy(r->node.instance_type, "m99.colossal");
	ok(fake_run(r, &tested_limits) == 0);
	ok(fake_judge(r, &tested_limits, "") == CODE_LimitsUnknown);
	ok(n->enis_max == -1 && n->ipv4_per_eni == -1 && n->ips_max == -1 &&
	   n->max_pods_by_type == -1 && n->max_pods == 50 && !n->limits_source[0]);
	r->node.instance_type[0] = 0;
	ok(fake_run(r, &tested_limits) == 0);
	o = fake_find(r, "", "");
	ok(o->outcome == OUTCOME_UNKNOWN && fake_judge(r, &tested_limits, "") == CODE_NONE);
}

int main(void)
{
	struct run *r = calloc(1, sizeof(*r));
	struct files *f = NULL;

	(void) text_format(base, sizeof(base), "/tmp/limits-test-XXXXXX");
	if (!r || !mkdtemp(base) || files_new(&f, base) < 0)
		return 1;
	r->files = f;
	strcpy(r->node.instance_type, "m5.large");
	test_max_pods(r);
	test_types(r);
	fake_free(r);
	free(r);
	files_free(f);
	(void) nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return done();
}
