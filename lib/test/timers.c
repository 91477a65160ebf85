// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * What a program sees of timers, on both back ends, by the manual clock.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <twheel.h>

#include "kselftest_harness.h"

#define TICK	(1ULL << 20)
#define FAR	(1000 * TICK)

/* Timers, and what has become of them. */
struct item {
	struct twheel_timer t;
	int calls;
	uint64_t at_ns;
	uint64_t missed;
	struct item *other;
	int ret;
};

static struct item items[1000];

static void note(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct item *item = TWHEEL_CONTAINER(t, struct item, t);

	item->calls++;
	item->at_ns = twheel_now(w);
	item->missed = missed;
}

FIXTURE(timers) {
	struct twheel *w;
};

FIXTURE_VARIANT(timers) {
	enum twheel_backend backend;
};

FIXTURE_VARIANT_ADD(timers, local) {
	.backend = TWHEEL_LOCAL,
};

FIXTURE_VARIANT_ADD(timers, device) {
	.backend = TWHEEL_DEVICE,
};

static int open_manual(struct twheel **w, enum twheel_backend backend, uint32_t capacity)
{
	struct twheel_options options = {
		.backend = backend,
		.clock = TWHEEL_MANUAL,
		.capacity = capacity,
	};

	return twheel_open(w, &options);
}

FIXTURE_SETUP(timers)
{
	int ret = open_manual(&self->w, variant->backend, 0);

	memset(items, 0, sizeof(items));
	if (ret == -ENOENT)
		SKIP(return, "no /dev/twheel");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, twheel_advance(self->w, TICK));
}

FIXTURE_TEARDOWN(timers)
{
	twheel_close(self->w);
}

static bool readable(const struct twheel *w)
{
	struct pollfd p = { .fd = twheel_fd(w), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* Moves the clock, and calls what is due then. How many. */
static int go(struct twheel *w, uint64_t to_ns)
{
	int nr, called = 0;

	if (twheel_advance(w, to_ns))
		return -1;
	while (readable(w)) {
		nr = twheel_dispatch(w, 0);
		if (nr < 0)
			return nr;
		called += nr;
	}
	return called;
}

static uint64_t sent(const struct twheel *w)
{
	struct twheel_counts counts;

	twheel_stats(w, &counts);
	return counts.sent;
}

static uint64_t pending(const struct twheel *w)
{
	struct twheel_counts counts;

	twheel_stats(w, &counts);
	return counts.pending;
}

TEST_F(timers, a_timer_is_not_called_before_its_time)
{
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, FAR, note));
	EXPECT_EQ(0, go(self->w, FAR - 1));
}

TEST_F(timers, a_timer_is_called_when_its_tick_has_begun)
{
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, FAR - TICK + 1, note));
	EXPECT_EQ(1, go(self->w, FAR));
	EXPECT_EQ(1, items[0].calls);
}

TEST_F(timers, a_timer_that_was_called_is_not_armed)
{
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, TICK, note));
	ASSERT_TRUE(twheel_is_armed(&items[0].t));
	ASSERT_EQ(1, go(self->w, FAR));
	EXPECT_FALSE(twheel_is_armed(&items[0].t));
}

TEST_F(timers, a_delay_counts_from_now)
{
	ASSERT_EQ(0, go(self->w, 5 * TICK));
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, 7 * TICK, note));
	EXPECT_EQ(12 * TICK, twheel_deadline(&items[0].t));
}

TEST_F(timers, a_deadline_that_has_passed_is_due_at_once)
{
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 0, note));
	ASSERT_TRUE(readable(self->w));
	EXPECT_EQ(1, twheel_dispatch(self->w, 0));
}

TEST_F(timers, never_is_never)
{
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, TWHEEL_NEVER, note));
	EXPECT_EQ(0, go(self->w, INT64_MAX));
	EXPECT_TRUE(twheel_is_armed(&items[0].t));
}

TEST_F(timers, a_cancelled_timer_is_not_called)
{
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, TICK, note));
	EXPECT_EQ(1, twheel_cancel(self->w, &items[0].t));
	EXPECT_EQ(0, go(self->w, FAR));
}

TEST_F(timers, cancel_of_what_is_not_armed_is_0)
{
	EXPECT_EQ(0, twheel_cancel(self->w, &items[0].t));
}

TEST_F(timers, a_timer_pushed_later_is_called_later)
{
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 5 * TICK, note));
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 50 * TICK, note));
	ASSERT_EQ(0, go(self->w, 50 * TICK - 1));
	EXPECT_EQ(1, go(self->w, 50 * TICK));
}

TEST_F(timers, a_timer_pulled_earlier_is_called_earlier)
{
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 50 * TICK, note));
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 5 * TICK, note));
	EXPECT_EQ(1, go(self->w, 5 * TICK));
	EXPECT_EQ(0, go(self->w, 60 * TICK));
}

TEST_F(timers, a_timer_takes_the_function_of_the_last_call)
{
	ASSERT_EQ(0, twheel_every(self->w, &items[0].t, TICK, note));
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, TICK, note));
	ASSERT_EQ(1, go(self->w, 2 * TICK));
	EXPECT_EQ(0, go(self->w, FAR));
}

