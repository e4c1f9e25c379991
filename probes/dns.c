/* SPDX-License-Identifier: Apache-2.0 */
/* Does each nameserver of resolv.conf give an address for the AWS endpoints? What they give is what
 * the endpoint probe connects to. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/rtnetlink.h>
#include <strings.h>

#include "probe.h"

enum {
	RESOLV_CONF_MAX = 65536,
	VPC = RESOLV_SERVERS_MAX, /* index of the VPC's own resolver, when resolv.conf lacks it */
	SERVERS_MAX,
	N_TYPES = 2,
};

static const char resolv_path[] = "/etc/resolv.conf";
static const usec_t patience = USEC_PER_SEC;
static const usec_t hedge_after = 300 * USEC_PER_MSEC;
/* Of the kernel's tables while no message says that they changed: a dump a look is dear. */
static const usec_t tables_max_age = 60 * USEC_PER_SEC;
static const enum dns_type types[N_TYPES] = {DNS_A, DNS_AAAA};

struct ask {
	bool asked, answered;
	struct dns_reply reply;
};

/* EC2 and STS are asked for at every look, the others' names change as rarely as they are used. */
enum { BOOTSTRAP_BYTES = 65536 };
static const enum service first_other = SERVICE_EKS;
static const usec_t others_every = 60 * USEC_PER_SEC;

struct memory {
	usec_t others_at; /* 0: at the next look */
	struct observation others[_SERVICE_MAX];
};

struct state {
	bool others; /* are asked for this time */
	struct address servers[SERVERS_MAX];
	size_t n_servers;          /* of resolv.conf */
	size_t vpc;                /* which of them is the VPC's resolver; VPC: none of them */
	bool v6;                   /* AAAA is asked as well */
	bool v6_first;             /* no way out by IPv4 */
	bool wanted[_SERVICE_MAX]; /* has a name to resolve */
	struct ask asks[_SERVICE_MAX][SERVERS_MAX][N_TYPES];
	unsigned pending;     /* asks to servers of resolv.conf */
	unsigned pending_vpc; /* asks to the VPC's resolver beside them */
	bool failed;          /* one of the former had no proper answer */
};

/* ---- the names ---- */

static bool is_true(const char *s)
{
	return s && strcasecmp(s, "true") == 0;
}

static const char *override_of(const struct run *r, enum service s)
{
	static const char *const names[_SERVICE_MAX] = {
		[SERVICE_EC2] = "AWS_ENDPOINT_URL_EC2", [SERVICE_STS] = "AWS_ENDPOINT_URL_STS",
		[SERVICE_EKS] = "AWS_ENDPOINT_URL_EKS", [SERVICE_ECR_API] = "AWS_ENDPOINT_URL_ECR",
		[SERVICE_S3] = "AWS_ENDPOINT_URL_S3",
	};
	const char *url = names[s] ? run_env(r, names[s]) : NULL;

	/* the registry is no service of the SDKs: its name stands in the images' */
	return url || !names[s] ? url : run_env(r, "AWS_ENDPOINT_URL");
}

/* -EINVAL: the override is no URL; -ENOENT: no region; -EOPNOTSUPP: there is no such name;
 * -ENODATA: the account is not known. */
static int name_endpoint(const struct run *r, enum service s, struct endpoint *ret)
{
	const struct node *n = run_node(r);
	struct aws_name_options o = {
		.region = n->region,
		.domain = n->domain,
		.account = n->account_id,
		.dualstack = is_true(run_env(r, "AWS_USE_DUALSTACK_ENDPOINT")),
		.fips = is_true(run_env(r, "AWS_USE_FIPS_ENDPOINT")),
	};
	const char *url = override_of(r, s);

	if (url)
		return aws_endpoint_url(url, ret->scheme, ret->host, sizeof(ret->host), &ret->port);
	if (!n->region[0])
		return -ENOENT;
	ret->port = 443;
	(void) snprintf(ret->scheme, sizeof(ret->scheme), "https");
	return aws_host(s, &o, ret->host, sizeof(ret->host));
}

static void keep_other(struct run *r, enum service s, const struct observation *o)
{
	struct memory *m = run_memory(r);

	if (o && s >= first_other)
		m->others[s] = *o;
}

