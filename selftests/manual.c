// SPDX-License-Identifier: GPL-2.0
/*
 * Exact timing, on the manual clock: when a timer fires, in what order, what
 * moving it does, what becomes of periods, and that no work is done between.
 */
#include "twheel_test.h"

#define YEAR	(365 * 24 * TW_HOUR)

FIXTURE(manual)
{
	int fd;
	__u64 tick;
	struct twheel_event ev[64];
};

FIXTURE_SETUP(manual)
{
	self->tick = TW_TICK_DEFAULT;
	self->fd = tw_manual(self->tick);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(manual)
{
	close(self->fd);
}

TEST_F(manual, the_clock_starts_at_zero)
{
	EXPECT_EQ(0, tw_now(self->fd));
}

TEST_F(manual, the_clock_moves_by_advance_alone)
{
	ASSERT_EQ(0, tw_advance(self->fd, 12345));
	tw_sleep_ms(20);
	EXPECT_EQ(12345, tw_now(self->fd));
}

TEST_F(manual, the_clock_may_stand)
{
	ASSERT_EQ(0, tw_advance(self->fd, 12345));
	EXPECT_EQ(0, tw_advance(self->fd, 12345));
}

TEST_F(manual, the_clock_never_goes_back)
{
	ASSERT_EQ(0, tw_advance(self->fd, 12345));
	EXPECT_EQ(-EINVAL, tw_advance(self->fd, 12344));
	EXPECT_EQ(-EINVAL, tw_advance(self->fd, 0));
	EXPECT_EQ(12345, tw_now(self->fd));
}

TEST_F(manual, a_timer_never_fires_before_its_expiry)
{
	ASSERT_NE(0, tw_arm(self->fd, 10 * self->tick, 0));
	ASSERT_EQ(0, tw_advance(self->fd, 10 * self->tick - 1));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, a_timer_fires_at_its_expiry)
{
	__u64 id = tw_arm(self->fd, 10 * self->tick, 77);

	ASSERT_EQ(0, tw_advance(self->fd, 10 * self->tick));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(id, self->ev[0].id);
	EXPECT_EQ(77, self->ev[0].user_data);
	EXPECT_EQ(10 * self->tick, self->ev[0].expires_ns);
	EXPECT_EQ(10 * self->tick, self->ev[0].fired_ns);
	EXPECT_EQ(0, self->ev[0].overrun);
	EXPECT_EQ(0, self->ev[0].flags);
}

/* As on any clock timers fire when a tick begins. */
TEST_F(manual, an_advance_within_a_tick_moves_the_clock_and_fires_nothing)
{
	__u64 tick = 5 * TW_TICK_DEFAULT;

	ASSERT_EQ(0, tw_advance(self->fd, tick));
	ASSERT_NE(0, tw_arm(self->fd, tick + 10, 0));
	ASSERT_EQ(0, tw_advance(self->fd, tick + TW_TICK_DEFAULT - 1));
	EXPECT_EQ(tick + TW_TICK_DEFAULT - 1, tw_now(self->fd));
	EXPECT_EQ(0, tw_ready(self->fd));
	EXPECT_EQ(tick + TW_TICK_DEFAULT, tw_next(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, tick + TW_TICK_DEFAULT));
	EXPECT_EQ(1, tw_ready(self->fd));
}

TEST_F(manual, a_record_tells_when_the_wheel_noticed)
{
	ASSERT_NE(0, tw_arm(self->fd, 10, 0));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR + 3));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 1));
	EXPECT_EQ(10, self->ev[0].expires_ns);
	EXPECT_EQ(TW_HOUR + 3, self->ev[0].fired_ns);
}

