# SPDX-License-Identifier: Apache-2.0
"""kubelet's two listeners on the node: healthz on 127.0.0.1:10248, its API with TLS on port 10250."""

import email.utils
import socket
import ssl

from . import serve


def respond(conn, status, reason, body, **headers):
    lines = ["HTTP/1.1 %d %s" % (status, reason), "Content-Length: %d" % len(body),
             "Content-Type: text/plain; charset=utf-8", "X-Content-Type-Options: nosniff",
             "Date: " + email.utils.formatdate(usegmt=True)]
    lines += ["%s: %s" % (k.replace("_", "-"), v) for k, v in headers.items()]
    conn.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + body)


def requests(conn):
    """The requests of a kept-alive connection: (method, path, headers), until its end."""
    conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with conn.makefile("rb") as f:
        while True:
            line = f.readline(8192).decode("latin-1").split()
            if len(line) != 3:
                return
            headers = {}
            while True:
                h = f.readline(8192).decode("latin-1")
                if h in ("\r\n", "\n", ""):
                    break
                name, _, value = h.partition(":")
                headers[name.strip().lower()] = value.strip()
            yield line[0], line[1], headers
            if headers.get("connection", "").lower() == "close" or line[2] == "HTTP/1.0":
                return


class Kubelet:
    def __init__(self, world):
        self.world, self.servers = world, world.servers
        self.requests = []
        # Faults
        self.status, self.body = 200, b"ok"
        self.hang = False
        self.pending = False        # no serving certificate yet: every handshake ends in an alert
        self._sockets = []
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(world.certs + "/server.pem", world.certs + "/server.key")
        self.context.sni_callback = self._hello

    def _hello(self, sock, name, context):
        return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR if self.pending else None

    def open(self):
        """In the node's namespace."""
        if self._sockets:
            return
        for address, port, handler in (("127.0.0.1", 10248, self.healthz), ("0.0.0.0", 10250, self.api)):
            s = serve.listen_tcp(address, port)
            self._sockets.append(s)
            self.servers.add(s, handler)

    def close(self):
        """The process is gone: both ports refuse."""
        for s in self._sockets:
            self.servers.remove(s)
        self._sockets = []

    def healthz(self, conn):
        for method, path, _ in requests(conn):
            self.requests.append((method, path))
            if self.hang:
                self.servers.hold(conn)
                return
            if path.split("?")[0] in ("/healthz", "/healthz/ping", "/healthz/syncloop", "/healthz/log"):
                respond(conn, self.status, "OK" if self.status == 200 else "Internal Server Error",
                        self.body)
            else:
                respond(conn, 404, "Not Found", b"404 page not found\n")

    def api(self, conn):
        if self.hang:
            self.servers.hold(conn)
            return
        tls = self.context.wrap_socket(conn, server_side=True)
        try:
            for method, path, _ in requests(tls):
                self.requests.append((method, path))
                respond(tls, 401, "Unauthorized", b"Unauthorized")
        finally:
            tls.close()
