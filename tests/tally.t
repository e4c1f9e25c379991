#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The tally is what says that all is well, so it must be hard to deceive.
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
n=0
bad=0

# try NAME EXPECTED-LAST-LINE EXPECTED-EXIT SCRIPT
try() {
	n=$((n + 1))
	printf '#!/bin/sh\n%s\n' "$4" >"$d/t"
	chmod +x "$d/t"
	out=$(cd "$d" && TALLY_TIMEOUT=1 python3 "$tally" ./t 2>&1)
	rc=$?
	last=$(printf '%s\n' "$out" | tail -n 1)
	if [ "$last" = "$2" ] && [ "$rc" = "$3" ]; then
		echo "ok $n - $1"
	else
		bad=1
		echo "not ok $n - $1"
		printf '%s\n' "exit code $rc" "$out" | sed 's/^/# /'
	fi
}

tally=$(pwd)/tests/tally
try 'passes are counted' '2 passed, 0 failed, 0 skipped' 0 'echo ok 1 - a; echo ok 2 - b; echo 1..2'
try 'a failure fails' '1 passed, 1 failed, 0 skipped' 1 'echo ok 1; echo not ok 2 - b; echo 1..2; exit 1'
try 'a failure fails even at exit code 0' '1 passed, 1 failed, 0 skipped' 1 'echo ok 1; echo not ok 2; echo 1..2'
try 'skips are no passes' '1 passed, 0 failed, 1 skipped' 0 'echo ok 1; echo "ok 2 - b # SKIP no root"; echo 1..2'
try 'a whole skip' '0 passed, 0 failed, 1 skipped' 0 'echo "1..0 # SKIP not here"'
try 'a missing test fails' '1 passed, 1 failed, 0 skipped' 1 'echo 1..2; echo ok 1'
try 'silence fails' '0 passed, 1 failed, 0 skipped' 1 'true'
try 'death fails' '2 passed, 1 failed, 0 skipped' 1 'echo ok 1; echo ok 2; echo 1..2; kill -9 $$'
try 'a bad exit code fails' '1 passed, 1 failed, 0 skipped' 1 'echo ok 1; echo 1..1; exit 3'
try 'a hang fails' '1 passed, 1 failed, 0 skipped' 1 'echo ok 1; exec sleep 30'
try 'not ok with TODO fails' '0 passed, 1 failed, 0 skipped' 1 'echo "not ok 1 # TODO later"; echo 1..1'
echo "1..$n"
exit $bad
