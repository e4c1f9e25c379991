#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The packages of the commit that is checked out: built twice, the same bytes; what is in them, what they ask for, and what
# lintian and rpmlint say. Installing, running, upgrading and purging them under systemd is tests/boot.t.
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/tap.sh"
skip() {
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}
if ! git rev-parse HEAD >/dev/null 2>&1; then
	echo '1..0 # SKIP no repository: packages are made of a commit'
	exit
fi
sum() { (cd "$1" && sha256sum -- *) | grep -v dbgsym; }
build() { # KIND
	for i in 1 2; do
		rm -rf build/packages
		out=$(sh packaging/build "$1" 2>&1)
		t "make $1, time $i" $? "$out"
		mkdir -p "$d/$1$i"
		mv build/packages/* "$d/$1$i"
	done
	t "the same bytes both times" "$([ "$(sum "$d/${1}1")" = "$(sum "$d/${1}2")" ]; echo $?)" "$(sum "$d/${1}1"; sum "$d/${1}2")"
}
has() { # NAME LIST FILE...
	list=$2 what=$1
	shift 2
	for f in "$@"; do
		printf '%s\n' "$list" | grep -qx -- "$f"
		t "$what has $f" $? "$list"
	done
}
common='/usr/bin/nodewhy /etc/nodewhy/nodewhy.conf.d /usr/share/nodewhy/eni-limits.tsv /usr/lib/sysusers.d/nodewhy.conf
	/usr/lib/tmpfiles.d/nodewhy.conf /usr/share/man/man1/nodewhy.1.gz /usr/share/man/man5/nodewhy.conf.5.gz
	/usr/share/man/man7/nodewhy-findings.7.gz /usr/share/man/man8/nodewhy.8.gz /usr/share/bash-completion/completions/nodewhy'
npd='/usr/share/nodewhy/npd/nodewhy-condition /usr/share/nodewhy/npd/nodewhy-condition-monitor.json
	/usr/share/nodewhy/npd/nodewhy-journal-monitor.json'

if command -v dpkg-buildpackage >/dev/null; then
	build deb
	list=$(dpkg-deb -c "$d"/deb1/nodewhy_*.deb | sed 's|^.* \./|/|; s|/$||')
	# shellcheck disable=SC2086 # one word a file
	has nodewhy.deb "$list" $common /lib/systemd/system/nodewhy.service /lib/systemd/catalog/nodewhy.ko.catalog
	t 'and leaves the npd directory to the other' "$(! printf '%s\n' "$list" | grep -q /npd; echo $?)" "$list"
	list=$(dpkg-deb -c "$d"/deb1/nodewhy-npd_*.deb | sed 's|^.* \./|/|; s|/$||')
	# shellcheck disable=SC2086
	has nodewhy-npd.deb "$list" $npd
	t 'nodewhy-npd is for every machine' "$([ "$(dpkg-deb -f "$d"/deb1/nodewhy-npd_*.deb Architecture)" = all ]; echo $?)"
	if command -v lintian >/dev/null; then
		out=$(lintian --allow-root --fail-on warning "$d"/deb1/*.deb 2>&1)
		t 'lintian says nothing' "$(! printf '%s' "$out" | grep -q '^[EW]:'; echo $?)" "$out"
	else
		skip lintian 'not installed'
	fi
else
	skip 'make deb' 'dpkg-buildpackage is not installed'
fi

if command -v rpmbuild >/dev/null; then
	build rpm
	main=$(ls "$d"/rpm1/nodewhy-[0-9]*.rpm) sub=$(ls "$d"/rpm1/nodewhy-npd-*.rpm)
	list=$(rpm -qpl "$main")
	# shellcheck disable=SC2086
	has nodewhy.rpm "$list" $common /usr/lib/systemd/system/nodewhy.service /usr/lib/systemd/catalog/nodewhy.ko.catalog
	t 'and leaves the npd directory to the other' "$(! printf '%s\n' "$list" | grep -q /npd; echo $?)" "$list"
	list=$(rpm -qpl "$sub")
	# shellcheck disable=SC2086
	has nodewhy-npd.rpm "$list" $npd
	t 'nodewhy-npd is for every machine' "$([ "$(rpm -qp --qf '%{arch}' "$sub")" = noarch ]; echo $?)"
	# the names to build with are asked for on Amazon Linux only
	for want in $({ rpm -qp --requires "$main" "$sub"; rpmspec -q --buildrequires --define 'amzn 2023' --define 'version_ 1' packaging/rpm/nodewhy.spec; } |
		sed 's/(.*//; s/ .*//' | grep -v -e ^rpmlib -e ^rtld -e ^ld- | sort -u); do
		cut -f1 packaging/rpm/requires.tsv | grep -qxF -- "$want"
		t "packaging/rpm/requires.tsv says where $want is from" $?
	done
	if [ "$(id -u)" = 0 ]; then
		r="rpm --root $d/root --dbpath /var/lib/rpm --nodeps --noscripts"
		mkdir -p "$d/root"
		t 'it installs' "$($r -i "$main" "$sub" >"$d/log" 2>&1; echo $?)" "$(cat "$d/log")"
		out=$($r -V nodewhy nodewhy-npd 2>&1)
		t 'and is what it says it is' $? "$out"
		t 'and runs' "$("$d/root/usr/bin/nodewhy" version >"$d/log" 2>&1; echo $?)" "$(cat "$d/log")"
		t 'and goes' "$($r -e nodewhy nodewhy-npd >"$d/log" 2>&1; echo $?)" "$(cat "$d/log")"
		left=$(find "$d/root" -path '*/var/lib/rpm*' -prune -o -name '*nodewhy*' -print)
		t 'whole' "$([ -z "$left" ]; echo $?)" "$left"
	else
		skip 'rpm -i' 'not root'
	fi
	if command -v rpmlint >/dev/null; then
		out=$(rpmlint -r packaging/rpm/rpmlintrc "$main" "$sub" 2>&1)
		t 'rpmlint says nothing' "$(printf '%s' "$out" | grep -q '0 errors, 0 warnings'; echo $?)" "$out"
	else
		skip rpmlint 'not installed'
	fi
else
	skip 'make rpm' 'rpmbuild is not installed'
fi
# for tests/boot.t, which would have to build them again
cp "$d"/deb1/*.deb "$d"/rpm1/*.rpm build/packages 2>/dev/null
echo "1..$n"
exit $bad
