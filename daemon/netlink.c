/* SPDX-License-Identifier: Apache-2.0 */
/* Before the kernel's own linux/if.h, which then leaves out what glibc has defined. */
#include <net/if.h>

#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/if.h>
#include <linux/rtnetlink.h>
#include <net/if_arp.h>
#include <sys/socket.h>
#include <time.h>

#include "netlink.h"

/* linux/if_link.h gained these in 5.5 and 5.14; the numbers are the kernel's for ever. */
enum { ATTR_PERM_ADDRESS = 54, ATTR_PARENT_DEV_BUS_NAME = 57 };

enum {
	ATTRS_MAX = 64,
	RECEIVE_SIZE = 32768,   /* the kernel fills at most this much at once */
	RECEIVES_MAX = 1 << 16, /* of one dump: a bound, 2 GiB of messages */
	ENTRIES_MAX = 1 << 20,  /* of one kind */
	MULTICAST_BUFFER = 1 << 20,
	DRAIN_MAX = 1 << 14, /* messages taken at one wake-up */
	TRIES = 3,
};

/* The first change after a quiet time is passed on after SETTLE, as one change is rarely alone;
 * under a stream of them there is one call every HOLD: so soon what is lost is seen. What only
 * comes (pods that start by the hundred) is passed on BURST times, and then once a REFILL. */
#define SETTLE   (50 * USEC_PER_MSEC)
#define HOLD     (120 * USEC_PER_MSEC)
#define REFILL   USEC_PER_SEC
#define ACCURACY (10 * USEC_PER_MSEC)
enum { BURST = 4 };

struct array {
	void *p;
	size_t n, room;
};

struct net_builder {
	struct array links, addrs, rules, routes;
	uint32_t seq; /* 0: take messages of any */
	bool done, interrupted;
	int error; /* the kernel's answer to the request */
};

/* What has to be dumped again. Links are the dearest by far, but their messages say all that a dump
 * does (but for the parent of a veth whose peer is yet to be made): a change is taken over. */
enum { STALE_LINKS = 1, STALE_ADDRS = 2, STALE_RULES = 4, STALE_ROUTES = 8, STALE_ALL = 15 };

struct netlink {
	struct mnl_socket *dump, *multicast;
	struct net_builder *builder;
	char *buffer; /* RECEIVE_SIZE */
	sd_event_source *io, *timer;
	netlink_changed_t changed;
	void *userdata;
	struct net view;
	unsigned stale; /* STALE_*; all of them until the first dump */
	bool moved;     /* messages were taken over since the view was made */
	bool news;      /* changed has not been called for the latest change */
	bool lost;      /* the news is that something is gone */
	unsigned calls; /* of changed that may be made for what has come, at most BURST */
	usec_t filled;  /* when the last of these was granted */
	bool armed;     /* the timer runs: to settle, or since the last call of changed */
	usec_t at;      /* of the last complete dump */
	uint32_t seq;
};

/* ---- the builder: messages in, arrays out; pure ---- */

/* gcc 12's analyzer loses the block once it hangs in an array behind two pointers. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wanalyzer-malloc-leak"
#endif
static int array_grow(struct array *a, size_t size)
{
	size_t room = a->room ? a->room * 2 : 64;
	void *p;

	if (room > ENTRIES_MAX)
		return -ENOMEM;
	p = reallocarray(a->p, room, size);
	if (!p)
		return -ENOMEM;
	a->p = p;
	a->room = room;
	return 0;
}
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

static void *array_add(struct array *a, size_t size)
{
	if (a->n == a->room && array_grow(a, size) < 0)
		return NULL;
	return memset((char *) a->p + size * a->n++, 0, size);
}

struct attrs {
	const struct nlattr *of[ATTRS_MAX];
};

static const void *attr_data(const struct nlattr *a)
{
	return (const char *) a + MNL_ATTR_HDRLEN;
}

static size_t attr_len(const struct nlattr *a)
{
	return (size_t) a->nla_len - MNL_ATTR_HDRLEN;
}

/* As mnl_attr_parse_payload(), but in line: its four calls and a callback for each attribute,
 * 60,000 of them at 1,000 pods, were the half of our share of a pass. */
