/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What the probes of the join path ask beyond fakerun.h: a wall clock, metadata below any path,
 * HTTP, memory over boots, timers. Include this in place of fakerun.h. */

#define run_credentials      join_credentials
#define credentials_end_text join_end_text

#include "fakerun.h"

#undef run_imds
#define run_imds         join_imds
#define run_http         join_http
#define run_timer        join_timer
#define run_uptime       join_uptime
#define run_env          join_env
#define run_asked        join_asked
#define run_woken        join_woken
#define run_realtime     join_realtime
#define run_witness      join_witness
#define run_recall       join_recall
#define run_remember     join_remember
#define clock_ask_kernel join_ask_kernel

#define probe_clock       tested_clock
#define probe_credentials tested_credentials
#define probe_sts         tested_sts
#define probe_identity    tested_identity

enum { JOIN_CALLS = 8, JOIN_ANSWERS = 8, JOIN_BODY = 65536 };

struct join_answer {
	const char *path; /* the end of it */
	int status;       /* 0: silence */
	const char *body;
};

struct join_call {
	bool http;
	char path[256], method[8], host[160], sent[JOIN_BODY];
	run_imds_t imds;
	run_http_t done;
	run_timer_t timer;
	uintptr_t tag;
};

/* The world around one run. */
struct join {
	usec_t realtime;
	int kernel_error;
	bool synchronised, throttled;
	enum code asked;
	bool woken;
	struct join_answer answers[JOIN_ANSWERS];
	enum outcome http_outcome; /* when no answer is found: how it fails */
	unsigned imds_calls, http_calls, timers;
	char sent[JOIN_BODY]; /* headers and body of the last HTTP request */
	char sent_path[256];
	char remembered[256];
	void (*on_timer)(struct run *r);
};

static struct join world;
static struct join_call calls[JOIN_CALLS];
static size_t n_calls;

static inline struct join_call *join_call(void)
{
	if (n_calls == JOIN_CALLS)
		return NULL;
	calls[n_calls] = (struct join_call){0};
	return &calls[n_calls++];
}

_unused_ static int join_imds(struct run *r, const char *path, size_t body_max, bool spare,
                              run_imds_t cb, uintptr_t tag)
{
	struct join_call *c = join_call();

	if (!c)
		return -ENOSPC;
	(void) text_format(c->path, sizeof(c->path), "%s", path);
	c->imds = cb;
	c->tag = tag;
	world.imds_calls++;
	return 0;
}

_unused_ static int join_http(struct run *r, const struct http_request *rq, run_http_t cb,
                              uintptr_t tag)
{
	struct join_call *c = join_call();

	if (!c)
		return -ENOSPC;
	c->http = true;
	c->done = cb;
	c->tag = tag;
	(void) text_format(c->path, sizeof(c->path), "%s", rq->path);
	(void) text_format(world.sent_path, sizeof(world.sent_path), "%s", rq->path);
	world.sent[0] = 0;
	for (const char *const *h = rq->headers; h && *h; h++)
		(void) text_append(world.sent, sizeof(world.sent), "%s\n", *h);
	(void) text_append(world.sent, sizeof(world.sent), "%s", rq->body ? rq->body : "");
	world.http_calls++;
	return 0;
}

_unused_ static int join_timer(struct run *r, usec_t after, run_timer_t cb, uintptr_t tag)
{
	struct join_call *c = join_call();

	if (!c)
		return -ENOSPC;
	c->timer = cb;
	c->tag = tag;
	world.timers++;
	return 0;
}

_unused_ static const char *join_env(const struct run *r, const char *name)
{
	return NULL;
}

_unused_ static usec_t join_uptime(const struct run *r)
{
	return run_now(r);
}

_unused_ static enum code join_asked(const struct run *r)
{
	return world.asked;
}

_unused_ static bool join_woken(const struct run *r)
{
	return world.woken;
}

_unused_ static usec_t join_realtime(const struct run *r)
{
	return world.realtime;
}

