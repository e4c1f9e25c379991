# SPDX-License-Identifier: Apache-2.0
"""Scenarios of the join path: from the first second of boot to a registered node. C numbers are those of the
reports that the cases come from. A fault is set where a real node has it: in what its programs say and in what others
answer, so that the finding needs both."""

import json
import os
import re
import subprocess
import time

from world import cni, metadata

from . import contract
from .checks import not_joined, says
from .daemons import TEMPORARY, alarms, cleared, raised
from .table import ANY, broken, daemon, degraded, scenario, sound

NEVER = {"uptime": 400}     # a node that has not joined in its first minutes
UNCONFIGURED = {"CniConfigMissing": ANY}    # where nobody can tell whether aws-node could have come


def stage(name, deadline=False, more=None):
    """verdict.stage is this; deadline: the provisioner's is told."""

    def look(w, report, fail):
        v = report["verdict"]
        if v["stage"] != name:
            fail("stage %s, not %s" % (v["stage"], name))
        if deadline:
            left = 900 - report["uptime_s"]
            if v["deadline_s"] is None or abs(v["deadline_s"] - left) > 30:
                fail("deadline_s %r at %d s after boot" % (v["deadline_s"], report["uptime_s"]))
        elif v["deadline_s"] is not None:
            fail("deadline_s is %r" % v["deadline_s"])
        if more:
            more(w, report, fail)

    return look


def never_joined(name, root, codes, at, *words, world=None, **options):
    """A node of some minutes that has not registered, and why."""
    return broken("join/" + name, root, codes, maybe=UNCONFIGURED, world={**NEVER, **(world or {})},
                  more=stage(at, True, says(*words)), **options)


# ---- bootstrap: C007, C011, C032, C038, C066, C073 ----

NOT_STARTED = {"BootstrapFailed": ANY, "KubeletInactive": ANY}


@never_joined("C007-no-node-config", "UserDataUnusable", {"UserDataUnusable": None, **NOT_STARTED}, "bootstrapping",
              "neither NodeConfig nor a bootstrap call")
def _(w):
    """A custom AMI id was set: EKS put nothing into the user data."""
    w.user_data_without_config()


@never_joined("C007-no-user-data", "UserDataUnusable", {"UserDataUnusable": None, **NOT_STARTED}, "bootstrapping",
              "no user data")
def _(w):
    w.user_data_without_config()
    w.user_data(None)


@never_joined("C007-bootstrap-sh-on-al2023", "UserDataUnusable", {"UserDataUnusable": None, **NOT_STARTED},
              "bootstrapping", "bootstrap.sh", "AL2023")
def _(w):
    w.user_data_bootstrap_sh()


@never_joined("C007-node-config-incomplete", "UserDataUnusable", {"UserDataUnusable": None, **NOT_STARTED},
              "bootstrapping", "without apiServerEndpoint", "failed to validate node config")
def _(w):
    w.node_config_incomplete()


@never_joined("C007-mime-boundary-broken", "UserDataUnusable", {"UserDataUnusable": None, **NOT_STARTED},
              "bootstrapping", "malformed")
def _(w):
    """The boundary that the header names occurs nowhere."""
    w.user_data_without_config()
    w.user_data(w._user_data().replace('boundary="//"', 'boundary="BOUNDARY"'))


@never_joined("throttled", "BootstrapThrottled", {"BootstrapThrottled": None, "KubeletInactive": "BootstrapThrottled"},
              "bootstrapping", "RequestLimitExceeded", subject="nodeadm-config.service")
def _(w):
    """A scale-out: EC2 throttles DescribeInstances until nodeadm gives up."""
    w.nodeadm_throttled()


@never_joined("C011-ec2-endpoint-drops", "EndpointTimeout", {
    "EndpointTimeout": None, "BootstrapFailed": "EndpointTimeout", "KubeletInactive": "BootstrapFailed"},
    "bootstrapping", "private", subject="ec2")
def _(w):
    """The security group of the interface endpoint lacks 443."""
    w.endpoint_drop("ec2")
    w.nodeadm_failed()


@never_joined("C011-no-nat", "EndpointTimeout", {
    "EndpointTimeout": None, "BootstrapFailed": "EndpointTimeout", "KubeletInactive": "BootstrapFailed"},
    "bootstrapping", "public", subject="all", world={"public": True})
def _(w):
    w.endpoint_drop()
    w.nodeadm_failed()


@never_joined("C032-tls-intercepted", "EndpointUntrusted", {
    "EndpointUntrusted": None, "BootstrapFailed": "EndpointUntrusted", "KubeletInactive": "BootstrapFailed"},
    "bootstrapping", "Example Corp TLS Inspection", subject="all")
def _(w):
    w.endpoint_untrusted()
    w.nodeadm_failed('operation error EC2: DescribeInstances, https response error StatusCode: 0, RequestID: , request '
                     'send failed, Post "https://%s/": tls: failed to verify certificate: x509: certificate signed by '
                     'unknown authority' % w.host("ec2"))


@never_joined("C038-ca-empty", "ClusterCaInvalid", {
    "ClusterCaInvalid": None, "KubeletCrashLooping": "ClusterCaInvalid"}, "joining", "no certificate",
    subject="/etc/kubernetes/pki/ca.crt")
def _(w):
    w.cluster_ca_empty()


@never_joined("C038-ca-missing", "ClusterCaInvalid", {
    "ClusterCaInvalid": None, "KubeletCrashLooping": "ClusterCaInvalid"}, "joining", "is absent",
    subject="/etc/kubernetes/pki/ca.crt")
