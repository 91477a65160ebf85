// SPDX-License-Identifier: GPL-2.0
/* A red-black tree with its leftmost node at hand, under a lock. */
#include <linux/slab.h>
#include <linux/timerqueue.h>

#include "manual.h"

struct object {
	struct timerqueue_node node;
	u64 cookie;
} ____cacheline_aligned;

static struct object *objects;
static struct timerqueue_head queue;

static int peer_open(void)
{
	u32 i;

	objects = kvcalloc(bench.n, sizeof(*objects), GFP_KERNEL);
	if (!objects)
		return -ENOMEM;
	now = BENCH_START;
	timerqueue_init_head(&queue);
	for (i = 0; i < bench.n; i++)
		timerqueue_init(&objects[i].node);
	return 0;
}

static void peer_close(void)
{
	kvfree(objects);
	objects = NULL;
}

static inline void add(u32 i, u64 when)
{
	objects[i].node.expires = when;
	timerqueue_add(&queue, &objects[i].node);
}

static inline void remove(u32 i)
{
	if (timerqueue_node_queued(&objects[i].node))
		timerqueue_del(&queue, &objects[i].node);
}

static inline bool first(u32 *i, u64 *when)
{
	struct timerqueue_node *node = timerqueue_getnext(&queue);

	if (!node)
		return false;
	*i = container_of(node, struct object, node) - objects;
	*when = node->expires;
	return true;
}

#define PEER_HAS_EARLIEST
#include "locked.h"
#include "loops.h"

const struct peer peer_timerqueue = {
	.name = "timerqueue",
	.max_n = U32_MAX,
	.max_idle = U64_MAX,
	PEER_LOOPS
};
