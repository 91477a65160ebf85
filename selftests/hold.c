// SPDX-License-Identifier: GPL-2.0
/*
 * hold.c - no user and no clock can hold the machine
 *
 * What is counted is callbacks of the hrtimer that come before there is anything to do,
 * and a CPU that is held is seen by its heartbeat. Setting a clock needs to be root; with
 * one CPU a step cannot fall into a callback, and the tests of that prove little.
 *
 *   TWHEEL_SCALE=N  five times the timers of a flood, 1,000,000 by default
 */
#include <sys/prctl.h>
#include <sys/wait.h>

#include "pulse.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME	0x80
#endif

#define NOBODY		65534
#define FLOOD		(tw_env("TWHEEL_SCALE", 1000000) / 5)
#define FLOODS		8
#define BATCH		256
#define AHEAD		60	/* seconds by which a clock is set, and more than arming takes */
#define TAI_MIDDLE	40000	/* of what its offset may be */

/*
 * Callbacks of a wheel in which nothing is due, within 10 ms after a step back. Each slot
 * that holds a timer is opened once at the time at which that would have been due, to put
 * it where it belongs now: with timers 10 us apart those are 26 of the finest level, and
 * 38 of the next. Without an end there would be thousands.
 */
#define SPURIOUS	128

/* A time namespace, and in it times near the end of what a clock can tell */
FIXTURE(far)
{
	struct tw_pulses pulses;
};

FIXTURE_VARIANT(far)
{
	clockid_t clockid;
	bool negative;
};

FIXTURE_VARIANT_ADD(far, monotonic_negative)
{
	.clockid = CLOCK_MONOTONIC,
	.negative = true,
};

FIXTURE_VARIANT_ADD(far, monotonic_positive)
{
	.clockid = CLOCK_MONOTONIC,
	.negative = false,
};

FIXTURE_VARIANT_ADD(far, boottime_negative)
{
	.clockid = CLOCK_BOOTTIME,
	.negative = true,
};

FIXTURE_VARIANT_ADD(far, boottime_positive)
{
	.clockid = CLOCK_BOOTTIME,
	.negative = false,
};

FIXTURE_SETUP(far)
{
	ASSERT_TRUE(tw_pulses_start(&self->pulses));
}

FIXTURE_TEARDOWN(far)
{
}

/*
 * Children of this process will live with all of the uptime taken away, or with a
 * century. Where there are user namespaces anybody can do that.
 */
static bool enter_far_timens(clockid_t clockid, bool negative)
{
	long uptime = tw_clock(clockid) / TW_NSEC;
	char text[64];

	if (!access("/proc/self/ns/user", F_OK) && !setuid(NOBODY)) {
		prctl(PR_SET_DUMPABLE, 1);	/* its files in /proc are its own again */
		if (unshare(CLONE_NEWUSER))
			return false;
	}
	if (unshare(CLONE_NEWTIME))
		return false;
	snprintf(text, sizeof(text), "%s %ld 0",
		 clockid == CLOCK_MONOTONIC ? "monotonic" : "boottime",
		 negative ? -uptime : 100L * 365 * 24 * 3600);
	return tw_put("/proc/self/timens_offsets", text);
}

/*
 * Around the last ticks, and as much before them as the clock tells. None that would stand
 * before those in the kernel's queue: it is not looked at what is behind one that is not
 * due.
 */
static __u64 far_time(clockid_t clockid, unsigned int i)
{
	static const __u64 before[] = {
		0, 1, TW_TICK_MIN - 1, TW_TICK_MIN, TW_TICK_MIN + 1, TW_TICK_DEFAULT,
		2 * TW_TICK_DEFAULT, 2 * TW_TICK_DEFAULT + 1, TW_TICK_MAX - 1, TW_TICK_MAX,
		2 * TW_TICK_MAX,
	};
	__u64 far = TW_S64_MAX - before[i / 2 % ARRAY_SIZE(before)];

	return i % 2 ? far - tw_clock(clockid) : far;
}

#define NR_FAR		22
#define NR_TICKS	3

/* In the namespace: 0, or what went wrong. Each timer has a wheel of its own. */
enum { FAR_ARM = 1, FAR_FIRED, FAR_LOST, FAR_EARLY, FAR_NONE };

