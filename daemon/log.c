/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "journal-send.h"

void log_message(const struct log *l, int priority, const char *format, ...)
{
	char raw[1024], line[1024];
	va_list ap;
	size_t n;

	va_start(ap, format);
	n = text_vformat(raw, sizeof(raw), format, ap);
	va_end(ap);
	(void) text_clean(line, sizeof(line), raw, n);
	if (l->journal) {
		const struct journal_field fields[] = {{"MESSAGE", line},
		                                       {"PRIORITY", priority_text(priority)},
		                                       {"SYSLOG_IDENTIFIER", "nodewhy"}};

		(void) journal_send(fields, ELEMENTS(fields));
	} else {
		(void) fprintf(stderr, "nodewhy: %s\n", line);
	}
}
