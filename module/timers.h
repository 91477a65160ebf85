/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The timers of one wheel: a table that grows, a free list, and handles that name a
 * timer for as long as it lives and nothing ever after.
 */
#ifndef TWHEEL_TIMERS_H
#define TWHEEL_TIMERS_H

#include <linux/types.h>

#include "queue.h"
#include "users.h"
#include "wheel.h"

/**
 * struct tw_timer - one timer, one cache line
 * @node:        the wheel's part
 * @fired_ns:    when the wheel noticed the expiry; only while the timer is ready,
 *               when the wheel does not look at @node.expires
 * @expires_ns:  next expiry, or for a ready timer the one that is to be told
 * @interval_ns: period, 0 for none
 * @slack_ns:    how much later it may expire
 * @user_data:   the caller's
 * @generation:  upper half of the handle; one up each time the timer is freed
 * @count:       expiries left of a periodic timer, 0 for no end
 * @place:       in the ready queue, only while the timer is ready
 * @pad:         unused
 *
 * A timer is free, armed or ready: armed if @node.armed, ready if TW_READY is in
 * @node.owner, free otherwise.
 */
struct tw_timer {
	union {
		struct wheel_node node;
		u64 fired_ns;
	};
	u64 expires_ns;
	u64 interval_ns;
	u64 slack_ns;
	u64 user_data;
	u32 generation;
	u32 count;
	u32 place;
	u32 pad;
};

static_assert(sizeof(struct tw_timer) == WHEEL_NODE_SIZE);

/* In the wheel_node.owner of a timer; above them is its enum twheel_misfire. */
#define TW_READY		0x01
#define TW_MISFIRE_SHIFT	1

/**
 * enum tw_part - what a table of timers is made of, each in chunks of its own
 * @TW_NODES:  the timers, which are the nodes of the wheel
 * @TW_FREE:   which of them are free
 * @TW_BLOCKS: the blocks of the wheel
 * @TW_QUEUE:  the blocks of the ready queue
 * @TW_PARTS:  how many that are
 */
enum tw_part {
	TW_NODES,
	TW_FREE,
	TW_BLOCKS,
	TW_QUEUE,
	TW_PARTS,
};

/**
 * struct tw_free - the free timers of one chunk of nodes
 * @timers: bit i set: timer i of the chunk is free
 * @next:   the next chunk that has a free timer, or WHEEL_NONE; only if this one has
 */
struct tw_free {
	u64 timers;
	u32 next;
};

static_assert(WHEEL_CHUNK_NODES == 64);

/**
 * struct tw_chunks - the chunks of one part
 * @table: they
 * @nr:    how many there are
 * @room:  how many there is room for in @table
 */
struct tw_chunks {
	void **table;
	u32 nr;
	u32 room;
};

/**
 * struct tw_timers - the table of timers that a wheel's nodes are the timers of
 * @wheel:    its arrays of chunks are those of @chunks
 * @queue:    and so is its
 * @user:     is charged for what the table holds in memory
 * @bytes:    how much that is
 * @chunks:   by part
 * @newest:   the largest generation that any timer has or had
 * @again:    nodes that there were when memory was given back: their handles are told
 * @first_generation: with which those begin again; all others begin with 1
 * @spare:    the chunk from which the next timer is taken, WHEEL_NONE if none is free
 * @nr_free:  timers that are free
 * @live:     timers that are not free
 * @capacity: how many may live at one time
 */
struct tw_timers {
	struct wheel *wheel;
	struct tw_queue *queue;
	struct tw_user *user;
	size_t bytes;
	struct tw_chunks chunks[TW_PARTS];
	u32 newest;
	u32 again;
	u32 first_generation;
	u32 spare;
	u32 nr_free;
	u32 live;
	u32 capacity;
};

/* One chunk of nodes never asks for more chunks of any part than this. */
#define TW_GROWTH_CHUNKS	DIV_ROUND_UP(WHEEL_CHUNK_NODES, WHEEL_CHUNK_BLOCKS)

/**
 * struct tw_growth - memory on its way into a table of timers
 * @user:  is charged for what is here
 * @bytes: how much that is
 * @chunk: new chunks, by part
 * @nr:    how many of them
 * @table: a larger array for the chunks of a part, if need be; the one that it has
 *         replaced after tw_timers_install()
 * @room:  chunks for which there will be room
 */
struct tw_growth {
	struct tw_user *user;
	size_t bytes;
	void *chunk[TW_PARTS][TW_GROWTH_CHUNKS];
	u32 nr[TW_PARTS];
	void **table[TW_PARTS];
	u32 room[TW_PARTS];
};

static inline struct tw_timer *tw_timer(const struct tw_timers *ts, u32 index)
{
	return (struct tw_timer *)wheel_node(ts->wheel, index);
}

static inline u64 tw_timer_id(const struct tw_timer *t, u32 index)
{
	return (u64)t->generation << 32 | index;
}

void tw_timers_init(struct tw_timers *ts, struct wheel *wheel, struct tw_queue *queue,
		    struct tw_user *user, u32 capacity);
void tw_timers_destroy(struct tw_timers *ts);
bool tw_timers_release(struct tw_timers *ts, u64 tick, struct tw_timers *old);
int tw_timers_prepare(const struct tw_timers *ts, struct tw_growth *growth);
void tw_timers_install(struct tw_timers *ts, struct tw_growth *growth);
void tw_timers_discard(struct tw_growth *growth);
int tw_timers_alloc(struct tw_timers *ts, u32 *index);
void tw_timers_free(struct tw_timers *ts, u32 index);
struct tw_timer *tw_timers_find(const struct tw_timers *ts, u64 id, u32 *index);

#endif /* TWHEEL_TIMERS_H */
