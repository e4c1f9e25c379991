# SPDX-License-Identifier: Apache-2.0
"""Scenarios of the VPC CNI, of pod addresses and of the pods' network: the handed cases that can be built, every
code that a probe raises there, and sound nodes at their limits. What is expected comes from the catalogue and the
contract alone."""

import os
import re
import time
import unicodedata

from .checks import network, nothing, outcomes
from .daemons import alarms, cleared, raised, start, wait_event
from .table import ANY, broken, daemon, degraded, scenario, sound

M5, FULL = "m5.large", {"enis": 3, "pods": 27}


def every(*looks):
    """Each of these looks at the report."""

    def look(w, report, fail):
        for one in looks:
            one(w, report, fail)

    return look


def told(code, *words):
    """The summary of this finding holds these words; callables are asked of the world for theirs."""

    def look(w, report, fail):
        found = [f for f in report["findings"] if f["code"] == code]
        if not found:
            fail("%s is not there" % code)
        for f in found:
            for word in words:
                word = word(w) if callable(word) else word
                if word.lower() not in f["summary"].lower():
                    fail("%s does not say %r: %s" % (code, word, f["summary"]))

    return look


def root(code, *words):
    """The verdict names it, with these words, and says what to type."""

    def look(w, report, fail):
        told(code, *words)(w, report, fail)
        if report["verdict"]["root"] == code and not report["verdict"]["remedy"]:
            fail("%s without a remedy" % code)

    return look


def conditions(*wanted):
    """These node conditions are True, and no other: a consequence does not page."""

    def look(w, report, fail):
        got = sorted(c["type"] for c in report["conditions"] if c["status"] == "True")
        if got != sorted(wanted):
            fail("conditions %s, not %s" % (got, sorted(wanted)))

    return look


def no_ec2_call(w, report, fail):
    """EC2's API was not asked for anything: what there is are unsigned looks at the endpoint."""
    if w.ec2.calls:
        fail("EC2 was called: %s" % w.ec2.calls)


# ---- aws-node and ipamd ----


@broken("vpc-cni/never-scheduled", "AwsNodeNotRunning", {
    "AwsNodeNotRunning": None, "CniConfigMissing": "AwsNodeNotRunning"}, more=conditions("CniProblem"))
def _(w):
    """C053: no sandbox, no log, no configuration since boot. The scheduler's reason is not the node's to see."""
    w.aws_node_absent()


@broken("vpc-cni/gone", "AwsNodeNotRunning", more=conditions("CniProblem"))
def _(w):
    """Its processes are gone after it ran well: the configuration stays, no pod gets an address."""
    w.ipamd_down()


@broken("vpc-cni/silent", "IpamdNotServing", more=conditions("CniProblem"))
def _(w):
    """It lives, takes connections and answers nothing."""
    w.ipamd_silent()


@broken("vpc-cni/silent-on-port-50051", "IpamdNotServing", world={"cni": "v1.19.2"})
def _(w):
    """The same of a version before the socket was a file."""
    w.ipamd_silent()


@broken("vpc-cni/crash-loop", "AwsNodeCrashLooping", {
    "AwsNodeCrashLooping": None, "IpamdNotServing": "AwsNodeCrashLooping", "CniConfigMissing": "IpamdNotServing"},
    more=root("AwsNodeCrashLooping", "5 times", "exit code 2 (a panic"))
def _(w):
    """It ends for a reason that nobody knows, before it was ever healthy."""
    w.aws_node_crash_loop(5, 2, "no such thing")


@broken("vpc-cni/crash-loop-after-it-worked", "AwsNodeCrashLooping", {
    "AwsNodeCrashLooping": None, "IpamdNotServing": "AwsNodeCrashLooping"})
def _(w):
    w.aws_node_crash_loop(5, 1, "panic: runtime error", conflist=True)


@broken("vpc-cni/out-of-memory", "AwsNodeCrashLooping", {
    "AwsNodeCrashLooping": None, "IpamdNotServing": "AwsNodeCrashLooping", "CniConfigMissing": "IpamdNotServing"},
    more=root("AwsNodeCrashLooping", "5 times", "exit code 137 (out of memory)"))
def _(w):
    """Killed as by its probe, but for its memory: the runtime says so."""
    w.aws_node_crash_loop(5, 137, reason="OOMKilled")


@broken("vpc-cni/crash-loop-of-an-old-runtime", "AwsNodeCrashLooping", {
    "AwsNodeCrashLooping": None, "IpamdNotServing": ANY, "CniConfigMissing": ANY},
    world={"al2": True, "containerd": "v2", "eth_names": True}, more=root("AwsNodeCrashLooping", "exit code 1", "ipamd: no such thing"))
def _(w):
    """Its own last error is told with it."""
    w.ipamd_log("error", "Initialization failure: no such thing", 21)
    w.aws_node_crash_loop(5, 1, "no such thing")


@broken("vpc-cni/killed-by-its-probe", "AwsNodeProbeKilled", {
    "AwsNodeProbeKilled": None, "AwsNodeCrashLooping": "AwsNodeProbeKilled", "IpamdNotServing": ANY,
    "CniConfigMissing": ANY}, more=root("AwsNodeProbeKilled", "12 times", "exit code 137", "liveness probe"))
def _(w):
    """C020: exit 137, the liveness probe's lines in kubelet's journal, no error in its own log."""
    w.aws_node_probe_killed()