static void attrs_read(struct attrs *s, const void *data, size_t len)
{
	const char *p = data;

	memset(s, 0, sizeof(*s));
	while (len >= sizeof(struct nlattr)) {
		const struct nlattr *a = (const void *) p;
		size_t size = a->nla_len, step = MNL_ALIGN(size);
		unsigned type = a->nla_type & NLA_TYPE_MASK;

		if (size < MNL_ATTR_HDRLEN || size > len)
			return;
		if (type < ATTRS_MAX)
			s->of[type] = a;
		if (step >= len)
			return;
		p += step;
		len -= step;
	}
}

/* The attributes of a message that was found to hold its header of that size. */
static void attrs_of(struct attrs *s, const struct nlmsghdr *m, size_t header)
{
	size_t skip = MNL_ALIGN(header), len = mnl_nlmsg_get_payload_len(m);

	attrs_read(s, (const char *) mnl_nlmsg_get_payload(m) + skip, len > skip ? len - skip : 0);
}

static uint32_t attr_u32(const struct attrs *s, unsigned type, uint32_t fallback)
{
	const struct nlattr *a = s->of[type];
	uint32_t v = fallback;

	if (a && attr_len(a) >= sizeof(v))
		memcpy(&v, attr_data(a), sizeof(v));
	return v;
}

static uint8_t attr_u8(const struct attrs *s, unsigned type, uint8_t fallback)
{
	const struct nlattr *a = s->of[type];

	return a && attr_len(a) >= 1 ? *(const uint8_t *) attr_data(a) : fallback;
}

static void attr_text(const struct nlattr *a, char *ret, size_t size)
{
	const char *text = a ? attr_data(a) : "";
	size_t n = a ? strnlen(text, attr_len(a)) : 0;

	if (n >= size)
		n = size - 1;
	memcpy(ret, text, n);
	ret[n] = 0;
}

/* By hand: a thousand calls of snprintf() would be a tenth of the whole budget. */
static void attr_mac(const struct nlattr *a, char ret[static MAC_TEXT_MAX])
{
	static const char hex[] = "0123456789abcdef";
	const uint8_t *p;

	ret[0] = 0;
	if (!a || attr_len(a) != 6)
		return;
	p = attr_data(a);
	for (size_t i = 0; i < 6; i++) {
		ret[3 * i] = hex[p[i] >> 4];
		ret[3 * i + 1] = hex[p[i] & 15];
		ret[3 * i + 2] = ':';
	}
	ret[MAC_TEXT_MAX - 1] = 0;
}

static size_t family_width(int family)
{
	return family == AF_INET ? 4 : family == AF_INET6 ? 16 : 0;
}

static void bytes_address(const void *p, size_t len, int family, struct address *ret)
{
	size_t width = family_width(family);

	*ret = (struct address){0};
	if (width == 0 || len < width)
		return;
	ret->family = (uint8_t) family;
	memcpy(ret->bytes, p, width);
}

static void attr_address(const struct nlattr *a, int family, struct address *ret)
{
	*ret = (struct address){0};
	if (a)
		bytes_address(attr_data(a), attr_len(a), family, ret);
}

static void read_link(struct net_link *l, const struct nlmsghdr *m)
{
	const struct ifinfomsg *h = mnl_nlmsg_get_payload(m);
	struct attrs s, info = {0};

	attrs_of(&s, m, sizeof(*h));
	if (s.of[IFLA_LINKINFO])
		attrs_read(&info, attr_data(s.of[IFLA_LINKINFO]), attr_len(s.of[IFLA_LINKINFO]));
	l->index = h->ifi_index;
	l->type = h->ifi_type;
	l->flags = h->ifi_flags;
	attr_text(s.of[IFLA_IFNAME], l->name, sizeof(l->name));
	attr_mac(s.of[IFLA_ADDRESS], l->mac);
	attr_mac(s.of[ATTR_PERM_ADDRESS], l->perm_mac);
	attr_text(info.of[IFLA_INFO_KIND], l->kind, sizeof(l->kind));
	attr_text(s.of[ATTR_PARENT_DEV_BUS_NAME], l->bus, sizeof(l->bus));
	l->mtu = attr_u32(&s, IFLA_MTU, 0);
	l->operstate = attr_u8(&s, IFLA_OPERSTATE, IF_OPER_UNKNOWN);
	l->carrier = attr_u8(&s, IFLA_CARRIER, (h->ifi_flags & IFF_LOWER_UP) != 0);
	l->parent = (int) attr_u32(&s, IFLA_LINK, 0);
	l->master = (int) attr_u32(&s, IFLA_MASTER, 0);
}

