// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A cascading hierarchical timing wheel over all 64 bits of ticks.
 *
 * Levels and slots
 * ================
 *
 * A tick is written in base 64: eleven digits. The wheel has eleven levels of 64
 * slots, one level a digit. It remembers the position @now that it has reached.
 * A timer that is due at position p goes to the level of the highest digit in
 * which p differs from @now, into the slot which that digit of p says:
 *
 *   level  slot width      reaches           with ticks of 2^20 ns (1.05 ms)
 *     0    1 tick          64 ticks          1.05 ms slots, up to 67 ms
 *     1    64              4096              67 ms              4.3 s
 *     2    4096            2^18              4.3 s              4.6 min
 *     3    2^18            2^24              4.6 min            4.9 h
 *     4    2^24            2^30              4.9 h              13 d
 *     5    2^30            2^36              13 d               2.3 y
 *    ...
 *    10    2^60            2^64              38 thousand years
 *
 * From the choice of the level three things follow, and all else rests on them:
 *
 * - Nothing is clamped: every u64 has its slot.
 * - Every timer of a lower level is due before every timer of a higher one, for
 *   it shares more digits with @now.
 * - Within a level the digit of every occupied slot is above that of @now, so
 *   that slots stand in order of time and no scan ever wraps. The earliest slot
 *   is found with two __ffs64(): of the mask of levels, and of the level's.
 *
 * Advancing jumps to the earliest slot, whatever time lies between. A slot that is
 * due is *opened*: @now moves into it, and its timers are taken out one at a time.
 * Those that are due expire; the others now differ from @now in a lower digit only
 * and so go to a lower level. This is the cascade. Each slot keeps a lower bound
 * @min of what is in it, and is opened only when that is reached, not when @now
 * enters its width: a lone timer costs one wake-up however far away it was armed.
 *
 * A slot stays where it is while it is open, and wheel_advance() may stop at any
 * entry when its budget is used up. In between any other call is allowed. No timer
 * can be filed into the open slot: its digit is that of @now.
 *
 * Blocks and entries
 * ==================
 *
 * A list through the timers would cost a cache miss for each step, and each would
 * have to wait for the one before. So a slot is a chain of blocks with the
 * indices of its timers, which can be prefetched well ahead. All blocks of a chain
 * are full but the last, and but the first of the open slot. A timer has at most
 * one entry, so that wheel_blocks_for() many blocks always suffice: who adds nodes
 * adds blocks before, and filing never fails.
 *
 * Lazy moves
 * ==========
 *
 * The commonest thing to happen to a time-out is that it is pushed to later, the
 * second commonest that it is cancelled. Both leave the entry where it is. The
 * visit, when its slot is opened, finds out: an entry whose timer is no longer
 * armed is dropped, and one whose timer is due later is filed anew. A timer that
 * was cancelled and is armed again takes up its old entry, unless it is now due
 * before that entry's slot. Then, as when a timer is moved to before its slot, the
 * entry is removed: the last entry of the slot takes its place.
 *
 * So the @min of a slot may lie before the first timer that is due in it, and the
 * wheel may be woken for nothing; but that visit drops or moves on the entry that
 * was to blame. Only wheel_next() pays for the exact answer: it searches the
 * earliest slot, drops what is stale in it, and remembers that its @min is exact
 * until the timer it belongs to is touched.
 *
 * Positions
 * =========
 *
 * A wall clock can be set back; the wheel cannot turn back. It counts positions,
 * which never decrease: position = tick + @bias. When the caller's tick is found to
 * have gone back, @bias grows by as much. Timers keep their ticks, hence all of
 * them are now due at a later position than they are filed under. That is nothing
 * but a lazy move to later, of all timers at once, in O(1).
 */
#include "wheel_env.h"
#include "wheel.h"

/* How far ahead wheel_next() prefetches the timers of a slot. */
#define WHEEL_LOOKAHEAD		8

