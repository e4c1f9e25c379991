/* SPDX-License-Identifier: Apache-2.0 */
/* IPv4: the kernel is told to drop what arrives with a TTL of 1 (IP_MINTTL), and counts what it
 * drops. While the counter stands, silence is only a slow service; once it has risen, the hop limit
 * is 1, and the option is lifted so that the far side's retransmission still yields the answer.
 * IPv6: the kernel tells the hop limit of what it received last. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "clock.h"
#include "hop.h"

enum { ANSWER_MAX = 4096, MIN_TTL = 2 };

/* A drop is counted within a millisecond or two of the request; the retransmission comes 200 ms
 * after. */
static const usec_t look_every = 150 * USEC_PER_MSEC;

struct hop_call {
	sd_event_source *io, *timer, *deadline;
	int fd;
	int family;
	uint16_t port;
	struct address server;
	bool sent, relaxed, counter_known;
	uint64_t counter; /* TCPMinTTLDrop before the request */
	usec_t started;
	char answer[ANSWER_MAX];
	size_t len;
	hop_done_t done;
	void *userdata;
	struct hop_reply reply;
};

/* ---- /proc/net/netstat ---- */

static int read_small(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	size_t n = 0;
	ssize_t r = 0;

	if (fd < 0)
		return -errno;
	while (n < size - 1 && (r = read(fd, buf + n, size - 1 - n)) > 0)
		n += (size_t) r;
	if (r < 0)
		r = -errno;
	(void) close(fd);
	buf[n] = 0;
	return r < 0 ? (int) r : 0;
}

/* Two lines belong together, names and numbers, both beginning with "TcpExt:". */
static int find_counter(char *text, const char *name, uint64_t *ret)
{
	char *names = strstr(text, "TcpExt:"), *numbers, *key, *value;

	numbers = names ? strstr(names + 1, "\nTcpExt:") : NULL;
	if (!numbers)
		return -ENOENT;
	*numbers++ = 0;
	numbers[strcspn(numbers, "\n")] = 0;
	while ((key = strsep(&names, " "))) {
		value = strsep(&numbers, " ");
		if (!value)
			return -ENOENT;
		if (strcmp(key, name) == 0)
			return text_to_uint(value, 0, UINT64_MAX, ret);
	}
	return -ENOENT;
}

static int read_counter(uint64_t *ret)
{
	char text[16384];
	int r;

	r = read_small("/proc/self/net/netstat", text, sizeof(text));
	return r < 0 ? r : find_counter(text, "TCPMinTTLDrop", ret);
}

/* ---- the end ---- */

struct hop_call *hop_call_free(struct hop_call *c)
{
	if (!c)
		return NULL;
	sd_event_source_disable_unref(c->io);
	sd_event_source_disable_unref(c->timer);
	sd_event_source_disable_unref(c->deadline);
	if (c->fd >= 0)
		(void) close(c->fd);
	explicit_bzero(c->answer, sizeof(c->answer));
	free(c);
	return NULL;
}

/* Last use of c: the callback may free it. */
static void finish(struct hop_call *c, enum outcome o, int error)
{
	(void) sd_event_source_set_enabled(c->io, SD_EVENT_OFF);
	(void) sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
	(void) sd_event_source_set_enabled(c->deadline, SD_EVENT_OFF);
	explicit_bzero(c->answer, sizeof(c->answer));
	c->reply.outcome = o;
	c->reply.error = error;
	c->reply.took = clock_boottime() - c->started;
	c->done(c, &c->reply, c->userdata);
}

static void finish_errno(struct hop_call *c, int error)
{
	enum outcome o = outcome_from_errno(error);

	finish(c, o == OUTCOME_FAILED ? OUTCOME_UNREACHABLE : o, error);
}

/* ---- IPv4's proof, IPv6's answer ---- */

static bool counter_rose(struct hop_call *c)
{
	uint64_t now;

	return c->counter_known && read_counter(&now) == 0 && now > c->counter;
}

