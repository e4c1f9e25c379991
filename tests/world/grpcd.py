# SPDX-License-Identifier: Apache-2.0
"""gRPC on a unix socket: of HTTP/2 (RFC 9113) and HPACK (RFC 7541) what a unary call needs, and of
protobuf what its messages need. No compression, answers below the flow control window."""

import os
import socket
import struct
import threading
import time

# RFC 7541 appendix B: the code is canonical, so the lengths are all of it. Length, then symbols.
_HUFFMAN = {
    5: "48-50 97 99 101 105 111 115-116", 6: "32 37 45-47 51-57 61 65 95 98 100 102-104 108-110 112 114 117",
    7: "58 66-87 89 106-107 113 118-122", 8: "38 42 44 59 88 90", 10: "33-34 40-41 63", 11: "39 43 124",
    12: "35 62", 13: "0 36 64 91 93 126", 14: "94 125", 15: "60 96 123", 19: "92 195 208",
    20: "128 130-131 162 184 194 224 226", 21: "153 161 167 172 176-177 179 209 216-217 227 229-230",
    22: "129 132-134 136 146 154 156 160 163-164 169-170 173 178 181 185-187 189-190 196 198 228 232-233",
    23: "1 135 137-141 143 147 149-152 155 157-158 165-166 168 174-175 180 182-183 188 191 197 231 239",
    24: "9 142 144-145 148 159 171 206 215 225 236-237", 25: "199 207 234-235",
    26: "192-193 200-202 205 210 213 218-219 238 240 242-243 255",
    27: "203-204 211-212 214 221-223 241 244-248 250-254", 28: "2-8 11-12 14-21 23-31 127 220 249",
    30: "10 13 22 256",
}
# Appendix A: names with a value stand as "name value".
_STATIC = """:authority|:method GET|:method POST|:path /|:path /index.html|:scheme http|:scheme https|:status 200
:status 204|:status 206|:status 304|:status 400|:status 404|:status 500|accept-charset
accept-encoding gzip, deflate|accept-language|accept-ranges|accept|access-control-allow-origin|age|allow|authorization
cache-control|content-disposition|content-encoding|content-language|content-length|content-location|content-range
content-type|cookie|date|etag|expect|expires|from|host|if-match|if-modified-since|if-none-match|if-range
if-unmodified-since|last-modified|link|location|max-forwards|proxy-authenticate|proxy-authorization|range|referer
refresh|retry-after|server|set-cookie|strict-transport-security|transfer-encoding|user-agent|vary|via|www-authenticate"""


def _codes():
    """(length, code) -> symbol."""
    out, code, length = {}, 0, 0
    for n, text in _HUFFMAN.items():
        code, length = code << (n - length), n
        for part in text.split():
            first, _, last = part.partition("-")
            for symbol in range(int(first), int(last or first) + 1):
                out[n, code] = symbol
                code += 1
    return out


_CODES = _codes()
STATIC = [tuple((x + " ").split(" ", 1)) for x in _STATIC.replace("\n", "|").split("|")]
STATIC = [(n, v.rstrip(" ")) for n, v in STATIC]


def huffman(data):
    out, code, length = bytearray(), 0, 0
    for byte in data:
        for i in range(7, -1, -1):
            code, length = code << 1 | byte >> i & 1, length + 1
            symbol = _CODES.get((length, code))
            if symbol is not None:
                if symbol == 256:
                    raise ValueError("EOS in a string")
                out.append(symbol)
                code = length = 0
    if length > 7 or code != (1 << length) - 1:
        raise ValueError("bad padding")
    return bytes(out)


class Hpack:
    """Decodes the header blocks of one connection, in order."""

    def __init__(self):
        self.dynamic, self.size = [], 4096

    def decode(self, block):
        self.data, self.at = block, 0
        out = []
        while self.at < len(block):
            b = block[self.at]
            if b & 0x80:
                out.append(self._entry(self._int(7)))
            elif b & 0xe0 == 0x20:
                self.size = self._int(5)
                self._evict()
            else:
                index = self._int(6 if b & 0x40 else 4)
                name = self._entry(index)[0] if index else self._string()
                out.append((name, self._string()))
                if b & 0x40:
                    self.dynamic.insert(0, out[-1])
                    self._evict()
        return out

    def _evict(self):
        while sum(len(n) + len(v) + 32 for n, v in self.dynamic) > self.size:
            self.dynamic.pop()

    def _entry(self, i):
        if not 1 <= i <= len(STATIC) + len(self.dynamic):
            raise ValueError("no such header")
        return STATIC[i - 1] if i <= len(STATIC) else self.dynamic[i - 1 - len(STATIC)]

    def _int(self, bits):
        most = (1 << bits) - 1
        value = self.data[self.at] & most
        self.at += 1
        shift = 0
        while value >= most:
            b = self.data[self.at]
            self.at += 1
            value += (b & 0x7f) << shift
            shift += 7
            if not b & 0x80:
                break
        return value

    def _string(self):
        coded = self.data[self.at] & 0x80
        n = self._int(7)
        s = self.data[self.at:self.at + n]
        self.at += n
        return (huffman(s) if coded else s).decode("latin-1")