def _(w):
    w.cluster_ca_empty(missing=True)


@never_joined("C066-sandbox-image-service", "SandboxImageMissing", {
    "SandboxImageMissing": None, "KubeletInactive": "SandboxImageMissing"}, "joining", "sandbox-image.service failed",
    world={"al2": True})
def _(w):
    w.sandbox_image_unit_failed()


@never_joined("C073-metadata-disabled", "ImdsDisabled", {
    "ImdsDisabled": None, "BootstrapFailed": "ImdsDisabled", "KubeletInactive": ANY}, "bootstrapping", "403")
def _(w):
    w.imds_403()
    w.nodeadm_failed("failed to get token from IMDS: operation error ec2imds: getToken, http response error StatusCode: "
                     "403, request to EC2 IMDS failed")


# ---- credentials: C040, and what an instance profile can lack ----

@never_joined("no-instance-profile", "InstanceProfileMissing", {"InstanceProfileMissing": None}, "joining", "iam/info is 404")
def _(w):
    w.no_profile()
    w.kubelet_exec_plugin_fails()


@never_joined("instance-profile-deleted", "InstanceProfileInvalid", {"InstanceProfileInvalid": None}, "joining",
              "InstanceProfileNotFound")
def _(w):
    w.invalid_profile()
    w.kubelet_exec_plugin_fails()


@never_joined("role-does-not-trust-ec2", "CredentialsMissing", {"CredentialsMissing": None}, "joining",
              "AssumeRoleUnauthorizedAccess")
def _(w):
    w.credentials_refused()
    w.kubelet_exec_plugin_fails()


@never_joined("credentials-404", "CredentialsMissing", {"CredentialsMissing": None}, "joining", "404")
def _(w):
    w.credentials_missing()
    w.kubelet_exec_plugin_fails()


@broken("join/C040-credentials-expired", "CredentialsExpired", {
    "CredentialsExpired": None, "NodeUnauthorized": "CredentialsExpired"}, more=says("expired 10 min ago"))
def _(w):
    """The node worked; metadata serves a stale set, and the API server takes no token any more."""
    w.expired_credentials()
    w.api_node(401)
    w.kubelet_repeats(("E", "controller.go:195", '"Failed to update lease" err="Unauthorized"'), since=120)


@never_joined("credentials-rejected", "CredentialsRejected", {
    "CredentialsRejected": None, "NodeUnauthorized": "CredentialsRejected"}, "joining", "InvalidClientTokenId",
    "clock is sound")
def _(w):
    w.sts_refuses()
    w.kubelet_unauthorized()
    w.api_node(401)


# ---- who the node is: C014, C019, C056, C068 ----

@never_joined("C019-role-not-mapped", "NodeRoleNotMapped", {
    "NodeRoleNotMapped": None, "NodeUnauthorized": "NodeRoleNotMapped"}, "joining", "401", "world-node-role",
    "STS accepts")
def _(w):
    w.kubelet_unauthorized()
    w.api_node(401)


@never_joined("C019-sts-not-reachable", "EndpointTimeout", {"EndpointTimeout": None, "NodeUnauthorized": None},
              "joining", subject="sts")
def _(w):
    """Nobody can say whether the credentials are good: the 401 is a root of its own, and says no more."""
    w.kubelet_unauthorized()
    w.api_node(401)
    w.endpoint_drop("sts")


@never_joined("C014-other-name", "NodeNameMismatch", {"NodeNameMismatch": None}, "joining", "403",
              "corp.example.com")
def _(w):
    w.kubelet_forbidden()


@never_joined("C068-no-name", "NodeNameEmpty", {"NodeNameEmpty": None}, "joining", "system:node:")
def _(w):
    w.kubelet_nameless()
    w.api_node_renamed("")


for _ahead in (4000, -4000):
    @never_joined("C056-clock-" + ("ahead" if _ahead > 0 else "behind"), "ClockSkewed", {
        "ClockSkewed": None, "NodeUnauthorized": "ClockSkewed"}, "joining", "4000 s", "Date headers")
    def _(w, ahead=_ahead):
        w.clock_ahead(ahead)
        w.kubelet_unauthorized()


@sound("join/clock-a-minute-off")
def _(w):
    """40 s, which nobody minds."""
    w.clock_ahead(40)


# ---- the way to the API server: C021, C025 ----

@broken("join/C025-endpoint-name-unknown", "ApiServerUnresolvable", more=says("NXDOMAIN"))
def _(w):
    w.api_unresolvable()
    w.kubelet_api_timeout()


@broken("join/api-server-security-group", "ApiServerTimeout", more=says("no connection in"))
def _(w):
    w.api_drop()
    w.kubelet_api_timeout()


@scenario("join/C021-service-address", "broken", {
    "ServiceAddressUnreachable": None, "CniApiServerUnreachable": "ServiceAddressUnreachable", "IpamdNotServing": ANY,
    "CniConfigMissing": ANY, "NodeNotReady": ANY}, exit=2, more=stage("networking", False, says("172.20.0.1:443")))
def _(w):
    w.service_address_dead()
    w.ipamd_api_server_unreachable()
    w.api_not_ready()


