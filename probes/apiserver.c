/* SPDX-License-Identifier: Apache-2.0 */
/* Does the API server of the kubeconfig answer, by its name and by the service address, and is the
 * kubelet's own connection to it alive? /livez is asked as nobody: any status below 500 is an
 * answer, as anonymous access may be off. */
#include <errno.h>
#include <jansson.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "probe.h"

enum {
	RESOLV_CONF_MAX = 65536,
	BODY_MAX = 65536,
	VPC = RESOLV_SERVERS_MAX, /* index of the VPC's own resolver, asked when the others fail */
	SERVERS_MAX,
	TRIES_MAX = 3,   /* addresses of the API server at one look */
	STUCK_TIMES = 6, /* retransmissions in a row: 12 s and more without an answer */
};

/* What each slot looks at. */
enum { BY_NAME, BY_SERVICE, N_SLOTS };

static const usec_t patience = USEC_PER_SEC;
static const usec_t connect_patience = USEC_PER_SEC;
/* The next address is tried beside one that is silent so long. */
static const usec_t hedge_after = 200 * USEC_PER_MSEC;
static const usec_t tables_max_age = 60 * USEC_PER_SEC;
/* The dns probe looks every five seconds. */
static const usec_t others_age = 12 * USEC_PER_SEC;
/* kube-proxy is a pod: it comes after the node has registered and its image was pulled. */
static const usec_t kube_proxy_grace = 300 * USEC_PER_SEC;
/* A kubelet finds a dead connection by itself in 45 s (HTTP/2 pings), and opens another one. */
static const usec_t stuck_after = 60 * USEC_PER_SEC;
/* In a check, who knows whether the node is registered looks at the same time. */
static const usec_t registered_step = 10 * USEC_PER_MSEC;
static const usec_t registered_patience = 400 * USEC_PER_MSEC;

struct ask {
	bool asked, answered, other_type;
	struct dns_reply reply;
};

struct state {
	char path[64], ca_path[256]; /* of the kubeconfig and of the file with the CA */
	char ca[KUBECONFIG_CA_MAX + 1];
	size_t ca_len;
	struct address servers[SERVERS_MAX];
	size_t n_servers; /* of resolv.conf */
	struct ask asks[SERVERS_MAX];
	enum dns_type type;    /* asked first */
	bool compared, others; /* with another name, which they have an answer for */
	unsigned asking, connecting, tried;
	bool through;            /* the proxy, at last */
	struct http_reply alone; /* how it failed without it; of its texts, what it holds itself */
	struct address alone_at; /* family 0: the name did not resolve */
	bool said;               /* what is wrong with the files */
	bool unverified;         /* insecure-skip-tls-verify: the kubelet does not look either */
	struct address service;
	bool guessed; /* the service address */
	usec_t waited;
};

struct memory {
	unsigned turn; /* which of several addresses comes first */
	bool answered; /* at the last look by name */
	bool tried;    /* there was one */
	bool by_proxy; /* and only a proxy led there */
	bool service_answered;
};

/* ---- what the node was told of its cluster ---- */

static void observe_reason(struct run *r, enum outcome outcome, const char *why)
{
	observation_detail(run_observe(r, LAYER_APISERVER,
	                               run_slot(r) == BY_NAME ? "endpoint" : "service", "", outcome,
	                               0),
	                   "%s", why);
}

static void describe_ca(const struct observation *o, char *dst, size_t size)
{
	const char *error = evidence_get_text(o, "error");

	if (o->outcome == OUTCOME_ABSENT)
		(void) text_format(dst, size, "%s is absent", o->subject);
	else if (error[0])
		(void) text_format(dst, size, "%s cannot be used: %s", o->subject, error);
	else
		(void) text_format(dst, size, "%s holds no certificate (%lld bytes)", o->subject,
		                   (long long) evidence_number(o, "bytes", 0));
}

/* Only the look by name speaks of the files: the other one reads them for itself. */
static struct observation *observe_ca(struct run *r, enum outcome outcome, const char *subject)
{
	return run_slot(r) == BY_NAME ? run_observe(r, LAYER_BOOTSTRAP, "ca", subject, outcome, 0)
	                              : NULL;
}

static void observe_unusable(struct run *r, const char *path, const char *format, ...)
	_printf_(3, 4);
static void observe_unusable(struct run *r, const char *path, const char *format, ...)
{
	struct observation *o = observe_ca(r, OUTCOME_MALFORMED, path);
	char error[72];
	va_list ap;

	if (!o)
		return;
	va_start(ap, format);
	(void) text_vformat(error, sizeof(error), format, ap);
	va_end(ap);
	observation_text(o, "error", "%s", error);
	describe_ca(o, o->detail, sizeof(o->detail));
}

/* The image's own kubeconfig, which bootstrap.sh of AL2 has yet to fill in, names a placeholder. */
static bool is_template(const struct kubeconfig *k)
{
	return k->server[0] && !strchr(k->server, ':') && !strchr(k->server, '.');
}

/* "aws eks get-token" needs a cluster's name; the authenticator may have it from its environment.
 * Arguments that have shifted leave an option in its place. */
