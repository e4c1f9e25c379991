/* SPDX-License-Identifier: Apache-2.0 */
/* Does a rule of this node stop what it sends itself? Where an endpoint, the API server or a
 * nameserver is not reached, a datagram to the same address and port is sent: netfilter's drop and
 * reject on the way out, and eBPF's, are an EPERM to the sender (facts/lab.md section 9). For TCP
 * that alone is not enough, as some rule sets let out no datagrams by design: one to the gateway,
 * to the same port, has to pass, so that it is the address, and the connection has to fail now.
 *
 * What is dropped on its way in or through is not told: reading rules takes a privilege that we do
 * not have, and a rule set that drops by default drops all day what it should. */
#include <errno.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>

#include "probe.h"

enum { RESOLV_CONF_MAX = 65536, BODY_MAX = 65536, DNS_PORT = 53 };

static const usec_t connect_patience = 1200 * USEC_PER_MSEC;
static const usec_t unit_patience = 500 * USEC_PER_MSEC;
static const usec_t tables_max_age = 10 * USEC_PER_SEC;
/* What was seen is said again so long, and while it is bad then looked at anew. */
static const usec_t known_for = 15 * USEC_PER_SEC;

/* Who loads a rule set at boot. */
static const char *const services[] = {"iptables.service", "ip6tables.service", "nftables.service",
                                       "firewalld.service", "ufw.service"};

struct target {
	char name[32];
	const struct endpoint *endpoint; /* NULL: a nameserver */
	struct address address;
	uint16_t port;
};

struct state {
	struct target stopped;
};

struct memory {
	struct observation last;
	usec_t at;          /* 0: never looked */
	struct address bad; /* what is stopped; family 0: nothing known */
	bool bad_dns;
};

static bool is_bad(const struct observation *o)
{
	return o->outcome == OUTCOME_DENIED || o->outcome == OUTCOME_REFUSED;
}

/* ---- what is said ---- */

static struct observation *say(struct run *r, enum outcome outcome)
{
	return run_observe(r, LAYER_ROUTE, "", "", outcome, 0);
}

static void end_with(struct run *r, enum outcome outcome, const char *why)
{
	struct memory *m = run_memory(r);
	struct observation *o = say(r, outcome);

	observation_detail(o, "%s", why);
	if (o && outcome == OUTCOME_OK) {
		m->last = *o;
		m->at = run_now(r);
		m->bad = (struct address){0};
	}
	run_end(r);
}

static void describe(const struct observation *o, char *dst, size_t size)
{
	const char *to = evidence_get_text(o, "to"), *address = evidence_get_text(o, "address"),
		   *service = evidence_get_text(o, "service");
	int64_t packets = evidence_number(o, "packets", 0);

	if (address[0])
		(void) text_format(
			dst, size,
			"a rule on this node stops packets to %s at %s port %lld (EPERM)", to,
			address, (long long) evidence_number(o, "port", 0));
	else
		(void) text_format(dst, size, "a rule on this node rejects packets");
	if (packets > 0)
		(void) text_append(dst, size, ", %lld so far", (long long) packets);
	if (service[0])
		(void) text_append(dst, size, "; %s is active", service);
}

static void end_badly(struct run *r, const char *service)
{
	struct memory *m = run_memory(r);
	const struct state *s = run_state(r);
	const struct target *t = &s->stopped;
	struct observation *o = say(r, OUTCOME_DENIED);
	char address[ADDRESS_TEXT_MAX];

	observation_text(o, "to", "%s", t->name);
	observation_text(o, "address", "%s", address_format(&t->address, address));
	observation_number(o, "port", t->port);
	if (service)
		observation_text(o, "service", "%s", service);
	if (o) {
		describe(o, o->detail, sizeof(o->detail));
		m->last = *o;
		m->at = run_now(r);
		m->bad = t->address;
		m->bad_dns = !t->endpoint;
	}
	run_end(r);
}

/* ---- whose rules they may be ---- */

static void ask_service(struct run *r, size_t i);

static void on_service(struct run *r, const struct bus_reply *reply, uintptr_t tag)
{
	if (reply->unit && strcmp(reply->unit->active, "active") == 0)
		end_badly(r, services[tag]);
	else if (reply->error)
		end_badly(r, NULL);
	else
		ask_service(r, tag + 1);
}

static void ask_service(struct run *r, size_t i)
{
	if (i == ELEMENTS(services) || run_unit(r, services[i], unit_patience, on_service, i) < 0)
		end_badly(r, NULL);
}

/* ---- what is stopped ---- */

static void on_reply(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	if (reply->outcome == OUTCOME_UNKNOWN)
		end_with(r, OUTCOME_UNKNOWN, "cannot tell: we could not connect");
	else if (reply->stage == HTTP_CONNECTING)
		ask_service(r, 0);
	else
		end_with(r, OUTCOME_OK, "datagrams are stopped, connections are not");
}

