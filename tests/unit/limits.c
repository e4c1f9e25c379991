/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "../tap.h"
#include "eni-limits.h"

static const char heading[] =
	"instance_type\tmax_enis\tipv4_per_eni\tnetwork_cards\tdefault_network_"
	"card_index\thypervisor\tbare_metal\tmax_pods\n";

/* Every row of the table that ships, looked up by its own name in what is built in. */
static void test_all_rows(void)
{
	FILE *f = fopen("packaging/data/eni-limits.tsv", "re");
	unsigned rows = 0, formula = 0, same = 0, cards = 0;
	char line[512], type[64];
	int enis, per, n_cards, max_pods;

	ok(f != NULL);
	while (f && fgets(line, sizeof(line), f)) {
		struct limits l;
		unsigned bad = 1;
		int sum = 0;

		if (sscanf(line, "%63s\t%d\t%d\t%d\t%*d\t%*s\t%*s\t%d", type, &enis, &per, &n_cards,
		           &max_pods) != 5)
			continue;
		rows++;
		if (limits_lookup(type, &l, &bad) < 0 || bad)
			continue;
		same += l.max_enis == enis && l.ipv4_per_eni == per && l.network_cards == n_cards;
		formula += l.max_pods == max_pods && max_pods == enis * (per - 1) + 2 &&
		           limits_max_pods(&l, false, false) == max_pods;
		for (int c = 0; c < n_cards; c++)
			sum += limits_card_enis(type, c);
		cards += sum == l.enis_all_cards && limits_card_enis(type, n_cards) == -1;
	}
	if (f)
		(void) fclose(f);
	ok(rows == 1391);
	ok(same == rows);
	ok(formula == rows);
	ok(cards == rows);
}

static int look(const char *rows, const char *cards, const char *type, struct limits *ret,
                unsigned *bad)
{
	static char table[4096];

	(void) text_format(table, sizeof(table), "%s%s", heading, rows);
	return limits_parse(table, strlen(table), cards, cards ? strlen(cards) : 0, type, ret, bad);
}

int main(void)
{
	struct limits l = {0};
	unsigned bad = 9;

	test_all_rows();
	ok(limits_lookup("m5.large", &l, &bad) == 0 && l.max_enis == 3 && l.ipv4_per_eni == 10);
	ok(l.max_pods == 29 && l.prefixes && l.network_cards == 1 && l.enis_all_cards == 3);
	ok(strcmp(l.source, "built in") == 0 || l.source[0] == '/');
	ok(limits_max_pods(&l, true, false) == 434);
	ok(limits_max_pods(&l, false, true) == 20 && limits_max_pods(&l, true, true) == 290);
	ok(limits_lookup("p5.48xlarge", &l, &bad) == 0 && l.max_enis == 2);
	ok(l.network_cards == 32 && l.enis_all_cards == 64);
	ok(limits_lookup("m1.small", &l, &bad) == 0 && !l.prefixes);
	ok(limits_lookup("a1.metal", &l, &bad) == 0 && l.prefixes);
	ok(limits_lookup("m5.larg", &l, &bad) == -ENOENT);
	ok(limits_lookup("", &l, &bad) == -ENOENT);
	ok(limits_lookup("instance_type", &l, &bad) == -ENOENT);
	ok(limits_card_enis("p5.48xlarge", 31) == 2 && limits_card_enis("p5.48xlarge", 32) == -1);
	ok(limits_card_enis("m5.large", 0) == 3 && limits_card_enis("m5.large", 1) == -1);
	ok(limits_card_enis("nothing", 0) == -1 && limits_card_enis("m5.large", -1) == -1);

	ok(look("x.big\t4\t15\t2\t0\tnitro\tfalse\t58\n", "x.big\t0\t4\nx.big\t1\t3\ny\t0\t9\n",
	        "x.big", &l, &bad) == 0 &&
	   bad == 0 && l.enis_all_cards == 7);
	ok(look("# mine\nx.big\t4\t15\t1\t0\txen\tfalse\t58\r\n", NULL, "x.big", &l, &bad) == 0 &&
	   bad == 0 && !l.prefixes && l.enis_all_cards == 4);
	ok(look("x.big\t4\n\t\t\ny\t-1\t15\t1\t0\txen\tfalse\t58\nx."
	        "big\t4\t15\t1\t0\txen\tno\t58\n",
	        NULL, "x.big", &l, &bad) == -ENOENT &&
	   bad == 4);
	ok(look("x.big\t4\t99999999999999999999\t1\t0\txen\tfalse\t58\nx."
	        "big\t2\t2\t1\t0\txen\tfalse"
	        "\t4\textra",
	        NULL, "x.big", &l, &bad) == 0 &&
	   bad == 1 && l.max_enis == 2);
	ok(limits_parse("", 0, NULL, 0, "x", &l, &bad) == -ENOENT && bad == 0);
	ok(limits_parse("x.big", 5, NULL, 0, "x.big", &l, NULL) == -ENOENT);
	return done();
}
