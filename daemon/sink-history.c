/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "clock.h"
#include "sink.h"

static const char path[] = "/var/lib/nodewhy/history.jsonl";

static char *line_of(const struct report *r, const struct finding *f, bool cleared,
                     const struct report_meta *m)
{
	const struct cause *c = cause_of(f->code);
	char at[CLOCK_TEXT_MAX];
	json_t *j =
		json_pack("{s:s, s:s, s:f, s:s, s:s, s:s, s:s, s:s, s:s}", "at",
	                  clock_format(m->realtime, at), "boot_id", m->boot_id, "uptime_s",
	                  (double) r->uptime / 1e6, "state", cleared ? "cleared" : "raised", "code",
	                  c->name, "subject", f->subject, "summary", f->summary, "because",
	                  f->because < 0 ? "" : cause_of(r->findings[f->because].code)->name,
	                  "severity", severity_name(c->severity));
	char *s = j ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;

	json_decref(j);
	return s;
}

static int say(FILE *out, const struct report *r, const struct finding *f, bool cleared,
               const struct report_meta *m)
{
	_cleanup_(freep) char *s = line_of(r, f, cleared, m);

	if (!s)
		return -ENOMEM;
	return fprintf(out, "%s\n", s) < 0 ? -ENOMEM : 0;
}

/* The start of the last n lines. */
static const char *last_lines(const char *text, size_t len, size_t n)
{
	const char *p = text + len;

	while (p > text)
		if (*--p == '\n' && p + 1 < text + len && n-- == 1)
			return p + 1;
	return text;
}

int sink_history(const struct files *f, const struct report *before, const struct report *after,
                 const struct report_diff *d, const struct report_meta *m)
{
	_cleanup_(freep) char *old = NULL, *text = NULL;
	size_t old_len = 0, len = 0;
	const char *keep;
	bool any = false;
	int r, bad = 0;
	FILE *out;

	for (size_t i = 0; i < ELEMENTS(d->raised); i++)
		any |= d->raised[i] || d->cleared[i];
	if (!any)
		return 0;
	r = file_read(f, path, HISTORY_FILE_MAX, &old, &old_len);
	if (r < 0 && r != -ENOENT && r != -EFBIG)
		return r;
	out = open_memstream(&text, &len);
	if (!out)
		return -errno;
	if (old && old_len) {
		(void) fwrite(old, 1, old_len, out);
		if (old[old_len - 1] != '\n') /* half a line of a write that was cut */
			(void) fputc('\n', out);
	}
	for (size_t i = 0; before && i < before->n_findings; i++)
		if (diff_bit(d->cleared, i))
			bad |= say(out, before, &before->findings[i], true, m);
	for (size_t i = 0; i < after->n_findings; i++)
		if (diff_bit(d->raised, i))
			bad |= say(out, after, &after->findings[i], false, m);
	if (fclose(out) != 0 || bad)
		return -ENOMEM;
	keep = last_lines(text, len, HISTORY_LINES);
	return file_replace(f, path, keep, len - (size_t) (keep - text), 0644);
}
