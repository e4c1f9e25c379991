/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>

#include "probe.h"

#define MIB (UINT64_C(1) << 20)

/* Rises are counted from a sample at least so old: of a shorter time they say little. */
#define WINDOW_MIN (10 * USEC_PER_SEC)
/* So long after metadata or DNS was seen to fail, what was dropped may be why. */
#define FAILING_VALID (30 * USEC_PER_SEC)
/* Denials of what works all the time (containerd, kubelet) are over when none came for so long. */
#define DENIAL_VALID (1800 * USEC_PER_SEC)

enum {
	PROC_BYTES = 64 * 1024,
	MOUNTS_BYTES = 2 << 20, /* some hundred bytes a mount, some ten mounts a pod */
	PATH_BYTES = 256,

	/* A third of the time nobody on the node makes progress, and what is available is nothing
	 * to live on: either alone is one container at its own limit, or a full page cache. */
	MEMORY_FULL_MIN = 30,
	MEMORY_AVAILABLE_MAX = 5, /* percent of all */
	/* kubelet's own line, memory.available: below it, and the kernel kills already. */
	MEMORY_LINE_MIB = 100,

	/* Sustained for minutes (a large image being unpacked is not), and many are waiting. */
	IO_FULL_10 = 60,
	IO_FULL_60 = 70,
	IO_FULL_300 = 40,
	IO_BLOCKED_MIN = 8,
	/* Nothing was completed in a whole window while requests wait: it does not answer at all.
	 */
	IO_STUCK_FULL = 20,

	/* A place that the kubelet does not watch over: nothing is left. */
	PLACE_FREE_PERCENT = 1,
	PLACE_FREE_MIB = 100,
	/* nodefs.available and nodefs.inodesFree where the configuration does not say. */
	NODEFS_PERCENT = 10,
	NODEFS_INODES_PERCENT = 5,

	/* At the limit the next fork, open or connection fails; some are always coming and going.
	 */
	LIMIT_PERCENT = 95,
	CONNTRACK_PERCENT = 99,

	/* Of ENA's shaping: short bursts are normal (an image is pulled), minutes of it are not. */
	ENA_RISE_MIN = 1000, /* packets a window */
	ENA_WINDOWS_MIN = 8, /* in a row: two minutes */

	DENIALS_MIN = 3, /* one may be a probe of a policy that is dontaudit elsewhere */
	KERNEL_LINES_MAX = 2000,

	DISKS_MAX = 16,
	NICS_MAX = 16,
	NAME_BYTES = 32,
};

enum counter { BW_IN, BW_OUT, PPS, CONNTRACK, LINKLOCAL, _COUNTER_MAX };

static const struct {
	const char *name, *subject; /* the driver's; what the subject says of it */
} counters[] = {
	[BW_IN] = {"bw_in_allowance_exceeded", "bw_in"},
	[BW_OUT] = {"bw_out_allowance_exceeded", "bw_out"},
	[PPS] = {"pps_allowance_exceeded", "pps"},
	[CONNTRACK] = {"conntrack_allowance_exceeded", "conntrack"},
	[LINKLOCAL] = {"linklocal_allowance_exceeded", "linklocal"},
};

struct disk {
	char name[NAME_BYTES];
	uint64_t done, in_flight, busy_ms;
};

struct nic {
	char name[NAME_BYTES];
	bool present[_COUNTER_MAX];
	uint64_t value[_COUNTER_MAX];
};

/* What counters said at one moment. */
struct sample {
	usec_t at; /* 0: never */
	bool has_oom, has_drops, has_fulls[2];
	uint64_t oom_kills, conntrack_drops, table_fulls[2];
	struct disk disks[DISKS_MAX];
	struct nic nics[NICS_MAX];
	size_t n_disks, n_nics;
};

struct memory {
	struct sample base;
	struct {
		char name[NAME_BYTES];
		unsigned windows[_COUNTER_MAX]; /* in which it rose, in a row */
	} rising[NICS_MAX];
	usec_t failing_at; /* metadata or DNS was last seen to fail; 0: never */
	bool root_was_writable;
	char cursor[JOURNAL_CURSOR_MAX];
	int64_t denials;
	usec_t denied_at;
	bool nodeadm_denied;
	char denied[NAME_BYTES];
};

struct eviction {
	bool said; /* the configuration has evictionHard: what it leaves out is not watched */
	char nodefs[24], inodes[24], imagefs[24];
	enum tristate system_reserved;
};

struct state {
	struct sample now;
	struct eviction eviction;
	const char *mounts;
	int mounts_error, journal_error;
};

/* ---- small texts of /proc ---- */

static const char *next_line(const char *p)
{
	p = strchr(p, '\n');
	return p ? p + 1 : NULL;
}

/* The number behind a name at the start of a line. */
static bool number_of(const char *text, const char *name, uint64_t *ret)
{
	size_t n = strlen(name);

	for (const char *p = text; p; p = next_line(p)) {
		if (strncmp(p, name, n) != 0 || !strchr(": \t", p[n]) || !p[n])
			continue;
		p += n + 1;
		p += strspn(p, " \t");
		if (*p < '0' || *p > '9')
			return false;
		*ret = strtoull(p, NULL, 10);
		return true;
	}
	return false;
}

struct pressure {
	unsigned avg10, avg60, avg300; /* percent */
};

/* The line "full" of /proc/pressure. */
static bool read_pressure(const char *text, struct pressure *ret)
{
	unsigned v[3];

	for (const char *p = text; p; p = next_line(p))
		if (sscanf(p, "full avg10=%5u.%*u avg60=%5u.%*u avg300=%5u.", &v[0], &v[1],
		           &v[2]) == 3) {
			*ret = (struct pressure){v[0], v[1], v[2]};
			return true;
		}
	return false;
}

/* /proc/net/stat: names, then a line of hexadecimal numbers a processor. The sum of a column; or,
 * with first, what the first line has. */
static bool column_of(const char *text, const char *name, bool first, uint64_t *ret)
{
	size_t column = 0, len = strlen(name);
	const char *p = text, *end = strchr(text, '\n');
	uint64_t sum = 0;
	bool any = false;

	for (;; column++) {
		p += strspn(p, " \t");
		if (!end || p >= end)
			return false;
		if (strcspn(p, " \t\n") == len && strncmp(p, name, len) == 0)
			break;
		p += strcspn(p, " \t\n");
	}
	for (p = end + 1; p && *p && !(first && any); p = next_line(p)) {
		const char *at = p;

		for (size_t i = 0; i < column; i++) {
			at += strspn(at, " \t");
			at += strcspn(at, " \t\n");
		}
		at += strspn(at, " \t");
		if (!*at || *at == '\n')
			continue;
		sum += strtoull(at, NULL, 16);
		any = true;
	}
	if (any)
		*ret = sum;
	return any;
}

