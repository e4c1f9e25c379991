/* SPDX-License-Identifier: Apache-2.0 */
/* The host probe on pictures of /proc below a root of this test's own. */
#define run_asked          fake_asked
#define run_timer          fake_timer
#define run_journal        fake_journal
#define run_from_monotonic fake_from_monotonic
#define ethtool_read       fake_ethtool
#define file_statvfs       fake_statvfs
#define file_watches_left  fake_watches_left
#define probe_host         tested_host

#include "../fakerun.h"

#include "../../probes/host.c"

#include <ftw.h>

#include "../tap.h"

static struct world {
	enum code asked;
	run_timer_t timer;
	run_line_t line;
	run_lines_t lines_done;
	int journal_error;
	uint64_t allowance[_COUNTER_MAX];
	struct statvfs root, data;
	int watches;
} w;

static char base[64];

enum code fake_asked(const struct run *r)
{
	return w.asked;
}

int fake_timer(struct run *r, usec_t after, run_timer_t done_cb, uintptr_t tag)
{
	w.timer = done_cb;
	return 0;
}

usec_t fake_from_monotonic(const struct run *r, usec_t monotonic)
{
	return monotonic;
}

int fake_journal(struct run *r, const struct journal_query *q,
                 char cursor[static JOURNAL_CURSOR_MAX], run_line_t line, run_lines_t done_cb,
                 uintptr_t tag)
{
	w.line = line;
	w.lines_done = done_cb;
	return 0;
}

int fake_ethtool(const char *interface, ethtool_counter_t each, void *userdata)
{
	if (strcmp(interface, "ens5") != 0)
		return -EOPNOTSUPP;
	each("tx_timeout", 7, userdata);
	for (size_t i = 0; i < _COUNTER_MAX; i++)
		each(counters[i].name, w.allowance[i], userdata);
	return 0;
}

int fake_statvfs(const struct files *f, const char *path, struct statvfs *ret)
{
	*ret = strcmp(path, "/") == 0 ? w.root : w.data;
	return 0;
}

int fake_watches_left(void)
{
	return w.watches;
}

/* ---- the tree ---- */

static _printf_(2, 3) void put(const char *path, const char *format, ...)
{
	char full[512];
	va_list ap;
	FILE *f;

	(void) text_format(full, sizeof(full), "%s%s", base, path);
	for (char *p = full + strlen(base) + 1; (p = strchr(p, '/')); p++) {
		*p = 0;
		(void) mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "we");
	va_start(ap, format);
	if (!f || vfprintf(f, format, ap) < 0 || fclose(f) != 0)
		printf("# cannot write %s\n", full);
	va_end(ap);
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
	return remove(path);
}