static struct wheel_block *wheel_block(const struct wheel *w, u32 block)
{
	return w->blocks[block >> WHEEL_BLOCK_SHIFT] +
	       (block & (WHEEL_CHUNK_BLOCKS - 1));
}

/* Saturates, so that a timer at the end of time stays there. */
static u64 wheel_position(const struct wheel *w, u64 tick)
{
	u64 pos = tick + w->bias;

	return pos < tick ? U64_MAX : pos;
}

/* Of a position that is not before @now, and so not before @bias. */
static u64 wheel_tick(const struct wheel *w, u64 pos)
{
	return pos == U64_MAX ? U64_MAX : pos - w->bias;
}

static unsigned int wheel_slot_shift(u32 s)
{
	return s / WHEEL_LEVEL_SLOTS * WHEEL_LEVEL_BITS;
}

/*
 * First position of a slot. Digits above the slot's level are those of @now, by
 * the choice of the level, as long as the slot has an entry.
 */
static u64 wheel_slot_start(const struct wheel *w, u32 s)
{
	unsigned int shift = wheel_slot_shift(s);
	unsigned int above = shift + WHEEL_LEVEL_BITS;
	u64 upper = above < 64 ? w->now >> above << above : 0;

	return upper | (u64)(s % WHEEL_LEVEL_SLOTS) << shift;
}

static u64 wheel_slot_last(const struct wheel *w, u32 s)
{
	return wheel_slot_start(w, s) + ((1ULL << wheel_slot_shift(s)) - 1);
}

/* The non-empty slot that is due first, the open one apart. */
static u32 wheel_earliest(const struct wheel *w)
{
	unsigned int level;

	if (!w->nonempty)
		return WHEEL_NONE;
	level = __ffs64(w->nonempty);
	return level * WHEEL_LEVEL_SLOTS + __ffs64(w->occupied[level]);
}

static void wheel_mark_occupied(struct wheel *w, u32 s)
{
	w->occupied[s / WHEEL_LEVEL_SLOTS] |= BIT_ULL(s % WHEEL_LEVEL_SLOTS);
	w->nonempty |= BIT_ULL(s / WHEEL_LEVEL_SLOTS);
}

static void wheel_mark_empty(struct wheel *w, u32 s)
{
	unsigned int level = s / WHEEL_LEVEL_SLOTS;

	w->occupied[level] &= ~BIT_ULL(s % WHEEL_LEVEL_SLOTS);
	if (!w->occupied[level])
		w->nonempty &= ~BIT_ULL(level);
}

static void wheel_free_block(struct wheel *w, u32 block)
{
	wheel_block(w, block)->next = w->free_block;
	w->free_block = block;
}

/* Puts an empty block at the end of a slot's chain. */
static struct wheel_block *wheel_extend(struct wheel *w, struct wheel_slot *slot)
{
	u32 nr = w->free_block;
	struct wheel_block *block = wheel_block(w, nr);

	w->free_block = block->next;
	if (w->free_block != WHEEL_NONE)
		prefetchw(wheel_block(w, w->free_block));
	block->next = WHEEL_NONE;
	block->prev = slot->last;
	block->begin = 0;
	block->end = 0;
	if (slot->last == WHEEL_NONE)
		slot->first = nr;
	else
		wheel_block(w, slot->last)->next = nr;
	slot->last = nr;
	return block;
}

/* Gives a timer without an entry one at the end of the slot of its position. */
static void wheel_file(struct wheel *w, u32 index, struct wheel_node *node,
		       u64 pos)
{
	unsigned int level = (fls64(pos ^ w->now) - 1) / WHEEL_LEVEL_BITS;
	unsigned int digit = pos >> (level * WHEEL_LEVEL_BITS) &
			     (WHEEL_LEVEL_SLOTS - 1);
	u32 s = level * WHEEL_LEVEL_SLOTS + digit;
	struct wheel_slot *slot = &w->slots[s];
	struct wheel_block *block = NULL;

	if (slot->last == WHEEL_NONE) {
		wheel_mark_occupied(w, s);
		slot->min = pos;
	} else {
		slot->min = min(slot->min, pos);
		block = wheel_block(w, slot->last);
	}
	if (!block || block->end == WHEEL_BLOCK_ENTRIES)
		block = wheel_extend(w, slot);
	node->entry = slot->last << WHEEL_POS_BITS | block->end;
	node->slot = s;
	block->index[block->end++] = index;
}

