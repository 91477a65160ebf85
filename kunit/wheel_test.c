// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the wheel.
 *
 * An array that is searched from end to end says what has to come of each step, and
 * wheel_check() has to find nothing wrong.
 */
#include "../module/wheel.c"

#include "twheel_kunit.h"

#define SLOTS		((u64)WHEEL_LEVEL_SLOTS)
#define ENTRIES		WHEEL_BLOCK_ENTRIES
#define PLENTY		1000000

/* Enough for a timer in each slot. */
#define CHUNKS		(WHEEL_NR_SLOTS / WHEEL_CHUNK_NODES)
#define NODES		(CHUNKS * WHEEL_CHUNK_NODES)
#define BLOCK_CHUNKS	DIV_ROUND_UP(NODES, WHEEL_CHUNK_BLOCKS)

/**
 * struct rig - a wheel and what it should do
 * @w:        the wheel
 * @nodes:    memory for its nodes
 * @blocks:   memory for its blocks
 * @due:      when a timer expires
 * @armed:    whether it is armed
 * @tick:     the caller's clock
 * @told:     what the wheel last heard of it
 * @fired:    timers that expired
 * @cascaded: timers that were put into a finer slot
 * @visits:   budget that was used up
 */
struct rig {
	struct wheel w;
	void *nodes[CHUNKS];
	struct wheel_block *blocks[BLOCK_CHUNKS];
	u64 due[NODES];
	bool armed[NODES];
	u64 tick;
	u64 told;
	u32 fired;
	u32 cascaded;
	u32 visits;
};

static int wheel_test_init(struct kunit *test)
{
	struct rig *rig = kunit_kzalloc(test, sizeof(*rig), GFP_KERNEL);
	u32 i;

	if (!rig)
		return -ENOMEM;
	for (i = 0; i < CHUNKS; i++) {
		rig->nodes[i] = kunit_kzalloc(test, WHEEL_NODE_CHUNK_SIZE, GFP_KERNEL);
		if (!rig->nodes[i])
			return -ENOMEM;
	}
	for (i = 0; i < BLOCK_CHUNKS; i++) {
		rig->blocks[i] = kunit_kzalloc(test, WHEEL_BLOCK_CHUNK_SIZE, GFP_KERNEL);
		if (!rig->blocks[i])
			return -ENOMEM;
	}
	test->priv = rig;
	return 0;
}

/* Makes a new wheel, with not one block more than there have to be. */
static struct rig *rig_start(struct kunit *test, u64 tick, u32 chunks)
{
	struct rig *rig = test->priv;
	struct wheel *w = &rig->w;
	u32 i, nr_blocks = wheel_blocks_for(chunks * WHEEL_CHUNK_NODES);

	wheel_init(w, tick);
	w->nodes = rig->nodes;
	w->blocks = rig->blocks;
	while (w->nr_blocks < nr_blocks)
		wheel_add_blocks(w, rig->blocks[w->nr_blocks >> WHEEL_BLOCK_SHIFT]);
	for (; w->nr_blocks > nr_blocks; w->nr_blocks--)
		w->free_block = wheel_block(w, w->free_block)->next;
	for (i = 0; i < chunks; i++) {
		memset(rig->nodes[i], 0, WHEEL_NODE_CHUNK_SIZE);
		wheel_add_nodes(w, rig->nodes[i]);
	}
	memset(rig->armed, 0, sizeof(rig->armed));
	rig->tick = tick;
	rig->told = tick;
	rig->fired = 0;
	rig->cascaded = 0;
	rig->visits = 0;
	return rig;
}

/* As set-backs of the clock bring the end of time nearer, which never comes. */
static u64 rig_due(const struct rig *rig, u32 index)
{
	return rig->due[index] >= U64_MAX - rig->w.bias ? U64_MAX : rig->due[index];
}

static u64 rig_earliest(const struct rig *rig)
{
	u64 earliest = U64_MAX;
	u32 i;

	for (i = 0; i < rig->w.nr_nodes; i++)
		if (rig->armed[i])
			earliest = min(earliest, rig_due(rig, i));
	return earliest;
}

static void rig_verify(struct kunit *test)
{
	struct rig *rig = test->priv;
	const char *wrong = wheel_check(&rig->w);
	const struct wheel_node *node;
	u32 i, nr_armed = 0;

	KUNIT_ASSERT_TRUE_MSG(test, !wrong, "wheel_check(): %s", wrong);
	for (i = 0; i < rig->w.nr_nodes; i++) {
		node = wheel_node(&rig->w, i);
		nr_armed += rig->armed[i];
		if (node->armed != rig->armed[i] ||
		    (node->armed && node->expires != rig->due[i]))
			KUNIT_FAIL(test, "timer %u is not as it was left", i);
	}
	KUNIT_ASSERT_EQ(test, rig->w.nr_armed, nr_armed);
	KUNIT_ASSERT_LE(test, wheel_next_bound(&rig->w), rig_earliest(rig));
}

static void rig_forward(struct rig *rig)
{
	wheel_forward(&rig->w, rig->tick);
	rig->told = rig->tick;
}

static void rig_arm(struct rig *rig, u32 index, u64 expires)
{
	wheel_arm(&rig->w, index, expires);
	rig->due[index] = expires;
	rig->armed[index] = true;
}

/* What is not armed has no expiry: the owner keeps something else there. */
static void rig_disarmed(struct rig *rig, u32 index)
{
	rig->armed[index] = false;
	wheel_node(&rig->w, index)->expires = 0x5a5a5a5a5a5a5a5aULL;
}

static void rig_cancel(struct rig *rig, u32 index)
{
	wheel_cancel(&rig->w, wheel_node(&rig->w, index));
	rig_disarmed(rig, index);
}

static void rig_expired(struct kunit *test, u32 index)
{
	struct rig *rig = test->priv;

	KUNIT_ASSERT_LT(test, index, rig->w.nr_nodes);
	KUNIT_ASSERT_TRUE_MSG(test, rig->armed[index], "timer %u was not armed", index);
	KUNIT_ASSERT_LE_MSG(test, rig_due(rig, index), rig->tick, "timer %u is early",
			    index);
	KUNIT_ASSERT_EQ_MSG(test, rig_due(rig, index), rig_earliest(rig),
			    "timer %u is out of order", index);
	rig_disarmed(rig, index);
	rig->fired++;
}

