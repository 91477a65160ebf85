// SPDX-License-Identifier: GPL-2.0
/*
 * How long a softirq runs: what it costs to expire timers of the kernel's own.
 */
#include <linux/atomic.h>
#include <linux/interrupt.h>
#include <linux/percpu.h>
#include <linux/tracepoint.h>

#include "bench.h"

static struct tracepoint *entry, *leave;
static unsigned int watched;
static DEFINE_PER_CPU(u64, since);	/* 0 outside the softirq */
static atomic64_t total;

static void softirq_entered(void *data, unsigned int vec)
{
	if (vec == READ_ONCE(watched))
		this_cpu_write(since, bench_time());
}

/* One that had begun before it was watched does not count. */
static void softirq_left(void *data, unsigned int vec)
{
	u64 begun = this_cpu_read(since);

	if (vec != READ_ONCE(watched) || !begun)
		return;
	this_cpu_write(since, 0);
	atomic64_add(bench_time() - begun, &total);
}

static void find(struct tracepoint *tp, void *data)
{
	if (!strcmp(tp->name, "softirq_entry"))
		entry = tp;
	if (!strcmp(tp->name, "softirq_exit"))
		leave = tp;
}

/* Begin to add up the time of a softirq, of all CPUs. */
void softirq_watch(unsigned int vec)
{
	WRITE_ONCE(watched, vec);
	atomic64_set(&total, 0);
}

u64 softirq_time(void)
{
	return atomic64_read(&total);
}

int softirq_begin(void)
{
	int ret;

	for_each_kernel_tracepoint(find, NULL);
	if (!entry || !leave)
		return -ENOENT;
	watched = NR_SOFTIRQS;
	ret = tracepoint_probe_register(entry, softirq_entered, NULL);
	if (ret)
		return ret;
	ret = tracepoint_probe_register(leave, softirq_left, NULL);
	if (ret)
		tracepoint_probe_unregister(entry, softirq_entered, NULL);
	return ret;
}

void softirq_end(void)
{
	tracepoint_probe_unregister(leave, softirq_left, NULL);
	tracepoint_probe_unregister(entry, softirq_entered, NULL);
	tracepoint_synchronize_unregister();
}