TEST_F(manual, a_timer_fires_once)
{
	ASSERT_NE(0, tw_arm(self->fd, 10, 0));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(1, tw_discard(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	EXPECT_EQ(0, tw_armed(self->fd));
}

TEST_F(manual, user_data_comes_back_bit_by_bit)
{
	static const __u64 data[] = { 0, 1, TWHEEL_NEVER, 0x0123456789abcdef };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(data); i++)
		ASSERT_NE(0, tw_arm(self->fd, (i + 1) * self->tick, data[i]));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(4, tw_read(self->fd, self->ev, 64));
	for (i = 0; i < ARRAY_SIZE(data); i++)
		EXPECT_EQ(data[i], self->ev[i].user_data);
}

TEST_F(manual, an_expiry_that_has_passed_is_ready_at_once)
{
	static const __u64 expiries[] = { 0, 1, TW_TICK_DEFAULT, TW_NSEC };
	size_t i;

	ASSERT_EQ(0, tw_advance(self->fd, 1024 * self->tick));
	for (i = 0; i < ARRAY_SIZE(expiries); i++) {
		ASSERT_NE(0, tw_arm(self->fd, expiries[i], 0));
		ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
		EXPECT_EQ(expiries[i], self->ev[0].expires_ns);
		EXPECT_EQ(1024 * self->tick, self->ev[0].fired_ns);
	}
}

TEST_F(manual, an_expiry_right_now_is_ready_at_once)
{
	ASSERT_EQ(0, tw_advance(self->fd, 1024 * self->tick));
	ASSERT_NE(0, tw_arm(self->fd, 1024 * self->tick, 0));
	EXPECT_EQ(1, tw_read(self->fd, self->ev, 2));
}

TEST_F(manual, an_expiry_at_zero_on_a_new_clock_is_ready_at_once)
{
	ASSERT_NE(0, tw_arm(self->fd, 0, 0));
	EXPECT_EQ(1, tw_read(self->fd, self->ev, 2));
}

TEST_F(manual, a_relative_expiry_counts_from_now)
{
	struct twheel_op op;
	__u64 id;

	ASSERT_EQ(0, tw_advance(self->fd, 12345));
	id = tw_arm_rel(self->fd, TW_HOUR, 0);
	ASSERT_EQ(0, tw_query(self->fd, id, &op));
	EXPECT_EQ(TW_HOUR + 12345, op.expires_ns);
}

TEST_F(manual, a_relative_modify_counts_from_now)
{
	struct twheel_op op = tw_op(TW_HOUR, 0);
	__u64 id = tw_arm(self->fd, YEAR, 0);

	ASSERT_EQ(0, tw_advance(self->fd, 12345));
	op.id = id;
	op.flags = TWHEEL_F_REL;
	ASSERT_EQ(0, tw_modify_op(self->fd, &op));
	ASSERT_EQ(0, tw_query(self->fd, id, &op));
	EXPECT_EQ(TW_HOUR + 12345, op.expires_ns);
}

TEST_F(manual, a_relative_delay_of_zero_is_ready_at_once)
{
	ASSERT_EQ(0, tw_advance(self->fd, 5 * self->tick));
	ASSERT_NE(0, tw_arm_rel(self->fd, 0, 0));
	EXPECT_EQ(1, tw_read(self->fd, self->ev, 2));
}

TEST_F(manual, a_relative_delay_of_one_ns_is_not_early)
{
	ASSERT_EQ(0, tw_advance(self->fd, 5 * self->tick));
	ASSERT_NE(0, tw_arm_rel(self->fd, 1, 0));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	ASSERT_EQ(0, tw_advance(self->fd, 6 * self->tick));
	EXPECT_EQ(1, tw_read(self->fd, self->ev, 1));
}

/* Limits of the numbers (P4) */
TEST_F(manual, a_parked_timer_never_fires)
{
	__u64 id = tw_arm(self->fd, TWHEEL_NEVER, 0);

	ASSERT_NE(0, id);
	EXPECT_EQ(TWHEEL_NEVER, tw_next(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, TW_S64_MAX));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	EXPECT_EQ(TWHEEL_F_ARMED, tw_state(self->fd, id));
}

TEST_F(manual, a_parked_timer_counts_as_armed)
{
	ASSERT_NE(0, tw_arm(self->fd, TWHEEL_NEVER, 0));
	EXPECT_EQ(1, tw_armed(self->fd));
}

TEST_F(manual, a_relative_never_is_never)
{
	__u64 id;
	struct twheel_op op;

	ASSERT_EQ(0, tw_advance(self->fd, 12345));
	id = tw_arm_rel(self->fd, TWHEEL_NEVER, 0);
	ASSERT_EQ(0, tw_query(self->fd, id, &op));
	EXPECT_EQ(TWHEEL_NEVER, op.expires_ns);
}

TEST_F(manual, a_parked_timer_can_be_woken_by_modify)
{
	__u64 id = tw_arm(self->fd, TWHEEL_NEVER, 0);

	ASSERT_EQ(0, tw_modify(self->fd, id, TW_HOUR));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(TW_HOUR, self->ev[0].expires_ns);
}

TEST_F(manual, an_armed_timer_can_be_parked_by_modify)
{
	__u64 id = tw_arm(self->fd, TW_HOUR, 0);

	ASSERT_EQ(0, tw_modify(self->fd, id, TWHEEL_NEVER));
	EXPECT_EQ(TWHEEL_NEVER, tw_next(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	EXPECT_EQ(0, tw_cancel(self->fd, id));
}

TEST_F(manual, a_relative_sum_beyond_s64_max_is_s64_max)
{
	struct twheel_op op;
	__u64 id;

	ASSERT_EQ(0, tw_advance(self->fd, 12345));
	id = tw_arm_rel(self->fd, TW_S64_MAX, 0);
	ASSERT_EQ(0, tw_query(self->fd, id, &op));
	EXPECT_EQ(TW_S64_MAX, op.expires_ns);
}

TEST_F(manual, a_timer_at_s64_max_does_not_fire_before)
{
	ASSERT_NE(0, tw_arm(self->fd, TW_S64_MAX, 0));
	ASSERT_EQ(0, tw_advance(self->fd, TW_S64_MAX - 1));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, the_last_boundary_of_all_can_be_reached)
{
	__u64 last = TW_S64_MAX & ~(self->tick - 1);

	ASSERT_NE(0, tw_arm(self->fd, last, 0));
	ASSERT_EQ(0, tw_advance(self->fd, last - 1));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	ASSERT_EQ(0, tw_advance(self->fd, last));
	EXPECT_EQ(1, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, a_period_of_s64_max_does_not_wrap_into_the_past)
{
	struct twheel_op op;
	__u64 id = tw_arm_every(self->fd, TW_HOUR, TW_S64_MAX, 0);

	ASSERT_NE(0, id);
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	ASSERT_EQ(0, tw_query(self->fd, id, &op));
	EXPECT_LE(TW_S64_MAX, op.expires_ns);
	ASSERT_EQ(0, tw_advance(self->fd, TW_S64_MAX - 1));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, a_slack_of_s64_max_does_not_wrap_into_the_past)
{
	struct twheel_op op = tw_op(TW_HOUR, 0);

	op.slack_ns = TW_S64_MAX;
	ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	EXPECT_LE(TW_HOUR, tw_next(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR - 1));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, a_timer_with_slack_fires_within_it)
{
	struct twheel_op op = tw_op(TW_HOUR + 1, 0);
	__u64 next;

	op.slack_ns = TW_HOUR;
	ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	next = tw_next(self->fd);
	EXPECT_LE(TW_HOUR + 1, next);
	EXPECT_GE(tw_boundary(2 * TW_HOUR + 1, self->tick), next);
	ASSERT_EQ(0, tw_advance(self->fd, next - 1));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	ASSERT_EQ(0, tw_advance(self->fd, next));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 1));
	EXPECT_EQ(TW_HOUR + 1, self->ev[0].expires_ns);
}

/* Every boundary of the levels, from several places of the clock (P2, P5) */
FIXTURE(boundary)
{
	int fd;
};

FIXTURE_VARIANT(boundary)
{
	__u64 tick;
};

FIXTURE_VARIANT_ADD(boundary, of_the_smallest_tick)
{
	.tick = TW_TICK_MIN,
};

FIXTURE_VARIANT_ADD(boundary, of_the_default_tick)
{
	.tick = TW_TICK_DEFAULT,
};

FIXTURE_VARIANT_ADD(boundary, of_the_largest_tick)
{
	.tick = TW_TICK_MAX,
};

FIXTURE_SETUP(boundary)
{
	self->fd = -1;
}

FIXTURE_TEARDOWN(boundary)
{
}

/*
 * One timer that expires @delay after @start, alone on its wheel: NULL if all
 * is as it should be, or what is wrong.
 */
static const char *lone_timer(__u64 tick, __u64 start, __u64 delay)
{
	__u64 expires = start + delay, due = tw_boundary(expires, tick);
	struct twheel_event ev[2];
	const char *wrong = NULL;
	int fd = tw_manual(tick);

	if (fd < 0 || tw_advance(fd, start) || !tw_arm(fd, expires, delay))
		wrong = "not armed";
	else if (tw_next(fd) != due)
		wrong = "NEXT is not the boundary";
	else if (tw_advance(fd, due - 1))
		wrong = "clock does not advance";
	else if (tw_read(fd, ev, 1) != -EAGAIN)
		wrong = "early";
	else if (tw_next(fd) != due)
		wrong = "NEXT is not the boundary shortly before it";
	else if (tw_advance(fd, due) || tw_read(fd, ev, 2) != 1)
		wrong = "not fired at the boundary";
	else if (ev[0].expires_ns != expires || ev[0].fired_ns != due)
		wrong = "times of the record are wrong";
	else if (tw_next(fd) != TWHEEL_NEVER)
		wrong = "NEXT is not NEVER afterwards";
	if (fd >= 0)
		close(fd);
	return wrong;
}

/* @delay, some around it, from several starts of the clock */
static const char *timers_around(__u64 tick, __u64 delay)
{
	const __u64 starts[] = {
		0, 1, 62 * tick, 63 * tick, 63 * tick + 1, 64 * tick - 1,
		4095 * tick, 12345 * tick + 17,
	};
	const __u64 delays[] = {
		delay - tick, delay - 1, delay, delay + 1, delay + tick,
	};
	size_t s, d;

	for (s = 0; s < ARRAY_SIZE(starts); s++) {
		for (d = 0; d < ARRAY_SIZE(delays); d++) {
			__u64 start = starts[s], expires = start + delays[d];
			const char *wrong;

			if (expires <= start || expires > TW_S64_MAX - tick)
				continue;
			wrong = lone_timer(tick, start, delays[d]);
			if (!wrong)
				continue;
			printf("# tick %llu start %llu delay %llu\n", tick,
			       start, delays[d]);
			return wrong;
		}
	}
	return NULL;
}

TEST_F(boundary, the_smallest_delays_fire_at_the_next_tick)
{
	EXPECT_EQ(NULL, timers_around(variant->tick, 0));
	EXPECT_EQ(NULL, timers_around(variant->tick, 1));
	EXPECT_EQ(NULL, timers_around(variant->tick, variant->tick));
	EXPECT_EQ(NULL, timers_around(variant->tick, variant->tick / 2));
}

TEST_F(boundary, a_deadline_that_has_passed_within_the_tick_is_ready_at_once)
{
	struct twheel_event ev[2];
	int fd = tw_manual(variant->tick);

	ASSERT_EQ(0, tw_advance(fd, 10 * variant->tick + 2));
	ASSERT_NE(0, tw_arm(fd, 10 * variant->tick + 1, 0));
	ASSERT_NE(0, tw_arm(fd, 10 * variant->tick + 2, 0));
	EXPECT_EQ(2, tw_read(fd, ev, 2));
	close(fd);
}

TEST_F(boundary, delays_around_each_power_of_64_ticks_are_exact)
{
	__u64 delay = variant->tick;

	while (delay < TW_S64_MAX / 128) {
		delay *= 64;
		EXPECT_EQ(NULL, timers_around(variant->tick, delay));
	}
}

TEST_F(boundary, delays_around_each_power_of_two_ticks_are_exact)
{
	__u64 delay = variant->tick;

	while (delay < TW_S64_MAX / 4) {
		delay *= 2;
		EXPECT_EQ(NULL, timers_around(variant->tick, delay));
	}
}

TEST_F(boundary, delays_around_each_full_revolution_are_exact)
{
	__u64 revolution = 64;

	while (variant->tick * (revolution + 64) < TW_S64_MAX / 128) {
		__u64 delay = variant->tick * (revolution - 1);

		EXPECT_EQ(NULL, timers_around(variant->tick, delay));
		delay = variant->tick * (revolution + 63);
		EXPECT_EQ(NULL, timers_around(variant->tick, delay));
		revolution *= 64;
	}
}

TEST_F(boundary, delays_of_years_are_exact)
{
	EXPECT_EQ(NULL, timers_around(variant->tick, YEAR));
	EXPECT_EQ(NULL, timers_around(variant->tick, 10 * YEAR));
	EXPECT_EQ(NULL, timers_around(variant->tick, 290 * YEAR));
}

/* Order */
TEST_F(manual, records_come_in_order_of_expiry)
{
	__u64 i, n = 64;

	for (i = 0; i < n; i++)
		ASSERT_NE(0, tw_arm(self->fd,
				    ((i * 37) % n + 1) * 1000 * self->tick, i));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	ASSERT_EQ(n, tw_read(self->fd, self->ev, n));
	for (i = 0; i < n; i++)
		EXPECT_EQ((i + 1) * 1000 * self->tick, self->ev[i].expires_ns);
}

TEST_F(manual, records_of_one_tick_come_in_arm_order)
{
	__u64 i;

	for (i = 0; i < 64; i++)
		ASSERT_NE(0, tw_arm(self->fd, 5 * self->tick, i));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR));
	ASSERT_EQ(64, tw_read(self->fd, self->ev, 64));
	for (i = 0; i < 64; i++)
		EXPECT_EQ(i, self->ev[i].user_data);
}

