// SPDX-License-Identifier: GPL-2.0
/*
 * Drain: everything that is armed is disarmed and handed back, once, as it was
 * armed; whatever faults or comes in between, nothing is lost.
 */
#include <sched.h>

#include "twheel_test.h"

#define TIMERS		1000
#define LARGE		50000
#define THREADS		3
#define PER_THREAD	20000
#define SERIAL_SHIFT	32

FIXTURE(drain)
{
	int fd;
	struct twheel_op ops[TIMERS + 1];
	__u64 ids[TIMERS];
	struct twheel_event ev[64];
};

FIXTURE_SETUP(drain)
{
	self->fd = tw_manual(TW_TICK_DEFAULT);
	ASSERT_LE(0, self->fd);
	tw_poison(&self->ops);
}

FIXTURE_TEARDOWN(drain)
{
	close(self->fd);
}

/* Timer @i of arm_some(): no two are alike */
static struct twheel_op some_timer(__u32 i)
{
	struct twheel_op op = tw_op(TW_HOUR + i * TW_MSEC, i);

	if (i % 5 == 1)
		op.expires_ns = TWHEEL_NEVER;
	op.slack_ns = i % 3 ? 0 : i;
	if (i % 4 == 2) {
		op.interval_ns = TW_NSEC + i;
		op.count = i / 4;
		op.misfire = i % 3;
	}
	return op;
}

static bool arm_some(int fd, __u64 *ids, __u32 nr)
{
	__u32 i;

	for (i = 0; i < nr; i++) {
		struct twheel_op op = some_timer(i);

		if (tw_arm_op(fd, &op))
			return false;
		ids[i] = op.id;
	}
	return true;
}

/* What was handed back is the timer as it was armed, and nothing besides. */
static bool as_armed(const struct twheel_op *op, const __u64 *ids)
{
	struct twheel_op was = some_timer(op->user_data);

	was.opcode = TWHEEL_OP_ARM;
	was.id = ids[op->user_data];
	was.res = 0;
	return !memcmp(&was, op, sizeof(was));
}

/* Drain with arrays of @room: how many, or -errno. Each must come once. */
static long drain_all(int fd, struct twheel_op *ops, long room, const __u64 *ids,
		      struct tw_bitmap *seen)
{
	long ret, i, total = 0;

	for (;;) {
		memset(ops, TW_POISON, (room + 1) * sizeof(*ops));
		ret = tw_drain(fd, ops, room);
		if (ret <= 0)
			return ret ?: total;
		if (ret > room ||
		    !tw_poisoned(&ops[ret], (room + 1 - ret) * sizeof(*ops)))
			return -EPROTO;
		for (i = 0; i < ret; i++)
			if (!tw_bitmap_add(seen, ops[i].user_data) ||
			    !as_armed(&ops[i], ids))
				return -EPROTO;
		total += ret;
	}
}

TEST_F(drain, of_an_empty_wheel_is_nothing)
{
	EXPECT_EQ(0, tw_drain(self->fd, self->ops, TIMERS));
	EXPECT_TRUE(tw_poisoned(self->ops, sizeof(self->ops)));
}

TEST_F(drain, into_no_room_disarms_nothing)
{
	ASSERT_TRUE(arm_some(self->fd, self->ids, 10));
	EXPECT_EQ(0, tw_drain(self->fd, self->ops, 0));
	EXPECT_EQ(0, tw_drain(self->fd, NULL, 0));
	EXPECT_EQ(10, tw_armed(self->fd));
}

TEST_F(drain, hands_back_each_timer_once_as_it_was_armed)
{
	static const __u32 rooms[] = { 1, 2, 31, 32, 33, 64, 65, 128, TIMERS };
	struct tw_bitmap seen;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rooms); i++) {
		ASSERT_TRUE(tw_bitmap_init(&seen, TIMERS));
		ASSERT_TRUE(arm_some(self->fd, self->ids, TIMERS));
		EXPECT_EQ(TIMERS, drain_all(self->fd, self->ops, rooms[i],
					    self->ids, &seen));
		EXPECT_EQ(0, tw_armed(self->fd));
		EXPECT_EQ(TWHEEL_NEVER, tw_next(self->fd));
		free(seen.bits);
	}
}

