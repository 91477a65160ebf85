// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of module/wheel.c in user space, against the oracle of rig.h.
 *
 * Prints TAP. "test_wheel -h" tells how to run one test or one seed alone.
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

#define TIME_LIMIT	300	/* in seconds, for a test or a seed */
#define DRIVE_CHUNKS	5

static struct {
	const char *program;
	jmp_buf failed;
	u64 seed;
	u32 step;
	bool driving;
	u32 nr_seeds;
	u32 nr_steps;
} run = { .nr_seeds = 2, .nr_steps = 600 };

static void give_up(void)
{
	if (run.driving)
		printf("# at step %u of seed %llu; again: %s -s %llu -n %u\n", run.step,
		       (unsigned long long)run.seed, run.program,
		       (unsigned long long)run.seed, run.nr_steps);
	longjmp(run.failed, 1);
}

static u32 below(u32 n)
{
	return rnd() % n;
}

/* The random driver */

enum op {
	OP_ARM, OP_LATER, OP_EARLIER, OP_SAME, OP_CANCEL, OP_CANCEL_FIRST,
	OP_LATER_FIRST, OP_PIECE, OP_DRAIN, OP_WAIT, OP_JUMP, OP_BACK, OP_FORWARD,
	OP_NEXT, OP_EXACT, OP_GROW, OP_CROWD, NR_OPS
};

enum distance {
	NEAR, MIDDLE, POWER, BOUNDARY, FAR, SHARED, END, NR_DISTANCES
};

/* How often an operation is drawn, and how far away the timers are. */
static const struct profile {
	u8 ops[NR_OPS];
	u8 distances[NR_DISTANCES];
} profiles[] = {
	{	/* a bit of everything */
		{ 20, 6, 6, 2, 8, 2, 2, 20, 3, 10, 6, 1, 3, 6, 2, 1, 1 },
		{ 4, 3, 3, 3, 3, 2, 1 },
	}, {	/* crowded slots, mostly half open */
		{ 20, 8, 8, 2, 8, 2, 2, 40, 1, 6, 3, 1, 2, 4, 1, 1, 5 },
		{ 4, 1, 0, 1, 0, 8, 0 },
	}, {	/* time-outs: pushed later or cancelled, rarely expiring */
		{ 25, 30, 2, 1, 25, 3, 3, 10, 1, 6, 1, 0, 5, 3, 1, 1, 1 },
		{ 2, 6, 2, 1, 1, 2, 0 },
	}, {	/* a clock that cannot be trusted */
		{ 20, 6, 4, 1, 6, 1, 1, 20, 3, 10, 6, 12, 4, 6, 2, 1, 1 },
		{ 4, 4, 1, 2, 1, 2, 1 },
	}, {	/* far timers and long idle times */
		{ 20, 6, 6, 1, 8, 2, 2, 20, 4, 6, 12, 1, 3, 4, 2, 1, 0 },
		{ 1, 1, 6, 4, 8, 1, 2 },
	}, {	/* the exact earliest timer, again and again */
		{ 15, 6, 10, 1, 6, 6, 6, 6, 1, 4, 2, 1, 3, 40, 6, 1, 2 },
		{ 4, 2, 1, 1, 1, 6, 0 },
	},
};

static u32 draw(const u8 *weights, u32 nr)
{
	u32 i, sum = 0;

	for (i = 0; i < nr; i++)
		sum += weights[i];
	sum = below(sum);
	for (i = 0; sum >= weights[i]; i++)
		sum -= weights[i];
	return i;
}

/* A tick after that which the wheel knows. */
static u64 draw_expiry(const struct profile *p)
{
	u64 distance = 1, width;

	switch (draw(p->distances, NR_DISTANCES)) {
	case NEAR:
		distance = below(2 * SLOTS);
		break;
	case MIDDLE:
		distance = below(20 * SLOTS * SLOTS);
		break;
	case POWER:
		distance = (1ULL << below(64)) + below(3) - 1;
		break;
	case BOUNDARY:
		width = WIDTH(below(WHEEL_LEVELS));
		distance = width - rig.told % width + below(3) - 1;
		break;
	case FAR:
		distance = rnd() >> below(64);
		break;
	case SHARED:
		width = below(2) ? SLOTS : 3 * SLOTS * SLOTS + 1;
		distance = width - rig.told % width;
		break;
	case END:
		distance = U64_MAX - rig.told - below(3);
		break;
	}
	return add(rig.told, max(distance, 1));
}

/* An armed timer, or WHEEL_NONE. */
static u32 draw_armed(bool first)
{
	u64 earliest = first ? rig_earliest() : 0;
	u32 i, index = below(rig.w.nr_nodes);

	for (i = 0; i < rig.w.nr_nodes; i++) {
		if (rig.armed[index] && (!first || rig_due(index) == earliest))
			return index;
		index = (index + 1) % rig.w.nr_nodes;
	}
	return WHEEL_NONE;
}

/* The wheel need not be told the time before every call, but all set-backs. */
static void drive_tell(void)
{
	if (rig.tick < rig.told || below(4))
		rig_forward();
}

static void drive_move(enum op op, u32 index, const struct profile *p)
{
	u64 due = rig.due[index], expires;

	if (op == OP_EARLIER && due > rig.told + 1)
		expires = below(2) ? rig.told + 1 + rnd() % (due - rig.told - 1) :
				     draw_expiry(p);
	else if (op == OP_SAME)
		expires = due;
	else
		expires = add(due, draw_expiry(p) - rig.told);
	rig_arm(index, max(expires, rig.told + 1));
}

static void drive_time(enum op op, const struct profile *p)
{
	u64 earliest = rig_earliest(), end = rig_end(), tick = rig.tick;

	if (op == OP_BACK) {
		/* This is the only thing that brings the end nearer, as much. */
		rig.tick -= min(tick, below(4) ? below(3 * SLOTS) :
					       rnd() >> below(64));
		if (below(2))
			rig_forward();
		return;
	}
	if (op == OP_JUMP && earliest != U64_MAX && earliest > tick)
		tick = add(earliest - 1, below(3));
	else if (op == OP_JUMP)
		tick = draw_expiry(p);
	else
		tick = add(tick, below(below(8) ? 4 : 3 * SLOTS));
	rig.tick = max(rig.tick, min(tick, end));
}

