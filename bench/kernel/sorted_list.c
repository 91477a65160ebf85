// SPDX-License-Identifier: GPL-2.0
/* A list that is kept sorted; a place in it is looked for from its end. */
#include "list_object.h"

static LIST_HEAD(list);

static int peer_open(void)
{
	INIT_LIST_HEAD(&list);
	return objects_open();
}

static void add(struct object *object)
{
	struct object *other;

	list_for_each_entry_reverse(other, &list, link)
		if (other->when <= object->when)
			break;
	list_add(&object->link, &other->link);
}

static inline u64 peer_earliest(void)
{
	struct object *first;
	u64 when;

	spin_lock_bh(&lock);
	first = list_first_entry_or_null(&list, struct object, link);
	when = first ? first->when : U64_MAX;
	spin_unlock_bh(&lock);
	return when;
}

static u64 peer_run(u64 until)
{
	u64 since = bench_time();
	struct object *first;

	spin_lock_bh(&lock);
	while ((first = list_first_entry_or_null(&list, struct object, link)) &&
	       first->when <= until)
		expire(first);
	spin_unlock_bh(&lock);
	now = until;
	return bench_time() - since;
}

#define PEER_HAS_EARLIEST
#include "loops.h"

const struct peer peer_sorted_list = {
	.name = "sorted_list",
	.max_n = 10000,
	.max_idle = U64_MAX,
	PEER_LOOPS
};
