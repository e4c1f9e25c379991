/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "sink.h"
#include "version.h"

/* Prometheus text format: in label values \, " and line feeds are escaped. */
static void label(char *dst, size_t size, const char *value)
{
	size_t used = 0;

	for (; *value && used + 3 < size; value++) {
		if (*value == '\\' || *value == '"')
			dst[used++] = '\\';
		if (*value == '\n') {
			dst[used++] = '\\';
			dst[used++] = 'n';
			continue;
		}
		dst[used++] = *value;
	}
	dst[used] = 0;
}

static void head(FILE *out, const char *name, const char *type, const char *help)
{
	(void) fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Of the primary ENI, which is where the node itself is. */
static const char *subnet_of(const struct node *n)
{
	for (size_t i = 0; i < n->network.n_enis; i++) {
		const struct eni *e = &n->network.enis[i];

		if (n->mac[0] ? strcmp(e->mac, n->mac) == 0 : e->device == 0 && e->card == 0)
			return e->subnet_id;
	}
	return "";
}

/* Not "cluster": that is what Prometheus itself calls the cluster that it has a target in, and a
 * label of ours would become exported_cluster. */
static void say_node(FILE *out, const struct node *n)
{
	const struct {
		const char *name, *value;
	} labels[] = {
		{"version", nodewhy_version()},
		{"instance_id", n->instance_id},
		{"instance_type", n->instance_type},
		{"region", n->region},
		{"zone", n->zone},
		{"subnet_id", subnet_of(n)},
		{"node_name", n->node_name},
		{"cluster_name", n->cluster},
	};

	head(out, "nodewhy_info", "gauge", "Version of nodewhy and identity of the node.");
	for (size_t i = 0; i < ELEMENTS(labels); i++) {
		char value[256];

		label(value, sizeof(value), labels[i].value);
		(void) fprintf(out, "%s%s=\"%s\"", i ? "," : "nodewhy_info{", labels[i].name,
		               value);
	}
	(void) fprintf(out, "} 1\n");
}

static void say_verdict(FILE *out, const struct report *r)
{
	head(out, "nodewhy_verdict", "gauge", "1 for the state that the verdict is in.");
	for (int s = 0; s < _STATE_MAX; s++)
		(void) fprintf(out, "nodewhy_verdict{state=\"%s\"} %d\n",
		               state_name((enum state) s), r->verdict.state == (enum state) s);
	head(out, "nodewhy_verdict_root", "gauge",
	     "1 for the one root cause that the verdict names; absent: there is none.");
	if (r->verdict.root >= 0) {
		const struct finding *f = &r->findings[r->verdict.root];
		const struct cause *c = cause_of(f->code);
		char subject[SUBJECT_MAX * 2];

		label(subject, sizeof(subject), f->subject);
		(void) fprintf(out,
		               "nodewhy_verdict_root{code=\"%s\",layer=\"%s\",severity=\"%s\","
		               "subject=\"%s\"} 1\n",
		               c->name, layer_name(c->layer), severity_name(c->severity), subject);
	}
	head(out, "nodewhy_stage", "gauge",
	     "How far the node has come, from 0 booting to 4 ready.");
	(void) fprintf(out, "nodewhy_stage %d\n", (int) r->verdict.stage);
	head(out, "nodewhy_uptime_seconds", "gauge", "Uptime of the node when this was written.");
	(void) fprintf(out, "nodewhy_uptime_seconds %.3f\n", (double) r->uptime / USEC_PER_SEC);
}

static void say_findings(FILE *out, const struct report *r)
{
	head(out, "nodewhy_finding", "gauge",
	     "1 for each finding; root is yes where nothing else explains it.");
	for (size_t i = 0; i < r->n_findings; i++) {
		const struct finding *f = &r->findings[i];
		const struct cause *c = cause_of(f->code);
		char subject[SUBJECT_MAX * 2];

		label(subject, sizeof(subject), f->subject);
		(void) fprintf(out,
		               "nodewhy_finding{code=\"%s\",layer=\"%s\",severity=\"%s\","
		               "subject=\"%s\",root=\"%s\"} 1\n",
		               c->name, layer_name(c->layer), severity_name(c->severity), subject,
		               f->because < 0 ? "yes" : "no");
	}
	head(out, "nodewhy_condition", "gauge",
	     "Node conditions: 0 no problem, 1 problem, 2 cannot tell.");
	for (int c = CONDITION_None + 1; c < _CONDITION_MAX; c++)
		(void) fprintf(out, "nodewhy_condition{type=\"%s\"} %d\n",
		               condition_name((enum condition) c), (int) r->conditions[c].status);
}

/* One sample a set of labels: a second one makes a reader refuse the whole file. Slots of a probe
 * that could not look, or that had nothing to look at, are told apart by nothing. */
static bool said_before(const struct report *r, size_t i)
{
	const struct observation *o = &r->observations[i];

	for (size_t k = 0; k < i; k++) {
		const struct observation *e = &r->observations[k];

		if (e->layer == o->layer && strcmp(e->probe, o->probe) == 0 &&
		    strcmp(e->aspect, o->aspect) == 0 && strcmp(e->subject, o->subject) == 0)
			return true;
	}
	return false;
}

static void say_looks(FILE *out, const struct report *r, const struct probe_stats *stats)
{
	head(out, "nodewhy_look_ok", "gauge",
	     "1 when the last look was good, 0 when not; absent: unknown.");
	for (size_t i = 0; i < r->n_observations; i++) {
		const struct observation *o = &r->observations[i];
		char subject[SUBJECT_MAX * 2];

		if (o->outcome == OUTCOME_UNKNOWN || o->outcome == OUTCOME_SKIPPED ||
		    said_before(r, i))
			continue;
		label(subject, sizeof(subject), o->subject);
		(void) fprintf(
			out,
			"nodewhy_look_ok{probe=\"%s\",aspect=\"%s\",layer=\"%s\",subject=\"%s\"} "
			"%d\n",
			o->probe, o->aspect, layer_name(o->layer), subject,
			o->outcome == OUTCOME_OK);
	}
	head(out, "nodewhy_look_seconds", "gauge", "How long the last look took.");
	for (size_t i = 0; i < r->n_observations; i++) {
		const struct observation *o = &r->observations[i];
		char subject[SUBJECT_MAX * 2];

		if (said_before(r, i))
			continue;
		label(subject, sizeof(subject), o->subject);
		(void) fprintf(out,
		               "nodewhy_look_seconds{probe=\"%s\",aspect=\"%s\",layer=\"%s\","
		               "subject=\"%s\"} %.6f\n",
		               o->probe, o->aspect, layer_name(o->layer), subject,
		               (double) o->took / USEC_PER_SEC);
	}
	head(out, "nodewhy_probe_runs_total", "counter", "Runs of each probe.");
	for (size_t i = 0; probes[i]; i++)
		(void) fprintf(out, "nodewhy_probe_runs_total{probe=\"%s\"} %llu\n",
		               probes[i]->name, (unsigned long long) stats[i].runs);
	head(out, "nodewhy_probe_failures_total", "counter",
	     "Runs that could not look at all (not: runs that found something).");
	for (size_t i = 0; probes[i]; i++)
		(void) fprintf(out, "nodewhy_probe_failures_total{probe=\"%s\"} %llu\n",
		               probes[i]->name, (unsigned long long) stats[i].failures);
}

static void say_network(FILE *out, const struct network *n)
{
	const struct {
		const char *name, *help;
		int value;
	} gauges[] = {
		{"nodewhy_enis_attached", "ENIs attached to the instance.", n->enis_attached},
		{"nodewhy_enis_max", "ENIs that the instance type can carry.", n->enis_max},
		{"nodewhy_ips_assigned", "Secondary addresses assigned, 16 per prefix.",
	         n->ips_assigned},
		{"nodewhy_ips_max", "Pod addresses that the instance type can carry.", n->ips_max},
		{"nodewhy_pod_ips_in_use", "Pod addresses in use.", n->pod_ips_in_use},
		{"nodewhy_max_pods", "maxPods of the kubelet.", n->max_pods},
		{"nodewhy_max_pods_by_type", "Pods that the instance type can address.",
	         n->max_pods_by_type},
	};

	for (size_t i = 0; n->known && i < ELEMENTS(gauges); i++) {
		if (gauges[i].value < 0)
			continue;
		head(out, gauges[i].name, "gauge", gauges[i].help);
		(void) fprintf(out, "%s %d\n", gauges[i].name, gauges[i].value);
	}
}

/* *ret is malloc'ed. */
static int metrics_text(const struct report *r, const struct probe_stats *stats, char **ret,
                        size_t *ret_len)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_len);

	if (!out)
		return -errno;
	say_node(out, &r->node);
	say_verdict(out, r);
	say_findings(out, r);
	say_looks(out, r, stats);
	say_network(out, &r->node.network);
	if (fclose(out) != 0) {
		free(text);
		return -ENOMEM;
	}
	*ret = text;
	return 0;
}

int sink_metrics(const struct files *f, const struct report *r, const struct probe_stats *stats)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int ret;

	ret = metrics_text(r, stats, &text, &len);
	if (ret < 0)
		return ret;
	return file_replace(f, "/run/nodewhy/metrics.prom", text, len, 0644);
}

int sink_textfile(const char *dir, const struct report *r, const struct probe_stats *stats)
{
	_cleanup_(freep) char *text = NULL;
	struct files *own = NULL;
	char path[512];
	size_t len;
	int ret;

	ret = metrics_text(r, stats, &text, &len);
	if (ret < 0)
		return ret;
	ret = files_new(&own, "/");
	if (ret < 0)
		return ret;
	(void) text_format(path, sizeof(path), "%s/nodewhy.prom", dir);
	ret = file_replace(own, path, text, len, 0644);
	files_free(own);
	return ret;
}
