# SPDX-License-Identifier: Apache-2.0
"""A world for a shell: python3 tests/world [options] [-- COMMAND...]

Runs COMMAND (default: a shell) in the simulated node, with the faults given, and removes all of it
afterwards. $ROOT is the host tree: `nodewhy check --root "$ROOT"` in that shell sees the node; in
COMMAND, @ROOT@ stands for it.
"""

import argparse
import inspect
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from world import World, faults  # noqa: E402


def value(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def main():
    options = [n for n in inspect.signature(World.__init__).parameters if n != "self"]
    p = argparse.ArgumentParser(prog="tests/world", description=__doc__.split("\n\n")[0],
                                epilog="Options of --set: " + ", ".join(options)
                                + ". Faults: " + ", ".join(faults()))
    p.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                   help="an option of the world, as --set enis=2")
    p.add_argument("--fault", action="append", default=[], metavar="NAME[=VALUE]",
                   help="a fault, as --fault imds_drop or --fault dns_nxdomain=ec2")
    p.add_argument("command", nargs="*", help="what to run; default a shell")
    a = p.parse_args()
    kwargs = {k: value(v) for k, _, v in (x.partition("=") for x in a.set)}
    with World(**kwargs) as w:
        for f in a.fault:
            name, equals, v = f.partition("=")
            getattr(w, name)(*([value(v)] if equals else []))
        w._host_settle()
        env = w.environment(ROOT=w.root, TERM=os.environ.get("TERM", "dumb"),
                            PATH=os.path.dirname(w.binary()) + ":/usr/sbin:/usr/bin:/sbin:/bin")
        return subprocess.run(w.node.argv(
            [x.replace("@ROOT@", w.root) for x in a.command] or ["/bin/sh"]), env=env).returncode


sys.exit(main())
