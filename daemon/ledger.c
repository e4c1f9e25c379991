/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger.h"

/* Two codes that take turns on one subject are a fault all the same: so many bad looks of whatever
 * code raise the latest. */
enum { MIXED_CONFIRM = 2 };

/* Not to see is no proof that a fault is gone: what was found stands through looks that cannot
 * tell. After so long it is news no more, and that nobody can tell is what is to be said. */
static const usec_t blind_keep = 300 * USEC_PER_SEC;

/* A summary ends as an event of Kubernetes too, and node-problem-detector takes that for a format:
 * a percent sign, of ours or of a line that is quoted, would eat what follows it. */
static void spell_percent(char *s, size_t size)
{
	char from[SUMMARY_MAX];
	size_t n;

	if (!strchr(s, '%'))
		return;
	(void) text_format(from, sizeof(from), "%s", s);
	s[0] = 0;
	for (const char *p = from; *p; p += n) {
		n = strcspn(p, "%");
		(void) text_append(s, size, "%.*s", (int) n, p);
		if (p[n] == '%') {
			(void) text_append(s, size, "pct");
			n++;
		}
	}
}

static enum code judge(const struct probe *p, const struct observation *o, struct words *w)
{
	enum code code;

	w->summary[0] = 0;
	if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	    o->outcome == OUTCOME_UNKNOWN)
		return CODE_NONE;
	code = p->judge(o, w);
	if (code != CODE_NONE && !w->summary[0])
		(void) text_format(w->summary, sizeof(w->summary), "%s", o->detail);
	spell_percent(w->summary, sizeof(w->summary));
	return code;
}

static struct ledger_entry *find(struct ledger *l, const struct probe *p, unsigned slot,
                                 const struct observation *o)
{
	for (size_t i = 0; i < l->n; i++) {
		struct ledger_entry *e = &l->entries[i];

		if (e->probe == p && e->slot == slot &&
		    strcmp(e->fact.latest.aspect, o->aspect) == 0 &&
		    strcmp(e->fact.latest.subject, o->subject) == 0 &&
		    e->fact.latest.layer == o->layer)
			return e;
	}
	return NULL;
}

static void clear(struct fact *f)
{
	f->code = CODE_NONE;
	f->held = f->announced = false;
	f->seen = 0;
	f->since = f->last_seen = 0;
	f->summary[0] = 0;
}

static enum pace note_good(struct ledger_entry *e)
{
	e->good++;
	e->bad = e->streak = 0;
	e->streak_code = CODE_NONE;
	e->fact.pending = CODE_NONE;
	e->fact.graced = false;
	if (e->fact.code == CODE_NONE)
		return PACE_CALM;
	if (e->good < CLEAR_AFTER)
		return PACE_UNSURE;
	clear(&e->fact);
	return PACE_CALM;
}

/* A look that could not tell. Bad looks that make no finding yet are no longer in a row. */
static enum pace note_blind(struct ledger_entry *e, usec_t at)
{
	if (e->fact.code == CODE_NONE)
		return note_good(e);
	if (!e->blind_since)
		e->blind_since = at;
	e->good = e->bad = e->streak = 0;
	e->streak_code = e->fact.pending = CODE_NONE;
	if (at - e->blind_since < blind_keep)
		return PACE_FAILING;
	clear(&e->fact);
	return PACE_CALM;
}

static enum pace note_bad(struct ledger_entry *e, enum code code, const struct words *w,
                          unsigned confirm, usec_t uptime)
{
	struct fact *f = &e->fact;
	const struct observation *o = &f->latest;
	bool sure;

	if (code != e->streak_code) {
		e->streak = 0;
		e->streak_code = code;
		if (e->bad == 0)
			e->streak_since = o->at;
	}
	e->good = 0;
	e->bad++;
	e->streak++;
	f->graced = uptime < e->probe->grace;
	sure = e->streak >= confirm || e->bad >= confirm * MIXED_CONFIRM;
	if (code != f->code && (!sure || f->graced)) {
		f->pending = code;
		return sure ? PACE_CALM : PACE_UNSURE;
	}
	if (code != f->code) {
		clear(f);
		f->code = code;
		f->since = e->streak_since;
		f->seen = e->bad - 1;
	}
	f->pending = CODE_NONE;
	f->graced = false;
	f->bad = *o;
	(void) text_format(f->summary, sizeof(f->summary), "%s", w->summary);
	f->last_seen = o->at;
	f->seen++;
	return PACE_FAILING;
}

/* What the next report hangs on. */
struct mark {
	enum code code, pending;
	bool graced;
};

static struct mark mark_of(const struct fact *f)
{
	return (struct mark){f->code, f->pending, f->graced};
}

static bool is_news(const struct mark *was, const struct fact *now)
{
	return was->code != now->code || was->pending != now->pending || was->graced != now->graced;
}

