// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the engine, most of them on the manual clock.
 */
#define NOTRACE		/* twheel.ko may be there, with events of the same names */

#include <linux/delay.h>

#include "twheel_kunit.h"

/* Allocations of the code under test can be made to fail. */
#undef kvzalloc
#define kvzalloc(size, gfp) \
	(tw_kunit_may_alloc() ? kvmalloc(size, (gfp) | __GFP_ZERO) : NULL)

#include "../module/engine.c"
#include "../module/clockset.c"
#include "../module/share.c"

#define TICK		BIT_ULL(TW_TICK_SHIFT_MIN)
#define HOUR		(3600ULL * NSEC_PER_SEC)
#define CAPACITY	4096
#define SINK_ROOM	512
#define HANG_LIMIT	(30 * HZ)

/**
 * struct sink - takes records out of the engine
 * @room:   how many more it takes; it faults at the next
 * @nr:     how many it has
 * @events: they
 * @ops:    or they
 */
struct sink {
	u32 room;
	u32 nr;
	union {
		struct twheel_event events[SINK_ROOM];
		struct twheel_op ops[SINK_ROOM];
	};
};

/**
 * struct bench - what a test works on
 * @e:     an engine
 * @sink:  what was last taken out of it
 * @stats: its counters when last asked for
 */
struct bench {
	struct tw_engine *e;
	struct sink sink;
	struct twheel_stats stats;
};

static int engine_test_init(struct kunit *test)
{
	test->priv = kunit_kzalloc(test, sizeof(struct bench), GFP_KERNEL);
	return test->priv ? 0 : -ENOMEM;
}

static void engine_test_exit(struct kunit *test)
{
	struct bench *bench = test->priv;

	tw_kunit_allocs = -1;
	if (bench && bench->e)
		tw_engine_destroy(bench->e);
	tw_user_memory_max = 0;
}

/* A new engine in place of the one before. */
static struct tw_engine *engine_new(struct kunit *test)
{
	struct bench *bench = test->priv;

	if (bench->e)
		tw_engine_destroy(bench->e);
	bench->e = tw_engine_create(CAPACITY);
	if (IS_ERR(bench->e))
		bench->e = NULL;
	KUNIT_ASSERT_NOT_NULL(test, bench->e);
	return bench->e;
}

static struct tw_engine *engine_on(struct kunit *test, u32 clockid, u64 tick_ns)
{
	struct twheel_setup setup = {
		.clockid = clockid,
		.capacity = CAPACITY,
		.tick_ns = tick_ns,
	};
	struct tw_engine *e = engine_new(test);

	KUNIT_ASSERT_EQ(test, tw_engine_setup(e, &setup), 0);
	return e;
}

static struct tw_engine *engine_manual(struct kunit *test)
{
	return engine_on(test, TWHEEL_CLOCK_MANUAL, TICK);
}

static int submit(struct tw_engine *e, struct twheel_op *op)
{
	op->res = 0;
	tw_engine_submit(e, op, 1);
	return op->res;
}

static u64 arm_op(struct kunit *test, struct twheel_op op)
{
	struct bench *bench = test->priv;

	op.opcode = TWHEEL_OP_ARM;
	KUNIT_ASSERT_EQ(test, submit(bench->e, &op), 0);
	return op.id;
}

static u64 arm(struct kunit *test, u64 expires_ns)
{
	return arm_op(test, (struct twheel_op){ .expires_ns = expires_ns });
}

static int cancel(struct tw_engine *e, u64 id)
{
	struct twheel_op op = { .opcode = TWHEEL_OP_CANCEL, .id = id };

	return submit(e, &op);
}

static struct twheel_op query(struct kunit *test, u64 id)
{
	struct twheel_op op = { .opcode = TWHEEL_OP_QUERY, .id = id };
	struct bench *bench = test->priv;

	KUNIT_ASSERT_EQ(test, submit(bench->e, &op), 0);
	return op;
}

static u32 nr_ready(struct tw_engine *e)
{
	struct twheel_info info = {};

	tw_engine_info(e, &info);
	return info.ready;
}

static u32 nr_armed(struct tw_engine *e)
{
	struct twheel_info info = {};

	tw_engine_info(e, &info);
	return info.armed;
}

static const struct twheel_stats *get_stats(struct kunit *test)
{
	struct bench *bench = test->priv;
	u64 wake_ns;

	tw_engine_stats(bench->e, &bench->stats, &wake_ns);
	return &bench->stats;
}

static u64 next(struct kunit *test)
{
	struct bench *bench = test->priv;
	u64 expires_ns = 1;

	KUNIT_ASSERT_EQ(test, tw_engine_next(bench->e, &expires_ns), 0);
	return expires_ns;
}

/* Wheel and queue hold, and every timer that lives is in one of them. */
static const char *engine_check(const struct tw_engine *e)
{
	const struct tw_timer *t;
	const char *wrong;
	u32 i, ready = 0;

	lockdep_assert_held(&e->lock);

	wrong = wheel_check(&e->wheel) ?: tw_queue_check(&e->queue, &e->timers);
	if (wrong)
		return wrong;
	for (i = 0; i < e->wheel.nr_nodes; i++) {
		t = tw_timer(&e->timers, i);
		if (!(t->node.owner & TW_READY))
			continue;
		if (t->node.armed)
			return "a timer is both armed and ready";
		ready++;
	}
	if (ready != e->queue.nr)
		return "a timer is ready that is not in the queue";
	if (e->timers.live != ready + e->wheel.nr_armed)
		return "a timer lives in neither wheel nor queue";
	return NULL;
}

/* The lock is for wheels whose hrtimer may fire at any time. */
static void verify(struct kunit *test)
{
	struct tw_engine *e = ((struct bench *)test->priv)->e;
	const char *wrong;

	tw_lock(e);
	wrong = engine_check(e);
	tw_unlock(e);
	KUNIT_ASSERT_TRUE_MSG(test, !wrong, "%s", wrong);
}

static void advance(struct kunit *test, u64 to_ns)
{
	struct bench *bench = test->priv;

	KUNIT_ASSERT_EQ(test, tw_engine_advance(bench->e, to_ns), 0);
	verify(test);
}

static u32 sink_copy(void *to, const void *records, size_t size, u32 nr)
{
	struct sink *sink = to;

	nr = min(nr, sink->room);
	memcpy((char *)sink->events + sink->nr * size, records, nr * size);
	sink->room -= nr;
	sink->nr += nr;
	return nr;
}

static struct sink *sink_new(struct kunit *test, u32 room)
{
	struct bench *bench = test->priv;

	memset(&bench->sink, 0x5a, sizeof(bench->sink));
	bench->sink.room = room;
	bench->sink.nr = 0;
	return &bench->sink;
}

typedef u32 (*hand_over_t)(struct tw_engine *e, u32 max, tw_copy_t copy, void *to,
			   enum tw_rest *rest);

/* Takes records until there are no more, or no more room. */
static struct sink *take(struct kunit *test, hand_over_t hand_over, u32 room)
{
	struct bench *bench = test->priv;
	struct sink *sink = sink_new(test, room);
	enum tw_rest rest;

	do {
		hand_over(bench->e, TW_READ_BATCH, sink_copy, sink, &rest);
		verify(test);
	} while (rest == TW_REST_MORE);
	return sink;
}

static struct sink *read_all(struct kunit *test)
{
	return take(test, tw_engine_read, SINK_ROOM);
}

/* Precision */

static const u64 ticks[] = {
	BIT_ULL(TW_TICK_SHIFT_MIN), BIT_ULL(TW_TICK_SHIFT_DEFAULT),
	BIT_ULL(TW_TICK_SHIFT_MAX),
};

static void tick_desc(const u64 *tick, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "tick of %llu ns", *tick);
}

KUNIT_ARRAY_PARAM(tick, ticks, tick_desc);

/* Calls @look for deadlines around many ticks, on a clock that stands between two. */
static void sweep(struct kunit *test, u64 slack_ticks,
		  void (*look)(struct kunit *test, u64 tick_ns, u64 expires_ns))
{
	static const u8 factors[] = { 1, 2, 63, 64, 65 };
	u64 tick_ns = *(const u64 *)test->param_value, distance;
	u32 level, i;
	int off;

	for (level = 0; level < 4; level++) {
		for (i = 0; i < ARRAY_SIZE(factors); i++) {
			distance = factors[i] * (tick_ns << level * WHEEL_LEVEL_BITS);
			for (off = -1; off <= 1; off++) {
				engine_on(test, TWHEEL_CLOCK_MANUAL, tick_ns);
				advance(test, tick_ns / 2);
				arm_op(test, (struct twheel_op){
					.expires_ns = distance + off,
					.slack_ns = slack_ticks * tick_ns,
				});
				look(test, tick_ns, distance + off);
			}
		}
	}
}

static void look_early(struct kunit *test, u64 tick_ns, u64 expires_ns)
{
	struct bench *bench = test->priv;

	advance(test, expires_ns - 1);
	KUNIT_ASSERT_EQ(test, nr_ready(bench->e), 0);
}

static void a_timer_never_expires_early(struct kunit *test)
{
	sweep(test, 0, look_early);
}

static void look_late(struct kunit *test, u64 tick_ns, u64 expires_ns)
{
	struct bench *bench = test->priv;

	advance(test, expires_ns + tick_ns - 1);
	KUNIT_ASSERT_EQ(test, nr_ready(bench->e), 1);
}

static void a_timer_expires_less_than_a_tick_late(struct kunit *test)
{
	sweep(test, 0, look_late);
}

static void look_slack_early(struct kunit *test, u64 tick_ns, u64 expires_ns)
{
	KUNIT_ASSERT_GE(test, next(test), expires_ns);
	look_early(test, tick_ns, expires_ns);
}

static void with_slack_a_timer_never_expires_early(struct kunit *test)
{
	sweep(test, 100, look_slack_early);
}

static void look_slack_late(struct kunit *test, u64 tick_ns, u64 expires_ns)
{
	look_late(test, tick_ns, expires_ns + 100 * tick_ns);
}

static void with_slack_a_timer_is_late_by_no_more_than_that_and_a_tick(struct kunit *test)
{
	sweep(test, 100, look_slack_late);
}

static void look_next(struct kunit *test, u64 tick_ns, u64 expires_ns)
{
	struct bench *bench = test->priv;
	u64 next_ns = next(test);

	advance(test, next_ns - 1);
	KUNIT_ASSERT_EQ(test, nr_ready(bench->e), 0);
	advance(test, next_ns);
	KUNIT_ASSERT_EQ(test, nr_ready(bench->e), 1);
}

static void next_tells_when_a_timer_fires(struct kunit *test)
{
	sweep(test, 0, look_next);
	sweep(test, 100, look_next);
}

static void look_record(struct kunit *test, u64 tick_ns, u64 expires_ns)
{
	struct sink *sink;

	advance(test, expires_ns + 3 * tick_ns);
	sink = read_all(test);
	KUNIT_ASSERT_EQ(test, sink->nr, 1);
	KUNIT_ASSERT_EQ(test, sink->events[0].expires_ns, expires_ns);
	KUNIT_ASSERT_EQ(test, sink->events[0].fired_ns, expires_ns + 3 * tick_ns);
}

static void a_record_tells_the_deadline_and_when_it_was_noticed(struct kunit *test)
{
	sweep(test, 0, look_record);
}

/* In ticks: a deadline, its slack, and the roundest tick of those that it may choose. */
static const struct slack {
	u32 first;
	u32 slack;
	u32 chosen;
} slacks[] = {
	{ 5, 0, 5 }, { 5, 1, 6 }, { 1, 64, 64 }, { 64, 36, 64 }, { 65, 62, 96 },
	{ 65, 63, 128 }, { 127, 1, 128 }, { 128, 128, 256 },
};

static void slack_desc(const struct slack *slack, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "tick %u and %u more", slack->first,
		 slack->slack);
}

KUNIT_ARRAY_PARAM(slack, slacks, slack_desc);

static void slack_chooses_the_roundest_tick(struct kunit *test)
{
	const struct slack *slack = test->param_value;

	engine_manual(test);
	arm_op(test, (struct twheel_op){
		.expires_ns = slack->first * TICK,
		.slack_ns = slack->slack * TICK,
	});
	KUNIT_EXPECT_EQ(test, next(test), slack->chosen * TICK);
}

static const u64 passed[] = { 0, 1, 5 * TICK, 10 * TICK + 6, 10 * TICK + 7 };

static void passed_desc(const u64 *expires_ns, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "%llu ns, now %llu", *expires_ns,
		 10 * TICK + 7);
}

KUNIT_ARRAY_PARAM(passed, passed, passed_desc);

static void a_deadline_that_has_passed_is_ready_at_once(struct kunit *test)
{
	u64 expires_ns = *(const u64 *)test->param_value;
	struct sink *sink;

	engine_manual(test);
	advance(test, 10 * TICK + 7);
	arm(test, expires_ns);
	sink = read_all(test);
	KUNIT_EXPECT_EQ(test, sink->nr, 1);
	KUNIT_EXPECT_EQ(test, sink->events[0].expires_ns, expires_ns);
	KUNIT_EXPECT_EQ(test, sink->events[0].fired_ns, 10 * TICK + 7);
}

