/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * A cascading hierarchical timing wheel over all 64 bits of ticks.
 *
 * It knows ticks and indices only: no clock, no lock, no allocation, no user.
 * The head of wheel.c explains how it works.
 */
#ifndef TWHEEL_WHEEL_H
#define TWHEEL_WHEEL_H

#include "wheel_env.h"

/* Tests build wheels of other shapes too; 6 fits one u64 of occupancy a level. */
#ifndef WHEEL_LEVEL_BITS
#define WHEEL_LEVEL_BITS	6
#endif

/* 29 makes a block 128 bytes: two cache lines, which are fetched as a pair. */
#ifndef WHEEL_BLOCK_ENTRIES
#define WHEEL_BLOCK_ENTRIES	29
#endif

#define WHEEL_LEVEL_SLOTS	(1U << WHEEL_LEVEL_BITS)
#define WHEEL_LEVELS		DIV_ROUND_UP(64, WHEEL_LEVEL_BITS)
#define WHEEL_NR_SLOTS		(WHEEL_LEVELS * WHEEL_LEVEL_SLOTS)

#define WHEEL_NONE		U32_MAX

/* How many expired timers wheel_advance() hands over in one go. */
#define WHEEL_BATCH		64

/**
 * struct wheel_node - the part of a timer that the wheel works on
 * @expires: tick at which the timer expires. The wheel reads it only while
 *           @armed, so that the owner may keep something else there otherwise
 * @entry:   place in the blocks that names this timer, WHEEL_NONE if there is none.
 *           Outlives @armed: a cancelled timer leaves its entry behind, and
 *           takes it up again if it is re-armed in time
 * @slot:    slot that the block of @entry belongs to
 * @armed:   1 while the timer is armed
 * @owner:   not the wheel's; fills the hole
 *
 * The first member of a node of WHEEL_NODE_SIZE bytes. A zeroed node is made
 * ready by wheel_add_nodes().
 */
struct wheel_node {
	u64 expires;
	u32 entry;
	u16 slot;
	u8 armed;
	u8 owner;
};

/* Nodes and blocks lie in chunks of one page each (of the smallest page size). */
#define WHEEL_NODE_SIZE		64
#define WHEEL_NODE_SHIFT	6
#define WHEEL_CHUNK_NODES	(1U << WHEEL_NODE_SHIFT)
#define WHEEL_NODE_CHUNK_SIZE	(WHEEL_CHUNK_NODES * WHEEL_NODE_SIZE)

/**
 * struct wheel_block - a piece of a slot: the indices of some timers
 * @next:  following block of the slot or of the free list, or WHEEL_NONE
 * @prev:  preceding block of the slot, or WHEEL_NONE
 * @begin: first used place of @index
 * @end:   place after the last used one
 * @pad:   unused
 * @index: the timers
 */
struct wheel_block {
	u32 next;
	u32 prev;
	u8 begin;
	u8 end;
	u16 pad;
	u32 index[WHEEL_BLOCK_ENTRIES];
};

#define WHEEL_POS_BITS		5
#define WHEEL_BLOCK_SHIFT	5
#define WHEEL_CHUNK_BLOCKS	(1U << WHEEL_BLOCK_SHIFT)
#define WHEEL_BLOCK_CHUNK_SIZE	(WHEEL_CHUNK_BLOCKS * sizeof(struct wheel_block))

/* An entry is a block and a place in it, packed into 32 bits. */
#define WHEEL_MAX_NODES		(1U << 26)

static_assert(WHEEL_BLOCK_ENTRIES >= 1 &&
	      WHEEL_BLOCK_ENTRIES <= 1 << WHEEL_POS_BITS);
static_assert(sizeof(struct wheel_node) == 16);
static_assert(WHEEL_NR_SLOTS < 1 << 16);

/**
 * struct wheel_slot - a chain of blocks of timers that are due close together
 * @min:   no timer of the slot is due before this (a position, see wheel.c).
 *         Valid while the slot is not empty
 * @first: first block, WHEEL_NONE if the slot is empty
 * @last:  last block
 */