def untold(code, word):
    """No summary of this finding speaks of that."""

    def look(w, report, fail):
        for f in report["findings"]:
            if f["code"] == code and word in f["summary"]:
                fail("%s says %r: %s" % (code, word, f["summary"]))

    return look


@degraded("vpc-cni/policy-agent-crash-loop", "NetworkPolicyAgentFailing", more=every(
    root("NetworkPolicyAgentFailing", "aws-eks-nodeagent", "6 times"), untold("NetworkPolicyAgentFailing", "bpf"),
    conditions("CniProblem")))
def _(w):
    """C010: the other container of the pod ends, ipamd is well."""
    w.nodeagent_crash_loop()


@degraded("vpc-cni/policy-agent-without-bpffs", "NetworkPolicyAgentFailing", more=every(
    root("NetworkPolicyAgentFailing", "aws-eks-nodeagent", "6 times", "exit code 1", "/sys/fs/bpf is not a bpf file system"),
    conditions("CniProblem")))
def _(w):
    """C010: it ends because /sys/fs/bpf is not mounted."""
    w.nodeagent_crash_loop(bpffs=True)


@sound("vpc-cni/policy-agent-well-without-bpffs", pods=2)
def _(w):
    """Who enforces no policies gets along without it."""
    w.bpffs_missing()


@broken("vpc-cni/left-over-configuration", "AwsNodeNotRunning", {
    "AwsNodeNotRunning": None, "CniConfigStale": "AwsNodeNotRunning"}, more=every(
        told("CniConfigStale", "10-aws.conflist is 60 min older than this boot", "for 360 min"), conditions("CniProblem")))
def _(w):
    """The node was rebooted and looks ready by the file of the boot before; aws-node has not come back."""
    w.ipamd_down()
    w.cni_config_left_over()


@broken("vpc-cni/left-over-configuration-and-crash-loop", "AwsNodeCrashLooping", {
    "AwsNodeCrashLooping": None, "IpamdNotServing": "AwsNodeCrashLooping", "CniConfigStale": "IpamdNotServing"})
def _(w):
    """The same, and aws-node ends again and again."""
    w.aws_node_crash_loop(5, 1, "panic: runtime error", conflist=True)
    w.cni_config_left_over()


@broken("vpc-cni/left-over-configuration-and-ec2-silent", "EndpointTimeout", {
    "EndpointTimeout": None, "AwsNodeCrashLooping": "EndpointTimeout", "IpamdNotServing": ANY, "CniConfigStale": ANY},
    subject="ec2")
def _(w):
    w.endpoint_drop("ec2")
    w.aws_node_crash_loop(5, 1, "Initialization failure", conflist=True)
    w.cni_config_left_over()


@sound("vpc-cni/left-over-configuration-and-it-serves", pods=2)
def _(w):
    """Its date is no fault: a clock that was wrong, a file that was restored."""
    w.cni_config_left_over()


@scenario("vpc-cni/rebooted-a-moment-ago", ("healthy", "starting"), {}, exit=0, world={"uptime": 90})
def _(w):
    """After a reboot the file of before is there, aws-node not yet."""
    w.ipamd_down()
    w.cni_config_left_over()


def unauthorized(name, api, role=None, **options):
    """EC2 refuses ipamd a call: the role and the call are named, and all else follows from it."""

    def more(w, report, fail):
        root("IpamdUnauthorized", api, role or w.role)(w, report, fail)
        conditions("CniProblem")(w, report, fail)

    broken("vpc-cni/unauthorized-" + name, "IpamdUnauthorized", {
        "IpamdUnauthorized": None, "AwsNodeCrashLooping": "IpamdUnauthorized", "IpamdNotServing": ANY,
        "CniConfigMissing": ANY},
        more=more, **options)(lambda w: w.ipamd_unauthorized(
            api, role and "arn:aws:sts::%s:assumed-role/%s/%s" % (w.account, role, w.instance_id)))


unauthorized("node-role", "DescribeNetworkInterfaces")                      # C005
unauthorized("security-groups", "DescribeSecurityGroups")                   # C051: a newer CNI wants more
unauthorized("subnets", "DescribeSubnets")
unauthorized("another-role", "DescribeNetworkInterfaces", "old-cni-role")    # C061


@broken("vpc-cni/unauthorized-while-it-serves", "IpamdUnauthorized",
          more=root("IpamdUnauthorized", "CreateNetworkInterface"))
def _(w):
    """C061: hours after the role was changed; ipamd still serves what it has."""
    w.ipamd_refused_call("CreateNetworkInterface", ago=40)


@broken("vpc-cni/service-address-dead", "ServiceAddressUnreachable", {
    "ServiceAddressUnreachable": None, "CniApiServerUnreachable": "ServiceAddressUnreachable",
    "IpamdNotServing": ANY, "CniConfigMissing": ANY})
def _(w):
    """C021: kube-proxy has made nothing of the service address, ipamd waits for it."""
    w.service_address_dead()
    w.ipamd_api_server_unreachable()


@broken("vpc-cni/api-server-not-reached", "CniApiServerUnreachable", {
    "CniApiServerUnreachable": None, "IpamdNotServing": ANY, "CniConfigMissing": ANY},
    more=root("CniApiServerUnreachable", "service address", "timeout", "12 times"))
def _(w):
    """The service address answers us, not ipamd: it is its own word."""
    w.ipamd_api_server_unreachable()


