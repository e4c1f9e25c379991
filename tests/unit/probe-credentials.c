/* SPDX-License-Identifier: Apache-2.0 */
#include "../fakejoin.h"

#include "../../probes/credentials.c"

#include <ftw.h>

#include "../tap.h"

#define SET(code, expires)                                                                         \
	"{\"Code\":\"" code                                                                        \
	"\",\"LastUpdated\":\"2026-11-30T14:34:58Z\",\"AccessKeyId\":\"ASIAX\","                   \
	"\"SecretAccessKey\":\"sec/ret\",\"Token\":\"tok/en\",\"Expiration\":\"" expires "\"}"
#define INFO(code)                                                                                 \
	"{\"Code\":\"" code "\",\"InstanceProfileArn\":\"arn:aws:iam::1:instance-profile/p\"}"
#define GOOD SET("Success", "2026-12-01T02:28:59Z")

static char base[64];

static void put_boot_id(const char *id)
{
	static const char *const dirs[] = {"/proc", "/proc/sys", "/proc/sys/kernel",
	                                   "/proc/sys/kernel/random"};
	char path[256];
	FILE *f;

	for (size_t i = 0; i < ELEMENTS(dirs); i++) {
		(void) text_format(path, sizeof(path), "%s%s", base, dirs[i]);
		(void) mkdir(path, 0755);
	}
	(void) text_format(path, sizeof(path), "%s/proc/sys/kernel/random/boot_id", base);
	f = fopen(path, "we");
	if (!f || fprintf(f, "%s\n", id) < 0 || fclose(f) != 0)
		printf("# cannot write %s\n", path);
}

static void metadata(const char *info, const char *roles, const char *set)
{
	size_t n = 0;

	memset(world.answers, 0, sizeof(world.answers));
	if (info)
		world.answers[n++] = (struct join_answer){"/iam/info", 200, info};
	if (roles)
		world.answers[n++] = (struct join_answer){"/iam/security-credentials/", 200, roles};
	if (set)
		world.answers[n++] = (struct join_answer){"-role", 200, set};
}

static bool says(struct run *r, enum outcome outcome, enum code code)
{
	return join_run(r, &tested_credentials) == 0 &&
	       join_is(r, &tested_credentials, "", outcome, code);
}

/* What an observation shows of a secret: nothing. */
static bool is_secret(const struct run *r)
{
	for (size_t i = 0; i < r->n_seen; i++)
		if (memmem(&r->seen[i], sizeof(r->seen[i]), "sec/ret", 7) ||
		    memmem(&r->seen[i], sizeof(r->seen[i]), "tok/en", 6))
			return false;
	return true;
}

static void test_sound(struct run *r)
{
	metadata(INFO("Success"), "node-role", GOOD);
	ok(says(r, OUTCOME_OK, CODE_NONE));
	ok(strcmp(fake_find(r, "", NULL)->detail,
	          "role node-role, credentials for 5 h 12 min more") == 0);
	ok(strcmp(r->node.role, "node-role") == 0 && is_secret(r) && world.imds_calls == 3);
	metadata(INFO("Success"), "node-role\n", SET("Success", "2026-12-01T08:28:59Z"));
	ok(says(r, OUTCOME_OK, CODE_NONE)); /* rotated */
	metadata(NULL, "node-role", GOOD);
	ok(says(r, OUTCOME_OK, CODE_NONE)); /* the role is what counts */
}

static void test_profile(struct run *r)
{
	metadata(NULL, NULL, NULL);
	ok(says(r, OUTCOME_ABSENT, CODE_InstanceProfileMissing));
	metadata(NULL, "", NULL);
	ok(says(r, OUTCOME_ABSENT, CODE_InstanceProfileMissing));
	metadata(INFO("InstanceProfileNotFound"), NULL, NULL);
	ok(says(r, OUTCOME_FAILED, CODE_InstanceProfileInvalid) && world.imds_calls == 1);
	metadata(INFO("Success"), NULL, NULL);
	ok(says(r, OUTCOME_FAILED, CODE_InstanceProfileInvalid));
	metadata("<html>sign in</html>", NULL, NULL);
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	metadata(INFO("Success"), "<html>sign in</html>", NULL);
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	metadata(INFO("Success"), "a/../../role", NULL);
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
}

