/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "observation.h"

static const char *const layers[] = {
#define X(id, name) [LAYER_##id] = name,
	LAYERS(X)
#undef X
};

static const char *const outcomes[] = {
#define X(id, name) [OUTCOME_##id] = name,
	OUTCOMES(X)
#undef X
};

const char *layer_name(enum layer l)
{
	return layers[l];
}

const char *outcome_name(enum outcome o)
{
	return outcomes[o];
}

int layer_from_name(const char *s)
{
	for (int i = 0; i < _LAYER_MAX; i++)
		if (strcmp(layers[i], s) == 0)
			return i;
	return -EINVAL;
}

int outcome_from_name(const char *s)
{
	for (int i = 0; i < _OUTCOME_MAX; i++)
		if (strcmp(outcomes[i], s) == 0)
			return i;
	return -EINVAL;
}

bool errno_is_ours(int e)
{
	switch (e < 0 ? -e : e) {
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case ENOBUFS:
		return true;
	default:
		return false;
	}
}

enum outcome outcome_from_errno(int e)
{
	if (errno_is_ours(e))
		return OUTCOME_UNKNOWN;
	switch (e < 0 ? -e : e) {
	case 0:
		return OUTCOME_OK;
	case ETIMEDOUT:
		return OUTCOME_TIMEOUT;
	case ECONNREFUSED:
		return OUTCOME_REFUSED;
	case ECONNRESET:
	case EPIPE:
		return OUTCOME_RESET;
	case ENETUNREACH:
	case EHOSTUNREACH:
	case ENETDOWN:
	case EHOSTDOWN:
		return OUTCOME_UNREACHABLE;
	case ENOENT:
	case ENODEV:
	case ENOTDIR:
		return OUTCOME_ABSENT;
	case EACCES:
	case EPERM:
		return OUTCOME_DENIED;
	default:
		return OUTCOME_FAILED;
	}
}

static struct evidence *slot(struct observation *o, const char *key)
{
	struct evidence *e;

	for (size_t i = 0; i < o->n_evidence; i++)
		if (strcmp(o->evidence[i].key, key) == 0)
			return &o->evidence[i];
	if (o->n_evidence >= EVIDENCE_MAX)
		return NULL;
	e = &o->evidence[o->n_evidence++];
	(void) text_clean(e->key, sizeof(e->key), key, strlen(key));
	return e;
}

void observation_number(struct observation *o, const char *key, int64_t number)
{
	struct evidence *e = o ? slot(o, key) : NULL;

	if (!e)
		return;
	e->is_number = true;
	e->number = number;
	e->text[0] = 0;
}

void observation_text(struct observation *o, const char *key, const char *format, ...)
{
	struct evidence *e = o ? slot(o, key) : NULL;
	char raw[512];
	va_list ap;
	size_t n;

	if (!e)
		return;
	va_start(ap, format);
	n = text_vformat(raw, sizeof(raw), format, ap);
	va_end(ap);
	e->is_number = false;
	(void) text_clean(e->text, sizeof(e->text), raw, n);
}

void observation_detail(struct observation *o, const char *format, ...)
{
	char raw[1024];
	va_list ap;
	size_t n;

	if (!o)
		return;
	va_start(ap, format);
	n = text_vformat(raw, sizeof(raw), format, ap);
	va_end(ap);
	(void) text_clean(o->detail, sizeof(o->detail), raw, n);
}

static const struct evidence *find(const struct observation *o, const char *key)
{
	for (size_t i = 0; i < o->n_evidence; i++)
		if (strcmp(o->evidence[i].key, key) == 0)
			return &o->evidence[i];
	return NULL;
}

int64_t evidence_number(const struct observation *o, const char *key, int64_t fallback)
{
	const struct evidence *e = find(o, key);

	return e && e->is_number ? e->number : fallback;
}

const char *evidence_get_text(const struct observation *o, const char *key)
{
	const struct evidence *e = find(o, key);

	return e && !e->is_number ? e->text : "";
}
