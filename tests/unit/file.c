/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "../tap.h"
#include "file.h"

static char base[64];

static void put(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	(void) text_format(path, sizeof(path), "%s/%s", base, name);
	f = fopen(path, "we");
	if (f) {
		(void) fputs(text, f);
		(void) fclose(f);
	}
}

static void make_dir(const char *name)
{
	char path[256];

	(void) text_format(path, sizeof(path), "%s/%s", base, name);
	(void) mkdir(path, 0755);
}

static void make_link(const char *name, const char *target)
{
	char path[256];

	(void) text_format(path, sizeof(path), "%s/%s", base, name);
	ok(symlink(target, path) == 0);
}

static void test_read(const struct files *f)
{
	char *text = NULL, line[16], path[256];
	size_t len = 0;

	put("a", "hello\nworld\n");
	put("empty", "");
	ok(file_read(f, "/a", 64, &text, &len) == 0 && len == 12 &&
	   strcmp(text, "hello\nworld\n") == 0);
	free(text);
	ok(file_read(f, "/a", 12, &text, &len) == 0 && len == 12);
	free(text);
	ok(file_read(f, "/a", 11, &text, &len) == -EFBIG);
	ok(file_read(f, "/empty", 0, &text, &len) == 0 && len == 0 && text[0] == 0);
	free(text);
	ok(file_read(f, "/none", 64, &text, &len) == -ENOENT);
	ok(file_read(f, "/", 64, &text, &len) == -EISDIR);
	ok(file_read(f, "/a/b", 64, &text, &len) == -ENOTDIR);
	(void) text_format(path, sizeof(path), "%s/fifo", base);
	(void) mkfifo(path, 0644);
	ok(file_read(f, "/fifo", 64, &text, &len) == -EBADF); /* and returned at once */
	ok(file_read_line(f, "/a", line, sizeof(line)) == 0 && strcmp(line, "hello") == 0);
	ok(file_read_line(f, "/a", line, 5) == -EFBIG);
	ok(file_read_line(f, "/a", line, 6) == 0);
}