static void records_come_in_order_of_expiry(struct kunit *test)
{
	struct sink *sink;
	u32 i;

	engine_manual(test);
	for (i = 0; i < 300; i++)
		arm(test, (1 + i * 37 % 300 * 100) * TICK);
	advance(test, HOUR);
	sink = read_all(test);
	KUNIT_ASSERT_EQ(test, sink->nr, 300);
	for (i = 0; i < 300; i++)
		KUNIT_ASSERT_EQ(test, sink->events[i].expires_ns, (1 + i * 100) * TICK);
}

/* What the ends of time are taken for, at 1000 ns. */
static const struct limit {
	u64 expires_ns;
	u16 flags;
	u64 taken_ns;
	u64 next_ns;
	const char *name;
} limits[] = {
	{ TWHEEL_NEVER, 0, TWHEEL_NEVER, TWHEEL_NEVER, "never" },
	{ TWHEEL_NEVER, TWHEEL_F_REL, TWHEEL_NEVER, TWHEEL_NEVER, "never from now" },
	{ S64_MAX, 0, S64_MAX, TWHEEL_NEVER, "the last ns, after the last tick" },
	{ S64_MAX, TWHEEL_F_REL, S64_MAX, TWHEEL_NEVER, "a sum beyond the last ns" },
	{ S64_MAX - 1000, TWHEEL_F_REL, S64_MAX, TWHEEL_NEVER, "a sum of the last ns" },
	{ S64_MAX - TICK + 1, 0, S64_MAX - TICK + 1, S64_MAX - TICK + 1, "the last tick" },
	{ 1, TWHEEL_F_REL, 1001, TICK, "the next ns" },
};

static void limit_desc(const struct limit *limit, char *desc)
{
	strscpy(desc, limit->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(limit, limits, limit_desc);

static void times_are_limited_and_do_not_overflow(struct kunit *test)
{
	const struct limit *limit = test->param_value;
	u64 id;

	engine_manual(test);
	advance(test, 1000);
	id = arm_op(test, (struct twheel_op){
		.expires_ns = limit->expires_ns,
		.flags = limit->flags,
	});
	KUNIT_EXPECT_EQ(test, query(test, id).expires_ns, limit->taken_ns);
	KUNIT_EXPECT_EQ(test, query(test, id).flags, TWHEEL_F_ARMED);
	KUNIT_EXPECT_EQ(test, next(test), limit->next_ns);
}

static void a_parked_timer_outlives_the_end_of_the_clock(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);

	arm(test, TWHEEL_NEVER);
	arm(test, S64_MAX - TICK + 1);
	advance(test, S64_MAX);
	KUNIT_EXPECT_EQ(test, nr_ready(e), 1);
	KUNIT_EXPECT_EQ(test, nr_armed(e), 1);
}

/* Periodic timers */

/* A timer due at 100 ns and every 1000 ns, read so late; what comes of it. */
static const struct misfire {
	u8 policy;
	u32 count;
	u64 read_ns;
	u32 nr;
	u32 overrun;
	u64 next_ns;	/* 0: it has ended */
	const char *name;
} misfires[] = {
	{ TWHEEL_MISFIRE_COUNT, 0, 5 * TICK, 1, 20, 21100, "counted" },
	{ TWHEEL_MISFIRE_COUNT, 0, 5 * TICK + 619, 1, 20, 21100, "counted, 1 ns before" },
	{ TWHEEL_MISFIRE_COUNT, 0, 5 * TICK + 620, 1, 21, 22100, "counted, on the ns" },
	{ TWHEEL_MISFIRE_COUNT, 30, 5 * TICK, 1, 20, 21100, "counted, some are left" },
	{ TWHEEL_MISFIRE_COUNT, 22, 5 * TICK, 1, 20, 21100, "counted, one is left" },
	{ TWHEEL_MISFIRE_COUNT, 21, 5 * TICK, 1, 20, 0, "counted, none is left" },
	{ TWHEEL_MISFIRE_COUNT, 5, 5 * TICK, 1, 4, 0, "counted, fewer than passed" },
	{ TWHEEL_MISFIRE_COUNT, 1, 5 * TICK, 1, 0, 0, "counted, one in all" },
	{ TWHEEL_MISFIRE_SKIP, 0, 5 * TICK, 1, 0, 21100, "skipped" },
	{ TWHEEL_MISFIRE_SKIP, 22, 5 * TICK, 1, 0, 21100, "skipped, one is left" },
	{ TWHEEL_MISFIRE_SKIP, 21, 5 * TICK, 1, 0, 0, "skipped, none is left" },
	{ TWHEEL_MISFIRE_BURST, 0, 5 * TICK, 21, 0, 21100, "each told" },
	{ TWHEEL_MISFIRE_BURST, 22, 5 * TICK, 21, 0, 21100, "each told, one is left" },
	{ TWHEEL_MISFIRE_BURST, 21, 5 * TICK, 21, 0, 0, "each told, none is left" },
	{ TWHEEL_MISFIRE_BURST, 5, 5 * TICK, 5, 0, 0, "each told, fewer than passed" },
	{ TWHEEL_MISFIRE_COUNT, 0, HOUR, 1, 3599999999U, HOUR + 100, "counted for an hour" },
	{ TWHEEL_MISFIRE_COUNT, 0, 5000 * HOUR, 1, U32_MAX, 5000 * HOUR + 100,
	  "more than can be counted" },
};

static void misfire_desc(const struct misfire *misfire, char *desc)
{
	strscpy(desc, misfire->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(misfire, misfires, misfire_desc);

static u64 arm_misfire(struct kunit *test)
{
	const struct misfire *misfire = test->param_value;
	u64 id;

	engine_manual(test);
	id = arm_op(test, (struct twheel_op){
		.expires_ns = 100,
		.interval_ns = 1000,
		.count = misfire->count,
		.misfire = misfire->policy,
	});
	advance(test, misfire->read_ns);
	return id;
}

static void missed_periods_are_told_by_the_policy(struct kunit *test)
{
	const struct misfire *misfire = test->param_value;
	struct sink *sink;
	u32 i, more;

	arm_misfire(test);
	sink = read_all(test);
	KUNIT_EXPECT_EQ(test, sink->nr, misfire->nr);
	for (i = 0; i < sink->nr; i++) {
		more = misfire->next_ns || i + 1 < sink->nr ? TWHEEL_EV_MORE : 0;
		KUNIT_EXPECT_EQ(test, sink->events[i].expires_ns, 100 + i * 1000);
		KUNIT_EXPECT_EQ(test, sink->events[i].overrun, misfire->overrun);
		KUNIT_EXPECT_EQ(test, sink->events[i].flags, more);
	}
}

static void after_missed_periods_the_phase_is_kept(struct kunit *test)
{
	const struct misfire *misfire = test->param_value;
	u64 id = arm_misfire(test);
	struct bench *bench = test->priv;

	read_all(test);
	if (misfire->next_ns)
		KUNIT_EXPECT_EQ(test, query(test, id).expires_ns, misfire->next_ns);
	else
		KUNIT_EXPECT_EQ(test, cancel(bench->e, id), -ENOENT);
}

static const u64 intervals[] = { TICK, TICK - 1, TICK + 1, 1000003, HOUR + 1 };

static void interval_desc(const u64 *interval, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "every %llu ns", *interval);
}

KUNIT_ARRAY_PARAM(interval, intervals, interval_desc);

static void a_periodic_timer_does_not_drift(struct kunit *test)
{
	u64 interval_ns = *(const u64 *)test->param_value, k = 0;
	struct sink *sink;

	engine_manual(test);
	arm_op(test, (struct twheel_op){ .expires_ns = 77, .interval_ns = interval_ns });
	while (k < 1000) {
		advance(test, next(test));
		sink = read_all(test);
		KUNIT_ASSERT_EQ(test, sink->nr, 1);
		KUNIT_ASSERT_EQ(test, sink->events[0].expires_ns, 77 + k * interval_ns);
		k += 1 + sink->events[0].overrun;
	}
}

/* Nothing was due in between: the wheel hears of either time with the timer. */
static void a_timer_armed_after_the_clock_was_set_back_expires_in_time(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);

	arm(test, 2 * HOUR);
	advance(test, HOUR);
	e->manual_ns = HOUR / 2;
	arm(test, HOUR / 2 + TICK);
	verify(test);
	advance(test, HOUR / 2 + TICK - 1);
	KUNIT_EXPECT_EQ(test, nr_ready(e), 0);
	advance(test, HOUR / 2 + TICK);
	KUNIT_EXPECT_EQ(test, nr_ready(e), 1);
}

static void a_timer_armed_after_an_idle_time_goes_where_it_need_not_move(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);
	u64 id;

	e->manual_ns = HOUR;
	id = arm(test, (HOUR / TICK + 2) * TICK);
	KUNIT_EXPECT_LT(test, tw_timer(&e->timers, (u32)id)->node.slot, WHEEL_LEVEL_SLOTS);
}

static void a_timer_read_after_the_clock_was_set_back_expires_in_time(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);

	arm_op(test, (struct twheel_op){ .expires_ns = HOUR, .interval_ns = 2 * TICK });
	advance(test, 2 * HOUR);
	e->manual_ns = HOUR;
	take(test, tw_engine_read, SINK_ROOM);
	verify(test);
	advance(test, HOUR + 2 * TICK - 1);
	KUNIT_EXPECT_EQ(test, nr_ready(e), 0);
	advance(test, HOUR + 2 * TICK);
	KUNIT_EXPECT_EQ(test, nr_ready(e), 1);
}

/* As a wall clock can, while a record waits. */
static void a_clock_set_back_to_before_a_record_misses_no_period(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);
	struct sink *sink;

	arm_op(test, (struct twheel_op){ .expires_ns = HOUR, .interval_ns = TICK });
	advance(test, HOUR);
	e->manual_ns = 0;
	sink = take(test, tw_engine_read, SINK_ROOM);
	KUNIT_ASSERT_EQ(test, sink->nr, 1);
	KUNIT_EXPECT_EQ(test, sink->events[0].overrun, 0);
	KUNIT_EXPECT_EQ(test, next(test), HOUR + TICK);
}

static void a_period_that_ends_beyond_time_parks_the_timer(struct kunit *test)
{
	u64 id;

	engine_manual(test);
	id = arm_op(test, (struct twheel_op){ .expires_ns = 1, .interval_ns = S64_MAX });
	advance(test, TICK);
	KUNIT_EXPECT_EQ(test, read_all(test)->nr, 1);
	KUNIT_EXPECT_EQ(test, query(test, id).expires_ns, TWHEEL_NEVER);
	KUNIT_EXPECT_EQ(test, next(test), TWHEEL_NEVER);
}

/* Operations */

enum which { NOTHING, STALE, TO_COME, BEYOND };

static const struct stray {
	u16 opcode;
	enum which which;
	const char *name;
} strays[] = {
	{ TWHEEL_OP_CANCEL, NOTHING, "CANCEL of id 0" },
	{ TWHEEL_OP_CANCEL, STALE, "CANCEL of a stale id" },
	{ TWHEEL_OP_CANCEL, TO_COME, "CANCEL of an id to come" },
	{ TWHEEL_OP_CANCEL, BEYOND, "CANCEL of an index that there is not" },
	{ TWHEEL_OP_MODIFY, NOTHING, "MODIFY of id 0" },
	{ TWHEEL_OP_MODIFY, STALE, "MODIFY of a stale id" },
	{ TWHEEL_OP_MODIFY, TO_COME, "MODIFY of an id to come" },
	{ TWHEEL_OP_MODIFY, BEYOND, "MODIFY of an index that there is not" },
	{ TWHEEL_OP_QUERY, NOTHING, "QUERY of id 0" },
	{ TWHEEL_OP_QUERY, STALE, "QUERY of a stale id" },
	{ TWHEEL_OP_QUERY, TO_COME, "QUERY of an id to come" },
	{ TWHEEL_OP_QUERY, BEYOND, "QUERY of an index that there is not" },
};