static void drive_advance(u32 budget)
{
	u64 bound = wheel_next_bound(&rig.w), visits = rig.visits;
	bool idle = rig.nr_armed && rig.tick >= rig.told && bound > rig.tick;
	bool all = rig_piece(budget);

	if (idle && budget) {
		EXPECT(all);
		EXPECT_EQ(rig.visits, visits);
	}
}

/* Many timers of one tick. */
static void drive_crowd(const struct profile *p)
{
	u64 expires = draw_expiry(p);
	u32 nr = below(4 * ENTRIES) + 2;

	while (nr--)
		rig_arm(below(rig.w.nr_nodes), expires);
}

static void drive_step(const struct profile *p)
{
	enum op op = draw(p->ops, NR_OPS);
	u32 index;

	switch (op) {
	case OP_ARM:
	case OP_CROWD:
		drive_tell();
		if (op == OP_ARM)
			rig_arm(below(rig.w.nr_nodes), draw_expiry(p));
		else
			drive_crowd(p);
		break;
	case OP_LATER:
	case OP_LATER_FIRST:
	case OP_EARLIER:
	case OP_SAME:
		drive_tell();
		index = draw_armed(op == OP_LATER_FIRST);
		if (index != WHEEL_NONE)
			drive_move(op, index, p);
		break;
	case OP_CANCEL:
	case OP_CANCEL_FIRST:
		index = draw_armed(op == OP_CANCEL_FIRST);
		if (index != WHEEL_NONE)
			rig_cancel(index);
		break;
	case OP_PIECE:
		drive_advance(below(6));
		break;
	case OP_DRAIN:
		rig_advance(rig.tick, below(4) ? PLENTY : 1 + below(9));
		break;
	case OP_FORWARD:
		rig_forward();
		break;
	case OP_NEXT:
		rig_next(below(6));
		break;
	case OP_EXACT:
		if (rig.w.open == WHEEL_NONE)
			rig_exact();
		break;
	case OP_GROW:
		if (rig.w.nr_nodes < DRIVE_CHUNKS * WHEEL_CHUNK_NODES && !below(8))
			rig_grow();
		break;
	default:
		drive_time(op, p);
	}
}

static void drive(u64 seed)
{
	const struct profile *p = &profiles[seed / ARRAY_SIZE(starts) %
					    ARRAY_SIZE(profiles)];
	u64 start = starts[seed % ARRAY_SIZE(starts)];

	run.seed = seed;
	rig_random = seed;
	run.driving = true;
	alarm(TIME_LIMIT);
	if (rig.room < DRIVE_CHUNKS)
		rig_alloc(DRIVE_CHUNKS);
	rig_start(start, 1);
	for (run.step = 0; run.step < run.nr_steps; run.step++) {
		if (rig.tick >= rig_end() || rig.w.now >= U64_MAX - 2) {
			rig_verify();
			rig_start(start, 1 + below(2));
		}
		drive_step(p);
		rig_verify();
	}
	if (rig.tick < rig.told)
		rig_forward();
	if (rig.tick < rig_end())
		rig_run_out(1 + below(50));
	run.driving = false;
}

static void drive_start(u32 start)
{
	u32 i;

	for (i = 0; i < run.nr_seeds * ARRAY_SIZE(profiles); i++)
		drive(start + i * ARRAY_SIZE(starts));
}

#define DRIVE_TEST(n)				\
	static void drive_from_start_##n(void)	\
	{					\
		drive_start(n);			\
	}

DRIVE_TEST(0)
DRIVE_TEST(1)
DRIVE_TEST(2)
DRIVE_TEST(3)
DRIVE_TEST(4)
DRIVE_TEST(5)
DRIVE_TEST(6)
DRIVE_TEST(7)

/* Directed tests. P1 and so on are numbers in the list of pitfalls of timer code. */

/* A lone timer costs one opening and one visit, however far away and however slowly. */
static void lone(u64 start, u64 due)
{
	rig_start(start, 1);
	rig_arm(0, due);
	if (start / SLOTS == due / SLOTS)
		EXPECT_EQ(node_of(0)->slot, due % SLOTS);
	EXPECT_EQ(wheel_next_bound(&rig.w), due);
	if (due - 1 > start && rnd() % 4) {
		rig_advance(start + 1 + rnd() % (due - 1 - start), 1);
		rig_advance(due - 1, 1);
		EXPECT_EQ(rig.visits, 0);
		EXPECT_EQ(wheel_next_bound(&rig.w), due);
	}
	EXPECT_EQ(rig_exact(), due);
	rig_advance(due + (rnd() % 4 ? 0 : rnd() % (U64_MAX - due)), PLENTY);
	EXPECT_EQ(rig.fired, 1);
	EXPECT_EQ(rig.visits, 2);
}

/* P2, P17 */
static void boundaries(void)
{
	u32 level, to;
	u64 start, due;
	int i, j;

	for (level = 0; level < WHEEL_LEVELS; level++) {
		for (to = 0; to < WHEEL_LEVELS; to++) {
			for (i = 0; i < 9; i++) {
				start = WIDTH(level) * (i / 3 ? i / 3 * SLOTS - 1 : 1) +
					i % 3 - 1;
				for (j = 0; j < 15; j++) {
					due = start + j % 3 - 1;
					if (j < 6)
						due += WIDTH(to) * (j / 3 ? 1 : SLOTS - 1);
					else if (j < 12)
						due += WIDTH(to) * (SLOTS + j / 9);
					else
						due += WIDTH(to) - start % WIDTH(to);
					if (due > start && due < U64_MAX)
						lone(start, due);
				}
			}
		}
	}
}

/* P2 */
static void exhaustive(void)
{
	u64 limit = min(SLOTS * SLOTS * SLOTS, 600) * 2 + 2, start, due;

	if (WHEEL_LEVEL_BITS == 6)
		limit = 140;
	else if (WHEEL_LEVEL_BITS == 3)
		limit = 260;
	for (start = 0; start < limit; start++)
		for (due = start + 1; due < limit + 2; due++)
			lone(start, due);
}

