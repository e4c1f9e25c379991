/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>

#include "toml.h"

enum { PATH_TEXT_MAX = 1024, VALUE_MAX = 4096, DEPTH_MAX = 32 };

struct parser {
	const char *p, *end;
	size_t line;
	toml_value_t value;
	void *userdata;
	char path[PATH_TEXT_MAX]; /* the name of the value being read */
	size_t path_len;
	char text[VALUE_MAX];
	size_t text_len;
	bool text_bad; /* does not fit, or holds a NUL: read on, but do not report */
};

static int parse_value(struct parser *s, size_t index, unsigned depth);

static int peek(const struct parser *s)
{
	return s->p < s->end ? (unsigned char) *s->p : -1;
}

static bool starts(const struct parser *s, const char *text)
{
	size_t n = strlen(text);

	return (size_t) (s->end - s->p) >= n && memcmp(s->p, text, n) == 0;
}

static void skip_blanks(struct parser *s)
{
	while (peek(s) == ' ' || peek(s) == '\t')
		s->p++;
}

static void skip_comment(struct parser *s)
{
	if (peek(s) == '#')
		while (s->p < s->end && *s->p != '\n')
			s->p++;
}

/* Blanks, comments and line ends. */
static void skip_space(struct parser *s)
{
	for (;;) {
		skip_blanks(s);
		skip_comment(s);
		if (starts(s, "\r\n"))
			s->p++;
		if (peek(s) != '\n')
			return;
		s->line++;
		s->p++;
	}
}

static int end_of_line(struct parser *s)
{
	skip_blanks(s);
	skip_comment(s);
	if (starts(s, "\r\n"))
		s->p++;
	if (s->p == s->end)
		return 0;
	if (*s->p != '\n')
		return -EBADMSG;
	s->p++;
	s->line++;
	return 0;
}

static void text_begin(struct parser *s)
{
	s->text_len = 0;
	s->text_bad = false;
}

static void text_put(struct parser *s, char c)
{
	if (c == 0 || s->text_len + 1 >= sizeof(s->text))
		s->text_bad = true;
	else
		s->text[s->text_len++] = c;
	s->text[s->text_len] = 0;
}

static void put_code_point(struct parser *s, uint32_t c)
{
	if (c < 0x80) {
		text_put(s, (char) c);
	} else if (c < 0x800) {
		text_put(s, (char) (0xC0 | c >> 6));
	} else if (c < 0x10000) {
		text_put(s, (char) (0xE0 | c >> 12));
		text_put(s, (char) (0x80 | (c >> 6 & 0x3F)));
	} else {
		text_put(s, (char) (0xF0 | c >> 18));
		text_put(s, (char) (0x80 | (c >> 12 & 0x3F)));
		text_put(s, (char) (0x80 | (c >> 6 & 0x3F)));
	}
	if (c >= 0x80)
		text_put(s, (char) (0x80 | (c & 0x3F)));
}

static int parse_unicode(struct parser *s, size_t digits)
{
	uint32_t c = 0;

	if ((size_t) (s->end - s->p) < digits)
		return -EBADMSG;
	for (size_t i = 0; i < digits; i++, s->p++) {
		int d = (unsigned char) *s->p;

		if (!isxdigit(d))
			return -EBADMSG;
		c = c << 4 | (uint32_t) (isdigit(d) ? d - '0' : (d | 0x20) - 'a' + 10);
	}
	if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF))
		return -EBADMSG;
	put_code_point(s, c);
	return 0;
}

/* In a multi-line string a backslash before the line end eats all white space that follows. */
static bool eat_line_break(struct parser *s)
{
	const char *q = s->p;

	while (q < s->end && (*q == ' ' || *q == '\t' || *q == '\r'))
		q++;
	if (q == s->end || *q != '\n')
		return false;
	for (; q < s->end && strchr(" \t\r\n", *q) && *q; q++)
		if (*q == '\n')
			s->line++;
	s->p = q;
	return true;
}

