// SPDX-License-Identifier: GPL-2.0
/*
 * What becomes of periods that pass before a read, exactly, by each policy.
 *
 *   TWHEEL_PERIODS=N  how many periods the long tests last, a million by default
 */
#include "twheel_test.h"

#define PERIODS		tw_env("TWHEEL_PERIODS", tw_many(1000000))
#define INTERVAL	1000003
#define READ_MAX	512

static const __u8 policies[] = {
	TWHEEL_MISFIRE_COUNT, TWHEEL_MISFIRE_BURST, TWHEEL_MISFIRE_SKIP,
};

static struct twheel_op periodic(__u64 first, __u64 interval, __u32 count,
				 __u8 misfire)
{
	struct twheel_op op = tw_op(first, first ^ interval);

	op.interval_ns = interval;
	op.count = count;
	op.misfire = misfire;
	return op;
}

static __u64 arm_periodic(int fd, __u64 first, __u64 interval, __u32 count,
			  __u8 misfire)
{
	struct twheel_op op = periodic(first, interval, count, misfire);

	return tw_arm_op(fd, &op) ? 0 : op.id;
}

FIXTURE(misfire)
{
	int fd;
	struct twheel_event ev[READ_MAX];
};

FIXTURE_SETUP(misfire)
{
	self->fd = tw_manual(TW_TICK_MIN);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(misfire)
{
	close(self->fd);
}

TEST_F(misfire, the_policy_is_told_as_armed)
{
	struct twheel_op seen;
	size_t i;
	__u64 id;

	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		id = arm_periodic(self->fd, TW_HOUR, INTERVAL, 7, policies[i]);
		ASSERT_EQ(0, tw_query(self->fd, id, &seen));
		EXPECT_EQ(policies[i], seen.misfire);
		EXPECT_EQ(7, seen.count);
	}
}

TEST_F(misfire, a_modify_changes_the_policy)
{
	struct twheel_op op = periodic(TW_HOUR, INTERVAL, 0,
				       TWHEEL_MISFIRE_BURST), seen;
	size_t i;

	ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		op.misfire = policies[i];
		ASSERT_EQ(0, tw_modify_op(self->fd, &op));
		ASSERT_EQ(0, tw_query(self->fd, op.id, &seen));
		EXPECT_EQ(policies[i], seen.misfire);
	}
}

TEST_F(misfire, the_policy_is_kept_from_period_to_period)
{
	struct twheel_op seen;
	__u64 id, now;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		now = tw_now(self->fd);
		id = arm_periodic(self->fd, now, TW_HOUR, 0, policies[i]);
		ASSERT_EQ(0, tw_advance(self->fd, now + 3 * TW_HOUR));
		ASSERT_LE(1, tw_discard(self->fd));
		ASSERT_EQ(0, tw_query(self->fd, id, &seen));
		EXPECT_EQ(policies[i], seen.misfire);
		ASSERT_EQ(0, tw_cancel(self->fd, id));
	}
}

TEST_F(misfire, a_policy_does_not_matter_to_what_expires_once)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(policies); i++)
		ASSERT_NE(0, arm_periodic(self->fd, i + 1, 0, 0, policies[i]));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(3, tw_read(self->fd, self->ev, READ_MAX));
	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		EXPECT_EQ(i + 1, self->ev[i].expires_ns);
		EXPECT_EQ(0, self->ev[i].overrun);
		EXPECT_EQ(0, self->ev[i].flags);
	}
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(misfire, count_counts_the_missed_in_one_record)
{
	arm_periodic(self->fd, 100, 1000, 0, TWHEEL_MISFIRE_COUNT);
	ASSERT_EQ(0, tw_advance(self->fd, 5 * TW_TICK_MIN));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(100, self->ev[0].expires_ns);
	EXPECT_EQ((5 * TW_TICK_MIN - 100) / 1000, self->ev[0].overrun);
	EXPECT_EQ(TWHEEL_EV_MORE, self->ev[0].flags);
}

