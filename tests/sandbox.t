#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The installed unit, started by a real systemd in a container on the simulated node's network: that it comes up early,
says that it is ready, may do what its probes do, and sees the same as root does. The container's file system is this
machine's own root with a throw-away layer on top.

What this cannot show: limits on memory and processor, which need control groups that the build machine lacks."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(HERE)
sys.path.insert(0, HERE)

# Runs as /out/test.sh once the container's basic.target is reached; what it leaves in /out is judged below.
INSIDE = """#!/bin/sh
exec >/out/log 2>&1
for i in $(seq 200); do systemctl is-active -q nodewhy && break; sleep 0.05; done
systemctl is-active nodewhy >/out/active
systemctl status --no-pager nodewhy
systemctl show nodewhy -p NRestarts,Type,User,StatusText,WatchdogUSec,ActiveEnterTimestampMonotonic >/out/show
systemctl show basic.target -p ActiveEnterTimestampMonotonic >/out/basic
for i in $(seq 300); do grep -q '"state": *"healthy"' /run/nodewhy/status.json 2>/dev/null && break; sleep 0.1; done
# What needs the journal, which begins after us, or more of metadata than one minute's budget, is told at a later look.
for i in $(seq 100); do grep -q '"outcome": *"unknown"' /run/nodewhy/status.json || break; sleep 0.5; done
cp /run/nodewhy/status.json /out/status.json
ls -l /run/nodewhy /run/nodewhy/conditions >/out/files
sh /usr/share/nodewhy/npd/nodewhy-condition DnsProblem >/out/hook
echo $? >>/out/hook
nodewhy check --json >/out/check.json
pid=$(systemctl show nodewhy -p MainPID --value)
cat /proc/$pid/status >/out/process
journalctl -t nodewhy -o json --no-pager >/out/journal
journalctl -b --no-pager -o cat _TRANSPORT=audit >/out/audit
mkdir -p /run/systemd/system/nodewhy.service.d
printf '[Service]\\nWatchdogSec=1\\nRestartSec=100ms\\n' >/run/systemd/system/nodewhy.service.d/quick.conf
systemctl daemon-reload
systemctl restart nodewhy
systemctl is-active nodewhy >/out/again
comes_back() { # RESTARTS: waits for that many, then for the daemon to be there
	for i in $(seq 200); do [ "$(systemctl show nodewhy -p NRestarts --value)" -ge "$1" ] && systemctl is-active -q nodewhy && break; sleep 0.05; done
	systemctl is-active nodewhy
	systemctl show nodewhy -p NRestarts --value
}
kill -SEGV $(systemctl show nodewhy -p MainPID --value)
comes_back 1 >/out/after-crash
kill -STOP $(systemctl show nodewhy -p MainPID --value)
comes_back 2 >/out/after-hang
sleep 2.5
systemctl show nodewhy -p NRestarts --value >/out/restarts
systemctl stop nodewhy
ls /run/nodewhy/status.json >/out/preserved
"""
INIT = """#!/bin/sh
for c in memory cpu cpuacct pids devices blkio cpuset freezer; do mount -o remount,bind,rw /sys/fs/cgroup/$c 2>/dev/null; done
# nspawn gives the container a boot id of its own by a mount that the mounts of a unit's sandbox hide again.
umount /proc/sys/kernel/random/boot_id
exec /lib/systemd/systemd --unit=sandbox-test.target
"""
TARGET = "[Unit]\nRequires=basic.target\nWants=nodewhy.service sandbox-test.service\nAllowIsolate=yes\n"
SERVICE = """[Unit]
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/sh /out/test.sh
ExecStopPost=/bin/systemctl poweroff --no-block
TimeoutStartSec=200
"""
# $1: work directory, $2: network namespace, $3...: control group directories that are ours
OUTSIDE = r"""
set -e
work=$1 netns=$2
mkdir -p /run/systemd
mount -t tmpfs tmpfs /run/systemd
mkdir -p "$work/ov"
mount -t tmpfs -o size=512m tmpfs "$work/ov"
mkdir "$work/ov/u" "$work/ov/w" "$work/ov/m"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/ov/u,workdir=$work/ov/w" "$work/ov/m"
m=$work/ov/m
rm -f "$m/usr/sbin/policy-rc.d" "$m"/etc/systemd/system/*.wants/*
cp "$work/sandbox-test.target" "$work/sandbox-test.service" "$m/etc/systemd/system/"
echo 0123456789abcdef0123456789abcdef >"$m/etc/machine-id"
cp -a "$work/installed/." "$m/"
# The unit that may be installed here is not the node's: the simulated runtime listens at the node's own socket.
rm -f "$m"/lib/systemd/system/containerd.service
rm -rf "$m/etc/eks" "$m/etc/cni" "$m/etc/containerd" "$m/etc/kubernetes"
cp -a "$work/tree/etc/." "$m/etc/" 2>/dev/null || true
for d in opt var/lib/kubelet; do [ ! -d "$work/tree/$d" ] || { mkdir -p "$m/$d" && cp -a "$work/tree/$d/." "$m/$d/"; }; done
rm -f "$m/etc/resolv.conf"; cp "$work/tree/etc/resolv.conf" "$m/etc/resolv.conf"
cp "$work/original/passwd" "$work/original/group" "$work/original/nsswitch.conf" "$m/etc/"
cat "$work/ca.pem" >>"$m/etc/ssl/certs/ca-certificates.crt"
systemd-sysusers --root="$m"
exec systemd-nspawn --quiet --register=no --keep-unit -D "$m" --network-namespace-path="/run/netns/$netns" --bind="$work/out:/out" \
	--bind="$work/tree/run/containerd:/run/containerd" --bind="$work/tree/var/run/aws-node:/run/aws-node" \
	--resolv-conf=off --console=pipe --kill-signal=SIGRTMIN+3 --capability=all --system-call-filter=bpf /out/init.sh
"""


