/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the VPC CNI logs: the first byte says to which file and how old, the lines are the rest.
 * All that is said of it must be fit to be shown. */
#define run_tail        fake_tail
#define probe_ipamd_log tested_ipamd_log

#include "../fakecni.h"

int fake_tail(struct run *r, const struct tail_query *q, struct tail *where, run_tail_line_t line,
              run_tail_t end, uintptr_t tag)
{
	return -EOPNOTSUPP;
}

#include "../../probes/ipamd_log.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void feed(struct run *r, const char *p, size_t len, enum file file)
{
	const char *end = p + len, *newline;

	for (; (newline = memchr(p, '\n', (size_t) (end - p))); p = newline + 1)
		on_line(r, p, (size_t) (newline - p), file);
	on_line(r, p, (size_t) (end - p), file);
}

static void judge_all(const struct run *r)
{
	for (size_t i = 0; i < r->n_seen; i++) {
		const struct observation *o = &r->seen[i];
		struct words w = {0};

		if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
		    o->outcome == OUTCOME_UNKNOWN)
			continue;
		if (tested_ipamd_log.judge(o, &w) != CODE_NONE &&
		    (!w.summary[0] || !text_is_clean(w.summary, strlen(w.summary))))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run *r = calloc(1, sizeof(*r));
	struct state *s;

	if (!r || size == 0)
		return free(r), 0;
	r->now = world.uptime = 86400 * USEC_PER_SEC;
	world.realtime = (UINT64_C(1787220000) + data[0] * 20) * USEC_PER_SEC;
	r->node.cni.known = r->node.cni.web_identity = data[0] & 4;
	r->node.ipamd.served_at = data[0] & 8 ? r->now : 0;
	r->net_error = -EPERM;
	r->memory = calloc(1, sizeof(struct memory));
	r->state = s = calloc(1, sizeof(*s));
	if (r->memory && s) {
		for (size_t i = 0; i < ELEMENTS(rules); i++)
			s->literals[i] = rules[i].literal;
		if (matcher_init(&s->matcher, s->literals, ELEMENTS(rules)) < 0)
			abort();
		feed(r, (const char *) data + 1, size - 1, data[0] % _FILE_MAX);
		conclude(r);
		judge_all(r);
	}
	fake_free(r);
	free(r);
	return 0;
}
