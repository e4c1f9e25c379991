/* SPDX-License-Identifier: Apache-2.0 */
/* The path probe against far sides that let through what the size, the address or the moment says.
 */
#define run_http   fake_http
#define run_asked  fake_asked
#define run_env    fake_env
#define probe_path tested_path

#include "../fakerun.h"

#include "../../probes/path.c"

#include "../tap.h"

enum { CALLS_MAX = 32 };

enum way { OPEN, SMALL_ONLY, DEAF, SILENT, CLOSED, UNVERIFIED, FLICKERS, OURS };

static struct {
	enum code asked;
	enum way ways[4]; /* by the last byte of the address */
	struct {
		uint8_t to;
		uint16_t segment;
		bool done;
		run_http_t cb;
		uintptr_t tag;
	} calls[CALLS_MAX];
	size_t n;
	int error;
} w;

int fake_http(struct run *r, const struct http_request *rq, run_http_t cb, uintptr_t tag)
{
	if (w.error)
		return w.error;
	if (w.n == CALLS_MAX)
		return -ENOSPC;
	w.calls[w.n].to = rq->address.bytes[3];
	w.calls[w.n].segment = rq->segment_max;
	w.calls[w.n].cb = cb;
	w.calls[w.n++].tag = tag;
	return 0;
}

enum code fake_asked(const struct run *r)
{
	return w.asked;
}

const char *fake_env(const struct run *r, const char *name)
{
	return NULL;
}

static struct http_reply reply_of(enum way way, bool small, size_t call)
{
	static const struct http_reply open = {
		.outcome = OUTCOME_OK, .stage = HTTP_DONE, .code = 400, .status = 400};
	static const struct http_reply stall = {.outcome = OUTCOME_TIMEOUT, .stage = HTTP_TLS};

	switch (way) {
	case OPEN:
		return open;
	case SMALL_ONLY:
		return small ? (struct http_reply){.outcome = OUTCOME_FAILED, .stage = HTTP_WAITING}
		             : stall;
	case DEAF:
		return stall;
	case SILENT:
		return (struct http_reply){.outcome = OUTCOME_TIMEOUT, .stage = HTTP_CONNECTING};
	case CLOSED:
		return small ? (struct http_reply){.outcome = OUTCOME_RESET, .stage = HTTP_TLS}
		             : stall;
	case UNVERIFIED:
		return small ? (struct http_reply){.outcome = OUTCOME_UNTRUSTED, .stage = HTTP_TLS}
		             : stall;
	case FLICKERS:
		return small || call >= 2 ? open : stall;
	default:
		return (struct http_reply){.outcome = OUTCOME_UNKNOWN, .code = ENOMEM};
	}
}

static void look(struct run *r)
{
	int e;

	for (size_t i = 0; i < r->n_reads; i++)
		free(r->reads[i]);
	r->n_seen = r->n_reads = 0;
	r->ended = false;
	w.n = 0;
	memset(r->state, 0, sizeof(struct state));
	e = tested_path.start(r);
	ok(e == 0);
	for (size_t i = 0; i < w.n && !r->ended; i++) {
		struct http_reply reply =
			reply_of(w.ways[w.calls[i].to], w.calls[i].segment != 0, i);

		w.calls[i].cb(r, &reply, w.calls[i].tag);
	}
}

static enum outcome seen(const struct run *r)
{
	return r->n_seen == 1 && r->ended ? r->seen[0].outcome : _OUTCOME_MAX;
}

static enum code judged(const struct run *r, struct words *ret)
{
	return tested_path.judge(&r->seen[0], ret);
}

static void fresh(struct run *r, enum way first, enum way second)
{
	memset(r->memory, 0, sizeof(struct memory));
	w.ways[1] = first;
	w.ways[2] = second;
	w.asked = CODE_EndpointTlsStalled;
	w.error = 0;
}

static void put_endpoint(struct endpoint *e, const char *host, const char *one, const char *two)
{
	(void) text_format(e->host, sizeof(e->host), "%s", host);
	(void) text_format(e->scheme, sizeof(e->scheme), "https");
	e->port = 443;
	(void) address_parse(&e->addresses[0], one);
	(void) address_parse(&e->addresses[1], two);
	e->n = *two ? 2 : 1;
}

