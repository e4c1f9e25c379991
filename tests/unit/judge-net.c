/* SPDX-License-Identifier: Apache-2.0 */
/* What the judges of imds, imds-hop-limit, dns and endpoint make of observations. */
#include <arpa/inet.h>
#include <errno.h>

#include "../tap.h"
#include "probe.h"

static struct observation seen(enum layer l, const char *aspect, const char *subject,
                               enum outcome outcome)
{
	struct observation o = {.layer = l, .outcome = outcome};

	(void) text_format(o.aspect, sizeof(o.aspect), "%s", aspect);
	(void) text_format(o.subject, sizeof(o.subject), "%s", subject);
	return o;
}

static bool declares(const struct probe *p, enum code c)
{
	for (size_t i = 0; p->codes[i] != CODE_NONE; i++)
		if (p->codes[i] == c)
			return true;
	return c == CODE_NONE;
}

/* The code, and a summary that holds each of the words, NULL-terminated. */
static bool judged(const struct probe *p, const struct observation *o, enum code want,
                   const char *const *words)
{
	struct words w = {{0}};
	enum code got = p->judge(o, &w);
	bool good = got == want && declares(p, got) && (got == CODE_NONE) == (w.summary[0] == 0);

	for (; *words; words++)
		good &= strstr(w.summary, *words) != NULL;
	printf("# %d: %s\n", got, w.summary);
	return good && text_is_clean(w.summary, strlen(w.summary));
}

