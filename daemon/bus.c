/* SPDX-License-Identifier: Apache-2.0 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-bus.h>

#include "bus.h"
#include "clock.h"
#include "envfile.h"
#include "observation.h"

enum {
	WATCHES_MAX = 64,
	SILENT_MAX = 3, /* calls in a row without an answer: the connection is given up */
	ENVIRONMENT_FILE_MAX = 65536,
	ENVIRONMENT_FILES_MAX = 8,
};

/* Not all that is read has a signal: a unit that is masked, a file of variables. */
#define KEPT_FOR    (60 * USEC_PER_SEC)
#define RETRY_FIRST (250 * USEC_PER_MSEC)
#define RETRY_MAX   (30 * USEC_PER_SEC)

static const char systemd[] = "org.freedesktop.systemd1";

struct watched {
	struct bus *bus;
	char unit[UNIT_NAME_MAX];
	sd_bus_slot *slot;
	bool heard;        /* the bus has said that it will pass the signals on */
	unsigned changes;  /* signals so far */
	struct unit *kept; /* as it was at the last look, when nothing has changed since; or NULL */
	usec_t kept_at;
};

struct bus {
	sd_event *event;
	const struct files *files;
	bus_changed_t changed;
	void *userdata;
	sd_bus *bus;             /* NULL: not connected */
	const char *destination; /* NULL on systemd's own socket: the far side is systemd itself */
	bool ready, lost, subscribed;
	unsigned silent;
	sd_event_source *timer; /* to connect anew, or to clear away what was lost */
	usec_t retry;
	struct watched *watches[WATCHES_MAX];
	size_t n_watches;
	struct bus_call *calls;
};

enum request { REQUEST_UNIT, REQUEST_SERVICE, REQUEST_MANAGER, N_REQUESTS };

/* Upper case wins, as in the Go programs that these variables are for. */
enum { PROXIES = 3 };

struct bus_call {
	struct bus_call *next;
	struct bus *bus;
	bus_done_t done;
	void *userdata;
	sd_event_source *timer; /* the deadline, or the deferred word that it failed */
	int error;
	sd_bus_slot *slots[N_REQUESTS];
	unsigned waiting;
	bool from_kept;   /* the answer is there already */
	unsigned changes; /* of what is watched, when it was asked */
	/* The manager's variables come first, the unit's own, then its files', whichever reply was
	 * there first: later ones override. */
	char **environment[2];
	char *files[ENVIRONMENT_FILES_MAX];
	size_t n_files;
	bool upper[PROXIES];
	struct unit unit;
};

/* ---- the end of a call ---- */

static void call_unlink(struct bus_call *c)
{
	struct bus_call **p;

	if (!c->bus)
		return;
	for (p = &c->bus->calls; *p && *p != c; p = &(*p)->next)
		;
	if (*p)
		*p = c->next;
	c->bus = NULL;
}

static char **strings_free(char **s)
{
	for (size_t i = 0; s && s[i]; i++) {
		explicit_bzero(s[i], strlen(s[i]));
		free(s[i]);
	}
	free(s);
	return NULL;
}

static void forget_requests(struct bus_call *c)
{
	for (size_t i = 0; i < N_REQUESTS; i++)
		c->slots[i] = sd_bus_slot_unref(c->slots[i]);
	c->waiting = 0;
}

struct bus_call *bus_call_free(struct bus_call *c)
{
	if (!c)
		return NULL;
	call_unlink(c);
	sd_event_source_disable_unref(c->timer);
	forget_requests(c);
	for (size_t i = 0; i < ELEMENTS(c->environment); i++)
		strings_free(c->environment[i]);
	for (size_t i = 0; i < c->n_files; i++)
		free(c->files[i]);
	explicit_bzero(&c->unit, sizeof(c->unit));
	free(c);
	return NULL;
}

/* c may be gone afterwards. */
static void call_end(struct bus_call *c, int error)
{
	struct bus_reply reply = {.error = error, .unit = error ? NULL : &c->unit};

	(void) sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
	forget_requests(c);
	call_unlink(c);
	c->done(c, &reply, c->userdata);
}