static void drop(const char *path)
{
	char full[512];

	(void) text_format(full, sizeof(full), "%s%s", base, path);
	(void) nftw(full, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

#define PSI(a, b, c)                                                                               \
	"some avg10=90.00 avg60=90.00 avg300=90.00 total=1\n"                                      \
	"full avg10=" #a ".99 avg60=" #b ".00 avg300=" #c ".42 total=50718073\n"
#define ROOT_MOUNT                                                                                 \
	"22 27 0:21 / /proc rw,relatime - proc proc rw\n"                                          \
	"27 1 259:1 / / ro,noatime shared:1 master:2 - xfs /dev/nvme0n1p1 rw,seclabel\n"           \
	"30 27 0:40 / /var/lib/kubelet/pods/x\\040y rw - tmpfs tmpfs rw\n"
#define DATA_MOUNT "31 27 259:4 / /var/lib/containerd rw,noatime - ext4 /dev/nvme1n1 rw\n"

static void put_conntrack(unsigned count, unsigned drops)
{
	put("/proc/sys/net/netfilter/nf_conntrack_count", "%u\n", count);
	put("/proc/1/net/stat/nf_conntrack",
	    "entries  clashres found insert_failed drop early_drop icmp_error\n"
	    "00000010  00000000 00000000 00000000 %08x 00000001 00000000\n"
	    "00000010  00000000 00000000 00000000 00000001 00000001 00000000\n",
	    drops);
}

static void put_arp(unsigned entries, unsigned fulls)
{
	put("/proc/1/net/stat/arp_cache",
	    "entries  allocs   destroys table_fulls\n"
	    "%08x  00000000 00000000 %08x\n%08x  00000000 00000000 00000000\n",
	    entries, fulls, entries);
}

static void put_disk(unsigned done, unsigned in_flight, unsigned busy_ms)
{
	put("/proc/diskstats",
	    " 259 1 nvme0n1p1 9 0 0 0 9 0 0 0 9 9 9\n"
	    " 259 0 nvme0n1 %u 0 8 0 5 0 8 0 %u %u 0 0 0 0 0 0 0\n",
	    done, in_flight, busy_ms);
}

static void sound(void)
{
	const uint64_t gib_ = UINT64_C(1) << 30;

	memset(&w, 0, sizeof(w));
	w.root = w.data = (struct statvfs){.f_frsize = 4096,
	                                   .f_blocks = 20 * gib_ / 4096,
	                                   .f_bavail = 12 * gib_ / 4096,
	                                   .f_files = 10000000,
	                                   .f_ffree = 9300000};
	put("/proc/meminfo",
	    "MemTotal:        7968768 kB\nMemFree: 1 kB\nMemAvailable:    5662720 kB\n");
	put("/proc/vmstat", "pgpgin 5\noom_kill 3\n");
	put("/proc/pressure/memory", PSI(0, 0, 0));
	put("/proc/pressure/io", PSI(0, 0, 0));
	put("/proc/stat", "cpu 1 2\nprocs_running 1\nprocs_blocked 0\n");
	put("/proc/loadavg", "0.00 0.01 0.05 1/250 12345\n");
	put("/proc/sys/kernel/pid_max", "32768\n");
	put("/proc/sys/kernel/threads-max", "60000\n");
	put("/proc/sys/fs/file-nr", "1401\t0\t9223372036854775807\n");
	put("/proc/1/mountinfo", ROOT_MOUNT);
	put("/proc/sys/net/netfilter/nf_conntrack_max", "1000\n");
	put("/proc/sys/net/ipv4/neigh/default/gc_thresh3", "1024\n");
	put("/etc/fstab", "UUID=1 / xfs defaults 0 0\n");
	put("/etc/kubernetes/kubelet/config.json",
	    "{\"evictionHard\": {\"memory.available\": \"100Mi\", \"nodefs.available\": \"10%%\", "
	    "\"nodefs.inodesFree\": \"5%%\"}, \"kubeReserved\": {\"memory\": \"1Gi\"}}");
	put_conntrack(10, 0);
	put_arp(4, 0);
	put_disk(100, 0, 50);
	drop("/sys/fs/selinux");
}

/* One look, so long after the last. */
static void look_after(struct run *r, usec_t after)
{
	int e;

	r->now += after;
	w.timer = NULL;
	w.lines_done = NULL;
	e = fake_run(r, &tested_host);
	if (w.timer) {
		r->now += USEC_PER_SEC / 2;
		w.timer(r, 0);
	}
	if (w.lines_done) {
		struct journal_end end = {.error = w.journal_error};

		w.lines_done(r, &end, 0);
	}
	ok(e == 0 && r->ended);
}

/* Exactly this code of all observations. */
static bool only(const struct run *r, enum code code)
{
	struct words words;
	bool seen = false;

	for (size_t i = 0; i < r->n_seen; i++) {
		enum code c = tested_host.judge(&r->seen[i], &words);

		if (c != CODE_NONE)
			printf("# %s: %s\n", cause_of(c)->name, words.summary);
		if (c != CODE_NONE && c != code)
			return false;
		seen = seen || (c != CODE_NONE && c == code);
	}
	return seen || code == CODE_NONE;
}

static bool is(const struct run *r, const char *aspect, enum outcome outcome)
{
	const struct observation *o = fake_find(r, aspect, NULL);

	if (o && o->outcome == outcome)
		return true;
	printf("# %s: %s\n", aspect, o ? outcome_name(o->outcome) : "not seen");
	return false;
}

#define WINDOW (15 * USEC_PER_SEC)

static void fresh(struct run *r)
{
	fake_free(r);
	sound();
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
}

static void test_memory(struct run *r)
{
	fresh(r);
	ok(is(r, "memory", OUTCOME_OK) &&
	   evidence_number(fake_find(r, "memory", ""), "available_mib", 0) == 5530);
	/* one container at its own limit: pressed, and killed in it, but the node has memory */
	put("/proc/pressure/memory", PSI(80, 71, 60));
	put("/proc/vmstat", "oom_kill 30\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	put("/proc/meminfo", "MemTotal: 7968768 kB\nMemAvailable: 38912 kB\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_MemoryStarved));
	ok(evidence_number(fake_find(r, "memory", ""), "system_reserved", 1) == 0);
	/* without a way to see pressure: only that the kernel kills, now */
	drop("/proc/pressure");
	look_after(r, WINDOW);
	ok(is(r, "memory", OUTCOME_OK));
	put("/proc/vmstat", "oom_kill 34\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_MemoryStarved) &&
	   evidence_number(fake_find(r, "memory", ""), "oom_kills", 0) == 4);
	drop("/proc/meminfo");
	look_after(r, WINDOW);
	ok(is(r, "memory", OUTCOME_UNKNOWN) && only(r, CODE_NONE));
}

static void test_disks(struct run *r)
{
	fresh(r);
	ok(fake_find(r, "disk", "/")->outcome == OUTCOME_OK && !fake_find(r, "disk", "/proc"));
	w.root.f_bavail = w.root.f_blocks / 10 - 1;
	look_after(r, WINDOW);
	ok(only(r, CODE_DiskFull));
	w.root.f_bavail = w.root.f_blocks / 10 + 2;
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	w.root.f_ffree = w.root.f_files / 25;
	look_after(r, WINDOW);
	ok(only(r, CODE_InodesExhausted));
	w.root.f_files = w.root.f_ffree = 0; /* btrfs */
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	/* the disk of containerd is not nodefs: only its bottom counts, or imagefs */
	put("/proc/1/mountinfo", ROOT_MOUNT DATA_MOUNT);
	w.data.f_bavail = w.data.f_blocks / 20;
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE) && fake_find(r, "disk", "/var/lib/containerd"));
	put("/etc/kubernetes/kubelet/config.json",
	    "{\"evictionHard\": {\"imagefs.available\": \"2Gi\"}}");
	look_after(r, WINDOW);
	ok(only(r, CODE_DiskFull) &&
	   fake_find(r, "disk", "/var/lib/containerd")->outcome == OUTCOME_EXHAUSTED);
	w.data.f_bavail = 0;
	put("/etc/kubernetes/kubelet/config.json", "broken");
	look_after(r, WINDOW);
	ok(only(r, CODE_DiskFull));
	drop("/proc/1/mountinfo");
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE) && is(r, "disk", OUTCOME_UNKNOWN));
	/* what is no disk of this node is let alone */
	put("/proc/1/mountinfo", "27 1 0:1 / / rw - overlay overlay rw\n"
	                         "28 27 0:2 / /var/lib/kubelet rw - nfs4 a:/b rw\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE) && !fake_find(r, "disk", NULL));
}

