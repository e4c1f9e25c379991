/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the table of probes as JSON, for packaging/generate and the tests: what the manual says of
 * a probe is what the daemon runs. Built, never installed. */
#include <jansson.h>
#include <stddef.h>

#include "probe.h"

static json_t *seconds(usec_t t)
{
	return json_real((double) t / (double) USEC_PER_SEC);
}

static json_t *probe_to_json(const struct probe *p)
{
	json_t *codes = json_array(), *watch = json_array();

	for (size_t i = 0; i < PROBE_CODES_MAX && p->codes[i] != CODE_NONE; i++)
		json_array_append_new(codes, json_string(cause_of(p->codes[i])->name));
	for (size_t i = 0; i < PROBE_WATCH_MAX && p->watch[i]; i++)
		json_array_append_new(watch, json_string(p->watch[i]));
	return json_pack("{ss ss ss so so so si sb sb sb so so}", "name", p->name, "what", p->what,
	                 "layer", layer_name(p->layer), "every_s", seconds(p->every), "timeout_s",
	                 seconds(p->timeout), "grace_s", seconds(p->grace), "slots",
	                 (int) (p->slots ? p->slots : 1), "on_net", p->on_net, "leaves_node",
	                 p->leaves_node, "needs_ec2", p->needs_ec2, "codes", codes, "watch", watch);
}

int main(void)
{
	json_t *conditions = json_array(), *layers = json_array(), *all = json_array(), *j;
	char verdict[33], heartbeat[33];
	int r;

	code_message_id("verdict", verdict);
	code_message_id("heartbeat", heartbeat);

	for (size_t i = 0; probes[i]; i++)
		json_array_append_new(all, probe_to_json(probes[i]));
	for (int i = CONDITION_None + 1; i < _CONDITION_MAX; i++)
		json_array_append_new(conditions, json_string(condition_name((enum condition) i)));
	for (int i = 0; i < _LAYER_MAX; i++)
		json_array_append_new(layers, json_string(layer_name((enum layer) i)));
	j = json_pack("{si so so so s{ss ss}}", "judge_offset", (int) offsetof(struct probe, judge),
	              "probes", all, "conditions", conditions, "layers", layers, "messages",
	              "verdict", verdict, "heartbeat", heartbeat);
	r = j ? json_dumpf(j, stdout, JSON_INDENT(2)) : -1;
	json_decref(j);
	return r < 0 || fflush(stdout) != 0;
}