static void check_cluster_name(struct run *r, const struct kubeconfig *k)
{
	const struct state *s = run_state(r);
	const char *slash = strrchr(k->command, '/');

	if (k->cluster[0] == '-')
		observe_unusable(r, s->path, "the cluster's name is \"%s\"", k->cluster);
	else if (!k->cluster[0] && strcmp(slash ? slash + 1 : k->command, "aws") == 0)
		observe_unusable(r, s->path, "no cluster name for the token command");
}

/* As client-go does: a relative path is relative to the kubeconfig. */
static void find_ca_path(struct state *s, const struct kubeconfig *k)
{
	const char *slash = strrchr(s->path, '/');

	(void) text_format(s->ca_path, sizeof(s->ca_path), "%.*s%s",
	                   k->ca_path[0] == '/' ? 0 : (int) (slash - s->path + 1), s->path,
	                   k->ca_path);
}

static int read_ca(struct run *r, const struct kubeconfig *k)
{
	struct state *s = run_state(r);
	struct observation *o;
	const char *text;
	size_t len;
	int e;

	if (k->ca_pem) {
		text = k->ca_pem;
		len = k->ca_len;
		memcpy(s->ca_path, s->path, sizeof(s->path));
	} else if (k->ca_path[0]) {
		find_ca_path(s, k);
		e = run_read(r, s->ca_path, KUBECONFIG_CA_MAX, &text, &len);
		if (e < 0) {
			bool absent = e == -ENOENT || e == -ENOTDIR;

			o = observe_ca(r, absent ? OUTCOME_ABSENT : OUTCOME_UNKNOWN, s->ca_path);
			if (o && absent)
				describe_ca(o, o->detail, sizeof(o->detail));
			else
				observation_detail(o, "cannot tell: %s", strerrordesc_np(-e));
			return e;
		}
	} else {
		observe_unusable(r, s->path, "it names no certificate authority");
		return -ENOENT;
	}
	e = (int) kubeconfig_certificates(text, len);
	o = observe_ca(r, e > 0 ? OUTCOME_OK : OUTCOME_MALFORMED, s->ca_path);
	observation_number(o, "certificates", e);
	observation_number(o, "bytes", (int64_t) len);
	if (o && e == 0)
		describe_ca(o, o->detail, sizeof(o->detail));
	else
		observation_detail(o, "%d certificate%s", e, e == 1 ? "" : "s");
	if (e == 0)
		return -EBADMSG;
	memcpy(s->ca, text, len);
	s->ca_len = len;
	return 0;
}

static void learn(struct run *r, const struct kubeconfig *k)
{
	struct endpoint *e = &run_learn(r)->apiserver;

	if (strcmp(e->host, k->host) != 0 || strcmp(e->scheme, k->scheme) != 0 ||
	    e->port != k->port) {
		*e = (struct endpoint){.port = k->port};
		(void) snprintf(e->host, sizeof(e->host), "%s", k->host);
		(void) snprintf(e->scheme, sizeof(e->scheme), "%s", k->scheme);
	}
	if (address_parse(&e->addresses[0], e->host) < 0)
		return;
	e->literal = true;
	e->n = 1;
	e->resolved_at = run_now(r);
}

/* True when there is a server to ask and a CA to hold it against. Else it is said why not. */
static bool take_kubeconfig(struct run *r, const struct kubeconfig *k)
{
	struct state *s = run_state(r);

	if (is_template(k)) {
		observe_reason(r, OUTCOME_SKIPPED, "the kubeconfig is not filled in yet");
		return false;
	}
	if (!k->host[0]) {
		observe_unusable(r, s->path, "server \"%s\" is no URL", k->server);
		observe_reason(r, OUTCOME_SKIPPED, "no API server in the kubeconfig");
		return false;
	}
	learn(r, k);
	s->unverified = k->insecure;
	check_cluster_name(r, k);
	if (k->insecure || strcmp(k->scheme, "http") == 0)
		return true;
	if (read_ca(r, k) == 0)
		return true;
	observe_reason(r, OUTCOME_SKIPPED, "no cluster CA to verify against");
	return false;
}

static bool read_kubeconfig(struct run *r)
{
	struct state *s = run_state(r);
	struct kubeconfig k = {0};
	const char *text;
	char error[64];
	size_t len;
	bool good;
	int e = -ENOENT;

	for (size_t i = 0; kubeconfig_paths[i] && e == -ENOENT; i++) {
		(void) snprintf(s->path, sizeof(s->path), "%s", kubeconfig_paths[i]);
		e = run_read(r, s->path, KUBECONFIG_FILE_MAX, &text, &len);
	}
	if (e == -ENOENT) {
		observe_reason(r, OUTCOME_SKIPPED, "no kubeconfig yet");
		return false;
	}
	if (e == 0)
		e = kubeconfig_parse(text, len, &k, error, sizeof(error));
	if (e == -EBADMSG) {
		observe_unusable(r, s->path, "%s", error);
		observe_reason(r, OUTCOME_SKIPPED, "the kubeconfig cannot be used");
		return false;
	}
	if (e < 0) {
		observe_reason(r, OUTCOME_UNKNOWN, "cannot tell: the kubeconfig cannot be read");
		return false;
	}
	good = take_kubeconfig(r, &k);
	kubeconfig_done(&k);
	return good;
}

