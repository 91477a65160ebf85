// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The clocks of the kernel, and loops that wait for them.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>
#include <twheel.h>

#include "kselftest_harness.h"

#define NR	200

struct item {
	struct twheel_timer t;
	uint64_t deadline_ns;
	int calls;
	int early;
};

static struct item items[NR];

static void note(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct item *item = TWHEEL_CONTAINER(t, struct item, t);
	(void)missed;

	item->calls++;
	item->early += twheel_now(w) < item->deadline_ns;
}

FIXTURE(clock) {
	struct twheel *w;
};

FIXTURE_VARIANT(clock) {
	enum twheel_backend backend;
	enum twheel_clock clock;
};

FIXTURE_VARIANT_ADD(clock, monotonic_local) {
	.backend = TWHEEL_LOCAL,
	.clock = TWHEEL_MONOTONIC,
};

FIXTURE_VARIANT_ADD(clock, monotonic_device) {
	.backend = TWHEEL_DEVICE,
	.clock = TWHEEL_MONOTONIC,
};

FIXTURE_VARIANT_ADD(clock, boottime_local) {
	.backend = TWHEEL_LOCAL,
	.clock = TWHEEL_BOOTTIME,
};

FIXTURE_VARIANT_ADD(clock, boottime_device) {
	.backend = TWHEEL_DEVICE,
	.clock = TWHEEL_BOOTTIME,
};

FIXTURE_VARIANT_ADD(clock, realtime_local) {
	.backend = TWHEEL_LOCAL,
	.clock = TWHEEL_REALTIME,
};

FIXTURE_VARIANT_ADD(clock, realtime_device) {
	.backend = TWHEEL_DEVICE,
	.clock = TWHEEL_REALTIME,
};

FIXTURE_VARIANT_ADD(clock, tai_local) {
	.backend = TWHEEL_LOCAL,
	.clock = TWHEEL_TAI,
};

FIXTURE_VARIANT_ADD(clock, tai_device) {
	.backend = TWHEEL_DEVICE,
	.clock = TWHEEL_TAI,
};

FIXTURE_SETUP(clock)
{
	struct twheel_options options = {
		.backend = variant->backend,
		.clock = variant->clock,
	};
	int ret = twheel_open(&self->w, &options);

	memset(items, 0, sizeof(items));
	if (ret == -ENOENT)
		SKIP(return, "no /dev/twheel");
	ASSERT_EQ(0, ret);
}

FIXTURE_TEARDOWN(clock)
{
	twheel_close(self->w);
}

/* In no order, in the next 100 ms. */
static void arm_all(struct __test_metadata *_metadata, struct twheel *w)
{
	uint64_t now_ns = twheel_now(w);
	int i;

	for (i = 0; i < NR; i++) {
		items[i].deadline_ns = now_ns + i * 37 % NR * TWHEEL_MSEC / 2;
		ASSERT_EQ(0, twheel_arm_at(w, &items[i].t, items[i].deadline_ns, note));
	}
}

TEST_F(clock, run_calls_each_timer_once)
{
	int i;

	arm_all(_metadata, self->w);
	ASSERT_EQ(0, twheel_run(self->w));
	for (i = 0; i < NR; i++)
		EXPECT_EQ(1, items[i].calls);
}

TEST_F(clock, no_timer_is_called_early)
{
	int i;

	arm_all(_metadata, self->w);
	ASSERT_EQ(0, twheel_run(self->w));
	for (i = 0; i < NR; i++)
		EXPECT_EQ(0, items[i].early);
}

TEST_F(clock, an_event_loop_is_woken_for_each_timer)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct twheel_counts counts;
	int ep, i, calls = 0;

	ep = epoll_create1(EPOLL_CLOEXEC);
	ASSERT_LE(0, ep);
	ASSERT_EQ(0, epoll_ctl(ep, EPOLL_CTL_ADD, twheel_fd(self->w), &event));
	arm_all(_metadata, self->w);
	while (calls < NR) {
		ASSERT_EQ(1, epoll_wait(ep, &event, 1, 10000));
		ASSERT_LE(0, twheel_dispatch(self->w, 0));
		for (i = 0, calls = 0; i < NR; i++)
			calls += items[i].calls;
	}
	twheel_stats(self->w, &counts);
	EXPECT_EQ(0, counts.armed);
	close(ep);
}