static const char *text_of(struct run *r, const char *path, int *ret_error)
{
	const char *text;
	size_t len;
	int e;

	e = run_read(r, path, PROC_BYTES, &text, &len);
	if (ret_error)
		*ret_error = e;
	return e < 0 ? NULL : text;
}

static bool number_in(struct run *r, const char *path, uint64_t *ret)
{
	char line[64];

	return file_read_line(run_files(r), path, line, sizeof(line)) >= 0 &&
	       text_to_uint(line, 0, UINT64_MAX, ret) == 0;
}

static int64_t percent(uint64_t part, uint64_t whole)
{
	return whole ? (int64_t) ((double) part * 100 / (double) whole) : 100;
}

static double gib(uint64_t bytes)
{
	return (double) bytes / (double) (MIB * 1024);
}

/* ---- the kubelet's lines ---- */

static void take_text(char ret[static 24], const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	if (s)
		(void) text_format(ret, 24, "%s", s);
}

static void on_config(const json_t *part, const char *path, void *userdata)
{
	const json_t *hard = json_object_get(part, "evictionHard");
	struct eviction *e = userdata;

	if (e->system_reserved != YES)
		e->system_reserved =
			json_object_size(json_object_get(part, "systemReserved")) ? YES : NO;
	e->said = e->said || json_is_object(hard);
	take_text(e->nodefs, hard, "nodefs.available");
	take_text(e->inodes, hard, "nodefs.inodesFree");
	take_text(e->imagefs, hard, "imagefs.available");
}

/* "10%" or "500Mi" of a whole. What cannot be read is no line. */
static uint64_t line_of(const char *s, uint64_t whole)
{
	static const struct {
		const char *suffix;
		double factor;
	} units[] = {
		{"Ki", 1024.0}, {"Mi", 1048576.0}, {"Gi", 1073741824.0}, {"Ti", 1099511627776.0},
		{"k", 1e3},     {"M", 1e6},        {"G", 1e9},           {"T", 1e12},
		{"", 1}};
	char *end;
	double v;

	v = strtod(s, &end);
	if (end == s || !(v >= 0) || v > 1e15)
		return 0;
	if (strcmp(end, "%") == 0)
		return v <= 100 ? (uint64_t) (v / 100 * (double) whole) : 0;
	for (size_t i = 0; i < ELEMENTS(units); i++)
		if (strcmp(end, units[i].suffix) == 0)
			return (uint64_t) (v * units[i].factor);
	return 0;
}

/* ---- memory ---- */

static void take_oom_kills(struct run *r, struct sample *now)
{
	const char *text = text_of(r, "/proc/vmstat", NULL);

	now->has_oom = text && number_of(text, "oom_kill", &now->oom_kills);
}

static void look_at_memory(struct run *r)
{
	struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	const char *info = text_of(r, "/proc/meminfo", NULL);
	const char *psi = text_of(r, "/proc/pressure/memory", NULL);
	uint64_t total = 0, available = 0, kills = 0;
	struct pressure p = {0};
	bool pressed, starved;
	struct observation *o;

	if (!info || !number_of(info, "MemTotal", &total) ||
	    !number_of(info, "MemAvailable", &available) || total == 0) {
		o = run_observe(r, LAYER_HOST, "memory", "", OUTCOME_UNKNOWN, 0);
		observation_detail(o, "cannot tell: no /proc/meminfo to read");
		return;
	}
	if (psi)
		(void) read_pressure(psi, &p);
	if (m->base.at && m->base.has_oom && s->now.has_oom && s->now.oom_kills > m->base.oom_kills)
		kills = s->now.oom_kills - m->base.oom_kills;
	pressed = p.avg60 >= MEMORY_FULL_MIN && percent(available, total) < MEMORY_AVAILABLE_MAX;
	starved = available < MEMORY_LINE_MIB * UINT64_C(1024) && kills > 0;
	o = run_observe(r, LAYER_HOST, "memory", "",
	                pressed || starved ? OUTCOME_EXHAUSTED : OUTCOME_OK, 0);
	observation_number(o, "available_mib", (int64_t) (available / 1024));
	observation_number(o, "total_mib", (int64_t) (total / 1024));
	observation_number(o, "psi_full_avg60", p.avg60);
	observation_number(o, "oom_kills", (int64_t) kills);
	if ((pressed || starved) && s->eviction.system_reserved != CANNOT_TELL)
		observation_number(o, "system_reserved", s->eviction.system_reserved == YES);
	observation_detail(o, "MemAvailable %.1f of %.1f GiB, PSI full avg60 %u %%",
	                   gib(available * 1024), gib(total * 1024), p.avg60);
}

/* ---- mounts ---- */

struct mount {
	char point[PATH_BYTES], type[24];
	bool read_only; /* the file system itself, not this view of it */
};

/* As mountinfo writes it: \040 is a space. */
static void unescape(char ret[static PATH_BYTES], const char *p, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n < PATH_BYTES - 1; n++) {
		bool coded = p[i] == '\\' && len - i > 3 && p[i + 1] >= '0' && p[i + 1] <= '3' &&
		             p[i + 2] >= '0' && p[i + 2] <= '7' && p[i + 3] >= '0' &&
		             p[i + 3] <= '7';

		ret[n] = coded ? (char) ((p[i + 1] - '0') << 6 | (p[i + 2] - '0') << 3 |
		                         (p[i + 3] - '0'))
		               : p[i];
		i += coded ? 4 : 1;
	}
	ret[n] = 0;
}

static const char *field(const char *p, const char *end, size_t *ret_len)
{
	while (p < end && *p == ' ')
		p++;
	*ret_len = 0;
	while (p + *ret_len < end && p[*ret_len] != ' ')
		(*ret_len)++;
	return p;
}

static bool read_mount(const char *line, size_t len, struct mount *ret)
{
	const char *p = line, *end = line + len;
	size_t n = 0;

	*ret = (struct mount){0};
	for (int i = 0; i < 5; i++, p += n)
		p = field(p, end, &n);
	unescape(ret->point, p - n, n);
	do {
		p = field(p, end, &n);
		p += n;
	} while (n > 0 && !(n == 1 && p[-1] == '-'));
	p = field(p, end, &n);
	if (n == 0 || n >= sizeof(ret->type) || ret->point[0] != '/')
		return false;
	memcpy(ret->type, p, n);
	p = field(p + n, end, &n);
	p = field(p + n, end, &n);
	ret->read_only = n >= 2 && strncmp(p, "ro", 2) == 0 && (n == 2 || p[2] == ',');
	return true;
}

