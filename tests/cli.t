#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command line as docs and monitors rely on it: exit codes, one line for what is wrong, help, colours, width. Reads no
# network: what needs a node is in tests/scenarios.
nodewhy=${NODEWHY:-${B:-build/release}/nodewhy}
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
mkdir -p "$d/root/proc/sys/kernel/random" "$d/root/run/nodewhy"
# shellcheck source=tests/tap.sh
. "$(dirname "$0")/tap.sh"
refused() { # CODE ARGUMENT...: that code, nothing on stdout, one line on stderr
	want=$1
	shift
	"$nodewhy" "$@" >"$d/out" 2>"$d/err"
	got=$?
	[ "$got" = "$want" ] && [ ! -s "$d/out" ] && [ "$(wc -l <"$d/err")" = 1 ] && grep -q '^nodewhy: ' "$d/err"
	t "nodewhy $* is refused with $want" $? "exit code $got; $(cat "$d/out" "$d/err")"
}

refused 64
refused 64 bogus
refused 64 --bogus
refused 64 check --bogus
refused 64 check -x
refused 64 check --json=yes
refused 64 check more
refused 64 check --root
refused 64 check --root "$d/nowhere"
refused 64 check --config "$d/nowhere"
refused 64 check --only bogus
refused 64 check --only ''
refused 64 check --timeout
refused 64 check --timeout soon
refused 64 check --timeout 0
refused 64 check --timeout -1
refused 64 check --timeout nan
refused 64 explain
refused 64 explain Bogus
refused 64 explain ImdsSlow ImdsDisabled
refused 64 condition
refused 64 condition Bogus
refused 64 replay
refused 3 replay "$d/nowhere"
refused 3 replay /dev/null
refused 3 status --root "$d/root"
printf '{"schema": "nodewhy.status/2"}' >"$d/root/run/nodewhy/status.json"
refused 3 status --root "$d/root"
head -c 4096 /dev/zero >"$d/root/run/nodewhy/status.json"
refused 3 status --root "$d/root"
"$nodewhy" check -xh >"$d/out" 2>&1
t 'an unknown letter is the one that is named' "$(grep -q 'option -x ' "$d/out"; echo $?)" "$(cat "$d/out")"

for a in --help 'check --help' version findings 'findings --json' 'explain ImdsSlow'; do
	# shellcheck disable=SC2086
	out=$("$nodewhy" $a 2>"$d/err")
	code=$?
	t "nodewhy $a" "$([ "$code" = 0 ] && [ -n "$out" ] && [ ! -s "$d/err" ]; echo $?)" "$out"
	if [ -w /dev/full ]; then
		# shellcheck disable=SC2086
		"$nodewhy" $a >/dev/full 2>"$d/err"
		t "nodewhy $a on a full disk is a failure of ours" "$([ $? = 70 ]; echo $?)" "$(cat "$d/err")"
	fi
done
"$nodewhy" replay tests/fixtures/imds-disabled/capture.json >/dev/full 2>"$d/err"
t 'and so is a verdict' "$([ $? = 70 ]; echo $?)" "$(cat "$d/err")"
help=$("$nodewhy" --help)
for v in run check status explain findings replay condition version; do
	printf '%s' "$help" | grep -q "^  $v "
	t "--help names $v" $? "$help"
done
out=$("$nodewhy" replay - <tests/fixtures/imds-disabled/capture.json)
t 'a fixture from stdin' "$([ $? = 2 ] && printf '%s' "$out" | grep -q '^BROKEN  ImdsDisabled'; echo $?)" "$out"

# Every text a terminal gets, at 80 columns. Wide characters do not occur.
wide() { LC_ALL=C.UTF-8 awk 'length($0) > 80'; }
{
	"$nodewhy" --help
	"$nodewhy" findings
	for c in $("$nodewhy" findings | awk 'NR > 1 { print $1 }'); do "$nodewhy" explain "$c"; done
	for f in tests/fixtures/*/capture.json; do "$nodewhy" replay "$f"; done
} >"$d/all"
out=$(wide <"$d/all")
t 'nothing is wider than 80 columns' "$([ -z "$out" ]; echo $?)" "$out"
t 'and nothing is coloured where there is no terminal' "$(! grep -q "$(printf '\033')" "$d/all"; echo $?)"
mute=
for c in $(python3 -c 'import json, subprocess, sys
print(*[f["code"] for f in json.loads(subprocess.check_output([sys.argv[1], "findings", "--json"])) if f["raised_by"]])' "$nodewhy"); do
	"$nodewhy" explain "$c" | grep -q '^What it means$' || mute="$mute $c"
done
t 'explain says what each code means that a probe raises' "$([ -z "$mute" ]; echo $?)" "$mute"

if command -v script >/dev/null; then
	# shellcheck disable=SC2317
	colours() { # OPTION...: the number of lines with a colour, on a terminal
		script -qec "$nodewhy replay $* tests/fixtures/imds-disabled/capture.json" /dev/null </dev/null | grep -c "$(printf '\033')"
	}
	t 'a terminal gets colours' "$([ "$(unset NO_COLOR; colours)" -gt 0 ]; echo $?)"
	t 'not with --no-color' "$([ "$(unset NO_COLOR; colours --no-color)" = 0 ]; echo $?)"
	t 'not with NO_COLOR' "$([ "$(NO_COLOR=1; export NO_COLOR; colours)" = 0 ]; echo $?)"
	t 'but with an empty one' "$([ "$(NO_COLOR=; export NO_COLOR; colours)" -gt 0 ]; echo $?)"
else
	n=$((n + 1))
	echo "ok $n - colours # SKIP script(1) is not installed"
fi
echo "1..$n"
exit $bad
