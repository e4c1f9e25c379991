/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <jansson.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "clock.h"
#include "run.h"

struct run_call {
	struct run_call *next;
	struct run *run;
	uintptr_t tag;
	struct http_call *http;
	struct imds_call *imds;
	struct dns_call *dns;
	struct hop_call *hop;
	struct bus_call *bus;
	struct journal_read *journal;
	struct tail_read *tail;
	struct grpc_call *grpc;
	sd_event_source *timer;
	union {
		run_line_t journal;
		run_tail_line_t tail;
	} line;
	union {
		run_http_t http;
		run_imds_t imds;
		run_dns_t dns;
		run_hop_t hop;
		run_unit_t bus;
		run_lines_t journal;
		run_tail_t tail;
		run_grpc_t grpc;
		run_timer_t timer;
	} done;
};

struct buffer {
	struct buffer *next;
	char *text;
	size_t len;
};

struct run {
	struct run_context *context;
	const struct probe *probe;
	unsigned slot;
	bool woken, starting, ended, expired;
	enum code asked;
	void *state, *memory;
	usec_t started;
	struct run **self; /* where the manager keeps us; cleared at the end */
	run_done_t done;
	void *userdata;
	sd_event_source *deadline;
	struct run_call *calls;
	struct buffer *buffers;
	size_t n;
	struct observation observations[RUN_OBSERVATIONS_MAX];
};

usec_t run_context_uptime(const struct run_context *c, usec_t now)
{
	int64_t t = (int64_t) now + c->uptime_offset;

	return t > 0 ? (usec_t) t : 0;
}

usec_t run_context_boottime(const struct run_context *c, usec_t uptime)
{
	int64_t t = (int64_t) uptime - c->uptime_offset;

	return t > 0 ? (usec_t) t : 0;
}

static void call_free(struct run_call *c)
{
	http_call_free(c->http);
	imds_call_free(c->imds);
	dns_call_free(c->dns);
	hop_call_free(c->hop);
	bus_call_free(c->bus);
	journal_read_free(c->journal);
	tail_read_free(c->tail);
	grpc_call_free(c->grpc);
	sd_event_source_disable_unref(c->timer);
	free(c);
}

struct run *run_free(struct run *r)
{
	if (!r)
		return NULL;
	while (r->calls) {
		struct run_call *c = r->calls;

		r->calls = c->next;
		call_free(c);
	}
	while (r->buffers) {
		struct buffer *b = r->buffers;

		r->buffers = b->next;
		explicit_bzero(b->text, b->len); /* a kubeconfig may hold a token */
		free(b->text);
		free(b);
	}
	sd_event_source_disable_unref(r->deadline);
	if (r->state)
		explicit_bzero(r->state, r->probe->state_size);
	free(r->state);
	if (r->self)
		*r->self = NULL;
	free(r);
	return NULL;
}

static void finish(struct run *r)
{
	struct run_result result = {.observations = r->observations,
	                            .n = r->n,
	                            .whole = !r->expired,
	                            .took = clock_boottime() - r->started};

	if (r->self)
		*r->self = NULL;
	r->self = NULL;
	r->done(&result, r->userdata);
	run_free(r);
}

void run_end(struct run *r)
{
	assert(!r->ended);
	r->ended = true;
	if (!r->starting)
		finish(r);
}

static void cannot_look(struct run *r, const char *why)
{
	r->expired = true;
	observation_detail(run_observe(r, r->probe->layer, "", "", OUTCOME_UNKNOWN, 0), "%s", why);
}

static int on_deadline(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct run *r = userdata;

	cannot_look(r, "the look did not end in time");
	run_end(r);
	return 0;
}

