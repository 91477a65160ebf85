# SPDX-License-Identifier: GPL-2.0
#
# For people: "make help". The kernel's build reads Kbuild instead.

KDIR ?= /lib/modules/$(shell uname -r)/build
PREFIX ?= /usr
KERNEL ?= 6.1
SUITES ?= main
SUITE ?= bookworm
TIMEOUT ?= 1800
STRESS ?= 10
# The kernels that look for bugs are slow, and those of them that are emulated are so
# by a factor of twenty more.
SLOW = $(filter uml debug kcsan,$(KERNEL))
PERCENT ?= $(if $(filter debug kcsan,$(KERNEL)),10,100)
ROUNDS ?= $(if $(SLOW),5000,100000)
SCALE ?= $(if $(SLOW),100000,1000000)
FUZZ_SECONDS ?= 60

KBUILD = $(MAKE) -C $(KDIR) M=$(CURDIR) CONFIG_TWHEEL=m

# What the kernel of KDIR says of itself in "uname -r" and in its modules' vermagic.
# "make kernelrelease" and kernel.release have another name in Debian's headers for 6.1.
# Where the headers are gone, their path tells it.
RELEASE = $(or $(shell sed -n 's/^.define UTS_RELEASE "\(.*\)"/\1/p' \
		$(KDIR)/include/generated/utsrelease.h 2>/dev/null),$(patsubst \
	/lib/modules/%/build,%,$(filter /lib/modules/%/build,$(KDIR))))
# Absolute, as Kbuild works in KDIR. "/" is this machine, as nothing is.
DEST = $(filter-out /,$(abspath $(DESTDIR)))
# A directory of our own: all that is in it can be removed.
MODULES = $(DEST)/lib/modules/$(RELEASE)/updates/twheel
# Kbuild would run depmod by itself, DESTDIR or not, for a kernel that was built here.
# Nothing is compressed: xz may be missing, and modprobe does as well without.
MODULES_INSTALL = $(KBUILD) KERNELRELEASE=$(RELEASE) INSTALL_MOD_PATH=$(DEST) \
	INSTALL_MOD_DIR=updates/twheel DEPMOD=true CONFIG_MODULE_COMPRESS_GZIP= \
	CONFIG_MODULE_COMPRESS_XZ= CONFIG_MODULE_COMPRESS_ZSTD= modules_install
# "su" leaves the directories of root's programs out.
DEPMOD = PATH="$$PATH:/usr/sbin:/sbin" depmod

# Those of the library are in lib. Where a page goes is said by what its name ends with.
PAGES = twheelctl.1 twheel.4 twheel.7
man = $(PREFIX)/share/man/man$(subst .,,$(suffix $(1)))/$(1)

udevdir ?= /etc/udev
# An example: who wants the module loaded at boot copies it.
loaddir ?= $(PREFIX)/share/doc/twheel/modules-load.d
bashdir ?= $(PREFIX)/share/bash-completion/completions
zshdir ?= $(PREFIX)/share/zsh/site-functions
# Where from, where to: what has nothing to be built.
FILES = tools/install/twheel.conf:$(loaddir)/twheel.conf \
	tools/install/70-twheel.rules:$(udevdir)/rules.d/70-twheel.rules \
	tools/twheelctl/completion.bash:$(bashdir)/twheelctl \
	tools/twheelctl/completion.zsh:$(zshdir)/_twheelctl \
	$(foreach page,$(PAGES),Documentation/$(page):$(call man,$(page)))

LIB = $(MAKE) --no-print-directory -s -C lib OUTPUT=$(CURDIR)/build/lib \
	PREFIX=$(PREFIX) DESTDIR=$(DEST)

JOBS = $(MAKE) --no-print-directory -s -C jobs OUTPUT=$(CURDIR)/build/jobs \
	LIBTWHEEL=$(CURDIR)/build/lib PREFIX=$(PREFIX) DESTDIR=$(DEST)

all: modules twheelctl libtwheel

