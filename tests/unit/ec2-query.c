/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of EC2's query API, in the shape of its documentation. */
#include <errno.h>

#include "../tap.h"
#include "ec2-query.h"

static const char subnets[] =
	"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	"<DescribeSubnetsResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\n"
	"  <requestId>7a62c49f-347e-4fc4-9331-6e8eEXAMPLE</requestId>\n"
	"  <subnetSet>\n"
	"    <item><subnetId>subnet-0a1b2c3d4e5f60718</subnetId><state>available</state>\n"
	"      <vpcId>vpc-1</vpcId><cidrBlock>10.0.1.0/24</cidrBlock>\n"
	"      <ipv6CidrBlockAssociationSet><item><ipv6CidrBlock>fd00::/64</ipv6CidrBlock></item>\n"
	"      </ipv6CidrBlockAssociationSet>\n"
	"      <availableIpAddressCount>17</availableIpAddressCount>\n"
	"      <tagSet><item><key>a</key><value>b</value></item></tagSet></item>\n"
	"    <item><subnetId>subnet-b</subnetId>\n"
	"      <availableIpAddressCount>0</availableIpAddressCount></item>\n"
	"    <item><subnetId>subnet-c</subnetId></item>\n"
	"    <item><subnetId>subnet-d</subnetId><cidrBlock>10.0.2.0/99</cidrBlock>\n"
	"      <availableIpAddressCount>5</availableIpAddressCount></item>\n"
	"  </subnetSet>\n"
	"</DescribeSubnetsResponse>\n";

#define TYPE_HEAD                                                                                  \
	"<DescribeInstanceTypesResponse><requestId>x</requestId><instanceTypeSet><item>"           \
	"<instanceType>x9.huge</instanceType><bareMetal>false</bareMetal>"                         \
	"<hypervisor>nitro</hypervisor><networkInfo>"
#define TYPE_TAIL "</networkInfo></item></instanceTypeSet></DescribeInstanceTypesResponse>"

static void test_subnets(void)
{
	struct subnet s[8];
	size_t n = 9;

	ok(subnets_parse(subnets, strlen(subnets), s, 8, &n) == 0 && n == 3);
	ok(strcmp(s[0].id, "subnet-0a1b2c3d4e5f60718") == 0);
	ok(strcmp(s[0].cidr, "10.0.1.0/24") == 0 && s[0].free == 17 && s[0].total == 251);
	ok(s[1].free == 0 && s[1].total == 0 && !s[1].cidr[0]); /* of IPv6 alone */
	ok(strcmp(s[2].id, "subnet-d") == 0 && s[2].free == 5 && s[2].total == 0);
	ok(subnets_parse(subnets, strlen(subnets), s, 1, &n) == 0 && n == 1);
	ok(subnets_parse("<x/>", 4, s, 8, &n) == -EBADMSG);
	for (size_t cut = 0; cut < strlen(subnets); cut++) /* never past the end */
		if (subnets_parse(subnets, cut, s, 8, &n) == 0 && n > 3)
			ok(false, "%zu", cut);
}

static void test_type(void)
{
	static const char one[] =
		TYPE_HEAD "<maximumNetworkInterfaces>3</maximumNetworkInterfaces>"
			  "<ipv4AddressesPerInterface>10</ipv4AddressesPerInterface>" TYPE_TAIL;
	static const char cards[] = TYPE_HEAD
		"<maximumNetworkInterfaces>6</maximumNetworkInterfaces>"
		"<maximumNetworkCards>2</maximumNetworkCards>"
		"<defaultNetworkCardIndex>1</defaultNetworkCardIndex><networkCards>"
		"<item><networkCardIndex>0</networkCardIndex>"
		"<maximumNetworkInterfaces>4</maximumNetworkInterfaces></item>"
		"<item><networkCardIndex>1</networkCardIndex>"
		"<maximumNetworkInterfaces>2</maximumNetworkInterfaces></item></networkCards>"
		"<ipv4AddressesPerInterface>50</ipv4AddressesPerInterface>" TYPE_TAIL;
	static const char odd[] = TYPE_HEAD
		"<maximumNetworkInterfaces>99999999999999999999</maximumNetworkInterfaces>"
		"<ipv4AddressesPerInterface>10</ipv4AddressesPerInterface>" TYPE_TAIL;
	struct type_limits l;

	ok(instance_type_parse(one, strlen(one), &l) == 0);
	ok(strcmp(l.instance_type, "x9.huge") == 0 && l.max_enis == 3 && l.ipv4_per_eni == 10);
	ok(l.network_cards == 1 && l.enis_all_cards == 3 && l.prefixes);
	ok(instance_type_parse(cards, strlen(cards), &l) == 0);
	ok(l.max_enis == 2 && l.enis_all_cards == 6 && l.network_cards == 2);
	ok(instance_type_parse(odd, strlen(odd), &l) == -EBADMSG);
	ok(instance_type_parse(subnets, strlen(subnets), &l) == -EBADMSG);
}

int main(void)
{
	test_subnets();
	test_type();
	return done();
}