_unused_ static void join_witness(struct run *r, enum witness w, const struct http_reply *reply)
{
	uint64_t theirs;

	if (reply->status && reply->date && http_date(reply->date, &theirs) == 0)
		run_learn(r)->witnesses[w] = (struct witness_seen){
			(int64_t) (world.realtime / USEC_PER_SEC) - (int64_t) theirs, run_now(r)};
}

_unused_ static const char *join_recall(const struct run *r, const char *key)
{
	return world.remembered[0] ? world.remembered : NULL;
}

_unused_ static void join_remember(struct run *r, const char *key, const char *value)
{
	(void) text_format(world.remembered, sizeof(world.remembered), "%s", value ? value : "");
}

_unused_ static int join_ask_kernel(struct clock_kernel *ret)
{
	*ret = (struct clock_kernel){.synchronised = world.synchronised, .max_error_ms = 12};
	return world.kernel_error;
}

static inline bool ends_in(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && strcmp(s + n - m, end) == 0;
}

static inline void join_reply(const char *path, struct http_reply *h)
{
	*h = (struct http_reply){.outcome = OUTCOME_OK,
	                         .stage = HTTP_DONE,
	                         .status = 404,
	                         .body = "<html>404</html>",
	                         .date = "",
	                         .content_type = "",
	                         .location = "",
	                         .grpc_message = ""};
	for (const struct join_answer *a = world.answers; a->path; a++) {
		if (!ends_in(path, a->path))
			continue;
		h->status = a->status;
		h->body = a->body;
		break;
	}
	h->code = h->status;
	h->body_len = strlen(h->body);
	if (h->status == 0) {
		h->outcome = world.http_outcome ? world.http_outcome : OUTCOME_TIMEOUT;
		h->stage = HTTP_CONNECTING;
	}
}

static inline void join_deliver(struct run *r, const struct join_call *c)
{
	struct imds_reply i = {.step = IMDS_GET};

	if (c->timer) {
		if (world.on_timer)
			world.on_timer(r);
		c->timer(r, c->tag);
		return;
	}
	join_reply(c->path, &i.http);
	if (c->http) {
		c->done(r, &i.http, c->tag);
		return;
	}
	i.throttled = world.throttled;
	c->imds(r, &i, c->tag);
}

/* Starts the probe and answers all that it asks until it ends. */
static inline int join_run(struct run *r, const struct probe *p)
{
	int e;

	free(r->state);
	r->state = calloc(1, p->state_size + 1);
	if (!r->memory)
		r->memory = calloc(1, p->memory_size + 1);
	if (!r->state || !r->memory)
		return -ENOMEM;
	r->ended = false;
	r->n_seen = 0;
	n_calls = 0;
	world.imds_calls = world.http_calls = world.timers = 0;
	e = p->start(r);
	while (e == 0 && !r->ended && n_calls > 0) {
		static struct join_call c;

		c = calls[0];
		memmove(&calls[0], &calls[1], --n_calls * sizeof(calls[0]));
		join_deliver(r, &c);
	}
	for (size_t i = 0; i < r->n_reads; i++)
		free(r->reads[i]);
	r->n_reads = 0;
	return e < 0 ? e : r->ended ? 0 : -EBUSY;
}

/* True when that aspect came out so and is judged so. */
static inline bool join_is(struct run *r, const struct probe *p, const char *aspect,
                           enum outcome outcome, enum code code)
{
	const struct observation *o = fake_find(r, aspect, NULL);
	struct words w = {0};
	enum code c;

	if (!o) {
		printf("# no look at \"%s\"\n", aspect);
		return false;
	}
	/* the ledger asks no judge about these */
	c = o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	                    o->outcome == OUTCOME_UNKNOWN
	            ? CODE_NONE
	            : p->judge(o, &w);
	printf("# %s: %s | %s\n", outcome_name(o->outcome), o->detail, w.summary);
	if (o->outcome == outcome && c == code && (c == CODE_NONE || w.summary[0]))
		return true;
	printf("# wanted %s and code %d, got %s and code %d\n", outcome_name(outcome), code,
	       outcome_name(o->outcome), c);
	return false;
}