help:
	@echo 'For users:'
	@echo '  make                 build module/twheel.ko, build/twheelctl and build/lib'
	@echo '                       KDIR=DIR: for the kernel whose build directory this is'
	@echo '  sudo make install    install them, the headers, man pages, the udev rule'
	@echo '                       DESTDIR=DIR, PREFIX=DIR: elsewhere'
	@echo '  sudo make uninstall  remove that again; with the same KDIR, DESTDIR, PREFIX'
	@echo '  make run             a day in the life of a service, in a virtual machine'
	@echo '  make shell           a prompt in that machine'
	@echo 'The service for jobs:'
	@echo '  make jobs            build build/jobs/twheeld and twjob, the service for jobs'
	@echo '  sudo make install-jobs, uninstall-jobs'
	@echo '  make run-jobs        three nodes of it, of which one is killed, and PostgreSQL too'
	@echo '  make deb             Debian packages in build/deb: SUITE=bookworm|trixie'
	@echo '  make dist            build/twheel-VERSION.tar.xz, with all that it is built from'
	@echo '  make patch           the module as patches to a kernel, in build/patch: KSRC=DIR'
	@echo '  make docs            the documentation as HTML, in build/docs'
	@echo 'Tests:'
	@echo '  make test            what a change has to pass, one table;'
	@echo '                       SUITES="main kernels programs packages debug races faults": more'
	@echo '  make test-all        everything: more kernels, and the targets marked *'
	@echo '  make test-jobs       tests of the service for jobs'
	@echo '  make check-host      the wheel alone, in user space, under sanitizers'
	@echo '  make kunit           KUnit in user-mode Linux; FILTER=twheel-wheel.*never*'
	@echo '  make kselftest       tests of the device, in a virtual machine: TESTS=manual'
	@echo '                       KERNEL=6.1|6.12|6.12-rt|7.3|uml|debug|kcsan'
	@echo '                       STRESS=SECONDS ROUNDS=N PERCENT=N APPEND=KERNEL-PARAMETERS'
	@echo '  make test-debug    * those tests on kernels that look for bugs'
	@echo '  make check-tools     tests of twheelctl, the runner and "make install"'
	@echo 'To find faults:'
	@echo '  make fuzz            random input until it fails: FUZZ_SECONDS=60'
	@echo '  make coverage      * which lines and branches of the module the tests run'
	@echo '  make mutate        * that the tests notice faults that are put in'
	@echo '  make lint            static checks: checkpatch, sparse, clang, coccinelle ...'
	@echo 'Benchmarks:'
	@echo '  make bench           all benchmarks, with tables and plots, in build/bench'
	@echo '  make bench-bars      the figures that are goals, a line each'
	@echo '  make bench-kernel    the wheel and other timers of a kernel, one table:'
	@echo '                       BENCH="n=1000,1000000 peers=wheel,timer_list rounds=3"'
	@echo '  make bench-user      the device and what programs use instead:'
	@echo '                       BENCH="--icount --n 10000 --peers twheel,timerfd"'
	@echo '  make bench-host      the wheel alone, in user space'
	@echo '  make bench-jobs      the service for jobs and other job queues: BENCH="J1 J4 --rounds 3"'
	@echo '                       BENCH=--help, BENCH=--ours: without the others'
	@echo 'Other:'
	@echo '  make compile_commands.json'
	@echo '                       for clangd: how files are compiled'
	@echo '  make clean'

# What was built for a flavour of the same kernel looks up to date.
modules:
	@[ -e $(KDIR)/Makefile ] || { \
		echo 'No kernel headers in $(KDIR): install linux-headers-$(shell uname -r),' \
			'or say KDIR=DIR' >&2; exit 1; }
	@[ ! -e module/twheel.ko ] || grep -aqF 'vermagic=$(RELEASE) ' module/twheel.ko || \
		$(KBUILD) -s clean
	$(KBUILD) modules

twheelctl:
	$(MAKE) -s -C tools/twheelctl OUTPUT=$(CURDIR)/build

libtwheel:
	$(LIB)

# Whatever the umask, others can read what they are to use.
install: all
	$(if $(DEST),,@$(DEPMOD) -V >/dev/null 2>&1 || { \
		echo 'No depmod: install kmod. Nothing was installed' >&2; exit 1; })
	@umask 022; $(MAKE) --no-print-directory install_files || { \
		echo 'Not everything was installed: "make uninstall" removes what was' >&2; \
		exit 1; }

# Whatever is not the module.
install-programs: twheelctl libtwheel
	install -D -m 755 build/twheelctl $(DEST)$(PREFIX)/bin/twheelctl
	$(foreach file,$(FILES),install -D -m 644 $(subst :, $(DEST),$(file)) &&) :
	$(LIB) install

install_files: install-programs
	rm -rf $(MODULES)
	$(MODULES_INSTALL)
	chmod -R u=rwX,go=rX $(MODULES)
	$(if $(DEST),,$(DEPMOD) -a $(RELEASE))

