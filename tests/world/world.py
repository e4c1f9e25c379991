# SPDX-License-Identifier: Apache-2.0
"""The simulated node and its AWS: two network namespaces, servers, a host tree, and faults.

    with World(enis=2, pods=12) as w:
        undo = w.imds_drop()
        report, code = w.check()
        undo()

A fault is one method; what it returns heals it again. World.heal() heals all.
"""

import array
import atexit
import fcntl
import hashlib
import ipaddress
import itertools
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from . import control, dnsd, ec2, imds, kernel, metadata, net, nodefaults, serve, sts, tlsd, tree
from .fault import fault

IMDS4, IMDS6 = "169.254.169.254", "fd00:ec2::254"
VPC_DNS, LINK_DNS = "10.0.0.2", "169.254.169.253"
STUB = "127.0.0.53"
# s3 is behind a gateway endpoint: a public address
PRIVATE = {"ec2": ["10.0.10.11", "10.0.10.12"], "sts": ["10.0.11.11"], "eks": ["10.0.12.11"],
           "ecr.api": ["10.0.13.11"], "ecr.dkr": ["10.0.14.11"], "s3": ["52.218.200.10"]}
PUBLIC = {"ec2": ["52.94.214.10"], "sts": ["54.240.250.20"], "eks": ["52.94.215.30"],
          "ecr.api": ["54.240.251.40"], "ecr.dkr": ["54.240.252.50"], "s3": ["52.218.200.10"]}
# instance type: ENIs (default card), addresses an ENI, as in packaging/data/eni-limits.tsv
LIMITS = {"m5.large": (3, 10), "m5.xlarge": (4, 15), "m5.4xlarge": (8, 30), "p5.48xlarge": (2, 50),
          "t3.small": (3, 4), "m4.large": (2, 10)}
HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))

_counter = itertools.count()
_live = []


def _close_all():
    for w in list(_live):
        w.close()


atexit.register(_close_all)


def _on_signal(number, frame):
    # Leaves through the finally blocks and atexit, as any exception does.
    raise SystemExit(128 + number)


def _arm_signals():
    if threading.current_thread() is threading.main_thread():
        for s in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(s) is signal.SIG_DFL:
                signal.signal(s, _on_signal)


def reap():
    """Removes what worlds of dead processes left: they were killed and could not clean up."""
    net.reap_namespaces()
    base = tempfile.gettempdir()
    for name in os.listdir(base):
        pid = net.owner(name)
        if pid is not None and not net.alive(pid):
            shutil.rmtree(os.path.join(base, name), ignore_errors=True)


class Eni:
    """An elastic network interface as EC2 sees it. name is None for an EFA-only one: no netdev."""

    def __init__(self, card, device, name, subnet, host, v6=None):
        self.card, self.device, self.name = card, device, name
        self.primary = card == 0 and device == 0
        self.mac = "02:0a:%02x:%02x:44:05" % (card, device)
        self.eni_id = "eni-0%s" % hashlib.sha1(self.mac.encode()).hexdigest()[:16]
        self.subnet = ipaddress.ip_network(subnet)
        self.subnet_id = "subnet-0%s" % hashlib.sha1(subnet.encode()).hexdigest()[:16]
        self.ipv4 = str(self.subnet[host]) if host else None
        self.gateway = str(self.subnet[1])
        self.secondaries, self.prefixes, self.trunk = [], [], False
        self.ipv6 = v6
        self.ipv6_prefixes = []
        # VPC CNI pkg/networkutils helper.go: main for the primary, device + 1 on card 0.
        self.table = 254 if self.primary else device + 1 if card == 0 else 10000 + 100 * card + device
        self.pods = []


def pod_link(index):
    """Host veth name as the CNI makes it: prefix and 11 hex digits of sha1("<ns>.<pod>")."""
    return "eni" + hashlib.sha1(b"default.pod-%d" % index).hexdigest()[:11]


