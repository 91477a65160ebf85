// SPDX-License-Identifier: GPL-2.0
/*
 * How late timers are by how far away they were armed: those of the kernel's own timer
 * wheel, which rounds an expiry up to the width of its slot, and those of an engine with
 * its hrtimer. All are armed at once and waited for, which takes no time if the clock
 * is one that jumps.
 */
#include <linux/delay.h>
#include <linux/moduleparam.h>
#include <linux/slab.h>
#include <linux/timer.h>

#include "../../module/engine.h"
#include "bench.h"

#define LATE_MAX	400

static unsigned int late_s;
module_param(late_s, uint, 0444);
MODULE_PARM_DESC(late_s, "longest delay whose lateness is measured, in seconds (0: none)");

struct late {
	struct timer_list timer;
	u64 delay_ns;
	u64 due_ns;
	s64 late_ns;
	bool fired;
};

static struct late *lates;
static u32 nr_lates;
static report_t report;

static void late_fired(struct timer_list *timer)
{
	struct late *late = container_of(timer, struct late, timer);

	late->late_ns = ktime_get_ns() - late->due_ns;
	late->fired = true;
}

/* From 10 ms on, 40 to a factor of ten. */
static void late_delays(void)
{
	u64 delay_ns = 10 * NSEC_PER_MSEC;

	for (nr_lates = 0; nr_lates < LATE_MAX && delay_ns <= late_s * NSEC_PER_SEC;
	     nr_lates++) {
		lates[nr_lates].delay_ns = delay_ns;
		delay_ns += div_u64(delay_ns * 59254, 1000000);
	}
}

static int late_arm(struct tw_engine *e)
{
	u64 now = ktime_get_ns();
	u32 i;

	for (i = 0; i < nr_lates; i++) {
		struct late *late = &lates[i];
		struct twheel_op op = {
			.opcode = TWHEEL_OP_ARM,
			.user_data = i,
			.expires_ns = now + late->delay_ns,
		};

		late->due_ns = op.expires_ns;
		timer_setup(&late->timer, late_fired, 0);
		mod_timer(&late->timer, jiffies + nsecs_to_jiffies(late->delay_ns));
		tw_engine_submit(e, &op, 1);
		if (op.res)
			return op.res;
	}
	return 0;
}

static u32 late_event(void *to, const void *records, size_t size, u32 nr)
{
	const struct twheel_event *ev = records, *end = ev + nr;

	for (; ev < end; ev++)
		report("engine", "late", lates[ev->user_data].delay_ns / NSEC_PER_MSEC,
		       (ev->fired_ns - ev->expires_ns) * 100);
	return nr;
}

static void late_tell(struct tw_engine *e)
{
	enum tw_rest rest;
	u32 i;

	do {
		tw_engine_read(e, TW_READ_BATCH, late_event, NULL, &rest);
	} while (rest != TW_REST_NONE);
	for (i = 0; i < nr_lates; i++)
		if (lates[i].fired)
			report("timer_list", "late", lates[i].delay_ns / NSEC_PER_MSEC,
			       lates[i].late_ns * 100);
}

/* In milliseconds the delays are told as n. */
int late_measure(report_t to)
{
	struct tw_engine *e;
	int ret;
	u32 i;

	if (!late_s)
		return 0;
	report = to;
	lates = kvcalloc(LATE_MAX, sizeof(*lates), GFP_KERNEL);
	e = tw_engine_create(LATE_MAX);
	if (!lates || !e) {
		ret = -ENOMEM;
		goto out;
	}
	late_delays();
	ret = late_arm(e);
	/* The wheel of the kernel may take an eighth longer. */
	for (i = 0; !ret && i < late_s + late_s / 7 + 1; i++)
		if (msleep_interruptible(MSEC_PER_SEC))
			ret = -EINTR;
	if (!ret)
		late_tell(e);
	for (i = 0; i < nr_lates; i++)
		timer_delete_sync(&lates[i].timer);
out:
	if (e)
		tw_engine_destroy(e);
	kvfree(lates);
	return ret;
}
