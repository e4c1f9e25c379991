/* SPDX-License-Identifier: Apache-2.0 */
/* Does the proxy that kubelet, containerd and nodeadm are told to use answer, does it let through
 * what is not exempt from it, and is metadata exempt? Only what keeps a node from becoming Ready is
 * a fault: that the units differ, or that the service range is not exempt, is said, and accuses
 * nobody, as sound nodes are set up like that. */
#include <errno.h>

#include "probe.h"

enum { FILE_BYTES = 65536, BODY_MAX = 65536, N_UNITS = 4 };

static const char *const units[N_UNITS] = {"kubelet.service", "containerd.service",
                                           "nodeadm-config.service", "nodeadm-run.service"};
static const char metadata[] = "169.254.169.254";
static const char remembered[] = "proxy.answered";
static const usec_t patience = USEC_PER_SEC;
/* Before that, whether the node becomes Ready as it is set up cannot be told. */
static const usec_t joined_by = 180 * USEC_PER_SEC;

/* What is asked through the proxy. */
enum { AN_ENDPOINT, THE_API_SERVER };

struct state {
	struct proxy_env env[N_UNITS];
	bool exists[N_UNITS];
	unsigned pending, asking;
	struct dns_reply names[RESOLV_SERVERS_MAX];
	size_t n_servers;
	const struct endpoint *target; /* an endpoint that is not exempt */
	bool target_done;
	struct names files;
};

/* ---- what the units are told ---- */

static void read_file(struct run *r, const char *path, const char *key, struct proxy_env *e)
{
	const char *text;
	size_t len;

	if (run_read(r, path, FILE_BYTES, &text, &len) == 0)
		proxy_env_take(e, key, text, len);
}

static void read_drop_ins(struct run *r, const char *dir, const char *key, struct proxy_env *e)
{
	struct state *s = run_state(r);
	char path[NAME_BYTES_MAX * 2];

	if (file_list(run_files(r), dir, &s->files) < 0)
		return;
	for (size_t i = 0; i < s->files.n; i++) {
		const char *dot = strrchr(s->files.name[i], '.');

		if (!dot || strcmp(dot, ".conf") != 0)
			continue;
		(void) text_format(path, sizeof(path), "%s/%s", dir, s->files.name[i]);
		read_file(r, path, key, e);
	}
}

/* Where systemd's bus cannot be asked. */
static void read_unit(struct run *r, size_t unit)
{
	static const char *const dirs[] = {"/usr/lib/systemd/system", "/etc/systemd/system",
	                                   "/run/systemd/system"};
	struct state *s = run_state(r);
	char path[NAME_BYTES_MAX];

	for (size_t i = 0; i < ELEMENTS(dirs); i++) {
		(void) text_format(path, sizeof(path), "%s/%s", dirs[i], units[unit]);
		read_file(r, path, "Environment", &s->env[unit]);
		(void) text_append(path, sizeof(path), ".d");
		read_drop_ins(r, path, "Environment", &s->env[unit]);
	}
	s->exists[unit] = true;
}

/* What all units get: systemd does not tell it with the unit's own. */
static void add_defaults(struct run *r)
{
	struct state *s = run_state(r);
	struct proxy_env all = {0};

	read_file(r, "/etc/systemd/system.conf", "DefaultEnvironment", &all);
	read_drop_ins(r, "/etc/systemd/system.conf.d", "DefaultEnvironment", &all);
	for (size_t i = 0; i < N_UNITS; i++) {
		struct proxy_env *e = &s->env[i];

		if (!e->http[0])
			memcpy(e->http, all.http, sizeof(all.http));
		if (!e->https[0])
			memcpy(e->https, all.https, sizeof(all.https));
		if (!e->no[0])
			memcpy(e->no, all.no, sizeof(all.no));
	}
}

static const char *proxy_of(const struct proxy_env *e)
{
	return e->https[0] ? e->https : e->http;
}

/* ---- what is said of each unit ---- */

static bool may_work(struct run *r)
{
	const struct node *n = run_node(r);

	return n->ready == YES || n->registered == YES || run_uptime(r) < joined_by;
}

/* Metadata is plain HTTP: HTTPS_PROXY alone does not concern it. */
static bool lacks_metadata(const struct proxy_env *e)
{
	return e->http[0] && !proxy_bypasses(e->no, metadata, 80);
}

