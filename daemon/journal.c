/* SPDX-License-Identifier: Apache-2.0 */
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
	LOGS_MAX = 192, /* journald keeps 100 */
	LOG_NAME_MAX = 112,
	SETTLED_MAX = 16,
};

#define STEP_TIME   (2 * USEC_PER_MSEC)
#define SETTLE_TIME USEC_PER_SEC

/* journald fills /run until it may write to /var, moves over what it had, and falls back to /run
 * when /var takes no more: the files of both are one journal. */
enum place { PLACE_RUN, PLACE_VAR, N_PLACES };
static const char *const place_paths[N_PLACES] = {"/run/log/journal", "/var/log/journal"};

/* The start of a journal file, by systemd.io/JOURNAL_FILE_FORMAT; little-endian. */
struct header {
	uint8_t signature[8];
	uint32_t compatible_flags, incompatible_flags;
	uint8_t state, reserved[7];
	sd_id128_t file_id, machine_id, boot_id, seqnum_id;
	uint64_t header_size, arena_size, tables[4], tail_object, n_objects;
	uint64_t n_entries, tail_seqnum, head_seqnum, entry_array, head_realtime, tail_realtime;
};
_Static_assert(sizeof(struct header) == 200, "it has holes");

enum this_boot { BOOT_UNKNOWN, BOOT_HERE, BOOT_OTHER };

/* One journal file. */
struct log {
	enum place place;
	char name[LOG_NAME_MAX];
	ino_t ino;
	bool final; /* nothing will be added */
	enum this_boot boot;
	sd_id128_t seqnum_id;
	uint64_t head_seqnum, tail_seqnum, head_realtime, tail_realtime;
	uint64_t last; /* of this boot, µs of the monotonic clock; 0: not known */
};

/* A question that found nothing new although the last entry is not one that it asks for. */
struct settled {
	uint64_t key, state;
};

/* Nothing is kept open from one step to the next: what the library maps of a large journal would
 * count as ours, and a step has a place of its own to begin from, the cursor. */
struct journal {
	sd_event *event;
	const struct files *files;
	sd_id128_t boot;
	bool boot_known;
	struct timespec mtimes[N_PLACES]; /* of the directories when logs was made; 0: absent */
	ino_t inodes[N_PLACES];
	struct log *logs; /* oldest first */
	size_t n_logs;
	int error;      /* of what could not be opened, when there are none */
	uint64_t state; /* a hash of how far each has grown */
	usec_t state_since;
	struct settled settled[SETTLED_MAX];
	size_t next_settled;
	sd_event_source *worker;
	struct journal_read *queue; /* oldest first */
	uint64_t ended;             /* readings so far that left the queue */
	char message[JOURNAL_MESSAGE_MAX], unit[UNIT_MAX], identifier[IDENTIFIER_MAX];
};

/* What a cursor says. */
struct position {
	bool known;
	sd_id128_t seqnum_id;
	uint64_t seqnum, monotonic, realtime;
};

struct journal_read {
	struct journal_read *next;
	struct journal *journal;
	journal_line_t line;
	journal_done_t done;
	void *userdata;
	char *cursor;
	bool begun;
	uint64_t key, state; /* of the question, and of the journal, when it began */
	usec_t began;
	usec_t since; /* without a cursor: µs of the monotonic clock */
	char units[UNITS_MAX][UNIT_MAX];
	size_t n_units;
	struct journal_query query;
	struct journal_end end;
};

/* ---- which files there are ---- */

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

static int open_places(const struct journal *j, int fds[static N_PLACES])
{
	char path[PATH_MAX], id[33];
	int r;

	r = machine_id(j->files, id);
	if (r < 0)
		return r;
	for (enum place p = 0; p < N_PLACES; p++) {
		(void) text_format(path, sizeof(path), "%s/%s", place_paths[p], id);
		fds[p] = file_open(j->files, path, O_DIRECTORY);
	}
	return 0;
}

