/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "embed.h"
#include "eni-limits.h"

enum { TABLE_MAX = 4 << 20, FIELD_MAX = 64, COLUMNS = 8 };

/* The tables are part of the program, so that a bare binary works. */
EMBED(limits_eni_table, "packaging/data/eni-limits.tsv");
EMBED(limits_card_table, "packaging/data/network-cards.tsv");

struct text {
	const char *p;
	size_t len;
};

/* Two symbols of one table: as numbers, since to the language they are two objects. */
static size_t distance(const char *from, const char *to)
{
	return (size_t) ((uintptr_t) to - (uintptr_t) from);
}

static struct text built_in_enis(void)
{
	return (struct text){limits_eni_table, distance(limits_eni_table, limits_eni_table_end)};
}

static struct text built_in_cards(void)
{
	return (struct text){limits_card_table, distance(limits_card_table, limits_card_table_end)};
}

/* The next line that is neither empty, a comment nor the heading. */
static bool next_row(struct text *t, struct text *ret)
{
	static const char heading[] = "instance_type\t";

	while (t->len > 0) {
		const char *nl = memchr(t->p, '\n', t->len);
		struct text row = {t->p, nl ? (size_t) (nl - t->p) : t->len};

		t->p += row.len + (nl != NULL);
		t->len -= row.len + (nl != NULL);
		if (row.len > 0 && row.p[row.len - 1] == '\r')
			row.len--;
		if (row.len == 0 || row.p[0] == '#')
			continue;
		if (row.len >= sizeof(heading) - 1 &&
		    memcmp(row.p, heading, sizeof(heading) - 1) == 0)
			continue;
		*ret = row;
		return true;
	}
	return false;
}

/* Cuts one tab-separated field off the row's front; more than fit is -EBADMSG, none -ENOENT. */
static int next_field(struct text *row, char ret[static FIELD_MAX])
{
	const char *tab;
	size_t n;

	if (!row->p)
		return -ENOENT;
	tab = memchr(row->p, '\t', row->len);
	n = tab ? (size_t) (tab - row->p) : row->len;
	if (n == 0 || n >= FIELD_MAX || memchr(row->p, 0, n))
		return -EBADMSG;
	memcpy(ret, row->p, n);
	ret[n] = 0;
	row->len -= n + (tab != NULL);
	row->p = tab ? tab + 1 : NULL;
	return 0;
}

static int to_int(const char *s, unsigned min, unsigned max, int *ret)
{
	uint64_t v;
	int r;

	r = text_to_uint(s, min, max, &v);
	if (r < 0)
		return r;
	*ret = (int) v;
	return 0;
}

static bool is_bool(const char *s)
{
	return strcmp(s, "true") == 0 || strcmp(s, "false") == 0;
}

/* Columns as in the heading of eni-limits.tsv; more at the end are left for later versions. */
static int parse_row(struct text row, char ret_type[static FIELD_MAX], struct limits *ret)
{
	char f[COLUMNS][FIELD_MAX];
	struct limits l = {0};
	int r, card;

	for (size_t i = 0; i < COLUMNS; i++) {
		r = next_field(&row, f[i]);
		if (r < 0)
			return -EBADMSG;
	}
	if (to_int(f[1], 1, 1024, &l.max_enis) < 0 || to_int(f[2], 1, 1024, &l.ipv4_per_eni) < 0 ||
	    to_int(f[3], 1, 1024, &l.network_cards) < 0 || to_int(f[4], 0, 1023, &card) < 0 ||
	    !is_bool(f[6]) || to_int(f[7], 0, 1 << 24, &l.max_pods) < 0)
		return -EBADMSG;
	l.prefixes = strcmp(f[5], "nitro") == 0 || strcmp(f[6], "true") == 0;
	l.enis_all_cards = l.max_enis;
	memcpy(ret_type, f[0], FIELD_MAX);
	*ret = l;
	return 0;
}

static int parse_card(struct text row, char ret_type[static FIELD_MAX], int *ret_card,
                      int *ret_enis)
{
	char f[3][FIELD_MAX];
	int card, enis;

	for (size_t i = 0; i < ELEMENTS(f); i++)
		if (next_field(&row, f[i]) < 0)
			return -EBADMSG;
	if (to_int(f[1], 0, 1023, &card) < 0 || to_int(f[2], 0, 1024, &enis) < 0)
		return -EBADMSG;
	memcpy(ret_type, f[0], FIELD_MAX);
	*ret_card = card;
	*ret_enis = enis;
	return 0;
}

/* ENIs over all cards of the type, 0 when the table does not list it; of one card when card >= 0,
 * -1 when it has no such card. */