/* ---- the kubelet's connection ---- */

/* The id of kubelet's cgroup is the inode of its directory. 0: not known. */
static uint64_t kubelet_cgroup(struct run *r)
{
	static const char *const dirs[] = {"/sys/fs/cgroup/runtime.slice/kubelet.service",
	                                   "/sys/fs/cgroup/system.slice/kubelet.service"};
	struct stat st;

	for (size_t i = 0; i < ELEMENTS(dirs); i++)
		if (file_stat(run_files(r), dirs[i], &st) == 0)
			return st.st_ino;
	return 0;
}

/* Our own have gone by then, but for what another look holds open, which is never so old. */
static bool is_kubelets(const struct tcp_socket *s, uint64_t cgroup)
{
	return s->uid == 0 && (!cgroup || !s->cgroup || s->cgroup == cgroup);
}

static bool is_stuck(const struct tcp_socket *s)
{
	return s->unacked > 0 && s->retransmits >= STUCK_TIMES && s->last_ack >= stuck_after;
}

static void describe_connection(const struct observation *o, char *dst, size_t size)
{
	(void) text_format(dst, size,
	                   "the kubelet's connection to the API server (port %lld): %lld "
	                   "retransmissions, nothing acknowledged for %lld s, while a fresh one "
	                   "is answered",
	                   (long long) evidence_number(o, "local_port", 0),
	                   (long long) evidence_number(o, "retransmits", 0),
	                   (long long) evidence_number(o, "silent_s", 0));
}

static void observe_connections(struct run *r, unsigned n, const struct tcp_socket *stuck)
{
	struct observation *o = run_observe(r, LAYER_APISERVER, "connection", "",
	                                    stuck   ? OUTCOME_TIMEOUT
	                                    : n > 0 ? OUTCOME_OK
	                                            : OUTCOME_SKIPPED,
	                                    0);

	observation_number(o, "connections", n);
	if (!stuck) {
		observation_detail(o, n > 0 ? "%u open, none is stuck" : "no open connection", n);
		return;
	}
	observation_number(o, "local_port", stuck->local_port);
	observation_number(o, "retransmits", stuck->retransmits);
	observation_number(o, "unacked", stuck->unacked);
	observation_number(o, "silent_s", (int64_t) (stuck->last_ack / USEC_PER_SEC));
	if (o)
		describe_connection(o, o->detail, sizeof(o->detail));
}

static void look_at_connections(struct run *r)
{
	const struct endpoint *e = &run_node(r)->apiserver;
	uint64_t cgroup = kubelet_cgroup(r);
	struct tcp_socket stuck = {0};
	struct tcp_sockets found;
	unsigned n = 0;
	int error = 0;

	for (size_t i = 0; i < e->n && error == 0; i++) {
		error = run_sockets(r, &e->addresses[i], e->port, &found);
		for (size_t k = 0; error == 0 && k < found.n; k++) {
			if (!is_kubelets(&found.sockets[k], cgroup))
				continue;
			n++;
			if (is_stuck(&found.sockets[k]) &&
			    found.sockets[k].last_ack > stuck.last_ack)
				stuck = found.sockets[k];
		}
	}
	if (error < 0)
		observation_detail(
			run_observe(r, LAYER_APISERVER, "connection", "", OUTCOME_UNKNOWN, -error),
			"cannot tell: sock_diag: %s", strerrordesc_np(-error));
	else
		observe_connections(r, n, stuck.last_ack ? &stuck : NULL);
}

/* ---- by name ---- */

static const char *stage_name(const struct http_reply *reply)
{
	return reply->stage == HTTP_CONNECTING ? "tcp" : reply->stage == HTTP_TLS ? "tls" : "http";
}

static void add_times(struct observation *o, const struct http_reply *reply)
{
	if (reply->connect)
		observation_number(o, "connect_ms", (int64_t) (reply->connect / USEC_PER_MSEC));
	if (reply->tls)
		observation_number(o, "tls_ms", (int64_t) (reply->tls / USEC_PER_MSEC));
	if (reply->status)
		observation_number(o, "http_status", reply->status);
}

static void describe_endpoint(const struct observation *o, char *dst, size_t size);

static void fill_failure(struct run *r, struct observation *o, const struct http_reply *reply,
                         const struct address *address)
{
	int datagram;

	observation_text(o, "stage", "%s", stage_name(reply));
	observation_number(o, "total_ms", (int64_t) (reply->total / USEC_PER_MSEC));
	if (reply->outcome != OUTCOME_UNTRUSTED && reply->outcome != OUTCOME_EXPIRED && reply->code)
		observation_number(o, "errno", reply->code);
	if (reply->tls_error[0])
		observation_text(o, "tls_error", "%s", reply->tls_error);
	if (reply->tls_issuer[0])
		observation_text(o, "issuer", "%s", reply->tls_issuer);
	if (reply->stage != HTTP_CONNECTING)
		return;
	datagram = run_local_block(r, address, run_node(r)->apiserver.port);
	if (datagram)
		observation_number(o, "datagram_errno", datagram);
}

