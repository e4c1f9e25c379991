/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "probe.h"

/* What the VPC CNI writes of itself: the last trouble of each kind, from three logs. A line is
 * never a verdict alone: it is believed for a while only, and what comes later takes it back: a
 * line that says the opposite, a restart that was survived, ipamd serving, an address that no pod
 * has any more. What it comes from is in the facts of amazon-vpc-cni-k8s; what other probes can
 * count (limits of the instance type, trunks, modes) is left to them. */

#define DIR_LOGS "/var/log/aws-routed-eni"

enum file { IPAMD, PLUGIN, POLICY, _FILE_MAX };

static const char *const paths[_FILE_MAX] = {
	[IPAMD] = DIR_LOGS "/ipamd.log",
	[PLUGIN] = DIR_LOGS "/plugin.log",
	[POLICY] = DIR_LOGS "/network-policy-agent.log",
};

enum trouble_kind {
	DENIED,
	APISERVER,
	IDENTITY,
	ENICONFIG,
	TYPE,
	SUBNET,
	CIDR,
	QUOTA,
	ATTACH,
	LIMIT,
	AGENT,
	METADATA,
	THROTTLED,
	REFUSED,
	_TROUBLE_MAX
};

static const usec_t MINUTE = 60 * USEC_PER_SEC;

/* lasts: believed so long after the last line; longer while it comes back at every start of ipamd,
 * as the kubelet waits up to five minutes between two and a start may take two. served: ipamd
 * cannot serve while this is so. starts: it is met at every start. */
static const struct {
	const char *aspect;
	enum layer layer;
	enum outcome outcome;
	int code;
	enum code finding;
	unsigned lasts_s;
	bool served, starts;
} kinds[_TROUBLE_MAX] = {
	[DENIED] = {"", LAYER_CNI, OUTCOME_DENIED, 403, CODE_IpamdUnauthorized, 300, false, true},
	[APISERVER] = {"apiserver", LAYER_CNI, OUTCOME_TIMEOUT, 0, CODE_CniApiServerUnreachable,
                       120, true, true},
	[IDENTITY] = {"identity", LAYER_CNI, OUTCOME_TIMEOUT, 0, CODE_CniIdentityUnreachable, 300,
                      false, true},
	[ENICONFIG] = {"eniconfig", LAYER_CNI, OUTCOME_ABSENT, 0, CODE_EniConfigMissing, 300, true,
                       true},
	[TYPE] = {"type", LAYER_CNI, OUTCOME_FAILED, 0, CODE_InstanceTypeUnknown, 300, true, true},
	[SUBNET] = {"", LAYER_ADDRESS, OUTCOME_EXHAUSTED, 400, CODE_SubnetExhausted, 300},
	[CIDR] = {"prefix", LAYER_ADDRESS, OUTCOME_EXHAUSTED, 400, CODE_SubnetFragmented, 300},
	[QUOTA] = {"quota", LAYER_ADDRESS, OUTCOME_EXHAUSTED, 400, CODE_EniQuotaReached, 300},
	[ATTACH] = {"attach", LAYER_ADDRESS, OUTCOME_EXHAUSTED, 400, CODE_EniAttachFailed, 300},
	[LIMIT] = {"limit", LAYER_ADDRESS, OUTCOME_EXHAUSTED, 0, CODE_EniLimitReached, 300},
	[AGENT] = {"policy", LAYER_CNI, OUTCOME_FAILED, 0, CODE_NetworkPolicyAgentFailing, 180},
	[METADATA] = {"metadata", LAYER_ADDRESS, OUTCOME_FAILED, 0, CODE_NONE, 300},
	[THROTTLED] = {"throttled", LAYER_ADDRESS, OUTCOME_SLOW, 503, CODE_NONE, 300},
	[REFUSED] = {"refused", LAYER_ADDRESS, OUTCOME_EXHAUSTED, 0, CODE_NONE, 300},
};

enum effect {
	RAISE, /* of its kind, when logged as a warning or worse */
	NOTE,  /* the same at any level */
	CLEAR, /* takes its kind back */
	START, /* ipamd begins */
	SHORT, /* of a subnet, without saying of what it is short */
	HOLD,  /* ipamd waits after it was refused by the subnet: no new line will come meanwhile */
	LOST,  /* ipamd forgets an address that a pod may have */
	BACKEND, /* the plugin does not reach ipamd */
	CORDON,  /* ipamd asks for nothing on a node that takes no pods */
	INIT,    /* ipamd gives up starting */
};

enum { OF_IPAMD = 1 << IPAMD, OF_PLUGIN = 1 << PLUGIN, OF_POLICY = 1 << POLICY };

