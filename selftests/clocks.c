// SPDX-License-Identifier: GPL-2.0
/*
 * The clocks of the kernel: timers fire, never early on their own clock, the
 * wall clock may be set, and an idle wheel sleeps.
 */
#include <sched.h>

#include "twheel_test.h"

#define ROUNDS	50

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME	0x80
#endif

FIXTURE(clock)
{
	int fd;
};

FIXTURE_VARIANT(clock)
{
	clockid_t clockid;
};

FIXTURE_VARIANT_ADD(clock, realtime)
{
	.clockid = CLOCK_REALTIME,
};

FIXTURE_VARIANT_ADD(clock, monotonic)
{
	.clockid = CLOCK_MONOTONIC,
};

FIXTURE_VARIANT_ADD(clock, boottime)
{
	.clockid = CLOCK_BOOTTIME,
};

FIXTURE_VARIANT_ADD(clock, tai)
{
	.clockid = CLOCK_TAI,
};

FIXTURE_SETUP(clock)
{
	self->fd = tw_wheel(variant->clockid, TW_TICK_MIN, 0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(clock)
{
	close(self->fd);
}

TEST_F(clock, info_tells_its_time)
{
	__u64 before = tw_clock(variant->clockid);
	__u64 now = tw_now(self->fd);

	EXPECT_LE(before, now);
	EXPECT_LE(now, tw_clock(variant->clockid));
}

/* One record, read when it came, and not early by the reader's own look */
static const char *one_record(int fd, clockid_t clockid, __u64 expires)
{
	struct twheel_event ev;

	if (!tw_wait_readable(fd))
		return "lost";
	if (tw_read(fd, &ev, 1) != 1)
		return "not to be read";
	if (tw_clock(clockid) < expires)
		return "early on the clock of the reader";
	if (ev.fired_ns < ev.expires_ns)
		return "early by its own record";
	if (ev.fired_ns > tw_clock(clockid))
		return "fired in the future";
	return ev.expires_ns == expires ? NULL : "another expiry";
}

TEST_F(clock, an_absolute_timer_fires_and_is_not_early)
{
	__u64 seed = 1, i, expires;

	for (i = 0; i < ROUNDS; i++) {
		expires = tw_clock(variant->clockid) +
			  tw_random_below(&seed, 20 * TW_MSEC);
		ASSERT_NE(0, tw_arm(self->fd, expires, i));
		ASSERT_EQ(NULL, one_record(self->fd, variant->clockid, expires));
	}
}

TEST_F(clock, a_relative_timer_fires_and_is_not_early)
{
	__u64 seed = 2, i, delay, before, id;
	struct twheel_event ev;

	for (i = 0; i < ROUNDS; i++) {
		delay = tw_random_below(&seed, 20 * TW_MSEC);
		before = tw_clock(variant->clockid);
		id = tw_arm_rel(self->fd, delay, i);
		ASSERT_NE(0, id);
		ASSERT_TRUE(tw_wait_readable(self->fd));
		ASSERT_LE(before + delay, tw_clock(variant->clockid));
		ASSERT_EQ(1, tw_read(self->fd, &ev, 1));
		ASSERT_LE(before + delay, ev.expires_ns);
		ASSERT_LE(ev.expires_ns, ev.fired_ns);
		ASSERT_EQ(id, ev.id);
	}
}

TEST_F(clock, an_absolute_time_in_the_past_is_ready_at_once)
{
	ASSERT_NE(0, tw_arm(self->fd, 1, 0));
	EXPECT_EQ(POLLIN, tw_poll_for(self->fd, POLLIN, 0));
}

TEST_F(clock, a_timer_far_away_does_not_fire)
{
	ASSERT_NE(0, tw_arm_rel(self->fd, 1000 * TW_HOUR, 0));
	EXPECT_EQ(0, tw_poll_for(self->fd, POLLIN, 50));
	EXPECT_EQ(1, tw_armed(self->fd));
}

TEST_F(clock, a_timer_at_the_end_of_time_does_not_fire)
{
	ASSERT_NE(0, tw_arm(self->fd, TW_S64_MAX, 0));
	ASSERT_NE(0, tw_arm_rel(self->fd, TW_S64_MAX, 0));
	ASSERT_NE(0, tw_arm(self->fd, TWHEEL_NEVER, 0));
	EXPECT_EQ(0, tw_poll_for(self->fd, POLLIN, 50));
	EXPECT_EQ(3, tw_armed(self->fd));
}

TEST_F(clock, an_earlier_timer_is_not_held_up_by_a_later_one)
{
	__u64 expires;

	ASSERT_NE(0, tw_arm_rel(self->fd, 1000 * TW_HOUR, 0));
	expires = tw_clock(variant->clockid) + 20 * TW_MSEC;
	ASSERT_NE(0, tw_arm(self->fd, expires, 1));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, expires));
}

