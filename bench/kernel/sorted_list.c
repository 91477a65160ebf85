// SPDX-License-Identifier: GPL-2.0
/* A list that is kept sorted; a place in it is looked for from its end. */
#include "list_object.h"

static LIST_HEAD(list);

static int peer_open(void)
{
	INIT_LIST_HEAD(&list);
	return objects_open();
}

static void place(struct object *object)
{
	struct object *other;

	list_for_each_entry_reverse(other, &list, link)
		if (other->when <= object->when)
			break;
	list_add(&object->link, &other->link);
}

static inline bool first(u32 *i, u64 *when)
{
	struct object *object = list_first_entry_or_null(&list, struct object, link);

	if (!object)
		return false;
	*i = object - objects;
	*when = object->when;
	return true;
}

#define PEER_HAS_EARLIEST
#include "locked.h"
#include "loops.h"

const struct peer peer_sorted_list = {
	.name = "sorted_list",
	.max_n = 10000,
	.max_idle = U64_MAX,
	PEER_LOOPS
};
