/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* rtnetlink: one snapshot of links, addresses, rules and routes, and a wake-up when any changes. */

#include <net/if.h>
#include <systemd/sd-event.h>

#include "address.h"
#include "observation.h"

struct netlink;

enum { MAC_TEXT_MAX = 18, KIND_MAX = 16, BUS_MAX = 16 };

struct net_link {
	int index;
	char name[IFNAMSIZ];
	char mac[MAC_TEXT_MAX];      /* lower case, colons; "" when the link has none */
	char perm_mac[MAC_TEXT_MAX]; /* IFLA_PERM_ADDRESS, or "" */
	char kind[KIND_MAX];         /* IFLA_INFO_KIND: "veth", "vlan", "bridge"; "" for hardware */
	char bus[BUS_MAX];           /* IFLA_PARENT_DEV_BUS_NAME: "pci", "vif"; "" when unknown */
	uint16_t type;               /* ARPHRD_* */
	uint32_t flags;              /* IFF_* */
	uint32_t mtu;
	uint8_t operstate; /* IF_OPER_* */
	bool carrier;
	int parent; /* IFLA_LINK, or 0 */
	int master; /* IFLA_MASTER, or 0 */
};

struct net_addr {
	int index;
	struct address address;
	uint8_t prefix_len, scope; /* RT_SCOPE_* */
	uint32_t flags;            /* IFA_F_* */
};

struct net_rule {
	uint8_t family, action, protocol; /* AF_*, FR_ACT_*, RTPROT_* */
	uint32_t priority, table;
	struct address src, dst; /* family 0: any */
	uint8_t src_len, dst_len;
	uint32_t mark;
	char iif[IFNAMSIZ];
};

struct net_route {
	uint8_t family, type, scope, protocol; /* AF_*, RTN_*, RT_SCOPE_*, RTPROT_* */
	uint8_t dst_len;
	uint32_t table, priority;
	struct address dst, gateway; /* family 0: any, none */
	int oif;                     /* 0: none; of the first hop when there are several */
};

/* Owned by the instrument; valid until the next netlink_snapshot() or the return to the event loop.
 */
struct net {
	const struct net_link *links;
	const struct net_addr *addrs;
	const struct net_rule *rules;
	const struct net_route *routes;
	size_t n_links, n_addrs, n_rules, n_routes;
	uint64_t generation; /* rises with every change that was taken over */
	bool partial;        /* a dump was interrupted or overran three times in a row */
};

/* Called from the loop when a multicast message said that something changed (many at once are one
 * call). The next netlink_snapshot() dumps again. */
typedef void (*netlink_changed_t)(void *userdata);

/* event may be NULL: then there is no multicast and every snapshot is a new dump. */
int netlink_new(struct netlink **ret, sd_event *event, netlink_changed_t changed, void *userdata);
struct netlink *netlink_free(struct netlink *n);
/* The last dump while nothing changed and it is younger than max_age (now is CLOCK_BOOTTIME), else
 * a new one. A negative errno when the kernel does not let us look. */
int netlink_snapshot(struct netlink *n, usec_t now, usec_t max_age, const struct net **ret);

/* Helpers over a snapshot; pure. */
const struct net_link *net_link_by_mac(const struct net *n, const char *mac); /* hardware first */
const struct net_link *net_link_by_index(const struct net *n, int index);
const struct net_link *net_link_by_name(const struct net *n, const char *name);
/* A network card of this machine by its looks: Ethernet, and either hardware or a veth that is
 * named as hardware is (eth0, ens5), which is what some virtual machines and containers are given.
 */
bool net_link_is_nic(const struct net_link *l);
/* True when the link is up and its operational state lets packets pass. */
bool net_link_is_up(const struct net_link *l);
/* The default route of a family in a table with the lowest priority, or NULL. */
const struct net_route *net_default_route(const struct net *n, int family, uint32_t table);
/* The longest-prefix route of a table that holds a, or NULL. Rules are not walked. */
const struct net_route *net_route_to(const struct net *n, const struct address *a, uint32_t table);

/* Parses one netlink message buffer of a dump into the builder below; exposed for the fuzzer. */
struct net_builder;
int net_builder_parse(struct net_builder *b, const void *buf, size_t len);
struct net_builder *net_builder_new(void);
struct net_builder *net_builder_free(struct net_builder *b);
void net_builder_view(const struct net_builder *b, struct net *ret);
