/* SPDX-License-Identifier: Apache-2.0 */
/* What holds for any sequence of looks: thousands of random ones through ledger, diagnosis, diff
 * and JSON. The seed is fixed; another one can be given as the argument. */
#include "../tap.h"
#include "report-diff.h"
#include "report-json.h"

enum { FACTS = LEDGER_MAX, ROUNDS = 4000, LOOKS = 3000 };

static uint64_t state = 20260302;
static struct fact facts[LEDGER_MAX];
static const struct fact *order[LEDGER_MAX];
static struct report before, now, again;
static struct report_meta meta = {.realtime = UINT64_C(1796000000000000), .boot_id = "b00f"};
static struct ledger ledger;
static unsigned broken;

static uint32_t any(uint32_t below)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t) (state >> 33) % below;
}

/* Says what is broken, the first few times. */
static void holds(bool good, const char *what, size_t round)
{
	if (!good && broken++ < 5)
		printf("# round %zu: %s\n", round, what);
}

static const char *any_subject(void)
{
	static const char *const subjects[] = {"",     "ec2",   "sts",         "ec2,sts", "all",
	                                       "ens5", "ecr,x", "10.0.0.2,::", "한글\\\""};

	return subjects[any(ELEMENTS(subjects))];
}

/* Whether a report has this finding: a code is there once for each of its causes, and then its
 * subjects differ. */
static bool there(const struct report *r, const struct finding *f)
{
	for (size_t i = 0; i < r->n_findings; i++)
		if (r->findings[i].code == f->code &&
		    strcmp(r->findings[i].subject, f->subject) == 0)
			return true;
	return false;
}

static size_t count(const struct report *r, enum code code)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_findings; i++)
		n += r->findings[i].code == code;
	return n;
}

static enum code because(const struct report *r, size_t i)
{
	int why = r->findings[i].because;

	return why < 0 ? CODE_NONE : r->findings[why].code;
}

/* ---- what a report has to keep ---- */

static void check_chain(const struct report *r, size_t round)
{
	for (size_t i = 0; i < r->n_findings; i++) {
		size_t steps = 0;

		for (int at = (int) i; at >= 0 && steps <= r->n_findings; steps++) {
			int why = r->findings[at].because;

			holds(why < (int) r->n_findings && why != at, "because is no finding",
			      round);
			if (why >= (int) r->n_findings)
				break;
			at = why;
		}
		holds(steps <= r->n_findings, "because goes in a circle", round);
		for (size_t j = 0; j < i; j++)
			holds(r->findings[j].code != r->findings[i].code ||
			              because(r, j) != because(r, i),
			      "a code comes twice for one cause", round);
		holds(r->findings[i].since <= r->findings[i].last_seen && r->findings[i].seen > 0,
		      "since, last_seen and seen do not fit", round);
		holds(r->findings[i].summary[0] && r->findings[i].remedy[0],
		      "no summary or no remedy", round);
	}
}

static void check_order(const struct report *r, size_t round)
{
	for (size_t i = 1; i < r->n_findings; i++) {
		const struct finding *a = &r->findings[i - 1], *b = &r->findings[i];
		const struct cause *ca = cause_of(a->code), *cb = cause_of(b->code);
		bool root_a = a->because < 0, root_b = b->because < 0;

		holds(root_a || !root_b, "a root comes after a consequence", round);
		holds(root_a != root_b || ca->severity >= cb->severity, "the worse comes later",
		      round);
		holds(root_a != root_b || ca->severity != cb->severity ||
		              (root_a && ca->kind != cb->kind) || a->code <= b->code,
		      "alike and not in causal order", round);
		holds(!root_a || !root_b || ca->severity != cb->severity || ca->kind <= cb->kind,
		      "a symptom comes before a cause as bad", round);
	}
}