TEST_F(manual, records_come_in_order_of_firing_over_several_advances)
{
	ASSERT_NE(0, tw_arm(self->fd, 3 * self->tick, 1));
	ASSERT_NE(0, tw_arm(self->fd, 9 * self->tick, 3));
	ASSERT_EQ(0, tw_advance(self->fd, 5 * self->tick));
	ASSERT_NE(0, tw_arm(self->fd, self->tick, 2));
	ASSERT_EQ(0, tw_advance(self->fd, 10 * self->tick));
	ASSERT_EQ(3, tw_read(self->fd, self->ev, 64));
	EXPECT_EQ(1, self->ev[0].user_data);
	EXPECT_EQ(2, self->ev[1].user_data);
	EXPECT_EQ(3, self->ev[2].user_data);
}

/* NEXT (P18) */
TEST_F(manual, next_is_the_boundary_of_the_earliest)
{
	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR + 1, 0));
	EXPECT_EQ(tw_boundary(TW_HOUR + 1, self->tick), tw_next(self->fd));
	ASSERT_NE(0, tw_arm(self->fd, 7 * self->tick + 1, 0));
	EXPECT_EQ(8 * self->tick, tw_next(self->fd));
	ASSERT_NE(0, tw_arm(self->fd, YEAR, 0));
	EXPECT_EQ(8 * self->tick, tw_next(self->fd));
}

