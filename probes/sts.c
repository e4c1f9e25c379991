/* SPDX-License-Identifier: Apache-2.0 */
/* Does AWS take the node's credentials, and for whom does it take them? A signed GetCallerIdentity,
 * which needs no permission. Made when a finding asks for it, else four times an hour. */
#include <errno.h>

#include "probe.h"

enum { STS_BODY_MAX = 65536 };

static const char query[] = "Action=GetCallerIdentity&Version=2011-06-15";
/* While nothing asks, a good answer holds this long: less than the interval, whatever jitter. */
static const usec_t good_for = 840 * USEC_PER_SEC;

struct state {
	struct credentials_query query;
	struct address address;
	char token_header[sizeof(((struct credentials *) 0)->token) + 32];
};

struct memory {
	bool looked;
	usec_t good_at; /* of the last good answer; 0: the last was not good */
	unsigned turn;  /* which of several addresses comes next */
	struct observation good[2];
};

enum aspect { CALLER, POLICY };

/* ---- observations ---- */

/* Whom the endpoint's policy lets through is the endpoint's business. */
static struct observation *observe(struct run *r, enum aspect a, enum outcome outcome, int code)
{
	return a == CALLER ? run_observe(r, LAYER_CREDENTIALS, "", "", outcome, code)
	                   : run_observe(r, LAYER_ENDPOINT, "policy", service_name(SERVICE_STS),
	                                 outcome, code);
}

static void end_without(struct run *r, enum outcome outcome, const char *why)
{
	struct memory *m = run_memory(r);

	m->good_at = 0;
	run_learn(r)->sts_accepts = CANNOT_TELL;
	run_learn(r)->sts_at = run_now(r);
	observation_detail(observe(r, CALLER, outcome, 0), "%s", why);
	run_end(r);
}

/* A good answer of late is said again, with the moment at which it came. */
static bool say_again(struct run *r)
{
	const struct memory *m = run_memory(r);
	usec_t now = run_now(r);

	if (run_once(r) || run_asked(r) != CODE_NONE || !m->good_at || now >= m->good_at + good_for)
		return false;
	for (enum aspect a = CALLER; a <= POLICY; a++) {
		struct observation *o = observe(r, a, OUTCOME_OK, 0);

		if (o)
			*o = m->good[a];
	}
	run_end(r);
	return true;
}

static void add_facts(struct run *r, struct observation *o, const struct http_reply *reply)
{
	const struct state *s = run_state(r);
	char address[ADDRESS_TEXT_MAX];

	observation_text(o, "role", "%s", s->query.credentials.role);
	observation_text(o, "address", "%s", address_format(&s->address, address));
	observation_number(o, "http_status", reply->status);
}

/* ---- the answer ---- */

static void on_accepted(struct run *r, const struct http_reply *reply,
                        const struct caller_identity *who)
{
	struct memory *m = run_memory(r);
	struct node *n = run_learn(r);
	struct observation *o = observe(r, CALLER, OUTCOME_OK, 200), *p;

	observation_text(o, "account", "%s", who->account);
	observation_text(o, "role", "%s", who->role);
	observation_detail(o, "GetCallerIdentity: account %s, role %s", who->account, who->role);
	p = observe(r, POLICY, OUTCOME_OK, 200);
	observation_detail(p, "a signed call passes");
	if (!n->account_id[0])
		(void) text_format(n->account_id, sizeof(n->account_id), "%s", who->account);
	n->sts_accepts = YES;
	n->sts_at = run_now(r);
	if (o && p) {
		m->good_at = run_now(r);
		m->good[CALLER] = *o;
		m->good[POLICY] = *p;
	}
	run_end(r);
}

/* What a wrong clock brings about as well, so that it needs a right one to mean anything. */
static bool is_rejection(const char *code)
{
	static const char *const codes[] = {"InvalidClientTokenId", "ExpiredToken",
	                                    "SignatureDoesNotMatch"};

	for (size_t i = 0; i < ELEMENTS(codes); i++)
		if (strcmp(codes[i], code) == 0)
			return true;
	return false;
}

/* The service itself names the time of the signature as the reason. */
static bool blames_clock(const struct aws_error *e)
{
	static const char *const words[] = {"Signature expired", "Signature not yet current",
	                                    "is now earlier than", "is still later than"};

	if (strcmp(e->code, "RequestExpired") == 0)
		return true;
	for (size_t i = 0; i < ELEMENTS(words); i++)
		if (aws_error_says(e, words[i]))
			return true;
	return false;
}

