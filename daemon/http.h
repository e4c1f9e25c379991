/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* HTTP(S) on the event loop: libcurl's multi interface. Never resolves a name, never follows a
 * redirect, never uses a proxy it was not given. */

#include <systemd/sd-event.h>

#include "address.h"
#include "observation.h"

struct http;
struct http_call;

/* A proxy to go through with CONNECT. */
struct http_proxy {
	const char *scheme, *host; /* "http" or "https"; as configured */
	struct address address;    /* of the proxy: a literal, as always */
	uint16_t port;
};

struct http_request {
	const char *method;     /* "GET", "PUT", "HEAD" */
	const char *scheme;     /* "http" or "https" */
	const char *host;       /* for SNI, Host: and certificate checks; may be a literal */
	struct address address; /* where to connect: always a literal */
	uint16_t port;
	const char *path;           /* begins with '/' */
	const char *const *headers; /* NULL-terminated "Name: value", or NULL */
	const char *ca_file; /* PEM bundle on the process's own file system; NULL: the system's */
	usec_t connect_timeout, timeout; /* of the TCP connect; of everything */
	size_t body_max;                 /* a longer body is OUTCOME_MALFORMED */
	bool keep_alive;                 /* may reuse and leave open a connection of this multi */
	const char *body;                /* to be sent, or NULL; copied */
	size_t body_len;
	const char *ca_pem; /* certificates in place of ca_file and the system's; copied */
	size_t ca_pem_len;
	const char *unix_socket; /* where to connect in place of address and port, or NULL */
	bool http2;              /* with prior knowledge: HTTP/1.1 is not spoken */
	bool connect_only;    /* done once TCP is connected, without TLS or a request; no proxy */
	uint16_t segment_max; /* TCP segments of so many bytes at most, both ways; 0: as it is */
	const char *sigv4;    /* "aws:amz:us-west-2:sts": sign with the next two, or NULL */
	const char *key_id, *secret;
	uint16_t local_port;            /* to connect from; 0: the kernel's choice */
	const struct http_proxy *proxy; /* or NULL: directly, whatever the environment says */
};

/* How far a call came: tells which layer failed. In HTTP_TLS, UNTRUSTED is a certificate that does
 * not verify, ABSENT a CA file that cannot be used, MALFORMED a peer that does not speak TLS. */
enum http_stage { HTTP_CONNECTING, HTTP_TLS, HTTP_WAITING, HTTP_DONE };

struct http_reply {
	/* OK: an HTTP status line came, whichever, or what connect_only wants; UNKNOWN: we failed,
	 * with the errno in code; else how the stage failed */
	enum outcome outcome;
	/* the stage that was not finished; HTTP_DONE with OK, of connect_only HTTP_TLS */
	enum http_stage stage;
	int code;   /* HTTP status when OK; else errno of the socket, or X509 error, or 0 */
	int status; /* HTTP status of the status line that came, whatever the outcome; else 0 */
	usec_t connect, tls, first_byte, total; /* durations from the start; 0: not reached */
	bool reused;      /* an open connection was used: connect and tls are 0 */
	const char *body; /* NUL-terminated; valid during the callback only */
	size_t body_len;
	const char *content_type; /* "" when absent; valid during the callback only */
	const char *date; /* the Date header, "" when absent; valid during the callback only */
	const char
		*location; /* the Location header, "" when absent; valid during the callback only */
	int proxy_status;  /* of the proxy's answer to CONNECT; 0: none */
	int grpc_status;   /* header or trailer grpc-status; -1: absent */
	const char *grpc_message; /* "" when absent; valid during the callback only */
	char tls_error[96];       /* why the certificate does not verify, cleaned; else "" */
	char tls_issuer[96]; /* issuer (CN or O) of the certificate that did not verify; else "" */
};

/* Called once, from the loop, and never after http_call_free(). May free its own call or others. */
typedef void (*http_done_t)(struct http_call *c, const struct http_reply *r, void *userdata);

/* event is referenced. -ENOMEM or a negative errno. */
int http_new(struct http **ret, sd_event *event);
/* The loop it runs on; not referenced. */
sd_event *http_event(const struct http *h);
/* True when libcurl speaks HTTP/2. */
bool http_has_http2(void);
/* Of a Date header: seconds since 1970. -EBADMSG. */
int http_date(const char *date, uint64_t *ret);
/* All calls must have been freed before. */
struct http *http_free(struct http *h);

/* Starts a call; nothing in *rq needs to live longer than this. -EINVAL for a request that is not
 * well formed (no literal address, body_max 0), -ENOMEM. done is never called from inside. */
int http_call_new(struct http_call **ret, struct http *h, const struct http_request *rq,
                  http_done_t done, void *userdata);
/* True once the TCP connection of a call in flight stands, or one was reused. */
bool http_call_connected(const struct http_call *c);
/* Cancels when in flight. The body is wiped: it may have been a credential. */
struct http_call *http_call_free(struct http_call *c);