int run_new(struct run **ret, struct run_context *c, const struct probe *p, unsigned slot,
            void *memory, usec_t timeout, bool woken, enum code asked, run_done_t done,
            void *userdata)
{
	struct run *r = malloc(sizeof(*r));
	int ret_code;

	if (!r)
		return -ENOMEM;
	/* the observations, 60 KiB, are written one by one as they come */
	memset(r, 0, offsetof(struct run, observations));
	r->context = c;
	r->probe = p;
	r->slot = slot;
	r->memory = memory;
	r->woken = woken;
	r->asked = asked;
	r->started = clock_boottime();
	r->done = done;
	r->userdata = userdata;
	r->starting = true;
	if (p->state_size) {
		r->state = calloc(1, p->state_size);
		if (!r->state)
			return run_free(r), -ENOMEM;
	}
	ret_code = sd_event_add_time_relative(c->event, &r->deadline, CLOCK_BOOTTIME, timeout,
	                                      USEC_PER_SEC / 10, on_deadline, r);
	if (ret_code < 0)
		return run_free(r), ret_code;
	r->self = ret;
	*ret = r;
	if (p->needs_ec2 && c->node.ec2 == EC2_NO) {
		observation_detail(run_observe(r, p->layer, "", "", OUTCOME_SKIPPED, 0),
		                   "not an EC2 instance");
		r->ended = true;
	} else {
		ret_code = p->start(r);
		if (ret_code < 0 && !r->ended) {
			char why[DETAIL_MAX];

			(void) text_format(why, sizeof(why), "cannot look: %s",
			                   strerror(-ret_code));
			cannot_look(r, why);
			r->ended = true;
		}
	}
	r->starting = false;
	if (r->ended)
		finish(r);
	return 0;
}

unsigned run_slot(const struct run *r)
{
	return r->slot;
}

usec_t run_now(const struct run *r)
{
	return clock_boottime();
}

usec_t run_uptime(const struct run *r)
{
	return run_context_uptime(r->context, clock_boottime());
}

bool run_once(const struct run *r)
{
	return r->context->mode == SCHEDULE_CHECK;
}

void *run_state(struct run *r)
{
	return r->state;
}

void *run_memory(struct run *r)
{
	return r->memory;
}

const struct node *run_node(const struct run *r)
{
	return &r->context->node;
}

struct node *run_learn(struct run *r)
{
	return &r->context->node;
}

const char *run_env(const struct run *r, const char *name)
{
	const char *s = getenv(name);

	return s && *s ? s : NULL;
}

const struct files *run_files(const struct run *r)
{
	return r->context->files;
}

bool run_woken(const struct run *r)
{
	return r->woken;
}

enum code run_asked(const struct run *r)
{
	return r->asked;
}

usec_t run_realtime(const struct run *r)
{
	return clock_realtime();
}

usec_t run_from_monotonic(const struct run *r, usec_t monotonic)
{
	return run_context_boottime(r->context, monotonic);
}

const struct subnet_watch *run_subnet_watch(const struct run *r)
{
	return &r->context->subnet_watch;
}

void run_witness(struct run *r, enum witness w, const struct http_reply *reply)
{
	uint64_t theirs;
	int64_t ours = (int64_t) (clock_realtime() / USEC_PER_SEC);

	if (!reply->status || http_date(reply->date, &theirs) < 0)
		return;
	r->context->node.witnesses[w] =
		(struct witness_seen){.offset_s = ours - (int64_t) theirs, .at = clock_boottime()};
}

const char *run_recall(const struct run *r, const char *key)
{
	return json_string_value(json_object_get(r->context->remembered, key));
}

void run_remember(struct run *r, const char *key, const char *value)
{
	const char *had = run_recall(r, key);

	if (value ? had && strcmp(had, value) == 0 : !had)
		return;
	if (value && strlen(value) <= REMEMBER_MAX)
		(void) json_object_set_new(r->context->remembered, key, json_string(value));
	else
		(void) json_object_del(r->context->remembered, key);
	r->context->remember = true;
}

struct observation *run_observe(struct run *r, enum layer layer, const char *aspect,
                                const char *subject, enum outcome outcome, int code)
{
	struct observation *o;

	if (r->n == RUN_OBSERVATIONS_MAX)
		return NULL;
	o = &r->observations[r->n++];
	*o = (struct observation){.layer = layer, .outcome = outcome, .code = code};
	o->at = clock_boottime();
	o->took = o->at - r->started;
	(void) text_format(o->probe, sizeof(o->probe), "%s", r->probe->name);
	(void) text_format(o->aspect, sizeof(o->aspect), "%s", aspect);
	(void) text_clean(o->subject, sizeof(o->subject), subject, strlen(subject));
	return o;
}

/* ---- calls ---- */