/* P4, P5 */
static void extremes(void)
{
	static const u64 dues[] = {
		(1ULL << 31) - 1, 1ULL << 31, (1ULL << 32) - 1, 1ULL << 32,
		(1ULL << 60) - 1, 1ULL << 60, INT64_MAX - 1ULL, INT64_MAX,
		INT64_MAX + 1ULL, INT64_MAX + 2ULL, U64_MAX / 64 * 63,
		U64_MAX - 64, U64_MAX - 2, U64_MAX - 1,
	};
	u32 i, j;

	for (i = 0; i < ARRAY_SIZE(starts); i++) {
		for (j = 0; j < ARRAY_SIZE(dues); j++)
			if (dues[j] > starts[i])
				lone(starts[i], dues[j]);
		/* All together: they come in order, with bounded cascades. */
		rig_start(starts[i], 1);
		for (j = 0; j < ARRAY_SIZE(dues); j++)
			if (dues[j] > starts[i])
				rig_arm(j, dues[j]);
		rig_advance(U64_MAX - 1, 3);
		EXPECT_EQ(rig.nr_armed, 0);
		EXPECT(rig.visits <= (u64)ARRAY_SIZE(dues) * 2 * WHEEL_LEVELS);
	}
}

/* U64_MAX is "never": the wheel says the same of no timer and of one due then. */
static void end_of_time(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(starts); i++) {
		rig_start(starts[i], 1);
		rig_arm(0, U64_MAX);
		rig_arm(1, U64_MAX - 1);
		EXPECT_EQ(rig_exact(), U64_MAX - 1);
		rig_advance(U64_MAX - 1, 1);
		EXPECT_EQ(rig.fired, 1);
		EXPECT_EQ(rig_exact(), U64_MAX);
		EXPECT_EQ(wheel_next_bound(&rig.w), U64_MAX);
		rig_arm(2, U64_MAX);
		rig_advance(U64_MAX, 1);
		EXPECT_EQ(rig.fired, 1);
		EXPECT_EQ(rig.nr_armed, 2);
		EXPECT_EQ(rig_exact(), U64_MAX);
		rig_cancel(0);
		rig_cancel(2);
		rig_verify();
	}
}

/* Set-backs use up positions: at their end timers wait for ever, none is early. */
static void end_of_positions(void)
{
	u64 back, start = U64_MAX - 10000;
	u32 i;

	for (back = 1; back < 10000; back *= 3) {
		rig_start(start, 1);
		for (i = 0; i < 40; i++)
			rig_arm(i, start + 9000 + 25 * i);
		rig_advance(start + 5000, 3);
		rig.tick = start + 5000 - min(back, 5000);
		rig_forward();
		rig_verify();
		rig_arm(40, rig.tick + 1);
		rig_arm(41, U64_MAX - 1);
		rig_arm(42, U64_MAX);
		for (i = 0; i < 500; i++) {
			rig_advance(rig.tick + min(20, U64_MAX - 1 - rig.tick), 3);
			rig_verify();
			rig_exact();
			/* To arm is safe even there. */
			if (rig.tick < U64_MAX - 1)
				rig_arm(43 + i % 10, rig.tick + 1);
			rig_verify();
		}
		for (i = 0; i < 60; i++)
			if (rig.armed[i])
				rig_cancel(i);
		rig_advance(rig.tick, 3);
	}
}

/* P12 */
static void long_jumps(void)
{
	u32 level, i;

	/* Empty, and with a timer beyond: nothing at all is visited. */
	for (i = 0; i < 64; i++) {
		rig_start(0, 1);
		rig_advance(1ULL << i, 1);
		rig_arm(0, U64_MAX - 1);
		rig_advance((1ULL << i) + ((U64_MAX - (1ULL << i)) >> 1), 1);
		rig_verify();
		EXPECT_EQ(rig.visits, 0);
	}
	/* A timer in every slot: they and their slots are visited, not the ticks. */
	rig_start(0, 12);
	for (level = 0, i = 0; level < WHEEL_LEVELS && i < rig.w.nr_nodes; level++) {
		u64 digit;

		for (digit = 1; digit < SLOTS && i < rig.w.nr_nodes; digit++)
			if (digit << (level * WHEEL_LEVEL_BITS) >>
			    (level * WHEEL_LEVEL_BITS) == digit)
				rig_arm(i++, digit * WIDTH(level));
	}
	rig_verify();
	rig_advance(U64_MAX - 1, PLENTY);
	EXPECT_EQ(rig.fired, i);
	EXPECT_EQ(rig.visits, 2 * i);
}

/* Half a day is opened once, though the wheel is advanced often before. */
static void half_a_day(void)
{
	const u64 day = 82395937;	/* in ticks of 2^20 ns */
	u64 start, tick;

	for (start = 12345; start < 12345 + 10 * day; start += day + 1) {
		rig_start(start, 1);
		rig_arm(0, start + day / 2);
		for (tick = start; tick < start + day / 2; tick += 9973) {
			rig_advance(tick, 1);
			EXPECT_EQ(wheel_next_bound(&rig.w), start + day / 2);
		}
		EXPECT_EQ(rig.visits, 0);
		rig_advance(start + day / 2, PLENTY);
		EXPECT_EQ(rig.fired, 1);
		EXPECT_EQ(rig.visits, 2);
	}
}

/* Pushed to later any number of times, a timer costs one visit and opening more. */
static void moved_later(void)
{
	u64 first, later, i;

	for (first = 1; first < 1ULL << 40; first = first * 3 + 1) {
		rig_start(77, 1);
		rig_arm(0, 77 + first);
		for (later = first, i = 0; i < 100; i++) {
			u32 entry = node_of(0)->entry;

			later += i * 100 + 1;
			rig_arm(0, 77 + later);
			EXPECT_EQ(node_of(0)->entry, entry);
			rig_verify();
		}
		EXPECT_EQ(wheel_next_bound(&rig.w), 77 + first);
		rig_advance(77 + later - 1, 1);
		EXPECT_EQ(wheel_next_bound(&rig.w), 77 + later);
		EXPECT_EQ(rig.fired, 0);
		EXPECT_EQ(rig.visits, 2);
		rig_advance(77 + later, 1);
		EXPECT_EQ(rig.fired, 1);
		EXPECT_EQ(rig.visits, 4);
	}
}

