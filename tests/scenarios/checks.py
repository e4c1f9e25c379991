# SPDX-License-Identifier: Apache-2.0
"""Scenarios of `nodewhy check`. What is expected comes from the catalogue and the contract alone."""

import json

from world import control, tlsd

from .table import ANY, broken, degraded, scenario, sound

LONG = 6 * 3600


def nothing(w):
    pass


def not_joined(w):
    """The cluster knows no Node of this name: one that is Ready gets along without what it does not reach."""
    w.api_node(404)
    w.journal_drop("Successfully registered", "just became ready")


def network(**want):
    """Numbers of status.json's network that must be exactly these."""

    def look(w, report, fail):
        got = {k: report["network"][k] for k in want}
        if got != want:
            fail("network is %r, not %r" % (got, want))

    return look


def outcomes(report, probe, subject=None):
    return [p["outcome"] for p in report["probes"] if p["name"] == probe
            and (subject is None or p["subject"] == subject)]


def endpoints_seen(w, report, fail):
    """The region was known, so names were resolved and endpoints reached."""
    if report["node"]["region"] != w.region:
        fail("region is %r" % report["node"]["region"])
    if "ok" not in outcomes(report, "dns"):     # a second nameserver may be dead
        fail("dns: %s" % outcomes(report, "dns"))
    for p in report["probes"]:
        # Every endpoint has to be reached; without metadata the registry's name is not known.
        if p["name"] == "endpoint" and p["outcome"] not in ("ok", "skipped") and (
                p["subject"], p["outcome"]) != ("ecr.dkr", "unknown"):
            fail("endpoint %s: %s" % (p["subject"], p["outcome"]))
    if not all(w.tls[s].requests for s in ("ec2", "sts")):
        fail("an endpoint got no request: %s" % {s: len(t.requests) for s, t in w.tls.items()})


def names_resolved(w, report, fail):
    """One dead nameserver is seen, and is no finding: the names resolve by the other."""
    dns = sorted((p["aspect"], p["outcome"]) for p in report["probes"] if p["name"] == "dns")
    if dns != [("name", "ok")] * 5 + [("name", "skipped"), ("server", "ok"), ("server", "timeout")]:
        fail("dns: %s" % dns)
    if set(outcomes(report, "endpoint")) != {"ok", "skipped"}:
        fail("endpoint: %s" % outcomes(report, "endpoint"))


def cannot_tell(w, report, fail):
    """Without a region nothing is judged, and nothing is guessed."""
    if report["node"]["region"] is not None:
        fail("region is %r" % report["node"]["region"])
    for probe in ("dns", "endpoint"):
        got = set(outcomes(report, probe))
        if got - {"unknown", "skipped"}:
            fail("%s was judged: %s" % (probe, got))
    asked = [q for s in w.dns.values() for q in s.queries if "amazonaws" in q[2]]
    if asked:
        fail("asked for a guessed name: %s" % asked[:3])
    for c in report["conditions"]:
        if c["type"] in ("DnsProblem", "AwsEndpointProblem") and c["status"] == "True":
            fail("%s is True" % c["type"])


def says(*words):
    """The root finding's summary holds these words."""

    def look(w, report, fail):
        summary = report["verdict"]["summary"] or ""
        for word in words:
            if word.lower() not in summary.lower():
                fail("the summary does not say %r: %s" % (word, summary))

    return look


# ---- sound nodes ----

@sound("sound/m5.large-1-eni", more=lambda w, r, fail: (
    endpoints_seen(w, r, fail), network(enis_attached=1, enis_max=3, ipv4_per_eni=10, ips_assigned=9,
                                        pod_ips_in_use=4, max_pods=29, max_pods_by_type=29)(w, r, fail),
    identity(w, r, fail)), pods=4)
def _(w):
    """The plainest node of all."""


def identity(w, report, fail):
    want = {"instance_id": w.instance_id, "instance_type": w.instance_type, "region": w.region,
            "zone": w.az, "ami_id": w.ami_id, "partition": w.partition, "private_dns": w.private_dns}
    got = {k: report["node"][k] for k in want}
    if got != want:
        fail("node is %r, not %r" % (got, want))
    e = {x["mac"]: x for x in report["network"]["enis"]}
    for eni in w.enis:
        x = e.get(eni.mac)
        got = x and {k: x[k] for k in ("eni_id", "name", "device", "card", "subnet_id", "ipv4", "pod_ips")}
        want = {"eni_id": eni.eni_id, "name": eni.name, "device": eni.device, "card": eni.card,
                "subnet_id": eni.subnet_id, "ipv4": eni.ipv4, "pod_ips": len(eni.pods)}
        if got != want:
            fail("ENI %s is %r, not %r" % (eni.mac, got, want))


sound("sound/m5.large-2-enis", enis=2, pods=12, more=lambda w, r, fail: (
    network(enis_attached=2, ips_assigned=18, pod_ips_in_use=12)(w, r, fail),
    identity(w, r, fail)))(nothing)
sound("sound/m5.large-3-enis-full", enis=3, pods=27, more=lambda w, r, fail: (
    network(enis_attached=3, ips_assigned=27, pod_ips_in_use=27)(w, r, fail),
    identity(w, r, fail)))(nothing)