/* One call of wheel_advance(). */
static bool rig_piece(struct kunit *test, u32 budget)
{
	struct rig *rig = test->priv;
	struct wheel_batch batch = { .budget = budget };
	bool all = wheel_advance(&rig->w, rig->tick, &batch);
	u32 i;

	rig->told = rig->tick;
	KUNIT_ASSERT_LE(test, batch.budget, budget);
	KUNIT_ASSERT_LE(test, batch.nr, WHEEL_BATCH);
	KUNIT_ASSERT_LE(test, batch.nr + batch.cascaded, budget - batch.budget);
	for (i = 0; i < batch.nr; i++)
		rig_expired(test, batch.expired[i]);
	rig->cascaded += batch.cascaded;
	rig->visits += budget - batch.budget;
	if (!all)
		KUNIT_ASSERT_TRUE(test, !batch.budget || batch.nr == WHEEL_BATCH);
	else if (rig_earliest(rig) != U64_MAX)
		KUNIT_ASSERT_GT(test, rig_earliest(rig), rig->tick);
	return all;
}

static void rig_advance(struct kunit *test, u64 tick, u32 budget)
{
	struct rig *rig = test->priv;
	u32 calls = 0;

	rig->tick = tick;
	while (!rig_piece(test, budget))
		KUNIT_ASSERT_LT(test, ++calls, 100 * NODES);
}

static void rig_run_out(struct kunit *test, u32 budget)
{
	struct rig *rig = test->priv;

	while (rig_earliest(rig) != U64_MAX) {
		rig_advance(test, max(rig_earliest(rig), rig->tick), budget);
		rig_verify(test);
	}
}

/* One call of wheel_next(): if it knows, it is right. */
static bool rig_next(struct kunit *test, u32 budget)
{
	struct rig *rig = test->priv;
	u64 expires = 1;
	bool known = wheel_next(&rig->w, &expires, budget);

	if (known)
		KUNIT_ASSERT_EQ(test, expires, rig_earliest(rig));
	return known;
}

/* Parameters */

static const struct start {
	u64 tick;
	const char *name;
} starts[] = {
	{ 0, "from tick 0" },
	{ SLOTS - 2, "from the end of level 0" },
	{ SLOTS * SLOTS - 2, "from the end of level 1" },
	{ (1ULL << 32) - 2, "from the end of 32 bits" },
	{ (1ULL << 60) - 2, "from the end of level 9" },
	{ (1ULL << 63) - 2, "from the end of 63 bits" },
	{ U64_MAX - 4999, "from shortly before the end of time" },
	{ 0x123456789abcdef0ULL, "from anywhere" },
};

static void start_desc(const struct start *start, char *desc)
{
	strscpy(desc, start->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(start, starts, start_desc);

static const u32 coarse_levels[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };

static void level_desc(const u32 *level, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "level %u", *level);
}

KUNIT_ARRAY_PARAM(coarse_level, coarse_levels, level_desc);

static const u32 budgets[] = { 1, 2, 3, 7, WHEEL_BATCH, PLENTY };

static void budget_desc(const u32 *budget, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "budget %u", *budget);
}

KUNIT_ARRAY_PARAM(budget, budgets, budget_desc);

/* A lone timer, around every boundary of every level */

/* Calls @look with a timer armed for each of these ticks in turn. */
static void sweep(struct kunit *test, void (*look)(struct kunit *test, u64 due))
{
	const struct start *start = test->param_value;
	u64 dues[5], width;
	u32 level, i;
	int off;

	for (level = 0; level < WHEEL_LEVELS; level++) {
		width = 1ULL << level * WHEEL_LEVEL_BITS;
		dues[0] = start->tick + width;
		dues[1] = round_down(start->tick, width) + width;
		dues[2] = start->tick + (SLOTS - 1) * width;
		dues[3] = start->tick + (SLOTS + 1) * width;
		/* The end of the level; that of the last one is the end of time. */
		dues[4] = start->tick | (SLOTS * width - 1);
		for (i = 0; i < ARRAY_SIZE(dues); i++) {
			for (off = -1; off <= 1; off++) {
				if (dues[i] + off <= start->tick ||
				    dues[i] + off == U64_MAX)
					continue;
				rig_start(test, start->tick, 1);
				rig_arm(test->priv, 0, dues[i] + off);
				rig_verify(test);
				look(test, dues[i] + off);
			}
		}
	}
}

static void look_before(struct kunit *test, u64 due)
{
	struct rig *rig = test->priv;

	rig_advance(test, due - 1, PLENTY);
	KUNIT_ASSERT_EQ(test, rig->fired, 0);
}

static void a_timer_never_expires_before_its_tick(struct kunit *test)
{
	sweep(test, look_before);
}

static void look_at_tick(struct kunit *test, u64 due)
{
	struct rig *rig = test->priv;

	rig_advance(test, due - 1, PLENTY);
	rig_advance(test, due, PLENTY);
	KUNIT_ASSERT_EQ(test, rig->fired, 1);
}

static void a_timer_expires_at_its_tick(struct kunit *test)
{
	sweep(test, look_at_tick);
}

static void look_late(struct kunit *test, u64 due)
{
	struct rig *rig = test->priv;

	rig_advance(test, U64_MAX - 1, PLENTY);
	KUNIT_ASSERT_EQ(test, rig->fired, 1);
}

static void a_timer_expires_however_late_the_wheel_is(struct kunit *test)
{
	sweep(test, look_late);
}

/* One to open the slot, one for the entry, and none before they are due. */
static void look_visits(struct kunit *test, u64 due)
{
	struct rig *rig = test->priv;

	rig_advance(test, rig->tick + (due - rig->tick) / 2, 1);
	rig_advance(test, due - 1, 1);
	KUNIT_ASSERT_EQ(test, rig->visits, 0);
	rig_advance(test, due, PLENTY);
	KUNIT_ASSERT_EQ(test, rig->visits, 2);
}

