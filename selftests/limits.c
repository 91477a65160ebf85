// SPDX-License-Identifier: GPL-2.0
/*
 * The capacity of a wheel is exact, whatever went before, and wheels do not
 * know of each other.
 */
#include "twheel_test.h"

#define CAPACITY	1000
#define LARGE		20000
#define WHEELS		64

FIXTURE(limit)
{
	int fd;
	__u32 capacity;
	__u64 *ids;
};

FIXTURE_VARIANT(limit)
{
	__u32 capacity;
};

FIXTURE_VARIANT_ADD(limit, of_one)
{
	.capacity = 1,
};

FIXTURE_VARIANT_ADD(limit, of_a_thousand)
{
	.capacity = CAPACITY,
};

FIXTURE_VARIANT_ADD(limit, of_many)
{
	.capacity = LARGE,
};

FIXTURE_SETUP(limit)
{
	struct twheel_info info;

	self->fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, variant->capacity);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, tw_info(self->fd, &info));
	self->capacity = info.capacity;
	self->ids = calloc(self->capacity, sizeof(*self->ids));
	ASSERT_NE(NULL, self->ids);
}

FIXTURE_TEARDOWN(limit)
{
	close(self->fd);
}

/* Arm exactly as many as there is room for: true if one more is ENOSPC. */
static bool fill(FIXTURE_DATA(limit) *self, __u64 expires)
{
	__u64 more;
	__u32 i;

	for (i = 0; i < self->capacity; i++) {
		self->ids[i] = tw_arm(self->fd, expires, i);
		if (!self->ids[i])
			return false;
	}
	return tw_arm_id(self->fd, expires, 0, &more) == -ENOSPC && !more;
}

static bool cancel_all(FIXTURE_DATA(limit) *self)
{
	__u32 i;

	for (i = 0; i < self->capacity; i++)
		if (tw_cancel(self->fd, self->ids[i]) < 0)
			return false;
	return !tw_armed(self->fd) && !tw_ready(self->fd);
}

TEST_F(limit, is_what_was_asked_for)
{
	EXPECT_EQ(variant->capacity, self->capacity);
}

TEST_F(limit, the_capacity_can_be_armed_and_not_one_more)
{
	ASSERT_TRUE(fill(self, TW_HOUR));
	EXPECT_EQ(self->capacity, tw_armed(self->fd));
}

TEST_F(limit, parked_timers_count)
{
	EXPECT_TRUE(fill(self, TWHEEL_NEVER));
}

TEST_F(limit, ready_timers_count_until_they_are_read)
{
	ASSERT_TRUE(fill(self, 0));
	EXPECT_EQ(self->capacity, tw_ready(self->fd));
	EXPECT_EQ(self->capacity, tw_discard(self->fd));
	EXPECT_TRUE(fill(self, TW_HOUR));
}

TEST_F(limit, a_cancel_makes_room_for_exactly_one)
{
	__u64 id;

	ASSERT_TRUE(fill(self, TW_HOUR));
	ASSERT_EQ(0, tw_cancel(self->fd, self->ids[self->capacity / 2]));
	EXPECT_NE(0, tw_arm(self->fd, TW_HOUR, 0));
	EXPECT_EQ(-ENOSPC, tw_arm_id(self->fd, TW_HOUR, 0, &id));
}

TEST_F(limit, a_full_wheel_can_still_modify)
{
	ASSERT_TRUE(fill(self, TW_HOUR));
	EXPECT_EQ(0, tw_modify(self->fd, self->ids[0], 2 * TW_HOUR));
	EXPECT_EQ(0, tw_modify(self->fd, self->ids[0], TW_HOUR / 2));
}

TEST_F(limit, slots_are_used_again_and_again)
{
	__u32 rounds = 10, i;

	for (i = 0; i < rounds; i++) {
		ASSERT_TRUE(fill(self, (i + 1) * TW_HOUR));
		ASSERT_TRUE(cancel_all(self));
	}
	for (i = 0; i < rounds; i++) {
		ASSERT_TRUE(fill(self, (i + 1) * TW_HOUR));
		ASSERT_EQ(0, tw_advance(self->fd, (i + 1) * TW_HOUR + TW_NSEC));
		ASSERT_EQ(self->capacity, tw_discard(self->fd));
	}
}

TEST_F(limit, a_failed_arm_uses_up_nothing)
{
	struct twheel_op op;
	__u32 i;

	for (i = 0; i < 2 * CAPACITY; i++) {
		op = tw_op(TW_HOUR, 0);
		op.resv = 1;
		ASSERT_EQ(-EINVAL, tw_arm_op(self->fd, &op));
	}
	EXPECT_TRUE(fill(self, TW_HOUR));
}

TEST_F(limit, an_arm_that_faults_uses_up_nothing)
{
	long page = sysconf(_SC_PAGESIZE);
	char *cliff = tw_cliff();
	struct twheel_op op = tw_op(TW_HOUR, 0);
	__u32 i;

	ASSERT_NE(NULL, cliff);
	memcpy(cliff - sizeof(op), &op, sizeof(op));
	ASSERT_EQ(0, mprotect(cliff - page, page, PROT_READ));
	for (i = 0; i < 2 * CAPACITY; i++)
		ASSERT_EQ(-EFAULT, tw_arm_op(self->fd,
					     (void *)(cliff - sizeof(op))));
	EXPECT_EQ(0, tw_armed(self->fd));
	EXPECT_TRUE(fill(self, TW_HOUR));
}

/* P20: the count is exact after threads fought for the last places. */
struct grabber {
	pthread_t thread;
	int fd;
	long error;
};

