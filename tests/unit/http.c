/* SPDX-License-Identifier: Apache-2.0 */
/* Every way in which a call can end, against servers of this test's own, in a network namespace of
 * its own. */
#include <dirent.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/resource.h>

#include "../netns.h"
#include "../tap.h"
#include "http.h"

enum {
	PLAIN = 8080,   /* answers by path */
	NOBODY = 8081,  /* refused */
	FULL = 8082,    /* a full backlog: the SYN is dropped */
	STALLED = 8083, /* connects, then silence */
	RESETS = 8084,  /* resets each connection */
	SECURE = 8443,
	EXPIRED = 8444,
	FOREIGN = 8445, /* by a CA nobody knows */
};

/* ---- a private CA ---- */

struct ca {
	EVP_PKEY *key;
	X509 *cert;
};

static X509 *certify(EVP_PKEY *key, const char *name, const struct ca *by, long until)
{
	X509 *x = X509_new();
	X509_EXTENSION *e;
	char alt[128];
	static long serial;

	X509_set_version(x, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(x), ++serial);
	X509_gmtime_adj(X509_getm_notBefore(x), -7200);
	X509_gmtime_adj(X509_getm_notAfter(x), until);
	X509_set_pubkey(x, key);
	X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
	                           (const unsigned char *) name, -1, -1, 0);
	X509_set_issuer_name(x, X509_get_subject_name(by ? by->cert : x));
	snprintf(alt, sizeof(alt), "DNS:%s", name);
	e = X509V3_EXT_conf_nid(NULL, NULL, by ? NID_subject_alt_name : NID_basic_constraints,
	                        by ? alt : "critical,CA:TRUE");
	X509_add_ext(x, e, -1);
	X509_EXTENSION_free(e);
	X509_sign(x, by ? by->key : key, EVP_sha256());
	return x;
}

static struct ca ca_new(const char *name)
{
	struct ca ca = {.key = EVP_EC_gen("P-256")};

	ca.cert = certify(ca.key, name, NULL, 86400);
	return ca;
}

static SSL_CTX *ctx_new(const struct ca *ca, long until)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *x = certify(key, "api.example.test", ca, until);

	SSL_CTX_use_certificate(ctx, x);
	SSL_CTX_use_PrivateKey(ctx, key);
	X509_free(x);
	EVP_PKEY_free(key);
	return ctx;
}

/* ---- the servers ---- */

struct stream {
	int fd;
	SSL *ssl;
};

static void put(const struct stream *s, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = s->ssl ? SSL_write(s->ssl, data, (int) len) : write(s->fd, data, len);

		if (n <= 0)
			_exit(0);
		data += n;
		len -= (size_t) n;
	}
}

static void put_text(const struct stream *s, const char *text)
{
	put(s, text, strlen(text));
}

static void put_many(const struct stream *s, const char *piece, size_t times)
{
	while (times--)
		put_text(s, piece);
}

static void reset(const struct stream *s)
{
	struct linger l = {.l_onoff = 1};

	(void) setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &l, sizeof(l));
	close(s->fd);
	_exit(0);
}

