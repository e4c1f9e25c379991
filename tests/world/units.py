# SPDX-License-Identifier: Apache-2.0
"""systemd as nodewhy meets it on D-Bus: org.freedesktop.systemd1 behind a real dbus-daemon, and the
direct socket /run/systemd/private. Units change when a scenario says so.

Names, signatures and errors are those of org.freedesktop.systemd1(5) and of systemd 252, with which
the self-test compares them."""

import os
import shutil
import socket
import subprocess
import threading
import time
from xml.sax.saxutils import quoteattr

from . import dbusd
from .dbusd import DBUS, PROPERTIES, Failure

NAME, PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
MANAGER, UNIT, SERVICE = NAME + ".Manager", NAME + ".Unit", NAME + ".Service"
PEER, INTROSPECT = DBUS + ".Peer", DBUS + ".Introspectable"
NO_METHOD, NO_UNIT = DBUS + ".Error.UnknownMethod", NAME + ".NoSuchUnit"

CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/>
<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/></policy></busconfig>
"""
METHODS = {
    MANAGER: {"GetUnit": ("s", "o"), "LoadUnit": ("s", "o"), "GetUnitByPID": ("u", "o"),
              "ListUnits": ("", "a(ssssssouso)"), "ListUnitsByNames": ("as", "a(ssssssouso)"),
              "GetUnitFileState": ("s", "s"), "Subscribe": ("", ""), "Unsubscribe": ("", "")},
    PROPERTIES: {"Get": ("ss", "v"), "GetAll": ("s", "a{sv}")},
    PEER: {"Ping": ("", ""), "GetMachineId": ("", "s")},
    INTROSPECT: {"Introspect": ("", "s")},
}
# What a simulated unit says of itself; the order is systemd's.
UNIT_PROPERTIES = {
    "Id": "s", "Names": "as", "Following": "s", "Requires": "as", "Wants": "as", "Before": "as",
    "After": "as", "Description": "s", "LoadState": "s", "ActiveState": "s", "FreezerState": "s",
    "SubState": "s", "FragmentPath": "s", "SourcePath": "s", "DropInPaths": "as",
    "UnitFileState": "s", "UnitFilePreset": "s", "StateChangeTimestamp": "t",
    "StateChangeTimestampMonotonic": "t", "InactiveExitTimestamp": "t",
    "InactiveExitTimestampMonotonic": "t", "ActiveEnterTimestamp": "t",
    "ActiveEnterTimestampMonotonic": "t", "ActiveExitTimestamp": "t",
    "ActiveExitTimestampMonotonic": "t", "InactiveEnterTimestamp": "t",
    "InactiveEnterTimestampMonotonic": "t", "CanStart": "b", "CanStop": "b", "CanReload": "b",
    "Job": "(uo)", "NeedDaemonReload": "b", "ConditionResult": "b", "AssertResult": "b",
    "LoadError": "(ss)", "Transient": "b", "InvocationID": "ay",
}
SERVICE_PROPERTIES = {
    "Type": "s", "Restart": "s", "PIDFile": "s", "NotifyAccess": "s", "RestartUSec": "t",
    "TimeoutStartUSec": "t", "TimeoutStopUSec": "t", "WatchdogUSec": "t", "RemainAfterExit": "b",
    "GuessMainPID": "b", "MainPID": "u", "ControlPID": "u", "StatusText": "s", "StatusErrno": "i",
    "Result": "s", "CleanResult": "s", "NRestarts": "u", "ExecMainStartTimestamp": "t",
    "ExecMainStartTimestampMonotonic": "t", "ExecMainExitTimestamp": "t",
    "ExecMainExitTimestampMonotonic": "t", "ExecMainPID": "u", "ExecMainCode": "i",
    "ExecMainStatus": "i", "ExecStart": "a(sasbttttuii)", "Slice": "s", "ControlGroup": "s",
    "Environment": "as", "EnvironmentFiles": "a(sb)", "PassEnvironment": "as",
}
MANAGER_PROPERTIES = {"Version": "s", "Features": "s", "Virtualization": "s", "Architecture": "s",
                      "SystemState": "s", "NFailedUnits": "u", "Environment": "as"}
PROPERTIES_OF = {UNIT: UNIT_PROPERTIES, SERVICE: SERVICE_PROPERTIES, MANAGER: MANAGER_PROPERTIES}
ZERO = {"s": "", "t": 0, "u": 0, "i": 0, "b": False, "as": [], "a(sb)": [], "(uo)": (0, "/"),
        "(ss)": ("", ""), "ay": [], "a(sasbttttuii)": []}
SUB = {"active": "running", "inactive": "dead", "failed": "failed", "activating": "auto-restart",
       "deactivating": "stop-sigterm", "reloading": "reload"}


def escape(name):
    """bus_label_escape(): what a unit is called in an object path."""
    out = "".join(c if c.isascii() and c.isalnum() and (i or not c.isdigit())
                  else "_%02x" % ord(c) for i, c in enumerate(name))
    return out or "_"


def unescape(label):
    out, i = "", 0
    while i < len(label):
        if label[i] == "_" and len(label) > i + 2:
            out += chr(int(label[i + 1:i + 3], 16))
            i += 3
        else:
            out += label[i]
            i += 1
    return "" if label == "_" else out


class Unit:
    """Times are seconds since boot, or names of moments of the boot (host.py), None: never."""

    FIELDS = dict(description="", load="loaded", active="active", sub=None, result="success",
                  restarts=0, file_state="enabled", type="simple", restart="no", remain=False,
                  start=None, end=None, pid=0, code=0, status=0, environment=(), files=(),
                  dropins=(), exec_start=(), slice="system.slice", after=(), requires=(),
                  entered=None, job=0)

    def __init__(self, name, **fields):
        self.name = name
        for k, v in self.FIELDS.items():
            setattr(self, k, fields.pop(k, v))
        if fields:
            raise TypeError("unit has no " + ", ".join(fields))

    def copy(self, **fields):
        return Unit(self.name, **dict({k: getattr(self, k) for k in self.FIELDS}, **fields))

    def properties(self, systemd):
        """(those of Unit, those of Service), as Python values."""
        mono = systemd.monotonic
        sub = self.sub or SUB[self.active]
        start, end = mono(self.start), mono(self.end)
        if self.load != "loaded":
            start = end = 0
        enter = mono(self.entered) if self.entered is not None else start
        alive = self.active in ("active", "reloading", "deactivating")
        times = dict(InactiveExit=start, ActiveEnter=0, ActiveExit=0, InactiveEnter=0)
        if alive:
            times["ActiveEnter"] = end if sub == "exited" and end else enter
        elif self.active in ("inactive", "failed") or sub == "auto-restart":
            times["InactiveEnter"] = end
            if self.type != "oneshot" and start:
                times.update(ActiveEnter=enter, ActiveExit=end)
        times["StateChange"] = max(times.values())
        u = dict(
            Id=self.name, Names=[self.name], Description=self.description or self.name,
            LoadState=self.load, ActiveState=self.active, SubState=sub, FreezerState="running",
            FragmentPath="/etc/systemd/system/" + self.name if self.load == "loaded" else "",
            UnitFileState=self.file_state if self.load != "not-found" else "",
            UnitFilePreset="disabled" if self.load == "loaded" else "", CanStart=self.load == "loaded", CanStop=self.load == "loaded",
            ConditionResult=bool(start), AssertResult=bool(start), DropInPaths=list(self.dropins),
            After=list(self.after), Requires=list(self.requires),
            InvocationID=list(os.urandom(16)) if start else [])
        if self.job:
            u["Job"] = self.job, PATH + "/job/%d" % self.job
        if self.load == "not-found":
            u["LoadError"] = NO_UNIT, "Unit %s not found." % self.name
        s = dict(
            Type=self.type if self.load != "not-found" else "", Restart=self.restart, RestartUSec=5000000 if self.restart != "no" else
            100000, RemainAfterExit=self.remain, GuessMainPID=True, Result=self.result,
            CleanResult="success", NRestarts=self.restarts, NotifyAccess="none",
            MainPID=self.pid if sub in ("running", "start", "reload") else 0, ExecMainPID=self.pid,
            ExecMainCode=self.code, ExecMainStatus=self.status, Slice=self.slice,
            ControlGroup="/%s/%s" % (self.slice, self.name) if alive and sub != "exited" else "",
            Environment=list(self.environment), EnvironmentFiles=[(f.lstrip("-"), f[0] == "-")
                                                                  for f in self.files],
            TimeoutStartUSec=90000000 if self.type != "oneshot" else 2**64 - 1,
            TimeoutStopUSec=90000000)
        if self.exec_start:
            s["ExecStart"] = [(self.exec_start[0], list(self.exec_start), False, 0, 0, 0, 0, 0, 0, 0)]
        gone = 0 if sub in ("running", "start") else end
        for props, moments in ((u, times), (s, {"ExecMainStart": start if self.pid else 0,
                                                "ExecMainExit": gone if self.pid else 0})):
            for k, t in moments.items():
                props[k + "TimestampMonotonic"] = t
                props[k + "Timestamp"] = systemd.realtime(t)
        return u, s


class Systemd:
    """units: name -> Unit. hang: calls are read and never answered. denied: answered AccessDenied."""

    def __init__(self, world):
        self.world = world
        self.units, self.calls = {}, []
        self.hang = self.denied = False
        self.subscribers = set()
        self._bus = self._daemon = self._listener = None
        self._direct = []
        self.socket = world.tree.at("run/dbus/system_bus_socket")
        self.private = world.tree.at("run/systemd/private")

    # ---- clocks: CLOCK_MONOTONIC is the simulated node's, its uptime ----

    def monotonic(self, moment):
        return 0 if moment is None else int(self.world.moment(moment) * 1e6)

    def realtime(self, mono):
        return 0 if not mono else int(self.world.wall(0.0) * 1e6) + mono

    # ---- life ----

    def start(self):
        self.world.tree.mkdir("run/systemd")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.private)
        self._listener.listen(16)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        self.start_bus()

    def start_bus(self):
        program = shutil.which("dbus-daemon")
        if not program:
            return
        self.world.tree.mkdir("run/dbus")
        if os.path.lexists(self.socket):
            os.unlink(self.socket)
        config = self.world.dir + "/bus.conf"
        with open(config, "w") as f:
            f.write(CONFIG % self.socket)
        with open(self.world.dir + "/bus.log", "a") as log:
            self._daemon = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", program, "--config-file=" + config, "--nofork",
                 "--nopidfile", "--nosyslog"], stdin=subprocess.DEVNULL, stderr=log,
                env={"PATH": "/usr/bin"})
        end = time.monotonic() + 5
        while True:
            try:
                self._bus = dbusd.connect(self.socket, self.handle)
                break
            except OSError:
                if time.monotonic() > end or self._daemon.poll() is not None:
                    raise
                time.sleep(0.002)
        self._bus.call(DBUS, "/org/freedesktop/DBus", DBUS, "AddMatch", "s",
                       "type='signal',sender='%s',member='NameOwnerChanged'" % DBUS)
        self.own()

    def own(self):
        """systemd is on the bus."""
        self._bus.call(DBUS, "/org/freedesktop/DBus", DBUS, "RequestName", "su", NAME, 4)

    def disown(self):
        """The bus is there, systemd is not on it: ServiceUnknown."""
        self._bus.call(DBUS, "/org/freedesktop/DBus", DBUS, "ReleaseName", "s", NAME)

    def stop_bus(self):
        """The bus dies; its socket file stays behind."""
        if self._bus:
            self._bus.close()
        if self._daemon:
            self._daemon.kill()
            self._daemon.wait()
        self._bus = self._daemon = None
        self.subscribers.clear()

    def stop_private(self):
        listener, self._listener = self._listener, None
        if listener:
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            listener.close()
        for c in list(self._direct):
            c.close()

    def start_private(self):
        if os.path.lexists(self.private):
            os.unlink(self.private)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.private)
        self._listener.listen(16)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self):
        self.stop_private()
        self.stop_bus()

    def _accept(self, listener):
        while True:
            try:
                s, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._one, args=(s,), daemon=True).start()

    def _one(self, s):
        c = dbusd.Connection(s, self.handle, self._direct.remove)
        try:
            good = dbusd.authenticate(c.file, s.sendall)
        except OSError:
            good = False
        if not good:
            s.close()
            return
        self._direct.append(c)
        c.loop()

    # ---- calls ----

    def handle(self, connection, m):
        if m.kind == dbusd.SIGNAL:
            if m.member == "NameOwnerChanged" and m.body[2] == "":
                self.subscribers.discard(m.body[0])
            return None
        self.calls.append((m.interface, m.member, tuple(m.body)))
        if self.hang:
            return None
        if self.denied:
            raise Failure(DBUS + ".Error.AccessDenied", "Access denied")
        table = METHODS.get(m.interface) if m.interface else {
            k: v for t in METHODS.values() for k, v in t.items()}
        if not table or m.member not in table:
            raise Failure(NO_METHOD, "Unknown method %s or interface %s." % (m.member, m.interface))
        wanted, answer = table[m.member]
        if (m.signature or "") != wanted:
            raise Failure(DBUS + ".Error.InvalidArgs",
                          "Invalid arguments '%s' to call %s.%s(), expecting '%s'."
                          % (m.signature or "", m.interface, m.member, wanted))
        values = getattr(self, "do_" + m.member)(m, *m.body)
        return answer, [] if not answer else [values]

    def do_Ping(self, m):
        return None

    def do_GetMachineId(self, m):
        return self.world.tree.machine_id

    def do_Subscribe(self, m):
        if m.sender and m.sender in self.subscribers:
            raise Failure(NAME + ".AlreadySubscribed", "Client is already subscribed.")
        if m.sender:
            self.subscribers.add(m.sender)

    def do_Unsubscribe(self, m):
        if m.sender not in self.subscribers:
            raise Failure(NAME + ".NotSubscribed", "Client is not subscribed.")
        self.subscribers.discard(m.sender)

    def do_GetUnit(self, m, name):
        u = self.units.get(name)
        if not u or u.load == "not-found":
            raise Failure(NO_UNIT, "Unit %s not loaded." % name)
        return PATH + "/unit/" + escape(name)

    def do_GetUnitByPID(self, m, pid):
        for u in self.units.values():
            if pid and u.pid == pid:
                return PATH + "/unit/" + escape(u.name)
        raise Failure(NAME + ".NoUnitForPID", "PID %d does not belong to any loaded unit." % pid)

    def do_LoadUnit(self, m, name):
        if "." not in name or "/" in name:
            raise Failure(DBUS + ".Error.InvalidArgs", "Unit name %s is not valid." % name)
        return PATH + "/unit/" + escape(name)

    def do_GetUnitFileState(self, m, name):
        u = self.units.get(name)
        if not u or u.load == "not-found":
            raise Failure(DBUS + ".Error.FileNotFound", "No such file or directory")
        return u.file_state

    def _row(self, u):
        p, _ = u.properties(self)
        return (u.name, p["Description"], p["LoadState"], p["ActiveState"], p["SubState"], "",
                PATH + "/unit/" + escape(u.name), p.get("Job", (0, "/"))[0],
                "start" if u.job else "", p.get("Job", (0, "/"))[1])

    def do_ListUnits(self, m):
        return [self._row(u) for u in self.units.values() if u.load != "not-found"]

    def do_ListUnitsByNames(self, m, names):
        return [self._row(self.get(n)) for n in names]

    def get(self, name):
        """The unit, or what systemd makes of a name that no file has."""
        return self.units.get(name) or Unit(name, load="not-found", active="inactive",
                                            file_state="")

    def _object(self, path):
        """{interface: {property: value}} of an object; Failure where there is none."""
        if path == PATH:
            failed = sum(u.active == "failed" for u in self.units.values())
            return {MANAGER: dict(Version="252.23-12.amzn2023", Virtualization="amazon",
                                  Architecture="x86-64", NFailedUnits=failed,
                                  SystemState="degraded" if failed else "running")}
        if path.startswith(PATH + "/unit/"):
            unit = self.get(unescape(path[len(PATH + "/unit/"):]))
            u, s = unit.properties(self)
            return {UNIT: u, SERVICE: s} if unit.name.endswith(".service") else {UNIT: u}
        raise Failure(DBUS + ".Error.UnknownObject", "Unknown object '%s'." % path)

    @staticmethod
    def _variant(interface, name, values):
        t = PROPERTIES_OF[interface][name]
        return t, values.get(name, ZERO[t])

    def do_Get(self, m, interface, name):
        o = self._object(m.path)
        if interface not in o:
            raise Failure(DBUS + ".Error.UnknownInterface", "Unknown interface %s." % interface)
        if name not in PROPERTIES_OF[interface]:
            raise Failure(DBUS + ".Error.UnknownProperty", "Unknown interface %s or property %s." % (interface, name))
        return self._variant(interface, name, o[interface])

    def do_GetAll(self, m, interface):
        o = self._object(m.path)
        if interface and interface not in o:
            raise Failure(DBUS + ".Error.UnknownInterface", "Unknown interface %s." % interface)
        return {k: self._variant(i, k, o[i]) for i in o if interface in ("", i)
                for k in PROPERTIES_OF[i]}

    def do_Introspect(self, m):
        out = ['<node>']
        interfaces = {}
        if m.path == PATH or m.path.startswith(PATH + "/unit/"):
            interfaces = {i: PROPERTIES_OF[i] for i in self._object(m.path)}
        for i in [PEER, INTROSPECT, PROPERTIES] + list(interfaces):
            out.append('<interface name=%s>' % quoteattr(i))
            for name, (given, back) in METHODS.get(i, {}).items():
                args = [('in', t) for t in dbusd.types(given)] + [('out', t)
                                                                  for t in dbusd.types(back)]
                out.append('<method name=%s>%s</method>' % (quoteattr(name), "".join(
                    '<arg type=%s direction="%s"/>' % (quoteattr(t), d) for d, t in args)))
            for name, t in interfaces.get(i, {}).items():
                out.append('<property name=%s type=%s access="read"/>' % (quoteattr(name),
                                                                          quoteattr(t)))
            out.append('</interface>')
        for child in self._children(m.path):
            out.append('<node name=%s/>' % quoteattr(child))
        return "".join(out) + '</node>'

    def _children(self, path):
        full = [PATH] + [PATH + "/unit/" + escape(n) for n in self.units]
        prefix = path.rstrip("/") + "/"
        return sorted({p[len(prefix):].split("/")[0] for p in full if p.startswith(prefix)})

    # ---- changes ----

    def put(self, unit):
        """Replaces (or adds) a unit and tells those who listen what changed."""
        old = self.get(unit.name)
        before = old.properties(self)
        self.units[unit.name] = unit
        self._tell(unit, before)

    def _tell(self, unit, before):
        path = PATH + "/unit/" + escape(unit.name)
        after = unit.properties(self)
        for interface, was, now in ((SERVICE, before[1], after[1]), (UNIT, before[0], after[0])):
            if interface == SERVICE and not unit.name.endswith(".service"):
                continue
            changed = {k: self._variant(interface, k, now) for k in PROPERTIES_OF[interface]
                       if now.get(k) != was.get(k) and k != "InvocationID"}
            if changed:
                self._signal(path, PROPERTIES, "PropertiesChanged", "sa{sv}as", interface, changed,
                             ["Conditions", "Asserts"] if interface == UNIT else [])

    def _signal(self, *args):
        # manager_send_job/unit signals: direct connections always, the bus when somebody subscribed.
        for c in list(self._direct):
            c.signal(*args)
        if self._bus and self.subscribers:
            self._bus.signal(*args)
