/* SPDX-License-Identifier: Apache-2.0 */
/* Unary calls against servers of this test's own that speak HTTP/2 by hand, well and badly. The
 * real counterpart is containerd, in tests/containerd.t. */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "../tap.h"
#include "grpc.h"

enum { CHILDREN_MAX = 32, FRAME_MAX = 16384 };
enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, GOAWAY = 7 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4 };

static char base[64];
static pid_t children[CHILDREN_MAX];
static size_t n_children;

/* ---- the servers ---- */

static void put(int fd, const void *data, size_t len)
{
	const char *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n <= 0)
			_exit(0);
		p += n;
		len -= (size_t) n;
	}
}

static void get(int fd, void *data, size_t len)
{
	char *p = data;

	while (len > 0) {
		ssize_t n = read(fd, p, len);

		if (n <= 0)
			_exit(0);
		p += n;
		len -= (size_t) n;
	}
}

static void frame(int fd, int type, int flags, uint32_t stream, const void *payload, size_t len)
{
	uint8_t h[9] = {(uint8_t) (len >> 16),
	                (uint8_t) (len >> 8),
	                (uint8_t) len,
	                (uint8_t) type,
	                (uint8_t) flags,
	                0,
	                0,
	                0,
	                (uint8_t) stream};

	put(fd, h, sizeof(h));
	put(fd, payload, len);
}

struct block {
	uint8_t bytes[512];
	size_t n;
};

/* A literal header field without indexing (RFC 7541, 6.2.2). */
static void header(struct block *b, const char *name, const char *value)
{
	size_t n = strlen(name), m = strlen(value);

	b->bytes[b->n++] = 0;
	b->bytes[b->n++] = (uint8_t) n;
	memcpy(b->bytes + b->n, name, n);
	b->n += n;
	b->bytes[b->n++] = (uint8_t) m;
	memcpy(b->bytes + b->n, value, m);
	b->n += m;
}

static void head(int fd, const char *status, const char *type)
{
	struct block b = {0};

	header(&b, ":status", status);
	header(&b, "content-type", type);
	frame(fd, HEADERS, END_HEADERS, 1, b.bytes, b.n);
}

static void trailers(int fd, const char *status, const char *message)
{
	struct block b = {0};

	header(&b, "grpc-status", status);
	if (message)
		header(&b, "grpc-message", message);
	frame(fd, HEADERS, END_HEADERS | END_STREAM, 1, b.bytes, b.n);
}

static void only_trailers(int fd, const char *status, const char *message)
{
	struct block b = {0};

	header(&b, ":status", "200");
	header(&b, "content-type", "application/grpc");
	header(&b, "grpc-status", status);
	header(&b, "grpc-message", message);
	frame(fd, HEADERS, END_HEADERS | END_STREAM, 1, b.bytes, b.n);
}

static void answer(int fd, const char *mode, const uint8_t *question, size_t len)
{
	static const uint8_t one[] = {0, 0, 0, 0, 2, 0x08, 0x01}, packed[] = {1, 0, 0, 0, 1, 'x'},
			     cut[] = {0, 0, 0, 0, 9, 'x'}, no[] = {0, 0, 0, 13};
	static const uint8_t filler[FRAME_MAX];

	if (strcmp(mode, "unimplemented") == 0) {
		only_trailers(fd, "12",
		              "unknown service runtime.v1.RuntimeService%0A100%25 \"%zz\"");
		return;
	} else if (strcmp(mode, "reset") == 0) {
		frame(fd, RST_STREAM, 0, 1, no, sizeof(no));
		return;
	} else if (strcmp(mode, "goaway") == 0) {
		frame(fd, GOAWAY, 0, 0, "\0\0\0\0\0\0\0\2", 8);
		_exit(0);
	} else if (strcmp(mode, "gone") == 0) {
		_exit(0);
	}
	head(fd, strcmp(mode, "503") == 0 ? "503" : "200",
	     strcmp(mode, "html") == 0 ? "text/html" : "application/grpc+proto");
	if (strcmp(mode, "echo") == 0)
		frame(fd, DATA, 0, 1, question, len);
	else if (strcmp(mode, "compressed") == 0)
		frame(fd, DATA, 0, 1, packed, sizeof(packed));
	else if (strcmp(mode, "cut") == 0)
		frame(fd, DATA, 0, 1, cut, sizeof(cut));
	else if (strcmp(mode, "nothing") != 0)
		frame(fd, DATA, strcmp(mode, "no-trailers") == 0 ? END_STREAM : 0, 1, one,
		      sizeof(one));
	if (strcmp(mode, "two") == 0)
		frame(fd, DATA, 0, 1, one, sizeof(one));
	for (int i = 0; strcmp(mode, "long") == 0 && i < 20; i++)
		frame(fd, DATA, 0, 1, filler, sizeof(filler));
	if (strcmp(mode, "no-trailers") != 0)
		trailers(fd, strcmp(mode, "status") == 0 ? "zero" : "0", NULL);
}

