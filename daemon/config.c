/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <strings.h>

#include "config.h"
#include "file.h"
#include "probe.h"

enum { CONFIG_FILE_MAX = 256 * 1024 };

/* Intervals that a configuration may ask for: below a second a probe would be a load of its own,
 * above a day it would be a probe that is off. */
static const usec_t every_min = USEC_PER_SEC, every_max = 86400 * USEC_PER_SEC;
static const usec_t timeout_min = USEC_PER_SEC / 10, timeout_max = 60 * USEC_PER_SEC;

struct parser {
	struct config *config;
	const char *file;
	unsigned line;
	int probe; /* index of [Probe NAME]; -1: [Nodewhy]; -2: none or unknown: keys are passed
	              over */
	config_warn_t warn;
	void *userdata;
};

static void warn(const struct parser *p, const char *format, ...) _printf_(2, 3);
static void warn(const struct parser *p, const char *format, ...)
{
	char what[512], clean[512], message[1024];
	va_list ap;
	size_t n;

	va_start(ap, format);
	n = text_vformat(what, sizeof(what), format, ap);
	va_end(ap);
	(void) text_clean(clean, sizeof(clean), what, n);
	(void) text_format(message, sizeof(message), "%s:%u: %s", p->file, p->line, clean);
	p->warn(message, p->userdata);
}

void config_init(struct config *c)
{
	*c = (struct config){.console = true,
	                     .subnet_watch = {.low_percent = 20, .low_addresses = 256}};
	for (size_t i = 0; i < ELEMENTS(c->probes); i++)
		c->probes[i].enabled = true;
}

static int parse_bool(const char *s, bool *ret)
{
	static const char *const yes[] = {"yes", "true", "on", "1"}, *const no[] = {"no", "false",
	                                                                            "off", "0"};

	for (size_t i = 0; i < ELEMENTS(yes); i++) {
		if (strcasecmp(s, yes[i]) == 0)
			return *ret = true, 0;
		if (strcasecmp(s, no[i]) == 0)
			return *ret = false, 0;
	}
	return -EINVAL;
}

/* Seconds, with up to three decimals, an optional "s". */
static int parse_seconds(const char *s, usec_t min, usec_t max, usec_t *ret)
{
	char whole[32];
	size_t n = strspn(s, "0123456789");
	uint64_t seconds;
	usec_t v, unit = USEC_PER_SEC / 10;

	if (n == 0 || n >= sizeof(whole))
		return -EINVAL;
	memcpy(whole, s, n);
	whole[n] = 0;
	if (text_to_uint(whole, 0, max / USEC_PER_SEC, &seconds) < 0)
		return -ERANGE;
	v = seconds * USEC_PER_SEC;
	s += n;
	if (*s == '.')
		for (s++; *s >= '0' && *s <= '9'; s++, unit /= 10)
			v += (usec_t) (*s - '0') * unit;
	if (*s && strcmp(s, "s") != 0)
		return -EINVAL;
	if (v < min || v > max)
		return -ERANGE;
	*ret = v;
	return 0;
}

static void set_seconds(const struct parser *p, const char *key, const char *value, usec_t min,
                        usec_t max, usec_t *ret)
{
	int r = parse_seconds(value, min, max, ret);

	if (r == -ERANGE)
		warn(p, "%s=%s is outside %g to %g seconds, ignored", key, value,
		     (double) min / USEC_PER_SEC, (double) max / USEC_PER_SEC);
	else if (r < 0)
		warn(p, "%s=%s is not a number of seconds, ignored", key, value);
}

static void set_yes(const struct parser *p, const char *key, const char *value, bool *ret)
{
	if (parse_bool(value, ret) < 0)
		warn(p, "%s=%s is neither yes nor no, ignored", key, value);
}

static void set_count(const struct parser *p, const char *key, const char *value, uint64_t max,
                      int64_t *ret)
{
	uint64_t n;

	if (text_to_uint(value, 0, max, &n) < 0)
		warn(p, "%s=%s is not a number of 0 to %llu, ignored", key, value,
		     (unsigned long long) max);
	else
		*ret = (int64_t) n;
}

static void set_textfile_dir(const struct parser *p, const char *value)
{
	struct config *c = p->config;

	if (*value && (value[0] != '/' || strlen(value) >= sizeof(c->textfile_dir)))
		warn(p, "TextfileDir=%s is not an absolute path, ignored", value);
	else
		(void) text_format(c->textfile_dir, sizeof(c->textfile_dir), "%s", value);
}

static void set_main(const struct parser *p, const char *key, const char *value)
{
	struct config *c = p->config;

	if (strcasecmp(key, "Console") == 0)
		set_yes(p, key, value, &c->console);
	else if (strcasecmp(key, "TextfileDir") == 0)
		set_textfile_dir(p, value);
	else if (strcasecmp(key, "SubnetWatch") == 0)
		set_yes(p, key, value, &c->subnet_watch.on);
	else if (strcasecmp(key, "SubnetLowPercent") == 0)
		set_count(p, key, value, 100, &c->subnet_watch.low_percent);
	else if (strcasecmp(key, "SubnetLowAddresses") == 0)
		set_count(p, key, value, 65536, &c->subnet_watch.low_addresses);
	else
		warn(p, "unknown key %s= in [Nodewhy], ignored", key);
}

