# SPDX-License-Identifier: Apache-2.0
"""The VPC CNI at work on the node: aws-node's process, containers, sockets, checkpoint and logs, as
amazon-vpc-cni-k8s leaves them. They follow the world's ENIs and pods."""

import base64
import ipaddress
import json
import os
import time

from . import cri, grpcd, kubelet, serve

LOGS = "var/log/aws-routed-eni/"
CHECKPOINT = "run/aws-node/ipam.json"
BUNDLES = "run/containerd/io.containerd.runtime.v2.task/k8s.io/"
HEALTH_NAME = "grpc.health.v1.aws-node"
ADD_ONS = "602401143452.dkr.ecr.us-west-2.amazonaws.com/"
SECRET = "s3cr3tOfThePodEnvironment"     # in the environment of aws-node: nobody may repeat it


def version(text):
    return tuple(int(x) for x in text.lstrip("v").split(".")[:2])


def stamp(at, digits=3):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + ("%.*f" % (digits, at % 1))[1:] + "Z"


class Log:
    """A log file whose lines bear a moment; written in order when somebody looks, appended to later."""

    def __init__(self, world, path):
        self.world, self.path, self.lines = world, path, []

    def add(self, moment, text):
        """text(wall clock) makes the line."""
        self.lines.append((moment, text))

    def flush(self):
        w, now = self.world, self.world.uptime()
        todo = sorted((w.moment(m), i, text) for i, (m, text) in enumerate(self.lines) if w.moment(m) <= now)
        self.lines = [(m, t) for m, t in self.lines if w.moment(m) > now]
        if not todo:
            return
        path = w.tree.at(self.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "ab") as f:
            f.write("".join(text(w.wall(at)) + "\n" for at, _, text in todo).encode())
        os.utime(path, (w.wall(todo[-1][0]),) * 2)


