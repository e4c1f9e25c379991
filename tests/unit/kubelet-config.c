/* SPDX-License-Identifier: Apache-2.0 */
/* kubelet's configuration, in the order in which kubelet itself takes its parts. */
#include <ftw.h>

#include "../tap.h"
#include "kubelet-config.h"
#include "yamldoc.h"

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

/* YAML as what kubelet makes of it: "" when it is refused. */
static bool is_json(const char *yaml, const char *want)
{
	char *text = NULL;
	json_t *j = NULL;
	bool same;

	if (yamldoc_json(yaml, strlen(yaml), &j) == 0)
		text = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY);
	same = strcmp(text ? text : "", want) == 0;
	if (!same)
		printf("# \"%s\", not \"%s\"\n", text ? text : "", want);
	free(text);
	json_decref(j);
	return same;
}

static void test_yaml(void)
{
	char deep[100];

	ok(is_json("a: 1\nb: [x, -2, \"3\", true, False, ~, null, 1.5, 0x1]\nc:\n",
	           "{\"a\":1,\"b\":[\"x\",-2,\"3\",true,false,null,null,\"1.5\",\"0x1\"],"
	           "\"c\":null}"));
	ok(is_json("{\"maxPods\": 29, \"x\": {\"y\": \"z\"}}",
	           "{\"maxPods\":29,\"x\":{\"y\":\"z\"}}"));
	ok(is_json("5Mi", "\"5Mi\"") && is_json("123456789012345678", "123456789012345678"));
	ok(is_json("1234567890123456789", "\"1234567890123456789\"") && is_json("-", "[null]"));
	ok(is_json("a: &x [1]\nb: *x\n", "{\"a\":[1],\"b\":[1]}"));
	ok(is_json("a: 1\n---\nb: 2\n", "{\"a\":1}"));
	/* refused: what holds itself, is too much or too deep, has a key that is none, or is none
	 */
	ok(is_json("&a [*a]", ""));
	ok(is_json("a: &a [x,x,x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n"
	           "c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n",
	           ""));
	memset(deep, '[', 33);
	memset(deep + 33, ']', 33);
	deep[66] = 0;
	ok(is_json(deep, ""));
	ok(is_json("? [a]\n: b\n", "") && is_json("\"\\0\": 1", "") && is_json("a: [", "") &&
	   is_json("", "") && is_json("\xff", "") && is_json("*x", ""));
}

static bool argument_is(const char *name, const char *want, const char *where)
{
	struct files *f = NULL;
	char value[16] = "?";
	const char *from;

	if (files_new(&f, root) < 0)
		return false;
	from = kubelet_argument(f, name, value, sizeof(value));
	files_free(f);
	if (!from)
		return !where;
	return where && strstr(from, where) && strcmp(value, want) == 0;
}

static void test_arguments(void)
{
	static const char dir[] = "/etc/systemd/system/kubelet.service.d/";
	char path[128];

	ok(argument_is("--max-pods", "", NULL));
	(void) text_format(path, sizeof(path), "%s10-kubelet-args.conf", dir);
	put(path, "[Service]\nEnvironment='KUBELET_ARGS=--node-ip=10.0.1.5 --max-pods=17'\n");
	ok(argument_is("--max-pods", "17", "10-kubelet-args.conf"));
	(void) text_format(path, sizeof(path), "%s30-kubelet-extra-args.conf", dir);
	put(path, "[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--max-pods 20 --max-pods=30'\n");
	ok(argument_is("--max-pods", "30", "30-kubelet-extra-args.conf"));
	ok(argument_is("--node-ip", "10.0.1.5", "10-kubelet-args.conf"));
	ok(argument_is("--max", "", NULL) && argument_is("--node", "", NULL));
	put("/etc/eks/kubelet/environment",
	    "NODEADM_KUBELET_ARGS=\"--max-pods-x=1 --resolv-conf= --node-ip=0123456789abcdef\"\n");
	ok(argument_is("--resolv-conf", "", "environment"));
	ok(argument_is("--max-pods", "30", "30-kubelet-extra-args.conf"));
	ok(argument_is("--node-ip", "10.0.1.5", "10-kubelet-args.conf")); /* one that fits */
}

int main(void)
{
	test_yaml();
	(void) text_format(root, sizeof(root), "/tmp/kubelet-config-XXXXXX");
	if (!mkdtemp(root))
		return 1;
	test_arguments();
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
	put("/etc/kubernetes/kubelet/config", "---\nkind: KubeletConfiguration\nn: 7\n");
	ok(reads("kubelet-config.json=9 "));
	put("/etc/kubernetes/kubelet/kubelet-config.json", "n: 9\n"); /* that one has to be JSON */
	ok(reads("config=7 "));
	put("/etc/kubernetes/kubelet/config", "{\"n\": 8}"); /* which is YAML */
	ok(reads("config=8 "));
	put("/etc/kubernetes/kubelet/config", "n: 7: 8\n");
	ok(!reads("") && !seen[0]);
	put("/etc/kubernetes/kubelet/config", "- n\n");
	ok(!reads("") && !seen[0]);
	(void) nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return done();
}
