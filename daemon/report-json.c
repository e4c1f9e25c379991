/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "clock.h"
#include "report-json.h"
#include "version.h"

static json_t *text_or_null(const char *s)
{
	return s[0] ? json_string(s) : json_null();
}

static json_t *number_or_null(int64_t v)
{
	return v < 0 ? json_null() : json_integer(v);
}

static json_t *seconds(usec_t t)
{
	usec_t ms = t / USEC_PER_MSEC;

	return json_real((double) ms / 1e3);
}

/* A moment of CLOCK_BOOTTIME on the wall clock of the report. */
static json_t *moment(const struct report *r, const struct report_meta *m, usec_t t)
{
	char text[CLOCK_TEXT_MAX];
	usec_t ago = r->at > t ? r->at - t : 0;

	return json_string(clock_format(m->realtime > ago ? m->realtime - ago : 0, text));
}

/* Puts value (a reference that is taken) under key; counts what failed in *bad. */
static void put(json_t *object, const char *key, json_t *value, int *bad)
{
	if (!value || json_object_set_new(object, key, value) < 0)
		(*bad)++;
}

static void push(json_t *array, json_t *value, int *bad)
{
	if (!value || json_array_append_new(array, value) < 0)
		(*bad)++;
}

static json_t *whole(json_t *j, int bad)
{
	if (!bad)
		return j;
	json_decref(j);
	return NULL;
}

json_t *evidence_to_json(const struct evidence *e, size_t n)
{
	json_t *j = json_object();
	int bad = !j;

	for (size_t i = 0; i < n && !bad; i++)
		put(j, e[i].key,
		    e[i].is_number ? json_integer(e[i].number) : json_string(e[i].text), &bad);
	return whole(j, bad);
}

static json_t *node_to_json(const struct node *n)
{
	const struct {
		const char *key, *value;
	} texts[] = {
		{"instance_id", n->instance_id},
		{"instance_type", n->instance_type},
		{"region", n->region},
		{"zone", n->zone},
		{"ami_id", n->ami_id},
		{"partition", n->partition},
		{"private_dns", n->private_dns},
		{"node_name", n->node_name},
		{"cluster", n->cluster},
		{"runtime", n->runtime},
		{"kubelet_version", n->kubelet_version},
		{"cni_version", n->cni_version},
	};
	json_t *j = json_object();
	int bad = !j;

	for (size_t i = 0; i < ELEMENTS(texts) && !bad; i++)
		put(j, texts[i].key, text_or_null(texts[i].value), &bad);
	put(j, "ec2", n->ec2 == EC2_UNKNOWN ? json_null() : json_boolean(n->ec2 == EC2_YES), &bad);
	put(j, "region_source",
	    text_or_null(n->region[0] ? region_source_name(n->region_source) : ""), &bad);
	return whole(j, bad);
}

static json_t *verdict_to_json(const struct report *r, const struct report_meta *m)
{
	const struct finding *root = r->verdict.root < 0 ? NULL : &r->findings[r->verdict.root];
	json_t *j = json_object(), *unverified = json_array();
	int bad = !j || !unverified;

	put(j, "state", json_string(state_name(r->verdict.state)), &bad);
	put(j, "stage", json_string(stage_name(r->verdict.stage)), &bad);
	put(j, "root", root ? json_string(cause_of(root->code)->name) : json_null(), &bad);
	put(j, "subject", root ? json_string(root->subject) : json_null(), &bad);
	put(j, "summary", root ? json_string(root->summary) : json_null(), &bad);
	put(j, "remedy", root ? json_string(root->remedy) : json_null(), &bad);
	put(j, "since", moment(r, m, m->verdict_since), &bad);
	put(j, "deadline_s", number_or_null(r->verdict.deadline), &bad);
	for (int l = 0; l < _LAYER_MAX; l++)
		if (r->verdict.unverified & UINT32_C(1) << l)
			push(unverified, json_string(layer_name((enum layer) l)), &bad);
	put(j, "unverified", unverified, &bad);
	return whole(j, bad);
}

