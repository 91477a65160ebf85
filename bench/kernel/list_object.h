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

static void place(struct object *object);	/* into the list that it belongs to */

static inline void add(u32 i, u64 when)
{
	objects[i].when = when;
	place(&objects[i]);
}

static inline void remove(u32 i)
{
	list_del_init(&objects[i].link);
}

static int objects_open(void)
{
	u32 i;

	objects = kvcalloc(bench.n, sizeof(*objects), GFP_KERNEL);
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

#endif /* TWHEEL_BENCH_LIST_OBJECT_H */
