// SPDX-License-Identifier: GPL-2.0
/*
 * Arrays of operations: each entry does what the call of its own does, whatever
 * its neighbours do, in order, and a fault leaves whole entries done or not.
 */
#include <signal.h>
#include <sys/time.h>

#include "twheel_test.h"

#define CHUNK		64	/* entries that fit a page */
#define LARGEST		65536
#define ROUNDS		((int)tw_many(400))
#define BATCH_MAX	200
#define THREADS		4
#define FLAGS_KNOWN	(TWHEEL_F_REL | TWHEEL_F_ARMED | TWHEEL_F_READY)

/* A timer that is ready, one that is armed and an id that is stale */
FIXTURE(submit)
{
	int fd;
	__u64 ready_id;
	__u64 armed_id;
	__u64 stale_id;
	struct twheel_op ops[BATCH_MAX];
	struct twheel_event ev[8];
};

FIXTURE_SETUP(submit)
{
	self->fd = tw_manual(TW_TICK_DEFAULT);
	ASSERT_LE(0, self->fd);
	self->stale_id = tw_arm(self->fd, TW_HOUR, 0);
	self->ready_id = tw_arm(self->fd, 0, 1);
	self->armed_id = tw_arm(self->fd, TW_HOUR, 2);
	ASSERT_NE(0, self->ready_id);
	ASSERT_NE(0, self->armed_id);
	ASSERT_EQ(0, tw_cancel(self->fd, self->stale_id));
	tw_poison(&self->ops);
}

FIXTURE_TEARDOWN(submit)
{
	close(self->fd);
}

static void fill_arms(struct twheel_op *ops, __u32 nr)
{
	__u32 i;

	for (i = 0; i < nr; i++)
		ops[i] = tw_entry(2 * TW_HOUR, i);
}

/* The entry @i of fill_arms() has armed a timer that @fd knows. */
static bool has_armed(int fd, const struct twheel_op *op, __u32 i)
{
	struct twheel_op was = tw_entry(2 * TW_HOUR, i), seen;

	was.id = op->id;
	was.res = 0;
	return op->id && !memcmp(&was, op, sizeof(was)) &&
	       !tw_query(fd, op->id, &seen) &&
	       seen.flags == TWHEEL_F_ARMED && seen.user_data == i;
}

static bool is_untouched(const struct twheel_op *op, __u32 i)
{
	struct twheel_op was = tw_entry(2 * TW_HOUR, i);

	return !memcmp(&was, op, sizeof(was));
}

TEST_F(submit, no_entries_are_no_work)
{
	EXPECT_EQ(0, tw_submit(self->fd, self->ops, 0));
	EXPECT_EQ(0, tw_submit(self->fd, NULL, 0));
	EXPECT_EQ(0, tw_submit(self->fd, (void *)-4096L, 0));
	EXPECT_EQ(1, tw_armed(self->fd));
}

TEST_F(submit, each_entry_has_the_result_of_its_own_call)
{
	static const long results[] = {
		0, 0, 1, -ENOENT, -ENOENT, 0, 0, -EINVAL, 0, -ENOENT,
	};
	struct twheel_op *ops = self->ops;
	size_t i;

	ops[0] = tw_entry(TW_HOUR, 7);
	ops[1] = tw_entry_by_id(TWHEEL_OP_NOP, TW_POISON64);
	ops[2] = tw_entry_by_id(TWHEEL_OP_CANCEL, self->ready_id);
	ops[3] = tw_entry_by_id(TWHEEL_OP_CANCEL, self->ready_id);
	ops[4] = tw_entry_by_id(TWHEEL_OP_QUERY, self->stale_id);
	ops[5] = tw_entry_by_id(TWHEEL_OP_QUERY, self->armed_id);
	ops[6] = tw_entry(2 * TW_HOUR, 0);
	ops[6].opcode = TWHEEL_OP_MODIFY;
	ops[6].id = self->armed_id;
	ops[7] = tw_entry_by_id(TWHEEL_OP_QUERY + 1, self->armed_id);
	ops[8] = tw_entry_by_id(TWHEEL_OP_CANCEL, self->armed_id);
	ops[9] = ops[6];
	ASSERT_EQ(10, tw_submit(self->fd, ops, 10));
	for (i = 0; i < ARRAY_SIZE(results); i++)
		EXPECT_EQ(results[i], ops[i].res) {
			TH_LOG("entry %zu", i);
		}
	EXPECT_EQ(1, tw_armed(self->fd));
	EXPECT_EQ(0, tw_ready(self->fd));
}

TEST_F(submit, a_modify_of_a_ready_timer_withdraws_the_record)
{
	self->ops[0] = tw_entry(TW_HOUR, 0);
	self->ops[0].opcode = TWHEEL_OP_MODIFY;
	self->ops[0].id = self->ready_id;
	ASSERT_EQ(1, tw_submit(self->fd, self->ops, 1));
	EXPECT_EQ(1, self->ops[0].res);
	EXPECT_EQ(0, tw_ready(self->fd));
	EXPECT_EQ(TWHEEL_F_ARMED, tw_state(self->fd, self->ready_id));
}