class World(control.ControlPlane, nodefaults.NodeFaults, metadata.Metadata, sts.SecurityTokens, ec2.Api, kernel.Kernel):
    def __init__(self, instance_type="m5.large", enis=1, pods=0, prefix_mode=False,
                 custom_networking=False, ipv6=False, eth_names=False, public=False, stub=None,
                 nameservers=None, uptime=6 * 3600.0, region="us-west-2", hop_limit=2,
                 imds_v6=False, max_pods=None, containerd="v3", al2=False, cards=1, efa_only=(),
                 systemd=True, journal=True, cni="v1.23.0", prefixes=2, branches=0):
        """stub: None, "alive" or "dead": resolv.conf names 127.0.0.53. cards: one more ENI on each
        card from 1 on, those in efa_only without a netdev. ipv6: an IPv6 cluster. systemd, journal:
        whether the node has them. cni: the version of the VPC CNI. prefixes: of each ENI in prefix mode.
        branches: security groups for pods, the last ENI is the trunk of so many branch ENIs, each of a pod (strict mode)."""
        self.instance_type, self.region, self.az = instance_type, region, region + "a"
        self.partition, self.domain = "aws", "amazonaws.com"
        if region.startswith("cn-"):
            self.partition, self.domain = "aws-cn", "amazonaws.com.cn"
        elif region.startswith("us-gov-"):
            self.partition = "aws-us-gov"
        self.prefix_mode, self.custom_networking = prefix_mode or ipv6, custom_networking
        self.prefixes, self.branches = prefixes, branches
        self.ipv6, self.eth_names, self.public = ipv6, eth_names, public
        self.stub, self.started_at, self._uptime = stub, time.monotonic(), uptime
        self.imds_v6 = imds_v6 or ipv6
        self.containerd, self.al2 = containerd, al2
        self.cluster = "world"
        self.instance_id, self.ami_id = "i-0a1b2c3d4e5f60718", "ami-0f1e2d3c4b5a69788"
        self.account = "111122223333"
        self.role = "world-node-role"
        max_enis, self.per_eni = LIMITS.get(instance_type, (3, 10))
        if max_pods is None:
            n = max_enis - 1 if custom_networking else max_enis
            max_pods = 110 if self.prefix_mode else n * (self.per_eni - 1) + 2
        self.max_pods = max_pods
        self.enis = self._make_enis(enis, cards, efa_only, pods)
        self.private_dns = "ip-%s.%s.compute.internal" % (
            self.enis[0].ipv4.replace(".", "-"), region)
        self.search = region + ".compute.internal"
        self.nameservers = list(nameservers or ([STUB] if stub else [VPC_DNS]))
        self.endpoints = PUBLIC if public else PRIVATE
        self.n_pods = pods
        self.name = "%s%d-%d" % (net.PREFIX, os.getpid(), next(_counter))
        self.dir = os.path.join(tempfile.gettempdir(), self.name)
        self.env = {}           # more environment for what runs in the world
        self.mounts = []        # shell lines: what is mounted for what runs in the world ($ROOT is the tree)
        self._hop_limit = hop_limit
        self._undo = []
        self._closed = True
        self.node = self.aws = self.servers = None
        self.daemons, self.n_daemons = [], 0
        self._table = itertools.count()
        self._host_options(systemd, journal, cni)

    def _make_enis(self, n, cards, efa_only, pods):
        enis = []
        for i in range(n):
            subnet, host = "10.0.1.0/24", 5 + i
            if i and self.custom_networking:
                subnet = "100.64.1.0/24"
            name = "eth%d" % i if self.eth_names else "ens%d" % (5 + i)
            v6 = "2600:1f14:abc:1::%x" % (5 + i) if self.ipv6 and i == 0 else None
            enis.append(Eni(0, i, name, subnet, host, v6))
        for c in range(1, cards):
            if c in efa_only:
                enis.append(Eni(c, 1, None, "10.0.1.0/24", None))
            else:
                enis.append(Eni(c, 1, "enp%ds1" % (70 + c), "10.0.1.0/24", 20 + c))
        pool = ipaddress.ip_network("10.0.32.0/19").subnets(new_prefix=28)
        pool64 = ipaddress.ip_network("100.64.32.0/19").subnets(new_prefix=28)
        for e in enis:
            e.trunk = bool(self.branches) and e is enis[-1]
            if e.ipv4 is None or e.trunk or (e.primary and self.custom_networking):
                continue
            blocks = pool64 if e.subnet.overlaps(ipaddress.ip_network("100.64.0.0/10")) else pool
            if self.ipv6:
                if e.primary:
                    e.ipv6_prefixes = ["2600:1f14:abc:1:f00d::/80"]
            elif self.prefix_mode:
                e.prefixes = [str(next(blocks)) for _ in range(self.prefixes)]
            else:
                a = [str(x) for _ in range(-(-(self.per_eni - 1) // 16)) for x in next(blocks)]
                e.secondaries = a[:self.per_eni - 1]
        left, index = pods, 0
        for e in enis:
            free = list(e.secondaries)
            for p in e.prefixes:
                free += [str(x) for x in ipaddress.ip_network(p)]
            for p in e.ipv6_prefixes:
                block = ipaddress.ip_network(p)
                free += [str(block[k + 1]) for k in range(left)]
            take = free[:left]
            e.pods = [(pod_link(index + k), a) for k, a in enumerate(take)]
            left -= len(take)
            index += len(take)
        if left:
            raise ValueError("%d pods do not fit on %d ENIs of %s" % (pods, len(enis),
                                                                     self.instance_type))
        return enis

    # ---- life ----

    def __enter__(self):
        reap()
        _arm_signals()
        self._closed = False
        _live.append(self)
        began = time.monotonic()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        self.up_in = time.monotonic() - began
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        if self._closed:
            return
        self._closed = True
        if self in _live:
            _live.remove(self)
        for d in list(self.daemons):
            d.kill()
        self._host_close()
        if self.servers:
            self.servers.close()
        for n in (self.node, self.aws):
            if n:
                n.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def _start(self):
        os.makedirs(self.dir)
        os.chmod(self.dir, 0o755)
        self.certs = tlsd.certificates()
        self.env["AWS_CA_BUNDLE"] = self.certs + "/ca.pem"
        self.node, self.aws = net.Namespace(self.name + "-node"), net.Namespace(self.name + "-aws")
        self._network()
        self._servers()
        self._tree()
        self._host_start()

    def _network(self):
        quiet = {"net.ipv6.conf.all.accept_dad": 0, "net.ipv6.conf.default.accept_dad": 0,
                 "net.ipv6.conf.default.accept_ra": 0}
        self.node.sysctl(dict(quiet, **{"net.ipv4.ip_forward": 1}))
        # More hosts than one answer from here: the limit of each holds for none of them.
        self.aws.sysctl(dict(quiet, **{"net.ipv4.icmp_ratelimit": 0}))
        addresses = [VPC_DNS, LINK_DNS, IMDS4] + [a for x in self.endpoints.values() for a in x]
        addresses += self._control_addresses()
        addresses += [n for n in self.nameservers if n not in addresses and n != STUB
                      and ":" not in n]
        lines = ["link set lo up", "link add br0 type bridge stp_state 0 forward_delay 0",
                 # An address of its own: else it follows the lowest port, and changes with the ports.
                 "link set br0 address 0a:00:00:00:00:01 mtu 9001 up"]
        lines += ["addr add %s/24 dev br0" % g for g in sorted({e.gateway for e in self.enis})]
        lines += ["addr add %s/32 dev br0" % a for a in addresses]
        if self.imds_v6:
            lines += ["addr add fe80:ec2::1/64 dev br0 nodad", "addr add %s/128 dev br0 nodad" % IMDS6,
                      "addr add 2600:1f14:abc:1::1/64 dev br0 nodad"]
        self.aws.ip(lines)
        node = ["link set lo up"]
        aws = []
        for i, e in enumerate(x for x in self.enis if x.name):
            node.append("link add %s address %s mtu 9001 type veth peer name vp%d mtu 9001 netns %s"
                        % (e.name, e.mac, i, self.aws.name))
            aws.append("link set vp%d master br0 up" % i)
            e.peer = "vp%d" % i
        pods = [(link, a) for e in self.enis for link, a in e.pods]
        for i, (link, _) in enumerate(pods):
            node.append("link add %s mtu 9001 type veth peer name pod%d mtu 9001 netns %s"
                        % (link, i, self.aws.name))
            aws.append("link set pod%d up" % i)
        self.node.ip(node)
        self.aws.sysctl({"net.ipv6.conf.default.disable_ipv6": 1})
        self.aws.ip(aws)
        four, six = self._node_lines()
        self.node.ip(four)
        if six:
            self.node.ip(six, family=6)
        self._control_network()

    def _node_lines(self):
        """What networkd, nodeadm and the VPC CNI configure on the node, as `ip -batch` lines."""
        p = self.enis[0]
        bits = p.subnet.prefixlen
        four = ["link set %s up" % e.name for e in self.enis if e.name]
        four += self._primary_lines()
        six = []
        if p.ipv6:
            six += ["addr add %s/128 dev %s nodad" % (p.ipv6, p.name),
                    "route add default via fe80:ec2::1 dev %s proto ra metric 512" % p.name]
        if self.imds_v6 and not p.ipv6:
            six += ["addr add 2600:1f14:abc:1::5/128 dev %s nodad" % p.name,
                    "route add default via fe80:ec2::1 dev %s proto ra metric 512" % p.name]
        four.append("rule add fwmark 0x80/0x80 lookup main prio 1024")
        for e in self.enis:
            if e.primary or not e.name:
                continue
            # The CNI deletes the connected route of a secondary ENI from main: noprefixroute alike.
            four += ["addr add %s/%d dev %s noprefixroute" % (e.ipv4, e.subnet.prefixlen, e.name),
                     "route add %s dev %s scope link table %d" % (e.gateway, e.name, e.table),
                     "route add default via %s dev %s table %d" % (e.gateway, e.name, e.table)]
            if not e.trunk:
                four.append("rule add from %s lookup %d prio 32765" % (e.ipv4, e.table))
        vlans = self.branches and self.can_vlan()
        for i in range(self.branches):
            four += self._branch_lines(i, self.enis[-1], vlans)
        for e in self.enis:
            for link, a in e.pods:
                out, length = (six, 128) if ":" in a else (four, 32)
                out.append("link set %s up" % link)
                out.append("route add %s/%d dev %s scope link" % (a, length, link)
                           if length == 32 else "route add %s/%d dev %s" % (a, length, link))
                out.append("rule add from all to %s/%d lookup main prio 512" % (a, length))
                if not e.primary:
                    out.append("rule add from %s/%d lookup %d prio 1536" % (a, length, e.table))
        return four, six

    def _branch_lines(self, i, trunk, vlans):
        """A pod on a branch ENI in strict mode: rules of priority 10 and a table of its own, nothing at 512. Where this
        kernel makes no vlan links, the branch itself is left out."""
        vlan, link = i + 1, "vlan" + pod_link(900 + i)[3:]
        lines = ["link add %s mtu 9001 type veth peer name branch%d netns %s" % (link, i, self.aws.name), "link set %s up" % link,
                 "route add %s/32 dev %s scope link table %d" % (trunk.subnet[100 + i], link, 100 + vlan),
                 "rule add iif %s lookup %d prio 10" % (link, 100 + vlan)]
        if vlans:
            name = "vlan.eth.%d" % vlan
            lines += ["link add link %s name %s address 02:0b:00:00:00:%02x type vlan id %d" % (trunk.name, name, vlan, vlan),
                      "link set %s up" % name, "route add default via %s dev %s onlink table %d" % (trunk.gateway, name, 100 + vlan),
                      "rule add iif %s lookup %d prio 10" % (name, 100 + vlan)]
        return lines

    def _primary_lines(self):
        """What DHCP gives the primary ENI (AL2023: metric 512, a route to the resolver)."""
        p = self.enis[0]
        lines = ["addr add %s/%d dev %s noprefixroute" % (p.ipv4, p.subnet.prefixlen, p.name),
                 "route add %s dev %s proto kernel scope link src %s metric 512"
                 % (p.subnet, p.name, p.ipv4),
                 "route add %s dev %s proto dhcp scope link src %s metric 512"
                 % (p.gateway, p.name, p.ipv4),
                 "route add default via %s dev %s proto dhcp src %s metric 512"
                 % (p.gateway, p.name, p.ipv4)]
        if self.al2:
            lines.append("route add %s dev %s" % (IMDS4, p.name))
        else:
            lines.append("route add %s via %s dev %s proto dhcp src %s metric 512"
                         % (VPC_DNS, p.gateway, p.name, p.ipv4))
        return lines

    def _servers(self):
        self.servers = serve.Servers()
        self.imds = imds.Imds(self.servers)
        self.imds.hop_limit = self._hop_limit
        self.imds.tree = self._metadata()
        self.zone = dnsd.Zone()
        for service, addresses in self.endpoints.items():
            for host in self.hosts(service):
                self.zone.names[host] = {"A": addresses}
        self.zone.names[self.private_dns] = {"A": [self.enis[0].ipv4]}
        servers = [VPC_DNS, LINK_DNS] + [n for n in self.nameservers
                                         if n not in (VPC_DNS, LINK_DNS, STUB)]
        self.dns = {a: dnsd.Server(self.servers, self.zone, a) for a in servers}
        self.tls = {s: self._make_sts(a) if s == "sts" else tlsd.Endpoint(self.servers, s, a, self.certs)
                    for s, a in self.endpoints.items()}
        self.tls["ec2"] = ec2.Ec2(self.servers, self.endpoints["ec2"], self.certs, self)

        control_plane = self._control_servers()

        def open_all():
            self.servers.add(serve.listen_tcp(IMDS4, 80), self.imds.serve)
            if self.imds_v6:
                self.servers.add(serve.listen_tcp(IMDS6, 80), self.imds.serve)
            for s in list(self.dns.values()) + list(self.tls.values()) + control_plane:
                s.open()

        self.aws.call(open_all)
        if self.stub:
            self.dns[STUB] = dnsd.Server(self.servers, self.zone, STUB)
            if self.stub == "alive":
                self.node.call(self.dns[STUB].open)

    def _metadata(self):
        m, p = "meta-data/", self.enis[0]
        t = {
            m + "ami-id": self.ami_id, m + "ami-launch-index": "0",
            m + "hostname": self.private_dns, m + "local-hostname": self.private_dns,
            m + "instance-id": self.instance_id, m + "instance-type": self.instance_type,
            m + "instance-life-cycle": "on-demand", m + "instance-action": "none",
            m + "local-ipv4": p.ipv4, m + "mac": p.mac, m + "profile": "default-hvm",
            m + "placement/region": self.region, m + "placement/availability-zone": self.az,
            m + "placement/availability-zone-id": "usw2-az1",
            m + "services/domain": self.domain, m + "services/partition": self.partition,
            m + "security-groups": "world-node", m + "reservation-id": "r-0fedcba9876543210",
            m + "events/maintenance/scheduled": "[]", m + "events/maintenance/history": "[]",
            m + "system": "nitro",
            "dynamic/instance-identity/document": lambda: json.dumps({
                "accountId": self.account, "architecture": "x86_64",
                "availabilityZone": self.az, "billingProducts": None,
                "devpayProductCodes": None, "marketplaceProductCodes": None,
                "imageId": self.ami_id, "instanceId": self.instance_id,
                "instanceType": self.instance_type, "kernelId": None,
                "pendingTime": self._time(-self._uptime - 12), "privateIp": p.ipv4,
                "ramdiskId": None, "region": self.region, "version": "2017-09-30"}, indent=2),
        }
        t.update(self._planned_metadata())
        if p.ipv6:
            t[m + "ipv6"] = p.ipv6
        for e in self.enis:
            t.update(self.eni_metadata(e))
        return t

    def eni_metadata(self, e):
        d = "meta-data/network/interfaces/macs/%s/" % e.mac
        t = {d + "mac": e.mac, d + "interface-id": e.eni_id, d + "device-number": str(e.device),
             d + "owner-id": self.account, d + "security-group-ids": "sg-0123456789abcdef0\nsg-0fedcba987654321f",
             d + "security-groups": "world-node\nworld-cluster", d + "subnet-id": e.subnet_id,
             d + "subnet-ipv4-cidr-block": str(e.subnet), d + "vpc-id": "vpc-0123456789abcdef0",
             d + "vpc-ipv4-cidr-block": "10.0.0.0/16",
             d + "vpc-ipv4-cidr-blocks": "10.0.0.0/16\n100.64.0.0/16"}
        if e.card:
            t[d + "network-card"] = str(e.card)
        if e.ipv4:
            t[d + "local-ipv4s"] = "\n".join([e.ipv4] + e.secondaries)
            t[d + "local-hostname"] = "ip-%s.%s" % (e.ipv4.replace(".", "-"), self.search)
        if e.prefixes:
            t[d + "ipv4-prefix"] = "\n".join(e.prefixes)
        if e.ipv6:
            t[d + "ipv6s"] = e.ipv6
            t[d + "subnet-ipv6-cidr-blocks"] = "2600:1f14:abc:1::/64"
            t[d + "vpc-ipv6-cidr-blocks"] = "2600:1f14:abc::/56"
        if e.ipv6_prefixes:
            t[d + "ipv6-prefix"] = "\n".join(e.ipv6_prefixes)
        return t

    @staticmethod
    def _time(offset):
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + offset))

    def _tree(self):
        self.tree = tree.Tree(self.dir + "/root")
        self.root = self.tree.path
        self.tree.kernel(self._uptime)
        self._kernel()
        self.tree.ec2()
        self.tree.links(self.enis, "ena")
        self.tree.ami(self)
        self.tree.nodeadm(self)
        self._control_tree()
        self.tree.vpc_cni()
        self.tree.resolver(self.nameservers, self.search)
        if self.stub:
            self.tree.write("run/systemd/resolve/resolv.conf",
                            "nameserver %s\nsearch %s\n" % (VPC_DNS, self.search))

    # ---- time ----

    def uptime(self):
        return self._uptime + time.monotonic() - self.started_at

    def set_uptime(self, seconds):
        """The node's age from now on; it goes on growing."""
        self._uptime, self.started_at = seconds, time.monotonic()
        self.tree.uptime(seconds)
        self._host_processes()

    # ---- running programs in the node ----

    def environment(self, **more):
        """A clean environment: nothing of the caller's AWS, proxy or locale settings gets in."""
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
        for k in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS"):
            if k in os.environ:
                env[k] = os.environ[k]
        env.update(self.env)
        env.update(more)
        return {k: v for k, v in env.items() if v is not None}

    def run(self, argv, timeout=30, env=None, **kwargs):
        """subprocess.run() of argv inside the node's network namespace, output captured as text."""
        self._host_settle()
        kwargs.setdefault("capture_output", True)
        kwargs.setdefault("text", True)
        return subprocess.run(self.node.argv(self.mounted(list(argv))), timeout=timeout,
                              env=self.environment(**(env or {})), **kwargs)

    def mounted(self, argv):
        """The command line that runs argv with self.mounts, in a mount namespace of its own: what is mounted goes with it."""
        if not self.mounts:
            return argv
        script = "\n".join(["set -e", "ROOT=$1; shift", "mount --make-rprivate /", *self.mounts, 'exec "$@"'])
        return ["unshare", "-m", "sh", "-c", script, "sh", self.root, *argv]

    @staticmethod
    def binary():
        return os.path.abspath(os.environ.get("NODEWHY")
                               or os.path.join(REPOSITORY, "build/release/nodewhy"))

    def check(self, *options, env=None, timeout=30):
        """`nodewhy check --json --root TREE`: (parsed JSON or None, exit code). Also sets last_took,
        last_stdout and last_stderr."""
        self.tree.uptime(self.uptime())
        began = time.monotonic()
        p = self.run([self.binary(), "check", "--json", "--root", self.root, *options], env=env,
                     timeout=timeout)
        self.last_took = time.monotonic() - began
        self.last_stdout, self.last_stderr = p.stdout, p.stderr
        try:
            return json.loads(p.stdout), p.returncode
        except ValueError:
            return None, p.returncode

    def daemon(self, *options, **kwargs):
        """`nodewhy run --root TREE`, started; see daemon.Daemon."""
        from . import daemon
        self._host_settle()
        return daemon.Daemon(self, *options, **kwargs)

    # ---- faults: helpers ----

    def heal(self):
        """Heals every fault that can be, the last one first."""
        for undo in reversed(list(self._undo)):
            undo()

    def _nft(self, namespace, hook, *rules):
        table = "nw%d" % next(self._table)
        namespace.nft("table inet %s {\n chain c {\n  type filter hook %s priority 0;\n%s }\n}\n"
                      % (table, hook, "".join("  %s\n" % r for r in rules)))
        return lambda: namespace.nft("delete table inet %s\n" % table)

    @staticmethod
    def _set(objects, **values):
        objects = objects if isinstance(objects, list) else [objects]
        old = [{k: getattr(o, k) for k in values} for o in objects]
        for o in objects:
            for k, v in values.items():
                setattr(o, k, v)

        def back():
            for o, was in zip(objects, old):
                for k, v in was.items():
                    setattr(o, k, v)

        return back

    def _resolvers(self, servers=None):
        return [s for a, s in self.dns.items() if servers is None or a in servers]

    def _services(self, which):
        return [t for s, t in self.tls.items() if which in ("all", s)]

    def host(self, service):
        return self.hosts(service)[0]

    # ---- faults: instance metadata ----

    @fault
    def imds_drop(self):
        """The far side is silent: connects to the metadata address time out, both families."""
        return self._nft(self.aws, "input", "ip daddr %s drop" % IMDS4, "ip6 daddr %s drop" % IMDS6)

    @fault
    def imds_refused(self):
        """The far side answers each connect to the metadata address with RST."""
        return self._nft(self.aws, "input", "ip daddr %s tcp dport 80 reject with tcp reset" % IMDS4,
                         "ip6 daddr %s tcp dport 80 reject with tcp reset" % IMDS6)

    @fault
    def imds_token_silent(self):
        """TCP connects, the token PUT never gets an answer."""
        return self._set(self.imds, token_silent=True)

    @fault
    def imds_403(self):
        """The token PUT answers 403: the metadata endpoint is disabled."""
        return self._set(self.imds, token_status=403)

    @fault
    def imds_401_always(self):
        """Every GET answers 401, however fresh its token."""
        return self._set(self.imds, token_refused=True)

    @fault
    def imds_forget_tokens(self):
        """Tokens handed out so far are no longer known (401); new ones work. Not a fault of the node."""
        self.imds.tokens.clear()

    @fault
    def imds_404_identity(self):
        """Everything that tells who the instance is answers 404."""
        return self._set(self.imds, absent=(
            r"meta-data/(instance-id|instance-type|ami-id|mac|local-ipv4|placement.*|services.*)",
            r"dynamic/instance-identity/.*"))

    @fault
    def imds_404_optional(self):
        """What a sound instance may lack answers 404: services/, the zone id, the life cycle."""
        return self._set(self.imds, absent=(r"meta-data/services.*",
                                            r"meta-data/placement/availability-zone-id",
                                            r"meta-data/instance-life-cycle"))

    @fault
    def imds_5xx(self, status=503):
        """Every GET with a token answers 503 (or another status)."""
        return self._set(self.imds, get_status=status)

    @fault
    def imds_token_5xx(self, status=503):
        """The token PUT answers 503."""
        return self._set(self.imds, token_status=status)

    @fault
    def imds_429(self):
        """Every GET with a token answers 429 Too Many Requests."""
        return self._set(self.imds, get_status=429)

    @fault
    def imds_slow(self, ms):
        """Every answer takes ms milliseconds more."""
        return self._set(self.imds, delay=ms / 1000)

    @fault
    def imds_reset(self):
        """Connections are reset once the request has come."""
        return self._set(self.imds, reset=True)

    @fault
    def imds_html(self):
        """Every GET answers 200 with a sign-in page, as a captive portal does."""
        return self._set(self.imds, body=imds.PORTAL.encode(), content_type="text/html")

    @fault
    def imds_oversize(self):
        """Every GET answers 200 with 200 kB."""
        return self._set(self.imds, body=b"i-0123456789abcdef0\n" * 10000)

    @fault
    def imds_control_chars(self):
        """Every GET answers 200 with control characters and bytes that are not UTF-8."""
        return self._set(self.imds, body=b"i-0a1b\x1b[2J\x00\x07\xff\xfe2c3d")

    @fault
    def imds_empty(self):
        """Every GET answers 200 with nothing."""
        return self._set(self.imds, body=b"")

    @fault
    def imds_hop_limit(self, n):
        """Token PUT answers arrive with an IP TTL (hop limit) of n."""
        return self._set(self.imds, hop_limit=n)

    @fault
    def imds_v6_only(self):
        """The IPv4 endpoint is silent, the IPv6 one answers. Needs World(imds_v6=True)."""
        return self._nft(self.aws, "input", "ip daddr %s drop" % IMDS4)

    @fault
    def imds_route(self, kind):
        """A route to the metadata address on the node: "unreachable", "prohibit" or "blackhole"."""
        self.node.ip(["route add %s %s metric 1" % (kind, IMDS4)])
        return lambda: self.node.ip(["route del %s %s metric 1" % (kind, IMDS4)])

    def imds_route_unreachable(self):
        """connect() fails with EHOSTUNREACH at once."""
        return self.imds_route("unreachable")

    def imds_route_prohibit(self):
        """connect() fails with EACCES at once."""
        return self.imds_route("prohibit")

    def imds_route_blackhole(self):
        """connect() fails with EINVAL at once."""
        return self.imds_route("blackhole")

    @fault
    def imds_nft_drop_output(self):
        """A firewall rule on the node drops: connect times out, a datagram gets EPERM."""
        return self._nft(self.node, "output", "ip daddr %s drop" % IMDS4)

    @fault
    def imds_nft_reject_output(self):
        """A firewall rule on the node rejects: connect gets ECONNREFUSED, a datagram EPERM."""
        return self._nft(self.node, "output", "ip daddr %s reject" % IMDS4)

    @fault
    def imds_nft_tcp_reset(self):
        """A firewall rule on the node resets TCP: connect gets ECONNREFUSED, a datagram is sent."""
        return self._nft(self.node, "output",
                         "ip daddr %s tcp dport 80 reject with tcp reset" % IMDS4)

    @fault
    def not_ec2(self):
        """A plain machine: DMI says otherwise, no EKS files, nothing at the metadata address."""
        for name in ("board_vendor", "product_name", "sys_vendor"):
            self.tree.write("sys/class/dmi/id/" + name, "QEMU\n")
        self.tree.write("sys/class/dmi/id/product_uuid", "7a6f2d3c-0b5e-4c1d-9a4f-2f1e0d9c8b7a\n")
        self._host_none()
        for name in ("etc/eks", "etc/cni", "etc/kubernetes", "etc/containerd", "opt/cni", "run/nodeadm",
                     "run/containerd", "run/aws-node", "var/lib/kubelet", "var/log/aws-routed-eni", "var/log/pods"):
            self.tree.remove(name)
        self.tree.write("etc/resolv.conf", "nameserver %s\n" % VPC_DNS)
        self.tree.write("etc/os-release", 'NAME="Debian GNU/Linux"\nID=debian\nVERSION_ID="12"\n')
        return self._nft(self.aws, "input", "ip daddr %s drop" % IMDS4)

    # ---- faults: DNS ----

    @fault
    def dns_nxdomain(self, name, servers=None):
        """The resolvers answer NXDOMAIN for a service ("ec2") or host name."""
        return self._by_name(name, dnsd.NXDOMAIN, servers)

    @fault
    def dns_nodata(self, name, servers=None):
        """The resolvers answer for a service or host name: it exists, without an address."""
        return self._by_name(name, "nodata", servers)

    @fault
    def dns_name_dropped(self, name, servers=None):
        """The resolvers never answer for a service or host name."""
        return self._by_name(name, "drop", servers)

    def _by_name(self, name, answer, servers):
        host = self.host(name) if name in self.tls else name
        resolvers = self._resolvers(servers)
        for s in resolvers:
            s.by_name[host] = answer

        def back():
            for s in resolvers:
                s.by_name.pop(host, None)

        return back

    @fault
    def dns_servfail(self, servers=None):
        """The resolvers answer SERVFAIL to everything."""
        return self._set(self._resolvers(servers), rcode=dnsd.SERVFAIL)

    @fault
    def dns_refused(self, servers=None):
        """The resolvers answer with rcode REFUSED to everything."""
        return self._set(self._resolvers(servers), rcode=dnsd.REFUSED)

    @fault
    def dns_garbage(self, servers=None):
        """The resolvers answer with packets that do not parse."""
        return self._set(self._resolvers(servers), garbage=True)

    @fault
    def dns_drop(self, servers=None):
        """Queries to the resolvers (all in the VPC, 169.254.169.253 too) vanish, UDP and TCP."""
        return self._dns_nft("drop", servers)

    @fault
    def dns_icmp_refused(self, servers=None):
        """Queries to the resolvers are answered with ICMP port unreachable, TCP with RST."""
        return self._dns_nft(None, servers)

    def _dns_nft(self, verdict, servers):
        rules = []
        for s in self._resolvers(servers):
            if s.address == STUB:
                continue
            d = "ip daddr %s " % s.address
            rules.append(d + "udp dport 53 " + (verdict or "reject with icmp port-unreachable"))
            rules.append(d + "tcp dport 53 " + (verdict or "reject with tcp reset"))
        return self._nft(self.aws, "input", *rules)

    @fault
    def dns_slow(self, ms, servers=None):
        """Every answer of the resolvers takes ms milliseconds more."""
        return self._set(self._resolvers(servers), delay=ms / 1000)

    @fault
    def dns_truncated(self, servers=None):
        """Over UDP the answer is cut (TC, no record); over TCP it is whole. Not a fault of the node."""
        return self._set(self._resolvers(servers), truncate=True)

    @fault
    def dns_one_of_two_dead(self, first=False):
        """resolv.conf names two resolvers, one of which (the second, or the first) is silent."""
        dead, two = "10.0.0.3", [VPC_DNS, "10.0.0.3"]
        back = self.tree.replace("etc/resolv.conf", "".join(
            "nameserver %s\n" % a for a in (reversed(two) if first else two))
            + "search %s\n" % self.search)
        self.aws.ip(["addr add %s/32 dev br0" % dead])
        silent = self._nft(self.aws, "input", "ip daddr %s drop" % dead)

        def undo():
            back()
            silent()
            self.aws.ip(["addr del %s/32 dev br0" % dead])

        return undo

    @fault
    def stub_dead(self, silent=False):
        """The loopback stub of World(stub="alive") stops: refused at once, or hung (silent)."""
        stub = self.dns[STUB]
        if silent:
            return self._set(stub, silent=True)
        stub.close()
        return lambda: self.node.call(stub.open)

    @fault
    def pods_get_stub(self):
        """kubelet's configuration has no resolvConf: pods are handed /etc/resolv.conf, which names the node's own stub.
        Needs World(stub="alive")."""
        path = "etc/kubernetes/kubelet/" + ("kubelet-config.json" if self.al2 else "config.json")
        config = json.loads(self.tree.read(path))
        del config["resolvConf"]
        return self.tree.replace(path, json.dumps(config))

    @fault
    def resolv_absent(self):
        """/etc/resolv.conf is not there."""
        return self.tree.take("etc/resolv.conf")

    @fault
    def resolv_empty(self):
        """/etc/resolv.conf has no nameserver."""
        return self.tree.replace("etc/resolv.conf", "# nothing here yet\nsearch %s\n" % self.search)

    @fault
    def resolv_without_search(self):
        """/etc/resolv.conf has no search domain. Not a fault of the node."""
        return self.tree.replace("etc/resolv.conf", "".join("nameserver %s\n" % n
                                                            for n in self.nameservers))

    # ---- faults: endpoints (a service of PRIVATE, or "all") ----

    def _endpoint_nft(self, which, verdict, established=False):
        addresses = [a for t in self._services(which) for a in t.addresses]
        return self._nft(self.aws, "input", "ip daddr { %s } tcp dport 443 %s%s" % (
            ", ".join(addresses), "ct state established " if established else "", verdict))

    @fault
    def endpoint_drop(self, which="all"):
        """SYNs to port 443 vanish: connect times out."""
        return self._endpoint_nft(which, "drop")

    @fault
    def low_ports_blocked(self):
        """The subnet's network ACL lets answers in to ports from 32768 up alone (C055)."""
        return self._nft(self.aws, "output", "ip daddr %s tcp sport 443 tcp dport 1024-32767 tcp flags & (syn | ack) == syn | ack "
                         "drop" % self.enis[0].ipv4)

    @fault
    def endpoint_refused(self, which="all"):
        """SYNs to port 443 are answered with RST: ECONNREFUSED."""
        return self._endpoint_nft(which, "reject with tcp reset")

    @fault
    def endpoint_icmp(self, which="all"):
        """SYNs to port 443 are answered with ICMP administratively prohibited: EHOSTUNREACH."""
        return self._endpoint_nft(which, "reject with icmpx type admin-prohibited")

    @fault
    def endpoint_rst(self, which="all"):
        """TCP connects, the ClientHello is answered with RST: ECONNRESET."""
        return self._set(self._services(which), rst=True)

    @fault
    def endpoint_drop_after_connect(self, which="all"):
        """The handshake of TCP passes, every later packet vanishes, as behind an MTU black hole."""
        return self._endpoint_nft(which, "drop", established=True)

    @fault
    def own_firewall(self, *addresses, verdict="drop", match=""):
        """A rule of the node itself stops what it sends to these addresses: connects fail in the way of the verdict, datagrams
        with EPERM. match: more of the rule; without addresses all that it says."""
        to = "ip daddr { %s } " % ", ".join(addresses) if addresses else ""
        return self._nft(self.node, "output", "oifname != lo %s%s %s" % (to, match, verdict))

    def _segments(self, offloaded):
        """Whether what the far side sends is cut into segments by the kernel before, or after, others look at it."""
        def set_both():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                for command in (0x1f, 0x24):    # ETHTOOL_STSO, ETHTOOL_SGSO
                    value = array.array("B", struct.pack("II", command, offloaded))
                    fcntl.ioctl(s, 0x8946, struct.pack("16sP16x", b"br0", value.buffer_info()[0]))  # SIOCETHTOOL
        self.aws.call(set_both)

    @fault
    def mtu_black_hole(self, which="all", mtu=1500):
        """Larger packets of TLS vanish on their way to the node, and nobody says so: small answers pass, the certificate
        does not (C027). "api": those of the API server."""
        addresses = control.API if which == "api" else [a for t in self._services(which) for a in t.addresses]
        self._segments(0)
        back = self._nft(self.node, "prerouting", "ip saddr { %s } tcp sport 443 ip length > %d drop" % (
            ", ".join(addresses), mtu))
        return lambda: [back(), self._segments(1)]

    @fault
    def endpoint_tls_stall(self, which="all"):
        """TCP connects and takes data, the TLS handshake gets no answer."""
        return self._set(self._services(which), stall=True)

    @fault
    def endpoint_untrusted(self, which="all"):
        """The certificate is signed by an inspection CA that the node does not know."""
        return self._set(self._services(which), certificate="intercepted")

    @fault
    def endpoint_expired(self, which="all"):
        """The certificate ended three days ago."""
        return self._set(self._services(which), certificate="expired")

    @fault
    def endpoint_wrong_name(self, which="all"):
        """The certificate is valid, for another name."""
        return self._set(self._services(which), certificate="other")

    @fault
    def endpoint_http(self, status, which="all"):
        """Every request answers with this HTTP status."""
        return self._set(self._services(which), status=status)

    @fault
    def endpoint_hang_http(self, which="all"):
        """TLS is fine, the request never gets an answer."""
        return self._set(self._services(which), hang=True)

    @fault
    def endpoint_slow(self, ms, which="all"):
        """The handshake and each answer take ms milliseconds more."""
        return self._set(self._services(which), delay=ms / 1000)

    # ---- faults: links, addresses, routes ----

    @fault
    def link_down(self):
        """The primary ENI is set down: its routes are gone with it."""
        p = self.enis[0]
        self.node.ip(["link set %s down" % p.name])
        return lambda: self.node.ip(["link set %s up" % p.name] + self._primary_lines()[1:],
                                    force=True)

    @fault
    def no_carrier(self):
        """The primary ENI is up without carrier: its other end is down. Routes stay."""
        p = self.enis[0]
        self.aws.ip(["link set %s down" % p.peer])
        return lambda: self.aws.ip(["link set %s up" % p.peer])

    @fault
    def no_address(self):
        """The primary ENI never got its DHCP lease: no IPv4 address, none of its routes."""
        p = self.enis[0]
        self.node.ip(["addr flush dev %s scope global" % p.name,
                      "route flush dev %s table main" % p.name])
        return lambda: self.node.ip(self._primary_lines())

    @fault
    def no_default_route(self):
        """The routes through the gateway are gone from main; link and address stay."""
        p = self.enis[0]
        lines = ["route del default dev %s" % p.name]
        if not self.al2:
            lines.append("route del %s dev %s" % (VPC_DNS, p.name))
        self.node.ip(lines)
        return lambda: self.node.ip([x for x in self._primary_lines() if " via " in x])

    @fault
    def lo_down(self):
        """The loopback interface is down."""
        self.node.ip(["link set lo down"])
        return lambda: self.node.ip(["link set lo up"])

    # ---- faults: CNI files ----

    @fault
    def cni_absent(self):
        """No network configuration, as before aws-node was healthy for the first time."""
        return self.tree.take("etc/cni/net.d/10-aws.conflist")

    @fault
    def cni_no_directory(self):
        """/etc/cni/net.d itself is missing."""
        return self.tree.take("etc/cni/net.d")

    @fault
    def cni_invalid(self):
        """The configuration is cut in the middle: not JSON."""
        text = self.tree.read("etc/cni/net.d/10-aws.conflist")
        return self.tree.replace("etc/cni/net.d/10-aws.conflist", text[:len(text) // 2])

    @fault
    def cni_empty(self):
        """The configuration is an empty file."""
        return self.tree.replace("etc/cni/net.d/10-aws.conflist", "")

    @fault
    def cni_no_plugins(self):
        """The configuration is JSON, and no network configuration list."""
        return self.tree.replace("etc/cni/net.d/10-aws.conflist", '{"hello": ["world"]}\n')

    @fault
    def cni_foreign_first(self):
        """A leftover of another CNI sorts first, its plugin is not installed."""
        return self.tree.replace("etc/cni/net.d/05-cilium.conflist", json.dumps({
            "cniVersion": "0.3.1", "name": "cilium",
            "plugins": [{"type": "cilium-cni", "enable-debug": False,
                         "log-file": "/var/run/cilium/cilium-cni.log"}]}, indent=2))

    @fault
    def cni_backup_beside(self):
        """Files that are no configuration lie beside it: .bak, .swp, a README. Not a fault."""
        backs = [self.tree.replace("etc/cni/net.d/" + n, "not JSON at all {") for n in
                 ("10-aws.conflist.bak", ".10-aws.conflist.swp", "README", "00-old.conflist~")]
        return lambda: [b() for b in backs]

    @fault
    def cni_binary_missing(self, name="aws-cni"):
        """A plugin that the configuration names is not in bin_dir."""
        return self.tree.take("opt/cni/bin/" + name)

    @fault
    def cni_binary_not_executable(self, name="aws-cni"):
        """A plugin that the configuration names has lost its x bits."""
        path = self.tree.at("opt/cni/bin/" + name)
        os.chmod(path, 0o644)
        return lambda: os.chmod(path, 0o755)

    @fault
    def cni_dirs_elsewhere(self, conf="/etc/cni/net.d", bin="/opt/cni/bin"):
        """containerd looks for configuration or plugins where the VPC CNI does not put them."""
        for d in (conf, bin):
            self.tree.mkdir(d)
        return self.tree.replace("etc/containerd/config.toml", tree.CONTAINERD[self.containerd]
                                 % {"conf": conf, "bin": bin})

    # ---- faults: ENIs and limits ----

    @fault
    def eni_link_gone(self, i):
        """Metadata lists ENI i, the kernel has no such link."""
        self.node.ip(["link del %s" % self.enis[i].name])
        self.tree.remove("sys/class/net/" + self.enis[i].name)

    @fault
    def eni_down(self, i):
        """The link of ENI i is down."""
        e = self.enis[i]
        self.node.ip(["link set %s down" % e.name])

        def back():
            lines = ["link set %s up" % e.name]
            if not e.primary:
                lines += ["route replace %s dev %s scope link table %d" % (e.gateway, e.name, e.table),
                          "route replace default via %s dev %s table %d" % (e.gateway, e.name,
                                                                           e.table)]
            self.node.ip(lines)

        return back

    def can_vlan(self):
        """Whether this kernel makes vlan links at all."""
        try:
            self.node.ip(["link add link lo name probe7 type vlan id 7", "link del probe7"])
            return True
        except RuntimeError:
            return False

    @fault
    def vlan_on_trunk(self, i=0, vlan=7):
        """A branch ENI: a vlan link on top of ENI i, with the branch's own MAC. Not a fault."""
        e, name = self.enis[i], "vlan.eth.%d" % vlan
        self.node.ip(["link add link %s name %s address 02:0b:00:00:00:%02x type vlan id %d"
                      % (e.name, name, vlan, vlan), "link set %s up" % name])
        return lambda: self.node.ip(["link del %s" % name])

    @fault
    def unknown_type(self, name="m99.large"):
        """Metadata names an instance type that no table has."""
        old, self.instance_type = self.instance_type, name
        self.imds.tree = self._metadata()

        def back():
            self.instance_type = old
            self.imds.tree = self._metadata()

        return back

    @fault
    def kubelet_max_pods(self, n):
        """kubelet's drop-in raises (or lowers) maxPods."""
        return self.tree.replace("etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf", json.dumps(
            {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
             "maxPods": n}))

    # ---- faults: what else the region could be known from ----

    @fault
    def no_kubeconfig(self):
        """The node never bootstrapped as far as a kubeconfig."""
        return self.tree.take("var/lib/kubelet/kubeconfig")

    # ---- changes that are none ----

    def add_pod(self):
        """One more pod on the primary ENI, as the CNI plugin sets it up; returns (link, address)."""
        e = self.enis[0]
        used = {a for x in self.enis for _, a in x.pods}
        address = next(a for a in e.secondaries if a not in used)
        link = pod_link(self.n_pods)
        self.node.ip(["link add %s mtu 9001 type veth peer name pod%d netns %s"
                      % (link, self.n_pods, self.aws.name), "link set %s up" % link,
                      "route add %s/32 dev %s scope link" % (address, link),
                      "rule add from all to %s/32 lookup main prio 512" % address])
        e.pods.append((link, address))
        self._host_pod(self.n_pods)
        self.n_pods += 1
        return link, address

    def add_pods(self, n):
        """So many pods at once on the primary ENI, in one batch; returns their (link, address)."""
        e, lines, out = self.enis[0], [], []
        used = {a for x in self.enis for _, a in x.pods}
        addresses = e.secondaries + [str(a) for p in e.prefixes for a in ipaddress.ip_network(p)]
        for address in [a for a in addresses if a not in used][:n]:
            link = pod_link(self.n_pods + len(out))
            lines += ["link add %s mtu 9001 type veth peer name pod%d netns %s"
                      % (link, self.n_pods + len(out), self.aws.name), "link set %s up" % link,
                      "route add %s/32 dev %s scope link" % (address, link),
                      "rule add from all to %s/32 lookup main prio 512" % address]
            out.append((link, address))
        if len(out) < n:
            raise ValueError("%d addresses are free" % len(out))
        for one in out:
            e.pods.append(one)
            self._host_pod(self.n_pods)
            self.n_pods += 1
        self.node.ip(lines)
        return out

    def remove_pod(self, link, address):
        self.node.ip(["rule del from all to %s/32 lookup main prio 512" % address,
                      "link del %s" % link])
        for e in self.enis:
            e.pods = [p for p in e.pods if p[0] != link]
        self._host_pod_gone(link)


def faults():
    """Names of the fault methods, for command lines."""
    return [n for n in dir(World) if getattr(getattr(World, n), "is_fault", False)]


if __name__ == "__main__":
    print("use: python3 tests/world --help", file=sys.stderr)
