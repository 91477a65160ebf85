// SPDX-License-Identifier: GPL-2.0
/*
 * The ready queue: timers whose records wait to be read, first in, first out.
 *
 * A list through the timers would cost a cache miss for each step, and each would have
 * to wait for the one before. So the queue is a chain of blocks with the indices of the
 * timers, which can be prefetched ahead. A timer knows its place, so that it can be
 * removed from the midst: that leaves a gap in its block.
 *
 * Expiry must not allocate, so there have to be enough blocks for all timers, whatever
 * gaps there are. Therefore any three blocks that follow each other hold more timers
 * than fit into two. Where that is no longer so after a removal or before a block is
 * added, the three are packed into two. That bounds the blocks by half as many again as
 * full ones would be, and the work of an operation by two blocks full of timers. It need
 * not hold for runs with the first block, from which timers are read, or the last.
 *
 * Who calls any of these holds the lock of the engine.
 */
#include <linux/bug.h>
#include <linux/kernel.h>
#include <linux/minmax.h>

#include "queue.h"
#include "timers.h"

/* So many blocks that follow each other hold more than fit into one fewer. */
#define TW_QUEUE_RUN	3U
#define TW_QUEUE_PACKED	((TW_QUEUE_RUN - 1) * TW_QUEUE_ENTRIES)

static struct tw_queue_block *tw_queue_block(const struct tw_queue *q, u32 block)
{
	return q->blocks[block >> TW_QUEUE_SHIFT] + (block & (TW_QUEUE_CHUNK_BLOCKS - 1));
}

/**
 * tw_queue_init() - make an empty queue without blocks
 * @q: to be initialised
 */
void tw_queue_init(struct tw_queue *q)
{
	*q = (struct tw_queue){
		.free_block = WHEEL_NONE,
		.first = WHEEL_NONE,
		.last = WHEEL_NONE,
	};
}

/**
 * tw_queue_blocks_for() - blocks with which a queue can never run out
 * @nr_timers: timers that there may be in it
 *
 * Every block has a timer. But for the first block, the last run and what is left of a
 * run, blocks stand in runs which have more than TW_QUEUE_PACKED timers each.
 *
 * Return: how many.
 */
u32 tw_queue_blocks_for(u32 nr_timers)
{
	u32 runs = nr_timers / (TW_QUEUE_PACKED + 1);

	return min(nr_timers, (runs + 2) * TW_QUEUE_RUN);
}

static void tw_queue_free_block(struct tw_queue *q, u32 block)
{
	tw_queue_block(q, block)->next = q->free_block;
	q->free_block = block;
}

/**
 * tw_queue_add_blocks() - add TW_QUEUE_CHUNK_BLOCKS blocks
 * @q:     the queue; @q->blocks has room for one more chunk
 * @chunk: TW_QUEUE_CHUNK_SIZE bytes
 */
void tw_queue_add_blocks(struct tw_queue *q, void *chunk)
{
	u32 i;

	q->blocks[q->nr_blocks >> TW_QUEUE_SHIFT] = chunk;
	for (i = 0; i < TW_QUEUE_CHUNK_BLOCKS; i++)
		tw_queue_free_block(q, q->nr_blocks + i);
	q->nr_blocks += TW_QUEUE_CHUNK_BLOCKS;
}

/* Takes a block without timers out of the chain. */
static void tw_queue_drop(struct tw_queue *q, u32 block)
{
	struct tw_queue_block *b = tw_queue_block(q, block);

	if (b->prev == WHEEL_NONE)
		q->first = b->next;
	else
		tw_queue_block(q, b->prev)->next = b->next;
	if (b->next == WHEEL_NONE)
		q->last = b->prev;
	else
		tw_queue_block(q, b->next)->prev = b->prev;
	tw_queue_free_block(q, block);
}

/* Appends a timer to a block that has room. Its place. */
static __always_inline u32 tw_queue_put(struct tw_queue *q, u32 block, u32 index)
{
	struct tw_queue_block *b = tw_queue_block(q, block);
	u32 pos = b->end;

	b->index[pos] = index;
	b->end = pos + 1;
	b->nr++;
	return block << TW_QUEUE_POS_BITS | pos;
}

