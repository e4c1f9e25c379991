/* SPDX-License-Identifier: Apache-2.0 */
/* passes DIRECTORY [N]: does the daemon grow, and what does a pass cost? 64 observations, two
 * probes of which look at this machine and the rest of which are made, go through ledger,
 * diagnosis, report and sinks, N times; faults come and go. What is written lies below DIRECTORY.
 * Prints one line. */

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>

#include "clock.h"
#include "pass.h"
#include "run.h"
#include "sink.h"

enum {
	OBSERVATIONS = 64,
	WARM_UP = 3000, /* a multiple of CYCLE: the same state before and after */
	CYCLE = 200,    /* passes from one fault to the next */
	FAULT = 10,     /* passes for which it is there */
	PASSES = 100000,
	WRITE_EVERY = 20, /* a pass each two seconds, and a renewal each 40 */
};

struct bench {
	struct run_context context;
	struct files *files;
	struct ledger ledger;
	struct pass passes;
	struct report_meta meta;
	struct journal_memory journal;
	struct probe_stats stats[64];
	void *memory[2];
	const struct probe *running;
	usec_t now, spent_writing;
	uint64_t made, written, raised, cleared;
	size_t observations;
};

static const struct probe *const looking[2] = {&probe_link, &probe_cni_config};

static void on_run(const struct run_result *result, void *userdata)
{
	struct bench *b = userdata;

	(void) ledger_put(&b->ledger, b->running, 0, result->observations, result->n, result->whole,
	                  CONFIRM_DAEMON, b->now);
}

static int look(struct bench *b)
{
	struct run *run = NULL;
	int r;

	for (size_t i = 0; i < ELEMENTS(looking); i++) {
		b->running = looking[i];
		r = run_new(&run, &b->context, looking[i], 0, b->memory[i], USEC_PER_SEC, false,
		            CODE_NONE, on_run, b);
		if (r < 0)
			return r;
		if (run) /* both are over when they have started */
			return -EBUSY;
	}
	return 0;
}

/* The rest of the observations, as the endpoint probe makes them. */
static void make(struct bench *b)
{
	static struct observation seen[OBSERVATIONS];
	/* short ones while warming up, until the history is full */
	unsigned cycle = b->made < WARM_UP ? FAULT * 2 : CYCLE;
	bool fault = b->made % cycle >= cycle - FAULT;
	size_t had = b->ledger.n, n = 0;

	for (size_t i = 0; i < b->ledger.n; i++)
		had -= b->ledger.entries[i].probe == &probe_endpoint;
	for (; had + n < OBSERVATIONS; n++) {
		struct observation *o = &seen[n];

		*o = (struct observation){.layer = LAYER_ENDPOINT,
		                          .at = b->now,
		                          .took = 1000 + 7 * (b->made + n) % 1000};
		o->outcome = fault && n < 2 ? OUTCOME_TIMEOUT : OUTCOME_OK;
		(void) text_format(o->probe, sizeof(o->probe), "endpoint");
		(void) text_format(o->aspect, sizeof(o->aspect), "tcp");
		(void) text_format(o->subject, sizeof(o->subject), "service-%zu", n);
		observation_text(o, "host", "service-%zu.us-west-2.amazonaws.com", n);
		observation_text(o, "address", "10.0.%zu.%zu", n, n);
		observation_number(o, "private", 1);
		observation_number(o, "connect_ms", (int64_t) (o->took / USEC_PER_MSEC));
		observation_detail(o, "10.0.%zu.%zu (private) connects in %.1f ms", n, n,
		                   (double) o->took / USEC_PER_MSEC);
	}
	(void) ledger_put(&b->ledger, &probe_endpoint, 0, seen, n, true, CONFIRM_DAEMON, b->now);
}

static int write_all(struct bench *b, const struct report *now)
{
	usec_t began = clock_cpu();
	int r;

	r = sink_conditions(b->files, now);
	if (r == 0)
		r = sink_metrics(b->files, now, b->stats);
	if (r == 0)
		r = sink_status(b->files, now, &b->meta);
	b->spent_writing += clock_cpu() - began;
	b->written++;
	return r;
}

