/* SPDX-License-Identifier: Apache-2.0 */
/* Journals as systemd itself writes them, below a root of this test's own: systemd-journal-remote
 * takes entries with any time, boot and unit. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../tap.h"
#include "journal.h"

#define ID      "0123456789abcdef0123456789abcdef"
#define BOOT    "00112233445566778899aabbccddeeff"
#define EARLIER "ffeeddccbbaa99887766554433221100"
#define VAR     "/var/log/journal/" ID
#define RUN     "/run/log/journal/" ID

static const char remote[] = "/lib/systemd/systemd-journal-remote";
static char root[] = "/tmp/nodewhy-journal-XXXXXX";
static sd_event *event;
static struct files *files;

enum { SEEN_MAX = 64 };
struct seen {
	unsigned n, called, steps;
	struct journal_end end;
	struct {
		char message[64], unit[64], identifier[32];
		usec_t at;
		int priority;
	} lines[SEEN_MAX];
	unsigned free_after; /* lines: then it is enough; 0: never */
	struct journal_read *read;
	size_t longest;
};

static void path_of(char dst[static PATH_MAX], const char *path)
{
	(void) text_format(dst, PATH_MAX, "%s%s", root, path);
}

static void make_directory(const char *path)
{
	char whole[PATH_MAX];

	for (const char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
		path_of(whole, path);
		if (slash)
			whole[strlen(root) + (size_t) (slash - path)] = 0;
		(void) mkdir(whole, 0755);
		if (!slash)
			break;
	}
}

static void write_file(const char *path, const char *text)
{
	char whole[PATH_MAX];
	FILE *f;

	path_of(whole, path);
	f = fopen(whole, "we");
	if (f) {
		(void) fputs(text, f);
		(void) fclose(f);
	}
}

static bool run_command(const char *format, ...) _printf_(1, 2);
static bool run_command(const char *format, ...)
{
	char command[2 * PATH_MAX];
	va_list ap;

	va_start(ap, format);
	(void) text_vformat(command, sizeof(command), format, ap);
	va_end(ap);
	return system(command) == 0;
}

/* ---- writing ---- */

static FILE *writer_new(const char *file)
{
	char command[2 * PATH_MAX];

	(void) text_format(command, sizeof(command), "exec %s -o %s%s - 2>/dev/null >&2", remote,
	                   root, file);
	return popen(command, "we");
}

static void put_at(FILE *f, const char *boot, usec_t at)
{
	(void) fprintf(f, "__REALTIME_TIMESTAMP=%llu\n__MONOTONIC_TIMESTAMP=%llu\n_BOOT_ID=%s\n",
	               (unsigned long long) (UINT64_C(1700000000000000) + at),
	               (unsigned long long) at, boot);
}

static void put(FILE *f, usec_t at, const char *unit, const char *message)
{
	put_at(f, BOOT, at);
	(void) fprintf(f,
	               "_SYSTEMD_UNIT=%s\nMESSAGE=%s\nSYSLOG_IDENTIFIER=kubelet\nPRIORITY=6\n"
	               "_TRANSPORT=stdout\n_PID=900\n_HOSTNAME=ip-10-0-0-1\n\n",
	               unit, message);
}

static void put_init(FILE *f, usec_t at, const char *pid, const char *unit, const char *message)
{
	put_at(f, BOOT, at);
	(void) fprintf(f,
	               "_SYSTEMD_UNIT=init.scope\nUNIT=%s\nMESSAGE=%s\n"
	               "SYSLOG_IDENTIFIER=systemd\n_PID=%s\n\n",
	               unit, message, pid);
}

static void put_kernel(FILE *f, usec_t at, const char *message)
{
	put_at(f, BOOT, at);
	(void) fprintf(f, "_TRANSPORT=kernel\nMESSAGE=%s\nPRIORITY=3\n\n", message);
}