TEST_F(submit, every_unknown_opcode_is_einval_in_its_entry)
{
	__u32 nr = 0x10000 - TWHEEL_OP_QUERY - 1, i;
	struct twheel_op *ops = malloc(nr * sizeof(*ops)), was;

	ASSERT_NE(NULL, ops);
	for (i = 0; i < nr; i++) {
		ops[i] = tw_entry(TW_HOUR, i);
		ops[i].opcode = i + TWHEEL_OP_QUERY + 1;
	}
	ASSERT_EQ(nr, tw_submit(self->fd, ops, nr));
	for (i = 0; i < nr; i++) {
		was = tw_entry(TW_HOUR, i);
		was.opcode = i + TWHEEL_OP_QUERY + 1;
		was.res = -EINVAL;
		ASSERT_EQ(0, memcmp(&was, &ops[i], sizeof(was)));
	}
	EXPECT_EQ(1, tw_armed(self->fd));
	free(ops);
}

TEST_F(submit, flags_and_padding_of_every_opcode_are_checked)
{
	int opcode, bit, nr = 0, i;

	for (opcode = TWHEEL_OP_NOP; opcode <= TWHEEL_OP_QUERY; opcode++) {
		for (bit = 0; bit < 16; bit++) {
			struct twheel_op op = tw_entry_by_id(opcode, self->armed_id);

			op.flags = 1 << bit;
			if (op.flags & FLAGS_KNOWN)
				continue;
			self->ops[nr++] = op;
		}
		for (i = 53; i < 64; i++) {
			self->ops[nr] = tw_entry_by_id(opcode, self->armed_id);
			((unsigned char *)&self->ops[nr++])[i] = 1;
		}
	}
	ASSERT_EQ(nr, tw_submit(self->fd, self->ops, nr));
	for (i = 0; i < nr; i++)
		EXPECT_EQ(-EINVAL, self->ops[i].res);
	EXPECT_EQ(1, tw_armed(self->fd));
	EXPECT_EQ(1, tw_ready(self->fd));
	EXPECT_EQ(TWHEEL_F_ARMED, tw_state(self->fd, self->armed_id));
}

TEST_F(submit, the_times_of_an_entry_are_checked)
{
	struct twheel_op *ops = self->ops;
	int i;

	fill_arms(ops, 6);
	ops[0].expires_ns = TW_S64_MAX + 1;
	ops[1].expires_ns = TWHEEL_NEVER - 1;
	ops[2].interval_ns = TW_S64_MAX + 1;
	ops[3].slack_ns = TWHEEL_NEVER;
	ops[4].count = 1;
	ops[5].misfire = TWHEEL_MISFIRE_SKIP + 1;
	ASSERT_EQ(6, tw_submit(self->fd, ops, 6));
	for (i = 0; i < 6; i++)
		EXPECT_EQ(-EINVAL, ops[i].res);
	EXPECT_EQ(1, tw_armed(self->fd));
}

TEST_F(submit, a_failed_arm_leaves_no_id_behind)
{
	struct twheel_op *ops = self->ops;

	fill_arms(ops, 4);
	ops[0].pad[0] = 1;
	ops[1].expires_ns = TW_S64_MAX + 1;
	ops[2].flags = 0x8000;
	ops[3].resv = 1;
	ASSERT_EQ(4, tw_submit(self->fd, ops, 4));
	EXPECT_EQ(0, ops[0].id);
	EXPECT_EQ(0, ops[1].id);
	EXPECT_EQ(0, ops[2].id);
	EXPECT_EQ(0, ops[3].id);
}

TEST_F(submit, an_entry_that_fails_writes_its_result_alone)
{
	struct twheel_op was[4];
	int i;

	was[0] = tw_entry_by_id(TWHEEL_OP_CANCEL, self->stale_id);
	was[1] = tw_entry_by_id(TWHEEL_OP_QUERY, self->stale_id);
	was[2] = tw_entry_by_id(TWHEEL_OP_NOP, self->armed_id);
	was[3] = tw_entry_by_id(TWHEEL_OP_CANCEL, self->armed_id);
	memcpy(self->ops, was, sizeof(was));
	ASSERT_EQ(4, tw_submit(self->fd, self->ops, 4));
	was[0].res = -ENOENT;
	was[1].res = -ENOENT;
	was[2].res = 0;
	was[3].res = 0;
	for (i = 0; i < 4; i++)
		EXPECT_EQ(0, memcmp(&was[i], &self->ops[i], sizeof(was[i])));
}

TEST_F(submit, a_bad_entry_does_not_stop_the_rest)
{
	__u32 i;

	for (i = 0; i < BATCH_MAX; i++) {
		self->ops[i] = tw_entry(2 * TW_HOUR, i);
		if (i % 3)
			self->ops[i].resv = 1;
	}
	ASSERT_EQ(BATCH_MAX, tw_submit(self->fd, self->ops, BATCH_MAX));
	for (i = 0; i < BATCH_MAX; i++)
		EXPECT_TRUE(i % 3 ? self->ops[i].res == -EINVAL :
				    has_armed(self->fd, &self->ops[i], i));
	EXPECT_EQ(1 + (BATCH_MAX + 2) / 3, tw_armed(self->fd));
}

