/* SPDX-License-Identifier: Apache-2.0 */
#include "../fakecni.h"

#include "../../probes/podnet.c"

#include <net/if_arp.h>

#include "../tap.h"

#define M0 "02:00:00:00:00:05"
#define M1 "02:00:00:00:00:06"

enum { PODS = 1000, NOW_S = 1787220020 };

static struct net_link links[PODS + 4];
static struct net_addr addrs[4];
static struct net_rule rules[2 * PODS + 8];
static struct net_route routes[PODS + 8];

static struct address pod(unsigned i)
{
	return (struct address){AF_INET, {10, 1, (uint8_t) (i >> 8), (uint8_t) i}};
}

static void add_link(struct net *n, int index, const char *name, const char *mac, const char *kind)
{
	struct net_link *l = &links[n->n_links++];

	*l = (struct net_link){.index = index,
	                       .type = ARPHRD_ETHER,
	                       .flags = IFF_UP,
	                       .operstate = 6,
	                       .carrier = true};
	(void) text_format(l->name, sizeof(l->name), "%s", name);
	(void) text_format(l->mac, sizeof(l->mac), "%s", mac);
	(void) text_format(l->kind, sizeof(l->kind), "%s", kind);
	(void) text_format(l->bus, sizeof(l->bus), "%s", kind[0] ? "" : "pci");
}

static void add_default(struct net *n, int oif, uint32_t table, uint32_t metric, uint8_t protocol)
{
	routes[n->n_routes++] = (struct net_route){.family = AF_INET,
	                                           .type = RTN_UNICAST,
	                                           .table = table,
	                                           .priority = metric,
	                                           .protocol = protocol,
	                                           .oif = oif};
}

/* pods of which every second lies on ens6. */
static struct net picture(unsigned pods)
{
	struct net n = {.links = links, .addrs = addrs, .rules = rules, .routes = routes};
	char name[32];

	add_link(&n, 2, "ens5", M0, "");
	add_link(&n, 3, "ens6", M1, "");
	add_default(&n, 2, 254, 512, RTPROT_DHCP);
	add_default(&n, 3, 2, 0, RTPROT_BOOT);
	for (unsigned i = 0; i < pods; i++) {
		(void) text_format(name, sizeof(name), "eni%011x", i);
		add_link(&n, 50 + (int) i, name, "", "veth");
		rules[n.n_rules++] = (struct net_rule){.family = AF_INET,
		                                       .priority = 512,
		                                       .table = 254,
		                                       .dst = pod(pods - i),
		                                       .dst_len = 32};
		if (i % 2)
			rules[n.n_rules++] = (struct net_rule){.family = AF_INET,
			                                       .priority = 1536,
			                                       .table = 2,
			                                       .src = pod(pods - i),
			                                       .src_len = 32};
		routes[n.n_routes++] = (struct net_route){.family = AF_INET,
		                                          .type = RTN_UNICAST,
		                                          .table = 254,
		                                          .oif = 50 + (int) i,
		                                          .dst = pod(pods - i),
		                                          .dst_len = 32};
	}
	return n;
}

/* Of the pods 1 to n, all given their addresses so long ago. */
static void put_checkpoint(unsigned n, unsigned ago_s)
{
	static char text[PODS * 160];
	char address[ADDRESS_TEXT_MAX];
	struct address a;
	size_t len;

	len = text_format(text, sizeof(text), "{\"version\":\"vpc-cni-ipam/1\",\"allocations\":[");
	for (unsigned i = 1; i <= n; i++) {
		a = pod(i);
		len += text_format(
			text + len, sizeof(text) - len,
			"%s{\"networkName\":\"aws-cni\",\"containerID\":\"%u\",\"ipv4\":\"%s\","
			"\"allocationTimestamp\":%u000000000}",
			i > 1 ? "," : "", i, address_format(&a, address), NOW_S - ago_s);
	}
	(void) text_format(text + len, sizeof(text) - len, "]}");
	put_file("var/run/aws-node/ipam.json", text);
}

static struct run *make(const struct net *net)
{
	struct run *r = calloc(1, sizeof(*r));
	struct network *w = &r->node.network;

	r->files = tree_new();
	r->now = 10000 * USEC_PER_SEC;
	r->net = net;
	r->node.ec2 = EC2_YES;
	(void) text_format(r->node.mac, sizeof(r->node.mac), M0);
	(void) text_format(r->node.instance_id, sizeof(r->node.instance_id), "i-0");
	w->known = true;
	w->n_enis = 2;
	w->enis[0] = (struct eni){.mac = M0, .name = "ens5", .managed_by = MANAGED_PRIMARY};
	w->enis[1] = (struct eni){.mac = M1, .name = "ens6", .managed_by = MANAGED_CNI};
	world.uptime = r->now;
	world.realtime = NOW_S * USEC_PER_SEC;
	put_file("proc/sys/net/ipv4/ip_forward", "1\n");
	return r;
}

