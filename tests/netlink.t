#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Follows changes of links, rules and routes in a network namespace of its own; no privilege.
[ -n "$INSIDE" ] || INSIDE=1 exec unshare --user --map-root-user --net -- "$0" "$@"
ip link set lo up
exec "$B/tests/unit/netlink" changes