sound("sound/prefix-mode", prefix_mode=True, enis=2, pods=40, more=network(
    enis_attached=2, ips_assigned=64, pod_ips_in_use=40, max_pods=110))(nothing)
sound("sound/custom-networking", custom_networking=True, enis=3, pods=10, more=lambda w, r, fail: (
    network(enis_attached=3, pod_ips_in_use=10, max_pods=20)(w, r, fail),
    identity(w, r, fail)))(nothing)
sound("sound/ipv6-cluster", ipv6=True, pods=14, more=network(
    enis_attached=1, pod_ips_in_use=14))(nothing)
sound("sound/p5.48xlarge-32-cards", instance_type="p5.48xlarge", enis=2, pods=30, cards=32,
      efa_only=[c for c in range(1, 32) if c % 4], more=network(
          enis_attached=33, pod_ips_in_use=30))(nothing)
sound("sound/eth0-names-al2", eth_names=True, al2=True, containerd="v2", enis=2, pods=12,
      more=network(enis_attached=2, pod_ips_in_use=12, max_pods=29))(nothing)
sound("sound/100-pods", instance_type="m5.4xlarge", enis=4, pods=100, more=lambda w, r, fail: (
    network(enis_attached=4, enis_max=8, pod_ips_in_use=100, max_pods=234)(w, r, fail),
    identity(w, r, fail)))(nothing)
sound("sound/private-endpoints", more=endpoints_seen)(nothing)
sound("sound/public-endpoints", public=True, more=endpoints_seen)(nothing)
sound("sound/stub-resolver", stub="alive", more=endpoints_seen)(nothing)
sound("sound/partition-china", region="cn-north-1", more=endpoints_seen)(nothing)
sound("sound/partition-govcloud", region="us-gov-west-1", more=endpoints_seen)(nothing)
sound("sound/containerd-v2", containerd="v2")(nothing)
sound("sound/kubelet-allows-fewer-pods", max_pods=17, more=network(
    max_pods=17, max_pods_by_type=29))(nothing)


@sound("sound/slow-dns", more=endpoints_seen)
def _(w):
    """DNS takes 700 ms: slow, and fine."""
    w.dns_slow(700)


@sound("sound/slow-tls", more=endpoints_seen)
def _(w):
    """Handshake and answer of the endpoints take 150 ms more each."""
    w.endpoint_slow(150)


@sound("sound/slow-metadata", more=endpoints_seen)
def _(w):
    """Metadata takes 600 ms a request."""
    w.imds_slow(600)


@sound("sound/all-slow")
def _(w):
    w.dns_slow(400)
    w.endpoint_slow(150)
    w.imds_slow(300)


@sound("sound/metadata-over-ipv6-only", imds_v6=True, more=endpoints_seen)
def _(w):
    """The IPv4 endpoint is off, the IPv6 one serves."""
    w.imds_v6_only()


@sound("sound/metadata-without-optional-keys", more=endpoints_seen)
def _(w):
    """No services/ tree: the table of partitions has to do."""
    w.imds_404_optional()


@sound("sound/dns-truncated", more=endpoints_seen)
def _(w):
    w.dns_truncated()


@sound("sound/second-nameserver-dead", more=names_resolved)
def _(w):
    w.dns_one_of_two_dead()


@sound("sound/first-nameserver-dead", more=names_resolved)
def _(w):
    w.dns_one_of_two_dead(first=True)


@sound("sound/hop-limit-3")
def _(w):
    w.imds_hop_limit(3)


@sound("sound/hop-limit-64")
def _(w):
    w.imds_hop_limit(64)


@sound("sound/leftovers-beside-the-conflist")
def _(w):
    """Backups and editor files are no CNI configuration."""
    w.cni_backup_beside()


@sound("sound/containerd-defaults")
def _(w):
    """containerd without a [cni] table, or without any file, uses its defaults."""
    w.tree.write("etc/containerd/config.toml", "version = 3\n")


@sound("sound/containerd-no-config")
def _(w):
    w.tree.remove("etc/containerd")


@sound("sound/max-pods-above-capacity", pods=5, more=network(max_pods=250))
def _(w):
    """kubelet allows more pods than the type carries; no pod asks for them."""
    w.kubelet_max_pods(250)


@sound("sound/unknown-type", notices=("LimitsUnknown",), more=network(enis_max=None, ips_max=None))
def _(w):
    """A type no table has, and EC2 may not be asked: one notice, counts without a judgement, never zero."""
    w.unknown_type()
    w.ec2_denied()


@sound("sound/branch-eni-vlan", enis=2, pods=3, needs="vlan", more=network(enis_attached=2))
def _(w):
    """A vlan on top of an ENI is not one."""
    w.vlan_on_trunk(1)


@sound("sound/endpoints-say-403", more=endpoints_seen)
def _(w):
    """Any status after a verified handshake is reachable."""
    w.endpoint_http(403)


@sound("sound/endpoint-url-of-a-service", env={"AWS_ENDPOINT_URL_STS": "https://sts.us-east-1.amazonaws.com"})
def _(w):
    """AWS_ENDPOINT_URL_STS points elsewhere; the regional name, which is dead, is not used."""
    w.zone.names["sts.us-east-1.amazonaws.com"] = {"A": w.endpoints["sts"]}
    w.dns_nxdomain(w.host("sts"))


