/* SPDX-License-Identifier: Apache-2.0 */
/* Hysteresis: what is confirmed, what is cleared, what is only starting. */
#include "ledger.h"
#include "../tap.h"
#include "schedule.h"

static enum code judge(const struct observation *o, struct words *w)
{
	(void) text_format(w->summary, sizeof(w->summary), "judged %s", outcome_name(o->outcome));
	return o->outcome == OUTCOME_TIMEOUT   ? CODE_ImdsUnreachable
	       : o->outcome == OUTCOME_DENIED  ? CODE_ImdsDisabled
	       : o->outcome == OUTCOME_FOREIGN ? CODE_NONE
	                                       : CODE_ImdsSlow;
}

static enum code judge_percent(const struct observation *o, struct words *w)
{
	memset(w->summary, '%', sizeof(w->summary) - 1);
	w->summary[sizeof(w->summary) - 1] = 0;
	if (o->outcome == OUTCOME_SLOW)
		(void) text_format(w->summary, sizeof(w->summary), "%s", "90% of it, 5%d %s%");
	return CODE_ImdsSlow;
}

static const struct probe percent = {.name = "imds", .judge = judge_percent};
static const struct probe probe = {.name = "imds", .judge = judge};
static const struct probe graced = {
	.name = "cni-config", .judge = judge, .grace = 300 * USEC_PER_SEC};
static struct ledger l;
static usec_t now;

static bool see(const struct probe *p, const char *subject, enum outcome outcome)
{
	struct observation o = {
		.layer = LAYER_METADATA, .outcome = outcome, .at = now += USEC_PER_SEC};

	(void) text_format(o.probe, sizeof(o.probe), "%s", p->name);
	(void) text_format(o.subject, sizeof(o.subject), "%s", subject);
	return ledger_put(&l, p, 0, &o, 1, true, CONFIRM_DAEMON, now) == PACE_UNSURE;
}

#define FACT (&l.entries[0].fact)

static void test_confirm(void)
{
	usec_t began;

	ok(!see(&probe, "", OUTCOME_OK) && l.n == 1);
	ok(see(&probe, "", OUTCOME_TIMEOUT) && FACT->code == CODE_NONE &&
	   FACT->pending == CODE_ImdsUnreachable);
	began = now;
	ok(see(&probe, "", OUTCOME_TIMEOUT) && FACT->code == CODE_NONE);
	ok(!see(&probe, "", OUTCOME_TIMEOUT) && FACT->code == CODE_ImdsUnreachable);
	ok(FACT->since == began && FACT->last_seen == now && FACT->seen == 3);
	ok(strcmp(FACT->summary, "judged timeout") == 0);
	ok(see(&probe, "", OUTCOME_OK) &&
	   FACT->code == CODE_ImdsUnreachable); /* one good look is luck */
	ok(!see(&probe, "", OUTCOME_TIMEOUT) && FACT->code == CODE_ImdsUnreachable);
	(void) see(&probe, "", OUTCOME_OK);
	ok(!see(&probe, "", OUTCOME_OK) && FACT->code == CODE_NONE && FACT->seen == 0);
}

static void test_glitch(void)
{
	for (int i = 0; i < 100;
	     i++) { /* one or two bad looks between good ones are never a finding */
		(void) see(&probe, "", OUTCOME_TIMEOUT);
		if (i % 2)
			(void) see(&probe, "", OUTCOME_TIMEOUT);
		if (FACT->code != CODE_NONE)
			ok(false);
		(void) see(&probe, "", OUTCOME_OK);
	}
	ok(FACT->code == CODE_NONE && FACT->pending == CODE_NONE);
	ok(!see(&probe, "", OUTCOME_FOREIGN) && FACT->code == CODE_NONE); /* judged harmless */
}

static void test_change(void)
{
	for (int i = 0; i < 3; i++)
		(void) see(&probe, "", OUTCOME_TIMEOUT);
	ok(FACT->code == CODE_ImdsUnreachable);
	(void) see(&probe, "", OUTCOME_DENIED);
	(void) see(&probe, "", OUTCOME_DENIED);
	ok(FACT->code == CODE_ImdsUnreachable); /* the old one stands until the new one is sure */
	(void) see(&probe, "", OUTCOME_DENIED);
	ok(FACT->code == CODE_ImdsDisabled);
	(void) see(&probe, "", OUTCOME_OK);
	(void) see(&probe, "", OUTCOME_OK);
	/* two faces of one fault that take turns are raised all the same */
	for (int i = 0; i < 6; i++)
		(void) see(&probe, "", i % 2 ? OUTCOME_DENIED : OUTCOME_TIMEOUT);
	ok(FACT->code != CODE_NONE);
}