#define JUDGED(p, o, code, ...)                                                                    \
	judged(&(p), &(o), CODE_##code, (const char *const[]){__VA_ARGS__, NULL})
#define SOUND(p, o) judged(&(p), &(o), CODE_NONE, (const char *const[]){NULL})

static struct observation metadata(enum outcome outcome, const char *step, int status)
{
	struct observation o = seen(LAYER_METADATA, "", "", outcome);

	observation_text(&o, "endpoint", "169.254.169.254");
	observation_text(&o, "step", "%s", step);
	observation_text(&o, "path", "%s",
	                 strcmp(step, "GET") == 0 ? "/latest/meta-data/instance-id"
	                                          : "/latest/api/token");
	observation_number(&o, "total_ms", 1004);
	if (status)
		observation_number(&o, "http_status", status);
	return o;
}

static void imds(void)
{
	struct observation o;

	o = metadata(OUTCOME_OK, "GET", 200);
	ok(SOUND(probe_imds, o));
	o = metadata(OUTCOME_SKIPPED, "GET", 0);
	ok(SOUND(probe_imds, o));
	o = metadata(OUTCOME_UNKNOWN, "connect", 0);
	ok(SOUND(probe_imds, o));
	o = metadata(OUTCOME_TIMEOUT, "connect", 0);
	ok(JUDGED(probe_imds, o, ImdsUnreachable, "connect to 169.254.169.254",
	          "no answer in 1.0 s"));
	o.layer = LAYER_ROUTE;
	observation_number(&o, "datagram_errno", EPERM);
	ok(JUDGED(probe_imds, o, MetadataRouteBlocked, "1.0 s", "this node",
	          "Operation not permitted"));
	o = metadata(OUTCOME_REFUSED, "connect", 0);
	observation_number(&o, "errno", ECONNREFUSED);
	ok(JUDGED(probe_imds, o, ImdsUnreachable, "Connection refused"));
	o.layer = LAYER_ROUTE;
	ok(JUDGED(probe_imds, o, MetadataRouteBlocked, "Connection refused", "this node"));
	o = metadata(OUTCOME_UNREACHABLE, "connect", 0);
	observation_number(&o, "errno", ENETUNREACH);
	ok(JUDGED(probe_imds, o, ImdsUnreachable, "Network is unreachable"));
	o = metadata(OUTCOME_TIMEOUT, "PUT", 0);
	ok(JUDGED(probe_imds, o, ImdsTokenTimeout, "PUT 169.254.169.254", "no answer in 1.0 s"));
	o = metadata(OUTCOME_TIMEOUT, "GET", 0);
	ok(JUDGED(probe_imds, o, ImdsSlow, "GET 169.254.169.254/latest/meta-data/instance-id"));
	o = metadata(OUTCOME_DENIED, "PUT", 403);
	ok(JUDGED(probe_imds, o, ImdsDisabled, "PUT", "HTTP 403"));
	o = metadata(OUTCOME_DENIED, "GET", 403);
	ok(JUDGED(probe_imds, o, ImdsDisabled, "GET", "HTTP 403"));
	o = metadata(OUTCOME_DENIED, "GET", 401);
	ok(JUDGED(probe_imds, o, ImdsTokenRejected, "HTTP 401", "seconds old"));
	o = metadata(OUTCOME_SLOW, "GET", 503);
	ok(JUDGED(probe_imds, o, ImdsSlow, "HTTP 503"));
	o = metadata(OUTCOME_SLOW, "GET", 200);
	ok(JUDGED(probe_imds, o, ImdsSlow, "HTTP 200 in 1.0 s"));
	o = metadata(OUTCOME_RESET, "PUT", 0);
	ok(JUDGED(probe_imds, o, ImdsSlow, "closed"));
	o = metadata(OUTCOME_MALFORMED, "GET", 200);
	observation_text(&o, "sample", "<html>");
	ok(JUDGED(probe_imds, o, ImdsMalformed, "<html>"));
	o = metadata(OUTCOME_MALFORMED, "GET", 404);
	ok(JUDGED(probe_imds, o, ImdsMalformed, "HTTP 404"));
	o = metadata(OUTCOME_MALFORMED, "PUT", 0);
	ok(JUDGED(probe_imds, o, ImdsMalformed, "not an HTTP answer"));
	o = metadata(OUTCOME_ABSENT, "", 0);
	ok(JUDGED(probe_imds, o, ImdsNotEc2, "169.254.169.254", "not say EC2"));
	observation_number(&o, "hybrid", 1);
	ok(JUDGED(probe_imds, o, ImdsNotEc2, "hybrid"));
}

static void hop_limit(void)
{
	struct observation o = seen(LAYER_METADATA, "", "", OUTCOME_EXHAUSTED);

	observation_number(&o, "counted", 1);
	ok(JUDGED(probe_imds_hop_limit, o, ImdsHopLimitLow, "hop limit 1", "counted"));
	o.outcome = OUTCOME_OK;
	ok(SOUND(probe_imds_hop_limit, o));
	o.outcome = OUTCOME_UNKNOWN;
	ok(SOUND(probe_imds_hop_limit, o));
}

static struct observation server(const char *address, enum outcome outcome, bool loopback, bool vpc,
                                 int others)
{
	struct observation o = seen(LAYER_DNS, "server", address, outcome);

	observation_number(&o, "loopback", loopback);
	observation_number(&o, "vpc_resolver_ok", vpc);
	observation_number(&o, "others_ok", others);
	observation_number(&o, "asked", 2);
	observation_number(&o, "failed", 2);
	observation_number(&o, "took_ms", 1000);
	observation_number(&o, "rcode", outcome == OUTCOME_FAILED ? 2 : -1);
	return o;
}

static void dns(void)
{
	struct observation o;

	o = server("10.0.0.2", OUTCOME_OK, false, true, 0);
	ok(SOUND(probe_dns, o));
	o = server("10.0.0.2", OUTCOME_TIMEOUT, false, false, 0);
	ok(JUDGED(probe_dns, o, ResolverUnreachable, "10.0.0.2", "1.0 s", "2 of 2"));
	o = server("10.0.0.2", OUTCOME_TIMEOUT, false, true, 0);
	ok(JUDGED(probe_dns, o, ResolverUnreachable, "VPC resolver answers"));
	o = server("10.0.0.2", OUTCOME_TIMEOUT, false, true, 1);
	ok(SOUND(probe_dns, o));
	o = server("10.0.0.2", OUTCOME_UNREACHABLE, false, false, 0);
	observation_number(&o, "errno", EPERM);
	ok(JUDGED(probe_dns, o, ResolverUnreachable, "Operation not permitted"));
	o = server("127.0.0.53", OUTCOME_REFUSED, true, true, 0);
	observation_number(&o, "errno", ECONNREFUSED);
	ok(JUDGED(probe_dns, o, ResolverStubDead, "127.0.0.53", "Connection refused",
	          "VPC resolver answers"));
	o = server("127.0.0.53", OUTCOME_TIMEOUT, true, false, 0);
	ok(JUDGED(probe_dns, o, ResolverUnreachable, "127.0.0.53"));
	o = server("127.0.0.53", OUTCOME_FAILED, true, true, 0);
	ok(JUDGED(probe_dns, o, ResolverFailing, "SERVFAIL"));
	o = server("10.0.0.2", OUTCOME_DENIED, false, false, 0);
	observation_number(&o, "rcode", 5);
	ok(JUDGED(probe_dns, o, ResolverFailing, "REFUSED"));
	o = server("10.0.0.2", OUTCOME_FAILED, false, false, 2);
	ok(SOUND(probe_dns, o));
	o = server("10.0.0.2", OUTCOME_MALFORMED, false, false, 0);
	ok(JUDGED(probe_dns, o, ResolverFailing, "does not parse"));
	o = seen(LAYER_DNS, "server", "/etc/resolv.conf", OUTCOME_ABSENT);
	ok(JUDGED(probe_dns, o, ResolverMissing, "/etc/resolv.conf is absent"));
	observation_number(&o, "file", 1);
	ok(JUDGED(probe_dns, o, ResolverMissing, "no nameserver"));
	o = seen(LAYER_DNS, "name", "ec2", OUTCOME_ABSENT);
	observation_text(&o, "host", "ec2.us-west-2.amazonaws.com");
	observation_number(&o, "rcode", 3);
	ok(JUDGED(probe_dns, o, NameNotFound, "ec2.us-west-2.amazonaws.com", "NXDOMAIN"));
	observation_number(&o, "rcode", 0);
	ok(JUDGED(probe_dns, o, NameNotFound, "no address"));
	o.outcome = OUTCOME_UNKNOWN;
	ok(SOUND(probe_dns, o));
	o = seen(LAYER_DNS, "", "", OUTCOME_UNKNOWN);
	ok(SOUND(probe_dns, o));
}

static struct observation part(const char *aspect, enum outcome outcome, bool private)
{
	struct observation o = seen(LAYER_ENDPOINT, aspect, "sts", outcome);

	observation_text(&o, "address", private ? "10.0.3.7" : "52.1.2.3");
	observation_number(&o, "private", private);
	observation_number(&o, "total_ms", 1200);
	return o;
}

static void endpoint(void)
{
	static const char *const aspects[] = {"tcp", "tls", "http"};
	struct observation o;

	for (size_t i = 0; i < ELEMENTS(aspects); i++) {
		o = part(aspects[i], OUTCOME_OK, false);
		ok(SOUND(probe_endpoint, o));
		o = part(aspects[i], OUTCOME_UNKNOWN, false);
		ok(SOUND(probe_endpoint, o));
		o = part(aspects[i], OUTCOME_SKIPPED, false);
		ok(SOUND(probe_endpoint, o));
	}
	o = part("tcp", OUTCOME_TIMEOUT, true);
	ok(JUDGED(probe_endpoint, o, EndpointTimeout, "sts", "private", "10.0.3.7", "1.2 s"));
	o = part("tcp", OUTCOME_TIMEOUT, false);
	observation_number(&o, "datagram_errno", EPERM);
	ok(JUDGED(probe_endpoint, o, EndpointTimeout, "public", "52.1.2.3", "this node"));
	o = part("tcp", OUTCOME_REFUSED, false);
	observation_number(&o, "errno", ECONNREFUSED);
	ok(JUDGED(probe_endpoint, o, EndpointRefused, "Connection refused"));
	o = part("tcp", OUTCOME_UNREACHABLE, false);
	observation_number(&o, "errno", EHOSTUNREACH);
	ok(JUDGED(probe_endpoint, o, EndpointRefused, "No route to host"));
	o = part("tls", OUTCOME_RESET, false);
	ok(JUDGED(probe_endpoint, o, EndpointRefused, "TLS handshake"));
	o = part("tls", OUTCOME_MALFORMED, false);
	observation_text(&o, "tls_error", "wrong version number");
	ok(JUDGED(probe_endpoint, o, EndpointRefused, "wrong version number"));
	o = part("tls", OUTCOME_TIMEOUT, false);
	ok(JUDGED(probe_endpoint, o, EndpointTlsStalled, "no TLS answer"));
	o = part("tls", OUTCOME_UNTRUSTED, false);
	observation_text(&o, "issuer", "Corp Proxy CA");
	observation_text(&o, "tls_error", "unable to get local issuer certificate");
	ok(JUDGED(probe_endpoint, o, EndpointUntrusted, "Corp Proxy CA", "local issuer"));
	o.outcome = OUTCOME_EXPIRED;
	ok(JUDGED(probe_endpoint, o, EndpointUntrusted, "Corp Proxy CA"));
	o = part("http", OUTCOME_FAILED, false);
	observation_number(&o, "http_status", 503);
	ok(JUDGED(probe_endpoint, o, EndpointFailing, "HTTP 503"));
	o = part("http", OUTCOME_TIMEOUT, false);
	ok(JUDGED(probe_endpoint, o, EndpointFailing, "no HTTP answer"));
	o = part("http", OUTCOME_RESET, false);
	ok(JUDGED(probe_endpoint, o, EndpointFailing, "closed"));
}

int main(void)
{
	imds();
	hop_limit();
	dns();
	endpoint();
	return done();
}
