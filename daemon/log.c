/* SPDX-License-Identifier: Apache-2.0 */
#include <systemd/sd-journal.h>

#include "log.h"

void log_message(const struct log *l, int priority, const char *format, ...)
{
	char line[1024];
	va_list ap;

	va_start(ap, format);
	(void) text_vformat(line, sizeof(line), format, ap);
	va_end(ap);
	if (l->journal)
		(void) sd_journal_send("MESSAGE=%s", line, "PRIORITY=%i", priority,
		                       "SYSLOG_IDENTIFIER=nodewhy", NULL);
	else
		(void) fprintf(stderr, "nodewhy: %s\n", line);
}