/*
 * Drops the entry of a timer; the last entry of its slot takes the place. Not for the
 * open slot: no timer is due before that, as it began at or before @now.
 */
static void wheel_unfile(struct wheel *w, struct wheel_node *node)
{
	struct wheel_slot *slot = &w->slots[node->slot];
	struct wheel_block *block, *last = wheel_block(w, slot->last);
	u32 freed = slot->last;
	u32 moved = last->index[--last->end];

	block = wheel_block(w, node->entry >> WHEEL_POS_BITS);
	block->index[node->entry & ((1 << WHEEL_POS_BITS) - 1)] = moved;
	wheel_node(w, moved)->entry = node->entry;
	node->entry = WHEEL_NONE;
	if (last->end) {
		/* The next one to be moved may not have been touched for long. */
		prefetchw(wheel_node(w, last->index[last->end - 1]));
		return;
	}

	slot->last = last->prev;
	wheel_free_block(w, freed);
	if (slot->last != WHEEL_NONE) {
		wheel_block(w, slot->last)->next = WHEEL_NONE;
		return;
	}
	slot->first = WHEEL_NONE;
	wheel_mark_empty(w, node->slot);
}

/*
 * To be called before an armed timer is cancelled or moved: what the search of its
 * slot has found no longer holds if it found this timer.
 */
static void wheel_touch(struct wheel *w, const struct wheel_node *node)
{
	u64 min;

	if (likely(node->slot != w->scan.slot))
		return;
	min = w->scan.done ? w->slots[w->scan.slot].min : w->scan.min;
	if (wheel_position(w, node->expires) == min)
		w->scan.slot = WHEEL_NONE;
}

/*
 * Position of the caller's now. A clock that went back shifts all timers. The last
 * position is never reached: what is filed there waits for ever, and a timer always
 * has a position after @now.
 */
static u64 wheel_target(struct wheel *w, u64 tick)
{
	u64 pos = min(wheel_position(w, tick), U64_MAX - 1);

	if (likely(pos >= w->now))
		return pos;
	w->bias += w->now - pos;
	w->scan.slot = WHEEL_NONE;
	return w->now;
}

/**
 * wheel_init() - make an empty wheel without nodes or blocks
 * @w:    to be initialised
 * @tick: the caller's now
 */
void wheel_init(struct wheel *w, u64 tick)
{
	u32 s;

	*w = (struct wheel){
		.now = min(tick, U64_MAX - 1),
		.free_block = WHEEL_NONE,
		.open = WHEEL_NONE,
		.scan.slot = WHEEL_NONE,
	};
	for (s = 0; s < WHEEL_NR_SLOTS; s++) {
		w->slots[s].first = WHEEL_NONE;
		w->slots[s].last = WHEEL_NONE;
	}
}

/**
 * wheel_blocks_for() - blocks with which a wheel can never run out
 * @nr_nodes: nodes of the wheel
 *
 * Every block has an entry; all are full but the last of each slot, and the first
 * of the open slot.
 *
 * Return: how many.
 */
u32 wheel_blocks_for(u32 nr_nodes)
{
	return min(nr_nodes, nr_nodes / WHEEL_BLOCK_ENTRIES + WHEEL_NR_SLOTS + 1);
}

/**
 * wheel_add_nodes() - add WHEEL_CHUNK_NODES nodes
 * @w:     the wheel; @w->nodes has room for one more chunk, and there are
 *         wheel_blocks_for() the nodes to come
 * @chunk: WHEEL_NODE_CHUNK_SIZE zeroed bytes
 */
