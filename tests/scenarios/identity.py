# SPDX-License-Identifier: Apache-2.0
"""Scenarios of `nodewhy check`: the role and its credentials, the clock, and whom the cluster takes the node for."""

from .checks import says
from .table import broken, degraded, scenario, sound


def look(report, name, aspect=""):
    return next((p for p in report["probes"] if p["name"] == name and p["aspect"] == aspect), {})


def asked_once(w, report, fail):
    """A sound node: STS took the signature, the API server the token, each once."""
    if w.tls["sts"].signed != 1 or look(report, "sts").get("outcome") != "ok":
        fail("STS was asked %d times: %s" % (w.tls["sts"].signed, look(report, "sts")))
    if [url is None for _, url in w.api.tokens] != [False] or look(report, "identity").get("outcome") != "ok":
        fail("tokens %r: %s" % (w.api.tokens, look(report, "identity")))
    if look(report, "clock")["evidence"].get("witnesses", 0) < 2:
        fail("the clock has fewer than two witnesses: %s" % look(report, "clock"))


# ---- the role and its credentials ----

@sound("identity/sound", more=asked_once)
def _(w):
    pass


@sound("credentials/rotated")
def _(w):
    w.credentials_rotated()


@broken("credentials/no-profile", "InstanceProfileMissing", more=says("iam/info is 404"))
def _(w):
    w.no_profile()


@broken("credentials/profile-invalid", "InstanceProfileInvalid", more=says("InstanceProfileNotFound"))
def _(w):
    w.invalid_profile()


@broken("credentials/missing", "CredentialsMissing", more=says("404"))
def _(w):
    w.credentials_missing()


@broken("credentials/refused", "CredentialsMissing", more=says("AssumeRoleUnauthorizedAccess"))
def _(w):
    w.credentials_refused()


@broken("credentials/expired", "CredentialsExpired", {"CredentialsExpired": None, "NodeUnauthorized": "CredentialsExpired"},
        more=says("expired 42 min ago"))
def _(w):
    """C040: metadata serves a stale set; the API server does not take tokens of it."""
    w.expired_credentials(42 * 60)
    w.api_node(401)


# ---- STS ----

@broken("sts/rejects", "CredentialsRejected", {"CredentialsRejected": None, "NodeUnauthorized": "CredentialsRejected"},
        more=says("InvalidClientTokenId"))
def _(w):
    """The role was deleted: STS and with it the API server refuse."""
    w.sts_refuses()
    w.api_node(401)


@broken("sts/rejects-the-signature", "CredentialsRejected", more=says("SignatureDoesNotMatch"))
def _(w):
    """The message quotes the request with its session token, which nobody may repeat."""
    w.sts_refuses("SignatureDoesNotMatch", message="The Canonical String for this request should have been 'POST / "
                  "x-amz-security-token:s3cr3tSessionTokenOfTheWorld'")


@degraded("sts/endpoint-policy", "EndpointDenied", subject="sts", more=says("AccessDenied", "private"))
def _(w):
    w.endpoint_policy_denies()


# ---- the clock ----

@broken("clock/behind", "ClockSkewed", {"ClockSkewed": None, "NodeUnauthorized": "ClockSkewed"},
        more=says("1022 s behind", "3 of 3"))
def _(w):
    """C056: STS and the API server refuse what is signed with a wrong date."""
    w.clock_wrong(-1022)
    w.api_node(401)


@broken("clock/ahead", "ClockSkewed", more=says("4000 s ahead"))
def _(w):
    w.clock_wrong(4000)


@sound("clock/a-little-off")
def _(w):
    w.clock_wrong(20)


# ---- whom the cluster takes it for ----

@broken("identity/role-not-mapped", "NodeRoleNotMapped", more=says("401", "node-role", "STS accepts"))
def _(w):
    """C019: no access entry and no line in aws-auth for the role."""
    w.api_node(401)


@broken("identity/name-mismatch", "NodeNameMismatch", more=says("ip-10-9-9-9.corp.example"))
def _(w):
    """C014: the cluster knows this node by another name than kubelet does."""
    w.api_node_renamed()


@broken("identity/name-empty", "NodeNameEmpty", more=says("without a name"))
def _(w):
    """C068: EC2's private DNS name was not there yet when the token was looked at."""
    w.api_node_renamed("")


@scenario("identity/not-registered-yet", "starting", {}, exit=0, world={"uptime": 200.0})
def _(w):
    w.api_node(404)


@broken("identity/not-ready", "NodeNotReady", more=says("Ready=False", "NetworkPluginNotReady"))
def _(w):
    """The API server says so, and nothing on the node explains it."""
    w.api_not_ready()


@broken("identity/unknown", "NodeNotReady", more=says("Ready=Unknown", "NodeStatusUnknown"))
def _(w):
    w.api_not_ready("NodeStatusUnknown", "Kubelet stopped posting node status.", "Unknown")


def tells_taint(w, report, fail):
    if "karpenter.sh/unregistered" not in look(report, "identity")["detail"]:
        fail("the taint is not told: %s" % look(report, "identity"))


@sound("identity/tainted", more=tells_taint)
def _(w):
    w.api_taint()


def no_token(w, report, fail):
    if w.api.tokens:
        fail("a token was sent to whom the cluster's CA does not vouch for")


@broken("identity/another-cluster-s-ca", "ApiServerUntrusted", more=no_token)
def _(w):
    w.api_other_cluster()
