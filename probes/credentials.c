/* SPDX-License-Identifier: Apache-2.0 */
/* Has the instance a role, and credentials of it that are good? What metadata says; whether AWS
 * takes them is for sts to ask. Rotation is normal and not looked at: only the role's name is. */
#include <errno.h>

#include "probe.h"

enum { CREDENTIALS_BODY_MAX = 16384 };

static const char info_path[] = "/latest/meta-data/iam/info";
static const char roles_path[] = "/latest/meta-data/iam/security-credentials/";
/* A sound clock may still be so much off. */
static const int64_t expired_for_sure_s = CLOCK_SOUND_S;

struct state {
	int info_status;
	char info_code[64], role[128];
};

struct memory {
	bool known;
	struct observation last; /* said again while metadata's budget is spent */
};

/* ---- the end of a run ---- */

static void end(struct run *r, const struct observation *o)
{
	struct memory *m = run_memory(r);

	if (o) {
		m->last = *o;
		m->known = true;
	}
	run_end(r);
}

static void end_unknown(struct run *r, enum outcome outcome, const char *why)
{
	observation_detail(run_observe(r, LAYER_CREDENTIALS, "", "", outcome, 0), "%s", why);
	run_end(r);
}

static void end_throttled(struct run *r)
{
	struct memory *m = run_memory(r);
	struct observation *o;

	if (!m->known) {
		end_unknown(r, OUTCOME_UNKNOWN,
		            "cannot tell yet: the budget for metadata is spent");
		return;
	}
	o = run_observe(r, LAYER_CREDENTIALS, "", "", m->last.outcome, m->last.code);
	if (o)
		*o = m->last;
	run_end(r);
}

/* 200 or 404; else the run has been ended, since nothing is known. */
static int status_of(struct run *r, const struct imds_reply *reply)
{
	char why[DETAIL_MAX];

	if (reply->disabled) {
		end_unknown(r, OUTCOME_SKIPPED, "AWS_EC2_METADATA_DISABLED is true");
	} else if (reply->throttled) {
		end_throttled(r);
	} else if (reply->http.outcome != OUTCOME_OK || reply->step != IMDS_GET) {
		end_unknown(r, OUTCOME_UNKNOWN, "cannot tell: metadata does not answer");
	} else if (reply->http.code != 200 && reply->http.code != 404) {
		(void) text_format(why, sizeof(why), "cannot tell: metadata answers HTTP %d",
		                   reply->http.code);
		end_unknown(r, OUTCOME_UNKNOWN, why);
	} else {
		run_witness(r, WITNESS_METADATA, &reply->http);
		return reply->http.code;
	}
	return 0;
}

static int ask(struct run *r, const char *path, run_imds_t done)
{
	const struct memory *m = run_memory(r);

	/* the first word is not put off: everything that signs waits for it */
	return run_imds(r, path, CREDENTIALS_BODY_MAX, m->known, done, 0);
}

/* From inside a callback, where nobody takes an errno. */
static void ask_next(struct run *r, const char *path, run_imds_t done)
{
	if (ask(r, path, done) < 0)
		end_unknown(r, OUTCOME_UNKNOWN, "cannot look: out of memory");
}

/* ---- the words ---- */

static void append_span(char *dst, size_t size, int64_t s)
{
	if (s >= 7200)
		(void) text_append(dst, size, "%lld h %lld min", (long long) s / 3600,
		                   (long long) s / 60 % 60);
	else if (s >= 120)
		(void) text_append(dst, size, "%lld min", (long long) s / 60);
	else
		(void) text_append(dst, size, "%lld s", (long long) s);
}

static void describe_absent(const struct observation *o, char *dst, size_t size)
{
	int64_t uptime = evidence_number(o, "uptime_s", 0);
	const char *role = evidence_get_text(o, "role");

	if (role[0]) {
		(void) text_format(dst, size, "role %s is listed, its credentials are 404", role);
	} else {
		(void) text_format(dst, size, "iam/info is 404 and security-credentials/ is empty");
	}
	if (uptime) {
		(void) text_append(dst, size, ", ");
		append_span(dst, size, uptime);
		(void) text_append(dst, size, " after boot");
	}
}

static void describe_expired(const struct observation *o, char *dst, size_t size)
{
	int64_t updated = evidence_number(o, "updated_s", 0);

	(void) text_format(dst, size, "credentials of %s expired ", evidence_get_text(o, "role"));
	append_span(dst, size, -evidence_number(o, "expires_s", 0));
	(void) text_append(dst, size, " ago");
	if (updated > 0) {
		(void) text_append(dst, size, ", last updated ");
		append_span(dst, size, updated);
		(void) text_append(dst, size, " ago");
	}
}

