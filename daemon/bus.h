/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* systemd's units over D-Bus, asynchronously. Holds no opinion. */

#include <systemd/sd-event.h>

#include "file.h"

struct bus;
struct bus_call;

enum { UNIT_NAME_MAX = 96, UNIT_PROXY_MAX = 1024 };

/* A unit as systemd has it. Times are CLOCK_MONOTONIC of the host, in µs; 0: never. */
struct unit {
	char name[UNIT_NAME_MAX];
	char load[16];            /* LoadState: loaded, not-found, masked, bad-setting ... */
	char active[16], sub[24]; /* ActiveState, SubState */
	char result[24];          /* Result of a service: success, exit-code, signal, oom-kill,
	                             watchdog, dependency is not one of these */
	char file_state[24];      /* UnitFileState: enabled, disabled, masked, "" */
	usec_t active_enter, active_exit, inactive_enter, inactive_exit;
	usec_t main_start, main_exit;   /* ExecMainStartTimestampMonotonic, ...Exit... */
	uint32_t restarts;              /* NRestarts, since the unit was last started by hand */
	uint32_t main_pid;              /* 0: none */
	int32_t main_code, main_status; /* ExecMainCode (CLD_*), ExecMainStatus */
	/* proxy variables among Environment= and what EnvironmentFiles= name, "" when unset. They
	 * may hold a password: for comparison, never for output. */
	char http_proxy[UNIT_PROXY_MAX], https_proxy[UNIT_PROXY_MAX], no_proxy[UNIT_PROXY_MAX];
};

struct bus_reply {
	/* 0; -ENOENT: no bus below this root (and none was expected); -ECONNREFUSED: systemd's bus
	 * does not answer; -ETIMEDOUT; -EACCES; -EBADMSG: an answer of a strange shape; else ours
	 */
	int error;
	const struct unit *unit; /* valid during the callback only; NULL with an error */
};

typedef void (*bus_done_t)(struct bus_call *c, const struct bus_reply *r, void *userdata);
/* A unit that is watched has changed. */
typedef void (*bus_changed_t)(const char *unit, void *userdata);

/* Connects at the first call, and again when the connection was lost: a bus that comes up after us
 * is found. The socket is DIR's own: /run/dbus/system_bus_socket, else /run/systemd/private. */
int bus_new(struct bus **ret, sd_event *event, const struct files *files, bus_changed_t changed,
            void *userdata);
struct bus *bus_free(struct bus *b);
/* Calls changed() whenever properties of this unit change, from the moment the bus is there. From
 * then on a look at it is answered from the one before, for a minute, as long as nothing has
 * changed. */
int bus_watch(struct bus *b, const char *unit);
/* One look at a unit, "kubelet.service". A unit that does not exist is no error: load says
 * not-found. done is called once from the loop, never from inside. */
int bus_call_new(struct bus_call **ret, struct bus *b, const char *unit, usec_t timeout,
                 bus_done_t done, void *userdata);
struct bus_call *bus_call_free(struct bus_call *c);
