// SPDX-License-Identifier: GPL-2.0
/*
 * A single wheel whose timers count rounds, as Netty, PowerJob and godis have it: at
 * each tick all timers of a slot are looked at. Of Netty's size, 512 ticks of 100 ms.
 */
#include <linux/math64.h>

#include "list_object.h"

#define SLOTS		512
#define TICK_MS		100

static struct list_head slots[SLOTS];

static int peer_open(void)
{
	u32 i;

	for (i = 0; i < SLOTS; i++)
		INIT_LIST_HEAD(&slots[i]);
	return objects_open();
}

/* Netty fires at the end of the tick in which a timer is due, and so do we. */
static void place(struct object *object)
{
	u64 tick = div_u64(object->when, TICK_MS) + 1;
	u64 here = div_u64(now, TICK_MS);

	object->rounds = (tick - here - 1) / SLOTS;
	list_add_tail(&object->link, &slots[tick % SLOTS]);
}

#include "locked.h"

static u64 peer_run(u64 until)
{
	struct object *object, *next;
	u64 since = bench_time();
	u64 tick, end = div_u64(until + TICK_MS - 1, TICK_MS) + 1;

	spin_lock_bh(&lock);
	for (tick = div_u64(now, TICK_MS) + 1; tick <= end; tick++) {
		now = tick * TICK_MS;
		list_for_each_entry_safe(object, next, &slots[tick % SLOTS], link)
			if (!object->rounds--)
				expire(object - objects);
	}
	spin_unlock_bh(&lock);
	return bench_time() - since;
}

#include "loops.h"

const struct peer peer_rounds = {
	.name = "rounds",
	.max_n = U32_MAX,
	.max_idle = BENCH_HOUR,
	PEER_LOOPS
};