TEST_F(submit, entries_are_done_in_order)
{
	struct twheel_op *ops = self->ops;
	struct twheel_op modify = tw_entry(0, 0);
	__u64 id = self->armed_id;

	modify.opcode = TWHEEL_OP_MODIFY;
	modify.id = id;
	ops[0] = tw_entry_by_id(TWHEEL_OP_QUERY, id);
	ops[1] = modify;
	ops[2] = tw_entry_by_id(TWHEEL_OP_QUERY, id);
	ops[3] = modify;
	ops[3].expires_ns = 3 * TW_HOUR;
	ops[4] = tw_entry_by_id(TWHEEL_OP_QUERY, id);
	ops[5] = tw_entry_by_id(TWHEEL_OP_CANCEL, id);
	ops[6] = tw_entry_by_id(TWHEEL_OP_CANCEL, id);
	ASSERT_EQ(7, tw_submit(self->fd, ops, 7));
	EXPECT_EQ(TWHEEL_F_ARMED, ops[0].flags);
	EXPECT_EQ(TW_HOUR, ops[0].expires_ns);
	EXPECT_EQ(0, ops[1].res);
	EXPECT_EQ(TWHEEL_F_READY, ops[2].flags);
	EXPECT_EQ(0, ops[2].expires_ns);
	EXPECT_EQ(1, ops[3].res);
	EXPECT_EQ(TWHEEL_F_ARMED, ops[4].flags);
	EXPECT_EQ(3 * TW_HOUR, ops[4].expires_ns);
	EXPECT_EQ(0, ops[5].res);
	EXPECT_EQ(-ENOENT, ops[6].res);
}

TEST_F(submit, records_of_one_array_are_read_in_its_order)
{
	int i;

	ASSERT_EQ(1, tw_discard(self->fd));
	for (i = 0; i < 8; i++)
		self->ops[i] = tw_entry(0, i);
	ASSERT_EQ(8, tw_submit(self->fd, self->ops, 8));
	ASSERT_EQ(8, tw_read(self->fd, self->ev, 8));
	for (i = 0; i < 8; i++)
		EXPECT_EQ(self->ops[i].id, self->ev[i].id);
}

TEST_F(submit, query_fills_in_what_the_single_call_does)
{
	struct twheel_op op = tw_op(TW_HOUR, 0x123456789), seen;

	op.interval_ns = 1000;
	op.slack_ns = 2000;
	op.count = 3;
	op.misfire = TWHEEL_MISFIRE_SKIP;
	ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	ASSERT_EQ(0, tw_query(self->fd, op.id, &seen));
	self->ops[0] = tw_entry_by_id(TWHEEL_OP_QUERY, op.id);
	ASSERT_EQ(1, tw_submit(self->fd, self->ops, 1));
	seen.opcode = TWHEEL_OP_QUERY;
	seen.res = 0;
	EXPECT_EQ(0, memcmp(&seen, self->ops, sizeof(seen)));
	EXPECT_EQ(0x123456789, seen.user_data);
	EXPECT_EQ(2000, seen.slack_ns);
	EXPECT_EQ(TWHEEL_MISFIRE_SKIP, seen.misfire);
}

TEST_F(submit, relative_times_count_from_now)
{
	struct twheel_op seen;

	ASSERT_EQ(0, tw_advance(self->fd, 12345));
	self->ops[0] = tw_entry(TW_HOUR, 0);
	self->ops[0].flags = TWHEEL_F_REL;
	self->ops[1] = self->ops[0];
	self->ops[1].opcode = TWHEEL_OP_MODIFY;
	self->ops[1].id = self->armed_id;
	ASSERT_EQ(2, tw_submit(self->fd, self->ops, 2));
	EXPECT_EQ(0, self->ops[0].res);
	EXPECT_EQ(0, self->ops[1].res);
	ASSERT_EQ(0, tw_query(self->fd, self->ops[0].id, &seen));
	EXPECT_EQ(TW_HOUR + 12345, seen.expires_ns);
	ASSERT_EQ(0, tw_query(self->fd, self->armed_id, &seen));
	EXPECT_EQ(TW_HOUR + 12345, seen.expires_ns);
}

TEST_F(submit, entries_beyond_the_number_are_not_touched)
{
	__u32 nr;

	for (nr = 1; nr < 130; nr += 16) {
		fill_arms(self->ops, BATCH_MAX);
		ASSERT_EQ(nr, tw_submit(self->fd, self->ops, nr));
		EXPECT_TRUE(has_armed(self->fd, &self->ops[nr - 1], nr - 1));
		for (__u32 i = nr; i < BATCH_MAX; i++)
			ASSERT_TRUE(is_untouched(&self->ops[i], i));
	}
}

TEST_F(submit, an_array_need_not_be_aligned)
{
	static char buf[BATCH_MAX * sizeof(struct twheel_op) + 64];
	struct twheel_op op;
	__u32 off, i;

	for (off = 1; off < 64; off += 2) {
		memset(buf, TW_POISON, sizeof(buf));
		fill_arms(self->ops, BATCH_MAX);
		memcpy(buf + off, self->ops, sizeof(self->ops));
		ASSERT_EQ(BATCH_MAX, tw_submit(self->fd, buf + off, BATCH_MAX));
		for (i = 0; i < BATCH_MAX; i++) {
			memcpy(&op, buf + off + i * sizeof(op), sizeof(op));
			ASSERT_TRUE(has_armed(self->fd, &op, i));
		}
		ASSERT_TRUE(tw_poisoned(buf, off));
		ASSERT_TRUE(tw_poisoned(buf + off + sizeof(self->ops), 64 - off));
	}
}