static void speak(int fd, const char *mode)
{
	static uint8_t payload[FRAME_MAX];
	uint8_t h[24];

	if (strcmp(mode, "silent") == 0) {
		pause();
	} else if (strcmp(mode, "closed") == 0) {
		_exit(0);
	} else if (strcmp(mode, "http1") == 0) {
		get(fd, h, sizeof(h));
		put(fd, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", 47);
		_exit(0);
	} else if (strcmp(mode, "garbage") == 0) {
		put(fd, "220 mail.example.test ESMTP ready, at your service\r\n", 52);
		_exit(0);
	}
	get(fd, h, 24);
	frame(fd, SETTINGS, 0, 0, "", 0);
	for (;;) {
		size_t len;

		get(fd, h, 9);
		len = (size_t) h[0] << 16 | (size_t) h[1] << 8 | h[2];
		if (len > sizeof(payload))
			_exit(0);
		get(fd, payload, len);
		if (h[3] == HEADERS && strcmp(mode, "early") == 0) {
			only_trailers(fd, "12", "unknown service");
			frame(fd, RST_STREAM, 0, 1, "\0\0\0\0", 4);
		}
		/* what libcurl makes of an answer that came before it had sent all */
		if (h[3] == HEADERS && strncmp(mode, "hasty", 5) == 0 && !(h[4] & END_STREAM))
			frame(fd, RST_STREAM, 0, 1, "\0\0\0\0", 4);
		else if (h[3] == HEADERS && strncmp(mode, "hasty", 5) == 0)
			only_trailers(fd, strcmp(mode, "hasty") == 0 ? "12" : "13", "no message");
		if (h[3] == SETTINGS && !(h[4] & ACK))
			frame(fd, SETTINGS, ACK, 0, "", 0);
		if (h[3] == DATA && (h[4] & END_STREAM))
			answer(fd, mode, payload, len);
	}
}

static int listen_at(const char *name, int backlog)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void) snprintf(a.sun_path, sizeof(a.sun_path), "%s/run/%s", base, name);
	(void) unlink(a.sun_path);
	if (fd < 0 || bind(fd, (struct sockaddr *) &a, sizeof(a)) < 0 || listen(fd, backlog) < 0)
		ok(!"a socket to listen at");
	return fd;
}

/* A server whose socket is called as its mode. */
static void serve(const char *mode)
{
	int fd = listen_at(mode, 8);
	pid_t p = fork();

	if (p == 0) {
		(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void) signal(SIGCHLD, SIG_IGN);
		(void) signal(SIGPIPE, SIG_IGN);
		for (;;) {
			int c = accept(fd, NULL, NULL);

			if (fork() == 0) {
				(void) prctl(PR_SET_PDEATHSIG, SIGKILL);
				speak(c, mode);
			}
			close(c);
		}
	}
	close(fd);
	children[n_children++] = p;
}

/* ---- the client ---- */

static sd_event *event;
static struct http *http;
static struct files *below, *host;
static struct grpc_reply reply;
static uint8_t message[1024];
static char error[256];
static unsigned fired;

