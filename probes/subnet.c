/* SPDX-License-Identifier: Apache-2.0 */
/* How many addresses do this node's subnets still have, and what does EC2 say of an instance type
 * that no table knows? The only looks that call EC2: made when a finding asks for them, or, for the
 * subnets, where SubnetWatch= is on; within a budget, and never as a verdict on permissions: a role
 * that may not ask is a normal role. */
#include <errno.h>

#include "probe.h"

enum { ANSWER_MAX = 256 * 1024, SUBNETS_MAX = 8 };
/* With SubnetWatch= on, every 15 minutes is 96 a day; what findings ask comes on top. */
enum { CALLS_A_DAY = 120 };

static const char no_address[] = "ec2 has no address";
static const usec_t day = 86400 * USEC_PER_SEC;
/* An answer is said again so long while nothing asks anew. */
static const usec_t good_for = 1200 * USEC_PER_SEC;
/* How often SubnetWatch= asks; a look that came to nothing on this side of EC2 is made again a
 * minute later, and so is one that a finding asked for, as long as that is not an old story. */
static const usec_t watch_every = 900 * USEC_PER_SEC;
static const usec_t wanted_for = 150 * USEC_PER_SEC;
/* After RequestLimitExceeded: the API's limits are the account's, and refill in seconds, but who
 * asks together was throttled together. Doubled each time, up to two hours. */
static const usec_t back_off = 900 * USEC_PER_SEC;
static const usec_t patience = 500 * USEC_PER_MSEC, patience_step = 20 * USEC_PER_MSEC;
enum { BACK_OFF_DOUBLINGS = 3 };

enum question { SUBNETS, TYPE };

struct state {
	struct credentials_query query;
	enum question question;
	usec_t waited;
	char body[512];
	char token_header[sizeof(((struct credentials *) 0)->token) + 32];
};

struct memory {
	usec_t day_began, answered, held_until, watch_due, wanted_until;
	enum code wanted; /* asked for this, and EC2 was not called yet */
	unsigned calls, throttled, turn;
	char unable[64]; /* why the last call said nothing; "" it did */
	size_t n;
	struct subnet subnets[SUBNETS_MAX];
};

/* ---- observations ---- */

/* Prefixes are of 16 addresses: fewer than that is none. */
static int64_t needed(struct run *r)
{
	const struct node *n = run_node(r);

	return n->cni.known ? n->cni.prefix ? 16 : 1 : n->network.prefix_mode ? 16 : 1;
}

static bool is_low(const struct subnet_watch *w, const struct subnet *s)
{
	return s->free < w->low_addresses || s->free * 100 < s->total * w->low_percent;
}

static void observe_subnet(struct run *r, const struct subnet *s)
{
	const struct subnet_watch *w = run_subnet_watch(r);
	bool out = s->free < needed(r), low = w->on && is_low(w, s);
	struct observation *o = run_observe(r, LAYER_ADDRESS, "free", s->id,
	                                    out || low ? OUTCOME_EXHAUSTED : OUTCOME_OK, 0);

	if (o)
		o->at = ((struct memory *) run_memory(r))->answered;
	observation_number(o, "free", s->free);
	observation_number(o, "total", s->total);
	observation_number(o, "needed", needed(r));
	observation_text(o, "cidr", "%s", s->cidr);
	observation_detail(o, "%s %s: %lld of %lld addresses free", s->id, s->cidr,
	                   (long long) s->free, (long long) s->total);
}

static void end_with(struct run *r, enum outcome outcome, const char *why)
{
	observation_detail(run_observe(r, LAYER_ADDRESS, "free", "", outcome, 0), "%s", why);
	run_end(r);
}

static void cannot_tell(struct run *r, const char *why)
{
	struct memory *m = run_memory(r);

	(void) text_format(m->unable, sizeof(m->unable), "cannot tell: %s", why);
	m->answered = run_now(r);
	m->n = 0;
	end_with(r, OUTCOME_UNKNOWN, m->unable);
}