TEST_F(drain, fills_the_room_if_there_is_enough_to_hand_back)
{
	ASSERT_TRUE(arm_some(self->fd, self->ids, TIMERS));
	EXPECT_EQ(700, tw_drain(self->fd, self->ops, 700));
	EXPECT_EQ(300, tw_armed(self->fd));
	EXPECT_EQ(300, tw_drain(self->fd, self->ops, 700));
	EXPECT_EQ(0, tw_drain(self->fd, self->ops, 700));
}

TEST_F(drain, finds_the_few_among_many_that_are_gone)
{
	struct tw_bitmap seen;
	__u32 i;

	ASSERT_TRUE(tw_bitmap_init(&seen, TIMERS));
	ASSERT_TRUE(arm_some(self->fd, self->ids, TIMERS));
	for (i = 0; i < TIMERS; i++)
		if (i % 333)
			ASSERT_EQ(0, tw_cancel(self->fd, self->ids[i]));
	EXPECT_EQ(4, drain_all(self->fd, self->ops, TIMERS, self->ids, &seen));
	EXPECT_EQ(0, tw_armed(self->fd));
	free(seen.bits);
}

TEST_F(drain, leaves_ids_stale)
{
	__u32 i;

	ASSERT_TRUE(arm_some(self->fd, self->ids, 100));
	ASSERT_EQ(100, tw_drain(self->fd, self->ops, TIMERS));
	for (i = 0; i < 100; i++) {
		EXPECT_EQ(-ENOENT, tw_state(self->fd, self->ids[i]));
		EXPECT_EQ(-ENOENT, tw_cancel(self->fd, self->ids[i]));
		EXPECT_EQ(-ENOENT, tw_modify(self->fd, self->ids[i], TW_HOUR));
	}
	EXPECT_EQ(0, tw_armed(self->fd));
}

TEST_F(drain, what_was_drained_never_fires)
{
	ASSERT_TRUE(arm_some(self->fd, self->ids, 100));
	ASSERT_EQ(100, tw_drain(self->fd, self->ops, TIMERS));
	ASSERT_EQ(0, tw_advance(self->fd, TW_S64_MAX));
	EXPECT_EQ(-EAGAIN, tw_read(self->fd, self->ev, 1));
}

TEST_F(drain, the_wheel_goes_on_afterwards)
{
	__u64 id;

	ASSERT_TRUE(arm_some(self->fd, self->ids, 100));
	ASSERT_EQ(0, tw_advance(self->fd, TW_NSEC));
	ASSERT_EQ(100, tw_drain(self->fd, self->ops, TIMERS));
	EXPECT_EQ(TW_NSEC, tw_now(self->fd));
	id = tw_arm(self->fd, TW_HOUR, 5);
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR + TW_NSEC));
	ASSERT_EQ(1, tw_read(self->fd, self->ev, 2));
	EXPECT_EQ(id, self->ev[0].id);
}

TEST_F(drain, makes_room_for_the_whole_capacity)
{
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, 100);
	__u64 more;

	ASSERT_LE(0, fd);
	for (int round = 0; round < 3; round++) {
		ASSERT_TRUE(arm_some(fd, self->ids, 100));
		ASSERT_EQ(-ENOSPC, tw_arm_id(fd, TW_HOUR, 0, &more));
		ASSERT_EQ(100, tw_drain(fd, self->ops, TIMERS));
	}
	close(fd);
}

TEST_F(drain, another_wheel_takes_it_as_it_is)
{
	int fd = tw_manual(TW_TICK_DEFAULT);
	struct twheel_op seen;
	__u32 i;

	ASSERT_LE(0, fd);
	ASSERT_TRUE(arm_some(self->fd, self->ids, TIMERS));
	ASSERT_EQ(TIMERS, tw_drain(self->fd, self->ops, TIMERS));
	ASSERT_EQ(TIMERS, tw_submit(fd, self->ops, TIMERS));
	for (i = 0; i < TIMERS; i++) {
		struct twheel_op was = some_timer(self->ops[i].user_data);

		ASSERT_EQ(0, self->ops[i].res);
		ASSERT_EQ(0, tw_query(fd, self->ops[i].id, &seen));
		ASSERT_EQ(was.expires_ns, seen.expires_ns);
		ASSERT_EQ(was.interval_ns, seen.interval_ns);
		ASSERT_EQ(was.slack_ns, seen.slack_ns);
		ASSERT_EQ(was.count, seen.count);
		ASSERT_EQ(was.misfire, seen.misfire);
	}
	EXPECT_EQ(TIMERS, tw_armed(fd));
	close(fd);
}

