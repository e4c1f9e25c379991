/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/syscall.h>

#include "file.h"

enum { ENTRIES_MAX = 65536, READ_FIRST = 4096 };

struct files {
	int fd; /* O_PATH of the root */
	bool host;
	char root[PATH_MAX]; /* "" for "/" */
};

static int is_real_root(int fd)
{
	struct stat here, real;

	if (fstat(fd, &here) < 0 || stat("/", &real) < 0)
		return -errno;
	return here.st_dev == real.st_dev && here.st_ino == real.st_ino;
}

int files_new(struct files **ret, const char *root)
{
	_cleanup_(freep) struct files *f = calloc(1, sizeof(*f));
	_cleanup_(closep) int fd = -1;
	size_t n;
	int r;

	if (!f)
		return -ENOMEM;
	fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = is_real_root(fd);
	if (r < 0)
		return r;
	f->host = r;
	if (!f->host) {
		n = strlen(root);
		while (n > 1 && root[n - 1] == '/')
			n--;
		if (n >= sizeof(f->root))
			return -ENAMETOOLONG;
		memcpy(f->root, root, n);
	}
	f->fd = TAKE_FD(fd);
	*ret = TAKE(f);
	return 0;
}

struct files *files_free(struct files *f)
{
	if (f)
		(void) close(f->fd);
	free(f);
	return NULL;
}

bool files_is_host(const struct files *f)
{
	return f->host;
}

const char *files_root(const struct files *f)
{
	return f->root;
}

/* What comes after prefix when path is prefix or lies below it, else NULL. */
static const char *below(const char *path, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(path, prefix, n) == 0 && (!path[n] || path[n] == '/') ? path + n : NULL;
}