/* The mount that a path lies on: the longest, the last of equals, which hides the others. */
static bool mount_of(const char *mounts, const char *path, struct mount *ret)
{
	size_t best = 0;
	struct mount m;

	for (const char *p = mounts; p && *p; p = next_line(p)) {
		size_t n;

		if (!read_mount(p, strcspn(p, "\n"), &m))
			continue;
		n = strlen(m.point);
		if (n < best || strncmp(path, m.point, n) != 0 ||
		    (n > 1 && path[n] && path[n] != '/'))
			continue;
		best = n;
		*ret = m;
	}
	return best > 0;
}

static bool is_disk(const struct mount *m)
{
	static const char *const types[] = {"ext2", "ext3", "ext4", "xfs", "btrfs"};

	for (size_t i = 0; i < ELEMENTS(types); i++)
		if (strcmp(m->type, types[i]) == 0)
			return true;
	return false;
}

/* The places that a node writes to, each on a disk of its own or not. */
enum place { PLACE_ROOT, PLACE_KUBELET, PLACE_CONTAINERD, _PLACE_MAX };

static const char *const places[] = {[PLACE_ROOT] = "/",
                                     [PLACE_KUBELET] = "/var/lib/kubelet",
                                     [PLACE_CONTAINERD] = "/var/lib/containerd"};

struct disk_of_node {
	struct mount mount;
	bool is[_PLACE_MAX];
};

/* In bytes and inodes: what the kubelet watches of the disk, or the bottom. */
static uint64_t bytes_line(const struct eviction *e, const struct disk_of_node *d, uint64_t size)
{
	uint64_t line = size / 100 * PLACE_FREE_PERCENT, more;

	if (line > PLACE_FREE_MIB * MIB)
		line = PLACE_FREE_MIB * MIB;
	if (d->is[PLACE_KUBELET]) {
		more = e->nodefs[0] ? line_of(e->nodefs, size)
		       : e->said    ? 0
		                    : size / 100 * NODEFS_PERCENT;
		line = more > line ? more : line;
	}
	if (d->is[PLACE_CONTAINERD] && e->imagefs[0]) {
		more = line_of(e->imagefs, size);
		line = more > line ? more : line;
	}
	return line;
}

static uint64_t inodes_line(const struct eviction *e, const struct disk_of_node *d, uint64_t n)
{
	if (d->is[PLACE_KUBELET] && (e->inodes[0] || !e->said))
		return e->inodes[0] ? line_of(e->inodes, n) : n / 100 * NODEFS_INODES_PERCENT;
	return n / 100 * PLACE_FREE_PERCENT;
}

static void observe_space(struct run *r, const struct disk_of_node *d, const struct statvfs *v)
{
	struct state *s = run_state(r);
	uint64_t size = (uint64_t) v->f_blocks * v->f_frsize;
	uint64_t free_bytes = (uint64_t) v->f_bavail * v->f_frsize;
	uint64_t line = bytes_line(&s->eviction, d, size);
	bool full = free_bytes < line;
	int64_t inodes = percent(v->f_ffree, v->f_files);
	struct observation *o;

	o = run_observe(r, LAYER_HOST, "disk", d->mount.point,
	                full ? OUTCOME_EXHAUSTED : OUTCOME_OK, 0);
	observation_number(o, "free_mib", (int64_t) (free_bytes / MIB));
	observation_number(o, "total_mib", (int64_t) (size / MIB));
	observation_number(o, "inodes_free_percent", inodes);
	if (full)
		observation_number(o, "line_mib", (int64_t) (line / MIB));
	observation_detail(o, "%.1f of %.1f GiB free, %d %% of inodes", gib(free_bytes), gib(size),
	                   (int) inodes);
	/* btrfs has no such number; xfs counts what free bytes would hold, so that a full disk has
	 * no inodes either */
	if (v->f_files == 0 || full)
		return;
	o = run_observe(r, LAYER_HOST, "inodes", d->mount.point,
	                v->f_ffree < inodes_line(&s->eviction, d, v->f_files) ? OUTCOME_EXHAUSTED
	                                                                      : OUTCOME_OK,
	                0);
	observation_number(o, "inodes_free", (int64_t) v->f_ffree);
	observation_number(o, "inodes_free_percent", inodes);
	observation_number(o, "free_mib", (int64_t) (free_bytes / MIB));
	observation_detail(o, "%" PRIu64 " inodes free, %d %%", (uint64_t) v->f_ffree,
	                   (int) inodes);
}

/* Where the kubelet and containerd write has to be writable. The root alone may be read-only by
 * design (Bottlerocket): there only what was writable before has turned. */
static void observe_writable(struct run *r, const struct disk_of_node *d)
{
	struct memory *m = run_memory(r);
	bool root_only = !d->is[PLACE_KUBELET] && !d->is[PLACE_CONTAINERD];
	bool bad = d->mount.read_only && (!root_only || m->root_was_writable);
	struct observation *o;

	if (root_only && !d->mount.read_only)
		m->root_was_writable = true;
	o = run_observe(r, LAYER_HOST, "mount", d->mount.point,
	                bad                  ? OUTCOME_DENIED
	                : d->mount.read_only ? OUTCOME_SKIPPED
	                                     : OUTCOME_OK,
	                0);
	observation_text(o, "type", "%s", d->mount.type);
	observation_detail(o, "%s is %s%s", d->mount.type,
	                   d->mount.read_only ? "read-only" : "writable",
	                   d->mount.read_only && !bad ? " by design" : "");
}

static void look_at_disks(struct run *r)
{
	struct state *s = run_state(r);
	struct disk_of_node disks[_PLACE_MAX];
	struct statvfs v;
	size_t n = 0;
	int e;

	if (!s->mounts) {
		observation_detail(
			run_observe(r, LAYER_HOST, "disk", "", OUTCOME_UNKNOWN, -s->mounts_error),
			"cannot tell: no mountinfo to read: %s", strerrordesc_np(-s->mounts_error));
		return;
	}
	for (size_t i = 0; i < _PLACE_MAX; i++) {
		struct mount m;
		size_t k = 0;

		if (!mount_of(s->mounts, places[i], &m) || !is_disk(&m))
			continue;
		while (k < n && strcmp(disks[k].mount.point, m.point) != 0)
			k++;
		if (k == n)
			disks[n++] = (struct disk_of_node){.mount = m};
		disks[k].is[i] = true;
	}
	for (size_t k = 0; k < n; k++) {
		observe_writable(r, &disks[k]);
		if (disks[k].mount.read_only)
			continue;
		e = file_statvfs(run_files(r), disks[k].mount.point, &v);
		if (e == 0 && v.f_blocks > 0)
			observe_space(r, &disks[k], &v);
		else
			observation_detail(run_observe(r, LAYER_HOST, "disk", disks[k].mount.point,
			                               OUTCOME_UNKNOWN, -e),
			                   "cannot tell: statvfs: %s", strerrordesc_np(-e));
	}
}