static void observe_nameless(struct run *r, enum service s, int error)
{
	struct observation *o =
		run_observe(r, LAYER_DNS, "name", service_name(s), OUTCOME_UNKNOWN, -error);

	observation_detail(o, error == -EINVAL ? "cannot tell: the endpoint is not an http(s) URL"
	                      : error == -ENODATA ? "cannot tell: the account is not known"
	                                          : "cannot tell: no such name in this partition");
	keep_other(r, s, o);
}

static bool answered(const struct run *r, enum service s)
{
	char key[32];

	(void) text_format(key, sizeof(key), "endpoint.%s", service_name(s));
	return run_recall(r, key) != NULL;
}

/* ---- the others: when to ask for them, and whether they matter ---- */

/* AL2's bootstrap.sh asks EKS; what AL2023 has in its place says that it is gone. */
static void learn_bootstrap(struct run *r)
{
	struct node *n = run_learn(r);
	const char *text;
	size_t len;

	n->asks_eks = (run_read(r, "/etc/eks/bootstrap.sh", BOOTSTRAP_BYTES, &text, &len) == 0 &&
	               memmem(text, len, "describe-cluster", strlen("describe-cluster"))) ||
	              (run_read(r, "/etc/os-release", BOOTSTRAP_BYTES, &text, &len) == 0 &&
	               memmem(text, len, "ID=bottlerocket", strlen("ID=bottlerocket")));
}

static bool others_are_due(struct run *r)
{
	struct memory *m = run_memory(r);

	return !m->others_at || run_once(r) || run_woken(r) ||
	       run_now(r) - m->others_at >= others_every;
}

/* What was seen of them last stands until they are asked for again. */
static void repeat_others(struct run *r)
{
	const struct memory *m = run_memory(r);

	for (enum service i = first_other; i < _SERVICE_MAX; i++) {
		struct observation *o;

		if (!m->others[i].aspect[0])
			continue;
		o = run_observe(r, LAYER_DNS, "name", service_name(i), OUTCOME_UNKNOWN, 0);
		if (o)
			*o = m->others[i];
	}
}

/* That there is no such name is no fault where nothing asks for it, or a proxy does. */
static enum outcome missed(struct run *r, enum service s, const char **ret_why)
{
	const struct endpoint *e = &run_node(r)->endpoints[s];

	if (s != SERVICE_EKS && node_is_proxied(run_node(r), e->host, e->port)) {
		*ret_why = "the proxy resolves it";
		return OUTCOME_SKIPPED;
	}
	switch (node_misses(run_node(r), s, answered(r, s), run_uptime(r))) {
	case MISSES_NOTHING:
		*ret_why = s == SERVICE_EKS ? "this node does not ask it"
		                            : "the node is Ready without it";
		return OUTCOME_SKIPPED;
	case MISSES_UNSURE:
		*ret_why = "cannot tell yet whether this node needs it";
		return OUTCOME_UNKNOWN;
	default:
		*ret_why = NULL;
		return OUTCOME_ABSENT;
	}
}

/* What no node like this one asks for is not asked for here either. */
static bool is_asked_for(struct run *r, enum service s)
{
	struct observation *o;
	const char *why;

	if (missed(r, s, &why) != OUTCOME_SKIPPED)
		return true;
	o = run_observe(r, LAYER_DNS, "name", service_name(s), OUTCOME_SKIPPED, 0);
	observation_detail(o, "%s", why);
	keep_other(r, s, o);
	return false;
}

/* Keeps the addresses while the name stays what it was. */
static void keep_endpoint(struct endpoint *e, const struct endpoint *found, usec_t now)
{
	struct address literal;

	if (strcmp(e->host, found->host) != 0 || strcmp(e->scheme, found->scheme) != 0 ||
	    e->port != found->port)
		*e = *found;
	if (address_parse(&literal, e->host) < 0)
		return;
	e->literal = true;
	e->n = 1;
	e->addresses[0] = literal;
	e->resolved_at = now;
}

/* How many names there are to ask for; names that can't be are observed. -ENOENT without a region.
 */
