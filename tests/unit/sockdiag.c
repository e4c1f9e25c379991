/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "../tap.h"
#include "sockdiag.h"

struct pair {
	int listener, client, server;
	struct address address;
	uint16_t port, client_port;
};

static int listen_on(int family, uint16_t *ret_port)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr *sa = family == AF_INET ? (struct sockaddr *) &v4 : (struct sockaddr *) &v6;
	socklen_t len = family == AF_INET ? sizeof(v4) : sizeof(v6);
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, sa, len) < 0 || listen(fd, 8) < 0 || getsockname(fd, sa, &len) < 0)
		return -errno;
	*ret_port = ntohs(family == AF_INET ? v4.sin_port : v6.sin6_port);
	return fd;
}

static int open_pair(struct pair *p, int family)
{
	struct sockaddr_in6 sa = {0};
	socklen_t len = sizeof(sa);

	*p = (struct pair){.client = -1, .server = -1};
	(void) address_parse(&p->address, family == AF_INET ? "127.0.0.1" : "::1");
	p->listener = listen_on(family, &p->port);
	if (p->listener < 0 || getsockname(p->listener, (struct sockaddr *) &sa, &len) < 0)
		return -errno;
	p->client = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (p->client < 0 || connect(p->client, (struct sockaddr *) &sa, len) < 0)
		return -errno;
	p->server = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
	len = sizeof(sa);
	if (p->server < 0 || getsockname(p->client, (struct sockaddr *) &sa, &len) < 0)
		return -errno;
	p->client_port =
		ntohs(family == AF_INET ? ((struct sockaddr_in *) &sa)->sin_port : sa.sin6_port);
	return 0;
}

static void close_pair(struct pair *p)
{
	(void) close(p->client);
	(void) close(p->server);
	(void) close(p->listener);
}

static void real(int family)
{
	struct tcp_sockets found = {0};
	struct pair p;
	int r;

	if (open_pair(&p, family) < 0) {
		printf("ok %d - # SKIP no loopback of family %d\n", ++tap_n, family);
		return;
	}
	r = sockdiag_tcp(&p.address, p.port, &found);
	if (r == -EOPNOTSUPP) {
		printf("ok %d - # SKIP this kernel has no tcp_diag\n", ++tap_n);
		close_pair(&p);
		return;
	}
	/* the client's end alone: the other one is to the client's port */
	ok(r == 0 && found.n == 1 && !found.more);
	ok(found.sockets[0].local_port == p.client_port);
	ok(address_equal(&found.sockets[0].local, &p.address));
	ok(found.sockets[0].uid == getuid() && found.sockets[0].cookie);
	ok(found.sockets[0].unacked == 0 && found.sockets[0].retransmits == 0);
	ok(sockdiag_tcp(&p.address, p.client_port, &found) == 0 && found.n == 1 &&
	   found.sockets[0].local_port == p.port);
	close_pair(&p);
	ok(sockdiag_tcp(&p.address, p.port, &found) == 0 && found.n == 0);
}

/* An answer of the kernel, made by hand. */
struct __attribute__((packed)) message {
	struct nlmsghdr h;
	struct inet_diag_msg m;
	struct nlattr a;
	struct tcp_info info;
};

static struct message message(const struct address *to, uint16_t port, uint32_t cookie)
{
	struct message m = {
		.h = {.nlmsg_len = sizeof(m), .nlmsg_type = SOCK_DIAG_BY_FAMILY},
		.m = {.idiag_family = AF_INET,
	              .idiag_state = 1,
	              .idiag_uid = 12,
	              .id = {.idiag_dport = htons(port),
	                     .idiag_sport = htons(40000),
	                     .idiag_cookie = {cookie, 1}}},
		.a = {.nla_len = sizeof(m.a) + sizeof(m.info), .nla_type = INET_DIAG_INFO},
		.info = {.tcpi_retransmits = 9, .tcpi_unacked = 3, .tcpi_last_ack_recv = 61000},
	};

	memcpy(m.m.id.idiag_dst, to->bytes, 4);
	return m;
}

static void parsed(void)
{
	struct tcp_sockets found = {0};
	struct nlmsghdr end = {.nlmsg_len = sizeof(end), .nlmsg_type = NLMSG_DONE};
	struct {
		struct nlmsghdr h;
		struct nlmsgerr e;
	} error = {{.nlmsg_len = sizeof(error), .nlmsg_type = NLMSG_ERROR}, {.error = -ENOENT}};
	struct address to, other;
	struct message m;

	(void) address_parse(&to, "10.0.2.90");
	(void) address_parse(&other, "10.0.2.91");
	m = message(&to, 443, 7);
	ok(sockdiag_parse(&found, &m, sizeof(m), &to, 443) == 1 && found.n == 1);
	ok(found.sockets[0].cookie == ((uint64_t) 1 << 32 | 7) && found.sockets[0].uid == 12);
	ok(found.sockets[0].retransmits == 9 && found.sockets[0].unacked == 3);
	ok(found.sockets[0].last_ack == 61 * USEC_PER_SEC && found.sockets[0].cgroup == 0);
	ok(sockdiag_parse(&found, &m, sizeof(m), &other, 443) == 1 && found.n == 1);
	ok(sockdiag_parse(&found, &m, sizeof(m), &to, 444) == 1 && found.n == 1);
	ok(sockdiag_parse(&found, &end, sizeof(end), &to, 443) == 0);
	ok(sockdiag_parse(&found, &error, sizeof(error), &to, 443) == -EOPNOTSUPP);
	error.e.error = -EACCES;
	ok(sockdiag_parse(&found, &error, sizeof(error), &to, 443) == -EACCES);
	/* cut anywhere, and lengths that lie */
	for (size_t n = 1; n < sizeof(m); n++)
		ok(sockdiag_parse(&found, &m, n, &to, 443) == -EBADMSG);
	m.a.nla_len = 8; /* an older kernel's structure */
	m.h.nlmsg_len = sizeof(m.h) + sizeof(m.m) + 8;
	ok(sockdiag_parse(&found, &m, m.h.nlmsg_len, &to, 443) == 1 && found.n == 2);
	ok(found.sockets[1].retransmits == 9 && found.sockets[1].unacked == 0);
	m = message(&to, 443, 7);
	for (size_t i = 0; i < SOCKETS_MAX; i++)
		(void) sockdiag_parse(&found, &m, sizeof(m), &to, 443);
	ok(found.n == SOCKETS_MAX && found.more);
}

int main(void)
{
	struct tcp_sockets found;

	real(AF_INET);
	real(AF_INET6);
	parsed();
	ok(sockdiag_tcp(&(struct address){0}, 443, &found) == -EAFNOSUPPORT);
	return done();
}
