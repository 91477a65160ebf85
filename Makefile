# SPDX-License-Identifier: GPL-2.0
#
# For people: "make help". The kernel's build reads Kbuild instead.

KDIR ?= /lib/modules/$(shell uname -r)/build
PREFIX ?= /usr
KERNEL ?= 6.1
STRESS ?= 10

KBUILD = $(MAKE) -C $(KDIR) M=$(CURDIR) CONFIG_TWHEEL=m

all: modules twheelctl

help:
	@echo 'For users:'
	@echo '  make                 build module/twheel.ko and build/twheelctl'
	@echo '                       KDIR=DIR: for the kernel whose build directory this is'
	@echo '  sudo make install    install both, the header, man pages, the udev rule'
	@echo '                       DESTDIR=DIR, PREFIX=DIR: elsewhere'
	@echo '  make run             a day in the life of a service, in a virtual machine'
	@echo '  make shell           a prompt in that machine'
	@echo 'For developers:'
	@echo '  make test            everything below, one table'
	@echo '  make check-host      the wheel alone, in user space, under sanitizers'
	@echo '  make bench-host      how fast that is'
	@echo '  make kselftest       tests of the device, in a virtual machine'
	@echo '                       KERNEL=6.1|6.12|6.12-rt|7.3  TESTS=manual  STRESS=SECONDS'
	@echo '  make check-tools     tests of twheelctl and of the runner'
	@echo '  make lint            checkpatch, sparse, W=1, kernel-doc, shellcheck'
	@echo '  make clean'

modules:
	@[ -e $(KDIR)/Makefile ] || { \
		echo 'No kernel headers in $(KDIR): install linux-headers-$(shell uname -r),' \
			'or say KDIR=DIR' >&2; exit 1; }
	$(KBUILD) modules

twheelctl:
	$(MAKE) -s -C tools/twheelctl OUTPUT=$(CURDIR)/build

install: all
	$(KBUILD) INSTALL_MOD_PATH=$(DESTDIR) modules_install
	$(if $(DESTDIR),,depmod -a $(shell $(MAKE) -s -C $(KDIR) kernelrelease))
	install -D -m 755 build/twheelctl $(DESTDIR)$(PREFIX)/bin/twheelctl
	install -D -m 644 Documentation/twheelctl.1 \
		$(DESTDIR)$(PREFIX)/share/man/man1/twheelctl.1
	install -D -m 644 uapi/linux/twheel.h $(DESTDIR)$(PREFIX)/include/linux/twheel.h
	install -D -m 644 tools/install/twheel.conf \
		$(DESTDIR)$(PREFIX)/share/doc/twheel/modules-load.d/twheel.conf
	install -D -m 644 tools/install/70-twheel.rules \
		$(DESTDIR)/etc/udev/rules.d/70-twheel.rules

run:
	tools/setup run
	@$(MAKE) -s twheelctl
	tools/demo

shell:
	tools/setup run
	@$(MAKE) -s twheelctl
	tools/vm/run --kernel $(KERNEL) --shell

test:
	tools/setup run test
	@tools/test

check-host:
	$(MAKE) -s -j2 -C tools/host check OUTPUT=$(CURDIR)/build/host

bench-host:
	$(MAKE) -C tools/host bench OUTPUT=$(CURDIR)/build/host

selftests:
	$(MAKE) -C selftests OUTPUT=$(CURDIR)/build/selftests \
		KSFT=$$(tools/vm/fetch source)/tools/testing/selftests

kselftest: selftests
	tools/vm/run --kernel $(KERNEL) --mem 2048 --timeout 1200 -- \
		env TWHEEL_STRESS_SECONDS=$(STRESS) /selftests/run $(TESTS)

check-tools:
	$(MAKE) -s -C tools/twheelctl check OUTPUT=$(CURDIR)/build
	tools/vm/test

lint:
	tools/lint

clean:
	rm -rf build
	if [ -e $(KDIR)/Makefile ]; then $(KBUILD) clean; fi

.PHONY: all help modules twheelctl install run shell test check-host bench-host \
	selftests kselftest check-tools lint clean
