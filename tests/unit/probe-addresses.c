/* SPDX-License-Identifier: Apache-2.0 */
#define run_timer fake_timer
#include "../fakecni.h"

static unsigned timers, read_after;

static void refuse(struct run *r);

/* It runs out at once; ipamd's log has been read meanwhile, or not. */
int fake_timer(struct run *r, usec_t after, run_timer_t done_cb, uintptr_t tag)
{
	if (++timers == read_after) {
		r->node.cni_log_read = true;
		refuse(r);
	}
	done_cb(r, tag);
	return 0;
}

#include "../../probes/addresses.c"

#include "../tap.h"

/* A node of a type with n ENIs, each with so many addresses for pods, as eni and ipamd leave it. */
static struct run *make(const char *type, int enis, int assigned_each, int in_use)
{
	struct run *r = calloc(1, sizeof(*r));
	struct network *w = &r->node.network;
	struct ipamd_view *v = &r->node.ipamd;

	r->now = 10000 * USEC_PER_SEC;
	r->node.ec2 = EC2_YES;
	(void) text_format(r->node.instance_type, sizeof(r->node.instance_type), "%s", type);
	r->node.cni.known = true;
	w->known = true;
	w->max_pods = 29;
	w->pod_ips_in_use = in_use;
	for (int i = 0; i < enis; i++) {
		struct eni *e = &w->enis[w->n_enis++];

		*e = (struct eni){.device = i, .in_kernel = true, .in_metadata = true};
		e->managed_by = i ? MANAGED_CNI : MANAGED_PRIMARY;
		e->ipv4.family = 2;
		(void) text_format(e->eni_id, sizeof(e->eni_id), "eni-%d", i);
		v->enis[v->n] = (struct ipamd_eni){.device = i, .total = assigned_each};
		(void) text_format(v->enis[v->n++].id, sizeof(v->enis[0].id), "eni-%d", i);
		v->total += assigned_each;
	}
	w->ips_assigned = v->total;
	v->assigned = in_use;
	v->at = v->served_at = r->now;
	v->began = r->now - 3600 * USEC_PER_SEC;
	return r;
}

static void refuse(struct run *r)
{
	r->node.network.pod_refused_at = r->now - 14 * USEC_PER_SEC;
}

static size_t faults(struct run *r)
{
	struct words w;
	size_t n = 0;

	ok(fake_run(r, &tested_addresses) == 0 && r->ended);
	for (size_t i = 0; i < r->n_seen; i++) {
		enum code c = tested_addresses.judge(&r->seen[i], &w);

		n += c != CODE_NONE;
		if (c != CODE_NONE)
			printf("# %s\n", w.summary);
	}
	return n;
}

static void unmake(struct run *r)
{
	fake_free(r);
	free(r);
}

/* Full by design is no fault, in every mode. */
static void test_sound(void)
{
	struct run *r = make("m5.large", 3, 9, 27);

	ok(faults(r) == 0);
	ok(evidence_number(fake_find(r, "", ""), "in_use", 0) == 27 &&
	   evidence_number(fake_find(r, "", ""), "addresses", 0) == 27 &&
	   evidence_number(fake_find(r, "", ""), "enis_max", 0) == 3);
	/* a pod was refused while the next ENI was on its way; or long ago */
	unmake(r);
	r = make("m5.large", 2, 9, 18);
	refuse(r);
	ok(faults(r) == 0);
	unmake(r);
	r = make("m5.large", 3, 9, 27);
	r->node.network.pod_refused_at = r->now - 301 * USEC_PER_SEC;
	ok(faults(r) == 0);
	unmake(r);
	/* maxPods above what the type gives, nobody asks for more */
	r = make("m5.large", 3, 9, 12);
	r->node.network.max_pods = 250;
	refuse(r);
	ok(faults(r) == 0);
	unmake(r);
	/* the subnet gave no more addresses to the last ENI */
	r = make("m5.large", 3, 6, 18);
	refuse(r);
	ok(faults(r) == 0);
	unmake(r);
	r = make("m5.large", 1, 0, 40);
	r->node.cni.ipv6 = r->node.cni.prefix = true;
	refuse(r);
	ok(faults(r) == 0);
	unmake(r);
	/* prefixes on a type that has none: ipamd does without */
	r = make("c4.xlarge", 4, 14, 3);
	r->node.cni.prefix = true;
	ok(faults(r) == 0);
	unmake(r);
	r = make("m5.large", 3, 144, 100);
	r->node.cni.prefix = true;
	r->node.network.max_pods = 110;
	ok(faults(r) == 0 && evidence_number(fake_find(r, "", ""), "addresses", 0) == 432);
	unmake(r);
	r = make("nothing.large", 3, 9, 27);
	ok(faults(r) == 0 && fake_find(r, "", "")->outcome == OUTCOME_UNKNOWN);
	r->node.hybrid = true;
	ok(faults(r) == 0 && fake_find(r, "", "")->outcome == OUTCOME_SKIPPED);
	unmake(r);
}

