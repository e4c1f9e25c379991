/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <zlib.h>

#include "clock.h"
#include "tail.h"

#include "../tap.h"

#define LOG "/log/ipamd.log"

static char base[64];

/* A disk that brings nothing, so many times; or one that knows no reading without waiting. */
static struct {
	unsigned silent;
	bool old;
	unsigned asked;
} disk;

ssize_t preadv2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	disk.asked++;
	if (disk.old && flags)
		return errno = EOPNOTSUPP, -1;
	if (disk.silent > 0)
		return disk.silent--, errno = EAGAIN, -1;
	return syscall(SYS_preadv2, fd, v, n, at, 0, flags);
}

/* What one reading gave: every line and a '|' after it. */
struct reader {
	sd_event *event;
	struct files *files;
	struct tail where;
	struct tail_query query;
	char got[65536];
	size_t len, lines, longest;
	struct tail_end end;
	unsigned done;
	usec_t worst; /* longest the loop was held */
};

static const char *full(const char *path)
{
	static char buf[512];

	(void) text_format(buf, sizeof(buf), "%s%s", base, path);
	return buf;
}

static void put(const char *path, const char *mode, const char *text, size_t len)
{
	FILE *f = fopen(full(path), mode);

	if (!f || fwrite(text, 1, len, f) != len || fclose(f) != 0)
		printf("# cannot write %s\n", path);
}

static void append(const char *path, const char *text)
{
	put(path, "ae", text, strlen(text));
}

static void put_gzip(const char *path, const char *mode, const char *text, size_t len)
{
	gzFile f = gzopen(full(path), mode);

	if (!f || gzwrite(f, text, (unsigned) len) != (int) len || gzclose(f) != Z_OK)
		printf("# cannot write %s\n", path);
}

static void move(const char *from, const char *to)
{
	char old[512];

	(void) text_format(old, sizeof(old), "%s", full(from));
	if (rename(old, full(to)) < 0)
		printf("# cannot rename %s\n", from);
}

