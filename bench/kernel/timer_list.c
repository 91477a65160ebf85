// SPDX-License-Identifier: GPL-2.0
/* The kernel's own timer wheel. */
#include <linux/interrupt.h>
#include <linux/jiffies.h>
#include <linux/math64.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/timer.h>

#include "bench.h"

struct object {
	struct timer_list timer;
	u64 cookie;
} ____cacheline_aligned;

static struct object *objects;

static void expired(struct timer_list *timer)
{
	bench_fire(&container_of(timer, struct object, timer)->cookie);
}

static int peer_open(void)
{
	u32 i;

	objects = kvcalloc(bench.n, sizeof(*objects), GFP_KERNEL);
	if (!objects)
		return -ENOMEM;
	for (i = 0; i < bench.n; i++)
		timer_setup(&objects[i].timer, expired, 0);
	return 0;
}

static void peer_close(void)
{
	u32 i;

	for (i = 0; objects && i < bench.n; i++)
		timer_delete_sync(&objects[i].timer);
	kvfree(objects);
	objects = NULL;
}

static u64 peer_when(u64 ms)
{
	return jiffies + div_u64(ms * HZ, MSEC_PER_SEC);
}

static inline void peer_arm(u32 i, u64 when)
{
	objects[i].timer.expires = when;
	add_timer(&objects[i].timer);
}

static inline void peer_set(u32 i, u64 when)
{
	mod_timer(&objects[i].timer, when);
}

static inline void peer_cancel(u32 i)
{
	timer_delete(&objects[i].timer);
}

/* Up to an eighth of the time that a timer was armed for passes until it fires. */
static u64 peer_run(u64 until)
{
	long left = until - jiffies;

	softirq_watch(TIMER_SOFTIRQ);
	if (left > 0)
		schedule_timeout_uninterruptible(left + left / 7 + 1);
	return softirq_time();
}

#include "loops.h"

const struct peer peer_timer_list = {
	.name = "timer_list",
	.max_n = U32_MAX,
	.max_idle = BENCH_HOUR,
	.real = true,
	PEER_LOOPS
};
