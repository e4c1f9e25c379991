/* SPDX-License-Identifier: Apache-2.0 */
#include "../fakerun.h"

#include "../../probes/link.c"

#include "../tap.h"

#include <linux/if.h>
#include <net/if_arp.h>

#define MAC "02:00:00:00:00:05"

struct world {
	struct net net;
	struct net_link links[4];
	struct net_addr addrs[4];
	struct net_route routes[4];
};

static void point(struct world *w)
{
	w->net.links = w->links;
	w->net.addrs = w->addrs;
	w->net.routes = w->routes;
}

/* A sound node. */
static void reset(struct world *w)
{
	*w = (struct world){
		.links = {{.index = 1,
	                   .name = "lo",
	                   .type = ARPHRD_LOOPBACK,
	                   .flags = IFF_LOOPBACK | IFF_UP | IFF_RUNNING},
	                  {.index = 2,
	                   .name = "ens5",
	                   .mac = MAC,
	                   .type = ARPHRD_ETHER,
	                   .flags = IFF_UP | IFF_RUNNING,
	                   .operstate = IF_OPER_UP,
	                   .carrier = true},
	                  {.index = 3,
	                   .name = "ens6",
	                   .mac = "02:00:00:00:00:06",
	                   .type = ARPHRD_ETHER,
	                   .flags = IFF_UP | IFF_RUNNING,
	                   .operstate = IF_OPER_UP,
	                   .carrier = true}},
		.addrs = {{.index = 1,
	                   .address = {AF_INET, {127, 0, 0, 1}},
	                   .prefix_len = 8,
	                   .scope = RT_SCOPE_HOST},
	                  {.index = 2, .address = {AF_INET, {10, 0, 1, 5}}, .prefix_len = 24},
	                  {.index = 2, .address = {AF_INET6, {0xfd}}, .prefix_len = 128}},
		.routes = {{.family = AF_INET,
	                    .type = RTN_UNICAST,
	                    .table = 254,
	                    .oif = 2,
	                    .priority = 512,
	                    .gateway = {AF_INET, {10, 0, 1, 1}}},
	                   {.family = AF_INET,
	                    .type = RTN_PROHIBIT,
	                    .table = 254,
	                    .dst_len = 32,
	                    .dst = {AF_INET, {169, 254, 169, 254}}}},
	};
	point(w);
	w->net.n_links = 3;
	w->net.n_addrs = 3;
	w->net.n_routes = 1;
}

static bool says(struct run *r, enum code lo, enum code link, enum code address, enum code route)
{
	enum code c[4];

	if (fake_run(r, &tested_link) < 0 || !r->ended)
		return false;
	c[0] = fake_judge(r, &tested_link, "loopback");
	c[1] = fake_judge(r, &tested_link, "link");
	c[2] = fake_judge(r, &tested_link, "address");
	c[3] = fake_judge(r, &tested_link, "default");
	if (c[0] == lo && c[1] == link && c[2] == address && c[3] == route)
		return true;
	printf("# got %d %d %d %d\n", c[0], c[1], c[2], c[3]);
	return false;
}

static void renew(struct run *r)
{
	fake_free(r);
	r->node = (struct node){.ec2 = EC2_YES};
}

static void test_loopback(struct run *r, struct world *w)
{
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE, CODE_NONE));
	ok(strcmp(fake_find(r, "link", NULL)->subject, "ens5") == 0);
	w->links[0].flags &= ~(unsigned) IFF_UP;
	ok(says(r, CODE_LoopbackDown, CODE_NONE, CODE_NONE, CODE_NONE));
	reset(w);
	w->addrs[0].address.bytes[3] = 2;
	ok(says(r, CODE_LoopbackDown, CODE_NONE, CODE_NONE, CODE_NONE));
	reset(w);
	strcpy(w->links[0].name, "l0");
	ok(says(r, CODE_LoopbackDown, CODE_NONE, CODE_NONE, CODE_NONE));
	w->net.partial = true; /* it may only have been missed */
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE, CODE_NONE));
	reset(w);
}

static void test_link(struct run *r, struct world *w)
{
	renew(r);
	w->links[1].operstate = IF_OPER_DOWN;
	w->links[1].carrier = false;
	w->net.n_routes = 0;
	ok(says(r, CODE_NONE, CODE_PrimaryInterfaceDown, CODE_NONE, CODE_DefaultRouteMissing));
	ok(fake_find(r, "address", "ens5")->outcome == OUTCOME_OK); /* it has one, for what it is */
	w->addrs[1].index = w->addrs[2].index = 9;
	ok(says(r, CODE_NONE, CODE_PrimaryInterfaceDown, CODE_NONE, CODE_DefaultRouteMissing));
	ok(fake_find(r, "address", "ens5")->outcome == OUTCOME_SKIPPED);
	reset(w);
	w->links[1].operstate = IF_OPER_UNKNOWN; /* IFF_RUNNING says it then */
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE, CODE_NONE));
	/* Remembered: metadata and the route go with it. */
	w->links[1] = w->links[2];
	w->net.n_links = 2;
	w->net.n_routes = 0;
	ok(says(r, CODE_NONE, CODE_PrimaryInterfaceDown, CODE_NONE, CODE_DefaultRouteMissing));
	ok(strcmp(fake_find(r, "link", NULL)->subject, "ens5") == 0);
	reset(w);
}

