#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The life of the RPM on a node, under a real systemd: its scriptlets install, upgrade, take a step back and remove it, on a
system that enables nothing which no preset names, as Amazon Linux 2023 does.

The rpm is this machine's own. Its database knows none of the packages here, so nothing is asked of dependencies (--nodeps):
that their names exist on Amazon Linux 2023 is tests/packages.t's. What differs there: systemd's file triggers, which
do again what our scriptlets do, and dnf, which calls the same library."""
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

INSIDE = r"""#!/bin/bash
exec >>/out/log 2>&1
until_() { # COMMAND...: waits for it, for 30 s
	for i in $(seq 300); do "$@" 2>/dev/null && return; sleep 0.1; done
	echo "in vain: $*"
	return 1
}
found() { grep -q '"code": *"CODE"' /run/nodewhy/status.json; }
none() { grep -q '"findings": *\[\]' /run/nodewhy/status.json; }
changed() { ! cmp -s /run/nodewhy/status.json "$1"; }
up() { systemctl is-active -q nodewhy; }
pid() { systemctl show nodewhy -p MainPID --value; }
state() { { systemctl is-enabled nodewhy; systemctl is-active nodewhy; } >/out/$1 2>&1; }
files() { for d in /etc /run /usr /var; do find $d -xdev -iname '*nodewhy*'; done | sort; }
package() { # NAME ARGUMENT...
	out=/out/$1
	shift
	rpm "$@" 2>&1 | grep -v '^rpm: ' >$out # Debian's: that it is not the tool for Debian's own packages
	echo "exit ${PIPESTATUS[0]}" >>$out
}
files >/out/before
package install -U --nodeps /out/first/*.rpm
state installed
package verify -V --nodeps nodewhy nodewhy-npd
getent passwd nodewhy >/out/user
until_ found
cp /run/nodewhy/status.json /out/found.json
until_ grep -q CODE /run/nodewhy/conditions/DnsProblem
sh /usr/share/nodewhy/npd/nodewhy-condition DnsProblem >/out/hook
journalctl --list-catalog >/out/catalog
ls /usr/share/man/man1/nodewhy.1* /usr/share/man/man5/nodewhy.conf.5* /usr/share/man/man7/nodewhy-findings.7* \
	/usr/share/man/man8/nodewhy.8* >/out/pages
man -w 8 nodewhy >/out/page 2>&1
bash -c '. /usr/share/bash-completion/completions/nodewhy; COMP_WORDS=(nodewhy ch); COMP_CWORD=1; COMP_LINE="nodewhy ch"; COMP_POINT=10
	f=$(complete -p nodewhy | sed "s/.*-F \([^ ]*\).*/\1/"); $f nodewhy ch nodewhy; echo "${COMPREPLY[*]}"' >/out/completed 2>&1

