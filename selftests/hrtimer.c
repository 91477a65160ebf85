// SPDX-License-Identifier: GPL-2.0
/*
 * hrtimer.c - what the kernel sees of a wheel: how often its hrtimer is started and
 * fires, by the kernel's own tracepoints, and CPUs that share it or are taken away
 *
 * Needs to be root, and two CPUs; skipped elsewhere.
 */
#include <sched.h>
#include <sys/stat.h>

#include "twheel_test.h"

#define TRACE		"/sys/kernel/tracing/instances/twheel-test"
#define SECOND_CPU	"/sys/devices/system/cpu/cpu1/online"
#define TICK		TW_TICK_DEFAULT
#define MANY		10000

/* How often the kernel has traced @event of the hrtimers of all wheels. */
static __u64 traced(const char *event)
{
	char line[512];
	__u64 nr = 0;
	FILE *f = fopen(TRACE "/trace", "r");

	if (!f)
		return TW_POISON64;
	while (fgets(line, sizeof(line), f))
		nr += strstr(line, event) && strstr(line, "=tw_hrtimer_callback");
	fclose(f);
	return nr;
}

/* Tracing in an instance of its own disturbs nobody else who traces. */
FIXTURE(hrtimer)
{
	int fd;
	__u64 ids[MANY];
};

FIXTURE_SETUP(hrtimer)
{
	self->fd = tw_wheel(CLOCK_MONOTONIC, TICK, 0);
	ASSERT_LE(0, self->fd);
	if (mkdir(TRACE, 0700) && errno != EEXIST)
		SKIP(return, "this kernel cannot trace");
	ASSERT_TRUE(tw_put(TRACE "/events/timer/hrtimer_start/enable", "1"));
	ASSERT_TRUE(tw_put(TRACE "/events/timer/hrtimer_expire_entry/enable", "1"));
	ASSERT_TRUE(tw_put(TRACE "/trace", ""));
}

FIXTURE_TEARDOWN(hrtimer)
{
	close(self->fd);
	rmdir(TRACE);
}

/* All other tests of wake-ups trust these counters. */
TEST_F(hrtimer, the_counters_tell_what_the_kernel_sees)
{
	__u64 seed = 1, i;

	for (i = 0; i < 500; i++)
		self->ids[i] = tw_arm_rel(self->fd, tw_random_below(&seed, TW_NSEC), i);
	for (i = 0; i < 500; i += 3)
		tw_modify(self->fd, self->ids[i], tw_now(self->fd) + 100 * TW_MSEC);
	for (i = 0; i < 500; i += 5)
		tw_cancel(self->fd, self->ids[i]);
	while (tw_armed(self->fd))
		tw_sleep_ms(10);
	EXPECT_LT(0, traced("hrtimer_start:"));
	EXPECT_EQ(tw_counter(self->fd, "hrtimer_starts"), traced("hrtimer_start:"));
	EXPECT_EQ(tw_counter(self->fd, "wakeups"), traced("hrtimer_expire_entry:"));
}

/* Promise 6, P1 */
TEST_F(hrtimer, a_deadline_that_has_passed_never_gets_to_it)
{
	__u64 i, now;

	for (i = 0; i < MANY / 2; i++) {
		now = tw_now(self->fd);
		ASSERT_NE(0, tw_arm(self->fd, i % 2 ? now : 1, 0));
		self->ids[i] = tw_arm(self->fd, 0, 0);
		ASSERT_EQ(1, tw_modify(self->fd, self->ids[i], now - i % 100));
	}
	EXPECT_EQ(0, traced("hrtimer_start:"));
}

/* P1, P14: no faster than the tick, however fast the caller is */
TEST_F(hrtimer, tiny_delays_start_it_once_a_tick_at_most)
{
	__u64 begin = tw_now(self->fd), i, ticks;

	for (i = 0; i < MANY; i++)
		ASSERT_NE(0, tw_arm_rel(self->fd, 1 + i % 1000, 0));
	while (tw_armed(self->fd))
		tw_sleep_ms(1);
	ticks = (tw_now(self->fd) - begin) / TICK + 1;
	EXPECT_LT(0, traced("hrtimer_start:"));
	EXPECT_GE(ticks + tw_counter(self->fd, "continued"), traced("hrtimer_start:"));
}

TEST_F(hrtimer, a_tiny_period_that_nobody_reads_leaves_it_alone)
{
	__u64 first = tw_now(self->fd) + 100 * TICK, i, starts;

	for (i = 0; i < 100; i++)
		ASSERT_NE(0, tw_arm_every(self->fd, first + i, 1 + i, 0));
	while (tw_armed(self->fd))
		tw_sleep_ms(1);
	starts = traced("hrtimer_start:");
	tw_sleep_ms(200);
	EXPECT_EQ(starts, traced("hrtimer_start:"));
}

/* Two CPUs */
static bool move_to_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return !sched_setaffinity(0, sizeof(set), &set);
}

FIXTURE(cpus)
{
	int fd;
};

FIXTURE_SETUP(cpus)
{
	self->fd = -1;
	if (!move_to_cpu(1) || !move_to_cpu(0))
		SKIP(return, "this machine has one CPU");
	self->fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, 0);
	ASSERT_LE(0, self->fd);
}

