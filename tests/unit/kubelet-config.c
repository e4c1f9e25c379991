/* SPDX-License-Identifier: Apache-2.0 */
/* kubelet's configuration, in the order in which kubelet itself takes its parts. */
#include <ftw.h>

#include "../tap.h"
#include "kubelet-config.h"

static char root[64], seen[512];

static void put(const char *path, const char *text)
{
	char full[256];
	FILE *f;

	(void) text_format(full, sizeof(full), "%s%s", root, path);
	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		(void) mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "we");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		ok(false, "cannot write %s", full);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

static void on_part(const json_t *part, const char *path, void *userdata)
{
	const char *name = strrchr(path, '/') + 1;

	(void) text_append(seen, sizeof(seen), "%s=%d ", name,
	                   (int) json_integer_value(json_object_get(part, "n")));
	ok(userdata == root);
}

static bool reads(const char *want)
{
	struct files *f = NULL;
	bool found;

	if (files_new(&f, root) < 0)
		return false;
	seen[0] = 0;
	found = kubelet_config_read(f, on_part, root);
	files_free(f);
	if (strcmp(seen, want) != 0)
		printf("# \"%s\", not \"%s\"\n", seen, want);
	return found && strcmp(seen, want) == 0;
}

int main(void)
{
	(void) text_format(root, sizeof(root), "/tmp/kubelet-config-XXXXXX");
	if (!mkdtemp(root))
		return 1;
	ok(!reads("") && !seen[0]);
	put("/etc/kubernetes/kubelet/config.json.d/10-a.conf", "{\"n\": 2}"); /* of nothing */
	ok(!reads("") && !seen[0]);
	put("/etc/kubernetes/kubelet/kubelet-config.json", "{\"n\": 9}");
	ok(reads("kubelet-config.json=9 "));
	put("/etc/kubernetes/kubelet/config.json", "{\"n\": 1}");
	put("/etc/kubernetes/kubelet/config.json.d/50-user.conf", "{\"n\": 3}");
	put("/etc/kubernetes/kubelet/config.json.d/40-nodeadm.txt", "{\"n\": 4}");
	put("/etc/kubernetes/kubelet/config.json.d/60-b.conf", "[1]");
	put("/etc/kubernetes/kubelet/config.json.d/70-c.conf", "{\"n\": ");
	ok(reads("config.json=1 10-a.conf=2 50-user.conf=3 "));
	put("/etc/kubernetes/kubelet/config.json", "nonsense");
	ok(reads("kubelet-config.json=9 "));
	(void) nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return done();
}
