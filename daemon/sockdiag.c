/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "sockdiag.h"

/* linux/inet_diag.h gained it in 5.10; the state is netinet/tcp.h's, which cannot stand beside
 * linux/tcp.h. */
enum { ATTR_CGROUP_ID = 21, ESTABLISHED = 1 };

enum { RECEIVE_SIZE = 16384, RECEIVES_MAX = 64 };

static size_t address_size(const struct address *a)
{
	return a->family == AF_INET6 ? 16 : 4;
}

/* The kernel itself sorts out what is not to this address: a node may have thousands of sockets. */
static void add_filter(struct nlmsghdr *nlh, const struct address *to, uint16_t port)
{
	struct inet_diag_hostcond cond = {
		.family = to->family, .prefix_len = (uint8_t) (address_size(to) * 8), .port = port};
	size_t len = sizeof(struct inet_diag_bc_op) + sizeof(cond) + address_size(to);
	struct inet_diag_bc_op op = {
		.code = INET_DIAG_BC_D_COND, .yes = (uint8_t) len, .no = (uint16_t) (len + 4)};
	uint8_t code[sizeof(op) + sizeof(cond) + 16];

	memcpy(code, &op, sizeof(op));
	memcpy(code + sizeof(op), &cond, sizeof(cond));
	memcpy(code + sizeof(op) + sizeof(cond), to->bytes, address_size(to));
	mnl_attr_put(nlh, INET_DIAG_REQ_BYTECODE, len, code);
}

static struct nlmsghdr *request(char *buffer, const struct address *to, uint16_t port)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buffer);
	struct inet_diag_req_v2 *rq;

	nlh->nlmsg_type = SOCK_DIAG_BY_FAMILY;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	rq = mnl_nlmsg_put_extra_header(nlh, sizeof(*rq));
	rq->sdiag_family = to->family;
	rq->sdiag_protocol = IPPROTO_TCP;
	rq->idiag_ext = 1 << (INET_DIAG_INFO - 1);
	rq->idiag_states = 1 << ESTABLISHED;
	add_filter(nlh, to, port);
	return nlh;
}

/* ---- the answer ---- */

/* The kernel's structure has grown, and will: at its end. */
static void take_info(struct tcp_socket *s, const void *info, size_t len)
{
	struct tcp_info i = {0};

	memcpy(&i, info, len < sizeof(i) ? len : sizeof(i));
	s->retransmits = i.tcpi_retransmits;
	s->unacked = i.tcpi_unacked;
	s->last_ack = i.tcpi_last_ack_recv * USEC_PER_MSEC;
}

static int on_attr(const struct nlattr *a, void *userdata)
{
	struct tcp_socket *s = userdata;
	size_t len = mnl_attr_get_payload_len(a);

	if (mnl_attr_get_type(a) == INET_DIAG_INFO)
		take_info(s, mnl_attr_get_payload(a), len);
	else if (mnl_attr_get_type(a) == ATTR_CGROUP_ID && len == sizeof(s->cgroup))
		memcpy(&s->cgroup, mnl_attr_get_payload(a), len);
	return MNL_CB_OK;
}

static int take_socket(struct tcp_sockets *to, const struct nlmsghdr *nlh,
                       const struct address *address, uint16_t port)
{
	const struct inet_diag_msg *m = mnl_nlmsg_get_payload(nlh);
	struct tcp_socket s = {0};

	if (mnl_nlmsg_get_payload_len(nlh) < sizeof(*m))
		return -EBADMSG;
	if (m->idiag_family != address->family || m->idiag_state != ESTABLISHED ||
	    m->id.idiag_dport != htons(port) ||
	    memcmp(m->id.idiag_dst, address->bytes, address_size(address)) != 0)
		return 0;
	if (to->n == SOCKETS_MAX) {
		to->more = true;
		return 0;
	}
	s.local.family = address->family;
	memcpy(s.local.bytes, m->id.idiag_src, address_size(address));
	s.local_port = ntohs(m->id.idiag_sport);
	s.cookie = (uint64_t) m->id.idiag_cookie[1] << 32 | m->id.idiag_cookie[0];
	s.uid = m->idiag_uid;
	if (mnl_attr_parse(nlh, sizeof(*m), on_attr, &s) < 0)
		return -EBADMSG;
	to->sockets[to->n++] = s;
	return 0;
}

