/* SPDX-License-Identifier: Apache-2.0 */
#define run_subnet_watch fake_subnet_watch
#define probe_subnet     tested_subnet

#include "../fakejoin.h"

#include "../../daemon/run-credentials.c"

#include "../../probes/subnet.c"

#include "../tap.h"

#define ITEM(id, cidr, free)                                                                       \
	"<item><subnetId>" id "</subnetId><cidrBlock>" cidr "</cidrBlock>"                         \
	"<availableIpAddressCount>" free "</availableIpAddressCount></item>"
#define SUBNET_SET(items)                                                                          \
	"<DescribeSubnetsResponse><subnetSet>" items "</subnetSet></DescribeSubnetsResponse>"
#define ERROR(code)                                                                                \
	"<Response><Errors><Error><Code>" code "</Code><Message>no</Message></Error></Errors>"     \
	"<RequestID>1</RequestID></Response>"
#define TYPE_SET(type)                                                                             \
	"<DescribeInstanceTypesResponse><instanceTypeSet><item><instanceType>" type                \
	"</instanceType><hypervisor>nitro</hypervisor><networkInfo><maximumNetworkInterfaces>4"    \
	"</maximumNetworkInterfaces><ipv4AddressesPerInterface>15</ipv4AddressesPerInterface>"     \
	"</networkInfo></item></instanceTypeSet></DescribeInstanceTypesResponse>"

static const char set[] =
	"{\"Code\":\"Success\",\"AccessKeyId\":\"ASIAX\",\"SecretAccessKey\":\"sec/ret\",\"Token\":"
	"\"tok/en\",\"Expiration\":\"2026-12-01T02:28:59Z\"}";
static const char full[] = SUBNET_SET(ITEM("subnet-0a", "10.0.1.0/24", "0"));
static const char roomy[] = SUBNET_SET(ITEM("subnet-0a", "10.0.0.0/20", "3000"));

static struct subnet_watch watch;

const struct subnet_watch *fake_subnet_watch(const struct run *r)
{
	return &watch;
}

static void answer(int status, const char *body)
{
	memset(world.answers, 0, sizeof(world.answers));
	world.answers[0] = (struct join_answer){"/node-role", 200, set};
	world.answers[1] = (struct join_answer){"/", status, body};
}

static void add_eni(struct run *r, const char *subnet, enum managed_by by)
{
	struct eni *e = &r->node.network.enis[r->node.network.n_enis++];

	(void) text_format(e->subnet_id, sizeof(e->subnet_id), "%s", subnet);
	(void) address_parse(&e->ipv4, "10.0.1.5");
	e->managed_by = by;
}

static struct run *make(void)
{
	struct run *r = calloc(1, sizeof(*r));
	struct endpoint *e = &r->node.endpoints[SERVICE_EC2];

	if (!r)
		abort();
	memset(&world, 0, sizeof(world));
	watch = (struct subnet_watch){.low_percent = 20, .low_addresses = 256};
	r->now = 10000 * USEC_PER_SEC;
	r->node.metadata_answers = true;
	(void) text_format(r->node.role, sizeof(r->node.role), "node-role");
	(void) text_format(r->node.region, sizeof(r->node.region), "us-west-2");
	(void) text_format(r->node.instance_type, sizeof(r->node.instance_type), "m5.large");
	(void) text_format(e->host, sizeof(e->host), "ec2.us-west-2.amazonaws.com");
	(void) address_parse(&e->addresses[0], "10.0.10.11");
	e->n = 1;
	r->node.network.known = true;
	add_eni(r, "subnet-0a", MANAGED_PRIMARY);
	world.asked = CODE_SubnetExhausted;
	answer(200, full);
	return r;
}

static void unmake(struct run *r)
{
	fake_free(r);
	free(r);
}

static bool is(struct run *r, enum outcome outcome, enum code code)
{
	bool good = join_run(r, &tested_subnet) == 0 &&
	            join_is(r, &tested_subnet, "free", outcome, code);

	for (size_t i = 0; i < r->n_seen; i++)
		if (memmem(&r->seen[i], sizeof(r->seen[i]), "sec/ret", 7) ||
		    memmem(&r->seen[i], sizeof(r->seen[i]), "tok/en", 6)) {
			printf("# a secret is shown\n");
			good = false;
		}
	return good;
}

static bool details(const struct run *r, const char *text)
{
	const struct observation *o = fake_find(r, "free", NULL);

	if (!o || !strstr(o->detail, text)) {
		printf("# the detail is %s\n", o ? o->detail : "absent");
		return false;
	}
	return true;
}

static void later(struct run *r, int64_t s)
{
	r->now += (usec_t) s * USEC_PER_SEC;
}

