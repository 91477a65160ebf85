// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the table of timers, of its handles, and of what users are charged.
 */
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/user_namespace.h>
#include <linux/vmalloc.h>

#include "twheel_kunit.h"

/* What a test does amid the next allocation of the code under test, as another CPU may */
static void (*meanwhile)(void);

static bool may_alloc(void)
{
	void (*act)(void) = meanwhile;

	meanwhile = NULL;
	if (act)
		act();
	return tw_kunit_may_alloc();
}

static bool is_capable(int cap)
{
	tw_kunit_asked++;
	return tw_kunit_capable && cap == CAP_SYS_RESOURCE;
}

/* The namespace and the user that the code under test runs in */
static struct user_namespace *caller_ns = &init_user_ns;
static kuid_t caller_uid;

#undef capable
#define capable(cap) is_capable(cap)
#undef current_user_ns
#define current_user_ns() caller_ns
#undef current_uid
#define current_uid() caller_uid

/* Allocations of the code under test can be made to fail. */
#undef kzalloc
#define kzalloc(size, gfp) \
	(may_alloc() ? kmalloc(size, (gfp) | __GFP_ZERO) : NULL)
#undef kvcalloc
#define kvcalloc(n, size, gfp) \
	(may_alloc() ? kvmalloc_array(n, size, (gfp) | __GFP_ZERO) : NULL)
#undef alloc_percpu_gfp
#define alloc_percpu_gfp(type, gfp) \
	(may_alloc() ? (type __percpu *)__alloc_percpu_gfp(sizeof(type), \
							   __alignof__(type), gfp) : NULL)

#include "../module/timers.c"
#include "../module/users.c"

/* So many chunks of nodes make both arrays of chunks grow, that of nodes thrice. */
#define MANY_CHUNKS	(4 * TW_FIRST_ROOM + 1)

/**
 * struct table - a table and its wheel
 * @w:       the wheel
 * @queue:   the ready queue
 * @ts:      the table
 * @created: there is a table to be destroyed
 */
struct table {
	struct wheel w;
	struct tw_queue queue;
	struct tw_timers ts;
	bool created;
};

/* Makes one of two tables, which are of one user. */
static struct tw_timers *table_make(struct kunit *test, u32 nr, u32 capacity)
{
	struct table *table = (struct table *)test->priv + nr;
	struct tw_user *user = tw_user_get(GLOBAL_ROOT_UID);

	KUNIT_ASSERT_NOT_NULL(test, user);
	wheel_init(&table->w, 0);
	tw_queue_init(&table->queue);
	tw_timers_init(&table->ts, &table->w, &table->queue, user, capacity);
	table->created = true;
	return &table->ts;
}

static void table_destroy(struct kunit *test, u32 nr)
{
	struct table *table = (struct table *)test->priv + nr;

	if (table->created) {
		tw_timers_destroy(&table->ts);
		tw_user_put(table->ts.user);
	}
	table->created = false;
}

static int timers_test_init(struct kunit *test)
{
	tw_kunit_capable = false;
	tw_kunit_asked = 0;
	caller_ns = &init_user_ns;
	caller_uid = KUIDT_INIT(1000);
	test->priv = kunit_kcalloc(test, 2, sizeof(struct table), GFP_KERNEL);
	return test->priv ? 0 : -ENOMEM;
}

static void timers_test_exit(struct kunit *test)
{
	tw_kunit_allocs = -1;
	if (test->priv) {
		table_destroy(test, 0);
		table_destroy(test, 1);
	}
	tw_user_memory_max = 0;
}

static int grow(struct tw_timers *ts)
{
	struct tw_growth growth;
	int ret = tw_timers_prepare(ts, &growth);

	if (!ret)
		tw_timers_install(ts, &growth);
	tw_timers_discard(&growth);
	return ret;
}

/* A table without a limit, with one chunk of timers. */
static struct tw_timers *table_of_one_chunk(struct kunit *test)
{
	struct tw_timers *ts = table_make(test, 0, WHEEL_MAX_NODES);

	KUNIT_ASSERT_EQ(test, grow(ts), 0);
	return ts;
}

/* Takes a timer and makes it ready, as somebody who has got one has to. */
static int take(struct tw_timers *ts, u64 *id)
{
	u32 index;
	int ret = tw_timers_alloc(ts, &index);

	if (!ret) {
		tw_timer(ts, index)->node.owner = TW_READY;
		*id = tw_timer_id(tw_timer(ts, index), index);
	}
	return ret;
}

static void give_back(struct tw_timers *ts, u64 id)
{
	tw_timer(ts, (u32)id)->node.owner = 0;
	tw_timers_free(ts, (u32)id);
}

static bool found(const struct tw_timers *ts, u64 id)
{
	u32 index = WHEEL_NONE;

	return tw_timers_find(ts, id, &index) && index == (u32)id;
}

/* Handles */

