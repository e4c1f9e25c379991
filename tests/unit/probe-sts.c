/* SPDX-License-Identifier: Apache-2.0 */
#include "../fakejoin.h"

#include "../../daemon/run-credentials.c"

#include "../../probes/sts.c"

#include "../tap.h"

#define ERROR(code, message)                                                                       \
	"<ErrorResponse><Error><Type>Sender</Type><Code>" code "</Code><Message>" message          \
	"</Message></Error></ErrorResponse>"

static const char set[] =
	"{\"Code\":\"Success\",\"AccessKeyId\":\"ASIAX\",\"SecretAccessKey\":\"sec/ret\",\"Token\":"
	"\"tok/en\",\"Expiration\":\"2026-12-01T02:28:59Z\"}";
static const char caller[] =
	"<GetCallerIdentityResponse><GetCallerIdentityResult><Arn>arn:aws:sts::111122223333:"
	"assumed-role/node-role/i-0a1b</Arn><UserId>A:i</UserId><Account>111122223333</Account>"
	"</GetCallerIdentityResult></GetCallerIdentityResponse>";

static void answer(int status, const char *body)
{
	memset(world.answers, 0, sizeof(world.answers));
	world.answers[0] = (struct join_answer){"/security-credentials/", 200, "node-role"};
	world.answers[1] = (struct join_answer){"/node-role", 200, set};
	world.answers[2] = (struct join_answer){"/", status, body};
}

static bool says(struct run *r, enum outcome outcome, enum code code)
{
	bool good = join_run(r, &tested_sts) == 0 && join_is(r, &tested_sts, "", outcome, code);

	for (size_t i = 0; i < r->n_seen; i++)
		if (memmem(&r->seen[i], sizeof(r->seen[i]), "sec/ret", 7) ||
		    memmem(&r->seen[i], sizeof(r->seen[i]), "tok/en", 6)) {
			printf("# a secret is shown\n");
			good = false;
		}
	return good;
}

static void vouch(struct run *r, int64_t offset_s)
{
	r->node.witnesses[WITNESS_METADATA] = (struct witness_seen){offset_s, r->now};
	r->node.witnesses[WITNESS_ENDPOINT] = (struct witness_seen){offset_s, r->now};
}

static void test_accepted(struct run *r)
{
	answer(200, caller);
	r->once = true;
	ok(says(r, OUTCOME_OK, CODE_NONE));
	ok(strcmp(fake_find(r, "", NULL)->detail,
	          "GetCallerIdentity: account 111122223333, role node-role") == 0);
	ok(fake_find(r, "policy", "sts")->outcome == OUTCOME_OK);
	ok(strcmp(r->node.account_id, "111122223333") == 0 && r->node.sts_accepts == YES &&
	   r->node.sts_at == r->now);
	ok(strstr(world.sent, "X-Amz-Security-Token: tok/en\n") && strstr(world.sent, query));
	r->node.role[0] = 0;
	ok(says(r, OUTCOME_OK, CODE_NONE) && world.imds_calls == 2); /* finds the role itself */
	strcpy(r->node.role, "node-role");
	ok(says(r, OUTCOME_OK, CODE_NONE) && world.imds_calls == 1);
}

static void test_refused(struct run *r)
{
	static const char *const codes[] = {
		ERROR("InvalidClientTokenId",
	              "The security token included in the request is invalid."),
		ERROR("ExpiredToken", "The security token included in the request is expired"),
		ERROR("SignatureDoesNotMatch",
	              "The Canonical String should have been 'x-amz-security-token:tok/en'"),
	};

	for (size_t i = 0; i < ELEMENTS(codes); i++) {
		answer(403, codes[i]);
		vouch(r, 1);
		ok(says(r, OUTCOME_DENIED, CODE_CredentialsRejected));
		ok(r->node.sts_accepts == NO);
		vouch(r, -1022);
		ok(says(r, OUTCOME_DENIED, CODE_NONE));
		ok(r->node.sts_accepts == CANNOT_TELL);
		memset(r->node.witnesses, 0, sizeof(r->node.witnesses));
		ok(says(r, OUTCOME_DENIED, CODE_NONE)); /* nobody vouches for the clock */
	}
	vouch(r, 1);
	answer(403,
	       ERROR("SignatureDoesNotMatch",
	             "Signature expired: 20261130T211659Z is now earlier than 20261130T213401Z"));
	ok(says(r, OUTCOME_DENIED, CODE_NONE)); /* the service itself says that it is the clock */
	answer(403,
	       ERROR("AccessDenied",
	             "User: arn:aws:sts::1:assumed-role/node-role/i-1 is not authorized to "
	             "perform: sts:GetCallerIdentity because no VPC endpoint policy allows it"));
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	ok(join_is(r, &tested_sts, "policy", OUTCOME_DENIED, CODE_EndpointDenied));
	answer(403, ERROR("AccessDenied", "something else"));
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && !fake_find(r, "policy", NULL));
	answer(400, ERROR("Throttling", "Rate exceeded"));
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	answer(503, "<html>busy</html>");
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	answer(200, "<html>sign in</html>");
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	answer(0, "");
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	world.http_outcome = OUTCOME_UNTRUSTED;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	world.http_outcome = OUTCOME_OK;
}

