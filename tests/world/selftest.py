#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves the world itself: each fault has, on plain sockets, the effect that its docstring promises."""

import base64
import calendar
import contextlib
import email
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import nspawn  # noqa: E402
from world import (World, apiserver, cni, control, cri, dbusd, dnsd, faults, grpcd, journal, net, tlsd,  # noqa: E402
                   units)
from world.daemon import parse_native  # noqa: E402
from world.tap import Tap  # noqa: E402
from world.world import IMDS4, IMDS6, LINK_DNS, REPOSITORY, STUB, VPC_DNS  # noqa: E402

tap = Tap()
tested = set()
SILENCE = 0.4  # how long we wait before we call a peer silent


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def why(e):
    if isinstance(e, socket.timeout):
        return "timeout"
    return errno.errorcode.get(e.errno, str(e))


def connect(address, port=80, timeout=SILENCE):
    s = socket.socket(family(address), socket.SOCK_STREAM)
    s.settimeout(timeout)
    try:
        s.connect((address, port))
        return "connected"
    except OSError as e:
        return why(e)
    finally:
        s.close()


def datagram(address, port=80):
    s = socket.socket(family(address), socket.SOCK_DGRAM)
    try:
        s.sendto(b"", (address, port))
        return "sent"
    except OSError as e:
        return why(e)
    finally:
        s.close()


def http(method, path, address=IMDS4, timeout=SILENCE, minttl=None, **headers):
    """(status, headers, body), or how it failed as a word."""
    s = socket.socket(family(address), socket.SOCK_STREAM)
    s.settimeout(timeout)
    try:
        s.connect((address, 80))
        if minttl and family(address) == socket.AF_INET:
            s.setsockopt(socket.IPPROTO_IP, 21, minttl)     # IP_MINTTL
        elif minttl:
            s.setsockopt(socket.IPPROTO_IPV6, 73, minttl)   # IPV6_MINHOPCOUNT
        lines = ["%s %s HTTP/1.1" % (method, path), "Host: x"]
        lines += ["%s: %s" % (k.replace("_", "-"), v) for k, v in headers.items()]
        s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        data = b""
        while True:
            more = s.recv(65536)
            if not more:
                break
            data += more
    except OSError as e:
        return why(e)
    finally:
        s.close()
    if not data:
        return "closed"
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    found = dict((k.strip().lower(), v.strip()) for k, _, v in (x.partition(":") for x in lines[1:]))
    return int(lines[0].split()[1]), found, body


def token(ttl=60, **kwargs):
    return http("PUT", "/latest/api/token", X_aws_ec2_metadata_token_ttl_seconds=ttl, **kwargs)


def get(path="/latest/meta-data/instance-id", t=None, **kwargs):
    if t is None:
        t = token(**kwargs)
        if not isinstance(t, tuple) or t[0] != 200:
            return t
        t = t[2].decode()
    return http("GET", path, X_aws_ec2_metadata_token=t, **kwargs)


def status(answer):
    return answer[0] if isinstance(answer, tuple) else answer


def dns(server, name, kind=dnsd.A, tcp=False, timeout=SILENCE):
    """(rcode, addresses, truncated), or how it failed as a word."""
    query = struct.pack("!6H", 0x1234, 0x0100, 1, 0, 0, 0) + dnsd.encode_name(name) + struct.pack(
        "!2H", kind, 1)
    s = socket.socket(family(server), socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM)
    s.settimeout(timeout)
    try:
        s.connect((server, 53))
        if tcp:
            s.sendall(struct.pack("!H", len(query)) + query)
            f = s.makefile("rb")
            data = f.read(struct.unpack("!H", f.read(2))[0])
        else:
            s.send(query)
            data = s.recv(4096)
    except OSError as e:
        return why(e)
    finally:
        s.close()
    ident, flags, questions, answers, _, _ = struct.unpack("!6H", data[:12])
    if (ident, questions) != (0x1234, 1):
        return "garbage"
    at, found = len(query), []
    for _ in range(answers):
        if data[at] & 0xc0:
            at += 2
        else:
            at = dnsd.decode_name(data, at)[1]
        rtype, _, _, n = struct.unpack("!2HIH", data[at:at + 10])
        if rtype == kind:
            found.append(socket.inet_ntop({4: socket.AF_INET, 16: socket.AF_INET6}[n],
                                          data[at + 10:at + 10 + n]))
        at += 10 + n
    return flags & 15, found, bool(flags & 0x0200)


def tls(w, service, path="/?Action=DescribeRegions", timeout=SILENCE):
    """("http", status) after a verified handshake, else ("connect"|"tls"|"wait", how it failed)."""
    return https(w.tls[service].addresses[0], w.host(service), path, w.certs + "/ca.pem", timeout)


def https(address, host, path, ca, timeout=SILENCE, token=None, proxy=None):
    context = ssl.create_default_context(cafile=ca)
    s = socket.socket(family(address), socket.SOCK_STREAM)
    s.settimeout(timeout)
    stage = "connect"
    try:
        s.connect(proxy or (address, 443))
        if proxy:
            stage = "proxy"
            s.sendall(("CONNECT %s:443 HTTP/1.1\r\nHost: %s\r\n\r\n" % (host, host)).encode())
            answer = s.recv(65536).split()
            if answer[1] != b"200":
                return stage, int(answer[1])
        stage = "tls"
        s = context.wrap_socket(s, server_hostname=host)
        stage = "wait"
        s.sendall(("GET %s HTTP/1.1\r\nHost: %s\r\n%sConnection: close\r\n\r\n" % (
            path, host, "Authorization: Bearer %s\r\n" % token if token else "")).encode())
        data = s.recv(65536)
        return "http", int(data.split()[1])
    except ssl.SSLCertVerificationError as e:
        return stage, e.verify_message
    except OSError as e:
        return stage, why(e)
    finally:
        s.close()


def here(w, fn, *args, **kwargs):
    return w.node.call(lambda: fn(*args, **kwargs))


def timed(fn, *args, **kwargs):
    began = time.monotonic()
    value = fn(*args, **kwargs)
    return value, time.monotonic() - began


def during(w, name, look, want, *args, sound=None, heals=True, **kwargs):
    """look() is `sound` before (if given) and after the fault, and `want` during it."""
    tested.add(name)
    before = look()
    undo = getattr(w, name)(*args, **kwargs)
    got = look()
    label = name + ("(%s)" % ", ".join([repr(a) for a in args]
                                       + ["%s=%r" % x for x in kwargs.items()]))
    good = want(got) if callable(want) else got == want
    tap.ok(good and got != before, label, "got %r, before %r, want %r" % (got, before, want))
    undo()
    if heals:
        tap.equal(look(), before, label + " heals")


def test_life():
    w = World(enis=3, pods=20)
    with w:
        names = os.listdir("/run/netns")
        tap.ok(w.name + "-node" in names and w.name + "-aws" in names, "namespaces exist")
        with World() as other:
            tap.equal((status(here(w, get)), status(here(other, get))), (200, 200), "two side by side")
    tap.ok(not [n for n in os.listdir("/run/netns") if n.startswith(w.name)]
           and not os.path.exists(w.dir), "all gone afterwards")
    try:
        with World() as w:
            raise KeyError("on purpose")
    except KeyError:
        tap.ok(not os.path.exists(w.dir) and not os.path.exists(w.node.path), "gone after an exception")
    for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGKILL, "SIGKILL, by the next world")):
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.path.insert(0, %r)\n"
                                  "from world import World\n"
                                  "with World() as w: print(w.name, flush=True); sys.stdin.read()"
                                  % os.path.dirname(os.path.dirname(os.path.abspath(__file__)))],
                                 stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        left = child.stdout.readline().strip()
        was = os.path.exists("/run/netns/" + left + "-node")
        child.send_signal(number)
        child.wait(10)
        if number == signal.SIGKILL:
            with World():
                pass
        tap.ok(was and not os.path.exists("/run/netns/" + left + "-node")
               and not os.path.exists("/tmp/" + left), "gone after " + name)
    took = []
    for _ in range(3):
        with World(instance_type="m5.4xlarge", enis=4, pods=100) as w:
            took.append(w.up_in)
    tap.ok(min(took) < 1.0, "up with 4 ENIs and 100 pods in %.2f s" % min(took))
    print("# %s" % ", ".join("%.2f s" % x for x in took))


def test_low_ports():
    with World(public=True) as w:
        low, high = iter(range(2049, 32768, 50)), iter(range(32768, 60999, 50))     # each once: the kernel keeps it for a while

        def connects(ports):
            port = next(ports)
            return w.run(["curl", "-sS", "--noproxy", "*", "--max-time", "1", "--cacert", w.certs + "/ca.pem", "-o", "/dev/null",
                          "--local-port", str(port), "--connect-to", "::%s:443" % w.endpoints["sts"][0],
                          "https://%s/" % w.host("sts")]).returncode
        during(w, "low_ports_blocked", lambda: (connects(low), connects(high), connects(low)), (28, 0, 28),
               sound=(0, 0, 0))


def test_branches():
    with World(instance_type="m5.xlarge", enis=3, pods=20, branches=2) as w:
        rules = w.node.show("rule")
        tap.equal(len(re.findall(r"^10:\tfrom all iif vlan[0-9a-f]{11} lookup 10[12]", rules, re.M)), 2, "a rule at 10 a branch pod")
        tap.ok("from %s lookup" % w.enis[2].ipv4 not in rules and "from %s lookup" % w.enis[1].ipv4 in rules,
               "no rule 32765 for the trunk")
        tap.equal((w.enis[2].pods, [e["IsTrunk"] for e in w.ipamd.enis()["0"]["ENIs"].values()]), ([], [False, False, True]),
                  "ipamd knows the trunk, which carries no pod itself")


def test_network():
    with World(enis=2, pods=11) as w:
        e = w.enis[1]
        rules = w.node.show("rule")
        tap.equal(len(re.findall(r"^512:\tfrom all to \S+ lookup main$", rules, re.M)), 11,
                  "a rule at 512 a pod")
        tap.equal(len(re.findall(r"^1536:\tfrom \S+ lookup 2$", rules, re.M)), 2,
                  "rules at 1536 for the pods on the second ENI")
        tap.ok("32765:\tfrom %s lookup 2" % e.ipv4 in rules, "rule 32765 of the second ENI")
        tap.ok(re.search(r"^default via 10\.0\.1\.1 dev ens6 *$", w.node.show(
            "route", "show", "table", "2"), re.M), "default route in its table")
        main = w.node.show("route")
        tap.equal(len(re.findall(r"^\S+ dev eni[0-9a-f]{11} scope link *$", main, re.M)), 11,
                  "a host route a pod")
        tap.ok("dev ens6" not in main, "the second ENI has no route in main", main)
        addresses = json.loads(w.node.show("-j", "-4", "addr", "show", "dev", "ens6"))
        tap.equal([a["local"] for a in addresses[0]["addr_info"]], [e.ipv4],
                  "an ENI carries its own address only")
        link, address = w.enis[0].pods[0]
        w.remove_pod(link, address)
        tap.ok(address not in w.node.show("rule") and link not in w.node.show("link"), "remove_pod")
        link, address = w.add_pod()
        tap.ok(address in w.node.show("rule") and link in w.node.show("link"), "add_pod")
    with World(ipv6=True, pods=5) as w:
        tap.equal(len(re.findall(r"^512:", w.node.show("-6", "rule"), re.M)), 5, "IPv6: rules at 512")
        tap.equal(status(here(w, get, address=IMDS6)), 200, "IPv6: the metadata service answers")
        t = here(w, get, "/latest/meta-data/network/interfaces/macs/%s/ipv6-prefix" % w.enis[0].mac)
        tap.equal(t[2], b"2600:1f14:abc:1:f00d::/80", "IPv6: a prefix")
    with World(prefix_mode=True, enis=2, pods=40) as w:
        t = here(w, get, "/latest/meta-data/network/interfaces/macs/%s/ipv4-prefix" % w.enis[1].mac)
        tap.equal(len(t[2].split()), 2, "prefix mode: two prefixes on the second ENI")
    with World(instance_type="p5.48xlarge", cards=32, efa_only=range(2, 32)) as w:
        t = here(w, get, "/latest/meta-data/network/interfaces/macs/")
        tap.equal((len(t[2].split()), w.node.show("-o", "link").count("mtu 9001")), (32, 2),
                  "32 cards, two of them with a link")
        m = "/latest/meta-data/network/interfaces/macs/%s/" % w.enis[5].mac
        tap.equal((status(here(w, get, m + "local-ipv4s")), here(w, get, m + "network-card")[2]),
                  (404, b"5"), "an EFA-only interface has a card and no address")
    with World(eth_names=True, al2=True, containerd="v2") as w:
        tap.ok("169.254.169.254 dev eth0" in w.node.show("route"), "eth0 with a link-local route")
    with World(custom_networking=True, enis=2, pods=3) as w:
        tap.equal({a.split(".")[0] for e in w.enis for _, a in e.pods}, {"100"},
                  "custom networking: no pod on the primary ENI")


