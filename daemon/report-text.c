/* SPDX-License-Identifier: Apache-2.0 */
#include "report-text.h"
#include "clock.h"
#include "diagnose.h"

enum { COLUMNS = 80 };

enum tone { TONE_PLAIN, TONE_GOOD, TONE_WARN, TONE_BAD, TONE_DIM, TONE_BOLD };

static const char *const tones[] = {"", "\033[32m", "\033[33m", "\033[1;31m", "\033[2m", "\033[1m"};

static const char *on(const struct text_options *o, enum tone t)
{
	return o->color ? tones[t] : "";
}

static const char *off(const struct text_options *o, enum tone t)
{
	return o->color && t != TONE_PLAIN ? "\033[0m" : "";
}

static const char *text_of(const json_t *j, const char *key)
{
	const char *s = json_string_value(json_object_get(j, key));

	return s ? s : "";
}

static void wrap(FILE *out, const char *s, size_t at, size_t indent, const char *tail)
{
	const size_t end = COLUMNS - strlen(tail);
	bool first = true;

	for (s += strspn(s, " "); *s; s += strspn(s, " ")) {
		size_t bytes = strcspn(s, " "), width = text_columns(s, bytes);

		if (!first && at + 1 + width > end) {
			(void) fprintf(out, "%s\n%*s", tail, (int) indent, "");
			at = indent;
			first = true;
		}
		/* a word longer than a line is cut into lines: a terminal would wrap it anywhere */
		while (at + width + !first > end) {
			size_t fit = text_fit(s, bytes, end - at);

			(void) fprintf(out, "%.*s\n%*s", (int) fit, s, (int) indent, "");
			s += fit;
			bytes -= fit;
			width = text_columns(s, bytes);
			at = indent;
			first = true;
		}
		(void) fprintf(out, "%s%.*s", first ? "" : " ", (int) bytes, s);
		at += width + !first;
		first = false;
		s += bytes;
	}
	(void) fputc('\n', out);
}

void text_wrap(FILE *out, const char *s, size_t at, size_t indent)
{
	wrap(out, s, at, indent, "");
}

void text_wrap_command(FILE *out, const char *s, size_t at, size_t indent)
{
	wrap(out, s, at, indent, " \\");
}

/* "12 s", "3 min", "2 h 10 min", "4 d 3 h". */
static void age(char *dst, size_t size, usec_t t)
{
	unsigned long long s = t / USEC_PER_SEC, m = s / 60, h = m / 60, d = h / 24;

	if (d)
		(void) text_format(dst, size, "%llu d %llu h", d, h % 24);
	else if (h)
		(void) text_format(dst, size, "%llu h %llu min", h, m % 60);
	else if (m)
		(void) text_format(dst, size, "%llu min", m);
	else
		(void) text_format(dst, size, "%llu s", s);
}

static void since(const json_t *j, const struct text_options *o, char *dst, size_t size)
{
	usec_t t;

	dst[0] = 0;
	if (o->now && clock_parse(text_of(j, "since"), &t) == 0 && t <= o->now) {
		char a[32];

		age(a, sizeof(a), o->now - t);
		(void) text_format(dst, size, "for %s", a);
	}
}

static enum tone tone_of_severity(const char *severity)
{
	return strcmp(severity, "fatal") == 0      ? TONE_BAD
	       : strcmp(severity, "degraded") == 0 ? TONE_WARN
	                                           : TONE_PLAIN;
}

static enum tone tone_of_state(const char *state)
{
	return strcmp(state, "healthy") == 0  ? TONE_GOOD
	       : strcmp(state, "broken") == 0 ? TONE_BAD
	                                      : TONE_WARN;
}

static void say_identity(FILE *out, const json_t *node, const struct text_options *o)
{
	static const char *const keys[] = {"instance_id", "instance_type", "zone", "node_name",
	                                   "cluster"};
	char line[256] = "";

	for (size_t i = 0; i < ELEMENTS(keys); i++)
		if (text_of(node, keys[i])[0])
			(void) text_append(line, sizeof(line), "%s%s", line[0] ? "  " : "",
			                   text_of(node, keys[i]));
	if (!line[0])
		return;
	(void) fprintf(out, "%s", on(o, TONE_DIM));
	text_wrap(out, line, 0, 0);
	(void) fprintf(out, "%s", off(o, TONE_DIM));
}

