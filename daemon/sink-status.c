/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "sink.h"

int sink_status(const struct files *f, const struct report *r, const struct report_meta *m)
{
	json_t *j = report_to_json(r, m);
	_cleanup_(freep) char *text =
		j ? json_dumps(j, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) : NULL;

	json_decref(j);
	if (!text)
		return -ENOMEM;
	return file_replace(f, "/run/nodewhy/status.json", text, strlen(text), 0644);
}