static int arm_far(clockid_t clockid)
{
	static const __u64 ticks[NR_TICKS] = { TW_TICK_DEFAULT, TW_TICK_MIN, TW_TICK_MAX };
	int soon = tw_wheel(clockid, TW_TICK_MIN, 0), fds[NR_TICKS * NR_FAR];
	struct twheel_event ev;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fds); i++) {
		fds[i] = tw_wheel(clockid, ticks[i / NR_FAR], 1);
		if (!tw_arm(fds[i], far_time(clockid, i % NR_FAR), i))
			return FAR_ARM;
	}
	if (!tw_arm_rel(soon, 50 * TW_MSEC, 0) || !tw_wait_readable(soon))
		return FAR_LOST;
	if (tw_read(soon, &ev, 1) != 1 || ev.fired_ns < ev.expires_ns)
		return FAR_EARLY;
	for (i = 0; i < ARRAY_SIZE(fds); i++)
		if (tw_armed(fds[i]) != 1)
			return FAR_FIRED;
	return 0;
}

/* The status of a child's child that arms, or FAR_NONE */
static int arm_far_in_timens(clockid_t clockid, bool negative)
{
	int status = FAR_NONE << 8;
	pid_t pid;

	if (!enter_far_timens(clockid, negative))
		return FAR_NONE;
	pid = fork();
	if (!pid)
		_exit(arm_far(clockid));
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : FAR_NONE;
}

/* P33 */
TEST_F(far, times_in_a_time_namespace_hold_no_cpu)
{
	int status = -1;
	unsigned int i;
	pid_t pid;

	pid = fork();
	ASSERT_LE(0, pid);
	if (!pid)
		_exit(arm_far_in_timens(variant->clockid, variant->negative));
	for (i = 0; i < TW_PATIENCE_MS && waitpid(pid, &status, WNOHANG) != pid; i += 50) {
		tw_sleep_ms(50);
		ASSERT_TRUE(tw_pulses_beat(&self->pulses));
	}
	ASSERT_TRUE(WIFEXITED(status));
	if (WEXITSTATUS(status) == FAR_NONE)
		SKIP(return, "no time namespaces here");
	EXPECT_EQ(0, WEXITSTATUS(status));
	EXPECT_TRUE(tw_pulses_beat(&self->pulses));
}

/* The wall clock is set, or TAI is by its offset, while timers expire (P34) */
FIXTURE(step)
{
	struct tw_pulses pulses;
	int fd;
	__u64 offset;		/* wall clock less monotonic clock */
	struct tw_bitmap seen;
	__u64 records;
	pthread_t busy;
	bool stop;		/* atomic */
};

FIXTURE_VARIANT(step)
{
	clockid_t clockid;
	bool by_tai;
};

FIXTURE_VARIANT_ADD(step, realtime)
{
	.clockid = CLOCK_REALTIME,
	.by_tai = false,
};

FIXTURE_VARIANT_ADD(step, tai)
{
	.clockid = CLOCK_TAI,
	.by_tai = false,
};

FIXTURE_VARIANT_ADD(step, tai_by_its_offset)
{
	.clockid = CLOCK_TAI,
	.by_tai = true,
};

static bool move_wall_clock(__s64 by)
{
	return tw_set_wall_clock(tw_clock(CLOCK_REALTIME) + by);
}

static long tai(void)
{
	struct timex tx = { };

	adjtimex(&tx);
	return tx.tai;
}

/*
 * By so many seconds; the wall clock takes TAI along. Forward on the first CPU and back on
 * the second: where it is set the hrtimer may be started anew, and there no step back can
 * come amid a callback.
 */
static bool step_by(bool by_tai, long seconds)
{
	tw_pin(seconds < 0);	/* fails if there is but one */
	return by_tai ? tw_set_tai(tai() + seconds) : move_wall_clock(seconds * (__s64)TW_NSEC);
}

/* Keeps a CPU from idling, as timers of an idle one may go to another. */
static void *be_busy(void *arg)
{
	bool *stop = arg;

	tw_pin(0);
	if (nice(19) < 0)
		return NULL;
	while (!__atomic_load_n(stop, __ATOMIC_ACQUIRE))
		;
	return NULL;
}

