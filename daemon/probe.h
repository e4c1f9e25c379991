/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What a probe is, and all that it may use. A probe asks one question: start() arms I/O through the
 * run_*() calls below and returns at once; callbacks emit observations; run_end() ends the run.
 * judge() says what an observation means, and reads nothing else. */

#include "aws-query.h"
#include "aws.h"
#include "bus.h"
#include "catalogue.h"
#include "clock.h"
#include "containerd.h"
#include "cri.h"
#include "dns.h"
#include "eni-limits.h"
#include "ethtool.h"
#include "file.h"
#include "grpc.h"
#include "hop.h"
#include "http.h"
#include "imds.h"
#include "ipamd-json.h"
#include "journal.h"
#include "kubeconfig.h"
#include "kubelet-config.h"
#include "match.h"
#include "netlink.h"
#include "node.h"
#include "proxy.h"
#include "sigv4.h"
#include "sockdiag.h"
#include "tail.h"
#include "toml.h"
#include "userdata.h"

struct run;

/* What a judge says: the code is its return value. */
struct words {
	char summary[SUMMARY_MAX]; /* one line with the evidence that decided it */
};

enum {
	PROBE_CODES_MAX = 24,
	PROBE_WATCH_MAX = 16,
	PROBE_UNITS_MAX = 12,
	PROBE_ASKED_MAX = 12,
	PROBE_SLOTS_MAX = 8,
};

struct probe {
	const char *name;
	const char *what;   /* one line for the man page: what it looks at */
	enum layer layer;   /* the row of the chain in which people look for it */
	usec_t every;       /* default interval of each slot */
	usec_t failing;     /* interval while what it found stands; 0: half of `every` */
	usec_t hold;        /* woken again and again, it looks no oftener; 0: ten times a second */
	usec_t retry;       /* interval of a slot that fails and is not yet sure; 0: 1 s */
	usec_t timeout;     /* deadline of a run, a safety net over the calls' own */
	unsigned slots;     /* independent subjects, staggered over `every`; 0 means 1 */
	const char *after;  /* its first run waits for the first result of this probe, or NULL */
	size_t state_size;  /* per run: zeroed before, wiped after */
	size_t memory_size; /* per probe: zeroed at start, kept from run to run */
	const char *watch[PROBE_WATCH_MAX]; /* files or directories whose change wakes it */
	const char *units[PROBE_UNITS_MAX]; /* systemd units whose change wakes it */
	/* Found, or about to be found, one of these asks for a look out of turn: what costs too
	 * much to look at all the time. Closed by CODE_NONE. No two such looks within ask_every. */
	enum code asked_by[PROBE_ASKED_MAX];
	usec_t ask_every;
	/* A slot's interval is so many times `every`; 0 means 1. */
	uint8_t rarer[PROBE_SLOTS_MAX];
	bool on_net;      /* a link, address, rule or route that changes wakes it */
	bool leaves_node; /* sends packets that leave the node: has a switch of its own */
	bool spread;    /* its first look waits for a place of its own within 20 s: thousands share
	                   what it looks at */
	bool needs_ec2; /* skipped where the host is known not to be EC2 */
	usec_t grace;   /* while the node is up for less, what it finds is "starting" */
	int (*start)(struct run *r); /* 0, or a negative errno: the run ends as UNKNOWN */
	/* Pure. CODE_NONE: nothing wrong, or nothing known (OK, SKIPPED, UNKNOWN always are). */
	enum code (*judge)(const struct observation *o, struct words *ret);
	enum code codes[PROBE_CODES_MAX]; /* what judge may return, closed by CODE_NONE */
};

#define PROBE(id) extern const struct probe probe_##id;
#include "../probes/list.h"
#undef PROBE

extern const struct probe *const probes[]; /* in causal order, closed by NULL */
const struct probe *probe_by_name(const char *name);
size_t probe_count(void);

/* ---- what a run may ask of its surroundings ---- */

unsigned run_slot(const struct run *r);
usec_t run_now(const struct run *r);    /* CLOCK_BOOTTIME at this wake-up */
usec_t run_uptime(const struct run *r); /* of the node: DIR's own with --root */
bool run_once(const struct run *r);     /* a `check`, not the daemon: no budget to save */
void *run_state(struct run *r);
void *run_memory(struct run *r);
const struct node *run_node(const struct run *r);
struct node *run_learn(struct run *r); /* to write what was learnt of the node */
const char *run_env(const struct run *r, const char *name); /* NULL when unset or empty */
const struct files *run_files(const struct run *r);
bool run_woken(const struct run *r);      /* by a file, netlink, a unit, not by its interval */
enum code run_asked(const struct run *r); /* the finding that asked for this look, or CODE_NONE */
usec_t
run_realtime(const struct run *r); /* wall clock: to hold against dates, never for intervals */
/* What the node's init was started with differs from ours: from CLOCK_MONOTONIC of the host (units,
 * journal) to CLOCK_BOOTTIME. A suspended node shifts them: then the moment is too early. */
usec_t run_from_monotonic(const struct run *r, usec_t monotonic);
/* SubnetWatch= and what counts as low there. */
const struct subnet_watch *run_subnet_watch(const struct run *r);
/* Notes what the Date header of this reply says of our clock; a reply without one says nothing. */
void run_witness(struct run *r, enum witness w, const struct http_reply *reply);
/* Small facts that outlive the daemon and the boot, of this very machine: the value, or NULL when
 * there is none. Keys are "probe.what", values at most REMEMBER_MAX bytes; never a secret. The
 * value is valid until the next run_remember() of the key; NULL forgets it. */
