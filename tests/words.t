#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every code of the catalogue has words in both languages, and `nodewhy explain` says them within 80 columns."""
import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unicodedata

NODEWHY = os.environ.get("NODEWHY") or os.path.join(os.environ.get("B", "build/release"), "nodewhy")
KNOWN = {"instance_id", "instance_type", "region", "mac", "eni_id", "subnet_id", "subject"}
HANGUL = re.compile("[가-힣]")
BYTES = {"en": 420, "ko": 560}
HEADS = {"en": ("What it means", "How it was decided", "What else it could be", "What to type", "If nothing is done"),
         "ko": ("의미", "판단 근거", "혼동하기 쉬운 것", "입력할 명령", "그대로 두면")}
# Words in camel case that look like codes: states, error codes and programs of AWS and Kubernetes
FOREIGN = set("""NotReady NodeStatusUnknown DiskPressure ContainerCreating ImagePullBackOff MemAvailable CoreDNS NodeConfig ClientHello
RequestLimitExceeded InvalidClientTokenId SignatureDoesNotMatch ExpiredToken AccessDenied UnauthorizedOperation NodeLocal NetworkManager
DescribeInstances DescribeInstanceTypes DescribeSubnets GetCallerIdentity LimitNOFILE NodeCreationFailure""".split())

loader = importlib.machinery.SourceFileLoader("generate", "packaging/generate")
sys.dont_write_bytecode = True
generate = importlib.util.module_from_spec(importlib.util.spec_from_loader("generate", loader))
loader.exec_module(generate)

n = bad = 0


def ok(good, name, lines=()):
    global n, bad
    n += 1
    bad += not good
    print(f"{'' if good else 'not '}ok {n} - {name}")
    for line in [] if good else list(lines)[:20]:
        print("#", line)


def clean(name, faults):
    ok(not faults, name, faults)


def placeholders(text):
    return set(re.findall(r"\{([a-z_]+)\}", text)) - KNOWN


def prose_faults(words, codes):
    for code, w in words.items():
        for language in ("en", "ko"):
            for part in ("title", *generate.PARTS):
                text, where = w[language][part], f"{code} {language} {part}"
                if not 10 <= len(text.encode()) <= (100 if part == "title" else BYTES[language]):
                    yield f"{where}: {len(text.encode())} bytes"
                if bool(HANGUL.search(text)) != (language == "ko"):
                    yield f"{where}: not in its language"
                if placeholders(text):
                    yield f"{where}: {placeholders(text)}"
                if part == "confused":
                    for name in set(re.findall(r"\b[A-Z][a-z]+(?:[A-Z0-9]+[a-z0-9]*)+\b", text, re.ASCII)) - codes - FOREIGN:
                        yield f"{where}: {name} is no code"


def shell(command):
    return subprocess.run(["bash", "-n", "-c", command], stderr=subprocess.PIPE).stderr.decode()


def command_faults(words):
    for code, w in words.items():
        for command in w["type"]:
            shown = generate.readable(command, "x" * 12)
            if placeholders(command):
                yield f"{code}: {command}: {placeholders(command)}"
            if HANGUL.search(command) or not command.isascii():
                yield f"{code}: {command}: not plain"
            if max(map(len, shown.split())) > 70:
                yield f"{code}: {command}: a word that cannot be kept whole"
            if len(shown) > 72 and any(" " in q for q in re.findall(r"'[^']*'|\"[^\"]*\"", command)):
                yield f"{code}: {command}: would be broken within quotes"
    commands = [re.sub(r"\{\w+\}", "x", c) for w in words.values() for c in w["type"]]
    if shell("\n".join(commands)):
        yield from filter(None, map(shell, commands))



def width(line):
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)