static void *grab(void *arg)
{
	struct grabber *g = arg;
	__u64 id[16];
	long ret = 0;
	int round, i, n;

	for (round = 0; round < (int)tw_many(2000); round++) {
		for (n = 0; n < 16; n++) {
			ret = tw_arm_id(g->fd, TW_HOUR, 0, &id[n]);
			if (ret)
				break;
		}
		if (ret && ret != -ENOSPC)
			g->error = ret;
		for (i = 0; i < n; i++)
			if (tw_cancel(g->fd, id[i]))
				g->error = -EPROTO;
	}
	return NULL;
}

TEST_F(limit, the_count_is_exact_after_a_storm)
{
	struct grabber g[4] = { { 0 } };
	int i;

	for (i = 0; i < 4; i++) {
		g[i].fd = self->fd;
		ASSERT_EQ(0, pthread_create(&g[i].thread, NULL, grab, &g[i]));
	}
	for (i = 0; i < 4; i++) {
		ASSERT_EQ(0, pthread_join(g[i].thread, NULL));
		EXPECT_EQ(0, g[i].error);
	}
	EXPECT_EQ(0, tw_armed(self->fd));
	EXPECT_TRUE(fill(self, TW_HOUR));
}

/* Promise 7 */
FIXTURE(wheels)
{
	int fd[WHEELS];
};

FIXTURE_SETUP(wheels)
{
	int i;

	for (i = 0; i < WHEELS; i++) {
		self->fd[i] = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, CAPACITY);
		ASSERT_LE(0, self->fd[i]);
	}
}

FIXTURE_TEARDOWN(wheels)
{
	int i;

	for (i = 0; i < WHEELS; i++)
		close(self->fd[i]);
}

TEST_F(wheels, have_clocks_of_their_own)
{
	__u64 i;

	for (i = 0; i < WHEELS; i++)
		ASSERT_EQ(0, tw_advance(self->fd[i], i * TW_NSEC));
	for (i = 0; i < WHEELS; i++)
		EXPECT_EQ(i * TW_NSEC, tw_now(self->fd[i]));
}

TEST_F(wheels, have_timers_of_their_own)
{
	struct twheel_event ev;
	__u64 i;

	for (i = 0; i < WHEELS; i++)
		ASSERT_NE(0, tw_arm(self->fd[i], TW_HOUR, i));
	for (i = 0; i < WHEELS; i++) {
		ASSERT_EQ(0, tw_advance(self->fd[i], 2 * TW_HOUR));
		if (i + 1 < WHEELS)
			EXPECT_EQ(0, tw_ready(self->fd[i + 1]));
		ASSERT_EQ(1, tw_read(self->fd[i], &ev, 1));
		EXPECT_EQ(i, ev.user_data);
	}
}

TEST_F(wheels, have_capacities_of_their_own)
{
	__u64 i;

	for (i = 0; i < CAPACITY; i++)
		ASSERT_NE(0, tw_arm(self->fd[0], TW_HOUR, i));
	EXPECT_EQ(0, tw_arm(self->fd[0], TW_HOUR, i));
	EXPECT_NE(0, tw_arm(self->fd[1], TW_HOUR, i));
}

TEST_F(wheels, do_not_know_each_others_ids)
{
	__u64 id = tw_arm(self->fd[0], TW_HOUR, 0);

	EXPECT_EQ(-ENOENT, tw_cancel(self->fd[1], id));
	EXPECT_EQ(-ENOENT, tw_modify(self->fd[1], id, TW_HOUR));
	EXPECT_EQ(-ENOENT, tw_state(self->fd[1], id));
	EXPECT_EQ(TWHEEL_F_ARMED, tw_state(self->fd[0], id));
}

TEST_F(wheels, survive_the_close_of_others)
{
	int i;

	for (i = 0; i < WHEELS; i++)
		ASSERT_NE(0, tw_arm(self->fd[i], TW_HOUR, i));
	for (i = 0; i < WHEELS - 1; i++)
		ASSERT_EQ(0, close(self->fd[i]));
	ASSERT_EQ(0, tw_advance(self->fd[WHEELS - 1], 2 * TW_HOUR));
	EXPECT_EQ(1, tw_discard(self->fd[WHEELS - 1]));
	for (i = 0; i < WHEELS - 1; i++)
		self->fd[i] = -1;
}

/* Waits until the kernel says that the file holds less than that. */
static bool holds_less(int fd, __u64 bytes)
{
	unsigned int i;

	for (i = 0; i < TW_PATIENCE_MS / 100; i++) {
		if (tw_counter(fd, "memory") < bytes)
			return true;
		usleep(100000);
	}
	return false;
}

TEST(a_wheel_that_has_long_been_empty_gives_its_memory_back)
{
	int fd = tw_manual(TW_TICK_MIN);
	__u64 full, ids[LARGE];
	unsigned int i;

	for (i = 0; i < LARGE; i++) {
		ids[i] = tw_arm(fd, TWHEEL_NEVER, i);
		ASSERT_NE(0, ids[i]);
	}
	full = tw_counter(fd, "memory");
	for (i = 0; i < LARGE; i++)
		ASSERT_EQ(0, tw_cancel(fd, ids[i]));
	EXPECT_TRUE(holds_less(fd, full / 10));
	/* And no id of before names a timer of after. */
	ASSERT_NE(0, tw_arm(fd, TWHEEL_NEVER, 0));
	for (i = 0; i < LARGE; i++)
		ASSERT_EQ(-ENOENT, tw_cancel(fd, ids[i]));
	close(fd);
}

TEST_HARNESS_MAIN
