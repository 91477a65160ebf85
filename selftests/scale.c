// SPDX-License-Identifier: GPL-2.0
/*
 * A million timers on one file: each fires once, in order, and the file can be
 * closed at any time.
 *
 *   TWHEEL_SCALE=N  another number of timers
 */
#include <signal.h>

#include "twheel_test.h"

#define MILLION		((__u32)tw_env("TWHEEL_SCALE", 1000000))
#define LIMIT		1800	/* seconds, for a machine that has much else to do */
#define BATCH		4096
#define MOST_A_PASS	10000		/* timers; the module stays well below that */

FIXTURE(million)
{
	int fd;
	__u32 nr;
	__u64 *expires;		/* by user_data */
	struct tw_bitmap seen;
};

FIXTURE_SETUP(million)
{
	self->nr = MILLION;
	self->expires = calloc(self->nr, sizeof(*self->expires));
	ASSERT_NE(NULL, self->expires);
	ASSERT_TRUE(tw_bitmap_init(&self->seen, self->nr));
	self->fd = tw_wheel(TWHEEL_CLOCK_MANUAL, TW_TICK_DEFAULT, self->nr);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(million)
{
	close(self->fd);
}

static bool arm_all(FIXTURE_DATA(million) *self)
{
	__u32 i;

	for (i = 0; i < self->nr; i++)
		if (!tw_arm(self->fd, self->expires[i], i))
			return false;
	return tw_armed(self->fd) + tw_ready(self->fd) == self->nr;
}

/* How far the check of the records has come */
struct check {
	__u64 tick;		/* order is kept between ticks of this, 0: none */
	__u64 last;
	__u64 records;
	const char *wrong;
};

static void check_record(FIXTURE_DATA(million) *self, struct check *check,
			 const struct twheel_event *ev)
{
	if (!tw_bitmap_add(&self->seen, ev->user_data))
		check->wrong = "a record came twice";
	else if (ev->expires_ns != self->expires[ev->user_data])
		check->wrong = "a record tells another expiry";
	else if (ev->fired_ns < ev->expires_ns)
		check->wrong = "early";
	else if (check->tick &&
		 tw_boundary(ev->expires_ns, check->tick) < check->last)
		check->wrong = "out of order";
	if (check->tick)
		check->last = tw_boundary(ev->expires_ns, check->tick);
}

/* Read all that is ready. */
static void reap(FIXTURE_DATA(million) *self, struct check *check)
{
	static struct twheel_event ev[BATCH];
	long n, i;

	while ((n = tw_read(self->fd, ev, BATCH)) > 0) {
		check->records += n;
		for (i = 0; i < n && !check->wrong; i++)
			check_record(self, check, &ev[i]);
	}
	if (n != -EAGAIN)
		check->wrong = "read failed";
}

TEST_F_TIMEOUT(million, spread_over_an_hour_fire_once_each_and_in_order, LIMIT)
{
	struct check check = { .tick = TW_TICK_DEFAULT };
	__u64 seed = 42, now;
	__u32 i;

	for (i = 0; i < self->nr; i++)
		self->expires[i] = 1 + tw_random_below(&seed, TW_HOUR);
	ASSERT_TRUE(arm_all(self));
	for (now = TW_HOUR / 60; now <= TW_HOUR; now += TW_HOUR / 60) {
		ASSERT_EQ(0, tw_advance(self->fd, now));
		reap(self, &check);
		ASSERT_EQ(NULL, check.wrong);
		ASSERT_LT(now, tw_next(self->fd));
	}
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR + TW_NSEC));
	reap(self, &check);
	EXPECT_EQ(NULL, check.wrong);
	EXPECT_EQ(self->nr, check.records);
	EXPECT_EQ(0, tw_armed(self->fd));
}

TEST_F_TIMEOUT(million, spread_over_an_hour_fire_in_one_advance, LIMIT)
{
	struct check check = { .tick = TW_TICK_DEFAULT };
	__u64 seed = 43;
	__u32 i;

	for (i = 0; i < self->nr; i++)
		self->expires[i] = 1 + tw_random_below(&seed, TW_HOUR);
	ASSERT_TRUE(arm_all(self));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	EXPECT_EQ(self->nr, tw_ready(self->fd));
	reap(self, &check);
	EXPECT_EQ(NULL, check.wrong);
	EXPECT_EQ(self->nr, check.records);
}