class Tap:
    n = failed = 0

    def ok(self, good, name, *notes):
        self.n += 1
        self.failed += not good
        print(f"{'' if good else 'not '}ok {self.n} - {name}")
        for note in [] if good else notes:
            for line in str(note).splitlines()[:60]:
                print("#", line)


def skip(why):
    print(f"1..0 # SKIP {why}")
    return 0


def own_groups():
    """A control group of our own below the one we run in, in each hierarchy, so that nothing is left behind."""
    made = []
    with open("/proc/self/cgroup") as f:
        for line in f:
            _, controllers, path = line.strip().split(":", 2)
            name = controllers.replace("name=", "") or "unified"
            base = f"/sys/fs/cgroup/{name}{path}"
            if name == "unified" and not os.path.isdir(base):
                base = f"/sys/fs/cgroup{path}"
            if not os.path.isdir(base):
                continue
            d = f"{base.rstrip('/')}/nodewhy-test-{os.getpid()}"
            try:
                os.mkdir(d)
                made.append(d)
                if name == "cpuset":
                    for k in ("cpuset.cpus", "cpuset.mems"):
                        shutil.copyfile(f"{base}/{k}", f"{d}/{k}")
            except OSError:
                continue
    return made


def remove_groups(made):
    for d in made:
        for folder, _, _ in os.walk(d, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass


def boot(work, netns):
    groups = own_groups()

    def enter():
        for d in groups:
            with open(d + "/cgroup.procs", "w") as f:
                f.write(str(os.getpid()))

    try:
        return subprocess.run(["unshare", "-m", "--propagation", "private", "bash", "-c", OUTSIDE, "bash", work, netns], preexec_fn=enter,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    finally:
        remove_groups(groups)


def outcomes(report):
    """But of the probes that a daemon asks only when something calls for it, of connections, which come and go, and of
    what waits for the minute in which the API server is asked again."""
    return {(p["name"], p["subject"], p["aspect"]): p["outcome"] for p in report["probes"]
            if p["name"] not in ("sts", "subnet") and p["aspect"] not in ("connection", "service")}


def judge(t, out):
    def text(name):
        try:
            with open(os.path.join(out, name), errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    t.ok(text("active") == "active\n", "systemd says that it is active", text("log")[-4000:], text("journal")[-3000:])
    show = dict(line.split("=", 1) for line in text("show").splitlines() if "=" in line)
    t.ok(show.get("NRestarts") == "0" and show.get("User") == "nodewhy", "at the first try, as its own user", show)
    t.ok(bool(show.get("StatusText")), "it tells systemd its verdict", show)
    began, basic = int(show.get("ActiveEnterTimestampMonotonic") or 0), int(text("basic").strip().partition("=")[2] or 0)
    t.ok(0 < began < basic + 2_000_000, "it is ready about when the basic system is", began, basic)
    try:
        status, check = json.loads(text("status.json")), json.loads(text("check.json"))
    except ValueError as e:
        t.ok(False, "it writes its status", e, text("log")[-4000:])
        return
    t.ok(status["verdict"]["state"] == "healthy", "in its sandbox it finds the node healthy", status["verdict"], status["findings"])
    ours, roots = outcomes(status), outcomes(check)
    t.ok(ours == roots, "and sees what root sees without a sandbox", *[f"{k}: {ours.get(k)}, root {roots.get(k)}" for k in sorted(ours.keys() | roots.keys()) if ours.get(k) != roots.get(k)])
    unknown = [f"{p['name']} {p['subject']}: {p['detail']}" for p in status["probes"] if p["outcome"] == "unknown" and p["aspect"] != "service"]
    t.ok(not unknown, "no look is denied to it", *unknown)
    t.ok(text("hook") == "no problem found\n0\n" or text("hook").endswith("\n0\n"), "the hook reads its condition files", text("hook"), text("files"))
    process = dict(line.split(":\t", 1) for line in text("process").splitlines() if ":\t" in line)
    t.ok(process.get("Seccomp") == "2" and process.get("NoNewPrivs") == "1" and int(process.get("CapEff", "0"), 16) == int(process.get("CapBnd", "0"), 16) == 1 << 2,
         "it runs with a system call filter and may read (CAP_DAC_READ_SEARCH), and no more", process.get("Seccomp"), process.get("CapEff"), process.get("CapBnd"))
    journal = [json.loads(line) for line in text("journal").splitlines()]
    t.ok(any(e.get("NODEWHY_STATE") == "verdict" and e.get("_SYSTEMD_UNIT") == "nodewhy.service" for e in journal), "its verdict is in the journal, with the unit's name", text("journal")[-2000:])
    t.ok("SECCOMP" not in text("audit"), "no system call of it was refused", text("audit")[-2000:])
    t.ok(text("again") == "active\n", "it can be restarted")
    t.ok(text("after-crash") == "active\n1\n", "it comes back after a crash", text("after-crash"), text("log")[-3000:])
    t.ok(text("after-hang") == "active\n2\n", "and after a hang, by its watchdog", text("after-hang"), text("log")[-3000:])
    t.ok(text("restarts") == "2\n", "the watchdog leaves it alone when it works", text("restarts"))
    t.ok(text("preserved") == "/run/nodewhy/status.json\n", "its last word stays when it stops")


def main():
    if os.getuid() != 0:
        return skip("needs root")
    for program in ("systemd-nspawn", "unshare", "bash"):
        if not shutil.which(program):
            return skip(f"{program} is not installed")
    if "build/san" in os.environ.get("B", ""):
        return skip("a sanitizer and a sandbox do not go together")
    from world import World
    t = Tap()
    with World(enis=2, pods=4) as w, tempfile.TemporaryDirectory(prefix="nodewhy-sandbox-") as work:
        out = os.path.join(work, "out")
        os.makedirs(out)
        os.makedirs(work + "/original")
        for name in ("passwd", "group", "nsswitch.conf"):
            shutil.copy("/etc/" + name, work + "/original")
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "B")}
        subprocess.run(["make", "-s", "-C", REPOSITORY, "SAN=", "install", f"DESTDIR={work}/installed", "PREFIX=/usr"], check=True, env=env, stdout=subprocess.DEVNULL)
        os.symlink(w.root, work + "/tree")
        shutil.copy(w.certs + "/ca.pem", work)
        for name, content in (("out/init.sh", INIT), ("out/test.sh", INSIDE), ("sandbox-test.target", TARGET), ("sandbox-test.service", SERVICE)):
            with open(os.path.join(work, name), "w") as f:
                f.write(content)
        os.chmod(out + "/init.sh", 0o755)
        try:
            r = boot(work, w.node.name)
        except subprocess.TimeoutExpired as e:
            t.ok(False, "the container ends in time", e.output)
        else:
            if r.returncode and not os.path.exists(out + "/active"):
                print(f"ok 1 - the container # SKIP systemd-nspawn does not work here: {r.stdout.strip()[-300:]!r}")
                print("1..1")
                return 0
            judge(t, out)
    print(f"1..{t.n}")
    return t.failed != 0


if __name__ == "__main__":
    sys.exit(main())