static bool is_unlike(const struct state *s, size_t unit)
{
	for (size_t i = 0; i < N_UNITS; i++)
		if (s->exists[i] && strcmp(proxy_of(&s->env[i]), proxy_of(&s->env[unit])) != 0)
			return true;
	return false;
}

static void describe_unit(const struct observation *o, char *dst, size_t size)
{
	(void) text_format(dst, size, "%s has HTTP_PROXY=%s, and NO_PROXY lacks %s", o->subject,
	                   evidence_get_text(o, "proxy"), evidence_get_text(o, "lacks"));
}

static void observe_unit(struct run *r, size_t unit)
{
	const struct state *s = run_state(r);
	const struct proxy_env *e = &s->env[unit];
	bool lacks = lacks_metadata(e);
	struct observation *o;
	struct proxy_url u;

	if (!proxy_of(e)[0])
		return;
	if (proxy_url(proxy_of(e), &u) < 0) {
		o = run_observe(r, LAYER_ENDPOINT, "environment", units[unit], OUTCOME_UNKNOWN, 0);
		observation_detail(o, "cannot tell: its proxy is no http(s) URL");
		return;
	}
	o = run_observe(r, LAYER_ENDPOINT, "environment", units[unit],
	                !lacks        ? OUTCOME_OK
	                : may_work(r) ? OUTCOME_UNKNOWN
	                              : OUTCOME_MALFORMED,
	                0);
	if (!o)
		return;
	observation_text(o, "proxy", "%s://%s:%u", u.scheme, u.host, u.port);
	observation_number(o, "unlike", is_unlike(s, unit));
	observation_number(o, "service_exempt",
	                   proxy_bypasses(e->no, "172.20.0.1", 443) ||
	                           proxy_bypasses(e->no, "10.100.0.1", 443));
	if (lacks)
		observation_text(o, "lacks", "%s", metadata);
	if (lacks)
		describe_unit(o, o->detail, sizeof(o->detail));
	else
		observation_detail(o, "through %s%s", evidence_get_text(o, "proxy"),
		                   is_unlike(s, unit) ? ", another than other units" : "");
}

/* ---- the proxy ---- */

static void describe_path(const struct observation *o, char *dst, size_t size)
{
	int64_t ms = evidence_number(o, "total_ms", 0), error = evidence_number(o, "errno", 0),
		status = evidence_number(o, "proxy_status", 0);

	(void) text_format(dst, size, "proxy %s: ", evidence_get_text(o, "proxy"));
	if (evidence_number(o, "unresolved", 0))
		(void) text_append(dst, size, "its name does not resolve");
	else if (status)
		(void) text_append(dst, size, "answers %lld to CONNECT %s", (long long) status,
		                   evidence_get_text(o, "target"));
	else if (o->outcome == OUTCOME_TIMEOUT)
		(void) text_append(dst, size, "no answer in %lld.%lld s", (long long) ms / 1000,
		                   (long long) ms % 1000 / 100);
	else
		(void) text_append(dst, size, "%s",
		                   error ? strerror((int) error) : outcome_name(o->outcome));
	if (strcmp(o->aspect, "apiserver") == 0)
		(void) text_append(dst, size, "; NO_PROXY lacks the API server");
}

static void add_proxy(struct run *r, struct observation *o)
{
	const struct endpoint *p = &run_node(r)->proxy;

	observation_text(o, "proxy", "%s:%u", p->host, p->port);
}

/* A node that is Ready has never needed a proxy that has never answered. */
static bool is_missed(struct run *r)
{
	return run_node(r)->ready != YES || run_recall(r, remembered);
}

static void observe_path(struct run *r, const char *aspect, enum outcome outcome,
                         const struct http_reply *reply, const char *target)
{
	struct observation *o;

	if (outcome == OUTCOME_OK && !run_recall(r, remembered))
		run_remember(r, remembered, "answered");
	if (outcome != OUTCOME_OK && outcome != OUTCOME_UNKNOWN && !is_missed(r))
		outcome = OUTCOME_SKIPPED;
	o = run_observe(r, LAYER_ENDPOINT, aspect, "", outcome, reply ? reply->code : 0);
	if (!o)
		return;
	add_proxy(r, o);
	observation_text(o, "target", "%s", target);
	if (reply) {
		observation_number(o, "total_ms", (int64_t) (reply->total / USEC_PER_MSEC));
		observation_number(o, "proxy_status", reply->proxy_status);
		if (reply->code && !reply->status)
			observation_number(o, "errno", reply->code);
	} else {
		observation_number(o, "unresolved", 1);
	}
	if (outcome == OUTCOME_OK)
		observation_detail(o, "%s lets %s through", evidence_get_text(o, "proxy"), target);
	else if (outcome == OUTCOME_UNKNOWN)
		observation_detail(o, "cannot tell: the proxy asks for a user and password");
	else
		describe_path(o, o->detail, sizeof(o->detail));
}