static void a_lone_timer_costs_two_visits_however_far_away(struct kunit *test)
{
	sweep(test, look_visits);
}

static void look_bound(struct kunit *test, u64 due)
{
	struct rig *rig = test->priv;

	KUNIT_ASSERT_EQ(test, wheel_next_bound(&rig->w), due);
	rig_advance(test, due - 1, 1);
	KUNIT_ASSERT_EQ(test, wheel_next_bound(&rig->w), due);
}

static void the_bound_of_a_lone_timer_is_its_tick(struct kunit *test)
{
	sweep(test, look_bound);
}

static void look_cancelled(struct kunit *test, u64 due)
{
	struct rig *rig = test->priv;

	rig_cancel(rig, 0);
	KUNIT_ASSERT_EQ(test, wheel_next_bound(&rig->w), U64_MAX);
	rig_advance(test, due, PLENTY);
	KUNIT_ASSERT_EQ(test, rig->fired, 0);
	KUNIT_ASSERT_LE(test, rig->visits, 2);
}

static void a_cancelled_timer_never_expires(struct kunit *test)
{
	sweep(test, look_cancelled);
}

/* Order, cascades and budgets */

static void timers_of_all_slots_expire_in_order(struct kunit *test)
{
	const struct start *start = test->param_value;
	struct rig *rig = rig_start(test, start->tick, CHUNKS);
	u32 level, digit, nr = 0;
	u64 due;

	for (level = 0; level < WHEEL_LEVELS; level++) {
		for (digit = 1; digit < SLOTS; digit++) {
			due = start->tick + ((u64)digit << level * WHEEL_LEVEL_BITS);
			if (due > start->tick && due < U64_MAX)
				rig_arm(rig, nr++, due);
		}
	}
	rig_verify(test);
	rig_advance(test, U64_MAX - 1, 5);
	KUNIT_EXPECT_EQ(test, rig->fired, nr);
	rig_verify(test);
}

/* All at one tick, from near and from far: first come, first served. */
static void timers_of_one_tick_expire_as_they_were_armed(struct kunit *test)
{
	const struct start *start = test->param_value;
	struct rig *rig = rig_start(test, start->tick, 3);
	u32 i, nr = rig->w.nr_nodes, seen = 0;
	struct wheel_batch batch;
	u64 due = start->tick + 4097;

	for (i = 0; i < nr; i++)
		rig_arm(rig, i * 7 % nr, due);
	do {
		batch = (struct wheel_batch){ .budget = 5 };
		wheel_advance(&rig->w, due, &batch);
		for (i = 0; i < batch.nr; i++, seen++)
			KUNIT_ASSERT_EQ(test, batch.expired[i], seen * 7 % nr);
	} while (!batch.budget);
	KUNIT_EXPECT_EQ(test, seen, nr);
}

/* Puts timers at the begin, amid and at the end of a slot; the first expires. */
static struct rig *cascade(struct kunit *test, u64 *base, u64 *width)
{
	u32 level = *(const u32 *)test->param_value;
	struct rig *rig = rig_start(test, 0, 1);

	*width = 1ULL << level * WHEEL_LEVEL_BITS;
	*base = 3 * *width;
	rig_arm(rig, 0, *base);
	rig_arm(rig, 1, *base + 1);
	rig_arm(rig, 2, *base + *width / 2);
	rig_arm(rig, 3, *base + *width - 1);
	KUNIT_ASSERT_EQ(test, wheel_node(&rig->w, 0)->slot, level * SLOTS + 3);
	KUNIT_ASSERT_EQ(test, wheel_node(&rig->w, 3)->slot, level * SLOTS + 3);
	rig_advance(test, *base, PLENTY);
	rig_verify(test);
	return rig;
}

static void a_coarse_slot_keeps_its_timers_until_the_first_is_due(struct kunit *test)
{
	u64 base, width;
	struct rig *rig = cascade(test, &base, &width);

	KUNIT_EXPECT_EQ(test, rig->fired, 1);
	KUNIT_EXPECT_EQ(test, rig->cascaded, 3);
	KUNIT_EXPECT_EQ(test, rig->visits, 5);
}

static void a_cascade_puts_timers_into_finer_slots(struct kunit *test)
{
	u64 base, width;
	struct rig *rig = cascade(test, &base, &width);
	u32 i, level = *(const u32 *)test->param_value;

	KUNIT_EXPECT_EQ(test, wheel_node(&rig->w, 1)->slot, 1);
	for (i = 2; i < 4; i++)
		KUNIT_EXPECT_EQ(test, wheel_node(&rig->w, i)->slot / SLOTS, level - 1);
}

static void after_a_cascade_each_timer_expires_at_its_tick(struct kunit *test)
{
	u64 base, width, dues[3];
	struct rig *rig = cascade(test, &base, &width);
	u32 i;

	dues[0] = base + 1;
	dues[1] = base + width / 2;
	dues[2] = base + width - 1;
	for (i = 0; i < ARRAY_SIZE(dues); i++) {
		rig_advance(test, dues[i] - 1, PLENTY);
		KUNIT_EXPECT_EQ(test, rig->fired, i + 1);
		rig_advance(test, dues[i], PLENTY);
		KUNIT_EXPECT_EQ(test, rig->fired, i + 2);
	}
}

static void no_call_exceeds_its_budget_and_each_gets_on(struct kunit *test)
{
	u32 budget = *(const u32 *)test->param_value;
	struct rig *rig = rig_start(test, 1, 3);
	u32 i, visits;

	for (i = 0; i < rig->w.nr_nodes; i++)
		rig_arm(rig, i, 2 + i % 5 * SLOTS * SLOTS);
	rig->tick = 2 + 5 * SLOTS * SLOTS;
	do {
		rig_verify(test);
		visits = rig->visits;
	} while (!rig_piece(test, budget) && rig->visits > visits);
	KUNIT_EXPECT_EQ(test, rig->fired, rig->w.nr_nodes);
}

static void without_a_budget_nothing_happens(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);

	rig_arm(rig, 0, 1);
	rig->tick = 1;
	KUNIT_EXPECT_FALSE(test, rig_piece(test, 0));
	KUNIT_EXPECT_EQ(test, rig->fired, 0);
	rig_verify(test);
}

