# SPDX-License-Identifier: Apache-2.0
"""Programs that are Go modules, built once below build/: the real counterparts of tests. The module proxy gives them,
and the Go that they want."""

import dataclasses
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
import time


class NotHere(Exception):
    """There is nothing to test with, and why."""


def _go(*argv, fails="", **options):
    """What go prints. fails: why there is nothing to test with then; without it, a failure is one of the test."""
    r = subprocess.run(["nice", *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if r.returncode != 0:
        last = " ".join((r.stderr.strip() or r.stdout.strip()).splitlines()[-1:])
        raise NotHere(f"{fails}: {last}") if fails else RuntimeError(f"{argv}: {r.stderr[-3000:]}")
    return r.stdout


def _download(program, module, env, cwd):
    return json.loads(_go(program, "mod", "download", "-json", module, fails="no module proxy", env=env, cwd=cwd))


def _toolchain(wanted, env, cwd):
    """Go before 1.21 does not fetch the Go that a module asks for, but can fetch it as the module that it is. It is then
    made ready as a newer go would, and env for it."""
    arch = _go("go", "env", "GOARCH", env=env).strip()
    d = _download("go", f"golang.org/toolchain@v0.0.1-go{wanted}.linux-{arch}", dict(env, GOFLAGS=""), cwd)["Dir"]
    for folder, _, names in os.walk(d):
        for name in names:
            path = os.path.join(folder, name)
            if name == "_go.mod":
                shutil.copy(path, os.path.join(folder, "go.mod"))
            elif os.path.relpath(folder, d).startswith(("bin", "pkg/tool")):
                os.chmod(path, 0o755)
    env["GOROOT"] = d
    return d + "/bin/go"


@dataclasses.dataclass(frozen=True)
class Program:
    module: str
    version: str
    sum: str        # of the module's files, as go.sum has it
    package: str    # "./cmd/NAME"
    tags: str = ""
    cgo: bool = False

    def build(self, keep):
        """The program's path in the directory keep. NotHere: go or the module proxy is not to be had."""
        path = os.path.join(os.path.abspath(keep), f"{self.module.rpartition('/')[2]}-{self.version}")
        os.makedirs(keep, exist_ok=True)
        with open(os.path.join(keep, "lock"), "w") as lock:     # two tests may want it at once
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(path):
                self._build(path)
        return path

    def _build(self, path):
        if not shutil.which("go"):
            raise NotHere("Go is not installed")
        began = time.monotonic()
        env = dict(os.environ, GOTOOLCHAIN="auto", CGO_ENABLED=str(int(self.cgo)), GOFLAGS="-buildvcs=false -trimpath -mod=readonly")
        with tempfile.TemporaryDirectory() as away:
            had = _download("go", f"{self.module}@{self.version}", dict(env, GOFLAGS=""), away)
            if had["Sum"] != self.sum:
                raise RuntimeError(f"{self.module}@{self.version} is another: {had['Sum']}")
            with open(had["Dir"] + "/go.mod") as f:
                wanted = re.search(r"(?m)^go (\S+)", f.read())[1]
            program = "go"
            if tuple(map(int, re.search(r"go(\d+)\.(\d+)", _go("go", "version", env=env, cwd=away)).groups())) < (1, 21):
                program = _toolchain(wanted, env, away)
        tags = ["-tags", self.tags] if self.tags else []
        _go(program, "list", "-deps", *tags, self.package, fails="no module proxy", env=env, cwd=had["Dir"])
        _go(program, "build", *tags, "-o", path + ".new", self.package, env=env, cwd=had["Dir"])
        os.rename(path + ".new", path)
        print(f"# built in {time.monotonic() - began:.0f} s")
