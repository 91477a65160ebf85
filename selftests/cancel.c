// SPDX-License-Identifier: GPL-2.0
/*
 * Races: every timer has exactly one fate, whoever cancels, moves, fires or
 * reads it at the same time. And no id is ever given twice.
 *
 *   TWHEEL_STRESS_SECONDS=N  how long arming in the past goes on, 10 by default;
 *                            the other races last a quarter of it
 */
#include <sched.h>

#include "twheel_test.h"

#define SECONDS		tw_env("TWHEEL_STRESS_SECONDS", 10)
#define STORM_THREADS	4
#define STORM_SHIFT	40		/* user_data: thread above, serial below */
#define STORM_MAX	(1ULL << 24)	/* timers a thread */
#define RACE_TIMERS	512
#define RESPONSE_MAX	(5 * TW_NSEC)

struct actor {
	pthread_t thread;
	struct race *race;
	unsigned int index;
	__u64 armed;
	__u64 cancelled;	/* calls that returned 0 */
	__u64 withdrawn;	/* calls that returned 1 */
	__u64 stale;		/* calls that returned -ENOENT */
	__u64 records;
	long error;
};

/* What the threads of one test share */
struct race {
	int fd;
	bool stop;		/* atomic */
	__u64 end;		/* on CLOCK_MONOTONIC */
	__u64 ids[RACE_TIMERS];	/* atomic */
	struct tw_bitmap seen[STORM_THREADS];
	struct actor actors[STORM_THREADS + 1];
};

static bool race_over(struct race *race)
{
	return __atomic_load_n(&race->stop, __ATOMIC_ACQUIRE) ||
	       tw_clock(CLOCK_MONOTONIC) >= race->end;
}

/* For so long from now on */
static void race_lasts(struct race *race, __u64 ns)
{
	race->end = tw_clock(CLOCK_MONOTONIC) + ns;
}

static void race_stop(struct race *race)
{
	__atomic_store_n(&race->stop, true, __ATOMIC_RELEASE);
}

static void *actor_fail(struct actor *a, long error)
{
	a->error = error ? error : -EPROTO;
	race_stop(a->race);
	return NULL;
}

FIXTURE(race)
{
	struct race *race;
};

FIXTURE_SETUP(race)
{
	struct race *race = calloc(1, sizeof(*race));
	unsigned int i;

	ASSERT_NE(NULL, race);
	self->race = race;
	race->fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, 0);
	ASSERT_LE(0, race->fd);
	race_lasts(race, SECONDS * TW_NSEC / 4);
	for (i = 0; i <= STORM_THREADS; i++) {
		race->actors[i].race = race;
		race->actors[i].index = i;
	}
}

FIXTURE_TEARDOWN(race)
{
	close(self->race->fd);
}

static bool race_start(struct race *race, unsigned int i, void *(*fn)(void *))
{
	return !pthread_create(&race->actors[i].thread, NULL, fn,
			       &race->actors[i]);
}

static bool race_join(struct race *race, unsigned int nr)
{
	unsigned int i;

	for (i = 0; i < nr; i++)
		if (pthread_join(race->actors[i].thread, NULL))
			return false;
	return true;
}

/* P1: deadlines that have passed, as fast as threads can arm them */
static void *arm_past(void *arg)
{
	static const __u64 expiries[] = { 0, 1, 1000, 1000000 };
	struct actor *a = arg;
	__u64 base = (__u64)a->index << STORM_SHIFT, id;
	long ret;

	while (a->armed < STORM_MAX && !race_over(a->race)) {
		ret = tw_arm_id(a->race->fd, expiries[a->armed & 3],
				base | a->armed, &id);
		if (!ret)
			a->armed++;
		else if (ret == -ENOSPC)
			sched_yield();
		else
			return actor_fail(a, ret);
	}
	return NULL;
}

/* The same with delays of next to nothing */
static void *arm_tiny(void *arg)
{
	struct actor *a = arg;
	__u64 base = (__u64)a->index << STORM_SHIFT;
	struct twheel_op op;
	long ret;

	while (a->armed < STORM_MAX && !race_over(a->race)) {
		op = tw_op(a->armed & 0x3fff, base | a->armed);
		op.flags = TWHEEL_F_REL;
		ret = tw_arm_op(a->race->fd, &op);
		if (!ret)
			a->armed++;
		else if (ret == -ENOSPC)
			sched_yield();
		else
			return actor_fail(a, ret);
	}
	return NULL;
}

static bool storm_record(struct actor *a, const struct twheel_event *ev)
{
	__u64 thread = ev->user_data >> STORM_SHIFT;
	__u64 serial = ev->user_data & ((1ULL << STORM_SHIFT) - 1);

	return thread < STORM_THREADS && ev->fired_ns >= ev->expires_ns &&
	       tw_bitmap_add(&a->race->seen[thread], serial);
}

