# SPDX-License-Identifier: Apache-2.0
"""Scenarios of a world that means ill, or is broken beyond what it should be: whatever comes in, a
report comes out that is whole and clean, and nothing goes where it should not."""

import json
import os
import re
import socket
import struct
import time
import unicodedata

from . import contract
from .daemons import run
from .table import daemon

DOCUMENT = "dynamic/instance-identity/document"
EVIL = "\x1b]0;x\x07\x1b[31m\x9b1m%s%n\"\\\x00\x7f"
OURS = re.compile(r"((ec2|sts|s3)(-fips)?|eks|api\.ecr|\d{12}\.dkr\.ecr|[0-9a-f]{32}\.gr7)"
                  r"\.[a-z0-9-]+(\.eks)?\.amazonaws\.com(\.cn)?")


def width(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
               for c in line)


def fit_for_a_terminal(text):
    """No control character but the line feed, 80 columns."""
    bad = []
    for line in text.split("\n"):
        if any(unicodedata.category(c) == "Cc" for c in line):
            bad.append("control characters: %r" % line)
        if "�" in line:
            bad.append("not UTF-8: %r" % line)
        if width(line) > 80:
            bad.append("%d columns: %r" % (width(line), line))
    return bad


def say(w, *argv, stdin=None, **more):
    w.tree.uptime(w.uptime())
    return w.run([w.binary(), *argv], input=stdin, errors="replace", **more)


def stands(w, *options, prefix=()):
    """`check` twice, as JSON and as text: both hold, and no name was asked for but AWS's."""
    w.tree.uptime(w.uptime())
    p = w.run([*prefix, w.binary(), "check", "--json", "--root", w.root, *options], errors="replace")
    assert p.returncode in (0, 1, 2, 3), "exit code %d: %s" % (p.returncode, p.stderr[-1500:])
    report = json.loads(p.stdout)
    bad = [x for x in contract.schema(report) if "boot_id" not in x]  # null when it cannot be read
    bad += bad or contract.meaning(report)
    bad += contract.secrets(p.stdout + p.stderr)
    text = w.run([*prefix, w.binary(), "check", "--root", w.root, *options], errors="replace")
    bad += fit_for_a_terminal(text.stdout) + fit_for_a_terminal(text.stderr.replace("nodewhy: ", ""))
    bad += ["asked for %s" % q[2] for s in w.dns.values() for q in s.queries
            if not OURS.fullmatch(q[2])][:3]
    assert not bad, "; ".join(bad)
    return report


def found(report):
    return [f["code"] for f in report["findings"] if f["severity"] != "notice"]


# ---- metadata ----

def document(w, **change):
    doc = json.loads(w.imds.lookup(DOCUMENT))
    doc.update(change)
    w.imds.tree[DOCUMENT] = json.dumps(doc)


@daemon("hostile/metadata-names-a-domain")
def _(w):
    """Whoever answers for metadata does not choose where TLS and DNS go."""
    for domain in ("evil.example.net", "amazonaws.com.evil.net", "x", "-", "amazonaws.com\n.evil.net"):
        w.imds.tree["meta-data/services/domain"] = domain
        report = stands(w)
        assert report["verdict"]["state"] == "healthy", report["verdict"]
        assert report["node"]["region"] == w.region


@daemon("hostile/metadata-region")
def _(w):
    for region in ("us-west-2/../../x", "us-west-2.evil.com", "us-west-2\n", "", "us-west-" + "2" * 300,
                   "../x-1", "us-west-2@evil.net", None, 7, [], {}, EVIL):
        document(w, region=region)
        report = stands(w)
        assert report["node"]["region"] in (None, w.region), report["node"]["region"]
        assert found(report) == ["ImdsMalformed"], (region, found(report))


@daemon("hostile/metadata-document-types")
def _(w):
    sound_one = w.imds.tree[DOCUMENT]
    for value in (None, 1.5, [], {}, True, EVIL, "x" * 5000, "%s%n" * 20, "日本" * 99):
        for key in ("availabilityZone", "instanceType", "accountId", "imageId", "privateIp"):
            w.imds.tree[DOCUMENT] = sound_one
            document(w, **{key: value})
        stands(w)
    for body in ("[" * 60000, '{"a":' * 12000, "null", "[]", "\xff\xfe", "{}" * 9, '{"region":"\\u0000"}',
                 "9" * 60000, '{"region": "us-west-2", "region": "us-east-1"}'):
        w.imds.tree[DOCUMENT] = body
        assert found(stands(w)) == ["ImdsMalformed"], body[:40]


