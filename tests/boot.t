#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The life of the package on a node, under a real systemd: installed, started by that, a fault found and told everywhere,
a hang, an upgrade, a reboot, removal and purge."""
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import nspawn  # noqa: E402

CODE = "ResolverFailing"
LIMIT = 64 << 20

COMMON = """#!/bin/sh
exec >>/out/log 2>&1
until_() { # COMMAND...: waits for it, for 30 s
	for i in $(seq 300); do "$@" 2>/dev/null && return; sleep 0.1; done
	echo "in vain: $*"
	return 1
}
found() { grep -q '"code": *"CODE"' /run/nodewhy/status.json; }
none() { grep -q '"findings": *\\[\\]' /run/nodewhy/status.json; }
changed() { ! cmp -s /run/nodewhy/status.json "$1"; }
up() { systemctl is-active -q nodewhy; }
pid() { systemctl show nodewhy -p MainPID --value; }
status() { cp /run/nodewhy/status.json /out/$1.json; }
files() { for d in /etc /run /usr /var; do find $d -xdev -iname '*nodewhy*'; done | sort; }
package() { # NAME ARGUMENT...
	out=/out/$1
	shift
	dpkg --force-unsafe-io "$@" >$out 2>&1
	echo "exit $?" >>$out
}
""".replace("CODE", CODE)

# Where the daemon's sandbox hides what nspawn says of the boot, a drop-in says it again.
FIRST = COMMON + """
files >/out/before
package install -i /out/*_1.deb
systemctl is-enabled nodewhy >/out/enabled
systemctl is-active nodewhy >/out/active
systemd-analyze verify --man=no nodewhy.service >/out/verify 2>&1
until_ found
systemctl show nodewhy >/out/show
status found
until_ grep -q CODE /run/nodewhy/conditions/DnsProblem
sh /usr/share/nodewhy/npd/nodewhy-condition DnsProblem >/out/hook
echo "exit $?" >>/out/hook
g=$(sed -n 's/^[0-9]*:memory://p' /proc/$(pid)/cgroup)
if [ -n "$g" ]; then cat "/sys/fs/cgroup/memory$g/memory.limit_in_bytes"
else cat "/sys/fs/cgroup$(sed -n s/^0:://p /proc/$(pid)/cgroup)/memory.max"; fi >/out/limit
journalctl -u nodewhy -o json --no-pager >/out/journal
journalctl -u nodewhy -x --no-pager >/out/explained

mkdir -p /run/systemd/system/nodewhy.service.d
printf '[Service]\\nWatchdogSec=1\\nRestartSec=100ms\\n' >/run/systemd/system/nodewhy.service.d/quick.conf
systemctl daemon-reload
systemctl restart nodewhy
kill -STOP $(pid)
back() { [ "$(systemctl show nodewhy -p NRestarts --value)" -ge 1 ] && up; }
until_ back
systemctl show nodewhy -p NRestarts --value >/out/restarts
journalctl -u nodewhy --no-pager -o cat | grep 'Watchdog timeout' >/out/watchdog
rm -r /run/systemd/system/nodewhy.service.d
systemctl daemon-reload

echo '# of this site' >/etc/nodewhy/nodewhy.conf.d/site.toml
old=$(pid)
package upgrade -i /out/*_2.deb
dpkg-query -W -f '${Version}' nodewhy >/out/version
up && [ "$(pid)" != "$old" ]
echo $? >/out/restarted
status old
until_ changed /out/old.json
until_ found
status upgraded
cp /var/lib/nodewhy/history.jsonl /out/history.1
mkdir /etc/systemd/system/nodewhy.service.d
printf '[Service]\\nBindReadOnlyPaths=/out/boot_id.2:/proc/sys/kernel/random/boot_id\\n' >/etc/systemd/system/nodewhy.service.d/boot.conf
""".replace("CODE", CODE)

SECOND = COMMON + """
until_ up
systemctl show nodewhy -p NRestarts,ActiveState --value >/out/booted
until_ found
status booted
: >/out/heal
until_ none
status healed
cp /var/lib/nodewhy/history.jsonl /out/history.2
rm -r /etc/systemd/system/nodewhy.service.d
package remove -r nodewhy-npd nodewhy
systemctl is-active nodewhy >/out/stopped
ls /run/nodewhy/status.json /var/lib/nodewhy/history.jsonl /var/lib/nodewhy/state.json /etc/nodewhy/nodewhy.conf.d/site.toml >/out/kept 2>&1
ls -d /usr/bin/nodewhy /lib/systemd/system/nodewhy.service /usr/share/nodewhy >/out/gone 2>/dev/null
journalctl --list-catalog >/out/catalog
package purge -P nodewhy-npd nodewhy
files >/out/after
cat /etc/nodewhy/nodewhy.conf.d/site.toml >/out/site
"""
BOOT_ID = "0f0e0d0c-0b0a-4908-8706-050403020100"


def later(deb, work):
    """The same package with a version that is higher."""
    d = os.path.join(work, "later-" + os.path.basename(deb))
    subprocess.run(["dpkg-deb", "-R", deb, d], check=True)
    with open(d + "/DEBIAN/control") as f:
        control = f.read()
    with open(d + "/DEBIAN/control", "w") as f:
        f.write(re.sub(r"(?m)^(Version: .*)$", r"\1+later", control))
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", d, d + ".deb"], check=True, stdout=subprocess.DEVNULL)
    return d + ".deb"


def subject_of(message_id):
    """What the catalogue calls it."""
    with open(os.path.join(REPOSITORY, "packaging/catalog/nodewhy.catalog")) as f:
        m = re.search(rf"^-- {message_id}\nSubject: (.*)\n", f.read(), re.M)
    return m and m[1]


def judge_first(t, text):
    """Returns the first report and the finding's message id."""
    t.ok(text("install").endswith("exit 0\n"), "dpkg installs it", text("install"))
    t.ok(text("enabled") == "enabled\n" and text("active") == "active\n", "which enables it and starts it", text("enabled"), text("active"), text("log"), text.console[-3000:])
    t.ok(text("verify") == "", "systemd-analyze verify says nothing", text("verify"))
    report = json.loads(text("found.json"))
    finding = next(f for f in report["findings"] if f["code"] == CODE)
    show = dict(line.split("=", 1) for line in text("show").splitlines() if "=" in line)
    t.ok(show["Type"] == "notify" and show["NotifyAccess"] == "main" and CODE in show["StatusText"], "it has told systemd that it is ready, and the root cause", show["StatusText"])
    t.ok(report["verdict"]["root"] == CODE, "its status has the one root cause", report["verdict"])
    t.ok(CODE in text("hook") and text("hook").endswith("exit 1\n"), "and so has its node condition, by the hook of nodewhy-npd", text("hook"))
    t.ok(show["MemoryMax"] == str(LIMIT), "its memory is bounded", show["MemoryMax"])
    if text("limit"):
        t.ok(text("limit").strip() == str(LIMIT), "by the kernel's account too", text("limit"))
    entries = [json.loads(line) for line in text("journal").splitlines()]
    raised = [e for e in entries if e.get("NODEWHY_CODE") == CODE and e.get("NODEWHY_STATE") == "raised"]
    message_id = raised[0].get("MESSAGE_ID", "") if raised else ""
    t.ok(len(raised) == 1 and re.fullmatch("[0-9a-f]{32}", message_id) and raised[0]["_SYSTEMD_UNIT"] == "nodewhy.service" and raised[0]["NODEWHY_LAYER"] == "dns"
         and raised[0]["NODEWHY_SUBJECT"] == finding["subject"], "the journal has it once, with code, layer, subject and message id", raised or text("journal")[-3000:])
    subject = subject_of(message_id)
    t.ok(subject and f"-- Subject: {subject}" in text("explained").replace("░░ ", "-- "), "journalctl -x explains it from the catalogue", message_id, subject, text("explained")[-3000:])
    t.ok(text("restarts") == "1\n" and "Watchdog timeout" in text("watchdog"), "a hang is ended by the watchdog, and it is back", text("restarts"), text("watchdog"), text("log"))
    t.ok(text("upgrade").endswith("exit 0\n") and text("version").endswith("+later") and text("restarted") == "0\n", "an upgrade restarts it", text("upgrade"), text("version"), text("log"))
    since = [f["since"] for f in json.loads(text("upgraded.json"))["findings"] if f["code"] == CODE]
    # the clock that it is kept in, /proc/uptime, has hundredths of a second
    t.ok(len(since) == 1 and abs(moment(since[0]) - moment(finding["since"])) < 0.05, "the standing finding keeps its time through hang and upgrade", since, finding["since"])
    return report, message_id


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def told(history):
    return [(e["code"], e["state"]) for e in map(json.loads, history.splitlines())]


def judge_second(t, text, report, message_id):
    t.ok(text("booted") == "0\nactive\n" or text("booted") == "active\n0\n", "after a reboot it starts by itself", text("booted"), text("log"), text.console[-3000:])
    booted = json.loads(text("booted.json"))
    old = next(f["since"] for f in report["findings"] if f["code"] == CODE)
    t.ok(booted["boot_id"] == BOOT_ID != report["boot_id"], "and knows that this is another boot", booted["boot_id"])
    t.ok(booted["node"]["instance_id"] == report["node"]["instance_id"] and [f["since"] for f in booted["findings"] if f["code"] == CODE] > [old],
         "in which the finding begins anew", booted["findings"])
    t.ok(told(text("history.1")) == [(CODE, "raised")], "the history has it once, whatever was restarted", text("history.1"))
    t.ok(text("history.2").startswith(text("history.1")) and told(text("history.2"))[1:] == [(CODE, "raised"), (CODE, "cleared")],
         "and is kept through the reboot, and has the end of it", text("history.2"))
    t.ok(json.loads(text("healed.json"))["verdict"]["root"] in (None, ""), "healed, there is no root cause", text("log"))
    t.ok(text("remove").endswith("exit 0\n") and text("stopped") != "active\n" and text("gone") == "", "removal stops it and takes the program away", text("remove"), text("stopped"), text("gone"))
    t.ok("cannot access" not in text("kept") and len(text("kept").split()) == 4, "and keeps what was written and configured", text("kept"))
    t.ok(message_id and message_id not in text("catalog"), "the journal's catalogue has forgotten it")
    left = set(text("after").split()) - set(text("before").split())
    t.ok(text("purge").endswith("exit 0\n") and left <= {"/etc/nodewhy", "/etc/nodewhy/nodewhy.conf.d"} and text("site") == "# of this site\n",
         "purge leaves nothing but the site's own file", text("purge"), *sorted(left))


def main():
    why = nspawn.missing("dpkg", "dpkg-deb", "dpkg-buildpackage", "git") or nspawn.no_commit()
    if why:
        return nspawn.skip(why)
    from world import World
    t = nspawn.Tap()
    debs = nspawn.packages("deb")
    with World(enis=2, pods=4) as w, tempfile.TemporaryDirectory(prefix="nodewhy-boot-") as work:
        os.makedirs(work + "/out")
        for deb in debs:
            name = os.path.basename(deb).split("_")[0]
            shutil.copy(deb, f"{work}/out/{name}_1.deb")
            shutil.move(later(deb, work), f"{work}/out/{name}_2.deb")
        undo = [w.dns_refused()]

        def heal(text):
            if undo and text.has("heal"):
                undo.pop()()

        # man-db would index all of the machine's pages
        text = nspawn.run(work, w, [FIRST, SECOND], prepare='rm -f "$m/var/lib/man-db/auto-update"', wants="multi-user.target", files={"boot_id.2": BOOT_ID + "\n"},
                          meanwhile=heal)
        if not text.ended:
            t.ok(False, "the container ends in time", text("log"), text.console[-4000:])
        elif text.code and not text.has("before"):
            return nspawn.skip(f"systemd-nspawn does not work here: {text.console.strip()[-300:]!r}")
        else:
            try:
                judge_second(t, text, *judge_first(t, text))
            except (ValueError, KeyError, StopIteration) as e:
                t.ok(False, "it leaves what is to be judged", repr(e), text("log"), text.console[-3000:])
    print(f"1..{t.n}")
    return t.failed != 0


if __name__ == "__main__":
    sys.exit(main())
