/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/uio.h>
#include <zlib.h>

#include "clock.h"
#include "observation.h"
#include "tail.h"

/* A reading is a row of small steps, each from the loop and at lowest priority: a step reads at
 * most BUFFER_BYTES and hands over lines for at most STEP_TIME.
 *
 * A log lies on a disk, and a disk can hang. What is not in the page cache is never waited for: the
 * kernel is told to fetch it (WILLNEED) and asked again later (RWF_NOWAIT), and a disk that has
 * brought nothing for PATIENCE ends the reading with -ETIMEDOUT. File systems that know no
 * RWF_NOWAIT are read plainly. Opening, stat and listing have no such form; the directory is in use
 * by the writer, so that its inodes are nearly always in memory. */

enum {
	BUFFER_BYTES = 131072,
	BUFFER_SMALL = 2 * TAIL_LINE_MAX, /* enough for what comes between two looks */
	INPUT_BYTES = 32768,
	HEAD_BYTES = 256,
	SOURCES_MAX = 24, /* lumberjack keeps 5 */
	SEARCH_ENDS = 65536,
	LINES_A_LOOK = 32, /* lines between two looks at the clock */
};

static const usec_t STEP_TIME = USEC_PER_MSEC, RETRY_FIRST = 2 * USEC_PER_MSEC,
		    RETRY_MOST = 100 * USEC_PER_MSEC, PATIENCE = USEC_PER_SEC;

enum kind { NUMBERED, DATED }; /* log.1 is younger than log.2; log-2026-08-20.log sorts by name */

/* A rotated sibling. */
struct source {
	char name[NAME_BYTES_MAX];
	uint64_t device, inode;
	usec_t modified;
	enum kind kind;
	uint64_t number;
	bool gzip;
};

struct stream {
	int fd;
	bool gzip, inflating, ended;
	uint64_t at;    /* of the next byte that comes out */
	uint64_t in_at; /* of the next byte of the compressed file */
	z_stream z;
	unsigned char *in;
};

enum phase { OPEN, CHECK, FIND, BEGIN, SEARCH, READ };

struct tail_read {
	sd_event_source *work, *retry;
	const struct files *files;
	struct tail_query query;
	char path[PATH_MAX];
	struct tail *where;
	tail_line_t line;
	tail_done_t done;
	void *userdata;
	struct tail_end end;
	enum phase phase;
	usec_t wait, waited;
	int current; /* the file of that name; -1 when there is none */
	uint64_t device, inode, size;
	struct source *sources; /* oldest first */
	size_t n_sources, next; /* the one to read next; n_sources: the current file */
	bool is_current, listed_again, vanished;
	struct stream stream;
	char *buffer;
	size_t size_of_buffer, len, pos; /* bytes in it; of them handed over */
	uint64_t low, high;              /* binary search: the first line wanted lies between */
	bool filter, old;                /* lines from before since_realtime are passed over */
};

/* ---- bytes of a file, plain or compressed ---- */

static void stream_close(struct stream *s)
{
	if (s->inflating)
		(void) inflateEnd(&s->z);
	free(s->in);
	closep(&s->fd);
	*s = (struct stream){.fd = -1};
}

static int stream_open(struct stream *s, int fd, bool gzip)
{
	stream_close(s);
	s->fd = fd;
	s->gzip = gzip;
	if (!gzip)
		return 0;
	s->in = malloc(INPUT_BYTES);
	if (!s->in || inflateInit2(&s->z, 15 + 16) != Z_OK)
		return stream_close(s), -ENOMEM;
	s->inflating = true;
	return 0;
}

static void stream_rewind(struct stream *s)
{
	s->at = s->in_at = 0;
	s->ended = false;
	if (s->inflating) {
		(void) inflateReset(&s->z);
		s->z.avail_in = 0;
	}
}

/* -EAGAIN: not in memory, and asked for. */
static ssize_t read_at(int fd, void *buf, size_t size, uint64_t at)
{
	struct iovec v = {.iov_base = buf, .iov_len = size};
	ssize_t n;

	if (at > INT64_MAX)
		return 0;
	do
		n = preadv2(fd, &v, 1, (off_t) at, RWF_NOWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN) {
		(void) posix_fadvise(fd, (off_t) at, (off_t) size, POSIX_FADV_WILLNEED);
		return -EAGAIN;
	}
	if (n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL))
		n = pread(fd, buf, size, (off_t) at);
	return n < 0 ? -errno : n;
}

