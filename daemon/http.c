/* SPDX-License-Identifier: Apache-2.0 */
/* libcurl's multi interface on one sd-event loop. */
#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "clock.h"
#include "http.h"

enum { HEADERS_BYTES_MAX = 32768, IDLE_CONNECTIONS_MAX = 4 };

struct http {
	sd_event *event;
	CURLM *multi;
	sd_event_source *timer, *at_once;
	bool ca_is_file; /* libcurl's own CA is one file, so that its directory can be left out */
};

struct http_call {
	struct http *http;
	CURL *easy;
	struct curl_slist *headers, *connect_to;
	sd_event_source *connect_timer;
	usec_t connect_timeout, started, connected_at, requested_at;
	http_done_t done;
	void *userdata;
	char *body;
	size_t len, size, max, header_bytes;
	int socket_errno, x509_error;
	bool tls, connect_only, keep_alive, opened, connecting, requested, retried;
	bool too_long, no_memory;
	int segment_max;
	char content_type[96], date[64], location[256], issuer[96], grpc_status[8],
		grpc_message[128];
	char curl_error[CURL_ERROR_SIZE];
};

bool http_call_connected(const struct http_call *c)
{
	return !c->connecting && (c->opened || c->requested);
}

/* ---- the reply ---- */

static enum http_stage stage_of(const struct http_call *c)
{
	if (c->requested)
		return c->connect_only ? HTTP_TLS : HTTP_WAITING;
	return c->connecting || !c->opened ? HTTP_CONNECTING : HTTP_TLS;
}

/* libcurl keeps no errno of a failed handshake, only its text. Locale is always "C" here. */
static enum outcome outcome_of_handshake(const struct http_call *c)
{
	static const char *const closed[] = {"unexpected eof", "SSL_ERROR_SYSCALL",
	                                     "SSL_ERROR_ZERO_RETURN"};
	static const char *const not_tls[] = {"wrong version number", "packet length too long",
	                                      "unsupported protocol", "unknown protocol",
	                                      "http request",         "record layer failure"};

	if (strstr(c->curl_error, strerror(ECONNRESET)) || strstr(c->curl_error, strerror(EPIPE)))
		return OUTCOME_RESET;
	for (size_t i = 0; i < ELEMENTS(closed); i++)
		if (strstr(c->curl_error, closed[i]))
			return OUTCOME_RESET;
	for (size_t i = 0; i < ELEMENTS(not_tls); i++)
		if (strstr(c->curl_error, not_tls[i]))
			return OUTCOME_MALFORMED;
	return OUTCOME_FAILED;
}

static enum outcome outcome_of_connect(int error)
{
	enum outcome o = outcome_from_errno(error);

	/* EINVAL of a blackhole route, EADDRNOTAVAIL without an address: no way there */
	return o == OUTCOME_OK || o == OUTCOME_FAILED ? OUTCOME_UNREACHABLE : o;
}

static enum outcome outcome_of(const struct http_call *c, CURLcode result, int error)
{
	switch (result) {
	case CURLE_OK:
		return OUTCOME_OK;
	case CURLE_OPERATION_TIMEDOUT:
		return OUTCOME_TIMEOUT;
	case CURLE_COULDNT_CONNECT:
		return outcome_of_connect(error);
	case CURLE_PEER_FAILED_VERIFICATION:
		return OUTCOME_UNTRUSTED;
	case CURLE_SSL_CACERT_BADFILE:
		return OUTCOME_ABSENT;
	case CURLE_SSL_CONNECT_ERROR:
		return outcome_of_handshake(c);
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
		return error == ETIMEDOUT ? OUTCOME_TIMEOUT : OUTCOME_RESET;
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
		return OUTCOME_RESET;
	case CURLE_WRITE_ERROR: /* ours: a bound was passed, or no memory */
		return c->no_memory ? OUTCOME_UNKNOWN : OUTCOME_MALFORMED;
	case CURLE_OUT_OF_MEMORY:
		/* before 8.6 also its word for a header line beyond its own bound */
		return c->requested ? OUTCOME_MALFORMED : OUTCOME_UNKNOWN;
	case CURLE_FAILED_INIT:
		return OUTCOME_UNKNOWN;
	case CURLE_UNSUPPORTED_PROTOCOL: /* no HTTP status line */
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_BAD_CONTENT_ENCODING:
#if LIBCURL_VERSION_NUM >= 0x080600
	case CURLE_TOO_LARGE:
#endif
		return OUTCOME_MALFORMED;
	default:
		return OUTCOME_FAILED;
	}
}

