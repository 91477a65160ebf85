// SPDX-License-Identifier: GPL-2.0
/*
 * The timers of one wheel. See timers.h.
 *
 * Growing comes in three steps, because memory is allocated where one may sleep and
 * installed where one may not: tw_timers_prepare() without the lock of the engine,
 * tw_timers_install() with it, tw_timers_discard() without. One at a time may be on its
 * way. The arrays of chunks are replaced by larger ones that were filled beforehand, so
 * that the lock is not held for longer as they grow.
 *
 * A chunk knows its free timers by a bit each, and the chunks that have any are in a
 * list: the next timer is found without a look at it, and is likely near the last one.
 *
 * Memory is given back only when no timer lives, all of it at once. Until then a table
 * does not shrink: the place of a timer is its handle, so that it cannot be moved, a few
 * timers that live long keep about as many chunks of 64, and a freed timer may still have an
 * entry in the wheel. Timers that come after in the same places go on with generations that
 * were not told before; half of all generations are kept for timers that are used again.
 *
 * The user is charged for all that a growth needs in one go, before any of it is
 * allocated, and for what a growth has replaced or not used until that is freed.
 */
#include <linux/errno.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "timers.h"

#define TW_FIRST_ROOM	8

/* How many timers before it is its turn a free timer is prefetched. */
#define TW_FREE_AHEAD	4

static const size_t tw_chunk_sizes[TW_PARTS] = {
	[TW_NODES]	= WHEEL_NODE_CHUNK_SIZE,
	[TW_FREE]	= sizeof(struct tw_free),
	[TW_BLOCKS]	= WHEEL_BLOCK_CHUNK_SIZE,
	[TW_QUEUE]	= TW_QUEUE_CHUNK_SIZE,
};

/**
 * tw_timers_init() - make a table of no timers
 * @ts:       to be initialised
 * @wheel:    an initialised wheel without nodes; the table goes into it
 * @queue:    an initialised queue without blocks, which gets those that it needs
 * @user:     is charged for what the table holds
 * @capacity: how many timers may live at one time
 */
void tw_timers_init(struct tw_timers *ts, struct wheel *wheel, struct tw_queue *queue,
		    struct tw_user *user, u32 capacity)
{
	*ts = (struct tw_timers){
		.wheel = wheel,
		.queue = queue,
		.user = user,
		.newest = 1,
		.spare = WHEEL_NONE,
		.capacity = capacity,
	};
}

/**
 * tw_timers_destroy() - free the table, whatever state its timers are in
 * @ts: the table; nobody else uses it or its wheel any more. May sleep
 */
void tw_timers_destroy(struct tw_timers *ts)
{
	u32 part, i;

	for (part = 0; part < TW_PARTS; part++) {
		for (i = 0; i < ts->chunks[part].nr; i++) {
			kfree(ts->chunks[part].table[i]);
			cond_resched();
		}
		kvfree(ts->chunks[part].table);
	}
	tw_user_uncharge(ts->user, ts->bytes);
}

/**
 * tw_timers_release() - take all memory out of a table in which no timer lives
 * @ts:   the table; the lock that guards it is held, and nobody grows it meanwhile
 * @tick: the caller's now, for the wheel, which begins anew
 * @old:  out: a table that has the memory, for tw_timers_destroy() without the lock
 *
 * Return: false if a timer lives, or if too few generations would be left.
 */
bool tw_timers_release(struct tw_timers *ts, u64 tick, struct tw_timers *old)
{
	if (ts->nr_free != ts->wheel->nr_nodes || ts->newest > S32_MAX)
		return false;
	*old = *ts;
	ts->first_generation = ts->newest;
	ts->again = max(ts->again, ts->wheel->nr_nodes);
	memset(ts->chunks, 0, sizeof(ts->chunks));
	ts->bytes = 0;
	ts->spare = WHEEL_NONE;
	ts->nr_free = 0;
	wheel_init(ts->wheel, tick);
	tw_queue_init(ts->queue);
	return true;
}

static struct tw_free *tw_free(const struct tw_timers *ts, u32 chunk)
{
	return ts->chunks[TW_FREE].table[chunk];
}

/* What a table with @room takes; of vmalloc() the same, as it is a power of two. */
static size_t tw_table_bytes(u32 room)
{
	return tw_user_bytes(NULL, room * sizeof(void *));
}

/* How many chunks there are in all if there are so many nodes. */
static u32 tw_chunks_for(u32 part, u32 nr_nodes)
{
	switch (part) {
	case TW_BLOCKS:
		return DIV_ROUND_UP(wheel_blocks_for(nr_nodes), WHEEL_CHUNK_BLOCKS);
	case TW_QUEUE:
		return DIV_ROUND_UP(tw_queue_blocks_for(nr_nodes), TW_QUEUE_CHUNK_BLOCKS);
	default:
		return nr_nodes >> WHEEL_NODE_SHIFT;
	}
}