static int name_all(struct run *r, struct state *s)
{
	struct node *n = run_learn(r);
	int wanted = 0;

	for (enum service i = 0; i < (s->others ? _SERVICE_MAX : first_other); i++) {
		struct endpoint e = {0};
		int ret = name_endpoint(r, i, &e);

		if (ret == -ENOENT)
			return ret;
		if (ret < 0) {
			n->endpoints[i] = (struct endpoint){0};
			observe_nameless(r, i, ret);
			continue;
		}
		keep_endpoint(&n->endpoints[i], &e, run_now(r));
		if (i == SERVICE_EKS && !is_asked_for(r, i))
			continue;
		s->wanted[i] = !n->endpoints[i].literal;
		wanted += s->wanted[i];
	}
	return wanted;
}

/* ---- the servers ---- */

static int read_servers(struct run *r, struct state *s)
{
	struct resolv_conf conf;
	const char *text;
	size_t len;
	int ret;

	ret = run_read(r, resolv_path, RESOLV_CONF_MAX, &text, &len);
	if (ret < 0)
		return ret;
	resolv_conf_parse(&conf, text, len);
	for (size_t i = 0; i < conf.n; i++) {
		bool known = false;

		for (size_t k = 0; k < s->n_servers; k++)
			known |= address_equal(&s->servers[k], &conf.servers[i]);
		if (!known)
			s->servers[s->n_servers++] = conf.servers[i];
	}
	return s->n_servers > 0 ? 0 : -ENODATA;
}

static void find_vpc_resolver(struct state *s)
{
	(void) address_parse(&s->servers[VPC], s->v6_first ? "fd00:ec2::253" : "169.254.169.253");
	s->vpc = VPC;
	for (size_t i = 0; i < s->n_servers; i++)
		if (address_equal(&s->servers[i], &s->servers[VPC]))
			s->vpc = i;
}

static bool is_ipv6_only(struct run *r)
{
	const struct net *net;

	return run_net(r, tables_max_age, &net) == 0 &&
	       !net_default_route(net, AF_INET, RT_TABLE_MAIN) &&
	       net_default_route(net, AF_INET6, RT_TABLE_MAIN);
}

/* ---- what the answers come to ---- */

static bool is_proper(const struct ask *a)
{
	return a->answered &&
	       (a->reply.outcome == OUTCOME_OK || a->reply.outcome == OUTCOME_ABSENT);
}

/* The answer that counts for a name at a server: an address of either type; else the first that
 * failed; else that there is none. NULL: nothing was asked. */
static const struct ask *answer_of(const struct state *s, size_t service, size_t server)
{
	const struct ask *best = NULL;

	for (size_t t = 0; t < N_TYPES; t++) {
		const struct ask *a = &s->asks[service][server][t];

		if (!a->asked)
			continue;
		if (!best ||
		    (a->reply.outcome == OUTCOME_OK && best->reply.outcome != OUTCOME_OK) ||
		    (best->reply.outcome == OUTCOME_ABSENT && !is_proper(a)))
			best = a;
	}
	return best;
}

/* The worst answer of a server, or any when all are proper; NULL: it was not asked. */
static const struct ask *worst_of(const struct state *s, size_t server, unsigned *ret_asked,
                                  unsigned *ret_failed)
{
	const struct ask *worst = NULL;

	*ret_asked = *ret_failed = 0;
	for (size_t i = 0; i < _SERVICE_MAX; i++) {
		const struct ask *a = answer_of(s, i, server);

		if (!a)
			continue;
		++*ret_asked;
		if (!is_proper(a))
			++*ret_failed;
		if (!worst || (is_proper(worst) && !is_proper(a)))
			worst = a;
	}
	return worst;
}

static bool server_is_ok(const struct state *s, size_t server)
{
	unsigned asked, failed;

	return worst_of(s, server, &asked, &failed) && failed == 0;
}

