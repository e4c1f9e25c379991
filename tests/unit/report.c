/* SPDX-License-Identifier: Apache-2.0 */
/* The report as JSON and as text: complete, bounded, and whole or not at all. */
#include <errno.h>

#include "../tap.h"
#include "clock.h"
#include "report-json.h"
#include "report-text.h"
#include "sink.h"

static struct report r;
static struct report_meta meta = {
	.realtime = UINT64_C(1796000000000000), .boot_id = "b00f", .seq = 3};
static struct fact facts[4];
static const struct fact *order[4] = {&facts[0], &facts[1], &facts[2], &facts[3]};

static void fill(void)
{
	static struct node node = {.instance_id = "i-0abc", .region = "us-west-2", .ec2 = EC2_YES};
	struct diagnose_input in = {.node = &node,
	                            .now = 90 * USEC_PER_SEC,
	                            .uptime = 5000 * USEC_PER_SEC,
	                            .complete = true};
	struct network *n = &node.network;

	*n = (struct network){.known = true,
	                      .n_enis = 2,
	                      .enis_attached = 2,
	                      .enis_max = 3,
	                      .ipv4_per_eni = 10,
	                      .ips_assigned = 18,
	                      .ips_max = 27,
	                      .pod_ips_in_use = 11,
	                      .max_pods = 29,
	                      .max_pods_by_type = -1};
	for (int i = 0; i < 2; i++) {
		struct eni *e = &n->enis[i];

		*e = (struct eni){.device = i,
		                  .card = 0,
		                  .ips_assigned = 9,
		                  .prefixes = 0,
		                  .pod_ips = 5 + i,
		                  .managed_by = MANAGED_CNI};
		(void) snprintf(e->mac, sizeof(e->mac), "02:00:00:00:00:0%d", i);
		(void) snprintf(e->name, sizeof(e->name), "ens%d", 5 + i);
		(void) address_parse(&e->ipv4, i ? "10.0.1.6" : "10.0.1.5");
	}
	for (size_t i = 0; i < ELEMENTS(facts); i++) {
		facts[i] = (struct fact){
			.since = 10 * USEC_PER_SEC, .last_seen = 89 * USEC_PER_SEC, .seen = 4};
		facts[i].latest.at = 80 * USEC_PER_SEC;
		facts[i].latest.took = 1234;
	}
	(void) strcpy(facts[0].latest.probe, "imds");
	facts[0].latest.layer = LAYER_METADATA;
	observation_detail(&facts[0].latest, "all is well, %d%%", 100);
	(void) strcpy(facts[1].latest.probe, "dns");
	facts[1].latest.layer = LAYER_DNS;
	facts[1].latest.outcome = OUTCOME_TIMEOUT;
	(void) strcpy(facts[1].latest.subject, "10.0.0.2");
	observation_number(&facts[1].latest, "tries", 3);
	observation_text(&facts[1].latest, "server", "10.0.0.2\n\"x\"");
	facts[1].code = CODE_ResolverUnreachable;
	facts[1].bad = facts[1].latest;
	(void) text_format(facts[1].summary, SUMMARY_MAX,
	                   "nothing from 10.0.0.2 in 1.0 s, 100%% lost, 한글 %0120d", 7);
	(void) strcpy(facts[2].latest.probe, "limits");
	facts[2].latest.layer = LAYER_ADDRESS;
	facts[2].latest.outcome = OUTCOME_UNKNOWN;
	(void) strcpy(facts[3].latest.probe, "endpoint");
	facts[3].latest.layer = LAYER_ENDPOINT;
	facts[3].latest.outcome = OUTCOME_UNKNOWN;
	diagnose(order, 4, &in, &r);
	meta.verdict_since = 10 * USEC_PER_SEC;
}

static const char *text(const json_t *j, const char *key)
{
	const char *s = json_string_value(json_object_get(j, key));

	return s ? s : "";
}

static void test_json(void)
{
	static const char *const keys[] = {
		"schema", "written_at", "boot_id",  "uptime_s",   "valid_for_s", "seq",   "version",
		"node",   "verdict",    "findings", "conditions", "network",     "probes"};
	json_t *j = report_to_json(&r, &meta), *f, *v;

	for (size_t i = 0; i < ELEMENTS(keys); i++)
		ok(json_object_get(j, keys[i]) != NULL, "%s", keys[i]);
	v = json_object_get(j, "verdict");
	ok(strcmp(text(v, "root"), "ResolverUnreachable") == 0 &&
	   strcmp(text(v, "state"), "broken") == 0);
	ok(strncmp(text(v, "since"), "2026-11-30T", 11) == 0);
	f = json_array_get(json_object_get(j, "findings"), 0);
	ok(json_is_null(json_object_get(f, "because")) &&
	   json_integer_value(json_object_get(f, "seen")) == 4);
	ok(json_integer_value(json_object_get(json_object_get(f, "evidence"), "tries")) == 3);
	ok(strcmp(text(json_object_get(f, "evidence"), "server"), "10.0.0.2\\x0a\"x\"") == 0);
	ok(strlen(text(f, "summary")) <= 160);
	ok(json_array_size(json_object_get(j, "conditions")) == _CONDITION_MAX - 1);
	ok(json_array_size(json_object_get(json_object_get(j, "network"), "enis")) == 2);
	ok(json_is_null(json_object_get(json_object_get(j, "network"),
	                                "max_pods_by_type"))); /* unknown is never zero */
	ok(json_is_null(json_object_get(json_object_get(j, "node"), "cluster")));
	json_decref(j);
}