/* Read all until told to stop and nothing is left. */
static void *read_storm(void *arg)
{
	static struct twheel_event ev[1024];
	struct actor *a = arg;
	long ret, i;
	bool last;

	do {
		last = __atomic_load_n(&a->race->stop, __ATOMIC_ACQUIRE) &&
		       !tw_armed(a->race->fd);
		ret = tw_read(a->race->fd, ev, ARRAY_SIZE(ev));
		for (i = 0; i < ret; i++)
			if (!storm_record(a, &ev[i]))
				return actor_fail(a, -EBADMSG);
		if (ret < 0 && ret != -EAGAIN)
			return actor_fail(a, ret);
		if (ret > 0)
			a->records += ret;
		else
			tw_poll_for(a->race->fd, POLLIN, 10);
	} while (!last || ret > 0);
	return NULL;
}

/* The longest that 100 ms of sleep took */
static __u64 worst_response(struct race *race)
{
	__u64 worst = 0;

	while (!race_over(race)) {
		__u64 before = tw_clock(CLOCK_MONOTONIC), took;

		usleep(100000);
		took = tw_clock(CLOCK_MONOTONIC) - before;
		worst = took > worst ? took : worst;
	}
	return worst;
}

static bool storm_start(struct race *race, void *(*fn)(void *))
{
	unsigned int i;

	for (i = 0; i < STORM_THREADS; i++)
		if (!tw_bitmap_init(&race->seen[i], STORM_MAX) ||
		    !race_start(race, i, fn))
			return false;
	return race_start(race, STORM_THREADS, read_storm);
}

static __u64 storm_armed(struct race *race)
{
	__u64 armed = 0;
	unsigned int i;

	for (i = 0; i < STORM_THREADS; i++)
		armed += race->actors[i].armed;
	return armed;
}

static bool storm_join(struct race *race)
{
	if (!race_join(race, STORM_THREADS))
		return false;
	race_stop(race);
	return !pthread_join(race->actors[STORM_THREADS].thread, NULL);
}

TEST_F(race, arming_in_the_past_from_four_threads_gives_each_record_once)
{
	struct actor *reader = &self->race->actors[STORM_THREADS];
	__u64 worst;
	int i;

	race_lasts(self->race, SECONDS * TW_NSEC);
	ASSERT_TRUE(storm_start(self->race, arm_past));
	worst = worst_response(self->race);
	ASSERT_TRUE(storm_join(self->race));
	for (i = 0; i <= STORM_THREADS; i++)
		EXPECT_EQ(0, self->race->actors[i].error);
	TH_LOG("%llu timers, a sleep of 100 ms took %llu ms at most",
	       storm_armed(self->race), worst / TW_MSEC);
	EXPECT_LT(0, reader->records);
	EXPECT_EQ(storm_armed(self->race), reader->records);
	EXPECT_GT(RESPONSE_MAX, worst);
	EXPECT_EQ(0, tw_armed(self->race->fd));
}

TEST_F(race, arming_in_the_past_never_starts_an_hrtimer)
{
	__u64 i;

	for (i = 0; i < 10000; i++)
		ASSERT_NE(0, tw_arm(self->race->fd, 1, i));
	EXPECT_EQ(0, tw_counter(self->race->fd, "hrtimer_starts"));
}

TEST_F(race, tiny_delays_from_four_threads_give_each_record_once)
{
	struct actor *reader = &self->race->actors[STORM_THREADS];
	__u64 worst;
	int i;

	ASSERT_TRUE(storm_start(self->race, arm_tiny));
	worst = worst_response(self->race);
	ASSERT_TRUE(storm_join(self->race));
	for (i = 0; i <= STORM_THREADS; i++)
		EXPECT_EQ(0, self->race->actors[i].error);
	TH_LOG("%llu timers, a sleep of 100 ms took %llu ms at most",
	       storm_armed(self->race), worst / TW_MSEC);
	EXPECT_EQ(storm_armed(self->race), reader->records);
	EXPECT_GT(RESPONSE_MAX, worst);
}

/* P6: arm, then cancel at about the time of expiry; another thread reads */
static void *arm_and_cancel(void *arg)
{
	struct actor *a = arg;
	__u64 seed = a->index + 1, id[64], i;
	long ret;

	while (!race_over(a->race)) {
		for (i = 0; i < ARRAY_SIZE(id); i++) {
			id[i] = tw_arm_rel(a->race->fd,
					   tw_random_below(&seed, 500000), 0);
			if (!id[i])
				return actor_fail(a, -ENOSPC);
			a->armed++;
		}
		for (i = 0; i < ARRAY_SIZE(id); i++) {
			ret = tw_cancel(a->race->fd, id[i]);
			a->cancelled += ret == 0;
			a->withdrawn += ret == 1;
			a->stale += ret == -ENOENT;
			if (ret < 0 && ret != -ENOENT)
				return actor_fail(a, ret);
		}
	}
	return NULL;
}

