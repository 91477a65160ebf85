// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Slots as timers of a wheel in the process, the very same as in the kernel, that is woken
 * by one timerfd.
 *
 * It does what the device does, in the same order: what is due when it is set is ready at
 * once, all else when its tick begins, or with slack at the roundest tick that there is.
 * The timerfd is set, if it has to be, when all of a batch was done.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define TW_TICK_SHIFT		20	/* as the device has it */
#define TW_TICK_SHIFT_MIN	12
#define TW_TICK_SHIFT_MAX	30

/* Due at once: a time that has passed on every clock, and is not 0, which is none. */
#define TW_AT_ONCE		1

struct tw_local {
	struct wheel wheel;
	unsigned int tick_shift;
	uint32_t block_room;
	struct tw_list ready;
	uint64_t wake_ns;	/* for when the timerfd is set, TWHEEL_NEVER if it is not */
};

static unsigned int tw_shift_of(uint64_t tick_ns)
{
	unsigned int shift = tick_ns ? fls64(tick_ns) - 1 : TW_TICK_SHIFT;

	return max(TW_TICK_SHIFT_MIN, min(shift, TW_TICK_SHIFT_MAX));
}

static int tw_timerfd_clock(int clockid)
{
	switch (clockid) {
	case CLOCK_TAI:			/* which has none; see tw_behind_ns() */
		return CLOCK_REALTIME;
	case TWHEEL_CLOCK_MANUAL:	/* of which it only says that something is ready */
		return CLOCK_MONOTONIC;
	default:
		return clockid;
	}
}

static bool tw_can_be_set(const struct twheel *w)
{
	return w->clockid == CLOCK_REALTIME || w->clockid == CLOCK_TAI;
}

/* How far the clock of the timerfd is behind that of the wheel. */
static uint64_t tw_behind_ns(const struct twheel *w)
{
	struct timex tx = {};

	if (w->clockid != CLOCK_TAI || adjtimex(&tx) < 0 || tx.tai < 0)
		return 0;
	return tx.tai * TWHEEL_SEC;
}

static int tw_local_open(struct twheel *w, const struct twheel_options *options)
{
	struct tw_local *l;

	w->capacity = WHEEL_MAX_NODES - WHEEL_CHUNK_NODES;
	if (options->capacity > w->capacity)
		return -EPERM;
	if (options->capacity)
		w->capacity = options->capacity;
	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	w->fd = timerfd_create(tw_timerfd_clock(w->clockid), TFD_NONBLOCK | TFD_CLOEXEC);
	if (w->fd < 0) {
		free(l);
		return -errno;
	}
	l->tick_shift = tw_shift_of(options->tick_ns);
	l->wake_ns = TWHEEL_NEVER;
	wheel_init(&l->wheel, twheel_now(w) >> l->tick_shift);
	w->private = l;
	return 0;
}

static void tw_local_close(struct twheel *w)
{
	struct tw_local *l = w->private;
	uint32_t i;

	for (i = 0; i < l->wheel.nr_blocks >> WHEEL_BLOCK_SHIFT; i++)
		free(l->wheel.blocks[i]);
	free(l->wheel.blocks);
	free(l);
	close(w->fd);
}

static int tw_add_blocks(struct tw_local *l)
{
	uint32_t room = l->block_room ? 2 * l->block_room : 4;
	struct wheel_block **blocks;
	void *chunk;

	if (l->wheel.nr_blocks >> WHEEL_BLOCK_SHIFT == l->block_room) {
		blocks = reallocarray(l->wheel.blocks, room, sizeof(*blocks));
		if (!blocks)
			return -ENOMEM;
		l->wheel.blocks = blocks;
		l->block_room = room;
	}
	chunk = aligned_alloc(sizeof(struct wheel_block), WHEEL_BLOCK_CHUNK_SIZE);
	if (!chunk)
		return -ENOMEM;
	memset(chunk, 0, WHEEL_BLOCK_CHUNK_SIZE);
	wheel_add_blocks(&l->wheel, chunk);
	return 0;
}

static int tw_local_grow(struct twheel *w)
{
	struct tw_local *l = w->private;
	uint32_t nr_nodes = w->nr_slots + WHEEL_CHUNK_NODES;
	int ret;

	l->wheel.nodes = (void **)w->chunks;
	while (l->wheel.nr_blocks < wheel_blocks_for(nr_nodes)) {
		ret = tw_add_blocks(l);
		if (ret)
			return ret;
	}
	wheel_add_nodes(&l->wheel, w->chunks[w->nr_slots >> WHEEL_NODE_SHIFT]);
	return 0;
}

static int tw_local_add(struct twheel *w, uint32_t *slots, uint32_t nr)
{
	(void)w;
	(void)slots;
	return nr;
}

static void tw_ready_push(struct twheel *w, struct tw_local *l, uint32_t slot)
{
	struct tw_slot *s = tw_slot(w, slot);

	s->ready = true;
	s->ready_prev = l->ready.last;
	s->ready_next = TW_NO_SLOT;
	*(s->ready_prev ? &tw_slot(w, s->ready_prev)->ready_next : &l->ready.first) = slot;
	l->ready.last = slot;
}

static void tw_ready_remove(struct twheel *w, struct tw_local *l, struct tw_slot *s)
{
	*(s->ready_prev ? &tw_slot(w, s->ready_prev)->ready_next : &l->ready.first) =
		s->ready_next;
	*(s->ready_next ? &tw_slot(w, s->ready_next)->ready_prev : &l->ready.last) =
		s->ready_prev;
	s->ready = false;
}

