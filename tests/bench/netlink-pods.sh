#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# netlink-pods.sh PROGRAM [PODS...]: for each number of pods, a fresh network namespace with the links,
# rules and routes that the VPC CNI makes for them, and PROGRAM (the bench of tests/bench/netlink.c) in it.
# Needs no privilege beyond a user namespace, and as root not even that (a chroot refuses it). With IPV6=1 each link
# has a link-local address and its route too.
set -eu
program=$1
shift
[ $# -gt 0 ] || set -- 10 100 1000
user='--user --map-root-user'
[ "$(id -u)" != 0 ] || user=

batch() { # a pod: half a veth pair, its host route, and two rules as a pod of a secondary ENI has
	awk -v pods="$1" 'BEGIN {
		print "link add ens5 type veth peer name vp5"; print "link set ens5 up"; print "link set vp5 up"
		print "address add 10.0.0.5/16 dev ens5"
		print "route add default via 10.0.0.1 dev ens5"; print "route add default via 10.0.0.1 dev ens5 table 2"
		for (i = 0; i < pods; i++) {
			ip = sprintf("10.1.%d.%d", i / 250, i % 250 + 1)
			# two ends in one namespace are two links: so many as pods
			if (i % 2 == 0) {
				printf "link add eni%011x type veth peer name eni%011x\n", i, i + 1
				printf "link set eni%011x up\nlink set eni%011x up\n", i, i + 1
			}
			routes = routes sprintf("route add %s/32 dev eni%011x scope link\n", ip, i)
			rules = rules sprintf("rule add to %s/32 lookup main priority 512\nrule add from %s/32 lookup 2 priority 1536\n", ip, ip)
		}
		printf "%s%s", routes, rules
	}'
}

for pods; do
	# shellcheck disable=SC2016,SC2086 # the inner shell expands it; the options are split on purpose
	batch "$pods" | unshare $user --net -- sh -c '
		[ -n "${IPV6-}" ] || echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6; ip link set lo up; ip -batch - && printf "pods=%d " "$2" && "$1"' sh "$program" "$pods"
done