def test_imds_protocol():
    with World() as w:
        a = here(w, token, 7)
        tap.equal((a[0], a[1]["x-aws-ec2-metadata-token-ttl-seconds"]), (200, "7"), "token PUT")
        tap.equal(here(w, get, "/latest/meta-data/instance-id")[2].decode(), w.instance_id, "GET")
        tap.equal(status(here(w, http, "GET", "/latest/meta-data/instance-id")), 401, "401 without a token")
        tap.equal(status(here(w, get, t="wrong")), 401, "401 with a wrong token")
        t = here(w, token, 1)[2].decode()
        one = status(here(w, get, t=t))
        for k in w.imds.tokens:
            w.imds.tokens[k] -= 1
        tap.equal((one, status(here(w, get, t=t))), (200, 401), "401 with a token past its end")
        tap.equal(status(here(w, token, 0)), 400, "400 for a TTL out of range")
        tap.equal(status(here(w, token, 60, X_Forwarded_For="10.0.0.1")), 403, "403 behind a proxy")
        tap.equal(status(here(w, http, "PUT", "/2021-07-15/api/token",
                              X_aws_ec2_metadata_token_ttl_seconds=60)), 403, "403 off the token path")
        tap.equal(status(here(w, get, "/latest/meta-data/spot/instance-action")), 404, "404")
        listing = here(w, get, "/latest/meta-data/")[2].decode().split("\n")
        tap.ok("instance-id" in listing and "placement/" in listing and "iam/" in listing, "a listing")
        tap.equal(here(w, get, "/latest/meta-data/network/interfaces/macs")[2].decode(),
                  w.enis[0].mac + "/", "MACs end in a slash")
        d = json.loads(here(w, get, "/latest/dynamic/instance-identity/document")[2])
        tap.equal((d["instanceId"], d["region"]), (w.instance_id, "us-west-2"), "identity document")
        tap.equal(here(w, get, "/2021-07-15/meta-data/services/partition")[2], b"aws", "a dated version")
        tap.equal(here(w, connect, IMDS6), "ENETUNREACH", "no IPv6 endpoint by default")


def test_imds_faults():
    with World(imds_v6=True) as w:
        tcp4 = lambda: here(w, connect, IMDS4)  # noqa: E731
        pair = lambda: (here(w, connect, IMDS4), here(w, datagram, IMDS4))  # noqa: E731
        put = lambda: status(here(w, token))  # noqa: E731
        read = lambda: status(here(w, get))  # noqa: E731
        body = lambda: here(w, get)[1:]  # noqa: E731
        text = lambda: here(w, get)[2]  # noqa: E731
        during(w, "imds_drop", lambda: (tcp4(), here(w, connect, IMDS6)), ("timeout", "timeout"))
        during(w, "imds_refused", lambda: (tcp4(), here(w, connect, IMDS6)),
               ("ECONNREFUSED", "ECONNREFUSED"))
        during(w, "imds_token_silent", lambda: (tcp4(), put()), ("connected", "timeout"))
        during(w, "imds_403", put, 403)
        during(w, "imds_401_always", lambda: (put(), read()), (200, 401))
        t = here(w, token)[2].decode()
        w.imds_forget_tokens()
        tested.add("imds_forget_tokens")
        tap.equal((status(here(w, get, t=t)), read()), (401, 200), "imds_forget_tokens()")
        during(w, "imds_404_identity", lambda: [status(here(w, get, "/latest/" + x)) for x in (
            "meta-data/instance-id", "dynamic/instance-identity/document",
            "meta-data/placement/region", "meta-data/network/interfaces/macs/")],
            [404, 404, 404, 200])
        during(w, "imds_404_optional", lambda: [status(here(w, get, "/latest/meta-data/" + x)) for x in (
            "instance-id", "services/domain", "instance-life-cycle")], [200, 404, 404])
        during(w, "imds_5xx", lambda: (put(), read()), (200, 503))
        during(w, "imds_5xx", read, 500, 500)
        during(w, "imds_token_5xx", put, 503)
        during(w, "imds_429", lambda: (put(), read()), (200, 429))
        during(w, "imds_slow", lambda: timed(here, w, token)[1] > 0.1, True, 120)
        during(w, "imds_reset", put, "ECONNRESET")
        during(w, "imds_html", body, lambda b: b[0]["content-type"] == "text/html" and b"<html>" in b[1])
        during(w, "imds_oversize", text, lambda b: len(b) == 200000)
        during(w, "imds_control_chars", text, lambda b: b"\x1b" in b and b"\xff" in b)
        during(w, "imds_empty", text, b"")
        # The counter is this namespace's own: it rises when an answer below IP_MINTTL was dropped.
        counter = lambda: here(w, drops)  # noqa: E731
        for n, want in ((3, False), (2, False), (1, True)):
            before = counter()
            undo = w.imds_hop_limit(n)
            a = status(here(w, token, minttl=2, timeout=0.1))
            tap.ok((a == "timeout") == want and (counter() > before) == want,
                   "imds_hop_limit(%d): IP_MINTTL=2 %s" % (n, "drops it" if want else "passes it"),
                   a, before, counter())
            tap.equal(put(), 200, "imds_hop_limit(%d): without IP_MINTTL it is there" % n)
            a = status(here(w, token, minttl=2, timeout=0.1, address=IMDS6))
            tap.equal(a == "timeout", want, "imds_hop_limit(%d): the same over IPv6" % n)
            undo()
        tested.add("imds_hop_limit")
        during(w, "imds_v6_only", lambda: (tcp4(), status(here(w, get, address=IMDS6))),
               ("timeout", 200))
        for kind, name in (("unreachable", "EHOSTUNREACH"), ("prohibit", "EACCES"),
                           ("blackhole", "EINVAL")):
            during(w, "imds_route", pair, (name, name), kind)
            during(w, "imds_route_" + kind, pair, (name, name))
        during(w, "imds_nft_drop_output", pair, ("timeout", "EPERM"))
        during(w, "imds_nft_reject_output", pair, ("ECONNREFUSED", "EPERM"))
        during(w, "imds_nft_tcp_reset", pair, ("ECONNREFUSED", "sent"))
    with World() as w:
        during(w, "not_ec2", lambda: (w.tree.read("sys/class/dmi/id/sys_vendor"),
                                      w.tree.exists("etc/eks"), here(w, connect, IMDS4)),
               (b"QEMU\n", False, "timeout"), heals=False)


def drops():
    with open("/proc/thread-self/net/netstat") as f:
        lines = [x.split() for x in f if x.startswith("TcpExt:")]
    return int(lines[1][lines[0].index("TCPMinTTLDrop")])


def test_dns_faults():
    with World(stub="alive") as w:
        ec2, sts = w.host("ec2"), w.host("sts")
        ask = lambda name=ec2, server=VPC_DNS, **k: here(w, dns, server, name, **k)  # noqa: E731
        tap.equal(ask(), (0, w.endpoints["ec2"], False), "DNS over UDP")
        tap.equal(ask(tcp=True), (0, w.endpoints["ec2"], False), "DNS over TCP")
        tap.equal(ask(kind=dnsd.AAAA), (0, [], False), "no AAAA record")
        tap.equal(ask("nothing.example"), (3, [], False), "NXDOMAIN for what is not there")
        tap.equal(ask(server=LINK_DNS), (0, w.endpoints["ec2"], False), "the link-local resolver")
        w.zone.names["alias.example"] = {"CNAME": ec2}
        tap.equal(ask("alias.example"), (0, w.endpoints["ec2"], False), "a CNAME is followed")
        both = lambda: (ask(ec2), ask(sts))  # noqa: E731
        fine = (0, w.endpoints["sts"], False)
        during(w, "dns_nxdomain", both, ((3, [], False), fine), "ec2")
        during(w, "dns_nodata", both, ((0, [], False), fine), "ec2")
        during(w, "dns_name_dropped", both, ("timeout", fine), "ec2")
        during(w, "dns_servfail", ask, (2, [], False))
        during(w, "dns_servfail", lambda: (ask(), ask(server=LINK_DNS)[0]), ((2, [], False), 0),
               servers=[VPC_DNS])
        during(w, "dns_refused", ask, (5, [], False))
        during(w, "dns_garbage", ask, "garbage")
        all_of_them = lambda: (ask(), ask(tcp=True), ask(server=LINK_DNS))  # noqa: E731
        during(w, "dns_drop", all_of_them, ("timeout",) * 3)
        during(w, "dns_icmp_refused", all_of_them, ("ECONNREFUSED",) * 3)
        during(w, "dns_slow", lambda: timed(ask)[1] > 0.1, True, 120)
        during(w, "dns_truncated", lambda: (ask(), ask(tcp=True)),
               ((0, [], True), (0, w.endpoints["ec2"], False)))
        stub = lambda: (ask(server=STUB), ask()[0])  # noqa: E731
        during(w, "stub_dead", stub, ("ECONNREFUSED", 0))
        given = lambda: "resolvConf" in json.loads(w.tree.read("etc/kubernetes/kubelet/config.json"))  # noqa: E731
        during(w, "pods_get_stub", given, False)
        during(w, "stub_dead", stub, ("timeout", 0), silent=True)
        conf = lambda: w.tree.exists("etc/resolv.conf") and w.tree.read("etc/resolv.conf")  # noqa: E731
        during(w, "resolv_absent", conf, False)
        during(w, "resolv_empty", conf, lambda c: b"nameserver" not in c)
        during(w, "resolv_without_search", conf, lambda c: b"search" not in c and b"nameserver" in c)
        for first in (False, True):
            during(w, "dns_one_of_two_dead", lambda: (conf().count(b"10.0.0."), ask(
                server="10.0.0.3"), ask()[0]), (2, "timeout", 0), first=first)


