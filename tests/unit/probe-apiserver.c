/* SPDX-License-Identifier: Apache-2.0 */
/* The API server's probe on pictures of a cluster: names, answers, sockets and files from tables.
 */
#include <errno.h>
#include <stdarg.h>
#include <sys/stat.h>

#define run_slot        fake_slot
#define run_uptime      fake_uptime
#define run_dns         fake_dns
#define run_http        fake_http
#define run_timer       fake_timer
#define run_sockets     fake_sockets
#define run_local_block fake_local_block
#define run_witness     fake_witness
#define probe_apiserver tested_apiserver

#include "../fakerun.h"
#include "../tap.h"

#include "../../probes/apiserver.c"

enum { BY_ANSWER_MAX = 8 };

/* The picture; one at a time, as the probe knows no other way to it than its run. */
static struct picture {
	unsigned slot;
	usec_t uptime;
	const char
		*servers[3]; /* what each nameserver, and last the VPC's, answers: see reply_of() */
	const char *vpc, *other; /* of EC2's name, every nameserver */
	const char *livez[2];    /* what the addresses answer: see http_of() */
	struct tcp_sockets sockets;
	int sockets_error;
	const char *proxy; /* what it answers for the API server */
	unsigned asked, compared, called, proxied, witnessed, timers;
	char name[256];
	bool with_ca;
	struct {
		run_dns_t answer;
		uintptr_t tag;
		struct dns_reply reply;
	} asks[BY_ANSWER_MAX];
	struct {
		run_http_t answer;
		uintptr_t tag;
		struct http_reply reply;
	} calls[BY_ANSWER_MAX];
	struct {
		run_timer_t answer;
		uintptr_t tag;
	} timer;
} p;

unsigned fake_slot(const struct run *r)
{
	return p.slot;
}

usec_t fake_uptime(const struct run *r)
{
	return p.uptime;
}

static struct dns_reply reply_of(const char *answer)
{
	struct dns_reply d = {.outcome = OUTCOME_OK, .n = 2};

	(void) address_parse(&d.addresses[0], "10.0.2.90");
	(void) address_parse(&d.addresses[1], "10.0.3.91");
	if (strcmp(answer, "ok") == 0)
		return d;
	d = (struct dns_reply){.outcome = OUTCOME_ABSENT, .rcode = 3};
	if (strcmp(answer, "nodata") == 0)
		d.rcode = 0;
	else if (strcmp(answer, "servfail") == 0)
		d = (struct dns_reply){.outcome = OUTCOME_FAILED, .rcode = 2};
	else if (strcmp(answer, "silent") == 0)
		d = (struct dns_reply){.outcome = OUTCOME_TIMEOUT, .rcode = -1};
	return d;
}

int fake_dns(struct run *r, const struct address *server, const char *name, enum dns_type type,
             usec_t timeout, run_dns_t done_cb, uintptr_t tag)
{
	bool vpc = address_is_link_local(server), other = strncmp(name, "ec2.", 4) == 0;
	const char *answer = vpc ? p.vpc : other ? p.other : p.servers[tag];

	p.compared += other;
	if (!other)
		(void) snprintf(p.name, sizeof(p.name), "%s", name);
	if (p.asked == BY_ANSWER_MAX)
		return -ENOSPC;
	p.asks[p.asked].answer = done_cb;
	p.asks[p.asked].tag = tag;
	p.asks[p.asked++].reply =
		type == DNS_AAAA ? reply_of("nodata") : reply_of(answer ? answer : "nxdomain");
	return 0;
}

static struct http_reply http_of(const char *answer)
{
	struct http_reply h = {.outcome = OUTCOME_TIMEOUT,
	                       .code = ETIMEDOUT,
	                       .total = USEC_PER_SEC,
	                       .connect = 1000,
	                       .tls = 4000,
	                       .body = "",
	                       .date = ""};
	char *end;
	long status = strtol(answer, &end, 10);

