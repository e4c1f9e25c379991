# SPDX-License-Identifier: Apache-2.0
"""Scenarios of layer host: what the kernel says of memory, disks and limits."""

from .checks import says
from .table import broken, sound


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