/* Allocates @nr chunks of a part, and a larger table if that is to be. */
static int tw_fill(const struct tw_timers *ts, struct tw_growth *growth, u32 part, u32 nr)
{
	const struct tw_chunks *old = &ts->chunks[part];
	u32 room = growth->room[part];
	void **table, *chunk;

	while (growth->nr[part] < nr) {
		chunk = kzalloc(tw_chunk_sizes[part], GFP_KERNEL_ACCOUNT);
		if (!chunk)
			return -ENOMEM;
		growth->chunk[part][growth->nr[part]++] = chunk;
	}
	if (room == old->room)
		return 0;
	table = kvcalloc(room, sizeof(*table), GFP_KERNEL_ACCOUNT);
	if (!table)
		return -ENOMEM;
	if (old->nr)
		memcpy(table, old->table, old->nr * sizeof(*table));
	growth->table[part] = table;
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
	u32 nr_nodes = ts->wheel->nr_nodes + WHEEL_CHUNK_NODES;
	u32 part, room, nr[TW_PARTS];
	size_t bytes = 0;
	int ret = 0;

	*growth = (struct tw_growth){ .user = ts->user };
	if (nr_nodes > WHEEL_MAX_NODES)
		return -ENOSPC;

	for (part = 0; part < TW_PARTS; part++) {
		nr[part] = tw_chunks_for(part, nr_nodes) - ts->chunks[part].nr;
		bytes += nr[part] * tw_user_bytes(NULL, tw_chunk_sizes[part]);
		room = ts->chunks[part].room;
		if (ts->chunks[part].nr + nr[part] > room) {
			room = room ? room * 2 : TW_FIRST_ROOM;
			bytes += tw_table_bytes(room);
		}
		growth->room[part] = room;
	}

	if (!tw_user_charge(ts->user, bytes))
		return -EPERM;
	growth->bytes = bytes;
	for (part = 0; part < TW_PARTS && !ret; part++)
		ret = tw_fill(ts, growth, part, nr[part]);
	return ret;
}

/* Puts new timers into a new chunk of the list of free ones. */
static void tw_add_free(struct tw_timers *ts, u32 chunk)
{
	u32 i, first = chunk << WHEEL_NODE_SHIFT;

	for (i = first; i < first + WHEEL_CHUNK_NODES; i++)
		tw_timer(ts, i)->generation = i < ts->again ? ts->first_generation : 1;
	*tw_free(ts, chunk) = (struct tw_free){ .timers = U64_MAX, .next = ts->spare };
	ts->spare = chunk;
	ts->nr_free += WHEEL_CHUNK_NODES;
}

/**
 * tw_timers_install() - put prepared memory into use
 * @ts:     the table; the lock that guards it is held
 * @growth: from a tw_timers_prepare() that returned 0
 */
void tw_timers_install(struct tw_timers *ts, struct tw_growth *growth)
{
	u32 part, i, nr_nodes = ts->wheel->nr_nodes;
	struct tw_chunks *chunks;
	size_t replaced = 0;

	for (part = 0; part < TW_PARTS; part++) {
		chunks = &ts->chunks[part];
		if (growth->table[part]) {
			replaced += chunks->room ? tw_table_bytes(chunks->room) : 0;
			swap(chunks->table, growth->table[part]);
			chunks->room = growth->room[part];
		}
		for (i = 0; i < growth->nr[part]; i++)
			chunks->table[chunks->nr++] = growth->chunk[part][i];
	}
	ts->bytes += growth->bytes - replaced;
	growth->bytes = replaced;

	ts->wheel->nodes = ts->chunks[TW_NODES].table;
	ts->wheel->blocks = (struct wheel_block **)ts->chunks[TW_BLOCKS].table;
	ts->queue->blocks = (struct tw_queue_block **)ts->chunks[TW_QUEUE].table;
	for (i = 0; i < growth->nr[TW_BLOCKS]; i++)
		wheel_add_blocks(ts->wheel, growth->chunk[TW_BLOCKS][i]);
	for (i = 0; i < growth->nr[TW_QUEUE]; i++)
		tw_queue_add_blocks(ts->queue, growth->chunk[TW_QUEUE][i]);
	wheel_add_nodes(ts->wheel, growth->chunk[TW_NODES][0]);
	tw_add_free(ts, nr_nodes >> WHEEL_NODE_SHIFT);
	memset(growth->nr, 0, sizeof(growth->nr));
}

/**
 * tw_timers_discard() - free what was prepared and not installed, or replaced
 * @growth: as the calls before have left it. May sleep
 */
void tw_timers_discard(struct tw_growth *growth)
{
	u32 part;

	for (part = 0; part < TW_PARTS; part++) {
		while (growth->nr[part])
			kfree(growth->chunk[part][--growth->nr[part]]);
		kvfree(growth->table[part]);
	}
	tw_user_uncharge(growth->user, growth->bytes);
}

/*
 * Has a free timer of the chunk at hand that is taken soon, or if there are few, one of
 * the next chunk.
 */
static __always_inline void tw_prefetch_free(const struct tw_timers *ts)
{
	u32 i, chunk = ts->spare;
	u64 timers;

	if (chunk == WHEEL_NONE)
		return;
	timers = tw_free(ts, chunk)->timers;
	for (i = 1; i < TW_FREE_AHEAD && timers & (timers - 1); i++)
		timers &= timers - 1;
	prefetchw(tw_timer(ts, (chunk << WHEEL_NODE_SHIFT) + __ffs64(timers)));
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
	u32 chunk = ts->spare;
	struct tw_free *free;

	if (ts->live >= ts->capacity)
		return -ENOSPC;
	if (chunk == WHEEL_NONE)
		return -EAGAIN;
	free = tw_free(ts, chunk);
	*index = (chunk << WHEEL_NODE_SHIFT) + __ffs64(free->timers);
	free->timers &= free->timers - 1;
	if (!free->timers)
		ts->spare = free->next;
	ts->nr_free--;
	ts->live++;
	tw_prefetch_free(ts);
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
	u32 chunk = index >> WHEEL_NODE_SHIFT;
	struct tw_free *free = tw_free(ts, chunk);
	u32 generation = ++tw_timer(ts, index)->generation;

	ts->live--;
	if (!generation)
		return;
	ts->newest = max(ts->newest, generation);
	if (!free->timers) {
		free->next = ts->spare;
		ts->spare = chunk;
	}
	free->timers |= BIT_ULL(index & (WHEEL_CHUNK_NODES - 1));
	ts->nr_free++;
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