static int parse_escape(struct parser *s, bool multi)
{
	static const char from[] = "btnfre\"\\", to[] = "\b\t\n\f\r\x1b\"\\";
	const char *at;
	int c;

	if (multi && eat_line_break(s))
		return 0;
	c = peek(s);
	if (c <= 0)
		return -EBADMSG;
	s->p++;
	if (c == 'u' || c == 'U')
		return parse_unicode(s, c == 'u' ? 4 : 8);
	at = strchr(from, c);
	if (!at)
		return -EBADMSG;
	text_put(s, to[at - from]);
	return 0;
}

/* Behind the opening quotes. Up to two quotes may stand right before the closing three. */
static int parse_multi(struct parser *s, char quote)
{
	const char triple[] = {quote, quote, quote, 0};
	int r;

	if (starts(s, "\r\n"))
		s->p++;
	if (peek(s) == '\n') {
		s->p++;
		s->line++;
	}
	while (s->p < s->end) {
		if (starts(s, triple)) {
			s->p += 3;
			for (int i = 0; i < 2 && peek(s) == quote; i++, s->p++)
				text_put(s, quote);
			return 0;
		}
		if (*s->p == '\n')
			s->line++;
		if (*s->p++ != '\\' || quote == '\'') {
			text_put(s, s->p[-1]);
			continue;
		}
		r = parse_escape(s, true);
		if (r < 0)
			return r;
	}
	return -EBADMSG;
}

/* Any of the four kinds of string, into s->text. */
static int parse_string(struct parser *s, bool allow_multi)
{
	char quote = *s->p;
	int r;

	text_begin(s);
	s->text[0] = 0;
	if (starts(s, quote == '"' ? "\"\"\"" : "'''")) {
		s->p += 3;
		return allow_multi ? parse_multi(s, quote) : -EBADMSG;
	}
	s->p++;
	while (s->p < s->end && *s->p != '\n') {
		char c = *s->p++;

		if (c == quote)
			return 0;
		if (c != '\\' || quote == '\'') {
			text_put(s, c);
			continue;
		}
		r = parse_escape(s, false);
		if (r < 0)
			return r;
	}
	return -EBADMSG;
}

static bool is_bare(int c)
{
	return c > 0 && (isalnum(c) || c == '_' || c == '-') && c < 0x80;
}

static int path_push(struct parser *s, const char *part, size_t len)
{
	size_t sep = s->path_len > 0;

	if (len >= sizeof(s->path) - s->path_len - sep)
		return -EBADMSG;
	if (sep)
		s->path[s->path_len++] = '\x1f';
	memcpy(s->path + s->path_len, part, len);
	s->path_len += len;
	s->path[s->path_len] = 0;
	return 0;
}

static void path_cut(struct parser *s, size_t len)
{
	s->path_len = len;
	s->path[len] = 0;
}

/* a."b.c".d onto the end of s->path. */
static int parse_key(struct parser *s)
{
	int r;

	for (;;) {
		skip_blanks(s);
		if (peek(s) == '"' || peek(s) == '\'') {
			r = parse_string(s, false);
			if (r == 0)
				r = s->text_bad ? -EBADMSG : path_push(s, s->text, s->text_len);
		} else {
			const char *start = s->p;

			while (is_bare(peek(s)))
				s->p++;
			r = s->p == start ? -EBADMSG : path_push(s, start, (size_t) (s->p - start));
		}
		if (r < 0)
			return r;
		skip_blanks(s);
		if (peek(s) != '.')
			return 0;
		s->p++;
	}
}

static int parse_key_value(struct parser *s, unsigned depth)
{
	size_t mark = s->path_len;
	int r;

	r = parse_key(s);
	if (r < 0)
		return r;
	if (peek(s) != '=')
		return -EBADMSG;
	s->p++;
	skip_blanks(s);
	r = parse_value(s, 0, depth);
	path_cut(s, mark);
	return r;
}