/* Nobody asks: nothing is called, nothing is read. What was learnt is said again for a while. */
static void test_asked(void)
{
	struct run *r = make();

	world.asked = CODE_NONE;
	ok(is(r, OUTCOME_SKIPPED, CODE_NONE) && world.http_calls + world.imds_calls == 0);
	world.asked = CODE_SubnetExhausted;
	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetExhausted));
	ok(world.imds_calls == 1 && world.http_calls == 1);
	ok(strstr(world.sent, "X-Amz-Security-Token: tok/en\n") &&
	   strstr(world.sent, "Action=DescribeSubnets&SubnetId.1=subnet-0a&Version=2016-11-15"));
	ok(details(r, "0 of 251 addresses free"));
	world.asked = CODE_NONE;
	later(r, 2); /* the second look that confirms it */
	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetExhausted) && world.http_calls == 0);
	ok(fake_find(r, "free", "subnet-0a")->at == r->now - 2 * USEC_PER_SEC);
	later(r, 21 * 60);
	ok(is(r, OUTCOME_SKIPPED, CODE_NONE) && world.http_calls == 0);
	/* it has addresses again */
	world.asked = CODE_SubnetExhausted;
	answer(200, roomy);
	ok(is(r, OUTCOME_OK, CODE_NONE) && details(r, "3000 of 4091"));
	unmake(r);
}

static void test_unable(void)
{
	struct run *r = make();

	answer(403, ERROR("UnauthorizedOperation"));
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && details(r, "the node role may not"));
	world.asked = CODE_NONE;
	later(r, 2);
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 0);
	world.asked = CODE_SubnetExhausted;
	answer(401, ERROR("AuthFailure"));
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && details(r, "EC2 says AuthFailure"));
	answer(500, "<html>");
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && details(r, "HTTP 500"));
	answer(0, "");
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && details(r, "does not answer"));
	answer(200, "<html>sign in</html>");
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE));
	answer(200, SUBNET_SET(""));
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && details(r, "names no subnet"));
	answer(200, full);
	world.answers[0].body = "{\"Code\":\"Failed\"}";
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 0);
	answer(200, full);
	r->node.endpoints[SERVICE_EC2].n = 0;
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.imds_calls == 0);
	r->node.endpoints[SERVICE_EC2].n = 1;
	r->node.role[0] = 0;
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.imds_calls == 0);
	unmake(r);
}

/* What a finding asked for is asked for again soon when metadata had no credentials to spare, and
 * forgotten when that lasts. */
static void test_asked_again(void)
{
	struct run *r = make();

	world.throttled = true;
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 0);
	world.asked = CODE_NONE;
	later(r, 60);
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.imds_calls == 1);
	world.throttled = false;
	later(r, 60);
	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetExhausted) && world.http_calls == 1);
	later(r, 60);
	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetExhausted) && world.http_calls == 0);
	world.throttled = true;
	world.asked = CODE_SubnetExhausted;
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE));
	world.throttled = false;
	world.asked = CODE_NONE;
	later(r, 180);
	ok(join_run(r, &tested_subnet) == 0 && world.imds_calls + world.http_calls == 0);
	unmake(r);
}

/* The names may resolve no more by the time the credentials are there. */
static void test_address_lost(void)
{
	struct run *r = make();
	struct credentials c = {0};

	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetExhausted));
	r->ended = false;
	r->n_seen = 0;
	r->node.endpoints[SERVICE_EC2].n = 0;
	on_credentials(r, CREDENTIALS_HERE, &c);
	ok(r->ended && details(r, "ec2 has no address"));
	unmake(r);
}

static void test_throttled(void)
{
	struct run *r = make();

	answer(503, ERROR("RequestLimitExceeded"));
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 1);
	/* 15 minutes, then 30, 60, 120, and no more than that */
	for (int64_t wait = 15 * 60, i = 0; i < 6; i++) {
		later(r, wait - 1);
		ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 0);
		later(r, 1);
		ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 1);
		wait = wait < 120 * 60 ? 2 * wait : wait;
	}
	later(r, 120 * 60);
	answer(200, full);
	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetExhausted));
	answer(503, ERROR("RequestLimitExceeded"));
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE));
	later(r, 15 * 60);
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 1); /* from the beginning */
	unmake(r);
}

static void test_budget(void)
{
	struct run *r = make();
	unsigned calls_made = 0;

	for (int i = 0; i < 2 * CALLS_A_DAY; i++, later(r, 60)) {
		ok(join_run(r, &tested_subnet) == 0);
		calls_made += world.http_calls;
	}
	ok(calls_made == CALLS_A_DAY && details(r, "budget"));
	later(r, 86400);
	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetExhausted) && world.http_calls == 1);
	unmake(r);
}

