// SPDX-License-Identifier: GPL-2.0
/*
 * The timers of one wheel. See timers.h.
 *
 * The table never shrinks while the file is open: a freed timer may still have an
 * entry in the wheel. Growing comes in three steps, because memory is allocated
 * where one may sleep and installed where one may not: tw_timers_prepare() without
 * the lock of the engine, tw_timers_install() with it, tw_timers_discard() without.
 * One at a time may be on its way. The arrays of chunks are replaced by larger ones
 * that were filled beforehand, so that the lock is not held for longer as they grow.
 *
 * The user is charged for all that a growth needs in one go, before any of it is
 * allocated, and for what a growth has replaced or not used until that is freed.
 */
#include <linux/errno.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "timers.h"

#define TW_FIRST_ROOM	8

#define TW_FREE_CHUNK_SIZE	(WHEEL_CHUNK_NODES * sizeof(u32))

/* How many timers before it is its turn a free timer is prefetched. */
#define TW_FREE_AHEAD	16

/**
 * tw_timers_init() - make a table of no timers
 * @ts:       to be initialised
 * @wheel:    an initialised wheel without nodes; the table goes into it
 * @user:     is charged for what the table holds
 * @capacity: how many timers may live at one time
 */
void tw_timers_init(struct tw_timers *ts, struct wheel *wheel, struct tw_user *user,
		    u32 capacity)
{
	*ts = (struct tw_timers){
		.wheel = wheel,
		.user = user,
		.capacity = capacity,
	};
}

/**
 * tw_timers_destroy() - free the table, whatever state its timers are in
 * @ts: the table; nobody else uses it or its wheel any more. May sleep
 */
void tw_timers_destroy(struct tw_timers *ts)
{
	struct wheel *w = ts->wheel;
	u32 i;

	for (i = 0; i < w->nr_nodes; i += WHEEL_CHUNK_NODES) {
		kfree(w->nodes[i >> WHEEL_NODE_SHIFT]);
		kfree(ts->free[i >> WHEEL_NODE_SHIFT]);
		cond_resched();
	}
	for (i = 0; i < w->nr_blocks; i += WHEEL_CHUNK_BLOCKS) {
		kfree(w->blocks[i >> WHEEL_BLOCK_SHIFT]);
		cond_resched();
	}
	kvfree(w->nodes);
	kvfree(w->blocks);
	kvfree(ts->free);
	tw_user_uncharge(ts->user, ts->bytes);
}

static u32 *tw_free_place(const struct tw_timers *ts, u32 place)
{
	return &ts->free[place >> WHEEL_NODE_SHIFT][place & (WHEEL_CHUNK_NODES - 1)];
}

static u32 tw_larger_room(u32 room)
{
	return room ? room * 2 : TW_FIRST_ROOM;
}

/* What a table with @room takes; of vmalloc() the same, as it is a power of two. */
static size_t tw_table_bytes(u32 room)
{
	return tw_user_bytes(NULL, room * sizeof(void *));
}

/* A copy of a full @table that has @room, with more of it. */
static void **tw_larger_table(const void *table, u32 room)
{
	void **copy = kvcalloc(tw_larger_room(room), sizeof(*copy), GFP_KERNEL_ACCOUNT);

	if (copy && room)
		memcpy(copy, table, room * sizeof(*copy));
	return copy;
}

/* Allocates what @growth says, and @nr_blocks chunks of blocks. */
static int tw_fill(const struct tw_timers *ts, struct tw_growth *growth, u32 nr_blocks)
{
	growth->nodes = kzalloc(WHEEL_NODE_CHUNK_SIZE, GFP_KERNEL_ACCOUNT);
	growth->free = kzalloc(TW_FREE_CHUNK_SIZE, GFP_KERNEL_ACCOUNT);
	if (!growth->nodes || !growth->free)
		return -ENOMEM;
	while (growth->nr_blocks < nr_blocks) {
		void *chunk = kzalloc(WHEEL_BLOCK_CHUNK_SIZE, GFP_KERNEL_ACCOUNT);

		if (!chunk)
			return -ENOMEM;
		growth->blocks[growth->nr_blocks++] = chunk;
	}
	if (growth->node_room != ts->node_room) {
		growth->node_table = tw_larger_table(ts->wheel->nodes, ts->node_room);
		growth->free_table = tw_larger_table(ts->free, ts->node_room);
		if (!growth->node_table || !growth->free_table)
			return -ENOMEM;
	}
	if (growth->block_room != ts->block_room) {
		growth->block_table = tw_larger_table(ts->wheel->blocks, ts->block_room);
		if (!growth->block_table)
			return -ENOMEM;
	}
	return 0;
}

/**
 * tw_timers_prepare() - allocate what WHEEL_CHUNK_NODES more timers need
 * @ts:     the table. Nothing of it changes, and nobody else grows it meanwhile
 * @growth: filled in
 *
 * May sleep. Whatever it returns, tw_timers_discard() is to be called in the end.
 *
 * Return: 0, -ENOMEM, -EPERM if the user may hold no more, or -ENOSPC if the table
 * cannot have more timers.
 */
