/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>

#include "cri.h"

/* Source: kubernetes/cri-api, runtime/v1/api.proto; v1alpha2 has the same fields. */
enum { CONTAINER_EXITED = 2 };
enum { LIST_FILTER = 1, FILTER_LABELS = 4, LIST_CONTAINERS = 1 };
enum { CONTAINER_ID = 1, CONTAINER_STATE = 6, CONTAINER_CREATED = 7 };
enum {
	STATUS = 1,
	STATUS_STATE = 3,
	STATUS_FINISHED = 6,
	STATUS_EXIT_CODE = 7,
	STATUS_REASON = 10,
};

static ssize_t put(uint8_t *dst, size_t size, size_t len, uint32_t number, const char *text)
{
	return pb_put_bytes(dst, size, len, number, text, strlen(text));
}

/* kubelet labels each container with its name in the pod. */
ssize_t cri_list_request(uint8_t *dst, size_t size, const char *container)
{
	uint8_t label[128], filter[160];
	ssize_t n;

	n = put(label, sizeof(label), 0, 1, "io.kubernetes.container.name");
	if (n >= 0)
		n = put(label, sizeof(label), (size_t) n, 2, container);
	if (n >= 0)
		n = pb_put_bytes(filter, sizeof(filter), 0, FILTER_LABELS, label, (size_t) n);
	return n < 0 ? n : pb_put_bytes(dst, size, 0, LIST_FILTER, filter, (size_t) n);
}

ssize_t cri_status_request(uint8_t *dst, size_t size, const char *id)
{
	return put(dst, size, 0, 1, id);
}

static int find_number(const void *message, size_t len, uint32_t number, uint64_t *ret)
{
	struct pb_field f = {0};
	int r = pb_find(message, len, number, 0, &f);

	if (r < 0)
		return r;
	*ret = r ? f.value : 0;
	return 0;
}

int cri_newest_exited(const void *message, size_t len, char ret_id[static CRI_ID_MAX])
{
	const uint8_t *p = message, *end = p + len;
	uint64_t newest = 0;
	bool found = false;
	struct pb_field c, id;
	int r;

	while ((r = pb_next(&p, end, &c)) > 0) {
		uint64_t state, created;

		if (c.number != LIST_CONTAINERS || c.wire != 2)
			continue;
		r = pb_find(c.bytes, c.len, CONTAINER_ID, 2, &id);
		if (r < 0 || find_number(c.bytes, c.len, CONTAINER_STATE, &state) < 0 ||
		    find_number(c.bytes, c.len, CONTAINER_CREATED, &created) < 0)
			return -EBADMSG;
		if (r == 0 || state != CONTAINER_EXITED || (found && created < newest) ||
		    id.len == 0 || id.len >= CRI_ID_MAX)
			continue;
		memcpy(ret_id, id.bytes, id.len);
		ret_id[id.len] = 0;
		newest = created;
		found = true;
	}
	return r < 0 ? r : found ? 0 : -ENOENT;
}

int cri_exit_read(const void *message, size_t len, struct cri_exit *ret)
{
	uint64_t state, code, finished;
	struct pb_field status, reason;
	struct cri_exit e = {0};
	int r;

	r = pb_find(message, len, STATUS, 2, &status);
	if (r <= 0)
		return r < 0 ? r : -EBADMSG;
	if (find_number(status.bytes, status.len, STATUS_STATE, &state) < 0 ||
	    find_number(status.bytes, status.len, STATUS_EXIT_CODE, &code) < 0 ||
	    find_number(status.bytes, status.len, STATUS_FINISHED, &finished) < 0)
		return -EBADMSG;
	if (state != CONTAINER_EXITED)
		return -ENOENT;
	r = pb_find(status.bytes, status.len, STATUS_REASON, 2, &reason);
	if (r < 0)
		return r;
	if (r > 0)
		(void) text_clean(e.reason, sizeof(e.reason), (const char *) reason.bytes,
		                  reason.len);
	/* an int32: -1 is written as ten bytes of a varint */
	e.code = (int) (int32_t) code;
	e.finished = finished <= INT64_MAX ? (int64_t) (finished / 1000000000) : 0;
	*ret = e;
	return 0;
}

const char *cri_exit_meaning(int code, const char *reason)
{
	static const struct {
		int code;
		const char *meaning;
	} codes[] = {
		{0, "ended by itself"},         {1, "an error of its own"},
		{2, "a panic, or told to end"}, {126, "cannot be executed"},
		{127, "its program is absent"}, {128, "could not be started"},
		{128 + SIGABRT, "aborted"},     {128 + SIGKILL, "killed"},
		{128 + SIGSEGV, "crashed"},     {128 + SIGTERM, "told to end"},
	};

	if (strcmp(reason, "OOMKilled") == 0)
		return "out of memory";
	for (size_t i = 0; i < ELEMENTS(codes); i++)
		if (codes[i].code == code)
			return codes[i].meaning;
	return "";
}