@sound("sound/dual-stack-names", env={"AWS_USE_DUALSTACK_ENDPOINT": "true"})
def _(w):
    w.dns_nxdomain("ec2")
    w.dns_nxdomain("sts")


@sound("sound/fips-names", env={"AWS_USE_FIPS_ENDPOINT": "true"}, region="us-east-1")
def _(w):
    w.dns_nxdomain("ec2")
    w.dns_nxdomain("sts")


def seen(probe, *wanted):
    """The outcomes of a probe are these and no others."""

    def look(w, report, fail):
        if set(outcomes(report, probe)) != set(wanted):
            fail("%s: %s" % (probe, outcomes(report, probe)))

    return look


# The variables of the AWS SDKs, each where it decides.

@broken("imds/mode-ipv6-without-ipv6", "ImdsUnreachable", more=endpoints_seen,
        env={"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE": "IPv6"})
def _(w):
    """The IPv6 endpoint was chosen and is off: that the other one answers does not help the SDKs."""


@sound("sound/metadata-mode-ipv6", env={"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE": "ipv6"}, imds_v6=True,
       more=seen("imds", "ok"))
def _(w):
    w.imds_v6_only()


@broken("imds/endpoint-of-the-environment-dead", "ImdsUnreachable",
        env={"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"})
def _(w):
    """It is that endpoint which counts, for the SDKs as for us, though the real one answers."""


@sound("sound/metadata-disabled-for-sdks", env={"AWS_EC2_METADATA_DISABLED": "true"},
       more=seen("imds", "skipped"))
def _(w):
    """AWS_EC2_METADATA_DISABLED: nobody asks metadata, so it may be dead."""
    w.imds_drop()


@broken("endpoint/url-of-all-services-refuses", "EndpointRefused", subject="ec2,sts,ecr.api,s3",
        env={"AWS_ENDPOINT_URL": "http://127.0.0.1:9"})
def _(w):
    """AWS_ENDPOINT_URL, with an address in it and without TLS: no name is asked for but the registry's, which
    stands in the images'."""


@broken("endpoint/ca-bundle-of-the-environment", "EndpointUntrusted", subject="all",
        env={"AWS_CA_BUNDLE": "/etc/ssl/certs/ca-certificates.crt"})
def _(w):
    """AWS_CA_BUNDLE decides whom to trust: the system's does not hold the simulated AWS's CA."""


@scenario("sound/not-ec2", ("healthy", "blind"), {}, notices=("ImdsNotEc2",), exit=(0, 3))
def _(w):
    """A plain machine: one notice, the AWS checks are skipped, no false fault."""
    w.not_ec2()


@scenario("sound/boot-20s-no-cni", "starting", {}, exit=0, world={"uptime": 20})
def _(w):
    """Nothing has written the CNI's configuration yet."""
    w.cni_absent()


@scenario("sound/boot-20s-no-cni-directory", "starting", {}, exit=0, world={"uptime": 20})
def _(w):
    w.cni_no_directory()
    for plugin in ("aws-cni", "egress-cni", "portmap"):
        w.tree.remove("opt/cni/bin/" + plugin)


@scenario("sound/boot-20s-complete", ("healthy", "starting"), {}, exit=0, world={"uptime": 20})
def _(w):
    pass


# ---- link and route ----

@broken("link/primary-down", "PrimaryInterfaceDown", {
    "PrimaryInterfaceDown": None, "DefaultRouteMissing": "PrimaryInterfaceDown",
    "ImdsUnreachable": ANY, "ResolverUnreachable": ANY}, subject="ens5")
def _(w):
    w.link_down()


@broken("link/no-carrier", "PrimaryInterfaceDown", {
    "PrimaryInterfaceDown": None, "ImdsUnreachable": ANY, "ResolverUnreachable": ANY}, subject="ens5",
    maybe={"MetadataRouteBlocked": "PrimaryInterfaceDown"})
def _(w):
    w.no_carrier()


@broken("link/no-address", "PrimaryAddressMissing", {
    "PrimaryAddressMissing": None, "DefaultRouteMissing": "PrimaryAddressMissing",
    "ImdsUnreachable": ANY, "ResolverUnreachable": ANY}, subject="ens5")
def _(w):
    w.no_address()


@broken("route/no-default", "DefaultRouteMissing", {
    "DefaultRouteMissing": None, "ImdsUnreachable": "DefaultRouteMissing",
    "ResolverUnreachable": "DefaultRouteMissing"})
def _(w):
    w.no_default_route()


@broken("host/loopback-down", "LoopbackDown", {"LoopbackDown": None, "KubeletUnhealthy": "LoopbackDown"})
def _(w):
    w.lo_down()


# ---- metadata ----

for _fault in ("imds_route_unreachable", "imds_route_prohibit", "imds_route_blackhole",
               "imds_nft_drop_output", "imds_nft_reject_output", "imds_nft_tcp_reset", "imds_refused"):
    broken("route/" + _fault.replace("_", "-"), "MetadataRouteBlocked", more=endpoints_seen,
           maybe={"ImdsUnreachable": "MetadataRouteBlocked"})(
        lambda w, f=_fault: getattr(w, f)())


