#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Honesty: the AWS SDK's own metadata client (botocore, unmodified) reads the simulated service.

botocore comes from PyPI into build/sdk-venv, once.
"""

import fcntl
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from world import World  # noqa: E402
from world.tap import Tap  # noqa: E402
from world.world import IMDS6, REPOSITORY  # noqa: E402

BOTOCORE = "botocore==1.40.55"
VENV = os.path.join(REPOSITORY, "build/sdk-venv")
CLIENT = r"""
import json, sys
from botocore.utils import IMDSFetcher, InstanceMetadataFetcher, InstanceMetadataRegionFetcher
config = json.loads(sys.argv[1])
out = {}
found = InstanceMetadataFetcher(timeout=1, num_attempts=1, config=config).retrieve_iam_role_credentials()
out["credentials"] = {k: str(v) for k, v in found.items()}
out["region"] = InstanceMetadataRegionFetcher(timeout=1, num_attempts=1, config=config).retrieve_region()
class Any(IMDSFetcher):
    def get(self, path):
        token = self._fetch_metadata_token()
        r = self._get_request(path, lambda r: False, token)
        return [r.status_code, r.text]
any = Any(timeout=1, num_attempts=1, config=config)
for path in config.get("paths", ()):
    out[path] = any.get(path)
print(json.dumps(out))
"""


def botocore(module="botocore", *more):
    """The venv's python with that module, installed with `more` if need be, or (None, why not)."""
    python = os.path.join(VENV, "bin/python")
    have = [python, "-c", "import " + module]
    os.makedirs(os.path.dirname(VENV), exist_ok=True)
    with open(VENV + ".lock", "w") as lock:  # two tests may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(python) and subprocess.run(have, capture_output=True).returncode == 0:
            return python, None
        if not os.path.exists(python):
            p = subprocess.run([sys.executable, "-m", "venv", VENV], capture_output=True, text=True)
            if p.returncode != 0:
                return None, "no venv: " + (p.stderr or p.stdout).strip()[-200:].replace("\n", " ")
        p = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                            "--retries", "1", "--timeout", "10", BOTOCORE, *more],
                           capture_output=True, text=True)
        if p.returncode != 0:
            return None, "PyPI: " + p.stderr.strip()[-200:].replace("\n", " ")
        return python, None


def main():
    tap = Tap()
    if os.geteuid() != 0:
        tap.skip("botocore reads the simulated metadata", "needs root for network namespaces")
        return tap.done()
    python, why = botocore()
    if python is None:
        tap.skip("botocore reads the simulated metadata", why)
        return tap.done()

    def client(w, **config):
        p = w.run([python, "-c", CLIENT, json.dumps(config)], timeout=60)
        return json.loads(p.stdout) if p.returncode == 0 else p.stderr

    mac = "latest/meta-data/network/interfaces/macs/"
    with World(enis=2, pods=3, imds_v6=True) as w:
        one = w.enis[1]
        paths = ["latest/meta-data/instance-id", mac, mac + one.mac + "/local-ipv4s",
                 mac + one.mac + "/interface-id", mac + one.mac + "/ipv4-prefix",
                 "latest/dynamic/instance-identity/document"]
        got = client(w, paths=paths)
        if not tap.ok(isinstance(got, dict), "botocore reads the simulated metadata", got):
            return tap.done()
        c = got["credentials"]
        tap.equal((c.get("role_name"), c.get("access_key")), (w.role, "ASIAEXAMPLEEXAMPLE12"),
                  "credentials of the instance's role")
        tap.equal(got["region"], "us-west-2", "region")
        tap.equal(got[paths[0]], [200, w.instance_id], "instance id")
        tap.equal(sorted(got[mac][1].split()), sorted(e.mac + "/" for e in w.enis), "MACs")
        tap.equal(got[paths[2]][1].split()[0], one.ipv4, "primary address of the second ENI")
        tap.equal(got[paths[3]], [200, one.eni_id], "its id")
        tap.equal(got[paths[4]][0], 404, "no prefix is 404")
        tap.equal(json.loads(got[paths[5]][1])["instanceId"], w.instance_id, "identity document")
        undo = w.imds_v6_only()
        v6 = client(w, ec2_metadata_service_endpoint_mode="ipv6", paths=paths[:1])
        tap.ok(isinstance(v6, dict) and v6[paths[0]] == [200, w.instance_id],
               "the same over IPv6 (%s)" % IMDS6, v6)
        undo()
        undo = w.imds_403()
        off = client(w)
        # A disabled endpoint makes the client give up without a word: no credentials, no region.
        tap.equal(off, {"credentials": {}, "region": None}, "endpoint disabled: nothing")
        undo()
        w.imds_401_always()
        off = client(w)
        tap.ok(not isinstance(off, dict) or not off["credentials"], "tokens rejected: nothing", off)
    with World(region="cn-north-1") as w:
        got = client(w, paths=["latest/meta-data/services/domain"])
        tap.equal(isinstance(got, dict) and (got["region"], got["latest/meta-data/services/domain"]),
                  ("cn-north-1", [200, "amazonaws.com.cn"]), "another partition")
    return tap.done()


if __name__ == "__main__":
    sys.exit(main())