@broken("vpc-cni/eniconfig-missing", "EniConfigMissing", {
    "EniConfigMissing": None, "AwsNodeCrashLooping": "EniConfigMissing", "IpamdNotServing": ANY,
        "CniConfigMissing": ANY},
    world={"custom_networking": True}, more=root("EniConfigMissing", lambda w: w.az))
def _(w):
    """C022: no ENIConfig of the zone's name."""
    w.eniconfig_missing()


@broken("vpc-cni/instance-type-unknown", "InstanceTypeUnknown", {
    "InstanceTypeUnknown": None, "AwsNodeCrashLooping": "InstanceTypeUnknown", "IpamdNotServing": ANY,
        "CniConfigMissing": ANY},
    more=root("InstanceTypeUnknown", M5))
def _(w):
    """DescribeInstanceTypes is refused too, and follows from the same lines: the type is the root."""
    w.ipamd_unknown_type()


@broken("vpc-cni/own-role-and-sts-silent", "EndpointTimeout", {
    "EndpointTimeout": None, "CniIdentityUnreachable": "EndpointTimeout", "IpamdNotServing": ANY,
    "CniConfigMissing": ANY}, subject="sts")
def _(w):
    """With a role of its own, ipamd asks STS first: its log stops in mid-start, again and again."""
    w.ipamd_identity_silent()
    w.endpoint_drop("sts")


@broken("vpc-cni/own-role-log-stops", "CniIdentityUnreachable", {
    "CniIdentityUnreachable": None, "IpamdNotServing": ANY, "CniConfigMissing": ANY},
    more=root("CniIdentityUnreachable", "sts"))
def _(w):
    """The same where STS answers us: what the log shows is all there is."""
    w.ipamd_identity_silent()


@degraded("vpc-cni/policy-agent-forbidden", "NetworkPolicyAgentFailing")
def _(w):
    """C010: the CRD and the role of the new version were not applied."""
    w.policy_agent_forbidden()


# ---- which of the five it is that refuses a pod its address ----

def full(name, code, set_up, *words, codes=None, **options):
    """A pod was refused an address: this is why, with numbers, and PodAddressProblem alone is True."""

    degraded("address/" + name, code, codes, more=every(root(code, *words), conditions("PodAddressProblem")),
             **options)(set_up)


full("subnet-full", "SubnetExhausted", lambda w: w.subnet_exhausted(),
     "InsufficientFreeAddressesInSubnet", world={"enis": 2, "pods": 18})                        # C015
full("subnet-full-no-eni", "SubnetExhausted", lambda w: (w.subnet_exhausted("CreateNetworkInterface"),
     w.ec2_denied()), "InsufficientFreeAddressesInSubnet", world={"enis": 2, "pods": 18})
full("subnet-fragmented", "SubnetFragmented", lambda w: w.subnet_fragmented(), "InsufficientCidrBlocks",
     world={"prefix_mode": True, "enis": 2, "pods": 64})
full("type-limit", "AddressLimitReached", lambda w: w.eni_limit_reached(), "3 of 3 ENIs, 27 of 27 addresses in use, "
     "m5.large", world=FULL)
full("max-pods", "MaxPodsExceedsCapacity", lambda w: w.eni_limit_reached(), "58", "29", "3 of 3 ENIs, 27 of 27 addresses "
     "in use, m5.large", codes={"MaxPodsExceedsCapacity": None, "AddressLimitReached": "MaxPodsExceedsCapacity"},
     world={"enis": 3, "pods": 27, "max_pods": 58})                                             # C016
full("max-pods-custom-networking", "MaxPodsExceedsCapacity", lambda w: w.eni_limit_reached(), "29", "20",
     "3 of 3 ENIs, 18 of 18 addresses in use, m5.large", codes={
         "MaxPodsExceedsCapacity": None, "AddressLimitReached": "MaxPodsExceedsCapacity"},
     world={"enis": 3, "pods": 18, "custom_networking": True, "max_pods": 29})                  # C016
full("cooldown", "AddressCooldown", lambda w: w.address_cooldown(), "2", "3 of 3 ENIs, 25 of 27 addresses in use, "
     "m5.large", world={"enis": 3, "pods": 25})
full("eni-quota", "EniQuotaReached", lambda w: w.eni_quota_reached(), "NetworkInterfaceLimitExceeded",
     world={"enis": 2, "pods": 18})
full("eni-not-attached", "EniAttachFailed", lambda w: w.eni_attach_failed(), "no device number",
     world={"enis": 2, "pods": 18})


@degraded("address/slot-of-an-unmanaged-eni", "EniLimitReached", world={"enis": 3, "pods": 18},
          more=root("EniLimitReached", "3 of 3 ENIs, 18 of 27 addresses in use, m5.large"))
def _(w):
    """Two ENIs are full, the third bears no_manage: a slot is held by what carries no pods."""
    w.eni_unmanaged(2)
    w.eni_limit_reached(check=False)


# Others of the address layer.

@degraded("address/trunk-never-came", "TrunkEniMissing", world={"enis": 2, "pods": 5, "instance_type": "m5.xlarge"},
          more=every(root("TrunkEniMissing", "ENABLE_POD_ENI"), conditions("PodAddressProblem")))
def _(w):
    """C009: a slot is held for a trunk that never came."""
    w.trunk_missing()


@degraded("address/trunk-on-a-type-that-cannot", "TrunkEniMissing", world={"enis": 2, "pods": 6,
                                                                          "instance_type": "t3.small"},
          more=root("TrunkEniMissing", "2 of 3 ENIs", "t3.small"))
