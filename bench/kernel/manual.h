/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For peers whose clock is a number. They take a lock with softirqs off, as twheel does.
 */
#ifndef TWHEEL_BENCH_MANUAL_H
#define TWHEEL_BENCH_MANUAL_H

#include <linux/sched.h>
#include <linux/spinlock.h>

#include "bench.h"

static DEFINE_SPINLOCK(lock); /* all that the peer has */
static u64 now;

static inline u64 peer_when(u64 ms)
{
	return now + ms;
}

#endif /* TWHEEL_BENCH_MANUAL_H */