static enum outcome outcome_of(const struct state *s, const struct http_reply *reply)
{
	if (s->unverified && reply->outcome == OUTCOME_UNTRUSTED)
		return OUTCOME_OK;
	if (reply->status)
		return reply->status >= 500 ? OUTCOME_FAILED : OUTCOME_OK;
	/* ours: what there is to verify against was looked at before */
	return reply->stage == HTTP_TLS && reply->outcome == OUTCOME_ABSENT ? OUTCOME_UNKNOWN
	                                                                    : reply->outcome;
}

static void observe_reply(struct run *r, const struct http_reply *reply,
                          const struct address *address)
{
	const struct state *s = run_state(r);
	enum outcome outcome = outcome_of(s, reply);
	struct observation *o = run_observe(r, LAYER_APISERVER, "endpoint", "", outcome,
	                                    reply->status           ? reply->status
	                                    : outcome == OUTCOME_OK ? 0
	                                                            : reply->code);
	char text[ADDRESS_TEXT_MAX];

	if (!o)
		return;
	observation_text(o, "address", "%s", address_format(address, text));
	observation_number(o, "tried", s->tried);
	add_times(o, reply);
	if (outcome != OUTCOME_OK)
		fill_failure(r, o, reply, address);
	if (outcome == OUTCOME_UNKNOWN)
		observation_detail(o, "cannot look: %s",
		                   reply->tls_error[0] ? reply->tls_error : strerror(reply->code));
	else if (outcome == OUTCOME_OK)
		observation_detail(o, "%s%s connects, %s, livez %d",
		                   s->through ? "through the proxy: " : "", text,
		                   s->ca_len ? "certificate verified against the cluster CA"
		                             : "certificate not verified",
		                   reply->status);
	else
		describe_endpoint(o, o->detail, sizeof(o->detail));
}

static bool connect_next(struct run *r);

static const struct address *address_of(struct run *r, uintptr_t tag)
{
	const struct endpoint *e = &run_node(r)->apiserver;
	const struct memory *m = run_memory(r);

	return &e->addresses[(m->turn + tag) % e->n];
}

static int livez(struct run *r, const char *host, const struct address *address, uint16_t port,
                 const struct http_proxy *proxy, run_http_t done, uintptr_t tag)
{
	const struct endpoint *e = &run_node(r)->apiserver;
	const struct state *s = run_state(r);
	struct http_request rq = {
		.method = "GET",
		.scheme = e->scheme,
		.host = host,
		.address = *address,
		.port = port,
		.path = "/livez",
		.connect_timeout = connect_patience,
		.timeout = 4 * USEC_PER_SEC,
		.body_max = BODY_MAX,
		.proxy = proxy,
		.ca_pem = s->ca_len ? s->ca : NULL,
		.ca_pem_len = s->ca_len,
	};

	return run_http(r, &rq, done, tag);
}

static void observe_unresolvable(struct run *r);

/* A kubelet that is told to use a proxy, and finds no exemption, goes through it: that it does not
 * get there by itself is then no fault. That the proxy does not let it is said by proxy. */
static void on_through(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);

	m->answered = m->by_proxy = reply->status && reply->status < 500;
	m->tried = true;
	if (m->answered) {
		run_witness(r, WITNESS_APISERVER, reply);
		observe_reply(r, reply, &run_node(r)->proxy.addresses[0]);
	} else if (s->alone_at.family) {
		s->through = false;
		observe_reply(r, &s->alone, &s->alone_at);
	} else {
		observe_unresolvable(r);
	}
	run_end(r);
}

static bool go_through(struct run *r)
{
	const struct endpoint *e = &run_node(r)->apiserver, *p = &run_node(r)->proxy;
	struct http_proxy via = {.scheme = p->scheme, .host = p->host, .port = p->port};
	struct state *s = run_state(r);

	if (p->n == 0 || !node_is_proxied(run_node(r), e->host, e->port))
		return false;
	via.address = p->addresses[0];
	s->through = livez(r, e->host, &via.address, e->port, &via, on_through, 0) == 0;
	return s->through;
}

/* An address of several may be dead: the kubelet goes on to the next one, and so does this. */
static void on_livez(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);

	s->connecting--;
	if (s->through && outcome_of(s, reply) != OUTCOME_OK)
		return;
	s->through = false;
	if (outcome_of(s, reply) != OUTCOME_OK && reply->stage == HTTP_CONNECTING &&
	    (connect_next(r) || s->connecting > 0))
		return;
	if (!reply->status) {
		s->alone = *reply;
		s->alone_at = *address_of(r, tag);
		if (go_through(r))
			return;
	}
	m->answered = outcome_of(s, reply) == OUTCOME_OK;
	m->by_proxy = false;
	m->tried = true;
	observe_reply(r, reply, address_of(r, tag));
	if (m->answered) {
		run_witness(r, WITNESS_APISERVER, reply);
		look_at_connections(r);
	}
	m->turn++;
	run_end(r);
}