TEST_F(misfire, burst_has_a_record_for_each_period)
{
	__u64 id = arm_periodic(self->fd, 100, 1000, 0, TWHEEL_MISFIRE_BURST);
	__u64 now = 5 * TW_TICK_MIN, nr = (now - 100) / 1000 + 1, i;

	ASSERT_EQ(0, tw_advance(self->fd, now));
	ASSERT_EQ(nr, tw_read(self->fd, self->ev, READ_MAX));
	for (i = 0; i < nr; i++) {
		EXPECT_EQ(id, self->ev[i].id);
		EXPECT_EQ(100ULL ^ 1000, self->ev[i].user_data);
		EXPECT_EQ(100 + i * 1000, self->ev[i].expires_ns);
		EXPECT_EQ(now, self->ev[i].fired_ns);
		EXPECT_EQ(0, self->ev[i].overrun);
		EXPECT_EQ(TWHEEL_EV_MORE, self->ev[i].flags);
	}
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	EXPECT_EQ(tw_boundary(100 + nr * 1000, TW_TICK_MIN), tw_next(self->fd));
}

/* The wheel has noticed the first of them only. */
TEST_F(misfire, a_record_of_a_burst_has_the_time_of_the_read_that_made_it_ready)
{
	__u64 noticed = 5 * TW_TICK_MIN, later = 7 * TW_TICK_MIN + 5;

	arm_periodic(self->fd, 100, 1000, 3, TWHEEL_MISFIRE_BURST);
	ASSERT_EQ(0, tw_advance(self->fd, noticed));
	ASSERT_EQ(0, tw_advance(self->fd, later));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 1));
	EXPECT_EQ(noticed, self->ev[0].fired_ns);
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(2, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(later, self->ev[0].fired_ns);
	EXPECT_EQ(TW_HOUR, self->ev[1].fired_ns);
}

TEST_F(misfire, burst_stays_readable_between_its_records)
{
	arm_periodic(self->fd, 100, 1000, 5, TWHEEL_MISFIRE_BURST);
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	for (int i = 0; i < 5; i++) {
		EXPECT_EQ(1, tw_ready(self->fd));
		EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(self->fd));
		EXPECT_EQ(1, tw_read(self->fd, self->ev, 1));
	}
	EXPECT_EQ(0, tw_poll(self->fd));
	EXPECT_EQ(0, tw_ready(self->fd));
	EXPECT_EQ(0, tw_armed(self->fd));
}

TEST_F(misfire, skip_has_no_record_for_the_missed)
{
	__u64 now = 5 * TW_TICK_MIN, next;
	struct twheel_op seen;
	__u64 id = arm_periodic(self->fd, 100, 1000, 0, TWHEEL_MISFIRE_SKIP);

	ASSERT_EQ(0, tw_advance(self->fd, now));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(100, self->ev[0].expires_ns);
	EXPECT_EQ(0, self->ev[0].overrun);
	EXPECT_EQ(TWHEEL_EV_MORE, self->ev[0].flags);
	next = 100 + ((now - 100) / 1000 + 1) * 1000;
	ASSERT_EQ(0, tw_query(self->fd, id, &seen));
	EXPECT_EQ(TWHEEL_F_ARMED, seen.flags);
	EXPECT_EQ(next, seen.expires_ns);
	EXPECT_EQ(tw_boundary(next, TW_TICK_MIN), tw_next(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, tw_boundary(next, TW_TICK_MIN)));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(next, self->ev[0].expires_ns);
}

TEST_F(misfire, a_reader_in_time_sees_the_same_by_each_policy)
{
	size_t i;
	__u64 k;

	for (i = 0; i < ARRAY_SIZE(policies); i++)
		arm_periodic(self->fd, TW_TICK_MIN, TW_TICK_MIN, 100, policies[i]);
	for (k = 1; k <= 100; k++) {
		ASSERT_EQ(0, tw_advance(self->fd, k * TW_TICK_MIN));
		ASSERT_EQ(3, tw_read(self->fd, self->ev, READ_MAX));
		for (i = 0; i < 3; i++) {
			ASSERT_EQ(k * TW_TICK_MIN, self->ev[i].expires_ns);
			ASSERT_EQ(0, self->ev[i].overrun);
			ASSERT_EQ(k < 100 ? TWHEEL_EV_MORE : 0, self->ev[i].flags);
		}
	}
	EXPECT_EQ(0, tw_armed(self->fd));
}

