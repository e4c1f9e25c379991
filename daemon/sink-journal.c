/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <syslog.h>

#include "journal-send.h"
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
	char message[SUMMARY_MAX + 256], id[33];
	const struct journal_field fields[] = {
		{"MESSAGE", message},
		{"MESSAGE_ID", id},
		{"PRIORITY", priority_text(cleared ? LOG_INFO : severity_priority(c->severity))},
		{"SYSLOG_IDENTIFIER", "nodewhy"},
		{"NODEWHY_CODE", c->name},
		{"NODEWHY_LAYER", layer_name(c->layer)},
		{"NODEWHY_SUBJECT", f->subject},
		{"NODEWHY_STATE", cleared ? "cleared" : "raised"},
		{"NODEWHY_BECAUSE", because},
		{"NODEWHY_VERDICT", state_name(r->verdict.state)},
		{"NODEWHY_EVIDENCE", evidence ? evidence : "{}"},
	};

	finding_message(f, cleared, message, sizeof(message));
	(void) text_append(message, sizeof(message), "%s", suffix);
	code_message_id(c->name, id);
	return journal_send(fields, ELEMENTS(fields));
}

/* A flapping finding is said so many times an hour; say_held_back() has the rest. */
static int say_bounded(struct journal_memory *m, const struct report *r, const struct finding *f,
                       bool cleared, usec_t now)
{
	__typeof__(m->codes[0]) *c = &m->codes[f->code], was = *c;
	char suffix[96] = "";
	int ret;

	if (cleared)
		return c->held_back > 0 ? 0 : say_finding(r, f, true, suffix);
	if (c->said == 0 || (c->held_back == 0 && now - c->hour_began >= hour)) {
		c->hour_began = now;
		c->said = 0;
	}
	if (c->said >= FLAP_PER_HOUR) {
		c->held_back++;
		return 0;
	}
	if (++c->said == FLAP_PER_HOUR)
		(void) text_format(
			suffix, sizeof(suffix),
			" (%u times within an hour: it flaps, said no more until %llu min from "
			"now)",
			c->said,
			(unsigned long long) ((c->hour_began + hour - now) / 60 / USEC_PER_SEC));
	ret = say_finding(r, f, false, suffix);
	if (ret < 0) /* it was not said, and will be tried again */
		*c = was;
	return ret;
}

static const struct finding *find(const struct report *r, enum code code)
{
	for (size_t i = 0; i < r->n_findings; i++)
		if (r->findings[i].code == code)
			return &r->findings[i];
	return NULL;
}

/* Once the hour of a flapping finding is over: how it stands now, and how often it came back. */
static int say_held_back(struct journal_memory *m, const struct report *r)
{
	int bad = 0, ret;

	for (int i = CODE_NONE + 1; i < _CODE_MAX; i++) {
		__typeof__(m->codes[0]) *c = &m->codes[i];
		const struct finding *f = find(r, (enum code) i);
		struct finding gone = {.code = (enum code) i, .because = -1};
		char suffix[96];

		if (c->held_back == 0 || r->at - c->hour_began < hour)
			continue;
		(void) text_format(gone.summary, sizeof(gone.summary), "coming and going");
		(void) text_format(suffix, sizeof(suffix),
		                   " (came back %u times more in the last hour, not said)",
		                   c->held_back);
		ret = say_finding(r, f ? f : &gone, !f, suffix);
		if (ret < 0) {
			bad = ret;
			continue;
		}
		c->held_back = 0;
		c->hour_began = r->at;
		c->said = f ? 1 : 0;
	}
	return bad;
}

static int say_verdict(const struct report *r, bool heartbeat)
{
	const struct finding *root = r->verdict.root < 0 ? NULL : &r->findings[r->verdict.root];
	_cleanup_(freep) char *evidence = root ? evidence_line(root) : NULL;
	int priority = root ? severity_priority(cause_of(root->code)->severity)
	               : r->verdict.state == STATE_BLIND ? LOG_WARNING
	                                                 : LOG_INFO;
	char said[SUMMARY_MAX + REMEDY_MAX + 128], message[sizeof(said) + 8], id[33];
	const struct journal_field fields[] = {
		{"MESSAGE", message},
		{"MESSAGE_ID", id},
		{"PRIORITY", priority_text(heartbeat ? LOG_INFO : priority)},
		{"SYSLOG_IDENTIFIER", "nodewhy"},
		{"NODEWHY_CODE", root ? cause_of(root->code)->name : ""},
		{"NODEWHY_LAYER", root ? layer_name(cause_of(root->code)->layer) : ""},
		{"NODEWHY_SUBJECT", root ? root->subject : ""},
		{"NODEWHY_STATE", heartbeat ? "heartbeat" : "verdict"},
		{"NODEWHY_BECAUSE", ""},
		{"NODEWHY_VERDICT", state_name(r->verdict.state)},
		{"NODEWHY_EVIDENCE", evidence ? evidence : "{}"},
	};

	verdict_message(r, said, sizeof(said));
	(void) text_format(message, sizeof(message), "%s%s", heartbeat ? "still " : "", said);
	code_message_id(heartbeat ? "heartbeat" : "verdict", id);
	return journal_send(fields, ELEMENTS(fields));
}

static const struct finding *root_of(const struct report *r)
{
	return r->verdict.root < 0 ? NULL : &r->findings[r->verdict.root];
}

static bool is_news(const struct journal_memory *m, const struct report *r)
{
	const struct finding *root = root_of(r);

	return m->verdict.state != r->verdict.state ||
	       m->verdict.root != (root ? root->code : CODE_NONE) ||
	       strcmp(m->verdict.subject, root ? root->subject : "") != 0;
}

/* A verdict that comes and goes with a flapping finding is held back with it. */
static bool is_held_back(const struct journal_memory *m, const struct report *r)
{
	const struct finding *root = root_of(r);
	enum code now = root ? root->code : CODE_NONE, said = m->verdict.root;

	return (now != CODE_NONE || said != CODE_NONE) &&
	       (now == CODE_NONE || m->codes[now].held_back > 0) &&
	       (said == CODE_NONE || m->codes[said].held_back > 0);
}

void journal_resume(struct journal_memory *m, const struct report *r)
{
	const struct finding *root = root_of(r);

	m->verdict.state = r->verdict.state;
	m->verdict.root = root ? root->code : CODE_NONE;
	(void) text_format(m->verdict.subject, sizeof(m->verdict.subject), "%s",
	                   root ? root->subject : "");
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
	r = say_held_back(m, after);
	bad = r < 0 ? r : bad;
	if (!before || (is_news(m, after) && !is_held_back(m, after))) {
		r = say_verdict(after, false);
		if (r >= 0)
			journal_resume(m, after);
		bad = r < 0 ? r : bad;
	}
	if (!before) {
		m->heartbeat = after->at;
	} else if (after->at - m->heartbeat >= hour) {
		r = say_verdict(after, true);
		if (r >= 0)
			m->heartbeat = after->at;
		bad = r < 0 ? r : bad;
	}
	return bad;
}
