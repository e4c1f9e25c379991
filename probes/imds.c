/* SPDX-License-Identifier: Apache-2.0 */
/* Does the instance metadata service answer, and who are we? Also where the region is learnt from
 * when it does not: this is the probe of the node's identity. */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <linux/rtnetlink.h>
#include <strings.h>

#include "probe.h"

enum { METADATA_BODY_MAX = 65536, RESOLV_CONF_MAX = 65536 };

static const usec_t slow = USEC_PER_SEC;
/* Of the kernel's tables while no message says that they changed. */
static const usec_t tables_max_age = 60 * USEC_PER_SEC;
static const char id_path[] = "/latest/meta-data/instance-id";
static const char document_path[] = "/latest/dynamic/instance-identity/document";

/* What an answer, or its absence, comes to. */
struct look {
	enum layer layer;
	enum outcome outcome;
	int code, error, status, datagram_error;
	const char *step, *path;
	struct address address;
	usec_t connect, total;
	char sample[48]; /* the beginning of what was not metadata */
};

struct state {
	struct look look;
	unsigned pending;
};

struct memory {
	char instance_id[32];
	unsigned learnt; /* bits of wants[] */
	bool asked;      /* for all of them at least once */
};

/* ---- fields of the identity ---- */

static bool is_made_of(const char *s, size_t max, const char *also)
{
	size_t n = strlen(s);

	for (size_t i = 0; i < n; i++)
		if (!islower((unsigned char) s[i]) && !isdigit((unsigned char) s[i]) &&
		    !strchr(also, s[i]))
			return false;
	return n > 0 && n < max;
}

/* "i-" or "ami-" and 8 or 17 hexadecimal digits */
static bool is_id(const char *s, const char *prefix)
{
	size_t n = strlen(prefix), digits;

	if (strncmp(s, prefix, n) != 0)
		return false;
	digits = strspn(s + n, "0123456789abcdef");
	return s[n + digits] == 0 && digits >= 8 && digits <= 17;
}

static void set(char *dst, size_t size, const char *value, bool valid)
{
	if (valid)
		(void) text_format(dst, size, "%s", value);
}

static const char *field(const json_t *document, const char *key)
{
	const char *s = json_string_value(json_object_get(document, key));

	return s ? s : "";
}

static int learn_fields(struct node *n, const json_t *d)
{
	const char *region = field(d, "region"), *zone = field(d, "availabilityZone"),
		   *type = field(d, "instanceType"), *account = field(d, "accountId"),
		   *image = field(d, "imageId");
	struct address ip;

	if (strcmp(field(d, "instanceId"), n->instance_id) != 0 || !aws_is_region(region))
		return -EBADMSG;
	set(n->region, sizeof(n->region), region, true);
	n->region_source = REGION_METADATA;
	set(n->instance_type, sizeof(n->instance_type), type,
	    is_made_of(type, sizeof(n->instance_type), ".-"));
	set(n->zone, sizeof(n->zone), zone, is_made_of(zone, sizeof(n->zone), "-"));
	set(n->ami_id, sizeof(n->ami_id), image, is_id(image, "ami-"));
	set(n->account_id, sizeof(n->account_id), account,
	    strlen(account) == 12 && strspn(account, "0123456789") == 12);
	if (address_parse(&ip, field(d, "privateIp")) == 0)
		n->private_ip = ip;
	return 0;
}

static int learn_document(struct node *n, const char *body, size_t len)
{
	json_t *d = json_loadb(body, len, JSON_REJECT_DUPLICATES, NULL);
	int r;

	r = json_is_object(d) ? learn_fields(n, d) : -EBADMSG;
	json_decref(d);
	return r;
}

/* A body of one line, as all of the others are. */
static int one_line(char *dst, size_t size, const char *body, size_t len)
{
	if (len >= size || memchr(body, 0, len))
		return -EBADMSG;
	memcpy(dst, body, len);
	dst[len] = 0;
	dst[strcspn(dst, "\r\n")] = 0;
	return 0;
}

