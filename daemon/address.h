/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* An IP address of either family as a plain value. Pure. */

#include "util.h"

struct address {
	uint8_t family;    /* AF_INET, AF_INET6, or 0: none */
	uint8_t bytes[16]; /* network order; 4 of them for AF_INET */
};

enum { ADDRESS_TEXT_MAX = 46 }; /* INET6_ADDRSTRLEN */

/* Parses a literal of either family, brackets allowed around IPv6. -EINVAL. */
int address_parse(struct address *ret, const char *s);
/* Formats; "" for family 0. Returns dst. */
const char *address_format(const struct address *a, char dst[static ADDRESS_TEXT_MAX]);
bool address_equal(const struct address *a, const struct address *b);
bool address_is_loopback(const struct address *a);   /* 127/8, ::1 */
bool address_is_link_local(const struct address *a); /* 169.254/16, fe80::/10 */
/* RFC 1918, RFC 6598 100.64/10, ULA fc00::/7: inside a VPC, an interface endpoint's address. */
bool address_is_private(const struct address *a);
/* "loopback", "link-local", "private", "reserved" (no host has it: 0/8, multicast, …) or "public".
 */
const char *address_kind(const struct address *a);
/* True when a lies in prefix/bits (same family). */
bool address_in(const struct address *a, const struct address *prefix, unsigned bits);