/* Says so from the loop, not from inside of whoever called us. */
static void call_fail(struct bus_call *c, int error)
{
	c->error = error;
	forget_requests(c);
	(void) sd_event_source_set_time(c->timer, 0);
}

/* ---- the connection ---- */

static void arm(struct bus *b, usec_t after)
{
	(void) sd_event_source_set_time_relative(b->timer, after);
	(void) sd_event_source_set_enabled(b->timer, SD_EVENT_ONESHOT);
}

static void arm_retry(struct bus *b)
{
	if (b->n_watches == 0)
		return; /* the next call will try */
	arm(b, b->retry);
	b->retry = b->retry * 2 < RETRY_MAX ? b->retry * 2 : RETRY_MAX;
}

static void forget_kept(struct watched *w)
{
	if (w->kept)
		explicit_bzero(w->kept, sizeof(*w->kept));
	free(w->kept);
	w->kept = NULL;
}

/* Calls that wait fail with error. Never flushes: the far side may be what hangs. */
static void drop(struct bus *b, int error)
{
	for (struct bus_call *c = b->calls; c; c = c->next)
		if (!c->error)
			call_fail(c, error);
	for (size_t i = 0; i < b->n_watches; i++) {
		struct watched *w = b->watches[i];

		w->slot = sd_bus_slot_unref(w->slot);
		w->heard = false;
		forget_kept(w);
	}
	b->bus = sd_bus_close_unref(b->bus);
	b->ready = b->lost = b->subscribed = false;
	b->silent = 0;
}

static int connect_to(const struct files *files, const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	_cleanup_(closep) int where = file_open(files, path, O_PATH);
	_cleanup_(closep) int fd = -1;
	int n;

	if (where < 0)
		return where;
	/* the only name that is short enough and cannot be exchanged or lead out of the root */
	n = snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d", where);
	if (n < 0 || (size_t) n >= sizeof(sa.sun_path))
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *) &sa, sizeof(sa)) < 0)
		return -errno; /* EAGAIN: its backlog is full */
	return TAKE_FD(fd);
}

