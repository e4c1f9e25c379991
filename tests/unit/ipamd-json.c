/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/socket.h>

#include "ipamd-json.h"

#include "../tap.h"

#define CIDR(ip, network, given_back)                                                              \
	"\"" ip "/32\":{\"Cidr\":{\"IP\":\"" ip "\",\"Mask\":\"/////w==\"},\"IPAddresses\":{\"" ip \
	"\":{\"Address\":\"" ip "\",\"IPAMKey\":{\"networkName\":\"" network                       \
	"\",\"containerID\":\"\",\"ifName\":\"\"},\"IPAMMetadata\":{\"k8sPodName\":\"p{}[]\\\"\"}" \
	",\"AssignedTime\":\"2026-08-20T09:00:00Z\",\"UnassignedTime\":\"" given_back "\"}},"      \
	"\"IsPrefix\":false,\"AddressFamily\":\"\"}"
#define NEVER "0001-01-01T00:00:00Z"
#define ENIS                                                                                       \
	"\"TotalIPs\":19,\"AssignedIPs\":1,\"ENIs\":{"                                             \
	"\"eni-0a\":{\"ID\":\"eni-0a\",\"IsPrimary\":true,\"IsTrunk\":false,\"IsEFA\":false,"      \
	"\"DeviceNumber\":0,\"AvailableIPv4Cidrs\":{" CIDR("10.0.1.5", "aws-cni", NEVER) "," CIDR( \
		"10.0.1.6", "",                                                                    \
		"2026-08-20T12:00:10.5+02:00") "," CIDR("10.0.1.7", "",                            \
	                                                "2026-08-20T09:59:00Z") "},\"IPv6Cidrs\":" \
										"{},"              \
										"\"IsExcludedForP" \
										"odIPs\":true,"    \
										"\"RouteTableID\"" \
										":254,"            \
										"\"SubnetID\":"    \
										"\"subnet-a\"},"   \
										"\"eni-0b\":{"     \
										"\"ID\":\"eni-"    \
										"0b\","            \
										"\"IsTrunk\":"     \
										"true,"            \
										"\"DeviceNumber\"" \
										":1,"              \
										"\"AvailableIPv4C" \
										"idrs\":{\"10.0."  \
										"2.0/"             \
										"28\":{"           \
										"\"IPAddresses\":" \
										"{},\"IsPrefix\":" \
										"true}},"          \
										"\"IPv6Cidrs\":{"  \
										"\"2001:db8::/"    \
										"80\":{"           \
										"\"IPAddresses\":" \
										"{},\"IsPrefix\":" \
										"true}},"          \
										"\"RouteTableID\"" \
										":2,\"Later\":[1," \
										"-2.5e3,null,{"    \
										"\"a\":[]}]}}"

/* 2026-08-20T10:00:20Z */
#define NOW (UINT64_C(1787220020) * USEC_PER_SEC)

static int enis(const char *text, struct ipamd_view *v)
{
	return ipamd_enis_parse(text, strlen(text), NOW, v);
}

static void test_view(const char *text, bool by_card)
{
	struct ipamd_view v;

	ok(enis(text, &v) == 0 && v.by_card == by_card);
	ok(v.total == 19 && v.assigned == 1 && v.cooling == 1 && v.n == 2 && !v.more);
	ok(strcmp(v.enis[0].id, "eni-0a") == 0 && strcmp(v.enis[0].subnet, "subnet-a") == 0);
	ok(v.enis[0].primary && !v.enis[0].trunk && v.enis[0].excluded && v.enis[0].device == 0);
	ok(v.enis[0].total == 3 && v.enis[0].assigned == 1 && v.enis[0].cooling == 1);
	ok(v.enis[1].trunk && v.enis[1].total == 16 && v.enis[1].prefixes4 == 1 &&
	   v.enis[1].prefixes6 == 1 && v.enis[1].table == 2 && v.enis[1].device == 1);
}