TEST_F(drain, hands_back_what_is_left_of_a_periodic_timer)
{
	struct twheel_op was = tw_op(TW_HOUR, 0);

	was.interval_ns = TW_HOUR;
	was.count = 5;
	ASSERT_EQ(0, tw_arm_op(self->fd, &was));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR + TW_NSEC));
	ASSERT_EQ(1, tw_discard(self->fd));
	ASSERT_EQ(1, tw_drain(self->fd, self->ops, 1));
	EXPECT_EQ(3 * TW_HOUR, self->ops[0].expires_ns);
	EXPECT_EQ(3, self->ops[0].count);
}

TEST_F(drain, a_relative_timer_comes_back_absolute)
{
	ASSERT_EQ(0, tw_advance(self->fd, TW_NSEC));
	ASSERT_NE(0, tw_arm_rel(self->fd, TW_HOUR, 0));
	ASSERT_EQ(1, tw_drain(self->fd, self->ops, 1));
	EXPECT_EQ(TW_HOUR + TW_NSEC, self->ops[0].expires_ns);
	EXPECT_EQ(0, self->ops[0].flags);
}

TEST_F(drain, records_that_are_ready_stay_readable)
{
	__u64 due = tw_arm(self->fd, TW_MSEC, 1), periodic;

	periodic = tw_arm_every(self->fd, TW_MSEC, TW_HOUR, 0);
	ASSERT_NE(0, tw_arm(self->fd, TW_HOUR, 2));
	ASSERT_EQ(0, tw_advance(self->fd, TW_NSEC));
	ASSERT_EQ(1, tw_drain(self->fd, self->ops, TIMERS));
	EXPECT_EQ(2, self->ops[0].user_data);
	EXPECT_EQ(0, tw_drain(self->fd, self->ops, TIMERS));
	EXPECT_EQ(POLLIN | POLLRDNORM, tw_poll(self->fd));
	ASSERT_EQ(2, tw_read(self->fd, self->ev, 64));
	EXPECT_EQ(due, self->ev[0].id);
	EXPECT_EQ(periodic, self->ev[1].id);
	/* The periodic one is armed again by the read. */
	ASSERT_EQ(1, tw_drain(self->fd, self->ops, TIMERS));
	EXPECT_EQ(periodic, self->ops[0].id);
}

/* Faults: every timer is either in the array, counted, or armed. */
TEST_F(drain, a_fault_loses_nothing)
{
	static const __u32 haves[] = { 0, 1, 5, 31, 32, 33, 63, 64, 65, 100, 190 };
	static const __u32 mores[] = { 0, 1, 8, 32, 63 };
	char *cliff = tw_cliff_of(3);
	struct tw_bitmap seen;
	size_t i, j, k;

	ASSERT_NE(NULL, cliff);
	for (i = 0; i < ARRAY_SIZE(haves); i++) {
		for (j = 0; j < ARRAY_SIZE(mores); j++) {
			__u32 have = haves[i];
			char *at = cliff - have * sizeof(struct twheel_op) - mores[j];

			ASSERT_TRUE(tw_bitmap_init(&seen, 300));
			ASSERT_TRUE(arm_some(self->fd, self->ids, 300));
			ASSERT_EQ(have ? (long)have : -EFAULT,
				  tw_drain(self->fd, at, 300)) {
				TH_LOG("%u entries and %u bytes", have, mores[j]);
			}
			ASSERT_EQ(300 - have, tw_armed(self->fd));
			memcpy(self->ops, at, have * sizeof(*self->ops));
			for (k = 0; k < have; k++) {
				ASSERT_TRUE(as_armed(&self->ops[k], self->ids));
				ASSERT_TRUE(tw_bitmap_add(&seen,
							  self->ops[k].user_data));
			}
			ASSERT_EQ(300 - have, drain_all(self->fd, self->ops, 100,
							self->ids, &seen));
			free(seen.bits);
		}
	}
}