static void put_numbered(FILE *f, unsigned from, unsigned to)
{
	char text[32];

	for (unsigned i = from; i < to; i++) {
		(void) snprintf(text, sizeof(text), "line %u", i);
		put(f, (1 + i) * USEC_PER_SEC, "kubelet.service", text);
	}
}

/* ---- reading ---- */

static void on_line(const struct journal_entry *e, void *userdata)
{
	struct seen *s = userdata;

	if (s->n < SEEN_MAX) {
		(void) text_format(s->lines[s->n].message, 64, "%s", e->message);
		(void) text_format(s->lines[s->n].unit, 64, "%s", e->unit);
		(void) text_format(s->lines[s->n].identifier, 32, "%s", e->identifier);
		s->lines[s->n].at = e->at;
		s->lines[s->n].priority = e->priority;
	}
	if (e->len > s->longest)
		s->longest = e->len;
	s->n++;
	if (s->free_after && s->n == s->free_after)
		s->read = journal_read_free(s->read);
}

static void on_end(struct journal_read *r, const struct journal_end *e, void *userdata)
{
	struct seen *s = userdata;

	s->called++;
	s->end = *e;
}

static struct seen read_with(struct journal *j, const struct journal_query *q, char *cursor,
                             unsigned free_after)
{
	struct seen s = {.free_after = free_after};

	if (journal_read_new(&s.read, j, q, cursor, on_line, on_end, &s) < 0)
		return s;
	while (s.read && !s.called && s.steps++ < 100000)
		if (sd_event_run(event, 0) < 0)
			break;
	s.read = journal_read_free(s.read);
	return s;
}

static const char *const kubelet[] = {"kubelet.service", NULL};

static struct seen read_kubelet(struct journal *j, char *cursor)
{
	struct journal_query q = {.units = kubelet};

	return read_with(j, &q, cursor, 0);
}

/* A journal that is written asynchronously: until there is something. */
static struct seen wait_kubelet(struct journal *j, char *cursor, unsigned least)
{
	struct seen s = {0}, all = {0};

	for (int i = 0; i < 200 && all.n < least; i++) {
		s = read_kubelet(j, cursor);
		all.end = s.end;
		if (s.n == 0)
			(void) usleep(5000);
		for (unsigned k = 0; k < s.n && all.n < SEEN_MAX; k++)
			all.lines[all.n++] = s.lines[k];
	}
	return all;
}

static struct journal *open_journal(void)
{
	struct journal *j = NULL;

	ok(journal_new(&j, event, files, BOOT) == 0);
	return j;
}

static void test_absent(void)
{
	struct journal *j = open_journal();
	char cursor[JOURNAL_CURSOR_MAX] = "";

	ok(read_kubelet(j, cursor).end.error == -ENOENT); /* no machine id */
	write_file("/etc/machine-id", "uninitialized\n");
	ok(read_kubelet(j, cursor).end.error == -ENOENT);
	write_file("/etc/machine-id", ID "\n");
	ok(read_kubelet(j, cursor).end.error == -ENOENT); /* no directory */
	make_directory(VAR);
	ok(read_kubelet(j, cursor).end.error == -ENOENT);
	ok(!cursor[0]);
	j = journal_free(j);
	ok(journal_new(&j, event, files, "no boot id") == 0);
	ok(read_kubelet(j, cursor).end.error == -ENOENT);
	journal_free(j);
}