@daemon("join/kubelet-connection-dead")
def _(w):
    """A NAT gateway forgot one of kubelet's two connections: what is sent on it is lost, and new ones work. It is said
    after the 45 s in which a kubelet finds that out by itself, and taken back when kubelet has let go of it."""
    idle, dead = w.kubelet_connection(), w.kubelet_connection()
    began = time.monotonic()
    w.kubelet_connection_dead(dead)
    d = quick(w)
    d.wait_state("healthy", timeout=30)
    e = raised(w, d, "KubeletConnectionDead", timeout=75)
    took, found = e.at - began, json.loads(e["NODEWHY_EVIDENCE"])
    assert 60 <= took < 75, "said after %.0f s" % took
    assert found["local_port"] == dead.getsockname()[1] and found["silent_s"] >= 60, found
    assert [x[1] for x in alarms(d)] == ["KubeletConnectionDead"], alarms(d)
    s = d.wait_root("KubeletConnectionDead")
    assert s["verdict"]["state"] == "broken" and "systemctl restart kubelet" in s["verdict"]["remedy"], s["verdict"]
    dead.close()
    cleared(d, "KubeletConnectionDead")
    d.wait_state("healthy", timeout=10)
    idle.close()
    assert d.stop() == 0


# ---- runtime and images: C002, C004, C042 ----

@broken("join/C002-runtime-hangs", "RuntimeUnresponsive", {
    "RuntimeUnresponsive": None, "PlegUnhealthy": "RuntimeUnresponsive"}, more=says("no answer in"))
def _(w):
    w.pleg_unhealthy()


@broken("join/C002-pleg-alone", "PlegUnhealthy", more=says("3m"))
def _(w):
    """The runtime answers, one container of it does not: only kubelet knows."""
    w.pleg_unhealthy()
    w.cri.server.delay = 0


@broken("join/C004-sandbox-image-collected", "SandboxImageMissing", {
    "SandboxImageMissing": None, "ImagePullDenied": "SandboxImageMissing"}, more=says("pause", "401"))
def _(w):
    w.pause_image_missing()


@broken("join/C045-no-registry-token", "EndpointTimeout", {
    "EndpointTimeout": None, "ImagePullDenied": "EndpointTimeout"}, subject="ecr.api", more=says("ecr.api", "VPC endpoint"))
def _(w):
    """ecr.dkr and s3 answer, the token's API does not: the node does not come up for want of an image."""
    not_joined(w)
    w.endpoint_drop("ecr.api")
    w.image_pull_denied()


@degraded("join/C045-registry-refuses", "ImagePullDenied", more=says("no basic auth credentials"))
def _(w):
    """Every endpoint answers: the refusal stands alone."""
    w.image_pull_denied()


def no_denied_endpoint(w, report, fail):
    if any(p["name"] == "runtime" and p["aspect"] == "layer" for p in report["probes"]):
        fail("S3 is accused")


for _version in ("v2", "v3"):
    @degraded("join/s3-endpoint-policy-" + _version, "EndpointDenied", {
        "EndpointDenied": None, "ImagePullDenied": "EndpointDenied"}, subject="s3", world={"containerd": _version},
        more=says("app:1", "403", "manifest"))
    def _(w):
        """Everything answers, the manifest comes, its layers do not: the policy of the VPC endpoint for S3."""
        w.image_layers_denied()

    @degraded("join/registry-refuses-layers-" + _version, "ImagePullDenied", world={"containerd": _version},
              more=no_denied_endpoint)
    def _(w):
        """It is the registry itself that says no: nothing is known of S3."""
        w.image_layers_denied(by_ecr=True)


@degraded("join/registry-forbids", "ImagePullDenied", more=no_denied_endpoint)
def _(w):
    w.image_pull_denied(403)


@broken("join/containerd-fails", "RuntimeDown", more=says("exit-code"))
def _(w):
    w.containerd_down()


@broken("join/containerd-hangs", "RuntimeUnresponsive")
def _(w):
    w.containerd_hung()


@broken("join/kubelet-stopped", "KubeletInactive", subject="kubelet.service", more=says("stopped"))
def _(w):
    w.kubelet_stopped()


@broken("join/kubelet-stopped-and-forgotten", "KubeletInactive", subject="kubelet.service",
        more=says("it ran earlier in this boot"))
def _(w):
    """systemd forgets a unit that has ended and that nothing refers to: kubelet's own lines tell that it ran."""
    w.kubelet_forgotten()


@broken("join/kubelet-forgotten-after-a-failed-nodeadm", "KubeletInactive", subject="kubelet.service")
def _(w):
    """nodeadm-run had started kubelet before it failed at something else: it is not what keeps this node away."""
    w.unit("nodeadm-run.service", active="failed", result="exit-code", end="run-done")
    w.kubelet_forgotten()


@broken("join/kubelet-forgotten-without-user-data", "KubeletInactive", subject="kubelet.service", world={"al2": True})
def _(w):
    """An image of somebody's own, whose kubelet another unit started: its user data has nothing to say. Its Node object
    was deleted meanwhile."""
    w.user_data("")
    w.api_node(404)
    w.kubelet_forgotten()


@broken("join/containerd-forgotten", "RuntimeDown")
def _(w):
    """The same of containerd, on an image where no nodeadm-run tells that bootstrap is over."""
    w.containerd_down()
    w.unit("containerd.service", **w.never_started("containerd.service"))
    w.unit("nodeadm-run.service", load="not-found")


# ---- kubelet's certificate: C024 ----

@degraded("join/C024-serving-certificate", "ServingCertificatePending", more=says("internal_error"))
def _(w):
    w.serving_certificate_pending()


# ---- lifecycle: C047 ----

def only_notice(name, code, set_up):
    sound("join/" + name, notices=(code,))(set_up)


only_notice("C047-spot-interruption", "SpotInterruption", lambda w: w.spot_interruption())
only_notice("C047-rebalance", "RebalanceRecommended", lambda w: w.rebalance_recommended())
only_notice("C047-maintenance", "MaintenanceScheduled", lambda w: w.maintenance_scheduled())
only_notice("C047-scale-in", "TerminationPending", lambda w: w.termination_pending())