static void on_done(struct grpc_call *c, const struct grpc_reply *r, void *userdata)
{
	reply = *r;
	if (r->len <= sizeof(message))
		memcpy(message, r->message, r->len);
	(void) text_format(error, sizeof(error), "%s", r->error);
	fired++;
	grpc_call_free(c);
}

static void look(const struct files *files, const char *path, const void *question, size_t len)
{
	struct grpc_call *c = NULL;
	int r;

	fired = 0;
	error[0] = 0;
	reply = (struct grpc_reply){.outcome = _OUTCOME_MAX, .status = -2};
	r = grpc_call_new(&c, http, files, path, "/runtime.v1.RuntimeService/Status", question, len,
	                  300 * USEC_PER_MSEC, on_done, NULL);
	if (fired)
		fired = 100; /* from inside: never */
	while (r == 0 && fired == 0 && sd_event_run(event, 2 * USEC_PER_SEC) > 0)
		;
	printf("# %s: %s code=%d status=%d len=%zu error=%s\n", path,
	       fired == 1 ? outcome_name(reply.outcome) : "?", reply.code, reply.status, reply.len,
	       error);
}

static bool is(const char *mode, enum outcome outcome)
{
	char path[64];

	serve(mode);
	(void) snprintf(path, sizeof(path), "/run/%s", mode);
	look(below, path, "", 0);
	return fired == 1 && reply.outcome == outcome &&
	       (outcome == OUTCOME_OK || (reply.status == -1 && reply.len == 0));
}

/* Not gRPC, and what libcurl makes of it differs from version to version. */
static bool strange(const char *mode)
{
	return is(mode, OUTCOME_MALFORMED) || (fired == 1 && reply.outcome == OUTCOME_RESET);
}

static void test_answers(void)
{
	static const uint8_t question[] = "\x0A\x05pause";
	char path[160];

	ok(is("echo", OUTCOME_OK));
	ok(reply.status == GRPC_OK && reply.len == 0);
	look(below, "/run/echo", question, 7);
	ok(fired == 1 && reply.outcome == OUTCOME_OK && reply.len == 7 &&
	   memcmp(message, question, 7) == 0);
	(void) snprintf(path, sizeof(path), "%s/run/echo", base);
	look(host, path, question, 7);
	ok(fired == 1 && reply.outcome == OUTCOME_OK && reply.len == 7);

	ok(is("unimplemented", OUTCOME_OK));
	ok(reply.status == GRPC_UNIMPLEMENTED && reply.len == 0);
	ok(strcmp(error, "unknown service runtime.v1.RuntimeService\\x0a100% \"%zz\"") == 0);
	/* as grpc-go does when it is quicker than the client: before the question has come */
	ok(is("early", OUTCOME_OK));
	ok(reply.status == GRPC_UNIMPLEMENTED && strcmp(error, "unknown service") == 0);
	ok(is("hasty", OUTCOME_OK) && reply.status == GRPC_UNIMPLEMENTED);
	ok(strcmp(error, "no message") == 0);
	ok(is("hasty-other", OUTCOME_MALFORMED));
	ok(is("compressed", OUTCOME_MALFORMED));
	ok(is("cut", OUTCOME_MALFORMED));
	ok(is("two", OUTCOME_MALFORMED));
	ok(is("nothing", OUTCOME_MALFORMED));
	ok(is("no-trailers", OUTCOME_MALFORMED));
	ok(is("status", OUTCOME_MALFORMED));
	ok(is("503", OUTCOME_MALFORMED));
	ok(is("html", OUTCOME_MALFORMED));
	ok(is("long", OUTCOME_MALFORMED));
	ok(strange("http1"));
	ok(strange("garbage"));
	ok(is("reset", OUTCOME_MALFORMED));
	ok(strange("goaway"));
	ok(is("gone", OUTCOME_RESET));
	ok(is("silent", OUTCOME_TIMEOUT));
	ok(reply.took >= 250 * USEC_PER_MSEC);
	ok(is("closed", OUTCOME_RESET));
}