def encode_headers(headers):
    """Literals that no table keeps."""
    out = bytearray()

    def string(s):
        b = s.encode("latin-1")
        if len(b) < 127:
            out.append(len(b))
        else:
            out.append(127)
            n = len(b) - 127
            while n >= 128:
                out.append(n & 0x7f | 0x80)
                n >>= 7
            out.append(n)
        out.extend(b)

    for name, value in headers:
        out.append(0)
        string(name)
        string(value)
    return bytes(out)


# ---- protobuf ----

def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 128:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    return bytes(out) + bytes([n])


def pb(*fields):
    """A message of (number, value): int or bool as varint (0 is left out, as proto3 does), str, bytes, a dict as
    a map of strings."""
    out = bytearray()
    for number, value in fields:
        if isinstance(value, dict):
            for k, v in value.items():
                out += pb((number, pb((1, k), (2, v))))
        elif isinstance(value, int):
            if value:
                out += varint(number << 3) + varint(int(value))
        elif value is not None:
            b = value.encode() if isinstance(value, str) else value
            out += varint(number << 3 | 2) + varint(len(b)) + b
    return bytes(out)


def pb_read(data):
    """{number: [values]}: ints, and bytes of what has a length."""
    out, at = {}, 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            b = data[at]
            at += 1
            n |= (b & 0x7f) << shift
            shift += 7
            if not b & 0x80:
                return n

    while at < len(data):
        key = number()
        if key & 7 == 0:
            value = number()
        elif key & 7 == 2:
            n = number()
            if at + n > len(data):
                raise ValueError("message is cut")
            value, at = data[at:at + n], at + n
        elif key & 7 in (1, 5):
            n = 8 if key & 7 == 1 else 4
            value, at = int.from_bytes(data[at:at + n], "little"), at + n
        else:
            raise ValueError("bad wire type")
        out.setdefault(key >> 3, []).append(value)
    return out


class Status(Exception):
    """A call that fails: Status(12, "unknown service")."""

    def __init__(self, code, text=""):
        super().__init__("%d %s" % (code, text))
        self.code, self.text = code, text


DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 32
HEAD = [(":status", "200"), ("content-type", "application/grpc")]
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Server:
    """methods: "/service/Method" -> function(request bytes) -> reply bytes, or Status raised."""

    def __init__(self, path, methods):
        self.path, self.methods, self.calls = path, dict(methods), []
        # Faults
        self.hang = False       # takes connections and calls, answers nothing
        self.delay = 0.0        # before each answer
        self.only = None        # the services that are there; others are Unimplemented
        self._listener = None
        self._open, self._lock = set(), threading.Lock()

    def open(self):
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        if os.path.lexists(self.path):
            os.unlink(self.path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        os.chmod(self.path, 0o660)
        self._listener.listen(32)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self, leave=True):
        """The process is gone. leave: its socket file stays and refuses."""
        listener, self._listener = self._listener, None
        if listener:
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            listener.close()
        with self._lock:
            for conn in self._open:
                try:
                    conn.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        if not leave and os.path.lexists(self.path):
            os.unlink(self.path)

    def _accept(self, listener):
        while True:
            try:
                conn, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(conn,), daemon=True).start()

    def _one(self, conn):
        with self._lock:
            self._open.add(conn)
        try:
            Connection(self, conn).serve()
        except (OSError, ValueError, IndexError, struct.error):
            pass
        finally:
            with self._lock:
                self._open.discard(conn)
            conn.close()

    def method(self, path):
        """The function behind a path; Status where there is none."""
        service = path.rsplit("/", 1)[0].lstrip("/")
        known = {m.rsplit("/", 1)[0].lstrip("/") for m in self.methods}
        if service not in known or self.only is not None and service not in self.only:
            raise Status(12, "unknown service " + service)
        if path not in self.methods:
            raise Status(12, "unknown method %s for service %s" % (path.rsplit("/", 1)[1], service))
        return self.methods[path]

    def call(self, path, request):
        self.calls.append(path)
        return self.method(path)(request)