TEST_F(clock, a_timer_moved_earlier_fires_then)
{
	__u64 id = tw_arm_rel(self->fd, 1000 * TW_HOUR, 0), expires;

	expires = tw_clock(variant->clockid) + 20 * TW_MSEC;
	ASSERT_EQ(0, tw_modify(self->fd, id, expires));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, expires));
}

TEST_F(clock, a_timer_moved_later_is_not_early)
{
	__u64 id = tw_arm_rel(self->fd, 20 * TW_MSEC, 0), expires;

	expires = tw_clock(variant->clockid) + 200 * TW_MSEC;
	ASSERT_LE(0, tw_modify(self->fd, id, expires));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, expires));
}

TEST_F(clock, a_timer_set_again_after_the_last_fired_fires)
{
	__u64 i, expires;

	for (i = 0; i < 5; i++) {
		tw_sleep_ms(30);
		expires = tw_clock(variant->clockid) + 10 * TW_MSEC;
		ASSERT_NE(0, tw_arm(self->fd, expires, i));
		ASSERT_EQ(NULL, one_record(self->fd, variant->clockid, expires));
	}
}

TEST_F(clock, a_thousand_timers_fire_in_order_and_none_is_early)
{
	static struct twheel_event ev[1000];
	__u64 seed = 3, start = tw_clock(variant->clockid), last = 0;
	long got = 0, n;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ev); i++)
		ASSERT_NE(0, tw_arm(self->fd, start + 200 * TW_MSEC +
				    tw_random_below(&seed, 300 * TW_MSEC), i));
	while (got < (long)ARRAY_SIZE(ev)) {
		ASSERT_TRUE(tw_wait_readable(self->fd));
		n = tw_read(self->fd, ev + got, ARRAY_SIZE(ev) - got);
		ASSERT_LT(0, n);
		got += n;
		ASSERT_LE(ev[got - 1].expires_ns, tw_clock(variant->clockid));
	}
	for (i = 0; i < ARRAY_SIZE(ev); i++) {
		ASSERT_LE(ev[i].expires_ns, ev[i].fired_ns);
		ASSERT_LE(last, ev[i].fired_ns);
		last = ev[i].fired_ns;
	}
}

TEST_F(clock, a_periodic_timer_keeps_its_phase)
{
	__u64 first = tw_clock(variant->clockid) + 10 * TW_MSEC, due = first;
	__u64 interval = 7 * TW_MSEC, i;
	struct twheel_event ev;

	ASSERT_NE(0, tw_arm_every(self->fd, first, interval, 0));
	for (i = 0; i < ROUNDS; i++) {
		ASSERT_TRUE(tw_wait_readable(self->fd));
		ASSERT_EQ(1, tw_read(self->fd, &ev, 1));
		ASSERT_EQ(due, ev.expires_ns);
		ASSERT_LE(due + ev.overrun * interval,
			  tw_clock(variant->clockid));
		due += (ev.overrun + 1ULL) * interval;
	}
}

/* Promise 5: idle is free. */
TEST_F(clock, a_wheel_without_timers_has_no_hrtimer_queued)
{
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
	EXPECT_EQ(0, tw_counter(self->fd, "hrtimer_starts"));
}