@broken("imds/drop", "ImdsUnreachable", more=endpoints_seen)
def _(w):
    """Dead metadata alone: the region comes from the kubeconfig."""
    w.imds_drop()


@broken("imds/drop-both-families", "ImdsUnreachable", more=endpoints_seen, world={"imds_v6": True})
def _(w):
    w.imds_drop()


@broken("imds/token-silent", "ImdsTokenTimeout", more=endpoints_seen)
def _(w):
    w.imds_token_silent()


@broken("imds/403", "ImdsDisabled", more=endpoints_seen)
def _(w):
    w.imds_403()


@broken("imds/401-with-a-fresh-token", "ImdsTokenRejected", more=endpoints_seen)
def _(w):
    w.imds_401_always()


for _fault in ("imds_404_identity", "imds_html", "imds_oversize", "imds_control_chars", "imds_empty"):
    broken("imds/" + _fault[5:].replace("_", "-"), "ImdsMalformed", more=endpoints_seen)(
        lambda w, f=_fault: getattr(w, f)())


@degraded("imds/503", "ImdsSlow", more=endpoints_seen)
def _(w):
    w.imds_5xx(503)


@degraded("imds/500", "ImdsSlow", more=endpoints_seen)
def _(w):
    w.imds_5xx(500)


@degraded("imds/token-503", "ImdsSlow", more=endpoints_seen)
def _(w):
    w.imds_token_5xx(503)


@degraded("imds/429", "ImdsSlow", more=endpoints_seen)
def _(w):
    w.imds_429()


@degraded("imds/slow-1500ms", "ImdsSlow", more=endpoints_seen)
def _(w):
    w.imds_slow(1500)


@degraded("imds/reset", "ImdsSlow", more=endpoints_seen)
def _(w):
    w.imds_reset()


@degraded("imds/hop-limit-1", "ImdsHopLimitLow", more=endpoints_seen)
def _(w):
    w.imds_hop_limit(1)


@degraded("imds/hop-limit-1-with-ipv6", "ImdsHopLimitLow", more=endpoints_seen, world={"imds_v6": True})
def _(w):
    w.imds_hop_limit(1)


@broken("region/unknown", "ImdsUnreachable", more=cannot_tell)
def _(w):
    """No metadata, kubeconfig, search domain or state: DNS and endpoints cannot be judged."""
    w.imds_drop()
    w.no_kubeconfig()
    w.resolv_without_search()


@broken("region/from-kubeconfig", "ImdsUnreachable", more=endpoints_seen, world={"region": "us-east-1"})
def _(w):
    w.imds_drop()
    w.resolv_without_search()


@broken("region/from-search-domain", "ImdsUnreachable", more=endpoints_seen)
def _(w):
    w.imds_drop()
    w.no_kubeconfig()


@broken("region/from-environment", "ImdsUnreachable", more=endpoints_seen,
        env={"AWS_REGION": "us-west-2"})
def _(w):
    w.imds_drop()
    w.no_kubeconfig()
    w.resolv_without_search()


# ---- DNS ----

@broken("dns/nxdomain-ec2", "NameNotFound", subject="ec2")
def _(w):
    w.dns_nxdomain("ec2")


@broken("dns/nxdomain-sts", "NameNotFound", subject="sts")
def _(w):
    w.dns_nxdomain("sts")


@broken("dns/nodata-ec2", "NameNotFound", subject="ec2")
def _(w):
    w.dns_nodata("ec2")


@broken("dns/nxdomain-both", "NameNotFound", subject=("all", "ec2, sts", "ec2,sts", "ec2 sts"))
def _(w):
    w.dns_nxdomain("ec2")
    w.dns_nxdomain("sts")


@broken("dns/servfail", "ResolverFailing", subject="10.0.0.2")
def _(w):
    w.dns_servfail()


@broken("dns/refused-rcode", "ResolverFailing", subject="10.0.0.2")
def _(w):
    w.dns_refused()


@broken("dns/custom-resolver-servfail", "ResolverFailing", subject="10.0.5.53",
        world={"nameservers": ["10.0.5.53"]})
def _(w):
    """The VPC resolver would know; the configured one does not forward."""
    w.dns_servfail(["10.0.5.53"])


@broken("dns/garbage", "ResolverFailing")
def _(w):
    w.dns_garbage()


@broken("dns/drop", "ResolverUnreachable", subject="10.0.0.2")
def _(w):
    """No answer, so no address, so nothing is said of endpoints."""
    w.dns_drop()


@broken("dns/icmp-refused", "ResolverUnreachable", subject="10.0.0.2")
def _(w):
    w.dns_icmp_refused()


@broken("dns/custom-resolver-dead", "ResolverUnreachable", subject="10.0.5.53",
        world={"nameservers": ["10.0.5.53"]})
def _(w):
    w.dns_drop(["10.0.5.53"])


@broken("dns/both-resolvers-dead", "ResolverUnreachable", subject="10.0.5.53",
        world={"nameservers": ["10.0.5.53", "10.0.5.54"]})