static void on_denied_by_policy(struct run *r, const struct http_reply *reply,
                                const struct aws_error *e)
{
	struct observation *o = observe(r, CALLER, OUTCOME_UNKNOWN, reply->status);
	const struct state *s = run_state(r);

	add_facts(r, o, reply);
	observation_detail(o, "cannot tell: refused by the policy of the VPC endpoint");
	o = observe(r, POLICY, OUTCOME_DENIED, reply->status);
	add_facts(r, o, reply);
	run_learn(r)->sts_accepts = CANNOT_TELL;
	run_learn(r)->sts_at = run_now(r);
	observation_text(o, "error", "%s", e->code);
	observation_detail(o, "the policy of the VPC endpoint refuses role %s",
	                   s->query.credentials.role);
	run_end(r);
}

/* The message is read, never kept: with SignatureDoesNotMatch it quotes the whole request, the
 * session token in it. */
static void on_error(struct run *r, const struct http_reply *reply, const struct aws_error *e)
{
	bool rejection = is_rejection(e->code), clock = blames_clock(e);
	struct observation *o;
	struct clock_said said;

	if (aws_error_says(e, "VPC endpoint policy")) {
		on_denied_by_policy(r, reply, e);
		return;
	}
	node_clock(run_node(r), run_now(r), &said);
	o = observe(r, CALLER, rejection || clock ? OUTCOME_DENIED : OUTCOME_UNKNOWN,
	            reply->status);
	add_facts(r, o, reply);
	observation_text(o, "error", "%s", e->code);
	observation_number(o, "clock_sound", said.sound == YES && !clock);
	observation_detail(o, "%sGetCallerIdentity: HTTP %d %s%s",
	                   rejection || clock ? "" : "cannot tell: ", reply->status, e->code,
	                   clock               ? ", which blames the clock"
	                   : said.sound == NO  ? "; the clock is not sound"
	                   : said.sound == YES ? ""
	                                       : "; nobody vouches for the clock");
	run_learn(r)->sts_accepts = rejection && said.sound == YES && !clock ? NO : CANNOT_TELL;
	run_learn(r)->sts_at = run_now(r);
	run_end(r);
}

static void on_no_answer(struct run *r, const struct http_reply *reply)
{
	char why[DETAIL_MAX];

	if (reply->outcome == OUTCOME_UNTRUSTED || reply->outcome == OUTCOME_EXPIRED)
		(void) text_format(why, sizeof(why),
		                   "cannot tell: certificate of sts is not trusted");
	else
		(void) text_format(why, sizeof(why), "cannot tell: sts does not answer (%s)",
		                   outcome_name(reply->outcome));
	end_without(r, OUTCOME_UNKNOWN, why);
}

static void on_reply(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct memory *m = run_memory(r);
	struct caller_identity who;
	struct aws_error e;
	char why[DETAIL_MAX];

	m->good_at = 0;
	if (reply->outcome != OUTCOME_OK) {
		on_no_answer(r, reply);
		return;
	}
	run_witness(r, WITNESS_ENDPOINT, reply);
	if (reply->status == 200 &&
	    caller_identity_parse(reply->body, reply->body_len, &who) == 0) {
		on_accepted(r, reply, &who);
		return;
	}
	if (reply->status >= 400 && reply->status < 500 &&
	    aws_error_parse(reply->body, reply->body_len, &e) == 0) {
		on_error(r, reply, &e);
		return;
	}
	(void) text_format(why, sizeof(why),
	                   "cannot tell: HTTP %d, which is no answer to GetCallerIdentity",
	                   reply->status);
	end_without(r, OUTCOME_UNKNOWN, why);
}

/* ---- the question ---- */

