#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what building, testing, linting and the demo need, with apt-get or dnf. Quick when all is there.
# deps.sh --list prints the names and installs nothing; deps.sh --build takes only what compiling needs.
set -eu

deb_build='build-essential pkg-config libsystemd-dev libcurl4-openssl-dev libjansson-dev libmnl-dev libc-ares-dev libssl-dev git'
deb_rest='python3 python3-venv iproute2 nftables iptables curl openssl systemd systemd-container procps clang clang-format clang-tidy cppcheck shellcheck mandoc busybox'
rpm_build='gcc make binutils pkgconf-pkg-config systemd-devel libcurl-devel jansson-devel libmnl-devel c-ares-devel openssl-devel git'
rpm_rest='python3 iproute nftables iptables-nft openssl systemd systemd-container procps-ng util-linux diffutils'
# Not in every rpm distribution (AL2023 has no cppcheck, shellcheck or mandoc): taken where they are there, and only
# `make lint` and `make fuzz` miss them.
rpm_wish='clang clang-tools-extra cppcheck ShellCheck mandoc busybox'

if command -v apt-get >/dev/null; then
	kind=deb want="$deb_build $deb_rest" only=$deb_build wish=
elif command -v dnf >/dev/null; then
	kind=rpm want="$rpm_build $rpm_rest" only=$rpm_build wish=$rpm_wish
else
	echo 'deps: neither apt-get nor dnf is here: see packaging/deps.sh for what is needed' >&2
	exit 1
fi
case ${1-} in
--list)
	echo "$want $wish"
	exit
	;;
--build)
	want=$only wish=
	;;
'') ;;
*)
	echo 'usage: deps.sh [--list | --build]' >&2
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