static bool is_directory(const struct files *files, const char *path)
{
	struct stat st;

	return file_stat(files, path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* What a failed connect says of the world. Where systemd's directories are, so should its bus be.
 */
static int classify(const struct files *files, int error)
{
	switch (error) {
	case -EPERM:
	case -EACCES:
		return -EACCES;
	case -ENOENT:
	case -ENOTDIR:
	case -ELOOP:
		return is_directory(files, "/run/dbus") || is_directory(files, "/run/systemd")
		               ? -ECONNREFUSED
		               : -ENOENT;
	case -EAGAIN: /* nobody accepts */
	case -EPROTOTYPE:
	case -ENOTSOCK:
		return -ECONNREFUSED;
	default:
		return error;
	}
}

static int open_socket(struct bus *b)
{
	int fd, first;

	fd = connect_to(b->files, "/run/dbus/system_bus_socket");
	b->destination = systemd;
	if (fd >= 0)
		return fd;
	first = classify(b->files, fd);
	/* before the bus is up, and where there is none, systemd itself listens to root */
	fd = connect_to(b->files, "/run/systemd/private");
	b->destination = NULL;
	if (fd >= 0)
		return fd;
	return first == -ECONNREFUSED && fd == -EACCES ? -EACCES : first;
}

static int on_connected(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
	struct bus *b = userdata;

	b->ready = true;
	b->retry = RETRY_FIRST;
	/* what changed while nobody told us is not known */
	for (size_t i = 0; i < b->n_watches; i++)
		b->changed(b->watches[i]->unit, b->userdata);
	return 0;
}

static int on_disconnected(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
	struct bus *b = userdata;

	b->lost = true;
	arm(b, 0);
	return 0;
}

static int on_changed(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
	struct watched *w = userdata;

	w->changes++;
	forget_kept(w);
	w->bus->changed(w->unit, w->bus->userdata);
	return 0;
}

/* A refused subscription or match costs us the signals only: units are still looked at. */
static int on_subscribed(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
	struct bus *b = userdata;

	b->subscribed = !sd_bus_message_is_method_error(m, NULL);
	return 0;
}

static int on_matched(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
	struct watched *w = userdata;

	w->heard = !sd_bus_message_is_method_error(m, NULL);
	return 0;
}

static int unit_path(const char *unit, char **ret)
{
	return sd_bus_path_encode("/org/freedesktop/systemd1/unit", unit, ret);
}

static int ask_to_subscribe(struct bus *b)
{
	return sd_bus_call_method_async(b->bus, NULL, b->destination, "/org/freedesktop/systemd1",
	                                "org.freedesktop.systemd1.Manager", "Subscribe",
	                                on_subscribed, b, NULL);
}

static int watch_now(struct bus *b, struct watched *w)
{
	_cleanup_(freep) char *path = NULL;
	int r = unit_path(w->unit, &path);

	if (r < 0)
		return r;
	return sd_bus_match_signal_async(b->bus, &w->slot, b->destination, path,
	                                 "org.freedesktop.DBus.Properties", "PropertiesChanged",
	                                 on_changed, on_matched, w);
}

/* systemd has left the bus, or come back, and then knows nothing of who had subscribed. */
static int on_owner_changed(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
	struct bus *b = userdata;
	const char *name = "", *before = "", *after = "";

	b->subscribed = false;
	for (size_t i = 0; i < b->n_watches; i++) {
		b->watches[i]->changes++;
		forget_kept(b->watches[i]);
	}
	if (sd_bus_message_read(m, "sss", &name, &before, &after) < 0 || !*after)
		return 0;
	if (ask_to_subscribe(b) >= 0)
		for (size_t i = 0; i < b->n_watches; i++)
			b->changed(b->watches[i]->unit, b->userdata);
	return 0;
}

static int watch_owner(struct bus *b)
{
	return sd_bus_add_match_async(b->bus, NULL,
	                              "type='signal',sender='org.freedesktop.DBus',"
	                              "path='/org/freedesktop/DBus',"
	                              "interface='org.freedesktop.DBus',"
	                              "member='NameOwnerChanged',arg0='org.freedesktop.systemd1'",
	                              on_owner_changed, NULL, b);
}

static int local_signal(struct bus *b, const char *member, sd_bus_message_handler_t callback)
{
	char match[192];

	/* of the connection itself: nothing is sent for these */
	(void) text_format(match, sizeof(match),
	                   "type='signal',sender='org.freedesktop.DBus.Local',"
	                   "path='/org/freedesktop/DBus/Local',"
	                   "interface='org.freedesktop.DBus.Local',member='%s'",
	                   member);
	return sd_bus_add_match_async(b->bus, NULL, match, callback, NULL, b);
}

static int subscribe(struct bus *b)
{
	int r = 0;

	if (b->n_watches == 0)
		return 0;
	for (size_t i = 0; i < b->n_watches && r >= 0; i++)
		r = watch_now(b, b->watches[i]);
	if (r >= 0 && b->destination)
		r = watch_owner(b);
	return r < 0 ? r : ask_to_subscribe(b);
}

/* From a socket that is connected to a bus that is being greeted; it takes calls at once and sends
 * them once the far side has answered. */
static int greet(struct bus *b, int fd)
{
	int r;

	r = sd_bus_new(&b->bus);
	if (r < 0) {
		(void) close(fd);
		return r;
	}
	r = sd_bus_set_fd(b->bus, fd, fd); /* the bus owns it from here on */
	if (r < 0) {
		(void) close(fd);
		return r;
	}
	if (b->destination)
		r = sd_bus_set_bus_client(b->bus, true);
	if (r >= 0)
		r = sd_bus_set_connected_signal(b->bus, true);
	if (r >= 0)
		r = local_signal(b, "Connected", on_connected);
	if (r >= 0)
		r = local_signal(b, "Disconnected", on_disconnected);
	if (r >= 0)
		r = sd_bus_start(b->bus);
	if (r >= 0)
		r = sd_bus_attach_event(b->bus, b->event, SD_EVENT_PRIORITY_NORMAL);
	if (r >= 0)
		r = subscribe(b);
	return r < 0 ? r : 0;
}

static int connect_bus(struct bus *b)
{
	int fd, r;

	if (b->bus && !b->lost)
		return 0;
	drop(b, -ECONNREFUSED);
	fd = open_socket(b);
	r = fd < 0 ? fd : greet(b, fd);
	if (r < 0) {
		drop(b, -ECONNREFUSED);
		arm_retry(b);
		return fd < 0 || errno_is_ours(r) ? r : -ECONNREFUSED;
	}
	return 0;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct bus *b = userdata;

	if (b->lost) {
		drop(b, -ECONNREFUSED);
		arm_retry(b);
		return 0;
	}
	(void) connect_bus(b);
	return 0;
}

int bus_new(struct bus **ret, sd_event *event, const struct files *files, bus_changed_t changed,
            void *userdata)
{
	struct bus *b = calloc(1, sizeof(*b));
	int r;

	if (!b)
		return -ENOMEM;
	b->event = sd_event_ref(event);
	b->files = files;
	b->changed = changed;
	b->userdata = userdata;
	b->retry = RETRY_FIRST;
	r = sd_event_add_time_relative(event, &b->timer, CLOCK_BOOTTIME, 0, 50 * USEC_PER_MSEC,
	                               on_timer, b);
	if (r >= 0)
		r = sd_event_source_set_enabled(b->timer, SD_EVENT_OFF);
	if (r < 0)
		return bus_free(b), r;
	*ret = b;
	return 0;
}

struct bus *bus_free(struct bus *b)
{
	if (!b)
		return NULL;
	drop(b, -ECANCELED);
	while (b->calls)
		call_unlink(b->calls); /* their owners still hold them; they say that they failed */
	for (size_t i = 0; i < b->n_watches; i++)
		free(b->watches[i]); /* drop() has freed what they kept */
	sd_event_source_disable_unref(b->timer);
	sd_event_unref(b->event);
	free(b);
	return NULL;
}

int bus_watch(struct bus *b, const char *unit)
{
	struct watched *w;
	int r = 0;

	for (size_t i = 0; i < b->n_watches; i++)
		if (strcmp(b->watches[i]->unit, unit) == 0)
			return 0;
	if (b->n_watches == WATCHES_MAX)
		return -ENOSPC;
	if (strlen(unit) >= sizeof(w->unit))
		return -ENAMETOOLONG;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->bus = b;
	(void) text_format(w->unit, sizeof(w->unit), "%s", unit);
	b->watches[b->n_watches++] = w;
	if (b->bus && !b->lost)
		r = b->n_watches == 1 ? subscribe(b) : watch_now(b, w);
	if (b->n_watches == 1)
		arm(b, 0);
	return r < 0 ? r : 0;
}

/* ---- the answers ---- */

static void set_proxy(const char *name, const char *value, void *userdata)
{
	struct bus_call *c = userdata;
	static const char *const upper[PROXIES] = {"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"};
	static const char *const lower[PROXIES] = {"http_proxy", "https_proxy", "no_proxy"};
	char *const fields[PROXIES] = {c->unit.http_proxy, c->unit.https_proxy, c->unit.no_proxy};

	for (size_t i = 0; i < PROXIES; i++) {
		bool is_upper = strcmp(name, upper[i]) == 0;

		if (!is_upper && (strcmp(name, lower[i]) != 0 || c->upper[i]))
			continue;
		c->upper[i] = is_upper && *value;
		(void) text_format(fields[i], UNIT_PROXY_MAX, "%s", value);
	}
}

static void read_environment_file(struct bus_call *c, const char *path)
{
	char *text = NULL;
	size_t len = 0;

	/* what is not there was optional, or the unit would not run; its state says so */
	if (file_read(c->bus->files, path, ENVIRONMENT_FILE_MAX, &text, &len) < 0)
		return;
	envfile_parse(text, len, set_proxy, c);
	explicit_bzero(text, len);
	free(text);
}

static void read_environments(struct bus_call *c)
{
	for (size_t i = 0; i < ELEMENTS(c->environment); i++)
		for (char **e = c->environment[i]; e && *e; e++) {
			char *equals = strchr(*e, '=');

			if (!equals)
				continue;
			*equals = 0;
			set_proxy(*e, equals + 1, c);
			*equals = '=';
		}
	for (size_t i = 0; i < c->n_files; i++)
		read_environment_file(c, c->files[i]);
}

static int read_environment(sd_bus_message *m, char ***ret)
{
	*ret = strings_free(*ret);
	return sd_bus_message_read_strv(m, ret);
}

static int read_file_names(struct bus_call *c, sd_bus_message *m)
{
	const char *path;
	int ignore, r;

	r = sd_bus_message_enter_container(m, 'a', "(sb)");
	if (r < 0)
		return r;
	while ((r = sd_bus_message_read(m, "(sb)", &path, &ignore)) > 0) {
		if (c->n_files == ENVIRONMENT_FILES_MAX || strpbrk(path, "*?["))
			continue;
		c->files[c->n_files] = strdup(path);
		if (!c->files[c->n_files])
			return -ENOMEM;
		c->n_files++;
	}
	return r < 0 ? r : sd_bus_message_exit_container(m);
}

/* What of GetAll() is wanted. Types are D-Bus signatures. */
struct field {
	const char *name, *type;
	size_t offset, size;
};

#define F(n, t, m)                                                                                 \
	{                                                                                          \
		n, t, offsetof(struct unit, m), sizeof(((struct unit *) 0)->m)                     \
	}
static const struct field unit_fields[] = {
	F("LoadState", "s", load),
	F("ActiveState", "s", active),
	F("SubState", "s", sub),
	F("UnitFileState", "s", file_state),
	F("ActiveEnterTimestampMonotonic", "t", active_enter),
	F("ActiveExitTimestampMonotonic", "t", active_exit),
	F("InactiveEnterTimestampMonotonic", "t", inactive_enter),
	F("InactiveExitTimestampMonotonic", "t", inactive_exit),
	{0},
};
static const struct field service_fields[] = {
	F("Result", "s", result),
	F("NRestarts", "u", restarts),
	F("MainPID", "u", main_pid),
	F("ExecMainStartTimestampMonotonic", "t", main_start),
	F("ExecMainExitTimestampMonotonic", "t", main_exit),
	F("ExecMainCode", "i", main_code),
	F("ExecMainStatus", "i", main_status),
	{"Environment", "as", 0, 0},
	{"EnvironmentFiles", "a(sb)", 0, 0},
	{0},
};
#undef F

static int read_field(struct bus_call *c, sd_bus_message *m, const struct field *f)
{
	char *where = (char *) &c->unit + f->offset;
	const char *s;
	int r;

	r = sd_bus_message_enter_container(m, 'v', f->type);
	if (r < 0)
		return r;
	if (strcmp(f->type, "as") == 0) {
		r = read_environment(m, &c->environment[1]);
	} else if (f->type[0] == 'a') {
		r = read_file_names(c, m);
	} else if (f->type[0] == 's') {
		r = sd_bus_message_read_basic(m, 's', &s);
		if (r > 0)
			(void) text_clean(where, f->size, s, strlen(s));
	} else {
		r = sd_bus_message_read_basic(m, f->type[0], where);
	}
	return r < 0 ? r : sd_bus_message_exit_container(m);
}

static int read_property(struct bus_call *c, sd_bus_message *m, const struct field *fields)
{
	const char *name, *contents;
	int r;

	r = sd_bus_message_read_basic(m, 's', &name);
	if (r < 0)
		return r;
	for (; fields->name; fields++)
		if (strcmp(fields->name, name) == 0)
			break;
	if (!fields->name)
		return sd_bus_message_skip(m, "v");
	r = sd_bus_message_peek_type(m, NULL, &contents);
	if (r < 0)
		return r;
	if (!contents || strcmp(contents, fields->type) != 0)
		return -EBADMSG;
	return read_field(c, m, fields);
}

static int read_properties(struct bus_call *c, sd_bus_message *m, const struct field *fields)
{
	int r;

	r = sd_bus_message_enter_container(m, 'a', "{sv}");
	while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
		r = read_property(c, m, fields);
		if (r >= 0)
			r = sd_bus_message_exit_container(m);
	}
	return r;
}

static int read_reply(struct bus_call *c, sd_bus_message *m, enum request rq)
{
	int r;

	if (rq == REQUEST_MANAGER) {
		r = sd_bus_message_enter_container(m, 'v', "as");
		if (r >= 0)
			r = read_environment(m, &c->environment[0]);
	} else {
		r = read_properties(c, m, rq == REQUEST_UNIT ? unit_fields : service_fields);
	}
	if (r < 0)
		return errno_is_ours(r) ? r : -EBADMSG;
	return rq == REQUEST_UNIT && !c->unit.load[0] ? -EBADMSG : 0;
}

static int error_of(sd_bus_message *m)
{
	static const struct {
		const char *name;
		int error;
	} known[] = {
		{SD_BUS_ERROR_ACCESS_DENIED, -EACCES},
		{SD_BUS_ERROR_INTERACTIVE_AUTHORIZATION_REQUIRED, -EACCES},
		{SD_BUS_ERROR_SERVICE_UNKNOWN, -ECONNREFUSED},
		{SD_BUS_ERROR_NAME_HAS_NO_OWNER, -ECONNREFUSED},
		{SD_BUS_ERROR_NO_REPLY, -ECONNREFUSED}, /* who was to answer has gone */
		{SD_BUS_ERROR_DISCONNECTED, -ECONNREFUSED},
		{SD_BUS_ERROR_TIMEOUT, -ETIMEDOUT},
		{"org.freedesktop.systemd1.NoSuchUnit", -ENXIO},
		{SD_BUS_ERROR_UNKNOWN_OBJECT, -ENXIO},
	};

	for (size_t i = 0; i < ELEMENTS(known); i++)
		if (sd_bus_message_is_method_error(m, known[i].name))
			return known[i].error;
	return -EBADMSG;
}

static struct watched *find_watched(const struct bus *b, const char *unit)
{
	for (size_t i = 0; i < b->n_watches; i++)
		if (strcmp(b->watches[i]->unit, unit) == 0)
			return b->watches[i];
	return NULL;
}

/* What signals would tell of need not be asked for again: systemd has some 300 properties to put
 * together for each answer. A proxy's password is not held for that. */
static void keep(const struct bus_call *c)
{
	struct watched *w = find_watched(c->bus, c->unit.name);

	if (!w || !w->heard || !c->bus->subscribed || w->changes != c->changes ||
	    c->unit.http_proxy[0] || c->unit.https_proxy[0])
		return;
	if (!w->kept)
		w->kept = malloc(sizeof(*w->kept));
	if (!w->kept)
		return;
	*w->kept = c->unit;
	w->kept_at = clock_boottime();
}

static void all_read(struct bus_call *c)
{
	read_environments(c);
	keep(c);
	call_end(c, 0);
}

static int on_reply(struct bus_call *c, sd_bus_message *m, enum request rq)
{
	int r;

	c->bus->silent = 0;
	r = sd_bus_message_is_method_error(m, NULL) ? error_of(m) : read_reply(c, m, rq);
	if (r == -ENXIO) {
		(void) text_format(c->unit.load, sizeof(c->unit.load), "not-found");
		r = 0;
	}
	c->slots[rq] = sd_bus_slot_unref(c->slots[rq]);
	c->waiting--;
	if (r < 0)
		call_end(c, r);
	else if (c->waiting == 0)
		all_read(c);
	return 0;
}

static int on_unit(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
	return on_reply(userdata, m, REQUEST_UNIT);
}

static int on_service(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
	return on_reply(userdata, m, REQUEST_SERVICE);
}

static int on_manager(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
	return on_reply(userdata, m, REQUEST_MANAGER);
}

/* ---- the question ---- */

static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct bus_call *c = userdata;
	struct bus *b = c->bus;

	if (c->from_kept && b) {
		call_end(c, 0);
		return 0;
	}
	if (c->error || !b) {
		call_end(c, c->error ? c->error : -ECANCELED);
		return 0;
	}
	call_unlink(c);
	/* not even greeted, or deaf: a new connection may find who listens */
	if (!b->ready || ++b->silent >= SILENT_MAX) {
		drop(b, -ETIMEDOUT);
		arm_retry(b);
	}
	call_end(c, -ETIMEDOUT);
	return 0;
}