/* A cancelled timer takes up its entry, but not if it is due before the slot. */
static void rearmed(void)
{
	u64 base = SLOTS * SLOTS;
	u32 entry;

	rig_start(0, 1);
	rig_arm(0, base + 2);
	rig_arm(1, base + 3);
	rig_cancel(0);
	rig_verify();
	EXPECT_EQ(rig_exact(), base + 3);
	/* The search has dropped the entry. */
	EXPECT_EQ(node_of(0)->entry, WHEEL_NONE);
	rig_arm(0, base + 1);
	rig_arm(2, base + 3);
	entry = node_of(0)->entry;
	rig_cancel(0);
	rig_arm(0, base + 1);
	EXPECT_EQ(node_of(0)->entry, entry);
	EXPECT_EQ(rig_exact(), base + 1);
	rig_cancel(0);
	rig_arm(0, base * 2);
	EXPECT_EQ(node_of(0)->entry, entry);
	rig_cancel(0);
	rig_arm(0, base);
	EXPECT_EQ(node_of(0)->entry, entry);
	EXPECT_EQ(wheel_next_bound(&rig.w), base);
	rig_cancel(0);
	rig_arm(0, base - 1);
	EXPECT(node_of(0)->slot != node_of(1)->slot);
	rig_verify();
	EXPECT_EQ(rig_exact(), base - 1);
	rig_run_out(1);
	EXPECT_EQ(rig.fired, 3);
}

/* One tick, armed in one go: first come, first served, cascades or not. */
static void in_turn(void)
{
	static const u64 distances[] = { 1, SLOTS + 1, SLOTS * SLOTS * SLOTS + 5 };
	struct wheel_batch batch;
	u32 i, j, nr;

	for (i = 0; i < ARRAY_SIZE(distances); i++) {
		rig_start(SLOTS - 2, 4);
		for (j = 0; j < rig.w.nr_nodes; j++)
			rig_arm(j * 7 % rig.w.nr_nodes, SLOTS - 2 + distances[i]);
		rig.tick += distances[i];
		for (nr = 0; nr < rig.w.nr_nodes;) {
			batch = (struct wheel_batch) { .budget = 5 };
			wheel_advance(&rig.w, rig.tick, &batch);
			for (j = 0; j < batch.nr; j++, nr++) {
				EXPECT_EQ(batch.expired[j],
					  nr * 7 % rig.w.nr_nodes);
				rig_expired(batch.expired[j]);
			}
		}
		rig_verify();
	}
}

/* First tick of a slot that has room for some scores of ticks. */
static u64 wide_slot(void)
{
	u64 width = SLOTS * SLOTS;

	while (width < 64)
		width *= SLOTS;
	return width;
}

/*
 * P7, P9: opens a slot of @nr timers, visits @visits of them, does something to one,
 * finishes. Half of the timers are due when the slot is opened.
 */
static void half_open(u32 nr, u32 visits, u32 index, u32 what)
{
	u64 base = wide_slot(), end = 2 * base - 1;
	u32 i;

	rig_start(3, (nr + WHEEL_CHUNK_NODES) / WHEEL_CHUNK_NODES);
	for (i = 0; i < nr; i++)
		rig_arm(i, i % 2 ? base : base + 1 + i * 5 % (base - 1));
	rig.tick = base;
	rig_piece(visits + 1);
	switch (what) {
	case 0:	/* cancel */
		if (rig.armed[index])
			rig_cancel(index);
		break;
	case 1:	/* cancel all */
		for (i = 0; i < nr; i++)
			if (rig.armed[i])
				rig_cancel(i);
		break;
	case 2:	/* to the next tick: is in the open slot, or moves to a finer one */
		rig_arm(index, base + 1);
		break;
	case 3:	/* to the end of the open slot */
		rig_arm(index, end);
		break;
	case 4:	/* out of the open slot */
		rig_arm(index, end + 1 + SLOTS * 3);
		break;
	case 5:	/* cancel and arm again */
		if (rig.armed[index])
			rig_cancel(index);
		rig_arm(index, base + 2);
		break;
	case 6:	/* all at once, to later */
		for (i = 0; i < nr; i++)
			rig_arm(i, base + 1 + i % 3);
		break;
	case 7:	/* one more, into the width of the open slot, and out of it again */
		rig_arm(nr, end);
		rig_verify();
		rig_arm(nr, base + 1);
		break;
	}
	rig_verify();
	EXPECT(!rig_next(PLENTY) || rig.w.open == WHEEL_NONE || !rig.nr_armed);
	rig_advance(base, 2);
	rig_verify();
	rig_exact();
	rig_advance(base + 1, PLENTY);
	rig_advance(end, 7);
	rig_advance(end + SLOTS * 4, PLENTY);
	EXPECT_EQ(rig.nr_armed, 0);
	rig_verify();
}

static void neighbours(void)
{
	u32 nr = 2 * ENTRIES + 2, visits, index, what, by = nr / 12 + 1;

	for (visits = 0; visits <= nr; visits += visits < 3 ? 1 : by)
		for (what = 0; what < 8; what++)
			for (index = 0; index < nr; index += by)
				half_open(nr, visits, index, what);
}

/* P10, P11: a million timers of one slot, due together or spread over it. */
static void multitude(bool spread)
{
	u32 nr = WHEEL_LEVEL_BITS == 6 ? 1000000 : 50000, i, chunks, budget = 97;
	u64 width = SLOTS * SLOTS * SLOTS, calls = 0;

	rig_free();
	chunks = (nr + WHEEL_CHUNK_NODES - 1) / WHEEL_CHUNK_NODES;
	rig_alloc(chunks);
	rig.big = true;
	rig_start(0, chunks);
	for (i = 0; i < nr; i++)
		rig_arm(i, width + (spread ? rnd() % width : 5));
	/* rig_piece() sees to it that no call exceeds the budget */
	rig.tick = 2 * width;
	while (!rig_piece(budget))
		calls++;
	EXPECT_EQ(rig.fired, nr);
	EXPECT_EQ(rig.nr_armed, 0);
	EXPECT(calls <= rig.visits / min(budget, WHEEL_BATCH) + 1);
	EXPECT(rig.visits <= nr * 8ULL + 2 * WHEEL_NR_SLOTS * SLOTS * SLOTS);
	EXPECT(rig.cascaded <= nr * 3ULL);
	EXPECT(!wheel_check(&rig.w));
	rig_free();
}

static void multitude_together(void)
{
	multitude(false);
}

static void multitude_spread(void)
{
	multitude(true);
}