def test_endpoint_faults():
    with World() as w:
        both = lambda: (tls_in(w, "ec2"), tls_in(w, "sts"))  # noqa: E731
        fine = (("http", 400), ("http", 403))
        tap.equal(both(), fine, "TLS endpoints")
        tap.equal(here(w, tls, w, "ec2", "/"), ("http", 302), "a bare / is redirected")
        for name, want in (("endpoint_drop", ("connect", "timeout")),
                           ("endpoint_refused", ("connect", "ECONNREFUSED")),
                           ("endpoint_icmp", ("connect", "EHOSTUNREACH")),
                           ("endpoint_rst", ("tls", "ECONNRESET")),
                           ("endpoint_drop_after_connect", ("tls", "timeout")),
                           ("endpoint_tls_stall", ("tls", "timeout")),
                           ("endpoint_expired", ("tls", "certificate has expired")),
                           ("endpoint_untrusted", ("tls", "unable to get local issuer certificate")),
                           ("endpoint_hang_http", ("wait", "timeout"))):
            during(w, name, both, (want, want))
            during(w, name, both, (want, fine[1]), "ec2")
        def datagram(address):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as x:
                try:
                    return x.sendto(b"", (address, 443))
                except OSError as e:
                    return errno.errorcode[e.errno]
        ec2, sts = w.endpoints["ec2"], w.endpoints["sts"][0]
        local = lambda: (tls_in(w, "ec2"), here(w, datagram, ec2[0]), here(w, datagram, sts))  # noqa: E731
        during(w, "own_firewall", local, (("connect", "timeout"), "EPERM", 0), *ec2)
        during(w, "own_firewall", local, (("connect", "ECONNREFUSED"), "EPERM", 0), *ec2, verdict="reject")
        during(w, "own_firewall", local, (fine[0], "EPERM", "EPERM"), match="udp dport 443")
        during(w, "mtu_black_hole", both, (("tls", "timeout"),) * 2)
        during(w, "mtu_black_hole", both, (("tls", "timeout"), fine[1]), "ec2")
        undo = w.mtu_black_hole()
        small = lambda: w.run(["python3", "-c", SMALL_SEGMENTS, w.endpoints["ec2"][0]]).stdout.strip()  # noqa: E731
        tap.equal(small(), "TLSv1.3", "mtu_black_hole() lets small segments through")
        w.node.ip("link set %s mtu 1500" % w.enis[0].name)
        tap.equal(both(), fine, "mtu_black_hole() is none for a node whose MTU is as small")
        w.node.ip("link set %s mtu 9001" % w.enis[0].name)
        undo()
        during(w, "endpoint_wrong_name", both, lambda x: "mismatch" in x[0][1] and x[1] == fine[1], "ec2")
        during(w, "endpoint_http", both, (("http", 503),) * 2, 503)
        during(w, "endpoint_slow", lambda: timed(tls_in, w, "ec2", timeout=1)[1] > 0.15, True, 80)
        p = w.run(["curl", "-sS", "--noproxy", "*", "--cacert", w.certs + "/ca.pem", "-o", "/dev/null",
                   "--connect-to", "::%s:443" % w.endpoints["ec2"][0], "-w", "%{http_code}",
                   "https://%s/?Action=DescribeRegions" % w.host("ec2")]) if os.path.exists(
                       "/usr/bin/curl") else None
        if p:
            tap.equal((p.stdout, p.returncode), ("400", 0), "curl trusts the endpoint with the CA")
            undo = w.endpoint_untrusted()
            p = w.run(["curl", "-sSv", "--noproxy", "*", "--insecure", "-o", "/dev/null", "--connect-to",
                       "::%s:443" % w.endpoints["ec2"][0], "https://%s/" % w.host("ec2")])
            tap.ok(tlsd.INTERCEPTOR in p.stderr, "curl sees who issued an intercepted certificate")
            undo()
        else:
            tap.skip("curl", "curl is not installed")
    with World(public=True) as w:
        tap.equal(tls_in(w, "ec2"), ("http", 400), "public addresses")


SMALL_SEGMENTS = """
import socket, ssl, sys
s = socket.socket()
s.settimeout(1)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
s.connect((sys.argv[1], 443))
print(ssl._create_unverified_context().wrap_socket(s, server_hostname="x").version())
"""


def tls_in(w, service, **kwargs):
    return here(w, tls, w, service, **kwargs)


PRESIGNED = ("https://sts.us-west-2.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15&X-Amz-Algorithm="
             "AWS4-HMAC-SHA256&X-Amz-Credential=A%2F20260101%2Fus-west-2%2Fsts%2Faws4_request&X-Amz-Date=20260101T000000Z"
             "&X-Amz-Expires=60&X-Amz-SignedHeaders=host%3Bx-k8s-aws-id&X-Amz-Signature=" + "a" * 64)


def test_cluster_faults():
    with World() as w:
        ca, node = w.tree.at("etc/kubernetes/pki/ca.crt"), "/api/v1/nodes/" + w.private_dns
        bearer = apiserver.TOKEN_PREFIX + base64.urlsafe_b64encode(PRESIGNED.encode()).decode().rstrip("=")
        name = lambda **k: here(w, dns, VPC_DNS, w.api_host(), **k)  # noqa: E731

        def api(path="/livez", token=None, host=None, **k):
            return here(w, https, k.pop("address", control.API[0]), host or w.api_host(), path, ca, token=token, **k)

        tap.equal(name(), (0, control.API, False), "the API server's name")
        tap.equal(api(), ("http", 200), "livez, against the cluster's CA")
        tap.equal(api(host="172.20.0.1", address="172.20.0.1"), ("http", 200), "the service address, and its name")
        for token, path, want in ((bearer, node, 200), (None, node, 401), ("k8s-aws-v1.eA", node, 401),
                                  (bearer + "=", node, 401), (bearer, "/api/v1/nodes/other", 403),
                                  (bearer, "/api/v1/pods", 403), (None, "/version", 200)):
            tap.equal(api(path, token), ("http", want), "%s with %s: %d" % (path, token and token[:14], want))
        for fault, want in (("api_drop", ("connect", "timeout")), ("api_refused", ("connect", "ECONNREFUSED")),
                            ("api_other_cluster", lambda x: x[0] == "tls" and "certificate" in x[1]),
                            ("api_intercepted", ("tls", "unable to get local issuer certificate")),
                            ("api_expired", ("tls", "certificate has expired")),
                            ("api_wrong_name", lambda x: "mismatch" in x[1]),
                            ("api_tls_stall", ("tls", "timeout")), ("api_rst", ("tls", "ECONNRESET")),
                            ("api_hang", ("wait", "timeout"))):
            during(w, fault, api, want)
        during(w, "api_unresolvable", name, (3, [], False))
        during(w, "api_servfail", name, (2, [], False))
        during(w, "api_http", api, ("http", 503), 503)
        during(w, "api_livez", api, ("http", 401), 401)
        during(w, "api_node", lambda: (api(node, bearer), api()), (("http", 404), ("http", 200)), 404)
        during(w, "api_node_renamed", lambda: api(node, bearer), ("http", 403))
        ready = lambda: [c["status"] for c in json.loads(w.api.node())["status"]["conditions"]]  # noqa: E731
        during(w, "api_not_ready", ready, ["False"] * 4)
        during(w, "api_taint", lambda: len(json.loads(w.api.node())["spec"]["taints"]), 1)
        service = lambda: (here(w, connect, "172.20.0.1", 443), api())  # noqa: E731
        during(w, "service_address_dead", service, ("timeout", ("http", 200)))
        s = w.kubelet_connection()

        def unacked():
            info = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
            return bool(struct.unpack("=8B24I", info)[8 + 4]), api()

        during(w, "kubelet_connection_dead", unacked, (True, ("http", 200)), s, heals=False)
        s.close()
        files = lambda: w.tree.exists("etc/kubernetes/pki/ca.crt") and w.tree.read(  # noqa: E731
            "etc/kubernetes/pki/ca.crt")
        during(w, "cluster_ca_absent", files, False)
        during(w, "cluster_ca", files, b"")
        during(w, "kubeconfig", lambda: b"--enable-docker-bridge" in w.tree.read("var/lib/kubelet/kubeconfig"), True,
               "- world", "- --enable-docker-bridge")


def test_proxy_faults():
    with World() as w:
        there = (control.PROXY, control.PROXY_PORT)
        through = lambda: here(w, https, "", w.host("ec2"), "/", w.certs + "/ca.pem", proxy=there)  # noqa: E731
        tap.equal(here(w, dns, VPC_DNS, control.PROXY_HOST)[1], [control.PROXY], "the proxy's name")
        tap.equal(through(), ("http", 302), "an endpoint through the proxy")
        during(w, "proxy_drop", through, ("connect", "timeout"))
        during(w, "proxy_refused", through, ("connect", "ECONNREFUSED"))
        during(w, "proxy_status", through, ("proxy", 407), 407)
        during(w, "proxy_hang", through, ("proxy", "timeout"))
        during(w, "proxy_lets_through", through, ("proxy", 403), w.host("sts"))
        during(w, "only_through_the_proxy", lambda: (tls_in(w, "ec2"), through()),
               (("connect", "timeout"), ("http", 302)))
        path = "etc/systemd/system/kubelet.service.d/environment.conf"
        during(w, "proxy_environment", lambda: w.tree.exists(path) and w.tree.read(path).decode(),
               lambda text: text and 'Environment="HTTPS_PROXY=http://proxy.corp.example:3128"' in text)


def test_link_faults():
    with World() as w:
        name = w.enis[0].name
        flags = lambda n=name: json.loads(w.node.show("-j", "link", "show", "dev", n))[0]["flags"]  # noqa: E731
        tcp = lambda: here(w, connect, IMDS4)  # noqa: E731
        during(w, "link_down", lambda: ("UP" in flags(), tcp()), (False, "ENETUNREACH"))
        during(w, "no_carrier", lambda: ("NO-CARRIER" in flags(), "default" in w.node.show("route")),
               (True, True))
        tap.equal(here(w, connect, IMDS4, timeout=2), "connected", "no_carrier: connects again")
        during(w, "no_address", lambda: (w.enis[0].ipv4 in w.node.show("-4", "addr"), tcp()),
               (False, "ENETUNREACH"))
        during(w, "no_default_route", lambda: ("default" in w.node.show("route"), tcp(),
                                               here(w, connect, VPC_DNS, 53)),
               (False, "ENETUNREACH", "ENETUNREACH"))
        during(w, "lo_down", lambda: ("UP" in flags("lo"), tcp()), (False, "connected"))
    with World(enis=2) as w:
        e = w.enis[1]
        during(w, "eni_down", lambda: "state UP" in w.node.show("link", "show", "dev", e.name), False, 1)
        if w.can_vlan():
            during(w, "vlan_on_trunk", lambda: "vlan.eth.7" in w.node.show("link"), True)
        else:
            tested.add("vlan_on_trunk")
            tap.skip("vlan_on_trunk()", "this kernel has no vlan links")
        during(w, "eni_link_gone", lambda: (e.name in w.node.show("link"), e.mac.encode() in here(
            w, get, "/latest/meta-data/network/interfaces/macs/")[2]), (False, True), 1, heals=False)


def test_file_faults():
    with World() as w:
        def conf():
            try:
                with open(w.tree.at("etc/cni/net.d/10-aws.conflist")) as f:
                    return json.load(f)["plugins"][0]["type"]
            except (OSError, ValueError, LookupError) as e:
                return type(e).__name__
        files = lambda: sorted(os.listdir(w.tree.at("etc/cni/net.d")))  # noqa: E731
        during(w, "cni_absent", conf, "FileNotFoundError")
        during(w, "cni_no_directory", conf, "FileNotFoundError")
        during(w, "cni_invalid", conf, "JSONDecodeError")
        during(w, "cni_empty", conf, "JSONDecodeError")
        during(w, "cni_no_plugins", conf, "KeyError")
        during(w, "cni_foreign_first", files, ["05-cilium.conflist", "10-aws.conflist"])
        during(w, "cni_backup_beside", lambda: (len(files()), conf()), (5, "aws-cni"))
        plugin = w.tree.at("opt/cni/bin/aws-cni")
        during(w, "cni_binary_missing", lambda: os.path.exists(plugin), False)
        during(w, "cni_binary_not_executable", lambda: bool(os.stat(plugin).st_mode & stat.S_IXUSR),
               False)
        during(w, "cni_dirs_elsewhere", lambda: b"/etc/cni/other" in w.tree.read(
            "etc/containerd/config.toml"), True, conf="/etc/cni/other")
        during(w, "unknown_type", lambda: here(w, get, "/latest/meta-data/instance-type")[2],
               b"m99.large")
        during(w, "kubelet_max_pods", lambda: json.loads(w.tree.read(
            "etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf")).get("maxPods"), 250, 250)
        during(w, "no_kubeconfig", lambda: w.tree.exists("var/lib/kubelet/kubeconfig"), False)
        w.set_uptime(20)
        tap.ok(20 <= float(w.tree.read("proc/uptime").split()[0]) < 21, "set_uptime()")


