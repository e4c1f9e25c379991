/* SPDX-License-Identifier: Apache-2.0 */
/* What a runtime answers, and what it and the kubelet write into the journal: the same bytes as
 * each. */
#define run_grpc           fake_grpc
#define run_unit           fake_unit
#define run_journal        fake_journal
#define run_from_monotonic fake_from_monotonic
#define probe_runtime      tested_runtime

#include "../fakerun.h"

#include "../../probes/runtime.c"

usec_t fake_from_monotonic(const struct run *r, usec_t monotonic)
{
	return monotonic;
}

int fake_grpc(struct run *r, const char *path, const char *method, const void *message, size_t len,
              usec_t timeout, run_grpc_t done_cb, uintptr_t tag)
{
	return -EOPNOTSUPP;
}

int fake_unit(struct run *r, const char *unit, usec_t timeout, run_unit_t done_cb, uintptr_t tag)
{
	return -EOPNOTSUPP;
}

int fake_journal(struct run *r, const struct journal_query *q,
                 char cursor[static JOURNAL_CURSOR_MAX], run_line_t line, run_lines_t done_cb,
                 uintptr_t tag)
{
	return -EOPNOTSUPP;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Judged as it would be, a refusal makes one clean line. */
static void judge_pull_of(struct run *r)
{
	struct words words = {.summary = "?"};

	for (size_t i = 0; i < r->n_seen; i++)
		if (tested_runtime.judge(&r->seen[i], &words) != CODE_NONE &&
		    (!words.summary[0] || !text_is_clean(words.summary, strlen(words.summary)) ||
		     strchr(words.summary, '\n')))
			abort();
}

static void hear(struct run *r, const char *line, size_t len)
{
	struct journal_entry e = {
		.message = line, .len = len, .unit = "", .identifier = "", .at = r->now};

	on_line(r, &e, 0);
	tell_pulls(r, r->state, r->memory);
	judge_pull_of(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run *r = calloc(1, sizeof(*r));
	/* Blocks of their own, exactly as long, so that a byte read too many is seen. */
	uint8_t *message = malloc(size ? size : 1);
	char *line = malloc(size + 1);
	struct answer a = {0};
	struct memory m = {0};

	if (r && message && line) {
		r->state = calloc(1, tested_runtime.state_size);
		r->memory = calloc(1, tested_runtime.memory_size);
	}
	if (r && r->state && r->memory) {
		memcpy(message, data, size);
		memcpy(line, data, size);
		line[size] = 0;
		(void) read_version(message, size, &m);
		(void) read_status(message, size, &a);
		(void) read_image(message, size);
		hear(r, line, size);
	}
	free(message);
	free(line);
	if (r)
		fake_free(r);
	free(r);
	return 0;
}
