# SPDX-License-Identifier: Apache-2.0
"""EC2's API behind the world's endpoint: it checks signatures, and knows subnets and instance types."""

import hashlib
import hmac
import re
import urllib.parse

from . import tlsd
from .fault import fault

KEYS = ("ASIAEXAMPLEEXAMPLE12", "s3cr3tAccessKeyOfTheWorld", "s3cr3tSessionTokenOfTheWorld")
DENIED = ("UnauthorizedOperation", 403, "You are not authorized to perform this operation.")
THROTTLED = ("RequestLimitExceeded", 503, "Request limit exceeded.")


def signature(secret, stamp, region, method, path, headers, signed, body):
    """AWS Signature Version 4 for service ec2, of a request without a query string."""
    canonical = "\n".join([method, path, ""] + ["%s:%s" % (h, " ".join(headers.get(h, "").split())) for h in signed]
                          + ["", ";".join(signed), hashlib.sha256(body).hexdigest()])
    scope = "%s/%s/ec2/aws4_request" % (stamp[:8], region)
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


class Ec2(tlsd.Endpoint):
    """calls: (action, parameters, status) of what was signed. error: (code, status, text) instead of an answer."""

    def __init__(self, servers, addresses, certs, world):
        super().__init__(servers, "ec2", addresses, certs)
        self.world, self.calls, self.error = world, [], None
        self.free = {}      # subnet id -> free addresses; else 180

    def answer(self, path, headers, method="GET", body=b""):
        m = re.match(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/ec2/aws4_request, ?SignedHeaders=([^,]+), ?"
                     r"Signature=([0-9a-f]{64})$", headers.get("authorization", ""))
        if self.status or not m:
            return super().answer(path, headers, method, body)
        signed = m[4].split(";")
        right = m[1] == KEYS[0] and headers.get("x-amz-security-token") == KEYS[2] and {
            "host", "x-amz-date", "x-amz-security-token"} <= set(signed) and hmac.compare_digest(m[5], signature(
                KEYS[1], headers.get("x-amz-date", ""), self.world.region, method, path, headers, signed, body))
        asked = dict(urllib.parse.parse_qsl(body.decode("latin-1")))
        action = asked.get("Action", "")
        error = None if right else ("AuthFailure", 401, "AWS was not able to validate the provided access credentials")
        error = error or self.error
        if not error and action not in ("DescribeSubnets", "DescribeInstanceTypes"):
            error = ("InvalidAction", 400, "The action %s is not valid for this web service." % action)
        status = error[1] if error else 200
        self.calls.append((action, asked, status))
        if error:
            text = ("<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>0f1e2d3c"
                    "</RequestID></Response>" % (error[0], error[2]))
        else:
            text = "<%sResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>0f1e2d3c</requestId>%s</%s" \
                   "Response>" % (action, self.subnets(asked) if action == "DescribeSubnets" else self.types(asked), action)
        return status, "Content-Type: text/xml;charset=UTF-8\r\n", (
            '<?xml version="1.0" encoding="UTF-8"?>\n' + text).encode()

    def subnets(self, asked):
        wanted = {v for k, v in asked.items() if k.startswith("SubnetId.")}
        have = {e.subnet_id: e.subnet for e in self.world.enis}
        return "<subnetSet>%s</subnetSet>" % "".join(
            "<item><subnetId>%s</subnetId><state>available</state><vpcId>vpc-0123456789abcdef0</vpcId><cidrBlock>%s"
            "</cidrBlock><ipv6CidrBlockAssociationSet/><availableIpAddressCount>%d</availableIpAddressCount>"
            "<availabilityZone>%s</availabilityZone><tagSet><item><key>Name</key><value>nodes</value></item></tagSet>"
            "</item>" % (i, net, self.free.get(i, 180), self.world.az) for i, net in have.items() if i in wanted)

    def types(self, asked):
        enis, addresses = self.world.limits()
        return "<instanceTypeSet><item><instanceType>%s</instanceType><hypervisor>nitro</hypervisor><bareMetal>false" \
            "</bareMetal><networkInfo><networkPerformance>High</networkPerformance><maximumNetworkInterfaces>%d" \
            "</maximumNetworkInterfaces><maximumNetworkCards>1</maximumNetworkCards><defaultNetworkCardIndex>0" \
            "</defaultNetworkCardIndex><networkCards><item><networkCardIndex>0</networkCardIndex><maximumNetworkInterfaces>" \
            "%d</maximumNetworkInterfaces></item></networkCards><ipv4AddressesPerInterface>%d</ipv4AddressesPerInterface>" \
            "</networkInfo></item></instanceTypeSet>" % (asked.get("InstanceType.1", ""), enis, enis, addresses)


class Api:
    """Part of World."""

    @property
    def ec2(self):
        return self.tls["ec2"]

    @fault
    def ec2_subnet_free(self, i=-1, n=0):
        """DescribeSubnets says that the subnet of ENI i has n free addresses."""
        return self._set(self.ec2, free=dict(self.ec2.free, **{self.enis[i].subnet_id: n}))

    @fault
    def ec2_denied(self):
        """The node role may not call EC2 for this: usual, and no fault."""
        return self._set(self.ec2, error=DENIED)

    @fault
    def ec2_throttled(self):
        """EC2 answers RequestLimitExceeded to every call."""
        return self._set(self.ec2, error=THROTTLED)