static void test_round_trip(void)
{
	static struct observation back[LEDGER_MAX];
	static enum code judged[LEDGER_MAX];
	json_t *j = report_to_json(&r, &meta), *looks = json_object_get(j, "probes");
	struct node node;
	usec_t uptime;
	char error[128];
	size_t n;

	ok(report_observations_from_json(j, back, judged, LEDGER_MAX, &n, &node, &uptime, error,
	                                 sizeof(error)) == 0 &&
	   n == 4);
	ok(uptime == 5000 * USEC_PER_SEC && strcmp(node.instance_id, "i-0abc") == 0 &&
	   node.ec2 == EC2_YES);
	ok(back[1].outcome == OUTCOME_TIMEOUT && evidence_number(&back[1], "tries", 0) == 3);
	ok(strcmp(back[1].subject, "10.0.0.2") == 0 && back[1].took == 1234);
	ok(report_observations_from_json(j, back, judged, 3, &n, &node, &uptime, error,
	                                 sizeof(error)) == -E2BIG);
	(void) json_object_set_new(json_array_get(looks, 0), "outcome", json_string("splendid"));
	ok(report_observations_from_json(j, back, judged, LEDGER_MAX, &n, &node, &uptime, error,
	                                 sizeof(error)) == -EBADMSG &&
	   strstr(error, "splendid"));
	(void) json_object_set_new(j, "schema", json_string("other/1"));
	ok(report_observations_from_json(j, back, judged, LEDGER_MAX, &n, &node, &uptime, error,
	                                 sizeof(error)) == -EBADMSG);
	ok(report_observations_from_json(NULL, back, judged, LEDGER_MAX, &n, &node, &uptime, error,
	                                 sizeof(error)) == -EBADMSG);
	json_decref(j);
}

static long countdown;

static void *failing_malloc(size_t size)
{
	return countdown-- == 0 ? NULL : malloc(size);
}

/* Fails the first allocation, then the second, … until all succeed. */
static void test_out_of_memory(void)
{
	size_t truncated = 0;
	char *whole, *again;
	json_t *j = report_to_json(&r, &meta);
	long i;

	whole = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(j);
	json_set_alloc_funcs(failing_malloc, free);
	for (i = 0;; i++) {
		bool failed;

		countdown = i;
		j = report_to_json(&r, &meta);
		failed = countdown < 0;
		countdown = -1;
		again = j ? json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
		truncated += again && strcmp(again, whole) != 0;
		json_decref(j);
		free(again);
		if (!failed)
			break;
	}
	json_set_alloc_funcs(malloc, free);
	printf("# %ld allocations\n", i);
	ok(i > 100);
	ok(truncated == 0); /* a report is whole or it is not there */
	free(whole);
}

static void test_conditions(void)
{
	char s[256], *line2, *line3;

	for (int c = CONDITION_None + 1; c < _CONDITION_MAX; c++) {
		size_t n = condition_text(&r, (enum condition) c, s, sizeof(s));

		ok(n < sizeof(s) && s[n - 1] == '\n' && strchr("012", s[0]) && s[1] == '\n');
		line2 = s + 2;
		line3 = strchr(line2, '\n') + 1;
		ok((size_t) (line3 - line2 - 1) <= 80 &&
		   strtol(line3, NULL, 10) == 5000 + STATUS_VALID_S);
		for (const char *p = line2; p < line3 - 1; p++)
			if (*p < 0x20 || *p > 0x7e || *p == '%')
				ok(false, "%c", *p);
	}
	(void) condition_text(&r, CONDITION_DnsProblem, s, sizeof(s));
	ok(strncmp(s, "1\nResolverUnreachable: nothing from 10.0.0.2", 44) == 0);
	(void) condition_text(&r, CONDITION_InstanceMetadataProblem, s, sizeof(s));
	ok(strncmp(s, "0\n", 2) == 0);
	(void) condition_text(&r, CONDITION_PodAddressProblem, s, sizeof(s));
	ok(strncmp(s, "2\n", 2) == 0);
}

/* Every character of three bytes in what these tests write is Hangul, but "…". */
static size_t widest(const char *s)
{
	size_t max = 0, n = 0;

	for (; *s; s++) {
		n = *s == '\n' ? 0 : n + (((unsigned char) *s & 0xC0) != 0x80);
		if (((unsigned char) *s & 0xF0) == 0xE0 && strncmp(s, "…", 3) != 0)
			n++;
		max = n > max ? n : max;
	}
	return max;
}

static char *wrapped(void (*how)(FILE *, const char *, size_t, size_t), const char *s, size_t at,
                     size_t indent)
{
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	how(f, s, at, indent);
	(void) fclose(f);
	return out;
}