def _(w):
    """The slot is held for nothing, and that is felt: a pod was refused."""
    w.trunk_missing()
    w.eni_limit_reached()


@sound("address/trunk-on-a-type-that-cannot-unfelt", enis=2, pods=3, instance_type="t3.small")
def _(w):
    """The slot is held for nothing, and nobody asked for it yet."""
    w.trunk_missing(refused=False)


@degraded("address/prefix-mode-on-xen", "PrefixModeUnsupported", world={"instance_type": "m4.large", "max_pods": 110},
          more=root("PrefixModeUnsupported", "m4.large", "ENABLE_PREFIX_DELEGATION"))
def _(w):
    """C050: ipamd falls back, max-pods counted on the prefixes."""
    w.prefix_unsupported()


@degraded("address/ipv6-on-xen", "PrefixModeUnsupported", world={"instance_type": "m4.large", "ipv6": True},
          more=root("PrefixModeUnsupported", "m4.large", "ENABLE_IPv6"))
def _(w):
    """C050: IPv6 needs prefixes."""


@sound("address/prefix-mode-on-xen-falls-back", instance_type="m4.large", pods=3)
def _(w):
    """It falls back to single addresses, and nobody had counted on more."""
    w.prefix_unsupported()


@degraded("address/allocations-lost", "AllocationsLost", world={"enis": 2, "pods": 12},
          more=every(root("AllocationsLost", "2 of 12 pods' addresses"), conditions("PodAddressProblem")))
def _(w):
    """C036: ipamd forgot two pods that live."""
    w.allocations_lost()


@degraded("address/eni-unconfigured", "EniUnconfigured", world={"enis": 2, "pods": 12},
          more=root("EniUnconfigured", lambda w: w.enis[1].eni_id, "ens6", "device 1"))
def _(w):
    """A link without table and rule; ipamd thinks that it is its own."""
    w.eni_unconfigured()


@degraded("address/eni-gone", "EniGone", world={"enis": 2, "pods": 12}, maybe={"PodRulesMissing": "EniGone"})
def _(w):
    """#3887: pods hold addresses of an ENI that is in neither kernel nor metadata."""
    w.eni_gone()


sound("address/eni-unmanaged", enis=2, pods=3)(lambda w: w.eni_unmanaged())


# ---- the network of the pods ----

@degraded("podnet/networkd-took-eni", "NetworkdManagesEni", {
    "NetworkdManagesEni": None, "PodRulesMissing": "NetworkdManagesEni"}, world={"enis": 2, "pods": 12}, subject="ens6",
    maybe={"EniRouteConflict": None}, more=every(
        told("PodRulesMissing", "of 12 pod addresses 12", "networkd was restarted 12"), conditions("HostNetworkProblem")))
def _(w):
    """C001: networkd was restarted and configured the secondary ENI; the pods' rules are gone."""
    w.networkd_took_eni()


@degraded("podnet/rules-flushed", "PodRulesMissing", world={"enis": 2, "pods": 12},
          more=every(root("PodRulesMissing", "of 12 pod addresses 12"), conditions("HostNetworkProblem")))
def _(w):
    """Somebody removed them and left no trace: the symptom is all there is."""
    w.rules_flushed()


@degraded("podnet/routes-flushed", "PodRulesMissing", world={"pods": 4}, more=root("PodRulesMissing", "4 their route"))
def _(w):
    w.pod_routes_flushed()


@degraded("podnet/nm-cloud-setup", "NetworkManagerInterferes", world={"enis": 2, "pods": 5})
def _(w):
    w.nm_cloud_setup()


@degraded("podnet/mac-policy-persistent", "MacPolicyPersistent", world={"pods": 4}, more=root("MacPolicyPersistent", "4"))
def _(w):
    """C013: udev gave the pods' links another MAC."""
    w.mac_policy_persistent()


@degraded("podnet/ip-forward-off", "IpForwardDisabled", world={"pods": 4},
          more=root("IpForwardDisabled", "net.ipv4.ip_forward"))
def _(w):
    """C059."""
    w.ip_forward_off()


@degraded("podnet/two-default-routes", "EniRouteConflict", world={"enis": 2, "pods": 4}, more=root("EniRouteConflict", "2"))
def _(w):
    """C028: two default routes of one metric."""
    w.two_default_routes()


@broken("podnet/ipv6-address-missing", "Ipv6AddressMissing", world={"ipv6": True, "pods": 4}, subject="ens5")
def _(w):
    w.no_ipv6_address()


@sound("podnet/strict-rp-filter", pods=4)
def _(w):
    """Strict filtering on the primary ENI costs NodePorts at most, and kube-proxy's modes differ: no verdict."""
    w.rp_filter_strict()


@sound("podnet/another-default-of-a-worse-metric", enis=2, pods=4)
def _(w):
    w.two_default_routes(metric=1024)


# ---- the source ports of SNAT (C055) ----

def from_low_ports(w, report, fail):
    """The look was made, from ports of both kinds."""
    if outcomes(report, "snat") != ["ok"]:
        fail("snat: %s" % outcomes(report, "snat"))


def no_low_ports(w, report, fail):
    if outcomes(report, "snat") != ["skipped"]:
        fail("snat: %s" % outcomes(report, "snat"))