/* ---- a data volume that is expected and not there ---- */

/* fstab: the second field of a line that is no comment, without noauto. */
static bool fstab_names(const char *text, const char *path)
{
	size_t want = strlen(path), n;

	for (const char *p = text; p; p = next_line(p)) {
		const char *end = p + strcspn(p, "\n#"), *at;

		/* tabs separate too */
		at = p + strspn(p, " \t");
		at += strcspn(at, " \t\n#");
		at += strspn(at, " \t");
		n = strcspn(at, " \t\n#");
		if (at >= end || n != want || strncmp(at, path, n) != 0)
			continue;
		for (at += n; at + 6 <= end; at++)
			if (strncmp(at, "noauto", 6) == 0)
				break;
		if (at + 6 > end)
			return true;
	}
	return false;
}

static bool unit_names(struct run *r, const char *unit)
{
	static const char *const targets[] = {"local-fs.target", "multi-user.target"};
	char path[PATH_BYTES];
	struct stat st;

	(void) text_format(path, sizeof(path), "/etc/systemd/system/%s", unit);
	if (file_stat(run_files(r), path, &st) < 0)
		return false;
	for (size_t i = 0; i < ELEMENTS(targets); i++) {
		(void) text_format(path, sizeof(path), "/etc/systemd/system/%s.wants/%s",
		                   targets[i], unit);
		if (file_stat(run_files(r), path, &st) == 0)
			return true;
	}
	return false;
}

static void look_at_volumes(struct run *r)
{
	static const struct {
		const char *path, *unit;
	} volumes[] = {{"/var/lib/containerd", "var-lib-containerd.mount"},
	               {"/var/lib/kubelet", "var-lib-kubelet.mount"}};
	const struct state *s = run_state(r);
	const char *fstab = text_of(r, "/etc/fstab", NULL);
	struct observation *o;
	struct mount m;

	for (size_t i = 0; i < ELEMENTS(volumes) && s->mounts; i++) {
		bool by_fstab = fstab && fstab_names(fstab, volumes[i].path);
		bool here;

		if (!by_fstab && !unit_names(r, volumes[i].unit))
			continue;
		here = mount_of(s->mounts, volumes[i].path, &m) &&
		       strcmp(m.point, volumes[i].path) == 0;
		o = run_observe(r, LAYER_HOST, "data-volume", volumes[i].path,
		                here ? OUTCOME_OK : OUTCOME_ABSENT, 0);
		observation_text(o, "expected_by", "%s", by_fstab ? "/etc/fstab" : volumes[i].unit);
		if (!here)
			observation_text(o, "lies_on", "%s", m.point);
		observation_detail(o, "%s is %s", volumes[i].path,
		                   here ? "mounted" : "not mounted, which it should be");
	}
}

/* ---- disks that do not answer ---- */

/* Whole disks: nvme0n1, xvda, sda, vda. */
static bool is_whole(const char *name)
{
	size_t n = strlen(name);

	if (strncmp(name, "nvme", 4) == 0)
		return !strchr(name + 4, 'p') && strchr(name + 4, 'n');
	return (strncmp(name, "xvd", 3) == 0 || strncmp(name, "sd", 2) == 0 ||
	        strncmp(name, "vd", 2) == 0) &&
	       n > 0 && (name[n - 1] < '0' || name[n - 1] > '9');
}

static void take_disks(struct run *r, struct sample *now)
{
	const char *text = text_of(r, "/proc/diskstats", NULL);

	for (const char *p = text; p && *p && now->n_disks < DISKS_MAX; p = next_line(p)) {
		struct disk d = {0};
		uint64_t reads, writes;

		if (sscanf(p,
		           "%*u %*u %31s %" SCNu64 " %*u %*u %*u %" SCNu64 " %*u %*u %*u %" SCNu64
		           " %" SCNu64,
		           d.name, &reads, &writes, &d.in_flight, &d.busy_ms) != 5 ||
		    !is_whole(d.name))
			continue;
		d.done = reads + writes;
		now->disks[now->n_disks++] = d;
	}
}

struct busiest {
	const char *name;
	unsigned percent;
	bool stuck;
};

static struct busiest busiest(const struct sample *before, const struct sample *now)
{
	struct busiest b = {.name = ""};
	uint64_t ms = before->at ? (now->at - before->at) / USEC_PER_MSEC : 0;

	for (size_t i = 0; i < now->n_disks && ms > 0; i++)
		for (size_t k = 0; k < before->n_disks; k++) {
			const struct disk *d = &now->disks[i], *o = &before->disks[k];
			uint64_t busy = d->busy_ms > o->busy_ms ? d->busy_ms - o->busy_ms : 0;
			unsigned share = busy >= ms ? 100 : (unsigned) (busy * 100 / ms);
			bool stuck = d->in_flight > 0 && o->in_flight > 0 && d->done == o->done &&
			             now->at - before->at >= WINDOW_MIN;

			if (strcmp(d->name, o->name) != 0 || b.stuck ||
			    (!stuck && b.name[0] && share <= b.percent))
				continue;
			b = (struct busiest){d->name, share, stuck};
		}
	return b;
}

static void look_at_io(struct run *r)
{
	const struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	const char *psi = text_of(r, "/proc/pressure/io", NULL);
	const char *stat = text_of(r, "/proc/stat", NULL);
	struct busiest b = busiest(&m->base, &s->now);
	struct pressure p = {0};
	uint64_t blocked = 0;
	struct observation *o;
	bool stalled;

	if (!psi || !read_pressure(psi, &p)) {
		o = run_observe(r, LAYER_HOST, "io", "", OUTCOME_UNKNOWN, 0);
		observation_detail(o, "cannot tell: this kernel has no /proc/pressure");
		return;
	}
	if (stat)
		(void) number_of(stat, "procs_blocked", &blocked);
	stalled = p.avg10 >= IO_FULL_10 && p.avg60 >= IO_FULL_60 && p.avg300 >= IO_FULL_300 &&
	          blocked >= IO_BLOCKED_MIN;
	stalled = stalled || (b.stuck && blocked > 0 && p.avg60 >= IO_STUCK_FULL);
	o = run_observe(r, LAYER_HOST, "io", stalled ? b.name : "",
	                stalled ? OUTCOME_EXHAUSTED : OUTCOME_OK, 0);
	observation_number(o, "psi_full_avg60", p.avg60);
	observation_number(o, "tasks_in_d", (int64_t) blocked);
	if (b.name[0])
		observation_number(o, "busy_percent", b.percent);
	if (b.stuck)
		observation_number(o, "completed", 0);
	observation_detail(o, "PSI io full avg60 %u %%, %" PRIu64 " tasks blocked", p.avg60,
	                   blocked);
}

