/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever kubelet, or what calls itself so, writes into the journal: each line of the input. */
#define run_from_monotonic fake_from_monotonic
#define probe_kubelet      tested_kubelet

#include "../fakerun.h"

#include "../../probes/kubelet.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

usec_t fake_from_monotonic(const struct run *r, usec_t monotonic)
{
	return monotonic;
}

static void feed(struct run *r, const uint8_t *data, size_t size)
{
	char message[JOURNAL_MESSAGE_MAX];
	struct journal_entry e = {
		.message = message, .unit = "kubelet.service", .identifier = "kubelet", .at = 1000};

	while (size > 0) {
		const uint8_t *end = memchr(data, '\n', size);
		size_t len = end ? (size_t) (end - data) : size;

		size -= len + (end != NULL);
		e.len = len < sizeof(message) ? len : sizeof(message) - 1;
		memcpy(message, data, e.len);
		message[e.len] = 0;
		e.len = strlen(message);
		e.identifier = e.len % 4 ? "kubelet" : "systemd";
		on_line(r, &e, 0);
		data = end ? end + 1 : data + len;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run *r = calloc(1, sizeof(*r));
	struct state *s;
	struct memory *m;
	struct files *f = NULL;
	struct words w;

	if (!r || files_new(&f, "/proc/self/fdinfo") < 0) {
		free(r);
		return 0;
	}
	r->files = f;
	r->now = 1001;
	r->state = s = calloc(1, sizeof(*s));
	r->memory = m = calloc(1, sizeof(*m));
	if (s && m && matcher_init(&m->matcher, lines, N_LINES) == 0) {
		feed(r, data, size);
		s->known = true;
		(void) text_format(s->unit.active, sizeof(s->unit.active), "%s",
		                   size % 2 ? "failed" : "inactive");
		observe_unit(r);
		observe_denied(r);
		observe_api(r);
		(void) text_format(s->unit.active, sizeof(s->unit.active), "active");
		observe_pleg(r);
	}
	for (size_t i = 0; i < r->n_seen; i++)
		if (tested_kubelet.judge(&r->seen[i], &w) != CODE_NONE &&
		    !text_is_clean(w.summary, strlen(w.summary)))
			abort();
	for (size_t i = 0; i < r->n_reads; i++)
		free(r->reads[i]);
	fake_free(r);
	files_free(f);
	free(r);
	return 0;
}