static void an_id_is_never_0(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u64 id = 0;

	while (!take(ts, &id))
		KUNIT_EXPECT_NE(test, id, 0);
	KUNIT_EXPECT_EQ(test, ts->live, WHEEL_CHUNK_NODES);
}

static void each_id_finds_its_own_timer(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u64 ids[WHEEL_CHUNK_NODES];
	u32 i, index;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		KUNIT_ASSERT_EQ(test, take(ts, &ids[i]), 0);
		tw_timer(ts, (u32)ids[i])->user_data = i;
	}
	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		KUNIT_ASSERT_TRUE(test, found(ts, ids[i]));
		KUNIT_EXPECT_EQ(test, tw_timers_find(ts, ids[i], &index)->user_data, i);
	}
}

static void an_armed_timer_is_found(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u64 id;

	KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	tw_timer(ts, (u32)id)->node.owner = 0;
	KUNIT_EXPECT_FALSE(test, found(ts, id));
	wheel_arm(ts->wheel, (u32)id, 7);
	KUNIT_EXPECT_TRUE(test, found(ts, id));
}

static void a_stale_id_is_never_found(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u64 ids[60];
	u32 i, j;

	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		KUNIT_ASSERT_EQ(test, take(ts, &ids[i]), 0);
		KUNIT_ASSERT_EQ(test, (u32)ids[i], (u32)ids[0]);
		for (j = 0; j < i; j++)
			KUNIT_ASSERT_FALSE(test, found(ts, ids[j]));
		give_back(ts, ids[i]);
		KUNIT_ASSERT_FALSE(test, found(ts, ids[i]));
	}
}

static const struct stranger {
	u32 generation;
	u32 index;
	const char *name;
} strangers[] = {
	{ 0, 0, "zero" },
	{ 0, 5, "generation 0" },
	{ 2, 5, "a generation to come" },
	{ U32_MAX, 5, "the last generation" },
	{ 1, 6, "a timer that is free" },
	{ 1, WHEEL_CHUNK_NODES, "the first index that there is not" },
	{ 1, WHEEL_MAX_NODES, "an index beyond any table" },
	{ 1, U32_MAX, "the last index" },
	{ U32_MAX, U32_MAX, "all ones" },
};

static void stranger_desc(const struct stranger *stranger, char *desc)
{
	strscpy(desc, stranger->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(stranger, strangers, stranger_desc);

static void an_id_that_was_never_given_is_not_found(struct kunit *test)
{
	const struct stranger *stranger = test->param_value;
	struct tw_timers *ts = table_of_one_chunk(test);
	u32 i;
	u64 id;

	for (i = 0; i < 6; i++)
		KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	KUNIT_ASSERT_TRUE(test, found(ts, 1ULL << 32 | 5));
	KUNIT_EXPECT_FALSE(test, found(ts, (u64)stranger->generation << 32 |
					   stranger->index));
}

static void a_new_table_finds_nothing(struct kunit *test)
{
	struct tw_timers *ts = table_make(test, 0, 1);

	KUNIT_EXPECT_FALSE(test, found(ts, 1ULL << 32));
}

static void a_timer_with_a_generation_left_is_used_again(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u64 id, again;

	KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	tw_timer(ts, (u32)id)->generation = U32_MAX - 1;
	give_back(ts, id);
	KUNIT_ASSERT_EQ(test, take(ts, &again), 0);
	KUNIT_EXPECT_EQ(test, again, (u64)U32_MAX << 32 | (u32)id);
}

static void a_timer_without_a_generation_left_is_retired(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u32 retired, left = 0;
	u64 id;

	KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	retired = (u32)id;
	tw_timer(ts, retired)->generation = U32_MAX;
	give_back(ts, id);
	KUNIT_EXPECT_EQ(test, ts->live, 0);
	for (; !take(ts, &id); left++)
		KUNIT_EXPECT_NE(test, (u32)id, retired);
	KUNIT_EXPECT_EQ(test, left, WHEEL_CHUNK_NODES - 1);
	KUNIT_EXPECT_FALSE(test, found(ts, retired));
	KUNIT_EXPECT_FALSE(test, found(ts, (u64)U32_MAX << 32 | retired));
}

/* The free list and the capacity */

static void new_timers_are_taken_in_order(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u32 i;
	u64 id;

	for (i = 0; i < WHEEL_CHUNK_NODES; i++) {
		KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
		KUNIT_EXPECT_EQ(test, id, 1ULL << 32 | i);
	}
}

/* It is still in the cache. */
static void a_freed_timer_is_taken_again_at_once(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u64 ids[10], id;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ids); i++)
		KUNIT_ASSERT_EQ(test, take(ts, &ids[i]), 0);
	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		give_back(ts, ids[i]);
		KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
		KUNIT_EXPECT_EQ(test, (u32)id, (u32)ids[i]);
	}
}

static const u32 capacities[] = {
	0, 1, WHEEL_CHUNK_NODES - 1, WHEEL_CHUNK_NODES, WHEEL_CHUNK_NODES + 1,
	3 * WHEEL_CHUNK_NODES + 5,
};