static void a_full_batch_ends_the_call(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 2);
	u32 i;

	for (i = 0; i <= WHEEL_BATCH; i++)
		rig_arm(rig, i, 1);
	rig->tick = 1;
	KUNIT_EXPECT_FALSE(test, rig_piece(test, PLENTY));
	KUNIT_EXPECT_EQ(test, rig->fired, WHEEL_BATCH);
	KUNIT_EXPECT_TRUE(test, rig_piece(test, PLENTY));
	KUNIT_EXPECT_EQ(test, rig->fired, WHEEL_BATCH + 1);
}

static void idle_time_costs_no_visits(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);
	u32 bit;

	rig_arm(rig, 0, U64_MAX - 1);
	for (bit = 0; bit < 64; bit++) {
		rig_advance(test, 1ULL << bit, 1);
		rig_verify(test);
	}
	KUNIT_EXPECT_EQ(test, rig->visits, 0);
}

static void the_end_of_time_never_comes(struct kunit *test)
{
	const struct start *start = test->param_value;
	struct rig *rig = rig_start(test, start->tick, 1);

	rig_arm(rig, 0, U64_MAX);
	rig_arm(rig, 1, U64_MAX - 1);
	rig_advance(test, U64_MAX, PLENTY);
	KUNIT_EXPECT_TRUE(test, rig->armed[0]);
	KUNIT_EXPECT_FALSE(test, rig->armed[1]);
	KUNIT_EXPECT_EQ(test, wheel_next_bound(&rig->w), U64_MAX);
	rig_verify(test);
}

/* A timer in each slot, so that as many blocks as can be are begun. */
static void the_blocks_suffice_for_any_load(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, CHUNKS);
	u32 level, digit, nr = 0;

	for (level = 0; level < WHEEL_LEVELS - 1; level++)
		for (digit = 1; digit < SLOTS; digit++)
			rig_arm(rig, nr++, (u64)digit << level * WHEEL_LEVEL_BITS);
	for (; nr < rig->w.nr_nodes; nr++)
		rig_arm(rig, nr, 1ULL << 60);
	rig_verify(test);
	KUNIT_EXPECT_EQ(test, rig->w.nr_blocks, wheel_blocks_for(NODES));
}

static void a_visit_needs_no_block_beyond_those_in_use(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);
	u32 i;

	for (i = 0; i < SLOTS - 1; i++)
		rig_arm(rig, i, (i + 1) * SLOTS + 5);
	rig_arm(rig, i, SLOTS * SLOTS);
	KUNIT_ASSERT_EQ(test, rig->w.free_block, WHEEL_NONE);
	rig_arm(rig, 0, SLOTS + 20);
	rig_advance(test, SLOTS + 5, PLENTY);
	rig_verify(test);
	KUNIT_EXPECT_EQ(test, rig->cascaded, 1);
}

/* Moving and cancelling */

#define BASE	(5 * SLOTS * SLOTS)

/* From the middle of a slot of level 2, which begins at BASE. */
static const struct move {
	u64 to;
	bool stays;
	const char *name;
} moves[] = {
	{ BASE + 100, true, "to the same tick" },
	{ BASE + 101, true, "to later in the slot" },
	{ BASE + SLOTS * SLOTS - 1, true, "to the end of the slot" },
	{ BASE + SLOTS * SLOTS, true, "to the slot after" },
	{ 1ULL << 50, true, "to far away" },
	{ U64_MAX, true, "to the end of time" },
	{ BASE + 99, true, "to earlier in the slot" },
	{ BASE, true, "to the begin of the slot" },
	{ BASE - 1, false, "to before the slot" },
	{ 1, false, "to the next tick" },
};

static void move_desc(const struct move *move, char *desc)
{
	strscpy(desc, move->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(move, moves, move_desc);

/* Three timers in the slot; what happens to the first is no matter of the others. */
static struct rig *rig_to_move(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);

	rig_arm(rig, 0, BASE + 100);
	rig_arm(rig, 1, BASE + 200);
	rig_arm(rig, 2, BASE + 300);
	return rig;
}

static void a_move_keeps_the_entry_unless_it_is_to_before_the_slot(struct kunit *test)
{
	const struct move *move = test->param_value;
	struct rig *rig = rig_to_move(test);
	u32 entry = wheel_node(&rig->w, 0)->entry, slot = wheel_node(&rig->w, 0)->slot;

	rig_arm(rig, 0, move->to);
	rig_verify(test);
	KUNIT_EXPECT_EQ(test, move->stays,
			wheel_node(&rig->w, 0)->entry == entry &&
			wheel_node(&rig->w, 0)->slot == slot);
}

static void a_timer_that_is_armed_again_takes_up_its_entry(struct kunit *test)
{
	const struct move *move = test->param_value;
	struct rig *rig = rig_to_move(test);
	u32 entry = wheel_node(&rig->w, 0)->entry, slot = wheel_node(&rig->w, 0)->slot;

	rig_cancel(rig, 0);
	rig_verify(test);
	rig_arm(rig, 0, move->to);
	rig_verify(test);
	KUNIT_EXPECT_EQ(test, move->stays,
			wheel_node(&rig->w, 0)->entry == entry &&
			wheel_node(&rig->w, 0)->slot == slot);
}

static void a_moved_timer_expires_at_its_new_tick(struct kunit *test)
{
	const struct move *move = test->param_value;
	struct rig *rig = rig_to_move(test);

	rig_arm(rig, 0, move->to);
	rig_advance(test, move->to - 1, PLENTY);
	KUNIT_EXPECT_TRUE(test, rig->armed[0]);
	rig_verify(test);
	rig_advance(test, move->to, PLENTY);
	KUNIT_EXPECT_EQ(test, rig->armed[0], move->to == U64_MAX);
	rig_verify(test);
}

static void a_move_is_known_to_next(struct kunit *test)
{
	const struct move *move = test->param_value;
	struct rig *rig = rig_to_move(test);

	KUNIT_EXPECT_TRUE(test, rig_next(test, PLENTY));
	rig_arm(rig, 0, move->to);
	KUNIT_EXPECT_TRUE(test, rig_next(test, PLENTY));
	rig_verify(test);
}

static void a_timer_moved_later_a_hundred_times_costs_one_visit_more(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);
	u64 due = 100;
	u32 i;

	for (i = 0; i < 100; i++) {
		rig_arm(rig, 0, due);
		due += 1000 * i;
	}
	due = rig->due[0];
	rig_advance(test, due, PLENTY);
	KUNIT_EXPECT_EQ(test, rig->fired, 1);
	KUNIT_EXPECT_EQ(test, rig->visits, 4);
}