def _(w):
    w.dns_drop(["10.0.5.53", "10.0.5.54"])


@broken("dns/stub-dead", "ResolverStubDead", subject="127.0.0.53", world={"stub": "alive"})
def _(w):
    w.stub_dead()


@broken("dns/stub-hung", "ResolverStubDead", subject="127.0.0.53", world={"stub": "alive"})
def _(w):
    w.stub_dead(silent=True)


@broken("dns/stub-and-vpc-dead", "ResolverUnreachable", world={"stub": "alive"})
def _(w):
    """A dead stub is only the root while the resolver behind it lives."""
    w.stub_dead()
    w.dns_drop()


for _al2 in (False, True):
    @degraded("dns/pods-get-the-stub" + ("-al2" if _al2 else ""), "PodResolverLoop", subject="/etc/resolv.conf",
              world={"stub": "alive", "al2": _al2}, more=says("kubelet's default", "127.0.0.53"))
    def _(w):
        """The node resolves by its stub; in a pod 127.0.0.53 is the pod itself."""
        w.pods_get_stub()


@degraded("dns/pods-get-the-stub-by-an-argument", "PodResolverLoop", world={"stub": "alive"},
          more=says("/etc/eks/kubelet/environment"))
def _(w):
    """The argument overrides a sound configuration."""
    args = w.tree.read("etc/eks/kubelet/environment").decode()
    w.tree.replace("etc/eks/kubelet/environment", args.replace('ARGS="', 'ARGS="--resolv-conf=/etc/resolv.conf '))


@broken("dns/stub-dead-for-pods-too", "ResolverStubDead", world={"stub": "alive"})
def _(w):
    """Nobody resolves: that it is the same for pods is not another fault yet."""
    w.pods_get_stub()
    w.stub_dead()


def pods_get_none(w):
    config = json.loads(w.tree.read("etc/kubernetes/kubelet/config.json"))
    w.tree.replace("etc/kubernetes/kubelet/config.json", json.dumps(dict(config, resolvConf="")))


sound("dns/pods-get-none", stub="alive")(pods_get_none)


@broken("dns/resolv-conf-absent", "ResolverMissing")
def _(w):
    w.resolv_absent()


@broken("dns/resolv-conf-empty", "ResolverMissing")
def _(w):
    w.resolv_empty()


# ---- endpoints that some nodes ask ----

@broken("endpoint/ecr-api-missing", "EndpointTimeout", subject="ecr.api", more=says("ecr.api", "VPC endpoint"))
def _(w):
    """Token calls for image pulls go nowhere; the registry itself answers."""
    not_joined(w)
    w.endpoint_drop("ecr.api")


@broken("endpoint/s3-blocked", "EndpointTimeout", subject="s3", more=says("s3 at public 52.218.200.10"))
def _(w):
    """No gateway endpoint and no NAT: image layers."""
    not_joined(w)
    w.endpoint_drop("s3")


@broken("dns/ecr-dkr-nxdomain", "NameNotFound", subject="ecr.dkr")
def _(w):
    not_joined(w)
    w.dns_nxdomain("ecr.dkr")


@sound("sound/no-eks-endpoint")
def _(w):
    """A private cluster of AL2023 needs none: nobody asks it."""
    w.endpoint_drop("eks")
    w.dns_nxdomain("eks")


@scenario("sound/boot-60s-no-registry", ("healthy", "starting"), {}, exit=0, world={"uptime": 65})
def _(w):
    """Whether a node that has just booted needs ECR cannot be told yet."""
    w.endpoint_drop("ecr.api")
    w.endpoint_drop("s3")


@broken("endpoint/eks-asked-by-bootstrap", "EndpointTimeout", subject="eks", world={"al2": True})
def _(w):
    """AL2's bootstrap.sh waits for EKS to tell it the API server."""
    w.tree.write("etc/eks/bootstrap.sh", "aws eks describe-cluster --name $CLUSTER_NAME\n")
    w.kubeconfig("https://" + w.api_host(), "MASTER_ENDPOINT")
    w.cluster_ca_absent()
    w.endpoint_drop("eks")


# ---- proxies ----

@sound("sound/proxy", more=seen("proxy", "ok"))
def _(w):
    """kubelet, containerd and nodeadm are told to use a proxy; what is near is exempt."""
    w.proxy_environment()


@sound("sound/only-through-the-proxy")
def _(w):
    """There is no other way out; names of AWS are the proxy's to resolve, too."""
    w.proxy_environment(no_proxy="169.254.169.254,.internal")
    w.only_through_the_proxy(api=True)
    w.dns_nxdomain("sts")


@sound("sound/proxy-of-nobody")
def _(w):
    """All that the node needs is exempt: a dead proxy is a matter of pods."""
    w.proxy_environment(no_proxy=control.NO_PROXY + ",.amazonaws.com")
    w.proxy_drop()


@sound("sound/proxy-wants-a-password")
def _(w):
    """The units have one, we do not."""
    w.proxy_environment(proxy="http://node:s3cr3tOfTheProxy@%s:3128" % control.PROXY_HOST)
    w.proxy_status(407)