static void capacity_desc(const u32 *capacity, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "capacity %u", *capacity);
}

KUNIT_ARRAY_PARAM(capacity, capacities, capacity_desc);

/* Takes timers until there are no more. */
static u32 take_all(struct tw_timers *ts, int *why)
{
	u32 nr = 0;
	u64 id;

	for (;;) {
		*why = take(ts, &id);
		if (*why == -EAGAIN)
			*why = grow(ts);
		else if (!*why)
			nr++;
		if (*why)
			return nr;
	}
}

static void as_many_timers_live_as_the_capacity_says(struct kunit *test)
{
	u32 capacity = *(const u32 *)test->param_value;
	struct tw_timers *ts = table_make(test, 0, capacity);
	int why;

	KUNIT_EXPECT_EQ(test, take_all(ts, &why), capacity);
	KUNIT_EXPECT_EQ(test, why, -ENOSPC);
	KUNIT_EXPECT_EQ(test, ts->live, capacity);
}

static void at_the_capacity_one_freed_is_one_to_take(struct kunit *test)
{
	u32 capacity = *(const u32 *)test->param_value;
	struct tw_timers *ts = table_make(test, 0, capacity);
	int why;

	take_all(ts, &why);
	if (capacity)
		give_back(ts, 1ULL << 32 | capacity / 2);
	KUNIT_EXPECT_EQ(test, take_all(ts, &why), capacity ? 1 : 0);
	KUNIT_EXPECT_EQ(test, why, -ENOSPC);
}

static void the_table_is_no_larger_than_it_has_to_be(struct kunit *test)
{
	u32 capacity = *(const u32 *)test->param_value;
	struct tw_timers *ts = table_make(test, 0, capacity);
	int why;

	take_all(ts, &why);
	KUNIT_EXPECT_LT(test, ts->wheel->nr_nodes, capacity + WHEEL_CHUNK_NODES);
}

/* Growing */

static void an_empty_table_has_to_grow_first(struct kunit *test)
{
	struct tw_timers *ts = table_make(test, 0, 1);
	u64 id;

	KUNIT_EXPECT_EQ(test, take(ts, &id), -EAGAIN);
	KUNIT_EXPECT_EQ(test, grow(ts), 0);
	KUNIT_EXPECT_EQ(test, take(ts, &id), 0);
}

static void growing_keeps_timers_where_they_are(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	struct tw_timer *t;
	u32 i;
	u64 id;

	KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	t = tw_timer(ts, (u32)id);
	for (i = 1; i < MANY_CHUNKS; i++) {
		KUNIT_ASSERT_EQ(test, grow(ts), 0);
		KUNIT_ASSERT_PTR_EQ(test, tw_timer(ts, (u32)id), t);
		KUNIT_ASSERT_TRUE(test, found(ts, id));
	}
}

static void a_grown_wheel_has_all_the_blocks_it_needs(struct kunit *test)
{
	struct tw_timers *ts = table_make(test, 0, WHEEL_MAX_NODES);
	const char *wrong;
	u32 i;

	for (i = 1; i <= MANY_CHUNKS; i++) {
		KUNIT_ASSERT_EQ(test, grow(ts), 0);
		wrong = wheel_check(ts->wheel);
		KUNIT_ASSERT_TRUE_MSG(test, !wrong, "%s", wrong);
		KUNIT_ASSERT_EQ(test, ts->wheel->nr_nodes, i * WHEEL_CHUNK_NODES);
	}
}

static void growing_adds_to_the_free_timers_that_there_are(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u32 nr = 0;
	u64 id;

	KUNIT_ASSERT_EQ(test, grow(ts), 0);
	while (!take(ts, &id))
		nr++;
	KUNIT_EXPECT_EQ(test, nr, 2 * WHEEL_CHUNK_NODES);
}

/* What the next growth may or may not replace. */
static const u32 sizes[] = { 0, 1, TW_FIRST_ROOM - 1, TW_FIRST_ROOM, MANY_CHUNKS };

static void size_desc(const u32 *size, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "%u chunks of timers", *size);
}

KUNIT_ARRAY_PARAM(size, sizes, size_desc);

static struct tw_timers *table_of_size(struct kunit *test)
{
	struct tw_timers *ts = table_make(test, 0, WHEEL_MAX_NODES);
	u32 i;

	for (i = 0; i < *(const u32 *)test->param_value; i++)
		KUNIT_ASSERT_EQ(test, grow(ts), 0);
	return ts;
}