/* Faults: @have entries and @more bytes of the next lie before the cliff. */
static bool fault_after(int fd, char *cliff, __u32 have, __u32 more)
{
	size_t bytes = have * sizeof(struct twheel_op) + more;
	__u32 armed = tw_armed(fd), nr = have + BATCH_MAX, i;
	struct twheel_op *ops = malloc(nr * sizeof(*ops));
	bool good;
	long ret;

	if (!ops)
		return false;
	fill_arms(ops, nr);
	memcpy(cliff - bytes, ops, bytes);
	ret = tw_submit(fd, cliff - bytes, nr);
	memcpy(ops, cliff - bytes, bytes);
	good = ret == (have ? (long)have : -EFAULT) &&
	       tw_armed(fd) == armed + have;
	for (i = 0; i < have && good; i++)
		good = has_armed(fd, &ops[i], i);
	/* What there is of the entry that faults is as it was. */
	for (i = have; i < nr && good; i++)
		good = is_untouched(&ops[i], i);
	free(ops);
	return good;
}

TEST_F(submit, a_fault_stops_before_the_entry_that_faults)
{
	static const __u32 haves[] = {
		0, 1, 2, 31, 32, 33, 63, 64, 65, 95, 127, 128, 129, 180,
	};
	static const __u32 mores[] = { 0, 1, 3, 4, 8, 32, 63 };
	char *cliff = tw_cliff_of(3);
	size_t i, j;

	ASSERT_NE(NULL, cliff);
	for (i = 0; i < ARRAY_SIZE(haves); i++)
		for (j = 0; j < ARRAY_SIZE(mores); j++)
			EXPECT_TRUE(fault_after(self->fd, cliff, haves[i],
						mores[j])) {
				TH_LOG("%u entries and %u bytes", haves[i], mores[j]);
			}
}

TEST_F(submit, a_fault_undoes_nothing_that_was_done)
{
	char *cliff = tw_cliff();
	struct twheel_op *ops = (void *)(cliff - 2 * sizeof(*ops));

	ASSERT_NE(NULL, cliff);
	ops[0] = tw_entry_by_id(TWHEEL_OP_CANCEL, self->armed_id);
	ops[1] = tw_entry_by_id(TWHEEL_OP_CANCEL, self->ready_id);
	ASSERT_EQ(2, tw_submit(self->fd, ops, 3));
	EXPECT_EQ(0, ops[0].res);
	EXPECT_EQ(1, ops[1].res);
	EXPECT_EQ(-ENOENT, tw_state(self->fd, self->armed_id));
	EXPECT_EQ(-ENOENT, tw_state(self->fd, self->ready_id));
}

TEST_F(submit, an_array_without_memory_is_efault)
{
	char *cliff = tw_cliff();

	ASSERT_NE(NULL, cliff);
	EXPECT_EQ(-EFAULT, tw_submit(self->fd, NULL, 1));
	EXPECT_EQ(-EFAULT, tw_submit(self->fd, cliff, 1));
	EXPECT_EQ(-EFAULT, tw_submit(self->fd, (void *)-4096L, 1));
	EXPECT_EQ(-EFAULT, tw_submit(self->fd, cliff, 0x7fffffff));
	EXPECT_EQ(1, tw_armed(self->fd));
}

TEST_F(submit, an_array_that_begins_in_a_hole_is_efault)
{
	long page = sysconf(_SC_PAGESIZE);
	char *cliff = tw_cliff_of(2);
	char *begin = cliff - page - 64;

	ASSERT_NE(NULL, cliff);
	fill_arms(self->ops, CHUNK);
	memcpy(cliff - page, self->ops, CHUNK * sizeof(struct twheel_op));
	ASSERT_EQ(0, munmap(cliff - 2 * page, page));
	EXPECT_EQ(-EFAULT, tw_submit(self->fd, begin, CHUNK));
	EXPECT_EQ(-EFAULT, tw_submit(self->fd, begin + 32, CHUNK));
	EXPECT_EQ(1, tw_armed(self->fd));
	EXPECT_EQ(0, memcmp(cliff - page, self->ops,
			    CHUNK * sizeof(struct twheel_op)));
}

TEST_F(submit, an_array_goes_on_no_further_than_a_hole)
{
	long page = sysconf(_SC_PAGESIZE);
	char *cliff = tw_cliff_of(3);
	__u32 have = 16, i;
	struct twheel_op *ops, *after;

	ASSERT_NE(NULL, cliff);
	ops = (void *)(cliff - 2 * page - have * sizeof(*ops));
	after = (void *)(cliff - page);
	fill_arms(ops, have);
	fill_arms(after, CHUNK);
	ASSERT_EQ(0, munmap(cliff - 2 * page, page));
	EXPECT_EQ(have, tw_submit(self->fd, ops, have + 2 * CHUNK));
	EXPECT_EQ(1 + have, tw_armed(self->fd));
	for (i = 0; i < CHUNK; i++)
		ASSERT_TRUE(is_untouched(&after[i], i));
}

TEST_F(submit, a_read_only_array_does_nothing)
{
	long page = sysconf(_SC_PAGESIZE);
	char *cliff = tw_cliff();
	struct twheel_op *ops = (void *)(cliff - 3 * sizeof(*ops));

	ASSERT_NE(NULL, cliff);
	ops[0] = tw_entry(TW_HOUR, 0);
	ops[1] = tw_entry_by_id(TWHEEL_OP_CANCEL, self->armed_id);
	ops[2] = tw_entry_by_id(TWHEEL_OP_CANCEL, self->ready_id);
	ASSERT_EQ(0, mprotect(cliff - page, page, PROT_READ));
	EXPECT_EQ(-EFAULT, tw_submit(self->fd, ops, 3));
	EXPECT_EQ(1, tw_armed(self->fd));
	EXPECT_EQ(TWHEEL_F_ARMED, tw_state(self->fd, self->armed_id));
	EXPECT_EQ(TWHEEL_F_READY, tw_state(self->fd, self->ready_id));
}

