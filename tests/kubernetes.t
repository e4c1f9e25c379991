#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What packaging/kubernetes/ asks of nodewhy, node-problem-detector and Prometheus, held against what they have: the
metrics of a capture, the catalogue, what `make install` installs, promtool, and the container's own limits."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import yaml
except ImportError:
    print("1..0 # SKIP python3-yaml is not installed")
    sys.exit(0)

B = os.environ.get("B", "build/release")
NODEWHY = os.environ.get("NODEWHY") or os.path.join(B, "nodewhy")
HERE = "packaging/kubernetes"
TARGET_LABELS = {"instance", "cluster"}  # what Prometheus adds, as far as we build on it
NETWORK = "enis_attached enis_max ips_assigned ips_max pod_ips_in_use max_pods max_pods_by_type".split()
ELSEWHERE = {"problem_gauge": {"type", "reason"}}  # node-problem-detector's


class Tap:
    n = bad = 0

    def ok(self, good, name, lines=()):
        self.n += 1
        self.bad |= not good
        print(f"{'ok' if good else 'not ok'} {self.n} - {name}")
        for line in [] if good else list(lines)[:20]:
            print(f"# {line}")

    def clean(self, name, bad):
        self.ok(not bad, name, bad)

    def skip(self, name, why):
        self.n += 1
        print(f"ok {self.n} - {name} # SKIP {why}")

    def run(self, name, *argv, **kw):
        r = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)
        self.ok(r.returncode == 0, name, r.stdout.splitlines())


class Strict(yaml.SafeLoader):
    """A key that stands twice is a mistake, and the first one would be lost without a word."""

    def construct_mapping(self, node, deep=False):
        keys = [k.value for k, _ in node.value]
        for k in keys:
            if keys.count(k) > 1:
                raise yaml.YAMLError(f"{k} stands twice, {node.start_mark}")
        return super().construct_mapping(node, deep)


def documents(path):
    with open(path) as f:
        return [d for d in yaml.load_all(f, Strict) if d is not None]


def output(*argv):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True).stdout


def samples(text):
    """{metric: {label: {values}}} of a file in Prometheus' text format."""
    have = {}
    for line in text.splitlines():
        m = re.match(r"(\w+)(?:\{(.*)\})? \S+$", line)
        if m and not line.startswith("#"):
            labels = have.setdefault(m[1], {})
            for k, v in re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', m[2] or ""):
                labels.setdefault(k, set()).add(v)
    return have


SELECTOR = re.compile(r"\b((?:nodewhy|problem|node)_\w+)(\{[^}]*\})?")


def astray(expr, have, codes):
    """What an expression asks for that nobody gives. Values are held to what can be listed: states, types, codes."""
    bad, listed = [], {"state": have["nodewhy_verdict"]["state"], "type": have["nodewhy_condition"]["type"],
                       "root": {"yes", "no"}, "severity": {"fatal", "degraded", "notice"}, "code": codes}
    for name, braces in SELECTOR.findall(expr):
        if name in have["nodewhy_info"]:  # node_name is a label of it
            continue
        labels = set(have[name]) if name in have else ELSEWHERE.get(name)
        if labels is None:
            bad.append(f"no metric {name}")
            continue
        for label, op, value in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', braces):
            if label not in labels | TARGET_LABELS:
                bad.append(f"{name} has no label {label}")
            if label in listed and "$" not in value:
                values = value.split("|") if "~" in op else [value]
                bad += [f"{name}: no {label} {v}" for v in values if v not in listed[label]]
    everywhere = TARGET_LABELS.union(*ELSEWHERE.values(), *(set(l) for l in have.values()))
    for group in re.findall(r"\b(?:by|without|on|ignoring|group_left)\s*\(([^)(]*)\)", expr):
        bad += [f"no label {l}" for l in re.findall(r"\w+", group) if l not in everywhere]
    return bad


def rules_of(path):
    return [r for d in documents(path) for g in d["groups"] for r in g["rules"]]


def daemonset(path):
    one = [d for d in documents(path) if d["kind"] == "DaemonSet"]
    assert len(one) == 1
    return one[0]


