/* SPDX-License-Identifier: Apache-2.0 */
/* Three layers: an exchange sends one request to whichever endpoint answers; the token is fetched
 * by one exchange for all calls that wait for it; a call is a token and a GET. */
#include <errno.h>
#include <netinet/in.h>
#include <strings.h>

#include "aws.h"
#include "clock.h"
#include "imds.h"

enum {
	TOKEN_BYTES_MAX = 1024,
	TOKEN_SECONDS = 21600,
	SENT_MAX = 128, /* requests of the last minute that are remembered */
	PATH_BYTES_MAX = 256,
};

static const usec_t connect_timeout = USEC_PER_SEC;
static const usec_t total_timeout = 2 * USEC_PER_SEC;
static const usec_t hedge_after = 300 * USEC_PER_MSEC;
static const usec_t minute = 60 * USEC_PER_SEC;

struct endpoint_of {
	bool used;
	struct address address;
	uint16_t port;
};

enum { V4, V6, N_ENDPOINTS };

struct exchange;
typedef void (*exchanged_t)(struct exchange *x, const struct http_reply *r,
                            const struct address *from, void *userdata);

struct exchange {
	struct imds *imds;
	char path[PATH_BYTES_MAX], header[TOKEN_BYTES_MAX + 64];
	bool put;
	size_t body_max;
	struct http_call *calls[N_ENDPOINTS];
	bool tried[N_ENDPOINTS], failed[N_ENDPOINTS];
	struct http_reply failures[N_ENDPOINTS]; /* without bodies */
	size_t preferred;
	sd_event_source *hedge;
	exchanged_t done;
	void *userdata;
};

struct imds {
	sd_event *event;
	struct http *http;
	sd_event_source *defer;
	struct endpoint_of endpoints[N_ENDPOINTS];
	size_t preferred; /* the endpoint that answered last */
	bool disabled;
	unsigned spare_per_minute;
	usec_t sent[SENT_MAX]; /* a ring */
	size_t n_sent;
	struct imds_call *calls;
	struct exchange *put;
	char token[TOKEN_BYTES_MAX + 1];
	usec_t token_at;      /* 0: there is none */
	uint64_t token_count; /* which token this is */
};

struct imds_call {
	struct imds_call *next;
	struct imds *imds;
	char path[PATH_BYTES_MAX];
	size_t body_max;
	bool fresh; /* the token was fetched while this call waited */
	bool throttled, disabled;
	uint64_t token_count;
	const struct exchange *put; /* the fetch it waits for */
	struct exchange *get;
	imds_done_t done;
	void *userdata;
};

/* ---- the budget ---- */

static void count_request(struct imds *i)
{
	i->sent[i->n_sent++ % SENT_MAX] = clock_boottime();
}

static unsigned sent_since(const struct imds *i, usec_t from)
{
	size_t kept = i->n_sent < SENT_MAX ? i->n_sent : SENT_MAX;
	unsigned n = 0;

	for (size_t k = 0; k < kept; k++)
		n += i->sent[k] >= from;
	return n;
}

static bool budget_is_spent(const struct imds *i, usec_t now)
{
	if (i->spare_per_minute == 0)
		return false;
	return sent_since(i, now > minute ? now - minute : 0) >= i->spare_per_minute;
}

/* ---- an exchange: one request, one or two endpoints ---- */

static struct exchange *exchange_free(struct exchange *x)
{
	if (!x)
		return NULL;
	for (size_t e = 0; e < N_ENDPOINTS; e++)
		http_call_free(x->calls[e]);
	sd_event_source_disable_unref(x->hedge);
	explicit_bzero(x->header, sizeof(x->header));
	free(x);
	return NULL;
}

static int send_to(struct exchange *x, size_t e);

/* The endpoint that is not that one and was not tried, or N_ENDPOINTS. */
static size_t other_endpoint(const struct exchange *x)
{
	for (size_t e = 0; e < N_ENDPOINTS; e++)
		if (x->imds->endpoints[e].used && !x->tried[e])
			return e;
	return N_ENDPOINTS;
}

/* This node has no way to that family at all. */
static bool is_foreign(const struct http_reply *r)
{
	return r->stage == HTTP_CONNECTING &&
	       (r->code == ENETUNREACH || r->code == EADDRNOTAVAIL || r->code == EAFNOSUPPORT);
}

/* Which failure to tell when no endpoint answered: the one that got further; a family that this
 * node does not have says nothing about the service. */
