/* SPDX-License-Identifier: Apache-2.0 */
/* A real dbus-daemon below a root of this test's own, a systemd of this test's own on it, and what
 * can become of both. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>

#include "../tap.h"
#include "bus.h"

static char root[] = "/tmp/nodewhy-bus-XXXXXX";
static sd_event *event;
static struct files *files;

/* ---- processes ---- */

static pid_t spawn(void (*body)(void *), void *userdata)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
		body(userdata);
		_exit(0);
	}
	return pid;
}

static void kill_wait(pid_t pid)
{
	if (pid <= 0)
		return;
	(void) kill(pid, SIGKILL);
	(void) waitpid(pid, NULL, 0);
}

static const char *below(const char *path)
{
	static char text[PATH_MAX];

	(void) text_format(text, sizeof(text), "%s%s", root, path);
	return text;
}

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(below(path), "we");

	if (f) {
		(void) fputs(text, f);
		(void) fclose(f);
	}
}

static int listen_at(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void) text_format(sa.sun_path, sizeof(sa.sun_path), "%s", below(path));
	(void) unlink(sa.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *) &sa, sizeof(sa)) < 0 || listen(fd, 8) < 0)
		return -1;
	return fd;
}

static bool answers(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool good;

	(void) text_format(sa.sun_path, sizeof(sa.sun_path), "%s", below(path));
	good = connect(fd, (struct sockaddr *) &sa, sizeof(sa)) == 0;
	(void) close(fd);
	return good;
}

static void run_daemon(void *userdata)
{
	char config[PATH_MAX];

	int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);

	(void) text_format(config, sizeof(config), "--config-file=%s", below("/bus.conf"));
	(void) dup2(quiet, STDERR_FILENO); /* that it may not raise its limits here */
	(void) execlp("dbus-daemon", "dbus-daemon", config, "--nofork", "--nopidfile", NULL);
	_exit(127);
}

static pid_t start_daemon(void)
{
	char text[PATH_MAX + 512];
	pid_t pid;
	int status;

	(void) text_format(
		text, sizeof(text),
		"<busconfig><type>system</type>"
		"<listen>unix:path=%s/run/dbus/system_bus_socket</listen>"
		"<auth>EXTERNAL</auth><policy context='default'><allow send_destination='*'/>"
		"<allow receive_sender='*'/><allow own='*'/><allow user='*'/></policy>"
		"</busconfig>",
		root);
	write_file("/bus.conf", text);
	(void) unlink(below("/run/dbus/system_bus_socket"));
	pid = spawn(run_daemon, NULL);
	for (int i = 0; i < 500 && !answers("/run/dbus/system_bus_socket"); i++) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return -1; /* not installed */
		(void) usleep(10000);
	}
	return pid;
}

/* ---- a systemd ---- */

static int put(sd_bus_message *m, const char *name, const char *type, ...)
{
	va_list ap;
	int r;

	va_start(ap, type);
	r = sd_bus_message_open_container(m, 'e', "sv");
	if (r >= 0)
		r = sd_bus_message_append(m, "s", name);
	if (r >= 0)
		r = sd_bus_message_open_container(m, 'v', type);
	if (r >= 0)
		r = sd_bus_message_appendv(m, type, ap);
	if (r >= 0)
		r = sd_bus_message_close_container(m);
	if (r >= 0)
		r = sd_bus_message_close_container(m);
	va_end(ap);
	return r;
}

static uint64_t asked; /* for counted.mount, of this systemd */

static void put_unit(sd_bus_message *m, const char *unit)
{
	if (strcmp(unit, "half.service") == 0)
		return;
	if (strcmp(unit, "odd.service") == 0)
		(void) put(m, "LoadState", "u", 7);
	else if (strcmp(unit, "gone.service") == 0)
		(void) put(m, "LoadState", "s", "not-found");
	else
		(void) put(m, "LoadState", "s", "loaded");
	(void) put(m, "Names", "as", 2, "one", "two");
	(void) put(m, "ActiveState", "s", "activating");
	(void) put(m, "SubState", "s", "auto-restart\x1b[31m and much more than fits");
	(void) put(m, "UnitFileState", "s", "disabled");
	(void) put(m, "Job", "(uo)", 0, "/");
	(void) put(m, "ActiveEnterTimestampMonotonic", "t",
	           strcmp(unit, "counted.mount") == 0 ? ++asked : UINT64_C(41000000));
	(void) put(m, "ActiveExitTimestampMonotonic", "t", UINT64_C(42000000));
	(void) put(m, "InactiveEnterTimestampMonotonic", "t", UINT64_C(43000000));
	(void) put(m, "InactiveExitTimestampMonotonic", "t", UINT64_C(40000000));
}