static void *read_and_count(void *arg)
{
	static struct twheel_event ev[64];
	struct actor *a = arg;
	bool last;
	long ret;

	do {
		last = __atomic_load_n(&a->race->stop, __ATOMIC_ACQUIRE) &&
		       !tw_armed(a->race->fd);
		ret = tw_read(a->race->fd, ev, ARRAY_SIZE(ev));
		if (ret > 0)
			a->records += ret;
		else if (ret == -EAGAIN)
			tw_poll_for(a->race->fd, POLLIN, 1);
		else
			return actor_fail(a, ret);
	} while (!last || ret > 0);
	return NULL;
}

TEST_F(race, cancel_against_expiry_leaves_each_timer_one_fate)
{
	struct actor *a = self->race->actors;
	struct actor *reader = &a[STORM_THREADS];

	ASSERT_TRUE(race_start(self->race, 0, arm_and_cancel));
	ASSERT_TRUE(race_start(self->race, 1, arm_and_cancel));
	ASSERT_TRUE(race_start(self->race, STORM_THREADS, read_and_count));
	ASSERT_TRUE(race_join(self->race, 2));
	race_stop(self->race);
	ASSERT_EQ(0, pthread_join(reader->thread, NULL));
	EXPECT_EQ(0, a[0].error | a[1].error | reader->error);
	TH_LOG("%llu armed: %llu cancelled, %llu withdrawn, %llu read",
	       a[0].armed + a[1].armed, a[0].cancelled + a[1].cancelled,
	       a[0].withdrawn + a[1].withdrawn, reader->records);
	EXPECT_EQ(a[0].armed + a[1].armed,
		  a[0].cancelled + a[1].cancelled + a[0].withdrawn +
		  a[1].withdrawn + reader->records);
	EXPECT_EQ(a[0].stale + a[1].stale, reader->records);
	EXPECT_EQ(0, tw_armed(self->race->fd));
	EXPECT_EQ(0, tw_ready(self->race->fd));
}

/* Two threads walk the same ids. */
static void *cancel_all(void *arg)
{
	struct actor *a = arg;
	__u64 i;
	long ret;

	for (i = 0; i < RACE_TIMERS; i++) {
		ret = tw_cancel(a->race->fd, a->race->ids[i]);
		a->cancelled += ret == 0;
		if (ret != 0 && ret != -ENOENT)
			return actor_fail(a, ret);
	}
	return NULL;
}

TEST_F(race, cancel_against_cancel_succeeds_for_one)
{
	struct actor *a = self->race->actors;
	__u64 round, i;

	for (round = 0; round < 100; round++) {
		for (i = 0; i < RACE_TIMERS; i++)
			self->race->ids[i] = tw_arm_rel(self->race->fd,
							TW_HOUR, i);
		ASSERT_TRUE(race_start(self->race, 0, cancel_all));
		ASSERT_TRUE(race_start(self->race, 1, cancel_all));
		ASSERT_TRUE(race_join(self->race, 2));
	}
	EXPECT_EQ(0, a[0].error | a[1].error);
	EXPECT_EQ(100 * RACE_TIMERS, a[0].cancelled + a[1].cancelled);
	EXPECT_EQ(0, tw_armed(self->race->fd));
}

/*
 * P7: one thread moves timers that are about to fire. MODIFY returns 0 if it
 * came before the expiry, 1 if it took the record back, -ENOENT if the record
 * was read: then the timer is armed anew. So each arm ends as one record.
 */
static void *modify_about_due(void *arg)
{
	struct actor *a = arg;
	__u64 seed = a->index + 1, *id;
	struct twheel_op op;
	long ret;

	while (!race_over(a->race)) {
		id = &a->race->ids[tw_random_below(&seed, RACE_TIMERS)];
		op = tw_op(tw_random_below(&seed, 300000), 0);
		op.flags = TWHEEL_F_REL;
		op.id = *id;
		ret = *id ? tw_modify_op(a->race->fd, &op) : -ENOENT;
		if (ret == -ENOENT) {
			*id = tw_arm_rel(a->race->fd, 100000, 0);
			if (!*id)
				return actor_fail(a, -ENOSPC);
			a->armed++;
			continue;
		}
		a->cancelled += ret == 0;
		a->withdrawn += ret == 1;
		if (ret < 0)
			return actor_fail(a, ret);
	}
	return NULL;
}

