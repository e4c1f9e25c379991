/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata client against a metadata service of this test's own, at the real addresses in its
 * own network namespace. */
#include <sys/mman.h>

#include "../netns.h"
#include "../tap.h"
#include "clock.h"
#include "imds.h"

enum mode { SOUND, DENIES, REJECTS, SILENT_PUT, HTML_TOKEN, BUSY };

/* What the servers do and saw, shared with their processes. */
struct shared {
	enum mode mode;
	unsigned token, puts, gets, connections, v6;
};

static struct shared *shared;

static void put_text(int fd, const char *status, const char *body)
{
	char text[512];
	int n = snprintf(text, sizeof(text), "HTTP/1.1 %s\r\nContent-Length: %zu\r\n\r\n%s", status,
	                 strlen(body), body);

	if (write(fd, text, (size_t) n) != n)
		_exit(0);
}

static void answer_put(int fd, const char *request)
{
	char token[32];

	shared->puts++;
	if (shared->mode == DENIES) {
		put_text(fd, "403 Forbidden", "");
	} else if (shared->mode == HTML_TOKEN) {
		put_text(fd, "200 OK", "<html> hello </html>");
	} else if (!strstr(request, "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n")) {
		put_text(fd, "400 Bad Request", "");
	} else if (shared->mode != SILENT_PUT) {
		snprintf(token, sizeof(token), "TOKEN-%u==", ++shared->token);
		put_text(fd, "200 OK", token);
	}
}

static void answer_get(int fd, const char *request)
{
	char want[64];

	shared->gets++;
	snprintf(want, sizeof(want), "X-aws-ec2-metadata-token: TOKEN-%u==\r\n", shared->token);
	if (shared->mode == REJECTS || !strstr(request, want))
		put_text(fd, "401 Unauthorized", "");
	else if (shared->mode == BUSY)
		put_text(fd, "503 Slow Down", "");
	else if (strncmp(request, "GET /latest/meta-data/instance-id ", 34) == 0)
		put_text(fd, "200 OK", "i-0123456789abcdef0");
	else
		put_text(fd, "404 Not Found", "");
}

static void converse(int fd)
{
	char request[2048];
	ssize_t n;

	while ((n = read(fd, request, sizeof(request) - 1)) > 0) {
		request[n] = 0;
		if (strncmp(request, "PUT /latest/api/token ", 22) == 0)
			answer_put(fd, request);
		else
			answer_get(fd, request);
	}
	_exit(0);
}

static pid_t serve(const char *address)
{
	int fd = netns_bind(address, 80, SOCK_STREAM, 64);
	pid_t p;

	ok(fd >= 0);
	p = netns_fork();
	if (p == 0)
		(void) signal(SIGCHLD, SIG_IGN);
	while (p == 0) {
		int c = accept(fd, NULL, NULL);

		shared->connections++;
		shared->v6 += strchr(address, ':') != NULL;
		if (c >= 0 && netns_fork() == 0) {
			close(fd); /* or the port would outlive the listener */
			converse(c);
		}
		close(c);
	}
	close(fd);
	return p;
}

/* ---- calls ---- */

static sd_event *event;
static struct http *http;
static struct imds *imds;
static struct imds_reply reply;
static char body[128];
static unsigned fired, good;

static void on_done(struct imds_call *c, const struct imds_reply *r, void *userdata)
{
	reply = *r;
	snprintf(body, sizeof(body), "%s", r->http.body);
	good += r->http.outcome == OUTCOME_OK && r->http.code == 200;
	fired++;
	imds_call_free(c);
}

static void ask_for(const char *path, bool spare)
{
	struct imds_call *c;

	fired = good = 0;
	reply = (struct imds_reply){.http.outcome = OUTCOME_UNKNOWN};
	if (imds_call_new(&c, imds, path, 4096, spare, clock_boottime(), on_done, NULL) < 0)
		return;
	if (fired) /* from inside: never */
		fired = 100;
	while (fired == 0 && sd_event_run(event, 5 * USEC_PER_SEC) > 0)
		;
	printf("# %s: step=%d %s stage=%d code=%d fresh=%d total=%lu puts=%u gets=%u conns=%u\n",
	       path, reply.step, outcome_name(reply.http.outcome), reply.http.stage,
	       reply.http.code, reply.fresh_token, (unsigned long) reply.http.total, shared->puts,
	       shared->gets, shared->connections);
}

static void ask(void)
{
	ask_for("/latest/meta-data/instance-id", false);
}

static bool configured(const char *endpoint, const char *mode, const char *disabled)
{
	struct imds_options o = {.endpoint = endpoint, .mode = mode, .disabled = disabled};
	char error[200] = "";
	int r;

	imds = imds_free(imds);
	r = imds_new(&imds, event, http, &o, error, sizeof(error));
	if (r < 0)
		printf("# %s\n", error);
	return r == 0 && !error[0];
}

static void sound(void)
{
	struct imds_call *c[8];

	ok(configured(NULL, NULL, NULL));
	ask();
	ok(good == 1 && strcmp(body, "i-0123456789abcdef0") == 0 && reply.fresh_token);
	ok(shared->puts == 1 && shared->gets == 1 && shared->connections == 1 && shared->v6 == 0);
	ask();
	ok(good == 1 && !reply.fresh_token && reply.http.reused);
	ok(shared->puts == 1 && shared->gets == 2 && shared->connections == 1);
	ask_for("/latest/meta-data/nothing", false);
	ok(reply.step == IMDS_GET && reply.http.outcome == OUTCOME_OK && reply.http.code == 404);
	imds_forget(imds);
	fired = good = 0;
	for (size_t i = 0; i < 8; i++)
		ok(imds_call_new(&c[i], imds, "/latest/meta-data/instance-id", 64, false,
		                 clock_boottime(), on_done, NULL) == 0);
	c[3] = imds_call_free(c[3]);
	while (fired < 7 && sd_event_run(event, USEC_PER_SEC) > 0)
		;
	ok(good == 7 && shared->puts == 2); /* one flight for all */
	ok(imds_call_new(&c[0], imds, "x", 64, false, 0, on_done, NULL) == -EINVAL);
}