static void put_service(sd_bus_message *m, const char *unit)
{
	(void) put(m, "Result", "s", "exit-code");
	(void) put(m, "NRestarts", "u", 17);
	(void) put(m, "MainPID", "u", 4711);
	(void) put(m, "ExecMainStartTimestampMonotonic", "t", UINT64_C(44000000));
	(void) put(m, "ExecMainExitTimestampMonotonic", "t", UINT64_C(45000000));
	(void) put(m, "ExecMainCode", "i", 1);
	(void) put(m, "ExecMainStatus", "i", -3);
	if (strcmp(unit, "odd-service.service") == 0)
		(void) put(m, "EnvironmentFiles", "s", "/x");
	else
		(void) put(m, "EnvironmentFiles", "a(sb)", 3, "/etc/proxy.env", false, "/etc/none",
		           true, "/etc/*.env", true);
	(void) put(m, "Environment", "as", 4, "no_proxy=lower", "NO_PROXY=169.254.169.254",
	           "no_proxy=later", "HTTP_PROXY=overridden");
}

static int on_method(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
	sd_bus *bus = sd_bus_message_get_bus(m);
	sd_bus_message *reply = NULL;
	const char *interface = "";
	char *unit = NULL;
	int r;

	if (sd_bus_message_is_method_call(m, "org.freedesktop.systemd1.Manager", "Subscribe"))
		return sd_bus_reply_method_return(m, NULL);
	if (sd_bus_message_is_method_call(m, "org.freedesktop.DBus.Properties", "Get"))
		return sd_bus_reply_method_return(m, "v", "as", 2, "HTTPS_PROXY=manager",
		                                  "HTTP_PROXY=overridden too");
	if (!sd_bus_message_is_method_call(m, "org.freedesktop.DBus.Properties", "GetAll"))
		return 0;
	r = sd_bus_path_decode(sd_bus_message_get_path(m), "/org/freedesktop/systemd1/unit", &unit);
	if (r <= 0 || sd_bus_message_read(m, "s", &interface) < 0)
		return -EINVAL;
	if (strcmp(unit, "poke.service") == 0)
		(void) sd_bus_emit_signal(bus, "/org/freedesktop/systemd1/unit/kubelet_2eservice",
		                          "org.freedesktop.DBus.Properties", "PropertiesChanged",
		                          "sa{sv}as", "org.freedesktop.systemd1.Service", 0, 0);
	if (strcmp(unit, "poke.mount") == 0)
		(void) sd_bus_emit_signal(bus, "/org/freedesktop/systemd1/unit/counted_2emount",
		                          "org.freedesktop.DBus.Properties", "PropertiesChanged",
		                          "sa{sv}as", "org.freedesktop.systemd1.Unit", 0, 0);
	if (strcmp(unit, "silent.service") == 0)
		r = 1;
	else if (strcmp(unit, "denied.service") == 0)
		r = sd_bus_reply_method_errorf(m, SD_BUS_ERROR_ACCESS_DENIED, "no");
	else if (strcmp(unit, "none.service") == 0)
		r = sd_bus_reply_method_errorf(m, "org.freedesktop.systemd1.NoSuchUnit", "none");
	else if (strcmp(unit, "text.service") == 0)
		r = sd_bus_reply_method_return(m, "s", "a{sv} was asked for");
	else if (sd_bus_message_new_method_return(m, &reply) < 0)
		r = -ENOMEM;
	else {
		(void) sd_bus_message_open_container(reply, 'a', "{sv}");
		if (strcmp(interface, "org.freedesktop.systemd1.Unit") == 0)
			put_unit(reply, unit);
		else
			put_service(reply, unit);
		(void) sd_bus_message_close_container(reply);
		r = sd_bus_send(bus, reply, NULL);
	}
	sd_bus_message_unref(reply);
	free(unit);
	return r < 0 ? r : 1;
}

