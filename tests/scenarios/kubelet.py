# SPDX-License-Identifier: Apache-2.0
"""Scenarios of `nodewhy check`: kubelet's unit, its health check, its certificate and its lines."""

from .checks import says
from .table import ANY, broken, degraded, sound


@broken("kubelet/config-refused", "KubeletConfigInvalid",
        {"KubeletConfigInvalid": None, "KubeletCrashLooping": ANY}, more=says("failed to load kubelet config file"))
def _(w):
    """A key of the wrong type: kubelet ends at once, every time."""
    w.kubelet_crash_loop()


@broken("kubelet/crash-loop", "KubeletCrashLooping", more=says("no valid node ip"))
def _(w):
    """It ends for a reason that nobody knows: it is quoted."""
    w.kubelet_crash_loop(error='"command failed" err="failed to run Kubelet: no valid node ip"')


@sound("kubelet/config-was-refused-once")
def _(w):
    """Half an hour ago it was refused, then it was put right: the lines are history."""
    w.kubelet_says("E", "run.go:72", '"command failed" err="failed to load kubelet config file"', ago=600)
    w.systemd_says("kubelet.service", "kubelet.service: Main process exited, code=exited, status=1/FAILURE", ago=600)


@broken("kubelet/silent", "KubeletUnhealthy", more=says("no answer in 2.0 s"))
def _(w):
    w.kubelet_silent()


@broken("kubelet/unhealthy", "KubeletUnhealthy", more=says("HTTP 500"))
def _(w):
    w.kubelet_unhealthy()


@degraded("kubelet/serving-certificate-pending", "ServingCertificatePending", more=says("internal_error"))
def _(w):
    w.serving_certificate_pending()


@broken("kubelet/pleg", "PlegUnhealthy", more=says("3m7s"))
def _(w):
    for ago in (14, 9, 4):
        w.kubelet_says("E", "kubelet.go:2412", '"Skipping pod synchronization" err="PLEG is not healthy: pleg was '
                       'last seen active 3m7.1s ago; threshold is 3m0s"', ago=ago)


@sound("kubelet/pleg-was-unhealthy")
def _(w):
    """Two minutes ago: kubelet would have said it again."""
    for ago in (130, 125, 120):
        w.kubelet_says("E", "kubelet.go:2412", '"Skipping pod synchronization" err="PLEG is not healthy: pleg was '
                       'last seen active 3m7.1s ago; threshold is 3m0s"', ago=ago)


@sound("kubelet/registered-at-the-second-try")
def _(w):
    for ago in (50, 45):
        w.kubelet_says("E", "kubelet_node_status.go:95", '"Unable to register node with API server" '
                       'err="Unauthorized" node="%s"' % w.private_dns, ago=ago)
    w.kubelet_says("I", "kubelet_node_status.go:79", '"Successfully registered node" node="%s"' % w.private_dns,
                   ago=40)


@sound("kubelet/no-bus-no-journal", systemd=False, journal=False)
def _(w):
    """Nothing is known of units and lines: nobody is accused."""


@sound("kubelet/bus-down")
def _(w):
    w.bus_down()


@sound("kubelet/systemd-hangs")
def _(w):
    w.systemd_hangs()
