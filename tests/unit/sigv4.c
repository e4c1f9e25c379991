/* SPDX-License-Identifier: Apache-2.0 */
/* Signature, token and the bodies around them. Without arguments: what can be held against
 * published examples. tests/sigv4.t gives arguments and holds what is printed against botocore. */
#include <errno.h>

#include "../tap.h"
#include "aws-query.h"
#include "http.h"
#include "sigv4.h"

static const char set[] =
	"{\n  \"Code\" : \"Success\",\n  \"LastUpdated\" : \"2026-11-30T14:00:00Z\",\n"
	"  \"Type\" : \"AWS-HMAC\",\n  \"AccessKeyId\" : \"ASIAEXAMPLE\",\n"
	"  \"SecretAccessKey\" : \"se\\/cret+x\",\n  \"Token\" : \"to/ken==\",\n"
	"  \"Other\" : {\"a\": [1, \"}\", {}], \"b\": null},\n"
	"  \"Expiration\" : \"2026-11-30T20:30:00Z\"\n}\n";

static int parse(const char *text, struct credentials_said *said, struct credentials *c)
{
	/* of the input's very size, so that a sanitizer sees a byte read past its end */
	size_t len = strlen(text);
	char *exact = malloc(len ? len : 1);
	int r;

	if (!exact)
		return -1;
	memcpy(exact, text, len);
	r = credentials_parse(exact, len, said, c);
	free(exact);
	return r;
}

static void test_credentials(void)
{
	static const char *const bad[] = {
		"",
		"{",
		"[]",
		"<html>",
		"{\"Code\"}",
		"{\"Code\": 7}",
		"{\"Code\": \"Success\"",
		"{\"Code\": \"Success\",}",
		"{\"Code\": \"Success\"} x",
		"{\"Code\": \"Suc",
		"{\"Code\": \"Suc\\",
		"{\"Code\": \"Suc\ncess\"}",
		"{\"Token\": \"a\\r\\nX-Evil: 1\"}",
		"{\"Token\": \"two words\"}",
		"{\"Type\": ,\"Code\": \"Success\"}",
		"{\"Type\": [}",
	};
	struct credentials c = {.role = "node-role"};
	struct credentials_said said;
	char text[8192];

	ok(parse(set, &said, &c) == 0 && said.complete);
	ok(strcmp(said.code, "Success") == 0);
	ok(said.updated == 1796047200 && said.expires == 1796070600 && c.expires == said.expires);
	ok(strcmp(c.key_id, "ASIAEXAMPLE") == 0 && strcmp(c.secret, "se/cret+x") == 0 &&
	   strcmp(c.token, "to/ken==") == 0 && strcmp(c.role, "node-role") == 0);
	ok(parse(set, &said, NULL) == 0 && said.complete);
	ok(parse("{\"Code\":\"AssumeRoleUnauthorizedAccess\",\"Message\":\"it says \\u00e9\"}",
	         &said, &c) == 0);
	ok(!said.complete && strcmp(said.code, "AssumeRoleUnauthorizedAccess") == 0 &&
	   !c.token[0] && said.expires == 0);
	ok(parse("{}", &said, &c) == 0 && !said.code[0]);
	ok(parse("{\"a-key-that-is-longer-than-any-that-is-looked-for\": 1, \"Code\": \"x\"}",
	         &said, &c) == 0 &&
	   strcmp(said.code, "x") == 0);
	ok(parse("{\"Expiration\": \"2026-13-30T20:30:00Z\"}", &said, &c) == 0 &&
	   said.expires == 0);
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		ok(parse(bad[i], &said, &c) < 0);
	(void) snprintf(text, sizeof(text), "{\"Token\": \"%4095d\"}", 7);
	for (char *p = text; (p = strchr(p, ' ')); p++)
		*p = p == text + 9 ? ' ' : 'x';
	ok(parse(text, &said, &c) == 0 && strlen(c.token) == 4095);
	(void) snprintf(text, sizeof(text), "{\"Token\":\"%04096d\"}", 7);
	ok(parse(text, &said, &c) < 0);
	credentials_wipe(&c);
	ok(!c.token[0] && !c.token[100] && !c.role[0]);
}