static void on_hedge(struct run *r, uintptr_t tag)
{
	(void) connect_next(r);
}

/* False when there is none left, or none that can be tried. */
static bool connect_next(struct run *r)
{
	const struct endpoint *e = &run_node(r)->apiserver;
	struct state *s = run_state(r);
	unsigned tag = s->tried;

	if (tag >= e->n || tag >= TRIES_MAX)
		return false;
	s->tried++;
	if (livez(r, e->host, address_of(r, tag), e->port, NULL, on_livez, tag) < 0)
		return false;
	s->connecting++;
	(void) run_timer(r, hedge_after, on_hedge, 0);
	return true;
}

static int connect_first(struct run *r)
{
	return connect_next(r) ? 0 : -EIO;
}

/* ---- the name ---- */

static bool is_proper(const struct ask *a)
{
	return a->answered &&
	       (a->reply.outcome == OUTCOME_OK || a->reply.outcome == OUTCOME_ABSENT);
}

/* The first server with a proper answer decides, as for glibc; NULL: none has one. */
static const struct ask *deciding(const struct state *s)
{
	for (size_t i = 0; i < s->n_servers; i++)
		if (is_proper(&s->asks[i]))
			return &s->asks[i];
	return NULL;
}

static const char *rcode_text(const struct dns_reply *reply, char dst[static 24])
{
	static const char *const names[] = {"no address", "FORMERR", "SERVFAIL",
	                                    "NXDOMAIN",   "NOTIMP",  "REFUSED"};

	if (reply->rcode >= 0 && (size_t) reply->rcode < ELEMENTS(names))
		return names[reply->rcode];
	if (reply->rcode < 0)
		return outcome_name(reply->outcome);
	(void) snprintf(dst, 24, "rcode %d", reply->rcode);
	return dst;
}

/* "10.0.0.2 NXDOMAIN, 169.254.169.253 NXDOMAIN" */
static void list_servers(const struct state *s, char *dst, size_t size)
{
	char address[ADDRESS_TEXT_MAX], rcode[24];

	dst[0] = 0;
	for (size_t i = 0; i < SERVERS_MAX; i++)
		if (s->asks[i].asked)
			(void) text_append(dst, size, "%s%s %s", dst[0] ? ", " : "",
			                   address_format(&s->servers[i], address),
			                   s->asks[i].answered &&
			                                   s->asks[i].reply.outcome == OUTCOME_OK
			                           ? "resolves it"
			                           : rcode_text(&s->asks[i].reply, rcode));
}

/* What the dns probe, which looks every five seconds, has last seen of the nameservers. */
static bool resolved_lately(struct run *r)
{
	const struct endpoint *e = &run_node(r)->endpoints[SERVICE_EC2];

	return run_node(r)->ec2 == EC2_NO ||
	       (e->resolved_at && run_now(r) - e->resolved_at < others_age);
}

static void observe_unresolvable(struct run *r)
{
	const struct state *s = run_state(r);
	const struct ask *a = deciding(s);
	char servers[128];
	struct observation *o;

	if (!a && !s->others) {
		observe_reason(r, OUTCOME_UNKNOWN, "cannot tell: no nameserver answers (see dns)");
		return;
	}
	if (!a)
		a = &s->asks[0];
	o = run_observe(r, LAYER_APISERVER, "endpoint", "", a->reply.outcome,
	                a->reply.error ? a->reply.error : a->reply.rcode);
	if (!o)
		return;
	list_servers(s, servers, sizeof(servers));
	observation_text(o, "stage", "dns");
	observation_text(o, "host", "%s", run_node(r)->apiserver.host);
	observation_text(o, "servers", "%s", servers);
	observation_number(o, "rcode", a->reply.rcode);
	if (s->asks[VPC].answered)
		observation_number(o, "vpc_rcode", s->asks[VPC].reply.rcode);
	if (a->reply.outcome == OUTCOME_UNKNOWN)
		observation_detail(o, "cannot ask: %s", strerrordesc_np(a->reply.error));
	else
		describe_endpoint(o, o->detail, sizeof(o->detail));
}

static void on_answer(struct run *r, const struct dns_reply *reply, uintptr_t tag);

static void ask(struct run *r, size_t server, enum dns_type type)
{
	struct state *s = run_state(r);
	struct ask *a = &s->asks[server];

	/* a nameserver that answers for nobody is not waited for: others find that */
	if (run_dns(r, &s->servers[server], run_node(r)->apiserver.host, type,
	            resolved_lately(r) ? patience : patience / 4, on_answer, server) < 0)
		return;
	a->asked = true;
	a->reply = (struct dns_reply){.outcome = OUTCOME_UNKNOWN, .rcode = -1};
	s->asking++;
}

static void conclude_names(struct run *r);

static void on_other(struct run *r, const struct dns_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);

	s->asking--;
	s->others |= reply->outcome == OUTCOME_OK || reply->outcome == OUTCOME_ABSENT;
	if (s->asking == 0)
		conclude_names(r);
}