TEST_F(timers, no_function_is_einval)
{
	EXPECT_EQ(-EINVAL, twheel_arm(self->w, &items[0].t, TICK, NULL));
	EXPECT_FALSE(twheel_is_armed(&items[0].t));
}

TEST_F(timers, a_time_beyond_all_time_is_einval)
{
	EXPECT_EQ(-EINVAL, twheel_arm_at(self->w, &items[0].t, TWHEEL_NEVER - 1, note));
	EXPECT_EQ(-EINVAL, twheel_arm(self->w, &items[0].t, 1ULL << 63, note));
}

TEST_F(timers, a_timer_of_another_wheel_is_einval)
{
	struct twheel *other;

	ASSERT_EQ(0, open_manual(&other, variant->backend, 0));
	ASSERT_EQ(0, twheel_arm(other, &items[0].t, TICK, note));
	EXPECT_EQ(-EINVAL, twheel_arm(self->w, &items[0].t, TICK, note));
	EXPECT_EQ(-EINVAL, twheel_cancel(self->w, &items[0].t));
	twheel_close(other);
}

TEST_F(timers, a_copy_of_an_armed_timer_is_einval)
{
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, TICK, note));
	items[1].t = items[0].t;
	EXPECT_EQ(-EINVAL, twheel_cancel(self->w, &items[1].t));
	EXPECT_TRUE(twheel_is_armed(&items[0].t));
}

/* Functions that do something */

static void arm_again(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	note(w, t, missed);
	twheel_arm(w, t, 10 * TICK, note);
}

TEST_F(timers, a_function_may_arm_its_timer_again)
{
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 10 * TICK, arm_again));
	EXPECT_EQ(1, go(self->w, 10 * TICK));
	EXPECT_EQ(0, go(self->w, 20 * TICK - 1));
	EXPECT_EQ(1, go(self->w, 20 * TICK));
}

static void cancel_other(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct item *item = TWHEEL_CONTAINER(t, struct item, t);

	note(w, t, missed);
	item->ret = twheel_cancel(w, &item->other->t);
	memset(&item->other->t, 0xff, sizeof(item->other->t));
}

/* Their records come in one read; whichever is called first cancels the other. */
TEST_F(timers, a_function_may_cancel_one_that_is_due_as_well_and_free_it)
{
	items[0].other = &items[1];
	items[1].other = &items[0];
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, TICK, cancel_other));
	ASSERT_EQ(0, twheel_arm(self->w, &items[1].t, TICK, cancel_other));
	EXPECT_EQ(1, go(self->w, FAR));
	EXPECT_EQ(1, items[0].calls + items[1].calls);
	EXPECT_EQ(1, items[0].ret + items[1].ret);
}

static void push_other(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct item *item = TWHEEL_CONTAINER(t, struct item, t);

	note(w, t, missed);
	item->ret = twheel_arm(w, &item->other->t, 10 * TICK, note);
}

TEST_F(timers, a_function_may_push_one_that_is_due_as_well)
{
	items[0].other = &items[1];
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 10 * TICK, push_other));
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[1].t, 10 * TICK, note));
	ASSERT_EQ(1, go(self->w, 10 * TICK));
	ASSERT_EQ(1, items[0].calls);
	EXPECT_EQ(0, go(self->w, 20 * TICK - 1));
	EXPECT_EQ(1, go(self->w, 20 * TICK));
}

/* The slot whose record has been read is not to be taken for the new timer's. */
static void replace_other(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct item *item = TWHEEL_CONTAINER(t, struct item, t);

	note(w, t, missed);
	twheel_cancel(w, &item->other->t);
	twheel_arm(w, &items[2].t, FAR, note);
}

TEST_F(timers, a_timer_armed_in_place_of_one_that_was_due_is_called_in_its_own_time)
{
	items[0].other = &items[1];
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 10 * TICK, replace_other));
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[1].t, 10 * TICK, note));
	EXPECT_EQ(1, go(self->w, 10 * TICK));
	EXPECT_EQ(0, go(self->w, 10 * TICK + FAR - 1));
	EXPECT_EQ(1, go(self->w, 10 * TICK + FAR));
}

static void close_wheel(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	note(w, t, missed);
	twheel_close(w);
}

TEST_F(timers, a_function_may_close_the_wheel)
{
	struct twheel *w;

	ASSERT_EQ(0, open_manual(&w, variant->backend, 0));
	ASSERT_EQ(0, twheel_arm(w, &items[0].t, TICK, close_wheel));
	ASSERT_EQ(0, twheel_arm(w, &items[1].t, TICK, close_wheel));
	ASSERT_EQ(0, twheel_advance(w, FAR));
	EXPECT_EQ(1, twheel_dispatch(w, 0));
	EXPECT_EQ(1, items[0].calls + items[1].calls);
}

static void dispatch_within(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct item *item = TWHEEL_CONTAINER(t, struct item, t);

	note(w, t, missed);
	item->ret = twheel_dispatch(w, 0);
}

