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
#include <linux/workqueue.h>

#include "../uapi/linux/twheel.h"
#include "clockset.h"
#include "queue.h"
#include "share.h"
#include "timers.h"
#include "wheel.h"

#define TW_TICK_SHIFT_MIN	12
#define TW_TICK_SHIFT_MAX	30
#define TW_TICK_SHIFT_DEFAULT	20

/* Records that are collected and copied under one hold of the lock. */
#define TW_READ_BATCH		32

/**
 * struct tw_engine - one open file
 * @lock:         guards all but @clockset, @grow_lock, @trim and @wait
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
 *                while its callback is at work, which queues it anew at its end, and
 *                until it goes on if its budget or the share of its user was used up
 * @took_ns:      what the last pass of its callback took, or may take if it had none
 * @turn_ns:      when the engine has its turn, CLOCK_MONOTONIC of the host; 0 if it need
 *                not wait for one. Kept until the callback has had it
 * @announcer:    announces the queue at @announce_ns, unless the clock is manual
 * @queue:        timers that are ready, in the order in which their records are read
 * @wake_batch:   the queue is announced when it is this long ...
 * @wake_delay_ns: ... or this long after it began to fill; 0: at once
 * @announce_ns:  when that will be, on the manual clock or CLOCK_MONOTONIC of the host;
 *                TWHEEL_NEVER if the queue is empty or announced
 * @announced:    readers may know of the queue, which is not empty. May be read
 *                without @lock
 * @wake:         readers are to be woken when the lock is released
 * @tell_sets:    a record tells that the wall clock was set
 * @jumped:       the record that the wall clock was set waits to be read
 * @jump_ns:      the jump that it will tell
 * @jump_at_ns:   when it was noticed
 * @drain_next:   the timer that tw_engine_drain() looks at next
 * @stats:        counters
 * @events:       records on their way out
 * @ops:          drained timers on their way out
 * @clockset:     tells of sets of the wall clock, if @clockset.was_set is set
 * @grow_lock:    held while @timers grows or is trimmed, or the engine is set up; taken
 *                before @lock
 * @trim:         gives memory back when there have been no timers for long
 * @wait:         who waits for a record
 */
struct tw_engine {
	spinlock_t lock; /* all but clockset, grow_lock, trim and wait */
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
	u64 took_ns;
	u64 turn_ns;
	struct hrtimer announcer;
	struct tw_queue queue;
	u32 wake_batch;
	u64 wake_delay_ns;
	u64 announce_ns;
	bool announced;
	bool wake;
	bool tell_sets;
	bool jumped;
	s64 jump_ns;
	u64 jump_at_ns;
	u32 drain_next;
	struct twheel_stats stats;
	union {
		struct twheel_event events[TW_READ_BATCH];
		struct twheel_op ops[TW_READ_BATCH];
	};
	struct tw_clockset clockset;
	struct mutex grow_lock; /* growing and trimming of timers, set-up */
	struct delayed_work trim;
	wait_queue_head_t wait;
	struct wheel wheel;
};

/**
 * typedef tw_copy_t - takes records out of the engine
 * @to:      the caller's
 * @records: the records
 * @size:    of one of them
 * @nr:      how many
 *
 * Called with the engine's lock held: may not sleep.
 *
 * Return: how many were taken, counted from the first.
 */
typedef u32 (*tw_copy_t)(void *to, const void *records, size_t size, u32 nr);

/**
 * enum tw_rest - why tw_engine_read() or tw_engine_drain() stopped
 * @TW_REST_NONE:  there was no more
 * @TW_REST_MORE:  there may be more
 * @TW_REST_FAULT: not all that was offered has been taken
 */
enum tw_rest {
	TW_REST_NONE,
	TW_REST_MORE,
	TW_REST_FAULT,
};

struct tw_engine *tw_engine_create(u32 capacity);
void tw_engine_destroy(struct tw_engine *e);

bool tw_engine_clock_known(u32 clockid);
u64 tw_engine_grant_tick_ns(u64 tick_ns);
bool tw_engine_is_fixed(struct tw_engine *e);
int tw_engine_setup(struct tw_engine *e, const struct twheel_setup *setup);
void tw_engine_info(struct tw_engine *e, struct twheel_info *info);
void tw_engine_stats(struct tw_engine *e, struct twheel_stats *stats, u64 *wake_ns);
size_t tw_engine_memory(struct tw_engine *e);

void tw_engine_submit(struct tw_engine *e, struct twheel_op *ops, u32 nr);
bool tw_engine_readable(const struct tw_engine *e);
int tw_engine_next(struct tw_engine *e, u64 *expires_ns);
int tw_engine_advance(struct tw_engine *e, u64 to_ns);

u32 tw_engine_read(struct tw_engine *e, u32 max, tw_copy_t copy, void *to,
		   enum tw_rest *rest);
u32 tw_engine_drain(struct tw_engine *e, u32 max, tw_copy_t copy, void *to,
		    enum tw_rest *rest);
u32 tw_engine_list(struct tw_engine *e, u32 *cursor, struct twheel_op *ops, u32 max);

#endif /* TWHEEL_ENGINE_H */