/* The strings are as the VPC CNI has them; literals long enough to be quick to look for. */
static const struct {
	const char *literal;
	enum effect effect;
	enum trouble_kind kind;
	unsigned files;
} rules[] = {
	{"Starting L-IPAMD", START, 0, OF_IPAMD},
	{"UnauthorizedOperation", RAISE, DENIED, OF_IPAMD},
	{"AccessDenied", RAISE, DENIED, OF_IPAMD},
	{"InvalidIdentityToken", RAISE, DENIED, OF_IPAMD},
	{"AssumeRoleWithWebIdentity", RAISE, IDENTITY, OF_IPAMD},
	{"AssumeRoleForPodIdentity", RAISE, IDENTITY, OF_IPAMD},
	{"WebIdentityErr", RAISE, IDENTITY, OF_IPAMD},
	{"169.254.170.23", RAISE, IDENTITY, OF_IPAMD},
	{"Unable to reach API Server", RAISE, APISERVER, OF_IPAMD},
	{"Failed to check API server connectivity", RAISE, APISERVER, OF_IPAMD},
	{"Failed to communicate with K8S Server", RAISE, APISERVER, OF_IPAMD},
	{"Successful communication with the Cluster", CLEAR, APISERVER, OF_IPAMD},
	{"No ENIConfig could be found", RAISE, ENICONFIG, OF_IPAMD},
	{"ENIConfig.crd.k8s.amazonaws.com", RAISE, ENICONFIG, OF_IPAMD},
	{"Failed to get ENI limits from", RAISE, TYPE, OF_IPAMD},
	{"unknown instance type:", RAISE, TYPE, OF_IPAMD},
	{"InsufficientFreeAddressesInSubnet", RAISE, SUBNET, OF_IPAMD},
	{"InsufficientCidrBlocks", RAISE, CIDR, OF_IPAMD},
	{"Unable to attach IPs/Prefixes for the ENI, subnet", SHORT, 0, OF_IPAMD},
	{"Recently we had InsufficientCidr error", HOLD, 0, OF_IPAMD},
	{"NetworkInterfaceLimitExceeded", RAISE, QUOTA, OF_IPAMD},
	{"AttachmentLimitExceeded", RAISE, ATTACH, OF_IPAMD},
	{"no available device number", RAISE, ATTACH, OF_IPAMD},
	{"max ENI limit is already reached", NOTE, LIMIT, OF_IPAMD},
	{"RequestLimitExceeded", RAISE, THROTTLED, OF_IPAMD},
	{"data from instance metadata", RAISE, METADATA, OF_IPAMD},
	{"failed to find primary ENI", RAISE, METADATA, OF_IPAMD},
	{"Missing IP addresses from IMDS", RAISE, METADATA, OF_IPAMD},
	{"no EC2 IMDS role found", RAISE, METADATA, OF_IPAMD},
	{"giving up trying to retrieve ENIs from metadata", RAISE, METADATA, OF_IPAMD},
	{"Unable to discover attached IPs for ENI from", RAISE, METADATA, OF_IPAMD},
	{"presuming stale/dead", LOST, 0, OF_IPAMD},
	{"no available IP/Prefix addresses", NOTE, REFUSED, OF_IPAMD},
	{"ailed to assign an IP address to container", NOTE, REFUSED, OF_PLUGIN},
	{"Failed to connect to backend server", BACKEND, 0, OF_PLUGIN},
	{"non schedulable node", CORDON, 0, OF_IPAMD},
	{"Initialization failure:", INIT, 0, OF_IPAMD},
	{"failed to setup network policy", RAISE, AGENT, OF_PLUGIN},
	{"is forbidden", RAISE, AGENT, OF_POLICY},
	{"no matches for kind", RAISE, AGENT, OF_POLICY},
	{"address already in use", RAISE, AGENT, OF_POLICY},
};

enum {
	LOST_MAX = 32,
	TAGGED = 96,        /* of a line, so much is kept: its time lies in there */
	SILENT_RUN_S = 150, /* a start that takes longer came through */
	SILENT_GAP_S = 10,
	SILENT_STARTS = 2,
	HISTORY_S = 86400,
	SHOWN_S = 3600, /* what is no longer believed is still shown as past */
	LOST_SETTLED_S = 60,
	CHECKPOINT_BYTES = 1 << 20,
};

/* All times of lines are wall clock; 0: never. */
struct trouble {
	usec_t first, last, cleared;
	uint32_t seen;
	bool over_starts; /* came back after a restart */
	enum outcome outcome;
	char api[40], principal[64], text[64];
};

struct memory {
	struct tail tails[_FILE_MAX];
	struct trouble troubles[_TROUBLE_MAX];
	usec_t started, last_line, silent_at, backend, cordoned, init_failed, modified;
	uint64_t lines_of_run; /* since the start */
	uint32_t starts, silent_starts, silent_gap_s;
	bool told; /* this run of ipamd has said what is wrong */
	char version[24];
	char previous[TAGGED];
	uint8_t previous_len;
	struct address lost[LOST_MAX];
	size_t n_lost;
	uint32_t lost_seen;
	usec_t lost_at;
};

struct state {
	struct matcher matcher;
	const char *literals[ELEMENTS(rules)];
	int errors[_FILE_MAX];
	uint64_t bytes, lines;
};

/* ---- a line, in place ---- */

struct text {
	const char *at;
	size_t len;
};

static const char *find(struct text t, const char *what)
{
	return memmem(t.at, t.len, what, strlen(what));
}

/* What follows the mark, as far as it is made of these characters. */
static struct text after(struct text t, const char *mark, const char *accept)
{
	const char *p = find(t, mark), *end = t.at + t.len;
	struct text word = {0};

	if (!p)
		return word;
	word.at = p + strlen(mark);
	while (word.at + word.len < end && word.at[word.len] && strchr(accept, word.at[word.len]))
		word.len++;
	return word;
}

#define DIGITS  "0123456789"
#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" DIGITS
#define NAME    LETTERS "+=,.@_-"

static void copy(char *dst, size_t size, struct text t)
{
	(void) text_clean(dst, size, t.at, t.len);
}

/* n digits at *at, which moves on behind them and one character more; -1 otherwise. */
static int number(struct text *t, size_t n)
{
	int value = 0;

	if (t->len < n)
		return -1;
	for (size_t i = 0; i < n; i++) {
		if (t->at[i] < '0' || t->at[i] > '9')
			return -1;
		value = value * 10 + (t->at[i] - '0');
	}
	n += t->len > n;
	t->at += n;
	t->len -= n;
	return value;
}