static json_t *finding_to_json(const struct report *r, const struct report_meta *m,
                               const struct finding *f)
{
	const struct cause *c = cause_of(f->code);
	json_t *j = json_object();
	int bad = !j;

	put(j, "code", json_string(c->name), &bad);
	put(j, "layer", json_string(layer_name(c->layer)), &bad);
	put(j, "condition", c->condition ? json_string(condition_name(c->condition)) : json_null(),
	    &bad);
	put(j, "severity", json_string(severity_name(c->severity)), &bad);
	put(j, "subject", json_string(f->subject), &bad);
	put(j, "summary", json_string(f->summary), &bad);
	put(j, "remedy", json_string(f->remedy), &bad);
	if (f->because >= 0) {
		const struct finding *why = &r->findings[f->because];

		put(j, "because", json_string(cause_of(why->code)->name), &bad);
		put(j, "because_subject", json_string(why->subject), &bad);
	} else {
		put(j, "because", json_null(), &bad);
		put(j, "because_subject", json_null(), &bad);
	}
	put(j, "since", moment(r, m, f->since), &bad);
	put(j, "last_seen", moment(r, m, f->last_seen), &bad);
	put(j, "seen", json_integer(f->seen), &bad);
	put(j, "evidence", evidence_to_json(f->evidence, f->n_evidence), &bad);
	return whole(j, bad);
}

const char *condition_message(const struct condition_state *s, const struct finding *f)
{
	if (f)
		return f->summary;
	return s->status == CONDITION_FALSE ? "no problem found" : "not looked at, or cannot tell";
}

static json_t *condition_to_json(const struct report *r, const struct report_meta *m, int c)
{
	static const char *const status[] = {"False", "True", "Unknown"};
	const struct condition_state *s = &r->conditions[c];
	const struct finding *f = s->finding < 0 ? NULL : &r->findings[s->finding];
	json_t *j = json_object();
	int bad = !j;

	put(j, "type", json_string(condition_name((enum condition) c)), &bad);
	put(j, "status", json_string(status[s->status]), &bad);
	put(j, "reason",
	    json_string(f                              ? cause_of(f->code)->name
	                : s->status == CONDITION_FALSE ? "NoProblem"
	                                               : "CannotTell"),
	    &bad);
	put(j, "message", json_string(condition_message(s, f)), &bad);
	put(j, "since", moment(r, m, m->condition_since[c]), &bad);
	return whole(j, bad);
}

static json_t *eni_to_json(const struct eni *e)
{
	char ip[ADDRESS_TEXT_MAX];
	json_t *j = json_object();
	int bad = !j;

	put(j, "mac", json_string(e->mac), &bad);
	put(j, "name", text_or_null(e->name), &bad);
	put(j, "eni_id", text_or_null(e->eni_id), &bad);
	put(j, "device", number_or_null(e->device), &bad);
	put(j, "card", number_or_null(e->card), &bad);
	put(j, "subnet_id", text_or_null(e->subnet_id), &bad);
	put(j, "ipv4", text_or_null(address_format(&e->ipv4, ip)), &bad);
	put(j, "ips_assigned", number_or_null(e->ips_assigned), &bad);
	put(j, "prefixes", number_or_null(e->prefixes), &bad);
	put(j, "pod_ips", number_or_null(e->pod_ips), &bad);
	put(j, "managed_by",
	    managed_by_name(e->managed_by) ? json_string(managed_by_name(e->managed_by))
	                                   : json_null(),
	    &bad);
	put(j, "up", json_boolean(e->up && e->carrier), &bad);
	return whole(j, bad);
}

