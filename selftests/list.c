// SPDX-License-Identifier: GPL-2.0
/*
 * List: a walk by cursor sees every timer that is armed from its begin to its
 * end, once, whatever others do meanwhile; and it changes nothing.
 */
#include "twheel_test.h"

#define TIMERS	1000
#define STABLE	700
#define CHURN	2

FIXTURE(list)
{
	int fd;
	__u64 ids[TIMERS];
	struct twheel_op ops[TIMERS + 1];
	struct twheel_info before;
	struct twheel_stats stats;
};

FIXTURE_SETUP(list)
{
	__u32 i;

	self->fd = tw_manual(TW_TICK_DEFAULT);
	ASSERT_LE(0, self->fd);
	for (i = 0; i < TIMERS; i++) {
		struct twheel_op op = tw_op(TW_HOUR + i * TW_MSEC, i);

		op.slack_ns = i;
		op.interval_ns = i % 4 ? 0 : TW_NSEC;
		op.count = i % 4 ? 0 : i;
		op.misfire = i % 3;
		if (i % 7 == 0)
			op.expires_ns = TWHEEL_NEVER;
		ASSERT_EQ(0, tw_arm_op(self->fd, &op));
		self->ids[i] = op.id;
	}
	ASSERT_EQ(0, tw_info(self->fd, &self->before));
	ASSERT_EQ(0, tw_stats(self->fd, &self->stats));
	tw_poison(&self->ops);
}

FIXTURE_TEARDOWN(list)
{
	close(self->fd);
}

/* QUERY says the same; the entry can be submitted as it was armed. */
static bool as_query(int fd, const struct twheel_op *op)
{
	struct twheel_op seen;

	if (tw_query(fd, op->id, &seen))
		return false;
	seen.opcode = op->opcode;
	seen.res = 0;
	return !memcmp(&seen, op, sizeof(seen)) && op->flags == TWHEEL_F_ARMED;
}

/*
 * Walk with arrays of @room, -1 for one of a random size each time: how many
 * were seen, or -errno. Each user_data may come but once.
 */
static long walk(int fd, struct twheel_op *ops, __u32 room, struct tw_bitmap *seen,
		 __u64 *seed)
{
	__u64 cursor = 0;
	long total = 0, ret, i, nr;

	do {
		nr = room == ~0U ? 1 + tw_random_below(seed, 200) : room;
		memset(ops, TW_POISON, (nr + 1) * sizeof(*ops));
		ret = tw_list(fd, ops, nr, &cursor);
		if (ret < 0)
			return ret;
		if (ret > nr ||
		    !tw_poisoned(&ops[ret], (nr + 1 - ret) * sizeof(*ops)))
			return -EPROTO;
		for (i = 0; i < ret; i++)
			if (ops[i].flags != TWHEEL_F_ARMED ||
			    (ops[i].user_data < seen->nr &&
			     !tw_bitmap_add(seen, ops[i].user_data)))
				return -EPROTO;
		total += ret;
	} while (cursor);
	return total;
}

static bool unchanged(FIXTURE_DATA(list) *self)
{
	struct twheel_info now;
	struct twheel_stats stats;

	return !tw_info(self->fd, &now) && !tw_stats(self->fd, &stats) &&
	       !memcmp(&now, &self->before, sizeof(now)) &&
	       !memcmp(&stats, &self->stats, sizeof(stats));
}

TEST_F(list, a_walk_sees_every_timer_once)
{
	static const __u32 rooms[] = {
		1, 2, 3, 31, 32, 33, 63, 64, 65, 128, 999, 1000, ~0U,
	};
	struct tw_bitmap seen;
	__u64 seed = 1;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rooms); i++) {
		ASSERT_TRUE(tw_bitmap_init(&seen, TIMERS));
		EXPECT_EQ(TIMERS, walk(self->fd, self->ops, rooms[i], &seen, &seed)) {
			TH_LOG("arrays of %u", rooms[i]);
		}
		free(seen.bits);
	}
}

