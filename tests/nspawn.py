# SPDX-License-Identifier: Apache-2.0
"""A real systemd in a container, on the simulated node's network or on none. Its file system is this machine's own root with
a throw-away layer on top; what it leaves in /out is judged outside.

    text = nspawn.run(work, world, [SCRIPT], prepare='cp "$work/nodewhy" "$m/usr/bin/"')
    t.ok(text("active") == "active\n", "it is active", text("log"))

What it cannot show: OOMScoreAdjust= below 0 and control groups of version 2, which need more than the build machine has."""
import glob
import os
import shutil
import signal
import subprocess
import time

REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# The first process. $1 is the number of the boot.
INIT = """#!/bin/sh
for c in memory cpu cpuacct pids devices blkio cpuset freezer; do mount -o remount,bind,rw /sys/fs/cgroup/$c 2>/dev/null; done
# nspawn gives the container a boot id of its own by a mount that the mounts of a unit's sandbox hide again.
umount /proc/sys/kernel/random/boot_id
[ ! -f /out/boot_id.$1 ] || mount --bind /out/boot_id.$1 /proc/sys/kernel/random/boot_id
cp /out/test.$1 /run/test.sh
exec /lib/systemd/systemd --unit=container-test.target
"""
TARGET = "[Unit]\nRequires=basic.target\nWants=%s container-test.service\nAllowIsolate=yes\n"
SERVICE = """[Unit]
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/bash /run/test.sh
ExecStopPost=/bin/systemctl poweroff --no-block
TimeoutStartSec=200
"""
# $1: work directory, $2: number of boots, $3: network namespace of the simulated node, if there is one
OUTSIDE = r"""
set -e
work=$1 boots=$2 netns=$3
mkdir -p /run/systemd
mount -t tmpfs tmpfs /run/systemd
mkdir -p "$work/ov"
mount -t tmpfs -o size=512m tmpfs "$work/ov"
mkdir "$work/ov/u" "$work/ov/w" "$work/ov/m"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/ov/u,workdir=$work/ov/w" "$work/ov/m"
m=$work/ov/m
rm -f "$m/usr/sbin/policy-rc.d" "$m"/etc/systemd/system/*.wants/*
cp "$work/container-test.target" "$work/container-test.service" "$m/etc/systemd/system/"
echo 0123456789abcdef0123456789abcdef >"$m/etc/machine-id"
rm -rf "$m/etc/eks" "$m/etc/cni" "$m/etc/containerd" "$m/etc/kubernetes"
net=(--private-network)
if [ -n "$netns" ]; then
	net=(--network-namespace-path="/run/netns/$netns" --bind="$work/tree/run/containerd:/run/containerd" --bind="$work/tree/var/run/aws-node:/run/aws-node")
	# The unit that may be installed here is not the node's: the simulated runtime listens at the node's own socket.
	rm -f "$m"/lib/systemd/system/containerd.service
	cp -a "$work/tree/etc/." "$m/etc/" 2>/dev/null || true
	for d in opt var/lib/kubelet; do [ ! -d "$work/tree/$d" ] || { mkdir -p "$m/$d" && cp -a "$work/tree/$d/." "$m/$d/"; }; done
	rm -f "$m/etc/resolv.conf"; cp "$work/tree/etc/resolv.conf" "$m/etc/resolv.conf"
	cp /etc/passwd /etc/group /etc/nsswitch.conf "$m/etc/"
	cat "$work/ca.pem" >>"$m/etc/ssl/certs/ca-certificates.crt"
fi
. "$work/prepare"
for boot in $(seq "$boots"); do
	systemd-nspawn --quiet --register=no --keep-unit -D "$m" "${net[@]}" --bind="$work/out:/out" --resolv-conf=off \
		--console=read-only --kill-signal=SIGRTMIN+3 --capability=all --system-call-filter=bpf /out/init.sh "$boot"
done
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


def missing(*programs):
    """Why there can be no container here, or None."""
    if os.getuid() != 0:
        return "needs root"
    for program in ("systemd-nspawn", "unshare", "bash", *programs):
        if not shutil.which(program):
            return f"{program} is not installed"
    if "build/san" in os.environ.get("B", ""):
        return "a sanitizer and a sandbox do not go together"
    return None


def no_commit():
    """Why there can be no packages, or None."""
    if subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        return "no repository: packages are made of a commit"
    return None


def packages(kind):
    """The two of the commit that is checked out, made when there are none yet."""
    version = subprocess.run(["sh", "packaging/version"], cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    pattern = os.path.join(REPOSITORY, f"build/packages/nodewhy*[-_]{version}[-_]*.{kind}")
    for _ in range(2):
        found = [p for p in sorted(glob.glob(pattern)) if "dbgsym" not in p]
        if len(found) == 2:
            return found
        subprocess.run(["sh", "packaging/build", kind], cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL)
    raise RuntimeError(f"no {pattern}")


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


class Results:
    """What the container left in /out, and what its console said."""

    def __init__(self, out):
        self.out, self.ended, self.code, self.console = out, False, None, ""

    def __call__(self, name):
        try:
            with open(os.path.join(self.out, name), errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def has(self, name):
        return os.path.exists(os.path.join(self.out, name))


def run(work, world, scripts, prepare="", wants="", files=None, meanwhile=lambda results: None, timeout=240):
    """Boots once for each script, which runs when basic.target is reached. $m of `prepare` is the container's root;
    `files` (name: text) are put into /out."""
    results = Results(os.path.join(work, "out"))
    os.makedirs(results.out, exist_ok=True)
    if world:
        os.symlink(world.root, work + "/tree")
        shutil.copy(world.certs + "/ca.pem", work)
    content = {"out/init.sh": INIT, "prepare": prepare, "container-test.target": TARGET % wants, "container-test.service": SERVICE}
    content |= {f"out/test.{i}": s for i, s in enumerate(scripts, 1)} | {"out/" + name: text for name, text in (files or {}).items()}
    for name, text in content.items():
        with open(os.path.join(work, name), "w") as f:
            f.write(text)
    os.chmod(results.out + "/init.sh", 0o755)
    groups = own_groups()

    def enter():
        for d in groups:
            with open(d + "/cgroup.procs", "w") as f:
                f.write(str(os.getpid()))

    try:
        with open(work + "/console", "wb") as console:
            p = subprocess.Popen(["unshare", "-m", "--propagation", "private", "bash", "-c", OUTSIDE, "bash", work, str(len(scripts)), world.node.name if world else ""],
                                 preexec_fn=enter, start_new_session=True, stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT)
        end = time.monotonic() + timeout
        try:
            while p.poll() is None and time.monotonic() < end:
                meanwhile(results)
                time.sleep(0.05)
        finally:
            results.ended = p.poll() is not None
            if not results.ended:
                os.killpg(p.pid, signal.SIGKILL)
        results.code = p.wait()
        with open(work + "/console", errors="replace") as f:
            results.console = f.read()
        return results
    finally:
        remove_groups(groups)
