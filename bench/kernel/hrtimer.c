// SPDX-License-Identifier: GPL-2.0
/* The kernel's high resolution timers. */
#include <linux/hrtimer.h>
#include <linux/interrupt.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "../../module/compat.h"
#include "bench.h"

struct object {
	struct hrtimer timer;
	u64 cookie;
} ____cacheline_aligned;

static struct object *objects;

static enum hrtimer_restart expired(struct hrtimer *timer)
{
	bench_fire(&container_of(timer, struct object, timer)->cookie);
	return HRTIMER_NORESTART;
}

static int peer_open(void)
{
	u32 i;

	objects = kvcalloc(bench.n, sizeof(*objects), GFP_KERNEL);
	if (!objects)
		return -ENOMEM;
	for (i = 0; i < bench.n; i++)
		hrtimer_setup(&objects[i].timer, expired, CLOCK_MONOTONIC,
			      HRTIMER_MODE_ABS_SOFT);
	return 0;
}

static void peer_close(void)
{
	u32 i;

	for (i = 0; objects && i < bench.n; i++)
		hrtimer_cancel(&objects[i].timer);
	kvfree(objects);
	objects = NULL;
}

static u64 peer_when(u64 ms)
{
	return ktime_get_ns() + ms * NSEC_PER_MSEC;
}

static inline void peer_set(u32 i, u64 when)
{
	hrtimer_start(&objects[i].timer, ns_to_ktime(when), HRTIMER_MODE_ABS_SOFT);
}

#define peer_arm	peer_set

static inline void peer_cancel(u32 i)
{
	hrtimer_try_to_cancel(&objects[i].timer);
}

static u64 peer_run(u64 until)
{
	ktime_t end = ns_to_ktime(until + NSEC_PER_MSEC);

	softirq_watch(HRTIMER_SOFTIRQ);
	set_current_state(TASK_UNINTERRUPTIBLE);
	schedule_hrtimeout(&end, HRTIMER_MODE_ABS);
	return softirq_time();
}

#include "loops.h"

const struct peer peer_hrtimer = {
	.name = "hrtimer",
	.max_n = U32_MAX,
	.max_idle = BENCH_HOUR,
	.real = true,
	PEER_LOOPS
};
