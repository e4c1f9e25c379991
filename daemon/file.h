/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Files of the host, below --root, bounded; symbolic links never leave the root. */

#include <sys/stat.h>
#include <sys/statvfs.h>

#include "util.h"

struct files;

enum { NAMES_MAX = 256, NAME_BYTES_MAX = 256 };
struct names {
	size_t n;
	bool more; /* there were more than NAMES_MAX */
	char name[NAMES_MAX][NAME_BYTES_MAX];
};

/* root is "/" or the DIR of --root. -ENOENT, -ENOTDIR … when it cannot be opened. */
int files_new(struct files **ret, const char *root);
struct files *files_free(struct files *f);
/* True when root is the real root, so that the process's own /proc/self and sockets are the host's.
 */
bool files_is_host(const struct files *f);
const char *files_root(const struct files *f); /* "" for "/" */

/* Reads a whole regular file of at most max bytes. *ret is malloc'ed and NUL-terminated. -EFBIG
 * when longer, -EISDIR, -ENOENT, -EACCES … */
int file_read(const struct files *f, const char *path, size_t max, char **ret, size_t *ret_len);
/* First line, trimmed, for one-value files of /proc and /sys. */
int file_read_line(const struct files *f, const char *path, char *ret, size_t size);
/* Entries without "." and "..", in lexical (byte) order. */
int file_list(const struct files *f, const char *dir, struct names *ret);
/* Hands over every entry, in no order, without the bound of file_list() and without its memory:
 * /proc. each() returns false to stop. */
int file_each(const struct files *f, const char *dir,
              bool (*each)(const char *name, void *userdata), void *userdata);
/* The last max bytes of a regular file, from wherever a line may have begun. */
int file_read_end(const struct files *f, const char *path, size_t max, char **ret, size_t *ret_len);
/* stat(2) of what the path resolves to below the root. */
int file_stat(const struct files *f, const char *path, struct stat *ret);
/* statvfs(3) of the file system that the path lies on. A local file system answers from memory; one
 * of the network may hang: not for those. */
int file_statvfs(const struct files *f, const char *path, struct statvfs *ret);
/* Opens for reading, O_CLOEXEC|O_NONBLOCK; the caller closes. Negative errno. */
int file_open(const struct files *f, const char *path, int flags);
/* Writes whole or not at all: a temporary name beside it, then rename. Directories are not made.
 * -ENOSPC, -EROFS … and the old file stays. */
int file_replace(const struct files *f, const char *path, const void *data, size_t len,
                 mode_t mode);
/* Makes one directory level below the root if it is not there. -ENOTDIR for a link, wherever it
 * leads: whoever may write beside us would choose where we write. */
int file_mkdir(const struct files *f, const char *path, mode_t mode);
/* Whether the kernel gives root one more inotify instance and one more watch. It tells nobody how
 * many there are: one is made and let go. 0; -EMFILE where the instances are at their limit,
 * -ENOSPC where the watches are; -EPERM where we are not root, as each user has a limit of its own;
 * another negative errno where it cannot be told. */
int file_watches_left(void);
