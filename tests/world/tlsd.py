# SPDX-License-Identifier: Apache-2.0
"""TLS endpoints of AWS, and the private CAs: one signs what is AWS's, one the cluster's API server."""

import email.utils
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


CAS = {"ca": CA_NAME, "interceptor": INTERCEPTOR, "cluster-ca": "kubernetes",
       "other-cluster-ca": "kubernetes"}


def _names():
    """Subject alternative names by extension file."""
    aws, api = ["DNS:localhost"], ["DNS:kubernetes", "DNS:kubernetes.default.svc"]
    for region, suffix, dual in REGIONS:
        aws += ["DNS:*%s.%s.%s" % (x, region, suffix) for x in ("", ".ecr", ".dkr.ecr", ".dkr.ecr-fips",
                                                                ".eks")]
        aws += ["DNS:*.%s.%s" % (region, dual), "DNS:*.dkr-ecr.%s.on.aws" % region,
                "DNS:*.dualstack.%s.%s" % (region, suffix)]
        api += ["DNS:*.gr7.%s.eks.%s" % (region, suffix)]
    api += ["IP:" + a for a in ("10.100.0.1", "172.20.0.1", "fd30:1c53:5f8a::1")]
    return {"san": aws, "api": api, "other": ["DNS:portal.example.net"]}


def _make(d):
    for name, alternatives in _names().items():
        with open("%s/%s.cnf" % (d, name), "w") as f:
            f.write("basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName="
                    + ",".join(alternatives) + "\n")
    for ca, cn in CAS.items():
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-keyout", ca + ".key", "-out", ca + ".pem", "-days", "60", "-subj",
                 ("/CN=" if "cluster" in ca else "/O=Nodewhy Tests/CN=") + cn,
                 "-addext", "basicConstraints=critical,CA:TRUE",
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
                                     ("intercepted", "interceptor", "san", -1, 50),
                                     ("cluster", "cluster-ca", "api", -1, 50),
                                     ("cluster-expired", "cluster-ca", "api", -40, -3),
                                     ("cluster-other", "cluster-ca", "other", -1, 50),
                                     ("cluster-intercepted", "interceptor", "api", -1, 50),
                                     ("other-cluster", "other-cluster-ca", "api", -1, 50)):
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
            if time.time() - os.stat(final + "/other-cluster.pem").st_mtime < 20 * 86400:
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

    CERTIFICATES = {x: x for x in ("server", "expired", "future", "other", "intercepted")}

    def __init__(self, servers, name, addresses, certs, files=None):
        """files: what self.certificate may be -> the file it is in."""
        self.servers, self.name, self.addresses = servers, name, list(addresses)
        self.contexts = {}
        for cert, file in (files or self.CERTIFICATES).items():
            c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            c.load_cert_chain("%s/%s.pem" % (certs, file), certs + "/server.key")
            self.contexts[cert] = c
        self.requests = []      # (monotonic, "GET /" or "POST / BODY", status)
        self.connections = 0
        # Faults
        self.certificate = "server"
        self.status = None
        self.rst = False        # reset when the ClientHello has come
        self.stall = False      # accepts, never shakes hands
        self.hang = False       # shakes hands, never answers the request
        self.delay = 0.0        # before the handshake, and before the answer
        self.date_offset = 0    # of the Date header, in seconds

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
                headers = {}
                while True:
                    h = f.readline(16384).decode("latin-1")
                    if h in ("\r\n", "\n", ""):
                        break
                    name, _, value = h.partition(":")
                    headers[name.strip().lower()] = value.strip()
                headers[":method"], headers[":body"] = line[0], f.read(int(headers.get("content-length") or 0))
                given = headers[":body"].decode("latin-1")
                if self.hang:
                    self.servers.hold(tls)
                    return
                if self.delay:
                    time.sleep(self.delay)
                status, extra, body = self.answer(line[1], headers, line[0], headers[":body"])
                self.requests.append((time.monotonic(), " ".join(x for x in (line[0], line[1], given) if x), status))
                if line[0] == "HEAD":
                    body = b""
                tls.sendall(("HTTP/1.1 %d x\r\nServer: AmazonEC2\r\nDate: %s\r\n"
                             "Content-Length: %d\r\n%s\r\n" %
                             (status, email.utils.formatdate(time.time() + self.date_offset, usegmt=True),
                              len(body), extra)).encode() + body)
                if headers.get("connection", "").lower() == "close":
                    return

    def answer(self, path, headers, method="GET", body=b""):
        """What the real ones answer to an unsigned request: never 200, and a redirect for a bare /."""
        if self.status:
            return self.status, "", b"<Response><Errors><Error><Code>Unavailable</Code></Error></Errors></Response>"
        if self.name == "ecr.dkr":
            return 401, "Content-Type: application/json\r\nWww-Authenticate: Basic realm=\"ecr\"\r\n", (
                b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}')
        if self.name in ("eks", "ecr.api"):
            return 403, "Content-Type: application/json\r\n", b'{"message":"Missing Authentication Token"}'
        if self.name == "s3":
            return 307, "Location: https://aws.amazon.com/s3/\r\n", b""
        if "Action=" not in path:
            return 302, "Location: https://aws.amazon.com/%s\r\n" % self.name, b""
        if self.name == "ec2":
            return 400, "Content-Type: text/xml\r\n", (
                b"<Response><Errors><Error><Code>MissingParameter</Code><Message>The request must "
                b"contain the parameter AWSAccessKeyId</Message></Error></Errors></Response>")
        return 403, "Content-Type: text/xml\r\n", (
            b"<ErrorResponse><Error><Type>Sender</Type><Code>MissingAuthenticationToken</Code>"
            b"<Message>Request is missing Authentication Token</Message></Error></ErrorResponse>")
