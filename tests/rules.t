#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of docs/ARCHITECTURE.md that a machine keeps, held against the release objects and the sources; and then,
rule by rule, the proof that a planted violation is seen."""
import filecmp
import glob
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

BUILD = "build/release"  # a sanitizer adds symbols of its own
CC = os.environ.get("CC", "cc")

# What of libc computes on its arguments and does nothing else. (A failed assertion ends the program: it may say so.)
PURE = set("""
fnmatch memcpy memmove memset memcmp memchr memrchr memmem rawmemchr mempcpy strlen strnlen strcmp strncmp strcasecmp strncasecmp strchr strrchr
strchrnul strstr strcasestr strspn strcspn strpbrk stpcpy strcpy strncpy strcat strsep strdup strndup strerror strerror_r
strerrordesc_np strerrorname_np __xpg_strerror_r
snprintf vsnprintf strtol strtoul strtoll strtoull strtod atoi qsort bsearch abs labs
__isoc23_strtol __isoc23_strtoul __isoc23_strtoll __isoc23_strtoull __isoc99_sscanf __isoc23_sscanf sscanf
malloc calloc realloc reallocarray free explicit_bzero inet_pton inet_ntop htons ntohs htonl ntohl
tolower toupper isdigit isalpha isalnum isspace isxdigit __ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc
__memcpy_chk __memmove_chk __memset_chk __mempcpy_chk __strcpy_chk __strncpy_chk __strcat_chk __stpcpy_chk __snprintf_chk __vsnprintf_chk
__explicit_bzero_chk __stack_chk_fail __chk_fail __assert_fail _GLOBAL_OFFSET_TABLE_ __errno_location
""".split())
# libyaml and libcrypto on what lies in memory.
PURE |= set("""
yaml_parser_initialize yaml_parser_set_input_string yaml_parser_parse yaml_parser_load yaml_parser_delete yaml_event_delete
yaml_document_delete yaml_document_get_node yaml_document_get_root_node
EVP_ENCODE_CTX_new EVP_ENCODE_CTX_free EVP_DecodeInit EVP_DecodeUpdate EVP_DecodeFinal
EVP_Digest EVP_Q_mac EVP_sha256 BIO_new_mem_buf BIO_free PEM_read_bio d2i_X509 X509_free CRYPTO_free CRYPTO_clear_free ERR_clear_error
""".split())
CLOCKS = set("clock_gettime clock_getres time gettimeofday timespec_get ftime clock times getrusage sd_event_now "
             "adjtimex clock_adjtime ntp_adjtime ntp_gettime localtime localtime_r nanosleep clock_nanosleep usleep sleep".split())
# What a probe may call of ours beside run_*() and pure functions: reading, through the root that the run gives it.
READS = set("file_read file_read_line file_list file_each file_read_end file_stat limits_lookup "
            "limits_card_enis containerd_config_read clock_ask_kernel files_is_host file_statvfs file_watches_left "
            "ethtool_read kubelet_config_read kubelet_argument".split())


def pure_external(name):
    if name in PURE:
        return True
    return name.startswith("json_") and not re.search(r"file|loadf|dumpf|fd\b|callback|alloc_funcs|seed", name)


# ---- ELF objects: sections are the nodes of the graph of who refers to whom, as every function has its own ----

class Object:
    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            self.data = data = f.read()
        assert data[:6] == b"\x7fELF\x02\x01", f"{path}: not a little-endian ELF64 object"
        shoff, = struct.unpack_from("<Q", data, 40)
        entsize, count, names = struct.unpack_from("<HHH", data, 58)
        raw = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * entsize) for i in range(count)]

        def text(section, offset):
            start = raw[section][4] + offset
            return data[start:data.index(b"\0", start)].decode()

        # name, type, flags, file offset, size
        self.sections = [(text(names, s[0]), s[1], s[2], s[4], s[5]) for s in raw]
        self.symbols, self.relocations = [], {}
        for s in raw:
            if s[1] == 2:  # SHT_SYMTAB
                for at in range(s[4], s[4] + s[5], 24):
                    name, info, _, shndx, value, size = struct.unpack_from("<IBBHQQ", data, at)
                    self.symbols.append((text(s[6], name), info >> 4, info & 15, shndx, value, size))
        for s in raw:
            if s[1] == 4:  # SHT_RELA
                rows = [struct.unpack_from("<QQq", data, at) for at in range(s[4], s[4] + s[5], 24)]
                self.relocations[s[7]] = [(offset, info >> 32) for offset, info, _ in rows]

    @property
    def name(self):
        return os.path.basename(self.path)

    def undefined(self):
        return sorted({s[0] for s in self.symbols if s[3] == 0 and s[0]})

    def loaded(self):  # indices of sections that exist at run time, without unwind tables
        return [i for i, s in enumerate(self.sections) if s[2] & 2 and not s[0].startswith((".eh_frame", ".note", ".rela"))]


def load(paths):
    return [Object(p) for p in sorted(paths)]


def definitions(objects):
    return {s[0]: (o, s[3]) for o in objects for s in o.symbols if s[1] in (1, 2) and 0 < s[3] < 0xff00}


def is_probe_table(o, section):
    return any(s[3] == section and s[2] == 1 and re.fullmatch(r"probe_\w+", s[0]) for s in o.symbols)


def reach(start, defined):
    """Every name that can be reached from these sections, with the way there. The tables of probes are data: what
    they point to is theirs, and nothing pure calls through them (rule 2 looks for that in the sources)."""
    seen, todo, found = set(), [(o, s, ()) for o, s in start], {}
    first = {(o.path, s) for o, s in start}
    while todo:
        o, section, way = todo.pop()
        if (o.path, section) in seen:
            continue
        seen.add((o.path, section))
        if (o.path, section) not in first and is_probe_table(o, section):
            continue
        here = way + (re.sub(r"^\.(text|data\.rel\.ro(\.local)?|rodata)\.", "", o.sections[section][0]),)
        for _, index in o.relocations.get(section, []):
            name, _, _, shndx, _, _ = o.symbols[index]
            if 0 < shndx < 0xff00:
                todo.append((o, shndx, here))
            elif name in defined:
                found.setdefault(name, here)
                todo.append((*defined[name], here))
            elif name:
                found.setdefault(name, here)
    return found


def impure(start, defined):
    return [f"{' -> '.join(way)} -> {name}" for name, way in sorted(reach(start, defined).items())
            if name not in defined and not pure_external(name) or name.startswith("run_")]


# ---- the rules: each returns what is wrong, one line a thing ----

def no_writable_globals(objects):
    bad = []
    for o in objects:
        if o.name == "main.o":
            continue
        for i, (name, _, flags, _, size) in enumerate(o.sections):
            if flags & 3 == 3 and size and not name.startswith(".data.rel.ro"):  # SHF_WRITE | SHF_ALLOC
                owners = [s[0] for s in o.symbols if s[3] == i and s[2] in (1, 6)] or [name]
                bad.append(f"{o.name}: {', '.join(owners)} in {name}")
        bad += [f"{o.name}: {s[0]} is common" for s in o.symbols if s[3] == 0xfff2]
    return bad


def judges(objects, offset):
    for o in objects:
        for name, _, kind, shndx, value, _ in o.symbols:
            if kind != 1 or not re.fullmatch(r"probe_\w+", name) or not 0 < shndx < 0xff00:
                continue
            target = [o.symbols[i] for at, i in o.relocations.get(shndx, []) if at == value + offset]
            yield o, name, target[0] if target else None


def pure_parts(objects, offset, names=("diagnose.o", "schedule.o", "report-diff.o")):
    defined, bad = definitions(objects), []
    by_name = {o.name: o for o in objects}
    for name in names:
        if name not in by_name:
            bad.append(f"{name} is not there")
            continue
        o = by_name[name]
        bad += [f"{name}: {line}" for line in impure([(o, s) for s in o.loaded()], defined)]
    for o, name, target in judges(objects, offset):
        if target is None:
            bad.append(f"{name} has no judge")
            continue
        start = (o, target[3]) if target[3] else defined.get(target[0])
        bad += [f"{name}: {line}" for line in impure([start], defined)] if start else [f"{name}: {target[0]} is nowhere"]
    return bad


def calls_through_tables(sources):
    return [f"{p}:{n}: {line.strip()}" for p in sources for n, line in enumerate(open(p), 1) if re.search(r"(->|\.)(start|judge)\(", line)]


def probe_includes(sources):
    bad = []
    for path in sources:
        for n, line in enumerate(open(path), 1):
            m = re.match(r'\s*#\s*include\s*(["<])([^">]+)', line)
            if m and (m[1] == '"' and m[2] != "probe.h" or m[1] == "<" and re.match(r"curl/|systemd/|ares|libmnl/|openssl/", m[2])):
                bad.append(f"{path}:{n}: {line.strip()}")
    return bad


def probe_calls(probes, objects):
    defined, bad = definitions(objects), []
    for o in probes:
        for name in o.undefined():
            if name.startswith("run_") or name in READS or pure_external(name):
                continue
            if name not in defined:
                bad.append(f"{o.name}: {name}")
            else:
                bad += [f"{o.name}: {name}: {line}" for line in impure([defined[name]], defined)]
    return bad


def one_clock(objects):
    return [f"{o.name}: {name}" for o in objects if o.name != "clock.o" for name in o.undefined() if name in CLOCKS]


def no_cycle(objects, n_layers):
    where = definitions(objects).get("needs")
    if not where:
        return ["there is no table needs[]"]
    o, shndx = where
    value, size = next((s[4], s[5]) for s in o.symbols if s[0] == "needs")
    if size != 4 * n_layers:
        return [f"needs[] has {size} bytes for {n_layers} layers"]
    rows = struct.unpack_from(f"<{n_layers}I", o.data, o.sections[shndx][3] + value)
    return [f"layer {i} needs a layer that is not earlier: {row:#x}" for i, row in enumerate(rows) if row >> i]


def told(findings, catalogs, fixtures, scenarios):
    """fixtures: {directory: codes}; scenarios: the text of all; catalogs: {language: text}."""
    known, bad = {f["code"] for f in findings}, []
    proven = set().union(*fixtures.values()) if fixtures else set()
    for f in findings:
        code = f["code"]
        bad += [f"{code}: no {key}" for key in ("decided_by", "remedy", "layer", "severity", "kind", "message_id") if not f.get(key)]
        if not f["raised_by"]:
            continue
        for language, text in catalogs.items():
            m = re.search(rf"^-- {f['message_id']}\nSubject: (.+)\n(?:.+\n)+\n((?:(?!-- ).*\n?)+)", text, re.MULTILINE)
            if not m or len(m[2].strip()) < 40:
                bad.append(f"{code}: nothing in the {language} journal catalogue")
            elif language == "ko" and not re.search("[가-힣]", m[1] + m[2]):
                bad.append(f"{code}: no Korean in the Korean catalogue")
        if code not in proven and not re.search(rf"\b{code}\b", scenarios):
            bad.append(f"{code}: no fixture and no scenario names it")
    bad += [f"{d}: {code} is not in the catalogue" for d, codes in fixtures.items() for code in sorted(codes - known)]
    return bad


def generated(build, committed, generator="packaging/generate"):
    bad = []
    with tempfile.TemporaryDirectory() as d:
        r = subprocess.run([sys.executable, generator, build, d], stderr=subprocess.PIPE)
        if r.returncode:
            return [r.stderr.decode()]
        for folder, _, names in os.walk(d):
            for name in names:
                new = os.path.join(folder, name)
                old = os.path.join(committed, os.path.relpath(new, d))
                if not os.path.exists(old) or not filecmp.cmp(new, old, shallow=False):
                    bad.append(f"{os.path.relpath(new, d)} is out of date: make generate")
    return bad


def probes_stand_alone(list_h, probe_sources, other_sources):
    """One file and one line of list.h a probe, and nothing else knows it by name."""
    listed = re.findall(r"^PROBE\((\w+)\)", open(list_h).read(), re.MULTILINE)
    defined = {m: p for p in probe_sources for m in re.findall(r"^const struct probe probe_(\w+)\b", open(p).read(), re.MULTILINE)}
    bad = [f"{name} is listed and defined nowhere" for name in listed if name not in defined]
    bad += [f"{path} defines {name}, which is not listed" for name, path in defined.items() if name not in listed]
    bad += [f"{p} defines {list(defined.values()).count(p)} probes" for p in probe_sources if list(defined.values()).count(p) != 1]
    for path in other_sources:
        bad += [f"{path}: {m}" for m in re.findall(r"\bprobe_(?:%s)\b" % "|".join(listed), open(path).read())]
    return bad


# ---- TAP ----

class Tap:
    n = failed = 0

    def ok(self, good, name, lines=()):
        self.n += 1
        self.failed += not good
        print(f"{'' if good else 'not '}ok {self.n} - {name}")
        for line in [] if good else list(lines)[:40]:
            print("#", line)

    def clean(self, name, bad):
        self.ok(not bad, name, bad)

    def seen(self, name, bad, what=""):
        self.ok(bool(bad) and any(what in line for line in bad), f"seen when planted: {name}", bad or ["nothing was found"])


def the_rules(t):
    tables = json.loads(subprocess.run([BUILD + "/packaging/tables"], check=True, stdout=subprocess.PIPE).stdout)
    findings = json.loads(subprocess.run([BUILD + "/nodewhy", "findings", "--json"], check=True, stdout=subprocess.PIPE).stdout)

    def built(pattern):  # objects of sources that are gone do not count
        return load(f"{BUILD}/{p[:-2]}.o" for p in glob.glob(pattern))

    probes = built("probes/*.c")
    objects = built("daemon/*.c") + probes
    sources, daemon = sorted(glob.glob("probes/*.c")), sorted(glob.glob("daemon/*.c"))
    catalogs = {"en": open("packaging/catalog/nodewhy.catalog").read(), "ko": open("packaging/catalog/nodewhy.ko.catalog").read()}
    fixtures = {os.path.basename(os.path.dirname(p)): {f["code"] for f in json.load(open(p))["findings"]}
                for p in glob.glob("tests/fixtures/*/findings.json")}
    scenarios = "\n".join(open(p, errors="replace").read() for p in glob.glob("tests/scenarios/**/*", recursive=True)
                          if os.path.isfile(p) and "__pycache__" not in p)

    t.clean("1: no writable global outside main.o", no_writable_globals(objects))
    found = list(judges(objects, tables["judge_offset"]))
    t.ok(len(found) == len(tables["probes"]), "2: every probe's judge is found", [str(f[1]) for f in found])
    t.clean("2: diagnose, schedule, report-diff and every judge are pure", pure_parts(objects, tables["judge_offset"]))
    t.clean("2: and call nothing through a table", calls_through_tables(["daemon/diagnose.c", "daemon/schedule.c", "daemon/report-diff.c"]))
    t.clean("3: probes include probe.h and the system", probe_includes(sources))
    t.clean("3: probes only ask through their run", probe_calls(probes, objects))
    t.clean("4: only clock.c reads the clock", one_clock(objects))
    t.clean("5: needs[] has no cycle", no_cycle(objects, len(tables["layers"])))
    t.clean("6: every code that is raised is told and proven", told(findings, catalogs, fixtures, scenarios))
    t.clean("7: what is generated is up to date", generated(BUILD, "."))
    t.clean("7: a probe is one file and one line", probes_stand_alone("probes/list.h", sources, daemon))


# ---- the proof that each can fail ----

PLANT = """
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
struct o { int code; char text[20]; };
struct probe { const char *name; int (*start)(void *); int (*judge)(const struct o *o); };
extern int run_read(void *r), helper(const struct o *o), file_replace(const char *p), net_pure(int a);
"""


def compile_into(d, name, text):
    source, target = os.path.join(d, name + ".c"), os.path.join(d, name + ".o")
    with open(source, "w") as f:
        f.write(PLANT + text)
    subprocess.run([CC, "-D_GNU_SOURCE", "-O2", "-fPIE", "-ffunction-sections", "-fdata-sections", "-c", "-o", target, source], check=True)
    return target


def probe_that(body, extra="", start="return run_read(r);"):
    return extra + f"""
