/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "clock.h"
#include "grpc.h"

enum {
	PREFIX_BYTES = 5, /* compressed?, length: before each message */
	/* the answers we ask for are some hundred bytes; a runtime's own extras are never asked */
	ANSWER_MAX = 256 * 1024,
	QUESTION_MAX = 4096,
	METHOD_MAX = 128,
	VARINT_MAX = 10,
	SOCKET_PATH_MAX = sizeof(((struct sockaddr_un *) NULL)->sun_path),
};

struct grpc_call {
	struct http *owner;
	struct http_call *http;
	sd_event_source *failed; /* tells from the loop what was known from the start */
	int fd, error;           /* fd: of the socket's file, O_PATH, while libcurl may connect */
	bool again;              /* this is the call without a message */
	usec_t started, timeout;
	grpc_done_t done;
	void *userdata;
	char text[160], method[METHOD_MAX];
	char path[SOCKET_PATH_MAX]; /* where libcurl connects */
};

bool grpc_available(void)
{
	return http_has_http2();
}

/* ---- the answer ---- */

int grpc_frame_read(const void *body, size_t len, const uint8_t **ret, size_t *ret_len)
{
	const uint8_t *b = body;
	size_t n;

	if (len < PREFIX_BYTES)
		return -EBADMSG;
	n = (size_t) b[1] << 24 | (size_t) b[2] << 16 | (size_t) b[3] << 8 | b[4];
	/* compressed: we offered no encoding; more or less than one message: not a unary answer */
	if (b[0] != 0 || n != len - PREFIX_BYTES)
		return -EBADMSG;
	*ret = b + PREFIX_BYTES;
	*ret_len = n;
	return 0;
}

static int hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* grpc-message is percent-encoded; what is not is taken as it stands. */
static void decode(char *dst, size_t size, const char *s)
{
	size_t len = strlen(s), n = 0;
	char raw[256];

	for (size_t i = 0; i < len && n < sizeof(raw); i++) {
		bool coded = s[i] == '%' && len - i > 2 && hex(s[i + 1]) >= 0 && hex(s[i + 2]) >= 0;

		raw[n++] = coded ? (char) (hex(s[i + 1]) << 4 | hex(s[i + 2])) : s[i];
		i += coded ? 2 : 0;
	}
	(void) text_clean(dst, size, raw, n);
}

static bool is_grpc(const struct http_reply *h)
{
	static const char type[] = "application/grpc";

	return h->status == 200 && strncasecmp(h->content_type, type, sizeof(type) - 1) == 0 &&
	       h->grpc_status >= 0;
}

/* HTTP gave an answer: whether that was gRPC. */
static void read_answer(const struct http_reply *h, struct grpc_reply *r)
{
	r->outcome = OUTCOME_MALFORMED;
	r->code = 0;
	if (!is_grpc(h))
		return;
	if (h->grpc_status == GRPC_OK &&
	    grpc_frame_read(h->body, h->body_len, &r->message, &r->len) < 0)
		return;
	r->outcome = OUTCOME_OK;
	r->status = h->grpc_status;
}

