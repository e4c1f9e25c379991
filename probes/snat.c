/* SPDX-License-Identifier: Apache-2.0 */
/* The VPC CNI's SNAT gives what pods send out of the VPC source ports from 1024 up, whatever the
 * host's own range is. A network ACL that lets answers in to 32768 and up only, as for the host,
 * then drops a half of what pods get back, at random, while the host is well. The ACL cannot be
 * seen from here; what it does to connects of our own can. */
#include <errno.h>

#include "probe.h"

enum { PORT_LOW, PORT_HIGH, _PORT_MAX };
enum { ROUND = 2, CONNECTS = 3 }; /* in the second round, and in all, of each kind */

#define CONNECT  USEC_PER_SEC
#define GOOD_FOR (1800 * USEC_PER_SEC) /* an ACL is changed by people, not by the minute */

/* Below those of NodePorts, and those that the host itself takes. */
static const struct {
	uint16_t first, count;
} ranges[_PORT_MAX] = {
	[PORT_LOW] = {2048, 30000 - 2048},
	[PORT_HIGH] = {32768, 61000 - 32768},
};

struct state {
	struct address to;
	const char *host;
	uint16_t port;
	enum service service;
	unsigned open, made;
	unsigned connected[_PORT_MAX], lost[_PORT_MAX];
};

struct memory {
	usec_t good_at; /* of the last look that was good; 0: none, or not the last */
	struct observation good;
};

static void say(struct run *r, enum outcome outcome, const char *why)
{
	observation_detail(run_observe(r, LAYER_ROUTE, "", "", outcome, 0), "%s", why);
	run_end(r);
}

/* Outside the VPC, and not by a proxy: SNAT is for what goes there. */
static bool find_target(struct run *r, struct state *s)
{
	static const enum service order[] = {SERVICE_STS, SERVICE_EC2, SERVICE_EKS, SERVICE_ECR_API,
	                                     SERVICE_S3};
	const struct node *n = run_node(r);

	for (size_t i = 0; i < ELEMENTS(order); i++) {
		const struct endpoint *e = &n->endpoints[order[i]];

		if (!e->host[0] || strcmp(e->scheme, "https") != 0 ||
		    node_is_proxied(n, e->host, e->port))
			continue;
		for (size_t k = 0; k < e->n; k++) {
			if (e->addresses[k].family != AF_INET ||
			    strcmp(address_kind(&e->addresses[k]), "public") != 0)
				continue;
			s->to = e->addresses[k];
			s->host = e->host;
			s->port = e->port;
			s->service = order[i];
			return true;
		}
	}
	return false;
}

/* Another one at each look and connect: no single port is to decide. */
static uint16_t port_of(const struct run *r, unsigned kind, unsigned i)
{
	uint64_t h = (run_now(r) + i) * UINT64_C(0x9E3779B97F4A7C15) >> 32;

	return (uint16_t) (ranges[kind].first + h % ranges[kind].count);
}

static void conclude(struct run *r)
{
	const struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	unsigned lost = s->lost[PORT_LOW] + s->lost[PORT_HIGH];
	unsigned made = lost + s->connected[PORT_LOW] + s->connected[PORT_HIGH];
	bool blocked = s->lost[PORT_LOW] == CONNECTS && s->connected[PORT_HIGH] == CONNECTS;
	enum outcome outcome = blocked                  ? OUTCOME_TIMEOUT
	                       : s->connected[PORT_LOW] ? OUTCOME_OK
	                                                : OUTCOME_UNKNOWN;
	struct observation *o = run_observe(r, LAYER_ROUTE, "", "", outcome, 0);
	char text[ADDRESS_TEXT_MAX];

	observation_text(o, "endpoint", "%s", service_name(s->service));
	observation_text(o, "address", "%s", address_format(&s->to, text));
	observation_number(o, "connects", made);
	observation_number(o, "failed", lost);
	observation_number(o, "failed_low", s->lost[PORT_LOW]);
	observation_detail(
		o, "%u connects to %s: %u lost from source ports under 32768, %u from others", made,
		service_name(s->service), s->lost[PORT_LOW], s->lost[PORT_HIGH]);
	m->good_at = o && outcome == OUTCOME_OK ? run_now(r) : 0;
	if (m->good_at)
		m->good = *o;
	run_end(r);
}