TEST_F(timers, a_function_may_dispatch)
{
	int i;

	for (i = 0; i < 10; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, TICK, dispatch_within));
	ASSERT_EQ(0, twheel_advance(self->w, FAR));
	ASSERT_LT(0, twheel_dispatch(self->w, 0));
	for (i = 0; i < 10; i++)
		EXPECT_EQ(1, items[i].calls);
}

static void next_within(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	note(w, t, missed);
	if (!items[2].at_ns)
		items[2].at_ns = twheel_next(w);
}

TEST_F(timers, next_within_a_function_is_now_when_more_is_due)
{
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, TICK, next_within));
	ASSERT_EQ(0, twheel_arm(self->w, &items[1].t, TICK, next_within));
	ASSERT_EQ(2, go(self->w, FAR));
	EXPECT_EQ(FAR, items[2].at_ns);
}

static void arm_at_once(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	note(w, t, missed);
	twheel_arm(w, t, 0, arm_at_once);
}

TEST_F(timers, a_dispatch_ends_though_functions_arm_their_timers_for_now)
{
	int i;

	for (i = 0; i < 600; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, 0, arm_at_once));
	EXPECT_LE(600, twheel_dispatch(self->w, 0));
	EXPECT_TRUE(readable(self->w));
}

/* Dispatch */

TEST_F(timers, dispatch_with_nothing_due_is_0)
{
	EXPECT_EQ(0, twheel_dispatch(self->w, 0));
}

TEST_F(timers, dispatch_calls_no_more_than_it_may)
{
	int i;

	for (i = 0; i < 700; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, TICK, note));
	ASSERT_EQ(0, twheel_advance(self->w, FAR));
	EXPECT_EQ(3, twheel_dispatch(self->w, 3));
	EXPECT_EQ(400, twheel_dispatch(self->w, 400));
	EXPECT_TRUE(readable(self->w));
	EXPECT_EQ(297, twheel_dispatch(self->w, 400));
	EXPECT_FALSE(readable(self->w));
}

TEST_F(timers, a_negative_maximum_is_einval)
{
	EXPECT_EQ(-EINVAL, twheel_dispatch(self->w, -1));
}

TEST_F(timers, timers_are_called_in_the_order_of_their_ticks)
{
	uint64_t last = 0;
	int i;

	for (i = 0; i < 100; i++)
		ASSERT_EQ(0, twheel_arm_at(self->w, &items[i].t,
					   (2 + i * 37 % 100) * TICK, note));
	while (twheel_next(self->w) != TWHEEL_NEVER) {
		ASSERT_LT(last, twheel_next(self->w));
		last = twheel_next(self->w);
		ASSERT_EQ(1, go(self->w, last));
	}
	EXPECT_EQ(101 * TICK, last);
}

TEST_F(timers, next_is_when_the_earliest_timer_is_due)
{
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 70 * TICK, note));
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[1].t, 7 * TICK, note));
	EXPECT_EQ(7 * TICK, twheel_next(self->w));
}

TEST_F(timers, next_is_now_when_something_is_due)
{
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 70 * TICK, note));
	ASSERT_EQ(0, twheel_advance(self->w, 90 * TICK));
	EXPECT_EQ(90 * TICK, twheel_next(self->w));
}

TEST_F(timers, next_is_never_when_nothing_is_armed)
{
	EXPECT_EQ(TWHEEL_NEVER, twheel_next(self->w));
}

/* Periods */

TEST_F(timers, a_periodic_timer_keeps_its_phase)
{
	int i;

	ASSERT_EQ(0, twheel_every(self->w, &items[0].t, 10 * TICK, note));
	for (i = 1; i <= 20; i++) {
		ASSERT_EQ(1, go(self->w, TICK + i * 10 * TICK + i % 7 * TICK));
		ASSERT_EQ(TICK + (i + 1) * 10 * TICK, twheel_deadline(&items[0].t));
	}
}

TEST_F(timers, periods_that_pass_are_counted)
{
	ASSERT_EQ(0, twheel_every(self->w, &items[0].t, 10 * TICK, note));
	ASSERT_EQ(1, go(self->w, 56 * TICK));
	EXPECT_EQ(4, items[0].missed);
	EXPECT_EQ(61 * TICK, twheel_deadline(&items[0].t));
}

TEST_F(timers, in_a_burst_there_is_a_call_for_each_period)
{
	struct twheel_spec spec = {
		.expires_ns = 10 * TICK,
		.interval_ns = 10 * TICK,
		.misfire = TWHEEL_MISFIRE_BURST,
	};

	ASSERT_EQ(0, twheel_arm_spec(self->w, &items[0].t, &spec, note));
	EXPECT_EQ(5, go(self->w, 50 * TICK));
	EXPECT_EQ(0, items[0].missed);
}