/* The shape and the bounds; that the signature is right is for tests/sigv4.t to say. */
static void test_presign(void)
{
	struct credentials c = {.key_id = "AKIDEXAMPLE", .secret = "secret", .token = "a/b+c="};
	struct presign p = {.host = "sts.us-west-2.amazonaws.com",
	                    .region = "us-west-2",
	                    .service = "sts",
	                    .query = "Action=GetCallerIdentity&Version=2011-06-15",
	                    .valid_s = 60,
	                    .now = 1796073419};
	char url[PRESIGNED_MAX], again[PRESIGNED_MAX], token[EKS_TOKEN_MAX];

	ok(sigv4_presign(&p, &c, url, sizeof(url)) == 0);
	ok(strstr(url,
	          "https://sts.us-west-2.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-"
	          "15&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20261130%"
	          "2Fus-west-2%2Fsts%2Faws4_request&X-Amz-Date=20261130T211659Z&X-Amz-Expires=60&"
	          "X-Amz-Security-Token=a%2Fb%2Bc%3D&X-Amz-SignedHeaders=host&X-Amz-Signature=") ==
	   url);
	ok(strlen(strstr(url, "Signature=")) == strlen("Signature=") + 64);
	ok(sigv4_presign(&p, &c, again, strlen(url)) == -ENOSPC && again[0] == 0);
	ok(sigv4_presign(&p, &c, again, strlen(url) + 1) == 0 && strcmp(url, again) == 0);
	p.query = "Version=2011-06-15&Action=GetCallerIdentity";
	ok(sigv4_presign(&p, &c, again, sizeof(again)) == -EINVAL);
	p.query = "";
	ok(sigv4_presign(&p, &c, again, sizeof(again)) == 0);
	c.secret[0] = 0;
	ok(sigv4_presign(&p, &c, again, sizeof(again)) == -EINVAL);
	strcpy(c.secret, "secret");
	ok(eks_token("world", p.host, "us-west-2", &c, p.now, token) == 0);
	ok(strncmp(token, "k8s-aws-v1.aHR0cHM6Ly9zdHMu", 27) == 0 && !strpbrk(token, "+/="));
	memset(c.token, '/', sizeof(c.token) - 1); /* three bytes each, once encoded */
	ok(eks_token("world", p.host, "us-west-2", &c, p.now, token) == -ENOSPC);
}

static bool error_is(const char *text, const char *code, const char *says)
{
	struct aws_error e;

	if (aws_error_parse(text, strlen(text), &e) < 0)
		return !code;
	return code && strcmp(e.code, code) == 0 && (!says || aws_error_says(&e, says));
}

static void test_errors(void)
{
	ok(error_is("<?xml version=\"1.0\"?>\n<Response><Errors><Error><Code>UnauthorizedOperation"
	            "</Code><Message>You are not authorized</Message></Error></Errors><RequestID>1"
	            "</RequestID></Response>",
	            "UnauthorizedOperation", "not authorized"));
	ok(error_is(
		"<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\n  <Error>\n  "
		"  <Type>Sender</Type>\n    <Code>InvalidClientTokenId</Code>\n    <Message>The "
		"security token included in the request is invalid.</Message>\n  </Error>\n"
		"</ErrorResponse>\n",
		"InvalidClientTokenId", "is invalid"));
	ok(error_is("<Error><Code>InvalidNetworkInterfaceID.NotFound</Code></Error>",
	            "InvalidNetworkInterfaceID.NotFound", ""));
	ok(error_is("<Error><Code></Code></Error>", NULL, NULL));
	ok(error_is("<Error><Code>a b</Code></Error>", NULL, NULL));
	ok(error_is("<Error><Code>Half", NULL, NULL));
	ok(error_is("<Code>Alone</Code>", NULL, NULL));
	ok(error_is("{\"message\": \"Missing Authentication Token\"}", NULL, NULL));
	ok(error_is("", NULL, NULL));
}

static bool caller_is(const char *arn, const char *account, const char *role)
{
	struct caller_identity c;
	char text[1024];

	(void) snprintf(
		text, sizeof(text),
		"<GetCallerIdentityResponse xmlns=\"x\"><GetCallerIdentityResult><Arn>%s</Arn>"
		"<UserId>AROA:i-1</UserId><Account>%s</Account></GetCallerIdentityResult>"
		"</GetCallerIdentityResponse>",
		arn, account);
	if (caller_identity_parse(text, strlen(text), &c) < 0)
		return !role;
	return role && strcmp(c.role, role) == 0 && strcmp(c.account, account) == 0;
}