static int count_cards(struct text cards, const char *type, int card, unsigned *bad)
{
	char name[FIELD_MAX];
	struct text row;
	int sum = 0, one = -1, c, enis;

	while (next_row(&cards, &row)) {
		if (parse_card(row, name, &c, &enis) < 0) {
			(*bad)++;
			continue;
		}
		if (strcmp(name, type) != 0)
			continue;
		sum += enis;
		if (c == card)
			one = enis;
	}
	return card >= 0 ? one : sum;
}

/* A row of another type need not be read where nobody asks whether the table is sound. */
static bool is_of(const struct text *row, const char *type, size_t len)
{
	return row->len > len && row->p[len] == '\t' && memcmp(row->p, type, len) == 0;
}

int limits_parse(const char *table, size_t len, const char *cards, size_t cards_len,
                 const char *instance_type, struct limits *ret, unsigned *ret_bad_rows)
{
	struct text t = {table, len}, row;
	struct limits l, found = {0};
	bool known = false;
	unsigned bad = 0;
	char name[FIELD_MAX];
	size_t type_len = strlen(instance_type);
	int sum;

	while (next_row(&t, &row)) {
		if (!ret_bad_rows && !is_of(&row, instance_type, type_len))
			continue;
		if (parse_row(row, name, &l) < 0) {
			bad++;
		} else if (strcmp(name, instance_type) == 0) {
			found = l;
			known = true;
		}
	}
	if (known && cards) {
		sum = count_cards((struct text){cards, cards_len}, instance_type, -1, &bad);
		if (sum > 0)
			found.enis_all_cards = sum;
	}
	if (ret_bad_rows)
		*ret_bad_rows = bad;
	if (!known)
		return -ENOENT;
	*ret = found;
	return 0;
}

/* One of the two places on disk. A file that is not there, or cannot be read, is no row. */
static int lookup_in(const struct files *f, const char *dir, const char *type, struct limits *ret,
                     unsigned *bad)
{
	_cleanup_(freep) char *enis = NULL, *cards = NULL;
	size_t enis_len = 0, cards_len = 0;
	char path[64];
	unsigned rows;
	int r;

	(void) text_format(path, sizeof(path), "%s/eni-limits.tsv", dir);
	r = file_read(f, path, TABLE_MAX, &enis, &enis_len);
	if (r < 0)
		return -ENOENT;
	(void) text_format(path, sizeof(path), "%s/network-cards.tsv", dir);
	if (file_read(f, path, TABLE_MAX, &cards, &cards_len) < 0)
		cards = NULL;
	r = limits_parse(enis, enis_len, cards, cards_len, type, ret, &rows);
	*bad += rows;
	if (r < 0)
		return r;
	if (ret->network_cards > 1 && ret->enis_all_cards == ret->max_enis) {
		int sum = count_cards(built_in_cards(), type, -1, &rows);

		if (sum > 0)
			ret->enis_all_cards = sum;
	}
	(void) text_format(ret->source, sizeof(ret->source), "%s", dir);
	return 0;
}

int limits_lookup(const char *instance_type, struct limits *ret, unsigned *ret_bad_rows)
{
	static const char *const places[] = {"/etc/nodewhy", "/usr/share/nodewhy"};
	struct text enis = built_in_enis(), cards = built_in_cards();
	struct files *f = NULL;
	struct limits l = {0};
	unsigned bad = 0;
	int r = -ENOENT;

	if (files_new(&f, "/") == 0)
		for (size_t i = 0; i < ELEMENTS(places) && r < 0; i++)
			r = lookup_in(f, places[i], instance_type, &l, &bad);
	(void) files_free(f);
	if (r < 0) {
		r = limits_parse(enis.p, enis.len, cards.p, cards.len, instance_type, &l, NULL);
		(void) text_format(l.source, sizeof(l.source), "built in");
	}
	if (ret_bad_rows)
		*ret_bad_rows = bad;
	if (r < 0)
		return r;
	*ret = l;
	return 0;
}

int limits_card_enis(const char *instance_type, int card)
{
	struct text enis = built_in_enis();
	struct limits l;
	unsigned bad = 0;

	if (card < 0 || limits_parse(enis.p, enis.len, NULL, 0, instance_type, &l, NULL) < 0)
		return -1;
	if (l.network_cards > 1)
		return count_cards(built_in_cards(), instance_type, card, &bad);
	return card == 0 ? l.max_enis : -1;
}

int limits_max_pods(const struct limits *l, bool prefix_mode, bool custom_networking)
{
	int enis = l->max_enis - (custom_networking ? 1 : 0);

	return enis * (l->ipv4_per_eni - 1) * (prefix_mode ? 16 : 1) + 2;
}
