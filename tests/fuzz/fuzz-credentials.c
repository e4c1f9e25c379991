/* SPDX-License-Identifier: Apache-2.0 */
/* The credentials that metadata gives, read without a copy. Whatever jansson takes for an object,
 * and what is read here, are the same strings. */
#include <jansson.h>
#include <stdint.h>

#include "sigv4.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void same(const json_t *o, const char *key, const char *got)
{
	const char *want = json_string_value(json_object_get(o, key));

	if (strcmp(want ? want : "", got) != 0)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct credentials_said said;
	struct credentials c = {.role = "r"};
	json_t *o;

	if (credentials_parse((const char *) data, size, &said, &c) < 0)
		return 0;
	if (strcmp(c.role, "r") != 0 || strpbrk(c.token, "\r\n ") || strpbrk(c.key_id, "\r\n ") ||
	    said.complete != (c.key_id[0] && c.secret[0] && c.token[0]))
		abort();
	o = json_loadb((const char *) data, size, 0, NULL);
	if (o) {
		same(o, "Code", said.code);
		same(o, "AccessKeyId", c.key_id);
		same(o, "SecretAccessKey", c.secret);
		same(o, "Token", c.token);
	}
	json_decref(o);
	return 0;
}