static size_t telling_failure(const struct exchange *x)
{
	size_t best = x->preferred;

	for (size_t e = 0; e < N_ENDPOINTS; e++) {
		const struct http_reply *mine = &x->failures[e], *other = &x->failures[best];

		if (x->failed[e] && e != best &&
		    (mine->stage > other->stage || (is_foreign(other) && !is_foreign(mine))))
			best = e;
	}
	return best;
}

static void on_answer(struct http_call *c, const struct http_reply *r, void *userdata)
{
	struct exchange *x = userdata;
	size_t e = x->calls[V4] == c ? V4 : V6, other;

	if (r->outcome == OUTCOME_OK) {
		x->imds->preferred = e;
		x->done(x, r, &x->imds->endpoints[e].address, x->userdata);
		return;
	}
	x->calls[e] = http_call_free(c);
	x->failed[e] = true;
	x->failures[e] = *r;
	x->failures[e].body = x->failures[e].content_type = "";
	x->failures[e].date = x->failures[e].location = "";
	x->failures[e].body_len = 0;
	/* One that took the connection is the service; only one that did not makes us look at the
	 * other family. */
	other = r->stage == HTTP_CONNECTING ? other_endpoint(x) : N_ENDPOINTS;
	if (other < N_ENDPOINTS && send_to(x, other) == 0)
		return;
	if (x->calls[V4] || x->calls[V6])
		return;
	e = telling_failure(x);
	x->done(x, &x->failures[e], &x->imds->endpoints[e].address, x->userdata);
}

/* No connect yet: a dead endpoint shall not cost its whole timeout before the other is asked. */
static int on_hedge(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct exchange *x = userdata;
	size_t other = other_endpoint(x);

	for (size_t e = 0; e < N_ENDPOINTS; e++)
		if (x->calls[e] && http_call_connected(x->calls[e]))
			return 0;
	if (other < N_ENDPOINTS)
		(void) send_to(x, other);
	return 0;
}

static int send_to(struct exchange *x, size_t e)
{
	const char *const headers[] = {x->header, NULL};
	const struct endpoint_of *at = &x->imds->endpoints[e];
	char host[ADDRESS_TEXT_MAX];
	struct http_request rq = {
		.method = x->put ? "PUT" : "GET",
		.scheme = "http",
		.host = address_format(&at->address, host),
		.address = at->address,
		.port = at->port,
		.path = x->path,
		.headers = headers,
		.connect_timeout = connect_timeout,
		.timeout = total_timeout,
		.body_max = x->body_max,
		.keep_alive = true,
	};
	int r;

	x->tried[e] = true;
	r = http_call_new(&x->calls[e], x->imds->http, &rq, on_answer, x);
	if (r == 0)
		count_request(x->imds);
	return r;
}

static int exchange_new(struct exchange **ret, struct imds *i, bool put, const char *path,
                        size_t body_max, exchanged_t done, void *userdata)
{
	struct exchange *x = calloc(1, sizeof(*x));
	int r;

	if (!x)
		return -ENOMEM;
	x->imds = i;
	x->put = put;
	x->body_max = body_max;
	x->preferred = i->preferred;
	x->done = done;
	x->userdata = userdata;
	(void) snprintf(x->path, sizeof(x->path), "%s", path);
	if (put)
		(void) snprintf(x->header, sizeof(x->header),
		                "X-aws-ec2-metadata-token-ttl-seconds: %d", TOKEN_SECONDS);
	else
		(void) snprintf(x->header, sizeof(x->header), "X-aws-ec2-metadata-token: %s",
		                i->token);
	r = send_to(x, x->preferred);
	if (r == 0 && other_endpoint(x) < N_ENDPOINTS)
		r = sd_event_add_time_relative(i->event, &x->hedge, CLOCK_BOOTTIME, hedge_after,
		                               10 * USEC_PER_MSEC, on_hedge, x);
	if (r < 0) {
		exchange_free(x);
		return r;
	}
	*ret = x;
	return 0;
}

/* ---- the token ---- */

void imds_forget(struct imds *i)
{
	explicit_bzero(i->token, sizeof(i->token));
	i->token_at = 0;
}

/* Three quarters of its life: the rest is for a fetch that fails to be tried again. */
static bool token_is_good(const struct imds *i, usec_t now)
{
	if (!i->token_at || now < i->token_at) /* fetched since the loop last looked at the clock */
		return i->token_at;
	return now - i->token_at < TOKEN_SECONDS * USEC_PER_SEC / 4 * 3;
}

static bool is_token(const char *s, size_t len)
{
	for (size_t k = 0; k < len; k++)
		if (s[k] <= ' ' || s[k] >= 0x7F)
			return false;
	return len > 0 && len <= TOKEN_BYTES_MAX;
}

