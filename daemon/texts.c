/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <jansson.h>
#include <string.h>

#include "embed.h"
#include "texts.h"
#include "util.h"

EMBED(texts_json, "packaging/catalog/texts.json");

/* journald fills this in; here nobody knows the subject. What takes its place is shorter. */
static void name_subject(char *s)
{
	static const char from[] = "@NODEWHY_SUBJECT@", to[] = "<subject>";

	while ((s = strstr(s, from))) {
		memcpy(s, to, sizeof(to) - 1);
		s += sizeof(to) - 1;
		memmove(s, s + sizeof(from) - sizeof(to),
		        strlen(s + sizeof(from) - sizeof(to)) + 1);
	}
}

int texts_get(const char *code, char **ret_title, char **ret_body)
{
	_cleanup_(freep) char *title = NULL, *body = NULL;
	json_t *all = json_loads(texts_json, 0, NULL);
	const json_t *text = json_object_get(json_object_get(all, code), "en");
	const char *t = json_string_value(json_array_get(text, 0));
	const char *b = json_string_value(json_array_get(text, 1));
	int r = all ? 0 : -ENOMEM; /* rules.t sees to it that it is JSON */

	if (t && b) {
		title = strdup(t);
		body = strdup(b);
		r = title && body ? 0 : -ENOMEM;
	} else if (all) {
		r = -ENOENT;
	}
	json_decref(all);
	if (r < 0)
		return r;
	name_subject(body);
	*ret_title = TAKE(title);
	*ret_body = TAKE(body);
	return 0;
}
