# SPDX-License-Identifier: Apache-2.0
"""The API server of the cluster, the other AWS endpoints' answers, and an HTTP proxy."""

import base64
import json
import socket
import threading
import time
import urllib.parse

from . import serve, tlsd

ID = "0123456789abcdef0123456789abcdef"
TOKEN_PREFIX = "k8s-aws-v1."


def status(code, reason, message, details=None):
    """A Status object of Kubernetes, as an error's body is one."""
    return json.dumps({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                       "message": message, "reason": reason, "code": code,
                       **({"details": details} if details else {})})


class ApiServer(tlsd.Endpoint):
    """kube-apiserver as a node sees it: /livez, /readyz, /version for anyone, a Node object for who has
    a token. Faults of tlsd.Endpoint hold too."""

    def __init__(self, servers, addresses, certs, node_name, labels, provider_id):
        super().__init__(servers, "apiserver", addresses, certs,
                         {"server": "cluster", "other-cluster": "other-cluster",
                          "intercepted": "cluster-intercepted", "expired": "cluster-expired",
                          "other": "cluster-other"})
        self.node_name, self.provider_id, self.labels = node_name, provider_id, labels
        self.tokens = []        # (monotonic, the presigned URL in it, or None when it is none)
        # Faults and states
        self.livez = 200        # 401 and 403: anonymous access is off
        self.registered = True      # there is a Node object of node_name
        self.node_status = None     # 401, 403, 404, 5xx instead of the Node object
        self.ready = ("True", "KubeletReady", "kubelet is posting ready status")
        self.taints = []
        self.created = time.time() - 3600

    @staticmethod
    def token_of(headers):
        """The URL in a bearer token of aws-iam-authenticator's kind; None when it is not one."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.startswith(TOKEN_PREFIX):
            return None
        text = token[len(TOKEN_PREFIX):]
        if "=" in text:         # the padding is cut off
            return None
        try:
            url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("ascii")
        except ValueError:
            return None
        u = urllib.parse.urlsplit(url)
        query = dict(urllib.parse.parse_qsl(u.query))
        sound = (u.scheme == "https" and u.hostname.startswith("sts") and query.get("Action") == "GetCallerIdentity"
                 and query.get("X-Amz-SignedHeaders") == "host;x-k8s-aws-id"
                 and len(query.get("X-Amz-Signature", "")) == 64 and "X-Amz-Credential" in query
                 and query.get("X-Amz-Expires", "").isdigit() and "X-Amz-Date" in query)
        return url if sound else None

    def node(self):
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        value, reason, message = self.ready
        conditions = [{"type": t, "status": "False", "lastHeartbeatTime": now, "lastTransitionTime": now,
                       "reason": "KubeletHas" + w, "message": "kubelet has " + w} for t, w in (
                           ("MemoryPressure", "SufficientMemory"), ("DiskPressure", "NoDiskPressure"),
                           ("PIDPressure", "SufficientPID"))]
        conditions.append({"type": "Ready", "status": value, "lastHeartbeatTime": now,
                           "lastTransitionTime": now, "reason": reason, "message": message})
        return json.dumps({
            "kind": "Node", "apiVersion": "v1",
            "metadata": {"name": self.node_name, "uid": "8d0c1e55-6ad4-4d4c-9a7e-0c9f3f1f8b11",
                         "resourceVersion": "123456", "labels": self.labels,
                         "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.created + self.date_offset)),
                         "annotations": {"node.alpha.kubernetes.io/ttl": "0"}},
            "spec": {"providerID": self.provider_id, "taints": self.taints},
            "status": {"conditions": conditions, "allocatable": {"pods": "29"},
                       "nodeInfo": {"kubeletVersion": "v1.33.1-eks-1de0d4f"}}})

    def answer(self, path, headers=None, method="GET", body=b""):
        headers = headers or {}
        path = path.split("?")[0]
        code, text = self.route(path, headers)
        kind = "application/json" if text.startswith("{") else "text/plain; charset=utf-8"
        return code, "Content-Type: %s\r\nAudit-Id: 1f0c\r\n" % kind, text.encode()

    def route(self, path, headers):
        if self.status:
            return self.status, status(self.status, "InternalError", "an error on the server")
        unauthorized = (401, status(401, "Unauthorized", "Unauthorized"))
        if path in ("/livez", "/readyz", "/healthz"):
            if self.livez == 401:
                return unauthorized
            if self.livez == 403:
                return 403, status(403, "Forbidden", 'forbidden: User "system:anonymous" cannot get path "%s"' % path)
            return self.livez, "ok" if self.livez == 200 else "[-]etcd failed: reason withheld\nlivez check failed"
        if path == "/version":
            return 200, json.dumps({"major": "1", "minor": "33", "gitVersion": "v1.33.1-eks-1de0d4f"})
        url = self.token_of(headers)
        self.tokens.append((time.monotonic(), url))
        if url is None:
            return unauthorized
        if not path.startswith("/api/v1/nodes/"):
            return 403, status(403, "Forbidden", 'forbidden: User "system:node:%s" cannot get path "%s"'
                               % (self.node_name, path))
        name = urllib.parse.unquote(path[len("/api/v1/nodes/"):])
        code = self.node_status or (403 if name != self.node_name else 200 if self.registered else 404)
        if code == 200:
            return 200, self.node()
        details = {"name": name, "kind": "nodes"}
        if code == 401:
            return unauthorized
        if code == 403:
            return 403, status(403, "Forbidden", 'nodes "%s" is forbidden: User "system:node:%s" cannot get resource '
                               '"nodes" in API group "" at the cluster scope: node %r cannot read %r, only its own '
                               'Node object' % (name, self.node_name, self.node_name, name), details)
        if code == 404:
            return 404, status(404, "NotFound", 'nodes "%s" not found' % name, details)
        return code, status(code, "InternalError", "an error on the server (%d)" % code)


class Proxy:
    """An HTTP proxy in a namespace: CONNECT only. What it connects to is looked up in the zone."""

    def __init__(self, servers, zone, namespace, address, port=3128):
        self.servers, self.zone, self.namespace = servers, zone, namespace
        self.address, self.port = address, port
        self.requests = []      # (monotonic, "host:port", status)
        # Faults
        self.status = None      # refuses with this status, as 403 or 407
        self.only = None        # names that may be connected to; None: all
        self.hang = False

    def open(self):
        self.servers.add(serve.listen_tcp(self.address, self.port), self.serve)

    def find(self, host):
        try:
            socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host.strip("[]"))
            return host.strip("[]")
        except OSError:
            record = self.zone.names.get(host.lower().rstrip("."), {})
            return (record.get("A") or record.get("AAAA") or [None])[0]

    def serve(self, conn):
        conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = b""
        while b"\r\n\r\n" not in head:      # byte by byte: what follows is not ours to read
            b = conn.recv(1)
            if not b or len(head) > 8192:
                return
            head += b
        line = head.split(b"\r\n")[0].decode("latin-1").split()
        if self.hang:
            self.servers.hold(conn)
            return
        target = line[1] if len(line) == 3 else ""
        code, there = self.connect(line[0] if line else "", target)
        self.requests.append((time.monotonic(), target, code))
        if not there:
            conn.sendall(b"HTTP/1.1 %d x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % code)
            return
        conn.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        back = threading.Thread(target=self.pump, args=(there, conn), daemon=True)
        back.start()
        self.pump(conn, there)
        back.join(60)
        there.close()

    def connect(self, method, target):
        host, _, port = target.rpartition(":")
        if method != "CONNECT" or not port.isdigit():
            return 405, None
        if self.status:
            return self.status, None
        address = self.find(host)
        if not address or (self.only is not None and host.lower() not in self.only):
            return 403 if address else 502, None
        try:
            there = self.namespace.call(socket.create_connection, (address, int(port)), 5)
        except OSError:
            return 502, None
        there.settimeout(60)
        return 200, there

    @staticmethod
    def pump(a, b):
        try:
            while True:
                data = a.recv(65536)
                if not data:
                    break
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass
