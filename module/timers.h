/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The timers of one wheel: a table that grows, a free list, and handles that name a
 * timer for as long as it lives and nothing ever after.
 */
#ifndef TWHEEL_TIMERS_H
#define TWHEEL_TIMERS_H

#include <linux/types.h>

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
 * @next:        the next timer of the ready queue, or WHEEL_NONE
 * @prev:        the previous timer of the ready queue; of the first one, anything
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
	u32 next;
	u32 prev;
};

static_assert(sizeof(struct tw_timer) == WHEEL_NODE_SIZE);

/* In the wheel_node.owner of a timer; above them is its enum twheel_misfire. */
#define TW_READY		0x01
#define TW_MISFIRE_SHIFT	1

/**
 * struct tw_timers - the table of timers that a wheel's nodes are the timers of
 * @wheel:      holds the table itself
 * @user:       is charged for what the table holds in memory
 * @bytes:      how much that is
 * @node_room:  chunks for which @wheel->nodes and @free have room
 * @block_room: chunks for which @wheel->blocks has room
 * @free:       a stack of the free timers, in chunks of WHEEL_CHUNK_NODES indices. It
 *              stands apart from the timers so that one can look ahead: a list through
 *              them would cost a cache miss for each, one after the other
 * @nr_free:    timers on the stack
 * @live:       timers that are not free
 * @capacity:   how many may live at one time
 */
struct tw_timers {
	struct wheel *wheel;
	struct tw_user *user;
	size_t bytes;
	u32 node_room;
	u32 block_room;
	u32 **free;
	u32 nr_free;
	u32 live;
	u32 capacity;
};

/* One chunk of nodes never asks for more chunks of blocks than this. */
#define TW_GROWTH_BLOCKS	DIV_ROUND_UP(WHEEL_CHUNK_NODES, WHEEL_CHUNK_BLOCKS)

/**
 * struct tw_growth - memory on its way into a table of timers
 * @user:        is charged for what is here
 * @bytes:       how much that is
 * @nodes:       a chunk of nodes
 * @free:        a chunk of the stack of free timers
 * @blocks:      chunks of blocks
 * @nr_blocks:   how many of them
 * @node_table:  larger array for the chunks of nodes, if need be; the one that it
 *               has replaced after tw_timers_install()
 * @free_table:  the same for the chunks of the stack
 * @block_table: the same for the chunks of blocks
 * @node_room:   chunks for which @node_table and @free_table have room
 * @block_room:  chunks for which @block_table has room
 */
struct tw_growth {
	struct tw_user *user;
	size_t bytes;
	void *nodes;
	void *free;
	void *blocks[TW_GROWTH_BLOCKS];
	u32 nr_blocks;
	void **node_table;
	void **free_table;
	void **block_table;
	u32 node_room;
	u32 block_room;
};

static inline struct tw_timer *tw_timer(const struct tw_timers *ts, u32 index)
{
	return (struct tw_timer *)wheel_node(ts->wheel, index);
}

static inline u64 tw_timer_id(const struct tw_timer *t, u32 index)
{
	return (u64)t->generation << 32 | index;
}

void tw_timers_init(struct tw_timers *ts, struct wheel *wheel, struct tw_user *user,
		    u32 capacity);
void tw_timers_destroy(struct tw_timers *ts);
int tw_timers_prepare(const struct tw_timers *ts, struct tw_growth *growth);
void tw_timers_install(struct tw_timers *ts, struct tw_growth *growth);
void tw_timers_discard(struct tw_growth *growth);
int tw_timers_alloc(struct tw_timers *ts, u32 *index);
void tw_timers_free(struct tw_timers *ts, u32 index);
struct tw_timer *tw_timers_find(const struct tw_timers *ts, u64 id, u32 *index);

#endif /* TWHEEL_TIMERS_H */
