/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A wheel that is driven together with an oracle: two arrays that say which timers
 * are armed and when they are due, searched from end to end. Whatever the wheel does
 * is compared with the oracle, and wheel_check() has to find nothing wrong.
 */
#ifndef TWHEEL_RIG_H
#define TWHEEL_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../module/wheel.c"

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof((a)[0]))
#define SLOTS		((u64)WHEEL_LEVEL_SLOTS)
#define ENTRIES		WHEEL_BLOCK_ENTRIES
#define PLENTY		1000000000U
#define OWNER		0x5a

/* Width of a slot of a level, the top one's end included. */
#define WIDTH(level)	(1ULL << ((level) * WHEEL_LEVEL_BITS))

/* A timer as its owner sees it: the wheel may touch the first member alone. */
struct timer {
	struct wheel_node node;
	unsigned char rest[WHEEL_NODE_SIZE - sizeof(struct wheel_node)];
};

/*
 * A wheel and its oracle. @tick is the caller's clock, @told what the wheel has last
 * heard of it, @due and @armed the oracle. @spare blocks are withheld, so that there
 * is not one block more than wheel_blocks_for() says.
 */
static struct {
	struct wheel w;
	struct timer **nodes;
	struct wheel_block **blocks;
	u32 room;
	u32 node_chunks;
	u32 block_chunks;
	u32 spare;
	u64 *due;
	bool *armed;
	u32 nr_armed;
	u64 tick;
	u64 told;
	u64 visits;
	u64 fired;
	u64 cascaded;
	u64 last_due;
	bool big;
} rig;

/* Ticks at which wheels are started */
static const u64 starts[] = {
	0,
	SLOTS - 2,
	SLOTS * SLOTS - 2,
	(1ULL << 32) - 2,
	(1ULL << 60) - 2,
	(1ULL << 63) - 2,
	U64_MAX - 4999,
	0x123456789abcdef0ULL,
};

/* The includer's: what to do once it has been told what is wrong. */
static void give_up(void);

#define FAIL(format, ...)						\
	do {								\
		printf("# %s:%d: " format "\n", __FILE__, __LINE__,	\
		       __VA_ARGS__);					\
		give_up();						\
	} while (0)

