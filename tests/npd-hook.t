#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The hook against whatever may lie where the condition file should be, under each shell that is here.
d=$(mktemp -d) || exit 1
trap 'rm -rf "$d"' EXIT
mkdir "$d/conditions"
hook=packaging/npd/nodewhy-condition
f=$d/conditions/DnsProblem
n=0
bad=0

# try NAME EXPECTED-EXIT EXPECTED-PATTERN [TYPE...]: runs the hook on what stands in $f
try() {
	name=$1 want=$2 pattern=$3
	shift 3
	[ $# -gt 0 ] || set -- DnsProblem
	n=$((n + 1))
	# $shell may be two words.
	# shellcheck disable=SC2086
	out=$(NODEWHY_DIR=$d NODEWHY_UPTIME=$d/uptime timeout 10 $shell "$hook" "$@" 2>"$d/err" </dev/null)
	rc=$?
	good=1
	[ "$rc" = "$want" ] || good=0
	# The pattern is one on purpose.
	# shellcheck disable=SC2254
	case $out in $pattern) ;; *) good=0 ;; esac
	[ "$(printf %s "$out" | LC_ALL=C wc -c)" -le 80 ] || good=0
	[ "$(printf %s "$out" | LC_ALL=C tr -d '\040-\176' | wc -c)" = 0 ] || good=0
	[ -s "$d/err" ] && good=0
	if [ $good = 1 ]; then
		echo "ok $n - $shell: $name"
	else
		bad=1
		echo "not ok $n - $shell: $name"
		echo "# exit code $rc, wanted $want; output: $out"
		sed 's/^/# /' "$d/err"
	fi
}

file() { # FORMAT: writes the condition file
	rm -rf "$f"
	# shellcheck disable=SC2059
	printf "$1" >"$f"
}

long=$(printf %080d 0)
for shell in sh dash bash 'busybox sh'; do
	if ! command -v "${shell%% *}" >/dev/null; then
		n=$((n + 1))
		echo "ok $n - $shell # SKIP not installed"
		continue
	fi
	echo '1000.25 3000.00' >"$d/uptime"
	file '0\nno problem\n1090\n' && try 'no problem' 0 'no problem'
	file '1\nResolverUnreachable: 10.0.0.2 no answer\n1090\n' && try 'a problem' 1 'ResolverUnreachable: 10.0.0.2 no answer'
	file '2\ncannot tell: probes did not run\n1090\n' && try 'cannot tell' 2 'cannot tell: probes did not run'
	file '0\nno problem\n1000\n' && try 'the last second counts' 0 'no problem'
	file '0\nno problem\n999\n' && try 'stale' 2 '*1 s out of date*'
	file '1\nOld: news\n10\n' && try 'a stale problem is no problem' 2 '*990 s out of date*'
	file '0\n'"$long"'\n1090\n' && try '80 bytes fit' 0 "$long"
	file '0\n'"$long"'0\n1090\n' && try '81 bytes are malformed' 2 '*malformed*'
	rm -f "$f" && try 'missing' 2 '*is nodewhy running*'
	file '' && try 'empty' 2 '*not whole*'
	file '1\n' && try 'one line' 2 '*not whole*'
	file '1\nResolverUnreachable: x\n' && try 'two lines' 2 '*not whole*'
	file '0\nno problem\n1090' && try 'no newline at the end' 2 '*'
	file '0\nno problem\n1090\nmore\n' && try 'four lines' 2 '*malformed*'
	file '0\r\nno problem\r\n1090\r\n' && try 'CRLF' 0 'no problem'
	file '7\nno problem\n1090\n' && try 'an unknown state' 2 '*malformed*'
	file '\nno problem\n1090\n' && try 'an empty state' 2 '*malformed*'
	file '0\n\n1090\n' && try 'an empty message' 2 '*malformed*'
	file '1\n90%% used\n1090\n' && try 'a percent sign' 2 '*malformed*'
	file '1\ncaf\303\251\n1090\n' && try 'no ASCII' 2 '*malformed*'
	file '1\ntab\there\n1090\n' && try 'a control character' 2 '*malformed*'
	file '0\nno problem\n\n' && try 'an empty time' 2 '*'
	file '0\nno problem\n1e9\n' && try 'a time that is no number' 2 '*malformed*'
	file '0\nno problem\n-5\n' && try 'a negative time' 2 '*malformed*'
	file '0\nno problem\n99999999999999999999999\n' && try 'a time beyond any number' 2 '*malformed*'
	file '0\nno problem\n0999\n' && try 'a leading zero' 2 '*malformed*'
	# shellcheck disable=SC2016
	file '1\nQuoted: $(reboot) `id` * "x"\n1090\n' && try 'nothing is expanded' 1 'Quoted: $(reboot) `id` [*] "x"'
	head -c 5000000 /dev/urandom >"$f" && try 'binary' 2 '*'
	rm -f "$f" && truncate -s 100000000 "$f" && try 'huge and without a newline' 2 '*'
	{ printf '0\nno problem\n1090\n' && yes; } 2>/dev/null | head -c 5000000 >"$f"
	try 'huge with a good head' 2 '*malformed*'
	rm -f "$f" && mkdir "$f" && try 'a directory' 2 '*cannot read*'
	rmdir "$f" && mkfifo "$f" && try 'a pipe that nobody writes' 2 '*cannot read*'
	rm -f "$f" && ln -s nowhere "$f" && try 'a dangling link' 2 '*is nodewhy running*'
	file '0\nno problem\n1090\n'
	rm -f "$d/uptime" && try 'no uptime' 2 '*uptime*'
	echo nonsense >"$d/uptime" && try 'an uptime that is none' 2 '*uptime*'
	echo '12 1' >"$d/uptime" && try 'an uptime without a fraction' 0 'no problem'
	echo '1000.25 3000.00' >"$d/uptime"
	try 'an empty type' 2 '*letters only*' ''
	try 'a type with a path' 2 '*letters only*' ../conditions/DnsProblem
	try 'two types' 2 '*usage*' DnsProblem CniProblem
	if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
		chmod 000 "$f"
		chmod 755 "$d" "$d/conditions"
		was=$shell
		shell="setpriv --reuid=65534 --clear-groups --bounding-set=-all --inh-caps=-all $was"
		try 'unreadable' 2 '*cannot read*'
		shell=$was
	fi
done
echo "1..$n"
exit $bad
