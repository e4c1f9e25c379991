/* SPDX-License-Identifier: Apache-2.0 */
/* How fast logs are looked through. "patterns" prints the literals of the ipamd-log probe, one a
 * line; "match FILE" looks for them line by line; "start ROOT" is the first look of the probe at
 * the logs below ROOT, as the daemon does it. The last two print one line. */
#define probe_ipamd_log measured_ipamd_log

#include "run.h"

#include "../../probes/ipamd_log.c"

#include "clock.h"

static const char *literals[ELEMENTS(rules)];

static int match_file(const char *path)
{
	enum { CHUNK = 131072 };
	static char buf[CHUNK];
	size_t len = 0, lines = 0, hits = 0, n;
	struct matcher m;
	struct match_set set;
	usec_t before = clock_cpu();
	FILE *f = fopen(path, "re");

	if (!f || matcher_init(&m, literals, ELEMENTS(rules)) < 0)
		return 1;
	while ((n = fread(buf + len, 1, CHUNK - len, f)) > 0) {
		char *p = buf, *end = buf + len + n, *newline;

		while ((newline = memchr(p, '\n', (size_t) (end - p)))) {
			lines++;
			hits += matcher_find(&m, p, (size_t) (newline - p), &set);
			p = newline + 1;
		}
		len = (size_t) (end - p);
		memmove(buf, p, len);
	}
	(void) fclose(f);
	printf("lines=%zu hits=%zu cpu_us=%llu\n", lines, hits,
	       (unsigned long long) (clock_cpu() - before));
	return 0;
}

struct seen {
	bool over;
	size_t observations;
	int64_t lines;
};

static void on_done(const struct run_result *result, void *userdata)
{
	struct seen *s = userdata;

	s->over = true;
	s->observations = result->n;
	s->lines = result->n ? evidence_number(&result->observations[0], "lines", 0) : 0;
}

/* One wake-up of the loop after another: of each, what it spends and how long it takes. */
static int turn(sd_event *e, usec_t *worst_cpu, usec_t *worst_wall)
{
	usec_t cpu, wall;
	int r = sd_event_prepare(e);

	if (r == 0)
		r = sd_event_wait(e, 10 * USEC_PER_SEC);
	if (r <= 0)
		return -1;
	cpu = clock_cpu();
	wall = clock_boottime();
	r = sd_event_dispatch(e);
	cpu = clock_cpu() - cpu;
	wall = clock_boottime() - wall;
	*worst_cpu = cpu > *worst_cpu ? cpu : *worst_cpu;
	*worst_wall = wall > *worst_wall ? wall : *worst_wall;
	return r;
}

static int start_at(const char *root)
{
	struct run_context *c = calloc(1, sizeof(*c));
	void *memory = calloc(1, sizeof(struct memory));
	usec_t worst_cpu = 0, worst_wall = 0, before;
	struct files *files = NULL;
	struct seen seen = {0};
	struct run *run = NULL;
	sd_event *e = NULL;
	int turns = 0;

	if (!c || !memory || files_new(&files, root) < 0 || sd_event_new(&e) < 0)
		return 1;
	c->files = files;
	c->event = e;
	c->uptime_offset = INT64_C(30) * 86400 * 1000000;
	before = clock_cpu();
	if (run_new(&run, c, &measured_ipamd_log, 0, memory, 60 * USEC_PER_SEC, false, CODE_NONE,
	            on_done, &seen) < 0)
		return 1;
	while (!seen.over && turn(e, &worst_cpu, &worst_wall) >= 0)
		turns++;
	printf("lines=%lld observations=%zu turns=%d cpu_us=%llu worst_cpu_us=%llu "
	       "worst_wall_us=%llu\n",
	       (long long) seen.lines, seen.observations, turns,
	       (unsigned long long) (clock_cpu() - before), (unsigned long long) worst_cpu,
	       (unsigned long long) worst_wall);
	sd_event_unref(e);
	files_free(files);
	free(memory);
	free(c);
	return seen.over ? 0 : 1;
}

int main(int argc, char *argv[])
{
	for (size_t i = 0; i < ELEMENTS(rules); i++)
		literals[i] = rules[i].literal;
	if (argc == 2 && strcmp(argv[1], "patterns") == 0) {
		for (size_t i = 0; i < ELEMENTS(rules); i++)
			puts(literals[i]);
		return 0;
	}
	if (argc == 3 && strcmp(argv[1], "match") == 0)
		return match_file(argv[2]);
	if (argc == 3 && strcmp(argv[1], "start") == 0)
		return start_at(argv[2]);
	(void) fprintf(stderr, "usage: scan patterns | match FILE | start ROOT\n");
	return 64;
}
