/* SPDX-License-Identifier: Apache-2.0 */
/* What the journal gets, and how often: a flapping finding must neither fill it nor be lost. */
#include <string.h>

#include "../tap.h"
#include "journal-send.h"
#include "sink.h"

enum { ENTRIES_MAX = 64, FIELDS_MAX = 12 };

static char entries[ENTRIES_MAX][FIELDS_MAX][512];
static unsigned n_entries;
static struct journal_memory memory;
static struct report before, after;
static bool first = true;
static usec_t now = 1000 * USEC_PER_SEC;

/* In place of the file that writes to the socket: this program's own comes first. */
const char *priority_text(int priority)
{
	static const char *const digits[] = {"0", "1", "2", "3", "4", "5", "6", "7"};

	return digits[priority & 7];
}

int journal_send(const struct journal_field *fields, size_t n)
{
	if (n_entries == ENTRIES_MAX)
		return 0;
	memset(entries[n_entries], 0, sizeof(entries[0]));
	for (size_t i = 0; i < n && i < FIELDS_MAX; i++)
		(void) snprintf(entries[n_entries][i], sizeof(entries[0][0]), "%s=%s",
		                fields[i].name, fields[i].value);
	n_entries++;
	return 0;
}

static const char *field(unsigned entry, const char *name)
{
	size_t n = strlen(name);

	for (unsigned i = 0; entry < n_entries && i < FIELDS_MAX; i++)
		if (strncmp(entries[entry][i], name, n) == 0 && entries[entry][i][n] == '=')
			return entries[entry][i] + n + 1;
	return "";
}

static unsigned count(const char *state)
{
	unsigned n = 0;

	for (unsigned i = 0; i < n_entries; i++)
		n += strcmp(field(i, "NODEWHY_STATE"), state) == 0;
	return n;
}

static void step(enum code code, usec_t later)
{
	struct report_diff d;

	now += later;
	after = (struct report){.at = now, .uptime = now};
	after.verdict.root = -1;
	after.verdict.state = STATE_HEALTHY;
	if (code != CODE_NONE) {
		struct finding *f = &after.findings[0];

		after.n_findings = 1;
		*f = (struct finding){.code = code, .because = -1};
		(void) text_format(f->subject, sizeof(f->subject), "10.0.0.2");
		(void) text_format(f->summary, sizeof(f->summary), "no answer in 2.0 s");
		(void) text_format(f->remedy, sizeof(f->remedy), "restart it");
		after.verdict.root = 0;
		after.verdict.state = STATE_BROKEN;
	}
	report_diff(first ? NULL : &before, &after, &d);
	(void) sink_journal(&memory, first ? NULL : &before, &after, &d);
	first = false;
	before = after;
}

static void test_one(void)
{
	char id[33];

	step(CODE_NONE, 0);
	ok(n_entries == 1 && strcmp(field(0, "MESSAGE"), "verdict healthy (stage booting)") == 0);
	ok(strcmp(field(0, "SYSLOG_IDENTIFIER"), "nodewhy") == 0);
	step(CODE_NONE, USEC_PER_SEC);
	ok(n_entries == 1); /* nothing new, nothing said */
	n_entries = 0;
	step(CODE_ResolverUnreachable, USEC_PER_SEC);
	ok(n_entries == 2);
	ok(strcmp(field(0, "MESSAGE"), "ResolverUnreachable: no answer in 2.0 s") == 0);
	code_message_id("ResolverUnreachable", id);
	ok(strcmp(field(0, "MESSAGE_ID"), id) == 0);
	ok(strcmp(field(0, "PRIORITY"), "3") == 0);
	ok(strcmp(field(0, "NODEWHY_CODE"), "ResolverUnreachable") == 0);
	ok(strcmp(field(0, "NODEWHY_LAYER"), "dns") == 0);
	ok(strcmp(field(0, "NODEWHY_SUBJECT"), "10.0.0.2") == 0);
	ok(strcmp(field(0, "NODEWHY_STATE"), "raised") == 0);
	ok(strcmp(field(0, "NODEWHY_VERDICT"), "broken") == 0);
	ok(strcmp(field(0, "NODEWHY_EVIDENCE"), "{}") == 0);
	ok(strcmp(field(1, "MESSAGE"),
	          "verdict broken: ResolverUnreachable: no answer in 2.0 s. Fix: restart it") == 0);
	ok(strcmp(field(1, "NODEWHY_STATE"), "verdict") == 0);
	n_entries = 0;
	step(CODE_NONE, USEC_PER_SEC);
	ok(n_entries == 2 && strcmp(field(0, "NODEWHY_STATE"), "cleared") == 0);
	ok(strcmp(field(0, "PRIORITY"), "6") == 0);
	ok(strcmp(field(1, "NODEWHY_VERDICT"), "healthy") == 0);
}

static void test_flapping(bool stays)
{
	enum code last = stays ? CODE_ResolverUnreachable : CODE_NONE;

	memory = (struct journal_memory){0};
	first = true;
	step(CODE_NONE, 0);
	n_entries = 0;
	for (int i = 0; i < 100; i++) { /* every ten seconds */
		step(CODE_ResolverUnreachable, 5 * USEC_PER_SEC);
		step(CODE_NONE, 5 * USEC_PER_SEC);
	}
	ok(count("raised") == FLAP_PER_HOUR && count("cleared") == FLAP_PER_HOUR);
	ok(count("verdict") == 2 * FLAP_PER_HOUR); /* the verdict flaps with it */
	ok(strstr(field(n_entries - 4, "MESSAGE"), "6 times within an hour"));
	step(last, USEC_PER_SEC);
	n_entries = 0;
	for (int i = 0; i < 70; i++)
		step(last, 60 * USEC_PER_SEC);
	/* with the hour over the journal is right again, and has the count */
	ok(count(stays ? "raised" : "cleared") == 1 && count(stays ? "cleared" : "raised") == 0);
	ok(count("verdict") == (stays ? 1 : 0));
	ok(strstr(field(0, "MESSAGE"), stays ? "came back 95 times" : "came back 94 times"));
	ok(count("heartbeat") == 1);
	n_entries = 0;
	step(stays ? CODE_NONE : CODE_ResolverUnreachable, USEC_PER_SEC);
	ok(n_entries == 2 || count("heartbeat"));
}

/* Another finding is not silenced by one that flaps. */
static void test_other(void)
{
	memory = (struct journal_memory){0};
	first = true;
	step(CODE_NONE, 0);
	for (int i = 0; i < 10; i++) {
		step(CODE_ResolverUnreachable, USEC_PER_SEC);
		step(CODE_NONE, USEC_PER_SEC);
	}
	n_entries = 0;
	step(CODE_ImdsDisabled, USEC_PER_SEC);
	ok(n_entries == 2 && strcmp(field(1, "NODEWHY_CODE"), "ImdsDisabled") == 0);
	step(CODE_NONE, USEC_PER_SEC);
	ok(n_entries == 4 && strcmp(field(3, "NODEWHY_VERDICT"), "healthy") == 0);
}

int main(void)
{
	test_one();
	test_flapping(false);
	test_flapping(true);
	test_other();
	return done();
}
