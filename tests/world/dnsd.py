# SPDX-License-Identifier: Apache-2.0
"""DNS servers of a world: the VPC resolver, custom resolvers, a loopback stub."""

import socket
import struct
import threading
import time

from . import serve

NOERROR, SERVFAIL, NXDOMAIN, REFUSED = 0, 2, 3, 5
A, CNAME, SOA, AAAA = 1, 5, 6, 28


def encode_name(name):
    return b"".join(bytes([len(x)]) + x.encode() for x in name.rstrip(".").split(".")) + b"\0"


def decode_name(packet, at):
    labels = []
    while packet[at]:
        n = packet[at]
        labels.append(packet[at + 1:at + 1 + n].decode("latin-1"))
        at += n + 1
    return ".".join(labels), at + 1


class Zone:
    """What is true: name -> {"A": [...], "AAAA": [...], "CNAME": name}. Shared by all servers."""

    def __init__(self):
        self.names = {}


class Server:
    """One resolver on one address; its faults are its own."""

    def __init__(self, servers, zone, address):
        self.servers, self.zone, self.address = servers, zone, address
        self.queries = []       # (monotonic, "udp"|"tcp", name, type)
        self.rcode = None       # answered to every query
        self.silent = False     # reads and says nothing
        self.delay = 0.0
        self.truncate = False   # over UDP: TC and no records
        self.by_name = {}       # name -> rcode, or "nodata", "drop"
        self.garbage = False
        self._sockets = []

    def open(self):
        """In the right namespace: binds UDP and TCP."""
        u, t = serve.bind_udp(self.address, 53), serve.listen_tcp(self.address, 53)
        self._sockets = [u, t]
        self.servers.add(u, self.datagram)
        self.servers.add(t, self.stream)

    def close(self):
        for s in self._sockets:
            self.servers.remove(s)
        self._sockets = []

    def datagram(self, sock):
        query, peer = sock.recvfrom(4096)
        reply = self.reply(query, "udp")
        if reply is None:
            return
        if self.delay:
            t = threading.Timer(self.delay, self._send, (sock, reply, peer))
            t.daemon = True
            t.start()
        else:
            self._send(sock, reply, peer)

    @staticmethod
    def _send(sock, reply, peer):
        try:
            sock.sendto(reply, peer)
        except OSError:
            pass

    def stream(self, conn):
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with conn.makefile("rb") as f:
            while True:
                head = f.read(2)
                if len(head) < 2:
                    return
                reply = self.reply(f.read(struct.unpack("!H", head)[0]), "tcp")
                if reply is None:
                    self.servers.hold(conn)
                    return
                if self.delay:
                    time.sleep(self.delay)
                conn.sendall(struct.pack("!H", len(reply)) + reply)

    def reply(self, query, over):
        if len(query) < 17 or query[2] & 0x80:
            return None
        ident, flags, _, _, _, _ = struct.unpack("!6H", query[:12])
        name, at = decode_name(query, 12)
        kind, _ = struct.unpack("!2H", query[at:at + 4])
        question = query[12:at + 4]
        name = name.lower()
        self.queries.append((time.monotonic(), over, name, kind))
        special = self.by_name.get(name)
        if self.silent or special == "drop":
            return None
        if self.garbage:
            return struct.pack("!H", ident) + b"\x81\x80" + b"\xff" * 40
        rcode, answers = self.find(name, kind)
        if special == "nodata":
            rcode, answers = NOERROR, []
        elif special is not None:
            rcode, answers = special, []
        if self.rcode is not None:
            rcode, answers = self.rcode, []
        out = 0x8080 | (flags & 0x0100) | rcode
        if self.truncate and over == "udp":
            out, answers = out | 0x0200, []
        return struct.pack("!6H", ident, out, 1, len(answers), 0, 0) + question + b"".join(answers)

    def find(self, name, kind):
        answers, owner = [], b"\xc0\x0c"
        for _ in range(8):
            record = self.zone.names.get(name)
            if record is None:
                return NXDOMAIN, answers
            if "CNAME" not in record:
                break
            target = encode_name(record["CNAME"])
            answers.append(owner + struct.pack("!2HIH", CNAME, 1, 60, len(target)) + target)
            name, owner = record["CNAME"], target
        family, key = (socket.AF_INET, "A") if kind == A else (socket.AF_INET6, "AAAA")
        if kind in (A, AAAA):
            for text in record.get(key, ()):
                data = socket.inet_pton(family, text)
                answers.append(owner + struct.pack("!2HIH", kind, 1, 60, len(data)) + data)
        return NOERROR, answers