TEST_F(submit, an_array_goes_on_no_further_than_it_can_be_written)
{
	long page = sysconf(_SC_PAGESIZE);
	char *cliff = tw_cliff_of(3);
	__u32 off, i, have;
	struct twheel_op *ops;

	ASSERT_NE(NULL, cliff);
	for (off = 0; off < 64; off += 21) {
		__u32 armed = tw_armed(self->fd);

		ASSERT_EQ(0, mprotect(cliff - page, page, PROT_READ | PROT_WRITE));
		have = (page + 640 - off) / sizeof(*ops);
		ops = (void *)(cliff - 2 * page - 640 + off);
		fill_arms(self->ops, have + 20);
		memcpy(ops, self->ops, (have + 20) * sizeof(*ops));
		ASSERT_EQ(0, mprotect(cliff - page, page, PROT_READ));
		EXPECT_EQ(have, tw_submit(self->fd, ops, have + 20));
		EXPECT_EQ(armed + have, tw_armed(self->fd));
		memcpy(self->ops, ops, (have + 20) * sizeof(*ops));
		for (i = 0; i < have; i++)
			ASSERT_TRUE(has_armed(self->fd, &self->ops[i], i));
		for (; i < have + 20; i++)
			ASSERT_TRUE(is_untouched(&self->ops[i], i));
	}
}

TEST_F(submit, a_deadline_that_has_passed_wakes_a_sleeper)
{
	static void *(* const fns[])(void *) = {
		tw_sleeper_poll, tw_sleeper_read,
	};
	struct tw_sleeper s;
	size_t i;

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	ASSERT_EQ(1, tw_cancel(self->fd, self->ready_id));
	for (i = 0; i < ARRAY_SIZE(fns); i++) {
		ASSERT_TRUE(tw_sleeper_start(&s, self->fd, fns[i]));
		ASSERT_TRUE(tw_sleeper_asleep(&s));
		fill_arms(self->ops, 100);
		self->ops[40].expires_ns = 0;
		ASSERT_EQ(100, tw_submit(self->fd, self->ops, 100));
		ASSERT_TRUE(tw_sleeper_joined(&s));
		EXPECT_LT(0, s.ret);
		if (!i)
			ASSERT_EQ(1, tw_read(self->fd, self->ev, 8));
	}
}

TEST_F(submit, a_modify_into_the_past_wakes_a_sleeper)
{
	struct tw_sleeper s;

	ASSERT_EQ(1, tw_cancel(self->fd, self->ready_id));
	self->ops[0] = tw_entry(0, 0);
	self->ops[0].opcode = TWHEEL_OP_MODIFY;
	self->ops[0].id = self->armed_id;
	ASSERT_TRUE(tw_sleeper_start(&s, self->fd, tw_sleeper_poll));
	ASSERT_TRUE(tw_sleeper_asleep(&s));
	ASSERT_EQ(1, tw_submit(self->fd, self->ops, 1));
	ASSERT_TRUE(tw_sleeper_joined(&s));
	EXPECT_EQ(POLLIN | POLLRDNORM, s.ret);
}

TEST_F(submit, arms_of_an_array_fire_on_a_clock_of_the_kernel)
{
	int fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, 0), i;
	struct twheel_event ev[100];
	long done = 0, ret;

	ASSERT_LE(0, fd);
	for (i = 0; i < 100; i++) {
		self->ops[i] = tw_entry(i * TW_MSEC / 4, i);
		self->ops[i].flags = TWHEEL_F_REL;
	}
	ASSERT_EQ(100, tw_submit(fd, self->ops, 100));
	while (done < 100) {
		ASSERT_TRUE(tw_wait_readable(fd));
		ret = tw_read(fd, ev, 100 - done);
		ASSERT_LT(0, ret);
		done += ret;
		for (i = 0; i < ret; i++)
			ASSERT_LE(ev[i].expires_ns, ev[i].fired_ns);
	}
	EXPECT_EQ(0, tw_armed(fd));
	close(fd);
}

/* P30: now is not that of the beginning for all of it. */
TEST_F(submit, time_goes_on_amid_an_array)
{
	int fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, LARGEST);
	struct twheel_op *ops = malloc(LARGEST * sizeof(*ops)), first, last;
	__u64 before, after;
	__u32 i;

	ASSERT_LE(0, fd);
	ASSERT_NE(NULL, ops);
	fill_arms(ops, LARGEST);
	for (i = 0; i < LARGEST; i++) {
		ops[i].expires_ns = TW_HOUR;
		ops[i].flags = TWHEEL_F_REL;
	}
	before = tw_clock(CLOCK_MONOTONIC);
	ASSERT_EQ(LARGEST, tw_submit(fd, ops, LARGEST));
	after = tw_clock(CLOCK_MONOTONIC);
	ASSERT_EQ(0, tw_query(fd, ops[0].id, &first));
	ASSERT_EQ(0, tw_query(fd, ops[LARGEST - 1].id, &last));
	EXPECT_LE(before + TW_HOUR, first.expires_ns);
	EXPECT_LT(first.expires_ns, last.expires_ns);
	EXPECT_GE(after + TW_HOUR, last.expires_ns);
	free(ops);
	close(fd);
}

