// SPDX-License-Identifier: GPL-2.0
/* A binary heap, under a lock; each timer knows its place in it. */
#include <linux/min_heap.h>
#include <linux/slab.h>

/* Kernels before 6.11 have no heap from whose middle one can remove. */
#ifdef DEFINE_MIN_HEAP

#include "manual.h"

#define NOT_QUEUED	U32_MAX

struct object {
	u64 cookie;
	u32 place;
} ____cacheline_aligned;

struct entry {
	u64 when;
	u64 index;
};

DEFINE_MIN_HEAP(struct entry, heap);

static struct object *objects;
static struct heap heap;

static bool less(const void *a, const void *b, void *args)
{
	return ((const struct entry *)a)->when < ((const struct entry *)b)->when;
}

static void swap_entries(void *a, void *b, void *args)
{
	struct entry *x = a, *y = b;

	swap(*x, *y);
	objects[x->index].place = x - heap.data;
	objects[y->index].place = y - heap.data;
}

static const struct min_heap_callbacks callbacks = {
	.less = less,
	.swp = swap_entries,
};

static void peer_close(void)
{
	kvfree(objects);
	kvfree(heap.data);
	objects = NULL;
	heap.data = NULL;
}

static int peer_open(void)
{
	struct entry *entries = kvcalloc(bench.n, sizeof(*entries), GFP_KERNEL);
	u32 i;

	objects = kvcalloc(bench.n, sizeof(*objects), GFP_KERNEL);
	min_heap_init_inline(&heap, entries, bench.n);
	if (!objects || !entries) {
		peer_close();
		return -ENOMEM;
	}
	now = BENCH_START;
	for (i = 0; i < bench.n; i++)
		objects[i].place = NOT_QUEUED;
	return 0;
}

static inline void add(u32 i, u64 when)
{
	struct entry entry = { .when = when, .index = i };

	objects[i].place = heap.nr;
	min_heap_push_inline(&heap, &entry, &callbacks, NULL);
}

static inline void remove(u32 i)
{
	if (objects[i].place != NOT_QUEUED)
		min_heap_del_inline(&heap, objects[i].place, &callbacks, NULL);
	objects[i].place = NOT_QUEUED;
}

static inline bool first(u32 *i, u64 *when)
{
	if (!heap.nr)
		return false;
	*i = heap.data[0].index;
	*when = heap.data[0].when;
	return true;
}

#define PEER_HAS_EARLIEST
#include "locked.h"
#include "loops.h"

const struct peer peer_min_heap = {
	.name = "min_heap",
	.max_n = U32_MAX,
	.max_idle = U64_MAX,
	PEER_LOOPS
};

#else

#include "bench.h"

const struct peer peer_min_heap = { .name = "min_heap" };

#endif /* DEFINE_MIN_HEAP */