/* What is known of late, with the moment at which it was learnt. */
static void say_known(struct run *r)
{
	const struct memory *m = run_memory(r);

	if (!m->answered || run_now(r) > m->answered + good_for) {
		end_with(r, OUTCOME_SKIPPED, "not asked: no finding calls for it");
	} else if (m->unable[0]) {
		end_with(r, OUTCOME_UNKNOWN, m->unable);
	} else {
		size_t said = 0;

		for (size_t i = 0; i < m->n; i++)
			if (m->subnets[i].total > 0) {
				observe_subnet(r, &m->subnets[i]);
				said++;
			}
		if (said == 0) {
			end_with(r, OUTCOME_SKIPPED, "the subnets have no IPv4 addresses");
			return;
		}
		run_end(r);
	}
}

/* ---- the answer ---- */

static void on_refused(struct run *r, const struct http_reply *reply)
{
	struct memory *m = run_memory(r);
	char why[64];
	struct aws_error e;

	if (aws_error_parse(reply->body, reply->body_len, &e) < 0) {
		(void) text_format(why, sizeof(why), "EC2 answers HTTP %d", reply->status);
	} else if (strcmp(e.code, "RequestLimitExceeded") == 0 ||
	           strcmp(e.code, "Throttling") == 0) {
		m->held_until = run_now(r) + (back_off << m->throttled);
		if (m->throttled < BACK_OFF_DOUBLINGS)
			m->throttled++;
		(void) text_format(why, sizeof(why), "EC2 throttles this account");
	} else if (strcmp(e.code, "UnauthorizedOperation") == 0) {
		(void) text_format(why, sizeof(why), "the node role may not call EC2 for this");
	} else {
		(void) text_format(why, sizeof(why), "EC2 says %s", e.code);
	}
	cannot_tell(r, why);
}

static void on_subnets(struct run *r, const struct http_reply *reply)
{
	struct memory *m = run_memory(r);
	size_t n;

	if (subnets_parse(reply->body, reply->body_len, m->subnets, SUBNETS_MAX, &n) < 0 ||
	    n == 0) {
		cannot_tell(r, "EC2's answer names no subnet");
		return;
	}
	m->n = n;
	m->answered = run_now(r);
	m->unable[0] = 0;
	m->throttled = 0;
	say_known(r);
}

/* The limits probe takes it from there. */
static void on_type(struct run *r, const struct http_reply *reply)
{
	struct type_limits l;

	if (instance_type_parse(reply->body, reply->body_len, &l) < 0 ||
	    strcmp(l.instance_type, run_node(r)->instance_type) != 0) {
		cannot_tell(r, "EC2's answer does not describe the type");
		return;
	}
	run_learn(r)->asked_limits = l;
	((struct memory *) run_memory(r))->throttled = 0;
	end_with(r, OUTCOME_SKIPPED, "the instance type's limits were learnt from EC2");
}

static void on_reply(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	const struct state *s = run_state(r);

	if (reply->outcome != OUTCOME_OK)
		cannot_tell(r, "EC2 does not answer");
	else if (reply->status != 200)
		on_refused(r, reply);
	else if (s->question == SUBNETS)
		on_subnets(r, reply);
	else
		on_type(r, reply);
}

/* ---- the question ---- */

/* With custom networking the primary ENI's subnet is the node's alone, and may be as full as it
 * likes; an EFA-only ENI takes no address of its subnet. */
static bool gives_addresses(const struct node *n, const struct eni *e)
{
	if (n->cni.known && n->cni.custom && e->managed_by == MANAGED_PRIMARY)
		return false;
	return e->subnet_id[0] && e->ipv4.family;
}

