/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <strings.h>

#include "aws.h"

static const char *const services[] = {
#define X(id, name) [SERVICE_##id] = name,
	SERVICES(X)
#undef X
};

/* "aws" is last: it is the partition of every region that no other prefix claims. */
static const struct partition partitions[] = {
	{"aws-cn", "amazonaws.com.cn", "api.amazonwebservices.com.cn", "cn-"},
	{"aws-us-gov", "amazonaws.com", "api.aws", "us-gov-"},
	{"aws-iso", "c2s.ic.gov", "api.aws.ic.gov", "us-iso-"},
	{"aws-iso-b", "sc2s.sgov.gov", "api.aws.scloud", "us-isob-"},
	{"aws-iso-e", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk", "eu-isoe-"},
	{"aws-iso-f", "csp.hci.ic.gov", "api.aws.hci.ic.gov", "us-isof-"},
	{"aws-eusc", "amazonaws.eu", "api.amazonwebservices.eu", "eusc-"},
	{"aws", "amazonaws.com", "api.aws", ""},
};

const char *service_name(enum service s)
{
	return services[s];
}

int service_from_name(const char *s)
{
	for (int i = 0; i < _SERVICE_MAX; i++)
		if (strcmp(services[i], s) == 0)
			return i;
	return -EINVAL;
}

/* Lower-case words joined by single dashes: two letters or more, words, and a number at the end. */
bool aws_is_region(const char *s)
{
	size_t parts = 1, digits = 0, letters = 0, first = 0;

	if (strlen(s) >= AWS_REGION_MAX)
		return false;
	for (const char *p = s; *p; p++) {
		if (*p == '-') {
			if (digits + letters == 0 || (parts > 1 && letters == 0))
				return false;
			if (parts++ == 1)
				first = digits ? 0 : letters;
			digits = letters = 0;
		} else if (*p >= '0' && *p <= '9') {
			digits++;
		} else if (*p >= 'a' && *p <= 'z') {
			letters++;
		} else {
			return false;
		}
	}
	return parts >= 3 && first >= 2 && digits > 0 && letters == 0;
}

const struct partition *aws_partition_of(const char *region)
{
	if (!aws_is_region(region))
		return NULL;
	for (size_t i = 0; i < ELEMENTS(partitions); i++) {
		const char *prefix = partitions[i].region_prefix;

		if (strncmp(region, prefix, strlen(prefix)) == 0)
			return &partitions[i];
	}
	return NULL;
}

bool aws_is_domain(const char *s)
{
	for (size_t i = 0; i < ELEMENTS(partitions); i++)
		if (strcmp(partitions[i].suffix, s) == 0)
			return true;
	return false;
}

/* In GovCloud the plain names are the FIPS ones; only with dual-stack do they have names of their
 * own. */
static bool fips_is_plain(const struct partition *p, const struct aws_name_options *o)
{
	return strcmp(p->name, "aws-us-gov") == 0 && !o->dualstack;
}

/* %A account, %R region, %S suffix, %D dual-stack suffix. Source: the endpoint rule sets of
 * botocore 1.40 (2025-10); for the registry, facts/eks-node.md 6.2. */
static const struct pattern {
	const char *plain, *fips, *dual, *fips_dual;
} patterns[_SERVICE_MAX] = {
	[SERVICE_EC2] = {"ec2.%R.%S", "ec2-fips.%R.%S", "ec2.%R.%D", "ec2-fips.%R.%D"},
	[SERVICE_STS] = {"sts.%R.%S", "sts-fips.%R.%S", "sts.%R.%D", "sts-fips.%R.%D"},
	[SERVICE_EKS] = {"eks.%R.%S", "fips.eks.%R.%S", "eks.%R.%D", "eks-fips.%R.%D"},
	[SERVICE_ECR_API] = {"api.ecr.%R.%S", "ecr-fips.%R.%S", "ecr.%R.%D", "ecr-fips.%R.%D"},
	[SERVICE_ECR_DKR] = {"%A.dkr.ecr.%R.%S", "%A.dkr.ecr.%R.%S", "%A.dkr.ecr.%R.%S",
                             "%A.dkr.ecr.%R.%S"},
	[SERVICE_S3] = {"s3.%R.%S", "s3-fips.%R.%S", "s3.dualstack.%R.%S",
                        "s3-fips.dualstack.%R.%S"},
};

static bool is_in(const struct partition *p, const char *name)
{
	return strcmp(p->name, name) == 0;
}

/* NULL: there is no such name. */
static const char *pattern_of(enum service s, const struct partition *p,
                              const struct aws_name_options *o)
{
	bool fips = o->fips && !fips_is_plain(p, o), us = is_in(p, "aws") || is_in(p, "aws-us-gov");

	if (s == SERVICE_S3 && fips && is_in(p, "aws-cn"))
		return NULL;
	if (s == SERVICE_EKS && fips && !o->dualstack && !is_in(p, "aws"))
		return "eks-fips.%R.%S";
	if (s == SERVICE_ECR_API && o->fips && !us)
		return o->dualstack ? "api.ecr-fips.%R.%D" : "api.ecr-fips.%R.%S";
	if (s == SERVICE_ECR_API && o->fips && !o->dualstack)
		return "ecr-fips.%R.%S"; /* in GovCloud as well */
	if (s == SERVICE_ECR_API && o->dualstack && !us && !is_in(p, "aws-cn"))
		return "api.ecr.%R.%D";
	if (s == SERVICE_S3 && o->fips) /* likewise */
		fips = true;
	return o->dualstack ? fips ? patterns[s].fips_dual : patterns[s].dual
	       : fips       ? patterns[s].fips
	                    : patterns[s].plain;
}

int aws_host(enum service s, const struct aws_name_options *o, char *ret, size_t size)
{
	const struct partition *p = o->region ? aws_partition_of(o->region) : NULL;
	const char *pattern, *part;
	size_t n = 0, len;

	if (!p)
		return -EINVAL;
	if (o->dualstack && strncmp(p->name, "aws-iso", strlen("aws-iso")) == 0)
		return -EOPNOTSUPP;
	pattern = pattern_of(s, p, o);
	if (!pattern)
		return -EOPNOTSUPP;
	for (; *pattern; pattern++) {
		char one[2] = {*pattern, 0};

		part = one;
		if (*pattern == '%')
			switch (*++pattern) {
			case 'A':
				part = o->account;
				break;
			case 'R':
				part = o->region;
				break;
			case 'D':
				part = p->dualstack_suffix;
				break;
			default:
				part = o->domain && aws_is_domain(o->domain) ? o->domain
				                                             : p->suffix;
			}
		if (!part || !*part)
			return -ENODATA;
		len = strlen(part);
		if (n + len >= size)
			return -EINVAL;
		memcpy(ret + n, part, len);
		n += len;
	}
	ret[n] = 0;
	return 0;
}

static bool is_host(const char *s, size_t len, bool brackets)
{
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char) s[i]) && !strchr(brackets ? ":." : ".-_", s[i]))
			return false;
	return len > 0;
}

