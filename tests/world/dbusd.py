# SPDX-License-Identifier: Apache-2.0
"""D-Bus on a socket: the wire format of the specification, one connection, and what an object needs.

Little: no file descriptors, no own bus. Where many talk to each other, a real dbus-daemon is
between them (units.py)."""

import os
import socket
import struct
import threading

CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
_ALIGN = dict(y=1, b=4, n=2, q=2, i=4, u=4, x=8, t=8, d=8, s=4, o=4, g=1, a=4, v=1)
_ALIGN.update({"(": 8, "{": 8})
_PACK = {"y": "B", "n": "h", "q": "H", "i": "i", "u": "I", "x": "q", "t": "Q", "d": "d", "b": "I"}
_FIELDS = {1: "path", 2: "interface", 3: "member", 4: "error", 5: "reply_to", 6: "destination",
           7: "sender", 8: "signature"}
_FIELD_TYPES = dict(path="o", interface="s", member="s", error="s", reply_to="u", destination="s",
                    sender="s", signature="g")
DBUS, PROPERTIES = "org.freedesktop.DBus", "org.freedesktop.DBus.Properties"
LONGEST = 1 << 24


def complete(signature):
    """The first complete type of a signature, and the rest."""
    c = signature[0]
    if c == "a":
        first, rest = complete(signature[1:])
        return c + first, rest
    if c in "({":
        depth = 0
        for i, x in enumerate(signature):
            depth += (x in "({") - (x in ")}")
            if depth == 0:
                return signature[:i + 1], signature[i + 1:]
        raise ValueError("unbalanced signature")
    if c not in _ALIGN:
        raise ValueError("unknown type %r" % c)
    return c, signature[1:]


def types(signature):
    out = []
    while signature:
        first, signature = complete(signature)
        out.append(first)
    return out


class Writer:
    def __init__(self):
        self.data = bytearray()

    def align(self, n):
        self.data += b"\0" * (-len(self.data) % n)

    def put(self, signature, *values):
        for t, v in zip(types(signature), values, strict=True):
            self.one(t, v)
        return self

    def one(self, t, v):
        c = t[0]
        self.align(_ALIGN[c])
        if c in _PACK:
            self.data += struct.pack("<" + _PACK[c], v)
        elif c in "so":
            b = v.encode()
            self.data += struct.pack("<I", len(b)) + b + b"\0"
        elif c == "g":
            self.data += bytes([len(v)]) + v.encode() + b"\0"
        elif c == "v":
            self.one("g", v[0])
            self.one(v[0], v[1])
        elif c == "a":
            at = len(self.data)
            self.data += b"\0\0\0\0"
            self.align(_ALIGN[t[1]])
            start = len(self.data)
            for x in v.items() if isinstance(v, dict) else v:
                self.one(t[1:], x)
            struct.pack_into("<I", self.data, at, len(self.data) - start)
        else:
            for inner, x in zip(types(t[1:-1]), v, strict=True):
                self.one(inner, x)


class Reader:
    def __init__(self, data, order="<", at=0):
        self.data, self.order, self.at = data, order, at

    def take(self, n):
        if self.at + n > len(self.data):
            raise ValueError("message is cut")
        b = self.data[self.at:self.at + n]
        self.at += n
        return b

    def align(self, n):
        self.take(-self.at % n)

    def get(self, signature):
        return [self.one(t) for t in types(signature)]

    def one(self, t):
        c = t[0]
        self.align(_ALIGN[c])
        if c in _PACK:
            v, = struct.unpack(self.order + _PACK[c], self.take(struct.calcsize(_PACK[c])))
            return bool(v) if c == "b" else v
        if c in "so":
            v = self.take(self.one("u")).decode()
            self.take(1)
            return v
        if c == "g":
            v = self.take(self.one("y")).decode()
            self.take(1)
            return v
        if c == "v":
            inner = self.one("g")
            return inner, self.one(inner)
        if c == "a":
            n = self.one("u")
            self.align(_ALIGN[t[1]])
            end, out = self.at + n, []
            while self.at < end:
                out.append(self.one(t[1:]))
            return dict(out) if t[1] == "{" else out
        return tuple(self.get(t[1:-1]))


class Message:
    def __init__(self, kind, serial=0, flags=0, body=(), **fields):
        self.kind, self.serial, self.flags, self.body = kind, serial, flags, list(body)
        for name in _FIELD_TYPES:
            setattr(self, name, fields.get(name))

    def pack(self):
        body = Writer().put(self.signature or "", *self.body).data
        fields = [(n, (_FIELD_TYPES[name], getattr(self, name))) for n, name in _FIELDS.items()
                  if getattr(self, name) is not None]
        w = Writer().put("yyyyuua(yv)", ord("l"), self.kind, self.flags, 1, len(body), self.serial,
                         fields)
        w.align(8)
        return bytes(w.data + body)


