// SPDX-License-Identifier: GPL-2.0
/*
 * The counters of a wheel, each exact after operations that are known, and the
 * histogram of lateness, on both sides of each of its bounds.
 */
#include "twheel_test.h"

#define TICK	TW_TICK_MIN

FIXTURE(stats)
{
	int fd;
	struct twheel_stats st;
	struct twheel_op ops[300];
	struct twheel_event ev[64];
};

FIXTURE_SETUP(stats)
{
	self->fd = tw_manual(TICK);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(stats)
{
	close(self->fd);
}

/* All that was late, by any amount or none */
static __u64 lateness_sum(const struct twheel_stats *st)
{
	__u64 sum = 0;
	int i;

	for (i = 0; i < TWHEEL_LATENESS_BUCKETS; i++)
		sum += st->lateness[i];
	return sum;
}

TEST_F(stats, of_a_new_wheel_are_zero)
{
	struct twheel_stats zero = { .size = sizeof(zero) };

	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(0, memcmp(&zero, &self->st, sizeof(zero)));
}

TEST_F(stats, work_before_the_setup)
{
	int fd = tw_open(O_NONBLOCK);

	ASSERT_LE(0, fd);
	ASSERT_EQ(0, tw_stats(fd, &self->st));
	EXPECT_EQ(sizeof(self->st), self->st.size);
	EXPECT_EQ(0, tw_setup(fd, TWHEEL_CLOCK_MANUAL, 0, 0));
	close(fd);
}

/* Arms */
TEST_F(stats, armed_counts_every_arm_that_worked)
{
	struct twheel_op bad = tw_op(TW_HOUR, 0);

	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 0));
	ASSERT_NE(0, tw_arm(self->fd, TWHEEL_NEVER, 0));
	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	bad.resv = 1;
	ASSERT_EQ(-EINVAL, tw_arm_op(self->fd, &bad));
	for (int i = 0; i < 300; i++) {
		self->ops[i] = tw_entry(TW_HOUR, i);
		self->ops[i].pad[0] = i % 3 == 0;
	}
	ASSERT_EQ(300, tw_submit(self->fd, self->ops, 300));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(203, self->st.armed);
}

TEST_F(stats, an_arm_without_room_is_not_counted)
{
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, 10);

	ASSERT_LE(0, fd);
	for (int i = 0; i < 300; i++)
		self->ops[i] = tw_entry(TW_HOUR, i);
	ASSERT_EQ(300, tw_submit(fd, self->ops, 300));
	ASSERT_EQ(0, tw_stats(fd, &self->st));
	EXPECT_EQ(10, self->st.armed);
	close(fd);
}

TEST_F(stats, a_period_is_no_arm)
{
	ASSERT_NE(0, tw_arm_every(self->fd, TICK, TICK, 0));
	for (int i = 1; i <= 10; i++) {
		ASSERT_EQ(0, tw_advance(self->fd, i * TICK));
		ASSERT_EQ(1, tw_discard(self->fd));
	}
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(1, self->st.armed);
	EXPECT_EQ(0, self->st.modified);
	EXPECT_EQ(10, self->st.fired);
}

/* Cancels and modifies */
TEST_F(stats, cancelled_counts_the_armed_and_the_ready)
{
	__u64 armed = tw_arm(self->fd, TW_HOUR, 0), ready = tw_arm(self->fd, 0, 0);

	ASSERT_EQ(0, tw_cancel(self->fd, armed));
	ASSERT_EQ(1, tw_cancel(self->fd, ready));
	ASSERT_EQ(-ENOENT, tw_cancel(self->fd, ready));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(2, self->st.cancelled);
}

TEST_F(stats, cancelled_counts_the_drained)
{
	for (int i = 0; i < 100; i++)
		ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 0));
	ASSERT_EQ(100, tw_drain(self->fd, self->ops, 300));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(100, self->st.cancelled);
}