static void budgets(void)
{
	struct wheel_batch batch = { .budget = 0 };
	u32 budget, i;
	u64 visits;

	for (budget = 1; budget < 80; budget++) {
		rig_start(1, 2);
		for (i = 0; i < 128; i++)
			rig_arm(i, 2 + i % 5 * SLOTS * SLOTS);
		rig.tick = 2 + 5 * SLOTS * SLOTS;
		EXPECT(!wheel_advance(&rig.w, rig.tick, &batch));
		EXPECT_EQ(batch.nr, 0);
		do {
			rig_verify();
			visits = rig.visits;
		} while (!rig_piece(budget) && rig.visits > visits);
		EXPECT_EQ(rig.nr_armed, 0);
	}
	/* A batch that is full ends the call, too. */
	rig_start(0, 2);
	for (i = 0; i < 128; i++)
		rig_arm(i, 1);
	rig.tick = 1;
	EXPECT(!rig_piece(PLENTY));
	EXPECT_EQ(rig.fired, WHEEL_BATCH);
	EXPECT(!rig_piece(PLENTY));
	EXPECT_EQ(rig.fired, 2 * WHEEL_BATCH);
	EXPECT(rig_piece(PLENTY));
}

/* P18 */
static void next_exact(void)
{
	u64 far = SLOTS * SLOTS * SLOTS, wide = wide_slot();
	u32 i;

	/* The first that is visited is the earliest: the others need not be. */
	rig_start(0, 1);
	for (i = 0; i < 40; i++)
		rig_arm(i, wide + i);
	EXPECT(rig_next(1));
	rig_cancel(0);
	EXPECT(!rig_next(39));
	EXPECT(rig_next(1));
	rig_start(5, 2);
	EXPECT_EQ(rig_exact(), U64_MAX);
	for (i = 0; i < 100; i++)
		rig_arm(i, far + i % 50);
	EXPECT_EQ(rig_exact(), far);
	rig_arm(100, far - 1);
	EXPECT_EQ(rig_exact(), far - 1);
	rig_arm(101, far + 1000);
	EXPECT(rig_next(0));
	rig_cancel(100);
	EXPECT_EQ(rig_exact(), far);
	/* One of two of a tick goes, then the other; once by cancel, once by move. */
	for (i = 0; i < 50; i++) {
		rig_cancel(i);
		EXPECT_EQ(rig_exact(), far + i);
		rig_verify();
		rig_arm(50 + i, far + 60 + i);
		EXPECT_EQ(rig_exact(), far + (i < 49 ? i + 1 : 60));
		rig_verify();
	}
	/* After a cascade. */
	rig_advance(far + 60, PLENTY);
	rig_verify();
	EXPECT_EQ(rig_exact(), far + 61);
	/* To earlier, within the slot that is searched and before it. */
	rig_arm(99, far + 61);
	EXPECT_EQ(rig_exact(), far + 61);
	rig_cancel(51);
	EXPECT_EQ(rig_exact(), far + 61);
	rig_cancel(99);
	EXPECT_EQ(rig_exact(), far + 62);
	for (i = 0; i < 128; i++)
		if (rig.armed[i])
			rig_cancel(i);
	EXPECT_EQ(rig_exact(), U64_MAX);
	EXPECT_EQ(wheel_next_bound(&rig.w), U64_MAX);
	rig_arm(3, far + 62);
	EXPECT_EQ(rig_exact(), far + 62);
	rig_run_out(PLENTY);
	EXPECT_EQ(rig_exact(), U64_MAX);
	rig_verify();
}

/* A search in pieces: something happens to every timer at every point of it. */
static void next_in_pieces(void)
{
	u64 base = wide_slot();
	u32 nr = ENTRIES + 4, visits, index, what, i, calls;

	for (visits = 0; visits <= nr; visits++) {
		for (index = 0; index < nr * 7; index++) {
			what = index / nr;
			rig_start(0, 1);
			for (i = 0; i < nr; i++)
				rig_arm(i, base + 1 + (i * 13 + 3) % nr);
			/* Stale: the first entry's minimum is gone. */
			for (i = 0; i < nr; i++)
				if (rig.due[i] == base + 1)
					rig_cancel(i);
			EXPECT(visits >= nr || !rig_next(visits));
			i = index % nr;
			switch (what) {
			case 0:
				if (rig.armed[i])
					rig_cancel(i);
				break;
			case 1:
				rig_arm(i, base);
				break;
			case 2:
				rig_arm(i, base * 3);
				break;
			case 3:
				rig_arm(i, base - 1);
				break;
			case 4:
				rig_arm(nr, base + 1);
				break;
			case 5:
				rig_arm(i, add(rig.armed[i] ? rig.due[i] : base, 1));
				break;
			case 6:	/* another takes its place, which may have been passed */
				rig_arm(i, base - 1);
				rig_advance(base - 1, PLENTY);
				break;
			}
			rig_verify();
			for (calls = 0; !rig_next(1); calls++) {
				rig_verify();
				EXPECT(calls <= 3 * nr);
			}
			EXPECT(rig_next(0));
			rig_verify();
			rig_advance(base * 4, PLENTY);
			EXPECT_EQ(rig.nr_armed, 0);
		}
	}
}

/* P29 */
static void rearm_at_once(void)
{
	u64 start = SLOTS - 2;
	u32 i, rounds;

	rig_start(start, 2);
	for (i = 0; i < 100; i++)
		rig_arm(i, start + 1 + i);
	for (rounds = 0; rounds < 100; rounds++) {
		u64 calls = 0;

		rig.tick++;
		while (!rig_piece(3)) {
			EXPECT(++calls <= 100);
			if (!rig.armed[0])
				rig_arm(0, rig.tick + 1);
		}
		if (!rig.armed[0])
			rig_arm(0, rig.tick + 1);
		EXPECT_EQ(rig_earliest(), rig.tick + 1);
	}
	EXPECT_EQ(rig.nr_armed, 1);
	EXPECT_EQ(rig.fired, 199);
}