/* Appends the timers of a block to @index, and leaves the block empty. How many. */
static u32 tw_queue_empty(struct tw_queue *q, u32 block, u32 *index)
{
	struct tw_queue_block *b = tw_queue_block(q, block);
	u32 i, nr = 0;

	for (i = b->begin; i < b->end; i++)
		if (b->index[i] != WHEEL_NONE)
			index[nr++] = b->index[i];
	b->begin = 0;
	b->end = 0;
	b->nr = 0;
	return nr;
}

/*
 * Packs the timers of a run into one block fewer. What is left over goes to the end of the
 * queue that may have fewer: else it might be the next run that had too few.
 */
static void tw_queue_pack(struct tw_queue *q, const struct tw_timers *ts, u32 first)
{
	u32 second = tw_queue_block(q, first)->next;
	u32 third = tw_queue_block(q, second)->next;
	u32 index[TW_QUEUE_PACKED], i, nr, nr_first;

	nr = tw_queue_empty(q, first, index);
	nr += tw_queue_empty(q, second, index + nr);
	nr += tw_queue_empty(q, third, index + nr);
	nr_first = min(nr, TW_QUEUE_ENTRIES);
	if (first == q->first)
		nr_first = nr - nr_first;
	for (i = 0; i < nr; i++)
		tw_timer(ts, index[i])->place =
			tw_queue_put(q, i < nr_first ? first : second, index[i]);
	tw_queue_drop(q, third);
	if (nr_first == nr)
		tw_queue_drop(q, second);
	if (!nr_first)
		tw_queue_drop(q, first);
}

/* The timers of the run that begins with @block; if there is no run, more than fit. */
static u32 tw_queue_run_nr(const struct tw_queue *q, u32 block)
{
	u32 nr = 0, run;

	for (run = 0; run < TW_QUEUE_RUN; run++) {
		if (block == WHEEL_NONE)
			return U32_MAX;
		nr += tw_queue_block(q, block)->nr;
		block = tw_queue_block(q, block)->next;
	}
	return nr;
}

/* Packs a run that @block is in, if there is one that can be. */
static void tw_queue_tidy(struct tw_queue *q, const struct tw_timers *ts, u32 block)
{
	u32 run;

	for (run = 0; run < TW_QUEUE_RUN && block != WHEEL_NONE; run++) {
		if (tw_queue_run_nr(q, block) <= TW_QUEUE_PACKED) {
			tw_queue_pack(q, ts, block);
			return;
		}
		block = tw_queue_block(q, block)->prev;
	}
}

/* Puts an empty block at the end of the chain. */
static void tw_queue_extend(struct tw_queue *q)
{
	u32 block = q->free_block;
	struct tw_queue_block *b = tw_queue_block(q, block);

	q->free_block = b->next;
	b->next = WHEEL_NONE;
	b->prev = q->last;
	b->begin = 0;
	b->end = 0;
	b->nr = 0;
	if (q->last == WHEEL_NONE)
		q->first = block;
	else
		tw_queue_block(q, q->last)->next = block;
	q->last = block;
}

static bool tw_queue_is_full(const struct tw_queue *q)
{
	return q->last == WHEEL_NONE || tw_queue_block(q, q->last)->end == TW_QUEUE_ENTRIES;
}

static noinline void tw_queue_make_room(struct tw_queue *q, const struct tw_timers *ts)
{
	tw_queue_tidy(q, ts, q->last);
	if (tw_queue_is_full(q))
		tw_queue_extend(q);
}

/**
 * tw_queue_push() - add a timer at the end
 * @q:     the queue
 * @ts:    the table of timers
 * @index: a timer that is not in the queue
 *
 * Return: its place, which the timer has to know.
 */
u32 tw_queue_push(struct tw_queue *q, const struct tw_timers *ts, u32 index)
{
	if (tw_queue_is_full(q))
		tw_queue_make_room(q, ts);
	q->nr++;
	return tw_queue_put(q, q->last, index);
}

/**
 * tw_queue_peek() - look at the first timers
 * @q:     the queue
 * @ts:    the table of timers
 * @index: out: the timers, which will be at hand when the caller gets to them
 * @max:   at most so many
 *
 * Return: how many.
 */
