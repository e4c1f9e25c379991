# SPDX-License-Identifier: Apache-2.0
"""`nodewhy run` in a world, with its journal and its sd_notify socket in our hands."""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import time


def parse_native(data):
    """An entry of the journal's native protocol: NAME=value lines, or NAME, a 64-bit length, bytes.
    Returns a list of (name, bytes) in order; ValueError when it is not well formed."""
    fields, at = [], 0
    while at < len(data):
        end = data.index(b"\n", at)
        line = data[at:end]
        name, equals, value = line.partition(b"=")
        if equals:
            at = end + 1
        else:
            if len(data) < end + 9:
                raise ValueError("length is cut")
            n, = struct.unpack("<Q", data[end + 1:end + 9])
            value = data[end + 9:end + 9 + n]
            if len(value) != n or data[end + 9 + n:end + 10 + n] != b"\n":
                raise ValueError("value is cut")
            at = end + 10 + n
        if not name or not all(c in b"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_" for c in name):
            raise ValueError("bad field name %r" % name)
        fields.append((name.decode(), value))
    return fields


class Entry(dict):
    """A journal entry: field -> text (the last when a field comes twice); .at is time.monotonic()."""

    def __init__(self, fields, at):
        super().__init__((k, v.decode("utf-8", "replace")) for k, v in fields)
        self.at = at


class Daemon:
    """Started by World.daemon(). journal and notified grow as poll() or any wait_*() is called."""

    def __init__(self, world, *options, watchdog=None, env=None, stderr=None, mounts=()):
        """watchdog: seconds for WATCHDOG_USEC. mounts: shell lines run first, as root, in the
        daemon's private mount namespace ($ROOT is the tree), after those of the world."""
        self.world = world
        self.journal, self.notified = [], []
        world.n_daemons += 1
        base = "%s/daemon-%d" % (world.dir, world.n_daemons)
        os.makedirs(base + "/journal")
        self._journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._journal.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._journal.bind(base + "/journal/socket")
        os.chmod(base + "/journal/socket", 0o666)
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind(base + "/notify")
        os.chmod(base + "/notify", 0o666)
        self._log = base + "/stderr"
        self._ticked = 0.0
        script = "\n".join([
            "set -e", "mount --make-rprivate /", "mount -t tmpfs -o mode=755 tmpfs /run",
            "mkdir -p /run/systemd/journal", 'mount --bind "$1" /run/systemd/journal', "shift",
            *world.mounts, *mounts, 'exec "$@"'])
        more = {"NOTIFY_SOCKET": base + "/notify", "ROOT": world.root}
        if watchdog:
            more["WATCHDOG_USEC"] = str(int(watchdog * 1e6))
        more.update(env or {})
        argv = ["unshare", "-m", "sh", "-c", script, "sh", base + "/journal", world.binary(), "run",
                "--root", world.root, *options]
        self.started = time.monotonic()
        with open(self._log, "wb") as log:
            # As systemd says that standard error is the journal (systemd.exec(5)).
            st = os.fstat(log.fileno())
            more.setdefault("JOURNAL_STREAM", "%d:%d" % (st.st_dev, st.st_ino))
            self.process = subprocess.Popen(world.node.argv(argv), env=world.environment(**more),
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        world.daemons.append(self)

    # ---- what it says ----

    def poll(self, timeout=0.0):
        """Takes in what has come; waits at most timeout for something to come."""
        if time.monotonic() - self._ticked > 0.5:
            # The tree is DIR of --root and has its own uptime: it has to go on as a real one does.
            self._ticked = time.monotonic()
            self.world.tree.uptime(self.world.uptime())
        ready, _, _ = select.select([self._journal, self._notify], [], [], timeout)
        while ready:
            for s in ready:
                if s is self._notify:
                    text = s.recv(65536).decode("utf-8", "replace")
                    self.notified += [(time.monotonic(), x) for x in text.splitlines() if x]
                else:
                    data, fds, _, _ = socket.recv_fds(s, 1 << 20, 1)
                    for fd in fds:  # a large entry comes as a sealed memfd
                        with os.fdopen(fd, "rb") as f:
                            f.seek(0)
                            data = f.read()
                    self.journal.append(Entry(parse_native(data), time.monotonic()))
            ready, _, _ = select.select([self._journal, self._notify], [], [], 0)

    @property
    def log(self):
        with open(self._log, errors="replace") as f:
            return f.read()

    def status(self):
        """status.json now, or None while there is none."""
        try:
            return json.loads(self.world.tree.read("run/nodewhy/status.json"))
        except FileNotFoundError:
            return None

    def condition(self, kind):
        """The three lines of a condition file, or None."""
        try:
            return self.world.tree.read("run/nodewhy/conditions/" + kind).decode().split("\n")
        except FileNotFoundError:
            return None

    def inside(self, *argv):
        """Runs argv in the daemon's own mount namespace, as to heal what `mounts` broke. --root: in a chroot the
        namespace's own root is another."""
        subprocess.run(["nsenter", "--mount", "--root", "-t", str(self.process.pid), "--", *argv], check=True)

    # ---- waiting: short polls, never longer than the thing waited for ----

    def live(self, seconds):
        """So long, taking in what comes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.poll(max(0.0, min(0.5, end - time.monotonic())))
            assert self.process.poll() is None, "the daemon ended: %s" % self.log[-1500:]

    def wait(self, what, test, timeout=15.0, step=0.01):
        """Until test() is true; returns what it returned. TimeoutError with what was last known."""
        end = time.monotonic() + timeout
        while True:
            self.poll()
            value = test()
            if value:
                return value
            if self.process.poll() is not None:
                raise TimeoutError("%s: the daemon ended with %d: %s" % (
                    what, self.process.returncode, self.log[-1500:]))
            left = end - time.monotonic()
            if left <= 0:
                s = self.status()
                raise TimeoutError("%s: not within %g s; verdict %s; findings %s; stderr %s" % (
                    what, timeout, s and s.get("verdict"),
                    s and [(f["code"], f["subject"]) for f in s.get("findings", ())],
                    self.log[-1500:]))
            self.poll(min(step, left))

    def wait_status(self, what, test, timeout=15.0):
        """Until status.json is such that test(status) is true; returns that status."""
        def look():
            s = self.status()
            return s if s is not None and test(s) else None
        return self.wait(what, look, timeout)

    def wait_state(self, state, timeout=15.0):
        return self.wait_status("verdict " + state, lambda s: s["verdict"]["state"] == state, timeout)

    def wait_root(self, code, timeout=15.0):
        return self.wait_status("root " + str(code), lambda s: s["verdict"]["root"] == code, timeout)

    def wait_journal(self, what, timeout=15.0, **fields):
        """The first entry, now or to come, that has all these fields."""
        def look():
            return next((e for e in self.journal
                         if all(e.get(k) == v for k, v in fields.items())), None)
        return self.wait(what, look, timeout)

    def wait_notified(self, line, timeout=15.0):
        return self.wait(line, lambda: any(x == line for _, x in self.notified), timeout)

    # ---- its end ----

    def stop(self, number=signal.SIGTERM, timeout=5.0):
        """Sends the signal, waits for the end, returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        end = time.monotonic() + timeout
        while self.process.poll() is None:
            if time.monotonic() > end:
                self.kill()
                raise TimeoutError("the daemon did not stop within %g s of signal %d"
                                   % (timeout, number))
            self.poll(0.01)
        self.poll()
        self._gone()
        return self.process.returncode

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._gone()

    def _gone(self):
        if self in self.world.daemons:
            self.world.daemons.remove(self)
