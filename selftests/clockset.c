// SPDX-License-Identifier: GPL-2.0
/*
 * clockset.c - TWHEEL_SETUP_CLOCK_SET: the record that the wall clock was set
 *
 * The clock is read and then set, so a jump is a little smaller than asked for.
 */
#include "twheel_test.h"

#define ROOM		8
#define TOLERANCE	(60 * (__s64)TW_NSEC)

static long setup_clock_set(int fd, __u32 clockid, __u32 flags)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.flags = flags,
		.clockid = clockid,
		.tick_ns = TW_TICK_MIN,
	};

	return tw_ioctl(fd, TWHEEL_IOC_SETUP, &setup);
}

static bool jump_by(__s64 ns)
{
	return tw_set_wall_clock(tw_clock(CLOCK_REALTIME) + ns);
}

static bool about(__u64 jump, __s64 asked)
{
	return llabs((__s64)jump - asked) < TOLERANCE;
}

FIXTURE(clockset)
{
	int fd;
	__u64 offset;
	struct twheel_event ev[ROOM];
};

FIXTURE_SETUP(clockset)
{
	self->fd = -1;
	self->offset = tw_clock(CLOCK_REALTIME) - tw_clock(CLOCK_MONOTONIC);
	if (!jump_by(0))
		SKIP(return, "the wall clock may not be set");
	self->fd = tw_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, setup_clock_set(self->fd, CLOCK_REALTIME, TWHEEL_SETUP_CLOCK_SET));
}

FIXTURE_TEARDOWN(clockset)
{
	tw_set_wall_clock(tw_clock(CLOCK_MONOTONIC) + self->offset);
	close(self->fd);
}

TEST_F(clockset, a_set_forward_is_told_with_its_size)
{
	ASSERT_TRUE(jump_by(TW_HOUR));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, ROOM));
	EXPECT_TRUE(about(self->ev[0].expires_ns, TW_HOUR));
}

TEST_F(clockset, a_set_backward_is_told_in_twos_complement)
{
	ASSERT_TRUE(jump_by(-(__s64)TW_HOUR));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, ROOM));
	EXPECT_TRUE(about(self->ev[0].expires_ns, -(__s64)TW_HOUR));
}

TEST_F(clockset, a_jump_of_ten_years_is_told)
{
	__s64 jump = 10 * 365 * 24 * TW_HOUR;

	ASSERT_TRUE(jump_by(jump));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, ROOM));
	EXPECT_TRUE(about(self->ev[0].expires_ns, jump));
}

TEST_F(clockset, the_record_says_what_it_is)
{
	ASSERT_TRUE(jump_by(TW_HOUR));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, ROOM));
	EXPECT_EQ(TWHEEL_EV_CLOCK_SET, self->ev[0].flags);
}

TEST_F(clockset, the_record_names_no_timer)
{
	ASSERT_TRUE(jump_by(TW_HOUR));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, ROOM));
	EXPECT_EQ(0, self->ev[0].id | self->ev[0].user_data | self->ev[0].overrun);
}

TEST_F(clockset, one_set_gives_one_record)
{
	ASSERT_TRUE(jump_by(TW_HOUR));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, ROOM));
	EXPECT_EQ(0, tw_poll_for(self->fd, POLLIN, 50));
}

TEST_F(clockset, two_sets_that_nobody_read_are_told_as_their_sum)
{
	__s64 sum = 0;
	long i, nr;

	ASSERT_TRUE(jump_by(TW_HOUR));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_TRUE(jump_by(TW_HOUR));
	while (!about(sum, 2 * TW_HOUR)) {
		ASSERT_TRUE(tw_wait_readable(self->fd));
		nr = tw_read(self->fd, self->ev, ROOM);
		for (i = 0; i < nr; i++)
			sum += self->ev[i].expires_ns;
	}
	EXPECT_EQ(0, tw_poll_for(self->fd, POLLIN, 50));
}

/* Another wheel that is told of sets, and whose record tells that one was noticed */
static int witness(void)
{
	int fd = tw_open(O_NONBLOCK);

	setup_clock_set(fd, CLOCK_REALTIME, TWHEEL_SETUP_CLOCK_SET);
	return fd;
}

static bool jump_seen_by(int fd, __s64 ns)
{
	struct twheel_event ev;

	return jump_by(ns) && tw_wait_readable(fd) && tw_read(fd, &ev, 1) == 1;
}