/* When no nameserver has a proper answer for this name: has any for another one? That they do for
 * none is theirs, and said by dns. */
static bool ask_for_another(struct run *r)
{
	const struct endpoint *e = &run_node(r)->endpoints[SERVICE_EC2];
	struct state *s = run_state(r);

	if (s->compared || deciding(s))
		return false;
	s->compared = true;
	s->others = run_node(r)->ec2 == EC2_NO; /* there is no such name */
	for (size_t i = 0; i < s->n_servers && e->host[0] && !e->literal; i++)
		s->asking +=
			run_dns(r, &s->servers[i], e->host, s->type,
		                resolved_lately(r) ? patience : patience / 4, on_other, i) == 0;
	return s->asking > 0;
}

/* Whether it is this name or this resolver: the VPC's own is asked beside those that failed. */
static bool ask_vpc_resolver(struct run *r)
{
	struct state *s = run_state(r);

	if (s->asks[VPC].asked || (!deciding(s) && !s->others))
		return false;
	(void) address_parse(&s->servers[VPC],
	                     s->type == DNS_AAAA ? "fd00:ec2::253" : "169.254.169.253");
	for (size_t i = 0; i < s->n_servers; i++)
		if (address_equal(&s->servers[i], &s->servers[VPC]))
			return false;
	ask(r, VPC, s->type);
	return s->asks[VPC].asked;
}

static void conclude_names(struct run *r)
{
	struct endpoint *e = &run_learn(r)->apiserver;
	const struct ask *a = deciding(run_state(r));

	if (a && a->reply.outcome == OUTCOME_OK) {
		e->n = a->reply.n;
		memcpy(e->addresses, a->reply.addresses, sizeof(e->addresses));
		e->resolved_at = run_now(r);
		if (connect_first(r) == 0)
			return;
		observe_reason(r, OUTCOME_UNKNOWN, "cannot tell: no call could be made");
	} else if (ask_for_another(r) || ask_vpc_resolver(r) || go_through(r)) {
		return;
	} else {
		((struct memory *) run_memory(r))->answered = false;
		observe_unresolvable(r);
	}
	run_end(r);
}

static void on_answer(struct run *r, const struct dns_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	struct ask *a = &s->asks[tag];

	s->asking--;
	a->answered = true;
	a->reply = *reply;
	if (reply->outcome == OUTCOME_ABSENT && reply->rcode == 0 && !a->other_type) {
		a->other_type = true;
		ask(r, tag, s->type == DNS_A ? DNS_AAAA : DNS_A);
	}
	if (s->asking == 0)
		conclude_names(r);
}

static bool is_ipv6_only(struct run *r)
{
	const struct net *net;

	return run_net(r, tables_max_age, &net) == 0 &&
	       !net_default_route(net, AF_INET, RT_TABLE_MAIN) &&
	       net_default_route(net, AF_INET6, RT_TABLE_MAIN);
}

static int resolve(struct run *r)
{
	struct state *s = run_state(r);
	struct resolv_conf conf = {0};
	const char *text;
	size_t len;

	if (run_read(r, "/etc/resolv.conf", RESOLV_CONF_MAX, &text, &len) == 0)
		resolv_conf_parse(&conf, text, len);
	if (conf.n == 0) {
		observe_reason(r, OUTCOME_UNKNOWN, "cannot tell: resolv.conf has no nameserver");
		run_end(r);
		return 0;
	}
	s->n_servers = conf.n;
	memcpy(s->servers, conf.servers, sizeof(conf.servers));
	s->type = is_ipv6_only(r) ? DNS_AAAA : DNS_A;
	for (size_t i = 0; i < s->n_servers; i++)
		ask(r, i, s->type);
	return s->asking > 0 ? 0 : -EIO;
}

static int start_by_name(struct run *r)
{
	if (!read_kubeconfig(r)) {
		run_end(r);
		return 0;
	}
	return run_node(r)->apiserver.literal ? connect_first(r) : resolve(r);
}

/* ---- by the service address ---- */

/* The cluster's DNS is the service range's tenth address, "kubernetes" its first. A clusterDNS that
 * is neither (a node-local cache, a resolver of the company) says nothing of the range. */
static bool service_from_dns(const char *text, struct address *ret)
{
	struct address a;
	uint8_t *last;

	if (!text || address_parse(&a, text) < 0 || !address_is_private(&a))
		return false;
	last = &a.bytes[a.family == AF_INET ? 3 : 15];
	if (*last != 10)
		return false;
	*last = 1;
	*ret = a;
	return true;
}

/* Without clusterDNS, what is known already stays. */
static void on_config(const json_t *part, const char *path, void *userdata)
{
	struct state *s = userdata;

	(void) service_from_dns(
		json_string_value(json_array_get(json_object_get(part, "clusterDNS"), 0)),
		&s->service);
}

/* EKS takes 10.100.0.0/16, in a VPC of 10/8 172.20.0.0/16, unless it was told another range. */
static void find_service(struct run *r)
{
	struct state *s = run_state(r);
	struct address ten;

	(void) kubelet_config_read(run_files(r), on_config, s);
	if (s->service.family)
		return;
	s->guessed = true;
	(void) address_parse(&ten, "10.0.0.0");
	(void) address_parse(&s->service, address_in(&run_node(r)->private_ip, &ten, 8)
	                                          ? "172.20.0.1"
	                                          : "10.100.0.1");
}

