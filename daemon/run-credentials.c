/* SPDX-License-Identifier: Apache-2.0 */
/* The credentials of the node's role, for probes that sign: metadata's list of roles where the role
 * is not known yet, then its set. Made of the calls that any probe has. */
#include "probe.h"

enum { SET_BODY_MAX = 16384 };

static const char roles_path[] = "/latest/meta-data/iam/security-credentials/";

const char *credentials_end_text(enum credentials_end e)
{
	static const char *const texts[] = {
		[CREDENTIALS_HERE] = "",
		[CREDENTIALS_NONE] = "cannot tell: no credentials",
		[CREDENTIALS_DISABLED] = "AWS_EC2_METADATA_DISABLED is true",
		[CREDENTIALS_HELD_BACK] = "cannot tell yet: the budget for metadata is spent",
		[CREDENTIALS_SILENT] = "cannot tell: metadata does not answer",
		[CREDENTIALS_FAILED] = "cannot look: out of memory",
	};

	return texts[e];
}

static enum credentials_end end_of(const struct imds_reply *reply)
{
	if (reply->disabled)
		return CREDENTIALS_DISABLED;
	if (reply->throttled)
		return CREDENTIALS_HELD_BACK;
	if (reply->http.outcome != OUTCOME_OK || reply->step != IMDS_GET)
		return CREDENTIALS_SILENT;
	return reply->http.code == 200 ? CREDENTIALS_HERE : CREDENTIALS_NONE;
}

static void on_set(struct run *r, const struct imds_reply *reply, uintptr_t tag)
{
	struct credentials_query *q = (struct credentials_query *) tag;
	enum credentials_end end = end_of(reply);
	struct credentials_said said;

	if (end == CREDENTIALS_HERE && (credentials_parse(reply->http.body, reply->http.body_len,
	                                                  &said, &q->credentials) < 0 ||
	                                strcmp(said.code, "Success") != 0 || !said.complete))
		end = CREDENTIALS_NONE;
	q->done(r, end, &q->credentials);
}

static int ask_set(struct run *r, struct credentials_query *q, const char *role)
{
	char path[sizeof(roles_path) + sizeof(q->credentials.role)];

	(void) text_format(q->credentials.role, sizeof(q->credentials.role), "%s", role);
	(void) text_format(path, sizeof(path), "%s%s", roles_path, q->credentials.role);
	/* not spare: who signs does so seldom, and need not wait */
	return run_imds(r, path, SET_BODY_MAX, false, on_set, (uintptr_t) q);
}

static void on_roles(struct run *r, const struct imds_reply *reply, uintptr_t tag)
{
	struct credentials_query *q = (struct credentials_query *) tag;
	enum credentials_end end = end_of(reply);
	char role[sizeof(q->credentials.role)];

	if (end == CREDENTIALS_HERE &&
	    role_parse(reply->http.body, reply->http.body_len, role, sizeof(role)) < 0)
		end = CREDENTIALS_NONE;
	if (end == CREDENTIALS_HERE && ask_set(r, q, role) < 0)
		end = CREDENTIALS_FAILED;
	if (end != CREDENTIALS_HERE)
		q->done(r, end, &q->credentials);
}

int run_credentials(struct run *r, struct credentials_query *q, run_credentials_t done)
{
	const char *role = run_node(r)->role;

	q->done = done;
	if (role[0])
		return ask_set(r, q, role);
	return run_imds(r, roles_path, SET_BODY_MAX, false, on_roles, (uintptr_t) q);
}