TEST_F(manual, next_is_right_after_the_earliest_was_cancelled)
{
	__u64 id[50], i;

	for (i = 0; i < 50; i++) {
		id[i] = tw_arm(self->fd, (i * i * i + 1) * self->tick, i);
		ASSERT_NE(0, id[i]);
	}
	for (i = 0; i < 50; i++) {
		EXPECT_EQ((i * i * i + 1) * self->tick, tw_next(self->fd));
		ASSERT_EQ(0, tw_cancel(self->fd, id[i]));
	}
	EXPECT_EQ(TWHEEL_NEVER, tw_next(self->fd));
}

TEST_F(manual, next_is_right_after_the_earliest_was_moved_later)
{
	__u64 first = tw_arm(self->fd, 10 * self->tick, 0);

	ASSERT_NE(0, tw_arm(self->fd, 5000 * self->tick, 0));
	ASSERT_EQ(0, tw_modify(self->fd, first, 7000 * self->tick));
	EXPECT_EQ(5000 * self->tick, tw_next(self->fd));
}

TEST_F(manual, next_is_right_after_a_later_one_was_moved_earlier)
{
	__u64 second;

	ASSERT_NE(0, tw_arm(self->fd, 10 * self->tick, 0));
	second = tw_arm(self->fd, 5000 * self->tick, 0);
	ASSERT_EQ(0, tw_modify(self->fd, second, 3 * self->tick));
	EXPECT_EQ(3 * self->tick, tw_next(self->fd));
}

