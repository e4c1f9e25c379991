/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "ethtool.h"

/* ENA has some 30 a queue and at most 128 queues. */
enum { COUNTERS_MAX = 8192 };

static int ask(int fd, const char *interface, void *command)
{
	struct ifreq q = {0};

	memcpy(q.ifr_name, interface, strlen(interface) + 1);
	q.ifr_data = command;
	return ioctl(fd, SIOCETHTOOL, &q) < 0 ? -errno : 0;
}

static int count(int fd, const char *interface, uint32_t *ret)
{
	union {
		struct ethtool_sset_info info;
		uint8_t room[sizeof(struct ethtool_sset_info) + sizeof(uint32_t)];
	} c = {.info = {.cmd = ETHTOOL_GSSET_INFO, .sset_mask = UINT64_C(1) << ETH_SS_STATS}};
	int r;

	r = ask(fd, interface, &c);
	if (r < 0)
		return r;
	memcpy(ret, c.room + sizeof(c.info), sizeof(*ret));
	if (c.info.sset_mask == 0 || *ret == 0)
		return -EOPNOTSUPP;
	return *ret > COUNTERS_MAX ? -E2BIG : 0;
}

int ethtool_read(const char *interface, ethtool_counter_t each, void *userdata)
{
	_cleanup_(closep) int fd = -1;
	_cleanup_(freep) struct ethtool_gstrings *names = NULL;
	_cleanup_(freep) struct ethtool_stats *values = NULL;
	char name[ETH_GSTRING_LEN + 1];
	uint32_t n;
	int r;

	if (!interface[0] || strlen(interface) >= IFNAMSIZ)
		return -EINVAL;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	r = count(fd, interface, &n);
	if (r < 0)
		return r;
	names = calloc(1, sizeof(*names) + (size_t) n * ETH_GSTRING_LEN);
	values = calloc(1, sizeof(*values) + (size_t) n * sizeof(uint64_t));
	if (!names || !values)
		return -ENOMEM;
	*names = (struct ethtool_gstrings){
		.cmd = ETHTOOL_GSTRINGS, .string_set = ETH_SS_STATS, .len = n};
	*values = (struct ethtool_stats){.cmd = ETHTOOL_GSTATS, .n_stats = n};
	r = ask(fd, interface, names);
	if (r == 0)
		r = ask(fd, interface, values);
	if (r < 0)
		return r;
	/* queues came or went in between: of the next look */
	if (names->len != n || values->n_stats != n)
		return -EAGAIN;
	for (uint32_t i = 0; i < n; i++) {
		memcpy(name, names->data + (size_t) i * ETH_GSTRING_LEN, ETH_GSTRING_LEN);
		name[ETH_GSTRING_LEN] = 0;
		each(name, values->data[i], userdata);
	}
	return 0;
}