static void describe_service(const struct observation *o, char *dst, size_t size)
{
	const char *address = evidence_get_text(o, "address");
	int64_t ms = evidence_number(o, "connect_ms", 0);
	int error = (int) evidence_number(o, "errno", 0);

	(void) text_format(dst, size, "%s%s: ", address[0] ? address : "the kubernetes service",
	                   address[0] ? ":443" : "");
	if (o->outcome == OUTCOME_TIMEOUT)
		(void) text_append(dst, size, "no connection in %lld.%lld s", (long long) ms / 1000,
		                   (long long) ms % 1000 / 100);
	else
		(void) text_append(dst, size, "%s",
		                   error ? strerror(error) : outcome_name(o->outcome));
	if (evidence_number(o, "endpoint_ok", 1))
		(void) text_append(dst, size, ", while the API server itself answers");
}

static void on_service(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	bool connected = reply->outcome == OUTCOME_OK || reply->stage != HTTP_CONNECTING;
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	char address[ADDRESS_TEXT_MAX];
	struct observation *o;

	m->service_answered = m->service_answered || connected;
	if (!connected && s->guessed && !m->service_answered) {
		observe_reason(r, OUTCOME_UNKNOWN,
		               "cannot tell: the range of service addresses is not known");
		run_end(r);
		return;
	}
	/* behind that address is the same API server */
	if (!connected && (m->by_proxy || (!m->answered && (m->tried || run_once(r))))) {
		observe_reason(r, OUTCOME_UNKNOWN,
		               m->by_proxy ? "cannot tell: only the proxy leads to the API server"
		                           : "cannot tell: the API server itself does not answer");
		run_end(r);
		return;
	}
	o = run_observe(r, LAYER_APISERVER, "service", "", connected ? OUTCOME_OK : reply->outcome,
	                connected ? 0 : reply->code);
	observation_text(o, "address", "%s", address_format(&s->service, address));
	observation_number(o, "connect_ms",
	                   (int64_t) ((connected ? reply->connect : reply->total) / USEC_PER_MSEC));
	observation_number(o, "endpoint_ok", m->answered);
	if (!connected && reply->code)
		observation_number(o, "errno", reply->code);
	if (o && !connected)
		describe_service(o, o->detail, sizeof(o->detail));
	else
		observation_detail(o, "%s:443 connects in %.1f ms", address,
		                   (double) reply->connect / USEC_PER_MSEC);
	run_end(r);
}

static int look_at_service(struct run *r)
{
	struct state *s = run_state(r);

	if (run_node(r)->registered != YES) {
		observe_reason(r, OUTCOME_SKIPPED,
		               run_node(r)->registered == NO ? "not registered"
		                                             : "not known to be registered");
	} else if (run_uptime(r) < kube_proxy_grace) {
		observe_reason(r, OUTCOME_SKIPPED, "kube-proxy may still be starting");
	} else if (read_kubeconfig(r)) {
		find_service(r);
		return livez(r, "kubernetes.default.svc", &s->service, 443, NULL, on_service, 0);
	}
	run_end(r);
	return 0;
}

static void on_registered(struct run *r, uintptr_t tag);

static int wait_registered(struct run *r)
{
	const struct memory *m = run_memory(r);
	struct state *s = run_state(r);

	if ((run_node(r)->registered != CANNOT_TELL && m->tried) || !run_once(r) ||
	    s->waited >= registered_patience)
		return look_at_service(r);
	s->waited += registered_step;
	return run_timer(r, registered_step, on_registered, 0);
}

static void on_registered(struct run *r, uintptr_t tag)
{
	if (wait_registered(r) == 0)
		return;
	observe_reason(r, OUTCOME_UNKNOWN, "cannot tell: no call could be made");
	run_end(r);
}

static int start(struct run *r)
{
	return run_slot(r) == BY_NAME ? start_by_name(r) : wait_registered(r);
}

/* ---- what it means ---- */

static void describe_transport(const struct observation *o, char *dst, size_t size)
{
	const char *stage = evidence_get_text(o, "stage"),
		   *tls_error = evidence_get_text(o, "tls_error");
	int64_t ms = evidence_number(o, "total_ms", 0);
	int error = (int) evidence_number(o, "errno", 0);
	bool tls = strcmp(stage, "tls") == 0, http = strcmp(stage, "http") == 0;

	if (o->outcome == OUTCOME_TIMEOUT)
		(void) text_append(dst, size, "%s in %lld.%lld s",
		                   http  ? "TLS stands, no answer to GET /livez"
		                   : tls ? "connected, no TLS answer"
		                         : "no connection",
		                   (long long) ms / 1000, (long long) ms % 1000 / 100);
	else if (o->outcome == OUTCOME_UNTRUSTED || o->outcome == OUTCOME_EXPIRED)
		(void) text_append(dst, size, "not verified by the cluster CA: %s, issuer \"%s\"",
		                   tls_error, evidence_get_text(o, "issuer"));
	else if (o->outcome == OUTCOME_RESET)
		(void) text_append(dst, size, "connection closed during %s",
		                   http  ? "the request"
		                   : tls ? "the TLS handshake"
		                         : "the connect");
	else if (tls && tls_error[0])
		(void) text_append(dst, size, "no TLS: %s", tls_error);
	else
		(void) text_append(dst, size, "%s",
		                   error ? strerror(error) : outcome_name(o->outcome));
}