void wheel_add_nodes(struct wheel *w, void *chunk)
{
	u32 i;

	w->nodes[w->nr_nodes >> WHEEL_NODE_SHIFT] = chunk;
	for (i = 0; i < WHEEL_CHUNK_NODES; i++)
		wheel_node(w, w->nr_nodes + i)->entry = WHEEL_NONE;
	w->nr_nodes += WHEEL_CHUNK_NODES;
}

/**
 * wheel_add_blocks() - add WHEEL_CHUNK_BLOCKS blocks
 * @w:     the wheel; @w->blocks has room for one more chunk
 * @chunk: WHEEL_BLOCK_CHUNK_SIZE bytes
 */
void wheel_add_blocks(struct wheel *w, void *chunk)
{
	u32 i;

	w->blocks[w->nr_blocks >> WHEEL_BLOCK_SHIFT] = chunk;
	for (i = 0; i < WHEEL_CHUNK_BLOCKS; i++)
		wheel_free_block(w, w->nr_blocks + i);
	w->nr_blocks += WHEEL_CHUNK_BLOCKS;
}

/**
 * wheel_forward() - tell the wheel the time, where nothing is to be done for it
 * @w:    the wheel
 * @tick: the caller's now; may have gone back
 *
 * To be called before wheel_arm(). A wheel that lags behind files timers into
 * coarser slots than need be. It goes as far as it can without entering a slot.
 */
void wheel_forward(struct wheel *w, u64 tick)
{
	u64 pos = wheel_target(w, tick);
	u32 s;

	if (pos == w->now || w->open != WHEEL_NONE)
		return;
	s = wheel_earliest(w);
	if (s != WHEEL_NONE)
		pos = min(pos, wheel_slot_start(w, s) - 1);
	w->now = pos;
}

/**
 * wheel_arm() - arm a timer, or move an armed one
 * @w:       the wheel
 * @index:   the timer
 * @expires: tick after that of the last wheel_forward() or wheel_advance()
 */
void wheel_arm(struct wheel *w, u32 index, u64 expires)
{
	struct wheel_node *node = wheel_node(w, index);
	u64 pos = wheel_position(w, expires);
	struct wheel_slot *slot;

	if (node->armed) {
		wheel_touch(w, node);
	} else {
		node->armed = 1;
		w->nr_armed++;
	}
	node->expires = expires;
	if (node->entry == WHEEL_NONE) {
		wheel_file(w, index, node, pos);
		return;
	}
	slot = &w->slots[node->slot];
	if (unlikely(node->slot == w->scan.slot))
		w->scan.min = min(w->scan.min, pos);
	if (likely(pos >= slot->min))
		return;
	if (pos >= wheel_slot_start(w, node->slot)) {
		slot->min = pos;
		return;
	}
	if (node->slot == w->scan.slot)
		w->scan.slot = WHEEL_NONE;
	wheel_unfile(w, node);
	wheel_file(w, index, node, pos);
}

/**
 * wheel_cancel() - cancel a timer
 * @w:    the wheel
 * @node: of an armed timer
 *
 * Its entry stays behind until its slot is opened or it is armed again.
 */
void wheel_cancel(struct wheel *w, struct wheel_node *node)
{
	wheel_touch(w, node);
	node->armed = 0;
	w->nr_armed--;
}

/*
 * Prefetches the timers of a slot's first block, which is at hand. Inline, as gcc takes
 * a function that only prefetches for one without effect and never calls it.
 */
static __always_inline void wheel_prefetch_nodes(const struct wheel *w,
						 const struct wheel_block *block)
{
	unsigned int i;

	for (i = 0; i < block->end; i++)
		prefetchw(wheel_node(w, block->index[i]));
}

/*
 * The slots after the one that is opened now are likely the next ones to be
 * opened: fetch the timers of the first, and the block of the second.
 */