def mounted(pod, container):
    """{path in the container: (path on the host, read-only)}"""
    volumes = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"]}
    return {m["mountPath"]: (volumes[m["name"]], m.get("readOnly", False)) for m in container["volumeMounts"]}


def seen_as(path, mounts):
    for at, (host, _) in mounts.items():
        if path == at or path.startswith(at.rstrip("/") + "/"):
            return host + path[len(at):]
    return None


def check_npd(t, tree):
    """Both ways to run node-problem-detector: same image, same files, nothing that it does not need."""
    ds, values = daemonset(f"{HERE}/npd.yaml"), documents(f"{HERE}/npd-values.yaml")[0]
    pod = ds["spec"]["template"]["spec"]
    c = pod["containers"][0]
    t.ok(c["image"].endswith(":" + values["image"]["tag"]), "both take the same node-problem-detector", [c["image"]])
    flags = dict(a[2:].split("=", 1) for a in c["args"] if "=" in a)
    t.ok([flags["config.system-log-monitor"]] == values["settings"]["log_monitors"] and
         [flags["config.custom-plugin-monitor"]] == values["settings"]["custom_plugin_monitors"], "and the same configurations")
    plain = mounted(pod, c)
    chart = mounted({"volumes": values["extraVolumes"]}, {"volumeMounts": values["extraVolumeMounts"]})
    t.ok({k: v for k, v in plain.items() if k != "/var/log"} == chart, "from the same mounts", [plain, chart])
    t.clean("all of them read-only", [p for m in (plain, chart) for p, (_, ro) in m.items() if not ro])
    wanted = [flags["config.system-log-monitor"], flags["config.custom-plugin-monitor"]]
    with open("packaging/npd/nodewhy-condition-monitor.json") as f:
        wanted += sorted({r["path"] for r in json.load(f)["rules"]})
    bad = [p for p in wanted if not os.path.isfile(tree + (seen_as(p, plain) or "/missing"))]
    t.clean("what they read is what make install installs", bad)
    with open("packaging/npd/nodewhy-journal-monitor.json") as f:
        t.ok(seen_as(json.load(f)["logPath"], plain) == "/var/log/journal", "the journal is where its monitor looks")
    with open("packaging/npd/nodewhy-condition") as f:
        told = re.search(r"NODEWHY_DIR:-(\S+?)\}", f.read())[1]
    unit = dict(re.findall(r"(?m)^(\w+)=(.*)$", open("systemd/nodewhy.service").read()))
    t.ok(seen_as(told, plain) == "/run/" + unit["RuntimeDirectory"].split()[0], "and the conditions are where the daemon writes them")
    for name, s in (("npd.yaml", c["securityContext"]), ("npd-values.yaml", values["securityContext"])):
        t.ok(s["privileged"] is False and s["capabilities"] == {"drop": ["ALL"]} and s["readOnlyRootFilesystem"], f"{name}: no privilege")
    for name, s in (("npd.yaml", pod), ("npd-values.yaml", values)):
        t.ok(s["hostNetwork"] and {"operator": "Exists"} in s["tolerations"], f"{name}: is heard from a node that is NotReady")
    binding = [d for d in documents(f"{HERE}/npd.yaml") if d["kind"] == "ClusterRoleBinding"][0]
    t.ok(binding["roleRef"]["name"] == "system:node-problem-detector" and binding["subjects"][0]["name"] == pod["serviceAccountName"],
         "its account has the role that Kubernetes has for it")
    textfile = documents(f"{HERE}/node-exporter-values.yaml")[0]
    t.ok(any(m["hostPath"] == "/run/nodewhy" and f"--collector.textfile.directory={m['mountPath']}" in textfile["extraArgs"]
             for m in textfile["extraHostVolumeMounts"]), "node_exporter reads the directory that it mounts")


def size(text):
    return int(re.match(r"\d+", text)[0]) * {"M": 1 << 20, "Mi": 1 << 20}[re.search(r"[A-Z]i?$", text)[0]]