/* ---- limits of the kernel ---- */

static void observe_limit(struct run *r, const char *aspect, const char *what, uint64_t used,
                          uint64_t max, bool bad)
{
	struct observation *o =
		run_observe(r, LAYER_HOST, aspect, "", bad ? OUTCOME_EXHAUSTED : OUTCOME_OK, 0);

	observation_number(o, "count", (int64_t) (used > INT64_MAX ? INT64_MAX : used));
	observation_number(o, "max", (int64_t) (max > INT64_MAX ? INT64_MAX : max));
	observation_detail(o, "%" PRIu64 " of %" PRIu64 " %s", used, max, what);
}

/* All threads of the node: the second number of "running/all" in loadavg. */
static void look_at_pids(struct run *r)
{
	uint64_t all, pid_max, threads_max;
	char line[128], *slash;

	if (file_read_line(run_files(r), "/proc/loadavg", line, sizeof(line)) < 0 ||
	    !(slash = strchr(line, '/')) || !number_in(r, "/proc/sys/kernel/pid_max", &pid_max) ||
	    !number_in(r, "/proc/sys/kernel/threads-max", &threads_max)) {
		observation_detail(run_observe(r, LAYER_HOST, "pids", "", OUTCOME_UNKNOWN, 0),
		                   "cannot tell: no pid_max or loadavg to read");
		return;
	}
	all = strtoull(slash + 1, NULL, 10);
	if (threads_max < pid_max)
		pid_max = threads_max;
	observe_limit(r, "pids", "threads", all, pid_max, percent(all, pid_max) >= LIMIT_PERCENT);
}

static void look_at_files(struct run *r)
{
	uint64_t used, max;
	char line[128];

	if (file_read_line(run_files(r), "/proc/sys/fs/file-nr", line, sizeof(line)) < 0 ||
	    sscanf(line, "%" SCNu64 " %*u %" SCNu64, &used, &max) != 2) {
		observation_detail(run_observe(r, LAYER_HOST, "files", "", OUTCOME_UNKNOWN, 0),
		                   "cannot tell: no file-nr to read");
		return;
	}
	observe_limit(r, "files", "open files", used, max, percent(used, max) >= LIMIT_PERCENT);
}

/* What containers of root and the kubelet share. */
static void look_at_watches(struct run *r)
{
	int e = file_watches_left();
	bool bad = e == -EMFILE || e == -ENOSPC;
	const char *limit = e == -EMFILE ? "max_user_instances" : "max_user_watches";
	char path[PATH_BYTES];
	struct observation *o;
	uint64_t max;

	o = run_observe(r, LAYER_HOST, "inotify", "",
	                bad           ? OUTCOME_EXHAUSTED
	                : e == -EPERM ? OUTCOME_SKIPPED
	                : e < 0       ? OUTCOME_UNKNOWN
	                              : OUTCOME_OK,
	                -e);
	if (!bad) {
		observation_detail(o, "%s%s",
		                   e == -EPERM ? "only root can see whether root is given more"
		                   : e < 0     ? "cannot tell: "
		                               : "one more instance and watch were given",
		                   e == -EPERM || !e ? "" : strerrordesc_np(-e));
		return;
	}
	observation_text(o, "limit", "%s", limit);
	(void) text_format(path, sizeof(path), "/proc/sys/fs/inotify/%s", limit);
	if (number_in(r, path, &max))
		observation_number(o, "max", (int64_t) (max > INT64_MAX ? INT64_MAX : max));
	observation_detail(o, "root is at fs.inotify.%s", limit);
}

/* ---- connections and neighbours ---- */

static bool conntrack_is_full(struct run *r, uint64_t *ret_count, uint64_t *ret_max)
{
	return number_in(r, "/proc/sys/net/netfilter/nf_conntrack_count", ret_count) &&
	       number_in(r, "/proc/sys/net/netfilter/nf_conntrack_max", ret_max) && *ret_max > 0 &&
	       percent(*ret_count, *ret_max) >= CONNTRACK_PERCENT;
}

static void take_drops(struct run *r, struct sample *now)
{
	static const char *const caches[] = {"/proc/net/stat/arp_cache",
	                                     "/proc/net/stat/ndisc_cache"};
	const char *text = text_of(r, "/proc/net/stat/nf_conntrack", NULL);
	uint64_t early = 0;

	now->has_drops = text && column_of(text, "drop", false, &now->conntrack_drops);
	if (now->has_drops && column_of(text, "early_drop", false, &early))
		now->conntrack_drops += early;
	for (size_t i = 0; i < ELEMENTS(caches); i++) {
		text = text_of(r, caches[i], NULL);
		now->has_fulls[i] =
			text && column_of(text, "table_fulls", false, &now->table_fulls[i]);
	}
}

static uint64_t rise(bool known, uint64_t before, uint64_t now)
{
	return known && now > before ? now - before : 0;
}

static void look_at_conntrack(struct run *r)
{
	const struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	uint64_t count = 0, max = 0, drops;
	bool full = conntrack_is_full(r, &count, &max);
	struct observation *o;

	if (max == 0) {
		observation_detail(run_observe(r, LAYER_HOST, "conntrack", "", OUTCOME_SKIPPED, 0),
		                   "no connection is tracked");
		return;
	}
	drops = rise(m->base.at && m->base.has_drops && s->now.has_drops, m->base.conntrack_drops,
	             s->now.conntrack_drops);
	o = run_observe(r, LAYER_HOST, "conntrack", "",
	                full && drops > 0 ? OUTCOME_EXHAUSTED : OUTCOME_OK, 0);
	observation_number(o, "count", (int64_t) count);
	observation_number(o, "max", (int64_t) max);
	observation_number(o, "drops", (int64_t) drops);
	observation_detail(o, "%" PRIu64 " of %" PRIu64 " connections tracked, %" PRIu64 " drops",
	                   count, max, drops);
}

static bool neighbours(struct run *r, size_t family, uint64_t *ret_count, uint64_t *ret_max)
{
	static const char *const paths[][2] = {
		{"/proc/net/stat/arp_cache", "/proc/sys/net/ipv4/neigh/default/gc_thresh3"},
		{"/proc/net/stat/ndisc_cache", "/proc/sys/net/ipv6/neigh/default/gc_thresh3"}};
	const char *text = text_of(r, paths[family][0], NULL);

	/* each line has the number of all processors */
	return text && column_of(text, "entries", true, ret_count) &&
	       number_in(r, paths[family][1], ret_max) && *ret_max > 0;
}