static int add_link(struct net_builder *b, const struct nlmsghdr *m)
{
	struct net_link *l;

	if (mnl_nlmsg_get_payload_len(m) < sizeof(struct ifinfomsg))
		return -EBADMSG;
	l = array_add(&b->links, sizeof(*l));
	if (!l)
		return -ENOMEM;
	read_link(l, m);
	return 0;
}

static int add_addr(struct net_builder *b, const struct nlmsghdr *m)
{
	const struct ifaddrmsg *h = mnl_nlmsg_get_payload(m);
	struct net_addr *a;
	struct attrs s;

	if (mnl_nlmsg_get_payload_len(m) < sizeof(*h))
		return -EBADMSG;
	if (family_width(h->ifa_family) == 0)
		return 0;
	a = array_add(&b->addrs, sizeof(*a));
	if (!a)
		return -ENOMEM;
	attrs_of(&s, m, sizeof(*h));
	a->index = (int) h->ifa_index;
	a->prefix_len = h->ifa_prefixlen;
	a->scope = h->ifa_scope;
	a->flags = attr_u32(&s, IFA_FLAGS, h->ifa_flags);
	/* On a point-to-point link IFA_ADDRESS is the peer's. */
	attr_address(s.of[IFA_LOCAL] ? s.of[IFA_LOCAL] : s.of[IFA_ADDRESS], h->ifa_family,
	             &a->address);
	return 0;
}

static int add_rule(struct net_builder *b, const struct nlmsghdr *m)
{
	const struct fib_rule_hdr *h = mnl_nlmsg_get_payload(m);
	struct net_rule *u;
	struct attrs s;

	if (mnl_nlmsg_get_payload_len(m) < sizeof(*h))
		return -EBADMSG;
	if (family_width(h->family) == 0)
		return 0;
	u = array_add(&b->rules, sizeof(*u));
	if (!u)
		return -ENOMEM;
	attrs_of(&s, m, sizeof(*h));
	u->family = h->family;
	u->action = h->action;
	u->protocol = attr_u8(&s, FRA_PROTOCOL, RTPROT_UNSPEC);
	u->priority = attr_u32(&s, FRA_PRIORITY, 0);
	u->table = attr_u32(&s, FRA_TABLE, h->table);
	u->mark = attr_u32(&s, FRA_FWMARK, 0);
	u->src_len = h->src_len;
	u->dst_len = h->dst_len;
	attr_address(s.of[FRA_SRC], h->family, &u->src);
	attr_address(s.of[FRA_DST], h->family, &u->dst);
	attr_text(s.of[FRA_IIFNAME], u->iif, sizeof(u->iif));
	return 0;
}

static bool is_wanted_route(const struct rtmsg *h, uint32_t table)
{
	if (family_width(h->rtm_family) == 0 || (h->rtm_flags & RTM_F_CLONED) ||
	    table == RT_TABLE_LOCAL)
		return false;
	return h->rtm_type == RTN_UNICAST || h->rtm_type == RTN_BLACKHOLE ||
	       h->rtm_type == RTN_UNREACHABLE || h->rtm_type == RTN_PROHIBIT;
}

/* A gateway of the other family (RFC 5549) comes as a family and its bytes. */
static void via_address(const struct nlattr *a, struct address *ret)
{
	const struct rtvia *v = attr_data(a);
	size_t len = attr_len(a);

	if (len >= sizeof(*v))
		bytes_address(v->rtvia_addr, len - sizeof(*v), v->rtvia_family, ret);
}

static void first_hop(const struct nlattr *multipath, struct net_route *t)
{
	const struct rtnexthop *h = attr_data(multipath);
	size_t len = attr_len(multipath);
	struct attrs s;

	if (len < sizeof(*h) || h->rtnh_len < sizeof(*h) || h->rtnh_len > len)
		return;
	t->oif = h->rtnh_ifindex;
	attrs_read(&s, h + 1, h->rtnh_len - sizeof(*h));
	attr_address(s.of[RTA_GATEWAY], t->family, &t->gateway);
	if (s.of[RTA_VIA])
		via_address(s.of[RTA_VIA], &t->gateway);
}

