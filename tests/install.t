#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make install` puts where, and that it depends on nothing of the build machine.
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/tap.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL B
out=$(make --no-print-directory SAN= install DESTDIR="$d" PREFIX=/usr 2>&1)
t 'make install' $? "$out"
for f in usr/bin/nodewhy usr/share/nodewhy/eni-limits.tsv usr/share/nodewhy/network-cards.tsv \
	usr/share/nodewhy/npd/nodewhy-condition usr/share/nodewhy/npd/nodewhy-condition-monitor.json \
	usr/share/nodewhy/npd/nodewhy-journal-monitor.json usr/lib/systemd/system/nodewhy.service \
	usr/lib/systemd/system-preset/90-nodewhy.preset usr/lib/systemd/catalog/nodewhy.catalog \
	usr/lib/systemd/catalog/nodewhy.ko.catalog usr/lib/sysusers.d/nodewhy.conf usr/lib/tmpfiles.d/nodewhy.conf \
	usr/share/man/man1/nodewhy.1 usr/share/man/man5/nodewhy.conf.5 usr/share/man/man7/nodewhy-findings.7 \
	usr/share/man/man8/nodewhy.8 usr/share/bash-completion/completions/nodewhy usr/share/licenses/nodewhy/LICENSE; do
	[ -s "$d/$f" ]
	t "/$f" $?
done
extra=$(find "$d" -type f | wc -l)
t 'and nothing else' "$([ "$extra" = 18 ]; echo $?)" "$(find "$d" -type f)"
open=$(find "$d" -perm /022 ! -type l)
t 'nobody else may write to it' "$([ -z "$open" ]; echo $?)" "$open"
out=$("$d/usr/bin/nodewhy" version 2>&1)
t 'the installed program runs' $? "$out"
here=$(grep -rlF "$(pwd)" "$d/usr/share" "$d/usr/lib")
t 'no file names the build directory' "$([ -z "$here" ]; echo $?)" "$here"
out=$(make --no-print-directory SAN= install DESTDIR="$d/local" PREFIX=/usr/local 2>&1)
t 'make install PREFIX=/usr/local' $? "$out"
t 'whose unit starts its own program' "$(grep -q '^ExecStart=/usr/local/bin/nodewhy run$' "$d/local/usr/local/lib/systemd/system/nodewhy.service"; echo $?)"

# shellcheck disable=SC2016
words=$(bash -c 'source "$1"; COMP_WORDS=(nodewhy explain Imds); COMP_CWORD=2; _nodewhy; echo "${COMPREPLY[*]}"' bash "$d/usr/share/bash-completion/completions/nodewhy" 2>&1)
t 'completion knows the codes' "$(printf '%s' "$words" | grep -q '^ImdsUnreachable .*ImdsSlow'; echo $?)" "$words"
# shellcheck disable=SC2016
words=$(bash -c 'source "$1"; COMP_WORDS=(nodewhy check --only imds,d); COMP_CWORD=3; _nodewhy; echo "${COMPREPLY[*]}"' bash "$d/usr/share/bash-completion/completions/nodewhy" 2>&1)
t 'and completes lists of probes' "$([ "$words" = imds,dns ]; echo $?)" "$words"

if command -v mandoc >/dev/null; then
	for m in "$d"/usr/share/man/man?/*; do
		out=$(mandoc -T lint -W warning "$m" 2>&1)
		t "mandoc has nothing to say of $(basename "$m")" $? "$out"
	done
fi
echo "1..$n"
exit $bad