static void describe_endpoint(const struct observation *o, char *dst, size_t size)
{
	const char *address = evidence_get_text(o, "address"),
		   *servers = evidence_get_text(o, "servers"), *host = evidence_get_text(o, "host");
	int datagram = (int) evidence_number(o, "datagram_errno", 0);
	int64_t status = evidence_number(o, "http_status", 0);
	struct address a;

	if (evidence_number(o, "rcode", -2) != -2) {
		(void) text_format(dst, size, "%s: %s",
		                   host[0] ? host : "the API server's name does not resolve",
		                   servers[0]                            ? servers
		                   : evidence_number(o, "rcode", 0) == 3 ? "NXDOMAIN"
		                                                         : "no address");
		return;
	}
	(void) text_format(dst, size, "API server at %s %s: ",
	                   address_parse(&a, address) == 0 ? address_kind(&a) : "its address",
	                   address);
	if (status)
		(void) text_append(dst, size, "GET /livez answers %lld", (long long) status);
	else
		describe_transport(o, dst, size);
	if (datagram)
		(void) text_append(dst, size, "; stopped on this node: %s", strerror(datagram));
}

static enum code code_of_endpoint(const struct observation *o)
{
	const char *stage = evidence_get_text(o, "stage");

	if (evidence_number(o, "rcode", -2) != -2)
		return CODE_ApiServerUnresolvable;
	if (evidence_number(o, "http_status", 0) || strcmp(stage, "http") == 0)
		return CODE_ApiServerFailing;
	if (o->outcome == OUTCOME_UNTRUSTED || o->outcome == OUTCOME_EXPIRED)
		return CODE_ApiServerUntrusted;
	return o->outcome == OUTCOME_TIMEOUT ? CODE_ApiServerTimeout : CODE_ApiServerRefused;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	char *s = ret->summary;

	if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	    o->outcome == OUTCOME_UNKNOWN)
		return CODE_NONE;
	if (strcmp(o->aspect, "ca") == 0) {
		describe_ca(o, s, SUMMARY_MAX);
		return CODE_ClusterCaInvalid;
	}
	if (strcmp(o->aspect, "service") == 0) {
		describe_service(o, s, SUMMARY_MAX);
		return CODE_ServiceAddressUnreachable;
	}
	if (strcmp(o->aspect, "connection") == 0) {
		describe_connection(o, s, SUMMARY_MAX);
		return CODE_KubeletConnectionDead;
	}
	if (strcmp(o->aspect, "endpoint") != 0)
		return CODE_NONE;
	describe_endpoint(o, s, SUMMARY_MAX);
	return code_of_endpoint(o);
}

const struct probe probe_apiserver = {
	.name = "apiserver",
	.what = "the API server of the kubeconfig: name, TCP, TLS by the cluster CA, livez; the "
		"service address; the kubelet's connection",
	.layer = LAYER_APISERVER,
	/* With the service address every fifth time, and the Node object every five minutes, this
         * is one call a minute. */
	.every = 90 * USEC_PER_SEC,
	.retry = 2 * USEC_PER_SEC,
	.timeout = 9 * USEC_PER_SEC,
	.slots = N_SLOTS,
	.after = "dns", /* a nameserver that answers for nobody is no fault of this name */
	.rarer = {[BY_SERVICE] = 5},
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.watch = {"/var/lib/kubelet/kubeconfig", "/etc/kubernetes/kubelet/kubeconfig",
                  "/etc/kubernetes/pki/ca.crt"},
	.asked_by = {CODE_ApiServerUnresolvable, CODE_ApiServerTimeout, CODE_ApiServerRefused,
                     CODE_ApiServerUntrusted, CODE_ApiServerFailing, CODE_ServiceAddressUnreachable,
                     CODE_KubeletConnectionDead, CODE_CniApiServerUnreachable, CODE_IpamdNotServing,
                     CODE_AwsNodeNotRunning, CODE_NodeNotReady},
	.ask_every = 20 * USEC_PER_SEC,
	.leaves_node = true,
	.spread = true,             /* thousands have the same one */
	.grace = 60 * USEC_PER_SEC, /* nodeadm writes the files one after the other */
	.start = start,
	.judge = judge,
	.codes = {CODE_ClusterCaInvalid, CODE_ApiServerUnresolvable, CODE_ApiServerTimeout,
                  CODE_ApiServerRefused, CODE_ApiServerUntrusted, CODE_ApiServerFailing,
                  CODE_ServiceAddressUnreachable, CODE_KubeletConnectionDead},
};