TEST_F(clock, a_wheel_with_a_timer_has_an_hrtimer_queued)
{
	ASSERT_NE(0, tw_arm_rel(self->fd, TW_HOUR, 0));
	EXPECT_NE(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
	EXPECT_EQ(1, tw_counter(self->fd, "hrtimer_starts"));
}

TEST_F(clock, after_the_last_was_cancelled_no_hrtimer_is_queued)
{
	__u64 a = tw_arm_rel(self->fd, TW_HOUR, 0);
	__u64 b = tw_arm_rel(self->fd, 2 * TW_HOUR, 0);

	ASSERT_EQ(0, tw_cancel(self->fd, b));
	ASSERT_EQ(0, tw_cancel(self->fd, a));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
}

TEST_F(clock, after_the_last_fired_no_hrtimer_is_queued)
{
	ASSERT_NE(0, tw_arm_rel(self->fd, 10 * TW_MSEC, 0));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
}

TEST_F(clock, a_timer_that_is_parked_wakes_once_at_most)
{
	__u64 id = tw_arm_rel(self->fd, 50 * TW_MSEC, 0);

	if (tw_modify(self->fd, id, TWHEEL_NEVER) == 1)
		SKIP(return, "too slow: it fired before it was parked");
	tw_sleep_ms(200);
	EXPECT_GE(1, tw_counter(self->fd, "wakeups"));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
	EXPECT_EQ(0, tw_ready(self->fd));
}

TEST_F(clock, a_parked_timer_queues_no_hrtimer)
{
	ASSERT_NE(0, tw_arm(self->fd, TWHEEL_NEVER, 0));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
}

TEST_F(clock, a_wheel_without_timers_is_never_woken)
{
	__u64 id = tw_arm_rel(self->fd, TW_HOUR, 0);

	ASSERT_EQ(0, tw_cancel(self->fd, id));
	tw_sleep_ms(300);
	EXPECT_EQ(0, tw_counter(self->fd, "wakeups"));
}

TEST_F(clock, a_later_timer_does_not_program_the_clock_again)
{
	__u64 starts, i;

	ASSERT_NE(0, tw_arm_rel(self->fd, TW_HOUR, 0));
	starts = tw_counter(self->fd, "hrtimer_starts");
	for (i = 2; i < 1000; i++)
		ASSERT_NE(0, tw_arm_rel(self->fd, i * TW_HOUR, 0));
	EXPECT_EQ(starts, tw_counter(self->fd, "hrtimer_starts"));
}

TEST_F(clock, a_timer_in_twelve_hours_does_not_wake_within_the_first_six)
{
	__u64 now, wake;

	ASSERT_NE(0, tw_arm_rel(self->fd, 12 * TW_HOUR, 0));
	now = tw_now(self->fd);
	wake = tw_counter(self->fd, "next_wake_ns");
	EXPECT_LE(now + 6 * TW_HOUR, wake);
	EXPECT_GE(now + 12 * TW_HOUR + TW_TICK_MIN, wake);
}

TEST_F(clock, a_timer_in_one_second_costs_two_wake_ups_at_most)
{
	ASSERT_NE(0, tw_arm_rel(self->fd, TW_NSEC, 0));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	EXPECT_LT(0, tw_counter(self->fd, "wakeups"));
	EXPECT_GE(2, tw_counter(self->fd, "wakeups"));
}

TEST_F(clock, an_unread_periodic_timer_costs_no_wake_ups)
{
	__u64 wakeups;

	ASSERT_NE(0, tw_arm_every(self->fd, tw_now(self->fd), 1, 0));
	ASSERT_NE(0, tw_arm_every(self->fd, tw_now(self->fd) + TW_MSEC,
				  TW_MSEC, 0));
	while (tw_ready(self->fd) < 2)
		tw_sleep_ms(1);
	wakeups = tw_counter(self->fd, "wakeups");
	tw_sleep_ms(300);
	EXPECT_EQ(wakeups, tw_counter(self->fd, "wakeups"));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
}

TEST_F(clock, cancelled_timers_cost_a_bounded_number_of_wake_ups)
{
	__u64 i, id, before, late = 0;

	for (i = 0; i < 1000; i++) {
		before = tw_now(self->fd);
		id = tw_arm_rel(self->fd, 100 * TW_MSEC + i * 100000, 0);
		ASSERT_LE(0, tw_cancel(self->fd, id));
		/* This one may have come due before it was cancelled. */
		late += tw_now(self->fd) - before >= 100 * TW_MSEC;
	}
	tw_sleep_ms(400);
	EXPECT_GE(1 + late, tw_counter(self->fd, "wakeups"));
}

static int compare_ticks(const void *a, const void *b)
{
	__u64 x = *(const __u64 *)a, y = *(const __u64 *)b;

	return x < y ? -1 : x > y;
}

static size_t count_distinct(__u64 *ticks, size_t nr)
{
	size_t i, distinct = !!nr;

	qsort(ticks, nr, sizeof(*ticks), compare_ticks);
	for (i = 1; i < nr; i++)
		distinct += ticks[i] != ticks[i - 1];
	return distinct;
}

/* Not one a tick, nor one a level: only ticks at which something was ever due. */
TEST_F(clock, wake_ups_are_no_more_than_ticks_at_which_something_was_due)
{
	static __u64 ids[300], ticks[600];
	__u64 seed = 4, expires;
	size_t i, nr = 0;

	for (i = 0; i < 2 * ARRAY_SIZE(ids); i++) {
		expires = tw_now(self->fd) + 50 * TW_MSEC +
			  (TW_NSEC >> tw_random_below(&seed, 18));
		ticks[nr++] = tw_boundary(expires, TW_TICK_MIN) / TW_TICK_MIN;
		if (i < ARRAY_SIZE(ids))
			ids[i] = tw_arm(self->fd, expires, i);
		else if (i % 3)
			tw_modify(self->fd, ids[i - ARRAY_SIZE(ids)], expires);
		else
			tw_cancel(self->fd, ids[i - ARRAY_SIZE(ids)]);
	}
	while (tw_armed(self->fd))
		tw_sleep_ms(10);
	EXPECT_LT(0, tw_counter(self->fd, "wakeups"));
	EXPECT_GE(count_distinct(ticks, nr), tw_counter(self->fd, "wakeups"));
}

/* Setting the wall clock (P15). It is put right again by the monotonic one. */
FIXTURE(clock_set)
{
	int fd;
	__u64 offset;		/* wall clock less monotonic clock */
};

FIXTURE_VARIANT(clock_set)
{
	clockid_t clockid;
};

FIXTURE_VARIANT_ADD(clock_set, realtime)
{
	.clockid = CLOCK_REALTIME,
};

FIXTURE_VARIANT_ADD(clock_set, tai)
{
	.clockid = CLOCK_TAI,
};

static bool move_wall_clock(__s64 by)
{
	return tw_set_wall_clock(tw_clock(CLOCK_REALTIME) + by);
}

FIXTURE_SETUP(clock_set)
{
	self->fd = -1;
	self->offset = tw_clock(CLOCK_REALTIME) - tw_clock(CLOCK_MONOTONIC);
	if (!move_wall_clock(0))
		SKIP(return, "the wall clock may not be set");
	self->fd = tw_wheel(variant->clockid, TW_TICK_MIN, 0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(clock_set)
{
	tw_set_wall_clock(tw_clock(CLOCK_MONOTONIC) + self->offset);
	close(self->fd);
}

TEST_F(clock_set, forward_past_a_timer_fires_it)
{
	__u64 expires = tw_clock(variant->clockid) + TW_HOUR;

	ASSERT_NE(0, tw_arm(self->fd, expires, 0));
	ASSERT_TRUE(move_wall_clock(2 * TW_HOUR));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, expires));
}

TEST_F(clock_set, forward_short_of_a_timer_is_not_early)
{
	__u64 expires = tw_clock(variant->clockid) + TW_HOUR;

	ASSERT_NE(0, tw_arm(self->fd, expires, 0));
	ASSERT_TRUE(move_wall_clock(TW_HOUR - TW_NSEC));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, expires));
}

