/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the files hold: those of /proc, fstab and the kubelet's configuration are all these same
 * bytes. */
#define run_asked          fake_asked
#define run_timer          fake_timer
#define run_journal        fake_journal
#define run_from_monotonic fake_from_monotonic
#define ethtool_read       fake_ethtool
#define probe_host         tested_host

#include "../fakerun.h"

#include "../../probes/host.c"

enum code fake_asked(const struct run *r)
{
	return CODE_NONE;
}

int fake_timer(struct run *r, usec_t after, run_timer_t done_cb, uintptr_t tag)
{
	return -EOPNOTSUPP;
}

usec_t fake_from_monotonic(const struct run *r, usec_t monotonic)
{
	return monotonic;
}

int fake_journal(struct run *r, const struct journal_query *q,
                 char cursor[static JOURNAL_CURSOR_MAX], run_line_t line, run_lines_t done_cb,
                 uintptr_t tag)
{
	return -EOPNOTSUPP;
}

int fake_ethtool(const char *interface, ethtool_counter_t each, void *userdata)
{
	return -EOPNOTSUPP;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_one_line(const char *line)
{
	char name[NAME_BYTES];
	struct mount m;

	/* a block of its own: the mount is read by length, not to a NUL */
	(void) read_mount(line, strlen(line), &m);
	(void) read_denial(line, name);
	(void) line_of(line, 1000);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct run *r = calloc(1, sizeof(*r));
	char *line = malloc(size + 1);
	struct files *f = NULL;
	struct words words;

	if (r && line && files_new(&f, "/proc/self/fdinfo") == 0) {
		memcpy(line, data, size);
		line[size] = 0;
		read_one_line(line);
		r->files = f;
		r->text = data;
		r->text_len = size;
		r->net_error = -EPERM;
		r->now = USEC_PER_SEC;
		(void) fake_run(r, &tested_host);
		r->now += 15 * USEC_PER_SEC;
		(void) fake_run(r, &tested_host);
		for (size_t i = 0; i < r->n_seen; i++)
			if (tested_host.judge(&r->seen[i], &words) != CODE_NONE &&
			    !words.summary[0])
				abort();
		fake_free(r);
	}
	files_free(f);
	free(line);
	free(r);
	return 0;
}
