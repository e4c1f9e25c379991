/* SPDX-License-Identifier: Apache-2.0 */
/* Do the AWS endpoints answer? One HTTPS request a look, told as TCP, TLS and HTTP. Any status line
 * after a verified handshake is an answer: the request is not signed and not meant to succeed.
 * While all is well, two of three looks are a TCP connect alone: new TLS connections cost the far
 * side, and a path that breaks breaks there first. */
#include <errno.h>

#include "probe.h"

enum { BODY_MAX = 262144, LIGHT_LOOKS = 2 };

/* In the order in which they are gone through. */
enum part { TCP, TLS, HTTP, N_PARTS };

static const char *const aspects[N_PARTS] = {"tcp", "tls", "http"};

static const usec_t sound_for = 30 * USEC_PER_SEC;

struct state {
	struct address address;
	bool through;            /* the proxy, at last */
	struct http_reply alone; /* how it failed without it; of its texts, what it holds itself */
};

struct memory {
	unsigned turn[_SERVICE_MAX];  /* which of several addresses comes next */
	bool good[_SERVICE_MAX];      /* at the last look */
	unsigned light[_SERVICE_MAX]; /* looks since that were a connect alone */
	usec_t at[_SERVICE_MAX];
	struct observation last[_SERVICE_MAX][N_PARTS];
};

/* ---- evidence ---- */

static void observe_all(struct run *r, enum outcome outcome, const char *why)
{
	for (size_t i = 0; i < N_PARTS; i++)
		observation_detail(run_observe(r, LAYER_ENDPOINT, aspects[i],
		                               service_name(run_slot(r)), outcome, 0),
		                   "%s", why);
}

/* Whether it ever was reached outlives the daemon: see node_misses(). */
static enum misses misses(struct run *r, bool good)
{
	enum service s = run_slot(r);
	char key[32];

	(void) text_format(key, sizeof(key), "endpoint.%s", service_name(s));
	if (good && !run_recall(r, key))
		run_remember(r, key, "answered");
	return node_misses(run_node(r), s, run_recall(r, key) != NULL, run_uptime(r));
}

static void add_target(struct run *r, struct observation *o)
{
	const struct endpoint *e = &run_node(r)->endpoints[run_slot(r)];
	const struct state *s = run_state(r);
	char address[ADDRESS_TEXT_MAX];

	observation_text(o, "host", "%s", e->host);
	if (s->through) {
		observation_text(o, "proxy", "%s:%u", run_node(r)->proxy.host,
		                 run_node(r)->proxy.port);
		return;
	}
	observation_text(o, "address", "%s", address_format(&s->address, address));
	observation_number(o, "private", address_is_private(&s->address));
}

/* A refusal, an error or silence: does it come from this node? */
static void add_failure(struct run *r, struct observation *o, const struct http_reply *reply)
{
	const struct endpoint *e = &run_node(r)->endpoints[run_slot(r)];
	const struct state *s = run_state(r);
	int datagram;

	if (reply->outcome != OUTCOME_UNTRUSTED && reply->code)
		observation_number(o, "errno", reply->code);
	observation_number(o, "total_ms", (int64_t) (reply->total / USEC_PER_MSEC));
	if (reply->proxy_status >= 300)
		observation_number(o, "proxy_status", reply->proxy_status);
	if (reply->stage != HTTP_CONNECTING || s->through)
		return;
	datagram = run_local_block(r, &s->address, e->port);
	if (datagram)
		observation_number(o, "datagram_errno", datagram);
}

static void add_part(struct run *r, struct observation *o, enum part part,
                     const struct http_reply *reply)
{
	if (part >= TLS || reply->connect)
		observation_number(o, "connect_ms", (int64_t) (reply->connect / USEC_PER_MSEC));
	if (part >= TLS && reply->tls)
		observation_number(o, "tls_ms", (int64_t) (reply->tls / USEC_PER_MSEC));
	if (part == TLS && reply->tls_error[0])
		observation_text(o, "tls_error", "%s", reply->tls_error);
	if (part == TLS && reply->tls_issuer[0])
		observation_text(o, "issuer", "%s", reply->tls_issuer);
	if (part == HTTP && reply->status)
		observation_number(o, "http_status", reply->status);
}

/* ---- what the reply comes to ---- */

static enum part part_of(const struct http_reply *reply)
{
	return reply->stage == HTTP_CONNECTING ? TCP : reply->stage == HTTP_TLS ? TLS : HTTP;
}

static bool is_plain(struct run *r)
{
	return strcmp(run_node(r)->endpoints[run_slot(r)].scheme, "http") == 0;
}

