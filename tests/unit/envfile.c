/* SPDX-License-Identifier: Apache-2.0 */
#include "envfile.h"
#include "../tap.h"

static char seen[8192];

static void note(const char *name, const char *value, void *userdata)
{
	(void) text_append(seen, sizeof(seen), "%s[%s]", name, value);
}

static bool gives(const char *text, const char *expected)
{
	seen[0] = 0;
	envfile_parse(text, strlen(text), note, NULL);
	if (strcmp(seen, expected) == 0)
		return true;
	printf("# %s\n", seen);
	return false;
}

int main(void)
{
	char big[ENVFILE_VALUE_MAX + 16] = "A=";

	ok(gives("", ""));
	ok(gives("A=b", "A[b]"));
	ok(gives("A=b\nC=d e \n", "A[b]C[d e]"));
	ok(gives(" A = b", "A[b]"));
	ok(gives("A=\nB=", "A[]B[]"));
	ok(gives("# A=b\n;C=d\nE=f", "E[f]"));
	ok(gives("# goes on \\\nA=b\nC=d", "C[d]"));
	ok(gives("A=\"b # c\" \nC='d \\e'", "A[b # c]C[d \\e]"));
	ok(gives("A=\"b\\\"c\\\\d\\e\"", "A[b\"c\\d\\e]"));
	ok(gives("A=one\\\ntwo\nB=\"x\ny\"", "A[onetwo]B[x\ny]"));
	ok(gives("A=' b '", "A[ b ]"));
	ok(gives("A=a'b'\"c\"\\ ", "A[abc ]"));
	ok(gives("no assignment\nexport A=b\n=c\nD=e", "D[e]"));
	ok(gives("A=\"open\nB=c", "A[open\nB=c]"));
	ok(gives("A=b\\", "A[b]"));
	memset(big + 2, 'x', sizeof(big) - 8);
	(void) strcat(big, "\nB=c");
	ok(gives(big, "B[c]")); /* too long to keep: not half of it */
	return done();
}
