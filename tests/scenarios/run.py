#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the scenarios against the real binary and prints TAP.

    tests/scenarios/run.py [-v] [-j N] [-l] [PATTERN...]

PATTERN is part of a name (or a whole one, or a shell pattern). -v dumps each report, -l lists the
names. The binary is $NODEWHY, else build/release/nodewhy.
"""

import argparse
import concurrent.futures
import fnmatch
import json
import os
import signal
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
from scenarios import checks, cni, contract, daemons, host, hostile, identity, join, kubelet, table  # noqa: E402,F401
from world import World  # noqa: E402

LIMIT = 90  # seconds a scenario may take in all before it is ended


def judge(s, w, report, code):
    """What does not fit, in words."""
    bad = []
    if code not in (s.exit or (code,)):
        bad.append("exit code %d, not %s" % (code, " or ".join(map(str, s.exit))))
    if report is None:
        return bad + ["stdout is no JSON: %r" % w.last_stdout[:300]]
    bad += contract.secrets(w.last_stdout + w.last_stderr)
    broken = contract.schema(report)
    bad += broken
    if broken:
        return bad
    bad += contract.meaning(report)
    v, findings = report["verdict"], report["findings"]
    if contract.EXIT.get(v["state"]) != code:
        bad.append("state %s with exit code %d" % (v["state"], code))
    if v["state"] not in s.states:
        bad.append("state %s, not %s" % (v["state"], " or ".join(s.states)))

    def same(got, want):
        return got == want or got in s.one_of.get(want, ())

    real = [f for f in findings if f["severity"] != "notice"]
    roots = [c for c, because in s.codes.items() if because is None]
    if not s.codes:
        if v["root"] is not None:
            bad.append("root %s on a sound node" % v["root"])
    elif v["root"] not in s.one_of.get("root", ()) and not same(v["root"], roots[0]):
        bad.append("root %s, not %s" % (v["root"], roots[0]))
    elif s.subject is not None:
        wanted = (s.subject,) if isinstance(s.subject, str) else s.subject
        subject = v["subject"] or ""
        if subject not in wanted and not any(x in subject for x in wanted if len(x) > 4):
            bad.append("subject %r, not %s" % (subject, " or ".join(wanted)))
    for code_, because in s.codes.items():
        found = [f for f in real if same(f["code"], code_)]
        if not found:
            bad.append("%s is missing" % code_)
        for f in found:
            walk = contract.chain(f, findings)[0]
            if because == table.ANY:
                if len(walk) < 2 or not any(same(walk[-1], r) for r in roots):
                    bad.append("%s: the chain %s does not end at %s" % (
                        f["code"], " <- ".join(walk), " or ".join(roots)))
            elif f["because"] != because:
                bad.append("%s is because of %s, not %s" % (f["code"], f["because"], because))
    for f in real:
        if any(same(f["code"], c) for c in s.codes):
            continue
        if f["code"] not in s.maybe:
            bad.append("%s (%s) should not be there: %s" % (f["code"], f["subject"], f["summary"]))
        elif f["because"] != s.maybe[f["code"]] and (s.maybe[f["code"]] != table.ANY or f["because"] is None):
            bad.append("%s is because of %s, not %s" % (f["code"], f["because"], s.maybe[f["code"]]))
    for n in s.notices:
        if not any(f["code"] == n and f["severity"] == "notice" for f in findings):
            bad.append("notice %s is missing" % n)
    if s.within and w.last_took > s.within:
        bad.append("took %.2f s, more than %g" % (w.last_took, s.within))
    if s.more:
        s.more(w, report, bad.append)
    return bad


def one(name):
    """Runs one scenario in this process; prints its result as JSON for the runner."""
    s = next(x for x in table.scenarios if x.name == name)
    out = {"bad": [], "report": None, "took": None, "skip": None}
    try:
        with World(**s.world) as w:
            if s.needs == "vlan" and not w.can_vlan():
                out["skip"] = "this kernel has no vlan links"
            elif s.daemon:
                began = time.monotonic()
                s.set_up(w)
                out["took"] = time.monotonic() - began
            else:
                s.set_up(w)
                report, code = w.check(env=s.env, timeout=LIMIT - 10)
                out.update(report=report, took=w.last_took)
                out["bad"] = judge(s, w, report, code)
                if out["bad"] and w.last_stderr.strip():
                    out["bad"].append("stderr: " + w.last_stderr.strip()[-1500:])
    except (AssertionError, TimeoutError, subprocess.TimeoutExpired) as e:
        where = traceback.extract_tb(e.__traceback__)
        lines = [x for x in where if "/scenarios/" in x.filename]
        out["bad"].append("%s (line %d)" % (e, lines[-1].lineno if lines else 0))
    except Exception:
        out["bad"].append(traceback.format_exc())
    print(json.dumps(out))


def start(s):
    name, limit = s.name, s.limit or LIMIT
    p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--one", name],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        stdout, stderr = p.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        p.send_signal(signal.SIGTERM)
        try:
            stdout, stderr = p.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            p.kill()
            stdout, stderr = p.communicate()
        return {"bad": ["not done within %d s" % limit], "report": None, "took": None, "skip": None}
    try:
        return json.loads(stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"bad": ["the scenario died with %d" % p.returncode, stderr[-2000:]], "report": None,
                "took": None, "skip": None}
    finally:
        if stderr.strip():
            print("\n".join("# " + x for x in stderr.strip().splitlines()[-20:]))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("-v", "--verbose", action="store_true")
    p.add_argument("-l", "--list", action="store_true")
    p.add_argument("-j", "--jobs", type=int, default=4)
    p.add_argument("--one", help=argparse.SUPPRESS)
    p.add_argument("pattern", nargs="*")
    a = p.parse_args()
    if a.one:
        return one(a.one)
    todo = [s for s in table.scenarios if not a.pattern or any(
        x in s.name or fnmatch.fnmatchcase(s.name, x) for x in a.pattern)]
    if a.list:
        for s in todo:
            print("%-45s %s" % (s.name, (s.doc or "").strip().split("\n")[0]))
        return 0
    if os.geteuid() != 0:
        print("1..0 # SKIP needs root for network namespaces")
        return 0
    if not os.access(World.binary(), os.X_OK):
        print("Bail out! no binary at %s" % World.binary())
        return 1
    print("1..%d" % len(todo))
    failed, began = [], time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(max(1, a.jobs)) as pool:
        for i, (s, out) in enumerate(zip(todo, pool.map(start, todo)), 1):
            took = "" if out["took"] is None else " (%.2f s)" % out["took"]
            if out["skip"]:
                print("ok %d - %s # SKIP %s" % (i, s.name, out["skip"]))
            else:
                print("%sok %d - %s%s" % ("not " if out["bad"] else "", i, s.name, took))
            for note in out["bad"]:
                print("\n".join("#   " + x for x in note.splitlines()))
            if out["bad"]:
                failed.append(s.name)
            if a.verbose and out["report"]:
                print("\n".join("#   " + x for x in json.dumps(out["report"], indent=1).splitlines()))
            sys.stdout.flush()
    print("# %d of %d scenarios failed, %.0f s" % (len(failed), len(todo), time.monotonic() - began))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
