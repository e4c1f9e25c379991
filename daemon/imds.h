/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* The instance metadata service, version 2: one cached token, single flight; the IPv4 endpoint
 * first, the IPv6 one when that does not answer. Knows the protocol, holds no opinion. */

#include "http.h"

struct imds;
struct imds_call;

/* Which part of the exchange a reply tells about. */
enum imds_step { IMDS_TOKEN, IMDS_GET };

struct imds_reply {
	enum imds_step step;    /* IMDS_TOKEN: the PUT failed and no GET was sent */
	struct http_reply http; /* of that step; http.total counts that step alone */
	struct address address; /* the endpoint that http tells about */
	bool fresh_token;       /* the token was fetched for this very call */
	bool throttled;         /* not sent: our own budget of requests is spent; http is not set */
	bool disabled;          /* not sent: AWS_EC2_METADATA_DISABLED is set */
};

typedef void (*imds_done_t)(struct imds_call *c, const struct imds_reply *r, void *userdata);

struct imds_options {
	/* AWS_EC2_METADATA_SERVICE_ENDPOINT ("http://host:port/", host a literal), _MODE ("IPv4" or
	 * "IPv6"), AWS_EC2_METADATA_DISABLED; NULL where unset. */
	const char *endpoint, *mode, *disabled;
	/* CONTRACT.md section 7: at most 1 request a second averaged over any minute. Requests sent
	 * as spare (see below) wait while more than this many were sent in the last 60 s; 0: no
	 * limit, as for one `check`. */
	unsigned spare_per_minute;
};

/* -EINVAL when the endpoint is not a literal http URL; ret_error names what is wrong. */
int imds_new(struct imds **ret, sd_event *event, struct http *http,
             const struct imds_options *options, char *ret_error, size_t error_size);
struct imds *imds_free(struct imds *i);

/* GET path ("/latest/meta-data/instance-id") with the token. now is CLOCK_BOOTTIME. A 401 with a
 * cached token fetches a fresh one and tries once more. spare: this request may be held back for
 * the budget (reply.throttled). done is called once from the loop, never from inside. */
int imds_call_new(struct imds_call **ret, struct imds *i, const char *path, size_t body_max,
                  bool spare, usec_t now, imds_done_t done, void *userdata);
struct imds_call *imds_call_free(struct imds_call *c);

/* The endpoint of the family, as configured (port 80 unless the endpoint says otherwise). False
 * when that family is not to be used. */
bool imds_endpoint(const struct imds *i, int family, struct address *ret, uint16_t *ret_port);

/* Forgets the token, as after a suspend or an endpoint change. */
void imds_forget(struct imds *i);