/* As the device has it: the tick at which a timer that is not due yet will be. */
static uint64_t tw_expiry_tick(const struct tw_local *l, const struct tw_op *op)
{
	uint64_t first = (op->expires_ns + (1ULL << l->tick_shift) - 1) >> l->tick_shift;
	uint64_t last = tw_add_ns(op->expires_ns, op->slack_ns) >> l->tick_shift;

	return last > first ? wheel_roundest(first, last) : first;
}

static void tw_local_set(struct twheel *w, struct tw_local *l, const struct tw_op *op,
			 uint64_t now_ns)
{
	struct tw_slot *s = tw_slot(w, op->slot);

	if (s->ready)
		tw_ready_remove(w, l, s);
	if (op->gone || op->expires_ns == TWHEEL_NEVER) {
		if (s->node.armed)
			wheel_cancel(&l->wheel, &s->node);
	} else if (op->expires_ns > now_ns) {
		wheel_arm(&l->wheel, op->slot, tw_expiry_tick(l, op));
	} else {
		if (s->node.armed)
			wheel_cancel(&l->wheel, &s->node);
		tw_ready_push(w, l, op->slot);
	}
}

static int tw_local_send(struct twheel *w, const struct tw_op *ops, uint32_t nr)
{
	struct tw_local *l = w->private;
	uint64_t now_ns = twheel_now(w);
	uint32_t i;

	wheel_forward(&l->wheel, now_ns >> l->tick_shift);
	for (i = 0; i < nr; i++)
		tw_local_set(w, l, &ops[i], now_ns);
	return nr;
}

/* Expires what is due at @now_ns, until at least one thing is ready, or all of it. */
static void tw_expire(struct twheel *w, struct tw_local *l, uint64_t now_ns, bool all)
{
	struct wheel_batch batch;
	bool done;
	uint32_t i;

	do {
		batch = (struct wheel_batch){ .budget = WHEEL_BATCH };
		done = wheel_advance(&l->wheel, now_ns >> l->tick_shift, &batch);
		for (i = 0; i < batch.nr; i++)
			tw_ready_push(w, l, batch.expired[i]);
	} while (!done && (all || !l->ready.first));
}

static uint64_t tw_tick_ns(const struct tw_local *l, uint64_t tick)
{
	return tick > (uint64_t)INT64_MAX >> l->tick_shift ? TWHEEL_NEVER :
							     tick << l->tick_shift;
}

static uint64_t tw_wake_ns(const struct twheel *w, const struct tw_local *l)
{
	if (l->ready.first)
		return TW_AT_ONCE;
	if (w->clockid == TWHEEL_CLOCK_MANUAL)
		return TWHEEL_NEVER;
	return tw_tick_ns(l, wheel_next_bound(&l->wheel));
}

static void tw_local_settle(struct twheel *w)
{
	struct tw_local *l = w->private;
	uint64_t wake_ns = tw_wake_ns(w, l), ns = wake_ns;
	struct itimerspec at = {};

	if (wake_ns == l->wake_ns || tw_is_silent(w))
		return;
	if (ns != TWHEEL_NEVER) {
		ns = max(ns - min(ns, tw_behind_ns(w)), (uint64_t)TW_AT_ONCE);
		at.it_value.tv_sec = ns / TWHEEL_SEC;
		at.it_value.tv_nsec = ns % TWHEEL_SEC;
	}
	w->counts.syscalls++;
	timerfd_settime(w->fd, TFD_TIMER_ABSTIME, &at, NULL);
	l->wake_ns = wake_ns;
}

static int tw_local_take(struct twheel *w, uint32_t *slots, uint32_t max, uint64_t *now_ns)
{
	struct tw_local *l = w->private;
	uint32_t nr = 0;

	*now_ns = twheel_now(w);
	while (nr < max) {
		if (!l->ready.first)
			tw_expire(w, l, *now_ns, false);
		if (!l->ready.first)
			break;
		slots[nr++] = l->ready.first;
		tw_ready_remove(w, l, tw_slot(w, l->ready.first));
	}
	/*
	 * What was set for a time that has passed has fired, and is to be set anew. So it may
	 * have if there is nothing: the clock may have been set back since.
	 */
	if (l->wake_ns != TWHEEL_NEVER && (l->wake_ns <= *now_ns || (!nr && tw_can_be_set(w))))
		l->wake_ns = 0;
	return nr;
}

static uint64_t tw_local_next(struct twheel *w)
{
	struct tw_local *l = w->private;
	uint64_t tick, now_ns = twheel_now(w);

	tw_expire(w, l, now_ns, true);
	if (l->ready.first)
		return now_ns;
	while (!wheel_next(&l->wheel, &tick, UINT32_MAX))
		;
	return tw_tick_ns(l, tick);
}

static int tw_local_advance(struct twheel *w, uint64_t to_ns)
{
	struct tw_local *l = w->private;

	tw_expire(w, l, to_ns, true);
	tw_local_settle(w);
	return 0;
}

const struct tw_backend tw_local = {
	.open		= tw_local_open,
	.close		= tw_local_close,
	.grow		= tw_local_grow,
	.add		= tw_local_add,
	.send		= tw_local_send,
	.settle		= tw_local_settle,
	.take		= tw_local_take,
	.next		= tw_local_next,
	.advance	= tw_local_advance,
};