TEST_F_TIMEOUT(million, due_in_one_tick_fire_in_one_advance, LIMIT)
{
	struct check check = { .tick = TW_TICK_DEFAULT };
	__u32 i;

	for (i = 0; i < self->nr; i++)
		self->expires[i] = TW_HOUR;
	ASSERT_TRUE(arm_all(self));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR - 1));
	EXPECT_EQ(0, tw_ready(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd,
				tw_boundary(TW_HOUR, TW_TICK_DEFAULT)));
	EXPECT_EQ(self->nr, tw_ready(self->fd));
	EXPECT_EQ(0, tw_armed(self->fd));
	reap(self, &check);
	EXPECT_EQ(NULL, check.wrong);
	EXPECT_EQ(self->nr, check.records);
}

/* P5, P10: what does not fire is sorted in, a few at a time */
TEST_F_TIMEOUT(million, in_one_coarse_slot_are_none_early_when_it_cascades, LIMIT)
{
	__u64 day = 24 * TW_HOUR, seed = 44;
	__u32 i;

	for (i = 0; i < self->nr; i++)
		self->expires[i] = 100 * day + tw_random_below(&seed, TW_NSEC);
	ASSERT_TRUE(arm_all(self));
	ASSERT_EQ(0, tw_advance(self->fd, 100 * day - 1));
	EXPECT_EQ(0, tw_ready(self->fd));
	EXPECT_EQ(self->nr, tw_armed(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, 100 * day + 2 * TW_NSEC));
	EXPECT_EQ(self->nr, tw_ready(self->fd));
}

TEST_F_TIMEOUT(million, can_all_be_moved_and_cancelled, LIMIT)
{
	__u64 *ids = calloc(self->nr, sizeof(*ids));
	__u32 i;

	ASSERT_NE(NULL, ids);
	for (i = 0; i < self->nr; i++) {
		ids[i] = tw_arm(self->fd, TW_HOUR + i, i);
		ASSERT_NE(0, ids[i]);
	}
	for (i = 0; i < self->nr; i++)
		ASSERT_EQ(0, tw_modify(self->fd, ids[i], TW_HOUR / 2 + i));
	for (i = 0; i < self->nr; i++)
		ASSERT_EQ(0, tw_cancel(self->fd, ids[i]));
	EXPECT_EQ(0, tw_armed(self->fd));
	EXPECT_EQ(TWHEEL_NEVER, tw_next(self->fd));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR));
	EXPECT_EQ(0, tw_ready(self->fd));
}

/* The kernel's clock */
FIXTURE(live)
{
	int fd;
	__u32 nr;
};

FIXTURE_SETUP(live)
{
	self->nr = MILLION;
	self->fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_DEFAULT, self->nr);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(live)
{
	close(self->fd);
}

#define WIDTH		(TW_TICK_DEFAULT << 12)	/* of a slot two levels up */

/* How long it takes to arm a hundred timers, which are parked, and cancelled again */
static __u64 time_to_arm_a_hundred(int fd)
{
	__u64 ids[100], start = tw_clock(CLOCK_MONOTONIC), took;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(ids); i++)
		ids[i] = tw_arm(fd, TWHEEL_NEVER, i);
	took = tw_clock(CLOCK_MONOTONIC) - start;
	for (i = 0; i < ARRAY_SIZE(ids); i++)
		tw_cancel(fd, ids[i]);
	return took;
}

/*
 * How long it takes to arm them all, as far as the best of some samples tells: a sanitizer looks
 * longest at what runs for the first time, a hundred times longer than later on.
 */
static __u64 time_to_arm(int fd, __u32 nr)
{
	__u64 least = UINT64_MAX, took;
	int i;

	for (i = 0; i < 20; i++) {
		took = time_to_arm_a_hundred(fd);
		least = took < least ? took : least;
	}
	return 2 * TW_NSEC + least / 100 * nr * 2;
}

/*
 * All are armed before the first of them is due, at @begin. If the machine was too busy for that it
 * is tried again with more time, and with another wheel.
 */