/* What connect() says, here of a file below the root and of the host's. */
static void test_sockets(void)
{
	int fd, more[8], refused = listen_at("refused", 8);
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	char path[160];

	close(refused);
	look(below, "/run/refused", "", 0);
	ok(fired == 1 && reply.outcome == OUTCOME_REFUSED && reply.code == ECONNREFUSED);
	(void) snprintf(path, sizeof(path), "%s/run/refused", base);
	look(host, path, "", 0);
	ok(fired == 1 && reply.outcome == OUTCOME_REFUSED);
	look(below, "/run/nobody", "", 0);
	ok(fired == 1 && reply.outcome == OUTCOME_ABSENT && reply.code == ENOENT);
	look(below, "/run/containerd/containerd.sock", "", 0);
	ok(fired == 1 && reply.outcome == OUTCOME_ABSENT);
	look(below, "/run", "", 0); /* there, and no socket */
	ok(fired == 1 && reply.outcome == OUTCOME_ABSENT);

	/* symbolic links stay below the root */
	(void) snprintf(path, sizeof(path), "%s/run/link", base);
	ok(symlink("/run/echo", path) == 0);
	look(below, "/run/link", "", 0);
	ok(fired == 1 && reply.outcome == OUTCOME_OK);

	/* a full backlog: whoever listens accepts nothing */
	fd = listen_at("full", 0);
	(void) snprintf(a.sun_path, sizeof(a.sun_path), "%s/run/full", base);
	for (size_t i = 0; i < ELEMENTS(more); i++) {
		more[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void) connect(more[i], (struct sockaddr *) &a, sizeof(a));
	}
	look(below, "/run/full", "", 0);
	ok(fired == 1 && reply.outcome == OUTCOME_TIMEOUT);
	for (size_t i = 0; i < ELEMENTS(more); i++)
		close(more[i]);
	close(fd);
}

/* containerd's socket is root's, 0660: group root is enough, which is what the unit gives us. */
static void test_denied(void)
{
	char path[160];

	if (geteuid() != 0) {
		puts("# not root: nobody to be denied");
		return;
	}
	(void) snprintf(path, sizeof(path), "%s/run/echo", base);
	ok(chmod(base, 0755) == 0 && chmod(path, 0660) == 0 && seteuid(65534) == 0);
	look(host, path, "", 0);
	ok(fired == 1 && reply.outcome == OUTCOME_OK);
	ok(seteuid(0) == 0 && chmod(path, 0600) == 0 && seteuid(65534) == 0);
	look(host, path, "", 0);
	ok(fired == 1 && reply.outcome == OUTCOME_DENIED && reply.code == EACCES);
	ok(seteuid(0) == 0);
}

/* A call that is dropped is never heard of again. */
static void test_dropped(void)
{
	struct grpc_call *c = NULL;

	fired = 0;
	ok(grpc_call_new(&c, http, below, "/run/nobody", "/a/b", "", 0, USEC_PER_SEC, on_done,
	                 NULL) == 0);
	grpc_call_free(c);
	ok(grpc_call_new(&c, http, below, "/run/silent", "/a/b", "", 0, 50 * USEC_PER_MSEC, on_done,
	                 NULL) == 0);
	ok(sd_event_run(event, 10 * USEC_PER_MSEC) >= 0);
	grpc_call_free(c);
	while (sd_event_run(event, 100 * USEC_PER_MSEC) > 0)
		;
	ok(fired == 0);
	ok(grpc_call_new(&c, http, below, "/run/echo", "/a b", "", 0, USEC_PER_SEC, on_done, NULL) <
	   0);
	ok(grpc_call_new(&c, http, below, "/run/echo", "/a/b", message, 1 << 20, USEC_PER_SEC,
	                 on_done, NULL) < 0);
}

/* ---- protobuf ---- */

static bool malformed(const void *bytes, size_t len)
{
	const uint8_t *p = bytes, *end = p + len;
	struct pb_field f;
	int r;

	while ((r = pb_next(&p, end, &f)) > 0)
		;
	return r == -EBADMSG && pb_find(bytes, len, 1, 0, &f) == -EBADMSG;
}