static void connect_to(struct run *r, const struct target *t)
{
	const struct http_request rq = {.method = "GET",
	                                .scheme = "http", /* no more than the connect counts */
	                                .host = t->endpoint->host,
	                                .address = t->address,
	                                .port = t->port,
	                                .path = "/",
	                                .connect_timeout = connect_patience,
	                                .timeout = connect_patience + USEC_PER_SEC,
	                                .body_max = BODY_MAX};

	if (run_http(r, &rq, on_reply, 0) < 0)
		end_with(r, OUTCOME_UNKNOWN, "cannot tell: we could not connect");
}

/* The rule is about this address: to the gateway, the same leaves the node. */
static bool gateway_passes(struct run *r, const struct target *t)
{
	const struct net *net = NULL;
	const struct net_route *d;

	if (run_net(r, tables_max_age, &net) < 0 || !net)
		return false;
	d = net_default_route(net, t->address.family, RT_TABLE_MAIN);
	return d && d->gateway.family == t->address.family &&
	       !address_equal(&d->gateway, &t->address) &&
	       run_local_block(r, &d->gateway, t->port) == 0;
}

static bool is_stopped(struct run *r, const struct target *t)
{
	struct state *s = run_state(r);

	if (run_local_block(r, &t->address, t->port) != EPERM)
		return false;
	/* a query is a datagram: what stops this one stops all */
	if (t->endpoint && !gateway_passes(r, t))
		return false;
	s->stopped = *t;
	return true;
}

static bool find_endpoint(struct run *r, const struct endpoint *e, const char *name)
{
	struct target t = {.endpoint = e, .port = e->port};

	(void) text_format(t.name, sizeof(t.name), "%s", name);
	for (size_t i = 0; i < e->n && e->host[0]; i++) {
		t.address = e->addresses[i];
		if (is_stopped(r, &t))
			return true;
	}
	return false;
}

static bool find_nameserver(struct run *r)
{
	struct target t = {.name = "a nameserver", .port = DNS_PORT};
	struct resolv_conf conf;
	const char *text;
	size_t len;

	if (run_read(r, "/etc/resolv.conf", RESOLV_CONF_MAX, &text, &len) < 0)
		return false;
	resolv_conf_parse(&conf, text, len);
	for (size_t i = 0; i < conf.n; i++) {
		t.address = conf.servers[i];
		if (!address_is_loopback(&t.address) && is_stopped(r, &t))
			return true;
	}
	return false;
}

/* What a node does without may be stopped by design. */
static bool is_needed(struct run *r, enum service i)
{
	char key[32];

	(void) text_format(key, sizeof(key), "endpoint.%s", service_name(i));
	return node_misses(run_node(r), i, run_recall(r, key) != NULL, run_uptime(r)) == MISSES_IT;
}

static bool find(struct run *r)
{
	const struct memory *m = run_memory(r);
	const struct node *n = run_node(r);

	if ((run_asked(r) == CODE_ResolverUnreachable || m->bad_dns) && find_nameserver(r))
		return true;
	if (find_endpoint(r, &n->apiserver, "the API server"))
		return true;
	for (enum service i = 0; i < _SERVICE_MAX; i++)
		if (is_needed(r, i) && find_endpoint(r, &n->endpoints[i], service_name(i)))
			return true;
	return false;
}

static int start(struct run *r)
{
	const struct memory *m = run_memory(r);
	bool fresh = m->at && run_now(r) - m->at < known_for;
	const struct state *s = run_state(r);
	struct observation *o;

	if (fresh || (run_asked(r) == CODE_NONE && !m->bad.family)) {
		o = say(r, OUTCOME_SKIPPED);
		if (o && fresh)
			*o = m->last;
		else
			observation_detail(o, "all is reached: not looked at");
		run_end(r);
	} else if (!find(r)) {
		end_with(r, OUTCOME_OK, "no address is stopped on this node");
	} else if (s->stopped.endpoint) {
		connect_to(r, &s->stopped);
	} else {
		ask_service(r, 0);
	}
	return 0;
}

/* ---- the judgement ---- */

static enum code judge(const struct observation *o, struct words *ret)
{
	if (!is_bad(o))
		return CODE_NONE;
	describe(o, ret->summary, sizeof(ret->summary));
	return CODE_FirewallRejects;
}

const struct probe probe_firewall = {
	.name = "firewall",
	.what = "whether a rule of this node stops what it sends itself: only when something is "
		"not reached",
	.layer = LAYER_ROUTE,
	.every = 60 * USEC_PER_SEC, /* mostly says that it did not look */
	.failing = 20 * USEC_PER_SEC,
	.retry = 2 * USEC_PER_SEC, /* says again what was seen */
	.timeout = 8 * USEC_PER_SEC,
	.asked_by = {CODE_EndpointTimeout, CODE_EndpointRefused, CODE_ApiServerTimeout,
                     CODE_ApiServerRefused, CODE_ResolverUnreachable, CODE_NONE},
	.ask_every = 20 * USEC_PER_SEC,
	.grace = 60 * USEC_PER_SEC,
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.leaves_node = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_FirewallRejects, CODE_NONE},
};