static void test_matches(void)
{
	FILE *f = writer_new(VAR "/system.journal");
	struct journal *j = open_journal();
	struct journal_query q = {
		.units = (const char *const[]){"kubelet.service", "containerd.service", NULL}};
	char cursor[JOURNAL_CURSOR_MAX] = "", other[JOURNAL_CURSOR_MAX] = "";
	struct seen s;

	put_at(f, EARLIER, 5000000);
	(void) fputs("_SYSTEMD_UNIT=kubelet.service\nMESSAGE=of an earlier boot\n\n", f);
	(void) fflush(f);
	for (int i = 0; i < 100 && !run_command("test -s %s" VAR "/system.journal", root); i++)
		(void) usleep(5000);
	s = read_kubelet(j, cursor);
	ok(s.called == 1 && s.end.error == -ENOENT && s.n == 0); /* none of this boot */
	put(f, 1000000, "kubelet.service", "first");
	put(f, 2000000, "sshd.service", "not asked for");
	put_init(f, 3000000, "1", "kubelet.service", "kubelet.service: Main process exited");
	put_init(f, 3500000, "77", "kubelet.service", "a liar");
	put_kernel(f, 4000000, "Out of memory");
	put(f, 5000000, "containerd.service", "of the other");
	put(f, 6000000, "kubelet.service", "last");
	(void) fflush(f);
	s = wait_kubelet(j, cursor, 3);
	ok(s.n == 3 && s.end.error == 0 && !s.end.more && !s.end.skipped);
	ok(strcmp(s.lines[0].message, "first") == 0 && s.lines[0].at == 1000000);
	ok(strcmp(s.lines[0].unit, "kubelet.service") == 0 && s.lines[0].priority == 6);
	ok(strcmp(s.lines[0].identifier, "kubelet") == 0);
	ok(strcmp(s.lines[1].message, "kubelet.service: Main process exited") == 0);
	ok(strcmp(s.lines[1].unit, "kubelet.service") == 0 && s.lines[1].priority == -1);
	ok(strcmp(s.lines[2].message, "last") == 0 && s.lines[2].at == 6000000);
	ok(strlen(cursor) > 20);
	s = read_kubelet(j, cursor);
	ok(s.called == 1 && s.n == 0 && s.end.error == 0);
	q.kernel = true;
	s = read_with(j, &q, other, 0);
	ok(s.n == 5 && strcmp(s.lines[2].message, "Out of memory") == 0 && !s.lines[2].unit[0]);
	ok(strcmp(s.lines[3].unit, "containerd.service") == 0);
	q.units = NULL;
	other[0] = 0;
	s = read_with(j, &q, other, 0);
	ok(s.n == 1 && s.lines[0].at == 4000000);
	q.kernel = false;
	ok(journal_read_new(&s.read, j, &q, other, on_line, on_end, &s) == -EINVAL);
	/* and what comes later, by the same cursor */
	put(f, 7000000, "kubelet.service", "new");
	(void) fflush(f);
	s = wait_kubelet(j, cursor, 1);
	ok(s.n == 1 && strcmp(s.lines[0].message, "new") == 0);
	(void) pclose(f);
	journal_free(j);
}

static void test_bounds(void)
{
	FILE *f = writer_new(VAR "/system.journal");
	struct journal *j = open_journal();
	struct journal_query q = {.units = kubelet, .entries_max = 4};
	char cursor[JOURNAL_CURSOR_MAX] = "", big[10000];
	struct seen s;

	put_numbered(f, 10, 20);
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	put(f, 50 * USEC_PER_SEC, "kubelet.service", big);
	(void) pclose(f);
	s = read_with(j, &q, cursor, 0); /* after what the test before left: 3 of it */
	ok(s.n == 4 && s.end.more);
	ok(strcmp(s.lines[3].message, "new") == 0);
	s = read_with(j, &q, cursor, 0);
	ok(s.n == 4 && s.end.more && strcmp(s.lines[0].message, "line 10") == 0);
	/* enough after two lines, then gone: the cursor stands behind the second */
	s = read_with(j, &q, cursor, 2);
	ok(s.n == 2 && !s.called && strcmp(s.lines[1].message, "line 15") == 0);
	q.entries_max = 0;
	s = read_with(j, &q, cursor, 0);
	ok(s.n == 5 && !s.end.more && strcmp(s.lines[0].message, "line 16") == 0);
	ok(s.longest == JOURNAL_MESSAGE_MAX - 1);
	/* without a cursor: the last so many seconds before now */
	make_directory("/proc");
	write_file("/proc/uptime", "50.30 99.00\n");
	cursor[0] = 0;
	q.newest_only = 35 * USEC_PER_SEC; /* now is 51 at most, so that 16 is the earliest */
	s = read_with(j, &q, cursor, 0);
	ok(s.n == 6 && s.lines[0].at == 16 * USEC_PER_SEC);
	cursor[0] = 0;
	q.newest_only = 500 * USEC_PER_SEC;
	ok(read_with(j, &q, cursor, 0).n == 15);
	/* a cursor that is none begins anew */
	(void) snprintf(cursor, sizeof(cursor), "nonsense");
	s = read_with(j, &q, cursor, 0);
	ok(s.n == 15 && s.end.error == 0);
	journal_free(j);
}