static int learn_mac(struct node *n, const char *body, size_t len)
{
	char mac[64];

	if (one_line(mac, sizeof(mac), body, len) < 0 || strlen(mac) != MAC_TEXT_MAX - 1)
		return -EBADMSG;
	for (size_t i = 0; mac[i]; i++) {
		if (i % 3 == 2 ? mac[i] != ':' : !isxdigit((unsigned char) mac[i]))
			return -EBADMSG;
		mac[i] = (char) tolower((unsigned char) mac[i]);
	}
	set(n->mac, sizeof(n->mac), mac, true);
	return 0;
}

static int learn_domain(struct node *n, const char *body, size_t len)
{
	char domain[sizeof(n->domain)];

	if (one_line(domain, sizeof(domain), body, len) < 0 || !aws_is_domain(domain))
		return -EBADMSG;
	set(n->domain, sizeof(n->domain), domain, true);
	return 0;
}

static int learn_partition(struct node *n, const char *body, size_t len)
{
	char partition[sizeof(n->partition)];

	if (one_line(partition, sizeof(partition), body, len) < 0 ||
	    !is_made_of(partition, sizeof(partition), "-"))
		return -EBADMSG;
	set(n->partition, sizeof(n->partition), partition, true);
	return 0;
}

static int learn_hostname(struct node *n, const char *body, size_t len)
{
	char name[sizeof(n->private_dns)];

	if (one_line(name, sizeof(name), body, len) < 0)
		return -EBADMSG;
	for (char *p = name; *p; p++)
		*p = (char) tolower((unsigned char) *p);
	if (!is_made_of(name, sizeof(name), ".-"))
		return -EBADMSG;
	set(n->private_dns, sizeof(n->private_dns), name, true);
	return 0;
}

/* Asked once per instance. Only the document has to be there: the rest has a fallback. */
static const struct {
	const char *path;
	int (*learn)(struct node *n, const char *body, size_t len);
} wants[] = {
	{document_path, learn_document},
	{"/latest/meta-data/mac", learn_mac},
	{"/latest/meta-data/services/domain", learn_domain},
	{"/latest/meta-data/services/partition", learn_partition},
	{"/latest/meta-data/local-hostname", learn_hostname},
};

/* ---- is it EC2? ---- */

static bool line_is(struct run *r, const char *path, const char *want, char *ret, size_t size)
{
	return file_read_line(run_files(r), path, ret, size) == 0 && strcmp(ret, want) == 0;
}

static bool exists(struct run *r, const char *path)
{
	struct stat st;

	return file_stat(run_files(r), path, &st) == 0;
}

/* Whether the files that tell can be read at all: a process out of descriptors knows nothing. */
static bool can_look(struct run *r)
{
	char line[128];

	return !errno_is_ours(file_read_line(run_files(r), "/proc/uptime", line, sizeof(line)));
}

static bool dmi_says_ec2(struct run *r)
{
	char line[128];

	return line_is(r, "/sys/class/dmi/id/sys_vendor", "Amazon EC2", line, sizeof(line)) ||
	       line_is(r, "/sys/class/dmi/id/board_vendor", "Amazon EC2", line, sizeof(line)) ||
	       (file_read_line(run_files(r), "/sys/class/dmi/id/product_uuid", line,
	                       sizeof(line)) == 0 &&
	        strncasecmp(line, "ec2", 3) == 0);
}

static bool tree_says_eks(struct run *r)
{
	static const char *const paths[] = {"/etc/eks", "/etc/eks/nodeadm.d", "/run/eks/nodeadm",
	                                    "/run/nodeadm", "/usr/bin/nodeadm"};

	for (size_t i = 0; i < ELEMENTS(paths); i++)
		if (exists(r, paths[i]))
			return true;
	return false;
}

/* Nodes outside of AWS that EKS manages have its files but no metadata service. */
static bool is_hybrid(struct run *r)
{
	static const char *const paths[] = {"/etc/eks/kubelet/environment",
	                                    "/etc/kubernetes/kubelet/config.json"};
	const char *text;
	size_t len;

	for (size_t i = 0; i < ELEMENTS(paths); i++)
		if (run_read(r, paths[i], KUBECONFIG_FILE_MAX, &text, &len) == 0 &&
		    memmem(text, len, "eks-hybrid:///", strlen("eks-hybrid:///")))
			return true;
	return false;
}