@broken("proxy/metadata-not-exempt", "ProxyMisconfigured",
        subject="kubelet.service,containerd.service,nodeadm-config.service,nodeadm-run.service",
        more=says("HTTP_PROXY=http://proxy.corp.example:3128", "NO_PROXY lacks 169.254.169.254"))
def _(w):
    not_joined(w)
    w.proxy_environment(no_proxy="10.0.0.0/16,.eks.amazonaws.com,172.20.0.0/16",
                        proxy="http://node:s3cr3tOfTheProxy@%s:3128" % control.PROXY_HOST)


@broken("proxy/refuses", "ProxyMisconfigured", more=says("proxy.corp.example:3128", "refused"))
def _(w):
    not_joined(w)
    w.proxy_environment()
    w.only_through_the_proxy()
    w.proxy_refused()


@broken("proxy/silent", "ProxyMisconfigured", more=says("no answer in 1.2 s"))
def _(w):
    not_joined(w)
    w.proxy_environment()
    w.only_through_the_proxy()
    w.proxy_drop()


@broken("proxy/wants-a-password-that-nobody-gives", "ProxyMisconfigured", more=says("answers 407"))
def _(w):
    not_joined(w)
    w.proxy_environment()
    w.proxy_status(407)


@broken("proxy/name-not-there", "ProxyMisconfigured", more=says("does not resolve"))
def _(w):
    not_joined(w)
    w.proxy_environment()
    w.dns_nxdomain(control.PROXY_HOST)


@broken("proxy/does-not-let-the-api-server-through", "ProxyMisconfigured",
        more=says("403 to CONNECT", "NO_PROXY lacks the API server"))
def _(w):
    """We get there directly, and the kubelet does not: it goes through the proxy."""
    w.proxy_environment(no_proxy="169.254.169.254,10.0.0.0/16,.internal")
    w.proxy_lets_through(*[w.host(s) for s in w.endpoints])


@broken("proxy/does-not-let-ecr-through", "EndpointTimeout", subject="ecr.api",
        more=says("the proxy answers 403 to CONNECT"))
def _(w):
    not_joined(w)
    w.proxy_environment()
    w.only_through_the_proxy()
    w.proxy_lets_through(*[w.host(s) for s in w.endpoints if s != "ecr.api"])


# ---- the API server ----

def api_server(name, root, set_up, *words, **options):
    """A fault of the cluster's API server alone: one root, these words, and AWS is as it was."""

    def more(w, report, fail):
        says(*words)(w, report, fail)
        endpoints_seen(w, report, fail)

    broken("apiserver/" + name, root, more=more, **options)(set_up)


api_server("no-answer", "ApiServerTimeout", lambda w: w.api_drop(), "10.0.", "no connection in 1.0 s")
api_server("refused", "ApiServerRefused", lambda w: w.api_refused(), "refused")
api_server("name-not-there", "ApiServerUnresolvable", lambda w: w.api_unresolvable(),
           "10.0.0.2 NXDOMAIN", "169.254.169.253 NXDOMAIN")
api_server("name-not-forwarded", "ApiServerUnresolvable", lambda w: w.api_servfail(servers=["10.0.0.2"]),
           "10.0.0.2 SERVFAIL", "169.254.169.253 resolves it")
api_server("cluster-made-anew", "ApiServerUntrusted", lambda w: w.api_other_cluster(), "cluster CA",
           'issuer "kubernetes"')
api_server("intercepted", "ApiServerUntrusted", lambda w: w.api_intercepted(), "Inspection CA")
api_server("expired", "ApiServerUntrusted", lambda w: w.api_expired(), "expired")
api_server("another-name", "ApiServerUntrusted", lambda w: w.api_wrong_name(), "hostname mismatch")
api_server("resets-tls", "ApiServerRefused", lambda w: w.api_rst(), "TLS handshake")
api_server("tls-stalls", "ApiServerTimeout", lambda w: w.api_tls_stall(), "no TLS answer")
api_server("hangs", "ApiServerFailing", lambda w: w.api_hang(), "no answer to GET /livez")
api_server("answers-503", "ApiServerFailing", lambda w: w.api_http(503), "503")
api_server("ca-absent", "ClusterCaInvalid", lambda w: w.cluster_ca_absent(), "ca.crt is absent",
           subject="/etc/kubernetes/pki/ca.crt")
api_server("ca-empty", "ClusterCaInvalid", lambda w: w.cluster_ca(""), "no certificate (0 bytes)",
           subject="/etc/kubernetes/pki/ca.crt")
api_server("arguments-shifted", "ClusterCaInvalid",
           lambda w: w.kubeconfig("- world", "- --enable-docker-bridge"), "--enable-docker-bridge",
           subject="/var/lib/kubelet/kubeconfig")
api_server("kubeconfig-broken", "ClusterCaInvalid", lambda w: w.kubeconfig("clusters:", "clusters: ["), "cannot be used",
           subject="/var/lib/kubelet/kubeconfig")


@sound("sound/api-server-without-anonymous-access")
def _(w):
    """401 to GET /livez is an answer."""
    w.api_livez(401)


@sound("sound/one-address-of-the-api-server-dead", more=seen("apiserver", "ok", "skipped"))
def _(w):
    """The kubelet goes on to the other address, and so do we."""
    w._nft(w.aws, "input", "ip daddr 10.0.3.91 tcp dport 443 drop")


