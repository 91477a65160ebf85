/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The ready queue: timers whose records wait to be read, first in, first out.
 *
 * It knows indices only. The head of queue.c explains how it works.
 */
#ifndef TWHEEL_QUEUE_H
#define TWHEEL_QUEUE_H

#include <linux/types.h>

/* Tests build queues of smaller blocks too; 29 makes a block 128 bytes. */
#ifndef TW_QUEUE_ENTRIES
#define TW_QUEUE_ENTRIES	29U
#endif

/**
 * struct tw_queue_block - a piece of the queue
 * @next:  following block of the queue or of the free list, or WHEEL_NONE
 * @prev:  preceding block of the queue, or WHEEL_NONE
 * @begin: first used place of @index
 * @end:   place after the last used one
 * @nr:    timers in it, which are fewer than used places if some were removed
 * @pad:   unused
 * @index: the timers; WHEEL_NONE where one was removed
 */
struct tw_queue_block {
	u32 next;
	u32 prev;
	u8 begin;
	u8 end;
	u8 nr;
	u8 pad;
	u32 index[TW_QUEUE_ENTRIES];
};

/* The place of a timer is a block and a place in it, packed into 32 bits. */
#define TW_QUEUE_POS_BITS	5
#define TW_QUEUE_SHIFT		3
#define TW_QUEUE_CHUNK_BLOCKS	(1U << TW_QUEUE_SHIFT)
#define TW_QUEUE_CHUNK_SIZE	(TW_QUEUE_CHUNK_BLOCKS * sizeof(struct tw_queue_block))

static_assert(TW_QUEUE_ENTRIES >= 1 && TW_QUEUE_ENTRIES <= 1 << TW_QUEUE_POS_BITS);

/**
 * struct tw_queue - the ready queue of an engine
 * @blocks:     chunks of TW_QUEUE_CHUNK_BLOCKS blocks; the array is the caller's
 * @nr_blocks:  blocks in @blocks
 * @free_block: first block that is not in use, or WHEEL_NONE
 * @first:      block of the timer that is read next, WHEEL_NONE if there is none
 * @last:       block of the timer that is read last
 * @nr:         timers in the queue
 */
struct tw_queue {
	struct tw_queue_block **blocks;
	u32 nr_blocks;
	u32 free_block;
	u32 first;
	u32 last;
	u32 nr;
};

struct tw_timers;

void tw_queue_init(struct tw_queue *q);
u32 tw_queue_blocks_for(u32 nr_timers);
void tw_queue_add_blocks(struct tw_queue *q, void *chunk);
u32 tw_queue_push(struct tw_queue *q, const struct tw_timers *ts, u32 index);
u32 tw_queue_peek(const struct tw_queue *q, const struct tw_timers *ts, u32 *index, u32 max);
void tw_queue_shift(struct tw_queue *q, u32 nr);
void tw_queue_remove(struct tw_queue *q, const struct tw_timers *ts, u32 place);
const char *tw_queue_check(const struct tw_queue *q, const struct tw_timers *ts);

#endif /* TWHEEL_QUEUE_H */
