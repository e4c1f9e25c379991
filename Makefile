# SPDX-License-Identifier: Apache-2.0
#
# make            build/release/nodewhy            make SAN=1 ...   the same under ASan and UBSan, in build/san
# make deps       install what all of this needs   make demo        a node that breaks, and what nodewhy says of it
# make check      tests that need no root          make test        all tests, as root
# make lint       analysers, formatters            make bench       the figures of docs/BENCH.md
# make generate   man pages, catalogues, docs      make fuzz        TARGET=name TIME=seconds
# make install    DESTDIR= PREFIX=/usr             make run         the daemon in the foreground
# make deb rpm    packages of the commit that is checked out, in build/packages

CFLAGS     ?= -O2 -g
PKG_CONFIG ?= pkg-config
PYTHON     ?= python3
PREFIX     ?= /usr
SYSCONFDIR ?= /etc
UNITDIR    ?= $(PREFIX)/lib/systemd
TARGET     ?= toml
TIME       ?= 60

PKGS    := libsystemd libcurl jansson libmnl libcares libssl libcrypto yaml-0.1 zlib
VERSION := $(or $(shell git --no-optional-locks describe --tags --always --dirty 2>/dev/null),$(shell cat VERSION 2>/dev/null),unknown)

B := build/release
ifeq ($(SAN),1)
B := build/san
VARIANT := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
else
VARIANT := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
endif

# Ours is appended, never assigned: what a distribution sets always survives.
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wformat=2 -Wundef -Wpointer-arith \
        -Wwrite-strings -Wvla -Wimplicit-fallthrough -Wno-missing-field-initializers -Wno-unused-parameter \
        -Werror=implicit-function-declaration -Werror=return-type -Werror=incompatible-pointer-types
override CPPFLAGS += -D_GNU_SOURCE -Idaemon $(shell $(PKG_CONFIG) --cflags $(PKGS) 2>/dev/null)
override CFLAGS   += -std=gnu11 -fno-common -fstack-protector-strong -fstack-clash-protection -fPIE \
                     -fno-strict-aliasing -ffunction-sections -fdata-sections $(WARN) $(WERROR) $(VARIANT)
override LDFLAGS  += -pie -Wl,-z,relro,-z,now,-z,noexecstack -Wl,--gc-sections -Wl,--as-needed \
                     -Wl,--fatal-warnings $(VARIANT)
override LDLIBS   += $(shell $(PKG_CONFIG) --libs $(PKGS) 2>/dev/null)
COMPILE = $(CC) $(CPPFLAGS) $(CFLAGS)

