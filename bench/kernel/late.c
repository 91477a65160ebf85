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
#define LATE_MAX_S	1000000
#define LATE_HOURS	100	/* more, of an hour and a bit */

static unsigned int late_s;
module_param(late_s, uint, 0444);
MODULE_PARM_DESC(late_s, "longest delay whose lateness is measured, in seconds (0: none)");

struct late {
	struct timer_list timer;
	u64 delay_ns;
	u64 due_ns;
	struct lateness {
		s64 ns;
		bool fired;
	} kernel, engine;
};

static struct late *lates;
static u32 nr_lates;
static u32 first_hour;
static report_t report;

static void late_fired(struct timer_list *timer)
{
	struct late *late = container_of(timer, struct late, timer);

	late->kernel.ns = ktime_get_ns() - late->due_ns;
	late->kernel.fired = true;
}

/* From 10 ms on, 40 to a factor of ten; then those of an hour, if that is waited for. */
static void late_delays(void)
{
	u64 delay_ns = 10 * NSEC_PER_MSEC;
	u32 i;

	for (nr_lates = 0; nr_lates < LATE_MAX && delay_ns <= late_s * NSEC_PER_SEC;
	     nr_lates++) {
		lates[nr_lates].delay_ns = delay_ns;
		delay_ns += delay_ns / 17;
	}
	first_hour = nr_lates;
	if (late_s < 2 * 3600)
		return;
	for (i = 0; i < LATE_HOURS; i++)
		lates[nr_lates++].delay_ns = (3600 + 7 * i) * NSEC_PER_SEC + 1000 * i;
}

static int late_arm(struct tw_engine *e)
{
	u64 now = ktime_get_ns();
	u32 i;

	for (i = 0; i < nr_lates; i++)
		timer_setup(&lates[i].timer, late_fired, 0);
	for (i = 0; i < nr_lates; i++) {
		struct late *late = &lates[i];
		struct twheel_op op = {
			.opcode = TWHEEL_OP_ARM,
			.user_data = i,
			.expires_ns = now + late->delay_ns,
		};

		late->due_ns = op.expires_ns;
		mod_timer(&late->timer, jiffies + nsecs_to_jiffies(late->delay_ns));
		tw_engine_submit(e, &op, 1);
		if (op.res)
			return op.res;
	}
	return 0;
}

/* tw_copy_t, under the engine's lock. */
static u32 late_events(void *to, const void *records, size_t size, u32 nr)
{
	const struct twheel_event *ev = records, *end = ev + nr;

	for (; ev < end; ev++) {
		lates[ev->user_data].engine.ns = ev->fired_ns - ev->expires_ns;
		lates[ev->user_data].engine.fired = true;
	}
	return nr;
}

/* Of those of an hour only the worst. */
static void late_tell(const char *peer, size_t lateness)
{
	s64 worst_ns = S64_MIN;
	u32 i;

	for (i = 0; i < nr_lates; i++) {
		const struct lateness *late = (void *)&lates[i] + lateness;

		if (!late->fired)
			continue;
		if (i >= first_hour)
			worst_ns = max(worst_ns, late->ns);
		else
			report(peer, "late", div_u64(lates[i].delay_ns, NSEC_PER_MSEC),
			       late->ns * 100);
	}
	if (worst_ns != S64_MIN)
		report(peer, "late.hour", LATE_HOURS, worst_ns * 100);
}

/* The delays are told as n, in milliseconds. */
int late_measure(report_t to)
{
	struct tw_engine *e;
	enum tw_rest rest;
	int ret;
	u32 i;

	if (!late_s)
		return 0;
	if (late_s > LATE_MAX_S)
		return -EINVAL;
	report = to;
	lates = kvcalloc(LATE_MAX + LATE_HOURS, sizeof(*lates), GFP_KERNEL);
	e = tw_engine_create(LATE_MAX + LATE_HOURS);
	if (!lates || IS_ERR(e)) {
		ret = -ENOMEM;
		goto out;
	}
	late_delays();
	ret = late_arm(e);
	/* The wheel of the kernel may take an eighth longer. */
	if (!ret && msleep_interruptible((late_s + late_s / 7 + 1) * MSEC_PER_SEC))
		ret = -EINTR;
	while (!ret && tw_engine_read(e, TW_READ_BATCH, late_events, NULL, &rest))
		;
	late_tell("engine", offsetof(struct late, engine));
	late_tell("timer_list", offsetof(struct late, kernel));
	for (i = 0; i < nr_lates; i++)
		timer_delete_sync(&lates[i].timer);
out:
	if (!IS_ERR(e))
		tw_engine_destroy(e);
	kvfree(lates);
	return ret;
}
