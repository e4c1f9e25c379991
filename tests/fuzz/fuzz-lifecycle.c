/* SPDX-License-Identifier: Apache-2.0 */
/* What metadata announces, and the records of boots in wtmp: these same bytes are all of them. */
#include "../fakerun.h"

#define run_uptime      fake_uptime
#define run_recall      fake_recall
#define run_remember    fake_remember
#define run_realtime    fake_realtime
#define run_witness     fake_witness
#define probe_lifecycle tested_lifecycle
usec_t run_uptime(const struct run *r);
const char *run_recall(const struct run *r, const char *key);
void run_remember(struct run *r, const char *key, const char *value);
usec_t run_realtime(const struct run *r);
void run_witness(struct run *r, enum witness w, const struct http_reply *reply);

#include "../../probes/lifecycle.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

usec_t run_uptime(const struct run *r)
{
	return 0;
}

const char *run_recall(const struct run *r, const char *key)
{
	return NULL;
}

void run_remember(struct run *r, const char *key, const char *value)
{
}

usec_t run_realtime(const struct run *r)
{
	return 0;
}

void run_witness(struct run *r, enum witness w, const struct http_reply *reply)
{
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ending e;
	char *text = malloc(size + 1); /* a body ends with a NUL, as http.h has it */

	if (!text)
		return 0;
	memcpy(text, data, size);
	text[size] = 0;
	for (enum notice n = 0; n < N_NOTICES; n++) {
		struct known k = {0};

		take_body(&k, n, text, size);
		if (!memchr(k.what, 0, sizeof(k.what)) || k.answer < NOTHING ||
		    (k.answer == ANNOUNCED && n != REBALANCE && !k.what[0]))
			abort();
	}
	if (parse_date(text) < 0)
		abort();
	(void) was_clean(text, size);
	(void) parse_ending(text, &e);
	free(text);
	return 0;
}