static usec_t took(enum part part, const struct http_reply *reply)
{
	usec_t first = reply->first_byte ? reply->first_byte : reply->total;

	return part == TCP   ? reply->connect
	       : part == TLS ? reply->tls > reply->connect ? reply->tls - reply->connect : 0
	                     : first;
}

static enum outcome outcome_of(enum part part, const struct http_reply *reply)
{
	/* a status line has come, whatever became of the body */
	if (part == HTTP && reply->status)
		return reply->status >= 500 ? OUTCOME_FAILED : OUTCOME_OK;
	/* ours: the bundle that AWS_CA_BUNDLE names */
	if (part == TLS && reply->outcome == OUTCOME_ABSENT)
		return OUTCOME_UNKNOWN;
	return reply->outcome;
}

static void describe(const struct observation *o, char *dst, size_t size);

/* A name that leads to this node itself, or nowhere, is no public address. */
static const char *kind_of(const struct observation *o)
{
	struct address a;

	if (address_parse(&a, evidence_get_text(o, "address")) == 0)
		return address_kind(&a);
	return evidence_number(o, "private", 0) ? "private" : "public";
}

static void describe_good(struct observation *o, enum part part)
{
	double ms = (double) o->took / USEC_PER_MSEC;

	if (part == TCP && evidence_get_text(o, "proxy")[0])
		observation_detail(o, "connects through %s in %.1f ms",
		                   evidence_get_text(o, "proxy"), ms);
	else if (part == TCP)
		observation_detail(o, "%s (%s) connects in %.1f ms",
		                   evidence_get_text(o, "address"), kind_of(o), ms);
	else if (part == TLS)
		observation_detail(o, "certificate verified in %.1f ms", ms);
	else
		observation_detail(o, "HTTP %d in %.1f ms", o->code, ms);
}

static void observe(struct run *r, enum part part, const struct http_reply *reply)
{
	enum part reached = part_of(reply);
	enum outcome outcome = part < reached ? OUTCOME_OK : outcome_of(part, reply);
	int code = part == HTTP && reply->status ? reply->status : reply->code;
	struct memory *m = run_memory(r);
	struct observation *o;

	if (part > reached)
		outcome = OUTCOME_UNKNOWN;
	else if (part == TLS && part < reached && is_plain(r))
		outcome = OUTCOME_SKIPPED;
	o = run_observe(r, LAYER_ENDPOINT, aspects[part], service_name(run_slot(r)), outcome,
	                part == reached ? code : 0);
	if (!o)
		return;
	if (part > reached) {
		observation_detail(o, "not tried: %s failed", aspects[reached]);
		return;
	}
	o->took =
		part == reached && reply->outcome != OUTCOME_OK ? reply->total : took(part, reply);
	add_target(r, o);
	add_part(r, o, part, reply);
	if (part == reached && reply->outcome != OUTCOME_OK)
		add_failure(r, o, reply);
	if (outcome == OUTCOME_UNKNOWN)
		observation_detail(o, "cannot look: %s",
		                   reply->tls_error[0] ? reply->tls_error : strerror(reply->code));
	else if (outcome == OUTCOME_OK)
		describe_good(o, part);
	else if (outcome != OUTCOME_SKIPPED)
		describe(o, o->detail, sizeof(o->detail));
	m->last[run_slot(r)][part] = *o;
}

static void conclude(struct run *r, const struct http_reply *reply)
{
	bool good = outcome_of(HTTP, reply) == OUTCOME_OK && part_of(reply) == HTTP;
	struct memory *m = run_memory(r);
	enum misses missed = misses(r, good);

	run_witness(r, WITNESS_ENDPOINT, reply);
	m->good[run_slot(r)] = good;
	m->light[run_slot(r)] = 0;
	m->at[run_slot(r)] = run_now(r);
	if (good || missed == MISSES_IT)
		for (enum part p = 0; p < N_PARTS; p++)
			observe(r, p, reply);
	else if (missed == MISSES_UNSURE)
		observe_all(r, OUTCOME_UNKNOWN, "cannot tell yet whether this node needs it");
	else
		observe_all(r, OUTCOME_SKIPPED, "no answer, and the node is Ready without it");
	run_end(r);
}

static struct http_request request(const struct run *r, const struct endpoint *e)
{
	return (struct http_request){
		.method = "GET",
		.scheme = e->scheme,
		.host = e->host,
		.port = e->port,
		.path = "/",
		.ca_file = run_env(r, "AWS_CA_BUNDLE"),
		.connect_timeout = 1200 * USEC_PER_MSEC,
		.timeout = 4 * USEC_PER_SEC,
		.body_max = BODY_MAX,
	};
}

/* Through the proxy. That this fails is the proxy's matter, unless it says itself that it does not
 * get there: then it is as it was without it. */