/* What a connect says at once: 0 or a positive errno. */
static int knock(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	_cleanup_(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(a.sun_path, path, strlen(path) + 1);
	if (fd < 0)
		return errno;
	return connect(fd, (const struct sockaddr *) &a, sizeof(a)) < 0 ? errno : 0;
}

/* Where libcurl has no errno. A peer that takes the connection and speaks something else is no gRPC
 * server. A connection that never stood, without a reason: the backlog is full (EAGAIN, which
 * libcurl takes for "in progress"), so that nobody accepts any more; or it was closed at once. */
static void read_failure(const struct grpc_call *c, const struct http_reply *h,
                         struct grpc_reply *r)
{
	r->outcome = h->outcome;
	r->code = h->code;
	if (h->stage == HTTP_WAITING && h->outcome == OUTCOME_FAILED) {
		r->outcome = OUTCOME_MALFORMED;
		r->code = 0;
	} else if (h->stage == HTTP_CONNECTING && h->outcome == OUTCOME_UNREACHABLE) {
		r->code = knock(c->path);
		r->outcome = r->code == EAGAIN ? OUTCOME_TIMEOUT
		             : r->code         ? outcome_from_errno(r->code)
		                               : OUTCOME_RESET;
	}
}

static void on_http(struct http_call *http, const struct http_reply *h, void *userdata);

/* message NULL: without one, which no method would take, but which a server without that method
 * answers all the same. */
static int ask(struct grpc_call *c, struct http *http, const void *message, size_t len,
               usec_t timeout)
{
	char body[PREFIX_BYTES + QUESTION_MAX], deadline[64];
	const char *headers[] = {"content-type: application/grpc", "te: trailers", deadline, NULL};
	struct http_request rq = {.method = "POST",
	                          .scheme = "http",
	                          .host = "localhost",
	                          .port = 80,
	                          .path = c->method,
	                          .headers = headers,
	                          .connect_timeout = timeout,
	                          .timeout = timeout,
	                          .body_max = ANSWER_MAX,
	                          .body = message ? body : NULL,
	                          .body_len = PREFIX_BYTES + len,
	                          .unix_socket = c->path,
	                          .http2 = true};

	/* so that the server stops as well: an answer that comes later is for nobody */
	(void) text_format(deadline, sizeof(deadline), "grpc-timeout: %lum",
	                   (unsigned long) (timeout / USEC_PER_MSEC));
	body[0] = 0;
	for (size_t i = 0; i < 4; i++)
		body[1 + i] = (char) (len >> (24 - 8 * i));
	if (message && len)
		memcpy(body + PREFIX_BYTES, message, len);
	return http_call_new(&c->http, http, &rq, on_http, c);
}

/* A server that has no such method may say so, and reset the stream, before it has our message.
 * libcurl 7.88 then finds the stream closed as it sends, and fails without a word of the answer
 * that it was given. Asked without a message, there is nothing left to be sent too late. */
static bool ask_again(struct grpc_call *c, const struct http_reply *h)
{
	usec_t spent = clock_boottime() - c->started;

	if (c->again || h->outcome != OUTCOME_FAILED || h->stage != HTTP_WAITING || h->status ||
	    spent >= c->timeout)
		return false;
	c->again = true;
	c->http = http_call_free(c->http);
	return ask(c, c->owner, NULL, 0, c->timeout - spent) == 0;
}

static void on_http(struct http_call *http, const struct http_reply *h, void *userdata)
{
	struct grpc_call *c = userdata;
	struct grpc_reply r = {.status = -1,
	                       .error = c->text,
	                       .message = (const uint8_t *) "",
	                       .outcome = OUTCOME_MALFORMED,
	                       .took = clock_boottime() - c->started};

	/* the reply is gone once its call is */
	decode(c->text, sizeof(c->text), h->grpc_message);
	if (ask_again(c, h))
		return;
	if (c->http && (h->outcome == OUTCOME_OK || is_grpc(h)))
		read_answer(h, &r);
	else if (c->http)
		read_failure(c, h, &r);
	/* that a method was given no message is its rightful complaint, not an answer to us */
	if (c->again && r.status != GRPC_UNIMPLEMENTED) {
		r.outcome = OUTCOME_MALFORMED;
		r.status = -1;
		r.len = 0;
	}
	c->done(c, &r, c->userdata);
}

static int on_failed(sd_event_source *s, void *userdata)
{
	struct grpc_call *c = userdata;
	struct grpc_reply r = {.outcome = outcome_from_errno(c->error),
	                       .code = -c->error,
	                       .status = -1,
	                       .error = "",
	                       .message = (const uint8_t *) "",
	                       .took = clock_boottime() - c->started};

	if (c->error == -EOPNOTSUPP || c->error == -ELOOP || c->error == -ENAMETOOLONG)
		r.outcome = OUTCOME_UNKNOWN;
	c->done(c, &r, c->userdata);
	return 0;
}

/* ---- the question ---- */

struct grpc_call *grpc_call_free(struct grpc_call *c)
{
	if (!c)
		return NULL;
	http_call_free(c->http);
	sd_event_source_disable_unref(c->failed);
	if (c->fd >= 0)
		(void) close(c->fd);
	free(c);
	return NULL;
}

/* Below another root, or where the path is longer than a socket address can hold, the file is
 * opened by us, symbolic links staying below the root, and libcurl connects to that very file. */
static int find_socket(struct grpc_call *c, const struct files *files, const char *path)
{
	struct stat st;

	c->fd = file_open(files, path, O_PATH);
	if (c->fd < 0)
		return c->fd;
	if (fstat(c->fd, &st) < 0)
		return -errno;
	if (!S_ISSOCK(st.st_mode))
		return -ENOENT;
	if (files_is_host(files) && strlen(path) < sizeof(c->path)) {
		(void) close(TAKE_FD(c->fd));
		memcpy(c->path, path, strlen(path) + 1);
	} else {
		(void) text_format(c->path, sizeof(c->path), "/proc/self/fd/%d", c->fd);
	}
	return 0;
}

int grpc_call_new(struct grpc_call **ret, struct http *http, const struct files *files,
                  const char *path, const char *method, const void *message, size_t len,
                  usec_t timeout, grpc_done_t done, void *userdata)
{
	struct grpc_call *c;
	int r;

	if (len > QUESTION_MAX)
		return -EMSGSIZE;
	if (strlen(method) >= METHOD_MAX)
		return -ENAMETOOLONG;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	*c = (struct grpc_call){.owner = http,
	                        .fd = -1,
	                        .started = clock_boottime(),
	                        .timeout = timeout,
	                        .done = done,
	                        .userdata = userdata};
	memcpy(c->method, method, strlen(method) + 1);
	c->error = grpc_available() ? find_socket(c, files, path) : -EOPNOTSUPP;
	if (c->error < 0)
		r = sd_event_add_defer(http_event(http), &c->failed, on_failed, c);
	else
		r = ask(c, http, message ? message : "", len, timeout);
	if (r < 0) {
		grpc_call_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* ---- protobuf ---- */

static int get_varint(const uint8_t **p, const uint8_t *end, uint64_t *ret)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < VARINT_MAX && *p < end; i++) {
		uint8_t b = *(*p)++;

		if (i == VARINT_MAX - 1 && b > 1)
			return -EBADMSG; /* more than 64 bits */
		v |= (uint64_t) (b & 0x7F) << (7 * i);
		if (!(b & 0x80)) {
			*ret = v;
			return 0;
		}
	}
	return -EBADMSG;
}

/* Little endian, n bytes. */
static int get_fixed(const uint8_t **p, const uint8_t *end, unsigned n, uint64_t *ret)
{
	uint64_t v = 0;

	if ((size_t) (end - *p) < n)
		return -EBADMSG;
	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t) (*p)[i] << (8 * i);
	*p += n;
	*ret = v;
	return 0;
}