	if (*end == 0) {
		h.outcome = OUTCOME_OK;
		h.stage = HTTP_DONE;
		h.code = h.status = (int) status;
	} else if (strcmp(answer, "refused") == 0) {
		h.outcome = OUTCOME_REFUSED;
		h.code = ECONNREFUSED;
	} else if (strcmp(answer, "stall") == 0) {
		h.stage = HTTP_TLS;
	} else if (strcmp(answer, "untrusted") == 0) {
		h.outcome = OUTCOME_UNTRUSTED;
		h.stage = HTTP_TLS;
		(void) snprintf(h.tls_error, sizeof(h.tls_error), "self-signed");
		(void) snprintf(h.tls_issuer, sizeof(h.tls_issuer), "Corp CA");
	} else if (strcmp(answer, "hang") == 0) {
		h.stage = HTTP_WAITING;
	}
	return h;
}

int fake_http(struct run *r, const struct http_request *rq, run_http_t done_cb, uintptr_t tag)
{
	if (p.called == BY_ANSWER_MAX)
		return -ENOSPC;
	ok(rq->address.family && rq->port == 443 && strcmp(rq->path, "/livez") == 0);
	p.proxied += rq->proxy != NULL;
	p.with_ca = rq->ca_pem && rq->ca_pem_len;
	p.calls[p.called].answer = done_cb;
	p.calls[p.called].tag = tag;
	p.calls[p.called++].reply =
		http_of(rq->proxy ? p.proxy : p.livez[rq->address.bytes[3] == 91]);
	return 0;
}

int fake_timer(struct run *r, usec_t after, run_timer_t done_cb, uintptr_t tag)
{
	p.timers++;
	p.timer.answer = done_cb;
	p.timer.tag = tag;
	return 0;
}

int fake_sockets(struct run *r, const struct address *to, uint16_t port, struct tcp_sockets *ret)
{
	*ret = to->bytes[3] == 90 ? p.sockets : (struct tcp_sockets){0};
	return p.sockets_error;
}

int fake_local_block(struct run *r, const struct address *to, uint16_t port)
{
	return 0;
}

void fake_witness(struct run *r, enum witness w, const struct http_reply *reply)
{
	p.witnessed += w == WITNESS_APISERVER;
}

/* ---- the node's files ---- */

static char root[] = "/tmp/nodewhy-unit-XXXXXX";

static void file(const char *path, const char *format, ...) _printf_(2, 3);
static void file(const char *path, const char *format, ...)
{
	char full[512];
	va_list ap;
	FILE *f;

	(void) snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *s = strchr(full + strlen(root) + 1, '/'); s; s = strchr(s + 1, '/')) {
		*s = 0;
		(void) mkdir(full, 0755);
		*s = '/';
	}
	(void) unlink(full);
	if (!format)
		return;
	f = fopen(full, "we");
	if (!f)
		return;
	va_start(ap, format);
	(void) vfprintf(f, format, ap);
	va_end(ap);
	(void) fclose(f);
}

static const char certificate[] =
	"-----BEGIN CERTIFICATE-----\n"
	"MIIBjzCCATWgAwIBAgIUIESe7HWA0SMSrGDgUOETF+fyM3QwCgYIKoZIzj0EAwIw\n"
	"FTETMBEGA1UEAwwKa3ViZXJuZXRlczAeFw0yNjExMzAyMzE2MTNaFw0yNzAxMjky\n"
	"MzE2MTNaMBUxEzARBgNVBAMMCmt1YmVybmV0ZXMwWTATBgcqhkjOPQIBBggqhkjO\n"
	"PQMBBwNCAATogFMeKDYoHuc+k5rsoC0vZroBEv6GkfnRaStN+KJ5Eeobqi5PJ8w7\n"
	"i+k8FN57DBUMgn2S8Zn5WYiUVnHhgGfTo2MwYTAdBgNVHQ4EFgQUgM975uss+wAJ\n"
	"oUXPBK0PDXmFqmIwHwYDVR0jBBgwFoAUgM975uss+wAJoUXPBK0PDXmFqmIwDwYD\n"
	"VR0TAQH/BAUwAwEB/zAOBgNVHQ8BAf8EBAMCAQYwCgYIKoZIzj0EAwIDSAAwRQIg\n"
	"By13eExOLdkO+j2aoQm2n8atLFGFzRCfDCQuTt4yPg4CIQDvrOYLDVt6jMgNdG/H\n"
	"mwjHlG3a7B6O49UWOqkzNcnhHw==\n"
	"-----END CERTIFICATE-----\n";