enum { REMEMBER_MAX = 512 };
const char *run_recall(const struct run *r, const char *key);
void run_remember(struct run *r, const char *key, const char *value);

/* Adds an observation at this moment: a blank one to fill, or NULL when there is no room (the fill
 * helpers take NULL). took counts from the run's start until set otherwise. */
struct observation *run_observe(struct run *r, enum layer layer, const char *aspect,
                                const char *subject, enum outcome outcome, int code);
/* Ends the run: every call of it is cancelled, its observations go to the ledger. r is gone. */
void run_end(struct run *r);

/* ---- instruments, each call owned by the run and released with it ---- */

typedef void (*run_http_t)(struct run *r, const struct http_reply *reply, uintptr_t tag);
typedef void (*run_imds_t)(struct run *r, const struct imds_reply *reply, uintptr_t tag);
typedef void (*run_dns_t)(struct run *r, const struct dns_reply *reply, uintptr_t tag);
typedef void (*run_hop_t)(struct run *r, const struct hop_reply *reply, uintptr_t tag);
typedef void (*run_timer_t)(struct run *r, uintptr_t tag);

int run_http(struct run *r, const struct http_request *rq, run_http_t done, uintptr_t tag);
int run_imds(struct run *r, const char *path, size_t body_max, bool spare, run_imds_t done,
             uintptr_t tag);
/* The credentials of the node's role, from metadata, anew each time. */
enum credentials_end {
	CREDENTIALS_HERE,
	CREDENTIALS_NONE,      /* no role, no set, or not a whole one */
	CREDENTIALS_DISABLED,  /* AWS_EC2_METADATA_DISABLED */
	CREDENTIALS_HELD_BACK, /* our own budget of requests */
	CREDENTIALS_SILENT,
	CREDENTIALS_FAILED, /* we did */
};
typedef void (*run_credentials_t)(struct run *r, enum credentials_end end,
                                  const struct credentials *c);
/* Lives in run_state(), and is wiped with it. The role is filled in whatever the end. */
struct credentials_query {
	struct credentials credentials;
	run_credentials_t done;
};
int run_credentials(struct run *r, struct credentials_query *q, run_credentials_t done);
const char *credentials_end_text(enum credentials_end e); /* for an observation's detail */
bool run_imds_endpoint(const struct run *r, int family, struct address *ret, uint16_t *ret_port);
int run_dns(struct run *r, const struct address *server, const char *name, enum dns_type type,
            usec_t timeout, run_dns_t done, uintptr_t tag);
int run_hop(struct run *r, const struct address *server, uint16_t port, usec_t timeout,
            run_hop_t done, uintptr_t tag);
typedef void (*run_unit_t)(struct run *r, const struct bus_reply *reply, uintptr_t tag);
typedef void (*run_line_t)(struct run *r, const struct journal_entry *e, uintptr_t tag);
typedef void (*run_lines_t)(struct run *r, const struct journal_end *e, uintptr_t tag);
typedef void (*run_tail_line_t)(struct run *r, const char *line, size_t len, uintptr_t tag);
typedef void (*run_tail_t)(struct run *r, const struct tail_end *e, uintptr_t tag);
typedef void (*run_grpc_t)(struct run *r, const struct grpc_reply *reply, uintptr_t tag);

/* See bus.h. */
int run_unit(struct run *r, const char *unit, usec_t timeout, run_unit_t done, uintptr_t tag);
/* See journal.h and tail.h: the cursor and the tail live in run_memory(). */
int run_journal(struct run *r, const struct journal_query *q,
                char cursor[static JOURNAL_CURSOR_MAX], run_line_t line, run_lines_t done,
                uintptr_t tag);
int run_tail(struct run *r, const struct tail_query *q, struct tail *where, run_tail_line_t line,
             run_tail_t done, uintptr_t tag);
/* See grpc.h. */
int run_grpc(struct run *r, const char *socket, const char *method, const void *message, size_t len,
             usec_t timeout, run_grpc_t done, uintptr_t tag);
int run_timer(struct run *r, usec_t after, run_timer_t done, uintptr_t tag);
/* In a check, who knows something of the node (whether it is registered, what ipamd's log says)
 * looks at the same time as who has to know. True: it is not known yet, and again() comes in a
 * moment; *waited adds up what that took, and ends it. */
static inline bool run_awaits(struct run *r, bool known, usec_t *waited, run_timer_t again)
{
	static const usec_t step = 20 * USEC_PER_MSEC, patience = 1500 * USEC_PER_MSEC;

	if (known || !run_once(r) || *waited >= patience)
		return false;
	*waited += step;
	return run_timer(r, step, again, 0) == 0;
}
/* The kernel's links, addresses, rules, routes; at most max_age old while nothing changed. */
int run_net(struct run *r, usec_t max_age, const struct net **ret);
/* See sockdiag.h. */
int run_sockets(struct run *r, const struct address *to, uint16_t port, struct tcp_sockets *ret);
/* Tells a local block from a silent far side without privilege (facts/lab.md section 9): sends one
 * empty datagram. Returns 0 when it left this node or none could be made, else the positive errno
 * that stopped it. */
int run_local_block(struct run *r, const struct address *to, uint16_t port);
/* file_read() whose buffer is freed with the run. */
int run_read(struct run *r, const char *path, size_t max, const char **ret, size_t *ret_len);