static void test_watch(void)
{
	struct run *r = make();

	world.asked = CODE_NONE;
	watch.on = true;
	answer(200, roomy);
	ok(is(r, OUTCOME_OK, CODE_NONE) && world.http_calls == 1);
	later(r, 14 * 60 + 59);
	ok(is(r, OUTCOME_OK, CODE_NONE) && world.http_calls == 0);
	later(r, 1);
	answer(200, SUBNET_SET(ITEM("subnet-0a", "10.0.0.0/20", "255")));
	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetLow)); /* under 256 */
	later(r, 15 * 60);
	answer(200, SUBNET_SET(ITEM("subnet-0a", "10.0.0.0/20", "818")));
	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetLow)); /* under 20 % of 4091 */
	/* metadata's budget is spent: again in a minute, not in a quarter of an hour */
	later(r, 15 * 60);
	world.throttled = true;
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 0);
	world.throttled = false;
	later(r, 60);
	answer(200, SUBNET_SET(ITEM("subnet-0a", "10.0.0.0/20", "819")));
	ok(is(r, OUTCOME_OK, CODE_NONE) && world.http_calls == 1);
	watch.low_percent = 50;
	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetLow));
	r->once = true; /* `check` does not watch */
	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetLow) && world.http_calls == 0);
	r->once = false;
	/* where nobody watches, what is low is told to nobody */
	watch.on = false;
	world.asked = CODE_SubnetFragmented;
	answer(200, SUBNET_SET(ITEM("subnet-0a", "10.0.1.0/24", "3")));
	ok(is(r, OUTCOME_OK, CODE_NONE));
	r->node.cni.known = r->node.cni.prefix = true; /* three are no prefix */
	ok(is(r, OUTCOME_EXHAUSTED, CODE_SubnetExhausted));
	unmake(r);
}

/* Whose addresses pods get, and which subnets that are. */
static void test_which(void)
{
	struct run *r = make();

	add_eni(r, "subnet-0b", MANAGED_CNI);
	add_eni(r, "subnet-0b", MANAGED_CNI);
	add_eni(r, "subnet-0c&Action=x", MANAGED_CNI);
	add_eni(r, "subnet-0d", MANAGED_UNKNOWN);
	r->node.network.enis[4].ipv4 = (struct address){0}; /* EFA-only */
	ok(join_run(r, &tested_subnet) == 0 &&
	   strstr(world.sent, "&SubnetId.1=subnet-0a&SubnetId.2=subnet-0b&Version"));
	r->node.cni.known = r->node.cni.custom = true;
	ok(join_run(r, &tested_subnet) == 0 && strstr(world.sent, "&SubnetId.1=subnet-0b&Version"));
	r->node.network.n_enis = 1;
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 0);
	r->node.cni.custom = false;
	r->node.cni.ipv6 = true;
	ok(is(r, OUTCOME_SKIPPED, CODE_NONE) && world.http_calls == 0);
	r->node.cni.ipv6 = false;
	answer(200, SUBNET_SET("<item><subnetId>subnet-0a</subnetId><availableIpAddressCount>0"
	                       "</availableIpAddressCount></item>"));
	ok(is(r, OUTCOME_SKIPPED, CODE_NONE)); /* IPv6 only */
	unmake(r);
}

static void test_type(void)
{
	struct run *r = make();

	world.asked = CODE_LimitsUnknown;
	answer(200, TYPE_SET("m5.xlarge")); /* of another */
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && !r->node.asked_limits.instance_type[0]);
	ok(strstr(world.sent, "Action=DescribeInstanceTypes&InstanceType.1=m5.large&Version="));
	answer(403, ERROR("UnauthorizedOperation"));
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE));
	answer(200, TYPE_SET("m5.large"));
	ok(is(r, OUTCOME_SKIPPED, CODE_NONE) && r->node.asked_limits.max_enis == 4 &&
	   r->node.asked_limits.ipv4_per_eni == 15);
	world.asked = CODE_InstanceTypeUnknown; /* once is enough */
	ok(join_run(r, &tested_subnet) == 0 && world.http_calls == 0);
	memset(&r->node.asked_limits, 0, sizeof(r->node.asked_limits));
	(void) text_format(r->node.instance_type, sizeof(r->node.instance_type), "m5&Action=x");
	ok(is(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 0);
	unmake(r);
}

int main(void)
{
	test_asked();
	test_unable();
	test_asked_again();
	test_address_lost();
	test_throttled();
	test_budget();
	test_watch();
	test_which();
	test_type();
	return done();
}
