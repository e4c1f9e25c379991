/* SPDX-License-Identifier: Apache-2.0 */
/* Every pair: each two fatal causes at the same time, in both orders, about the same endpoint and
 * about two, alone and with a symptom more. Either one explains the other and the verdict names it,
 * or both are roots in one order; and the same facts say the same bytes in whatever order they
 * come. Then everything that can be found, two at a time, against the rules of CONTRACT.md section
 * 6. Last, what does the checking is checked: each planted wrong must be seen. */
#include "../tap.h"
#include "diagnose.h"
#include "report-json.h"

enum { N = 4, TEXT = 32 };

static struct report whole, other;

struct facts {
	struct fact fact[N];
	const struct fact *order[N];
	size_t n;
};

static void add(struct facts *s, enum code code, const char *subject)
{
	struct fact *f = &s->fact[s->n];

	*f = (struct fact){.code = code, .since = 100, .last_seen = 200, .seen = 3};
	f->latest.layer = cause_of(code)->layer;
	f->latest.outcome = OUTCOME_FAILED;
	(void) text_format(f->latest.probe, sizeof(f->latest.probe), "planted");
	(void) text_format(f->latest.subject, sizeof(f->latest.subject), "%s", subject);
	f->bad = f->latest;
	(void) text_format(f->summary, sizeof(f->summary), "%s of %s", cause_of(code)->name,
	                   subject);
	s->order[s->n++] = f;
}

/* What a finding is about that names an endpoint; what names none has no subject here. */
static const char *about(enum code code, const char *endpoint)
{
	return cause_of(code)->explains == EXPLAINS_SUBJECT ? endpoint : "";
}

static void judge(const struct facts *s, struct report *ret)
{
	static const struct node node;
	struct diagnose_input in = {.node = &node, .now = 1000, .uptime = 5000, .complete = true};

	diagnose(s->order, s->n, &in, ret);
}

/* All that is said, but for the looks, which stand in the order in which they came. */
static uint64_t said(const struct report *r)
{
	static const struct report_meta meta;
	json_t *j = report_to_json(r, &meta);
	char *text;
	uint64_t h;

	if (!j)
		return 0;
	(void) json_object_del(j, "probes");
	text = json_dumps(j, JSON_COMPACT);
	h = text ? hash_text(1, text) : 0;
	free(text);
	json_decref(j);
	return h;
}

static const struct finding *finding_of(const struct report *r, enum code code)
{
	for (size_t i = 0; i < r->n_findings; i++)
		if (r->findings[i].code == code)
			return &r->findings[i];
	return NULL;
}

static enum code because(const struct report *r, enum code code)
{
	const struct finding *f = finding_of(r, code);

	return f && f->because >= 0 ? r->findings[f->because].code : CODE_NONE;
}

/* ---- the rules of the contract, apart from the code that keeps them ---- */

/* Causes of what else stands alone, or that explain within a layer: the catalogue's own words. */
static const enum code granted[][2] = {
	{CODE_MemoryStarved, CODE_ResolverStubDead},
	{CODE_ConntrackFull, CODE_KubeletConnectionDead},
	{CODE_ImdsMalformed, CODE_InstanceProfileMissing},
	{CODE_ImdsMalformed, CODE_InstanceProfileInvalid},
	{CODE_ImdsMalformed, CODE_RoleReplaced},
	{CODE_DiskFull, CODE_CniBinaryMissing},
	{CODE_PathMtuBlackhole, CODE_ApiServerTimeout},
	{CODE_RoleReplaced, CODE_NodeRoleNotMapped},
	{CODE_ClusterCaInvalid, CODE_NodeRoleNotMapped},
	{CODE_RoleReplaced, CODE_IpamdUnauthorized},
	{CODE_EndpointDenied, CODE_IpamdUnauthorized},
	{CODE_CniDirMismatch, CODE_CniBinaryMissing},
	{CODE_ImagePullDenied, CODE_CniBinaryMissing},
	{CODE_ServiceAddressUnreachable, CODE_NetworkPolicyAgentFailing},
	{CODE_MaxPodsExceedsCapacity, CODE_EniLimitReached},
	{CODE_MaxPodsExceedsCapacity, CODE_AddressLimitReached},
};

static bool is_granted(enum code c, enum code e)
{
	for (size_t i = 0; i < ELEMENTS(granted); i++)
		if (granted[i][0] == c && granted[i][1] == e)
			return true;
	return false;
}

