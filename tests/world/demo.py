#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo: a sound node, a fault, the verdict, and its end."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from world import World  # noqa: E402

FAULTS = {
    "metadata": ("imds_nft_drop_output",
                 "a hardening script drops packets to 169.254.169.254 in this node's firewall"),
    "dns": ("dns_servfail", "the VPC resolver answers SERVFAIL to everything"),
    "endpoint": ("endpoint_untrusted", "a proxy starts to re-sign TLS to EC2 and STS with its own CA"),
    "cni": ("cni_foreign_first", "someone leaves 05-cilium.conflist in /etc/cni/net.d"),
    "route": ("no_default_route", "the routes through the gateway are lost"),
}
COLOUR = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
TTY = sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def paint(style, text):
    return "\x1b[%sm%s\x1b[0m" % (COLOUR[style], text) if TTY else text


def step(text):
    print("\n" + paint("bold", "==> " + text), flush=True)


def say(text):
    print("    " + text, flush=True)


def show(w, *argv):
    """Runs a verb of nodewhy as on a terminal of 80 columns, and prints what it prints."""
    print("    " + paint("dim", "$ nodewhy " + " ".join(argv)) + "\n", flush=True)
    command = w.node.argv([w.binary(), *argv, "--root", w.root])
    w.tree.uptime(w.uptime())
    if not TTY:
        out = subprocess.run(command, env=w.environment(), capture_output=True, text=True)
        print(out.stdout + out.stderr, end="")
        return out.returncode
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("4H", 50, 80, 0, 0))
    p = subprocess.Popen(command, env=w.environment(TERM="xterm-256color"), stdin=slave, stdout=slave,
                         stderr=slave)
    os.close(slave)
    while p.poll() is None or select.select([master], [], [], 0)[0]:
        if select.select([master], [], [], 0.05)[0]:
            try:
                data = os.read(master, 65536)
            except OSError:     # EIO: the other end is closed
                break
            if not data:
                break
            os.write(1, data)
    os.close(master)
    return p.wait()


def journal(d, since):
    """The entries from index `since` on, as journalctl prints them."""
    for e in d.journal[since:]:
        style = {"3": "red", "4": "yellow", "6": "green"}.get(e.get("PRIORITY"), "dim")
        if e.get("NODEWHY_STATE"):
            say(paint(style, "nodewhy[%d]: %s" % (d.process.pid, e["MESSAGE"])))
    return len(d.journal)


def main():
    which = sys.argv[1] if len(sys.argv) > 1 else "metadata"
    if which not in FAULTS:
        print("demo.sh [%s]" % "|".join(FAULTS), file=sys.stderr)
        return 64
    if os.geteuid() != 0:
        print("demo.sh makes network namespaces and needs root: sudo make demo", file=sys.stderr)
        return 77
    if not os.access(World.binary(), os.X_OK):
        print("demo.sh: there is no %s yet: run make first" % World.binary(), file=sys.stderr)
        return 1
    fault, story = FAULTS[which]
    began = time.monotonic()
    step("An EKS node: m5.large, two ENIs, 12 pods, its VPC, metadata, resolver, EC2 and STS")
    with World(enis=2, pods=12) as w:
        say("up in %.2f s, in two network namespaces of its own" % w.up_in)
        step("nodewhy run")
        d = w.daemon(watchdog=5)
        d.wait_notified("READY=1", timeout=10)
        d.wait_state("healthy", timeout=45)
        say("healthy after %.1f s" % (time.monotonic() - d.started))
        mark = journal(d, 0)
        step("Now " + story)
        broke = time.monotonic()
        undo = getattr(w, fault)()
        d.wait_status("a verdict", lambda s: s["verdict"]["state"] in ("degraded", "broken"), timeout=45)
        say("verdict %.1f s later" % (time.monotonic() - broke))
        d.wait("the verdict in the journal", lambda: any(
            e.get("NODEWHY_STATE") == "verdict" for e in d.journal[mark:]), timeout=5)
        step("What a person sees who logs in")
        show(w, "status")
        step("What the journal got")
        mark = journal(d, mark)
        step("What node-problem-detector reads (/run/nodewhy/conditions)")
        for c in d.status()["conditions"]:
            if c["status"] == "True":
                say("%s: %s" % (c["type"], d.condition(c["type"])[1]))
        step("The fault is taken away")
        healed = time.monotonic()
        undo()
        d.wait_state("healthy", timeout=45)
        d.wait("the verdict in the journal", lambda: any(
            e.get("NODEWHY_STATE") == "verdict" for e in d.journal[mark:]), timeout=5)
        say("healthy again %.1f s later, by itself" % (time.monotonic() - healed))
        journal(d, mark)
        d.stop()
    step("All gone again; %.0f s in all" % (time.monotonic() - began))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TimeoutError as e:
        print("\ndemo: waited for " + str(e), file=sys.stderr)
        sys.exit(1)