static __always_inline void wheel_prefetch_slots(const struct wheel *w, u32 s)
{
	u32 level_slot = s / WHEEL_LEVEL_SLOTS * WHEEL_LEVEL_SLOTS;
	u64 later = w->occupied[s / WHEEL_LEVEL_SLOTS];

	if (!later)
		return;
	s = level_slot + __ffs64(later);
	wheel_prefetch_nodes(w, wheel_block(w, w->slots[s].first));
	later &= later - 1;
	if (!later)
		return;
	s = level_slot + __ffs64(later);
	prefetch(wheel_block(w, w->slots[s].first));
}

static void wheel_open(struct wheel *w, u32 s)
{
	w->now = w->slots[s].min;
	w->open = s;
	wheel_mark_empty(w, s);
	if (s == w->scan.slot)
		w->scan.slot = WHEEL_NONE;
	wheel_prefetch_nodes(w, wheel_block(w, w->slots[s].first));
	wheel_prefetch_slots(w, s);
}

/* Takes the used up first block off the open slot, which ends with its last. */
static void wheel_drop_first(struct wheel *w, struct wheel_slot *slot)
{
	u32 block = slot->first;
	u32 next = wheel_block(w, block)->next;

	slot->first = next;
	if (next == WHEEL_NONE) {
		slot->last = WHEEL_NONE;
		w->open = WHEEL_NONE;
	} else {
		wheel_block(w, next)->prev = WHEEL_NONE;
	}
	wheel_free_block(w, block);
}

/*
 * Visits entries of the open slot's first block, as many as the batch allows for. While a
 * block is worked off its successor tells which timers to prefetch, one for one, and the
 * block after that is fetched itself: no load waits for the one before.
 */
static void wheel_visit_block(struct wheel *w, struct wheel_batch *batch)
{
	struct wheel_slot *slot = &w->slots[w->open];
	struct wheel_block *block = wheel_block(w, slot->first);
	struct wheel_block *next = NULL;
	u32 i = block->begin, left = block->end - i;
	u32 end = i + min(left, min(batch->budget, WHEEL_BATCH - batch->nr));
	struct wheel_node *node;
	u32 index;
	u64 pos;

	batch->budget -= end - i;
	block->begin = end;
	if (block->next != WHEEL_NONE) {
		next = wheel_block(w, block->next);
		if (next->next != WHEEL_NONE)
			prefetch(wheel_block(w, next->next));
	}
	for (; i < end; i++) {
		if (next && i < next->end)
			prefetchw(wheel_node(w, next->index[i]));
		index = block->index[i];
		/* Before its last entry is filed anew, which may need this very block. */
		if (i + 1 == block->end)
			wheel_drop_first(w, slot);
		node = wheel_node(w, index);
		node->entry = WHEEL_NONE;
		if (!node->armed)
			continue;
		pos = wheel_position(w, node->expires);
		if (pos <= w->now) {
			node->armed = 0;
			w->nr_armed--;
			batch->expired[batch->nr++] = index;
		} else {
			wheel_file(w, index, node, pos);
			batch->cascaded++;
		}
	}
}

/**
 * wheel_advance() - expire what is due
 * @w:     the wheel
 * @tick:  the caller's now; may have gone back
 * @batch: how much may be done, and what has been
 *
 * Timers expire in order of their ticks, and those of one tick in the order in which
 * they were armed unless cascading or a removal has mixed them. The cost depends on
 * the entries visited, not on the time that has passed.
 *
 * Return: true if all that is due has expired, false if there is more to do. The
 * batch is to be looked at in either case.
 */
bool wheel_advance(struct wheel *w, u64 tick, struct wheel_batch *batch)
{
	u64 target = wheel_target(w, tick);
	u32 s;

	while (batch->budget && batch->nr < WHEEL_BATCH) {
		if (w->open == WHEEL_NONE) {
			s = wheel_earliest(w);
			if (s == WHEEL_NONE || w->slots[s].min > target) {
				wheel_forward(w, tick);
				return true;
			}
			batch->budget--;
			wheel_open(w, s);
			continue;
		}
		wheel_visit_block(w, batch);
	}
	return false;
}

