/* SPDX-License-Identifier: Apache-2.0 */
#include "netlink.h"
#include "clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>

#include "../tap.h"

/* ---- messages by hand into the builder ---- */

static struct nlmsghdr *message(char *buf, uint16_t type, const void *header, size_t size)
{
	struct nlmsghdr *m = mnl_nlmsg_put_header(buf);

	m->nlmsg_type = type;
	m->nlmsg_flags = NLM_F_MULTI;
	memcpy(mnl_nlmsg_put_extra_header(m, size), header, size);
	return m;
}

static void test_link(void)
{
	const uint8_t mac[6] = {0x02, 0xab, 0, 0xff, 0x10, 0x9e};
	const struct ifinfomsg h = {
		.ifi_index = 7, .ifi_type = ARPHRD_ETHER, .ifi_flags = IFF_UP | IFF_RUNNING};
	_Alignas(8) char buf[1024] = {0};
	struct net_builder *b = net_builder_new();
	struct nlmsghdr *m = message(buf, RTM_NEWLINK, &h, sizeof(h));
	struct nlattr *nest;
	struct net net;

	mnl_attr_put_strz(m, IFLA_IFNAME, "ens5");
	mnl_attr_put(m, IFLA_ADDRESS, 6, mac);
	mnl_attr_put(m, 54, 6, mac);
	mnl_attr_put_strz(m, 57, "pci");
	mnl_attr_put_u32(m, IFLA_MTU, 9001);
	mnl_attr_put_u8(m, IFLA_OPERSTATE, IF_OPER_UP);
	mnl_attr_put_u8(m, IFLA_CARRIER, 1);
	nest = mnl_attr_nest_start(m, IFLA_LINKINFO);
	mnl_attr_put_strz(m, IFLA_INFO_KIND, "a-kind-too-long-for-us");
	mnl_attr_nest_end(m, nest);
	ok(net_builder_parse(b, buf, m->nlmsg_len) == 0);
	net_builder_view(b, &net);
	ok(net.n_links == 1 && net.links[0].index == 7 && net.links[0].mtu == 9001);
	ok(strcmp(net.links[0].name, "ens5") == 0 && strcmp(net.links[0].bus, "pci") == 0);
	ok(strcmp(net.links[0].mac, "02:ab:00:ff:10:9e") == 0);
	ok(strcmp(net.links[0].perm_mac, "02:ab:00:ff:10:9e") == 0);
	ok(strcmp(net.links[0].kind, "a-kind-too-long") == 0 && net.links[0].carrier);
	/* Any cut of it is refused or gives less, and never reads beyond (ASan tells). */
	for (size_t n = 0; n < m->nlmsg_len; n++) {
		struct net_builder *c = net_builder_new();
		char *copy = malloc(n + 1);

		if (copy) {
			memcpy(copy, buf, n);
			(void) net_builder_parse(c, copy, n);
		}
		free(copy);
		net_builder_free(c);
	}
	m->nlmsg_len = NLMSG_HDRLEN + 4; /* shorter than its own header */
	ok(net_builder_parse(b, buf, sizeof(buf)) == -EBADMSG);
	net_builder_free(b);
}

static void put_route(struct net_builder *b, struct rtmsg h, const char *dst, const char *gateway,
                      int oif, uint32_t priority)
{
	_Alignas(8) char buf[512] = {0};
	struct nlmsghdr *m = message(buf, RTM_NEWROUTE, &h, sizeof(h));
	struct address a;
	size_t width = h.rtm_family == AF_INET ? 4 : 16;

	if (dst && address_parse(&a, dst) == 0)
		mnl_attr_put(m, RTA_DST, width, a.bytes);
	if (gateway && address_parse(&a, gateway) == 0)
		mnl_attr_put(m, RTA_GATEWAY, width, a.bytes);
	if (oif)
		mnl_attr_put_u32(m, RTA_OIF, (uint32_t) oif);
	if (priority)
		mnl_attr_put_u32(m, RTA_PRIORITY, priority);
	ok(net_builder_parse(b, buf, m->nlmsg_len) == 0);
}

static struct rtmsg route(uint8_t table, uint8_t type, uint8_t len)
{
	return (struct rtmsg){
		.rtm_family = AF_INET, .rtm_table = table, .rtm_type = type, .rtm_dst_len = len};
}