@degraded("snat/ports-blocked", "SnatPortsBlocked", world={"public": True, "pods": 3}, more=every(
    root("SnatPortsBlocked", "3 of 6 connects to sts", "under 32768"), conditions("HostNetworkProblem")))
def _(w):
    """C055: the ACL knows the host's own ports only."""
    w.low_ports_blocked()


@sound("snat/ports-blocked-and-kept", public=True, pods=3, more=no_low_ports)
def _(w):
    """RANDOMIZESNAT=none: pods keep their own ports, the same ACL harms nobody."""
    w.low_ports_blocked()
    w.cni_setting("AWS_VPC_K8S_CNI_RANDOMIZESNAT", "none")


@sound("snat/ports-blocked-and-no-snat", public=True, pods=3, more=no_low_ports)
def _(w):
    w.low_ports_blocked()
    w.cni_setting("AWS_VPC_K8S_CNI_EXTERNALSNAT", "true")


sound("snat/public", public=True, pods=3, more=from_low_ports)(nothing)


@degraded("snat/ports-blocked-to-s3-alone", "SnatPortsBlocked", world={"pods": 3},
          more=root("SnatPortsBlocked", "3 of 6 connects to s3"))
def _(w):
    """All endpoints lie in the VPC but the gateway of S3, whose addresses are public: SNAT is for these too."""
    w.low_ports_blocked()


@broken("snat/all-ports-silent", "EndpointTimeout", world={"public": True}, subject="sts")
def _(w):
    """What no port reaches is the endpoint's matter."""
    w.endpoint_drop("sts")


# ---- two at once ----

@broken("two/ec2-timeout-and-aws-node", "EndpointTimeout", {
    "EndpointTimeout": None, "AwsNodeCrashLooping": "EndpointTimeout", "IpamdNotServing": ANY,
        "CniConfigMissing": ANY}, subject="ec2")
def _(w):
    """C011: EC2 is silent, aws-node ends at its first call."""
    w.endpoint_drop("ec2")
    w.aws_node_crash_loop(5, 1, "Initialization failure")


@degraded("two/rules-and-full-subnet", "SubnetExhausted", {"SubnetExhausted": None, "PodRulesMissing": None},
          world={"enis": 2, "pods": 18}, one_of={"root": ("SubnetExhausted", "PodRulesMissing")})
def _(w):
    """Independent: no lack of addresses removes rules."""
    w.subnet_exhausted()
    w.rules_flushed()


# ---- sound nodes at their limits: full by design is no fault ----

def full_node(name, more=None, **world):
    """Every address that the type gives is in use, nobody was refused one: healthy, without a call to EC2."""
    sound("limits/" + name, more=every(no_ec2_call, *([more] if more else [])), **world)(nothing)


full_node("secondary-full", network(enis_attached=3, enis_max=3, ips_assigned=27, ips_max=27, pod_ips_in_use=27), **FULL)
full_node("secondary-full-max-pods-above", enis=3, pods=27, max_pods=110)
full_node("secondary-full-old-cni", cni="v1.12.6", **FULL)
full_node("secondary-full-before-cards", cni="v1.19.2", **FULL)
full_node("secondary-full-al2", eth_names=True, al2=True, containerd="v2", cni="v1.15.1", **FULL)
full_node("prefix-full", prefix_mode=True, enis=2, pods=64)
full_node("prefix-full-old-cni", prefix_mode=True, enis=2, pods=64, cni="v1.12.6")
full_node("custom-networking-full", enis=3, pods=18, custom_networking=True)
full_node("custom-networking-prefix", enis=2, pods=32, custom_networking=True, prefix_mode=True)
full_node("ipv6", ipv6=True, pods=40)
full_node("branch", network(enis_attached=4, enis_max=4, ips_assigned=42, pod_ips_in_use=42), instance_type="m5.xlarge",
          enis=4, pods=42, branches=4)
full_node("several-cards", instance_type="p5.48xlarge", enis=2, pods=60, cards=4, efa_only=[1, 3])
full_node("two-full-enis", instance_type="t3.small", enis=3, pods=9)
full_node("one-full-eni", enis=1, pods=9)


@sound("limits/refused-ten-minutes-ago", more=no_ec2_call, **FULL)
def _(w):
    """It was full and said no; what was asked then is long gone."""
    w.eni_limit_reached(ago=600)


@sound("limits/refused-then-served", more=no_ec2_call, enis=2, pods=12)
def _(w):
    """A pod was refused while the second ENI was on its way; addresses are free now."""
    w._pod_refused(25)


@sound("limits/skips-another-eni", more=no_ec2_call, **FULL)
def _(w):
    """ipamd says at each turn that it is at its limit; no pod wanted more."""
    for ago in range(60, 0, -5):
        w.ipamd_log("debug", "Skipping ENI allocation as the max ENI limit is already reached", ago)


# ---- an old line is no verdict (C034) ----

@sound("old-lines/api-server-at-boot", pods=4)
def _(w):
    """One line at boot, before kube-proxy was there; then it worked, and works."""
    w.ipamd_log("error", "Unable to reach API Server: Get \"https://172.20.0.1:443/version?timeout=5s\": context deadline "
                "exceeded", at="ipamd", caller="k8sapi/k8sutils.go:208")


@sound("old-lines/api-server-and-no-success-line", pods=4)
def _(w):
    """The same a minute ago, without a line that takes it back: ipamd serves."""
    w.ipamd_log("error", "Unable to reach API Server: Get \"https://172.20.0.1:443/version?timeout=5s\": context deadline "
                "exceeded", 60, caller="k8sapi/k8sutils.go:208")


