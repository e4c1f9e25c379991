/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>

#include "envfile.h"

struct reader {
	const char *p, *end;
	char name[ENVFILE_NAME_MAX], value[ENVFILE_VALUE_MAX];
	size_t n;
	size_t kept; /* what of value stays when trailing blanks are cut: quoted ones are kept */
	bool too_long;
};

static void put(struct reader *r, char c, bool keep)
{
	if (r->n + 1 >= sizeof(r->value) || !c) {
		r->too_long = true;
		return;
	}
	r->value[r->n++] = c;
	if (keep || !isspace((unsigned char) c))
		r->kept = r->n;
}

static void skip_line(struct reader *r)
{
	while (r->p < r->end && *r->p++ != '\n')
		;
}

/* A comment goes on over a line that ends in a backslash, too. */
static void skip_comment(struct reader *r)
{
	for (; r->p < r->end && *r->p != '\n'; r->p++)
		if (*r->p == '\\' && r->p + 1 < r->end)
			r->p++;
}

static void read_quoted(struct reader *r)
{
	char quote = *r->p++;

	for (; r->p < r->end && *r->p != quote; r->p++) {
		if (quote == '"' && *r->p == '\\' && r->p + 1 < r->end &&
		    strchr("\"\\`$\n", r->p[1])) {
			if (*++r->p != '\n')
				put(r, *r->p, true);
			continue;
		}
		put(r, *r->p, true);
	}
	if (r->p < r->end)
		r->p++;
	r->kept = r->n;
}

static void read_value(struct reader *r)
{
	r->n = r->kept = 0;
	r->too_long = false;
	while (r->p < r->end && *r->p != '\n' && isspace((unsigned char) *r->p))
		r->p++;
	while (r->p < r->end && *r->p != '\n') {
		if (*r->p == '"' || *r->p == '\'') {
			read_quoted(r);
		} else if (*r->p == '\\') {
			if (++r->p < r->end && *r->p != '\n')
				put(r, *r->p, true);
			if (r->p < r->end)
				r->p++;
		} else {
			put(r, *r->p++, false);
		}
	}
	r->value[r->kept] = 0;
}

static bool read_name(struct reader *r)
{
	size_t n = 0;

	while (r->p < r->end && (isalnum((unsigned char) *r->p) || *r->p == '_')) {
		if (n + 1 < sizeof(r->name))
			r->name[n] = *r->p;
		n++;
		r->p++;
	}
	r->name[n < sizeof(r->name) ? n : 0] = 0;
	while (r->p < r->end && (*r->p == ' ' || *r->p == '\t'))
		r->p++;
	if (r->p == r->end || *r->p != '=')
		return false;
	r->p++;
	return n > 0 && n < sizeof(r->name);
}

void envfile_parse(const char *text, size_t len, envfile_variable_t variable, void *userdata)
{
	struct reader r = {.p = text, .end = text + len};

	while (r.p < r.end) {
		if (isspace((unsigned char) *r.p)) {
			r.p++;
		} else if (*r.p == '#' || *r.p == ';') {
			skip_comment(&r);
		} else if (!read_name(&r)) {
			skip_line(&r);
		} else {
			read_value(&r);
			if (!r.too_long)
				variable(r.name, r.value, userdata);
		}
	}
	explicit_bzero(r.value, sizeof(r.value)); /* a proxy's password may have been in it */
}
