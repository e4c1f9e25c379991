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
	ok(service_from_name("ecr.dkr") == SERVICE_ECR_DKR);
	ok(service_from_name("sts") == SERVICE_STS && service_from_name("s") == -EINVAL);
}

/* What botocore's rule sets give for the same questions. */
static void others(void)
{
	static const struct {
		enum service s;
		const char *region;
		const char *plain, *fips, *dual, *both;
	} rows[] = {
		{SERVICE_EKS, "us-west-2", "eks.us-west-2.amazonaws.com",
	         "fips.eks.us-west-2.amazonaws.com", "eks.us-west-2.api.aws",
	         "eks-fips.us-west-2.api.aws"},
		{SERVICE_EKS, "us-gov-west-1", "eks.us-gov-west-1.amazonaws.com",
	         "eks.us-gov-west-1.amazonaws.com", "eks.us-gov-west-1.api.aws",
	         "eks-fips.us-gov-west-1.api.aws"},
		{SERVICE_EKS, "cn-north-1", "eks.cn-north-1.amazonaws.com.cn",
	         "eks-fips.cn-north-1.amazonaws.com.cn",
	         "eks.cn-north-1.api.amazonwebservices.com.cn",
	         "eks-fips.cn-north-1.api.amazonwebservices.com.cn"},
		{SERVICE_ECR_API, "us-west-2", "api.ecr.us-west-2.amazonaws.com",
	         "ecr-fips.us-west-2.amazonaws.com", "ecr.us-west-2.api.aws",
	         "ecr-fips.us-west-2.api.aws"},
		{SERVICE_ECR_API, "us-gov-west-1", "api.ecr.us-gov-west-1.amazonaws.com",
	         "ecr-fips.us-gov-west-1.amazonaws.com", "ecr.us-gov-west-1.api.aws",
	         "ecr-fips.us-gov-west-1.api.aws"},
		{SERVICE_ECR_API, "cn-north-1", "api.ecr.cn-north-1.amazonaws.com.cn",
	         "api.ecr-fips.cn-north-1.amazonaws.com.cn",
	         "ecr.cn-north-1.api.amazonwebservices.com.cn",
	         "api.ecr-fips.cn-north-1.api.amazonwebservices.com.cn"},
		{SERVICE_ECR_API, "eusc-de-east-1", "api.ecr.eusc-de-east-1.amazonaws.eu",
	         "api.ecr-fips.eusc-de-east-1.amazonaws.eu",
	         "api.ecr.eusc-de-east-1.api.amazonwebservices.eu",
	         "api.ecr-fips.eusc-de-east-1.api.amazonwebservices.eu"},
		{SERVICE_S3, "us-west-2", "s3.us-west-2.amazonaws.com",
	         "s3-fips.us-west-2.amazonaws.com", "s3.dualstack.us-west-2.amazonaws.com",
	         "s3-fips.dualstack.us-west-2.amazonaws.com"},
		{SERVICE_S3, "us-gov-west-1", "s3.us-gov-west-1.amazonaws.com",
	         "s3-fips.us-gov-west-1.amazonaws.com", "s3.dualstack.us-gov-west-1.amazonaws.com",
	         "s3-fips.dualstack.us-gov-west-1.amazonaws.com"},
	};
	struct aws_name_options o = {.region = "us-west-2", .account = "111122223333"};
	char host[AWS_HOST_MAX];

	for (size_t i = 0; i < ELEMENTS(rows); i++) {
		o = (struct aws_name_options){.region = rows[i].region};
		ok(host_is(rows[i].s, o, rows[i].plain));
		o.fips = true;
		ok(host_is(rows[i].s, o, rows[i].fips));
		o.dualstack = true;
		ok(host_is(rows[i].s, o, rows[i].both));
		o.fips = false;
		ok(host_is(rows[i].s, o, rows[i].dual));
	}
	o = (struct aws_name_options){.region = "us-iso-east-1"};
	ok(host_is(SERVICE_S3, o, "s3.us-iso-east-1.c2s.ic.gov"));
	o = (struct aws_name_options){.region = "cn-north-1", .fips = true};
	ok(aws_host(SERVICE_S3, &o, host, sizeof(host)) == -EOPNOTSUPP);
	o = (struct aws_name_options){.region = "us-west-2", .account = "111122223333"};
	ok(host_is(SERVICE_ECR_DKR, o, "111122223333.dkr.ecr.us-west-2.amazonaws.com"));
	o.dualstack = o.fips = true; /* it stands in the image's name */
	ok(host_is(SERVICE_ECR_DKR, o, "111122223333.dkr.ecr.us-west-2.amazonaws.com"));
	ok(aws_host(SERVICE_ECR_DKR, &o, host, 30) == -EINVAL);
	o.account = "";
	ok(aws_host(SERVICE_ECR_DKR, &o, host, sizeof(host)) == -ENODATA);
	o.account = NULL;
	ok(aws_host(SERVICE_ECR_DKR, &o, host, sizeof(host)) == -ENODATA);
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

static void clusters(void)
{
	static const char *const bad[] = {"",   "--enable-docker-bridge", "a.b", "a b", "$(x)",
	                                  "a\n"};

	ok(aws_is_cluster("prod_1") && aws_is_cluster("my-cluster"));
	for (size_t i = 0; i < ELEMENTS(bad); i++)
		ok(!aws_is_cluster(bad[i]));
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
	others();
	urls();
	clusters();
	searches();
	return done();
}