/* A slot that is half open */

enum interference {
	CANCEL_ONE, CANCEL_ALL, MOVE_TO_NEXT_TICK, MOVE_TO_END, MOVE_OUT, ARM_AGAIN,
	ARM_ANOTHER,
};

static const struct interrupt {
	enum interference what;
	const char *name;
} interrupts[] = {
	{ CANCEL_ONE, "a timer is cancelled" },
	{ CANCEL_ALL, "all timers are cancelled" },
	{ MOVE_TO_NEXT_TICK, "a timer is moved to the next tick" },
	{ MOVE_TO_END, "a timer is moved to the end of the slot" },
	{ MOVE_OUT, "a timer is moved out of the slot" },
	{ ARM_AGAIN, "a timer is cancelled and armed again" },
	{ ARM_ANOTHER, "another timer is armed" },
};

static void interrupt_desc(const struct interrupt *interrupt, char *desc)
{
	strscpy(desc, interrupt->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(interrupt, interrupts, interrupt_desc);

#define CROWD	(2 * ENTRIES + 2)

static void interfere(struct rig *rig, enum interference what, u32 index)
{
	u32 i;

	switch (what) {
	case CANCEL_ONE:
	case ARM_AGAIN:
		if (rig->armed[index])
			rig_cancel(rig, index);
		if (what == ARM_AGAIN)
			rig_arm(rig, index, BASE + 2);
		break;
	case CANCEL_ALL:
		for (i = 0; i < CROWD; i++)
			if (rig->armed[i])
				rig_cancel(rig, i);
		break;
	case MOVE_TO_NEXT_TICK:
		rig_arm(rig, index, BASE + 1);
		break;
	case MOVE_TO_END:
		rig_arm(rig, index, BASE + SLOTS * SLOTS - 1);
		break;
	case MOVE_OUT:
		rig_arm(rig, index, BASE + 2 * SLOTS * SLOTS);
		break;
	case ARM_ANOTHER:
		rig_arm(rig, CROWD, BASE + 1);
		break;
	}
}

/* Half of the crowd is due when its slot is opened, half of it cascades. */
static void a_half_open_slot_allows_any_call(struct kunit *test)
{
	const struct interrupt *interrupt = test->param_value;
	u32 visits, index, i;
	struct rig *rig;

	for (visits = 0; visits <= CROWD; visits += visits < 3 ? 1 : 5) {
		for (index = 0; index < CROWD; index += 5) {
			rig = rig_start(test, 3, 2);
			for (i = 0; i < CROWD; i++)
				rig_arm(rig, i, BASE + (i % 2 ? 0 : 1 + i * 37));
			rig->tick = BASE;
			rig_piece(test, visits + 1);
			interfere(rig, interrupt->what, index);
			rig_verify(test);
			rig_next(test, PLENTY);
			rig_advance(test, BASE, 2);
			rig_verify(test);
			KUNIT_ASSERT_TRUE(test, rig_next(test, PLENTY));
			rig_run_out(test, 7);
			KUNIT_ASSERT_EQ(test, rig->w.nr_armed, 0);
		}
	}
}

/* The earliest timer */

static void an_empty_wheel_has_no_next(struct kunit *test)
{
	struct rig *rig = rig_start(test, 5, 1);
	u64 expires;

	KUNIT_EXPECT_EQ(test, wheel_next_bound(&rig->w), U64_MAX);
	KUNIT_EXPECT_TRUE(test, wheel_next(&rig->w, &expires, 0));
	KUNIT_EXPECT_EQ(test, expires, U64_MAX);
}

static void next_is_exact_as_the_earliest_is_cancelled_again_and_again(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);
	u32 i;

	for (i = 0; i < 60; i++)
		rig_arm(rig, i * 7 % 60, BASE + i / 2);
	for (i = 0; i < 60; i++) {
		KUNIT_EXPECT_TRUE(test, rig_next(test, PLENTY));
		rig_verify(test);
		rig_cancel(rig, i * 7 % 60);
	}
	KUNIT_EXPECT_TRUE(test, rig_next(test, PLENTY));
}

static void next_is_remembered_until_the_earliest_goes(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);
	u32 i;

	for (i = 0; i < 40; i++)
		rig_arm(rig, i, BASE + 40 - i);
	KUNIT_EXPECT_FALSE(test, rig_next(test, 10));
	KUNIT_EXPECT_TRUE(test, rig_next(test, PLENTY));
	rig_cancel(rig, 0);
	rig_arm(rig, 1, BASE + 1000);
	KUNIT_EXPECT_TRUE(test, rig_next(test, 0));
	rig_cancel(rig, 39);
	KUNIT_EXPECT_FALSE(test, rig_next(test, 0));
}

static void a_search_for_next_goes_on_where_its_budget_ended(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);
	u32 i, calls = 1;

	/* The minimum of the slot is gone, so that all of it has to be searched. */
	for (i = 0; i < 40; i++)
		rig_arm(rig, i, BASE + (i + 13) % 40);
	rig_cancel(rig, 27);
	while (!rig_next(test, 1)) {
		rig_verify(test);
		KUNIT_ASSERT_LE(test, ++calls, 40);
	}
	KUNIT_EXPECT_GE(test, calls, 39);
}

/*
 * The search has to look at all of the crowd: that of the slot's minimum has been moved,
 * and the next one comes last. What is moved to before the slot expires meanwhile, and
 * leaves its place to that one.
 */
