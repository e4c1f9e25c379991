# SPDX-License-Identifier: Apache-2.0
"""Test Anything Protocol, as tests/tap.h prints it."""

import sys


class Tap:
    def __init__(self):
        self.n = self.bad = 0

    def ok(self, good, name, *notes):
        self.n += 1
        self.bad += not good
        print("%sok %d - %s" % ("" if good else "not ", self.n, name))
        if not good:
            for note in notes:
                for line in str(note).splitlines() or [""]:
                    print("#   " + line)
        sys.stdout.flush()
        return good

    def equal(self, got, want, name):
        return self.ok(got == want, name, "got  %r" % (got,), "want %r" % (want,))

    def skip(self, name, why):
        self.n += 1
        print("ok %d - %s # SKIP %s" % (self.n, name, why))

    def done(self):
        print("1..%d" % self.n)
        return 1 if self.bad else 0