static void test_size(struct run *r)
{
	struct words words;

	fresh(r, OPEN, SMALL_ONLY);
	look(r);
	ok(seen(r) == OUTCOME_TIMEOUT && judged(r, &words) == CODE_PathMtuBlackhole);
	ok(strcmp(words.summary, "TLS to ec2 at 10.0.0.2 stalls with full packets (mtu 9001) and "
	                         "passes with segments of 536 bytes, 2 of 2 times each") == 0);
	ok(w.n == 5 && w.calls[0].to == 1 && w.calls[1].to == 2);
	ok(!w.calls[1].segment && w.calls[2].segment == 536 && !w.calls[3].segment &&
	   w.calls[4].segment == 536);
	/* said again, whoever asks */
	r->now += USEC_PER_SEC;
	w.asked = CODE_NONE;
	look(r);
	ok(w.n == 0 && judged(r, &words) == CODE_PathMtuBlackhole);
	/* then looked at again, first where it was */
	r->now += known_for;
	look(r);
	ok(w.n == 4 && w.calls[0].to == 2 && judged(r, &words) == CODE_PathMtuBlackhole);
	r->now += known_for;
	w.ways[2] = OPEN;
	look(r);
	ok(w.n == 2 && seen(r) == OUTCOME_OK);
	r->now += known_for;
	look(r);
	ok(w.n == 0 && seen(r) == OUTCOME_SKIPPED);
	/* a certificate that we do not trust has come all the same */
	fresh(r, UNVERIFIED, OPEN);
	look(r);
	ok(seen(r) == OUTCOME_TIMEOUT);
}

static void test_other(struct run *r)
{
	fresh(r, OPEN, OPEN);
	w.asked = CODE_NONE;
	look(r);
	ok(w.n == 0 && seen(r) == OUTCOME_SKIPPED);
	fresh(r, DEAF, DEAF);
	look(r);
	ok(w.n == 4 && seen(r) == OUTCOME_OK);
	fresh(r, CLOSED, OPEN);
	look(r);
	ok(seen(r) == OUTCOME_OK);
	fresh(r, FLICKERS, OPEN);
	look(r);
	ok(w.n == 3 && seen(r) == OUTCOME_OK);
	fresh(r, SILENT, SILENT);
	look(r);
	ok(w.n == 2 && seen(r) == OUTCOME_OK);
	fresh(r, OURS, OPEN);
	look(r);
	ok(seen(r) == OUTCOME_UNKNOWN);
	fresh(r, OPEN, OPEN);
	w.error = -EMFILE;
	look(r);
	ok(seen(r) == OUTCOME_UNKNOWN);
}

static void test_targets(struct run *r)
{
	struct node n = r->node;
	struct words words;

	put_endpoint(&r->node.apiserver, "X.gr7.eks.amazonaws.com", "10.0.0.3", "");
	fresh(r, DEAF, DEAF);
	w.ways[3] = SMALL_ONLY;
	w.asked = CODE_ApiServerTimeout;
	look(r);
	ok(w.calls[0].to == 3 && judged(r, &words) == CODE_PathMtuBlackhole &&
	   strstr(words.summary, "the API server at 10.0.0.3"));
	/* what is reached through a proxy has another way */
	(void) text_format(r->node.proxy.host, sizeof(r->node.proxy.host), "proxy");
	fresh(r, SMALL_ONLY, SMALL_ONLY);
	look(r);
	ok(w.n == 0 && seen(r) == OUTCOME_UNKNOWN);
	r->node = n;
	(void) text_format(r->node.endpoints[SERVICE_EC2].scheme, 8, "http");
	look(r);
	ok(w.n == 0 && seen(r) == OUTCOME_UNKNOWN);
	r->node = n;
	r->net_error = -EPERM;
	look(r);
	ok(judged(r, &words) == CODE_PathMtuBlackhole && !strstr(words.summary, "mtu"));
	r->net_error = 0;
}

int main(void)
{
	static const struct net_link links[] = {{.name = "ens5", .index = 2, .mtu = 9001}};
	static const struct net_route routes[] = {
		{.family = AF_INET, .table = RT_TABLE_MAIN, .type = RTN_UNICAST, .oif = 2}};
	static const struct net net = {
		.links = links, .n_links = 1, .routes = routes, .n_routes = ELEMENTS(routes)};
	struct run *r = calloc(1, sizeof(*r));

	if (!r)
		return 1;
	r->state = calloc(1, sizeof(struct state));
	r->memory = calloc(1, sizeof(struct memory));
	r->net = &net;
	r->now = 1000 * USEC_PER_SEC;
	put_endpoint(&r->node.endpoints[SERVICE_EC2], "ec2.us-west-2.amazonaws.com", "10.0.0.1",
	             "10.0.0.2");
	if (!r->state || !r->memory)
		return 1;
	test_size(r);
	test_other(r);
	test_targets(r);
	free(r->state);
	free(r->memory);
	free(r);
	return done();
}
