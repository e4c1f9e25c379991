# SPDX-License-Identifier: Apache-2.0
"""Scenarios of `nodewhy run`: what it says in its journal and files when a fault comes and goes."""

import fcntl
import json
import os
import re
import struct
import termios
import time
import tty

from world.world import REPOSITORY

from . import contract
from .table import daemon

HOOK = os.path.join(REPOSITORY, "packaging/npd/nodewhy-condition")
TEMPORARY = re.compile(r"\..+\.\d+\.tmp")       # what daemon/file.c writes before it renames it
PRIORITY = {"fatal": "3", "degraded": "4", "notice": "5"}


def holds(what, bad):
    assert not bad, what + ": " + "; ".join(bad)


def run(w, *options, defaults=False, **more):
    """The daemon, its looks at endpoints and the API server some seconds apart: at the default 20 s, most of a scenario would be waiting for the
    first of them. defaults: as it comes."""
    if not defaults:
        conf = os.path.join(w.dir, "quick.conf")
        with open(conf, "w") as f:
            f.write("[Probe endpoint]\nIntervalSec=2\n[Probe apiserver]\nIntervalSec=1\n[Probe subnet]\nIntervalSec=2\n")
        options = ("--config", conf, *options)
    return w.daemon(*options, **more)


def start(w, state="healthy", **options):
    """A daemon that has come to its first verdict."""
    d = run(w, **options)
    d.wait_notified("READY=1", timeout=10)
    if state:
        d.wait_state(state, timeout=15)
    return d


def alarms(d):
    """Journal entries about findings that are no notices."""
    return [(e.get("NODEWHY_STATE"), e.get("NODEWHY_CODE"), e.get("MESSAGE")) for e in d.journal
            if e.get("NODEWHY_STATE") == "raised" and e.get("PRIORITY", "") < "5"]


def files_hold(w, d):
    """Everything in /run/nodewhy keeps the contract, and agrees with itself."""
    s = d.status()
    holds("status.json", contract.schema(s))
    holds("status.json", contract.meaning(s))
    holds("status.json", contract.secrets(w.tree.read("run/nodewhy/status.json").decode()))
    assert os.stat(w.tree.at("run/nodewhy/status.json")).st_mode & 0o777 == 0o644, "status.json mode"
    assert s["boot_id"].replace("-", "") == w.tree.boot_id.replace("-", ""), "boot_id is not DIR's own"
    assert abs(s["uptime_s"] - w.uptime()) < 70, "uptime_s %r is not DIR's own" % s["uptime_s"]
    assert s["valid_for_s"] > 0, "valid_for_s"
    # The files are replaced one after the other: they have to agree in a moment, not at once.
    end = time.monotonic() + 1
    while True:
        bad = conditions_differ(w, d, d.status())
        if not w.tree.exists("run/nodewhy/metrics.prom"):
            bad.append("metrics.prom is missing")
        if not bad or time.monotonic() > end:
            break
        d.poll(0.01)
    holds("files", bad)
    holds("metrics.prom", contract.metrics(w.tree.read("run/nodewhy/metrics.prom").decode()))
    nothing_left(d, w.tree.at("run/nodewhy"))
    return s


def nothing_left(d, directory, *more):
    """Nothing but nodewhy's own files; one that is being written now is gone a moment later."""
    def left():
        return [n for n in os.listdir(directory) if n not in ("status.json", "conditions", "metrics.prom", *more)]

    for name in left():
        assert TEMPORARY.fullmatch(name), "file left: %s" % name
        d.wait(name + " is gone", lambda name=name: name not in left(), timeout=2)


def conditions_differ(w, d, s):
    """What of conditions/ breaks its format or says something else than status.json."""
    bad = []
    for c in s["conditions"]:
        lines = d.condition(c["type"])
        bad += contract.condition_file(c["type"], lines, w.uptime())
        want = {"True": "1", "False": "0", "Unknown": "2"}[c["status"]]
        if lines and lines[0] != want:
            bad.append("conditions/%s says %s, status.json %s" % (c["type"], lines[0], c["status"]))
    return bad


