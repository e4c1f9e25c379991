/* SPDX-License-Identifier: Apache-2.0 */
/* Do large packets get through where small ones do? Looked at only where TLS stalls after the
 * connect, as it costs connections: the same handshake to the same address, with segments as large
 * as the link allows and with small ones, in turn, twice each. Only where their size decides, four
 * times in a row, is it their size. TCP tells the far side what it may send, so that it does not
 * matter which way they vanish. */
#include <errno.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "probe.h"

enum {
	SEGMENT_SMALL = 536, /* every way in IPv4 lets that through */
	BODY_MAX = 262144,
	TARGETS_MAX = 8, /* addresses gone through for one that stalls */
	STALLED_MAX = 2, /* of them, that stall with small segments as well */
	TURNS = 4,       /* large, small, large, small */
};

static const char aspect[] = "path-mtu";

static const usec_t connect_patience = 1200 * USEC_PER_MSEC;
static const usec_t patience = 2 * USEC_PER_SEC;
static const usec_t tables_max_age = 60 * USEC_PER_SEC;
/* What was seen is said again so long, and while it is bad then looked at anew. */
static const usec_t known_for = 15 * USEC_PER_SEC;

struct target {
	const struct endpoint *endpoint;
	const char *name;
	struct address address;
};

struct state {
	struct target targets[TARGETS_MAX];
	size_t n, at;
	unsigned turn, alike;
	bool stalled; /* any did, with large segments */
};

struct memory {
	struct observation last;
	usec_t at;          /* 0: never looked */
	struct address bad; /* where large ones vanish; family 0: nowhere known */
};

static bool is_bad(const struct observation *o)
{
	return o->outcome == OUTCOME_TIMEOUT;
}

/* ---- what is said ---- */

static struct observation *say(struct run *r, enum outcome outcome)
{
	return run_observe(r, LAYER_ROUTE, aspect, "", outcome, 0);
}

static void end_with(struct run *r, struct observation *o)
{
	struct memory *m = run_memory(r);

	if (o) {
		m->last = *o;
		m->at = run_now(r);
		if (!is_bad(o))
			m->bad = (struct address){0};
	}
	run_end(r);
}

static void end_well(struct run *r, const char *why)
{
	struct observation *o = say(r, OUTCOME_OK);

	observation_detail(o, "%s", why);
	end_with(r, o);
}

static void cannot_tell(struct run *r, const char *why)
{
	observation_detail(say(r, OUTCOME_UNKNOWN), "cannot tell: %s", why);
	run_end(r);
}

/* Of the link that the default route leaves by; 0: not known. */
static uint32_t link_mtu(struct run *r, int family)
{
	const struct net_link *l = NULL;
	const struct net_route *t;
	const struct net *net = NULL;

	if (run_net(r, tables_max_age, &net) < 0)
		return 0;
	t = net_default_route(net, family, RT_TABLE_MAIN);
	l = t ? net_link_by_index(net, t->oif) : NULL;
	return l ? l->mtu : 0;
}

static void describe(const struct observation *o, char *dst, size_t size)
{
	const char *name = evidence_get_text(o, "service"),
		   *address = evidence_get_text(o, "address");
	int64_t mtu = evidence_number(o, "mtu", 0), tries = evidence_number(o, "tries", 0);

	(void) text_format(dst, size, "TLS%s%s", name[0] ? " to " : "", name);
	if (address[0])
		(void) text_append(dst, size, " at %s", address);
	(void) text_append(dst, size, " stalls with full packets");
	if (mtu > 0)
		(void) text_append(dst, size, " (mtu %lld)", (long long) mtu);
	(void) text_append(dst, size, " and passes with segments of %lld bytes",
	                   (long long) evidence_number(o, "mss_passes", SEGMENT_SMALL));
	if (tries > 0)
		(void) text_append(dst, size, ", %lld of %lld times each", (long long) tries,
		                   (long long) tries);
}

static void end_badly(struct run *r, const struct target *t)
{
	struct memory *m = run_memory(r);
	struct observation *o = say(r, OUTCOME_TIMEOUT);
	uint32_t mtu = link_mtu(r, t->address.family);
	char address[ADDRESS_TEXT_MAX];

	observation_text(o, "service", "%s", t->name);
	observation_text(o, "address", "%s", address_format(&t->address, address));
	if (mtu)
		observation_number(o, "mtu", mtu);
	observation_number(o, "mss_passes", SEGMENT_SMALL);
	observation_number(o, "tries", TURNS / 2);
	if (o)
		describe(o, o->detail, sizeof(o->detail));
	m->bad = t->address;
	end_with(r, o);
}

/* ---- the handshakes ---- */

static void go_on(struct run *r);

/* Its certificate has come, which is more than a small packet. */
static bool passed(const struct http_reply *reply)
{
	return reply->stage > HTTP_TLS ||
	       (reply->stage == HTTP_TLS &&
	        (reply->outcome == OUTCOME_UNTRUSTED || reply->outcome == OUTCOME_EXPIRED));
}