TEST_F(misfire, a_period_is_missed_only_once_it_is_due)
{
	size_t i;
	__u64 now, id;

	/* Of the second period one ns is missing, then nothing. */
	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		now = tw_now(self->fd);
		id = arm_periodic(self->fd, now, TW_HOUR, 0, policies[i]);
		ASSERT_EQ(0, tw_advance(self->fd, now + TW_HOUR - 1));
		ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
		EXPECT_EQ(0, self->ev[0].overrun);
		ASSERT_EQ(0, tw_cancel(self->fd, id));
	}
	now = tw_now(self->fd);
	arm_periodic(self->fd, now, TW_HOUR, 2, TWHEEL_MISFIRE_COUNT);
	ASSERT_EQ(0, tw_advance(self->fd, now + TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(1, self->ev[0].overrun);
	now = tw_now(self->fd);
	arm_periodic(self->fd, now, TW_HOUR, 2, TWHEEL_MISFIRE_BURST);
	ASSERT_EQ(0, tw_advance(self->fd, now + TW_HOUR));
	ASSERT_EQ(2, tw_read(self->fd, self->ev, READ_MAX));
	now = tw_now(self->fd);
	arm_periodic(self->fd, now, TW_HOUR, 2, TWHEEL_MISFIRE_SKIP);
	ASSERT_EQ(0, tw_advance(self->fd, now + TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(0, self->ev[0].flags);
}

/* A finite timer ends exactly, and its id is stale then. */
TEST_F(misfire, count_ends_with_its_last_period)
{
	__u64 id = arm_periodic(self->fd, 1000, 1000, 50, TWHEEL_MISFIRE_COUNT);

	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(49, self->ev[0].overrun);
	EXPECT_EQ(0, self->ev[0].flags);
	EXPECT_EQ(-ENOENT, tw_state(self->fd, id));
}

TEST_F(misfire, burst_ends_with_its_last_period)
{
	__u64 id = arm_periodic(self->fd, 1000, 1000, 50, TWHEEL_MISFIRE_BURST);
	int i;

	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(50, tw_read(self->fd, self->ev, READ_MAX));
	for (i = 0; i < 50; i++) {
		EXPECT_EQ((i + 1) * 1000, self->ev[i].expires_ns);
		EXPECT_EQ(i < 49 ? TWHEEL_EV_MORE : 0, self->ev[i].flags);
	}
	EXPECT_EQ(-ENOENT, tw_state(self->fd, id));
}

TEST_F(misfire, skip_counts_the_missed_as_had)
{
	__u64 id = arm_periodic(self->fd, TW_TICK_MIN, TW_TICK_MIN, 10,
				TWHEEL_MISFIRE_SKIP);
	struct twheel_op seen;

	ASSERT_EQ(0, tw_advance(self->fd, 4 * TW_TICK_MIN));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(TWHEEL_EV_MORE, self->ev[0].flags);
	ASSERT_EQ(0, tw_query(self->fd, id, &seen));
	EXPECT_EQ(6, seen.count);
	EXPECT_EQ(5 * TW_TICK_MIN, seen.expires_ns);
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(5 * TW_TICK_MIN, self->ev[0].expires_ns);
	EXPECT_EQ(0, self->ev[0].flags);
	EXPECT_EQ(-ENOENT, tw_state(self->fd, id));
	EXPECT_EQ(0, tw_armed(self->fd));
}

TEST_F(misfire, query_in_a_burst_tells_what_is_left)
{
	__u64 id = arm_periodic(self->fd, 1000, 1000, 9, TWHEEL_MISFIRE_BURST);
	struct twheel_op seen;

	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(4, tw_read(self->fd, self->ev, 4));
	ASSERT_EQ(0, tw_query(self->fd, id, &seen));
	EXPECT_EQ(TWHEEL_F_READY, seen.flags);
	EXPECT_EQ(5000, seen.expires_ns);
	EXPECT_EQ(5, seen.count);
}

/* Others */
TEST_F(misfire, records_of_others_come_in_between_those_of_a_burst)
{
	int i;

	arm_periodic(self->fd, 1, TW_TICK_MIN, 100, TWHEEL_MISFIRE_BURST);
	ASSERT_NE(0, tw_arm(self->fd, 2, 2));
	ASSERT_NE(0, tw_arm(self->fd, 3, 3));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(102, tw_ready(self->fd) + 99);
	for (i = 0; i < 102; i++)
		ASSERT_EQ(1, tw_read(self->fd, &self->ev[i], 1));
	EXPECT_EQ(1, self->ev[0].expires_ns);
	EXPECT_EQ(2, self->ev[1].expires_ns);
	EXPECT_EQ(3, self->ev[2].expires_ns);
	for (i = 3; i < 102; i++)
		EXPECT_EQ(1 + (i - 2) * TW_TICK_MIN, self->ev[i].expires_ns);
}

TEST_F(misfire, two_bursts_take_turns)
{
	int i;

	arm_periodic(self->fd, 1, TW_TICK_MIN, 100, TWHEEL_MISFIRE_BURST);
	arm_periodic(self->fd, 2, TW_TICK_MIN, 100, TWHEEL_MISFIRE_BURST);
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(200, tw_read(self->fd, self->ev, READ_MAX));
	for (i = 0; i < 200; i++)
		EXPECT_EQ(1 + i % 2 + i / 2 * TW_TICK_MIN, self->ev[i].expires_ns);
}

TEST_F(misfire, a_burst_of_many_timers_loses_nothing)
{
	enum { TIMERS = 100, EACH = 50 };
	struct tw_bitmap seen;
	long ret, i, total = 0;

	ASSERT_TRUE(tw_bitmap_init(&seen, TIMERS * EACH));
	for (i = 0; i < TIMERS; i++) {
		struct twheel_op op = periodic(i, 1000, EACH, TWHEEL_MISFIRE_BURST);

		op.user_data = i;
		ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	}
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	while ((ret = tw_read(self->fd, self->ev, 77)) > 0) {
		for (i = 0; i < ret; i++) {
			struct twheel_event *ev = &self->ev[i];

			ASSERT_EQ(ev->user_data, ev->expires_ns % 1000);
			ASSERT_TRUE(tw_bitmap_add(&seen, ev->user_data * EACH +
						  ev->expires_ns / 1000));
		}
		total += ret;
	}
	EXPECT_EQ(TIMERS * EACH, total);
	free(seen.bits);
}

TEST_F(misfire, a_cancel_in_a_burst_withdraws_the_rest)
{
	__u64 id = arm_periodic(self->fd, 1000, 1000, 0, TWHEEL_MISFIRE_BURST);

	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(3, tw_read(self->fd, self->ev, 3));
	EXPECT_EQ(1, tw_cancel(self->fd, id));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	EXPECT_EQ(-ENOENT, tw_cancel(self->fd, id));
	EXPECT_EQ(0, tw_armed(self->fd));
	EXPECT_EQ(0, tw_ready(self->fd));
}

TEST_F(misfire, a_modify_in_a_burst_begins_anew)
{
	struct twheel_op op = periodic(1000, 1000, 0, TWHEEL_MISFIRE_BURST);

	ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(3, tw_read(self->fd, self->ev, 3));
	op.expires_ns = TW_HOUR + TW_TICK_MIN;
	op.interval_ns = TW_TICK_MIN;
	op.count = 4;
	EXPECT_EQ(1, tw_modify_op(self->fd, &op));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	ASSERT_EQ(4, tw_read(self->fd, self->ev, READ_MAX));
	for (int i = 0; i < 4; i++)
		EXPECT_EQ(TW_HOUR + (i + 1) * TW_TICK_MIN, self->ev[i].expires_ns);
}

TEST_F(misfire, a_modify_in_a_burst_to_another_policy_counts_the_rest)
{
	struct twheel_op op = periodic(1000, 1000, 20, TWHEEL_MISFIRE_BURST);

	ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(3, tw_read(self->fd, self->ev, 3));
	op.expires_ns = 4000;
	op.count = 17;
	op.misfire = TWHEEL_MISFIRE_COUNT;
	EXPECT_EQ(1, tw_modify_op(self->fd, &op));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(4000, self->ev[0].expires_ns);
	EXPECT_EQ(16, self->ev[0].overrun);
	EXPECT_EQ(0, self->ev[0].flags);
}

/* Ends of the numbers */
TEST_F(misfire, an_interval_of_one_ns_counts_every_ns)
{
	arm_periodic(self->fd, 1, 1, 0, TWHEEL_MISFIRE_COUNT);
	ASSERT_EQ(0, tw_advance(self->fd, 4 * TW_NSEC));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(4 * TW_NSEC - 1, self->ev[0].overrun);
	ASSERT_EQ(0, tw_advance(self->fd, 4 * TW_NSEC + TW_TICK_MIN));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(4 * TW_NSEC + 1, self->ev[0].expires_ns);
	EXPECT_EQ(TW_TICK_MIN - 1, self->ev[0].overrun);
}

TEST_F(misfire, an_overrun_of_more_than_32_bits_says_so)
{
	struct twheel_op seen;
	__u64 id = arm_periodic(self->fd, 1, 1, 0, TWHEEL_MISFIRE_COUNT);

	ASSERT_EQ(0, tw_advance(self->fd, 0xffffffffULL));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(0xfffffffe, self->ev[0].overrun);
	ASSERT_EQ(0, tw_advance(self->fd, 0x1ffffffffULL));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(0xffffffff, self->ev[0].overrun);
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(0xffffffff, self->ev[0].overrun);
	ASSERT_EQ(0, tw_query(self->fd, id, &seen));
	EXPECT_EQ(TW_HOUR + 1, seen.expires_ns);
}

TEST_F(misfire, the_largest_count_is_exact)
{
	__u64 id = arm_periodic(self->fd, 1, 1, 0xffffffff, TWHEEL_MISFIRE_COUNT);
	struct twheel_op seen;

	ASSERT_EQ(0, tw_advance(self->fd, 0xfffffffeULL));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(TWHEEL_EV_MORE, self->ev[0].flags);
	ASSERT_EQ(0, tw_query(self->fd, id, &seen));
	EXPECT_EQ(1, seen.count);
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	EXPECT_EQ(0xffffffff, self->ev[0].expires_ns);
	EXPECT_EQ(0, self->ev[0].overrun);
	EXPECT_EQ(0, self->ev[0].flags);
}

TEST_F(misfire, skip_of_one_ns_goes_on_with_the_next)
{
	struct twheel_op seen;
	__u64 id = arm_periodic(self->fd, 1, 1, 0, TWHEEL_MISFIRE_SKIP);

	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR + 17));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
	ASSERT_EQ(0, tw_query(self->fd, id, &seen));
	EXPECT_EQ(TWHEEL_F_ARMED, seen.flags);
	EXPECT_EQ(TW_HOUR + 18, seen.expires_ns);
}

TEST_F(misfire, burst_of_one_ns_has_a_record_for_each)
{
	__u64 next = 1;
	long ret, i;

	arm_periodic(self->fd, 1, 1, 0, TWHEEL_MISFIRE_BURST);
	ASSERT_EQ(0, tw_advance(self->fd, 3 * TW_TICK_MIN));
	while ((ret = tw_read(self->fd, self->ev, 100)) > 0)
		for (i = 0; i < ret; i++)
			ASSERT_EQ(next++, self->ev[i].expires_ns);
	EXPECT_EQ(3 * TW_TICK_MIN + 1, next);
}

/* A quarter of all time: three periods, the fourth ends beyond S64_MAX. */
#define HUGE_INTERVAL	(1ULL << 61)

static const struct {
	__u8 misfire;
	__u8 records;
	__u8 overrun;
} huge_results[] = {
	{ TWHEEL_MISFIRE_COUNT, 1, 2 },
	{ TWHEEL_MISFIRE_BURST, 3, 0 },
	{ TWHEEL_MISFIRE_SKIP, 1, 0 },
};

TEST_F(misfire, a_period_that_ends_beyond_all_time_parks)
{
	struct twheel_op seen;
	size_t i, k;
	__u64 id;
	int fd;

	for (i = 0; i < ARRAY_SIZE(huge_results); i++) {
		fd = tw_manual(TW_TICK_MIN);
		ASSERT_LE(0, fd);
		id = arm_periodic(fd, HUGE_INTERVAL, HUGE_INTERVAL, 0,
				  huge_results[i].misfire);
		ASSERT_EQ(0, tw_advance(fd, TW_S64_MAX));
		ASSERT_EQ(huge_results[i].records,
			  tw_read(fd, self->ev, READ_MAX));
		EXPECT_EQ(huge_results[i].overrun, self->ev[0].overrun);
		for (k = 0; k < huge_results[i].records; k++)
			EXPECT_EQ((k + 1) * HUGE_INTERVAL, self->ev[k].expires_ns);
		EXPECT_EQ(-EAGAIN, tw_read(fd, self->ev, 1));
		ASSERT_EQ(0, tw_query(fd, id, &seen));
		EXPECT_EQ(TWHEEL_F_ARMED, seen.flags);
		EXPECT_EQ(TWHEEL_NEVER, seen.expires_ns);
		EXPECT_EQ(TWHEEL_NEVER, tw_next(fd));
		EXPECT_EQ(0, tw_cancel(fd, id));
		close(fd);
	}
}

TEST_F(misfire, the_largest_interval_parks_after_the_first_expiry)
{
	struct twheel_op seen;
	__u64 now, id;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		now = tw_now(self->fd) + TW_HOUR;
		id = arm_periodic(self->fd, now, TW_S64_MAX, 2, policies[i]);
		ASSERT_EQ(0, tw_advance(self->fd, now + TW_HOUR));
		ASSERT_EQ(1, tw_read(self->fd, self->ev, READ_MAX));
		EXPECT_EQ(0, self->ev[0].overrun);
		EXPECT_EQ(TWHEEL_EV_MORE, self->ev[0].flags);
		ASSERT_EQ(0, tw_query(self->fd, id, &seen));
		EXPECT_EQ(TWHEEL_NEVER, seen.expires_ns);
		EXPECT_EQ(1, seen.count);
		ASSERT_EQ(0, tw_cancel(self->fd, id));
	}
}

