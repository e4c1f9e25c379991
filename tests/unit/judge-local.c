/* SPDX-License-Identifier: Apache-2.0 */
/* The judges of the probes that stay on the node, as pure functions: what each says of each
 * outcome. */
#include "../tap.h"
#include "probe.h"

static struct observation see(enum layer layer, const char *aspect, enum outcome outcome,
                              const char *subject)
{
	struct observation o = {.layer = layer, .outcome = outcome};

	(void) text_format(o.aspect, sizeof(o.aspect), "%s", aspect);
	(void) text_format(o.subject, sizeof(o.subject), "%s", subject);
	return o;
}

static bool says(const struct probe *p, const struct observation *o, enum code code,
                 const char *summary)
{
	struct words w = {0};
	enum code got = p->judge(o, &w);

	if (got == code && strcmp(w.summary, summary) == 0)
		return true;
	printf("# %d: %s\n", (int) got, w.summary);
	return false;
}

static void test_words(void)
{
	struct observation o = see(LAYER_HOST, "loopback", OUTCOME_FAILED, "lo");

	observation_number(&o, "present", 1);
	ok(says(&probe_link, &o, CODE_LoopbackDown, "lo is down"));
	o = see(LAYER_LINK, "link", OUTCOME_FAILED, "ens5");
	observation_number(&o, "present", 1);
	observation_number(&o, "up", 1);
	ok(says(&probe_link, &o, CODE_PrimaryInterfaceDown,
	        "primary interface ens5 has no carrier"));
	o = see(LAYER_LINK, "address", OUTCOME_ABSENT, "ens5");
	ok(says(&probe_link, &o, CODE_PrimaryAddressMissing,
	        "primary interface ens5 is up without a global address: no DHCP lease"));
	o = see(LAYER_ROUTE, "default", OUTCOME_ABSENT, "");
	observation_text(&o, "family", "IPv4");
	ok(says(&probe_link, &o, CODE_DefaultRouteMissing,
	        "no default route for IPv4 in table main: nothing beyond the subnet is reached"));
	o = see(LAYER_CNI, "config", OUTCOME_MALFORMED, "/etc/cni/net.d/10-aws.conflist");
	o.code = 3;
	observation_text(&o, "error", "']' expected");
	ok(says(&probe_cni_config, &o, CODE_CniConfigInvalid,
	        "/etc/cni/net.d/10-aws.conflist line 3: ']' expected"));
	o = see(LAYER_CNI, "config", OUTCOME_ABSENT, "");
	observation_text(&o, "conf_dir", "/etc/cni/net.d");
	ok(says(&probe_cni_config, &o, CODE_CniConfigMissing,
	        "no network configuration in /etc/cni/net.d"));
	o = see(LAYER_CNI, "binary", OUTCOME_DENIED, "aws-cni");
	observation_text(&o, "bin_dir", "/opt/cni/bin");
	observation_text(&o, "missing", "aws-cni");
	ok(says(&probe_cni_config, &o, CODE_CniBinaryMissing,
	        "CNI plugin not executable in /opt/cni/bin: aws-cni"));
	o = see(LAYER_ADDRESS, "link", OUTCOME_ABSENT, "eni-0123");
	observation_text(&o, "mac", "02:00:00:00:00:06");
	observation_number(&o, "device", 1);
	ok(says(&probe_eni, &o, CODE_EniLinkMissing,
	        "metadata lists ENI eni-0123 (MAC 02:00:00:00:00:06, device 1), the kernel has no "
	        "link for it"));
	o = see(LAYER_ADDRESS, "", OUTCOME_ABSENT, "");
	observation_text(&o, "instance_type", "m99.large");
	ok(says(&probe_limits, &o, CODE_LimitsUnknown,
	        "instance type m99.large is in no limits table: counts are shown without a "
	        "judgement"));
}

static bool has_code(const struct probe *p, enum code code)
{
	for (size_t i = 0; i < PROBE_CODES_MAX && p->codes[i]; i++)
		if (p->codes[i] == code)
			return true;
	return false;
}

/* Any observation at all, full to the brim: a code of the probe's own with words, or none. */
static void test_any(const struct probe *p, const char *const *aspects, size_t n)
{
	unsigned bad = 0, codes = 0;
	bool raised[_CODE_MAX] = {false};

	for (int outcome = 0; outcome < _OUTCOME_MAX; outcome++)
		for (size_t i = 0; i < n; i++) {
			struct observation o =
				see(p->layer, aspects[i], (enum outcome) outcome, "");
			struct words w = {0};
			enum code c;

			memset(o.subject, 'x', sizeof(o.subject) - 1);
			observation_text(&o, "error", "%0200d", 1);
			observation_text(&o, "missing", "%0200d", 1);
			c = p->judge(&o, &w);
			if (outcome == OUTCOME_OK || outcome == OUTCOME_SKIPPED ||
			    outcome == OUTCOME_UNKNOWN)
				bad += c != CODE_NONE;
			bad += c != CODE_NONE && (!has_code(p, c) || !w.summary[0]);
			bad += c != CODE_NONE && cause_of(c)->layer > LAYER_ADDRESS;
			raised[c] = true;
		}
	for (int c = CODE_NONE + 1; c < _CODE_MAX; c++)
		codes += raised[c];
	ok(bad == 0);
	for (size_t i = 0; i < PROBE_CODES_MAX && p->codes[i]; i++)
		codes -= raised[p->codes[i]];
	ok(codes == 0);
	for (size_t i = 0; i < PROBE_CODES_MAX && p->codes[i]; i++)
		ok(raised[p->codes[i]]); /* no code is promised in vain */
}

int main(void)
{
	static const char *const link[] = {"loopback", "link",           "address",
	                                   "default",  "metadata-route", ""};
	static const char *const cni[] = {"config", "binary", "dir", ""};
	static const char *const eni[] = {"link", "setup", "foreign", "gone", ""};

	test_words();
	test_any(&probe_link, link, ELEMENTS(link));
	test_any(&probe_cni_config, cni, ELEMENTS(cni));
	test_any(&probe_eni, eni, ELEMENTS(eni));
	test_any(&probe_limits, eni + ELEMENTS(eni) - 1, 1);
	return done();
}