static json_t *network_to_json(const struct network *n)
{
	const struct {
		const char *key;
		int value;
	} numbers[] = {
		{"enis_attached", n->enis_attached},
		{"enis_max", n->enis_max},
		{"ipv4_per_eni", n->ipv4_per_eni},
		{"ips_assigned", n->ips_assigned},
		{"ips_max", n->ips_max},
		{"pod_ips_in_use", n->pod_ips_in_use},
		{"max_pods", n->max_pods},
		{"max_pods_by_type", n->max_pods_by_type},
	};
	json_t *j = json_object(), *enis = json_array();
	int bad = !j || !enis;

	for (size_t i = 0; i < n->n_enis && !bad; i++)
		push(enis, eni_to_json(&n->enis[i]), &bad);
	put(j, "enis", enis, &bad);
	for (size_t i = 0; i < ELEMENTS(numbers) && !bad; i++)
		put(j, numbers[i].key, number_or_null(n->known ? numbers[i].value : -1), &bad);
	put(j, "limits_source", text_or_null(n->limits_source), &bad);
	put(j, "prefix_mode", n->known ? json_boolean(n->prefix_mode) : json_null(), &bad);
	put(j, "ipv6", n->known ? json_boolean(n->ipv6) : json_null(), &bad);
	return whole(j, bad);
}

/* A look that this build cannot judge keeps the judgement it came with: it was replayed. */
static json_t *observation_to_json(const struct report *r, size_t i)
{
	const struct observation *o = &r->observations[i];
	json_t *j = json_object();
	struct words w;
	enum code judged = observation_judge(o, &w);
	int bad = !j;
	/* the node's own uptime, as in /proc/uptime */
	usec_t ago = r->at > o->at ? r->at - o->at : 0;

	if (!probe_by_name(o->probe))
		judged = r->codes[i];
	put(j, "name", json_string(o->probe), &bad);
	put(j, "aspect", json_string(o->aspect), &bad);
	put(j, "layer", json_string(layer_name(o->layer)), &bad);
	put(j, "subject", json_string(o->subject), &bad);
	put(j, "outcome", json_string(outcome_name(o->outcome)), &bad);
	put(j, "code", json_integer(o->code), &bad);
	put(j, "took_ms", seconds(o->took * 1000), &bad);
	put(j, "at", seconds(r->uptime > ago ? r->uptime - ago : 0), &bad);
	put(j, "detail", json_string(o->detail[0] ? o->detail : w.summary), &bad);
	put(j, "judged", judged ? json_string(cause_of(judged)->name) : json_null(), &bad);
	put(j, "evidence", evidence_to_json(o->evidence, o->n_evidence), &bad);
	return whole(j, bad);
}

json_t *report_to_json(const struct report *r, const struct report_meta *m)
{
	char now[CLOCK_TEXT_MAX];
	json_t *j = json_object(), *findings = json_array(), *conditions = json_array(),
	       *looks = json_array();
	int bad = !j || !findings || !conditions || !looks;

	put(j, "schema", json_string(STATUS_SCHEMA), &bad);
	put(j, "written_at", json_string(clock_format(m->realtime, now)), &bad);
	put(j, "boot_id", text_or_null(m->boot_id), &bad);
	put(j, "uptime_s", seconds(r->uptime), &bad);
	put(j, "valid_for_s", json_integer(STATUS_VALID_S), &bad);
	put(j, "seq", json_integer((json_int_t) m->seq), &bad);
	put(j, "version", json_string(nodewhy_version()), &bad);
	put(j, "node", node_to_json(&r->node), &bad);
	put(j, "verdict", verdict_to_json(r, m), &bad);
	for (size_t i = 0; i < r->n_findings && !bad; i++)
		push(findings, finding_to_json(r, m, &r->findings[i]), &bad);
	for (int c = CONDITION_None + 1; c < _CONDITION_MAX && !bad; c++)
		push(conditions, condition_to_json(r, m, c), &bad);
	for (size_t i = 0; i < r->n_observations && !bad; i++)
		push(looks, observation_to_json(r, i), &bad);
	put(j, "findings", findings, &bad);
	put(j, "conditions", conditions, &bad);
	put(j, "network", network_to_json(&r->node.network), &bad);
	put(j, "probes", looks, &bad);
	return whole(j, bad);
}

/* ---- what others wrote ---- */

