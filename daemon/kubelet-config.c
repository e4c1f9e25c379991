/* SPDX-License-Identifier: Apache-2.0 */
#include "kubelet-config.h"
#include "yamldoc.h"

enum { CONFIG_BYTES = 1 << 20, PATH_BYTES = NAME_BYTES_MAX * 2 };

static const char base[] = "/etc/kubernetes/kubelet/config.json",
		  drop_ins[] = "/etc/kubernetes/kubelet/config.json.d",
		  older[] = "/etc/kubernetes/kubelet/kubelet-config.json",
		  yaml[] = "/etc/kubernetes/kubelet/config";

static bool read_part(const struct files *f, const char *path, kubelet_config_t part,
                      void *userdata)
{
	_cleanup_(freep) char *text = NULL;
	json_t *j = NULL;
	size_t len;
	bool good;

	if (file_read(f, path, CONFIG_BYTES, &text, &len) < 0)
		return false;
	if (path == yaml)
		(void) yamldoc_json(text, len, &j);
	else
		j = json_loadb(text, len, 0, NULL);
	good = json_is_object(j);
	if (good)
		part(j, path, userdata);
	json_decref(j);
	return good;
}

static void read_drop_ins(const struct files *f, kubelet_config_t part, void *userdata)
{
	_cleanup_(freep) struct names *names = malloc(sizeof(*names));
	char path[PATH_BYTES];

	if (!names || file_list(f, drop_ins, names) < 0)
		return;
	for (size_t i = 0; i < names->n; i++) {
		const char *dot = strrchr(names->name[i], '.');

		if (!dot || strcmp(dot, ".conf") != 0)
			continue;
		(void) text_format(path, sizeof(path), "%s/%s", drop_ins, names->name[i]);
		(void) read_part(f, path, part, userdata);
	}
}

bool kubelet_config_read(const struct files *f, kubelet_config_t part, void *userdata)
{
	if (!read_part(f, base, part, userdata))
		return read_part(f, older, part, userdata) || read_part(f, yaml, part, userdata);
	read_drop_ins(f, part, userdata);
	return true;
}

/* ---- its arguments ---- */

static bool last_value(const char *text, const char *name, char *ret, size_t size)
{
	size_t n = strlen(name);
	bool found = false;

	for (const char *at = strstr(text, name); at; at = strstr(at + 1, name)) {
		const char *value = at + n;
		size_t len;

		if (*value != '=' && *value != ' ')
			continue;
		len = strcspn(++value, " \t\r\n\"'\\");
		if (len >= size)
			continue;
		memcpy(ret, value, len);
		ret[len] = 0;
		found = true;
	}
	return found;
}

const char *kubelet_argument(const struct files *f, const char *name, char *ret, size_t size)
{
	/* in the order in which they come on its command line */
	static const char *const paths[] = {
		"/etc/systemd/system/kubelet.service.d/10-kubelet-args.conf",
		"/etc/systemd/system/kubelet.service.d/30-kubelet-extra-args.conf",
		"/etc/eks/kubelet/environment"};
	const char *where = NULL;

	for (size_t i = 0; i < ELEMENTS(paths); i++) {
		_cleanup_(freep) char *text = NULL;
		size_t len;

		if (file_read(f, paths[i], CONFIG_BYTES, &text, &len) == 0 &&
		    last_value(text, name, ret, size))
			where = paths[i];
	}
	return where;
}
