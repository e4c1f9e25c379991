#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The journal catalogues as journalctl itself compiles and shows them, in both languages.
if ! command -v journalctl >/dev/null; then
	echo '1..0 # SKIP journalctl is not installed'
	exit 0
fi
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/tap.sh"

mkdir -p "$d/usr/lib/systemd/catalog" "$d/var/lib/systemd/catalog" "$d/etc"
cp packaging/catalog/*.catalog "$d/usr/lib/systemd/catalog"
out=$(journalctl --root="$d" --update-catalog 2>&1)
t 'journalctl compiles the catalogues' $? "$out"
t 'without a word' "$([ -z "$out" ]; echo $?)" "$out"

english=$(grep -c '^-- ' packaging/catalog/nodewhy.catalog)
korean=$(grep -c '^-- ' packaging/catalog/nodewhy.ko.catalog)
t 'both have the same entries' "$([ "$english" = "$korean" ] && [ "$english" -gt 0 ]; echo $?)" "$english in English, $korean in Korean"
twice=$(grep '^-- ' packaging/catalog/nodewhy.catalog | sort | uniq -d)
t 'no id stands for two things' "$([ -z "$twice" ]; echo $?)" "$twice"

listed=$(LC_ALL=C journalctl --root="$d" --list-catalog 2>&1 | grep -c ' nodewhy: ')
t 'all are listed' "$([ "$listed" = "$english" ]; echo $?)" "$listed of $english"
id=$(sed -n 's/^-- //p' packaging/catalog/nodewhy.catalog | head -n 1)
out=$(LC_ALL=C journalctl --root="$d" --dump-catalog "$id" 2>&1)
t 'an entry shows its text' "$(printf '%s' "$out" | grep -q '^Support: man:nodewhy-findings(7)'; echo $?)" "$out"
long=$(LC_ALL=C.UTF-8 awk 'length > 700' packaging/catalog/*.catalog)
t 'no paragraph is a wall' "$([ -z "$long" ]; echo $?)" "$long"
echo "1..$n"
exit $bad
