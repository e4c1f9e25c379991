#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""EC2's API by another hand: moto's server answers the DescribeSubnets and DescribeInstanceTypes of the real binary in
the simulated node, and its data of instance types, which is EC2's own, is compared with our tables. moto comes from
PyPI into build/sdk-venv, once."""
import gzip
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from world import World  # noqa: E402
from world.sdk import botocore  # noqa: E402
from world.tap import Tap  # noqa: E402

ROOT = os.path.dirname(HERE)
MOTO = "moto[server]==5.1.22"
PORT = 5555     # of the namespace's own loopback
NEW = "m99.large"

SERVER = r"""
import sys
from moto.ec2.models import instance_types
import moto.server
types = instance_types.INSTANCE_TYPES
types[sys.argv[2]] = dict(types["m5.xlarge"], InstanceType=sys.argv[2])
instance_types.InstanceTypeBackend.instance_types.append(instance_types.InstanceType(sys.argv[2]))
moto.server.main(["-H", "127.0.0.1", "-p", sys.argv[1]])
"""
# Makes a /28 and takes of its 11 addresses all but argv[2]; prints its id.
SUBNET = r"""
import sys, boto3
ec2 = boto3.client("ec2", region_name="us-west-2", endpoint_url="http://127.0.0.1:" + sys.argv[1],
                   aws_access_key_id="x", aws_secret_access_key="x")
vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/28")["Subnet"]["SubnetId"]
for _ in range(11 - int(sys.argv[2])):
    ec2.create_network_interface(SubnetId=subnet)