TEST_F(timers, skipped_periods_are_not_told_of)
{
	struct twheel_spec spec = {
		.expires_ns = 10 * TICK,
		.interval_ns = 10 * TICK,
		.misfire = TWHEEL_MISFIRE_SKIP,
	};

	ASSERT_EQ(0, twheel_arm_spec(self->w, &items[0].t, &spec, note));
	EXPECT_EQ(1, go(self->w, 50 * TICK));
	EXPECT_EQ(0, items[0].missed);
	EXPECT_EQ(60 * TICK, twheel_deadline(&items[0].t));
}

TEST_F(timers, a_count_ends_a_periodic_timer)
{
	struct twheel_spec spec = {
		.expires_ns = 10 * TICK,
		.interval_ns = 10 * TICK,
		.count = 5,
	};

	ASSERT_EQ(0, twheel_arm_spec(self->w, &items[0].t, &spec, note));
	ASSERT_EQ(1, go(self->w, 20 * TICK));
	ASSERT_EQ(1, items[0].missed);
	EXPECT_EQ(1, go(self->w, FAR));
	EXPECT_EQ(2, items[0].missed);
	EXPECT_FALSE(twheel_is_armed(&items[0].t));
}

TEST_F(timers, a_spec_that_makes_no_sense_is_einval)
{
	static const struct twheel_spec wrong[] = {
		{ .expires_ns = 1ULL << 63 },
		{ .interval_ns = 1ULL << 63 },
		{ .slack_ns = 1ULL << 63 },
		{ .count = 1 },
		{ .misfire = 3 },
		{ .resv = { 0, 1 } },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++)
		EXPECT_EQ(-EINVAL, twheel_arm_spec(self->w, &items[0].t, &wrong[i], note));
	EXPECT_FALSE(twheel_is_armed(&items[0].t));
}

/* What is not sent */

TEST_F(timers, to_push_a_timer_later_sends_nothing)
{
	uint64_t before;
	int i;

	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, FAR, note));
	before = sent(self->w);
	for (i = 1; i < 1000; i++)
		ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, FAR + i * TICK, note));
	EXPECT_EQ(before, sent(self->w));
}

TEST_F(timers, what_gets_timers_of_the_kernel_is_sent)
{
	struct twheel_counts counts;
	int i;

	if (variant->backend == TWHEEL_LOCAL)
		SKIP(return, "it needs none");
	for (i = 0; i < 1000; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, FAR - i, note));
	ASSERT_EQ(0, twheel_flush(self->w));
	twheel_stats(self->w, &counts);
	EXPECT_EQ(1000 + counts.pending, counts.sent);
}

TEST_F(timers, cancel_and_arm_of_one_length_sends_nothing)
{
	uint64_t before;
	int i;

	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, FAR, note));
	before = sent(self->w);
	for (i = 1; i < 1000; i++) {
		ASSERT_EQ(1, twheel_cancel(self->w, &items[(i - 1) % 7].t));
		ASSERT_EQ(0, twheel_arm(self->w, &items[i % 7].t, FAR, note));
		ASSERT_EQ(0, go(self->w, TICK + i * TICK / 2));
	}
	EXPECT_EQ(before, sent(self->w));
}

TEST_F(timers, the_last_one_cancelled_is_armed_again_and_not_one_that_has_expired)
{
	uint64_t before;
	int i;

	for (i = 0; i < 10; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, TICK, note));
	ASSERT_EQ(10, go(self->w, 5 * TICK));
	for (i = 0; i < 5; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, FAR + i, note));
	ASSERT_EQ(0, twheel_flush(self->w));
	before = sent(self->w);
	ASSERT_EQ(1, twheel_cancel(self->w, &items[4].t));
	ASSERT_EQ(1, twheel_cancel(self->w, &items[2].t));
	ASSERT_EQ(0, twheel_arm(self->w, &items[9].t, FAR + 10, note));
	ASSERT_EQ(0, twheel_flush(self->w));
	EXPECT_EQ(before, sent(self->w));
}

TEST_F(timers, what_is_due_before_another_is_sent_at_once)
{
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, FAR, note));
	ASSERT_EQ(0, twheel_arm(self->w, &items[1].t, TICK, note));
	ASSERT_EQ(0, twheel_advance(self->w, 3 * TICK));
	EXPECT_TRUE(readable(self->w));
}

TEST_F(timers, what_is_due_after_another_is_sent_with_others)
{
	uint64_t before;
	int i;

	/* There are timers of the kernel, not so many that some are given back. */
	for (i = 0; i < 50; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, TICK, note));
	ASSERT_EQ(50, go(self->w, 5 * TICK));

	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, TICK, note));
	before = sent(self->w);
	for (i = 1; i < 50; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, FAR, note));
	EXPECT_EQ(before, sent(self->w));
	ASSERT_EQ(1, go(self->w, 7 * TICK));
	EXPECT_EQ(before + 49, sent(self->w));
}

