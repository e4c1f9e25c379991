/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What proxy variables say: HTTP_PROXY, HTTPS_PROXY, NO_PROXY. Pure. A value may hold a password:
 * it is for comparison, never for output; what proxy_url() returns may be shown. */

#include "address.h"

enum { PROXY_TEXT_MAX = 1024 };

struct proxy_env {
	char http[PROXY_TEXT_MAX], https[PROXY_TEXT_MAX], no[PROXY_TEXT_MAX]; /* "" when unset */
};

/* Takes over what the lines "key=..." of a unit file, a drop-in or system.conf set of them, as
 * systemd reads such lines: words, quoted or not; the last one wins; an empty list forgets. */
void proxy_env_take(struct proxy_env *e, const char *key, const char *text, size_t len);

struct proxy_url {
	char scheme[8], host[160];
	uint16_t port;
	bool user; /* a user name, and perhaps a password, stood in it */
};

/* "http://user:password@host:3128", "host:3128". -EINVAL when it is no http(s) proxy. */
int proxy_url(const char *text, struct proxy_url *ret);

/* Whether a program goes to that host directly, though it has a proxy: as Go has it, whose CIDR
 * ranges hold for addresses alone. */
bool proxy_bypasses(const char *no_proxy, const char *host, uint16_t port);