static void kubeconfig(const char *server, const char *ca, const char *args)
{
	file("/var/lib/kubelet/kubeconfig",
	     "clusters: [{cluster: {server: '%s', %s}}]\n"
	     "users: [{user: {exec: {command: aws, args: %s}}}]\n",
	     server, ca, args);
}

#define HOST "ABC.gr7.us-west-2.eks.amazonaws.com"
#define ARGS "[eks, get-token, --cluster-name, prod]"

static void sound_files(void)
{
	kubeconfig("https://" HOST, "certificate-authority: /etc/kubernetes/pki/ca.crt", ARGS);
	file("/etc/kubernetes/pki/ca.crt", "%s", certificate);
	file("/etc/resolv.conf", "nameserver 10.0.0.2\n");
	file("/etc/kubernetes/kubelet/config.json", "{\"clusterDNS\": [\"10.100.0.10\"]}");
	file("/etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf",
	     "{\"clusterDNS\": [\"172.20.0.10\"]}");
}

static struct picture sound_picture(void)
{
	return (struct picture){
		.servers = {"ok"}, .livez = {"200", "200"}, .uptime = 3600 * USEC_PER_SEC};
}

/* Starts the probe and answers what it asks, in the order asked; the timer last. */
static int look(struct run *r)
{
	unsigned asked = 0, called = 0;
	int e;

	free(r->state);
	r->state = calloc(1, tested_apiserver.state_size);
	if (!r->memory)
		r->memory = calloc(1, tested_apiserver.memory_size);
	r->ended = false;
	r->n_seen = 0;
	p.asked = p.compared = p.called = p.proxied = p.witnessed = p.timers = 0;
	e = tested_apiserver.start(r);
	while (e == 0 && !r->ended && (asked < p.asked || called < p.called || p.timer.answer)) {
		if (asked < p.asked) {
			asked++;
			p.asks[asked - 1].answer(r, &p.asks[asked - 1].reply,
			                         p.asks[asked - 1].tag);
		} else if (called < p.called) {
			called++;
			p.calls[called - 1].answer(r, &p.calls[called - 1].reply,
			                           p.calls[called - 1].tag);
		} else {
			run_timer_t done_cb = p.timer.answer;

			p.timer.answer = NULL;
			done_cb(r, p.timer.tag);
		}
	}
	ok(e < 0 || r->ended);
	for (size_t i = 0; i < r->n_reads; i++)
		free(r->reads[i]);
	r->n_reads = 0;
	return e;
}

static enum code judged(const struct run *r, const char *aspect)
{
	return fake_judge(r, &tested_apiserver, aspect);
}

static enum outcome seen(const struct run *r, const char *aspect)
{
	const struct observation *o = fake_find(r, aspect, NULL);

	return o ? o->outcome : _OUTCOME_MAX;
}

static bool says(const struct run *r, const char *aspect, const char *word)
{
	const struct observation *o = fake_find(r, aspect, NULL);
	struct words w = {0};

	return o && tested_apiserver.judge(o, &w) != CODE_NONE && strstr(w.summary, word);
}

/* ---- the tests ---- */

static void by_name(struct run *r)
{
	static const struct {
		const char *livez[2];
		enum code code;
		const char *word;
	} rows[] = {
		{{"200", "200"}, CODE_NONE, NULL},
		{{"401", "401"}, CODE_NONE, NULL},
		{{"403", "403"}, CODE_NONE, NULL},
		{{"silent", "200"}, CODE_NONE, NULL}, /* the kubelet goes on to the other one */
		{{"silent", "silent"}, CODE_ApiServerTimeout, "no connection in 1.0 s"},
		{{"refused", "refused"}, CODE_ApiServerRefused, "refused"},
		{{"stall", "stall"}, CODE_ApiServerTimeout, "no TLS answer"},
		{{"untrusted", "untrusted"}, CODE_ApiServerUntrusted, "Corp CA"},
		{{"hang", "hang"}, CODE_ApiServerFailing, "no answer"},
		{{"500", "503"}, CODE_ApiServerFailing, "50"},
	};

	for (size_t i = 0; i < ELEMENTS(rows); i++) {
		p = sound_picture();
		memcpy(p.livez, rows[i].livez, sizeof(p.livez));
		ok(look(r) == 0 && judged(r, "endpoint") == rows[i].code);
		ok(rows[i].code == CODE_NONE
		           ? seen(r, "endpoint") == OUTCOME_OK && p.witnessed == 1
		           : says(r, "endpoint", rows[i].word) && p.witnessed == 0);
		ok(p.with_ca && strcmp(p.name, HOST) == 0 && seen(r, "ca") == OUTCOME_OK);
		ok(judged(r, "ca") == CODE_NONE);
	}
	ok(strcmp(r->node.apiserver.host, HOST) == 0 && r->node.apiserver.n == 2);
}