/* gzip files may be several compressed parts in a row. */
static ssize_t inflate_some(struct stream *s, void *buf, size_t size)
{
	s->z.next_out = buf;
	s->z.avail_out = (uInt) size;
	while (s->z.avail_out == size && !s->ended) {
		int r;

		if (s->z.avail_in == 0) {
			ssize_t n = read_at(s->fd, s->in, INPUT_BYTES, s->in_at);

			if (n <= 0)
				return n;
			s->in_at += (uint64_t) n;
			s->z.next_in = s->in;
			s->z.avail_in = (uInt) n;
		}
		r = inflate(&s->z, Z_NO_FLUSH);
		if (r == Z_STREAM_END) {
			uInt left = s->z.avail_in;

			if (left > 0 && s->z.next_in[0] != 0x1f)
				s->ended = true; /* padding */
			else
				(void) inflateReset(&s->z);
		} else if (r != Z_OK && r != Z_BUF_ERROR) {
			return r == Z_MEM_ERROR ? -ENOMEM : -EBADMSG;
		}
	}
	return (ssize_t) (size - s->z.avail_out);
}

/* 0 at the end; -EAGAIN: later. */
static ssize_t stream_read(struct stream *s, void *buf, size_t size)
{
	ssize_t n = s->gzip ? inflate_some(s, buf, size) : read_at(s->fd, buf, size, s->at);

	if (n > 0)
		s->at += (uint64_t) n;
	return n;
}

/* Hash of the first bytes, at most max of them; leaves the stream at its start. */
static int stream_head(struct stream *s, uint32_t max, uint64_t *ret_hash, uint32_t *ret_len)
{
	char head[HEAD_BYTES];
	uint32_t len = 0;
	ssize_t n;

	stream_rewind(s);
	do {
		n = stream_read(s, head + len, max - len);
		if (n > 0)
			len += (uint32_t) n;
	} while (n > 0 && len < max);
	stream_rewind(s);
	if (n < 0)
		return (int) n;
	*ret_hash = hash_bytes(0, head, len);
	*ret_len = len;
	return 0;
}

/* ---- rotated siblings ---- */

/* Of "ipamd.log" these are: "ipamd-2026-08-20T10-00-00.000.log" (lumberjack), "ipamd.log.1",
 * "ipamd.log-20260820" (logrotate), each also with ".gz". */
static bool is_sibling(const char *base, const char *name, struct source *ret)
{
	size_t n = strlen(base), len = strlen(name), stem;
	const char *dot = strrchr(base, '.'), *rest;
	char *end;

	ret->gzip = len > 3 && strcmp(name + len - 3, ".gz") == 0;
	if (ret->gzip)
		len -= 3;
	stem = dot && dot != base ? (size_t) (dot - base) : n;
	if (strncmp(name, base, n) == 0 && (name[n] == '.' || name[n] == '-')) {
		rest = name + n + 1;
		ret->kind = name[n] == '.' ? NUMBERED : DATED;
	} else if (stem < n && strncmp(name, base, stem) == 0 && name[stem] == '-' && len > n + 1 &&
	           strncmp(name + len - (n - stem), dot, n - stem) == 0) {
		rest = name + stem + 1;
		ret->kind = DATED;
	} else {
		return false;
	}
	if (!isdigit((unsigned char) *rest))
		return false;
	ret->number = strtoull(rest, &end, 10);
	if (ret->kind == NUMBERED && end != name + len)
		ret->kind = DATED;
	memcpy(ret->name, name, strlen(name) + 1);
	return true;
}

static bool is_older(const struct source *a, const struct source *b)
{
	if (a->kind != b->kind)
		return a->kind < b->kind;
	return a->kind == NUMBERED ? a->number > b->number : strcmp(a->name, b->name) < 0;
}

/* While a file is being compressed both it and the compressed one are there; and what was last
 * written before the time that is asked for is of no use. */
static bool is_wanted(const struct names *names, const struct source *s, usec_t since)
{
	size_t n = strlen(s->name) - 3;

	if (s->modified < since)
		return false;
	for (size_t i = 0; s->gzip && i < names->n; i++)
		if (strncmp(names->name[i], s->name, n) == 0 && !names->name[i][n])
			return false;
	return true;
}