static void a_growth_that_is_discarded_changes_nothing(struct kunit *test)
{
	struct tw_timers *ts = table_of_size(test), before = *ts;
	void *nodes = ts->wheel->nodes, *blocks = ts->wheel->blocks;
	u32 nr_nodes = ts->wheel->nr_nodes, nr_blocks = ts->wheel->nr_blocks;
	struct tw_growth growth;

	KUNIT_ASSERT_EQ(test, tw_timers_prepare(ts, &growth), 0);
	tw_timers_discard(&growth);
	KUNIT_EXPECT_EQ(test, memcmp(ts, &before, sizeof(before)), 0);
	KUNIT_EXPECT_PTR_EQ(test, (void *)ts->wheel->nodes, nodes);
	KUNIT_EXPECT_PTR_EQ(test, (void *)ts->wheel->blocks, blocks);
	KUNIT_EXPECT_EQ(test, ts->wheel->nr_nodes, nr_nodes);
	KUNIT_EXPECT_EQ(test, ts->wheel->nr_blocks, nr_blocks);
}

/* Each allocation fails in turn, until none does. */
static void growing_without_memory_fails_and_changes_nothing(struct kunit *test)
{
	struct tw_timers *ts = table_of_size(test), before = *ts;
	u32 nr_nodes = ts->wheel->nr_nodes, nr_blocks = ts->wheel->nr_blocks;
	int allocs;

	for (allocs = 0;; allocs++) {
		tw_kunit_allocs = allocs;
		if (!grow(ts))
			break;
		KUNIT_ASSERT_EQ(test, tw_kunit_allocs, 0);
		KUNIT_ASSERT_EQ(test, memcmp(ts, &before, sizeof(before)), 0);
		KUNIT_ASSERT_EQ(test, ts->wheel->nr_nodes, nr_nodes);
		KUNIT_ASSERT_EQ(test, ts->wheel->nr_blocks, nr_blocks);
	}
	KUNIT_EXPECT_GE(test, allocs, 1);
	KUNIT_EXPECT_EQ(test, ts->wheel->nr_nodes, nr_nodes + WHEEL_CHUNK_NODES);
}

static void growing_without_memory_says_so(struct kunit *test)
{
	struct tw_timers *ts = table_make(test, 0, 1);

	tw_kunit_allocs = 0;
	KUNIT_EXPECT_EQ(test, grow(ts), -ENOMEM);
}

static void a_table_of_all_the_nodes_there_can_be_does_not_grow(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u32 nr_nodes = ts->wheel->nr_nodes;
	int ret;

	ts->wheel->nr_nodes = WHEEL_MAX_NODES;
	ret = grow(ts);
	ts->wheel->nr_nodes = nr_nodes;
	KUNIT_EXPECT_EQ(test, ret, -ENOSPC);
}

/* Giving memory back */

static void release(struct kunit *test, struct tw_timers *ts)
{
	struct tw_timers old;

	KUNIT_ASSERT_TRUE(test, tw_timers_release(ts, 5, &old));
	tw_timers_destroy(&old);
}

static void a_table_without_live_timers_gives_all_memory_back(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u64 id;

	KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	give_back(ts, id);
	release(test, ts);
	KUNIT_EXPECT_EQ(test, ts->bytes, 0);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&ts->user->bytes), 0);
	KUNIT_EXPECT_EQ(test, ts->wheel->nr_nodes, 0);
	KUNIT_EXPECT_EQ(test, take(ts, &id), -EAGAIN);
}

static void a_table_with_a_live_timer_keeps_its_memory(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test), old;
	u64 id;

	KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	KUNIT_EXPECT_FALSE(test, tw_timers_release(ts, 5, &old));
	KUNIT_EXPECT_TRUE(test, found(ts, id));
}

static void a_table_with_a_retired_timer_keeps_its_memory(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test), old;
	u64 id;

	KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	tw_timer(ts, (u32)id)->generation = U32_MAX;
	give_back(ts, id);
	KUNIT_EXPECT_FALSE(test, tw_timers_release(ts, 5, &old));
}

static void an_id_from_before_memory_was_given_back_is_never_found(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u64 ids[10], id;
	u32 round, i;

	for (round = 0; round < ARRAY_SIZE(ids); round++) {
		for (i = 0; i < 3; i++) {
			KUNIT_ASSERT_EQ(test, take(ts, &ids[round]), 0);
			KUNIT_ASSERT_EQ(test, (u32)ids[round], 0);
			give_back(ts, ids[round]);
		}
		release(test, ts);
		KUNIT_ASSERT_EQ(test, grow(ts), 0);
		KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
		for (i = 0; i <= round; i++)
			KUNIT_ASSERT_FALSE(test, found(ts, ids[i]));
		give_back(ts, id);
	}
}

/* Else a place that is used again and again would use up those of all others. */
static void a_new_place_begins_with_the_first_generation(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u32 i;
	u64 id;

	KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	tw_timer(ts, (u32)id)->generation = U32_MAX - 5;
	give_back(ts, id);
	KUNIT_ASSERT_EQ(test, grow(ts), 0);
	for (i = WHEEL_CHUNK_NODES; i < 2 * WHEEL_CHUNK_NODES; i++)
		KUNIT_EXPECT_EQ(test, tw_timer(ts, i)->generation, 1);
}

