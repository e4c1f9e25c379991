/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>

#include "yamldoc.h"

/* The scanner's work grows with the depth of each token, so the depth is looked at before the whole
 * is loaded. */
enum { DEPTH_MAX = 32, VALUES_MAX = 10000, WORD_MAX = 20 };

struct where {
	char *error;
	size_t error_size;
};

static int _printf_(2, 3) fail(const struct where *w, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	(void) text_vformat(w->error, w->error_size, format, ap);
	va_end(ap);
	return -EBADMSG;
}

/* ---- libyaml ---- */

/* What the parser holds of the text may be a token or a key. */
static void parser_done(yaml_parser_t *p)
{
	if (p->raw_buffer.start)
		explicit_bzero(p->raw_buffer.start,
		               (size_t) (p->raw_buffer.end - p->raw_buffer.start));
	if (p->buffer.start)
		explicit_bzero(p->buffer.start, (size_t) (p->buffer.end - p->buffer.start));
	yaml_parser_delete(p);
}

void yamldoc_done(yaml_document_t *d)
{
	for (yaml_node_t *n = d->nodes.start; n < d->nodes.top; n++)
		if (n->type == YAML_SCALAR_NODE)
			explicit_bzero(n->data.scalar.value, n->data.scalar.length);
	yaml_document_delete(d);
}

static int parser_error(const struct where *w, const yaml_parser_t *p)
{
	if (p->error == YAML_MEMORY_ERROR)
		return -ENOMEM;
	return fail(w, "line %zu: %s", p->problem_mark.line + 1,
	            p->problem ? p->problem : "not YAML");
}

static int parser_open(yaml_parser_t *p, const char *text, size_t len)
{
	if (!yaml_parser_initialize(p)) {
		yaml_parser_delete(p);
		return -ENOMEM;
	}
	yaml_parser_set_input_string(p, (const unsigned char *) text, len);
	return 0;
}

static int depth_of(yaml_event_type_t type)
{
	if (type == YAML_MAPPING_START_EVENT || type == YAML_SEQUENCE_START_EVENT)
		return 1;
	return type == YAML_MAPPING_END_EVENT || type == YAML_SEQUENCE_END_EVENT ? -1 : 0;
}

static int check_depth(const struct where *w, const char *text, size_t len)
{
	yaml_parser_t p;
	int depth = 0, r;

	r = parser_open(&p, text, len);
	if (r < 0)
		return r;
	for (bool end = false; r == 0 && !end;) {
		yaml_event_t e;

		if (!yaml_parser_parse(&p, &e)) {
			r = parser_error(w, &p);
			break;
		}
		depth += depth_of(e.type);
		if (depth > DEPTH_MAX)
			r = fail(w, "line %zu: nested too deeply", e.start_mark.line + 1);
		end = e.type == YAML_STREAM_END_EVENT || e.type == YAML_DOCUMENT_END_EVENT;
		if (e.type == YAML_SCALAR_EVENT)
			explicit_bzero(e.data.scalar.value, e.data.scalar.length);
		yaml_event_delete(&e);
	}
	parser_done(&p);
	return r;
}

/* Aliases come out as references to the one node: nothing is expanded. */
int yamldoc_load(const char *text, size_t len, yaml_document_t *ret, char *ret_error,
                 size_t error_size)
{
	struct where w = {ret_error, error_size};
	yaml_parser_t p;
	int r;

	r = check_depth(&w, text, len);
	if (r < 0)
		return r;
	r = parser_open(&p, text, len);
	if (r < 0)
		return r;
	if (!yaml_parser_load(&p, ret))
		r = parser_error(&w, &p);
	parser_done(&p);
	return r;
}

/* ---- as JSON ---- */

struct maker {
	yaml_document_t *doc;
	unsigned values, depth; /* a node may be reached by aliases, and hold itself */
};

static bool is_word(const char *word, const char *const *list)
{
	for (; *list; list++)
		if (strcmp(word, *list) == 0)
			return true;
	return false;
}

static json_t *make_scalar(const yaml_node_t *n)
{
	static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL},
				 *const yes[] = {"true", "True", "TRUE", NULL},
				 *const no[] = {"false", "False", "FALSE", NULL};
	const char *text = (const char *) n->data.scalar.value;
	size_t len = n->data.scalar.length, digits;
	char word[WORD_MAX];
	bool minus;

	if (n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE || len >= sizeof(word))
		return json_stringn(text, len);
	memcpy(word, text, len);
	word[len] = 0;
	if (is_word(word, nulls))
		return json_null();
	if (is_word(word, yes) || is_word(word, no))
		return json_boolean(is_word(word, yes));
	minus = word[0] == '-';
	digits = strspn(word + minus, "0123456789");
	if (digits > 0 && digits < 19 && word[minus + digits] == 0)
		return json_integer(strtoll(word, NULL, 10));
	return json_stringn(text, len);
}

static json_t *make(struct maker *m, int index);

static json_t *make_list(struct maker *m, const yaml_node_t *n)
{
	json_t *list = json_array();

	for (const yaml_node_item_t *i = n->data.sequence.items.start;
	     list && i < n->data.sequence.items.top; i++)
		if (json_array_append_new(list, make(m, *i)) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

static json_t *make_object(struct maker *m, const yaml_node_t *n)
{
	json_t *object = json_object();

	for (const yaml_node_pair_t *p = n->data.mapping.pairs.start;
	     object && p < n->data.mapping.pairs.top; p++) {
		const yaml_node_t *key = yaml_document_get_node(m->doc, p->key);

		if (!key || key->type != YAML_SCALAR_NODE ||
		    strlen((const char *) key->data.scalar.value) != key->data.scalar.length ||
		    json_object_set_new(object, (const char *) key->data.scalar.value,
		                        make(m, p->value)) < 0) {
			json_decref(object);
			return NULL;
		}
	}
	return object;
}

/* NULL: too much of it, text that is no UTF-8, or no memory. */
static json_t *make(struct maker *m, int index)
{
	const yaml_node_t *n = yaml_document_get_node(m->doc, index);
	json_t *j = NULL;

	if (!n || ++m->values > VALUES_MAX || m->depth >= DEPTH_MAX)
		return NULL;
	m->depth++;
	switch (n->type) {
	case YAML_SCALAR_NODE:
		j = make_scalar(n);
		break;
	case YAML_SEQUENCE_NODE:
		j = make_list(m, n);
		break;
	case YAML_MAPPING_NODE:
		j = make_object(m, n);
		break;
	default:
		break;
	}
	m->depth--;
	return j;
}

int yamldoc_json(const char *text, size_t len, json_t **ret)
{
	yaml_document_t doc;
	struct maker m = {.doc = &doc};
	char error[96];
	json_t *j;
	int r;

	r = yamldoc_load(text, len, &doc, error, sizeof(error));
	if (r < 0)
		return r;
	j = doc.nodes.start < doc.nodes.top ? make(&m, 1) : NULL; /* they are counted from 1 */
	yamldoc_done(&doc);
	if (!j)
		return -EBADMSG;
	*ret = j;
	return 0;
}
