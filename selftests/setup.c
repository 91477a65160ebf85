// SPDX-License-Identifier: GPL-2.0
/*
 * TWHEEL_IOC_SETUP, and a file that is not set up yet.
 */
#include "twheel_test.h"

FIXTURE(setup)
{
	int fd;
	struct twheel_info before;
	struct twheel_setup arg;
};

FIXTURE_SETUP(setup)
{
	self->fd = tw_open(O_NONBLOCK);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, tw_info(self->fd, &self->before));
	self->arg.size = sizeof(self->arg);
	self->arg.clockid = TWHEEL_CLOCK_MANUAL;
}

FIXTURE_TEARDOWN(setup)
{
	close(self->fd);
}

/* A failed set-up changed nothing: another still works. */
static bool not_set_up(const FIXTURE_DATA(setup) *self)
{
	struct twheel_info now;

	if (tw_info(self->fd, &now))
		return false;
	now.now_ns = self->before.now_ns;
	return !memcmp(&now, &self->before, sizeof(now)) &&
	       !tw_setup(self->fd, TWHEEL_CLOCK_MANUAL, 0, 0);
}

TEST_F(setup, without_it_the_clock_is_monotonic)
{
	EXPECT_EQ(CLOCK_MONOTONIC, self->before.clockid);
	EXPECT_EQ(TW_TICK_DEFAULT, self->before.tick_ns);
	EXPECT_EQ(0, self->before.armed);
	EXPECT_EQ(0, self->before.ready);
}

TEST_F(setup, info_works_before_it_and_tells_the_time)
{
	__u64 before = tw_clock(CLOCK_MONOTONIC);
	__u64 now = tw_now(self->fd);

	EXPECT_LE(before, now);
	EXPECT_LE(now, tw_clock(CLOCK_MONOTONIC));
}

TEST_F(setup, every_clock_of_the_header_is_granted)
{
	static const __u32 clocks[] = {
		CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI,
		TWHEEL_CLOCK_MANUAL,
	};
	struct twheel_info info;
	size_t i;
	int fd;

	for (i = 0; i < ARRAY_SIZE(clocks); i++) {
		fd = tw_wheel(clocks[i], 0, 0);
		ASSERT_LE(0, fd);
		ASSERT_EQ(0, tw_info(fd, &info));
		EXPECT_EQ(clocks[i], info.clockid);
		close(fd);
	}
}

TEST_F(setup, an_unknown_clock_is_einval)
{
	static const __u32 more[] = { 65, 128, 0x7fffffff, 0xffffffff };
	__u32 clock;
	size_t i;

	for (clock = 2; clock < 64; clock++)
		if (clock != CLOCK_BOOTTIME && clock != CLOCK_TAI)
			EXPECT_EQ(-EINVAL, tw_setup(self->fd, clock, 0, 0));
	for (i = 0; i < ARRAY_SIZE(more); i++)
		EXPECT_EQ(-EINVAL, tw_setup(self->fd, more[i], 0, 0));
	EXPECT_TRUE(not_set_up(self));
}

TEST_F(setup, the_tick_granted_is_the_largest_power_not_above_the_wish)
{
	static const struct {
		__u64 wish, granted;
	} ticks[] = {
		{ 0, TW_TICK_DEFAULT },
		{ 1, TW_TICK_MIN },
		{ TW_TICK_MIN - 1, TW_TICK_MIN },
		{ TW_TICK_MIN, TW_TICK_MIN },
		{ TW_TICK_MIN + 1, TW_TICK_MIN },
		{ 2 * TW_TICK_MIN - 1, TW_TICK_MIN },
		{ 2 * TW_TICK_MIN, 2 * TW_TICK_MIN },
		{ TW_MSEC, 1 << 19 },
		{ TW_TICK_DEFAULT, TW_TICK_DEFAULT },
		{ TW_NSEC, 1 << 29 },
		{ TW_TICK_MAX - 1, TW_TICK_MAX / 2 },
		{ TW_TICK_MAX, TW_TICK_MAX },
		{ TW_TICK_MAX + 1, TW_TICK_MAX },
		{ 2 * TW_TICK_MAX, TW_TICK_MAX },
		{ TW_S64_MAX, TW_TICK_MAX },
	};
	struct twheel_info info;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ticks); i++) {
		int fd = tw_open(0);

		self->arg.tick_ns = ticks[i].wish;
		self->arg.capacity = 0;
		ASSERT_EQ(0, tw_ioctl(fd, TWHEEL_IOC_SETUP, &self->arg));
		EXPECT_EQ(ticks[i].granted, self->arg.tick_ns);
		ASSERT_EQ(0, tw_info(fd, &info));
		EXPECT_EQ(ticks[i].granted, info.tick_ns);
		close(fd);
	}
}