/* Days since 1970-01-01 of the proleptic Gregorian calendar. */
static int64_t days(int64_t y, int m, int d)
{
	int64_t era, of_era;

	y -= m <= 2;
	era = (y >= 0 ? y : y - 399) / 400;
	of_era = y - era * 400;
	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 +
	       (153 * (m + (m > 2 ? -3 : 9)) + 2) / 5 + d - 1 - 719468;
}

/* RFC 3339, with a fraction that is dropped and any offset. 0 when it is none. */
static usec_t parse_time(struct text t)
{
	int year = number(&t, 4), month = number(&t, 2), day = number(&t, 2);
	int hour = number(&t, 2), minute = number(&t, 2), second = number(&t, 2);
	int64_t at;

	if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 ||
	    hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
		return 0;
	at = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
	if (t.at[-1] == '+' || t.at[-1] == '-') /* no fraction: it belongs to the offset */
		t.at--, t.len++;
	while (t.len > 0 && isdigit((unsigned char) *t.at))
		t.at++, t.len--;
	if (t.len >= 5 && (*t.at == '+' || *t.at == '-')) {
		int sign = *t.at == '+' ? 1 : -1, h, m;

		t.at++, t.len--;
		h = number(&t, 2);
		if (h >= 0 && t.len > 0 && t.at[-1] != ':') /* "+0900" */
			t.at--, t.len++;
		m = number(&t, 2);
		if (h >= 0 && m >= 0)
			at -= (int64_t) sign * (h * 60 + m) * 60;
	}
	return at > 0 ? (usec_t) at * USEC_PER_SEC : 0;
}

/* {"level":"error","ts":"2026-08-20T10:00:00.000Z",...}, or the time at the start as old versions
 * had it. */
static usec_t time_of(const char *line, size_t len)
{
	struct text t = {line, len < TAGGED ? len : TAGGED}, value;
	const char *ts = find(t, "\"ts\":\"");

	if (!ts)
		return parse_time(t);
	value.at = ts + strlen("\"ts\":\"");
	value.len = t.len - (size_t) (value.at - line);
	return parse_time(value);
}

static bool is_word(struct text t, const char *word)
{
	return t.len == strlen(word) && memcmp(t.at, word, t.len) == 0;
}

/* A line without a level is taken for one that matters. */
static bool is_serious(struct text line)
{
	struct text level = after(line, "\"level\":\"", LETTERS);

	return !is_word(level, "debug") && !is_word(level, "info");
}

static bool is_warning(struct text line)
{
	return find(line, "\"level\":\"warn\"") != NULL;
}

/* "operation error EC2: DescribeSubnets, ...", "is not authorized to perform: ec2:DescribeSubnets",
 * "Failed to call ec2:DescribeSubnets", or a name alone. */
static void find_api(struct text line, char *dst, size_t size)
{
	static const char *const marks[] = {"operation error EC2: ",
	                                    "operation error STS: ",
	                                    "operation error EKS Auth: ",
	                                    "to perform: ec2:",
	                                    "to perform: sts:",
	                                    "ec2:",
	                                    "sts:"};
	static const char *const names[] = {
		"CreateNetworkInterface",          "AttachNetworkInterface",
		"AssignPrivateIpAddresses",        "AssignIpv6Addresses",
		"UnassignPrivateIpAddresses",      "DescribeNetworkInterfaces",
		"DescribeInstanceTypes",           "DescribeInstances",
		"DescribeSecurityGroups",          "DescribeSubnets",
		"ModifyNetworkInterfaceAttribute", "DetachNetworkInterface",
		"DeleteNetworkInterface",          "CreateTags",
		"AssumeRoleWithWebIdentity",       "AssumeRoleForPodIdentity"};
	struct text api = {0};

	for (size_t i = 0; i < ELEMENTS(marks) && api.len == 0; i++)
		api = after(line, marks[i], LETTERS);
	for (size_t i = 0; i < ELEMENTS(names) && api.len == 0; i++)
		if (find(line, names[i]))
			api = (struct text){names[i], strlen(names[i])};
	if (api.len > 0)
		copy(dst, size, api);
}

/* "User: arn:aws:sts::123456789012:assumed-role/ROLE/SESSION is not authorized": the account and
 * the session are not kept. */
static void find_principal(struct text line, char *dst, size_t size)
{
	struct text role = after(line, ":assumed-role/", NAME);

	if (role.len > 0)
		copy(dst, size, role);
}

static enum outcome how_it_failed(struct text line, enum outcome otherwise)
{
	static const struct {
		const char *says;
		enum outcome outcome;
	} ways[] = {{"connection refused", OUTCOME_REFUSED},
	            {"i/o timeout", OUTCOME_TIMEOUT},
	            {"deadline exceeded", OUTCOME_TIMEOUT},
	            {"no such host", OUTCOME_ABSENT},
	            {"no route to host", OUTCOME_UNREACHABLE},
	            {"network is unreachable", OUTCOME_UNREACHABLE},
	            {"connection reset", OUTCOME_RESET},
	            {"x509: ", OUTCOME_UNTRUSTED}};

	for (size_t i = 0; i < ELEMENTS(ways); i++)
		if (find(line, ways[i].says))
			return ways[i].outcome;
	return otherwise;
}

/* ---- what a line changes ---- */

static struct trouble *touch(struct memory *m, enum trouble_kind k, usec_t at)
{
	struct trouble *t = &m->troubles[k];
	usec_t lasts = kinds[k].lasts_s * USEC_PER_SEC;

	if (!t->last || t->cleared >= t->last || at > t->last + (kinds[k].starts ? 2 : 1) * lasts)
		*t = (struct trouble){.first = at};
	else if (m->started > t->last)
		t->over_starts = true;
	t->last = at;
	t->seen++;
	t->outcome = kinds[k].outcome;
	return t;
}

