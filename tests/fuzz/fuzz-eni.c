/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata's list of MACs and the values below each. */
#include "../fakerun.h"

#include "../../probes/eni.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct memory *m)
{
	for (size_t i = 0; i < m->n; i++) {
		const struct entry *e = &m->entries[i];

		if (strlen(e->mac) != MAC_TEXT_MAX - 1 ||
		    strspn(e->mac, "0123456789abcdef:") != MAC_TEXT_MAX - 1 ||
		    !text_is_clean(e->eni_id, strlen(e->eni_id)) ||
		    !text_is_clean(e->subnet_id, strlen(e->subnet_id)) || e->device < -1 ||
		    e->device > 1023 || e->n_ipv4s < 0 || find_entry(m->entries, i, e->mac))
			abort();
	}
}

/* The list, then what stands after the first NUL as the value of each key. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct memory *m = calloc(1, sizeof(*m));
	char *body = malloc(size + 2);
	const char *value;

	if (m && body) {
		memcpy(body, data, size);
		body[size] = body[size + 1] = 0;
		value = body + strlen(body) + 1;
		(void) take_list(m, body, USEC_PER_SEC);
		check(m);
		for (size_t i = 0; i < m->n; i++)
			for (int k = 0; k < KEY_MAX; k++)
				take_value(&m->entries[i], (enum key) k, k % 3 ? value : NULL);
		(void) take_list(m, body, 2 * USEC_PER_SEC);
		check(m);
	}
	free(body);
	free(m);
	return 0;
}