static void test_enis(void)
{
	static const char *const bad[] = {"",
	                                  "{",
	                                  "[]",
	                                  "{\"ENIs\":{}",
	                                  "{\"ENIs\":{}}x",
	                                  "{\"ENIs\" {}}",
	                                  "{\"a\":\"\\\"}",
	                                  "{\"a\":\"\n\"}",
	                                  "{\"a\":}",
	                                  "{\"a\":1,}",
	                                  "<html>"};
	struct ipamd_view v;
	char deep[256] = "{\"ENIs\":";

	test_view("{" ENIS "}", false);
	test_view("{\"0\":{" ENIS "}}", true);
	ok(enis("{\"0\":{" ENIS "},\"1\":{\"TotalIPs\":4,\"AssignedIPs\":2,\"ENIs\":{\"eni-0c\":{"
	        "\"IsEFA\":true}}}}",
	        &v) == 0);
	ok(v.total == 23 && v.assigned == 3 && v.n == 3 && v.enis[2].card == 1 && v.enis[2].efa);
	ok(strcmp(v.enis[2].id, "eni-0c") == 0);
	ok(enis("{\"0\":{\"TotalIPs\":0,\"AssignedIPs\":0,\"ENIs\":{}}}", &v) == 0 && v.n == 0);
	ok(enis("{\"AvailableCommands\":[\"/v1/enis\"]}", &v) == -ENOENT);
	ok(enis("{\"ENIs\":null,\"TotalIPs\":{}}", &v) == -ENOENT);
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		ok(enis(bad[i], &v) == -EBADMSG);
	memset(deep + strlen(deep), '[', 100);
	ok(enis(deep, &v) == -EBADMSG);
}

static int checkpoint(const char *text, struct ipamd_allocation *a, size_t *n, bool *more)
{
	return ipamd_checkpoint_parse(text, strlen(text), a, 2, n, more);
}

static void test_checkpoint(void)
{
#define ONE(family, ip)                                                                            \
	"{\"networkName\":\"aws-cni\",\"containerID\":\"ab\",\"ifName\":\"eth0\",\"" family        \
	"\":\"" ip "\",\"allocationTimestamp\":1700000000000000000,\"metadata\":{"                 \
	"\"k8sPodNamespace\":\"ns\",\"k8sPodName\":\"p\",\"interfacesCount\":1}}"
	struct ipamd_allocation a[2];
	char text[ADDRESS_TEXT_MAX];
	size_t n = 9;
	bool more = true;

	ok(checkpoint("{\"version\":\"vpc-cni-ipam/1\",\"allocations\":[" ONE(
			      "ipv4", "10.0.1.7") "," ONE("ipv6", "2001:db8::7") "]}",
	              a, &n, &more) == 0);
	ok(a[0].at == UINT64_C(1700000000) * USEC_PER_SEC);
	ok(n == 2 && !more && strcmp(address_format(&a[0].address, text), "10.0.1.7") == 0);
	ok(strcmp(address_format(&a[1].address, text), "2001:db8::7") == 0);
	ok(checkpoint(
		   "{\"allocations\":[" ONE("ipv4", "10.0.1.7") "," ONE("ipv4", "10.0.1.8") "," ONE(
			   "ipv4", "10.0.1.9") "],\"version\":\"vpc-cni-ipam/1\"}",
		   a, &n, &more) == 0);
	ok(n == 2 && more);
	ok(checkpoint("{\"version\":\"vpc-cni-ipam/1\",\"allocations\":null}", a, &n, &more) == 0);
	ok(n == 0 && !more);
	ok(checkpoint("{\"version\":\"vpc-cni-ipam/1\",\"allocations\":[" ONE("ipv4",
	                                                                      "nonsense") ",7]}",
	              a, &n, &more) == 0 &&
	   n == 0);
	ok(checkpoint("{\"version\":\"vpc-cni-ipam/2\",\"allocations\":[]}", a, &n, &more) ==
	   -EPROTONOSUPPORT);
	ok(checkpoint("{\"version\":\"vpc-cni-ipam/1\",\"alloc", a, &n, &more) == -EBADMSG);
}

