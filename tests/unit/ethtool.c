/* SPDX-License-Identifier: Apache-2.0 */
/* A driver's counters, of a veth in a network namespace of this test's own. */
#include "ethtool.h"
#include "../netns.h"
#include "../tap.h"

static unsigned n_seen;
static uint64_t peer;

static void see(const char *name, uint64_t value, void *userdata)
{
	n_seen++;
	if (strcmp(name, "peer_ifindex") == 0)
		peer = value;
	if (!name[0] || strlen(name) > 32)
		ok(!"a name");
}

int main(void)
{
	int r = netns_enter();

	if (r < 0) {
		printf("1..0 # SKIP no network namespace here: %s\n", strerror(-r));
		return 0;
	}
	ok(ethtool_read("lo", see, NULL) == -EOPNOTSUPP && n_seen == 0);
	ok(ethtool_read("nosuch0", see, NULL) == -ENODEV);
	ok(ethtool_read("", see, NULL) == -EINVAL);
	ok(ethtool_read("a-name-that-is-too-long", see, NULL) == -EINVAL);
	if (system("ip link add va type veth peer name vb") != 0) {
		puts("# no veth here");
		return done();
	}
	ok(ethtool_read("va", see, NULL) == 0);
	ok(n_seen > 0 && peer == if_nametoindex("vb"));
	return done();
}