static void names(struct run *r)
{
	p = sound_picture();
	p.servers[0] = p.vpc = "nxdomain";
	ok(look(r) == 0 && judged(r, "endpoint") == CODE_ApiServerUnresolvable);
	ok(says(r, "endpoint", "10.0.0.2 NXDOMAIN, 169.254.169.253 NXDOMAIN"));
	p.vpc = "ok"; /* a resolver of the company does not forward */
	ok(look(r) == 0 && says(r, "endpoint", "169.254.169.253 resolves it"));
	ok(p.compared == 0);
	p.servers[0] = p.other = "servfail"; /* for everybody: no fault of this name */
	ok(look(r) == 0 && seen(r, "endpoint") == OUTCOME_UNKNOWN && p.compared == 1);
	p.other = "ok";
	ok(look(r) == 0 && says(r, "endpoint", "SERVFAIL") && p.compared == 1);
	p.servers[0] = "nodata"; /* of either type */
	ok(look(r) == 0 && p.asked == 3 && says(r, "endpoint", "no address"));
	p.servers[0] = "silent";
	p.vpc = "silent";
	ok(look(r) == 0 && says(r, "endpoint", "10.0.0.2 timeout"));
	file("/etc/resolv.conf", "nameserver 10.0.0.2\nnameserver 10.0.0.3\n");
	p.servers[1] = "ok"; /* silence is not an answer: the next one counts */
	ok(look(r) == 0 && judged(r, "endpoint") == CODE_NONE && p.called > 0);
	p.servers[0] = "nxdomain"; /* that is one */
	ok(look(r) == 0 && judged(r, "endpoint") == CODE_ApiServerUnresolvable);
	file("/etc/resolv.conf", NULL);
	ok(look(r) == 0 && seen(r, "endpoint") == OUTCOME_UNKNOWN);
	kubeconfig("https://10.0.2.90", "certificate-authority: ca.crt", ARGS);
	file("/var/lib/kubelet/ca.crt", "%s", certificate);
	ok(look(r) == 0 && seen(r, "endpoint") == OUTCOME_OK && p.asked == 0);
	sound_files();
}