def raised(w, d, code, timeout=15.0, severity="fatal"):
    """The journal entry that raises a code, with every field of CONTRACT.md section 5."""
    e = d.wait_journal("raised " + code, timeout, NODEWHY_STATE="raised", NODEWHY_CODE=code)
    layer = contract.catalogue()[code][0]
    assert e.get("SYSLOG_IDENTIFIER") == "nodewhy", "SYSLOG_IDENTIFIER %r" % e.get("SYSLOG_IDENTIFIER")
    assert e.get("PRIORITY") == PRIORITY[severity], "PRIORITY %r" % e.get("PRIORITY")
    assert re.fullmatch(r"[0-9a-f]{32}", e.get("MESSAGE_ID", "")), "MESSAGE_ID %r" % e.get("MESSAGE_ID")
    assert e.get("NODEWHY_LAYER") == layer, "NODEWHY_LAYER %r" % e.get("NODEWHY_LAYER")
    assert "NODEWHY_SUBJECT" in e and "NODEWHY_VERDICT" in e, "fields: %s" % sorted(e)
    assert e["MESSAGE"].startswith(code + ": "), "MESSAGE %r" % e["MESSAGE"]
    assert isinstance(json.loads(e.get("NODEWHY_EVIDENCE", "null")), dict), "NODEWHY_EVIDENCE"
    return e


def cleared(d, code, timeout=20.0):
    e = d.wait_journal("cleared " + code, timeout, NODEWHY_STATE="cleared", NODEWHY_CODE=code)
    assert e.get("PRIORITY") == "6", "a cleared entry has PRIORITY %r" % e.get("PRIORITY")
    return e


def hook(w, kind):
    """(exit code, line) of the sh hook, as in NPD's container: only /run/nodewhy and /proc/uptime."""
    p = w.run(["unshare", "-m", "sh", "-c", "mount --make-rprivate / && mount -t tmpfs tmpfs /run && "
               "mkdir /run/nodewhy && mount --bind \"$1/run/nodewhy\" /run/nodewhy && "
               "mount --bind \"$1/proc/uptime\" /proc/uptime && exec sh \"$2\" \"$3\"",
               "sh", w.root, HOOK, kind])
    assert not p.stderr, "the hook says on stderr: %s" % p.stderr
    return p.returncode, p.stdout


def verb(w, *argv):
    w.tree.uptime(w.uptime())
    p = w.run([w.binary(), *argv, "--root", w.root])
    return p.returncode, p.stdout


def hook_agrees(w, d, kind, code):
    d.poll()
    line = d.condition(kind)[1]
    got = hook(w, kind)
    assert got == (code, line + "\n"), "hook: %r, file: %r" % (got, d.condition(kind))
    got = verb(w, "condition", kind)
    assert (got[0], got[1]) == (code, line + "\n"), "nodewhy condition: %r" % (got,)


def fault_and_heal(w, fault, code, condition, severity="fatal", within=15.0, **options):
    """The whole life of one finding: raised, written everywhere, cleared, gone everywhere."""
    d = start(w, **options)
    files_hold(w, d)
    assert not alarms(d), "alarms on a sound node: %s" % alarms(d)
    began = time.monotonic()
    undo = fault()
    state = {"fatal": "broken", "degraded": "degraded"}[severity]
    s = d.wait_root(code, timeout=within)
    assert s["verdict"]["state"] == state, "state %s" % s["verdict"]["state"]
    took = time.monotonic() - began
    assert took < within, "%s after %.1f s" % (code, took)
    raised(w, d, code, severity=severity)
    e = d.wait_journal("verdict", NODEWHY_STATE="verdict", NODEWHY_VERDICT=state)
    assert re.match(r"verdict %s: %s: .+\. Fix: .+" % (state, code), e["MESSAGE"], re.S), e["MESSAGE"]
    d.wait("condition", lambda: d.condition(condition)[0] == "1")
    files_hold(w, d)
    assert d.condition(condition)[1].startswith(code + ": "), d.condition(condition)
    others = [c["type"] for c in d.status()["conditions"] if c["status"] == "True"]
    assert others == [condition], "one fault makes these conditions True: %s" % others
    hook_agrees(w, d, condition, 1)
    got = verb(w, "status")
    assert got[0] == contract.EXIT[state] and code in got[1], "nodewhy status: %r" % (got,)
    undo()
    cleared(d, code)
    d.wait_state("healthy", timeout=20)
    d.wait("condition", lambda: d.condition(condition)[0] == "0")
    d.wait_journal("verdict healthy", NODEWHY_STATE="verdict", NODEWHY_VERDICT="healthy")
    files_hold(w, d)
    hook_agrees(w, d, condition, 0)
    lines = [(x.get("NODEWHY_STATE"), x.get("NODEWHY_CODE")) for x in d.journal]
    assert lines.count(("raised", code)) == 1 and lines.count(("cleared", code)) == 1, lines
    assert d.stop() == 0, "exit status after SIGTERM"
    return d