static void observe_server(struct run *r, const struct state *s, size_t server)
{
	unsigned asked, failed, others = 0;
	const struct ask *a = worst_of(s, server, &asked, &failed);
	char address[ADDRESS_TEXT_MAX];
	enum outcome outcome;
	struct observation *o;

	if (!a)
		return;
	for (size_t i = 0; i < s->n_servers; i++)
		others += i != server && server_is_ok(s, i);
	outcome = is_proper(a) ? OUTCOME_OK : a->reply.outcome;
	o = run_observe(r, LAYER_DNS, "server", address_format(&s->servers[server], address),
	                outcome, a->reply.error ? a->reply.error : a->reply.rcode);
	if (!o)
		return;
	o->took = a->reply.took;
	observation_number(o, "loopback", address_is_loopback(&s->servers[server]));
	observation_number(o, "vpc_resolver_ok", server_is_ok(s, s->vpc));
	observation_number(o, "others_ok", others);
	observation_number(o, "asked", asked);
	observation_number(o, "failed", failed);
	observation_number(o, "rcode", a->reply.rcode);
	observation_number(o, "took_ms", (int64_t) (a->reply.took / USEC_PER_MSEC));
	if (a->reply.error)
		observation_number(o, "errno", a->reply.error);
	if (outcome == OUTCOME_OK)
		observation_detail(o, "answers for %u name%s", asked, asked == 1 ? "" : "s");
	else if (outcome == OUTCOME_UNKNOWN)
		observation_detail(o, "cannot ask: %s", strerror(a->reply.error));
	else if (others > 0)
		observation_detail(o, "%u of %u names failed (%s); another nameserver answers",
		                   failed, asked, outcome_name(outcome));
}

static void keep_addresses(struct endpoint *e, const struct state *s, size_t service, size_t server,
                           usec_t now)
{
	e->n = 0;
	for (size_t k = 0; k < N_TYPES; k++) {
		size_t type = s->v6_first ? N_TYPES - 1 - k : k;
		const struct ask *a = &s->asks[service][server][type];

		if (!a->answered || a->reply.outcome != OUTCOME_OK)
			continue;
		for (size_t i = 0; i < a->reply.n && e->n < DNS_ADDRESSES_MAX; i++)
			e->addresses[e->n++] = a->reply.addresses[i];
	}
	e->resolved_at = now;
}

/* As for glibc, the first server with a proper answer decides, be it that there is no such name;
 * when none has one, that is the servers' finding and no other. */
static void observe_name(struct run *r, const struct state *s, enum service i)
{
	struct endpoint *e = &run_learn(r)->endpoints[i];
	const struct ask *none = NULL, *found = NULL;
	char address[ADDRESS_TEXT_MAX];
	const char *why = NULL;
	struct observation *o;

	for (size_t k = 0; k < s->n_servers && !found && !none; k++) {
		const struct ask *a = answer_of(s, i, k);

		if (!a || !is_proper(a))
			continue;
		if (a->reply.outcome == OUTCOME_OK) {
			found = a;
			keep_addresses(e, s, i, k, run_now(r));
		} else {
			none = a;
		}
	}
	o = run_observe(r, LAYER_DNS, "name", service_name(i),
	                found  ? OUTCOME_OK
	                : none ? missed(r, i, &why)
	                       : OUTCOME_UNKNOWN,
	                none ? none->reply.rcode : 0);
	observation_text(o, "host", "%s", e->host);
	if (found) {
		observation_text(o, "address", "%s", address_format(&e->addresses[0], address));
		observation_number(o, "addresses", (int64_t) e->n);
		observation_number(o, "private", address_is_private(&e->addresses[0]));
		observation_number(o, "ttl", found->reply.ttl);
		observation_detail(o, "%s is %s", e->host, address);
	} else if (none) {
		observation_number(o, "rcode", none->reply.rcode);
		if (why)
			observation_detail(o, "%s", why);
	} else {
		observation_detail(o, "cannot tell: no nameserver answers for %s", e->host);
	}
	keep_other(r, i, o);
	if (i >= first_other && !found && !why)
		((struct memory *) run_memory(r))->others_at = 0;
}

static void conclude(struct run *r)
{
	const struct state *s = run_state(r);

	for (size_t i = 0; i < s->n_servers; i++)
		observe_server(r, s, i);
	if (s->others)
		((struct memory *) run_memory(r))->others_at = run_now(r);
	else
		repeat_others(r);
	for (enum service i = 0; i < _SERVICE_MAX; i++)
		if (s->wanted[i])
			observe_name(r, s, i);
	run_end(r);
}

/* ---- asking ---- */