static int parse_port(const char *s, size_t len, uint16_t *ret)
{
	char text[8];
	uint64_t port;
	int r;

	if (len >= sizeof(text))
		return -EINVAL;
	memcpy(text, s, len);
	text[len] = 0;
	r = text_to_uint(text, 1, UINT16_MAX, &port);
	if (r < 0)
		return -EINVAL;
	*ret = (uint16_t) port;
	return 0;
}

int aws_endpoint_url(const char *url, char ret_scheme[8], char *ret_host, size_t host_size,
                     uint16_t *ret_port)
{
	bool tls = strncasecmp(url, "https://", 8) == 0, brackets;
	uint16_t port = tls ? 443 : 80;
	const char *host, *end, *after;
	size_t n;

	if (!tls && strncasecmp(url, "http://", 7) != 0)
		return -EINVAL;
	host = url + (tls ? 8 : 7);
	end = host + strcspn(host, "/?#");
	brackets = host[0] == '[';
	if (brackets) {
		host++;
		after = memchr(host, ']', (size_t) (end - host));
		if (!after)
			return -EINVAL;
		n = (size_t) (after++ - host);
	} else {
		after = memchr(host, ':', (size_t) (end - host));
		after = after ? after : end;
		n = (size_t) (after - host);
	}
	if (!is_host(host, n, brackets) || n >= host_size)
		return -EINVAL;
	if (after < end &&
	    (*after != ':' || parse_port(after + 1, (size_t) (end - after - 1), &port) < 0))
		return -EINVAL;
	memcpy(ret_host, host, n);
	ret_host[n] = 0;
	(void) snprintf(ret_scheme, 8, "%s", tls ? "https" : "http");
	*ret_port = port;
	return 0;
}

static int copy_word(char *ret, size_t size, const char *word, size_t len)
{
	if (len == 0 || len >= size)
		return -ENOENT;
	memcpy(ret, word, len);
	ret[len] = 0;
	return 0;
}

int region_from_search(const char *search, char ret[static AWS_REGION_MAX])
{
	static const char tail[] = ".compute.internal";
	char name[256], *dot;
	size_t n = strlen(search);

	if (copy_word(name, sizeof(name), search, n) < 0)
		return -ENOENT;
	for (char *p = name; *p; p++)
		*p = (char) tolower((unsigned char) *p);
	if (name[n - 1] == '.')
		name[--n] = 0;
	if (strcmp(name, "ec2.internal") == 0)
		return copy_word(ret, AWS_REGION_MAX, "us-east-1", strlen("us-east-1"));
	if (n < sizeof(tail) || strcmp(name + n - (sizeof(tail) - 1), tail) != 0)
		return -ENOENT;
	dot = name + n - (sizeof(tail) - 1);
	*dot = 0;
	return aws_is_region(name) ? copy_word(ret, AWS_REGION_MAX, name, strlen(name)) : -ENOENT;
}

bool aws_is_cluster(const char *s)
{
	return strlen(s) <= 100 && is_host(s, strlen(s), false) && !strchr(s, '.') && s[0] != '-';
}
