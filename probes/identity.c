/* SPDX-License-Identifier: Apache-2.0 */
/* Whom does the cluster take this node for, and what does it say of it? Its own Node object, asked
 * for with a token made as the node's own kubelet makes one. */
#include <ctype.h>
#include <errno.h>
#include <jansson.h>

#include "probe.h"

enum { NODE_BODY_MAX = 2 * 1024 * 1024, ENVIRONMENT_MAX = 65536 };

/* While the node is Ready, the last answer holds for five minutes, less what looks jitter. */
static const usec_t ready_for = 290 * USEC_PER_SEC;
/* An answer of STS that is older says nothing of why the API server refuses now. */
static const usec_t sts_fresh = 150 * USEC_PER_SEC;
/* A `check` looks once: it waits for sts, which looks at the same time. */
static const usec_t sts_poll = 200 * USEC_PER_MSEC;
enum { STS_POLLS = 10 };
/* apiserver resolves the name at the same time: coming after all of it, we could not tell it in a
 * check that the node is registered. */
static const usec_t address_poll = 20 * USEC_PER_MSEC;
enum { ADDRESS_POLLS = 25 };
/* A Node so young is not Ready yet: aws-node has to be pulled and started first. */
enum { YOUNG_S = 180 };

struct state {
	struct credentials_query query;
	char token_header[EKS_TOKEN_MAX + 32];
	const char *kubeconfig; /* its text; the run's */
	size_t kubeconfig_len;
	char node_name[128];
	bool guessed; /* the name is metadata's, not kubelet's own */
	bool again;   /* asked a second time, for the name that the cluster knows */
	unsigned polls, address_polls;
	bool other_address; /* the first did not answer */
};

struct memory {
	usec_t ready_at; /* when it was last seen Ready; 0: not at the last look */
	unsigned turn;   /* which of several addresses answers */
	struct observation seen[2];
};

/* What is read of a Node. */
struct node_object {
	char ready[16], reason[64], message[160], taints[72], provider_id[72];
	uint64_t created; /* seconds since 1970 by the API server's clock; 0: not known */
	bool unregistered;
};

/* ---- JSON ---- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static void clean(char *dst, size_t size, const char *s)
{
	(void) text_clean(dst, size, s, strlen(s));
}

static void read_conditions(const json_t *conditions, struct node_object *n)
{
	const json_t *c;
	size_t i;

	json_array_foreach (conditions, i, c) {
		if (strcmp(text_of(c, "type"), "Ready") != 0)
			continue;
		clean(n->ready, sizeof(n->ready), text_of(c, "status"));
		clean(n->reason, sizeof(n->reason), text_of(c, "reason"));
		clean(n->message, sizeof(n->message), text_of(c, "message"));
	}
}

static void read_taints(const json_t *taints, struct node_object *n)
{
	const json_t *t;
	char key[72];
	size_t i;

	json_array_foreach (taints, i, t) {
		clean(key, sizeof(key), text_of(t, "key"));
		n->unregistered |= strcmp(key, "karpenter.sh/unregistered") == 0;
		(void) text_append(n->taints, sizeof(n->taints), "%s%s", n->taints[0] ? "," : "",
		                   key);
	}
}

/* -EBADMSG when it is no Node. */
static int node_object_parse(const char *text, size_t len, struct node_object *ret)
{
	json_t *o = json_loadb(text, len, 0, NULL);
	const json_t *spec = json_object_get(o, "spec");
	struct node_object n = {0};
	int r = -EBADMSG;

	if (strcmp(text_of(o, "kind"), "Node") == 0) {
		read_conditions(json_object_get(json_object_get(o, "status"), "conditions"), &n);
		read_taints(json_object_get(spec, "taints"), &n);
		clean(n.provider_id, sizeof(n.provider_id), text_of(spec, "providerID"));
		n.created = sigv4_date_parse(
			text_of(json_object_get(o, "metadata"), "creationTimestamp"));
		*ret = n;
		r = 0;
	}
	json_decref(o);
	return r;
}