/* Below a foreign root "self" would be this process, or nobody: its init's view is meant. */
static int translate(const struct files *f, const char *path, char ret[static PATH_MAX])
{
	const char *rest, *instead = "";
	int n;

	while (*path == '/')
		path++;
	if (!f->host && (rest = below(path, "proc/self"))) {
		instead = "proc/1";
		path = rest;
	} else if (!f->host && (rest = below(path, "proc/net"))) {
		instead = "proc/1/net";
		path = rest;
	}
	if (!*instead && !*path)
		path = ".";
	n = snprintf(ret, PATH_MAX, "%s%s", instead, path);
	return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

/* On the real root the kernel's own look-up is already confined to it, so that openat(2) does and
 * kernels or filters without openat2(2) are no obstacle. Below another root only RESOLVE_IN_ROOT
 * keeps absolute and climbing links inside; without it nothing is opened at all: -ENOSYS. */
static int open_below(const struct files *f, const char *path, int flags)
{
	char p[PATH_MAX];
	struct open_how how = {
		.flags = (uint64_t) (flags | O_CLOEXEC),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd, r;

	r = translate(f, path, p);
	if (r < 0)
		return r;
	for (int tries = 0; tries < 8; tries++) {
		if (f->host)
			fd = openat(f->fd, p, flags | O_CLOEXEC);
		else
			fd = (int) syscall(SYS_openat2, f->fd, p, &how, sizeof(how));
		/* EAGAIN: something was renamed during the walk and ".." could not be judged */
		if (fd >= 0 || (errno != EINTR && errno != EAGAIN))
			break;
	}
	return fd >= 0 ? fd : -errno;
}

int file_open(const struct files *f, const char *path, int flags)
{
	/* openat2 refuses what O_PATH has no use for */
	int more = flags & O_PATH ? 0 : O_NONBLOCK | O_NOCTTY;

	return open_below(f, path, (flags & ~O_ACCMODE) | O_RDONLY | more);
}

int file_stat(const struct files *f, const char *path, struct stat *ret)
{
	_cleanup_(closep) int fd = open_below(f, path, O_PATH);

	if (fd < 0)
		return fd;
	return fstat(fd, ret) < 0 ? -errno : 0;
}

int file_statvfs(const struct files *f, const char *path, struct statvfs *ret)
{
	_cleanup_(closep) int fd = open_below(f, path, O_PATH);

	if (fd < 0)
		return fd;
	return fstatvfs(fd, ret) < 0 ? -errno : 0;
}

static int open_regular(const struct files *f, const char *path, size_t *ret_size)
{
	_cleanup_(closep) int fd = file_open(f, path, 0);
	struct stat st;

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (!S_ISREG(st.st_mode))
		return -EBADF; /* a FIFO, socket or device: reading it could wait or do things */
	*ret_size = st.st_size > 0 ? (size_t) st.st_size : 0;
	return TAKE_FD(fd);
}

static ssize_t read_some(int fd, void *buf, size_t size)
{
	ssize_t n;

	do
		n = read(fd, buf, size);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* st_size is a hint only: it is 0 in /proc, 4096 in /sys, and a log grows while it is read. */
int file_read(const struct files *f, const char *path, size_t max, char **ret, size_t *ret_len)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(freep) char *buf = NULL;
	size_t hint = 0, size, len = 0;

	if (max > SIZE_MAX / 4)
		return -EINVAL;
	fd = open_regular(f, path, &hint);
	if (fd < 0)
		return fd;
	size = hint ? hint : READ_FIRST;
	if (size > max)
		size = max;
	size += 2; /* the NUL, and one byte more that tells a longer file from one that ends here */
	for (;;) {
		char *bigger = !buf || len + 1 == size ? realloc(buf, buf ? size *= 2 : size) : buf;
		ssize_t n;

		if (!bigger)
			return -ENOMEM;
		buf = bigger;
		n = read_some(fd, buf + len, size - len - 1);
		if (n < 0)
			return (int) n;
		if (n == 0)
			break;
		len += (size_t) n;
		if (len > max)
			return -EFBIG;
	}
	buf[len] = 0;
	*ret = TAKE(buf);
	if (ret_len)
		*ret_len = len;
	return 0;
}

int file_read_line(const struct files *f, const char *path, char *ret, size_t size)
{
	_cleanup_(closep) int fd = -1;
	char line[READ_FIRST] = "", *start;
	size_t hint = 0, len = 0;

	fd = open_regular(f, path, &hint);
	if (fd < 0)
		return fd;
	while (len < sizeof(line) - 1 && !memchr(line, '\n', len)) {
		ssize_t n = read_some(fd, line + len, sizeof(line) - 1 - len);

		if (n < 0)
			return (int) n;
		if (n == 0)
			break;
		len += (size_t) n;
	}
	line[len] = 0;
	line[strcspn(line, "\n")] = 0;
	start = text_trim(line);
	if (strlen(start) >= size)
		return -EFBIG;
	memcpy(ret, start, strlen(start) + 1);
	return 0;
}

/* Keeps the names sorted; of more than fit the first in order stay, as whoever asks wants those. */
static void names_add(struct names *s, const char *name)
{
	size_t low = 0, high = s->n;

	if (s->n == NAMES_MAX) {
		s->more = true;
		if (strcmp(name, s->name[NAMES_MAX - 1]) >= 0)
			return;
		s->n--;
		high--;
	}
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (strcmp(s->name[mid], name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	memmove(s->name[low + 1], s->name[low], (s->n - low) * sizeof(s->name[0]));
	memcpy(s->name[low], name, strlen(name) + 1);
	s->n++;
}

int file_each(const struct files *f, const char *dir,
              bool (*each)(const char *name, void *userdata), void *userdata)
{
	int fd = file_open(f, dir, O_DIRECTORY), r = 0;
	DIR *d;

	if (fd < 0)
		return fd;
	d = fdopendir(fd);
	if (!d) {
		r = -errno;
		(void) close(fd);
		return r;
	}
	for (size_t seen = 0; seen < ENTRIES_MAX; seen++) {
		struct dirent *e;

		errno = 0;
		/* readdir_r() is deprecated, and there is one thread. */
		/* cppcheck-suppress readdirCalled */
		e = readdir(d);
		if (!e) {
			r = -errno;
			break;
		}
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
		    !each(e->d_name, userdata))
			break;
	}
	(void) closedir(d);
	return r;
}

struct listing {
	struct names *names;
	size_t seen;
};

static bool list_name(const char *name, void *userdata)
{
	struct listing *l = userdata;

	/* one less than file_each() reads, so that what was left out is seen */
	if (++l->seen == ENTRIES_MAX - 2) {
		l->names->more = true;
		return false;
	}
	if (strlen(name) < NAME_BYTES_MAX)
		names_add(l->names, name);
	return true;
}

int file_list(const struct files *f, const char *dir, struct names *ret)
{
	struct listing l = {.names = ret};

	ret->n = 0;
	ret->more = false;
	return file_each(f, dir, list_name, &l);
}

int file_read_end(const struct files *f, const char *path, size_t max, char **ret, size_t *ret_len)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(freep) char *buf = NULL;
	size_t size = 0, len = 0;
	off_t at;

	if (max > SIZE_MAX / 4)
		return -EINVAL;
	fd = open_regular(f, path, &size);
	if (fd < 0)
		return fd;
	at = size > max ? (off_t) (size - max) : 0;
	buf = malloc(max + 1);
	if (!buf)
		return -ENOMEM;
	while (len < max) {
		ssize_t n = pread(fd, buf + len, max - len, at + (off_t) len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t) n;
	}
	buf[len] = 0;
	*ret = TAKE(buf);
	*ret_len = len;
	return 0;
}

/* Opens the directory that holds path; *ret_name points to the last part, in path. */
static int open_parent(const struct files *f, const char *path, const char **ret_name)
{
	const char *slash = strrchr(path, '/');
	char parent[PATH_MAX];
	size_t n;

	if (!slash || !slash[1] || strcmp(slash + 1, ".") == 0 || strcmp(slash + 1, "..") == 0)
		return -EINVAL;
	n = (size_t) (slash - path);
	if (n >= sizeof(parent))
		return -ENAMETOOLONG;
	memcpy(parent, path, n);
	parent[n] = 0;
	*ret_name = slash + 1;
	return open_below(f, parent, O_PATH | O_DIRECTORY);
}

static int write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		data += n;
		len -= (size_t) n;
	}
	return 0;
}