def probe_is_bad(name):
    return lambda s: any(p["name"] == name and p["outcome"] not in ("ok", "skipped") for p in s["probes"])


def wait_event(d, what, test, limit=1.0):
    """Visible in status.json within a second: by an event, a poll would take up to 5 s."""
    return d.wait_status(what, test, timeout=limit)


@daemon("run/start-and-stop", enis=2, pods=5)
def _(w):
    """READY, WATCHDOG, every file, no alarm, and a clean end."""
    d = run(w, defaults=True, watchdog=1.0)
    d.wait_notified("READY=1", timeout=10)
    d.wait_state("healthy", timeout=30)
    s = files_hold(w, d)
    assert s["network"]["pod_ips_in_use"] == 5, s["network"]
    assert {c["type"]: c["status"] for c in s["conditions"] if c["status"] != "False"
            and c["type"] in contract.JUDGED} == {}, s["conditions"]
    d.wait_notified("WATCHDOG=1", timeout=3)
    got = verb(w, "status", "--json")
    assert got[0] == 0 and json.loads(got[1])["verdict"]["state"] == "healthy", got
    assert not alarms(d), alarms(d)
    hook_agrees(w, d, "DnsProblem", 0)
    began = time.monotonic()
    assert d.stop() == 0, "exit status after SIGTERM"
    assert time.monotonic() - began < 2, "stopped after %.1f s" % (time.monotonic() - began)
    lines = [x for _, x in d.notified]
    assert "STOPPING=1" in lines and lines.index("READY=1") < lines.index("STOPPING=1"), lines
    assert lines.count("READY=1") == 1, lines
    loud = [e["MESSAGE"] for e in d.journal if e.get("PRIORITY", "7") <= "4"]
    assert not loud, loud


@daemon("run/watchdog-goes-on-while-all-is-silent")
def _(w):
    """A blocked loop would miss the watchdog: it is fed while every packet is lost."""
    d = run(w, defaults=True, watchdog=1.0)
    d.wait_notified("READY=1", timeout=10)
    d.wait_state("healthy", timeout=30)
    w.imds_drop()
    w.dns_drop()
    w.endpoint_drop()
    began = time.monotonic()
    d.wait_state("broken", timeout=15)
    beats = [t for t, x in d.notified if x == "WATCHDOG=1" and t > began] + [time.monotonic()]
    gaps = [b - a for a, b in zip([began] + beats, beats)]
    assert max(gaps) < 1.0, "%.2f s without WATCHDOG=1 of 1.0" % max(gaps)


@daemon("run/metadata-silent-and-back", pods=3)
def _(w):
    fault_and_heal(w, w.imds_drop, "ImdsUnreachable", "InstanceMetadataProblem")


@daemon("run/metadata-blocked-here-and-back")
def _(w):
    fault_and_heal(w, w.imds_route_prohibit, "MetadataRouteBlocked", "HostNetworkProblem")


@daemon("run/dns-silent-and-back")
def _(w):
    fault_and_heal(w, w.dns_drop, "ResolverUnreachable", "DnsProblem")


@daemon("run/endpoint-untrusted-and-back")
def _(w):
    fault_and_heal(w, w.endpoint_untrusted, "EndpointUntrusted", "AwsEndpointProblem", within=40.0)


@daemon("run/cni-file-gone-and-back")
def _(w):
    fault_and_heal(w, w.cni_absent, "CniConfigMissing", "CniProblem")


@daemon("run/no-default-route-and-back")
def _(w):
    fault_and_heal(w, w.no_default_route, "DefaultRouteMissing", "HostNetworkProblem")