/**
 * wheel_next_bound() - a tick before which wheel_advance() has nothing to do
 * @w: the wheel
 *
 * Return: a lower bound of the ticks of all armed timers, in O(1); U64_MAX if no
 * timer is armed.
 */
u64 wheel_next_bound(const struct wheel *w)
{
	u32 s;

	if (!w->nr_armed)
		return U64_MAX;
	if (w->open != WHEEL_NONE)
		return wheel_tick(w, w->now);
	s = wheel_earliest(w);
	return wheel_tick(w, w->slots[s].min);
}

/*
 * Goes on searching slot @s, which is not empty. Drops what is stale. True if the
 * search is over, or the slot is empty now.
 */
static bool wheel_scan(struct wheel *w, u32 s, u32 *budget)
{
	struct wheel_slot *slot = &w->slots[s];
	struct wheel_block *block;
	struct wheel_node *node;
	bool freed;
	u32 index;
	u64 pos;

	while (w->scan.block != WHEEL_NONE) {
		block = wheel_block(w, w->scan.block);
		if (w->scan.pos == block->end) {
			w->scan.block = block->next;
			w->scan.pos = 0;
			continue;
		}
		if (!*budget)
			return false;
		--*budget;
		if (w->scan.pos + WHEEL_LOOKAHEAD < block->end)
			prefetch(wheel_node(w, block->index[w->scan.pos +
							    WHEEL_LOOKAHEAD]));
		index = block->index[w->scan.pos];
		node = wheel_node(w, index);
		pos = wheel_position(w, node->expires);
		if (node->armed && pos <= wheel_slot_last(w, s)) {
			w->scan.min = min(w->scan.min, pos);
			if (pos == slot->min)
				break;
			w->scan.pos++;
			continue;
		}
		/* The last entry comes to stand here, unless this was the last. */
		freed = w->scan.block == slot->last && block->end == 1;
		wheel_unfile(w, node);
		if (node->armed)
			wheel_file(w, index, node, pos);
		if (freed)
			break;
	}
	if (slot->first != WHEEL_NONE) {
		slot->min = w->scan.min;
		w->scan.done = true;
	}
	return true;
}

/**
 * wheel_next() - the exact tick of the earliest timer
 * @w:       the wheel, all of what is due in it expired
 * @expires: the tick, U64_MAX if no timer is armed
 * @budget:  entries that may be visited
 *
 * The second and every further call is O(1) until the earliest timer is cancelled
 * or moved to later. A search that runs out of budget goes on with the next call.
 *
 * Return: true if @expires is known, false if the budget was used up, or something
 * that is due has not expired.
 */
bool wheel_next(struct wheel *w, u64 *expires, u32 budget)
{
	u32 s;

	*expires = U64_MAX;
	if (w->open != WHEEL_NONE)
		return !w->nr_armed;
	while (w->nr_armed) {
		s = wheel_earliest(w);
		if (s != w->scan.slot) {
			w->scan.slot = s;
			w->scan.block = w->slots[s].first;
			w->scan.pos = 0;
			w->scan.done = false;
			w->scan.min = U64_MAX;
		}
		if (w->scan.done) {
			*expires = wheel_tick(w, w->slots[s].min);
			return true;
		}
		if (!wheel_scan(w, s, &budget))
			return false;
	}
	return true;
}

