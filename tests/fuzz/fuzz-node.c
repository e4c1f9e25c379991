/* SPDX-License-Identifier: Apache-2.0 */
/* What the API server answers, and the file of kubelet's arguments. The first byte says which. */
#define probe_identity tested_identity
#include "../../probes/identity.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void shown(const char *s, size_t size)
{
	size_t n = strnlen(s, size);

	if (n == size || !text_is_clean(s, n) || strpbrk(s, "\r\n\t"))
		abort();
}

static void node(const char *text, size_t len)
{
	struct observation o = {.outcome = OUTCOME_FAILED, .aspect = "ready"};
	struct node_object n;
	struct words w;

	if (node_object_parse(text, len, &n) < 0)
		return;
	shown(n.ready, sizeof(n.ready));
	shown(n.reason, sizeof(n.reason));
	shown(n.message, sizeof(n.message));
	shown(n.taints, sizeof(n.taints));
	shown(n.provider_id, sizeof(n.provider_id));
	observation_text(&o, "reason", "%s", n.reason);
	add_message(&o, n.message);
	if (judge(&o, &w) != CODE_NodeNotReady)
		abort();
	shown(w.summary, sizeof(w.summary));
}

static void refusal(const char *text, size_t len)
{
	struct observation o = {.outcome = OUTCOME_DENIED, .code = 403};
	struct words w;
	char user[72];

	if (status_user_parse(text, len, user, sizeof(user)) < 0)
		return;
	shown(user, sizeof(user));
	observation_text(&o, "identity", "%s", user);
	if (judge(&o, &w) != CODE_NONE)
		shown(w.summary, sizeof(w.summary));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *) data + 1;
	char name[64];

	if (size == 0)
		return 0;
	if (data[0] == 'n')
		node(text, size - 1);
	else if (data[0] == 's')
		refusal(text, size - 1);
	else if (override_parse(text, size - 1, name, sizeof(name)) &&
	         (!name[0] || name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-")]))
		abort();
	return 0;
}