static void test_routes(void)
{
	struct net_builder *b = net_builder_new();
	struct rtmsg cloned = route(254, RTN_UNICAST, 32);
	const struct net_route *t;
	struct address a;
	struct net net;

	cloned.rtm_flags = RTM_F_CLONED;
	put_route(b, route(254, RTN_UNICAST, 0), NULL, "10.0.0.1", 5, 600);
	put_route(b, route(254, RTN_UNICAST, 0), NULL, "10.0.0.9", 6, 512);
	put_route(b, route(254, RTN_UNREACHABLE, 0), NULL, NULL, 0, 1);
	put_route(b, route(254, RTN_UNICAST, 24), "10.0.1.0", NULL, 5, 0);
	put_route(b, route(254, RTN_PROHIBIT, 32), "169.254.169.254", NULL, 0, 0);
	put_route(b, route(2, RTN_UNICAST, 0), NULL, "10.0.2.1", 6, 0);
	put_route(b, route(255, RTN_LOCAL, 32), "10.0.1.5", NULL, 5, 0);
	put_route(b, route(255, RTN_UNICAST, 32), "10.0.1.6", NULL, 5, 0);
	put_route(b, route(254, RTN_BROADCAST, 32), "10.0.1.255", NULL, 5, 0);
	put_route(b, cloned, "10.0.1.7", NULL, 5, 0);
	net_builder_view(b, &net);
	ok(net.n_routes == 6); /* neither local, nor broadcast, nor cloned */
	t = net_default_route(&net, AF_INET, 254);
	ok(t && t->oif == 6 && t->priority == 512);
	ok(net_default_route(&net, AF_INET, 2)->oif == 6);
	ok(!net_default_route(&net, AF_INET, 3) && !net_default_route(&net, AF_INET6, 254));
	(void) address_parse(&a, "169.254.169.254");
	ok(net_route_to(&net, &a, 254)->type == RTN_PROHIBIT);
	ok(net_route_to(&net, &a, 2)->type == RTN_UNICAST);
	(void) address_parse(&a, "10.0.1.77");
	ok(net_route_to(&net, &a, 254)->dst_len == 24);
	(void) address_parse(&a, "fd00::1");
	ok(!net_route_to(&net, &a, 254));
	net_builder_free(b);
}

static void test_multipath(void)
{
	const struct rtmsg h = route(254, RTN_UNICAST, 0);
	_Alignas(8) char buf[512] = {0}, hops[64] = {0};
	struct rtnexthop *hop = (void *) hops;
	struct nlmsghdr *m = message(buf, RTM_NEWROUTE, &h, sizeof(h));
	struct net_builder *b = net_builder_new();
	struct rtattr *gw = (void *) (hop + 1);
	struct net net;

	*hop = (struct rtnexthop){.rtnh_len = sizeof(*hop) + 8, .rtnh_ifindex = 9};
	*gw = (struct rtattr){.rta_len = 8, .rta_type = RTA_GATEWAY};
	memcpy(gw + 1, (const uint8_t[]){10, 9, 8, 7}, 4);
	mnl_attr_put(m, RTA_MULTIPATH, hop->rtnh_len, hops);
	ok(net_builder_parse(b, buf, m->nlmsg_len) == 0);
	net_builder_view(b, &net);
	ok(net.n_routes == 1 && net.routes[0].oif == 9 && net.routes[0].gateway.bytes[3] == 7);
	hop->rtnh_len = 200; /* longer than what holds it */
	m = message(memset(buf, 0, sizeof(buf)), RTM_NEWROUTE, &h, sizeof(h));
	mnl_attr_put(m, RTA_MULTIPATH, sizeof(*hop) + 8, hops);
	ok(net_builder_parse(b, buf, m->nlmsg_len) == 0);
	net_builder_view(b, &net);
	ok(net.n_routes == 2 && net.routes[1].oif == 0);
	net_builder_free(b);
}

static void test_rule(void)
{
	const struct fib_rule_hdr h = {
		.family = AF_INET, .dst_len = 32, .table = 254, .action = FR_ACT_TO_TBL};
	_Alignas(8) char buf[512] = {0};
	struct nlmsghdr *m = message(buf, RTM_NEWRULE, &h, sizeof(h));
	struct net_builder *b = net_builder_new();
	struct net net;

	mnl_attr_put(m, FRA_DST, 4, (const uint8_t[]){10, 0, 1, 7});
	mnl_attr_put_u32(m, FRA_PRIORITY, 512);
	mnl_attr_put_u32(m, FRA_TABLE, 10200);
	mnl_attr_put_u8(m, FRA_PROTOCOL, RTPROT_DHCP);
	ok(net_builder_parse(b, buf, m->nlmsg_len) == 0);
	net_builder_view(b, &net);
	ok(net.n_rules == 1 && net.rules[0].priority == 512 && net.rules[0].table == 10200);
	ok(net.rules[0].dst.family == AF_INET && net.rules[0].dst.bytes[3] == 7);
	ok(net.rules[0].src.family == 0 && net.rules[0].protocol == RTPROT_DHCP);
	net_builder_free(b);
}