def check_container(t):
    pod = daemonset(f"{HERE}/nodewhy.yaml")["spec"]["template"]["spec"]
    c = pod["containers"][0]
    unit = dict(re.findall(r"(?m)^(\w+)=(.*)$", open("systemd/nodewhy.service").read()))
    caps = c["securityContext"]["capabilities"]
    t.ok(caps["drop"] == ["ALL"] and {"CAP_" + x for x in caps["add"]} == set(unit["CapabilityBoundingSet"].split()),
         "the container has the unit's capabilities and no more", [caps, unit["CapabilityBoundingSet"]])
    t.ok(size(c["resources"]["limits"]["memory"]) == size(unit["MemoryMax"]), "and its limit of memory")
    t.ok(not c["securityContext"]["privileged"] and not pod.get("hostPID") and pod["automountServiceAccountToken"] is False, "no privilege, no host processes, no token")
    mounts = mounted(pod, c)
    t.ok({p for p, (_, ro) in mounts.items() if not ro} == {"/host/run/nodewhy", "/host/var/lib/nodewhy"}, "it can write where the unit can, and nowhere else", [mounts])
    return c, mounts


# Mounts as the kubelet would, without any network, and with the capabilities that the manifest gives.
CONFINED = r"""
set -e
mount --bind "$T/host" "$T/host"
mount -o remount,bind,ro "$T/host"
mount --bind "$T/run" "$T/host/run/nodewhy"
mount --bind "$T/state" "$T/host/var/lib/nodewhy"
exec setpriv --bounding-set=-all,+"$CAPS" --inh-caps=-all --no-new-privs "$@"
"""