@daemon("hostile/metadata-text", enis=2)
def _(w):
    """Control characters and path characters in every leaf that is asked for."""
    macs = "meta-data/network/interfaces/macs/"
    for text in (EVIL, "../../..", "日本語" * 40, "a\nb\nc", "x" * 60000, "\n" * 300, ""):
        for leaf in ("mac", "local-hostname", "services/partition"):
            w.imds.tree["meta-data/" + leaf] = text
        for mac in (w.enis[0].mac, w.enis[1].mac):
            for leaf in ("interface-id", "device-number", "subnet-id", "local-ipv4s", "ipv4-prefix"):
                w.imds.tree[macs + mac + "/" + leaf] = text
        stands(w)


@daemon("hostile/metadata-mac-list")
def _(w):
    macs = "meta-data/network/interfaces/macs"
    was = dict(w.imds.tree)
    for text in ("\n".join("02:00:00:00:%02x:%02x/" % (i >> 8, i & 255) for i in range(1000)),
                 "../../../x/", "02:00:00:00:00:0g/", "02:00:00:00:00:00/../x", EVIL, "\0" * 500,
                 "\n".join([w.enis[0].mac + "/"] * 500)):
        w.imds.tree = {k: v for k, v in was.items() if not k.startswith(macs + "/")}
        w.imds.tree[macs] = text
        report = stands(w)
        assert len(report["network"]["enis"]) <= 64
        macs_seen = [e["mac"] for e in report["network"]["enis"]]
        assert len(set(macs_seen)) == len(macs_seen), "an ENI comes twice: %s" % macs_seen[:4]


def raw_answers(w, *answers):
    """GET is answered with these bytes, in turn; a callable gets the connection."""
    token = w.imds.answer
    turn = []

    def answer(conn, method, path, headers):
        if method == "PUT":
            return token(conn, method, path, headers)
        a = answers[len(turn) % len(answers)]
        turn.append(path)
        try:
            if callable(a):
                a(conn)
            else:
                conn.sendall(a)
                conn.shutdown(socket.SHUT_WR)
                conn.settimeout(3)
                conn.recv(1)
        except OSError:
            pass

    w.imds.answer = answer


def drip(conn):
    """A byte now and then, without end."""
    conn.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n")
    for _ in range(200):
        conn.sendall(b"i")
        if w_stopping(conn):
            return


def w_stopping(conn):
    conn.settimeout(0.1)
    try:
        return conn.recv(1) == b""
    except TimeoutError:
        return False


def endless(first, piece):
    def go(conn):
        conn.sendall(first)
        for _ in range(100000):
            conn.sendall(piece)
    return go


@daemon("hostile/metadata-http")
def _(w):
    answers = {
        "drip": drip,
        "headers": endless(b"HTTP/1.1 200 OK\r\n", b"X-A: " + b"b" * 1000 + b"\r\n"),
        "one header": endless(b"HTTP/1.1 200 OK\r\nX: ", b"b" * 1000),
        "body": endless(b"HTTP/1.1 200 OK\r\n\r\n", b"b" * 1000),
        "chunks": endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nb\r\n"),
        "trailers": endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n"),
        "continue": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        "no chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "great chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
        "lengths": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\nContent-Length: 99999999999999999999\r\n\r\nx",
        "moved": b"HTTP/1.1 302 Found\r\nLocation: http://evil.example.net/\r\nContent-Length: 0\r\n\r\n",
        "switch": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\nPRI * HTTP/2.0\r\n\r\n",
        "encoding": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\0\0",
        "status": b"HTTP/1.1 999999 X\r\n\r\n", "zero": b"HTTP/1.1 000 X\r\n\r\n", "none": b"",
        "2.0": b"HTTP/2.0 200 OK\r\n\r\n", "0.9": b"i-0123456789abcdef0", "nul": b"\0" * 4096,
        "early": b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    }
    for name, a in answers.items():
        raw_answers(w, a)
        report = stands(w, "--only", "imds")
        assert found(report) and found(report)[0] in ("ImdsMalformed", "ImdsSlow"), (name, found(report))
        del w.imds.answer