/* Not to see any more is no proof that a fault is gone, but not news for ever. */
static void test_blind(void)
{
	usec_t since;

	l.n = 0;
	for (int i = 0; i < 3; i++)
		(void) see(&probe, "", OUTCOME_TIMEOUT);
	since = FACT->since;
	for (int i = 0; i < 5; i++)
		ok(!see(&probe, "", OUTCOME_UNKNOWN) && FACT->code == CODE_ImdsUnreachable);
	ok(FACT->latest.outcome == OUTCOME_UNKNOWN && FACT->bad.outcome == OUTCOME_TIMEOUT);
	(void) see(&probe, "", OUTCOME_TIMEOUT);
	ok(FACT->code == CODE_ImdsUnreachable && FACT->since == since && FACT->seen == 4);
	(void) see(&probe, "", OUTCOME_UNKNOWN);
	now += 200 * USEC_PER_SEC;
	(void) see(&probe, "", OUTCOME_OK); /* one good look, which a blind one does not confirm */
	(void) see(&probe, "", OUTCOME_UNKNOWN);
	ok(FACT->code == CODE_ImdsUnreachable);
	now += 200 * USEC_PER_SEC;
	(void) see(&probe, "", OUTCOME_UNKNOWN);
	ok(FACT->code == CODE_ImdsUnreachable);
	now += 200 * USEC_PER_SEC;
	(void) see(&probe, "", OUTCOME_UNKNOWN);
	ok(FACT->code == CODE_NONE);
	(void) see(&probe, "", OUTCOME_TIMEOUT); /* two that are apart are not in a row */
	(void) see(&probe, "", OUTCOME_TIMEOUT);
	(void) see(&probe, "", OUTCOME_UNKNOWN);
	(void) see(&probe, "", OUTCOME_TIMEOUT);
	ok(FACT->code == CODE_NONE);
}

/* One look that finds a fault further down has no answer for what is above: that gives way. */
static void test_gives_way(void)
{
	struct observation seen[2] = {
		{.layer = LAYER_METADATA, .aspect = "tls", .outcome = OUTCOME_TIMEOUT},
		{.layer = LAYER_METADATA, .aspect = "tcp", .outcome = OUTCOME_OK}};

	l.n = 0;
	for (int i = 0; i < 6; i++) {
		seen[0].at = seen[1].at = now += USEC_PER_SEC;
		if (i == 3) {
			seen[0].outcome = OUTCOME_UNKNOWN;
			seen[1].outcome = OUTCOME_TIMEOUT;
		}
		(void) ledger_put(&l, &probe, 0, seen, 2, true, CONFIRM_DAEMON, now);
		ok((l.entries[0].fact.code != CODE_NONE) == (i >= 2 && i < 4));
		ok((l.entries[1].fact.code != CODE_NONE) == (i == 5));
	}
}

static void test_gone(void)
{
	struct observation none[1];

	for (int i = 0; i < 3; i++)
		(void) see(&probe, "10.0.0.2", OUTCOME_TIMEOUT);
	ok(l.n == 1 && FACT->code == CODE_ImdsUnreachable);
	(void) see(&probe, "10.0.0.3",
	           OUTCOME_OK); /* the server left resolv.conf: its finding goes with it */
	ok(l.n == 1 && strcmp(FACT->latest.subject, "10.0.0.3") == 0 && FACT->code == CODE_NONE);
	(void) ledger_put(&l, &probe, 0, none, 0, false, CONFIRM_DAEMON, now);
	ok(l.n == 1); /* a run that could not look takes nothing away */
	(void) ledger_put(&l, &probe, 0, none, 0, true, CONFIRM_DAEMON, now);
	ok(l.n == 0);
}

static void test_grace(void)
{
	now = 0;
	for (int i = 0; i < 5; i++)
		(void) see(&graced, "", OUTCOME_TIMEOUT);
	ok(FACT->code == CODE_NONE && FACT->graced && FACT->pending == CODE_ImdsUnreachable);
	now = 300 * USEC_PER_SEC;
	(void) see(&graced, "", OUTCOME_TIMEOUT);
	ok(FACT->code == CODE_ImdsUnreachable &&
	   !FACT->graced); /* it ends, and what lasted counts at once */
	(void) see(&graced, "", OUTCOME_OK);
	(void) see(&graced, "", OUTCOME_OK);
	ok(FACT->code == CODE_NONE && !FACT->graced);
}