static void stray_desc(const struct stray *stray, char *desc)
{
	strscpy(desc, stray->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(stray, strays, stray_desc);

/* Of two timers, one armed and one ready, at the index of which another was before. */
static struct twheel_op stray_op(struct kunit *test)
{
	const struct stray *stray = test->param_value;
	struct twheel_op op = { .opcode = stray->opcode, .expires_ns = 1 };
	struct tw_engine *e = engine_manual(test);
	u64 stale = arm(test, HOUR), id;

	KUNIT_ASSERT_EQ(test, cancel(e, stale), 0);
	id = arm(test, HOUR);
	KUNIT_ASSERT_EQ(test, (u32)id, (u32)stale);
	arm(test, 0);
	if (stray->which == STALE)
		op.id = stale;
	else if (stray->which == TO_COME)
		op.id = id + (1ULL << 32);
	else if (stray->which == BEYOND)
		op.id = 1ULL << 32 | e->wheel.nr_nodes;
	return op;
}

static void an_unknown_id_is_refused(struct kunit *test)
{
	struct twheel_op op = stray_op(test);
	struct bench *bench = test->priv;

	KUNIT_EXPECT_EQ(test, submit(bench->e, &op), -ENOENT);
}

static void an_unknown_id_changes_nothing(struct kunit *test)
{
	struct twheel_op op = stray_op(test);
	struct bench *bench = test->priv;

	get_stats(test);
	submit(bench->e, &op);
	KUNIT_EXPECT_EQ(test, memcmp(&bench->stats, &bench->e->stats,
				     sizeof(bench->stats)), 0);
	KUNIT_EXPECT_EQ(test, nr_armed(bench->e), 1);
	KUNIT_EXPECT_EQ(test, nr_ready(bench->e), 1);
	KUNIT_EXPECT_EQ(test, next(test), round_up(HOUR, TICK));
	verify(test);
}

static void cancel_tells_whether_a_record_was_withdrawn(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);
	u64 armed = arm(test, HOUR), ready = arm(test, 0);

	KUNIT_EXPECT_EQ(test, cancel(e, armed), 0);
	KUNIT_EXPECT_EQ(test, cancel(e, ready), 1);
	KUNIT_EXPECT_EQ(test, read_all(test)->nr, 0);
	KUNIT_EXPECT_EQ(test, e->timers.live, 0);
}

static void cancel_leaves_the_other_records_in_order(struct kunit *test)
{
	struct tw_engine *e;
	struct sink *sink;
	u64 ids[4];
	u32 i, gone;

	for (gone = 0; gone < 3; gone++) {
		e = engine_manual(test);
		for (i = 0; i < 3; i++)
			ids[i] = arm(test, 0);
		KUNIT_EXPECT_EQ(test, cancel(e, ids[gone]), 1);
		verify(test);
		ids[3] = arm(test, 0);
		sink = read_all(test);
		KUNIT_ASSERT_EQ(test, sink->nr, 3);
		for (i = 0; i < 3; i++)
			KUNIT_EXPECT_EQ(test, sink->events[i].id, ids[i + (i >= gone)]);
	}
}

static void modify_tells_whether_a_record_was_withdrawn(struct kunit *test)
{
	struct twheel_op op = { .opcode = TWHEEL_OP_MODIFY, .expires_ns = 2 * HOUR };
	struct tw_engine *e = engine_manual(test);
	u64 armed = arm(test, HOUR), ready = arm(test, 0);

	op.id = armed;
	KUNIT_EXPECT_EQ(test, submit(e, &op), 0);
	op.id = ready;
	KUNIT_EXPECT_EQ(test, submit(e, &op), 1);
	KUNIT_EXPECT_EQ(test, read_all(test)->nr, 0);
	KUNIT_EXPECT_EQ(test, nr_armed(e), 2);
}

static void modify_to_the_past_makes_ready(struct kunit *test)
{
	struct twheel_op op = { .opcode = TWHEEL_OP_MODIFY };
	struct tw_engine *e = engine_manual(test);

	op.id = arm(test, HOUR);
	KUNIT_EXPECT_EQ(test, submit(e, &op), 0);
	verify(test);
	KUNIT_EXPECT_EQ(test, read_all(test)->nr, 1);
}

static void query_tells_what_was_armed(struct kunit *test)
{
	struct twheel_op op = {
		.expires_ns = HOUR + 1,
		.user_data = 0x1234567890abcdefULL,
		.interval_ns = 5555,
		.slack_ns = 66,
		.count = 7,
		.misfire = TWHEEL_MISFIRE_SKIP,
	}, seen;

	engine_manual(test);
	seen = query(test, arm_op(test, op));
	KUNIT_EXPECT_EQ(test, seen.expires_ns, op.expires_ns);
	KUNIT_EXPECT_EQ(test, seen.user_data, op.user_data);
	KUNIT_EXPECT_EQ(test, seen.interval_ns, op.interval_ns);
	KUNIT_EXPECT_EQ(test, seen.slack_ns, op.slack_ns);
	KUNIT_EXPECT_EQ(test, seen.count, op.count);
	KUNIT_EXPECT_EQ(test, seen.misfire, op.misfire);
}

static void modify_replaces_all_but_the_user_data(struct kunit *test)
{
	struct twheel_op op = {
		.expires_ns = HOUR,
		.user_data = 11,
		.interval_ns = 22,
		.slack_ns = 33,
		.count = 44,
		.misfire = TWHEEL_MISFIRE_SKIP,
	}, seen;
	struct tw_engine *e = engine_manual(test);
	u64 id = arm_op(test, op);

	op = (struct twheel_op){ .opcode = TWHEEL_OP_MODIFY, .id = id, .expires_ns = 55 };
	KUNIT_EXPECT_EQ(test, submit(e, &op), 0);
	seen = query(test, id);
	KUNIT_EXPECT_EQ(test, seen.user_data, 11);
	KUNIT_EXPECT_EQ(test, seen.expires_ns, 55);
	KUNIT_EXPECT_EQ(test, seen.interval_ns, 0);
	KUNIT_EXPECT_EQ(test, seen.slack_ns, 0);
	KUNIT_EXPECT_EQ(test, seen.count, 0);
	KUNIT_EXPECT_EQ(test, seen.misfire, 0);
}

static void a_bad_operation_does_not_stop_the_rest(struct kunit *test)
{
	struct twheel_op ops[] = {
		{ .opcode = TWHEEL_OP_ARM, .expires_ns = HOUR },
		{ .opcode = TWHEEL_OP_CANCEL, .id = 12345 },
		{ .opcode = TWHEEL_OP_ARM, .expires_ns = HOUR, .res = -EINVAL },
		{ .opcode = TWHEEL_OP_NOP },
		{ .opcode = TWHEEL_OP_ARM, .expires_ns = HOUR },
	};
	struct tw_engine *e = engine_manual(test);

	tw_engine_submit(e, ops, ARRAY_SIZE(ops));
	KUNIT_EXPECT_EQ(test, ops[0].res, 0);
	KUNIT_EXPECT_EQ(test, ops[1].res, -ENOENT);
	KUNIT_EXPECT_EQ(test, ops[2].res, -EINVAL);
	KUNIT_EXPECT_EQ(test, ops[3].res, 0);
	KUNIT_EXPECT_EQ(test, ops[4].res, 0);
	KUNIT_EXPECT_EQ(test, nr_armed(e), 2);
}

/* More than one hold of the lock does, and the table grows amid them. */
static void many_operations_are_all_done(struct kunit *test)
{
	u32 i, nr = 5 * TW_SUBMIT_HOLD + 3;
	struct twheel_op *ops = kunit_kcalloc(test, nr, sizeof(*ops), GFP_KERNEL);
	struct tw_engine *e = engine_manual(test);

	KUNIT_ASSERT_NOT_NULL(test, ops);
	for (i = 0; i < nr; i++)
		ops[i] = (struct twheel_op){ .opcode = TWHEEL_OP_ARM, .expires_ns = 1 + i };
	tw_engine_submit(e, ops, nr);
	for (i = 0; i < nr; i++) {
		KUNIT_ASSERT_EQ(test, ops[i].res, 0);
		KUNIT_ASSERT_EQ(test, query(test, ops[i].id).expires_ns, 1 + i);
	}
	KUNIT_EXPECT_EQ(test, nr_armed(e), nr);
	verify(test);
}

static void arming_beyond_the_capacity_is_refused(struct kunit *test)
{
	struct twheel_op op = { .opcode = TWHEEL_OP_ARM };
	struct twheel_setup setup = {
		.clockid = TWHEEL_CLOCK_MANUAL,
		.capacity = 3,
		.tick_ns = TICK,
	};
	struct tw_engine *e = engine_new(test);
	u64 id;

	KUNIT_ASSERT_EQ(test, tw_engine_setup(e, &setup), 0);
	arm(test, HOUR);
	id = arm(test, 0);
	arm(test, TWHEEL_NEVER);
	KUNIT_EXPECT_EQ(test, submit(e, &op), -ENOSPC);
	KUNIT_EXPECT_EQ(test, e->timers.live, 3);
	KUNIT_EXPECT_EQ(test, cancel(e, id), 1);
	KUNIT_EXPECT_EQ(test, submit(e, &op), 0);
}

static void arming_beyond_the_limit_of_the_user_is_refused(struct kunit *test)
{
	struct twheel_op op = { .opcode = TWHEEL_OP_ARM };
	struct tw_engine *e = engine_manual(test);
	u64 id = 0;
	u32 i;

	for (i = 0; i < WHEEL_CHUNK_NODES; i++)
		id = arm(test, HOUR);
	tw_user_memory_max = tw_engine_memory(e);
	KUNIT_EXPECT_EQ(test, submit(e, &op), -EPERM);
	KUNIT_EXPECT_EQ(test, op.id, 0);
	KUNIT_EXPECT_EQ(test, e->timers.live, WHEEL_CHUNK_NODES);
	KUNIT_EXPECT_EQ(test, tw_engine_memory(e), tw_user_memory_max);
	KUNIT_EXPECT_EQ(test, cancel(e, id), 0);
	KUNIT_EXPECT_EQ(test, submit(e, &op), 0);
}

static void a_second_engine_is_charged_as_the_first(struct kunit *test)
{
	struct tw_engine *e = engine_new(test), *other;

	KUNIT_EXPECT_EQ(test, tw_engine_memory(e), ksize(e));
	tw_user_memory_max = 2 * ksize(e);
	other = tw_engine_create(1);
	KUNIT_ASSERT_FALSE(test, IS_ERR(other));
	KUNIT_EXPECT_EQ(test, atomic_long_read(&e->timers.user->bytes),
			tw_user_memory_max);
	tw_engine_destroy(other);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&e->timers.user->bytes), ksize(e));
}

static void an_engine_beyond_the_limit_of_the_user_is_refused(struct kunit *test)
{
	struct tw_engine *e = engine_new(test);

	tw_user_memory_max = 2 * ksize(e) - 1;
	tw_kunit_allocs = 0;
	KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(tw_engine_create(1)), -EPERM);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&e->timers.user->bytes), ksize(e));
}

/* Each allocation fails in turn, until none does. */
static void arming_without_memory_is_refused_and_changes_nothing(struct kunit *test)
{
	struct twheel_op op = { .opcode = TWHEEL_OP_ARM, .expires_ns = HOUR };
	struct tw_engine *e = engine_manual(test);
	int allocs;

	for (allocs = 0;; allocs++) {
		tw_kunit_allocs = allocs;
		if (!submit(e, &op))
			break;
		KUNIT_ASSERT_EQ(test, op.res, -ENOMEM);
		KUNIT_ASSERT_EQ(test, op.id, 0);
		KUNIT_ASSERT_EQ(test, e->wheel.nr_nodes, 0);
		KUNIT_ASSERT_EQ(test, e->stats.armed, 0);
	}
	KUNIT_EXPECT_GE(test, allocs, 1);
	KUNIT_EXPECT_EQ(test, nr_armed(e), 1);
}

static void no_memory_is_taken_for_a_timer_if_one_was_freed_meanwhile(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);
	u32 nr_nodes;

	arm(test, HOUR);
	nr_nodes = e->wheel.nr_nodes;
	KUNIT_EXPECT_EQ(test, tw_grow(e), 0);
	KUNIT_EXPECT_EQ(test, e->wheel.nr_nodes, nr_nodes);
}

/* Neither without that for the user and its shares nor without its own */
static void without_memory_there_is_no_engine(struct kunit *test)
{
	int allocs;

	for (allocs = 0; allocs < 3; allocs++) {
		tw_kunit_allocs = allocs;
		KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(tw_engine_create(1)), -ENOMEM);
	}
}

static void an_engine_without_memory_charges_nothing(struct kunit *test)
{
	struct tw_engine *e = engine_new(test);

	tw_kunit_allocs = 0;
	KUNIT_EXPECT_EQ(test, PTR_ERR_OR_ZERO(tw_engine_create(1)), -ENOMEM);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&e->timers.user->bytes), ksize(e));
}

/* Set-up */

static void a_second_setup_is_refused(struct kunit *test)
{
	struct twheel_setup setup = {
		.clockid = CLOCK_REALTIME,
		.capacity = 1,
		.tick_ns = 2 * TICK,
	};
	struct tw_engine *e = engine_manual(test);
	struct twheel_info before = {}, after = {};

	tw_engine_info(e, &before);
	KUNIT_EXPECT_TRUE(test, tw_engine_is_fixed(e));
	KUNIT_EXPECT_EQ(test, tw_engine_setup(e, &setup), -EBUSY);
	tw_engine_info(e, &after);
	KUNIT_EXPECT_EQ(test, memcmp(&before, &after, sizeof(before)), 0);
}

static void a_setup_after_an_arm_is_refused(struct kunit *test)
{
	struct twheel_setup setup = {
		.clockid = TWHEEL_CLOCK_MANUAL,
		.capacity = 1,
		.tick_ns = TICK,
	};
	struct tw_engine *e = engine_new(test);

	KUNIT_EXPECT_EQ(test, cancel(e, 1), -ENOENT);
	KUNIT_EXPECT_FALSE(test, tw_engine_is_fixed(e));
	KUNIT_EXPECT_EQ(test, cancel(e, arm(test, 0)), 1);
	KUNIT_EXPECT_EQ(test, tw_engine_setup(e, &setup), -EBUSY);
}

static const struct grant {
	u64 wish_ns;
	u64 granted_ns;
} grants[] = {
	{ 0, 1 << 20 }, { 1, 1 << 12 }, { 4095, 1 << 12 }, { 4096, 1 << 12 },
	{ 8191, 1 << 12 }, { 8192, 1 << 13 }, { 1000000, 1 << 19 },
	{ (1 << 30) - 1, 1 << 29 }, { 1 << 30, 1 << 30 }, { 1ULL << 31, 1 << 30 },
	{ U64_MAX, 1 << 30 },
};

static void grant_desc(const struct grant *grant, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "%llu ns", grant->wish_ns);
}

KUNIT_ARRAY_PARAM(grant, grants, grant_desc);

