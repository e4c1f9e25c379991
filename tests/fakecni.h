/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* More of a fake run, for the probes of the VPC CNI: answers of local ports, of units, of the
 * journal; a tree of files. Include before the probe, in place of fakerun.h. */

#define run_uptime         fake_uptime
#define run_realtime       fake_realtime
#define run_woken          fake_woken
#define run_recall         fake_recall
#define run_remember       fake_remember
#define run_http           fake_http
#define run_grpc           fake_grpc
#define run_journal        fake_journal
#define run_unit           fake_unit
#define run_from_monotonic fake_from_monotonic

#define probe_ipamd     tested_ipamd
#define probe_addresses tested_addresses
#define probe_podnet    tested_podnet

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "fakerun.h"

/* What the world says; port 0 closes the list, what is not in it refuses. */
struct fake_port {
	uint16_t port;
	enum outcome outcome;
	enum http_stage stage;
	int code;
	const char *body;
};

/* What the runtime answers to a method; NULL closes the list, what is not in it is unimplemented.
 */
struct fake_cri {
	const char *method;
	const uint8_t *message;
	size_t len;
};

static struct {
	usec_t uptime, realtime;
	bool woken;
	char remembered[REMEMBER_MAX + 1];
	const struct fake_port *ports;
	enum outcome grpc;
	const struct fake_cri *cri; /* NULL: no runtime is there */
	const char *const *lines;   /* of the journal; NULL: there is none */
	const struct unit *units;
	size_t n_units;
	unsigned asked;
	char base[64];
} world;

usec_t fake_uptime(const struct run *r)
{
	return world.uptime;
}

usec_t fake_realtime(const struct run *r)
{
	return world.realtime;
}

bool fake_woken(const struct run *r)
{
	return world.woken;
}

usec_t fake_from_monotonic(const struct run *r, usec_t monotonic)
{
	return monotonic;
}

const char *fake_recall(const struct run *r, const char *key)
{
	return world.remembered[0] ? world.remembered : NULL;
}

void fake_remember(struct run *r, const char *key, const char *value)
{
	(void) text_format(world.remembered, sizeof(world.remembered), "%s", value ? value : "");
}

/* The answers come after start() has returned, as from the loop. */
static struct {
	enum { ASKED_HTTP, ASKED_GRPC, ASKED_JOURNAL, ASKED_UNIT } kind;
	uint16_t port;
	run_http_t http;
	run_grpc_t grpc;
	run_line_t line;
	run_lines_t lines;
	run_unit_t unit;
	char name[UNIT_NAME_MAX]; /* of the unit, or gRPC's method */
	uintptr_t tag;
} asked[16];
static size_t n_asked;

int fake_http(struct run *r, const struct http_request *rq, run_http_t on_done, uintptr_t tag)
{
	world.asked++;
	asked[n_asked].kind = ASKED_HTTP;
	asked[n_asked].port = rq->port;
	asked[n_asked].http = on_done;
	asked[n_asked++].tag = tag;
	return 0;
}

int fake_grpc(struct run *r, const char *socket, const char *method, const void *message,
              size_t len, usec_t timeout, run_grpc_t on_done, uintptr_t tag)
{
	world.asked++;
	asked[n_asked].kind = ASKED_GRPC;
	asked[n_asked].grpc = on_done;
	(void) text_format(asked[n_asked].name, sizeof(asked[0].name), "%s", method);
	asked[n_asked++].tag = tag;
	return 0;
}

int fake_journal(struct run *r, const struct journal_query *q,
                 char cursor[static JOURNAL_CURSOR_MAX], run_line_t line, run_lines_t on_done,
                 uintptr_t tag)
{
	if (!world.lines)
		return -ENOENT;
	asked[n_asked].kind = ASKED_JOURNAL;
	asked[n_asked].line = line;
	asked[n_asked].lines = on_done;
	asked[n_asked++].tag = tag;
	return 0;
}