static int add_route(struct net_builder *b, const struct nlmsghdr *m)
{
	const struct rtmsg *h = mnl_nlmsg_get_payload(m);
	struct net_route *t;
	struct attrs s;
	uint32_t table;

	if (mnl_nlmsg_get_payload_len(m) < sizeof(*h))
		return -EBADMSG;
	attrs_of(&s, m, sizeof(*h));
	table = attr_u32(&s, RTA_TABLE, h->rtm_table);
	if (!is_wanted_route(h, table))
		return 0;
	t = array_add(&b->routes, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->family = h->rtm_family;
	t->type = h->rtm_type;
	t->scope = h->rtm_scope;
	t->protocol = h->rtm_protocol;
	t->dst_len = h->rtm_dst_len;
	t->table = table;
	t->priority = attr_u32(&s, RTA_PRIORITY, 0);
	t->oif = (int) attr_u32(&s, RTA_OIF, 0);
	attr_address(s.of[RTA_DST], h->rtm_family, &t->dst);
	attr_address(s.of[RTA_GATEWAY], h->rtm_family, &t->gateway);
	if (s.of[RTA_VIA])
		via_address(s.of[RTA_VIA], &t->gateway);
	if (s.of[RTA_MULTIPATH])
		first_hop(s.of[RTA_MULTIPATH], t);
	return 0;
}

static int take_error(struct net_builder *b, const struct nlmsghdr *m)
{
	const struct nlmsgerr *e = mnl_nlmsg_get_payload(m);

	if (mnl_nlmsg_get_payload_len(m) < sizeof(*e))
		return -EBADMSG;
	b->done = true;
	b->error = e->error > 0 || e->error < -4095 ? -EBADMSG : e->error;
	return 0;
}

static int take_done(struct net_builder *b, const struct nlmsghdr *m)
{
	int32_t error = 0;

	/* The dump's own result, when it broke off half-way. */
	if (mnl_nlmsg_get_payload_len(m) >= sizeof(error))
		memcpy(&error, mnl_nlmsg_get_payload(m), sizeof(error));
	b->done = true;
	b->error = error > 0 || error < -4095 ? 0 : error;
	return 0;
}

static int take_message(struct net_builder *b, const struct nlmsghdr *m)
{
	if (m->nlmsg_flags & NLM_F_DUMP_INTR)
		b->interrupted = true;
	switch (m->nlmsg_type) {
	case NLMSG_DONE:
		return take_done(b, m);
	case NLMSG_ERROR:
		return take_error(b, m);
	case RTM_NEWLINK:
		return add_link(b, m);
	case RTM_NEWADDR:
		return add_addr(b, m);
	case RTM_NEWRULE:
		return add_rule(b, m);
	case RTM_NEWROUTE:
		return add_route(b, m);
	default:
		return 0;
	}
}

/* libmnl's own mnl_nlmsg_ok() takes a length above INT_MAX for a negative one, and for good; and
 * its attribute walk reaches up to the aligned end. */
static bool is_whole(const struct nlmsghdr *m, int left)
{
	return left >= (int) sizeof(*m) && m->nlmsg_len >= sizeof(*m) &&
	       m->nlmsg_len <= (uint32_t) left && MNL_ALIGN(m->nlmsg_len) <= (uint32_t) left;
}

int net_builder_parse(struct net_builder *b, const void *buf, size_t len)
{
	const struct nlmsghdr *m = buf;
	int left, r;

	if (len > INT32_MAX)
		return -EINVAL;
	left = (int) len;
	/* libmnl's mnl_cb_run() would stop at the first interrupted message, so walk by hand. */
	while (!b->done && is_whole(m, left)) {
		if (b->seq == 0 || m->nlmsg_seq == b->seq) {
			r = take_message(b, m);
			if (r < 0)
				return r;
		}
		m = mnl_nlmsg_next(m, &left);
	}
	return 0;
}

struct net_builder *net_builder_new(void)
{
	return calloc(1, sizeof(struct net_builder));
}

struct net_builder *net_builder_free(struct net_builder *b)
{
	if (b) {
		free(b->links.p);
		free(b->addrs.p);
		free(b->rules.p);
		free(b->routes.p);
	}
	free(b);
	return NULL;
}

void net_builder_view(const struct net_builder *b, struct net *ret)
{
	*ret = (struct net){
		.links = b->links.p,
		.addrs = b->addrs.p,
		.rules = b->rules.p,
		.routes = b->routes.p,
		.n_links = b->links.n,
		.n_addrs = b->addrs.n,
		.n_rules = b->rules.n,
		.n_routes = b->routes.n,
	};
}

/* ---- the dump ---- */

static int open_dump(struct netlink *n)
{
	int on = 1;

	if (n->dump)
		return 0;
	n->dump = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (!n->dump)
		return -errno;
	if (mnl_socket_bind(n->dump, 0, MNL_SOCKET_AUTOPID) < 0)
		return -errno;
	/* Since 4.20 it makes the kernel heed the request's filters; before, they are ignored. */
	(void) setsockopt(mnl_socket_get_fd(n->dump), SOL_NETLINK, NETLINK_GET_STRICT_CHK, &on,
	                  sizeof(on));
	return 0;
}

/* A dump that was broken off would answer into the next one: begin anew. */
static void close_dump(struct netlink *n)
{
	if (n->dump)
		(void) mnl_socket_close(n->dump);
	n->dump = NULL;
}

static int send_request(struct netlink *n, uint16_t type, uint8_t family)
{
	char buf[128] = {0};
	struct nlmsghdr *m = mnl_nlmsg_put_header(buf);
	size_t header = type == RTM_GETLINK   ? sizeof(struct ifinfomsg)
	                : type == RTM_GETADDR ? sizeof(struct ifaddrmsg)
	                : type == RTM_GETRULE ? sizeof(struct fib_rule_hdr)
	                                      : sizeof(struct rtmsg);

	m->nlmsg_type = type;
	m->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	/* 0 would mean any to the builder */
	m->nlmsg_seq = n->builder->seq = ++n->seq ? n->seq : ++n->seq;
	*(uint8_t *) mnl_nlmsg_put_extra_header(m, header) = family; /* first in each of them */
	if (type == RTM_GETLINK)
		mnl_attr_put_u32(m, IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
	return mnl_socket_sendto(n->dump, m, m->nlmsg_len) < 0 ? -errno : 0;
}

static int receive(struct netlink *n)
{
	struct net_builder *b = n->builder;
	int r;

	b->done = b->interrupted = false;
	b->error = 0;
	for (int i = 0; i < RECEIVES_MAX; i++) {
		/* The kernel answers a request, and each read, before the call returns: there is
		 * always something to read until the end, and EAGAIN is an error. */
		ssize_t len = mnl_socket_recvfrom(n->dump, n->buffer, RECEIVE_SIZE);

		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0)
			return -errno;
		r = net_builder_parse(b, n->buffer, (size_t) len);
		if (r < 0)
			return r;
		if (b->done)
			return b->error;
	}
	return -EMSGSIZE;
}

/* What may go well when it is tried again at once. */
static bool is_passing(int r)
{
	return r == -ENOBUFS || r == -EAGAIN || r == -EBUSY || r == -EINTR;
}

static int dump_one(struct netlink *n, uint16_t type, uint8_t family, struct array *array,
                    bool *partial)
{
	size_t mark = array->n;
	int r = 0;

	for (int i = 0; i < TRIES; i++) {
		array->n = mark;
		r = open_dump(n);
		if (r == 0)
			r = send_request(n, type, family);
		if (r == 0)
			r = receive(n);
		if (r < 0)
			close_dump(n);
		if (r == 0 && !n->builder->interrupted)
			return 0;
		if (r < 0 && !is_passing(r))
			return r;
	}
	/* What came is shown, and said not to be all. */
	*partial = true;
	return 0;
}

/* A kernel without IPv6 refuses its rules and routes: then there are none. */
static bool is_refusal(int r)
{
	return r == -EOPNOTSUPP || r == -EAFNOSUPPORT;
}

static int dump_stale(struct netlink *n, bool *partial)
{
	struct net_builder *b = n->builder;
	const struct {
		unsigned kind;
		uint16_t type;
		uint8_t family;
		struct array *array;
	} dumps[] = {
		{STALE_LINKS, RTM_GETLINK, AF_UNSPEC, &b->links},
		{STALE_ADDRS, RTM_GETADDR, AF_UNSPEC, &b->addrs},
		{STALE_RULES, RTM_GETRULE, AF_INET, &b->rules},
		{STALE_RULES, RTM_GETRULE, AF_INET6, &b->rules},
		{STALE_ROUTES, RTM_GETROUTE, AF_INET, &b->routes},
		{STALE_ROUTES, RTM_GETROUTE, AF_INET6, &b->routes},
	};
	int r;

	for (size_t i = 0; i < ELEMENTS(dumps); i++)
		if (n->stale & dumps[i].kind)
			dumps[i].array->n = 0;
	for (size_t i = 0; i < ELEMENTS(dumps); i++) {
		if (!(n->stale & dumps[i].kind))
			continue;
		r = dump_one(n, dumps[i].type, dumps[i].family, dumps[i].array, partial);
		if (r < 0 && !(dumps[i].family == AF_INET6 && is_refusal(r)))
			return r;
	}
	return 0;
}

/* ---- changes ---- */

static struct net_link *find_link(struct array *links, int index)
{
	struct net_link *l = links->p;

	for (size_t i = 0; i < links->n; i++)
		if (l[i].index == index)
			return &l[i];
	return NULL;
}

/* Messages come in order and none is lost unseen, so that what an earlier dump knew already is only
 * said again. A bridge speaks of its ports by the same messages, in its own family. 1: the link is
 * no longer up. */
static int change_link(struct net_builder *b, const struct nlmsghdr *m)
{
	const struct ifinfomsg *h = mnl_nlmsg_get_payload(m);
	struct net_link *l;
	bool up;

	if (mnl_nlmsg_get_payload_len(m) < sizeof(*h))
		return -EBADMSG;
	if (h->ifi_family != AF_UNSPEC)
		return 0;
	l = find_link(&b->links, h->ifi_index);
	if (m->nlmsg_type == RTM_DELLINK) {
		struct net_link *all = b->links.p;

		if (l)
			*l = all[--b->links.n];
		return 0;
	}
	if (!l)
		return add_link(b, m);
	up = net_link_is_up(l);
	memset(l, 0, sizeof(*l));
	read_link(l, m);
	return up && !net_link_is_up(l);
}

static bool is_loss(uint16_t type)
{
	return type == RTM_DELLINK || type == RTM_DELADDR || type == RTM_DELRULE ||
	       type == RTM_DELROUTE;
}

static void take_change(struct netlink *n, const struct nlmsghdr *m)
{
	int r;

	n->lost = n->lost || is_loss(m->nlmsg_type);
	switch (m->nlmsg_type) {
	case RTM_NEWLINK:
	case RTM_DELLINK:
		r = change_link(n->builder, m);
		if (r < 0)
			n->stale |= STALE_LINKS;
		n->lost = n->lost || r > 0;
		break;
	case RTM_NEWADDR:
	case RTM_DELADDR:
		n->stale |= STALE_ADDRS;
		break;
	case RTM_NEWRULE:
	case RTM_DELRULE:
		n->stale |= STALE_RULES;
		break;
	case RTM_NEWROUTE:
	case RTM_DELROUTE:
		n->stale |= STALE_ROUTES;
		break;
	default:
		break;
	}
}

/* Takes what lies in the multicast socket. True when there was anything. */
static bool drain(struct netlink *n)
{
	bool any = false;

	for (int i = 0; i < DRAIN_MAX; i++) {
		ssize_t len = mnl_socket_recvfrom(n->multicast, n->buffer, RECEIVE_SIZE);
		const struct nlmsghdr *m = (const void *) n->buffer;
		int left = (int) len;

		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0 && errno == EAGAIN)
			return any;
		any = n->moved = true;
		if (len < 0) { /* an overrun: some were lost */
			n->stale = STALE_ALL;
			n->lost = true;
			continue;
		}
		for (; is_whole(m, left); m = mnl_nlmsg_next(m, &left))
			take_change(n, m);
	}
	n->stale = STALE_ALL; /* more than it is worth to follow one by one */
	return any;
}