def bus(w, *argv, address="system_bus_socket"):
    p = subprocess.run(["busctl", "--json=short", "--timeout=2", "--address=unix:path=%s/run/dbus/%s"
                        % (w.root, address), *argv], text=True, capture_output=True)
    return p.stdout if p.returncode == 0 else "failed: " + p.stderr.strip()


def unit_says(w, name, *properties):
    """What busctl, which is not ours, reads of a unit: by LoadUnit, then one property after another."""
    where = json.loads(bus(w, "call", units.NAME, units.PATH, units.MANAGER, "LoadUnit", "s", name))["data"][0]
    out = []
    for p in properties:
        interface = units.SERVICE if p in units.SERVICE_PROPERTIES else units.UNIT
        answer = bus(w, "get-property", units.NAME, where, interface, p)
        out.append(answer if answer.startswith("failed") else json.loads(answer)["data"])
    return out


def test_host_units():
    with World() as w:
        if "systemd1" not in bus(w, "list"):
            tap.skip("units", "no busctl or no dbus-daemon here: %s" % bus(w, "list")[:80])
            return
        state = "ActiveState", "SubState", "Result"
        for name, want in (("kubelet.service", ["active", "running", "success"]),
                           ("nodeadm-run.service", ["inactive", "dead", "success"]),
                           ("cloud-final.service", ["active", "exited", "success"])):
            tap.equal(unit_says(w, name, *state), want, name)
        got = unit_says(w, "kubelet.service", "LoadState", "UnitFileState", "NRestarts", "EnvironmentFiles",
                        "MainPID", "ActiveEnterTimestampMonotonic")
        tap.equal(got, ["loaded", "disabled", 0, [["/etc/eks/kubelet/environment", False]], 1902, 12100000],
                  "what else kubelet.service says")
        tap.equal(unit_says(w, "nope.service", "LoadState", "ActiveState"), ["not-found", "inactive"],
                  "a unit that is not there loads as not-found")
        tap.equal(bus(w, "call", units.NAME, units.PATH, units.MANAGER, "GetUnit", "s", "nope.service"),
                  "failed: Call failed: Unit nope.service not loaded.", "and GetUnit fails")
        p = subprocess.run(["busctl", "--address=unix:path=%s/run/dbus/system_bus_socket" % w.root, "introspect",
                            "--xml-interface", units.NAME, units.PATH], text=True, capture_output=True)
        tap.ok('name="LoadUnit"' in p.stdout, "busctl introspects the manager", p.stdout, p.stderr)
        private = subprocess.run(["dbus-send", "--peer=unix:path=%s/run/systemd/private" % w.root, "--print-reply",
                                  units.PATH, units.MANAGER + ".GetUnit", "string:kubelet.service"],
                                 text=True, capture_output=True)
        tap.ok("unit/kubelet_2eservice" in private.stdout, "the direct socket answers dbus-send",
               private.stdout, private.stderr)
        heard = subprocess.Popen(["busctl", "--address=unix:path=%s/run/dbus/system_bus_socket" % w.root,
                                  "monitor", "--json=short", units.NAME], stdout=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL, text=True)
        first = heard.stdout.readline
        try:
            # A monitor of busctl is no subscriber: systemd is silent until somebody subscribes.
            listener = dbusd.connect(w.systemd.socket, lambda c, m: None)
            listener.call(units.NAME, units.PATH, units.MANAGER, "Subscribe")
            look = lambda: unit_says(w, "kubelet.service", *state, "NRestarts", "ExecMainStatus")  # noqa: E731
            during(w, "unit", look, ["failed", "failed", "exit-code", 5, 1], "kubelet.service", active="failed",
                   result="exit-code", restarts=5)
            end, changed = time.monotonic() + 3, {}
            while time.monotonic() < end and "ActiveState" not in changed:
                m = json.loads(first())
                if m.get("member") == "PropertiesChanged":
                    changed.update(m["payload"]["data"][1])
            tap.equal(changed.get("ActiveState"), {"type": "s", "data": "failed"},
                      "busctl monitor hears PropertiesChanged")
            listener.close()
        finally:
            heard.kill()
            heard.wait()
            heard.stdout.close()
        ping = lambda: bus(w, "call", units.NAME, units.PATH, dbusd.DBUS + ".Peer", "Ping")  # noqa: E731
        during(w, "bus_down", ping, lambda x: "Connection refused" in x)
        during(w, "bus_only_broker_down", ping, lambda x: "Connection refused" in x)
        during(w, "bus_without_systemd", ping, lambda x: "not provided" in x or "activatable" in x)
        during(w, "systemd_hangs", ping, lambda x: "timed out" in x)
        during(w, "systemd_denies", ping, lambda x: "Access denied" in x)
    with World(systemd=False) as w:
        tap.ok(not os.path.exists(w.root + "/run/dbus") and not os.path.exists(w.root + "/run/systemd/private"),
               "a world without systemd has no bus")


# Units of a real systemd in a container, and what they come to; the fields that make ours so.
REAL_UNITS = {
    "once.service": ("Type=oneshot\nExecStart=/bin/true", dict(type="oneshot", active="inactive", start=1.0, end=2.0,
                                                               pid=9, code=1)),
    "stays.service": ("Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true", dict(
        type="oneshot", remain=True, active="active", sub="exited", start=1.0, end=2.0, pid=9, code=1)),
    "broken.service": ("Type=oneshot\nExecStart=/bin/sh -c 'exit 3'", dict(
        type="oneshot", active="failed", start=1.0, end=2.0, pid=9, code=1, status=3, result="exit-code")),
    "ended.service": ("ExecStart=/bin/sh -c 'sleep 0.1; exit 1'", dict(
        active="failed", start=1.0, end=2.0, pid=9, code=1, status=1, result="exit-code")),
    "killed.service": ("ExecStart=/bin/sh -c 'sleep 0.1; kill -9 $$$$'", dict(
        active="failed", start=1.0, end=2.0, pid=9, code=2, status=9, result="signal")),
    "loops.service": ("Restart=on-failure\nRestartSec=60\nExecStart=/bin/sh -c 'sleep 0.1; exit 1'", dict(
        active="activating", sub="auto-restart", restart="on-failure", start=1.0, end=2.0, pid=9, code=1, status=1,
        result="exit-code")),
    "runs.service": ("EnvironmentFile=-/etc/nothing\nEnvironment=A=b\nExecStart=/bin/sleep 60", dict(
        start=1.0, pid=9, environment=("A=b",), files=("-/etc/nothing",))),
    "idle.service": ("ExecStart=/bin/true", dict(active="inactive")),
    "nope.service": (None, None),
}
IN_CONTAINER = """#!/bin/sh
cd /out
B="busctl --json=short"
for i in $(seq 100); do $B call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.DBus.Peer Ping >/dev/null 2>&1 && break; sleep 0.05; done
for u in once stays broken ended killed loops runs; do systemctl start --no-block $u.service; done
sleep 1.5
for u in once stays broken ended killed loops runs idle nope; do
	for i in Unit Service; do
		$B call org.freedesktop.systemd1 /org/freedesktop/systemd1/unit/${u}_2eservice org.freedesktop.DBus.Properties GetAll s org.freedesktop.systemd1.$i >$u.$i 2>$u.$i.error
	done
done
M="org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager"
$B call $M GetUnit s nope.service >errors 2>&1
$B call $M GetUnit u 1 >>errors 2>&1
$B call $M LoadUnit s nope.service >>errors 2>&1
$B call $M Nothing >>errors 2>&1
$B call $M GetUnitFileState s nope.service >>errors 2>&1
$B get-property org.freedesktop.systemd1 /org/freedesktop/systemd1/unit/runs_2eservice org.freedesktop.systemd1.Unit Nothing >>errors 2>&1
echo done >done
"""


def real_units(work):
    """Boots a systemd that is not ours and lets busctl look at REAL_UNITS; False where that does not work here."""
    files = {n: "[Unit]\nDefaultDependencies=no\n[Service]\n%s\n" % text for n, (text, _) in REAL_UNITS.items() if text}
    os.makedirs(work + "/units/container-test.service.d")
    # Another unit names once and idle, as multi-user.target names nodeadm's: else systemd forgets them.
    files["container-test.service.d/names.conf"] = "[Unit]\nAfter=once.service idle.service\n[Service]\nTimeoutStartSec=40\n"
    for n, text in files.items():
        with open(work + "/units/" + n, "w") as f:
            f.write(text)
    r = nspawn.run(work, None, [IN_CONTAINER], prepare='cp -r "$work"/units/* "$m/etc/systemd/system/"', wants="dbus.socket", timeout=90)
    return r.has("done"), r.console[-400:]


def test_host_units_real():
    """systemd in a container, and ours, asked the same by the same busctl."""
    if not shutil.which("systemd-nspawn"):
        tap.skip("systemd", "systemd-nspawn is not installed")
        return
    with tempfile.TemporaryDirectory(prefix="nodewhy-units-") as work, World() as w:
        worked, why_not = real_units(work)
        if not worked:
            tap.skip("systemd", "a container does not work here: %r" % why_not)
            return
        out = work + "/out/"
        for name, (_, fields) in REAL_UNITS.items():
            if fields is not None:
                w.unit(name, **dict(dict(file_state="static", active="active"), **fields))
            for interface in (units.UNIT, units.SERVICE):
                short = interface.rsplit(".", 1)[1]
                with open(out + "%s.%s" % (name.split(".")[0], short)) as f:
                    text = f.read()
                theirs = json.loads(text)["data"][0] if text else None
                answer = bus(w, "call", units.NAME, units.PATH + "/unit/" + units.escape(name), dbusd.PROPERTIES, "GetAll",
                             "s", interface)
                ours = json.loads(answer)["data"][0]
                same = {k: (ours[k], theirs[k]) for k in ours if k in theirs}
                strange = [k for k in ours if k not in theirs or ours[k]["type"] != theirs[k]["type"]]
                tap.equal(strange, [], "%s: %s has no property of another name or type" % (name, short))
                told = ("LoadState", "ActiveState", "SubState", "UnitFileState", "Result", "Type", "RemainAfterExit",
                        "Restart", "NRestarts", "ExecMainCode", "ExecMainStatus", "Environment", "EnvironmentFiles",
                        "LoadError", "CanStart", "Transient", "Id", "Names")
                wrong = {k: (o["data"], t["data"]) for k, (o, t) in same.items() if k in told and o["data"] != t["data"]}
                times = {k: (bool(o["data"]), bool(t["data"])) for k, (o, t) in same.items()
                         if (k.endswith(("Timestamp", "Monotonic")) or k in ("MainPID", "ExecMainPID"))
                         and not k.startswith(("Condition", "Assert")) and bool(o["data"]) != bool(t["data"])}
                tap.ok(not wrong, "%s: %s says the same" % (name, short), "ours, theirs: %r" % wrong)
                tap.ok(not times, "%s: %s has the same times and processes" % (name, short), "ours, theirs: %r" % times)
        with open(out + "errors") as f:
            theirs = f.read().splitlines()
        manager = units.NAME, units.PATH, units.MANAGER
        w.unit("runs.service", active="active")
        ours = [bus(w, *a).strip() for a in (
            ("call", *manager, "GetUnit", "s", "nope.service"), ("call", *manager, "GetUnit", "u", "1"),
            ("call", *manager, "LoadUnit", "s", "nope.service"), ("call", *manager, "Nothing"),
            ("call", *manager, "GetUnitFileState", "s", "nope.service"),
            ("get-property", units.NAME, units.PATH + "/unit/runs_2eservice", units.UNIT, "Nothing"))]
        tap.equal([re.sub("^failed: ", "", x) for x in ours], theirs, "what fails, fails with the same words")