static bool stalled(const struct http_reply *reply)
{
	return reply->stage == HTTP_TLS && reply->outcome == OUTCOME_TIMEOUT;
}

static void next_target(struct run *r)
{
	struct state *s = run_state(r);

	s->turn = 0;
	s->at++;
	go_on(r);
}

static void on_large(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);

	if (reply->outcome == OUTCOME_UNKNOWN) {
		cannot_tell(r, strerrordesc_np(reply->code));
	} else if (stalled(reply)) {
		s->stalled = true;
		s->turn++;
		go_on(r);
	} else if (s->turn == 0) {
		next_target(r);
	} else {
		end_well(r, "large packets get through now and then");
	}
}

static void on_small(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);

	if (reply->outcome == OUTCOME_UNKNOWN) {
		cannot_tell(r, strerrordesc_np(reply->code));
	} else if (!passed(reply)) {
		if (s->turn == 1 && ++s->alike < STALLED_MAX)
			next_target(r);
		else
			end_well(r, "small segments do not pass either: it is not their size");
	} else if (++s->turn == TURNS) {
		end_badly(r, &s->targets[s->at]);
	} else {
		go_on(r);
	}
}

static void go_on(struct run *r)
{
	struct state *s = run_state(r);
	const struct target *t = &s->targets[s->at];
	bool small = s->turn % 2;
	struct http_request rq;
	int e;

	if (s->at == s->n) {
		end_well(r, s->stalled ? "small segments do not pass either: it is not their size"
		                       : "no handshake stalls now");
		return;
	}
	rq = (struct http_request){.method = "GET",
	                           .scheme = t->endpoint->scheme,
	                           .host = t->endpoint->host,
	                           .address = t->address,
	                           .port = t->endpoint->port,
	                           .path = "/",
	                           .ca_file = run_env(r, "AWS_CA_BUNDLE"),
	                           .connect_timeout = connect_patience,
	                           .timeout = patience,
	                           .body_max = BODY_MAX,
	                           .segment_max = small ? SEGMENT_SMALL : 0};
	e = run_http(r, &rq, small ? on_small : on_large, 0);
	if (e < 0)
		cannot_tell(r, strerrordesc_np(-e));
}

/* ---- where to ---- */

static void add_endpoint(struct run *r, const struct endpoint *e, const char *name)
{
	const struct memory *m = run_memory(r);
	struct state *s = run_state(r);

	if (!e->host[0] || strcmp(e->scheme, "https") != 0 ||
	    node_is_proxied(run_node(r), e->host, e->port))
		return;
	for (size_t i = 0; i < e->n && s->n < TARGETS_MAX; i++) {
		struct target *t = &s->targets[s->n++];

		*t = (struct target){e, name, e->addresses[i]};
		/* where they vanished is looked at first, and alone while they do */
		if (address_equal(&t->address, &m->bad)) {
			struct target first = s->targets[0];

			s->targets[0] = *t;
			*t = first;
		}
	}
}

static int start(struct run *r)
{
	const struct node *n = run_node(r);
	struct memory *m = run_memory(r);
	bool fresh = m->at && run_now(r) - m->at < known_for;
	struct state *s = run_state(r);
	struct observation *o;

	if (fresh || (run_asked(r) == CODE_NONE && !m->bad.family)) {
		o = say(r, OUTCOME_SKIPPED);
		if (o && fresh)
			*o = m->last;
		else
			observation_detail(o, "no handshake stalls: not looked at");
		run_end(r);
		return 0;
	}
	if (run_asked(r) == CODE_ApiServerTimeout)
		add_endpoint(r, &n->apiserver, "the API server");
	for (enum service i = 0; i < _SERVICE_MAX; i++)
		add_endpoint(r, &n->endpoints[i], service_name(i));
	if (run_asked(r) != CODE_ApiServerTimeout)
		add_endpoint(r, &n->apiserver, "the API server");
	if (s->n == 0)
		cannot_tell(r, "no address known");
	else
		go_on(r);
	return 0;
}

/* ---- the judgement ---- */

static enum code judge(const struct observation *o, struct words *ret)
{
	if (strcmp(o->aspect, aspect) != 0 || !is_bad(o))
		return CODE_NONE;
	describe(o, ret->summary, sizeof(ret->summary));
	return CODE_PathMtuBlackhole;
}

const struct probe probe_path = {
	.name = "path",
	.what = "whether large packets get through where small ones do: only when a TLS handshake "
		"stalls after the connect",
	.layer = LAYER_ROUTE,
	.every = 60 * USEC_PER_SEC, /* mostly says that it did not look */
	.failing = 20 * USEC_PER_SEC,
	.retry = 2 * USEC_PER_SEC, /* says again what was seen */
	.timeout = 20 * USEC_PER_SEC,
	.asked_by = {CODE_EndpointTlsStalled, CODE_ApiServerTimeout, CODE_NONE},
	.ask_every = 60 * USEC_PER_SEC,
	.grace = 60 * USEC_PER_SEC, /* DHCP may still be at it */
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.leaves_node = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_PathMtuBlackhole, CODE_NONE},
};