static void on_answer(struct run *r, const struct dns_reply *reply, uintptr_t tag);

static void ask(struct run *r, size_t service, size_t server, size_t type)
{
	struct state *s = run_state(r);
	struct ask *a = &s->asks[service][server][type];

	if (!s->wanted[service] || a->asked)
		return;
	a->asked = true;
	a->reply.outcome = OUTCOME_UNKNOWN;
	if (run_dns(r, &s->servers[server], run_node(r)->endpoints[service].host, types[type],
	            server == VPC ? patience - hedge_after : patience, on_answer,
	            (service * SERVERS_MAX + server) * N_TYPES + type) < 0)
		a->asked = false; /* we could not: says nothing of the server */
	else if (server == VPC)
		s->pending_vpc++;
	else
		s->pending++;
}

static void ask_server(struct run *r, size_t server)
{
	const struct state *s = run_state(r);

	for (size_t i = 0; i < _SERVICE_MAX; i++) {
		ask(r, i, server, 0);
		if (s->v6)
			ask(r, i, server, 1);
	}
}

static void ask_vpc_resolver(struct run *r)
{
	const struct state *s = run_state(r);

	if (s->vpc == VPC)
		ask_server(r, VPC);
}

static void on_answer(struct run *r, const struct dns_reply *reply, uintptr_t tag)
{
	size_t type = tag % N_TYPES, server = tag / N_TYPES % SERVERS_MAX,
	       service = tag / N_TYPES / SERVERS_MAX;
	struct state *s = run_state(r);
	struct ask *a = &s->asks[service][server][type];

	if (server == VPC)
		s->pending_vpc--;
	else
		s->pending--;
	a->answered = true;
	a->reply = *reply;
	if (server != VPC && !is_proper(a)) {
		s->failed = true;
		ask_vpc_resolver(r);
	}
	if (type == 0 && reply->outcome == OUTCOME_ABSENT && reply->rcode == 0)
		ask(r, service, server, 1);
	/* what the VPC's resolver says matters only beside a failure */
	if (s->pending == 0 && (!s->failed || s->pending_vpc == 0))
		conclude(r);
}

/* Silence is not waited for to its end before the VPC's own resolver is asked. */
static void on_hedge(struct run *r, uintptr_t tag)
{
	ask_vpc_resolver(r);
}

static void observe_missing(struct run *r, int error)
{
	bool missing = error == -ENOENT || error == -ENODATA;
	struct observation *o = run_observe(r, LAYER_DNS, "server", resolv_path,
	                                    missing ? OUTCOME_ABSENT : OUTCOME_UNKNOWN, -error);

	observation_number(o, "file", error == -ENODATA);
	observation_detail(o, "%s",
	                   error == -ENOENT    ? "resolv.conf is absent"
	                   : error == -ENODATA ? "resolv.conf has no nameserver"
	                                       : strerror(-error));
}

static void observe_regionless(struct run *r)
{
	observation_detail(run_observe(r, LAYER_DNS, "", "", OUTCOME_UNKNOWN, 0),
	                   "cannot tell: region not known");
}

static int start(struct run *r)
{
	struct state *s = run_state(r);
	int ret, wanted;

	s->others = others_are_due(r);
	if (s->others)
		learn_bootstrap(r);
	wanted = name_all(r, s);
	if (wanted < 0)
		observe_regionless(r);
	ret = read_servers(r, s);
	if (ret < 0)
		observe_missing(r, ret);
	if (wanted == 0)
		observation_detail(run_observe(r, LAYER_DNS, "", "", OUTCOME_SKIPPED, 0),
		                   "the endpoints have no names to resolve");
	if (ret < 0 || wanted <= 0) {
		run_end(r);
		return 0;
	}
	s->v6_first = is_ipv6_only(r);
	s->v6 = s->v6_first || is_true(run_env(r, "AWS_USE_DUALSTACK_ENDPOINT"));
	find_vpc_resolver(s);
	for (size_t i = 0; i < s->n_servers; i++)
		ask_server(r, i);
	if (s->pending == 0)
		return -EIO;
	(void) run_timer(r, hedge_after, on_hedge, 0);
	return 0;
}

/* ---- the judgement ---- */