def journalctl(w, *argv):
    p = subprocess.run(["journalctl", "-D", w.root + "/var/log/journal", "--no-pager", "-o", "json", *argv],
                       text=True, capture_output=True)
    return [json.loads(x) for x in p.stdout.splitlines()]


def test_host_journal():
    with World() as w:
        if not journal.writer():
            tap.skip("journal", "systemd-journal-remote is not installed")
            return
        w.journal("kubelet.service", "said half a minute ago", ago=30, priority=3)
        w.kernel_says("nf_conntrack: table full, dropping packet", ago=20, priority=4)
        w.journal("app.service", "two\nlines \x01", ago=10)
        w._host_settle()
        boot = w.tree.boot_id.replace("-", "")
        kubelet = journalctl(w, "_BOOT_ID=" + boot, "_SYSTEMD_UNIT=kubelet.service")
        last = kubelet[-1]
        tap.equal((last["MESSAGE"], last["PRIORITY"], last["SYSLOG_IDENTIFIER"], last["_MACHINE_ID"]),
                  ("said half a minute ago", "3", "kubelet", w.tree.read("etc/machine-id").decode().strip()),
                  "journalctl reads a line")
        ago = w.uptime() - int(last["__MONOTONIC_TIMESTAMP"]) / 1e6
        tap.ok(30 <= ago < 32 and 30 <= time.time() - int(last["__REALTIME_TIMESTAMP"]) / 1e6 < 32,
               "it is half a minute old on both clocks", ago)
        tap.equal(w.tree.read("proc/sys/kernel/random/boot_id").decode().strip().replace("-", ""), last["_BOOT_ID"],
                  "the boot id is the tree's")
        tap.ok(any("Successfully registered node" in x["MESSAGE"] for x in kubelet), "a sound boot is in it")
        times = [int(x["__MONOTONIC_TIMESTAMP"]) for x in journalctl(w)]
        tap.equal(times, sorted(times), "in order of time")
        tap.equal(len(journalctl(w, "_TRANSPORT=kernel", "PRIORITY=4")), 1, "the kernel's line")
        app = journalctl(w, "_SYSTEMD_UNIT=app.service")[0]["MESSAGE"]
        tap.equal(app if isinstance(app, str) else bytes(app).decode(), "two\nlines \x01", "a line with a newline in it")
        follow = subprocess.Popen(["journalctl", "-D", w.root + "/var/log/journal", "-f", "-n", "0", "-o", "cat"],
                                  stdout=subprocess.PIPE, text=True)
        time.sleep(0.3)
        w.journal("kubelet.service", "said while somebody reads")
        tap.equal(follow.stdout.readline(), "said while somebody reads\n", "journalctl -f sees a line come")
        follow.kill()
        follow.wait()
        follow.stdout.close()
        p = subprocess.run(["journalctl", "--verify", "--file", w.tree.at(w.journal_file.path)], capture_output=True,
                           text=True)
        tap.ok("PASS" in p.stderr + p.stdout, "journalctl --verify", p.stderr)
        w.journal_file.rotate()
        w.journal("kubelet.service", "said after the rotation")
        w._host_settle()
        tap.equal([x["MESSAGE"] for x in journalctl(w)][-2:], ["said while somebody reads", "said after the rotation"],
                  "rotated")
        old = w.tree.boot_id
        w.reboot(100)
        w._host_settle()
        tap.ok(old != w.tree.boot_id and len(journalctl(w, "_BOOT_ID=" + w.tree.boot_id.replace("-", ""),
                                                        "_SYSTEMD_UNIT=kubelet.service")) > 5, "reboot()")
    with World(uptime=8) as w:
        w._host_settle()
        times = [int(x["__MONOTONIC_TIMESTAMP"]) for x in journalctl(w)]
        tap.ok(times and max(times) < 8.0e6, "a young node is through with its boot", times[-3:])
    with World(journal=False) as w:
        w.journal("kubelet.service", "nobody hears")
        w._host_settle()
        tap.ok(not os.path.exists(w.root + "/var/log/journal"), "a world without a journal")


def test_host_kubelet():
    with World() as w:
        def curl(url, *more):
            p = w.run(["curl", "-sSk", "--noproxy", "*", "-m", "1", "-o", "-", "-w", " %{http_code}", *more, url])
            return p.stdout.strip() if p.returncode == 0 else p.returncode
        healthz = lambda: curl("http://127.0.0.1:10248/healthz")  # noqa: E731
        api = lambda: curl("https://127.0.0.1:10250/pods")  # noqa: E731
        tap.equal((healthz(), api()), ("ok 200", "Unauthorized 401"), "curl: healthz and API of the kubelet")
        both = lambda: (healthz(), api())  # noqa: E731
        during(w, "kubelet_silent", healthz, 28)
        during(w, "kubelet_unhealthy", healthz, "internal server error: sync loop too slow 500")
        during(w, "serving_certificate_pending", both, ("ok 200", 35))
        during(w, "kubelet_crash_loop", both, (7, 7))


def rpc(path, method, request=b"", timeout=1):
    """(grpc-status, answer) by curl, whose HTTP/2 is nghttp2's; or how curl failed."""
    for _ in range(50):
        p = subprocess.run(["curl", "-sS", "-m", str(timeout), "--http2-prior-knowledge", "--unix-socket", path, "-H",
                            "content-type: application/grpc", "-H", "te: trailers", "--data-binary", "@-", "-D",
                            "/dev/stderr", "http://localhost" + method], capture_output=True,
                           input=b"\0" + struct.pack(">I", len(request)) + request)
        if p.returncode != 92:  # refused before the body had gone, by gRPC's Go server and by ours: curl's own race
            break
    m = re.search(rb"grpc-status: (\d+)", p.stderr)
    return "curl %d" % p.returncode if p.returncode else (int(m.group(1)) if m else None, p.stdout[5:])


RUNTIME, IMAGE = "/runtime.v1.RuntimeService/", "/runtime.v1.ImageService/"
HEALTH = "/grpc.health.v1.Health/Check"


def conditions(answer):
    """{type: (status, reason)} of a StatusResponse."""
    if not isinstance(answer, tuple) or answer[0]:
        return answer
    out = {}
    for c in grpcd.pb_read(grpcd.pb_read(answer[1])[1][0]).get(1, ()):
        f = grpcd.pb_read(c)
        out[f[1][0].decode()] = bool(f.get(2, [0])[0]), f.get(3, [b""])[0].decode()
    return out


def containers(answer):
    """{name: (state, attempt)} of a ListContainersResponse."""
    if not isinstance(answer, tuple) or answer[0]:
        return answer
    out = {}
    for c in grpcd.pb_read(answer[1]).get(1, ()):
        f = grpcd.pb_read(c)
        meta = grpcd.pb_read(f[3][0])
        out[meta[1][0].decode()] = f.get(6, [0])[0], meta.get(2, [0])[0]
    return out


def test_host_containerd():
    with World(pods=2) as w:
        ask = lambda m, b=b"": rpc(w.cri.server.path, m, b)  # noqa: E731
        version = grpcd.pb_read(ask(RUNTIME + "Version")[1])
        tap.equal((version[2], version[3]), ([b"containerd"], [b"v2.2.4"]), "curl: Version over gRPC")
        sound = {"RuntimeReady": (True, ""), "NetworkReady": (True, "")}
        status = lambda: conditions(ask(RUNTIME + "Status"))  # noqa: E731
        tap.equal(status(), sound, "curl: Status")
        tap.equal(ask(RUNTIME + "Nothing")[0], 12, "an unknown method is Unimplemented")
        tap.equal(ask("/runtime.v1alpha2.RuntimeService/Version")[0], 12, "v1alpha2 is gone in containerd 2")
        image = lambda n: len(ask(IMAGE + "ImageStatus", grpcd.pb((1, grpcd.pb((1, n)))))[1])  # noqa: E731
        tap.ok(image("localhost/kubernetes/pause") and not image("nope:1"), "ImageStatus: there, and absent")
        have = containers(ask(RUNTIME + "ListContainers"))
        tap.equal(have.get("aws-node"), (cri.RUNNING, 0), "ListContainers")
        label = grpcd.pb((1, grpcd.pb((4, {"io.kubernetes.container.name": "aws-node"}))))
        tap.equal(list(containers(ask(RUNTIME + "ListContainers", label))), ["aws-node"], "a label selects")
        off = w.cni_absent()
        tap.equal(status()["NetworkReady"], (False, "NetworkPluginNotReady"), "without a conflist the network is not ready")
        off()
        tap.equal(status(), sound, "and is again")
        big = 70000 * "x"
        data = grpcd.pb((1, grpcd.pb((1, big))))
        tap.equal(ask(IMAGE + "ImageStatus", data), (0, b""), "a request of several frames")


def test_host_containerd_real():
    """The real containerd (of the distribution: 1.6) and ours, asked the same."""
    program = shutil.which("containerd")
    if not program:
        tap.skip("containerd", "containerd is not installed")
        return
    with World(containerd="v2") as w:
        d = w.dir + "/real"
        os.makedirs(d + "/net.d")
        with open(d + "/config.toml", "w") as f:
            f.write('version = 2\nroot = "%s/lib"\nstate = "%s/run"\n[grpc]\naddress = "%s/sock"\n[plugins."io.containerd.'
                    'grpc.v1.cri".cni]\nconf_dir = "%s/net.d"\nbin_dir = "%s/bin"\n' % (d, d, d, d, d))
        with open(d + "/log", "wb") as log:
            real = subprocess.Popen(w.node.argv([program, "-c", d + "/config.toml"]), stdout=log, stderr=log)
        try:
            end = time.monotonic() + 10
            while not isinstance(rpc(d + "/sock", RUNTIME + "Version"), tuple) and time.monotonic() < end:
                time.sleep(0.02)
            both = lambda m, b=b"", look=lambda x: x: (  # noqa: E731
                look(rpc(d + "/sock", m, b)), look(rpc(w.cri.server.path, m, b)))
            name = lambda a: a and grpcd.pb_read(a[1])[2]  # noqa: E731
            theirs, ours = both(RUNTIME + "Version", look=name)
            tap.equal(ours, theirs, "Version: the same runtime")
            theirs, ours = both("/runtime.v1alpha2.RuntimeService/Version", look=lambda a: a[0])
            tap.equal(ours, theirs, "v1alpha2 is served alike")
            off = w.cni_absent()
            theirs, ours = both(RUNTIME + "Status", look=conditions)
            tap.equal(ours, theirs, "Status without a conflist")
            raw = [grpcd.pb_read(rpc(x, RUNTIME + "Status")[1])[1] for x in (d + "/sock", w.cri.server.path)]
            tap.equal(raw[1], raw[0], "to the byte")
            off()
            shutil.copy(w.tree.at("etc/cni/net.d/10-aws.conflist"), d + "/net.d")
            end = time.monotonic() + 5
            while conditions(rpc(d + "/sock", RUNTIME + "Status"))["NetworkReady"][0] is False and time.monotonic() < end:
                time.sleep(0.02)
            theirs, ours = both(RUNTIME + "Status", look=conditions)
            tap.equal(ours, theirs, "Status with a conflist")
            absent = grpcd.pb((1, grpcd.pb((1, "nope:1"))))
            theirs, ours = both(IMAGE + "ImageStatus", absent)
            tap.equal(ours, theirs, "ImageStatus of an image that is not there")
            for m in ("/runtime.v1.Nothing/Version", RUNTIME + "Nothing"):
                theirs, ours = both(m)
                tap.equal(ours, theirs, m + " fails alike")
            theirs, ours = both(RUNTIME + "ContainerStatus", grpcd.pb((1, "0123456789")), lambda a: a[0])
            tap.equal(ours, theirs, "ContainerStatus of no container fails alike")
            theirs, ours = both(HEALTH)
            tap.equal(ours, theirs, "grpc.health.v1")
        finally:
            real.terminate()
            real.wait(10)