static void serve(sd_bus *bus)
{
	if (sd_bus_add_fallback(bus, NULL, "/org/freedesktop/systemd1", on_method, NULL) < 0)
		_exit(1);
	for (;;) {
		int r = sd_bus_process(bus, NULL);

		if (r < 0)
			_exit(2);
		if (r == 0 && sd_bus_wait(bus, UINT64_MAX) < 0)
			_exit(3);
	}
}

static void run_systemd(void *userdata)
{
	int *ready = userdata;
	char address[PATH_MAX];
	sd_bus *bus = NULL;

	(void) text_format(address, sizeof(address), "unix:path=%s",
	                   below("/run/dbus/system_bus_socket"));
	if (sd_bus_new(&bus) < 0 || sd_bus_set_address(bus, address) < 0 ||
	    sd_bus_set_bus_client(bus, true) < 0 || sd_bus_start(bus) < 0 ||
	    sd_bus_request_name(bus, "org.freedesktop.systemd1", 0) < 0)
		_exit(4);
	if (write(ready[1], "x", 1) != 1)
		_exit(6);
	serve(bus);
}

static pid_t start_systemd(void)
{
	int ready[2];
	char c;
	pid_t pid;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -1;
	pid = spawn(run_systemd, ready);
	(void) close(ready[1]);
	if (read(ready[0], &c, 1) != 1) {
		kill_wait(pid);
		pid = -1;
	}
	(void) close(ready[0]);
	return pid;
}

