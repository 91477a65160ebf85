// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of the ready queue, against an array that is searched from end to end.
 */
#include "twheel_kunit.h"

#include "../module/queue.c"

#define NODES		4096

/**
 * struct line - a queue, and what should be in it
 * @w:     has the timers
 * @ts:    finds them
 * @q:     the queue
 * @order: the timers of @q, in the order in which they came
 * @nr:    how many
 * @in:    timers that are in it
 */
struct line {
	struct wheel w;
	struct tw_timers ts;
	struct tw_queue q;
	u32 order[NODES];
	u32 nr;
	bool in[NODES];
};

/* As many blocks as there have to be, and not one more. */
static int queue_test_init(struct kunit *test)
{
	struct line *line = kunit_kzalloc(test, sizeof(*line), GFP_KERNEL);
	u32 i, chunks = NODES >> WHEEL_NODE_SHIFT;

	if (!line)
		return -ENOMEM;
	test->priv = line;
	wheel_init(&line->w, 0);
	line->ts.wheel = &line->w;
	line->w.nodes = kunit_kcalloc(test, chunks, sizeof(void *), GFP_KERNEL);
	tw_queue_init(&line->q);
	line->q.blocks = kunit_kcalloc(test, NODES, sizeof(void *), GFP_KERNEL);
	if (!line->w.nodes || !line->q.blocks)
		return -ENOMEM;
	for (i = 0; i < chunks; i++) {
		line->w.nodes[i] = kunit_kzalloc(test, WHEEL_NODE_CHUNK_SIZE, GFP_KERNEL);
		if (!line->w.nodes[i])
			return -ENOMEM;
	}
	line->w.nr_nodes = NODES;
	return 0;
}

/* Provides for so many timers. */
static struct line *line_for(struct kunit *test, u32 nr)
{
	struct line *line = test->priv;
	void *chunk;
	u32 spare;

	while (line->q.nr_blocks < tw_queue_blocks_for(nr)) {
		chunk = kunit_kzalloc(test, TW_QUEUE_CHUNK_SIZE, GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, chunk);
		tw_queue_add_blocks(&line->q, chunk);
	}
	/* More come in a chunk than are wanted: those must not be needed. */
	for (spare = line->q.nr_blocks; spare > tw_queue_blocks_for(nr); spare--)
		line->q.free_block = tw_queue_block(&line->q, line->q.free_block)->next;
	return line;
}

static const char *line_check(const struct line *line)
{
	const char *wrong = tw_queue_check(&line->q, &line->ts);

	/* Those that were taken away by line_for() are lost indeed. */
	if (wrong && strcmp(wrong, "a block of the queue is lost"))
		return wrong;
	return line->q.nr == line->nr ? NULL : "the queue has not as many timers as it should";
}

static void push(struct kunit *test, u32 index)
{
	struct line *line = test->priv;

	KUNIT_ASSERT_NE(test, line->q.free_block, WHEEL_NONE);
	tw_timer(&line->ts, index)->place = tw_queue_push(&line->q, &line->ts, index);
	line->order[line->nr++] = index;
	line->in[index] = true;
}

static void forget(struct line *line, u32 at, u32 nr)
{
	u32 i;

	for (i = at; i < at + nr; i++)
		line->in[line->order[i]] = false;
	line->nr -= nr;
	memmove(&line->order[at], &line->order[at + nr], (line->nr - at) * sizeof(u32));
}

static void shift(struct kunit *test, u32 nr)
{
	struct line *line = test->priv;
	u32 index = WHEEL_NONE;

	KUNIT_ASSERT_EQ(test, tw_queue_peek(&line->q, &line->ts, &index, 1), 1);
	KUNIT_ASSERT_EQ(test, index, line->order[0]);
	tw_queue_shift(&line->q, nr);
	forget(line, 0, nr);
}

static void remove_at(struct line *line, u32 at)
{
	tw_queue_remove(&line->q, &line->ts, tw_timer(&line->ts, line->order[at])->place);
	forget(line, at, 1);
}

static void verify(struct kunit *test)
{
	const char *wrong = line_check(test->priv);

	KUNIT_ASSERT_TRUE_MSG(test, !wrong, "%s", wrong);
}