static bool neighbours_are_full(struct run *r)
{
	uint64_t count, max;

	for (size_t i = 0; i < 2; i++)
		if (neighbours(r, i, &count, &max) && percent(count, max) >= LIMIT_PERCENT)
			return true;
	return false;
}

/* The number alone says nothing: the permanent entry that the CNI puts into each pod's namespace is
 * among them, and is not held against the limit. */
static void look_at_neighbours(struct run *r)
{
	static const char *const names[] = {"ipv4", "ipv6"};
	const struct state *s = run_state(r);
	const struct memory *m = run_memory(r);

	for (size_t i = 0; i < 2; i++) {
		uint64_t count, max, fulls;
		struct observation *o;
		bool bad;

		if (!neighbours(r, i, &count, &max))
			continue;
		fulls = rise(m->base.at && m->base.has_fulls[i] && s->now.has_fulls[i],
		             m->base.table_fulls[i], s->now.table_fulls[i]);
		bad = fulls > 0 && percent(count, max) >= LIMIT_PERCENT;
		o = run_observe(r, LAYER_HOST, "neighbour", names[i],
		                bad ? OUTCOME_EXHAUSTED : OUTCOME_OK, 0);
		observation_number(o, "count", (int64_t) count);
		observation_number(o, "max", (int64_t) max);
		observation_number(o, "refused", (int64_t) fulls);
		observation_detail(o, "%" PRIu64 " of %" PRIu64 " neighbours", count, max);
	}
}

/* ---- what ENA shapes ---- */

static void take_counter(const char *name, uint64_t value, void *userdata)
{
	struct nic *n = userdata;

	for (size_t i = 0; i < _COUNTER_MAX; i++)
		if (strcmp(name, counters[i].name) == 0) {
			n->present[i] = true;
			n->value[i] = value;
		}
}

static void take_nics(struct run *r, struct sample *now)
{
	const struct net *net = NULL;

	if (run_net(r, USEC_INFINITY, &net) < 0 || !net)
		return;
	for (size_t i = 0; i < net->n_links && now->n_nics < NICS_MAX; i++) {
		const struct net_link *l = &net->links[i];
		struct nic *n = &now->nics[now->n_nics];

		if (l->kind[0] || !l->mac[0] ||
		    (strcmp(l->bus, "pci") != 0 && strcmp(l->bus, "vif") != 0))
			continue;
		*n = (struct nic){0};
		(void) text_format(n->name, sizeof(n->name), "%s", l->name);
		if (ethtool_read(l->name, take_counter, n) == 0 && n->present[PPS])
			now->n_nics++;
	}
}

static const struct nic *nic_of(const struct sample *s, const char *name)
{
	for (size_t i = 0; i < s->n_nics; i++)
		if (strcmp(s->nics[i].name, name) == 0)
			return &s->nics[i];
	return NULL;
}

static uint64_t nic_rise(const struct memory *m, const struct nic *n, enum counter c)
{
	const struct nic *before = m->base.at ? nic_of(&m->base, n->name) : NULL;

	return rise(before && before->present[c] && n->present[c], before ? before->value[c] : 0,
	            n->value[c]);
}

/* A new window begins: which counters rose through the one that ends. */
static void count_windows(struct memory *m, const struct sample *now)
{
	for (size_t i = 0; i < now->n_nics; i++) {
		const struct nic *n = &now->nics[i];

		if (strcmp(m->rising[i].name, n->name) != 0) {
			memset(&m->rising[i], 0, sizeof(m->rising[i]));
			(void) text_format(m->rising[i].name, sizeof(m->rising[i].name), "%s",
			                   n->name);
		}
		for (enum counter c = 0; c < _COUNTER_MAX; c++) {
			uint64_t least = c == CONNTRACK ? 1 : ENA_RISE_MIN;

			if (nic_rise(m, n, c) >= least)
				m->rising[i].windows[c]++;
			else
				m->rising[i].windows[c] = 0;
		}
	}
}

/* Link-local packets that are dropped matter once metadata or DNS fail; the others once they go on
 * for minutes. */
static void look_at_nics(struct run *r)
{
	const struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	bool failing = m->failing_at && run_now(r) < m->failing_at + FAILING_VALID;
	usec_t window = m->base.at ? s->now.at - m->base.at : 0;

	for (size_t i = 0; i < s->now.n_nics; i++) {
		const struct nic *n = &s->now.nics[i];
		enum counter worst = _COUNTER_MAX;
		char subject[SUBJECT_MAX];
		struct observation *o;

		(void) text_format(subject, sizeof(subject), "%s", n->name);
		for (enum counter c = 0; c < LINKLOCAL; c++)
			if (m->rising[i].windows[c] >= ENA_WINDOWS_MIN)
				worst = c;
		if (failing && nic_rise(m, n, LINKLOCAL) > 0)
			worst = LINKLOCAL;
		if (worst < LINKLOCAL)
			(void) text_append(subject, sizeof(subject), " %s",
			                   counters[worst].subject);
		o = run_observe(r, LAYER_HOST, "ena", subject,
		                worst < _COUNTER_MAX ? OUTCOME_EXHAUSTED : OUTCOME_OK, 0);
		if (worst == _COUNTER_MAX) {
			observation_detail(o, "no allowance is exceeded for long");
			continue;
		}
		observation_text(o, "counter", "%s", counters[worst].name);
		observation_text(o, "interface", "%s", n->name);
		observation_number(o, "rise", (int64_t) nic_rise(m, n, worst));
		observation_number(o, "window_s", (int64_t) (window / USEC_PER_SEC));
		observation_detail(o, "%s of %s rises", counters[worst].name, n->name);
	}
}

/* ---- SELinux ---- */

/* avc:  denied  { read } for  pid=1 comm="nodeadm" ... permissive=0 */
static bool read_denial(const char *line, char ret[static NAME_BYTES])
{
	static const char *const names[] = {"nodeadm", "containerd", "kubelet"};
	const char *p = strstr(line, "avc:  denied");
	size_t n;

	p = p && !strstr(p, "permissive=1") ? strstr(p, " comm=\"") : NULL;
	if (!p)
		return false;
	p += strlen(" comm=\"");
	n = strcspn(p, "\"");
	for (size_t i = 0; i < ELEMENTS(names); i++) {
		size_t len = strlen(names[i]);

		/* the kernel keeps 15 bytes; nodeadm has helpers of its own */
		if (strncmp(p, names[i], len) != 0 || n >= NAME_BYTES || (i > 0 && n != len))
			continue;
		memcpy(ret, names[i], len + 1);
		return true;
	}
	return false;
}