static void the_tick_granted_is_the_largest_power_of_two_not_above(struct kunit *test)
{
	const struct grant *grant = test->param_value;

	KUNIT_EXPECT_EQ(test, tw_engine_grant_tick_ns(grant->wish_ns), grant->granted_ns);
}

static void the_manual_clock_does_not_go_back(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);

	advance(test, HOUR);
	KUNIT_EXPECT_EQ(test, tw_engine_advance(e, HOUR - 1), -EINVAL);
	KUNIT_EXPECT_EQ(test, tw_engine_advance(e, HOUR), 0);
	KUNIT_EXPECT_EQ(test, e->manual_ns, HOUR);
}

static void there_are_five_clocks(struct kunit *test)
{
	u32 clockid, known = 0;

	for (clockid = 0; clockid < 100; clockid++)
		known += tw_engine_clock_known(clockid);
	KUNIT_EXPECT_EQ(test, known, 5);
	KUNIT_EXPECT_TRUE(test, tw_engine_clock_known(CLOCK_REALTIME));
	KUNIT_EXPECT_TRUE(test, tw_engine_clock_known(CLOCK_MONOTONIC));
	KUNIT_EXPECT_TRUE(test, tw_engine_clock_known(CLOCK_BOOTTIME));
	KUNIT_EXPECT_TRUE(test, tw_engine_clock_known(CLOCK_TAI));
	KUNIT_EXPECT_TRUE(test, tw_engine_clock_known(TWHEEL_CLOCK_MANUAL));
	KUNIT_EXPECT_FALSE(test, tw_engine_clock_known(U32_MAX - 1));
}

static const struct clock {
	u32 clockid;
	const char *name;
} real_clocks[] = {
	{ CLOCK_REALTIME, "CLOCK_REALTIME" },
	{ CLOCK_MONOTONIC, "CLOCK_MONOTONIC" },
	{ CLOCK_BOOTTIME, "CLOCK_BOOTTIME" },
	{ CLOCK_TAI, "CLOCK_TAI" },
};

static void clock_desc(const struct clock *clock, char *desc)
{
	strscpy(desc, clock->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(clock, real_clocks, clock_desc);

static void a_real_clock_is_not_advanced(struct kunit *test)
{
	const struct clock *clock = test->param_value;
	struct tw_engine *e = engine_on(test, clock->clockid, TICK);

	KUNIT_EXPECT_EQ(test, tw_engine_advance(e, S64_MAX), -EINVAL);
}

/* Reading, draining and listing */

static const u32 rooms[] = {
	0, 1, TW_READ_BATCH - 1, TW_READ_BATCH, TW_READ_BATCH + 1, 70,
};

static void room_desc(const u32 *room, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "after %u records", *room);
}

KUNIT_ARRAY_PARAM(room, rooms, room_desc);

static void a_fault_while_reading_loses_nothing(struct kunit *test)
{
	u32 room = *(const u32 *)test->param_value, i, nr = 71;
	struct tw_engine *e = engine_manual(test);
	struct sink *sink;

	for (i = 0; i < nr; i++)
		arm(test, (1 + i) * TICK);
	advance(test, HOUR);
	KUNIT_EXPECT_EQ(test, take(test, tw_engine_read, room)->nr, room);
	KUNIT_EXPECT_EQ(test, nr_ready(e), nr - room);
	sink = read_all(test);
	KUNIT_ASSERT_EQ(test, sink->nr, nr - room);
	for (i = 0; i < sink->nr; i++)
		KUNIT_ASSERT_EQ(test, sink->events[i].expires_ns, (1 + room + i) * TICK);
}

static void a_fault_while_draining_loses_nothing(struct kunit *test)
{
	u32 room = *(const u32 *)test->param_value, i, nr = 71;
	struct tw_engine *e = engine_manual(test);

	for (i = 0; i < nr; i++)
		arm(test, (1 + i) * TICK);
	KUNIT_EXPECT_EQ(test, take(test, tw_engine_drain, room)->nr, room);
	KUNIT_EXPECT_EQ(test, nr_armed(e), nr - room);
	KUNIT_EXPECT_EQ(test, take(test, tw_engine_drain, SINK_ROOM)->nr, nr - room);
	KUNIT_EXPECT_EQ(test, e->timers.live, 0);
}

static void a_reader_is_told_why_it_got_no_more(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);
	struct sink *sink = sink_new(test, 2);
	enum tw_rest rest;
	u32 i;

	for (i = 0; i < 3; i++)
		arm(test, 0);
	tw_engine_read(e, 1, sink_copy, sink, &rest);
	KUNIT_EXPECT_EQ(test, rest, TW_REST_MORE);
	tw_engine_read(e, 2, sink_copy, sink, &rest);
	KUNIT_EXPECT_EQ(test, rest, TW_REST_FAULT);
	sink->room = 5;
	tw_engine_read(e, 5, sink_copy, sink, &rest);
	KUNIT_EXPECT_EQ(test, rest, TW_REST_NONE);
	KUNIT_EXPECT_EQ(test, sink->nr, 3);
}

static void a_drained_timer_is_as_it_was_armed(struct kunit *test)
{
	struct twheel_op op = {
		.expires_ns = HOUR,
		.user_data = 11,
		.interval_ns = 22,
		.slack_ns = 33,
		.count = 44,
		.misfire = TWHEEL_MISFIRE_BURST,
	};
	struct tw_engine *e = engine_manual(test);
	struct sink *sink;

	op.id = arm_op(test, op);
	op.opcode = TWHEEL_OP_ARM;
	sink = take(test, tw_engine_drain, SINK_ROOM);
	KUNIT_ASSERT_EQ(test, sink->nr, 1);
	KUNIT_EXPECT_EQ(test, memcmp(&sink->ops[0], &op, sizeof(op)), 0);
	KUNIT_EXPECT_EQ(test, cancel(e, op.id), -ENOENT);
}

static void draining_leaves_records_to_be_read(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);

	arm(test, 0);
	arm(test, HOUR);
	KUNIT_EXPECT_EQ(test, take(test, tw_engine_drain, SINK_ROOM)->nr, 1);
	KUNIT_EXPECT_EQ(test, nr_armed(e), 0);
	KUNIT_EXPECT_EQ(test, read_all(test)->nr, 1);
}

/* Every third is cancelled, every third is ready. */
static void a_list_has_each_armed_timer_once(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);
	u32 i, nr, cursor = 0, seen = 0, calls = 0;
	struct twheel_op ops[7];
	u64 id, last = 0;

	for (i = 0; i < 300; i++) {
		id = arm(test, i % 3 == 1 ? 0 : HOUR + i);
		if (i % 3 == 2)
			KUNIT_ASSERT_EQ(test, cancel(e, id), 0);
	}
	do {
		nr = tw_engine_list(e, &cursor, ops, ARRAY_SIZE(ops));
		for (i = 0; i < nr; i++, seen++) {
			KUNIT_ASSERT_TRUE(test, !seen || (u32)ops[i].id > last);
			KUNIT_ASSERT_EQ(test, ops[i].flags, TWHEEL_F_ARMED);
			last = (u32)ops[i].id;
		}
		KUNIT_ASSERT_LT(test, ++calls, 100);
	} while (cursor);
	KUNIT_EXPECT_EQ(test, seen, 100);
	KUNIT_EXPECT_EQ(test, nr_armed(e), 100);
}

static void a_cursor_beyond_the_table_ends_the_list(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);
	u32 cursor = U32_MAX;
	struct twheel_op op;

	arm(test, HOUR);
	KUNIT_EXPECT_EQ(test, tw_engine_list(e, &cursor, &op, 1), 0);
	KUNIT_EXPECT_EQ(test, cursor, 0);
}

static void the_counters_tell_what_was_done(struct kunit *test)
{
	struct twheel_op op = { .opcode = TWHEEL_OP_MODIFY, .expires_ns = 3 * HOUR };
	struct tw_engine *e = engine_manual(test);
	const struct twheel_stats *stats;
	u32 i;

	for (i = 0; i < 4; i++)
		op.id = arm(test, HOUR + i);
	arm(test, 0);
	KUNIT_ASSERT_EQ(test, submit(e, &op), 0);
	KUNIT_ASSERT_EQ(test, cancel(e, op.id - 1), 0);
	advance(test, 2 * HOUR);
	stats = get_stats(test);
	KUNIT_EXPECT_EQ(test, stats->armed, 5);
	KUNIT_EXPECT_EQ(test, stats->modified, 1);
	KUNIT_EXPECT_EQ(test, stats->cancelled, 1);
	KUNIT_EXPECT_EQ(test, stats->fired, 3);
	KUNIT_EXPECT_EQ(test, stats->ready_max, 3);
	KUNIT_EXPECT_EQ(test, stats->wakeups, 1);
	KUNIT_EXPECT_EQ(test, stats->lateness[0], 0);
	KUNIT_EXPECT_EQ(test, stats->lateness[fls64(HOUR)], 2);
}

/* Moderation */

static struct tw_engine *engine_moderate(struct kunit *test, u32 batch, u64 delay_ns)
{
	struct twheel_setup setup = {
		.clockid = TWHEEL_CLOCK_MANUAL,
		.capacity = CAPACITY,
		.tick_ns = TICK,
		.wake_batch = batch,
		.wake_delay_ns = delay_ns,
	};
	struct tw_engine *e = engine_new(test);

	KUNIT_ASSERT_EQ(test, tw_engine_setup(e, &setup), 0);
	return e;
}

static void readers_are_told_at_once_unless_they_asked_for_less(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);

	KUNIT_EXPECT_FALSE(test, tw_engine_readable(e));
	arm(test, TICK);
	KUNIT_EXPECT_FALSE(test, tw_engine_readable(e));
	advance(test, TICK);
	KUNIT_EXPECT_TRUE(test, tw_engine_readable(e));
	read_all(test);
	KUNIT_EXPECT_FALSE(test, tw_engine_readable(e));
}

static void readers_are_told_when_the_batch_is_full(struct kunit *test)
{
	struct tw_engine *e = engine_moderate(test, 3, HOUR);
	u32 round, i;

	for (round = 0; round < 2; round++) {
		for (i = 0; i < 3; i++) {
			KUNIT_EXPECT_FALSE(test, tw_engine_readable(e));
			arm(test, 0);
		}
		KUNIT_EXPECT_TRUE(test, tw_engine_readable(e));
		KUNIT_EXPECT_EQ(test, read_all(test)->nr, 3);
	}
}

static void readers_are_told_when_the_delay_is_over(struct kunit *test)
{
	struct tw_engine *e = engine_moderate(test, 1000, 10 * TICK);

	arm(test, 5 * TICK);
	arm(test, 9 * TICK);
	advance(test, 5 * TICK);
	advance(test, 15 * TICK - 1);
	KUNIT_EXPECT_EQ(test, nr_ready(e), 2);
	KUNIT_EXPECT_FALSE(test, tw_engine_readable(e));
	advance(test, 15 * TICK);
	KUNIT_EXPECT_TRUE(test, tw_engine_readable(e));
}

static void a_delay_begins_anew_with_the_queue(struct kunit *test)
{
	struct tw_engine *e = engine_moderate(test, 1000, 10 * TICK);

	KUNIT_EXPECT_EQ(test, cancel(e, arm(test, 0)), 1);
	advance(test, 9 * TICK);
	arm(test, 0);
	advance(test, 19 * TICK - 1);
	KUNIT_EXPECT_FALSE(test, tw_engine_readable(e));
	advance(test, 19 * TICK);
	KUNIT_EXPECT_TRUE(test, tw_engine_readable(e));
}

static void a_queue_that_was_emptied_is_not_announced(struct kunit *test)
{
	struct tw_engine *e = engine_moderate(test, 1000, 10 * TICK);

	KUNIT_EXPECT_EQ(test, cancel(e, arm(test, 0)), 1);
	advance(test, HOUR);
	KUNIT_EXPECT_FALSE(test, tw_engine_readable(e));
}

/* Bounded work */

static void one_pass_expires_no_more_than_its_budget(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);
	u32 i, nr = 3000, passes = 1;

	for (i = 0; i < nr; i++)
		arm(test, 100 * TICK);
	e->manual_ns = 100 * TICK;
	while (!tw_pass(e)) {
		KUNIT_ASSERT_LE(test, nr_ready(e), passes * TW_HOLD_BUDGET * TW_PASS_HOLDS);
		KUNIT_ASSERT_LT(test, ++passes, nr);
		verify(test);
	}
	KUNIT_EXPECT_EQ(test, nr_ready(e), nr);
	KUNIT_EXPECT_EQ(test, get_stats(test)->continued, passes - 1);
	KUNIT_EXPECT_GT(test, passes, 1);
}

/* A random load */

#define LIVES	100

/**
 * struct life - what a timer should do
 * @id:          its handle; stale if it is not @alive
 * @expires_ns:  its next expiry
 * @slack_ns:    how much later it may expire
 * @interval_ns: its period
 * @alive:       it is armed or ready
 */
struct life {
	u64 id;
	u64 expires_ns;
	u64 slack_ns;
	u64 interval_ns;
	bool alive;
};

/**
 * struct world - the oracle
 * @random: where it gets its ideas from
 * @now_ns: the manual clock
 * @births: timers armed
 * @deaths: timers of which the fate is known
 * @lives:  the timers, by their user_data
 */
struct world {
	struct rnd_state random;
	u64 now_ns;
	u32 births;
	u32 deaths;
	struct life lives[LIVES];
};

