/* SPDX-License-Identifier: Apache-2.0 */
/* resolv.conf, and every way in which a nameserver can answer or not, against a nameserver of this
 * test's own on port 53 of its own network namespace. */
#include <poll.h>
#include <sys/resource.h>

#include "../netns.h"
#include "../tap.h"
#include "dns.h"

/* ---- resolv.conf ---- */

static struct resolv_conf parsed(const char *text)
{
	struct resolv_conf c;

	resolv_conf_parse(&c, text, strlen(text));
	return c;
}

static bool address_is(const struct address *a, const char *text)
{
	char got[ADDRESS_TEXT_MAX];

	return strcmp(address_format(a, got), text) == 0;
}

static void resolv(void)
{
	struct resolv_conf c;

	c = parsed("# x\nnameserver 10.0.0.2\nsearch eu-west-1.compute.internal corp\n");
	ok(c.n == 1 && address_is(&c.servers[0], "10.0.0.2"));
	ok(strcmp(c.search, "eu-west-1.compute.internal") == 0);
	c = parsed("nameserver 10.0.0.2#x\nnameserver\tfd00::1 ;\r\nnameserver 1.1.1.1\n"
	           "nameserver 2.2.2.2");
	ok(c.n == 3 && address_is(&c.servers[1], "fd00::1"));
	ok(parsed(" nameserver 10.0.0.2\n").n == 0); /* glibc: at the start of the line only */
	ok(parsed("nameserver\nnameserver x\nnameservers 1.1.1.1\n;nameserver 1.1.1.1\n").n == 0);
	ok(strcmp(parsed("search a\ndomain b\n").search, "b") == 0);
	ok(parsed("search \033[31m\n").search[0] == 0);
	ok(parsed("").n == 0);
}

/* ---- a nameserver ---- */

static size_t put16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t) (v >> 8);
	p[1] = (uint8_t) v;
	return 2;
}

static size_t put_record(uint8_t *p, uint16_t name, unsigned type, unsigned ttl, const void *data,
                         size_t len)
{
	size_t n = put16(p, 0xC000u | name);

	n += put16(p + n, type);
	n += put16(p + n, 1);
	n += put16(p + n, 0);
	n += put16(p + n, ttl);
	n += put16(p + n, (unsigned) len);
	memcpy(p + n, data, len);
	return n + len;
}

static bool starts(const uint8_t *query, const char *label)
{
	return query[12] == strlen(label) && memcmp(query + 13, label, query[12]) == 0;
}

/* Makes the query in p (n bytes) its own answer; 0 bytes: say nothing. */
static size_t answer(uint8_t *p, size_t n, bool tcp, unsigned *lost)
{
	static const uint8_t four[] = {10, 1, 2, 3}, other[] = {10, 1, 2, 4};
	static const uint8_t six[16] = {0xfd, [15] = 7}, alias[] = {1, 'x', 0xC0, 12};
	bool aaaa = p[n - 3] == DNS_AAAA;

	p[2] |= 0x80;
	p[3] = 0x80;
	if (starts(p, "silent") || (starts(p, "lost") && (*lost)++ == 0))
		return 0;
	if (starts(p, "garbage"))
		memset(p + 4, 0xff, n - 4);
	else if (starts(p, "nx"))
		p[3] |= 3;
	else if (starts(p, "servfail"))
		p[3] |= 2;
	else if (starts(p, "refused"))
		p[3] |= 5;
	else if (starts(p, "notauth"))
		p[3] |= 9;
	else if (starts(p, "tc") && !tcp)
		p[2] |= 0x02;
	else if (starts(p, "broken")) {
		p[7] = 1;
		n += put16(p + n, 0xC00C);
	} else if (starts(p, "cname")) {
		uint16_t at = (uint16_t) (n + 12);

		p[7] = 2;
		n += put_record(p + n, 12, 5, 30, alias, sizeof(alias));
		n += put_record(p + n, at, DNS_A, 60, four, 4);
	} else if (!starts(p, "nodata")) {
		p[7] = aaaa ? 1 : 2;
		if (aaaa)
			return n + put_record(p + n, 12, DNS_AAAA, 20, six, 16);
		n += put_record(p + n, 12, DNS_A, 60, four, 4);
		n += put_record(p + n, 12, DNS_A, 30, other, 4);
	}
	return n;
}

static void answer_tcp(int listener)
{
	uint8_t p[1024];
	unsigned lost = 0;
	int c = accept(listener, NULL, NULL);
	ssize_t n = read(c, p, sizeof(p));
	size_t len;

	if (n > 2) {
		len = answer(p + 2, (size_t) n - 2, true, &lost);
		put16(p, (unsigned) len);
		(void) !write(c, p, len + 2);
	}
	close(c);
}

