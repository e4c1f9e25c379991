/* SPDX-License-Identifier: Apache-2.0 */
/* What is given away holds no account, instance, address or host name, and stays consistent. */
#include <stdbool.h>
#include <string.h>

#include "../tap.h"
#include "redact.h"

static bool same(const char *in, const char *want)
{
	json_t *j = json_pack("[s]", in);
	bool good = redact(j) == 0 && strcmp(json_string_value(json_array_get(j, 0)), want) == 0;

	if (!good)
		printf("# %s became %s\n", in, json_string_value(json_array_get(j, 0)));
	json_decref(j);
	return good;
}

static void test_shapes(void)
{
	ok(same("i-0a1b2c3d4e5f60718 fails", "i-redacted1 fails"));
	ok(same("eni-08ac5ffff7b83e2f8,eni-076bb3dda42cf1204,eni-08ac5ffff7b83e2f8",
	        "eni-redacted1,eni-redacted2,eni-redacted1"));
	ok(same("arn:aws:iam::123456789012:role/node", "arn:aws:iam::account1:role/node"));
	ok(same("123456789012.dkr.ecr.us-west-2.amazonaws.com",
	        "account1.dkr.ecr.us-west-2.amazonaws.com"));
	ok(same("dial tcp 10.0.1.5:443: i/o timeout", "dial tcp 10.255.0.1:443: i/o timeout"));
	ok(same("52.94.1.2 (public)", "192.0.2.1 (public)"));
	ok(same("PUT 169.254.169.254: no answer.", "PUT 169.254.169.254: no answer."));
	ok(same("lookup on 127.0.0.53 and fd00:ec2::254",
	        "lookup on 127.0.0.53 and fd00:ec2::254"));
	ok(same("2600:1f14:abc::7", "2001:db8::1"));
	ok(same("02:0a:00:00:44:05", "02:00:00:00:00:1"));
	ok(same("ip-10-0-1-5.us-west-2.compute.internal", "ip-node-1.internal"));
	ok(same("https://0123456789ABCDEF0123456789ABCDEF.gr7.us-west-2.eks.amazonaws.com/livez",
	        "https://cluster-1.eks.example/livez"));
	/* what is no name stays: versions, times, sizes, AWS's own endpoints */
	ok(same("ec2.us-west-2.amazonaws.com 1.2.3 2026-11-30T21:08:09.123Z 5 of 27",
	        "ec2.us-west-2.amazonaws.com 1.2.3 2026-11-30T21:08:09.123Z 5 of 27"));
	ok(same("a : b. c", "a : b. c"));
	ok(same("", ""));
}

static void test_document(void)
{
	json_t *j = json_pack("{s:{s:s,s:s,s:i}, s:[{s:s}]}", "node", "instance_id",
	                      "i-0a1b2c3d4e5f60718", "cluster", "prod", "n", 7, "findings",
	                      "summary", "i-0a1b2c3d4e5f60718 of 10.0.0.2");

	ok(redact(j) == 0);
	ok(strcmp(json_string_value(json_object_get(json_object_get(j, "node"), "instance_id")),
	          "i-redacted1") == 0);
	ok(strcmp(json_string_value(json_object_get(json_object_get(j, "node"), "cluster")),
	          "cluster-redacted") == 0);
	ok(strcmp(json_string_value(json_object_get(
			  json_array_get(json_object_get(j, "findings"), 0), "summary")),
	          "i-redacted1 of 10.255.0.1") == 0); /* the same everywhere in one document */
	json_decref(j);
}

static void test_too_many(void)
{
	json_t *j = json_array();
	char id[32];

	for (int i = 0; i < 2000; i++) {
		(void) snprintf(id, sizeof(id), "i-%017x", i);
		(void) json_array_append_new(j, json_string(id));
	}
	ok(redact(j) < 0); /* said, not given away half done */
	json_decref(j);
}

int main(void)
{
	test_shapes();
	test_document();
	test_too_many();
	return done();
}
