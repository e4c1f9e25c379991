# SPDX-License-Identifier: Apache-2.0
"""What metadata says of credentials, user data and what is planned for the instance; and how that goes wrong."""

import base64
import json
import re
import time

from .fault import fault

SECRET = "s3cr3tOfTheUserData"      # in the user's own part of user data: nobody may repeat it
M = "meta-data/"
ROLES = M + "iam/security-credentials/"
USER_DATA = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

---
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  cluster:
    apiServerEndpoint: https://%(endpoint)s
    certificateAuthority: %(ca)s
    cidr: %(cidr)s
    name: %(cluster)s
  kubelet:
    config:
      maxPods: %(max_pods)d
      clusterDNS:
      - %(dns)s
    flags:
    - "--node-labels=eks.amazonaws.com/capacityType=ON_DEMAND,eks.amazonaws.com/nodegroup=workers"

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
REGISTRY_PASSWORD=%(secret)s
echo ready

--//--
"""
AL2_USER_DATA = """MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
set -ex
REGISTRY_PASSWORD=%(secret)s
/etc/eks/bootstrap.sh %(cluster)s --apiserver-endpoint https://%(endpoint)s --b64-cluster-ca %(ca)s \\
  --dns-cluster-ip %(dns)s --kubelet-extra-args '--max-pods=%(max_pods)d'