TEST_F(list, an_entry_is_as_query_tells)
{
	__u64 cursor = 0;
	__u32 i;

	ASSERT_EQ(TIMERS, tw_list(self->fd, self->ops, TIMERS, &cursor));
	for (i = 0; i < TIMERS; i++) {
		ASSERT_TRUE(as_query(self->fd, &self->ops[i]));
		ASSERT_EQ(self->ids[self->ops[i].user_data], self->ops[i].id);
	}
}

TEST_F(list, changes_nothing)
{
	struct tw_bitmap seen;
	__u64 seed = 1, next = tw_next(self->fd);

	ASSERT_TRUE(tw_bitmap_init(&seen, TIMERS));
	ASSERT_EQ(0, tw_stats(self->fd, &self->stats));
	ASSERT_EQ(TIMERS, walk(self->fd, self->ops, 50, &seen, &seed));
	EXPECT_TRUE(unchanged(self));
	EXPECT_EQ(next, tw_next(self->fd));
	free(seen.bits);
}

TEST_F(list, what_is_ready_is_not_armed)
{
	struct tw_bitmap seen;
	__u64 seed = 1;
	__u32 ready;

	ASSERT_TRUE(tw_bitmap_init(&seen, TIMERS));
	ASSERT_EQ(0, tw_advance(self->fd, TW_HOUR + TIMERS / 2 * TW_MSEC));
	ready = tw_ready(self->fd);
	ASSERT_LT(0, ready);
	EXPECT_EQ(TIMERS - ready, walk(self->fd, self->ops, 50, &seen, &seed));
	EXPECT_EQ(ready, tw_ready(self->fd));
	free(seen.bits);
}

TEST_F(list, what_was_cancelled_is_not_seen)
{
	struct tw_bitmap seen;
	__u64 seed = 1;
	__u32 i;

	ASSERT_TRUE(tw_bitmap_init(&seen, TIMERS));
	for (i = 0; i < TIMERS; i++)
		if (i % 100)
			ASSERT_EQ(0, tw_cancel(self->fd, self->ids[i]));
	EXPECT_EQ(10, walk(self->fd, self->ops, 3, &seen, &seed));
	for (i = 0; i < TIMERS; i += 100)
		EXPECT_FALSE(tw_bitmap_add(&seen, i));
	free(seen.bits);
}

TEST_F(list, of_an_empty_wheel_ends_at_once)
{
	int fd = tw_manual(0);
	__u64 cursor = 0, id;

	ASSERT_LE(0, fd);
	EXPECT_EQ(0, tw_list(fd, self->ops, TIMERS, &cursor));
	EXPECT_EQ(0, cursor);
	/* Empty again, but with room for timers */
	id = tw_arm(fd, TW_HOUR, 0);
	ASSERT_EQ(0, tw_cancel(fd, id));
	EXPECT_EQ(0, tw_list(fd, self->ops, TIMERS, &cursor));
	EXPECT_EQ(0, cursor);
	EXPECT_TRUE(tw_poisoned(self->ops, sizeof(self->ops)));
	close(fd);
}

TEST_F(list, into_no_room_does_not_move)
{
	__u64 cursor = 0, was;

	EXPECT_EQ(0, tw_list(self->fd, NULL, 0, &cursor));
	EXPECT_EQ(0, cursor);
	ASSERT_EQ(5, tw_list(self->fd, self->ops, 5, &cursor));
	ASSERT_NE(0, cursor);
	was = cursor;
	EXPECT_EQ(0, tw_list(self->fd, NULL, 0, &cursor));
	EXPECT_EQ(was, cursor);
}

TEST_F(list, writes_nothing_but_the_cursor_into_the_struct)
{
	struct twheel_list arg = {
		.size = sizeof(arg),
		.ops = (uintptr_t)self->ops,
		.nr = 7,
	}, was = arg;

	ASSERT_EQ(7, tw_ioctl(self->fd, TWHEEL_IOC_LIST, &arg));
	EXPECT_NE(0, arg.cursor);
	arg.cursor = was.cursor;
	EXPECT_EQ(0, memcmp(&was, &arg, sizeof(arg)));
}