TEST_F(misfire, the_very_last_instant_can_be_a_period)
{
	size_t i;
	int fd;

	for (i = 0; i < ARRAY_SIZE(policies); i++) {
		fd = tw_manual(TW_TICK_MIN);
		ASSERT_LE(0, fd);
		arm_periodic(fd, 0, TW_S64_MAX, 2, policies[i]);
		ASSERT_EQ(0, tw_advance(fd, TW_S64_MAX));
		ASSERT_LE(1, tw_read(fd, self->ev, READ_MAX));
		EXPECT_EQ(0, self->ev[0].expires_ns);
		EXPECT_EQ(policies[i] == TWHEEL_MISFIRE_COUNT, self->ev[0].overrun);
		if (policies[i] == TWHEEL_MISFIRE_BURST)
			EXPECT_EQ(TW_S64_MAX, self->ev[1].expires_ns);
		EXPECT_EQ(0, tw_armed(fd));
		EXPECT_EQ(0, tw_ready(fd));
		close(fd);
	}
}

/*
 * A million periods and a reader that comes when it likes. Every record is what
 * counting on one's fingers says; the phase is never lost.
 */
struct slow {
	int fd;
	__u8 misfire;
	__u32 count;		/* periods in all, 0 for no end */
	__u64 interval;
	__u64 first;
	__u64 next;		/* number of the next period to be told */
	__u64 told;		/* periods told, as records or in overruns */
	__u64 skipped;
	__u64 records;
	bool ended;
	struct twheel_event ev[READ_MAX];
};