--//--
"""


class Metadata:
    """Part of World."""

    def _planned_metadata(self):
        """Leaves of the instance metadata tree, besides who the instance is."""
        return {
            M + "autoscaling/target-lifecycle-state": "InService",
            M + "block-device-mapping/ami": "/dev/xvda", M + "block-device-mapping/root": "/dev/xvda",
            M + "iam/info": self._iam_info, ROLES + self.role: self._credentials, "user-data": self._user_data,
        }

    def _iam_info(self, code="Success"):
        if code != "Success":
            return json.dumps({"Code": code, "Message": "Instance Profile world was not found.",
                               "LastUpdated": self._time(-1200)}, indent=2)
        return json.dumps({
            "Code": "Success", "LastUpdated": self._time(-1200), "InstanceProfileArn":
                "arn:%s:iam::%s:instance-profile/world" % (self.partition, self.account),
            "InstanceProfileId": "AIPAEXAMPLEEXAMPLE123"}, indent=2)

    def _credentials(self, updated=-1200, expires=5 * 3600):
        """Rotated every hour or so, good for six hours, with leaves of secrets that nobody may repeat."""
        return json.dumps({
            "Code": "Success", "LastUpdated": self._time(updated), "Type": "AWS-HMAC",
            "AccessKeyId": "ASIAEXAMPLEEXAMPLE12", "SecretAccessKey": "s3cr3tAccessKeyOfTheWorld",
            "Token": "s3cr3tSessionTokenOfTheWorld", "Expiration": self._time(expires)}, indent=2)

    def _user_data(self):
        """As it was at launch: what became of the files since is nothing to it."""
        host = getattr(self, "api_host", None)
        return (AL2_USER_DATA if self.al2 else USER_DATA) % {
            "endpoint": host() if host else "0123456789ABCDEF0123456789ABCDEF.gr7.%s.eks.%s" % (self.region, self.domain),
            "ca": base64.b64encode(self.launch_ca).decode(),
            "cidr": "fd30:1c53:5f8a::/108" if self.ipv6 else "172.20.0.0/16", "cluster": self.cluster,
            "max_pods": self.max_pods, "dns": "fd30:1c53:5f8a::a" if self.ipv6 else "172.20.0.10", "secret": SECRET}

    def _launched(self):
        """Once the tree is there: the cluster's CA that the node was given."""
        self.launch_ca = self.tree.read("etc/kubernetes/pki/ca.crt")

    def leaf(self, path, value):
        """Metadata at path is value, a text or a function; None: 404. Returns what brings the old one back."""
        old = self.imds.tree.get(path)

        def put(v):
            tree = dict(self.imds.tree)     # readers walk it in other threads
            tree.pop(path, None)
            if v is not None:
                tree[path] = v
            self.imds.tree = tree

        put(value)
        return lambda: put(old)

    # ---- faults: the instance's role ----

    @fault
    def no_profile(self):
        """The instance has no profile: iam/ is 404."""
        backs = [self.leaf(M + "iam/info", None), self.leaf(ROLES + self.role, None)]
        return lambda: [b() for b in backs]

    @fault
    def invalid_profile(self, code="InstanceProfileNotFound"):
        """iam/info says that the profile is not there (any more); no role is listed."""
        backs = [self.leaf(M + "iam/info", lambda: self._iam_info(code)), self.leaf(ROLES + self.role, None)]
        return lambda: [b() for b in backs]

    @fault
    def credentials_missing(self):
        """The role is listed, its credentials are 404, as for some seconds after launch."""
        role = re.escape(ROLES + self.role)
        old = self.imds.absent
        self.imds.absent = tuple(old) + (role,)

        def back():
            self.imds.absent = old

        return back

    @fault
    def credentials_refused(self, code="AssumeRoleUnauthorizedAccess"):
        """The role's trust policy does not let EC2 assume it: Code is not Success."""
        return self.leaf(ROLES + self.role, lambda: json.dumps({
            "Code": code, "Message": "EC2 cannot assume the role %s. Please see documentation at https://docs.amazon"
            "web.services" % self.role, "LastUpdated": self._time(-60)}, indent=2))

    @fault
    def expired_credentials(self, ago=600):
        """Metadata serves a stale set: it ended so many seconds ago (C040)."""
        return self.leaf(ROLES + self.role, lambda: self._credentials(-ago - 6 * 3600, -ago))

    @fault
    def credentials_rotated(self):
        """A new set has just come, as every hour or so. Not a fault of the node."""
        return self.leaf(ROLES + self.role, lambda: self._credentials(-2, 6 * 3600))

    @fault
    def role_replaced(self, name="another-role"):
        """Another role's credentials than before."""
        backs = [self.leaf(ROLES + self.role, None), self.leaf(ROLES + name, self._credentials)]
        return lambda: [b() for b in reversed(backs)]

    @fault
    def clock_ahead(self, seconds):
        """The node's clock is so many seconds ahead (or behind) of everybody else's, and beyond 5 minutes the cluster
        takes no token of it either (C056)."""
        backs = [self.clock_wrong(seconds)]
        if abs(seconds) > 300:
            backs.append(self.api_node(401))
        return lambda: [b() for b in reversed(backs)]

    # ---- what is planned for the instance ----

    @fault
    def spot_interruption(self, left=110, action="terminate"):
        """EC2 takes the spot instance back in so many seconds."""
        backs = [self.leaf(M + "instance-life-cycle", "spot"), self.leaf(M + "spot/instance-action", json.dumps(
            {"action": action, "time": self._time(left)}))]
        if action == "terminate":
            backs.append(self.leaf(M + "spot/termination-time", self._time(left)))
        return lambda: [b() for b in backs]

    @fault
    def rebalance_recommended(self, ago=30):
        """EC2 recommends to leave this spot instance."""
        backs = [self.leaf(M + "instance-life-cycle", "spot"), self.leaf(
            M + "events/recommendations/rebalance", json.dumps({"noticeTime": self._time(-ago)}))]
        return lambda: [b() for b in backs]

    @fault
    def maintenance_scheduled(self, days=9, code="system-reboot"):
        """An event is scheduled: a reboot, or instance-retirement."""
        def day(n):
            return time.strftime("%d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + n * 86400))
        return self.leaf(M + "events/maintenance/scheduled", json.dumps([{
            "NotBefore": day(days), "NotAfter": day(days + .1), "Code": code, "Description": "scheduled " + code.split(
                "-")[-1], "EventId": "instance-event-0d59937288b749b32", "State": "active"}], indent=2))

    @fault
    def termination_pending(self, state="Terminated"):
        """Auto scaling is about to end the instance (or to detach it, or to put it aside)."""
        return self.leaf(M + "autoscaling/target-lifecycle-state", state)

