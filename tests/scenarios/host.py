# SPDX-License-Identifier: Apache-2.0
"""Scenarios of layer host: what the kernel says of memory, disks and limits."""

import json
import re

from world import kernel, units

from . import daemons
from .checks import says
from .table import broken, daemon, degraded, sound


def every_look(w, report, fail):
    """On a sound node all of it can be told, and is well. (A machine whose own disk is nearly full tells no size.)"""
    got = [(p["aspect"], p["outcome"]) for p in report["probes"] if p["name"] == "host"]
    bad = [x for x in got if x[1] not in ("ok", "skipped")]
    missing = {"memory", "io", "pids", "files", "conntrack", "neighbour", "mount"} - {a for a, o in got if o == "ok"}
    if bad or missing:
        fail("host: %s, and no %s" % (bad, sorted(missing)))


@sound("host/all-is-told", pods=3, more=every_look)
def _(w):
    pass


@broken("host/memory-starved", "MemoryStarved", more=says("88 MiB of memory available", "full avg60 46", "systemReserved"))
def _(w):
    w.memory_starved()


@broken("host/disk-stalled", "DiskStalled", more=says("full avg60 91", "37 tasks"))
def _(w):
    w.disk_stalled()


@broken("host/threads-exhausted", "PidsExhausted", more=says("61010", "61524"))
def _(w):
    w.threads_exhausted()


@broken("host/files-exhausted", "FileHandlesExhausted", more=says("99120", "100000"))
def _(w):
    w.files_exhausted()


@broken("host/data-volume-missing", "DataVolumeMissing", subject="/var/lib/containerd", more=says("/etc/fstab"))
def _(w):
    """containerd answers all the same (C064)."""
    w.data_volume_missing()


# ---- disks, of real file systems ----

def disk_is(where, outcome, percent):
    """The kernel's own numbers have come through: the disk was looked at, and has so much free."""

    def look(w, report, fail):
        got = [p for p in report["probes"] if p["name"] == "host" and p["aspect"] == "disk" and p["subject"] == where]
        free = [100 * p["evidence"]["free_mib"] / p["evidence"]["total_mib"] for p in got]
        if [p["outcome"] for p in got] != [outcome] or abs(free[0] - percent) > 3:
            fail("disk %s: %s, not %d %% free" % (where, got, percent))

    return look


@broken("host/disk-full", "DiskFull", subject="/var/lib/kubelet", more=says("MiB free of 64", "under the line of 6 MiB"))
def _(w):
    w.disk_full()


@broken("host/images-disk-full", "DiskFull", subject="/var/lib/containerd", more=says("0 MiB free of 64"))
def _(w):
    """Not a byte is left, where the kubelet has no line of its own."""
    w.disk_full("/var/lib/containerd", 100)


@broken("host/disk-full-and-what-comes-of-it", "DiskFull", {"DiskFull": None, "RuntimeDown": "DiskFull"})
def _(w):
    """containerd cannot write its database, and ends."""
    w.disk_full("/var/lib/containerd", 100)
    w.containerd_down()


@sound("host/disk-at-84-percent", more=disk_is("/var/lib/kubelet", "ok", 16))
def _(w):
    """Images are collected from 85 % on: a disk that is used is no fault."""
    w.disk("/var/lib/kubelet", w.used(84))


@sound("host/images-disk-at-97-percent", more=disk_is("/var/lib/containerd", "ok", 3))
def _(w):
    """The kubelet's configuration names no line for images: there the bottom counts."""
    w.disk("/var/lib/containerd", w.used(97))


@broken("host/inodes-exhausted", "InodesExhausted", subject="/var/lib/kubelet", more=says("inodes free", "MiB free"))
def _(w):
    w.inodes_exhausted()


@sound("host/many-small-files", more=disk_is("/var/lib/kubelet", "ok", 100))
def _(w):
    """Nine tenths of the inodes are used: the kubelet's line is at 5 % free."""
    w.disk("/var/lib/kubelet", "seq -f n%g 1 1800 | xargs touch", inodes=2000)


@broken("host/disk-read-only", "FilesystemReadOnly", subject="/var/lib/containerd", more=says("read-only", "ext4"))
def _(w):
    w.disk_read_only()