static u32 below(struct world *world, u32 n)
{
	return tw_kunit_below(&world->random, n);
}

static bool may_be_ready(const struct world *world, const struct life *life)
{
	return life->expires_ns <= world->now_ns;
}

static bool may_be_armed(const struct world *world, const struct life *life)
{
	return may_be_ready(world, life) ?
	       round_up(life->expires_ns + life->slack_ns, TICK) > world->now_ns : true;
}

static void dies(struct world *world, struct life *life)
{
	life->alive = false;
	world->deaths++;
}

static void fill_op(struct world *world, struct twheel_op *op)
{
	op->expires_ns = below(world, 1 << 30) >> below(world, 25);
	if (below(world, 8))
		op->expires_ns += world->now_ns;
	op->slack_ns = below(world, 2) ? below(world, 50 * TICK) : 0;
	op->interval_ns = below(world, 4) ? 0 : 1 + below(world, 1 << 20);
}

static void live_by(struct life *life, const struct twheel_op *op)
{
	life->expires_ns = op->expires_ns;
	life->slack_ns = op->slack_ns;
	life->interval_ns = op->interval_ns;
}

/* Arms a timer, or does something to the one that there is. */
static void meddle(struct kunit *test, struct world *world)
{
	u32 index = below(world, LIVES);
	struct life *life = &world->lives[index];
	struct twheel_op op = { .id = life->id, .user_data = index };
	struct tw_engine *e = ((struct bench *)test->priv)->e;
	int res;

	fill_op(world, &op);
	if (life->alive)
		op.opcode = TWHEEL_OP_CANCEL + below(world, 3);
	else
		op.opcode = below(world, 4) ? TWHEEL_OP_ARM : TWHEEL_OP_CANCEL;
	res = submit(e, &op);
	if (op.opcode == TWHEEL_OP_ARM) {
		KUNIT_ASSERT_EQ(test, res, 0);
		world->births++;
		life->alive = true;
		life->id = op.id;
		live_by(life, &op);
		return;
	}
	if (!life->alive) {
		KUNIT_ASSERT_EQ(test, res, -ENOENT);
		return;
	}
	if (op.opcode == TWHEEL_OP_QUERY) {
		KUNIT_ASSERT_EQ(test, res, 0);
		KUNIT_ASSERT_EQ(test, op.expires_ns, life->expires_ns);
		res = op.flags == TWHEEL_F_READY;
	}
	KUNIT_ASSERT_TRUE(test, res ? may_be_ready(world, life) : may_be_armed(world, life));
	if (op.opcode == TWHEEL_OP_CANCEL)
		dies(world, life);
	else if (op.opcode == TWHEEL_OP_MODIFY)
		live_by(life, &op);
}

static void hear(struct kunit *test, struct world *world,
		 const struct twheel_event *event)
{
	struct life *life = &world->lives[event->user_data];
	u64 missed = 0;

	KUNIT_ASSERT_TRUE(test, life->alive);
	KUNIT_ASSERT_EQ(test, event->id, life->id);
	KUNIT_ASSERT_EQ(test, event->expires_ns, life->expires_ns);
	KUNIT_ASSERT_GE(test, event->fired_ns, event->expires_ns);
	KUNIT_ASSERT_LE(test, event->fired_ns, world->now_ns);
	if (life->interval_ns)
		missed = div64_u64(world->now_ns - life->expires_ns, life->interval_ns);
	KUNIT_ASSERT_EQ(test, event->overrun, min_t(u64, missed, U32_MAX));
	KUNIT_ASSERT_EQ(test, event->flags, life->interval_ns ? TWHEEL_EV_MORE : 0);
	if (life->interval_ns)
		life->expires_ns += (missed + 1) * life->interval_ns;
	else
		dies(world, life);
}

static void random_read(struct kunit *test, struct world *world)
{
	struct sink *sink = take(test, tw_engine_read, below(world, 40));
	u32 i;

	for (i = 0; i < sink->nr; i++)
		hear(test, world, &sink->events[i]);
}

static void random_drain(struct kunit *test, struct world *world)
{
	struct sink *sink = take(test, tw_engine_drain, below(world, 4));
	u32 i;

	for (i = 0; i < sink->nr; i++) {
		struct life *life = &world->lives[sink->ops[i].user_data];

		KUNIT_ASSERT_TRUE(test, life->alive && may_be_armed(world, life));
		KUNIT_ASSERT_EQ(test, sink->ops[i].id, life->id);
		KUNIT_ASSERT_EQ(test, sink->ops[i].expires_ns, life->expires_ns);
		dies(world, life);
	}
}

static void random_time(struct kunit *test, struct world *world)
{
	u64 next_ns = next(test);

	if (below(world, 3))
		world->now_ns += below(world, 1 << 24) >> below(world, 20);
	else if (next_ns != TWHEEL_NEVER)
		world->now_ns = max(world->now_ns, next_ns - below(world, 2));
	advance(test, world->now_ns);
}

/* Nothing is lost in the end: the deaths are as many as the births. */
static void random_end(struct kunit *test, struct world *world)
{
	struct tw_engine *e = ((struct bench *)test->priv)->e;
	u32 i;

	world->now_ns += HOUR;
	advance(test, world->now_ns);
	KUNIT_ASSERT_EQ(test, nr_armed(e), 0);
	while (nr_ready(e)) {
		struct sink *sink = read_all(test);

		for (i = 0; i < sink->nr; i++)
			hear(test, world, &sink->events[i]);
	}
	for (i = 0; i < LIVES; i++) {
		if (!world->lives[i].alive)
			continue;
		KUNIT_ASSERT_EQ(test, cancel(e, world->lives[i].id), 0);
		dies(world, &world->lives[i]);
	}
	KUNIT_EXPECT_EQ(test, world->deaths, world->births);
	KUNIT_EXPECT_EQ(test, e->timers.live, 0);
}

static void every_timer_has_exactly_one_fate(struct kunit *test)
{
	struct world *world = kunit_kzalloc(test, sizeof(*world), GFP_KERNEL);
	u32 step;

	KUNIT_ASSERT_NOT_NULL(test, world);
	tw_kunit_seed(test, &world->random);
	engine_manual(test);
	for (step = 0; step < 4000; step++) {
		u32 what = below(world, 20);

		if (what < 14)
			meddle(test, world);
		else if (what < 17)
			random_time(test, world);
		else if (what < 19)
			random_read(test, world);
		else
			random_drain(test, world);
		verify(test);
	}
	random_end(test, world);
}

/* Real clocks */

static u64 arm_in(struct kunit *test, u64 delay_ns)
{
	return arm_op(test, (struct twheel_op){
		.expires_ns = delay_ns,
		.flags = TWHEEL_F_REL,
	});
}

static bool wait_until_readable(struct tw_engine *e)
{
	return wait_event_interruptible_timeout(e->wait, tw_engine_readable(e),
						HANG_LIMIT) > 0;
}

static void the_hrtimer_expires_what_is_due(struct kunit *test)
{
	const struct clock *clock = test->param_value;
	struct tw_engine *e = engine_on(test, clock->clockid, TICK);
	struct sink *sink;

	arm_in(test, 2 * NSEC_PER_MSEC);
	KUNIT_ASSERT_TRUE(test, wait_until_readable(e));
	sink = read_all(test);
	KUNIT_ASSERT_EQ(test, sink->nr, 1);
	KUNIT_EXPECT_GE(test, sink->events[0].fired_ns, sink->events[0].expires_ns);
	KUNIT_EXPECT_GE(test, get_stats(test)->wakeups, 1);
}

static void the_hrtimer_is_queued_for_the_first_timer(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);
	struct bench *bench = test->priv;
	u64 wake_ns;

	arm_in(test, 2 * HOUR);
	arm_in(test, HOUR);
	tw_engine_stats(e, &bench->stats, &wake_ns);
	KUNIT_EXPECT_TRUE(test, hrtimer_is_queued(&e->hrtimer));
	KUNIT_EXPECT_EQ(test, wake_ns, next(test));
}

static void only_an_earlier_timer_starts_the_hrtimer_again(struct kunit *test)
{
	struct twheel_op op = { .opcode = TWHEEL_OP_MODIFY, .flags = TWHEEL_F_REL };
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);

	op.id = arm_in(test, 3 * HOUR);
	arm_in(test, 4 * HOUR);
	op.expires_ns = 5 * HOUR;
	KUNIT_EXPECT_EQ(test, submit(e, &op), 0);
	KUNIT_EXPECT_EQ(test, get_stats(test)->hrtimer_starts, 1);
	arm_in(test, 2 * HOUR);
	KUNIT_EXPECT_EQ(test, get_stats(test)->hrtimer_starts, 2);
	op.expires_ns = HOUR;
	KUNIT_EXPECT_EQ(test, submit(e, &op), 0);
	KUNIT_EXPECT_EQ(test, get_stats(test)->hrtimer_starts, 3);
}

static void a_passed_deadline_does_not_reach_the_hrtimer(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);

	arm(test, 0);
	arm(test, 1);
	arm_in(test, 0);
	KUNIT_EXPECT_EQ(test, nr_ready(e), 3);
	KUNIT_EXPECT_EQ(test, get_stats(test)->hrtimer_starts, 0);
	KUNIT_EXPECT_FALSE(test, hrtimer_active(&e->hrtimer));
}

static void a_parked_timer_does_not_reach_the_hrtimer(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);

	arm(test, S64_MAX);
	arm(test, TWHEEL_NEVER);
	KUNIT_EXPECT_EQ(test, get_stats(test)->hrtimer_starts, 0);
	KUNIT_EXPECT_FALSE(test, hrtimer_active(&e->hrtimer));
}

static void without_timers_no_hrtimer_is_queued(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);
	u64 id;

	KUNIT_EXPECT_FALSE(test, hrtimer_active(&e->hrtimer));
	id = arm_in(test, HOUR);
	KUNIT_EXPECT_TRUE(test, hrtimer_active(&e->hrtimer));
	KUNIT_EXPECT_EQ(test, cancel(e, id), 0);
	KUNIT_EXPECT_FALSE(test, hrtimer_active(&e->hrtimer));
	arm_in(test, HOUR);
	KUNIT_EXPECT_EQ(test, take(test, tw_engine_drain, 9)->nr, 1);
	KUNIT_EXPECT_FALSE(test, hrtimer_active(&e->hrtimer));
	arm_in(test, NSEC_PER_MSEC);
	KUNIT_ASSERT_TRUE(test, wait_until_readable(e));
	KUNIT_EXPECT_EQ(test, hrtimer_cancel(&e->hrtimer), 0);
}

static void each_callback_queues_the_hrtimer_for_what_remains(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);
	int i;

	arm_in(test, HOUR);
	for (i = 0; i < 64; i++) {
		arm_in(test, NSEC_PER_MSEC);
		KUNIT_ASSERT_TRUE(test, wait_until_readable(e));
		KUNIT_ASSERT_EQ(test, read_all(test)->nr, 1);
		KUNIT_ASSERT_TRUE(test, hrtimer_active(&e->hrtimer));
	}
}

static void after_it_was_stopped_the_hrtimer_is_started_again(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);

	KUNIT_ASSERT_EQ(test, cancel(e, arm_in(test, HOUR)), 0);
	arm_in(test, 2 * HOUR);
	KUNIT_EXPECT_TRUE(test, hrtimer_active(&e->hrtimer));
}

static void an_unread_periodic_timer_costs_one_wakeup(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);

	arm_op(test, (struct twheel_op){
		.flags = TWHEEL_F_REL,
		.expires_ns = NSEC_PER_MSEC,
		.interval_ns = 1,
	});
	KUNIT_ASSERT_TRUE(test, wait_until_readable(e));
	msleep(20);
	KUNIT_EXPECT_LE(test, get_stats(test)->wakeups, 1);
	KUNIT_EXPECT_GT(test, read_all(test)->events[0].overrun, 1000000);
}

static void the_callback_queues_the_hrtimer_for_what_remains(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);

	arm_in(test, HOUR);
	hrtimer_cancel(&e->hrtimer);
	KUNIT_EXPECT_EQ(test, tw_hrtimer_callback(&e->hrtimer), HRTIMER_NORESTART);
	KUNIT_EXPECT_TRUE(test, hrtimer_is_queued(&e->hrtimer));
	KUNIT_EXPECT_EQ(test, e->wake_tick << e->tick_shift, next(test));
}

static void a_callback_that_finds_nothing_does_not_go_on(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);

	KUNIT_EXPECT_EQ(test, tw_hrtimer_callback(&e->hrtimer), HRTIMER_NORESTART);
	KUNIT_EXPECT_FALSE(test, hrtimer_is_queued(&e->hrtimer));
	KUNIT_EXPECT_EQ(test, e->wake_tick, U64_MAX);
}

/* Arms more timers of one tick than one callback does, all of them ahead of time. */
static struct tw_engine *arm_flood(struct kunit *test, u32 nr)
{
	struct tw_engine *e;
	u64 delay_ns, now_ns;
	u32 i;

	for (delay_ns = 20 * NSEC_PER_MSEC;; delay_ns *= 4) {
		e = engine_on(test, CLOCK_MONOTONIC, TICK);
		now_ns = tw_now(e);
		for (i = 0; i < nr; i++)
			arm(test, now_ns + delay_ns);
		if (!nr_ready(e))
			return e;
	}
}