static pid_t serve(const char *address)
{
	struct pollfd fds[2] = {{.fd = netns_bind(address, 53, SOCK_DGRAM, 0), .events = POLLIN},
	                        {.fd = netns_bind(address, 53, SOCK_STREAM, 8), .events = POLLIN}};
	unsigned lost = 0;
	pid_t p;

	ok(fds[0].fd >= 0 && fds[1].fd >= 0);
	p = netns_fork();
	while (p == 0 && poll(fds, 2, -1) > 0) {
		struct sockaddr_storage from;
		socklen_t from_len = sizeof(from);
		uint8_t q[1024];
		ssize_t n;

		if (fds[1].revents)
			answer_tcp(fds[1].fd);
		if (!fds[0].revents)
			continue;
		n = recvfrom(fds[0].fd, q, 512, 0, (struct sockaddr *) &from, &from_len);
		n = n > 16 ? (ssize_t) answer(q, (size_t) n, false, &lost) : 0;
		if (n > 0)
			(void) sendto(fds[0].fd, q, (size_t) n, 0, (struct sockaddr *) &from,
			              from_len);
	}
	close(fds[0].fd);
	close(fds[1].fd);
	return p;
}

/* ---- calls ---- */

static sd_event *event;
static struct dns *dns;
static struct dns_reply reply;
static unsigned fired;

static void on_done(struct dns_call *c, const struct dns_reply *r, void *userdata)
{
	reply = *r;
	fired++;
	dns_call_free(c);
}

static void ask(const char *server, const char *name, enum dns_type type)
{
	struct dns_call *c;
	struct address a;
	int r = address_parse(&a, server);

	fired = 0;
	reply = (struct dns_reply){.outcome = OUTCOME_UNKNOWN};
	if (r == 0)
		r = dns_call_new(&c, dns, &a, name, type, 300 * USEC_PER_MSEC, on_done, NULL);
	while (r == 0 && fired == 0 && sd_event_run(event, USEC_PER_SEC) > 0)
		;
	printf("# %s %s: %s rcode=%d errno=%d took=%lu n=%zu ttl=%u\n", server, name,
	       outcome_name(reply.outcome), reply.rcode, reply.error, (unsigned long) reply.took,
	       reply.n, reply.ttl);
}

static bool gives(const char *name, enum outcome o, int rcode)
{
	ask("127.0.0.1", name, DNS_A);
	return fired == 1 && reply.outcome == o && reply.rcode == rcode && reply.error == 0;
}

static void answers(void)
{
	ok(gives("ok.test", OUTCOME_OK, 0) && reply.n == 2 && reply.ttl == 30);
	ok(address_is(&reply.addresses[0], "10.1.2.3") && reply.took < 300000);
	ask("::1", "ok.test", DNS_AAAA);
	ok(reply.outcome == OUTCOME_OK && reply.n == 1 && reply.ttl == 20 &&
	   address_is(&reply.addresses[0], "fd00::7"));
	ok(gives("cname.test", OUTCOME_OK, 0) && reply.n == 1 && reply.ttl == 30);
	ok(gives("tc.test", OUTCOME_OK, 0) && reply.n == 2); /* by TCP */
	ok(gives("nx.test", OUTCOME_ABSENT, 3));
	ok(gives("nodata.test", OUTCOME_ABSENT, 0));
	ok(gives("servfail.test", OUTCOME_FAILED, 2));
	ok(gives("refused.test", OUTCOME_DENIED, 5));
	ok(gives("notauth.test", OUTCOME_FAILED, 9));
	ok(gives("broken.test", OUTCOME_MALFORMED, 0));
	ok(gives("lost.test", OUTCOME_OK, 0) && reply.took > 90000 && reply.took < 290000);
	ok(gives("silent.test", OUTCOME_TIMEOUT, -1));
	ok(reply.took > 250000 && reply.took < 500000);
	ok(gives("garbage.test", OUTCOME_MALFORMED, -1));
	ok(gives("silent.test", OUTCOME_TIMEOUT, -1)); /* what came before is forgotten */
}

static void failures(void)
{
	ask("127.0.0.9", "ok.test", DNS_A);
	ok(reply.outcome == OUTCOME_REFUSED && reply.error == ECONNREFUSED && reply.rcode == -1);
	ask("192.0.2.1", "ok.test", DNS_A);
	ok(reply.outcome == OUTCOME_UNREACHABLE && reply.error == ENETUNREACH);
	/* the next call of that channel does not inherit its errno */
	ask("127.0.0.1", "ok.test", DNS_A);
	ok(reply.outcome == OUTCOME_OK && reply.error == 0);
	ask("127.0.0.1", "", DNS_A);
	ok(fired == 0);
	ask("127.0.0.1", "a..b", DNS_A);
	ok(fired == 1 && reply.outcome == OUTCOME_FAILED);
	if (system("ip route add unreachable 198.51.100.1 2>/dev/null") == 0) {
		ask("198.51.100.1", "ok.test", DNS_A);
		ok(reply.outcome == OUTCOME_UNREACHABLE && reply.error == EHOSTUNREACH);
	}
	if (system("nft 'add table ip t; add chain ip t c { type filter hook output priority 0; }; "
	           "add rule ip t c ip daddr 127.0.0.8 drop' 2>/dev/null") == 0) {
		ask("127.0.0.8", "ok.test", DNS_A);
		ok(reply.outcome == OUTCOME_UNREACHABLE && reply.error == EPERM);
	}
}