def read_message(f):
    head = f.read(16)
    if len(head) < 16:
        return None
    order = {ord("l"): "<", ord("B"): ">"}[head[0]]
    n_body, serial, n_fields = struct.unpack(order + "III", head[4:])
    if n_body > LONGEST or n_fields > LONGEST:
        raise ValueError("message is too long")
    data = head + f.read(n_fields + -n_fields % 8 + n_body)
    r = Reader(data, order, 12)
    fields = {_FIELDS[k]: v[1] for k, v in r.one("a(yv)") if k in _FIELDS}
    r.align(8)
    m = Message(head[1], serial, head[2], **fields)
    m.body = r.get(m.signature or "")
    return m


class Failure(Exception):
    """An error reply: Failure("org.freedesktop.DBus.Error.UnknownMethod", "why")."""

    def __init__(self, name, text):
        super().__init__(name + ": " + text)
        self.name, self.text = name, text


class Connection:
    """handler(connection, message) is called for each call and signal that comes, in the
    connection's own thread: for a call it returns (signature, values), or None to stay silent."""

    def __init__(self, sock, handler, gone=None):
        self.sock, self.handler, self.gone = sock, handler, gone
        self.file = sock.makefile("rb")
        self._serial, self._lock = 0, threading.Lock()
        self._waiting, self.name = {}, None

    def start(self):
        threading.Thread(target=self.loop, daemon=True).start()

    def send(self, m):
        with self._lock:
            self._serial += 1
            m.serial = self._serial
            try:
                self.sock.sendall(m.pack())
            except OSError:
                pass
        return m.serial

    def call(self, destination, path, interface, member, signature="", *values, timeout=5.0):
        """Not from inside a handler."""
        event, box = threading.Event(), []
        m = Message(CALL, path=path, interface=interface, member=member, destination=destination,
                    signature=signature or None, body=values)
        with self._lock:
            self._serial += 1
            m.serial = self._serial
            self._waiting[m.serial] = event, box
            self.sock.sendall(m.pack())
        if not event.wait(timeout):
            raise TimeoutError("%s: no answer" % member)
        reply = box[0]
        if reply.kind == ERROR:
            raise Failure(reply.error, str(reply.body[0] if reply.body else ""))
        return reply.body

    def signal(self, path, interface, member, signature="", *values):
        self.send(Message(SIGNAL, flags=1, path=path, interface=interface, member=member,
                          signature=signature or None, body=values))

    def loop(self):
        try:
            while True:
                m = read_message(self.file)
                if m is None:
                    break
                self.one(m)
        except (OSError, ValueError, KeyError):
            pass
        self.close()
        if self.gone:
            self.gone(self)

    def one(self, m):
        if m.kind in (RETURN, ERROR):
            waiting = self._waiting.pop(m.reply_to, None)
            if waiting:
                waiting[1].append(m)
                waiting[0].set()
            return
        try:
            answer = self.handler(self, m)
        except Failure as e:
            if m.kind == CALL and not m.flags & 1:
                self.send(Message(ERROR, flags=1, reply_to=m.serial, destination=m.sender,
                                  error=e.name, signature="s", body=[e.text]))
            return
        if m.kind == CALL and not m.flags & 1 and answer is not None:
            self.send(Message(RETURN, flags=1, reply_to=m.serial, destination=m.sender,
                              signature=answer[0] or None, body=answer[1]))

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


def connect(path, handler, gone=None):
    """A client of the bus at path, already named."""
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    s.sendall(b"\0AUTH EXTERNAL " + str(os.getuid()).encode().hex().encode() + b"\r\n")
    line = b""
    while not line.endswith(b"\r\n"):
        more = s.recv(1)
        if not more:
            raise OSError("the bus hung up")
        line += more
    if not line.startswith(b"OK"):
        raise OSError("the bus said %r" % line)
    s.sendall(b"BEGIN\r\n")
    c = Connection(s, handler, gone)
    c.start()
    c.name, = c.call(DBUS, "/org/freedesktop/DBus", DBUS, "Hello")
    return c


def authenticate(f, send):
    """The server's side of a direct connection; True when the messages begin."""
    if f.read(1) != b"\0":
        return False
    while True:
        line = f.readline(4096).strip().decode("latin-1")
        if not line:
            return False
        word, _, rest = line.partition(" ")
        if word == "AUTH":
            if not rest.startswith("EXTERNAL"):
                send(b"REJECTED EXTERNAL\r\n")
            else:
                send(b"OK 0123456789abcdef0123456789abcdef\r\n" if " " in rest else b"DATA\r\n")
        elif word == "DATA":
            send(b"OK 0123456789abcdef0123456789abcdef\r\n")
        elif word == "BEGIN":
            return True
        else:
            send(b"ERROR\r\n")