TEST_F(setup, the_capacity_granted_is_written_back)
{
	struct twheel_info info;

	self->arg.capacity = 1000;
	ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
	ASSERT_EQ(0, tw_info(self->fd, &info));
	EXPECT_LE(1000, self->arg.capacity);
	EXPECT_EQ(self->arg.capacity, info.capacity);
}

TEST_F(setup, no_capacity_means_the_default)
{
	ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
	EXPECT_EQ(self->before.capacity, self->arg.capacity);
}

TEST_F(setup, a_capacity_above_the_largest_is_eperm)
{
	__u32 max = self->before.capacity_max;

	if (max == 0xffffffff)
		SKIP(return, "there is no larger capacity");
	EXPECT_EQ(-EPERM, tw_setup(self->fd, TWHEEL_CLOCK_MANUAL, 0, max + 1));
	EXPECT_EQ(-EPERM, tw_setup(self->fd, TWHEEL_CLOCK_MANUAL, 0, ~0U));
	EXPECT_TRUE(not_set_up(self));
}

TEST_F(setup, the_largest_capacity_is_granted)
{
	EXPECT_EQ(0, tw_setup(self->fd, TWHEEL_CLOCK_MANUAL, 0,
			      self->before.capacity_max));
}

TEST_F(setup, a_second_one_is_ebusy)
{
	ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
	EXPECT_EQ(-EBUSY, tw_setup(self->fd, CLOCK_MONOTONIC, 4096, 0));
	EXPECT_EQ(0, tw_now(self->fd));
}