static int ask_sts(struct run *r)
{
	const struct endpoint *e = &run_node(r)->endpoints[SERVICE_STS];
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	const char *const headers[] = {s->token_header, NULL};
	char sigv4[AWS_REGION_MAX + 16];
	struct http_request rq = {
		.method = "POST",
		.scheme = e->scheme,
		.host = e->host,
		.port = e->port,
		.path = "/",
		.headers = headers,
		.body = query,
		.body_len = strlen(query),
		.sigv4 = sigv4,
		.key_id = s->query.credentials.key_id,
		.secret = s->query.credentials.secret,
		.ca_file = run_env(r, "AWS_CA_BUNDLE"),
		.connect_timeout = 1200 * USEC_PER_MSEC,
		.timeout = 4 * USEC_PER_SEC,
		.body_max = STS_BODY_MAX,
	};

	(void) text_format(sigv4, sizeof(sigv4), "aws:amz:%s:sts", run_node(r)->region);
	(void) snprintf(s->token_header, sizeof(s->token_header), "X-Amz-Security-Token: %s",
	                s->query.credentials.token);
	s->address = e->addresses[m->turn++ % e->n];
	rq.address = s->address;
	return run_http(r, &rq, on_reply, 0);
}

static bool has_expired(struct run *r, const struct credentials *c)
{
	return c->expires && run_realtime(r) / USEC_PER_SEC >= c->expires;
}

static void on_credentials(struct run *r, enum credentials_end end, const struct credentials *c)
{
	if (end == CREDENTIALS_NONE)
		end_without(r, OUTCOME_SKIPPED, "no credentials");
	else if (end != CREDENTIALS_HERE)
		end_without(r, end == CREDENTIALS_DISABLED ? OUTCOME_SKIPPED : OUTCOME_UNKNOWN,
		            credentials_end_text(end));
	else if (has_expired(r, c))
		end_without(r, OUTCOME_SKIPPED, "the credentials have expired");
	else if (ask_sts(r) < 0)
		end_without(r, OUTCOME_UNKNOWN, "cannot look: the request cannot be made");
}

static int start(struct run *r)
{
	const struct node *n = run_node(r);
	const struct endpoint *e = &n->endpoints[SERVICE_STS];
	struct memory *m = run_memory(r);
	bool first = !m->looked;

	if (say_again(r))
		return 0;
	m->looked = true;
	/* A fleet that starts at once does not ask at once: each node's own place in the quarter of
	 * an hour comes next. */
	if (first && !run_once(r) && run_asked(r) == CODE_NONE)
		end_without(r, OUTCOME_SKIPPED, "not asked yet: nothing calls for it");
	else if (!n->metadata_answers)
		end_without(r, OUTCOME_UNKNOWN, "cannot tell: no credentials");
	else if (!e->host[0] || e->n == 0 || !n->region[0])
		end_without(r, OUTCOME_UNKNOWN, "cannot tell: sts has no address");
	else
		return run_credentials(r, &((struct state *) run_state(r))->query, on_credentials);
	return 0;
}

/* ---- the judgement ---- */

static void describe(const struct observation *o, const char *by, char *dst, size_t size)
{
	struct address a;
	const char *address = evidence_get_text(o, "address");

	(void) text_format(dst, size, "GetCallerIdentity of role %s", evidence_get_text(o, "role"));
	if (address_parse(&a, address) == 0)
		(void) text_append(dst, size, " at %s %s", address_kind(&a), address);
	(void) text_append(dst, size, ": HTTP %d %s%s", (int) evidence_number(o, "http_status", 0),
	                   evidence_get_text(o, "error"), by);
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (o->outcome != OUTCOME_DENIED)
		return CODE_NONE;
	if (o->layer == LAYER_ENDPOINT) {
		describe(o, " by the policy of the VPC endpoint", ret->summary,
		         sizeof(ret->summary));
		return CODE_EndpointDenied;
	}
	if (evidence_number(o, "clock_sound", 0) != 1)
		return CODE_NONE;
	describe(o, "; the clock is sound", ret->summary, sizeof(ret->summary));
	return CODE_CredentialsRejected;
}

const struct probe probe_sts = {
	.name = "sts",
	.what = "whether AWS takes the node's credentials, and for whose: a signed "
		"GetCallerIdentity",
	.layer = LAYER_CREDENTIALS,
	.every = 900 * USEC_PER_SEC,
	.retry = 5 * USEC_PER_SEC,
	.timeout = 10 * USEC_PER_SEC,
	.grace = 120 * USEC_PER_SEC,
	.after = "endpoint",
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.asked_by = {CODE_NodeUnauthorized, CODE_NodeRoleNotMapped, CODE_IpamdUnauthorized,
                     CODE_CniIdentityUnreachable, CODE_EndpointDenied, CODE_CredentialsRejected,
                     CODE_NONE},
	.ask_every = 60 * USEC_PER_SEC,
	.leaves_node = true,
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_CredentialsRejected, CODE_EndpointDenied, CODE_NONE},
};
