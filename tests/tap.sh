# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Test Anything Protocol for the tests in sh, which include this file: t() counts, n is how many there were, bad is 1
# once one failed.
n=0
bad=0
t() { # NAME GOOD [TEXT]
	n=$((n + 1))
	if [ "$2" = 0 ]; then
		echo "ok $n - $1"
	else
		# shellcheck disable=SC2034 # the exit code of the test that includes this
		bad=1
		echo "not ok $n - $1"
		printf '%s\n' "${3-}" | sed 's/^/# /' | head -n 20
	fi
}
