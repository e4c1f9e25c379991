/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoints that some nodes ask and others do not: when one that is silent is a fault, and what
 * is looked at anew while another one fails. */
#include <errno.h>

#define run_slot        fake_slot
#define run_uptime      fake_uptime
#define run_env         fake_env
#define run_asked       fake_asked
#define run_recall      fake_recall
#define run_remember    fake_remember
#define run_http        fake_http
#define run_local_block fake_local_block
#define run_witness     fake_witness
#define probe_endpoint  tested_endpoint

#include "../fakerun.h"
#include "../tap.h"

#include "../../probes/endpoint.c"

void fake_witness(struct run *r, enum witness w, const struct http_reply *reply)
{
}

static struct picture {
	unsigned slot;
	usec_t uptime;
	enum code asked;
	bool answers, called, connect_only;
	int proxy; /* the status of its answer to CONNECT; 0: silent */
	bool proxied;
	char remembered[_SERVICE_MAX][REMEMBER_MAX]; /* by endpoint */
} p;

unsigned fake_slot(const struct run *r)
{
	return p.slot;
}

usec_t fake_uptime(const struct run *r)
{
	return p.uptime;
}

const char *fake_env(const struct run *r, const char *name)
{
	return NULL;
}

enum code fake_asked(const struct run *r)
{
	return p.asked;
}

static char *remembered(const char *key)
{
	int s = strncmp(key, "endpoint.", 9) == 0 ? service_from_name(key + 9) : -1;

	ok(s >= 0);
	return p.remembered[s < 0 ? 0 : s];
}

const char *fake_recall(const struct run *r, const char *key)
{
	const char *value = remembered(key);

	return value[0] ? value : NULL;
}

void fake_remember(struct run *r, const char *key, const char *value)
{
	(void) snprintf(remembered(key), REMEMBER_MAX, "%s", value);
}

int fake_local_block(struct run *r, const struct address *to, uint16_t port)
{
	return 0;
}

int fake_http(struct run *r, const struct http_request *rq, run_http_t answer, uintptr_t tag)
{
	struct http_reply h = {.outcome = OUTCOME_TIMEOUT,
	                       .code = ETIMEDOUT,
	                       .total = 1200 * USEC_PER_MSEC,
	                       .body = "",
	                       .date = ""};

	p.called = true;
	p.proxied = rq->proxy != NULL;
	p.connect_only = rq->connect_only;
	if (p.proxied)
		h.proxy_status = p.proxy;
	if (p.proxied ? p.proxy == 200 : p.answers)
		h = (struct http_reply){.outcome = OUTCOME_OK,
		                        .stage = HTTP_DONE,
		                        .code = 403,
		                        .status = 403,
		                        .connect = 1000,
		                        .tls = 3000,
		                        .first_byte = 4000};
	if (p.answers && p.connect_only)
		h = (struct http_reply){.outcome = OUTCOME_OK, .stage = HTTP_TLS, .connect = 1500};
	answer(r, &h, tag);
	return 0;
}

static enum code look(struct run *r, enum service s)
{
	p.slot = s;
	p.called = false;
	ok(fake_run(r, &tested_endpoint) == 0 && r->ended && r->n_seen == N_PARTS);
	return fake_judge(r, &tested_endpoint, "tcp");
}

static enum outcome seen(const struct run *r)
{
	return fake_find(r, "http", NULL)->outcome;
}

static void needs(void)
{
	struct node n = {0};
	usec_t boot = 60 * USEC_PER_SEC, later = 600 * USEC_PER_SEC;

	ok(node_misses(&n, SERVICE_EC2, false, boot) == MISSES_IT);
	n.ready = YES;
	ok(node_misses(&n, SERVICE_STS, false, later) == MISSES_IT);
	ok(node_misses(&n, SERVICE_S3, false, later) == MISSES_NOTHING);
	ok(node_misses(&n, SERVICE_S3, true, later) == MISSES_IT);
	for (int ready = CANNOT_TELL; ready <= NO; ready++) {
		n.ready = (enum tristate) ready;
		ok(node_misses(&n, SERVICE_ECR_API, false, boot) == MISSES_UNSURE);
		ok(node_misses(&n, SERVICE_ECR_API, false, later) == MISSES_IT);
		ok(node_misses(&n, SERVICE_ECR_DKR, true, boot) == MISSES_IT);
	}
	ok(node_misses(&n, SERVICE_EKS, true, later) == MISSES_NOTHING);
	n.asks_eks = true;
	ok(node_misses(&n, SERVICE_EKS, false, boot) == MISSES_IT);
	(void) snprintf(n.apiserver.host, sizeof(n.apiserver.host), "x");
	ok(node_misses(&n, SERVICE_EKS, false, later) == MISSES_NOTHING);
}

static void silent(struct run *r)
{
	p.answers = false;
	ok(look(r, SERVICE_EC2) == CODE_EndpointTimeout);
	ok(look(r, SERVICE_ECR_API) == CODE_EndpointTimeout);
	p.uptime = 30 * USEC_PER_SEC;
	ok(look(r, SERVICE_ECR_API) == CODE_NONE && seen(r) == OUTCOME_UNKNOWN);
	p.uptime = 3600 * USEC_PER_SEC;
	r->node.ready = YES; /* a private cluster whose images come from a mirror */
	ok(look(r, SERVICE_ECR_API) == CODE_NONE && seen(r) == OUTCOME_SKIPPED);
	p.answers = true;
	ok(look(r, SERVICE_ECR_API) == CODE_NONE && seen(r) == OUTCOME_OK);
	p.answers = false; /* it was used, and is no longer there */
	ok(look(r, SERVICE_ECR_API) == CODE_EndpointTimeout);
	ok(look(r, SERVICE_EKS) == CODE_NONE && seen(r) == OUTCOME_SKIPPED && !p.called);
	r->node.asks_eks = true; /* bootstrap.sh waits for it */
	ok(look(r, SERVICE_EKS) == CODE_EndpointTimeout && p.called);
	r->node.endpoints[SERVICE_ECR_DKR].host[0] = 0;
	ok(look(r, SERVICE_ECR_DKR) == CODE_NONE && seen(r) == OUTCOME_UNKNOWN && !p.called);
}