@sound("sound/kubeconfig-of-al2-not-filled-in", al2=True)
def _(w):
    """The image's template names no server yet; nothing has failed."""
    host = w.api_host()
    w.kubeconfig("https://" + host, "MASTER_ENDPOINT")
    w.cluster_ca_absent()


# ---- endpoints ----

@broken("endpoint/drop-all", "EndpointTimeout", subject="all", more=says("private"))
def _(w):
    w.endpoint_drop()


@broken("endpoint/drop-ec2", "EndpointTimeout", subject="ec2", more=says("private"))
def _(w):
    w.endpoint_drop("ec2")


@broken("endpoint/drop-sts", "EndpointTimeout", subject="sts")
def _(w):
    w.endpoint_drop("sts")


@broken("endpoint/drop-public", "EndpointTimeout", subject="all", world={"public": True},
        more=says("public"))
def _(w):
    w.endpoint_drop()


@broken("endpoint/refused-all", "EndpointRefused", subject="all")
def _(w):
    w.endpoint_refused()


@broken("endpoint/reset-ec2", "EndpointRefused", subject="ec2")
def _(w):
    w.endpoint_rst("ec2")


@broken("endpoint/icmp-prohibited", "EndpointRefused", subject="all",
        one_of={"EndpointRefused": ("EndpointTimeout",)})
def _(w):
    w.endpoint_icmp()


@broken("endpoint/intercepted", "EndpointUntrusted", subject="all", more=says(tlsd.INTERCEPTOR[:20]))
def _(w):
    """The summary names who signed what it does not trust."""
    w.endpoint_untrusted()


@broken("endpoint/expired-certificate", "EndpointUntrusted", subject="sts", more=says("expired"))
def _(w):
    w.endpoint_expired("sts")


@broken("endpoint/wrong-name", "EndpointUntrusted", subject="ec2")
def _(w):
    w.endpoint_wrong_name("ec2")


@broken("endpoint/tls-stalled", "EndpointTlsStalled", subject="all")
def _(w):
    w.endpoint_tls_stall()


@broken("endpoint/drop-after-connect", "EndpointTlsStalled", subject="ec2")
def _(w):
    w.endpoint_drop_after_connect("ec2")


@degraded("endpoint/503", "EndpointFailing", subject="all")
def _(w):
    w.endpoint_http(503)


@degraded("endpoint/500-ec2", "EndpointFailing", subject="ec2")
def _(w):
    w.endpoint_http(500, "ec2")


@scenario("endpoint/no-http-answer", ("degraded", "broken"), {"EndpointFailing": None}, subject="ec2",
          one_of={"EndpointFailing": ("EndpointTimeout",)}, exit=(1, 2))
def _(w):
    w.endpoint_hang_http("ec2")


# ---- CNI files ----

@broken("cni/config-absent", "CniConfigMissing")
def _(w):
    w.cni_absent()


@broken("cni/directory-absent", "CniConfigMissing")
def _(w):
    w.cni_no_directory()


for _fault in ("cni_invalid", "cni_empty", "cni_no_plugins"):
    broken("cni/" + _fault[4:].replace("_", "-"), "CniConfigInvalid", more=says("10-aws.conflist"))(
        lambda w, f=_fault: getattr(w, f)())


@broken("cni/foreign-first", "CniConfigForeign", more=says("05-cilium.conflist"))
def _(w):
    w.cni_foreign_first()


@broken("cni/binary-missing", "CniBinaryMissing", more=says("aws-cni"))
def _(w):
    w.cni_binary_missing()


@broken("cni/portmap-missing", "CniBinaryMissing", more=says("portmap"))
def _(w):
    w.cni_binary_missing("portmap")


@broken("cni/binary-not-executable", "CniBinaryMissing", more=says("aws-cni"))
def _(w):
    w.cni_binary_not_executable()


@broken("cni/conf-dir-elsewhere", "CniDirMismatch", more=says("/etc/cni/other.d"),
        maybe={"CniConfigMissing": "CniDirMismatch"})
def _(w):
    w.cni_dirs_elsewhere(conf="/etc/cni/other.d")


@broken("cni/bin-dir-elsewhere", "CniDirMismatch", more=says("/usr/libexec/cni"),
        maybe={"CniBinaryMissing": "CniDirMismatch"}, world={"containerd": "v2"})
def _(w):
    w.cni_dirs_elsewhere(bin="/usr/libexec/cni")


@broken("cni/conf-dir-in-a-drop-in", "CniDirMismatch", maybe={"CniConfigMissing": "CniDirMismatch"},
        world={"containerd": "v2"})
def _(w):
    """A file that containerd imports overrides the directory."""
    w.tree.mkdir("etc/cni/other.d")
    w.tree.write("etc/containerd/config.d/99-site.toml", 'version = 2\n'
                 '[plugins."io.containerd.grpc.v1.cri".cni]\nconf_dir = "/etc/cni/other.d"\n')


# ---- ENIs ----

