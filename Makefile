# SPDX-License-Identifier: Apache-2.0
#
# make                  build/release/nodewhy
# make check            unit tests, fixtures, corpus replay, purity, include rules
# make SAN=1 check      the same under ASan+UBSan, in build/san
# make lint             clang-tidy, cppcheck, gcc -fanalyzer, clang-format --dry-run
# make fuzz TARGET=status TIME=60
# make compile_commands.json

CFLAGS     ?= -O2 -g
PKG_CONFIG ?= pkg-config
PREFIX     ?= /usr

PKGS       := libsystemd libcurl jansson libmnl libcares libcrypto libssl
VERSION    := $(shell git describe --always --dirty 2>/dev/null || echo 0)

B := build/release
ifeq ($(SAN),1)
B := build/san
SANFLAGS := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer
else
HARDEN   := -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2
endif

# Ours is appended, never assigned: a distribution's CFLAGS always survive.
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
        -Wformat=2 -Wundef -Wpointer-arith -Wwrite-strings -Wvla -Wimplicit-fallthrough \
        -Wno-missing-field-initializers -Wno-unused-parameter \
        -Werror=implicit-function-declaration -Werror=return-type -Werror=incompatible-pointer-types
WERROR ?=
override CPPFLAGS += -D_GNU_SOURCE -DVERSION=\"$(VERSION)\" -Idaemon -MMD -MP $(shell $(PKG_CONFIG) --cflags $(PKGS))
override CFLAGS   += -std=gnu11 -fno-common -fstack-protector-strong -fstack-clash-protection -fPIE \
                     -fno-strict-aliasing $(WARN) $(WERROR) $(HARDEN) $(SANFLAGS)
override LDFLAGS  += -pie -Wl,-z,relro,-z,now -Wl,--as-needed -Wl,--fatal-warnings $(SANFLAGS)
override LDLIBS   += $(shell $(PKG_CONFIG) --libs $(PKGS))

SRC   := $(wildcard daemon/*.c probes/*.c)
MAIN  := daemon/main.c
LIB   := $(filter-out $(MAIN),$(SRC))
UNIT  := $(wildcard tests/unit/*.c)
NETNS := $(B)/tests/unit/http
FUZZ  := $(wildcard tests/fuzz/fuzz-*.c)
obj    = $(patsubst %.c,$(B)/%.o,$(1))
TESTS := $(patsubst %.c,$(B)/%,$(UNIT) $(FUZZ))

ifneq ($(V),1)
Q := @
say = @printf '  %-7s %s\n' $(1) $(2)
endif

all: $(B)/nodewhy
$(B)/nodewhy: $(call obj,$(MAIN)) $(B)/libnodewhy.a
$(B)/libnodewhy.a: $(call obj,$(LIB))
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(B)/tests/unit/%: $(B)/tests/unit/%.o $(B)/libnodewhy.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/tests/fuzz/%: $(B)/tests/fuzz/%.o $(B)/tests/fuzz/replay.o $(B)/libnodewhy.a
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/nodewhy:
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)
$(B)/%.o: %.c $(B)/flags
	$(call say,CC,$<)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

# A changed flag rebuilds; an unchanged one does not.
$(B)/flags: FORCE
	@mkdir -p $(B); echo '$(subst ','\'',$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS))' | cmp -s - $@ || echo '$(subst ','\'',$(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS))' > $@

check: $(TESTS) $(B)/nodewhy
	$(Q)prove --exec "" $(filter-out $(NETNS),$(TESTS))
	$(Q)B=$(B) prove tests/*.t

compile_commands.json: Makefile FORCE
	@{ printf '['; sep=; for f in $(SRC) $(UNIT) $(FUZZ); do \
	   printf '%s\n{"directory":"%s","file":"%s","command":"%s -c %s"}' "$$sep" '$(CURDIR)' "$$f" '$(CC) $(CPPFLAGS) $(CFLAGS)' "$$f"; \
	   sep=,; done; printf '\n]\n'; } > $@

lint: compile_commands.json
	$(Q)clang-format --dry-run -Werror $(SRC) $(wildcard daemon/*.h) $(UNIT)
	$(Q)clang-tidy --quiet --warnings-as-errors='*' $(SRC)
	$(Q)cppcheck -q --error-exitcode=1 --enable=warning,portability --std=c11 -Idaemon daemon probes
	$(Q)$(MAKE) -s B=build/analyzer CC=gcc SANFLAGS=-fanalyzer WERROR=-Werror build/analyzer/libnodewhy.a

# make fuzz TARGET=status TIME=60
TARGET ?= status
TIME   ?= 60
fuzz:
	$(Q)mkdir -p build/fuzz/$(TARGET)
	$(Q)clang -std=gnu11 -O1 -g -fsanitize=fuzzer,address,undefined $(filter-out -MMD -MP,$(CPPFLAGS)) -o build/fuzz/fuzz-$(TARGET) tests/fuzz/fuzz-$(TARGET).c $(LIB) $(LDLIBS)
	build/fuzz/fuzz-$(TARGET) -max_total_time=$(TIME) build/fuzz/$(TARGET) tests/fuzz/corpus/$(TARGET)

FORCE:
clean:
	rm -rf build compile_commands.json
.PHONY: all check lint fuzz clean FORCE
.DELETE_ON_ERROR:
.SECONDARY:
-include $(patsubst %.c,$(B)/%.d,$(SRC) $(UNIT) $(FUZZ))