static void describe(const struct observation *o, char *dst, size_t size)
{
	const char *role = evidence_get_text(o, "role"),
		   *info_code = evidence_get_text(o, "info_code"),
		   *code = evidence_get_text(o, "credentials_code");

	switch (o->outcome) {
	case OUTCOME_ABSENT:
		describe_absent(o, dst, size);
		break;
	case OUTCOME_FAILED:
		if (strcmp(info_code, "Success") == 0)
			(void) text_format(dst, size,
			                   "iam/info is there and security-credentials/ lists no "
			                   "role: the instance profile has none");
		else
			(void) text_format(dst, size, "iam/info has Code %s", info_code);
		break;
	case OUTCOME_DENIED:
		(void) text_format(dst, size, "no credentials of role %s: Code is %s", role,
		                   code[0] ? code : "absent");
		break;
	case OUTCOME_EXPIRED:
		describe_expired(o, dst, size);
		break;
	case OUTCOME_FOREIGN:
		(void) text_format(dst, size, "role is %s now, was %s at boot", role,
		                   evidence_get_text(o, "was"));
		break;
	default:
		(void) text_format(dst, size, "role %s", role);
		if (evidence_number(o, "expires_s", 0) > 0) {
			(void) text_append(dst, size, ", credentials for ");
			append_span(dst, size, evidence_number(o, "expires_s", 0));
			(void) text_append(dst, size, " more");
		}
		break;
	}
}

static struct observation *observe(struct run *r, enum outcome outcome, int status)
{
	const struct state *s = run_state(r);
	struct observation *o = run_observe(r, LAYER_CREDENTIALS, "", "", outcome, status);

	if (s->role[0])
		observation_text(o, "role", "%s", s->role);
	if (s->info_code[0])
		observation_text(o, "info_code", "%s", s->info_code);
	if (outcome == OUTCOME_ABSENT)
		observation_number(o, "uptime_s", (int64_t) (run_uptime(r) / USEC_PER_SEC));
	return o;
}

static void conclude(struct run *r, struct observation *o)
{
	if (o)
		describe(o, o->detail, sizeof(o->detail));
	end(r, o);
}

/* ---- the role of this boot ---- */

/* The first role of a boot, kept as "BOOT-ID ROLE": a role that was replaced before the boot is
 * whatever the node was set up with. */