/* How many periods have passed at @now, the first included */
static __u64 slow_passed(const struct slow *s, __u64 now)
{
	__u64 passed = (now - s->first) / s->interval + 1;

	return s->count && passed > s->count ? s->count : passed;
}

static bool slow_record(struct slow *s, const struct twheel_event *ev, __u64 now)
{
	__u64 missed = slow_passed(s, now) - s->next - 1;
	__u64 last, overrun = 0;

	if (ev->expires_ns != s->first + s->next * s->interval ||
	    ev->expires_ns > now || ev->fired_ns > now)
		return false;
	if (s->misfire == TWHEEL_MISFIRE_BURST)
		missed = 0;
	else if (s->misfire == TWHEEL_MISFIRE_COUNT)
		overrun = missed;
	else
		s->skipped += missed;
	last = s->next + missed;
	s->next = last + 1;
	s->told += 1 + overrun;
	s->records++;
	s->ended = s->count && s->next == s->count;
	return ev->overrun == overrun &&
	       ev->flags == (s->ended ? 0 : TWHEEL_EV_MORE);
}

/* Whether a record is due, at a boundary of the tick */
static bool slow_due(const struct slow *s, __u64 now)
{
	__u64 due = s->first + s->next * s->interval;

	return !s->ended &&
	       tw_boundary(due, TW_TICK_MIN) <= (now & ~(TW_TICK_MIN - 1));
}

