/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "../tap.h"
#include "toml.h"

struct seen {
	char text[2048];
};

static void note(const char *path, const char *value, size_t index, void *userdata)
{
	struct seen *s = userdata;
	char p[512];

	(void) text_format(p, sizeof(p), "%s", path);
	for (char *c = p; *c; c++)
		if (*c == '\x1f')
			*c = '/';
	(void) text_append(s->text, sizeof(s->text), "%s[%zu]=%s;", p, index, value);
}

static size_t line;

static int parse(const char *text, struct seen *s)
{
	s->text[0] = 0;
	line = 0;
	return toml_parse(text, strlen(text), note, s, &line);
}

static bool gives(const char *text, const char *expected)
{
	static struct seen s;
	int r = parse(text, &s);

	if (r == 0 && strcmp(s.text, expected) == 0)
		return true;
	printf("# %d line %zu: %s\n", r, line, s.text);
	return false;
}

static bool fails(const char *text, size_t at)
{
	static struct seen s;

	return parse(text, &s) == -EBADMSG && line == at;
}

int main(void)
{
	char deep[256];

	ok(gives("", ""));
	ok(gives("version = 2\nroot = \"/var\" # comment\n", "version[0]=2;root[0]=/var;"));
	ok(gives("[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/opt/cni/bin\"\r\n"
	         "conf_dir = '/etc/cni/net.d'",
	         "plugins/io.containerd.grpc.v1.cri/cni/bin_dir[0]=/opt/cni/bin;"
	         "plugins/io.containerd.grpc.v1.cri/cni/conf_dir[0]=/etc/cni/net.d;"));
	ok(gives("[plugins]\n[plugins.'io.containerd.cri.v1.runtime']\ncni.bin_dirs = [\n  '/a', # "
	         "one\n  \"/b\",\n]\n",
	         "plugins/io.containerd.cri.v1.runtime/cni/bin_dirs[0]=/a;"
	         "plugins/io.containerd.cri.v1.runtime/cni/bin_dirs[1]=/b;"));
	ok(gives("a . b . 'c' = true\n\"q x\" = -1_000\nh = 0xFF", "a/b/c[0]=true;q x[0]=-1_000;"
	                                                           "h[0]=0xFF;"));
	ok(gives("f = 1.5\nd = 1979-05-27 07:32:00\nt = 07:32:00\ni = -inf\nn = nan\nz = 1",
	         "z[0]=1;"));
	ok(gives("t = { a = \"1\", b = { c = '2' } }\nk = [[1, 2], ['x']]",
	         "t/a[0]=1;t/b/c[0]=2;k[0]=1;k[1]=2;k[0]=x;"));
	ok(gives("[[list]]\na = 1\n[[list]]\na = 2", "list/a[0]=1;list/a[0]=2;"));
	ok(gives("s = \"a\\t\\\"\\u00e9\\U0001F600\\\\\"",
	         "s[0]=a\t\"\xC3\xA9\xF0\x9F\x98\x80\\;"));
	ok(gives("s = '\\n'", "s[0]=\\n;"));
	ok(gives("s = \"\"\"\none \\\n   two\"\"\"\"\nz = 1", "s[0]=one two\";z[0]=1;"));
	ok(gives("s = '''\nit''s\n'''\nz=2", "s[0]=it''s\n;z[0]=2;"));
	ok(gives("s = \"\\u0000\"\nz = 1", "z[0]=1;")); /* cannot be a C string */
	ok(gives("\xEF\xBB\xBF"
	         "a = 1",
	         "a[0]=1;"));
	ok(gives("imports = [\"/etc/containerd/config.d/*.toml\"]",
	         "imports[0]=/etc/containerd/config.d/*.toml;"));

	ok(fails("a = 1\nb\n", 2));
	ok(fails("a = \"open\nb = 1", 1));
	ok(fails("a = [1,\n2\n", 3));
	ok(fails("[a\nb = 1", 1));
	ok(fails("[[a]\n", 1));
	ok(fails("a = bare", 1));
	ok(fails("a = 1 b = 2", 1));
	ok(fails("a = \"\\q\"", 1));
	ok(fails("a = \"\\ud800\"", 1));
	ok(fails("= 1", 1));
	ok(fails("a = \"\"\"\n\n", 3));
	memset(deep, '[', sizeof(deep) - 1);
	deep[0] = 'a';
	deep[1] = '=';
	deep[sizeof(deep) - 1] = 0;
	ok(fails(deep, 1));
	return done();
}
