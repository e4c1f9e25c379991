# SPDX-License-Identifier: Apache-2.0
"""How a node fails to join, and how its runtime, its CNI and its network break: each as one method, with all that
it leaves behind in units, journal, logs, files, containers and the kernel. Texts are those of the software
(facts: nodeadm, kubelet, containerd, amazon-vpc-cni-k8s)."""

import json
import os
import socket

from . import cni, cri, host
from .fault import fault

REFUSED_POD = "Failed to assign an IP address to container %s"
NO_SUBNET_ADDRESSES = (
    "Unable to attach IPs/Prefixes for the ENI, subnet doesn't seem to have enough IPs/Prefixes. Consider using new "
    "subnet or carve a reserved range using create-subnet-cidr-reservation")


def api_error(operation, status, code, text):
    """An error of the AWS SDK for Go, version 2, as the CNI prints it."""
    return ("operation error EC2: %s, https response error StatusCode: %d, RequestID: "
            "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0, api error %s: %s" % (operation, status, code, text))


class NodeFaults(host.Host):
    """Part of World."""

    @staticmethod
    def _all(*backs):
        return lambda: [b() for b in reversed(backs) if b]

    # ---- pieces ----

    def _kubelet_stopped(self, **unit):
        ports = self._kubelet_gone()
        state = self.unit("kubelet.service", **(unit or self.never_started("kubelet.service")))
        return self._all(ports, state)

    def _aws_node_gone(self, ever=False):
        """No process, no sandbox, no socket of the CNI. ever: it has never been here in this boot."""
        old = self.cri.pods, self.cri.containers
        self.cri.pods = [p for p in old[0] if p.app != "aws-node" and p.namespace != "default" or not ever
                         and p.namespace == "default"]
        self.cri.containers = [c for c in old[1] if c.pod in self.cri.pods]
        self.ipamd.close()
        self.ipamd.close_agent()
        kept = [self.tree.take(d) for d in ("proc/%d" % cni_pid for cni_pid in (2380, 2410)) if self.tree.exists(d)]
        bundles = [self.tree.take(cni.BUNDLES + c.id) for c in old[1]
                   if c.name in ("aws-node", "aws-eks-nodeagent") and self.tree.exists(cni.BUNDLES + c.id)]
        logs = []
        if ever:
            self.logs = {k: v for k, v in self.logs.items() if not k.startswith((cni.LOGS, "var/log/pods/kube-system_"
                                                                                  "aws-node"))}
            for d in (cni.LOGS.rstrip("/"), "run/aws-node"):
                if self.tree.exists(d):
                    logs.append(self.tree.take(d))

        def back():
            self.cri.pods, self.cri.containers = old
            for b in kept + bundles + logs:
                b()
            self.node.call(self.ipamd.open)
            self.node.call(self.ipamd.open_agent)

        return back

    def _no_cni_yet(self):
        """aws-node has never been healthy: no configuration, no plugin of its own, no log, no process."""
        files = [self.tree.take(f) for f in ("etc/cni/net.d/10-aws.conflist", "opt/cni/bin/aws-cni",
                                             "opt/cni/bin/egress-cni") if self.tree.exists(f)]
        self.journal_drop("Fast updating node status as it just became ready")
        return self._all(*files)

    def journal_drop(self, *texts):
        """Lines of the boot that are not said after all; only those that nobody has read yet can go."""
        if self.journal_file:
            self.journal_file.lines = [(m, f) for m, f in self.journal_file.lines
                                       if not any(t in str(f.get("MESSAGE")) for t in texts)]

    def _never_registered(self):
        self.journal_drop("Successfully registered node", "just became ready", "RunPodSandbox for")
        gone = self._aws_node_gone(ever=True)
        return self._all(gone, self._no_cni_yet(), self._set(self.api, registered=False))

    def _network_not_ready_lines(self):
        for ago in range(300, 0, -5):
            if ago < self.uptime() - 15:
                self.kubelet_says("E", "kubelet.go:3117", '"Container runtime network not ready" networkReady="'
                                  'NetworkReady=false reason:NetworkPluginNotReady message:%s"' % cri.NOT_READY, ago)

    def _pod_refused(self, ago=20):
        """A pod was refused an address: what ipamd, plugin and kubelet say."""
        pod = cri.ident("default", "pending", "sandbox", 0)
        self.ipamd_log("info", "Received AddNetwork for NS /var/run/netns/cni-9, Sandbox %s, ifname eth0" % pod, ago + .2,
                       caller="ipamd/rpc_handler.go:82")
        self.ipamd_log("error", "DataStore has no available IP/Prefix addresses", ago + .1,
                       caller="datastore/data_store.go:858")
        self.ipamd_log("error", "AssignPodIPAddress: no available IP/Prefix addresses", ago + .1,
                       caller="ipamd/rpc_handler.go:83")
        self.ipamd_log("error", "Failed to assign IPs from network card 0: AssignPodIPv4Address: no available IP/Prefix "
                       "addresses", ago + .1, caller="ipamd/rpc_handler.go:233")
        self.ipamd_log("error", "Returning failure response for AddNetwork: AssignPodIPv4Address: no available IP/Prefix "
                       "addresses", ago, caller="ipamd/rpc_handler.go:257")
        self.plugin_log("error", REFUSED_POD % pod, ago, caller="routed-eni-cni-plugin/cni.go:219")
        self.kubelet_says("E", "pod_workers.go:1301", '"Error syncing pod, skipping" err="failed to \\"CreatePodSandbox\\" '
                          'for \\"pending_default\\" with CreatePodSandboxError: rpc error: code = Unknown desc = failed '
                          'to setup network for sandbox \\"%s\\": plugin type=\\"aws-cni\\" name=\\"aws-cni\\" failed '
                          '(add): add cmd: failed to assign an IP address to container" pod="default/pending"' % pod, ago)

    # ---- bootstrap ----

    @fault
    def nodeadm_failed(self, error="failed to get instance details: context deadline exceeded",
                       unit="nodeadm-config.service"):
        """A nodeadm unit ended with status 1 and this error: kubelet was never started."""
        config = unit == "nodeadm-config.service"
        backs = [self._never_registered()]
        ends = "config-done" if config else "run-done"
        drop = [unit] if not config else [unit, "nodeadm-run.service", "Started containerd", "containerd"]
        if self.journal_file:
            self.journal_file.lines = [
                (m, f) for m, f in self.journal_file.lines
                if f.get("_SYSTEMD_UNIT") not in ("kubelet.service",) + (("containerd.service", "nodeadm-run.service")
                                                                         if config else ())
                and not (f.get("UNIT") in drop + ["kubelet.service"] and "Starting" not in f["MESSAGE"])
                and "done!" not in f["MESSAGE"]]
        self.nodeadm_says(unit, "fatal", "nodeadm/main.go:36", "Command failed", at=ends, error=error)
        self._exited(unit, 1, at=ends)
        self.systemd_says(unit, "Failed to start %s - %s." % (unit, host.default_units()[unit].description), at=ends,
                          priority=3, MESSAGE_ID="be02cf6855d2428ba40df7e9d022f03d", JOB_RESULT="failed",
                          JOB_TYPE="start")
        backs.append(self.unit(unit, active="failed", result="exit-code", end=ends))
        if config:
            self.systemd_says("nodeadm-run.service", "Dependency failed for nodeadm-run.service - EKS Nodeadm Run.",
                              at=ends, MESSAGE_ID="be02cf6855d2428ba40df7e9d022f03d", JOB_RESULT="dependency",
                              JOB_TYPE="start")
            backs.append(self.unit("nodeadm-run.service", **self.never_started("nodeadm-run.service")))
            backs.append(self._containerd_gone())
            backs.append(self.unit("containerd.service", **self.never_started("containerd.service")))
        backs.append(self._kubelet_stopped())
        files = ["var/lib/kubelet/kubeconfig", "etc/kubernetes/pki/ca.crt", "etc/eks/kubelet/environment",
                 "etc/kubernetes/kubelet/config.json"]
        if config:
            files.append("etc/containerd/config.toml")
        backs += [self.tree.take(f) for f in files if self.tree.exists(f)]
        return self._all(*backs)

    @fault
    def nodeadm_throttled(self):
        """nodeadm-config ended at a throttled DescribeInstances."""
        for i, at in enumerate((6.0, 6.2, 6.5)):
            self.nodeadm_says("nodeadm-config.service", "warn", "retry/retry.go:48", "retrying request EC2/"
                              "DescribeInstances, attempt %d" % (i + 2), at=at * self.moment("config") / 5.7)
        return self.nodeadm_failed(api_error("DescribeInstances", 503, "RequestLimitExceeded", "Request limit exceeded."))

    @fault
    def user_data(self, text):
        """User data is this text (None: 404)."""
        return self.leaf("user-data", text)

    @fault
    def node_config_incomplete(self, key="apiServerEndpoint", error="Apiserver endpoint is missing in cluster configuration"):
        """The NodeConfig of the user data lacks a key of its cluster: nodeadm refuses it."""
        lines = self._user_data().splitlines(True)
        text = "".join(x for x in lines if not x.strip().startswith(key + ":"))
        return self._all(self.user_data(text), self.nodeadm_failed("failed to validate node config: " + error))

    @fault
    def user_data_without_config(self):
        """A custom AMI id was set: EKS injected nothing, the user's script is all there is. nodeadm fails."""
        return self._all(self.user_data("#!/bin/bash\nyum install -y amazon-ssm-agent\n"), self.nodeadm_failed(
            "could not find NodeConfig within UserData"))

    @fault
    def user_data_bootstrap_sh(self):
        """AL2 user data on AL2023: bootstrap.sh is a stub that says so and fails; nodeadm finds no NodeConfig."""
        data = self.user_data("#!/bin/bash\nset -ex\n/etc/eks/bootstrap.sh %s --kubelet-extra-args "
                              "'--max-pods=110'\n" % self.cluster)
        for text in ("ERROR: bootstrap.sh has been removed from AL2023-based EKS AMIs.",
                     "ERROR: EKS nodes are now initialized by nodeadm.", "cc_scripts_user.py[WARNING]: Failed to run "
                     "module scripts-user (scripts in /var/lib/cloud/instance/scripts)"):
            self.journal("cloud-final.service", text, at="cloud-final", identifier="cloud-init", priority=4)
        self._exited("cloud-final.service", 1, at="cloud-final-done")
        final = self.unit("cloud-final.service", active="failed", result="exit-code", end="cloud-final-done")
        return self._all(data, final, self.nodeadm_failed("could not find NodeConfig within UserData"))

    @fault
    def cluster_ca_empty(self, missing=False):
        """The cluster's CA file holds nothing (or is not there): kubelet ends at once."""
        f = "etc/kubernetes/pki/ca.crt"
        ca = self.tree.take(f) if missing else self.tree.replace(f, "")
        why = "open /etc/kubernetes/pki/ca.crt: no such file or directory" if missing else \
            "data does not contain any valid RSA or ECDSA certificates"
        return self._all(ca, self._never_registered(), self.kubelet_crash_loop(
            error='"command failed" err="failed to construct kubelet dependencies: unable to load client CA file '
            '/etc/kubernetes/pki/ca.crt: %s"' % why))

    @fault
    def unit_proxy(self, proxy="http://10.0.9.9:3128", no_proxy="localhost,127.0.0.1,169.254.169.254,.internal,172.20.0.0/16",
                   names=("kubelet", "containerd", "nodeadm-config", "nodeadm-run")):
        """These units have proxy variables by a drop-in, as user data sets them up. A password in proxy is a secret."""
        environment, backs = ("HTTP_PROXY=" + proxy, "HTTPS_PROXY=" + proxy, "NO_PROXY=" + no_proxy), []
        for n in names:
            path = "etc/systemd/system/%s.service.d/environment.conf" % n
            backs.append(self.tree.replace(path, "[Service]\n" + "".join('Environment="%s"\n' % e for e in environment)))
            if self.systemd:
                old = self.systemd.get(n + ".service")
                backs.append(self.unit(old.name, environment=tuple(old.environment) + environment,
                                       dropins=tuple(old.dropins) + ("/" + path,)))
        return self._all(*backs)

    # ---- kubelet and what the API server tells it ----

    @fault
    def kubelet_config_invalid(self):
        """kubelet's drop-in is no JSON: kubelet refuses it."""
        f = "etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf"
        return self._all(self.tree.replace(f, '{"apiVersion": "kubelet.config.k8s.io/v1beta1", "maxPods": "many"'),
                         self.kubelet_crash_loop(
            error='"command failed" err="failed to merge kubelet configs: failed to load Kubelet config file, '
            'path: /etc/%s, error: unexpected end of JSON input"' % f[4:]))

    @fault
    def kubelet_stopped(self):
        """systemctl stop kubelet: inactive since a minute, Result=success."""
        self.systemd_says("kubelet.service", "Stopped kubelet.service - Kubernetes Kubelet.", 60,
                          MESSAGE_ID="9d1aaa27d60140bd96365438aad20286")
        return self._kubelet_stopped(active="inactive", ago=60)

    @fault
    def kubelet_forgotten(self):
        """The same; and systemd has forgotten the unit, as one that has ended and that nothing refers to: it looks as if
        it had never been started in this boot."""
        self.systemd_says("kubelet.service", "Stopped kubelet.service - Kubernetes Kubelet.", 60,
                          MESSAGE_ID="9d1aaa27d60140bd96365438aad20286")
        return self._kubelet_stopped()

    def kubelet_repeats(self, *lines, every=10, since=300):
        """The same lines of kubelet, (level, source, text), again and again until now."""
        for ago in range(int(min(since, max(0, self.uptime() - self.moment("kubelet") - 1))), 0, -every):
            for level, source, text in lines:
                self.kubelet_says(level, source, text, ago)

    @fault
    def kubelet_unauthorized(self):
        """The API server answers 401 to everything: the node never registers. (What the API server itself answers is
        the control plane's part.)"""
        back, n = self._never_registered(), self.private_dns
        self.kubelet_repeats(
            ("I", "kubelet_node_status.go:76", '"Attempting to register node" node="%s"' % n),
            ("E", "kubelet_node_status.go:108", '"Unable to register node with API server" err="Unauthorized" node="%s"'
             % n), ("E", "controller.go:145", '"Failed to ensure lease exists, will retry" err="Unauthorized" interval='
                    '"7s"'), ("E", "reflector.go:200", '"Failed to watch" err="failed to list *v1.Node: Unauthorized" '
                              'reflector="k8s.io/client-go/informers/factory.go:160" type="*v1.Node"'))
        return back

    @fault
    def kubelet_forbidden(self, name=None):
        """403: kubelet's name for this node is not the one its identity has (C014)."""
        name, want = name or self.private_dns.split(".")[0] + ".corp.example.com", self.private_dns
        back = self._never_registered()
        self.kubelet_repeats(("E", "kubelet_node_status.go:108", '"Unable to register node with API server" err="nodes '
                              '\\"%s\\" is forbidden: node \\"%s\\" is not allowed to modify node \\"%s\\"" node="%s"'
                              % (name, want, name, name)))
        environment = self.tree.replace("etc/eks/kubelet/environment",
                                        'NODEADM_KUBELET_ARGS="--hostname-override=%s --node-ip=%s"\n'
                                        % (name, self.enis[0].ipv4))
        return self._all(back, environment)

    @fault
    def kubelet_nameless(self):
        """The identity is system:node: with no name (C068)."""
        back = self._never_registered()
        self.kubelet_repeats(("E", "kubelet_node_status.go:108", '"Unable to register node with API server" err="nodes is '
                              'forbidden: User \\"system:node:\\" cannot create resource \\"nodes\\" in API group \\"\\" at '
                              'the cluster scope: unknown node for user \\"system:node:\\"" node="%s"' % self.private_dns))
        return back

    @fault
    def kubelet_api_timeout(self, address="10.0.20.11"):
        """kubelet's calls time out: lease and status."""
        url = "https://0123456789ABCDEF0123456789ABCDEF.gr7.%s.eks.amazonaws.com" % self.region
        self.kubelet_repeats(
            ("E", "controller.go:195", '"Failed to update lease" err="Put \\"%s/apis/coordination.k8s.io/v1/namespaces/'
             'kube-node-lease/leases/%s?timeout=10s\\": dial tcp %s:443: i/o timeout"' % (url, self.private_dns, address)),
            ("E", "kubelet_node_status.go:549", '"Error updating node status, will retry" err="error getting node \\"%s\\": '
             'Get \\"%s/api/v1/nodes/%s?timeout=10s\\": dial tcp %s:443: i/o timeout"'
             % (self.private_dns, url, self.private_dns, address)))

    @fault
    def kubelet_exec_plugin_fails(self):
        """The token helper fails: no credentials from metadata."""
        back = self._never_registered()
        self.kubelet_repeats(
            ("E", "exec.go:190", '"Unhandled Error" err="getting credentials: exec: executable aws failed with exit code '
             '255"'), ("E", "kubelet_node_status.go:108", '"Unable to register node with API server" err="Post \\"https://'
                       'x/api/v1/nodes\\": getting credentials: exec: executable aws failed with exit code 255" node="%s"'
                       % self.private_dns))
        return back

    @fault
    def pleg_unhealthy(self, age=187):
        """PLEG has not been active for so many seconds, and says so with a growing age. The runtime answers slowly."""
        for ago in range(min(60, age - 181), 0, -5):
            m, s = divmod(age - ago, 60)
            self.kubelet_says("E", "kubelet.go:2497", '"Skipping pod synchronization" err="PLEG is not healthy: pleg was '
                              'last seen active %dm%d.%ds ago; threshold is 3m0s"' % (m, s, 4), ago)
        self.process(3301, "runc", self.uptime() - age, ["runc", "init"], state="D", ppid=PID_SHIM)
        slow = self._set(self.cri.server, delay=3.0)
        return self._all(slow, lambda: self.tree.remove("proc/3301"))

    # ---- containerd ----

    def _containerd_gone(self, leave=True):
        self.cri.server.close(leave)
        here = self.tree.exists("proc/%d" % host.PIDS["containerd"])
        process = self.tree.take("proc/%d" % host.PIDS["containerd"]) if here else None
        return self._all(process, self.cri.server.open)

    @fault
    def containerd_down(self, restarts=4):
        """containerd ends with status 1 again and again; its socket refuses; kubelet says so."""
        backs = [self._containerd_gone()]
        self.containerd_says("fatal", "containerd: failed to load TOML: /etc/containerd/config.toml: toml: expected "
                             "character =", ago=2)
        self._exited("containerd.service", 1, 2)
        backs.append(self.unit("containerd.service", active="failed", result="exit-code", restarts=restarts, ago=2))
        self._cri_refused_lines()
        return self._all(*backs)

    def _cri_refused_lines(self):
        self.kubelet_repeats(("E", "remote_runtime.go:633", '"Status from runtime service failed" err="rpc error: code = '
                              'Unavailable desc = connection error: desc = \\"transport: Error while dialing: dial unix '
                              '/run/containerd/containerd.sock: connect: connection refused\\""'),
                             ("E", "kubelet.go:2992", '"Container runtime sanity check failed" err="rpc error: code = '
                              'Unavailable desc = connection error"'), every=5, since=60)

    @fault
    def containerd_hung(self):
        """containerd takes connections and never answers, as when it is stopped or its disk hangs."""
        self.kubelet_repeats(("E", "kubelet.go:2992", '"Container runtime sanity check failed" err="rpc error: code = '
                              'DeadlineExceeded desc = context deadline exceeded"'), since=60)
        return self._set(self.cri.server, hang=True)

    @fault
    def cri_unimplemented(self):
        """containerd runs without its CRI plugin: every call is Unimplemented (C042)."""
        self.containerd_says("warning", "failed to load plugin io.containerd.grpc.v1.cri", "invalid plugin config: "
                             "`mirrors` cannot be set when `config_path` is provided", ago=min(
                                 300, self.uptime() - self.moment("containerd")))
        self.kubelet_repeats(("E", "run.go:72", '"command failed" err="failed to run Kubelet: validate service connection: '
                              'validate CRI v1 runtime API for endpoint \\"unix:///run/containerd/containerd.sock\\": rpc '
                              'error: code = Unimplemented desc = unknown service runtime.v1.RuntimeService"'), since=60)
        return self._set(self.cri.server, only={"grpc.health.v1.Health"})

    @fault
    def network_not_ready(self, message="Network plugin returns error: cni plugin not initialized"):
        """CRI says NetworkReady=false with this message, whatever the files say."""
        return self._set(self.cri, network_message=message)

    @fault
    def pause_image_missing(self, denied=True, ago=40):
        """The sandbox image was collected, and cannot be pulled: no pod starts (C004)."""
        name = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/pause:3.5"
        conf = "etc/containerd/config.toml"
        back = self.tree.replace(conf, self.tree.read(conf).decode().replace("localhost/kubernetes/pause", name))
        why = ("failed to resolve reference: unexpected status from HEAD request to https://602401143452.dkr.ecr."
               "us-west-2.amazonaws.com/v2/eks/pause/manifests/3.5: 401 Unauthorized" if denied else
               "failed to do request: dial tcp: i/o timeout")
        for a in (ago + 60, ago + 30, ago):
            self.containerd_says("error", "RunPodSandbox for &PodSandboxMetadata{Name:app,Uid:1,Namespace:default,"
                                 "Attempt:0,} failed, error", 'failed to get sandbox image "%s": failed to pull image '
                                 '"%s": %s' % (name, name, why), ago=a)
            self.kubelet_says("E", "kuberuntime_sandbox.go:72", '"Failed to create sandbox for pod" err="rpc error: code = '
                              'Unknown desc = failed to get sandbox image \\"%s\\": %s" pod="default/app"' % (name, why), a)
        return back

    @fault
    def image_pull_denied(self, status=401, ago=30):
        """A pull from ECR is refused: 401 (no basic auth credentials) or 403 (policy)."""
        image = "111122223333.dkr.ecr.%s.amazonaws.com/app:1" % self.region
        why = ("pull access denied, repository does not exist or may require authorization: authorization failed: no "
               "basic auth credentials" if status == 401 else "unexpected status from HEAD request to https://%s: 403 "
               "Forbidden" % image.replace("/", "/v2/", 1))
        for a in (ago + 60, ago):
            self.containerd_says("error", 'PullImage "%s" failed' % image, 'failed to pull and unpack image "%s": failed '
                                 'to resolve reference "%s": %s' % (image, image, why), ago=a)
            self.kubelet_says("E", "log.go:32", '"PullImage from image service failed" err="rpc error: code = Unknown desc = '
                              'failed to pull and unpack image: %s" image="%s"' % (why, image), a)

    @fault
    def image_layers_denied(self, ago=30, by_ecr=False):
        """S3 refuses the layers of an image whose manifest ECR gave, as the policy of a VPC endpoint for S3 does that
        leaves ECR's bucket out. by_ecr: it is the registry itself that refuses them, which says why. containerd names
        whom it asked at last from 2 on, and the registry before."""
        image = "111122223333.dkr.ecr.%s.amazonaws.com/app:1" % self.region
        blob = "https://%s/blobs/sha256:%s" % (image.replace("/", "/v2/", 1).replace(":1", ""), "3f" * 32)
        bucket = ("https://prod-%s-starport-layer-bucket.s3.%s.%s/1a2b/111122223333/3c4d?X-Amz-Security-Token="
                  "s3cr3tSessionTokenOfTheWorld&X-Amz-Expires=3600&X-Amz-Signature=0123456789abcdef" % (
                      self.region, self.region, self.domain))
        if self.containerd == "v2":
            why = "unexpected status code %s: 403 Forbidden" % blob
            if by_ecr:
                why += " - Server message: denied: User is not authorized to perform: ecr:BatchGetImage"
        else:
            why = "unexpected status from GET request to %s: 403 Forbidden" % (blob if by_ecr else bucket)
        why = "failed to copy: httpReadSeeker: failed open: " + why
        for a in (ago + 60, ago):
            self.containerd_says("error", 'PullImage "%s" failed' % image, 'failed to pull and unpack image "%s": %s' % (
                image, why), ago=a)
            self.kubelet_says("E", "log.go:32", '"PullImage from image service failed" err="rpc error: code = Unknown desc = '
                              'failed to pull and unpack image \\"%s\\": %s" image="%s"' % (image, why, image), a)

    @fault
    def sandbox_image_unit_failed(self):
        """AL2: sandbox-image.service failed, kubelet's start is dependency (C066). Needs World(al2=True)."""
        self.systemd_says("sandbox-image.service", "sandbox-image.service: main process exited, code=exited, status=2/"
                          "INVALIDARGUMENT", at="run-done", priority=5)
        self.systemd_says("kubelet.service", "Dependency failed for Kubernetes Kubelet.", at="run-done",
                          MESSAGE_ID="be02cf6855d2428ba40df7e9d022f03d", JOB_RESULT="dependency", JOB_TYPE="start")
        image = self._set(self.cri, images=self.cri.images - {cri.PAUSE})
        return self._all(self._never_registered(), image, self._kubelet_stopped(), self.unit(
            "sandbox-image.service", active="failed", result="exit-code", status=2, end="run-done"))

    # ---- aws-node ----

    @fault
    def aws_node_absent(self):
        """aws-node was never scheduled: no sandbox, no log directory, no configuration (C053)."""
        self._network_not_ready_lines()
        return self._all(self._aws_node_gone(ever=True), self._no_cni_yet())

    @fault
    def ipamd_down(self):
        """aws-node's processes are gone since it ran well: socket refuses, logs and configuration stay."""
        return self._aws_node_gone()

    @fault
    def ipamd_silent(self):
        """ipamd lives, its sockets take connections and answer nothing."""
        return self._all(self._set(self.ipamd, hang=True), self._set(self.ipamd.grpc, hang=True))

    @fault
    def aws_node_crash_loop(self, restarts=5, exit_code=1, error="", name="aws-node", conflist=False, finished=20.0,
                            reason=""):
        """A container of aws-node ends again and again, and is in back-off now. conflist: it has worked before."""
        old = list(self.cri.containers)
        c = next(c for c in old if c.name == name)
        backs = []
        if name == "aws-node":
            self.ipamd.close()
            backs.append(lambda: self.node.call(self.ipamd.open))
            backs += [self.tree.take(d) for d in ("proc/2380", "proc/2410") if self.tree.exists(d)]
            if not conflist:
                backs.append(self._no_cni_yet())
                self._network_not_ready_lines()
        backs.append(self.tree.take(cni.BUNDLES + c.id))
        dead = cri.Container(c.pod, c.name, c.image, cri.EXITED, restarts, exit_code, started=self.uptime() - finished - 30,
                             finished=self.uptime() - finished, message=error, reason=reason)
        self.cri.containers = [dead if x is c else x for x in old]
        for i in (restarts - 1, restarts):
            log = self.log(cni.pod_log(cri.Container(c.pod, c.name, c.image, attempt=i)))
            ends = finished + 60 * (restarts - i)
            log.add(self.uptime() - ends - 30, cni.cri_line("starting %s" % name))
            log.add(self.uptime() - ends, cni.cri_line(error or "exit", "stderr"))
        for i in range(min(restarts, 3)):
            self.kubelet_says("E", "pod_workers.go:1301", '"Error syncing pod, skipping" err="failed to \\"StartContainer\\" '
                              'for \\"%s\\" with CrashLoopBackOff: \\"back-off 2m40s restarting failed container=%s pod=%s_'
                              'kube-system(%s)\\"" pod="kube-system/%s"' % (name, name, c.pod.name, c.pod.uid, c.pod.name),
                              finished - 1 + 12 * i if finished > 1 else 1)
        path = os.path.dirname(cni.pod_log(dead))

        def back():
            self.cri.containers = old
            for i in (restarts - 1, restarts):
                self.tree.remove("%s/%d.log" % (path, i))
                self.logs.pop("%s/%d.log" % (path, i), None)

        backs.append(back)
        return self._all(*backs)

    @fault
    def aws_node_probe_killed(self, restarts=12):
        """aws-node is killed by its own liveness probe: exit 137, no error in its log (C020)."""
        for ago in (70, 60, 50):
            self.kubelet_says("I", "prober.go:116", '"Probe failed" probeType="Liveness" pod="kube-system/aws-node-x7k2p" '
                              'podUID="1" containerName="aws-node" probeResult="failure" output="timeout: failed to connect '
                              'service \\"unix:///var/run/aws-node/ipamd.sock\\" within 5s\\n"', ago)
        self.kubelet_says("I", "kuberuntime_manager.go:1064", '"Message for Container of pod" containerName="aws-node" '
                          'pod="kube-system/aws-node-x7k2p" containerMessage="Container aws-node failed liveness probe, '
                          'will be restarted"', 50)
        self.kubelet_says("I", "kuberuntime_container.go:808", '"Killing container with a grace period" pod="kube-system/'
                          'aws-node-x7k2p" containerName="aws-node" gracePeriod=10', 50)
        return self.aws_node_crash_loop(restarts, 137)

    @fault
    def nodeagent_crash_loop(self, restarts=6, bpffs=False):
        """The network policy agent ends again and again, ipamd is well (C010). bpffs: as /sys/fs/bpf is not mounted."""
        backs = [lambda: self.node.call(self.ipamd.open_agent)]
        if bpffs:
            self.log(cni.LOGS + "network-policy-agent.log").add(self.uptime() - 20, cni.zap_line(
                "error", "controller/main.go:151", "unable to create controller ebpf client: failed to mount bpffs: no such "
                "device"))
            backs.append(self.bpffs_missing())
        self.ipamd.close_agent()
        return self._all(*backs, self.aws_node_crash_loop(restarts, 1, name="aws-eks-nodeagent", conflist=True))

    @fault
    def cni_config_left_over(self, before=3600.0):
        """10-aws.conflist is of the boot before: aws-node has not become healthy in this one."""
        path = self.tree.at("etc/cni/net.d/10-aws.conflist")
        old = os.stat(path).st_mtime
        os.utime(path, (self.wall(-before),) * 2)
        return lambda: os.utime(path, (old, old))

    @fault
    def ipamd_unauthorized(self, api="DescribeNetworkInterfaces", principal=None):
        """EC2 refuses a call that ipamd cannot do without; it never comes to serve (C005, C051)."""
        who = principal or "arn:%s:sts::%s:assumed-role/%s/%s" % (self.partition, self.account, self.role, self.instance_id)
        why = api_error(api, 403, "UnauthorizedOperation", "You are not authorized to perform this operation. User: %s is "
                        "not authorized to perform: ec2:%s because no identity-based policy allows the ec2:%s action"
                        % (who, api, api))
        for ago in (141, 81, 21):
            self.ipamd_log("info", "Starting L-IPAMD %s  ..." % self.cni, ago + 6, caller="aws-k8s-agent/main.go:97")
            self.ipamd_log("error", "Failed to call ec2:%s for [%s]: %s" % (api, self.enis[0].eni_id, why), ago,
                           caller="awsutils/awsutils.go:1702")
            self.ipamd_log("error", "Initialization failure: ipamd init: failed to retrieve attached ENIs info: %s" % why,
                           ago, caller="aws-k8s-agent/main.go:152")
        return self.aws_node_crash_loop(5, 1, "Initialization failure")

    @fault
    def ipamd_refused_call(self, api="CreateNetworkInterface", ago=40, principal=None):
        """ipamd serves, and EC2 refuses it a call that it makes now and then: the role was changed (C061)."""
        who = principal or "arn:%s:sts::%s:assumed-role/%s/%s" % (self.partition, self.account, self.role, self.instance_id)
        why = api_error(api, 403, "UnauthorizedOperation", "You are not authorized to perform this operation. User: %s is "
                        "not authorized to perform: ec2:%s because no identity-based policy allows the ec2:%s action"
                        % (who, api, api))
        for a in (ago + 120, ago + 60, ago):
            self.ipamd_log("error", "Failed to call ec2:%s: %s" % (api, why), a, caller="awsutils/awsutils.go:1359")

    @fault
    def ipamd_identity_silent(self, service="sts"):
        """aws-node has a role of its own (IRSA), and STS does not answer it: its log stops in the start, and it is
        killed and starts again (C005, C011)."""
        for ago in (400, 280, 160, 40):
            for i, (level, caller, text) in enumerate(
                    [x[1:] for x in cni.start_lines(self) if x[0] == "ipamd"]):
                self.ipamd_log(level, text, ago - i * .01, caller=caller)
        backs = [self.cni_setting("AWS_ROLE_ARN", "arn:aws:iam::%s:role/cni-irsa" % self.account),
                 self.cni_setting("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/eks.amazonaws.com/serviceaccount/token")]
        self.ipamd.close()
        self._network_not_ready_lines()
        return self._all(*backs, self._no_cni_yet(), lambda: self.node.call(self.ipamd.open))

    @fault
    def policy_agent_forbidden(self, ago=20):
        """The network policy agent may not watch its objects: the role of the new version was not applied (C010)."""
        log = self.log(cni.LOGS + "network-policy-agent.log")
        for a in (ago + 80, ago + 40, ago):
            log.add(self.uptime() - a, cni.zap_line(
                "error", "cache/reflector.go:204", 'Failed to watch *v1alpha1.PolicyEndpoint: failed to list *v1alpha1.'
                'PolicyEndpoint: policyendpoints.networking.k8s.aws is forbidden: User \"system:serviceaccount:kube-system:'
                'aws-node\" cannot list resource \"policyendpoints\"'))

    @fault
    def ipamd_api_server_unreachable(self):
        """ipamd cannot reach the service address of the API server and waits (C021)."""
        for ago in range(60, 0, -5):
            self.ipamd_log("error", "Unable to reach API Server: Get \"https://172.20.0.1:443/version?timeout=5s\": dial "
                           "tcp 172.20.0.1:443: i/o timeout", ago, caller="k8sapi/k8sutils.go:208")
        self._network_not_ready_lines()
        closed = self.ipamd.close()
        return self._all(closed, lambda: self.node.call(self.ipamd.open), self._no_cni_yet())

    @fault
    def eniconfig_missing(self):
        """Custom networking without an ENIConfig for this zone (C022). Needs World(custom_networking=True)."""
        for ago in (80, 20):
            self.ipamd_log("error", 'error while retrieving eniconfig: ENIConfig.crd.k8s.amazonaws.com "%s" not found'
                           % self.az, ago, caller="eniconfig/eniconfig.go:73")
            self.ipamd_log("error", "No ENIConfig could be found for this node", ago, caller="ipamd/ipamd.go:649")
            self.ipamd_log("error", "Initialization failure: Failed to attach any ENIs for custom networking", ago,
                           caller="aws-k8s-agent/main.go:152")
        return self.aws_node_crash_loop(3, 1, "Initialization failure")

    @fault
    def ipamd_unknown_type(self):
        """ipamd has no limits for the instance type and may not ask for them."""
        for ago in (80, 20):
            self.ipamd_log("error", "Failed calling DescribeInstanceTypes for `%s`: %s" % (
                self.instance_type, api_error("DescribeInstanceTypes", 403, "UnauthorizedOperation", "You are not "
                                              "authorized")), ago, caller="awsutils/awsutils.go:1940")
            self.ipamd_log("error", "Initialization failure: vpc ip resource(eni ip limit): unknown instance type: %s"
                           % self.instance_type, ago, caller="aws-k8s-agent/main.go:152")
        return self.aws_node_crash_loop(4, 1, "Initialization failure")

    @fault
    def cni_setting(self, name, value):
        """aws-node runs with another setting (None: unset)."""
        old = dict(self.cni_env)
        self.cni_env[name] = value
        self._aws_node_anew()

        def back():
            self.cni_env.clear()
            self.cni_env.update(old)
            self._aws_node_anew()

        return back

    def _aws_node_anew(self):
        for c in self.cri.containers:
            if c.name == "aws-node":
                c.env = tuple("%s=%s" % x for x in cni.environment(self).items())
                self._container_files(c)
        self._process("aws-k8s-agent")

    # ---- addresses ----

    def _full(self):
        """Every address that this node has is in use, by ipamd's books; each pod is one of the world."""
        free = [a for e in self.enis for a in e.secondaries if a not in {p[1] for p in e.pods}]
        if free and not self.prefix_mode:
            raise ValueError("%d addresses are free: make the World full first (pods=)" % len(free))

    @fault
    def subnet_exhausted(self, api="AssignPrivateIpAddresses", ago=15):
        """The subnet has no free address left: EC2 says so, a pod was refused (C015)."""
        why = api_error(api, 400, "InsufficientFreeAddressesInSubnet", "The specified subnet does not have enough free "
                        "addresses to satisfy the request.")
        self._no_more(why, ago)

    @fault
    def subnet_fragmented(self, ago=15):
        """No /28 is free in one piece. World(prefix_mode=True)."""
        self._no_more(api_error("AssignPrivateIpAddresses", 400, "InsufficientCidrBlocks", "The specified subnet does not "
                                "have enough free cidr blocks to satisfy the request."), ago)
        self.ipamd_log("debug", "Recently we had InsufficientCidr error hence will wait for 2m0s before retrying", ago - 5,
                       caller="ipamd/ipamd.go:978")

    def _no_more(self, why, ago):
        e = self.enis[-1]
        for a in (ago + 120, ago + 60, ago):
            self.ipamd_log("error", "Failed to allocate a private IP/Prefix addresses on ENI %s: %s" % (e.eni_id, why), a,
                           caller="awsutils/awsutils.go:2082")
            self.ipamd_log("error", NO_SUBNET_ADDRESSES + ": " + why, a)
        self._pod_refused(ago + 2)

    @fault
    def eni_limit_reached(self, ago=15, check=True):
        """All ENIs of the type are attached and full, and a pod was refused. The World must be that full already."""
        if check:
            self._full()
        for a in (ago + 10, ago + 5, ago):
            self.ipamd_log("debug", "Skipping ENI allocation as the max ENI limit is already reached", a,
                           caller="ipamd/ipamd.go:1005")
        self._pod_refused(ago)

    @fault
    def eni_quota_reached(self, ago=15):
        """The region's quota of ENIs is used up."""
        self._create_failed(api_error("CreateNetworkInterface", 400, "NetworkInterfaceLimitExceeded", "The maximum number "
                                      "of network interfaces has been reached."), ago)

    def _create_failed(self, why, ago):
        self.ipamd_log("error", "Failed to CreateNetworkInterface %s for subnet %s" % (why, self.enis[0].subnet_id), ago,
                       caller="awsutils/awsutils.go:1359")
        self.ipamd_log("error", "Failed to increase pool size due to not able to allocate ENI AllocENI: failed to create "
                       "ENI: %s" % why, ago, caller="ipamd/ipamd.go:1073")
        self._pod_refused(ago)

    @fault
    def eni_attach_failed(self, ago=15):
        """An ENI was made and could not be attached: no free device number."""
        self.ipamd_log("error", "awsGetFreeDeviceNumber: no available device number for network card 0", ago,
                       caller="awsutils/awsutils.go:973")
        self.ipamd_log("error", "Failed to attach ENI eni-0fedcba9876543210: %s" % api_error(
            "AttachNetworkInterface", 400, "AttachmentLimitExceeded", "Interface count exceeds the limit for %s"
            % self.instance_type), ago, caller="awsutils/awsutils.go:1044")
        self.ipamd_log("error", "Failed to increase pool size due to not able to allocate ENI AllocENI: error attaching ENI",
                       ago, caller="ipamd/ipamd.go:1073")
        self._pod_refused(ago)

    @fault
    def address_cooldown(self, ago=5):
        """All that is free is in its 30 s of cooldown, and a pod was refused."""
        free = {a for e in self.enis for a in e.secondaries} - {a for e in self.enis for _, a in e.pods}
        self._pod_refused(ago)
        return self._set(self.ipamd, cooling=free)

    @fault
    def trunk_missing(self, refused=True):
        """Pod ENIs are on, the trunk never came (C009). refused: a pod wanted a branch of it."""
        self.ipamd_log("error", "No slot available for a trunk ENI to be attached. Not labeling the node", 120,
                       caller="ipamd/ipamd.go:1470")
        if refused:
            self.ipamd_log("warn", "Send AddNetworkReply: No trunk ENI found, cannot add a pod ENI", 20,
                           caller="ipamd/rpc_handler.go:120")
        return self.cni_setting("ENABLE_POD_ENI", "true")

    @fault
    def prefix_unsupported(self):
        """Prefix mode on a type that cannot: ipamd falls back to single addresses (C050)."""
        self.ipamd_log("error", "Prefix delegation is not supported on non-nitro instance %s hence falling back to default "
                       "(secondary IP) mode" % self.instance_type, at="ipamd", caller="ipamd/ipamd.go:2777")
        return self.cni_setting("ENABLE_PREFIX_DELEGATION", "true")

    @fault
    def allocations_lost(self, n=2):
        """ipamd was restarted and forgot n pods that live: their routes stand, the checkpoint lacks them (C036)."""
        have = self.ipamd.checkpoint()
        lost = have["allocations"][:n]
        have["allocations"] = have["allocations"][n:]
        self.ipamd_log("info", "Starting L-IPAMD %s  ..." % self.cni, 40, caller="aws-k8s-agent/main.go:97")
        for a in lost:
            self.ipamd_log("error", "datastore: Sandbox aws-cni/%s/eth0 uses unknown IP Address %s - presuming stale/dead"
                           % (a["containerID"], a.get("ipv4") or a.get("ipv6")), 34, caller="datastore/data_store.go:521")
        self.tree.write(cni.CHECKPOINT, json.dumps(have), 0o600)
        return self.ipamd.save

    @fault
    def eni_unconfigured(self, i=1):
        """The link of ENI i is there, its route table and rule are not: ipamd never set it up."""
        e = self.enis[i]
        lines = [("route", "%s dev %s scope link table %d" % (e.gateway, e.name, e.table)),
                 ("route", "default via %s dev %s table %d" % (e.gateway, e.name, e.table)),
                 ("rule", "from %s lookup %d prio 32765" % (e.ipv4, e.table))]
        self.node.ip(["%s del %s" % x for x in reversed(lines)])
        return lambda: self.node.ip(["%s add %s" % x for x in lines])

    @fault
    def eni_gone(self, i=1):
        """ENI i was detached behind ipamd's back: neither kernel nor metadata have it, its pods live on."""
        e = self.enis[i]
        self.node.ip(["link del " + e.name])
        self.tree.remove("sys/class/net/" + e.name)
        d = "meta-data/network/interfaces/macs/%s/" % e.mac
        self.imds.tree = {k: v for k, v in self.imds.tree.items() if not k.startswith(d)}

    @fault
    def eni_unmanaged(self, i=1):
        """ENI i bears the tag node.k8s.amazonaws.com/no_manage: the CNI leaves it alone. Not a fault."""
        e = self.enis[i]
        unconfigured = self.eni_unconfigured(i)
        old = self.ipamd.managed
        self.ipamd.managed = lambda: [x for x in old() if x is not e]

        def back():
            del self.ipamd.managed
            unconfigured()

        return back

    @fault
    def no_ipv6_address(self):
        """The primary ENI has no global IPv6 address. World(ipv6=True)."""
        p = self.enis[0]
        self.node.ip(["addr del %s/128 dev %s" % (p.ipv6, p.name)], family=6)
        return lambda: self.node.ip(["addr add %s/128 dev %s nodad" % (p.ipv6, p.name)], family=6)

    # ---- the node's network ----

    def _pod_rules(self):
        out = []
        for e in self.enis:
            for _, a in e.pods:
                if ":" not in a:
                    out.append("from all to %s/32 lookup main prio 512" % a)
                    if not e.primary:
                        out.append("from %s/32 lookup %d prio 1536" % (a, e.table))
        return out

    @fault
    def rules_flushed(self, priorities=(512, 1536)):
        """Something removed the pods' rules (C001): pods on secondary ENIs lose their way."""
        rules = [r for r in self._pod_rules() if int(r.rsplit(" ", 1)[1]) in priorities]
        self.node.ip(["rule del " + r for r in rules])
        return lambda: self.node.ip(["rule add " + r for r in rules], force=True)

    @fault
    def pod_routes_flushed(self):
        """The pods' host routes are gone from main."""
        routes = ["%s/32 dev %s scope link" % (a, link) for e in self.enis for link, a in e.pods if ":" not in a]
        self.node.ip(["route del " + r for r in routes])
        return lambda: self.node.ip(["route add " + r for r in routes])

    @fault
    def networkd_took_eni(self, i=1, ago=120):
        """systemd-networkd was restarted and configured a secondary ENI by DHCP, whatever nodeadm says of whose it is:
        its routes are in main, the CNI's rules are gone (C001)."""
        e = self.enis[i]
        lines = ["route add %s dev %s proto kernel scope link src %s metric 522" % (e.subnet, e.name, e.ipv4),
                 "route add default via %s dev %s proto dhcp src %s metric 522" % (e.gateway, e.name, e.ipv4)]
        self.node.ip(lines)
        lease = self.tree.replace("run/systemd/netif/leases/%d" % (10 + i), "ADDRESS=%s\nROUTER=%s\n" % (e.ipv4, e.gateway))
        self.journal("systemd-networkd.service", "%s: DHCPv4 address %s/%d, gateway %s acquired from %s" % (
            e.name, e.ipv4, e.subnet.prefixlen, e.gateway, e.gateway), ago - 1, transport="journal")
        since = self.uptime() - ago
        unit = self.unit("systemd-networkd.service", start=since, end=None)
        return self._all(lease, unit, self.rules_flushed(), lambda: self.node.ip(
            ["route del " + x[len("route add "):] for x in reversed(lines)]))

    @fault
    def nm_cloud_setup(self):
        """NetworkManager's nm-cloud-setup is active: its tables 30200 and 30400, and rules before ours."""
        e = self.enis[0]
        rules = ["from %s lookup 30200 prio 30200" % e.ipv4, "from all lookup 30400 prio 30400"]
        routes = ["default via %s dev %s table %d" % (e.gateway, e.name, t) for t in (30200, 30400)]
        self.node.ip(["route add " + r for r in routes] + ["rule add " + r for r in rules])
        now = self.unit("nm-cloud-setup.service", active="inactive", type="oneshot", start=self.uptime() - 200,
                        end=self.uptime() - 199, pid=3100, code=1)
        timer = self.unit("nm-cloud-setup.timer", active="active", sub="waiting")
        return self._all(now, timer, lambda: self.node.ip(["rule del " + r for r in rules] + [
            "route del " + r for r in routes]))

    @fault
    def two_default_routes(self, i=1, metric=512):
        """A second default route in main, with the primary's metric (C028)."""
        e = self.enis[i]
        line = "default dev %s scope link metric %d" % (e.name, metric)
        self.node.ip(["route append " + line])
        return lambda: self.node.ip(["route del " + line])

    @fault
    def ip_forward_off(self):
        """net.ipv4.ip_forward is 0 (C059)."""
        self.node.sysctl({"net.ipv4.ip_forward": 0})
        return self._all(self.tree.replace("proc/sys/net/ipv4/ip_forward", "0\n"),
                         lambda: self.node.sysctl({"net.ipv4.ip_forward": 1}))

    @fault
    def rp_filter_strict(self):
        """Reverse path filtering is strict on the primary ENI."""
        key = "net.ipv4.conf.%s.rp_filter" % self.enis[0].name
        old = self.node.call(lambda: open("/proc/sys/" + key.replace(".", "/")).read().strip())
        self.node.sysctl({key: 1})
        return lambda: self.node.sysctl({key: old})

    @fault
    def mac_policy_persistent(self):
        """udev gave the pods' host links another MAC after the CNI had set them up (C013)."""
        links = [link for e in self.enis for link, _ in e.pods]
        self.node.ip(["link set %s address 02:aa:bb:cc:%02x:%02x" % (link, i >> 8, i & 255) for i, link in
                      enumerate(links)])
        file = "usr/lib/systemd/network/99-default.link"
        backs = [self.tree.replace(file, "[Match]\nOriginalName=*\n\n[Link]\nNamePolicy=keep kernel database onboard slot "
                                   "path\nMACAddressPolicy=persistent\n")]
        for link in links:
            index = self.node.call(socket.if_nametoindex, link)
            backs.append(self.tree.replace("run/udev/data/n%d" % index, "I:1\nE:ID_NET_LINK_FILE=/%s\n" % file))
            backs.append(self.tree.replace("sys/class/net/%s/addr_assign_type" % link, "3\n"))
        return self._all(*backs)

    @fault
    def selinux_enforcing(self, ago=30):
        """SELinux enforces and denied nodeadm's or containerd's work (C052)."""
        self.kernel_says('audit: type=1400 audit(1.1:1): avc:  denied  { execute } for  pid=1801 comm="nodeadm" name='
                         '"kubelet" dev="nvme0n1p1" ino=1 scontext=system_u:system_r:init_t:s0 tcontext=system_u:'
                         'object_r:user_home_t:s0 tclass=file permissive=0', ago, priority=5)
        return self.tree.replace("sys/fs/selinux/enforce", "1")


PID_SHIM = 2200