static void a_flood_takes_several_callbacks(struct kunit *test)
{
	u32 nr = 3000, i;
	struct tw_engine *e = arm_flood(test, nr);

	for (i = 0; nr_ready(e) < nr && i < 3000; i++)
		msleep(20);
	KUNIT_EXPECT_EQ(test, nr_ready(e), nr);
	KUNIT_EXPECT_GT(test, get_stats(test)->wakeups, 1);
	KUNIT_EXPECT_EQ(test, get_stats(test)->continued, get_stats(test)->wakeups - 1);
}

static void an_engine_is_destroyed_with_its_hrtimer_queued(struct kunit *test)
{
	struct bench *bench = test->priv;
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);

	arm_in(test, NSEC_PER_MSEC);
	bench->e = NULL;
	tw_engine_destroy(e);
	/* Were it still queued, debugging kernels would tell now. */
	msleep(20);
}

static void an_engine_is_destroyed_amid_a_flood(struct kunit *test)
{
	struct bench *bench = test->priv;
	struct tw_engine *e = arm_flood(test, 3000);

	KUNIT_EXPECT_TRUE(test, wait_until_readable(e));
	bench->e = NULL;
	tw_engine_destroy(e);
	msleep(20);
}

/* Sets of the wall clock */

static struct tw_engine *engine_watching(struct kunit *test)
{
	struct twheel_setup setup = {
		.flags = TWHEEL_SETUP_CLOCK_SET,
		.clockid = CLOCK_REALTIME,
		.capacity = CAPACITY,
		.tick_ns = TICK,
	};
	struct tw_engine *e = engine_new(test);

	KUNIT_ASSERT_EQ(test, tw_engine_setup(e, &setup), 0);
	return e;
}

/* As if the clock had been set by so much. */
static void pretend(struct tw_engine *e, s64 jump_ns)
{
	mutex_lock(&tw_clockset_lock);
	e->clockset.ahead_ns -= jump_ns;
	mutex_unlock(&tw_clockset_lock);
}

static const s64 jumps[] = { 1, -1, NSEC_PER_SEC, -3600LL * NSEC_PER_SEC };

static void jump_desc(const s64 *jump_ns, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "by %lld ns", *jump_ns);
}

KUNIT_ARRAY_PARAM(jump, jumps, jump_desc);

static void a_set_of_the_clock_is_told_first(struct kunit *test)
{
	s64 jump_ns = *(const s64 *)test->param_value;
	struct tw_engine *e = engine_watching(test);
	struct sink *sink;

	arm(test, 0);
	pretend(e, jump_ns);
	tw_clockset_work(NULL);
	sink = read_all(test);
	KUNIT_ASSERT_EQ(test, sink->nr, 2);
	KUNIT_EXPECT_EQ(test, sink->events[0].flags, TWHEEL_EV_CLOCK_SET);
	KUNIT_EXPECT_EQ(test, sink->events[0].id, 0);
	KUNIT_EXPECT_EQ(test, (s64)sink->events[0].expires_ns, jump_ns);
	KUNIT_EXPECT_EQ(test, sink->events[1].flags, 0);
}

static void sets_of_the_clock_that_nobody_has_read_add_up(struct kunit *test)
{
	struct tw_engine *e = engine_watching(test);
	struct sink *sink;

	pretend(e, 1000);
	tw_clockset_work(NULL);
	pretend(e, -300);
	tw_clockset_work(NULL);
	sink = read_all(test);
	KUNIT_ASSERT_EQ(test, sink->nr, 1);
	KUNIT_EXPECT_EQ(test, sink->events[0].expires_ns, 700);
	KUNIT_EXPECT_EQ(test, read_all(test)->nr, 0);
	KUNIT_EXPECT_FALSE(test, tw_engine_readable(e));
}

static void a_clock_that_was_not_set_is_not_told(struct kunit *test)
{
	struct tw_engine *e = engine_watching(test);

	tw_clockset_work(NULL);
	KUNIT_EXPECT_FALSE(test, tw_engine_readable(e));
}

static void a_fault_does_not_lose_a_set_of_the_clock(struct kunit *test)
{
	struct tw_engine *e = engine_watching(test);

	pretend(e, 5);
	tw_clockset_work(NULL);
	KUNIT_EXPECT_EQ(test, take(test, tw_engine_read, 0)->nr, 0);
	KUNIT_EXPECT_TRUE(test, tw_engine_readable(e));
	KUNIT_EXPECT_EQ(test, read_all(test)->nr, 1);
}

static void a_cancel_does_not_hush_a_set_of_the_clock(struct kunit *test)
{
	struct tw_engine *e = engine_watching(test);
	u64 id = arm(test, 0);

	pretend(e, 5);
	tw_clockset_work(NULL);
	KUNIT_EXPECT_EQ(test, cancel(e, id), 1);
	KUNIT_EXPECT_TRUE(test, tw_engine_readable(e));
}

static void the_notifier_sees_to_it_that_a_set_is_told(struct kunit *test)
{
	struct tw_engine *e = engine_watching(test);
	bool readable;

	KUNIT_ASSERT_EQ(test, tw_clockset_init(), 0);
	pretend(e, 5);
	tw_clockset_notify(&tw_notifier, 0, NULL);
	tw_clockset_notify(&tw_notifier, 1, NULL);
	readable = wait_until_readable(e);
	tw_clockset_exit();
	KUNIT_EXPECT_TRUE(test, readable);
}

/* The notifier is called at every tick. */
static void while_no_clock_is_set_nobody_looks(struct kunit *test)
{
	bool looks;

	KUNIT_ASSERT_EQ(test, tw_clockset_init(), 0);
	/* That they are watched from now on is told as if they had been set. */
	irq_work_sync(&tw_irq_work);
	flush_delayed_work(&tw_work);
	/* Whoever looked would wait for this. */
	mutex_lock(&tw_clockset_lock);
	tw_clockset_notify(&tw_notifier, 0, NULL);
	irq_work_sync(&tw_irq_work);
	looks = work_busy(&tw_work.work);
	mutex_unlock(&tw_clockset_lock);
	tw_clockset_exit();
	KUNIT_EXPECT_FALSE(test, looks);
}

/* They differ by some seconds, and each can be set without the other. */
static void a_wheel_watches_its_own_clock(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_TAI, TICK);

	KUNIT_EXPECT_EQ(test, e->clockset.clock, TK_OFFS_TAI);
	e = engine_on(test, CLOCK_REALTIME, TICK);
	KUNIT_EXPECT_EQ(test, e->clockset.clock, TK_OFFS_REAL);
}

/* Hostile times */

/* What the opener's clock is ahead of the host's, a time of the opener, and the host's. */
static const struct offset {
	s64 offset_ns;
	u64 ns;
	s64 host_ns;
	const char *name;
} offsets[] = {
	{ 0, 5, 5, "no offset" },
	{ 0, S64_MAX, S64_MAX, "no offset, the last ns" },
	{ 3, 5, 2, "ahead" },
	{ 3, 2, 0, "ahead, before the host began" },
	{ -3, 5, 8, "behind" },
	{ -3, S64_MAX - 3, S64_MAX, "behind, the host's last ns" },
	{ -3, S64_MAX, S64_MAX, "behind, beyond the host's last ns" },
	{ -S64_MAX, S64_MAX, S64_MAX, "behind by all time" },
	{ S64_MAX, 0, 0, "ahead by all time" },
};

static void offset_desc(const struct offset *offset, char *desc)
{
	strscpy(desc, offset->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(offset, offsets, offset_desc);

static void a_time_goes_to_the_host_within_its_limits(struct kunit *test)
{
	const struct offset *offset = test->param_value;
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);

	e->offset_ns = offset->offset_ns;
	KUNIT_EXPECT_EQ(test, ktime_to_ns(tw_to_host(e, offset->ns)), offset->host_ns);
}

static void a_time_comes_from_the_host_within_its_limits(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);

	e->offset_ns = -10;
	KUNIT_EXPECT_EQ(test, tw_from_host(e, 9), 0);
	KUNIT_EXPECT_EQ(test, tw_from_host(e, 11), 1);
	e->offset_ns = 10;
	KUNIT_EXPECT_EQ(test, tw_from_host(e, S64_MAX - 10), S64_MAX);
	KUNIT_EXPECT_EQ(test, tw_from_host(e, S64_MAX - 9), S64_MAX);
}

/* As if the clock had been set back when the core had decided that it is time. */
static struct tw_engine *engine_early(struct kunit *test, u32 clockid)
{
	struct tw_engine *e = engine_on(test, clockid, TICK);

	arm_in(test, HOUR);
	hrtimer_cancel(&e->hrtimer);
	KUNIT_ASSERT_EQ(test, tw_hrtimer_callback(&e->hrtimer), HRTIMER_NORESTART);
	return e;
}

static const struct clock settable_clocks[] = {
	{ CLOCK_REALTIME, "CLOCK_REALTIME" },
	{ CLOCK_TAI, "CLOCK_TAI" },
};

KUNIT_ARRAY_PARAM(settable, settable_clocks, clock_desc);

static void a_callback_that_comes_early_starts_nothing(struct kunit *test)
{
	const struct clock *clock = test->param_value;
	struct tw_engine *e;

	KUNIT_ASSERT_EQ(test, tw_clockset_init(), 0);
	e = engine_on(test, clock->clockid, TICK);
	arm_in(test, HOUR);
	/* Nobody is told until it was looked at. */
	mutex_lock(&tw_clockset_lock);
	hrtimer_cancel(&e->hrtimer);
	KUNIT_EXPECT_EQ(test, tw_hrtimer_callback(&e->hrtimer), HRTIMER_NORESTART);
	KUNIT_EXPECT_FALSE(test, hrtimer_active(&e->hrtimer));
	KUNIT_EXPECT_EQ(test, e->wake_tick, U64_MAX);
	mutex_unlock(&tw_clockset_lock);
	tw_clockset_exit();
}

static void after_a_callback_that_came_early_a_look_starts_the_hrtimer(struct kunit *test)
{
	const struct clock *clock = test->param_value;
	struct tw_engine *e;
	u64 next_ns;

	KUNIT_ASSERT_EQ(test, tw_clockset_init(), 0);
	e = engine_early(test, clock->clockid);
	flush_delayed_work(&tw_work);
	KUNIT_EXPECT_TRUE(test, hrtimer_is_queued(&e->hrtimer));
	next_ns = next(test);
	KUNIT_EXPECT_EQ(test, e->wake_tick << e->tick_shift, next_ns);
	tw_clockset_exit();
}

static void a_timer_armed_after_a_callback_that_came_early_starts_the_hrtimer(struct kunit *test)
{
	struct tw_engine *e;

	KUNIT_ASSERT_EQ(test, tw_clockset_init(), 0);
	e = engine_early(test, CLOCK_REALTIME);
	arm_in(test, HOUR / 2);
	KUNIT_EXPECT_TRUE(test, hrtimer_is_queued(&e->hrtimer));
	tw_clockset_exit();
}

static void on_a_clock_that_cannot_be_set_no_callback_is_early(struct kunit *test)
{
	struct tw_engine *e = engine_early(test, CLOCK_MONOTONIC);

	KUNIT_EXPECT_TRUE(test, hrtimer_is_queued(&e->hrtimer));
}

static void a_look_finds_a_wheel_without_timers_idle(struct kunit *test)
{
	struct tw_engine *e = engine_watching(test);

	tw_clockset_work(NULL);
	KUNIT_EXPECT_FALSE(test, hrtimer_active(&e->hrtimer));
	arm(test, TWHEEL_NEVER);
	tw_clockset_work(NULL);
	KUNIT_EXPECT_FALSE(test, hrtimer_active(&e->hrtimer));
	KUNIT_EXPECT_EQ(test, e->wake_tick, U64_MAX);
}

/* More than are told under one hold of the mutex, one of which goes in between. */
static void a_look_finds_each_of_many_wheels_once(struct kunit *test)
{
	u32 i, nr = 3 * TW_CLOCKSET_PIECE + 1;
	struct tw_engine **es = kunit_kcalloc(test, nr, sizeof(*es), GFP_KERNEL);
	struct bench *bench = test->priv;

	KUNIT_ASSERT_NOT_NULL(test, es);
	for (i = 0; i < nr; i++) {
		es[i] = engine_watching(test);
		bench->e = NULL;
		pretend(es[i], 1 + i);
	}
	tw_clockset_work(NULL);
	for (i = 0; i < nr; i++) {
		KUNIT_EXPECT_TRUE(test, es[i]->jumped);
		KUNIT_EXPECT_EQ(test, es[i]->jump_ns, 1 + i);
		tw_engine_destroy(es[i]);
	}
}

static void a_start_that_raced_with_the_callback_is_remembered(struct kunit *test)
{
	const struct clock *clock = test->param_value;
	struct tw_engine *e = engine_on(test, clock->clockid, TICK);
	u64 id = arm_in(test, HOUR), tick = e->wake_tick;

	/* It is at work on what it was queued for before, and finds this. */
	KUNIT_EXPECT_EQ(test, tw_hrtimer_callback(&e->hrtimer), HRTIMER_NORESTART);
	KUNIT_EXPECT_EQ(test, e->wake_tick, tick);
	KUNIT_EXPECT_EQ(test, cancel(e, id), 0);
	KUNIT_EXPECT_FALSE(test, hrtimer_active(&e->hrtimer));
}

/* Giving memory back */

