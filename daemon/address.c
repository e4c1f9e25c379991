/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>

#include "address.h"

int address_parse(struct address *ret, const char *s)
{
	struct address a = {0};
	size_t n = strlen(s);
	char plain[ADDRESS_TEXT_MAX];

	if (n >= 2 && s[0] == '[' && s[n - 1] == ']') {
		s++;
		n -= 2;
	}
	if (n >= sizeof(plain))
		return -EINVAL;
	memcpy(plain, s, n);
	plain[n] = 0;
	if (inet_pton(AF_INET, plain, a.bytes) == 1)
		a.family = AF_INET;
	else if (inet_pton(AF_INET6, plain, a.bytes) == 1)
		a.family = AF_INET6;
	else
		return -EINVAL;
	*ret = a;
	return 0;
}

const char *address_format(const struct address *a, char dst[static ADDRESS_TEXT_MAX])
{
	if (!a->family || !inet_ntop(a->family, a->bytes, dst, ADDRESS_TEXT_MAX))
		dst[0] = 0;
	return dst;
}

static size_t width(const struct address *a)
{
	return a->family == AF_INET ? 4 : a->family == AF_INET6 ? 16 : 0;
}

bool address_equal(const struct address *a, const struct address *b)
{
	return a->family == b->family && memcmp(a->bytes, b->bytes, width(a)) == 0;
}

bool address_in(const struct address *a, const struct address *prefix, unsigned bits)
{
	size_t whole = bits / 8;
	unsigned rest = bits % 8;

	if (!a->family || a->family != prefix->family || bits > width(a) * 8)
		return false;
	if (memcmp(a->bytes, prefix->bytes, whole) != 0)
		return false;
	return rest == 0 || ((a->bytes[whole] ^ prefix->bytes[whole]) >> (8 - rest)) == 0;
}

static bool in_any(const struct address *a, const char *const *prefixes, const unsigned *bits,
                   size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct address p;

		if (address_parse(&p, prefixes[i]) == 0 && address_in(a, &p, bits[i]))
			return true;
	}
	return false;
}

bool address_is_loopback(const struct address *a)
{
	return in_any(a, (const char *const[]){"127.0.0.0", "::1"}, (const unsigned[]){8, 128}, 2);
}

bool address_is_link_local(const struct address *a)
{
	return in_any(a, (const char *const[]){"169.254.0.0", "fe80::"}, (const unsigned[]){16, 10},
	              2);
}

static bool is_reserved(const struct address *a)
{
	return in_any(a, (const char *const[]){"0.0.0.0", "224.0.0.0", "::", "ff00::"},
	              (const unsigned[]){8, 3, 8, 8}, 4);
}

const char *address_kind(const struct address *a)
{
	return address_is_loopback(a)     ? "loopback"
	       : address_is_link_local(a) ? "link-local"
	       : address_is_private(a)    ? "private"
	       : is_reserved(a)           ? "reserved"
	                                  : "public";
}

bool address_is_private(const struct address *a)
{
	return in_any(a,
	              (const char *const[]){"10.0.0.0", "172.16.0.0", "192.168.0.0", "100.64.0.0",
	                                    "fc00::"},
	              (const unsigned[]){8, 12, 16, 10, 7}, 5);
}