static void interrupt_search(struct kunit *test, u64 base, u32 visits, u32 index)
{
	const struct interrupt *interrupt = test->param_value;
	struct rig *rig = rig_start(test, 3, 2);
	u32 i, calls;

	for (i = 0; i < CROWD; i++)
		rig_arm(rig, i, base + 10 + (CROWD - i) % CROWD);
	rig_arm(rig, 0, base + 100);
	KUNIT_ASSERT_FALSE(test, rig_next(test, visits));
	interfere(rig, interrupt->what, index);
	rig_verify(test);
	rig_advance(test, base - 1, PLENTY);
	for (calls = 0; !rig_next(test, 1); calls++)
		KUNIT_ASSERT_LT(test, calls, 3 * CROWD);
	rig_verify(test);
}

static void a_search_for_next_allows_any_call(struct kunit *test)
{
	u32 visits, index;

	for (visits = 0; visits < CROWD - 1; visits += 7) {
		for (index = 0; index < CROWD; index += 5) {
			interrupt_search(test, BASE, visits, index);
			interrupt_search(test, BASE + SLOTS * SLOTS, visits, index);
		}
	}
}

/* The clock */

static void forward_enters_no_slot(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);

	rig_arm(rig, 0, BASE);
	rig->tick = BASE + 5;
	rig_forward(rig);
	KUNIT_EXPECT_EQ(test, rig->w.now, BASE - 1);
	KUNIT_EXPECT_EQ(test, rig->w.nr_armed, 1);
	rig_verify(test);
}

static void forward_goes_all_the_way_in_an_empty_wheel(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);

	rig->tick = BASE + 5;
	rig_forward(rig);
	rig_arm(rig, 0, rig->tick + 1);
	KUNIT_EXPECT_EQ(test, rig->w.now, BASE + 5);
	KUNIT_EXPECT_LT(test, wheel_node(&rig->w, 0)->slot, SLOTS);
}

static void an_advance_goes_all_the_way_too(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);

	rig_arm(rig, 0, 70);
	rig_advance(test, BASE + 5, PLENTY);
	KUNIT_EXPECT_EQ(test, rig->w.now, BASE + 5);
}

static void forward_leaves_a_half_open_slot_alone(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);
	u32 i;

	for (i = 0; i < 10; i++)
		rig_arm(rig, i, BASE + i);
	rig->tick = BASE;
	rig_piece(test, 3);
	rig->tick = BASE + SLOTS;
	rig_forward(rig);
	KUNIT_EXPECT_EQ(test, rig->w.now, BASE);
	rig_verify(test);
	rig_advance(test, BASE + SLOTS, PLENTY);
	KUNIT_EXPECT_EQ(test, rig->fired, 10);
}

static void what_is_armed_late_expires_in_time(struct kunit *test)
{
	struct rig *rig = rig_start(test, 0, 1);

	/* What it leaves behind holds the wheel back. */
	rig_arm(rig, 0, SLOTS + 1);
	rig_cancel(rig, 0);
	rig->tick = BASE;
	rig_forward(rig);
	rig_arm(rig, 1, BASE + 1);
	rig_advance(test, BASE, PLENTY);
	KUNIT_EXPECT_EQ(test, rig->fired, 0);
	rig_advance(test, BASE + 1, PLENTY);
	KUNIT_EXPECT_EQ(test, rig->fired, 1);
}

static const u64 setbacks[] = { 1, SLOTS - 1, SLOTS, SLOTS * SLOTS + 1, 9000000 };

static void setback_desc(const u64 *setback, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "by %llu ticks", *setback);
}

KUNIT_ARRAY_PARAM(setback, setbacks, setback_desc);

/* A wheel whose clock was set back, with timers of before and one of after. */
static struct rig *set_back(struct kunit *test, u64 start)
{
	u64 setback = *(const u64 *)test->param_value;
	struct rig *rig = rig_start(test, start, 1);
	u32 i;

	for (i = 0; i < 40; i++)
		rig_arm(rig, i, start + 1 + i * i);
	rig_advance(test, start + 100, 5);
	KUNIT_ASSERT_TRUE(test, rig_next(test, PLENTY));
	rig->tick -= setback;
	rig_forward(rig);
	rig_verify(test);
	KUNIT_ASSERT_TRUE(test, rig_next(test, PLENTY));
	rig_arm(rig, 40, rig->tick + 1);
	rig_verify(test);
	return rig;
}

static void timers_keep_their_ticks_when_the_clock_is_set_back(struct kunit *test)
{
	u64 start;

	for (start = 10000000; start < 10000000 + 2 * SLOTS; start++) {
		set_back(test, start);
		rig_run_out(test, 4);
	}
}

static void timers_are_not_late_when_the_clock_is_set_forth_again(struct kunit *test)
{
	struct rig *rig = set_back(test, 10000000);

	rig_advance(test, 10000000 + 101, 5);
	KUNIT_EXPECT_FALSE(test, rig->armed[10]);
	KUNIT_EXPECT_TRUE(test, rig->armed[11]);
	rig_verify(test);
}

static void set_backs_bring_the_end_of_time_nearer(struct kunit *test)
{
	u64 start = U64_MAX - 10000;
	struct rig *rig = rig_start(test, start, 1);

	rig_arm(rig, 0, U64_MAX - 100);
	rig_arm(rig, 1, start + 3000);
	rig_advance(test, start + 3000, PLENTY);
	rig->tick -= 1000;
	rig_forward(rig);
	KUNIT_ASSERT_EQ(test, rig->w.bias, 1000);
	rig_arm(rig, 1, start + 4000);
	rig_advance(test, U64_MAX - 1, PLENTY);
	KUNIT_EXPECT_TRUE(test, rig->armed[0]);
	KUNIT_EXPECT_FALSE(test, rig->armed[1]);
	KUNIT_EXPECT_EQ(test, wheel_next_bound(&rig->w), U64_MAX);
	rig_verify(test);
}

/* Random loads */

enum step {
	ARM, MOVE, CANCEL, ADVANCE, PIECE, JUMP, SET_BACK, FORWARD, NEXT, CHECK_NEXT, NR_STEPS
};

