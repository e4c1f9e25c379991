/* SPDX-License-Identifier: Apache-2.0 */
#define run_uptime         fake_uptime
#define run_unit           fake_unit
#define run_journal        fake_journal
#define run_from_monotonic fake_from_monotonic
#define probe_bootstrap    tested_bootstrap

#include "../fakerun.h"

#undef run_imds
#define run_imds fake_userdata
int run_imds(struct run *r, const char *path, size_t body_max, bool spare, run_imds_t done_cb,
             uintptr_t tag);

#include "../../probes/bootstrap.c"

#include <ftw.h>

#include "../tap.h"

/* ---- a machine ---- */

static char base[64];
static struct run run;
static usec_t uptime;
static struct unit units[N_UNITS];
static int bus_error;
static struct journal_entry lines[32];
static size_t n_lines, readings;
static struct imds_reply userdata;
static unsigned asked;

static struct {
	run_unit_t unit;
	run_line_t line;
	run_lines_t lines;
	run_imds_t imds;
	uintptr_t tags[N_UNITS];
	size_t n_units;
	char *cursor;
	const char *const *units; /* whose lines */
} calls;

usec_t fake_uptime(const struct run *r)
{
	return uptime;
}

usec_t fake_from_monotonic(const struct run *r, usec_t monotonic)
{
	return monotonic;
}

int fake_unit(struct run *r, const char *unit, usec_t timeout, run_unit_t done_cb, uintptr_t tag)
{
	if (bus_error == -EOPNOTSUPP)
		return bus_error;
	calls.unit = done_cb;
	calls.tags[calls.n_units++] = tag;
	return 0;
}

int fake_journal(struct run *r, const struct journal_query *q,
                 char cursor[static JOURNAL_CURSOR_MAX], run_line_t line, run_lines_t done_cb,
                 uintptr_t tag)
{
	calls.line = line;
	calls.lines = done_cb;
	calls.cursor = cursor;
	calls.units = q->units;
	return 0;
}

int fake_userdata(struct run *r, const char *path, size_t body_max, bool spare, run_imds_t done_cb,
                  uintptr_t tag)
{
	ok(strcmp(path, "/latest/user-data") == 0 && spare);
	calls.imds = done_cb;
	asked++;
	return 0;
}

static void answer_units(void)
{
	size_t n = calls.n_units;

	calls.n_units = 0;
	for (size_t i = 0; i < n; i++) {
		struct bus_reply reply = {.error = bus_error,
		                          .unit = bus_error ? NULL : &units[calls.tags[i]]};

		calls.unit(&run, &reply, calls.tags[i]);
	}
}

/* What was read is not read again: the cursor counts. */
static void answer_journal(void)
{
	run_lines_t done_cb = calls.lines;
	size_t from = (size_t) atoi(calls.cursor);
	struct journal_end end = {0};

	calls.lines = NULL;
	readings++;
	for (size_t i = from; i < n_lines; i++) {
		const char *const *u = calls.units;

		while (*u && strcmp(*u, lines[i].unit) != 0)
			u++;
		if (*u) {
			calls.line(&run, &lines[i], 0);
			end.entries++;
		}
	}
	(void) snprintf(calls.cursor, JOURNAL_CURSOR_MAX, "%zu", n_lines);
	done_cb(&run, &end, 0);
}

static void look(void)
{
	free(run.state);
	run.state = calloc(1, tested_bootstrap.state_size);
	run.ended = false;
	run.n_seen = 0;
	run.now = uptime;
	calls.lines = NULL;
	calls.imds = NULL;
	ok(tested_bootstrap.start(&run) == 0);
	answer_units();
	while (!run.ended && calls.lines)
		answer_journal();
	if (!run.ended && calls.imds)
		calls.imds(&run, &userdata, 0);
	ok(run.ended);
}

static void unit_is(enum unit_id u, const char *active, const char *result, usec_t started)
{
	(void) text_format(units[u].load, sizeof(units[u].load), "loaded");
	(void) text_format(units[u].active, sizeof(units[u].active), "%s", active);
	(void) text_format(units[u].result, sizeof(units[u].result), "%s", result);
	units[u].inactive_exit = started;
	units[u].main_status = strcmp(active, "failed") == 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

static void put(const char *path)
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
	if (!f || fclose(f) != 0)
		printf("# cannot write %s\n", full);
}