static void deliver(struct imds_call *c, const struct imds_reply *r)
{
	c->done(c, r, c->userdata); /* may free it */
}

static struct http_reply blank(void)
{
	return (struct http_reply){.body = "", .content_type = "", .date = "", .location = ""};
}

static void fail(struct imds_call *c, enum imds_step step, int error)
{
	struct imds_reply r = {.step = step, .http = blank(), .fresh_token = c->fresh};

	r.http.outcome = OUTCOME_UNKNOWN;
	r.http.code = -error;
	deliver(c, &r);
}
static struct imds_call *waiting_for(const struct imds *i, const struct exchange *put)
{
	for (struct imds_call *c = i->calls; c; c = c->next)
		if (c->put == put)
			return c;
	return NULL;
}

static void on_get(struct exchange *x, const struct http_reply *r, const struct address *from,
                   void *userdata);

static void get(struct imds_call *c)
{
	int r;

	c->token_count = c->imds->token_count;
	r = exchange_new(&c->get, c->imds, false, c->path, c->body_max, on_get, c);
	if (r < 0)
		fail(c, IMDS_GET, r);
}

/* Serves the calls that wait for this fetch, one after the other: a callback may free others of
 * them, or make new ones, which wait for the next fetch. */
static void on_put(struct exchange *x, const struct http_reply *r, const struct address *from,
                   void *userdata)
{
	struct imds *i = userdata;
	struct imds_reply reply = {
		.step = IMDS_TOKEN, .http = *r, .address = *from, .fresh_token = true};
	bool good = r->outcome == OUTCOME_OK && r->code == 200;
	struct imds_call *c;

	i->put = NULL;
	if (good && !is_token(r->body, r->body_len)) {
		reply.http.outcome = OUTCOME_MALFORMED;
		reply.http.stage = HTTP_WAITING;
		good = false;
	}
	if (good) {
		memcpy(i->token, r->body, r->body_len);
		i->token[r->body_len] = 0;
		i->token_at = clock_boottime();
		i->token_count++;
	}
	while ((c = waiting_for(i, x))) {
		c->put = NULL;
		c->fresh = true;
		if (good)
			get(c);
		else
			deliver(c, &reply);
	}
	exchange_free(x);
}

static int want_token(struct imds_call *c)
{
	struct imds *i = c->imds;
	int r = 0;

	if (!i->put)
		r = exchange_new(&i->put, i, true, "/latest/api/token", TOKEN_BYTES_MAX, on_put, i);
	c->put = i->put;
	return r;
}

static void on_get(struct exchange *x, const struct http_reply *r, const struct address *from,
                   void *userdata)
{
	struct imds_call *c = userdata;
	struct imds *i = c->imds;
	struct imds_reply reply = {
		.step = IMDS_GET, .http = *r, .address = *from, .fresh_token = c->fresh};
	int error;

	c->get = NULL;
	if (r->outcome == OUTCOME_OK && r->code == 401 && !c->fresh) {
		/* the token has ended before its time, as after a stop and start; another call may
		 * have fetched the next one already */
		if (c->token_count == i->token_count)
			imds_forget(i);
		c->fresh = true;
		error = 0;
		if (token_is_good(i, clock_boottime()))
			get(c);
		else
			error = want_token(c);
		if (error < 0)
			fail(c, IMDS_TOKEN, error);
	} else {
		deliver(c, &reply);
	}
	exchange_free(x);
}

/* ---- calls ---- */

/* Answers the calls that are not to be sent at all. */
static int on_defer(sd_event_source *s, void *userdata)
{
	struct imds *i = userdata;
	struct imds_call *c = i->calls;

	while (c) {
		struct imds_reply r = {
			.http = blank(), .throttled = c->throttled, .disabled = c->disabled};

		if (!c->throttled && !c->disabled) {
			c = c->next;
			continue;
		}
		c->throttled = c->disabled = false;
		deliver(c, &r);
		c = i->calls; /* the callback may have changed the list */
	}
	return 0;
}

struct imds_call *imds_call_free(struct imds_call *c)
{
	struct imds_call **at;

	if (!c)
		return NULL;
	for (at = &c->imds->calls; *at && *at != c; at = &(*at)->next)
		;
	if (*at)
		*at = c->next;
	exchange_free(c->get);
	free(c);
	return NULL;
}