def quietly(w, *argv):
    """As World.run(), which writes the journal first."""
    return subprocess.run(w.node.argv(w.mounted(list(argv))), text=True, capture_output=True)


def introspection(w, path="/v1/enis"):
    p = quietly(w, "curl", "-sS", "-m", "0.5", "--noproxy", "*", "http://127.0.0.1:61679" + path)
    return json.loads(re.sub(r'"UnassignedTime":"2[^"]*"', '"UnassignedTime":"2"', p.stdout)) if p.returncode == 0 else p.returncode


def test_host_ipamd():
    with World(enis=2, pods=11) as w:
        w._host_settle()
        enis = introspection(w)["0"]
        tap.equal((enis["TotalIPs"], enis["AssignedIPs"], sorted(enis["ENIs"])),
                  (18, 11, sorted(e.eni_id for e in w.enis)), "introspection counts as the world does")
        held = {a for e in enis["ENIs"].values() for c in e["AvailableIPv4Cidrs"].values() for a in c["IPAddresses"]}
        book = json.loads(w.tree.read("var/run/aws-node/ipam.json"))
        tap.equal((held, {a["ipv4"] for a in book["allocations"]}), ({a for e in w.enis for _, a in e.pods},) * 2,
                  "introspection, checkpoint and the world agree on the pods' addresses")
        names = {"eni" + hashlib.sha1(("%(k8sPodNamespace)s.%(k8sPodName)s" % a["metadata"]).encode()).hexdigest()[:11]
                 for a in book["allocations"]}
        links = set(re.findall(r"eni[0-9a-f]{11}", w.node.show("link")))
        tap.equal(names, links, "and each has its host link's name")
        unknown = introspection(w, "/nothing")
        tap.ok("/v1/enis" in unknown["AvailableCommands"], "an unknown path lists what there is")
        path = w.tree.at("var/run/aws-node/ipamd.sock")
        tap.equal(rpc(path, HEALTH), (0, b"\x08\x01"), "grpc.health.v1: serving")
        tap.equal(rpc(path, HEALTH, grpcd.pb((1, "grpc.health.v1.aws-node")))[0], 0, "by its own name too")
        tap.equal(rpc(path, HEALTH, grpcd.pb((1, "nobody")))[0], 5, "and nobody else's")
        comm = {w.tree.read("proc/%s/comm" % p).decode().strip(): p for p in os.listdir(w.tree.at("proc"))
                if p.isdigit()}
        env = w.tree.read("proc/%s/environ" % comm["aws-k8s-agent"]).decode().split("\0")
        tap.ok("WARM_ENI_TARGET=1" in env, "its process and environment", comm)
        start = int(w.tree.read("proc/%s/stat" % comm["aws-k8s-agent"]).decode().rsplit(")", 1)[1].split()[19])
        tap.equal(start, 1800, "its start, in ticks since boot")
        bundles = [json.load(open(os.path.join(d, "config.json"))) for d, _, f in os.walk(w.tree.at(cni.BUNDLES))
                   if "config.json" in f]
        one = [b for b in bundles if b["annotations"]["io.kubernetes.cri.container-name"] == "aws-node"]
        tap.equal(sorted(one[0]["process"]["env"]), sorted(x for x in env if x), "the bundle has the same environment")
        lines = [json.loads(x) for x in w.tree.read(cni.LOGS + "ipamd.log").decode().splitlines()]
        tap.ok(lines[0]["msg"].startswith("Starting L-IPAMD v1.23.0") and [x["ts"] for x in lines] == sorted(
            x["ts"] for x in lines), "ipamd.log begins with its start, in order")
        w.ipamd_log("error", "said now")
        w._host_settle()
        tap.ok(b"said now" in w.tree.read(cni.LOGS + "ipamd.log").splitlines()[-1], "ipamd_log()")
        w.remove_pod(*w.enis[0].pods[0])
        link, address = w.add_pod()
        tap.ok(address in {a["ipv4"] for a in json.loads(w.tree.read(cni.CHECKPOINT))["allocations"]}, "add_pod()")
        w.remove_pod(link, address)
        tap.equal(len(json.loads(w.tree.read(cni.CHECKPOINT))["allocations"]), 10, "remove_pod()")
    with World(cni="v1.19.3", pods=1) as w:
        tap.equal((introspection(w)["AssignedIPs"], here(w, connect, "127.0.0.1", 50051),
                   w.tree.exists("run/aws-node/ipamd.sock")), (1, "connected", False), "VPC CNI 1.19: older shape, a port")
    with World(prefix_mode=True, pods=20) as w:
        first = next(iter(introspection(w)["0"]["ENIs"].values()))["AvailableIPv4Cidrs"]
        tap.equal([(c["Cidr"]["Mask"], c["IsPrefix"]) for c in first.values()], [("////8A==", True)] * 2, "prefixes")
    with World(ipv6=True, pods=2) as w:
        tap.ok(all("ipv6" in a for a in json.loads(w.tree.read(cni.CHECKPOINT))["allocations"]), "IPv6")


def test_imds_planned():
    with World() as w:
        def read(path):
            a = here(w, get, "/latest/" + path)
            return a[2].decode() if a[0] == 200 else a[0]
        role = "meta-data/iam/security-credentials/"
        creds = lambda: json.loads(read(role + w.role))  # noqa: E731
        left = lambda: ends(creds()["Expiration"]) - time.time()  # noqa: E731
        tap.equal((read(role), creds()["Code"], 4 < left() / 3600 < 6), (w.role, "Success", True), "sound credentials")
        data = email.message_from_string(read("user-data"))
        parts = [p.get_content_type() for p in data.walk()]
        tap.equal(parts, ["multipart/mixed", "application/node.eks.aws", "text/x-shellscript"],
                  "user data: Python's MIME parser finds a NodeConfig")
        tap.ok("name: world" in data.get_payload(0).get_payload(), "of this cluster")
        code = lambda: json.loads(read("meta-data/iam/info"))["Code"]  # noqa: E731
        during(w, "no_profile", lambda: (read("meta-data/iam/info"), read(role)), (404, 404))
        during(w, "invalid_profile", lambda: (code(), read(role)), ("InstanceProfileNotFound", 404))
        during(w, "credentials_missing", lambda: (read(role), isinstance(read(role + w.role), int)), (w.role, True))
        during(w, "credentials_refused", lambda: creds()["Code"], "AssumeRoleUnauthorizedAccess")
        during(w, "expired_credentials", lambda: left() < 0, True)
        during(w, "credentials_rotated", lambda: left() > 5.9 * 3600, True)
        during(w, "role_replaced", lambda: (read(role), isinstance(read(role + w.role), int)), ("another-role", True))
        planned = "meta-data/events/"
        during(w, "spot_interruption", lambda: read("meta-data/spot/instance-action"),
               lambda x: json.loads(x)["action"] == "terminate" and 100 < ends(json.loads(x)["time"]) - time.time() < 111)
        during(w, "rebalance_recommended", lambda: read(planned + "recommendations/rebalance"),
               lambda x: "noticeTime" in json.loads(x))
        during(w, "maintenance_scheduled", lambda: len(json.loads(read(planned + "maintenance/scheduled"))), 1)
        during(w, "termination_pending", lambda: read("meta-data/autoscaling/target-lifecycle-state"), "Terminated")


def ends(text):
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


UNITS = ("kubelet.service", "containerd.service", "nodeadm-config.service", "nodeadm-run.service", "cloud-final.service",
         "systemd-networkd.service", "nm-cloud-setup.service", "sandbox-image.service")


def node_state(w):
    """What software that is not ours sees of the node: busctl, curl, ip, and the files."""
    listed = bus(w, "call", units.NAME, units.PATH, units.MANAGER, "ListUnitsByNames", "as", str(len(UNITS)), *UNITS)
    p = quietly(w, "curl", "-sS", "-m", "0.3", "--noproxy", "*", "http://127.0.0.1:10248/healthz")
    files = {}
    for top in ("etc", "opt", "proc", "run", "usr", "sys", "var/lib", "var/log"):
        for d, _, names in os.walk(w.tree.at(top)):
            for n in names:
                path = os.path.join(d, n)
                if os.path.isfile(path) and "journal" not in path and not path.endswith(("uptime", ".log", "~")):
                    files[os.path.relpath(path, w.root)] = open(path, "rb").read()
    unit = {u[0]: tuple(u[2:5]) for u in json.loads(listed)["data"][0]} if listed[:1] == "{" else {}
    return {"units": unit, "healthz": p.stdout or p.returncode, "files": files,
            "cri": conditions(rpc(w.cri.server.path, RUNTIME + "Status", timeout=0.3)),
            "containers": containers(rpc(w.cri.server.path, RUNTIME + "ListContainers", timeout=0.3)),
            "images": sorted(w.cri.images), "agent": here(w, connect, "127.0.0.1", 8163), "ipamd": introspection(w), "rules": w.node.show("rule"),
            "routes": sorted(w.node.show("route", "show", "table", "all").splitlines()),
            "links": [x for x in w.node.show("-o", "link").split() if x.count(":") == 5],
            "forward": here(w, lambda: open("/proc/sys/net/ipv4/ip_forward").read().strip()),
            "strict": here(w, lambda: open("/proc/sys/net/ipv4/conf/%s/rp_filter" % w.enis[0].name).read().strip()),
            "user-data": status(here(w, get, "/latest/user-data"))}


def said(w, where):
    """What was said: by journalctl, or in a log of the CNI as JSON."""
    if where == "journal":
        return "\n".join(x["MESSAGE"] if isinstance(x["MESSAGE"], str) else bytes(x["MESSAGE"]).decode()
                         for x in journalctl(w))
    log = cni.LOGS + where
    return "\n".join(json.loads(x)["msg"] for x in w.tree.read(log).decode().splitlines()) if w.tree.exists(log) else ""


shared = {}     # options -> a World that faults come and go in, one after another


def world_for(options, fresh):
    if fresh:
        return World(**options)
    key = repr(sorted(options.items()))
    if key not in shared:
        shared[key] = World(**options).__enter__()
        shared[key]._host_settle()
    return contextlib.nullcontext(shared[key])


def breaks(name, changes, says=(), world=None, args=(), kwargs=None, silent=()):
    """The fault: changes is {part of node_state(): what it must be}; says is (where, text) pairs that are new; undo
    brings all back. silent: pairs that must not be said; for these the World is a fresh one, whose boot nobody has
    read yet."""
    tested.add(name)
    label = name + "()"
    with world_for(world or {}, bool(silent)) as w:
        before = node_state(w)
        heard = {} if silent else {where: len(said(w, where)) for where, _ in says}
        undo = getattr(w, name)(*args, **(kwargs or {}))
        w._host_settle()
        now = node_state(w)
        for part, want in changes.items():
            got = now[part]
            good = want(got) if callable(want) else got == want
            tap.ok(good and got != before[part], "%s: %s" % (label, part), "got %.600r" % (got,), "before %.300r" % (
                before[part],))
        for where, text in says:
            got = said(w, where)[heard.get(where, 0):]
            tap.ok(text in got, "%s says so in %s" % (label, where), got[-800:])
        for where, text in silent:
            tap.ok(text not in said(w, where), "%s: %r is not said" % (label, text))
        undo()
        after = node_state(w)
        if changes:
            wrong = {k: [x for x in set(after[k]) | set(before[k]) if after[k].get(x) != before[k].get(x)] if k == "files"
                     else (after[k], before[k]) for k in before if after[k] != before[k]}
            tap.ok(not wrong, label + " heals", "%.900r" % wrong)