static void test_primary(struct run *r, struct world *w)
{
	/* Metadata decides against the default route. */
	renew(r);
	(void) text_format(r->node.mac, sizeof(r->node.mac), "02:00:00:00:00:06");
	ok(says(r, CODE_NONE, CODE_NONE, CODE_PrimaryAddressMissing, CODE_NONE));
	ok(strcmp(fake_find(r, "link", NULL)->subject, "ens6") == 0);
	renew(r);
	(void) text_format(r->node.mac, sizeof(r->node.mac), "02:00:00:00:00:99");
	ok(says(r, CODE_NONE, CODE_PrimaryInterfaceDown, CODE_NONE, CODE_NONE));
	/* Nothing but cards: the first one, and hardware before what only looks so. */
	renew(r);
	w->net.n_routes = 0;
	strcpy(w->links[1].kind, "veth");
	ok(says(r, CODE_NONE, CODE_NONE, CODE_PrimaryAddressMissing, CODE_DefaultRouteMissing));
	ok(strcmp(fake_find(r, "link", NULL)->subject, "ens6") == 0);
	renew(r);
	w->net.n_links = 2;
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE, CODE_DefaultRouteMissing));
	renew(r);
	w->net.n_links = 1;
	ok(says(r, CODE_NONE, CODE_PrimaryInterfaceDown, CODE_NONE, CODE_DefaultRouteMissing));
	reset(w);
}

static void test_families(struct run *r, struct world *w)
{
	renew(r);
	w->addrs[1].index = 9; /* IPv6 alone, and nothing says that there was more */
	w->routes[0].family = AF_INET6;
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE, CODE_NONE));
	r->node.private_ip.family = AF_INET;
	ok(says(r, CODE_NONE, CODE_NONE, CODE_PrimaryAddressMissing, CODE_DefaultRouteMissing));
	reset(w);
	renew(r);
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE, CODE_NONE));
	w->addrs[1].address = (struct address){AF_INET, {169, 254, 7, 7}}; /* no lease was had */
	ok(says(r, CODE_NONE, CODE_NONE, CODE_PrimaryAddressMissing, CODE_NONE));
	reset(w);
}

static void test_elsewhere(struct run *r, struct world *w)
{
	renew(r);
	r->node.ec2 = EC2_NO;
	w->net.n_links = 1;
	w->net.n_routes = 0;
	ok(says(r, CODE_NONE, CODE_NONE, CODE_NONE, CODE_NONE));
	ok(fake_find(r, "link", NULL)->outcome == OUTCOME_SKIPPED);
	ok(fake_find(r, "default", NULL)->outcome == OUTCOME_SKIPPED);
	w->links[0].flags = IFF_LOOPBACK;
	ok(says(r, CODE_LoopbackDown, CODE_NONE, CODE_NONE, CODE_NONE));
	reset(w);
}

static void test_metadata_route(struct run *r, struct world *w)
{
	const struct observation *o;

	renew(r);
	ok(fake_run(r, &tested_link) == 0);
	o = fake_find(r, "metadata-route", NULL);
	ok(o->outcome == OUTCOME_OK && strcmp(evidence_get_text(o, "dev"), "ens5") == 0);
	w->net.n_routes = 2;
	ok(fake_run(r, &tested_link) == 0);
	o = fake_find(r, "metadata-route", NULL);
	ok(o->outcome == OUTCOME_UNKNOWN);
	ok(strcmp(evidence_get_text(o, "route"), "prohibit") == 0);
	ok(fake_judge(r, &tested_link, "metadata-route") == CODE_NONE);
	r->net_error = -EACCES;
	ok(fake_run(r, &tested_link) == -EACCES);
	r->net_error = 0;
}

int main(void)
{
	struct run *r = calloc(1, sizeof(*r));
	struct world *w = calloc(1, sizeof(*w));

	if (!r || !w)
		return 1;
	reset(w);
	r->net = &w->net;
	r->node.ec2 = EC2_YES;
	test_loopback(r, w);
	test_link(r, w);
	test_primary(r, w);
	test_families(r, w);
	test_elsewhere(r, w);
	test_metadata_route(r, w);
	fake_free(r);
	free(r);
	free(w);
	return done();
}
