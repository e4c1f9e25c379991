/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "probe.h"

#define PARTIAL "the kernel's tables changed while they were read"

/* A change is told at once, so that an old look is as good as a new one; now and then, to be sure.
 */
#define MAX_AGE (60 * USEC_PER_SEC)

/* Who was primary, for when metadata and the default route are gone. */
struct memory {
	char mac[MAC_TEXT_MAX], name[IFNAMSIZ];
	bool had_ipv4;
};

static const struct net_addr *find_address(const struct net *net, int index, int family)
{
	for (size_t i = 0; i < net->n_addrs; i++) {
		const struct net_addr *a = &net->addrs[i];

		if (a->index == index && a->address.family == family &&
		    a->scope == RT_SCOPE_UNIVERSE && !address_is_link_local(&a->address))
			return a;
	}
	return NULL;
}

static bool has_address(const struct net *net, int index, const struct address *address)
{
	for (size_t i = 0; i < net->n_addrs; i++)
		if (net->addrs[i].index == index && address_equal(&net->addrs[i].address, address))
			return true;
	return false;
}

/* What is not there may only have been missed. */
static enum outcome missing(const struct net *net)
{
	return net->partial ? OUTCOME_UNKNOWN : OUTCOME_ABSENT;
}

/* ---- lo ---- */

static void look_at_loopback(struct run *r, const struct net *net)
{
	static const struct address local = {AF_INET, {127, 0, 0, 1}};
	const struct net_link *lo = net_link_by_name(net, "lo");
	bool up = lo && (lo->flags & IFF_UP), address = lo && has_address(net, lo->index, &local);
	enum outcome outcome = up && address ? OUTCOME_OK
	                       : lo && !up   ? OUTCOME_FAILED
	                                     : missing(net);
	struct observation *o = run_observe(r, LAYER_HOST, "loopback", "lo", outcome, 0);

	observation_number(o, "present", lo != NULL);
	observation_number(o, "up", up);
	observation_number(o, "address", address);
	observation_detail(o, "%s",
	                   outcome == OUTCOME_OK ? "up with 127.0.0.1"
	                   : net->partial        ? PARTIAL
	                   : !lo                 ? "there is no lo"
	                   : !up                 ? "lo is down"
	                                         : "lo has no 127.0.0.1");
}

/* ---- which link is primary ---- */

static const struct net_route *default_route(const struct net *net)
{
	const struct net_route *t = net_default_route(net, AF_INET, RT_TABLE_MAIN);

	return t ? t : net_default_route(net, AF_INET6, RT_TABLE_MAIN);
}

/* The lowest index: the kernel met the primary ENI first. Hardware goes before what only looks so.
 */
static const struct net_link *first_nic(const struct net *net)
{
	const struct net_link *best = NULL;

	for (size_t i = 0; i < net->n_links; i++) {
		const struct net_link *l = &net->links[i];
		bool better;

		if (!net_link_is_nic(l))
			continue;
		better = best && !l->kind[0] == !best->kind[0] ? l->index < best->index
		                                               : !l->kind[0];
		if (!best || better)
			best = l;
	}
	return best;
}

struct primary {
	const struct net_link *link; /* NULL: not there */
	const char *name;            /* what to call it then; "" when nothing is known */
	const char *decided_by;
};

static struct primary find_primary(const struct net *net, const struct node *node,
                                   const struct memory *m)
{
	const struct net_route *t = default_route(net);
	const struct net_link *l;

	if (node->mac[0])
		return (struct primary){net_link_by_mac(net, node->mac),
		                        m->name[0] && strcmp(m->mac, node->mac) == 0 ? m->name
		                                                                     : node->mac,
		                        "metadata"};
	if (m->mac[0])
		return (struct primary){net_link_by_mac(net, m->mac), m->name, "earlier"};
	l = t ? net_link_by_index(net, t->oif) : NULL;
	if (l)
		return (struct primary){l, l->name, "default route"};
	l = first_nic(net);
	return (struct primary){l, "", "first card"};
}

/* ---- the primary ENI ---- */

/* A machine that is not EC2 may be built as it likes: nothing there is a fault. */
static enum outcome judge_for(const struct node *node, enum outcome outcome)
{
	return node->ec2 == EC2_NO && outcome != OUTCOME_OK ? OUTCOME_SKIPPED : outcome;
}