static int start(void *r) {{ {start} }}
static int judge(const struct o *o) {{ {body} }}
extern const struct probe probe_x;
const struct probe probe_x = {{.name = "x", .start = start, .judge = judge}};
"""


def planted(t, d):
    def objects(**sources):
        return load([compile_into(d, name.replace("_", "-"), text) for name, text in sources.items()])

    lib = {"lib": "int run_read(void *r) { return open(r, 0); }\nint net_pure(int a) { return a + 1; }\n"
                  "int file_replace(const char *p) { return open(p, O_CREAT, 0); }\n"
                  "int helper(const struct o *o) { return open(o->text, 0); }\n"}

    t.seen("1, a counter", no_writable_globals(objects(a="int counter;")), "counter")
    t.seen("1, a static", no_writable_globals(objects(a="int f(void) { static int n = 3; return n++; }")), "n")
    t.seen("1, a thread's own", no_writable_globals(objects(a="__thread int mine;")), "mine")
    t.clean("1 lets constant tables of pointers be",
            no_writable_globals(objects(a='extern const char *const names[]; const char *const names[] = {"a", "b"};', main="int anything;")))

    offset = 16
    t.clean("2 lets a judge compute", pure_parts(objects(**lib, p=probe_that("return strcmp(o->text, \"a\") ? net_pure(o->code) : 1;")), offset, ()))
    t.seen("2, a judge that asks the time", pure_parts(objects(**lib, p=probe_that("return (int) time(NULL);")), offset, ()), "time")
    t.seen("2, a judge that asks its run", pure_parts(objects(**lib, p=probe_that("return run_read((void *) o);")), offset, ()), "run_read")
    t.seen("2, a judge that reads through another file", pure_parts(objects(**lib, p=probe_that("return helper(o);")), offset, ()), "open")
    t.seen("2, a judge that reads through a static function",
           pure_parts(objects(**lib, p=probe_that("return deep(o);", "__attribute__((noinline)) static int deep(const struct o *o) { return open(o->text, 0); }")), offset, ()), "deep")
    t.seen("2, a judge that calls through its own table",
           pure_parts(objects(**lib, p=probe_that("return table[o->code & 1](o);", "static int (*const table[])(const struct o *) = {helper, 0};")), offset, ()), "open")
    t.seen("2, a judge that prints", pure_parts(objects(**lib, p=probe_that("return puts(o->text);")), offset, ()), "puts")
    t.seen("2, a probe without a judge", pure_parts(objects(p="extern const struct probe probe_x; const struct probe probe_x = {0};"), offset, ()), "no judge")
    t.seen("2, a diagnosis that opens a file", pure_parts(objects(**lib, diagnose="int diagnose(const struct o *o) { return helper(o); }"), offset, ("diagnose.o",)), "open")
    t.seen("2, a diagnosis that is gone", pure_parts([], offset, ("diagnose.o",)), "not there")
    call = os.path.join(d, "call.c")
    with open(call, "w") as f:
        f.write("int f(struct probe *p) { return p->start(0); }\n")
    t.seen("2, a call through the table of probes", calls_through_tables([call]))

    include = os.path.join(d, "include.c")
    for what, bad in (('"http.h"', True), ("<curl/curl.h>", True), ('"probe.h"', False), ("<string.h>", False)):
        with open(include, "w") as f:
            f.write(f"#include {what}\n")
        (t.seen if bad else t.clean)(f"3, #include {what}" if bad else f"3 lets #include {what} be", probe_includes([include]))
    for what, body in (("printing", 'return printf("x");'), ("writing", 'return file_replace("x");'), ("opening", "return open(r, 0);"),
                       ("the clock", "return (int) time(0);")):
        all_of = objects(**lib, p=probe_that("return 0;", start=body))
        t.seen(f"3, {what}", probe_calls([o for o in all_of if o.name == "p.o"], all_of))
    all_of = objects(**lib, p=probe_that("return 0;", start="return run_read(r) + net_pure(1);"))
    t.clean("3 lets a probe ask its run", probe_calls([o for o in all_of if o.name == "p.o"], all_of))

    t.seen("4, a second reader of the clock", one_clock(objects(a="int f(struct timespec *t) { return clock_gettime(CLOCK_BOOTTIME, t); }")), "clock_gettime")
    t.clean("4 lets clock.c read it", one_clock(objects(clock="int f(struct timespec *t) { return clock_gettime(CLOCK_BOOTTIME, t); }")))
    needs = "extern const unsigned needs[3]; const unsigned needs[3] = {%s};"
    t.seen("5, a later layer", no_cycle(objects(diagnose=needs % "0, 1, 1 | 2 | 4"), 3), "layer 2")
    t.seen("5, a table that is too short", no_cycle(objects(diagnose=needs % "0, 1, 2"), 4))
    t.seen("5, no table", no_cycle([], 3))
    t.clean("5 lets earlier layers be", no_cycle(objects(diagnose=needs % "0, 1, 1 | 2"), 3))

    finding = {"code": "DnsDead", "decided_by": "x", "remedy": "y", "layer": "dns", "severity": "fatal", "kind": "cause", "message_id": "0a" * 16, "raised_by": "dns"}
    english = "-- " + "0a" * 16 + "\nSubject: It is dead\nDefined-By: nodewhy\n\n" + "It says nothing at all. " * 5 + "\n"
    korean = english.replace("It says nothing at all.", "응답이 전혀 없습니다.")
    good = {"en": english, "ko": korean}
    t.clean("6 lets a whole code be", told([finding], good, {"dns-dead": {"DnsDead"}}, ""))
    t.clean("6 takes a scenario for a fixture", told([finding], good, {}, 'expect("DnsDead")'))
    t.seen("6, no fixture", told([finding], good, {}, "DnsDeadly"), "no fixture")
    t.seen("6, no remedy", told([dict(finding, remedy="")], good, {"d": {"DnsDead"}}, ""), "no remedy")
    t.seen("6, no catalogue entry", told([finding], {"en": "", "ko": korean}, {"d": {"DnsDead"}}, ""), "en journal")
    t.seen("6, no Korean", told([finding], {"en": english, "ko": english}, {"d": {"DnsDead"}}, ""), "no Korean")
    t.seen("6, a fixture of an unknown code", told([finding], good, {"d": {"DnsDead", "Ghost"}}, ""), "Ghost")

    committed = os.path.join(d, "committed")
    subprocess.run([sys.executable, "packaging/generate", BUILD, committed], check=True)
    t.clean("7 lets fresh files be", generated(BUILD, committed))
    with open(os.path.join(committed, "docs/FINDINGS.md"), "a") as f:
        f.write("edited by hand\n")
    t.seen("7, a generated file edited by hand", generated(BUILD, committed), "FINDINGS.md")
    os.unlink(os.path.join(committed, "packaging/catalog/nodewhy.ko.catalog"))
    t.seen("7, a generated file that is gone", generated(BUILD, committed), "nodewhy.ko.catalog")

    def write(name, text):
        with open(os.path.join(d, name), "w") as f:
            f.write(text)
        return os.path.join(d, name)

    a, b = write("pa.c", "const struct probe probe_a = {0};\n"), write("pb.c", "const struct probe probe_b = {0};\n")
    both, one = write("both.h", "PROBE(a)\nPROBE(b)\n"), write("one.h", "PROBE(a)\n")
    t.clean("7 lets listed probes be", probes_stand_alone(both, [a, b], [write("m.c", "probes[0]\n")]))
    t.seen("7, a probe that is not listed", probes_stand_alone(one, [a, b], []), "not listed")
    t.seen("7, a listed probe that is not there", probes_stand_alone(both, [a], []), "defined nowhere")
    t.seen("7, a daemon that knows a probe by name", probes_stand_alone(both, [a, b], [write("m.c", "if (p == &probe_b)\n")]), "probe_b")


def main():
    t = Tap()
    the_rules(t)
    with tempfile.TemporaryDirectory() as d:
        planted(t, d)
    print(f"1..{t.n}")
    return t.failed != 0


if __name__ == "__main__":
    sys.exit(main())
