/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>

#include "util.h"

static const char cut_mark[] = "…"; /* three bytes of UTF-8 */

/* Ends dst (size bytes, len of them wanted to be used) with the cut mark, at a character boundary.
 */
static size_t mark_cut(char *dst, size_t size)
{
	size_t end;

	if (size < sizeof(cut_mark)) {
		dst[0] = 0;
		return 0;
	}
	end = size - sizeof(cut_mark);
	while (end > 0 && ((unsigned char) dst[end] & 0xC0) == 0x80)
		end--;
	memcpy(dst + end, cut_mark, sizeof(cut_mark));
	return end + sizeof(cut_mark) - 1;
}

size_t text_vformat(char *dst, size_t size, const char *format, va_list ap)
{
	int n;

	if (size == 0)
		return 0;
	n = vsnprintf(dst, size, format, ap);
	if (n < 0) {
		dst[0] = 0;
		return 0;
	}
	return (size_t) n < size ? (size_t) n : mark_cut(dst, size);
}

size_t text_format(char *dst, size_t size, const char *format, ...)
{
	va_list ap;
	size_t n;

	va_start(ap, format);
	n = text_vformat(dst, size, format, ap);
	va_end(ap);
	return n;
}

size_t text_append(char *dst, size_t size, const char *format, ...)
{
	size_t used = strnlen(dst, size);
	va_list ap;

	if (used >= size)
		return used;
	va_start(ap, format);
	used += text_vformat(dst + used, size - used, format, ap);
	va_end(ap);
	return used;
}

/* Length of the valid UTF-8 character at p, or 0: RFC 3629, no surrogates, no overlong forms. */
static size_t utf8_char(const unsigned char *p, size_t len)
{
	size_t n;

	if (p[0] < 0x80)
		return 1;
	n = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
	if (p[0] < 0xC2 || p[0] > 0xF4 || len < n)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xC0) != 0x80)
			return 0;
	if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) ||
	    (p[0] == 0xF0 && p[1] < 0x90) || (p[0] == 0xF4 && p[1] > 0x8F))
		return 0;
	return n;
}

static uint32_t utf8_decode(const unsigned char *p, size_t n)
{
	uint32_t c = n == 1 ? p[0] : p[0] & (0x7Fu >> n);

	for (size_t i = 1; i < n; i++)
		c = c << 6 | (p[i] & 0x3F);
	return c;
}

struct range {
	uint32_t first, last;
};

static bool in_ranges(uint32_t c, const struct range *r, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (c >= r[i].first && c <= r[i].last)
			return true;
	return false;
}

/* C0, DEL, the C1 controls, which terminals obey too, and what breaks lines or turns their
 * direction: one could make a line read as another. */
static bool is_control(const unsigned char *p, size_t n)
{
	static const struct range controls[] = {
		{0x00, 0x1F}, {0x7F, 0x9F}, {0x2028, 0x202E}, {0x2066, 0x2069}};

	return in_ranges(utf8_decode(p, n), controls, ELEMENTS(controls));
}

/* East Asian Width W and F of Unicode 15, in blocks; and what combines. wcwidth(3) would need a
 * locale. */