static struct run_call *call_new(struct run *r, uintptr_t tag)
{
	struct run_call *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->run = r;
	c->tag = tag;
	c->next = r->calls;
	r->calls = c;
	return c;
}

/* Takes back the call that call_new() just put first. */
static int call_failed(struct run *r, int error)
{
	struct run_call *c = r->calls;

	r->calls = c->next;
	call_free(c);
	return error;
}

/* After any of these callbacks the run, and with it the call, may be gone. */
static void on_http(struct http_call *h, const struct http_reply *reply, void *userdata)
{
	struct run_call *c = userdata;

	c->done.http(c->run, reply, c->tag);
}

static void on_imds(struct imds_call *i, const struct imds_reply *reply, void *userdata)
{
	struct run_call *c = userdata;

	c->done.imds(c->run, reply, c->tag);
}

static void on_dns(struct dns_call *d, const struct dns_reply *reply, void *userdata)
{
	struct run_call *c = userdata;

	c->done.dns(c->run, reply, c->tag);
}

static void on_hop(struct hop_call *h, const struct hop_reply *reply, void *userdata)
{
	struct run_call *c = userdata;

	c->done.hop(c->run, reply, c->tag);
}

static void on_unit(struct bus_call *b, const struct bus_reply *reply, void *userdata)
{
	struct run_call *c = userdata;

	c->done.bus(c->run, reply, c->tag);
}

static void on_line(const struct journal_entry *e, void *userdata)
{
	struct run_call *c = userdata;

	c->line.journal(c->run, e, c->tag);
}

static void on_lines(struct journal_read *j, const struct journal_end *e, void *userdata)
{
	struct run_call *c = userdata;

	c->done.journal(c->run, e, c->tag);
}

static void on_tail_line(const char *line, size_t len, void *userdata)
{
	struct run_call *c = userdata;

	c->line.tail(c->run, line, len, c->tag);
}

static void on_tail(struct tail_read *t, const struct tail_end *e, void *userdata)
{
	struct run_call *c = userdata;

	c->done.tail(c->run, e, c->tag);
}

static void on_grpc(struct grpc_call *g, const struct grpc_reply *reply, void *userdata)
{
	struct run_call *c = userdata;

	c->done.grpc(c->run, reply, c->tag);
}

static int on_timer(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct run_call *c = userdata;

	c->done.timer(c->run, c->tag);
	return 0;
}

int run_http(struct run *r, const struct http_request *rq, run_http_t done, uintptr_t tag)
{
	struct run_call *c = call_new(r, tag);
	int ret;

	if (!c)
		return -ENOMEM;
	c->done.http = done;
	ret = http_call_new(&c->http, r->context->http, rq, on_http, c);
	return ret < 0 ? call_failed(r, ret) : 0;
}

int run_imds(struct run *r, const char *path, size_t body_max, bool spare, run_imds_t done,
             uintptr_t tag)
{
	struct run_call *c = call_new(r, tag);
	int ret;

	if (!c)
		return -ENOMEM;
	c->done.imds = done;
	ret = imds_call_new(&c->imds, r->context->imds, path, body_max, spare, clock_boottime(),
	                    on_imds, c);
	return ret < 0 ? call_failed(r, ret) : 0;
}

bool run_imds_endpoint(const struct run *r, int family, struct address *ret, uint16_t *ret_port)
{
	return imds_endpoint(r->context->imds, family, ret, ret_port);
}

int run_dns(struct run *r, const struct address *server, const char *name, enum dns_type type,
            usec_t timeout, run_dns_t done, uintptr_t tag)
{
	struct run_call *c = call_new(r, tag);
	int ret;

	if (!c)
		return -ENOMEM;
	c->done.dns = done;
	ret = dns_call_new(&c->dns, r->context->dns, server, name, type, timeout, on_dns, c);
	return ret < 0 ? call_failed(r, ret) : 0;
}

int run_hop(struct run *r, const struct address *server, uint16_t port, usec_t timeout,
            run_hop_t done, uintptr_t tag)
{
	struct run_call *c = call_new(r, tag);
	int ret;

	if (!c)
		return -ENOMEM;
	c->done.hop = done;
	ret = hop_call_new(&c->hop, r->context->event, server, port, timeout, on_hop, c);
	return ret < 0 ? call_failed(r, ret) : 0;
}