# ---- DNS ----

def dns_says(w, records, also=b""):
    """Every A query is answered with these (owner, type, ttl, data) records."""
    def reply(query, over):
        ident, flags = struct.unpack("!2H", query[:4])
        body = query[12:query.index(b"\0", 12) + 5]
        out = b"".join(o + struct.pack("!2HIH", t, 1, ttl, len(d)) + d for o, t, ttl, d in records)
        tc = 0x0200 if over == "udp" and len(out) > 400 else 0
        n = 0 if tc else len(records)
        return struct.pack("!6H", ident, 0x8180 | tc, 1, n, 0, 0) + body + (b"" if tc else out + also)
    for s in w.dns.values():
        s.reply = reply


def name(text):
    return b"".join(bytes([len(x)]) + x.encode() for x in text.split(".")) + b"\0"


@daemon("hostile/dns-answers")
def _(w):
    own = b"\xc0\x0c"
    a = socket.inet_aton("10.0.0.77")
    answers = {
        "loop": [(own, 5, 9, own)],
        "two loop": [(own, 5, 9, name("b.test")), (name("b.test"), 5, 9, own)],
        "thousand": [(own, 1, 0, struct.pack("!I", 0x0A000100 + i)) for i in range(1000)],
        "other name": [(name("evil.test"), 1, 9, a)],
        "pointer to itself": [(b"\xc0\x30", 1, 9, a)],
        "forward pointer": [(b"\xff\xff", 1, 9, a)],
        "short": [(own, 1, 9, b"\x01")], "long": [(own, 1, 9, b"x" * 200)],
        "label": [(b"\x40" + b"x" * 64 + b"\0", 1, 9, a)],
        "great ttl": [(own, 1, 0xFFFFFFFF, a)], "unknown": [(own, 65280, 9, b"\0" * 40)],
    }
    for what, records in answers.items():
        dns_says(w, records)
        report = stands(w, "--only", "dns")
        codes = set(found(report))
        resolved = [p["detail"] for p in report["probes"] if p["aspect"] == "name" and p["outcome"] == "ok"]
        assert codes <= {"ResolverFailing", "NameNotFound"}, (what, codes)
        assert not resolved or what in ("thousand", "great ttl"), (what, resolved)


@daemon("hostile/dns-points-home")
def _(w):
    """A sinkhole's answers are not called public addresses."""
    for address in ("0.0.0.0", "127.0.0.1", "169.254.169.254", "255.255.255.255", "224.0.0.1"):
        dns_says(w, [(b"\xc0\x0c", 1, 60, socket.inet_aton(address))])
        report = stands(w)
        text = json.dumps(report)
        assert "public %s" % address not in text and "public (" not in text, (
            address, [f["summary"] for f in report["findings"]])


@daemon("hostile/dns-tcp-closed")
def _(w):
    """The far side is gone before we have written: an error, never a signal that ends us."""
    def refuse(conn):
        conn.shutdown(socket.SHUT_WR)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        conn.close()
    for s in w.dns.values():
        s.close()
        s.truncate, s.stream = True, refuse
        w.aws.call(s.open)
    for _ in range(5):
        report = stands(w)
        assert found(report)[:1] == ["ResolverUnreachable"], found(report)


# ---- want of our own ----

@daemon("hostile/few-descriptors")
def _(w):
    """What we lack says nothing of the node: no finding, not even that it is not EC2."""
    for n in list(range(7, 13)) + [16, 20, 32]:
        report = stands(w, prefix=("prlimit", "--nofile=%d" % n))
        codes = [f["code"] for f in report["findings"]]
        assert not codes, "%d descriptors: %s" % (n, [(f["code"], f["summary"]) for f in
                                                      report["findings"]])


