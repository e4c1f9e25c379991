/* SPDX-License-Identifier: Apache-2.0 */
/* c-ares on the event loop. A channel knows one server only, so that an answer is that server's; it
 * is kept and used again. */
#include <ares.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "clock.h"
#include "dns.h"

enum { CHANNELS_MAX = 16, TRIES = 2, DNS_HEADER_BYTES = 12 };

/* One socket of a channel on the loop. */
struct watch {
	struct watch *next;
	sd_event_source *source;
	int fd;
};

struct channel {
	struct dns *dns;
	ares_channel ares;
	struct address server;
	usec_t timeout;
	struct watch *watches;
	unsigned queries; /* that c-ares has not answered */
	/* since the channel was idle: */
	int error;    /* errno of the last socket call that failed */
	bool garbled; /* a datagram came that is no answer to anything */
};

struct dns {
	sd_event *event;
	sd_event_source *timer, *defer;
	struct channel *channels[CHANNELS_MAX];
	size_t n_channels;
	struct dns_call *calls;
	bool initialised;
};

/* What c-ares holds on to. It can't drop one query of a channel, so a call that was freed leaves
 * this behind until c-ares is through. */
struct query {
	struct channel *channel;
	struct dns_call *call;
};

struct dns_call {
	struct dns_call *next;
	struct dns *dns;
	struct query *query;
	enum dns_type type;
	dns_done_t done;
	void *userdata;
	usec_t started;
	bool ready;
	struct dns_reply reply;
};

/* ---- sockets ---- */

static int note(struct channel *ch, int r)
{
	if (r < 0 && errno != EAGAIN && errno != EINPROGRESS && errno != EINTR)
		ch->error = errno;
	return r;
}

