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
	const json_t *enis = json_object_get(j, "enis");

	for (size_t i = 0; i < ELEMENTS(counts); i++) {
		const json_t *value = json_object_get(j, counts[i].key);

		*counts[i].value = json_is_integer(value) ? (int) json_integer_value(value) : -1;
	}
	ret->known = json_is_object(j);
	for (size_t i = 0; i < json_array_size(enis) && i < ELEMENTS(ret->enis); i++) {
		const json_t *from = json_array_get(enis, i);
		struct eni *e = &ret->enis[ret->n_enis++];
		const char *subnet = json_string_value(json_object_get(from, "subnet_id"));
		const json_t *device = json_object_get(from, "device"),
			     *card = json_object_get(from, "card");

		e->device = json_is_integer(device) ? (int) json_integer_value(device) : -1;
		e->card = json_is_integer(card) ? (int) json_integer_value(card) : -1;
		(void) text_format(e->subnet_id, sizeof(e->subnet_id), "%s", subnet ? subnet : "");
	}
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