static void test_read_only(struct run *r)
{
	fresh(r);
	/* of ROOT_MOUNT only our view is read-only, as the unit's sandbox makes it */
	ok(is(r, "mount", OUTCOME_OK));
	put("/proc/1/mountinfo", "27 1 259:1 / / rw - ext4 /dev/nvme0n1p1 ro,errors=remount-ro\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_FilesystemReadOnly));
	/* by design */
	put("/proc/1/mountinfo", "27 1 259:1 / / ro - ext4 /dev/dm-0 ro,seclabel\n"
	                         "28 27 259:2 / /var rw - xfs /dev/nvme1n1p1 rw\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE) && fake_find(r, "mount", "/")->outcome == OUTCOME_SKIPPED &&
	   fake_find(r, "disk", "/var")->outcome == OUTCOME_OK);
	/* turned, while nothing else of the node's lies on it */
	put("/proc/1/mountinfo", "27 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n"
	                         "28 27 259:2 / /var rw - xfs /dev/nvme1n1p1 rw\n");
	look_after(r, WINDOW);
	put("/proc/1/mountinfo", "27 1 259:1 / / rw - ext4 /dev/nvme0n1p1 ro\n"
	                         "28 27 259:2 / /var rw - xfs /dev/nvme1n1p1 rw\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_FilesystemReadOnly) &&
	   fake_find(r, "mount", "/")->outcome == OUTCOME_DENIED);
}

static void test_volume(struct run *r)
{
	fresh(r);
	ok(!fake_find(r, "data-volume", NULL));
	put("/etc/fstab", "# /dev/x /var/lib/containerd xfs defaults\n"
	                  "UUID=1\t/var/lib/containerd  xfs\tdefaults,nofail 0 2\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_DataVolumeMissing));
	put("/proc/1/mountinfo", ROOT_MOUNT DATA_MOUNT);
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE) && is(r, "data-volume", OUTCOME_OK));
	put("/proc/1/mountinfo", ROOT_MOUNT);
	put("/etc/fstab", "UUID=1 /var/lib/containerd xfs defaults,noauto 0 2\n"
	                  "UUID=2 /var/lib/containerd2 xfs defaults 0 2\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	/* a unit that nothing wants is nobody's wish */
	put("/etc/systemd/system/var-lib-kubelet.mount", "[Mount]\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	put("/etc/systemd/system/local-fs.target.wants/var-lib-kubelet.mount", "[Mount]\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_DataVolumeMissing) && fake_find(r, "data-volume", "/var/lib/kubelet"));
	drop("/etc/systemd");
}