FIXTURE_SETUP(step)
{
	self->fd = -1;
	self->offset = tw_clock(CLOCK_REALTIME) - tw_clock(CLOCK_MONOTONIC);
	if (!move_wall_clock(0) || !tw_set_tai(TAI_MIDDLE))
		SKIP(return, "the wall clock may not be set");
	self->fd = tw_wheel(variant->clockid, TW_TICK_MIN, FLOOD);
	ASSERT_LE(0, self->fd);
	ASSERT_TRUE(tw_bitmap_init(&self->seen, FLOOD));
	ASSERT_TRUE(tw_pulses_start(&self->pulses));
	ASSERT_EQ(0, pthread_create(&self->busy, NULL, be_busy, &self->stop));
}

/* Forward first: a callback that waits for the clock comes to its end. */
FIXTURE_TEARDOWN(step)
{
	if (self->fd < 0)
		return;
	move_wall_clock(4 * TW_HOUR);
	tw_set_tai(TAI_MIDDLE + 2 * AHEAD);
	__atomic_store_n(&self->stop, true, __ATOMIC_RELEASE);
	pthread_join(self->busy, NULL);
	tw_pulses_stop(&self->pulses);
	close(self->fd);
	tw_set_tai(0);
	tw_set_wall_clock(tw_clock(CLOCK_MONOTONIC) + self->offset);
}

/* FLOOD timers from @first on, @step apart, on the hrtimer of the first CPU */
static bool arm_flood(int fd, __u64 first, __u64 step)
{
	static struct twheel_op ops[BATCH];
	const __u32 flood = FLOOD;
	__u32 i, k, nr;

	if (!tw_pin(0))
		return false;
	for (i = 0; i < flood; i += nr) {
		nr = flood - i < BATCH ? flood - i : BATCH;
		for (k = 0; k < nr; k++)
			ops[k] = tw_entry(first + (i + k) * step, i + k);
		if (tw_submit(fd, ops, nr) != nr)
			return false;
		for (k = 0; k < nr; k++)
			if (ops[k].res)
				return false;
	}
	return true;
}

/* Reads what there is: false if a record came twice or early. */
static bool read_flood(int fd, struct tw_bitmap *seen, __u64 *records)
{
	static struct twheel_event ev[1024];
	long nr, i;

	while ((nr = tw_read(fd, ev, ARRAY_SIZE(ev))) > 0) {
		for (i = 0; i < nr; i++)
			if (ev[i].fired_ns < ev[i].expires_ns ||
			    !tw_bitmap_add(seen, ev[i].user_data))
				return false;
		*records += nr;
	}
	return nr == -EAGAIN;
}

static bool read_rest(int fd, struct tw_bitmap *seen, __u64 *records)
{
	while (*records < FLOOD)
		if (!tw_wait_readable(fd) || !read_flood(fd, seen, records))
			return false;
	return true;
}

/*
 * How often the wheel was woken by its clock and did all that there was to do. A pass that
 * used up its budget is not counted: it had work, and there is only so much of that.
 */
static __s64 passes(int fd)
{
	struct twheel_stats stats;

	return tw_stats(fd, &stats) ? (__s64)TW_S64_MAX : stats.wakeups - stats.continued;
}

/* -1 if one had begun before that used up its budget, and none came after it. */
static __s64 passes_within(int fd, unsigned int ms)
{
	__s64 before = passes(fd);

	tw_sleep_ms(ms);
	return passes(fd) - before;
}

static void pause_us(__u64 us)
{
	__u64 end = tw_clock(CLOCK_MONOTONIC) + us * 1000;

	while (tw_clock(CLOCK_MONOTONIC) < end)
		;
}

/* The clock alone makes them due and takes that back: it is no matter how long arming took. */
TEST_F(step, back_amid_a_flood_wakes_nobody_before_its_time)
{
	__u64 seed = 1, i;
	__s64 before;

	for (i = 0; i < FLOODS; i++) {
		self->records = 0;
		memset(self->seen.bits, 0, self->seen.nr / 8);
		before = passes(self->fd);
		ASSERT_TRUE(arm_flood(self->fd, tw_clock(variant->clockid) +
				      AHEAD * TW_NSEC, 0));
		ASSERT_TRUE(step_by(variant->by_tai, AHEAD));
		tw_pin(1);
		while (tw_armed(self->fd) == FLOOD)
			;
		pause_us(tw_random_below(&seed, 5000));
		ASSERT_TRUE(step_by(variant->by_tai, -AHEAD));
		tw_sleep_ms(300);
		ASSERT_GE(SPURIOUS, passes(self->fd) - before);
		ASSERT_TRUE(tw_pulses_beat(&self->pulses));
		ASSERT_TRUE(step_by(variant->by_tai, AHEAD));
		ASSERT_TRUE(read_rest(self->fd, &self->seen, &self->records));
		ASSERT_TRUE(step_by(variant->by_tai, -AHEAD));
	}
}

