/* SPDX-License-Identifier: Apache-2.0 */
#include "pass.h"

/* Facts in the order of probes/list.h, slot by slot. */
static size_t gather(const struct ledger *l, const struct fact *ret[LEDGER_MAX])
{
	size_t n = 0;

	for (const struct probe *const *p = probes; *p; p++)
		for (unsigned slot = 0; slot < ((*p)->slots ? (*p)->slots : 1); slot++)
			for (size_t i = 0; i < l->n; i++)
				if (l->entries[i].probe == *p && l->entries[i].slot == slot)
					ret[n++] = &l->entries[i].fact;
	return n;
}

/* Whether something that would explain f has been seen, and only waits to be confirmed. */
static bool cause_is_coming(const struct ledger *l, const struct fact *f)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct fact *c = &l->entries[i].fact;

		if (c->pending != CODE_NONE && !c->graced && c->pending != c->code &&
		    code_explains(c->pending, c->latest.subject, f->code, f->bad.subject))
			return true;
	}
	return false;
}

static void hold_back(struct ledger *l)
{
	for (size_t i = 0; i < l->n; i++) {
		struct fact *f = &l->entries[i].fact;

		f->held = f->code != CODE_NONE && !f->announced && cause_is_coming(l, f);
	}
}

static bool has(const struct report *r, enum code code)
{
	for (size_t i = 0; i < r->n_findings; i++)
		if (r->findings[i].code == code)
			return true;
	return false;
}

/* Whether one of the causes of finding i, however far, was cleared since. */
static bool lost_its_cause(const struct report *before, size_t i, const struct report *now)
{
	for (int at = before->findings[i].because; at >= 0; at = before->findings[at].because)
		if (!has(now, before->findings[at].code))
			return true;
	return false;
}

static uint32_t drop_consequences(struct ledger *l, const struct report *before,
                                  const struct report *now)
{
	uint32_t again = 0;

	for (size_t i = 0; i < before->n_findings; i++) {
		enum code code = before->findings[i].code;

		/* a notice is no fault that could be one of its own */
		if (cause_of(code)->severity != SEVERITY_NOTICE && has(now, code) &&
		    lost_its_cause(before, i, now))
			again |= ledger_doubt(l, code);
	}
	return again;
}

static void announce(struct ledger *l, const struct report *r)
{
	for (size_t i = 0; i < l->n; i++) {
		struct fact *f = &l->entries[i].fact;

		f->announced = f->code != CODE_NONE && !f->held && has(r, f->code);
	}
}

void pass_make(struct pass *p, struct ledger *l, const struct diagnose_input *in,
               struct report_diff *ret_diff, uint32_t *ret_again)
{
	const struct report *before = p->made ? &p->reports[p->current] : NULL;
	struct report *now = &p->reports[1 - p->current];
	const struct fact *facts[LEDGER_MAX];
	size_t n;

	ledger_expire(l, in->now);
	hold_back(l);
	n = gather(l, facts);
	diagnose(facts, n, in, now);
	*ret_again = before ? drop_consequences(l, before, now) : 0;
	if (*ret_again)
		diagnose(facts, n, in, now);
	if (!in->complete && now->verdict.state == STATE_STARTING)
		now->verdict.state = in->presumed;
	announce(l, now);
	p->current = 1 - p->current;
	p->made++;
	report_diff(before, now, ret_diff);
}