static bool is_service(const char *unit)
{
	const char *dot = strrchr(unit, '.');

	return dot && strcmp(dot, ".service") == 0;
}

static int ask(struct bus_call *c, enum request rq, const char *path, const char *member,
               sd_bus_message_handler_t callback, const char *interface, const char *property)
{
	struct bus *b = c->bus;
	int r;

	r = sd_bus_call_method_async(b->bus, &c->slots[rq], b->destination, path,
	                             "org.freedesktop.DBus.Properties", member, callback, c,
	                             property ? "ss" : "s", interface, property);
	if (r < 0)
		return r;
	c->waiting++;
	return 0;
}

static int ask_all(struct bus_call *c)
{
	_cleanup_(freep) char *path = NULL;
	int r;

	r = unit_path(c->unit.name, &path);
	if (r >= 0)
		r = ask(c, REQUEST_UNIT, path, "GetAll", on_unit, "org.freedesktop.systemd1.Unit",
		        NULL);
	if (r < 0 || !is_service(c->unit.name))
		return r;
	r = ask(c, REQUEST_SERVICE, path, "GetAll", on_service, "org.freedesktop.systemd1.Service",
	        NULL);
	if (r < 0)
		return r;
	return ask(c, REQUEST_MANAGER, "/org/freedesktop/systemd1", "Get", on_manager,
	           "org.freedesktop.systemd1.Manager", "Environment");
}

