#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instance metadata by another hand: amazon-ec2-metadata-mock, AWS's own, is read by the real binary in the simulated
node, whose metadata is silent; then every path that nodewhy asks for is asked of both, and they have to answer alike."""
import base64
import http.client
import json
import os
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import gobuild  # noqa: E402
from world import World  # noqa: E402
from world.tap import Tap  # noqa: E402
from world.world import IMDS4  # noqa: E402

MOCK = gobuild.Program("github.com/aws/amazon-ec2-metadata-mock", "v1.13.0",
                       "h1:XXbMS3fHfQ6+0Vthgns33/MWJHbHiysZGcvGWij7IvI=", "./cmd/ec2-metadata-mock")
PORT = 1338     # of the namespace's own loopback
NEVER = "1000000"
QUIET = ("--mock-delay-sec", NEVER, "--rebalance-delay-sec", NEVER, "--asg-termination-delay-sec", NEVER)
TOKEN = "/latest/api/token"
MACS = "/latest/meta-data/network/interfaces/macs/"

# Who the instance is: nothing of it is what the simulated metadata would say.
OTHER = {"instance-id": "i-0fedcba9876543210", "instance-type": "m5.xlarge", "ami-id": "ami-0aaaabbbbccccdddd",
         "availability-zone": "us-west-2c", "account": "444455556666", "eni": "eni-0aaaa1111bbbb2222",
         "subnet": "subnet-0cccc3333dddd4444", "role": "role-of-the-mock"}


def mock_config(w, other=None):
    """What it is to serve: the world's own metadata but for `other`."""
    tree = {k: v() if callable(v) else v for k, v in w.imds.tree.items()}
    mac, o = w.enis[0].mac, other or {}

    def leaf(path):
        return tree["meta-data/" + path]

    def eni(name):
        return leaf("network/interfaces/macs/%s/%s" % (mac, name))

    role = o.get("role", w.role)
    document = json.loads(tree["dynamic/instance-identity/document"])
    document.update({k: o[v] for k, v in (("instanceId", "instance-id"), ("instanceType", "instance-type"),
                                         ("imageId", "ami-id"), ("accountId", "account"),
                                         ("availabilityZone", "availability-zone")) if v in o})
    info = json.loads(leaf("iam/info"))
    info["InstanceProfileArn"] = info["InstanceProfileArn"].replace(w.account, o.get("account", w.account))
    values = {k: o.get(k, leaf(k)) for k in (
        "ami-id", "instance-id", "instance-type", "hostname", "local-hostname", "local-ipv4", "mac", "security-groups",
        "reservation-id", "instance-life-cycle")}
    values.update({
        "placement-availability-zone": o.get("availability-zone", w.az), "placement-region": w.region,
        "services-domain": w.domain, "services-partition": w.partition, "iam-info": info,
        "iam-security-credentials-role": role,
        "iam-security-credentials": json.loads(leaf("iam/security-credentials/" + w.role)),
        "mac-mac": mac, "mac-device-number": eni("device-number"), "mac-local-ipv4s": eni("local-ipv4s"),
        "mac-network-interface-id": o.get("eni", eni("interface-id")), "mac-subnet-id": o.get("subnet", eni("subnet-id")),
        "mac-owner-id": o.get("account", w.account), "mac-subnet-ipv4-cidr-block": eni("subnet-ipv4-cidr-block"),
        "mac-security-group-ids": eni("security-group-ids")})
    paths = {"mac-" + k: MACS + mac + "/" + v for k, v in (
        ("mac", "mac"), ("device-number", "device-number"), ("local-ipv4s", "local-ipv4s"),
        ("network-interface-id", "interface-id"), ("subnet-id", "subnet-id"), ("owner-id", "owner-id"),
        ("subnet-ipv4-cidr-block", "subnet-ipv4-cidr-block"), ("security-group-ids", "security-group-ids"))}
    # Of an interface that is not there, and of what this instance has not.
    paths.update({"mac-" + k: "" for k in (
        "ipv4-associations", "ipv6-associations", "local-hostname", "network-interface-card-index", "public-hostname",
        "public-ipv4s", "security-groups", "subnet-ipv6-cidr-blocks", "vpc-id", "vpc-ipv4-cidr-block",
        "vpc-ipv4-cidr-blocks", "vpc-ipv6-cidr-blocks")})
    paths.update({"placement-" + k: "" for k in ("group-name", "host-id", "partition-number")})
    paths["iam-security-credentials"] = "/latest/meta-data/iam/security-credentials/" + role
    return {"metadata": {"paths": paths, "values": values},
            "dynamic": {"values": {"instance-identity-document": document}},
            "userdata": {"values": {"userdata": base64.b64encode(tree["user-data"].encode()).decode()}}}


