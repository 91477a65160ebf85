// SPDX-License-Identifier: GPL-2.0
/*
 * slack.c - timers that may be late share wake-ups
 */
#include "twheel_test.h"

#define TIMERS	tw_many(100000)
#define BATCH	4096

static __u64 delay_of(__u64 *seed)
{
	return TW_NSEC + tw_random_below(seed, 99 * TW_NSEC);
}

/* Wake-ups for TIMERS timers of 1 s to 100 s with a slack of a @part of the delay. */
static long wakeups(unsigned int part)
{
	static struct twheel_event ev[BATCH];
	int fd = tw_manual(TW_TICK_DEFAULT);
	__u64 seed = 42, next;
	struct twheel_op op;
	long ret = -1, n, i;
	unsigned int left;

	for (left = 0; left < TIMERS; left++) {
		op = tw_op(delay_of(&seed), 0);
		op.slack_ns = part ? op.expires_ns / part : 0;
		op.user_data = op.slack_ns;
		if (tw_arm_op(fd, &op))
			goto out;
	}
	while (left) {
		next = tw_next(fd);
		if (next == TWHEEL_NEVER || tw_advance(fd, next))
			goto out;
		while ((n = tw_read(fd, ev, BATCH)) > 0) {
			left -= n;
			for (i = 0; i < n; i++)
				if (ev[i].fired_ns < ev[i].expires_ns ||
				    ev[i].fired_ns >= ev[i].expires_ns +
				    ev[i].user_data + TW_TICK_DEFAULT)
					goto out;
		}
	}
	ret = tw_counter(fd, "wakeups");
out:
	close(fd);
	return ret;
}

TEST(ten_percent_of_slack_save_nine_of_ten_wakeups)
{
	long without = wakeups(0), with = wakeups(10);

	TH_LOG("%ld wake-ups without slack, %ld with", without, with);
	ASSERT_LT(0, with);
	EXPECT_LE(10 * with, without);
}

TEST(a_timer_with_slack_is_on_time_to_its_last_nanosecond)
{
	struct twheel_op op = tw_op(5 * TW_TICK_MIN + 1, 0);
	struct twheel_event ev;
	int fd = tw_manual(TW_TICK_MIN);

	op.slack_ns = 3 * TW_TICK_MIN - 1;
	ASSERT_EQ(0, tw_arm_op(fd, &op));
	EXPECT_EQ(8 * TW_TICK_MIN, tw_next(fd));
	ASSERT_EQ(0, tw_advance(fd, 8 * TW_TICK_MIN));
	EXPECT_EQ(1, tw_read(fd, &ev, 1));
	close(fd);
}

TEST(slack_of_less_than_a_tick_changes_nothing)
{
	struct twheel_op op = tw_op(5 * TW_TICK_MIN + 1, 0);
	int fd = tw_manual(TW_TICK_MIN);

	op.slack_ns = TW_TICK_MIN - 1;
	ASSERT_EQ(0, tw_arm_op(fd, &op));
	EXPECT_EQ(6 * TW_TICK_MIN, tw_next(fd));
	close(fd);
}

TEST(slack_is_used_for_the_roundest_tick)
{
	struct twheel_op op = tw_op(1000 * TW_TICK_MIN, 0);
	int fd = tw_manual(TW_TICK_MIN);

	op.slack_ns = 100 * TW_TICK_MIN;
	ASSERT_EQ(0, tw_arm_op(fd, &op));
	EXPECT_EQ(1024 * TW_TICK_MIN, tw_next(fd));
	close(fd);
}

TEST_HARNESS_MAIN
