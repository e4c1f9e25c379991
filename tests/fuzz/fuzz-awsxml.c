/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of EC2's and STS' query APIs. */
#include <stdint.h>

#include "aws-query.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *) data, *p;
	struct caller_identity who;
	struct aws_error e;
	size_t n;

	if (aws_error_parse(text, size, &e) == 0) {
		if (!e.code[0] || !text_is_clean(e.code, strlen(e.code)))
			abort();
		(void) aws_error_says(&e, "VPC endpoint policy");
	}
	if (caller_identity_parse(text, size, &who) == 0 &&
	    (strlen(who.account) != 12 || !who.role[0]))
		abort();
	if (aws_xml_text(text, size, "item", &p, &n) && (p < text || p + n > text + size))
		abort();
	return 0;
}