static void raise_trouble(struct memory *m, enum trouble_kind k, usec_t at, struct text line)
{
	struct trouble *t = touch(m, k, at);

	t->outcome = how_it_failed(line, kinds[k].outcome);
	find_api(line, t->api, sizeof(t->api));
	find_principal(line, t->principal, sizeof(t->principal));
	m->told = true;
}

/* An answer of EC2 or STS that says no is no failure to reach them; an older policy that does not
 * let ipamd choose a subnet is lived with. */
static void raise_identity(struct memory *m, usec_t at, struct text line)
{
	if (find(line, "AccessDenied") || find(line, "InvalidIdentityToken") ||
	    find(line, "UnauthorizedOperation") || how_it_failed(line, OUTCOME_OK) == OUTCOME_OK)
		return;
	raise_trouble(m, IDENTITY, at, line);
	copy(m->troubles[IDENTITY].text, sizeof(m->troubles[IDENTITY].text),
	     after(line, "https://", NAME));
}

static void raise_denied(struct memory *m, usec_t at, struct text line)
{
	struct trouble *t = &m->troubles[DENIED];
	static const char *const errors[] = {"UnauthorizedOperation", "InvalidIdentityToken",
	                                     "AccessDenied"};

	if (is_warning(line) && find(line, "DescribeSubnets"))
		return;
	raise_trouble(m, DENIED, at, line);
	t->outcome = OUTCOME_DENIED;
	for (size_t i = 0; i < ELEMENTS(errors); i++)
		if (find(line, errors[i])) {
			(void) text_format(t->text, sizeof(t->text), "%s", errors[i]);
			break;
		}
}

/* The name in quotes, which JSON escapes. */
static void raise_eniconfig(struct memory *m, usec_t at, struct text line)
{
	struct text name = after(line, "ENIConfig.crd.k8s.amazonaws.com \\\"", NAME);

	if (find(line, "ENIConfig.crd.k8s.amazonaws.com") && !find(line, "not found"))
		return;
	if (name.len == 0)
		name = after(line, "ENIConfig.crd.k8s.amazonaws.com \"", NAME);
	raise_trouble(m, ENICONFIG, at, line);
	m->troubles[ENICONFIG].outcome = OUTCOME_ABSENT;
	if (name.len > 0)
		copy(m->troubles[ENICONFIG].text, sizeof(m->troubles[ENICONFIG].text), name);
}

static void raise_kind(struct memory *m, enum trouble_kind k, usec_t at, struct text line)
{
	if (k == IDENTITY)
		raise_identity(m, at, line);
	else if (k == DENIED)
		raise_denied(m, at, line);
	else if (k == ENICONFIG)
		raise_eniconfig(m, at, line);
	else
		raise_trouble(m, k, at, line);
}

/* A run that said nothing wrong and went silent before it can have come through. */
static void note_start(struct memory *m, usec_t at, struct text line)
{
	usec_t last = m->previous_len ? time_of(m->previous, m->previous_len) : 0;
	bool silent = m->started && last >= m->started && at > last && !m->told &&
	              last - m->started < SILENT_RUN_S * USEC_PER_SEC &&
	              at - last >= SILENT_GAP_S * USEC_PER_SEC && at - last < 15 * MINUTE;

	m->silent_starts = silent ? m->silent_starts + 1 : 0;
	if (silent) {
		m->silent_at = at;
		m->silent_gap_s = (uint32_t) ((at - last) / USEC_PER_SEC);
	}
	m->starts++;
	m->started = at;
	m->told = false;
	m->lines_of_run = 0;
	copy(m->version, sizeof(m->version), after(line, "Starting L-IPAMD ", NAME));
}

/* "Sandbox %s uses unknown IP Address %s - presuming stale/dead", one line an address. */
static void note_lost(struct memory *m, usec_t at, struct text line)
{
	struct text word = after(line, "unknown IP Address ", DIGITS "abcdefABCDEF.:");
	char literal[ADDRESS_TEXT_MAX];
	struct address a;

	if (word.len == 0 || word.len >= sizeof(literal))
		return;
	memcpy(literal, word.at, word.len);
	literal[word.len] = 0;
	if (address_parse(&a, literal) < 0)
		return;
	if (at > m->lost_at + 10 * MINUTE)
		m->n_lost = m->lost_seen = 0;
	m->lost_at = at;
	m->lost_seen++;
	for (size_t i = 0; i < m->n_lost; i++)
		if (address_equal(&m->lost[i], &a))
			return;
	if (m->n_lost < LOST_MAX)
		m->lost[m->n_lost++] = a;
}

static void hold(struct memory *m, usec_t at)
{
	for (enum trouble_kind k = SUBNET; k <= CIDR; k++)
		if (m->troubles[k].last && at < m->troubles[k].last + 3 * MINUTE)
			m->troubles[k].last = at;
}

static void apply(struct run *r, size_t rule, usec_t at, struct text line)
{
	struct memory *m = run_memory(r);
	const struct node *node = run_node(r);

	switch (rules[rule].effect) {
	case RAISE:
		if (is_serious(line))
			raise_kind(m, rules[rule].kind, at, line);
		break;
	case NOTE:
		(void) touch(m, rules[rule].kind, at);
		break;
	case CLEAR:
		m->troubles[rules[rule].kind].cleared = at;
		break;
	case START:
		note_start(m, at, line);
		break;
	case SHORT:
		if (!find(line, "Insufficient"))
			raise_trouble(m,
			              node->cni.prefix || node->network.prefix_mode ? CIDR : SUBNET,
			              at, line);
		break;
	case HOLD:
		hold(m, at);
		break;
	case LOST:
		note_lost(m, at, line);
		break;
	case BACKEND:
		m->backend = at;
		break;
	case CORDON:
		m->cordoned = at;
		break;
	case INIT:
		m->init_failed = at;
		m->told = true;
		break;
	}
}