# ---- the cases whose CNI part is the join path's end: C042, C053 ----

@broken("join/C042-cri-plugin-not-loaded", "RuntimePluginMissing", more=says("Unimplemented", "mirrors"))
def _(w):
    w.cri_unimplemented()


@broken("join/C053-aws-node-never-scheduled", "AwsNodeNotRunning", {
    "AwsNodeNotRunning": None, "CniConfigMissing": "AwsNodeNotRunning", "NodeNotReady": ANY},
    more=stage("networking", False, says("never on this node")))
def _(w):
    w.aws_node_absent()
    w.api_not_ready()


# ---- the role of this boot ----

SPARING = "[Probe credentials]\nIntervalSec=8\n"    # three requests each, of the 60 a minute that nodewhy allows itself


def a_life(w, change=None):
    """One daemon, from its start through some looks at the credentials to its end; returns its last status and alarms."""
    def looks():
        return len([r for r in w.imds.requests if re.search(r"/iam/security-credentials/.", r[2])])

    began = looks()
    d = quick(w, SPARING)
    d.wait("a look at the credentials", lambda: looks() > began, timeout=30)
    if change:
        change()
    began = looks()
    d.wait("more of them", lambda: looks() > began + 1, timeout=30)
    said = d.status(), alarms(d)
    assert d.stop() == 0
    return said


@daemon("join/role-replaced")
def _(w):
    """Somebody gave the instance another profile while nodewhy was not running: the cluster does not know its role. Then
    the old one is given back."""
    assert not a_life(w)[1]
    backs = [w.role_replaced(), w.api_node(401)]
    d = quick(w, SPARING)
    e = raised(w, d, "RoleReplaced", timeout=40)
    found = json.loads(e["NODEWHY_EVIDENCE"])
    assert (found["was"], found["role"]) == (w.role, "another-role"), found
    s = d.wait_status("the 401 explained", lambda s: [f["because"] for f in s["findings"] if f["layer"] == "identity"] == [
        "RoleReplaced"], timeout=60)
    assert s["verdict"]["root"] == "RoleReplaced" and s["verdict"]["state"] == "broken", s["verdict"]
    assert "role is another-role now, was world-node-role" in s["verdict"]["summary"], s["verdict"]
    assert {c["type"] for c in s["conditions"] if c["status"] == "True"} == {"InstanceCredentialsProblem"}, s["conditions"]
    for back in backs:
        back()
    cleared(d, "RoleReplaced", timeout=40)
    d.wait_state("healthy", timeout=90)
    assert d.stop() == 0


@daemon("join/role-replaced-as-it-runs")
def _(w):
    d = quick(w, SPARING)
    d.wait_state("healthy", timeout=40)
    w.role_replaced()
    raised(w, d, "RoleReplaced", timeout=40)
    d.wait_root("RoleReplaced")
    assert d.stop() == 0


@daemon("join/credentials-rotated-between-lives")
def _(w):
    """New keys of the same role, as they run and while nobody looks; then a boot with another role, which is whatever the
    node was set up with."""
    assert not a_life(w, w.credentials_rotated)[1]
    w.credentials_rotated()
    assert not a_life(w)[1]
    w.role_replaced()
    w.tree.boot_id = "5b3e1f7c-9a2d-4c68-8e0f-1d7a6b4c2e90"
    w.tree.write("proc/sys/kernel/random/boot_id", w.tree.boot_id + "\n")
    status, said = a_life(w)
    assert not said and status["verdict"]["root"] is None, (said, status["verdict"])
    got = [p for p in status["probes"] if p["name"] == "credentials"]
    assert [p["evidence"].get("role") for p in got] == ["another-role"], got


# ---- a boot, step by step ----

QUICK = ("identity", "credentials", "endpoint", "apiserver", "kubelet", "runtime", "ipamd", "bootstrap", "cni-config")


def quick(w, *lines, seconds=2, **options):
    """The daemon with short intervals: what is looked at is as at the default ones."""
    conf = os.path.join(w.dir, "join.conf")
    with open(conf, "w") as f:
        f.write("".join("[Probe %s]\nIntervalSec=%d\n" % (p, seconds) for p in QUICK) + "".join(lines))
    d = w.daemon("--config", conf, **options)
    d.wait_notified("READY=1", timeout=20)
    return d


class Boot:
    """A node that has just been switched on, and its steps."""

    def __init__(self, w):
        self.w, self.undo = w, {}
        u = self.undo
        unit = w.unit
        w._never_registered()
        for name in ("containerd.service", "kubelet.service", "nodeadm-run.service", "cloud-final.service"):
            u[name] = unit(name, **w.never_started(name))
        u["nodeadm-config.service"] = unit("nodeadm-config.service", active="activating", sub="start")
        u["files"] = [w.tree.take(f) for f in (
            "var/lib/kubelet/kubeconfig", "etc/kubernetes/pki/ca.crt", "etc/eks/kubelet/environment",
            "etc/kubernetes/kubelet/config.json", "etc/containerd/config.toml")]
        u["containerd"], u["kubelet"] = w._containerd_gone(), w._kubelet_gone()
        u["credentials"] = w.credentials_missing()
        if w.journal_file:
            w.journal_file.lines = []
        u["metadata"] = w.imds_drop()

    def metadata(self):
        self.undo["metadata"]()

    def nodeadm(self):
        """nodeadm is through: files, containerd, kubelet."""
        u = self.undo
        u["credentials"]()
        u["nodeadm-config.service"]()
        for back in u["files"]:
            back()
        for name in ("cloud-final.service", "nodeadm-run.service", "containerd.service", "kubelet.service"):
            u[name]()
        u["containerd"]()
        u["kubelet"]()

    def register(self):
        w = self.w
        w.kubelet_says("I", "kubelet_node_status.go:79", '"Successfully registered node" node="%s"' % w.private_dns)
        w.api.registered, w.api.created = True, time.time()
        self.undo["not ready"] = w.api_not_ready()

    def aws_node(self):
        w = self.w
        w.cri.pods, w.cri.containers = cni.containers(w)
        for c in w.cri.containers:
            w._container_files(c)
        w.node.call(w.ipamd.open)
        w.node.call(w.ipamd.open_agent)
        w._process("aws-k8s-agent")
        w.tree.vpc_cni()

    def ready(self):
        self.undo["not ready"]()


