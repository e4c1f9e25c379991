# SPDX-License-Identifier: Apache-2.0
"""The host's own services in a sound state: units, journal, kubelet, containerd, ipamd; and how they
break. World is made of this."""

import functools
import hashlib
import json
import re
import time
import uuid

from . import cni, cri, journal, kubelet, units
from .fault import fault

# Seconds since boot at which a node of AL2023 is so far; a young World is through with all of it.
MOMENTS = {
    "kernel": 0.0, "networkd": 4.1, "resolved": 4.3, "hook": 4.6, "hook-done": 5.0, "online": 5.6,
    "config": 5.7, "config-done": 6.9, "cloud-init": 7.0, "cloud-init-done": 8.2,
    "cloud-config": 8.3, "cloud-config-done": 8.8, "cloud-final": 8.9, "cloud-final-done": 9.6,
    "run": 9.7, "containerd": 10.4, "kubelet": 12.1, "registered": 13.0, "run-done": 12.4,
    "sandbox": 14.0, "init-container": 16.2, "ipamd": 18.0, "ipamd-serves": 21.0, "conflist": 21.6,
    "ready": 22.4,
}
LAST = max(MOMENTS.values())
KUBELET_ARGS = ("--cloud-provider=external", "--config=/etc/kubernetes/kubelet/config.json",
                "--config-dir=/etc/kubernetes/kubelet/config.json.d",
                "--image-credential-provider-bin-dir=/etc/eks/image-credential-provider",
                "--image-credential-provider-config=/etc/eks/image-credential-provider/config.json",
                "--kubeconfig=/var/lib/kubelet/kubeconfig", "--node-labels=")
PIDS = {"networkd": 1101, "resolved": 1120, "hook": 1190, "config": 1410, "cloud-final": 1720,
        "run": 1801, "containerd": 1850, "kubelet": 1902, "ipamd": 2410, "aws-vpc-cni": 2380}
VERSIONS = {"kubelet": "v1.33.1-eks-1de0d4f", "containerd": "2.2.4", "cni": "v1.20.1"}


def default_units(al2=False):
    """What systemd has on a sound node. nodeadm's units are oneshots without RemainAfterExit: they
    end as inactive (dead) with Result=success; cloud-init's remain, as active (exited)."""

    def service(name, description, start, **more):
        return units.Unit(name + ".service", description=description, start=start,
                          pid=more.pop("pid", 900 + len(out)), **more)

    def oneshot(name, description, start, remain=False, **more):
        return service(name, description, start, end=start + "-done", type="oneshot", code=1,
                       remain=remain, active="active" if remain else "inactive",
                       sub="exited" if remain else "dead", **more)

    out = []
    out.append(service("systemd-networkd", "Network Configuration", "networkd", type="notify",
                       pid=PIDS["networkd"]))
    out.append(service("systemd-resolved", "Network Name Resolution", "resolved", type="notify",
                       pid=PIDS["resolved"]))
    for name, description in (("chronyd", "NTP client/server"), ("sshd", "OpenSSH server daemon"),
                              ("dbus-broker", "D-Bus System Message Bus"),
                              ("amazon-ssm-agent", "amazon-ssm-agent"),
                              ("systemd-journald", "Journal Service"),
                              ("systemd-udevd", "Rule-based Manager for Device Events and Files")):
        out.append(service(name, description, "networkd"))
    out.append(oneshot("cloud-init-local", "Initial cloud-init job (pre-networking)", "hook", True))
    out.append(oneshot("cloud-init", "Initial cloud-init job (metadata service crawler)",
                       "cloud-init", True))
    out.append(oneshot("cloud-config", "Apply the settings specified in cloud-config",
                       "cloud-config", True))
    out.append(oneshot("cloud-final", "Execute cloud user/final scripts", "cloud-final", True,
                       pid=PIDS["cloud-final"]))
    kubelet_more = dict(restart="on-failure", pid=PIDS["kubelet"], slice="runtime.slice",
                        file_state="enabled" if al2 else "disabled", files=(
                            "/etc/eks/kubelet/environment",),
                        exec_start=("/usr/bin/kubelet",) + KUBELET_ARGS,
                        after=("containerd.service", "sandbox-image.service") if al2 else (
                            "containerd.service",),
                        requires=("containerd.service", "sandbox-image.service") if al2 else ())
    if al2:
        out.append(oneshot("sandbox-image", "pull sandbox image defined in containerd config.toml",
                           "run"))
        kubelet_more["files"] = ()
    else:
        out.append(oneshot("nodeadm-boot-hook", "EKS Nodeadm Boot Hook", "hook", pid=PIDS["hook"]))
        out.append(oneshot("nodeadm-config", "EKS Nodeadm Config", "config", pid=PIDS["config"]))
        out.append(oneshot("nodeadm-run", "EKS Nodeadm Run", "run", pid=PIDS["run"],
                           after=("nodeadm-config.service", "cloud-final.service"),
                           requires=("nodeadm-config.service",)))
    out.append(service("containerd", "containerd container runtime", "containerd", type="notify",
                       restart="always", pid=PIDS["containerd"], slice="runtime.slice",
                       file_state="enabled" if al2 else "disabled",
                       exec_start=("/usr/bin/containerd",)))
    out.append(service("kubelet", "Kubernetes Kubelet", "kubelet", **kubelet_more))
    for name, active, sub in (("multi-user.target", "active", "active"),
                              ("network-online.target", "active", "active"),
                              ("cloud-init.target", "active", "active")):
        out.append(units.Unit(name, active=active, sub=sub, start="online", file_state="static"))
    return {u.name: u for u in out}