static void on_line(struct run *r, const char *line, size_t len, uintptr_t file)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	struct match_set set;
	usec_t at = 0;

	s->lines++;
	if (matcher_find(&s->matcher, line, len, &set)) {
		at = time_of(line, len);
		if (!at) /* where a line has no time, it is of now */
			at = run_realtime(r);
		for (size_t i = 0; i < ELEMENTS(rules); i++)
			if (match_has(&set, i) && rules[i].files & 1U << file)
				apply(r, i, at, (struct text){line, len});
	}
	if (file != IPAMD)
		return;
	m->lines_of_run++;
	m->previous_len = (uint8_t) (len < TAGGED ? len : TAGGED);
	memcpy(m->previous, line, m->previous_len);
}

/* ---- what is still true ---- */

static usec_t ago(usec_t now, usec_t then)
{
	return now > then ? now - then : 0;
}

static int64_t seconds_ago(usec_t now, usec_t then)
{
	return (int64_t) (ago(now, then) / USEC_PER_SEC);
}

/* When ipamd last answered, by the wall clock; 0: never, or not known. */
static usec_t served_at(struct run *r)
{
	usec_t at = run_node(r)->ipamd.served_at;

	return at ? run_realtime(r) - ago(run_now(r), at) : 0;
}

static usec_t lasts(const struct trouble *t, enum trouble_kind k)
{
	usec_t base = kinds[k].lasts_s * USEC_PER_SEC;

	return t->over_starts && base < 10 * MINUTE ? 10 * MINUTE : base;
}

/* ipamd was denied what it cannot start without. */
static bool ended_a_start(const struct memory *m)
{
	return m->init_failed + 5 * USEC_PER_SEC >= m->troubles[DENIED].last;
}

/* Why it is no longer believed; NULL while it is. */
static const char *cancelled(struct run *r, enum trouble_kind k)
{
	const struct memory *m = run_memory(r);
	const struct trouble *t = &m->troubles[k];
	usec_t now = run_realtime(r);

	if (t->cleared >= t->last)
		return "Successful communication with the Cluster";
	if (now > t->last + lasts(t, k))
		return "nothing more of it since";
	if (served_at(r) > t->last && (kinds[k].served || (k == DENIED && ended_a_start(m))))
		return "ipamd serves since";
	if (kinds[k].starts && m->started > t->last && m->last_line > m->started + MINUTE &&
	    ago(now, m->started) > SILENT_RUN_S * USEC_PER_SEC)
		return "ipamd has started since";
	return NULL;
}

/* By the tables, which do not have to wait for the limits probe's look. */
static bool has_known_limits(const struct node *n)
{
	struct limits l;

	return n->network.enis_max > 0 ||
	       (n->instance_type[0] && limits_lookup(n->instance_type, &l, NULL) == 0);
}

/* One line may be chance where the same is tried again all the time. */
static bool is_enough(struct run *r, enum trouble_kind k)
{
	const struct memory *m = run_memory(r);
	const struct trouble *t = &m->troubles[k];

	if (k == DENIED)
		return t->seen > 1 || ended_a_start(m);
	if (k == AGENT)
		return t->seen > 2 && t->last - t->first >= MINUTE;
	if (k == LIMIT) /* where the type is known, its numbers decide */
		return !has_known_limits(run_node(r)) && m->troubles[REFUSED].last &&
		       !cancelled(r, REFUSED);
	return true;
}

/* ipamd may ask for the limits of a type that it does not know: then the type is the cause. */
static bool is_second_half(struct run *r, enum trouble_kind k)
{
	const struct memory *m = run_memory(r);

	return k == DENIED && m->troubles[TYPE].last && !cancelled(r, TYPE) &&
	       strcmp(m->troubles[DENIED].api, "DescribeInstanceTypes") == 0;
}

static void tell_principal(struct run *r, struct observation *o, const struct trouble *t)
{
	const struct node *n = run_node(r);
	const char *slash = strrchr(n->cni.role_arn, '/');

	if (t->principal[0])
		observation_text(o, "principal", "%s", t->principal);
	else if (n->cni.known && n->cni.role_arn[0])
		observation_text(o, "principal", "%s", slash ? slash + 1 : n->cni.role_arn);
	else if (n->cni.known && !n->cni.pod_identity && n->role[0])
		observation_text(o, "principal", "%s", n->role);
	if (n->cni.known)
		observation_number(o, "irsa", n->cni.web_identity || n->cni.pod_identity);
	observation_text(o, "error", "%s", t->text[0] ? t->text : "UnauthorizedOperation");
}

static void tell_counts(struct run *r, struct observation *o)
{
	const struct network *n = &run_node(r)->network;

	if (n->enis_attached >= 0 && n->known)
		observation_number(o, "enis_attached", n->enis_attached);
	if (n->enis_max > 0)
		observation_number(o, "enis_max", n->enis_max);
}

static const char *subject_of(struct run *r, enum trouble_kind k)
{
	const struct memory *m = run_memory(r);

	if (k != ENICONFIG)
		return "";
	return m->troubles[k].text[0] ? m->troubles[k].text : run_node(r)->zone;
}

