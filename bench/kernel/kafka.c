// SPDX-License-Identifier: GPL-2.0
/*
 * Kafka's timing wheels: 20 slots a level, ticks of a millisecond, and a queue of the
 * slots that have timers, ordered by when they are due. Here that is a tree.
 */
#include <linux/math64.h>
#include <linux/timerqueue.h>

#include "list_object.h"

#define SLOTS		20
#define LEVELS		14	/* 20^14 ms are more than any deadline */

struct slot {
	struct timerqueue_node node;
	struct list_head list;
};

static struct slot slots[LEVELS * SLOTS];
static struct timerqueue_head queue;

static int peer_open(void)
{
	u32 i;

	timerqueue_init_head(&queue);
	for (i = 0; i < LEVELS * SLOTS; i++) {
		timerqueue_init(&slots[i].node);
		INIT_LIST_HEAD(&slots[i].list);
	}
	return objects_open();
}

static void place(struct object *object)
{
	struct slot *slot;
	u64 span = 1, tick, here;
	u32 level;

	for (level = 0; ; level++) {
		tick = div64_u64(object->when, span);
		here = div64_u64(now, span);
		if (tick < here + SLOTS || level == LEVELS - 1)
			break;
		span *= SLOTS;
	}
	slot = &slots[level * SLOTS + tick % SLOTS];
	list_add_tail(&object->link, &slot->list);
	if (timerqueue_node_queued(&slot->node))
		return;
	slot->node.expires = tick * span;
	timerqueue_add(&queue, &slot->node);
}

#include "locked.h"

static u64 peer_run(u64 until)
{
	struct timerqueue_node *node;
	u64 since = bench_time();
	struct object *object;
	LIST_HEAD(due);

	spin_lock_bh(&lock);
	while ((node = timerqueue_getnext(&queue)) && node->expires <= until) {
		timerqueue_del(&queue, node);
		now = max_t(u64, now, node->expires);
		list_splice_init(&container_of(node, struct slot, node)->list, &due);
		while (!list_empty(&due)) {
			object = list_first_entry(&due, struct object, link);
			if (object->when <= now) {
				expire(object - objects);
			} else {
				list_del(&object->link);
				place(object);
			}
		}
	}
	spin_unlock_bh(&lock);
	now = until;
	return bench_time() - since;
}

#include "loops.h"

const struct peer peer_kafka = {
	.name = "kafka",
	.max_n = U32_MAX,
	.max_idle = U64_MAX,
	PEER_LOOPS
};