TEST_F(timers, what_is_due_in_the_later_half_waits_on)
{
	uint64_t before;
	int i;

	for (i = 0; i < 50; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, TICK, note));
	ASSERT_EQ(50, go(self->w, 5 * TICK));

	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 10 * TICK, note));
	for (i = 1; i < 50; i++)
		ASSERT_EQ(0, twheel_arm_at(self->w, &items[i].t, (100 + i) * TICK, note));
	before = sent(self->w);
	ASSERT_EQ(1, go(self->w, 10 * TICK));
	EXPECT_EQ(before + 25, sent(self->w));
	for (i = 0; i < 10; i++)
		ASSERT_EQ(0, twheel_dispatch(self->w, 0));
	EXPECT_EQ(before + 25, sent(self->w));
	ASSERT_EQ(1, go(self->w, 101 * TICK));
	EXPECT_EQ(before + 25 + 12, sent(self->w));
	for (i = 0; i < 10; i++)
		ASSERT_EQ(0, twheel_dispatch(self->w, 0));
	EXPECT_EQ(before + 25 + 12, sent(self->w));
	for (i = 2; i < 50; i++)
		ASSERT_EQ(1, go(self->w, (100 + i) * TICK));
}

/* Of the timers of the kernel D is known to expire before E is due, and C is read before that. */
TEST_F(timers, what_can_wait_for_another_is_not_sent_by_a_dispatch)
{
	enum { A, B, C, D, E };
	uint64_t before;
	int i;

	for (i = A; i <= C; i++)
		ASSERT_EQ(0, twheel_arm_at(self->w, &items[i].t, (i + 1) * 10 * TICK, note));
	ASSERT_EQ(0, twheel_flush(self->w));
	ASSERT_EQ(1, go(self->w, 10 * TICK));
	ASSERT_EQ(1, go(self->w, 20 * TICK));
	for (i = D; i <= E; i++)
		ASSERT_EQ(0, twheel_arm_at(self->w, &items[i].t, (i + 1) * 10 * TICK, note));
	before = sent(self->w);
	ASSERT_EQ(1, go(self->w, 30 * TICK));
	EXPECT_EQ(before, sent(self->w));
}

/* The timer of the kernel that the last one waits for is neither first nor last in the pool. */
TEST_F(timers, what_something_waits_for_is_not_given_back)
{
	int i;

	for (i = 0; i < 300; i++)
		ASSERT_EQ(0, twheel_arm_at(self->w, &items[i].t, (100 + i) * TICK, note));
	ASSERT_EQ(0, twheel_flush(self->w));
	ASSERT_EQ(1, twheel_cancel(self->w, &items[299].t));
	for (i = 0; i < 299; i++)
		ASSERT_EQ(1, twheel_cancel(self->w, &items[i].t));
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 150 * TICK, note));
	ASSERT_EQ(0, twheel_dispatch(self->w, 0));
	EXPECT_EQ(0, go(self->w, 149 * TICK));
	EXPECT_EQ(1, go(self->w, 150 * TICK));
}

TEST_F(timers, many_that_were_cancelled_are_given_back)
{
	int i;

	for (i = 0; i < 1000; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, FAR, note));
	for (i = 0; i < 990; i++)
		ASSERT_EQ(1, twheel_cancel(self->w, &items[i].t));
	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, twheel_dispatch(self->w, 0));
	EXPECT_GE(2 * 10 + 64, pending(self->w));
}

TEST_F(timers, an_empty_wheel_comes_to_rest)
{
	int i, rounds = 0;

	for (i = 0; i < 1000; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, FAR + i * TICK, note));
	for (i = 0; i < 1000; i++)
		ASSERT_EQ(1, twheel_cancel(self->w, &items[i].t));
	for (i = 0; i < 4; i++)
		ASSERT_EQ(0, twheel_dispatch(self->w, 0));
	while (twheel_next(self->w) != TWHEEL_NEVER) {
		ASSERT_GE(64, ++rounds);
		ASSERT_EQ(0, go(self->w, twheel_next(self->w)));
	}
	EXPECT_GE(64, pending(self->w));
}

TEST_F(timers, slack_of_the_wheel_is_that_of_its_timers)
{
	struct twheel_options options = {
		.backend = variant->backend,
		.clock = TWHEEL_MANUAL,
		.slack_ns = 100 * TICK,
	};
	struct twheel *w;
	int i;

	ASSERT_EQ(0, twheel_open(&w, &options));
	for (i = 0; i < 20; i++)
		ASSERT_EQ(0, twheel_arm_at(w, &items[i].t, (1001 + i) * TICK, note));
	EXPECT_EQ(0, go(w, 1023 * TICK));
	EXPECT_EQ(20, go(w, 1024 * TICK));
	twheel_close(w);
}

TEST_F(timers, what_expires_for_nobody_is_used_again)
{
	int i, round;

	for (round = 1; round < 100; round++) {
		for (i = 0; i < 10; i++)
			ASSERT_EQ(0, twheel_arm(self->w, &items[i].t, 5 * TICK, note));
		for (i = 0; i < 10; i++)
			ASSERT_EQ(1, twheel_cancel(self->w, &items[i].t));
		ASSERT_EQ(0, go(self->w, round * 10 * TICK));
	}
	EXPECT_GE(64, pending(self->w));
}

/* Limits */