TEST_F(submit, an_array_without_an_arm_leaves_the_setup_open)
{
	int fd = tw_open(O_NONBLOCK);

	ASSERT_LE(0, fd);
	fill_arms(self->ops, 2);
	self->ops[0].opcode = TWHEEL_OP_NOP;
	self->ops[1].resv = 1;
	ASSERT_EQ(2, tw_submit(fd, self->ops, 2));
	EXPECT_EQ(0, tw_setup(fd, TWHEEL_CLOCK_MANUAL, 0, 0));
	close(fd);
	fd = tw_open(O_NONBLOCK);
	fill_arms(self->ops, 1);
	ASSERT_EQ(1, tw_submit(fd, self->ops, 1));
	EXPECT_EQ(-EBUSY, tw_setup(fd, TWHEEL_CLOCK_MANUAL, 0, 0));
	close(fd);
}

/* The capacity ends within an array. */
TEST(as_many_are_armed_as_there_is_room_for)
{
	static struct twheel_op ops[163];
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, 100), i;

	ASSERT_LE(0, fd);
	fill_arms(ops, 163);
	ASSERT_EQ(163, tw_submit(fd, ops, 163));
	for (i = 0; i < 100; i++)
		EXPECT_TRUE(has_armed(fd, &ops[i], i));
	for (; i < 163; i++) {
		ASSERT_EQ(-ENOSPC, ops[i].res);
		ASSERT_EQ(0, ops[i].id);
	}
	EXPECT_EQ(100, tw_armed(fd));
	close(fd);
}

TEST(a_cancel_within_an_array_makes_room_for_one)
{
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, 2);
	struct twheel_op ops[5];
	__u64 id;

	ASSERT_LE(0, fd);
	id = tw_arm(fd, TW_HOUR, 0);
	fill_arms(ops, 5);
	ops[2] = tw_entry_by_id(TWHEEL_OP_CANCEL, id);
	ASSERT_EQ(5, tw_submit(fd, ops, 5));
	EXPECT_EQ(0, ops[0].res);
	EXPECT_EQ(-ENOSPC, ops[1].res);
	EXPECT_EQ(0, ops[2].res);
	EXPECT_EQ(0, ops[3].res);
	EXPECT_EQ(-ENOSPC, ops[4].res);
	EXPECT_EQ(2, tw_armed(fd));
	close(fd);
}

/* Batches of all sizes */
FIXTURE(batch)
{
	int fd;
	struct twheel_op *ops;
};

FIXTURE_VARIANT(batch)
{
	__u32 nr;
};

FIXTURE_VARIANT_ADD(batch, of_1)
{
	.nr = 1,
};

FIXTURE_VARIANT_ADD(batch, of_63)
{
	.nr = CHUNK - 1,
};

FIXTURE_VARIANT_ADD(batch, of_64)
{
	.nr = CHUNK,
};

FIXTURE_VARIANT_ADD(batch, of_65)
{
	.nr = CHUNK + 1,
};

FIXTURE_VARIANT_ADD(batch, of_4096)
{
	.nr = 4096,
};

FIXTURE_VARIANT_ADD(batch, of_65536)
{
	.nr = LARGEST,
};

FIXTURE_SETUP(batch)
{
	self->fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, LARGEST);
	ASSERT_LE(0, self->fd);
	self->ops = malloc((variant->nr + 1) * sizeof(*self->ops));
	ASSERT_NE(NULL, self->ops);
	fill_arms(self->ops, variant->nr + 1);
}

FIXTURE_TEARDOWN(batch)
{
	free(self->ops);
	close(self->fd);
}

/* Turn the entries into those of another operation on the same timers. */
static void by_id(struct twheel_op *ops, __u32 nr, __u16 opcode)
{
	__u32 i;

	for (i = 0; i < nr; i++)
		ops[i] = tw_entry_by_id(opcode, ops[i].id);
}

/* An id that told of two timers could not tell the user_data of both. */
TEST_F(batch, every_id_names_the_timer_of_its_entry)
{
	__u32 i;

	ASSERT_EQ(variant->nr, tw_submit(self->fd, self->ops, variant->nr));
	ASSERT_TRUE(is_untouched(&self->ops[variant->nr], variant->nr));
	ASSERT_EQ(variant->nr, tw_armed(self->fd));
	by_id(self->ops, variant->nr, TWHEEL_OP_QUERY);
	ASSERT_EQ(variant->nr, tw_submit(self->fd, self->ops, variant->nr));
	for (i = 0; i < variant->nr; i++) {
		ASSERT_EQ(0, self->ops[i].res);
		ASSERT_EQ(i, self->ops[i].user_data);
		ASSERT_EQ(2 * TW_HOUR, self->ops[i].expires_ns);
		ASSERT_EQ(TWHEEL_F_ARMED, self->ops[i].flags);
	}
}