/* The modification time is what orders and excludes siblings. */
static void touch(const char *path, time_t at)
{
	struct timespec t[2] = {{.tv_sec = at}, {.tv_sec = at}};

	if (utimensat(AT_FDCWD, full(path), t, 0) < 0)
		printf("# cannot touch %s\n", path);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

static void clear(void)
{
	(void) nftw(full("/log"), remove_one, 8, FTW_DEPTH | FTW_PHYS);
	(void) mkdir(full("/log"), 0755);
}

static void on_line(const char *line, size_t len, void *userdata)
{
	struct reader *r = userdata;

	r->lines++;
	if (len > r->longest)
		r->longest = len;
	if (r->len + len + 1 < sizeof(r->got)) {
		memcpy(r->got + r->len, line, len);
		r->got[r->len + len] = '|';
		r->len += len + 1;
	}
}

static void on_done(struct tail_read *t, const struct tail_end *e, void *userdata)
{
	struct reader *r = userdata;

	r->end = *e;
	r->done++;
}

static int start(struct reader *r, struct tail_read **ret)
{
	r->len = r->lines = r->longest = 0;
	r->done = 0;
	r->worst = 0;
	memset(r->got, 0, sizeof(r->got));
	return tail_read_new(ret, r->event, r->files, &r->query, &r->where, on_line, on_done, r);
}

static void look(struct reader *r)
{
	struct tail_read *t = NULL;

	if (start(r, &t) < 0)
		return;
	while (!r->done) {
		usec_t before = clock_cpu(), took;

		if (sd_event_run(r->event, 10 * USEC_PER_SEC) < 0)
			break;
		took = clock_cpu() - before;
		if (took > r->worst)
			r->worst = took;
	}
	tail_read_free(t);
}

static bool gives(struct reader *r, const char *want)
{
	look(r);
	if (r->done == 1 && strcmp(r->got, want) == 0 && r->end.error == 0)
		return true;
	printf("# got \"%.200s\", error %d, done %u\n", r->got, r->end.error, r->done);
	return false;
}

static void begin(struct reader *r)
{
	clear();
	r->where = (struct tail){0};
	r->query = (struct tail_query){.path = LOG};
}

static void test_lines(struct reader *r)
{
	static const char nul[] = "a\0b\n\0\0c\n";
	char *line = malloc(200000);

	begin(r);
	look(r);
	ok(r->end.error == -ENOENT && !r->where.begun && !r->end.skipped);
	append(LOG, "one\ntwo\nthr");
	ok(gives(r, "one|two|"));
	ok(r->end.bytes == 11 && r->end.lines == 2 && r->end.modified > 0);
	ok(gives(r, ""));
	append(LOG, "ee\n\n");
	ok(gives(r, "three||"));
	put(LOG, "ae", nul, sizeof(nul) - 1);
	look(r); /* what a line begins with is a hole, what is in it is its own */
	ok(r->len == 6 && memcmp(r->got, "a\0b|c|", 6) == 0);
	ok(gives(r, "") && !r->end.rotated && !r->end.truncated && !r->end.skipped);
	if (!line)
		return;
	/* too long, and its end comes only at a later look */
	memset(line, 'x', 200000);
	put(LOG, "ae", line, 100000);
	look(r);
	ok(r->lines == 1 && r->longest == TAIL_LINE_MAX && r->where.cut);
	put(LOG, "ae", line, 50000);
	ok(gives(r, ""));
	append(LOG, "end\nnext\n");
	ok(gives(r, "next|") && !r->where.cut);
	line[TAIL_LINE_MAX] = '\n';
	put(LOG, "ae", line, TAIL_LINE_MAX + 1);
	look(r);
	ok(r->lines == 1 && r->longest == TAIL_LINE_MAX && !r->where.cut);
	line[TAIL_LINE_MAX] = 'x';
	line[TAIL_LINE_MAX + 1] = '\n';
	put(LOG, "ae", line, TAIL_LINE_MAX + 2);
	append(LOG, "z\n");
	look(r);
	ok(r->lines == 2 && r->longest == TAIL_LINE_MAX && !r->where.cut);
	free(line);
}

#define BACKUP "/log/ipamd-2026-08-20T10-00-00.000.log"

static void test_rotation(struct reader *r)
{
	begin(r);
	append(LOG, "one\ntwo\n");
	ok(gives(r, "one|two|"));
	append(LOG, "three\nhalf");
	move(LOG, BACKUP);
	look(r); /* between the two moves of the writer */
	ok(r->end.error == -ENOENT && strcmp(r->got, "three|half|") == 0 && r->end.rotated);
	append(LOG, "new\n");
	ok(gives(r, "new|") && !r->end.skipped);
	ok(gives(r, ""));

	/* two rotations between two looks, the first already compressed beside its original */
	append(LOG, "four\n");
	move(LOG, "/log/ipamd-2026-08-20T11-00-00.000.log");
	put_gzip("/log/ipamd-2026-08-20T11-00-00.000.log.gz", "w", "half of it", 10);
	append(LOG, "five\n");
	move(LOG, "/log/ipamd-2026-08-20T12-00-00.000.log");
	append(LOG, "six\n");
	ok(gives(r, "four|five|six|") && r->end.rotated && !r->end.skipped);
	ok(gives(r, ""));

	/* compressed before we came: its first bytes tell it, and we go on where we were */
	append(LOG, "seven\n");
	ok(gives(r, "seven|"));
	put_gzip("/log/ipamd-2026-08-20T13-00-00.000.log.gz", "w", "six\nsev", 7);
	put_gzip("/log/ipamd-2026-08-20T13-00-00.000.log.gz", "a", "en\neight\n", 9);
	(void) unlink(full(LOG));
	append(LOG, "nine\n");
	ok(gives(r, "eight|nine|") && r->end.rotated && !r->end.skipped);

	/* gone altogether */
	(void) unlink(full(LOG));
	append("/log/ipamd-2026-08-20T14-00-00.000.log.gz", "no gzip at all");
	append("/log/ipamd-notes.log", "not of the row\n");
	append(LOG, "eleven\n");
	ok(gives(r, "eleven|") && r->end.skipped && !r->end.rotated);
	ok(gives(r, "") && !r->end.skipped);
}

static void test_logrotate(struct reader *r)
{
	begin(r);
	append(LOG, "one\n");
	ok(gives(r, "one|"));
	append(LOG, "two\n");
	move(LOG, "/log/ipamd.log.1");
	move("/log/ipamd.log.1", "/log/ipamd.log.10");
	append("/log/ipamd.log.9", "three\n");
	append(LOG, "four\n");
	ok(gives(r, "two|three|four|") && r->end.rotated);
}

static void test_truncation(struct reader *r)
{
	begin(r);
	append(LOG, "a first line\nand a second\n");
	ok(gives(r, "a first line|and a second|"));
	put(LOG, "we", "new\n", 4);
	ok(gives(r, "new|") && r->end.truncated);
	ok(gives(r, "") && !r->end.truncated);

	/* copytruncate, and soon longer than it was: the rest is in the copy */
	put("/log/ipamd.log.1", "we", "new\nrest\n", 9);
	put(LOG, "we", "a much longer first line than before\n", 37);
	ok(gives(r, "rest|a much longer first line than before|"));
	ok(r->end.truncated && r->end.rotated && !r->end.skipped);

	/* a writer that keeps its place leaves a hole */
	if (truncate(full(LOG), 0) < 0 || truncate(full(LOG), 300000) < 0)
		printf("# cannot truncate\n");
	append(LOG, "behind the hole\n");
	ok(gives(r, "behind the hole|") && r->end.truncated);
}

static usec_t time_of(const char *line, size_t len)
{
	usec_t at = 0;

	for (size_t i = 0; i < len && line[i] >= '0' && line[i] <= '9'; i++)
		at = at * 10 + (usec_t) (line[i] - '0');
	return at * USEC_PER_SEC;
}

static void test_since(struct reader *r)
{
	const time_t day = 1790000000;

	begin(r);
	append("/log/ipamd.log.2", "100 too old\n");
	touch("/log/ipamd.log.2", day - 100);
	put_gzip("/log/ipamd.log.1.gz", "w", "400 old\nold too\n500 in\nand this\n", 33);
	append(LOG, "600 last\n");
	r->query.time_of = time_of;
	r->query.since_realtime = 500 * USEC_PER_SEC;
	touch("/log/ipamd.log.2", 499);
	touch("/log/ipamd.log.1.gz", 502);
	ok(gives(r, "500 in|and this|600 last|") && !r->end.rotated && !r->end.skipped);
	ok(gives(r, ""));
	append(LOG, "300 a clock that went back\n");
	ok(gives(r, "300 a clock that went back|")); /* new is new */

	/* all there is, oldest first */
	r->where = (struct tail){0};
	r->query.since_realtime = 0;
	ok(gives(r, "100 too old|400 old|old too|500 in|and this|600 last|300 a clock that went "
	            "back|"));
}

/* Lines of 100 bytes, one a second, from second 1 on. */
static void put_many(unsigned n, unsigned with_time)
{
	FILE *f = fopen(full(LOG), "we");

	for (unsigned i = 1; f && i <= n; i++) {
		if (i % with_time == 0)
			(void) fprintf(f, "%-99u\n", i);
		else
			(void) fprintf(f, "%99s\n", "-");
	}
	if (!f || fclose(f) != 0)
		printf("# cannot write\n");
}

static void test_search(struct reader *r)
{
	static const unsigned firsts[] = {1, 2, 12345, 50000, 99999, 100000};
	unsigned bad = 0;

	begin(r);
	put_many(100000, 1);
	r->query.time_of = time_of;
	for (size_t i = 0; i < ELEMENTS(firsts); i++) {
		r->where = (struct tail){0};
		r->query.since_realtime = firsts[i] * USEC_PER_SEC;
		look(r);
		if (r->lines != 100001 - firsts[i] ||
		    time_of(r->got, 10) != firsts[i] * USEC_PER_SEC ||
		    (firsts[i] > 20000 && r->end.bytes > (100001 - firsts[i]) * 100 + 262144))
			bad++;
	}
	ok(bad == 0);
	r->where = (struct tail){0};
	r->query.since_realtime = 100001 * USEC_PER_SEC;
	touch(LOG, 100002);
	ok(gives(r, ""));
	append(LOG, "x\n");
	ok(gives(r, "x|"));
	/* where few lines bear a time, or none does */
	put_many(20000, 7000);
	r->where = (struct tail){0};
	r->query.since_realtime = 14000 * USEC_PER_SEC;
	look(r);
	/* what stands before the first time may be new; what follows an old line is not */
	ok(r->lines == 6999 + 6001);
	put_many(20000, 30000);
	r->where = (struct tail){0};
	look(r);
	ok(r->lines == 20000);
}

static void test_steps(struct reader *r)
{
	struct tail_read *t = NULL;
	size_t first;

	begin(r);
	put_many(100000, 1);
	/* dropped half-way: nothing twice, nothing lost */
	ok(start(r, &t) == 0 && r->lines == 0);
	while (r->lines < 20000 && !r->done)
		(void) sd_event_run(r->event, USEC_PER_SEC);
	t = tail_read_free(t);
	first = r->lines;
	ok(!r->done && first >= 20000 && first < 100000);
	look(r);
	ok(r->lines == 100000 - first && r->end.error == 0 && !r->end.skipped);
	ok(time_of(r->got, 10) == (first + 1) * USEC_PER_SEC);
	printf("# the loop was held %llu us at most\n", (unsigned long long) r->worst);
}

/* The same in the middle of an archive. */
static void test_archive_steps(struct reader *r)
{
	static char text[5000001];
	struct tail_read *t = NULL;
	size_t first;

	begin(r);
	for (unsigned i = 0; i < 50000; i++)
		(void) snprintf(text + (size_t) i * 100, 101, "%-99u\n", i + 1);
	put_gzip("/log/ipamd.log.1.gz", "w", text, sizeof(text) - 1);
	append(LOG, "50001\n");
	ok(start(r, &t) == 0);
	while (r->lines < 20000 && !r->done)
		(void) sd_event_run(r->event, USEC_PER_SEC);
	t = tail_read_free(t);
	first = r->lines;
	move("/log/ipamd.log.1.gz", "/log/ipamd.log.2.gz");
	append("/log/ipamd.log.1", "between\n");
	look(r);
	ok(first >= 20000 && first < 50000 && r->lines == 50002 - first && r->end.error == 0);
	ok(time_of(r->got, 10) == (first + 1) * USEC_PER_SEC && !r->end.skipped);
	printf("# the loop was held %llu us at most\n", (unsigned long long) r->worst);
}

static void test_disk(struct reader *r)
{
	usec_t before;

	begin(r);
	put_many(10000, 1);
	disk.silent = 3;
	look(r);
	ok(r->lines == 10000 && r->end.error == 0 && disk.silent == 0);
	append(LOG, "more\n");
	disk.silent = 100000;
	before = clock_boottime();
	look(r);
	ok(r->end.error == -ETIMEDOUT && r->lines == 0 && r->done == 1);
	ok(clock_boottime() - before < 10 * USEC_PER_SEC && disk.silent > 99900);
	disk.silent = 2; /* it has come back, and nothing was lost */
	ok(gives(r, "more|") && !r->end.rotated && !r->end.skipped);
	disk.old = true;
	r->where = (struct tail){0};
	disk.asked = 0;
	look(r);
	ok(r->lines == 10001 && r->end.error == 0 && disk.asked > 0);
	disk.old = false;
}

static void test_bad(struct reader *r)
{
	struct tail_read *t = NULL;
	char path[5000];

	begin(r);
	(void) mkdir(full(LOG), 0755);
	look(r);
	ok(r->end.error == -EISDIR && r->lines == 0);
	begin(r);
	ok(mkfifo(full(LOG), 0644) == 0);
	look(r);
	ok(r->end.error == -EBADF);
	begin(r);
	append("/log/there", "x\n");
	ok(symlink("there", full(LOG)) == 0 && gives(r, "x|"));
	r->query.path = "/nowhere/ipamd.log";
	r->where = (struct tail){0};
	look(r);
	ok(r->end.error == -ENOENT && r->done == 1);
	r->where.begun = true;
	look(r);
	ok(r->end.error == -ENOENT && r->done == 1);
	memset(path, 'a', sizeof(path) - 1);
	path[0] = '/';
	path[sizeof(path) - 1] = 0;
	r->query.path = path;
	ok(start(r, &t) == -ENAMETOOLONG && !t);
}

int main(void)
{
	struct reader *r = calloc(1, sizeof(*r));

	(void) text_format(base, sizeof(base), "/tmp/tail-test-XXXXXX");
	if (!r || !mkdtemp(base) || files_new(&r->files, base) < 0 || sd_event_new(&r->event) < 0)
		return 1;
	test_lines(r);
	test_rotation(r);
	test_logrotate(r);
	test_truncation(r);
	test_since(r);
	test_search(r);
	test_steps(r);
	test_archive_steps(r);
	test_disk(r);
	test_bad(r);
	(void) nftw(base, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	sd_event_unref(r->event);
	files_free(r->files);
	free(r);
	return done();
}
