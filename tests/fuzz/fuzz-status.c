/* SPDX-License-Identifier: Apache-2.0 */
/* A status file of anybody's, as status and replay read it: shown, and diagnosed again. */
#include "clock.h"
#include "report-json.h"
#include "report-text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Nothing that a terminal obeys, and 80 columns. */
static void show(const json_t *status)
{
	struct text_options o = {.now = UINT64_C(1796000000000000)};
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (!out)
		return;
	report_text(out, status, &o);
	(void) fclose(out);
	if (!text_is_clean(text, len))
		abort();
	for (const char *p = text, *end; p < text + len; p = end + 1) {
		end = strchr(p, '\n');
		if (!end || text_columns(p, (size_t) (end - p)) > 80)
			abort();
	}
	free(text);
}

static void diagnose_again(const json_t *status)
{
	static struct observation seen[LEDGER_MAX];
	static struct fact facts[LEDGER_MAX];
	static struct report report;
	enum code judged[LEDGER_MAX];
	const struct fact *order[LEDGER_MAX];
	struct report_meta meta = {.seq = 1};
	struct diagnose_input in = {.complete = true};
	struct node node;
	char error[256];
	usec_t uptime;
	json_t *again;
	size_t n;

	if (report_observations_from_json(status, seen, judged, LEDGER_MAX, &n, &node, &uptime,
	                                  error, sizeof(error)) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		fact_from_observation(&facts[i], &seen[i], judged[i]);
		order[i] = &facts[i];
	}
	in.node = &node;
	in.now = in.uptime = uptime;
	diagnose(order, n, &in, &report);
	again = report_to_json(&report, &meta);
	if (!again) /* there was memory: a text was not UTF-8 */
		abort();
	show(again);
	json_decref(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *status = json_loadb((const char *) data, size, JSON_REJECT_DUPLICATES, NULL);

	if (status && report_json_clean(status) == 0) {
		show(status);
		diagnose_again(status);
	}
	json_decref(status);
	return 0;
}
