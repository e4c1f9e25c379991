/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>

#include "aws-query.h"

/* Where "<name>" or "</name>" begins, at or after from. */
static const char *find_tag(const char *from, const char *end, const char *slash, const char *name,
                            size_t *ret_len)
{
	char tag[72];
	size_t n = text_format(tag, sizeof(tag), "<%s%s>", slash, name);

	*ret_len = n;
	return memmem(from, (size_t) (end - from), tag, n);
}

bool aws_xml_text(const char *text, size_t len, const char *tag, const char **ret, size_t *ret_len)
{
	const char *end = text + len, *open, *close;
	size_t n;

	open = find_tag(text, end, "", tag, &n);
	if (!open)
		return false;
	open += n;
	close = find_tag(open, end, "/", tag, &n);
	if (!close)
		return false;
	*ret = open;
	*ret_len = (size_t) (close - open);
	return true;
}

static bool copy_word(char *dst, size_t size, const char *src, size_t len, const char *also)
{
	if (len == 0 || len >= size)
		return false;
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char) src[i]) && (!src[i] || !strchr(also, src[i])))
			return false;
	memcpy(dst, src, len);
	dst[len] = 0;
	return true;
}

int aws_error_parse(const char *text, size_t len, struct aws_error *ret)
{
	const char *error, *code, *message = "";
	size_t error_len, code_len, message_len = 0;
	struct aws_error e = {0};

	if (!aws_xml_text(text, len, "Error", &error, &error_len) ||
	    !aws_xml_text(error, error_len, "Code", &code, &code_len) ||
	    !copy_word(e.code, sizeof(e.code), code, code_len, "."))
		return -EBADMSG;
	(void) aws_xml_text(error, error_len, "Message", &message, &message_len);
	e.message = message;
	e.message_len = message_len;
	*ret = e;
	return 0;
}

bool aws_error_says(const struct aws_error *e, const char *words)
{
	return memmem(e->message, e->message_len, words, strlen(words));
}

/* What IAM allows in a role's name beside letters and digits. */
static const char role_also[] = "_+=,.@-";

int role_parse(const char *text, size_t len, char *ret, size_t size)
{
	size_t n = 0;

	while (n < len && text[n] != '\n' && text[n] != '\r')
		n++;
	if (n >= size)
		return -ENOSPC;
	return copy_word(ret, size, text, n, role_also) ? 0 : -EBADMSG;
}

/* "arn:aws:sts::111122223333:assumed-role/ROLE/SESSION": an assumed role has no path here. */
static bool role_of(const char *arn, size_t len, char *dst, size_t size)
{
	static const char kind[] = ":assumed-role/";
	const char *end = arn + len, *p = memmem(arn, len, kind, sizeof(kind) - 1), *slash;

	if (p) {
		p += sizeof(kind) - 1;
		slash = memchr(p, '/', (size_t) (end - p));
		end = slash ? slash : end;
	} else {
		for (p = end; p > arn && p[-1] != '/' && p[-1] != ':'; p--)
			;
	}
	return copy_word(dst, size, p, (size_t) (end - p), role_also);
}

int caller_identity_parse(const char *text, size_t len, struct caller_identity *ret)
{
	const char *result, *account, *arn;
	size_t result_len, account_len, arn_len;
	struct caller_identity c = {0};

	if (!aws_xml_text(text, len, "GetCallerIdentityResult", &result, &result_len) ||
	    !aws_xml_text(result, result_len, "Account", &account, &account_len) ||
	    !aws_xml_text(result, result_len, "Arn", &arn, &arn_len))
		return -EBADMSG;
	if (account_len != 12 ||
	    !copy_word(c.account, sizeof(c.account), account, account_len, "") ||
	    strspn(c.account, "0123456789") != 12 || !role_of(arn, arn_len, c.role, sizeof(c.role)))
		return -EBADMSG;
	*ret = c;
	return 0;
}
