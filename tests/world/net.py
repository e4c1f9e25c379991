# SPDX-License-Identifier: Apache-2.0
"""Network namespaces: made, entered, configured in batches, and gone afterwards."""

import ctypes
import os
import re
import subprocess
import threading

PREFIX = "nwld"
_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000


def _setns(fd):
    if _libc.setns(fd, _CLONE_NEWNET) != 0:
        e = ctypes.get_errno()
        raise OSError(e, "setns: " + os.strerror(e))


class Namespace:
    """A named network namespace ("ip netns"). Programs and sockets can be started in it."""

    def __init__(self, name):
        self.name = name
        self.path = "/run/netns/" + name
        subprocess.run(["ip", "netns", "add", name], check=True)

    def call(self, fn, *args):
        """Runs fn(*args) in a thread of its own inside the namespace; sockets made there stay there."""
        box = {}

        def body():
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    _setns(fd)
                finally:
                    os.close(fd)
                box["value"] = fn(*args)
            except BaseException as e:  # handed to the caller below
                box["error"] = e

        t = threading.Thread(target=body)
        t.start()
        t.join()
        if "error" in box:
            raise box["error"]
        return box.get("value")

    def sysctl(self, values):
        """Writes /proc/sys/net keys of this namespace; one that the kernel lacks is an error."""

        def write():
            for key, value in values.items():
                with open("/proc/sys/" + key.replace(".", "/"), "w") as f:
                    f.write(str(value))

        self.call(write)

    def ip(self, lines, family=None, force=False):
        """One `ip -batch` run over the lines: hundreds of links in a few milliseconds."""
        if isinstance(lines, str):
            lines = lines.splitlines()
        text = "\n".join(x.strip() for x in lines if x.strip()) + "\n"
        argv = ["ip", "-n", self.name]
        if family:
            argv.append("-%d" % family)
        if force:
            argv.append("-force")
        p = subprocess.run(argv + ["-batch", "-"], input=text, text=True, capture_output=True)
        if p.returncode != 0 and not force:
            raise RuntimeError("ip -batch in %s: %s\n%s" % (self.name, p.stderr.strip(), text[:2000]))

    def show(self, *argv):
        """What `ip ARGV` prints in this namespace."""
        p = subprocess.run(["ip", "-n", self.name, *argv], text=True, capture_output=True)
        if p.returncode != 0:
            raise RuntimeError("ip %s: %s" % (" ".join(argv), p.stderr.strip()))
        return p.stdout

    def nft(self, text):
        p = subprocess.run(self.argv(["nft", "-f", "-"]), input=text, text=True, capture_output=True)
        if p.returncode != 0:
            raise RuntimeError("nft: %s\n%s" % (p.stderr.strip(), text))

    def argv(self, argv):
        """The command line that runs argv in here, and that dies with the thread that started it."""
        return ["setpriv", "--pdeathsig", "KILL", "nsenter", "--net=" + self.path, "--", *argv]

    def close(self):
        subprocess.run(["ip", "netns", "del", self.name], stderr=subprocess.DEVNULL)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def owner(name):
    """The pid in the name of one of our namespaces or directories; None when it is not ours."""
    m = re.fullmatch(PREFIX + r"(\d+)-\d+(?:-\w+)?", name)
    return int(m.group(1)) if m else None


def reap_namespaces():
    """Removes namespaces of worlds whose process is dead (it was killed and could not clean up)."""
    try:
        names = os.listdir("/run/netns")
    except FileNotFoundError:
        return
    for name in names:
        pid = owner(name)
        if pid is not None and not alive(pid):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