/* That we have no descriptor left says nothing of the server. */
static void out_of_descriptors(void)
{
	struct rlimit was, none;

	ok(getrlimit(RLIMIT_NOFILE, &was) == 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = was.rlim_max};
	ok(setrlimit(RLIMIT_NOFILE, &none) == 0);
	ask("127.0.0.10", "ok.test", DNS_A);
	ok(reply.outcome == OUTCOME_UNKNOWN && reply.error == EMFILE && reply.rcode == -1);
	ok(setrlimit(RLIMIT_NOFILE, &was) == 0);
}

/* Truncates, then closes and resets the TCP connection before anything was written to it. */
static pid_t serve_gone(const char *address)
{
	struct pollfd fds[2] = {{.fd = netns_bind(address, 53, SOCK_DGRAM, 0), .events = POLLIN},
	                        {.fd = netns_bind(address, 53, SOCK_STREAM, 8), .events = POLLIN}};
	pid_t p = netns_fork();

	while (p == 0 && poll(fds, 2, -1) > 0) {
		const struct linger at_once = {.l_onoff = 1};
		struct sockaddr_storage from;
		socklen_t len = sizeof(from);
		uint8_t q[1024];
		ssize_t n;

		if (fds[0].revents & POLLIN) {
			n = recvfrom(fds[0].fd, q, sizeof(q), 0, (struct sockaddr *) &from, &len);
			q[2] |= 0x82;
			(void) sendto(fds[0].fd, q, n > 0 ? (size_t) n : 0, 0,
			              (struct sockaddr *) &from, len);
		}
		if (fds[1].revents & POLLIN) {
			int c = accept(fds[1].fd, NULL, NULL);

			(void) shutdown(c, SHUT_WR);
			(void) setsockopt(c, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
			(void) close(c);
		}
	}
	(void) close(fds[0].fd);
	(void) close(fds[1].fd);
	return p;
}

/* Writing to what is gone is an error of that call; SIGPIPE would be the end of us. */
static void gone(void)
{
	pid_t server = serve_gone("127.0.0.30");
	unsigned reset = 0;

	for (int i = 0; i < 20; i++) {
		ask("127.0.0.30", "ok.test", DNS_A);
		reset += reply.outcome == OUTCOME_RESET;
	}
	ok(reset == 20);
	netns_reap(server);
}

/* ---- many, and cancelled ---- */

static struct dns_call *many[40];
static unsigned ended;

static void on_many(struct dns_call *c, const struct dns_reply *r, void *userdata)
{
	struct dns_call **mine = userdata;

	*mine = dns_call_free(c);
	many[0] = dns_call_free(many[0]); /* in flight, or answered and not yet told */
	ended++;
}

static void cancels(void)
{
	static const char *const names[] = {"silent.test", "ok.test", "nx.test", "servfail.test"};
	struct dns_call *c;
	struct address a;

	for (size_t i = 0; i < ELEMENTS(many); i++) {
		char server[16];

		snprintf(server, sizeof(server), "127.0.0.%zu", 1 + i % 20);
		(void) address_parse(&a, server);
		/* more servers than channels are kept: the rest is told so */
		if (dns_call_new(&many[i], dns, &a, names[i % 4], DNS_A, 200 * USEC_PER_MSEC,
		                 on_many, &many[i]) < 0)
			ended++;
	}
	while (ended < ELEMENTS(many) - 1 && sd_event_run(event, USEC_PER_SEC) > 0)
		;
	ok(ended == ELEMENTS(many) - 1 && !many[0]);
	(void) address_parse(&a, "127.0.0.1");
	ok(dns_call_new(&c, dns, &a, "ok.test", DNS_A, USEC_PER_SEC, on_many, NULL) == 0);
	ok(!dns_call_free(c)); /* and the instrument goes while c-ares still waits */
}

int main(void)
{
	pid_t servers[2];
	int r;

	r = netns_enter();
	if (r < 0)
		return netns_skip(r);
	resolv();
	servers[0] = serve("127.0.0.1");
	servers[1] = serve("::1");
	ok(sd_event_new(&event) >= 0 && dns_new(&dns, event) == 0);
	answers();
	failures();
	out_of_descriptors();
	gone();
	cancels();
	dns = dns_free(dns);
	sd_event_unref(event);
	netns_reap(servers[0]);
	netns_reap(servers[1]);
	return done();
}