static void test_links(void)
{
	static const struct net_link links[] = {
		{.index = 1, .name = "lo", .type = ARPHRD_LOOPBACK, .flags = IFF_LOOPBACK},
		{.index = 8,
	         .name = "vlan.eth.1",
	         .mac = "02:00:00:00:00:05",
	         .kind = "vlan",
	         .type = ARPHRD_ETHER},
		{.index = 9,
	         .name = "eni0123456789a",
	         .mac = "02:00:00:00:00:05",
	         .kind = "veth",
	         .type = ARPHRD_ETHER},
		{.index = 2, .name = "ens5", .mac = "02:00:00:00:00:05", .type = ARPHRD_ETHER},
		{.index = 3,
	         .name = "ens6",
	         .mac = "02:00:00:00:00:bb",
	         .perm_mac = "02:00:00:00:00:06",
	         .type = ARPHRD_ETHER},
		{.index = 4,
	         .name = "ens7",
	         .mac = "02:00:00:00:00:07",
	         .kind = "veth",
	         .type = ARPHRD_ETHER},
	};
	const struct net net = {.links = links, .n_links = ELEMENTS(links)};
	struct net_link l = {.flags = IFF_UP, .operstate = IF_OPER_UNKNOWN};

	ok(net_link_by_mac(&net, "02:00:00:00:00:05")->index == 2); /* hardware first */
	ok(net_link_by_mac(&net, "02:00:00:00:00:06")->index == 3);
	ok(net_link_by_mac(&net, "02:00:00:00:00:07")->index == 4);
	ok(!net_link_by_mac(&net, "02:00:00:00:00:08") && !net_link_by_mac(&net, ""));
	ok(net_link_by_name(&net, "ens6")->index == 3 && !net_link_by_name(&net, "ens"));
	ok(net_link_by_index(&net, 8) == &links[1] && !net_link_by_index(&net, 99));
	ok(!net_link_is_nic(&links[0]) && !net_link_is_nic(&links[1]));
	ok(!net_link_is_nic(&links[2]) && net_link_is_nic(&links[3]) && net_link_is_nic(&links[5]));
	ok(!net_link_is_up(&l));
	l.flags |= IFF_RUNNING;
	ok(net_link_is_up(&l));
	l.operstate = IF_OPER_DOWN;
	ok(!net_link_is_up(&l));
	l.operstate = IF_OPER_UP;
	ok(net_link_is_up(&l));
	l.flags = IFF_RUNNING;
	ok(!net_link_is_up(&l));
}

/* Whatever machine this is: it has a loopback link, and reading needs no privilege. */
static void test_live(void)
{
	const struct net *net = NULL;
	struct netlink *n = NULL;
	uint64_t generation;

	ok(netlink_new(&n, NULL, NULL, NULL) == 0);
	ok(netlink_snapshot(n, 0, 0, &net) == 0 && net_link_by_name(net, "lo"));
	generation = net->generation;
	ok(netlink_snapshot(n, 0, USEC_INFINITY, &net) == 0 && net->generation > generation);
	ok(netlink_free(n) == NULL && netlink_free(NULL) == NULL);
}

/* ---- in a namespace of our own: tests/netlink.t ---- */

struct counter {
	unsigned calls;
};

static void count(void *userdata)
{
	((struct counter *) userdata)->calls++;
}

static void batch(const char *text)
{
	FILE *p = popen("ip -batch -", "we");

	ok(p && fputs(text, p) >= 0);
	if (p)
		ok(pclose(p) == 0);
}

static bool same_links(const struct net *a, const struct net *b)
{
	size_t same = 0;

	for (size_t i = 0; i < a->n_links; i++) {
		const struct net_link *l = net_link_by_index(b, a->links[i].index);
		struct net_link followed = a->links[i];

		/* The kernel makes one end of a veth pair before the other, and says nothing more.
		 */
		if (l && strcmp(l->kind, "veth") == 0)
			followed.parent = l->parent;
		same += l && memcmp(l, &followed, sizeof(*l)) == 0;
	}
	return same == a->n_links && same == b->n_links;
}

static void settle(sd_event *e)
{
	while (sd_event_run(e, 300000) > 0)
		;
}

/* The loop, for about so long. */
static void spin(sd_event *e, usec_t usec)
{
	usec_t until = clock_boottime() + usec, now;

	while ((now = clock_boottime()) < until)
		if (sd_event_run(e, until - now) < 0)
			return;
}

/* What only comes is passed on a few times, and then once a second: pods that start one after the
 * other are no look each. What is lost is passed on at once all the same. */