static void answer(const struct stream *s, const char *request, unsigned nth)
{
	char text[256];

	if (request[0] == 0x16) { /* a TLS record: what web servers say to that */
		put_text(s, "HTTP/1.1 400 Bad Request\r\n\r\n");
		_exit(0);
	} else if (strstr(request, "/ok ")) {
		snprintf(text, sizeof(text),
		         "HTTP/1.1 200 OK\r\nDate: now\r\nContent-Type: \t text/plain \r\n"
		         "Content-Length: 2\r\n\r\n%02u",
		         nth);
		put_text(s, text);
	} else if (strstr(request, "/moved ")) {
		put_text(s, "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:8081/\r\n"
		            "Content-Length: 0\r\n\r\n");
	} else if (strstr(request, "/503 ")) {
		put_text(s, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
	} else if (strstr(request, "/long ")) {
		put_text(s, "HTTP/1.1 200 OK\r\n\r\n");
		put_many(s, "0123456789", 1000);
		_exit(0);
	} else if (strstr(request, "/headers ")) {
		put_text(s, "HTTP/1.1 200 OK\r\n");
		put_many(s, "X-Filler: 0123456789012345678901234567890123456789\r\n", 4000);
		_exit(0);
	} else if (strstr(request, "/garbage ")) {
		put_text(s, "SSH-2.0-OpenSSH_9.2\r\n");
		_exit(0);
	} else if (strstr(request, "/short ")) {
		put_text(s, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1");
		_exit(0);
	} else if (strstr(request, "/reset ")) {
		reset(s);
	} else if (strstr(request, "/eof ")) {
		_exit(0);
	} else if (strstr(request, "/echo ")) {
		snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
		         strlen(request));
		put_text(s, text);
		put_text(s, request);
	} /* else silence */
}

static void converse(int fd, SSL_CTX *ctx)
{
	struct stream s = {.fd = fd};
	char request[4096];

	if (ctx) {
		s.ssl = SSL_new(ctx);
		SSL_set_fd(s.ssl, fd);
		if (SSL_accept(s.ssl) != 1)
			_exit(0);
	}
	for (unsigned nth = 1;; nth++) {
		ssize_t n = s.ssl ? SSL_read(s.ssl, request, sizeof(request) - 1)
		                  : read(fd, request, sizeof(request) - 1);

		if (n <= 0)
			_exit(0);
		request[n] = 0;
		answer(&s, request, nth);
	}
}

static pid_t serve(const char *address, uint16_t port, SSL_CTX *ctx)
{
	int fd = netns_bind(address, port, SOCK_STREAM, 64);
	pid_t p;

	ok(fd >= 0);
	p = netns_fork();
	if (p != 0) {
		close(fd);
		return p;
	}
	(void) signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int c = accept(fd, NULL, NULL);

		if (port == RESETS) {
			struct stream s = {.fd = c};

			if (netns_fork() == 0)
				reset(&s);
		} else if (c >= 0 && netns_fork() == 0) {
			close(fd);
			converse(c, ctx);
		}
		close(c);
	}
}

/* ---- the calls ---- */

static sd_event *event;
static struct http *http;
static struct http_reply reply; /* its pointers are gone after the callback */
static char body[8192], location[64], content_type[64];
static unsigned fired;

static void on_done(struct http_call *c, const struct http_reply *r, void *userdata)
{
	reply = *r;
	fired++;
	snprintf(body, sizeof(body), "%s", r->body);
	snprintf(location, sizeof(location), "%s", r->location);
	snprintf(content_type, sizeof(content_type), "%s", r->content_type);
	http_call_free(c);
}

static struct http_request request(uint16_t port, const char *path)
{
	struct http_request rq = {.method = "GET",
	                          .scheme = port >= SECURE ? "https" : "http",
	                          .host = "api.example.test",
	                          .port = port,
	                          .path = path,
	                          .connect_timeout = 200 * USEC_PER_MSEC,
	                          .timeout = 400 * USEC_PER_MSEC,
	                          .body_max = 4096};

	(void) address_parse(&rq.address, "127.0.0.1");
	return rq;
}

static void go(const struct http_request *rq)
{
	struct http_call *c;

	fired = 0;
	reply = (struct http_reply){.code = -1};
	if (http_call_new(&c, http, rq, on_done, NULL) < 0)
		return;
	while (fired == 0 && sd_event_run(event, USEC_PER_SEC) > 0)
		;
	printf("# %s %s://%s:%u%s: %s stage=%d code=%d status=%d connect=%lu tls=%lu first=%lu "
	       "total=%lu %s %s\n",
	       rq->method, rq->scheme, rq->host, rq->port, rq->path, outcome_name(reply.outcome),
	       reply.stage, reply.code, reply.status, (unsigned long) reply.connect,
	       (unsigned long) reply.tls, (unsigned long) reply.first_byte,
	       (unsigned long) reply.total, reply.tls_error, reply.tls_issuer);
}