def run_confined(t, c, mounts):
    name = "nodewhy runs with what the container has"
    if os.geteuid() != 0 or not shutil.which("setpriv") or not shutil.which("unshare"):
        t.skip(name, "needs root, unshare and setpriv")
        return
    with tempfile.TemporaryDirectory() as d:
        for p in ("host/run/nodewhy", "host/var/lib/nodewhy", "host/etc", "host/proc/sys/kernel/random", "run", "state"):
            os.makedirs(f"{d}/{p}")
        for p in ("/proc/uptime", "/proc/sys/kernel/random/boot_id"):
            shutil.copyfile(p, f"{d}/host{p}")
        os.mkdir(f"{d}/host/private", 0o700)
        os.chown(f"{d}/host/private", 65534, 65534)
        env = dict(os.environ, T=d, CAPS=",+".join(x.lower() for x in c["securityContext"]["capabilities"]["add"]))
        env["ASAN_OPTIONS"] = "detect_leaks=0"  # finding leaks takes ptrace, which these limits forbid
        args = [a.replace("/host", d + "/host") for a in c["args"]]
        with open(f"{d}/log", "w") as log:
            p = subprocess.Popen(["unshare", "-mn", "--propagation", "private", "sh", "-c", CONFINED, "sh", os.path.abspath(NODEWHY), *args],
                                 env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wanted = [f"{d}/run/{f}" for f in ("status.json", "metrics.prom", "conditions/HostProblem")]
            until = time.monotonic() + 30
            while time.monotonic() < until and p.poll() is None and not all(map(os.path.exists, wanted)):
                time.sleep(0.1)
            said = open(f"{d}/log").read().splitlines()
            t.ok(p.poll() is None and all(map(os.path.exists, wanted)), name, said + os.listdir(f"{d}/run"))
            try:
                schema = json.load(open(f"{d}/run/status.json"))["schema"]
            except (OSError, ValueError, KeyError) as e:
                schema = str(e)
            t.ok(schema == "nodewhy.status/1", "and says so in a status file", [schema])
            probe = [a.replace("/host/run/nodewhy", d + "/run") for a in c["livenessProbe"]["exec"]["command"]]
            t.run("which its liveness probe finds fresh", *probe)
            old = time.time() - 3600
            if os.path.exists(f"{d}/run/status.json"):
                os.utime(f"{d}/run/status.json", (old, old))
            t.ok(subprocess.run(probe, stderr=subprocess.DEVNULL).returncode != 0, "and stale an hour later")
        finally:
            p.terminate()
            t.ok(p.wait(timeout=30) == 0, "it ends when it is told to", [p.returncode])


def check_dockerfile(t):
    text = open(f"{HERE}/Dockerfile").read().replace("\\\n", " ")
    copies = [line.split()[1:] for line in re.findall(r"(?m)^COPY (?!--).*$", text)]
    with tempfile.TemporaryDirectory() as d:
        for *sources, _ in copies:
            for s in sources:
                shutil.copytree(s, f"{d}/{s}") if os.path.isdir(s) else shutil.copy(s, d)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS")) and k != "B"}
        t.run("what the Dockerfile copies is enough to build from", "make", "-n", "-C", d, "SAN=", "VERSION=1", "install", f"DESTDIR={d}/out", env=env)
    image = text.split("\nFROM ")[-1]
    installed = set(re.search(r"apt-get install ([^>]*)>", image)[1].split())
    if not shutil.which("dpkg-query") or not shutil.which("ldd"):
        t.skip("its image has the libraries that nodewhy needs", "no dpkg here")
        return
    # of the release build: a sanitizer brings libraries of its own
    needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "-d", "build/release/nodewhy"))
    where = dict(re.findall(r"(\S+) => (\S+)", output("ldd", "build/release/nodewhy")))
    bad = []
    for lib in needed:
        if lib in where and lib != "libc.so.6":
            found = [subprocess.run(["dpkg-query", "-S", p], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
                     for p in (where[lib], os.path.realpath(where[lib]), "/usr" + where[lib])]
            packages = {l.split(":")[0] for l in "".join(found).splitlines()}
            bad += [] if packages & installed else [f"{lib}: {packages or 'of no package'}"]
    t.clean("its image has the libraries that nodewhy needs", bad)


def expressions_of(dashboard):
    for p in dashboard["panels"]:
        for target in p.get("targets", ()):
            yield p["title"], target["expr"]


def concrete(expr):
    return re.sub(r"\$(__rate_interval)\b", "5m", expr).replace("$cluster", ".*").replace("$code", ".*").replace("$instance", "a:9100")


def check_dashboard(t, have, codes, promtool, d):
    with open(f"{HERE}/dashboard.json") as f:
        board = json.load(f)
    titles = [p["title"] for p in board["panels"] if p["type"] != "row"]
    t.ok(len(titles) == len(set(titles)) and len({p["id"] for p in board["panels"]}) == len(board["panels"]), "panels of the dashboard have their own names and ids")
    places, over = set(), []
    for p in board["panels"]:
        g = p["gridPos"]
        cells = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
        over += [p["title"]] if places & cells or g["x"] + g["w"] > 24 else []
        places |= cells
    t.clean("and none lies on another", over)
    names = {v["name"] for v in board["templating"]["list"]} | {"__rate_interval"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(board)))
    t.clean("its variables are declared", sorted(used - names))
    every = list(expressions_of(board)) + [(v["name"], re.sub(r"^label_values\((.*), \w+\)$", r"\1", v["definition"]))
                                           for v in board["templating"]["list"] if v["type"] == "query"]
    t.clean("the dashboard asks for what there is", [f"{name}: {b}" for name, e in every for b in astray(e, have, codes)])
    if promtool:
        rules = [{"record": f"panel:n{i}", "expr": concrete(e)} for i, (_, e) in enumerate(every)]
        with open(f"{d}/panels.yaml", "w") as f:
            yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}, f)
        t.run("and in PromQL", promtool, "check", "rules", f"{d}/panels.yaml")
    else:
        t.skip("and in PromQL", "promtool is not to be had")