def at_stage(d, name, uptime, state="starting", timeout=40):
    s = d.wait_status("stage " + name, lambda s: s["verdict"]["stage"] == name, timeout)
    v = s["verdict"]
    assert v["state"] == state, "%s: state %s, root %s" % (name, v["state"], v["root"])
    if name in ("booting", "bootstrapping", "joining"):
        assert v["deadline_s"] is not None and abs(900 - uptime() - v["deadline_s"]) < 20, "%s: deadline_s %r at %d s" % (
            name, v["deadline_s"], uptime())
    else:
        assert v["deadline_s"] is None, "%s: deadline_s %r" % (name, v["deadline_s"])
    assert not alarms(d), "%s: %s" % (name, alarms(d))


def scripted(w):
    b = Boot(w)
    d = quick(w)
    at_stage(d, "booting", w.uptime)
    b.metadata()
    at_stage(d, "bootstrapping", w.uptime)
    b.nodeadm()
    at_stage(d, "joining", w.uptime)
    b.register()
    at_stage(d, "networking", w.uptime)
    b.aws_node()
    b.ready()
    d.wait_state("healthy", timeout=40)
    at_stage(d, "ready", w.uptime, "healthy")
    assert d.stop() == 0


daemon("join/boot", uptime=6)(scripted)
daemon("join/boot-that-takes-its-time", uptime=420)(scripted)


@daemon("join/deadline-near", uptime=590)
def _(w):
    """Said once, at 10 minutes, and taken back when the node has registered."""
    b = Boot(w)
    b.metadata()
    d = quick(w)
    at_stage(d, "bootstrapping", w.uptime)
    assert not [e for e in d.journal if e.get("NODEWHY_CODE") == "JoinDeadlineNear"], "too early"
    e = raised(w, d, "JoinDeadlineNear", timeout=40, severity="notice")
    assert 600 <= w.uptime() < 630, "said %d s after boot" % w.uptime()
    assert json.loads(e["NODEWHY_EVIDENCE"])["uptime_s"] >= 600, e["NODEWHY_EVIDENCE"]
    b.nodeadm()
    b.register()
    cleared(d, "JoinDeadlineNear", timeout=40)
    said = [e.get("NODEWHY_STATE") for e in d.journal if e.get("NODEWHY_CODE") == "JoinDeadlineNear"]
    assert said.count("raised") == 1, said


@daemon("join/boot-with-a-long-script", uptime=420)
def _(w):
    """Somebody's script in the user data takes seven minutes and more; nothing has failed."""
    b = Boot(w)
    b.metadata()
    b.undo["nodeadm-config.service"]()
    w.unit("cloud-final.service", ago=400, active="activating", sub="start")
    b.undo["credentials"]()
    d = quick(w)
    at_stage(d, "bootstrapping", w.uptime)
    d.live(20)                  # ten looks of most
    at_stage(d, "bootstrapping", w.uptime)


@scenario("join/a-late-join", "starting", {}, exit=0, world={"uptime": 700}, more=stage("networking"))
def _(w):
    """Eleven minutes after boot the node is registered at last: the CNI comes next, as on any other."""
    w.aws_node_absent()
    w.api_not_ready()
    w.api.created = time.time() - 20


# ---- hybrid nodes, and other images ----