static int make_pass(struct bench *b)
{
	const struct report *now, *before;
	struct report_diff d;
	uint32_t again;
	int r;

	b->now += 5 * USEC_PER_SEC;
	r = look(b);
	if (r < 0)
		return r;
	make(b);
	b->observations = b->ledger.n;
	pass_make(&b->passes, &b->ledger,
	          &(struct diagnose_input){.node = &b->context.node,
	                                   .now = b->now,
	                                   .uptime = b->now,
	                                   .complete = true},
	          &d, &again);
	now = pass_report(&b->passes);
	before = pass_before(&b->passes);
	b->meta.seq++;
	b->meta.realtime = UINT64_C(1796000000000000) + b->now;
	b->raised += d.raised[0] != 0;
	b->cleared += d.cleared[0] != 0;
	r = sink_journal(&b->journal, before, now, &d);
	if (r == 0)
		r = sink_history(b->files, before, now, &d, &b->meta);
	if (r == 0 && (d.material || b->made % WRITE_EVERY == 0))
		r = write_all(b, now);
	b->made++;
	return r;
}

static uint64_t private_dirty(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "re");
	uint64_t kib = 0;
	char line[256];

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Private_Dirty: %" SCNu64, &kib) == 1)
			break;
	if (f)
		(void) fclose(f);
	return kib;
}

static void ignore(void *userdata)
{
}

static int set_up(struct bench *b, const char *dir)
{
	int r;

	b->now = 3600 * USEC_PER_SEC;
	b->context.mode = SCHEDULE_DAEMON;
	b->context.node.ec2 = EC2_YES;
	(void) text_format(b->meta.boot_id, sizeof(b->meta.boot_id), "bench");
	for (size_t i = 0; i < ELEMENTS(looking); i++) {
		b->memory[i] = calloc(1, looking[i]->memory_size + 1);
		if (!b->memory[i])
			return -ENOMEM;
	}
	r = files_new(&b->files, dir);
	b->context.files = b->files;
	if (r == 0)
		r = sd_event_new(&b->context.event);
	if (r >= 0)
		r = netlink_new(&b->context.netlink, b->context.event, ignore, NULL);
	return r;
}

static int measure(struct bench *b, unsigned long n)
{
	uint64_t dirty, in_use, written;
	usec_t spent, writing;
	int r = 0;

	for (unsigned long i = 0; i < WARM_UP && r == 0; i++)
		r = make_pass(b);
	dirty = private_dirty();
	in_use = mallinfo2().uordblks;
	written = b->written;
	writing = b->spent_writing;
	spent = clock_cpu();
	for (unsigned long i = 0; i < n && r == 0; i++)
		r = make_pass(b);
	spent = clock_cpu() - spent;
	writing = b->spent_writing - writing;
	written = b->written - written;
	if (r < 0)
		return r;
	printf("passes=%lu observations=%zu raised=%" PRIu64 " cleared=%" PRIu64
	       " dirty_kib=%" PRIu64 " dirty_kib_more=%" PRId64 " heap_bytes_more=%" PRId64
	       " us_per_pass=%.1f us_per_write=%.1f writes=%" PRIu64 "\n",
	       n, b->observations, b->raised, b->cleared, dirty,
	       (int64_t) (private_dirty() - dirty), (int64_t) (mallinfo2().uordblks - in_use),
	       (double) (spent - writing) / (double) n, (double) writing / (double) written,
	       written);
	return 0;
}

int main(int argc, char *argv[])
{
	static struct bench b;
	unsigned long n = argc > 2 ? strtoul(argv[2], NULL, 10) / CYCLE * CYCLE : PASSES;
	int r;

	if (argc < 2 || n == 0) {
		(void) fprintf(stderr, "usage: passes DIRECTORY [N]\n");
		return 64;
	}
	r = set_up(&b, argv[1]);
	if (r >= 0)
		r = measure(&b, n);
	if (r < 0)
		(void) fprintf(stderr, "passes: %s\n", strerror(-r));
	netlink_free(b.context.netlink);
	sd_event_unref(b.context.event);
	files_free(b.files);
	for (size_t i = 0; i < ELEMENTS(looking); i++)
		free(b.memory[i]);
	return r < 0;
}