/* Whom the API server takes us for: of the message of a Status, 'User "..." cannot get'. */
static int status_user_parse(const char *text, size_t len, char *ret, size_t size)
{
	static const char before[] = "User \"";
	json_t *o = json_loadb(text, len, 0, NULL);
	const char *p = strstr(text_of(o, "message"), before), *end;
	int r = -EBADMSG;

	p = strcmp(text_of(o, "kind"), "Status") == 0 && p ? p + strlen(before) : NULL;
	end = p ? strchr(p, '"') : NULL;
	if (end) {
		(void) text_clean(ret, size, p, (size_t) (end - p));
		r = 0;
	}
	json_decref(o);
	return r;
}

/* ---- the name that kubelet registers ---- */

static bool take_name(char *dst, size_t size, const char *s, size_t len)
{
	if (len == 0 || len >= size)
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = (char) tolower((unsigned char) s[i]);

		if (!islower((unsigned char) c) && !isdigit((unsigned char) c) && c != '.' &&
		    c != '-')
			return false;
		dst[i] = c;
	}
	dst[len] = 0;
	return true;
}

/* "--hostname-override=NAME" or "--hostname-override NAME" in a file of arguments. */
static bool override_parse(const char *text, size_t len, char *dst, size_t size)
{
	static const char flag[] = "--hostname-override";
	const char *end = text + len, *p = memmem(text, len, flag, sizeof(flag) - 1), *from;

	if (!p)
		return false;
	p += sizeof(flag) - 1;
	if (p == end || (*p != '=' && *p != ' '))
		return false;
	for (from = ++p; p < end && !strchr(" \t\r\n\"'\\", *p); p++)
		;
	return take_name(dst, size, from, (size_t) (p - from));
}

static bool find_name(struct run *r)
{
	static const char *const paths[] = {
		"/etc/eks/kubelet/environment",
		"/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf",
		"/etc/systemd/system/kubelet.service.d/10-kubelet-args.conf"};
	const struct node *n = run_node(r);
	struct state *s = run_state(r);
	const char *text;
	size_t len;

	for (size_t i = 0; i < ELEMENTS(paths); i++)
		if (run_read(r, paths[i], ENVIRONMENT_MAX, &text, &len) == 0 &&
		    override_parse(text, len, s->node_name, sizeof(s->node_name)))
			return true;
	if (take_name(s->node_name, sizeof(s->node_name), n->node_name, strlen(n->node_name)))
		return true;
	s->guessed = true;
	return take_name(s->node_name, sizeof(s->node_name), n->private_dns,
	                 strlen(n->private_dns));
}

/* ---- observations ---- */

static void end_without(struct run *r, enum outcome outcome, int code, const char *why)
{
	struct memory *m = run_memory(r);

	m->ready_at = 0;
	run_learn(r)->ready = CANNOT_TELL;
	observation_detail(run_observe(r, LAYER_IDENTITY, "", "", outcome, code), "%s", why);
	run_end(r);
}

static struct observation *observe(struct run *r, enum outcome outcome, int status)
{
	const struct state *s = run_state(r);
	struct observation *o = run_observe(r, LAYER_IDENTITY, "", "", outcome, status);

	observation_number(o, "http_status", status);
	observation_text(o, "node_name", "%s", s->node_name);
	if (s->query.credentials.role[0])
		observation_text(o, "role", "%s", s->query.credentials.role);
	return o;
}

static bool say_again(struct run *r)
{
	const struct memory *m = run_memory(r);

	if (run_once(r) || run_woken(r) || run_asked(r) != CODE_NONE || !m->ready_at ||
	    run_now(r) >= m->ready_at + ready_for)
		return false;
	for (size_t i = 0; i < ELEMENTS(m->seen); i++) {
		struct observation *o = run_observe(r, m->seen[i].layer, m->seen[i].aspect, "",
		                                    m->seen[i].outcome, 0);

		if (o)
			*o = m->seen[i];
	}
	run_end(r);
	return true;
}

/* ---- the words ---- */

static bool is_other_node(const struct observation *o)
{
	const char *user = evidence_get_text(o, "identity");
	static const char node[] = "system:node:";

	return strncmp(user, node, strlen(node)) == 0 &&
	       strcmp(user + strlen(node), evidence_get_text(o, "node_name")) != 0;
}

