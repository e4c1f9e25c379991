/* SPDX-License-Identifier: Apache-2.0 */
/* Processor time of a look of the podnet probe at the pods of this network namespace, which
 * netlink-pods.sh has made: each pod's rules, route and link beside ipamd's checkpoint. Calm: what
 * was read before stands. Changed: the checkpoint was written anew, as with every pod that starts.
 * The kernel's tables are in hand: their reading is netlink.c's figure. Prints one line. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "clock.h"
#include "run.h"

enum { BATCHES = 10, LOOKS = 20 };

static const char checkpoint[] = "run/aws-node/ipam.json";

struct seen {
	size_t observations;
	int64_t pods, missing;
};

static void on_done(const struct run_result *result, void *userdata)
{
	struct seen *s = userdata;

	s->observations = result->n;
	for (size_t i = 0; i < result->n; i++) {
		const struct observation *o = &result->observations[i];

		if (strcmp(o->aspect, "rules") != 0)
			continue;
		s->pods = evidence_number(o, "pod_ips", -1);
		s->missing = evidence_number(o, "missing_512", -1) +
		             evidence_number(o, "missing_routes", -1);
	}
}

/* Every pod of the kernel's rules, as ipamd writes them. */
static int write_checkpoint(const char *root, const struct net *net)
{
	char path[256], text[ADDRESS_TEXT_MAX];
	bool first = true;
	FILE *f;

	(void) text_format(path, sizeof(path), "%s/run", root);
	(void) mkdir(path, 0755);
	(void) text_format(path, sizeof(path), "%s/run/aws-node", root);
	(void) mkdir(path, 0755);
	(void) text_format(path, sizeof(path), "%s/%s", root, checkpoint);
	f = fopen(path, "we");
	if (!f)
		return -errno;
	(void) fputs("{\"version\":\"vpc-cni-ipam/1\",\"allocations\":[", f);
	for (size_t i = 0; i < net->n_rules; i++) {
		const struct net_rule *u = &net->rules[i];

		if (u->priority != 512 || u->dst_len != 32)
			continue;
		(void) address_format(&u->dst, text);
		(void) fprintf(f,
		               "%s{\"networkName\":\"aws-cni\",\"containerID\":\"%064zx\","
		               "\"ifName\":\"eth0\",\"ipv4\":\"%s\",\"allocationTimestamp\":"
		               "1700000000000000000,\"metadata\":{\"k8sPodNamespace\":\"default\","
		               "\"k8sPodName\":\"pod-%zu\",\"interfacesCount\":1}}",
		               first ? "" : ",", i, text, i);
		first = false;
	}
	(void) fputs("]}", f);
	return fclose(f) == 0 ? 0 : -errno;
}

static int touch(const char *root)
{
	char path[256];

	(void) text_format(path, sizeof(path), "%s/%s", root, checkpoint);
	return utimensat(AT_FDCWD, path, NULL, 0) < 0 ? -errno : 0;
}

/* What else runs on the machine only ever adds: so the least of several batches. */
static int measure(struct run_context *c, void *memory, const char *changed, struct seen *seen,
                   usec_t *ret)
{
	const struct probe *p = probe_by_name("podnet");
	struct run *run = NULL;
	int r = 0;

	*ret = USEC_INFINITY;
	for (int batch = 0; batch < BATCHES && r == 0; batch++) {
		usec_t spent = 0;

		for (int i = 0; i < LOOKS && r == 0; i++) {
			usec_t before;

			if (changed)
				r = touch(changed);
			before = clock_cpu();
			if (r == 0)
				r = run_new(&run, c, p, 0, memory, p->timeout, false, CODE_NONE,
				            on_done, seen);
			spent += clock_cpu() - before;
			if (run) /* it waits for something that is not there in a bench */
				r = -EINPROGRESS;
			run = run_free(run);
		}
		if (spent / LOOKS < *ret)
			*ret = spent / LOOKS;
	}
	return r;
}

static int measure_all(struct run_context *c, const char *root, const struct probe *p)
{
	void *memory = calloc(1, p->memory_size);
	usec_t calm = 0, changed = 0;
	struct seen seen = {0};
	int r = memory ? 0 : -ENOMEM;

	if (r == 0)
		r = measure(c, memory, root, &seen, &changed);
	if (r == 0)
		r = measure(c, memory, NULL, &seen, &calm);
	if (r == 0)
		printf("compared=%lld missing=%lld us_calm=%llu us_changed=%llu\n",
		       (long long) seen.pods, (long long) seen.missing, (unsigned long long) calm,
		       (unsigned long long) changed);
	free(memory);
	return r;
}

int main(int argc, char *argv[])
{
	struct run_context *c = calloc(1, sizeof(*c));
	char root[] = "/tmp/nodewhy-podnet-XXXXXX", path[256];
	const struct net *net = NULL;
	struct files *files = NULL;
	sd_event *e = NULL;
	int r;

	if (!c || !mkdtemp(root) || files_new(&files, root) < 0)
		return 1;
	r = sd_event_new(&e);
	c->event = e;
	c->files = files;
	c->node.ec2 = EC2_YES;
	c->uptime_offset = INT64_C(30) * 86400 * 1000000;
	if (r >= 0)
		r = netlink_new(&c->netlink, e, NULL, NULL);
	if (r == 0)
		r = netlink_snapshot(c->netlink, clock_boottime(), USEC_INFINITY, &net);
	if (r == 0)
		r = write_checkpoint(root, net);
	if (r == 0)
		r = measure_all(c, root, probe_by_name("podnet"));
	if (r < 0)
		(void) fprintf(stderr, "podnet: %s\n", strerror(-r));
	netlink_free(c->netlink);
	sd_event_unref(e);
	files_free(files);
	free(c);
	(void) text_format(path, sizeof(path), "%s/%s", root, checkpoint);
	(void) unlink(path);
	(void) text_format(path, sizeof(path), "%s/run/aws-node", root);
	(void) rmdir(path);
	(void) text_format(path, sizeof(path), "%s/run", root);
	(void) rmdir(path);
	(void) rmdir(root);
	return r < 0 ? 1 : 0;
}
