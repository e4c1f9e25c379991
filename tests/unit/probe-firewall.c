/* SPDX-License-Identifier: Apache-2.0 */
/* The firewall probe against rules that stop an address, a protocol, or nothing. */
#define run_http        fake_http
#define run_asked       fake_asked
#define run_unit        fake_unit
#define run_uptime      fake_uptime
#define run_recall      fake_recall
#define run_local_block fake_local_block
#define probe_firewall  tested_firewall

#include "../fakerun.h"

#include "../../probes/firewall.c"

#include "../tap.h"

enum { STOPPED_MAX = 4 };

static struct {
	enum code asked;
	const char *stopped[STOPPED_MAX]; /* addresses to which no datagram leaves */
	uint16_t no_port;                 /* or to that port at all */
	int error;                        /* how it is stopped */
	enum http_stage stage;            /* how far a connection comes */
	enum outcome outcome;
	const char *active, *answered;
	int bus_error;
	run_http_t http;
	run_unit_t unit;
	uintptr_t tag;
	unsigned blocks, connects, units;
} w;

int fake_local_block(struct run *r, const struct address *to, uint16_t port)
{
	char text[ADDRESS_TEXT_MAX];

	w.blocks++;
	address_format(to, text);
	for (size_t i = 0; i < STOPPED_MAX; i++)
		if (w.stopped[i] && strcmp(w.stopped[i], text) == 0)
			return w.error;
	return port == w.no_port ? w.error : 0;
}

int fake_http(struct run *r, const struct http_request *rq, run_http_t cb, uintptr_t tag)
{
	w.connects++;
	w.http = cb;
	return 0;
}

int fake_unit(struct run *r, const char *unit, usec_t timeout, run_unit_t cb, uintptr_t tag)
{
	w.units++;
	w.unit = cb;
	w.tag = tag;
	return 0;
}

enum code fake_asked(const struct run *r)
{
	return w.asked;
}

usec_t fake_uptime(const struct run *r)
{
	return r->now;
}

const char *fake_recall(const struct run *r, const char *key)
{
	return w.answered && strcmp(w.answered, key) == 0 ? "answered" : NULL;
}

static void look(struct run *r)
{
	for (size_t i = 0; i < r->n_reads; i++)
		free(r->reads[i]);
	r->n_seen = r->n_reads = 0;
	r->ended = false;
	w.blocks = w.connects = w.units = 0;
	memset(r->state, 0, sizeof(struct state));
	ok(tested_firewall.start(r) == 0);
	if (!r->ended && w.connects) {
		struct http_reply reply = {.stage = w.stage, .outcome = w.outcome};

		w.http(r, &reply, 0);
	}
	while (!r->ended && w.units <= ELEMENTS(services)) {
		struct unit u = {.active = "inactive"};
		struct bus_reply reply = {.error = w.bus_error, .unit = w.bus_error ? NULL : &u};

		if (w.active && strcmp(w.active, services[w.tag]) == 0)
			(void) text_format(u.active, sizeof(u.active), "active");
		w.unit(r, &reply, w.tag);
	}
}

static enum outcome seen(const struct run *r)
{
	return r->n_seen == 1 && r->ended ? r->seen[0].outcome : _OUTCOME_MAX;
}

static bool says(const struct run *r, const char *text)
{
	struct words words;

	return tested_firewall.judge(&r->seen[0], &words) == CODE_FirewallRejects &&
	       strcmp(words.summary, text) == 0;
}

static void fresh(struct run *r, enum code asked)
{
	memset(r->memory, 0, sizeof(struct memory));
	memset(&w, 0, sizeof(w));
	w.asked = asked;
	w.error = EPERM;
	w.outcome = OUTCOME_TIMEOUT;
	w.stage = HTTP_CONNECTING;
	r->text = "nameserver 127.0.0.53\nnameserver 10.0.0.2\n";
	r->text_len = strlen(r->text);
}

static void put_endpoint(struct endpoint *e, const char *host, const char *address)
{
	(void) text_format(e->host, sizeof(e->host), "%s", host);
	e->port = 443;
	(void) address_parse(&e->addresses[0], address);
	e->n = 1;
}

static void test_address(struct run *r)
{
	fresh(r, CODE_EndpointTimeout);
	look(r);
	ok(seen(r) == OUTCOME_OK && w.blocks == 2 && !w.connects);
	r->now += known_for;
	w.stopped[0] = "10.0.0.11";
	look(r);
	ok(says(r, "a rule on this node stops packets to ec2 at 10.0.0.11 port 443 (EPERM)"));
	ok(w.connects == 1 && w.units == ELEMENTS(services));
	/* said again, whoever asks; then looked at anew, until it is over */
	w.asked = CODE_NONE;
	r->now += USEC_PER_SEC;
	look(r);
	ok(seen(r) == OUTCOME_DENIED && !w.blocks);
	r->now += known_for;
	w.active = "nftables.service";
	look(r);
	ok(says(r, "a rule on this node stops packets to ec2 at 10.0.0.11 port 443 (EPERM); "
	           "nftables.service is active"));
	r->now += known_for;
	w.stopped[0] = NULL;
	look(r);
	ok(seen(r) == OUTCOME_OK);
	r->now += known_for;
	look(r);
	ok(seen(r) == OUTCOME_SKIPPED && !w.blocks);
	/* without a bus it is told all the same */
	fresh(r, CODE_ApiServerTimeout);
	w.stopped[0] = "10.0.0.20";
	w.bus_error = -ENOENT;
	look(r);
	ok(says(r, "a rule on this node stops packets to the API server at 10.0.0.20 port 443 "
	           "(EPERM)"));
}