static bool ends(uint16_t port, const char *path, enum outcome o, enum http_stage stage, int code)
{
	struct http_request rq = request(port, path);

	go(&rq);
	return fired == 1 && reply.outcome == o && reply.stage == stage && reply.code == code;
}

static bool within(usec_t t, unsigned from_ms, unsigned to_ms)
{
	return t >= from_ms * USEC_PER_MSEC && t <= to_ms * USEC_PER_MSEC;
}

static void plain(void)
{
	struct http_request rq = request(PLAIN, "/ok");

	go(&rq);
	ok(reply.outcome == OUTCOME_OK && reply.code == 200 && reply.stage == HTTP_DONE);
	ok(strcmp(body, "01") == 0 && reply.body_len == 2);
	ok(strcmp(content_type, "text/plain") == 0);
	ok(reply.connect > 0 && reply.tls == 0 && reply.first_byte >= reply.connect &&
	   reply.total > 0 && !reply.reused);
	ok(ends(PLAIN, "/moved", OUTCOME_OK, HTTP_DONE, 302));
	ok(strcmp(location, "http://127.0.0.1:8081/") == 0);
	ok(ends(PLAIN, "/503", OUTCOME_OK, HTTP_DONE, 503) && reply.status == 503);
	ok(ends(PLAIN, "/long", OUTCOME_MALFORMED, HTTP_WAITING, 0) && reply.status == 200);
	ok(ends(PLAIN, "/headers", OUTCOME_MALFORMED, HTTP_WAITING, 0));
	ok(ends(PLAIN, "/garbage", OUTCOME_MALFORMED, HTTP_WAITING, 0) && reply.status == 0);
	ok(ends(PLAIN, "/short", OUTCOME_RESET, HTTP_WAITING, 0) && reply.status == 200);
	ok(ends(PLAIN, "/eof", OUTCOME_RESET, HTTP_WAITING, 0));
	ok(ends(PLAIN, "/reset", OUTCOME_RESET, HTTP_WAITING, ECONNRESET));
	ok(ends(PLAIN, "/silence", OUTCOME_TIMEOUT, HTTP_WAITING, 0));
	ok(within(reply.total, 390, 800) && reply.connect > 0 && reply.first_byte == 0);
	rq.path = "/echo";
	rq.method = "PUT";
	rq.headers = (const char *const[]){"X-Test: 1", NULL};
	go(&rq);
	ok(strncmp(body, "PUT /echo HTTP/1.1\r\nHost: api.example.test:8080\r\n", 48) == 0);
	ok(strstr(body, "\r\nX-Test: 1\r\n"));
	rq.host = "fd00:ec2::254";
	ok(address_parse(&rq.address, "::1") == 0);
	go(&rq);
	ok(strstr(body, "\r\nHost: [fd00:ec2::254]:8080\r\n"));
}

static void connecting(void)
{
	struct http_request rq = request(PLAIN, "/ok");

	ok(ends(NOBODY, "/", OUTCOME_REFUSED, HTTP_CONNECTING, ECONNREFUSED));
	ok(ends(FULL, "/", OUTCOME_TIMEOUT, HTTP_CONNECTING, 0));
	ok(within(reply.total, 195, 390) && reply.connect == 0);
	ok(address_parse(&rq.address, "192.0.2.1") == 0);
	go(&rq);
	ok(reply.outcome == OUTCOME_UNREACHABLE && reply.stage == HTTP_CONNECTING &&
	   reply.code == ENETUNREACH);
}

/* A connect alone knows nothing of certificates, or of a far side that never says a word, and
 * leaves nothing open. */
static void connects_only(void)
{
	static const struct {
		uint16_t port;
		enum outcome outcome;
		enum http_stage stage;
	} cases[] = {{PLAIN, OUTCOME_OK, HTTP_TLS},
	             {FOREIGN, OUTCOME_OK, HTTP_TLS},
	             {STALLED, OUTCOME_OK, HTTP_TLS},
	             {NOBODY, OUTCOME_REFUSED, HTTP_CONNECTING},
	             {FULL, OUTCOME_TIMEOUT, HTTP_CONNECTING}};
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct http_request rq = request(cases[i].port, "/ok");

		rq.scheme = "https";
		rq.connect_only = true;
		go(&rq);
		ok(fired == 1 && reply.outcome == cases[i].outcome &&
		   reply.stage == cases[i].stage && reply.status == 0);
		ok((reply.outcome == OUTCOME_OK) == (reply.connect > 0) && reply.tls == 0 &&
		   !reply.tls_error[0]);
	}
	close(fd);
	ok(open("/dev/null", O_RDONLY | O_CLOEXEC) == fd && close(fd) == 0);
}

