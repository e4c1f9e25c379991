/* SPDX-License-Identifier: Apache-2.0 */
/* Processor time of a whole rtnetlink pass over the pods of this network namespace; what is there
 * is made by netlink-pods.sh. Prints one line: links, rules, routes, microseconds a pass. */

#include <sys/resource.h>

#include "netlink.h"

static uint64_t spent_us(void)
{
	struct rusage u;

	(void) getrusage(RUSAGE_SELF, &u);
	return (uint64_t) (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
	       (uint64_t) (u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

int main(int argc, char *argv[])
{
	unsigned passes = argc > 1 ? (unsigned) strtoul(argv[1], NULL, 10) : 20;
	const struct net *net = NULL;
	struct netlink *n = NULL;
	uint64_t before;
	int r;

	r = netlink_new(&n, NULL, NULL, NULL);
	if (r == 0)
		r = netlink_snapshot(n, 0, 0, &net); /* the arrays grow once */
	before = spent_us();
	for (unsigned i = 0; i < passes && r == 0; i++)
		r = netlink_snapshot(n, 0, 0, &net);
	if (r < 0) {
		(void) fprintf(stderr, "netlink: %s\n", strerror(-r));
		netlink_free(n);
		return 1;
	}
	printf("links=%zu rules=%zu routes=%zu partial=%d us_per_pass=%llu\n", net->n_links,
	       net->n_rules, net->n_routes, net->partial,
	       (unsigned long long) ((spent_us() - before) / (passes ? passes : 1)));
	netlink_free(n);
	return 0;
}
