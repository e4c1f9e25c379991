# SPDX-License-Identifier: Apache-2.0
"""STS as a node meets it: GetCallerIdentity for whoever signs with the keys that metadata gives. Also the wrong clock,
which signatures do not survive."""

import calendar
import hashlib
import hmac
import json
import re
import time
import urllib.parse

from . import tlsd
from .fault import fault

AUTHORIZATION = re.compile(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
                           r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$")


def signature(method, path, query, headers, names, body, stamp, secret, scope):
    """The signature that the service computes of what it was sent."""
    request = "\n".join([method, path, query, *("%s:%s" % (n, headers.get(n, "")) for n in names), "", ";".join(names),
                         hashlib.sha256(body).hexdigest()])
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, "/".join(scope), hashlib.sha256(request.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (*scope, text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key.hex()


class Sts(tlsd.Endpoint):
    """set_of: a function that returns the credentials which metadata gives, as text."""

    def __init__(self, servers, addresses, certs, region, arn, account, set_of):
        super().__init__(servers, "sts", addresses, certs)
        self.region, self.arn, self.account, self.set_of = region, arn, account, set_of
        self.signed = 0         # calls of GetCallerIdentity
        self.error = None       # (status, code, message) in place of an answer to a signed call

    def answer(self, path, headers, method="GET", body=b""):
        if self.status or not headers.get("authorization", "").startswith("AWS4-"):
            return super().answer(path, headers)
        self.signed += 1
        refused = self.error or self.refusal(path, headers)
        if refused:
            status, code, message = refused
            return status, "Content-Type: text/xml\r\n", (
                '<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">\n  <Error>\n    <Type>Sender</Type>\n'
                "    <Code>%s</Code>\n    <Message>%s</Message>\n  </Error>\n  <RequestId>1f0c</RequestId>\n"
                "</ErrorResponse>\n" % (code, message)).encode()
        return 200, "Content-Type: text/xml\r\n", (
            '<GetCallerIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">\n  <GetCallerIdentityResult>\n'
            "    <Arn>%s</Arn>\n    <UserId>AROAEXAMPLE:i</UserId>\n    <Account>%s</Account>\n"
            "  </GetCallerIdentityResult>\n</GetCallerIdentityResponse>\n" % (self.arn(), self.account)).encode()

    def refusal(self, path, headers):
        """What a real one would find wrong, or None."""
        m, body = AUTHORIZATION.match(headers["authorization"]), headers.get(":body", b"")
        keys, stamp = json.loads(self.set_of()), headers.get("x-amz-date", "")
        if not m or not re.fullmatch(r"\d{8}T\d{6}Z", stamp):
            return 400, "IncompleteSignature", "Authorization header does not parse"
        if m[1] != keys["AccessKeyId"] or headers.get("x-amz-security-token") != keys["Token"]:
            return 403, "InvalidClientTokenId", "The security token included in the request is invalid."
        now, at = time.time() + self.date_offset, calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))
        for late, words in ((now - at, "Signature expired: %s is now earlier than %s"),
                            (at - now, "Signature not yet current: %s is still later than %s")):
            if late > 300:
                text = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
                return 403, "SignatureDoesNotMatch", words % (stamp, text)
        names, (plain, _, query) = m[5].split(";"), path.partition("?")
        if not {"host", "x-amz-date", "x-amz-security-token"} <= set(names) or m[3] != self.region or m[4] != "sts":
            return 403, "SignatureDoesNotMatch", "Credential should be scoped to a valid region"
        want = signature(headers[":method"], plain, query, headers, names, body, stamp, keys["SecretAccessKey"],
                         (m[2], m[3], m[4], "aws4_request"))
        if want != m[6]:    # the real one quotes the request, the session token in it
            return 403, "SignatureDoesNotMatch", "The Canonical String should have been x-amz-security-token:" + keys["Token"]
        if urllib.parse.parse_qs(body.decode()).get("Action") != ["GetCallerIdentity"]:
            return 400, "InvalidAction", "Could not find operation"
        if time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)) >= keys["Expiration"]:
            return 403, "ExpiredToken", "The security token included in the request is expired"
        return None


class SecurityTokens:
    """Part of World."""

    def _make_sts(self, addresses):
        def served():
            """The set that metadata serves now, of whatever role."""
            roles = "meta-data/iam/security-credentials/"
            tree = self.imds.tree
            value = next(tree[k] for k in tree if k.startswith(roles))
            return value() if callable(value) else value

        return Sts(self.servers, addresses, self.certs, self.region, lambda: "arn:%s:sts::%s:assumed-role/%s/%s" % (
            self.partition, self.account, self.role, self.instance_id), self.account, served)

    @fault
    def sts_refuses(self, code="InvalidClientTokenId", status=403, message="The security token included in the request "
                    "is invalid."):
        """A signed call is answered with this error."""
        return self._set(self.tls["sts"], error=(status, code, message))

    @fault
    def endpoint_policy_denies(self):
        """The VPC endpoint of STS has a policy that leaves the node's role out."""
        return self._set(self.tls["sts"], error=(403, "AccessDenied", "User: %s is not authorized to perform: "
                                                 "sts:GetCallerIdentity because no VPC endpoint policy allows the "
                                                 "sts:GetCallerIdentity action" % self.tls["sts"].arn()))

    @fault
    def clock_wrong(self, ahead):
        """The node's clock is so many seconds ahead of everybody else's (or behind)."""
        backs = [self._set(x, date_offset=-ahead) for x in (self.imds, self.api, *self.tls.values())]
        return lambda: [b() for b in backs]