static void test_io(struct run *r)
{
	fresh(r);
	/* busy for a minute, as with a large image */
	put("/proc/pressure/io", PSI(90, 75, 15));
	put("/proc/stat", "procs_blocked 11\n");
	put_disk(90000, 30, 15000);
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	put("/proc/pressure/io", PSI(90, 83, 61));
	put_disk(180000, 30, 30000);
	look_after(r, WINDOW);
	ok(only(r, CODE_DiskStalled) && fake_find(r, "io", "nvme0n1") &&
	   evidence_number(fake_find(r, "io", NULL), "busy_percent", 0) >= 99);
	put("/proc/stat", "procs_blocked 2\n");
	look_after(r, WINDOW);
	ok(is(r, "io", OUTCOME_EXHAUSTED)); /* nothing was completed since, with 30 in flight */
	ok(evidence_number(fake_find(r, "io", NULL), "completed", 1) == 0);
	put_disk(180001, 30, 45000);
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	drop("/proc/pressure");
	look_after(r, WINDOW);
	ok(is(r, "io", OUTCOME_UNKNOWN));
}

static void test_limits(struct run *r)
{
	fresh(r);
	put("/proc/loadavg", "9.00 9.01 9.05 1/31500 12345\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_PidsExhausted));
	put("/proc/sys/kernel/pid_max", "4194304\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	put("/proc/sys/kernel/threads-max", "31600\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_PidsExhausted));
	put("/proc/loadavg", "nothing");
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE) && is(r, "pids", OUTCOME_UNKNOWN));
	put("/proc/sys/fs/file-nr", "98120\t0\t98304\n");
	look_after(r, WINDOW);
	ok(only(r, CODE_FileHandlesExhausted));
}

static void test_watches(struct run *r)
{
	fresh(r);
	ok(only(r, CODE_NONE) && is(r, "inotify", OUTCOME_OK));
	put("/proc/sys/fs/inotify/max_user_instances", "128\n");
	put("/proc/sys/fs/inotify/max_user_watches", "8192\n");
	w.watches = -EMFILE;
	look_after(r, WINDOW);
	ok(only(r, CODE_InotifyExhausted) &&
	   evidence_number(fake_find(r, "inotify", ""), "max", 0) == 128);
	w.watches = -ENOSPC;
	look_after(r, WINDOW);
	ok(only(r, CODE_InotifyExhausted) &&
	   evidence_number(fake_find(r, "inotify", ""), "max", 0) == 8192);
	drop("/proc/sys/fs/inotify");
	look_after(r, WINDOW);
	ok(only(r, CODE_InotifyExhausted));
	w.watches = -EPERM; /* not root: what we are given says nothing of root */
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE) && is(r, "inotify", OUTCOME_SKIPPED));
	w.watches = -EAGAIN; /* our own limit */
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE) && is(r, "inotify", OUTCOME_UNKNOWN));
	w.watches = 0;
}

