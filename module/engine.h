/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One wheel in operation: a clock, a lock, an hrtimer and a queue of timers that are
 * ready to be read. All of it in nanoseconds; no user memory.
 */
#ifndef TWHEEL_ENGINE_H
#define TWHEEL_ENGINE_H

#include <linux/hrtimer.h>
#include <linux/mutex.h>
#include <linux/poll.h>
#include <linux/spinlock.h>
#include <linux/types.h>
#include <linux/wait.h>

#include "../uapi/linux/twheel.h"
#include "timers.h"
#include "wheel.h"

#define TW_TICK_SHIFT_MIN	12
#define TW_TICK_SHIFT_MAX	30
#define TW_TICK_SHIFT_DEFAULT	20

/* Records that are collected and copied under one hold of the lock. */
#define TW_READ_BATCH		32

/**
 * struct tw_stats - counters of an engine since it was made
 * @armed:          timers armed
 * @fired:          expiries put into the queue
 * @cancelled:      timers cancelled, armed or ready
 * @modified:       timers re-armed in place
 * @cascaded:       moves of a timer to a finer slot
 * @wakeups:        runs of the hrtimer; of a manual clock, the moves of it that
 *                  would have been one
 * @hrtimer_starts: times the hrtimer was started
 * @continued:      passes that used up their budget
 * @ready_max:      longest that the queue was
 */
struct tw_stats {
	u64 armed;
	u64 fired;
	u64 cancelled;
	u64 modified;
	u64 cascaded;
	u64 wakeups;
	u64 hrtimer_starts;
	u64 continued;
	u64 ready_max;
};

/**
 * struct tw_engine - one open file
 * @lock:         guards all that follows, @grow_lock and @wait apart
 * @wheel:        timers that are armed
 * @timers:       all timers
 * @clockid:      clock of the wheel
 * @tick_shift:   log2 of the tick in ns
 * @fixed:        clock, tick and capacity may no longer be changed
 * @number:       names the wheel in traces
 * @manual_ns:    now, if the clock is TWHEEL_CLOCK_MANUAL
 * @offset_ns:    what is added to the host's clock to make it the opener's
 * @mono_ns:      @offset_ns of CLOCK_MONOTONIC
 * @boot_ns:      @offset_ns of CLOCK_BOOTTIME
 * @hrtimer:      wakes the engine
 * @wake_tick:    tick that @hrtimer is queued for; U64_MAX if it is not queued. 0
 *                while its callback is at work, which queues it anew at its end
 * @ready_first:  the timer whose record is read next, or WHEEL_NONE
 * @ready_last:   the timer whose record is read last
 * @nr_ready:     timers in the queue. May be read without @lock
 * @stats:        counters
 * @events:       records on their way out
 * @grow_lock:    held while @timers grows; taken before @lock
 * @wait:         who waits for a record
 */
struct tw_engine {
	spinlock_t lock; /* all but grow_lock and wait */
	struct tw_timers timers;
	u32 clockid;
	u8 tick_shift;
	bool fixed;
	u32 number;
	u64 manual_ns;
	s64 offset_ns;
	s64 mono_ns;
	s64 boot_ns;
	struct hrtimer hrtimer;
	u64 wake_tick;
	u32 ready_first;
	u32 ready_last;
	u32 nr_ready;
	struct tw_stats stats;
	struct twheel_event events[TW_READ_BATCH];
	struct mutex grow_lock; /* growing of timers */
	wait_queue_head_t wait;
	struct wheel wheel;
};

/**
 * typedef tw_copy_t - takes records out of the engine
 * @to:     the caller's
 * @events: the records
 * @nr:     how many
 *
 * Called with the engine's lock held: may not sleep.
 *
 * Return: how many were taken, counted from the first.
 */
typedef u32 (*tw_copy_t)(void *to, const struct twheel_event *events, u32 nr);

struct tw_engine *tw_engine_create(u32 capacity);
void tw_engine_destroy(struct tw_engine *e);

bool tw_engine_clock_known(u32 clockid);
u64 tw_engine_grant_tick_ns(u64 tick_ns);
bool tw_engine_is_fixed(struct tw_engine *e);
int tw_engine_setup(struct tw_engine *e, const struct twheel_setup *setup);
void tw_engine_info(struct tw_engine *e, struct twheel_info *info);
void tw_engine_stats(struct tw_engine *e, struct tw_stats *stats, u64 *wake_ns);

int tw_engine_arm(struct tw_engine *e, const struct twheel_op *op, u64 *id);
int tw_engine_cancel(struct tw_engine *e, u64 id);
int tw_engine_modify(struct tw_engine *e, const struct twheel_op *op);
int tw_engine_query(struct tw_engine *e, struct twheel_op *op);
int tw_engine_next(struct tw_engine *e, u64 *expires_ns);
int tw_engine_advance(struct tw_engine *e, u64 to_ns);

u32 tw_engine_read(struct tw_engine *e, u32 max, tw_copy_t copy, void *to,
		   bool *fault);

#endif /* TWHEEL_ENGINE_H */
