#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bake.sh RPM...     on the instance that becomes the image, as root: installs, enables, proves that it works, and leaves
#                    no trace of this instance
# bake.sh --booted   on an instance of the image: it came up by itself
# Exit code 0, or 1 and why not: the bake has to end there.
#
# A bake host has joined no cluster, so what nodewhy finds there is of no interest: 0 to 3 (healthy, degraded, broken,
# blind) are all good. What may not be is that it cannot look (70), is not understood (64), or does not run at all.
set -eu
export LC_ALL=C
state=${NODEWHY_STATE:-/var/lib/nodewhy}    # other places for the tests
running=${NODEWHY_RUNNING:-/run/systemd/system}
unit=nodewhy.service
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
	echo "nodewhy: $*" >&2
	exit 1
}

# says VERB: what the verb prints is a status of this very version, whatever it says
says() {
	rc=0
	timeout 60 nodewhy "$1" --json >"$work/$1.json" 2>"$work/$1.err" || rc=$?
	case $rc in
	0 | 1 | 2 | 3) ;;
	*) fail "nodewhy $1 ended with $rc: $(head -c 500 "$work/$1.err")" ;;
	esac
	# python3 is there: dnf is written in it.
	python3 - "$work/$1.json" "$version" <<-'END' || fail "nodewhy $1 printed no status: $(head -c 500 "$work/$1.err")"
		import json, sys
		status = json.load(open(sys.argv[1]))
		assert status["schema"] == "nodewhy.status/1", status["schema"]
		assert status["version"] in sys.argv[2], (status["version"], sys.argv[2])
		assert status["probes"] and status["verdict"]["state"]
	END
}

installed() {
	rpm -q nodewhy >/dev/null || fail 'the package is not installed'
	rpm -V nodewhy || fail 'installed files are not those of the package'
	version=$(nodewhy version) || fail 'the program does not run'
	systemctl is-enabled -q $unit || fail 'the unit is not enabled'
	systemd-analyze verify --man=no --recursive-errors=no $unit || fail 'systemd takes exception to the unit'
}

# The daemon under its own limits: what they forbid shows here and in no check of root's.
serves() {
	systemctl is-active -q $unit || fail "the daemon does not run: $(journalctl -u $unit -n 20 --no-pager 2>&1 | tail -n 20)"
	tries=0
	until [ -n "$(nodewhy status --json 2>/dev/null)" ] || [ $tries -ge 30 ]; do
		tries=$((tries + 1))
		sleep 1
	done
	says status
}

if [ "${1-}" = --booted ]; then
	installed
	serves
	exit
fi
[ $# -gt 0 ] || fail 'usage: bake.sh RPM... | --booted'
for rpm in "$@"; do
	[ -f "$rpm" ] || fail "no such file: $rpm"
done
dnf install -y "$@" || fail 'dnf could not install it'
systemctl enable $unit || fail 'the unit cannot be enabled'
installed
says check
if [ -d "$running" ]; then
	systemctl restart $unit || fail 'the daemon does not start'
	serves
	systemctl stop $unit
fi
# What it learned of this instance is not of those that are made from the image.
rm -rf "${state:?}"/*
echo "nodewhy: $version is in the image"