print(subnet, ec2.describe_subnets(SubnetIds=[subnet])["Subnets"][0]["AvailableIpAddressCount"])
"""


# ---- the tables ----

def table(name):
    with open(os.path.join(ROOT, "packaging/data", name)) as f:
        rows = [x.rstrip("\n").split("\t") for x in f if x.strip() and not x.startswith("#")]
    return [dict(zip(rows[0], x)) for x in rows[1:]]


def ours():
    """type -> (ENIs of the default card, addresses an ENI, default card, hypervisor, bare metal, ENIs by card)"""
    cards = {}
    for x in table("network-cards.tsv"):
        cards.setdefault(x["instance_type"], {})[int(x["card_index"])] = int(x["max_enis"])
    return {x["instance_type"]: {
        "max_enis": int(x["max_enis"]), "ipv4_per_eni": int(x["ipv4_per_eni"]), "network_cards": int(x["network_cards"]),
        "default_network_card_index": int(x["default_network_card_index"]), "hypervisor": x["hypervisor"],
        "bare_metal": x["bare_metal"], "cards": cards.get(x["instance_type"], {0: int(x["max_enis"])})}
        for x in table("eni-limits.tsv")}


def theirs(python):
    code = "import moto, os; print(os.path.join(os.path.dirname(moto.__file__), 'ec2/resources/instance_types.json.gz'))"
    path = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    with gzip.open(path) if os.path.exists(path) else open(path[:-3]) as f:
        data = json.load(f)
    out = {}
    for name, x in data.items():
        n = x["NetworkInfo"]
        default = n.get("DefaultNetworkCardIndex", 0)
        cards = {c["NetworkCardIndex"]: c["MaximumNetworkInterfaces"] for c in n.get("NetworkCards", [])}
        cards = cards or {0: n["MaximumNetworkInterfaces"]}
        out[name] = {"max_enis": cards.get(default), "ipv4_per_eni": n["Ipv4AddressesPerInterface"],
                     "network_cards": len(cards), "default_network_card_index": default,
                     "hypervisor": x.get("Hypervisor", "unknown"), "bare_metal": str(x["BareMetal"]).lower(), "cards": cards}
    return out


def argued():
    """(type, column) of the table of differences in docs/LIMITS.md."""
    with open(os.path.join(ROOT, "docs/LIMITS.md")) as f:
        return {m for m in re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", f.read(), re.M)}


def compare(t, python):
    a, b = ours(), theirs(python)
    both = sorted(set(a) & set(b))
    t.ok(len(both) > 1000, "over a thousand types are known to both (%d)" % len(both), "%d, %d" % (len(a), len(b)))
    t.equal(sorted(set(b) - set(a)), [], "every type of EC2's is in our table")
    found = {(name, k): (a[name][k], b[name][k]) for name in both for k in a[name] if a[name][k] != b[name][k]}
    reasons = argued()
    t.ok(set(found) <= reasons, "the tables agree, but where docs/LIMITS.md says why not",
         {k: "ours %s, EC2's %s" % v for k, v in found.items() if k not in reasons})
    t.ok(reasons <= set(found), "and it argues no difference that is none", reasons - set(found))
    nitro = {name for name in both if b[name]["hypervisor"] == "nitro" or b[name]["bare_metal"] == "true"}
    mine = {name for name in both if a[name]["hypervisor"] == "nitro" or a[name]["bare_metal"] == "true"}
    t.equal(sorted(nitro ^ mine), [], "both say of the same types that they carry prefixes")


# ---- the server ----

class Moto:
    def __init__(self, w, python):
        self.w, self.python = w, python
        self.log = open(w.dir + "/moto.log", "w+")
        self.process = subprocess.Popen(w.node.argv([python, "-c", SERVER, str(PORT), NEW]), stdout=self.log,
                                        stderr=subprocess.STDOUT, env=w.environment(PYTHONUNBUFFERED="1"))

    def started(self, limit=120.0):
        end = time.monotonic() + limit
        while time.monotonic() < end and self.process.poll() is None:
            if "Running on http" in self.said():
                return True
            time.sleep(0.1)
        return False

    def said(self):
        self.log.flush()
        with open(self.log.name) as f:
            return f.read()

    def subnet(self, free):
        p = self.w.run([self.python, "-c", SUBNET, str(PORT), str(free)], timeout=120)
        return p.stdout.split() if p.returncode == 0 else [p.stderr[-500:], "none"]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def subnet_of(w, name):
    w.enis[-1].subnet_id = w.enis[0].subnet_id = name
    w.imds.tree = w._metadata()


def look(report, name):
    return [(p["outcome"], p["detail"]) for p in report["probes"] if p["name"] == name]


def finding(report, code):
    return [f for f in report["findings"] if f["code"] == code]


def answered(t, python):
    env = {"AWS_ENDPOINT_URL_EC2": "http://127.0.0.1:%d" % PORT}
    with World(enis=2, pods=18) as w:
        moto = Moto(w, python)
        try:
            if not moto.started():
                t.skip("moto answers DescribeSubnets", "its server does not start: " + moto.said()[-200:].replace("\n", " "))
                return
            report, code = w.check(env=env, timeout=60)
            t.ok(code == 0 and "POST" not in moto.said(), "a healthy node calls nothing", (code, moto.said()[-500:]))
            name, free = moto.subnet(0)
            if not t.equal(free, "0", "moto has a full subnet"):
                return
            w.subnet_exhausted()
            subnet_of(w, name)
            report, code = w.check(env=env, timeout=60)
            f = finding(report, "SubnetExhausted")
            t.ok(code == 1 and len(f) == 1 and f[0]["summary"].startswith("%s (10.0.1.0/28): 0 of 11 addresses free" % name),
                 "DescribeSubnets of moto confirms SubnetExhausted with numbers", (f, look(report, "subnet")))
            t.ok("POST / HTTP" in moto.said(), "it was asked", moto.said()[-500:])
            name, free = moto.subnet(9)
            subnet_of(w, name)
            report, code = w.check(env=env, timeout=60)
            got = look(report, "subnet")
            t.ok(got == [("ok", "%s 10.0.1.0/28: %s of 11 addresses free" % (name, free))], "and counts what is free", got)
            subnet_of(w, "subnet-0123456789abcdef0")
            report, code = w.check(env=env, timeout=60)
            got = look(report, "subnet")
            t.ok(len(got) == 1 and got[0][0] == "unknown" and "InvalidSubnetID.NotFound" in got[0][1],
                 "a subnet that is not known to it: cannot tell", got)
        finally:
            moto.stop()


def described(t, python):
    env = {"AWS_ENDPOINT_URL_EC2": "http://127.0.0.1:%d" % PORT}
    with World() as w:
        moto = Moto(w, python)
        try:
            if not moto.started():
                t.skip("moto answers DescribeInstanceTypes", "its server does not start")
                return
            w.unknown_type(NEW)
            d = w.daemon(env=env)
            try:
                n = d.wait_status("limits of EC2", lambda s: s["network"]["limits_source"] == "EC2", timeout=60)["network"]
            except TimeoutError as e:
                n = {"why": str(e)}
            d.kill()
            t.equal({k: n.get(k) for k in ("enis_max", "ipv4_per_eni", "ips_max", "why")},
                    {"enis_max": 4, "ipv4_per_eni": 15, "ips_max": 56, "why": None},
                    "DescribeInstanceTypes of moto gives the limits of a type that no table has")
            w.unknown_type("m98.large")
            report, code = w.check(env=env, timeout=60)
            got = look(report, "subnet")
            t.ok(code == 0 and finding(report, "LimitsUnknown") and got[0][0] == "unknown", "EC2 does not know it either", got)
        finally:
            moto.stop()


def main():
    t = Tap()
    python, why = botocore("moto.server", MOTO)
    if python is None:
        t.skip("moto answers, and its data is compared", why)
        return t.done()
    compare(t, python)
    if os.geteuid() != 0:
        t.skip("moto answers DescribeSubnets and DescribeInstanceTypes", "needs root for network namespaces")
        return t.done()
    answered(t, python)
    described(t, python)
    return t.done()


if __name__ == "__main__":
    sys.exit(main())