TEST_F(clock_set, forward_fires_timers_in_order)
{
	__u64 now = tw_clock(variant->clockid), i;
	struct twheel_event ev[100];

	for (i = 0; i < 100; i++)
		ASSERT_NE(0, tw_arm(self->fd, now + TW_HOUR +
				    ((i * 37) % 100) * TW_NSEC, i));
	ASSERT_TRUE(move_wall_clock(2 * TW_HOUR));
	while (tw_ready(self->fd) < 100)
		tw_sleep_ms(1);
	ASSERT_EQ(100, tw_read(self->fd, ev, 100));
	for (i = 0; i < 100; i++)
		EXPECT_EQ(now + TW_HOUR + i * TW_NSEC, ev[i].expires_ns);
}

TEST_F(clock_set, backward_makes_a_timer_wait_and_not_early)
{
	__u64 expires = tw_clock(variant->clockid) + TW_NSEC;

	ASSERT_NE(0, tw_arm(self->fd, expires, 0));
	ASSERT_TRUE(move_wall_clock(-(__s64)TW_NSEC));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, expires));
}

TEST_F(clock_set, backward_after_a_timer_fired_is_not_early_for_the_next)
{
	__u64 expires = tw_clock(variant->clockid) + 10 * TW_MSEC;

	ASSERT_NE(0, tw_arm(self->fd, expires, 0));
	ASSERT_EQ(NULL, one_record(self->fd, variant->clockid, expires));
	ASSERT_TRUE(move_wall_clock(-(__s64)TW_HOUR));
	expires = tw_clock(variant->clockid) + 50 * TW_MSEC;
	ASSERT_NE(0, tw_arm(self->fd, expires, 1));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, expires));
}

