/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The kernel's established TCP connections to one address, by NETLINK_SOCK_DIAG: whether what they
 * send is acknowledged. Of the current network namespace; needs no privilege. */

#include "address.h"

enum { SOCKETS_MAX = 64 };

struct tcp_socket {
	struct address local;
	uint16_t local_port;
	uint64_t cookie;      /* of this very connection, whatever its ports are used for later */
	uint32_t uid;         /* who opened it */
	uint64_t cgroup;      /* id of its cgroup2 (the inode of its directory); 0: not known */
	uint32_t unacked;     /* segments sent and not acknowledged */
	uint32_t retransmits; /* of the oldest of them, in a row: 0 after any progress */
	usec_t last_ack;      /* since an acknowledgement last came */
};

struct tcp_sockets {
	size_t n;
	bool more; /* there were more than SOCKETS_MAX, or the kernel did not come to the end */
	struct tcp_socket sockets[SOCKETS_MAX];
};

/* Asks the kernel and waits for its answer, which is bounded. 0, or -EOPNOTSUPP where the kernel
 * has no tcp_diag, or another negative errno. */
int sockdiag_tcp(const struct address *to, uint16_t port, struct tcp_sockets *ret);

/* Takes in one buffer of the kernel's answer; sockets to another address are left out. 1: more is
 * to come; 0: the end; negative errno: the kernel's error or -EBADMSG. Pure. */
int sockdiag_parse(struct tcp_sockets *to, const void *buffer, size_t len,
                   const struct address *address, uint16_t port);