/* *ret is malloc'ed, or NULL when the text is good as it is. */
static int cleaned(const char *s, size_t len, char **ret, size_t *ret_len)
{
	*ret = NULL;
	if (text_is_clean(s, len) && !memchr(s, '\n', len) && !memchr(s, '\r', len) &&
	    !memchr(s, '\t', len))
		return 0;
	*ret = malloc(4 * len + 1); /* each byte may become \xNN */
	if (!*ret)
		return -ENOMEM;
	*ret_len = text_clean(*ret, 4 * len + 1, s, len);
	return 0;
}

static int clean_string(json_t *j)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r;

	r = cleaned(json_string_value(j), json_string_length(j), &text, &len);
	if (r == 0 && text && json_string_setn(j, text, len) < 0)
		r = -ENOMEM;
	return r;
}

static int clean_object(json_t *j)
{
	const char *key;
	json_t *value;
	void *next;
	int r = 0;

	json_object_foreach_safe(j, next, key, value)
	{
		_cleanup_(freep) char *text = NULL;
		size_t len;

		r = report_json_clean(value);
		if (r == 0)
			r = cleaned(key, strlen(key), &text, &len);
		if (r < 0)
			break;
		if (!text)
			continue;
		if (json_object_set(j, text, value) < 0)
			return -ENOMEM;
		(void) json_object_del(j, key);
	}
	return r;
}

/* jansson reads no deeper than JSON_PARSER_MAX_DEPTH: so deep goes this. */
int report_json_clean(json_t *j)
{
	json_t *value;
	size_t i;
	int r = 0;

	if (json_is_string(j))
		return clean_string(j);
	if (json_is_object(j))
		return clean_object(j);
	json_array_foreach (j, i, value) {
		r = report_json_clean(value);
		if (r < 0)
			break;
	}
	return r;
}

static const char *text_of(const json_t *j, const char *key)
{
	const char *s = json_string_value(json_object_get(j, key));

	return s ? s : "";
}

static void copy(char *dst, size_t size, const json_t *j, const char *key)
{
	const char *s = text_of(j, key);

	(void) text_clean(dst, size, s, strlen(s));
}

static usec_t time_of(const json_t *j, const char *key, double unit)
{
	double v = json_number_value(json_object_get(j, key)) * unit;

	return v > 0 && v < 1e18 ? (usec_t) v : 0;
}

static void read_evidence(struct observation *o, const json_t *j)
{
	const char *key;
	json_t *value;

	json_object_foreach ((json_t *) j, key, value) {
		if (json_is_integer(value))
			observation_number(o, key, json_integer_value(value));
		else if (json_is_string(value))
			observation_text(o, key, "%s", json_string_value(value));
	}
}

static int read_observation(const json_t *j, struct observation *ret, enum code *ret_judged,
                            char *ret_error, size_t error_size)
{
	int layer = layer_from_name(text_of(j, "layer")),
	    outcome = outcome_from_name(text_of(j, "outcome"));
	struct observation *o = ret;

	const char *judged = text_of(j, "judged");

	if (!text_of(j, "name")[0] || layer < 0 || outcome < 0 ||
	    (judged[0] && code_from_name(judged) == CODE_NONE)) {
		(void) text_format(ret_error, error_size,
		                   "a look of probe \"%.40s\", layer \"%.40s\", outcome \"%.40s\", "
		                   "judged \"%.40s\" is not known here",
		                   text_of(j, "name"), text_of(j, "layer"), text_of(j, "outcome"),
		                   judged);
		return -EBADMSG;
	}
	*ret_judged = judged[0] ? code_from_name(judged) : CODE_NONE;
	*o = (struct observation){.layer = (enum layer) layer, .outcome = (enum outcome) outcome};
	copy(o->probe, sizeof(o->probe), j, "name");
	copy(o->aspect, sizeof(o->aspect), j, "aspect");
	copy(o->subject, sizeof(o->subject), j, "subject");
	copy(o->detail, sizeof(o->detail), j, "detail");
	o->code = (int) json_integer_value(json_object_get(j, "code"));
	o->at = time_of(j, "at", 1e6);
	o->took = time_of(j, "took_ms", 1e3);
	read_evidence(o, json_object_get(j, "evidence"));
	return 0;
}