static size_t character_columns(uint32_t c)
{
	static const struct range wide[] = {
		{0x1100, 0x115F},   {0x231A, 0x231B},   {0x2E80, 0x303E},   {0x3041, 0x33FF},
		{0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xA000, 0xA4CF},   {0xA960, 0xA97F},
		{0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE10, 0xFE19},   {0xFE30, 0xFE6F},
		{0xFF01, 0xFF60},   {0xFFE0, 0xFFE6},   {0x16FE0, 0x18DFF}, {0x1AFF0, 0x1B2FF},
		{0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
	static const struct range none[] = {
		{0x0300, 0x036F}, {0x200B, 0x200F}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}};

	if (c < 0x0300)
		return 1;
	return in_ranges(c, none, ELEMENTS(none)) ? 0 : in_ranges(c, wide, ELEMENTS(wide)) ? 2 : 1;
}

size_t text_fit(const char *s, size_t len, size_t columns)
{
	const unsigned char *p = (const unsigned char *) s;
	size_t used = 0;

	for (size_t i = 0; i < len;) {
		size_t n = utf8_char(p + i, len - i);

		used += n ? character_columns(utf8_decode(p + i, n)) : 1;
		if (used > columns)
			return i;
		i += n ? n : 1;
	}
	return len;
}

size_t text_columns(const char *s, size_t len)
{
	const unsigned char *p = (const unsigned char *) s;
	size_t used = 0;

	for (size_t i = 0; i < len;) {
		size_t n = utf8_char(p + i, len - i);

		used += n ? character_columns(utf8_decode(p + i, n)) : 1;
		i += n ? n : 1;
	}
	return used;
}

/* password=x, DB_PASSWORD_FILE: x. What follows is gone. */
static void hide_after(char *text, size_t size, const char *name, const char *separators)
{
	for (char *at = strcasestr(text, name); at; at = strcasestr(at + 1, name)) {
		char *end = at + strlen(name);

		while (isalnum((unsigned char) *end) || (*end && strchr("_-\"' ", *end)))
			end++;
		if (*end && strchr(separators, *end) && end[1]) {
			(void) text_format(end + 1, size - (size_t) (end + 1 - text), "…");
			return;
		}
	}
}

/* Long, and with letters of both cases and digits: a key or a token, no word, name or path. */
static bool is_random(const char *s, size_t n)
{
	bool upper = false, lower = false, number = false;

	for (size_t i = 0; i < n; i++) {
		upper |= isupper((unsigned char) s[i]) != 0;
		lower |= islower((unsigned char) s[i]) != 0;
		number |= isdigit((unsigned char) s[i]) != 0;
	}
	return n >= 32 && s[0] != '/' && upper && lower && number;
}

void text_hide_secrets(char *text, size_t size)
{
	static const char *const either[] = {"password", "passwd", "secret", "authorization"};
	static const char *const assigned[] = {"token", "key", "credential"};

	for (size_t i = 0; i < ELEMENTS(either); i++)
		hide_after(text, size, either[i], "=:");
	for (size_t i = 0; i < ELEMENTS(assigned); i++)
		hide_after(text, size, assigned[i], "=");
	for (char *at = strstr(text, "://"); at; at = strstr(at + 3, "://")) {
		char *end = at + 3 + strcspn(at + 3, "@/ \"'");

		if (*end == '@')
			memset(at + 3, '*', (size_t) (end - at - 3));
	}
	for (char *at = text; *at;) {
		size_t n = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
		                      "0123456789+/=_");

		if (is_random(at, n))
			memset(at, '*', n);
		at += n ? n : 1;
	}
}

size_t text_clean(char *dst, size_t size, const void *src, size_t len)
{
	const unsigned char *p = src, *end = p + len;
	size_t used = 0;

	if (size == 0)
		return 0;
	while (p < end) {
		size_t n = utf8_char(p, (size_t) (end - p)), need;
		char piece[8];

		if (n && !is_control(p, n)) {
			memcpy(piece, p, n);
			need = n;
		} else {
			n = 1;
			need = (size_t) snprintf(piece, sizeof(piece), "\\x%02x", p[0]);
		}
		if (used + need >= size) {
			memset(dst + used, 0, size - used);
			return mark_cut(dst, size);
		}
		memcpy(dst + used, piece, need);
		used += need;
		p += n;
	}
	dst[used] = 0;
	return used;
}

bool text_is_clean(const void *src, size_t len)
{
	const unsigned char *p = src, *end = p + len;

	while (p < end) {
		size_t n = utf8_char(p, (size_t) (end - p));

		if (n == 0 || (is_control(p, n) && !strchr("\t\n\r", p[0])) || p[0] == 0)
			return false;
		p += n;
	}
	return true;
}

size_t text_ascii(char *dst, size_t size, const char *src)
{
	size_t used = 0;

	if (size == 0)
		return 0;
	for (const unsigned char *p = (const unsigned char *) src; *p;) {
		size_t n = utf8_char(p, strlen((const char *) p));
		const char *piece = *p == '%' ? "pct" : (char[]){(char) *p, 0};

		if (*p >= 0x7F || *p < 0x20)
			piece = n == 3 && memcmp(p, cut_mark, 3) == 0 ? "..." : "?";
		if (used + strlen(piece) >= size)
			break;
		memcpy(dst + used, piece, strlen(piece));
		used += strlen(piece);
		p += n ? n : 1;
	}
	dst[used] = 0;
	return used;
}

char *text_trim(char *s)
{
	char *end;

	while (*s && isspace((unsigned char) *s))
		s++;
	end = s + strlen(s);
	while (end > s && isspace((unsigned char) end[-1]))
		end--;
	*end = 0;
	return s;
}

int text_to_uint(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;

	if (!*s)
		return -EINVAL;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return -EINVAL;
		if (v > (UINT64_MAX - (uint64_t) (*s - '0')) / 10)
			return -ERANGE;
		v = v * 10 + (uint64_t) (*s - '0');
	}
	if (v < min || v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

uint64_t hash_bytes(uint64_t seed, const void *p, size_t len)
{
	const unsigned char *c = p;
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ seed;

	for (size_t i = 0; i < len; i++) {
		h ^= c[i];
		h *= UINT64_C(0x100000001b3);
	}
	/* FNV alone spreads its high bits badly over short inputs (splitmix64's finish) */
	h = (h ^ (h >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	h = (h ^ (h >> 27)) * UINT64_C(0x94d049bb133111eb);
	return h ^ (h >> 31);
}