/* All that is in it comes in order. */
static void empty(struct kunit *test)
{
	struct line *line = test->priv;

	while (line->nr)
		shift(test, 1);
	verify(test);
	KUNIT_EXPECT_EQ(test, line->q.first, WHEEL_NONE);
	KUNIT_EXPECT_EQ(test, line->q.last, WHEEL_NONE);
}

static const u32 counts[] = {
	1, 2, TW_QUEUE_ENTRIES - 1, TW_QUEUE_ENTRIES, TW_QUEUE_ENTRIES + 1,
	TW_QUEUE_PACKED, TW_QUEUE_PACKED + 1, 1000,
};

static void count_desc(const u32 *count, char *desc)
{
	snprintf(desc, KUNIT_PARAM_DESC_SIZE, "%u timers", *count);
}

KUNIT_ARRAY_PARAM(count, counts, count_desc);

static void who_comes_first_is_read_first(struct kunit *test)
{
	u32 i, nr = *(const u32 *)test->param_value;

	line_for(test, NODES);
	for (i = 0; i < nr; i++) {
		push(test, i);
		verify(test);
	}
	empty(test);
}

static void a_look_shows_as_many_as_it_asks_for(struct kunit *test)
{
	u32 nr = *(const u32 *)test->param_value, i, max, seen, *index;
	struct line *line = line_for(test, NODES);

	index = kunit_kcalloc(test, NODES, sizeof(*index), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, index);
	for (i = 0; i < nr; i++)
		push(test, i);
	for (max = 0; max <= nr + 1; max += 1 + nr / 10) {
		memset(index, 0xff, NODES * sizeof(*index));
		seen = tw_queue_peek(&line->q, &line->ts, index, max);
		KUNIT_EXPECT_EQ(test, seen, min(max, nr));
		KUNIT_EXPECT_EQ(test, memcmp(index, line->order, seen * sizeof(*index)), 0);
		KUNIT_EXPECT_EQ(test, index[seen], WHEEL_NONE);
	}
}

static void any_number_can_leave_at_once(struct kunit *test)
{
	u32 i, nr = *(const u32 *)test->param_value, leave;
	struct line *line = line_for(test, NODES);

	for (leave = 1; leave <= nr; leave += 1 + nr / 20) {
		for (i = 0; i < nr; i++)
			push(test, i);
		/* Gaps before, between and behind those that leave. */
		for (i = 0; i < line->nr && line->nr > leave; i += 1 + i)
			remove_at(line, i);
		shift(test, leave);
		verify(test);
		empty(test);
	}
}

static void any_timer_can_be_removed(struct kunit *test)
{
	u32 i, gone, nr = *(const u32 *)test->param_value;
	struct line *line = line_for(test, NODES);

	for (gone = 0; gone < nr; gone += 1 + nr / 20) {
		for (i = 0; i < nr; i++)
			push(test, i);
		remove_at(line, gone);
		verify(test);
		empty(test);
	}
}

/* Every way to leave gaps: all but each nth, from the front or from the back. */
static void gaps_take_no_more_blocks_than_there_are(struct kunit *test)
{
	u32 nr = *(const u32 *)test->param_value, keep, i, at;
	struct line *line = line_for(test, nr + 1);

	for (keep = 1; keep <= 2 * TW_QUEUE_ENTRIES; keep++) {
		/* A timer that stays first and keeps its block. */
		push(test, nr);
		for (i = 0; i < nr; i++)
			if (!line->in[i])
				push(test, i);
		for (at = line->nr; at-- > 1;) {
			if (at % keep)
				continue;
			remove_at(line, at);
			verify(test);
		}
		for (i = 0; i < nr; i++)
			if (!line->in[i])
				push(test, i);
		for (at = 1; at < line->nr; at += keep) {
			remove_at(line, at);
			verify(test);
		}
		empty(test);
	}
}

/* One that is always cancelled while another waits for ever. */
static void a_timer_that_comes_and_goes_leaves_no_trail(struct kunit *test)
{
	struct line *line = line_for(test, 3);
	u32 i;

	push(test, 0);
	for (i = 0; i < 1000; i++) {
		push(test, 1);
		push(test, 2);
		remove_at(line, 1);
		verify(test);
		remove_at(line, 1);
		verify(test);
	}
	KUNIT_EXPECT_EQ(test, line->q.nr, 1);
}