static void read_node(struct node *n, const json_t *j)
{
	copy(n->instance_id, sizeof(n->instance_id), j, "instance_id");
	copy(n->instance_type, sizeof(n->instance_type), j, "instance_type");
	copy(n->region, sizeof(n->region), j, "region");
	copy(n->zone, sizeof(n->zone), j, "zone");
	copy(n->ami_id, sizeof(n->ami_id), j, "ami_id");
	copy(n->partition, sizeof(n->partition), j, "partition");
	copy(n->private_dns, sizeof(n->private_dns), j, "private_dns");
	copy(n->node_name, sizeof(n->node_name), j, "node_name");
	copy(n->cluster, sizeof(n->cluster), j, "cluster");
	copy(n->runtime, sizeof(n->runtime), j, "runtime");
	copy(n->kubelet_version, sizeof(n->kubelet_version), j, "kubelet_version");
	copy(n->cni_version, sizeof(n->cni_version), j, "cni_version");
	n->ec2 = json_is_true(json_object_get(j, "ec2"))    ? EC2_YES
	         : json_is_false(json_object_get(j, "ec2")) ? EC2_NO
	                                                    : EC2_UNKNOWN;
}

int report_observations_from_json(const json_t *j, struct observation *ret, enum code *ret_judged,
                                  size_t max, size_t *ret_n, struct node *ret_node,
                                  usec_t *ret_uptime, char *ret_error, size_t error_size)
{
	const json_t *looks = json_object_get(j, "probes");
	size_t n = json_array_size(looks);
	int r;

	if (strcmp(text_of(j, "schema"), STATUS_SCHEMA) != 0 || !json_is_array(looks)) {
		(void) text_format(ret_error, error_size,
		                   "not a document of schema " STATUS_SCHEMA);
		return -EBADMSG;
	}
	if (n > max) {
		(void) text_format(ret_error, error_size, "%zu looks, %zu at most", n, max);
		return -E2BIG;
	}
	for (size_t i = 0; i < n; i++) {
		r = read_observation(json_array_get(looks, i), &ret[i], &ret_judged[i], ret_error,
		                     error_size);
		if (r < 0)
			return r;
	}
	*ret_node = (struct node){0};
	read_node(ret_node, json_object_get(j, "node"));
	*ret_uptime = time_of(j, "uptime_s", 1e6);
	*ret_n = n;
	return 0;
}

static const char *raised_by(enum code code)
{
	for (const struct probe *const *p = probes; *p; p++)
		for (size_t i = 0; i < PROBE_CODES_MAX && (*p)->codes[i] != CODE_NONE; i++)
			if ((*p)->codes[i] == code)
				return (*p)->name;
	return NULL;
}

json_t *catalogue_to_json(void)
{
	json_t *all = json_array();
	int bad = !all;

	for (int i = CODE_NONE + 1; i < _CODE_MAX && !bad; i++) {
		const struct cause *c = cause_of((enum code) i);
		const char *by = raised_by((enum code) i);
		char id[33];
		json_t *j = json_object();

		code_message_id(c->name, id);
		put(j, "code", json_string(c->name), &bad);
		put(j, "layer", json_string(layer_name(c->layer)), &bad);
		put(j, "condition",
		    c->condition ? json_string(condition_name(c->condition)) : json_null(), &bad);
		put(j, "severity", json_string(severity_name(c->severity)), &bad);
		put(j, "kind", json_string(c->kind == KIND_CAUSE ? "cause" : "symptom"), &bad);
		put(j, "decided_by", json_string(c->decided_by), &bad);
		put(j, "remedy", json_string(c->remedy), &bad);
		put(j, "raised_by", by ? json_string(by) : json_null(), &bad);
		put(j, "message_id", json_string(id), &bad);
		push(all, j, &bad);
	}
	return whole(all, bad);
}