/* A look that is well says nothing of whether ipamd is: it only does where ipamd has served. */
static void observe_kind(struct run *r, enum trouble_kind k)
{
	const struct memory *m = run_memory(r);
	const struct trouble *t = &m->troubles[k];
	usec_t now = run_realtime(r), end = t->last + lasts(t, k);
	const char *why = cancelled(r, k);
	bool bad = !why && is_enough(r, k) && !is_second_half(r, k);
	enum outcome good = served_at(r) ? OUTCOME_OK : OUTCOME_SKIPPED;
	struct observation *o;

	o = run_observe(r, kinds[k].layer, kinds[k].aspect, subject_of(r, k),
	                bad ? t->outcome : good, bad ? kinds[k].code : 0);
	if (t->api[0])
		observation_text(o, "api", "%s", t->api);
	observation_number(o, "age_s", seconds_ago(now, t->last));
	observation_number(o, "seen", t->seen);
	if (k == DENIED)
		tell_principal(r, o, t);
	if (kinds[k].layer == LAYER_ADDRESS)
		tell_counts(r, o);
	if (k == IDENTITY && t->text[0])
		observation_text(o, "endpoint", "%s", t->text);
	if (k == ENICONFIG)
		observation_text(o, "zone", "%s", run_node(r)->zone);
	if (k == TYPE)
		observation_text(o, "instance_type", "%s", run_node(r)->instance_type);
	if (t->cleared >= t->last)
		observation_number(o, "cancelled_s", seconds_ago(now, t->cleared));
	if (o && bad)
		o->valid_for = end > now ? end - now : USEC_PER_SEC;
	observation_detail(o, "last %lld s ago, %u times%s%s",
	                   (long long) seconds_ago(now, t->last), (unsigned) t->seen,
	                   why ? ", cancelled: " : "", why ? why : "");
}

/* ipamd with an identity of its own that stops in the middle of its start and is started again,
 * and never says why: it waits for credentials. */
static bool is_silent(struct run *r)
{
	const struct memory *m = run_memory(r);
	usec_t now = run_realtime(r);

	return m->silent_starts >= SILENT_STARTS && ago(now, m->started) < 10 * MINUTE &&
	       served_at(r) < m->started &&
	       !(m->last_line > m->started + SILENT_RUN_S * USEC_PER_SEC);
}

static void observe_silence(struct run *r)
{
	const struct memory *m = run_memory(r);
	const struct cni_settings *c = &run_node(r)->cni;
	struct observation *o;

	if (m->troubles[IDENTITY].last && !cancelled(r, IDENTITY))
		return; /* it says why */
	o = run_observe(r, LAYER_CNI, "identity", "", OUTCOME_TIMEOUT, 0);
	observation_number(o, "silent_starts", m->silent_starts);
	observation_number(o, "silent_s", m->silent_gap_s);
	observation_text(o, "endpoint", "%s", c->web_identity ? "sts" : "169.254.170.23");
	observation_detail(o, "ipamd stops in its start, %u times, silent for %u s",
	                   (unsigned) m->silent_starts, (unsigned) m->silent_gap_s);
}

/* ---- addresses that ipamd forgot ---- */

/* The kernel still has the pod: its rule, or the host route to its veth. */
static bool is_routed(const struct net *net, const struct address *a)
{
	unsigned bits = a->family == AF_INET ? 32 : 128;

	for (size_t i = 0; i < net->n_rules; i++)
		if (net->rules[i].priority == 512 && net->rules[i].dst_len == bits &&
		    address_equal(&net->rules[i].dst, a))
			return true;
	for (size_t i = 0; i < net->n_routes; i++) {
		const struct net_route *route = &net->routes[i];
		const struct net_link *l;

		if (route->table != 254 || route->dst_len != bits || !address_equal(&route->dst, a))
			continue;
		l = net_link_by_index(net, route->oif);
		if (l && strcmp(l->kind, "veth") == 0)
			return true;
	}
	return false;
}

static bool is_allocated(const char *checkpoint, size_t len, const struct address *a)
{
	char text[ADDRESS_TEXT_MAX], quoted[ADDRESS_TEXT_MAX + 2];

	(void) text_format(quoted, sizeof(quoted), "\"%s\"", address_format(a, text));
	return memmem(checkpoint, len, quoted, strlen(quoted)) != NULL;
}

/* What ipamd forgot while its pod lived is found by three: the line, the kernel's route, and the
 * checkpoint that does not have it, or has given it to another pod since. */
static void observe_lost(struct run *r)
{
	const struct memory *m = run_memory(r);
	usec_t now = run_realtime(r);
	char first[ADDRESS_TEXT_MAX] = "";
	const struct net *net = NULL;
	const char *checkpoint = NULL;
	struct observation *o;
	size_t len = 0, lost = 0;

	if (ago(now, m->lost_at) < LOST_SETTLED_S * USEC_PER_SEC ||
	    run_read(r, "/var/run/aws-node/ipam.json", CHECKPOINT_BYTES, &checkpoint, &len) < 0 ||
	    run_net(r, 5 * USEC_PER_SEC, &net) < 0 || net->partial) {
		o = run_observe(r, LAYER_ADDRESS, "allocations", "", OUTCOME_UNKNOWN, 0);
		observation_detail(o,
		                   "cannot tell: %u addresses presumed stale, their routes or "
		                   "the checkpoint cannot be read yet",
		                   (unsigned) m->lost_seen);
		return;
	}
	for (size_t i = 0; i < m->n_lost; i++) {
		if (!is_routed(net, &m->lost[i]) || is_allocated(checkpoint, len, &m->lost[i]))
			continue;
		if (lost++ == 0)
			(void) address_format(&m->lost[i], first);
	}
	o = run_observe(r, LAYER_ADDRESS, "allocations", "", lost ? OUTCOME_FAILED : OUTCOME_OK, 0);
	observation_number(o, "lost", (int64_t) lost);
	observation_number(o, "presumed", m->lost_seen);
	observation_number(o, "age_s", seconds_ago(now, m->lost_at));
	if (lost)
		observation_text(o, "first", "%s", first);
	observation_detail(o, "%zu of %u addresses presumed stale are still routed", lost,
	                   (unsigned) m->lost_seen);
}