TEST_F(batch, what_one_arms_another_cancels_once)
{
	__u32 i;

	ASSERT_EQ(variant->nr, tw_submit(self->fd, self->ops, variant->nr));
	by_id(self->ops, variant->nr, TWHEEL_OP_CANCEL);
	ASSERT_EQ(variant->nr, tw_submit(self->fd, self->ops, variant->nr));
	for (i = 0; i < variant->nr; i++)
		ASSERT_EQ(0, self->ops[i].res);
	EXPECT_EQ(0, tw_armed(self->fd));
	ASSERT_EQ(variant->nr, tw_submit(self->fd, self->ops, variant->nr));
	for (i = 0; i < variant->nr; i++)
		ASSERT_EQ(-ENOENT, self->ops[i].res);
}

TEST_F(batch, what_one_arms_fires_once)
{
	struct twheel_event ev[100];
	__u32 next = 0;
	long ret, i;

	ASSERT_EQ(variant->nr, tw_submit(self->fd, self->ops, variant->nr));
	ASSERT_EQ(0, tw_advance(self->fd, 3 * TW_HOUR));
	ASSERT_EQ(variant->nr, tw_ready(self->fd));
	while ((ret = tw_read(self->fd, ev, 100)) > 0)
		for (i = 0; i < ret; i++, next++)
			ASSERT_EQ(self->ops[ev[i].user_data].id, ev[i].id);
	EXPECT_EQ(variant->nr, next);
}

TEST_F(batch, what_fires_while_the_wheel_is_full_makes_room)
{
	ASSERT_EQ(variant->nr, tw_submit(self->fd, self->ops, variant->nr));
	ASSERT_EQ(0, tw_advance(self->fd, 2 * TW_HOUR + TW_NSEC));
	ASSERT_EQ(variant->nr, tw_discard(self->fd));
	fill_arms(self->ops, variant->nr);
	ASSERT_EQ(variant->nr, tw_submit(self->fd, self->ops, variant->nr));
	EXPECT_EQ(variant->nr, tw_ready(self->fd));
}

static void on_alarm(int sig)
{
	(void)sig;
}

TEST(a_signal_ends_an_array_between_two_entries)
{
	struct itimerval often = { { 0, 1000 }, { 0, 1000 } }, never = { 0 };
	struct sigaction action = { .sa_handler = on_alarm };
	struct twheel_op *ops = malloc(LARGEST * sizeof(*ops));
	int fd, round;
	long ret, i;

	ASSERT_NE(NULL, ops);
	ASSERT_EQ(0, sigaction(SIGALRM, &action, NULL));
	ASSERT_EQ(0, setitimer(ITIMER_REAL, &often, NULL));
	for (round = 0; round < 20; round++) {
		do
			fd = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, LARGEST);
		while (fd == -EINTR);
		ASSERT_LE(0, fd);
		fill_arms(ops, LARGEST);
		ret = tw_submit(fd, ops, LARGEST);
		ASSERT_LT(0, ret);
		ASSERT_EQ(ret, tw_armed(fd));
		for (i = 0; i < ret; i++)
			ASSERT_EQ(0, ops[i].res);
		for (; i < LARGEST; i++)
			ASSERT_TRUE(is_untouched(&ops[i], i));
		close(fd);
	}
	setitimer(ITIMER_REAL, &never, NULL);
	free(ops);
}

/* The same operations one at a time on another wheel give the same. */
struct pair {
	int many;
	int one;
	__u64 seed;
	__u64 now;
	__u64 ids[512];
	struct twheel_op ops[BATCH_MAX];
	struct twheel_op expected[BATCH_MAX];
	struct twheel_event ev[2][64];
};

static __u64 some_time(struct pair *p)
{
	switch (tw_random_below(&p->seed, 8)) {
	case 0:
		return tw_random_below(&p->seed, p->now + 1);
	case 1:
		return TWHEEL_NEVER;
	case 2:
		return tw_random(&p->seed);
	default:
		return p->now + tw_random_below(&p->seed, 20 * TW_TICK_DEFAULT);
	}
}

static struct twheel_op some_op(struct pair *p)
{
	__u64 id = p->ids[tw_random_below(&p->seed, ARRAY_SIZE(p->ids))];
	__u16 opcode = tw_random_below(&p->seed, 10);
	struct twheel_op op;

	/* Arms twice as often, unknown ones at times */
	if (opcode > TWHEEL_OP_QUERY)
		opcode = opcode == 9 ? 0xbad : TWHEEL_OP_ARM +
			 (opcode - TWHEEL_OP_QUERY - 1) % 3;
	op = tw_entry_by_id(opcode, id);
	if (opcode != TWHEEL_OP_ARM && opcode != TWHEEL_OP_MODIFY)
		return op;
	op.expires_ns = some_time(p);
	op.user_data = tw_random(&p->seed);
	op.slack_ns = tw_random_below(&p->seed, 2) * some_time(p) / 4;
	op.interval_ns = 0;
	op.count = 0;
	op.misfire = tw_random_below(&p->seed, 4) ? 0 : tw_random_below(&p->seed, 4);
	op.flags = tw_random_below(&p->seed, 16) ? 0 : TWHEEL_F_REL;
	if (tw_random_below(&p->seed, 4) == 0) {
		op.interval_ns = tw_random_below(&p->seed, 4 * TW_TICK_DEFAULT);
		op.count = tw_random_below(&p->seed, 3);
	}
	return op;
}