static void tokens(void)
{
	unsigned puts = shared->puts;

	shared->token += 10; /* the service forgets what it gave */
	ask();
	ok(good == 1 && reply.fresh_token && shared->puts == puts + 1);
	shared->mode = REJECTS;
	ask();
	ok(reply.step == IMDS_GET && reply.http.code == 401 && reply.fresh_token);
	ok(shared->puts == puts + 2); /* once, not for ever */
	shared->mode = DENIES;
	imds_forget(imds);
	ask();
	ok(reply.step == IMDS_TOKEN && reply.http.outcome == OUTCOME_OK && reply.http.code == 403);
	shared->mode = HTML_TOKEN;
	ask();
	ok(reply.step == IMDS_TOKEN && reply.http.outcome == OUTCOME_MALFORMED);
	shared->mode = BUSY;
	ask();
	ok(reply.step == IMDS_GET && reply.http.outcome == OUTCOME_OK && reply.http.code == 503);
	shared->mode = SILENT_PUT;
	imds_forget(imds);
	ask();
	ok(reply.step == IMDS_TOKEN && reply.http.outcome == OUTCOME_TIMEOUT &&
	   reply.http.stage == HTTP_WAITING);
	ok(reply.http.total > 1900000 && reply.http.total < 2500000);
	shared->mode = SOUND;
	ask();
	ok(good == 1);
}

static void budget(void)
{
	struct imds_options o = {.endpoint = "http://169.254.169.254/", .spare_per_minute = 4};
	char error[200];

	imds = imds_free(imds);
	ok(imds_new(&imds, event, http, &o, error, sizeof(error)) == 0);
	for (unsigned i = 0; i < 3; i++)
		ask_for("/latest/meta-data/instance-id", true);
	ok(good == 1 && !reply.throttled); /* a PUT and three GETs */
	ask_for("/latest/meta-data/instance-id", true);
	ok(fired == 1 && reply.throttled && good == 0);
	ask();
	ok(good == 1 && !reply.throttled);
}

static void options(void)
{
	struct address a;
	uint16_t port;

	ok(configured(NULL, NULL, "TRUE"));
	ask();
	ok(fired == 1 && reply.disabled);
	ok(configured(NULL, NULL, "false"));
	ok(imds_endpoint(imds, AF_INET, &a, &port) && port == 80);
	ok(imds_endpoint(imds, AF_INET6, &a, &port) && port == 80);
	ok(configured(NULL, "ipv6", NULL));
	ok(!imds_endpoint(imds, AF_INET, &a, &port));
	ok(configured("http://[::1]:8080/", "IPv4", NULL));
	ok(imds_endpoint(imds, AF_INET6, &a, &port) && port == 8080);
	ok(!imds_endpoint(imds, AF_INET, &a, &port));
	ok(!configured("http://metadata.test/", NULL, NULL));
	ok(!configured("https://169.254.169.254/", NULL, NULL));
	ok(!configured(NULL, "IPv5", NULL));
}

/* IPv4 dead in one way after the other, IPv6 alive. */
static void families(pid_t *v4)
{
	pid_t v6 = serve("fd00:ec2::254");
	int fds[3], hole;

	/* the process that holds a kept connection may outlive its listener by a moment */
	imds = imds_free(imds);
	http = http_free(http);
	ok(http_new(&http, event) == 0 && configured(NULL, NULL, NULL));
	netns_reap(*v4);
	*v4 = -1;
	ask();
	ok(good == 1 && reply.address.family == AF_INET6 && shared->v6 == 1);
	ask();
	ok(good == 1 && reply.http.reused); /* sticks to what answered */
	ok(configured(NULL, NULL, NULL));
	hole = netns_bind("169.254.169.254", 80, SOCK_STREAM, 0);
	for (size_t i = 0; i < 3; i++) {
		struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(80)};

		(void) inet_pton(AF_INET, "169.254.169.254", &sa.sin_addr);
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		(void) connect(fds[i], (struct sockaddr *) &sa, sizeof(sa));
	}
	ask(); /* SYNs are dropped: IPv6 is tried at 300 ms, not after a second */
	ok(good == 1 && reply.address.family == AF_INET6);
	netns_reap(v6);
	ok(configured(NULL, NULL, NULL));
	ask();
	ok(reply.step == IMDS_TOKEN && reply.http.outcome == OUTCOME_TIMEOUT &&
	   reply.http.stage == HTTP_CONNECTING && reply.address.family == AF_INET);
	ok(reply.http.total > 950000 && reply.http.total < 1500000);
	for (size_t i = 0; i < 3; i++)
		close(fds[i]);
	close(hole);
}

int main(void)
{
	pid_t v4;
	int r;

	r = netns_enter();
	if (r < 0)
		return netns_skip(r);
	if (system("ip addr add 169.254.169.254/32 dev lo && "
	           "ip addr add fd00:ec2::254/128 dev lo nodad") != 0) {
		printf("1..0 # SKIP no ip(8)\n");
		return 0;
	}
	(void) signal(SIGPIPE, SIG_IGN);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
	              0);
	v4 = serve("169.254.169.254");
	ok(sd_event_new(&event) >= 0 && http_new(&http, event) == 0);
	sound();
	tokens();
	budget();
	options();
	families(&v4);
	imds = imds_free(imds);
	http = http_free(http);
	sd_event_unref(event);
	netns_reap(v4);
	return done();
}
