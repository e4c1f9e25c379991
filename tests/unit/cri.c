/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "cri.h"

#include "../tap.h"

static void test_requests(void)
{
	static const char wanted[] = "\x0a\x2a\x22\x28\x0a\x1cio.kubernetes.container.name\x12\x08"
				     "aws-node";
	uint8_t b[192], small[16];
	ssize_t n = cri_list_request(b, sizeof(b), "aws-node");

	ok(n == (ssize_t) sizeof(wanted) - 1 && memcmp(b, wanted, (size_t) n) == 0);
	ok(cri_list_request(small, sizeof(small), "aws-node") == -ENOSPC);
	n = cri_status_request(b, sizeof(b), "abc");
	ok(n == 5 && memcmp(b,
	                    "\x0a\x03"
	                    "abc",
	                    5) == 0);
}

static int newest(const char *message, size_t len, char *ret)
{
	return cri_newest_exited(message, len, ret);
}

#define NEWEST(text, id) newest(text, sizeof(text) - 1, id)

static void test_list(void)
{
	char id[CRI_ID_MAX] = "";

	/* one that runs, two that have ended, and one whose state is 0: made and never started */
	ok(NEWEST("\x0a\x09\x0a\x03"
	          "run\x30\x01\x38\x7f"
	          "\x0a\x09\x0a\x03"
	          "old\x30\x02\x38\x05"
	          "\x0a\x09\x0a\x03"
	          "new\x30\x02\x38\x09"
	          "\x0a\x05\x0a\x03"
	          "mad",
	          id) == 0);
	ok(strcmp(id, "new") == 0);
	ok(NEWEST("", id) == -ENOENT);
	ok(NEWEST("\x0a\x09\x0a\x03"
	          "run\x30\x01\x38\x7f",
	          id) == -ENOENT);
	ok(NEWEST("\x0a\x04\x30\x02\x38\x09", id) == -ENOENT); /* without an id */
	ok(NEWEST("\x0a\x09\x0a\x03"
	          "cut",
	          id) == -EBADMSG);
	ok(NEWEST("\x0a\x04\x0a\x0fxx", id) == -EBADMSG);
}

static int ended(const char *message, size_t len, struct cri_exit *ret)
{
	return cri_exit_read(message, len, ret);
}

#define ENDED(text, ret) ended(text, sizeof(text) - 1, ret)

static void test_exit(void)
{
	struct cri_exit e = {0};

	ok(ENDED("\x0a\x10\x18\x02\x38\x89\x01\x52\x09OOMKilled", &e) == 0);
	ok(e.code == 137 && strcmp(e.reason, "OOMKilled") == 0 && e.finished == 0);
	ok(ENDED("\x0a\x08\x18\x02\x30\x80\xa8\xd6\xb9\x07", &e) == 0); /* 2 s; code 0 */
	ok(e.code == 0 && !e.reason[0] && e.finished == 2);
	ok(ENDED("\x0a\x0d\x18\x02\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", &e) == 0);
	ok(e.code == -1);
	ok(ENDED("\x0a\x02\x18\x01", &e) == -ENOENT); /* it runs */
	ok(ENDED("", &e) == -EBADMSG);
	ok(ENDED("\x0a\x05\x18\x02", &e) == -EBADMSG);
	ok(ENDED("\x0a\x04\x18\x02\x52\x09", &e) == -EBADMSG);
}

static void test_meaning(void)
{
	ok(strcmp(cri_exit_meaning(137, "OOMKilled"), "out of memory") == 0);
	ok(strcmp(cri_exit_meaning(137, "Error"), "killed") == 0);
	ok(strcmp(cri_exit_meaning(1, "Error"), "an error of its own") == 0);
	ok(cri_exit_meaning(77, "")[0] == 0 && cri_exit_meaning(-1, "")[0] == 0);
}

int main(void)
{
	test_requests();
	test_list();
	test_exit();
	test_meaning();
	return done();
}