static void describe_401(const struct observation *o, char *dst, size_t size)
{
	const char *role = evidence_get_text(o, "role");
	int64_t sts = evidence_number(o, "sts_accepts", -1),
		clock = evidence_number(o, "clock_sound", -1);

	(void) text_format(dst, size, "API server answers 401");
	if (role[0])
		(void) text_append(dst, size, " to a token of %s", role);
	if (sts == 1)
		(void) text_append(dst, size, ", which STS accepts");
	else if (sts == 0)
		(void) text_append(dst, size, ", whose credentials STS does not accept");
	else
		(void) text_append(dst, size, "; STS has not said whether it accepts it");
	if (clock == 1)
		(void) text_append(dst, size, "; clock offset %lld s",
		                   (long long) evidence_number(o, "offset_s", 0));
	else
		(void) text_append(dst, size,
		                   clock == 0 ? "; the clock is not sound"
		                              : "; nobody vouches for the clock");
}

static void describe_403(const struct observation *o, char *dst, size_t size)
{
	const char *user = evidence_get_text(o, "identity"),
		   *name = evidence_get_text(o, "node_name");

	if (strcmp(user, "system:node:") == 0)
		(void) text_format(dst, size,
		                   "API server answers 403: to it this node is \"%s\", "
		                   "without a name",
		                   user);
	else if (is_other_node(o))
		(void) text_format(dst, size,
		                   "API server answers 403: to it this node is %s, "
		                   "kubelet's name is %s",
		                   user + strlen("system:node:"), name);
	else
		(void) text_format(dst, size, "API server answers 403: role %s is mapped to %s%s",
		                   evidence_get_text(o, "role"), user,
		                   strncmp(user, "system:node:", strlen("system:node:")) == 0
		                           ? " without the groups of nodes"
		                           : ", which is no node");
}

static void describe_ready(const struct observation *o, char *dst, size_t size)
{
	const char *status = evidence_get_text(o, "ready"),
		   *message = evidence_get_text(o, "message");

	(void) text_format(dst, size, "API server says Ready=%s, %s%s%s%s",
	                   status[0] ? status : "False", evidence_get_text(o, "reason"),
	                   message[0] ? ": " : "", message, evidence_get_text(o, "message_more"));
}

/* ---- the Node ---- */

/* Longer than one evidence may be: in two, cut between characters. */
static void add_message(struct observation *o, const char *message)
{
	size_t cut = strlen(message);

	if (cut > 68)
		for (cut = 68; cut > 0 && ((unsigned char) message[cut] & 0xC0) == 0x80; cut--)
			;
	observation_text(o, "message", "%.*s", (int) cut, message);
	if (message[cut])
		observation_text(o, "message_more", "%s", message + cut);
}

static int64_t age_of(struct run *r, const struct node_object *n)
{
	const struct witness_seen *w = &run_node(r)->witnesses[WITNESS_APISERVER];
	int64_t now = (int64_t) (run_realtime(r) / USEC_PER_SEC) - (w->at ? w->offset_s : 0);

	return n->created ? now - (int64_t) n->created : INT64_MAX;
}

/* By CLOCK_BOOTTIME; a Node of an earlier boot was there from the first moment. */
static usec_t registered_at(struct run *r, const struct node_object *n)
{
	usec_t now = run_now(r), age = age_of(r, n) > 0 ? (usec_t) age_of(r, n) : 0;

	return age < now / USEC_PER_SEC ? now - age * USEC_PER_SEC : 1;
}

static struct observation *observe_ready(struct run *r, const struct node_object *n)
{
	int64_t age = age_of(r, n);
	bool ready = strcmp(n->ready, "True") == 0, young = age < YOUNG_S;
	struct observation *o = run_observe(r, LAYER_KUBELET, "ready", "",
	                                    ready                   ? OUTCOME_OK
	                                    : young || !n->ready[0] ? OUTCOME_SKIPPED
	                                                            : OUTCOME_FAILED,
	                                    200);