static void set_probe(const struct parser *p, const char *key, const char *value)
{
	struct probe_config *pc = &p->config->probes[p->probe];

	if (strcasecmp(key, "Enabled") == 0) {
		if (parse_bool(value, &pc->enabled) < 0)
			warn(p, "Enabled=%s is neither yes nor no, ignored", value);
	} else if (strcasecmp(key, "IntervalSec") == 0) {
		set_seconds(p, key, value, every_min, every_max, &pc->every);
	} else if (strcasecmp(key, "TimeoutSec") == 0) {
		set_seconds(p, key, value, timeout_min, timeout_max, &pc->timeout);
	} else {
		warn(p, "unknown key %s= in [Probe %s], ignored", key, probes[p->probe]->name);
	}
}

static void section(struct parser *p, char *name)
{
	p->probe = -2;
	if (strcasecmp(name, "Nodewhy") == 0) {
		p->probe = -1;
		return;
	}
	if (strncasecmp(name, "Probe ", 6) == 0) {
		const char *which = text_trim(name + 6);

		for (int i = 0; i < CONFIG_PROBES_MAX && probes[i]; i++)
			if (strcmp(probes[i]->name, which) == 0)
				p->probe = i;
		if (p->probe == -2)
			warn(p, "there is no probe %s, section ignored", which);
		return;
	}
	warn(p, "unknown section [%s], ignored", name);
}

static void line(struct parser *p, char *text)
{
	char *s = text_trim(text), *equals;

	if (!*s || *s == '#' || *s == ';')
		return;
	if (*s == '[') {
		size_t n = strlen(s);

		if (s[n - 1] != ']') {
			warn(p, "section without a closing bracket, ignored");
			p->probe = -2;
			return;
		}
		s[n - 1] = 0;
		section(p, text_trim(s + 1));
		return;
	}
	equals = strchr(s, '=');
	if (!equals) {
		warn(p, "neither a section nor key=value, ignored");
		return;
	}
	*equals = 0;
	s = text_trim(s);
	if (p->probe == -1)
		set_main(p, s, text_trim(equals + 1));
	else if (p->probe >= 0)
		set_probe(p, s, text_trim(equals + 1));
}

void config_parse(struct config *c, const char *file, const char *text, size_t len,
                  config_warn_t warn_fn, void *userdata)
{
	struct parser p = {
		.config = c, .file = file, .probe = -2, .warn = warn_fn, .userdata = userdata};
	const char *end = text + len;

	while (text < end) {
		const char *nl = memchr(text, '\n', (size_t) (end - text));
		size_t n = (size_t) ((nl ? nl : end) - text);
		char buf[1024];

		p.line++;
		if (n >= sizeof(buf) || memchr(text, 0, n)) {
			warn(&p, "line too long or not text, ignored");
		} else {
			memcpy(buf, text, n);
			buf[n] = 0;
			line(&p, buf);
		}
		if (!nl)
			break;
		text = nl + 1;
	}
}

static int load_one(struct config *c, const struct files *f, const char *path,
                    config_warn_t warn_fn, void *userdata)
{
	_cleanup_(freep) char *text = NULL;
	size_t len;
	int r;

	r = file_read(f, path, CONFIG_FILE_MAX, &text, &len);
	if (r < 0)
		return r;
	config_parse(c, path, text, len, warn_fn, userdata);
	return 0;
}

static void warn_unreadable(const char *path, int error, config_warn_t warn_fn, void *userdata)
{
	char message[512];

	(void) text_format(message, sizeof(message), "cannot read %s: %s", path, strerror(-error));
	warn_fn(message, userdata);
}

static void load_drop_ins(struct config *c, const struct files *f, config_warn_t warn_fn,
                          void *userdata)
{
	static const char dir[] = "/etc/nodewhy/nodewhy.conf.d";
	_cleanup_(freep) struct names *names = calloc(1, sizeof(*names));
	int r = names ? file_list(f, dir, names) : -ENOMEM;

	if (r < 0) {
		if (r != -ENOENT)
			warn_unreadable(dir, r, warn_fn, userdata);
		return;
	}
	for (size_t i = 0; i < names->n; i++) {
		char path[CONFIG_PATH_MAX + NAME_BYTES_MAX];
		size_t n = strlen(names->name[i]);

		if (n < 5 || strcmp(names->name[i] + n - 5, ".conf") != 0)
			continue;
		(void) snprintf(path, sizeof(path), "%s/%s", dir, names->name[i]);
		r = load_one(c, f, path, warn_fn, userdata);
		if (r < 0)
			warn_unreadable(path, r, warn_fn, userdata);
	}
}

int config_load(struct config *c, const char *file, config_warn_t warn_fn, void *userdata)
{
	static const char standard[] = "/etc/nodewhy/nodewhy.conf";
	struct files *f = NULL;
	int r;

	r = files_new(&f, "/");
	if (r < 0)
		return r;
	if (file) {
		_cleanup_(freep) char *absolute = realpath(file, NULL);

		r = absolute ? load_one(c, f, absolute, warn_fn, userdata) : -errno;
	} else {
		r = load_one(c, f, standard, warn_fn, userdata);
		if (r < 0 && r != -ENOENT)
			warn_unreadable(standard, r, warn_fn, userdata);
		r = 0;
		load_drop_ins(c, f, warn_fn, userdata);
	}
	files_free(f);
	return r;
}
