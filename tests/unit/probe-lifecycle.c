/* SPDX-License-Identifier: Apache-2.0 */
#define run_uptime      fake_uptime
#define run_recall      fake_recall
#define run_remember    fake_remember
#define run_realtime    fake_realtime
#define run_witness     fake_witness
#define probe_lifecycle tested_lifecycle

#include "../fakerun.h"

#undef run_imds
#define run_imds fake_metadata
int run_imds(struct run *r, const char *path, size_t body_max, bool spare, run_imds_t done_cb,
             uintptr_t tag);

#include "../../probes/lifecycle.c"

#include <ftw.h>

#include "../tap.h"

/* 2026-11-30T21:18:03Z */
#define T0 INT64_C(1796073483)

static char base[64];
static struct run run;
static usec_t uptime, realtime;
static char alive[REMEMBER_MAX], gap[REMEMBER_MAX];
static unsigned writes, requests, silent, spare_only = 1;
static const char *bodies[N_NOTICES], *life;

static struct {
	run_imds_t done;
	uintptr_t tag;
	char path[96];
} calls[8];
static size_t n_calls;

usec_t fake_uptime(const struct run *r)
{
	return uptime;
}

usec_t fake_realtime(const struct run *r)
{
	return realtime;
}

void fake_witness(struct run *r, enum witness w, const struct http_reply *reply)
{
}

const char *fake_recall(const struct run *r, const char *key)
{
	const char *value = strcmp(key, alive_key) == 0 ? alive : gap;

	return value[0] ? value : NULL;
}

void fake_remember(struct run *r, const char *key, const char *value)
{
	char *dst = strcmp(key, alive_key) == 0 ? alive : gap;

	writes += strcmp(dst, value ? value : "") != 0;
	(void) text_format(dst, REMEMBER_MAX, "%s", value ? value : "");
}

int fake_metadata(struct run *r, const char *path, size_t body_max, bool spare, run_imds_t done_cb,
                  uintptr_t tag)
{
	calls[n_calls].done = done_cb;
	calls[n_calls].tag = tag;
	(void) text_format(calls[n_calls++].path, sizeof(calls[0].path), "%s", path);
	spare_only &= spare;
	requests++;
	return 0;
}

static void answer(const char *path, struct imds_reply *reply)
{
	const char *body = strcmp(path, life_cycle_path) == 0 ? life : NULL;

	for (size_t i = 0; i < N_NOTICES; i++)
		if (strcmp(path, notices[i].path) == 0)
			body = bodies[i];
	reply->step = IMDS_GET;
	reply->http.outcome = silent ? OUTCOME_TIMEOUT : OUTCOME_OK;
	reply->http.code = silent ? 0 : body ? 200 : 404;
	reply->http.body = body ? body : "";
	reply->http.body_len = strlen(reply->http.body);
}

static void look(void)
{
	free(run.state);
	run.state = calloc(1, tested_lifecycle.state_size);
	run.ended = false;
	run.n_seen = 0;
	ok(tested_lifecycle.start(&run) == 0);
	while (!run.ended && n_calls) {
		struct imds_reply reply = {0};
		char path[96];
		run_imds_t done_cb = calls[0].done;
		uintptr_t tag = calls[0].tag;

		memcpy(path, calls[0].path, sizeof(path));
		memmove(&calls[0], &calls[1], --n_calls * sizeof(calls[0]));
		answer(path, &reply);
		done_cb(&run, &reply, tag);
	}
	ok(run.ended && n_calls == 0);
	for (size_t i = 0; i < run.n_reads; i++)
		free(run.reads[i]);
	run.n_reads = 0;
}

static void pass_time(unsigned s)
{
	run.now += s * USEC_PER_SEC;
	uptime += s * USEC_PER_SEC;
	realtime += s * USEC_PER_SEC;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

static void put(const char *path, const void *data, size_t len)
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
	if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0)
		printf("# cannot write %s\n", full);
}

/* The daemon starts, s seconds after a boot at T0 - s. */
static void start_daemon(const char *boot, unsigned s)
{
	struct files *f = NULL;

	files_free((struct files *) run.files);
	fake_free(&run);
	(void) mkdir(base, 0755);
	run = (struct run){.memory = calloc(1, tested_lifecycle.memory_size),
	                   .now = s * USEC_PER_SEC,
	                   .node = {.metadata_answers = true}};
	put("/proc/sys/kernel/random/boot_id", boot, strlen(boot));
	ok(files_new(&f, base) == 0);
	run.files = f;
	uptime = s * USEC_PER_SEC;
	realtime = (usec_t) T0 * USEC_PER_SEC;
	memset(bodies, 0, sizeof(bodies));
	life = "on-demand";
	silent = writes = requests = 0;
}

static const char *words(const char *aspect)
{
	static struct words w;
	const struct observation *o = fake_find(&run, aspect, NULL);

	w.summary[0] = 0;
	if (o)
		(void) tested_lifecycle.judge(o, &w);
	return w.summary;
}

static bool nothing_found(void)
{
	struct words w;

	for (size_t i = 0; i < run.n_seen; i++)
		if (tested_lifecycle.judge(&run.seen[i], &w) != CODE_NONE)
			return false;
	return true;
}