/* That we have no descriptor left says nothing of the far side. */
static void out_of_descriptors(void)
{
	struct rlimit was, none;

	ok(getrlimit(RLIMIT_NOFILE, &was) == 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = was.rlim_max};
	ok(setrlimit(RLIMIT_NOFILE, &none) == 0);
	ok(ends(PLAIN, "/ok", OUTCOME_UNKNOWN, HTTP_CONNECTING, EMFILE));
	ok(setrlimit(RLIMIT_NOFILE, &was) == 0);
	ok(ends(PLAIN, "/ok", OUTCOME_OK, HTTP_DONE, 200));
}

static void secure(const char *ca)
{
	struct http_request rq = request(SECURE, "/ok");

	rq.ca_file = ca;
	go(&rq);
	ok(reply.outcome == OUTCOME_OK && reply.code == 200);
	ok(reply.connect > 0 && reply.tls > reply.connect && reply.first_byte >= reply.tls);
	rq.path = "/eof";
	go(&rq);
	ok(reply.outcome == OUTCOME_RESET && reply.stage == HTTP_WAITING && reply.tls > 0);
	rq.path = "/silence";
	go(&rq);
	ok(reply.outcome == OUTCOME_TIMEOUT && reply.stage == HTTP_WAITING);
	rq.host = "sts.example.test";
	go(&rq);
	ok(reply.outcome == OUTCOME_UNTRUSTED && reply.stage == HTTP_TLS &&
	   reply.code == X509_V_ERR_HOSTNAME_MISMATCH);
	ok(strcasestr(reply.tls_error, "hostname mismatch") &&
	   strcmp(reply.tls_issuer, "Test CA") == 0);
	rq.host = "api.example.test";
	rq.port = FOREIGN;
	go(&rq);
	ok(reply.outcome == OUTCOME_UNTRUSTED && reply.stage == HTTP_TLS &&
	   reply.code == X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
	ok(strcmp(reply.tls_issuer, "Corp Interception CA") == 0 && reply.tls_error[0]);
	rq.port = EXPIRED;
	go(&rq);
	ok(reply.outcome == OUTCOME_UNTRUSTED && reply.code == X509_V_ERR_CERT_HAS_EXPIRED);
	ok(strstr(reply.tls_error, "expired") && reply.connect > 0 && reply.tls == 0);
	rq.port = SECURE;
	rq.ca_file = "/nonexistent/ca.pem";
	go(&rq);
	ok(reply.outcome == OUTCOME_ABSENT && reply.stage == HTTP_TLS);
}

static void handshakes(const char *ca)
{
	struct http_request rq = request(STALLED, "/");

	rq.scheme = "https";
	rq.ca_file = ca;
	go(&rq);
	ok(reply.outcome == OUTCOME_TIMEOUT && reply.stage == HTTP_TLS);
	ok(within(reply.total, 390, 800) && reply.connect > 0 && reply.connect < 200000);
	rq.port = RESETS;
	go(&rq);
	ok(reply.outcome == OUTCOME_RESET);
	ok(reply.stage == HTTP_TLS || reply.stage == HTTP_CONNECTING);
	rq.port = PLAIN;
	go(&rq);
	ok(reply.stage == HTTP_TLS && reply.outcome == OUTCOME_MALFORMED && reply.tls_error[0]);
}

/* What the far side was told, by the size of what it would send. */
static int told(uint16_t segment_max)
{
	struct http_request rq = request(0, "/ok");
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t a_len = sizeof(a), len = sizeof(int);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, size = -1;

	if (bind(listener, (struct sockaddr *) &a, sizeof(a)) == 0 && listen(listener, 1) == 0 &&
	    getsockname(listener, (struct sockaddr *) &a, &a_len) == 0) {
		rq.port = ntohs(a.sin_port);
		rq.segment_max = segment_max;
		rq.timeout = 50 * USEC_PER_MSEC;
		go(&rq);
		fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		(void) getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &size, &len);
		(void) close(fd);
	}
	(void) close(listener);
	return size;
}