static int arm(struct netlink *n, uint64_t after)
{
	int r;

	r = sd_event_source_set_time_relative(n->timer, after);
	if (r >= 0)
		r = sd_event_source_set_enabled(n->timer, SD_EVENT_ONESHOT);
	n->armed = r >= 0;
	return r;
}

static int note_change(struct netlink *n)
{
	n->news = true;
	return n->armed ? 0 : arm(n, SETTLE);
}

/* While the timer runs the socket is left alone: a burst of changes costs two wake-ups. */
static int on_message(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
	struct netlink *n = userdata;
	int r;

	r = note_change(n);
	return r < 0 ? r : sd_event_source_set_enabled(n->io, SD_EVENT_OFF);
}

static bool may_call(struct netlink *n, usec_t now)
{
	usec_t granted = now > n->filled ? (now - n->filled) / REFILL : 0;

	n->filled = granted + n->calls < BURST ? n->filled + granted * REFILL : now;
	n->calls = granted + n->calls < BURST ? n->calls + (unsigned) granted : BURST;
	if (n->lost)
		return true;
	if (n->calls == 0)
		return false;
	n->calls--;
	return true;
}

static int on_timer(sd_event_source *s, uint64_t now, void *userdata)
{
	struct netlink *n = userdata;
	int r;

	n->armed = false;
	if (drain(n))
		n->news = true;
	if (n->news && !may_call(n, now))
		return arm(n, HOLD);
	r = sd_event_source_set_enabled(n->io, SD_EVENT_ON);
	if (r < 0 || !n->news)
		return r;
	n->news = n->lost = false;
	r = arm(n, HOLD);
	if (r < 0)
		return r;
	n->changed(n->userdata); /* may free n: nothing after it */
	return 0;
}