@broken("host/disk-read-only-and-what-comes-of-it", "FilesystemReadOnly", {
    "FilesystemReadOnly": None, "KubeletCrashLooping": "FilesystemReadOnly"}, subject="/var/lib/kubelet")
def _(w):
    w.disk_read_only("/var/lib/kubelet")
    w.kubelet_crash_loop(error='"command failed" err="failed to initialize checkpoint manager: read-only file system"')


@sound("host/root-read-only-by-design")
def _(w):
    """Bottlerocket's root is, and what is written to has disks of its own."""
    w.tree.write("proc/1/mountinfo", w._mounts(root="ro"))
    for where in ("/var/lib/kubelet", "/var/lib/containerd"):
        w.disk(where)


@daemon("host/disk-fills-up")
def _(w):
    """Space is used up and freed again while the daemon runs."""
    where = w.tree.at("var/lib/kubelet")
    w.disk("/var/lib/kubelet", w.used(60))

    def fill():
        w.daemons[-1].inside("fallocate", "-l", "22M", where + "/more")
        return lambda: w.daemons[-1].inside("rm", where + "/more")

    daemons.fault_and_heal(w, fill, "DiskFull", "HostProblem", within=30)


@daemon("host/disk-turns-read-only")
def _(w):
    """An error of the file system: the daemon's own place, which lies there too, can no longer be written to."""
    w.disk("/var/lib")
    before = w.tree.read("proc/1/mountinfo").decode()

    def turn(how, text):
        w.daemons[-1].inside("mount", "-o", "remount," + how, w.tree.at("var/lib"))
        w.tree.write("proc/1/mountinfo", text)

    def error():
        turn("ro", before.replace("nvme1n1 rw", "nvme1n1 ro"))
        return lambda: turn("rw", before)

    daemons.fault_and_heal(w, error, "FilesystemReadOnly", "HostProblem", within=30)


# ---- tables of the kernel ----

@degraded("host/conntrack-full", "ConntrackFull", more=says("131072 of 131072", "dropped meanwhile"))
def _(w):
    w.conntrack_full()


@broken("host/conntrack-full-on-a-node-that-fails", "ConntrackFull", {
    "ConntrackFull": None, "EndpointTimeout": "ConntrackFull"})
def _(w):
    w.conntrack_full()
    w.endpoint_drop("ec2")


@sound("host/conntrack-at-70-percent")
def _(w):
    w.tree.write("proc/sys/net/netfilter/nf_conntrack_count", "91750\n")


@sound("host/conntrack-full-and-nobody-turned-away")
def _(w):
    """Entries are reused in time: the number alone is no loss."""
    w.conntrack_full(drops=0)


@degraded("host/neighbours-full", "NeighbourTableFull", subject="ipv4", more=says("1024 of 1024 neighbours"))
def _(w):
    w.neighbours_full()


@sound("host/neighbours-above-the-soft-limits")
def _(w):
    """gc_thresh1 and 2 only start the collector."""
    w.tree.write("proc/1/net/stat/arp_cache", kernel.column(kernel.NEIGHBOURS, [{"entries": 900, "forced_gc_runs": 40}] * 2))


@sound("host/permanent-neighbours-of-a-thousand-pods")
def _(w):
    """Each pod's namespace has one, which the CNI made: they count, and the limit is not for them."""
    w.neighbours_full(2048, refused=0)


# ---- inotify ----

FOLLOWED = "inotify_init: too many open files"


@degraded("host/inotify-instances-exhausted", "InotifyExhausted", more=says("no more inotify instances", "max_user_instances"))
def _(w):
    w.inotify_limit("instances")


@degraded("host/inotify-watches-exhausted", "InotifyExhausted", more=says("no more inotify watches", "max_user_watches"))
def _(w):
    w.inotify_limit("watches")


@broken("host/inotify-exhausted-and-what-comes-of-it", "InotifyExhausted", {
    "InotifyExhausted": None, "KubeletCrashLooping": "InotifyExhausted"})
def _(w):
    w.kubelet_crash_loop(error='"Failed to start cAdvisor" err="%s"' % FOLLOWED)
    w.inotify_limit("instances")


@broken("host/inotify-exhausted-as-kubelet-says", "InotifyExhausted", {
    "InotifyExhausted": None, "KubeletCrashLooping": "InotifyExhausted"}, more=says("max_user_instances (128)", FOLLOWED))
