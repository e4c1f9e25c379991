/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over its corpus, so that every crash ever found stays a unit test, without
 * libFuzzer. The target's name is the program's own: build/.../fuzz-toml reads corpus/toml. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 20 };

/* The copy has the input's very size: a byte read past its end is seen by the sanitizer. */
static int feed(const char *path)
{
	static uint8_t buf[INPUT_MAX];
	uint8_t *exact;
	size_t len;
	FILE *f;

	f = fopen(path, "re");
	if (!f)
		return -1;
	len = fread(buf, 1, sizeof(buf), f);
	(void) fclose(f);
	exact = malloc(len ? len : 1);
	if (!exact)
		return -1;
	memcpy(exact, buf, len);
	(void) LLVMFuzzerTestOneInput(exact, len);
	free(exact);
	return 0;
}

static int seen(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

int main(int argc, char *argv[])
{
	const char *name = strrchr(argv[0], '/');
	struct dirent **list = NULL;
	char dir[512], path[1024];
	int n, bad = 0;

	name = name ? name + 1 : argv[0];
	if (strncmp(name, "fuzz-", strlen("fuzz-")) == 0)
		name += strlen("fuzz-");
	(void) snprintf(dir, sizeof(dir), "tests/fuzz/corpus/%s", name);
	n = scandir(dir, &list, seen, alphasort);
	if (n <= 0) {
		printf("not ok 1 - %s holds inputs\n1..1\n", dir);
		free(list);
		return 1;
	}
	for (int i = 0; i < n; i++) {
		(void) snprintf(path, sizeof(path), "%s/%s", dir, list[i]->d_name);
		/* Before the call: a crash then shows which input it was. */
		printf("# %s\n", path);
		(void) fflush(stdout);
		if (feed(path) < 0)
			bad++, printf("not ");
		printf("ok %d - %s\n", i + 1, list[i]->d_name);
		free(list[i]);
	}
	free(list);
	printf("1..%d\n", n);
	return bad != 0;
}