TEST_F(drain, a_fault_at_once_leaves_all_timers_alone)
{
	long page = sysconf(_SC_PAGESIZE);
	char *cliff = tw_cliff();
	__u32 i;

	ASSERT_NE(NULL, cliff);
	ASSERT_TRUE(arm_some(self->fd, self->ids, 100));
	EXPECT_EQ(-EFAULT, tw_drain(self->fd, NULL, 1));
	EXPECT_EQ(-EFAULT, tw_drain(self->fd, cliff, 0x7fffffff));
	EXPECT_EQ(-EFAULT, tw_drain(self->fd, cliff - 63, 1));
	EXPECT_EQ(-EFAULT, tw_drain(self->fd, (void *)-4096L, 1));
	ASSERT_EQ(0, mprotect(cliff - page, page, PROT_READ));
	EXPECT_EQ(-EFAULT, tw_drain(self->fd, cliff - page, 10));
	EXPECT_EQ(100, tw_armed(self->fd));
	for (i = 0; i < 100; i++)
		EXPECT_EQ(TWHEEL_F_ARMED, tw_state(self->fd, self->ids[i]));
}

TEST_F(drain, memory_that_was_never_touched_will_do)
{
	long nr = tw_many(LARGE), i;
	size_t size = nr * sizeof(struct twheel_op);
	struct twheel_op *ops = mmap(NULL, size, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, nr);
	struct tw_bitmap seen;

	ASSERT_NE(MAP_FAILED, ops);
	ASSERT_LE(0, fd);
	ASSERT_TRUE(tw_bitmap_init(&seen, nr));
	for (i = 0; i < nr; i++)
		ASSERT_NE(0, tw_arm(fd, TW_HOUR + i * TW_MSEC, i));
	ASSERT_EQ(nr, tw_drain(fd, ops, nr));
	for (i = 0; i < nr; i++)
		ASSERT_TRUE(tw_bitmap_add(&seen, ops[i].user_data));
	munmap(ops, size);
	free(seen.bits);
	close(fd);
}

TEST_F(drain, an_array_need_not_be_aligned)
{
	char buf[10 * sizeof(struct twheel_op) + 1];
	__u32 i;

	ASSERT_TRUE(arm_some(self->fd, self->ids, 10));
	ASSERT_EQ(10, tw_drain(self->fd, buf + 1, 10));
	memcpy(self->ops, buf + 1, 10 * sizeof(*self->ops));
	for (i = 0; i < 10; i++)
		EXPECT_TRUE(as_armed(&self->ops[i], self->ids));
}

TEST_F(drain, no_wake_up_is_left_programmed)
{
	int fd = tw_wheel(CLOCK_MONOTONIC, 0, 0);
	__u64 now;

	ASSERT_LE(0, fd);
	now = tw_now(fd);
	for (int i = 0; i < 100; i++)
		ASSERT_NE(0, tw_arm(fd, now + TW_HOUR + i * TW_NSEC, i));
	ASSERT_NE(TWHEEL_NEVER, tw_counter(fd, "next_wake_ns"));
	ASSERT_EQ(60, tw_drain(fd, self->ops, 60));
	EXPECT_NE(TWHEEL_NEVER, tw_counter(fd, "next_wake_ns"));
	ASSERT_EQ(40, tw_drain(fd, self->ops, 60));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(fd, "next_wake_ns"));
	/* And the next arm is woken for. */
	ASSERT_NE(0, tw_arm_rel(fd, TW_MSEC, 0));
	EXPECT_TRUE(tw_wait_readable(fd));
	close(fd);
}

/*
 * While threads arm, cancel and modify, while timers fire and are read: what was
 * armed was drained, read or cancelled, and each but once.
 */
struct scene {
	int fd;
	bool stop;		/* atomic */
	__u32 per_thread;
	__u8 fates[THREADS][PER_THREAD];	/* atomic */
	long error;		/* atomic */
};

struct player {
	pthread_t thread;
	struct scene *scene;
	__u64 index;
	long nr;
};

static void fail(struct scene *scene, long error)
{
	__atomic_store_n(&scene->error, error ?: -EPROTO, __ATOMIC_RELAXED);
}

static void has_fate(struct scene *scene, __u64 user_data)
{
	__u64 thread = user_data >> SERIAL_SHIFT, serial = (__u32)user_data;

	if (thread >= THREADS || serial >= scene->per_thread ||
	    __atomic_fetch_add(&scene->fates[thread][serial], 1, __ATOMIC_RELAXED))
		fail(scene, -EPROTO);
}