static int error_of(const struct nlmsghdr *nlh)
{
	const struct nlmsgerr *e = mnl_nlmsg_get_payload(nlh);

	if (mnl_nlmsg_get_payload_len(nlh) < sizeof(e->error) || e->error >= 0)
		return -EBADMSG;
	/* without tcp_diag there is nobody to ask */
	return e->error == -ENOENT ? -EOPNOTSUPP : e->error;
}

/* As in netlink.c: mnl_nlmsg_ok() takes a length above INT_MAX for good. */
static bool is_whole(const struct nlmsghdr *m, int left)
{
	return left >= (int) sizeof(*m) && m->nlmsg_len >= sizeof(*m) &&
	       m->nlmsg_len <= (uint32_t) left && MNL_ALIGN(m->nlmsg_len) <= (uint32_t) left;
}

int sockdiag_parse(struct tcp_sockets *to, const void *buffer, size_t len,
                   const struct address *address, uint16_t port)
{
	const struct nlmsghdr *nlh = buffer;
	int left = len > INT32_MAX ? 0 : (int) len, r;

	for (; is_whole(nlh, left); nlh = mnl_nlmsg_next(nlh, &left)) {
		if (nlh->nlmsg_flags & NLM_F_DUMP_INTR)
			to->more = true;
		if (nlh->nlmsg_type == NLMSG_DONE)
			return 0;
		if (nlh->nlmsg_type == NLMSG_ERROR)
			return error_of(nlh);
		if (nlh->nlmsg_type != SOCK_DIAG_BY_FAMILY)
			continue;
		r = take_socket(to, nlh, address, port);
		if (r < 0)
			return r;
	}
	return left > 0 ? -EBADMSG : 1;
}

static void socket_closep(struct mnl_socket **s)
{
	if (*s)
		(void) mnl_socket_close(*s);
}

/* A dump that is asked for is answered while we ask: the timeout is a safety net alone. */
static int open_socket(struct mnl_socket **ret)
{
	static const struct timeval patience = {.tv_usec = 100000};
	_cleanup_(socket_closep) struct mnl_socket *s =
		mnl_socket_open2(NETLINK_SOCK_DIAG, SOCK_CLOEXEC);

	if (!s)
		return errno == EPROTONOSUPPORT ? -EOPNOTSUPP : -errno;
	if (mnl_socket_bind(s, 0, MNL_SOCKET_AUTOPID) < 0 ||
	    setsockopt(mnl_socket_get_fd(s), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) <
	            0)
		return -errno;
	*ret = TAKE(s);
	return 0;
}

static int dump(struct mnl_socket *s, const struct address *to, uint16_t port, char *buffer,
                struct tcp_sockets *ret)
{
	struct nlmsghdr *nlh = request(buffer, to, port);
	int r = 1;

	if (mnl_socket_sendto(s, nlh, nlh->nlmsg_len) < 0)
		return -errno;
	for (size_t i = 0; i < RECEIVES_MAX && r > 0; i++) {
		ssize_t n = mnl_socket_recvfrom(s, buffer, RECEIVE_SIZE);

		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		r = sockdiag_parse(ret, buffer, (size_t) n, to, port);
	}
	if (r > 0)
		ret->more = true;
	return r < 0 ? r : 0;
}

int sockdiag_tcp(const struct address *to, uint16_t port, struct tcp_sockets *ret)
{
	_cleanup_(freep) char *buffer = NULL;
	struct tcp_sockets found = {0};
	_cleanup_(socket_closep) struct mnl_socket *s = NULL;
	int r;

	if (to->family != AF_INET && to->family != AF_INET6)
		return -EAFNOSUPPORT;
	buffer = malloc(RECEIVE_SIZE);
	if (!buffer)
		return -ENOMEM;
	r = open_socket(&s);
	if (r < 0)
		return r;
	r = dump(s, to, port, buffer, &found);
	if (r == 0)
		*ret = found;
	return r;
}