TEST_F(manual, next_is_right_amid_a_slot_that_cascades)
{
	__u64 i;

	for (i = 0; i < 64; i++)
		ASSERT_NE(0, tw_arm(self->fd, (4096 + 64 * i) * self->tick, i));
	for (i = 0; i < 64; i++) {
		__u64 due = (4096 + 64 * i) * self->tick;

		EXPECT_EQ(due, tw_next(self->fd));
		ASSERT_EQ(0, tw_advance(self->fd, due));
		ASSERT_EQ(1, tw_discard(self->fd));
	}
	EXPECT_EQ(TWHEEL_NEVER, tw_next(self->fd));
}

TEST_F(manual, next_does_not_count_what_is_ready)
{
	ASSERT_NE(0, tw_arm(self->fd, self->tick, 0));
	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 0));
	ASSERT_EQ(0, tw_advance(self->fd, self->tick));
	EXPECT_EQ(tw_boundary(TW_HOUR, self->tick), tw_next(self->fd));
}

/* Moving and cancelling */
TEST_F(manual, cancel_of_an_armed_timer_is_0_and_no_record_comes)
{
	__u64 id = tw_arm(self->fd, TW_HOUR, 0);

	EXPECT_EQ(0, tw_cancel(self->fd, id));
	EXPECT_EQ(0, tw_armed(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, cancel_of_a_ready_timer_is_1_and_its_record_is_withdrawn)
{
	__u64 id = tw_arm(self->fd, 0, 0);

	EXPECT_EQ(1, tw_cancel(self->fd, id));
	EXPECT_EQ(0, tw_ready(self->fd));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, cancel_withdraws_from_the_middle_of_the_queue)
{
	__u64 id[5], i;

	for (i = 0; i < 5; i++)
		id[i] = tw_arm(self->fd, 0, i);
	EXPECT_EQ(1, tw_cancel(self->fd, id[2]));
	ASSERT_EQ(4, tw_read(self->fd, self->ev, 64));
	EXPECT_EQ(1, self->ev[1].user_data);
	EXPECT_EQ(3, self->ev[2].user_data);
}

TEST_F(manual, cancel_withdraws_from_both_ends_of_the_queue)
{
	__u64 id[3], i;

	for (i = 0; i < 3; i++)
		id[i] = tw_arm(self->fd, 0, i);
	EXPECT_EQ(1, tw_cancel(self->fd, id[0]));
	EXPECT_EQ(1, tw_cancel(self->fd, id[2]));
	ASSERT_NE(0, tw_arm(self->fd, 0, 3));
	ASSERT_EQ(2, tw_read(self->fd, self->ev, 64));
	EXPECT_EQ(1, self->ev[0].user_data);
	EXPECT_EQ(3, self->ev[1].user_data);
}

TEST_F(manual, modify_of_a_ready_timer_is_1_and_arms_it_anew)
{
	__u64 id = tw_arm(self->fd, 0, 9);

	EXPECT_EQ(1, tw_modify(self->fd, id, TW_HOUR));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(id, self->ev[0].id);
	EXPECT_EQ(9, self->ev[0].user_data);
	EXPECT_EQ(TW_HOUR, self->ev[0].expires_ns);
}

TEST_F(manual, modify_into_the_past_is_ready_at_once)
{
	__u64 id = tw_arm(self->fd, TW_HOUR, 9);

	ASSERT_EQ(0, tw_advance(self->fd, 10 * self->tick));
	EXPECT_EQ(0, tw_modify(self->fd, id, 1));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(1, self->ev[0].expires_ns);
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, a_timer_moved_later_many_times_fires_at_the_last_place_only)
{
	__u64 id = tw_arm(self->fd, 10 * self->tick, 0), i, due = 0;

	for (i = 0; i < 1000; i++) {
		ASSERT_EQ(0, tw_advance(self->fd, i * self->tick));
		due = (i + 10 + (i % 7) * 100) * self->tick;
		ASSERT_EQ(0, tw_modify(self->fd, id, due));
		ASSERT_EQ(due, tw_next(self->fd));
	}
	ASSERT_EQ(0, tw_advance(self->fd, due - 1));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(due, self->ev[0].expires_ns);
}

TEST_F(manual, a_timer_moved_later_without_a_look_is_not_early)
{
	__u64 id = tw_arm(self->fd, 10 * self->tick, 0), i;

	for (i = 11; i < 1000; i++)
		ASSERT_EQ(0, tw_modify(self->fd, id, i * self->tick));
	ASSERT_EQ(0, tw_advance(self->fd, 999 * self->tick - 1));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	ASSERT_EQ(0, tw_advance(self->fd, 999 * self->tick));
	EXPECT_EQ(1, tw_read(self->fd, self->ev, 2));
}

TEST_F(manual, a_timer_moved_earlier_fires_at_the_new_place_only)
{
	__u64 id = tw_arm(self->fd, TW_HOUR, 0);

	ASSERT_EQ(0, tw_modify(self->fd, id, 10 * self->tick));
	ASSERT_EQ(0, tw_advance(self->fd, 10 * self->tick));
	EXPECT_EQ(1, tw_read(self->fd, self->ev, 2));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, a_timer_moved_to_and_fro_fires_once)
{
	__u64 id = tw_arm(self->fd, TW_HOUR, 0), i, rounds = 2 * tw_many(10000);

	for (i = 0; i < rounds; i++) {
		__u64 to = i & 1 ? 20000 * self->tick : (20001 + i) * self->tick;

		ASSERT_EQ(0, tw_modify(self->fd, id, to));
	}
	EXPECT_EQ(20000 * self->tick, tw_next(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(20000 * self->tick, self->ev[0].expires_ns);
}

TEST_F(manual, a_slot_armed_again_after_a_cancel_fires_for_the_new_timer_only)
{
	__u64 was = tw_arm(self->fd, 10 * self->tick, 1), id;

	ASSERT_EQ(0, tw_cancel(self->fd, was));
	id = tw_arm(self->fd, 500 * self->tick, 2);
	EXPECT_NE(was, id);
	EXPECT_EQ(500 * self->tick, tw_next(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, 499 * self->tick));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(id, self->ev[0].id);
	EXPECT_EQ(2, self->ev[0].user_data);
}

TEST_F(manual, a_slot_armed_again_earlier_after_a_cancel_fires_once)
{
	__u64 was = tw_arm(self->fd, 500 * self->tick, 1), id;

	ASSERT_EQ(0, tw_cancel(self->fd, was));
	id = tw_arm(self->fd, 10 * self->tick, 2);
	EXPECT_EQ(10 * self->tick, tw_next(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(id, self->ev[0].id);
}

TEST_F(manual, modify_makes_a_timer_periodic_and_back)
{
	__u64 id = tw_arm(self->fd, TW_HOUR, 0);
	struct twheel_op op = tw_op(TW_HOUR, 0);

	op.id = id;
	op.interval_ns = TW_HOUR;
	ASSERT_EQ(0, tw_modify_op(self->fd, &op));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR + TW_NSEC));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(TWHEEL_EV_MORE, self->ev[0].flags);
	ASSERT_EQ(0, tw_modify(self->fd, id, 3 * TW_HOUR));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(0, self->ev[0].flags);
	EXPECT_EQ(3 * TW_HOUR, self->ev[0].expires_ns);
}

/* Ids */
TEST_F(manual, an_id_is_stale_once_its_record_was_read)
{
	__u64 id = tw_arm(self->fd, 0, 0);

	ASSERT_EQ(1, tw_discard(self->fd));
	EXPECT_EQ(-ENOENT, tw_cancel(self->fd, id));
	EXPECT_EQ(-ENOENT, tw_modify(self->fd, id, TW_HOUR));
	EXPECT_EQ(-ENOENT, tw_state(self->fd, id));
}

TEST_F(manual, an_id_is_stale_once_cancelled)
{
	__u64 id = tw_arm(self->fd, TW_HOUR, 0);

	ASSERT_EQ(0, tw_cancel(self->fd, id));
	EXPECT_EQ(-ENOENT, tw_cancel(self->fd, id));
	EXPECT_EQ(-ENOENT, tw_modify(self->fd, id, TW_HOUR));
	EXPECT_EQ(-ENOENT, tw_state(self->fd, id));
}

TEST_F(manual, a_stale_id_cannot_touch_the_next_timer_of_its_slot)
{
	__u64 was = tw_arm(self->fd, TW_HOUR, 0), id;

	ASSERT_EQ(0, tw_cancel(self->fd, was));
	id = tw_arm(self->fd, TW_HOUR, 0);
	EXPECT_EQ(-ENOENT, tw_cancel(self->fd, was));
	EXPECT_EQ(TWHEEL_F_ARMED, tw_state(self->fd, id));
}

/* Periods (P13) */
TEST_F(manual, a_periodic_timer_says_that_it_lives_on)
{
	__u64 id = tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 0);

	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR + TW_NSEC));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(TWHEEL_EV_MORE, self->ev[0].flags);
	EXPECT_EQ(0, self->ev[0].overrun);
	EXPECT_EQ(TWHEEL_F_ARMED, tw_state(self->fd, id));
	EXPECT_EQ(tw_boundary(2 * TW_HOUR, self->tick), tw_next(self->fd));
}

TEST_F(manual, an_unread_periodic_timer_is_not_in_the_wheel)
{
	ASSERT_NE(0, tw_arm_every(self->fd, 1, 1, 0));
	ASSERT_EQ(0, tw_advance(self->fd, self->tick));
	EXPECT_EQ(TWHEEL_NEVER, tw_next(self->fd));
	EXPECT_EQ(0, tw_armed(self->fd));
	EXPECT_EQ(1, tw_ready(self->fd));
}

TEST_F(manual, a_late_reader_gets_one_record_and_the_exact_overrun)
{
	__u64 interval = 3 * TW_MSEC + 7, first = 1000003, now = TW_HOUR + 5;

	ASSERT_NE(0, tw_arm_every(self->fd, first, interval, 0));
	ASSERT_EQ(0, tw_advance(self->fd, now));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(first, self->ev[0].expires_ns);
	EXPECT_EQ((now - first) / interval, self->ev[0].overrun);
}

TEST_F(manual, periods_that_pass_while_the_record_waits_count_as_overrun)
{
	ASSERT_NE(0, tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 0));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR + TW_NSEC));
	ASSERT_EQ(0, tw_advance(self->fd, 5 * TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(TW_HOUR, self->ev[0].expires_ns);
	EXPECT_EQ(TW_HOUR + TW_NSEC, tw_boundary(self->ev[0].fired_ns, 1));
	EXPECT_EQ(4, self->ev[0].overrun);
}

TEST_F(manual, a_late_read_keeps_the_phase)
{
	struct twheel_op op;
	__u64 id = tw_arm_every(self->fd, 1000, TW_HOUR, 0);

	ASSERT_EQ(0, tw_advance(self->fd, 5 * TW_HOUR + 12345678));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	ASSERT_EQ(0, tw_query(self->fd, id, &op));
	EXPECT_EQ(6 * TW_HOUR + 1000, op.expires_ns);
}

TEST_F(manual, a_period_due_right_now_counts_as_passed)
{
	struct twheel_op op;
	__u64 id = tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 0);

	ASSERT_EQ(0, tw_advance(self->fd, 4 * TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(3, self->ev[0].overrun);
	ASSERT_EQ(0, tw_query(self->fd, id, &op));
	EXPECT_EQ(5 * TW_HOUR, op.expires_ns);
}

TEST_F(manual, a_million_periods_do_not_drift)
{
	__u64 first = 1234567, interval = 1000003, k = 0, seed = 1;
	__u64 periods = tw_env("TWHEEL_PERIODS", tw_many(1000000));

	ASSERT_NE(0, tw_arm_every(self->fd, first, interval, 0));
	while (k < periods) {
		__u64 step = tw_random_below(&seed, 4) ? 0 :
			     tw_random_below(&seed, 100);
		__u64 due = tw_boundary(first + k * interval, self->tick);
		__u64 now = due + step * interval;

		ASSERT_EQ(due, tw_next(self->fd));
		ASSERT_EQ(0, tw_advance(self->fd, now));
		ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
		ASSERT_EQ(first + k * interval, self->ev[0].expires_ns);
		ASSERT_EQ((now - first) / interval - k, self->ev[0].overrun);
		k = (now - first) / interval + 1;
	}
}

TEST_F(manual, overrun_is_found_by_division_and_saturates)
{
	ASSERT_NE(0, tw_arm_every(self->fd, 1, 1, 0));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(0xffffffff, self->ev[0].overrun);
}

TEST_F(manual, a_period_below_one_tick_gives_one_record_a_tick_at_most)
{
	__u64 i;

	ASSERT_NE(0, tw_arm_every(self->fd, 1000, 1000, 0));
	for (i = 1; i < 100; i++) {
		ASSERT_EQ(0, tw_advance(self->fd, i * self->tick));
		ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
		ASSERT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
	}
}

TEST_F(manual, a_counted_timer_ends_after_its_count)
{
	__u64 id = tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 3), i;

	for (i = 1; i <= 3; i++) {
		ASSERT_EQ(0, tw_advance(self->fd, i * TW_HOUR + TW_NSEC));
		ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
		EXPECT_EQ(i * TW_HOUR, self->ev[0].expires_ns);
		EXPECT_EQ(i < 3 ? TWHEEL_EV_MORE : 0, self->ev[0].flags);
	}
	EXPECT_EQ(-ENOENT, tw_cancel(self->fd, id));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, a_count_of_one_is_a_one_shot)
{
	ASSERT_NE(0, tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 1));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(0, self->ev[0].overrun);
	EXPECT_EQ(0, self->ev[0].flags);
}