class Mock:
    def __init__(self, w, program, *options, other=None, life_cycle=None):
        self.w = w
        config = mock_config(w, other)
        if life_cycle:
            config["metadata"]["values"]["instance-life-cycle"] = life_cycle
        path = os.path.join(w.dir, "aemm.json")
        with open(path, "w") as f:
            json.dump(config, f)
        self.log = open(w.dir + "/aemm.log", "w+")
        # Its defaults and what it keeps are in $HOME.
        self.process = subprocess.Popen(w.node.argv([program, "-n", "127.0.0.1", "-p", str(PORT), "-c", path, *options]),
                                        stdout=self.log, stderr=subprocess.STDOUT, env=w.environment(HOME=w.dir))

    def __enter__(self):
        end = time.monotonic() + 30
        while not self.w.node.call(self.listens):
            if time.monotonic() > end or self.process.poll() is not None:
                raise RuntimeError("it does not start: " + self.said()[-500:])
            time.sleep(0.05)
        return self

    def __exit__(self, *exc):
        self.process.terminate()
        self.process.wait()
        self.log.close()

    @staticmethod
    def listens():
        try:
            socket.create_connection(("127.0.0.1", PORT), 1).close()
        except OSError:
            return False
        return True

    def said(self):
        with open(self.log.name) as f:
            return f.read()

    def check(self):
        return self.w.check(env={"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:%d" % PORT}, timeout=60)