static void decide_ec2(struct run *r)
{
	struct node *n = run_learn(r);

	if (n->ec2 == EC2_YES && n->metadata_at) /* metadata has answered: nothing is surer */
		return;
	if (!can_look(r))
		return;
	if (dmi_says_ec2(r)) {
		n->ec2 = EC2_YES;
		return;
	}
	n->hybrid = is_hybrid(r);
	n->ec2 = !n->hybrid && tree_says_eks(r) ? EC2_YES : EC2_NO;
}

/* ---- the region without metadata ---- */

static void learn_kubeconfig(struct run *r)
{
	struct node *n = run_learn(r);
	struct kubeconfig k;
	char error[64];
	const char *text;
	size_t len, i = 0;

	while (kubeconfig_paths[i] &&
	       run_read(r, kubeconfig_paths[i], KUBECONFIG_FILE_MAX, &text, &len) < 0)
		i++;
	n->kubeconfig_present = kubeconfig_paths[i] != NULL;
	if (!n->kubeconfig_present || kubeconfig_parse(text, len, &k, error, sizeof(error)) < 0)
		return;
	if (!n->cluster[0] && aws_is_cluster(k.cluster))
		set(n->cluster, sizeof(n->cluster), k.cluster, true);
	if (k.region[0] &&
	    (n->region_source == REGION_UNKNOWN || n->region_source == REGION_STATE ||
	     n->region_source == REGION_RESOLV)) {
		set(n->region, sizeof(n->region), k.region, true);
		n->region_source = REGION_KUBECONFIG;
	}
	kubeconfig_done(&k);
}

static void fall_back(struct run *r)
{
	const char *env = run_env(r, "AWS_REGION"), *text;
	struct node *n = run_learn(r);
	struct resolv_conf conf;
	size_t len;

	if (n->region_source == REGION_METADATA)
		return;
	if (env && aws_is_region(env)) {
		set(n->region, sizeof(n->region), env, true);
		n->region_source = REGION_ENVIRONMENT;
		return;
	}
	learn_kubeconfig(r);
	if (n->region_source != REGION_UNKNOWN && n->region_source != REGION_STATE)
		return;
	if (run_read(r, "/etc/resolv.conf", RESOLV_CONF_MAX, &text, &len) < 0)
		return;
	resolv_conf_parse(&conf, text, len);
	if (region_from_search(conf.search, n->region) == 0)
		n->region_source = REGION_RESOLV;
}

/* ---- what an answer means ---- */

static bool has_route(struct run *r, const struct address *a)
{
	const struct net *net;

	return run_net(r, tables_max_age, &net) == 0 &&
	       (net_default_route(net, a->family, RT_TABLE_MAIN) ||
	        net_route_to(net, a, RT_TABLE_MAIN));
}

/* Nothing but this node itself can refuse for an address that never leaves the link. */
static bool is_metadata_address(const struct address *a)
{
	struct address v6;

	return address_is_link_local(a) ||
	       (address_parse(&v6, "fd00:ec2::254") == 0 && address_equal(a, &v6));
}

/* facts: a rule or a route on this node stops a datagram with an errno; a silent far side does
 * not. */
static bool is_local_block(struct run *r, struct look *l)
{
	struct address a;
	uint16_t port = 80;

	(void) run_imds_endpoint(r, l->address.family, &a, &port);
	l->datagram_error = run_local_block(r, &l->address, port);
	switch (l->error) {
	case ECONNREFUSED:
		return is_metadata_address(&l->address) || l->datagram_error == EPERM;
	case ENETUNREACH:
		return has_route(r, &l->address);
	default:
		return l->datagram_error != 0 && l->datagram_error != ENETUNREACH;
	}
}

static void classify_failure(struct run *r, const struct http_reply *h, struct look *l)
{
	l->outcome = h->outcome;
	if (h->outcome == OUTCOME_MALFORMED && h->status)
		(void) text_format(l->sample, sizeof(l->sample), "a body of over %d KiB",
		                   METADATA_BODY_MAX / 1024);
	l->code = l->error = h->outcome == OUTCOME_TIMEOUT ? 0 : h->code;
	if (h->outcome == OUTCOME_UNKNOWN ||
	    (h->outcome == OUTCOME_FAILED && h->stage != HTTP_WAITING)) {
		l->outcome = OUTCOME_UNKNOWN; /* we failed, not the world */
		return;
	}
	if (h->stage != HTTP_CONNECTING)
		return;
	l->step = "connect";
	if (h->outcome != OUTCOME_TIMEOUT && h->outcome != OUTCOME_REFUSED)
		l->outcome = OUTCOME_UNREACHABLE;
	if (is_local_block(r, l))
		l->layer = LAYER_ROUTE;
}

