# SPDX-License-Identifier: Apache-2.0
"""What every report has to keep, whatever is wrong with the node: the status file's schema, the
causal chain, the conditions. Each function returns a list of what is broken, in words."""

import os
import re

HERE = os.path.dirname(os.path.abspath(__file__))
SEVERITIES = ("notice", "degraded", "fatal")
LAYERS = ("host clock link route metadata credentials dns endpoint bootstrap runtime apiserver "
          "identity kubelet cni address podnet lifecycle").split()
STATES = ("healthy", "starting", "degraded", "broken", "blind")
STAGES = ("booting", "bootstrapping", "joining", "networking", "ready")
OUTCOMES = ("ok timeout refused unreachable reset absent denied malformed untrusted expired exhausted "
            "slow foreign failed skipped unknown").split()
EXIT = {"healthy": 0, "starting": 0, "degraded": 1, "broken": 2, "blind": 3}
# Conditions that the probes built so far decide.
JUDGED = ("HostNetworkProblem", "InstanceMetadataProblem", "DnsProblem", "AwsEndpointProblem",
          "CniProblem", "PodAddressProblem")
SECRETS = ("s3cr3t", "ASIAEXAMPLE")

TEXT, NUMBER, NULL, LIST, DICT = (str,), (int, float), (type(None),), (list,), (dict,)
TIME = "time"
SCHEMA = {
    "": {"schema": TEXT, "written_at": TIME, "boot_id": TEXT, "uptime_s": NUMBER,
         "valid_for_s": NUMBER, "seq": NUMBER, "node": DICT, "verdict": DICT, "findings": LIST,
         "conditions": LIST, "network": DICT, "probes": LIST},
    "node": {k: TEXT + NULL for k in (
        "instance_id instance_type region zone ami_id partition private_dns node_name cluster "
        "runtime kubelet_version cni_version").split()},
    "verdict": {"state": TEXT, "stage": TEXT, "root": TEXT + NULL, "subject": TEXT + NULL,
                "summary": TEXT + NULL, "remedy": TEXT + NULL, "since": "time?",
                "deadline_s": NUMBER + NULL},
    "findings[]": {"code": TEXT, "layer": TEXT, "condition": TEXT + NULL, "severity": TEXT,
                   "subject": TEXT + NULL, "summary": TEXT, "remedy": TEXT,
                   "because": TEXT + NULL, "because_subject": TEXT + NULL, "since": TIME,
                   "last_seen": TIME, "seen": NUMBER, "evidence": DICT},
    "conditions[]": {"type": TEXT, "status": TEXT, "reason": TEXT + NULL, "message": TEXT,
                     "since": "time?"},
    "network": dict({"enis": LIST, "limits_source": TEXT + NULL}, **{k: NUMBER + NULL for k in (
        "enis_attached enis_max ipv4_per_eni ips_assigned ips_max pod_ips_in_use max_pods "
        "max_pods_by_type").split()}),
    "enis[]": {"mac": TEXT, "name": TEXT + NULL, "eni_id": TEXT + NULL, "device": NUMBER + NULL,
               "card": NUMBER + NULL, "subnet_id": TEXT + NULL, "ipv4": TEXT + NULL,
               "ips_assigned": NUMBER + NULL, "prefixes": NUMBER + NULL, "pod_ips": NUMBER + NULL,
               "managed_by": TEXT + NULL},
    "probes[]": {"name": TEXT, "layer": TEXT, "subject": TEXT + NULL, "outcome": TEXT,
                 "code": NUMBER + TEXT + NULL, "took_ms": NUMBER, "at": NUMBER, "detail": TEXT + NULL},
}


def catalogue():
    """code -> (layer, condition or None, severity, kind), from daemon/catalogue.def."""
    found = {}
    path = os.path.join(HERE, "../../daemon/catalogue.def")
    with open(path) as f:
        for m in re.finditer(r"^FINDING\((\w+),\s*(\w+),\s*(\w+),\s*(\w+),\s*(\w+)", f.read(), re.M):
            code, layer, condition, severity, kind = m.groups()
            found[code] = (layer.lower(), None if condition == "None" else condition,
                           severity.lower(), kind.lower())
    return found