static int write_new(int dir, const char *name, const void *data, size_t len, mode_t mode)
{
	int fd, r;

	fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	r = write_all(fd, data, len);
	if (r == 0 && fchmod(fd, mode) < 0)
		r = -errno;
	if (close(fd) < 0 && r == 0)
		r = -errno; /* some file systems refuse for want of space only here */
	return r;
}

/* No fsync: what is written so lives in /run, or may be lost in a crash without harm; the rename
 * alone keeps readers from seeing half a file. */
int file_replace(const struct files *f, const char *path, const void *data, size_t len, mode_t mode)
{
	_cleanup_(closep) int dir = -1;
	char temporary[NAME_MAX + 1];
	const char *name;
	int n, r;

	dir = open_parent(f, path, &name);
	if (dir < 0)
		return dir;
	/* A leading dot and a last ".tmp" keep *.prom and *.json collectors away from it. */
	n = snprintf(temporary, sizeof(temporary), ".%s.%d.tmp", name, (int) getpid());
	if (n < 0 || (size_t) n >= sizeof(temporary))
		return -ENAMETOOLONG;
	r = write_new(dir, temporary, data, len, mode);
	if (r == -EEXIST) { /* left by a predecessor with this pid that was killed in between */
		(void) unlinkat(dir, temporary, 0);
		r = write_new(dir, temporary, data, len, mode);
		if (r == -EEXIST)
			return r; /* not ours to remove a second time */
	}
	if (r == 0 && renameat(dir, temporary, dir, name) < 0)
		r = -errno;
	if (r < 0)
		(void) unlinkat(dir, temporary, 0);
	return r;
}

int file_mkdir(const struct files *f, const char *path, mode_t mode)
{
	_cleanup_(closep) int dir = -1;
	struct stat st;
	const char *name;

	dir = open_parent(f, path, &name);
	if (dir < 0)
		return dir;
	if (mkdirat(dir, name, mode) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int file_watches_left(void)
{
	_cleanup_(closep) int fd = -1, other = -1;

	if (geteuid() != 0)
		return -EPERM;
	fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (fd < 0 && errno == EMFILE) {
		other = eventfd(0, EFD_CLOEXEC); /* it may be our own limit of open files */
		return other < 0 ? -EAGAIN : -EMFILE;
	}
	if (fd < 0)
		return -errno;
	return inotify_add_watch(fd, "/", IN_DELETE_SELF) < 0 ? -errno : 0;
}
