#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The runtime probe of the real program against the real containerd, started with a configuration, state and socket of
its own below a node's root that this test makes: as it comes up, without its CRI plugin, stopped in its tracks, gone,
and as network configurations come and go."""
import ctypes
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

NODEWHY = os.environ.get("NODEWHY") or os.path.join(os.environ.get("B", "build/release"), "nodewhy")
IMAGE = "localhost/kubernetes/pause:latest"
SOCKET = "run/containerd/containerd.sock"
CONFIG = """version = 2
root = "{root}/var/lib/containerd"
state = "{root}/run/containerd"
imports = ["{root}/etc/containerd/config.d/*.toml"]
disabled_plugins = [{disabled}]
[grpc]
  address = "{root}/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
[plugins."io.containerd.grpc.v1.cri".cni]
  conf_dir = "{root}/etc/cni/net.d"
  bin_dir = "{root}/opt/cni/bin"
"""
CONFLIST = {"cniVersion": "0.4.0", "name": "aws-cni", "plugins": [{"type": "aws-cni"}]}


class Tap:
    def __init__(self):
        self.n, self.bad = 0, 0

    def ok(self, good, what, more=""):
        self.n += 1
        self.bad += not good
        print(f"{'' if good else 'not '}ok {self.n} - {what}")
        if not good:
            for line in str(more).splitlines():
                print("#", line)
        sys.stdout.flush()


def die_with_us():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Containerd:
    """One containerd below a root of its own."""

    def __init__(self, root):
        self.root, self.process = root, None
        for d in ("etc/containerd", "etc/cni/net.d", "proc/sys/kernel/random", "run", "var/lib"):
            os.makedirs(os.path.join(root, d))
        for f in ("/proc/uptime", "/proc/sys/kernel/random/boot_id"):
            shutil.copyfile(f, root + f)
        with open(root + "/proc/uptime", "w") as f:
            f.write("86400.00 86400.00\n")  # not while it boots: nothing is excused
        self.socket = os.path.join(root, SOCKET)

    def configure(self, disabled="", image=IMAGE):
        with open(self.root + "/etc/containerd/config.toml", "w") as f:
            f.write(CONFIG.format(root=self.root, disabled=disabled, image=image))

    def start(self):
        self.log = open(self.root + "/log", "ab")
        self.process = subprocess.Popen(["containerd", "-c", self.root + "/etc/containerd/config.toml"], stdin=subprocess.DEVNULL, stdout=self.log,
                                        stderr=self.log, preexec_fn=die_with_us)
        for _ in range(200):
            if os.path.exists(self.socket) and self.ctr("version").returncode == 0:
                return True
            time.sleep(0.05)
        return False

    def ctr(self, *arguments):
        return subprocess.run(["ctr", "-a", self.socket, "-n", "k8s.io", "--connect-timeout", "1s", *arguments], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)

    def stop(self, how=signal.SIGTERM):
        if self.process:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(how)
            self.process.wait(20)
            self.process = None
            self.log.close()

    def conflist(self, content):
        path = self.root + "/etc/cni/net.d/10-aws.conflist"
        if content is None:
            os.unlink(path)
            return
        with open(path + ".new", "w") as f:
            f.write(content)
        os.rename(path + ".new", path)


def image_archive(path):
    """The smallest image there is, as `docker save` writes it."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as t:
        t.addfile(tarfile.TarInfo("pause"), io.BytesIO())
    layer = layer.getvalue()
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": {"Entrypoint": ["/pause"]}, "history": [{}],
                         "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]}}).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": name, "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(path, "w") as t:
        for n, data in ((name, config), ("layer.tar", layer), ("manifest.json", manifest)):
            info = tarfile.TarInfo(n)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))