static void close_places(const int fds[static N_PLACES])
{
	for (enum place p = 0; p < N_PLACES; p++)
		if (fds[p] >= 0)
			(void) close(fds[p]);
}

/* The system's own, not those of users: "system.journal", or an archive "system@...journal", or a
 * damaged one, "system@...journal~". */
static bool is_system(const char *name)
{
	return strlen(name) < LOG_NAME_MAX &&
	       (strcmp(name, "system.journal") == 0 || strncmp(name, "system@", 7) == 0) &&
	       strstr(name, ".journal");
}

static int open_log(int dir, const char *name)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	return fd;
}

/* -EBADMSG: not a journal; -ENODATA: it holds nothing yet. */
static int read_header(int fd, struct log *l)
{
	struct header h;
	struct stat st;
	ssize_t n = pread(fd, &h, sizeof(h), 0);

	if (n < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (n < (ssize_t) sizeof(h) || memcmp(h.signature, "LPKSHHRH", sizeof(h.signature)) != 0)
		return -EBADMSG;
	if (h.n_entries == 0)
		return -ENODATA;
	l->ino = st.st_ino;
	l->seqnum_id = h.seqnum_id;
	l->head_seqnum = le64toh(h.head_seqnum);
	l->tail_seqnum = le64toh(h.tail_seqnum);
	l->head_realtime = le64toh(h.head_realtime);
	l->tail_realtime = le64toh(h.tail_realtime);
	return 0;
}

/* What was found out about a file stays true while it is the same file. */
static void recall(const struct journal *j, struct log *l)
{
	for (size_t i = 0; i < j->n_logs; i++) {
		const struct log *old = &j->logs[i];

		if (old->place != l->place || old->ino != l->ino ||
		    old->head_seqnum != l->head_seqnum ||
		    !sd_id128_equal(old->seqnum_id, l->seqnum_id))
			continue;
		l->boot = old->boot;
		l->last = old->last;
	}
}

static int add_log(const struct journal *j, int dir, enum place place, const char *name,
                   struct log *logs, size_t *n)
{
	struct log *l = &logs[*n];
	_cleanup_(closep) int fd = open_log(dir, name);
	int r;

	if (fd < 0)
		return fd;
	*l = (struct log){.place = place};
	memcpy(l->name, name, strlen(name) + 1);
	l->final = strchr(name, '@');
	r = read_header(fd, l);
	if (r < 0)
		return r;
	recall(j, l);
	(*n)++;
	return 0;
}

/* By the one clock that journald never turns back, where it counts both. */
static int compare_logs(const void *a, const void *b)
{
	const struct log *x = a, *y = b;

	if (sd_id128_equal(x->seqnum_id, y->seqnum_id))
		return (x->head_seqnum > y->head_seqnum) - (x->head_seqnum < y->head_seqnum);
	return (x->tail_realtime > y->tail_realtime) - (x->tail_realtime < y->tail_realtime);
}

static int list_logs(struct journal *j, const int fds[static N_PLACES])
{
	_cleanup_(freep) struct names *names = malloc(sizeof(*names));
	_cleanup_(freep) struct log *logs = calloc(LOGS_MAX, sizeof(*logs));
	char path[PATH_MAX], id[33];
	size_t n = 0;
	int error = -ENOENT, r;

	if (!names || !logs)
		return -ENOMEM;
	r = machine_id(j->files, id);
	if (r < 0)
		return r;
	for (enum place p = 0; p < N_PLACES; p++) {
		(void) text_format(path, sizeof(path), "%s/%s", place_paths[p], id);
		r = fds[p] < 0 ? fds[p] : file_list(j->files, path, names);
		for (size_t i = 0; r >= 0 && i < names->n && n < LOGS_MAX; i++) {
			int e = is_system(names->name[i])
			                ? add_log(j, fds[p], p, names->name[i], logs, &n)
			                : 0;

			if (e < 0 && e != -ENOENT && e != -ENODATA)
				error = e;
		}
		if (r < 0 && r != -ENOENT)
			error = r;
	}
	if (n > 1)
		qsort(logs, n, sizeof(*logs), compare_logs);
	free(j->logs);
	j->logs = TAKE(logs);
	j->n_logs = n;
	j->error = error;
	return 0;
}

/* False when a file that grows is not the one it was. */
static bool look_again(struct journal *j, const int fds[static N_PLACES])
{
	for (size_t i = 0; i < j->n_logs; i++) {
		struct log *l = &j->logs[i], now = *l;
		_cleanup_(closep) int fd = -1;

		if (l->final)
			continue;
		fd = open_log(fds[l->place], l->name);
		if (fd < 0 || read_header(fd, &now) < 0 || now.ino != l->ino)
			return false;
		*l = now;
	}
	return true;
}

/* A file is empty at first, and a directory that was changed twice within a tick of the kernel's
 * clock shows one change: the file that is written to must be among ours. */
static bool has_active(const struct journal *j, const int fds[static N_PLACES])
{
	for (enum place p = 0; p < N_PLACES; p++) {
		struct stat st;
		bool found = fds[p] < 0 || fstatat(fds[p], "system.journal", &st, 0) < 0;

		for (size_t i = 0; i < j->n_logs && !found; i++)
			found = j->logs[i].place == p && j->logs[i].ino == st.st_ino;
		if (!found)
			return false;
	}
	return true;
}

static bool same_directories(struct journal *j, const int fds[static N_PLACES])
{
	bool same = true;

	for (enum place p = 0; p < N_PLACES; p++) {
		struct stat st = {0};

		if (fds[p] >= 0)
			(void) fstat(fds[p], &st);
		same = same && st.st_ino == j->inodes[p] &&
		       st.st_mtim.tv_sec == j->mtimes[p].tv_sec &&
		       st.st_mtim.tv_nsec == j->mtimes[p].tv_nsec;
		j->inodes[p] = st.st_ino;
		j->mtimes[p] = st.st_mtim;
	}
	return same;
}

static void note_state(struct journal *j)
{
	uint64_t state = 0;

	for (size_t i = 0; i < j->n_logs; i++) {
		const struct log *l = &j->logs[i];

		state = hash_bytes(state, &l->ino, sizeof(l->ino));
		state = hash_bytes(state, &l->tail_seqnum, sizeof(l->tail_seqnum));
	}
	if (state == j->state)
		return;
	j->state = state;
	j->state_since = clock_boottime();
}

/* Brings logs up to date. The caller closes the directories, also after an error. */
static int look(struct journal *j, int fds[static N_PLACES])
{
	int r;

	if (!j->boot_known)
		return -ENOENT;
	r = open_places(j, fds);
	if (r < 0)
		return r;
	if (!same_directories(j, fds) || !look_again(j, fds) || !has_active(j, fds))
		r = list_logs(j, fds);
	note_state(j);
	return r < 0 ? r : j->n_logs == 0 ? j->error : 0;
}

/* ---- the question ---- */

static int add_match(sd_journal *j, const char *field, const char *value)
{
	char match[UNIT_MAX + 32];

	return sd_journal_add_match(j, match,
	                            text_format(match, sizeof(match), "%s=%s", field, value));
}

static int add_matches(const struct journal_read *r, sd_journal *j)
{
	char boot[SD_ID128_STRING_MAX];
	int e;

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

/* ---- where a reading stands ---- */

static uint64_t hexadecimal(const char *cursor, const char *key)
{
	const char *at = strstr(cursor, key);

	return at ? strtoull(at + strlen(key), NULL, 16) : 0;
}

/* "s=ID;i=HEX;b=ID;m=HEX;t=HEX;x=HEX": see sd_journal_get_cursor(3). */
static struct position position_of(const char *cursor)
{
	struct position p = {
		.seqnum = hexadecimal(cursor, ";i="),
		.monotonic = hexadecimal(cursor, ";m="),
		.realtime = hexadecimal(cursor, ";t="),
	};
	char id[33] = "";

	if (strncmp(cursor, "s=", 2) == 0)
		(void) snprintf(id, sizeof(id), "%.32s", cursor + 2);
	p.known = sd_id128_from_string(id, &p.seqnum_id) >= 0 && p.seqnum;
	return p;
}

/* The same lines have other numbers once they have moved from /run to /var: then their time tells.
 * Only journald's numbers tell lines of one moment apart. */
static bool is_past(const struct position *p, const struct position *entry)
{
	if (!p->known)
		return false;
	return sd_id128_equal(p->seqnum_id, entry->seqnum_id) ? entry->seqnum <= p->seqnum
	                                                      : entry->monotonic <= p->monotonic;
}

static bool log_is_past(const struct position *p, const struct log *l)
{
	struct position tail = {.seqnum_id = l->seqnum_id,
	                        .seqnum = l->tail_seqnum,
	                        .monotonic = l->last ? l->last : UINT64_MAX};

	return is_past(p, &tail);
}

/* What lies between the cursor and the oldest entry that is left was thrown away. */
static bool is_lost(const struct journal *j, const struct position *p)
{
	for (size_t i = 0; i < j->n_logs && p->known; i++) {
		const struct log *l = &j->logs[i];

		if (sd_id128_equal(l->seqnum_id, p->seqnum_id) ? l->head_seqnum <= p->seqnum + 1
		                                               : l->head_realtime <= p->realtime)
			return false;
	}
	return p->known;
}

static void write_cursor(const struct journal_read *r, const struct log *l)
{
	char seqnum_id[SD_ID128_STRING_MAX], boot[SD_ID128_STRING_MAX];

	(void) snprintf(r->cursor, JOURNAL_CURSOR_MAX, "s=%s;i=%llx;b=%s;m=%llx;t=%llx",
	                sd_id128_to_string(l->seqnum_id, seqnum_id),
	                (unsigned long long) l->tail_seqnum,
	                sd_id128_to_string(r->journal->boot, boot), (unsigned long long) l->last,
	                (unsigned long long) l->tail_realtime);
}

static void take_cursor(struct journal_read *r, sd_journal *j)
{
	_cleanup_(freep) char *cursor = NULL;

	if (sd_journal_get_cursor(j, &cursor) >= 0 && strlen(cursor) < JOURNAL_CURSOR_MAX)
		memcpy(r->cursor, cursor, strlen(cursor) + 1);
}

static int seek(const struct journal_read *r, sd_journal *j)
{
	if (position_of(r->cursor).known)
		return sd_journal_seek_cursor(j, r->cursor);
	if (r->since)
		return sd_journal_seek_monotonic_usec(j, r->journal->boot, r->since);
	return sd_journal_seek_head(j);
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

static uint64_t key_of(const struct journal_read *r)
{
	uint64_t key = hash_text(r->query.kernel, r->cursor);

	for (size_t i = 0; i < r->n_units; i++)
		key = hash_text(key, r->units[i]);
	return key;
}

static bool is_settled(const struct journal_read *r)
{
	const struct journal *j = r->journal;

	for (size_t i = 0; i < SETTLED_MAX; i++)
		if (j->settled[i].key == r->key && j->settled[i].state == j->state)
			return true;
	return false;
}

/* journald counts an entry before it can be found: only after a while is what was not found not
 * there. */
static void note_settled(const struct journal_read *r)
{
	struct journal *j = r->journal;
	struct settled *s = NULL;

	if (r->state != j->state || r->began < j->state_since + SETTLE_TIME)
		return;
	for (size_t i = 0; i < SETTLED_MAX && !s; i++)
		if (j->settled[i].key == r->key)
			s = &j->settled[i];
	if (!s)
		s = &j->settled[j->next_settled++ % SETTLED_MAX];
	*s = (struct settled){.key = key_of(r), .state = j->state};
}

/* r may be gone afterwards. */
static void end_read(struct journal_read *r, int error)
{
	if (error == 0 && !r->end.more)
		note_settled(r);
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
static void read_fields(struct journal *j, sd_journal *from, struct journal_entry *e)
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
	sd_journal_restart_data(from);
	while (sd_journal_enumerate_available_data(from, &data, &len) > 0)
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

/* A step's bounds, and its work. */
struct step {
	struct journal *journal;
	struct journal_read *read;
	uint64_t ended; /* of the journal when it began: differs once the reading is gone */
	usec_t until;
	unsigned looked;
};

enum step_end {
	STEP_LOG_DONE, /* nothing more in this file now */
	STEP_PAUSE,    /* enough for now */
	STEP_FULL,     /* entries_max */
	STEP_GONE,     /* the reading is gone */
};

static bool is_enough(struct step *s)
{
	return ++s->looked > STEP_ENTRIES || clock_boottime() >= s->until;
}

/* Entries around the cursor that were handed over before. Returns as sd_journal_next(). */
static int skip_past(const struct step *s, sd_journal *j, const struct position *p)
{
	int r;

	while ((r = sd_journal_next(j)) > 0) {
		_cleanup_(freep) char *cursor = NULL;
		struct position here;

		if (sd_journal_get_cursor(j, &cursor) < 0)
			continue;
		here = position_of(cursor);
		if (!is_past(p, &here))
			break;
	}
	return r;
}

static int hand_over(struct step *s, sd_journal *j)
{
	struct journal_entry e = {0};
	sd_id128_t boot;
	uint64_t at;
	int r;

	r = sd_journal_get_monotonic_usec(j, &at, &boot);
	if (r < 0)
		return 0; /* damaged: passed over */
	e.at = at;
	read_fields(s->journal, j, &e);
	s->read->end.entries++;
	/* before it is told: line() may be enough for its owner */
	take_cursor(s->read, j);
	s->read->line(&e, s->read->userdata);
	return s->journal->ended != s->ended;
}

static int read_entries(struct step *s, sd_journal *j, enum step_end *ret)
{
	const struct journal_query *q = &s->read->query;
	struct position p = position_of(s->read->cursor);
	int r;

	r = add_matches(s->read, j);
	if (r >= 0)
		r = seek(s->read, j);
	if (r >= 0)
		r = skip_past(s, j, &p);
	for (; r > 0; r = sd_journal_next(j)) {
		if (q->entries_max && s->read->end.entries >= q->entries_max) {
			*ret = STEP_FULL;
			return 0;
		}
		if (is_enough(s)) {
			*ret = STEP_PAUSE;
			return 0;
		}
		if (hand_over(s, j)) {
			*ret = STEP_GONE;
			return 0;
		}
	}
	*ret = STEP_LOG_DONE;
	return r;
}

/* Whether it holds anything of this boot, and until when. */
static int learn_boot(const struct journal *j, struct log *l, sd_journal *from)
{
	uint64_t first = 0, last = 0;
	int r;

	if (l->boot == BOOT_HERE && (!l->final || l->last))
		return 0;
	r = sd_journal_get_cutoff_monotonic_usec(from, j->boot, &first, &last);
	if (r < 0)
		return r;
	l->boot = r > 0 ? BOOT_HERE : l->final ? BOOT_OTHER : BOOT_UNKNOWN;
	l->last = r > 0 && l->final ? last : 0;
	return 0;
}

static int read_open(struct step *s, struct log *l, sd_journal *j, enum step_end *ret)
{
	struct position p;
	int r;

	(void) sd_journal_set_data_threshold(j, JOURNAL_MESSAGE_MAX + sizeof("MESSAGE="));
	r = learn_boot(s->journal, l, j);
	if (r < 0 || l->boot != BOOT_HERE) {
		*ret = STEP_LOG_DONE;
		return r;
	}
	r = read_entries(s, j, ret);
	if (r < 0 || *ret != STEP_LOG_DONE || !l->final)
		return r;
	/* not to be opened again for this cursor */
	p = position_of(s->read->cursor);
	if (!log_is_past(&p, l))
		write_cursor(s->read, l);
	return 0;
}

static int read_log(struct step *s, struct log *l, const int fds[static N_PLACES],
                    enum step_end *ret)
{
	struct stat st;
	sd_journal *j;
	int fd, r;

	*ret = STEP_PAUSE;
	fd = open_log(fds[l->place], l->name);
	if (fd < 0) /* renamed this very moment: the next step sees under which name */
		return fd == -ENOENT ? 0 : fd;
	if (fstat(fd, &st) < 0 || st.st_ino != l->ino) {
		(void) close(fd);
		return 0;
	}
	*ret = STEP_LOG_DONE;
	r = sd_journal_open_files_fd(&j, &fd, 1, 0); /* which takes the descriptor */
	if (r < 0) {
		(void) close(fd);
		return r;
	}
	r = read_open(s, l, j, ret);
	sd_journal_close(j);
	return r;
}

static bool has_this_boot(const struct journal *j)
{
	for (size_t i = 0; i < j->n_logs; i++)
		if (j->logs[i].boot == BOOT_HERE)
			return true;
	return false;
}

static void begin(struct journal_read *r)
{
	struct position p = position_of(r->cursor);
	usec_t now;

	r->begun = true;
	r->began = clock_boottime();
	r->key = key_of(r);
	r->state = r->journal->state;
	r->end.skipped = is_lost(r->journal, &p);
	if (p.known || r->query.newest_only == 0)
		return;
	now = node_now(r->journal);
	r->since = now > r->query.newest_only ? now - r->query.newest_only : 0;
}

/* Oldest first, as far as this step's bounds allow. A file that cannot be read does not keep the
 * others from being read. */
static void read_logs(struct step *s, const int fds[static N_PLACES])
{
	int error = 0;

	for (size_t i = 0; i < s->journal->n_logs; i++) {
		struct log *l = &s->journal->logs[i];
		struct position p = position_of(s->read->cursor);
		enum step_end end = STEP_LOG_DONE;
		int r;

		if (l->boot == BOOT_OTHER || log_is_past(&p, l) ||
		    (l->last && l->last < s->read->since))
			continue;
		if (is_enough(s))
			return;
		r = read_log(s, l, fds, &end);
		if (r == 0 && (end == STEP_PAUSE || end == STEP_GONE))
			return;
		if (r < 0 && l->final)
			s->read->end.skipped = true;
		else if (r < 0)
			error = r;
		if (end == STEP_FULL) {
			s->read->end.more = true;
			break;
		}
	}
	if (error == 0 && s->read->end.entries == 0 && !has_this_boot(s->journal))
		error = -ENOENT;
	end_read(s->read, error);
}

static int on_work(sd_event_source *source, void *userdata)
{
	struct journal *j = userdata;
	struct step s = {.journal = j,
	                 .read = j->queue,
	                 .ended = j->ended,
	                 .until = clock_boottime() + STEP_TIME};
	int fds[N_PLACES] = {-1, -1}, r;

	if (!s.read)
		return 0;
	r = look(j, fds);
	if (r >= 0 && !s.read->begun)
		begin(s.read);
	if (r < 0)
		end_read(s.read, r);
	else if (is_settled(s.read))
		end_read(s.read, 0);
	else
		read_logs(&s, fds);
	close_places(fds);
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
	free(j->logs);
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
	unlink_read(r);
	free(r);
	return NULL;
}
