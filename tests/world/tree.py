# SPDX-License-Identifier: Apache-2.0
"""The host's file system for `nodewhy --root DIR`: what an EKS AMI, nodeadm and the VPC CNI leave behind."""

import json
import os
import shutil
import uuid

CONFLIST = {
    "cniVersion": "0.4.0",
    "name": "aws-cni",
    "disableCheck": True,
    "plugins": [
        {"name": "aws-cni", "type": "aws-cni", "vethPrefix": "eni", "mtu": "9001",
         "podSGEnforcingMode": "strict", "pluginLogFile": "/var/log/aws-routed-eni/plugin.log",
         "pluginLogLevel": "DEBUG", "capabilities": {"io.kubernetes.cri.pod-annotations": True}},
        {"name": "egress-cni", "type": "egress-cni", "mtu": "9001", "enabled": "false",
         "randomizeSNAT": "prng", "nodeIP": "", "ipam": {
             "type": "host-local", "ranges": [[{"subnet": "fd00::ac:00/118"}]],
             "routes": [{"dst": "::/0"}], "dataDir": "/run/cni/v4pd/egress-v6-ipam"},
         "pluginLogFile": "/var/log/aws-routed-eni/egress-v6-plugin.log",
         "pluginLogLevel": "DEBUG"},
        {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True},
    ],
}
CONTAINERD = {
    "v2": """version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
# The pause image is loaded from the AMI.
imports = ["/etc/containerd/config.d/*.toml"]

[grpc]
address = "/run/containerd/containerd.sock"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "localhost/kubernetes/pause"
enable_cdi = true

[plugins."io.containerd.grpc.v1.cri".containerd]
default_runtime_name = "runc"
discard_unpacked_layers = true

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
base_runtime_spec = "/etc/containerd/base-runtime-spec.json"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "%(bin)s"
conf_dir = "%(conf)s"
""",
    "v3": """version = 3
root = '/var/lib/containerd'
state = '/run/containerd'

[grpc]
address = '/run/containerd/containerd.sock'

[plugins.'io.containerd.cri.v1.images']
discard_unpacked_layers = true

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = 'localhost/kubernetes/pause'

[plugins.'io.containerd.cri.v1.runtime']
enable_cdi = true

[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = 'runc'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
base_runtime_spec = '/etc/containerd/base-runtime-spec.json'

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dir = '%(bin)s'
conf_dir = '%(conf)s'
""",
}
KUBECONFIG = """apiVersion: v1
kind: Config
clusters:
  - name: kubernetes
    cluster:
      certificate-authority: /etc/kubernetes/pki/ca.crt
      server: https://%(api)s
current-context: kubelet
contexts:
  - name: kubelet
    context:
      cluster: kubernetes
      user: kubelet
users:
  - name: kubelet
    user:
      exec:
        apiVersion: client.authentication.k8s.io/v1beta1
        command: aws
        args:
          - eks
          - get-token
          - --cluster-name
          - %(cluster)s
          - --region
          - %(region)s
"""
PLUGINS = ("aws-cni", "egress-cni", "portmap", "loopback", "host-local")