/* P31: nothing but cancelled timers: memory and visits are bounded, no wake-ups. */
static void cancelled_only(void)
{
	u64 cancels = 0;
	u32 i;

	rig_start(0, 1);
	for (i = 0; i < 50000; i++) {
		u32 index = below(rig.w.nr_nodes);

		if (rig.armed[index]) {
			rig_cancel(index);
			cancels++;
		} else {
			rig_arm(index, rig.tick + 20 * SLOTS + below(1000));
		}
		EXPECT(rig_entries() <= rig.w.nr_nodes);
		if (rig.nr_armed > 8) {
			for (index = 0; !rig.armed[index]; index++)
				;
			rig_cancel(index);
			cancels++;
		}
		rig.tick += below(3);
		rig_piece(PLENTY);
	}
	EXPECT(rig.visits - rig.fired * (2 * WHEEL_LEVELS) / 2 <=
	       cancels * (WHEEL_LEVELS + 2));
	for (i = 0; i < rig.w.nr_nodes; i++)
		if (rig.armed[i])
			rig_cancel(i);
	EXPECT_EQ(wheel_next_bound(&rig.w), U64_MAX);
	/* Without any expiry: one visit and at most one opening each. */
	rig_start(0, 1);
	for (i = 0; i < 50000; i++) {
		rig_arm(i % 64, rig.tick + 50 + below(1000));
		rig_cancel(i % 64);
		EXPECT_EQ(wheel_next_bound(&rig.w), U64_MAX);
		rig.tick += below(20);
		rig_piece(PLENTY);
	}
	EXPECT_EQ(rig.fired, 0);
	EXPECT_EQ(rig.cascaded, 0);
	EXPECT(rig.visits <= 2 * 50000);
}

/* P15: the ticks of timers are the caller's, whatever its clock does. */
static void set_back(void)
{
	u64 backs[] = { 1, 2, SLOTS - 1, SLOTS, SLOTS * SLOTS + 1, 9000000 }, start, i;
	u32 b, j;

	for (start = 10000000; start < 10000000 + 3 * SLOTS; start++) {
		for (b = 0; b < ARRAY_SIZE(backs); b++) {
			rig_start(start, 1);
			for (j = 0; j < 40; j++)
				rig_arm(j, start + 1 + j * j);
			rig_advance(start + 100, 5);
			rig.tick = start + 100 - backs[b];
			rig_forward();
			rig_verify();
			EXPECT_EQ(rig_exact(), start + 101);
			rig_arm(41, rig.tick + 1);
			rig_arm(42, rig.tick + 2 * SLOTS);
			rig_verify();
			EXPECT_EQ(rig_exact(), rig.tick + 1);
			for (i = 0; i < 5; i++)
				rig_advance(rig.tick + 1, 1);
			EXPECT(!rig.armed[41]);
			/* And forth again: all that is due, at once. */
			rig_advance(start + 101, 5);
			EXPECT(!rig.armed[10]);
			EXPECT(rig.armed[11]);
			rig_verify();
			rig_run_out(4);
		}
	}
}

/* P30: a wheel that has not been told the time for long, or not that it is idle. */
static void stale_now(void)
{
	u32 i, forward;

	for (forward = 0; forward < 2; forward++) {
		for (i = 0; i < 50; i++) {
			rig_start(0, 2);
			/* Cancelled: the wheel cannot go past what they left. */
			rig_arm(0, SLOTS + i);
			rig_arm(1, SLOTS * SLOTS + i);
			rig_cancel(0);
			rig_cancel(1);
			rig.tick = 1000000 + 7 * i;
			if (forward)
				rig_forward();
			rig_arm(2, rig.tick + 1);
			rig_arm(3, rig.tick + 2);
			rig_arm(4, rig.tick + 40);
			rig_verify();
			EXPECT(wheel_next_bound(&rig.w) <= rig.tick + 1);
			rig_advance(rig.tick, 1);
			EXPECT_EQ(rig.fired, 0);
			EXPECT_EQ(wheel_next_bound(&rig.w), rig.tick + 1);
			rig_advance(rig.tick + 1, 1);
			EXPECT_EQ(rig.fired, 1);
			rig_advance(rig.tick + 1, 1);
			EXPECT_EQ(rig.fired, 2);
			rig_verify();
		}
	}
	/* wheel_forward() goes as far as it can, so that timers are filed finely. */
	rig_start(0, 1);
	rig_arm(0, SLOTS * SLOTS);
	rig.tick = SLOTS * SLOTS + 5;
	rig_forward();
	EXPECT_EQ(rig.w.now, SLOTS * SLOTS - 1);
	rig_cancel(0);
	rig_advance(rig.tick, 9);
	EXPECT_EQ(rig.w.now, rig.tick);
	rig.tick += 1000;
	rig_forward();
	EXPECT_EQ(rig.w.now, rig.tick);
	rig_arm(0, rig.tick + 1);
	EXPECT_EQ(node_of(0)->slot / SLOTS, rig.tick % SLOTS == SLOTS - 1);
}

/* A timer in each slot, then all but full blocks, and one of the slots half open. */
static void enough_blocks(void)
{
	u32 chunks = (WHEEL_NR_SLOTS * (2 * ENTRIES + 1)) / WHEEL_CHUNK_NODES + 1;
	u32 level, each, i, extra;

	chunks = min(chunks, 700);
	for (extra = 0; extra < 3; extra++) {
		rig_start(0, chunks);
		each = 1 + extra * ENTRIES;
		i = 0;
		for (level = 0; level < WHEEL_LEVELS; level++) {
			u64 digit;

			for (digit = 1; digit < SLOTS; digit++) {
				u64 due = digit * WIDTH(level);
				u32 j;

				if (due / WIDTH(level) != digit)
					break;
				for (j = 0; j < each && i < rig.w.nr_nodes; j++)
					rig_arm(i++, add(due, j && level));
			}
		}
		rig_verify();
		rig.big = true;		/* for speed */
		rig_advance(4 * SLOTS * SLOTS, 3 * ENTRIES + 2);
		rig.big = false;
		rig_verify();
	}
	EXPECT_EQ(wheel_blocks_for(0), 0);
	EXPECT_EQ(wheel_blocks_for(64), min(64, 64 / ENTRIES + WHEEL_NR_SLOTS + 1));
	EXPECT(wheel_blocks_for(WHEEL_MAX_NODES) <= WHEEL_MAX_NODES);
}

/* Each invariant is broken in turn; wheel_check() has to name it. */

/* In every fault: a slot of these timers with two full blocks and two begun ones. */
#define CROWD		(3 * ENTRIES + 1)
#define LONER		CROWD
#define IDLE		(CROWD + 1)

static u32 crowd_slot(void)
{
	return rig.w.open != WHEEL_NONE ? rig.w.open : node_of(0)->slot;
}

static struct wheel_slot *crowd(void)
{
	return &rig.w.slots[crowd_slot()];
}