/* ---- the look ---- */

/* Of the address layer: that there is a log says nothing of whether the CNI is ready. */
static void observe_log(struct run *r)
{
	const struct memory *m = run_memory(r);
	const struct state *s = run_state(r);
	usec_t now = run_realtime(r);
	bool since_boot = m->modified && ago(now, m->modified) <= run_uptime(r);
	struct observation *o;
	int e = s->errors[IPAMD];

	o = run_observe(r, LAYER_ADDRESS, "log", "",
	                e == 0 && since_boot ? OUTCOME_OK : OUTCOME_UNKNOWN, -e);
	if (e == -ENOENT)
		observation_detail(o, "cannot tell: no ipamd.log: ipamd has not started here, or "
		                      "logs elsewhere (AWS_VPC_K8S_CNI_LOG_FILE)");
	else if (e < 0)
		observation_detail(o, "cannot tell: ipamd.log: %s",
		                   e == -ETIMEDOUT ? "the disk does not answer" : strerror(-e));
	else if (!since_boot)
		observation_detail(o, "cannot tell: nothing in ipamd.log since boot");
	else
		observation_detail(o, "last line %lld s ago%s%s",
		                   (long long) seconds_ago(now, m->last_line),
		                   m->version[0] ? ", VPC CNI " : "", m->version);
	observation_number(o, "since_boot", since_boot);
	if (m->last_line)
		observation_number(o, "last_s", seconds_ago(now, m->last_line));
	if (m->started)
		observation_number(o, "started_s", seconds_ago(now, m->started));
	if (m->version[0])
		observation_text(o, "version", "%s", m->version);
	if (m->init_failed)
		observation_number(o, "init_failed_s", seconds_ago(now, m->init_failed));
	if (m->backend)
		observation_number(o, "backend_s", seconds_ago(now, m->backend));
	if (m->cordoned)
		observation_number(o, "cordoned_s", seconds_ago(now, m->cordoned));
	if (m->silent_starts)
		observation_number(o, "silent_starts", m->silent_starts);
	observation_number(o, "lines", (int64_t) s->lines);
}

static void conclude(struct run *r)
{
	struct memory *m = run_memory(r);
	const struct cni_settings *c = &run_node(r)->cni;
	usec_t now = run_realtime(r), last;

	run_learn(r)->cni_log_read = true;
	last = m->previous_len ? time_of(m->previous, m->previous_len) : 0;
	if (last)
		m->last_line = last;
	last = m->troubles[REFUSED].last;
	if (last)
		run_learn(r)->network.pod_refused_at = ago(run_now(r), ago(now, last));
	observe_log(r);
	for (enum trouble_kind k = 0; k < _TROUBLE_MAX; k++)
		if (m->troubles[k].last &&
		    (!cancelled(r, k) || ago(now, m->troubles[k].last) < SHOWN_S * USEC_PER_SEC) &&
		    !(k == IDENTITY && is_silent(r) && cancelled(r, k)))
			observe_kind(r, k);
	if (is_silent(r) && (c->web_identity || c->pod_identity))
		observe_silence(r);
	if (m->n_lost > 0 && ago(now, m->lost_at) < HISTORY_S * USEC_PER_SEC)
		observe_lost(r);
	run_end(r);
}

static int read_next(struct run *r, enum file file);

static void on_end(struct run *r, const struct tail_end *e, uintptr_t file)
{
	struct memory *m = run_memory(r);
	struct state *s = run_state(r);
	int error = 0;

	s->errors[file] = e->error;
	s->bytes += e->bytes;
	if (file == IPAMD)
		m->modified = e->modified;
	if (file + 1 < _FILE_MAX)
		error = read_next(r, (enum file)(file + 1));
	if (error < 0)
		s->errors[file + 1] = error;
	if (error < 0 || file + 1 == _FILE_MAX)
		conclude(r);
}

/* From this boot on, and no more than a day: nothing is believed so long. */
static int read_next(struct run *r, enum file file)
{
	usec_t now = run_realtime(r), past = run_uptime(r);
	struct tail_query q = {.path = paths[file], .time_of = time_of};
	struct memory *m = run_memory(r);

	if (past > HISTORY_S * USEC_PER_SEC)
		past = HISTORY_S * USEC_PER_SEC;
	q.since_realtime = now > past ? now - past : 1;
	return run_tail(r, &q, &m->tails[file], on_line, on_end, file);
}

static int start(struct run *r)
{
	struct state *s = run_state(r);
	struct stat st;
	int e;

	/* the kubelet makes the directory for the first aws-node pod */
	e = file_stat(run_files(r), DIR_LOGS, &st);
	if (run_node(r)->hybrid || e == -ENOENT) {
		observation_detail(run_observe(r, LAYER_ADDRESS, "log", "", OUTCOME_SKIPPED, 0),
		                   "no " DIR_LOGS ": aws-node has not been here");
		run_learn(r)->cni_log_read = true;
		run_end(r);
		return 0;
	}
	for (size_t i = 0; i < ELEMENTS(rules); i++)
		s->literals[i] = rules[i].literal;
	e = matcher_init(&s->matcher, s->literals, ELEMENTS(rules));
	return e < 0 ? e : read_next(r, IPAMD);
}

/* ---- what it means ---- */

