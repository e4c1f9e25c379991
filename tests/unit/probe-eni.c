/* SPDX-License-Identifier: Apache-2.0 */
#include "../fakerun.h"

#include "../../probes/eni.c"

#include "../tap.h"

#define M0 "02:00:00:00:00:05"
#define M1 "02:00:00:00:00:06"
#define M2 "02:00:00:00:00:07"

static const struct fake_answer three[] = {
	{"", 200, M0 "/\n" M1 "/\n" M2 "/\n"},
	{M0 "/interface-id", 200, "eni-000"},
	{M0 "/device-number", 200, "0"},
	{M0 "/subnet-id", 200, "subnet-a"},
	{M0 "/local-ipv4s", 200, "10.0.1.5\n10.0.1.6\n10.0.1.7\n"},
	{M1 "/interface-id", 200, "eni-111"},
	{M1 "/device-number", 200, "1"},
	{M1 "/subnet-id", 200, "subnet-a"},
	{M1 "/local-ipv4s", 200, "10.0.1.9"},
	{M1 "/ipv4-prefix", 200, "10.0.2.0/28\n10.0.2.16/28"},
	/* EFA-only, on the second card */
	{M2 "/interface-id", 200, "eni-222"},
	{M2 "/device-number", 200, "1"},
	{M2 "/network-card-index", 200, "1"},
	{M2 "/subnet-id", 200, "subnet-b"},
	{NULL, 0, NULL},
};

static struct net_link links[] = {
	{.index = 1, .name = "lo", .type = ARPHRD_LOOPBACK, .flags = IFF_LOOPBACK | IFF_UP},
	{.index = 8, .name = "vlan.eth.1", .mac = M1, .kind = "vlan", .type = ARPHRD_ETHER},
	{.index = 2,
         .name = "ens5",
         .mac = M0,
         .bus = "pci",
         .type = ARPHRD_ETHER,
         .flags = IFF_UP,
         .operstate = 6,
         .carrier = true},
	{.index = 3,
         .name = "ens6",
         .mac = M1,
         .bus = "pci",
         .type = ARPHRD_ETHER,
         .flags = IFF_UP,
         .operstate = 6,
         .carrier = true},
};

enum { PODS = 1000 };
static struct net_rule rules[2 * PODS + 8];
static struct net_route routes[PODS + 4];

static struct address pod(unsigned i)
{
	return (struct address){AF_INET, {10, 1, (uint8_t) (i >> 8), (uint8_t) i}};
}

/* pods of which every second lies on ens6, as the VPC CNI makes them. */
static struct net picture(unsigned pods)
{
	struct net n = {
		.links = links, .n_links = ELEMENTS(links), .rules = rules, .routes = routes};