	run_learn(r)->ready = ready ? YES : n->ready[0] ? NO : CANNOT_TELL;
	observation_text(o, "ready", "%s", n->ready);
	observation_text(o, "reason", "%s", n->reason);
	if (!ready)
		add_message(o, n->message);
	if (ready)
		observation_detail(o, "Ready=True, %s", n->reason);
	else if (!n->ready[0])
		observation_detail(o, "kubelet has not said yet whether it is Ready");
	else if (young)
		observation_detail(o, "registered %lld s ago, not Ready yet: %s", (long long) age,
		                   n->message);
	else if (o)
		describe_ready(o, o->detail, sizeof(o->detail));
	return o;
}

static void on_node(struct run *r, const struct node_object *n)
{
	const struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	struct node *node = run_learn(r);
	struct observation *o = observe(r, OUTCOME_OK, 200), *ready;

	node->registered = YES;
	node->registered_at = registered_at(r, n);
	(void) text_format(node->node_name, sizeof(node->node_name), "%s", s->node_name);
	if (strncmp(n->provider_id, "eks-hybrid:///", strlen("eks-hybrid:///")) == 0)
		node->hybrid = true;
	if (n->provider_id[0])
		observation_text(o, "provider_id", "%s", n->provider_id);
	if (n->taints[0])
		observation_text(o, "taints", "%s", n->taints);
	observation_detail(o, "GET own Node: HTTP 200, Ready=%s%s%s%s",
	                   n->ready[0] ? n->ready : "not said", n->taints[0] ? ", taints " : "",
	                   n->taints, n->unregistered ? "; Karpenter has not taken it up yet" : "");
	ready = observe_ready(r, n);
	m->ready_at = 0;
	if (o && ready && node->ready == YES) {
		m->ready_at = run_now(r);
		m->seen[0] = *o;
		m->seen[1] = *ready;
	}
	run_end(r);
}

/* ---- refusals ---- */

static bool sts_has_spoken(const struct run *r)
{
	const struct node *n = run_node(r);

	return n->sts_at && run_now(r) < n->sts_at + sts_fresh;
}

static void conclude_401(struct run *r)
{
	enum tristate accepts = sts_has_spoken(r) ? run_node(r)->sts_accepts : CANNOT_TELL;
	struct observation *o = observe(r, OUTCOME_DENIED, 401);
	struct memory *m = run_memory(r);
	struct clock_said clock;

	node_clock(run_node(r), run_now(r), &clock);
	if (accepts != CANNOT_TELL)
		observation_number(o, "sts_accepts", accepts == YES);
	if (clock.sound != CANNOT_TELL) {
		observation_number(o, "clock_sound", clock.sound == YES);
		observation_number(o, "offset_s", clock.offset_s);
	}
	if (o)
		describe_401(o, o->detail, sizeof(o->detail));
	m->ready_at = 0;
	run_learn(r)->ready = CANNOT_TELL;
	run_end(r);
}

static void on_sts_poll(struct run *r, uintptr_t tag)
{
	struct state *s = run_state(r);

	if (sts_has_spoken(r) || ++s->polls >= STS_POLLS ||
	    run_timer(r, sts_poll, on_sts_poll, 0) < 0)
		conclude_401(r);
}

/* The daemon does not wait: this finding asks sts to look, and the next look here knows. */
static void on_401(struct run *r)
{
	if (!run_once(r) || sts_has_spoken(r) || run_timer(r, sts_poll, on_sts_poll, 0) < 0)
		conclude_401(r);
}

static int ask_node(struct run *r);