FIXTURE_TEARDOWN(cpus)
{
	tw_put(SECOND_CPU, "1");
	close(self->fd);
}

/* Arms on the second CPU; the hrtimer is there, too. */
struct armer {
	pthread_t thread;
	int fd;
	__u64 first;		/* absolute; 0: half a millisecond from now on */
	__u64 step;
	__u64 ids[MANY];	/* atomic */
};

static void *arm_there(void *arg)
{
	struct armer *a = arg;
	__u64 seed = 2, i, id;

	if (!move_to_cpu(1))
		return "not on the second CPU";
	for (i = 0; i < MANY; i++) {
		id = a->first ? tw_arm(a->fd, a->first + i * a->step, i) :
				tw_arm_rel(a->fd, tw_random_below(&seed, 500000), i);
		if (!id)
			return "not armed";
		__atomic_store_n(&a->ids[i], id, __ATOMIC_RELEASE);
	}
	return "";
}

static bool armer_start(struct armer *a)
{
	return !pthread_create(&a->thread, NULL, arm_there, a);
}

/* "", or what is wrong */
static const char *armer_joined(struct armer *a)
{
	void *wrong = "no thread";

	pthread_join(a->thread, &wrong);
	return wrong;
}

/* Reads until each timer's record came once: "", or what is wrong. */
static const char *each_fires_once(int fd)
{
	static struct twheel_event ev[256];
	struct tw_bitmap seen;
	const char *wrong = "";
	unsigned int read = 0;
	long nr = 0, i;

	if (!tw_bitmap_init(&seen, MANY))
		return "no memory";
	while (!*wrong && read < MANY) {
		if (tw_wait_readable(fd))
			nr = tw_read(fd, ev, 256);
		if (nr <= 0)
			wrong = "lost";
		for (i = 0; i < nr && !*wrong; i++) {
			if (ev[i].fired_ns < ev[i].expires_ns)
				wrong = "early";
			else if (!tw_bitmap_add(&seen, ev[i].user_data))
				wrong = "twice";
		}
		read += nr;
		nr = 0;
	}
	free(seen.bits);
	return wrong;
}

/* Cancels all as they come: "", or what is wrong. Nobody reads meanwhile. */
static const char *cancel_here(struct armer *a, __u64 *withdrawn)
{
	__u64 i, id;
	long ret;

	for (i = 0; i < MANY; i++) {
		while (!(id = __atomic_load_n(&a->ids[i], __ATOMIC_ACQUIRE)))
			sched_yield();
		ret = tw_cancel(a->fd, id);
		if (ret < 0)
			return "neither armed nor ready";
		*withdrawn += ret;
	}
	return "";
}

/* P32: about when they fire, and long before, when the hrtimer waits on that CPU */
TEST_F(cpus, what_one_arms_another_cancels)
{
	const __u64 firsts[] = { 0, tw_now(self->fd) + TW_HOUR };
	static struct armer a;
	__u64 withdrawn = 0;
	size_t i;

	a.fd = self->fd;
	for (i = 0; i < ARRAY_SIZE(firsts); i++) {
		memset(a.ids, 0, sizeof(a.ids));
		a.first = firsts[i];
		ASSERT_TRUE(armer_start(&a));
		EXPECT_STREQ("", cancel_here(&a, &withdrawn));
		EXPECT_STREQ("", armer_joined(&a));
		EXPECT_EQ(0, tw_armed(self->fd) + tw_ready(self->fd));
		EXPECT_EQ(TWHEEL_NEVER, tw_counter(self->fd, "next_wake_ns"));
	}
	TH_LOG("%llu of %d had fired", withdrawn, 2 * MANY);
}

/* P28 */
TEST_F(cpus, timers_of_one_that_is_taken_away_fire)
{
	static struct armer a;

	a.fd = self->fd;
	a.first = tw_now(self->fd) + 5 * TW_NSEC;
	a.step = 10000;
	ASSERT_TRUE(armer_start(&a));
	ASSERT_STREQ("", armer_joined(&a));
	if (!tw_put(SECOND_CPU, "0"))
		SKIP(return, "no CPU can be taken away");
	if (tw_armed(self->fd) < MANY)
		SKIP(return, "too slow: they fired before the CPU was gone");
	EXPECT_STREQ("", each_fires_once(self->fd));
}

TEST_F(cpus, timers_fire_while_one_comes_and_goes)
{
	static struct armer a;
	int i;

	a.fd = self->fd;
	a.first = tw_now(self->fd) + 200 * TW_MSEC;
	a.step = 200000;
	ASSERT_TRUE(armer_start(&a));
	/* It has to be on that CPU while there is one. */
	for (i = 0; i < TW_PATIENCE_MS && !__atomic_load_n(&a.ids[0], __ATOMIC_ACQUIRE); i++)
		tw_sleep_ms(1);
	for (i = 0; i < 3; i++) {
		if (!tw_put(SECOND_CPU, "0"))
			SKIP(return, "no CPU can be taken away");
		tw_sleep_ms(100);
		ASSERT_TRUE(tw_put(SECOND_CPU, "1"));
		tw_sleep_ms(100);
	}
	EXPECT_STREQ("", armer_joined(&a));
	EXPECT_STREQ("", each_fires_once(self->fd));
}

TEST_HARNESS_MAIN
