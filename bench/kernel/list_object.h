/* SPDX-License-Identifier: GPL-2.0 */
/* Timers that are in one list or another, under a lock. */
#ifndef TWHEEL_BENCH_LIST_OBJECT_H
#define TWHEEL_BENCH_LIST_OBJECT_H

#include <linux/list.h>
#include <linux/slab.h>

#include "manual.h"

struct object {
	struct list_head link;
	u64 when;
	u64 rounds;	/* rounds.c only */
	u64 cookie;
} ____cacheline_aligned;

static struct object *objects;

static void add(struct object *object);	/* in the list that it belongs to */

static int objects_open(void)
{
	u32 i;

	objects = bench_alloc(bench.n * sizeof(*objects));
	if (!objects)
		return -ENOMEM;
	now = BENCH_START;
	for (i = 0; i < bench.n; i++)
		INIT_LIST_HEAD(&objects[i].link);
	return 0;
}

static void peer_close(void)
{
	kvfree(objects);
	objects = NULL;
}

static inline void peer_set(u32 i, u64 when)
{
	spin_lock_bh(&lock);
	list_del(&objects[i].link);
	objects[i].when = when;
	add(&objects[i]);
	spin_unlock_bh(&lock);
}

/* What is in no list may be deleted: it then is one of its own. */
#define peer_arm	peer_set

static inline void peer_cancel(u32 i)
{
	spin_lock_bh(&lock);
	list_del_init(&objects[i].link);
	spin_unlock_bh(&lock);
}

/* With the lock held, which is let go meanwhile. */
static void expire(struct object *object)
{
	list_del_init(&object->link);
	spin_unlock_bh(&lock);
	bench_fire(&object->cookie);
	spin_lock_bh(&lock);
}

#endif /* TWHEEL_BENCH_LIST_OBJECT_H */