static bool slow_read(struct slow *s, __u64 now)
{
	bool due = slow_due(s, now);
	long ret, i;

	do {
		ret = tw_read(s->fd, s->ev, READ_MAX);
		if (ret == -EAGAIN)
			return !due;
		due = false;
		for (i = 0; i < ret; i++)
			if (!slow_record(s, &s->ev[i], now))
				return false;
	} while (ret > 0);
	return false;
}

static bool slow_run(struct slow *s, __u64 periods)
{
	struct twheel_op op = periodic(s->first, s->interval, s->count, s->misfire);
	__u64 seed = s->misfire + 1, now = s->first, nr = 0;

	s->fd = tw_manual(TW_TICK_MIN);
	if (s->fd < 0 || tw_arm_op(s->fd, &op))
		return false;
	while (nr < periods) {
		/* Now and then in time, mostly late, sometimes very */
		__u64 late = 1ULL << tw_random_below(&seed, 14);

		now += tw_random_below(&seed, late * s->interval);
		if (tw_advance(s->fd, now) || !slow_read(s, now))
			return false;
		nr = (now - s->first) / s->interval + 1;
	}
	return true;
}

FIXTURE(slow)
{
	struct slow *s;
};

FIXTURE_VARIANT(slow)
{
	__u8 misfire;
};

