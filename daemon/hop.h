/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The IP TTL with which the metadata service answers a token PUT, seen from the host: that is the
 * instance's HttpPutResponseHopLimit. A plain socket, no privilege. */

#include <systemd/sd-event.h>

#include "address.h"
#include "observation.h"

struct hop_call;

struct hop_reply {
	enum outcome outcome; /* OK: hop_limit is known; else how the exchange failed */
	int error;            /* errno, or 0 */
	int status;           /* HTTP status of the PUT, or 0 */
	int hop_limit;        /* IPv4: 1, or 2 meaning "2 or more"; IPv6: exact */
	bool exact;
	bool counted; /* TcpExt TCPMinTTLDrop rose: positive proof of hop limit 1 */
	usec_t took;
};

typedef void (*hop_done_t)(struct hop_call *c, const struct hop_reply *r, void *userdata);

/* The token that comes back is wiped, not used. */
int hop_call_new(struct hop_call **ret, sd_event *event, const struct address *server,
                 uint16_t port, usec_t timeout, hop_done_t done, void *userdata);
struct hop_call *hop_call_free(struct hop_call *c);