TEST_F(timers, more_than_the_capacity_is_enospc_at_once)
{
	struct twheel *w;
	int i;

	ASSERT_EQ(0, open_manual(&w, variant->backend, 10));
	for (i = 0; i < 10; i++)
		ASSERT_EQ(0, twheel_arm(w, &items[i].t, FAR, note));
	EXPECT_EQ(-ENOSPC, twheel_arm(w, &items[10].t, FAR, note));
	EXPECT_FALSE(twheel_is_armed(&items[10].t));
	twheel_close(w);
}

TEST_F(timers, a_full_wheel_takes_one_for_one_that_was_cancelled)
{
	struct twheel *w;
	int i;

	ASSERT_EQ(0, open_manual(&w, variant->backend, 10));
	for (i = 0; i < 10; i++)
		ASSERT_EQ(0, twheel_arm(w, &items[i].t, FAR, note));
	ASSERT_EQ(1, twheel_cancel(w, &items[4].t));
	EXPECT_EQ(0, twheel_arm(w, &items[10].t, TICK, note));
	EXPECT_EQ(1, go(w, 3 * TICK));
	EXPECT_EQ(1, items[10].calls);
	twheel_close(w);
}

static void cancel_other_and_arm_two(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct item *item = TWHEEL_CONTAINER(t, struct item, t);

	note(w, t, missed);
	twheel_cancel(w, &item->other->t);
	item->ret = twheel_arm(w, &items[2].t, FAR, note);
	item->ret = item->ret ?: twheel_arm(w, &items[3].t, FAR, note);
}

/* Though its record has been read and not been looked at. */
TEST_F(timers, what_a_function_cancels_makes_room_at_once)
{
	struct twheel *w;

	items[0].other = &items[1];
	items[1].other = &items[0];
	ASSERT_EQ(0, open_manual(&w, variant->backend, 2));
	ASSERT_EQ(0, twheel_arm(w, &items[0].t, TICK, cancel_other_and_arm_two));
	ASSERT_EQ(0, twheel_arm(w, &items[1].t, TICK, cancel_other_and_arm_two));
	ASSERT_EQ(1, go(w, 5 * TICK));
	EXPECT_EQ(0, items[0].ret | items[1].ret);
	twheel_close(w);
}

TEST_F(timers, more_capacity_than_there_can_be_is_eperm)
{
	struct twheel *w;

	EXPECT_EQ(-EPERM, open_manual(&w, variant->backend, UINT32_MAX));
}

/* As a process can to which the descriptor was handed. */
TEST_F(timers, what_others_arm_on_the_descriptor_is_passed_over)
{
	static const uint64_t no_slots[] = { 0, 1ULL << 20, UINT64_MAX };
	struct twheel_op op;
	uint32_t i;

	if (variant->backend == TWHEEL_LOCAL)
		SKIP(return, "not a wheel's");
	for (i = 0; i < 3; i++) {
		op = (struct twheel_op){ .user_data = no_slots[i], .expires_ns = 2 * TICK };
		ASSERT_EQ(0, ioctl(twheel_fd(self->w), TWHEEL_IOC_ARM, &op));
	}
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 2 * TICK, note));
	EXPECT_EQ(1, go(self->w, 5 * TICK));
}

/* The manual clock */

TEST_F(timers, the_clock_does_not_go_back)
{
	ASSERT_EQ(0, twheel_advance(self->w, FAR));
	EXPECT_EQ(-EINVAL, twheel_advance(self->w, FAR - 1));
	EXPECT_EQ(FAR, twheel_now(self->w));
}

TEST_F(timers, run_on_a_manual_clock_is_einval)
{
	EXPECT_EQ(-EINVAL, twheel_run(self->w));
}

TEST_F(timers, a_step_in_the_process_takes_no_system_call_before_the_descriptor_is_asked_for)
{
	struct twheel_counts counts;

	if (variant->backend == TWHEEL_DEVICE)
		SKIP(return, "the device is another thing");
	ASSERT_EQ(0, twheel_every(self->w, &items[0].t, TICK, note));
	ASSERT_EQ(0, twheel_advance(self->w, twheel_next(self->w)));
	EXPECT_EQ(1, twheel_dispatch(self->w, 0));
	ASSERT_EQ(0, twheel_advance(self->w, twheel_next(self->w)));
	twheel_stats(self->w, &counts);
	EXPECT_EQ(0, counts.syscalls);
	EXPECT_TRUE(readable(self->w));
	EXPECT_EQ(1, twheel_dispatch(self->w, 0));
	EXPECT_FALSE(readable(self->w));
}

/* Opening and closing */

TEST_F(timers, the_wheel_is_where_it_was_asked_for)
{
	EXPECT_EQ(variant->backend == TWHEEL_DEVICE, twheel_is_device(self->w));
}

TEST_F(timers, the_descriptor_is_closed_on_exec)
{
	EXPECT_TRUE(fcntl(twheel_fd(self->w), F_GETFD) & FD_CLOEXEC);
}