static enum pace put_one(struct ledger *l, const struct probe *p, unsigned slot,
                         const struct observation *o, unsigned confirm, usec_t uptime,
                         bool *ret_bad)
{
	struct ledger_entry *e = find(l, p, slot, o);
	struct words w;
	enum code code = judge(p, o, &w);
	enum pace pace;
	struct mark was;

	if (!e) {
		if (l->n == LEDGER_MAX)
			return PACE_CALM;
		e = &l->entries[l->n++];
		*e = (struct ledger_entry){.probe = p, .slot = slot};
		l->news = true;
	}
	l->news |= e->fact.latest.outcome != o->outcome;
	e->fact.latest = *o;
	if (o->outcome == OUTCOME_UNKNOWN)
		return PACE_CALM; /* see put_blind() */
	e->blind_since = 0;
	was = mark_of(&e->fact);
	*ret_bad |= code != CODE_NONE;
	pace = code == CODE_NONE ? note_good(e) : note_bad(e, code, &w, confirm, uptime);
	l->news |= is_news(&was, &e->fact);
	return pace;
}

/* What could not be told because the same run found something in its place, such as TLS when there
 * is no TCP, gives way to that. */
static enum pace put_blind(struct ledger *l, const struct probe *p, unsigned slot,
                           const struct observation *o, bool bad)
{
	struct ledger_entry *e = find(l, p, slot, o);

	enum pace pace;
	struct mark was;

	if (o->outcome != OUTCOME_UNKNOWN || !e)
		return PACE_CALM;
	was = mark_of(&e->fact);
	pace = bad ? note_good(e) : note_blind(e, o->at);
	l->news |= is_news(&was, &e->fact);
	return pace;
}

static bool seen_again(const struct ledger_entry *e, const struct observation *seen, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(e->fact.latest.aspect, seen[i].aspect) == 0 &&
		    strcmp(e->fact.latest.subject, seen[i].subject) == 0 &&
		    e->fact.latest.layer == seen[i].layer)
			return true;
	return false;
}

enum pace ledger_put(struct ledger *l, const struct probe *p, unsigned slot,
                     const struct observation *seen, size_t n, bool whole, unsigned confirm,
                     usec_t uptime)
{
	enum pace pace = PACE_CALM;
	bool bad = false;
	size_t kept = 0;

	for (size_t i = 0; i < l->n; i++) {
		struct ledger_entry *e = &l->entries[i];

		if (whole && e->probe == p && e->slot == slot && !seen_again(e, seen, n)) {
			l->news = true;
			continue;
		}
		if (kept != i)
			l->entries[kept] = *e;
		kept++;
	}
	l->n = kept;
	for (size_t i = 0; i < n; i++) {
		enum pace one = put_one(l, p, slot, &seen[i], confirm, uptime, &bad);

		pace = one > pace ? one : pace;
	}
	for (size_t i = 0; i < n; i++) {
		enum pace one = put_blind(l, p, slot, &seen[i], bad);

		pace = one > pace ? one : pace;
	}
	return pace;
}

bool ledger_restore(struct ledger *l, const struct probe *p, unsigned slot, const struct fact *f)
{
	struct ledger_entry *e;

	if (l->n == LEDGER_MAX)
		return false;
	e = &l->entries[l->n++];
	*e = (struct ledger_entry){.probe = p,
	                           .slot = slot,
	                           .fact = *f,
	                           .streak_code = f->code,
	                           .streak_since = f->since};
	return true;
}

uint32_t ledger_doubt(struct ledger *l, enum code code)
{
	uint32_t saw = 0;

	for (size_t i = 0; i < l->n; i++) {
		struct ledger_entry *e = &l->entries[i];

		if (e->fact.code != code)
			continue;
		for (unsigned k = 0; probes[k]; k++)
			if (probes[k] == e->probe)
				saw |= UINT32_C(1) << k;
		clear(&e->fact);
		e->bad = e->streak = e->good = 0;
		e->streak_code = CODE_NONE;
	}
	return saw;
}

void ledger_expire(struct ledger *l, usec_t now)
{
	for (size_t i = 0; i < l->n; i++) {
		struct fact *f = &l->entries[i].fact;
		usec_t valid = f->bad.valid_for;

		if (f->code != CODE_NONE && valid && now > f->last_seen + valid)
			clear(f);
	}
}

enum code observation_judge(const struct observation *o, struct words *ret)
{
	const struct probe *p = probe_by_name(o->probe);

	ret->summary[0] = 0;
	return p ? judge(p, o, ret) : CODE_NONE;
}

void fact_from_observation(struct fact *ret, const struct observation *o, enum code judged)
{
	struct words w;

	*ret = (struct fact){
		.latest = *o, .bad = *o, .since = o->at, .last_seen = o->at, .seen = 1};
	ret->code = observation_judge(o, &w);
	if (!probe_by_name(o->probe)) {
		ret->code = judged;
		(void) text_format(w.summary, sizeof(w.summary), "%s", o->detail);
	}
	if (ret->code == CODE_NONE)
		clear(ret);
	else
		(void) text_format(ret->summary, sizeof(ret->summary), "%s", w.summary);
}
