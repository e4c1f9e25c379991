# SPDX-License-Identifier: Apache-2.0
"""The node's journal: a real journal file, written by systemd-journal-remote from what is said here.

Lines are kept until somebody looks (World.check(), daemon(), run()), and are then written in order of
their time; later ones are appended while readers read."""

import fcntl
import os
import shutil
import struct
import subprocess
import termios
import time

WRITER = "/lib/systemd/systemd-journal-remote"


def writer():
    """The program, or None where it is not installed."""
    return next((p for p in (WRITER, "/usr" + WRITER) if os.access(p, os.X_OK)),
                shutil.which("systemd-journal-remote"))


def export(fields):
    """One entry of the journal export format; a value with a newline or a control character goes
    with its length."""
    out = []
    for name, value in fields:
        data = value if isinstance(value, bytes) else str(value).encode()
        if any(c < 32 and c != 9 for c in data):
            out.append(name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n")
        else:
            out.append(name.encode() + b"=" + data + b"\n")
    return b"".join(out) + b"\n"


class Journal:
    def __init__(self, world):
        self.world = world
        self.lines = []         # (uptime or name of a moment, fields), not yet written
        self.path = "var/log/journal/%s/system.journal" % world.tree.machine_id
        self._process = None
        self._last = 0.0

    @property
    def written(self):
        return self._process is not None

    def add(self, moment, **fields):
        """moment: seconds since boot, or the name of a moment of the boot."""
        self.lines.append((moment, fields))
        if self._process:
            self.flush()

    def flush(self):
        """Writes what was said so far. Lines of a moment that has not come yet wait for it."""
        if not writer():
            return
        w = self.world
        if not self._process:
            path = w.tree.at(self.path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", writer(), "-o", path, "-"],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        now = w.uptime()
        todo = sorted(((w.moment(m), i, m, f) for i, (m, f) in enumerate(self.lines)))
        self.lines = [(m, f) for at, _, m, f in todo if at > now]
        todo = [x for x in todo if x[0] <= now]
        if not todo:
            return
        boot = w.wall(0.0)
        data = []
        for at, _, _, fields in todo:
            # A journal is in order of arrival: what comes late bears the time at which it came.
            self._last = at = max(at, self._last + 1e-6)
            data.append(self._entry(at, boot + at, fields))
        self._process.stdin.write(b"".join(data))
        self._process.stdin.flush()
        self._settle()

    def _entry(self, mono, real, fields):
        boot = fields.get("_BOOT_ID") or self.world.tree.boot_id.replace("-", "")
        head = [("__REALTIME_TIMESTAMP", int(real * 1e6)), ("__MONOTONIC_TIMESTAMP", int(mono * 1e6)),
                ("_BOOT_ID", boot), ("_MACHINE_ID", self.world.tree.machine_id),
                ("_HOSTNAME", self.world.private_dns)]
        return export(head + [(k, v) for k, v in fields.items() if k != "_BOOT_ID"])

    def _settle(self):
        """Until the writer has taken all in: it reads, appends, and sleeps again in poll()."""
        end = time.monotonic() + 5
        fd = self._process.stdin.fileno()
        while time.monotonic() < end and self._process.poll() is None:
            left, = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))
            with open("/proc/%d/stat" % self._process.pid) as f:
                state = f.read().rsplit(")", 1)[1].split()[0]
            # Asleep with an empty pipe, and not before its file is there: it waits for more.
            if not left and state == "S" and os.path.exists(self.world.tree.at(self.path)):
                return
            time.sleep(0.001)

    def new_boot(self):
        self.lines, self._last = [], 0.0

    def rotate(self):
        """journald has rotated: the file gets an archive's name, a new one begins."""
        self.flush()
        self._stop()
        path = self.world.tree.at(self.path)
        os.rename(path, path.replace("system.journal", "system@%032x-%016x-%016x.journal" % (
            int(time.time()), 1, int(time.time() * 1e6))))

    def _stop(self):
        if self._process:
            self._process.stdin.close()
            self._process.wait(5)
            self._process = None

    def close(self):
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process = None