static void relax(struct hop_call *c)
{
	int zero = 0;

	c->relaxed = true;
	(void) setsockopt(c->fd, IPPROTO_IP, IP_MINTTL, &zero, sizeof(zero));
}

static int on_look(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct hop_call *c = userdata;

	if (counter_rose(c)) {
		c->reply.counted = true;
		relax(c);
		return 0;
	}
	/* without a counter silence has to do: what comes after this is taken for a retransmission,
	 * and the reply says that nothing was counted */
	if (!c->counter_known) {
		relax(c);
		return 0;
	}
	(void) sd_event_source_set_time_relative(c->timer, look_every);
	(void) sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
	return 0;
}

static int hop_limit_v6(int fd, int *ret)
{
	char control[256];
	socklen_t len = sizeof(control);
	struct msghdr m = {.msg_control = control};

	if (getsockopt(fd, IPPROTO_IPV6, IPV6_2292PKTOPTIONS, control, &len) < 0)
		return -errno;
	m.msg_controllen = len;
	for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
		if (h->cmsg_level != IPPROTO_IPV6 ||
		    (h->cmsg_type != IPV6_2292HOPLIMIT && h->cmsg_type != IPV6_HOPLIMIT) ||
		    h->cmsg_len < CMSG_LEN(sizeof(*ret)))
			continue;
		memcpy(ret, CMSG_DATA(h), sizeof(*ret));
		return 0;
	}
	return -ENODATA;
}

static int judge_hop(struct hop_call *c)
{
	int r;

	if (c->family == AF_INET6) {
		r = hop_limit_v6(c->fd, &c->reply.hop_limit);
		c->reply.exact = r == 0;
		return r;
	}
	c->reply.hop_limit = c->relaxed ? 1 : MIN_TTL;
	return 0;
}

/* ---- the exchange ---- */

/* The status line is enough: the first segment has the TTL of all. */
static bool has_status(const struct hop_call *c, int *ret)
{
	char digits[4];
	uint64_t status;

	if (c->len < strlen("HTTP/1.1 200"))
		return false;
	memcpy(digits, c->answer + strlen("HTTP/1.1 "), 3);
	digits[3] = 0;
	*ret = strncmp(c->answer, "HTTP/1.", 7) == 0 && text_to_uint(digits, 100, 999, &status) == 0
	               ? (int) status
	               : 0;
	return true;
}

static void receive(struct hop_call *c)
{
	ssize_t n = recv(c->fd, c->answer + c->len, sizeof(c->answer) - c->len, MSG_DONTWAIT);
	int r;

	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			finish_errno(c, errno);
		return;
	}
	c->len += (size_t) n;
	if (!has_status(c, &c->reply.status)) {
		if (n == 0)
			finish(c, OUTCOME_RESET, 0);
		return;
	}
	if (c->reply.status == 0) {
		finish(c, OUTCOME_MALFORMED, 0);
		return;
	}
	r = judge_hop(c);
	finish(c, r < 0 ? OUTCOME_UNKNOWN : OUTCOME_OK, -r);
}

/* After the connect, so that a hop limit which holds for every segment still lets it stand. */
static int ask_for_hop_limit(struct hop_call *c)
{
	int one = 1, min = MIN_TTL, r;

	if (c->family == AF_INET6)
		r = setsockopt(c->fd, IPPROTO_IPV6, IPV6_RECVHOPLIMIT, &one, sizeof(one));
	else
		r = setsockopt(c->fd, IPPROTO_IP, IP_MINTTL, &min, sizeof(min));
	if (r < 0)
		return -errno;
	c->counter_known = c->family == AF_INET && read_counter(&c->counter) == 0;
	return 0;
}