def klog(level, at, pid, source, text):
    """A line of kubelet as klog formats it."""
    t = time.gmtime(at)
    return "%s%02d%02d %s.%06d %7d %s] %s" % (level, t.tm_mon, t.tm_mday, time.strftime("%H:%M:%S", t),
                                              int(at % 1 * 1e6), pid, source, text)


def golog(level, at, text, error=None):
    """A line of containerd: logfmt."""
    fields = [("msg", text)] + ([("error", error)] if error else [])
    return 'time="%s.%09dZ" level=%s %s' % (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)), int(at % 1 * 1e9), level,
        " ".join("%s=%s" % (k, json.dumps(v)) for k, v in fields))


def zap(level, at, caller, text, **fields):
    """A line of nodeadm: JSON."""
    return json.dumps(dict({"level": level, "ts": at, "caller": caller, "msg": text}, **fields))


class Host:
    """Part of World: what runs on the node itself."""

    def _host_options(self, systemd, journal_, version):
        self._with_systemd, self._with_journal, self.cni, self.cni_env = systemd, journal_, version, {}
        self.systemd = self.journal_file = self.kubelet = self.cri = self.ipamd = None
        self.logs = {}          # path -> cni.Log
        self._booted = None, 0.0

    def _host_start(self):
        """After tree and servers."""
        self._launched()
        self.api.created = self.wall("registered")
        self.kubelet = kubelet.Kubelet(self)
        self.node.call(self.kubelet.open)
        self.tree.write("var/lib/kubelet/pki/kubelet-server-current.pem",
                        open(self.certs + "/server.pem").read(), 0o600)
        self.cri = cri.Containerd(self)
        self.cri.pods, self.cri.containers = cni.containers(self)
        self.cri.images |= set(cni.images(self).values()) | {"public.ecr.aws/docker/library/busybox:1"}
        self.cri.server.open()
        self.ipamd = cni.Ipamd(self)
        self.node.call(self.ipamd.open)
        self.node.call(self.ipamd.open_agent)
        self.ipamd.save()
        self._host_processes()
        for c in self.cri.containers:
            self._container_files(c)
        self._ipamd_lines()
        if self._with_journal:
            self.journal_file = journal.Journal(self)
            self._boot_lines()
        if self._with_systemd:
            self.systemd = units.Systemd(self)
            self.systemd.units = default_units(self.al2)
            self._interface_units()
            self.systemd.start()

    def _host_none(self):
        """None of the programs of a node are here."""
        self.cri.server.close()
        self.ipamd.close()
        self.kubelet.close()
        if self.systemd:
            for name in [n for n in self.systemd.units if re.match("nodeadm|kubelet|containerd|udev-net|sandbox", n)]:
                del self.systemd.units[name]
        if self.journal_file:
            self.journal_file.lines.clear()

    def _interface_units(self):
        for e in self.enis:
            if e.name and not self.al2:
                name = "udev-net-manager@%s.service" % e.name
                self.systemd.units[name] = units.Unit(
                    name, description="udev net manager", type="oneshot", active="inactive",
                    start="hook", end="hook-done", pid=1200 + e.device, code=1, file_state="static")

    def _host_settle(self):
        """Before somebody looks: what was said is in the journal."""
        if self.journal_file:
            self.journal_file.flush()
        for log in self.logs.values():
            log.flush()

    def _host_close(self):
        for x in (self.systemd, self.journal_file, self.cri and self.cri.server, self.ipamd):
            if x:
                x.close()

    # ---- processes ----

    def process(self, pid, comm, moment, args, env=(), ppid=1, group="/system.slice", state="S"):
        """What /proc/PID shows; returns what makes it end."""
        d = "proc/%d/" % pid
        start = int(self.moment(moment) * 100)
        self.tree.write(d + "comm", comm[:15] + "\n")
        self.tree.write(d + "stat", "%d (%s) %s %d %d %d 0 -1 4194560 9000 0 0 0 120 80 0 0 20 0 12 0 %d 1300000000 "
                        "15000 18446744073709551615 1 1 0 0 0 0 0 0 2143420159 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
                        % (pid, comm[:15], state, ppid, pid, pid, start))
        self.tree.write(d + "status", "Name:\t%s\nState:\t%s (sleeping)\nPid:\t%d\nPPid:\t%d\nUid:\t0\t0\t0\t0\n"
                        % (comm[:15], state, pid, ppid))
        self.tree.write(d + "cmdline", "".join(a + "\0" for a in args))
        self.tree.write(d + "environ", "".join(e + "\0" for e in env), 0o400)
        self.tree.write(d + "cgroup", "0::%s\n" % group)
        return lambda: self.tree.remove(d)

    def _process(self, name):
        kubelet_env = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin", "NODEADM_KUBELET_ARGS=" + " ".join(
            KUBELET_ARGS)
        if name == "aws-k8s-agent":
            c = next((c for c in self.cri.containers if c.name == "aws-node" and c.state == cri.RUNNING), None)
            if c:
                group = "/kubepods.slice/kubepods-burstable.slice/cri-containerd-%s.scope" % c.id
                self.process(c.pid, "aws-vpc-cni", c.started, ["/app/aws-vpc-cni"], c.env, PIDS["containerd"], group)
                self.process(PIDS["ipamd"], "aws-k8s-agent", c.started, ["./aws-k8s-agent"], c.env, c.pid, group)
        elif name == "kubelet":
            self.process(PIDS["kubelet"], "kubelet", "kubelet", ("/usr/bin/kubelet",) + KUBELET_ARGS, kubelet_env,
                         group="/runtime.slice/kubelet.service")
        elif name == "containerd":
            self.process(PIDS["containerd"], "containerd", "containerd", ["/usr/bin/containerd"], kubelet_env[:1],
                         group="/runtime.slice/containerd.service")

    def _host_processes(self):
        """Again after the node's age has changed: a start is told in ticks since boot."""
        self.process(1, "systemd", 0.0, ["/usr/lib/systemd/systemd", "--switched-root", "--system"], ppid=0,
                     group="/init.scope")
        for name in ("containerd", "kubelet", "aws-k8s-agent"):
            self._process(name)

    # ---- containers, pods, ipamd ----

    def _container_files(self, c):
        """The log, and the bundle while it runs."""
        if c.state == cri.RUNNING:
            self.tree.write(cni.BUNDLES + c.id + "/config.json", json.dumps(cni.bundle(c)), 0o600)
            self.tree.write(cni.BUNDLES + c.id + "/init.pid", str(c.pid))
        if c.started is not None and c.name != "app":
            self.log(cni.pod_log(c)).add(c.started, cni.cri_line("starting %s" % c.name))

    def log(self, path):
        """A log file of lines with a moment."""
        return self.logs.setdefault(path, cni.Log(self, path))

    def aws_node_env(self):
        return cni.environment(self)

    def limits(self):
        """(ENIs, addresses an ENI) of the instance type."""
        from .world import LIMITS
        return LIMITS.get(self.instance_type, (3, 10))

    @staticmethod
    @functools.lru_cache(maxsize=4096)
    def _link_name(namespace, name):
        return "eni" + hashlib.sha1(("%s.%s" % (namespace, name)).encode()).hexdigest()[:11]

    def pods_by_link(self):
        """The pod behind each host link, whose name holds the pod's."""
        return {self._link_name(p.namespace, p.name): p for p in self.cri.pods}

    def pod_of(self, link):
        return self.pods_by_link().get(link)

    def _host_pod(self, index):
        """add_pod() has set one up: the runtime and ipamd know of it."""
        p = cri.Pod("default", "pod-%d" % index, self.uptime())
        self.cri.pods.append(p)
        self.cri.containers.append(cri.Container(p, "app", "public.ecr.aws/docker/library/busybox:1",
                                                 started=self.uptime()))
        self.ipamd.save()

    def _host_pod_gone(self, link):
        p = self.pod_of(link)
        if p:
            self.cri.pods.remove(p)
            self.cri.containers = [c for c in self.cri.containers if c.pod is not p]
        self.ipamd.save()

    def ipamd_log(self, level, text, ago=0.0, at=None, caller="ipamd/ipamd.go:986"):
        """A line of ipamd.log."""
        self.log(cni.LOGS + "ipamd.log").add(self.uptime() - ago if at is None else at,
                                             cni.zap_line(level, caller, text))

    def plugin_log(self, level, text, ago=0.0, at=None, caller="routed-eni-cni-plugin/cni.go:129"):
        """A line of plugin.log, of the CNI plugin that containerd runs for each pod."""
        self.log(cni.LOGS + "plugin.log").add(self.uptime() - ago if at is None else at,
                                              cni.zap_line(level, caller, text))

    def _ipamd_lines(self):
        for at, level, caller, text in cni.start_lines(self):
            self.ipamd_log(level, text, at=at, caller=caller)
        pods = [(a, self.pod_of(link)) for e in self.enis for link, a in e.pods]
        for i, (a, pod) in enumerate(pods):
            self.ipamd_log("info", "Received AddNetwork for NS /var/run/netns/cni-%d, Sandbox %s, ifname eth0" % (
                i, pod.id), at="ready", caller="ipamd/rpc_handler.go:82")
            self.ipamd_log("info", "Send AddNetworkReply: IPv4Addr: %s, IPv6Addr: , DeviceNumber: 0, err: <nil>" % a,
                           at="ready", caller="ipamd/rpc_handler.go:263")
            self.plugin_log("info", "Received CNI add request: ContainerID(%s) Netns(/var/run/netns/cni-%d) IfName("
                            "eth0) Args(K8S_POD_NAME=%s)" % (pod.id, i, pod.name), at="ready")
        for ago in range(3600, 0, -300):
            if self.uptime() - ago > self.moment("ready"):
                self.ipamd_log("debug", "IP stats for Network Card 0 - total IPs: %d, assigned IPs: %d, cooldown IPs: "
                               "0" % (sum(self.ipamd.pool(e)[1] for e in self.ipamd.managed()), len(pods)),
                               ago=ago, caller="ipamd/ipamd.go:693")

    # ---- time ----

    def moment(self, m):
        """Seconds since boot of a named moment, or of a number itself."""
        if not isinstance(m, str):
            return m
        return MOMENTS[m] * min(1.0, self._uptime * 0.9 / LAST)

    def wall(self, moment):
        """The same as seconds of the wall clock."""
        return self._booted_at() + self.moment(moment)

    def _booted_at(self):
        """The same number as long as the node's age is not set anew: the clocks are read once."""
        if self._booted[0] != (self.started_at, self._uptime):
            self._booted = (self.started_at, self._uptime), time.time() - self.uptime()
        return self._booted[1]

    def reboot(self, uptime=300.0):
        """The node has booted anew so many seconds ago: another boot id, its own lines, sound units."""
        self._host_settle()
        self.tree.boot_id = str(uuid.uuid4())
        self.set_uptime(uptime)
        self.tree.kernel(uptime)
        if self.journal_file:
            self.journal_file.new_boot()
            self._boot_lines()
        if self.systemd:
            for u in default_units(self.al2).values():
                self.systemd.put(u)

    # ---- units ----

    @fault
    def unit(self, name, ago=0.0, **fields):
        """A unit is as the fields say (those of units.Unit), since ago seconds. What a state implies
        follows: a failed one has no main process, its Result is exit-code and its status 1."""
        if not self.systemd:
            return None
        old = self.systemd.units.get(name)
        self.systemd.put(self._unit(old or self.systemd.get(name), ago, fields))

        def back():
            if old:
                self.systemd.put(old)
            else:
                gone = units.Unit(name, load="not-found", active="inactive", file_state="")
                self.systemd.put(gone)
                del self.systemd.units[name]

        return back

    def _unit(self, old, ago, fields):
        since, f = self.uptime() - ago, dict(fields)
        active = f.get("active")
        if old.load == "not-found" and "load" not in f:
            f.update(load="loaded", file_state=f.get("file_state", "enabled"))
        if active == "failed":
            f = dict(dict(sub="failed", end=since, code=1, status=1, pid=old.pid or 4321,
                          result="exit-code"), **f)
        elif active == "inactive":
            f = dict(dict(sub="dead", end=since if old.active == "active" else None, job=0), **f)
            if f.get("start", old.start) is None or f.get("pid") == 0:
                f.setdefault("pid", 0)
        elif active in ("active", "activating") and old.active != active:
            f = dict(dict(sub=None, start=since, end=None, code=0, status=0, pid=old.pid or 4321,
                          result="success"), **f)
            if f["sub"] == "auto-restart" or f["sub"] is None and active == "activating":
                f = dict(f, end=since)
        if f.get("load") == "not-found":
            f = dict(active="inactive", sub="dead", file_state="", start=None, end=None, pid=0,
                     code=0, status=0, restarts=0, environment=(), files=(), **f)
        if f.get("result") == "signal" and "code" not in fields:
            f.update(code=2, status=fields.get("status", 9))
        if f.get("result") == "oom-kill" and "code" not in fields:
            f.update(code=2, status=9)
        return old.copy(**f)

    def never_started(self, name):
        """Fields of a unit that was not started in this boot."""
        return dict(active="inactive", sub="dead", start=None, end=None, pid=0, code=0, status=0)

    @fault
    def bus_down(self):
        """dbus-daemon is gone, its socket file is still there: ECONNREFUSED. The direct socket too."""
        self.systemd.stop_bus()
        self.systemd.stop_private()

        def back():
            self.systemd.start_bus()
            self.systemd.start_private()

        return back

    @fault
    def bus_only_broker_down(self):
        """Only the broker is gone; systemd's direct socket answers."""
        self.systemd.stop_bus()
        return self.systemd.start_bus

    @fault
    def bus_without_systemd(self):
        """The bus is there, org.freedesktop.systemd1 is not on it: ServiceUnknown."""
        self.systemd.disown()
        return self.systemd.own

    @fault
    def systemd_hangs(self):
        """systemd takes calls and never answers."""
        return self._set(self.systemd, hang=True)

    @fault
    def systemd_denies(self):
        """systemd answers every call with AccessDenied."""
        return self._set(self.systemd, denied=True)

    # ---- journal ----

    def journal(self, unit, message, ago=0.0, at=None, priority=6, identifier=None, pid=None,
                transport="stdout", **fields):
        """A line of a unit, ago seconds before now (or at a moment of the boot). identifier: what
        SYSLOG_IDENTIFIER is; by default the unit's name."""
        if not self.journal_file:
            return
        name = unit.rsplit(".", 1)[0] if unit else None
        entry = {"PRIORITY": priority, "SYSLOG_IDENTIFIER": identifier or name or "kernel",
                 "_TRANSPORT": transport, "MESSAGE": message}
        if unit:
            entry.update(_SYSTEMD_UNIT=unit, _COMM=(identifier or name)[:15],
                         _PID=pid or PIDS.get(name, 1500), _UID=0)
        entry.update(fields)
        self.journal_file.add(self.uptime() - ago if at is None else at, **entry)

    def systemd_says(self, unit, message, ago=0.0, at=None, priority=6, **fields):
        """A line of systemd itself about a unit."""
        self.journal("init.scope", message, ago, at, priority, "systemd", 1, "journal", UNIT=unit,
                     **fields)

    def kernel_says(self, message, ago=0.0, at=None, priority=6):
        """A line of the kernel."""
        if self.journal_file:
            self.journal_file.add(self.uptime() - ago if at is None else at, PRIORITY=priority,
                                  SYSLOG_IDENTIFIER="kernel", _TRANSPORT="kernel", MESSAGE=message)

    def kubelet_says(self, level, source, text, ago=0.0, at=None):
        """A line of kubelet; level is klog's letter: I, W, E, F. klog's own letter is all that tells:
        the journal has every line of standard error at priority 6."""
        when = self.wall(self.uptime() - ago if at is None else at)
        self.journal("kubelet.service", klog(level, when, PIDS["kubelet"], source, text), ago, at)

    def containerd_says(self, level, text, error=None, ago=0.0, at=None):
        when = self.wall(self.uptime() - ago if at is None else at)
        self.journal("containerd.service", golog(level, when, text, error), ago, at)

    def nodeadm_says(self, unit, level, caller, text, ago=0.0, at=None, **fields):
        """A line of nodeadm in nodeadm-config.service or nodeadm-run.service."""
        when = self.wall(self.uptime() - ago if at is None else at)
        self.journal(unit, zap(level, when, caller, text, **fields), ago, at, identifier="nodeadm")

    def _started(self, unit, moment):
        u = default_units(self.al2)[unit]
        verb = "Finished" if u.type == "oneshot" else "Started"
        self.systemd_says(unit, "%s %s - %s." % (verb, unit, u.description), at=moment,
                          MESSAGE_ID="39f53479d3a045ac8e11786248231fbf", JOB_TYPE="start",
                          JOB_RESULT="done")

    def _starting(self, unit, moment):
        u = default_units(self.al2)[unit]
        self.systemd_says(unit, "Starting %s - %s..." % (unit, u.description), at=moment,
                          MESSAGE_ID="7d4958e842da4a758f6c1cdc7b36dcc5", JOB_TYPE="start")

    def _boot_lines(self):
        """What a sound node says while it boots and joins."""
        for text in ("Linux version 6.12.40-63.114.amzn2023.x86_64 (mockbuild@ip-10-0-35-92) (gcc "
                     "(GCC) 14.2.1, GNU ld version 2.41) #1 SMP PREEMPT_DYNAMIC",
                     "Command line: BOOT_IMAGE=(hd0,gpt1)/boot/vmlinuz root=UUID=2 ro console=tty0 "
                     "console=ttyS0,115200n8 net.ifnames=1 selinux=1 security=selinux quiet",
                     "DMI: Amazon EC2 %s/, BIOS 1.0 10/16/2017" % self.instance_type,
                     "ena 0000:00:05.0: ENA device version: 0.10"):
            self.kernel_says(text, at="kernel")
        self._started("systemd-networkd.service", "networkd")
        self.journal("systemd-networkd.service", "%s: Gained carrier" % self.enis[0].name,
                     at="networkd", transport="journal")
        self.journal("systemd-networkd.service", "%s: DHCPv4 address %s/%d, gateway %s acquired from %s"
                     % (self.enis[0].name, self.enis[0].ipv4, self.enis[0].subnet.prefixlen,
                        self.enis[0].gateway, self.enis[0].gateway), at="hook", transport="journal")
        if self.al2:
            self._boot_lines_al2()
        else:
            self._boot_lines_nodeadm()
        self._boot_lines_runtime()
        self._boot_lines_kubelet()

    def _boot_lines_al2(self):
        self._starting("cloud-final.service", "cloud-final")
        for text in ("Cloud-init v. 19.3-46.amzn2.0.2 running 'modules:final'",
                     "INFO: Using IP family: ipv4", "INFO: nvidia-smi found: no",
                     "Created symlink from /etc/systemd/system/multi-user.target.wants/kubelet.service"
                     " to /etc/systemd/system/kubelet.service."):
            self.journal("cloud-final.service", text, at="cloud-final", identifier="cloud-init")
        self._started("cloud-final.service", "cloud-final-done")

    def _boot_lines_nodeadm(self):
        for unit, at in (("nodeadm-boot-hook", "hook"), ("nodeadm-config", "config")):
            self._starting(unit + ".service", at)
            self.nodeadm_says(unit + ".service", "info", "init/init.go:74", "Checking user is root..",
                              at=at)
        self.nodeadm_says("nodeadm-config.service", "info", "init/init.go:105",
                          "Loading configuration..", at="config", configSource=["imds://user-data"])
        self.nodeadm_says("nodeadm-config.service", "info", "init/init.go:114",
                          "Loaded configuration", at="config-done")
        self.nodeadm_says("nodeadm-config.service", "info", "init/init.go:58", "done!",
                          at="config-done")
        for unit, at in (("nodeadm-boot-hook", "hook-done"), ("nodeadm-config", "config-done")):
            self.systemd_says(unit + ".service", unit + ".service: Deactivated successfully.", at=at,
                              MESSAGE_ID="7ad2d189f7e94e70a38c781354912448")
            self._started(unit + ".service", at)
        self._starting("cloud-final.service", "cloud-final")
        self.journal("cloud-final.service", "Cloud-init v. 22.2.2 finished. Datasource DataSourceEc2.",
                     at="cloud-final-done", identifier="cloud-init")
        self._started("cloud-final.service", "cloud-final-done")
        run = "nodeadm-run.service"
        self._starting(run, "run")
        for text in ("Checking user is root..", "Loading configuration..", "Loaded configuration",
                     "Setting up system aspects..", "Ensuring daemon is running.."):
            self.nodeadm_says(run, "info", "init/init.go:153", text, at="run")
        self.nodeadm_says(run, "info", "init/init.go:177", "done!", at="run-done")
        self.systemd_says(run, run + ": Deactivated successfully.", at="run-done",
                          MESSAGE_ID="7ad2d189f7e94e70a38c781354912448")
        self._started(run, "run-done")

    def _boot_lines_runtime(self):
        self._starting("containerd.service", "containerd")
        for text in ("starting containerd", "loading plugin", "Start subscribing containerd event",
                     "Start recovering state",
                     "serving... address=/run/containerd/containerd.sock",
                     "containerd successfully booted in 0.213456s"):
            self.containerd_says("info", text, at="containerd")
        self.containerd_says("error", "failed to load cni during init, please check CRI plugin status "
                             "before setting up network for pods", "cni config load failed: no network "
                             "config found in /etc/cni/net.d: cni plugin not initialized: failed to load "
                             "cni config", at="containerd")
        self._started("containerd.service", "containerd")
        self.containerd_says("info", "RunPodSandbox for &PodSandboxMetadata{Name:aws-node-x7k2p,Uid:"
                             "5d2b,Namespace:kube-system,Attempt:0,} returns sandbox id \"%064x\"" % 1,
                             at="sandbox")

    def _boot_lines_kubelet(self):
        self._started("kubelet.service", "kubelet")
        host = self.private_dns
        for level, source, text, at in (
                ("I", "server.go:525", '"Kubelet version" kubeletVersion="%s"' % VERSIONS["kubelet"],
                 "kubelet"),
                ("I", "server.go:1039", '"Client rotation is on, will bootstrap in background"',
                 "kubelet"),
                ("I", "kuberuntime_manager.go:279", '"Container runtime initialized" containerRuntime='
                 '"containerd" version="%s" apiVersion="v1"' % VERSIONS["containerd"], "kubelet"),
                ("I", "server.go:1316", '"Started kubelet"', "kubelet"),
                ("E", "kubelet.go:2497", '"Skipping pod synchronization" err="[container runtime status '
                 'check may not have completed yet, PLEG is not healthy: pleg has yet to be successful]"',
                 "kubelet"),
                ("E", "kubelet_node_status.go:466", '"Error getting the current node from lister" err='
                 '"node \\"%s\\" not found"' % host, "kubelet"),
                ("E", "kubelet.go:3117", '"Container runtime network not ready" networkReady="'
                 'NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: '
                 'cni plugin not initialized"', "kubelet"),
                ("I", "kubelet_node_status.go:76", '"Attempting to register node" node="%s"' % host,
                 "registered"),
                ("I", "kubelet_node_status.go:79", '"Successfully registered node" node="%s"' % host,
                 "registered"),
                ("I", "kubelet_node_status.go:501", '"Fast updating node status as it just became ready"',
                 "ready")):
            self.kubelet_says(level, source, text, at=at)

    # ---- faults: kubelet ----

    @fault
    def kubelet_silent(self):
        """kubelet lives and holds its ports, and answers nothing."""
        return self._set(self.kubelet, hang=True)

    @fault
    def kubelet_unhealthy(self):
        """healthz answers 500."""
        return self._set(self.kubelet, status=500, body=b"internal server error: sync loop too slow")

    @fault
    def serving_certificate_pending(self):
        """No serving certificate yet: the API's TLS handshake ends in an internal_error alert, logs
        and exec fail; healthz is fine."""
        back = self._set(self.kubelet, pending=True)
        file = self.tree.take("var/lib/kubelet/pki/kubelet-server-current.pem")
        for ago in (240, 120, 5):
            self.kubelet_says("I", "log.go:245", "http: TLS handshake error from 10.0.1.99:41022: no serving "
                              "certificate available for the kubelet", ago=ago)
        return lambda: [back(), file()]

    def _kubelet_gone(self):
        """The process is gone: ports, and what stands in /proc; returns what brings it back."""
        self.kubelet.close()
        return lambda: self.node.call(self.kubelet.open)

    @fault
    def kubelet_crash_loop(self, restarts=7, error='"command failed" err="failed to load kubelet config file, path: '
                           '/etc/kubernetes/kubelet/config.json, error: failed to decode: json: cannot unmarshal '
                           'string into Go value of type int"'):
        """kubelet ends with status 1 again and again, every time with the same last line."""
        ports = self._kubelet_gone()
        unit = self.unit("kubelet.service", active="activating", sub="auto-restart", result="exit-code", code=1,
                         status=1, restarts=restarts, ago=2)
        for i in range(restarts):
            ago = 5.2 * (restarts - 1 - i) + 2
            if i:
                self.systemd_says("kubelet.service", "kubelet.service: Scheduled restart job, restart counter is at "
                                  "%d." % i, ago + 0.2, MESSAGE_ID="5eb03494b6584870a536b337290809b2")
                self.systemd_says("kubelet.service", "Started kubelet.service - Kubernetes Kubelet.", ago + 0.15,
                                  MESSAGE_ID="39f53479d3a045ac8e11786248231fbf")
            self.kubelet_says("E", "run.go:72", error, ago)
            self._exited("kubelet.service", 1, ago)
        return lambda: [unit(), ports()]

    def _exited(self, unit, status, ago=0.0, at=None):
        """systemd's two lines about a main process that failed."""
        self.systemd_says(unit, "%s: Main process exited, code=exited, status=%d/%s" % (
            unit, status, "FAILURE" if status == 1 else "n/a"), ago, at, 5, EXIT_CODE="exited", EXIT_STATUS=status,
            MESSAGE_ID="98e322203f7a4ed290d09fe03c09fe15")
        self.systemd_says(unit, "%s: Failed with result 'exit-code'." % unit, ago, at, 4, UNIT_RESULT="exit-code",
                          MESSAGE_ID="d9b373ed55a64feb8242e02dbe79a49c")