static enum code code_of_server(const struct observation *o)
{
	bool silent = o->outcome == OUTCOME_TIMEOUT || o->outcome == OUTCOME_REFUSED ||
	              o->outcome == OUTCOME_UNREACHABLE || o->outcome == OUTCOME_RESET;

	if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	    o->outcome == OUTCOME_UNKNOWN)
		return CODE_NONE;
	if (o->outcome == OUTCOME_ABSENT)
		return CODE_ResolverMissing;
	if (evidence_number(o, "others_ok", 0) > 0)
		return CODE_NONE;
	if (!silent)
		return CODE_ResolverFailing;
	return evidence_number(o, "loopback", 0) && evidence_number(o, "vpc_resolver_ok", 0)
	               ? CODE_ResolverStubDead
	               : CODE_ResolverUnreachable;
}

static const char *rcode_text(int rcode, char dst[static 16])
{
	static const char *const names[] = {"no error", "FORMERR", "SERVFAIL",
	                                    "NXDOMAIN", "NOTIMP",  "REFUSED"};

	if (rcode >= 0 && (size_t) rcode < ELEMENTS(names))
		(void) snprintf(dst, 16, "%s", names[rcode]);
	else
		(void) snprintf(dst, 16, "rcode %d", rcode);
	return dst;
}

static void describe_server(const struct observation *o, enum code code, struct words *ret)
{
	int error = (int) evidence_number(o, "errno", 0);
	int64_t ms = evidence_number(o, "took_ms", 0);
	char *d = ret->summary, rcode[16];
	size_t size = sizeof(ret->summary);

	if (o->outcome == OUTCOME_ABSENT) {
		(void) text_format(d, size, "%s %s", o->subject,
		                   evidence_number(o, "file", 0) ? "has no nameserver line"
		                                                 : "is absent");
		return;
	}
	if (error)
		(void) text_format(d, size, "nameserver %s: %s", o->subject, strerror(error));
	else if (o->outcome == OUTCOME_TIMEOUT)
		(void) text_format(d, size, "nameserver %s: no answer in %lld.%lld s", o->subject,
		                   (long long) ms / 1000, (long long) ms % 1000 / 100);
	else if (o->outcome == OUTCOME_MALFORMED)
		(void) text_format(d, size, "nameserver %s: its answer does not parse", o->subject);
	else if (code == CODE_ResolverFailing)
		(void) text_format(d, size, "nameserver %s answers %s", o->subject,
		                   rcode_text((int) evidence_number(o, "rcode", -1), rcode));
	else
		(void) text_format(d, size, "nameserver %s: closes the connection", o->subject);
	(void) text_append(d, size, " for %lld of %lld names",
	                   (long long) evidence_number(o, "failed", 0),
	                   (long long) evidence_number(o, "asked", 0));
	if (evidence_number(o, "vpc_resolver_ok", 0))
		(void) text_append(d, size, "; the VPC resolver answers");
}

static enum code judge_name(const struct observation *o, struct words *ret)
{
	int rcode = (int) evidence_number(o, "rcode", 3);

	if (o->outcome != OUTCOME_ABSENT)
		return CODE_NONE;
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "%s: %s, though the resolver answers", evidence_get_text(o, "host"),
	                   rcode == 3 ? "NXDOMAIN" : "the name has no address");
	return CODE_NameNotFound;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	enum code c;

	if (strcmp(o->aspect, "name") == 0)
		return judge_name(o, ret);
	c = code_of_server(o);
	if (c != CODE_NONE)
		describe_server(o, c, ret);
	return c;
}

const struct probe probe_dns = {
	.name = "dns",
	.what = "the names of the AWS endpoints against each nameserver of resolv.conf",
	.layer = LAYER_DNS,
	.every = 5 * USEC_PER_SEC,
	.timeout = 4 * USEC_PER_SEC,
	.grace = 60 * USEC_PER_SEC, /* DHCP may still be at it */
	.after = "imds",
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.watch = {"/etc/resolv.conf"},
	.leaves_node = true,
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_ResolverMissing, CODE_ResolverUnreachable, CODE_ResolverFailing,
                  CODE_ResolverStubDead, CODE_NameNotFound, CODE_NONE},
};