FIXTURE_VARIANT_ADD(slow, count)
{
	.misfire = TWHEEL_MISFIRE_COUNT,
};

FIXTURE_VARIANT_ADD(slow, burst)
{
	.misfire = TWHEEL_MISFIRE_BURST,
};

FIXTURE_VARIANT_ADD(slow, skip)
{
	.misfire = TWHEEL_MISFIRE_SKIP,
};

FIXTURE_SETUP(slow)
{
	self->s = calloc(1, sizeof(*self->s));
	ASSERT_NE(NULL, self->s);
	self->s->misfire = variant->misfire;
	self->s->interval = INTERVAL;
	self->s->first = 12345;
}

FIXTURE_TEARDOWN(slow)
{
	close(self->s->fd);
	free(self->s);
}

TEST_F_TIMEOUT(slow, a_million_periods_are_accounted_for_exactly, 900)
{
	struct slow *s = self->s;

	ASSERT_TRUE(slow_run(s, PERIODS)) {
		TH_LOG("period %llu", (unsigned long long)s->next);
	}
	EXPECT_LE(PERIODS, s->next + 1);
	EXPECT_EQ(s->next, s->told + s->skipped);
	EXPECT_EQ(1, tw_armed(s->fd));
	if (s->misfire == TWHEEL_MISFIRE_BURST)
		EXPECT_EQ(s->next, s->records);
}

TEST_F_TIMEOUT(slow, a_million_tiny_periods_are_accounted_for_exactly, 900)
{
	struct slow *s = self->s;

	s->interval = 3;
	ASSERT_TRUE(slow_run(s, PERIODS)) {
		TH_LOG("period %llu", (unsigned long long)s->next);
	}
	EXPECT_EQ(s->next, s->told + s->skipped);
}

TEST_F(slow, a_finite_count_ends_exactly)
{
	struct slow *s = self->s;

	s->count = PERIODS / 10;
	ASSERT_TRUE(slow_run(s, PERIODS / 5)) {
		TH_LOG("period %llu", (unsigned long long)s->next);
	}
	EXPECT_TRUE(s->ended);
	EXPECT_EQ(s->count, s->told + s->skipped);
	EXPECT_EQ(0, tw_armed(s->fd));
	EXPECT_EQ(0, tw_ready(s->fd));
}

/* On a clock of the kernel */
TEST(a_reader_that_sleeps_is_told_of_every_period)
{
	int fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, 0), i;
	struct twheel_event ev[100];
	__u64 first = 0;
	long done = 0, ret;
	struct twheel_op op = periodic(0, TW_MSEC, 100, TWHEEL_MISFIRE_BURST);

	ASSERT_LE(0, fd);
	op.flags = TWHEEL_F_REL;
	ASSERT_EQ(0, tw_arm_op(fd, &op));
	tw_sleep_ms(20);
	while (done < 100) {
		ASSERT_TRUE(tw_wait_readable(fd));
		ret = tw_read(fd, ev, 7);
		ASSERT_LT(0, ret);
		for (i = 0; i < ret; i++, done++) {
			first = done ? first : ev[i].expires_ns;
			ASSERT_EQ(first + done * TW_MSEC, ev[i].expires_ns);
			ASSERT_LE(ev[i].expires_ns, ev[i].fired_ns);
		}
	}
	EXPECT_EQ(0, ev[ret - 1].flags);
	EXPECT_EQ(0, tw_armed(fd));
	close(fd);
}

TEST_HARNESS_MAIN