TEST_F(stats, modified_counts_every_modify_that_worked)
{
	__u64 armed = tw_arm(self->fd, TW_HOUR, 0), ready = tw_arm(self->fd, 0, 0);

	ASSERT_EQ(0, tw_modify(self->fd, armed, 2 * TW_HOUR));
	ASSERT_EQ(0, tw_modify(self->fd, armed, TWHEEL_NEVER));
	ASSERT_EQ(1, tw_modify(self->fd, ready, TW_HOUR));
	ASSERT_EQ(-EINVAL, tw_modify(self->fd, armed, TWHEEL_NEVER - 1));
	ASSERT_EQ(-ENOENT, tw_modify(self->fd, 1, TW_HOUR));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(3, self->st.modified);
	EXPECT_EQ(2, self->st.armed);
	EXPECT_EQ(0, self->st.cancelled);
}

TEST_F(stats, looking_is_not_counted)
{
	struct twheel_stats after;
	__u64 id = tw_arm(self->fd, TW_HOUR, 0), cursor = 0;

	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	ASSERT_EQ(TWHEEL_F_ARMED, tw_state(self->fd, id));
	ASSERT_EQ(tw_boundary(TW_HOUR, TICK), tw_next(self->fd));
	ASSERT_EQ(1, tw_list(self->fd, self->ops, 300, &cursor));
	ASSERT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	ASSERT_EQ(0, tw_poll(self->fd));
	ASSERT_EQ(0, tw_stats(self->fd, &after));
	EXPECT_EQ(0, memcmp(&self->st, &after, sizeof(after)));
}

/* Expiries */
TEST_F(stats, fired_counts_expiries_and_not_reads)
{
	for (int i = 1; i <= 20; i++)
		ASSERT_NE(0, tw_arm(self->fd, i * TICK, 0));
	ASSERT_EQ(0, tw_advance(self->fd, 15 * TICK));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(15, self->st.fired);
	ASSERT_EQ(15, tw_discard(self->fd));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(15, self->st.fired);
}

TEST_F(stats, fired_counts_a_deadline_that_has_passed)
{
	__u64 id = tw_arm(self->fd, 0, 0);

	ASSERT_EQ(1, tw_modify(self->fd, id, 0));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(2, self->st.fired);
}

/* What one record tells fires once, what a burst tells with each record. */
TEST_F(stats, fired_counts_records_and_not_periods)
{
	static const __u64 fired[] = { 1, 100, 1 };
	int i;

	for (i = 0; i < 3; i++) {
		struct twheel_op op = tw_op(TICK, 0);
		int fd = tw_manual(TICK);

		ASSERT_LE(0, fd);
		op.interval_ns = TICK;
		op.count = 100;
		op.misfire = i;
		ASSERT_EQ(0, tw_arm_op(fd, &op));
		ASSERT_EQ(0, tw_advance(fd, TW_HOUR));
		ASSERT_EQ(fired[i], tw_discard(fd));
		ASSERT_EQ(0, tw_stats(fd, &self->st));
		EXPECT_EQ(fired[i], self->st.fired);
		EXPECT_EQ(1, self->st.ready_max);
		close(fd);
	}
}

TEST_F(stats, ready_max_is_the_most_that_ever_waited)
{
	__u64 id = 0;
	int i;

	for (i = 1; i <= 30; i++)
		id = tw_arm(self->fd, i * TICK, 0);
	ASSERT_EQ(0, tw_advance(self->fd, 10 * TICK));
	ASSERT_EQ(10, tw_discard(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, 22 * TICK));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(12, self->st.ready_max);
	ASSERT_EQ(12, tw_discard(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, 30 * TICK));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(12, self->st.ready_max);
	for (i = 0; i < 5; i++)
		ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	ASSERT_EQ(1, tw_cancel(self->fd, id));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(13, self->st.ready_max);
}

TEST_F(stats, wakeups_count_advances_that_find_work)
{
	ASSERT_NE(0, tw_arm(self->fd, 10 * TICK, 0));
	ASSERT_NE(0, tw_arm(self->fd, 10 * TICK, 0));
	ASSERT_NE(0, tw_arm(self->fd, 20 * TICK, 0));
	ASSERT_EQ(0, tw_advance(self->fd, 10 * TICK - 1));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(0, self->st.wakeups);
	ASSERT_EQ(0, tw_advance(self->fd, 10 * TICK));
	ASSERT_EQ(0, tw_advance(self->fd, 20 * TICK));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(2, self->st.wakeups);
}