static void say_finding(FILE *out, const json_t *f, const struct text_options *o, bool remedy)
{
	enum tone t = tone_of_severity(text_of(f, "severity"));
	const char *subject = text_of(f, "subject"), *because = text_of(f, "because");
	char head[256];

	(void) text_format(head, sizeof(head), "%s%s%s%s%s%s", text_of(f, "code"),
	                   subject[0] ? " (" : "", subject, subject[0] ? ")" : "",
	                   because[0] ? " because of " : "", because);
	(void) fprintf(out, "  %s", on(o, t));
	text_wrap(out, head, 2, 4);
	(void) fprintf(out, "%s    ", off(o, t));
	text_wrap(out, text_of(f, "summary"), 4, 4);
	if (remedy && text_of(f, "remedy")[0]) {
		(void) fprintf(out, "    %sFix:%s ", on(o, TONE_BOLD), off(o, TONE_BOLD));
		text_wrap(out, text_of(f, "remedy"), 9, 9);
	}
}

static void say_verdict(FILE *out, const json_t *status, const struct text_options *o)
{
	const json_t *v = json_object_get(status, "verdict");
	const char *state = text_of(v, "state");
	enum tone t = tone_of_state(state);
	const char *root = text_of(v, "root"), *stage = text_of(v, "stage");
	char how_long[64], upper[sizeof("degraded")] = "";

	since(v, o, how_long, sizeof(how_long));
	for (size_t i = 0; state[i] && i + 1 < sizeof(upper); i++) {
		upper[i] = '?';
		if (state[i] >= 'a' && state[i] <= 'z')
			upper[i] = (char) (state[i] - 'a' + 'A');
	}
	(void) fprintf(out, "%s%s%s", on(o, t), upper, off(o, t));
	/* both are bounded by our own names, unless the file is of somebody else */
	if (root[0])
		(void) fprintf(out, "  %s%.*s%s", on(o, TONE_BOLD),
		               (int) text_fit(root, strlen(root), 26), root, off(o, TONE_BOLD));
	(void) fprintf(out, "  stage %.*s%s%s\n", (int) text_fit(stage, strlen(stage), 13), stage,
	               how_long[0] ? ", " : "", how_long);
}

/* What the verdict cannot vouch for, and how long the provisioner waits. */
static void say_limits(FILE *out, const json_t *v, const struct text_options *o)
{
	const json_t *layers = json_object_get(v, "unverified"), *l;
	const json_t *deadline = json_object_get(v, "deadline_s");
	char line[256] = "";
	size_t i;

	json_array_foreach (layers, i, l) {
		if (json_is_string(l))
			(void) text_append(line, sizeof(line), "%s%s", line[0] ? ", " : "",
			                   json_string_value(l));
	}
	if (line[0]) {
		(void) fprintf(out, "%scould not be verified: ", on(o, TONE_WARN));
		text_wrap(out, line, 23, 2);
		(void) fprintf(out, "%s", off(o, TONE_WARN));
	}
	/* what another process wrote is shown as far as it makes sense */
	if (json_is_integer(deadline) && json_integer_value(deadline) >= 0 &&
	    json_integer_value(deadline) <= JOIN_DEADLINE_S)
		(void) fprintf(
			out,
			"%sa node that has not registered is deleted by its provisioner in %lld min"
			"%s\n",
			on(o, TONE_WARN), (long long) json_integer_value(deadline) / 60,
			off(o, TONE_WARN));
}

/* A sound node whose pods still do not come: the next look is elsewhere. */
static void say_outside(FILE *out, const json_t *node, const struct text_options *o)
{
	static const char *const head[] = {
		"The node itself is sound; any trouble left lies outside it",
		"노드 자체는 정상입니다. 문제가 있다면 노드 밖을 "
		"확인하세요"};
	static const char *const what[][3] = {{"provisioner", "quotas", "other nodes"},
	                                      {"프로비저너 ", "할당량     ", "다른 노드  "}};
	const char *cluster = text_of(node, "cluster"), *region = text_of(node, "region");
	const bool ko = o->language == LANGUAGE_KO;
	char line[256];

	(void) text_format(line, sizeof(line), "%s%s%s%s:", head[ko], region[0] ? " (" : "", region,
	                   region[0] ? ")" : "");
	(void) fputc('\n', out);
	text_wrap(out, line, 0, 2);
	(void) fprintf(out, "  %-11s  kubectl get nodeclaims,nodepools; kubectl get events -A\n",
	               what[ko][0]);
	(void) fprintf(out, "  %-11s  aws service-quotas list-service-quotas --service-code ec2\n",
	               what[ko][1]);
	(void) fprintf(out, "  %-11s  ", what[ko][2]);
	(void) text_format(line, sizeof(line), "aws eks list-access-entries --cluster-name %s",
	                   cluster[0] ? cluster : "CLUSTER");
	text_wrap_command(out, line, 15, 15);
	(void) fprintf(out, "%15skubectl -n kube-system get configmap aws-auth -o yaml\n", "");
}