static void files(struct run *r)
{
	static const char by_path[] = "certificate-authority: /etc/kubernetes/pki/ca.crt";
	static const char shifted[] = "[token, -i, --enable-docker-bridge]";

	p = sound_picture();
	file("/etc/kubernetes/pki/ca.crt", NULL);
	ok(look(r) == 0 && judged(r, "ca") == CODE_ClusterCaInvalid && says(r, "ca", "absent"));
	ok(seen(r, "endpoint") == OUTCOME_SKIPPED && p.called == 0);
	file("/etc/kubernetes/pki/ca.crt", "%s", "");
	ok(look(r) == 0 && says(r, "ca", "ca.crt holds no certificate (0 bytes)"));
	file("/etc/kubernetes/pki/ca.crt", "-----BEGIN CERTIFICATE-----\n");
	ok(look(r) == 0 && says(r, "ca", "holds no certificate"));
	sound_files();
	kubeconfig("https://" HOST, "x: y", ARGS);
	ok(look(r) == 0 && says(r, "ca", "no certificate authority"));
	kubeconfig("https://" HOST, "certificate-authority-data: aGVsbG8=", ARGS);
	ok(look(r) == 0 && says(r, "ca", "holds no certificate (5 bytes)"));
	kubeconfig("https://" HOST, by_path,
	           shifted); /* and the server is looked at all the same */
	ok(look(r) == 0 && says(r, "ca", "--enable-docker-bridge") && p.called > 0 && p.with_ca);
	ok(seen(r, "endpoint") == OUTCOME_OK);
	kubeconfig("https://" HOST, by_path, "[eks, get-token]");
	ok(look(r) == 0 && says(r, "ca", "no cluster name"));
	kubeconfig("nonsense://x", by_path, ARGS);
	ok(look(r) == 0 && says(r, "ca", "no URL") && seen(r, "endpoint") == OUTCOME_SKIPPED);
	kubeconfig("MASTER_ENDPOINT", by_path, ARGS); /* AL2's own, before bootstrap.sh */
	ok(look(r) == 0 && !fake_find(r, "ca", NULL) && seen(r, "endpoint") == OUTCOME_SKIPPED);
	file("/var/lib/kubelet/kubeconfig", "hello");
	ok(look(r) == 0 && says(r, "ca", "not a kubeconfig"));
	file("/var/lib/kubelet/kubeconfig", NULL);
	ok(look(r) == 0 && !fake_find(r, "ca", NULL) && seen(r, "endpoint") == OUTCOME_SKIPPED);
	kubeconfig("https://" HOST, "insecure-skip-tls-verify: true", ARGS);
	p.livez[0] = p.livez[1] = "untrusted"; /* as it was told, the kubelet does not mind */
	ok(look(r) == 0 && seen(r, "endpoint") == OUTCOME_OK && !fake_find(r, "ca", NULL));
	sound_files();
}

static void connections(struct run *r)
{
	p = sound_picture();
	ok(look(r) == 0 && seen(r, "connection") == OUTCOME_SKIPPED);
	p.sockets = (struct tcp_sockets){
		.n = 1, .sockets = {{.local_port = 40000, .last_ack = 2 * USEC_PER_SEC}}};
	ok(look(r) == 0 && seen(r, "connection") == OUTCOME_OK);
	p.sockets.sockets[0].unacked = 3;
	p.sockets.sockets[0].retransmits = 4; /* the kubelet itself still waits */
	p.sockets.sockets[0].last_ack = 20 * USEC_PER_SEC;
	ok(look(r) == 0 && seen(r, "connection") == OUTCOME_OK);
	p.sockets.sockets[0].retransmits = 9;
	p.sockets.sockets[0].last_ack = 70 * USEC_PER_SEC;
	ok(look(r) == 0 && judged(r, "connection") == CODE_KubeletConnectionDead);
	ok(says(r, "connection", "port 40000") && says(r, "connection", "70 s"));
	p.sockets.sockets[0].uid = 1000; /* whose it is not */
	ok(look(r) == 0 && seen(r, "connection") == OUTCOME_SKIPPED);
	p.sockets.sockets[0].uid = 0;
	p.livez[0] = p.livez[1] = "silent"; /* then there is nothing to hold it against */
	ok(look(r) == 0 && !fake_find(r, "connection", NULL));
	p = sound_picture();
	p.sockets_error = -EOPNOTSUPP;
	ok(look(r) == 0 && seen(r, "connection") == OUTCOME_UNKNOWN);
}

static void through_a_proxy(struct run *r)
{
	struct endpoint *e = &r->node.proxy;

	p = sound_picture();
	*e = (struct endpoint){
		.host = "proxy.corp.example", .scheme = "http", .port = 3128, .n = 1};
	(void) address_parse(&e->addresses[0], "10.0.20.20");
	ok(look(r) == 0 && seen(r, "endpoint") == OUTCOME_OK && p.proxied == 0);
	p.livez[0] = p.livez[1] = "silent";
	p.proxy = "401";
	ok(look(r) == 0 && seen(r, "endpoint") == OUTCOME_OK && p.proxied == 1 && p.witnessed == 1);
	p.proxy = "refused";
	ok(look(r) == 0 && says(r, "endpoint", "10.0.") && p.proxied == 1);
	ok(judged(r, "endpoint") == CODE_ApiServerTimeout);
	p.servers[0] = p.vpc = "nxdomain"; /* the proxy resolves it, or does not */
	ok(look(r) == 0 && judged(r, "endpoint") == CODE_ApiServerUnresolvable && p.proxied == 1);
	p.proxy = "200";
	ok(look(r) == 0 && seen(r, "endpoint") == OUTCOME_OK);
	(void) snprintf(r->node.no_proxy, sizeof(r->node.no_proxy), ".eks.amazonaws.com");
	ok(look(r) == 0 && judged(r, "endpoint") == CODE_ApiServerUnresolvable && p.proxied == 0);
	*e = (struct endpoint){0};
}