@sound("old-lines/unauthorized-once", pods=4)
def _(w):
    """The policy was attached half an hour ago."""
    w.ipamd_refused_call(ago=1800)


@sound("old-lines/subnet-was-full", enis=2, pods=18)
def _(w):
    """An hour ago the subnet was full."""
    w.subnet_exhausted(ago=3600)


@sound("old-lines/of-the-boot-before", pods=4)
def _(w):
    """The file has survived a reboot: nothing of it counts."""
    w.ipamd_log("error", "Initialization failure: x: operation error EC2: DescribeNetworkInterfaces, https response "
                "error StatusCode: 403, api error UnauthorizedOperation: no", at=-60)


@sound("old-lines/policy-agent-once", pods=4)
def _(w):
    w.policy_agent_forbidden(ago=900)


@sound("old-lines/describe-subnets-denied", pods=4)
def _(w):
    """A newer CNI tries DescribeSubnets to find tagged subnets and goes on without: a warning by design."""
    w.ipamd_log("warn", "Failed to call ec2:DescribeSubnets: operation error EC2: DescribeSubnets, https response error "
                "StatusCode: 403, RequestID: 1, api error UnauthorizedOperation: You are not authorized", 20,
                caller="awsutils/awsutils.go:900")


# ---- what EC2 itself says: only when a finding asks ----

def called(*actions):
    """These calls of EC2's API and no others, each with a signature that EC2 takes."""

    def look(w, report, fail):
        got = [(a, status) for a, _, status in w.ec2.calls]
        if [a for a, _ in got] != list(actions) or {401} & {s for _, s in got}:
            fail("EC2 was called: %s, not %s" % (got, actions))

    return look


@degraded("subnet/full-confirmed", "SubnetExhausted", world={"enis": 2, "pods": 18}, more=every(
    called("DescribeSubnets"), root("SubnetExhausted", lambda w: "%s (%s): 0 of 251 addresses free" % (
        w.enis[1].subnet_id, w.enis[1].subnet))), subject="subnet-")
def _(w):
    """ipamd's line raises it, DescribeSubnets gives the count."""
    w.subnet_exhausted()
    w.ec2_subnet_free(n=0)


@degraded("subnet/full-and-may-not-ask", "SubnetExhausted", world={"enis": 2, "pods": 18}, more=every(
    called("DescribeSubnets"),
    lambda w, r, fail: outcomes(r, "subnet") == ["unknown"] or fail("subnet: %s" % outcomes(r, "subnet"))))
def _(w):
    """The node role may not call EC2: cannot tell, and no finding of its own."""
    w.subnet_exhausted()
    w.ec2_denied()


@degraded("subnet/full-and-throttled", "SubnetExhausted", world={"enis": 2, "pods": 18}, more=every(
    lambda w, r, fail: outcomes(r, "subnet") == ["unknown"] or fail("subnet: %s" % outcomes(r, "subnet"))))
def _(w):
    w.subnet_exhausted()
    w.ec2_throttled()


@sound("subnet/unknown-type-is-asked-for", more=every(called("DescribeInstanceTypes"), network(
    enis_max=3, ipv4_per_eni=10, limits_source="EC2")))
def _(w):
    """No table has the type: EC2 has."""
    w.unknown_type()


sound("subnet/healthy-node-calls-nothing", enis=2, pods=12, more=no_ec2_call)(nothing)


@daemon("subnet/watched-and-low", enis=2, pods=3)
def _(w):
    """SubnetWatch=yes: a notice with numbers while few addresses are left, one call of EC2 for it, and no alarm."""
    w.ec2_subnet_free(0, 41)
    conf = os.path.join(w.dir, "watch.conf")
    with open(conf, "w") as f:
        f.write("[Nodewhy]\nSubnetWatch=yes\n")
    report, code = w.check("--config", conf)
    low = [f for f in report["findings"] if f["code"] == "SubnetLow"]
    assert code == 0 and report["verdict"]["state"] == "healthy", report["verdict"]
    assert len(low) == 1 and low[0]["severity"] == "notice" and "41 of " in low[0]["summary"], low
    assert low[0]["evidence"]["free"] == 41 and low[0]["subject"] == w.enis[0].subnet_id, low
    calls = [x for x in w.tls["ec2"].requests if "DescribeSubnets" in x[1]]
    assert len(calls) == 1, calls


# ---- the daemon: events, bursts, rotation ----

def looks(s, probe, aspect):
    return [p["outcome"] for p in s["probes"] if p["name"] == probe and p["aspect"] == aspect]


@daemon("run/event-pod-rules", enis=2, pods=12)
def _(w):
    """Rules lost are seen by the event; the finding is raised and cleared."""
    d = start(w)
    undo = w.rules_flushed((512,))
    wait_event(d, "podnet sees the rules gone", lambda s: looks(s, "podnet", "rules") == ["absent"])
    d.wait_root("PodRulesMissing", timeout=40)
    raised(w, d, "PodRulesMissing", severity="degraded")
    undo()
    wait_event(d, "podnet sees them back", lambda s: looks(s, "podnet", "rules") == ["ok"])
    cleared(d, "PodRulesMissing", timeout=40)
    d.wait_state("healthy", timeout=40)


