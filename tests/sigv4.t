#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Honesty of what we sign: botocore, unmodified, recomputes our presigned URL, our bearer token and what libcurl signs
for a query; moto's server answers a signed GetCallerIdentity. Both come from PyPI into build/sdk-venv, once."""
import base64
import calendar
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from world.sdk import botocore  # noqa: E402
from world.tap import Tap  # noqa: E402

TOOL = os.path.join(os.environ.get("B", "build/release"), "tests/unit/sigv4")
HOST, REGION, NOW, CLUSTER = "sts.us-west-2.amazonaws.com", "us-west-2", 1796073419, "world-1"
KEYS = {"Code": "Success", "AccessKeyId": "ASIAIOSFODNN7EXAMPLE", "SecretAccessKey": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        "Token": base64.b64encode(bytes(range(256)) * 4).decode(), "Expiration": "2026-11-30T23:00:00Z"}
BODY = "Action=DescribeSubnets&SubnetId.1=subnet-0a1b&Version=2016-11-15"
MOTO = ("moto[server]==5.1.22",)

# Runs in the venv: says what botocore makes of the same request, at the same second.
SIGNER = r"""
import datetime, json, sys
import botocore.auth, botocore.awsrequest, botocore.credentials
a = json.loads(sys.argv[1])
def now(*_, **__):
    return datetime.datetime.fromtimestamp(a["now"], datetime.timezone.utc)
if hasattr(botocore.auth, "get_current_datetime"):
    botocore.auth.get_current_datetime = lambda remove_tzinfo=True: now().replace(tzinfo=None)
class Frozen(datetime.datetime):
    @classmethod
    def utcnow(cls):
        return now().replace(tzinfo=None)
    @classmethod
    def now(cls, tz=None):
        return now()
botocore.auth.datetime = type("m", (), {"datetime": Frozen, "timezone": datetime.timezone})
c = botocore.credentials.Credentials(a["key"], a["secret"], a["token"])
r = botocore.awsrequest.AWSRequest(method=a["method"], url=a["url"], data=a.get("body", ""), headers=a.get("headers", {}))
if a["method"] == "GET":
    auth = botocore.auth.SigV4QueryAuth(c, a["service"], a["region"], expires=a["expires"])
    auth.add_auth(r)
    print(r.url)
else:
    auth = botocore.auth.SigV4Auth(c, a["service"], a["region"])
    r.context["timestamp"] = now().strftime("%Y%m%dT%H%M%SZ")
    def those(request):
        h = botocore.compat.HTTPHeaders()
        for k, v in a["signed"]:
            h.add_header(k, v)
        return h
    auth.headers_to_sign = those
    canonical = auth.canonical_request(r)
    print(auth.signature(auth.string_to_sign(r, canonical), r))
"""


def tool(*argv):
    p = subprocess.run([TOOL, *argv], input=json.dumps(KEYS), stdout=subprocess.PIPE, text=True, timeout=30)
    return p.stdout.splitlines() if p.returncode == 0 else [f"exit code {p.returncode}"]


def signer(python, **a):
    a.update(key=KEYS["AccessKeyId"], secret=KEYS["SecretAccessKey"], token=KEYS["Token"])
    p = subprocess.run([python, "-c", SIGNER, json.dumps(a)], capture_output=True, text=True, timeout=60)
    return p.stdout.strip() if p.returncode == 0 else p.stderr[-2000:]