static void unmake(struct run *r)
{
	tree_free((struct files *) r->files);
	fake_free(r);
	free(r);
}

static size_t faults(struct run *r)
{
	struct words w;
	size_t n = 0;

	ok(cni_run(r, &tested_podnet) == 0 && r->ended);
	for (size_t i = 0; i < r->n_seen; i++) {
		enum code c = tested_podnet.judge(&r->seen[i], &w);

		n += c != CODE_NONE;
		if (c != CODE_NONE)
			printf("# %s\n", w.summary);
	}
	return n;
}

static int64_t number(const struct run *r, const char *aspect, const char *key)
{
	return evidence_number(fake_find(r, aspect, NULL), key, -1);
}

static void later(struct run *r, unsigned seconds)
{
	r->now += seconds * USEC_PER_SEC;
	world.realtime += seconds * USEC_PER_SEC;
}

static void test_sound(void)
{
	struct net net = picture(PODS);
	struct run *r = make(&net);

	put_checkpoint(PODS, 3600);
	ok(faults(r) == 0);
	ok(number(r, "rules", "pod_ips") == PODS && number(r, "checkpoint", "lost") == 0);
	ok(number(r, "forward", "pod_ips") == PODS);
	/* a pod starts: its address is given, its rules are not there yet */
	put_checkpoint(PODS, 5);
	net.n_rules = 0;
	ok(faults(r) == 0);
	unmake(r);

	/* without a checkpoint the kernel's tables are held against each other */
	net = picture(10);
	r = make(&net);
	ok(faults(r) == 0 && number(r, "rules", "pod_ips") == 10 &&
	   !fake_find(r, "checkpoint", NULL));
	net.n_rules -= 2;
	ok(faults(r) == 1 && fake_judge(r, &tested_podnet, "rules") == CODE_PodRulesMissing);
	unmake(r);

	net = picture(0);
	r = make(&net);
	put_file("proc/sys/net/ipv4/ip_forward", "0\n"); /* nobody needs it yet */
	put_checkpoint(0, 0);
	ok(faults(r) == 0 && fake_find(r, "rules", NULL)->outcome == OUTCOME_SKIPPED);
	unmake(r);
}

static void test_rules(void)
{
	static const struct unit networkd = {
		.name = NETWORKD, .active = "active", .active_enter = 7540 * USEC_PER_SEC};
	struct net net = picture(6);
	struct run *r = make(&net);

	put_checkpoint(6, 3600);
	ok(faults(r) == 0);
	world.units = &networkd;
	world.n_units = 1;
	net.n_rules = 3; /* of the first two pods, one of them on ens6 */
	ok(faults(r) == 1);
	ok(fake_judge(r, &tested_podnet, "rules") == CODE_PodRulesMissing);
	ok(number(r, "rules", "missing_512") == 4 && number(r, "rules", "missing_1536") == 0);
	ok(number(r, "rules", "networkd_restarted_s") == 2460);
	/* and it is networkd's doing: a DHCP default route of ens6 in main */
	add_default(&net, 3, 254, 1024, RTPROT_DHCP);
	ok(faults(r) == 2);
	ok(fake_judge(r, &tested_podnet, "networkd") == CODE_NetworkdManagesEni);
	ok(strcmp(fake_find(r, "networkd", NULL)->subject, "ens6") == 0);
	/* nodeadm gave it that ENI: nothing to say against it */
	put_file("etc/eks/nodeadm/udev-net-manager/i-0/ens6", "io.systemd.Network\n");
	ok(faults(r) == 1 && !fake_find(r, "networkd", NULL));
	net.partial = true;
	ok(faults(r) == 0);
	unmake(r);

	/* the route is gone, not the rule */
	net = picture(6);
	r = make(&net);
	put_checkpoint(6, 3600);
	net.n_routes--;
	ok(faults(r) == 1 && number(r, "rules", "missing_routes") == 1);
	unmake(r);
}

/* Which pods are on secondary ENIs, introspection knows. */
static void test_sources(void)
{
	struct net net = picture(6);
	struct run *r = make(&net);
	struct ipamd_view *v = &r->node.ipamd;

	put_checkpoint(6, 3600);
	ok(faults(r) == 0);
	v->n = 2;
	v->enis[0] = (struct ipamd_eni){.primary = true, .table = 254, .assigned = 3};
	v->enis[1] = (struct ipamd_eni){.table = 2, .assigned = 3};
	later(r, 60);
	v->at = r->now;
	ok(faults(r) == 0);
	for (size_t i = 0; i < net.n_rules; i++)
		rules[i].priority = rules[i].priority == 1536 ? 1500 : rules[i].priority;
	net.generation++;
	later(r, 10);
	ok(faults(r) == 0); /* what it said is older than the change */
	later(r, 60);
	v->at = r->now;
	ok(faults(r) == 1 && number(r, "rules", "missing_1536") == 3);
	unmake(r);
}