static void on_through(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);

	if (reply->status || (reply->stage == HTTP_TLS && reply->proxy_status / 100 == 2)) {
		conclude(r, reply);
		return;
	}
	if (reply->proxy_status && reply->proxy_status != 407) {
		s->through = !s->address.family; /* it has no other way at all */
		if (s->through)
			s->alone = (struct http_reply){.outcome = OUTCOME_REFUSED};
		s->alone.proxy_status = reply->proxy_status;
		conclude(r, &s->alone);
		return;
	}
	m->good[run_slot(r)] = false;
	observe_all(
		r, OUTCOME_UNKNOWN,
		"cannot tell: it is reached through a proxy, which does not let us (see proxy)");
	run_end(r);
}

/* Where programs of this node go through a proxy, there may be no other way. */
static bool go_through(struct run *r)
{
	const struct endpoint *e = &run_node(r)->endpoints[run_slot(r)],
			      *proxy = &run_node(r)->proxy;
	struct http_proxy via = {.scheme = proxy->scheme, .host = proxy->host, .port = proxy->port};
	struct state *s = run_state(r);
	struct http_request rq;

	if (!node_is_proxied(run_node(r), e->host, e->port) || proxy->n == 0)
		return false;
	via.address = proxy->addresses[0];
	rq = request(r, e);
	rq.address = via.address; /* the endpoint's is the proxy's to find */
	rq.proxy = &via;
	s->through = true;
	if (run_http(r, &rq, on_through, 0) == 0)
		return true;
	s->through = false;
	return false;
}

static void on_reply(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);

	s->alone = *reply;
	if (reply->status || !go_through(r))
		conclude(r, reply);
}

/* What the last look saw of this part, with its time. */
static void say_again(struct run *r, enum part part)
{
	enum service s = run_slot(r);
	const struct memory *m = run_memory(r);
	struct observation *o =
		run_observe(r, LAYER_ENDPOINT, aspects[part], service_name(s), OUTCOME_UNKNOWN, 0);

	if (o)
		*o = m->last[s][part];
}

/* The connect between two whole requests. That it fails is told as of one of them. */
static void on_connect(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct memory *m = run_memory(r);

	if (reply->outcome != OUTCOME_OK) {
		on_reply(r, reply, tag);
		return;
	}
	m->light[run_slot(r)]++;
	m->at[run_slot(r)] = run_now(r);
	observe(r, TCP, reply);
	say_again(r, TLS);
	say_again(r, HTTP);
	run_end(r);
}

/* While one endpoint fails, all are asked to look: whether it is one or all is worth a look, and
 * then for a while what that look saw. */
static bool repeat(struct run *r)
{
	const struct memory *m = run_memory(r);
	enum service s = run_slot(r);

	if (run_asked(r) == CODE_NONE || !m->good[s] || m->light[s] ||
	    run_now(r) - m->at[s] >= sound_for)
		return false;
	for (enum part i = 0; i < N_PARTS; i++)
		say_again(r, i);
	return true;
}

static int start(struct run *r)
{
	const struct endpoint *e = &run_node(r)->endpoints[run_slot(r)];
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	struct http_request rq;

	if (run_slot(r) == SERVICE_EKS && misses(r, false) == MISSES_NOTHING) {
		observe_all(r, OUTCOME_SKIPPED, "this node does not ask it");
		run_end(r);
		return 0;
	}
	if (repeat(r)) {
		run_end(r);
		return 0;
	}
	if (e->host[0] && e->n == 0 && go_through(r))
		return 0;
	if (!e->host[0] || e->n == 0) {
		observe_all(r, OUTCOME_UNKNOWN,
		            e->host[0] ? "cannot tell: no address known yet"
		                       : "cannot tell: its name is not known (see dns)");
		run_end(r);
		return 0;
	}
	s->address = e->addresses[m->turn[run_slot(r)]++ % e->n];
	rq = request(r, e);
	rq.address = s->address;
	rq.connect_only = m->good[run_slot(r)] && m->light[run_slot(r)] < LIGHT_LOOKS &&
	                  run_asked(r) == CODE_NONE &&
	                  !node_is_proxied(run_node(r), e->host, e->port);
	return run_http(r, &rq, rq.connect_only ? on_connect : on_reply, 0);
}

/* ---- the judgement ---- */

static enum code code_of(const struct observation *o)
{
	bool tls = strcmp(o->aspect, aspects[TLS]) == 0;

