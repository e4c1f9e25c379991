/* SPDX-License-Identifier: Apache-2.0 */
#include "report-diff.h"

/* The same finding of another report. A code is there twice where its subjects have different
 * causes: then the subject tells which. */
static const struct finding *find(const struct report *r, const struct finding *f)
{
	const struct finding *any = NULL;

	for (size_t i = 0; i < r->n_findings; i++) {
		if (r->findings[i].code != f->code)
			continue;
		if (strcmp(r->findings[i].subject, f->subject) == 0)
			return &r->findings[i];
		any = &r->findings[i];
	}
	return any;
}

static size_t count(const struct report *r, enum code code)
{
	size_t n = 0;

	for (size_t i = 0; i < r->n_findings; i++)
		n += r->findings[i].code == code;
	return n;
}

static bool cleared(const struct report *before, const struct report *after,
                    const struct finding *f)
{
	const struct finding *now = find(after, f);

	return !now || (strcmp(now->subject, f->subject) != 0 &&
	                count(after, f->code) < count(before, f->code));
}

static bool same_verdict(const struct report *a, const struct report *b)
{
	const struct finding *fa = a->verdict.root < 0 ? NULL : &a->findings[a->verdict.root];
	const struct finding *fb = b->verdict.root < 0 ? NULL : &b->findings[b->verdict.root];

	if (a->verdict.state != b->verdict.state || !fa != !fb)
		return false;
	return !fa || (fa->code == fb->code && strcmp(fa->subject, fb->subject) == 0);
}

/* Times and texts move all the time; what was seen, and of what, is news. */
static bool same_looks(const struct report *a, const struct report *b)
{
	if (a->n_observations != b->n_observations)
		return false;
	for (size_t i = 0; i < a->n_observations; i++) {
		const struct observation *oa = &a->observations[i], *ob = &b->observations[i];

		if (oa->outcome != ob->outcome || oa->layer != ob->layer ||
		    strcmp(oa->subject, ob->subject) != 0 || strcmp(oa->probe, ob->probe) != 0)
			return false;
	}
	return true;
}

static bool same_network(const struct network *a, const struct network *b)
{
	if (a->n_enis != b->n_enis || a->enis_attached != b->enis_attached ||
	    a->ips_assigned != b->ips_assigned || a->pod_ips_in_use != b->pod_ips_in_use ||
	    a->max_pods != b->max_pods || a->max_pods_by_type != b->max_pods_by_type)
		return false;
	for (size_t i = 0; i < a->n_enis; i++)
		if (strcmp(a->enis[i].mac, b->enis[i].mac) != 0 ||
		    strcmp(a->enis[i].name, b->enis[i].name) != 0 ||
		    a->enis[i].in_kernel != b->enis[i].in_kernel ||
		    a->enis[i].up != b->enis[i].up ||
		    a->enis[i].managed_by != b->enis[i].managed_by ||
		    a->enis[i].pod_ips != b->enis[i].pod_ips)
			return false;
	return true;
}

void report_diff(const struct report *before, const struct report *after, struct report_diff *ret)
{
	bool findings = false;

	*ret = (struct report_diff){0};
	for (size_t i = 0; i < after->n_findings; i++) {
		const struct finding *f = &after->findings[i];
		const struct finding *old = before ? find(before, f) : NULL;

		if (!old || strcmp(old->subject, f->subject) != 0) {
			ret->raised[i / 64] |= UINT64_C(1) << i % 64;
			findings = true;
		} else if ((old->because < 0) != (f->because < 0)) {
			findings = true;
		}
	}
	for (size_t i = 0; before && i < before->n_findings; i++)
		if (cleared(before, after, &before->findings[i])) {
			ret->cleared[i / 64] |= UINT64_C(1) << i % 64;
			findings = true;
		}
	ret->verdict = !before || !same_verdict(before, after);
	ret->material = findings || ret->verdict || !same_looks(before, after) ||
	                before->verdict.stage != after->verdict.stage ||
	                before->verdict.unverified != after->verdict.unverified ||
	                strcmp(before->node.instance_id, after->node.instance_id) != 0 ||
	                !same_network(&before->node.network, &after->node.network);
}