TEST_F(list, a_cursor_that_none_gave_is_harmless)
{
	static const __u64 bad[] = {
		TWHEEL_NEVER, TW_S64_MAX, TW_S64_MAX + 1, 1ULL << 32, TW_POISON64,
	};
	static const __u64 beyond[] = { 0xffffffff, 0x80000000, 0x7fffffff };
	__u64 cursor;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		cursor = bad[i];
		EXPECT_EQ(-EINVAL, tw_list(self->fd, self->ops, TIMERS, &cursor));
		EXPECT_EQ(bad[i], cursor);
	}
	for (i = 0; i < ARRAY_SIZE(beyond); i++) {
		cursor = beyond[i];
		EXPECT_EQ(0, tw_list(self->fd, self->ops, TIMERS, &cursor));
		EXPECT_EQ(0, cursor);
	}
	EXPECT_TRUE(tw_poisoned(self->ops, sizeof(self->ops)));
	EXPECT_TRUE(unchanged(self));
}

/* Any number may be a cursor: what it leads to is timers, to the end. */
TEST_F(list, every_cursor_leads_to_the_end)
{
	__u32 nr = tw_many(2 * TIMERS / 13), k;
	long ret, i, last = TIMERS;
	__u64 cursor;

	for (k = 0; k < nr; k++) {
		cursor = 2 * TIMERS / nr * k;
		ret = tw_list(self->fd, self->ops, TIMERS, &cursor);
		ASSERT_LE(0, ret);
		ASSERT_GE(last, ret);
		last = ret;
		for (i = 0; i < ret; i++)
			ASSERT_TRUE(as_query(self->fd, &self->ops[i]));
		if (ret < TIMERS)
			ASSERT_EQ(0, cursor);
	}
}

/* Faults */
TEST_F(list, a_fault_skips_nothing)
{
	static const __u32 haves[] = { 0, 1, 31, 63, 64, 65, 128, 190 };
	static const __u32 mores[] = { 0, 1, 32, 63 };
	struct twheel_op *all = malloc(TIMERS * sizeof(*all));
	char *cliff = tw_cliff_of(3);
	__u64 cursor;
	size_t i, j, off;
	long ret, rest;

	ASSERT_NE(NULL, cliff);
	ASSERT_NE(NULL, all);
	cursor = 0;
	ASSERT_EQ(TIMERS, tw_list(self->fd, all, TIMERS, &cursor));
	for (i = 0; i < ARRAY_SIZE(haves); i++) {
		for (j = 0; j < ARRAY_SIZE(mores); j++) {
			off = haves[i] * sizeof(*all) + mores[j];
			cursor = 0;
			ret = tw_list(self->fd, cliff - off, TIMERS, &cursor);
			/* As many as fit, or less: then the cursor says so. */
			ASSERT_GE((long)haves[i], ret);
			if (ret < 0) {
				ASSERT_EQ(-EFAULT, ret);
				ASSERT_EQ(0, cursor);
				ret = 0;
			} else {
				ASSERT_EQ(0, memcmp(all, cliff - off,
						    ret * sizeof(*all)));
			}
			rest = tw_list(self->fd, self->ops, TIMERS + 1, &cursor);
			ASSERT_EQ(TIMERS - ret, rest);
			ASSERT_EQ(0, cursor);
			ASSERT_EQ(0, memcmp(all + ret, self->ops,
					    rest * sizeof(*all)));
		}
	}
	EXPECT_TRUE(unchanged(self));
	free(all);
}

TEST_F(list, an_array_without_memory_is_efault)
{
	long page = sysconf(_SC_PAGESIZE);
	char *cliff = tw_cliff();
	void *bad[] = { NULL, cliff, cliff - 63, (void *)-4096L, cliff - page };
	__u64 cursor = 0, was;
	size_t i;

	ASSERT_NE(NULL, cliff);
	ASSERT_EQ(0, mprotect(cliff - page, page, PROT_READ));
	ASSERT_EQ(5, tw_list(self->fd, self->ops, 5, &cursor));
	was = cursor;
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(-EFAULT, tw_list(self->fd, bad[i], 1, &cursor));
		EXPECT_EQ(was, cursor);
	}
}

