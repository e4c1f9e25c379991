/* SPDX-License-Identifier: Apache-2.0 */
#define SD_JOURNAL_SUPPRESS_LOCATION
#include <errno.h>
#include <syslog.h>
#include <systemd/sd-journal.h>

#include "sink.h"

static const usec_t hour = 3600 * USEC_PER_SEC;

void finding_message(const struct finding *f, bool cleared, char *ret, size_t size)
{
	const struct cause *c = cause_of(f->code);

	if (cleared)
		(void) text_format(ret, size, "%s cleared%s%s: it was: %s", c->name,
		                   f->subject[0] ? " " : "", f->subject, f->summary);
	else
		(void) text_format(ret, size, "%s: %s", c->name, f->summary);
}

void verdict_message(const struct report *r, char *ret, size_t size)
{
	const struct finding *root = r->verdict.root < 0 ? NULL : &r->findings[r->verdict.root];
	const char *state = state_name(r->verdict.state);

	if (root)
		(void) text_format(ret, size, "verdict %s: %s: %s. Fix: %s", state,
		                   cause_of(root->code)->name, root->summary, root->remedy);
	else
		(void) text_format(ret, size, "verdict %s (stage %s)", state,
		                   stage_name(r->verdict.stage));
}

/* The evidence as one line of JSON; empty without memory: the line itself must still go out. */
static char *evidence_line(const struct finding *f)
{
	json_t *j = evidence_to_json(f->evidence, f->n_evidence);
	char *s = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

	json_decref(j);
	return s;
}

static int say_finding(const struct report *r, const struct finding *f, bool cleared,
                       const char *suffix)
{
	const struct cause *c = cause_of(f->code);
	const char *because = f->because < 0 ? "" : cause_of(r->findings[f->because].code)->name;
	_cleanup_(freep) char *evidence = evidence_line(f);
	char message[SUMMARY_MAX + 128], id[33];

	finding_message(f, cleared, message, sizeof(message));
	code_message_id(c->name, id);
	return sd_journal_send("MESSAGE=%s%s", message, suffix, "MESSAGE_ID=%s", id, "PRIORITY=%i",
	                       cleared ? LOG_INFO : severity_priority(c->severity),
	                       "SYSLOG_IDENTIFIER=nodewhy", "NODEWHY_CODE=%s", c->name,
	                       "NODEWHY_LAYER=%s", layer_name(c->layer), "NODEWHY_SUBJECT=%s",
	                       f->subject, "NODEWHY_STATE=%s", cleared ? "cleared" : "raised",
	                       "NODEWHY_BECAUSE=%s", because, "NODEWHY_VERDICT=%s",
	                       state_name(r->verdict.state), "NODEWHY_EVIDENCE=%s",
	                       evidence ? evidence : "{}", NULL);
}

/* A flapping finding is said so many times an hour, then once with the count when the hour is over.
 */
static int say_bounded(struct journal_memory *m, const struct report *r, const struct finding *f,
                       bool cleared, usec_t now)
{
	__typeof__(m->codes[0]) *c = &m->codes[f->code];
	char suffix[80] = "";

	if (!cleared) {
		if (c->said == 0 || now - c->hour_began >= hour) {
			if (c->held_back > 0)
				(void) text_format(
					suffix, sizeof(suffix),
					" (came back %u times more in the last hour, not said)",
					c->held_back);
			c->hour_began = now;
			c->said = c->held_back = 0;
		}
		if (c->said >= FLAP_PER_HOUR) {
			c->held_back++;
			return 0;
		}
		if (++c->said == FLAP_PER_HOUR)
			(void) text_format(
				suffix, sizeof(suffix),
				" (%u times within an hour: it flaps, said no more until %llu min "
				"from now)",
				c->said,
				(unsigned long long) ((c->hour_began + hour - now) / 60 /
			                              USEC_PER_SEC));
	} else if (c->held_back > 0) {
		return 0;
	}
	return say_finding(r, f, cleared, suffix);
}

static int say_verdict(const struct report *r, bool heartbeat)
{
	const struct finding *root = r->verdict.root < 0 ? NULL : &r->findings[r->verdict.root];
	_cleanup_(freep) char *evidence = root ? evidence_line(root) : NULL;
	int priority = root ? severity_priority(cause_of(root->code)->severity)
	               : r->verdict.state == STATE_BLIND ? LOG_WARNING
	                                                 : LOG_INFO;
	char message[SUMMARY_MAX + REMEDY_MAX + 128], id[33];

	verdict_message(r, message, sizeof(message));
	code_message_id(heartbeat ? "heartbeat" : "verdict", id);
	return sd_journal_send(
		"MESSAGE=%s%s", heartbeat ? "still " : "", message, "MESSAGE_ID=%s", id,
		"PRIORITY=%i", heartbeat ? LOG_INFO : priority, "SYSLOG_IDENTIFIER=nodewhy",
		"NODEWHY_CODE=%s", root ? cause_of(root->code)->name : "", "NODEWHY_LAYER=%s",
		root ? layer_name(cause_of(root->code)->layer) : "", "NODEWHY_SUBJECT=%s",
		root ? root->subject : "", "NODEWHY_STATE=%s", heartbeat ? "heartbeat" : "verdict",
		"NODEWHY_BECAUSE=", "NODEWHY_VERDICT=%s", state_name(r->verdict.state),
		"NODEWHY_EVIDENCE=%s", evidence ? evidence : "{}", NULL);
}

int sink_journal(struct journal_memory *m, const struct report *before, const struct report *after,
                 const struct report_diff *d)
{
	int bad = 0, r;

	for (size_t i = 0; before && i < before->n_findings; i++) {
		if (!diff_bit(d->cleared, i))
			continue;
		r = say_bounded(m, before, &before->findings[i], true, after->at);
		bad = r < 0 ? r : bad;
	}
	for (size_t i = 0; i < after->n_findings; i++) {
		if (!diff_bit(d->raised, i))
			continue;
		r = say_bounded(m, after, &after->findings[i], false, after->at);
		bad = r < 0 ? r : bad;
	}
	if (d->verdict) {
		r = say_verdict(after, false);
		bad = r < 0 ? r : bad;
	}
	if (!before) {
		m->heartbeat = after->at;
	} else if (after->at - m->heartbeat >= hour) {
		m->heartbeat = after->at;
		r = say_verdict(after, true);
		bad = r < 0 ? r : bad;
	}
	return bad;
}