TEST_F(stats, a_manual_clock_programs_nothing)
{
	ASSERT_NE(0, tw_arm(self->fd, TW_NSEC, 0));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(0, self->st.hrtimer_starts);
}

/* The first of a coarse slot fires from there, the other moves on. */
TEST_F(stats, cascaded_counts_moves)
{
	ASSERT_NE(0, tw_arm(self->fd, 321 * TICK, 0));
	ASSERT_EQ(0, tw_advance(self->fd, 320 * TICK));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(0, self->st.cascaded);
	ASSERT_EQ(0, tw_advance(self->fd, 6400 * TICK));
	ASSERT_NE(0, tw_arm(self->fd, 6465 * TICK, 0));
	ASSERT_NE(0, tw_arm(self->fd, 6466 * TICK, 0));
	ASSERT_NE(0, tw_arm(self->fd, 6467 * TICK, 0));
	ASSERT_EQ(0, tw_advance(self->fd, 6465 * TICK));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(2, self->st.cascaded);
	ASSERT_EQ(0, tw_advance(self->fd, 6467 * TICK));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(2, self->st.cascaded);
	EXPECT_EQ(4, self->st.fired);
}

TEST_F(stats, add_up)
{
	__u64 seed = 1, ended = 0, ids[64] = { 0 }, now = 0, expires, past = 0;
	struct twheel_info info;
	long ret;
	int i;

	for (i = 0; i < 5000; i++) {
		__u64 *id = &ids[tw_random_below(&seed, 64)];

		switch (tw_random_below(&seed, 5)) {
		case 0:
			now += tw_random_below(&seed, 20 * TICK);
			ASSERT_EQ(0, tw_advance(self->fd, now));
			break;
		case 1:
			ret = tw_read(self->fd, self->ev, 1 + i % 64);
			ended += ret > 0 ? ret : 0;
			break;
		case 2:
			tw_cancel(self->fd, *id);
			break;
		default:
			expires = tw_random_below(&seed, 2 * now + TICK);
			past += expires <= now;
			*id = tw_arm(self->fd, expires, 0);
		}
	}
	ASSERT_EQ(0, tw_info(self->fd, &info));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(self->st.armed, self->st.cancelled + ended + info.armed + info.ready);
	EXPECT_EQ(self->st.fired, lateness_sum(&self->st) + past);
	EXPECT_LE(info.ready, self->st.ready_max);
}

/* Lateness */
static int bucket_of(__u64 late)
{
	int i = 0;

	while (late) {
		i++;
		late >>= 1;
	}
	return i;
}

/* A timer that is noticed @late: true if that, and nothing else, was counted. */
static bool is_counted(__u64 expires, __u64 slack, __u64 to, int bucket)
{
	struct twheel_op op = tw_op(expires, 0);
	struct twheel_stats st;
	int fd = tw_manual(TICK);
	bool good;

	op.slack_ns = slack;
	good = !tw_arm_op(fd, &op) && !tw_advance(fd, to) &&
	       !tw_stats(fd, &st) && st.fired == 1 &&
	       lateness_sum(&st) == 1 && st.lateness[bucket] == 1;
	close(fd);
	return good;
}

TEST_F(stats, lateness_has_a_bucket_for_each_power_of_two)
{
	__u64 expires = 16 * TICK;
	int k;

	EXPECT_TRUE(is_counted(expires, 0, expires, 0));
	for (k = 0; k < 63; k++) {
		__u64 late = 1ULL << k;

		if (late > 1)
			EXPECT_TRUE(is_counted(expires, 0, expires + late - 1, k)) {
				TH_LOG("2^%d - 1", k);
			}
		if (k < 62)
			EXPECT_TRUE(is_counted(expires, 0, expires + late, k + 1)) {
				TH_LOG("2^%d", k);
			}
	}
	EXPECT_TRUE(is_counted(1, 0, TW_S64_MAX, 63));
}

TEST_F(stats, lateness_counts_from_the_expiry_and_not_from_the_tick)
{
	EXPECT_TRUE(is_counted(TICK + 1, 0, 2 * TICK, bucket_of(TICK - 1)));
	EXPECT_TRUE(is_counted(2 * TICK - 1, 0, 2 * TICK, 1));
}