static void test_root(const struct files *f)
{
	char *text = NULL, line[16];
	struct stat st;

	put("etc/secret", "inside\n");
	make_link("absolute", "/etc/secret");
	make_link("climbing", "../../../../../../etc/secret");
	make_link("away", "/proc/self/status");
	make_link("loop", "loop");
	ok(file_read_line(f, "/absolute", line, sizeof(line)) == 0 && strcmp(line, "inside") == 0);
	ok(file_read_line(f, "/climbing", line, sizeof(line)) == 0 && strcmp(line, "inside") == 0);
	ok(file_read_line(f, "/../../etc/secret", line, sizeof(line)) == 0);
	ok(file_read(f, "/away", 4096, &text, NULL) == -ENOENT);
	ok(file_read(f, "/loop", 4096, &text, NULL) == -ELOOP);
	ok(file_stat(f, "/etc/secret", &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 7);
	ok(file_stat(f, "/etc/hostname", &st) == -ENOENT); /* never the real one instead */
	put("proc/1/status", "one\n");
	put("proc/1/net/snmp", "two\n");
	put("proc/selfish", "three\n");
	ok(file_read_line(f, "/proc/self/status", line, sizeof(line)) == 0 &&
	   strcmp(line, "one") == 0);
	ok(file_read_line(f, "/proc/net/snmp", line, sizeof(line)) == 0 &&
	   strcmp(line, "two") == 0);
	ok(file_read_line(f, "/proc/selfish", line, sizeof(line)) == 0);
}

enum { COUNT_LAST = 1 << 20 };

static bool count_name(const char *name, void *userdata)
{
	size_t *n = userdata;

	return name[0] != '.' && ++*n <= COUNT_LAST;
}

static void test_end(const struct files *f)
{
	char *text = NULL;
	size_t len = 0;

	put("log", "first\nsecond\n");
	ok(file_read_end(f, "/log", 7, &text, &len) == 0 && len == 7 &&
	   strcmp(text, "second\n") == 0);
	free(text);
	ok(file_read_end(f, "/log", 64, &text, &len) == 0 && len == 13 && text[len] == 0);
	free(text);
	ok(file_read_end(f, "/nolog", 64, &text, &len) == -ENOENT);
	ok(file_read_end(f, "/etc", 64, &text, &len) == -EISDIR);
}

static void test_list(const struct files *f)
{
	static struct names names;
	char name[32];
	bool sorted = true;
	size_t n = 0;

	make_dir("many");
	for (int i = 0; i < NAMES_MAX + 10; i++) {
		(void) text_format(name, sizeof(name), "many/%04d", (i * 7919) % (NAMES_MAX + 10));
		put(name, "");
	}
	ok(file_list(f, "/many", &names) == 0 && names.n == NAMES_MAX && names.more);
	for (size_t i = 0; i < names.n; i++) {
		(void) text_format(name, sizeof(name), "%04zu", i);
		sorted = sorted && strcmp(names.name[i], name) == 0;
	}
	ok(sorted); /* the first ones of all, though the directory gives them in any order */
	make_dir("few");
	put("few/b", "");
	put("few/B", "");
	put("few/.a", "");
	ok(file_list(f, "/few", &names) == 0 && names.n == 3 && !names.more);
	ok(strcmp(names.name[0], ".a") == 0 && strcmp(names.name[1], "B") == 0);
	ok(file_list(f, "/none", &names) == -ENOENT);
	ok(file_each(f, "/many", count_name, &n) == 0 && n > NAMES_MAX);
	n = COUNT_LAST;
	ok(file_each(f, "/many", count_name, &n) == 0 && n == COUNT_LAST + 1); /* stopped */
	ok(file_each(f, "/none", count_name, &n) == -ENOENT);
	ok(file_list(f, "/a", &names) == -ENOTDIR);
}

static bool is_alone(const struct files *f, const char *dir, const char *name)
{
	static struct names names;

	return file_list(f, dir, &names) == 0 && names.n == 1 && strcmp(names.name[0], name) == 0;
}

static void test_replace(const struct files *f)
{
	const struct rlimit none = {0, RLIM_INFINITY};
	char line[16], stale[64], link[512];
	struct rlimit before;
	struct stat st;

	make_dir("out");
	ok(file_replace(f, "/out/x", "one\n", 4, 0644) == 0);
	ok(file_stat(f, "/out/x", &st) == 0 && (st.st_mode & 07777) == 0644);
	ok(file_replace(f, "/out/x", "two\n", 4, 0600) == 0);
	ok(file_read_line(f, "/out/x", line, sizeof(line)) == 0 && strcmp(line, "two") == 0);
	ok(file_stat(f, "/out/x", &st) == 0 && (st.st_mode & 07777) == 0600);
	ok(is_alone(f, "/out", "x"));
	/* What a killed predecessor with the same pid left is no obstacle. */
	(void) text_format(stale, sizeof(stale), "out/.x.%d.tmp", (int) getpid());
	put(stale, "old");
	ok(file_replace(f, "/out/x", "three\n", 6, 0644) == 0 && is_alone(f, "/out", "x"));
	/* A file that cannot be written stays as it was, and nothing is left beside it. */
	(void) getrlimit(RLIMIT_FSIZE, &before);
	(void) setrlimit(RLIMIT_FSIZE, &none);
	ok(file_replace(f, "/out/x", "four\n", 5, 0644) == -EFBIG);
	(void) setrlimit(RLIMIT_FSIZE, &before);
	ok(is_alone(f, "/out", "x"));
	ok(file_read_line(f, "/out/x", line, sizeof(line)) == 0 && strcmp(line, "three") == 0);
	ok(file_replace(f, "/none/x", "", 0, 0644) == -ENOENT);
	ok(file_replace(f, "/out/", "", 0, 0644) == -EINVAL);
	ok(file_mkdir(f, "/out/dir", 0755) == 0 && file_mkdir(f, "/out/dir", 0755) == 0);
	ok(file_replace(f, "/out/dir", "", 0, 0644) == -EISDIR);
	ok(file_mkdir(f, "/out/x", 0755) == -ENOTDIR);
	(void) text_format(link, sizeof(link), "%s/out/elsewhere", files_root(f));
	ok(symlink("dir", link) == 0 && file_mkdir(f, "/out/elsewhere", 0755) == -ENOTDIR);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

static bool write_to(const char *path, const char *text)
{
	_cleanup_(closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t) strlen(text);
}

/* As root of a user namespace of its own, with limits of its own. 0 or the errno; -1: none to be
 * had here. */
static int left_with(const char *limit, bool no_files)
{
	const struct rlimit few = {0, 0};
	char map[32];
	int status;
	pid_t pid;

	(void) snprintf(map, sizeof(map), "0 %u 1", (unsigned) geteuid());
	pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWUSER) < 0 || !write_to("/proc/self/uid_map", map) ||
		    (limit && !write_to(limit, "0")))
			_exit(255);
		if (no_files && setrlimit(RLIMIT_NOFILE, &few) < 0)
			_exit(255);
		_exit(-file_watches_left());
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) ||
	    WEXITSTATUS(status) == 255)
		return -1;
	return WEXITSTATUS(status);
}

static void test_watches(void)
{
	int e = left_with(NULL, false);

	if (e < 0) {
		printf("# no user namespace to be had: inotify's limits are not tried\n");
		return;
	}
	ok(e == 0);
	ok(left_with("/proc/sys/user/max_inotify_instances", false) == EMFILE);
	ok(left_with("/proc/sys/user/max_inotify_watches", false) == ENOSPC);
	ok(left_with(NULL, true) == EAGAIN); /* that is our own limit */
}

int main(void)
{
	struct files *f = NULL, *host = NULL;
	char *text = NULL;
	size_t len = 0;

	(void) text_format(base, sizeof(base), "/tmp/file-test-XXXXXX");
	if (!mkdtemp(base))
		return 1;
	(void) signal(SIGXFSZ, SIG_IGN);
	make_dir("etc");
	make_dir("proc");
	make_dir("proc/1");
	make_dir("proc/1/net");
	ok(files_new(&f, base) == 0);
	if (!f)
		return done();
	ok(!files_is_host(f) && strcmp(files_root(f), base) == 0);
	test_read(f);
	test_root(f);
	test_list(f);
	test_end(f);
	test_replace(f);
	test_watches();
	ok(files_new(&host, "/") == 0 && files_is_host(host) && files_root(host)[0] == 0);
	ok(file_read(host, "/proc/self/status", 65536, &text, &len) == 0 && len > 100);
	free(text);
	ok(file_read(host, "/dev/null", 64, &text, &len) == -EBADF);
	files_free(host);
	host = NULL;
	ok(files_new(&host, "//.") == 0 && files_is_host(host));
	files_free(host);
	host = NULL;
	ok(files_new(&host, "/nowhere/at/all") == -ENOENT && !host);
	ok(files_free(f) == NULL && files_free(NULL) == NULL);
	(void) nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return done();
}