static void test_wrap(void)
{
	char forty[121] = "", word[400] = "", *s;

	for (int i = 0; i < 40; i++)
		strcat(forty, "가");
	s = wrapped(text_wrap, forty, 0, 2); /* just fits: two columns each */
	ok(strlen(s) == 121 && widest(s) == 80);
	free(s);
	s = wrapped(text_wrap, forty, 1, 2); /* one column less: a syllable is never halved */
	ok(strncmp(s + 39 * 3, "\n  가\n", 7) == 0);
	free(s);
	for (int i = 0; i < 100; i++)
		strcat(word, "각");
	s = wrapped(text_wrap, word, 7, 3);
	ok(widest(s) <= 80 && widest(s) >= 79);
	free(s);
	s = wrapped(text_wrap,
	            "노드 스스로 메타데이터로 가는 길을 막고 있습니다. 파드를 막으려던 규칙이 "
	            "OUTPUT에 걸린 경우가 많습니다. 확인하세요.",
	            2, 2);
	ok(widest(s) <= 80 && strchr(s, '\n') != strrchr(s, '\n'));
	free(s);
	s = wrapped(text_wrap, "\xEA\xB0 cut \xFF\xFE off \xF0\x9F", 0, 0); /* not UTF-8 */
	ok(strcmp(s, "\xEA\xB0 cut \xFF\xFE off \xF0\x9F\n") == 0);
	free(s);
	s = wrapped(text_wrap_command,
	            "aws ec2 describe-subnets --region ap-northeast-2 --subnet-ids "
	            "subnet-0123456789abcdef0 --output text",
	            2, 6);
	ok(strstr(s, " \\\n      ") && widest(s) + 2 <= 80);
	free(s);
}

static void test_outside(void)
{
	struct text_options o = {0};
	json_t *j = json_pack("{s:{s:s}, s:{s:s, s:s}}", "verdict", "state", "healthy", "node",
	                      "region", "ap-northeast-2", "cluster", "shop");
	json_t *bad = json_pack("{s:{s:s}}", "verdict", "state", "degraded");
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	report_text(f, j, &o);
	(void) fclose(f);
	ok(strstr(out, "sound") && strstr(out, "ap-northeast-2") && widest(out) <= 80 &&
	   strstr(out, "list-access-entries --cluster-name shop\n"));
	free(out);
	f = open_memstream(&out, &len);
	o.language = LANGUAGE_KO;
	report_text(f, j, &o);
	(void) fclose(f);
	ok(strstr(out, "정상") && strstr(out, "aws-auth") && widest(out) <= 80);
	free(out);
	f = open_memstream(&out, &len);
	report_text(f, bad, &o);
	(void) fclose(f);
	ok(!strstr(out, "정상") && !strstr(out, "aws-auth"));
	free(out);
	json_decref(j);
	json_decref(bad);
}

static void test_text(void)
{
	struct text_options o = {.now = meta.realtime};
	json_t *j = report_to_json(&r, &meta);
	char *out = NULL;
	size_t len;
	FILE *f = open_memstream(&out, &len);

	report_text(f, j, &o);
	(void) fclose(f);
	printf("# %zu columns\n", widest(out));
	ok(widest(out) <= 80);
	ok(strncmp(out, "BROKEN  ResolverUnreachable", 27) == 0);
	ok(strstr(out, "for 1 min") && strstr(out, "Fix: ") && strstr(out, "ens6") &&
	   !strchr(out, '\033'));
	free(out);
	out = NULL;
	o.color = true;
	f = open_memstream(&out, &len);
	report_text(f, j, &o);
	(void) fclose(f);
	ok(strchr(out, '\033') != NULL);
	ok(strstr(out, "ENIs 2 of 3, addresses 18 of 27 assigned") != NULL);
	free(out);
	out = NULL;
	json_object_set_new(json_object_get(j, "network"), "ips_max", json_null());
	f = open_memstream(&out, &len);
	report_text(f, j, &o); /* an IPv6 cluster has no such limit */
	(void) fclose(f);
	ok(strstr(out, "ENIs 2 of 3, addresses 18 assigned") != NULL);
	json_decref(j);
	free(out);
	out = NULL;
	j = json_pack("{s:[i], s:s, s:{s:i}}", "findings", 7, "probes", "x", "verdict", "state", 3);
	f = open_memstream(&out, &len);
	report_text(f, j, &o); /* another version's file is shown as far as it goes */
	(void) fclose(f);
	ok(len > 0);
	json_decref(j);
	free(out);
}

static void test_messages(void)
{
	char s[SUMMARY_MAX + REMEDY_MAX + 128];

	finding_message(&r.findings[0], false, s, sizeof(s));
	ok(strncmp(s, "ResolverUnreachable: nothing from", 33) == 0);
	verdict_message(&r, s, sizeof(s));
	ok(strncmp(s, "verdict broken: ResolverUnreachable: nothing", 44) == 0 &&
	   strstr(s, ". Fix: "));
}

int main(void)
{
	fill();
	test_json();
	test_round_trip();
	test_out_of_memory();
	test_conditions();
	test_text();
	test_wrap();
	test_outside();
	test_messages();
	return done();
}