TEST_F(clock_set, backward_keeps_a_timer_of_the_old_time_armed)
{
	__u64 was = tw_clock(variant->clockid), id;

	ASSERT_NE(0, tw_arm_rel(self->fd, 0, 0));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_EQ(1, tw_discard(self->fd));
	ASSERT_TRUE(move_wall_clock(-(__s64)TW_HOUR));
	id = tw_arm(self->fd, was, 1);
	EXPECT_EQ(TWHEEL_F_ARMED, tw_state(self->fd, id));
	EXPECT_EQ(0, tw_poll_for(self->fd, POLLIN, 50));
}

/* Times that the wheel has been at before, but are to come once more */
TEST_F(clock_set, backward_keeps_timers_apart_that_are_due_anew)
{
	__u64 soon, later, id;

	ASSERT_NE(0, tw_arm_rel(self->fd, 0, 0));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_EQ(1, tw_discard(self->fd));
	ASSERT_TRUE(move_wall_clock(-(__s64)TW_HOUR));
	soon = tw_clock(variant->clockid) + 20 * TW_MSEC;
	later = soon + TW_HOUR / 2;
	id = tw_arm(self->fd, later, 1);
	ASSERT_NE(0, tw_arm(self->fd, soon, 2));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, soon));
	EXPECT_EQ(tw_boundary(later, TW_TICK_MIN), tw_next(self->fd));
	EXPECT_EQ(TWHEEL_F_ARMED, tw_state(self->fd, id));
	ASSERT_TRUE(move_wall_clock(TW_HOUR));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, later));
}

TEST_F(clock_set, backward_and_forward_again_loses_nothing)
{
	__u64 expires = tw_clock(variant->clockid) + 10 * TW_NSEC;

	ASSERT_NE(0, tw_arm(self->fd, expires, 0));
	ASSERT_TRUE(move_wall_clock(-(__s64)TW_HOUR));
	ASSERT_TRUE(move_wall_clock(TW_HOUR + 20 * TW_NSEC));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, expires));
}

