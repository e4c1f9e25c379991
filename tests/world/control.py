# SPDX-License-Identifier: Apache-2.0
"""The part of a world that is its cluster: the API server, the service address, a proxy, and their faults."""

import socket

from . import apiserver, dnsd
from .fault import fault

API, API6 = ["10.0.2.90", "10.0.3.91"], "2600:1f14:abc:1::90"
SERVICE, SERVICE6 = "172.20.0.1", "fd30:1c53:5f8a::1"
PROXY, PROXY_HOST, PROXY_PORT = "10.0.20.20", "proxy.corp.example", 3128
NO_PROXY = "172.20.0.0/16,localhost,127.0.0.1,10.0.0.0/16,169.254.169.254,.internal,.eks.amazonaws.com"
PROXY_UNITS = ("kubelet.service", "containerd.service", "nodeadm-run.service")
# services behind names that are not SERVICE.REGION.DOMAIN: plain, FIPS, dual-stack
NAMES = {
    "eks": ("eks.%(r)s.%(d)s", "fips.eks.%(r)s.%(d)s", "eks.%(r)s.api.aws"),
    "ecr.api": ("api.ecr.%(r)s.%(d)s", "ecr-fips.%(r)s.%(d)s", "ecr.%(r)s.api.aws"),
    "ecr.dkr": ("%(a)s.dkr.ecr.%(r)s.%(d)s", "%(a)s.dkr.ecr-fips.%(r)s.%(d)s", "%(a)s.dkr-ecr.%(r)s.on.aws"),
    "s3": ("s3.%(r)s.%(d)s", "s3-fips.%(r)s.%(d)s", "s3.dualstack.%(r)s.%(d)s"),
}
OTHERS = ("%(s)s.%(r)s.%(d)s", "%(s)s-fips.%(r)s.%(d)s", "%(s)s.%(r)s.api.aws")