static void test_conntrack(struct run *r)
{
	fresh(r);
	put_conntrack(1000, 0);
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE)); /* full, and nothing turned away */
	put_conntrack(1000, 0x14BE);
	look_after(r, WINDOW);
	ok(only(r, CODE_ConntrackFull) &&
	   evidence_number(fake_find(r, "conntrack", ""), "drops", 0) == 0x14BE);
	put_conntrack(500, 0x24BE);
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE)); /* drops of another kind */
	/* a check makes itself a past */
	fake_free(r);
	sound();
	r->once = true;
	put_conntrack(1000, 5);
	look_after(r, WINDOW);
	ok(w.timer && only(r, CODE_NONE));
	put_conntrack(1000, 6);
	look_after(r, WINDOW);
	ok(!w.timer && only(r, CODE_ConntrackFull));
	r->once = false;
	drop("/proc/sys/net/netfilter");
	look_after(r, WINDOW);
	ok(is(r, "conntrack", OUTCOME_SKIPPED));
}

static void test_neighbours(struct run *r)
{
	fresh(r);
	put_arp(1000, 0);
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	put_arp(1000, 3);
	look_after(r, WINDOW);
	ok(only(r, CODE_NeighbourTableFull) && fake_find(r, "neighbour", "ipv4"));
	put_arp(2048, 3);
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE)); /* permanent ones of a thousand pods: nobody is refused */
	put_arp(2048, 4);
	look_after(r, WINDOW);
	ok(only(r, CODE_NeighbourTableFull));
	put_arp(30, 3);
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	fake_free(r);
	sound();
	r->once = true;
	put_arp(1000, 5);
	look_after(r, WINDOW);
	ok(w.timer && only(r, CODE_NONE));
	put_arp(1000, 6);
	look_after(r, WINDOW);
	ok(!w.timer && only(r, CODE_NeighbourTableFull));
	r->once = false;
}

static void test_ena(struct run *r)
{
	static const struct net_link links[] = {
		{.name = "lo"},
		{.name = "ens5", .mac = "02:00:00:00:00:01", .bus = "pci"},
		{.name = "ens6", .mac = "02:00:00:00:00:02", .bus = "pci"},
		{.name = "eni123", .mac = "02:00:00:00:00:03", .kind = "veth", .bus = "pci"},
	};
	static const struct net net = {.links = links, .n_links = ELEMENTS(links)};

	r->net = &net;
	fresh(r);
	ok(fake_find(r, "ena", "ens5") && !fake_find(r, "ena", "ens6"));
	/* dropped, and nothing fails */
	w.allowance[LINKLOCAL] = 4117;
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	/* something fails, and nothing is dropped */
	w.asked = CODE_ResolverUnreachable;
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	w.allowance[LINKLOCAL] += 4117;
	look_after(r, USEC_PER_SEC);
	ok(only(r, CODE_LinkLocalThrottled) &&
	   evidence_number(fake_find(r, "ena", "ens5"), "rise", 0) == 4117);
	w.asked = CODE_NONE;
	w.allowance[LINKLOCAL] += 4117;
	look_after(r, WINDOW);
	ok(only(r, CODE_LinkLocalThrottled)); /* it may still be why */
	w.allowance[LINKLOCAL] += 4117;
	look_after(r, FAILING_VALID);
	ok(only(r, CODE_NONE));
	/* bursts are normal, minutes of it are not */
	for (unsigned i = 1; i < ENA_WINDOWS_MIN; i++) {
		w.allowance[PPS] += 5000;
		look_after(r, WINDOW);
		ok(only(r, CODE_NONE));
	}
	look_after(r, WINDOW); /* one quiet window */
	for (unsigned i = 0; i < ENA_WINDOWS_MIN; i++) {
		w.allowance[PPS] += 5000;
		ok(only(r, CODE_NONE));
		look_after(r, WINDOW);
	}
	w.allowance[PPS] += 5000;
	look_after(r, WINDOW);
	ok(only(r, CODE_EnaAllowanceExceeded) && fake_find(r, "ena", "ens5 pps"));
	look_after(r, WINDOW);
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	/* a driver that was loaded anew counts from zero */
	memset(w.allowance, 0, sizeof(w.allowance));
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	r->net = NULL;
	r->net_error = -EPERM;
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE) && !fake_find(r, "ena", NULL));
	r->net_error = 0;
}

