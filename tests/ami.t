#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The recipes of packaging/ami/: bake.sh ends a bake for each way in which a package can be broken and for nothing else,
and the shell in the others is sound. The tools of the image are stand-ins here: what counts is what bake.sh makes of them."""
import email
import email.policy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import yaml
except ImportError:
    print("1..0 # SKIP python3-yaml is not installed")
    sys.exit(0)

HERE = "packaging/ami"
NODEWHY = os.path.abspath(os.environ.get("NODEWHY") or os.path.join(os.environ.get("B", "build/release"), "nodewhy"))


class Tap:
    n = bad = 0

    def ok(self, good, name, text=""):
        self.n += 1
        self.bad |= not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {name}")
        for line in [] if good else str(text).splitlines()[:20]:
            print(f"# {line}")

    def skip(self, name, why):
        self.n += 1
        print(f"ok {self.n} - {name} # SKIP {why}")


STATUS = {"schema": "nodewhy.status/1", "version": "1.2.3", "verdict": {"state": "broken"}, "probes": [{"name": "link"}]}
SOUND = {
    "nodewhy": """case $1 in
version) echo 'nodewhy 1.2.3' ;;
check | status) cat "$HERE/status.json"; exit 2 ;;
esac""",
    "rpm": "exit 0",
    "dnf": "exit 0",
    "systemctl": "exit 0",
    "systemd-analyze": "exit 0",
    "journalctl": "echo 'journal of the unit'",
    "curl": "echo rpm >nodewhy.rpm",
    "sha256sum": "cat >/dev/null",
    "sleep": "exit 0",
}


class Image:
    """A directory of stand-ins, the programs of SOUND but for what is given; calls lists what was run."""

    def __init__(self, d, status=STATUS, booted=True, **other):
        self.d = d
        os.makedirs(f"{d}/bin")
        os.makedirs(f"{d}/state")
        open(f"{d}/state/history.jsonl", "w").close()
        open(f"{d}/nodewhy.rpm", "w").close()
        if booted:
            os.mkdir(f"{d}/running")
        with open(f"{d}/status.json", "w") as f:
            f.write(status if isinstance(status, str) else json.dumps(status))
        for name, body in {**SOUND, **other}.items():
            name = name.replace("_", "-")
            with open(f"{d}/bin/{name}", "w") as f:
                f.write(f'#!/bin/sh\necho {name} "$@" >>"$HERE/calls"\n{body}\n')
            os.chmod(f"{d}/bin/{name}", 0o755)
        self.env = {"PATH": f"{d}/bin:" + os.environ["PATH"], "HERE": d, "NODEWHY_STATE": f"{d}/state", "NODEWHY_RUNNING": f"{d}/running", "TMPDIR": d}

    def run(self, *argv):
        r = subprocess.run(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
        return r.returncode, r.stdout

    def calls(self):
        try:
            with open(f"{self.d}/calls") as f:
                return f.read().splitlines()
        except FileNotFoundError:
            return []


def bake(t, name, good, *argv, wants="", **other):
    with tempfile.TemporaryDirectory() as d:
        i = Image(d, **other)
        rc, out = i.run("sh", f"{HERE}/bake.sh", *(argv or [f"{d}/nodewhy.rpm"]))
        fine = rc == 0 if good else rc == 1 and "nodewhy: " in out
        t.ok(fine and wants in out, name, f"exit code {rc}, wanted {'0' if good else '1 and why'}, {wants}\n{out}")
        return i.calls(), os.listdir(f"{d}/state") if os.path.isdir(f"{d}/state") else None


def said(**change):
    return {"status": {**STATUS, **change}}


def program(version="echo nodewhy 1.2.3", check='cat "$HERE/status.json"; exit 2', status='cat "$HERE/status.json"; exit 2'):
    return {"nodewhy": f"case $1 in\nversion) {version} ;;\ncheck) {check} ;;\nstatus) {status} ;;\nesac"}


def bakes(t):
    calls, left = bake(t, "a sound package on a bake host that is no node", True)
    order = [next((i for i, c in enumerate(calls) if c.startswith(x)), -1) for x in
             ("dnf install -y", "systemctl enable", "nodewhy version", "nodewhy check --json", "systemctl restart", "nodewhy status --json", "systemctl stop")]
    t.ok(-1 not in order and order == sorted(order), "is installed, enabled, asked, started and stopped", calls)
    t.ok(left == [], "and leaves nothing of the bake host in the image", left)
    for rc in (0, 1, 3):
        bake(t, f"nor does it matter that it finds the host {('healthy', 'degraded', '', 'blind')[rc]}", True,
             **program(check=f'cat "$HERE/status.json"; exit {rc}', status=f'cat "$HERE/status.json"; exit {rc}'))
    calls, _ = bake(t, "without systemd running, nothing is started", True, booted=False)
    t.ok(not any("restart" in c or "status" in c for c in calls), "nor asked", calls)
    whole = 'cat "$HERE/status.json"; exit 0'
    for name, other, wants in (
            ("it does not run at all", program(version="exit 127"), "does not run"),
            ("it fails by itself", program(check="echo out of memory >&2; exit 70"), "ended with 70: out of memory"),
            ("it is not understood", program(check="exit 64"), "ended with 64"),
            ("it crashes", program(check="kill -SEGV $$"), "ended with 139"),
            ("it prints nothing", program(check="exit 0"), "printed no status"),
            ("it prints half of it", dict(status='{"schema": "nodewhy.sta'), "printed no status"),
            ("it prints another schema", said(schema="nodewhy.status/2"), "printed no status"),
            ("it is another version than it says", said(version="0.9"), "printed no status"),
            ("it looked at nothing", said(probes=[]), "printed no status"),
            ("dnf refuses", {"dnf": "exit 1"}, "dnf could not"),
            ("it is not there afterwards", {"rpm": "[ $1 != -q ]"}, "not installed"),
            ("a file is not the package's", {"rpm": "[ $1 != -V ]"}, "not those of the package"),
            ("the unit is not enabled", {"systemctl": "[ $1 != is-enabled ]"}, "not enabled"),
            ("systemd does not like the unit", {"systemd_analyze": "exit 1"}, "takes exception"),
            ("the daemon does not start", {"systemctl": "[ $1 != restart ]"}, "does not start"),
            ("the daemon dies", {"systemctl": "[ $1 != is-active ]"}, "journal of the unit"),
            ("the daemon writes no status", program(check=whole, status="exit 3"), "nodewhy status printed no status"),
            ("the status cannot be read", program(check=whole, status="exit 70"), "nodewhy status ended with 70")):
        bake(t, f"the bake ends when {name}", False, wants=wants, **other)
    bake(t, "and when there is nothing to install", False, "/nowhere/nodewhy.rpm", wants="no such file")
    calls, left = bake(t, "an instance of the image: it came up by itself", True, "--booted")
    t.ok(left and not any(re.match("dnf|systemctl (start|restart|stop|enable)", c) for c in calls), "and is left alone", calls)
    bake(t, "or did not", False, "--booted", wants="does not run", systemctl="[ $1 != is-active ]")
    if os.geteuid() == 0 and shutil.which("unshare"):
        # without any network and on an empty host: the least that a bake host can be
        real = f'd=$(mktemp -d); exec unshare -n {NODEWHY} "$@" --root "$d"'
        bake(t, "nodewhy itself passes on a host without anything", True, booted=False, nodewhy=f'case $1 in version) exec {NODEWHY} version ;; esac\n{real}')
    else:
        t.skip("nodewhy itself passes on a host without anything", "needs root and unshare")


def shellcheck(t, name, text):
    if not shutil.which("shellcheck"):
        t.skip(f"shellcheck: {name}", "not installed")
        return
    r = subprocess.run(["shellcheck", "-s", "sh", "-"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    t.ok(r.returncode == 0, f"shellcheck: {name}", r.stdout)


def user_data(t):
    with open(f"{HERE}/user-data.txt", "rb") as f:
        mail = email.message_from_binary_file(f, policy=email.policy.default)
    parts = {p.get_content_type(): p for p in mail.iter_parts()}
    t.ok(not mail.defects and list(parts) == ["application/node.eks.aws", "text/x-shellscript"], "the user data has the two parts of nodeadm and cloud-init", mail.defects)
    config = [d for d in yaml.safe_load_all(parts["application/node.eks.aws"].get_content().decode()) if d]
    t.ok([d["kind"] for d in config] == ["NodeConfig"] and set(config[0]["spec"]["cluster"]) == {"name", "apiServerEndpoint", "certificateAuthority", "cidr"},
         "the first is a NodeConfig", config)
    script = parts["text/x-shellscript"].get_content()
    t.ok(script.startswith("#!/bin/sh\n"), "the second a script", script[:80])
    shellcheck(t, "user-data.txt", script)
    for name, wants, other in (("it installs, enables and looks", "", {}),
                               ("a node is not held up by a package that cannot be had", "boots without it", {"curl": "exit 22"}),
                               ("by one that is another", "boots without it", {"sha256sum": "exit 1"}),
                               ("or by a broken one", "boots without it", program(check="exit 70"))):
        with tempfile.TemporaryDirectory() as d:
            i = Image(d, tee="cat", **other)
            with open(f"{d}/part-002", "w") as f:
                f.write(script)
            rc, out = i.run("sh", f"{d}/part-002")
            t.ok(rc == 0 and ("boots without it" in out) == bool(wants) and (bool(wants) or "nodewhy check" in i.calls()), name, f"{rc}\n{out}\n{i.calls()}")


def image_builder(t):
    with open(f"{HERE}/image-builder.yaml") as f:
        component = yaml.safe_load(f)
    steps = {p["name"]: p["steps"] for p in component["phases"]}
    t.ok(component["schemaVersion"] == 1.0 and list(steps) == ["build", "test"], "the component has the phases build and test", component.keys())
    given = {name for p in component["parameters"] for name in p}
    t.ok(set(re.findall(r"\{\{ *(\w+) *\}\}", json.dumps(steps))) == given, "and uses its parameters", given)
    bad = []
    for phase in steps.values():
        fetched = {i["destination"] for s in phase if s["action"] == "S3Download" for i in s["inputs"]}
        for s in phase:
            if s["action"] == "ExecuteBash":
                shellcheck(t, f"step {s['name']}", "#!/bin/sh\n" + "\n".join(s["inputs"]["commands"]) + "\n")
                bad += [c for c in s["inputs"]["commands"] if c.startswith("sh ") and c.split()[1] not in fetched]
                bad += [c for c in s["inputs"]["commands"] if re.search(r"\|\||; *true|exit 0", c)]
            elif s["action"] != "S3Download" or s.get("onFailure", "Abort") != "Abort":
                bad.append(s)
    t.ok(not bad, "it runs what it has fetched, and what fails ends it", bad)


def packer(t):
    with open(f"{HERE}/nodewhy.pkr.hcl") as f:
        text = f.read()
    t.ok(re.findall(r'"\$\{path\.root\}/([^"]+)"', text) == ["bake.sh"], "the template runs bake.sh")
    used, declared = set(re.findall(r"\bvar\.(\w+)", text)), set(re.findall(r'(?m)^variable "(\w+)"', text))
    t.ok(used == declared, "and uses the variables that it declares", used ^ declared)
    name = "packer validate"
    version = shutil.which("packer") and subprocess.run(["packer", "version"], stdout=subprocess.PIPE, text=True).stdout
    m = re.search(r"v(\d+)\.(\d+)", version or "")
    if not m or (int(m[1]), int(m[2])) < (1, 8):
        t.skip(name, "no packer 1.8 or newer is installed")
        return
    r = subprocess.run(["packer", "validate", "-syntax-only", f"{HERE}/nodewhy.pkr.hcl"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    t.ok(r.returncode == 0, name, r.stdout)


def main():
    t = Tap()
    with open(f"{HERE}/bake.sh") as f:
        shellcheck(t, "bake.sh", f.read())
    bakes(t)
    user_data(t)
    image_builder(t)
    packer(t)
    print(f"1..{t.n}")
    return 1 if t.bad else 0


if __name__ == "__main__":
    sys.exit(main())
