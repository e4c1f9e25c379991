/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A probe alone: the run_*() calls of probe.h answered from tables, so that a probe can be run on
 * any picture of the world. Include this first, then the probe's own .c file; its calls and its
 * table are renamed, so that the real ones may be linked beside them. */

#define run_now     fake_now
#define run_once    fake_once
#define run_state   fake_state
#define run_memory  fake_memory
#define run_node    fake_node
#define run_learn   fake_learn
#define run_files   fake_files
#define run_observe fake_observe
#define run_end     fake_end
#define run_imds    fake_imds
#define run_net     fake_net
#define run_read    fake_read

#define probe_link       tested_link
#define probe_cni_config tested_cni_config
#define probe_eni        tested_eni
#define probe_limits     tested_limits

#include <errno.h>

#include "probe.h"

enum { FAKE_OBSERVATIONS = 128, FAKE_CALLS = 8, FAKE_READS = 64 };

struct fake_answer {
	const char *path; /* behind /latest/meta-data/network/interfaces/macs/ */
	int status;
	const char *body;
};

struct run {
	usec_t now;
	bool once, ended;
	void *state, *memory;
	struct node node;
	const struct files *files;
	const struct net *net;
	int net_error;
	struct observation seen[FAKE_OBSERVATIONS];
	size_t n_seen;
	char *reads[FAKE_READS];
	size_t n_reads;
	/* metadata: NULL is silent; budget counts down to replies that say throttled */
	const struct fake_answer *answers;
	int budget;
	unsigned asked, most_in_flight;
	struct {
		char path[160];
		run_imds_t done;
		uintptr_t tag;
	} calls[FAKE_CALLS];
	size_t n_calls;
	/* instead of files: what every path holds */
	const void *text;
	size_t text_len;
};

usec_t fake_now(const struct run *r)
{
	return r->now;
}

bool fake_once(const struct run *r)
{
	return r->once;
}

void *fake_state(struct run *r)
{
	return r->state;
}

void *fake_memory(struct run *r)
{
	return r->memory;
}

const struct node *fake_node(const struct run *r)
{
	return &r->node;
}

struct node *fake_learn(struct run *r)
{
	return &r->node;
}

const struct files *fake_files(const struct run *r)
{
	return r->files;
}

struct observation *fake_observe(struct run *r, enum layer layer, const char *aspect,
                                 const char *subject, enum outcome outcome, int code)
{
	struct observation *o;

	if (r->n_seen == FAKE_OBSERVATIONS)
		return NULL;
	o = &r->seen[r->n_seen++];
	*o = (struct observation){.layer = layer, .outcome = outcome, .code = code, .at = r->now};
	(void) text_format(o->aspect, sizeof(o->aspect), "%s", aspect);
	(void) text_format(o->subject, sizeof(o->subject), "%s", subject);
	return o;
}

void fake_end(struct run *r)
{
	r->ended = true;
}

int fake_net(struct run *r, usec_t max_age, const struct net **ret)
{
	if (r->net_error)
		return r->net_error;
	*ret = r->net;
	return 0;
}

int fake_read(struct run *r, const char *path, size_t max, const char **ret, size_t *ret_len)
{
	char *text = NULL;
	size_t len = r->text_len;
	int e = 0;

	if (r->n_reads == FAKE_READS)
		return -ENOMEM;
	if (r->text) {
		text = malloc(len + 1);
		if (!text)
			return -ENOMEM;
		memcpy(text, r->text, len);
		text[len] = 0;
	} else {
		e = r->files ? file_read(r->files, path, max, &text, &len) : -ENOENT;
	}
	if (e < 0)
		return e;
	*ret = r->reads[r->n_reads++] = text;
	*ret_len = len;
	return 0;
}

int fake_imds(struct run *r, const char *path, size_t body_max, bool spare, run_imds_t done_cb,
              uintptr_t tag)
{
	if (r->n_calls == FAKE_CALLS)
		return -ENOSPC;
	(void) text_format(r->calls[r->n_calls].path, sizeof(r->calls[0].path), "%s", path);
	r->calls[r->n_calls].done = done_cb;
	r->calls[r->n_calls++].tag = tag;
	if (r->n_calls > r->most_in_flight)
		r->most_in_flight = (unsigned) r->n_calls;
	return 0;
}

static inline void fake_answer(struct run *r, const char *path, struct imds_reply *reply)
{
	static const char base[] = "/latest/meta-data/network/interfaces/macs/";

	if (!r->answers) {
		reply->step = IMDS_TOKEN;
		reply->http.outcome = OUTCOME_TIMEOUT;
		return;
	}
	reply->step = IMDS_GET;
	reply->http.outcome = OUTCOME_OK;
	reply->http.code = 404;
	reply->http.body = "<html>404</html>";
	for (const struct fake_answer *a = r->answers; a->path; a++)
		if (strncmp(path, base, sizeof(base) - 1) == 0 &&
		    strcmp(path + sizeof(base) - 1, a->path) == 0) {
			reply->http.code = a->status;
			reply->http.body = a->body;
		}
	reply->http.body_len = strlen(reply->http.body);
}

/* Starts the probe and answers what it asks, oldest first, until it ends. */
static inline int fake_run(struct run *r, const struct probe *p)
{
	int e;

	free(r->state);
	r->state = calloc(1, p->state_size + 1);
	if (!r->memory)
		r->memory = calloc(1, p->memory_size + 1);
	if (!r->state || !r->memory)
		return -ENOMEM;
	r->ended = false;
	r->n_seen = 0;
	r->asked = r->most_in_flight = 0;
	e = p->start(r);
	while (e == 0 && !r->ended && r->n_calls > 0) {
		struct imds_reply reply = {0};
		char path[160];
		run_imds_t done_cb = r->calls[0].done;
		uintptr_t tag = r->calls[0].tag;

		memcpy(path, r->calls[0].path, sizeof(path));
		memmove(&r->calls[0], &r->calls[1], --r->n_calls * sizeof(r->calls[0]));
		if (r->budget-- > 0) {
			r->asked++;
			fake_answer(r, path, &reply);
		} else {
			reply.throttled = true;
		}
		done_cb(r, &reply, tag);
	}
	for (size_t i = 0; i < r->n_reads; i++)
		free(r->reads[i]);
	r->n_reads = r->n_calls = 0;
	return e;
}

static inline void fake_free(struct run *r)
{
	free(r->state);
	free(r->memory);
	r->state = r->memory = NULL;
}

static inline const struct observation *fake_find(const struct run *r, const char *aspect,
                                                  const char *subject)
{
	for (size_t i = 0; i < r->n_seen; i++)
		if (strcmp(r->seen[i].aspect, aspect) == 0 &&
		    (!subject || strcmp(r->seen[i].subject, subject) == 0))
			return &r->seen[i];
	return NULL;
}

/* What the probe's judge says of that observation; CODE_NONE also when it was not made. */
static inline enum code fake_judge(const struct run *r, const struct probe *p, const char *aspect)
{
	const struct observation *o = fake_find(r, aspect, NULL);
	struct words w = {0};
	enum code c = o ? p->judge(o, &w) : CODE_NONE;

	if (c != CODE_NONE)
		printf("# %s: %s\n", aspect, w.summary);
	return c;
}
