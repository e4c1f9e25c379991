/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <systemd/sd-event.h>

#include "watch.h"

enum { ROWS_MAX = 512, ROW_BYTES = 512 };

struct watch {
	const struct files *files;
	watch_render_t render;
	void *userdata;
	sd_event *event;
	sd_event_source *tick, *directory;
	bool terminal;
	size_t shown, rows, columns;
	char screen[ROWS_MAX][ROW_BYTES]; /* what stands on the terminal */
	char *last;                       /* without a terminal: what was printed */
};

static void measure(struct watch *w)
{
	struct winsize size;

	w->rows = 24;
	w->columns = 80;
	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
		w->rows = size.ws_row < ROWS_MAX ? size.ws_row : ROWS_MAX;
		w->columns = size.ws_col;
	}
}

/* Copies a line as far as the terminal is wide; escape sequences take no room. Hangul and CJK count
 * as two columns. */
static void fit(char *dst, const char *line, size_t len, size_t columns)
{
	size_t used = 0, at = 0;
	bool escape = false;

	for (size_t i = 0; i < len && used + 8 < ROW_BYTES; i++) {
		unsigned char c = (unsigned char) line[i];

		if (c == 033)
			escape = true;
		else if (!escape && (c & 0xC0) != 0x80)
			at += c >= 0xE3 && c < 0xF0 ? 2 : 1;
		if (at > columns)
			break;
		dst[used++] = (char) c;
		if (escape && c == 'm')
			escape = false;
	}
	dst[used] = 0;
	if (at > columns)
		(void) snprintf(dst + used, ROW_BYTES - used, "\033[0m");
}

static void draw(struct watch *w, const char *text)
{
	size_t row = 0;

	for (; *text && row + 1 < w->rows; row++) {
		size_t len = strcspn(text, "\n");
		char line[ROW_BYTES];

		fit(line, text, len, w->columns);
		if (row >= w->shown || strcmp(w->screen[row], line) != 0) {
			(void) printf("\033[%zu;1H%s\033[K", row + 1, line);
			memcpy(w->screen[row], line, sizeof(line));
		}
		text += len + (text[len] != 0);
	}
	if (row < w->shown)
		(void) printf("\033[%zu;1H\033[J", row + 1);
	w->shown = row;
	(void) fflush(stdout);
}

static int refresh(struct watch *w)
{
	char *text = NULL;
	int r = w->render(&text, w->userdata);

	if (r < 0)
		return r;
	if (w->terminal) {
		draw(w, text);
	} else if (!w->last || strcmp(w->last, text) != 0) {
		(void) printf("%s\n", text);
		(void) fflush(stdout);
		free(w->last);
		w->last = text;
		text = NULL;
	}
	free(text);
	return ferror(stdout) ? -EPIPE : 0;
}

static void arm_directory(struct watch *w);

static int on_change(sd_event_source *s, const struct inotify_event *e, void *userdata)
{
	struct watch *w = userdata;

	if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED))
		w->directory = sd_event_source_disable_unref(w->directory);
	if (e->len > 0 && strcmp(e->name, "status.json") != 0)
		return 0;
	return refresh(w);
}

static void arm_directory(struct watch *w)
{
	int fd;

	if (w->directory)
		return;
	fd = file_open(w->files, "/run/nodewhy", O_PATH);
	if (fd < 0)
		return;
	(void) sd_event_add_inotify_fd(w->event, &w->directory, fd,
	                               IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF, on_change, w);
	(void) close(fd);
}

/* Ages move on, and a daemon that died says nothing. */
static int on_tick(sd_event_source *s, uint64_t usec, void *userdata)
{
	struct watch *w = userdata;

	arm_directory(w);
	(void) sd_event_source_set_time_relative(s, USEC_PER_SEC);
	(void) sd_event_source_set_enabled(s, SD_EVENT_ONESHOT);
	return w->terminal ? refresh(w) : 0;
}

static int on_resize(sd_event_source *s, const struct signalfd_siginfo *si, void *userdata)
{
	struct watch *w = userdata;

	measure(w);
	w->shown = 0;
	(void) fputs("\033[2J", stdout);
	return refresh(w);
}

static int add_sources(struct watch *w)
{
	static const int stops[] = {SIGINT, SIGTERM};
	sigset_t set;
	int r;

	(void) sigemptyset(&set);
	(void) sigaddset(&set, SIGINT);
	(void) sigaddset(&set, SIGTERM);
	(void) sigaddset(&set, SIGWINCH);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	for (size_t i = 0; i < ELEMENTS(stops); i++) {
		r = sd_event_add_signal(w->event, NULL, stops[i], NULL, NULL); /* ends the loop */
		if (r < 0)
			return r;
	}
	if (w->terminal) {
		r = sd_event_add_signal(w->event, NULL, SIGWINCH, on_resize, w);
		if (r < 0)
			return r;
	}
	return sd_event_add_time_relative(w->event, &w->tick, CLOCK_BOOTTIME, USEC_PER_SEC,
	                                  USEC_PER_SEC / 10, on_tick, w);
}

int watch_run(const struct files *f, watch_render_t render, void *userdata)
{
	struct watch *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->files = f;
	w->render = render;
	w->userdata = userdata;
	w->terminal = isatty(STDOUT_FILENO);
	measure(w);
	r = sd_event_new(&w->event);
	if (r >= 0)
		r = add_sources(w);
	if (r >= 0) {
		arm_directory(w);
		if (w->terminal)
			(void) fputs("\033[?25l\033[2J", stdout);
		r = refresh(w);
	}
	if (r >= 0)
		r = sd_event_loop(w->event);
	if (w->terminal)
		(void) printf("\033[?25h\033[%zu;1H\n", w->shown + 1);
	sd_event_source_disable_unref(w->tick);
	sd_event_source_disable_unref(w->directory);
	sd_event_unref(w->event);
	free(w->last);
	free(w);
	return r;
}
