/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fnmatch.h>

#include "containerd.h"

enum { CONFIG_BYTES = 1 << 20, IMPORTS_MAX = 16, IMPORTED_FILES_MAX = 32 };

struct reading {
	const struct containerd_reader *from;
	toml_value_t value;
	void *userdata;
	struct containerd_config config;
	char imports[IMPORTS_MAX][CONTAINERD_PATH_MAX];
	size_t n_imports, files_left;
	struct names names;
};

static void take(const char *path, const char *value, size_t index, void *userdata)
{
	struct reading *c = userdata;

	if (strcmp(path, "imports") != 0)
		c->value(path, value, index, c->userdata);
	else if (c->n_imports < IMPORTS_MAX)
		(void) text_format(c->imports[c->n_imports++], CONTAINERD_PATH_MAX, "%s", value);
}

static void read_one(struct reading *c, const char *path)
{
	const char *text;
	size_t len, line;
	int r;

	r = c->from->read(c->from->userdata, path, CONFIG_BYTES, &text, &len);
	if (r < 0 && r != -ENOENT && r != -ENOTDIR) {
		c->config.unreadable = -r;
		(void) text_format(c->config.unread, sizeof(c->config.unread), "%s", path);
	}
	if (r < 0)
		return;
	c->config.found = true;
	(void) toml_parse(text, len, take, c, &line);
}

/* Globs in the last part of the name, as drop-ins have them. */
static void read_import(struct reading *c, const char *pattern)
{
	static const char base[] = "/etc/containerd/";
	char path[CONTAINERD_PATH_MAX * 3], dir[CONTAINERD_PATH_MAX * 2];
	char *slash;

	(void) text_format(dir, sizeof(dir), "%s%s", pattern[0] == '/' ? "" : base, pattern);
	slash = strrchr(dir, '/');
	*slash = 0;
	if (file_list(c->from->files, dir[0] ? dir : "/", &c->names) < 0)
		return;
	for (size_t i = 0; i < c->names.n && c->files_left > 0; i++) {
		if (fnmatch(slash + 1, c->names.name[i], FNM_PERIOD) != 0)
			continue;
		(void) text_format(path, sizeof(path), "%s/%s", dir, c->names.name[i]);
		read_one(c, path);
		c->files_left--;
	}
}

int containerd_config_read(const struct containerd_reader *from, toml_value_t value, void *userdata,
                           struct containerd_config *ret)
{
	static const char *const files[] = {"/etc/containerd/config.toml",
	                                    "/etc/eks/containerd/containerd-config.toml"};
	_cleanup_(freep) struct reading *c = calloc(1, sizeof(*c));

	if (!c)
		return -ENOMEM;
	c->from = from;
	c->value = value;
	c->userdata = userdata;
	c->files_left = IMPORTED_FILES_MAX;
	for (size_t i = 0; i < ELEMENTS(files) && !c->config.found; i++)
		read_one(c, files[i]);
	/* An imported file may import; the list grows while it is walked, to a bound. */
	for (size_t i = 0; i < c->n_imports; i++)
		read_import(c, c->imports[i]);
	*ret = c->config;
	return 0;
}
