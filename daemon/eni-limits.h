/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Instance-type limits: how many ENIs, addresses and pods a type carries. */

#include "file.h"

struct limits {
	int max_enis;     /* on the default card */
	int ipv4_per_eni; /* its primary address included */
	int network_cards;
	int enis_all_cards; /* sum over the cards */
	bool prefixes;      /* can carry prefixes: nitro or bare metal */
	int max_pods;       /* in secondary-address mode, the ENI formula */
	char source[32];    /* "built in", "/usr/share/nodewhy" or "/etc/nodewhy" */
};

/* Looks a type up in /etc/nodewhy, /usr/share/nodewhy (the process's own file system), then the
 * table that is built in; row by row, the first that knows it. -ENOENT for an unknown type; a row
 * that does not parse is passed over and counted in *ret_bad_rows. */
int limits_lookup(const char *instance_type, struct limits *ret, unsigned *ret_bad_rows);
/* One table in memory; for limits_lookup() and the fuzzer. cards is network-cards.tsv or NULL. */
int limits_parse(const char *table, size_t len, const char *cards, size_t cards_len,
                 const char *instance_type, struct limits *ret, unsigned *ret_bad_rows);
/* -1 for a card the type does not have. Built-in table. */
int limits_card_enis(const char *instance_type, int card);
/* max_enis * (ipv4_per_eni - 1) * (prefix ? 16 : 1) + 2; custom networking leaves out one ENI. */
int limits_max_pods(const struct limits *l, bool prefix_mode, bool custom_networking);