TEST_F(stats, slack_counts_as_on_time)
{
	__u64 expires = 16 * TICK, slack = 1000 * TICK;

	EXPECT_TRUE(is_counted(expires, slack, expires + slack, 0));
	EXPECT_TRUE(is_counted(expires, slack, expires + slack + 1, 1));
	EXPECT_TRUE(is_counted(expires, slack, expires + slack + 2, 2));
	EXPECT_TRUE(is_counted(expires, slack, expires + slack + 4095, 12));
	EXPECT_TRUE(is_counted(expires, slack, expires + slack + 4096, 13));
	EXPECT_TRUE(is_counted(expires, TW_S64_MAX, TW_S64_MAX, 0));
}

/* That is not the wheel's lateness, but the caller's. */
TEST_F(stats, a_deadline_that_has_passed_has_no_lateness)
{
	__u64 id;

	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 0));
	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR - 1024, 0));
	id = tw_arm(self->fd, 2 * TW_HOUR, 0);
	ASSERT_EQ(0, tw_modify(self->fd, id, TW_HOUR - 1));
	ASSERT_EQ(1, tw_modify(self->fd, id, 0));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(4, self->st.fired);
	EXPECT_EQ(0, lateness_sum(&self->st));
}

/* Nor is it the wheel's if the reader takes long. */
TEST_F(stats, a_period_that_had_passed_when_it_was_armed_has_no_lateness)
{
	struct twheel_op op = tw_op(TICK, 0);

	op.interval_ns = TICK;
	op.misfire = TWHEEL_MISFIRE_BURST;
	ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	ASSERT_EQ(0, tw_advance(self->fd, 10 * TICK));
	ASSERT_EQ(10, tw_discard(self->fd));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(10, self->st.fired);
	EXPECT_EQ(1, lateness_sum(&self->st));
	EXPECT_EQ(1, self->st.lateness[bucket_of(9 * TICK)]);
	/* The next is in the wheel again. */
	ASSERT_EQ(0, tw_advance(self->fd, 11 * TICK));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_EQ(11, self->st.fired);
	EXPECT_EQ(1, self->st.lateness[0]);
}

/* The struct */
TEST_F(stats, no_more_bytes_are_written_than_the_caller_has)
{
	unsigned char buf[sizeof(struct twheel_stats) + 8];
	__u32 head[2] = { 0, 0 };

	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	for (head[0] = 8; head[0] <= sizeof(self->st); head[0]++) {
		memset(buf, TW_POISON, sizeof(buf));
		memcpy(buf, head, sizeof(head));
		ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_STATS, buf));
		ASSERT_EQ(0, memcmp(buf + 4, (char *)&self->st + 4, head[0] - 4));
		ASSERT_TRUE(tw_poisoned(buf + head[0], sizeof(buf) - head[0]));
	}
}

TEST_F(stats, what_is_not_known_is_filled_with_zeroes)
{
	unsigned char buf[2 * sizeof(struct twheel_stats) + 8];
	static const unsigned char zeroes[sizeof(struct twheel_stats)];
	size_t known = sizeof(self->st);
	__u32 head[2] = { 0, 0 };

	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	for (head[0] = known; head[0] <= 2 * known; head[0]++) {
		memset(buf, TW_POISON, sizeof(buf));
		memcpy(buf, head, sizeof(head));
		ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_STATS, buf));
		ASSERT_EQ(0, memcmp(buf, &self->st, known));
		ASSERT_EQ(0, memcmp(buf + known, zeroes, head[0] - known));
		ASSERT_TRUE(tw_poisoned(buf + head[0], sizeof(buf) - head[0]));
	}
}

/* Or a second call would write beyond the struct of who has an older header. */
TEST_F(stats, no_larger_size_is_told_than_was_passed)
{
	__u32 size;

	for (size = 8; size < sizeof(self->st); size++) {
		self->st.size = size;
		self->st.flags = 0;
		ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_STATS, &self->st));
		ASSERT_EQ(size, self->st.size);
	}
}

TEST_F(stats, a_size_too_small_is_einval)
{
	__u32 size;

	for (size = 0; size < 8; size++) {
		tw_poison(&self->st);
		self->st.size = size;
		self->st.flags = 0;
		EXPECT_EQ(-EINVAL, tw_ioctl(self->fd, TWHEEL_IOC_STATS, &self->st));
		EXPECT_EQ(TW_POISON64, self->st.armed);
	}
}

