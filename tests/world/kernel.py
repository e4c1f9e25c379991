# SPDX-License-Identifier: Apache-2.0
"""What the kernel of the node says of itself in /proc: memory, pressure, disks, limits; and what is wrong with them."""

import os
import shlex
import struct
import threading
import time

from .fault import fault

THREADS, FILES = 412, 2464


def pressure(full=0.0, some=None):
    return "".join("%s avg10=%.2f avg60=%.2f avg300=%.2f total=%d\n" % (k, v, v, v, 1000 * v)
                   for k, v in (("some", full if some is None else some), ("full", full)))


def meminfo(total, available):
    return "".join("%-16s%8d kB\n" % (k + ":", v) for k, v in (
        ("MemTotal", total), ("MemFree", available // 2), ("MemAvailable", available), ("Buffers", 2088), ("Cached", available // 3),
        ("SwapTotal", 0), ("SwapFree", 0)))


def column(names, rows):
    """A table of /proc/net/stat: names, then hexadecimal, a line a processor."""
    return " ".join(names) + "\n" + "".join(" ".join("%08x" % r.get(n, 0) for n in names) + "\n" for r in rows)


NEIGHBOURS = ("entries allocs destroys hash_grows lookups hits res_failed rcv_probes_mcast rcv_probes_ucast periodic_gc_runs "
              "forced_gc_runs unresolved_discards table_fulls").split()
CONNECTIONS = "entries searched found new invalid ignore delete delete_list insert insert_failed drop early_drop".split()


class Kernel:
    """Part of World."""

    def _kernel(self):
        w = self.tree.write
        w("proc/meminfo", meminfo(7902720, 5832192))
        w("proc/vmstat", "nr_free_pages 812345\noom_kill 0\n")
        for what in ("memory", "io", "cpu"):
            w("proc/pressure/" + what, pressure(0.0, 0.4))
        w("proc/stat", "cpu  1000 0 800 90000 12 0 9 0 0 0\nprocs_running 2\nprocs_blocked 0\n")
        w("proc/diskstats", " 259       0 nvme0n1 81234 12 5123456 41234 91234 99 8123456 81234 0 61234 122468\n"
          " 259       1 nvme0n1p1 81200 12 5123000 41200 91200 99 8123000 81200 0 61200 122400\n")
        w("proc/sys/kernel/pid_max", "4194304\n")
        w("proc/sys/kernel/threads-max", "61524\n")
        w("proc/sys/fs/file-nr", "%d\t0\t9223372036854775807\n" % FILES)
        w("proc/sys/net/netfilter/nf_conntrack_count", "318\n")
        w("proc/sys/net/netfilter/nf_conntrack_max", "131072\n")
        for family in ("ipv4", "ipv6"):
            w("proc/sys/net/%s/neigh/default/gc_thresh3" % family, "1024\n")
        w("proc/1/net/stat/nf_conntrack", column(CONNECTIONS, [{"entries": 318}] * 2))
        for cache in ("arp_cache", "ndisc_cache"):
            w("proc/1/net/stat/" + cache, column(NEIGHBOURS, [{"entries": 21}] * 2))
        w("proc/sys/fs/inotify/max_user_instances", "8192\n")
        w("proc/sys/fs/inotify/max_user_watches", "524288\n")
        w("proc/loadavg", self._loadavg(THREADS))
        w("proc/1/mountinfo", self._mounts())
        w("etc/fstab", "UUID=0c7c1c5e-8f0e-4d4b-8ccb-0c1e6f2d7f4a / xfs defaults,noatime 1 1\n"
          "UUID=5B1D-7F0A /boot/efi vfat defaults,noatime,uid=0,gid=0,umask=0077 0 2\n")

    def _loadavg(self, threads):
        return "0.21 0.34 0.30 2/%d 48211\n" % threads

    def _mounts(self, root="rw", more=""):
        """Where this machine's own disk is nearly full, the node's has no size that could be told: it is the same one."""
        v = os.statvfs(self.root)
        roomy = v.f_bavail > v.f_blocks * .2 and v.f_ffree > v.f_files * .2
        return ("21 1 259:1 / / %s,noatime shared:1 - %s /dev/nvme0n1p1 %s,attr2,inode64\n"
                "22 21 0:20 / /proc rw,nosuid,nodev,noexec,relatime shared:2 - proc proc rw\n"
                "24 21 0:21 / /sys rw,nosuid,nodev,noexec,relatime shared:3 - sysfs sysfs rw\n"
                "28 24 0:27 / /sys/fs/bpf rw,nosuid,nodev,noexec,relatime shared:7 - bpf bpf rw,mode=700\n"
                "30 21 0:24 / /run rw,nosuid,nodev shared:9 - tmpfs tmpfs rw,mode=755\n%s" % (
                    root, "xfs" if roomy else "overlay", root, more))

    def disk(self, where, fill="", size="64m", inodes=0, options="rw"):
        """A disk of its own for what lies at where: a real file system of that size for what runs from now on, in which
        the shell line fill, run in it, takes up space. Returns what takes it away."""
        at, tmp = '"$ROOT%s"' % where, '"$ROOT.disk"'
        lines = ["mkdir -p %s %s" % (at, tmp),
                 "mount -t tmpfs -o size=%s,nr_inodes=%d,mode=755 tmpfs %s" % (size, inodes, tmp),
                 "cp -a %s/. %s" % (at, tmp), "( cd %s; %s )" % (tmp, fill or ":"), "mount --move %s %s" % (tmp, at)]
        if options != "rw":
            lines.append("mount -o remount,%s %s" % (options, at))
        self.mounts += lines
        old = self.tree.read("proc/1/mountinfo").decode()
        back = self.tree.replace("proc/1/mountinfo", old + "60 21 259:4 / %s rw,noatime - ext4 /dev/nvme1n1 %s\n"
                                 % (where, options))

        def undo():
            self.mounts = [x for x in self.mounts if x not in lines]
            back()

        return undo

    def wtmp(self, *records):
        """What init wrote into /var/log/wtmp (utmp(5)): ("boot" or "shutdown", so many seconds ago). Returns what takes it
        away."""
        kinds, data = {"boot": (2, b"reboot"), "shutdown": (1, b"shutdown")}, b""
        for kind, ago in records:
            data += struct.pack("<hxxi32s4s32s256shhiii16x20x", kinds[kind][0], 0, b"~", b"~~", kinds[kind][1],
                                b"6.12.40-64.114.amzn2023.x86_64", 0, 0, 0, int(time.time() - ago), 0)
        return self.tree.replace("var/log/wtmp", data)

    def started_by(self, *argv):
        """What runs from now on is started by this program. Returns what undoes it."""
        line = 'set -- %s "$@"' % shlex.join(argv)
        self.mounts.append(line)

        def undo():
            self.mounts.remove(line)

        return undo

    def as_the_unit(self):
        """With the user, group and capability of nodewhy.service in place of root's."""
        return self.started_by("setpriv", "--reuid=65534", "--regid=65534", "--groups=0", "--inh-caps=-all,+dac_read_search",
                               "--ambient-caps=-all,+dac_read_search", "--bounding-set=-all,+dac_read_search", "--")

    @staticmethod
    def used(percent, of=64):
        """A shell line that fills so much of a disk of so many MiB; 100: to the last byte."""
        return "fallocate -l %d filler" % (of * percent * 10486) if percent < 100 else "head -c 1G /dev/zero > filler 2> rest || :"

    # ---- faults ----

    @fault
    def disk_full(self, where="/var/lib/kubelet", percent=93):
        """Less is free than the kubelet's eviction line (10 %) wants."""
        return self.disk(where, self.used(percent))

    @fault
    def inodes_exhausted(self, where="/var/lib/kubelet"):
        """A disk full of small files: its inodes are gone, its bytes are not."""
        return self.disk(where, "seq -f n%g 1 1960 | xargs touch", inodes=2000)

    @fault
    def disk_read_only(self, where="/var/lib/containerd"):
        """The kernel found an error in the file system and made it read-only (errors=remount-ro)."""
        return self.disk(where, options="ro")

    @fault
    def inotify_limit(self, what="instances", limit=0):
        """Root may have so many inotify instances, or watches, and no more: as in a user namespace of its own, which has
        limits of its own, what this machine's root has does not count."""
        back = self.tree.replace("proc/sys/fs/inotify/max_user_" + what, "%d\n" % limit)
        undo = self.started_by("unshare", "--user", "--map-root-user", "sh", "-c",
                               'echo %d > /proc/sys/user/max_inotify_%s; exec "$@"' % (limit, what), "sh")
        return lambda: [back(), undo()]

    def _rises(self, path, text, every=0.05):
        """text(n) is what the file says the n-th time: a counter that goes on."""
        back, over = self.tree.replace(path, text(0)), threading.Event()

        def count():
            n = 0
            while not over.wait(every):
                n += 1
                self.tree.write(path, text(n))

        thread = threading.Thread(target=count, daemon=True)
        thread.start()

        def undo():
            over.set()
            thread.join()
            back()

        return undo

    @fault
    def conntrack_full(self, drops=7):
        """The table of connections is full, and more are turned away all the time (C057)."""
        backs = [self.tree.replace("proc/sys/net/netfilter/nf_conntrack_count", "131072\n")]
        backs.append(self._rises("proc/1/net/stat/nf_conntrack", lambda n: column(
            CONNECTIONS, [{"entries": 131072, "drop": n * drops}, {"entries": 131072, "early_drop": 3}])))
        return lambda: [b() for b in backs]

    @fault
    def neighbours_full(self, entries=1024, refused=1):
        """No neighbour gets in any more (neighbour: arp_cache: neighbor table overflow!)."""
        return self._rises("proc/1/net/stat/arp_cache", lambda n: column(
            NEIGHBOURS, [{"entries": entries, "table_fulls": n * refused}, {"entries": entries}]))

    @fault
    def memory_starved(self):
        """Nobody makes progress for want of memory, and nothing is reserved for the system (C003)."""
        backs = [self.tree.replace("proc/meminfo", meminfo(7902720, 90112)),
                 self.tree.replace("proc/pressure/memory", pressure(46.0))]
        return lambda: [b() for b in backs]

    @fault
    def disk_stalled(self):
        """The volume is throttled: all wait for it (C048)."""
        backs = [self.tree.replace("proc/pressure/io", pressure(91.0)),
                 self.tree.replace("proc/stat", "cpu  1000 0 800 90000 12 0 9 0 0 0\nprocs_running 2\nprocs_blocked 37\n")]
        return lambda: [b() for b in backs]

    @fault
    def threads_exhausted(self):
        return self.tree.replace("proc/loadavg", self._loadavg(61010))

    @fault
    def files_exhausted(self):
        return self.tree.replace("proc/sys/fs/file-nr", "99120\t0\t100000\n")

    @fault
    def data_volume_missing(self):
        """fstab has a disk for containerd's data, and it is not mounted (C064)."""
        return self.tree.replace("etc/fstab", "UUID=0c7c1c5e / xfs defaults,noatime 1 1\n"
                                 "UUID=9f1e /var/lib/containerd xfs defaults,nofail 0 2\n")

    @fault
    def bpffs_missing(self):
        """Nothing is mounted on /sys/fs/bpf (C010)."""
        mounts = self.tree.read("proc/1/mountinfo").decode()
        return self.tree.replace("proc/1/mountinfo", "".join(x for x in mounts.splitlines(True) if " /sys/fs/bpf " not in x))