@daemon("hostile/no-privilege")
def _(w):
    """As nobody without any capability: every look works, or says that it cannot."""
    report = stands(w, prefix=("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                               "--inh-caps=-all", "--bounding-set=-all"))
    assert report["verdict"]["state"] == "healthy", report["verdict"]
    blind = [p["detail"] for p in report["probes"] if p["outcome"] not in ("ok", "skipped")]
    # what is root's alone is said to be so; nothing that could not be looked at is judged
    assert all(x.startswith(("cannot tell", "cannot read")) for x in blind), blind
    denied = [x for x in blind if "ermi" in x]
    assert any("10-aws.conflist: Permission denied" in x for x in denied) and len(denied) <= 5, denied


# ---- files ----

def _fifo(p):
    os.mkfifo(p)


def _loop(p):
    os.symlink(os.path.basename(p), p)


def _outside(p):
    os.symlink("/../../../../../../etc/passwd", p)


def _device(p):
    os.symlink("/dev/zero", p)


def _huge(p):
    with open(p, "wb") as f:
        f.truncate(1 << 30)


def _nuls(p):
    with open(p, "wb") as f:
        f.write(b"\0" * 3000 + b"\xff\xfe\x1b[31m" * 50)


def _closed(p):
    with open(p, "wb") as f:
        f.write(b"x")
    os.chmod(p, 0)


@daemon("hostile/files")
def _(w):
    """Everything that is read may be anything but what it should be."""
    groups = (("etc/resolv.conf", "etc/cni/net.d/10-aws.conflist", "etc/machine-id"),
              ("etc/containerd/config.toml", "etc/cni/net.d", "sys/class/dmi/id/sys_vendor"),
              ("etc/kubernetes/kubelet/config.json", "var/lib/kubelet/kubeconfig"))
    nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all")
    for spoil in (_fifo, os.mkdir, _loop, _outside, _device, _huge, _nuls, _closed):
        for names in groups:
            back = []
            for n in names:
                back.append(w.tree.take(n) if w.tree.exists(n) else lambda n=n: w.tree.remove(n))
                os.makedirs(os.path.dirname(w.tree.at(n)), exist_ok=True)
                spoil(w.tree.at(n))
            try:
                stands(w, "--timeout", "5", prefix=nobody)
            except AssertionError as e:
                raise AssertionError("%s as %s: %s" % (names, spoil.__name__, e)) from e
            for undo in back:
                undo()


# ---- what the verbs read ----

def mutations(status):
    """(what, text) of status files by others, by other versions, by nobody in their right mind."""
    whole = json.dumps(status)
    for n in (0, 1, 40, len(whole) // 2, len(whole) - 1):
        yield "cut at %d" % n, whole[:n]
    for value in (None, -1e300, {}, EVIL, "日本語" * 60, ["x\u202etxet"] * 50, 2 ** 63 - 1, "w" * 5000):
        for key in status if value in ({}, EVIL) else ():
            yield "%s is %r" % (key, value), json.dumps(dict(status, **{key: value}))
        for key in ("verdict", "node", "network"):
            yield "all of %s is %r" % (key, value), json.dumps(
                dict(status, **{key: {k: value for k in status[key]}}))
        for key in ("findings", "conditions", "probes"):
            yield "each of %s has %r" % (key, value), json.dumps(
                dict(status, **{key: [{k: value for k in x} for x in status[key]] or [value]}))
        eni = {k: value for k in status["network"]["enis"][0]}
        yield "ENIs have %r" % (value,), json.dumps(
            dict(status, network=dict(status["network"], enis=[eni] * 12)))
    odd = [dict(p, evidence={EVIL: EVIL, "": "", "k" * 300: 2 ** 63 - 1, "x": None, "n": -2 ** 63})
           for p in status["probes"]]
    yield "odd evidence", json.dumps(dict(status, probes=odd))
    yield "odd keys", json.dumps(dict(status, **{EVIL: {EVIL: EVIL}}), ensure_ascii=False)
    yield "many looks", json.dumps(dict(status, probes=status["probes"] * 40))
    yield "another version", whole.replace("nodewhy.status/1", "nodewhy.status/2")
    yield "no text", b"\xff\xfe\x1b[31m{"
    yield "near an escape", '{"schema": "\x1b[31m", \x1b[31m'
    yield "deep", '{"schema":"nodewhy.status/1","x":' + "[" * 100000
    yield "deep and whole", '{"schema":"nodewhy.status/1","x":' + "[" * 2000 + "]" * 2000 + "}"
    yield "long", '{"schema":"nodewhy.status/1","x":"' + "x" * 5000000 + '"}'


@daemon("hostile/status-file", enis=2)
def _(w):
    report, _ = w.check()
    path = w.dir + "/status"
    for i, (what, text) in enumerate(mutations(report)):
        text = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        w.tree.write("run/nodewhy/status.json", text)
        with open(path, "wb") as f:
            f.write(text)
        others = (("replay", path), ("status", "--json"), ("replay", "--json", path),
                  ("explain", "ImdsSlow"), ("condition", "DnsProblem"))
        for argv in (("status",), others[i // 2 % len(others)])[:1 + i % 2]:
            p = say(w, *argv, "--root", w.root)
            assert p.returncode in (0, 1, 2, 3), "%s: %s: exit code %d: %s" % (
                what, argv, p.returncode, p.stderr[-800:])
            wide = "--json" in argv
            bad = [x for x in fit_for_a_terminal(p.stdout + p.stderr)
                   if "columns" not in x or not (wide or p.stderr)]
            assert not bad, "%s: %s: %s" % (what, argv, bad[:3])
            if wide and p.returncode < 3:
                json.loads(p.stdout)


@daemon("hostile/replay-without-end")
def _(w):
    for path in ("/dev/zero", "/proc/self/mem", "/", "/nonexistent"):
        p = say(w, "replay", path)
        assert p.returncode == 3 and not p.stdout, (path, p.returncode, p.stderr)
    p = w.run(["sh", "-c", "yes '[' | exec \"$1\" replay -", "sh", w.binary()])
    assert p.returncode == 3, p.stderr
    p = w.run(["sh", "-c", "{ printf '{\"a\":\"'; yes | tr -d '\\n'; } | "
               "exec \"$1\" replay -", "sh", w.binary()])
    assert p.returncode == 3 and "longer than" in p.stderr, p.stderr


# ---- the daemon ----

@daemon("hostile/metrics-of-a-plain-machine")
def _(w):
    """Several slots of a probe skip alike: still one sample a set of labels."""
    w.not_ec2()
    d = run(w)
    d.wait_status("all probes have looked", lambda s: s["verdict"]["state"] == "healthy" and
                  any(p["name"] == "endpoint" for p in s["probes"]), timeout=30)
    d.wait("metrics", lambda: not contract.metrics(w.tree.read("run/nodewhy/metrics.prom").decode()),
           timeout=1)
    assert d.stop() == 0


def moves_on(w, d, what, test, timeout=15):
    """As Daemon.wait_status(), but nothing of what the daemon sends is read."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        w.tree.uptime(w.uptime())
        s = d.status()
        if s and test(s):
            return
        assert d.process.poll() is None, "%s: the daemon ended: %s" % (what, d.log[-1500:])
        time.sleep(0.05)
    raise AssertionError("%s: not within %d s" % (what, timeout))


@daemon("hostile/journal-stuck")
def _(w):
    """journald hangs, as when its disk does, and its socket is full: the status goes on."""
    d = run(w)
    d.wait_state("healthy")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.setblocking(False)
        try:
            while True:
                s.sendto(b"MESSAGE=x\n", w.dir + "/daemon-1/journal/socket")
        except BlockingIOError:
            pass
    heal = w.imds_drop()
    moves_on(w, d, "the fault while the journal is stuck", lambda s: s["verdict"]["state"] == "broken")
    heal()
    moves_on(w, d, "its end", lambda s: s["verdict"]["state"] == "healthy", timeout=20)
    w.imds_drop()
    moves_on(w, d, "it comes again", lambda s: s["verdict"]["state"] == "broken")
    d.poll()  # journald reads again
    d.wait_journal("what it did not take", 10, NODEWHY_STATE="raised", NODEWHY_CODE="ImdsUnreachable")
    assert d.stop() == 0


@daemon("hostile/history-cannot-be-written")
def _(w):
    """Said once; that there is nothing to write is not that it is written again."""
    w.tree.remove("var/lib/nodewhy")
    d = run(w)
    d.wait_state("healthy")
    w.imds_drop()
    d.wait_root("ImdsUnreachable")
    end = time.monotonic() + 3
    while time.monotonic() < end:
        d.poll(0.1)
    own = [e["MESSAGE"] for e in d.journal if "NODEWHY_CODE" not in e and "history" in e["MESSAGE"]]
    assert len(own) == 1 and own[0].startswith("cannot write"), own
    w.tree.mkdir("var/lib/nodewhy")
    w.heal()
    d.wait_state("healthy", timeout=20)
    d.wait("written again", lambda: any("history" in e["MESSAGE"] and "written again" in e["MESSAGE"]
                                        for e in d.journal), timeout=5)
    assert d.stop() == 0