class Tree:
    def __init__(self, path):
        self.path = path
        self.boot_id = str(uuid.uuid4())
        self.machine_id = uuid.uuid4().hex
        os.makedirs(path)
        os.chmod(path, 0o755)

    def at(self, name):
        return os.path.join(self.path, name.lstrip("/"))

    def write(self, name, text, mode=0o644):
        """Replaces a file by rename, as careful software does."""
        path = self.at(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        tmp = path + ".new~"
        with open(tmp, "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        os.chmod(tmp, mode)
        os.rename(tmp, path)

    def read(self, name):
        with open(self.at(name), "rb") as f:
            return f.read()

    def exists(self, name):
        return os.path.lexists(self.at(name))

    def mkdir(self, name):
        os.makedirs(self.at(name), exist_ok=True)

    def link(self, name, target):
        path = self.at(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.symlink(target, path)

    def remove(self, name):
        path = self.at(name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)

    def take(self, name):
        """Moves a file or directory out of the way; returns the function that puts it back."""
        path = self.at(name)
        aside = self.path + ".aside-" + uuid.uuid4().hex
        os.rename(path, aside)

        def back():
            self.remove(name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.rename(aside, path)

        return back

    def replace(self, name, text, mode=0o644):
        """write(), and returns the function that brings the old content (or its absence) back."""
        old = self.read(name) if self.exists(name) else None

        def back():
            if old is None:
                self.remove(name)
            else:
                self.write(name, old)

        self.write(name, text, mode)
        return back

    # ---- what each piece of software leaves ----

    def kernel(self, uptime):
        self.write("proc/sys/kernel/random/boot_id", self.boot_id + "\n")
        self.write("proc/sys/net/ipv4/ip_forward", "1\n")
        self.write("proc/sys/net/ipv4/conf/all/rp_filter", "0\n")
        self.write("proc/sys/net/ipv6/conf/all/forwarding", "1\n")
        self.uptime(uptime)

    def uptime(self, seconds):
        self.write("proc/uptime", "%.2f %.2f\n" % (seconds, seconds * 1.9))

    def ec2(self):
        self.write("sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
        self.write("sys/class/dmi/id/board_vendor", "Amazon EC2\n")
        self.write("sys/class/dmi/id/product_name", "m5.large\n")
        self.write("sys/class/dmi/id/product_uuid",
                   "ec2" + uuid.uuid4().hex[:5] + str(uuid.uuid4())[8:] + "\n")

    def links(self, enis, driver):
        """/sys/class/net of the ENIs: the driver tells hardware from pods' veths."""
        for e in enis:
            if e.name:
                self.write("sys/class/net/%s/address" % e.name, e.mac + "\n")
                self.link("sys/class/net/%s/device/driver" % e.name,
                          "../../../../bus/pci/drivers/" + driver)

    def ami(self, w):
        self.write("etc/machine-id", self.machine_id + "\n")
        self.write("etc/os-release", 'NAME="Amazon Linux"\nVERSION="2023"\nID="amzn"\n'
                   'VERSION_ID="2023"\nPRETTY_NAME="Amazon Linux 2023"\n')
        self.write("etc/hostname", w.private_dns + "\n")
        self.write("etc/eks/release", 'BASE_AMI_ID="%s"\nARCH="x86_64"\n' % w.ami_id)
        self.write("etc/eks/kubelet-version.txt", "v1.33.1-eks-1de0d4f\n")
        self.write("etc/eks/containerd-version.txt", "containerd 2.2.4\n")
        self.mkdir("run/nodewhy")
        self.mkdir("var/lib/nodewhy")
        self.mkdir("var/log")
        self.link("var/run", "../run")
        self.mkdir("run/systemd/system")

    def nodeadm(self, w):
        dns = "fd30:1c53:5f8a::a" if w.ipv6 else "172.20.0.10"
        kubelet = {
            "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "address": "0.0.0.0", "cgroupDriver": "systemd", "clusterDomain": "cluster.local",
            "clusterDNS": [dns], "containerRuntimeEndpoint":
                "unix:///run/containerd/containerd.sock",
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%",
                             "nodefs.inodesFree": "5%"},
            "maxPods": w.max_pods, "providerID": "aws:///%s/%s" % (w.az, w.instance_id),
            "readOnlyPort": 0, "serverTLSBootstrap": True, "authentication": {
                "anonymous": {"enabled": False}, "webhook": {"enabled": True, "cacheTTL": "2m0s"},
                "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"}},
            "authorization": {"mode": "Webhook"}, "cgroupRoot": "/", "featureGates": {
                "RotateKubeletServerCertificate": True},
            "kubeReserved": {"cpu": "70m", "ephemeral-storage": "1Gi", "memory": "%dMi" % (11 * w.max_pods + 255)},
            "kubeReservedCgroup": "/runtime", "systemReservedCgroup": "/system", "serializeImagePulls": False,
            "protectKernelDefaults": True, "shutdownGracePeriod": "2m30s", "shutdownGracePeriodCriticalPods": "30s",
        }
        if w.stub:
            kubelet["resolvConf"] = "/run/systemd/resolve/resolv.conf"
        if w.al2:
            self.write("etc/kubernetes/kubelet/kubelet-config.json", json.dumps(kubelet, indent=2))
        else:
            self.write("etc/kubernetes/kubelet/config.json", json.dumps(kubelet, indent=4))
            self.write("etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf", json.dumps(
                {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
                 "clusterDNS": [dns]}, indent=4))
            for e in w.enis:
                if e.name:
                    self.write("etc/eks/nodeadm/udev-net-manager/%s/%s" % (w.instance_id, e.name),
                               "io.systemd.Network" if e.primary else "cni")
            p = w.enis[0]
            self.write("run/systemd/network/70-eks-%s.network" % p.name, "[Match]\nPermanentMACAddress=%s\n\n[Network]\n"
                       "DHCP=yes\n\n[DHCPv4]\nRouteMetric=512\nUseGateway=yes\n" % p.mac)
            self.write("run/nodeadm/init", "")
            self.write("etc/eks/image-credential-provider/config.json", json.dumps({
                "apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [{
                    "name": "ecr-credential-provider", "matchImages": ["*.dkr.ecr.*.amazonaws.com"],
                    "defaultCacheDuration": "12h", "apiVersion": "credentialprovider.kubelet.k8s.io/v1"}]}, indent=4))
        self.write("etc/eks/kubelet/environment",
                   'NODEADM_KUBELET_ARGS="--hostname-override=%s --node-ip=%s"\n' %
                   (w.private_dns, w.enis[0].ipv4))
        self.write("var/lib/kubelet/kubeconfig", KUBECONFIG %
                   {"region": w.region, "cluster": w.cluster, "api": w.api_host()}, 0o644)
        self.write("etc/containerd/config.toml", CONTAINERD[w.containerd] %
                   {"bin": "/opt/cni/bin", "conf": "/etc/cni/net.d"})
        self.mkdir("etc/cni/net.d")
        self.mkdir("opt/cni/bin")

    def vpc_cni(self):
        self.write("etc/cni/net.d/10-aws.conflist", json.dumps(CONFLIST, indent=2) + "\n", 0o600)
        for name in PLUGINS:
            self.write("opt/cni/bin/" + name, "#!/bin/sh\nexit 0\n", 0o755)

    def resolver(self, nameservers, search):
        lines = ["# Generated by systemd-resolved. Do not edit."]
        lines += ["nameserver " + n for n in nameservers]
        lines += ["search " + search] if search else []
        self.write("etc/resolv.conf", "\n".join(lines) + "\n")
