#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves the judges: a good report passes, and each way to break it is seen."""

import copy
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from scenarios import checks, contract, daemons, run, table  # noqa: E402,F401
from world.tap import Tap  # noqa: E402

T = "2026-08-20T10:00:00Z"


def finding(code, because=None, subject="", **more):
    layer, condition, severity, _ = contract.catalogue()[code]
    f = {"code": code, "layer": layer, "condition": condition, "severity": severity,
         "subject": subject, "summary": "what was seen", "remedy": "do this", "because": because,
         "because_subject": None, "since": T, "last_seen": T, "seen": 2, "evidence": {"n": 3, "s": "x"}}
    f.update(more)
    return f


def report(*findings):
    true = {f["condition"] for f in findings if f["because"] is None and f["severity"] != "notice"}
    worst = max([contract.SEVERITIES.index(f["severity"]) for f in findings], default=0)
    root = findings[0] if worst else None
    return {
        "schema": "nodewhy.status/1", "written_at": T, "boot_id": "x", "uptime_s": 9.5,
        "valid_for_s": 90, "seq": 1, "node": {k: None for k in contract.SCHEMA["node"]},
        "verdict": {"state": ("healthy", "degraded", "broken")[worst], "stage": "ready",
                    "root": root and root["code"], "subject": root and root["subject"],
                    "summary": "s", "remedy": root and "do this", "since": T, "deadline_s": None},
        "findings": list(findings),
        "conditions": [{"type": t, "status": "True" if t in true else "False", "reason": None,
                        "message": "m", "since": T} for t in contract.JUDGED],
        "network": {k: [] if k == "enis" else None for k in contract.SCHEMA["network"]},
        "probes": [{"name": "imds", "layer": "metadata", "subject": None, "outcome": "ok", "code": 0,
                    "took_ms": 1.5, "at": 9.1, "detail": None}]}


class Fake:
    last_stdout = last_stderr = ""
    last_took = 1.0


def main():
    tap = Tap()
    both = report(finding("DefaultRouteMissing"), finding("ImdsUnreachable", "DefaultRouteMissing"))
    for name, doc in (("healthy", report()), ("a chain", both),
                      ("a notice", report(finding("LimitsUnknown")))):
        tap.equal(contract.schema(doc) + contract.meaning(doc), [], "passes: " + name)

    def seen(name, change, base=both):
        doc = copy.deepcopy(base)
        change(doc)
        bad = contract.schema(doc) or contract.meaning(doc)
        tap.ok(bad, "sees: " + name)

    for part in ("verdict", "network", "node"):
        for key in contract.SCHEMA[part]:
            seen("%s.%s is missing" % (part, key), lambda d: d[part].pop(key))
    for part in ("findings", "conditions", "probes"):
        for key in contract.SCHEMA[part + "[]"]:
            seen("%s[0].%s is missing" % (part, key), lambda d: d[part][0].pop(key))
    seen("number as text", lambda d: d.update(uptime_s="9"))
    seen("boolean as number", lambda d: d.update(seq=True))
    seen("time without zone", lambda d: d.update(written_at="2026-08-20T10:00:00"))
    seen("because of what is not there", lambda d: d["findings"].pop(0))
    seen("a circle", lambda d: d["findings"][0].update(because="ImdsUnreachable"))
    seen("a consequence before a root", lambda d: d["findings"].reverse())
    seen("state too mild", lambda d: d["verdict"].update(state="degraded"))
    seen("healthy with a finding", lambda d: d["verdict"].update(state="healthy", root=None))
    seen("another root", lambda d: d["verdict"].update(root="ImdsUnreachable"))
    seen("a consequence pages", lambda d: d["conditions"][1].update(status="True"))
    seen("the root does not page", lambda d: d["conditions"][0].update(status="False"))
    seen("unfilled remedy", lambda d: d["findings"][0].update(remedy="reboot {instance_id}"))
    seen("long summary", lambda d: d["findings"][0].update(summary="\u00e9" * 81))
    seen("unknown code", lambda d: d["findings"][1].update(code="NoSuchCode"))
    seen("wrong severity", lambda d: d["findings"][1].update(severity="notice"))
    seen("twice the same", lambda d: d["findings"].append(d["findings"][1]))
    seen("a probe in the future", lambda d: d["probes"][0].update(at=10.5))
    seen("a verdict without summary", lambda d: d["verdict"].update(summary=None))
    seen("unknown outcome", lambda d: d["probes"][0].update(outcome="bad"))
    mild = report(finding("ImdsHopLimitLow"), finding("EndpointTimeout", subject="ec2"))
    tap.ok(contract.meaning(mild), "sees: the mild root before the fatal one")

    s = next(x for x in table.scenarios if x.name == "route/no-default")
    full = report(finding("DefaultRouteMissing"), finding("ImdsUnreachable", "DefaultRouteMissing"),
                  finding("ResolverUnreachable", "DefaultRouteMissing"))
    tap.equal(run.judge(s, Fake, full, 2), [], "judge passes what was expected")
    tap.ok(run.judge(s, Fake, both, 2), "judge sees a missing finding")
    tap.ok(run.judge(s, Fake, full, 1), "judge sees the exit code")
    more = copy.deepcopy(full)
    more["findings"].append(finding("ImdsSlow", "DefaultRouteMissing"))
    tap.ok(run.judge(s, Fake, more, 2), "judge sees a finding too many")
    other = report(finding("DefaultRouteMissing"), finding("ImdsUnreachable", "DefaultRouteMissing"),
                   finding("ResolverUnreachable", "ImdsUnreachable"))
    tap.ok(run.judge(s, Fake, other, 2), "judge sees another cause")
    tap.ok(run.judge(s, Fake, None, 2), "judge sees that there is no report")

    good = ["1", "ImdsUnreachable: no answer", "130", ""]
    tap.equal(contract.condition_file("X", good, 100), [], "passes: a condition file")
    for name, lines in (("no file", None), ("two lines", good[:2] + [""]), ("no newline", good[:3]),
                        ("status 3", ["3"] + good[1:]), ("a percent", ["1", "A: 5%", "130", ""]),
                        ("81 bytes", ["1", "A: " + "x" * 78, "130", ""]), ("UTF-8", ["1", "A: \u00e9", "130", ""]),
                        ("no code", ["1", "no answer", "130", ""]), ("past", good[:2] + ["90", ""]),
                        ("far ahead", good[:2] + ["9000", ""]), ("a fraction", good[:2] + ["130.5", ""])):
        tap.ok(contract.condition_file("X", lines, 100), "sees in a condition file: " + name)
    text = '# TYPE nodewhy_up gauge\nnodewhy_up{a="x\\"y"} 1\nnodewhy_up 2.5\n'
    tap.equal(contract.metrics(text), [], "passes: metrics")
    for name, bad in (("no TYPE", "nodewhy_up 1\n"), ("no number", text + "nodewhy_up{b=\"c\"} x\n"),
                      ("twice", text + "nodewhy_up 3\n"), ("no newline", text[:-1]), ("empty", "")):
        tap.ok(contract.metrics(bad), "sees in metrics: " + name)
    raised = {c for x in table.scenarios if not x.daemon for c in x.codes}
    print("# %d scenarios of check, %d of run, %d codes" % (
        sum(not x.daemon for x in table.scenarios), sum(x.daemon for x in table.scenarios), len(raised)))
    unknown = sorted((raised | {m for x in table.scenarios for m in x.maybe}) - set(contract.catalogue()))
    tap.equal(unknown, [], "every expected code is in the catalogue")
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
