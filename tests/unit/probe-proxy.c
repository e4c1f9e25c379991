/* SPDX-License-Identifier: Apache-2.0 */
/* The proxy's probe with systemd's answers, or without any, and a proxy that does as the row says.
 */
#include <errno.h>
#include <sys/stat.h>

#define run_uptime   fake_uptime
#define run_env      fake_env
#define run_recall   fake_recall
#define run_remember fake_remember
#define run_unit     fake_unit
#define run_dns      fake_dns
#define run_http     fake_http
#define probe_proxy  tested_proxy

#include "../fakerun.h"
#include "../tap.h"

#include "../../probes/proxy.c"

enum { HELD_MAX = 8 };

#define PROXY "http://node:MARKER@proxy.corp.example:3128"

static struct picture {
	usec_t uptime;
	bool answered;
	int bus; /* error of each answer */
	const char *https[N_UNITS], *http[N_UNITS], *no[N_UNITS];
	enum outcome name; /* how its name is answered */
	run_dns_t asked;
	/* CONNECT: a status, or 0 and the outcome */
	int aws, api;
	enum outcome dead;
	unsigned called;
	struct {
		run_unit_t answer;
		uintptr_t tag;
	} units[HELD_MAX];
	size_t n_units;
} p;

usec_t fake_uptime(const struct run *r)
{
	return p.uptime;
}

const char *fake_env(const struct run *r, const char *name)
{
	return NULL;
}

const char *fake_recall(const struct run *r, const char *key)
{
	return p.answered ? "answered" : NULL;
}

void fake_remember(struct run *r, const char *key, const char *value)
{
	p.answered = true;
}

int fake_unit(struct run *r, const char *unit, usec_t timeout, run_unit_t answer, uintptr_t tag)
{
	p.units[p.n_units].answer = answer;
	p.units[p.n_units++].tag = tag;
	return 0;
}

int fake_dns(struct run *r, const struct address *server, const char *name, enum dns_type type,
             usec_t timeout, run_dns_t answer, uintptr_t tag)
{
	ok(strcmp(name, "proxy.corp.example") == 0 && tag == 0 && !p.asked);
	p.asked = answer;
	return 0;
}

int fake_http(struct run *r, const struct http_request *rq, run_http_t answer, uintptr_t tag)
{
	int status = strstr(rq->host, ".eks.") ? p.api : p.aws;
	struct http_reply h = {.outcome = p.dead, .total = USEC_PER_SEC, .body = "", .date = ""};

	p.called++;
	ok(rq->proxy && rq->proxy->port == 3128 && address_is_private(&rq->proxy->address));
	if (status) {
		h.outcome = status == 200 ? OUTCOME_UNTRUSTED : OUTCOME_DENIED;
		h.stage = status == 200 ? HTTP_TLS : HTTP_CONNECTING;
		h.proxy_status = status;
	}
	answer(r, &h, tag);
	return 0;
}

static void look(struct run *r)
{
	static struct unit u;

	r->n_reads = 0;
	p.called = 0;
	p.n_units = 0;
	free(r->state);
	r->state = calloc(1, tested_proxy.state_size);
	r->ended = false;
	r->n_seen = 0;
	ok(tested_proxy.start(r) == 0 && p.n_units == N_UNITS);
	for (size_t i = 0; i < N_UNITS; i++) {
		struct bus_reply reply = {.error = p.bus, .unit = p.bus ? NULL : &u};

		u = (struct unit){.load = "loaded"};
		(void) snprintf(u.https_proxy, sizeof(u.https_proxy), "%s",
		                p.https[i] ? p.https[i] : "");
		(void) snprintf(u.http_proxy, sizeof(u.http_proxy), "%s",
		                p.http[i] ? p.http[i] : "");
		(void) snprintf(u.no_proxy, sizeof(u.no_proxy), "%s", p.no[i] ? p.no[i] : "");
		p.units[i].answer(r, &reply, p.units[i].tag);
	}
	if (p.asked) {
		struct dns_reply d = {.outcome = p.name, .n = p.name == OUTCOME_OK};
		run_dns_t answer = p.asked;

		(void) address_parse(&d.addresses[0], "10.0.20.20");
		p.asked = NULL;
		answer(r, &d, 0);
	}
	ok(r->ended);
	for (size_t i = 0; i < r->n_seen; i++) /* a password is nowhere */
		ok(!memmem(&r->seen[i], sizeof(r->seen[i]), "MARKER", 6));
	ok(!memmem(&r->node, sizeof(r->node), "MARKER", 6));
	for (size_t i = 0; i < r->n_reads; i++)
		free(r->reads[i]);
	r->n_reads = 0;
}

static struct picture sound_picture(void)
{
	return (struct picture){.uptime = 3600 * USEC_PER_SEC,
	                        .https = {PROXY},
	                        .http = {PROXY},
	                        .no = {"169.254.169.254,.internal"},
	                        .name = OUTCOME_OK,
	                        .aws = 200,
	                        .api = 200,
	                        .dead = OUTCOME_TIMEOUT};
}