@daemon("run/event-pod-route", pods=4)
def _(w):
    d = start(w)
    undo = w.pod_routes_flushed()
    wait_event(d, "podnet sees the routes gone", lambda s: looks(s, "podnet", "rules") == ["absent"])
    undo()
    wait_event(d, "podnet sees them back", lambda s: looks(s, "podnet", "rules") == ["ok"])


@daemon("run/event-eni-link", enis=2, pods=3)
def _(w):
    """The link of a secondary ENI goes, metadata lists it on: seen at once, raised when it lasts."""
    d = start(w)
    w.eni_link_gone(1)
    wait_event(d, "eni sees the link gone", lambda s: looks(s, "eni", "link") in (["unknown"], ["absent"]))
    d.wait_root("EniLinkMissing", timeout=60)


NOTICED = (   # what breaks, how, and the probe that has to look
    ("the CNI's configuration deleted", lambda w: w.cni_absent(), "cni-config"),
    ("rules lost", lambda w: w.rules_flushed((512,)), "podnet"),
    ("routes lost", lambda w: w.pod_routes_flushed(), "podnet"),
    ("the default route lost", lambda w: w.no_default_route(), "link"),
    ("the link of an ENI lost", lambda w: w.eni_down(1), "eni"),
    ("a unit failed", lambda w: w.unit("kubelet.service", active="failed", sub="failed"), "kubelet"))


def seen(d, probe):
    return sorted((p["aspect"], p["subject"], p["outcome"]) for p in d.status()["probes"] if p["name"] == probe)


@daemon("run/noticed-by-the-event", enis=2, pods=6, limit=150)
def _(w):
    """From the fault until status.json shows another look: by the event, as no probe looks by itself oftener than each five
    seconds. Within how many milliseconds is the matter of `make bench`."""
    d = start(w)
    late, calm_of = [], {probe: seen(d, probe) for _, _, probe in NOTICED}
    for what, fault, probe in NOTICED:
        took, calm = [], calm_of[probe]
        for _ in range(5):
            d.wait(what + ", healed", lambda: seen(d, probe) == calm, timeout=20)
            began = time.monotonic()
            heal = fault(w)
            d.wait(what, lambda: seen(d, probe) != calm, timeout=20, step=.002)
            took.append(time.monotonic() - began)
            heal()
        if sorted(took)[2] > 1.5:
            late.append("%s: %s ms" % (what, [round(x * 1000) for x in took]))
    assert not late, late


@daemon("run/pods-in-a-burst", instance_type="m5.4xlarge", pods=1)
def _(w):
    """Many pods at once are some passes, not one a pod."""
    pods = 28
    d = start(w)
    d.wait_status("is calm", lambda s: s["network"]["pod_ips_in_use"] == 1, timeout=20)
    seq = d.status()["seq"]
    w.add_pods(pods)
    s = d.wait_status("all pods", lambda s: s["network"]["pod_ips_in_use"] == pods + 1, timeout=20)
    assert s["seq"] - seq <= pods // 2, "%d passes for %d pods" % (s["seq"] - seq, pods)
    d.wait_state("healthy", timeout=20)
    assert not alarms(d), alarms(d)


def runs(w, *probes):
    """How often each has looked so far."""
    text = w.tree.read("run/nodewhy/metrics.prom").decode()
    return [int(re.search(r'^nodewhy_probe_runs_total\{probe="%s"\} (\d+)$' % p, text, re.M).group(1)) for p in probes]


@daemon("run/500-pods-in-a-burst", instance_type="m5.24xlarge", prefix_mode=True, prefixes=33, pods=1, max_pods=737)
def _(w):
    """500 pods, for each of which ipamd rewrites its checkpoint and the kernel says four things: a look per so many pods
    of each probe that is woken, never one a pod; and no alarm."""
    pods, woken = 500, ("podnet", "eni", "ipamd", "link")
    d = start(w, None, defaults=True)
    d.wait_state("healthy", timeout=40)
    assert d.status()["network"]["pod_ips_in_use"] == 1, d.status()["network"]
    seq, before = d.status()["seq"], runs(w, *woken)
    w.add_pods(pods)
    s = d.wait_status("all pods", lambda s: s["network"]["pod_ips_in_use"] == pods + 1, timeout=20)
    assert s["seq"] - seq <= pods // 10, "%d passes for %d pods" % (s["seq"] - seq, pods)
    looked = [now - was for was, now in zip(before, runs(w, *woken))]
    assert max(looked) <= pods // 10, "looks of %s for %d pods: %s" % (woken, pods, looked)
    d.wait_state("healthy", timeout=20)
    assert not alarms(d), alarms(d)


@daemon("run/ipamd-log-rotated", pods=3)
def _(w):
    """The last line of the old file and the first of the new one count together: none is lost between them."""
    log = w.tree.at("var/log/aws-routed-eni/ipamd.log")
    d = start(w)

    def refused():
        w.ipamd_log("error", "Failed to call ec2:CreateNetworkInterface: operation error EC2: CreateNetworkInterface, https "
                    "response error StatusCode: 403, RequestID: 1, api error UnauthorizedOperation: You are not authorized "
                    "to perform this operation.")
        w._host_settle()

    refused()
    os.rename(log, log.replace("ipamd.log", "ipamd-2026-12-01T00-00-00.000.log"))
    refused()
    s = d.wait_root("IpamdUnauthorized", timeout=40)
    assert "2 times" in s["verdict"]["summary"], s["verdict"]["summary"]