static int parse_array(struct parser *s, unsigned depth)
{
	int r;

	s->p++;
	for (size_t i = 0;; i++) {
		skip_space(s);
		if (peek(s) == ']')
			break;
		r = parse_value(s, i, depth);
		if (r < 0)
			return r;
		skip_space(s);
		if (peek(s) == ',')
			s->p++;
		else if (peek(s) != ']')
			return -EBADMSG;
	}
	s->p++;
	return 0;
}

static int parse_inline_table(struct parser *s, unsigned depth)
{
	int r;

	s->p++;
	for (;;) {
		skip_space(s);
		if (peek(s) == '}')
			break;
		r = parse_key_value(s, depth);
		if (r < 0)
			return r;
		skip_space(s);
		if (peek(s) == ',')
			s->p++;
		else if (peek(s) != '}')
			return -EBADMSG;
	}
	s->p++;
	return 0;
}

static bool is_integer(const char *t)
{
	if (*t == '+' || *t == '-')
		t++;
	else if (t[0] == '0' && strchr("xob", t[1]) && t[1])
		return t[2] && t[2 + strspn(t + 2, "0123456789abcdefABCDEF_")] == 0;
	return *t && t[strspn(t, "0123456789_")] == 0;
}

/* Integers and booleans are reported, floats and dates only passed over. */
static int parse_scalar(struct parser *s, size_t index)
{
	text_begin(s);
	s->text[0] = 0;
	while (is_bare(peek(s)) || (peek(s) > 0 && strchr("+.:", peek(s))))
		text_put(s, *s->p++);
	if (s->text_len == 0)
		return -EBADMSG;
	if (strcmp(s->text, "true") == 0 || strcmp(s->text, "false") == 0 || is_integer(s->text)) {
		if (!s->text_bad)
			s->value(s->path, s->text, index, s->userdata);
		return 0;
	}
	if (!isdigit((unsigned char) s->text[0]) && !strchr("+-in", s->text[0]))
		return -EBADMSG;
	/* "1979-05-27 07:32:00": a date and its time may stand apart */
	if (s->end - s->p >= 2 && *s->p == ' ' && isdigit((unsigned char) s->p[1])) {
		s->p++;
		while (is_bare(peek(s)) || (peek(s) > 0 && strchr("+.:", peek(s))))
			s->p++;
	}
	return 0;
}

static int parse_value(struct parser *s, size_t index, unsigned depth)
{
	int r;

	if (depth >= DEPTH_MAX)
		return -EBADMSG;
	switch (peek(s)) {
	case '"':
	case '\'':
		r = parse_string(s, true);
		if (r == 0 && !s->text_bad)
			s->value(s->path, s->text, index, s->userdata);
		return r;
	case '[':
		return parse_array(s, depth + 1);
	case '{':
		return parse_inline_table(s, depth + 1);
	default:
		return parse_scalar(s, index);
	}
}

/* [a.b] or [[a.b]]: the path of what follows; elements of an array of tables share one path. */
static int parse_header(struct parser *s)
{
	bool list = starts(s, "[[");
	int r;

	s->p += list ? 2 : 1;
	path_cut(s, 0);
	r = parse_key(s);
	if (r < 0)
		return r;
	if (!starts(s, list ? "]]" : "]"))
		return -EBADMSG;
	s->p += list ? 2 : 1;
	return end_of_line(s);
}

int toml_parse(const char *text, size_t len, toml_value_t value, void *userdata, size_t *ret_line)
{
	_cleanup_(freep) struct parser *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	s->p = text;
	s->end = text + len;
	s->line = 1;
	s->value = value;
	s->userdata = userdata;
	if (starts(s, "\xEF\xBB\xBF"))
		s->p += 3;
	for (;;) {
		skip_space(s);
		if (s->p == s->end)
			return 0;
		r = *s->p == '[' ? parse_header(s) : parse_key_value(s, 0);
		if (r == 0 && s->p < s->end && s->p[-1] != '\n')
			r = end_of_line(s);
		if (r < 0)
			break;
	}
	if (ret_line)
		*ret_line = s->line;
	return r;
}