static bool arm_in_time(int *fd, __u32 nr, bool (*arm)(int fd, __u32 nr, __u64 begin), __u64 *begin)
{
	__u64 time = time_to_arm(*fd, nr);

	for (;;) {
		*begin = tw_boundary(tw_clock(CLOCK_MONOTONIC) + time, WIDTH);
		if (!arm(*fd, nr, *begin))
			return false;
		if (tw_clock(CLOCK_MONOTONIC) < *begin)
			return true;
		time *= 4;
		close(*fd);
		*fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_DEFAULT, nr);
		if (*fd < 0)
			return false;
	}
}

static bool arm_one_tick(int fd, __u32 nr, __u64 expires)
{
	__u32 i;

	for (i = 0; i < nr; i++)
		if (!tw_arm(fd, expires, i))
			return false;
	return true;
}

/* What is armed may be due minutes from now; the harness ends a test that hangs. */
static bool wait_until_due(int fd)
{
	return tw_poll_for(fd, POLLIN, -1) == POLLIN;
}

TEST_F_TIMEOUT(live, a_million_due_in_one_tick_fire_once_each, LIMIT)
{
	static struct twheel_event ev[BATCH];
	struct tw_bitmap seen;
	__u64 expires, records = 0;
	long n, i;

	ASSERT_TRUE(tw_bitmap_init(&seen, self->nr));
	ASSERT_TRUE(arm_in_time(&self->fd, self->nr, arm_one_tick, &expires));
	while (records < self->nr) {
		ASSERT_TRUE(wait_until_due(self->fd));
		n = tw_read(self->fd, ev, BATCH);
		ASSERT_LT(0, n);
		records += n;
		for (i = 0; i < n; i++) {
			ASSERT_TRUE(tw_bitmap_add(&seen, ev[i].user_data));
			ASSERT_LE(expires, ev[i].fired_ns);
		}
	}
	EXPECT_EQ(self->nr, records);
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, ev, 1));
	EXPECT_EQ(0, tw_armed(self->fd));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
	TH_LOG("%llu wake-ups, %llu passes continued",
	       tw_counter(self->fd, "wakeups"),
	       tw_counter(self->fd, "continued"));
	EXPECT_LE(self->nr / MOST_A_PASS, tw_counter(self->fd, "wakeups"));
}

/*
 * P10: a million lie in a slot that is due. One in a thousand fires as it is visited
 * and so tells when; all others are only sorted into finer slots.
 */
#define ONE_IN		1000
#define OTHERS		4000

static bool arm_one_slot(int fd, __u32 nr, __u64 begin)
{
	static struct twheel_op ops[BATCH];
	__u32 i, done;

	for (done = 0; done < nr; done += i) {
		for (i = 0; i < BATCH && done + i < nr; i++)
			ops[i] = tw_entry((done + i) % ONE_IN ?
					  begin + WIDTH / 2 : begin, 0);
		if (tw_submit(fd, ops, i) != i || ops[i - 1].res)
			return false;
	}
	return true;
}

/* When the first and the last of @nr records fired, all of one wheel */
static bool fired_between(int fd, __u32 nr, __u64 *first, __u64 *last)
{
	static struct twheel_event ev[BATCH];
	long n;

	for (*first = *last = 0; nr; nr -= n) {
		n = tw_read(fd, ev, nr < BATCH ? nr : BATCH);
		if (n <= 0)
			return false;
		*first = *first ?: ev[0].fired_ns;
		*last = ev[n - 1].fired_ns;
	}
	return true;
}

TEST_F_TIMEOUT(live, a_cascade_of_a_million_holds_up_nobody, LIMIT)
{
	static struct twheel_event ev[OTHERS];
	int other = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, OTHERS);
	__u32 markers = (self->nr + ONE_IN - 1) / ONE_IN, ready, amid = 0, i;
	__u64 begin, first, last, meanwhile = 0;

	ASSERT_LE(0, other);
	ASSERT_TRUE(arm_in_time(&self->fd, self->nr, arm_one_slot, &begin));
	for (i = 0; i < OTHERS; i++)
		ASSERT_NE(0, tw_arm(other, begin + i * 5 * TW_TICK_MIN, i));
	do {
		ready = tw_ready(self->fd);
		amid += ready && ready < markers;
		tw_sleep_ms(1);
	} while (ready < markers);
	while (tw_ready(other) < OTHERS)
		tw_sleep_ms(1);
	ASSERT_TRUE(fired_between(self->fd, markers, &first, &last));
	ASSERT_EQ(OTHERS, tw_read(other, ev, OTHERS));
	for (i = 0; i < OTHERS; i++)
		meanwhile += ev[i].fired_ns > first && ev[i].fired_ns < last;
	TH_LOG("%llu ms, meanwhile %u looks and %llu timers of another wheel",
	       (last - first) / TW_MSEC, amid, meanwhile);
	/* With one CPU it is for its scheduler to let this thread have some of it. */
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1)
		EXPECT_LT(0, amid);
	EXPECT_LT(0, meanwhile);
	EXPECT_LE(self->nr / MOST_A_PASS, tw_counter(self->fd, "wakeups"));
	close(other);
}