def hybrid(w):
    """EKS hybrid nodes (facts 2.8): no EC2, no metadata, no VPC CNI; kubelet's credentials are of IAM Roles Anywhere."""
    for name in ("board_vendor", "product_name", "sys_vendor"):
        w.tree.write("sys/class/dmi/id/" + name, "Dell Inc.\n")
    w.tree.write("sys/class/dmi/id/product_uuid", "7a6f2d3c-0b5e-4c1d-9a4f-2f1e0d9c8b7a\n")
    w._aws_node_gone(ever=True)
    w._no_cni_yet()
    w.tree.write("etc/os-release", 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\n')
    name = "mi-0123456789abcdef0"
    config = json.loads(w.tree.read("etc/kubernetes/kubelet/config.json"))
    config["providerID"] = "eks-hybrid:///%s/%s/%s" % (w.region, w.cluster, name)
    w.tree.write("etc/kubernetes/kubelet/config.json", json.dumps(config))
    w.tree.write("etc/eks/kubelet/environment", 'NODEADM_KUBELET_ARGS="--hostname-override=%s"\n' % name)
    w.tree.write("etc/cni/net.d/05-cilium.conflist", json.dumps({
        "cniVersion": "0.3.1", "name": "cilium", "plugins": [{"type": "cilium-cni"}]}))
    w.tree.write("opt/cni/bin/cilium-cni", "#!/bin/sh\n", 0o755)
    w.kubeconfig("command: aws\n", "command: /usr/local/bin/aws-iam-authenticator\n")
    for unit in ("nodeadm-config.service", "nodeadm-boot-hook.service", "cloud-init-local.service", "cloud-init.service",
                 "cloud-config.service", "cloud-final.service"):
        w.unit(unit, load="not-found")
    w.api.node_name, w.api.provider_id = name, config["providerID"]
    return w.imds_drop()


@scenario("join/hybrid-node", "healthy", {}, exit=0)
def _(w):
    """Nothing of AWS's inside is missed where there is none of it."""
    hybrid(w)


@scenario("join/hybrid-node-young", ("healthy", "starting"), {}, exit=0, world={"uptime": 700})
def _(w):
    hybrid(w)


@broken("join/hybrid-api-server-drops", "ApiServerTimeout", more=says("no connection in"))
def _(w):
    """The VPN of the site is down."""
    hybrid(w)
    w.api_drop()
    w.kubelet_api_timeout()


@broken("join/hybrid-kubelet-stopped", "KubeletInactive", subject="kubelet.service")
def _(w):
    hybrid(w)
    w.kubelet_stopped()


@broken("join/hybrid-containerd-fails", "RuntimeDown")
def _(w):
    hybrid(w)
    w.containerd_down()


@daemon("join/hybrid-node-runs")
def _(w):
    hybrid(w)
    d = quick(w)
    d.wait_state("healthy", timeout=40)
    d.live(20)                  # ten looks of most
    s = d.status()
    assert s["verdict"]["state"] == "healthy" and s["verdict"]["deadline_s"] is None and not alarms(d), (
        s["verdict"], alarms(d))


def lines_of_yaml(value, indent=0):
    """Block style, as a template writes it: texts in quotes where they need them."""
    pad = "  " * indent
    if isinstance(value, list):
        return [pad + "- " + json.dumps(x) for x in value]
    out = []
    for k, v in value.items():
        if isinstance(v, (dict, list)):
            out += ["%s%s:" % (pad, k)] + lines_of_yaml(v, indent + isinstance(v, dict))
        else:
            out.append("%s%s: %s" % (pad, k, v if isinstance(v, str) and re.fullmatch(r"[A-Za-z/][\w./]*", v)
                                     else json.dumps(v)))
    return out


def bottlerocket(w, max_pods=None):
    """Bottlerocket (facts 2.9): paths of its own, no nodeadm, no unit that AL2023 has but kubelet and containerd."""
    t = w.tree
    t.write("etc/os-release", 'NAME=Bottlerocket\nID=bottlerocket\nVERSION_ID=1.39.0\n')
    kubelet = json.loads(t.read("etc/kubernetes/kubelet/config.json"))
    kubeconfig = t.read("var/lib/kubelet/kubeconfig")
    for gone in ("etc/eks", "var/lib/kubelet/kubeconfig", "run/nodeadm", "etc/kubernetes/kubelet"):
        if t.exists(gone):
            t.take(gone)
    kubelet["resolvConf"] = "/run/netdog/resolv.conf"
    t.write("run/netdog/resolv.conf", t.read("etc/resolv.conf"))
    kubelet["maxPods"] = max_pods or kubelet["maxPods"]
    t.write("etc/kubernetes/kubelet/config", "---\n" + "\n".join(lines_of_yaml(kubelet)) + "\n")
    t.write("etc/kubernetes/kubelet/kubeconfig", kubeconfig)
    t.write("etc/kubernetes/kubelet/env", "NODE_IP=%s\n" % w.enis[0].ipv4)
    t.write("usr/share/eks/eni-max-pods", "m5.large 29\n")
    for unit in list(w.systemd.units):
        if unit.startswith(("nodeadm", "cloud-", "udev-net-manager", "sshd", "amazon-ssm")):
            w.unit(unit, load="not-found")
    w.user_data('[settings.kubernetes]\ncluster-name = "%s"\napi-server = "https://%s"\nbootstrap-token = "%s"\n' % (
        w.cluster, w.api_host(), metadata.SECRET))


def knows_cluster(w, report, fail):
    if report["node"]["cluster"] != w.cluster or report["verdict"]["stage"] != "ready":
        fail("cluster %r, stage %s" % (report["node"]["cluster"], report["verdict"]["stage"]))
    for probe in ("apiserver", "identity"):
        got = [(p["outcome"], p["detail"]) for p in report["probes"] if p["name"] == probe]
        if "ok" not in [o for o, _ in got]:
            fail("%s: %s" % (probe, got))


def reads_yaml(w, report, fail):
    """maxPods and clusterDNS stand in kubelet's YAML alone; that bootstrap asked EKS, in no file."""
    knows_cluster(w, report, fail)
    if report["network"]["max_pods"] != w.max_pods:
        fail("maxPods %r, not %d" % (report["network"]["max_pods"], w.max_pods))
    got = {(p["name"], p["aspect"], p["subject"] or ""): p for p in report["probes"]}
    service = [p for p in report["probes"] if p["name"] == "apiserver" and p["aspect"] == "service"]
    if [(p["outcome"], p["evidence"].get("address")) for p in service] != [("ok", "172.20.0.1")]:
        fail("the service address: %s" % service)
    if got.get(("endpoint", "tcp", "eks"), {}).get("outcome") != "ok":
        fail("EKS was not looked at: %s" % [k for k in got if k[0] == "endpoint"])


sound("join/bottlerocket", more=reads_yaml, pods=2, max_pods=17)(bottlerocket)


@scenario("join/bottlerocket-young", ("healthy", "starting"), {}, exit=0, world={"uptime": 100})
def _(w):
    """It has not registered yet: no unit of AL2023's is missed, and its user data is no MIME."""
    bottlerocket(w)
    w.api_node(404)
    w._aws_node_gone(ever=True)
    w._no_cni_yet()


@broken("join/bottlerocket-ca-empty", "ClusterCaInvalid", subject="/etc/kubernetes/pki/ca.crt")
def _(w):
    bottlerocket(w)
    w.cluster_ca("")


@broken("join/bottlerocket-role-not-mapped", "NodeRoleNotMapped", more=says("401", "world-node-role"))
def _(w):
    bottlerocket(w)
    w.api_node(401)


@broken("join/bottlerocket-eks-endpoint-drops", "EndpointTimeout", {
    "EndpointTimeout": None, "KubeletInactive": "EndpointTimeout"}, subject="eks", world=NEVER, maybe=UNCONFIGURED)
def _(w):
    """Its bootstrap asks EKS for the cluster, and gets no answer: there is neither kubeconfig nor kubelet yet."""
    bottlerocket(w)
    w._never_registered()
    w._aws_node_gone(ever=True)
    w._no_cni_yet()
    w._kubelet_stopped()
    w.journal_file.lines = [x for x in w.journal_file.lines if x[1].get("_SYSTEMD_UNIT") != "kubelet.service"]
    w.tree.take("etc/kubernetes/kubelet/kubeconfig")
    w.endpoint_drop("eks")


@degraded("join/bottlerocket-max-pods", "MaxPodsExceedsCapacity", {
    "MaxPodsExceedsCapacity": None, "AddressLimitReached": "MaxPodsExceedsCapacity"}, more=says("110", "29"),
    world={"enis": 3, "pods": 27})
def _(w):
    """C016: by its YAML alone kubelet may run more pods than there are addresses."""
    bottlerocket(w, max_pods=110)
    w.eni_limit_reached()


@degraded("join/bottlerocket-service-address", "ServiceAddressUnreachable", more=says("172.20.0.1:443"))
def _(w):
    bottlerocket(w)
    w.service_address_dead()


# ---- what a healthy node costs others ----

@daemon("join/budgets", enis=2, pods=5)
def _(w):
    """At the default intervals, over more than a minute: no call of EC2's API, at most one of STS, one look at the
    own Node a minute, one CRI Status in 10 s. What the intervals of the probes add up to in a day: tests/unit/schedule.c."""
    d = w.daemon()
    d.wait_notified("READY=1", timeout=20)
    d.wait_state("healthy", timeout=60)
    d.wait("a minute", lambda: time.monotonic() - d.started > 66, timeout=75)
    took = time.monotonic() - d.started
    calls = [r for r in w.tls["ec2"].requests if r[1].startswith("POST") or "Action=" in r[1]]
    assert not calls and not w.tls["ec2"].calls, "EC2 was called: %s" % calls
    assert w.tls["sts"].signed <= 1, "%d calls of STS" % w.tls["sts"].signed
    own = [r for r in w.api.requests if "/api/v1/nodes/" in r[1]]
    assert 1 <= len(own) <= 1 + took // 60 + 1, "%d looks at the Node in %d s" % (len(own), took)
    # Two looks at livez and one by the service address before each has come to its own grid, and the Node object.
    assert 2 <= len(w.api.requests) <= 5, "%d calls of the API server in %d s" % (len(w.api.requests), took)
    assert len([r for r in w.api.requests if r[0] > d.started + 40]) <= 1, w.api.requests
    late = [r for r in own if r[0] > d.started + 30]
    assert len(late) <= 1, "%d looks at the Node in the last half minute" % len(late)
    status = [c for c in w.cri.server.calls if c.endswith("RuntimeService/Status")]
    # Its first look, the one before it is on its grid, and two more where a busy machine made one of them unsure.
    assert 3 <= len(status) <= took / 10 + 4, "%d CRI Status in %d s" % (len(status), took)
    assert len(w.imds.requests) <= 60 * (1 + took // 60), "%d of metadata" % len(w.imds.requests)
    assert not alarms(d) and d.status()["verdict"]["state"] == "healthy", alarms(d)
    assert d.stop() == 0


# ---- secrets ----

MARKERS = [x.encode() for x in contract.SECRETS]


def search(where, data, bad):
    data = data.encode() if isinstance(data, str) else data
    for marker in MARKERS:
        if marker in data:
            at = data.index(marker)
            bad.append("%s: %r" % (where, data[max(0, at - 80):at + 40]))


def search_outputs(w, d, bad):
    """Every file that nodewhy wrote, and all that it said."""
    for top in ("run/nodewhy", "var/lib/nodewhy"):
        for where, _, files in os.walk(w.tree.at(top)):
            for name in files:
                try:
                    with open(os.path.join(where, name), "rb") as f:
                        search(os.path.join(where, name)[len(w.root):], f.read(), bad)
                except FileNotFoundError:       # a file half written, by now renamed; nothing else may go
                    assert TEMPORARY.fullmatch(name), name
    for e in d.journal:
        search("journal", json.dumps(e), bad)
    search("stderr", d.log, bad)


def secrets_of(w, *more):
    """Each verb's output, as a report that is mailed."""
    bad = []
    report, _ = w.check(timeout=60)
    assert report is not None, w.last_stdout[:200]
    search("check", w.last_stdout + w.last_stderr, bad)
    file = os.path.join(w.dir, "capture.json")
    p = w.run([w.binary(), "capture", file, "--root", w.root], timeout=60)
    with open(file, "rb") as f:
        text = f.read()
    assert text, "no capture: %s" % p.stderr
    search("capture", text + (p.stdout + p.stderr).encode(), bad)
    p = w.run([w.binary(), "replay", "--json", file], timeout=60)
    search("replay", p.stdout + p.stderr, bad)
    return bad


def secret_faults(w, name):
    if name == "refused":       # STS quotes the request, the session token in it; kubelet logs, the API server says 401
        w.sts_refuses("SignatureDoesNotMatch", message="The Canonical String for this request should have been 'POST / "
                      "x-amz-security-token:s3cr3tSessionTokenOfTheWorld ASIAEXAMPLEEXAMPLE12'")
        w.kubelet_unauthorized()
        w.api_node(401)
        w.kubelet_repeats(("E", "exec.go:190", '"Unhandled Error" err="getting credentials: exec: AWS_SECRET_ACCESS_KEY='
                           's3cr3tAccessKeyOfTheWorld AWS_SESSION_TOKEN=s3cr3tSessionTokenOfTheWorld failed"'), since=60)
    elif name == "user-data":   # the whole of it is broken, and nodeadm's error quotes some
        w.user_data_without_config()
        w.user_data("#!/bin/bash\nexport REGISTRY_PASSWORD=%s\ncurl -H 'Authorization: Bearer %s' https://example.com\n"
                    % (metadata.SECRET, metadata.SECRET))
    elif name == "proxy":
        w.proxy_environment(proxy="http://node:s3cr3tOfTheProxy@10.0.20.20:3128", no_proxy="localhost")
        w.proxy_status(407)
    elif name == "malformed":   # sets that cannot be read, with secrets in them
        w.leaf("meta-data/iam/security-credentials/" + w.role, '{"Code": "Success", "SecretAccessKey": "s3cr3tAccess')


for _name in ("sound", "refused", "user-data", "proxy", "malformed"):
    @daemon("join/secrets-" + _name, uptime=400)
    def _(w, name=_name):
        """Markers stand in every secret that a node has: none is in anything that nodewhy says or writes."""
        secret_faults(w, name)
        bad = secrets_of(w)
        d = quick(w)
        d.live(15)              # every probe has looked, most of them often
        assert d.status()["seq"] > 5, "%d passes" % d.status()["seq"]
        search_outputs(w, d, bad)
        assert d.stop() == 0
        search_outputs(w, d, bad)
        assert not bad, "; ".join(bad[:5])


def in_memory(pid):
    """Which markers, or a token for the cluster, stand in what the process can write to."""
    found = set()
    with open("/proc/%d/maps" % pid) as maps, open("/proc/%d/mem" % pid, "rb", 0) as mem:
        for line in maps:
            start, end, mode, name = re.match(r"(\w+)-(\w+) (\S+) \S+ \S+ \S+\s*(.*)", line).groups()
            if not mode.startswith("rw") or name.startswith("[v"):
                continue
            mem.seek(int(start, 16))
            try:
                data = mem.read(int(end, 16) - int(start, 16))
            except OSError:         # gone meanwhile
                continue
            found |= {m for m in MARKERS + [b"k8s-aws-v1."] if m in data}
    return found


@daemon("join/secrets-not-in-memory")
def _(w):
    """Credentials and tokens live in one look: between two of them the daemon's memory holds none, what libcurl and
    OpenSSL keep included, and be it that STS quotes them in a refusal."""
    assert in_memory(os.getpid()) >= set(MARKERS), "the search finds nothing"
    d = quick(w, SPARING, "[Probe sts]\nIntervalSec=7\n")
    for code in ("SignatureDoesNotMatch", "AccessDenied", None):
        signed = w.tls["sts"].signed
        heal = code and w.sts_refuses(code, message="The Canonical String for this request should have been 'POST / x-amz-"
                                      "security-token:s3cr3tSessionTokenOfTheWorld ASIAEXAMPLEEXAMPLE12'")
        d.wait("calls of STS", lambda: w.tls["sts"].signed > signed, timeout=30)
        d.wait("nothing is left of %s" % code, lambda: not in_memory(d.process.pid), timeout=10, step=0.1)
        if heal:
            heal()
    assert w.api.tokens, "the API server was not asked"
    assert d.stop() == 0


@daemon("join/secrets-not-in-core-dumps")
def _(w):
    """The kernel says whom it would not dump by giving all of /proc/PID to root."""
    w.imds_slow(300)
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for argv, owner in ((["sleep", "5"], 65534), ([w.binary(), "check", "--root", w.root], 0)):
        p = subprocess.Popen(w.node.argv(nobody + argv), env=w.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end, seen = time.monotonic() + 3, None
        while p.poll() is None and time.monotonic() < end and seen != owner:
            with open("/proc/%d/comm" % p.pid) as f:
                if f.read().strip() == os.path.basename(argv[0]):
                    seen = os.stat("/proc/%d/environ" % p.pid).st_uid
            time.sleep(0.01)
        p.kill()
        p.wait()
        assert seen == owner, "%s: /proc/PID is of uid %s" % (argv[0], seen)


# ---- proxies ----

@never_joined("proxy-answers-407", "ProxyMisconfigured", {"ProxyMisconfigured": None, "BootstrapFailed": ANY,
                                                          "KubeletInactive": ANY}, "bootstrapping", "407")
def _(w):
    w.proxy_environment(proxy="http://10.0.20.20:3128")
    w.proxy_status(407)
    w.nodeadm_failed('operation error EC2: DescribeInstances, exceeded maximum number of attempts, 3, https response error '
                     'StatusCode: 0, RequestID: , request send failed, Post "https://%s/": Proxy Authentication Required'
                     % w.host("ec2"))