static void test_type_limit(void)
{
	struct run *r = make("m5.large", 3, 9, 27);

	refuse(r);
	ok(faults(r) == 1);
	ok(fake_judge(r, &tested_addresses, "") == CODE_AddressLimitReached);
	/* it clears by itself */
	r->now += 300 * USEC_PER_SEC;
	r->node.ipamd.at = r->now;
	ok(faults(r) == 0);
	/* introspection is turned off: metadata and the kernel know as much */
	r->node.ipamd = (struct ipamd_view){0};
	refuse(r);
	ok(faults(r) == 1);
	unmake(r);

	/* one of three slots is held by a stranger: another ENI would have helped */
	r = make("m5.large", 3, 9, 18);
	r->node.ipamd.n = 2;
	r->node.ipamd.total = 18;
	refuse(r);
	ok(faults(r) == 1 && fake_judge(r, &tested_addresses, "enis") == CODE_EniLimitReached);
	unmake(r);

	/* with prefixes, every slot of every ENI is a prefix */
	r = make("t3.nano", 2, 16, 32);
	r->node.cni.prefix = true;
	refuse(r);
	ok(faults(r) == 1 && fake_judge(r, &tested_addresses, "") == CODE_AddressLimitReached);
	unmake(r);
}

static void test_max_pods(void)
{
	struct run *r = make("m5.large", 3, 9, 18);

	/* custom networking: the primary ENI carries no pods */
	r->node.cni.custom = true;
	r->node.network.max_pods = 58;
	r->node.ipamd.total = 18;
	r->node.ipamd.enis[0].excluded = true;
	ok(faults(r) == 0);
	refuse(r);
	ok(faults(r) == 2);
	ok(fake_judge(r, &tested_addresses, "max-pods") == CODE_MaxPodsExceedsCapacity);
	ok(evidence_number(fake_find(r, "max-pods", NULL), "capacity", 0) == 20);
	ok(fake_judge(r, &tested_addresses, "") == CODE_AddressLimitReached);
	unmake(r);
}

static void test_cooldown(void)
{
	struct run *r = make("m5.large", 3, 9, 20);

	r->node.ipamd.cooling = 7;
	r->node.network.max_pods = 58;
	refuse(r);
	ok(faults(r) == 1);
	ok(fake_judge(r, &tested_addresses, "cooldown") == CODE_AddressCooldown);
	r->node.ipamd.cooling = 6; /* one is free */
	ok(faults(r) == 0);
	unmake(r);
}

/* A check waits for the log that tells of refused pods, and not for ever. */
static void test_waits(void)
{
	struct run *r = make("m5.large", 3, 9, 27);

	r->once = true;
	read_after = 4;
	ok(fake_run(r, &tested_addresses) == 0 && r->ended && timers == 4);
	ok(fake_judge(r, &tested_addresses, "") == CODE_AddressLimitReached);
	r->node.cni_log_read = false;
	timers = read_after = 0;
	ok(fake_run(r, &tested_addresses) == 0 && r->ended);
	ok(timers == 1500 / 20);
	r->once = false;
	timers = 0;
	ok(fake_run(r, &tested_addresses) == 0 && r->ended && timers == 0);
	unmake(r);
}

static void test_modes(void)
{
	struct run *r = make("c4.xlarge", 4, 14, 3);

	r->node.cni.prefix = true;
	r->node.network.max_pods = 110;
	ok(faults(r) == 1);
	ok(fake_judge(r, &tested_addresses, "mode") == CODE_PrefixModeUnsupported);
	r->node.network.max_pods = 29;
	ok(faults(r) == 0);
	r->node.ipamd.served_at = 0;
	ok(faults(r) == 1);
	r->node.ipamd.served_at = r->now;
	r->node.cni.prefix = false;
	r->node.cni.ipv6 = true;
	ok(faults(r) == 1);
	unmake(r);
}

static void test_trunk(void)
{
	struct run *r = make("m5.large", 2, 9, 12);

	r->node.cni.pod_eni = true;
	ok(faults(r) == 1);
	ok(fake_judge(r, &tested_addresses, "trunk") == CODE_TrunkEniMissing);
	r->node.ipamd.began = r->now - 60 * USEC_PER_SEC; /* it may come yet */
	ok(faults(r) == 0);
	r->node.ipamd.began = r->now - 3600 * USEC_PER_SEC;
	r->node.ipamd.enis[1].trunk = true;
	ok(faults(r) == 0);
	unmake(r);

	/* a type without trunks: felt only when its slot is needed */
	r = make("t3.large", 2, 11, 12);
	r->node.cni.pod_eni = true;
	ok(faults(r) == 0);
	r->node.ipamd.assigned = 22;
	refuse(r);
	r->node.network.max_pods = 35;
	ok(faults(r) == 1); /* one root, not three */
	ok(fake_judge(r, &tested_addresses, "trunk") == CODE_TrunkEniMissing);
	unmake(r);
}

int main(void)
{
	test_sound();
	test_type_limit();
	test_max_pods();
	test_cooldown();
	test_waits();
	test_modes();
	test_trunk();
	return done();
}
