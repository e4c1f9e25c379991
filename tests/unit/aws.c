/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "../tap.h"
#include "aws.h"

static bool host_is(enum service s, struct aws_name_options o, const char *want)
{
	char host[AWS_HOST_MAX];
	int r = aws_host(s, &o, host, sizeof(host));

	if (r == 0 && strcmp(host, want) == 0)
		return true;
	printf("# %d %s\n", r, r == 0 ? host : "");
	return false;
}

static bool partition_is(const char *region, const char *name)
{
	const struct partition *p = aws_partition_of(region);

	return p && strcmp(p->name, name) == 0;
}

static void regions(void)
{
	static const char *const bad[] = {"",          "us",          "us-west",      "us-west-",
	                                  "-us-1",     "us--1",       "us-west-2a",   "US-WEST-2",
	                                  "us-west-x", "us_west_2",   "us-2-west",    "1s-west-2",
	                                  "u-west-2",  "us-west-2\n", "us-west-2.eks"};

	ok(aws_is_region("us-west-2"));
	ok(aws_is_region("us-gov-east-1"));
	ok(aws_is_region("eusc-de-east-1"));
	ok(aws_is_region("ap-southeast-10"));
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		ok(!aws_is_region(bad[i]));
	ok(!aws_is_region("us-averyveryveryverylongnamefora-1"));
	ok(partition_is("us-west-2", "aws") && partition_is("mx-central-1", "aws"));
	ok(partition_is("cn-north-1", "aws-cn"));
	ok(partition_is("us-gov-west-1", "aws-us-gov"));
	ok(partition_is("us-iso-east-1", "aws-iso") && partition_is("us-isob-east-1", "aws-iso-b"));
	ok(partition_is("us-isof-south-1", "aws-iso-f") &&
	   partition_is("eu-isoe-west-1", "aws-iso-e"));
	ok(partition_is("eusc-de-east-1", "aws-eusc"));
	ok(!aws_partition_of("nonsense"));
}

static void hosts(void)
{
	struct aws_name_options o = {.region = "us-west-2"};
	char host[AWS_HOST_MAX];

	ok(host_is(SERVICE_EC2, o, "ec2.us-west-2.amazonaws.com"));
	ok(host_is(SERVICE_STS, o, "sts.us-west-2.amazonaws.com"));
	o.fips = true;
	ok(host_is(SERVICE_STS, o, "sts-fips.us-west-2.amazonaws.com"));
	o.dualstack = true;
	ok(host_is(SERVICE_EC2, o, "ec2-fips.us-west-2.api.aws"));
	o.fips = false;
	ok(host_is(SERVICE_EC2, o, "ec2.us-west-2.api.aws"));
	o = (struct aws_name_options){.region = "us-gov-west-1", .fips = true};
	ok(host_is(SERVICE_EC2, o, "ec2.us-gov-west-1.amazonaws.com"));
	o = (struct aws_name_options){.region = "cn-north-1"};
	ok(host_is(SERVICE_EC2, o, "ec2.cn-north-1.amazonaws.com.cn"));
	o.domain = "amazonaws.eu";
	ok(host_is(SERVICE_EC2, o, "ec2.cn-north-1.amazonaws.eu"));
	o.domain = "example.test"; /* no domain of AWS: metadata does not say where we connect to */
	ok(host_is(SERVICE_EC2, o, "ec2.cn-north-1.amazonaws.com.cn"));
	ok(!aws_is_domain("") && !aws_is_domain("amazonaws.com.evil.test") &&
	   aws_is_domain("amazonaws.com"));
	o = (struct aws_name_options){.region = "us-iso-east-1", .dualstack = true};
	ok(aws_host(SERVICE_EC2, &o, host, sizeof(host)) == -EOPNOTSUPP);
	o = (struct aws_name_options){.region = NULL};
	ok(aws_host(SERVICE_EC2, &o, host, sizeof(host)) == -EINVAL);
	o.region = "us-west-2";
	ok(aws_host(SERVICE_EC2, &o, host, 10) == -EINVAL);
	ok(service_from_name("sts") == SERVICE_STS && service_from_name("s") == -EINVAL);
}

static bool url_is(const char *url, const char *scheme, const char *host, unsigned port)
{
	char s[8] = "", h[32] = "";
	uint16_t p = 0;

	return aws_endpoint_url(url, s, h, sizeof(h), &p) == 0 && strcmp(s, scheme) == 0 &&
	       strcmp(h, host) == 0 && p == port;
}