static int send_request(struct hop_call *c)
{
	char request[256], host[ADDRESS_TEXT_MAX];
	int n, r;

	r = ask_for_hop_limit(c);
	if (r < 0)
		return r;
	address_format(&c->server, host);
	n = snprintf(request, sizeof(request),
	             "PUT /latest/api/token HTTP/1.1\r\nHost: %s%s%s:%u\r\nUser-Agent: nodewhy\r\n"
	             "X-aws-ec2-metadata-token-ttl-seconds: 1\r\nContent-Length: 0\r\n"
	             "Connection: close\r\n\r\n",
	             c->family == AF_INET6 ? "[" : "", host, c->family == AF_INET6 ? "]" : "",
	             c->port);
	if (send(c->fd, request, (size_t) n, MSG_NOSIGNAL | MSG_DONTWAIT) != n)
		return errno ? -errno : -EIO;
	c->sent = true;
	r = sd_event_source_set_io_events(c->io, EPOLLIN);
	if (r < 0 || c->family == AF_INET6)
		return r;
	r = sd_event_source_set_time_relative(c->timer, look_every);
	return r < 0 ? r : sd_event_source_set_enabled(c->timer, SD_EVENT_ONESHOT);
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
	struct hop_call *c = userdata;
	socklen_t len = sizeof(int);
	int error = 0, r;

	if (c->sent) {
		receive(c);
		return 0;
	}
	if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
		error = errno;
	r = error ? -error : send_request(c);
	if (r < 0)
		finish_errno(c, -r);
	return 0;
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct hop_call *c = userdata;

	/* request taken, answer dropped, and no retransmission in time: still a proof */
	if (c->sent && counter_rose(c)) {
		c->reply.counted = true;
		c->reply.hop_limit = 1;
		finish(c, OUTCOME_OK, 0);
	} else {
		finish(c, OUTCOME_TIMEOUT, c->sent ? 0 : ETIMEDOUT);
	}
	return 0;
}

/* A connect that fails at once is told from the loop as well. */
static int on_failed(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct hop_call *c = userdata;

	finish_errno(c, c->reply.error);
	return 0;
}

static int start_connect(struct hop_call *c)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(c->port)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(c->port)};
	bool v6 = c->family == AF_INET6;

	memcpy(&in.sin_addr, c->server.bytes, sizeof(in.sin_addr));
	memcpy(&in6.sin6_addr, c->server.bytes, sizeof(in6.sin6_addr));
	c->fd = socket(c->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0 || (connect(c->fd, v6 ? (struct sockaddr *) &in6 : (struct sockaddr *) &in,
	                          v6 ? sizeof(in6) : sizeof(in)) < 0 &&
	                  errno != EINPROGRESS))
		return -errno;
	return 0;
}

static int set_up(struct hop_call *c, sd_event *event, usec_t timeout)
{
	int r;

	r = start_connect(c);
	if (r < 0) {
		c->reply.error = -r;
		return sd_event_add_time_relative(event, &c->timer, CLOCK_BOOTTIME, 0, 1, on_failed,
		                                  c);
	}
	r = sd_event_add_io(event, &c->io, c->fd, EPOLLOUT, on_io, c);
	if (r >= 0)
		r = sd_event_add_time_relative(event, &c->timer, CLOCK_BOOTTIME, look_every,
		                               USEC_PER_MSEC, on_look, c);
	if (r >= 0)
		r = sd_event_source_set_enabled(c->timer, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_add_time_relative(event, &c->deadline, CLOCK_BOOTTIME, timeout,
		                               USEC_PER_MSEC, on_deadline, c);
	return r;
}

int hop_call_new(struct hop_call **ret, sd_event *event, const struct address *server,
                 uint16_t port, usec_t timeout, hop_done_t done, void *userdata)
{
	struct hop_call *c;
	int r;

	if (!server->family || !port)
		return -EINVAL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->fd = -1;
	c->family = server->family;
	c->server = *server;
	c->port = port;
	c->started = clock_boottime();
	c->done = done;
	c->userdata = userdata;
	r = set_up(c, event, timeout);
	if (r < 0) {
		hop_call_free(c);
		return r;
	}
	*ret = c;
	return 0;
}