static struct wheel_block *crowd_block(u32 nr)
{
	u32 block = crowd()->first;

	while (nr--)
		block = wheel_block(&rig.w, block)->next;
	return wheel_block(&rig.w, block);
}

static void break_chain_start(void)
{
	crowd()->first = rig.w.nr_blocks;
}

static void break_chain(void)
{
	crowd_block(1)->next = rig.w.nr_blocks + 1000000;
}

static void break_chain_into_circle(void)
{
	crowd_block(1)->next = crowd()->first;
}

static void break_prev(void)
{
	crowd_block(1)->prev = WHEEL_NONE;
}

static void break_block_empty(void)
{
	crowd_block(3)->end = 0;
}

static void break_block_overfull(void)
{
	crowd_block(3)->end = ENTRIES + 1;
}

static void break_block_begun(void)
{
	crowd_block(0)->begin = 1;
}

static void break_second_block_begun(void)
{
	crowd_block(1)->begin = 1;
}

static void break_block_not_full(void)
{
	crowd_block(1)->end--;
}

static void break_index(void)
{
	crowd_block(0)->index[0] = rig.w.nr_nodes;
}

static void break_entry_place(void)
{
	node_of(0)->entry++;
}

static void break_entry_twice(void)
{
	crowd_block(1)->index[0] = crowd_block(0)->index[0];
}

static void break_entry_slot(void)
{
	node_of(1)->slot++;
}

static void break_min(void)
{
	crowd()->min++;
}

static void break_expires(void)
{
	node_of(CROWD - 1)->expires = SLOTS * SLOTS;
}

static void break_open_expires(void)
{
	node_of(CROWD - 1)->expires = SLOTS * SLOTS - 1;
}

static void break_open_overdue(void)
{
	node_of(CROWD - 1)->expires = rig.w.now - 1;
}

static void break_last(void)
{
	crowd()->last = crowd()->first;
}

static void break_exact(void)
{
	u32 i;

	for (i = 0; i < CROWD; i++) {
		if (node_of(i)->expires == crowd()->min) {
			node_of(i)->armed = 0;
			rig.w.nr_armed--;
		}
	}
}

static void break_levels(void)
{
	rig.w.nonempty ^= BIT_ULL(crowd_slot() / WHEEL_LEVEL_SLOTS);
}

static void break_levels_empty(void)
{
	rig.w.nonempty |= BIT_ULL(0);
}

static void break_slots(void)
{
	rig.w.occupied[crowd_slot() / WHEEL_LEVEL_SLOTS] |= 1;
}

static void break_slot_missing(void)
{
	u32 level = crowd_slot() / WHEEL_LEVEL_SLOTS;

	rig.w.occupied[level] = 0;
	rig.w.nonempty &= ~BIT_ULL(level);
}

static void break_open(void)
{
	rig.w.open = 0;
}

static void break_now(void)
{
	rig.w.now = crowd()->min;
}

static void break_min_before(void)
{
	crowd()->min = SLOTS * SLOTS - 1;
}

static void break_min_after(void)
{
	rig.w.slots[node_of(LONER)->slot].min = U64_MAX;
}

static void break_free(void)
{
	rig.w.free_block = rig.w.nr_blocks;
}

static void break_free_into_circle(void)
{
	wheel_block(&rig.w, rig.w.free_block)->next = rig.w.free_block;
}

static void break_lost(void)
{
	rig.w.free_block = wheel_block(&rig.w, rig.w.free_block)->next;
}

static void break_few(void)
{
	rig.w.nr_nodes += 100 * ENTRIES;
}

static void break_armed_nowhere(void)
{
	node_of(IDLE)->armed = 1;
	rig.w.nr_armed++;
}

static void break_armed_count(void)
{
	rig.w.nr_armed--;
}

static void break_filed_nowhere(void)
{
	node_of(IDLE)->entry = 0;
}

static const struct fault {
	void (*make)(void);
	const char *message;
	u8 open;	/* the slot is half open; else its minimum is exact */
	u8 entries;	/* fewest entries of a block with which it can be made */
} faults[] = {
	{ break_chain_start, "a chain of blocks leads astray", 0, 1 },
	{ break_chain, "a chain of blocks leads astray", 0, 1 },
	{ break_chain_into_circle, "a block does not lead back", 0, 1 },
	{ break_prev, "a block does not lead back", 0, 1 },
	{ break_block_empty, "a block has no entry or too many", 0, 1 },
	{ break_block_overfull, "a block has no entry or too many", 0, 1 },
	{ break_block_begun, "a block was begun outside the open slot", 0, 2 },
	{ break_second_block_begun, "a block was begun outside the open slot", 1, 2 },
	{ break_block_not_full, "a block before the last is not full", 0, 2 },
	{ break_index, "an entry names no node", 0, 1 },
	{ break_entry_place, "a node does not name its entry", 0, 1 },
	{ break_entry_twice, "a node does not name its entry", 0, 1 },
	{ break_entry_slot, "a node does not name its entry", 0, 1 },
	{ break_min, "a timer is due before its slot's minimum", 0, 1 },
	{ break_expires, "a timer is due before its slot's minimum", 0, 1 },
	{ break_open_expires, "a timer is due before its slot", 1, 1 },
	{ break_open_overdue, "a timer is due before its slot's minimum", 1, 1 },
	{ break_last, "a chain does not end with its last block", 0, 1 },
	{ break_exact, "a minimum that was searched for is not exact", 0, 1 },
	{ break_levels, "the mask of levels is wrong", 0, 1 },
	{ break_levels_empty, "the mask of levels is wrong", 0, 1 },
	{ break_slots, "the mask of slots is wrong", 0, 1 },
	{ break_slot_missing, "the mask of slots is wrong", 0, 1 },
	{ break_open, "the open slot is empty", 0, 1 },
	{ break_now, "a slot has been passed by", 0, 1 },
	{ break_min_before, "a minimum lies outside its slot", 0, 1 },
	{ break_min_after, "a minimum lies outside its slot", 0, 1 },
	{ break_free, "the list of free blocks leads astray", 0, 1 },
	{ break_free_into_circle, "the list of free blocks leads astray", 0, 1 },
	{ break_lost, "a block is lost", 0, 1 },
	{ break_few, "there are too few blocks", 0, 1 },
	{ break_armed_nowhere, "an armed timer has no entry", 0, 1 },
	{ break_armed_count, "the count of armed timers is wrong", 0, 1 },
	{ break_filed_nowhere, "a node names an entry that is not there", 0, 1 },
};