def _(w):
    """nodewhy.service is not root, and is given what root is not: kubelet's word counts."""
    w.tree.write("proc/sys/fs/inotify/max_user_instances", "128\n")
    w.kubelet_crash_loop(error='"Failed to start cAdvisor" err="%s"' % FOLLOWED)
    w.as_the_unit()


@sound("host/inotify-nearly-used-up")
def _(w):
    """One instance and one watch are left."""
    w.inotify_limit("instances", 1)


@sound("host/inotify-was-short-for-a-moment")
def _(w):
    """A log could not be followed some minutes ago."""
    w.kubelet_says("E", "logs.go:325", '"Failed to create watcher" err="failed to create fsnotify watcher: too many open files"', 400)
    w.as_the_unit()


@sound("host/inotify-is-given-again")
def _(w):
    """Root can see that it is over, whatever kubelet said just now."""
    w.kubelet_says("E", "logs.go:325", '"Failed to create watcher" err="failed to create fsnotify watcher: too many open files"', 20)


# ---- the boot before ----

def after_a_reboot(w, ended, *wtmp):
    """A daemon that had its last sign of life so many seconds before this boot, which is 300 s old."""
    w.wtmp(*wtmp)
    d = daemons.start(w)
    d.wait_status("it has looked", lambda s: any(p["name"] == "lifecycle" for p in s["probes"]))
    assert d.stop() == 0
    state = json.loads(w.tree.read("var/lib/nodewhy/state.json"))
    text = json.dumps(state)
    boot, at, rest = re.search(r'"lifecycle.alive": "(\S+) (\d+) ([^"]*)"', text).groups()
    assert boot.replace("-", "") == w.tree.boot_id.replace("-", ""), text
    w.tree.write("var/lib/nodewhy/state.json", text.replace("%s %s %s" % (boot, at, rest), "%s %d %s" % (
        boot, int(at) - 300 - ended, rest)))
    w.reboot(300)
    return daemons.start(w)


@daemon("host/it-stopped-without-a-shutdown")
def _(w):
    """The hardware under the node failed, and it was started again (C069): a notice says so, as nobody else does."""
    d = after_a_reboot(w, 840, ("boot", 90000), ("boot", 300))
    e = daemons.raised(w, d, "HostGap", severity="notice")
    assert "14 min before this boot" in e["MESSAGE"] and "no memory or disk pressure" in e["MESSAGE"], e["MESSAGE"]
    d.wait_state("healthy", timeout=30)
    daemons.files_hold(w, d)
    assert not daemons.alarms(d), daemons.alarms(d)


@daemon("host/rebooted-in-order")
def _(w):
    d = after_a_reboot(w, 840, ("boot", 90000), ("shutdown", 1140), ("boot", 300))
    d.wait_status("it has looked back", lambda s: any(
        p["name"] == "lifecycle" and p["aspect"] == "gap" and p["outcome"] == "ok" for p in s["probes"]))
    assert not [e for e in d.journal if e.get("NODEWHY_STATE") == "raised"], d.journal


# ---- SELinux ----

@broken("host/selinux-denies-nodeadm", "SelinuxDenied", {
    "SelinuxDenied": None, "BootstrapFailed": "SelinuxDenied", "KubeletInactive": "BootstrapFailed"}, more=says("3 times", "nodeadm"))
def _(w):
    """A CIS image without domains for what the AMI's build put there (C052)."""
    w.nodeadm_failed("fork/exec /usr/bin/kubelet: permission denied", unit="nodeadm-run.service")
    for ago in (40, 38, 36):
        w.selinux_enforcing(ago)


@sound("host/selinux-enforces")
def _(w):
    """Bottlerocket and hardened images do, and all goes well. One denial is no fault."""
    w.selinux_enforcing()


@sound("host/selinux-denies-others")
def _(w):
    for ago in range(30, 60):
        w.kernel_says('audit: type=1400 audit(1.1:1): avc:  denied  { read } for  pid=8801 comm="node" name="x" dev="nvme0n1p1" '
                      "ino=1 scontext=system_u:system_r:container_t:s0 tcontext=system_u:object_r:etc_t:s0 tclass=file "
                      "permissive=0", ago, priority=5)
    w.tree.write("sys/fs/selinux/enforce", "1")


# ---- large packets ----

