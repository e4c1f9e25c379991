# SPDX-License-Identifier: Apache-2.0
"""containerd's CRI: what kubelet asks of it, over gRPC, about the world's containers and files."""

import hashlib
import json
import os
import re

from . import grpcd
from .grpcd import Status, pb, pb_read

CREATED, RUNNING, EXITED = 0, 1, 2
SOCKET = "run/containerd/containerd.sock"
PAUSE = "localhost/kubernetes/pause:latest"
NOT_READY = "Network plugin returns error: cni plugin not initialized"


def ident(*parts):
    return hashlib.sha256("/".join(map(str, parts)).encode()).hexdigest()


class Container:
    """A container of a pod; id follows from names and attempt. Times are moments of the node."""

    def __init__(self, pod, name, image, state=RUNNING, attempt=0, exit_code=0, reason="", message="", started=None,
                 finished=None, env=(), args=(), pid=0):
        self.pod, self.name, self.image, self.state, self.attempt = pod, name, image, state, attempt
        self.exit_code, self.reason, self.message = exit_code, reason, message
        self.started, self.finished, self.env, self.args, self.pid = started, finished, env, args, pid

    @property
    def id(self):
        return ident(self.pod.namespace, self.pod.name, self.name, self.attempt)

    def labels(self):
        return {"io.kubernetes.container.name": self.name, **self.pod.labels()}


class Pod:
    def __init__(self, namespace, name, created="sandbox", ready=True, attempt=0, app=None):
        self.namespace, self.name, self.created, self.ready = namespace, name, created, ready
        self.attempt, self.app = attempt, app

    @property
    def id(self):
        return ident(self.namespace, self.name, "sandbox", self.attempt)

    @property
    def uid(self):
        h = ident(self.namespace, self.name, "uid")
        return "-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:32]))

    def labels(self):
        out = {"io.kubernetes.pod.name": self.name, "io.kubernetes.pod.namespace": self.namespace,
               "io.kubernetes.pod.uid": self.uid}
        if self.app:
            out["k8s-app"] = self.app
        return out


