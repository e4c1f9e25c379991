# SPDX-License-Identifier: Apache-2.0
"""The instance metadata service, version 2, as a Nitro instance sees it."""

import base64
import email.utils
import os
import re
import socket
import time

from . import serve

PAGE = """<?xml version="1.0" encoding="iso-8859-1"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"
\t"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head>
  <title>%(code)d - %(reason)s</title>
 </head>
 <body>
  <h1>%(code)d - %(reason)s</h1>
 </body>
</html>
"""
REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found",
           405: "Method Not Allowed", 429: "Too Many Requests", 500: "Internal Server Error",
           503: "Service Unavailable"}
TOKEN_PATH = "/latest/api/token"
PORTAL = """<!DOCTYPE html><html><head><title>Guest network sign-in</title></head>
<body><form action="/login"><input name="user"></form></body></html>
"""


class Imds:
    """tree maps "meta-data/instance-id" to text; directories follow from the paths."""

    def __init__(self, servers):
        self.servers = servers
        self.tree = {}
        self.tokens = {}        # token -> time.monotonic() of its end
        self.requests = []      # (monotonic, method, path, status): what was asked of us
        self.hop_limit = 2
        # Faults; each is what its name says, and None or False when there is none.
        self.token_silent = False
        self.token_status = None
        self.get_status = None
        self.absent = ()        # regular expressions of paths below /latest/ that are 404
        self.delay = 0.0
        self.body = None        # instead of what was asked for, on GET
        self.content_type = None
        self.suffix = ""        # appended to every text leaf
        self.reset = False
        self.date_offset = 0    # of the Date header, in seconds
        self.token_refused = False  # every token is answered 401

    def serve(self, conn):
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with conn.makefile("rb") as f:
            line = f.readline(8192).decode("latin-1").split()
            if len(line) != 3:
                return
            method, path = line[0], line[1]
            headers = {}
            while True:
                h = f.readline(8192).decode("latin-1")
                if h in ("\r\n", "\n", ""):
                    break
                name, _, value = h.partition(":")
                headers[name.strip().lower()] = value.strip()
            self.answer(conn, method, path, headers)

    def answer(self, conn, method, path, headers):
        path = re.sub(r"/+", "/", path.split("?")[0])
        if self.reset:
            self.note(method, path, 0)
            serve.reset(conn)
            return
        if self.delay:
            if self.servers.stopping.wait(self.delay):
                return
        if method == "PUT":
            if self.token_silent:
                self.note(method, path, 0)
                self.servers.hold(conn)
                return
            status, extra, body = self.put(path, headers)
            self.note(method, path, status)
            # The hop limit is the IP TTL of this answer and of its retransmissions, of nothing else.
            if conn.family == socket.AF_INET6:
                conn.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, self.hop_limit)
            else:
                conn.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, self.hop_limit)
        elif method in ("GET", "HEAD"):
            status, extra, body = self.get(path, headers)
            self.note(method, path, status)
        else:
            status, extra, body = self.page(405)
            self.note(method, path, status)
        self.send(conn, status, extra, b"" if method == "HEAD" else body)

    def note(self, method, path, status):
        self.requests.append((time.monotonic(), method, path, status))

    def page(self, code):
        return code, {"Content-Type": "text/html"}, (
            PAGE % {"code": code, "reason": REASONS.get(code, "Error")}).encode()

    def put(self, path, headers):
        if self.token_status:
            return self.page(self.token_status)
        if path != TOKEN_PATH or "x-forwarded-for" in headers:
            return self.page(403)
        ttl = headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
        if not re.fullmatch(r"[0-9]{1,5}", ttl) or not 1 <= int(ttl) <= 21600:
            return self.page(400)
        token = base64.urlsafe_b64encode(os.urandom(39)).decode() + "=="
        self.tokens[token] = time.monotonic() + int(ttl)
        return 200, {"Content-Type": "text/plain",
                     "X-Aws-Ec2-Metadata-Token-Ttl-Seconds": ttl}, token.encode()

    def get(self, path, headers):
        token = headers.get("x-aws-ec2-metadata-token", "")
        if self.token_refused or self.tokens.get(token, 0) < time.monotonic():
            return self.page(401)
        if self.get_status:
            return self.page(self.get_status)
        m = re.fullmatch(r"/(?:latest|\d{4}-\d\d-\d\d|1\.0)(?:/(.*))?", path)
        if path in ("/", ""):
            return 200, {"Content-Type": "text/plain"}, b"2021-07-15\n2024-04-11\nlatest"
        if not m:
            return self.page(404)
        key = (m.group(1) or "").rstrip("/")
        text = self.lookup(key)
        if text is None or any(re.fullmatch(x, key) for x in self.absent):
            return self.page(404)
        if self.body is not None:
            return 200, {"Content-Type": self.content_type or "text/plain"}, self.body
        return 200, {"Content-Type": "text/plain"}, (text + self.suffix).encode()

    def lookup(self, key):
        """The text of a leaf, the listing of a directory, or None."""
        tree = self.tree
        if key in tree:
            value = tree[key]
            return value() if callable(value) else value
        prefix = key + "/" if key else ""
        names = {}
        for path in tree:
            if path.startswith(prefix):
                name, slash, _ = path[len(prefix):].partition("/")
                names[name] = names.get(name, "") or slash
        if not names:
            return None
        return "\n".join(n + names[n] for n in sorted(names))

    def send(self, conn, status, extra, body):
        head = ["HTTP/1.1 %d %s" % (status, REASONS.get(status, "Error"))]
        headers = {"Accept-Ranges": "none", "Content-Length": str(len(body)),
                   "Date": email.utils.formatdate(time.time() + self.date_offset, usegmt=True), "Server": "EC2ws",
                   "Connection": "close"}
        headers.update(extra)
        head += ["%s: %s" % x for x in headers.items()]
        conn.sendall("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)
        # Wait for the peer's FIN: closing with unread input would turn our answer into a reset.
        conn.shutdown(socket.SHUT_WR)
        conn.settimeout(5)
        while conn.recv(4096):
            pass
