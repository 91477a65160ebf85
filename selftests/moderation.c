// SPDX-License-Identifier: GPL-2.0
/*
 * moderation.c - wake_batch and wake_delay_ns: when readers learn of records
 */
#include <sys/epoll.h>

#include "twheel_test.h"

#define TICK	TW_TICK_MIN
#define BATCH	4
#define DELAY	(100 * TICK)
#define ROOM	16

static long setup_with_tick(int fd, __u32 clockid, __u64 tick, __u32 batch, __u64 delay)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.clockid = clockid,
		.tick_ns = tick,
		.wake_batch = batch,
		.wake_delay_ns = delay,
	};

	return tw_ioctl(fd, TWHEEL_IOC_SETUP, &setup);
}

static long setup_moderated(int fd, __u32 clockid, __u32 batch, __u64 delay)
{
	return setup_with_tick(fd, clockid, TICK, batch, delay);
}

FIXTURE(moderation)
{
	int fd;
	struct twheel_event ev[ROOM];
};

FIXTURE_SETUP(moderation)
{
	self->fd = tw_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, setup_moderated(self->fd, TWHEEL_CLOCK_MANUAL, BATCH, DELAY));
}

FIXTURE_TEARDOWN(moderation)
{
	close(self->fd);
}

/* Arms @nr timers for the next ticks and lets them fire. */
static bool fire(int fd, unsigned int nr)
{
	__u64 now = tw_now(fd);
	unsigned int i;

	for (i = 1; i <= nr; i++)
		if (!tw_arm(fd, now + i * TICK, i))
			return false;
	return tw_advance(fd, now + nr * TICK) == 0;
}

TEST_F(moderation, poll_keeps_quiet_about_fewer_records_than_the_batch)
{
	ASSERT_TRUE(fire(self->fd, BATCH - 1));
	EXPECT_EQ(0, tw_poll(self->fd));
}

TEST_F(moderation, poll_tells_of_a_full_batch)
{
	ASSERT_TRUE(fire(self->fd, BATCH));
	EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(self->fd));
}

TEST_F(moderation, poll_tells_of_one_record_after_the_delay)
{
	ASSERT_TRUE(fire(self->fd, 1));
	ASSERT_EQ(0, tw_advance(self->fd, tw_now(self->fd) + DELAY - 1));
	EXPECT_EQ(0, tw_poll(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, tw_now(self->fd) + 1));
	EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(self->fd));
}

TEST_F(moderation, the_delay_counts_from_the_first_record)
{
	__u64 first;

	ASSERT_TRUE(fire(self->fd, 1));
	first = tw_now(self->fd);
	ASSERT_EQ(0, tw_advance(self->fd, first + DELAY / 2));
	ASSERT_TRUE(fire(self->fd, 1));
	ASSERT_EQ(0, tw_advance(self->fd, first + DELAY));
	EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(self->fd));
}

TEST_F(moderation, a_read_that_does_not_block_takes_what_there_is)
{
	ASSERT_TRUE(fire(self->fd, 1));
	EXPECT_EQ(1, tw_read(self->fd, self->ev, ROOM));
}

TEST_F(moderation, an_emptied_queue_is_moderated_anew)
{
	ASSERT_TRUE(fire(self->fd, BATCH));
	ASSERT_EQ(BATCH, tw_read(self->fd, self->ev, ROOM));
	ASSERT_TRUE(fire(self->fd, BATCH - 1));
	EXPECT_EQ(0, tw_poll(self->fd));
}

TEST_F(moderation, a_queue_that_was_announced_stays_so_until_it_is_empty)
{
	ASSERT_TRUE(fire(self->fd, BATCH));
	ASSERT_EQ(BATCH - 1, tw_read(self->fd, self->ev, BATCH - 1));
	EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(self->fd));
}