def lacks(*names):
    return lambda files: not any(n in files for n in names)


def unit_is(name, *state):
    return lambda u: u[name] == state


CONF = "etc/cni/net.d/10-aws.conflist"
CA = "etc/kubernetes/pki/ca.crt"
DEAD, FAILED = ("loaded", "inactive", "dead"), ("loaded", "failed", "failed")


def test_node_bootstrap():
    never = lacks(CONF, "var/lib/kubelet/kubeconfig", "etc/containerd/config.toml", "run/aws-node/ipam.json")
    for name, error in (("nodeadm_failed", "context deadline exceeded"),
                        ("node_config_incomplete", "Apiserver endpoint is missing"), ("nodeadm_throttled", "RequestLimitExceeded"),
                        ("user_data_without_config", "could not find NodeConfig"),
                        ("user_data_bootstrap_sh", "bootstrap.sh has been removed")):
        breaks(name, {"units": lambda u: (u["nodeadm-config.service"], u["nodeadm-run.service"], u["kubelet.service"]) == (
                          FAILED, DEAD, DEAD) and (u["cloud-final.service"] == FAILED) == (name == "user_data_bootstrap_sh"),
                      "healthz": 7, "cri": "curl 7", "ipamd": 7, "files": never},
               [("journal", error), ("journal", "nodeadm-config.service: Failed with result 'exit-code'")],
               silent=[("journal", "Successfully registered"), ("journal", "Started kubelet"), ("journal", "Started nodeadm")])
    breaks("nodeadm_failed", {"units": lambda u: (u["nodeadm-config.service"], u["nodeadm-run.service"]) == (DEAD, FAILED),
                              "healthz": 7, "ipamd": 7}, [("journal", "it broke")], args=("it broke", "nodeadm-run.service"))
    breaks("user_data", {"user-data": 404}, args=(None,))
    for missing in (False, True):
        breaks("cluster_ca_empty", {"files": lambda f: f.get(CA) == (None if missing else b""), "healthz": 7},
               [("journal", "unable to load client CA file")], kwargs={"missing": missing})


def test_node_kubelet():
    looping = unit_is("kubelet.service", "loaded", "activating", "auto-restart")
    breaks("kubelet_config_invalid", {"units": looping, "healthz": 7}, [("journal", "failed to load Kubelet config file")])
    breaks("unit_proxy", {"files": lambda f: b"10.0.9.9" in f.get(
        "etc/systemd/system/kubelet.service.d/environment.conf", b"")})
    with World() as w:
        w.unit_proxy("http://10.0.9.9:3128", "localhost")
        tap.equal(unit_says(w, "kubelet.service", "Environment")[0][-1], "NO_PROXY=localhost", "unit_proxy(): Environment")
    breaks("kubelet_stopped", {"units": unit_is("kubelet.service", *DEAD), "healthz": 7}, [("journal", "Stopped kubelet")])
    breaks("kubelet_forgotten", {"units": unit_is("kubelet.service", *DEAD), "healthz": 7}, [("journal", "Stopped kubelet")])
    unregistered = {"files": lacks(CONF, "run/aws-node/ipam.json"), "ipamd": 7}
    for name, text in (("kubelet_unauthorized", 'err="Unauthorized"'), ("kubelet_forbidden", "is not allowed to modify node"),
                       ("kubelet_nameless", 'User \\"system:node:\\"'),
                       ("kubelet_exec_plugin_fails", "executable aws failed with exit code 255")):
        breaks(name, unregistered, [("journal", text)], silent=[("journal", "Successfully registered")])
    breaks("kubelet_api_timeout", {}, [("journal", "i/o timeout")])
    breaks("pleg_unhealthy", {"cri": "curl 28", "files": lambda f: b" D " in f.get("proc/3301/stat", b"")},
           [("journal", "last seen active 3m1.4s ago")])


def test_node_runtime():
    breaks("containerd_down", {"units": unit_is("containerd.service", *FAILED), "cri": "curl 7"},
           [("journal", "failed to load TOML"), ("journal", "connection refused")])
    breaks("containerd_hung", {"cri": "curl 28"}, [("journal", "DeadlineExceeded")])
    breaks("cri_unimplemented", {"cri": lambda c: c == (12, b"")}, [("journal", "failed to load plugin io.containerd.grpc")])
    breaks("network_not_ready", {"cri": lambda c: c["NetworkReady"] == (False, "NetworkPluginNotReady")})
    breaks("pause_image_missing", {"files": lambda f: b"eks/pause:3.5" in f["etc/containerd/config.toml"]},
           [("journal", "failed to get sandbox image")])
    for status_, text in ((401, "no basic auth credentials"), (403, "403 Forbidden")):
        breaks("image_pull_denied", {}, [("journal", text)], args=(status_,))
    for options, text in (({}, "layer-bucket.s3.us-west-2.amazonaws.com"), ({"containerd": "v2"}, "/v2/app/blobs/sha256:")):
        breaks("image_layers_denied", {}, [("journal", text)], world=options)
    breaks("sandbox_image_unit_failed", {"units": lambda u: (u["sandbox-image.service"], u["kubelet.service"]) == (
        FAILED, DEAD), "images": lambda i: cri.PAUSE not in i}, [("journal", "Dependency failed for Kubernetes Kubelet")],
        world={"al2": True, "containerd": "v2"})


def test_node_aws_node():
    loop = {"containers": lambda c: c["aws-node"][0] == cri.EXITED and c["aws-node"][1] >= 3, "ipamd": 7,
            "files": lacks(CONF, "proc/2410/comm")}
    breaks("aws_node_absent", {"containers": lambda c: "aws-node" not in c, "files": lacks(CONF), "ipamd": 7},
           [("journal", "cni plugin not initialized")])
    breaks("ipamd_down", {"ipamd": 7, "files": lambda f: CONF in f and "proc/2410/comm" not in f})
    breaks("ipamd_silent", {"ipamd": 28})
    breaks("aws_node_crash_loop", loop, [("journal", "back-off 2m40s")])
    breaks("aws_node_probe_killed", loop, [("journal", "failed liveness probe")])
    breaks("nodeagent_crash_loop", {"containers": lambda c: c["aws-eks-nodeagent"] == (cri.EXITED, 6)
                                    and c["aws-node"] == (cri.RUNNING, 0), "agent": "ECONNREFUSED"}, [("network-policy-agent.log", "bpffs")],
           kwargs={"bpffs": True})
    breaks("ipamd_unauthorized", loop, [("ipamd.log", "ec2:DescribeSubnets"), ("ipamd.log", "UnauthorizedOperation")],
           args=("DescribeSubnets",))
    breaks("ipamd_api_server_unreachable", {"ipamd": 7, "files": lacks(CONF)}, [("ipamd.log", "Unable to reach API Server")])
    breaks("eniconfig_missing", loop, [("ipamd.log", "No ENIConfig could be found")],
           world={"custom_networking": True, "enis": 2})
    breaks("ipamd_unknown_type", loop, [("ipamd.log", "unknown instance type")])
    breaks("ipamd_identity_silent", {"ipamd": 7, "files": lambda f: b"\0AWS_ROLE_ARN=" in f["proc/2410/environ"]},
           [("ipamd.log", "Starting L-IPAMD")])
    breaks("ipamd_refused_call", {}, [("ipamd.log", "not authorized to perform: ec2:CreateNetworkInterface")])
    breaks("policy_agent_forbidden", {}, [("network-policy-agent.log", "policyendpoints.networking.k8s.aws is forbidden")])
    breaks("cni_setting", {"files": lambda f: b"\0WARM_IP_TARGET=2\0" in f["proc/2410/environ"]},
           args=("WARM_IP_TARGET", "2"))


def test_node_left_over():
    with World() as w:
        conf = w.tree.at(CONF)
        age = lambda: quietly(w, "find", conf, "!", "-newermt", "@%d" % w.wall(0)).stdout.split()  # noqa: E731
        during(w, "cni_config_left_over", age, [conf], sound=[])


def test_node_addresses():
    refused = [("plugin.log", "Failed to assign an IP address to container")]
    full = {"enis": 3, "pods": 27}
    for name, text, world in (
            ("subnet_exhausted", "InsufficientFreeAddressesInSubnet", {"enis": 1, "pods": 9}),
            ("subnet_fragmented", "InsufficientCidrBlocks", {"prefix_mode": True, "pods": 32}),
            ("eni_limit_reached", "max ENI limit is already reached", full),
            ("eni_quota_reached", "NetworkInterfaceLimitExceeded", {"pods": 9}),
            ("eni_attach_failed", "AttachmentLimitExceeded", {"pods": 9})):
        breaks(name, {}, refused + [("ipamd.log", text)], world=world)
    breaks("address_cooldown", {"ipamd": lambda x: sum(len(c["IPAddresses"]) for e in x["0"]["ENIs"].values() for c in
                                                       e["AvailableIPv4Cidrs"].values()) == 9}, refused, {"pods": 5})
    breaks("trunk_missing", {"files": lambda f: b"ENABLE_POD_ENI=true" in f["proc/2410/environ"]},
           [("ipamd.log", "No slot available for a trunk ENI")])
    breaks("prefix_unsupported", {"files": lambda f: b"PREFIX_DELEGATION=true" in f["proc/2410/environ"]},
           [("ipamd.log", "not supported on non-nitro")])
    breaks("allocations_lost", {"files": lambda f: len(json.loads(f["run/aws-node/ipam.json"])["allocations"]) == 2},
           [("ipamd.log", "uses unknown IP Address")], {"pods": 4})