static void connect_pair(struct run *r);

static void on_reply(struct run *r, const struct http_reply *reply, uintptr_t kind)
{
	struct state *s = run_state(r);

	if (reply->stage > HTTP_CONNECTING)
		s->connected[kind]++;
	else if (reply->outcome == OUTCOME_TIMEOUT)
		s->lost[kind]++;
	if (--s->open > 0)
		return;
	/* the low one alone: once is chance, three times are none */
	if (s->made == 1 && s->lost[PORT_LOW] == 1 && s->connected[PORT_HIGH] == 1)
		for (int i = 0; i < ROUND; i++)
			connect_pair(r);
	if (s->open == 0)
		conclude(r);
}

static void connect_pair(struct run *r)
{
	struct state *s = run_state(r);
	struct http_request rq = {
		.method = "HEAD",
		.scheme = "https",
		.host = s->host,
		.address = s->to,
		.port = s->port,
		.path = "/",
		.ca_file = run_env(r, "AWS_CA_BUNDLE"),
		.connect_timeout = CONNECT,
		.timeout = 2 * CONNECT,
		.body_max = 4096,
	};

	for (unsigned kind = 0; kind < _PORT_MAX; kind++) {
		rq.local_port = port_of(r, kind, s->made);
		if (run_http(r, &rq, on_reply, kind) == 0)
			s->open++;
	}
	s->made++;
}

/* With the moment at which it was made. */
static bool say_again(struct run *r)
{
	const struct memory *m = run_memory(r);
	struct observation *o;

	if (!m->good_at || run_now(r) - m->good_at >= GOOD_FOR)
		return false;
	o = run_observe(r, LAYER_ROUTE, "", "", OUTCOME_OK, 0);
	if (o)
		*o = m->good;
	run_end(r);
	return true;
}

static int start(struct run *r)
{
	const struct cni_settings *c = &run_node(r)->cni;
	struct state *s = run_state(r);

	if (!c->known && run_node(r)->ipamd.began)
		say(r, OUTCOME_UNKNOWN, "cannot tell: the VPC CNI's settings are not known");
	else if (!c->known)
		say(r, OUTCOME_SKIPPED, "the VPC CNI was not seen here yet");
	else if (c->external_snat)
		say(r, OUTCOME_SKIPPED, "the VPC CNI does no SNAT");
	else if (c->kept_ports && !c->ipv6) /* which does not ask for that setting */
		say(r, OUTCOME_SKIPPED, "the VPC CNI's SNAT keeps the pods' own ports");
	else if (say_again(r))
		return 0;
	else if (!find_target(r, s))
		say(r, OUTCOME_SKIPPED, "no endpoint outside the VPC");
	else
		connect_pair(r);
	return 0;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	int64_t failed = evidence_number(o, "failed_low", 0);
	const char *to = evidence_get_text(o, "endpoint");

	if (o->outcome != OUTCOME_TIMEOUT)
		return CODE_NONE;
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "%d of %d connects to %s fail, %d of them from source ports under "
	                   "32768, which SNAT gives to pods",
	                   (int) evidence_number(o, "failed", failed),
	                   (int) evidence_number(o, "connects", failed), to[0] ? to : "the outside",
	                   (int) failed);
	return CODE_SnatPortsBlocked;
}

const struct probe probe_snat = {
	.name = "snat",
	.what = "connects out of the VPC from the low source ports that the VPC CNI's SNAT gives "
		"to pods",
	.layer = LAYER_ROUTE,
	.every = 120 * USEC_PER_SEC,
	.retry = 5 * USEC_PER_SEC,
	.timeout = 6 * USEC_PER_SEC,
	.after = "endpoint",
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.leaves_node = true,
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_SnatPortsBlocked},
};