TEST_F(clock, next_is_not_after_the_earliest_deadline_but_by_a_tick)
{
	uint64_t deadline_ns = twheel_now(self->w) + 100 * TWHEEL_SEC;

	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, deadline_ns, note));
	EXPECT_LE(deadline_ns, twheel_next(self->w));
	EXPECT_GT(deadline_ns + (1 << 20), twheel_next(self->w));
}

TEST_F(clock, run_with_nothing_armed_returns)
{
	EXPECT_EQ(0, twheel_run(self->w));
}

static void stop(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	note(w, t, missed);
	twheel_stop(w);
}

TEST_F(clock, stop_ends_run_though_timers_are_armed)
{
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, TWHEEL_MSEC, stop));
	ASSERT_EQ(0, twheel_arm(self->w, &items[1].t, 3600 * TWHEEL_SEC, note));
	EXPECT_EQ(0, twheel_run(self->w));
	EXPECT_TRUE(twheel_is_armed(&items[1].t));
}

static void close_it(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)t;
	(void)missed;
	twheel_close(w);
}

TEST_F(clock, a_function_may_close_the_wheel_that_runs)
{
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, TWHEEL_MSEC, close_it));
	EXPECT_EQ(0, twheel_run(self->w));
	self->w = NULL;
}

static void run_within(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	note(w, t, missed);
	twheel_run(w);
}

/* What was taken with it, and what it armed, is not known to the descriptor. */
TEST_F(clock, a_function_may_run_the_wheel)
{
	uint64_t deadline_ns = twheel_now(self->w) + 5 * TWHEEL_MSEC;

	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, deadline_ns, run_within));
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[1].t, deadline_ns, run_within));
	usleep(10000);
	ASSERT_EQ(0, twheel_run(self->w));
	EXPECT_EQ(1, items[0].calls);
	EXPECT_EQ(1, items[1].calls);
}

/* As loops do that do not know why they were woken. */
TEST(a_dispatch_before_its_time_in_the_process_takes_no_system_call)
{
	struct twheel_options options = { .backend = TWHEEL_LOCAL };
	struct twheel_counts before, after;
	struct twheel *w;
	int i;

	memset(items, 0, sizeof(items));
	ASSERT_EQ(0, twheel_open(&w, &options));
	ASSERT_EQ(0, twheel_arm(w, &items[0].t, 3600 * TWHEEL_SEC, note));
	twheel_stats(w, &before);
	for (i = 0; i < 10; i++)
		ASSERT_EQ(0, twheel_dispatch(w, 0));
	twheel_stats(w, &after);
	EXPECT_EQ(before.syscalls, after.syscalls);
	twheel_close(w);
}

/* Only in a machine whose clock is nobody else's. */
TEST_F(clock, a_set_back_does_not_leave_the_descriptor_readable)
{
	struct pollfd p = { .fd = twheel_fd(self->w), .events = POLLIN };
	struct timespec ts;
	int i;

	if (!getenv("TWHEEL_MAY_SET_CLOCK"))
		SKIP(return, "TWHEEL_MAY_SET_CLOCK is not set");
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, 2 * TWHEEL_SEC, note));
	ASSERT_EQ(1, poll(&p, 1, 10000));
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec--;
	ASSERT_EQ(0, clock_settime(CLOCK_REALTIME, &ts));
	for (i = 0; i < 10 && poll(&p, 1, 0); i++)
		ASSERT_LE(0, twheel_dispatch(self->w, 0));
	EXPECT_GT(10, i);
	ts.tv_sec++;
	clock_settime(CLOCK_REALTIME, &ts);
}

static void on_alarm(int signo)
{
	(void)signo;
}

TEST_F(clock, a_signal_ends_run)
{
	struct sigaction action = { .sa_handler = on_alarm };

	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	ASSERT_EQ(0, twheel_arm(self->w, &items[0].t, 3600 * TWHEEL_SEC, note));
	ualarm(20000, 20000);
	EXPECT_EQ(-EINTR, twheel_run(self->w));
	ualarm(0, 0);
}

TEST_HARNESS_MAIN
