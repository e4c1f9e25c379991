/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "sink.h"

enum { MESSAGE_MAX = 81 }; /* CONTRACT.md section 4: at most 80 bytes */

size_t condition_text(const struct report *r, enum condition c, char *ret, size_t size)
{
	const struct condition_state *s = &r->conditions[c];
	const struct finding *f = s->finding < 0 ? NULL : &r->findings[s->finding];
	usec_t until = r->uptime / USEC_PER_SEC + STATUS_VALID_S;
	char message[MESSAGE_MAX], raw[SUMMARY_MAX + 64];

	if (f)
		(void) text_format(raw, sizeof(raw), "%s: %s", cause_of(f->code)->name, f->summary);
	else
		(void) text_format(raw, sizeof(raw), "%s",
		                   s->status == CONDITION_FALSE ? "no problem found"
		                                                : "not looked at, or cannot tell");
	(void) text_ascii(message, sizeof(message), raw);
	return text_format(ret, size, "%d\n%s\n%llu\n", (int) s->status, message,
	                   (unsigned long long) until);
}

int sink_conditions(const struct files *f, const struct report *r)
{
	int bad = 0, ret;

	ret = file_mkdir(f, "/run/nodewhy/conditions", 0755);
	if (ret < 0 && ret != -EEXIST)
		return ret;
	for (int c = CONDITION_None + 1; c < _CONDITION_MAX; c++) {
		char path[96], text[256];
		size_t n = condition_text(r, (enum condition) c, text, sizeof(text));

		(void) text_format(path, sizeof(path), "/run/nodewhy/conditions/%s",
		                   condition_name((enum condition) c));
		ret = file_replace(f, path, text, n, 0644);
		bad = ret < 0 ? ret : bad;
	}
	return bad;
}