static void keep_source(struct tail_read *t, const struct source *s)
{
	size_t i = 0;

	while (i < t->n_sources && is_older(&t->sources[i], s))
		i++;
	if (t->n_sources == SOURCES_MAX) { /* the oldest makes room */
		if (i == 0)
			return;
		memmove(&t->sources[0], &t->sources[1], --i * sizeof(*s));
		t->n_sources--;
	}
	memmove(&t->sources[i + 1], &t->sources[i], (t->n_sources - i) * sizeof(*s));
	t->sources[i] = *s;
	t->n_sources++;
}

static void sibling_path(const struct tail_read *t, const char *name, char ret[static PATH_MAX])
{
	const char *slash = strrchr(t->path, '/');

	(void) snprintf(ret, PATH_MAX, "%.*s/%s", slash ? (int) (slash - t->path) : 0, t->path,
	                name);
}

static int list_sources(struct tail_read *t, usec_t since)
{
	_cleanup_(freep) struct names *names = malloc(sizeof(*names));
	const char *slash = strrchr(t->path, '/');
	char path[PATH_MAX];
	struct stat st;
	int r;

	if (!t->sources)
		t->sources = malloc(SOURCES_MAX * sizeof(*t->sources));
	if (!names || !t->sources)
		return -ENOMEM;
	t->n_sources = t->next = 0;
	t->vanished = false;
	sibling_path(t, "", path);
	r = file_list(t->files, path, names);
	if (r < 0)
		return r;
	for (size_t i = 0; i < names->n; i++) {
		struct source s = {0};

		if (!is_sibling(slash ? slash + 1 : t->path, names->name[i], &s))
			continue;
		sibling_path(t, s.name, path);
		if (file_stat(t->files, path, &st) < 0 || !S_ISREG(st.st_mode)) {
			t->vanished = true;
			continue;
		}
		s.device = st.st_dev;
		s.inode = st.st_ino;
		s.modified = (usec_t) st.st_mtim.tv_sec * USEC_PER_SEC;
		if (is_wanted(names, &s, since / USEC_PER_SEC * USEC_PER_SEC))
			keep_source(t, &s);
	}
	return 0;
}

/* ---- which file, and where in it ---- */

static int open_source(struct tail_read *t, const struct source *s)
{
	char path[PATH_MAX];
	int fd;

	sibling_path(t, s->name, path);
	fd = file_open(t->files, path, 0);
	return fd < 0 ? fd : stream_open(&t->stream, fd, s->gzip);
}

static void empty_buffer(struct tail_read *t)
{
	t->len = t->pos = 0;
}