TEST_F(step, back_between_timers_wakes_nobody_before_its_time)
{
	__u64 seed = 2, i;

	ASSERT_TRUE(arm_flood(self->fd, tw_clock(variant->clockid) + AHEAD * TW_NSEC,
			      10000));
	for (i = 0; i < 400 && tw_armed(self->fd); i++) {
		ASSERT_TRUE(step_by(variant->by_tai, AHEAD));
		tw_pin(1);
		pause_us(tw_random_below(&seed, 1000));
		ASSERT_TRUE(step_by(variant->by_tai, -AHEAD));
		ASSERT_GE(SPURIOUS, passes_within(self->fd, 10));
		ASSERT_TRUE(tw_pulses_beat(&self->pulses));
	}
	ASSERT_TRUE(step_by(variant->by_tai, 2 * AHEAD));
	EXPECT_TRUE(read_rest(self->fd, &self->seen, &self->records));
}

static long drain_all(int fd)
{
	static struct twheel_op ops[64];
	long ret;

	while ((ret = tw_drain(fd, ops, ARRAY_SIZE(ops))) > 0)
		;
	return ret;
}

/* Steps of its own, at any time, back and forth */
struct stepper {
	pthread_t thread;
	bool by_tai;
	bool stop;		/* atomic */
	bool failed;
	__u64 steps;
	__u64 seed;
};

/* Ends where it began, which is where nothing is due. */
static void *step_on(void *arg)
{
	struct stepper *s = arg;
	long by = AHEAD;

	do {
		s->failed |= !step_by(s->by_tai, by);
		s->steps++;
		by = -by;
		tw_pin(1);
		usleep(tw_random_below(&s->seed, 5000));
	} while (by < 0 || !__atomic_load_n(&s->stop, __ATOMIC_ACQUIRE));
	return NULL;
}

TEST_F(step, to_and_fro_amid_floods_loses_nothing_and_wakes_nobody_for_nothing)
{
	struct stepper s = { .by_tai = variant->by_tai, .seed = 3 };
	__u64 i;

	for (i = 0; i < FLOODS; i++) {
		self->records = 0;
		memset(self->seen.bits, 0, self->seen.nr / 8);
		ASSERT_TRUE(arm_flood(self->fd, tw_clock(variant->clockid) +
				      AHEAD * TW_NSEC, 0));
		__atomic_store_n(&s.stop, false, __ATOMIC_RELEASE);
		ASSERT_EQ(0, pthread_create(&s.thread, NULL, step_on, &s));
		EXPECT_TRUE(read_rest(self->fd, &self->seen, &self->records));
		__atomic_store_n(&s.stop, true, __ATOMIC_RELEASE);
		pthread_join(s.thread, NULL);
		ASSERT_FALSE(s.failed);
		ASSERT_TRUE(tw_pulses_beat(&self->pulses));
	}
	EXPECT_GE((__s64)(SPURIOUS * (FLOODS + s.steps)), passes(self->fd));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
}

/* Many wheels of one user that keep the softirq going while he sleeps (promise 7) */
#define WHEELS		64
#define PER_WHEEL	6000
#define TICKS_ENOUGH	100

FIXTURE(share)
{
	int fds[WHEELS];
};

/* There ticks wait until the kernel returns, and so find it busy always. */
static bool is_user_mode_linux(void)
{
	char line[128];
	bool found = false;
	FILE *f = fopen("/proc/cpuinfo", "re");

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "User Mode Linux");
	if (f)
		fclose(f);
	return found;
}

FIXTURE_SETUP(share)
{
	unsigned int i;

	for (i = 0; i < WHEELS; i++)
		self->fds[i] = -1;
	if (is_user_mode_linux())
		SKIP(return, "ticks do not tell who has the CPU");
	ASSERT_TRUE(tw_pin(0));
}

FIXTURE_TEARDOWN(share)
{
	unsigned int i;

	for (i = 0; i < WHEELS; i++)
		close(self->fds[i]);
}

