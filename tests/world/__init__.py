# SPDX-License-Identifier: Apache-2.0
"""The simulated node: `from world import World`."""

from .world import World, faults, reap  # noqa: F401