/* A proxy that was given a user asks us for one, too, whom we do not have. */
static bool wants_user(struct run *r, const struct http_reply *reply)
{
	return reply->proxy_status == 407 && run_node(r)->proxy_user;
}

static void look_at_api_server(struct run *r);

/* That it answers is enough here: what it does not let through is a matter of that endpoint. */
static void on_endpoint(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	bool answers = reply->proxy_status && reply->proxy_status != 407;

	observe_path(r, "path",
	             answers || reply->status ? OUTCOME_OK
	             : wants_user(r, reply)   ? OUTCOME_UNKNOWN
	             : reply->proxy_status    ? OUTCOME_DENIED
	                                      : reply->outcome,
	             reply, s->target->host);
	look_at_api_server(r);
}

/* The certificate is the apiserver probe's matter: CONNECT alone counts. */
static void on_api_server(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	observe_path(r, "apiserver",
	             reply->proxy_status / 100 == 2 || reply->status ? OUTCOME_OK
	             : wants_user(r, reply)                          ? OUTCOME_UNKNOWN
	             : reply->proxy_status                           ? OUTCOME_DENIED
	                                                             : reply->outcome,
	             reply, run_node(r)->apiserver.host);
	run_end(r);
}

static int connect_through(struct run *r, const struct endpoint *e, run_http_t done)
{
	const struct endpoint *p = &run_node(r)->proxy;
	struct http_proxy via = {.scheme = p->scheme, .host = p->host, .port = p->port};
	struct http_request rq = {
		.method = "GET",
		.scheme = "https",
		.host = e->host,
		.port = e->port,
		.path = "/",
		.ca_file = run_env(r, "AWS_CA_BUNDLE"),
		.connect_timeout = 1200 * USEC_PER_MSEC,
		.timeout = 4 * USEC_PER_SEC,
		.body_max = BODY_MAX,
		.proxy = &via,
	};

	via.address = rq.address = p->addresses[0];
	return run_http(r, &rq, done, 0);
}

static void look_at_api_server(struct run *r)
{
	const struct endpoint *e = &run_node(r)->apiserver;

	if (!node_is_proxied(run_node(r), e->host, e->port) ||
	    connect_through(r, e, on_api_server) < 0)
		run_end(r);
}

/* One that the node needs and that is not exempt; NULL: none is. */
static const struct endpoint *find_target(struct run *r)
{
	const struct node *n = run_node(r);

	for (enum service i = 0; i < _SERVICE_MAX; i++)
		if (i != SERVICE_EKS && node_is_proxied(n, n->endpoints[i].host, 443))
			return &n->endpoints[i];
	return NULL;
}

static void look_at_path(struct run *r)
{
	struct state *s = run_state(r);

	s->target = find_target(r);
	if (s->target && connect_through(r, s->target, on_endpoint) == 0)
		return;
	look_at_api_server(r);
}

/* ---- the proxy's name ---- */

static void on_name(struct run *r, const struct dns_reply *reply, uintptr_t tag)
{
	struct endpoint *p = &run_learn(r)->proxy;
	struct state *s = run_state(r);

	s->names[tag] = *reply;
	if (--s->asking > 0)
		return;
	for (size_t i = 0; i < s->n_servers; i++) {
		if (s->names[i].outcome != OUTCOME_OK)
			continue;
		p->n = s->names[i].n;
		memcpy(p->addresses, s->names[i].addresses, sizeof(p->addresses));
		p->resolved_at = run_now(r);
		look_at_path(r);
		return;
	}
	if (reply->outcome == OUTCOME_ABSENT)
		observe_path(r, "path", OUTCOME_ABSENT, NULL, "");
	run_end(r); /* else no nameserver answers: see dns */
}

static void resolve(struct run *r)
{
	struct state *s = run_state(r);
	struct resolv_conf conf = {0};
	const char *text;
	size_t len;

	if (run_read(r, "/etc/resolv.conf", FILE_BYTES, &text, &len) == 0)
		resolv_conf_parse(&conf, text, len);
	s->n_servers = conf.n;
	for (size_t i = 0; i < conf.n; i++) {
		s->names[i] = (struct dns_reply){.outcome = OUTCOME_UNKNOWN};
		s->asking += run_dns(r, &conf.servers[i], run_node(r)->proxy.host, DNS_A, patience,
		                     on_name, i) == 0;
	}
	if (s->asking == 0)
		run_end(r);
}

