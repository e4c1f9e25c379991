/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* What a probe saw: a plain value without pointers, assignable with =. */

#include "util.h"

/* Order is causal: a layer may only ever be explained by a layer above it in this list. */
/* clang-format off */
#define LAYERS(X) \
	X(HOST, "host") \
	X(CLOCK, "clock") \
	X(LINK, "link") \
	X(ROUTE, "route") \
	X(METADATA, "metadata") \
	X(CREDENTIALS, "credentials") \
	X(DNS, "dns") \
	X(ENDPOINT, "endpoint") \
	X(BOOTSTRAP, "bootstrap") \
	X(RUNTIME, "runtime") \
	X(APISERVER, "apiserver") \
	X(IDENTITY, "identity") \
	X(KUBELET, "kubelet") \
	X(CNI, "cni") \
	X(ADDRESS, "address") \
	X(PODNET, "podnet") \
	X(LIFECYCLE, "lifecycle")
/* clang-format on */

enum layer {
#define X(id, name) LAYER_##id,
	LAYERS(X)
#undef X
		_LAYER_MAX
};

/* How the world answered. Never how we failed: that is a negative errno, and a probe that could not
 * look is UNKNOWN with the reason in detail. Only OK and SKIPPED are good; UNKNOWN says nothing. */
/* clang-format off */
#define OUTCOMES(X) \
	X(OK, "ok") \
	X(TIMEOUT, "timeout") \
	X(REFUSED, "refused") \
	X(UNREACHABLE, "unreachable") \
	X(RESET, "reset") \
	X(ABSENT, "absent") \
	X(DENIED, "denied") \
	X(MALFORMED, "malformed") \
	X(UNTRUSTED, "untrusted") \
	X(EXPIRED, "expired") \
	X(EXHAUSTED, "exhausted") \
	X(SLOW, "slow") \
	X(FOREIGN, "foreign") \
	X(FAILED, "failed") \
	X(SKIPPED, "skipped") \
	X(UNKNOWN, "unknown")
/* clang-format on */

enum outcome {
#define X(id, name) OUTCOME_##id,
	OUTCOMES(X)
#undef X
		_OUTCOME_MAX
};

enum {
	SUBJECT_MAX = 96,  /* bytes with NUL */
	DETAIL_MAX = 200,  /* bytes with NUL */
	EVIDENCE_MAX = 10, /* keys an observation can carry */
	SUMMARY_MAX = 161, /* CONTRACT.md section 3: at most 160 bytes */
	REMEDY_MAX = 400,  /* one line that can be typed */
};

/* A fact behind an outcome: numbers stay numbers. */
struct evidence {
	char key[24];
	char text[72]; /* when !is_number */
	int64_t number;
	bool is_number;
};

struct observation {
	char probe[24];
	char aspect[16]; /* which part of the probe: "tcp", "tls"; empty: all of it */
	enum layer layer;
	enum outcome outcome;
	int code; /* errno, HTTP status, DNS rcode, X509 error: whichever the outcome came from */
	usec_t at, took;  /* CLOCK_BOOTTIME; duration */
	usec_t valid_for; /* what a log line said is believed so long; 0: until the next look */
	char subject[SUBJECT_MAX]; /* endpoint, interface, file, unit; empty: the node */
	char detail[DETAIL_MAX];   /* one clean line for people; never parsed */
	struct evidence evidence[EVIDENCE_MAX];
	uint8_t n_evidence;
};

const char *layer_name(enum layer l);
int layer_from_name(const char *s); /* -EINVAL */
const char *outcome_name(enum outcome o);
int outcome_from_name(const char *s); /* -EINVAL */

/* The errno says that this process ran out of descriptors or memory: nothing of the world. Sign
 * does not matter. */
bool errno_is_ours(int e);
/* The outcome an errno of connect, send, open or stat stands for; 0 is OK, UNKNOWN when it is ours;
 * sign does not matter. */
enum outcome outcome_from_errno(int e);

/* Adds a fact; a key that is there already is replaced; beyond EVIDENCE_MAX it is dropped. o may be
 * NULL (an observation that found no room): nothing happens. Text is cleaned and cut. */
void observation_number(struct observation *o, const char *key, int64_t number);
void observation_text(struct observation *o, const char *key, const char *format, ...)
	_printf_(3, 4);
void observation_detail(struct observation *o, const char *format, ...) _printf_(2, 3);

/* Reads a fact back, for judges. evidence_number() returns fallback and evidence_get_text() ""
 * where the key is absent or of the other kind. */
int64_t evidence_number(const struct observation *o, const char *key, int64_t fallback);
const char *evidence_get_text(const struct observation *o, const char *key);