static int open_multicast(struct netlink *n)
{
	static const unsigned groups[] = {
		RTNLGRP_LINK,       RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_IPV4_ROUTE,
		RTNLGRP_IPV6_ROUTE, RTNLGRP_IPV4_RULE,   RTNLGRP_IPV6_RULE,
	};
	int size = MULTICAST_BUFFER;
	unsigned mask = 0;

	for (size_t i = 0; i < ELEMENTS(groups); i++)
		mask |= 1U << (groups[i] - 1);
	n->multicast = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (!n->multicast)
		return -errno;
	(void) setsockopt(mnl_socket_get_fd(n->multicast), SOL_SOCKET, SO_RCVBUF, &size,
	                  sizeof(size));
	return mnl_socket_bind(n->multicast, mask, MNL_SOCKET_AUTOPID) < 0 ? -errno : 0;
}

static int listen_for_changes(struct netlink *n, sd_event *event)
{
	int r;

	r = open_multicast(n);
	if (r < 0)
		return r;
	r = sd_event_add_io(event, &n->io, mnl_socket_get_fd(n->multicast), EPOLLIN, on_message, n);
	if (r < 0)
		return r;
	r = sd_event_add_time_relative(event, &n->timer, CLOCK_BOOTTIME, SETTLE, ACCURACY, on_timer,
	                               n);
	if (r < 0)
		return r;
	(void) sd_event_source_set_description(n->io, "netlink");
	(void) sd_event_source_set_description(n->timer, "netlink-settle");
	return sd_event_source_set_enabled(n->timer, SD_EVENT_OFF);
}