static void test_nothing_to_sign_with(struct run *r)
{
	answer(200, caller);
	world.realtime += 6 * 3600 * USEC_PER_SEC;
	ok(says(r, OUTCOME_SKIPPED, CODE_NONE) && world.http_calls == 0); /* expired */
	world.realtime -= 6 * 3600 * USEC_PER_SEC;
	world.answers[1] = (struct join_answer){"/node-role", 404, ""};
	ok(says(r, OUTCOME_SKIPPED, CODE_NONE) && world.http_calls == 0);
	world.answers[1].status = 0;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 0);
	answer(200, caller);
	world.throttled = true;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && world.http_calls == 0);
	world.throttled = false;
	r->node.metadata_answers = false;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && world.imds_calls == 0);
	r->node.metadata_answers = true;
	r->node.endpoints[SERVICE_STS].n = 0;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && world.imds_calls == 0);
	r->node.endpoints[SERVICE_STS].n = 1;
}

/* The daemon: at most four calls an hour while nothing asks. */
static void test_sparing(struct run *r)
{
	usec_t at;

	r->once = false;
	fake_free(r);
	answer(200, caller);
	ok(says(r, OUTCOME_SKIPPED, CODE_NONE) && world.http_calls == 0); /* not all at once */
	r->now += 300 * USEC_PER_SEC;
	ok(says(r, OUTCOME_OK, CODE_NONE) && world.http_calls == 1);
	at = r->now;
	for (int i = 0; i < 13; i++) {
		r->now += 60 * USEC_PER_SEC;
		ok(says(r, OUTCOME_OK, CODE_NONE) && world.http_calls + world.imds_calls == 0 &&
		   fake_find(r, "", NULL)->at == at && fake_find(r, "policy", "sts"));
	}
	world.asked = CODE_NodeUnauthorized;
	ok(says(r, OUTCOME_OK, CODE_NONE) && world.http_calls == 1);
	world.asked = CODE_NONE;
	r->now += 15 * 60 * USEC_PER_SEC;
	ok(says(r, OUTCOME_OK, CODE_NONE) && world.http_calls == 1);
	vouch(r, 0);
	answer(403, ERROR("ExpiredToken", ""));
	world.asked = CODE_NodeUnauthorized;
	ok(says(r, OUTCOME_DENIED, CODE_CredentialsRejected));
	world.asked = CODE_NONE; /* the look that makes sure */
	ok(says(r, OUTCOME_DENIED, CODE_CredentialsRejected) && world.http_calls == 1);
	fake_free(r);
	answer(200, caller);
	world.asked = CODE_IpamdUnauthorized;
	ok(says(r, OUTCOME_OK, CODE_NONE) && world.http_calls == 1); /* asked at the first look */
	world.asked = CODE_NONE;
}

int main(void)
{
	struct run *r = calloc(1, sizeof(*r));

	if (!r)
		return 1;
	r->now = 21600 * USEC_PER_SEC;
	r->node.metadata_answers = true;
	strcpy(r->node.role, "node-role");
	strcpy(r->node.region, "us-west-2");
	r->node.endpoints[SERVICE_STS] = (struct endpoint){
		.host = "sts.us-west-2.amazonaws.com", .scheme = "https", .port = 443, .n = 1};
	(void) address_parse(&r->node.endpoints[SERVICE_STS].addresses[0], "10.0.9.11");
	world.realtime = UINT64_C(1796073419) * USEC_PER_SEC;
	test_accepted(r);
	test_refused(r);
	test_nothing_to_sign_with(r);
	test_sparing(r);
	fake_free(r);
	free(r);
	return done();
}