static void a_place_that_was_not_there_before_does_so_after_a_release(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	u64 id;

	KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	tw_timer(ts, (u32)id)->generation = 77;
	give_back(ts, id);
	release(test, ts);
	KUNIT_ASSERT_EQ(test, grow(ts), 0);
	KUNIT_ASSERT_EQ(test, grow(ts), 0);
	KUNIT_EXPECT_EQ(test, tw_timer(ts, 0)->generation, 78);
	KUNIT_EXPECT_EQ(test, tw_timer(ts, WHEEL_CHUNK_NODES)->generation, 1);
}

static void with_few_generations_left_memory_is_kept(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test), old;
	u64 id;

	KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	tw_timer(ts, (u32)id)->generation = S32_MAX;
	give_back(ts, id);
	KUNIT_EXPECT_FALSE(test, tw_timers_release(ts, 5, &old));
}

/* Users */

static unsigned long charged_to(const struct tw_timers *ts)
{
	return atomic_long_read(&ts->user->bytes);
}

/* What the allocator says that a table takes. */
static size_t really_taken(const struct tw_timers *ts)
{
	const struct tw_chunks *chunks;
	size_t bytes = 0;
	u32 part, i;

	for (part = 0; part < TW_PARTS; part++) {
		chunks = &ts->chunks[part];
		bytes += ksize(chunks->table);
		for (i = 0; i < chunks->nr; i++)
			bytes += ksize(chunks->table[i]);
	}
	return bytes;
}

static void the_user_is_charged_for_what_the_table_takes(struct kunit *test)
{
	struct tw_timers *ts = table_make(test, 0, WHEEL_MAX_NODES);
	u32 i;

	KUNIT_EXPECT_EQ(test, charged_to(ts), 0);
	for (i = 0; i < MANY_CHUNKS; i++) {
		KUNIT_ASSERT_EQ(test, grow(ts), 0);
		KUNIT_ASSERT_EQ(test, charged_to(ts), really_taken(ts));
		KUNIT_ASSERT_EQ(test, charged_to(ts), ts->bytes);
	}
}

static void memory_of_vmalloc_is_charged_by_the_page(struct kunit *test)
{
	size_t size = 3 * PAGE_SIZE + 1;
	void *mem = vmalloc(size);

	KUNIT_ASSERT_NOT_NULL(test, mem);
	KUNIT_EXPECT_EQ(test, tw_user_bytes(mem, size), 4 * PAGE_SIZE);
	vfree(mem);
}

static void memory_of_kmalloc_is_charged_as_it_is_rounded_up(struct kunit *test)
{
	size_t size = 2 * PAGE_SIZE + 1;
	void *mem = kmalloc(size, GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, mem);
	KUNIT_EXPECT_EQ(test, tw_user_bytes(mem, size), ksize(mem));
	KUNIT_EXPECT_EQ(test, tw_user_bytes(NULL, size), ksize(mem));
	kfree(mem);
}

static void files_of_a_user_share_a_count(struct kunit *test)
{
	struct tw_timers *one = table_of_one_chunk(test);
	struct tw_timers *other = table_make(test, 1, 10);

	KUNIT_EXPECT_PTR_EQ(test, one->user, other->user);
	KUNIT_ASSERT_EQ(test, grow(other), 0);
	KUNIT_EXPECT_EQ(test, charged_to(one), one->bytes + other->bytes);
}

/* The limit of one table is exact to the byte. */
static void a_growth_that_just_fits_is_allowed(struct kunit *test)
{
	struct tw_timers *one = table_of_one_chunk(test);
	struct tw_timers *other = table_make(test, 1, 10);

	tw_user_memory_max = 2 * one->bytes;
	KUNIT_EXPECT_EQ(test, grow(other), 0);
	KUNIT_EXPECT_EQ(test, charged_to(other), tw_user_memory_max);
}

static void a_growth_that_takes_a_byte_too_much_is_refused(struct kunit *test)
{
	struct tw_timers *one = table_of_one_chunk(test);
	struct tw_timers *other = table_make(test, 1, 10), before = *other;

	tw_user_memory_max = 2 * one->bytes - 1;
	KUNIT_EXPECT_EQ(test, grow(other), -EPERM);
	KUNIT_EXPECT_EQ(test, memcmp(other, &before, sizeof(before)), 0);
	KUNIT_EXPECT_EQ(test, charged_to(other), one->bytes);
}

static void nothing_is_allocated_for_a_growth_that_is_refused(struct kunit *test)
{
	struct tw_timers *ts = table_make(test, 0, 10);

	tw_user_memory_max = 1;
	tw_kunit_allocs = 0;
	KUNIT_EXPECT_EQ(test, grow(ts), -EPERM);
}