TEST_F(manual, the_count_limits_the_overrun)
{
	ASSERT_NE(0, tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 5));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(4, self->ev[0].overrun);
	EXPECT_EQ(0, self->ev[0].flags);
	EXPECT_EQ(0, tw_armed(self->fd));
}

TEST_F(manual, overrun_uses_up_the_count)
{
	struct twheel_op op;
	__u64 id = tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 5);

	ASSERT_EQ(0, tw_advance(self->fd, 3 * TW_HOUR + TW_NSEC));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(2, self->ev[0].overrun);
	EXPECT_EQ(TWHEEL_EV_MORE, self->ev[0].flags);
	ASSERT_EQ(0, tw_query(self->fd, id, &op));
	EXPECT_EQ(2, op.count);
}

TEST_F(manual, a_count_that_ends_exactly_now_is_the_last)
{
	ASSERT_NE(0, tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 3));
	ASSERT_EQ(0, tw_advance(self->fd, 3 * TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(2, self->ev[0].overrun);
	EXPECT_EQ(0, self->ev[0].flags);
}

TEST_F(manual, a_periodic_timer_can_be_cancelled_when_ready)
{
	__u64 id = tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 0);

	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	EXPECT_EQ(1, tw_cancel(self->fd, id));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, a_periodic_timer_can_be_cancelled_between_two_periods)
{
	__u64 id = tw_arm_every(self->fd, TW_HOUR, TW_HOUR, 0);

	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	ASSERT_EQ(1, tw_discard(self->fd));
	EXPECT_EQ(0, tw_cancel(self->fd, id));
	ASSERT_EQ(0, tw_advance(self->fd, YEAR));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(manual, a_parked_periodic_timer_starts_when_modified)
{
	struct twheel_op op = tw_op(TW_HOUR, 0);
	__u64 id = tw_arm_every(self->fd, TWHEEL_NEVER, TW_HOUR, 0);

	ASSERT_NE(0, id);
	ASSERT_EQ(0, tw_advance(self->fd, TW_NSEC));
	op.id = id;
	op.interval_ns = TW_HOUR;
	ASSERT_EQ(0, tw_modify_op(self->fd, &op));
	ASSERT_EQ(0, tw_advance(self->fd, 3 * TW_HOUR));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(2, self->ev[0].overrun);
}

/* Long jumps (P12): no work for time in which nothing is due */
TEST_F(manual, a_jump_of_centuries_is_as_good_as_a_step)
{
	ASSERT_NE(0, tw_arm(self->fd, 1, 1));
	ASSERT_NE(0, tw_arm(self->fd, 280 * YEAR, 2));
	ASSERT_EQ(0, tw_advance(self->fd, 290 * YEAR));
	ASSERT_EQ(2, tw_read(self->fd, self->ev, 64));
	EXPECT_EQ(1, self->ev[0].user_data);
	EXPECT_EQ(2, self->ev[1].user_data);
}

TEST_F(manual, many_jumps_of_years_end)
{
	__u64 i;

	for (i = 1; i <= 280; i++) {
		ASSERT_NE(0, tw_arm(self->fd, i * YEAR - 1, i));
		ASSERT_NE(0, tw_arm(self->fd, 291 * YEAR, i));
	}
	for (i = 1; i <= 280; i++) {
		ASSERT_EQ(0, tw_advance(self->fd, i * YEAR + TW_NSEC * 2));
		ASSERT_EQ(1, tw_discard(self->fd));
	}
	EXPECT_EQ(280, tw_armed(self->fd));
}

/* Idle is free (promise 5) */
TEST_F(manual, one_timer_in_twelve_hours_costs_two_steps_at_most)
{
	__u64 wakeups = tw_counter(self->fd, "wakeups"), steps = 0;

	ASSERT_NE(0, tw_arm(self->fd, 12 * TW_HOUR, 0));
	while (!tw_ready(self->fd)) {
		ASSERT_EQ(0, tw_advance(self->fd, tw_next(self->fd)));
		steps++;
		ASSERT_GE(2, steps);
	}
	EXPECT_GE(wakeups + 2, tw_counter(self->fd, "wakeups"));
}

TEST_F(manual, the_manual_clock_starts_no_hrtimer)
{
	__u64 i;

	for (i = 0; i < 100; i++)
		ASSERT_NE(0, tw_arm(self->fd, i * TW_NSEC, 0));
	ASSERT_EQ(0, tw_advance(self->fd, 50 * TW_NSEC));
	EXPECT_EQ(0, tw_counter(self->fd, "hrtimer_starts"));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
}

TEST_F(manual, the_counters_of_fdinfo_are_exact)
{
	__u64 id[10], i;

	for (i = 0; i < 10; i++)
		id[i] = tw_arm(self->fd, (i + 1) * TW_HOUR, i);
	ASSERT_EQ(0, tw_cancel(self->fd, id[9]));
	ASSERT_EQ(0, tw_modify(self->fd, id[8], 20 * TW_HOUR));
	ASSERT_EQ(0, tw_advance(self->fd, 8 * TW_HOUR + TW_NSEC));
	ASSERT_EQ(3, tw_read(self->fd, self->ev, 3));
	EXPECT_EQ(8, tw_counter(self->fd, "fired"));
	EXPECT_EQ(1, tw_counter(self->fd, "cancelled"));
	EXPECT_EQ(1, tw_counter(self->fd, "modified"));
	EXPECT_EQ(5, tw_counter(self->fd, "ready"));
	EXPECT_EQ(8, tw_counter(self->fd, "ready_max"));
}

TEST_HARNESS_MAIN