def ask(w, at, method, path, **headers):
    """(status, content type without its parameters, body) of one plain request from the node."""
    def body():
        c = http.client.HTTPConnection(*at, timeout=5)
        try:
            c.request(method, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
            r = c.getresponse()
            return r.status, (r.getheader("Content-Type") or "").partition(";")[0], r.read().decode()
        finally:
            c.close()
    return w.node.call(body)


def looks(report, name, aspect=None):
    return [p for p in report["probes"] if p["name"] == name and aspect in (None, p["aspect"])]


def notices(report):
    return {f["code"]: (f["evidence"], f["summary"]) for f in report["findings"] if f["severity"] == "notice"}


# ---- what nodewhy reads of it ----

def read(t, program):
    """Version 2 only, and an instance of which nothing is announced."""
    with World() as w, Mock(w, program, "-I", *QUIET, other=OTHER) as mock:
        w.imds_drop()
        at = ("127.0.0.1", PORT)
        t.equal(ask(w, at, "GET", "/latest/meta-data/instance-id")[0], 401, "the mock answers nobody without a token")
        report, code = mock.check()
        if not t.ok(report and code == 0 and report["verdict"]["state"] == "healthy",
                    "a node whose metadata is the mock's is healthy", code, w.last_stderr, report and report["findings"]):
            return
        node, o = report["node"], OTHER
        t.equal({k: node[k] for k in ("instance_id", "instance_type", "ami_id", "zone", "region", "partition", "private_dns")},
                {"instance_id": o["instance-id"], "instance_type": o["instance-type"], "ami_id": o["ami-id"],
                 "zone": o["availability-zone"], "region": w.region, "partition": w.partition, "private_dns": w.private_dns},
                "it is who the mock says")
        e = w.enis[0]
        t.equal([{k: x[k] for k in ("mac", "eni_id", "subnet_id", "device", "card", "ipv4", "ips_assigned", "prefixes")}
                 for x in report["network"]["enis"]],
                [{"mac": e.mac, "eni_id": o["eni"], "subnet_id": o["subnet"], "device": 0, "card": 0, "ipv4": e.ipv4,
                  "ips_assigned": len(e.secondaries), "prefixes": 0}], "it has the mock's interface")
        n = report["network"]
        t.equal((n["enis_max"], n["ipv4_per_eni"]), (4, 15), "and the limits of the mock's instance type")
        c = looks(report, "credentials")
        t.ok(len(c) == 1 and c[0]["outcome"] == "ok" and c[0]["evidence"].get("role") == o["role"] and
             0 < c[0]["evidence"].get("expires_s", 0) <= 5 * 3600, "credentials of the mock's role", c)
        s = looks(report, "sts")
        t.ok(s and s[0]["outcome"] == "ok" and w.tls["sts"].signed == 1, "STS takes what is signed with them", s)
        t.equal(notices(report), {}, "nothing is announced")
        t.equal([p["outcome"] for p in looks(report, "lifecycle") if p["aspect"] in ("maintenance", "autoscaling")],
                ["ok", "ok"], "and that is known, not guessed")
        said = mock.said()
        t.ok("GenerateToken" in said and "Token required; No token provided." in said, "tokens are asked of it", said[-2000:])
        # Ours has none: it is asked before the first token only by this test.
        t.equal(said.count("Token required; No token provided."), 1, "nodewhy never asks without one")
        t.ok("Token validated!" in said and "Invalid token" not in said, "and they are the mock's own")


def announced(t, program):
    """Versions 1 and 2, and all that can be announced of a spot instance."""
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 5 * 86400))
    action = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 115))
    noticed = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 40))
    for command, code, words, evidence in (
            (("spot", "--action", "terminate", "--time", action, "--rebalance-rec-time", noticed), "SpotInterruption",
             "spot/instance-action: terminate in ", ("left_s", 60, 115)),
            (("spot", "--action", "hibernate", "--time", action, "--rebalance-rec-time", noticed), "SpotInterruption",
             "spot/instance-action: hibernate in ", ("left_s", 60, 115)),
            (("spot", "-d", NEVER, "--rebalance-rec-time", noticed), "RebalanceRecommended", "rebalance recommended ",
             ("age_s", 39, 100)),
            (("events", "--code", "instance-retirement", "--not-before", later), "MaintenanceScheduled",
             "events/maintenance: instance-retirement in ", ("left_s", 5 * 86400 - 60, 5 * 86400)),
            (("asglifecycle",), "TerminationPending", "autoscaling/target-lifecycle-state is Terminated", None)):
        name = " ".join(command[:3])
        with World() as w, Mock(w, program, *command, life_cycle="spot") as mock:
            w.imds_drop()
            report, exit = mock.check()
            got = notices(report) if report else {}
            if not t.ok(exit == 0 and code in got, "%s: %s" % (name, code), exit, got, w.last_stderr):
                continue
            found, summary = got[code]
            t.ok(summary.startswith(words), "%s: says so" % name, summary)
            if evidence:
                key, low, high = evidence
                t.ok(low <= found.get(key, -1) <= high, "%s: %s is %s" % (name, key, "right"), found)
            if command[0] == "spot" and "-d" not in command:
                t.ok("RebalanceRecommended" in got, "%s: and a rebalance" % name, got)
            t.ok(set(got) <= {code, "RebalanceRecommended"}, "%s: nothing else" % name, got)


# ---- whether the simulated metadata answers as it does ----

# Where the two differ, what of, and why nobody has to mind.
ARGUED = {
    "content type of JSON": "the mock knows of each value whether it is JSON, and says application/json",
    "content type of errors": "the mock says text/plain of what is a page of HTML",
    "key NotBeforeDeadline": "the mock gives every event one, EC2 those that can be rescheduled",
}