def test_node_kernel():
    def holds(name, text):
        return {"files": lambda f: text in f[name]}
    breaks("memory_starved", holds("proc/pressure/memory", b"full avg10=46.00"))
    breaks("disk_stalled", holds("proc/stat", b"procs_blocked 37"))
    breaks("threads_exhausted", holds("proc/loadavg", b"/61010 "))
    breaks("files_exhausted", holds("proc/sys/fs/file-nr", b"99120"))
    with World() as w:
        findmnt = lambda: quietly(w, "findmnt", "--fstab", "-n", "-o", "TARGET", "-F", w.tree.at("etc/fstab")).stdout.split()  # noqa: E731
        during(w, "data_volume_missing", findmnt, ["/", "/var/lib/containerd"], sound=["/", "/boot/efi"])
        def mounted(*more):
            return quietly(w, "findmnt", "-F", w.tree.at("proc/1/mountinfo"), "-n", "-r", "-o", "TARGET", *more).stdout.split()
        during(w, "bpffs_missing", mounted, ["/", "/proc", "/sys", "/run"], sound=["/", "/proc", "/sys", "/sys/fs/bpf", "/run"])

        def column(path, name):
            """Whether the sum of a column of all processors rises."""
            def rows():
                head, *lines = w.tree.read(path).decode().splitlines()
                return sum(int(x.split()[head.split().index(name)], 16) for x in lines)
            first = rows()
            time.sleep(.2)
            return rows() > first
        during(w, "conntrack_full", lambda: column("proc/1/net/stat/nf_conntrack", "drop"), True, sound=False)
        during(w, "neighbours_full", lambda: column("proc/1/net/stat/arp_cache", "table_fulls"), True, sound=False)

    with World() as w:
        tail = lambda: quietly(w, "timeout", "0.2", "tail", "-F", w.tree.at("etc/fstab")).stderr.strip()  # noqa: E731
        during(w, "inotify_limit", tail, lambda x: "inotify" in x and "Too many open files" in x, sound="")
        during(w, "inotify_limit", tail, lambda x: "inotify resources exhausted" in x, "watches", sound="")
        during(w, "inotify_limit", tail, lambda x: "polling" in x, "instances", 0, sound="")
        w.as_the_unit()
        tap.equal(quietly(w, "sh", "-c", "id -u; id -G; grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status").stdout.split(),
                  ["65534", "65534", "0"] + [y for x in "Inh Prm Eff Bnd Amb".split() for y in (
                      "Cap%s:" % x, "0000000000000004")], "as_the_unit()")

    with World() as w:
        kubelet, containerd = w.tree.at("var/lib/kubelet"), w.tree.at("var/lib/containerd")
        w.tree.mkdir("var/lib/containerd")

        def df(what, path):
            return int(quietly(w, "df", "--output=" + what, path).stdout.split()[-1].rstrip("%"))
        free = quietly(w, "ls", kubelet).stdout
        during(w, "disk_full", lambda: df("size", kubelet) == 65536 and df("pcent", kubelet), lambda n: 92 <= n <= 94)
        during(w, "disk_full", lambda: (df("size", containerd) == 65536, df("size", containerd) == 65536 and df("avail", containerd)),
               (True, 0), "/var/lib/containerd", 100)
        during(w, "inodes_exhausted", lambda: df("itotal", kubelet) == 2000 and (df("ipcent", kubelet), df("pcent", kubelet)),
               lambda x: x[0] >= 98 and x[1] <= 1)
        touch = lambda: quietly(w, "touch", containerd + "/x").stderr.strip().rsplit(": ")[-1]  # noqa: E731
        during(w, "disk_read_only", touch, "Read-only file system", sound="")
        during(w, "disk_read_only", lambda: mounted("-O", "ro"), ["/var/lib/containerd"], sound=[])
        lines = w.wtmp(("boot", 90000), ("shutdown", 4000), ("boot", 300))
        said = quietly(w, "last", "-x", "-f", w.tree.at("var/log/wtmp")).stdout
        tap.equal([x.split()[0] for x in said.splitlines() if "wtmp" not in x and x], ["reboot", "shutdown", "reboot"],
                  "last reads wtmp") if shutil.which("last") else tap.skip("wtmp", "there is no last")
        lines()
        undo = w.disk_full()
        tap.ok(set(free.split()) <= set(quietly(w, "ls", kubelet).stdout.split()), "what lay there is on the disk", free)
        undo()


def test_node_network():
    two = {"enis": 2, "pods": 11}
    breaks("rules_flushed", {"rules": lambda r: "512:" not in r and "1536:" not in r and "32765:" in r}, world=two)
    breaks("pod_routes_flushed", {"routes": lambda r: not any(re.match(r"^10\.0\.32\.\d+ dev eni", x) for x in r)}, world=two)
    breaks("networkd_took_eni", {"routes": lambda r: any(x.startswith("default via 10.0.1.1 dev ens6 proto dhcp") for x in r),
                                 "rules": lambda r: "512:" not in r}, [("journal", "ens6: DHCPv4 address")], world=two)
    breaks("nm_cloud_setup", {"rules": lambda r: "lookup 30400" in r, "units": unit_is("nm-cloud-setup.service", *DEAD)})
    breaks("two_default_routes", {"routes": lambda r: sum(x.startswith("default") and "metric 512" in x for x in r) == 2},
           world=two)
    breaks("eni_unconfigured", {"rules": lambda r: "32765:" not in r, "routes": lambda r: not any(
        x.startswith("default") and "dev ens6" in x for x in r)}, world={"enis": 2})
    breaks("eni_unmanaged", {"ipamd": lambda x: len(x["0"]["ENIs"]) == 1, "rules": lambda r: "32765:" not in r},
           world={"enis": 2})
    tested.add("eni_gone")
    with World(**two) as w:
        macs = lambda: here(w, get, "/latest/meta-data/network/interfaces/macs/")[2].decode()  # noqa: E731
        e, before = w.enis[1], (node_state(w)["links"], macs())
        w.eni_gone()
        tap.ok(e.mac in before[0] and e.mac in before[1] and e.mac not in node_state(w)["links"] and e.mac not in macs()
               and w.node.show("rule").count("1536:") > 0, "eni_gone(): kernel and metadata, not its pods' rules", before)
    with World(ipv6=True) as w:
        during(w, "no_ipv6_address", lambda: w.enis[0].ipv6 in w.node.show("-6", "addr"), False, sound=True)
    breaks("ip_forward_off", {"forward": "0"})
    breaks("rp_filter_strict", {"strict": "1"})
    breaks("selinux_enforcing", {"files": lambda f: f.get("sys/fs/selinux/enforce") == b"1"}, [("journal", "avc:  denied")])
    tested.add("mac_policy_persistent")
    with World(pods=2) as w:
        before = node_state(w)["links"]
        w.mac_policy_persistent()
        tap.ok(node_state(w)["links"] != before and "02:aa:bb:cc:00:01" in node_state(w)["links"], "mac_policy_persistent()")


def signed(w, service, query):
    """What curl, which signs with the credentials that metadata gives, is answered: codes, accounts, counts."""
    keys = json.loads(here(w, get, "/latest/meta-data/iam/security-credentials/" + w.role)[2])
    host = "%s.%s.amazonaws.com" % (service, w.region)
    p = quietly(w, "curl", "-sS", "-m", "5", "--noproxy", "*", "--cacert", w.certs + "/ca.pem", "--resolve",
                "%s:443:%s" % (host, w.endpoints[service][0]), "--aws-sigv4", "aws:amz:%s:%s" % (w.region, service),
                "--user", "%s:%s" % (keys["AccessKeyId"], keys["SecretAccessKey"]),
                "-H", "X-Amz-Security-Token: " + keys["Token"], "-d", query, "https://%s/" % host)
    return re.findall(r"<(?:Code|Account|availableIpAddressCount)>([^<]*)<", p.stdout) or p.returncode


def test_signed_calls():
    with World(enis=2) as w:
        subnet = "Action=DescribeSubnets&SubnetId.1=%s&Version=2016-11-15" % w.enis[1].subnet_id
        subnets = lambda: signed(w, "ec2", subnet)  # noqa: E731
        during(w, "ec2_subnet_free", subnets, ["7"], 1, 7, sound=["180"])
        during(w, "ec2_denied", subnets, ["UnauthorizedOperation"])
        during(w, "ec2_throttled", subnets, ["RequestLimitExceeded"])
        caller = lambda: signed(w, "sts", "Action=GetCallerIdentity&Version=2011-06-15")  # noqa: E731
        during(w, "sts_refuses", caller, ["InvalidClientTokenId"], sound=[w.account])
        during(w, "endpoint_policy_denies", caller, ["AccessDenied"])
        during(w, "clock_wrong", caller, ["SignatureDoesNotMatch"], -4000)
        during(w, "clock_ahead", caller, ["SignatureDoesNotMatch"], 4000)


STAND_IN = r"""#!/usr/bin/env python3
# Says what a daemon says, so that the harness can be looked at without one.
import array, os, signal, socket, struct, sys, time
assert sys.argv[1:3] == ["run", "--root"], sys.argv
root = sys.argv[3]
n = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
n.connect(os.environ["NOTIFY_SOCKET"])
j = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
j.connect("/run/systemd/journal/socket")
def stop(*a):
    n.send(b"STOPPING=1")
    sys.exit(7)
signal.signal(signal.SIGTERM, stop)
j.send(b"MESSAGE=small\nPRIORITY=6\n")
j.send(b"MESSAGE\n" + struct.pack("<Q", 9) + b"two\nlines\nPRIORITY=5\n")
fd = os.memfd_create("entry", os.MFD_ALLOW_SEALING)
os.write(fd, b"MESSAGE=" + b"x" * 300000 + b"\n")
j.sendmsg([], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
with open(root + "/run/nodewhy/status.json", "w") as f:
    f.write('{"verdict": {"state": "healthy", "root": null}}')
n.send(b"READY=1\nSTATUS=watchdog %s" % os.environ["WATCHDOG_USEC"].encode())
while True:
    time.sleep(60)
"""


def test_daemon_harness():
    with World() as w:
        path = w.dir + "/stand-in"
        with open(path, "w") as f:
            f.write(STAND_IN)
        os.chmod(path, 0o755)
        w.binary = lambda: path
        d = w.daemon(watchdog=3)
        d.wait_notified("READY=1", timeout=5)
        tap.ok(any(x == "STATUS=watchdog 3000000" for _, x in d.notified), "notify socket, watchdog",
               d.notified)
        tap.ok(d.wait_state("healthy", timeout=2), "status.json is waited for")
        d.wait_journal("a large entry", timeout=2, MESSAGE="x" * 300000)
        tap.equal([e["MESSAGE"][:9] for e in d.journal], ["small", "two\nlines", "x" * 9],
                  "journal: a line, a binary field, a memfd")
        tap.equal(d.journal[1]["PRIORITY"], "5", "journal: the field after a binary one")
        try:
            d.wait_root("Nothing", timeout=0.05)
            tap.ok(False, "a wait ends")
        except TimeoutError as e:
            tap.ok("root Nothing" in str(e) and "healthy" in str(e), "a wait that fails says what was")
        before = w.tree.read("proc/uptime")
        d._ticked = 0.0
        d.poll()
        tap.ok(w.tree.read("proc/uptime") != before, "the tree's uptime goes on")
        tap.equal(d.stop(), 7, "stop() gives the exit status")
        tap.ok(any(x == "STOPPING=1" for _, x in d.notified), "what was said last is not lost")
        d = w.daemon(watchdog=3)
        pid = d.process.pid
        d.wait_notified("READY=1", timeout=5)
    tap.ok(not net.alive(pid), "a daemon ends with its world")


def test_journal_parser():
    good = b"MESSAGE=hello\nPRIORITY=3\nBLOB\n" + struct.pack("<Q", 5) + b"a\nb=c\n"
    tap.equal(parse_native(good), [("MESSAGE", b"hello"), ("PRIORITY", b"3"), ("BLOB", b"a\nb=c")],
              "journal native protocol")
    for bad in (b"message=lower\n", b"BLOB\n\x05", b"BLOB\n" + struct.pack("<Q", 99) + b"abc\n", b"NO"):
        try:
            parse_native(bad)
            tap.ok(False, "refuses %r" % bad)
        except ValueError:
            tap.ok(True, "refuses %r" % bad)


def main():
    if os.geteuid() != 0:
        tap.skip("the world", "needs root for network namespaces")
        return tap.done()
    began = time.monotonic()
    for name, test in sorted(globals().items()):
        if name.startswith("test_") and (len(sys.argv) < 2 or sys.argv[1] in name):
            print("# " + name)
            test()
            for w in shared.values():
                w.close()
            shared.clear()
    if len(sys.argv) < 2:
        tap.equal(sorted(set(faults()) - tested), [], "every fault was proved")
        tap.equal([t.name for t in threading.enumerate() if "Timer" in t.name], [], "no timer is left")
        tap.equal([n for n in net_names() if net.owner(n) == os.getpid()], [], "no namespace is left")
    print("# %.1f s" % (time.monotonic() - began))
    return tap.done()


def net_names():
    return os.listdir("/run/netns") if os.path.isdir("/run/netns") else []


if __name__ == "__main__":
    sys.exit(main())