/* All of them one after the other, so that the wheel keeps stale entries. */
static struct tw_engine *engine_that_was_large(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);
	u64 *ids = kunit_kcalloc(test, 2 * TW_KEEP_NODES, sizeof(*ids), GFP_KERNEL);
	u32 i;

	KUNIT_ASSERT_NOT_NULL(test, ids);
	for (i = 0; i < 2 * TW_KEEP_NODES; i++)
		ids[i] = arm(test, (1 + i * i) * TICK);
	KUNIT_EXPECT_FALSE(test, delayed_work_pending(&e->trim));
	for (i = 0; i < 2 * TW_KEEP_NODES; i++)
		KUNIT_ASSERT_EQ(test, cancel(e, ids[i]), 0);
	return e;
}

static void a_large_wheel_without_timers_gives_its_memory_back(struct kunit *test)
{
	struct tw_engine *e = engine_that_was_large(test);

	KUNIT_EXPECT_TRUE(test, delayed_work_pending(&e->trim));
	flush_delayed_work(&e->trim);
	KUNIT_EXPECT_EQ(test, e->timers.bytes, 0);
	KUNIT_EXPECT_EQ(test, e->wheel.nr_nodes, 0);
	verify(test);
}

static void a_wheel_that_gave_its_memory_back_goes_on(struct kunit *test)
{
	struct tw_engine *e = engine_that_was_large(test);

	advance(test, HOUR);
	flush_delayed_work(&e->trim);
	arm(test, HOUR + 1);
	arm(test, 2 * HOUR);
	arm(test, 0);
	verify(test);
	KUNIT_EXPECT_EQ(test, read_all(test)->nr, 1);
	advance(test, 2 * HOUR + TICK);
	KUNIT_EXPECT_EQ(test, read_all(test)->nr, 2);
}

static void a_wheel_that_has_timers_again_keeps_its_memory(struct kunit *test)
{
	struct tw_engine *e = engine_that_was_large(test);
	size_t bytes = e->timers.bytes;

	arm(test, HOUR);
	flush_delayed_work(&e->trim);
	KUNIT_EXPECT_EQ(test, e->timers.bytes, bytes);
	KUNIT_EXPECT_EQ(test, next(test), round_up(HOUR, TICK));
}

static void a_small_wheel_without_timers_keeps_its_memory(struct kunit *test)
{
	struct tw_engine *e = engine_manual(test);

	KUNIT_ASSERT_EQ(test, cancel(e, arm(test, HOUR)), 0);
	KUNIT_EXPECT_FALSE(test, delayed_work_pending(&e->trim));
}

static void an_engine_is_destroyed_before_it_gave_its_memory_back(struct kunit *test)
{
	struct tw_engine *e = engine_that_was_large(test);
	struct bench *bench = test->priv;

	cancel_delayed_work(&e->trim);
	schedule_delayed_work(&e->trim, 1);
	bench->e = NULL;
	tw_engine_destroy(e);
	/* Were it still to come, debugging kernels would tell now. */
	msleep(20);
}

/* Delays of readers */

static struct tw_engine *engine_delaying(struct kunit *test, u32 clockid, u64 tick_ns,
					 u64 delay_ns)
{
	struct twheel_setup setup = {
		.clockid = clockid,
		.capacity = CAPACITY,
		.tick_ns = tick_ns,
		.wake_batch = 1000,
		.wake_delay_ns = delay_ns,
	};
	struct tw_engine *e = engine_new(test);

	KUNIT_ASSERT_EQ(test, tw_engine_setup(e, &setup), 0);
	return e;
}

static void a_delay_is_not_rounded_to_the_tick(struct kunit *test)
{
	struct tw_engine *e = engine_delaying(test, TWHEEL_CLOCK_MANUAL,
					      BIT_ULL(TW_TICK_SHIFT_MAX), 1000);

	arm(test, 0);
	advance(test, 999);
	KUNIT_EXPECT_FALSE(test, tw_engine_readable(e));
	advance(test, 1000);
	KUNIT_EXPECT_TRUE(test, tw_engine_readable(e));
}

static void a_delay_is_on_a_clock_that_cannot_be_set(struct kunit *test)
{
	const struct clock *clock = test->param_value;
	struct tw_engine *e = engine_delaying(test, clock->clockid, TICK, HOUR);
	u64 before_ns = ktime_get_ns(), expires_ns;

	arm(test, 0);
	KUNIT_ASSERT_TRUE(test, hrtimer_is_queued(&e->announcer));
	expires_ns = ktime_to_ns(hrtimer_get_expires(&e->announcer));
	KUNIT_EXPECT_GE(test, expires_ns, before_ns + HOUR);
	KUNIT_EXPECT_LE(test, expires_ns, ktime_get_ns() + HOUR);
}

static void a_delay_too_short_for_an_hrtimer_is_none(struct kunit *test)
{
	struct tw_engine *e = engine_delaying(test, CLOCK_MONOTONIC, TICK,
					      TW_DELAY_MIN_NS - 1);

	arm(test, 0);
	KUNIT_EXPECT_TRUE(test, tw_engine_readable(e));
	KUNIT_EXPECT_FALSE(test, hrtimer_active(&e->announcer));
}

static void an_announced_queue_is_not_announced_later(struct kunit *test)
{
	struct tw_engine *e = engine_delaying(test, CLOCK_MONOTONIC, TICK, HOUR);
	u32 i;

	for (i = 0; i < 1000; i++)
		arm(test, 0);
	KUNIT_EXPECT_TRUE(test, tw_engine_readable(e));
	KUNIT_EXPECT_FALSE(test, hrtimer_active(&e->announcer));
}

static void a_delay_wakes_readers(struct kunit *test)
{
	const struct clock *clock = test->param_value;
	struct tw_engine *e = engine_delaying(test, clock->clockid, TICK, 2 * NSEC_PER_MSEC);

	arm(test, 0);
	KUNIT_EXPECT_TRUE(test, wait_until_readable(e));
}

/* Shares of a CPU */

static struct tw_share __percpu *shares_new(struct kunit *test)
{
	struct tw_share __percpu *shares = alloc_percpu(struct tw_share);

	KUNIT_ASSERT_TRUE(test, !!shares);
	return shares;
}

static void who_has_not_taken_much_does_not_wait(struct kunit *test)
{
	struct tw_share __percpu *shares = shares_new(test);
	u64 wait_ns;

	local_bh_disable();
	tw_share_charge(shares, ktime_get_ns(), TW_CREDIT_NS / 2 - TW_ENTRY_NS);
	wait_ns = tw_share_wait_ns(shares, 0);
	local_bh_enable();
	KUNIT_EXPECT_EQ(test, wait_ns, 0);
	free_percpu(shares);
}

static void who_has_taken_much_waits_for_as_long_again(struct kunit *test)
{
	struct tw_share __percpu *shares = shares_new(test);
	u64 begin_ns, free_at_ns, wait_ns;
	int i;

	local_bh_disable();
	begin_ns = ktime_get_ns();
	for (i = 0; i < 10; i++)
		tw_share_charge(shares, begin_ns + i * NSEC_PER_MSEC, NSEC_PER_MSEC);
	free_at_ns = this_cpu_ptr(shares)->free_at_ns;
	wait_ns = tw_share_wait_ns(shares, 0);
	local_bh_enable();
	KUNIT_EXPECT_EQ(test, free_at_ns, begin_ns + 20 * (NSEC_PER_MSEC + TW_ENTRY_NS));
	KUNIT_EXPECT_GT(test, wait_ns, TW_CREDIT_NS);
	free_percpu(shares);
}

static void what_was_long_ago_is_paid_for(struct kunit *test)
{
	struct tw_share __percpu *shares = shares_new(test);
	u64 wait_ns;

	local_bh_disable();
	tw_share_charge(shares, 1, NSEC_PER_USEC);
	wait_ns = tw_share_wait_ns(shares, 0);
	local_bh_enable();
	KUNIT_EXPECT_EQ(test, wait_ns, 0);
	free_percpu(shares);
}

static void a_machine_that_stood_still_is_not_charged_for(struct kunit *test)
{
	struct tw_share __percpu *shares = shares_new(test);
	u64 free_at_ns;

	local_bh_disable();
	tw_share_charge(shares, NSEC_PER_SEC, HOUR);
	free_at_ns = this_cpu_ptr(shares)->free_at_ns;
	local_bh_enable();
	KUNIT_EXPECT_EQ(test, free_at_ns, NSEC_PER_SEC + 2 * (TW_TOOK_MAX_NS + TW_ENTRY_NS));
	free_percpu(shares);
}

/* The time of each costs as many times more as there are who have to pay. */
static void of_many_who_flood_each_pays_for_all(struct kunit *test)
{
	struct tw_share __percpu *shares[3];
	u64 now_ns = 1ULL << 60, before_ns = 0, paid_ns = 0;
	u32 i, round;

	for (i = 0; i < 3; i++)
		shares[i] = shares_new(test);
	local_bh_disable();
	for (round = 0; round < 4; round++) {
		for (i = 0; i < 3; i++) {
			before_ns = this_cpu_ptr(shares[i])->free_at_ns;
			tw_share_charge(shares[i], now_ns, NSEC_PER_MSEC);
			paid_ns = this_cpu_ptr(shares[i])->free_at_ns - before_ns;
		}
	}
	local_bh_enable();
	KUNIT_EXPECT_EQ(test, paid_ns, 3 * 2 * (NSEC_PER_MSEC + TW_ENTRY_NS));
	for (i = 0; i < 3; i++)
		free_percpu(shares[i]);
}

static void who_has_to_wait_gets_a_turn_of_its_own(struct kunit *test)
{
	struct tw_share __percpu *shares = shares_new(test);
	u64 first_ns, second_ns, cost_ns = NSEC_PER_MSEC;

	local_bh_disable();
	this_cpu_ptr(shares)->free_at_ns = ktime_get_ns() + HOUR;
	first_ns = ktime_get_ns() + tw_share_wait_ns(shares, cost_ns);
	second_ns = ktime_get_ns() + tw_share_wait_ns(shares, cost_ns);
	local_bh_enable();
	KUNIT_EXPECT_GE(test, second_ns, first_ns + cost_ns);
	free_percpu(shares);
}

/* It was queued when there was nothing to pay for. */
static void a_callback_that_comes_when_the_share_is_used_up_waits(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);
	struct tw_share __percpu *shares = e->timers.user->share;
	u64 begin_ns = ktime_get_ns(), expires_ns;
	int cpu;

	arm_in(test, 2 * HOUR);
	hrtimer_cancel(&e->hrtimer);
	for_each_possible_cpu(cpu)
		per_cpu_ptr(shares, cpu)->free_at_ns = begin_ns + HOUR;
	KUNIT_EXPECT_EQ(test, tw_hrtimer_callback(&e->hrtimer), HRTIMER_NORESTART);
	expires_ns = ktime_to_ns(hrtimer_get_expires(&e->hrtimer));
	KUNIT_EXPECT_TRUE(test, hrtimer_is_queued(&e->hrtimer));
	KUNIT_EXPECT_GE(test, expires_ns, begin_ns + HOUR);
	KUNIT_EXPECT_LT(test, expires_ns, begin_ns + HOUR + HOUR / 2);
	for_each_possible_cpu(cpu)
		per_cpu_ptr(shares, cpu)->free_at_ns = 0;
}

/* Three flood a window. What another then pays who does, at the time told and again. */
static u64 paid_after_a_flood(struct kunit *test, u64 later_ns, u32 times)
{
	u64 now_ns = 1ULL << 61, before_ns = 0, paid_ns = 0;
	struct tw_share __percpu *shares[4];
	u32 i;

	for (i = 0; i < 4; i++)
		shares[i] = shares_new(test);
	local_bh_disable();
	for (i = 0; i < 6; i++)
		tw_share_charge(shares[i % 3], now_ns, NSEC_PER_MSEC);
	for (i = 0; i < times; i++) {
		before_ns = max(this_cpu_ptr(shares[3])->free_at_ns, now_ns + later_ns);
		tw_share_charge(shares[3], now_ns + later_ns, NSEC_PER_MSEC);
		paid_ns = this_cpu_ptr(shares[3])->free_at_ns - before_ns;
	}
	local_bh_enable();
	for (i = 0; i < 4; i++)
		free_percpu(shares[i]);
	return paid_ns;
}

static void who_floods_is_still_known_in_the_next_window(struct kunit *test)
{
	u64 paid_ns = paid_after_a_flood(test, BIT_ULL(TW_WINDOW_SHIFT), 2);

	KUNIT_EXPECT_EQ(test, paid_ns, 3 * 2 * (NSEC_PER_MSEC + TW_ENTRY_NS));
}

static void who_flooded_before_that_is_not_paid_for(struct kunit *test)
{
	u64 paid_ns = paid_after_a_flood(test, 2 * BIT_ULL(TW_WINDOW_SHIFT), 2);

	KUNIT_EXPECT_EQ(test, paid_ns, 2 * (NSEC_PER_MSEC + TW_ENTRY_NS));
}

static void who_has_nothing_to_pay_for_does_not_count(struct kunit *test)
{
	u64 paid_ns = paid_after_a_flood(test, 0, 1);

	KUNIT_EXPECT_EQ(test, paid_ns, 3 * 2 * (NSEC_PER_MSEC + TW_ENTRY_NS));
}

/* Until when a callback has its user leave its CPU alone. All before was paid for. */
static u64 paid_until_ns(struct tw_engine *e, struct hrtimer *hrtimer,
			 enum hrtimer_restart (*callback)(struct hrtimer *hrtimer))
{
	struct tw_share __percpu *shares = e->timers.user->share;
	u64 until_ns;