static void check_verdict(const struct report *r, size_t round)
{
	enum severity worst = SEVERITY_NOTICE;

	for (int c = CONDITION_None + 1; c < _CONDITION_MAX; c++) {
		bool root = false;

		for (size_t i = 0; i < r->n_findings; i++) {
			const struct cause *cause = cause_of(r->findings[i].code);

			root |= r->findings[i].because < 0 && cause->severity != SEVERITY_NOTICE &&
			        (int) cause->condition == c;
			worst = cause->severity > worst ? cause->severity : worst;
		}
		holds(root == (r->conditions[c].status == CONDITION_TRUE),
		      "a condition is True, or not, without its root", round);
		holds(root == (r->conditions[c].finding >= 0), "a condition's finding", round);
	}
	holds((r->verdict.state == STATE_BROKEN) == (worst == SEVERITY_FATAL) &&
	              (r->verdict.state == STATE_DEGRADED) == (worst == SEVERITY_DEGRADED),
	      "the state does not follow the worst finding", round);
	holds((r->verdict.root >= 0) == (worst != SEVERITY_NOTICE), "a verdict without its root",
	      round);
	holds(r->verdict.root < 0 || r->findings[r->verdict.root].because < 0,
	      "the root is a consequence", round);
}

/* What was there, less what is cleared, and what is raised, is what is there. */
static void check_diff(const struct report *a, const struct report *b, size_t round)
{
	struct report_diff d;
	bool same = true;

	report_diff(a, b, &d);
	for (size_t i = 0; i < a->n_findings; i++) {
		const struct finding *f = &a->findings[i];
		bool gone = !there(b, f) && count(b, f->code) < count(a, f->code);

		same &= !gone;
		holds(gone == diff_bit(d.cleared, i), "cleared is not what is gone", round);
	}
	for (size_t i = 0; i < b->n_findings; i++) {
		bool new = !there(a, &b->findings[i]);

		same &= !new;
		holds(new == diff_bit(d.raised, i), "raised is not what is new", round);
	}
	holds(same || d.material, "a change of findings is not material", round);
	report_diff(b, b, &d);
	holds(!d.material && !d.verdict && !d.raised[0] && !d.cleared[0],
	      "a report differs from itself", round);
}

static void check_json(const struct report *r, size_t round)
{
	static struct observation back[LEDGER_MAX];
	static enum code judged[LEDGER_MAX];
	json_t *j = report_to_json(r, &meta);
	struct node node;
	char error[128];
	usec_t uptime;
	size_t n = 0;

	holds(j != NULL, "there is no JSON", round);
	holds(j && report_observations_from_json(j, back, judged, LEDGER_MAX, &n, &node, &uptime,
	                                         error, sizeof(error)) == 0,
	      "the JSON is not read back", round);
	holds(n == r->n_observations, "looks are lost", round);
	for (size_t i = 0; i < n; i++)
		holds(strcmp(back[i].subject, r->observations[i].subject) == 0 &&
		              back[i].outcome == r->observations[i].outcome &&
		              back[i].n_evidence == r->observations[i].n_evidence,
		      "a look is not the same again", round);
	json_decref(j);
}

static void check(size_t n, usec_t t, size_t round)
{
	struct node node = {.region = "us-west-2", .ec2 = (enum ec2) any(3)};
	struct diagnose_input in = {
		.node = &node, .now = t, .uptime = t / 2, .complete = any(2) == 0};

	before = now;
	memset(&now, 0, sizeof(now));
	memset(&again, 0, sizeof(again));
	diagnose(order, n, &in, &now);
	diagnose(order, n, &in, &again);
	holds(memcmp(&now, &again, sizeof(now)) == 0, "twice the same is not the same", round);
	check_chain(&now, round);
	check_order(&now, round);
	check_verdict(&now, round);
	check_diff(&before, &now, round);
	if (round % 8 == 0)
		check_json(&now, round);
}

/* ---- any findings at all ---- */

static void make_facts(size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct fact *f = &facts[i];
		enum code code = (enum code) any(_CODE_MAX); /* CODE_NONE among them */
		size_t p = 0;

		*f = (struct fact){.code = code, .since = any(100), .seen = 1 + any(9)};
		f->last_seen = f->since + any(100);
		f->graced = code == CODE_NONE && any(4) == 0;
		f->latest.layer = code ? cause_of(code)->layer : (enum layer) any(_LAYER_MAX);
		f->latest.outcome = (enum outcome) any(_OUTCOME_MAX);
		for (size_t skip = any(32); skip > 0; skip--)
			p = probes[p + 1] ? p + 1 : 0;
		(void) text_format(f->latest.probe, sizeof(f->latest.probe), "%s", probes[p]->name);
		(void) text_format(f->latest.subject, sizeof(f->latest.subject), "%s",
		                   any_subject());
		observation_number(&f->latest, "n", any(1000));
		f->bad = f->latest;
		(void) text_format(f->summary, sizeof(f->summary), "%s", "something");
		order[i] = f;
	}
}