static void say_findings(FILE *out, const json_t *findings, const struct text_options *o)
{
	const json_t *f;
	size_t i;

	json_array_foreach (findings, i, f) {
		(void) fputc('\n', out);
		say_finding(out, f, o, json_is_null(json_object_get(f, "because")));
	}
}

/* ---- the chain of layers ---- */

static const json_t *finding_of_layer(const json_t *findings, const char *layer)
{
	const json_t *f;
	size_t i;

	json_array_foreach (findings, i, f)
		if (strcmp(text_of(f, "layer"), layer) == 0)
			return f;
	return NULL;
}

struct row {
	size_t ok, bad, unknown, skipped;
	bool unknown_first; /* the layer's main look could not tell: what a lesser one saw is no
	                       proof */
	const json_t *first_ok, *first_bad, *first_unknown;
};

static void gather_row(const json_t *looks, const char *layer, struct row *ret)
{
	const json_t *p;
	size_t i;

	*ret = (struct row){0};
	json_array_foreach (looks, i, p) {
		int outcome = outcome_from_name(text_of(p, "outcome"));

		if (strcmp(text_of(p, "layer"), layer) != 0)
			continue;
		if (outcome == OUTCOME_OK) {
			ret->ok++;
			if (!ret->first_ok)
				ret->first_ok = p;
		} else if (outcome == OUTCOME_SKIPPED) {
			ret->skipped++;
		} else if (outcome == OUTCOME_UNKNOWN) {
			ret->unknown_first |= !ret->ok && !ret->unknown;
			ret->unknown++;
			if (!ret->first_unknown)
				ret->first_unknown = p;
		} else {
			ret->bad++;
			if (!ret->first_bad)
				ret->first_bad = p;
		}
	}
}

static void say_row(FILE *out, const char *layer, const struct row *row, const json_t *finding,
                    const struct text_options *o)
{
	const char *mark = "ok", *text, *ok_subject = text_of(row->first_ok, "subject");
	enum tone t = TONE_GOOD;
	char line[512];

	(void) text_format(line, sizeof(line), "%s%s%s", ok_subject,
	                   ok_subject[0] && text_of(row->first_ok, "detail")[0] ? ": " : "",
	                   text_of(row->first_ok, "detail"));
	text = line;
	if (finding) {
		const char *subject = text_of(finding, "subject");

		t = tone_of_severity(text_of(finding, "severity"));
		mark = t == TONE_BAD ? "FAIL" : t == TONE_WARN ? "warn" : "note";
		(void) text_format(line, sizeof(line), "%s%s%s%s", text_of(finding, "code"),
		                   subject[0] ? " (" : "", subject, subject[0] ? ")" : "");
		text = line;
	} else if (row->bad) {
		t = TONE_WARN;
		mark = "...";
		(void) text_format(line, sizeof(line), "%s (no finding, or not yet)",
		                   text_of(row->first_bad, "detail"));
		text = line;
	} else if (row->unknown && (!row->ok || row->unknown_first)) {
		t = TONE_DIM;
		mark = "?";
		text = text_of(row->first_unknown, "detail");
	} else if (!row->ok) {
		t = TONE_DIM;
		mark = "-";
		text = "skipped";
	}
	(void) fprintf(out, "  %s%-4s%s  %-11s  ", on(o, t), mark, off(o, t), layer);
	text_wrap(out, text, 21, 21);
}

static void say_layers(FILE *out, const json_t *status, const struct text_options *o)
{
	const json_t *looks = json_object_get(status, "probes");
	const json_t *findings = json_object_get(status, "findings");
	char none[256] = "";

	(void) fputc('\n', out);
	for (int l = 0; l < _LAYER_MAX; l++) {
		const char *name = layer_name((enum layer) l);
		struct row row;

		gather_row(looks, name, &row);
		if (row.ok + row.bad + row.unknown + row.skipped > 0)
			say_row(out, name, &row, finding_of_layer(findings, name), o);
		else
			(void) text_append(none, sizeof(none), " %s", name);
	}
	if (!none[0])
		return;
	(void) fprintf(out, "  %snot looked at: ", on(o, TONE_DIM));
	text_wrap(out, none, 17, 4);
	(void) fprintf(out, "%s", off(o, TONE_DIM));
}