TEST_F(list, a_struct_that_cannot_be_written_is_efault)
{
	long page = sysconf(_SC_PAGESIZE);
	char *cliff = tw_cliff();
	struct twheel_list *arg = (void *)(cliff - sizeof(*arg));

	ASSERT_NE(NULL, cliff);
	*arg = (struct twheel_list) {
		.size = sizeof(*arg),
		.ops = (uintptr_t)self->ops,
		.nr = 5,
	};
	ASSERT_EQ(0, mprotect(cliff - page, page, PROT_READ));
	EXPECT_EQ(-EFAULT, tw_ioctl(self->fd, TWHEEL_IOC_LIST, arg));
	EXPECT_TRUE(unchanged(self));
}

/* Others arm, cancel and modify while one walks. */
struct churner {
	pthread_t thread;
	int fd;
	bool *stop;		/* atomic */
	const __u64 *stable;
	__u64 seed;
	long error;
};

static void *churn(void *arg)
{
	struct churner *c = arg;
	__u64 ids[300] = { 0 }, i;
	long ret;

	while (!__atomic_load_n(c->stop, __ATOMIC_ACQUIRE)) {
		i = tw_random_below(&c->seed, 300);
		if (!ids[i])
			ids[i] = tw_arm(c->fd, TW_HOUR + (c->seed & 0xffffffff),
					STABLE + 1);
		else if (tw_cancel(c->fd, ids[i]))
			c->error = -EPROTO;
		else
			ids[i] = 0;
		/* In its place: armed all the while */
		i = tw_random_below(&c->seed, STABLE);
		ret = tw_modify(c->fd, c->stable[i], TW_HOUR + (c->seed & 0xffffffff));
		if (ret)
			c->error = ret;
	}
	return NULL;
}

TEST(a_walk_among_others_sees_what_stays_once)
{
	static __u64 stable[STABLE];
	static struct twheel_op ops[201];
	struct churner c[CHURN];
	struct tw_bitmap seen;
	bool stop = false;
	__u64 seed = 1;
	long ret = 0;
	int fd = tw_manual(0), rounds = tw_many(300), i, round;

	ASSERT_LE(0, fd);
	/* Holes between them, for others to come and go */
	for (i = 0; i < STABLE; i++) {
		__u64 hole = tw_arm(fd, TW_HOUR, 0);

		stable[i] = tw_arm(fd, TW_HOUR, i);
		ASSERT_NE(0, stable[i]);
		ASSERT_EQ(0, tw_cancel(fd, hole));
		/* Half of the holes are filled again at the next turn. */
		if (i & 1)
			ASSERT_NE(0, tw_arm(fd, TWHEEL_NEVER, STABLE + 1));
	}
	for (i = 0; i < CHURN; i++) {
		c[i] = (struct churner) {
			.fd = fd, .stop = &stop, .stable = stable, .seed = i + 7,
		};
		ASSERT_EQ(0, pthread_create(&c[i].thread, NULL, churn, &c[i]));
	}
	for (round = 0; round < rounds && ret >= 0; round++) {
		if (!tw_bitmap_init(&seen, STABLE))
			break;
		ret = walk(fd, ops, round & 1 ? ~0U : 1U + round % 40, &seen, &seed);
		for (i = 0; i < STABLE && ret >= 0; i++)
			if (tw_bitmap_add(&seen, i))
				ret = -ESRCH;
		free(seen.bits);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (i = 0; i < CHURN; i++) {
		ASSERT_EQ(0, pthread_join(c[i].thread, NULL));
		EXPECT_EQ(0, c[i].error);
	}
	EXPECT_LE(STABLE, ret);
	EXPECT_EQ(rounds, round);
	close(fd);
}

TEST_HARNESS_MAIN