#define EXPECT(condition)						\
	do {								\
		if (!(condition))					\
			FAIL("not so: %s", #condition);			\
	} while (0)

#define EXPECT_EQ(a, b)							\
	do {								\
		unsigned long long got = (a), want = (b);		\
									\
		if (got != want)					\
			FAIL("%s is %llu, not %llu", #a, got, want);	\
	} while (0)

/* For what must not matter, and whatever else the includer likes. */
static u64 rig_random;

/* splitmix64 */
static u64 rnd(void)
{
	u64 z = rig_random += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static u64 add(u64 a, u64 b)
{
	return a + b < a ? U64_MAX : a + b;
}

static void *get(size_t size, int fill)
{
	void *p = malloc(size);

	if (!p) {
		printf("Bail out! no memory\n");
		exit(1);
	}
	return memset(p, fill, size);
}

static void rig_free(void)
{
	u32 i;

	for (i = 0; i < rig.node_chunks; i++)
		free(rig.nodes[i]);
	for (i = 0; i < rig.block_chunks; i++)
		free(rig.blocks[i]);
	free(rig.nodes);
	free(rig.blocks);
	free(rig.due);
	free(rig.armed);
	memset(&rig, 0, sizeof(rig));
}

/* Room for chunks of nodes, of which none is there yet. */
static void rig_alloc(u32 chunks)
{
	u32 nr_nodes = chunks * WHEEL_CHUNK_NODES;
	u32 nr_blocks = wheel_blocks_for(nr_nodes) / WHEEL_CHUNK_BLOCKS + 1;

	rig_free();
	rig.room = chunks;
	rig.nodes = get(chunks * sizeof(void *), 0);
	rig.blocks = get(nr_blocks * sizeof(void *), 0);
	rig.due = get(nr_nodes * sizeof(u64), 0);
	rig.armed = get(nr_nodes * sizeof(bool), 0);
}

static void rig_hold_back(void)
{
	while (rig.w.nr_blocks > wheel_blocks_for(rig.w.nr_nodes)) {
		EXPECT_EQ(rig.w.free_block, rig.w.nr_blocks - 1);
		rig.w.free_block = wheel_block(&rig.w, rig.w.free_block)->next;
		rig.w.nr_blocks--;
		rig.spare++;
	}
}

/* One more chunk of nodes, with the very blocks that it needs. */
static void rig_grow(void)
{
	u32 chunk = rig.w.nr_nodes / WHEEL_CHUNK_NODES;
	u32 i, nr_blocks = wheel_blocks_for(rig.w.nr_nodes + WHEEL_CHUNK_NODES);

	for (; rig.spare; rig.spare--)
		wheel_free_block(&rig.w, rig.w.nr_blocks++);
	while (rig.w.nr_blocks < nr_blocks) {
		u32 at = rig.w.nr_blocks / WHEEL_CHUNK_BLOCKS;

		if (at == rig.block_chunks)
			rig.blocks[rig.block_chunks++] =
				get(WHEEL_BLOCK_CHUNK_SIZE, 0);
		memset(rig.blocks[at], 0xa5, WHEEL_BLOCK_CHUNK_SIZE);
		wheel_add_blocks(&rig.w, rig.blocks[at]);
	}
	if (chunk == rig.node_chunks)
		rig.nodes[rig.node_chunks++] = get(WHEEL_NODE_CHUNK_SIZE, 0);
	memset(rig.nodes[chunk], 0, WHEEL_NODE_CHUNK_SIZE);
	wheel_add_nodes(&rig.w, rig.nodes[chunk]);
	for (i = 0; i < WHEEL_CHUNK_NODES; i++) {
		rig.nodes[chunk][i].node.owner = OWNER;
		memset(rig.nodes[chunk][i].rest, OWNER, sizeof(rig.nodes[chunk][i].rest));
	}
	if (!rig.big)
		rig_hold_back();
}

/* A new wheel at a tick, in the memory of the one before. */
static void rig_start(u64 tick, u32 chunks)
{
	u32 i;

	if (rig.room < chunks)
		rig_alloc(chunks);
	wheel_init(&rig.w, tick);
	rig.w.nodes = (void **)rig.nodes;
	rig.w.blocks = rig.blocks;
	rig.spare = 0;
	rig.tick = tick;
	rig.told = tick;
	rig.nr_armed = 0;
	rig.visits = 0;
	rig.fired = 0;
	rig.cascaded = 0;
	rig.last_due = 0;
	for (i = 0; i < rig.room * WHEEL_CHUNK_NODES; i++)
		rig.armed[i] = false;
	for (i = 0; i < chunks; i++)
		rig_grow();
}

static struct wheel_node *node_of(u32 index)
{
	return wheel_node(&rig.w, index);
}

/*
 * When the timer will expire. The end of time never comes, and every set-back of the
 * clock brings it nearer.
 */
static u64 rig_due(u32 index)
{
	return rig.due[index] >= U64_MAX - rig.w.bias ? U64_MAX : rig.due[index];
}

/* The linear scan: the earliest timer, U64_MAX if none or none that ever expires. */
static u64 rig_earliest(void)
{
	u64 earliest = U64_MAX;
	u32 i;

	for (i = 0; i < rig.w.nr_nodes; i++)
		if (rig.armed[i])
			earliest = min(earliest, rig_due(i));
	return earliest;
}

static u32 rig_entries(void)
{
	u32 i, entries = 0;

	for (i = 0; i < rig.w.nr_nodes; i++)
		entries += node_of(i)->entry != WHEEL_NONE;
	return entries;
}

static void rig_verify(void)
{
	const char *wrong = wheel_check(&rig.w);
	u64 bound, earliest;
	u32 i;

	if (wrong)
		FAIL("wheel_check(): %s", wrong);
	EXPECT_EQ(rig.w.nr_armed, rig.nr_armed);
	for (i = 0; i < rig.w.nr_nodes; i++) {
		const struct timer *t = (void *)node_of(i);

		EXPECT_EQ(t->node.armed, rig.armed[i]);
		EXPECT_EQ(t->node.owner, OWNER);
		EXPECT_EQ(t->rest[0], OWNER);
		EXPECT_EQ(t->rest[sizeof(t->rest) - 1], OWNER);
		if (rig.armed[i])
			EXPECT_EQ(t->node.expires, rig.due[i]);
	}
	bound = wheel_next_bound(&rig.w);
	earliest = rig_earliest();
	if (bound > earliest)
		FAIL("the bound is %llu, but a timer is due at %llu",
		     (unsigned long long)bound, (unsigned long long)earliest);
	if (!rig.nr_armed)
		EXPECT_EQ(bound, U64_MAX);
}

static void rig_forward(void)
{
	wheel_forward(&rig.w, rig.tick);
	rig.told = rig.tick;
}

static void rig_arm(u32 index, u64 expires)
{
	EXPECT(expires > rig.told);
	wheel_arm(&rig.w, index, expires);
	rig.due[index] = expires;
	rig.nr_armed += !rig.armed[index];
	rig.armed[index] = true;
}

/* While a timer is not armed its owner may keep anything in @expires. */
static void rig_disarmed(u32 index)
{
	rig.armed[index] = false;
	rig.nr_armed--;
	node_of(index)->expires = rnd();
}

static void rig_cancel(u32 index)
{
	wheel_cancel(&rig.w, wheel_node(&rig.w, index));
	rig_disarmed(index);
}

static void rig_expired(u32 index)
{
	u64 due;

	EXPECT(index < rig.w.nr_nodes);
	if (!rig.armed[index])
		FAIL("timer %u expired, but is not armed", index);
	if (rig.due[index] > rig.tick)
		FAIL("timer %u expired at %llu, %llu early", index,
		     (unsigned long long)rig.tick,
		     (unsigned long long)(rig.due[index] - rig.tick));
	due = rig_due(index);
	if (due == U64_MAX)
		FAIL("timer %u expired at the end of time", index);
	if (!rig.big && due != rig_earliest())
		FAIL("timer %u expired out of order", index);
	if (rig.big)
		EXPECT(due >= rig.last_due);
	rig.last_due = due;
	EXPECT_EQ(node_of(index)->armed, 0);
	EXPECT_EQ(node_of(index)->entry, WHEEL_NONE);
	rig_disarmed(index);
	rig.fired++;
}

/* One call of wheel_advance(). */
static bool rig_piece(u32 budget)
{
	struct wheel_batch batch = { .budget = budget };
	u32 i, used, gone, opened, entries = rig.big ? 0 : rig_entries();
	bool all = wheel_advance(&rig.w, rig.tick, &batch);

	rig.told = rig.tick;
	EXPECT(batch.budget <= budget);
	EXPECT(batch.nr <= WHEEL_BATCH);
	used = budget - batch.budget;
	EXPECT(batch.nr + batch.cascaded <= used);
	if (!rig.big) {
		/* Whatever was visited has left, but for what was filed again. */
		gone = entries - rig_entries() + batch.cascaded;
		EXPECT(gone <= used);
		opened = used - gone;
		EXPECT(opened <= gone + 1);
	}
	for (i = 0; i < batch.nr; i++)
		rig_expired(batch.expired[i]);
	rig.visits += used;
	rig.cascaded += batch.cascaded;
	if (!all)
		EXPECT(!batch.budget || batch.nr == WHEEL_BATCH);
	else if (!rig.big)
		EXPECT(rig_earliest() > rig.tick || rig_earliest() == U64_MAX);
	return all;
}

/* Expires all that is due at a tick, in pieces. */
static void rig_advance(u64 tick, u32 budget)
{
	u64 calls = 1000 + 100ULL * WHEEL_LEVELS * rig.w.nr_nodes;

	rig.tick = tick;
	while (!rig_piece(budget))
		if (!--calls)
			FAIL("%s", "wheel_advance() does not come to an end");
}

/* One call of wheel_next(). */
static bool rig_next(u32 budget)
{
	u64 expires = 1;
	bool known = wheel_next(&rig.w, &expires, budget);

	if (known)
		EXPECT_EQ(expires, rig_earliest());
	else if (rig.w.open == WHEEL_NONE)
		EXPECT(budget < rig.w.nr_nodes * 2);
	return known;
}

static u64 rig_exact(void)
{
	EXPECT(rig_next(PLENTY));
	EXPECT(rig_next(0));
	return rig_earliest();
}

/* Runs until no timer is left that ever expires. */
static void rig_run_out(u32 budget)
{
	while (rig_earliest() != U64_MAX) {
		rig_advance(max(rig_earliest(), rig.tick), budget);
		rig_verify();
	}
}

/* The last tick to go to: from there on the wheel would be at the end of time. */
static u64 rig_end(void)
{
	return U64_MAX - 2 - rig.w.bias;
}

#endif /* TWHEEL_RIG_H */
