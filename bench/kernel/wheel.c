// SPDX-License-Identifier: GPL-2.0
/* The wheel of twheel, under a lock. */
#include <linux/slab.h>

#include "../../module/wheel.c"
#include "manual.h"

struct object {
	struct wheel_node node;
	u64 cookie;
};

static struct wheel *w;
static void *nodes, *blocks;

static void peer_close(void)
{
	kvfree(nodes);
	kvfree(blocks);
	if (w) {
		kvfree(w->nodes);
		kvfree(w->blocks);
	}
	kvfree(w);
	nodes = NULL;
	blocks = NULL;
	w = NULL;
}

static int peer_open(void)
{
	u32 node_chunks = DIV_ROUND_UP(bench.n, WHEEL_CHUNK_NODES);
	u32 block_chunks = DIV_ROUND_UP(wheel_blocks_for(node_chunks * WHEEL_CHUNK_NODES),
					WHEEL_CHUNK_BLOCKS);
	void **node_table = kvcalloc(node_chunks, sizeof(void *), GFP_KERNEL);
	void *block_table = kvcalloc(block_chunks, sizeof(void *), GFP_KERNEL);
	u32 i;

	w = kvcalloc(1, sizeof(*w), GFP_KERNEL);
	nodes = kvcalloc(node_chunks, WHEEL_NODE_CHUNK_SIZE, GFP_KERNEL);
	blocks = kvcalloc(block_chunks, WHEEL_BLOCK_CHUNK_SIZE, GFP_KERNEL);
	if (!w || !nodes || !blocks || !node_table || !block_table) {
		kvfree(node_table);
		kvfree(block_table);
		peer_close();
		return -ENOMEM;
	}
	now = BENCH_START;
	wheel_init(w, now);
	w->nodes = node_table;
	w->blocks = block_table;
	for (i = 0; i < block_chunks; i++)
		wheel_add_blocks(w, blocks + i * WHEEL_BLOCK_CHUNK_SIZE);
	for (i = 0; i < node_chunks; i++)
		wheel_add_nodes(w, nodes + (size_t)i * WHEEL_NODE_CHUNK_SIZE);
	return 0;
}

static inline void peer_set(u32 i, u64 when)
{
	spin_lock_bh(&lock);
	wheel_arm(w, i, when);
	spin_unlock_bh(&lock);
}

#define peer_arm	peer_set

static inline void peer_cancel(u32 i)
{
	struct wheel_node *node = wheel_node(w, i);

	spin_lock_bh(&lock);
	if (node->armed)
		wheel_cancel(w, node);
	spin_unlock_bh(&lock);
}

static inline u64 peer_earliest(void)
{
	u64 when;

	spin_lock_bh(&lock);
	wheel_next(w, &when, U32_MAX);
	spin_unlock_bh(&lock);
	return when;
}

/* As the hrtimer would have it: from one tick with something to do to the next. */
static u64 peer_run(u64 until)
{
	struct wheel_batch batch;
	u64 since = bench_time();
	bool all;
	u64 at;
	u32 i;

	do {
		spin_lock_bh(&lock);
		at = min(wheel_next_bound(w), until);
		batch.budget = 128;
		batch.nr = 0;
		batch.cascaded = 0;
		all = wheel_advance(w, at, &batch);
		spin_unlock_bh(&lock);
		for (i = 0; i < batch.nr; i++)
			bench_fire(&((struct object *)wheel_node(w, batch.expired[i]))->cookie);
	} while (!all || at < until);
	now = until;
	return bench_time() - since;
}

#define PEER_HAS_EARLIEST
#include "loops.h"

const struct peer peer_wheel = {
	.name = "wheel",
	.max_n = U32_MAX,
	.max_idle = U64_MAX,
	PEER_LOOPS
};
