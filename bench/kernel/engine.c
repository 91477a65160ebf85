// SPDX-License-Identifier: GPL-2.0
/*
 * What stands behind an ioctl of twheel: handles, states, limits, counters. One
 * operation under a hold of the lock, and 32. On the manual clock.
 */
#define NOTRACE		/* twheel.ko may be there, with events of the same names */

#include "../../module/engine.c"
#include "../../module/clockset.c"
#include "../../module/queue.c"
#include "../../module/share.c"
#include "../../module/timers.c"
#include "../../module/users.c"
#include "bench.h"

#define BATCH	32

unsigned long tw_user_memory_max;	/* no limit, as module/main.c has it */

/* A program has the id of a timer at hand, so it stands where the operation is told. */
#define PEER_TIMER(place)	(place)

static struct tw_engine *e;

static u64 peer_when(u64 ms)
{
	return e->manual_ns + ms * NSEC_PER_MSEC;
}

static inline void peer_arm(u32 i, u64 when)
{
	struct twheel_op op = {
		.opcode = TWHEEL_OP_ARM,
		.user_data = i,
		.expires_ns = when,
	};

	tw_engine_submit(e, &op, 1);
	bench.handle[i] = op.id;
}

static inline void peer_set(u32 i, u64 when)
{
	struct twheel_op op = {
		.opcode = TWHEEL_OP_MODIFY,
		.id = bench.handle[i],
		.expires_ns = when,
	};

	tw_engine_submit(e, &op, 1);
	if (op.res)
		peer_arm(i, when);
}

static inline void peer_cancel(u32 i)
{
	struct twheel_op op = { .opcode = TWHEEL_OP_CANCEL, .id = bench.handle[i] };

	tw_engine_submit(e, &op, 1);
}

static void peer_close(void)
{
	if (e)
		tw_engine_destroy(e);
	e = NULL;
}

/* With memory for all timers, for that is not what is measured. */
static int peer_open(void)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.clockid = TWHEEL_CLOCK_MANUAL,
		.tick_ns = 1 << 20,
		.capacity = bench.n,
		.wake_batch = 1,
	};
	int ret = -ENOMEM;
	u32 i;

	e = tw_engine_create(bench.n);
	if (IS_ERR(e)) {
		ret = PTR_ERR(e);
		e = NULL;
		goto out;
	}
	ret = tw_engine_setup(e, &setup);
	if (ret)
		goto out;
	for (i = 0; i < bench.n; i++)
		peer_arm(i, TWHEEL_NEVER);
	if (e->wheel.nr_armed < bench.n)
		ret = -ENOMEM;
	for (i = 0; i < bench.n; i++)
		peer_cancel(i);
out:
	if (ret)
		peer_close();
	return ret;
}

static inline u64 peer_earliest(void)
{
	u64 when = 0;

	tw_engine_next(e, &when);
	return when;
}

static u32 take_events(void *to, const void *records, size_t size, u32 nr)
{
	const struct twheel_event *events = records;
	u32 i;

	for (i = 0; i < nr; i++)
		bench_fire(&events[i].user_data);
	return nr;
}

/* As its hrtimer would have it, and the reader who is woken. */
static u64 peer_run(u64 until)
{
	u64 since = bench_time();
	enum tw_rest rest;
	u64 at;

	do {
		at = tw_tick_ns(e, wheel_next_bound(&e->wheel));
		tw_engine_advance(e, clamp(at, e->manual_ns, until));
		do {
			tw_engine_read(e, TW_READ_BATCH, take_events, NULL, &rest);
		} while (rest != TW_REST_NONE);
	} while (e->manual_ns < until);
	return bench_time() - since;
}

#define PEER_HAS_EARLIEST
#include "loops.h"

const struct peer peer_engine = {
	.name = "engine",
	.max_n = WHEEL_MAX_NODES,
	.places = true,
	.max_idle = BENCH_HOUR,
	PEER_LOOPS
};

static struct twheel_op batch_op(u16 opcode, u32 i)
{
	switch (opcode) {
	case TWHEEL_OP_ARM:
		return (struct twheel_op){
			.opcode = opcode,
			.user_data = i,
			.expires_ns = bench.when[i],
		};
	case TWHEEL_OP_MODIFY:
		return (struct twheel_op){
			.opcode = opcode,
			.id = bench.handle[i],
			.expires_ns = bench.when[i],
		};
	default:
		return (struct twheel_op){ .opcode = opcode, .id = bench.handle[i] };
	}
}

/* Each operation in turn on BATCH timers at a time. */
static struct cost batches(const u16 *opcodes, u32 nr_opcodes)
{
	static struct twheel_op ops[BATCH];
	u64 since = bench_time();
	u32 i, j, k, nr;

	for (i = 0; i < bench.nr && bench_time() - since < bench_patience(); i += nr) {
		nr = min_t(u32, BATCH, bench.nr - i);
		for (k = 0; k < nr_opcodes; k++) {
			for (j = 0; j < nr; j++)
				ops[j] = batch_op(opcodes[k], i + j);
			tw_engine_submit(e, ops, nr);
			for (j = 0; opcodes[k] == TWHEEL_OP_ARM && j < nr; j++)
				bench.handle[i + j] = ops[j].id;
		}
	}
	return (struct cost){ bench_time() - since, i };
}

static struct cost arm_batches(void)
{
	static const u16 opcodes[] = { TWHEEL_OP_ARM };

	return batches(opcodes, ARRAY_SIZE(opcodes));
}

static struct cost set_batches(void)
{
	static const u16 opcodes[] = { TWHEEL_OP_MODIFY };

	return batches(opcodes, ARRAY_SIZE(opcodes));
}

static struct cost cancel_batches(void)
{
	static const u16 opcodes[] = { TWHEEL_OP_CANCEL };

	return batches(opcodes, ARRAY_SIZE(opcodes));
}

static struct cost pair_batches(void)
{
	static const u16 opcodes[] = { TWHEEL_OP_CANCEL, TWHEEL_OP_ARM };

	return batches(opcodes, ARRAY_SIZE(opcodes));
}

const struct peer peer_engine_32 = {
	.name = "engine-32",
	.max_n = WHEEL_MAX_NODES,
	.places = true,
	.open = peer_open,
	.close = peer_close,
	.when = peer_when,
	.arm = arm_batches,
	.set = set_batches,
	.cancel = cancel_batches,
	.pair = pair_batches,
	.run = peer_run,
};