/* systemd on its own socket: no bus in between. */
static void run_private(void *userdata)
{
	int fd = accept4(*(int *) userdata, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	sd_id128_t id =
		SD_ID128_MAKE(01, 23, 45, 67, 89, ab, cd, ef, 01, 23, 45, 67, 89, ab, cd, ef);
	sd_bus *bus = NULL;

	if (sd_bus_new(&bus) < 0 || sd_bus_set_fd(bus, fd, fd) < 0 ||
	    sd_bus_set_server(bus, true, id) < 0 || sd_bus_start(bus) < 0)
		_exit(5);
	serve(bus);
}

static void run_garbage(void *userdata)
{
	for (;;) {
		int fd = accept4(*(int *) userdata, NULL, NULL, SOCK_CLOEXEC);

		/* the first may have hung up long ago */
		if (write(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28) == 28)
			(void) usleep(20000);
		(void) close(fd);
	}
}

/* ---- the client ---- */

struct seen {
	int called, error;
	struct unit unit;
	struct bus_call *call;
	bool free_inside;
};

static unsigned changes;
static char changed_unit[UNIT_NAME_MAX];

static void on_change(const char *unit, void *userdata)
{
	changes++;
	(void) text_format(changed_unit, sizeof(changed_unit), "%s", unit);
}

static void on_done(struct bus_call *c, const struct bus_reply *r, void *userdata)
{
	struct seen *s = userdata;

	s->called++;
	s->error = r->error;
	if (r->unit)
		s->unit = *r->unit;
	if (s->free_inside)
		s->call = bus_call_free(s->call);
}

static void spin(usec_t most, const int *until)
{
	uint64_t start = 0, now = 0;

	(void) sd_event_now(event, CLOCK_BOOTTIME, &start);
	do {
		if (sd_event_run(event, 20000) < 0)
			break;
		(void) sd_event_now(event, CLOCK_BOOTTIME, &now);
	} while ((!until || !*until) && now - start < most);
}

static void spin_changes(usec_t most, unsigned until)
{
	for (usec_t t = 0; t < most && changes < until; t += 20000)
		(void) sd_event_run(event, 20000);
}

/* The error, or 1 when it was not told once and from the loop. */
static int look(struct bus *b, const char *unit, usec_t timeout, struct unit *ret)
{
	struct seen s = {.free_inside = true};

	if (bus_call_new(&s.call, b, unit, timeout, on_done, &s) < 0 || s.called)
		return 1;
	spin(timeout + USEC_PER_SEC, &s.called);
	spin(1000, NULL);
	bus_call_free(s.call);
	if (s.called != 1)
		return 1;
	if (ret)
		*ret = s.unit;
	return s.error;
}

static void test_absent(struct bus *b)
{
	usec_t t = USEC_PER_SEC;

	ok(look(b, "kubelet.service", t, NULL) == -ENOENT);
	(void) mkdir(below("/run"), 0755);
	ok(look(b, "kubelet.service", t, NULL) == -ENOENT);
	(void) mkdir(below("/run/systemd"), 0755);
	ok(look(b, "kubelet.service", t, NULL) == -ECONNREFUSED);
	(void) rmdir(below("/run/systemd"));
	(void) mkdir(below("/run/dbus"), 0755);
	ok(look(b, "kubelet.service", t, NULL) == -ECONNREFUSED);
	(void) mkdir(below("/run/systemd"), 0755);
	/* a link to the real one is not followed out of the root */
	ok(symlink("/run/dbus/system_bus_socket", below("/run/dbus/system_bus_socket")) == 0);
	ok(look(b, "kubelet.service", t, NULL) == -ECONNREFUSED);
	(void) unlink(below("/run/dbus/system_bus_socket"));
	write_file("/run/dbus/system_bus_socket", "no socket");
	ok(look(b, "kubelet.service", t, NULL) == -ECONNREFUSED);
	(void) unlink(below("/run/dbus/system_bus_socket"));
}

static void test_unit(struct bus *b)
{
	struct unit u = {0};

	write_file("/etc/proxy.env",
	           "# of the AMI\nhttp_proxy=ignored\nHTTP_PROXY=\"http://a:b@proxy:3128\" \n");
	ok(look(b, "kubelet.service", USEC_PER_SEC, &u) == 0);
	ok(strcmp(u.name, "kubelet.service") == 0 && strcmp(u.load, "loaded") == 0);
	ok(strcmp(u.active, "activating") == 0 && strcmp(u.file_state, "disabled") == 0);
	ok(strncmp(u.sub, "auto-restart\\x1b", 16) == 0 && strlen(u.sub) < sizeof(u.sub));
	ok(strcmp(u.result, "exit-code") == 0 && u.restarts == 17 && u.main_pid == 4711);
	ok(u.active_enter == 41000000 && u.active_exit == 42000000);
	ok(u.inactive_enter == 43000000 && u.inactive_exit == 40000000);
	ok(u.main_start == 44000000 && u.main_exit == 45000000);
	ok(u.main_code == 1 && u.main_status == -3);
	ok(strcmp(u.http_proxy, "http://a:b@proxy:3128") == 0);
	ok(strcmp(u.https_proxy, "manager") == 0);
	ok(strcmp(u.no_proxy, "169.254.169.254") == 0);
	ok(look(b, "run-containerd.mount", USEC_PER_SEC, &u) == 0);
	ok(strcmp(u.load, "loaded") == 0 && !u.result[0]);
	ok(look(b, "gone.service", USEC_PER_SEC, &u) == 0 && strcmp(u.load, "not-found") == 0);
	ok(look(b, "none.service", USEC_PER_SEC, &u) == 0 && strcmp(u.load, "not-found") == 0);
}

static void test_bad(struct bus *b)
{
	char name[2 * UNIT_NAME_MAX];
	struct seen s = {0};

	ok(look(b, "odd.service", USEC_PER_SEC, NULL) == -EBADMSG);
	ok(look(b, "half.service", USEC_PER_SEC, NULL) == -EBADMSG);
	ok(look(b, "odd-service.service", USEC_PER_SEC, NULL) == -EBADMSG);
	ok(look(b, "text.service", USEC_PER_SEC, NULL) == -EBADMSG);
	ok(look(b, "denied.service", USEC_PER_SEC, NULL) == -EACCES);
	ok(look(b, "silent.service", 100 * USEC_PER_MSEC, NULL) == -ETIMEDOUT);
	ok(look(b, "kubelet.service", USEC_PER_SEC, NULL) == 0);
	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	ok(bus_call_new(&s.call, b, name, USEC_PER_SEC, on_done, &s) == -ENAMETOOLONG);
	/* dropped before the answer: never told */
	ok(bus_call_new(&s.call, b, "kubelet.service", USEC_PER_SEC, on_done, &s) == 0);
	s.call = bus_call_free(s.call);
	spin(100 * USEC_PER_MSEC, NULL);
	ok(s.called == 0);
}

static void test_many(struct bus *b)
{
	struct seen s[40] = {0};
	unsigned good = 0;
	int r = 0;

	for (size_t i = 0; i < ELEMENTS(s) && r == 0; i++)
		r = bus_call_new(&s[i].call, b, i % 2 ? "kubelet.service" : "silent.service",
		                 300 * USEC_PER_MSEC, on_done, &s[i]);
	ok(r == 0);
	spin(500 * USEC_PER_MSEC, NULL);
	for (size_t i = 0; i < ELEMENTS(s); i++) {
		good += s[i].called == 1 && s[i].error == (i % 2 ? 0 : -ETIMEDOUT);
		bus_call_free(s[i].call);
	}
	ok(good == ELEMENTS(s));
}

static void test_changes(struct bus *b)
{
	changes = 0;
	ok(bus_watch(b, "kubelet.service") == 0 && bus_watch(b, "containerd.service") == 0);
	ok(bus_watch(b, "kubelet.service") == 0); /* once is enough */
	spin(100 * USEC_PER_MSEC, NULL);
	changes = 0;
	ok(look(b, "poke.service", USEC_PER_SEC, NULL) == 0);
	spin_changes(USEC_PER_SEC, 2);
	/* one signal for each of its two replies */
	ok(changes == 2 && strcmp(changed_unit, "kubelet.service") == 0);
}

static usec_t count(struct bus *b)
{
	struct unit u = {0};

	return look(b, "counted.mount", USEC_PER_SEC, &u) == 0 ? u.active_enter : 0;
}

/* What nobody has said to have changed is not asked for again. */
static void test_kept(struct bus *b, pid_t *systemd)
{
	usec_t n;

	ok(count(b) == 1 && count(b) == 2); /* it is not watched */
	ok(bus_watch(b, "counted.mount") == 0);
	spin(100 * USEC_PER_MSEC, NULL);
	n = count(b);
	ok(n == 3 && count(b) == n && count(b) == n);
	changes = 0;
	ok(look(b, "poke.mount", USEC_PER_SEC, NULL) == 0);
	spin_changes(USEC_PER_SEC, 1);
	ok(changes == 1 && strcmp(changed_unit, "counted.mount") == 0);
	ok(count(b) == n + 1 && count(b) == n + 1);
	kill_wait(*systemd); /* what it would say is not known any more */
	spin(100 * USEC_PER_MSEC, NULL);
	ok(look(b, "counted.mount", USEC_PER_SEC, NULL) == -ECONNREFUSED);
	changes = 0;
	*systemd = start_systemd();
	spin_changes(USEC_PER_SEC, 3);
	ok(changes == 3); /* all that are watched */
	spin(100 * USEC_PER_MSEC, NULL);
	ok(count(b) == 1 && count(b) == 1);
	changes = 0;
	ok(look(b, "poke.mount", USEC_PER_SEC, NULL) == 0);
	spin_changes(USEC_PER_SEC, 1);
	ok(changes == 1 && count(b) == 2);
}

/* The bus goes and comes back, without anybody asking for a unit. */
static void test_comes_back(struct bus *b, pid_t *daemon, pid_t *systemd)
{
	struct seen s = {.free_inside = true};

	ok(bus_call_new(&s.call, b, "silent.service", 5 * USEC_PER_SEC, on_done, &s) == 0);
	spin(50 * USEC_PER_MSEC, NULL);
	kill_wait(*daemon);
	kill_wait(*systemd);
	spin(2 * USEC_PER_SEC, &s.called);
	ok(s.called == 1 && s.error == -ECONNREFUSED);
	ok(look(b, "kubelet.service", USEC_PER_SEC, NULL) == -ECONNREFUSED);
	changes = 0;
	*daemon = start_daemon();
	*systemd = start_systemd();
	spin_changes(3 * USEC_PER_SEC, 3);
	ok(changes >= 3); /* all that are watched: who knows what was missed */
	spin(200 * USEC_PER_MSEC, NULL);
	changes = 0;
	ok(look(b, "poke.service", USEC_PER_SEC, NULL) == 0);
	spin_changes(USEC_PER_SEC, 2);
	ok(changes == 2);
	/* systemd alone goes: the bus says that nobody has the name */
	kill_wait(*systemd);
	ok(look(b, "kubelet.service", USEC_PER_SEC, NULL) == -ECONNREFUSED);
	*systemd = start_systemd();
	ok(look(b, "kubelet.service", USEC_PER_SEC, NULL) == 0);
}

static void test_stopped(struct bus *b, pid_t daemon)
{
	(void) kill(daemon, SIGSTOP);
	for (int i = 0; i < 5; i++)
		ok(look(b, "kubelet.service", 50 * USEC_PER_MSEC, NULL) == -ETIMEDOUT);
	(void) kill(daemon, SIGCONT);
	ok(look(b, "kubelet.service", 2 * USEC_PER_SEC, NULL) == 0);
}

/* A socket that takes connections and says nothing, then nothing but noise, then nobody accepts. */
static void test_no_bus_behind(void)
{
	struct bus *b = NULL;
	int fd = listen_at("/run/dbus/system_bus_socket"), blocked;
	pid_t pid;

	ok(fd >= 0 && bus_new(&b, event, files, on_change, NULL) == 0);
	ok(look(b, "kubelet.service", 100 * USEC_PER_MSEC, NULL) == -ETIMEDOUT);
	pid = spawn(run_garbage, &fd);
	blocked = look(b, "kubelet.service", USEC_PER_SEC, NULL);
	ok(blocked == -ECONNREFUSED || blocked == -EBADMSG);
	kill_wait(pid);
	(void) close(fd);
	ok(look(b, "kubelet.service", 100 * USEC_PER_MSEC, NULL) == -ECONNREFUSED);
	(void) unlink(below("/run/dbus/system_bus_socket"));
	b = bus_free(b);
	ok(!b);
}

static void test_private(void)
{
	struct bus *b = NULL;
	struct unit u = {0};
	int fd = listen_at("/run/systemd/private");
	pid_t pid = spawn(run_private, &fd);

	changes = 0;
	ok(fd >= 0 && bus_new(&b, event, files, on_change, NULL) == 0);
	ok(bus_watch(b, "kubelet.service") == 0);
	ok(look(b, "kubelet.service", USEC_PER_SEC, &u) == 0 && u.restarts == 17);
	spin_changes(USEC_PER_SEC, 1);
	changes = 0;
	ok(look(b, "poke.service", USEC_PER_SEC, NULL) == 0);
	spin_changes(USEC_PER_SEC, 2);
	ok(changes == 2);
	kill_wait(pid);
	(void) close(fd);
	bus_free(b);
	(void) unlink(below("/run/systemd/private"));
}

/* The bus comes up after us; and it is freed with calls under way. */
static void test_late(void)
{
	struct bus *b = NULL;
	struct seen s = {0};
	pid_t daemon, systemd;

	ok(bus_new(&b, event, files, on_change, NULL) == 0);
	ok(bus_watch(b, "kubelet.service") == 0);
	changes = 0;
	spin(400 * USEC_PER_MSEC, NULL);
	ok(changes == 0);
	daemon = start_daemon();
	systemd = start_systemd();
	spin_changes(3 * USEC_PER_SEC, 1);
	ok(changes == 1);
	ok(look(b, "kubelet.service", USEC_PER_SEC, NULL) == 0);
	ok(bus_call_new(&s.call, b, "silent.service", USEC_PER_SEC, on_done, &s) == 0);
	spin(20 * USEC_PER_MSEC, NULL);
	b = bus_free(b);
	spin(100 * USEC_PER_MSEC, &s.called);
	ok(s.called == 1 && s.error == -ECANCELED);
	bus_call_free(s.call);
	kill_wait(systemd);
	kill_wait(daemon);
}

int main(void)
{
	struct bus *b = NULL;
	pid_t daemon, systemd;
	char command[PATH_MAX + 16];

	(void) signal(SIGPIPE, SIG_IGN);
	ok(mkdtemp(root) && files_new(&files, root) == 0 && sd_event_new(&event) == 0);
	(void) mkdir(below("/etc"), 0755);
	ok(bus_new(&b, event, files, on_change, NULL) == 0);
	test_absent(b);
	daemon = start_daemon();
	systemd = daemon > 0 ? start_systemd() : -1;
	if (daemon > 0) {
		test_unit(b);
		test_bad(b);
		test_many(b);
		test_changes(b);
		test_kept(b, &systemd);
		test_comes_back(b, &daemon, &systemd);
		test_stopped(b, daemon);
	} else {
		printf("ok %d - a bus # SKIP dbus-daemon is not installed\n", ++tap_n);
	}
	bus_free(b);
	kill_wait(systemd);
	kill_wait(daemon);
	test_no_bus_behind();
	test_private();
	if (daemon > 0)
		test_late();
	files_free(files);
	sd_event_unref(event);
	(void) text_format(command, sizeof(command), "rm -rf '%s'", root);
	ok(system(command) == 0);
	return done();
}
