/* SPDX-License-Identifier: Apache-2.0 */
/* metrics CAPTURE DIRECTORY: writes nodewhy.prom of what a capture holds into the directory, as the
 * daemon would: what rules and dashboards ask for is held against it. Built, never installed. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sink.h"

/* A replay has no use for these: the daemon has them from metadata and the kernel. */
static void read_network(struct network *ret, const json_t *j)
{
	const struct {
		const char *key;
		int *value;
	} counts[] = {
		{"enis_attached", &ret->enis_attached},       {"enis_max", &ret->enis_max},
		{"ips_assigned", &ret->ips_assigned},         {"ips_max", &ret->ips_max},
		{"pod_ips_in_use", &ret->pod_ips_in_use},     {"max_pods", &ret->max_pods},
		{"max_pods_by_type", &ret->max_pods_by_type},
	};

	for (size_t i = 0; i < ELEMENTS(counts); i++) {
		const json_t *value = json_object_get(j, counts[i].key);

		*counts[i].value = json_is_integer(value) ? (int) json_integer_value(value) : -1;
	}
	ret->known = json_is_object(j);
}

int main(int argc, char **argv)
{
	_cleanup_(freep) struct observation *seen = calloc(LEDGER_MAX, sizeof(*seen));
	_cleanup_(freep) struct fact *facts = calloc(LEDGER_MAX, sizeof(*facts));
	_cleanup_(freep) struct report *report = calloc(1, sizeof(*report));
	struct probe_stats stats[64] = {{1, 0}};
	const struct fact *order[LEDGER_MAX];
	enum code judged[LEDGER_MAX];
	char why[256] = "not JSON";
	struct diagnose_input di = {.complete = true};
	struct node node;
	json_t *in;
	usec_t now;
	size_t n = 0, have = 0;
	int r = -EBADMSG;

	while (probes[have])
		have++;
	if (argc != 3 || !seen || !facts || !report || have > ELEMENTS(stats)) {
		(void) fprintf(stderr, "usage: metrics CAPTURE DIRECTORY\n");
		return 64;
	}
	in = json_load_file(argv[1], 0, NULL);
	if (in)
		r = report_observations_from_json(in, seen, judged, LEDGER_MAX, &n, &node, &now,
		                                  why, sizeof(why));
	if (r == 0)
		read_network(&node.network, json_object_get(in, "network"));
	json_decref(in);
	if (r < 0) {
		(void) fprintf(stderr, "%s: %s\n", argv[1], why);
		return 1;
	}
	for (size_t i = 0; i < n; i++) {
		fact_from_observation(&facts[i], &seen[i], judged[i]);
		order[i] = &facts[i];
	}
	di.node = &node;
	di.now = di.uptime = now;
	diagnose(order, n, &di, report);
	r = sink_textfile(argv[2], report, stats);
	if (r < 0)
		(void) fprintf(stderr, "%s: %s\n", argv[2], strerror(-r));
	return r < 0;
}