int pb_next(const uint8_t **p, const uint8_t *end, struct pb_field *ret)
{
	struct pb_field f = {0};
	const uint8_t *at = *p;
	uint64_t key, n;
	int r;

	if (at == end)
		return 0;
	r = get_varint(&at, end, &key);
	if (r < 0 || key >> 32 || key >> 3 == 0)
		return -EBADMSG;
	f.number = (uint32_t) (key >> 3);
	f.wire = key & 7;
	switch (f.wire) {
	case 0:
		r = get_varint(&at, end, &f.value);
		break;
	case 1:
		r = get_fixed(&at, end, 8, &f.value);
		break;
	case 5:
		r = get_fixed(&at, end, 4, &f.value);
		break;
	case 2:
		r = get_varint(&at, end, &n);
		if (r < 0 || n > (size_t) (end - at))
			return -EBADMSG;
		f.bytes = at;
		f.len = (size_t) n;
		at += n;
		break;
	default: /* groups, which nobody makes any more */
		return -EBADMSG;
	}
	if (r < 0)
		return r;
	*p = at;
	*ret = f;
	return 1;
}

int pb_find(const uint8_t *message, size_t len, uint32_t number, uint8_t wire, struct pb_field *ret)
{
	const uint8_t *p = message, *end = message + len;
	struct pb_field f, last = {0};
	bool found = false;
	int r;

	while ((r = pb_next(&p, end, &f)) > 0)
		if (f.number == number && f.wire == wire) {
			last = f;
			found = true;
		}
	if (r < 0)
		return r;
	if (found)
		*ret = last;
	return found;
}

static size_t put_varint(uint8_t dst[static VARINT_MAX], uint64_t v)
{
	size_t n = 0;

	for (; v > 0x7F; v >>= 7)
		dst[n++] = (uint8_t) (v | 0x80);
	dst[n++] = (uint8_t) v;
	return n;
}

ssize_t pb_put_bytes(uint8_t *dst, size_t size, size_t len, uint32_t number, const void *bytes,
                     size_t n)
{
	uint8_t head[2 * VARINT_MAX];
	size_t h = put_varint(head, (uint64_t) number << 3 | 2);

	h += put_varint(head + h, n);
	if (len > size || n > size - len || h > size - len - n)
		return -ENOSPC;
	memcpy(dst + len, head, h);
	if (n)
		memcpy(dst + len + h, bytes, n);
	return (ssize_t) (len + h + n);
}