TEST_F(moderation, epoll_with_edges_tells_of_a_record_added_to_the_rest_of_a_batch)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };
	int ep = epoll_create1(EPOLL_CLOEXEC);

	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, self->fd, &event));
	ASSERT_TRUE(fire(self->fd, BATCH));
	ASSERT_EQ(1, epoll_wait(ep, &event, 1, TW_PATIENCE_MS));
	ASSERT_EQ(BATCH - 1, tw_read(self->fd, self->ev, BATCH - 1));
	ASSERT_TRUE(fire(self->fd, 1));
	EXPECT_EQ(1, epoll_wait(ep, &event, 1, TW_PATIENCE_MS));
	close(ep);
}

TEST_F(moderation, a_queue_emptied_by_cancel_is_not_announced_later)
{
	__u64 id = tw_arm(self->fd, tw_now(self->fd) + TICK, 1);

	ASSERT_EQ(0, tw_advance(self->fd, tw_now(self->fd) + TICK));
	ASSERT_EQ(1, tw_cancel(self->fd, id));
	ASSERT_EQ(0, tw_advance(self->fd, tw_now(self->fd) + 2 * DELAY));
	EXPECT_EQ(0, tw_poll(self->fd));
}

TEST_F(moderation, an_arm_in_the_past_counts_for_the_batch)
{
	unsigned int i;

	for (i = 0; i < BATCH; i++) {
		ASSERT_EQ(0, tw_poll(self->fd));
		ASSERT_NE(0, tw_arm(self->fd, 0, i));
	}
	EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(self->fd));
}

TEST_F(moderation, a_sleeper_in_read_is_woken_by_the_full_batch)
{
	struct tw_sleeper s = { };

	ASSERT_TRUE(tw_set_blocking(self->fd) == 0);
	ASSERT_TRUE(fire(self->fd, BATCH - 1));
	ASSERT_TRUE(tw_sleeper_start(&s, self->fd, tw_sleeper_read));
	EXPECT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_TRUE(fire(self->fd, 1));
	EXPECT_TRUE(tw_sleeper_joined(&s));
}

TEST(without_a_delay_the_first_record_is_announced_at_once)
{
	int fd = tw_open(O_NONBLOCK);

	ASSERT_EQ(0, setup_moderated(fd, TWHEEL_CLOCK_MANUAL, 1, 0));
	ASSERT_TRUE(fire(fd, 1));
	EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(fd));
	close(fd);
}

TEST(without_a_batch_the_first_record_is_announced_at_once)
{
	int fd = tw_open(O_NONBLOCK);

	ASSERT_EQ(0, setup_moderated(fd, TWHEEL_CLOCK_MANUAL, 1, DELAY));
	ASSERT_TRUE(fire(fd, 1));
	EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(fd));
	close(fd);
}

TEST(on_a_kernel_clock_the_delay_wakes_a_poller)
{
	int fd = tw_open(O_NONBLOCK);

	ASSERT_EQ(0, setup_moderated(fd, CLOCK_MONOTONIC, BATCH, 20 * TW_MSEC));
	ASSERT_NE(0, tw_arm_rel(fd, TW_MSEC, 0));
	EXPECT_TRUE(tw_wait_readable(fd));
	close(fd);
}

TEST(once_read_no_hrtimer_waits_for_the_delay)
{
	int fd = tw_open(O_NONBLOCK);

	ASSERT_EQ(0, setup_moderated(fd, CLOCK_MONOTONIC, BATCH, TW_HOUR));
	ASSERT_NE(0, tw_arm(fd, 0, 0));
	ASSERT_NE(TWHEEL_NEVER, tw_counter(fd, "next_wake_ns"));
	ASSERT_EQ(1, tw_discard(fd));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(fd, "next_wake_ns"));
	close(fd);
}

/* The delay is "at the latest", however coarse the tick is. */
TEST(a_delay_below_the_tick_is_not_rounded_up)
{
	const __u64 begin = 5 * TW_TICK_MAX + TW_TICK_MAX / 3;
	int fd = tw_open(O_NONBLOCK);

	ASSERT_EQ(0, setup_with_tick(fd, TWHEEL_CLOCK_MANUAL, TW_TICK_MAX, BATCH, TW_MSEC));
	ASSERT_EQ(0, tw_advance(fd, begin));
	ASSERT_NE(0, tw_arm(fd, begin, 0));
	ASSERT_EQ(0, tw_advance(fd, begin + TW_MSEC - 1));
	ASSERT_EQ(0, tw_poll(fd));
	ASSERT_EQ(0, tw_advance(fd, begin + TW_MSEC));
	EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(fd));
	close(fd);
}