static enum outcome seen(const struct run *r, const char *aspect)
{
	const struct observation *o = fake_find(r, aspect, NULL);

	return o ? o->outcome : _OUTCOME_MAX;
}

static bool accused(const struct run *r, const char *aspect)
{
	return fake_judge(r, &tested_proxy, aspect) == CODE_ProxyMisconfigured;
}

static void path(struct run *r)
{
	p = sound_picture();
	look(r);
	ok(seen(r, "path") == OUTCOME_OK && seen(r, "apiserver") == OUTCOME_OK && p.called == 2);
	ok(p.answered && strcmp(r->node.proxy.host, "proxy.corp.example") == 0);
	ok(r->node.proxy_user && r->node.proxy.n == 1);
	p.aws = 403; /* the endpoint's matter */
	look(r);
	ok(seen(r, "path") == OUTCOME_OK);
	p.api = 403;
	look(r);
	ok(accused(r, "apiserver"));
	p.aws = p.api = 407; /* the units have a password, we do not */
	look(r);
	ok(seen(r, "path") == OUTCOME_UNKNOWN && seen(r, "apiserver") == OUTCOME_UNKNOWN);
	p.https[0] = p.http[0] = "http://proxy.corp.example:3128"; /* nobody has */
	look(r);
	ok(accused(r, "path"));
	p = sound_picture();
	p.aws = p.api = 0;
	look(r);
	ok(accused(r, "path"));
	r->node.ready = YES; /* it has never answered, and is not missed */
	look(r);
	ok(seen(r, "path") == OUTCOME_SKIPPED);
	p.answered = true;
	look(r);
	ok(accused(r, "path"));
	r->node.ready = CANNOT_TELL;
	p.name = OUTCOME_ABSENT;
	look(r);
	ok(accused(r, "path"));
	p.name = OUTCOME_TIMEOUT; /* see dns */
	look(r);
	ok(!fake_find(r, "path", NULL));
	p = sound_picture();
	p.no[0] = ".amazonaws.com,169.254.169.254"; /* all that the node needs */
	p.aws = p.api = 0;
	look(r);
	ok(p.called == 0 && seen(r, "environment") == OUTCOME_OK);
}

static void environment(struct run *r)
{
	p = sound_picture();
	p.no[0] = "10.0.0.0/8";
	look(r);
	ok(accused(r, "environment"));
	r->node.registered = YES; /* evidently it works */
	look(r);
	ok(seen(r, "environment") == OUTCOME_UNKNOWN);
	r->node.registered = NO;
	p.uptime = 20 * USEC_PER_SEC;
	look(r);
	ok(seen(r, "environment") == OUTCOME_UNKNOWN);
	p.uptime = 3600 * USEC_PER_SEC;
	p.http[0] = NULL; /* metadata is plain HTTP */
	look(r);
	ok(seen(r, "environment") == OUTCOME_OK);
	p.https[0] = "socks5://x:1";
	look(r);
	ok(seen(r, "environment") == OUTCOME_UNKNOWN && seen(r, "path") == OUTCOME_SKIPPED);
	p.https[0] = NULL;
	look(r);
	ok(r->n_seen == 1 && seen(r, "path") == OUTCOME_SKIPPED && !r->node.proxy.host[0]);
}

static void files(struct run *r)
{
	static const char unit[] = "[Service]\nEnvironment=\"HTTP_PROXY=" PROXY "\" NO_PROXY=x\n";

	p = sound_picture();
	p.bus = -ENOENT;
	r->text = unit; /* every file holds this */
	r->text_len = sizeof(unit) - 1;
	look(r);
	ok(accused(r, "environment"));
	r->text = NULL;
	look(r);
	ok(seen(r, "path") == OUTCOME_SKIPPED);
}

int main(void)
{
	struct run r = {.now = 1000 * USEC_PER_SEC};
	char root[] = "/tmp/nodewhy-unit-XXXXXX", name[128];
	struct files *f = NULL;
	FILE *conf;

	if (!mkdtemp(root) || files_new(&f, root) < 0)
		return 1;
	(void) snprintf(name, sizeof(name), "%s/etc", root);
	(void) mkdir(name, 0755);
	(void) snprintf(name, sizeof(name), "%s/etc/resolv.conf", root);
	conf = fopen(name, "we");
	if (!conf || fputs("nameserver 10.0.0.2\n", conf) < 0 || fclose(conf) != 0)
		return 1;
	r.files = f;
	(void) snprintf(r.node.endpoints[SERVICE_EC2].host, AWS_HOST_MAX, "ec2.x.amazonaws.com");
	r.node.apiserver.port = 443;
	(void) snprintf(r.node.apiserver.host, AWS_HOST_MAX, "a.eks.amazonaws.com");
	path(&r);
	environment(&r);
	files(&r);
	fake_free(&r);
	f = files_free(f);
	(void) unlink(name);
	*strrchr(name, '/') = 0;
	(void) rmdir(name);
	(void) rmdir(root);
	return done();
}