static int start(struct imds_call *c, bool spare, usec_t now)
{
	struct imds *i = c->imds;

	c->disabled = i->disabled;
	c->throttled = !c->disabled && spare && budget_is_spent(i, now);
	if (c->disabled || c->throttled) {
		return sd_event_source_set_enabled(i->defer, SD_EVENT_ONESHOT);
	}
	if (!token_is_good(i, now))
		return want_token(c);
	c->token_count = i->token_count;
	return exchange_new(&c->get, i, false, c->path, c->body_max, on_get, c);
}

int imds_call_new(struct imds_call **ret, struct imds *i, const char *path, size_t body_max,
                  bool spare, usec_t now, imds_done_t done, void *userdata)
{
	struct imds_call *c;
	int r;

	if (path[0] != '/' || strlen(path) >= PATH_BYTES_MAX || body_max == 0)
		return -EINVAL;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->imds = i;
	c->body_max = body_max;
	c->done = done;
	c->userdata = userdata;
	memcpy(c->path, path, strlen(path) + 1);
	c->next = i->calls;
	i->calls = c;
	r = start(c, spare, now);
	if (r < 0) {
		imds_call_free(c);
		return r;
	}
	*ret = c;
	return 0;
}

/* ---- the instrument ---- */

bool imds_endpoint(const struct imds *i, int family, struct address *ret, uint16_t *ret_port)
{
	for (size_t e = 0; e < N_ENDPOINTS; e++) {
		if (!i->endpoints[e].used || i->endpoints[e].address.family != family)
			continue;
		*ret = i->endpoints[e].address;
		*ret_port = i->endpoints[e].port;
		return true;
	}
	return false;
}

static int use_endpoint(struct imds *i, const char *url, char *error, size_t size)
{
	char scheme[8], host[64];
	uint16_t port;
	struct address a;
	size_t e;

	if (aws_endpoint_url(url, scheme, host, sizeof(host), &port) < 0 ||
	    strcmp(scheme, "http") != 0 || address_parse(&a, host) < 0) {
		text_format(error, size,
		            "AWS_EC2_METADATA_SERVICE_ENDPOINT is not http://ADDRESS[:PORT]: %s",
		            url);
		return -EINVAL;
	}
	e = a.family == AF_INET ? V4 : V6;
	i->endpoints[e] = (struct endpoint_of){.used = true, .address = a, .port = port};
	i->preferred = e;
	return 0;
}

/* An endpoint wins over a mode, as in the SDKs; without either both families are used. */
static int configure(struct imds *i, const struct imds_options *o, char *error, size_t size)
{
	bool v4 = !o->mode || !o->mode[0] || strcasecmp(o->mode, "IPv4") == 0;
	bool v6 = !o->mode || !o->mode[0] || strcasecmp(o->mode, "IPv6") == 0;

	i->disabled = o->disabled && strcasecmp(o->disabled, "true") == 0;
	i->spare_per_minute = o->spare_per_minute < SENT_MAX ? o->spare_per_minute : SENT_MAX;
	if (o->endpoint && o->endpoint[0])
		return use_endpoint(i, o->endpoint, error, size);
	if (!v4 && !v6) {
		text_format(error, size,
		            "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE is neither IPv4 nor IPv6: %s",
		            o->mode);
		return -EINVAL;
	}
	i->endpoints[V4] = (struct endpoint_of){.used = v4, .port = 80};
	i->endpoints[V6] = (struct endpoint_of){.used = v6, .port = 80};
	(void) address_parse(&i->endpoints[V4].address, "169.254.169.254");
	(void) address_parse(&i->endpoints[V6].address, "fd00:ec2::254");
	i->preferred = v4 ? V4 : V6;
	return 0;
}

struct imds *imds_free(struct imds *i)
{
	if (!i)
		return NULL;
	exchange_free(i->put);
	sd_event_source_disable_unref(i->defer);
	sd_event_unref(i->event);
	explicit_bzero(i, sizeof(*i));
	free(i);
	return NULL;
}

int imds_new(struct imds **ret, sd_event *event, struct http *http,
             const struct imds_options *options, char *ret_error, size_t error_size)
{
	struct imds *i = calloc(1, sizeof(*i));
	int r;

	if (!i)
		return -ENOMEM;
	i->event = sd_event_ref(event);
	i->http = http;
	r = configure(i, options, ret_error, error_size);
	if (r == 0)
		r = sd_event_add_defer(event, &i->defer, on_defer, i);
	if (r >= 0)
		r = sd_event_source_set_enabled(i->defer, SD_EVENT_OFF);
	if (r < 0) {
		imds_free(i);
		return r;
	}
	*ret = i;
	return 0;
}