class ControlPlane:
    """Mixed into World, which has the servers, the namespaces and the tree."""

    # ---- hooks of World ----

    def hosts(self, service):
        """The names of an AWS service: plain, FIPS, dual-stack."""
        values = {"s": service, "r": self.region, "d": self.domain, "a": self.account}
        return [x % values for x in NAMES.get(service, OTHERS)]

    def api_host(self):
        return "%s.gr7.%s.eks.%s" % (apiserver.ID.upper(), self.region, self.domain)

    def _control_addresses(self):
        return API + [PROXY]

    def _control_network(self):
        self._service_rule = None
        self._service_on()
        if self.imds_v6:
            self.aws.ip(["addr add %s/128 dev br0 nodad" % API6])

    def _service_on(self):
        """What kube-proxy makes of the service "kubernetes"."""
        family, service, api = ("ip6", SERVICE6, API6) if self.ipv6 else ("ip", SERVICE, API[0])
        self.node.nft("table %s kube-proxy {\n chain services {\n  type nat hook output priority -100;\n"
                      "  %s daddr %s tcp dport 443 dnat to %s\n }\n}\n" % (family, family, service, api))
        self._service_rule = "delete table %s kube-proxy\n" % family

    def _control_servers(self):
        """Returns what has to be opened in the aws namespace."""
        addresses = API + ([API6] if self.imds_v6 else [])
        self.zone.names[self.api_host().lower()] = {"A": API}
        self.zone.names[PROXY_HOST] = {"A": [PROXY]}
        self.api = apiserver.ApiServer(
            self.servers, addresses, self.certs, self.private_dns,
            {"topology.kubernetes.io/zone": self.az, "node.kubernetes.io/instance-type": self.instance_type},
            "aws:///%s/%s" % (self.az, self.instance_id))
        self.proxy = apiserver.Proxy(self.servers, self.zone, self.aws, PROXY, PROXY_PORT)
        return [self.api, self.proxy]

    def _control_tree(self):
        with open(self.certs + "/cluster-ca.pem") as f:
            self.tree.write("etc/kubernetes/pki/ca.crt", f.read())

    # ---- the API server ----

    def _api_nft(self, verdict, established=False, port="dport"):
        return self._nft(self.aws, "input", "ip daddr { %s } tcp dport 443 %s%s" % (
            ", ".join(API), "ct state established " if established else "", verdict))

    @fault
    def api_drop(self):
        """SYNs to the API server vanish, as by a security group without 443 from the node."""
        return self._api_nft("drop")

    @fault
    def api_refused(self):
        """SYNs to the API server are answered with RST."""
        return self._api_nft("reject with tcp reset")

    @fault
    def api_unresolvable(self, servers=None):
        """The resolvers say NXDOMAIN for the API server's name: its private zone is not associated."""
        return self._by_name(self.api_host().lower(), dnsd.NXDOMAIN, servers)

    @fault
    def api_servfail(self, servers=None):
        """The resolvers say SERVFAIL for the API server's name, and answer for others."""
        return self._by_name(self.api_host().lower(), dnsd.SERVFAIL, servers)

    @fault
    def api_other_cluster(self):
        """The certificate is signed by another cluster's CA of the same name: the node's CA is an old one."""
        return self._set(self.api, certificate="other-cluster")

    @fault
    def api_intercepted(self):
        """The certificate is signed by an inspection CA."""
        return self._set(self.api, certificate="intercepted")

    @fault
    def api_expired(self):
        """The API server's certificate ended three days ago."""
        return self._set(self.api, certificate="expired")

    @fault
    def api_wrong_name(self):
        """The API server's certificate is valid, for another name."""
        return self._set(self.api, certificate="other")

    @fault
    def api_tls_stall(self):
        """TCP connects to the API server, the TLS handshake gets no answer."""
        return self._set(self.api, stall=True)

    @fault
    def api_rst(self):
        """TCP connects to the API server, the ClientHello is answered with RST."""
        return self._set(self.api, rst=True)

    @fault
    def api_hang(self):
        """TLS to the API server is fine, the request never gets an answer."""
        return self._set(self.api, hang=True)

    @fault
    def api_http(self, status):
        """Every request to the API server answers with this status."""
        return self._set(self.api, status=status)

    @fault
    def api_livez(self, status):
        """/livez answers with this status; 401 and 403 mean that anonymous access is off: not a fault."""
        return self._set(self.api, livez=status)

    @fault
    def api_node(self, status):
        """GET of the node's own Node object answers 401, 403, 404 or 5xx, though the token is sound."""
        return self._set(self.api, node_status=status)

    @fault
    def api_node_renamed(self, name="ip-10-9-9-9.corp.example"):
        """The credentials are those of another node name: the own one answers 403."""
        return self._set(self.api, node_name=name)

    @fault
    def api_not_ready(self, reason="KubeletNotReady", message="container runtime network not ready: "
                      "NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: "
                      "cni plugin not initialized", status="False"):
        """The Node object's Ready condition is False (or Unknown), with this reason and message."""
        return self._set(self.api, ready=(status, reason, message))

    @fault
    def api_taint(self, key="karpenter.sh/unregistered", effect="NoExecute"):
        """The Node object has a taint."""
        return self._set(self.api, taints=self.api.taints + [{"key": key, "effect": effect}])

    @fault
    def service_address_dead(self):
        """kube-proxy has made nothing of the service "kubernetes": packets to its address go nowhere."""
        self.node.nft(self._service_rule)
        return self._service_on

    def kubelet_connection(self):
        """A connection to the API server that stays open, as the kubelet's; returns the socket."""
        return self.node.call(socket.create_connection, (API[0], 443), 2)

    @fault
    def kubelet_connection_dead(self, s, pad=b"\x16\x03\x01\x00\x40"):
        """Something between forgot that connection: what either end sends on it is lost from now on, and this one has
        sent something; new ones work."""
        ends = s.getsockname()[:2]
        backs = [self._nft(self.aws, "input", "ip saddr %s tcp sport %d drop" % ends),
                 self._nft(self.aws, "output", "ip daddr %s tcp dport %d drop" % ends)]
        s.send(pad)
        return lambda: [b() for b in backs]

    # ---- what the node was told of its cluster ----

    @fault
    def cluster_ca_absent(self):
        """The file with the cluster's CA is not there."""
        return self.tree.take("etc/kubernetes/pki/ca.crt")

    @fault
    def cluster_ca(self, text=""):
        """The file with the cluster's CA is empty, or holds this text."""
        return self.tree.replace("etc/kubernetes/pki/ca.crt", text)

    @fault
    def kubeconfig(self, old, new):
        """In the kubeconfig, one text is replaced by another."""
        text = self.tree.read("var/lib/kubelet/kubeconfig").decode()
        if old not in text:
            raise ValueError("%r is not in the kubeconfig" % old)
        return self.tree.replace("var/lib/kubelet/kubeconfig", text.replace(old, new))

    # ---- proxies ----

    @fault
    def proxy_environment(self, proxy="http://%s:%d" % (PROXY_HOST, PROXY_PORT), no_proxy=NO_PROXY,
                          units=PROXY_UNITS, manager=True):
        """nodeadm's files with proxy variables: of the service manager and drop-ins of units."""
        text = ['Environment="%s=%s"\n' % (k, v) for k, v in (
            ("HTTP_PROXY", proxy), ("HTTPS_PROXY", proxy), ("NO_PROXY", no_proxy)) if v is not None]
        backs = [self.tree.replace("etc/systemd/system/%s.d/environment.conf" % u,
                                   "[Service]\n" + "".join(text)) for u in units]
        if manager:
            backs.append(self.tree.replace("etc/systemd/system.conf.d/environment.conf", "[Manager]\n" + "".join(
                x.replace("Environment=", "DefaultEnvironment=") for x in text)))
        return lambda: [b() for b in backs]

    @fault
    def only_through_the_proxy(self, api=False):
        """SYNs from the node to the AWS endpoints (and the API server) vanish: the proxy alone gets there."""
        addresses = [a for t in self.tls.values() for a in t.addresses] + (API if api else [])
        return self._nft(self.aws, "input", 'iifname "br0" ip daddr { %s } tcp dport 443 drop'
                         % ", ".join(addresses))

    @fault
    def proxy_drop(self):
        """SYNs to the proxy vanish."""
        return self._nft(self.aws, "input", "ip daddr %s tcp dport %d drop" % (PROXY, PROXY_PORT))

    @fault
    def proxy_refused(self):
        """SYNs to the proxy are answered with RST."""
        return self._nft(self.aws, "input", "ip daddr %s tcp dport %d reject with tcp reset"
                         % (PROXY, PROXY_PORT))

    @fault
    def proxy_status(self, status):
        """The proxy refuses every CONNECT with this status, as 403 or 407."""
        return self._set(self.proxy, status=status)

    @fault
    def proxy_lets_through(self, *hosts):
        """The proxy answers 403 to a CONNECT to any other host."""
        return self._set(self.proxy, only=[h.lower() for h in hosts])

    @fault
    def proxy_hang(self):
        """The proxy takes the request and says nothing."""
        return self._set(self.proxy, hang=True)
