/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "sink.h"

static const usec_t minute = 60 * USEC_PER_SEC;

static int usable(int fd)
{
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) ? fd : -1;
}

void console_open(struct console *c, const struct files *f)
{
	char path[512];
	int fd, flags;

	*c = (struct console){.fd = -1};
	(void) text_format(path, sizeof(path), "%s/dev/console", files_root(f));
	fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
	c->fd = usable(fd);
	if (fd >= 0 && c->fd < 0)
		(void) close(fd);
	c->owned = c->fd >= 0;
	/* a service that may not open it has been given it by systemd, as TTYPath= and standard
	 * output */
	if (c->fd >= 0 || !files_is_host(f) || !getenv("INVOCATION_ID") || !isatty(STDOUT_FILENO))
		return;
	flags = fcntl(STDOUT_FILENO, F_GETFL);
	if (flags >= 0 && fcntl(STDOUT_FILENO, F_SETFL, flags | O_NONBLOCK) == 0)
		c->fd = STDOUT_FILENO;
}

void console_close(struct console *c)
{
	if (c->owned)
		(void) close(c->fd);
	*c = (struct console){.fd = -1};
}

/* Before the node has joined, what the provisioner deletes after 15 minutes is read with
 * `aws ec2 get-console-output`; afterwards the journal is the place. */
void sink_console(struct console *c, const struct report *r, bool verdict_changed)
{
	char message[SUMMARY_MAX + REMEDY_MAX + 128], line[sizeof(message) + 32];
	size_t n;

	if (c->fd < 0)
		return;
	/* nothing to say yet, or nobody who would have to read it here */
	if (r->verdict.stage == STAGE_READY || (r->verdict.root < 0 && c->said == 0)) {
		c->pending = false;
		return;
	}
	c->pending |= verdict_changed;
	if (!c->pending || c->said >= CONSOLE_LINES || (c->said && r->at - c->at < minute))
		return;
	verdict_message(r, message, sizeof(message));
	n = text_format(line, sizeof(line), "nodewhy: ");
	n += text_ascii(line + n, sizeof(line) - n - 2, message);
	line[n++] = '\r';
	line[n++] = '\n';
	/* a console that is stuck is no reason to wait: the line is dropped, the next one may pass
	 */
	(void) !write(c->fd, line, n);
	c->pending = false;
	c->said++;
	c->at = r->at;
}