TEST_F(timers, a_child_that_closes_the_wheel_does_not_disturb_its_parent)
{
	pid_t child;
	int status;

	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, TICK, note));
	child = fork();
	ASSERT_LE(0, child);
	if (!child) {
		twheel_close(self->w);
		_exit(0);
	}
	ASSERT_EQ(child, waitpid(child, &status, 0));
	EXPECT_EQ(1, go(self->w, FAR));
}

/* Handing over */

#define NR_HANDED	1000

FIXTURE(handed) {
	struct twheel *w;
};

FIXTURE_SETUP(handed)
{
	int ret = open_manual(&self->w, TWHEEL_DEVICE, 0);

	memset(items, 0, sizeof(items));
	if (ret == -ENOENT)
		SKIP(return, "no /dev/twheel");
	ASSERT_EQ(0, ret);
	ASSERT_EQ(0, twheel_advance(self->w, TICK));
}

FIXTURE_TEARDOWN(handed)
{
	twheel_close(self->w);
}

/* As if by another process: another wheel of the same descriptor, and no timers. */
static int hand_over(struct twheel **w)
{
	int fd, ret = twheel_flush(*w);

	if (ret)
		return ret;
	fd = dup(twheel_fd(*w));
	twheel_close(*w);
	memset(items, 0, sizeof(items));
	ret = twheel_adopt(w, fd, 0);
	if (ret)
		close(fd);
	return ret;
}

/* One a tick, from the second on. */
static int arm_many(struct twheel *w)
{
	int i, ret = 0;

	for (i = 0; i < NR_HANDED && !ret; i++)
		ret = twheel_arm_at(w, &items[i].t, (i + 2) * TICK, note);
	return ret;
}

TEST_F(handed, what_is_armed_again_for_the_same_times_is_not_sent)
{
	ASSERT_EQ(0, arm_many(self->w));
	ASSERT_EQ(0, hand_over(&self->w));
	ASSERT_EQ(0, arm_many(self->w));
	ASSERT_EQ(0, twheel_flush(self->w));
	EXPECT_EQ(0, sent(self->w));
}

TEST_F(handed, what_is_armed_again_is_called_in_its_tick)
{
	int i, wrong = 0;

	ASSERT_EQ(0, arm_many(self->w));
	ASSERT_EQ(0, hand_over(&self->w));
	ASSERT_EQ(0, arm_many(self->w));
	for (i = 0; i < NR_HANDED; i++)
		wrong += go(self->w, (i + 2) * TICK) != 1 || items[i].at_ns != (i + 2) * TICK;
	EXPECT_EQ(0, wrong);
}

TEST_F(handed, what_is_armed_for_other_times_is_called_at_these)
{
	int i, wrong = 0;

	ASSERT_EQ(0, arm_many(self->w));
	ASSERT_EQ(0, hand_over(&self->w));
	for (i = 0; i < NR_HANDED; i++)
		ASSERT_EQ(0, twheel_arm_at(self->w, &items[i].t,
					   (2 + i * 7 % NR_HANDED) * TICK, note));
	for (i = 2; i < NR_HANDED + 2; i++)
		wrong += go(self->w, i * TICK) != 1;
	for (i = 0; i < NR_HANDED; i++)
		wrong += items[i].at_ns != (2 + i * 7 % NR_HANDED) * TICK;
	EXPECT_EQ(0, wrong);
}

TEST_F(handed, what_nobody_arms_again_is_not_called)
{
	ASSERT_EQ(0, arm_many(self->w));
	ASSERT_EQ(0, hand_over(&self->w));
	EXPECT_EQ(0, go(self->w, FAR * 2));
}

TEST_F(handed, what_had_expired_is_used_again)
{
	ASSERT_EQ(0, arm_many(self->w));
	ASSERT_EQ(0, twheel_advance(self->w, FAR * 2));
	ASSERT_EQ(0, hand_over(&self->w));
	EXPECT_FALSE(readable(self->w));
	EXPECT_LE(NR_HANDED, pending(self->w));
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, TICK, note));
	EXPECT_EQ(0, go(self->w, 2 * FAR + TICK - 1));
	EXPECT_EQ(1, go(self->w, 2 * FAR + TICK));
}

TEST_F(handed, what_was_parked_is_used_again)
{
	uint64_t held;

	ASSERT_EQ(0, arm_many(self->w));
	ASSERT_EQ(NR_HANDED, go(self->w, FAR * 2));
	held = pending(self->w);
	ASSERT_LT(0, held);
	ASSERT_EQ(0, hand_over(&self->w));
	EXPECT_EQ(held, pending(self->w));
}

TEST_F(handed, the_clock_is_that_of_the_wheel)
{
	ASSERT_EQ(0, twheel_advance(self->w, FAR));
	ASSERT_EQ(0, hand_over(&self->w));
	EXPECT_EQ(FAR, twheel_now(self->w));
}

TEST_F(handed, a_wheel_can_be_handed_over_again_and_again)
{
	int i;

	ASSERT_EQ(0, arm_many(self->w));
	for (i = 0; i < 10; i++) {
		ASSERT_EQ(0, hand_over(&self->w));
		ASSERT_EQ(0, arm_many(self->w));
	}
	EXPECT_EQ(NR_HANDED, go(self->w, FAR * 2));
}

