/* SPDX-License-Identifier: Apache-2.0 */
/* What ipamd says and keeps: one text, read as each of its kinds. */
#include "ipamd-json.h"

enum { MAX = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void clean(const char *s)
{
	if (!text_is_clean(s, strlen(s)))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *) data;
	struct ipamd_allocation allocations[MAX];
	struct oci_container c;
	struct ipamd_view v;
	size_t n = 0;
	char error[72];
	bool more;

	if (ipamd_log_error(text, size, error, sizeof(error)))
		clean(error);
	if (ipamd_enis_parse(text, size, UINT64_C(1787220020) * USEC_PER_SEC, &v) == 0) {
		if (v.n > ENIS_MAX || v.total < 0 || v.assigned < 0)
			abort();
		for (size_t i = 0; i < v.n; i++) {
			clean(v.enis[i].id);
			clean(v.enis[i].subnet);
		}
	}
	if (ipamd_checkpoint_parse(text, size, allocations, MAX, &n, &more) == 0 && n > MAX)
		abort();
	if (oci_config_parse(text, size, &c) == 0) {
		clean(c.name);
		clean(c.pod);
		clean(c.image);
		clean(c.settings.role_arn);
	}
	ipamd_environ_parse(text, size, &c);
	clean(c.version);
	return 0;
}