class Ipamd:
    """serving: the gRPC health, introspection and metrics answer. cni: "v1.23.0" and later have ipamd.sock, earlier
    ones port 50051; from 1.20 on introspection is by network card."""

    def __init__(self, world):
        self.world, self.servers = world, world.servers
        self.version = version(world.cni)
        self.health = {"": True, HEALTH_NAME: True}
        self.hang = False
        self.cooling = set()        # addresses that are neither free nor in use
        self.requests = []
        self.grpc = grpcd.Server(world.tree.at("run/aws-node/ipamd.sock"), grpcd.health(lambda: self.health))
        self._sockets, self._agent = [], []

    # ---- sockets ----

    def open(self):
        """In the node's namespace."""
        if self._sockets:
            return
        self._listen("127.0.0.1", 61679, self.introspect)
        self._listen("0.0.0.0", 61678, self.metrics)
        if self.version >= (1, 23):
            self.grpc.open()
        else:
            self._listen("127.0.0.1", 50051, self.port)

    def open_agent(self):
        """The network policy agent's own: the other container of the pod."""
        if not self._agent:
            self._listen("0.0.0.0", 8163, self.policy, self._agent)
            self._listen("0.0.0.0", 8162, self.policy, self._agent)

    def _listen(self, address, port, handler, sockets=None):
        s = serve.listen_tcp(address, port)
        (self._sockets if sockets is None else sockets).append(s)
        self.servers.add(s, handler)

    def close(self):
        for s in self._sockets:
            self.servers.remove(s)
        self._sockets = []
        self.grpc.close()

    def close_agent(self):
        for s in self._agent:
            self.servers.remove(s)
        self._agent = []

    def port(self, conn):
        if self.hang:
            self.servers.hold(conn)
        else:
            grpcd.Connection(self.grpc, conn).serve()

    def introspect(self, conn):
        for method, path, _ in kubelet.requests(conn):
            self.requests.append((method, path))
            if self.hang:
                self.servers.hold(conn)
                return
            answers = {"/v1/enis": self.enis, "/v1/eni-configs": lambda: "default",
                       "/v1/networkutils-env-settings": lambda: {
                           k: v for k, v in self.world.aws_node_env().items() if k.startswith("AWS_VPC")},
                       "/v1/ipamd-env-settings": lambda: {k: v for k, v in self.world.aws_node_env().items() if k in (
                           "WARM_IP_TARGET", "WARM_ENI_TARGET", "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG",
                           "AWS_MANAGE_ENIS_NON_SCHEDULABLE", "ENABLE_SUBNET_DISCOVERY")}}
            value = answers[path]() if path in answers else {"AvailableCommands": sorted(answers)}
            kubelet.respond(conn, 200, "OK", json.dumps(value, separators=(",", ":")).encode())

    def metrics(self, conn):
        for method, path, _ in kubelet.requests(conn):
            self.requests.append((method, path))
            if self.hang:
                self.servers.hold(conn)
                return
            total = sum(self.pool(e)[1] for e in self.managed())
            used = sum(len(e.pods) for e in self.managed())
            values = {"awscni_eni_max": self.world.limits()[0], "awscni_ip_max": self.world.limits()[0]
                      * (self.world.limits()[1] - 1), "awscni_eni_allocated": len(self.managed()),
                      "awscni_total_ip_addresses": total, "awscni_assigned_ip_addresses": used,
                      "awscni_no_available_ip_addresses": 0}
            text = "".join("# HELP %s x\n# TYPE %s gauge\n%s %d\n" % (k, k, k, v) for k, v in values.items())
            kubelet.respond(conn, 200, "OK", text.encode())

    def policy(self, conn):
        for _ in kubelet.requests(conn):
            kubelet.respond(conn, 200, "OK", b"ok")

    # ---- what it knows ----

    def managed(self):
        return [e for e in self.world.enis if e.name and e.ipv4]

    def pool(self, e):
        """({cidr: addresses}, how many): what EC2 gave this ENI for pods."""
        if e.primary and self.world.custom_networking:
            return {}, 0
        cidrs = {a + "/32": 1 for a in e.secondaries}
        cidrs.update({p: 16 for p in e.prefixes})
        return cidrs, sum(cidrs.values())

    def enis(self):
        by_card = {}
        for e in self.managed():
            cidrs, total = self.pool(e)
            v4, v6 = {}, {}
            for cidr in list(cidrs) + list(e.ipv6_prefixes):
                net = ipaddress.ip_network(cidr)
                held = {a: self._address(a, link) for link, a in e.pods if ipaddress.ip_address(a) in net}
                held.update({a: self._address(a, None) for a in self.cooling if ipaddress.ip_address(a) in net})
                (v6 if net.version == 6 else v4)[cidr] = {
                    "Cidr": {"IP": str(net.network_address), "Mask": self._mask(net)}, "IPAddresses": held,
                    "IsPrefix": net.num_addresses > 1, "AddressFamily": ""}
            one = by_card.setdefault(str(e.card), {"TotalIPs": 0, "AssignedIPs": 0, "ENIs": {}})
            one["TotalIPs"] += total
            one["AssignedIPs"] += len(e.pods)
            one["ENIs"][e.eni_id] = {
                "ID": e.eni_id, "createTime": "2026-01-01T00:00:00Z", "IsPrimary": e.primary, "IsTrunk": e.trunk,
                "IsEFA": False, "DeviceNumber": e.device, "AvailableIPv4Cidrs": v4, "IPv6Cidrs": v6,
                "IsExcludedForPodIPs": False, "RouteTableID": e.table, "SubnetID": e.subnet_id}
        if self.version >= (1, 20):
            return by_card
        return by_card.get("0", {"TotalIPs": 0, "AssignedIPs": 0, "ENIs": {}})

    @staticmethod
    def _mask(net):
        return base64.b64encode(int(net.netmask).to_bytes(net.max_prefixlen // 8, "big")).decode()

    def _address(self, a, link):
        w = self.world
        pod = w.pod_of(link) if link else None
        key = {"networkName": "aws-cni", "containerID": pod.id, "ifName": "eth0"} if pod else {
            "networkName": "", "containerID": "", "ifName": ""}
        recently = stamp(w.wall(w.uptime() - 4), 9)
        return {"Address": a, "IPAMKey": key, "IPAMMetadata": {
                    "k8sPodNamespace": pod.namespace, "k8sPodName": pod.name} if pod else {},
                "AssignedTime": stamp(w.wall("ready"), 9),
                "UnassignedTime": "0001-01-01T00:00:00Z" if pod else recently}

    def checkpoint(self):
        w, out = self.world, []
        pods = w.pods_by_link()
        for e in self.managed():
            for link, a in e.pods:
                pod = pods[link]
                out.append({"networkName": "aws-cni", "containerID": pod.id, "ifName": "eth0",
                            "ipv6" if ":" in a else "ipv4": a, "allocationTimestamp": int(w.wall(pod.created) * 1e9),
                            "metadata": {"k8sPodNamespace": pod.namespace, "k8sPodName": pod.name,
                                         "interfacesCount": 1}})
        return {"version": "vpc-cni-ipam/1", "allocations": out}

    def save(self):
        """The checkpoint, replaced by rename as ipamd does."""
        self.world.tree.write(CHECKPOINT, json.dumps(self.checkpoint()), 0o600)


def environment(w):
    """What aws-node's container is given: the add-on's defaults in the world's mode."""
    env = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "ADDITIONAL_ENI_TAGS": "{}",
        "ANNOTATE_POD_IP": "false", "AWS_VPC_CNI_NODE_PORT_SUPPORT": "true", "AWS_VPC_ENI_MTU": "9001",
        "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG": "true" if w.custom_networking else "false",
        "AWS_VPC_K8S_CNI_EXTERNALSNAT": "false", "AWS_VPC_K8S_CNI_LOGLEVEL": "DEBUG",
        "AWS_VPC_K8S_CNI_LOG_FILE": "/host/var/log/aws-routed-eni/ipamd.log",
        "AWS_VPC_K8S_CNI_RANDOMIZESNAT": "prng", "AWS_VPC_K8S_CNI_VETHPREFIX": "eni",
        "AWS_VPC_K8S_PLUGIN_LOG_FILE": "/var/log/aws-routed-eni/plugin.log",
        "AWS_VPC_K8S_PLUGIN_LOG_LEVEL": "DEBUG", "CLUSTER_NAME": w.cluster, "DISABLE_INTROSPECTION": "false",
        "DISABLE_METRICS": "false", "DISABLE_NETWORK_RESOURCE_PROVISIONING": "false",
        "ENABLE_IPv4": "false" if w.ipv6 else "true", "ENABLE_IPv6": "true" if w.ipv6 else "false",
        "ENABLE_POD_ENI": "true" if w.branches else "false", "ENABLE_PREFIX_DELEGATION": "true" if w.prefix_mode else "false",
        "ENABLE_SUBNET_DISCOVERY": "true", "NETWORK_POLICY_ENFORCING_MODE": "standard",
        "VPC_CNI_VERSION": w.cni, "VPC_ID": "vpc-0123456789abcdef0", "WARM_ENI_TARGET": "1",
        "WARM_PREFIX_TARGET": "1", "MY_NODE_NAME": w.private_dns, "MY_POD_NAME": "aws-node-x7k2p",
        "KUBERNETES_SERVICE_HOST": "172.20.0.1", "KUBERNETES_SERVICE_PORT": "443", "REGISTRY_PASSWORD": SECRET,
    }
    if w.custom_networking:
        env["ENI_CONFIG_LABEL_DEF"] = "topology.kubernetes.io/zone"
    env.update(w.cni_env)
    return {k: v for k, v in env.items() if v is not None}


def images(w):
    return {"aws-vpc-cni-init": ADD_ONS + "amazon-k8s-cni-init:" + w.cni,
            "aws-node": ADD_ONS + "amazon-k8s-cni:" + w.cni,
            "aws-eks-nodeagent": ADD_ONS + "amazon/aws-network-policy-agent:v1.2.7",
            "kube-proxy": ADD_ONS + "eks/kube-proxy:v1.33.0-minimal-eksbuild.2"}


def containers(w):
    """(pods, containers) of a sound node: aws-node, kube-proxy, and the world's own pods."""
    image = images(w)
    node = cri.Pod("kube-system", "aws-node-x7k2p", app="aws-node")
    proxy = cri.Pod("kube-system", "kube-proxy-9zq4d", app="kube-proxy")
    pods = [node, proxy]
    out = [cri.Container(node, "aws-vpc-cni-init", image["aws-vpc-cni-init"], cri.EXITED, started="init-container",
                         finished="ipamd"),
           cri.Container(node, "aws-node", image["aws-node"], started="ipamd", pid=2380,
                         env=tuple("%s=%s" % x for x in environment(w).items()), args=("/app/aws-vpc-cni",)),
           cri.Container(node, "aws-eks-nodeagent", image["aws-eks-nodeagent"], started="ipamd", pid=2460,
                         args=("/controller", "--enable-ipv6=false", "--enable-network-policy=false")),
           cri.Container(proxy, "kube-proxy", image["kube-proxy"], started="init-container", pid=2290,
                         args=("kube-proxy", "--v=2"))]
    index = 0
    for e in w.enis:
        for _ in e.pods:
            p = cri.Pod("default", "pod-%d" % index, "ready")
            pods.append(p)
            out.append(cri.Container(p, "app", "public.ecr.aws/docker/library/busybox:1", started="ready"))
            index += 1
    return pods, out


def bundle(c):
    """config.json of the OCI runtime for a running container: what nodewhy may read of its environment."""
    return {"ociVersion": "1.1.0", "process": {
        "user": {"uid": 0, "gid": 0}, "args": list(c.args) or ["/app"], "env": list(c.env), "cwd": "/",
        "capabilities": {"bounding": ["CAP_NET_ADMIN", "CAP_NET_RAW"]}, "oomScoreAdj": -997},
        "root": {"path": "rootfs"}, "hostname": "", "mounts": [],
        "annotations": {"io.kubernetes.cri.container-name": c.name, "io.kubernetes.cri.container-type": "container",
                        "io.kubernetes.cri.image-name": c.image, "io.kubernetes.cri.sandbox-id": c.pod.id,
                        "io.kubernetes.cri.sandbox-name": c.pod.name,
                        "io.kubernetes.cri.sandbox-namespace": c.pod.namespace},
        "linux": {"cgroupsPath": "kubepods-burstable-pod%s.slice:cri-containerd:%s" % (
            c.pod.uid.replace("-", "_"), c.id)}}


def pod_log(c):
    return "var/log/pods/%s_%s_%s/%s/%d.log" % (c.pod.namespace, c.pod.name, c.pod.uid, c.name, c.attempt)


def cri_line(text, stream="stdout"):
    """A line of a container's log as kubelet keeps it."""
    return lambda at: "%s %s F %s" % (stamp(at, 9), stream, text)


def zap_line(level, caller, text):
    """A line of ipamd.log or plugin.log."""
    return lambda at: json.dumps({"level": level, "ts": stamp(at), "caller": caller, "msg": text},
                                 separators=(",", ":"))


def start_lines(w):
    """What ipamd says from its start until it serves: (moment, level, caller, text)."""
    p = w.enis[0]
    out = [("ipamd", "info", "aws-k8s-agent/main.go:97", "Starting L-IPAMD %s  ..." % w.cni),
           ("ipamd", "info", "aws-k8s-agent/main.go:108", "Testing communication with server"),
           ("ipamd", "info", "wait/loop.go:87", "Successful communication with the Cluster! Cluster Version is: "
            "v1.33+. git version: v1.33.1-eks-595af52. git tree state: clean. commit: 1. platform: linux/amd64"),
           ("ipamd", "debug", "awsutils/awsutils.go:469", "Found region from IMDS: %s" % w.region),
           ("ipamd", "debug", "awsutils/awsutils.go:540", "Discovered the instance primary IPv4 address: %s" % p.ipv4),
           ("ipamd", "info", "ipamd/ipamd.go:471", "Will attempt to clean up AWS CNI leaked ENIs after waiting 1m0s."),
           ("ipamd", "debug", "ipamd/ipamd.go:489", "Start node init")]
    for e in w.enis:
        if e.name and e.ipv4:
            out.append(("ipamd", "debug", "awsutils/awsutils.go:623", "Found ENI: %s, MAC %s, device %d"
                        % (e.eni_id, e.mac, e.device)))
    out += [("ipamd-serves", "info", "ipamd/ipamd.go:560", "Get Node Info from server: %s" % w.private_dns),
            ("ipamd-serves", "info", "aws-k8s-agent/main.go:181", "Serving introspection endpoints on 127.0.0.1:61679"),
            ("ipamd-serves", "info", "rpc/rpc.pb.go:881", "Serving RPC Handler version %s on unix:///var/run/aws-node/"
             "ipamd.sock" % w.cni if version(w.cni) >= (1, 23) else
             "Serving RPC Handler version %s on 127.0.0.1:50051" % w.cni)]
    return out