/* On the hrtimers of the CPU that this runs on, and each wheel has one for each tick */
static bool open_flood(int *fds, __u64 first)
{
	static struct twheel_op ops[PER_WHEEL];
	unsigned int i, k;

	for (i = 0; i < WHEELS; i++) {
		fds[i] = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, PER_WHEEL);
		for (k = 0; k < PER_WHEEL; k++)
			ops[k] = tw_entry(first + k * TW_TICK_MIN, k);
		if (tw_submit(fds[i], ops, PER_WHEEL) != PER_WHEEL)
			return false;
	}
	return true;
}

static bool is_over(const int *fds)
{
	unsigned int i;

	for (i = 0; i < WHEELS; i++)
		if (tw_armed(fds[i]))
			return false;
	return true;
}

static void close_flood(int *fds)
{
	unsigned int i;

	for (i = 0; i < WHEELS; i++) {
		close(fds[i]);
		fds[i] = -1;
	}
}

/* In user space but for a look at the clock now and then */
static void spin_until(__u64 end)
{
	unsigned int i;

	while (tw_clock(CLOCK_MONOTONIC) < end)
		for (i = 0; i < 20000; i++)
			asm volatile("");
}

/*
 * Ticks of the kernel that found the CPU in a program, and all that did not find it idle.
 * Both get less when an emulated machine stands still, hence neither a count of rounds nor
 * the CPU time of the spinner, which has that of softirqs in it.
 */
static bool count_ticks(__u64 *user, __u64 *all)
{
	unsigned long long u, nice, system, idle, iowait, irq, softirq;
	FILE *f = fopen("/proc/stat", "re");
	bool found;

	if (!f)
		return false;
	found = fscanf(f, "cpu %*[^\n] cpu0 %llu %llu %llu %llu %llu %llu %llu", &u, &nice,
		       &system, &idle, &iowait, &irq, &softirq) == 7;
	fclose(f);
	*user = u + nice;
	*all = u + nice + system + irq + softirq;
	return found;
}

TEST_F(share, many_wheels_leave_a_fifth_of_a_cpu_to_others_at_least)
{
	__u64 user = 0, all = 0, user_before, all_before, user_after, all_after;
	__u64 before, first, arming = 2 * TW_NSEC;

	while (all < TICKS_ENOUGH) {
		before = tw_clock(CLOCK_MONOTONIC);
		first = before + 2 * arming;
		ASSERT_TRUE(open_flood(self->fds, first));
		arming = tw_clock(CLOCK_MONOTONIC) - before;
		if (arming < first - before) {
			spin_until(first);
			ASSERT_TRUE(count_ticks(&user_before, &all_before));
			while (!is_over(self->fds))
				spin_until(tw_clock(CLOCK_MONOTONIC) + 5 * TW_MSEC);
			ASSERT_TRUE(count_ticks(&user_after, &all_after));
			user += user_after - user_before;
			all += all_after - all_before;
		}
		close_flood(self->fds);
	}
	TH_LOG("%llu of %llu ticks", user, all);
	EXPECT_LE(20, user * 100 / all);
}

/* The hrtimer and what the wheel believes of it, when they race on a clock that is set */
TEST_F(step, after_a_storm_of_arms_and_steps_no_hrtimer_is_left_queued)
{
	struct stepper s = { .by_tai = variant->by_tai, .seed = 4 };
	__u64 seed = 5, base = tw_clock(variant->clockid), id, i;

	ASSERT_EQ(0, pthread_create(&s.thread, NULL, step_on, &s));
	for (i = 0; i < self->seen.nr / 10; i++) {
		/* About the times that the clock takes turns at being at */
		id = tw_arm(self->fd, tw_clock(variant->clockid) +
			    tw_random_below(&seed, 50000), i);
		ASSERT_NE(0, id);
		ASSERT_NE(0, tw_arm(self->fd, base + tw_random_below(&seed, AHEAD) * TW_NSEC,
				    i));
		ASSERT_LE(0, tw_cancel(self->fd, id));
		ASSERT_LE(0, drain_all(self->fd));
		ASSERT_LE(0, tw_discard(self->fd));
	}
	__atomic_store_n(&s.stop, true, __ATOMIC_RELEASE);
	pthread_join(s.thread, NULL);
	ASSERT_EQ(0, tw_armed(self->fd) + tw_ready(self->fd));
	for (i = 0; i < 1000 && tw_counter(self->fd, "next_wake_ns") != TWHEEL_NEVER; i++)
		tw_sleep_ms(1);
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
}

TEST_HARNESS_MAIN
