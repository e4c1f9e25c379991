/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "util.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_warning(const char *message, void *userdata)
{
	if (!text_is_clean(message, strlen(message)) || strchr(message, '\n'))
		abort();
}

/* Whatever stands there, the values that are taken lie within their bounds. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config c;

	config_init(&c);
	config_parse(&c, "x.conf", (const char *) data, size, on_warning, NULL);
	for (size_t i = 0; i < CONFIG_PROBES_MAX; i++) {
		const struct probe_config *p = &c.probes[i];

		if ((p->every && (p->every < USEC_PER_SEC || p->every > 86400 * USEC_PER_SEC)) ||
		    (p->timeout &&
		     (p->timeout < USEC_PER_SEC / 10 || p->timeout > 60 * USEC_PER_SEC)))
			abort();
	}
	if (c.textfile_dir[0] && c.textfile_dir[0] != '/')
		abort();
	return 0;
}