echo '# of this site' >/etc/nodewhy/nodewhy.conf.d/site.conf
old=$(pid)
package upgrade -U --nodeps /out/later/*.rpm
rpm -q nodewhy nodewhy-npd >/out/version
state upgraded
[ "$(pid)" != "$old" ]
echo $? >/out/restarted
cp /run/nodewhy/status.json /out/old.json
until_ changed /out/old.json
until_ found
cp /run/nodewhy/status.json /out/upgraded.json
cp /var/lib/nodewhy/history.jsonl /out/history

# what an operator decided is not undone by a package
systemctl disable --now nodewhy
package back -U --nodeps --oldpackage /out/first/*.rpm
state disabled
systemctl enable --now nodewhy
: >/out/heal
until_ none
cp /run/nodewhy/status.json /out/healed.json

package remove -e nodewhy nodewhy-npd
state removed
systemctl --failed --no-legend --plain | grep nodewhy >/out/failed
find /etc/systemd /run/systemd/system -name 'nodewhy*' >/out/links
journalctl --list-catalog >/out/forgotten
ls /run/nodewhy/status.json /var/lib/nodewhy/history.jsonl /var/lib/nodewhy/state.json /etc/nodewhy/nodewhy.conf.d/site.conf >/out/kept 2>&1
files >/out/after
""".replace("CODE", CODE)

# Amazon Linux and Fedora enable only what a preset names; Debian, all.
PREPARE = r"""
rm -f "$m"/lib/systemd/system-preset/* "$m"/etc/systemd/system-preset/*
mkdir -p "$m/lib/systemd/system-preset"
echo 'disable *' >"$m/lib/systemd/system-preset/99-default-disable.preset"
rm -rf "$m/root/.rpmdb"
rm -f "$m/var/lib/man-db/auto-update"
"""


def later(rpms, work):
    """The same files and scriptlets with a release that is higher: by the spec, but nothing is built again."""
    tree = work + "/tree-of-rpm"
    os.makedirs(tree)
    subprocess.run(["rpm", "--root", tree, "--dbpath", "/db", "--nodeps", "--noscripts", "-i", *rpms], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    shutil.rmtree(tree + "/db")
    shutil.rmtree(tree + "/usr/share/doc")
    shutil.rmtree(tree + "/usr/share/licenses", ignore_errors=True)
    with open(REPOSITORY + "/packaging/rpm/nodewhy.spec") as f:
        spec = f.read()
    spec, n = re.subn(r"(?s)\n%prep\n.*?(?=\n# Written out|\n%pre\n)", f"\n%install\ncp -a {tree}/. %{{buildroot}}\n", spec)
    assert n == 1
    with open(work + "/later.spec", "w") as f:
        f.write(spec)
    version = subprocess.run(["rpm", "-qp", "--qf", "%{version}", rpms[0]], check=True, stdout=subprocess.PIPE, text=True).stdout
    subprocess.run(["rpmbuild", "-bb", "--define", f"_topdir {work}/top", "--define", f"_builddir {REPOSITORY}", "--define", f"_rpmdir {work}/rpms", "--define", f"version_ {version}",
                    "--define", "dist .later", work + "/later.spec"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    made = [os.path.join(folder, name) for folder, _, names in os.walk(work + "/rpms") for name in names]
    assert len(made) == len(rpms), made
    return made


def moment(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def since(report):
    return [moment(f["since"]) for f in report["findings"] if f["code"] == CODE]


def judge(t, text):
    t.ok(text("install") == "exit 0\n", "rpm installs it, and its scriptlets say nothing", text("install"))
    t.ok(text("installed") == "enabled\nactive\n", "where a preset has to name what is enabled, ours does, and it is started", text("installed"), text("log"))
    t.ok(text("verify") == "exit 0\n", "every file is what the package says, owner and mode too", text("verify"))
    t.ok(re.match(r"nodewhy:[^:]*:\d+:\d+:[^:]*:/var/lib/nodewhy:\S*nologin$", text("user")), "it has made its user", text("user"))
    found = json.loads(text("found.json"))
    t.ok(found["verdict"]["root"] == CODE, "it finds the one root cause", found["verdict"])
    t.ok(text("hook").startswith(CODE + ": "), "which the hook of nodewhy-npd says too", text("hook"))
    t.ok(len(text("pages").split()) == 4 and text("page").startswith("/usr/share/man/man8/nodewhy.8"), "man finds its pages", text("pages"), text("page"))
    t.ok("check" in text("completed").split(), "bash completes its verbs", text("completed"))
    t.ok(text("upgrade") == "exit 0\n" and text("version").count(".later") == 2, "an upgrade puts the new packages in the old ones' place", text("upgrade"), text("version"))
    t.ok(text("upgraded") == "enabled\nactive\n" and text("restarted") == "0\n", "and restarts it", text("upgraded"), text("log"))
    # the clock that it is kept in, /proc/uptime, has hundredths of a second
    was, now = since(found), since(json.loads(text("upgraded.json")))
    t.ok(len(was) == len(now) == 1 and abs(was[0] - now[0]) < 0.05, "the standing finding keeps its time", was, now)
    said = [(e["code"], e["state"]) for e in map(json.loads, text("history").splitlines())]
    t.ok(said == [(CODE, "raised")], "and is not raised a second time", said)
    t.ok(text("back") == "exit 0\n" and text("disabled") == "disabled\ninactive\n", "an older package goes over it as well, and neither enables nor starts what was disabled",
         text("back"), text("disabled"))
    t.ok(json.loads(text("healed.json"))["verdict"]["root"] in (None, ""), "healed, there is no root cause", text("log"))
    t.ok(text("remove") == "exit 0\n" and "inactive" in text("removed").split() and "enabled" not in text("removed").split(), "removal stops it", text("remove"), text("removed"))
    t.ok(text("failed") == text("links") == "", "and leaves no unit behind, failed or linked to", text("failed"), text("links"))
    ids = set(re.findall(r"(?m)^([0-9a-f]{32}) .*", text("catalog"))) - set(re.findall(r"(?m)^([0-9a-f]{32}) .*", text("forgotten")))
    with open(REPOSITORY + "/packaging/catalog/nodewhy.catalog") as f:
        ours = set(re.findall(r"(?m)^-- ([0-9a-f]{32})$", f.read()))
    t.ok(ours and ids == ours, "the journal's catalogue has forgotten all of its messages, and no others", len(ids), len(ours))
    t.ok("cannot access" not in text("kept") and len(text("kept").split()) == 4, "it keeps what was written and configured", text("kept"))
    left = {f for f in text("after").split() if not f.startswith(("/run/nodewhy", "/var/lib/nodewhy", "/etc/nodewhy"))} - set(text("before").split())
    t.ok(not left, "and nothing else of it stays", *sorted(left))


def main():
    why = nspawn.missing("rpm", "rpmbuild", "git") or nspawn.no_commit()
    if why:
        return nspawn.skip(why)
    from world import World
    t = nspawn.Tap()
    rpms = nspawn.packages("rpm")
    with World(enis=2, pods=4) as w, tempfile.TemporaryDirectory(prefix="nodewhy-rpm-") as work:
        for name, files in (("first", rpms), ("later", later(rpms, work))):
            os.makedirs(f"{work}/out/{name}")
            for path in files:
                shutil.copy(path, f"{work}/out/{name}")
        undo = [w.dns_refused()]

        def heal(text):
            if undo and text.has("heal"):
                undo.pop()()

        text = nspawn.run(work, w, [INSIDE], prepare=PREPARE, wants="multi-user.target", meanwhile=heal)
        if not text.ended:
            t.ok(False, "the container ends in time", text("log"), text.console[-4000:])
        elif text.code and not text.has("before"):
            return nspawn.skip(f"systemd-nspawn does not work here: {text.console.strip()[-300:]!r}")
        else:
            try:
                judge(t, text)
            except (ValueError, KeyError, StopIteration) as e:
                t.ok(False, "it leaves what is to be judged", repr(e), text("log"), text.console[-3000:])
    print(f"1..{t.n}")
    return t.failed != 0


if __name__ == "__main__":
    sys.exit(main())