static void on_line(struct run *r, const struct journal_entry *e, uintptr_t tag)
{
	struct memory *m = run_memory(r);
	char name[NAME_BYTES];

	if (!read_denial(e->message, name))
		return;
	m->denials++;
	m->denied_at = run_from_monotonic(r, e->at);
	m->nodeadm_denied = m->nodeadm_denied || strcmp(name, "nodeadm") == 0;
	memcpy(m->denied, name, sizeof(name));
}

static void observe_denials(struct run *r)
{
	const struct state *s = run_state(r);
	const struct memory *m = run_memory(r);
	/* bootstrap is not tried again: what denied it stays the reason until the node has joined
	 */
	bool lasting = m->nodeadm_denied && run_node(r)->registered != YES;
	bool bad =
		m->denials >= DENIALS_MIN && (lasting || run_now(r) < m->denied_at + DENIAL_VALID);
	struct observation *o;

	o = run_observe(r, LAYER_HOST, "selinux", "",
	                bad                ? OUTCOME_DENIED
	                : s->journal_error ? OUTCOME_UNKNOWN
	                                   : OUTCOME_OK,
	                0);
	observation_number(o, "enforcing", 1);
	observation_number(o, "denials", m->denials);
	if (bad)
		observation_text(o, "denied", "%s", m->denied);
	if (!bad && s->journal_error)
		observation_detail(o, "SELinux is enforcing; cannot read the journal: %s",
		                   strerrordesc_np(-s->journal_error));
	else
		observation_detail(o, "SELinux is enforcing: %d denials since boot",
		                   (int) m->denials);
}

static void on_lines(struct run *r, const struct journal_end *e, uintptr_t tag)
{
	struct state *s = run_state(r);

	s->journal_error = e->error;
	observe_denials(r);
	run_end(r);
}

static void look_at_selinux(struct run *r)
{
	static const char *const none[] = {NULL};
	const struct journal_query q = {
		.units = none, .kernel = true, .entries_max = KERNEL_LINES_MAX};
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	uint64_t enforcing = 0;
	int e;

	if (!number_in(r, "/sys/fs/selinux/enforce", &enforcing) || !enforcing) {
		observation_detail(run_observe(r, LAYER_HOST, "selinux", "", OUTCOME_SKIPPED, 0),
		                   "SELinux does not enforce");
		run_end(r);
		return;
	}
	e = run_journal(r, &q, m->cursor, on_line, on_lines, 0);
	if (e == 0)
		return;
	s->journal_error = e;
	observe_denials(r);
	run_end(r);
}

/* ---- one look ---- */

static void take_sample(struct run *r, struct sample *now)
{
	*now = (struct sample){.at = run_now(r)};
	take_oom_kills(r, now);
	take_disks(r, now);
	take_drops(r, now);
	take_nics(r, now);
}

static void look(struct run *r)
{
	struct state *s = run_state(r);
	struct memory *m = run_memory(r);
	size_t len;

	take_sample(r, &s->now);
	(void) kubelet_config_read(run_files(r), on_config, &s->eviction);
	s->mounts_error = run_read(r, "/proc/1/mountinfo", MOUNTS_BYTES, &s->mounts, &len);
	look_at_memory(r);
	look_at_disks(r);
	look_at_volumes(r);
	look_at_io(r);
	look_at_pids(r);
	look_at_files(r);
	look_at_watches(r);
	look_at_conntrack(r);
	look_at_neighbours(r);
	look_at_nics(r);
	if (!m->base.at || s->now.at >= m->base.at + WINDOW_MIN) {
		count_windows(m, &s->now);
		m->base = s->now;
	}
	look_at_selinux(r); /* ends the run */
}

static void on_timer(struct run *r, uintptr_t tag)
{
	look(r);
}

/* A check has no past: where a table is full it makes one, to see whether it turns anything away.
 */
static int start(struct run *r)
{
	struct memory *m = run_memory(r);
	uint64_t count, max;

	if (run_asked(r) != CODE_NONE)
		m->failing_at = run_now(r);
	if (run_once(r) && !m->base.at &&
	    (conntrack_is_full(r, &count, &max) || neighbours_are_full(r))) {
		take_sample(r, &m->base);
		return run_timer(r, USEC_PER_SEC / 2, on_timer, 0);
	}
	look(r);
	return 0;
}

/* ---- what it means ---- */

static enum code judge_memory(const struct observation *o, char *s)
{
	int64_t kills = evidence_number(o, "oom_kills", 0);

	(void) text_format(s, SUMMARY_MAX, "%d MiB of memory available, PSI full avg60 %d %%",
	                   (int) evidence_number(o, "available_mib", 0),
	                   (int) evidence_number(o, "psi_full_avg60", 0));
	if (kills > 0)
		(void) text_append(s, SUMMARY_MAX, ", %d oom kills", (int) kills);
	if (evidence_number(o, "system_reserved", 1) == 0)
		(void) text_append(s, SUMMARY_MAX, "; no systemReserved");
	return CODE_MemoryStarved;
}

static enum code judge_disk(const struct observation *o, char *s)
{
	int64_t line = evidence_number(o, "line_mib", -1);
	int64_t total = evidence_number(o, "total_mib", -1);

	(void) text_format(s, SUMMARY_MAX, "%s: %d MiB free", o->subject,
	                   (int) evidence_number(o, "free_mib", 0));
	if (total >= 0)
		(void) text_append(s, SUMMARY_MAX, " of %d", (int) total);
	if (line >= 0)
		(void) text_append(s, SUMMARY_MAX, ", under the line of %d MiB", (int) line);
	return CODE_DiskFull;
}

static enum code judge_inodes(const struct observation *o, char *s)
{
	(void) text_format(s, SUMMARY_MAX, "%s: %" PRId64 " inodes free (%d %%), with %d MiB free",
	                   o->subject, evidence_number(o, "inodes_free", 0),
	                   (int) evidence_number(o, "inodes_free_percent", 0),
	                   (int) evidence_number(o, "free_mib", 0));
	return CODE_InodesExhausted;
}

static enum code judge_mount(const struct observation *o, char *s)
{
	(void) text_format(s, SUMMARY_MAX, "%s (%s) is read-only, and has to be written to",
	                   o->subject, evidence_get_text(o, "type"));
	return CODE_FilesystemReadOnly;
}

static enum code judge_volume(const struct observation *o, char *s)
{
	const char *by = evidence_get_text(o, "expected_by"), *on = evidence_get_text(o, "lies_on");
	int64_t failed = evidence_number(o, "failed", 0);