static void a_growth_is_charged_before_it_is_installed(struct kunit *test)
{
	struct tw_timers *ts = table_of_size(test);
	unsigned long before = charged_to(ts);
	struct tw_growth growth;

	KUNIT_ASSERT_EQ(test, tw_timers_prepare(ts, &growth), 0);
	KUNIT_EXPECT_GT(test, growth.bytes, WHEEL_NODE_CHUNK_SIZE);
	KUNIT_EXPECT_EQ(test, charged_to(ts), before + growth.bytes);
	tw_timers_discard(&growth);
	KUNIT_EXPECT_EQ(test, charged_to(ts), before);
}

static void what_a_growth_replaces_is_charged_until_it_is_freed(struct kunit *test)
{
	struct tw_timers *ts = table_of_size(test);
	size_t room = ts->chunks[TW_NODES].room, held;
	struct tw_growth growth;

	KUNIT_ASSERT_EQ(test, tw_timers_prepare(ts, &growth), 0);
	held = charged_to(ts);
	tw_timers_install(ts, &growth);
	KUNIT_EXPECT_EQ(test, charged_to(ts), held);
	if (ts->chunks[TW_NODES].room > room)
		KUNIT_EXPECT_GE(test, growth.bytes, 2 * room * sizeof(void *));
	tw_timers_discard(&growth);
	KUNIT_EXPECT_EQ(test, charged_to(ts), really_taken(ts));
}

/* Each allocation fails in turn, until none does. */
static void growing_without_memory_charges_nothing(struct kunit *test)
{
	struct tw_timers *ts = table_of_size(test);
	unsigned long before = charged_to(ts);
	int allocs;

	for (allocs = 0;; allocs++) {
		tw_kunit_allocs = allocs;
		if (!grow(ts))
			break;
		KUNIT_ASSERT_EQ(test, charged_to(ts), before);
	}
	KUNIT_EXPECT_GE(test, allocs, 1);
}

/* Or else who arms and cancels in one file after the other holds all there is. */
static void timers_that_were_freed_stay_charged(struct kunit *test)
{
	struct tw_timers *ts = table_of_one_chunk(test);
	unsigned long before = charged_to(ts);
	u64 id;

	KUNIT_ASSERT_EQ(test, take(ts, &id), 0);
	KUNIT_EXPECT_EQ(test, charged_to(ts), before);
	give_back(ts, id);
	KUNIT_EXPECT_EQ(test, charged_to(ts), before);
}

static void a_table_destroyed_with_live_timers_uncharges_all(struct kunit *test)
{
	struct tw_timers *ts = table_of_size(test);
	struct tw_timers *other = table_make(test, 1, 1);
	u64 id;

	while (!take(ts, &id))
		wheel_arm(ts->wheel, (u32)id, 1000 + id % 7);
	table_destroy(test, 0);
	KUNIT_EXPECT_EQ(test, charged_to(other), 0);
}

static struct tw_user *somebody(struct kunit *test)
{
	return table_make(test, 0, 1)->user;
}

static void without_a_limit_all_is_counted(struct kunit *test)
{
	struct tw_user *user = somebody(test);

	KUNIT_EXPECT_TRUE(test, tw_user_charge(user, LONG_MAX));
	KUNIT_EXPECT_EQ(test, atomic_long_read(&user->bytes), LONG_MAX);
	tw_user_uncharge(user, LONG_MAX);
	KUNIT_EXPECT_EQ(test, atomic_long_read(&user->bytes), 0);
}

static const struct charge {
	unsigned long max;
	unsigned long held;
	size_t more;
	bool allowed;
	const char *name;
} charges[] = {
	{ 100, 0, 100, true, "all of the limit" },
	{ 100, 99, 1, true, "the last byte" },
	{ 100, 100, 0, true, "nothing" },
	{ 100, 100, 1, false, "a byte more" },
	{ 100, 0, 101, false, "more than the limit" },
	{ 100, 200, 1, false, "a byte, with a limit lowered since" },
	{ 100, 200, 200, false, "more than the limit that was lowered" },
	{ 1, 1, SIZE_MAX, false, "what wraps around to 0" },
	{ LONG_MAX, 10, LONG_MAX, false, "what wraps around to below 0" },
	{ ULONG_MAX, 10, LONG_MAX - 10, true, "below the largest limit" },
};

