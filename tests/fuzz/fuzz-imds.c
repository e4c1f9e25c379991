/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies that the imds probe takes for the node's identity. The first byte says which; all of
 * them go into one node, which has to stay fit for a host name, a command line and a terminal. */
#define probe_imds tested_imds
#include "../../probes/imds.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *s, const char *also)
{
	for (; *s; s++)
		if (!islower((unsigned char) *s) && !isdigit((unsigned char) *s) &&
		    !strchr(also, *s))
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct node n = {.instance_id = "i-0123456789abcdef0"};
	char *body, host[AWS_HOST_MAX], id[64];

	if (size == 0)
		return 0;
	body = malloc(size); /* NUL-terminated, as http.h says, and no longer */
	if (!body)
		return 0;
	memcpy(body, data + 1, size - 1);
	body[size - 1] = 0;
	(void) wants[data[0] % ELEMENTS(wants)].learn(&n, body, size - 1);
	if (one_line(id, sizeof(id), body, size - 1) == 0 && is_id(id, "i-"))
		check(id, "-");
	check(n.region, "-");
	check(n.zone, "-");
	check(n.ami_id, "-");
	check(n.instance_type, ".-");
	check(n.partition, "-");
	check(n.private_dns, ".-");
	check(n.mac, ":");
	check(n.account_id, "");
	if ((n.region[0] && !aws_is_region(n.region)) || (n.domain[0] && !aws_is_domain(n.domain)))
		abort();
	if (n.region[0] &&
	    aws_host(SERVICE_EC2,
	             &(struct aws_name_options){.region = n.region, .domain = n.domain}, host,
	             sizeof(host)) == 0)
		check(host, ".-");
	free(body);
	return 0;
}