static void classify_status(const struct imds_reply *reply, struct look *l)
{
	int status = reply->http.code;

	l->code = status;
	if (status == 403 || (status == 401 && reply->step == IMDS_GET))
		l->outcome = OUTCOME_DENIED;
	else if (status == 429 || status >= 500 || (status == 200 && reply->http.total > slow))
		l->outcome = OUTCOME_SLOW;
	else if (status != 200)
		l->outcome = OUTCOME_MALFORMED;
	else
		l->outcome = OUTCOME_OK;
}

static void classify(struct run *r, const struct imds_reply *reply, const char *path,
                     struct look *l)
{
	*l = (struct look){.layer = LAYER_METADATA,
	                   .step = reply->step == IMDS_TOKEN ? "PUT" : "GET",
	                   .path = reply->step == IMDS_TOKEN ? "/latest/api/token" : path,
	                   .status = reply->http.status,
	                   .address = reply->address,
	                   .connect = reply->http.connect,
	                   .total = reply->http.total};
	if (reply->http.outcome == OUTCOME_OK)
		classify_status(reply, l);
	else
		classify_failure(r, &reply->http, l);
}

static bool answered(const struct look *l)
{
	return l->status == 200 && (l->outcome == OUTCOME_OK || l->outcome == OUTCOME_SLOW);
}

static void mark_malformed(struct look *l, const struct http_reply *h)
{
	size_t len = strnlen(h->body, 40);

	l->outcome = OUTCOME_MALFORMED;
	if (len > 0)
		(void) text_clean(l->sample, sizeof(l->sample), h->body, len);
	else
		(void) text_format(l->sample, sizeof(l->sample), "an empty body");
}

/* ---- the words ---- */

static const char *span(int64_t ms, char dst[static 24])
{
	if (ms >= 100)
		(void) snprintf(dst, 24, "%lld.%lld s", (long long) ms / 1000,
		                (long long) ms % 1000 / 100);
	else
		(void) snprintf(dst, 24, "%lld ms", (long long) ms);
	return dst;
}

static void describe_connect(const struct observation *o, char *dst, size_t size)
{
	const char *endpoint = evidence_get_text(o, "endpoint");
	int error = (int) evidence_number(o, "errno", 0);
	int datagram = (int) evidence_number(o, "datagram_errno", 0);
	char took[24];

	if (error)
		(void) text_format(dst, size, "connect to %s: %s", endpoint, strerror(error));
	else
		(void) text_format(dst, size, "connect to %s: no answer in %s", endpoint,
		                   span(evidence_number(o, "total_ms", 0), took));
	if (o->layer == LAYER_ROUTE && datagram)
		(void) text_append(dst, size, "; a datagram is stopped on this node too: %s",
		                   strerror(datagram));
	else if (o->layer == LAYER_ROUTE)
		(void) text_append(dst, size, "; only a rule or route of this node can say that");
	else if (!error)
		(void) text_append(dst, size, ", though a datagram leaves this node");
}

static void describe(const struct observation *o, char *dst, size_t size)
{
	const char *endpoint = evidence_get_text(o, "endpoint"),
		   *step = evidence_get_text(o, "step"),
		   *path = strcmp(step, "GET") == 0 ? evidence_get_text(o, "path") : "",
		   *sample = evidence_get_text(o, "sample");
	int status = (int) evidence_number(o, "http_status", 0);
	char took[24];

	(void) span(evidence_number(o, "total_ms", 0), took);
	if (o->outcome == OUTCOME_UNKNOWN)
		(void) text_format(dst, size, "cannot look: %s", strerror(o->code));
	else if (strcmp(step, "connect") == 0)
		describe_connect(o, dst, size);
	else if (o->outcome == OUTCOME_TIMEOUT)
		(void) text_format(dst, size, "%s %s%s: connected, no answer in %s", step, endpoint,
		                   path, took);
	else if (o->outcome == OUTCOME_RESET)
		(void) text_format(dst, size, "%s %s%s: connection closed without an answer", step,
		                   endpoint, path);
	else if (sample[0])
		(void) text_format(dst, size, "%s %s%s: not metadata: %s", step, endpoint, path,
		                   sample);
	else if (status)
		(void) text_format(dst, size, "%s %s%s: HTTP %d in %s", step, endpoint, path,
		                   status, took);
	else
		(void) text_format(dst, size, "%s %s%s: not an HTTP answer", step, endpoint, path);
	if (o->outcome == OUTCOME_DENIED && status == 401)
		(void) text_append(dst, size, " to a token that is seconds old");
}