/* Puts the question; what stands in the way is said later, as an answer. */
static int start_call(struct bus_call *c)
{
	struct bus *b = c->bus;
	struct watched *w;
	int r;

	r = connect_bus(b);
	if (r < 0)
		return r;
	w = find_watched(b, c->unit.name);
	if (w && w->kept && clock_boottime() - w->kept_at < KEPT_FOR) {
		c->unit = *w->kept;
		c->from_kept = true;
		return sd_event_source_set_time(c->timer, 0);
	}
	c->changes = w ? w->changes : 0;
	r = ask_all(c);
	if (r == -ENOTCONN || r == -ECONNRESET || r == -EPIPE || r == -ESHUTDOWN) {
		/* it has gone, and we have not been told yet */
		forget_requests(c);
		b->lost = true;
		r = connect_bus(b);
		if (r >= 0)
			r = ask_all(c);
	}
	return r;
}

int bus_call_new(struct bus_call **ret, struct bus *b, const char *unit, usec_t timeout,
                 bus_done_t done, void *userdata)
{
	struct bus_call *c;
	int r;

	if (strlen(unit) >= UNIT_NAME_MAX)
		return -ENAMETOOLONG;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->done = done;
	c->userdata = userdata;
	(void) text_format(c->unit.name, sizeof(c->unit.name), "%s", unit);
	r = sd_event_add_time_relative(b->event, &c->timer, CLOCK_BOOTTIME, timeout, 1000,
	                               on_deadline, c);
	if (r < 0)
		return bus_call_free(c), r;
	c->bus = b;
	r = start_call(c);
	c->next = b->calls;
	b->calls = c;
	if (r < 0)
		call_fail(c, r);
	*ret = c;
	return 0;
}