class Said:
    """What one `nodewhy check` says of the runtime."""

    def __init__(self, root, program=NODEWHY, **as_whom):
        began = time.monotonic()
        r = subprocess.run([program, "check", "--root", root, "--only", "runtime", "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, timeout=60, env={"PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true"}, **as_whom)
        self.took = time.monotonic() - began
        self.code, self.text = r.returncode, (r.stdout + r.stderr).decode(errors="replace")
        self.status = json.loads(r.stdout)
        self.findings = {f["code"]: f for f in self.status["findings"]}
        self.looks = {p["aspect"]: p for p in self.status["probes"] if p["name"] == "runtime"}

    def __str__(self):
        return f"exit code {self.code} in {self.took:.1f} s\n{list(self.findings)}\n{json.dumps(self.looks, indent=1)}"

    def is_ok(self, aspect=""):
        return self.looks[aspect]["outcome"] == "ok" and not [c for c in self.findings if c.startswith(("Runtime", "Sandbox", "ImagePull"))]

    def finds(self, code, *words):
        return code in self.findings and self.status["verdict"]["root"] == code and all(w in self.findings[code]["summary"] for w in words)


def until(condition, get):
    """containerd follows its files on its own time: at most so long."""
    for _ in range(40):
        said = get()
        if condition(said):
            break
        time.sleep(0.1)
    return said


def healthy(tap, c):
    root = c.root
    said = Said(root)
    tap.ok(said.finds("SandboxImageMissing", "localhost/kubernetes/pause", "no registry"), "a local sandbox image that is not there is found", said)
    tap.ok(said.looks[""]["outcome"] == "ok", "which is no fault of the runtime's", said)
    tap.ok(said.looks[""]["evidence"].get("network_ready") == 0 and "cni plugin not initialized" in said.looks[""]["detail"],
           "without a network configuration its network is not ready, and it says why", said)
    image_archive(root + "/pause.tar")
    r = c.ctr("images", "import", "--no-unpack", root + "/pause.tar")
    tap.ok(r.returncode == 0, "the image is loaded", r.stdout.decode())
    said = until(lambda s: s.is_ok("image"), lambda: Said(root))
    tap.ok(said.is_ok("image") and said.is_ok(), "and then nothing is wrong", said)
    version = c.ctr("version").stdout.decode().rpartition("Version:")[2].split()[0].lstrip("v")
    tap.ok(said.status["node"]["runtime"] == "containerd://" + version, f"the node's runtime is known: {version}", said.status["node"]["runtime"])
    tap.ok(said.looks["pull"]["outcome"] in ("ok", "unknown"), "no pull is held against it", said)


def network(tap, c):
    ready = lambda s: s.is_ok() and "NetworkReady" in s.looks[""]["detail"]
    c.conflist(json.dumps(CONFLIST))
    said = until(ready, lambda: Said(c.root))
    tap.ok(ready(said) and "network_ready" not in said.looks[""]["evidence"], "with a configuration it is ready", said)
    c.conflist("{ broken")
    said = until(lambda s: not ready(s), lambda: Said(c.root))
    tap.ok(not ready(said) and said.is_ok(), "with a broken one the network is not", said)
    c.conflist(json.dumps(CONFLIST))
    tap.ok(ready(until(ready, lambda: Said(c.root))), "mended, it is")
    c.conflist(None)
    said = until(lambda s: not ready(s), lambda: Said(c.root))
    tap.ok(not ready(said) and said.is_ok(), "gone, it is not: which is the CNI's matter, not the runtime's", said)


def privilege(tap, c):
    """The daemon's own user may connect by its supplementary group only."""
    program = os.path.join(c.root, "nodewhy")
    shutil.copy(NODEWHY, program)
    os.chmod(program, 0o755)
    mode = os.stat(c.socket).st_mode & 0o777
    tap.ok(mode == 0o660, "the socket is root's and its group's", oct(mode))
    said = Said(c.root, program, user=65534, group=65534, extra_groups=[])
    tap.ok(said.looks[""]["outcome"] == "unknown" and "not permitted" in said.looks[""]["detail"] and not said.finds("RuntimeDown"),
           "who may not connect cannot tell", said)
    said = Said(c.root, program, user=65534, group=65534, extra_groups=[0])
    tap.ok(said.is_ok(), "a member of group root may, without any capability", said)


def hung(tap, c):
    c.process.send_signal(signal.SIGSTOP)
    said = Said(c.root)
    tap.ok(said.finds("RuntimeUnresponsive", "no answer in 2.0 s") and said.code == 2, "stopped in its tracks it is unresponsive, not down", said)
    tap.ok(said.looks["image"]["outcome"] == "unknown", "and of the image nothing can be told", said)
    tap.ok(said.took < 9, f"which takes {said.took:.1f} s", said)
    c.process.send_signal(signal.SIGCONT)
    said = Said(c.root)
    tap.ok(said.is_ok() and said.is_ok("image"), "it goes on, and so does the node", said)


def gone(tap, c):
    c.stop(signal.SIGKILL)
    said = Said(c.root)
    tap.ok(said.finds("RuntimeDown", "/run/containerd/containerd.sock", "refused") and said.code == 2, "killed: its socket refuses", said)
    os.unlink(c.socket)
    said = Said(c.root)
    tap.ok(said.finds("RuntimeDown", "/run/containerd/containerd.sock", "No such file"), "the socket is missing where its directory and configuration are", said)
    os.rename(c.root + "/etc/containerd/config.toml", c.root + "/etc/containerd/away")
    said = Said(c.root)
    tap.ok(said.looks[""]["outcome"] == "unknown" and not said.findings.get("RuntimeDown"), "without its configuration nobody can tell", said)
    os.rename(c.root + "/etc/containerd/away", c.root + "/etc/containerd/config.toml")
    tap.ok(c.start(), "it is started again")
    said = until(lambda s: s.is_ok("image"), lambda: Said(c.root))
    tap.ok(said.is_ok() and said.is_ok("image"), "and nothing is wrong any more", said)
    c.stop()


def without_plugin(tap, c):
    c.configure(disabled='"io.containerd.grpc.v1.cri"')
    tap.ok(c.start(), "it is started without its CRI plugin")
    said = Said(c.root)
    tap.ok(said.finds("RuntimePluginMissing", "CRI Version: Unimplemented", "unknown service runtime.v1") and said.code == 2, "CRI is missing, not the runtime", said)
    tap.ok(said.looks[""]["code"] == 12 and said.looks["image"]["outcome"] == "unknown", "gRPC's own code says so", said)
    c.stop()


def no_grpc(tap, c):
    import socket
    os.makedirs(os.path.dirname(c.socket), exist_ok=True)
    if os.path.exists(c.socket):
        os.unlink(c.socket)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(c.socket)
        s.listen(8)
        pid = os.fork()
        if pid == 0:
            die_with_us()
            while True:  # never back to what the parent has to clean up
                try:
                    peer, _ = s.accept()
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    peer.close()
                except OSError:
                    pass
        try:
            said = Said(c.root)
            tap.ok(said.finds("RuntimeDown"), "who answers, but not gRPC, is no runtime", said)
        finally:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def main():
    missing = [p for p in ("containerd", "ctr") if not shutil.which(p)]
    if os.getuid() != 0 or missing:
        print("1..0 # SKIP " + (f"{missing[0]} is not installed" if missing else "containerd needs root"))
        return 0
    tap = Tap()
    root = tempfile.mkdtemp(prefix="nodewhy-containerd-")
    os.chmod(root, 0o755)
    c = Containerd(root)
    try:
        c.configure()
        tap.ok(c.start(), "containerd comes up")
        for test in (healthy, network, privilege, hung, gone, without_plugin, no_grpc):
            test(tap, c)
        if tap.bad:
            with open(root + "/log", errors="replace") as f:
                print("".join("# " + line for line in f.readlines()[-5:]), end="")
    finally:
        c.stop(signal.SIGKILL)
        subprocess.run(["rm", "-rf", root])
    print(f"1..{tap.n}")
    return tap.bad != 0


if __name__ == "__main__":
    sys.exit(main())
