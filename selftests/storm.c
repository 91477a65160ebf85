// SPDX-License-Identifier: GPL-2.0
/*
 * As fast as threads can call: deadlines that have passed or nearly so stop no machine
 * and lose no record, and no id is ever given twice.
 *
 *   TWHEEL_STRESS_SECONDS=N  how long arming in the past goes on, 10 by default; with
 *                            tiny delays, a quarter of it
 */
#include <sched.h>

#include "twheel_test.h"

#define SECONDS		tw_env("TWHEEL_STRESS_SECONDS", 10)
#define STORM_THREADS	4
#define STORM_SHIFT	40		/* user_data: thread above, serial below */
#define STORM_MAX	(1ULL << 24)	/* timers a thread */
#define RESPONSE_MAX	(5 * TW_NSEC)

struct actor {
	pthread_t thread;
	struct storm *storm;
	unsigned int index;
	__u64 armed;
	__u64 records;
	long error;
};

/* What the threads of one test share */
struct storm {
	int fd;
	bool stop;		/* atomic */
	__u64 end;		/* on CLOCK_MONOTONIC */
	struct tw_bitmap seen[STORM_THREADS];
	struct actor actors[STORM_THREADS + 1];
};

static bool storm_over(struct storm *storm)
{
	return __atomic_load_n(&storm->stop, __ATOMIC_ACQUIRE) ||
	       tw_clock(CLOCK_MONOTONIC) >= storm->end;
}

/* For so long from now on */
static void storm_lasts(struct storm *storm, __u64 ns)
{
	storm->end = tw_clock(CLOCK_MONOTONIC) + ns;
}

static void storm_stop(struct storm *storm)
{
	__atomic_store_n(&storm->stop, true, __ATOMIC_RELEASE);
}

static void *actor_fail(struct actor *a, long error)
{
	a->error = error ? error : -EPROTO;
	storm_stop(a->storm);
	return NULL;
}

FIXTURE(storm)
{
	struct storm *storm;
};

FIXTURE_SETUP(storm)
{
	struct storm *storm = calloc(1, sizeof(*storm));
	unsigned int i;

	ASSERT_NE(NULL, storm);
	self->storm = storm;
	storm->fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, 0);
	ASSERT_LE(0, storm->fd);
	storm_lasts(storm, SECONDS * TW_NSEC / 4);
	for (i = 0; i <= STORM_THREADS; i++) {
		storm->actors[i].storm = storm;
		storm->actors[i].index = i;
	}
}

FIXTURE_TEARDOWN(storm)
{
	close(self->storm->fd);
}

static bool actor_start(struct storm *storm, unsigned int i, void *(*fn)(void *))
{
	return !pthread_create(&storm->actors[i].thread, NULL, fn,
			       &storm->actors[i]);
}

/* Arms what op_of() makes of a serial number, as fast as it can. */
static void *arm_storm(struct actor *a, struct twheel_op (*op_of)(__u64 serial))
{
	struct twheel_op op;
	long ret;

	while (a->armed < STORM_MAX && !storm_over(a->storm)) {
		op = op_of(a->armed);
		op.user_data = (__u64)a->index << STORM_SHIFT | a->armed;
		ret = tw_arm_op(a->storm->fd, &op);
		if (!ret)
			a->armed++;
		else if (ret == -ENOSPC)
			sched_yield();
		else
			return actor_fail(a, ret);
	}
	return NULL;
}

static struct twheel_op past_op(__u64 serial)
{
	static const __u64 expiries[] = { 0, 1, 1000, 1000000 };

	return tw_op(expiries[serial & 3], 0);
}

static struct twheel_op tiny_op(__u64 serial)
{
	struct twheel_op op = tw_op(serial & 0x3fff, 0);

	op.flags = TWHEEL_F_REL;
	return op;
}

/* P1: deadlines that have passed */
static void *arm_past(void *arg)
{
	return arm_storm(arg, past_op);
}

/* The same with delays of next to nothing */
static void *arm_tiny(void *arg)
{
	return arm_storm(arg, tiny_op);
}

static bool storm_record(struct actor *a, const struct twheel_event *ev)
{
	__u64 thread = ev->user_data >> STORM_SHIFT;
	__u64 serial = ev->user_data & ((1ULL << STORM_SHIFT) - 1);

	return thread < STORM_THREADS && ev->fired_ns >= ev->expires_ns &&
	       tw_bitmap_add(&a->storm->seen[thread], serial);
}

/* Read all until told to stop and nothing is left. */
static void *read_storm(void *arg)
{
	static struct twheel_event ev[1024];
	struct actor *a = arg;
	long ret, i;
	bool last;

	do {
		last = __atomic_load_n(&a->storm->stop, __ATOMIC_ACQUIRE) &&
		       !tw_armed(a->storm->fd);
		ret = tw_read(a->storm->fd, ev, ARRAY_SIZE(ev));
		for (i = 0; i < ret; i++)
			if (!storm_record(a, &ev[i]))
				return actor_fail(a, -EBADMSG);
		if (ret < 0 && ret != -EAGAIN)
			return actor_fail(a, ret);
		if (ret > 0)
			a->records += ret;
		else
			tw_poll_for(a->storm->fd, POLLIN, 10);
	} while (!last || ret > 0);
	return NULL;
}