static bool look_at_link(struct run *r, const struct net *net, const struct primary *p)
{
	const struct net_link *l = p->link;
	bool good = l && net_link_is_up(l);
	enum outcome outcome = good ? OUTCOME_OK : l ? OUTCOME_FAILED : missing(net);
	struct observation *o;

	outcome = judge_for(run_node(r), outcome);
	o = run_observe(r, LAYER_LINK, "link", l ? l->name : p->name, outcome, 0);
	observation_number(o, "present", l != NULL);
	observation_text(o, "decided_by", "%s", p->decided_by);
	if (l) {
		observation_number(o, "up", (l->flags & IFF_UP) != 0);
		observation_number(o, "carrier", l->carrier);
		observation_number(o, "mtu", l->mtu);
		observation_text(o, "mac", "%s", l->mac);
	}
	observation_detail(o, "%s",
	                   good                         ? "up, with carrier"
	                   : outcome == OUTCOME_SKIPPED ? "not an EC2 instance"
	                   : outcome == OUTCOME_UNKNOWN ? PARTIAL
	                   : !l                         ? "there is no such link"
	                   : !(l->flags & IFF_UP)       ? "the link is down"
	                                                : "the link has no carrier");
	return good;
}

/* An address of IPv4, unless nothing says that this node ever had one: a subnet may be IPv6 only.
 */
static bool wants_ipv4(const struct node *node, const struct memory *m)
{
	return m->had_ipv4 || node->private_ip.family == AF_INET;
}

static void look_at_address(struct run *r, const struct net *net, const struct net_link *l,
                            bool link_good)
{
	struct memory *m = run_memory(r);
	const struct net_addr *v4 = find_address(net, l->index, AF_INET);
	const struct net_addr *v6 = find_address(net, l->index, AF_INET6);
	const struct net_addr *a = v4 || wants_ipv4(run_node(r), m) ? v4 : v6;
	char text[ADDRESS_TEXT_MAX] = "";
	enum outcome outcome;
	struct observation *o;

	m->had_ipv4 = m->had_ipv4 || v4;
	/* Without its link there is nothing to say about the address. */
	outcome = a ? OUTCOME_OK : link_good ? missing(net) : OUTCOME_SKIPPED;
	outcome = judge_for(run_node(r), outcome);
	o = run_observe(r, LAYER_LINK, "address", l->name, outcome, 0);
	if (a) {
		observation_text(o, "address", "%s", address_format(&a->address, text));
		observation_number(o, "prefix_len", a->prefix_len);
		observation_detail(o, "%s/%u", text, a->prefix_len);
		return;
	}
	observation_text(o, "family", "%s", wants_ipv4(run_node(r), m) ? "IPv4" : "any");
	observation_number(o, "ipv6", v6 != NULL);
	observation_detail(o, "%s",
	                   !link_good     ? "its link is down"
	                   : net->partial ? PARTIAL
	                   : v6           ? "no global IPv4 address, IPv6 only"
	                                  : "no global address");
}

/* ---- routes ---- */

static const char *link_name(const struct net *net, int index)
{
	const struct net_link *l = index ? net_link_by_index(net, index) : NULL;

	return l ? l->name : "";
}

static void look_at_default(struct run *r, const struct net *net)
{
	const struct net_route *v4 = net_default_route(net, AF_INET, RT_TABLE_MAIN);
	const struct net_route *v6 = net_default_route(net, AF_INET6, RT_TABLE_MAIN);
	bool ipv4 = wants_ipv4(run_node(r), run_memory(r));
	const struct net_route *t = v4 || ipv4 ? v4 : v6;
	enum outcome outcome = judge_for(run_node(r), t ? OUTCOME_OK : missing(net));
	struct observation *o = run_observe(r, LAYER_ROUTE, "default", "", outcome, 0);
	char via[ADDRESS_TEXT_MAX] = "";

	observation_text(o, "family", "%s", t == v6 && t ? "IPv6" : ipv4 || v4 ? "IPv4" : "any");
	if (!t) {
		observation_detail(o, "%s",
		                   net->partial                 ? PARTIAL
		                   : outcome == OUTCOME_SKIPPED ? "not an EC2 instance"
		                                                : "no default route in table main");
		return;
	}
	observation_text(o, "via", "%s", address_format(&t->gateway, via));
	observation_text(o, "dev", "%s", link_name(net, t->oif));
	observation_number(o, "metric", t->priority);
	observation_detail(o, "via %s dev %s", via[0] ? via : "link", link_name(net, t->oif));
}

static const char *route_type(const struct net_route *t)
{
	if (!t)
		return "none";
	switch (t->type) {
	case RTN_BLACKHOLE:
		return "blackhole";
	case RTN_UNREACHABLE:
		return "unreachable";
	case RTN_PROHIBIT:
		return "prohibit";
	default:
		return "unicast";
	}
}