struct wheel_slot {
	u64 min;
	u32 first;
	u32 last;
};

/**
 * struct wheel - a timing wheel
 * @nodes:      chunks of WHEEL_CHUNK_NODES nodes; the array is the caller's
 * @blocks:     chunks of WHEEL_CHUNK_BLOCKS blocks; the array is the caller's
 * @now:        the position that the wheel has reached
 * @bias:       position of the caller's tick 0
 * @nonempty:   bit l set: @occupied[l] is not 0
 * @nr_nodes:   nodes in @nodes
 * @nr_blocks:  blocks in @blocks
 * @nr_armed:   armed nodes
 * @free_block: first block that is in no slot
 * @open:       the slot that wheel_advance() is emptying, or WHEEL_NONE
 * @scan:       how far wheel_next() got
 * @scan.slot:  slot that is searched for its earliest timer, or WHEEL_NONE
 * @scan.block: next place to look at
 * @scan.pos:   next place to look at
 * @scan.done:  the search is over: @min of the slot is exact
 * @scan.min:   earliest position found so far
 * @occupied:   bit d of [l] set: slot d of level l is not empty
 * @slots:      level by level
 */
struct wheel {
	void **nodes;
	struct wheel_block **blocks;
	u64 now;
	u64 bias;
	u64 nonempty;
	u32 nr_nodes;
	u32 nr_blocks;
	u32 nr_armed;
	u32 free_block;
	u32 open;
	struct {
		u32 slot;
		u32 block;
		u8 pos;
		bool done;
		u64 min;
	} scan;
	u64 occupied[WHEEL_LEVELS];
	struct wheel_slot slots[WHEEL_NR_SLOTS];
};

/**
 * struct wheel_batch - what one call of wheel_advance() may do and has done
 * @budget:   in: entries and slots it may visit at most. out: what is left
 * @nr:       in: 0. out: entries of @expired
 * @cascaded: in: 0. out: timers put into a finer slot
 * @expired:  out: indices of the timers that expired, by then no longer armed
 */
struct wheel_batch {
	u32 budget;
	u32 nr;
	u32 cascaded;
	u32 expired[WHEEL_BATCH];
};

void wheel_init(struct wheel *w, u64 tick);
u32 wheel_blocks_for(u32 nr_nodes);
void wheel_add_nodes(struct wheel *w, void *chunk);
void wheel_add_blocks(struct wheel *w, void *chunk);

void wheel_forward(struct wheel *w, u64 tick);
void wheel_arm(struct wheel *w, u32 index, u64 expires);
void wheel_cancel(struct wheel *w, struct wheel_node *node);
bool wheel_advance(struct wheel *w, u64 tick, struct wheel_batch *batch);
u64 wheel_next_bound(const struct wheel *w);
bool wheel_next(struct wheel *w, u64 *expires, u32 budget);
const char *wheel_check(const struct wheel *w);

/**
 * wheel_node() - the node of an index
 * @w:     the wheel
 * @index: below @w->nr_nodes
 *
 * Return: the node.
 */
static inline struct wheel_node *wheel_node(const struct wheel *w, u32 index)
{
	char *chunk = w->nodes[index >> WHEEL_NODE_SHIFT];

	return (void *)(chunk + (index & (WHEEL_CHUNK_NODES - 1)) * WHEEL_NODE_SIZE);
}

/**
 * wheel_roundest() - the tick that most timers with slack agree on
 * @first: the first tick that will do, not 0
 * @last:  the last one, not before it
 *
 * Return: of the ticks from @first to @last that with the most zeroes at its end.
 */
static inline u64 wheel_roundest(u64 first, u64 last)
{
	/* The highest bit in which they differ is set in last: clear those below. */
	return last & ~((1ULL << (fls64((first - 1) ^ last) - 1)) - 1);
}

#endif /* TWHEEL_WHEEL_H */