@broken("path/mtu-black-hole", "PathMtuBlackhole", {"PathMtuBlackhole": None, "EndpointTlsStalled": "PathMtuBlackhole"},
        more=says("mtu 9001", "segments of 536 bytes", "2 of 2"))
def _(w):
    """A hop of 1500 on the way from all endpoints, and no "fragmentation needed" comes back (C027)."""
    w.mtu_black_hole()


@broken("path/mtu-black-hole-to-one-endpoint", "PathMtuBlackhole", {
    "PathMtuBlackhole": None, "EndpointTlsStalled": "PathMtuBlackhole"}, more=says("TLS to sts at 10.0.11.11"))
def _(w):
    w.mtu_black_hole("sts")


@broken("path/mtu-black-hole-to-the-api-server", "PathMtuBlackhole", {
    "PathMtuBlackhole": None, "ApiServerTimeout": "PathMtuBlackhole"}, more=says("TLS to the API server"))
def _(w):
    """Its certificate is a small one: a tunnel in a tunnel."""
    w.mtu_black_hole("api", mtu=1000)


@broken("path/stalls-whatever-the-size", "EndpointTlsStalled")
def _(w):
    """The far side is deaf: small segments do not pass either."""
    w.endpoint_tls_stall()


@sound("path/mtu-1500-by-design")
def _(w):
    """The same way, and a node that was set up for it."""
    w.mtu_black_hole()
    w.mtu_black_hole("api")
    w.node.ip("link set %s mtu 1500" % w.enis[0].name)


@daemon("path/mtu-black-hole-comes-and-goes")
def _(w):
    d = daemons.start(w)
    undo = w.mtu_black_hole()
    d.wait_root("PathMtuBlackhole", timeout=30)
    daemons.raised(w, d, "PathMtuBlackhole", severity="degraded")
    daemons.files_hold(w, d)
    undo()
    daemons.cleared(d, "PathMtuBlackhole", timeout=40)
    d.wait_state("healthy", timeout=30)


# ---- rules of the node itself ----

@broken("firewall/drops-what-goes-to-an-endpoint", "FirewallRejects", {
    "FirewallRejects": None, "EndpointTimeout": "FirewallRejects"}, more=says("ec2 at 10.0.10.11 port 443", "EPERM"))
def _(w):
    w.own_firewall(*w.endpoints["ec2"])


@broken("firewall/rejects-and-is-known", "FirewallRejects", {
    "FirewallRejects": None, "EndpointRefused": "FirewallRejects"}, more=says("EPERM", "iptables.service is active"))
def _(w):
    """A saved rule set that was loaded at boot (C033)."""
    w.systemd.put(units.Unit("iptables.service", description="IPv4 firewall with iptables", start="networkd", type="oneshot",
                             remain=True, active="active", sub="exited"))
    w.own_firewall(*w.endpoints["sts"], *w.endpoints["ec2"], verdict="reject")


@broken("firewall/drops-queries", "FirewallRejects", {
    "FirewallRejects": None, "ResolverUnreachable": "FirewallRejects"}, more=says("a nameserver at 10.0.0.2 port 53"))
def _(w):
    w.own_firewall(match="udp dport 53")


@broken("firewall/datagrams-by-design-and-an-endpoint-silent", "EndpointTimeout", subject="ec2")
def _(w):
    """Nothing but DNS may leave as a datagram. That ec2 does not answer is another story."""
    w.own_firewall(match="udp dport 443")
    w.endpoint_drop("ec2")


@broken("firewall/another-address-and-an-endpoint-silent", "EndpointTimeout", subject="ec2")
def _(w):
    w.own_firewall("10.9.9.9")
    w.endpoint_drop("ec2")


@sound("firewall/lets-out-what-is-needed")
def _(w):
    """A hardened image: what leaves is dropped but for DNS, time, and TCP."""
    w.own_firewall(match="meta l4proto != { tcp, icmp, ipv6-icmp } udp dport != { 53, 67, 123 }")
    w.own_firewall("192.0.2.0/24", verdict="reject")


@daemon("firewall/comes-and-goes")
def _(w):
    d = daemons.start(w)
    undo = w.own_firewall(*w.endpoints["ec2"])
    d.wait_root("FirewallRejects", timeout=30)
    daemons.raised(w, d, "FirewallRejects")
    undo()
    daemons.cleared(d, "FirewallRejects", timeout=40)
    d.wait_state("healthy", timeout=30)