/* ---- ENIs and addresses ---- */

static void number(char *dst, size_t size, const json_t *j, const char *key)
{
	const json_t *v = json_object_get(j, key);

	if (json_is_integer(v))
		(void) text_format(dst, size, "%lld", (long long) json_integer_value(v));
	else
		(void) text_format(dst, size, "?");
}

/* A text in so many columns of a table, whole characters only. */
static void cell(FILE *out, const char *s, size_t columns, bool right, const char *after)
{
	size_t n = text_fit(s, strlen(s), columns), pad = columns - text_columns(s, n);

	(void) fprintf(out, "%*s%.*s%*s%s", right ? (int) pad : 0, "", (int) n, s,
	               right ? 0 : (int) pad, "", after);
}

static bool known(const json_t *j, const char *key)
{
	return json_is_number(json_object_get(j, key));
}

/* "2 of 3", or "2" where no limit is known: of an IPv6 cluster, or of an unknown type. */
static void share(char *dst, size_t size, const json_t *j, const char *have, const char *max)
{
	char limit[16];

	number(dst, size, j, have);
	number(limit, sizeof(limit), j, max);
	if (known(j, max))
		(void) text_append(dst, size, " of %s", limit);
}

static void say_network(FILE *out, const json_t *network, const struct text_options *o)
{
	enum { ROWS = 6 }; /* with the head of two lines, the names and the rest: ten at most */
	const json_t *enis = json_object_get(network, "enis"), *e;
	char enis_of[40], ips_of[40], pods[16], kubelet[16], type[16], line[256];
	size_t i;

	if (json_array_size(enis) == 0)
		return;
	share(enis_of, sizeof(enis_of), network, "enis_attached", "enis_max");
	share(ips_of, sizeof(ips_of), network, "ips_assigned", "ips_max");
	number(pods, sizeof(pods), network, "pod_ips_in_use");
	number(kubelet, sizeof(kubelet), network, "max_pods");
	number(type, sizeof(type), network, "max_pods_by_type");
	(void) text_format(line, sizeof(line),
	                   "ENIs %s, addresses %s assigned, %s in use by pods, max pods %s",
	                   enis_of, ips_of, pods, kubelet);
	if (known(network, "max_pods_by_type"))
		(void) text_append(line, sizeof(line), " (type allows %s)", type);
	(void) fputc('\n', out);
	text_wrap(out, line, 0, 2);
	(void) fprintf(out, "  %s%-9s %-21s %4s %3s  %-15s %5s %4s %4s%s\n", on(o, TONE_DIM),
	               "LINK", "ENI", "CARD", "DEV", "IPV4", "ADDRS", "PFX", "PODS",
	               off(o, TONE_DIM));
	json_array_foreach (enis, i, e) {
		char card[12], device[12], assigned[12], prefixes[12], pod_ips[12];

		if (i == ROWS && json_array_size(enis) > ROWS + 1) {
			(void) fprintf(out, "  … and %zu more (--json lists them)\n",
			               json_array_size(enis) - ROWS);
			break;
		}
		number(card, sizeof(card), e, "card");
		number(device, sizeof(device), e, "device");
		number(assigned, sizeof(assigned), e, "ips_assigned");
		number(prefixes, sizeof(prefixes), e, "prefixes");
		number(pod_ips, sizeof(pod_ips), e, "pod_ips");
		(void) fputs("  ", out);
		cell(out, text_of(e, "name")[0] ? text_of(e, "name") : "-", 9, false, " ");
		cell(out, text_of(e, "eni_id")[0] ? text_of(e, "eni_id") : text_of(e, "mac"), 21,
		     false, " ");
		cell(out, card, 4, true, " ");
		cell(out, device, 3, true, "  ");
		cell(out, text_of(e, "ipv4")[0] ? text_of(e, "ipv4") : "-", 15, false, " ");
		cell(out, assigned, 5, true, " ");
		cell(out, prefixes, 4, true, " ");
		cell(out, pod_ips, 4, true, "\n");
	}
}

void report_text(FILE *out, const json_t *status, const struct text_options *o)
{
	say_verdict(out, status, o);
	say_identity(out, json_object_get(status, "node"), o);
	say_limits(out, json_object_get(status, "verdict"), o);
	if (strcmp(text_of(json_object_get(status, "verdict"), "state"), "healthy") == 0)
		say_outside(out, json_object_get(status, "node"), o);
	say_findings(out, json_object_get(status, "findings"), o);
	say_layers(out, status, o);
	say_network(out, json_object_get(status, "network"), o);
}