class Containerd:
    """pods, containers, images are the world's to change. NetworkReady follows the files, as the real one's does."""

    def __init__(self, world):
        self.world = world
        self.pods, self.containers = [], []
        self.images = {PAUSE}
        self.runtime_ready = True
        self.network_message = None     # instead of what the files say
        self.version = "v2.2.4" if world.containerd == "v3" else "v1.7.28"
        methods = {}
        apis = ["v1"] if world.containerd == "v3" else ["v1", "v1alpha2"]
        for api in apis:
            for name in ("Version", "Status", "ListPodSandbox", "ListContainers", "ContainerStatus"):
                methods["/runtime.%s.RuntimeService/%s" % (api, name)] = getattr(self, "do_" + name)
            for name in ("ImageStatus", "ListImages"):
                methods["/runtime.%s.ImageService/%s" % (api, name)] = getattr(self, "do_" + name)
        methods.update(grpcd.health(lambda: {"": True}))
        self.services = {"runtime.%s.%sService" % (a, k) for a in apis for k in ("Runtime", "Image")}
        self.server = grpcd.Server(world.tree.at(SOCKET), methods)

    # ---- what it knows ----

    def conf_dir(self):
        try:
            text = self.world.tree.read("etc/containerd/config.toml").decode("utf-8", "replace")
        except OSError:     # containerd goes by its defaults
            text = ""
        m = re.search(r"^\s*conf_dir\s*=\s*['\"]([^'\"]*)['\"]", text, re.M)
        return m.group(1) if m else "/etc/cni/net.d"

    def network_ready(self):
        """A configuration that parses is all that containerd asks for: not that plugins are there."""
        d = self.world.tree.at(self.conf_dir())
        try:
            names = sorted(n for n in os.listdir(d) if n.endswith((".conf", ".conflist", ".json")))
        except OSError:
            return False
        for n in names:
            try:
                with open(os.path.join(d, n)) as f:
                    c = json.load(f)
                if c.get("plugins") if n.endswith(".conflist") else c.get("type"):
                    return True
            except (OSError, ValueError, AttributeError):
                continue
        return False

    def _nanos(self, moment):
        return 0 if moment is None else int(self.world.wall(moment) * 1e9)

    # ---- RuntimeService ----

    def do_Version(self, request):
        return pb((1, "0.1.0"), (2, "containerd"), (3, self.version), (4, "v1"))

    def do_Status(self, request):
        ready = self.network_ready() and not self.network_message
        conditions = [pb((1, "RuntimeReady"), (2, True)) if self.runtime_ready else
                      pb((1, "RuntimeReady"), (3, "ContainerdNotReady"), (4, "containerd is not ready")),
                      pb((1, "NetworkReady"), (2, True)) if ready else
                      pb((1, "NetworkReady"), (3, "NetworkPluginNotReady"),
                         (4, self.network_message or NOT_READY))]
        return pb((1, pb(*[(1, c) for c in conditions])))

    @staticmethod
    def _filter(request):
        """(id, state or None, sandbox id, labels) of a filter in field 1. The two lists number theirs differently:
        the caller says."""
        return pb_read(pb_read(request).get(1, [b""])[-1])

    @staticmethod
    def _labels(entries):
        out = {}
        for e in entries:
            kv = pb_read(e)
            out[kv[1][-1].decode()] = kv.get(2, [b""])[-1].decode()
        return out

    @staticmethod
    def _fits(wanted, labels):
        return all(labels.get(k) == v for k, v in wanted.items())

    def do_ListPodSandbox(self, request):
        f = self._filter(request)
        state = pb_read(f[2][-1]).get(1, [0])[-1] if 2 in f else None
        wanted, out = self._labels(f.get(3, ())), []
        for p in self.pods:
            if f.get(1, [b""])[-1].decode() not in ("", p.id) or not self._fits(wanted, p.labels()):
                continue
            if state is not None and state != (0 if p.ready else 1):
                continue
            out.append((1, pb((1, p.id), (2, pb((1, p.name), (2, p.uid), (3, p.namespace), (4, p.attempt))),
                              (3, 0 if p.ready else 1), (4, self._nanos(p.created)), (5, p.labels()))))
        return pb(*out)

    def do_ListContainers(self, request):
        f = self._filter(request)
        state = pb_read(f[2][-1]).get(1, [0])[-1] if 2 in f else None
        wanted, out = self._labels(f.get(4, ())), []
        for c in self.containers:
            if f.get(1, [b""])[-1].decode() not in ("", c.id) or f.get(3, [b""])[-1].decode() not in ("", c.pod.id):
                continue
            if state is not None and state != c.state or not self._fits(wanted, c.labels()):
                continue
            out.append((1, pb((1, c.id), (2, c.pod.id), (3, pb((1, c.name), (2, c.attempt))), (4, pb((1, c.image))),
                              (5, "sha256:" + ident(c.image)), (6, c.state), (7, self._nanos(c.started)),
                              (8, c.labels()))))
        return pb(*out)

    def do_ContainerStatus(self, request):
        wanted = pb_read(request).get(1, [b""])[-1].decode()
        for c in self.containers:
            if wanted and c.id.startswith(wanted):
                return pb((1, pb(
                    (1, c.id), (2, pb((1, c.name), (2, c.attempt))), (3, c.state), (4, self._nanos(c.started)),
                    (5, self._nanos(c.started)), (6, self._nanos(c.finished)), (7, c.exit_code),
                    (8, pb((1, c.image))), (9, "sha256:" + ident(c.image)),
                    (10, c.reason or {EXITED: "Error" if c.exit_code else "Completed"}.get(c.state, "")),
                    (11, c.message), (12, c.labels()))))
        raise Status(5, 'an error occurred when try to find container "%s": not found' % wanted)

    # ---- ImageService ----

    @staticmethod
    def _full(name):
        return name if "@" in name or ":" in name.rsplit("/", 1)[-1] else name + ":latest"

    def _image(self, name):
        return pb((1, "sha256:" + ident(name)), (2, name), (3, name.rsplit(":", 1)[0] + "@sha256:" + ident(name)),
                  (4, 318731), (8, name == PAUSE))

    def do_ImageStatus(self, request):
        name = pb_read(pb_read(request).get(1, [b""])[-1]).get(1, [b""])[-1].decode()
        return pb((1, self._image(self._full(name)))) if self._full(name) in self.images else b""

    def do_ListImages(self, request):
        return pb(*[(1, self._image(n)) for n in sorted(self.images)])