int run_unit(struct run *r, const char *unit, usec_t timeout, run_unit_t done, uintptr_t tag)
{
	struct run_call *c = call_new(r, tag);
	int ret;

	if (!c)
		return -ENOMEM;
	c->done.bus = done;
	ret = bus_call_new(&c->bus, r->context->bus, unit, timeout, on_unit, c);
	return ret < 0 ? call_failed(r, ret) : 0;
}

int run_journal(struct run *r, const struct journal_query *q,
                char cursor[static JOURNAL_CURSOR_MAX], run_line_t line, run_lines_t done,
                uintptr_t tag)
{
	struct run_call *c = call_new(r, tag);
	int ret;

	if (!c)
		return -ENOMEM;
	c->line.journal = line;
	c->done.journal = done;
	ret = journal_read_new(&c->journal, r->context->journal, q, cursor, on_line, on_lines, c);
	return ret < 0 ? call_failed(r, ret) : 0;
}

int run_tail(struct run *r, const struct tail_query *q, struct tail *where, run_tail_line_t line,
             run_tail_t done, uintptr_t tag)
{
	struct run_call *c = call_new(r, tag);
	int ret;

	if (!c)
		return -ENOMEM;
	c->line.tail = line;
	c->done.tail = done;
	ret = tail_read_new(&c->tail, r->context->event, r->context->files, q, where, on_tail_line,
	                    on_tail, c);
	return ret < 0 ? call_failed(r, ret) : 0;
}

int run_grpc(struct run *r, const char *path, const char *method, const void *message, size_t len,
             usec_t timeout, run_grpc_t done, uintptr_t tag)
{
	struct run_call *c = call_new(r, tag);
	int ret;

	if (!c)
		return -ENOMEM;
	c->done.grpc = done;
	ret = grpc_call_new(&c->grpc, r->context->http, r->context->files, path, method, message,
	                    len, timeout, on_grpc, c);
	return ret < 0 ? call_failed(r, ret) : 0;
}

int run_timer(struct run *r, usec_t after, run_timer_t done, uintptr_t tag)
{
	struct run_call *c = call_new(r, tag);
	int ret;

	if (!c)
		return -ENOMEM;
	c->done.timer = done;
	ret = sd_event_add_time_relative(r->context->event, &c->timer, CLOCK_BOOTTIME, after, 1000,
	                                 on_timer, c);
	return ret < 0 ? call_failed(r, ret) : 0;
}

int run_net(struct run *r, usec_t max_age, const struct net **ret)
{
	if (!r->context->netlink)
		return r->context->netlink_error;
	return netlink_snapshot(r->context->netlink, clock_boottime(), max_age, ret);
}

int run_sockets(struct run *r, const struct address *to, uint16_t port, struct tcp_sockets *ret)
{
	return sockdiag_tcp(to, port, ret);
}

int run_local_block(struct run *r, const struct address *to, uint16_t port)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} sa = {0};
	socklen_t len;
	int fd, error;

	if (to->family == AF_INET6) {
		sa.v6.sin6_family = AF_INET6;
		sa.v6.sin6_port = htons(port);
		memcpy(&sa.v6.sin6_addr, to->bytes, 16);
		len = sizeof(sa.v6);
	} else if (to->family == AF_INET) {
		sa.v4.sin_family = AF_INET;
		sa.v4.sin_port = htons(port);
		memcpy(&sa.v4.sin_addr, to->bytes, 4);
		len = sizeof(sa.v4);
	} else {
		return EAFNOSUPPORT;
	}
	fd = socket(to->family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return 0; /* ours, or the sandbox's: no datagram was stopped */
	error = sendto(fd, "", 0, 0, &sa.any, len) < 0 && !errno_is_ours(errno) ? errno : 0;
	(void) close(fd);
	return error;
}

int run_read(struct run *r, const char *path, size_t max, const char **ret, size_t *ret_len)
{
	struct buffer *b = calloc(1, sizeof(*b));
	int ret_code;

	if (!b)
		return -ENOMEM;
	ret_code = file_read(r->context->files, path, max, &b->text, &b->len);
	if (ret_code < 0) {
		free(b);
		return ret_code;
	}
	b->next = r->buffers;
	r->buffers = b;
	*ret = b->text;
	*ret_len = b->len;
	return 0;
}