static void test_caller(void)
{
	ok(caller_is("arn:aws:sts::111122223333:assumed-role/node-role/i-0a1b", "111122223333",
	             "node-role"));
	ok(caller_is("arn:aws-cn:sts::111122223333:assumed-role/node-role", "111122223333",
	             "node-role"));
	ok(caller_is("arn:aws:iam::111122223333:user/path/somebody", "111122223333", "somebody"));
	ok(caller_is("arn:aws:iam::111122223333:root", "111122223333", "root"));
	ok(caller_is("arn:aws:sts::1:assumed-role//x", "111122223333", NULL));
	ok(caller_is("arn:aws:sts::1:assumed-role/a b/x", "111122223333", NULL));
	ok(caller_is("arn:aws:iam::1:user/x", "1111", NULL));
	ok(caller_is("arn:aws:iam::1:user/x", "11112222333x", NULL));
}

static bool role_is(const char *listing, const char *role)
{
	char got[16];

	if (role_parse(listing, strlen(listing), got, sizeof(got)) < 0)
		return !role;
	return role && strcmp(got, role) == 0;
}

static void test_role(void)
{
	ok(role_is("node-role", "node-role") && role_is("a+b=c,d.e@f\nnext\n", "a+b=c,d.e@f"));
	ok(role_is("", NULL) && role_is("\n", NULL) && role_is("a b", NULL));
	ok(role_is("a/../b", NULL) && role_is("<html>", NULL) && role_is("a?b", NULL));
	ok(role_is("123456789012345", "123456789012345") && role_is("1234567890123456", NULL));
}

/* The first argument says which, the set of keys comes on standard input:
 * url|token HOST REGION NOW CLUSTER, post HOST PORT REGION SERVICE BODY */
static int print(char *argv[], const struct credentials *c)
{
	static char out[EKS_TOKEN_MAX];
	struct presign p = {.host = argv[2],
	                    .region = argv[3],
	                    .service = "sts",
	                    .query = "Action=GetCallerIdentity&Version=2011-06-15",
	                    .valid_s = 900};
	int r;

	if (text_to_uint(argv[4], 0, UINT64_MAX, &p.now) < 0)
		return 1;
	if (strcmp(argv[1], "token") == 0)
		r = eks_token(argv[5], p.host, p.region, c, p.now, out);
	else
		r = sigv4_presign(&p, c, out, sizeof(out));
	printf("%s\n", out);
	return r < 0;
}

static void on_reply(struct http_call *c, const struct http_reply *reply, void *userdata)
{
	struct caller_identity who = {0};

	printf("%d\n", reply->status);
	if (caller_identity_parse(reply->body, reply->body_len, &who) == 0)
		printf("%s %s\n", who.account, who.role);
	(void) sd_event_exit(userdata, 0);
}

/* As the probes do it: signed by libcurl, the session token as a header. */
static int post(char *argv[], const struct credentials *c)
{
	char sigv4[64], token[sizeof(c->token) + 32];
	const char *const headers[] = {token, NULL};
	struct http_request rq = {.method = "POST",
	                          .scheme = "http",
	                          .host = argv[2],
	                          .path = "/",
	                          .headers = headers,
	                          .body = argv[6],
	                          .body_len = strlen(argv[6]),
	                          .sigv4 = sigv4,
	                          .key_id = c->key_id,
	                          .secret = c->secret,
	                          .connect_timeout = USEC_PER_SEC,
	                          .timeout = 10 * USEC_PER_SEC,
	                          .body_max = 65536};
	struct http_call *call = NULL;
	struct http *h = NULL;
	sd_event *e = NULL;
	uint64_t port;
	int r;

	(void) snprintf(sigv4, sizeof(sigv4), "aws:amz:%s:%s", argv[4], argv[5]);
	(void) snprintf(token, sizeof(token), "X-Amz-Security-Token: %s", c->token);
	if (address_parse(&rq.address, "127.0.0.1") < 0 ||
	    text_to_uint(argv[3], 1, 65535, &port) < 0 || sd_event_default(&e) < 0 ||
	    http_new(&h, e) < 0)
		return 1;
	rq.port = (uint16_t) port;
	r = http_call_new(&call, h, &rq, on_reply, e);
	if (r == 0)
		r = sd_event_loop(e);
	http_call_free(call);
	http_free(h);
	sd_event_unref(e);
	return r < 0;
}

static int tool(char *argv[])
{
	static char body[16384];
	struct credentials c = {0};
	struct credentials_said said;

	if (credentials_parse(body, fread(body, 1, sizeof(body), stdin), &said, &c) < 0)
		return 1;
	return strcmp(argv[1], "post") == 0 ? post(argv, &c) : print(argv, &c);
}

int main(int argc, char *argv[])
{
	if (argc >= 6)
		return tool(argv);
	test_credentials();
	test_presign();
	test_errors();
	test_caller();
	test_role();
	return done();
}