int fake_unit(struct run *r, const char *unit, usec_t timeout, run_unit_t on_done, uintptr_t tag)
{
	if (!world.units)
		return -ENOENT;
	asked[n_asked].kind = ASKED_UNIT;
	asked[n_asked].unit = on_done;
	(void) text_format(asked[n_asked].name, sizeof(asked[0].name), "%s", unit);
	asked[n_asked++].tag = tag;
	return 0;
}

static inline void answer_http(struct run *r, size_t i)
{
	struct http_reply reply = {.outcome = OUTCOME_REFUSED, .code = ECONNREFUSED, .body = ""};

	for (const struct fake_port *p = world.ports; p && p->port; p++)
		if (p->port == asked[i].port) {
			reply.outcome = p->outcome;
			reply.stage = p->stage;
			reply.code = p->code;
			reply.body = p->body ? p->body : "";
			reply.body_len = strlen(reply.body);
		}
	asked[i].http(r, &reply, asked[i].tag);
}

static inline void answer_grpc(struct run *r, size_t i)
{
	struct grpc_reply reply = {.outcome = world.grpc, .message = (const uint8_t *) ""};

	if (strncmp(asked[i].name, "/runtime.", 9) == 0) {
		reply.outcome = world.cri ? OUTCOME_OK : OUTCOME_ABSENT;
		reply.status = GRPC_UNIMPLEMENTED;
		for (const struct fake_cri *c = world.cri; c && c->method; c++)
			if (strcmp(c->method, asked[i].name) == 0) {
				reply.status = GRPC_OK;
				reply.message = c->message;
				reply.len = c->len;
			}
	}
	asked[i].grpc(r, &reply, asked[i].tag);
}

static inline void answer_journal(struct run *r, size_t i)
{
	struct journal_end end = {0};

	for (const char *const *l = world.lines; *l; l++) {
		struct journal_entry e = {.message = *l, .len = strlen(*l), .at = r->now};

		asked[i].line(r, &e, asked[i].tag);
	}
	asked[i].lines(r, &end, asked[i].tag);
}

static inline void answer_unit(struct run *r, size_t i)
{
	struct unit none = {.load = "not-found"};
	struct bus_reply reply = {.unit = &none};

	for (size_t u = 0; u < world.n_units; u++)
		if (strcmp(world.units[u].name, asked[i].name) == 0)
			reply.unit = &world.units[u];
	asked[i].unit(r, &reply, asked[i].tag);
}

/* Runs the probe and answers, oldest first, until it ends. */
static inline int cni_run(struct run *r, const struct probe *p)
{
	int e;

	world.asked = 0;
	n_asked = 0;
	e = fake_run(r, p);
	for (size_t i = 0; e == 0 && !r->ended && i < n_asked; i++) {
		if (asked[i].kind == ASKED_HTTP) {
			answer_http(r, i);
		} else if (asked[i].kind == ASKED_GRPC) {
			answer_grpc(r, i);
		} else if (asked[i].kind == ASKED_JOURNAL) {
			answer_journal(r, i);
		} else {
			answer_unit(r, i);
		}
	}
	for (size_t i = 0; i < r->n_reads; i++)
		free(r->reads[i]);
	r->n_reads = 0;
	return e;
}

/* ---- files ---- */

static inline void put_file(const char *name, const char *text)
{
	char path[512];
	FILE *f;

	(void) text_format(path, sizeof(path), "%s/%s", world.base, name);
	for (char *p = path + strlen(world.base) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		(void) mkdir(path, 0755);
		*p = '/';
	}
	f = fopen(path, "we");
	if (f) {
		(void) fputs(text, f);
		(void) fclose(f);
	}
}

static inline void drop_file(const char *name)
{
	char path[512];

	(void) text_format(path, sizeof(path), "%s/%s", world.base, name);
	(void) remove(path);
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *w)
{
	return remove(path);
}

static inline struct files *tree_new(void)
{
	struct files *f = NULL;

	memset(&world, 0, sizeof(world));
	(void) text_format(world.base, sizeof(world.base), "/tmp/nodewhy-cni-XXXXXX");
	if (!mkdtemp(world.base) || files_new(&f, world.base) < 0)
		abort();
	return f;
}

static inline void tree_free(struct files *f)
{
	files_free(f);
	(void) nftw(world.base, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