/* What an earlier life of the daemon knew stands until the next looks say otherwise. */
static void test_restore(void)
{
	struct fact f = {.code = CODE_ImdsUnreachable, .since = 5, .last_seen = 5, .seen = 40};

	l.n = 0;
	now = 1000 * USEC_PER_SEC;
	f.bad.layer = f.latest.layer = LAYER_METADATA;
	f.latest.outcome = OUTCOME_UNKNOWN;
	ok(ledger_restore(&l, &probe, 0, &f) && FACT->code == CODE_ImdsUnreachable);
	ok(!see(&probe, "", OUTCOME_TIMEOUT) && FACT->code == CODE_ImdsUnreachable);
	ok(FACT->since == 5 && FACT->seen == 41 && FACT->last_seen == now);
	(void) see(&probe, "", OUTCOME_OK);
	(void) see(&probe, "", OUTCOME_OK);
	ok(FACT->code == CODE_NONE);
	l.n = 0;
	(void) ledger_restore(&l, &probe, 0, &f);
	(void) see(&probe, "", OUTCOME_OK);
	(void) see(&probe, "", OUTCOME_OK);
	ok(l.n == 1 && FACT->code == CODE_NONE);
}

/* A consequence whose cause is gone has to be confirmed anew. */
static void test_doubt(void)
{
	l.n = 0;
	for (int i = 0; i < 3; i++)
		(void) see(&probe, "", OUTCOME_TIMEOUT);
	ok(FACT->code == CODE_ImdsUnreachable);
	ok(ledger_doubt(&l, CODE_ImdsDisabled) == 0 && FACT->code == CODE_ImdsUnreachable);
	(void) ledger_doubt(&l, CODE_ImdsUnreachable);
	ok(FACT->code == CODE_NONE);
	ok(see(&probe, "", OUTCOME_TIMEOUT) && FACT->code == CODE_NONE);
	(void) see(&probe, "", OUTCOME_TIMEOUT);
	(void) see(&probe, "", OUTCOME_TIMEOUT);
	ok(FACT->code == CODE_ImdsUnreachable);
}

/* What a log line said is believed for as long as it says, and not longer. */
static void test_expire(void)
{
	l.n = 0;
	for (int i = 0; i < 3; i++)
		(void) see(&probe, "", OUTCOME_TIMEOUT);
	ledger_expire(&l, now + 86400 * USEC_PER_SEC);
	ok(FACT->code == CODE_ImdsUnreachable); /* a live look does not age */
	FACT->bad.valid_for = 60 * USEC_PER_SEC;
	ledger_expire(&l, now + 60 * USEC_PER_SEC);
	ok(FACT->code == CODE_ImdsUnreachable);
	ledger_expire(&l, now + 61 * USEC_PER_SEC);
	ok(FACT->code == CODE_NONE);
}

static void test_full(void)
{
	static struct observation many[LEDGER_MAX + 10];

	l.n = 0;
	for (size_t i = 0; i < ELEMENTS(many); i++) {
		many[i] = (struct observation){.outcome = OUTCOME_TIMEOUT};
		(void) snprintf(many[i].subject, sizeof(many[i].subject), "%zu", i);
	}
	for (int i = 0; i < 4; i++)
		(void) ledger_put(&l, &probe, 0, many, ELEMENTS(many), true, CONFIRM_DAEMON, now);
	ok(l.n == LEDGER_MAX && l.entries[LEDGER_MAX - 1].fact.code == CODE_ImdsUnreachable);
}

/* What is said ends as an event of Kubernetes, which is taken for a format. */
static void test_percent(void)
{
	l.n = 0;
	for (unsigned i = 0; i < CONFIRM_DAEMON; i++)
		(void) see(&percent, "", OUTCOME_SLOW);
	ok(strcmp(FACT->summary, "90pct of it, 5pctd pctspct") == 0, "%s", FACT->summary);
	for (unsigned i = 0; i < CONFIRM_DAEMON; i++)
		(void) see(&percent, "", OUTCOME_TIMEOUT);
	ok(!strchr(FACT->summary, '%') && strlen(FACT->summary) < SUMMARY_MAX &&
	   strncmp(FACT->summary, "pctpct", 6) == 0);
}

int main(void)
{
	test_confirm();
	test_glitch();
	test_change();
	test_blind();
	test_gives_way();
	test_gone();
	test_grace();
	test_restore();
	test_doubt();
	test_expire();
	test_full();
	test_percent();
	return done();
}