	(void) text_format(s, SUMMARY_MAX, "%s is not mounted", o->subject);
	if (by[0])
		(void) text_append(s, SUMMARY_MAX, ", as %s asks for", by);
	if (on[0])
		(void) text_append(s, SUMMARY_MAX, "; it lies on %s", on);
	if (failed > 0)
		(void) text_append(s, SUMMARY_MAX, "; %d of %d creates failed", (int) failed,
		                   (int) evidence_number(o, "creates", failed));
	return CODE_DataVolumeMissing;
}

static enum code judge_io(const struct observation *o, char *s)
{
	int64_t busy = evidence_number(o, "busy_percent", -1);

	(void) text_format(s, SUMMARY_MAX, "PSI io full avg60 %d %%, %d tasks wait for a disk",
	                   (int) evidence_number(o, "psi_full_avg60", 0),
	                   (int) evidence_number(o, "tasks_in_d", 0));
	if (busy >= 0)
		(void) text_append(s, SUMMARY_MAX, ", %s busy %d %%",
		                   o->subject[0] ? o->subject : "one", (int) busy);
	if (evidence_number(o, "completed", 1) == 0)
		(void) text_append(s, SUMMARY_MAX, " and completes nothing");
	return CODE_DiskStalled;
}

static enum code count_of_max(const struct observation *o, char *s, const char *what, enum code c)
{
	(void) text_format(s, SUMMARY_MAX, "%" PRId64 " of %" PRId64 " %s",
	                   evidence_number(o, "count", 0), evidence_number(o, "max", 0), what);
	return c;
}

static enum code judge_pids(const struct observation *o, char *s)
{
	return count_of_max(o, s, "threads that the node may have", CODE_PidsExhausted);
}

static enum code judge_files(const struct observation *o, char *s)
{
	return count_of_max(o, s, "open files that the node may have", CODE_FileHandlesExhausted);
}

static enum code judge_inotify(const struct observation *o, char *s)
{
	int64_t max = evidence_number(o, "max", -1);

	(void) text_format(s, SUMMARY_MAX, "the kernel gives root no more inotify %s: ",
	                   o->code == ENOSPC ? "watches" : "instances");
	(void) text_append(s, SUMMARY_MAX, "fs.inotify.%s is reached",
	                   evidence_get_text(o, "limit"));
	if (max >= 0)
		(void) text_append(s, SUMMARY_MAX, " (%" PRId64 ")", max);
	return CODE_InotifyExhausted;
}

static enum code judge_conntrack(const struct observation *o, char *s)
{
	(void) count_of_max(o, s, "connections tracked", CODE_ConntrackFull);
	(void) text_append(s, SUMMARY_MAX, ", %" PRId64 " dropped meanwhile",
	                   evidence_number(o, "drops", 0));
	return CODE_ConntrackFull;
}

static enum code judge_neighbour(const struct observation *o, char *s)
{
	(void) count_of_max(o, s, "neighbours (gc_thresh3)", CODE_NeighbourTableFull);
	(void) text_append(s, SUMMARY_MAX, ", %s, %" PRId64 " refused meanwhile", o->subject,
	                   evidence_number(o, "refused", 0));
	return CODE_NeighbourTableFull;
}

static enum code judge_ena(const struct observation *o, char *s)
{
	const char *counter = evidence_get_text(o, "counter");
	const char *interface = evidence_get_text(o, "interface");
	bool local = strcmp(counter, counters[LINKLOCAL].name) == 0;

	(void) text_format(s, SUMMARY_MAX, "%s of %s rose by %" PRId64 " in %d s%s", counter,
	                   interface[0] ? interface : o->subject, evidence_number(o, "rise", 0),
	                   (int) evidence_number(o, "window_s", 0),
	                   local ? ", while metadata or DNS fail" : ", for minutes");
	return local ? CODE_LinkLocalThrottled : CODE_EnaAllowanceExceeded;
}

static enum code judge_selinux(const struct observation *o, char *s)
{
	const char *who = evidence_get_text(o, "denied");

	(void) text_format(s, SUMMARY_MAX, "SELinux is enforcing and has denied %d times%s%s",
	                   (int) evidence_number(o, "denials", 0), who[0] ? ", last " : "", who);
	return CODE_SelinuxDenied;
}

static enum code judge(const struct observation *o, struct words *ret)
{
	static const struct {
		const char *aspect;
		enum code (*judge)(const struct observation *o, char *s);
	} table[] = {{"memory", judge_memory},       {"disk", judge_disk},
	             {"inodes", judge_inodes},       {"mount", judge_mount},
	             {"data-volume", judge_volume},  {"io", judge_io},
	             {"pids", judge_pids},           {"files", judge_files},
	             {"inotify", judge_inotify},     {"conntrack", judge_conntrack},
	             {"neighbour", judge_neighbour}, {"ena", judge_ena},
	             {"selinux", judge_selinux}};

	if (o->outcome == OUTCOME_OK || o->outcome == OUTCOME_SKIPPED ||
	    o->outcome == OUTCOME_UNKNOWN)
		return CODE_NONE;
	for (size_t i = 0; i < ELEMENTS(table); i++)
		if (strcmp(o->aspect, table[i].aspect) == 0)
			return table[i].judge(o, ret->summary);
	return CODE_NONE;
}

const struct probe probe_host = {
	.name = "host",
	.what = "memory, disks, mounts, limits of the kernel, what ENA drops, SELinux",
	.layer = LAYER_HOST,
	.every = 15 * USEC_PER_SEC,
	.timeout = 5 * USEC_PER_SEC,
	.state_size = sizeof(struct state),
	.memory_size = sizeof(struct memory),
	.watch = {"/etc/fstab"},
	/* what link-local packets that are dropped break: counters are read while it lasts */
	.asked_by = {CODE_ImdsUnreachable, CODE_ImdsTokenTimeout, CODE_ImdsSlow,
                     CODE_ResolverUnreachable},
	.ask_every = 10 * USEC_PER_SEC,
	.grace = 120 * USEC_PER_SEC, /* mounts come, caches fill, images are unpacked */
	.start = start,
	.judge = judge,
	.codes = {CODE_MemoryStarved, CODE_DiskFull, CODE_InodesExhausted, CODE_FilesystemReadOnly,
                  CODE_DiskStalled, CODE_DataVolumeMissing, CODE_PidsExhausted,
                  CODE_FileHandlesExhausted, CODE_InotifyExhausted, CODE_ConntrackFull,
                  CODE_NeighbourTableFull, CODE_EnaAllowanceExceeded, CODE_LinkLocalThrottled,
                  CODE_SelinuxDenied},
};
