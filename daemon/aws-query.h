/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Bodies with which the query APIs of AWS (EC2, STS) answer, and names in them. Pure. */

#include "util.h"

/* The text between <tag> and </tag>, as it stands there, of the first such element; it points into
 * text. Elements with attributes are not looked for: these APIs have none. */
bool aws_xml_text(const char *text, size_t len, const char *tag, const char **ret, size_t *ret_len);

struct aws_error {
	char code[64];       /* letters, digits, dots: "UnauthorizedOperation" */
	const char *message; /* into the text, not terminated. It may quote the request with its
	                        session token: to be searched, never to be shown */
	size_t message_len;
};

/* EC2's <Response><Errors><Error> and STS' <ErrorResponse><Error>. -EBADMSG when it is neither. */
int aws_error_parse(const char *text, size_t len, struct aws_error *ret);
bool aws_error_says(const struct aws_error *e, const char *words);

/* The first line of a listing of roles, when it is a name that IAM allows: safe in a path and on a
 * terminal. -EBADMSG, -ENOSPC. */
int role_parse(const char *text, size_t len, char *ret, size_t size);

struct caller_identity {
	char account[16];
	char role[128]; /* of an assumed role, without its path; else the last part of the ARN */
};

/* GetCallerIdentityResponse. -EBADMSG. */
int caller_identity_parse(const char *text, size_t len, struct caller_identity *ret);