/* False when no subnet is known that pods get addresses of. */
static bool name_subnets(struct run *r)
{
	const struct network *n = &run_node(r)->network;
	struct state *s = run_state(r);
	const char *named[SUBNETS_MAX];
	size_t count = 0;

	(void) text_format(s->body, sizeof(s->body), "Action=DescribeSubnets");
	for (size_t i = 0; i < n->n_enis && count < SUBNETS_MAX; i++) {
		const char *id = n->enis[i].subnet_id;
		bool known = !gives_addresses(run_node(r), &n->enis[i]) ||
		             id[strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789-")];

		for (size_t k = 0; k < count && !known; k++)
			known = strcmp(named[k], id) == 0;
		if (known)
			continue;
		named[count++] = id;
		(void) text_append(s->body, sizeof(s->body), "&SubnetId.%zu=%s", count, id);
	}
	(void) text_append(s->body, sizeof(s->body), "&Version=2016-11-15");
	return count > 0;
}

static bool name_type(struct run *r)
{
	const char *type = run_node(r)->instance_type;
	struct state *s = run_state(r);

	if (!type[0] || type[strspn(type, "abcdefghijklmnopqrstuvwxyz0123456789-.")])
		return false;
	(void) text_format(s->body, sizeof(s->body),
	                   "Action=DescribeInstanceTypes&InstanceType.1=%s&Version=2016-11-15",
	                   type);
	return true;
}

static int ask_ec2(struct run *r)
{
	const struct endpoint *e = &run_node(r)->endpoints[SERVICE_EC2];
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	const char *const headers[] = {s->token_header, NULL};
	char sigv4[AWS_REGION_MAX + 16];
	struct http_request rq = {
		.method = "POST",
		.scheme = e->scheme,
		.host = e->host,
		.address = e->addresses[m->turn++ % e->n],
		.port = e->port,
		.path = "/",
		.headers = headers,
		.body = s->body,
		.body_len = strlen(s->body),
		.sigv4 = sigv4,
		.key_id = s->query.credentials.key_id,
		.secret = s->query.credentials.secret,
		.ca_file = run_env(r, "AWS_CA_BUNDLE"),
		.connect_timeout = 1200 * USEC_PER_MSEC,
		.timeout = 8 * USEC_PER_SEC,
		.body_max = ANSWER_MAX,
	};

	m->calls++;
	m->wanted = CODE_NONE;
	if (s->question == SUBNETS)
		m->watch_due = run_now(r) + watch_every;
	(void) text_format(sigv4, sizeof(sigv4), "aws:amz:%s:ec2", run_node(r)->region);
	(void) snprintf(s->token_header, sizeof(s->token_header), "X-Amz-Security-Token: %s",
	                s->query.credentials.token);
	return run_http(r, &rq, on_reply, 0);
}

static void on_credentials(struct run *r, enum credentials_end end, const struct credentials *c)
{
	if (end != CREDENTIALS_HERE)
		cannot_tell(r, "no credentials from metadata");
	else if (run_node(r)->endpoints[SERVICE_EC2].n == 0) /* since the run began */
		cannot_tell(r, no_address);
	else if (ask_ec2(r) < 0)
		cannot_tell(r, "the request cannot be made");
}

/* Budget and back-off: NULL, or why EC2 is not called now. */
static const char *held_back(struct run *r)
{
	struct memory *m = run_memory(r);
	usec_t now = run_now(r);

	if (!m->day_began || now - m->day_began >= day) {
		m->day_began = now;
		m->calls = 0;
	}
	if (now < m->held_until)
		return "cannot tell: EC2 throttled the last call, waiting";
	return m->calls >= CALLS_A_DAY ? "cannot tell: today's budget of EC2 calls is spent" : NULL;
}

static bool is_about_type(enum code asked)
{
	return asked == CODE_LimitsUnknown || asked == CODE_InstanceTypeUnknown;
}

/* What there is to ask for now: CODE_NONE and false, nothing. */
static bool is_wanted(struct run *r, enum code *ret)
{
	struct memory *m = run_memory(r);

	*ret = run_asked(r);
	if (*ret != CODE_NONE) {
		m->wanted = *ret;
		m->wanted_until = run_now(r) + wanted_for;
		return true;
	}
	if (m->wanted != CODE_NONE && run_now(r) < m->wanted_until) {
		*ret = m->wanted;
		return true;
	}
	if (!run_subnet_watch(r)->on)
		return false;
	return run_once(r) ? !m->answered : run_now(r) >= m->watch_due;
}

static int start(struct run *r);

static void on_wait(struct run *r, uintptr_t tag)
{
	if (start(r) < 0)
		cannot_tell(r, "the request cannot be made");
}

/* A check looks once, and what the question needs is being learnt at the same time. */
static bool waits(struct run *r)
{
	const struct node *n = run_node(r);
	struct state *s = run_state(r);

	if (!run_once(r) || s->waited >= patience ||
	    (n->role[0] && n->endpoints[SERVICE_EC2].n > 0 && n->network.n_enis > 0))
		return false;
	s->waited += patience_step;
	return run_timer(r, patience_step, on_wait, 0) == 0;
}

static int start(struct run *r)
{
	const struct node *n = run_node(r);
	struct state *s = run_state(r);
	enum code asked;
	bool wanted = is_wanted(r, &asked);
	const char *held;

	s->question = is_about_type(asked) ? TYPE : SUBNETS;
	if (!wanted ||
	    (s->question == TYPE && strcmp(n->asked_limits.instance_type, n->instance_type) == 0)) {
		say_known(r);
		return 0;
	}
	if (waits(r))
		return 0;
	held = held_back(r);
	if (s->question == SUBNETS && (n->cni.known ? n->cni.ipv6 : n->network.ipv6))
		end_with(r, OUTCOME_SKIPPED, "pods have IPv6 addresses: a subnet has enough");
	else if (held)
		end_with(r, OUTCOME_UNKNOWN, held);
	else if (!n->role[0] || !n->metadata_answers)
		cannot_tell(r, "no credentials known yet");
	else if (!n->endpoints[SERVICE_EC2].host[0] || n->endpoints[SERVICE_EC2].n == 0)
		cannot_tell(r, no_address);
	else if (s->question == SUBNETS ? !name_subnets(r) : !name_type(r))
		cannot_tell(r, "the node's own ids are not known");
	else
		return run_credentials(r, &s->query, on_credentials);
	return 0;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	int64_t addresses = evidence_number(o, "free", -1), total = evidence_number(o, "total", 0);
	int64_t need = evidence_number(o, "needed", 1);

	if (o->outcome != OUTCOME_EXHAUSTED || addresses < 0)
		return CODE_NONE;
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "%s (%s): %lld of %lld addresses free", o->subject,
	                   evidence_get_text(o, "cidr"), (long long) addresses, (long long) total);
	if (addresses >= need)
		return CODE_SubnetLow;
	if (need > 1)
		(void) text_append(ret->summary, sizeof(ret->summary), ", a prefix takes %lld",
		                   (long long) need);
	return CODE_SubnetExhausted;
}

const struct probe probe_subnet = {
	.name = "subnet",
	.what = "free addresses of the node's subnets, and limits of an unknown instance type, by "
		"EC2's API: only when a finding asks, or with SubnetWatch=",
	.layer = LAYER_ADDRESS,
	.every = 60 * USEC_PER_SEC, /* mostly says again what is known: see is_wanted() */
	.failing = 60 * USEC_PER_SEC,
	.retry = 2 * USEC_PER_SEC, /* what EC2 said once is said again, without a call */
	.timeout = 12 * USEC_PER_SEC,
	.after = "eni",
	.asked_by = {CODE_SubnetExhausted, CODE_SubnetFragmented, CODE_EniLimitReached,
                     CODE_AddressLimitReached, CODE_MaxPodsExceedsCapacity,
                     CODE_InstanceTypeUnknown, CODE_LimitsUnknown, CODE_NONE},
	.ask_every = 600 * USEC_PER_SEC,
	.spread = true, /* a full subnet is full for all nodes in it */
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.leaves_node = true,
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_SubnetExhausted, CODE_SubnetLow, CODE_NONE},
};