static ares_socket_t on_open(int family, int type, int protocol, void *userdata)
{
	return note(userdata, socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
}

static int on_close(ares_socket_t fd, void *userdata)
{
	return close(fd);
}

static int on_connect(ares_socket_t fd, const struct sockaddr *sa, ares_socklen_t len,
                      void *userdata)
{
	return note(userdata, connect(fd, sa, len));
}

/* Has a header and one question. What has not, c-ares passes over as if nothing had come. */
static bool is_answer(const unsigned char *p, size_t len)
{
	size_t at = DNS_HEADER_BYTES;

	if (len <= at || !(p[2] & 0x80) || p[4] != 0 || p[5] != 1)
		return false;
	while (at < len && p[at] != 0 && p[at] < 64)
		at += p[at] + 1u;
	return at + 5 <= len && p[at] == 0;
}

static ares_ssize_t on_receive(ares_socket_t fd, void *data, size_t len, int flags,
                               struct sockaddr *from, ares_socklen_t *from_len, void *userdata)
{
	ares_ssize_t n = recvfrom(fd, data, len, flags, from, from_len);

	if (n < 0)
		(void) note(userdata, -1);
	else if (from && !is_answer(data, (size_t) n))
		((struct channel *) userdata)->garbled = true;
	return n;
}

static ares_ssize_t on_send(ares_socket_t fd, const struct iovec *v, int n_v, void *userdata)
{
	struct msghdr m = {.msg_iov = (struct iovec *) v, .msg_iovlen = (size_t) n_v};
	/* over TCP the far side may be gone already: SIGPIPE would be the end of us */
	ares_ssize_t n = sendmsg(fd, &m, MSG_NOSIGNAL);

	if (n < 0)
		(void) note(userdata, -1);
	return n;
}

/* Ours, because c-ares forgets the errno: ICMP's refusal, a missing route and a firewall on this
 * node would all be "could not contact DNS servers". */
static const struct ares_socket_functions socket_functions = {
	.asocket = on_open,
	.aclose = on_close,
	.aconnect = on_connect,
	.arecvfrom = on_receive,
	.asendv = on_send,
};

/* ---- the loop ---- */

/* One timer for all: the first moment at which any channel has something to give up. */
static void arm(struct dns *d)
{
	usec_t first = USEC_INFINITY;

	for (size_t i = 0; i < d->n_channels; i++) {
		struct timeval tv, *t = ares_timeout(d->channels[i]->ares, NULL, &tv);
		usec_t after;

		if (!t)
			continue;
		after = (usec_t) t->tv_sec * USEC_PER_SEC + (usec_t) t->tv_usec;
		if (after < first)
			first = after;
	}
	if (first == USEC_INFINITY) {
		(void) sd_event_source_set_enabled(d->timer, SD_EVENT_OFF);
		return;
	}
	(void) sd_event_source_set_time_relative(d->timer, first);
	(void) sd_event_source_set_enabled(d->timer, SD_EVENT_ONESHOT);
}

static int on_io(sd_event_source *s, int fd, uint32_t revents, void *userdata)
{
	struct channel *ch = userdata;
	bool bad = revents & (EPOLLERR | EPOLLHUP);

	ares_process_fd(ch->ares, bad || (revents & EPOLLIN) ? fd : ARES_SOCKET_BAD,
	                revents & EPOLLOUT ? fd : ARES_SOCKET_BAD);
	arm(ch->dns);
	return 0;
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct dns *d = userdata;

	for (size_t i = 0; i < d->n_channels; i++)
		ares_process_fd(d->channels[i]->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	arm(d);
	return 0;
}

static void unwatch(struct watch **at)
{
	struct watch *w = *at;

	*at = w->next;
	sd_event_source_disable_unref(w->source);
	free(w);
}

static void on_socket_state(void *userdata, ares_socket_t fd, int readable, int writable)
{
	uint32_t events = (readable ? EPOLLIN : 0) | (writable ? EPOLLOUT : 0);
	struct channel *ch = userdata;
	struct watch **at = &ch->watches, *w;

	while (*at && (*at)->fd != fd)
		at = &(*at)->next;
	if (!events) {
		if (*at)
			unwatch(at);
		return;
	}
	if (*at) {
		(void) sd_event_source_set_io_events((*at)->source, events);
		return;
	}
	w = calloc(1, sizeof(*w));
	if (!w) /* the query then ends by its timeout */
		return;
	w->fd = fd;
	if (sd_event_add_io(ch->dns->event, &w->source, fd, events, on_io, ch) < 0) {
		free(w);
		return;
	}
	(void) sd_event_source_set_description(w->source, "dns");
	*at = w;
}

/* ---- channels ---- */

static struct channel *channel_free(struct channel *ch)
{
	if (!ch)
		return NULL;
	if (ch->ares)
		ares_destroy(ch->ares);
	while (ch->watches)
		unwatch(&ch->watches);
	free(ch);
	return NULL;
}

static int errno_of(int status)
{
	return status == ARES_SUCCESS ? 0 : status == ARES_ENOMEM ? -ENOMEM : -EINVAL;
}

static int set_server(struct channel *ch)
{
	struct ares_addr_node node = {.family = ch->server.family};

	if (node.family == AF_INET)
		memcpy(&node.addr.addr4, ch->server.bytes, sizeof(node.addr.addr4));
	else
		memcpy(&node.addr.addr6, ch->server.bytes, sizeof(node.addr.addr6));
	return errno_of(ares_set_servers(ch->ares, &node));
}

/* NOCHECKRESP hands SERVFAIL and REFUSED over instead of trying again; truncated answers go to TCP
 * as they should. The second try waits twice as long as the first: together the timeout. */
static int channel_set_up(struct channel *ch)
{
	struct ares_options o = {
		.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | ARES_FLAG_NOCHECKRESP,
		.timeout = (int) (ch->timeout / USEC_PER_MSEC / 3),
		.tries = TRIES,
		.sock_state_cb = on_socket_state,
		.sock_state_cb_data = ch,
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB |
	           ARES_OPT_LOOKUPS | ARES_OPT_DOMAINS;
	char lookups[] = "b", nowhere[] = "/dev/null";
	int r;

	o.lookups = lookups;
	if (o.timeout < 1)
		o.timeout = 1;
#ifdef ARES_OPT_RESOLVCONF
	o.resolvconf_path = nowhere; /* which servers there are is for our caller to say */
	mask |= ARES_OPT_RESOLVCONF;
#else
	(void) nowhere;
#endif
#ifdef ARES_OPT_QUERY_CACHE
	o.qcache_max_ttl = 0; /* an answer from a cache proves nothing */
	mask |= ARES_OPT_QUERY_CACHE;
#endif
	r = errno_of(ares_init_options(&ch->ares, &o, mask));
	if (r < 0)
		return r;
	ares_set_socket_functions(ch->ares, &socket_functions, ch);
	return set_server(ch);
}

/* Makes room by dropping a channel that nobody waits for. */
static int make_room(struct dns *d)
{
	for (size_t i = 0; i < d->n_channels; i++) {
		if (d->channels[i]->queries > 0)
			continue;
		channel_free(d->channels[i]);
		d->channels[i] = d->channels[--d->n_channels];
		return 0;
	}
	return -EBUSY;
}

static int channel_get(struct dns *d, const struct address *server, usec_t timeout,
                       struct channel **ret)
{
	struct channel *ch;
	int r;

	for (size_t i = 0; i < d->n_channels; i++) {
		ch = d->channels[i];
		if (address_equal(&ch->server, server) && ch->timeout == timeout) {
			*ret = ch;
			return 0;
		}
	}
	if (d->n_channels == CHANNELS_MAX) {
		r = make_room(d);
		if (r < 0)
			return r;
	}
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return -ENOMEM;
	*ch = (struct channel){.dns = d, .server = *server, .timeout = timeout};
	r = channel_set_up(ch);
	if (r < 0) {
		channel_free(ch);
		return r;
	}
	*ret = d->channels[d->n_channels++] = ch;
	return 0;
}

/* ---- answers ---- */

static void add_address(struct dns_reply *r, int family, const void *bytes, size_t len, int ttl)
{
	struct address a = {.family = (uint8_t) family};

	memcpy(a.bytes, bytes, len);
	r->addresses[r->n++] = a;
	if (ttl >= 0 && (r->n == 1 || (uint32_t) ttl < r->ttl))
		r->ttl = (uint32_t) ttl;
}

static int parse_a(struct dns_reply *r, const unsigned char *answer, int len)
{
	struct ares_addrttl found[DNS_ADDRESSES_MAX];
	int n = DNS_ADDRESSES_MAX, status = ares_parse_a_reply(answer, len, NULL, found, &n);

	if (status != ARES_SUCCESS)
		return status;
	for (int i = 0; i < n; i++)
		add_address(r, AF_INET, &found[i].ipaddr, sizeof(found[i].ipaddr), found[i].ttl);
	return status;
}

static int parse_aaaa(struct dns_reply *r, const unsigned char *answer, int len)
{
	struct ares_addr6ttl found[DNS_ADDRESSES_MAX];
	int n = DNS_ADDRESSES_MAX, status = ares_parse_aaaa_reply(answer, len, NULL, found, &n);

	if (status != ARES_SUCCESS)
		return status;
	for (int i = 0; i < n; i++)
		add_address(r, AF_INET6, &found[i].ip6addr, sizeof(found[i].ip6addr), found[i].ttl);
	return status;
}

static void read_answer(struct dns_call *c, const unsigned char *answer, int len)
{
	struct dns_reply *r = &c->reply;
	int status;

	r->rcode = answer[3] & 0x0F;
	switch (r->rcode) {
	case 0:
		break;
	case 3:
		r->outcome = OUTCOME_ABSENT;
		return;
	case 5:
		r->outcome = OUTCOME_DENIED;
		return;
	default:
		r->outcome = OUTCOME_FAILED;
		return;
	}
	status = c->type == DNS_A ? parse_a(r, answer, len) : parse_aaaa(r, answer, len);
	if (r->n > 0)
		r->outcome = OUTCOME_OK;
	else if (status == ARES_SUCCESS || status == ARES_ENODATA)
		r->outcome = OUTCOME_ABSENT;
	else
		r->outcome = OUTCOME_MALFORMED;
}

static void read_failure(struct dns_call *c, int status, const struct channel *ch)
{
	struct dns_reply *r = &c->reply;
	int error = ch->error;

	switch (status) {
	case ARES_ETIMEOUT:
		r->outcome = ch->garbled ? OUTCOME_MALFORMED : OUTCOME_TIMEOUT;
		break;
	case ARES_ECONNREFUSED: /* c-ares's word for every socket error */
		r->error = error;
		r->outcome = errno_is_ours(error)                                  ? OUTCOME_UNKNOWN
		             : error == ECONNREFUSED                               ? OUTCOME_REFUSED
		             : error == 0 || error == ECONNRESET || error == EPIPE ? OUTCOME_RESET
		             : error == ETIMEDOUT                                  ? OUTCOME_TIMEOUT
		                                  : OUTCOME_UNREACHABLE;
		break;
	case ARES_EBADRESP:
		r->outcome = OUTCOME_MALFORMED;
		break;
	default:
		r->error = -errno_of(status);
		r->outcome = errno_is_ours(r->error) ? OUTCOME_UNKNOWN : OUTCOME_FAILED;
	}
}

static void on_answer(void *userdata, int status, int timeouts, unsigned char *answer, int len)
{
	struct query *q = userdata;
	struct channel *ch = q->channel;
	struct dns_call *c = q->call;

	ch->queries--;
	free(q);
	if (!c)
		return;
	c->query = NULL;
	c->reply.took = clock_boottime() - c->started;
	if (answer && len >= DNS_HEADER_BYTES)
		read_answer(c, answer, len);
	else
		read_failure(c, status, ch);
	c->ready = true;
	(void) sd_event_source_set_enabled(c->dns->defer, SD_EVENT_ONESHOT);
}

static struct dns_call **place_of(struct dns_call *c)
{
	struct dns_call **at = &c->dns->calls;

	while (*at && *at != c)
		at = &(*at)->next;
	return at;
}

static struct dns_call *next_ready(struct dns *d)
{
	for (struct dns_call *c = d->calls; c; c = c->next)
		if (c->ready)
			return c;
	return NULL;
}

/* Answers are handed out here only, outside of c-ares, so that a callback may do what it likes. */
static int on_defer(sd_event_source *s, void *userdata)
{
	struct dns *d = userdata;
	struct dns_call *c;

	while ((c = next_ready(d))) {
		c->ready = false;
		c->done(c, &c->reply, c->userdata);
	}
	return 0;
}

/* ---- calls ---- */

struct dns_call *dns_call_free(struct dns_call *c)
{
	struct dns_call **at;

	if (!c)
		return NULL;
	at = place_of(c);
	if (*at)
		*at = c->next;
	if (c->query)
		c->query->call = NULL;
	free(c);
	return NULL;
}

int dns_call_new(struct dns_call **ret, struct dns *d, const struct address *server,
                 const char *name, enum dns_type type, usec_t timeout, dns_done_t done,
                 void *userdata)
{
	struct channel *ch;
	struct dns_call *c;
	struct query *q;
	int r;

	if (!server->family || !name[0] || (type != DNS_A && type != DNS_AAAA))
		return -EINVAL;
	r = channel_get(d, server, timeout, &ch);
	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	q = calloc(1, sizeof(*q));
	if (!c || !q) {
		free(c);
		free(q);
		return -ENOMEM;
	}
	*c = (struct dns_call){.next = d->calls,
	                       .dns = d,
	                       .query = q,
	                       .type = type,
	                       .done = done,
	                       .userdata = userdata,
	                       .started = clock_boottime(),
	                       .reply.rcode = -1};
	*q = (struct query){.channel = ch, .call = c};
	d->calls = c;
	if (ch->queries++ == 0) {
		ch->error = 0;
		ch->garbled = false;
	}
	ares_query(ch->ares, name, 1 /* IN */, (int) type, on_answer, q);
	arm(d);
	*ret = c;
	return 0;
}

struct dns *dns_free(struct dns *d)
{
	if (!d)
		return NULL;
	for (size_t i = 0; i < d->n_channels; i++)
		channel_free(d->channels[i]);
	sd_event_source_disable_unref(d->timer);
	sd_event_source_disable_unref(d->defer);
	sd_event_unref(d->event);
	if (d->initialised)
		ares_library_cleanup();
	free(d);
	return NULL;
}

int dns_new(struct dns **ret, sd_event *event)
{
	struct dns *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return -ENOMEM;
	d->event = sd_event_ref(event);
	r = errno_of(ares_library_init(ARES_LIB_INIT_ALL));
	d->initialised = r == 0;
	if (r == 0)
		r = sd_event_add_time_relative(event, &d->timer, CLOCK_BOOTTIME, 0, USEC_PER_MSEC,
		                               on_timer, d);
	if (r >= 0)
		r = sd_event_source_set_enabled(d->timer, SD_EVENT_OFF);
	if (r >= 0)
		r = sd_event_add_defer(event, &d->defer, on_defer, d);
	if (r >= 0)
		r = sd_event_source_set_enabled(d->defer, SD_EVENT_OFF);
	if (r < 0) {
		dns_free(d);
		return r;
	}
	(void) sd_event_source_set_description(d->timer, "dns-timer");
	*ret = d;
	return 0;
}

/* ---- resolv.conf ---- */

/* The value after a keyword that stands at the start of the line, as glibc reads it, or NULL. */
static char *value_of(char *line, const char *keyword)
{
	size_t n = strlen(keyword);

	if (strncmp(line, keyword, n) != 0 || (line[n] != ' ' && line[n] != '\t'))
		return NULL;
	line += n;
	line += strspn(line, " \t");
	return line;
}

static void parse_line(struct resolv_conf *c, char *line)
{
	struct address a;
	char *value = value_of(line, "nameserver");

	if (value) {
		value[strcspn(value, ";# \t\r")] = 0;
		if (c->n < RESOLV_SERVERS_MAX && address_parse(&a, value) == 0)
			c->servers[c->n++] = a;
		return;
	}
	value = value_of(line, "search");
	if (!value)
		value = value_of(line, "domain");
	if (!value)
		return;
	value[strcspn(value, " \t\r")] = 0;
	if (strlen(value) < sizeof(c->search) && text_is_clean(value, strlen(value)))
		memcpy(c->search, value, strlen(value) + 1); /* the last one counts */
}

void resolv_conf_parse(struct resolv_conf *ret, const char *text, size_t len)
{
	const char *end = text + len;

	*ret = (struct resolv_conf){0};
	while (text < end) {
		const char *eol = memchr(text, '\n', (size_t) (end - text));
		size_t n = (size_t) ((eol ? eol : end) - text);
		char line[1024];

		if (n < sizeof(line)) {
			memcpy(line, text, n);
			line[n] = 0;
			parse_line(ret, line);
		}
		text += n + (eol ? 1 : 0);
	}
}
