// SPDX-License-Identifier: GPL-2.0
/*
 * suspend.c - the clocks through a suspend of the machine
 *
 * The kernel's own test of suspend, which stops everything for five seconds and goes
 * on; timekeeping is suspended as in earnest. Needs to be root; skipped elsewhere.
 */
#include "twheel_test.h"

#define SUSPENDED	(4 * TW_NSEC)	/* at least that long */
#define MANY		10000

static bool suspend(void)
{
	return tw_put("/sys/power/pm_test", "core") && tw_put("/sys/power/state", "mem");
}

FIXTURE(suspend)
{
	int mono;
	int boot;
	struct twheel_event ev[64];
};

FIXTURE_SETUP(suspend)
{
	if (access("/sys/power/pm_test", W_OK))
		SKIP(return, "this kernel cannot test suspend");
	self->mono = tw_wheel(CLOCK_MONOTONIC, TW_TICK_DEFAULT, 0);
	self->boot = tw_wheel(CLOCK_BOOTTIME, TW_TICK_DEFAULT, 0);
	ASSERT_LE(0, self->mono);
	ASSERT_LE(0, self->boot);
}

FIXTURE_TEARDOWN(suspend)
{
	tw_put("/sys/power/pm_test", "none");
	close(self->mono);
	close(self->boot);
}

TEST_F(suspend, boottime_goes_on_and_monotonic_does_not)
{
	__u64 mono = tw_clock(CLOCK_MONOTONIC) + TW_HOUR;
	__u64 boot = tw_clock(CLOCK_BOOTTIME) + SUSPENDED;

	ASSERT_NE(0, tw_arm(self->mono, mono, 0));
	ASSERT_NE(0, tw_arm(self->boot, boot, 0));
	if (!suspend())
		SKIP(return, "the machine does not suspend");
	ASSERT_TRUE(tw_wait_readable(self->boot));
	ASSERT_EQ(1, tw_read(self->boot, self->ev, 1));
	EXPECT_LE(boot, self->ev[0].fired_ns);
	EXPECT_EQ(0, tw_poll(self->mono));
}

/* Nor does each that is late cost a wake-up of its own. */
TEST_F(suspend, each_timer_due_meanwhile_fires_once_and_none_is_early)
{
	__u64 now = tw_clock(CLOCK_BOOTTIME);
	unsigned int i, read = 0, early = 0, late = 0;
	long nr, j;

	for (i = 0; i < MANY; i++)
		ASSERT_NE(0, tw_arm(self->boot, now + SUSPENDED / MANY * i, i));
	if (!suspend())
		SKIP(return, "the machine does not suspend");
	while (read < MANY) {
		ASSERT_TRUE(tw_wait_readable(self->boot));
		nr = tw_read(self->boot, self->ev, 64);
		ASSERT_LT(0, nr);
		for (j = 0; j < nr; j++) {
			early += self->ev[j].fired_ns < self->ev[j].expires_ns;
			late += self->ev[j].fired_ns >
				self->ev[j].expires_ns + 100 * TW_MSEC;
		}
		read += nr;
	}
	EXPECT_EQ(0, early);
	EXPECT_GE(MANY - late + late / 10, tw_counter(self->boot, "wakeups"));
	EXPECT_EQ(0, tw_armed(self->boot));
}

TEST_HARNESS_MAIN
