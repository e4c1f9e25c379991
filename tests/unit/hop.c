/* SPDX-License-Identifier: Apache-2.0 */
/* The hop limit seen from the host, against servers that answer with a TTL of their choice. */
#include <netinet/tcp.h>

#include "../netns.h"
#include "../tap.h"
#include "hop.h"

enum { SLOW_MS = 400 };

/* Answers each PUT with this hop limit; ms: late by so much; closes: without an answer. */
static pid_t serve(const char *address, uint16_t port, int hops, int ms, const char *text)
{
	int fd = netns_bind(address, port, SOCK_STREAM, 16);
	bool v6 = strchr(address, ':');
	char request[1024];
	pid_t p;

	ok(fd >= 0);
	p = netns_fork();
	while (p == 0) {
		int c = accept(fd, NULL, NULL);

		if (c < 0 || read(c, request, sizeof(request)) <= 0)
			continue;
		if (ms)
			usleep((unsigned) ms * 1000);
		if (v6)
			(void) setsockopt(c, IPPROTO_IPV6, IPV6_UNICAST_HOPS, &hops, sizeof(hops));
		else
			(void) setsockopt(c, IPPROTO_IP, IP_TTL, &hops, sizeof(hops));
		(void) !write(c, text, strlen(text));
		if (text[0])
			(void) !read(c, request, sizeof(request)); /* until the client is through */
		close(c);
	}
	close(fd);
	return p;
}

static sd_event *event;
static struct hop_reply reply;
static unsigned fired;

static void on_done(struct hop_call *c, const struct hop_reply *r, void *userdata)
{
	reply = *r;
	fired++;
	hop_call_free(c);
}

static void look(const char *address, uint16_t port)
{
	struct hop_call *c;
	struct address a;
	int r;

	fired = 0;
	reply = (struct hop_reply){.outcome = OUTCOME_UNKNOWN};
	r = address_parse(&a, address);
	if (r == 0)
		r = hop_call_new(&c, event, &a, port, 600 * USEC_PER_MSEC, on_done, NULL);
	if (fired)
		fired = 100; /* from inside: never */
	while (r == 0 && fired == 0 && sd_event_run(event, 2 * USEC_PER_SEC) > 0)
		;
	printf("# %s:%u %s errno=%d status=%d hops=%d exact=%d counted=%d took=%lu\n", address,
	       port, outcome_name(reply.outcome), reply.error, reply.status, reply.hop_limit,
	       reply.exact, reply.counted, (unsigned long) reply.took);
}

static bool is(const char *address, uint16_t port, int hops, bool exact, bool counted)
{
	look(address, port);
	return fired == 1 && reply.outcome == OUTCOME_OK && reply.status == 200 &&
	       reply.hop_limit == hops && reply.exact == exact && reply.counted == counted;
}

int main(void)
{
	static const char good[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntoken";
	struct hop_call *c;
	struct address a;
	pid_t p[9];
	int hole, r;

	r = netns_enter();
	if (r < 0)
		return netns_skip(r);
	(void) signal(SIGPIPE, SIG_IGN);
	p[0] = serve("127.0.0.1", 81, 1, 0, good);
	p[1] = serve("127.0.0.1", 82, 2, 0, good);
	p[2] = serve("127.0.0.1", 83, 64, SLOW_MS, good);
	p[3] = serve("::1", 81, 1, 0, good);
	p[4] = serve("::1", 82, 3, 0, good);
	p[5] = serve("127.0.0.1", 84, 64, 0, "");
	p[6] = serve("127.0.0.1", 85, 64, 0, "SSH-2.0-OpenSSH_9.2\r\n");
	p[7] = serve("127.0.0.1", 86, 64, 0, "HTTP/1.1 403 Forbidden\r\n\r\n");
	p[8] = serve("127.0.0.1", 87, 1, SLOW_MS / 2, good);
	hole = netns_bind("127.0.0.1", 88, SOCK_STREAM, 8);
	ok(sd_event_new(&event) >= 0);

	ok(is("127.0.0.1", 81, 1, false, true));
	ok(reply.took > 150000 && reply.took < 550000); /* the retransmission came through */
	ok(is("127.0.0.1", 82, 2, false, false) && reply.took < 150000);
	ok(is("127.0.0.1", 83, 2, false, false)); /* slow is not dropped */
	ok(is("127.0.0.1", 87, 1, false, true));  /* slow and dropped */
	ok(is("::1", 81, 1, true, false));
	ok(is("::1", 82, 3, true, false));
	look("127.0.0.1", 84);
	ok(reply.outcome == OUTCOME_RESET && reply.hop_limit == 0);
	look("127.0.0.1", 85);
	ok(reply.outcome == OUTCOME_MALFORMED);
	look("127.0.0.1", 86);
	ok(reply.outcome == OUTCOME_OK && reply.status == 403);
	look("127.0.0.1", 88);
	ok(reply.outcome == OUTCOME_TIMEOUT && reply.hop_limit == 0 && !reply.counted);
	look("127.0.0.1", 99);
	ok(reply.outcome == OUTCOME_REFUSED && reply.error == ECONNREFUSED);
	look("192.0.2.1", 80);
	ok(reply.outcome == OUTCOME_UNREACHABLE && reply.error == ENETUNREACH);
	ok(address_parse(&a, "127.0.0.1") == 0);
	ok(hop_call_new(&c, event, &a, 88, USEC_PER_SEC, on_done, NULL) == 0);
	ok(!hop_call_free(c)); /* in flight */
	ok(hop_call_new(&c, event, &a, 0, USEC_PER_SEC, on_done, NULL) == -EINVAL);

	sd_event_unref(event);
	for (size_t i = 0; i < ELEMENTS(p); i++)
		netns_reap(p[i]);
	close(hole);
	return done();
}
