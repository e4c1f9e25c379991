#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The systemd unit, as far as it can be judged without booting.
n=0
bad=0
t() { # NAME COMMAND...: passes when the command succeeds
	n=$((n + 1))
	name=$1
	shift
	if out=$("$@" 2>&1); then
		echo "ok $n - $name"
	else
		bad=1
		echo "not ok $n - $name"
		printf '%s\n' "$out" | sed 's/^/# /'
	fi
}
skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
unit=systemd/nodewhy.service
# shellcheck disable=SC2317
has() { grep -qx "$1" "$unit"; }
# shellcheck disable=SC2317
hasnt() { ! grep -E "$1" "$unit"; }
# shellcheck disable=SC2317
quiet() {
	out=$("$@" 2>&1) || { echo "$out" && return 1; }
	[ -z "$out" ] || { echo "$out" && return 1; }
}

t 'the daemon reports readiness and is watched' has 'Type=notify'
t 'it comes back, always' has 'Restart=always'
t 'and no start limit ends that' has 'StartLimitIntervalSec=0'
t 'it waits for no network' hasnt '^(After|Wants|Requires|Requisite|BindsTo)=.*(network|online|cloud|resolved)'
t 'nothing waits for it' hasnt '^Before=.*(sysinit|basic|network|multi-user)'
t 'the state of before a restart stays readable' has 'RuntimeDirectoryPreserve=yes'
t 'it has a user of its own' has 'User=nodewhy'
t 'what probes read of other processes is not hidden' hasnt '^(ProtectProc=(noaccess|ptraceable)|ProcSubset=pid|PrivateNetwork=yes|PrivateUsers=yes)'
t 'hiding them from all but the group root takes that group' has 'SupplementaryGroups=root'
t 'the address families that probes use are open' has 'RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK'
if command -v systemd-analyze >/dev/null; then
	sed "s|^ExecStart=[^ ]*|ExecStart=$(pwd)/${B:-build/release}/nodewhy|" "$unit" >"$d/nodewhy.service"
	t 'systemd-analyze verify says nothing' quiet systemd-analyze verify --man=no "$d/nodewhy.service"
	# what each tenth is paid for stands in the unit
	t 'systemd-analyze security: at most 1.5' systemd-analyze security --offline=true --threshold=15 "$unit"
else
	skip 'systemd-analyze' 'not installed'
fi
if command -v systemd-sysusers >/dev/null; then
	mkdir -p "$d/root/etc" "$d/root/run"
	t 'sysusers makes the user' systemd-sysusers --root="$d/root" "$(pwd)/systemd/nodewhy.sysusers"
	t 'which is then there' grep -q '^nodewhy:' "$d/root/etc/passwd"
	if [ "$(id -u)" = 0 ]; then
		t 'tmpfiles makes its directories' systemd-tmpfiles --root="$d/root" --create "$(pwd)/systemd/nodewhy.tmpfiles"
		t 'which are then there' test -d "$d/root/run/nodewhy/conditions"
	else
		skip 'tmpfiles makes its directories' 'not root'
	fi
else
	skip 'sysusers, tmpfiles' 'not installed'
fi
echo "1..$n"
exit $bad
