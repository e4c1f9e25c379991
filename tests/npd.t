#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The real node-problem-detector, with the two configurations that we install, in the simulated node: what it makes of
`nodewhy run`, of a hung one, and of condition files that somebody spoilt, as the API server of a cluster would get it.

What differs from a node: the conditions are asked for every 2 seconds, not 15; the hook and the journal are where this
test put them; what nodewhy sends to journald is written to the node's journal file by systemd-journal-remote."""
import collections
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import gobuild  # noqa: E402

DETECTOR = gobuild.Program(
    "k8s.io/node-problem-detector", "v1.36.0", "h1:2Dxx80GmUiEplFZbdIPKp3VIeuP7RY1hvtEzbRZVkiY=", "./cmd/nodeproblemdetector",
    tags="journald,disable_stackdriver_exporter", cgo=True)
INTERVAL = 2
# An interval, what the hooks of one round take, node-problem-detector's own second between two writes, a busy machine.
WITHIN = INTERVAL + 1 + 3
HEALTHY = "nodewhy finds no problem of this kind"


class Tap:
    n = failed = 0

    def ok(self, good, name, *notes):
        self.n += 1
        self.failed += not good
        print(f"{'' if good else 'not '}ok {self.n} - {name}", flush=True)
        for note in [] if good else notes:
            for line in (note if isinstance(note, str) else repr(note)).splitlines()[:40]:
                print("#", line)

    def equal(self, got, want, name, *notes):
        self.ok(got == want, name, f"got  {got!r}", f"want {want!r}", *notes)


def skip(why):
    print(f"1..0 # SKIP {why}")
    return 0


# ---- the API server's part ----

def message(data):
    """{number: [values]} of a protocol buffers message: numbers, and the bytes of whatever has a length."""
    fields, at = collections.defaultdict(list), 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                return value

    while at < len(data):
        key = number()
        value = number()
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        elif key & 7 != 0:
            raise ValueError(f"a field of wire type {key & 7}")
        fields[key >> 3].append(value)
    return fields


def text(fields, n):
    return fields[n][0].decode() if fields[n] else ""


def event_of(body):
    """A core/v1 Event in Kubernetes' protocol buffers (its generated.proto has the numbers)."""
    if body[:4] != b"k8s\0":
        raise ValueError(body[:4])
    e = message(message(body[4:])[2][0])
    meta, about, source = (message(e[i][0]) for i in (1, 2, 5))
    return {"kind": "Event", "apiVersion": "v1", "metadata": {"name": text(meta, 1), "namespace": text(meta, 3)},
            "involvedObject": {"kind": text(about, 1), "name": text(about, 3)}, "source": {"component": text(source, 1), "host": text(source, 2)},
            "reason": text(e, 3), "message": text(e, 4), "count": e[8][0], "type": text(e, 9)}


class Api:
    """Knows one node: keeps its conditions as a strategic merge would, and every event."""

    def __init__(self, node):
        self.node, self.lock = node, threading.Lock()
        self.conditions, self.history, self.patches = {}, collections.defaultdict(list), []
        self.events, self.odd = {}, []
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with api.lock:
                    try:
                        code, answer = api.answer(self.command, self.path.partition("?")[0], self.headers.get("Content-Type"), body)
                    except (ValueError, LookupError, TypeError) as e:
                        api.odd.append((self.path, repr(e), body))
                        code, answer = 400, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 400}
                data = json.dumps(answer).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = handle_any

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, method, path, kind, body):
        node = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": self.node}, "status": {}}
        if (method, path) == ("GET", f"/api/v1/nodes/{self.node}"):
            return 200, node
        if (method, path, kind) == ("PATCH", f"/api/v1/nodes/{self.node}/status", "application/strategic-merge-patch+json"):
            self.merge(json.loads(body))
            return 200, node
        events = "/api/v1/namespaces/default/events"
        if (method, path, kind) == ("POST", events, "application/vnd.kubernetes.protobuf"):
            event = event_of(body)
            self.events[event["metadata"]["name"]] = event
            return 201, event
        if method == "PATCH" and path.startswith(events + "/") and path[len(events) + 1:] in self.events:
            event = self.events[path[len(events) + 1:]]
            event.update({k: v for k, v in json.loads(body).items() if k != "metadata"})
            return 200, event
        self.odd.append((method, path, kind))
        return 404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}

    def merge(self, patch):
        self.patches.append((time.monotonic(), patch))
        if list(patch) != ["status"] or list(patch["status"]) != ["conditions"]:
            self.odd.append(patch)
        for c in patch["status"]["conditions"]:
            seen = (c["status"], c["reason"], c["message"])
            if self.history[c["type"]][-1:] != [seen]:
                self.history[c["type"]].append(seen)
            self.conditions[c["type"]] = c

    def now(self, kind):
        with self.lock:
            c = self.conditions.get(kind)
            return c and (c["status"], c["reason"], c["message"])

    def statuses(self):
        with self.lock:
            return {k: c["status"] for k, c in self.conditions.items()}

    def said(self, component):
        """[(type, reason, message)], as often as it was said."""
        with self.lock:
            return [(e["type"], e["reason"], e["message"]) for e in self.events.values()
                    if e["source"]["component"] == component for _ in range(e["count"])]