static bool arm_far_away(int fd, __u32 nr)
{
	__u64 seed = 45;
	__u32 i;

	for (i = 0; i < nr; i++)
		if (!tw_arm_rel(fd, TW_HOUR + tw_random_below(&seed, TW_HOUR), i))
			return false;
	return true;
}

static void no_op(int sig)
{
	(void)sig;
}

/* Wake the sleeper by signals, which may have to be sent again. */
static bool sleeper_ended(struct tw_sleeper *s)
{
	unsigned int i;

	for (i = 0; i < 1000 && !tw_sleeper_done(s); i++) {
		pthread_kill(s->thread, SIGUSR1);
		tw_sleep_ms(10);
	}
	return tw_sleeper_joined(s);
}

TEST_F_TIMEOUT(live, a_million_can_be_closed_while_readers_sleep, LIMIT)
{
	struct sigaction action = { .sa_handler = no_op };
	struct tw_sleeper r, p;

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	ASSERT_TRUE(arm_far_away(self->fd, self->nr));
	ASSERT_TRUE(tw_sleeper_start(&r, self->fd, tw_sleeper_read));
	ASSERT_TRUE(tw_sleeper_start(&p, self->fd, tw_sleeper_poll));
	ASSERT_TRUE(tw_sleeper_asleep(&r));
	ASSERT_TRUE(tw_sleeper_asleep(&p));
	ASSERT_EQ(0, close(self->fd));
	self->fd = -1;
	ASSERT_EQ(0, sigaction(SIGUSR1, &action, NULL));
	ASSERT_TRUE(sleeper_ended(&r));
	ASSERT_TRUE(sleeper_ended(&p));
	EXPECT_EQ(-EINTR, r.ret);
	/* The kernel looks the descriptor up once more before it returns. */
	EXPECT_TRUE(p.ret == POLLNVAL || p.ret == -EINTR);
}

/* In a child: all armed, one thread in read, one in poll; tell, and be killed. */
static void wait_for_the_end(__u32 nr, int tell)
{
	int fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_DEFAULT, nr);
	struct tw_sleeper r, p;

	if (fd >= 0 && !tw_set_blocking(fd) && arm_far_away(fd, nr) &&
	    tw_sleeper_start(&r, fd, tw_sleeper_read) &&
	    tw_sleeper_start(&p, fd, tw_sleeper_poll) &&
	    tw_sleeper_asleep(&r) && tw_sleeper_asleep(&p) &&
	    write(tell, "!", 1) == 1)
		pause();
	_exit(1);
}

TEST_F_TIMEOUT(live, a_process_with_a_million_can_be_killed_while_it_sleeps, LIMIT)
{
	int tell[2], status;
	char byte;
	pid_t pid;

	ASSERT_EQ(0, pipe(tell));
	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		wait_for_the_end(self->nr, tell[1]);
	close(tell[1]);
	ASSERT_EQ(1, read(tell[0], &byte, 1));
	ASSERT_EQ(0, kill(pid, SIGKILL));
	ASSERT_EQ(pid, waitpid(pid, &status, 0));
	ASSERT_TRUE(WIFSIGNALED(status));
	EXPECT_EQ(SIGKILL, WTERMSIG(status));
}

TEST_F_TIMEOUT(live, a_million_can_be_closed_while_they_fire, LIMIT)
{
	__u64 expires;

	ASSERT_TRUE(arm_in_time(&self->fd, self->nr, arm_one_tick, &expires));
	ASSERT_TRUE(wait_until_due(self->fd));
	ASSERT_EQ(0, close(self->fd));
	self->fd = -1;
}

TEST_HARNESS_MAIN