static bool share_subject(const char *a, const char *b)
{
	return strcmp(a, b) == 0 || strstr(a, b) || strstr(b, a) || strcmp(a, "all") == 0 ||
	       strcmp(b, "all") == 0;
}

static const char *wrong_reason(const struct finding *f, const struct finding *why)
{
	const struct cause *c = cause_of(why->code), *e = cause_of(f->code);

	if (c->severity == SEVERITY_NOTICE)
		return "a notice explains";
	if (f->code == CODE_NodeNotReady)
		return NULL;
	if (why->code == CODE_NodeNotReady)
		return "NodeNotReady explains";
	if (is_granted(why->code, f->code))
		return NULL;
	if (c->layer > e->layer)
		return "a later layer explains an earlier one";
	if (e->layer == LAYER_IDENTITY && c->layer == LAYER_ENDPOINT)
		return "an endpoint explains a 401";
	if (e->layer == LAYER_IDENTITY && c->layer == LAYER_CREDENTIALS &&
	    why->code != CODE_CredentialsExpired && why->code != CODE_CredentialsRejected &&
	    why->code != CODE_RoleReplaced)
		return "credentials that are absent explain a 401";
	if (c->layer != e->layer && !(needs[e->layer] & UINT32_C(1) << c->layer))
		return "a layer that is not needed explains";
	if (c->layer == e->layer && e->kind == KIND_CAUSE)
		return "a cause has a cause in its own layer";
	if (e->from == FROM_ALONE)
		return "what stands alone is explained";
	if (c->explains == EXPLAINS_NOTHING)
		return "what explains nothing explains";
	if (c->explains == EXPLAINS_SUBJECT && e->layer <= LAYER_ENDPOINT &&
	    !share_subject(why->subject, f->subject))
		return "one endpoint explains another";
	return NULL;
}

static enum severity worst_of(const struct report *r, bool roots)
{
	enum severity worst = SEVERITY_NOTICE;

	for (size_t i = 0; i < r->n_findings; i++)
		if ((!roots || r->findings[i].because < 0) &&
		    cause_of(r->findings[i].code)->severity > worst)
			worst = cause_of(r->findings[i].code)->severity;
	return worst;
}

/* What is wrong with a report, or NULL. */
static const char *wrong(const struct report *r)
{
	static const enum state states[] = {STATE_HEALTHY, STATE_DEGRADED, STATE_BROKEN};
	const struct finding *f = r->findings;

	for (size_t i = 0; i < r->n_findings; i++) {
		const char *why = f[i].because < 0 ? NULL : wrong_reason(&f[i], &f[f[i].because]);
		size_t at = i, steps = 0;

		if (why)
			return why;
		for (; f[at].because >= 0 && steps <= r->n_findings; steps++)
			at = (size_t) f[at].because;
		if (steps > r->n_findings)
			return "because ends at no root";
		if (i > 0 && f[i].because < 0 && f[i - 1].because >= 0)
			return "a consequence comes before a root";
		if (i > 0 && (f[i].because < 0) == (f[i - 1].because < 0) &&
		    cause_of(f[i].code)->severity > cause_of(f[i - 1].code)->severity)
			return "the lesser comes before the worse";
		for (size_t j = 0; j < i; j++)
			if (f[j].code == f[i].code &&
			    (f[j].because < 0 ? CODE_NONE : f[f[j].because].code) ==
			            (f[i].because < 0 ? CODE_NONE : f[f[i].because].code))
				return "two findings of one code and cause";
	}
	if (r->verdict.state != states[worst_of(r, false)])
		return "the state does not follow the worst finding";
	if ((r->verdict.root < 0) != (worst_of(r, true) == SEVERITY_NOTICE))
		return "no root, or one of a notice";
	if (r->verdict.root >= 0 &&
	    (f[r->verdict.root].because >= 0 ||
	     cause_of(f[r->verdict.root].code)->severity != worst_of(r, true)))
		return "the verdict does not name the worst root";
	return NULL;
}

/* ---- who explains whom ---- */

/* Each fatal cause that other fatal causes explain, and these, about one endpoint where they name
 * one. A change of the tables that shows here is a decision: read CONTRACT.md section 6 first. */