# ---- the node with all of it ----

class Node:
    def __init__(self, world, work, binary):
        self.w, self.work, self.binary = world, work, binary
        self.d, self.written, self.npd = None, 0, None
        self.api = world.node.call(Api, world.private_dns)

    def nodewhy(self):
        # At the default of 20 s most of the test would be waiting.
        conf = os.path.join(self.work, "quick.conf")
        with open(conf, "w") as f:
            f.write("[Probe endpoint]\nIntervalSec=3\n[Probe apiserver]\nIntervalSec=3\n[Probe host]\nIntervalSec=3\n")
        self.d, self.written = self.w.daemon("--config", conf), 0
        self.wait("nodewhy finds the node healthy", lambda: self.state() == "healthy" and set(self.files().values()) == {"0"}, 60)

    def state(self):
        return (self.d.status() or {"verdict": {"state": None}})["verdict"]["state"]

    def files(self):
        return {c["type"]: (self.d.condition(c["type"]) or [None])[0] for c in self.d.status()["conditions"]}

    def configure(self, installed):
        """The installed configurations, with what a test has to change; returns the flags."""
        flags = []
        for name, flag in (("condition", "custom-plugin"), ("journal", "system-log")):
            with open(f"{installed}/usr/share/nodewhy/npd/nodewhy-{name}-monitor.json") as f:
                c = json.load(f)
            if name == "condition":
                c["pluginConfig"]["invoke_interval"] = f"{INTERVAL}s"
                for r in c["rules"]:
                    r["path"] = installed + r["path"]
                self.types = [x["type"] for x in c["conditions"]]
            else:
                c["logPath"] = self.w.root + c["logPath"]
            path = f"{self.work}/{name}.json"
            with open(path, "w") as f:
                json.dump(c, f)
            flags.append(f"--config.{flag}-monitor={path}")
        return flags

    def detector(self, installed):
        env = {"PATH": "/usr/bin:/bin", "NODEWHY_DIR": self.w.root + "/run/nodewhy", "NODEWHY_UPTIME": self.w.root + "/proc/uptime"}
        argv = [self.binary, *self.configure(installed), f"--apiserver-override=http://127.0.0.1:{self.api.port}?inClusterConfig=false",
                f"--hostname-override={self.w.private_dns}"]
        self.log = self.work + "/npd.log"
        with open(self.log, "w") as log:
            self.npd = subprocess.Popen(self.w.node.argv(argv), env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def tail(self):
        with open(self.log) as f:
            return f.read()[-3000:]

    def tick(self):
        if self.d in self.w.daemons:
            self.d.poll(0.02)
        else:
            time.sleep(0.02)
        for e in self.d.journal[self.written:]:
            self.w.journal_file.add(self.w.uptime(), _TRANSPORT="journal", _SYSTEMD_UNIT="nodewhy.service", **e)
        self.written = len(self.d.journal)

    def wait(self, what, test, timeout, tick=None):
        """Whether test() came true in time: what failed is then told by what is looked at next."""
        end = time.monotonic() + timeout
        while not test():
            if time.monotonic() > end:
                print(f"# {what}: not within {timeout} s")
                return False
            if self.npd and self.npd.poll() is not None:
                raise RuntimeError(f"node-problem-detector ended with {self.npd.returncode}: {self.tail()}")
            (tick or self.tick)()
        return True

    def fetch(self, port, path):
        def get():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as r:
                return r.read().decode()
        return self.w.node.call(get)

    def wait_all(self, status, what, timeout=WITHIN, tick=None):
        want = dict.fromkeys(self.types, status)
        self.wait(what, lambda: self.api.statuses() == want, timeout, tick)
        return self.api.statuses(), want


def plain(message):
    """What node-problem-detector neither cuts nor mangles."""
    return 0 < len(message) <= 80 and all(" " <= c <= "~" for c in message) and "%" not in message


def metric(text, name, **labels):
    for line in text.splitlines():
        m = re.match(name + r"\{(.*)\} (\S+)$", line)
        if m and dict(re.findall(r'(\w+)="([^"]*)"', m[1])) == labels:
            return float(m[2])
    return None


def healthy(t, n):
    got, want = n.wait_all("False", "a sound node", 30)
    t.equal(got, want, "a sound node has every condition, and each is False", n.tail())
    t.equal({k: n.api.now(k) for k in n.types}, {k: ("False", "No" + k, HEALTHY) for k in n.types}, "with our reasons and messages")
    t.equal(sorted(n.types), sorted(n.files()), "there is one for each that nodewhy writes")
    served = {c["type"]: (c["status"], c["reason"], c["message"]) for c in json.loads(n.fetch(20256, "/conditions"))}
    t.equal(served, {k: n.api.now(k) for k in n.types}, "it serves the same itself")
    t.equal([e for e in n.api.said("nodewhy") if e[0] == "Warning"] + n.api.said("nodewhy-journal"), [], "and warns of nothing")


def whole(events):
    """In an order of their own. Every line arrives as it was said: node-problem-detector takes an event's text for a
    format, so that ours have no percent sign."""
    return sorted(events)


def raised(n):
    """[(type, reason, message)] of the events that the journal's entries are to become."""
    return whole([("Warning", e["NODEWHY_CODE"], e["MESSAGE"]) for e in n.d.journal if e.get("NODEWHY_STATE") == "raised"])


def one_fault(t, n, fault, code, condition):
    """A fault comes and goes: the condition follows, within an interval of the file; the exact code is an event."""
    before = len(n.api.said("nodewhy"))
    undo = fault()
    n.wait(f"{condition} in its file", lambda: n.files()[condition] == "1", 30)
    began = time.monotonic()
    n.wait(f"{condition} is True", lambda: n.api.statuses()[condition] == "True", WITHIN)
    took = time.monotonic() - began
    line = n.d.condition(condition)[1]
    t.ok(took < WITHIN, f"{code}: {condition} is True within an interval", f"{took:.1f} s", n.tail())
    t.equal(n.api.now(condition), ("True", condition + "Found", line), "with the line that nodewhy wrote")
    t.ok(line.startswith(code + ": ") and plain(line), "which begins with the code, and is short and plain", line)
    n.wait("its events", lambda: whole(n.api.said("nodewhy-journal")) == raised(n) and len(n.api.said("nodewhy")) > before, 10)
    t.equal({k for k, s in n.api.statuses().items() if s != "False"}, {condition}, "no other condition is raised")
    about = f'Node condition {condition} is now: True, reason: {condition}Found, message: "{line}"'
    t.equal(n.api.said("nodewhy")[before:], [("Warning", condition + "Found", about)], "one event tells of the condition")
    t.ok(code in [e[1] for e in raised(n)], "nodewhy raised it in the journal", raised(n))
    t.equal(whole(n.api.said("nodewhy-journal")), raised(n), "and each of its entries is one event, with the code as its reason")
    metrics = n.fetch(20257, "/metrics")
    t.equal(metric(metrics, "problem_gauge", type=condition, reason=condition + "Found"), 1, "its gauge is 1")
    t.ok((metric(metrics, "problem_counter", reason=code) or 0) >= 1, "and the code is counted", metrics[:3000])
    undo()
    n.wait(f"{condition} is gone from its file", lambda: n.files()[condition] == "0", 40)
    began = time.monotonic()
    got, want = n.wait_all("False", f"{condition} is False")
    t.equal(got, want, "it clears within an interval, too", f"{time.monotonic() - began:.1f} s")
    t.equal(n.api.now(condition), ("False", "No" + condition, HEALTHY), "and says what it said before")
    about = f'Node condition {condition} is now: False, reason: No{condition}, message: "{HEALTHY}"'
    n.wait("the event of its end", lambda: len(n.api.said("nodewhy")) >= before + 2, 5)
    t.equal(n.api.said("nodewhy")[before + 1:], [("Normal", "No" + condition, about)], "one more event tells so")
    t.equal(metric(n.fetch(20257, "/metrics"), "problem_gauge", type=condition, reason=condition + "Found"), 0, "its gauge is 0")
    n.wait("nodewhy says so in the journal", lambda: any(e.get("NODEWHY_STATE") == "cleared" and e["NODEWHY_CODE"] == code for e in n.d.journal), 5)


def starve(w):
    """The node is out of memory, and says so in a line with a percent sign."""
    def memory(available, full):
        w.tree.write("proc/meminfo", f"MemTotal: 8000000 kB\nMemFree: 50000 kB\nMemAvailable: {available} kB\n")
        w.tree.write("proc/pressure/memory", "".join(f"{x} avg10={full}.00 avg60={full}.00 avg300={full}.00 total=100\n" for x in ("some", "full")))
    memory(90000, 35)
    return lambda: memory(6000000, 0)


def hang(t, n):
    """nodewhy stands still, and time goes on without it."""
    n.d.process.send_signal(signal.SIGSTOP)
    late = n.w.uptime() + 600
    got, want = n.wait_all("Unknown", "a hung nodewhy", WITHIN, lambda: (n.w.tree.uptime(late), time.sleep(0.05)))
    t.equal(got, want, "when nodewhy hangs, every condition is Unknown", n.tail())
    bad = [(k, n.api.now(k)) for k in n.types if not re.fullmatch(rf"nodewhy: the {k} file is 5\d\d s out of date", n.api.now(k)[2])]
    t.ok(not bad, "because its file is out of date", bad)
    n.w.tree.uptime(n.w.uptime())
    n.d.process.send_signal(signal.SIGCONT)
    got, want = n.wait_all("False", "nodewhy goes on", WITHIN)
    t.equal(got, want, "and is believed again when it goes on")


def hostile(t, n):
    """nodewhy is gone, and all kinds of things lie where its files were."""
    t.equal(n.d.stop(), 0, "nodewhy ends when it is told to")
    until = int(n.w.uptime()) + 1000
    n.w.tree.uptime(n.w.uptime())
    base = n.w.root + "/run/nodewhy/conditions/"
    kinds = [
        ("missing", None, "is nodewhy running"),
        ("empty", b"", "is not whole"),
        ("cut within its last number", b"0\nno problem found\n%d" % until, "is malformed"),
        ("cut after its first line", b"1\n", "is not whole"),
        ("binary", bytes(range(256)) * 2000, ""),
        ("too long a message", b"1\n" + b"x" * 81 + b"\n%d\n" % until, "is malformed"),
        ("a percent sign", b"1\nDiskFull: 90%s used\n%d\n" % (b"%", until), "is malformed"),
        ("an escape sequence", b"1\n\x1b[2Jgone\n%d\n" % until, "is malformed"),
        ("a state that is none", b"0 || true\nfine\n%d\n" % until, "is malformed"),
        ("a directory", "mkdir", "cannot read"),
        ("a pipe that nobody writes", "mkfifo", "cannot read"),
    ]
    assert len(n.types) >= len(kinds) + 2
    expected, words = {}, {}
    for kind, (name, content, says) in zip(n.types, kinds):
        os.unlink(base + kind)
        if isinstance(content, str):
            getattr(os, content)(base + kind)
        elif content is not None:
            with open(base + kind + ".new", "wb") as f:
                f.write(content)
            os.rename(base + kind + ".new", base + kind)
        expected[kind], words[kind] = "Unknown", (name, says)
    # Not spoilt, and to be told from those that are: one that tries to be more than text, and all that is left.
    quoted, *left = n.types[len(kinds):]
    with open(base + quoted, "w") as f:
        f.write('1\nQuoted: $(touch x) `id` "}]}\\ ; exit 0\n%d\n' % until)
    expected[quoted] = "True"
    expected.update(dict.fromkeys(left, "False"))
    n.wait("spoilt files", lambda: n.api.statuses() == expected, WITHIN, lambda: time.sleep(0.05))
    t.equal(n.api.statuses(), expected, "spoilt files are Unknown, others are not", n.tail())
    for kind, (name, says) in words.items():
        status, reason, message = n.api.now(kind)
        t.ok(status == "Unknown" and message.startswith("nodewhy: ") and says in message and plain(message), f"{name}: says why", kind, status, message)
    t.equal(n.api.now(quoted), ("True", quoted + "Found", 'Quoted: $(touch x) `id` "}]}\\ ; exit 0'), "text is text all the way")
    statuses = {k: [s for s, _, _ in h] for k, h in n.api.history.items()}
    n.before = {k: h[:] for k, h in statuses.items()}
    for kind in n.types:
        shutil.rmtree(base + kind) if os.path.isdir(base + kind) else os.path.lexists(base + kind) and os.unlink(base + kind)
    n.nodewhy()
    got, want = n.wait_all("False", "nodewhy is back", WITHIN)
    t.equal(got, want, "once nodewhy is back, all are False again")
    t.equal({k: n.api.now(k) for k in n.types}, {k: ("False", "No" + k, HEALTHY) for k in n.types}, "with the reasons and messages of a sound node")
    return expected


def throughout(t, n, faults, spoilt):
    """What has to hold of everything that was sent."""
    want = {k: ["False"] + (["True", "False"] if k in faults else []) + ["Unknown", "False"] + ([spoilt[k]] if spoilt[k] != "False" else []) for k in n.types}
    t.equal({k: v for k, v in n.before.items() if v != want[k]}, {}, "no condition ever flapped", {k: v for k, v in want.items() if n.before[k] != v})
    every = [c for _, p in n.api.patches for c in p["status"]["conditions"]]
    t.equal(sorted({c["message"] for c in every if not plain(c["message"])}), [], "every message of a condition was at most 80 bytes of ASCII without %")
    t.ok(all({c["type"] for c in p["status"]["conditions"]} == set(n.types) for _, p in n.api.patches), "each time all of our conditions were written, and no others")
    t.equal(sorted({c["reason"] for c in every} - {"No" + k for k in n.types} - {k + "Found" for k in n.types}), [], "with the reasons of the configuration")
    t.equal(n.api.odd, [], "it asked nothing else of the API server")
    about = {(e["involvedObject"]["kind"], e["involvedObject"]["name"]) for e in n.api.events.values()}
    t.equal(about, {("Node", n.w.private_dns)}, "every event is about the node")
    t.equal([e for e in n.api.said("nodewhy") if "%" in e[2]], [], "no event of a condition was mangled")


def main():
    if os.getuid() != 0:
        return skip("needs root")
    from world import World, journal
    if not journal.writer():
        return skip("systemd-journal-remote is not installed")
    try:
        binary = DETECTOR.build(os.path.join(REPOSITORY, "build/npd"))
    except gobuild.NotHere as e:
        return skip(e)
    t = Tap()
    with World(enis=2, pods=4) as w, tempfile.TemporaryDirectory(prefix="nodewhy-npd-") as work:
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "B")}
        subprocess.run(["make", "-s", "-C", REPOSITORY, "SAN=", "install", f"DESTDIR={work}/installed", "PREFIX=/usr"], check=True, env=env, stdout=subprocess.DEVNULL)
        n = Node(w, work, binary)
        n.nodewhy()
        n.detector(work + "/installed")
        healthy(t, n)
        one_fault(t, n, w.imds_drop, "ImdsUnreachable", "InstanceMetadataProblem")
        one_fault(t, n, w.dns_drop, "ResolverUnreachable", "DnsProblem")
        one_fault(t, n, lambda: starve(w), "MemoryStarved", "HostProblem")
        hang(t, n)
        spoilt = hostile(t, n)
        throughout(t, n, ("InstanceMetadataProblem", "DnsProblem", "HostProblem"), spoilt)
        n.npd.send_signal(signal.SIGTERM)
        t.equal(n.npd.wait(timeout=20), 0, "node-problem-detector ends when it is told to", n.tail())
    print(f"1..{t.n}")
    return t.failed != 0


if __name__ == "__main__":
    sys.exit(main())