static void charge_desc(const struct charge *charge, char *desc)
{
	strscpy(desc, charge->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(charge, charges, charge_desc);

static void a_charge_is_allowed_up_to_the_limit(struct kunit *test)
{
	const struct charge *charge = test->param_value;
	struct tw_user *user = somebody(test);
	unsigned long held = charge->held;

	KUNIT_ASSERT_TRUE(test, tw_user_charge(user, held));
	tw_user_memory_max = charge->max;
	KUNIT_EXPECT_EQ(test, tw_user_charge(user, charge->more), charge->allowed);
	held += charge->allowed ? charge->more : 0;
	KUNIT_EXPECT_EQ(test, atomic_long_read(&user->bytes), held);
	tw_user_uncharge(user, held);
}

static void who_is_capable_is_charged_beyond_the_limit(struct kunit *test)
{
	struct tw_user *user = somebody(test);

	tw_user_memory_max = 100;
	tw_kunit_capable = true;
	KUNIT_EXPECT_TRUE(test, tw_user_charge(user, 1000));
	tw_kunit_capable = false;
	KUNIT_EXPECT_EQ(test, atomic_long_read(&user->bytes), 1000);
	KUNIT_EXPECT_FALSE(test, tw_user_charge(user, 1));
	tw_user_uncharge(user, 1000);
}

static void the_capability_is_not_used_below_the_limit(struct kunit *test)
{
	struct tw_user *user = somebody(test);

	tw_user_memory_max = 100;
	tw_kunit_capable = true;
	tw_user_charge(user, 100);
	KUNIT_EXPECT_EQ(test, tw_kunit_asked, 0);
	tw_user_charge(user, 1);
	KUNIT_EXPECT_EQ(test, tw_kunit_asked, 1);
	tw_user_uncharge(user, 101);
}

/* @makers of the namespaces that the caller is in, from the outermost on; 0 is root */
static const struct caller {
	uid_t uid;
	uid_t makers[3];
	u32 depth;
	uid_t who;
	const char *name;
} callers[] = {
	{ 1000, {}, 0, 1000, "in the initial namespace" },
	{ 0, {}, 0, 0, "root" },
	{ 100005, { 1000 }, 1, 1000, "one of many uids of the maker" },
	{ 100005, { 0 }, 1, 100005, "where root has given it a uid" },
	{ 100005, { 1000, 100001, 100002 }, 3, 1000, "three namespaces deep" },
	{ 100009, { 0, 100005, 100006 }, 3, 100005, "made in a namespace of root's" },
	{ 100009, { 0, 0 }, 2, 100009, "root's, in one of root's" },
	{ 1000, { 2000 }, 1, 2000, "in the namespace of another" },
};

static void caller_desc(const struct caller *caller, char *desc)
{
	strscpy(desc, caller->name, KUNIT_PARAM_DESC_SIZE);
}

KUNIT_ARRAY_PARAM(caller, callers, caller_desc);

static void who_made_the_outermost_namespace_is_charged(struct kunit *test)
{
	const struct caller *caller = test->param_value;
	struct user_namespace *ns;
	u32 i;

	ns = kunit_kcalloc(test, ARRAY_SIZE(caller->makers), sizeof(*ns), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, ns);
	for (i = 0; i < caller->depth; i++) {
		ns[i].owner = KUIDT_INIT(caller->makers[i]);
		ns[i].parent = caller_ns;
		caller_ns = &ns[i];
	}
	caller_uid = KUIDT_INIT(caller->uid);
	KUNIT_EXPECT_EQ(test, __kuid_val(tw_user_who()), caller->who);
	caller_ns = &init_user_ns;
}

/* One more than there are buckets, so that two at least share one. */
static void users_have_counts_of_their_own(struct kunit *test)
{
	struct tw_user *users[HASH_SIZE(tw_users) + 1];
	u32 i, nr_own = 0;

	for (i = 0; i < ARRAY_SIZE(users); i++) {
		users[i] = tw_user_get(KUIDT_INIT(1000 + i));
		nr_own += users[i] && uid_eq(users[i]->uid, KUIDT_INIT(1000 + i));
	}
	for (i = 0; i < ARRAY_SIZE(users); i++)
		if (users[i])
			tw_user_put(users[i]);
	KUNIT_EXPECT_EQ(test, nr_own, ARRAY_SIZE(users));
}

static void a_user_goes_with_its_last_file(struct kunit *test)
{
	kuid_t uid = KUIDT_INIT(1000);
	struct tw_user *user = tw_user_get(uid);
	bool there;

	KUNIT_ASSERT_NOT_NULL(test, user);
	tw_user_get(uid);
	tw_user_put(user);
	spin_lock(&tw_users_lock);
	there = tw_user_find(uid);
	spin_unlock(&tw_users_lock);
	KUNIT_EXPECT_TRUE(test, there);
	tw_user_put(user);
	spin_lock(&tw_users_lock);
	there = tw_user_find(uid);
	spin_unlock(&tw_users_lock);
	KUNIT_EXPECT_FALSE(test, there);
}

static struct tw_user *faster;

static void open_faster(void)
{
	faster = tw_user_get(KUIDT_INIT(1000));
}

/* The first may be of a cgroup that has no memory, and the other not. */
static void another_opens_while_the_first_waits_for_memory(struct kunit *test)
{
	struct tw_user *user;

	faster = NULL;
	meanwhile = open_faster;
	user = tw_user_get(KUIDT_INIT(1000));
	KUNIT_ASSERT_NOT_NULL(test, user);
	KUNIT_EXPECT_PTR_EQ(test, user, faster);
	KUNIT_EXPECT_EQ(test, user->files, 2);
	tw_user_put(faster);
	tw_user_put(user);
}

static void a_user_without_memory_is_not_there(struct kunit *test)
{
	kuid_t uid = KUIDT_INIT(1000);
	struct tw_user *user;

	tw_kunit_allocs = 0;
	KUNIT_EXPECT_NULL(test, tw_user_get(uid));
	tw_kunit_allocs = 1;
	KUNIT_EXPECT_NULL(test, tw_user_get(uid));
	tw_kunit_allocs = 2;
	user = tw_user_get(uid);
	KUNIT_ASSERT_NOT_NULL(test, user);
	KUNIT_EXPECT_EQ(test, user->files, 1);
	tw_user_put(user);
}

static struct kunit_case timers_cases[] = {
	KUNIT_CASE(a_table_without_live_timers_gives_all_memory_back),
	KUNIT_CASE(a_table_with_a_live_timer_keeps_its_memory),
	KUNIT_CASE(a_table_with_a_retired_timer_keeps_its_memory),
	KUNIT_CASE(a_new_place_begins_with_the_first_generation),
	KUNIT_CASE(a_place_that_was_not_there_before_does_so_after_a_release),
	KUNIT_CASE(with_few_generations_left_memory_is_kept),
	KUNIT_CASE(an_id_from_before_memory_was_given_back_is_never_found),
	KUNIT_CASE(an_id_is_never_0),
	KUNIT_CASE(each_id_finds_its_own_timer),
	KUNIT_CASE(an_armed_timer_is_found),
	KUNIT_CASE(a_stale_id_is_never_found),
	KUNIT_CASE_PARAM(an_id_that_was_never_given_is_not_found, stranger_gen_params),
	KUNIT_CASE(a_new_table_finds_nothing),
	KUNIT_CASE(a_timer_with_a_generation_left_is_used_again),
	KUNIT_CASE(a_timer_without_a_generation_left_is_retired),
	KUNIT_CASE(new_timers_are_taken_in_order),
	KUNIT_CASE(a_freed_timer_is_taken_again_at_once),
	KUNIT_CASE_PARAM(as_many_timers_live_as_the_capacity_says, capacity_gen_params),
	KUNIT_CASE_PARAM(at_the_capacity_one_freed_is_one_to_take, capacity_gen_params),
	KUNIT_CASE_PARAM(the_table_is_no_larger_than_it_has_to_be, capacity_gen_params),
	KUNIT_CASE(an_empty_table_has_to_grow_first),
	KUNIT_CASE(growing_keeps_timers_where_they_are),
	KUNIT_CASE(a_grown_wheel_has_all_the_blocks_it_needs),
	KUNIT_CASE(growing_adds_to_the_free_timers_that_there_are),
	KUNIT_CASE_PARAM(a_growth_that_is_discarded_changes_nothing, size_gen_params),
	KUNIT_CASE_PARAM(growing_without_memory_fails_and_changes_nothing, size_gen_params),
	KUNIT_CASE(growing_without_memory_says_so),
	KUNIT_CASE(a_table_of_all_the_nodes_there_can_be_does_not_grow),
	KUNIT_CASE(the_user_is_charged_for_what_the_table_takes),
	KUNIT_CASE(memory_of_vmalloc_is_charged_by_the_page),
	KUNIT_CASE(memory_of_kmalloc_is_charged_as_it_is_rounded_up),
	KUNIT_CASE(files_of_a_user_share_a_count),
	KUNIT_CASE(a_growth_that_just_fits_is_allowed),
	KUNIT_CASE(a_growth_that_takes_a_byte_too_much_is_refused),
	KUNIT_CASE(nothing_is_allocated_for_a_growth_that_is_refused),
	KUNIT_CASE_PARAM(a_growth_is_charged_before_it_is_installed, size_gen_params),
	KUNIT_CASE_PARAM(what_a_growth_replaces_is_charged_until_it_is_freed,
			 size_gen_params),
	KUNIT_CASE_PARAM(growing_without_memory_charges_nothing, size_gen_params),
	KUNIT_CASE(timers_that_were_freed_stay_charged),
	KUNIT_CASE_PARAM(a_table_destroyed_with_live_timers_uncharges_all,
			 size_gen_params),
	KUNIT_CASE(without_a_limit_all_is_counted),
	KUNIT_CASE_PARAM(a_charge_is_allowed_up_to_the_limit, charge_gen_params),
	KUNIT_CASE(who_is_capable_is_charged_beyond_the_limit),
	KUNIT_CASE(the_capability_is_not_used_below_the_limit),
	KUNIT_CASE_PARAM(who_made_the_outermost_namespace_is_charged, caller_gen_params),
	KUNIT_CASE(users_have_counts_of_their_own),
	KUNIT_CASE(a_user_goes_with_its_last_file),
	KUNIT_CASE(another_opens_while_the_first_waits_for_memory),
	KUNIT_CASE(a_user_without_memory_is_not_there),
	{}
};

static struct kunit_suite timers_suite = {
	.name = "twheel-timers",
	.init = timers_test_init,
	.exit = timers_test_exit,
	.test_cases = timers_cases,
};

kunit_test_suite(timers_suite);