def _typed(where, value, schema, bad):
    for key, want in schema.items():
        if key not in value:
            bad.append("%s.%s is missing" % (where, key))
            continue
        v = value[key]
        if want in (TIME, "time?"):
            if v is None and want == "time?":
                continue
            if not isinstance(v, str) or not re.fullmatch(
                    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", v):
                bad.append("%s.%s is not a UTC time: %r" % (where, key, v))
        elif not isinstance(v, want) or isinstance(v, bool):
            bad.append("%s.%s has the wrong type: %r" % (where, key, v))
    return not bad


def schema(doc):
    bad = []
    if not isinstance(doc, dict):
        return ["not a JSON object: %r" % (doc,)]
    if not _typed("status", doc, SCHEMA[""], bad):
        return bad
    if doc["schema"] != "nodewhy.status/1":
        bad.append("schema is %r" % doc["schema"])
    for part in ("node", "verdict", "network"):
        _typed(part, doc[part], SCHEMA[part], bad)
    for part, items in (("findings", doc["findings"]), ("conditions", doc["conditions"]),
                        ("probes", doc["probes"]), ("enis", doc["network"].get("enis", []))):
        for i, item in enumerate(items):
            _typed("%s[%d]" % (part, i), item, SCHEMA[part + "[]"], bad)
    return bad


def meaning(doc):
    """The promises of CONTRACT.md sections 3, 4 and 6 that hold for any report."""
    bad, codes = [], catalogue()
    v, findings = doc["verdict"], doc["findings"]
    if v["state"] not in STATES:
        bad.append("unknown state %r" % v["state"])
    if v["stage"] not in STAGES:
        bad.append("unknown stage %r" % v["stage"])
    if v["state"] in ("healthy", "starting") and (v["root"] or any(
            f["severity"] != "notice" for f in findings)):
        bad.append("%s, with root %r and findings %s" % (v["state"], v["root"],
                                                        [f["code"] for f in findings]))
    if len((v["summary"] or "").encode()) > 160:
        bad.append("verdict.summary is longer than 160 bytes")
    worst, consequence_seen = -1, False
    names = [(f["code"], f["subject"]) for f in findings]
    if len(set(names)) != len(names):
        bad.append("a finding comes twice: %s" % names)
    for f in findings:
        known = codes.get(f["code"])
        if not known:
            bad.append("%s is not in the catalogue" % f["code"])
            continue
        if (f["layer"], f["condition"], f["severity"]) != known[:3]:
            bad.append("%s: layer, condition, severity %r, the catalogue says %r" % (
                f["code"], (f["layer"], f["condition"], f["severity"]), known[:3]))
        worst = max(worst, SEVERITIES.index(f["severity"]) if f["severity"] in SEVERITIES else -1)
        if not f["summary"] or len(f["summary"].encode()) > 160 or "\n" in f["summary"]:
            bad.append("%s: summary is empty, long or has lines: %r" % (f["code"], f["summary"]))
        if not f["remedy"] or "\n" in f["remedy"] or re.search(r"\{\w+\}", f["remedy"]):
            bad.append("%s: remedy is empty, has lines or unfilled ids: %r" % (f["code"], f["remedy"]))
        if f["because"] is None:
            if consequence_seen:
                bad.append("roots are not first: %s" % [x["code"] for x in findings])
        else:
            consequence_seen = True
            bad += chain(f, findings)[1]
        for k, e in f["evidence"].items():
            if not isinstance(e, (str, int, float)):
                bad.append("%s: evidence %s is %r" % (f["code"], k, e))
    if worst == 2 and v["state"] != "broken" or worst == 1 and v["state"] != "degraded":
        bad.append("state %s does not follow the worst finding" % v["state"])
    roots = [f for f in findings if f["because"] is None and f["severity"] != "notice"]
    ranks = [SEVERITIES.index(f["severity"]) for f in roots]
    if ranks != sorted(ranks, reverse=True):
        bad.append("roots are not worst first: %s" % [f["code"] for f in roots])
    if v["state"] in ("degraded", "broken"):
        if not roots or v["root"] != roots[0]["code"]:
            bad.append("verdict.root is %r, the first root finding %r" % (
                v["root"], roots and roots[0]["code"]))
        if not v["remedy"] or not v["summary"]:
            bad.append("a verdict without summary or remedy")
    types = [c["type"] for c in doc["conditions"]]
    if len(set(types)) != len(types):
        bad.append("a condition comes twice: %s" % types)
    for c in doc["conditions"]:
        if c["status"] not in ("True", "False", "Unknown"):
            bad.append("condition %s is %r" % (c["type"], c["status"]))
        true = [f["code"] for f in roots if f["condition"] == c["type"]]
        if bool(true) != (c["status"] == "True"):
            bad.append("condition %s is %s, its root findings are %s" % (c["type"], c["status"], true))
    for t in JUDGED:
        if t not in types:
            bad.append("condition %s is missing" % t)
    for p in doc["probes"]:
        if p["outcome"] not in OUTCOMES or p["layer"] not in LAYERS:
            bad.append("probe %s: outcome %r, layer %r" % (p["name"], p["outcome"], p["layer"]))
        if not 0 < p["at"] <= doc["uptime_s"] + 0.001:      # on the clock of uptime_s
            bad.append("probe %s was at %r, it is %r" % (p["name"], p["at"], doc["uptime_s"]))
    return bad


def chain(finding, findings):
    """The codes from a finding to its root, and what is wrong with that walk."""
    walk, f = [finding["code"]], finding
    while f["because"] is not None:
        causes = [x for x in findings if x["code"] == f["because"]
                  and f["because_subject"] in (None, x["subject"])]
        if not causes:
            return walk, ["%s is because of %s (%s), which is not a finding" % (
                f["code"], f["because"], f["because_subject"])]
        f = causes[0]
        if len(walk) > 20:
            return walk, ["%s: because goes in a circle: %s" % (finding["code"], walk)]
        walk.append(f["code"])
    return walk, []


def secrets(text):
    return ["a secret is in the output: %s" % s for s in SECRETS if s in text]


def condition_file(kind, lines, uptime):
    """CONTRACT.md section 4; uptime is the node's own."""
    if lines is None:
        return ["conditions/%s is missing" % kind]
    if len(lines) != 4 or lines[3] != "":
        return ["conditions/%s has not three lines: %r" % (kind, lines)]
    bad = []
    if lines[0] not in ("0", "1", "2"):
        bad.append("conditions/%s: line 1 is %r" % (kind, lines[0]))
    if not re.fullmatch(r"[ -$&-~]{1,80}", lines[1]):
        bad.append("conditions/%s: line 2 is not 1 to 80 bytes of printable ASCII without %%: %r"
                   % (kind, lines[1]))
    if lines[0] == "1" and not re.match(r"[A-Za-z0-9]+: ", lines[1]):
        bad.append("conditions/%s: line 2 does not begin with a code: %r" % (kind, lines[1]))
    if not re.fullmatch(r"[0-9]+", lines[2]):
        bad.append("conditions/%s: line 3 is %r" % (kind, lines[2]))
    elif not uptime - 2 < int(lines[2]) <= uptime + 600:
        bad.append("conditions/%s: believable until %s at an uptime of %d" % (kind, lines[2], uptime))
    return bad


def metrics(text):
    """Prometheus text format, line by line, each sample under its own TYPE."""
    bad, types, seen = [], {}, set()
    label = r'[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*"'
    sample = re.compile(r"([a-zA-Z_:][\w:]*)(\{%s(?:,%s)*,?\})? (\S+)" % (label, label))
    if not text.endswith("\n"):
        bad.append("metrics do not end with a newline")
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            if name in types or kind not in ("gauge", "counter", "histogram", "summary", "untyped"):
                bad.append("bad TYPE line: %s" % line)
            types[name] = kind
        elif line and not line.startswith("#"):
            m = sample.fullmatch(line)
            if not m:
                bad.append("not a sample: %s" % line)
                continue
            if m.group(1) not in types:
                bad.append("no TYPE before %s" % m.group(1))
            if not m.group(1).startswith("nodewhy_"):
                bad.append("a foreign name: %s" % m.group(1))
            try:
                float(m.group(3))
            except ValueError:
                bad.append("no number: %s" % line)
            if m.group(1, 2) in seen:
                bad.append("twice: %s" % line)
            seen.add(m.group(1, 2))
    if not seen:
        bad.append("no metric at all")
    return bad