class Listener(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.seen.append((self.path, list(self.headers.items()), body.decode()))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def parts(url):
    """botocore puts the token behind what is in order; the order in the URL means nothing."""
    return sorted(re.split("[?&]", url))


def presigned(t, python):
    url = f"https://{HOST}/?Action=GetCallerIdentity&Version=2011-06-15"
    ours = tool("url", HOST, REGION, str(NOW), CLUSTER)
    theirs = signer(python, method="GET", url=url, service="sts", region=REGION, expires=900, now=NOW)
    t.ok(parts(ours[0]) == parts(theirs), "botocore presigns the same URL", f"ours   {ours}\ntheirs {theirs}")
    token = tool("token", HOST, REGION, str(NOW), CLUSTER)[0]
    theirs = signer(python, method="GET", url=url, service="sts", region=REGION, expires=60, now=NOW, headers={"x-k8s-aws-id": CLUSTER})
    ours = token.removeprefix("k8s-aws-v1.")
    ours = base64.urlsafe_b64decode(ours + "=" * (-len(ours) % 4)).decode(errors="replace")
    t.ok(token.startswith("k8s-aws-v1.") and parts(ours) == parts(theirs), "botocore makes the same bearer token", f"ours   {ours}\ntheirs {theirs}")


def posted(t, python):
    server = http.server.HTTPServer(("127.0.0.1", 0), Listener)
    server.seen = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    said = tool("post", "ec2.us-west-2.amazonaws.com", str(port), REGION, "ec2", BODY)
    server.shutdown()
    if not t.ok(said[:1] == ["200"] and len(server.seen) == 1, "a signed query is sent", f"{said}"):
        return
    path, headers, body = server.seen[0]
    sent = {k.lower(): v for k, v in headers}
    m = re.match(r"AWS4-HMAC-SHA256 Credential=([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$", sent.get("authorization", ""))
    if not t.ok(m and body == BODY and path == "/", "with an Authorization header of the right shape", f"{headers}"):
        return
    names = m[2].split(";")
    if not t.ok(all(n in sent for n in names), "every header that is signed is sent", m[2]):
        return
    t.ok(sent.get("x-amz-security-token") == KEYS["Token"], "the session token is among the headers")
    t.ok("x-amz-security-token" in names and "host" in names and "x-amz-date" in names, "and among what is signed", m[2])
    t.ok(sent["host"] == f"ec2.us-west-2.amazonaws.com:{port}", "the Host header names the endpoint", sent["host"])
    signed = [(n, sent[n]) for n in names]
    stamp = sent["x-amz-date"]
    now = calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))
    theirs = signer(python, method="POST", url="https://ec2.us-west-2.amazonaws.com/", body=body, service="ec2", region=REGION, now=now, signed=signed)
    t.ok(theirs == m[3], "botocore computes the same signature", f"ours   {m[3]}\ntheirs {theirs}")


def answered(t):
    python, why = botocore("moto.server", *MOTO)
    if python is None:
        t.skip("moto answers our GetCallerIdentity", why)
        return
    log = open(f"build/moto-{os.getpid()}.log", "w+")
    p = subprocess.Popen([python, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], stdout=log, stderr=subprocess.STDOUT,
                         env=dict(os.environ, PYTHONUNBUFFERED="1"))
    try:
        port = None
        for _ in range(300):
            log.seek(0)
            m = re.search(r"http://127\.0\.0\.1:(\d+)", log.read())
            if m or p.poll() is not None:
                port = m and m[1]
                break
            time.sleep(0.1)
        if not port:
            log.seek(0)
            t.skip("moto answers our GetCallerIdentity", "its server does not start: " + log.read()[-200:].replace("\n", " "))
            return
        said = tool("post", "127.0.0.1", port, REGION, "sts", "Action=GetCallerIdentity&Version=2011-06-15")
        t.ok(said[:1] == ["200"] and len(said) == 2 and re.match(r"\d{12} \S+$", said[1]), "moto answers our GetCallerIdentity", f"{said}")
    finally:
        p.terminate()
        p.wait()
        log.close()
        os.unlink(log.name)


def main():
    t = Tap()
    python, why = botocore()
    if python is None:
        t.skip("botocore recomputes what we sign", why)
    else:
        presigned(t, python)
        posted(t, python)
    answered(t)
    return t.done()


if __name__ == "__main__":
    sys.exit(main())