/* A machine that has just booted, s seconds ago. */
static void fresh(unsigned s)
{
	struct files *f = NULL;

	files_free((struct files *) run.files);
	(void) nftw(base, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	(void) mkdir(base, 0755);
	fake_free(&run);
	run = (struct run){.memory = calloc(1, tested_bootstrap.memory_size)};
	ok(files_new(&f, base) == 0);
	run.files = f;
	memset(units, 0, sizeof(units));
	for (size_t i = 0; i < N_UNITS; i++)
		(void) text_format(units[i].load, sizeof(units[i].load), "not-found");
	bus_error = 0;
	n_lines = readings = asked = 0;
	uptime = s * USEC_PER_SEC;
	userdata = (struct imds_reply){.step = IMDS_GET,
	                               .http = {.outcome = OUTCOME_OK, .code = 404, .body = ""}};
	put("/etc/eks/release");
}

static void al2023(unsigned s)
{
	fresh(s);
	unit_is(CONFIG, "inactive", "success", 5 * USEC_PER_SEC);
	unit_is(RUN, "inactive", "success", 12 * USEC_PER_SEC);
	unit_is(CLOUD_INIT, "active", "success", 8 * USEC_PER_SEC);
	unit_is(CLOUD_FINAL, "active", "success", 10 * USEC_PER_SEC);
	unit_is(KUBELET, "active", "success", 14 * USEC_PER_SEC);
	units[KUBELET].main_start = 14 * USEC_PER_SEC;
}

static void al2(unsigned s)
{
	fresh(s);
	put("/etc/eks/bootstrap.sh");
	unit_is(CLOUD_INIT, "active", "success", 8 * USEC_PER_SEC);
	unit_is(CLOUD_FINAL, "active", "success", 10 * USEC_PER_SEC);
	unit_is(KUBELET, "inactive", "success", 0);
}

static void config_failed(void)
{
	unit_is(CONFIG, "failed", "exit-code", 5 * USEC_PER_SEC);
	unit_is(RUN, "inactive", "success", 0);
	unit_is(KUBELET, "inactive", "success", 0);
	units[KUBELET].main_start = 0;
}

static void says(enum unit_id u, const char *identifier, usec_t at, const char *text)
{
	lines[n_lines++] = (struct journal_entry){.message = text,
	                                          .len = strlen(text),
	                                          .unit = unit_names[u],
	                                          .identifier = identifier,
	                                          .at = at,
	                                          .priority = 6};
}

static void holds(const char *body)
{
	userdata.http.code = 200;
	userdata.http.body = body;
	userdata.http.body_len = strlen(body);
}

static enum outcome seen_as(const char *aspect)
{
	const struct observation *o = fake_find(&run, aspect, NULL);

	return o ? o->outcome : _OUTCOME_MAX;
}

static const char *words(const char *aspect)
{
	static struct words w;
	const struct observation *o = fake_find(&run, aspect, NULL);

	w.summary[0] = 0;
	if (o)
		(void) tested_bootstrap.judge(o, &w);
	return w.summary;
}

static bool nothing_found(void)
{
	struct words w;
	bool none = true;

	for (size_t i = 0; i < run.n_seen; i++)
		if (tested_bootstrap.judge(&run.seen[i], &w) != CODE_NONE) {
			printf("# %s: %s\n", run.seen[i].aspect, w.summary);
			none = false;
		}
	return none;
}

#define JUDGE(aspect) fake_judge(&run, &tested_bootstrap, aspect)

#define NODE_CONFIG                                                                                \
	"---\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster:\n"            \
	"    name: blue\n    apiServerEndpoint: https://example.com\n"                             \
	"    certificateAuthority: Y2VydGlmaWNhdGU=\n    cidr: 10.100.0.0/16\n"
#define MIME "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n"

/* ---- what is sound ---- */

static void test_sound(void)
{
	al2023(3600);
	run.node.registered = YES;
	look();
	ok(nothing_found() && seen_as("unit") == OUTCOME_OK && seen_as("deadline") == OUTCOME_OK);
	ok(asked == 0 && readings == 0 && !fake_find(&run, "user-data", NULL));
	ok(strcmp(fake_find(&run, "unit", NULL)->subject, "nodeadm-run.service") == 0);

	al2023(20); /* in the midst of it */
	unit_is(CONFIG, "activating", "success", 5 * USEC_PER_SEC);
	unit_is(RUN, "inactive", "success", 0);
	units[KUBELET].main_start = 0;
	look();
	ok(nothing_found() && seen_as("unit") == OUTCOME_OK && asked == 0 && readings == 0);

	al2023(300); /* a long script of the user: nodeadm-run waits for it */
	unit_is(RUN, "inactive", "success", 0);
	unit_is(CLOUD_FINAL, "activating", "success", 10 * USEC_PER_SEC);
	units[KUBELET].main_start = 0;
	holds(NODE_CONFIG);
	look();
	ok(nothing_found());

	al2023(3600); /* somebody ran it again by hand */
	unit_is(RUN, "failed", "exit-code", 3000 * USEC_PER_SEC);
	look();
	ok(nothing_found() && seen_as("unit") == OUTCOME_OK && readings == 0);

	al2(3600); /* a script behind bootstrap.sh failed */
	unit_is(CLOUD_FINAL, "failed", "exit-code", 10 * USEC_PER_SEC);
	units[SNAP].main_start = 30 * USEC_PER_SEC;
	run.node.registered = YES;
	look();
	ok(nothing_found() && asked == 0);

	al2(60); /* cloud-init has ended this moment, kubelet is being started */
	look();
	ok(nothing_found() && asked == 0);
}

static void test_elsewhere(void)
{
	fresh(700); /* Bottlerocket: no such unit */
	unit_is(KUBELET, "active", "success", 14 * USEC_PER_SEC);
	units[KUBELET].main_start = 14 * USEC_PER_SEC;
	run.node.registered = YES;
	look();
	ok(nothing_found() && seen_as("unit") == OUTCOME_SKIPPED && asked == 0);

	fresh(700); /* some instance whose cloud-init fails: it was not made to join */
	unit_is(CLOUD_FINAL, "failed", "exit-code", 10 * USEC_PER_SEC);
	(void) nftw(base, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	look();
	ok(nothing_found() && seen_as("unit") == OUTCOME_SKIPPED);

	al2023(700); /* outside of AWS nobody deletes it */
	run.node.hybrid = true;
	look();
	ok(nothing_found() && !fake_find(&run, "deadline", NULL));

	al2023(700); /* the bus is silent: nothing is known, nothing is found */
	config_failed();
	bus_error = -ETIMEDOUT;
	run.node.registered = YES;
	look();
	ok(nothing_found() && seen_as("unit") == OUTCOME_UNKNOWN && asked == 0);
	bus_error = -EOPNOTSUPP;
	look();
	ok(nothing_found() && seen_as("unit") == OUTCOME_UNKNOWN);
}

/* ---- what is not ---- */

static void test_no_node_config(void)
{
	al2023(100);
	config_failed();
	says(CONFIG, "nodeadm", 6 * USEC_PER_SEC,
	     "{\"level\":\"info\",\"msg\":\"Loaded configuration\",\"config\":{\"spec\":"
	     "{\"cluster\":{}}}}");
	says(CONFIG, "nodeadm", 7 * USEC_PER_SEC,
	     "{\"level\":\"fatal\",\"ts\":1.5,\"caller\":\"x.go:1\",\"msg\":\"Command failed\","
	     "\"error\":\"could not find NodeConfig within UserData\"}");
	says(CONFIG, "systemd", 8 * USEC_PER_SEC,
	     "nodeadm-config.service: Failed with result 'exit-code'.");
	holds(MIME "--//\nContent-Type: text/x-shellscript\n\n#!/bin/sh\necho hello\n--//--\n");
	look();
	ok(JUDGE("user-data") == CODE_UserDataUnusable && JUDGE("unit") == CODE_BootstrapFailed);
	ok(strcmp(words("unit"), "nodeadm-config.service failed: could not find NodeConfig within "
	                         "UserData") == 0);
	ok(strcmp(words("user-data"), "user data of 1 MIME part has neither NodeConfig nor a "
	                              "bootstrap call") == 0);
	look();
	ok(JUDGE("user-data") == CODE_UserDataUnusable);
	ok(asked == 1); /* once a boot */

	al2023(100); /* what AL2 was given */
	config_failed();
	holds("#!/bin/bash\nset -ex\n/etc/eks/bootstrap.sh blue\n");
	look();
	ok(JUDGE("user-data") == CODE_UserDataUnusable && strstr(words("user-data"), "AL2023"));

	al2023(100); /* the same told by the stub alone */
	config_failed();
	says(CLOUD_FINAL, "cloud-init", 9 * USEC_PER_SEC,
	     "ERROR: bootstrap.sh has been removed from AL2023-based EKS AMIs.");
	userdata.http.outcome = OUTCOME_TIMEOUT;
	look();
	ok(JUDGE("user-data") == CODE_UserDataUnusable);
	uptime += 10 * USEC_PER_SEC;
	look();
	ok(asked == 1); /* metadata that is silent is not asked every second */
	uptime += 31 * USEC_PER_SEC;
	look();
	ok(asked == 2);

	al2023(100);
	config_failed(); /* no user data at all */
	look();
	ok(JUDGE("user-data") == CODE_UserDataUnusable &&
	   strstr(words("user-data"), "no user data"));

	al2023(100); /* nodeadm finds another one on the disk */
	config_failed();
	put("/etc/eks/nodeadm.d/10.yaml");
	look();
	ok(JUDGE("user-data") == CODE_NONE && JUDGE("unit") == CODE_BootstrapFailed);
}

static void test_malformed(void)
{
	al2023(100);
	config_failed();
	says(CONFIG, "nodeadm", 7 * USEC_PER_SEC,
	     "{\"level\":\"fatal\",\"msg\":\"Command failed\",\"error\":\"multipart: NextPart: "
	     "EOF\"}");
	holds(MIME "--//\nContent-Type: application/node.eks.aws\n\n" NODE_CONFIG);
	look();
	ok(JUDGE("user-data") == CODE_UserDataUnusable);
	ok(strstr(words("user-data"), "closing MIME boundary"));

	al2023(100); /* a NodeConfig that was read: what failed is something else */
	config_failed();
	says(CONFIG, "nodeadm", 7 * USEC_PER_SEC,
	     "{\"level\":\"fatal\",\"msg\":\"Command failed\",\"error\":\"operation error EC2: "
	     "DescribeInstances, context deadline exceeded\"}");
	holds(NODE_CONFIG);
	look();
	ok(seen_as("user-data") == OUTCOME_OK && JUDGE("user-data") == CODE_NONE);
	ok(JUDGE("unit") == CODE_BootstrapFailed && strstr(words("unit"), "DescribeInstances"));

	al2023(100); /* which lacks the cluster */
	config_failed();
	says(CONFIG, "nodeadm", 7 * USEC_PER_SEC,
	     "{\"level\":\"fatal\",\"msg\":\"Command failed\",\"error\":\"Apiserver endpoint is "
	     "missing in cluster configuration\"}");
	holds("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster:\n"
	      "    name: blue\n    certificateAuthority: \"\"\n");
	look();
	ok(JUDGE("user-data") == CODE_UserDataUnusable);
	ok(strstr(words("user-data"), "without apiServerEndpoint, certificateAuthority, cidr"));

	al2023(100); /* compressed: what it holds is not known */
	config_failed();
	holds("\x1f\x8b\x08");
	look();
	ok(seen_as("user-data") == OUTCOME_UNKNOWN);

	al2023(100); /* it quotes what it could not read */
	config_failed();
	says(CONFIG, "nodeadm", 7 * USEC_PER_SEC,
	     "{\"level\":\"fatal\",\"msg\":\"x\",\"error\":\"Object 'Kind' is missing in "
	     "'export DB=hunter2'\"}");
	holds("export DB=hunter2\n");
	look();
	ok(JUDGE("user-data") == CODE_UserDataUnusable && JUDGE("unit") == CODE_BootstrapFailed);
	for (size_t i = 0; i < run.n_seen; i++)
		ok(!memmem(&run.seen[i], sizeof(run.seen[i]), "hunter2", 7));
	ok(!memmem(run.memory, tested_bootstrap.memory_size, "hunter2", 7));
}

static void test_causes(void)
{
	al2023(100);
	config_failed();
	says(CONFIG, "nodeadm", 6 * USEC_PER_SEC,
	     "DEBUG retrying request EC2/DescribeInstances, attempt 2");
	says(CONFIG, "nodeadm", 7 * USEC_PER_SEC,
	     "{\"level\":\"fatal\",\"msg\":\"Command failed\",\"error\":\"operation error EC2: "
	     "DescribeInstances, https response error StatusCode: 503, RequestID: "
	     "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0, api error RequestLimitExceeded: Request "
	     "limit exceeded.\"}");
	holds(NODE_CONFIG);
	look();
	ok(JUDGE("unit") == CODE_BootstrapThrottled);
	ok(strcmp(words("unit"),
	          "nodeadm-config.service failed: operation error EC2: DescribeInstances, "
	          "StatusCode: 503, api error RequestLimitExceeded: Request limit exceeded.") == 0);

	al2(200);
	unit_is(CLOUD_FINAL, "failed", "exit-code", 10 * USEC_PER_SEC);
	says(CLOUD_FINAL, "cloud-init", 20 * USEC_PER_SEC,
	     "An error occurred (ThrottlingException) when calling the DescribeCluster operation "
	     "(reached max retries: 4): Rate exceeded");
	says(CLOUD_FINAL, "cloud-init", 21 * USEC_PER_SEC, "Exited with error on line 491");
	says(CLOUD_FINAL, "cloud-init", 22 * USEC_PER_SEC,
	     "util.py[WARNING]: Failed running /var/lib/cloud/instance/scripts/part-001 [255]");
	holds("#!/bin/bash\n/etc/eks/bootstrap.sh blue\n");
	look();
	ok(JUDGE("unit") == CODE_BootstrapThrottled && JUDGE("user-data") == CODE_NONE);

	/* a registry that throttles is no EKS or EC2 call; and it was got over, then something
	 * else ended it */
	al2(200);
	unit_is(CLOUD_FINAL, "failed", "exit-code", 10 * USEC_PER_SEC);
	says(CLOUD_FINAL, "cloud-init", 20 * USEC_PER_SEC, "Rate exceeded");
	says(CLOUD_FINAL, "cloud-init", 21 * USEC_PER_SEC,
	     "A dependency job for kubelet.service failed. See 'journalctl -xe' for details.");
	holds("#!/bin/bash\n/etc/eks/bootstrap.sh blue\n");
	look();
	ok(JUDGE("unit") == CODE_BootstrapFailed && strstr(words("unit"), "A dependency job"));

	al2023(100);
	config_failed();
	says(CONFIG, "nodeadm", 7 * USEC_PER_SEC,
	     "{\"level\":\"fatal\",\"msg\":\"x\",\"error\":\"illegal base64 data at input byte "
	     "3\"}");
	holds(NODE_CONFIG);
	look();
	ok(JUDGE("ca") == CODE_ClusterCaInvalid && JUDGE("user-data") == CODE_NONE);

	al2023(100); /* SELinux: systemd could not even start it */
	config_failed();
	says(CONFIG, "(nodeadm)", 7 * USEC_PER_SEC,
	     "nodeadm-config.service: Failed at step EXEC spawning /usr/bin/nodeadm: Permission "
	     "denied");
	says(CONFIG, "systemd", 8 * USEC_PER_SEC,
	     "nodeadm-config.service: Main process exited, code=exited, status=203/EXEC");
	holds(NODE_CONFIG);
	look();
	ok(JUDGE("unit") == CODE_BootstrapFailed);
	ok(strcmp(words("unit"), "nodeadm-config.service failed: Failed at step EXEC spawning "
	                         "/usr/bin/nodeadm: Permission denied") == 0);

	/* no line at all: the result has to do */
	al2023(100);
	config_failed();
	holds(NODE_CONFIG);
	look();
	ok(strcmp(words("unit"), "nodeadm-config.service failed (exit-code, status 1)") == 0);
}

static void test_al2_never_called(void)
{
	al2(200);
	holds("#!/bin/bash\nyum install -y jq\n# /etc/eks/bootstrap.sh blue\n");
	look();
	ok(JUDGE("user-data") == CODE_UserDataUnusable && JUDGE("unit") == CODE_NONE);

	al2(200); /* its own way, which may well lead there */
	holds("#!/bin/bash\ncurl -s https://example.com/join | bash\n");
	look();
	ok(nothing_found() && seen_as("user-data") == OUTCOME_UNKNOWN);

	al2(200); /* what AL2023 is given */
	holds(NODE_CONFIG);
	look();
	ok(JUDGE("user-data") == CODE_UserDataUnusable && strstr(words("user-data"), "no nodeadm"));

	al2(200);
	unit_is(CLOUD_FINAL, "activating", "success", 10 * USEC_PER_SEC);
	look();
	ok(nothing_found());
}

/* ---- over time ---- */

static void test_slow(void)
{
	al2023(400);
	unit_is(CONFIG, "activating", "success", 5 * USEC_PER_SEC);
	unit_is(RUN, "inactive", "success", 0);
	units[KUBELET].main_start = 0;
	holds(NODE_CONFIG);
	for (int i = 0; i < 3; i++)
		says(CONFIG, "nodeadm", (7 + (usec_t) i) * USEC_PER_SEC,
		     "SDK DEBUG retrying request EC2/DescribeInstances, attempt 2");
	look();
	ok(seen_as("unit") == OUTCOME_SLOW && nothing_found());
	ok(evidence_number(fake_find(&run, "unit", NULL), "tries", 0) == 3);
	uptime = 670 * USEC_PER_SEC;
	look();
	ok(JUDGE("unit") == CODE_BootstrapFailed && strstr(words("unit"), "EC2/DescribeInstances"));
	ok(JUDGE("deadline") == CODE_JoinDeadlineNear);
	ok(strstr(words("deadline"), "nodeadm-config.service still runs"));
	ok(evidence_number(fake_find(&run, "unit", NULL), "tries", 0) == 3); /* read once */
}

/* systemd has forgotten kubelet, which it stopped: its own lines tell that it ran. */
static void test_forgotten(void)
{
	al2023(3600);
	unit_is(RUN, "failed", "exit-code", 12 * USEC_PER_SEC);
	unit_is(KUBELET, "inactive", "success", 0);
	units[KUBELET].main_start = 0;
	says(KUBELET, "systemd", 14 * USEC_PER_SEC, "Dependency failed for kubelet.service.");
	look();
	ok(JUDGE("unit") == CODE_BootstrapFailed);
	says(KUBELET, "kubelet", 15 * USEC_PER_SEC, "\"Kubelet version\"");
	look();
	ok(nothing_found() && seen_as("unit") == OUTCOME_OK && asked == 1);
	n_lines = 0; /* rotated away: it is known by now */
	look();
	ok(nothing_found());

	al2(3600); /* made a node by something else than its user data */
	look();
	ok(JUDGE("user-data") == CODE_UserDataUnusable);
	says(KUBELET, "kubelet", 15 * USEC_PER_SEC, "\"Kubelet version\"");
	look();
	ok(nothing_found());

	al2023(3600); /* it was seen to run */
	unit_is(RUN, "failed", "exit-code", 12 * USEC_PER_SEC);
	look();
	unit_is(KUBELET, "inactive", "success", 0);
	units[KUBELET].main_start = 0;
	look();
	ok(nothing_found());
}

/* It was started again and succeeds, or fails for another reason. */
static void test_again(void)
{
	al2023(100);
	config_failed();
	holds(NODE_CONFIG);
	says(CONFIG, "nodeadm", 7 * USEC_PER_SEC,
	     "{\"level\":\"fatal\",\"msg\":\"x\",\"error\":\"RequestLimitExceeded\"}");
	look();
	ok(JUDGE("unit") == CODE_BootstrapThrottled);
	unit_is(CONFIG, "failed", "exit-code", 80 * USEC_PER_SEC);
	look();
	ok(JUDGE("unit") == CODE_BootstrapFailed); /* the line is from before */
	says(CONFIG, "nodeadm", 81 * USEC_PER_SEC,
	     "{\"level\":\"fatal\",\"msg\":\"x\",\"error\":\"no route to host\"}");
	look();
	ok(JUDGE("unit") == CODE_BootstrapFailed && strstr(words("unit"), "no route to host"));
	unit_is(CONFIG, "inactive", "success", 90 * USEC_PER_SEC);
	unit_is(RUN, "inactive", "success", 95 * USEC_PER_SEC);
	units[KUBELET].main_start = 96 * USEC_PER_SEC;
	look();
	ok(nothing_found());
}

static void test_deadline(void)
{
	static const struct {
		unsigned up;
		enum tristate registered, ready;
		bool pods;
		enum code want;
	} rows[] = {
		{599, NO, CANNOT_TELL, false, CODE_NONE},
		{600, NO, CANNOT_TELL, false, CODE_JoinDeadlineNear},
		{600, CANNOT_TELL, CANNOT_TELL, false, CODE_JoinDeadlineNear},
		{600, YES, CANNOT_TELL, false, CODE_NONE},
		{600, CANNOT_TELL, YES, false, CODE_NONE},
		{600, CANNOT_TELL, CANNOT_TELL, true, CODE_NONE},
		{600, NO, NO, true, CODE_NONE}, /* it had registered once: it is not deleted now */
		{910, NO, CANNOT_TELL, false, CODE_JoinDeadlineNear},
		{1200, NO, CANNOT_TELL, false, CODE_NONE},
		{86400, CANNOT_TELL, CANNOT_TELL, false, CODE_NONE},
	};

	for (size_t i = 0; i < ELEMENTS(rows); i++) {
		al2023(rows[i].up);
		run.node.registered = rows[i].registered;
		run.node.ready = rows[i].ready;
		run.node.has_pods = rows[i].pods;
		look();
		ok(JUDGE("deadline") == rows[i].want);
	}
	al2023(660);
	look();
	ok(strcmp(words("deadline"), "not registered 11 min after boot: a provisioner deletes the "
	                             "instance in about 4 min") == 0);
	put("/var/lib/kubelet/pods/0a1b/etc-hosts");
	look();
	ok(JUDGE("deadline") == CODE_NONE);
}

/* ---- lines ---- */

static void test_secrets(void)
{
	static const struct {
		const char *line, *secret, *kept;
	} rows[] = {
		{"error: login with password=hunter2 refused", "hunter2", "login"},
		{"ERROR DB_PASSWORD: hunter2", "hunter2", "ERROR"},
		{"fatal: unable to access 'https://joe:hunter2@example.com/x'", "hunter2",
	         "example.com"},
		{"error AWS_SESSION_TOKEN=IQoJb3JpZ2luX2VjEHUNTER2 x", "HUNTER2", "error"},
		{"error: FwoGZXIvYXdzEHUNTER2aDCw8Jj4kM0wqlZc9x rejected", "HUNTER2", "rejected"},
		{"error getting token: request failed", NULL, "request failed"},
		{"error /var/lib/cloud/instance/scripts/part-001 not found", NULL, "part-001"},
		{"error: no such host https://0A1B2C3D4E5F60718293A4B5C6D7E8F9.gr7.example.com",
	         NULL, "0A1B2C3D4E5F60718293A4B5C6D7E8F9.gr7"},
	};

	for (size_t i = 0; i < ELEMENTS(rows); i++) {
		char text[LINE_BYTES];

		(void) text_format(text, sizeof(text), "%s", rows[i].line);
		text_hide_secrets(text, sizeof(text));
		printf("# %s\n", text);
		ok(!rows[i].secret || !strstr(text, rows[i].secret));
		ok(strstr(text, rows[i].kept) != NULL);
	}
}

static void test_long_line(void)
{
	char text[400] = "ERROR: ";
	const char *s;

	al2023(100);
	config_failed();
	holds(NODE_CONFIG);
	for (size_t i = 0; i < 60; i++)
		strcat(text, "\xed\x95\x9c ");
	says(CONFIG, "nodeadm", 7 * USEC_PER_SEC, text);
	look();
	s = words("unit");
	ok(strlen(s) < SUMMARY_MAX && strlen(s) > 140 && text_is_clean(s, strlen(s)));
}

static void test_shape(void)
{
	static const struct {
		const char *text;
		enum userdata_form form;
		enum userdata_fault fault;
		bool node_config, call, other;
		unsigned cluster;
	} rows[] = {
		{"", USERDATA_EMPTY, USERDATA_SOUND, false, false, false, 0},
		{" \n", USERDATA_EMPTY, USERDATA_SOUND, false, false, false, 0},
		{NODE_CONFIG, USERDATA_NODE_CONFIG, USERDATA_SOUND, true, false, false, 15},
		{"{\"apiVersion\":\"node.eks.aws/"
	         "v1alpha1\",\"kind\":\"NodeConfig\",\"cidr\":\"x\"}",
	         USERDATA_NODE_CONFIG, USERDATA_SOUND, true, false, false, USERDATA_CIDR},
		{MIME "--//\r\nContent-Type: application/node.eks.aws\r\n\r\n" NODE_CONFIG
	              "--//--\r\n",
	         USERDATA_MULTIPART, USERDATA_SOUND, true, false, false, 15},
		{MIME "--//\nContent-Type: text/x-shellscript\n\n" NODE_CONFIG "--//--\n",
	         USERDATA_MULTIPART, USERDATA_WRONG_TYPE, false, false, false, 0},
		{MIME "--//\nContent-Type: text/x-shellscript\n\n" NODE_CONFIG
	              "--//\nContent-Type: application/node.eks.aws\n\n" NODE_CONFIG "--//--\n",
	         USERDATA_MULTIPART, USERDATA_SOUND, true, false, false, 15},
		{MIME "--/\nContent-Type: text/x-shellscript\n\nx\n", USERDATA_MULTIPART,
	         USERDATA_NO_PART, false, false, false, 0},
		{MIME "--//\nContent-Type: application/node.eks.aws\n\n" NODE_CONFIG,
	         USERDATA_MULTIPART, USERDATA_NOT_CLOSED, true, false, false, 15},
		{"\n" MIME "--//\nContent-Type: text/plain\n\nx\n--//--\n", USERDATA_MULTIPART,
	         USERDATA_NOT_FIRST, false, false, false, 0},
		{"MIME-Version: 1.0\nContent-Type: multipart/mixed\n\n", USERDATA_MULTIPART,
	         USERDATA_NO_BOUNDARY, false, false, false, 0},
		{"Content-Type: multipart/mixed;\n boundary=b; x=y\n\n--b\n"
	         "Content-Type: text/x-shellscript\nContent-Transfer-Encoding: base64\n\n"
	         "L2V0Yy9la3MvYm9v\ndHN0cmFwLnNoIHg=\n--b--",
	         USERDATA_MULTIPART, USERDATA_SOUND, false, true, true, 0},
		{"Content-Type: multipart/mixed; boundary=b\n\n--b\n"
	         "Content-Transfer-Encoding: base64\n\n!!!!\n--b--",
	         USERDATA_MULTIPART, USERDATA_BAD_ENCODING, false, false, false, 0},
		{"IyEvYmluL3NoCi9ldGMvZWtzL2Jvb3RzdHJhcC5zaCBibHVlCg==", USERDATA_SCRIPT,
	         USERDATA_SOUND, false, true, true, 0},
		{"#!/bin/sh\n /etc/eks/bootstrap.sh x\n", USERDATA_SCRIPT, USERDATA_SOUND, false,
	         true, true, 0},
		{"#!/bin/sh\n # /etc/eks/bootstrap.sh x\n", USERDATA_SCRIPT, USERDATA_SOUND, false,
	         false, false, 0},
		{"#cloud-config\npackages:\n- jq\n", USERDATA_CLOUD_CONFIG, USERDATA_SOUND, false,
	         false, false, 0},
		{"#include\nhttps://example.com/x\n", USERDATA_OTHER, USERDATA_SOUND, false, false,
	         true, 0},
		{"# x\n\n[settings.kubernetes]\nx = 1\n", USERDATA_TOML, USERDATA_SOUND, false,
	         false, false, 0},
		{"{\"ignition\": {}}", USERDATA_IGNITION, USERDATA_SOUND, false, false, false, 0},
	};

	for (size_t i = 0; i < ELEMENTS(rows); i++) {
		struct userdata_shape s;

		userdata_parse(rows[i].text, strlen(rows[i].text), &s);
		printf("# %zu: %s, %s\n", i, userdata_form_name(s.form),
		       userdata_fault_text(s.fault));
		ok(s.form == rows[i].form && s.fault == rows[i].fault);
		ok(s.node_config == rows[i].node_config && s.bootstrap_call == rows[i].call &&
		   s.other_call == rows[i].other && s.cluster == rows[i].cluster);
	}
}

int main(void)
{
	(void) snprintf(base, sizeof(base), "/tmp/probe-bootstrap.%d", getpid());
	test_shape();
	test_secrets();
	test_sound();
	test_elsewhere();
	test_no_node_config();
	test_malformed();
	test_causes();
	test_al2_never_called();
	test_slow();
	test_forgotten();
	test_again();
	test_deadline();
	test_long_line();
	(void) nftw(base, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	files_free((struct files *) run.files);
	fake_free(&run);
	return done();
}