/* Two of three looks at one that is well are a connect, which says nothing new of TLS and HTTP, and
 * nothing at all when it fails but that. */
static void two_of_three(struct run *r)
{
	usec_t first = r->now;

	p.answers = true;
	ok(look(r, SERVICE_EC2) == CODE_NONE && !p.connect_only && seen(r) == OUTCOME_OK);
	r->now += 20 * USEC_PER_SEC;
	ok(look(r, SERVICE_EC2) == CODE_NONE && p.connect_only && seen(r) == OUTCOME_OK);
	ok(fake_find(r, "tcp", "ec2")->at == r->now && fake_find(r, "tcp", "ec2")->took == 1500);
	ok(fake_find(r, "tls", "ec2")->at == first && fake_find(r, "http", "ec2")->at == first);
	ok(look(r, SERVICE_EC2) == CODE_NONE && p.connect_only);
	ok(look(r, SERVICE_EC2) == CODE_NONE && !p.connect_only);
	p.answers = false;
	ok(look(r, SERVICE_EC2) == CODE_EndpointTimeout && p.connect_only);
	ok(seen(r) == OUTCOME_UNKNOWN);
	ok(look(r, SERVICE_EC2) == CODE_EndpointTimeout && !p.connect_only);
	p.answers = true;
	ok(look(r, SERVICE_EC2) == CODE_NONE && !p.connect_only);
	ok(look(r, SERVICE_EC2) == CODE_NONE && p.connect_only);
	p.asked = CODE_EndpointTlsStalled; /* a connect would not tell */
	ok(look(r, SERVICE_EC2) == CODE_NONE && p.called && !p.connect_only);
	p.asked = CODE_NONE;
	p.answers = false;
}

static void asked(struct run *r)
{
	usec_t now = r->now;

	p.answers = true;
	ok(look(r, SERVICE_STS) == CODE_NONE && p.called);
	p.asked = CODE_EndpointTimeout;
	p.answers = false;
	r->now += 10 * USEC_PER_SEC; /* it was looked at just now */
	ok(look(r, SERVICE_STS) == CODE_NONE && !p.called && seen(r) == OUTCOME_OK);
	ok(fake_find(r, "tcp", "sts")->at == now);
	r->now += 30 * USEC_PER_SEC;
	ok(look(r, SERVICE_STS) == CODE_EndpointTimeout && p.called);
	r->now += USEC_PER_SEC; /* what fails is looked at each time */
	ok(look(r, SERVICE_STS) == CODE_EndpointTimeout && p.called);
	p.asked = CODE_NONE;
}

static bool says(const struct run *r, const char *word)
{
	struct words w = {0};

	return tested_endpoint.judge(fake_find(r, "tcp", NULL), &w) != CODE_NONE &&
	       strstr(w.summary, word);
}

static void through_a_proxy(struct run *r)
{
	struct endpoint *e = &r->node.proxy, *ec2 = &r->node.endpoints[SERVICE_EC2];

	*e = (struct endpoint){.host = "proxy", .scheme = "http", .port = 3128, .n = 1};
	(void) address_parse(&e->addresses[0], "10.0.20.20");
	p.answers = true;
	ok(look(r, SERVICE_EC2) == CODE_NONE && !p.proxied);
	p.answers = false;
	p.proxy = 200;
	ok(look(r, SERVICE_EC2) == CODE_NONE && p.proxied && seen(r) == OUTCOME_OK);
	p.proxy = 403;
	ok(look(r, SERVICE_EC2) == CODE_EndpointTimeout);
	ok(says(r, "no connection in 1.2 s; the proxy answers 403 to CONNECT"));
	p.proxy = 0; /* then it is the proxy that is to blame */
	ok(look(r, SERVICE_EC2) == CODE_NONE && seen(r) == OUTCOME_UNKNOWN);
	p.proxy = 407;
	ok(look(r, SERVICE_EC2) == CODE_NONE && seen(r) == OUTCOME_UNKNOWN);
	ec2->n = 0; /* names are the proxy's to resolve */
	p.proxy = 200;
	ok(look(r, SERVICE_EC2) == CODE_NONE && p.proxied && seen(r) == OUTCOME_OK);
	p.proxy = 502;
	ok(look(r, SERVICE_EC2) == CODE_EndpointRefused);
	ok(says(r, "ec2 through proxy proxy:3128: it answers 502 to CONNECT"));
	ec2->n = 1;
	(void) snprintf(r->node.no_proxy, sizeof(r->node.no_proxy), "x");
	ok(look(r, SERVICE_EC2) == CODE_EndpointTimeout && !p.proxied);
	*e = (struct endpoint){0};
}

int main(void)
{
	struct run r = {.now = 1000 * USEC_PER_SEC};

	p.uptime = 3600 * USEC_PER_SEC;
	for (int i = 0; i < _SERVICE_MAX; i++) {
		struct endpoint *e = &r.node.endpoints[i];

		*e = (struct endpoint){.host = "x", .scheme = "https", .port = 443, .n = 1};
		(void) address_parse(&e->addresses[0], "10.0.0.9");
	}
	needs();
	silent(&r);
	two_of_three(&r);
	asked(&r);
	through_a_proxy(&r);
	fake_free(&r);
	return done();
}