static usec_t since(usec_t start, usec_t at)
{
	return at > start ? at - start : at ? 1 : 0;
}

static usec_t time_of(const struct http_call *c, CURLINFO which)
{
	curl_off_t t = 0;

	(void) curl_easy_getinfo(c->easy, which, &t);
	return t > 0 ? (usec_t) t : 0;
}

/* libcurl's own time of the connect is the better one, but since 8.0 it is there only once the
 * handshake has ended as well; and after a retry it is that of the first connection. */
static void fill_times(const struct http_call *c, struct http_reply *r)
{
	usec_t connect = time_of(c, CURLINFO_CONNECT_TIME_T);

	r->reused = !c->opened;
	r->first_byte = r->status ? time_of(c, CURLINFO_STARTTRANSFER_TIME_T) : 0;
	r->total = since(c->started, clock_boottime());
	if (!c->opened || c->connecting)
		return;
	r->connect = since(c->started, c->connected_at);
	if (!c->retried && connect > 0 && connect < r->connect)
		r->connect = connect;
	if (c->tls && c->requested)
		r->tls = since(c->started, c->requested_at);
}

static void fill_tls(const struct http_call *c, struct http_reply *r)
{
	if (r->outcome == OUTCOME_UNTRUSTED) {
		/* the chain is good, so it was the name */
		r->code = c->x509_error ? c->x509_error : X509_V_ERR_HOSTNAME_MISMATCH;
		text_format(r->tls_error, sizeof(r->tls_error), "%s",
		            X509_verify_cert_error_string(r->code));
		text_format(r->tls_issuer, sizeof(r->tls_issuer), "%s", c->issuer);
	} else if (r->outcome != OUTCOME_TIMEOUT) {
		text_clean(r->tls_error, sizeof(r->tls_error), c->curl_error,
		           strlen(c->curl_error));
	}
}

/* Last use of c: the callback may free it. */
static void finish(struct http_call *c, CURLcode result)
{
	struct http_reply r = {
		.body = c->body ? c->body : "",
		.body_len = c->len,
		.content_type = c->content_type,
		.date = c->date,
		.location = c->location,
	};
	long status = 0, proxy_status = 0, os_errno = 0;
	uint64_t grpc;

	(void) sd_event_source_set_enabled(c->connect_timer, SD_EVENT_OFF);
	r.grpc_message = c->grpc_message;
	r.grpc_status = text_to_uint(c->grpc_status, 0, 9999, &grpc) == 0 ? (int) grpc : -1;
	(void) curl_easy_getinfo(c->easy, CURLINFO_HTTP_CONNECTCODE, &proxy_status);
	r.proxy_status = (int) proxy_status;
	(void) curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	(void) curl_easy_getinfo(c->easy, CURLINFO_OS_ERRNO, &os_errno);
	if (c->socket_errno)
		os_errno = c->socket_errno;
	r.status = (int) status;
	r.outcome = outcome_of(c, result, (int) os_errno);
	r.stage = result == CURLE_OK && !c->connect_only ? HTTP_DONE : stage_of(c);
	if (result == CURLE_OK)
		r.code = (int) status;
	else if (r.outcome == OUTCOME_UNKNOWN && os_errno == 0)
		r.code = ENOMEM;
	else if (r.outcome != OUTCOME_MALFORMED && r.outcome != OUTCOME_TIMEOUT)
		r.code = (int) os_errno;
	fill_times(c, &r);
	if (r.stage == HTTP_TLS && !c->connect_only)
		fill_tls(c, &r);
	c->done(c, &r, c->userdata);
}

