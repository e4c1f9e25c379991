#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A node falls ill and nodewhy says why: tests/demo.sh [metadata|dns|endpoint|cni|route]
# Needs root (network namespaces), touches nothing of this machine, leaves nothing behind.
exec "${PYTHON:-python3}" "$(dirname "$0")/world/demo.py" "$@"