static void emit(struct run *r, const struct look *l)
{
	struct observation *o = run_observe(r, l->layer, "", "", l->outcome, l->code);
	char text[ADDRESS_TEXT_MAX];

	if (!o)
		return;
	observation_text(o, "endpoint", "%s", address_format(&l->address, text));
	observation_text(o, "step", "%s", l->step);
	observation_text(o, "path", "%s", l->path);
	observation_number(o, "family", l->address.family == AF_INET6 ? 6 : 4);
	observation_number(o, "total_ms", (int64_t) (l->total / USEC_PER_MSEC));
	if (l->connect)
		observation_number(o, "connect_ms", (int64_t) (l->connect / USEC_PER_MSEC));
	if (l->status)
		observation_number(o, "http_status", l->status);
	if (l->error)
		observation_number(o, "errno", l->error);
	if (l->datagram_error)
		observation_number(o, "datagram_errno", l->datagram_error);
	if (l->sample[0])
		observation_text(o, "sample", "%s", l->sample);
	if (l->outcome == OUTCOME_OK)
		observation_detail(o, "%s", run_node(r)->instance_id);
	else
		describe(o, o->detail, sizeof(o->detail));
}

/* ---- the run ---- */

static void conclude_unanswered(struct run *r, struct look *l)
{
	struct node *n = run_learn(r);
	char address[ADDRESS_TEXT_MAX];
	struct observation *o;

	n->metadata_answers = false;
	decide_ec2(r);
	fall_back(r);
	if (n->ec2 != EC2_NO || l->outcome == OUTCOME_UNKNOWN) {
		emit(r, l);
		if (l->layer == LAYER_ROUTE)
			observation_detail(
				run_observe(r, LAYER_METADATA, "", "", OUTCOME_UNKNOWN, 0),
				"not reached: this node's own route or rule is in the way");
	} else {
		o = run_observe(r, LAYER_METADATA, "", "", OUTCOME_ABSENT, 0);
		observation_text(o, "endpoint", "%s", address_format(&l->address, address));
		observation_number(o, "hybrid", n->hybrid);
		observation_detail(o, n->hybrid ? "EKS hybrid node: it has no instance metadata"
		                                : "no metadata, and DMI does not say EC2");
	}
	run_end(r);
}

static void on_want(struct run *r, const struct imds_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	struct node *n = run_learn(r);
	bool document = wants[tag].path == document_path;
	struct look l;

	s->pending--;
	if (!reply->throttled && !reply->disabled) {
		classify(r, reply, wants[tag].path, &l);
		if (answered(&l) && wants[tag].learn(n, reply->http.body, reply->http.body_len) < 0)
			mark_malformed(&l, &reply->http);
		if (answered(&l) ||
		    (!document && (l.status == 404 || l.outcome == OUTCOME_MALFORMED)))
			m->learnt |= 1u << tag;
		else if (document && (!answered(&s->look) || s->look.outcome == OUTCOME_OK))
			s->look = l;
	}
	if (s->pending > 0)
		return;
	n->metadata_answers = answered(&s->look);
	if (!n->metadata_answers)
		fall_back(r);
	emit(r, &s->look);
	run_end(r);
}

static void ask_wants(struct run *r)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	bool again = m->asked;

	m->asked = true;
	for (size_t i = 0; i < ELEMENTS(wants); i++)
		if (!(m->learnt & 1u << i) &&
		    run_imds(r, wants[i].path, METADATA_BODY_MAX, again, on_want, i) == 0)
			s->pending++;
}

