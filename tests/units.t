#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A kubelet.service of this test's own under a real systemd, with a real journald and bus, in a container: what
`nodewhy check` says of it when it was never started, is masked, ends again and again, hangs, was stopped, runs; and that
the daemon is woken by a unit that changes."""
import json
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import nspawn  # noqa: E402

GRACE = 180  # seconds since boot in which kubelet is not accused yet: the container has the machine's uptime
UNIT = "[Service]\nExecStart=/usr/bin/python3 /out/kubelet.py\nRestart=on-failure\nRestartSec=200ms\n[Unit]\nStartLimitIntervalSec=0\n"
KUBELET = r"""
import http.server, sys, time
mode = open("/out/mode").read().strip()
if mode == "config":
    print('E0726 15:04:05.123456    1902 run.go:72] "command failed" err="failed to load kubelet config file, path: '
          '/etc/kubernetes/kubelet/config.json, error: no such file"', file=sys.stderr, flush=True)
    sys.exit(1)
class Healthz(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"ok")
    def log_message(self, *_):
        pass
s = http.server.HTTPServer(("127.0.0.1", 10248), Healthz)
print('I0726 15:04:05.123456    1902 x.go:1] "Kubelet version" kubeletVersion="v1.33.1-eks-test"', file=sys.stderr, flush=True)
s.serve_forever()
"""
INSIDE = r"""#!/bin/bash
exec >/out/log 2>&1
look() { nodewhy check --json --only kubelet >/out/$1.json; }
restarts() { for i in $(seq 100); do [ "$(systemctl show kubelet -p NRestarts --value)" -ge "$1" ] && break; sleep 0.05; done; }
answers() { for i in $(seq 100); do (exec 3<>/dev/tcp/127.0.0.1/10248) 2>/dev/null && break; sleep 0.05; done; }
busctl --no-pager list >/out/bus
look never
systemctl mask --runtime kubelet; look masked; systemctl unmask --runtime kubelet
echo config >/out/mode
systemctl start kubelet; restarts 4; look loop
systemctl stop kubelet
echo ok >/out/mode
systemctl reset-failed kubelet; systemctl start kubelet; answers; look runs
kill -STOP $(systemctl show kubelet -p MainPID --value)
look young
kill -CONT $(systemctl show kubelet -p MainPID --value)
journalctl --no-pager -u kubelet -o short-monotonic >/out/journal
# the daemon looks at once when the unit changes, not when its turn comes
mkdir -p /etc/nodewhy /run/nodewhy /var/lib/nodewhy
printf '[Probe kubelet]\nIntervalSec=600\n' >/etc/nodewhy/nodewhy.conf
nodewhy run --only kubelet & daemon=$!
at() { python3 -c 'import json; print([p["at"] for p in json.load(open("/run/nodewhy/status.json"))["probes"] if p["name"] == "kubelet"][0])'; }
outcome() { python3 -c 'import json; print([p["outcome"] for p in json.load(open("/run/nodewhy/status.json"))["probes"] if p["aspect"] == "unit"][0])'; }
for i in $(seq 100); do [ "$(outcome 2>/dev/null)" = ok ] && break; sleep 0.05; done
sleep 0.5; outcome >/out/outcome-before
systemctl stop kubelet
for i in $(seq 40); do [ "$(outcome)" = absent ] && break; sleep 0.05; done
outcome >/out/outcome-after
look stopped
kill $daemon
"""
PREPARE = r"""
rm -rf "$m/etc/nodewhy" "$m/var/log/journal" "$m/var/lib/kubelet"
cp "$work/out/kubelet.service" "$m/usr/lib/systemd/system/"
install -m 755 "$work/nodewhy" "$m/usr/bin/nodewhy"
"""


def judge(t, text):
    def says(state, codes, *words):
        try:
            report = json.loads(text(state + ".json"))
        except ValueError:
            return t.ok(False, f"{state}: a report", text("log")[-3000:])
        got = {f["code"]: f["summary"] for f in report["findings"]}
        looks = [f"{p['aspect']}: {p['outcome']}: {p['detail']}" for p in report["probes"]]
        t.ok(set(got) == set(codes) and all(any(w in s for s in got.values()) for w in words), f"{state}: {codes or 'nothing'}", got, *looks)
        return report

    t.ok("org.freedesktop.systemd1" in text("bus"), "systemd is on the bus", text("bus"), text("log")[-2000:])
    says("never", ["KubeletInactive"], "never started since boot")
    says("masked", ["KubeletInactive"], "masked")
    says("loop", ["KubeletConfigInvalid", "KubeletCrashLooping"], "failed to load kubelet config file, path: /etc/kubernetes/kubelet/config.json")
    report = says("runs", [])
    t.ok(report and report["node"]["kubelet_version"] == "v1.33.1-eks-test", "its version is read from its journal", text("journal")[-2000:])
    t.ok(report and {p["aspect"]: p["outcome"] for p in report["probes"]}.get("healthz") == "ok", "its health check answers")
    says("young", [])
    t.ok(text("outcome-before") == "ok\n" and text("outcome-after") == "absent\n", "the daemon sees it stop within two seconds, though its turn comes every ten minutes",
         text("outcome-before"), text("outcome-after"), text("log")[-2000:])
    says("stopped", ["KubeletInactive"], " s ago")


def main():
    why = nspawn.missing("dbus-daemon")
    if why:
        return nspawn.skip(why)
    with open("/proc/uptime") as f:
        if float(f.read().split()[0]) < GRACE + 10:
            return nspawn.skip("the machine has just booted: kubelet would be in its grace")
    t = nspawn.Tap()
    with tempfile.TemporaryDirectory(prefix="nodewhy-units-") as work:
        shutil.copy(os.environ.get("NODEWHY", os.path.join(os.path.dirname(HERE), "build/release/nodewhy")), work + "/nodewhy")
        text = nspawn.run(work, None, [INSIDE], prepare=PREPARE, wants="dbus.socket", files={"kubelet.py": KUBELET, "mode": "ok", "kubelet.service": UNIT})
        if not text.ended:
            t.ok(False, "the container ends in time", text("log"), text.console[-4000:])
        elif text.code and not text.has("bus"):
            return nspawn.skip(f"systemd-nspawn does not work here: {text.console.strip()[-300:]!r}")
        else:
            judge(t, text)
    print(f"1..{t.n}")
    return t.failed != 0


if __name__ == "__main__":
    sys.exit(main())