static void on_403(struct run *r, const struct http_reply *reply)
{
	static const char node[] = "system:node:";
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	struct observation *o;
	char user[72];

	if (status_user_parse(reply->body, reply->body_len, user, sizeof(user)) < 0 ||
	    strcmp(user, "system:anonymous") == 0) {
		end_without(r, OUTCOME_UNKNOWN, 403,
		            "cannot tell: HTTP 403, which does not say for whom");
		return;
	}
	/* Metadata's name is not kubelet's where the VPC has a domain name of its own. */
	if (s->guessed && !s->again && strncmp(user, node, strlen(node)) == 0 &&
	    take_name(s->node_name, sizeof(s->node_name), user + strlen(node),
	              strlen(user + strlen(node)))) {
		s->again = true;
		if (ask_node(r) == 0)
			return;
	}
	o = observe(r, OUTCOME_DENIED, 403);
	observation_text(o, "identity", "%s", user);
	if (run_node(r)->private_dns[0])
		observation_text(o, "private_dns", "%s", run_node(r)->private_dns);
	if (o)
		describe_403(o, o->detail, sizeof(o->detail));
	m->ready_at = 0;
	run_learn(r)->ready = CANNOT_TELL;
	run_end(r);
}

static void on_404(struct run *r)
{
	const struct state *s = run_state(r);
	struct memory *m = run_memory(r);

	if (s->guessed && !s->again) {
		end_without(r, OUTCOME_UNKNOWN, 404,
		            "cannot tell: no Node of metadata's name; kubelet's may be another");
		return;
	}
	m->ready_at = 0;
	run_learn(r)->registered = NO;
	run_learn(r)->registered_at = 0;
	run_learn(r)->ready = CANNOT_TELL;
	observation_detail(observe(r, OUTCOME_ABSENT, 404), "the cluster has no Node %s",
	                   s->node_name);
	run_end(r);
}

/* The API server has an address in each of several zones; one of them may be cut off. */
static bool ask_other_address(struct run *r, const struct http_reply *reply)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);

	if (reply->outcome == OUTCOME_OK || reply->stage != HTTP_CONNECTING || s->other_address ||
	    run_node(r)->apiserver.n < 2)
		return false;
	s->other_address = true;
	m->turn++;
	return ask_node(r) == 0;
}

static void on_reply(struct run *r, const struct http_reply *reply, uintptr_t tag)
{
	struct node_object n;
	char why[DETAIL_MAX];

	run_witness(r, WITNESS_APISERVER, reply);
	if (ask_other_address(r, reply))
		return;
	if (reply->outcome != OUTCOME_OK) {
		(void) text_format(why, sizeof(why), "cannot tell: API server does not answer (%s)",
		                   outcome_name(reply->outcome));
		end_without(r, OUTCOME_UNKNOWN, 0, why);
	} else if (reply->status == 401) {
		on_401(r);
	} else if (reply->status == 403) {
		on_403(r, reply);
	} else if (reply->status == 404) {
		on_404(r);
	} else if (reply->status == 200 &&
	           node_object_parse(reply->body, reply->body_len, &n) == 0) {
		on_node(r, &n);
	} else {
		(void) text_format(why, sizeof(why), "cannot tell: HTTP %d, which is no Node",
		                   reply->status);
		end_without(r, OUTCOME_UNKNOWN, reply->status, why);
	}
}

/* ---- the question ---- */

/* Why no token like kubelet's can be made, or sent; NULL when it can. The token goes to nobody whom
 * the cluster's CA does not vouch for. */
static const char *obstacle(const struct node *n, const struct kubeconfig *k)
{
	if (k->token || k->client_certificate)
		return "cannot tell: kubelet has a token or certificate of its own";
	if (!k->command[0])
		return "cannot tell: kubeconfig has no exec plugin";
	if (k->role[0])
		return "cannot tell: kubelet takes another role for it";
	if (!k->cluster[0] || !(k->region[0] ? k->region : n->region)[0])
		return "cannot tell: kubeconfig names no cluster and region";
	if (strcmp(k->scheme, "https") != 0 || k->insecure)
		return "cannot tell: kubeconfig does not say whom to trust";
	if (n->apiserver.n == 0 || strcmp(n->apiserver.host, k->host) != 0)
		return "cannot tell: API server has no address";
	return NULL;
}

