# SPDX-License-Identifier: Apache-2.0
"""What makes a method of World a fault."""

import functools


def fault(method):
    """A fault: what the method returns (a function, or None) heals it, at once or by World.heal()."""

    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        back = method(self, *args, **kwargs)

        def undo():
            if undo in self._undo:
                self._undo.remove(undo)
                if back:
                    back()

        self._undo.append(undo)
        return undo

    wrapper.is_fault = True
    return wrapper