MAIN  := daemon/main.c
SRC   := $(wildcard daemon/*.c probes/*.c)
LIB   := $(filter-out $(MAIN),$(SRC))
UNIT  := $(wildcard tests/unit/*.c)
FUZZ  := $(wildcard tests/fuzz/fuzz-*.c)
TOOLS := $(wildcard tests/bench/*.c tests/world/*.c packaging/*.c)
HEADS := $(wildcard daemon/*.h probes/*.h tests/*.h)
SHELL_FILES := .ci/run packaging/deps.sh packaging/version packaging/build packaging/npd/nodewhy-condition \
               $(wildcard tests/*.sh) $(shell grep -lE '^\#!/bin/(ba)?sh' tests/*.t tests/scenarios/* 2>/dev/null)
PYTHON_FILES := $(shell grep -rlE '^\#!.*python3' --exclude-dir=__pycache__ packaging tests 2>/dev/null) \
                $(wildcard tests/*.py tests/world/*.py tests/scenarios/*.py)
obj    = $(patsubst %.c,$(B)/%.o,$(1))
bin    = $(patsubst %.c,$(B)/%,$(1))
SLOW   := tests/packages.t tests/boot.t tests/boot-rpm.t tests/npd.t
CHECKS := $(call bin,$(UNIT) $(FUZZ)) $(filter-out $(SLOW),$(wildcard tests/*.t))
WORLD  := $(wildcard tests/world/selftest.py tests/world/sdk.py tests/scenarios/selftest.py tests/scenarios/run.py)

ifneq ($(V),1)
Q := @
say = @printf '  %-4s %s\n' $(1) $(2)
endif

all: $(B)/nodewhy
$(B)/nodewhy: $(call obj,$(MAIN)) $(B)/libnodewhy.a
$(B)/libnodewhy.a: $(call obj,$(LIB))
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(call bin,$(UNIT) $(TOOLS)): %: %.o $(B)/libnodewhy.a
$(call bin,$(FUZZ)): %: %.o $(B)/tests/fuzz/replay.o $(B)/libnodewhy.a
$(B)/nodewhy $(call bin,$(UNIT) $(FUZZ) $(TOOLS)):
	$(call say,LD,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(COMPILE) -DVERSION='"$(VERSION)"' -MMD -MP -c -o $@ $<

# A stamp's content is what its users depend on: a changed flag rebuilds all, a changed version only what names it, a
# changed table only what includes it (.incbin is not seen by -MMD), and what did not change rebuilds nothing.
stamp = $(Q)mkdir -p $(B); printf '%s\n' '$(subst ','\'',$(1))' | cmp -s - $@ || printf '%s\n' '$(subst ','\'',$(1))' > $@
$(B)/flags: FORCE
	$(Q)$(PKG_CONFIG) --exists --print-errors $(PKGS) || { echo 'a library is missing: sudo make deps' >&2; exit 1; }
	$(call stamp,$(COMPILE) $(LDFLAGS))
$(B)/version: FORCE
	$(call stamp,$(VERSION))
$(call obj,$(shell grep -lw VERSION daemon/*.c)): $(B)/version
$(call obj,$(shell grep -lw EMBED daemon/*.c)): $(wildcard packaging/data/*.tsv)

deps:
	$(Q)sh packaging/deps.sh
deps-%:
	$(Q)sh packaging/deps.sh --$*

# The rules are kept by the release objects: a sanitizer adds symbols of its own.
build-check: all $(call bin,$(UNIT) $(FUZZ) $(TOOLS))
ifeq ($(SAN),1)
	$(Q)$(MAKE) --no-print-directory SAN= all
endif
export B
export PYTHONPYCACHEPREFIX := $(CURDIR)/build/pycache
# What root built and wrote in somebody's clone must not be in that person's way. Keeps the exit code.
GIVE_BACK = r=$$?; [ "$$(id -u)" != 0 ] || chown -hR --reference=. build; exit $$r
check: build-check
	$(Q)NODEWHY=$(CURDIR)/$(B)/nodewhy $(PYTHON) tests/tally $(CHECKS)
test: deps-test
	$(Q)$(MAKE) --no-print-directory -j"$$(nproc)" build-check
	$(Q)$(MAKE) --no-print-directory test-all
test-all: build-check
	$(Q)NODEWHY=$(CURDIR)/$(B)/nodewhy $(PYTHON) tests/tally $(CHECKS) $(SLOW) $(WORLD); $(GIVE_BACK)
# A part of `make test` as well. Its first run builds node-problem-detector itself, with Go, which takes minutes.
test-npd: build-check
	$(Q)NODEWHY=$(CURDIR)/$(B)/nodewhy $(PYTHON) tests/tally tests/npd.t; $(GIVE_BACK)
# A machine under qemu. Not a part of `make test` and CI: from nothing it needs about five minutes, and of its own.
test-vm: deps-vm build-check
	$(Q)NODEWHY=$(CURDIR)/$(B)/nodewhy $(PYTHON) tests/tally tests/vm/boot.t; $(GIVE_BACK)
demo: deps-demo
	$(Q)$(MAKE) --no-print-directory -j"$$(nproc)" all
	$(Q)NODEWHY=$(CURDIR)/$(B)/nodewhy sh tests/demo.sh; $(GIVE_BACK)
run: all
	$(B)/nodewhy run
bench: build-check
	$(Q)NODEWHY=$(CURDIR)/$(B)/nodewhy $(PYTHON) tests/bench/run
generate: all $(B)/packaging/tables
	$(Q)$(PYTHON) packaging/generate $(B) .

# Neither cppcheck nor gcc 12 knows __attribute__((cleanup)) well: leaks are left to gcc and the sanitizers, values
# that were not set to the compilers and cppcheck.
lint:
	$(Q)clang-format --dry-run -Werror $(SRC) $(HEADS) $(UNIT) $(FUZZ) $(TOOLS) tests/fuzz/replay.c
	$(Q)printf '%s\n' $(SRC) | xargs -P 2 -n 4 sh -c 'clang-tidy --quiet --warnings-as-errors="*" "$$@" -- $(CPPFLAGS) -DVERSION=\"lint\" $(filter -std=% -W%,$(CFLAGS)) 2>/dev/null' sh
	$(Q)cppcheck -q --error-exitcode=1 --enable=warning,portability --inline-suppr --std=c11 --library=posix \
	        --suppress=missingIncludeSystem --suppress=memleak -D_GNU_SOURCE -DVERSION='""' -Idaemon daemon probes
	$(Q)$(MAKE) -s B=build/analyzer CC=gcc VARIANT="-fanalyzer -Wno-analyzer-use-of-uninitialized-value" WERROR=-Werror build/analyzer/libnodewhy.a build/analyzer/daemon/main.o
	$(Q)$(MAKE) -s B=build/clang CC=clang WERROR=-Werror build/clang/nodewhy
	$(Q)shellcheck $(SHELL_FILES)
	$(Q)bash -n packaging/completion/nodewhy
	$(Q)for m in packaging/man/*.[1-8]; do mandoc -T lint -W warning "$$m" || exit 1; done
	$(Q)for p in $(PYTHON_FILES); do $(PYTHON) -c 'import sys; compile(open(sys.argv[1]).read(), sys.argv[1], "exec")' "$$p" || exit 1; done

fuzz:
	$(Q)test -f tests/fuzz/fuzz-$(TARGET).c || { echo "targets: $(patsubst tests/fuzz/fuzz-%.c,%,$(FUZZ))" >&2; exit 1; }
	$(Q)mkdir -p build/fuzz/$(TARGET) tests/fuzz/corpus/$(TARGET)
	clang $(CPPFLAGS) -DVERSION='"fuzz"' -std=gnu11 -O1 -g -fsanitize=fuzzer,address,undefined \
	        -o build/fuzz/fuzz-$(TARGET) tests/fuzz/fuzz-$(TARGET).c $(LIB) $(LDLIBS)
	build/fuzz/fuzz-$(TARGET) -max_total_time=$(TIME) -timeout=10 build/fuzz/$(TARGET) tests/fuzz/corpus/$(TARGET)

D := $(DESTDIR)$(PREFIX)
install: all
	install -D -m 755 $(B)/nodewhy $(D)/bin/nodewhy
	install -D -m 644 -t $(D)/share/nodewhy packaging/data/eni-limits.tsv packaging/data/network-cards.tsv
	install -D -m 755 -t $(D)/share/nodewhy/npd packaging/npd/nodewhy-condition
	install -m 644 -t $(D)/share/nodewhy/npd packaging/npd/nodewhy-condition-monitor.json packaging/npd/nodewhy-journal-monitor.json
	install -d $(DESTDIR)$(UNITDIR)/system
	sed 's|/usr/bin/nodewhy|$(PREFIX)/bin/nodewhy|' systemd/nodewhy.service > $(DESTDIR)$(UNITDIR)/system/nodewhy.service
	chmod 644 $(DESTDIR)$(UNITDIR)/system/nodewhy.service
	install -D -m 644 systemd/90-nodewhy.preset $(DESTDIR)$(UNITDIR)/system-preset/90-nodewhy.preset
	install -D -m 644 -t $(DESTDIR)$(UNITDIR)/catalog packaging/catalog/nodewhy.catalog packaging/catalog/nodewhy.ko.catalog
	install -D -m 644 systemd/nodewhy.sysusers $(D)/lib/sysusers.d/nodewhy.conf
	install -D -m 644 systemd/nodewhy.tmpfiles $(D)/lib/tmpfiles.d/nodewhy.conf
	install -D -m 644 -t $(D)/share/man/man1 packaging/man/nodewhy.1
	install -D -m 644 -t $(D)/share/man/man5 packaging/man/nodewhy.conf.5
	install -D -m 644 -t $(D)/share/man/man7 packaging/man/nodewhy-findings.7
	install -D -m 644 -t $(D)/share/man/man8 packaging/man/nodewhy.8
	install -D -m 644 packaging/completion/nodewhy $(D)/share/bash-completion/completions/nodewhy
	install -D -m 644 LICENSE $(D)/share/licenses/nodewhy/LICENSE
	install -d $(DESTDIR)$(SYSCONFDIR)/nodewhy/nodewhy.conf.d

deb rpm:
	$(Q)sh packaging/build $@

clean:
	rm -rf build
FORCE:
.PHONY: all deps build-check check test test-all test-npd test-vm demo run bench generate lint fuzz install deb rpm clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(patsubst %.c,$(B)/%.d,$(SRC) $(UNIT) $(FUZZ) $(TOOLS) tests/fuzz/replay.c)