@daemon("run/everything-silent")
def _(w):
    """Under 15 s after the fault begins: the right root, one page a root."""
    d = start(w)
    for fault in (w.imds_drop, w.dns_drop, w.endpoint_drop):
        fault()
    s = d.wait_status("both roots", lambda s: {"ImdsUnreachable", "ResolverUnreachable"} <= {
        f["code"] for f in s["findings"] if f["because"] is None}, timeout=15)
    assert s["verdict"]["root"] == "ImdsUnreachable", s["verdict"]
    files_hold(w, d)
    w.heal()
    d.wait_state("healthy", timeout=30)
    assert d.stop() == 0


@daemon("run/tokens-forgotten")
def _(w):
    """A 401 for a cached token is answered with a fresh one, and is no finding."""
    d = start(w)
    seq = d.status()["seq"]
    n = len(w.imds.requests)
    w.imds_forget_tokens()
    d.wait("a fresh token", lambda: [r[3] for r in w.imds.requests[n:] if r[1] == "PUT"], timeout=15)
    d.wait("metadata with it", lambda: any(r[1] == "GET" and r[3] == 200 for r in w.imds.requests[
        max(i for i, r in enumerate(w.imds.requests) if r[1] == "PUT"):]), timeout=10)
    assert 401 in [r[3] for r in w.imds.requests[n:]], "the token was not kept"
    assert d.status()["verdict"]["state"] == "healthy" and not alarms(d), alarms(d)
    assert d.status()["seq"] >= seq


@daemon("run/metadata-budget", enis=3, pods=9)
def _(w):
    """Never more than 60 requests in the first minute, counted over the busiest part of it: its start."""
    d = start(w)
    d.wait("a quarter of a minute", lambda: time.monotonic() - d.started > 15, timeout=20)
    assert len(w.imds.requests) <= 60, "%d requests in 15 s" % len(w.imds.requests)
    late = [r for r in w.imds.requests if r[0] > time.monotonic() - 5]
    assert len(late) <= 10, "%d requests in the last 5 s" % len(late)


@daemon("run/event-cni-file")
def _(w):
    d = start(w)
    undo = w.cni_absent()
    wait_event(d, "cni-config sees the file gone", probe_is_bad("cni-config"))
    undo()
    wait_event(d, "cni-config sees it back", lambda s: not probe_is_bad("cni-config")(s))


@daemon("run/event-route")
def _(w):
    d = start(w)
    undo = w.no_default_route()
    wait_event(d, "link sees the route gone", probe_is_bad("link"))
    undo()
    wait_event(d, "link sees it back", lambda s: not probe_is_bad("link")(s))


@daemon("run/event-pods", pods=3)
def _(w):
    """A pod's rule, route and link come and go."""
    d = start(w)
    link, address = w.add_pod()
    wait_event(d, "4 pod addresses", lambda s: s["network"]["pod_ips_in_use"] == 4)
    w.remove_pod(link, address)
    wait_event(d, "3 pod addresses", lambda s: s["network"]["pod_ips_in_use"] == 3)


@daemon("run/event-link-down", enis=2)
def _(w):
    d = start(w)
    undo = w.link_down()
    wait_event(d, "link sees it", probe_is_bad("link"))
    d.wait_root("PrimaryInterfaceDown", timeout=15)
    undo()
    d.wait_state("healthy", timeout=30)


@daemon("run/starting-then-healthy", uptime=20)
def _(w):
    """Boot: no CNI configuration, no alarm; then aws-node writes it."""
    undo = w.cni_absent()
    d = start(w, "starting")
    assert d.status()["findings"] == [] and not alarms(d), alarms(d)
    undo()
    d.wait_state("healthy", timeout=10)
    assert not alarms(d), alarms(d)


@daemon("run/region-from-kubeconfig")
def _(w):
    """Metadata is dead from the start: names are still resolved, endpoints still reached."""
    w.imds_drop()
    w.resolv_without_search()
    d = start(w, "broken")
    d.wait("both endpoints", lambda: all(w.tls[s].requests for s in ("ec2", "sts")), timeout=40)
    s = d.status()
    assert s["node"]["region"] == "us-west-2", s["node"]
    assert [f["code"] for f in s["findings"]] == ["ImdsUnreachable"], s["findings"]