static const struct {
	const char *effect, *causes;
} told[] = {
	{"DefaultRouteMissing", "PrimaryInterfaceDown PrimaryAddressMissing"},
	{"MetadataRouteBlocked", "PrimaryInterfaceDown PrimaryAddressMissing"},
	{"ImdsUnreachable", "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing "
                            "MetadataRouteBlocked FirewallRejects"},
	{"ImdsTokenTimeout", "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing "
                             "MetadataRouteBlocked FirewallRejects"},
	{"InstanceProfileMissing", "ImdsMalformed"},
	{"InstanceProfileInvalid", "ImdsMalformed"},
	{"CredentialsMissing",
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing "
         "MetadataRouteBlocked FirewallRejects ImdsUnreachable ImdsTokenTimeout "
         "ImdsDisabled ImdsTokenRejected ImdsMalformed"},
	{"CredentialsExpired",
         "ClockSkewed ImdsUnreachable ImdsTokenTimeout ImdsDisabled ImdsTokenRejected "
         "ImdsMalformed"},
	{"CredentialsRejected",
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing "
         "MetadataRouteBlocked FirewallRejects ImdsUnreachable ImdsTokenTimeout "
         "ImdsDisabled ImdsTokenRejected ImdsMalformed"},
	{"RoleReplaced", "ImdsMalformed"},
	{"ResolverMissing",
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing FirewallRejects"},
	{"ResolverUnreachable",
         "LoopbackDown PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing "
         "FirewallRejects"},
	{"ResolverFailing",
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing FirewallRejects"},
	{"ResolverStubDead",
         "MemoryStarved LoopbackDown PrimaryInterfaceDown PrimaryAddressMissing "
         "DefaultRouteMissing FirewallRejects"},
	{"EndpointTimeout",
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing FirewallRejects "
         "ResolverMissing ResolverUnreachable ResolverFailing ResolverStubDead "
         "NameNotFound"},
	{"EndpointRefused",
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing FirewallRejects "
         "ResolverMissing ResolverUnreachable ResolverFailing ResolverStubDead "
         "NameNotFound"},
	{"EndpointUntrusted", "ClockSkewed"},
	{"ClusterCaInvalid",
         "MemoryStarved DiskFull InodesExhausted FilesystemReadOnly DiskStalled "
         "DataVolumeMissing PidsExhausted FileHandlesExhausted ClockSkewed "
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing "
         "MetadataRouteBlocked FirewallRejects ImdsUnreachable ImdsTokenTimeout "
         "ImdsDisabled ImdsTokenRejected ImdsMalformed InstanceProfileMissing "
         "InstanceProfileInvalid CredentialsMissing CredentialsExpired "
         "CredentialsRejected RoleReplaced ResolverMissing ResolverUnreachable "
         "ResolverFailing ResolverStubDead NameNotFound EndpointTimeout EndpointRefused "
         "EndpointUntrusted ProxyMisconfigured"},
	{"RuntimeDown", "MemoryStarved DiskFull InodesExhausted FilesystemReadOnly DiskStalled "
                        "DataVolumeMissing PidsExhausted FileHandlesExhausted LoopbackDown "
                        "UserDataUnusable BootstrapThrottled ClusterCaInvalid"},
	{"SandboxImageMissing",
         "MemoryStarved DiskFull InodesExhausted FilesystemReadOnly DiskStalled "
         "DataVolumeMissing PidsExhausted FileHandlesExhausted ClockSkewed "
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing "
         "MetadataRouteBlocked FirewallRejects ImdsUnreachable ImdsTokenTimeout "
         "ImdsDisabled ImdsTokenRejected ImdsMalformed InstanceProfileMissing "
         "InstanceProfileInvalid CredentialsMissing CredentialsExpired "
         "CredentialsRejected RoleReplaced ResolverMissing ResolverUnreachable "
         "ResolverFailing ResolverStubDead ProxyMisconfigured"},
	{"ApiServerUnresolvable",
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing FirewallRejects "
         "ResolverMissing ResolverUnreachable ResolverFailing ResolverStubDead"},
	{"ApiServerTimeout",
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing FirewallRejects "
         "ResolverMissing ResolverUnreachable ResolverFailing ResolverStubDead"},
	{"ApiServerRefused",
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing FirewallRejects "
         "ResolverMissing ResolverUnreachable ResolverFailing ResolverStubDead"},
	{"ApiServerUntrusted", "ClockSkewed UserDataUnusable BootstrapThrottled ClusterCaInvalid"},
	{"NodeRoleNotMapped", "RoleReplaced ClusterCaInvalid"},
	{"KubeletConfigInvalid",
         "MemoryStarved DiskFull InodesExhausted FilesystemReadOnly DiskStalled "
         "DataVolumeMissing PidsExhausted FileHandlesExhausted UserDataUnusable "
         "BootstrapThrottled ClusterCaInvalid"},
	{"CniBinaryMissing", "DiskFull CniDirMismatch"},
	{"AwsNodeProbeKilled",
         "MemoryStarved DiskFull InodesExhausted FilesystemReadOnly DiskStalled "
         "DataVolumeMissing PidsExhausted FileHandlesExhausted LoopbackDown ClockSkewed "
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing "
         "MetadataRouteBlocked FirewallRejects ImdsUnreachable ImdsTokenTimeout "
         "ImdsDisabled ImdsTokenRejected ImdsMalformed InstanceProfileMissing "
         "InstanceProfileInvalid CredentialsMissing CredentialsExpired "
         "CredentialsRejected RoleReplaced ResolverMissing ResolverUnreachable "
         "ResolverFailing ResolverStubDead NameNotFound EndpointTimeout EndpointRefused "
         "EndpointUntrusted ProxyMisconfigured UserDataUnusable BootstrapThrottled "
         "ClusterCaInvalid RuntimeDown RuntimePluginMissing SandboxImageMissing "
         "CniDirMismatch ApiServerUnresolvable ApiServerTimeout ApiServerRefused "
         "ApiServerUntrusted ApiServerFailing KubeletConnectionDead NodeRoleNotMapped "
         "NodeNameMismatch NodeNameEmpty KubeletConfigInvalid"},
	{"IpamdUnauthorized", "RoleReplaced"},
	{"Ipv6AddressMissing",
         "PrimaryInterfaceDown PrimaryAddressMissing DefaultRouteMissing FirewallRejects"},
};

static void append_code(char *list, size_t size, enum code code)
{
	(void) text_append(list, size, "%s%s", list[0] ? " " : "", cause_of(code)->name);
}

static const char *told_of(enum code effect)
{
	for (size_t i = 0; i < ELEMENTS(told); i++)
		if (strcmp(told[i].effect, cause_of(effect)->name) == 0)
			return told[i].causes;
	return "";
}

static bool is_fatal_cause(int i)
{
	const struct cause *c = cause_of((enum code) i);

	return c->severity == SEVERITY_FATAL && c->kind == KIND_CAUSE;
}

#define for_each_fatal_cause(i)                                                                    \
	for (int i = CODE_NONE + 1; i < _CODE_MAX; i++)                                            \
		if (is_fatal_cause(i))

/* Judges what stands in s, forwards and backwards; complains once a test. */
static const char *both_orders(struct facts *s)
{
	const char *bad;
	uint64_t hash;

	judge(s, &whole);
	bad = wrong(&whole);
	hash = said(&whole);
	for (size_t i = 0; i < s->n / 2; i++) {
		const struct fact *f = s->order[i];

		s->order[i] = s->order[s->n - 1 - i];
		s->order[s->n - 1 - i] = f;
	}
	judge(s, &other);
	if (!bad && (hash == 0 || said(&other) != hash))
		return "the order of the facts shows";
	return bad;
}

/* Two causes as the contract has it: one explains the other, or two roots. */
static const char *two(const struct report *r, enum code a, enum code b)
{
	bool explained = because(r, a) == b || because(r, b) == a;
	const struct finding *root = &r->findings[r->verdict.root];

	if (because(r, a) == b && because(r, b) == a)
		return "each explains the other";
	if (explained && root->code != (because(r, a) == b ? b : a))
		return "the verdict names the consequence";
	if (!explained && (because(r, a) != CODE_NONE || because(r, b) != CODE_NONE))
		return "neither root nor explained";
	if (!explained && root->code != (a < b ? a : b))
		return "of two roots alike the verdict names the later";
	return NULL;
}

static const char *with_third(enum code a, enum code b, const char *sa, const char *sb,
                              enum code third)
{
	enum code of_a = because(&whole, a), of_b = because(&whole, b);
	struct facts s = {0};
	const char *bad;

	if (a == third || b == third)
		return NULL;
	add(&s, a, sa);
	add(&s, b, sb);
	add(&s, third, "");
	bad = both_orders(&s);
	if (bad)
		return bad;
	if (because(&whole, a) != of_a || because(&whole, b) != of_b)
		return "a symptom changes what explains a cause";
	if (third == CODE_NodeNotReady && because(&whole, third) == CODE_NONE)
		return "nothing explains NodeNotReady";
	return NULL;
}

static const char *pair(enum code a, enum code b, const char *sa, const char *sb)
{
	struct facts s = {0};
	const char *bad;

	add(&s, a, sa);
	add(&s, b, sb);
	bad = both_orders(&s);
	if (!bad)
		bad = two(&whole, a, b);
	if (!bad)
		bad = with_third(a, b, sa, sb, CODE_NodeNotReady);
	if (bad)
		return bad;
	judge(&s, &whole);
	return with_third(a, b, sa, sb, CODE_CniConfigMissing);
}

static void complain(enum code a, enum code b, const char *what)
{
	printf("# %s and %s: %s\n", cause_of(a)->name, cause_of(b)->name, what);
}

static void test_fatal_causes(void)
{
	for_each_fatal_cause(e)
	{
		enum code effect = (enum code) e;
		char causes[4000] = "";
		int bad = 0;

		for_each_fatal_cause(c)
		{
			enum code cause = (enum code) c;
			const char *what = NULL;
			struct facts s = {0};

			if (c == e)
				continue;
			what = pair(effect, cause, about(effect, "ec2"), about(cause, "ec2"));
			if (!what && (about(effect, "ec2")[0] || about(cause, "ec2")[0]))
				what = pair(effect, cause, about(effect, "ec2"),
				            about(cause, "sts"));
			if (what) {
				complain(effect, cause, what);
				bad++;
			}
			add(&s, effect, about(effect, "ec2"));
			add(&s, cause, about(cause, "ec2"));
			judge(&s, &whole);
			if (because(&whole, effect) == cause)
				append_code(causes, sizeof(causes), cause);
		}
		if (strcmp(causes, told_of(effect)) != 0) {
			printf("# {\"%s\", \"%s\"},\n", cause_of(effect)->name, causes);
			bad++;
		}
		tap_ok(!bad, cause_of(effect)->name, __FILE__, __LINE__);
	}
}

/* ---- everything, two at a time ---- */

static bool edge[_CODE_MAX][_CODE_MAX]; /* [effect][cause] */

static bool reaches_itself(int at, int *state)
{
	if (state[at])
		return state[at] == 1;
	state[at] = 1;
	for (int c = CODE_NONE + 1; c < _CODE_MAX; c++)
		if (edge[at][c] && reaches_itself(c, state))
			return true;
	state[at] = 2;
	return false;
}

static bool has_cycle(void)
{
	int state[_CODE_MAX] = {0};

	for (int i = CODE_NONE + 1; i < _CODE_MAX; i++)
		if (reaches_itself(i, state))
			return true;
	return false;
}

static void test_all_codes(void)
{
	int bad = 0, edges = 0;

	for (int a = CODE_NONE + 1; a < _CODE_MAX; a++)
		for (int b = CODE_NONE + 1; b < _CODE_MAX; b++) {
			enum code ca = (enum code) a, cb = (enum code) b;
			struct facts s = {0};
			const char *what;

			if (a == b)
				continue;
			add(&s, ca, about(ca, "ec2"));
			add(&s, cb, about(cb, "ec2"));
			judge(&s, &whole);
			what = wrong(&whole);
			if (what) {
				complain(ca, cb, what);
				bad++;
			}
			edge[a][b] = because(&whole, ca) == cb;
			edges += edge[a][b];
		}
	ok(bad == 0);
	printf("# %d of %d pairs explain\n", edges, (_CODE_MAX - 1) * (_CODE_MAX - 2) / 2);
	ok(edges > 500);
	ok(!has_cycle());
	/* so that whatever is found at the same time, following because ends at a root */
	edge[CODE_PrimaryInterfaceDown][CODE_CniConfigMissing] = true;
	ok(has_cycle());
	edge[CODE_PrimaryInterfaceDown][CODE_CniConfigMissing] = false;
}

/* A service does not hide behind another one that has a cause. */
static void test_one_finding_per_cause(void)
{
	struct facts s = {0};

	add(&s, CODE_EndpointTimeout, "sts");
	add(&s, CODE_NameNotFound, "ec2");
	add(&s, CODE_EndpointTimeout, "ec2");
	ok(both_orders(&s) == NULL);
	ok(whole.n_findings == 3);
	ok(whole.findings[0].code == CODE_NameNotFound && whole.findings[0].because < 0);
	ok(whole.findings[1].code == CODE_EndpointTimeout && whole.findings[1].because < 0 &&
	   strcmp(whole.findings[1].subject, "sts") == 0);
	ok(whole.findings[2].code == CODE_EndpointTimeout && whole.findings[2].because == 0 &&
	   strcmp(whole.findings[2].subject, "ec2") == 0);
	s = (struct facts){0};
	add(&s, CODE_EndpointTimeout, "sts");
	add(&s, CODE_EndpointTimeout, "ec2");
	ok(both_orders(&s) == NULL && whole.n_findings == 1);
	ok(strcmp(whole.findings[0].subject, "all") == 0);
}

/* ---- the checker, checked ---- */

/* Says that finding e is because of finding c, whatever the truth, and what is said to it. */
static const char *plant(enum code c, const char *sc, enum code e, const char *se)
{
	struct facts s = {0};

	add(&s, c, sc);
	add(&s, e, se);
	judge(&s, &whole);
	for (size_t i = 0; i < whole.n_findings; i++)
		whole.findings[i].because = -1;
	for (size_t i = 0; i < whole.n_findings; i++)
		if (whole.findings[i].code == e)
			whole.findings[i].because =
				whole.findings[1 - i].code == c ? (int) (1 - i) : -1;
	/* in the order of roots first */
	if (whole.findings[0].because >= 0) {
		struct finding f = whole.findings[0];

		whole.findings[0] = whole.findings[1];
		whole.findings[1] = f;
		whole.findings[1].because = 0;
	}
	whole.verdict.root = 0;
	return wrong(&whole);
}

#define SEEN(expr, text) ok((expr) && strcmp((expr), text) == 0)

static void test_checker(void)
{
	struct facts s = {0};

	ok(plant(CODE_DefaultRouteMissing, "", CODE_ImdsUnreachable, "") == NULL);
	SEEN(plant(CODE_CniConfigInvalid, "", CODE_EndpointTimeout, "ec2"),
	     "a later layer explains an earlier one");
	SEEN(plant(CODE_ImdsDisabled, "", CODE_CniConfigInvalid, ""),
	     "what stands alone is explained");
	SEEN(plant(CODE_NameNotFound, "sts", CODE_EndpointTimeout, "ec2"),
	     "one endpoint explains another");
	SEEN(plant(CODE_EndpointTimeout, "sts", CODE_NodeUnauthorized, ""),
	     "an endpoint explains a 401");
	SEEN(plant(CODE_InstanceProfileMissing, "", CODE_NodeUnauthorized, ""),
	     "credentials that are absent explain a 401");
	SEEN(plant(CODE_ImdsDisabled, "", CODE_ResolverUnreachable, ""),
	     "a layer that is not needed explains");
	SEEN(plant(CODE_ImdsDisabled, "", CODE_ImdsTokenTimeout, ""),
	     "a cause has a cause in its own layer");
	SEEN(plant(CODE_ImdsHopLimitLow, "", CODE_CniConfigMissing, ""),
	     "what explains nothing explains");
	SEEN(plant(CODE_CniChanged, "", CODE_CniConfigMissing, ""), "a notice explains");
	SEEN(plant(CODE_NodeNotReady, "", CODE_CniConfigMissing, ""), "NodeNotReady explains");

	add(&s, CODE_ImdsDisabled, "");
	add(&s, CODE_CniConfigMissing, "");
	add(&s, CODE_ImdsHopLimitLow, "");
	judge(&s, &whole);
	ok(wrong(&whole) == NULL && whole.n_findings == 3);
	other = whole;
	other.findings[0].because = 2; /* CniConfigMissing, whose because it is */
	ok(wrong(&other) != NULL);
	other = whole;
	other.findings[2].because = 2;
	SEEN(wrong(&other), "because ends at no root");
	other = whole;
	other.verdict.root = 1;
	SEEN(wrong(&other), "the verdict does not name the worst root");
	other = whole;
	other.verdict.state = STATE_DEGRADED;
	SEEN(wrong(&other), "the state does not follow the worst finding");
	other = whole;
	other.findings[0] = whole.findings[1];
	other.findings[1] = whole.findings[0];
	SEEN(wrong(&other), "the lesser comes before the worse");
	other = whole;
	other.findings[1] = whole.findings[0];
	SEEN(wrong(&other), "two findings of one code and cause");
	other = whole;
	ok(two(&other, CODE_ImdsDisabled, CODE_ImdsHopLimitLow) == NULL);
	other.verdict.root = 1;
	ok(two(&other, CODE_ImdsDisabled, CODE_ImdsHopLimitLow) != NULL);
	ok(said(&whole) != said(&other) && said(&whole) == said(&whole));
}

int main(void)
{
	test_fatal_causes();
	test_all_codes();
	test_one_finding_per_cause();
	test_checker();
	return done();
}