	local_bh_disable();
	this_cpu_ptr(shares)->free_at_ns = 0;
	callback(hrtimer);
	until_ns = this_cpu_ptr(shares)->free_at_ns;
	local_bh_enable();
	return until_ns;
}

static void a_callback_is_paid_for(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);
	u64 before_ns = ktime_get_ns();

	KUNIT_EXPECT_GE(test, paid_until_ns(e, &e->hrtimer, tw_hrtimer_callback),
			before_ns + 2 * TW_ENTRY_NS);
}

static void an_announcement_is_paid_for(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);
	u64 before_ns = ktime_get_ns();

	KUNIT_EXPECT_GE(test, paid_until_ns(e, &e->announcer, tw_announcer_callback),
			before_ns + 2 * TW_ENTRY_NS);
}

/* A wheel whose user may have no CPU for an hour, and which has a turn then. */
static struct tw_engine *engine_with_a_turn(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);
	struct tw_share __percpu *shares = e->timers.user->share;
	int cpu;

	for_each_possible_cpu(cpu)
		per_cpu_ptr(shares, cpu)->free_at_ns = ktime_get_ns() + HOUR;
	arm_in(test, 2 * HOUR);
	arm_in(test, NSEC_PER_MSEC);
	KUNIT_ASSERT_NE(test, e->turn_ns, 0);
	return e;
}

static void a_wheel_that_has_waited_for_its_turn_does_not_wait_again(struct kunit *test)
{
	struct tw_engine *e = engine_with_a_turn(test);

	hrtimer_cancel(&e->hrtimer);
	msleep(20);
	KUNIT_EXPECT_EQ(test, tw_hrtimer_callback(&e->hrtimer), HRTIMER_NORESTART);
	KUNIT_EXPECT_EQ(test, nr_ready(e), 1);
}

static void an_earlier_timer_does_not_lose_the_turn(struct kunit *test)
{
	struct tw_engine *e = engine_with_a_turn(test);
	u64 turn_ns = e->turn_ns, starts = get_stats(test)->hrtimer_starts;

	arm_in(test, NSEC_PER_MSEC / 2);
	KUNIT_EXPECT_GT(test, get_stats(test)->hrtimer_starts, starts);
	KUNIT_EXPECT_EQ(test, e->turn_ns, turn_ns);
}

static void a_wheel_is_not_woken_before_its_user_may_have_the_cpu(struct kunit *test)
{
	struct tw_engine *e = engine_on(test, CLOCK_MONOTONIC, TICK);
	struct tw_share __percpu *shares = e->timers.user->share;
	u64 begin_ns, expires_ns;
	int cpu;

	begin_ns = ktime_get_ns();
	for_each_possible_cpu(cpu)
		per_cpu_ptr(shares, cpu)->free_at_ns = begin_ns + HOUR;
	arm_in(test, NSEC_PER_MSEC);
	expires_ns = ktime_to_ns(hrtimer_get_expires(&e->hrtimer));
	for_each_possible_cpu(cpu)
		per_cpu_ptr(shares, cpu)->free_at_ns = 0;
	KUNIT_EXPECT_GE(test, expires_ns, begin_ns + HOUR);
	KUNIT_EXPECT_LE(test, expires_ns, ktime_get_ns() + HOUR);
}

static struct kunit_case engine_cases[] = {
	KUNIT_CASE_PARAM(a_timer_never_expires_early, tick_gen_params),
	KUNIT_CASE_PARAM(a_timer_expires_less_than_a_tick_late, tick_gen_params),
	KUNIT_CASE_PARAM(with_slack_a_timer_never_expires_early, tick_gen_params),
	KUNIT_CASE_PARAM(with_slack_a_timer_is_late_by_no_more_than_that_and_a_tick,
			 tick_gen_params),
	KUNIT_CASE_PARAM(next_tells_when_a_timer_fires, tick_gen_params),
	KUNIT_CASE_PARAM(a_record_tells_the_deadline_and_when_it_was_noticed,
			 tick_gen_params),
	KUNIT_CASE_PARAM(slack_chooses_the_roundest_tick, slack_gen_params),
	KUNIT_CASE_PARAM(a_deadline_that_has_passed_is_ready_at_once, passed_gen_params),
	KUNIT_CASE(records_come_in_order_of_expiry),
	KUNIT_CASE_PARAM(times_are_limited_and_do_not_overflow, limit_gen_params),
	KUNIT_CASE(a_parked_timer_outlives_the_end_of_the_clock),
	KUNIT_CASE_PARAM(missed_periods_are_told_by_the_policy, misfire_gen_params),
	KUNIT_CASE_PARAM(after_missed_periods_the_phase_is_kept, misfire_gen_params),
	KUNIT_CASE_PARAM(a_periodic_timer_does_not_drift, interval_gen_params),
	KUNIT_CASE(a_timer_armed_after_the_clock_was_set_back_expires_in_time),
	KUNIT_CASE(a_timer_armed_after_an_idle_time_goes_where_it_need_not_move),
	KUNIT_CASE(a_timer_read_after_the_clock_was_set_back_expires_in_time),
	KUNIT_CASE(a_clock_set_back_to_before_a_record_misses_no_period),
	KUNIT_CASE(a_period_that_ends_beyond_time_parks_the_timer),
	KUNIT_CASE_PARAM(an_unknown_id_is_refused, stray_gen_params),
	KUNIT_CASE_PARAM(an_unknown_id_changes_nothing, stray_gen_params),
	KUNIT_CASE(cancel_tells_whether_a_record_was_withdrawn),
	KUNIT_CASE(cancel_leaves_the_other_records_in_order),
	KUNIT_CASE(modify_tells_whether_a_record_was_withdrawn),
	KUNIT_CASE(modify_to_the_past_makes_ready),
	KUNIT_CASE(query_tells_what_was_armed),
	KUNIT_CASE(modify_replaces_all_but_the_user_data),
	KUNIT_CASE(a_bad_operation_does_not_stop_the_rest),
	KUNIT_CASE(many_operations_are_all_done),
	KUNIT_CASE(arming_beyond_the_capacity_is_refused),
	KUNIT_CASE(arming_beyond_the_limit_of_the_user_is_refused),
	KUNIT_CASE(a_second_engine_is_charged_as_the_first),
	KUNIT_CASE(an_engine_beyond_the_limit_of_the_user_is_refused),
	KUNIT_CASE(arming_without_memory_is_refused_and_changes_nothing),
	KUNIT_CASE(no_memory_is_taken_for_a_timer_if_one_was_freed_meanwhile),
	KUNIT_CASE(without_memory_there_is_no_engine),
	KUNIT_CASE(an_engine_without_memory_charges_nothing),
	KUNIT_CASE(a_second_setup_is_refused),
	KUNIT_CASE(a_setup_after_an_arm_is_refused),
	KUNIT_CASE_PARAM(the_tick_granted_is_the_largest_power_of_two_not_above,
			 grant_gen_params),
	KUNIT_CASE(the_manual_clock_does_not_go_back),
	KUNIT_CASE(there_are_five_clocks),
	KUNIT_CASE_PARAM(a_real_clock_is_not_advanced, clock_gen_params),
	KUNIT_CASE_PARAM(a_fault_while_reading_loses_nothing, room_gen_params),
	KUNIT_CASE_PARAM(a_fault_while_draining_loses_nothing, room_gen_params),
	KUNIT_CASE(a_reader_is_told_why_it_got_no_more),
	KUNIT_CASE(a_drained_timer_is_as_it_was_armed),
	KUNIT_CASE(draining_leaves_records_to_be_read),
	KUNIT_CASE(a_list_has_each_armed_timer_once),
	KUNIT_CASE(a_cursor_beyond_the_table_ends_the_list),
	KUNIT_CASE(the_counters_tell_what_was_done),
	KUNIT_CASE(readers_are_told_at_once_unless_they_asked_for_less),
	KUNIT_CASE(readers_are_told_when_the_batch_is_full),
	KUNIT_CASE(readers_are_told_when_the_delay_is_over),
	KUNIT_CASE(a_delay_begins_anew_with_the_queue),
	KUNIT_CASE(a_queue_that_was_emptied_is_not_announced),
	KUNIT_CASE(one_pass_expires_no_more_than_its_budget),
	KUNIT_CASE(every_timer_has_exactly_one_fate),
	KUNIT_CASE_PARAM(the_hrtimer_expires_what_is_due, clock_gen_params),
	KUNIT_CASE(the_hrtimer_is_queued_for_the_first_timer),
	KUNIT_CASE(only_an_earlier_timer_starts_the_hrtimer_again),
	KUNIT_CASE(a_passed_deadline_does_not_reach_the_hrtimer),
	KUNIT_CASE(a_parked_timer_does_not_reach_the_hrtimer),
	KUNIT_CASE(without_timers_no_hrtimer_is_queued),
	KUNIT_CASE(each_callback_queues_the_hrtimer_for_what_remains),
	KUNIT_CASE(after_it_was_stopped_the_hrtimer_is_started_again),
	KUNIT_CASE(an_unread_periodic_timer_costs_one_wakeup),
	KUNIT_CASE(the_callback_queues_the_hrtimer_for_what_remains),
	KUNIT_CASE(a_callback_that_finds_nothing_does_not_go_on),
	KUNIT_CASE(a_flood_takes_several_callbacks),
	KUNIT_CASE(an_engine_is_destroyed_with_its_hrtimer_queued),
	KUNIT_CASE(an_engine_is_destroyed_amid_a_flood),
	KUNIT_CASE_PARAM(a_set_of_the_clock_is_told_first, jump_gen_params),
	KUNIT_CASE(sets_of_the_clock_that_nobody_has_read_add_up),
	KUNIT_CASE(a_clock_that_was_not_set_is_not_told),
	KUNIT_CASE(a_fault_does_not_lose_a_set_of_the_clock),
	KUNIT_CASE(a_cancel_does_not_hush_a_set_of_the_clock),
	KUNIT_CASE(the_notifier_sees_to_it_that_a_set_is_told),
	KUNIT_CASE(while_no_clock_is_set_nobody_looks),
	KUNIT_CASE(a_wheel_watches_its_own_clock),
	KUNIT_CASE_PARAM(a_time_goes_to_the_host_within_its_limits, offset_gen_params),
	KUNIT_CASE(a_time_comes_from_the_host_within_its_limits),
	KUNIT_CASE_PARAM(a_callback_that_comes_early_starts_nothing,
			 settable_gen_params),
	KUNIT_CASE_PARAM(after_a_callback_that_came_early_a_look_starts_the_hrtimer,
			 settable_gen_params),
	KUNIT_CASE(a_timer_armed_after_a_callback_that_came_early_starts_the_hrtimer),
	KUNIT_CASE(on_a_clock_that_cannot_be_set_no_callback_is_early),
	KUNIT_CASE(a_look_finds_a_wheel_without_timers_idle),
	KUNIT_CASE(a_look_finds_each_of_many_wheels_once),
	KUNIT_CASE_PARAM(a_start_that_raced_with_the_callback_is_remembered,
			 clock_gen_params),
	KUNIT_CASE(a_large_wheel_without_timers_gives_its_memory_back),
	KUNIT_CASE(a_wheel_that_gave_its_memory_back_goes_on),
	KUNIT_CASE(a_wheel_that_has_timers_again_keeps_its_memory),
	KUNIT_CASE(a_small_wheel_without_timers_keeps_its_memory),
	KUNIT_CASE(an_engine_is_destroyed_before_it_gave_its_memory_back),
	KUNIT_CASE(a_delay_is_not_rounded_to_the_tick),
	KUNIT_CASE_PARAM(a_delay_is_on_a_clock_that_cannot_be_set, clock_gen_params),
	KUNIT_CASE(a_delay_too_short_for_an_hrtimer_is_none),
	KUNIT_CASE(an_announced_queue_is_not_announced_later),
	KUNIT_CASE_PARAM(a_delay_wakes_readers, clock_gen_params),
	KUNIT_CASE(who_has_not_taken_much_does_not_wait),
	KUNIT_CASE(who_has_taken_much_waits_for_as_long_again),
	KUNIT_CASE(what_was_long_ago_is_paid_for),
	KUNIT_CASE(a_machine_that_stood_still_is_not_charged_for),
	KUNIT_CASE(of_many_who_flood_each_pays_for_all),
	KUNIT_CASE(who_has_to_wait_gets_a_turn_of_its_own),
	KUNIT_CASE(a_callback_that_comes_when_the_share_is_used_up_waits),
	KUNIT_CASE(who_floods_is_still_known_in_the_next_window),
	KUNIT_CASE(who_flooded_before_that_is_not_paid_for),
	KUNIT_CASE(who_has_nothing_to_pay_for_does_not_count),
	KUNIT_CASE(a_callback_is_paid_for),
	KUNIT_CASE(an_announcement_is_paid_for),
	KUNIT_CASE(a_wheel_that_has_waited_for_its_turn_does_not_wait_again),
	KUNIT_CASE(an_earlier_timer_does_not_lose_the_turn),
	KUNIT_CASE(a_wheel_is_not_woken_before_its_user_may_have_the_cpu),
	{}
};

static struct kunit_suite engine_suite = {
	.name = "twheel-engine",
	.init = engine_test_init,
	.exit = engine_test_exit,
	.test_cases = engine_cases,
};

kunit_test_suite(engine_suite);
