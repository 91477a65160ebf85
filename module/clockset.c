// SPDX-License-Identifier: GPL-2.0
/*
 * Tells who wants to know that the wall clock was set.
 *
 * The kernel's notifier runs with the timekeeper locked: nothing that might look at a
 * clock may be called from there, waking a worker included. So an interrupt is asked
 * for, which schedules the work, which finds out by how much the clock jumped.
 *
 * That is seen from how far the wall clock is ahead of CLOCK_BOOTTIME: this changes
 * when the clock is set or a leap second inserted, but neither as it is slewed nor
 * when the machine was suspended.
 */
#include <linux/irq_work.h>
#include <linux/ktime.h>
#include <linux/mutex.h>
#include <linux/notifier.h>
#include <linux/pvclock_gtod.h>
#include <linux/timekeeping.h>
#include <linux/workqueue.h>

#include "clockset.h"

/* Guards the list, and that nobody in it goes while being told. */
static DEFINE_MUTEX(tw_clockset_lock);
static LIST_HEAD(tw_clocksets);

static s64 tw_wall_ns(void)
{
	return ktime_to_ns(ktime_sub(ktime_mono_to_any(0, TK_OFFS_REAL),
				     ktime_mono_to_any(0, TK_OFFS_BOOT)));
}

static void tw_clockset_work(struct work_struct *work)
{
	struct tw_clockset *cs;
	s64 wall_ns, jump_ns;

	mutex_lock(&tw_clockset_lock);
	wall_ns = tw_wall_ns();
	list_for_each_entry(cs, &tw_clocksets, link) {
		jump_ns = wall_ns - cs->wall_ns;
		cs->wall_ns = wall_ns;
		if (jump_ns)
			cs->was_set(cs, jump_ns);
	}
	mutex_unlock(&tw_clockset_lock);
}

static DECLARE_DELAYED_WORK(tw_work, tw_clockset_work);

/* Not before the next tick: it is then that hrtimers of low resolution know as well. */
static void tw_clockset_interrupt(struct irq_work *irq_work)
{
	schedule_delayed_work(&tw_work, 1);
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
 * tw_clockset_init() - begin to watch the clock
 *
 * Return: 0 or a negative errno.
 */
int tw_clockset_init(void)
{
	return pvclock_gtod_register_notifier(&tw_notifier);
}

/**
 * tw_clockset_exit() - stop watching the clock; the list is empty. May sleep
 */
void tw_clockset_exit(void)
{
	pvclock_gtod_unregister_notifier(&tw_notifier);
	irq_work_sync(&tw_irq_work);
	cancel_delayed_work_sync(&tw_work);
}

/**
 * tw_clockset_add() - be told from now on. May sleep
 * @cs: with @was_set filled in
 */
void tw_clockset_add(struct tw_clockset *cs)
{
	mutex_lock(&tw_clockset_lock);
	cs->wall_ns = tw_wall_ns();
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