static void small(void)
{
	int size = told(536);

	ok(size >= 500 && size <= 536);
	ok(told(0) > 10000);
}

static void kept(void)
{
	struct http_request rq = request(PLAIN, "/ok");

	rq.keep_alive = true;
	go(&rq);
	ok(!reply.reused && strcmp(body, "01") == 0);
	go(&rq);
	ok(reply.reused && strcmp(body, "02") == 0 && reply.connect == 0);
	rq.keep_alive = false;
	go(&rq);
	ok(!reply.reused && strcmp(body, "01") == 0);
	rq.keep_alive = true;
	go(&rq);
	ok(reply.reused && strcmp(body, "03") == 0);
	ok(address_parse(&rq.address, "127.0.0.2") == 0);
	go(&rq);
	ok(reply.outcome == OUTCOME_REFUSED); /* never another address's connection */
}

/* A kept connection to a server that is gone, at an address that now is silent. */
static void kept_dead(pid_t *server)
{
	struct http_request rq = request(PLAIN, "/ok");

	rq.keep_alive = true;
	go(&rq);
	ok(reply.outcome == OUTCOME_OK);
	netns_reap(*server);
	*server = serve("127.0.0.1", PLAIN, NULL);
	rq.path = "/eof"; /* the child that holds the connection ends, libcurl tries anew */
	go(&rq);
	ok(reply.outcome == OUTCOME_RESET && reply.stage == HTTP_WAITING);
	rq.path = "/ok";
	go(&rq);
	ok(reply.outcome == OUTCOME_OK && strcmp(body, "01") == 0);
}

/* A kept connection whose far side falls silent is given up as fast as a connect, and another one
 * is tried: so it is a connect that fails, not an answer that is missing. */
static void kept_silent(void)
{
	struct http_request rq = request(PLAIN, "/ok");

	rq.keep_alive = true;
	rq.connect_timeout = 300 * USEC_PER_MSEC;
	rq.timeout = 2 * USEC_PER_SEC;
	go(&rq);
	ok(reply.outcome == OUTCOME_OK);
	if (system("nft 'add table ip t; add chain ip t c { type filter hook output priority 0; }; "
	           "add rule ip t c tcp dport 8080 drop' 2>/dev/null") != 0)
		return;
	go(&rq);
	ok(reply.outcome == OUTCOME_TIMEOUT && reply.stage == HTTP_CONNECTING);
	ok(within(reply.total, 500, 1500));
	ok(system("nft delete table ip t") == 0);
}

static void refuses(void)
{
	struct http_request rq = request(PLAIN, "/a b"), good = request(PLAIN, "/");
	struct http_call *c;

	ok(http_call_new(&c, http, &rq, on_done, NULL) == -EINVAL);
	rq = good;
	rq.path = "no-slash";
	ok(http_call_new(&c, http, &rq, on_done, NULL) == -EINVAL);
	rq = good;
	rq.address.family = 0;
	ok(http_call_new(&c, http, &rq, on_done, NULL) == -EINVAL);
	rq = good;
	rq.body_max = 0;
	ok(http_call_new(&c, http, &rq, on_done, NULL) == -EINVAL);
	rq = good;
	rq.scheme = "file";
	ok(http_call_new(&c, http, &rq, on_done, NULL) == -EINVAL);
	rq = good;
	rq.host = "evil@host";
	ok(http_call_new(&c, http, &rq, on_done, NULL) == -EINVAL);
}

/* Many at once; the first that ends frees another in flight, which must not be heard of again. */
static struct http_call *many[20];
static unsigned ended;