@daemon("run/region-from-search-domain")
def _(w):
    w.imds_drop()
    w.no_kubeconfig()
    d = start(w, "broken")
    d.wait("both endpoints", lambda: all(w.tls[s].requests for s in ("ec2", "sts")), timeout=40)
    assert d.status()["node"]["region"] == "us-west-2", d.status()["node"]


@daemon("run/region-from-the-last-life")
def _(w):
    """The state directory remembers, when nothing else is left."""
    d = start(w)
    assert d.stop() == 0
    w.imds_drop()
    w.no_kubeconfig()
    w.resolv_without_search()
    n = {s: len(t.requests) for s, t in w.tls.items()}
    d = start(w, "broken")
    d.wait("both endpoints", lambda: all(len(w.tls[s].requests) > n[s] for s in ("ec2", "sts")), timeout=40)
    assert d.status()["node"]["region"] == "us-west-2", d.status()["node"]


@daemon("run/region-unknown")
def _(w):
    """Nothing tells the region: no guess, no finding about what was not looked at."""
    w.imds_drop()
    w.no_kubeconfig()
    w.resolv_without_search()
    d = start(w, "broken")
    s = d.status()
    assert [f["code"] for f in s["findings"]] == ["ImdsUnreachable"], s["findings"]
    assert not [q for x in w.dns.values() for q in x.queries if "amazonaws" in q[2]], "a guessed name"


def said_once(d, errno_text):
    """What cannot be written is said, each file once, however often it is tried again."""
    d.poll()
    said = [e["MESSAGE"] for e in d.journal if errno_text in e.get("MESSAGE", "")]
    assert said and len(said) == len(set(said)), "said: %s" % said
    assert any("/run/nodewhy" in x for x in said), said
    return said


@daemon("run/run-directory-read-only")
def _(w):
    """Said once in the journal, tried again, nothing lost but the write itself."""
    d = run(w, mounts=['mount --bind "$ROOT/run/nodewhy" "$ROOT/run/nodewhy"',
                         'mount -o remount,bind,ro "$ROOT/run/nodewhy"'])
    d.wait_notified("READY=1", timeout=10)
    d.wait("the failure is said", lambda: any("Read-only file system" in e.get("MESSAGE", "")
                                             for e in d.journal))
    undo = w.imds_drop()
    raised(w, d, "ImdsUnreachable")
    before = said_once(d, "Read-only file system")
    undo()
    cleared(d, "ImdsUnreachable")
    assert said_once(d, "Read-only file system") == before, "said again"
    d.inside("mount", "-o", "remount,bind,rw", w.root + "/run/nodewhy")
    d.wait_state("healthy", timeout=65)
    # where the directory came back while it was writing, what had failed is tried again some seconds later
    d.wait("the rest of the files", lambda: w.tree.exists("run/nodewhy/metrics.prom"), timeout=30)
    files_hold(w, d)
    assert d.stop() == 0


@daemon("run/run-directory-full")
def _(w):
    """No space for any of the files."""
    d = run(w, mounts=['mount -t tmpfs -o size=4k,mode=755 tmpfs "$ROOT/run/nodewhy"',
                         'head -c 4096 /dev/zero > "$ROOT/run/nodewhy/filler"'])
    d.wait_notified("READY=1", timeout=10)
    d.wait("the failure is said", lambda: any("No space left on device" in e.get("MESSAGE", "")
                                             for e in d.journal))
    w.imds_drop()
    raised(w, d, "ImdsUnreachable")
    said_once(d, "No space left on device")
    d.inside("mount", "-o", "remount,size=4m", w.root + "/run/nodewhy")
    path = "/proc/%d/root%s/run/nodewhy/status.json" % (d.process.pid, w.root)
    d.wait("status.json", lambda: os.path.exists(path) and os.path.getsize(path) > 0, timeout=65)
    with open(path) as f:
        assert json.load(f)["verdict"]["root"] == "ImdsUnreachable"
    nothing_left(d, os.path.dirname(path), "filler")


@daemon("run/state-directory-missing")
def _(w):
    """Without /var/lib/nodewhy it works, and forgets."""
    w.tree.remove("var/lib/nodewhy")
    d = start(w)
    files_hold(w, d)
    assert d.stop() == 0