static int make_token(struct run *r, const struct kubeconfig *k)
{
	static const char prefix[] = "Authorization: Bearer ";
	const struct node *n = run_node(r);
	const char *region = k->region[0] ? k->region : n->region;
	const struct aws_name_options names = {.region = region,
	                                       .domain = n->domain[0] ? n->domain : NULL};
	struct state *s = run_state(r);
	char host[AWS_HOST_MAX];
	int e;

	e = aws_host(SERVICE_STS, &names, host, sizeof(host));
	if (e < 0)
		return e;
	memcpy(s->token_header, prefix, sizeof(prefix));
	return eks_token(k->cluster, host, region, &s->query.credentials,
	                 run_realtime(r) / USEC_PER_SEC, s->token_header + sizeof(prefix) - 1);
}

static int send_with(struct run *r, const struct kubeconfig *k, const char *ca, size_t ca_len)
{
	const struct endpoint *e = &run_node(r)->apiserver;
	const struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	const char *const headers[] = {s->token_header, "Accept: application/json", NULL};
	char path[sizeof("/api/v1/nodes/") + sizeof(s->node_name)];
	const struct http_request rq = {
		.method = "GET",
		.scheme = "https",
		.host = k->host,
		.address = e->addresses[m->turn % e->n],
		.port = k->port,
		.path = path,
		.headers = headers,
		.ca_pem = ca,
		.ca_pem_len = ca_len,
		.connect_timeout = 1200 * USEC_PER_MSEC,
		.timeout = 5 * USEC_PER_SEC,
		.body_max = NODE_BODY_MAX,
	};

	(void) snprintf(path, sizeof(path), "/api/v1/nodes/%s", s->node_name);
	return run_http(r, &rq, on_reply, 0);
}

/* The CA inline or by path; *ret is NULL when there is none. */
static void find_ca(struct run *r, const struct kubeconfig *k, const char **ret, size_t *ret_len)
{
	*ret = k->ca_pem;
	*ret_len = k->ca_len;
	if (!k->ca_pem && k->ca_path[0] == '/' &&
	    run_read(r, k->ca_path, KUBECONFIG_CA_MAX, ret, ret_len) < 0)
		*ret = NULL;
	if (*ret && *ret_len == 0)
		*ret = NULL;
}

/* Makes the token and asks. -EOPNOTSUPP when the kubeconfig is not what it was at the start. */
static int ask_node(struct run *r)
{
	_cleanup_(kubeconfig_done) struct kubeconfig k = {0};
	struct state *s = run_state(r);
	const char *ca, *why;
	char error[96];
	size_t ca_len;
	int e;

	if (kubeconfig_parse(s->kubeconfig, s->kubeconfig_len, &k, error, sizeof(error)) < 0)
		return -EBADMSG;
	why = obstacle(run_node(r), &k);
	find_ca(r, &k, &ca, &ca_len);
	if (why || !ca)
		return -EOPNOTSUPP;
	e = make_token(r, &k);
	return e < 0 ? e : send_with(r, &k, ca, ca_len);
}

static void on_credentials(struct run *r, enum credentials_end end, const struct credentials *c)
{
	if (end != CREDENTIALS_HERE)
		end_without(r, end == CREDENTIALS_DISABLED ? OUTCOME_SKIPPED : OUTCOME_UNKNOWN, 0,
		            credentials_end_text(end));
	else if (ask_node(r) < 0)
		end_without(r, OUTCOME_UNKNOWN, 0, "cannot look: no token or request can be made");
}

/* The reason for which this kubeconfig is no use, into why; false when it is one. */
static bool is_unfit(struct run *r, char *why, size_t size)
{
	_cleanup_(kubeconfig_done) struct kubeconfig k = {0};
	const struct state *s = run_state(r);
	const char *reason, *ca;
	char error[96];
	size_t ca_len;

	if (kubeconfig_parse(s->kubeconfig, s->kubeconfig_len, &k, error, sizeof(error)) < 0) {
		(void) text_format(why, size, "cannot tell: kubeconfig: %s", error);
		return true;
	}
	reason = obstacle(run_node(r), &k);
	find_ca(r, &k, &ca, &ca_len);
	if (!reason && !ca)
		reason = "cannot tell: no cluster CA";
	if (reason)
		(void) text_format(why, size, "%s", reason);
	return reason;
}