def check_docs(t, alerts):
    """What people are told to type and to look for."""
    text = open("docs/OPERATING.md").read()
    named = set(re.findall(r"`(Nodewhy[A-Z]\w+)`", text))
    t.ok(named == alerts, "docs/OPERATING.md names every alert, and no other", sorted(named ^ alerts))
    bad = [p for p in re.findall(r"`((?:packaging|docs|tests|systemd)/[\w./-]+)`", text) if not os.path.exists(p)]
    bad += [p for p in re.findall(r"\]\((?!http|#)([^)#]+)", text) if not os.path.exists("docs/" + p)]
    t.clean("the files that it names are there", bad)
    one = re.search(r"```sh\n(\{ printf [^\n]*(?:\\\n[^\n]*)*)\n```", text)
    r = subprocess.run(["sh", "-c", re.sub(r"\|\s*kubectl[^\n|]*$", "", one[1].replace("\\\n", " "))], stdout=subprocess.PIPE, text=True)
    made = yaml.load(r.stdout, Strict)
    t.ok(made["kind"] == "PrometheusRule" and made["spec"] == documents(f"{HERE}/nodewhy.rules.yaml")[0], "its line for the operator makes a PrometheusRule of the rules")
    blocks = {}
    for name in ("README.md", "README.ko.md"):
        readme = open(name).read()
        commands = [re.sub(r"\s+#.*", "", l).strip() for b in re.findall(r"```sh\n(.*?)```", readme, re.S) for l in b.splitlines()]
        blocks[name] = [c for c in commands if c]
        bad = [p for p in re.findall(r"\]\((?!http|#)([^)#]+)", readme) if not os.path.exists(p)]
        t.clean(f"{name} names files that there are", bad)
        command, shown = re.search(r"```\n\$ nodewhy (.*)\n([^`]*)\n```", readme).groups()
        r = subprocess.run([NODEWHY, *command.split(), "--lang", "en"], env=dict(os.environ, COLUMNS="80"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        since = re.compile(r", for .*")  # by the clock of the wall
        t.ok(since.sub("", r.stdout.rstrip()) == since.sub("", shown), "and shows what nodewhy says", r.stdout.splitlines())
    t.ok(blocks["README.md"] == blocks["README.ko.md"], "both READMEs say to type the same",
         sorted(set(blocks["README.md"]) ^ set(blocks["README.ko.md"])))


def find_promtool(keep):
    path = shutil.which("promtool") or os.path.abspath(os.path.join(keep, "usr/bin/promtool"))
    if not os.path.exists(path) and shutil.which("apt-get"):  # unpacked, not installed: no server starts here
        os.makedirs(keep, exist_ok=True)
        subprocess.run("apt-get download prometheus && dpkg --fsys-tarfile prometheus_*.deb | tar -xf - ./usr/bin/promtool; rm -f prometheus_*.deb",
                       shell=True, cwd=keep, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path if os.path.exists(path) else None


def check_labels(t, promtool, d):
    """Who the node is and where, whatever others call it: metadata, the API server and people choose these names."""
    with open("tests/fixtures/two-independent-faults/capture.json") as f:
        capture = json.load(f)
    wild = 'a "quoted" \\ back\\nslash'
    capture["node"].update({"instance_id": "i-0a1b", "zone": 'z"1', "cluster": wild, "node_name": "n\\"})
    capture["network"] = {"enis": [{"device": 1, "card": 0, "subnet_id": "subnet-other"}, {"device": 0, "card": 0, "subnet_id": "subnet-0a1b"}]}
    with open(f"{d}/wild.json", "w") as f:
        json.dump(capture, f)
    output(f"{B}/packaging/metrics", f"{d}/wild.json", d)
    text = open(f"{d}/nodewhy.prom").read()
    have = samples(text)
    got = {k: sorted(re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], v) for v in vs) for k, vs in have["nodewhy_info"].items()}
    want = {"instance_id": ["i-0a1b"], "zone": ['z"1'], "subnet_id": ["subnet-0a1b"], "cluster_name": [wild], "node_name": ["n\\"]}
    t.ok({k: got.get(k) for k in want} == want, "labels hold what the node is called, and its primary subnet", [str(got)])
    root = have["nodewhy_verdict_root"]
    t.ok(root["code"] == {"ImdsDisabled"} and root["layer"] == {"metadata"}, "of two roots the verdict's has a metric of its own", [str(root)])
    t.ok("nodewhy_verdict_root{" not in healthy_text(d), "and a healthy node has none")
    if promtool:
        with open(f"{d}/wild.prom", "w") as f:
            f.write(text)
        with open(f"{d}/wild.prom") as f:
            r = subprocess.run([promtool, "check", "metrics"], stdin=f, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        t.ok(r.returncode == 0, "promtool reads them", r.stdout.splitlines())
    else:
        t.skip("promtool reads them", "promtool is not to be had")


def healthy_text(d):
    output(f"{B}/packaging/metrics", "tests/fixtures/healthy/capture.json", d)
    return open(f"{d}/nodewhy.prom").read()


def main():
    t = Tap()
    bad = []
    for path in sorted(glob.glob(f"{HERE}/*.yaml") + glob.glob("tests/kubernetes/*.yaml")):
        try:
            documents(path)
        except yaml.YAMLError as e:
            bad.append(f"{path}: {e}")
    t.clean("all YAML can be read, without a key that stands twice", bad)
    findings = json.loads(output(NODEWHY, "findings", "--json"))
    codes = {f["code"] for f in findings}
    types = json.loads(output(f"{B}/packaging/tables"))["conditions"]
    promtool = find_promtool("build/promtool")
    with tempfile.TemporaryDirectory() as d:
        have = {}
        for fixture in ("healthy", "two-independent-faults"):
            with open(f"tests/fixtures/{fixture}/capture.json") as f:
                capture = json.load(f)
            # a status file has it, and captures that were made by hand do not
            capture.setdefault("network", {k: 1 for k in NETWORK})
            with open(f"{d}/status.json", "w") as f:
                json.dump(capture, f)
            output(f"{B}/packaging/metrics", f"{d}/status.json", d)
            text = open(f"{d}/nodewhy.prom").read()
            for name, labels in samples(text).items():
                for k, v in labels.items():
                    have.setdefault(name, {}).setdefault(k, set()).update(v)
                have.setdefault(name, {})
            if promtool:
                with open(f"{d}/nodewhy.prom") as f:
                    r = subprocess.run([promtool, "check", "metrics"], stdin=f, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                t.ok(r.returncode == 0, f"promtool reads the metrics of {fixture}", r.stdout.splitlines())
            else:
                t.skip(f"promtool reads the metrics of {fixture}", "promtool is not to be had")
        source = open("daemon/sink-metrics.c").read()
        t.clean("and they are all that the daemon has", sorted(set(re.findall(r'"(nodewhy_\w+)"', source)) ^ set(have)))
        check_labels(t, promtool, d)
        t.ok({"no metric nodewhy_nothing", "nodewhy_verdict: no state well", "nodewhy_verdict has no label colour", "no label flavour"} <=
             set(astray('sum by (flavour) (nodewhy_verdict{state="well", colour="red"}) + nodewhy_nothing', have, codes)), "an expression that asks for what is not there is seen")

        alerts = set()
        for path in sorted(glob.glob(f"{HERE}/*.rules.yaml")):
            rules = rules_of(path)
            alerts |= {r["alert"] for r in rules if "alert" in r}
            t.clean(f"{path} asks for what there is", [f"{r.get('alert') or r.get('record')}: {b}" for r in rules for b in astray(r["expr"], have, codes)])
            t.clean("and each alert says how bad it is, what and where", [r["alert"] for r in rules if "alert" in r and not
                    (r["labels"]["severity"] in ("critical", "warning") and {"summary", "description"} <= set(r["annotations"]) and r["for"])])
            if promtool:
                t.run("promtool agrees", promtool, "check", "rules", path)
            else:
                t.skip("promtool agrees", "promtool is not to be had")
        told = re.search(r'type=~"([^"]*)"', open(f"{HERE}/nodewhy-npd.rules.yaml").read())[1].split("|")
        t.ok(told == types, "the rules know every condition", sorted(set(told) ^ set(types)))
        tests = sorted(glob.glob("tests/kubernetes/*.test.yaml"))
        tested = {a["alertname"] for p in tests for d_ in documents(p) for x in d_["tests"] for a in x["alert_rule_test"] if a["exp_alerts"]}
        t.ok(tested == alerts, "every alert has a case in which it fires", sorted(tested ^ alerts))
        t.clean("with codes that there are", sorted({c for p in tests for c in re.findall(r'code="(\w+)"', open(p).read())} - codes))
        for path in tests:
            if promtool:
                t.run(path, promtool, "test", "rules", path)
            else:
                t.skip(path, "promtool is not to be had")
        check_dashboard(t, have, codes, promtool, d)

        env = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS")) and k != "B"}
        t.run("make install", "make", "--no-print-directory", "SAN=", "install", f"DESTDIR={d}/tree", "PREFIX=/usr", env=env)
        check_npd(t, f"{d}/tree")
    run_confined(t, *check_container(t))
    check_dockerfile(t)
    check_docs(t, alerts)
    print(f"1..{t.n}")
    return 1 if t.bad else 0


if __name__ == "__main__":
    sys.exit(main())