static void test_lost(void)
{
	struct net net = picture(20);
	struct run *r = make(&net);

	put_checkpoint(4, 3600);
	r->node.ipamd.began = r->now - 180 * USEC_PER_SEC;
	ok(faults(r) == 0); /* pods end so */
	later(r, 29);
	ok(faults(r) == 0);
	later(r, 2);
	ok(faults(r) == 1 && fake_judge(r, &tested_podnet, "checkpoint") == CODE_AllocationsLost);
	ok(number(r, "checkpoint", "lost") == 16);
	put_checkpoint(20, 3600);
	ok(faults(r) == 0);
	put_checkpoint(19, 3600);
	ok(faults(r) == 0); /* the time begins anew */
	put_file("var/run/aws-node/ipam.json", "{\"version\":");
	later(r, 60);
	ok(faults(r) == 0 && !fake_find(r, "checkpoint", NULL));
	unmake(r);
}

static void test_nm(void)
{
	static const struct unit timer = {.name = NM_CLOUD, .active = "active"};
	struct net net = picture(2);
	struct run *r = make(&net);

	rules[net.n_rules++] =
		(struct net_rule){.family = AF_INET, .priority = 30200, .table = 30200};
	ok(faults(r) == 1);
	ok(fake_judge(r, &tested_podnet, "nm-cloud-setup") == CODE_NetworkManagerInterferes);
	net.n_rules--;
	ok(faults(r) == 0);
	put_file("usr/lib/systemd/system/nm-cloud-setup.timer", "");
	world.units = &timer;
	later(r, 60);
	ok(faults(r) == 0); /* it is there and not active */
	world.n_units = 1;
	later(r, 60);
	ok(faults(r) == 1);
	unmake(r);
}

static void test_links(void)
{
	struct net net = picture(3);
	struct run *r = make(&net);

	put_file("usr/lib/systemd/network/99-default.link",
	         "[Match]\nOriginalName=*\n[Link]\nMACAddressPolicy=persistent\n");
	put_file("etc/systemd/network/50-none.link", "[Link]\nMACAddressPolicy=none\n");
	/* the file exists, udev chose another one */
	put_file("run/udev/data/n52", "E:ID_NET_LINK_FILE=/etc/systemd/network/50-none.link\n");
	put_file("sys/class/net/eni00000000002/addr_assign_type", "3\n");
	ok(faults(r) == 0 && number(r, "mac-policy", "links") == 3);
	put_file("run/udev/data/n52",
	         "I:1\nE:ID_NET_LINK_FILE=/usr/lib/systemd/network/99-default.link\n");
	later(r, 10);
	ok(faults(r) == 0); /* looked at once a minute */
	later(r, 60);
	ok(faults(r) == 1 &&
	   fake_judge(r, &tested_podnet, "mac-policy") == CODE_MacPolicyPersistent);
	put_file("sys/class/net/eni00000000002/addr_assign_type", "1\n");
	later(r, 60);
	ok(faults(r) == 0); /* chosen, and not acted upon */
	unmake(r);
}

static void test_host(void)
{
	struct net net = picture(2);
	struct run *r = make(&net);

	put_file("proc/sys/net/ipv4/ip_forward", "0\n");
	ok(faults(r) == 1 && fake_judge(r, &tested_podnet, "forward") == CODE_IpForwardDisabled);
	drop_file("proc/sys/net/ipv4/ip_forward");
	ok(faults(r) == 0);

	/* several cards, each with its own metric, as nodeadm writes them */
	add_default(&net, 3, 254, 612, RTPROT_STATIC);
	ok(faults(r) == 0 && number(r, "default-routes", "default_routes") == 2);
	routes[net.n_routes - 1].priority = 512;
	ok(faults(r) == 1 &&
	   fake_judge(r, &tested_podnet, "default-routes") == CODE_EniRouteConflict);
	routes[net.n_routes - 1].priority = 100;
	ok(faults(r) == 1 && number(r, "default-routes", "ties") == 1);
	net.n_routes--;
	addrs[net.n_addrs++] = (struct net_addr){.index = 3, .address = pod(77)};
	ok(faults(r) == 0);
	r->node.private_ip = pod(77);
	ok(faults(r) == 1);
	addrs[0].index = 2;
	ok(faults(r) == 0);

	r->node.cni.known = r->node.cni.ipv6 = true;
	ok(faults(r) == 1 && fake_judge(r, &tested_podnet, "ipv6") == CODE_Ipv6AddressMissing);
	addrs[net.n_addrs++] = (struct net_addr){
		.index = 2, .address = {AF_INET6, {0x20, 1}}, .scope = RT_SCOPE_UNIVERSE};
	ok(faults(r) == 0);
	unmake(r);
}

int main(void)
{
	test_sound();
	test_rules();
	test_sources();
	test_lost();
	test_nm();
	test_links();
	test_host();
	return done();
}