@daemon("run/killed-then-stale")
def _(w):
    """A dead daemon's file is not believed for ever: status is blind, the hook says it cannot tell."""
    d = start(w)
    until = int(d.condition("DnsProblem")[2])
    d.kill()
    w.set_uptime(until + 1)
    got = hook(w, "DnsProblem")
    assert got[0] == 2, "hook past line 3: %r" % (got,)
    got = verb(w, "condition", "DnsProblem")
    assert got[0] == 2, "nodewhy condition past line 3: %r" % (got,)
    valid = d.status()["valid_for_s"] + d.status()["uptime_s"]
    w.set_uptime(max(valid, until) + 100)
    got = verb(w, "status")
    assert got[0] == 3, "nodewhy status of a stale file: %r" % (got,)


@daemon("run/no-daemon-ever")
def _(w):
    """No file at all: blind, not healthy."""
    assert verb(w, "status")[0] == 3, "nodewhy status without a file"
    assert verb(w, "condition", "DnsProblem")[0] == 2, "nodewhy condition without a file"
    assert hook(w, "DnsProblem")[0] == 2, "hook without a file"


@daemon("run/two-roots-two-pages")
def _(w):
    """Two independent faults: two roots, two conditions, and each clears on its own."""
    d = start(w)
    heal_token = w.imds_token_silent()
    w.imds_forget_tokens()      # else the cached one does for six hours
    heal_dns = w.dns_servfail()
    d.wait_status("both", lambda s: {"ImdsTokenTimeout", "ResolverFailing"} <= {
        f["code"] for f in s["findings"] if f["because"] is None}, timeout=15)
    s = files_hold(w, d)
    assert {c["type"] for c in s["conditions"] if c["status"] == "True"} == {
        "InstanceMetadataProblem", "DnsProblem"}, s["conditions"]
    heal_token()
    s = d.wait_root("ResolverFailing", timeout=20)
    assert [f["code"] for f in s["findings"]] == ["ResolverFailing"], s["findings"]
    heal_dns()
    d.wait_state("healthy", timeout=20)


@daemon("run/consequence-pages-once")
def _(w):
    """A fault with consequences: only the root's condition is True, and all clear when it goes."""
    d = start(w)
    undo = w.no_default_route()
    s = d.wait_status("root and consequences", lambda s: {
        "DefaultRouteMissing", "ImdsUnreachable", "ResolverUnreachable"} <= {
            f["code"] for f in s["findings"]}, timeout=20)
    files_hold(w, d)
    assert s["verdict"]["root"] == "DefaultRouteMissing", s["verdict"]
    s = d.status()
    assert [c["type"] for c in s["conditions"] if c["status"] == "True"] == ["HostNetworkProblem"], (
        s["conditions"])
    e = raised(w, d, "ImdsUnreachable")
    assert e.get("NODEWHY_BECAUSE") == "DefaultRouteMissing", e.get("NODEWHY_BECAUSE")
    undo()
    d.wait_state("healthy", timeout=30)
    assert not d.status()["findings"], d.status()["findings"]


def since_of(s, code):
    return [f["since"] for f in s["findings"] if f["code"] == code]


@daemon("run/restarted-while-sick")
def _(w):
    """A restarted daemon goes on: the same since, nothing said twice, and cleared once the fault is gone."""
    d = start(w)
    undo = w.dns_drop()
    d.wait_root("ResolverUnreachable", timeout=20)
    raised(w, d, "ResolverUnreachable")
    before = since_of(d.status(), "ResolverUnreachable")
    assert d.stop() == 0
    d = run(w)
    d.wait_notified("READY=1", timeout=10)
    d.wait_status("has looked again", lambda s: s["seq"] > 6 and s["verdict"]["root"] == "ResolverUnreachable", timeout=20)
    after = since_of(d.status(), "ResolverUnreachable")
    a, b = [time.mktime(time.strptime(x[0][:19], "%Y-%m-%dT%H:%M:%S")) for x in (before, after)]
    assert abs(a - b) <= 1, "since moved from %s to %s" % (before, after)
    said = [(e.get("NODEWHY_STATE"), e.get("NODEWHY_CODE")) for e in d.journal if e.get("NODEWHY_STATE")]
    assert not said, "said again after a restart: %s" % said
    undo()
    cleared(d, "ResolverUnreachable")
    d.wait_state("healthy", timeout=30)
    assert d.stop() == 0