	routes[n.n_routes++] = (struct net_route){.family = AF_INET,
	                                          .type = RTN_UNICAST,
	                                          .table = 254,
	                                          .oif = 2,
	                                          .protocol = RTPROT_DHCP};
	routes[n.n_routes++] =
		(struct net_route){.family = AF_INET, .type = RTN_UNICAST, .table = 2, .oif = 3};
	rules[n.n_rules++] = (struct net_rule){.family = AF_INET, .priority = 32765, .table = 2};
	for (unsigned i = 0; i < pods; i++) {
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

static struct run *make(const struct net *net)
{
	struct run *r = calloc(1, sizeof(*r));

	r->now = 1000 * USEC_PER_SEC;
	r->budget = 1000;
	r->answers = three;
	r->net = net;
	r->node.metadata_answers = true;
	r->node.ec2 = EC2_YES;
	(void) text_format(r->node.mac, sizeof(r->node.mac), M0);
	return r;
}

static void unmake(struct run *r)
{
	fake_free(r);
	free(r);
}

/* A name may hold any byte: what is not text would make the whole report impossible. */
static void test_names(void)
{
	struct net net = picture(0);
	struct net_link odd[ELEMENTS(links)];
	struct run *r = make(&net);
	const char *name = r->node.network.enis[0].name;

	memcpy(odd, links, sizeof(odd));
	for (size_t i = 0; i < ELEMENTS(odd); i++)
		if (strcmp(odd[i].name, "ens5") == 0)
			(void) strcpy(odd[i].name, "e\033\xff");
	net.links = odd;
	ok(fake_run(r, &tested_eni) == 0 && r->node.network.n_enis == 3);
	ok(strcmp(name, "e\\x1b\\xff") == 0 && text_is_clean(name, strlen(name)));
	unmake(r);
}

static void test_table(void)
{
	const struct net net = picture(PODS);
	struct run *r = make(&net);
	const struct network *n = &r->node.network;

	ok(fake_run(r, &tested_eni) == 0 && r->ended);
	ok(r->most_in_flight == 4);
	ok(n->known && n->enis_complete && n->n_enis == 3 && n->enis_attached == 3);
	ok(strcmp(n->enis[0].name, "ens5") == 0 && strcmp(n->enis[0].eni_id, "eni-000") == 0);
	ok(n->enis[0].managed_by == MANAGED_PRIMARY && n->enis[0].ips_assigned == 2);
	ok(strcmp(n->enis[1].name, "ens6") == 0 && n->enis[1].device == 1 && n->enis[1].card == 0);
	ok(n->enis[1].managed_by == MANAGED_CNI && n->enis[1].ips_assigned == 32 &&
	   n->enis[1].prefixes == 2);
	ok(n->enis[1].ipv4.bytes[3] == 9 && n->enis[1].up && n->enis[1].carrier);
	ok(n->enis[2].card == 1 && !n->enis[2].in_kernel && n->enis[2].in_metadata);
	ok(n->ips_assigned == 34 && n->prefix_mode && !n->ipv6);
	ok(n->pod_ips_in_use == PODS && n->enis[0].pod_ips == PODS / 2 &&
	   n->enis[1].pod_ips == PODS / 2 && n->enis[2].pod_ips == 0);
	ok(fake_judge(r, &tested_eni, "link") == CODE_NONE); /* EFA-only has no link */
	ok(evidence_number(fake_find(r, "", ""), "pod_ips", -1) == PODS);

	/* Nothing is asked again while it is fresh, and only what moves after a minute. */
	r->now += 5 * USEC_PER_SEC;
	ok(fake_run(r, &tested_eni) == 0 && r->asked == 0 && n->enis_complete);
	r->now += 60 * USEC_PER_SEC;
	ok(fake_run(r, &tested_eni) == 0 && r->asked == 1 + 3 + 3 + 1);
	unmake(r);
}

static void test_budget(void)
{
	const struct net net = picture(10);
	struct run *r = make(&net);
	const struct network *n = &r->node.network;

	r->budget = 6;
	ok(fake_run(r, &tested_eni) == 0 && r->ended);
	ok(n->known && !n->enis_complete && n->n_enis == 3 && n->ips_assigned == -1);
	r->now += 5 * USEC_PER_SEC;
	r->budget = 100;
	ok(fake_run(r, &tested_eni) == 0 && n->enis_complete && n->ips_assigned == 34);
	ok(r->asked <= 20); /* what was answered is not asked again */
	unmake(r);
}

static void test_silent(void)
{
	struct net net = picture(10);
	struct run *r = make(&net);
	const struct network *n = &r->node.network;

	r->answers = NULL;
	r->node.mac[0] = 0;
	ok(fake_run(r, &tested_eni) == 0 && r->ended && r->asked == 1);
	ok(n->known && !n->enis_complete && n->n_enis == 2 && n->enis_attached == 2);
	ok(n->ips_assigned == -1 && n->pod_ips_in_use == 10);
	ok(n->enis[0].managed_by == MANAGED_PRIMARY && n->enis[0].pod_ips == 5);
	ok(fake_find(r, "", "")->outcome == OUTCOME_OK);
	/* Not even asked while the imds probe knows it to be silent. */
	r->node.metadata_answers = false;
	ok(fake_run(r, &tested_eni) == 0 && r->asked == 0);
	r->net_error = -EPERM;
	ok(fake_run(r, &tested_eni) == -EPERM);
	unmake(r);
}

static void test_missing_link(void)
{
	const struct net whole = picture(4);
	struct net less = whole;
	struct run *r = make(&whole);

	ok(fake_run(r, &tested_eni) == 0);
	/* ens6 is gone, and its vlan with it */
	r->net = &less;
	less.links = (const struct net_link[]){links[0], links[2]};
	less.n_links = 2;
	r->now += USEC_PER_SEC;
	ok(fake_run(r, &tested_eni) == 0);
	ok(fake_find(r, "link", "eni-111")->outcome == OUTCOME_UNKNOWN); /* it may be detached */
	ok(!r->node.network.enis[1].in_kernel);
	r->now += 15 * USEC_PER_SEC;
	ok(fake_run(r, &tested_eni) == 0);
	ok(fake_judge(r, &tested_eni, "link") == CODE_EniLinkMissing);
	r->net = &whole;
	ok(fake_run(r, &tested_eni) == 0 && fake_find(r, "link", "eni-111")->outcome == OUTCOME_OK);
	ok(fake_run(r, &tested_eni) == 0 && !fake_find(r, "link", NULL));
	unmake(r);

	r = make(&less);
	r->once = true;
	ok(fake_run(r, &tested_eni) == 0);
	ok(fake_judge(r, &tested_eni, "link") == CODE_EniLinkMissing); /* a check has no later */
	unmake(r);
}

static void test_managers(void)
{
	struct net net = picture(0);
	struct run *r = make(&net);
	const struct network *n = &r->node.network;

	net.n_rules = 0;
	routes[1].table = 10001;
	routes[1].protocol = RTPROT_DHCP;
	ok(fake_run(r, &tested_eni) == 0 && n->enis[1].managed_by == MANAGED_NETWORKD);
	net.n_routes = 1;
	ok(fake_run(r, &tested_eni) == 0 && n->enis[1].managed_by == MANAGED_NOBODY);
	ok(n->enis[2].managed_by == MANAGED_UNKNOWN && n->pod_ips_in_use == 0);
	unmake(r);
}

/* What ipamd lists, beside the kernel and metadata. */
static void test_ipamd(void)
{
	struct net net = picture(0);
	struct run *r = make(&net);
	struct ipamd_view *v = &r->node.ipamd;

	/* nobody has set ens6 up */
	net.n_rules = 0;
	net.n_routes = 1;
	v->n = 1;
	v->at = r->now;
	(void) text_format(v->enis[0].id, sizeof(v->enis[0].id), "eni-000");
	ok(fake_run(r, &tested_eni) == 0);
	ok(fake_find(r, "foreign", "ens6")->outcome == OUTCOME_UNKNOWN); /* not noticed yet */
	r->now += 200 * USEC_PER_SEC;
	v->at = r->now;
	ok(fake_run(r, &tested_eni) == 0);
	ok(fake_judge(r, &tested_eni, "foreign") == CODE_EniForeign);
	/* now it lists it: the wait begins anew */
	v->n = 2;
	v->enis[1] = (struct ipamd_eni){.device = 1, .table = 2};
	(void) text_format(v->enis[1].id, sizeof(v->enis[1].id), "eni-111");
	ok(fake_run(r, &tested_eni) == 0 && !fake_find(r, "foreign", NULL));
	ok(fake_judge(r, &tested_eni, "setup") == CODE_NONE);
	r->now += 61 * USEC_PER_SEC;
	ok(fake_run(r, &tested_eni) == 0);
	ok(fake_judge(r, &tested_eni, "setup") == CODE_EniUnconfigured);
	ok(fake_find(r, "setup", "ens6") != NULL);
	r->now += 130 * USEC_PER_SEC; /* ipamd is silent: nothing is known */
	ok(fake_run(r, &tested_eni) == 0 && !fake_find(r, "setup", NULL));
	v->at = r->now;
	v->enis[1].assigned = 2;
	ok(fake_run(r, &tested_eni) == 0);
	ok(fake_judge(r, &tested_eni, "setup") == CODE_EniUnconfigured); /* pods use it */
	v->enis[1].efa = true;
	ok(fake_run(r, &tested_eni) == 0 && !fake_find(r, "setup", NULL));

	/* an ENI that only ipamd still has */
	v->n = 3;
	v->enis[2] = (struct ipamd_eni){.device = 2, .assigned = 5};
	(void) text_format(v->enis[2].id, sizeof(v->enis[2].id), "eni-999");
	ok(fake_run(r, &tested_eni) == 0);
	ok(fake_find(r, "gone", "eni-999")->outcome == OUTCOME_UNKNOWN);
	r->now += 15 * USEC_PER_SEC;
	ok(fake_run(r, &tested_eni) == 0);
	ok(fake_find(r, "gone", "eni-999")->outcome == OUTCOME_UNKNOWN); /* it said so before */
	v->at = r->now;
	ok(fake_run(r, &tested_eni) == 0);
	ok(fake_judge(r, &tested_eni, "gone") == CODE_EniGone);
	v->enis[2].assigned = 0;
	ok(fake_run(r, &tested_eni) == 0 && !fake_find(r, "gone", NULL));
	unmake(r);
}

/* Sixty-four ENIs, in the shape of the largest types, an hour long: never above the budget. */
static void test_many(void)
{
	static struct fake_answer answers[ENIS_MAX * 4 + 2];
	static char text[ENIS_MAX * 5][64], list[ENIS_MAX * 20];
	const struct net net = picture(0);
	unsigned asked[720] = {0}, most = 0;
	size_t n = 0, t = 0;
	struct run *r = make(&net);

	for (unsigned i = 0; i < ENIS_MAX; i++) {
		(void) text_append(list, sizeof(list), "02:00:00:00:01:%02x/\n", i);
		(void) text_format(text[t], 64, "02:00:00:00:01:%02x/interface-id", i);
		(void) text_format(text[t + 1], 64, "eni-%03x", i);
		answers[n++] = (struct fake_answer){text[t], 200, text[t + 1]};
		(void) text_format(text[t + 2], 64, "02:00:00:00:01:%02x/network-card", i);
		(void) text_format(text[t + 3], 64, "%u", i / 2);
		answers[n++] = (struct fake_answer){text[t + 2], 200, text[t + 3]};
		t += 4;
	}
	answers[n++] = (struct fake_answer){"", 200, list};
	r->answers = answers;
	r->budget = 10000;
	for (unsigned s = 0; s < 3600; s += 5) {
		(void) fake_run(r, &tested_eni);
		r->now += 5 * USEC_PER_SEC;
		asked[s / 5] = r->asked;
	}
	for (size_t i = 0; i + 12 <= ELEMENTS(asked); i++) {
		unsigned sum = 0;

		for (size_t k = i; k < i + 12; k++)
			sum += asked[k];
		most = sum > most ? sum : most;
	}
	ok(most > 0 && most <= 60);
	printf("# at most %u requests in any minute\n", most);
	ok(r->node.network.n_enis == ENIS_MAX && r->node.network.enis_complete);
	ok(r->node.network.enis[63].card == 31);
	unmake(r);

	r = make(&net);
	r->answers = answers;
	r->budget = 10000;
	r->once = true;
	ok(fake_run(r, &tested_eni) == 0 && r->node.network.n_enis == ENIS_MAX);
	ok(r->node.network.enis[63].card == 31 && r->node.network.enis_complete);
	unmake(r);
}

static void test_bad_answers(void)
{
	static const char *const lists[] = {"",
	                                    "\n\n",
	                                    "<html>",
	                                    "02:00:00:00:00:0/",
	                                    "02:00:00:00:00:05/\nnonsense",
	                                    "02:00:00:00:00:0G/"};
	const struct net net = picture(3);

	for (size_t i = 0; i < ELEMENTS(lists); i++) {
		const struct fake_answer answers[] = {{"", 200, lists[i]}, {NULL, 0, NULL}};
		struct run *r = make(&net);

		r->answers = answers;
		ok(fake_run(r, &tested_eni) == 0 && r->ended && r->node.network.known);
		ok(!r->node.network.enis_complete && r->node.network.pod_ips_in_use == 3);
		unmake(r);
	}
}

int main(void)
{
	test_names();
	test_table();
	test_budget();
	test_silent();
	test_missing_link();
	test_managers();
	test_ipamd();
	test_many();
	test_bad_answers();
	return done();
}
