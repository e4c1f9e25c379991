# SPDX-License-Identifier: Apache-2.0
"""TLS endpoints of EC2 and STS, and the private CA that signs them."""

import fcntl
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time

from . import serve

REGIONS = (("us-west-2", "amazonaws.com", "api.aws"), ("us-east-1", "amazonaws.com", "api.aws"),
           ("us-gov-west-1", "amazonaws.com", "api.aws"),
           ("cn-north-1", "amazonaws.com.cn", "api.amazonwebservices.com.cn"))
INTERCEPTOR = "Example Corp TLS Inspection CA 7"
CA_NAME = "World Root CA 1"


def _openssl(*argv, cwd):
    p = subprocess.run(["openssl", *argv], cwd=cwd, text=True, capture_output=True)
    if p.returncode != 0:
        raise RuntimeError("openssl %s: %s" % (argv[0], p.stderr.strip()))


def _make(d):
    names = ["localhost"]
    for region, suffix, dual in REGIONS:
        names += ["*.%s.%s" % (region, suffix), "*.%s.%s" % (region, dual)]
    with open(d + "/san.cnf", "w") as f:
        f.write("basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName="
                + ",".join("DNS:" + n for n in names) + "\n")
    with open(d + "/other.cnf", "w") as f:
        f.write("basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n"
                "subjectAltName=DNS:portal.example.net\n")
    for ca, cn in (("ca", CA_NAME), ("interceptor", INTERCEPTOR)):
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-keyout", ca + ".key", "-out", ca + ".pem", "-days", "60", "-subj",
                 "/O=Nodewhy Tests/CN=" + cn, "-addext", "basicConstraints=critical,CA:TRUE",
                 "-addext", "keyUsage=critical,keyCertSign,cRLSign", cwd=d)
    _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
             "server.key", "-out", "server.csr", "-subj", "/CN=ec2.us-west-2.amazonaws.com", cwd=d)
    open(d + "/index.txt", "w").close()
    with open(d + "/ca.cnf", "w") as f:
        f.write("[ca]\ndefault_ca=c\n[c]\ndatabase=index.txt\nnew_certs_dir=.\nrand_serial=yes\n"
                "default_md=sha256\npolicy=p\nunique_subject=no\n[p]\ncommonName=supplied\n")
    now = time.time()

    def day(n):
        return time.strftime("%Y%m%d%H%M%SZ", time.gmtime(now + n * 86400))

    for out, ca, ext, start, end in (("server", "ca", "san", -1, 50),
                                     ("expired", "ca", "san", -40, -3),
                                     ("future", "ca", "san", 30, 50),
                                     ("other", "ca", "other", -1, 50),
                                     ("intercepted", "interceptor", "san", -1, 50)):
        _openssl("ca", "-batch", "-notext", "-config", "ca.cnf", "-in", "server.csr", "-cert",
                 ca + ".pem", "-keyfile", ca + ".key", "-extfile", ext + ".cnf", "-startdate",
                 day(start), "-enddate", day(end), "-out", out + ".pem", cwd=d)


def certificates():
    """The directory with ca.pem, server.key and the server certificates; made once, kept 20 days."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    base = os.path.join(here, "build")
    try:
        os.makedirs(base, exist_ok=True)
    except OSError:
        base = os.path.join(tempfile.gettempdir(), "nodewhy-world-%d" % os.getuid())
        os.makedirs(base, mode=0o700, exist_ok=True)
    final = os.path.join(base, "world-ca")
    with open(final + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            if time.time() - os.stat(final + "/intercepted.pem").st_mtime < 20 * 86400:
                return final
        except OSError:
            pass
        shutil.rmtree(final, ignore_errors=True)
        d = tempfile.mkdtemp(prefix="world-ca.", dir=base)
        try:
            os.chmod(d, 0o755)
            _make(d)
            os.rename(d, final)
        except BaseException:
            shutil.rmtree(d, ignore_errors=True)
            raise
    return final


class Endpoint:
    """A service ("ec2", "sts") on its addresses, port 443."""

    def __init__(self, servers, name, addresses, certs):
        self.servers, self.name, self.addresses = servers, name, list(addresses)
        self.contexts = {}
        for cert in ("server", "expired", "future", "other", "intercepted"):
            c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            c.load_cert_chain("%s/%s.pem" % (certs, cert), certs + "/server.key")
            self.contexts[cert] = c
        self.requests = []      # (monotonic, "GET /", status)
        self.connections = 0
        # Faults
        self.certificate = "server"
        self.status = None
        self.rst = False        # reset when the ClientHello has come
        self.stall = False      # accepts, never shakes hands
        self.hang = False       # shakes hands, never answers the request
        self.delay = 0.0        # before the handshake, and before the answer

    def open(self):
        for a in self.addresses:
            self.servers.add(serve.listen_tcp(a, 443), self.serve)

    def serve(self, conn):
        self.connections += 1
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.stall:
            self.servers.hold(conn)
            return
        if self.rst:
            conn.recv(1)
            serve.reset(conn)
            return
        if self.delay:
            time.sleep(self.delay)
        tls = self.contexts[self.certificate].wrap_socket(conn, server_side=True)
        try:
            self.http(tls)
        finally:
            tls.close()

    def http(self, tls):
        tls.settimeout(30)
        with tls.makefile("rb") as f:
            while True:
                line = f.readline(8192).decode("latin-1").split()
                if len(line) != 3:
                    return
                close = False
                while True:
                    h = f.readline(8192)
                    if h in (b"\r\n", b"\n", b""):
                        break
                    close = close or h.lower().replace(b" ", b"").startswith(b"connection:close")
                if self.hang:
                    self.servers.hold(tls)
                    return
                if self.delay:
                    time.sleep(self.delay)
                status, extra, body = self.answer(line[1])
                self.requests.append((time.monotonic(), "%s %s" % (line[0], line[1]), status))
                if line[0] == "HEAD":
                    body = b""
                tls.sendall(("HTTP/1.1 %d x\r\nServer: AmazonEC2\r\nDate: %s\r\n"
                             "Content-Length: %d\r\n%s\r\n" %
                             (status, time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime()),
                              len(body), extra)).encode() + body)
                if close:
                    return

    def answer(self, path):
        """What the real ones answer to an unsigned request: never 200, and a redirect for a bare /."""
        if self.status:
            return self.status, "", b"<Response><Errors><Error><Code>Unavailable</Code></Error></Errors></Response>"
        if "Action=" not in path:
            return 302, "Location: https://aws.amazon.com/%s\r\n" % self.name, b""
        if self.name == "ec2":
            return 400, "Content-Type: text/xml\r\n", (
                b"<Response><Errors><Error><Code>MissingParameter</Code><Message>The request must "
                b"contain the parameter AWSAccessKeyId</Message></Error></Errors></Response>")
        return 403, "Content-Type: text/xml\r\n", (
            b"<ErrorResponse><Error><Type>Sender</Type><Code>MissingAuthenticationToken</Code>"
            b"<Message>Request is missing Authentication Token</Message></Error></ErrorResponse>")