/* How often a step is drawn. */
static const struct load {
	u8 weights[NR_STEPS];
	const char *name;
} loads[] = {
	{ { 20, 10, 10, 10, 20, 6, 1, 3, 6, 2 }, "a bit of everything" },
	{ { 25, 30, 25, 10, 10, 1, 0, 5, 3, 1 }, "time-outs that rarely expire" },
	{ { 20, 5, 5, 5, 20, 5, 12, 5, 6, 2 }, "a clock that is set back" },
	{ { 15, 10, 12, 4, 6, 2, 1, 3, 40, 6 }, "a search for the earliest" },
};

static void load_desc(const struct load *load, char *desc)
{
	strscpy(desc, load->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(load, loads, load_desc);

static enum step draw_step(struct rnd_state *random, const struct load *load)
{
	u32 i, sum = 0;

	for (i = 0; i < NR_STEPS; i++)
		sum += load->weights[i];
	sum = tw_kunit_below(random, sum);
	for (i = 0; sum >= load->weights[i]; i++)
		sum -= load->weights[i];
	return i;
}

/* A tick that is not before @from: close, in company, at a boundary or far away. */
static u64 draw_tick(struct rnd_state *random, u64 from)
{
	u64 width, distance;

	switch (tw_kunit_below(random, 4)) {
	case 0:
		distance = tw_kunit_below(random, 2 * SLOTS);
		break;
	case 1:
		distance = 3 * SLOTS * SLOTS - from % SLOTS;
		break;
	case 2:
		width = 1ULL << tw_kunit_below(random, 64);
		distance = round_down(from, width) + width - from + tw_kunit_below(random, 3) - 1;
		break;
	default:
		distance = tw_kunit_u64(random) >> tw_kunit_below(random, 64);
	}
	return from + distance < from ? U64_MAX : from + distance;
}

static void step_arm(struct kunit *test, struct rnd_state *random)
{
	struct rig *rig = test->priv;
	u32 index = tw_kunit_below(random, rig->w.nr_nodes);
	u64 expires;

	/* The wheel need not be told each time, but of all set-backs. */
	if (rig->tick < rig->told || tw_kunit_below(random, 4))
		rig_forward(rig);
	expires = draw_tick(random, rig->told);
	rig_arm(rig, index, max(expires, rig->told + 1));
}

/* Moves an armed timer, mostly to later, and often by little. */
static void step_move(struct kunit *test, struct rnd_state *random, u32 index)
{
	struct rig *rig = test->priv;
	u64 expires = rig->due[index];

	if (rig->tick < rig->told)
		rig_forward(rig);
	if (tw_kunit_below(random, 3))
		expires = draw_tick(random, expires);
	else
		expires -= min_t(u64, expires, tw_kunit_below(random, 5000));
	rig_arm(rig, index, max(expires, rig->told + 1));
}

static void step_time(struct kunit *test, struct rnd_state *random, enum step step)
{
	struct rig *rig = test->priv;
	u64 tick = rig->tick, end = U64_MAX - 2 - rig->w.bias;

	if (step == SET_BACK) {
		rig->tick -= min_t(u64, tick, tw_kunit_below(random, 5000));
		return;
	}
	tick = step == JUMP ? draw_tick(random, tick) :
			      tick + tw_kunit_below(random, SLOTS);
	if (step == JUMP && tw_kunit_below(random, 2) && rig_earliest(rig) < U64_MAX)
		tick = rig_earliest(rig) + tw_kunit_below(random, 3) - 1;
	rig->tick = max(rig->tick, min(tick, end));
}

static void do_step(struct kunit *test, struct rnd_state *random, enum step step)
{
	struct rig *rig = test->priv;
	u32 index = tw_kunit_below(random, rig->w.nr_nodes);

	switch (step) {
	case ARM:
		step_arm(test, random);
		break;
	case MOVE:
		if (rig->armed[index])
			step_move(test, random, index);
		break;
	case CANCEL:
		if (rig->armed[index])
			rig_cancel(rig, index);
		break;
	case PIECE:
		rig_piece(test, tw_kunit_below(random, 6));
		break;
	case FORWARD:
		rig_forward(rig);
		break;
	case NEXT:
		rig_next(test, tw_kunit_below(random, 6));
		break;
	case CHECK_NEXT:
		if (rig->w.open == WHEEL_NONE && rig->tick >= rig->told)
			KUNIT_ASSERT_TRUE(test, rig_next(test, PLENTY));
		break;
	default:
		step_time(test, random, step);
	}
}

static void a_random_load_agrees_with_the_array(struct kunit *test)
{
	const struct load *load = test->param_value;
	struct rig *rig = test->priv;
	struct rnd_state random;
	u32 i, step;

	tw_kunit_seed(test, &random);
	for (i = 0; i < ARRAY_SIZE(starts); i++) {
		rig_start(test, starts[i].tick, 2);
		for (step = 0; step < 400; step++) {
			if (rig->w.now >= U64_MAX - 2 - SLOTS)
				rig_start(test, starts[i].tick, 2);
			do_step(test, &random, draw_step(&random, load));
			rig_verify(test);
		}
		if (rig->tick < rig->told)
			rig_forward(rig);
		rig_run_out(test, 1 + tw_kunit_below(&random, 50));
	}
}

/* The checker: each fault of a wheel with a slot of two blocks is named. */

static void break_bits(struct wheel *w)
{
	w->occupied[2] = 0;
	w->nonempty = 0;
}

static void break_levels(struct wheel *w)
{
	w->nonempty |= 1;
}

static void break_min(struct wheel *w)
{
	w->slots[wheel_node(w, 0)->slot].min++;
}

static void break_now(struct wheel *w)
{
	w->now = BASE;
}

static void break_entry(struct wheel *w)
{
	wheel_node(w, 1)->entry = wheel_node(w, 0)->entry;
}

static void break_chain(struct wheel *w)
{
	wheel_block(w, w->slots[wheel_node(w, 0)->slot].last)->prev = WHEEL_NONE;
}

static void break_count(struct wheel *w)
{
	w->nr_armed--;
}

static void break_node(struct wheel *w)
{
	wheel_node(w, CROWD)->armed = 1;
	w->nr_armed++;
}

static void break_free(struct wheel *w)
{
	w->free_block = wheel_block(w, w->free_block)->next;
}

static void break_first(struct wheel *w)
{
	w->slots[wheel_node(w, 0)->slot].first = w->nr_blocks;
}

static void break_min_low(struct wheel *w)
{
	u32 s = wheel_node(w, 0)->slot;

	w->slots[s].min = wheel_slot_start(w, s) - 1;
}

static void break_free_list(struct wheel *w)
{
	w->free_block = w->nr_blocks;
}

static void break_idle_node(struct wheel *w)
{
	wheel_node(w, CROWD)->entry = wheel_node(w, 0)->entry;
}

static const struct fault {
	void (*make)(struct wheel *w);
	const char *message;
} faults[] = {
	{ break_bits, "the mask of slots is wrong" },
	{ break_levels, "the mask of levels is wrong" },
	{ break_min, "a timer is due before its slot's minimum" },
	{ break_now, "a slot has been passed by" },
	{ break_entry, "a node does not name its entry" },
	{ break_chain, "a block does not lead back" },
	{ break_count, "the count of armed timers is wrong" },
	{ break_node, "an armed timer has no entry" },
	{ break_free, "a block is lost" },
	{ break_first, "a chain of blocks leads astray" },
	{ break_min_low, "a minimum lies outside its slot" },
	{ break_free_list, "the list of free blocks leads astray" },
	{ break_idle_node, "a node names an entry that is not there" },
};

static void fault_desc(const struct fault *fault, char *desc)
{
	strscpy(desc, fault->message, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(fault, faults, fault_desc);

static void the_checker_names_what_is_broken(struct kunit *test)
{
	const struct fault *fault = test->param_value;
	struct rig *rig = rig_start(test, 0, 2);
	const char *wrong;
	u32 i;

	for (i = 0; i < CROWD; i++)
		rig_arm(rig, i, BASE + i);
	rig_verify(test);
	fault->make(&rig->w);
	wrong = wheel_check(&rig->w);
	KUNIT_EXPECT_STREQ(test, wrong ?: "", fault->message);
}

static struct kunit_case wheel_cases[] = {
	KUNIT_CASE_PARAM(a_timer_never_expires_before_its_tick, start_gen_params),
	KUNIT_CASE_PARAM(a_timer_expires_at_its_tick, start_gen_params),
	KUNIT_CASE_PARAM(a_timer_expires_however_late_the_wheel_is, start_gen_params),
	KUNIT_CASE_PARAM(a_lone_timer_costs_two_visits_however_far_away, start_gen_params),
	KUNIT_CASE_PARAM(the_bound_of_a_lone_timer_is_its_tick, start_gen_params),
	KUNIT_CASE_PARAM(a_cancelled_timer_never_expires, start_gen_params),
	KUNIT_CASE_PARAM(timers_of_all_slots_expire_in_order, start_gen_params),
	KUNIT_CASE_PARAM(timers_of_one_tick_expire_as_they_were_armed, start_gen_params),
	KUNIT_CASE_PARAM(a_coarse_slot_keeps_its_timers_until_the_first_is_due,
			 coarse_level_gen_params),
	KUNIT_CASE_PARAM(a_cascade_puts_timers_into_finer_slots, coarse_level_gen_params),
	KUNIT_CASE_PARAM(after_a_cascade_each_timer_expires_at_its_tick,
			 coarse_level_gen_params),
	KUNIT_CASE_PARAM(no_call_exceeds_its_budget_and_each_gets_on, budget_gen_params),
	KUNIT_CASE(without_a_budget_nothing_happens),
	KUNIT_CASE(a_full_batch_ends_the_call),
	KUNIT_CASE(idle_time_costs_no_visits),
	KUNIT_CASE_PARAM(the_end_of_time_never_comes, start_gen_params),
	KUNIT_CASE(the_blocks_suffice_for_any_load),
	KUNIT_CASE(a_visit_needs_no_block_beyond_those_in_use),
	KUNIT_CASE_PARAM(a_move_keeps_the_entry_unless_it_is_to_before_the_slot,
			 move_gen_params),
	KUNIT_CASE_PARAM(a_timer_that_is_armed_again_takes_up_its_entry, move_gen_params),
	KUNIT_CASE_PARAM(a_moved_timer_expires_at_its_new_tick, move_gen_params),
	KUNIT_CASE_PARAM(a_move_is_known_to_next, move_gen_params),
	KUNIT_CASE(a_timer_moved_later_a_hundred_times_costs_one_visit_more),
	KUNIT_CASE_PARAM(a_half_open_slot_allows_any_call, interrupt_gen_params),
	KUNIT_CASE(an_empty_wheel_has_no_next),
	KUNIT_CASE(next_is_exact_as_the_earliest_is_cancelled_again_and_again),
	KUNIT_CASE(next_is_remembered_until_the_earliest_goes),
	KUNIT_CASE(a_search_for_next_goes_on_where_its_budget_ended),
	KUNIT_CASE_PARAM(a_search_for_next_allows_any_call, interrupt_gen_params),
	KUNIT_CASE(forward_enters_no_slot),
	KUNIT_CASE(forward_goes_all_the_way_in_an_empty_wheel),
	KUNIT_CASE(an_advance_goes_all_the_way_too),
	KUNIT_CASE(forward_leaves_a_half_open_slot_alone),
	KUNIT_CASE(what_is_armed_late_expires_in_time),
	KUNIT_CASE_PARAM(timers_keep_their_ticks_when_the_clock_is_set_back,
			 setback_gen_params),
	KUNIT_CASE_PARAM(timers_are_not_late_when_the_clock_is_set_forth_again,
			 setback_gen_params),
	KUNIT_CASE(set_backs_bring_the_end_of_time_nearer),
	KUNIT_CASE_PARAM(a_random_load_agrees_with_the_array, load_gen_params),
	KUNIT_CASE_PARAM(the_checker_names_what_is_broken, fault_gen_params),
	{}
};

static struct kunit_suite wheel_suite = {
	.name = "twheel-wheel",
	.init = wheel_test_init,
	.test_cases = wheel_cases,
};

kunit_test_suite(wheel_suite);