#define JUDGE(aspect) fake_judge(&run, &tested_lifecycle, aspect)

static void test_dates(void)
{
	ok(parse_date("2026-11-30T21:18:03Z") == T0);
	ok(parse_date("30 Nov 2026 21:18:03 GMT") == T0);
	ok(parse_date("1970-01-01T00:00:01Z") == 1);
	ok(parse_date("2024-02-29T00:00:00Z") - parse_date("2024-02-28T00:00:00Z") == 86400);
	ok(parse_date("29 Feb 2000 00:00:00 GMT") == 951782400);
	ok(parse_date(NULL) == 0 && parse_date("") == 0 && parse_date("tomorrow") == 0);
	ok(parse_date("2026-13-30T21:18:03Z") == 0 && parse_date("30 ovD 2026 21:18:03") == 0);
}

static void test_quiet(void)
{
	static const char *const kinds[] = {"on-demand", "spot"};

	for (size_t k = 0; k < ELEMENTS(kinds); k++) {
		unsigned most = 0, in_minute = 0;

		start_daemon("a", 100);
		life = kinds[k];
		for (unsigned i = 0; i < 120; i++) {
			requests = 0;
			look();
			ok(nothing_found());
			in_minute = i % 6 == 0 ? requests : in_minute + requests;
			ok(i < 6 ? in_minute <= 10 : in_minute <= 8);
			most = in_minute > most ? in_minute : most;
			pass_time(10);
		}
		printf("# %s: at most %u requests a minute\n", kinds[k], most);
		ok(in_minute <= 8 && in_minute >= 3);
		ok(spare_only);
		ok(writes == 2 || writes == 3); /* of the sign of life, in 20 minutes */
	}
}

static void test_spot(void)
{
	start_daemon("a", 5000);
	life = "spot";
	look();
	ok(nothing_found() && fake_find(&run, "spot", NULL)->outcome == OUTCOME_OK);
	bodies[SPOT] = "{\"action\":\"terminate\",\"time\":\"2026-11-30T21:20:11Z\"}";
	bodies[REBALANCE] = "{\"noticeTime\":\"2026-11-30T21:18:03Z\"}";
	pass_time(10);
	look();
	ok(JUDGE("spot") == CODE_SpotInterruption);
	ok(strcmp(words("spot"), "spot/instance-action: terminate in 118 s") == 0);
	requests = 0;
	pass_time(1);
	look(); /* a confirmation: nobody is asked */
	ok(JUDGE("spot") == CODE_SpotInterruption && requests == 0);
	for (int i = 0; i < 7; i++) {
		pass_time(10);
		look();
	}
	ok(JUDGE("rebalance") == CODE_RebalanceRecommended);
	ok(strcmp(words("rebalance"), "rebalance recommended 81 s ago") == 0);
	bodies[SPOT] = "{\"action\":\"hibernate\"}";
	pass_time(10);
	look();
	ok(strcmp(words("spot"), "spot/instance-action: hibernate") == 0);
	bodies[SPOT] = "<html>";
	pass_time(10);
	look();
	ok(JUDGE("spot") == CODE_NONE && fake_find(&run, "spot", NULL)->outcome == OUTCOME_UNKNOWN);
	bodies[SPOT] = NULL;
	pass_time(10);
	look();
	ok(fake_find(&run, "spot", NULL)->outcome == OUTCOME_OK);
}

static void test_others(void)
{
	start_daemon("a", 5000);
	/* the first look asks for all that an instance of its kind may be told */
	bodies[AUTOSCALING] = "Terminated\n";
	bodies[MAINTENANCE] =
		"[{\"Code\":\"system-reboot\",\"NotBefore\":\"3 Dec 2026 21:18:03 GMT\","
		"\"State\":\"active\"},{\"Code\":\"instance-retirement\",\"NotBefore\":"
		"\"1 Dec 2026 01:18:03 GMT\",\"State\":\"active\"},{\"Code\":\"instance-stop\","
		"\"NotBefore\":\"1 Nov 2026 00:00:00 GMT\",\"State\":\"completed\"}]";
	look();
	ok(requests == 3 && !fake_find(&run, "spot", NULL));
	ok(JUDGE("autoscaling") == CODE_TerminationPending);
	ok(JUDGE("maintenance") == CODE_MaintenanceScheduled);
	ok(strcmp(words("maintenance"), "events/maintenance: instance-retirement in 4 h 0 min") ==
	   0);
	start_daemon("a", 5000);
	bodies[AUTOSCALING] = "InService";
	bodies[MAINTENANCE] = "[]";
	look();
	ok(nothing_found());
}

static void test_silent(void)
{
	start_daemon("a", 5000);
	life = "spot";
	bodies[SPOT] = "{\"action\":\"stop\",\"time\":\"2026-11-30T21:20:03Z\"}";
	look();
	ok(JUDGE("spot") == CODE_SpotInterruption);
	silent = 1;
	pass_time(10);
	look();
	ok(JUDGE("spot") == CODE_SpotInterruption); /* known it is, all the same */
	for (int i = 0; i < 31; i++) {
		pass_time(10);
		look();
	}
	ok(JUDGE("spot") == CODE_NONE && fake_find(&run, "spot", NULL)->outcome == OUTCOME_UNKNOWN);
	/* the probe of metadata says that it is dead: nobody waits for it here too */
	run.node.metadata_answers = false;
	requests = 0;
	pass_time(10);
	look();
	ok(requests == 0);
}