static void *arm_and_cancel(void *arg)
{
	struct player *p = arg;
	__u64 seed = p->index + 1, id[16] = { 0 }, serial[16] = { 0 }, i;
	struct twheel_op op;
	long ret;

	for (i = 0; i < p->scene->per_thread; i++) {
		__u64 slot = tw_random_below(&seed, 16);

		op = tw_op(tw_random_below(&seed, 3) ? TW_HOUR :
			   tw_random_below(&seed, 2 * TW_MSEC),
			   p->index << SERIAL_SHIFT | i);
		op.flags = TWHEEL_F_REL;
		while ((ret = tw_arm_op(p->scene->fd, &op)) == -ENOSPC)
			sched_yield();
		if (ret)
			fail(p->scene, ret);
		id[slot] = op.id;
		serial[slot] = i;
		slot = tw_random_below(&seed, 16);
		if (!id[slot])
			continue;
		if (i & 1) {
			ret = tw_modify(p->scene->fd, id[slot], TWHEEL_NEVER);
		} else {
			ret = tw_cancel(p->scene->fd, id[slot]);
			if (ret >= 0)
				has_fate(p->scene, p->index << SERIAL_SHIFT |
					 serial[slot]);
			id[slot] = 0;
		}
		if (ret < 0 && ret != -ENOENT)
			fail(p->scene, ret);
	}
	return NULL;
}

static long drain_some(struct scene *scene)
{
	struct twheel_op ops[100];
	long ret, i;

	ret = tw_drain(scene->fd, ops, 100);
	for (i = 0; i < ret; i++)
		has_fate(scene, ops[i].user_data);
	if (ret < 0)
		fail(scene, ret);
	return ret;
}

static void *drain_on(void *arg)
{
	struct player *p = arg;
	long ret;

	while (!__atomic_load_n(&p->scene->stop, __ATOMIC_ACQUIRE)) {
		ret = drain_some(p->scene);
		p->nr += ret;
		if (ret <= 0)
			usleep(100);
	}
	return NULL;
}

static void *read_on(void *arg)
{
	struct player *p = arg;
	struct twheel_event ev[10];
	long ret, i;

	for (;;) {
		bool last = __atomic_load_n(&p->scene->stop, __ATOMIC_ACQUIRE);

		ret = tw_read(p->scene->fd, ev, 10);
		for (i = 0; i < ret; i++)
			has_fate(p->scene, ev[i].user_data);
		if (ret == -EAGAIN && last)
			return NULL;
		if (ret < 0 && ret != -EAGAIN)
			fail(p->scene, ret);
		if (ret <= 0)
			usleep(100);
	}
}

TEST(a_timer_is_drained_or_read_or_cancelled_and_but_once)
{
	struct scene *scene = calloc(1, sizeof(*scene));
	struct player p[THREADS + 3] = { { 0 } };
	__u64 missing = 0;
	__u32 j;
	int i;

	ASSERT_NE(NULL, scene);
	scene->per_thread = tw_many(PER_THREAD);
	scene->fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, 5000);
	ASSERT_LE(0, scene->fd);
	for (i = 0; i < THREADS + 3; i++) {
		p[i].scene = scene;
		p[i].index = i;
		ASSERT_EQ(0, pthread_create(&p[i].thread, NULL,
					    i < THREADS ? arm_and_cancel :
					    i < THREADS + 2 ? drain_on : read_on, &p[i]));
	}
	for (i = 0; i < THREADS; i++)
		ASSERT_EQ(0, pthread_join(p[i].thread, NULL));
	__atomic_store_n(&scene->stop, true, __ATOMIC_RELEASE);
	for (; i < THREADS + 3; i++)
		ASSERT_EQ(0, pthread_join(p[i].thread, NULL));
	while (drain_some(scene) > 0)
		;
	/* Whatever fired between the last read and the last drain */
	read_on(&p[THREADS + 2]);
	EXPECT_EQ(0, scene->error);
	for (i = 0; i < THREADS; i++)
		for (j = 0; j < scene->per_thread; j++)
			missing += scene->fates[i][j] != 1;
	EXPECT_EQ(0, missing);
	EXPECT_EQ(0, tw_armed(scene->fd));
	EXPECT_EQ(0, tw_ready(scene->fd));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(scene->fd, "next_wake_ns"));
	EXPECT_EQ(THREADS * scene->per_thread, tw_counter(scene->fd, "arms"));
	close(scene->fd);
	free(scene);
}

TEST_HARNESS_MAIN