@degraded("eni/link-missing", "EniLinkMissing", world={"enis": 2},
          more=lambda w, r, fail: None if any(
              x in json.dumps([[f["subject"], f["summary"]] for f in r["findings"]])
              for x in (w.enis[1].mac, w.enis[1].eni_id))
          else fail("neither MAC nor ENI id is named: %r" % r["findings"]))
def _(w):
    w.eni_link_gone(1)


# ---- two faults at once ----

@broken("two/hop-limit-and-ec2-timeout", "EndpointTimeout", {
    "EndpointTimeout": None, "ImdsHopLimitLow": None}, subject="ec2")
def _(w):
    """Independent: the fatal one first."""
    w.imds_hop_limit(1)
    w.endpoint_drop("ec2")


@broken("two/ec2-untrusted-and-sts-timeout", "EndpointTimeout", {
    "EndpointUntrusted": None, "EndpointTimeout": None},
    one_of={"root": ("EndpointUntrusted", "EndpointTimeout")})
def _(w):
    w.endpoint_untrusted("ec2")
    w.endpoint_drop("sts")


@broken("two/ec2-nxdomain-and-sts-timeout", "NameNotFound", {
    "NameNotFound": None, "EndpointTimeout": None}, subject="ec2")
def _(w):
    """A missing name explains only its own endpoint."""
    w.dns_nxdomain("ec2")
    w.endpoint_drop("sts")


@broken("two/sts-nxdomain-and-ec2-503", "NameNotFound", {
    "NameNotFound": None, "EndpointFailing": None}, subject="sts")
def _(w):
    w.dns_nxdomain("sts")
    w.endpoint_http(503, "ec2")


@broken("two/token-silent-and-servfail", "ImdsTokenTimeout", {
    "ImdsTokenTimeout": None, "ResolverFailing": None})
def _(w):
    """DNS does not need metadata once the region is known."""
    w.imds_token_silent()
    w.dns_servfail()


@broken("two/loopback-down-and-stub", "LoopbackDown", {
    "LoopbackDown": None, "ResolverStubDead": "LoopbackDown", "KubeletUnhealthy": "ResolverStubDead"},
    world={"stub": "alive"})
def _(w):
    """One fault, three symptoms: the stub and kubelet are alive, and cannot be reached."""
    w.lo_down()


@broken("two/no-default-route-and-no-cni", "DefaultRouteMissing", {
    "DefaultRouteMissing": None, "ImdsUnreachable": "DefaultRouteMissing",
    "ResolverUnreachable": "DefaultRouteMissing", "CniConfigMissing": ANY})
def _(w):
    w.no_default_route()
    w.cni_absent()


@broken("two/primary-down-and-no-cni", "PrimaryInterfaceDown", {
    "PrimaryInterfaceDown": None, "DefaultRouteMissing": "PrimaryInterfaceDown",
    "ImdsUnreachable": ANY, "ResolverUnreachable": ANY, "CniConfigMissing": ANY}, subject="ens5")
def _(w):
    w.link_down()
    w.cni_absent()


@broken("two/metadata-dead-and-no-cni", "ImdsUnreachable", {
    "ImdsUnreachable": None, "CniConfigMissing": "ImdsUnreachable"})
def _(w):
    """aws-node cannot start without metadata, so the missing file is a symptom."""
    w.imds_drop()
    w.cni_absent()


@broken("two/metadata-off-and-no-cni", "ImdsDisabled", {
    "ImdsDisabled": None, "CniConfigMissing": "ImdsDisabled"})
def _(w):
    w.imds_403()
    w.cni_absent()


@broken("two/servfail-and-no-cni", "ResolverFailing", {
    "ResolverFailing": None, "CniConfigMissing": "ResolverFailing"})
def _(w):
    w.dns_servfail()
    w.cni_absent()


@broken("two/ec2-timeout-and-no-cni", "EndpointTimeout", {
    "EndpointTimeout": None, "CniConfigMissing": "EndpointTimeout"}, subject="ec2")
def _(w):
    w.endpoint_drop("ec2")
    w.cni_absent()


@broken("two/hop-limit-and-cni-binary", "CniBinaryMissing", {
    "CniBinaryMissing": None, "ImdsHopLimitLow": None})
def _(w):
    w.imds_hop_limit(1)
    w.cni_binary_missing()


@degraded("two/hop-limit-and-eni-link", "ImdsHopLimitLow", {
    "ImdsHopLimitLow": None, "EniLinkMissing": None}, world={"enis": 2})
def _(w):
    w.imds_hop_limit(1)
    w.eni_link_gone(1)


@broken("two/metadata-blocked-here-and-sts-timeout", "MetadataRouteBlocked", {
    "MetadataRouteBlocked": None, "EndpointTimeout": None},
    maybe={"ImdsUnreachable": "MetadataRouteBlocked"})
def _(w):
    """A route for one address cannot be why another address is silent."""
    w.imds_route_prohibit()
    w.endpoint_drop("sts")


@broken("two/everything-silent", "ImdsUnreachable", {
    "ImdsUnreachable": None, "ResolverUnreachable": None}, within=4.0)
def _(w):
    """Metadata, DNS and endpoints drop packets while link and route are sound: in under 4 s."""
    w.imds_drop()
    w.dns_drop()
    w.endpoint_drop()
