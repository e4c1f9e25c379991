/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Unary gRPC calls over a unix socket: HTTP/2 with prior knowledge by libcurl, five bytes of
 * framing, trailers. And the little of protobuf that their messages need. */

#include "file.h"
#include "http.h"

struct grpc_call;

/* Source: grpc/status, codes of gRPC. */
enum {
	GRPC_OK = 0,
	GRPC_UNKNOWN = 2,
	GRPC_DEADLINE_EXCEEDED = 4,
	GRPC_NOT_FOUND = 5,
	GRPC_PERMISSION_DENIED = 7,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_UNAVAILABLE = 14,
};

struct grpc_reply {
	/* OK: the server answered, whatever status says. ABSENT: no such socket; REFUSED, DENIED,
	 * TIMEOUT, RESET as of connect and read; MALFORMED: no gRPC answer; UNKNOWN: we failed, as
	 * -EOPNOTSUPP in code where this libcurl has no HTTP/2. */
	enum outcome outcome;
	int code;               /* errno, or 0 */
	int status;             /* grpc-status; -1: none came */
	const char *error;      /* grpc-message, cleaned; "" */
	const uint8_t *message; /* the protobuf; valid during the callback only */
	size_t len;
	usec_t took;
};

typedef void (*grpc_done_t)(struct grpc_call *c, const struct grpc_reply *r, void *userdata);

/* False when the libcurl at hand cannot do this. */
bool grpc_available(void);
/* socket is a path below the root, "/run/containerd/containerd.sock"; method is
 * "/runtime.v1.RuntimeService/Status". done is called once from the loop, never from inside. */
int grpc_call_new(struct grpc_call **ret, struct http *http, const struct files *files,
                  const char *socket, const char *method, const void *message, size_t len,
                  usec_t timeout, grpc_done_t done, void *userdata);
struct grpc_call *grpc_call_free(struct grpc_call *c);

/* The one message of a body, in place. -EBADMSG unless the body is just that: one whole message,
 * not compressed. */
int grpc_frame_read(const void *body, size_t len, const uint8_t **ret, size_t *ret_len);

/* One field of a message, in place. */
struct pb_field {
	uint32_t number;
	uint8_t wire;         /* 0 varint, 1 fixed64, 2 length-delimited, 5 fixed32 */
	uint64_t value;       /* of the numeric ones */
	const uint8_t *bytes; /* of the length-delimited ones */
	size_t len;
};
/* Reads the field at *p and moves on: 1, 0 at the end, -EBADMSG. */
int pb_next(const uint8_t **p, const uint8_t *end, struct pb_field *ret);
/* The last field of this number and wire type: 1, 0 when absent, -EBADMSG. */
int pb_find(const uint8_t *message, size_t len, uint32_t number, uint8_t wire,
            struct pb_field *ret);
/* Appends a string field: the new length, or -ENOSPC. */
ssize_t pb_put_bytes(uint8_t *dst, size_t size, size_t len, uint32_t number, const void *bytes,
                     size_t n);