TEST_F(clock_set, by_years_in_both_directions_loses_no_timer)
{
	const __u64 year = 365 * 24 * TW_HOUR;
	__u64 near, far, soon;

	near = tw_clock(variant->clockid) + year;
	far = near + 5 * year;
	ASSERT_NE(0, tw_arm(self->fd, near, 1));
	ASSERT_NE(0, tw_arm(self->fd, far, 2));
	ASSERT_TRUE(move_wall_clock(2 * year));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, near));
	ASSERT_TRUE(move_wall_clock(-4 * (__s64)year));
	soon = tw_clock(variant->clockid) + 20 * TW_MSEC;
	ASSERT_NE(0, tw_arm(self->fd, soon, 3));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, soon));
	ASSERT_TRUE(move_wall_clock(9 * year));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, far));
}

TEST_F(clock_set, a_relative_time_counts_from_when_it_was_armed)
{
	struct twheel_op op;
	__u64 id, before = tw_clock(variant->clockid);

	id = tw_arm_rel(self->fd, TW_HOUR, 0);
	ASSERT_TRUE(move_wall_clock(-(__s64)TW_NSEC));
	ASSERT_EQ(0, tw_query(self->fd, id, &op));
	EXPECT_LE(before + TW_HOUR, op.expires_ns);
	ASSERT_TRUE(move_wall_clock(2 * TW_HOUR));
	EXPECT_EQ(NULL, one_record(self->fd, variant->clockid, op.expires_ns));
}

TEST_F(clock_set, backward_while_a_periodic_record_waits_gives_no_overrun)
{
	__u64 first = tw_clock(variant->clockid);
	struct twheel_event ev;

	ASSERT_NE(0, tw_arm_every(self->fd, first, TW_NSEC, 0));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_TRUE(move_wall_clock(-(__s64)TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, &ev, 1));
	EXPECT_EQ(first, ev.expires_ns);
	EXPECT_EQ(0, ev.overrun);
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, &ev, 1));
}

/* TAI is also set by itself, which the wall clock takes no part in. */
FIXTURE(tai)
{
	int fd;
};

