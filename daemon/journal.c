/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <systemd/sd-journal.h>

#include "clock.h"
#include "journal.h"
#include "observation.h"

enum {
	STEP_ENTRIES = 200, /* a step ends at whichever comes first */
	UNITS_MAX = 12,
	UNIT_MAX = 128,
	IDENTIFIER_MAX = 64,
	UNCHANGED_MAX = 16,
};

#define STEP_TIME (2 * USEC_PER_MSEC)

/* Where the journal lies. Of both, the one that was written last counts: journald fills /run until
 * it may write to /var, and moves over what it had. */
enum place { PLACE_VAR, PLACE_RUN, N_PLACES };
static const char *const place_paths[N_PLACES] = {"/var/log/journal", "/run/log/journal"};

struct stamp {
	dev_t dev;
	ino_t ino;
	struct timespec mtime;
};

/* A reading that came to the end, and how old the journal was then. */
struct unchanged {
	uint64_t key, generation;
};

struct journal {
	sd_event *event;
	const struct files *files;
	sd_id128_t boot;
	bool boot_known;
	sd_journal *j; /* NULL: not open */
	int fd;        /* of its directory: the library keeps using it */
	enum place place;
	struct stamp stamps[N_PLACES]; /* when this place was chosen */
	uint64_t generation;           /* of what the journal holds */
	struct unchanged unchanged[UNCHANGED_MAX];
	size_t next_unchanged;
	sd_event_source *worker;
	struct journal_read *queue; /* one at a time, oldest first: they share one position */
	uint64_t ended;             /* readings so far that left the queue */
	char message[JOURNAL_MESSAGE_MAX], unit[UNIT_MAX], identifier[IDENTIFIER_MAX];
};

struct journal_read {
	struct journal_read *next;
	struct journal *journal;
	journal_line_t line;
	journal_done_t done;
	void *userdata;
	char *cursor;
	bool begun;
	bool unsaved;      /* the position is further than the cursor */
	uint64_t after;    /* entries up to this time were handed over already; 0: none known */
	uint64_t key, had; /* of the question; the journal's generation when it began */
	char units[UNITS_MAX][UNIT_MAX];
	size_t n_units;
	struct journal_query query;
	struct journal_end end;
};

/* ---- opening ---- */

static void close_journal(struct journal *j)
{
	if (j->j)
		sd_journal_close(j->j);
	j->j = NULL;
	if (j->fd >= 0)
		(void) close(j->fd);
	j->fd = -1;
	j->generation++;
}

static struct stamp stamp_of(int fd)
{
	struct stamp s = {0};
	struct stat st;

	if (fd >= 0 && fstat(fd, &st) == 0)
		s = (struct stamp){st.st_dev, st.st_ino, st.st_mtim};
	return s;
}

static bool same_directory(const struct stamp *a, const struct stamp *b)
{
	return a->dev == b->dev && a->ino == b->ino;
}

static bool same_stamp(const struct stamp *a, const struct stamp *b)
{
	return same_directory(a, b) && a->mtime.tv_sec == b->mtime.tv_sec &&
	       a->mtime.tv_nsec == b->mtime.tv_nsec;
}

static int machine_id(const struct files *files, char ret[static 33])
{
	char line[64];
	sd_id128_t id;
	int r;

	r = file_read_line(files, "/etc/machine-id", line, sizeof(line));
	if (r < 0)
		return r;
	if (sd_id128_from_string(line, &id) < 0)
		return -ENOENT; /* "uninitialized": no journal is kept under that name */
	(void) sd_id128_to_string(id, ret);
	return 0;
}

static int open_places(struct journal *j, int fds[static N_PLACES])
{
	char path[PATH_MAX], id[33];
	int r;

	r = machine_id(j->files, id);
	if (r < 0)
		return r;
	for (size_t i = 0; i < N_PLACES; i++) {
		(void) text_format(path, sizeof(path), "%s/%s", place_paths[i], id);
		fds[i] = file_open(j->files, path, O_DIRECTORY);
	}
	return 0;
}