/* Checks one slot; adds up what is in it. */
static const char *wheel_check_slot(const struct wheel *w, u32 s, u32 *blocks,
				    u32 *entries)
{
	const struct wheel_slot *slot = &w->slots[s];
	const struct wheel_block *block;
	const struct wheel_node *node;
	u32 i, nr, prev = WHEEL_NONE;
	bool exact = false;
	u64 pos;

	for (nr = slot->first; nr != WHEEL_NONE; prev = nr, nr = block->next) {
		if (nr >= w->nr_blocks || ++*blocks > w->nr_blocks)
			return "a chain of blocks leads astray";
		block = wheel_block(w, nr);
		if (block->prev != prev)
			return "a block does not lead back";
		if (block->begin >= block->end || block->end > WHEEL_BLOCK_ENTRIES)
			return "a block has no entry or too many";
		if (block->begin && (nr != slot->first || s != w->open))
			return "a block was begun outside the open slot";
		if (block->end != WHEEL_BLOCK_ENTRIES && block->next != WHEEL_NONE)
			return "a block before the last is not full";
		for (i = block->begin; i < block->end; i++) {
			if (block->index[i] >= w->nr_nodes)
				return "an entry names no node";
			node = wheel_node(w, block->index[i]);
			if (node->slot != s ||
			    node->entry != (nr << WHEEL_POS_BITS | i))
				return "a node does not name its entry";
			pos = wheel_position(w, node->expires);
			if (node->armed && pos < wheel_slot_start(w, s))
				return "a timer is due before its slot";
			if (node->armed && pos < slot->min)
				return "a timer is due before its slot's minimum";
			exact |= node->armed && pos == slot->min;
			++*entries;
		}
	}
	if (prev != slot->last)
		return "a chain does not end with its last block";
	if (s == w->scan.slot && w->scan.done && !exact)
		return "a minimum that was searched for is not exact";
	return NULL;
}

static const char *wheel_check_bits(const struct wheel *w, u32 s)
{
	bool filled = w->slots[s].first != WHEEL_NONE;
	u64 occupied = w->occupied[s / WHEEL_LEVEL_SLOTS];
	bool bit = occupied & BIT_ULL(s % WHEEL_LEVEL_SLOTS);

	if (!occupied != !(w->nonempty & BIT_ULL(s / WHEEL_LEVEL_SLOTS)))
		return "the mask of levels is wrong";
	if (bit != (filled && s != w->open))
		return "the mask of slots is wrong";
	if (s == w->open && !filled)
		return "the open slot is empty";
	if (!bit)
		return NULL;
	if (wheel_slot_start(w, s) <= w->now)
		return "a slot has been passed by";
	if (w->slots[s].min < wheel_slot_start(w, s) ||
	    w->slots[s].min > wheel_slot_last(w, s))
		return "a minimum lies outside its slot";
	return NULL;
}

/**
 * wheel_check() - verify every invariant
 * @w: the wheel
 *
 * A linear scan of all slots, blocks and nodes, for tests and debugging.
 *
 * Return: NULL, or what is wrong.
 */
const char *wheel_check(const struct wheel *w)
{
	u32 s, i, armed = 0, blocks = 0, entries = 0, filed = 0;
	const struct wheel_node *node;
	const char *wrong;

	for (s = 0; s < WHEEL_NR_SLOTS; s++) {
		wrong = wheel_check_bits(w, s);
		if (!wrong)
			wrong = wheel_check_slot(w, s, &blocks, &entries);
		if (wrong)
			return wrong;
	}
	for (i = w->free_block; i != WHEEL_NONE; i = wheel_block(w, i)->next)
		if (i >= w->nr_blocks || ++blocks > w->nr_blocks)
			return "the list of free blocks leads astray";
	if (blocks != w->nr_blocks)
		return "a block is lost";
	if (w->nr_blocks < wheel_blocks_for(w->nr_nodes))
		return "there are too few blocks";
	for (i = 0; i < w->nr_nodes; i++) {
		node = wheel_node(w, i);
		armed += node->armed;
		filed += node->entry != WHEEL_NONE;
		if (node->armed && node->entry == WHEEL_NONE)
			return "an armed timer has no entry";
	}
	if (armed != w->nr_armed)
		return "the count of armed timers is wrong";
	if (filed != entries)
		return "a node names an entry that is not there";
	return NULL;
}