TEST_F(handed, what_others_have_armed_is_no_slot)
{
	static const uint64_t not_ours[] = { 0, 1, 1ULL << 40, UINT64_MAX };
	struct twheel_op op;
	uint32_t i;

	for (i = 0; i < 4; i++) {
		op = (struct twheel_op){ .user_data = not_ours[i], .expires_ns = 2 * TICK };
		ASSERT_EQ(0, ioctl(twheel_fd(self->w), TWHEEL_IOC_ARM, &op));
	}
	ASSERT_EQ(0, hand_over(&self->w));
	EXPECT_EQ(0, pending(self->w));
	ASSERT_EQ(0, arm_many(self->w));
	EXPECT_EQ(NR_HANDED, go(self->w, FAR * 2));
}

TEST_F(handed, what_others_have_parked_under_wrong_numbers_is_no_slot)
{
	static const uint64_t not_ours[] = { 0, 1ULL << 40, UINT64_MAX };
	struct twheel_op op;
	uint32_t i;

	for (i = 0; i < 3; i++) {
		op = (struct twheel_op){ .user_data = not_ours[i], .expires_ns = TWHEEL_NEVER };
		ASSERT_EQ(0, ioctl(twheel_fd(self->w), TWHEEL_IOC_ARM, &op));
	}
	ASSERT_EQ(0, hand_over(&self->w));
	EXPECT_EQ(0, pending(self->w));
}

/* As what the other one tells would be of no use when it is cancelled. */
TEST_F(handed, what_others_have_armed_under_the_number_of_a_slot_is_not_that)
{
	struct twheel_op op = {
		.user_data = 1, .expires_ns = 2 * TICK, .interval_ns = INT64_MAX,
	};

	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, FAR, note));
	ASSERT_EQ(0, twheel_flush(self->w));
	ASSERT_EQ(0, ioctl(twheel_fd(self->w), TWHEEL_IOC_ARM, &op));
	ASSERT_EQ(0, hand_over(&self->w));
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 3 * TICK, note));
	ASSERT_EQ(0, ioctl(twheel_fd(self->w), TWHEEL_IOC_CANCEL, &op));
	EXPECT_EQ(1, go(self->w, 3 * TICK));
}

TEST_F(handed, the_descriptor_is_closed_on_exec_and_does_not_block)
{
	ASSERT_EQ(0, fcntl(twheel_fd(self->w), F_SETFL, 0));
	ASSERT_EQ(0, hand_over(&self->w));
	EXPECT_TRUE(fcntl(twheel_fd(self->w), F_GETFD) & FD_CLOEXEC);
	EXPECT_TRUE(fcntl(twheel_fd(self->w), F_GETFL) & O_NONBLOCK);
}

TEST_F(handed, who_handed_it_over_and_closes_does_not_disturb)
{
	struct twheel *other;

	ASSERT_EQ(0, arm_many(self->w));
	ASSERT_EQ(0, twheel_flush(self->w));
	ASSERT_EQ(0, twheel_adopt(&other, dup(twheel_fd(self->w)), 0));
	twheel_close(self->w);
	self->w = other;
	memset(items, 0, sizeof(items));
	ASSERT_EQ(0, arm_many(self->w));
	EXPECT_EQ(NR_HANDED, go(self->w, FAR * 2));
}

TEST(what_is_no_wheel_of_the_device_is_not_adopted)
{
	struct twheel *w, *local;
	int fds[2];

	EXPECT_EQ(-EBADF, twheel_adopt(&w, -1, 0));
	EXPECT_EQ(NULL, w);
	ASSERT_EQ(0, pipe(fds));
	EXPECT_EQ(-ENOTTY, twheel_adopt(&w, fds[0], 0));
	ASSERT_EQ(0, open_manual(&local, TWHEEL_LOCAL, 0));
	EXPECT_EQ(-ENOTTY, twheel_adopt(&w, twheel_fd(local), 0));
	EXPECT_EQ(-EINVAL, twheel_adopt(&w, twheel_fd(local), TWHEEL_NEVER));
	twheel_close(local);
	close(fds[0]);
	close(fds[1]);
}

TEST(options_that_make_no_sense_are_einval)
{
	static const struct twheel_options wrong[] = {
		{ .backend = 3 },
		{ .clock = 5 },
		{ .tick_ns = 1ULL << 63 },
		{ .slack_ns = 1ULL << 63 },
		{ .resv = { 1 } },
	};
	struct twheel *w;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		w = (void *)&items;
		EXPECT_EQ(-EINVAL, twheel_open(&w, &wrong[i]));
		EXPECT_EQ(NULL, w);
	}
}

TEST(no_wheel_can_be_closed)
{
	twheel_close(NULL);
}

TEST(the_default_wheel_can_be_opened_on_any_linux)
{
	struct twheel *w;

	ASSERT_EQ(0, twheel_open(&w, NULL));
	twheel_close(w);
}

TEST_HARNESS_MAIN