static int step_open(struct tail_read *t)
{
	const struct tail *w = t->where;
	struct stat st;

	t->current = file_open(t->files, t->path, 0);
	t->next = t->n_sources = 0;
	if (t->current < 0) {
		t->end.error = t->current;
		if (!w->begun)
			return 1;
		t->phase = FIND;
		return list_sources(t, 0);
	}
	if (fstat(t->current, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -EBADF;
	t->device = st.st_dev;
	t->inode = st.st_ino;
	t->size = (uint64_t) st.st_size;
	t->end.modified = (usec_t) st.st_mtim.tv_sec * USEC_PER_SEC;
	if (!w->begun) {
		t->phase = BEGIN;
		t->filter = t->query.since_realtime && t->query.time_of;
		return list_sources(t, t->query.since_realtime);
	}
	t->phase = w->device == t->device && w->inode == t->inode ? CHECK : FIND;
	t->end.truncated = t->phase == CHECK && t->size < w->offset;
	if (!t->end.truncated && t->phase == CHECK)
		return stream_open(&t->stream, TAKE_FD(t->current), false);
	t->phase = FIND;
	return list_sources(t, 0);
}

/* Is what was read last time the start of this file? */
static int is_the_same(struct tail_read *t, bool *ret)
{
	const struct tail *w = t->where;
	uint64_t hash;
	uint32_t len;
	int r;

	r = stream_head(&t->stream, w->head_len, &hash, &len);
	if (r == 0)
		*ret = len == w->head_len && hash == w->head;
	return r;
}

static int step_check(struct tail_read *t)
{
	bool same = true;
	int r;

	if (t->where->head_len > 0) {
		r = is_the_same(t, &same);
		if (r < 0)
			return r;
	}
	t->is_current = true;
	if (!same) {
		t->current = TAKE_FD(t->stream.fd);
		stream_close(&t->stream);
		t->end.truncated = true;
		t->phase = FIND;
		t->is_current = false;
		return list_sources(t, 0);
	}
	if (t->size == t->where->offset)
		return 1; /* nothing new */
	t->stream.at = t->where->offset;
	t->phase = READ;
	return 0;
}

/* Not found among all: perhaps one was just being renamed or compressed. */
static int not_found(struct tail_read *t)
{
	if (t->vanished && !t->listed_again) {
		t->listed_again = true;
		return list_sources(t, 0);
	}
	t->end.skipped = true;
	t->where->cut = false;
	t->next = t->n_sources;
	t->phase = BEGIN;
	return 0;
}

/* One sibling a step, the youngest first: is it what we were reading? n_sources - next is what was
 * tried. */
static int step_find(struct tail_read *t)
{
	const struct tail *w = t->where;
	const struct source *s;
	bool same = false;
	int r = 0;

	if (t->next == t->n_sources)
		return not_found(t);
	s = &t->sources[t->n_sources - 1 - t->next];
	if (w->head_len == 0)
		same = s->device == w->device && s->inode == w->inode;
	if (t->stream.fd < 0 && (same || w->head_len > 0))
		r = open_source(t, s);
	if (r == 0 && w->head_len > 0)
		r = is_the_same(t, &same);
	if (r == -EAGAIN || r == -ENOMEM || errno_is_ours(r))
		return r;
	if (r == -ENOENT)
		t->vanished = true;
	if (r < 0 || !same) {
		stream_close(&t->stream);
		t->next++;
		return 0;
	}
	t->end.rotated = true;
	t->next = t->n_sources - t->next; /* what follows it comes after it */
	if (!t->stream.gzip)
		t->stream.at = w->offset;
	t->phase = READ;
	return 0;
}

static int open_next(struct tail_read *t, uint64_t *ret_device, uint64_t *ret_inode)
{
	const struct source *s;

	if (t->next < t->n_sources) {
		s = &t->sources[t->next];
		*ret_device = s->device;
		*ret_inode = s->inode;
		return open_source(t, s);
	}
	t->is_current = true;
	*ret_device = t->device;
	*ret_inode = t->inode;
	return stream_open(&t->stream, TAKE_FD(t->current), false);
}

/* The next file in the row, from its start. 1: there is none. */
static int step_begin(struct tail_read *t)
{
	struct tail w = {.begun = true};
	struct stat st;
	int r = 0;

	if (t->next == t->n_sources && t->current < 0 && t->stream.fd < 0)
		return 1;
	w.device = t->where->device;
	w.inode = t->where->inode;
	if (t->stream.fd < 0)
		r = open_next(t, &w.device, &w.inode);
	else if (fstat(t->stream.fd, &st) == 0)
		w.device = st.st_dev, w.inode = st.st_ino;
	/* an archive is whole; what is not yet read of another file may still change */
	if (r == 0 && t->stream.gzip)
		r = stream_head(&t->stream, HEAD_BYTES, &w.head, &w.head_len);
	if (r == -EAGAIN || r == -ENOMEM || errno_is_ours(r) || (r < 0 && t->is_current))
		return r;
	t->next++;
	if (r < 0) { /* this sibling cannot be read: the others can */
		t->end.skipped = true;
		stream_close(&t->stream);
		return 0;
	}
	*t->where = w;
	empty_buffer(t);
	t->low = 0;
	t->high = t->is_current ? t->size : 0;
	if (!t->stream.gzip && !t->is_current && fstat(t->stream.fd, &st) == 0)
		t->high = (uint64_t) st.st_size;
	t->phase = t->filter && !t->stream.gzip ? SEARCH : READ;
	return 0;
}

/* ---- lines ---- */

/* The first file read decides: when it is the current one, nothing else follows. */
static int make_buffer(struct tail_read *t)
{
	uint64_t at = t->where->offset;
	bool little = t->is_current && t->size >= at && t->size - at < BUFFER_SMALL;

	if (t->buffer)
		return 0;
	t->size_of_buffer = little ? BUFFER_SMALL : BUFFER_BYTES;
	t->buffer = malloc(t->size_of_buffer);
	return t->buffer ? 0 : -ENOMEM;
}

/* The first line of the window that has a time. */
static usec_t time_in(const struct tail_read *t, size_t len, size_t *ret_at)
{
	const char *end = t->buffer + len, *newline = memchr(t->buffer, '\n', len);

	while (newline) {
		const char *line = newline + 1;
		usec_t at;

		newline = memchr(line, '\n', (size_t) (end - line));
		at = newline ? t->query.time_of(line, (size_t) (newline - line)) : 0;
		if (at) {
			*ret_at = (size_t) (line - t->buffer);
			return at;
		}
	}
	return 0;
}

/* Halves the part of the file in which the first line wanted lies. Lines that bear no time end the
 * search: what is left is read. */
static int step_search(struct tail_read *t)
{
	uint64_t middle = t->low + (t->high - t->low) / 2;
	size_t at = 0;
	usec_t time;
	ssize_t n;
	int r;

	r = make_buffer(t);
	if (r < 0)
		return r;
	if (t->high - t->low > SEARCH_ENDS) {
		t->stream.at = middle;
		n = stream_read(&t->stream, t->buffer, BUFFER_SMALL);
		if (n < 0)
			return (int) n;
		time = time_in(t, (size_t) n, &at);
		if (time && time < t->query.since_realtime)
			t->low = middle + at;
		else
			t->high = middle;
		if (time)
			return 0;
	}
	t->stream.at = t->where->offset = t->low;
	t->old = t->low > 0;
	t->phase = READ;
	return 0;
}

/* A line is old when it says so, or when it says nothing and the one before it was. */
static bool passed_over(struct tail_read *t, const char *line, size_t len)
{
	usec_t time;

	if (!t->filter)
		return false;
	time = t->query.time_of(line, len);
	if (time)
		t->old = t->filter = time < t->query.since_realtime;
	return t->old;
}

static void hand_over(struct tail_read *t, const char *line, size_t len)
{
	if (passed_over(t, line, len))
		return;
	t->end.lines++;
	t->line(line, len > TAIL_LINE_MAX ? TAIL_LINE_MAX : len, t->userdata);
}

static void consume(struct tail_read *t, size_t n)
{
	t->pos += n;
	t->where->offset += n;
}

/* One line out of the buffer; false when there is no whole one. */
static bool take_line(struct tail_read *t)
{
	const char *line, *newline;
	size_t left;

	/* a file that was cut while its writer kept its place begins with a hole */
	while (!t->where->cut && t->pos < t->len && !t->buffer[t->pos])
		consume(t, 1);
	line = t->buffer + t->pos;
	left = t->len - t->pos;
	newline = left ? memchr(line, '\n', left) : NULL;
	if (newline) {
		size_t len = (size_t) (newline - line);
		bool rest = t->where->cut;

		/* first the place, then the line: it is not handed over twice */
		t->where->cut = false;
		consume(t, len + 1);
		if (!rest)
			hand_over(t, line, len);
		return true;
	}
	if (t->where->cut) {
		consume(t, left);
	} else if (left >= TAIL_LINE_MAX) {
		t->where->cut = true;
		consume(t, left);
		hand_over(t, line, left);
	}
	return false;
}

/* The first bytes of the file, as far as they were read, tell it from others. */
static int note_head(struct tail_read *t)
{
	uint64_t at = t->stream.at;
	struct tail *w = t->where;
	uint32_t len = w->offset < HEAD_BYTES ? (uint32_t) w->offset : HEAD_BYTES;
	int r;

	if (t->stream.gzip || w->head_len >= len)
		return 0;
	r = stream_head(&t->stream, len, &w->head, &w->head_len);
	t->stream.at = at;
	return r;
}

/* A file that will not grow any more: its last line may lack the newline. */
static int end_of_file(struct tail_read *t)
{
	size_t left = t->len - t->pos;
	int r;

	if (!t->is_current && left > 0) {
		const char *line = t->buffer + t->pos;
		bool rest = t->where->cut;

		consume(t, left);
		if (!rest)
			hand_over(t, line, left);
	}
	r = note_head(t);
	if (r < 0 || t->is_current)
		return r < 0 ? r : 1;
	stream_close(&t->stream);
	t->phase = BEGIN;
	return 0;
}

static int fill(struct tail_read *t)
{
	struct tail *w = t->where;
	size_t discard;
	ssize_t n;

	if (t->pos > 0) {
		memmove(t->buffer, t->buffer + t->pos, t->len - t->pos);
		t->len -= t->pos;
		t->pos = 0;
	}
	n = stream_read(&t->stream, t->buffer + t->len, t->size_of_buffer - t->len);
	if (n == -EBADMSG && !t->is_current) { /* a damaged archive: what was whole was read */
		t->end.skipped = true;
		n = 0;
	}
	if (n < 0)
		return (int) n;
	if (n == 0)
		return end_of_file(t);
	t->end.bytes += (uint64_t) n;
	t->len += (size_t) n;
	/* the part of an archive that was read before it was compressed */
	if (t->stream.at - t->len < w->offset) {
		discard = w->offset - (t->stream.at - t->len) < t->len
		                  ? (size_t) (w->offset - (t->stream.at - t->len))
		                  : t->len;
		memmove(t->buffer, t->buffer + discard, t->len - discard);
		t->len -= discard;
	}
	return 0;
}

static int step_read(struct tail_read *t)
{
	usec_t until = clock_boottime() + STEP_TIME;
	int r;

	r = make_buffer(t);
	if (r < 0)
		return r;
	for (unsigned n = 1; take_line(t); n++)
		if (n % LINES_A_LOOK == 0 && clock_boottime() > until)
			return 0;
	r = note_head(t);
	return r < 0 ? r : fill(t);
}

/* ---- the loop ---- */

static void finish(struct tail_read *t, int error)
{
	if (error < 0)
		t->end.error = error;
	(void) sd_event_source_set_enabled(t->work, SD_EVENT_OFF);
	if (t->retry)
		(void) sd_event_source_set_enabled(t->retry, SD_EVENT_OFF);
	t->done(t, &t->end, t->userdata);
}

static int step(struct tail_read *t)
{
	switch (t->phase) {
	case OPEN:
		return step_open(t);
	case CHECK:
		return step_check(t);
	case FIND:
		return step_find(t);
	case BEGIN:
		return step_begin(t);
	case SEARCH:
		return step_search(t);
	case READ:
		return step_read(t);
	}
	return -EINVAL;
}

static int on_retry(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct tail_read *t = userdata;
	int r = sd_event_source_set_enabled(t->work, SD_EVENT_ON);

	if (r < 0)
		finish(t, r);
	return 0;
}

static int later(struct tail_read *t)
{
	int r;

	if (t->waited >= PATIENCE)
		return -ETIMEDOUT;
	t->wait = !t->wait ? RETRY_FIRST : t->wait * 2 < RETRY_MOST ? t->wait * 2 : RETRY_MOST;
	t->waited += t->wait;
	r = sd_event_source_set_time_relative(t->retry, t->wait);
	if (r >= 0)
		r = sd_event_source_set_enabled(t->retry, SD_EVENT_ONESHOT);
	if (r >= 0)
		r = sd_event_source_set_enabled(t->work, SD_EVENT_OFF);
	return r < 0 ? r : 0;
}

static int on_work(sd_event_source *s, void *userdata)
{
	struct tail_read *t = userdata;
	int r = step(t);

	if (r == -EAGAIN) {
		r = later(t);
	} else {
		t->wait = t->waited = 0;
	}
	if (r != 0)
		finish(t, r);
	return 0;
}

int tail_read_new(struct tail_read **ret, sd_event *event, const struct files *files,
                  const struct tail_query *q, struct tail *where, tail_line_t line,
                  tail_done_t done, void *userdata)
{
	struct tail_read *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return -ENOMEM;
	t->files = files;
	t->query = *q;
	t->where = where;
	t->line = line;
	t->done = done;
	t->userdata = userdata;
	t->current = t->stream.fd = -1;
	if (strlen(q->path) >= sizeof(t->path))
		return tail_read_free(t), -ENAMETOOLONG;
	memcpy(t->path, q->path, strlen(q->path) + 1);
	t->query.path = t->path;
	r = sd_event_add_defer(event, &t->work, on_work, t);
	if (r >= 0)
		r = sd_event_source_set_priority(t->work, SD_EVENT_PRIORITY_IDLE);
	if (r >= 0)
		r = sd_event_source_set_enabled(t->work, SD_EVENT_ON);
	if (r >= 0)
		r = sd_event_add_time(event, &t->retry, CLOCK_BOOTTIME, UINT64_MAX, USEC_PER_MSEC,
		                      on_retry, t);
	if (r < 0)
		return tail_read_free(t), r;
	*ret = t;
	return 0;
}

struct tail_read *tail_read_free(struct tail_read *t)
{
	if (!t)
		return NULL;
	sd_event_source_disable_unref(t->work);
	sd_event_source_disable_unref(t->retry);
	stream_close(&t->stream);
	closep(&t->current);
	free(t->sources);
	free(t->buffer);
	free(t);
	return NULL;
}