/* What /run had is in /var now, under other sequence numbers. */
static void test_moved(void)
{
	FILE *f;
	struct journal *j = open_journal();
	char cursor[JOURNAL_CURSOR_MAX] = "";
	struct seen s;

	ok(run_command("rm -rf %s/var/log/journal", root));
	make_directory(RUN);
	f = writer_new(RUN "/system.journal");
	put_numbered(f, 0, 10);
	(void) pclose(f);
	ok(read_kubelet(j, cursor).n == 10);
	make_directory(VAR);
	ok(read_kubelet(j, cursor).n == 0);
	f = writer_new(VAR "/system.journal");
	put_numbered(f, 0, 12);
	(void) pclose(f);
	ok(run_command("rm -rf %s/run/log/journal/*", root));
	s = read_kubelet(j, cursor);
	ok(s.n == 2 && !s.end.skipped && strcmp(s.lines[0].message, "line 10") == 0);
	/* rotated, and the oldest thrown away, before we had read it all */
	ok(run_command("rm %s" VAR "/system.journal", root));
	f = writer_new(VAR "/system.journal");
	put_numbered(f, 20, 22);
	(void) pclose(f);
	s = read_kubelet(j, cursor);
	ok(s.n == 2 && s.end.skipped && strcmp(s.lines[0].message, "line 20") == 0);
	/* rotated in place: the same lines under another name, new ones beside */
	ok(run_command("mv %s" VAR "/system.journal %s" VAR
	               "/system@0123456789abcdef0123456789abcdef-0000000000000001-"
	               "0005f0e0a0b0c0d0.journal",
	               root, root));
	f = writer_new(VAR "/system.journal");
	put_numbered(f, 22, 25);
	(void) pclose(f);
	s = read_kubelet(j, cursor);
	ok(s.n == 3 && !s.end.skipped && strcmp(s.lines[0].message, "line 22") == 0);
	ok(run_command("rm -rf %s/var/log/journal", root));
	s = read_kubelet(j, cursor);
	ok(s.end.error == -ENOENT && s.n == 0);
	journal_free(j);
}

/* Others get their turn while a large journal is read; readings do not disturb each other. */
static void test_large(void)
{
	FILE *f;
	struct journal *j = open_journal();
	struct journal_query q = {.units = kubelet};
	char cursor[JOURNAL_CURSOR_MAX] = "", other[JOURNAL_CURSOR_MAX] = "";
	struct seen a = {0}, b = {0};
	unsigned turns = 0;

	make_directory(VAR);
	f = writer_new(VAR "/system.journal");
	for (unsigned i = 0; i < 20000; i++)
		put(f, (1 + i) * 1000, i % 2 ? "kubelet.service" : "containerd.service", "x");
	(void) pclose(f);
	ok(journal_read_new(&a.read, j, &q, cursor, on_line, on_end, &a) == 0);
	q.units = (const char *const[]){"containerd.service", NULL};
	ok(journal_read_new(&b.read, j, &q, other, on_line, on_end, &b) == 0);
	ok(a.called == 0 && b.called == 0);
	while (!(a.called && b.called) && turns < 100000 && sd_event_run(event, 0) >= 0)
		turns++;
	ok(a.n == 10000 && b.n == 10000 && turns >= 100);
	journal_read_free(a.read);
	journal_read_free(b.read);
	/* freed with a reading under way: never told, and nothing is left in the loop */
	a = (struct seen){0};
	cursor[0] = 0;
	q.units = kubelet;
	ok(journal_read_new(&a.read, j, &q, cursor, on_line, on_end, &a) == 0);
	for (int i = 0; i < 20 && a.n == 0; i++)
		(void) sd_event_run(event, 0);
	ok(a.n > 0 && a.n < 10000);
	journal_free(j);
	for (int i = 0; i < 10; i++)
		(void) sd_event_run(event, 0);
	ok(a.called == 0);
	journal_read_free(a.read);
}

