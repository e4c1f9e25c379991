#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The installed unit, started by a real systemd in a container on the simulated node's network: that it comes up early,
says that it is ready, may do what its probes do, and sees the same as root does."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import nspawn  # noqa: E402

# From inside the daemon's mounts and control group: what it could do, were it taken over.
TRY = r"""
import ctypes, json, os, socket, sys
pid, group = sys.argv[1:]
found, out = {}, open("/out/tried", "w")
with open(group + "/cgroup.procs", "w") as f:
    f.write(str(os.getpid()))
for name, address in ("a host", "10.0.1.1"), ("multicast", "224.0.0.251"), ("broadcast", "255.255.255.255"):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    try:
        s.sendto(b"x", (address, 9))
        found[name] = "sent"
    except OSError as e:
        found[name] = e.strerror
if ctypes.CDLL(None).setns(os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY), 0x20000) != 0:
    sys.exit("setns")
def attempt(name, groups, what):
    r, w = os.pipe()
    if os.fork() == 0:
        try:
            if groups is not None:
                os.setgroups(groups)
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            text = what()
        except OSError as e:
            text = e.strerror
        os.write(w, text.encode())
        os._exit(0)
    os.close(w)
    found[name] = os.read(r, 4096).decode()
    os.wait()
attempt("process 1", [0], lambda: open("/proc/1/comm").read())
attempt("process 1 without the group", [], lambda: open("/proc/1/comm").read())
attempt("a shell", None, lambda: os.execv("/bin/sh", ["sh", "-c", ":"]))
attempt("shadow", None, lambda: open("/etc/shadow").read())
attempt("a file", None, lambda: str(open("/etc/nodewhy/new", "w")))
json.dump(found, out)
"""
# Runs once the container's basic.target is reached; what it leaves in /out is judged below.
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
stat -c %t:%T /dev/console >/out/console
stat -L -c %t:%T /proc/$pid/fd/* >/out/opened
ls /proc/$pid/root/dev >/out/devices
journalctl -t nodewhy -o json --no-pager >/out/journal
journalctl -b --no-pager -o cat _TRANSPORT=audit >/out/audit
g=/sys/fs/cgroup/unified
[ -d $g ] || g=/sys/fs/cgroup
python3 /out/try.py $pid $g$(sed -n s/^0:://p /proc/$pid/cgroup)
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


def outcomes(report):
    """But of the probes that a daemon asks only when something calls for it, of connections, which come and go, of
    what waits for the minute in which the API server is asked again, and of what only root is given or refused."""
    return {(p["name"], p["subject"], p["aspect"]): p["outcome"] for p in report["probes"]
            if p["name"] not in ("sts", "subnet") and p["aspect"] not in ("connection", "service", "inotify")}


def judge(t, text):
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
    t.ok(text("console").strip() in text("opened").splitlines(), "the console is open to it", text("console"), text("opened"))
    t.ok("console" in text("devices").split() and not {"kmsg", "mem", "port", "fuse", "tty0"} & set(text("devices").split()), "and no device else", text("devices"))
    tried = json.loads(text("tried") or "{}")
    t.ok(tried.get("process 1") == "systemd\n" and tried.get("process 1 without the group") == "No such file or directory", "other processes are seen by the group root, and by nobody else", tried)
    t.ok(tried.get("a shell") == "Permission denied" and tried.get("shadow") == "" and tried.get("a file") == "Read-only file system", "no other program can be run, passwords read, files written", tried)
    t.ok(tried.get("a host") == "sent" and {tried.get(k) for k in ("multicast", "broadcast")} == {"Operation not permitted"},
         "packets are for one host each", tried, text("log")[-2000:])
    journal = [json.loads(line) for line in text("journal").splitlines()]
    t.ok(any(e.get("NODEWHY_STATE") == "verdict" and e.get("_SYSTEMD_UNIT") == "nodewhy.service" for e in journal), "its verdict is in the journal, with the unit's name", text("journal")[-2000:])
    t.ok("SECCOMP" not in text("audit"), "no system call of it was refused", text("audit")[-2000:])
    t.ok(text("again") == "active\n", "it can be restarted")
    t.ok(text("after-crash") == "active\n1\n", "it comes back after a crash", text("after-crash"), text("log")[-3000:])
    t.ok(text("after-hang") == "active\n2\n", "and after a hang, by its watchdog", text("after-hang"), text("log")[-3000:])
    t.ok(text("restarts") == "2\n", "the watchdog leaves it alone when it works", text("restarts"))
    t.ok(text("preserved") == "/run/nodewhy/status.json\n", "its last word stays when it stops")


def main():
    why = nspawn.missing()
    if why:
        return nspawn.skip(why)
    from world import World
    t = nspawn.Tap()
    with World(enis=2, pods=4) as w, tempfile.TemporaryDirectory(prefix="nodewhy-sandbox-") as work:
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "B")}
        subprocess.run(["make", "-s", "-C", REPOSITORY, "SAN=", "install", f"DESTDIR={work}/installed", "PREFIX=/usr"], check=True, env=env, stdout=subprocess.DEVNULL)
        text = nspawn.run(work, w, [INSIDE], prepare='cp -a "$work/installed/." "$m/"; systemd-sysusers --root="$m"', wants="nodewhy.service", files={"try.py": TRY})
        if not text.ended:
            t.ok(False, "the container ends in time", text.console[-4000:])
        elif text.code and not text.has("active"):
            return nspawn.skip(f"systemd-nspawn does not work here: {text.console.strip()[-300:]!r}")
        else:
            judge(t, text)
    print(f"1..{t.n}")
    return t.failed != 0


if __name__ == "__main__":
    sys.exit(main())