/* Every finished transfer leaves the multi before its callback runs, so that the callback may free
 * anything. */
static void drain(struct http *h)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(h->multi, &left))) {
		CURLcode result = m->data.result;
		CURL *easy = m->easy_handle;
		struct http_call *c = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		(void) curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **) &c);
		(void) curl_multi_remove_handle(h->multi, easy);
		finish(c, result);
	}
}

/* ---- the loop ---- */

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
	struct http *h = userdata;
	int running, mask = (revents & EPOLLIN ? CURL_CSELECT_IN : 0) |
	                    (revents & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
	                    (revents & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);

	(void) curl_multi_socket_action(h->multi, fd, mask, &running);
	drain(h);
	return 0;
}

static void time_is_up(struct http *h)
{
	int running;

	(void) curl_multi_socket_action(h->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	drain(h);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata)
{
	time_is_up(userdata);
	return 0;
}

static int on_at_once(sd_event_source *s, void *userdata)
{
	time_is_up(userdata);
	return 0;
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *userdata, void *socketp)
{
	uint32_t events =
		(what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
	struct http *h = userdata;
	sd_event_source *s = socketp;

	if (what == CURL_POLL_REMOVE) {
		sd_event_source_disable_unref(s);
		(void) curl_multi_assign(h->multi, fd, NULL);
		return 0;
	}
	if (s)
		return sd_event_source_set_io_events(s, events) < 0 ? -1 : 0;
	if (sd_event_add_io(h->event, &s, fd, events, on_io, h) < 0)
		return -1;
	(void) sd_event_source_set_description(s, "http");
	(void) curl_multi_assign(h->multi, fd, s);
	return 0;
}

/* "Now" is not a timer's business: sd-event would let it slip by up to its accuracy, and a timerfd
 * would have to be set. */
static int on_timeout_wanted(CURLM *multi, long ms, void *userdata)
{
	struct http *h = userdata;

	if (sd_event_source_set_enabled(h->at_once, ms == 0 ? SD_EVENT_ONESHOT : SD_EVENT_OFF) < 0)
		return -1;
	if (ms <= 0)
		return sd_event_source_set_enabled(h->timer, SD_EVENT_OFF) < 0 ? -1 : 0;
	if (sd_event_source_set_time_relative(h->timer, (uint64_t) ms * USEC_PER_MSEC) < 0)
		return -1;
	return sd_event_source_set_enabled(h->timer, SD_EVENT_ONESHOT) < 0 ? -1 : 0;
}

/* libcurl counts the TLS handshake into its connect timeout; ours is of the TCP connect alone, so
 * that a far side which is silent and one which stalls in the handshake are told apart. */
static int on_connect_timeout(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct http_call *c = userdata;

	if (!c->connecting)
		return 0;
	(void) curl_multi_remove_handle(c->http->multi, c->easy);
	finish(c, CURLE_OPERATION_TIMEDOUT);
	return 0;
}

struct http *http_free(struct http *h)
{
	if (!h)
		return NULL;
	if (h->multi)
		(void) curl_multi_cleanup(h->multi);
	sd_event_source_disable_unref(h->timer);
	sd_event_source_disable_unref(h->at_once);
	sd_event_unref(h->event);
	free(h);
	curl_global_cleanup();
	return NULL;
}

static int set_up_multi(struct http *h)
{
	const curl_version_info_data *v = curl_version_info(CURLVERSION_NOW);

	h->ca_is_file = v->age >= CURLVERSION_SEVENTH && v->cainfo;
	h->multi = curl_multi_init();
	if (!h->multi || curl_multi_setopt(h->multi, CURLMOPT_SOCKETFUNCTION, on_socket) ||
	    curl_multi_setopt(h->multi, CURLMOPT_SOCKETDATA, h) ||
	    curl_multi_setopt(h->multi, CURLMOPT_TIMERFUNCTION, on_timeout_wanted) ||
	    curl_multi_setopt(h->multi, CURLMOPT_TIMERDATA, h) ||
	    curl_multi_setopt(h->multi, CURLMOPT_MAXCONNECTS, (long) IDLE_CONNECTIONS_MAX))
		return -ENOMEM;
	return 0;
}

/* libcurl copies keys, tokens and answers, and frees the copies as they are. */
static void free_wiped(void *p)
{
	if (p)
		explicit_bzero(p, malloc_usable_size(p));
	free(p);
}

static void *realloc_wiped(void *p, size_t size)
{
	size_t had = p ? malloc_usable_size(p) : 0;
	void *n;

	if (p && size && size <= had && size > had / 2)
		return p;
	n = malloc(size ? size : 1);
	if (!n)
		return NULL;
	if (p)
		memcpy(n, p, had < size ? had : size);
	free_wiped(p);
	return n;
}

int http_date(const char *date, uint64_t *ret)
{
	time_t t = curl_getdate(date, NULL);

	if (t < 0)
		return -EBADMSG;
	*ret = (uint64_t) t;
	return 0;
}

sd_event *http_event(const struct http *h)
{
	return h->event;
}

bool http_has_http2(void)
{
	return curl_version_info(CURLVERSION_NOW)->features & CURL_VERSION_HTTP2;
}

int http_new(struct http **ret, sd_event *event)
{
	struct http *h;
	int r;

	if (curl_global_init_mem(CURL_GLOBAL_DEFAULT, malloc, free_wiped, realloc_wiped, strdup,
	                         calloc) != CURLE_OK)
		return -ENOMEM;
	h = calloc(1, sizeof(*h));
	if (!h) {
		curl_global_cleanup();
		return -ENOMEM;
	}
	h->event = sd_event_ref(event);
	r = sd_event_add_time_relative(event, &h->timer, CLOCK_BOOTTIME, 0, USEC_PER_MSEC, on_timer,
	                               h);
	if (r >= 0)
		r = sd_event_source_set_enabled(h->timer, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_add_defer(event, &h->at_once, on_at_once, h);
	if (r >= 0)
		r = sd_event_source_set_enabled(h->at_once, SD_EVENT_OFF);
	if (r >= 0)
		r = set_up_multi(h);
	if (r < 0) {
		http_free(h);
		return r;
	}
	(void) sd_event_source_set_description(h->timer, "http-timer");
	*ret = h;
	return 0;
}

/* ---- what libcurl asks of a call ---- */

/* Grows by hand: realloc() would leave copies of a credential behind. */
static int make_room(struct http_call *c, size_t n)
{
	size_t size = c->size ? c->size : 512;
	char *b;

	while (size < c->len + n + 1)
		size *= 2;
	if (size == c->size)
		return 0;
	b = malloc(size);
	if (!b)
		return -ENOMEM;
	if (c->body) {
		memcpy(b, c->body, c->len);
		explicit_bzero(c->body, c->len);
		free(c->body);
	}
	c->body = b;
	c->size = size;
	return 0;
}

static size_t on_body(char *p, size_t size, size_t n, void *userdata)
{
	struct http_call *c = userdata;

	n *= size;
	if (n > c->max - c->len) {
		c->too_long = true;
		return 0;
	}
	if (make_room(c, n) < 0) {
		c->no_memory = true;
		return 0;
	}
	memcpy(c->body + c->len, p, n);
	c->len += n;
	c->body[c->len] = 0;
	return n;
}

static void keep_header(char *dst, size_t size, const char *name, const char *line, size_t len)
{
	size_t n = strlen(name);

	if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':')
		return;
	line += n + 1;
	len -= n + 1;
	while (len > 0 && strchr(" \t", *line)) {
		line++;
		len--;
	}
	while (len > 0 && strchr(" \t\r\n", line[len - 1]))
		len--;
	text_clean(dst, size, line, len);
}

static size_t on_header(char *p, size_t size, size_t n, void *userdata)
{
	struct http_call *c = userdata;

	n *= size;
	if (n > HEADERS_BYTES_MAX - c->header_bytes) {
		c->too_long = true;
		return 0;
	}
	c->header_bytes += n;
	keep_header(c->content_type, sizeof(c->content_type), "Content-Type", p, n);
	keep_header(c->date, sizeof(c->date), "Date", p, n);
	keep_header(c->location, sizeof(c->location), "Location", p, n);
	keep_header(c->grpc_status, sizeof(c->grpc_status), "grpc-status", p, n);
	keep_header(c->grpc_message, sizeof(c->grpc_message), "grpc-message", p, n);
	return n;
}

/* Each new connection of a call begins here. A call that was to reuse one which turned out to be
 * dead comes here as well, later; its connect timeout counts from then. */
static curl_socket_t on_open(void *userdata, curlsocktype purpose, struct curl_sockaddr *a)
{
	struct http_call *c = userdata;
	unsigned ms = (unsigned) (c->connect_timeout / USEC_PER_MSEC);
	int fd;

	fd = socket(a->family, a->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->protocol);
	if (fd < 0) {
		c->socket_errno = errno;
		return CURL_SOCKET_BAD;
	}
	/* A kept connection whose far side no longer acknowledges has to fail as fast as a connect
	 * would, for libcurl to try a new one. */
	if (c->keep_alive)
		(void) setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
	if (c->segment_max)
		(void) setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &c->segment_max,
		                  sizeof(c->segment_max));
	c->retried = c->requested;
	c->opened = c->connecting = true;
	c->requested = false;
	(void) sd_event_source_set_time_relative(c->connect_timer, c->connect_timeout);
	(void) sd_event_source_set_enabled(c->connect_timer, SD_EVENT_ONESHOT);
	return fd;
}

static void mark_connected(struct http_call *c)
{
	if (!c->connecting)
		return;
	c->connecting = false;
	c->connected_at = clock_boottime();
	(void) sd_event_source_set_enabled(c->connect_timer, SD_EVENT_OFF);
}

/* Connection and handshake stand, the request is about to be sent. */
static int on_request(void *userdata, char *peer, char *local, int peer_port, int local_port)
{
	struct http_call *c = userdata;

	mark_connected(c);
	c->requested = true;
	c->requested_at = clock_boottime();
	return CURL_PREREQFUNC_OK;
}

static void keep_issuer(struct http_call *c, X509 *cert)
{
	const X509_NAME *name = cert ? X509_get_issuer_name(cert) : NULL;
	char raw[128];
	int n;

	if (!name)
		return;
	n = X509_NAME_get_text_by_NID((X509_NAME *) name, NID_commonName, raw, sizeof(raw));
	if (n <= 0)
		n = X509_NAME_get_text_by_NID((X509_NAME *) name, NID_organizationName, raw,
		                              sizeof(raw));
	if (n > 0)
		text_clean(c->issuer, sizeof(c->issuer), raw, strnlen(raw, sizeof(raw)));
}

/* In place of OpenSSL's own check, which it calls: to learn why it failed and whose certificate it
 * was. */
static int on_verify(X509_STORE_CTX *store, void *userdata)
{
	struct http_call *c = userdata;
	int good = X509_verify_cert(store);
	X509 *cert = good > 0 ? NULL : X509_STORE_CTX_get_current_cert(store);

	if (good <= 0)
		c->x509_error = X509_STORE_CTX_get_error(store);
	keep_issuer(c, cert ? cert : X509_STORE_CTX_get0_cert(store));
	return good;
}

/* Called once TCP is connected. No renegotiation: a kept connection may outlive the call that
 * on_verify() is given. */
static CURLcode on_tls(CURL *easy, void *ctx, void *userdata)
{
	struct http_call *c = userdata;

	mark_connected(c);
	(void) SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
	SSL_CTX_set_cert_verify_callback(ctx, on_verify, c);
	return CURLE_OK;
}

/* ---- a call ---- */

struct http_call *http_call_free(struct http_call *c)
{
	if (!c)
		return NULL;
	if (c->easy) {
		(void) curl_multi_remove_handle(c->http->multi, c->easy);
		curl_easy_cleanup(c->easy);
	}
	sd_event_source_disable_unref(c->connect_timer);
	for (struct curl_slist *l = c->headers; l; l = l->next)
		explicit_bzero(l->data, strlen(l->data)); /* a metadata token */
	curl_slist_free_all(c->headers);
	curl_slist_free_all(c->connect_to);
	if (c->body)
		explicit_bzero(c->body, c->size);
	free(c->body);
	free(c);
	return NULL;
}

static bool is_well_formed(const struct http_request *rq)
{
	bool scheme = strcmp(rq->scheme, "https") == 0 || strcmp(rq->scheme, "http") == 0;

	/* a space or a line break in a path would be another request */
	for (const char *p = rq->path; *p; p++)
		if ((unsigned char) *p <= ' ' || *p == 0x7F)
			return false;
	if (rq->proxy && (!rq->proxy->address.family || !rq->proxy->port))
		return false;
	if (rq->connect_only && (rq->proxy || rq->keep_alive || rq->unix_socket))
		return false;
	return scheme && (rq->unix_socket || rq->address.family) && rq->port &&
	       rq->path[0] == '/' && rq->body_max && rq->timeout && rq->connect_timeout &&
	       rq->host[0] && !strpbrk(rq->host, "/@?# \r\n");
}

static int add_line(struct curl_slist **list, const char *line)
{
	struct curl_slist *l = curl_slist_append(*list, line);

	if (!l)
		return -ENOMEM;
	*list = l;
	return 0;
}

#define SET(c, option, value)                                                                      \
	do {                                                                                       \
		CURLcode _code = curl_easy_setopt((c)->easy, option, value);                       \
		if (_code != CURLE_OK)                                                             \
			return _code == CURLE_OUT_OF_MEMORY ? -ENOMEM : -EINVAL;                   \
	} while (0)

/* By address, so that libcurl has nothing to resolve here either: the proxy's own certificate,
 * where it has one, is checked against its name only when that is a literal, so that an https proxy
 * is taken at its word. What is asked through it is verified end to end. */
static int set_proxy(struct http_call *c, const struct http_proxy *p)
{
	char url[128], text[ADDRESS_TEXT_MAX];
	int n = snprintf(url, sizeof(url),
	                 p->address.family == AF_INET6 ? "%s://[%s]:%u" : "%s://%s:%u", p->scheme,
	                 address_format(&p->address, text), p->port);

	if (n < 0 || (size_t) n >= sizeof(url))
		return -EINVAL;
	SET(c, CURLOPT_PROXY, url);
	SET(c, CURLOPT_NOPROXY, "");
	SET(c, CURLOPT_HTTPPROXYTUNNEL, 1L);
	SET(c, CURLOPT_PROXY_SSL_VERIFYPEER, 0L);
	SET(c, CURLOPT_PROXY_SSL_VERIFYHOST, 0L);
	SET(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
	return 0;
}

/* The URL names the host, for Host:, SNI and the certificate; CONNECT_TO says where that is, so
 * that libcurl has nothing to resolve. */
static int set_target(struct http_call *c, const struct http_request *rq)
{
	char url[2048], target[128], text[ADDRESS_TEXT_MAX];
	bool v6_host = strchr(rq->host, ':') && rq->host[0] != '[';
	int n;

	/* libcurl's connect of an https URL has the handshake in it */
	n = snprintf(url, sizeof(url), "%s://%s%s%s:%u%s", rq->connect_only ? "http" : rq->scheme,
	             v6_host ? "[" : "", rq->host, v6_host ? "]" : "", rq->port, rq->path);
	if (n < 0 || (size_t) n >= sizeof(url))
		return -EINVAL;
	SET(c, CURLOPT_URL, url);
	SET(c, CURLOPT_DNS_CACHE_TIMEOUT, 0L);
	if (rq->unix_socket) {
		SET(c, CURLOPT_UNIX_SOCKET_PATH, rq->unix_socket);
		return 0;
	}
	if (rq->proxy) /* the far end is the proxy's to find */
		return set_proxy(c, rq->proxy);
	n = snprintf(target, sizeof(target),
	             rq->address.family == AF_INET6 ? "::[%s]:%u" : "::%s:%u",
	             address_format(&rq->address, text), rq->port);
	if (n < 0 || (size_t) n >= sizeof(target) || add_line(&c->connect_to, target) < 0)
		return -EINVAL;
	SET(c, CURLOPT_CONNECT_TO, c->connect_to);
	return 0;
}

static int set_request(struct http_call *c, const struct http_request *rq)
{
	int r;

	for (const char *const *s = rq->headers; s && *s; s++) {
		r = add_line(&c->headers, *s);
		if (r < 0)
			return r;
	}
	if (strcmp(rq->method, "HEAD") == 0)
		SET(c, CURLOPT_NOBODY, 1L);
	else
		SET(c, CURLOPT_CUSTOMREQUEST, rq->method);
	if (rq->body) {
		SET(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t) rq->body_len);
		SET(c, CURLOPT_COPYPOSTFIELDS, rq->body);
		/* No waiting for 100 Continue; but libcurl would sign this line, which it does not
		 * send. Nothing that is signed here is so long that it would ask. */
		r = rq->sigv4 ? 0 : add_line(&c->headers, "Expect:");
		if (r < 0)
			return r;
	}
	if (rq->sigv4) {
		SET(c, CURLOPT_AWS_SIGV4, rq->sigv4);
		SET(c, CURLOPT_USERNAME, rq->key_id);
		SET(c, CURLOPT_PASSWORD, rq->secret);
	}
	SET(c, CURLOPT_HTTPHEADER, c->headers);
	SET(c, CURLOPT_USERAGENT, "nodewhy");
	SET(c, CURLOPT_HTTP_VERSION,
	    (long) (rq->http2 ? CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE : CURL_HTTP_VERSION_1_1));
	SET(c, CURLOPT_PATH_AS_IS, 1L);
	SET(c, CURLOPT_FOLLOWLOCATION, 0L);
	if (!rq->proxy) {
		SET(c, CURLOPT_PROXY, "");
		SET(c, CURLOPT_NOPROXY, "*");
	}
#if LIBCURL_VERSION_NUM >= 0x075500
	SET(c, CURLOPT_PROTOCOLS_STR, "http,https");
#else
	SET(c, CURLOPT_PROTOCOLS, (long) (CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
	return 0;
}

static int set_limits(struct http_call *c, const struct http_request *rq)
{
	long ms = (long) ((rq->timeout + USEC_PER_MSEC - 1) / USEC_PER_MSEC);

	SET(c, CURLOPT_NOSIGNAL, 1L);
	SET(c, CURLOPT_LOCALPORT, (long) rq->local_port);
	SET(c, CURLOPT_TIMEOUT_MS, ms);
	SET(c, CURLOPT_CONNECTTIMEOUT_MS, ms); /* never before ours, on_connect_timeout() */
	SET(c, CURLOPT_FORBID_REUSE, rq->keep_alive ? 0L : 1L);
	SET(c, CURLOPT_FRESH_CONNECT, rq->keep_alive ? 0L : 1L);
	SET(c, CURLOPT_CONNECT_ONLY, rq->connect_only ? 1L : 0L);
	return 0;
}

/* The store of the CAs lives in the multi (20 ms of processor time for a system's bundle), but only
 * where no directory is given too. Each handshake is a full one: to see the certificate is the
 * point. */
static int set_tls(struct http_call *c, const struct http_request *rq)
{
	struct curl_blob ca = {
		.data = (void *) rq->ca_pem, .len = rq->ca_pem_len, .flags = CURL_BLOB_COPY};

	if (rq->ca_pem)
		SET(c, CURLOPT_CAINFO_BLOB, &ca);
	else if (rq->ca_file)
		SET(c, CURLOPT_CAINFO, rq->ca_file);
	if (rq->ca_pem || rq->ca_file || c->http->ca_is_file)
		SET(c, CURLOPT_CAPATH, NULL);
#if LIBCURL_VERSION_NUM >= 0x075700
	SET(c, CURLOPT_CA_CACHE_TIMEOUT, 24L * 3600);
#endif
	SET(c, CURLOPT_SSL_SESSIONID_CACHE, 0L);
	SET(c, CURLOPT_SSL_VERIFYPEER, 1L);
	SET(c, CURLOPT_SSL_VERIFYHOST, 2L);
	SET(c, CURLOPT_SSL_CTX_FUNCTION, on_tls);
	SET(c, CURLOPT_SSL_CTX_DATA, c);
	return 0;
}

static int set_callbacks(struct http_call *c)
{
	SET(c, CURLOPT_PRIVATE, c);
	SET(c, CURLOPT_ERRORBUFFER, c->curl_error);
	SET(c, CURLOPT_WRITEFUNCTION, on_body);
	SET(c, CURLOPT_WRITEDATA, c);
	SET(c, CURLOPT_HEADERFUNCTION, on_header);
	SET(c, CURLOPT_HEADERDATA, c);
	SET(c, CURLOPT_OPENSOCKETFUNCTION, on_open);
	SET(c, CURLOPT_OPENSOCKETDATA, c);
	SET(c, CURLOPT_PREREQFUNCTION, on_request);
	SET(c, CURLOPT_PREREQDATA, c);
	return 0;
}

static int set_up_call(struct http_call *c, const struct http_request *rq)
{
	int r;

	c->easy = curl_easy_init();
	if (!c->easy)
		return -ENOMEM;
	r = sd_event_add_time_relative(c->http->event, &c->connect_timer, CLOCK_BOOTTIME,
	                               rq->connect_timeout, USEC_PER_MSEC, on_connect_timeout, c);
	if (r < 0)
		return r;
	r = sd_event_source_set_enabled(c->connect_timer, SD_EVENT_OFF);
	if (r < 0)
		return r;
	r = set_target(c, rq);
	if (r == 0)
		r = set_request(c, rq);
	if (r == 0)
		r = set_limits(c, rq);
	if (r == 0 && c->tls)
		r = set_tls(c, rq);
	return r == 0 ? set_callbacks(c) : r;
}

int http_call_new(struct http_call **ret, struct http *h, const struct http_request *rq,
                  http_done_t done, void *userdata)
{
	struct http_call *c;
	int r;

	if (!is_well_formed(rq))
		return -EINVAL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	*c = (struct http_call){.http = h,
	                        .done = done,
	                        .userdata = userdata,
	                        .max = rq->body_max,
	                        .tls = strcmp(rq->scheme, "https") == 0 && !rq->connect_only,
	                        .connect_only = rq->connect_only,
	                        .keep_alive = rq->keep_alive,
	                        .segment_max = rq->segment_max,
	                        .connect_timeout = rq->connect_timeout,
	                        .started = clock_boottime()};
	r = set_up_call(c, rq);
	if (r == 0 && curl_multi_add_handle(h->multi, c->easy) != CURLM_OK)
		r = -ENOMEM;
	if (r < 0) {
		http_call_free(c);
		return r;
	}
	*ret = c;
	return 0;
}