int netlink_new(struct netlink **ret, sd_event *event, netlink_changed_t changed, void *userdata)
{
	struct netlink *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return -ENOMEM;
	n->changed = changed;
	n->userdata = userdata;
	n->stale = STALE_ALL;
	n->calls = BURST;
	n->builder = net_builder_new();
	n->buffer = malloc(RECEIVE_SIZE);
	r = n->builder && n->buffer ? 0 : -ENOMEM;
	if (r == 0 && event)
		r = listen_for_changes(n, event);
	if (r < 0) {
		netlink_free(n);
		return r;
	}
	*ret = n;
	return 0;
}

struct netlink *netlink_free(struct netlink *n)
{
	if (!n)
		return NULL;
	(void) sd_event_source_disable_unref(n->io);
	(void) sd_event_source_disable_unref(n->timer);
	close_dump(n);
	if (n->multicast)
		(void) mnl_socket_close(n->multicast);
	net_builder_free(n->builder);
	free(n->buffer);
	free(n);
	return NULL;
}

int netlink_snapshot(struct netlink *n, usec_t now, usec_t max_age, const struct net **ret)
{
	uint64_t generation = n->view.generation;
	bool partial = false;
	int r;

	/* A message may lie there that the loop has not come to, or left for the timer. */
	if (n->multicast) {
		r = drain(n) ? note_change(n) : 0;
		if (r < 0)
			return r;
	}
	if (!n->multicast || n->view.partial || now - n->at > max_age)
		n->stale = STALE_ALL;
	if (!n->stale && !n->moved) {
		*ret = &n->view;
		return 0;
	}
	if (n->stale == STALE_ALL)
		n->at = now;
	r = dump_stale(n, &partial);
	if (r < 0) {
		n->stale = STALE_ALL;
		return r;
	}
	n->stale = 0;
	n->moved = false;
	net_builder_view(n->builder, &n->view);
	n->view.generation = generation + 1;
	n->view.partial = partial;
	*ret = &n->view;
	return 0;
}

