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

	objects = bench_alloc(bench.n * sizeof(*objects));
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

static inline void add(struct object *object, u64 when)
{
	object->node.expires = when;
	timerqueue_add(&queue, &object->node);
}

static inline void remove(struct object *object)
{
	if (timerqueue_node_queued(&object->node))
		timerqueue_del(&queue, &object->node);
}

static inline void peer_arm(u32 i, u64 when)
{
	spin_lock_bh(&lock);
	add(&objects[i], when);
	spin_unlock_bh(&lock);
}

static inline void peer_set(u32 i, u64 when)
{
	spin_lock_bh(&lock);
	remove(&objects[i]);
	add(&objects[i], when);
	spin_unlock_bh(&lock);
}

static inline void peer_cancel(u32 i)
{
	spin_lock_bh(&lock);
	remove(&objects[i]);
	spin_unlock_bh(&lock);
}

static struct object *first(void)
{
	struct timerqueue_node *node = timerqueue_getnext(&queue);

	return node ? container_of(node, struct object, node) : NULL;
}

static inline u64 peer_earliest(void)
{
	struct object *object;
	u64 when;

	spin_lock_bh(&lock);
	object = first();
	when = object ? object->node.expires : U64_MAX;
	spin_unlock_bh(&lock);
	return when;
}

static u64 peer_run(u64 until)
{
	u64 since = bench_time();
	struct object *object;

	spin_lock_bh(&lock);
	while ((object = first()) && object->node.expires <= until) {
		remove(object);
		spin_unlock_bh(&lock);
		bench_fire(&object->cookie);
		spin_lock_bh(&lock);
	}
	spin_unlock_bh(&lock);
	now = until;
	return bench_time() - since;
}

#define PEER_HAS_EARLIEST
#include "loops.h"

const struct peer peer_timerqueue = {
	.name = "timerqueue",
	.max_n = U32_MAX,
	.max_idle = U64_MAX,
	PEER_LOOPS
};