/* A file that may not be read looks to the library as one that is not there. */
static int why_empty(int fd)
{
	_cleanup_(closep) int file =
		openat(fd, "system.journal", O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	return file < 0 && errno == EACCES ? -EACCES : -ENOENT;
}

/* The last moment of this boot that the place has. */
static int open_place(const struct journal *j, int fd, sd_journal **ret, uint64_t *ret_last)
{
	uint64_t first = 0;
	sd_journal *opened;
	int r;

	/* users' own journals are none of our business */
	r = sd_journal_open_directory_fd(&opened, fd, SD_JOURNAL_SYSTEM);
	if (r < 0)
		return r;
	r = sd_journal_get_cutoff_monotonic_usec(opened, j->boot, &first, ret_last);
	if (r <= 0) {
		sd_journal_close(opened);
		return r < 0 ? r : why_empty(fd);
	}
	*ret = opened;
	return 0;
}

static void take_place(struct journal *j, enum place p, sd_journal *opened, int fd)
{
	close_journal(j);
	j->j = opened;
	j->fd = fd;
	j->place = p;
	(void) sd_journal_set_data_threshold(opened, JOURNAL_MESSAGE_MAX + sizeof("MESSAGE="));
	(void) sd_journal_get_fd(opened); /* from here on the kernel notes what changes */
}

static int choose(struct journal *j, int fds[static N_PLACES])
{
	uint64_t newest = 0;
	int error = -ENOENT;

	close_journal(j);
	for (enum place p = 0; p < N_PLACES; p++) {
		sd_journal *opened = NULL;
		uint64_t last = 0;
		int r = fds[p] < 0 ? fds[p] : open_place(j, fds[p], &opened, &last);

		j->stamps[p] = stamp_of(fds[p]);
		if (r < 0 && r != -ENOENT)
			error = r;
		if (r < 0)
			continue;
		if (j->j && last <= newest) {
			sd_journal_close(opened);
			continue;
		}
		take_place(j, p, opened, TAKE_FD(fds[p]));
		newest = last;
	}
	return j->j ? 0 : error;
}

/* Files of the own place come and go by the library's own watch; the other place may take over. */
static bool still_right(const struct journal *j, const int fds[static N_PLACES])
{
	if (!j->j)
		return false;
	for (enum place p = 0; p < N_PLACES; p++) {
		struct stamp now = stamp_of(fds[p]);

		if (p == j->place ? !same_directory(&now, &j->stamps[p])
		                  : !same_stamp(&now, &j->stamps[p]))
			return false;
	}
	return true;
}

static int ensure_open(struct journal *j)
{
	int fds[N_PLACES] = {-1, -1}, r;

	if (!j->boot_known)
		return -ENOENT;
	r = open_places(j, fds);
	if (r >= 0 && !still_right(j, fds))
		r = choose(j, fds);
	for (size_t i = 0; i < N_PLACES; i++)
		if (fds[i] >= 0)
			(void) close(fds[i]);
	if (r < 0)
		return r;
	r = sd_journal_process(j->j);
	if (r != SD_JOURNAL_NOP)
		j->generation++; /* also when it cannot tell */
	return 0;
}

/* ---- the question ---- */

static int add_match(sd_journal *j, const char *field, const char *value)
{
	char match[UNIT_MAX + 32];

	return sd_journal_add_match(j, match,
	                            text_format(match, sizeof(match), "%s=%s", field, value));
}

static int add_matches(struct journal_read *r)
{
	sd_journal *j = r->journal->j;
	char boot[SD_ID128_STRING_MAX];
	int e;

	sd_journal_flush_matches(j);
	e = add_match(j, "_BOOT_ID", sd_id128_to_string(r->journal->boot, boot));
	if (e >= 0)
		e = sd_journal_add_conjunction(j);
	for (size_t i = 0; i < r->n_units && e >= 0; i++)
		e = add_match(j, "_SYSTEMD_UNIT", r->units[i]);
	if (e >= 0)
		e = sd_journal_add_disjunction(j);
	for (size_t i = 0; i < r->n_units && e >= 0; i++)
		e = add_match(j, "UNIT", r->units[i]);
	/* who else says so may be lying */
	if (r->n_units && e >= 0)
		e = add_match(j, "_PID", "1");
	if (e >= 0)
		e = sd_journal_add_disjunction(j);
	if (r->query.kernel && e >= 0)
		e = add_match(j, "_TRANSPORT", "kernel");
	return e;
}

/* systemd's clock of this boot, of DIR's own. */
static usec_t node_now(const struct journal *j)
{
	char line[64];
	uint64_t seconds;

	if (file_read_line(j->files, "/proc/uptime", line, sizeof(line)) < 0)
		return 0;
	line[strcspn(line, ".")] = 0;
	return text_to_uint(line, 0, UINT64_MAX / USEC_PER_SEC - 1, &seconds) < 0
	               ? 0
	               : (seconds + 1) * USEC_PER_SEC;
}

static int seek_start(struct journal_read *r)
{
	sd_journal *j = r->journal->j;
	usec_t now;

	if (r->query.newest_only == 0)
		return sd_journal_seek_head(j);
	now = node_now(r->journal);
	if (now <= r->query.newest_only)
		return sd_journal_seek_head(j);
	return sd_journal_seek_monotonic_usec(j, r->journal->boot, now - r->query.newest_only);
}

static int entry_time(const struct journal *j, uint64_t *ret)
{
	sd_id128_t boot;

	return sd_journal_get_monotonic_usec(j->j, ret, &boot);
}

/* The moment in a cursor: "...;m=HEX;...". */
static uint64_t cursor_time(const char *cursor)
{
	const char *m = strstr(cursor, ";m=");

	return m ? strtoull(m + 3, NULL, 16) : 0;
}

/* The cursor's entry is gone: rotated away, or moved from /run to /var, where it has another name.
 * Its time tells which. */
static int seek_without(struct journal_read *r)
{
	uint64_t first = 0;
	int e;

	r->after = cursor_time(r->cursor);
	e = sd_journal_seek_head(r->journal->j);
	if (e >= 0)
		e = sd_journal_next(r->journal->j);
	if (e > 0 && entry_time(r->journal, &first) >= 0 && first > r->after)
		r->end.skipped = true;
	e = sd_journal_seek_monotonic_usec(r->journal->j, r->journal->boot, r->after);
	return e < 0 ? e : 0;
}

static int seek(struct journal_read *r)
{
	sd_journal *j = r->journal->j;
	int e;

	if (!r->cursor[0])
		return seek_start(r);
	e = sd_journal_seek_cursor(j, r->cursor);
	if (e == -EINVAL)
		return seek_start(r);
	if (e >= 0)
		e = sd_journal_next(j);
	if (e < 0)
		return e;
	/* there it is: what comes next is new */
	if (e > 0 && sd_journal_test_cursor(j, r->cursor) > 0)
		return 0;
	return seek_without(r);
}

/* ---- reading ---- */

static void unlink_read(struct journal_read *r)
{
	struct journal_read **p;

	if (!r->journal)
		return;
	for (p = &r->journal->queue; *p && *p != r; p = &(*p)->next)
		;
	if (*p)
		*p = r->next;
	r->journal->ended++;
	if (!r->journal->queue)
		(void) sd_event_source_set_enabled(r->journal->worker, SD_EVENT_OFF);
	r->journal = NULL;
}

static void save_cursor(struct journal_read *r)
{
	_cleanup_(freep) char *cursor = NULL;

	if (!r->unsaved || sd_journal_get_cursor(r->journal->j, &cursor) < 0 ||
	    strlen(cursor) >= JOURNAL_CURSOR_MAX)
		return;
	memcpy(r->cursor, cursor, strlen(cursor) + 1);
	r->unsaved = false;
}

static uint64_t key_of(const struct journal_read *r)
{
	uint64_t key = hash_text(r->query.kernel, r->cursor);

	for (size_t i = 0; i < r->n_units; i++)
		key = hash_text(key, r->units[i]);
	return key;
}

static bool is_unchanged(const struct journal_read *r)
{
	const struct journal *j = r->journal;

	for (size_t i = 0; i < UNCHANGED_MAX; i++)
		if (j->unchanged[i].key == r->key && j->unchanged[i].generation == j->generation)
			return true;
	return false;
}

static void note_unchanged(struct journal_read *r)
{
	struct journal *j = r->journal;
	struct unchanged *u = NULL;
	uint64_t key = key_of(r);

	for (size_t i = 0; i < UNCHANGED_MAX && !u; i++)
		if (j->unchanged[i].key == r->key)
			u = &j->unchanged[i];
	if (!u)
		u = &j->unchanged[j->next_unchanged++ % UNCHANGED_MAX];
	*u = (struct unchanged){.key = key, .generation = r->had};
}

/* r may be gone afterwards. */
static void end_read(struct journal_read *r, int error)
{
	save_cursor(r);
	if (error == 0 && !r->end.more)
		note_unchanged(r);
	r->end.error = error;
	unlink_read(r);
	r->done(r, &r->end, r->userdata);
}

static void copy_field(char *dst, size_t size, const char *value, size_t len)
{
	if (dst[0])
		return; /* a field may be there twice: the first counts */
	if (len >= size)
		len = size - 1;
	memcpy(dst, value, len);
	dst[len] = 0;
}

/* Maps of the library move with every field: what is wanted is copied. */
static void read_fields(struct journal *j, struct journal_entry *e)
{
	char priority[4] = "", about[UNIT_MAX] = "";
	const struct {
		const char *name;
		char *dst;
		size_t size;
	} wanted[] = {
		{"MESSAGE=", j->message, sizeof(j->message)},
		{"_SYSTEMD_UNIT=", j->unit, sizeof(j->unit)},
		{"UNIT=", about, sizeof(about)},
		{"SYSLOG_IDENTIFIER=", j->identifier, sizeof(j->identifier)},
		{"PRIORITY=", priority, sizeof(priority)},
	};
	const void *data;
	size_t len;

	j->message[0] = j->unit[0] = j->identifier[0] = 0;
	sd_journal_restart_data(j->j);
	while (sd_journal_enumerate_available_data(j->j, &data, &len) > 0)
		for (size_t i = 0; i < ELEMENTS(wanted); i++) {
			size_t n = strlen(wanted[i].name);

			if (len >= n && memcmp(data, wanted[i].name, n) == 0)
				copy_field(wanted[i].dst, wanted[i].size, (const char *) data + n,
				           len - n);
		}
	if (about[0] && (!j->unit[0] || strcmp(j->unit, "init.scope") == 0))
		memcpy(j->unit, about, sizeof(j->unit));
	e->message = j->message;
	e->len = strlen(j->message);
	e->unit = j->unit;
	e->identifier = j->identifier;
	e->priority =
		priority[0] >= '0' && priority[0] <= '7' && !priority[1] ? priority[0] - '0' : -1;
}

/* 1: handed over; 0: no more; negative: an error. */
static int read_one(struct journal_read *r)
{
	struct journal *j = r->journal;
	struct journal_entry e = {0};
	uint64_t at = 0;
	int n;

	n = sd_journal_next(j->j);
	if (n <= 0)
		return n;
	n = entry_time(j, &at);
	if (n < 0)
		return n == -EBADMSG || n == -ESTALE ? 1 : n; /* passed over */
	r->unsaved = true;
	if (at <= r->after)
		return 1;
	e.at = at;
	read_fields(j, &e);
	r->end.entries++;
	r->line(&e, r->userdata);
	return 1;
}

static int begin(struct journal_read *r)
{
	int e;

	r->begun = true;
	e = ensure_open(r->journal);
	if (e < 0)
		return e;
	r->had = r->journal->generation;
	r->key = key_of(r);
	if (is_unchanged(r))
		return 0;
	e = add_matches(r);
	if (e >= 0)
		e = seek(r);
	return e < 0 ? e : 1;
}

static int on_work(sd_event_source *s, void *userdata)
{
	struct journal *j = userdata;
	struct journal_read *r = j->queue;
	uint64_t ended = j->ended;
	usec_t until = clock_boottime() + STEP_TIME;
	int e = 1;

	if (!r)
		return 0;
	if (!r->begun)
		e = begin(r);
	for (unsigned i = 0; e > 0 && i < STEP_ENTRIES && clock_boottime() < until; i++) {
		if (r->query.entries_max && r->end.entries >= r->query.entries_max) {
			r->end.more = true;
			e = 0;
			break;
		}
		e = read_one(r);
		if (j->ended != ended)
			return 0; /* line() was enough for its owner */
	}
	if (e <= 0)
		end_read(r, e);
	else
		save_cursor(r);
	return 0;
}

/* ---- for others ---- */

int journal_new(struct journal **ret, sd_event *event, const struct files *files,
                const char *boot_id)
{
	struct journal *j = calloc(1, sizeof(*j));
	int r;

	if (!j)
		return -ENOMEM;
	j->fd = -1;
	j->files = files;
	j->event = sd_event_ref(event);
	j->boot_known = sd_id128_from_string(boot_id, &j->boot) >= 0;
	r = sd_event_add_defer(event, &j->worker, on_work, j);
	if (r >= 0)
		r = sd_event_source_set_enabled(j->worker, SD_EVENT_OFF);
	if (r >= 0) /* whoever waits for the network goes first */
		r = sd_event_source_set_priority(j->worker, SD_EVENT_PRIORITY_NORMAL + 10);
	if (r < 0)
		return journal_free(j), r;
	*ret = j;
	return 0;
}

struct journal *journal_free(struct journal *j)
{
	if (!j)
		return NULL;
	while (j->queue)
		unlink_read(j->queue); /* their owners still hold them */
	sd_event_source_disable_unref(j->worker);
	close_journal(j);
	sd_event_unref(j->event);
	free(j);
	return NULL;
}

static int copy_query(struct journal_read *r, const struct journal_query *q)
{
	r->query = *q;
	r->query.units = NULL;
	for (; q->units && q->units[r->n_units]; r->n_units++) {
		const char *unit = q->units[r->n_units];

		if (r->n_units == UNITS_MAX)
			return -E2BIG;
		if (strlen(unit) >= sizeof(r->units[0]))
			return -ENAMETOOLONG;
		memcpy(r->units[r->n_units], unit, strlen(unit) + 1);
	}
	return r->n_units || q->kernel ? 0 : -EINVAL;
}

int journal_read_new(struct journal_read **ret, struct journal *j, const struct journal_query *q,
                     char cursor[static JOURNAL_CURSOR_MAX], journal_line_t line,
                     journal_done_t done, void *userdata)
{
	struct journal_read **last, *r = calloc(1, sizeof(*r));
	int e;

	if (!r)
		return -ENOMEM;
	r->cursor = cursor;
	r->line = line;
	r->done = done;
	r->userdata = userdata;
	e = copy_query(r, q);
	if (e >= 0)
		e = sd_event_source_set_enabled(j->worker, SD_EVENT_ON);
	if (e < 0) {
		free(r);
		return e;
	}
	r->journal = j;
	for (last = &j->queue; *last; last = &(*last)->next)
		;
	*last = r;
	*ret = r;
	return 0;
}

struct journal_read *journal_read_free(struct journal_read *r)
{
	if (!r)
		return NULL;
	if (r->journal && r->journal->queue == r && r->begun)
		save_cursor(r);
	unlink_read(r);
	free(r);
	return NULL;
}