/* ---- helpers ---- */

/* Links that lie on another one share its MAC and are never the card itself. */
static bool is_stacked(const struct net_link *l)
{
	static const char *const kinds[] = {"vlan",   "macvlan", "macvtap", "ipvlan",
	                                    "bridge", "bond",    "team",    "vrf"};

	for (size_t i = 0; i < ELEMENTS(kinds); i++)
		if (strcmp(l->kind, kinds[i]) == 0)
			return true;
	return false;
}

/* 0: not this MAC; the higher the better. Under a bond the card keeps its own MAC in perm_mac. */
static int mac_rank(const struct net_link *l, const char *mac)
{
	bool hardware = l->kind[0] == 0;

	if (strcmp(l->perm_mac, mac) == 0 && hardware)
		return 4;
	if (strcmp(l->mac, mac) != 0)
		return 0;
	return hardware ? 3 : is_stacked(l) ? 1 : 2;
}

const struct net_link *net_link_by_mac(const struct net *n, const char *mac)
{
	const struct net_link *best = NULL;
	int best_rank = 0;

	if (!mac[0])
		return NULL;
	for (size_t i = 0; i < n->n_links; i++) {
		int rank = mac_rank(&n->links[i], mac);

		if (rank > best_rank) {
			best = &n->links[i];
			best_rank = rank;
		}
	}
	return best;
}

const struct net_link *net_link_by_index(const struct net *n, int index)
{
	for (size_t i = 0; i < n->n_links; i++)
		if (n->links[i].index == index)
			return &n->links[i];
	return NULL;
}

const struct net_link *net_link_by_name(const struct net *n, const char *name)
{
	for (size_t i = 0; i < n->n_links; i++)
		if (strcmp(n->links[i].name, name) == 0)
			return &n->links[i];
	return NULL;
}

bool net_link_is_nic(const struct net_link *l)
{
	static const char *const names[] = {"eth", "eno", "enp", "ens", "enx"};

	if (l->type != ARPHRD_ETHER || (l->flags & IFF_LOOPBACK))
		return false;
	if (l->kind[0] == 0)
		return true;
	if (strcmp(l->kind, "veth") != 0)
		return false;
	for (size_t i = 0; i < ELEMENTS(names); i++)
		if (strncmp(l->name, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

bool net_link_is_up(const struct net_link *l)
{
	if (!(l->flags & IFF_UP))
		return false;
	/* Drivers that do not tell leave it at UNKNOWN; then IFF_RUNNING is the carrier. */
	return l->operstate == IF_OPER_UP ||
	       (l->operstate == IF_OPER_UNKNOWN && (l->flags & IFF_RUNNING));
}

const struct net_route *net_default_route(const struct net *n, int family, uint32_t table)
{
	const struct net_route *best = NULL;

	for (size_t i = 0; i < n->n_routes; i++) {
		const struct net_route *t = &n->routes[i];

		if (t->family == family && t->table == table && t->dst_len == 0 &&
		    t->type == RTN_UNICAST && (!best || t->priority < best->priority))
			best = t;
	}
	return best;
}

const struct net_route *net_route_to(const struct net *n, const struct address *a, uint32_t table)
{
	const struct net_route *best = NULL;

	for (size_t i = 0; i < n->n_routes; i++) {
		const struct net_route *t = &n->routes[i];

		if (t->family != a->family || t->table != table ||
		    (t->dst_len > 0 && !address_in(a, &t->dst, t->dst_len)))
			continue;
		if (!best || t->dst_len > best->dst_len ||
		    (t->dst_len == best->dst_len && t->priority < best->priority))
			best = t;
	}
	return best;
}
