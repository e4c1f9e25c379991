/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* Small things every file needs: scope cleanup, bounded strings, UTF-8 hygiene, plain hashing. */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t usec_t;

#define USEC_PER_MSEC  UINT64_C(1000)
#define USEC_PER_SEC   UINT64_C(1000000)
#define USEC_INFINITY  UINT64_MAX
#define ELEMENTS(a)    (sizeof(a) / sizeof((a)[0]))
#define _printf_(f, a) __attribute__((format(printf, f, a)))
#define _unused_       __attribute__((unused))
#define _cleanup_(f)   __attribute__((cleanup(f)))

/* Hands over what a _cleanup_ variable owns. */
#define TAKE(p)                                                                                    \
	({                                                                                         \
		__typeof__(p) _taken = (p);                                                        \
		(p) = NULL;                                                                        \
		_taken;                                                                            \
	})
#define TAKE_FD(fd)                                                                                \
	({                                                                                         \
		int _taken_fd = (fd);                                                              \
		(fd) = -1;                                                                         \
		_taken_fd;                                                                         \
	})

static inline void freep(void *p)
{
	free(*(void **) p);
}

static inline void closep(const int *fd)
{
	if (*fd >= 0)
		(void) close(*fd);
}

static inline void fclosep(FILE **f)
{
	if (*f)
		(void) fclose(*f);
}

/* Formats into dst, always NUL-terminated. What does not fit is cut at a character boundary and the
 * cut is marked with "…". Returns the length written. */
size_t text_format(char *dst, size_t size, const char *format, ...) _printf_(3, 4);
size_t text_vformat(char *dst, size_t size, const char *format, va_list ap) _printf_(3, 0);

/* Appends to a NUL-terminated dst of size bytes, by the rules of text_format(). */
size_t text_append(char *dst, size_t size, const char *format, ...) _printf_(3, 4);

/* Text from outside, made fit to be shown: invalid UTF-8 and control characters become \xNN, the
 * rest is copied; cut at size with "…". src need not be terminated. Returns the length written. */
size_t text_clean(char *dst, size_t size, const void *src, size_t len);

/* A line of somebody's log that is to be quoted, in place: scripts print keys, addresses have
 * passwords in them, SDKs say what they sent. What may be one of these is starred or cut. size is
 * that of the buffer. */
void text_hide_secrets(char *text, size_t size);

/* Columns that the text takes on a terminal: two for a wide character, none for one that combines.
 * What is not UTF-8 takes one a byte. */
size_t text_columns(const char *s, size_t len);
/* How many bytes from the start of s fit into so many columns, whole characters only. */
size_t text_fit(const char *s, size_t len, size_t columns);

/* True when the len bytes are valid UTF-8 without control characters other than \t \n \r. */
bool text_is_clean(const void *src, size_t len);

/* Printable ASCII only: everything else becomes '?', '%' becomes "pct" (node-problem-detector
 * mangles it); cut at size. */
size_t text_ascii(char *dst, size_t size, const char *src);

/* Removes leading and trailing white space in place, returns the start. */
char *text_trim(char *s);

/* Parses a whole string as a decimal number within [min, max]. -EINVAL or -ERANGE. */
int text_to_uint(const char *s, uint64_t min, uint64_t max, uint64_t *ret);

/* FNV-1a, for jitter by machine id: stable over builds, not for security. */
uint64_t hash_bytes(uint64_t seed, const void *p, size_t len);
static inline uint64_t hash_text(uint64_t seed, const char *s)
{
	return hash_bytes(seed, s, strlen(s));
}