/* Only what the table says; that nothing gets through is for the imds probe to find. */
static void look_at_metadata_route(struct run *r, const struct net *net)
{
	static const struct address metadata = {AF_INET, {169, 254, 169, 254}};
	const struct net_route *t = net_route_to(net, &metadata, RT_TABLE_MAIN);
	bool unicast = t && t->type == RTN_UNICAST;
	struct observation *o = run_observe(r, LAYER_ROUTE, "metadata-route", "169.254.169.254",
	                                    unicast                      ? OUTCOME_OK
	                                    : run_node(r)->ec2 == EC2_NO ? OUTCOME_SKIPPED
	                                                                 : OUTCOME_UNKNOWN,
	                                    0);
	char via[ADDRESS_TEXT_MAX] = "";

	observation_text(o, "route", "%s", route_type(t));
	if (!unicast) {
		observation_detail(o, "route: %s", route_type(t));
		return;
	}
	observation_text(o, "dev", "%s", link_name(net, t->oif));
	observation_text(o, "via", "%s", address_format(&t->gateway, via));
	observation_detail(o, "dev %s%s%s", link_name(net, t->oif), via[0] ? " via " : "", via);
}

static int start(struct run *r)
{
	struct memory *m = run_memory(r);
	const struct net *net = NULL;
	struct primary p;
	bool good;
	int e;

	e = run_net(r, MAX_AGE, &net);
	if (e < 0)
		return e;
	look_at_loopback(r, net);
	p = find_primary(net, run_node(r), m);
	good = look_at_link(r, net, &p);
	if (p.link)
		look_at_address(r, net, p.link, good);
	/* Only what looked sound, or what metadata says, is worth remembering. */
	if (p.link && (good || run_node(r)->mac[0])) {
		(void) text_format(m->mac, sizeof(m->mac), "%s", p.link->mac);
		(void) text_format(m->name, sizeof(m->name), "%s", p.link->name);
	}
	look_at_default(r, net);
	look_at_metadata_route(r, net);
	run_end(r);
	return 0;
}

/* ---- what it means ---- */

static enum code judge_loopback(const struct observation *o, struct words *ret)
{
	(void) text_format(ret->summary, sizeof(ret->summary), "%s",
	                   !evidence_number(o, "present", 0) ? "there is no loopback interface lo"
	                   : !evidence_number(o, "up", 0)    ? "lo is down"
	                                                     : "lo has no address 127.0.0.1");
	return CODE_LoopbackDown;
}

static enum code judge_link(const struct observation *o, struct words *ret)
{
	const char *name = o->subject[0] ? o->subject : "(no network card)";

	if (!evidence_number(o, "present", 0))
		(void) text_format(ret->summary, sizeof(ret->summary),
		                   "primary interface %s is not there", name);
	else
		(void) text_format(ret->summary, sizeof(ret->summary), "primary interface %s %s",
		                   name,
		                   evidence_number(o, "up", 0) ? "has no carrier" : "is down");
	return CODE_PrimaryInterfaceDown;
}

static enum code judge_address(const struct observation *o, struct words *ret)
{
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "primary interface %s is up without %s", o->subject,
	                   evidence_number(o, "ipv6", 0)
	                           ? "an IPv4 address (it has an IPv6 one): no DHCP lease"
	                           : "a global address: no DHCP lease");
	return CODE_PrimaryAddressMissing;
}

static enum code judge_default(const struct observation *o, struct words *ret)
{
	const char *family = evidence_get_text(o, "family");

	(void) text_format(
		ret->summary, sizeof(ret->summary),
		"no default route%s%s in table main: nothing beyond the subnet is reached",
		strcmp(family, "any") != 0 ? " for " : "",
		strcmp(family, "any") != 0 ? family : "");
	return CODE_DefaultRouteMissing;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	static const struct {
		const char *aspect;
		enum code (*judge)(const struct observation *o, struct words *ret);
	} judges[] = {
		{"loopback", judge_loopback},
		{"link", judge_link},
		{"address", judge_address},
		{"default", judge_default},
	};

	if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	    o->outcome == OUTCOME_UNKNOWN)
		return CODE_NONE;
	for (size_t i = 0; i < ELEMENTS(judges); i++)
		if (strcmp(o->aspect, judges[i].aspect) == 0)
			return judges[i].judge(o, ret);
	return CODE_NONE;
}

const struct probe probe_link = {
	.name = "link",
	.what = "loopback, the primary ENI's link and address, the default and the metadata route",
	.layer = LAYER_LINK,
	.every = 15 * USEC_PER_SEC,
	.failing = 5 * USEC_PER_SEC,
	.retry = USEC_PER_SEC,
	.timeout = 2 * USEC_PER_SEC,
	.memory_size = sizeof(struct memory),
	.on_net = true,
	.grace = 60 * USEC_PER_SEC, /* networkd and DHCP are still at it */
	.start = start,
	.judge = judge,
	.codes = {CODE_LoopbackDown, CODE_PrimaryInterfaceDown, CODE_PrimaryAddressMissing,
                  CODE_DefaultRouteMissing},
};