/* Bytes that were turned, and files cut short: lines may be lost, no more. */
static void test_corrupted(void)
{
	char path[PATH_MAX];
	struct stat st = {0};
	unsigned ended = 0, tries = 0;
	uint64_t random = 1;
	FILE *f;

	ok(run_command("rm -rf %s/var/log/journal", root));
	make_directory(VAR);
	f = writer_new(VAR "/system.journal");
	put_numbered(f, 0, 300);
	(void) pclose(f);
	path_of(path, VAR "/system.journal");
	ok(stat(path, &st) == 0 && run_command("mv %s %s/good", path, root));
	for (; tries < 120; tries++) {
		char cursor[JOURNAL_CURSOR_MAX] = "";
		struct journal *j = NULL;
		struct seen s;

		if (!run_command("cp %s/good %s", root, path))
			break;
		f = fopen(path, "r+e");
		for (int i = 0; f && i < 1 << tries % 9; i++) {
			random = hash_bytes(random, &i, sizeof(i));
			(void) fseek(f, (long) (random % (tries % 2 ? 400000 : 20000)), SEEK_SET);
			(void) fputc((int) (random >> 40 & 0xFF), f);
		}
		if (f)
			(void) fclose(f);
		if (tries % 5 == 0 && truncate(path, (off_t) (random % (uint64_t) st.st_size)) < 0)
			break;
		(void) journal_new(&j, event, files, BOOT);
		s = read_kubelet(j, cursor);
		ended += s.called == 1 && s.n <= 300;
		journal_free(j);
	}
	ok(tries == 120 && ended == tries);
}

static void test_denied(void)
{
	struct journal *j;
	char cursor[JOURNAL_CURSOR_MAX] = "";
	FILE *f;

	if (geteuid() != 0) {
		printf("ok %d - a journal for root only # SKIP needs root\n", ++tap_n);
		return;
	}
	ok(run_command("rm -rf %s/var/log/journal", root));
	make_directory(VAR);
	f = writer_new(VAR "/system.journal");
	put_numbered(f, 0, 3);
	(void) pclose(f);
	ok(run_command("chmod 755 %s && chmod 600 %s" VAR "/system.journal", root, root));
	j = open_journal();
	ok(seteuid(65534) == 0);
	ok(read_kubelet(j, cursor).end.error == -EACCES);
	ok(seteuid(0) == 0);
	ok(read_kubelet(j, cursor).n == 3);
	journal_free(j);
}

int main(void)
{
	(void) signal(SIGPIPE, SIG_IGN);
	if (access(remote, X_OK) < 0) {
		printf("1..0 # SKIP systemd-journal-remote is not installed\n");
		return 0;
	}
	ok(mkdtemp(root) && files_new(&files, root) == 0 && sd_event_new(&event) == 0);
	make_directory("/etc");
	test_absent();
	test_matches();
	test_bounds();
	test_moved();
	test_large();
	test_corrupted();
	test_denied();
	files_free(files);
	sd_event_unref(event);
	ok(run_command("rm -rf '%s'", root));
	return done();
}