TEST_F(stats, every_flag_is_einval)
{
	int bit;

	for (bit = 0; bit < 32; bit++) {
		tw_poison(&self->st);
		self->st.size = sizeof(self->st);
		self->st.flags = 1U << bit;
		EXPECT_EQ(-EINVAL, tw_ioctl(self->fd, TWHEEL_IOC_STATS, &self->st));
		EXPECT_EQ(TW_POISON64, self->st.armed);
	}
}

TEST_F(stats, a_half_mapped_struct_is_efault)
{
	__u32 head[2] = { sizeof(struct twheel_stats), 0 };
	char *cliff = tw_cliff();
	size_t have;

	ASSERT_NE(NULL, cliff);
	for (have = 1; have < sizeof(struct twheel_stats); have++) {
		memcpy(cliff - have, head, have < 8 ? have : 8);
		EXPECT_EQ(-EFAULT, tw_ioctl(self->fd, TWHEEL_IOC_STATS,
					    cliff - have));
	}
}

/* What a person reads is what a program does. */
static bool same_as_fdinfo(int fd, const struct twheel_stats *st)
{
	return st->armed == tw_counter(fd, "arms") &&
	       st->fired == tw_counter(fd, "fired") &&
	       st->cancelled == tw_counter(fd, "cancelled") &&
	       st->modified == tw_counter(fd, "modified") &&
	       st->cascaded == tw_counter(fd, "cascaded") &&
	       st->wakeups == tw_counter(fd, "wakeups") &&
	       st->hrtimer_starts == tw_counter(fd, "hrtimer_starts") &&
	       st->continued == tw_counter(fd, "continued") &&
	       st->ready_max == tw_counter(fd, "ready_max");
}

TEST_F(stats, fdinfo_tells_the_same)
{
	__u64 id;
	int i;

	for (i = 0; i < 1000; i++) {
		id = tw_arm(self->fd, i * i * TICK, 0);
		if (i % 3 == 0)
			ASSERT_LE(0, tw_modify(self->fd, id, i * TW_MSEC));
		if (i % 7 == 0)
			ASSERT_LE(0, tw_cancel(self->fd, id));
		if (i % 11 == 0)
			ASSERT_EQ(0, tw_advance(self->fd, i * TW_MSEC));
	}
	ASSERT_EQ(0, tw_stats(self->fd, &self->st));
	EXPECT_LT(0, self->st.cascaded);
	EXPECT_LT(0, self->st.wakeups);
	EXPECT_TRUE(same_as_fdinfo(self->fd, &self->st));
}

TEST_F(stats, fdinfo_tells_the_lateness)
{
	ASSERT_NE(0, tw_arm(self->fd, TICK, 0));
	ASSERT_EQ(0, tw_advance(self->fd, TICK));
	ASSERT_NE(0, tw_arm(self->fd, 2 * TICK, 0));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TICK + 5));
	EXPECT_EQ(1, tw_counter(self->fd, "late_below_1ns"));
	EXPECT_EQ(1, tw_counter(self->fd, "late_below_8ns"));
}

/* On a clock of the kernel */
TEST_F(stats, a_wake_up_is_programmed_and_comes)
{
	int fd = tw_wheel(CLOCK_MONOTONIC, TICK, 0);

	ASSERT_LE(0, fd);
	ASSERT_NE(0, tw_arm_rel(fd, 5 * TW_MSEC, 0));
	ASSERT_TRUE(tw_wait_readable(fd));
	ASSERT_EQ(1, tw_discard(fd));
	ASSERT_EQ(0, tw_stats(fd, &self->st));
	EXPECT_EQ(1, self->st.armed);
	EXPECT_EQ(1, self->st.fired);
	EXPECT_LE(1, self->st.wakeups);
	EXPECT_LE(self->st.wakeups, self->st.hrtimer_starts);
	EXPECT_EQ(1, lateness_sum(&self->st));
	EXPECT_TRUE(same_as_fdinfo(fd, &self->st));
	close(fd);
}

TEST_HARNESS_MAIN