/* ", 9 s ago, 44 times" */
static void say_age(const struct observation *o, struct words *ret)
{
	int64_t age = evidence_number(o, "age_s", -1), seen = evidence_number(o, "seen", 0);

	if (age >= 120)
		(void) text_append(ret->summary, sizeof(ret->summary), ", %d min ago",
		                   (int) (age / 60));
	else if (age >= 0)
		(void) text_append(ret->summary, sizeof(ret->summary), ", %d s ago", (int) age);
	if (seen > 1)
		(void) text_append(ret->summary, sizeof(ret->summary), ", %d times", (int) seen);
}

static void say_enis(const struct observation *o, struct words *ret)
{
	int64_t attached = evidence_number(o, "enis_attached", -1);
	int64_t most = evidence_number(o, "enis_max", -1);

	if (attached >= 0 && most > 0)
		(void) text_append(ret->summary, sizeof(ret->summary), "; %d of %d ENIs attached",
		                   (int) attached, (int) most);
}

static void say_denied(const struct observation *o, struct words *ret)
{
	const char *api = evidence_get_text(o, "api"), *who = evidence_get_text(o, "principal");
	const char *error = evidence_get_text(o, "error");
	const char *service = strncmp(api, "AssumeRole", 10) == 0 ? "" : "ec2:";

	(void) text_format(ret->summary, sizeof(ret->summary), "%s%s: %s", api[0] ? service : "",
	                   api[0] ? api : "ipamd calls EC2", error[0] ? error : "not authorized");
	if (who[0])
		(void) text_append(ret->summary, sizeof(ret->summary), " for role %s", who);
	say_age(o, ret);
}

static void say_identity(const struct observation *o, struct words *ret)
{
	const char *where = evidence_get_text(o, "endpoint");
	int64_t starts = evidence_number(o, "silent_starts", 0);

	if (starts > 0) {
		(void) text_format(ret->summary, sizeof(ret->summary),
		                   "ipamd gets no credentials from %s: its log stops in %d starts, "
		                   "silent for %d s",
		                   where, (int) starts, (int) evidence_number(o, "silent_s", 0));
		return;
	}
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "ipamd gets no credentials from %s: %s",
	                   where[0] ? where : "its identity endpoint", outcome_name(o->outcome));
	say_age(o, ret);
}

static void say_lost(const struct observation *o, struct words *ret)
{
	(void) text_format(ret->summary, sizeof(ret->summary),
	                   "ipamd gave up %d addresses that pods still have, %s first",
	                   (int) evidence_number(o, "lost", 0), evidence_get_text(o, "first"));
	say_age(o, ret);
}

static void say(const struct observation *o, enum trouble_kind k, struct words *ret)
{
	static const char *const texts[_TROUBLE_MAX] = {
		[APISERVER] = "ipamd cannot reach the API server through its service address",
		[TYPE] = "ipamd does not know the limits of this instance type",
		[SUBNET] = "the subnet has no free address: InsufficientFreeAddressesInSubnet",
		[CIDR] = "the subnet has no free /28 for a prefix: InsufficientCidrBlocks",
		[QUOTA] = "the account's quota of ENIs is used up: NetworkInterfaceLimitExceeded",
		[ATTACH] = "ipamd cannot attach an ENI: no device number is free",
		[LIMIT] = "ipamd is at its limit of ENIs, and a pod was refused an address",
		[AGENT] = "the network policy agent does not work, by its log",
	};

	switch (k) {
	case DENIED:
		say_denied(o, ret);
		return;
	case IDENTITY:
		say_identity(o, ret);
		return;
	case ENICONFIG:
		(void) text_format(ret->summary, sizeof(ret->summary),
		                   "custom networking, and there is no ENIConfig %s", o->subject);
		break;
	default:
		(void) text_format(ret->summary, sizeof(ret->summary), "%s", texts[k]);
	}
	if (k == TYPE && evidence_get_text(o, "instance_type")[0])
		(void) text_append(ret->summary, sizeof(ret->summary), ", %s",
		                   evidence_get_text(o, "instance_type"));
	if (k == APISERVER)
		(void) text_append(ret->summary, sizeof(ret->summary), ": %s",
		                   outcome_name(o->outcome));
	say_age(o, ret);
	say_enis(o, ret);
}

static enum code judge(const struct observation *o, struct words *ret)
{
	if (strcmp(o->aspect, "allocations") == 0) {
		say_lost(o, ret);
		return CODE_AllocationsLost;
	}
	for (enum trouble_kind k = 0; k < _TROUBLE_MAX; k++) {
		if (kinds[k].layer != o->layer || strcmp(kinds[k].aspect, o->aspect) != 0)
			continue;
		if (kinds[k].finding != CODE_NONE)
			say(o, k, ret);
		return kinds[k].finding;
	}
	return CODE_NONE;
}

const struct probe probe_ipamd_log = {
	.name = "ipamd-log",
	.what = "what ipamd, its plugin and the network policy agent log: the last error of each "
		"kind, while nothing later contradicts it",
	.layer = LAYER_CNI,
	.every = 15 * USEC_PER_SEC,
	.failing = 5 * USEC_PER_SEC,
	.retry = USEC_PER_SEC,
	.timeout = 15 * USEC_PER_SEC,
	.after = "ipamd",
	.needs_ec2 = true,
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.watch = {DIR_LOGS},
	.grace = 300 * USEC_PER_SEC, /* until kube-proxy and credentials are there */
	.start = start,
	.judge = judge,
	.codes = {CODE_IpamdUnauthorized, CODE_CniIdentityUnreachable, CODE_CniApiServerUnreachable,
                  CODE_EniConfigMissing, CODE_InstanceTypeUnknown, CODE_NetworkPolicyAgentFailing,
                  CODE_SubnetExhausted, CODE_SubnetFragmented, CODE_EniLimitReached,
                  CODE_EniQuotaReached, CODE_EniAttachFailed, CODE_AllocationsLost},
};