static void on_many(struct http_call *c, const struct http_reply *r, void *userdata)
{
	struct http_call **mine = userdata;

	*mine = http_call_free(c);
	many[19] = http_call_free(many[19]);
	ended++;
}

static int threads(void)
{
	DIR *d = opendir("/proc/self/task");
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)))
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

static void cancels(void)
{
	static const uint16_t ports[] = {PLAIN, NOBODY, STALLED, FULL};

	for (size_t i = 0; i < 20; i++) {
		struct http_request rq = request(ports[i % 4], "/ok");

		ok(http_call_new(&many[i], http, &rq, on_many, &many[i]) == 0);
	}
	while (ended < 19 && sd_event_run(event, USEC_PER_SEC) > 0)
		;
	ok(ended == 19 && !many[19]);
	ok(threads() == 1);
}

/* With nothing in flight the loop must sleep: no timer of libcurl's may be left over. */
static void idles(void)
{
	unsigned wakes = 0;

	while (sd_event_run(event, 300 * USEC_PER_MSEC) > 0 && wakes < 10)
		wakes++;
	printf("# wake-ups when idle: %u\n", wakes);
	ok(wakes <= 1);
}

static void fill_backlog(int *fds, size_t n)
{
	struct sockaddr_in sa = {.sin_family = AF_INET,
	                         .sin_port = htons(FULL),
	                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	for (size_t i = 0; i < n; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void) connect(fds[i], (struct sockaddr *) &sa, sizeof(sa));
	}
}

int main(void)
{
	char ca_file[64];
	struct ca ca, foreign;
	SSL_CTX *ctx[3];
	pid_t servers[6];
	int holes[2], fds[4], r;
	FILE *f;

	r = netns_enter();
	if (r < 0)
		return netns_skip(r);
	(void) signal(SIGPIPE, SIG_IGN);
	ca = ca_new("Test CA");
	foreign = ca_new("Corp Interception CA");
	ctx[0] = ctx_new(&ca, 86400);
	ctx[1] = ctx_new(&ca, -3600);
	ctx[2] = ctx_new(&foreign, 86400);
	snprintf(ca_file, sizeof(ca_file), "/tmp/nodewhy-http-%d.pem", getpid());
	f = fopen(ca_file, "we");
	ok(f && PEM_write_X509(f, ca.cert) == 1 && fclose(f) == 0);
	servers[0] = serve("127.0.0.1", PLAIN, NULL);
	servers[1] = serve("127.0.0.1", RESETS, NULL);
	servers[2] = serve("127.0.0.1", SECURE, ctx[0]);
	servers[3] = serve("127.0.0.1", EXPIRED, ctx[1]);
	servers[4] = serve("127.0.0.1", FOREIGN, ctx[2]);
	servers[5] = serve("::1", PLAIN, NULL);
	holes[0] = netns_bind("127.0.0.1", FULL, SOCK_STREAM, 0);
	holes[1] = netns_bind("127.0.0.1", STALLED, SOCK_STREAM, 64);
	fill_backlog(fds, ELEMENTS(fds));

	ok(sd_event_new(&event) >= 0);
	ok(http_new(&http, event) == 0);
	plain();
	connecting();
	connects_only();
	out_of_descriptors();
	secure(ca_file);
	handshakes(ca_file);
	small();
	kept();
	kept_dead(&servers[0]);
	kept_silent();
	refuses();
	cancels();
	idles();
	sd_event_unref(event); /* http holds its own */
	http = http_free(http);

	(void) unlink(ca_file);
	for (size_t i = 0; i < ELEMENTS(servers); i++)
		netns_reap(servers[i]);
	for (size_t i = 0; i < ELEMENTS(fds); i++)
		close(fds[i]);
	close(holes[0]);
	close(holes[1]);
	for (size_t i = 0; i < ELEMENTS(ctx); i++)
		SSL_CTX_free(ctx[i]);
	X509_free(ca.cert);
	X509_free(foreign.cert);
	EVP_PKEY_free(ca.key);
	EVP_PKEY_free(foreign.key);
	return done();
}
