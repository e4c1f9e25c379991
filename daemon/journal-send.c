/* SPDX-License-Identifier: Apache-2.0 */
/* The native protocol: NAME=value and a line feed, or NAME, a line feed, the value's length in 64
 * bits of little endian, the value and a line feed. */
#include <endian.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "journal-send.h"

const char *priority_text(int priority)
{
	static const char *const texts[] = {"0", "1", "2", "3", "4", "5", "6", "7"};

	return priority >= 0 && (size_t) priority < ELEMENTS(texts) ? texts[priority] : "6";
}

static size_t put(char *at, const void *p, size_t n)
{
	memcpy(at, p, n);
	return n;
}

static size_t put_field(char *at, const struct journal_field *f)
{
	size_t n = put(at, f->name, strlen(f->name)), len = strlen(f->value);
	uint64_t wire = htole64(len);

	if (strchr(f->value, '\n')) {
		n += put(at + n, "\n", 1);
		n += put(at + n, &wire, sizeof(wire));
	} else {
		n += put(at + n, "=", 1);
	}
	n += put(at + n, f->value, len);
	return n + put(at + n, "\n", 1);
}

int journal_send(const struct journal_field *fields, size_t n)
{
	static const struct sockaddr_un journal = {.sun_family = AF_UNIX,
	                                           .sun_path = "/run/systemd/journal/socket"};
	_cleanup_(freep) char *entry = NULL;
	_cleanup_(closep) int fd = -1;
	size_t size = 0, len = 0;

	for (size_t i = 0; i < n; i++)
		size += strlen(fields[i].name) + strlen(fields[i].value) + 2 + sizeof(uint64_t);
	entry = malloc(size ? size : 1);
	if (!entry)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		len += put_field(entry + len, &fields[i]);
	/* one for each entry: they are few, and journald may have been started anew in between */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, entry, len, MSG_NOSIGNAL, (const struct sockaddr *) &journal,
	           sizeof(journal)) >= 0)
		return 0;
	return errno == ENOENT ? 0 : -errno;
}
