/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "aws-query.h"
#include "ec2-query.h"

/* More than any type has, and no number of ours overflows. */
enum { ENIS_LIMIT = 1024, ADDRESSES_LIMIT = 1024, CARDS_LIMIT = 64 };

struct text {
	const char *at;
	size_t len;
};

static bool element(struct text in, const char *tag, struct text *ret)
{
	return aws_xml_text(in.at, in.len, tag, &ret->at, &ret->len);
}

/* The next child of a list, and what is left behind it. A child's own lists are of the same name:
 * its end is where as many were closed as opened. */
static bool next_item(struct text *list, struct text *ret)
{
	static const char open[] = "<item>", close[] = "</item>";
	const char *begin = memmem(list->at, list->len, open, sizeof(open) - 1);
	const char *end = list->at + list->len, *p;
	size_t depth = 1;

	if (!begin)
		return false;
	begin += sizeof(open) - 1;
	for (p = begin; p < end; p++) {
		if (*p != '<')
			continue;
		if ((size_t) (end - p) >= sizeof(open) - 1 &&
		    memcmp(p, open, sizeof(open) - 1) == 0)
			depth++;
		else if ((size_t) (end - p) >= sizeof(close) - 1 &&
		         memcmp(p, close, sizeof(close) - 1) == 0 && --depth == 0)
			break;
	}
	if (p == end)
		return false;
	*ret = (struct text){begin, (size_t) (p - begin)};
	list->at = p + sizeof(close) - 1;
	list->len = (size_t) (end - list->at);
	return true;
}

static bool number(struct text in, const char *tag, uint64_t max, uint64_t *ret)
{
	struct text t;
	char digits[24];

	if (!element(in, tag, &t) || t.len == 0 || t.len >= sizeof(digits))
		return false;
	memcpy(digits, t.at, t.len);
	digits[t.len] = 0;
	return text_to_uint(digits, 0, max, ret) == 0;
}

static bool word(struct text in, const char *tag, char *ret, size_t size)
{
	struct text t;

	if (!element(in, tag, &t) || t.len == 0 || t.len >= size)
		return false;
	(void) text_clean(ret, size, t.at, t.len);
	return true;
}

static int64_t addresses_of(const char *cidr)
{
	const char *slash = strchr(cidr, '/');
	uint64_t bits;

	if (!slash || text_to_uint(slash + 1, 8, 28, &bits) < 0)
		return 0;
	return ((int64_t) 1 << (32 - bits)) - 5;
}

static bool subnet_of(struct text item, struct subnet *ret)
{
	uint64_t free_addresses;

	*ret = (struct subnet){0};
	if (!word(item, "subnetId", ret->id, sizeof(ret->id)) ||
	    !number(item, "availableIpAddressCount", UINT32_MAX, &free_addresses))
		return false;
	ret->free = (int64_t) free_addresses;
	if (word(item, "cidrBlock", ret->cidr, sizeof(ret->cidr)))
		ret->total = addresses_of(ret->cidr);
	return true;
}

int subnets_parse(const char *text, size_t len, struct subnet *ret, size_t max, size_t *ret_n)
{
	struct text list, item;
	size_t n = 0;

	if (!element((struct text){text, len}, "subnetSet", &list))
		return -EBADMSG;
	while (n < max && next_item(&list, &item))
		if (subnet_of(item, &ret[n]))
			n++;
	*ret_n = n;
	return 0;
}

/* The cards are a list of their own; the default one is what pods get addresses of. */
static bool cards_of(struct text network, struct type_limits *ret)
{
	uint64_t which = 0, index, enis;
	struct text list, item;
	bool found = false;

	(void) number(network, "defaultNetworkCardIndex", CARDS_LIMIT, &which);
	if (!element(network, "networkCards", &list))
		return false;
	while (next_item(&list, &item)) {
		if (!number(item, "networkCardIndex", CARDS_LIMIT, &index) ||
		    !number(item, "maximumNetworkInterfaces", ENIS_LIMIT, &enis))
			return false;
		ret->network_cards++;
		ret->enis_all_cards += (int) enis;
		if (index == which) {
			ret->max_enis = (int) enis;
			found = true;
		}
	}
	return found && ret->network_cards <= CARDS_LIMIT;
}

int instance_type_parse(const char *text, size_t len, struct type_limits *ret)
{
	struct text list, item, network;
	char hypervisor[16] = "", metal[8] = "";
	uint64_t addresses, enis;

	*ret = (struct type_limits){0};
	if (!element((struct text){text, len}, "instanceTypeSet", &list) ||
	    !next_item(&list, &item) ||
	    !word(item, "instanceType", ret->instance_type, sizeof(ret->instance_type)) ||
	    !element(item, "networkInfo", &network) ||
	    !number(network, "ipv4AddressesPerInterface", ADDRESSES_LIMIT, &addresses))
		return -EBADMSG;
	ret->ipv4_per_eni = (int) addresses;
	if (!cards_of(network, ret)) {
		/* of before there were cards: what is said of the instance is of its only one */
		if (!number(network, "maximumNetworkInterfaces", ENIS_LIMIT, &enis))
			return -EBADMSG;
		ret->network_cards = 1;
		ret->max_enis = ret->enis_all_cards = (int) enis;
	}
	(void) word(item, "hypervisor", hypervisor, sizeof(hypervisor));
	(void) word(item, "bareMetal", metal, sizeof(metal));
	ret->prefixes = strcmp(hypervisor, "nitro") == 0 || strcmp(metal, "true") == 0;
	return ret->max_enis > 0 && ret->ipv4_per_eni > 0 ? 0 : -EBADMSG;
}