/* What the entry is to be like when the array is done */
static void do_one(struct pair *p, struct twheel_op *op)
{
	__u16 opcode = op->opcode;
	long ret = opcode > TWHEEL_OP_QUERY ? -EINVAL : 0;

	if (opcode >= TWHEEL_OP_ARM && opcode <= TWHEEL_OP_QUERY) {
		static const unsigned long cmds[] = {
			TWHEEL_IOC_ARM, TWHEEL_IOC_CANCEL,
			TWHEEL_IOC_MODIFY, TWHEEL_IOC_QUERY,
		};

		ret = tw_ioctl(p->one, cmds[opcode - TWHEEL_OP_ARM], op);
	}
	op->opcode = opcode;
	op->res = ret;
}

static bool same_batch(struct pair *p)
{
	long nr = 1 + tw_random_below(&p->seed, BATCH_MAX), i;

	for (i = 0; i < nr; i++)
		p->ops[i] = some_op(p);
	memcpy(p->expected, p->ops, sizeof(p->ops));
	for (i = 0; i < nr; i++)
		do_one(p, &p->expected[i]);
	if (tw_submit(p->many, p->ops, nr) != nr)
		return false;
	for (i = 0; i < nr; i++)
		if (p->ops[i].opcode == TWHEEL_OP_ARM && p->ops[i].id)
			p->ids[tw_random_below(&p->seed, 512)] = p->ops[i].id;
	return !memcmp(p->expected, p->ops, nr * sizeof(*p->ops));
}

static bool same_records(struct pair *p)
{
	long nr, i;

	p->now += tw_random_below(&p->seed, 10 * TW_TICK_DEFAULT);
	if (tw_advance(p->many, p->now) || tw_advance(p->one, p->now))
		return false;
	nr = tw_random_below(&p->seed, 64) + 1;
	i = tw_read(p->many, p->ev[0], nr);
	if (i != tw_read(p->one, p->ev[1], nr))
		return false;
	return !memcmp(p->ev[0], p->ev[1], nr * sizeof(p->ev[0][0]));
}

static bool same_state(struct pair *p)
{
	struct twheel_info many, one;

	return !tw_info(p->many, &many) && !tw_info(p->one, &one) &&
	       !memcmp(&many, &one, sizeof(one)) &&
	       tw_next(p->many) == tw_next(p->one);
}

static int pair_rounds(__u32 capacity, __u64 seed)
{
	struct pair *p = calloc(1, sizeof(*p));
	int round;

	if (!p)
		return -1;
	p->many = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, capacity);
	p->one = tw_wheel(TWHEEL_CLOCK_MANUAL, 0, capacity);
	p->seed = seed;
	for (round = 0; round < ROUNDS; round++)
		if (!same_batch(p) || !same_records(p) || !same_state(p))
			break;
	close(p->many);
	close(p->one);
	free(p);
	return round;
}

TEST(arrays_do_what_single_calls_do)
{
	EXPECT_EQ(ROUNDS, pair_rounds(100000, 1));
	EXPECT_EQ(ROUNDS, pair_rounds(100000, 2));
}

TEST(arrays_do_what_single_calls_do_in_a_full_wheel)
{
	EXPECT_EQ(ROUNDS, pair_rounds(300, 3));
	EXPECT_EQ(ROUNDS, pair_rounds(65, 4));
}

/* Threads that submit to one wheel at the same time */
struct submitter {
	pthread_t thread;
	int fd;
	__u64 index;
	long error;
	struct twheel_op ops[BATCH_MAX];
};

static long check_results(struct submitter *s)
{
	int i;

	for (i = 0; i < BATCH_MAX; i++)
		if (s->ops[i].res || s->ops[i].user_data != (s->index << 32 | i))
			return -EPROTO;
	return 0;
}

static void *submit_all(void *arg)
{
	struct submitter *s = arg;
	int round, i;

	for (round = 0; round < ROUNDS && !s->error; round++) {
		for (i = 0; i < BATCH_MAX; i++)
			s->ops[i] = tw_entry(TW_HOUR, s->index << 32 | i);
		if (tw_submit(s->fd, s->ops, BATCH_MAX) != BATCH_MAX)
			s->error = -EPROTO;
		s->error = s->error ?: check_results(s);
		by_id(s->ops, BATCH_MAX, TWHEEL_OP_QUERY);
		if (tw_submit(s->fd, s->ops, BATCH_MAX) != BATCH_MAX)
			s->error = -EPROTO;
		s->error = s->error ?: check_results(s);
		by_id(s->ops, BATCH_MAX, TWHEEL_OP_CANCEL);
		for (i = 0; i < BATCH_MAX; i++)
			s->ops[i].user_data = s->index << 32 | i;
		if (tw_submit(s->fd, s->ops, BATCH_MAX) != BATCH_MAX)
			s->error = -EPROTO;
		s->error = s->error ?: check_results(s);
	}
	return NULL;
}

TEST(threads_that_submit_do_not_see_each_other)
{
	static struct submitter s[THREADS];
	int fd = tw_manual(0), i;

	ASSERT_LE(0, fd);
	for (i = 0; i < THREADS; i++) {
		s[i].fd = fd;
		s[i].index = i;
		ASSERT_EQ(0, pthread_create(&s[i].thread, NULL, submit_all, &s[i]));
	}
	for (i = 0; i < THREADS; i++) {
		ASSERT_EQ(0, pthread_join(s[i].thread, NULL));
		EXPECT_EQ(0, s[i].error);
	}
	EXPECT_EQ(0, tw_armed(fd));
	close(fd);
}

TEST_HARNESS_MAIN
