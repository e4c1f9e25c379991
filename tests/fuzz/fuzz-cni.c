/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the files hold: containerd's configuration, kubelet's arguments and the network
 * configuration are all these same bytes. */
#include "../fakerun.h"

#include "../../probes/cni_config.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run *r = calloc(1, sizeof(*r));
	struct files *f = NULL;
	struct words w;

	/* any directory without an /opt in it */
	if (r && files_new(&f, "/proc/self/fdinfo") == 0) {
		r->files = f;
		r->text = data;
		r->text_len = size;
		r->state = calloc(1, tested_cni_config.state_size);
		if (r->state) {
			(void) find_dirs(r, &((struct state *) r->state)->dirs);
			look_at_config(r, size % 2 ? "/x.conflist" : "/x.conf");
		}
		for (size_t i = 0; i < r->n_seen; i++)
			if (r->seen[i].outcome == OUTCOME_MALFORMED &&
			    tested_cni_config.judge(&r->seen[i], &w) != CODE_CniConfigInvalid)
				abort();
		for (size_t i = 0; i < r->n_reads; i++)
			free(r->reads[i]);
		fake_free(r);
	}
	files_free(f);
	free(r);
	return 0;
}