int tw_timers_prepare(const struct tw_timers *ts, struct tw_growth *growth)
{
	const struct wheel *w = ts->wheel;
	u32 nr_nodes = w->nr_nodes + WHEEL_CHUNK_NODES;
	u32 nr_blocks = 0;
	size_t bytes;

	*growth = (struct tw_growth){
		.user = ts->user,
		.node_room = ts->node_room,
		.block_room = ts->block_room,
	};
	if (nr_nodes > WHEEL_MAX_NODES)
		return -ENOSPC;

	bytes = tw_user_bytes(NULL, WHEEL_NODE_CHUNK_SIZE) +
		tw_user_bytes(NULL, TW_FREE_CHUNK_SIZE);
	while (w->nr_blocks + nr_blocks * WHEEL_CHUNK_BLOCKS < wheel_blocks_for(nr_nodes))
		nr_blocks++;
	bytes += nr_blocks * tw_user_bytes(NULL, WHEEL_BLOCK_CHUNK_SIZE);
	if (w->nr_nodes >> WHEEL_NODE_SHIFT == ts->node_room) {
		growth->node_room = tw_larger_room(ts->node_room);
		bytes += 2 * tw_table_bytes(growth->node_room);
	}
	if ((w->nr_blocks >> WHEEL_BLOCK_SHIFT) + nr_blocks > ts->block_room) {
		growth->block_room = tw_larger_room(ts->block_room);
		bytes += tw_table_bytes(growth->block_room);
	}

	if (!tw_user_charge(ts->user, bytes))
		return -EPERM;
	growth->bytes = bytes;
	return tw_fill(ts, growth, nr_blocks);
}

/**
 * tw_timers_install() - put prepared memory into use
 * @ts:     the table; the lock that guards it is held
 * @growth: from a tw_timers_prepare() that returned 0
 */
void tw_timers_install(struct tw_timers *ts, struct tw_growth *growth)
{
	struct wheel *w = ts->wheel;
	u32 i, first = w->nr_nodes;
	size_t replaced = 0;

	if (growth->node_table) {
		void **old = (void **)ts->free;

		ts->free = (u32 **)growth->free_table;
		growth->free_table = old;
		swap(w->nodes, growth->node_table);
		replaced += 2 * tw_table_bytes(ts->node_room);
		ts->node_room = growth->node_room;
	}
	if (growth->block_table) {
		void **old = (void **)w->blocks;

		w->blocks = (struct wheel_block **)growth->block_table;
		growth->block_table = old;
		replaced += tw_table_bytes(ts->block_room);
		ts->block_room = growth->block_room;
	}
	while (growth->nr_blocks)
		wheel_add_blocks(w, growth->blocks[--growth->nr_blocks]);
	ts->free[first >> WHEEL_NODE_SHIFT] = growth->free;
	growth->free = NULL;
	wheel_add_nodes(w, growth->nodes);
	growth->nodes = NULL;
	ts->bytes += growth->bytes - replaced;
	growth->bytes = replaced;

	for (i = w->nr_nodes; i-- > first;) {
		tw_timer(ts, i)->generation = 1;
		*tw_free_place(ts, ts->nr_free++) = i;
	}
}

/**
 * tw_timers_discard() - free what was prepared and not installed, or replaced
 * @growth: as the calls before have left it. May sleep
 */
void tw_timers_discard(struct tw_growth *growth)
{
	kfree(growth->nodes);
	kfree(growth->free);
	while (growth->nr_blocks)
		kfree(growth->blocks[--growth->nr_blocks]);
	kvfree(growth->node_table);
	kvfree(growth->free_table);
	kvfree(growth->block_table);
	tw_user_uncharge(growth->user, growth->bytes);
}

/**
 * tw_timers_alloc() - take a free timer
 * @ts:    the table; the lock that guards it is held
 * @index: out: the timer. The caller arms it or makes it ready before the lock is
 *         released
 *
 * Return: 0, -ENOSPC if the capacity is in use, -EAGAIN if the table has to grow.
 */
int tw_timers_alloc(struct tw_timers *ts, u32 *index)
{
	if (ts->live >= ts->capacity)
		return -ENOSPC;
	if (!ts->nr_free)
		return -EAGAIN;
	*index = *tw_free_place(ts, --ts->nr_free);
	if (ts->nr_free >= TW_FREE_AHEAD)
		prefetchw(tw_timer(ts, *tw_free_place(ts, ts->nr_free - TW_FREE_AHEAD)));
	ts->live++;
	return 0;
}

/**
 * tw_timers_free() - free a timer that is neither armed nor ready
 * @ts:    the table; the lock that guards it is held
 * @index: the timer
 *
 * A timer whose generations are used up is left lying rather than that a handle
 * could ever name two timers.
 */
void tw_timers_free(struct tw_timers *ts, u32 index)
{
	struct tw_timer *t = tw_timer(ts, index);

	ts->live--;
	if (!++t->generation)
		return;
	*tw_free_place(ts, ts->nr_free++) = index;
}

/**
 * tw_timers_find() - the timer that a handle names
 * @ts:    the table; the lock that guards it is held
 * @id:    the handle, from anywhere
 * @index: out: the index of the timer
 *
 * Return: the timer, which is armed or ready, or NULL.
 */
struct tw_timer *tw_timers_find(const struct tw_timers *ts, u64 id, u32 *index)
{
	struct tw_timer *t;

	*index = (u32)id;
	if (*index >= ts->wheel->nr_nodes)
		return NULL;
	/* Nor may a processor that guesses the outcome of that look up what is beyond. */
	*index = array_index_nospec(*index, ts->wheel->nr_nodes);
	t = tw_timer(ts, *index);
	if (t->generation != id >> 32)
		return NULL;
	return t->node.armed || t->node.owner & TW_READY ? t : NULL;
}