static void checker_fails(void)
{
	const char *wrong;
	u32 f, i;

	for (f = 0; f < ARRAY_SIZE(faults); f++) {
		if (faults[f].entries > ENTRIES)
			continue;
		rig_start(0, 2);
		for (i = 0; i < CROWD; i++)
			rig_arm(i, SLOTS * SLOTS + (i % 2 ? SLOTS + 1 : SLOTS));
		rig_arm(LONER, SLOTS * SLOTS * SLOTS + 1);
		if (faults[f].open) {
			for (i = 0; i < CROWD; i++)
				rig_arm(i, 2 * SLOTS * SLOTS - 1);
			rig.tick = SLOTS * SLOTS + SLOTS;
			EXPECT(!rig_piece(ENTRIES > 1 ? 2 : 3));
			EXPECT_EQ(rig.w.open, crowd_slot());
		} else {
			EXPECT_EQ(rig_exact(), SLOTS * SLOTS + SLOTS);
		}
		rig_verify();
		faults[f].make();
		wrong = wheel_check(&rig.w);
		if (!wrong || strcmp(wrong, faults[f].message))
			FAIL("wheel_check() says \"%s\" instead of \"%s\"",
			     wrong ? wrong : "all is well", faults[f].message);
	}
}

static const struct test {
	void (*test)(void);
	const char *name;
} tests[] = {
	{ boundaries, "A lone timer is exact and costs two visits around every level boundary" },
	{ exhaustive, "A lone timer is exact from each of the first ticks to each other" },
	{ extremes, "Ticks at the ends of 31, 32, 60, 63 and 64 bits are exact" },
	{ end_of_time, "A timer at U64_MAX never expires and hides no other" },
	{ end_of_positions, "When set-backs have used up all positions, no timer is early" },
	{ long_jumps, "A long jump costs what lies in it, not how long it is" },
	{ half_a_day, "A timer half a day away is opened once" },
	{ moved_later, "A timer that was moved to later a hundred times costs one more visit" },
	{ rearmed, "A timer keeps its entry unless it is armed to before its slot" },
	{ in_turn, "Timers of one tick expire in the order in which they were armed" },
	{ neighbours, "Timers of a half open slot can be cancelled, moved and joined" },
	{ multitude_together, "A multitude due at one tick expires in bounded pieces" },
	{ multitude_spread, "A multitude in one coarse slot cascades in bounded pieces" },
	{ budgets, "No call exceeds its budget and each gets on" },
	{ next_exact, "The earliest timer is known after cancels, moves and cascades" },
	{ next_in_pieces, "A search for the earliest timer can be interrupted by anything" },
	{ rearm_at_once, "A timer re-armed whenever it expires lets others have their turn" },
	{ cancelled_only, "Timers that are only ever cancelled cost two visits and no wake-up" },
	{ set_back, "Timers expire at their ticks when the clock is set back and forth" },
	{ stale_now, "A wheel that lags behind the clock expires in time" },
	{ enough_blocks, "The blocks suffice when every slot has a block begun" },
	{ checker_fails, "wheel_check() names every invariant that is broken" },
	{ drive_from_start_0, "Random load from tick 0 agrees with the oracle" },
	{ drive_from_start_1, "Random load from the end of level 0 agrees with the oracle" },
	{ drive_from_start_2, "Random load from the end of level 1 agrees with the oracle" },
	{ drive_from_start_3, "Random load from 2^32 - 2 agrees with the oracle" },
	{ drive_from_start_4, "Random load from 2^60 - 2 agrees with the oracle" },
	{ drive_from_start_5, "Random load from 2^63 - 2 agrees with the oracle" },
	{ drive_from_start_6, "Random load from 2^64 - 5000 agrees with the oracle" },
	{ drive_from_start_7, "Random load from an odd place agrees with the oracle" },
};

static bool passes(void (*test)(void))
{
	rig_random = 1;
	run.driving = false;
	alarm(TIME_LIMIT);
	if (setjmp(run.failed)) {
		rig_free();
		return false;
	}
	test();
	rig_free();
	return true;
}

static u64 seed_alone;

static void drive_alone(void)
{
	drive(seed_alone);
}

static int usage(int status)
{
	printf("Usage: %s [-t TEST] [-s SEED] [-r SEEDS] [-n STEPS]\n"
	       "  -t TEST   run the test of this number alone\n"
	       "  -s SEED   run the random load of this seed alone\n"
	       "  -r SEEDS  seeds of every start and every profile (now %u)\n"
	       "  -n STEPS  steps of every random load (now %u)\n",
	       run.program, run.nr_seeds, run.nr_steps);
	return status;
}

int main(int argc, char **argv)
{
	u32 i, only = 0, failed = 0;
	bool alone = false;
	int option;

	setvbuf(stdout, NULL, _IOLBF, 0);
	run.program = argv[0];
	while ((option = getopt(argc, argv, "t:s:r:n:h")) != -1) {
		switch (option) {
		case 't':
			only = strtoul(optarg, NULL, 0);
			break;
		case 's':
			seed_alone = strtoull(optarg, NULL, 0);
			alone = true;
			break;
		case 'r':
			run.nr_seeds = strtoul(optarg, NULL, 0);
			break;
		case 'n':
			run.nr_steps = strtoul(optarg, NULL, 0);
			break;
		default:
			return usage(option == 'h' ? 0 : 2);
		}
	}
	if (optind < argc || only > ARRAY_SIZE(tests))
		return usage(2);
	printf("# levels of %u bits, blocks of %u entries\n", WHEEL_LEVEL_BITS,
	       WHEEL_BLOCK_ENTRIES);
	if (alone) {
		failed = !passes(drive_alone);
		printf("%sok 1 - Random load of seed %llu agrees with the oracle\n1..1\n",
		       failed ? "not " : "", (unsigned long long)seed_alone);
		return failed;
	}
	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		bool passed;

		if (only && only != i + 1)
			continue;
		passed = passes(tests[i].test);
		failed += !passed;
		printf("%sok %u - %s\n", passed ? "" : "not ", i + 1, tests[i].name);
	}
	if (!only)
		printf("1..%zu\n", ARRAY_SIZE(tests));
	return failed != 0;
}