TEST_F(race, modify_against_expiry_leaves_each_timer_one_fate)
{
	struct actor *a = self->race->actors;
	struct actor *reader = &a[STORM_THREADS];

	ASSERT_TRUE(race_start(self->race, 0, modify_about_due));
	ASSERT_TRUE(race_start(self->race, STORM_THREADS, read_and_count));
	ASSERT_TRUE(race_join(self->race, 1));
	race_stop(self->race);
	ASSERT_EQ(0, pthread_join(reader->thread, NULL));
	EXPECT_EQ(0, a[0].error | reader->error);
	TH_LOG("%llu armed: %llu moved, %llu withdrawn, %llu read", a[0].armed,
	       a[0].cancelled, a[0].withdrawn, reader->records);
	EXPECT_EQ(a[0].armed, reader->records);
	EXPECT_EQ(0, tw_armed(self->race->fd));
	EXPECT_EQ(0, tw_ready(self->race->fd));
}

/* P7: a periodic timer that two threads read and cancel */
TEST_F(race, cancel_of_a_periodic_timer_ends_its_records)
{
	__u64 end = self->race->end, rounds = 0, id;
	struct actor *reader = &self->race->actors[STORM_THREADS];
	struct twheel_op op;

	ASSERT_TRUE(race_start(self->race, STORM_THREADS, read_and_count));
	while (tw_clock(CLOCK_MONOTONIC) < end && rounds < 100000) {
		op = tw_op(0, 0);
		op.flags = TWHEEL_F_REL;
		op.interval_ns = 10000;
		ASSERT_EQ(0, tw_arm_op(self->race->fd, &op));
		id = op.id;
		if (rounds & 1)
			sched_yield();
		ASSERT_LE(0, tw_cancel(self->race->fd, id));
		ASSERT_EQ(-ENOENT, tw_cancel(self->race->fd, id));
		rounds++;
	}
	race_stop(self->race);
	ASSERT_EQ(0, pthread_join(reader->thread, NULL));
	EXPECT_EQ(0, reader->error);
	EXPECT_EQ(0, tw_armed(self->race->fd));
	EXPECT_EQ(0, tw_ready(self->race->fd));
}

/* The manual clock is advanced by one thread while another arms and cancels. */
static void *advance_on(void *arg)
{
	struct actor *a = arg;
	__u64 now = 0;
	long ret;

	while (!race_over(a->race)) {
		now += 3 * TW_TICK_MIN;
		ret = tw_advance(a->race->fd, now);
		if (ret)
			return actor_fail(a, ret);
	}
	return NULL;
}

TEST_F(race, advance_against_cancel_leaves_each_timer_one_fate)
{
	struct actor *a = self->race->actors;
	struct actor *reader = &a[STORM_THREADS];

	close(self->race->fd);
	self->race->fd = tw_manual(TW_TICK_MIN);
	ASSERT_LE(0, self->race->fd);
	ASSERT_TRUE(race_start(self->race, 0, advance_on));
	ASSERT_TRUE(race_start(self->race, 1, arm_and_cancel));
	ASSERT_TRUE(race_start(self->race, STORM_THREADS, read_and_count));
	ASSERT_TRUE(race_join(self->race, 2));
	race_stop(self->race);
	ASSERT_EQ(0, pthread_join(reader->thread, NULL));
	EXPECT_EQ(0, a[0].error | a[1].error | reader->error);
	EXPECT_EQ(a[1].armed,
		  a[1].cancelled + a[1].withdrawn + reader->records);
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

TEST_F(race, an_id_is_never_given_twice_when_a_slot_is_cancelled)
{
	static __u64 ids[100000];
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, 1);
	size_t i;

	ASSERT_LE(0, fd);
	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		ids[i] = tw_arm(fd, TW_HOUR, 0);
		ASSERT_NE(0, ids[i]);
		ASSERT_EQ(0, tw_cancel(fd, ids[i]));
	}
	EXPECT_TRUE(all_differ(ids, ARRAY_SIZE(ids)));
	close(fd);
}

TEST_F(race, an_id_is_never_given_twice_when_a_slot_fires)
{
	static __u64 ids[100000];
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, 2);
	struct twheel_event ev;
	size_t i;

	ASSERT_LE(0, fd);
	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		ids[i] = tw_arm(fd, 0, 0);
		ASSERT_NE(0, ids[i]);
		ASSERT_EQ(1, tw_read(fd, &ev, 1));
		ASSERT_EQ(ids[i], ev.id);
		ASSERT_EQ(-ENOENT, tw_cancel(fd, ids[i]));
	}
	EXPECT_TRUE(all_differ(ids, ARRAY_SIZE(ids)));
	close(fd);
}

TEST_HARNESS_MAIN