TEST_F(setup, after_the_first_arm_it_is_ebusy)
{
	ASSERT_NE(0, tw_arm(self->fd, TWHEEL_NEVER, 0));
	EXPECT_EQ(-EBUSY, tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
}

TEST_F(setup, after_a_cancelled_arm_it_is_still_ebusy)
{
	__u64 id = tw_arm(self->fd, TWHEEL_NEVER, 0);

	ASSERT_EQ(0, tw_cancel(self->fd, id));
	EXPECT_EQ(-EBUSY, tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
}

TEST_F(setup, an_unknown_flag_is_einval)
{
	int bit;

	for (bit = 1; bit < 32; bit++) {
		self->arg.flags = 1U << bit;
		EXPECT_EQ(-EINVAL,
			  tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
	}
	EXPECT_TRUE(not_set_up(self));
}

TEST_F(setup, nonzero_padding_is_einval)
{
	int byte;

	for (byte = 0; byte < 4; byte++) {
		self->arg.pad = 0x80U << (8 * byte);
		EXPECT_EQ(-EINVAL,
			  tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
	}
	EXPECT_TRUE(not_set_up(self));
}

TEST_F(setup, every_moderation_is_granted)
{
	static const struct {
		__u64 delay;
		__u32 batch;
	} wishes[] = {
		{ 0, 0 }, { 0, 1 }, { 1, 0 }, { 1, 1 }, { 1, 2 }, { 1, ~0U },
		{ TW_S64_MAX, 0 }, { TW_S64_MAX, ~0U },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(wishes); i++) {
		int fd = tw_open(0);

		self->arg.wake_delay_ns = wishes[i].delay;
		self->arg.wake_batch = wishes[i].batch;
		EXPECT_EQ(0, tw_ioctl(fd, TWHEEL_IOC_SETUP, &self->arg));
		EXPECT_EQ(wishes[i].delay, self->arg.wake_delay_ns);
		EXPECT_EQ(wishes[i].batch, self->arg.wake_batch);
		close(fd);
	}
}

TEST_F(setup, a_batch_without_a_delay_is_einval)
{
	static const __u32 batches[] = { 2, 3, 1000, 0x7fffffff, 0x80000000, ~0U };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(batches); i++) {
		self->arg.wake_batch = batches[i];
		EXPECT_EQ(-EINVAL,
			  tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
	}
	EXPECT_TRUE(not_set_up(self));
}

TEST_F(setup, a_delay_or_tick_above_s64_max_is_einval)
{
	static const __u64 bad[] = { TW_S64_MAX + 1, TWHEEL_NEVER };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		self->arg.wake_delay_ns = bad[i];
		EXPECT_EQ(-EINVAL,
			  tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
		self->arg.wake_delay_ns = 0;
		self->arg.tick_ns = bad[i];
		EXPECT_EQ(-EINVAL,
			  tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
		self->arg.tick_ns = 0;
	}
	EXPECT_TRUE(not_set_up(self));
}

TEST_F(setup, a_wake_batch_of_one_is_as_good_as_none)
{
	self->arg.wake_batch = 1;
	EXPECT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
}

TEST_F(setup, clock_set_records_are_for_the_wall_clock_alone)
{
	static const __u32 others[] = {
		CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI, TWHEEL_CLOCK_MANUAL,
	};
	size_t i;
	int fd = tw_open(0);

	self->arg.flags = TWHEEL_SETUP_CLOCK_SET;
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		self->arg.clockid = others[i];
		EXPECT_EQ(-EINVAL,
			  tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
	}
	EXPECT_TRUE(not_set_up(self));
	self->arg.clockid = CLOCK_REALTIME;
	EXPECT_EQ(0, tw_ioctl(fd, TWHEEL_IOC_SETUP, &self->arg));
	close(fd);
}

TEST_F(setup, a_size_below_the_first_version_is_einval)
{
	for (self->arg.size = 0; self->arg.size < 40; self->arg.size++)
		EXPECT_EQ(-EINVAL,
			  tw_ioctl(self->fd, TWHEEL_IOC_SETUP, &self->arg));
	EXPECT_TRUE(not_set_up(self));
}

TEST_F(setup, a_larger_size_with_a_zero_tail_works)
{
	unsigned char buf[96];
	__u32 size, i;
	int fd;

	for (size = 40; size <= 80; size++) {
		memset(buf, TW_POISON, sizeof(buf));
		memset(buf, 0, size);
		self->arg.size = size;
		memcpy(buf, &self->arg, sizeof(self->arg));
		fd = tw_open(0);
		ASSERT_LE(0, fd);
		EXPECT_EQ(0, tw_ioctl(fd, TWHEEL_IOC_SETUP, buf));
		for (i = size; i < sizeof(buf); i++)
			EXPECT_EQ(TW_POISON, buf[i]);
		close(fd);
	}
}

TEST_F(setup, a_larger_size_with_a_nonzero_tail_is_e2big)
{
	unsigned char buf[96];
	__u32 size;

	for (size = 41; size <= 80; size++) {
		memset(buf, 0, sizeof(buf));
		self->arg.size = size;
		memcpy(buf, &self->arg, sizeof(self->arg));
		buf[size - 1] = 1;
		EXPECT_EQ(-E2BIG, tw_ioctl(self->fd, TWHEEL_IOC_SETUP, buf));
	}
	EXPECT_TRUE(not_set_up(self));
}

TEST_F(setup, a_half_mapped_struct_is_efault)
{
	char *cliff = tw_cliff();
	size_t have;

	ASSERT_NE(NULL, cliff);
	for (have = 1; have < sizeof(self->arg); have++) {
		memcpy(cliff - have, &self->arg, have);
		EXPECT_EQ(-EFAULT, tw_ioctl(self->fd, TWHEEL_IOC_SETUP,
					    cliff - have));
	}
	EXPECT_TRUE(not_set_up(self));
}

TEST_F(setup, advance_of_a_clock_that_is_not_manual_is_einval)
{
	EXPECT_EQ(-EINVAL, tw_advance(self->fd, TW_S64_MAX));
	EXPECT_TRUE(not_set_up(self));
}

TEST_F(setup, next_without_it_is_never)
{
	EXPECT_EQ(TWHEEL_NEVER, tw_next(self->fd));
}

TEST_F(setup, a_read_without_it_finds_nothing)
{
	struct twheel_event ev;

	EXPECT_EQ(-EAGAIN, tw_read(self->fd, &ev, 1));
	EXPECT_TRUE(not_set_up(self));
}

TEST_F(setup, fdinfo_has_every_line)
{
	static const char * const keys[] = {
		"clockid", "tick_ns", "capacity", "armed", "ready", "fired",
		"cancelled", "modified", "cascaded", "wakeups",
		"hrtimer_starts", "continued", "ready_max", "next_wake_ns",
	};
	__u64 value;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(keys); i++)
		EXPECT_EQ(0, tw_fdinfo(self->fd, keys[i], &value)) {
			TH_LOG("line %zu", i);
		}
	EXPECT_EQ(CLOCK_MONOTONIC, tw_counter(self->fd, "clockid"));
	EXPECT_EQ(TW_TICK_DEFAULT, tw_counter(self->fd, "tick_ns"));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
}

TEST_HARNESS_MAIN