uninstall:
	$(if $(RELEASE),,@echo 'No kernel headers in $(KDIR): say KDIR=DIR' >&2; exit 1)
	rm -rf $(MODULES)
	rm -f $(foreach file,$(FILES),$(DEST)$(lastword $(subst :, ,$(file)))) \
		$(DEST)$(PREFIX)/bin/twheelctl
	$(LIB) uninstall
	@rmdir $(MODULES:/twheel=) $(DEST)$(loaddir) \
		$(DEST)$(PREFIX)/share/doc/twheel 2>/dev/null || :
	$(if $(DEST),,@! grep -qs '^twheel ' /proc/modules || \
		echo 'The module is still loaded: "rmmod twheel" unloads it')
	$(if $(DEST),,[ ! -d /lib/modules/$(RELEASE) ] || $(DEPMOD) -a $(RELEASE))

run:
	tools/setup run
	@$(MAKE) -s twheelctl
	tools/demo

shell:
	tools/setup run
	@$(MAKE) -s twheelctl
	tools/vm/run --kernel $(KERNEL) --shell

# "+" as make does not see $(MAKE) in what it would have to expand.
jobs: libtwheel
	+$(JOBS)

install-jobs: libtwheel
install-jobs uninstall-jobs:
	+$(JOBS) $(@:-jobs=)

dist:
	tools/dist

deb:
	tools/setup packages
	tools/deb/build $(SUITE)

patch:
	tools/patch/make $(KSRC)

run-jobs:
	tools/setup jobs
	+@$(JOBS)
	@jobs/tests/demo/run

test-jobs:
	tools/setup run jobs test
	@tools/test jobs

test:
	tools/setup run jobs test docs $(if $(filter-out main,$(SUITES)),more) $(filter packages,$(SUITES))
	@tools/test $(SUITES)

test-all:
	tools/setup
	@tools/test all

test-debug:
	tools/setup run test
	@tools/test debug

check-host:
	$(MAKE) -s -j2 -C tools/host check OUTPUT=$(CURDIR)/build/host

bench bench-bars:
	tools/setup
	bench/measure $(if $(filter bench,$@),all,bars)

bench-kernel bench-user:
	tools/setup
	@mkdir -p build/bench
	bench/run $(@:bench-%=%) $(BENCH) >build/bench/$(@:bench-%=%).json
	@bench/table build/bench/$(@:bench-%=%).json

bench-host:
	$(MAKE) -C tools/host bench OUTPUT=$(CURDIR)/build/host

bench-jobs:
	tools/setup jobs $(if $(filter --ours --help,$(BENCH)),,peers)
	@jobs/bench/run $(BENCH)

selftests:
	$(MAKE) -C selftests OUTPUT=$(CURDIR)/build/selftests \
		KSFT=$$(tools/vm/fetch source)/tools/testing/selftests

kselftest: selftests
	$(if $(SLOW),CONFIG_TWHEEL_DEBUG=y) tools/vm/run --kernel $(KERNEL) --mem 2048 \
		--timeout $(TIMEOUT) --append '$(APPEND)' -- \
		env TWHEEL_STRESS_SECONDS=$(STRESS) TWHEEL_ROUNDS=$(ROUNDS) \
			TWHEEL_SCALE=$(SCALE) TWHEEL_PERCENT=$(PERCENT) /selftests/run $(TESTS)

kunit:
	tools/kunit '$(FILTER)'

coverage:
	tools/setup
	tools/coverage

mutate:
	tools/setup run test
	tools/mutate

fuzz-host:
	$(MAKE) -s -C tools/host fuzz OUTPUT=$(CURDIR)/build/host FUZZ_SECONDS=$(FUZZ_SECONDS)

fuzz: fuzz-host selftests
	tools/vm/run --kernel uml --timeout $$(($(FUZZ_SECONDS) + 300)) -- \
		env TWHEEL_FUZZ_SECONDS=$(FUZZ_SECONDS) /selftests/run fuzz

build/tsc_khz: bench/tsc_khz.c
	@mkdir -p $(@D)
	$(CC) -O2 -Wall -Wextra -o $@ $<

check-tools:
	$(MAKE) -s -C tools/twheelctl check OUTPUT=$(CURDIR)/build
	tools/vm/test
	tools/install/test

docs:
	tools/setup docs
	Documentation/build build/docs
	@echo 'open build/docs/index.html'

# How the module is compiled is known once it was built here.
compile_commands.json: FORCE
	tools/compile-commands $(KDIR) >$@.new
	mv $@.new $@

lint:
	tools/lint

clean:
	rm -rf build
	if [ -e $(KDIR)/Makefile ]; then $(KBUILD) clean; fi

.PHONY: all help modules twheelctl libtwheel install install-programs install_files uninstall run \
	shell dist deb patch \
	jobs install-jobs uninstall-jobs run-jobs test-jobs test \
	test-all test-debug check-host bench bench-bars bench-kernel bench-user bench-host bench-jobs \
	selftests kselftest kunit coverage mutate fuzz fuzz-host check-tools docs lint clean FORCE