static void urls(void)
{
	static const char *const bad[] = {"",
	                                  "ec2.test",
	                                  "ftp://x",
	                                  "https://",
	                                  "https://:80",
	                                  "https://a:0",
	                                  "https://a:65536",
	                                  "https://a:",
	                                  "https://u@a",
	                                  "https://[::1",
	                                  "https://[::1]x",
	                                  "https://a b",
	                                  "https://this-host-name-is-longer-than-its-room.test"};
	char s[8], h[32];
	uint16_t p;

	ok(url_is("https://ec2.test", "https", "ec2.test", 443));
	ok(url_is("HTTP://10.0.0.1:8080/path?x", "http", "10.0.0.1", 8080));
	ok(url_is("https://[fd00::1]:444/", "https", "fd00::1", 444));
	ok(url_is("http://[::1]", "http", "::1", 80));
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		ok(aws_endpoint_url(bad[i], s, h, sizeof(h), &p) == -EINVAL);
}

static bool region_is(const char *text, const char *want)
{
	char region[AWS_REGION_MAX];

	return region_from_kubeconfig(text, strlen(text), region) == 0 && strcmp(region, want) == 0;
}

static void kubeconfigs(void)
{
	static const char al2023[] =
		"apiVersion: v1\nclusters:\n- cluster:\n"
		"    server: https://0123ABCD.gr7.us-east-2.eks.amazonaws.com\n"
		"users:\n- name: kubelet\n  user:\n    exec:\n"
		"      command: aws\n      args:\n        - \"eks\"\n"
		"        - get-token\n        - \"--cluster-name\"\n"
		"        - \"prod_1\"\n        - --region\n        - us-west-2\n";
	static const char server[] = "server: https://0A.yl4.eu-west-1.eks.amazonaws.com:443";
	static const char dual[] = "server: https://0A.gr7.eks-cluster.eu-west-3.api.aws";
	static const char flow[] = "args: [token, -i, \"my-cluster\", '--region=cn-north-1']";
	static const char comment[] = "# --region us-west-2\nserver: https://api.example.test";
	static const char junk[] = "--region\0 \0us-west-1";
	char region[AWS_REGION_MAX], cluster[104];

	ok(region_is(al2023, "us-west-2"));
	ok(region_is(server, "eu-west-1"));
	ok(region_is(dual, "eu-west-3"));
	ok(region_is(flow, "cn-north-1"));
	ok(!region_is(comment, "us-west-2"));
	ok(!region_is("--region", ""));
	ok(region_is("--region nonsense https://x.y.us-east-1.eks.amazonaws.com", "us-east-1"));
	ok(region_from_kubeconfig(junk, sizeof(junk) - 1, region) == 0 &&
	   strcmp(region, "us-west-1") == 0);
	ok(region_from_kubeconfig("", 0, region) == -ENOENT);
	ok(cluster_from_kubeconfig(al2023, strlen(al2023), cluster, sizeof(cluster)) == 0 &&
	   strcmp(cluster, "prod_1") == 0);
	ok(cluster_from_kubeconfig(flow, strlen(flow), cluster, sizeof(cluster)) == 0 &&
	   strcmp(cluster, "my-cluster") == 0);
	ok(cluster_from_kubeconfig("-i $(x)", 7, cluster, sizeof(cluster)) == -ENOENT);
	ok(cluster_from_kubeconfig(server, strlen(server), cluster, sizeof(cluster)) == -ENOENT);
}

static void searches(void)
{
	char region[AWS_REGION_MAX];

	ok(region_from_search("us-west-2.compute.internal", region) == 0 &&
	   strcmp(region, "us-west-2") == 0);
	ok(region_from_search("EU-west-2.Compute.internal.", region) == 0 &&
	   strcmp(region, "eu-west-2") == 0);
	ok(region_from_search("ec2.internal", region) == 0 && strcmp(region, "us-east-1") == 0);
	ok(region_from_search("corp.example", region) == -ENOENT);
	ok(region_from_search("", region) == -ENOENT && region_from_search(".", region) == -ENOENT);
	ok(region_from_search(".compute.internal", region) == -ENOENT);
	ok(region_from_search("x.us-west-2.compute.internal", region) == -ENOENT);
}

int main(void)
{
	regions();
	hosts();
	urls();
	kubeconfigs();
	searches();
	return done();
}