@daemon("run/restarted-while-sound")
def _(w):
    """A restart of a sound node's daemon is no news."""
    d = start(w)
    assert d.stop() == 0
    w.tree.remove("run/nodewhy/status.json")
    d = run(w)
    d.wait_notified("READY=1", timeout=10)
    d.wait_state("healthy", timeout=10)
    d.wait_status("all endpoints looked at again", lambda s: sum(
        p["name"] == "endpoint" and p["outcome"] == "ok" for p in s["probes"]) == 6, timeout=45)
    said = [e.get("MESSAGE") for e in d.journal if e.get("NODEWHY_STATE")]
    assert not said, "said after a restart: %s" % said
    assert d.stop() == 0


@daemon("run/rebooted-while-sick")
def _(w):
    """Another boot is another life: its findings are raised anew."""
    d = start(w)
    undo = w.dns_drop()
    d.wait_root("ResolverUnreachable", timeout=20)
    assert d.stop() == 0
    undo()
    w.tree.boot_id = "11111111-2222-3333-4444-555555555555"
    w.tree.write("proc/sys/kernel/random/boot_id", w.tree.boot_id + "\n")
    d = run(w)
    d.wait_state("healthy", timeout=30)
    assert not since_of(d.status(), "ResolverUnreachable")
    assert not [e for e in d.journal if e.get("NODEWHY_STATE") in ("raised", "cleared")]
    assert d.stop() == 0


def console(w):
    """A terminal for the tree's /dev/console: the shell line that mounts it there, and what it has shown so far."""
    master, slave = os.openpty()
    os.set_blocking(master, False)
    tty.setraw(slave)
    w.tree.write("dev/console", "")
    name = os.ttyname(slave)

    def shown():
        try:
            return os.read(master, 1 << 16).decode("ascii")
        except BlockingIOError:
            return ""
    return 'mount --bind %s "$ROOT/dev/console"' % name, shown, (master, slave)


@daemon("run/console-while-it-has-not-joined", uptime=400)
def _(w):
    """The verdict goes to the serial console until the node is ready: get-console-output shows it."""
    mount, shown, _ = console(w)
    w.cni_absent()
    w.imds_drop()
    d = run(w, mounts=[mount])
    d.wait_root("ImdsUnreachable", timeout=20)
    text = ""

    def there():
        nonlocal text
        text += shown()
        return "\n" in text
    d.wait("a line on the console", there, timeout=5)
    assert all(32 <= ord(c) < 127 for line in text.split("\r\n") for c in line), text
    lines = [x for x in text.split("\r\n") if x]
    assert len(lines) == 1 and lines[0].startswith("nodewhy: verdict broken: "), lines
    assert d.stop() == 0


@daemon("run/console-off-or-stuck")
def _(w):
    """Console=no is silence; a console that takes nothing holds nobody up."""
    mount, shown, (master, slave) = console(w)
    w.cni_absent()
    with open(os.path.join(w.dir, "off.conf"), "w") as f:
        f.write("[Nodewhy]\nConsole=no\n[Probe endpoint]\nIntervalSec=2\n[Probe apiserver]\nIntervalSec=1\n[Probe subnet]\nIntervalSec=2\n")
    d = w.daemon("--config", os.path.join(w.dir, "off.conf"), mounts=[mount])
    d.wait_root("CniConfigMissing", timeout=20)
    assert not shown()
    assert d.stop() == 0
    os.set_blocking(slave, False)
    try:
        while True:
            os.write(slave, b"x" * 4096)
    except BlockingIOError:
        pass
    w.tree.remove("var/lib/nodewhy/state.json")
    d = run(w, mounts=[mount], watchdog=3)
    d.wait_root("CniConfigMissing", timeout=20)
    d.wait_notified("WATCHDOG=1", timeout=5)
    assert d.stop() == 0