TEST(a_delay_of_some_ticks_is_not_rounded_up)
{
	const __u64 begin = 5 * TW_TICK_MAX + TW_TICK_MAX / 3, delay = 3 * TW_TICK_MAX + 1;
	int fd = tw_open(O_NONBLOCK);

	ASSERT_EQ(0, setup_with_tick(fd, TWHEEL_CLOCK_MANUAL, TW_TICK_MAX, BATCH, delay));
	ASSERT_EQ(0, tw_advance(fd, begin));
	ASSERT_NE(0, tw_arm(fd, begin, 0));
	ASSERT_EQ(0, tw_advance(fd, begin + delay - 1));
	ASSERT_EQ(0, tw_poll(fd));
	ASSERT_EQ(0, tw_advance(fd, begin + delay));
	EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(fd));
	close(fd);
}

TEST(on_a_kernel_clock_the_delay_is_not_rounded_up_to_the_tick)
{
	const __u64 delay = 100 * TW_NSEC;
	int fd = tw_open(O_NONBLOCK);
	__u64 before, wake;

	ASSERT_EQ(0, setup_with_tick(fd, CLOCK_MONOTONIC, TW_TICK_MAX, BATCH, delay));
	before = tw_clock(CLOCK_MONOTONIC);
	ASSERT_NE(0, tw_arm(fd, 0, 0));
	wake = tw_counter(fd, "next_wake_ns");
	EXPECT_LE(before + delay, wake);
	EXPECT_GE(tw_clock(CLOCK_MONOTONIC) + delay, wake);
	close(fd);
}

/* The delay is a duration: a clock that is set does not move its end (P35). */
FIXTURE(moderated_clock)
{
	int fd;
	__u64 offset;		/* wall clock less monotonic clock */
};

FIXTURE_VARIANT(moderated_clock)
{
	clockid_t clockid;
};

FIXTURE_VARIANT_ADD(moderated_clock, realtime)
{
	.clockid = CLOCK_REALTIME,
};

FIXTURE_VARIANT_ADD(moderated_clock, tai)
{
	.clockid = CLOCK_TAI,
};

static bool move_wall_clock(__s64 by)
{
	return tw_set_wall_clock(tw_clock(CLOCK_REALTIME) + by);
}

FIXTURE_SETUP(moderated_clock)
{
	self->fd = -1;
	self->offset = tw_clock(CLOCK_REALTIME) - tw_clock(CLOCK_MONOTONIC);
	if (!move_wall_clock(0) || !tw_set_tai(3600))
		SKIP(return, "the wall clock may not be set");
	self->fd = tw_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, setup_moderated(self->fd, variant->clockid, BATCH, 200 * TW_MSEC));
	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
}

FIXTURE_TEARDOWN(moderated_clock)
{
	tw_set_tai(0);
	tw_set_wall_clock(tw_clock(CLOCK_MONOTONIC) + self->offset);
	close(self->fd);
}

TEST_F(moderated_clock, a_set_backward_does_not_put_off_the_wake_up)
{
	ASSERT_TRUE(move_wall_clock(-(__s64)TW_HOUR));
	EXPECT_TRUE(tw_wait_readable(self->fd));
}

TEST_F(moderated_clock, a_set_forward_does_not_lose_the_wake_up)
{
	ASSERT_TRUE(move_wall_clock(TW_HOUR));
	EXPECT_TRUE(tw_wait_readable(self->fd));
}

TEST_F(moderated_clock, an_offset_of_tai_does_not_put_off_the_wake_up)
{
	ASSERT_TRUE(tw_set_tai(0));
	EXPECT_TRUE(tw_wait_readable(self->fd));
}

TEST_HARNESS_MAIN