FIXTURE_SETUP(tai)
{
	self->fd = -1;
	if (!tw_set_tai(0))
		SKIP(return, "the offset of TAI may not be set");
	self->fd = tw_wheel(CLOCK_TAI, TW_TICK_MIN, 0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(tai)
{
	tw_set_tai(0);
	close(self->fd);
}

/* Without high resolution nobody but the module sees to it. */
TEST_F(tai, a_timer_that_its_offset_makes_due_fires)
{
	ASSERT_NE(0, tw_arm(self->fd, tw_clock(CLOCK_TAI) + TW_HOUR, 0));
	ASSERT_TRUE(tw_set_tai(7200));
	EXPECT_EQ(POLLIN, tw_poll_for(self->fd, POLLIN, 20000));
}

TEST_F(tai, a_timer_that_its_offset_puts_off_is_not_early)
{
	__u64 expires;

	ASSERT_TRUE(tw_set_tai(2));
	expires = tw_clock(CLOCK_TAI) + TW_NSEC;
	ASSERT_NE(0, tw_arm(self->fd, expires, 0));
	ASSERT_TRUE(tw_set_tai(0));
	EXPECT_EQ(NULL, one_record(self->fd, CLOCK_TAI, expires));
}

TEST_F(clock_set, a_monotonic_timer_takes_no_notice)
{
	int fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, 0);

	ASSERT_LE(0, fd);
	ASSERT_NE(0, tw_arm_rel(fd, TW_HOUR, 0));
	ASSERT_TRUE(move_wall_clock(2 * TW_HOUR));
	EXPECT_EQ(0, tw_poll_for(fd, POLLIN, 50));
	close(fd);
}

/* Time namespaces: absolute times are those of the opener. */
FIXTURE(timens)
{
	int fd;
};

FIXTURE_VARIANT(timens)
{
	clockid_t clockid;
	const char *offset;
};

FIXTURE_VARIANT_ADD(timens, monotonic_forward)
{
	.clockid = CLOCK_MONOTONIC,
	.offset = "monotonic 1000000 5",
};

FIXTURE_VARIANT_ADD(timens, boottime_forward)
{
	.clockid = CLOCK_BOOTTIME,
	.offset = "boottime 1000000 5",
};

FIXTURE_VARIANT_ADD(timens, monotonic_backward)
{
	.clockid = CLOCK_MONOTONIC,
	.offset = "monotonic -1 5",
};

FIXTURE_SETUP(timens)
{
	self->fd = -1;
}

FIXTURE_TEARDOWN(timens)
{
	close(self->fd);
}

/* Children of this process will live with @offset. */
static bool enter_timens(const char *offset)
{
	bool entered = false;
	FILE *f;

	if (unshare(CLONE_NEWTIME))
		return false;
	f = fopen("/proc/self/timens_offsets", "w");
	if (f) {
		entered = fputs(offset, f) >= 0;
		entered &= !fclose(f);
	}
	return entered;
}

/* In the namespace: 0, or the line that failed */
static int timens_child(clockid_t clockid)
{
	__u64 before = tw_clock(clockid), now, expires;
	int fd = tw_wheel(clockid, TW_TICK_MIN, 0);

	now = tw_now(fd);
	if (now < before || now > tw_clock(clockid))
		return __LINE__ & 0xff;
	expires = tw_clock(clockid) + 50 * TW_MSEC;
	if (!tw_arm(fd, expires, 0) || one_record(fd, clockid, expires))
		return __LINE__ & 0xff;
	if (!tw_arm(fd, tw_clock(clockid), 0) || !tw_wait_readable(fd))
		return __LINE__ & 0xff;
	if (tw_discard(fd) != 1 || !tw_arm_rel(fd, TW_HOUR, 0))
		return __LINE__ & 0xff;
	if (tw_next(fd) < tw_clock(clockid) + TW_HOUR / 2 ||
	    tw_next(fd) > tw_clock(clockid) + TW_HOUR + TW_TICK_MIN)
		return __LINE__ & 0xff;
	return tw_poll_for(fd, POLLIN, 20) ? __LINE__ & 0xff : 0;
}

TEST_F(timens, times_are_those_of_the_opener)
{
	int status;
	pid_t pid;

	if (!enter_timens(variant->offset))
		SKIP(return, "no time namespaces here");
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(timens_child(variant->clockid));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	EXPECT_EQ(0, status) {
		TH_LOG("failed about line %d (modulo 256)", WEXITSTATUS(status));
	}
}

/* In the namespace: asks and arms with the descriptor of somebody outside */
static void timens_guest(int fd, __u64 *told, __u64 *id)
{
	*told = tw_now(fd);
	*id = tw_arm_rel(fd, TW_HOUR, 0);
}

TEST_F(timens, whoever_asks_is_told_the_time_of_the_opener)
{
	__u64 before, *shared, armed_for;
	struct twheel_op op;
	pid_t pid;

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ASSERT_NE(MAP_FAILED, shared);
	self->fd = tw_wheel(variant->clockid, TW_TICK_MIN, 0);
	ASSERT_LE(0, self->fd);
	if (!enter_timens(variant->offset))
		SKIP(return, "no time namespaces here");
	before = tw_clock(variant->clockid);
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid) {
		timens_guest(self->fd, &shared[0], &shared[1]);
		_exit(0);
	}
	ASSERT_EQ(pid, waitpid(pid, NULL, 0));
	EXPECT_LE(before, shared[0]);
	EXPECT_LE(shared[0], tw_clock(variant->clockid));
	ASSERT_EQ(0, tw_query(self->fd, shared[1], &op));
	armed_for = op.expires_ns - TW_HOUR;
	EXPECT_LE(shared[0], armed_for);
	EXPECT_LE(armed_for, tw_clock(variant->clockid));
}

TEST_HARNESS_MAIN