static void say(struct run *r, const char *line, unsigned times)
{
	struct journal_entry e = {.message = line, .len = strlen(line), .at = r->now};

	look_after(r, WINDOW);
	for (unsigned i = 0; i < times; i++)
		on_line(r, &e, 0);
}

static void test_selinux(struct run *r)
{
	static const char nodeadm[] =
		"audit: type=1400 audit(1.2:3): avc:  denied  { read } for  pid=9 comm=\"nodeadm\" "
		"scontext=a tcontext=b tclass=file permissive=0";

	fresh(r);
	r->net_error = -EPERM;
	ok(is(r, "selinux", OUTCOME_SKIPPED));
	put("/sys/fs/selinux/enforce", "0");
	look_after(r, WINDOW);
	ok(is(r, "selinux", OUTCOME_SKIPPED));
	put("/sys/fs/selinux/enforce", "1");
	look_after(r, WINDOW);
	ok(is(r, "selinux", OUTCOME_OK));
	say(r, "avc:  denied  { read } for  pid=9 comm=\"containerd-shim\" permissive=0", 9);
	say(r, "avc:  denied  { read } for  pid=9 comm=\"kubelet\" permissive=1", 9);
	say(r, "avc:  granted  { read } for  pid=9 comm=\"kubelet\" permissive=0", 9);
	say(r, "avc:  denied  { read } for  pid=9 comm=\"kubelet\" permissive=0", 2);
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	say(r, "avc:  denied  { read } for  pid=9 comm=\"kubelet\" permissive=0", 1);
	look_after(r, WINDOW);
	ok(only(r, CODE_SelinuxDenied));
	look_after(r, DENIAL_VALID);
	ok(only(r, CODE_NONE));
	say(r, nodeadm, 1);
	look_after(r, 2 * DENIAL_VALID);
	ok(only(r, CODE_SelinuxDenied)); /* bootstrap is not tried again */
	r->node.registered = YES;
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	fake_free(r);
	w.journal_error = -EACCES;
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE) && is(r, "selinux", OUTCOME_UNKNOWN));
}

/* A root without any of it: nothing is known, nothing is held against it. */
static void test_nothing(struct run *r)
{
	fake_free(r);
	drop("/proc");
	drop("/sys");
	drop("/etc");
	w.watches = -EPERM;
	look_after(r, WINDOW);
	ok(only(r, CODE_NONE));
	for (size_t i = 0; i < r->n_seen; i++)
		ok(r->seen[i].outcome == OUTCOME_UNKNOWN || r->seen[i].outcome == OUTCOME_SKIPPED);
}

static void test_lines(void)
{
	ok(line_of("10%", 1000) == 100 && line_of("1Gi", 1) == 1U << 30);
	ok(line_of("500M", 1) == 500000000 && line_of("12345", 1) == 12345);
	ok(line_of("", 9) == 0 && line_of("x", 9) == 0 && line_of("-1", 9) == 0);
	ok(line_of("nan", 9) == 0 && line_of("1e300", 9) == 0 && line_of("110%", 9) == 0);
	ok(line_of("5 Gi", 9) == 0);
}

int main(void)
{
	struct run *r = calloc(1, sizeof(*r));
	struct files *f = NULL;

	(void) snprintf(base, sizeof(base), "/tmp/nodewhy-host-XXXXXX");
	if (!r || !mkdtemp(base) || files_new(&f, base) < 0)
		return 1;
	r->now = 86400 * USEC_PER_SEC;
	r->files = f;
	r->net_error = -EPERM;
	test_lines();
	test_memory(r);
	test_disks(r);
	test_read_only(r);
	test_volume(r);
	test_io(r);
	test_limits(r);
	test_watches(r);
	test_conntrack(r);
	test_neighbours(r);
	r->net_error = 0;
	test_ena(r);
	test_selinux(r);
	test_nothing(r);
	fake_free(r);
	free(r);
	files_free(f);
	drop("");
	return done();
}