static void test_stream(sd_event *e, struct counter *c)
{
	usec_t began = clock_boottime();
	unsigned most, before;
	char line[80];

	c->calls = 0;
	for (int i = 0; i < 12; i++) {
		(void) text_format(line, sizeof(line), "rule add to 10.0.1.%d lookup main\n", i);
		batch(line);
		spin(e, 130 * USEC_PER_MSEC);
	}
	most = 4 + 1 + (unsigned) ((clock_boottime() - began) / USEC_PER_SEC);
	ok(c->calls >= 1 && c->calls <= most);
	before = c->calls;
	batch("rule del to 10.0.1.0 lookup main\n");
	spin(e, 300 * USEC_PER_MSEC);
	ok(c->calls > before);
	before = c->calls;
	batch("rule add to 10.0.1.0 lookup main\n");
	settle(e);
	ok(c->calls > before); /* the last of a stream is not kept back for good */
}

static bool same_counts(const struct net *a, const struct net *b)
{
	return a->n_addrs == b->n_addrs && a->n_rules == b->n_rules && a->n_routes == b->n_routes;
}

/* What was followed by messages equals what a fresh look sees. On a loaded machine the kernel may
 * still be at work between the two looks (IPv6 takes a second to be sure of an address): what was
 * missed for good is missing the tenth time too. */
static void compare(sd_event *e, struct netlink *followed)
{
	const struct net *a = NULL, *b = NULL;
	struct netlink *fresh = NULL;

	ok(netlink_new(&fresh, NULL, NULL, NULL) == 0);
	for (int tries = 0; tries < 10; tries++) {
		if (tries > 0)
			settle(e);
		if (netlink_snapshot(followed, 1, USEC_INFINITY, &a) != 0 ||
		    netlink_snapshot(fresh, 1, 0, &b) != 0)
			break;
		if (same_links(a, b) && same_counts(a, b))
			break;
	}
	ok(a && b);
	ok(a && b && same_links(a, b));
	ok(a && b && same_counts(a, b));
	if (a)
		printf("# links %zu addrs %zu rules %zu routes %zu\n", a->n_links, a->n_addrs,
		       a->n_rules, a->n_routes);
	netlink_free(fresh);
}

static int test_changes(void)
{
	_cleanup_(freep) char *many = calloc(1, 65536);
	struct counter c = {0};
	struct netlink *n = NULL;
	const struct net *net = NULL;
	sd_event *e = NULL;
	uint64_t generation;

	ok(many && sd_event_new(&e) >= 0);
	ok(netlink_new(&n, e, count, &c) == 0);
	ok(netlink_snapshot(n, 1, USEC_INFINITY, &net) == 0);
	generation = net->generation;
	ok(netlink_snapshot(n, 1, USEC_INFINITY, &net) == 0 && net->generation == generation);
	settle(e);
	ok(c.calls == 0);

	batch("link add ens5 type veth peer name p5\nlink set ens5 up\nlink set p5 up\n"
	      "address add 10.0.0.5/24 dev ens5\nroute add default via 10.0.0.1\n"
	      "rule add to 10.0.0.9/32 lookup main priority 512\n");
	/* Seen at once, though the loop has not run. */
	ok(netlink_snapshot(n, 1, USEC_INFINITY, &net) == 0 && net_link_by_name(net, "ens5"));
	ok(net_default_route(net, AF_INET, 254) != NULL);
	settle(e);
	ok(c.calls >= 1 && c.calls <= 3);
	compare(e, n);
	ok(net_link_is_up(net_link_by_name(net, "ens5")));

	/* A message each, and far more than the socket holds: the overrun must not lose a link. */
	for (int i = 0; i < 300; i++)
		(void) text_append(many, 65536,
		                   "link add eni%d type veth peer name q%d\nlink set eni%d up\n", i,
		                   i, i);
	c.calls = 0;
	batch(many);
	settle(e);
	ok(c.calls >= 1 && c.calls <= 3); /* hundreds of changes, one look or two */
	compare(e, n);

	test_stream(e, &c);
	c.calls = 0;
	batch("link del ens5\nrule del priority 512\n");
	settle(e);
	ok(c.calls >= 1 && c.calls <= 3);
	ok(netlink_snapshot(n, 1, USEC_INFINITY, &net) == 0 && !net_link_by_name(net, "ens5"));
	compare(e, n);
	netlink_free(n);
	sd_event_unref(e);
	return done();
}

int main(int argc, char *argv[])
{
	if (argc > 1 && strcmp(argv[1], "changes") == 0)
		return test_changes();
	test_link();
	test_routes();
	test_multipath();
	test_rule();
	test_links();
	test_live();
	return done();
}