/* The longest that 100 ms of sleep took */
static __u64 worst_response(struct storm *storm)
{
	__u64 worst = 0;

	while (!storm_over(storm)) {
		__u64 before = tw_clock(CLOCK_MONOTONIC), took;

		usleep(100000);
		took = tw_clock(CLOCK_MONOTONIC) - before;
		worst = took > worst ? took : worst;
	}
	return worst;
}

static bool storm_start(struct storm *storm, void *(*fn)(void *))
{
	unsigned int i;

	for (i = 0; i < STORM_THREADS; i++)
		if (!tw_bitmap_init(&storm->seen[i], STORM_MAX) ||
		    !actor_start(storm, i, fn))
			return false;
	return actor_start(storm, STORM_THREADS, read_storm);
}

static __u64 storm_armed(struct storm *storm)
{
	__u64 armed = 0;
	unsigned int i;

	for (i = 0; i < STORM_THREADS; i++)
		armed += storm->actors[i].armed;
	return armed;
}

static bool storm_join(struct storm *storm)
{
	unsigned int i;

	for (i = 0; i < STORM_THREADS; i++)
		if (pthread_join(storm->actors[i].thread, NULL))
			return false;
	storm_stop(storm);
	return !pthread_join(storm->actors[STORM_THREADS].thread, NULL);
}

TEST_F(storm, arming_in_the_past_from_four_threads_gives_each_record_once)
{
	struct actor *reader = &self->storm->actors[STORM_THREADS];
	__u64 worst;
	int i;

	storm_lasts(self->storm, SECONDS * TW_NSEC);
	ASSERT_TRUE(storm_start(self->storm, arm_past));
	worst = worst_response(self->storm);
	ASSERT_TRUE(storm_join(self->storm));
	for (i = 0; i <= STORM_THREADS; i++)
		EXPECT_EQ(0, self->storm->actors[i].error);
	TH_LOG("%llu timers, a sleep of 100 ms took %llu ms at most",
	       storm_armed(self->storm), worst / TW_MSEC);
	EXPECT_LT(0, reader->records);
	EXPECT_EQ(storm_armed(self->storm), reader->records);
	EXPECT_GT(RESPONSE_MAX, worst);
	EXPECT_EQ(0, tw_armed(self->storm->fd));
}

TEST_F(storm, arming_in_the_past_never_starts_an_hrtimer)
{
	__u64 i;

	for (i = 0; i < tw_many(10000); i++)
		ASSERT_NE(0, tw_arm(self->storm->fd, 1, i));
	EXPECT_EQ(0, tw_counter(self->storm->fd, "hrtimer_starts"));
}

TEST_F(storm, tiny_delays_from_four_threads_give_each_record_once)
{
	struct actor *reader = &self->storm->actors[STORM_THREADS];
	__u64 worst;
	int i;

	ASSERT_TRUE(storm_start(self->storm, arm_tiny));
	worst = worst_response(self->storm);
	ASSERT_TRUE(storm_join(self->storm));
	for (i = 0; i <= STORM_THREADS; i++)
		EXPECT_EQ(0, self->storm->actors[i].error);
	TH_LOG("%llu timers, a sleep of 100 ms took %llu ms at most",
	       storm_armed(self->storm), worst / TW_MSEC);
	EXPECT_EQ(storm_armed(self->storm), reader->records);
	EXPECT_GT(RESPONSE_MAX, worst);
}

/* P8 */
static int compare_ids(const void *a, const void *b)
{
	__u64 x = *(const __u64 *)a, y = *(const __u64 *)b;

	return x < y ? -1 : x > y;
}

static bool all_differ(__u64 *ids, size_t nr)
{
	size_t i;

	qsort(ids, nr, sizeof(*ids), compare_ids);
	for (i = 1; i < nr; i++)
		if (ids[i] == ids[i - 1])
			return false;
	return true;
}

TEST_F(storm, an_id_is_never_given_twice_when_a_slot_is_cancelled)
{
	static __u64 ids[100000];
	size_t nr = tw_many(ARRAY_SIZE(ids)), i;
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, 1);

	ASSERT_LE(0, fd);
	for (i = 0; i < nr; i++) {
		ids[i] = tw_arm(fd, TW_HOUR, 0);
		ASSERT_NE(0, ids[i]);
		ASSERT_EQ(0, tw_cancel(fd, ids[i]));
	}
	EXPECT_TRUE(all_differ(ids, nr));
	close(fd);
}

TEST_F(storm, an_id_is_never_given_twice_when_a_slot_fires)
{
	static __u64 ids[100000];
	size_t nr = tw_many(ARRAY_SIZE(ids)), i;
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, 2);
	struct twheel_event ev;

	ASSERT_LE(0, fd);
	for (i = 0; i < nr; i++) {
		ids[i] = tw_arm(fd, 0, 0);
		ASSERT_NE(0, ids[i]);
		ASSERT_EQ(1, tw_read(fd, &ev, 1));
		ASSERT_EQ(ids[i], ev.id);
		ASSERT_EQ(-ENOENT, tw_cancel(fd, ids[i]));
	}
	EXPECT_TRUE(all_differ(ids, nr));
	close(fd);
}

TEST_HARNESS_MAIN