def form(status, kind, body):
    """An answer without its values."""
    try:
        j = json.loads(body)
    except ValueError:
        j = None
    error = status != 200
    keys = sorted(j) if isinstance(j, dict) else sorted({k for x in j for k in x}) if isinstance(j, list) else None
    of = "errors" if error else "JSON" if keys is not None else "text"
    return {"status": status, **{"key " + k: True for k in keys or ()}, "content type of " + of: kind, "newline after " + of: body.endswith("\n"),
            "lines": None if error or keys is not None else len(body.splitlines()) > 1}


def listing(status, kind, body):
    return {"status": status, "content type of a listing": kind, "a directory ends in a slash": sorted(body.split())}


def both(w, method, path, how, headers=None):
    """The answers of the world and of the mock, each with a token of its own."""
    out = []
    for at in ((IMDS4, 80), ("127.0.0.1", PORT)):
        _, _, token = ask(w, at, "PUT", TOKEN, X_aws_ec2_metadata_token_ttl_seconds="60")
        more = {"X_aws_ec2_metadata_token": token} if headers is None else headers
        out.append(how(*ask(w, at, method, path, **more)))
    return out


def alike(t, program):
    with World() as w, Mock(w, program, "-I", life_cycle="spot") as mock:
        w.spot_interruption()
        w.rebalance_recommended()
        w.maintenance_scheduled()
        w.termination_pending()
        report, code = w.check(timeout=60)
        t.ok(code == 0 and mock.process.poll() is None, "nodewhy reads the simulated metadata", code)
        asked = sorted({path for _, method, path, _ in w.imds.requests if method == "GET"})
        t.ok(len(asked) >= 20 and {404, 200} == {s for _, m, _, s in w.imds.requests if m == "GET"},
             "it asks for %d paths, of which some are there" % len(asked), asked)
        differ, reasons = {}, set()

        def compare(name, *args, **options):
            world, theirs = both(w, *args, **options)
            for k in sorted(set(world) | set(theirs)):
                if world.get(k) != theirs.get(k):
                    reasons.add(k)
                    if k not in ARGUED:
                        differ[name + ": " + k] = "the world %r, the mock %r" % (world.get(k), theirs.get(k))

        for path in asked:
            compare(path, "GET", path, form)
        for path in ("instance-id/", "no-such-key", "network/interfaces/macs/" + w.enis[0].mac + "/no-such-key",
                     "iam/security-credentials/no-such-role"):
            compare(path, "GET", "/latest/meta-data/" + path, form)
        for path in ("network/interfaces/macs/", "network/interfaces/macs", "spot/", "placement/"):
            compare(path, "GET", "/latest/meta-data/" + path, listing)
        t.equal(differ, {}, "both answer every one of them, what is not there, and directories in the same form")
        differ.clear()
        for name, headers in (("no token", {}), ("a wrong token", {"X_aws_ec2_metadata_token": "A" * 56})):
            compare(name, "GET", "/latest/meta-data/instance-id", form, headers=headers)
        for ttl in ("0", "21601", "-1", "x", ""):
            compare("a token for %r seconds" % ttl, "PUT", TOKEN, form, headers={"X_aws_ec2_metadata_token_ttl_seconds": ttl})
        compare("a token for no time", "PUT", TOKEN, form, headers={})
        for ttl in ("1", "21600"):
            compare("a token for %s seconds" % ttl, "PUT", TOKEN, form, headers={"X_aws_ec2_metadata_token_ttl_seconds": ttl})
        t.equal(differ, {}, "both refuse the same requests")
        t.equal(sorted(set(ARGUED) - reasons), [], "no difference is argued that is none")


def main():
    t = Tap()
    if os.geteuid() != 0:
        t.skip("the metadata mock is read", "needs root for network namespaces")
        return t.done()
    try:
        program = MOCK.build(os.path.join(os.path.dirname(HERE), "build/aemm"))
    except gobuild.NotHere as e:
        t.skip("the metadata mock is read", e)
        return t.done()
    read(t, program)
    announced(t, program)
    alike(t, program)
    return t.done()


if __name__ == "__main__":
    sys.exit(main())
