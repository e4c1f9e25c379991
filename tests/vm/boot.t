#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package baked into an image, and that image booted by a kernel of its own: qemu without KVM (TCG), Debian's cloud kernel, a
root file system on NVMe, and the simulated AWS behind tap devices. What a container cannot show: control groups of
version 2 and what becomes of a unit that exceeds them, OOMScoreAdjust=, the names that EC2's interfaces get, an ENI that is
attached while the node runs, and a boot that is really another one.

An emulated processor is 10 to 20 times slower, so nothing here is judged by how long it took: about two minutes for the
machine, and as much once for the image without our package, which is kept in build/vm."""
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
import nspawn  # noqa: E402
from world.world import Eni  # noqa: E402

KEEP = os.path.join(REPOSITORY, "build/vm")
# What the unit needs and what Amazon Linux has of it; the kernel comes without initramfs tools, as it needs none.
PACKAGES = "systemd-sysv,udev,kmod,iproute2,ca-certificates,libcurl4,libjansson4,libmnl0,libc-ares2,libyaml-0-2,libsystemd0,libssl3,zlib1g"
KERNEL = "linux-image-cloud-amd64"
CODE = "ResolverFailing"
RESULTS = 16 << 20  # where in the test's disk the guest writes what it found
LIMIT = 64 << 20
THIRD = Eni(0, 2, "ens7", "10.0.1.0/24", 7)

UNIT = """[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /root/run
StandardOutput=file:/dev/ttyS1
StandardError=file:/root/log
TimeoutStartSec=infinity
[Install]
WantedBy=graphical.target
"""
RUN = r"""
mkdir -p /out
for i in $(seq 100); do [ -b /dev/vda ] && [ -e /sys/class/net/ens6 ] && break; sleep 0.5; done
[ -d /root/test ] || { mkdir /root/test; tar -xf /dev/vda -C /root/test; }
echo x >>/root/boots
. /root/test/$(wc -l </root/boots) || systemctl poweroff
"""
COMMON = r"""
until_() { # COMMAND...: waits for it, for 200 s
	for i in $(seq 800); do "$@" 2>/dev/null && return; sleep 0.25; done
	echo "in vain: $*" >&2
	return 1
}
has() { grep -q "$1" /run/nodewhy/status.json; }
hasnt() { ! grep -q "$1" /run/nodewhy/status.json; }
fresh() { [ /run/nodewhy/status.json -nt /root/mark ]; }
up() { systemctl is-active -q nodewhy; }
show() { systemctl show nodewhy -p "$1" --value; }
group() { cat /sys/fs/cgroup$(sed -n s/^0:://p /proc/$(show MainPID)/cgroup)/$1; }
status() { cp /run/nodewhy/status.json /out/$1.json; }
"""
FIRST = COMMON + r"""
ip -o -br link >/out/links
show ExecMainStartTimestampMonotonic >/out/began
systemctl show network.target -p ActiveEnterTimestampMonotonic --value >/out/network
until_ up
ip -force -batch /root/test/node >&2
until_ has '"instance_id": *"i-'
until_ has '"name": *"ens6"'
sleep 10
systemctl show nodewhy >/out/show
status sound
cat /proc/$(show MainPID)/oom_score_adj /proc/$(show MainPID)/limits >/out/limits
for f in memory.max pids.max cpu.weight; do echo "$f $(group $f)"; done >/out/group
cat /proc/$(show MainPID)/status >/out/process
cat /proc/sys/kernel/random/boot_id >/out/boot
nodewhy check >/out/check 2>&1
echo "exit $?" >>/out/check

# an ENI arrives
echo attach
until_ test -e /sys/class/net/ens7
ip link set ens7 up
until_ has "$(cat /root/test/eni)"
status attached

# more memory than it may have
systemctl set-property --runtime nodewhy MemoryMax=1M >&2
killed() { [ "$(show NRestarts)" -ge 1 ]; }
until_ killed
journalctl -b -u nodewhy -o cat --no-pager >/out/killed
systemctl set-property --runtime nodewhy MemoryMax=64M >&2
: >/root/mark
until_ up
until_ fresh
up && echo active >/out/survived
group memory.max >>/out/survived

# a fault that is there over a reboot
echo break
until_ has '"root": *"CODE"'
status broken
cp /var/lib/nodewhy/history.jsonl /out/history.1
echo reboot
systemctl reboot
sleep 1000
""".replace("CODE", CODE)
SECOND = COMMON + r"""
ip -force -batch /root/test/node >&2
cat /proc/sys/kernel/random/boot_id >/out/boot.2
systemctl is-active nodewhy >/out/booted
until_ has '"root": *"CODE"'
status again
echo heal
until_ hasnt CODE
status healed
cp /var/lib/nodewhy/history.jsonl /out/history.2
journalctl -u nodewhy -o json --no-pager >/out/journal
journalctl -k -o cat --no-pager >/out/kernel
cp /root/log /out/log
sync
tar -cf - -C /out . | dd of=/dev/vda bs=1M seek=SEEK conv=notrunc,fsync 2>/dev/null
echo done
systemctl poweroff
sleep 1000
""".replace("CODE", CODE).replace("SEEK", str(RESULTS >> 20))


def missing():
    why = nspawn.missing("qemu-system-x86_64", "mmdebstrap", "mkfs.ext4", "apt-get", "dpkg-deb", "dpkg-buildpackage", "chroot", "ip", "git")
    if why:
        return why if "root" in why else why + ": make deps-vm"
    if not os.path.exists("/dev/net/tun"):
        return "there is no /dev/net/tun"
    if os.uname().machine != "x86_64":
        return "the image is one for x86_64"
    return nspawn.no_commit()


class NotHere(Exception):
    pass


def fetched(*argv, **options):
    r = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if r.returncode:
        raise NotHere(f"{argv[0]}: {' '.join((r.stderr.strip() or r.stdout.strip()).splitlines()[-1:])}")
    return r.stdout


def image():
    """(an archive of the root file system, the kernel), made when there are none yet."""
    tar, kernel = KEEP + "/root.tar", KEEP + "/vmlinuz"
    if os.path.exists(tar) and os.path.exists(kernel):
        return tar, kernel
    began = time.monotonic()
    os.makedirs(KEEP, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=KEEP) as d:
        os.chmod(d, 0o755)
        name = re.search(r"Depends: (linux-image-\S+)", fetched("apt-cache", "depends", KERNEL))[1]
        fetched("apt-get", "download", "-q", name, cwd=d)
        fetched("mmdebstrap", "--variant=minbase", "--include=" + PACKAGES, release(), d + "/root.tar")
        subprocess.run(["dpkg-deb", "-x", *glob.glob(d + "/linux-image-*.deb"), d + "/k"], check=True)
        version = os.listdir(d + "/k/lib/modules")[0]
        os.makedirs(d + "/root")
        subprocess.run(["tar", "-xf", d + "/root.tar", "-C", d + "/root"], check=True)
        shutil.copytree(d + "/k/lib/modules", d + "/root/usr/lib/modules", symlinks=True, dirs_exist_ok=True)
        subprocess.run(["chroot", d + "/root", "depmod", version], check=True)
        subprocess.run(["tar", "-cf", tar + ".new", "-C", d + "/root", "."], check=True)
        shutil.copy(glob.glob(d + "/k/boot/vmlinuz-*")[0], kernel)
    os.rename(tar + ".new", tar)
    print(f"# the image is made, in {time.monotonic() - began:.0f} s")
    return tar, kernel


def release():
    with open("/etc/os-release") as f:
        return re.search(r"(?m)^VERSION_CODENAME=(\S+)", f.read())[1]


def bake(t, tar, debs, w, work):
    """As an image is baked: dpkg in a root where no systemd runs."""
    root = work + "/root"
    os.makedirs(root)
    subprocess.run(["tar", "-xf", tar, "-C", root], check=True)
    for deb in debs:
        shutil.copy(deb, root + "/root")
    r = subprocess.run(["chroot", root, "sh", "-c", "dpkg --force-unsafe-io -i /root/*.deb"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                       env=dict(os.environ, DEBIAN_FRONTEND="noninteractive", LC_ALL="C"))
    t.ok(r.returncode == 0, "baked into an image, the package installs", r.stdout)
    t.ok(os.path.lexists(root + "/etc/systemd/system/multi-user.target.wants/nodewhy.service"), "and is enabled", r.stdout)
    p = w.enis[0]
    files = {"etc/systemd/network/10-ens5.network": f"[Match]\nName=ens5\n[Network]\nAddress={p.ipv4}/{p.subnet.prefixlen}\nGateway={p.gateway}\nIPv6AcceptRA=no\n",
             "etc/systemd/system/vm-test.service": UNIT, "root/run": RUN, "etc/machine-id": "0123456789abcdef0123456789abcdef\n", "etc/hostname": w.private_dns + "\n",
             "etc/systemd/system/nodewhy.service.d/slow.conf": "[Service]\nTimeoutStartSec=300\n",  # for an emulated processor
             "etc/fstab": "", "etc/nodewhy/nodewhy.conf.d/quick.conf": "[Probe endpoint]\nIntervalSec=5\n[Probe eni]\nIntervalSec=5\n"}
    for name, text in files.items():
        os.makedirs(os.path.dirname(f"{root}/{name}"), exist_ok=True)
        with open(f"{root}/{name}", "w") as f:
            f.write(text)
    shutil.copy(w.root + "/etc/resolv.conf", root + "/etc/resolv.conf")
    with open(w.certs + "/ca.pem") as ca, open(root + "/etc/ssl/certs/ca-certificates.crt", "a") as f:
        f.write(ca.read())
    subprocess.run(["chroot", root, "systemctl", "enable", "-q", "systemd-networkd.service", "vm-test.service"], check=True)
    subprocess.run(["chroot", root, "systemctl", "set-default", "-q", "graphical.target"], check=True)
    with open(work + "/root.img", "wb") as f:
        f.truncate(1 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-d", root, work + "/root.img"], check=True)
    shutil.rmtree(root)


def test_disk(w, work):
    os.makedirs(work + "/test")
    for name, text in (("1", FIRST), ("2", SECOND), ("node", "\n".join(node_lines(w))), ("eni", THIRD.eni_id)):
        with open(f"{work}/test/{name}", "w") as f:
            f.write(text + "\n")
    subprocess.run(["tar", "-cf", work + "/test.img", "-C", work + "/test", "."], check=True)
    os.truncate(work + "/test.img", 2 * RESULTS)


def node_lines(w):
    """What the VPC CNI would do; networkd has the first interface."""
    return [x for x in w._node_lines()[0] if "ens5" not in x]


class Machine:
    """qemu, and the two ends of it: what the guest writes to its second serial port, and QMP."""

    def __init__(self, w, kernel, work):
        self.w, self.work, self.taps = w, work, []
        lines = ["link set %s nomaster down" % e.peer for e in w.enis]  # the guest is the node now
        w.aws.ip(lines)
        argv = ["qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=256", "-M", "pc", "-cpu", "qemu64", "-smp", "2", "-m", "768", "-nodefaults", "-no-user-config",
                "-display", "none", "-kernel", kernel, "-append", "root=/dev/nvme0n1 rw console=ttyS0 quiet panic=-1 mitigations=off systemd.show_status=0",
                "-smbios", f"type=1,manufacturer=Amazon EC2,product={w.instance_type},uuid=ec2d4a07-1111-2222-3333-444455556666",
                "-smbios", f"type=2,manufacturer=Amazon EC2,asset={w.instance_id}",
                "-drive", f"id=d0,if=none,format=raw,file={work}/root.img,cache=unsafe", "-device", "nvme,drive=d0,serial=root,addr=0x9",
                "-drive", f"id=d1,if=none,format=raw,file={work}/test.img", "-device", "virtio-blk-pci,drive=d1,addr=0xa",
                "-serial", f"file:{work}/console", "-serial", f"file:{work}/said", "-qmp", f"unix:{work}/qmp,server=on,wait=off"]
        for e in w.enis:
            argv += ["-netdev", self.tap(e), "-device", self.card(e)]
        self.log = open(work + "/qemu", "w")
        self.p = subprocess.Popen(w.aws.argv(["nice", *argv]), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def tap(self, e):
        name = f"tap{e.device}"
        self.w.aws.ip([f"tuntap add {name} mode tap", f"link set {name} mtu 9001 master br0 up"])
        return f"tap,id=n{e.device},ifname={name},script=no,downscript=no"

    @staticmethod
    def card(e):
        return f"virtio-net-pci,id=c{e.device},netdev=n{e.device},mac={e.mac},addr=0x{5 + e.device:x},host_mtu=9001,romfile="

    def attach(self, e):
        """As EC2 attaches one: metadata lists it, and a PCI device arrives."""
        def fields(text):
            first, *rest = text.split(",")
            return first, dict(x.split("=", 1) for x in rest)

        self.w.enis.append(e)
        self.w.imds.tree.update(self.w.eni_metadata(e))
        kind, options = fields(self.tap(e))
        driver, device = fields(self.card(e))
        options |= {"type": kind}
        device |= {"driver": driver, "host_mtu": int(device["host_mtu"])}
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(20)
            s.connect(self.work + "/qmp")
            f = s.makefile("rw")
            f.readline()
            for command, arguments in (("qmp_capabilities", {}), ("netdev_add", options), ("device_add", device)):
                f.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
                f.flush()
                answer = json.loads(f.readline())
                while "event" in answer:
                    answer = json.loads(f.readline())
                if "error" in answer:
                    raise RuntimeError(f"{command}: {answer}")

    def text(self, name):
        try:
            with open(f"{self.work}/{name}", errors="replace") as f:
                return f.read()
        except OSError:
            return ""

    def run(self, answers, timeout=600):
        """answers: {what the guest says: what is done then}. Returns whether it came to its end."""
        end = time.monotonic() + timeout
        while self.p.poll() is None and time.monotonic() < end:
            for word in set(answers) & set(self.text("said").split()):
                answers.pop(word)()
            time.sleep(0.1)
        return self.p.poll() == 0 and "done" in self.text("said").split()

    def close(self):
        if self.p.poll() is None:
            self.p.kill()
        self.p.wait()
        self.log.close()


def results(work):
    with open(work + "/test.img", "rb") as f:
        f.seek(RESULTS)
        os.makedirs(work + "/out")
        subprocess.run(["tar", "-xf", "-", "-C", work + "/out"], stdin=f, check=True)
    return nspawn.Results(work + "/out")


def enis(report):
    return {e["name"]: e for e in report["network"]["enis"]}


def judge(t, text, w):
    t.ok(re.findall(r"(?m)^(ens\d)\b", text("links")) == ["ens5", "ens6"], "interfaces have the names that they have on EC2", text("links"))
    show = dict(line.split("=", 1) for line in text("show").splitlines() if "=" in line)
    began, network = int(text("began") or 0), int(text("network") or 0)
    t.ok(show["ActiveState"] == "active" and show["NRestarts"] == "0", "started by the boot, it is active at the first try", show["ActiveState"], text("log"))
    t.ok(0 < began < network, "and it was begun before there was a network", began, network)
    sound = json.loads(text("sound.json"))
    t.ok(not [f for f in sound["findings"] if f["severity"] != "notice"] and sound["verdict"]["state"] in ("starting", "healthy"), "on a sound node that boots nothing is raised", sound["verdict"], sound["findings"])
    node = sound["node"]
    t.ok((node["instance_id"], node["instance_type"], node["zone"]) == (w.instance_id, w.instance_type, w.az), "it knows the instance", node)
    t.ok({n: e["eni_id"] for n, e in enis(sound).items()} == {e.name: e.eni_id for e in w.enis[:2]}, "and its interfaces", enis(sound))
    t.ok(sound["boot_id"] == text("boot").strip(), "and which boot this is")
    group = dict(line.split(" ", 1) for line in text("group").splitlines())
    t.ok(group.get("memory.max") == str(LIMIT) and group.get("pids.max") == "8" and group.get("cpu.weight") == "50", "memory, tasks and processor are bounded by control groups of version 2", group)
    t.ok(text("limits").startswith("-500\n"), "it is among the last that the kernel kills for memory", text("limits"))
    t.ok(re.search(r"Max open files +1024 +1024", text("limits")), "its open files are bounded", text("limits"))
    process = dict(line.split(":\t", 1) for line in text("process").splitlines() if ":\t" in line)
    t.ok(process["Seccomp"] == "2" and process["NoNewPrivs"] == "1" and int(process["CapBnd"], 16) == 1 << 2, "its sandbox is in force", process["Seccomp"], process["CapBnd"])
    t.ok(re.search(r"exit [01]\n$", text("check")), "nodewhy check agrees", text("check"))
    attached = enis(json.loads(text("attached.json")))
    t.ok(attached.get("ens7", {}).get("eni_id") == w.enis[2].eni_id, "an ENI that is attached while it runs is seen, and known by its id", attached, text("log"))
    t.ok("Failed with result 'oom-kill'" in text("killed"), "more memory than its bound is the kernel's to end, and systemd knows that it was that", text("killed")[-3000:])
    t.ok(text("survived") == f"active\n{LIMIT}\n", "and it comes back", text("survived"), text("log"))
    broken, again = json.loads(text("broken.json")), json.loads(text("again.json"))
    t.ok(broken["verdict"]["root"] == again["verdict"]["root"] == CODE, "a fault is found, and found again after a reboot", broken["verdict"], again["verdict"])
    t.ok(text("booted") == "active\n" and again["boot_id"] == text("boot.2").strip() != broken["boot_id"], "which is another boot", broken["boot_id"], again["boot_id"])
    t.ok(text("history.1").strip() and text("history.2").startswith(text("history.1")), "what was said before it is kept", text("history.1"), text("history.2"))
    t.ok(CODE not in text("healed.json"), "healed, the finding is gone", text("log"))
    ids = {e["_BOOT_ID"] for e in map(json.loads, text("journal").splitlines()) if e.get("NODEWHY_CODE") == CODE}
    t.ok(ids == {broken["boot_id"].replace("-", ""), again["boot_id"].replace("-", "")}, "and the journal has it, in both boots", ids)
    t.ok(not re.search(r"nodewhy\[\d+\]: segfault|type=1326.*nodewhy", text("kernel")), "the kernel has nothing to complain of", text("kernel")[-3000:])


def main():
    why = missing()
    if why:
        return nspawn.skip(why)
    from world import World
    t = nspawn.Tap()
    try:
        tar, kernel = image()
    except NotHere as e:
        return nspawn.skip(f"no image: {e}")
    debs = nspawn.packages("deb")
    with World(enis=2) as w, tempfile.TemporaryDirectory(prefix="nodewhy-vm-") as work:
        bake(t, tar, debs, w, work)
        test_disk(w, work)
        began, undo = time.monotonic(), []
        m = Machine(w, kernel, work)
        try:
            ended = m.run({"attach": lambda: m.attach(THIRD), "break": lambda: undo.append(w.dns_refused()), "heal": lambda: undo.pop()()})
        finally:
            m.close()
        print(f"# the machine ran for {time.monotonic() - began:.0f} s")
        t.ok(ended, "the machine boots, reboots and ends", m.text("said"), m.text("qemu"), m.text("console")[-3000:])
        if not ended:
            shown = subprocess.run(["debugfs", "-R", "cat /root/log", work + "/root.img"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
            t.ok(False, "and says what it does", shown)
        else:
            try:
                judge(t, results(work), w)
            except (ValueError, KeyError, subprocess.CalledProcessError) as e:
                t.ok(False, "it leaves what is to be judged", repr(e))
    print(f"1..{t.n}")
    return t.failed != 0


if __name__ == "__main__":
    sys.exit(main())