	if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	    o->outcome == OUTCOME_UNKNOWN)
		return CODE_NONE;
	if (strcmp(o->aspect, aspects[HTTP]) == 0)
		return CODE_EndpointFailing;
	if (o->outcome == OUTCOME_UNTRUSTED || o->outcome == OUTCOME_EXPIRED)
		return CODE_EndpointUntrusted;
	if (o->outcome == OUTCOME_TIMEOUT)
		return tls ? CODE_EndpointTlsStalled : CODE_EndpointTimeout;
	return CODE_EndpointRefused;
}

static void describe_why(const struct observation *o, char *dst, size_t size)
{
	const char *issuer = evidence_get_text(o, "issuer"),
		   *tls_error = evidence_get_text(o, "tls_error");
	int error = (int) evidence_number(o, "errno", 0);
	int status = (int) evidence_number(o, "http_status", 0);
	int64_t ms = evidence_number(o, "total_ms", 0);
	bool tcp = strcmp(o->aspect, aspects[TCP]) == 0, tls = strcmp(o->aspect, aspects[TLS]) == 0;

	if (status)
		(void) text_append(dst, size, "HTTP %d", status);
	else if (o->outcome == OUTCOME_TIMEOUT)
		(void) text_append(dst, size, "%s in %lld.%lld s",
		                   tcp   ? "no connection"
		                   : tls ? "connected, no TLS answer"
		                         : "TLS stands, no HTTP answer",
		                   (long long) ms / 1000, (long long) ms % 1000 / 100);
	else if (o->outcome == OUTCOME_UNTRUSTED || o->outcome == OUTCOME_EXPIRED)
		(void) text_append(dst, size, "%s, issuer \"%s\"", tls_error, issuer);
	else if (o->outcome == OUTCOME_RESET)
		(void) text_append(dst, size, "connection closed during %s",
		                   tcp   ? "the connect"
		                   : tls ? "the TLS handshake"
		                         : "the request");
	else if (tls && tls_error[0])
		(void) text_append(dst, size, "no TLS: %s", tls_error);
	else if (error)
		(void) text_append(dst, size, "%s", strerror(error));
	else
		(void) text_append(dst, size, "no HTTP answer");
}

static void describe(const struct observation *o, char *dst, size_t size)
{
	int datagram = (int) evidence_number(o, "datagram_errno", 0);
	int64_t refusal = evidence_number(o, "proxy_status", 0);
	const char *proxy = evidence_get_text(o, "proxy");

	if (proxy[0])
		(void) text_format(dst, size, "%s through proxy %s: ", o->subject, proxy);
	else
		(void) text_format(dst, size, "%s at %s%s %s: ", o->subject, kind_of(o),
		                   strcmp(kind_of(o), "private") == 0 ? " (VPC endpoint)" : "",
		                   evidence_get_text(o, "address"));
	if (!proxy[0] || !refusal)
		describe_why(o, dst, size);
	if (refusal)
		(void) text_append(dst, size, "%s answers %lld to CONNECT",
		                   proxy[0] ? "it" : "; the proxy", (long long) refusal);
	if (datagram)
		(void) text_append(dst, size, "; stopped on this node: %s", strerror(datagram));
}

static enum code judge(const struct observation *o, struct words *ret)
{
	enum code c = code_of(o);

	if (c != CODE_NONE)
		describe(o, ret->summary, sizeof(ret->summary));
	return c;
}

const struct probe probe_endpoint = {
	.name = "endpoint",
	.what = "TCP, TLS and HTTP to the endpoints of EC2 and STS, of ECR and S3, and of EKS "
		"where "
		"bootstrap asks it",
	.layer = LAYER_ENDPOINT,
	/* New TLS connections of a healthy node: 2/60 + 3/180 a second here, 0.1 with all that the
         * others need */
	.every = 20 * USEC_PER_SEC,
	.rarer =
		{[SERVICE_EKS] = 3, [SERVICE_ECR_API] = 3, [SERVICE_ECR_DKR] = 3, [SERVICE_S3] = 3},
	.asked_by = {CODE_EndpointTimeout, CODE_EndpointRefused, CODE_EndpointUntrusted,
                     CODE_EndpointTlsStalled, CODE_EndpointFailing},
	.ask_every = 5 * USEC_PER_SEC,
	.retry = 2 * USEC_PER_SEC,
	.timeout = 5 * USEC_PER_SEC,
	.grace = 60 * USEC_PER_SEC, /* DHCP may still be at it */
	.slots = _SERVICE_MAX,
	.after = "dns",
	.spread = true, /* one NAT gateway or VPC endpoint serves thousands of us */
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.leaves_node = true,
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_EndpointTimeout, CODE_EndpointRefused, CODE_EndpointUntrusted,
                  CODE_EndpointTlsStalled, CODE_EndpointFailing, CODE_NONE},
};