static void test_set(struct run *r)
{
	metadata(INFO("Success"), "node-role", NULL);
	ok(says(r, OUTCOME_ABSENT, CODE_CredentialsMissing));
	metadata(INFO("Success"), "node-role", "{\"Code\":\"AssumeRoleUnauthorizedAccess\"}");
	ok(says(r, OUTCOME_DENIED, CODE_CredentialsMissing));
	metadata(INFO("Success"), "node-role", "{\"Code\":\"Success\"}");
	ok(says(r, OUTCOME_DENIED, CODE_CredentialsMissing));
	metadata(INFO("Success"), "node-role", "oops");
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));

	metadata(INFO("Success"), "node-role", SET("Success", "2026-11-30T20:34:59Z"));
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE)); /* no clock to hold it against */
	r->node.witnesses[WITNESS_METADATA] = (struct witness_seen){600, r->now};
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE)); /* nor one that is wrong */
	r->node.witnesses[WITNESS_METADATA] = (struct witness_seen){1, r->now};
	ok(says(r, OUTCOME_EXPIRED, CODE_CredentialsExpired));
	ok(strcmp(fake_find(r, "", NULL)->detail,
	          "credentials of node-role expired 42 min ago, last updated 6 h 42 min ago") == 0);
	metadata(INFO("Success"), "node-role", SET("Success", "2026-11-30T21:16:30Z"));
	ok(says(r, OUTCOME_OK, CODE_NONE)); /* half a minute is within what a clock may be off */
}

static void test_role(struct run *r)
{
	metadata(INFO("Success"), "node-role", GOOD);
	world.remembered[0] = 0;
	ok(says(r, OUTCOME_OK, CODE_NONE));
	ok(strcmp(world.remembered, "boot-1 node-role") == 0);
	metadata(INFO("Success"), "other-role", GOOD);
	ok(says(r, OUTCOME_FOREIGN, CODE_RoleReplaced));
	ok(strcmp(fake_find(r, "", NULL)->detail,
	          "role is other-role now, was node-role at boot") == 0);
	ok(strcmp(world.remembered, "boot-1 node-role") == 0);
	metadata(INFO("Success"), "node-role", GOOD);
	ok(says(r, OUTCOME_OK, CODE_NONE));
	put_boot_id("boot-2");
	metadata(INFO("Success"), "other-role", GOOD);
	ok(says(r, OUTCOME_OK, CODE_NONE)); /* what the next boot began with */
	put_boot_id("boot-22");
	metadata(INFO("Success"), "node-role", GOOD);
	ok(says(r, OUTCOME_OK, CODE_NONE));
	ok(strcmp(world.remembered, "boot-22 node-role") == 0);
}

static void test_metadata(struct run *r)
{
	metadata(INFO("Success"), "node-role", GOOD);
	world.remembered[0] = 0;
	fake_free(r);
	world.throttled = true;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	world.throttled = false;
	metadata(INFO("Success"), "node-role", NULL);
	ok(says(r, OUTCOME_ABSENT, CODE_CredentialsMissing));
	world.throttled = true;
	ok(says(r, OUTCOME_ABSENT,
	        CODE_CredentialsMissing)); /* nothing is cleared by not looking */
	world.throttled = false;
	memset(world.answers, 0, sizeof(world.answers));
	world.answers[0] = (struct join_answer){"/iam/info", 0, ""};
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	world.answers[0] = (struct join_answer){"/iam/info", 503, ""};
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE));
	r->node.metadata_answers = false;
	ok(says(r, OUTCOME_UNKNOWN, CODE_NONE) && world.imds_calls == 0);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

int main(void)
{
	struct run *r = calloc(1, sizeof(*r));
	struct files *f = NULL;

	(void) text_format(base, sizeof(base), "/tmp/credentials-test-XXXXXX");
	if (!r || !mkdtemp(base) || files_new(&f, base) < 0)
		return 1;
	put_boot_id("boot-1");
	r->files = f;
	r->now = 21600 * USEC_PER_SEC;
	r->node.metadata_answers = true;
	world.realtime = UINT64_C(1796073419) * USEC_PER_SEC;
	test_sound(r);
	test_profile(r);
	test_set(r);
	test_role(r);
	test_metadata(r);
	fake_free(r);
	free(r);
	files_free(f);
	(void) nftw(base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return done();
}