/* Fills so many blocks, but for @first_gap and @second_gap which keep few timers. */
static struct line *blocks_with_gaps(struct kunit *test, u32 blocks, u32 first_gap,
				     u32 keep_first, u32 second_gap, u32 keep_second)
{
	struct line *line = line_for(test, NODES);
	u32 i;

	for (i = 0; i < blocks * TW_QUEUE_ENTRIES; i++)
		push(test, i);
	for (i = keep_second; i < TW_QUEUE_ENTRIES; i++)
		remove_at(line, second_gap * TW_QUEUE_ENTRIES);
	for (i = keep_first; i < TW_QUEUE_ENTRIES; i++)
		remove_at(line, first_gap * TW_QUEUE_ENTRIES);
	verify(test);
	return line;
}

/* What two blocks do not fill must not go where the next run would have too few. */
static void packing_the_first_run_leaves_the_next_one_enough(struct kunit *test)
{
	struct line *line = blocks_with_gaps(test, 7, 1, 2, 4, 1);
	u32 i;

	for (i = 1; i < TW_QUEUE_ENTRIES; i++)
		shift(test, 1);
	/* The first block has one timer and the second one: a run of too few. */
	remove_at(line, 1);
	verify(test);
	empty(test);
}

static void packing_the_last_run_leaves_the_one_before_enough(struct kunit *test)
{
	struct line *line = blocks_with_gaps(test, 5, 1, 1, 4, 1);

	/* The last place of the last block was in use, so that these need another. */
	push(test, NODES - 2);
	push(test, NODES - 1);
	verify(test);
	remove_at(line, line->nr - 1);
	verify(test);
	empty(test);
}

static void random_calls_do_what_an_array_would(struct kunit *test)
{
	u32 step, round, index, nr = 64 + *(const u32 *)test->param_value;
	struct line *line = line_for(test, nr);
	u32 pushes = 0, shifts = 0, most = 0;
	struct rnd_state random;

	tw_kunit_seed(test, &random);
	for (round = 0; round < 40; round++) {
		/* Each round has a mood of its own. */
		pushes = 1 + tw_kunit_below(&random, 100);
		shifts = tw_kunit_below(&random, 50);
		most = 1 + tw_kunit_below(&random, round % 2 ? 1 : 3 * TW_QUEUE_ENTRIES);
		for (step = 0; step < 300; step++) {
			index = tw_kunit_below(&random, nr);
			if (tw_kunit_below(&random, 100) < pushes && !line->in[index])
				push(test, index);
			else if (line->nr && tw_kunit_below(&random, 100) < shifts)
				shift(test, 1 + tw_kunit_below(&random, min(line->nr, most)));
			else if (line->nr)
				remove_at(line, tw_kunit_below(&random, line->nr));
			if (step % 16 == 0)
				verify(test);
		}
	}
	verify(test);
	empty(test);
}

static struct kunit_case queue_cases[] = {
	KUNIT_CASE_PARAM(who_comes_first_is_read_first, count_gen_params),
	KUNIT_CASE_PARAM(a_look_shows_as_many_as_it_asks_for, count_gen_params),
	KUNIT_CASE_PARAM(any_number_can_leave_at_once, count_gen_params),
	KUNIT_CASE_PARAM(any_timer_can_be_removed, count_gen_params),
	KUNIT_CASE_PARAM(gaps_take_no_more_blocks_than_there_are, count_gen_params),
	KUNIT_CASE(a_timer_that_comes_and_goes_leaves_no_trail),
	KUNIT_CASE(packing_the_first_run_leaves_the_next_one_enough),
	KUNIT_CASE(packing_the_last_run_leaves_the_one_before_enough),
	KUNIT_CASE_PARAM(random_calls_do_what_an_array_would, count_gen_params),
	{}
};

static struct kunit_suite queue_suite = {
	.name = "twheel-queue",
	.init = queue_test_init,
	.test_cases = queue_cases,
};

kunit_test_suite(queue_suite);