static void on_instance_id(struct run *r, const struct imds_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	struct node *n = run_learn(r);
	char id[64];

	if (reply->disabled) {
		n->metadata_answers = false;
		decide_ec2(r);
		fall_back(r);
		observation_detail(run_observe(r, LAYER_METADATA, "", "", OUTCOME_SKIPPED, 0),
		                   "AWS_EC2_METADATA_DISABLED is true");
		run_end(r);
		return;
	}
	classify(r, reply, id_path, &s->look);
	if (answered(&s->look) &&
	    (one_line(id, sizeof(id), reply->http.body, reply->http.body_len) < 0 ||
	     !is_id(id, "i-")))
		mark_malformed(&s->look, &reply->http);
	if (!answered(&s->look)) {
		conclude_unanswered(r, &s->look);
		return;
	}
	n->ec2 = EC2_YES;
	n->hybrid = false;
	n->metadata_answers = true;
	n->metadata_at = run_now(r);
	run_witness(r, WITNESS_METADATA, &reply->http);
	set(n->instance_id, sizeof(n->instance_id), id, true);
	if (strcmp(m->instance_id, id) != 0) {
		*m = (struct memory){0};
		set(m->instance_id, sizeof(m->instance_id), id, true);
	}
	if (!n->cluster[0])
		learn_kubeconfig(r);
	ask_wants(r);
	if (s->pending > 0)
		return;
	emit(r, &s->look);
	run_end(r);
}

static int start(struct run *r)
{
	return run_imds(r, id_path, METADATA_BODY_MAX, false, on_instance_id, 0);
}

/* ---- the judgement ---- */

static enum code code_of(const struct observation *o)
{
	const char *step = evidence_get_text(o, "step");

	switch (o->outcome) {
	case OUTCOME_OK:
	case OUTCOME_SKIPPED:
	case OUTCOME_UNKNOWN:
		return CODE_NONE;
	case OUTCOME_ABSENT:
		return CODE_ImdsNotEc2;
	case OUTCOME_DENIED:
		return evidence_number(o, "http_status", 0) == 401 ? CODE_ImdsTokenRejected
		                                                   : CODE_ImdsDisabled;
	case OUTCOME_MALFORMED:
		return CODE_ImdsMalformed;
	case OUTCOME_SLOW:
	case OUTCOME_RESET:
	case OUTCOME_FAILED:
		return CODE_ImdsSlow;
	case OUTCOME_TIMEOUT:
		if (strcmp(step, "PUT") == 0)
			return CODE_ImdsTokenTimeout;
		if (strcmp(step, "GET") == 0)
			return CODE_ImdsSlow;
		return CODE_ImdsUnreachable;
	default:
		return CODE_ImdsUnreachable;
	}
}

static enum code judge(const struct observation *o, struct words *ret)
{
	enum code c = code_of(o);

	if (c == CODE_NONE)
		return c;
	if (o->layer == LAYER_ROUTE)
		c = CODE_MetadataRouteBlocked;
	if (c == CODE_ImdsNotEc2)
		(void) text_format(ret->summary, sizeof(ret->summary),
		                   evidence_number(o, "hybrid", 0)
		                           ? "EKS hybrid node without instance metadata: AWS "
		                             "checks are skipped"
		                           : "no metadata at %s and DMI does not say EC2: AWS "
		                             "checks are skipped",
		                   evidence_get_text(o, "endpoint"));
	else
		describe(o, ret->summary, sizeof(ret->summary));
	return c;
}

const struct probe probe_imds = {
	.name = "imds",
	.what = "the instance metadata service: token, instance id and identity document",
	.layer = LAYER_METADATA,
	.every = 5 * USEC_PER_SEC,
	.timeout = 6 * USEC_PER_SEC,
	.grace = 60 * USEC_PER_SEC, /* DHCP may still be at it */
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.start = start,
	.judge = judge,
	.codes = {CODE_MetadataRouteBlocked, CODE_ImdsUnreachable, CODE_ImdsTokenTimeout,
                  CODE_ImdsDisabled, CODE_ImdsTokenRejected, CODE_ImdsSlow, CODE_ImdsMalformed,
                  CODE_ImdsNotEc2, CODE_NONE},
};