static bool was_replaced(struct run *r, const char *role, char *ret_was, size_t size)
{
	static const char key[] = "credentials.role";
	const char *had = run_recall(r, key), *was;
	char boot[64], now[256];

	if (file_read_line(run_files(r), "/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) < 0)
		(void) text_format(boot, sizeof(boot), "-");
	was = had ? strchr(had, ' ') : NULL;
	if (was && strncmp(had, boot, strlen(boot)) == 0 && had + strlen(boot) == was) {
		(void) text_format(ret_was, size, "%s", was + 1);
		return strcmp(was + 1, role) != 0;
	}
	(void) text_format(now, sizeof(now), "%s %s", boot, role);
	run_remember(r, key, now);
	return false;
}

/* ---- the three answers, last first ---- */

static void on_set(struct run *r, const struct credentials_said *said)
{
	const struct state *s = run_state(r);
	int64_t now = (int64_t) (run_realtime(r) / USEC_PER_SEC);
	int64_t expires = said->expires ? (int64_t) said->expires - now : 0;
	struct observation *o;
	struct clock_said clock;
	enum outcome outcome = OUTCOME_OK;
	char was[128];

	node_clock(run_node(r), run_now(r), &clock);
	if (strcmp(said->code, "Success") != 0 || !said->complete)
		outcome = OUTCOME_DENIED;
	else if (said->expires && expires < -expired_for_sure_s)
		outcome = clock.sound == YES ? OUTCOME_EXPIRED : OUTCOME_UNKNOWN;
	else if (was_replaced(r, s->role, was, sizeof(was)))
		outcome = OUTCOME_FOREIGN;
	o = observe(r, outcome, 200);
	if (outcome == OUTCOME_FOREIGN)
		observation_text(o, "was", "%s", was);
	if (outcome == OUTCOME_DENIED)
		observation_text(o, "credentials_code", "%s",
		                 strcmp(said->code, "Success") == 0 ? "Success without keys"
		                                                    : said->code);
	if (said->expires && outcome != OUTCOME_DENIED)
		observation_number(o, "expires_s", expires);
	if (said->updated && (int64_t) said->updated < now)
		observation_number(o, "updated_s", now - (int64_t) said->updated);
	if (outcome == OUTCOME_UNKNOWN) {
		observation_detail(
			o, "cannot tell: Expiration is past by a clock that nobody vouches for");
		end(r, o);
		return;
	}
	conclude(r, o);
}

static void on_credentials(struct run *r, const struct imds_reply *reply, uintptr_t tag)
{
	struct credentials_said said;
	int status = status_of(r, reply);

	if (status == 0)
		return;
	if (status == 404)
		conclude(r, observe(r, OUTCOME_ABSENT, 404));
	else if (credentials_parse(reply->http.body, reply->http.body_len, &said, NULL) < 0)
		end_unknown(r, OUTCOME_UNKNOWN,
		            "cannot tell: what metadata gives for the role are no credentials");
	else
		on_set(r, &said);
}

static void without_role(struct run *r)
{
	const struct state *s = run_state(r);

	if (s->info_status == 404)
		conclude(r, observe(r, OUTCOME_ABSENT, 404));
	else
		conclude(r, observe(r, OUTCOME_FAILED, 200));
}

static void on_roles(struct run *r, const struct imds_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	int status = status_of(r, reply);
	char path[sizeof(roles_path) + sizeof(s->role)];
	struct node *n;

	if (status == 0)
		return;
	if (status == 404 || reply->http.body_len == 0) {
		without_role(r);
		return;
	}
	if (role_parse(reply->http.body, reply->http.body_len, s->role, sizeof(s->role)) < 0) {
		end_unknown(r, OUTCOME_UNKNOWN,
		            "cannot tell: what metadata lists for roles is no role's name");
		return;
	}
	n = run_learn(r);
	(void) text_format(n->role, sizeof(n->role), "%s", s->role);
	(void) text_format(path, sizeof(path), "%s%s", roles_path, s->role);
	ask_next(r, path, on_credentials);
}

static void on_info(struct run *r, const struct imds_reply *reply, uintptr_t tag)
{
	struct state *s = run_state(r);
	struct credentials_said said;
	int status = status_of(r, reply);

	if (status == 0)
		return;
	s->info_status = status;
	if (status == 200) {
		if (credentials_parse(reply->http.body, reply->http.body_len, &said, NULL) < 0 ||
		    !said.code[0]) {
			end_unknown(r, OUTCOME_UNKNOWN,
			            "cannot tell: what metadata gives for iam/info is not that");
			return;
		}
		(void) text_format(s->info_code, sizeof(s->info_code), "%s", said.code);
		if (strcmp(said.code, "Success") != 0) {
			conclude(r, observe(r, OUTCOME_FAILED, 200));
			return;
		}
	}
	ask_next(r, roles_path, on_roles);
}

static int start(struct run *r)
{
	if (!run_node(r)->metadata_answers) {
		end_unknown(r, OUTCOME_UNKNOWN, "cannot tell: metadata does not answer");
		return 0;
	}
	return ask(r, info_path, on_info);
}

/* ---- the judgement ---- */

static enum code judge(const struct observation *o, struct words *ret)
{
	enum code c = CODE_NONE;

	if (o->outcome == OUTCOME_ABSENT)
		c = evidence_get_text(o, "role")[0] ? CODE_CredentialsMissing
		                                    : CODE_InstanceProfileMissing;
	else if (o->outcome == OUTCOME_FAILED)
		c = CODE_InstanceProfileInvalid;
	else if (o->outcome == OUTCOME_DENIED)
		c = CODE_CredentialsMissing;
	else if (o->outcome == OUTCOME_EXPIRED)
		c = CODE_CredentialsExpired;
	else if (o->outcome == OUTCOME_FOREIGN)
		c = CODE_RoleReplaced;
	if (c != CODE_NONE)
		describe(o, ret->summary, sizeof(ret->summary));
	return c;
}

const struct probe probe_credentials = {
	.name = "credentials",
	.what = "the instance profile, its role and the role's credentials, as metadata gives them",
	.layer = LAYER_CREDENTIALS,
	.every = 60 * USEC_PER_SEC, /* three requests a look, of the 60 a minute that all share */
	.retry = 5 * USEC_PER_SEC,
	.timeout = 10 * USEC_PER_SEC,
	.grace = 120 * USEC_PER_SEC, /* EC2 hands out a role some seconds after launch */
	.after = "imds",
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.needs_ec2 = true,
	.start = start,
	.judge = judge,
	.codes = {CODE_InstanceProfileMissing, CODE_InstanceProfileInvalid, CODE_CredentialsMissing,
                  CODE_CredentialsExpired, CODE_RoleReplaced, CODE_NONE},
};