def explain(*arguments, **environment):
    env = {k: v for k, v in os.environ.items() if k not in ("LC_ALL", "LC_MESSAGES", "LANG")}
    r = subprocess.run([NODEWHY, "explain", *arguments], env={**env, **environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return r.returncode, r.stdout.decode()


def explain_faults(codes, root):
    for code in codes:
        for language in ("en", "ko"):
            status, text = explain(code, "--lang", language, "--root", root)
            where = f"{code} {language}"
            if status:
                yield f"{where}: exit {status}"
            if max(map(width, text.split("\n"))) > 80:
                yield f"{where}: {max(map(width, text.split(chr(10))))} columns"
            if [h for h in HEADS[language] if f"\n{h}\n  " not in text]:
                yield f"{where}: a part is missing"
            if re.search(r"\{(%s)\}" % "|".join(KNOWN), text):
                yield f"{where}: not filled in"


findings = json.loads(subprocess.run([NODEWHY, "findings", "--json"], check=True, stdout=subprocess.PIPE).stdout)
codes = [f["code"] for f in findings]
words = generate.load_words("packaging/catalog/words")

clean("every code has all five parts in both languages", generate.lacking(codes + ["verdict", "heartbeat"], words))
print(f"# {len(codes)} codes, {sum(len(w['type']) for w in words.values())} commands")
clean("each is in its language, bounded, and names only what exists", list(prose_faults(words, set(codes))))
clean("every command is one a shell reads and can be shown whole", list(command_faults(words)))
clean("every remedy is one line that can be typed",
      [f"{f['code']}: {f['remedy']}" for f in findings
       if not 20 <= len(f["remedy"].encode()) <= 380 or "\n" in f["remedy"] or "{" in re.sub(r"\{(%s)\}" % "|".join(KNOWN), "", f["remedy"])])

# the same checks see what is wrong
some = {"SubnetLow": json.loads(json.dumps(words["SubnetLow"]))}
ok(generate.lacking(["SubnetLow", "DiskFull"], some) == ["no words for DiskFull"], "a code without words is seen")
del some["SubnetLow"]["ko"]["decided"]
ok(generate.lacking(["SubnetLow"], some) == ["SubnetLow: no decided in ko"], "a missing part is seen")
some["SubnetLow"]["ko"]["decided"] = "English words only, {nonsense}"
some["SubnetLow"]["en"]["confused"] = "SubnetExhaustion, which is no code."
ok(len(list(prose_faults(some, set(codes)))) == 3, "a wrong language, placeholder and code are seen", prose_faults(some, set(codes)))
some["SubnetLow"]["type"] = ["echo 'open", "aws {nonsense}", "x" * 71]
ok(len(list(command_faults(some))) == 3, "commands that are none are seen", command_faults(some))

with tempfile.TemporaryDirectory() as d:
    clean("explain says all of it within 80 columns, without a status", list(explain_faults(codes, d)))
    status = json.loads(subprocess.run([NODEWHY, "replay", "tests/fixtures/endpoint-timeout/capture.json", "--json"], stdout=subprocess.PIPE).stdout)
    status["node"].update(instance_id="i-0123456789abcdef0", region="ap-northeast-2")
    os.makedirs(os.path.join(d, "run/nodewhy"))
    with open(os.path.join(d, "run/nodewhy/status.json"), "w") as f:
        json.dump(status, f)
    clean("and with one", list(explain_faults(codes[::5], d)))
    text = explain("DiskFull", "--root", d)[1]
    ok("i-0123456789abcdef0" in text and "ap-northeast-2" in text and " \\\n" in text, "commands hold this node's ids, broken so that they can be copied", text.split("\n"))
    subject = status["findings"][0]["subject"]
    text = explain("EndpointTimeout", "--root", d)[1]
    ok(status["findings"][0]["code"] == "EndpointTimeout" and f"The name of {subject} resolves" in text, "and the subject of the finding that stands", text.split("\n"))
    with open(os.path.join(d, "run/nodewhy/status.json"), "w") as f:
        f.write('{"findings": [{"code": 7}, {"code": "DiskFull", "subject": "\\u001b[2J"}], "node": 3}')
    status, text = explain("DiskFull", "--root", d)
    ok(status == 0 and "\033" not in text, "a status file that lies does no harm", text.split("\n"))

for environment, arguments, language in (({}, (), "en"), ({"LANG": "ko_KR.UTF-8"}, (), "ko"), ({"LANG": "ko_KR.UTF-8", "LC_ALL": "C"}, (), "en"),
                                         ({"LC_MESSAGES": "ko", "LANG": "en_US.UTF-8"}, (), "ko"), ({"LC_ALL": "", "LC_MESSAGES": "ko_KR"}, (), "ko"),
                                         ({"LC_ALL": "ko_KR.UTF-8"}, ("--lang", "en"), "en"), ({"LC_ALL": "C"}, ("--lang", "ko"), "ko")):
    ok(f"\n{HEADS[language][0]}\n" in explain("ImdsSlow", *arguments, **environment)[1], f"{environment} {arguments} speaks {language}")
ok([explain()[0], explain("ImdsSlow", "--lang", "fr")[0], explain("ImdsSlow", "--lang")[0], explain("Nonsense")[0]] == [64] * 4, "wrong usage is 64")
print(f"1..{n}")
sys.exit(bad > 0)