static void test_protobuf(void)
{
	static const uint8_t all[] = {0x08, 0x96, 0x01, 0x11, 1,    0,    0,    0, 0,
	                              0,    0,    0x80, 0x1D, 2,    0,    0,    0, 0x22,
	                              3,    'a',  'b',  'c',  0x08, 0x05, 0x22, 1, 'z',
	                              0xFA, 0xFF, 0xFF, 0xFF, 0x0F, 0};
	const uint8_t *p = all, *end = all + sizeof(all);
	struct pb_field f;
	uint8_t out[16];

	ok(pb_next(&p, end, &f) == 1 && f.number == 1 && f.wire == 0 && f.value == 150);
	ok(pb_next(&p, end, &f) == 1 && f.number == 2 && f.wire == 1 &&
	   f.value == 0x8000000000000001);
	ok(pb_next(&p, end, &f) == 1 && f.number == 3 && f.wire == 5 && f.value == 2);
	ok(pb_next(&p, end, &f) == 1 && f.number == 4 && f.wire == 2 && f.len == 3 &&
	   memcmp(f.bytes, "abc", 3) == 0);
	ok(pb_find(all, sizeof(all), 1, 0, &f) == 1 && f.value == 5); /* the last one counts */
	ok(pb_find(all, sizeof(all), 4, 2, &f) == 1 && f.len == 1 && f.bytes[0] == 'z');
	ok(pb_find(all, sizeof(all), 4, 0, &f) == 0); /* of another type: not there */
	ok(pb_find(all, sizeof(all), (1U << 29) - 1, 2, &f) == 1 && f.len == 0);
	ok(pb_find(all, 0, 1, 0, &f) == 0);

	ok(malformed("\x08", 1));     /* no value */
	ok(malformed("\x08\x80", 2)); /* a varint without an end */
	ok(malformed("\x12\x05"
	             "ab",
	             4)); /* longer than the message */
	ok(malformed("\x12\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", 11));
	ok(malformed("\x11\x01\x02", 3));                                  /* half a number */
	ok(malformed("\x0B\x0C", 2));                                      /* groups */
	ok(malformed("\x02\x00", 2));                                      /* field 0 */
	ok(malformed("\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", 11)); /* 65 bits */

	ok(pb_put_bytes(out, sizeof(out), 0, 1, "abc", 3) == 5 && memcmp(out,
	                                                                 "\x0A\x03"
	                                                                 "abc",
	                                                                 5) == 0);
	ok(pb_put_bytes(out, sizeof(out), 5, 1000, "", 0) == 8);
	ok(pb_find(out, 8, 1000, 2, &f) == 1 && f.len == 0);
	ok(pb_put_bytes(out, sizeof(out), 8, 1, "1234567", 7) == -ENOSPC);
	ok(pb_put_bytes(out, sizeof(out), 8, 1, "123456", 6) == 16);
	ok(pb_put_bytes(out, 4, 8, 1, "", 0) == -ENOSPC);
}

int main(void)
{
	char path[128];

	(void) snprintf(base, sizeof(base), "/tmp/nodewhy-grpc-XXXXXX");
	if (!mkdtemp(base))
		return 1;
	(void) snprintf(path, sizeof(path), "%s/run", base);
	ok(mkdir(path, 0755) == 0);
	test_protobuf();
	ok(sd_event_default(&event) >= 0 && http_new(&http, event) == 0);
	ok(files_new(&below, base) == 0 && files_new(&host, "/") == 0);
	ok(grpc_available());
	test_answers();
	test_sockets();
	test_denied();
	test_dropped();
	for (size_t i = 0; i < n_children; i++) {
		(void) kill(children[i], SIGKILL);
		(void) waitpid(children[i], NULL, 0);
	}
	below = files_free(below);
	host = files_free(host);
	http = http_free(http);
	event = sd_event_unref(event);
	(void) snprintf(path, sizeof(path), "rm -rf '%s'", base);
	ok(system(path) == 0); /* NOLINT(cert-env33-c): of a test, no outside input */
	return done();
}