static bool service_is(const struct run *r, const char *address)
{
	const struct observation *o = fake_find(r, "service", NULL);

	return o && strcmp(evidence_get_text(o, "address"), address) == 0;
}

static void service(struct run *r)
{
	p = sound_picture();
	ok(look(r) == 0); /* the API server answers */
	p.slot = BY_SERVICE;
	r->once = true;
	r->node.registered = CANNOT_TELL;
	ok(look(r) == 0 && seen(r, "service") == OUTCOME_SKIPPED && p.timers > 1 && p.called == 0);
	r->once = false;
	ok(look(r) == 0 && seen(r, "service") == OUTCOME_SKIPPED && p.timers == 0);
	r->node.registered = NO;
	ok(look(r) == 0 && seen(r, "service") == OUTCOME_SKIPPED && p.called == 0);
	r->node.registered = YES;
	p.uptime = 100 * USEC_PER_SEC;
	ok(look(r) == 0 && seen(r, "service") == OUTCOME_SKIPPED && p.called == 0);
	p.uptime = 3600 * USEC_PER_SEC;
	ok(look(r) == 0 && seen(r, "service") == OUTCOME_OK && service_is(r, "172.20.0.1"));
	ok(p.called == 1 && !fake_find(r, "ca", NULL) && !fake_find(r, "connection", NULL));
	p.livez[0] = "untrusted"; /* TCP alone counts */
	ok(look(r) == 0 && judged(r, "service") == CODE_NONE);
	p.livez[0] = "silent";
	ok(look(r) == 0 && judged(r, "service") == CODE_ServiceAddressUnreachable);
	ok(says(r, "service", "172.20.0.1:443: no connection in 1.0 s, while the API"));
	p.livez[0] = "refused";
	ok(look(r) == 0 && judged(r, "service") == CODE_ServiceAddressUnreachable);
	/* A guess alone accuses nobody, until it has been right once. */
	free(r->memory);
	r->memory = NULL;
	file("/etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf",
	     "{\"clusterDNS\": [\"169.254.20.10\"]}");
	file("/etc/kubernetes/kubelet/config.json", "{\"clusterDNS\": [\"10.1.2.3\"]}");
	(void) address_parse(&r->node.private_ip, "192.168.0.7");
	ok(look(r) == 0 && seen(r, "service") == OUTCOME_UNKNOWN);
	p.livez[0] = "200";
	ok(look(r) == 0 && seen(r, "service") == OUTCOME_OK && service_is(r, "10.100.0.1"));
	p.livez[0] = "silent";
	ok(look(r) == 0 && judged(r, "service") == CODE_ServiceAddressUnreachable);
	file("/etc/kubernetes/kubelet/config.json", "{\"clusterDNS\": [\"fd30:1c53:5f8a::a\"]}");
	p.livez[0] = p.livez[1] = "200";
	ok(look(r) == 0 && service_is(r, "fd30:1c53:5f8a::1"));
	sound_files();
}

int main(void)
{
	struct run r = {.now = 1000 * USEC_PER_SEC};
	struct files *f = NULL;
	char command[64];

	if (!mkdtemp(root) || files_new(&f, root) < 0)
		return 1;
	r.files = f;
	r.net_error = -EOPNOTSUPP;
	(void) snprintf(r.node.endpoints[SERVICE_EC2].host, AWS_HOST_MAX, "ec2.x.amazonaws.com");
	sound_files();
	by_name(&r);
	names(&r);
	files(&r);
	connections(&r);
	through_a_proxy(&r);
	service(&r);
	fake_free(&r);
	f = files_free(f);
	(void) snprintf(command, sizeof(command), "rm -rf '%s'", root);
	return system(command) != 0 || done();
}
