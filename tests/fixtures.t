#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every directory below tests/fixtures holds what a node looked like (capture.json, in the status file's own format) and
what must be said of it (findings.json). `nodewhy replay` is held against that.

findings.json: {"state": ..., "root": CODE or null, "findings": [{"code", "subject", "severity", "because"}]}, and, where
it matters, "exit": the exit code (else the state's), "conditions": [the types that are True], "summary": a part of the
root's summary. Findings are compared whole and in order: one that is not expected is a failure.

usage: fixtures.t [--show NAME...]   prints what is said today, to write a new findings.json from, after reading it
"""
import glob
import itertools
import json
import os
import subprocess
import sys
import tempfile

NODEWHY = os.environ.get("NODEWHY") or os.path.join(os.environ.get("B", "build/release"), "nodewhy")
EXITS = {"healthy": 0, "starting": 0, "degraded": 1, "broken": 2, "blind": 3}
KEYS = ("code", "subject", "severity", "because")


def replay(capture):
    r = subprocess.run([NODEWHY, "replay", capture, "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    try:
        return r.returncode, json.loads(r.stdout), r.stderr.decode(errors="replace")
    except ValueError:
        return r.returncode, None, (r.stdout + r.stderr).decode(errors="replace")


def said(status):
    return {"state": status["verdict"]["state"], "root": status["verdict"]["root"],
            "conditions": [c["type"] for c in status["conditions"] if c["status"] == "True"],
            "findings": [{k: f[k] for k in KEYS} for f in status["findings"]]}


def invariants(status):
    """What holds of every report, whatever the fixture."""
    bad, codes = [], {f["code"] for f in status["findings"]}
    serious = [f for f in status["findings"] if f["severity"] != "notice"]
    if bool(status["verdict"]["root"]) != bool(serious):
        bad.append(f"root is {status['verdict']['root']} with {len(serious)} findings")
    because = {f["code"]: f["because"] for f in status["findings"]}
    for f in status["findings"]:
        at, steps = f["code"], 0
        while because.get(at) and steps <= len(because):
            at, steps = because[at], steps + 1
        if at not in codes or because.get(at):
            bad.append(f"{f['code']}: following because does not end at a root")
        if not f["summary"] or len(f["summary"].encode()) > 160 or "\n" in f["summary"]:
            bad.append(f"{f['code']}: summary is not one line of 1 to 160 bytes: {f['summary']!r}")
        if not f["remedy"] or "{" in f["remedy"] or "\n" in f["remedy"]:
            bad.append(f"{f['code']}: remedy cannot be typed: {f['remedy']!r}")
    if not any(f["because"] is None for f in status["findings"]) and status["findings"]:
        bad.append("no finding is a root")
    return bad


def judge(directory, code, status, noise):
    with open(os.path.join(directory, "findings.json")) as f:
        want = json.load(f)
    if status is None:
        return [f"exit code {code}, no JSON: {noise[:2000]}"]
    got, bad = said(status), []
    for key in ("state", "root", "findings", "conditions"):
        if key in want and got[key] != want[key]:
            bad += [f"{key}: wanted {json.dumps(want[key])}", f"{key}: got    {json.dumps(got[key])}"]
    expected = want.get("exit", EXITS[want["state"]])
    if code != expected:
        bad.append(f"exit code: wanted {expected}, got {code}")
    if want.get("summary", "") not in (status["verdict"]["summary"] or ""):
        bad.append(f"summary: wanted {want['summary']!r} in {status['verdict']['summary']!r}")
    if noise:
        bad.append(f"stderr: {noise}")
    return bad + invariants(status)


def replay_all(captures):
    """What one process says of them all, in their order."""
    r = subprocess.run([NODEWHY, "replay", "--json", *captures], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60)
    decode, text, at, found = json.JSONDecoder().raw_decode, r.stdout.decode(), 0, []
    while at < len(text):
        status, at = decode(text, at)
        at += 1  # its line end
        found.append(status)
    return r.returncode, found, r.stderr.decode(errors="replace")


def all_at_once(captures, first):
    """One process says of all what one each says; and a replay of what replay prints says the same: the status file
    loses nothing that the diagnosis needs."""
    used = os.times().children_user + os.times().children_system
    code, found, noise = replay_all(captures)
    used = os.times().children_user + os.times().children_system - used
    same = [said(s) for s in first if s] == [said(s) for s in found] and len(found) == len(captures)
    worst = max(EXITS[s["verdict"]["state"]] for s in found) if found else None
    yield f"one process replays all {len(captures)} in {used:.2f} s of processor time", \
        [] if same and code == worst and not noise else [f"exit code {code}, {len(found)} of {len(captures)}: {noise[:500]}"]
    with tempfile.TemporaryDirectory() as d:
        paths = [os.path.join(d, f"{i}.json") for i in range(len(found))]
        for path, status in zip(paths, found):
            with open(path, "w") as f:
                json.dump(status, f)
        _, second, noise = replay_all(paths)
    for capture, a, b in itertools.zip_longest(captures, found, second):
        a, b = a and said(a), b and said(b)
        if a != b:
            noise += f"{capture}: first {json.dumps(a)}, second {json.dumps(b)}\n"
    yield "replayed from their own replays they say the same", noise.splitlines()


def refused():
    """What is no capture is refused in one line with exit code 3: never a crash, never a verdict."""
    with open("tests/fixtures/healthy/capture.json") as f:
        good = json.load(f)
    look = good["probes"][0]
    cases = {
        "empty": "", "not JSON": "hello", "an array": "[]", "cut": json.dumps(good)[:-20], "no schema": json.dumps(dict(good, schema=None)),
        "another schema": json.dumps(dict(good, schema="nodewhy.status/9")), "probes that are no array": json.dumps(dict(good, probes={})),
        "a look that is a number": json.dumps(dict(good, probes=[7])), "a nameless probe": json.dumps(dict(good, probes=[dict(look, name="")])),
        "an unknown judgement": json.dumps(dict(good, probes=[dict(look, judged="Ghost")])),
        "an unknown outcome": json.dumps(dict(good, probes=[dict(look, outcome="fine")])), "an unknown layer": json.dumps(dict(good, probes=[dict(look, layer="moon")])),
        "too many looks": json.dumps(dict(good, probes=[look] * 5000)), "a key twice": '{"schema": "nodewhy.status/1", "schema": "nodewhy.status/1", "probes": []}',
        "deep nesting": "[" * 100000, "NUL bytes": "\0" * 1000,
    }
    for name, text in cases.items():
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"nodewhy-refused-{os.getpid()}.json")
        with open(path, "w") as f:
            f.write(text)
        try:
            code, status, noise = replay(path)
        finally:
            os.unlink(path)
        bad = [] if code == 3 and status is None and noise.count("\n") == 1 else [f"exit code {code}, said: {noise[:500]!r}"]
        yield f"refused: {name}", bad


def main():
    if "--show" in sys.argv:
        for name in sys.argv[2:]:
            _, status, noise = replay(os.path.join("tests/fixtures", name, "capture.json"))
            print(json.dumps(said(status), indent=1) if status else noise)
        return 0
    n, failed, results = 0, 0, []
    directories = sorted(glob.glob("tests/fixtures/*/"))
    captures = [d + "capture.json" for d in directories]
    replays = [replay(c) for c in captures]
    for directory, (code, status, noise) in zip(directories, replays):
        results.append((os.path.basename(os.path.dirname(directory)), judge(directory, code, status, noise)))
    results += all_at_once(captures, [status for _, status, _ in replays])
    for what, bad in [*(results if directories else [("there are fixtures", ["none"])]), *refused()]:
        n += 1
        failed += bool(bad)
        print(f"{'not ' if bad else ''}ok {n} - {what}")
        for line in bad:
            print("#", line)
    print(f"1..{n}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