class Connection:
    def __init__(self, server, conn):
        self.server, self.conn = server, conn
        self.hpack, self.streams = Hpack(), {}

    def frame(self, kind, flags, stream, payload=b""):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload

    def serve(self):
        f = self.conn.makefile("rb")
        if f.read(len(PREFACE)) != PREFACE:
            return
        self.conn.sendall(self.frame(SETTINGS, 0, 0))
        block = b""
        while True:
            head = f.read(9)
            if len(head) < 9:
                return
            n, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            stream = int.from_bytes(head[5:9], "big") & 0x7fffffff
            payload = f.read(n)
            if kind == SETTINGS and not flags & ACK:
                self.conn.sendall(self.frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                self.conn.sendall(self.frame(PING, ACK, 0, payload))
            elif kind == GOAWAY:
                return
            elif kind == RST:
                self.streams.pop(stream, None)
            elif kind in (HEADERS, CONTINUATION, DATA):
                payload = self.plain(kind, flags, payload)
                if kind == DATA:
                    if n:
                        more = struct.pack(">I", n)
                        self.conn.sendall(self.frame(WINDOW_UPDATE, 0, 0, more)
                                          + self.frame(WINDOW_UPDATE, 0, stream, more))
                    if stream in self.streams:
                        self.streams[stream][1] += payload
                else:
                    block = payload if kind == HEADERS else block + payload
                    if flags & END_HEADERS:
                        self.streams.setdefault(stream, [None, b""])[0] = dict(self.hpack.decode(block))
                        self.early(stream, flags)
                if kind != CONTINUATION and flags & END_STREAM and stream in self.streams:
                    headers, data = self.streams.pop(stream)
                    self.answer(stream, headers, data)

    @staticmethod
    def plain(kind, flags, payload):
        if kind == CONTINUATION:
            return payload
        pad = 0
        if flags & PADDED:
            pad, payload = payload[0], payload[1:]
        if kind == HEADERS and flags & PRIORITY:
            payload = payload[5:]
        return payload[:len(payload) - pad]

    def early(self, stream, flags):
        """As gRPC's Go server does: what it does not know it refuses before the request's body has come, and then
        resets the stream without an error. libcurl may drop the answer for that (CURLE_HTTP2_STREAM)."""
        headers = self.streams[stream][0]
        if self.server.hang or self.server.delay or flags & END_STREAM:
            return
        try:
            self.server.method(headers.get(":path", ""))
        except Status as e:
            del self.streams[stream]
            self.server.calls.append(headers.get(":path"))
            self.refuse(stream, e, self.frame(RST, 0, stream, b"\0\0\0\0"))

    def refuse(self, stream, e, more=b""):
        text = "".join(c if 32 <= ord(c) < 127 and c != "%" else "%%%02X" % ord(c) for c in e.text)
        self.conn.sendall(self.frame(HEADERS, END_HEADERS | END_STREAM, stream, encode_headers(
            HEAD + [("grpc-status", str(e.code)), ("grpc-message", text)])) + more)

    def answer(self, stream, headers, data):
        if self.server.hang:
            self.server.calls.append(headers.get(":path"))
            return
        if self.server.delay:
            time.sleep(self.server.delay)
        try:
            if len(data) < 5 or data[0] or len(data) != 5 + int.from_bytes(data[1:5], "big"):
                raise Status(13, "bad framing")
            reply = self.server.call(headers[":path"], data[5:])
        except Status as e:
            self.refuse(stream, e)
            return
        self.conn.sendall(
            self.frame(HEADERS, END_HEADERS, stream, encode_headers(HEAD))
            + self.data(stream, b"\0" + struct.pack(">I", len(reply)) + reply)
            + self.frame(HEADERS, END_HEADERS | END_STREAM, stream, encode_headers(
                [("grpc-status", "0"), ("grpc-message", "")])))

    def data(self, stream, body):
        """In frames of the size that every peer takes; more than the window is not ours to send."""
        if len(body) > 65535:
            raise ValueError("answer is longer than the flow control window")
        return b"".join(self.frame(DATA, 0, stream, body[i:i + 16384]) for i in range(0, len(body), 16384))


def health(servings):
    """grpc.health.v1.Health/Check: servings() is {service: bool}; "" is the server as a whole."""

    def check(request):
        name = pb_read(request).get(1, [b""])[-1].decode()
        known = servings()
        if name not in known:
            raise Status(5, "unknown service")
        return pb((1, 1 if known[name] else 2))

    return {"/grpc.health.v1.Health/Check": check}