/* kubelet's, else the first other's. Keeps the addresses while the name stays what it was. */
static bool learn(struct run *r)
{
	struct node *n = run_learn(r);
	struct state *s = run_state(r);
	struct endpoint p = {0};
	struct proxy_url u;
	size_t i = 0;

	while (i < N_UNITS && proxy_url(proxy_of(&s->env[i]), &u) < 0)
		i++;
	if (i < N_UNITS) {
		memcpy(p.host, u.host, sizeof(p.host));
		memcpy(p.scheme, u.scheme, sizeof(p.scheme));
		p.port = u.port;
		n->proxy_user = u.user;
		(void) snprintf(n->no_proxy, sizeof(n->no_proxy), "%s", s->env[i].no);
	}
	if (strcmp(n->proxy.host, p.host) != 0 || n->proxy.port != p.port ||
	    strcmp(n->proxy.scheme, p.scheme) != 0)
		n->proxy = p;
	if (i < N_UNITS && address_parse(&n->proxy.addresses[0], n->proxy.host) == 0) {
		n->proxy.literal = true;
		n->proxy.n = 1;
	}
	return i < N_UNITS;
}

static void conclude_units(struct run *r)
{
	struct state *s = run_state(r);

	add_defaults(r);
	for (size_t i = 0; i < N_UNITS; i++)
		if (s->exists[i])
			observe_unit(r, i);
		else
			s->env[i] = (struct proxy_env){0};
	if (!learn(r)) {
		observation_detail(run_observe(r, LAYER_ENDPOINT, "path", "", OUTCOME_SKIPPED, 0),
		                   "no proxy is configured");
		run_end(r);
	} else if (run_node(r)->proxy.literal) {
		look_at_path(r);
	} else {
		resolve(r);
	}
}

static void on_unit(struct run *r, const struct bus_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	struct proxy_env *e = &s->env[tag];

	if (reply->error < 0) {
		read_unit(r, tag);
	} else {
		s->exists[tag] = strcmp(reply->unit->load, "not-found") != 0;
		(void) snprintf(e->http, sizeof(e->http), "%s", reply->unit->http_proxy);
		(void) snprintf(e->https, sizeof(e->https), "%s", reply->unit->https_proxy);
		(void) snprintf(e->no, sizeof(e->no), "%s", reply->unit->no_proxy);
	}
	if (--s->pending == 0)
		conclude_units(r);
}

static int start(struct run *r)
{
	struct state *s = run_state(r);

	for (size_t i = 0; i < N_UNITS; i++)
		if (run_unit(r, units[i], patience, on_unit, i) == 0)
			s->pending++;
		else
			read_unit(r, i);
	if (s->pending == 0)
		conclude_units(r);
	return 0;
}

/* ---- what it means ---- */

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	    o->outcome == OUTCOME_UNKNOWN)
		return CODE_NONE;
	if (strcmp(o->aspect, "environment") == 0)
		describe_unit(o, ret->summary, sizeof(ret->summary));
	else
		describe_path(o, ret->summary, sizeof(ret->summary));
	return CODE_ProxyMisconfigured;
}

const struct probe probe_proxy = {
	.name = "proxy",
	.what = "the proxy that kubelet, containerd and nodeadm are told to use, and what is "
                "exempt "
		"from it",
	.layer = LAYER_ENDPOINT,
	.every = 300 * USEC_PER_SEC,
	.retry = 2 * USEC_PER_SEC,
	.timeout = 12 * USEC_PER_SEC,
	.state_size = sizeof(struct state),
	.after = "dns", /* which names the endpoints */
	.watch = {"/etc/systemd/system.conf.d", "/etc/systemd/system/kubelet.service.d",
                  "/etc/systemd/system/containerd.service.d"},
	.asked_by = {CODE_ProxyMisconfigured, CODE_EndpointTimeout, CODE_EndpointRefused,
                     CODE_NameNotFound},
	.ask_every = 20 * USEC_PER_SEC,
	.leaves_node = true,
	.needs_ec2 = true,
	.grace = 60 * USEC_PER_SEC,
	.start = start,
	.judge = judge,
	.codes = {CODE_ProxyMisconfigured},
};