u32 tw_queue_peek(const struct tw_queue *q, const struct tw_timers *ts, u32 *index, u32 max)
{
	const struct tw_queue_block *b;
	u32 i, block, nr = 0;

	for (block = q->first; block != WHEEL_NONE && nr < max; block = b->next) {
		b = tw_queue_block(q, block);
		if (b->next != WHEEL_NONE)
			prefetch(tw_queue_block(q, b->next));
		for (i = b->begin; i < b->end && nr < max; i++) {
			if (b->index[i] == WHEEL_NONE)
				continue;
			prefetchw(tw_timer(ts, b->index[i]));
			index[nr++] = b->index[i];
		}
	}
	return nr;
}

/**
 * tw_queue_shift() - take the first timers off the queue
 * @q:  the queue
 * @nr: how many, of those that it has
 */
void tw_queue_shift(struct tw_queue *q, u32 nr)
{
	struct tw_queue_block *b;
	u32 here;

	q->nr -= nr;
	while (nr) {
		b = tw_queue_block(q, q->first);
		here = min_t(u32, nr, b->nr);
		nr -= here;
		b->nr -= here;
		if (!b->nr)
			tw_queue_drop(q, q->first);
		else
			while (here)
				here -= b->index[b->begin++] != WHEEL_NONE;
	}
}

/**
 * tw_queue_remove() - take a timer out of the queue
 * @q:     the queue
 * @ts:    the table of timers
 * @place: of the timer
 */
void tw_queue_remove(struct tw_queue *q, const struct tw_timers *ts, u32 place)
{
	u32 block = place >> TW_QUEUE_POS_BITS, near = block;
	struct tw_queue_block *b = tw_queue_block(q, block);

	b->index[place & ((1 << TW_QUEUE_POS_BITS) - 1)] = WHEEL_NONE;
	q->nr--;
	if (!--b->nr) {
		near = b->next;
		tw_queue_drop(q, block);
	}
	tw_queue_tidy(q, ts, near);
}

/**
 * tw_queue_check() - verify every invariant
 * @q:  the queue
 * @ts: the table of timers
 *
 * For tests and debugging.
 *
 * Return: NULL, or what is wrong.
 */
const char *tw_queue_check(const struct tw_queue *q, const struct tw_timers *ts)
{
	u32 block, prev = WHEEL_NONE, blocks = 0, nr = 0, i, here;
	const struct tw_queue_block *b;

	for (block = q->first; block != WHEEL_NONE; prev = block, block = b->next) {
		if (block >= q->nr_blocks || ++blocks > q->nr_blocks)
			return "the queue leads astray";
		b = tw_queue_block(q, block);
		if (b->prev != prev)
			return "a block of the queue does not lead back";
		if (b->begin >= b->end || b->end > TW_QUEUE_ENTRIES)
			return "a block of the queue is empty or too full";
		for (i = b->begin, here = 0; i < b->end; i++) {
			if (b->index[i] == WHEEL_NONE)
				continue;
			if (b->index[i] >= ts->wheel->nr_nodes)
				return "an entry of the queue names no timer";
			if (tw_timer(ts, b->index[i])->place !=
			    (block << TW_QUEUE_POS_BITS | i))
				return "a timer of the queue does not know its place";
			here++;
		}
		if (here != b->nr || !here)
			return "the count of a block of the queue is wrong";
		nr += here;
		if (block != q->first && tw_queue_run_nr(q, block) <= TW_QUEUE_PACKED &&
		    tw_queue_block(q, tw_queue_block(q, b->next)->next)->next != WHEEL_NONE)
			return "a run of the queue is not packed";
	}
	if (prev != q->last)
		return "the queue does not end with its last block";
	if (nr != q->nr)
		return "the count of the queue is wrong";
	for (block = q->free_block; block != WHEEL_NONE; block = tw_queue_block(q, block)->next)
		if (block >= q->nr_blocks || ++blocks > q->nr_blocks)
			return "the free blocks of the queue lead astray";
	if (blocks != q->nr_blocks)
		return "a block of the queue is lost";
	return NULL;
}