/* ---- signs of life ---- */

enum { CLEAN = 1, CRASHED, ROTATED };

static void put_wtmp(int how)
{
	struct utmp u[4] = {{.ut_type = BOOT_TIME, .ut_user = "reboot"},
	                    {.ut_type = USER_PROCESS, .ut_user = "shutdown"},
	                    {.ut_type = RUN_LVL, .ut_user = "shutdown"},
	                    {.ut_type = BOOT_TIME, .ut_user = "reboot"}};

	if (how == CRASHED)
		(void) text_format(u[2].ut_user, sizeof(u[2].ut_user), "runlevel");
	put("/var/log/wtmp", how == ROTATED ? &u[3] : u, how == ROTATED ? sizeof(u[3]) : sizeof(u));
}

/* Alive until `before` seconds before a boot that was 60 s ago. */
static void reboot(int how, int before, int memory)
{
	(void) snprintf(alive, sizeof(alive), "a %lld %d 0", (long long) T0 - 60 - before, memory);
	gap[0] = 0;
	put_wtmp(how);
	start_daemon("b", 60);
	look();
}

static void test_gap(void)
{
	alive[0] = gap[0] = 0;
	start_daemon("a", 60); /* the first boot of all */
	look();
	ok(nothing_found() && !fake_find(&run, "gap", NULL));
	ok(strncmp(alive, "a ", 2) == 0);
	start_daemon("a", 400); /* restarted within it */
	look();
	ok(nothing_found() && !fake_find(&run, "gap", NULL));

	reboot(CRASHED, 840, 0);
	ok(JUDGE("gap") == CODE_HostGap);
	ok(strcmp(words("gap"), "it stopped without a shutdown, last sign of life 14 min before "
	                        "this boot, no memory or disk pressure with it") == 0);
	ok(strncmp(alive, "b ", 2) == 0);
	start_daemon("b", 120); /* restarted: it is still told */
	look();
	ok(JUDGE("gap") == CODE_HostGap);
	start_daemon("b", 3700); /* but not for ever */
	look();
	ok(nothing_found());

	reboot(CLEAN, 86400, 0);
	ok(nothing_found() && fake_find(&run, "gap", NULL)->outcome == OUTCOME_OK);
	reboot(CRASHED, 840, 45); /* it starved: that is another story */
	ok(nothing_found());
	reboot(CRASHED, 840, -1);
	ok(JUDGE("gap") == CODE_HostGap);
	reboot(ROTATED, 840, 0); /* how it ended is not known */
	ok(nothing_found() && !fake_find(&run, "gap", NULL));
	reboot(CRASHED, -500, 0); /* a clock that went backward */
	ok(nothing_found() && !fake_find(&run, "gap", NULL));
	reboot(CRASHED, 40 * 86400, 0);
	ok(nothing_found());
	(void) nftw(base, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	start_daemon("c", 60);
	look();
	ok(nothing_found()); /* no wtmp here */
}

static void test_pressure(void)
{
	static const char text[] = "some avg10=0.00 avg60=31.00 avg300=0.00 total=1\n"
				   "full avg10=0.00 avg60=12.50 avg300=0.00 total=1\n";

	alive[0] = gap[0] = 0;
	put("/proc/pressure/memory", text, sizeof(text) - 1);
	start_daemon("a", 60);
	look();
	ok(strstr(alive, " 12 -1") != NULL);
}

static void test_stall(void)
{
	start_daemon("a", 5000);
	for (int i = 0; i < 5; i++) {
		look();
		pass_time(10);
	}
	look();
	ok(nothing_found());
	pass_time(7200); /* suspended */
	look();
	ok(JUDGE("gap") == CODE_HostGap && strstr(words("gap"), "2 h 0 min"));
	pass_time(1);
	look();
	ok(JUDGE("gap") == CODE_HostGap);
	for (int i = 0; i < 361; i++) {
		pass_time(10);
		look();
	}
	ok(nothing_found());

	start_daemon("a", 5000); /* somebody wants a look every 10 minutes only */
	for (int i = 0; i < 5; i++) {
		look();
		ok(nothing_found());
		pass_time(600);
	}
	start_daemon("a", 5000); /* the wall clock is set: no time has passed */
	look();
	pass_time(10);
	look();
	realtime += 86400 * USEC_PER_SEC;
	pass_time(10);
	look();
	ok(nothing_found());
}

int main(void)
{
	(void) snprintf(base, sizeof(base), "/tmp/probe-lifecycle.%d", getpid());
	test_dates();
	test_quiet();
	test_spot();
	test_others();
	test_silent();
	test_gap();
	test_pressure();
	test_stall();
	(void) nftw(base, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	files_free((struct files *) run.files);
	fake_free(&run);
	return done();
}
