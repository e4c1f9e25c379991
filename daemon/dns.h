/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* DNS on the event loop: c-ares, one channel per nameserver, so that it is known who answered what.
 * No search list, no /etc/hosts, no retry on another server. */

#include <systemd/sd-event.h>

#include "address.h"
#include "observation.h"

struct dns;
struct dns_call;

enum dns_type { DNS_A = 1, DNS_AAAA = 28 };
enum { DNS_ADDRESSES_MAX = 16 };

/* Outcomes: OK with addresses; ABSENT with rcode 3 (NXDOMAIN) or rcode 0 (the name exists without
 * an address of this type); FAILED (SERVFAIL 2, FORMERR 1, NOTIMP 4); DENIED (REFUSED 5); TIMEOUT;
 * REFUSED (ICMP port unreachable); UNREACHABLE (the datagram could not be sent: errno in error);
 * MALFORMED (an answer that does not parse); UNKNOWN (we failed: errno in error). */
struct dns_reply {
	enum outcome outcome;
	int rcode; /* DNS RCODE when an answer came, else -1 */
	int error; /* errno when the socket failed, else 0 */
	usec_t took;
	uint32_t ttl; /* seconds, the smallest of the answer */
	size_t n;
	struct address addresses[DNS_ADDRESSES_MAX];
};

typedef void (*dns_done_t)(struct dns_call *c, const struct dns_reply *r, void *userdata);

int dns_new(struct dns **ret, sd_event *event);
struct dns *dns_free(struct dns *d); /* all calls must have been freed before */
/* Asks one server, once over UDP with one retransmission inside timeout, over TCP when truncated.
 * done is called once from the loop, never from inside, never after dns_call_free(). */
int dns_call_new(struct dns_call **ret, struct dns *d, const struct address *server,
                 const char *name, enum dns_type type, usec_t timeout, dns_done_t done,
                 void *userdata);
struct dns_call *dns_call_free(struct dns_call *c);

enum { RESOLV_SERVERS_MAX = 3 }; /* MAXNS of resolv.conf(5): glibc reads no more */

/* What resolv.conf(5) says. Pure; unknown options are ignored. */
struct resolv_conf {
	size_t n;
	struct address servers[RESOLV_SERVERS_MAX];
	char search[256]; /* first search domain, or "" */
};
void resolv_conf_parse(struct resolv_conf *ret, const char *text, size_t len);
