// SPDX-License-Identifier: GPL-2.0
/* A list in no order; at every tick all of it is looked at. */
#include "list_object.h"

static LIST_HEAD(list);

static int peer_open(void)
{
	INIT_LIST_HEAD(&list);
	return objects_open();
}

static void place(struct object *object)
{
	list_add_tail(&object->link, &list);
}

#include "locked.h"

static inline u64 peer_earliest(void)
{
	struct object *object;
	u64 when = U64_MAX;

	spin_lock_bh(&lock);
	list_for_each_entry(object, &list, link)
		when = min(when, object->when);
	spin_unlock_bh(&lock);
	return when;
}

static u64 peer_run(u64 until)
{
	struct object *object, *next;
	u64 since = bench_time();

	spin_lock_bh(&lock);
	while (now < until) {
		now++;
		list_for_each_entry_safe(object, next, &list, link)
			if (object->when <= now)
				expire(object - objects);
	}
	spin_unlock_bh(&lock);
	return bench_time() - since;
}

#define PEER_HAS_EARLIEST
#include "loops.h"

const struct peer peer_list = {
	.name = "list",
	.max_n = 10000,
	.max_idle = BENCH_SECOND,
	PEER_LOOPS
};
