// SPDX-License-Identifier: GPL-2.0
/*
 * Tells who wants to know that the wall clock was set.
 *
 * The kernel's notifier runs with the timekeeper locked: nothing that might look at a
 * clock may be called from there, waking a worker included. So an interrupt is asked
 * for, which schedules the work, which finds out by how much each clock jumped.
 *
 * That is seen from how far the clock is ahead of CLOCK_BOOTTIME: this changes when the
 * clock is set or a leap second inserted, but neither as it is slewed nor when the
 * machine was suspended. CLOCK_TAI can be set without CLOCK_REALTIME.
 *
 * Everybody is told each time, of a jump of 0 too: that the clocks stand as before does
 * not mean that nobody has seen them elsewhere.
 *
 * There may be tens of thousands in the list, and who opens or closes a file waits for
 * the mutex. So the work goes through the list in pieces, and leaves a cursor in it in
 * between. Who is added meanwhile is added before the cursor, and has seen the set.
 */
#include <linux/irq_work.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/pvclock_gtod.h>
#include <linux/sched.h>
#include <linux/workqueue.h>

#include "clockset.h"

/* How many are told under one hold of the mutex. */
#define TW_CLOCKSET_PIECE	32

/* Guards the list, and that nobody in it goes while being told. */
static DEFINE_MUTEX(tw_clockset_lock);
static LIST_HEAD(tw_clocksets);

static struct workqueue_struct *tw_clockset_wq;

/*
 * How far a clock is ahead of CLOCK_BOOTTIME. The two readings belong together if the
 * machine was not suspended in between, which only ever adds to that of CLOCK_BOOTTIME.
 */
static s64 tw_clock_ahead_ns(enum tk_offsets clock)
{
	ktime_t boot, ahead;

	do {
		boot = ktime_mono_to_any(0, TK_OFFS_BOOT);
		ahead = ktime_sub(ktime_mono_to_any(0, clock), boot);
	} while (ktime_mono_to_any(0, TK_OFFS_BOOT) != boot);
	return ktime_to_ns(ahead);
}

static void tw_clockset_tell(struct tw_clockset *cs)
{
	s64 ahead_ns = tw_clock_ahead_ns(cs->clock);
	s64 jump_ns = ahead_ns - cs->ahead_ns;

	cs->ahead_ns = ahead_ns;
	cs->was_set(cs, jump_ns);
}

/* Tells some of those after @cursor, and moves it behind them. False at the end. */
static bool tw_clockset_piece(struct list_head *cursor)
{
	struct list_head *pos = cursor;
	int i;

	lockdep_assert_held(&tw_clockset_lock);

	for (i = 0; i < TW_CLOCKSET_PIECE && !list_is_last(pos, &tw_clocksets); i++) {
		pos = pos->next;
		tw_clockset_tell(list_entry(pos, struct tw_clockset, link));
	}
	if (pos != cursor)
		list_move(cursor, pos);
	return !list_is_last(cursor, &tw_clocksets);
}

static void tw_clockset_work(struct work_struct *work)
{
	LIST_HEAD(cursor);

	mutex_lock(&tw_clockset_lock);
	list_add(&cursor, &tw_clocksets);
	while (tw_clockset_piece(&cursor)) {
		mutex_unlock(&tw_clockset_lock);
		cond_resched();
		mutex_lock(&tw_clockset_lock);
	}
	list_del(&cursor);
	mutex_unlock(&tw_clockset_lock);
}

static DECLARE_DELAYED_WORK(tw_work, tw_clockset_work);

/**
 * tw_clockset_look() - have everybody told soon, in process context
 *
 * Not before the next tick: it is then that hrtimers of low resolution know as well. Who
 * asks before the work has begun asks for the same. From any context but where clocks
 * must not be read.
 */
void tw_clockset_look(void)
{
	queue_delayed_work(tw_clockset_wq, &tw_work, 1);
}

static void tw_clockset_interrupt(struct irq_work *irq_work)
{
	tw_clockset_look();
}

static DEFINE_IRQ_WORK(tw_irq_work, tw_clockset_interrupt);

/* Called at each tick; @stepped if the time was set or the machine resumed. */
static int tw_clockset_notify(struct notifier_block *nb, unsigned long stepped,
			      void *timekeeper)
{
	if (stepped)
		irq_work_queue(&tw_irq_work);
	return NOTIFY_DONE;
}

static struct notifier_block tw_notifier = {
	.notifier_call = tw_clockset_notify,
};

/**
 * tw_clockset_init() - begin to watch the clocks
 *
 * Return: 0 or a negative errno.
 */
int tw_clockset_init(void)
{
	int ret;

	tw_clockset_wq = alloc_workqueue("twheel", WQ_UNBOUND, 0);
	if (!tw_clockset_wq)
		return -ENOMEM;
	ret = pvclock_gtod_register_notifier(&tw_notifier);
	if (ret)
		destroy_workqueue(tw_clockset_wq);
	return ret;
}

/**
 * tw_clockset_exit() - stop watching the clocks; the list is empty. May sleep
 */
void tw_clockset_exit(void)
{
	pvclock_gtod_unregister_notifier(&tw_notifier);
	irq_work_sync(&tw_irq_work);
	cancel_delayed_work_sync(&tw_work);
	destroy_workqueue(tw_clockset_wq);
}

/**
 * tw_clockset_add() - be told from now on. May sleep
 * @cs:      with @was_set filled in
 * @clockid: CLOCK_REALTIME or CLOCK_TAI
 */
void tw_clockset_add(struct tw_clockset *cs, u32 clockid)
{
	cs->clock = clockid == CLOCK_TAI ? TK_OFFS_TAI : TK_OFFS_REAL;
	mutex_lock(&tw_clockset_lock);
	cs->ahead_ns = tw_clock_ahead_ns(cs->clock);
	list_add(&cs->link, &tw_clocksets);
	mutex_unlock(&tw_clockset_lock);
}

/**
 * tw_clockset_remove() - not be told any more. May sleep
 * @cs: that was added
 */
void tw_clockset_remove(struct tw_clockset *cs)
{
	mutex_lock(&tw_clockset_lock);
	list_del(&cs->link);
	mutex_unlock(&tw_clockset_lock);
}