TEST_F(clockset, sets_that_cancel_out_are_told_all_the_same)
{
	int fd = witness();

	ASSERT_TRUE(jump_seen_by(fd, TW_HOUR));
	ASSERT_TRUE(jump_seen_by(fd, -(__s64)TW_HOUR));
	/* Before this is noticed anywhere, the last has been noticed everywhere. */
	ASSERT_TRUE(jump_seen_by(fd, TW_MSEC));
	ASSERT_LE(1, tw_read(self->fd, self->ev, ROOM));
	EXPECT_EQ(TWHEEL_EV_CLOCK_SET, self->ev[0].flags);
	EXPECT_TRUE(about(self->ev[0].expires_ns, 0));
	close(fd);
}

TEST_F(clockset, the_record_stands_before_those_of_timers_and_is_told_at_once)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.flags = TWHEEL_SETUP_CLOCK_SET,
		.clockid = CLOCK_REALTIME,
		.wake_delay_ns = 1000 * TW_HOUR,
		.wake_batch = 100,
	};
	int fd = tw_open(O_NONBLOCK);

	ASSERT_EQ(0, tw_ioctl(fd, TWHEEL_IOC_SETUP, &setup));
	ASSERT_NE(0, tw_arm(fd, 1, 7));
	ASSERT_EQ(1, tw_ready(fd));
	ASSERT_EQ(0, tw_poll(fd));
	ASSERT_TRUE(jump_by(TW_HOUR));
	ASSERT_TRUE(tw_wait_readable(fd));
	ASSERT_EQ(2, tw_read(fd, self->ev, ROOM));
	EXPECT_EQ(TWHEEL_EV_CLOCK_SET, self->ev[0].flags);
	EXPECT_EQ(7, self->ev[1].user_data);
	close(fd);
}

TEST_F(clockset, the_record_has_the_time_of_the_clock_as_it_was_set)
{
	__u64 before = tw_clock(CLOCK_REALTIME);

	ASSERT_TRUE(jump_by(TW_HOUR));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, ROOM));
	EXPECT_LE(before + TW_HOUR, self->ev[0].fired_ns);
	EXPECT_LE(self->ev[0].fired_ns, tw_clock(CLOCK_REALTIME));
}

TEST_F(clockset, the_record_comes_with_those_of_timers)
{
	__u64 id = tw_arm(self->fd, tw_clock(CLOCK_REALTIME) + TW_HOUR, 7);
	long nr = 0;

	ASSERT_TRUE(jump_by(2 * TW_HOUR));
	while (nr < 2) {
		ASSERT_TRUE(tw_wait_readable(self->fd));
		nr += tw_read(self->fd, self->ev + nr, ROOM - nr);
	}
	EXPECT_EQ(id, self->ev[0].id + self->ev[1].id);
}

TEST_F(clockset, a_fault_does_not_lose_the_record)
{
	ASSERT_TRUE(jump_by(TW_HOUR));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	ASSERT_EQ(-1, read(self->fd, tw_cliff(), sizeof(*self->ev)));
	ASSERT_EQ(EFAULT, errno);
	EXPECT_EQ(1, tw_read(self->fd, self->ev, ROOM));
}

TEST_F(clockset, without_the_flag_nothing_is_told)
{
	int fd = tw_wheel(CLOCK_REALTIME, TW_TICK_MIN, 0);

	ASSERT_TRUE(jump_by(TW_HOUR));
	ASSERT_TRUE(tw_wait_readable(self->fd));
	EXPECT_EQ(0, tw_poll(fd));
	close(fd);
}

TEST_F(clockset, a_wheel_that_was_closed_is_not_told)
{
	int fd = tw_open(O_NONBLOCK);

	ASSERT_EQ(0, setup_clock_set(fd, CLOCK_REALTIME, TWHEEL_SETUP_CLOCK_SET));
	close(fd);
	ASSERT_TRUE(jump_by(TW_HOUR));
	EXPECT_TRUE(tw_wait_readable(self->fd));
}

TEST(only_the_wall_clock_can_be_watched)
{
	int fd = tw_open(O_NONBLOCK);

	EXPECT_EQ(-EINVAL, setup_clock_set(fd, CLOCK_TAI, TWHEEL_SETUP_CLOCK_SET));
	close(fd);
}

TEST_HARNESS_MAIN
