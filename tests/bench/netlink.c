/* SPDX-License-Identifier: Apache-2.0 */
/* Processor time of a whole rtnetlink pass over the pods of this network namespace, and of the look
 * that follows a change of one rule and one route; what is there is made by netlink-pods.sh. Prints
 * one line. */

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/rtnetlink.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "netlink.h"

enum { BATCHES = 10 };

static uint64_t spent_us(void)
{
	struct rusage u;

	(void) getrusage(RUSAGE_SELF, &u);
	return (uint64_t) (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
	       (uint64_t) (u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void ignore(void *userdata)
{
}

/* The children's time is not ours. */
static int measure_changes(uint64_t *ret_us)
{
	static const char change[] =
		"ip rule add to 10.9.9.9 lookup main priority 512 && "
		"ip rule del to 10.9.9.9 priority 512 && "
		"ip route add blackhole 10.9.9.9 && ip route del blackhole 10.9.9.9";
	const struct net *net = NULL;
	struct netlink *n = NULL;
	sd_event *e = NULL;
	uint64_t before;
	int r;

	r = sd_event_new(&e);
	if (r >= 0)
		r = netlink_new(&n, e, ignore, NULL);
	if (r == 0)
		r = netlink_snapshot(n, 0, USEC_INFINITY, &net);
	*ret_us = 0;
	for (int i = 0; i < 10 && r == 0; i++) {
		if (system(change) != 0) {
			r = -EIO;
			break;
		}
		before = spent_us();
		r = netlink_snapshot(n, 0, USEC_INFINITY, &net);
		*ret_us += (spent_us() - before) / 10;
	}
	netlink_free(n);
	sd_event_unref(e);
	return r;
}

/* What else runs on the machine, above all on the other thread of the core, only ever adds: so the
 * least of several batches. */
static int measure_passes(struct netlink *n, unsigned passes, uint64_t *ret_us)
{
	const struct net *net;
	uint64_t before, spent;
	int r = 0;

	*ret_us = UINT64_MAX;
	for (int batch = 0; batch < BATCHES && r == 0; batch++) {
		before = spent_us();
		for (unsigned i = 0; i < passes && r == 0; i++)
			r = netlink_snapshot(n, 0, 0, &net);
		spent = (spent_us() - before) / passes;
		if (spent < *ret_us)
			*ret_us = spent;
	}
	return r;
}

/* One dump received and thrown away. */
static int drain_dump(struct mnl_socket *s, uint16_t type, uint8_t family, size_t header)
{
	static char buf[32768];
	struct nlmsghdr *m;
	ssize_t len;
	int left;

	memset(buf, 0, 256);
	m = mnl_nlmsg_put_header(buf);
	m->nlmsg_type = type;
	m->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	*(uint8_t *) mnl_nlmsg_put_extra_header(m, header) = family;
	if (type == RTM_GETLINK)
		mnl_attr_put_u32(m, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
	if (mnl_socket_sendto(s, m, m->nlmsg_len) < 0)
		return -errno;
	for (;;) {
		len = mnl_socket_recvfrom(s, buf, sizeof(buf));
		if (len < 0)
			return -errno;
		left = (int) len;
		for (m = (void *) buf; mnl_nlmsg_ok(m, left); m = mnl_nlmsg_next(m, &left))
			if (m->nlmsg_type == NLMSG_DONE || m->nlmsg_type == NLMSG_ERROR)
				return 0;
	}
}

/* The kernel's own share of a pass, which no reader can save: the same dumps, not looked at. */
static int measure_kernel(unsigned passes, uint64_t *ret_us)
{
	static const struct {
		uint16_t type;
		uint8_t family;
		size_t header;
	} dumps[] = {
		{RTM_GETLINK, AF_UNSPEC, sizeof(struct ifinfomsg)},
		{RTM_GETADDR, AF_UNSPEC, sizeof(struct ifaddrmsg)},
		{RTM_GETRULE, AF_INET, sizeof(struct fib_rule_hdr)},
		{RTM_GETRULE, AF_INET6, sizeof(struct fib_rule_hdr)},
		{RTM_GETROUTE, AF_INET, sizeof(struct rtmsg)},
		{RTM_GETROUTE, AF_INET6, sizeof(struct rtmsg)},
	};
	struct mnl_socket *s = mnl_socket_open(NETLINK_ROUTE);
	uint64_t before, spent;
	int on = 1, r = 0;

	*ret_us = UINT64_MAX;
	if (!s || mnl_socket_bind(s, 0, MNL_SOCKET_AUTOPID) < 0)
		return -errno;
	(void) setsockopt(mnl_socket_get_fd(s), SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on,
	                  sizeof(on));
	for (int batch = 0; batch < BATCHES && r == 0; batch++) {
		before = spent_us();
		for (unsigned i = 0; i < passes; i++)
			for (size_t k = 0; k < ELEMENTS(dumps) && r == 0; k++)
				r = drain_dump(s, dumps[k].type, dumps[k].family, dumps[k].header);
		spent = (spent_us() - before) / passes;
		if (spent < *ret_us)
			*ret_us = spent;
	}
	(void) mnl_socket_close(s);
	return r;
}

int main(int argc, char *argv[])
{
	unsigned passes = argc > 1 ? (unsigned) strtoul(argv[1], NULL, 10) : 5;
	const struct net *net = NULL;
	struct netlink *n = NULL;
	uint64_t spent = 0, kernel = 0, change = 0;
	int r;

	r = netlink_new(&n, NULL, NULL, NULL);
	if (r == 0)
		r = netlink_snapshot(n, 0, 0, &net); /* the arrays grow once */
	if (r == 0)
		r = measure_passes(n, passes ? passes : 1, &spent);
	if (r == 0)
		r = measure_kernel(passes ? passes : 1, &kernel);
	if (r == 0)
		r = netlink_snapshot(n, 0, 0, &net);
	if (r == 0)
		r = measure_changes(&change);
	if (r < 0) {
		(void) fprintf(stderr, "netlink: %s\n", strerror(-r));
		netlink_free(n);
		return 1;
	}
	printf("links=%zu rules=%zu routes=%zu partial=%d us_per_change=%llu us_of_kernel=%llu "
	       "us_per_pass=%llu\n",
	       net->n_links, net->n_rules, net->n_routes, net->partial, (unsigned long long) change,
	       (unsigned long long) kernel, (unsigned long long) spent);
	netlink_free(n);
	return 0;
}