@daemon("run/subnet-watch", enis=2, pods=3)
def _(w):
    """Where SubnetWatch= is on a low subnet is a notice, by one call; the node stays healthy."""
    w.ec2_subnet_free(0, 40)
    conf = os.path.join(w.dir, "watch.conf")
    with open(conf, "w") as f:
        f.write("[Nodewhy]\nSubnetWatch=yes\n[Probe subnet]\nIntervalSec=5\n")
    d = w.daemon("--config", conf)
    d.wait_notified("READY=1", timeout=20)
    s = d.wait_status("SubnetLow", lambda s: any(f["code"] == "SubnetLow" for f in s["findings"]), timeout=60)
    f = next(f for f in s["findings"] if f["code"] == "SubnetLow")
    assert "40 of 251 addresses free" in f["summary"] and f["severity"] == "notice", f
    assert [(a, c) for a, _, c in w.ec2.calls] == [("DescribeSubnets", 200)], w.ec2.calls
    d.wait_state("healthy", timeout=30)


@daemon("run/cni-changed-between-two-lives", pods=3)
def _(w):
    """Settings and version of the VPC CNI are held against those of the daemon's life before: a notice, no alarm."""
    d = start(w)
    d.wait("the settings are kept", lambda: "ipamd.settings" in w.tree.read("var/lib/nodewhy/state.json").decode(), timeout=10)
    assert not [f for f in d.status()["findings"] if f["code"] == "CniChanged"], d.status()["findings"]
    assert d.stop() == 0
    d = start(w)
    d.wait_status("ipamd was looked at", lambda s: looks(s, "ipamd", ""), timeout=10)
    assert not [f for f in d.status()["findings"] if f["code"] == "CniChanged"], "nothing has changed"
    assert d.stop() == 0
    w.cni_setting("WARM_IP_TARGET", "5")
    w.cni_setting("VPC_CNI_VERSION", "v1.99.0")
    d = start(w)
    e = raised(w, d, "CniChanged", severity="notice", timeout=40)
    assert "IP=5" in e["MESSAGE"] and w.cni in e["MESSAGE"], e["MESSAGE"]
    d.wait_state("healthy", timeout=10)
    assert not alarms(d), alarms(d)


@daemon("run/eni-foreign", enis=2, pods=3, limit=300)
def _(w):
    """An ENI that bears no_manage is a notice, once ipamd has had the time to take it (180 s); no alarm."""
    w.eni_unmanaged()
    conf = os.path.join(w.dir, "often.conf")
    with open(conf, "w") as f:
        f.write("[Probe eni]\nIntervalSec=5\n")
    d = w.daemon("--config", conf)
    d.wait_notified("READY=1", timeout=10)
    d.wait_status("it is seen", lambda s: looks(s, "eni", "foreign") == ["unknown"], timeout=60)
    e = raised(w, d, "EniForeign", severity="notice", timeout=220)
    assert e["NODEWHY_SUBJECT"] == "ens6" and w.enis[1].eni_id in e["MESSAGE"], e
    s = d.wait_state("healthy", timeout=10)
    assert [c["status"] for c in s["conditions"] if c["type"] == "PodAddressProblem"] == ["False"], s["conditions"]
    assert not alarms(d), alarms(d)


@daemon("run/no-call-of-ec2", pods=3)
def _(w):
    """The daemon of a healthy node never calls EC2's API, its first looks over."""
    d = start(w)
    d.wait_status("every probe has looked", lambda s: looks(s, "subnet", "free") == ["skipped"], timeout=40)
    assert not w.ec2.calls, w.ec2.calls


# ---- the address table of `nodewhy status` ----

def columns(line):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def table_of_status(name, rows, **world):
    @daemon("run/status-table-" + name, **world)
    def _(w):
        d = start(w)
        p = w.run([w.binary(), "status", "--root", w.root], env={"COLUMNS": "80"})
        lines = p.stdout.splitlines()
        assert p.returncode == 0, (p.returncode, p.stdout, p.stderr)
        wide = [x for x in lines if columns(x) > 80]
        assert not wide, "over 80 columns: %s" % wide
        at = [i for i, x in enumerate(lines) if x.startswith("ENIs ")]
        assert len(at) == 1, p.stdout
        table = lines[at[0]:]
        assert len(table) <= 10, "\n".join(table)
        assert table[0].startswith("ENIs %d" % len(w.enis)), table[0]
        shown = [x for x in table if re.search(r" (eni-0[0-9a-f]{16}|[0-9a-f:]{17}) ", x)]
        assert len(shown) == rows, "\n".join(table)
        assert rows == len(w.enis) or "… and %d more" % (len(w.enis) - rows) in table[-1], table[-1]
        used = sum(int(x.split()[-1]) for x in shown)
        assert used == sum(len(e.pods) for e in w.enis), "\n".join(table)

    _.__doc__ = "Ten lines at most, 80 columns, every pod counted."


table_of_status("secondary", 3, **FULL)
table_of_status("prefix", 2, prefix_mode=True, enis=2, pods=40)
table_of_status("custom-networking", 3, custom_networking=True, enis=3, pods=10)
table_of_status("ipv6", 1, ipv6=True, pods=14)
table_of_status("branch", 3, instance_type="m5.xlarge", enis=3, pods=20, branches=3)
table_of_status("several-cards", 6, instance_type="p5.48xlarge", enis=2, pods=30, cards=32,
                efa_only=[c for c in range(1, 32) if c % 4])