static void test_environment(void)
{
	static const char oci[] =
		"{\"ociVersion\":\"1.1.0\",\"process\":{\"user\":{\"uid\":0},\"args\":[\"/app/"
		"aws-vpc-cni\"],"
		"\"env\":[\"PATH=/usr/bin\",\"AWS_SECRET_ACCESS_KEY=hush\",\"ENABLE_IPv6=false\","
		"\"ENABLE_PREFIX_DELEGATION=true\",\"WARM_PREFIX_TARGET=1\",\"WARM_IP_TARGET=x\","
		"\"AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=true\",\"ENABLE_POD_ENI=1\",\"MINIMUM_IP_"
		"TARGET=\","
		"\"AWS_ROLE_ARN=arn:aws:iam::111122223333:role/a\\u0026b\",\"WARM_ENI_TARGET=2\","
		"\"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://169.254.170.23/v1/credentials\"],"
		"\"cwd\":\"/"
		"app\"},\"annotations\":{\"io.kubernetes.cri.container-name\":\"aws-node\","
		"\"io.kubernetes.cri.sandbox-name\":\"aws-node-x7k2p\",\"io.kubernetes.cri.image-"
		"name\":"
		"\"602401143452.dkr.ecr.us-west-2.amazonaws.com:443/"
		"amazon-k8s-cni:v1.23.1-eksbuild.1\"}}";
	static const char env[] =
		"A=b\0VPC_CNI_VERSION=v1.22.0\0ENABLE_IPv6=true\0WARM_IP_TARGET=7";
	struct oci_container c;

	ok(oci_config_parse(oci, sizeof(oci) - 1, &c) == 0 && c.settings.known);
	ok(strcmp(c.name, "aws-node") == 0 && strcmp(c.pod, "aws-node-x7k2p") == 0);
	ok(strcmp(c.version, "v1.23.1-eksbuild.1") == 0);
	ok(c.settings.prefix && c.settings.custom && c.settings.pod_eni && !c.settings.ipv6);
	ok(c.settings.warm_eni == 2 && c.settings.warm_prefix == 1 && c.settings.warm_ip == -1 &&
	   c.settings.minimum_ip == -1);
	ok(c.settings.web_identity && c.settings.pod_identity);
	ok(strcmp(c.settings.role_arn, "arn:aws:iam::111122223333:role/a&b") == 0);
	ok(memmem(&c, sizeof(c), "hush", 4) == NULL);
	ok(oci_config_parse(oci, sizeof(oci) - 2, &c) == -EBADMSG);
	ok(oci_config_parse("{\"process\":7,\"annotations\":[1]", 30, &c) == -EBADMSG);
	ok(oci_config_parse("{\"process\":7,\"annotations\":[]}", 30, &c) == 0 &&
	   !c.settings.known);
	ipamd_environ_parse(env, sizeof(env) - 1, &c);
	ok(c.settings.known && c.settings.ipv6 && c.settings.warm_ip == 7 && !c.settings.prefix);
	ok(strcmp(c.version, "v1.22.0") == 0 && c.settings.role_arn[0] == 0);
	ipamd_environ_parse("", 0, &c);
	ok(!c.settings.known);
}

#define START       "{\"level\":\"info\",\"msg\":\"Starting L-IPAMD v1.23.0  ...\"}\n"
#define ERROR(text) "{\"level\":\"error\",\"ts\":\"t\",\"msg\":\"" text "\"}\n"

static void test_snat(void)
{
	static const char kept[] = "AWS_VPC_K8S_CNI_RANDOMIZESNAT=none\0"
				   "AWS_VPC_K8S_CNI_EXTERNALSNAT=true";
	static const char random[] = "AWS_VPC_K8S_CNI_RANDOMIZESNAT=prng\0"
				     "AWS_VPC_K8S_CNI_EXTERNALSNAT=false";
	struct oci_container c;

	ipamd_environ_parse(kept, sizeof(kept), &c);
	ok(c.settings.kept_ports && c.settings.external_snat);
	ipamd_environ_parse(random, sizeof(random), &c);
	ok(!c.settings.kept_ports && !c.settings.external_snat);
}

static const char *last_error(const char *log)
{
	static char text[40];

	return ipamd_log_error(log, strlen(log), text, sizeof(text)) ? text : "";
}

static void test_log_error(void)
{
	ok(!last_error("")[0] && !last_error(START)[0]);
	ok(strcmp(last_error(ERROR("a") ERROR("b")), "b") == 0);
	ok(strcmp(last_error(START ERROR("mine") START), "mine") == 0); /* the next has begun */
	ok(!last_error(ERROR("old") START START)[0]); /* of a life before the last two */
	ok(strcmp(last_error(START ERROR("say \\\"no\\\"")), "say \"no\"") == 0);
	ok(!last_error(START "{\"level\":\"error\",\"msg\":\"cut")[0]);
	ok(!last_error("{\"level\":\"error\"}\n")[0]);
	ok(!last_error("{\"level\":\"warn\",\"msg\":\"w\"}\n")[0]);
	ok(strcmp(last_error("{\"level\":\"fatal\",\"msg\":\"f\"}\n"), "f") == 0);
	ok(strlen(last_error(ERROR("0123456789012345678901234567890123456789"))) < 40);
}

int main(void)
{
	test_snat();
	test_log_error();
	test_enis();
	test_checkpoint();
	test_environment();
	return done();
}