static void test_other(struct run *r)
{
	fresh(r, CODE_NONE);
	w.stopped[0] = "10.0.0.11";
	look(r);
	ok(seen(r) == OUTCOME_SKIPPED && !w.blocks); /* nobody asks */
	fresh(r, CODE_EndpointTimeout);
	w.no_port = 443; /* no datagrams to that port at all: by design, maybe */
	look(r);
	ok(seen(r) == OUTCOME_OK && !w.connects);
	fresh(r, CODE_EndpointTimeout);
	w.stopped[0] = "10.0.0.11";
	w.stage = HTTP_WAITING; /* datagrams alone */
	look(r);
	ok(seen(r) == OUTCOME_OK);
	w.stage = HTTP_CONNECTING;
	w.outcome = OUTCOME_UNKNOWN;
	r->now += known_for;
	look(r);
	ok(seen(r) == OUTCOME_UNKNOWN);
	fresh(r, CODE_EndpointTimeout);
	w.stopped[0] = "10.0.0.11";
	w.error = EHOSTUNREACH; /* a route: that is said elsewhere */
	look(r);
	ok(seen(r) == OUTCOME_OK);
	w.error = EPERM;
	r->net_error = -EPERM; /* no gateway to hold it against */
	r->now += known_for;
	look(r);
	ok(seen(r) == OUTCOME_OK && !w.connects);
	r->net_error = 0;
	/* what the node does without */
	fresh(r, CODE_EndpointTimeout);
	r->node.ready = YES;
	w.stopped[0] = "10.0.0.30";
	look(r);
	ok(seen(r) == OUTCOME_OK);
	w.answered = "endpoint.s3";
	r->now += known_for;
	look(r);
	ok(seen(r) == OUTCOME_DENIED);
}

static void test_nameserver(struct run *r)
{
	fresh(r, CODE_EndpointTimeout);
	w.no_port = 53;
	look(r);
	ok(seen(r) == OUTCOME_OK); /* it answered over TCP, or another did */
	fresh(r, CODE_ResolverUnreachable);
	w.no_port = 53;
	look(r);
	ok(says(r, "a rule on this node stops packets to a nameserver at 10.0.0.2 port 53 "
	           "(EPERM)"));
	ok(!w.connects);
	w.asked = CODE_NONE;
	r->now += known_for;
	look(r);
	ok(seen(r) == OUTCOME_DENIED);
	w.no_port = 0;
	r->now += known_for;
	look(r);
	ok(seen(r) == OUTCOME_OK);
	fresh(r, CODE_ResolverUnreachable);
	w.stopped[0] = "127.0.0.53"; /* a stub is another's matter */
	look(r);
	ok(seen(r) == OUTCOME_OK);
	fresh(r, CODE_ResolverUnreachable);
	r->text = NULL;
	look(r);
	ok(seen(r) == OUTCOME_OK);
}

int main(void)
{
	static struct net_route routes[] = {
		{.family = AF_INET, .table = RT_TABLE_MAIN, .type = RTN_UNICAST, .oif = 2}};
	static const struct net net = {.routes = routes, .n_routes = ELEMENTS(routes)};
	struct run *r = calloc(1, sizeof(*r));

	if (!r)
		return 1;
	(void) address_parse(&routes[0].gateway, "10.0.0.1");
	r->state = calloc(1, sizeof(struct state));
	r->memory = calloc(1, sizeof(struct memory));
	r->net = &net;
	r->now = 10000 * USEC_PER_SEC;
	put_endpoint(&r->node.endpoints[SERVICE_EC2], "ec2.us-west-2.amazonaws.com", "10.0.0.11");
	put_endpoint(&r->node.endpoints[SERVICE_S3], "s3.us-west-2.amazonaws.com", "10.0.0.30");
	put_endpoint(&r->node.apiserver, "X.gr7.us-west-2.eks.amazonaws.com", "10.0.0.20");
	r->node.ready = YES;
	if (!r->state || !r->memory)
		return 1;
	test_address(r);
	test_other(r);
	test_nameserver(r);
	for (size_t i = 0; i < r->n_reads; i++)
		free(r->reads[i]);
	free(r->state);
	free(r->memory);
	free(r);
	return done();
}