static void test_findings(void)
{
	for (size_t round = 0; round < ROUNDS; round++) {
		size_t n = any(4) ? any(8) : any(FACTS);

		make_facts(n);
		check(n, 1000 + round, round);
	}
	ok(broken == 0);
}

/* ---- any looks at all ---- */

static size_t make_looks(const struct probe *p, struct observation *ret, size_t max, usec_t t)
{
	static const char *const aspects[] = {"", "tcp", "tls", "http", "name", "server", "link"};
	static const char *const keys[] = {"errno",   "http_status", "total_ms", "others_ok",
	                                   "present", "rcode",       "private",  "loopback"};
	static const char *const texts[] = {"step", "address", "endpoint", "path", "error"};
	size_t n = any((uint32_t) max);

	for (size_t i = 0; i < n; i++) {
		struct observation *o = &ret[i];

		*o = (struct observation){.layer = any(3) ? p->layer : (enum layer) any(_LAYER_MAX),
		                          .outcome = (enum outcome) any(_OUTCOME_MAX),
		                          .code = (int) any(600) - 50,
		                          .at = t,
		                          .took = any(5000)};
		(void) text_format(o->probe, sizeof(o->probe), "%s", p->name);
		(void) text_format(o->aspect, sizeof(o->aspect), "%s",
		                   aspects[any(ELEMENTS(aspects))]);
		(void) text_format(o->subject, sizeof(o->subject), "%s%u", any_subject(), any(3));
		observation_detail(o, "detail");
		for (size_t k = any(6); k > 0; k--)
			observation_number(o, keys[any(ELEMENTS(keys))],
			                   any(9) ? (int64_t) any(700) : INT64_MIN + any(3));
		for (size_t k = any(3); k > 0; k--)
			observation_text(o, texts[any(ELEMENTS(texts))], "%s", any_subject());
	}
	return n;
}

/* As the manager does: in the order of the probes, then of their slots. */
static size_t gather(void)
{
	size_t n = 0;

	for (const struct probe *const *p = probes; *p; p++)
		for (unsigned slot = 0; slot < 2; slot++)
			for (size_t i = 0; i < ledger.n; i++)
				if (ledger.entries[i].probe == *p && ledger.entries[i].slot == slot)
					order[n++] = &ledger.entries[i].fact;
	return n;
}

static void check_ledger(size_t n, usec_t t, size_t round)
{
	holds(n == ledger.n && n <= LEDGER_MAX, "an entry is lost", round);
	for (size_t i = 0; i < n; i++) {
		const struct fact *f = order[i];

		holds(f->code == CODE_NONE || (f->seen > 0 && f->since <= f->last_seen &&
		                               f->last_seen <= t && f->summary[0]),
		      "a finding without its past", round);
		holds(f->latest.outcome != OUTCOME_OK || f->pending == CODE_NONE,
		      "a good look leaves something pending", round);
	}
}

static void test_looks(void)
{
	static struct observation seen[24];
	size_t n_probes = 0;

	while (probes[n_probes])
		n_probes++;
	broken = 0;
	for (size_t round = 0; round < LOOKS; round++) {
		const struct probe *p = probes[any((uint32_t) n_probes)];
		usec_t t = (round + 1) * USEC_PER_SEC;
		size_t n = make_looks(p, seen, any(3) ? 4 : ELEMENTS(seen), t);

		(void) ledger_put(&ledger, p, any(2), seen, n, any(5) != 0, 1 + any(3), t);
		n = gather();
		check_ledger(n, t, round);
		check(n, t, round);
	}
	ok(broken == 0);
}

int main(int argc, char *argv[])
{
	if (argc > 1)
		state = strtoull(argv[1], NULL, 10) | 1;
	printf("# seed %llu\n", (unsigned long long) state);
	test_findings();
	test_looks();
	return done();
}
