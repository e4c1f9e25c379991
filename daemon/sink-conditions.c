/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "sink.h"

void condition_line(const char *reason, const char *message, char ret[static CONDITION_LINE_MAX])
{
	char raw[SUMMARY_MAX + 64];
	size_t n;

	(void) text_format(raw, sizeof(raw), "%s%s%s", reason, reason[0] ? ": " : "", message);
	n = text_ascii(ret, CONDITION_LINE_MAX, raw);
	while (n > 0 && ret[n - 1] == ' ') /* where it was cut */
		ret[--n] = 0;
}

size_t condition_text(const struct report *r, enum condition c, char *ret, size_t size)
{
	const struct condition_state *s = &r->conditions[c];
	const struct finding *f = s->finding < 0 ? NULL : &r->findings[s->finding];
	usec_t until = r->uptime / USEC_PER_SEC + STATUS_VALID_S;
	char line[CONDITION_LINE_MAX];

	condition_line(f ? cause_of(f->code)->name : "", condition_message(s, f), line);
	return text_format(ret, size, "%d\n%s\n%llu\n", (int) s->status, line,
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
