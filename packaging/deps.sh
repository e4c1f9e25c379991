#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what building, testing, linting and the demo need, with apt-get or dnf. Quick when all is there.
# deps.sh [--build | --demo | --test]: only what compiling needs, and the demo, and the tests: compilers and analysers of
# `make lint` and `make fuzz` are most of the whole. deps.sh --vm: what tests/vm boots a machine with, which is in none of
# these. deps.sh --list prints all the names but those and installs nothing.
set -eu

deb_build='gcc libc6-dev make pkg-config libsystemd-dev libcurl4-openssl-dev libjansson-dev libmnl-dev libc-ares-dev libssl-dev libyaml-dev zlib1g-dev git'
deb_demo='python3 iproute2 nftables openssl'
deb_test='python3-venv curl systemd systemd-container busybox mandoc dpkg-dev debhelper lintian rpm rpmlint systemd-journal-remote dbus-daemon dbus-bin dbus containerd python3-yaml shellcheck'
deb_lint='iptables procps clang clang-format clang-tidy cppcheck shellcheck'
deb_vm='qemu-system-x86 mmdebstrap e2fsprogs'
rpm_build='gcc make binutils pkgconf-pkg-config systemd-devel libcurl-devel jansson-devel libmnl-devel c-ares-devel openssl-devel libyaml-devel zlib-devel git'
rpm_demo='python3 iproute nftables openssl util-linux'
rpm_test='systemd systemd-container diffutils rpm-build systemd-journal-remote dbus-daemon dbus-tools containerd'
rpm_lint='iptables-nft procps-ng'
# Not in every rpm distribution (AL2023 has no cppcheck, shellcheck or mandoc): taken where they are there, and only
# `make lint` and `make fuzz` miss them.
rpm_wish='python3-pyyaml clang clang-tools-extra cppcheck ShellCheck mandoc busybox systemd-journal-remote'
# For tests/aemm.t and tests/npd.t, where there is no Go yet. Any will do: it fetches the one that they want.
command -v go >/dev/null || deb_test="$deb_test golang-go" rpm_wish="$rpm_wish golang"

wish=
if command -v apt-get >/dev/null; then
	kind=deb build=$deb_build demo=$deb_demo test=$deb_test lint=$deb_lint vm=$deb_vm
elif command -v dnf >/dev/null; then
	kind=rpm build=$rpm_build demo=$rpm_demo test=$rpm_test lint=$rpm_lint wish=$rpm_wish vm=
else
	echo 'deps: neither apt-get nor dnf is here: see packaging/deps.sh for what is needed' >&2
	exit 1
fi
want="$build $demo $test $lint"
case ${1-} in
--list)
	echo "$want $wish"
	exit
	;;
--build) want=$build wish= ;;
--demo) want="$build $demo" wish= ;;
--test) want="$build $demo $test" wish= ;;
--vm) want=$vm wish= ;; # the machine is one of Debian
'') ;;
*)
	echo 'usage: deps.sh [--list | --build | --demo | --test | --vm]' >&2
	exit 64
	;;
esac

installed() {
	if [ "$kind" = deb ]; then
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
	else
		rpm -q --whatprovides "$1" >/dev/null 2>&1
	fi
}

missing=
for p in $want; do
	installed "$p" || missing="$missing $p"
done
wished=
for p in $wish; do
	installed "$p" || wished="$wished $p"
done
[ -n "$missing$wished" ] || exit 0

if [ "$(id -u)" != 0 ]; then
	[ -n "$missing" ] || exit 0
	echo "deps: not root; missing:$missing" >&2
	exit 1
fi
[ -z "$missing" ] || echo "deps: installing$missing"
# The names are split on purpose.
# shellcheck disable=SC2086
if [ "$kind" = deb ]; then
	export DEBIAN_FRONTEND=noninteractive
	apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 || {
		apt-get update -qq
		apt-get install -y -qq --no-install-recommends $missing >/dev/null
	}
else
	[ -z "$missing" ] || dnf install -y -q $missing
	for p in $wished; do
		dnf install -y -q "$p" >/dev/null 2>&1 || echo "deps: $p is not to be had here" >&2
	done
fi
