/* SPDX-License-Identifier: Apache-2.0 */
/* Processor time of a whole rtnetlink pass over the pods of this network namespace, and of the look
 * that follows a change of one rule and one route; what is there is made by netlink-pods.sh. Prints
 * one line. */

#include <errno.h>
#include <sys/resource.h>

#include "netlink.h"

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

int main(int argc, char *argv[])
{
	unsigned passes = argc > 1 ? (unsigned) strtoul(argv[1], NULL, 10) : 20;
	const struct net *net = NULL;
	struct netlink *n = NULL;
	uint64_t before, spent, change = 0;
	int r;

	r = netlink_new(&n, NULL, NULL, NULL);
	if (r == 0)
		r = netlink_snapshot(n, 0, 0, &net); /* the arrays grow once */
	before = spent_us();
	for (unsigned i = 0; i < passes && r == 0; i++)
		r = netlink_snapshot(n, 0, 0, &net);
	spent = (spent_us() - before) / (passes ? passes : 1);
	if (r == 0)
		r = measure_changes(&change);
	if (r < 0) {
		(void) fprintf(stderr, "netlink: %s\n", strerror(-r));
		netlink_free(n);
		return 1;
	}
	printf("links=%zu rules=%zu routes=%zu partial=%d us_per_change=%llu us_per_pass=%llu\n",
	       net->n_links, net->n_rules, net->n_routes, net->partial, (unsigned long long) change,
	       (unsigned long long) spent);
	netlink_free(n);
	return 0;
}