static bool read_kubeconfig(struct run *r)
{
	struct state *s = run_state(r);

	for (const char *const *p = kubeconfig_paths; *p; p++)
		if (run_read(r, *p, KUBECONFIG_FILE_MAX, &s->kubeconfig, &s->kubeconfig_len) == 0)
			return true;
	return false;
}

static int begin(struct run *r);

static void on_address_poll(struct run *r, uintptr_t tag)
{
	if (begin(r) < 0)
		end_without(r, OUTCOME_UNKNOWN, 0, "cannot look: out of memory");
}

static bool waits_for_address(struct run *r)
{
	struct state *s = run_state(r);

	return run_node(r)->apiserver.n == 0 && s->address_polls++ < ADDRESS_POLLS &&
	       run_timer(r, address_poll, on_address_poll, 0) == 0;
}

static int begin(struct run *r)
{
	const struct node *n = run_node(r);
	char why[DETAIL_MAX];

	if (is_unfit(r, why, sizeof(why))) {
		if (!waits_for_address(r))
			end_without(r, OUTCOME_UNKNOWN, 0, why);
		return 0;
	}
	if (!find_name(r))
		end_without(r, OUTCOME_UNKNOWN, 0, "cannot tell: the node's name is not known");
	else if (!n->metadata_answers)
		end_without(r, OUTCOME_UNKNOWN, 0, "cannot tell: no credentials");
	else
		return run_credentials(r, &((struct state *) run_state(r))->query, on_credentials);
	return 0;
}

static int start(struct run *r)
{
	if (say_again(r))
		return 0;
	if (read_kubeconfig(r))
		return begin(r);
	end_without(r, OUTCOME_SKIPPED, 0, "no kubeconfig yet");
	return 0;
}

/* ---- the judgement ---- */

static enum code judge_denied(const struct observation *o, struct words *ret)
{
	const char *user = evidence_get_text(o, "identity");

	if (o->code == 401) {
		describe_401(o, ret->summary, sizeof(ret->summary));
		return evidence_number(o, "sts_accepts", 0) == 1 &&
		                       evidence_number(o, "clock_sound", 0) == 1
		               ? CODE_NodeRoleNotMapped
		               : CODE_NodeUnauthorized;
	}
	if (o->code != 403 || !user[0])
		return CODE_NONE;
	describe_403(o, ret->summary, sizeof(ret->summary));
	if (strcmp(user, "system:node:") == 0)
		return CODE_NodeNameEmpty;
	return is_other_node(o) ? CODE_NodeNameMismatch : CODE_NodeRoleNotMapped;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (strcmp(o->aspect, "ready") == 0) {
		if (o->outcome != OUTCOME_FAILED)
			return CODE_NONE;
		describe_ready(o, ret->summary, sizeof(ret->summary));
		return CODE_NodeNotReady;
	}
	return o->outcome == OUTCOME_DENIED ? judge_denied(o, ret) : CODE_NONE;
}

const struct probe probe_identity = {
	.name = "identity",
	.what = "the node's own Node object, with a token made as kubelet's is: its name, role, "
		"Ready",
	.layer = LAYER_IDENTITY,
	.every = 60 * USEC_PER_SEC,
	.retry = 5 * USEC_PER_SEC,
	.timeout = 15 * USEC_PER_SEC,
	.grace = 120 * USEC_PER_SEC,
	.after = "endpoint",
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.watch = {"/var/lib/kubelet/kubeconfig", "/etc/kubernetes/kubelet/kubeconfig"},
	/* what makes a node NotReady, while the last answer still holds that it is Ready */
	.asked_by = {CODE_NodeUnauthorized, CODE_KubeletInactive, CODE_KubeletUnhealthy,
                     CODE_PlegUnhealthy, CODE_RuntimeDown, CODE_RuntimeUnresponsive,
                     CODE_KubeletConnectionDead, CODE_CniConfigMissing, CODE_IpamdNotServing,
                     CODE_NONE},
	.ask_every = 60 * USEC_PER_SEC,
	.leaves_node = true,
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_NodeRoleNotMapped, CODE_NodeUnauthorized, CODE_NodeNameMismatch,
                  CODE_NodeNameEmpty, CODE_NodeNotReady, CODE_NONE},
};
