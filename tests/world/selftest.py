#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves the world itself: each fault has, on plain sockets, the effect that its docstring promises."""

import base64
import errno
import json
import os
import re
import signal
import socket
import ssl
import stat
import struct
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from world import World, apiserver, control, dnsd, faults, net, tlsd  # noqa: E402
from world.daemon import parse_native  # noqa: E402
from world.tap import Tap  # noqa: E402
from world.world import IMDS4, IMDS6, LINK_DNS, STUB, VPC_DNS  # noqa: E402

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