@daemon("run/capture-replays-to-the-same", pods=3)
def _(w):
    """A capture says on any machine what the node said; redacted it names nobody, and says the same."""
    w.cni_invalid()
    w.endpoint_drop("sts")
    secret = contract.SECRETS
    want = None
    for options in ([], ["--redact"]):
        p = w.run([w.binary(), "capture", "-", "--root", w.root, *options])
        assert p.returncode == 0, p.stderr
        for s in secret:
            assert s not in p.stdout, "a secret is in the capture: %s" % s
        if options:
            left = [x for x in (w.instance_id, w.account, w.enis[0].eni_id, w.enis[0].mac, "10.0.1.5") if x in p.stdout]
            assert not left, "left in a redacted capture: %s" % left
        with open(os.path.join(w.dir, "capture.json"), "w") as f:
            f.write(p.stdout)
        p = w.run([w.binary(), "replay", os.path.join(w.dir, "capture.json"), "--json"])
        got = json.loads(p.stdout)
        said = [(f["code"], f["because"], f["severity"]) for f in got["findings"]]
        assert got["verdict"]["root"] == "EndpointTimeout" or got["verdict"]["root"] == "CniConfigInvalid", got["verdict"]
        if want is None:
            want = said
        assert said == want, (said, want)
    report, code = w.check()
    assert [(f["code"], f["because"], f["severity"]) for f in report["findings"]] == want


@daemon("run/history-after-a-reboot")
def _(w):
    """What the node said before it died can be read afterwards; the file stays bounded."""
    d = start(w)
    undo = w.dns_drop()
    d.wait_root("ResolverUnreachable", timeout=20)
    assert d.stop() == 0
    undo()
    old = w.tree.read("var/lib/nodewhy/history.jsonl").decode()
    w.tree.write("var/lib/nodewhy/history.jsonl", old * 600 + "half a li")
    d = start(w)
    undo = w.cni_absent()
    d.wait_root("CniConfigMissing", timeout=20)
    undo()
    cleared(d, "CniConfigMissing")
    assert d.stop() == 0
    lines = w.tree.read("var/lib/nodewhy/history.jsonl").decode().splitlines()
    assert len(lines) == 512, len(lines)
    got = verb(w, "history")
    assert got[0] == 0 and "ResolverUnreachable" in got[1] and "raised CniConfigMissing" in got[1].replace("\n    ", " "), got[1][-400:]
    assert "\033" not in got[1]


@daemon("run/watch-on-a-terminal")
def _(w):
    """watch draws the verdict, then only what changes, follows a resize, and leaves the terminal as it was."""
    d = start(w)
    pid, master = os.forkpty()
    if pid == 0:
        os.execvp("sh", ["sh", "-c", "exec \"$@\"", "sh", *w.node.argv([w.binary(), "watch", "--no-color", "--root", w.root])])
    os.set_blocking(master, False)
    seen = ""

    def until(text, timeout=10.0):
        nonlocal seen
        end = time.monotonic() + timeout
        while text not in seen:
            assert time.monotonic() < end, "waited for %r; got %r" % (text, seen[-600:])
            d.poll(0.02)
            try:
                seen += os.read(master, 65536).decode("utf-8", "replace")
            except BlockingIOError:
                pass

    try:
        until("HEALTHY")
        until("endpoint")
        seen = ""
        undo = w.cni_absent()
        until("BROKEN")
        until("CniConfigMissing")
        assert "loopback" not in seen and seen.count("ens5: up") <= 1, seen
        undo()
        until("HEALTHY", 20)
        seen = ""
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 0, 0))
        until("HEALTHY")
        os.write(master, b"\x03")
        until("\033[?25h")
    finally:
        os.close(master)
        os.waitpid(pid, 0)
    assert d.stop() == 0


@daemon("check/cut-short-cannot-tell")
def _(w):
    """A check that its --timeout ends before it is sure is blind, exit 3: neither healthy nor starting."""
    undo = [w.imds_drop(), w.dns_drop()]
    for seconds in ("0.2", "1.1"):
        report, code = w.check("--timeout", seconds)
        assert (report["verdict"]["state"], code) == ("blind", 3), (seconds, report["verdict"], code)
    report, code = w.check()
    assert (report["verdict"]["root"], code) == ("ImdsUnreachable", 2), report["verdict"]
    for back in undo:
        back()
    report, code = w.check()
    assert (report["verdict"]["state"], code) == ("healthy", 0), report["verdict"]
