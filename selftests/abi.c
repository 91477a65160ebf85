// SPDX-License-Identifier: GPL-2.0
/*
 * The ABI of /dev/twheel: layouts, numbers, and one meaning for each errno. A
 * call that fails changes nothing.
 */
#include "twheel_test.h"
#include "../module/abi_layout.h"

#define FLAGS_KNOWN	(TWHEEL_F_REL | TWHEEL_F_ARMED | TWHEEL_F_READY)

static const unsigned long op_cmds[] = {
	TWHEEL_IOC_ARM, TWHEEL_IOC_CANCEL, TWHEEL_IOC_MODIFY, TWHEEL_IOC_QUERY,
};

/* One armed timer at one hour and one ready: what a failed call must not touch */
FIXTURE(abi)
{
	int fd;
	__u64 armed_id;
	__u64 ready_id;
	struct twheel_info before;
	char *cliff;
};

FIXTURE_SETUP(abi)
{
	self->fd = tw_manual(TW_TICK_DEFAULT);
	ASSERT_LE(0, self->fd);
	self->ready_id = tw_arm(self->fd, 1, 1);
	ASSERT_NE(0, self->ready_id);
	ASSERT_EQ(0, tw_advance(self->fd, TW_NSEC));
	self->armed_id = tw_arm(self->fd, TW_HOUR, 2);
	ASSERT_NE(0, self->armed_id);
	ASSERT_EQ(0, tw_info(self->fd, &self->before));
	self->cliff = tw_cliff();
	ASSERT_NE(NULL, self->cliff);
}

FIXTURE_TEARDOWN(abi)
{
	close(self->fd);
}

/* Nothing happened since the fixture was set up. */
static bool unchanged(const FIXTURE_DATA(abi) *self)
{
	struct twheel_info now;
	struct twheel_op op;

	if (tw_info(self->fd, &now) ||
	    memcmp(&now, &self->before, sizeof(now)))
		return false;
	if (tw_query(self->fd, self->armed_id, &op) ||
	    op.flags != TWHEEL_F_ARMED || op.expires_ns != TW_HOUR ||
	    op.user_data != 2)
		return false;
	return tw_state(self->fd, self->ready_id) == TWHEEL_F_READY &&
	       tw_next(self->fd) == tw_boundary(TW_HOUR, TW_TICK_DEFAULT);
}

/* An operation that @cmd accepts */
static struct twheel_op good_op(const FIXTURE_DATA(abi) *self,
				unsigned long cmd)
{
	struct twheel_op op = tw_op(2 * TW_HOUR, 3);

	if (cmd != TWHEEL_IOC_ARM)
		op.id = self->armed_id;
	return op;
}

/* As QUERY tells, or poison */
static __u64 tw_expiry(int fd, __u64 id)
{
	struct twheel_op op;

	return tw_query(fd, id, &op) ? TW_POISON64 : op.expires_ns;
}

TEST_F(abi, info_tells_the_clock_and_tick_asked_for)
{
	ASSERT_EQ(TWHEEL_CLOCK_MANUAL, self->before.clockid);
	EXPECT_EQ(TW_TICK_DEFAULT, self->before.tick_ns);
	EXPECT_EQ(TW_NSEC, self->before.now_ns);
}

TEST_F(abi, info_tells_the_sizes_of_the_structs)
{
	EXPECT_EQ(sizeof(struct twheel_info), self->before.size);
	EXPECT_EQ(64, self->before.op_size);
	EXPECT_EQ(40, self->before.event_size);
	EXPECT_EQ(sizeof(struct twheel_setup), self->before.setup_size);
	EXPECT_EQ(sizeof(struct twheel_stats), self->before.stats_size);
}

TEST_F(abi, info_tells_the_limits_of_the_tick)
{
	EXPECT_EQ(TW_TICK_MIN, self->before.tick_ns_min);
	EXPECT_EQ(TW_TICK_MAX, self->before.tick_ns_max);
}

TEST_F(abi, info_counts_the_armed_and_the_ready_apart)
{
	EXPECT_EQ(1, self->before.armed);
	EXPECT_EQ(1, self->before.ready);
}

TEST_F(abi, info_grants_a_capacity_within_the_largest)
{
	EXPECT_LT(0, self->before.capacity);
	EXPECT_LE(self->before.capacity, self->before.capacity_max);
}

/* INFO into @buf, which begins with @size and is poison otherwise */
static long info_into(int fd, unsigned char *buf, __u32 size, size_t room)
{
	memset(buf, TW_POISON, room);
	memcpy(buf, &size, sizeof(size));
	return tw_ioctl(fd, TWHEEL_IOC_INFO, buf);
}

TEST_F(abi, info_writes_no_more_bytes_than_the_caller_has)
{
	unsigned char buf[sizeof(struct twheel_info)];
	__u32 size;

	for (size = 8; size < sizeof(buf); size++) {
		ASSERT_EQ(0, info_into(self->fd, buf, size, sizeof(buf)));
		ASSERT_TRUE(tw_poisoned(buf + size, sizeof(buf) - size));
		ASSERT_EQ(0, memcmp(buf + 4, (char *)&self->before + 4, size - 4));
	}
}

TEST_F(abi, info_fills_with_zeroes_what_it_does_not_know)
{
	unsigned char buf[2 * sizeof(struct twheel_info) + 8];
	size_t known = sizeof(struct twheel_info);
	static const unsigned char zeroes[sizeof(struct twheel_info)];
	__u32 size;

	for (size = known; size <= 2 * known; size++) {
		ASSERT_EQ(0, info_into(self->fd, buf, size, sizeof(buf)));
		ASSERT_EQ(0, memcmp(buf, &self->before, known));
		ASSERT_EQ(0, memcmp(buf + known, zeroes, size - known));
		ASSERT_TRUE(tw_poisoned(buf + size, sizeof(buf) - size));
	}
}

/* Or a second call would write beyond the struct of who has an older header. */
TEST_F(abi, info_tells_no_larger_size_than_it_was_told)
{
	unsigned char buf[2 * sizeof(struct twheel_info)];
	__u32 size, told;

	for (size = 8; size <= sizeof(buf); size++) {
		ASSERT_EQ(0, info_into(self->fd, buf, size, sizeof(buf)));
		memcpy(&told, buf, sizeof(told));
		ASSERT_EQ(size < sizeof(struct twheel_info) ?
			  size : sizeof(struct twheel_info), told);
	}
}

TEST_F(abi, info_of_a_size_too_small_is_einval)
{
	struct twheel_info info;
	__u32 size;

	for (size = 0; size < 8; size++) {
		EXPECT_EQ(-EINVAL, info_into(self->fd, (void *)&info, size, sizeof(info)));
		EXPECT_EQ(TW_POISON64, info.features);
	}
}

TEST_F(abi, info_and_stats_of_more_than_a_page_are_e2big)
{
	static const unsigned long cmds[] = { TWHEEL_IOC_INFO, TWHEEL_IOC_STATS };
	__u32 page = sysconf(_SC_PAGESIZE);
	const __u32 sizes[] = { page + 1, 16 * page, 0x7fffffff, 0x80000000, 0xffffffff };
	unsigned char *buf = malloc(16 * page);
	__u32 head[2] = { 0, 0 };
	size_t i, c;

	ASSERT_NE(NULL, buf);
	for (c = 0; c < ARRAY_SIZE(cmds); c++) {
		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			memset(buf, TW_POISON, 16 * page);
			head[0] = sizes[i];
			memcpy(buf, head, sizeof(head));
			EXPECT_EQ(-E2BIG, tw_ioctl(self->fd, cmds[c], buf));
			EXPECT_TRUE(tw_poisoned(buf + 8, 16 * page - 8));
		}
		head[0] = page;
		memcpy(buf, head, sizeof(head));
		EXPECT_EQ(0, tw_ioctl(self->fd, cmds[c], buf));
		EXPECT_FALSE(tw_poisoned(buf + page - 1, 1));
		EXPECT_TRUE(tw_poisoned(buf + page, 15 * page));
	}
	free(buf);
}

/* All that the kernel knows is there, and not all that it is to fill with zeroes. */
TEST_F(abi, a_tail_that_cannot_be_filled_is_efault)
{
	const __u32 heads[][2] = {
		{ 2 * sizeof(struct twheel_info), 0 },
		{ 2 * sizeof(struct twheel_stats), 0 },
	};
	static const unsigned long cmds[] = { TWHEEL_IOC_INFO, TWHEEL_IOC_STATS };
	size_t i, have;

	for (i = 0; i < ARRAY_SIZE(cmds); i++) {
		for (have = heads[i][0] / 2; have < heads[i][0]; have++) {
			memcpy(self->cliff - have, heads[i], sizeof(heads[i]));
			ASSERT_EQ(-EFAULT, tw_ioctl(self->fd, cmds[i],
						    self->cliff - have));
		}
	}
	EXPECT_TRUE(unchanged(self));
}

/* Every ioctl number of every size and direction but those in the header */
static bool number_is_known(__u32 cmd)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(op_cmds); i++)
		if (cmd == op_cmds[i])
			return true;
	return cmd >= TWHEEL_IOC_INFO && cmd <= TWHEEL_IOC_ADVANCE &&
	       _IOC_NR(cmd) != 2 && _IOC_NR(cmd) != 3 && _IOC_NR(cmd) != 4 &&
	       _IOC_NR(cmd) != 5;
}

TEST_F(abi, an_unknown_ioctl_number_is_enotty)
{
	static const __u32 sizes[] = { 0, 8, 40, 63, 64, 65, 16383 };
	char arg[16384] = "";
	__u32 nr, dir, i, cmd;

	for (nr = 0; nr < 256; nr++) {
		for (dir = 0; dir < 4; dir++) {
			for (i = 0; i < ARRAY_SIZE(sizes); i++) {
				cmd = _IOC(dir, TWHEEL_IOC_TYPE, nr, sizes[i]);
				if (number_is_known(cmd))
					continue;
				ASSERT_EQ(-ENOTTY, tw_ioctl(self->fd, cmd, arg)) {
					TH_LOG("cmd %#x", cmd);
				}
			}
		}
	}
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, an_ioctl_of_another_type_is_enotty)
{
	struct twheel_op op = good_op(self, TWHEEL_IOC_ARM);

	EXPECT_EQ(-ENOTTY, tw_ioctl(self->fd, TWHEEL_IOC_ARM ^ 0x100, &op));
	EXPECT_EQ(-ENOTTY, tw_ioctl(self->fd, TWHEEL_IOC_INFO ^ 0x100, &op));
}

/* P25: no memory is shared, so none can be changed behind the module's back. */
TEST_F(abi, it_cannot_be_mapped)
{
	static const int prots[] = { PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE };
	size_t page = sysconf(_SC_PAGESIZE), i;

	for (i = 0; i < ARRAY_SIZE(prots); i++) {
		EXPECT_EQ(MAP_FAILED, mmap(NULL, page, prots[i], MAP_SHARED,
					   self->fd, 0));
		EXPECT_EQ(ENODEV, errno);
		EXPECT_EQ(MAP_FAILED, mmap(NULL, page, prots[i], MAP_PRIVATE,
					   self->fd, 0));
		EXPECT_EQ(ENODEV, errno);
	}
}

TEST_F(abi, info_offers_every_feature_of_the_header_and_no_other)
{
	static const __u64 all = TWHEEL_FEAT_SUBMIT | TWHEEL_FEAT_DRAIN |
		TWHEEL_FEAT_LIST | TWHEEL_FEAT_STATS | TWHEEL_FEAT_SLACK |
		TWHEEL_FEAT_BURST | TWHEEL_FEAT_SKIP |
		TWHEEL_FEAT_CLOCK_SET | TWHEEL_FEAT_MODERATION | TWHEEL_FEAT_COMMAND;

	EXPECT_EQ(all, self->before.features);
}

TEST_F(abi, an_unknown_flag_of_an_operation_is_einval)
{
	size_t i;
	int bit;

	for (i = 0; i < ARRAY_SIZE(op_cmds); i++) {
		for (bit = 0; bit < 16; bit++) {
			struct twheel_op op = good_op(self, op_cmds[i]);

			op.flags = 1 << bit;
			if (op.flags & FLAGS_KNOWN)
				continue;
			EXPECT_EQ(-EINVAL, tw_ioctl(self->fd, op_cmds[i], &op));
		}
	}
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, nonzero_padding_of_an_operation_is_einval)
{
	size_t i, byte;

	for (i = 0; i < ARRAY_SIZE(op_cmds); i++) {
		for (byte = 53; byte < 64; byte++) {
			struct twheel_op op = good_op(self, op_cmds[i]);

			((unsigned char *)&op)[byte] = 0x80;
			EXPECT_EQ(-EINVAL, tw_ioctl(self->fd, op_cmds[i], &op));
		}
	}
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, an_unknown_opcode_of_a_single_call_is_einval)
{
	size_t i;
	__u32 opcode;

	for (i = 0; i < ARRAY_SIZE(op_cmds); i++) {
		for (opcode = TWHEEL_OP_QUERY + 1; opcode < 0x10000; opcode++) {
			struct twheel_op op = good_op(self, op_cmds[i]);

			op.opcode = opcode;
			ASSERT_EQ(-EINVAL, tw_ioctl(self->fd, op_cmds[i], &op));
		}
	}
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, a_single_call_does_what_its_number_says)
{
	struct twheel_info info;
	struct twheel_op op;
	int opcode;

	for (opcode = 0; opcode <= TWHEEL_OP_QUERY; opcode++) {
		op = good_op(self, TWHEEL_IOC_ARM);
		op.opcode = opcode;
		ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_ARM, &op));
		EXPECT_EQ(opcode, op.opcode);
		op.expires_ns = 3 * TW_HOUR;
		ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_MODIFY, &op));
		op.expires_ns = 0;
		ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_QUERY, &op));
		EXPECT_EQ(opcode, op.opcode);
		EXPECT_EQ(3 * TW_HOUR, op.expires_ns);
		ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_CANCEL, &op));
		EXPECT_EQ(-ENOENT, tw_state(self->fd, op.id));
	}
	ASSERT_EQ(0, tw_info(self->fd, &info));
	EXPECT_EQ(0, memcmp(&info, &self->before, sizeof(info)));
}

TEST_F(abi, flags_that_are_out_are_not_looked_at)
{
	static const __u16 out = TWHEEL_F_ARMED | TWHEEL_F_READY;
	struct twheel_op op = good_op(self, TWHEEL_IOC_ARM);

	op.flags = out;
	ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	EXPECT_EQ(2 * TW_HOUR, tw_expiry(self->fd, op.id));
	op.expires_ns = 3 * TW_HOUR;
	ASSERT_EQ(0, tw_modify_op(self->fd, &op));
	EXPECT_EQ(3 * TW_HOUR, tw_expiry(self->fd, op.id));
	ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_QUERY, &op));
	EXPECT_EQ(TWHEEL_F_ARMED, op.flags);
	op.flags = out;
	ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_CANCEL, &op));
	EXPECT_EQ(out, op.flags);
}

TEST_F(abi, a_relative_time_means_nothing_where_nothing_is_armed)
{
	struct twheel_op op = good_op(self, TWHEEL_IOC_QUERY);

	op.flags = TWHEEL_F_REL;
	ASSERT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_QUERY, &op));
	EXPECT_EQ(TWHEEL_F_ARMED, op.flags);
	EXPECT_EQ(TW_HOUR, op.expires_ns);
	op.flags = TWHEEL_F_REL;
	op.expires_ns = TW_POISON64;
	EXPECT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_CANCEL, &op));
}

/* @op is as a call has filled it in, @id is an armed timer: all calls take it. */
static bool can_be_handed_on(int fd, struct twheel_op op, __u64 id)
{
	op.id = id;
	if (tw_ioctl(fd, TWHEEL_IOC_QUERY, &op) ||
	    tw_ioctl(fd, TWHEEL_IOC_MODIFY, &op) < 0 ||
	    tw_ioctl(fd, TWHEEL_IOC_ARM, &op) || op.id == id)
		return false;
	return tw_ioctl(fd, TWHEEL_IOC_CANCEL, &op) >= 0;
}

TEST_F(abi, what_query_has_filled_in_can_be_handed_to_any_call)
{
	struct twheel_op op;

	ASSERT_EQ(0, tw_query(self->fd, self->ready_id, &op));
	EXPECT_TRUE(can_be_handed_on(self->fd, op, self->armed_id));
	ASSERT_EQ(0, tw_query(self->fd, self->armed_id, &op));
	EXPECT_TRUE(can_be_handed_on(self->fd, op, self->armed_id));
}

TEST_F(abi, what_list_has_filled_in_can_be_handed_to_any_call)
{
	struct twheel_op op;
	__u64 cursor = 0;

	ASSERT_EQ(1, tw_list(self->fd, &op, 1, &cursor));
	EXPECT_TRUE(can_be_handed_on(self->fd, op, self->armed_id));
	ASSERT_EQ(1, tw_submit(self->fd, &op, 1));
	EXPECT_EQ(0, op.res);
}

TEST_F(abi, what_drain_has_filled_in_can_be_handed_to_any_call)
{
	struct twheel_op op;
	__u64 id;

	ASSERT_EQ(1, tw_drain(self->fd, &op, 1));
	id = tw_arm(self->fd, TW_HOUR, 0);
	ASSERT_NE(0, id);
	EXPECT_TRUE(can_be_handed_on(self->fd, op, id));
}

TEST_F(abi, an_id_in_arm_is_not_looked_at)
{
	struct twheel_op op = good_op(self, TWHEEL_IOC_ARM);

	op.id = self->armed_id;
	ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	EXPECT_NE(self->armed_id, op.id);
}

TEST_F(abi, a_failed_arm_leaves_no_id_behind)
{
	struct twheel_op op = good_op(self, TWHEEL_IOC_ARM);

	op.id = TW_POISON64;
	op.pad[0] = 1;
	EXPECT_EQ(-EINVAL, tw_arm_op(self->fd, &op));
	EXPECT_EQ(0, op.id);
}

TEST_F(abi, arm_writes_the_id_and_nothing_else)
{
	struct twheel_op op = good_op(self, TWHEEL_IOC_ARM), was;

	op.interval_ns = 5;
	op.count = 6;
	was = op;
	ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	EXPECT_NE(0, op.id);
	was.id = op.id;
	EXPECT_EQ(0, memcmp(&was, &op, sizeof(op)));
}

TEST_F(abi, an_id_is_a_generation_and_an_index)
{
	EXPECT_NE(0, self->armed_id >> 32);
	EXPECT_NE(0, self->ready_id >> 32);
	EXPECT_NE((__u32)self->armed_id, (__u32)self->ready_id);
}

TEST_F(abi, a_time_above_s64_max_is_einval)
{
	static const __u64 bad[] = {
		TW_S64_MAX + 1, TW_S64_MAX + 2, TWHEEL_NEVER - 1,
		(__u64)-1000000000,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		EXPECT_EQ(0, tw_arm(self->fd, bad[i], 0));
		EXPECT_EQ(-EINVAL, tw_modify(self->fd, self->armed_id, bad[i]));
		EXPECT_EQ(-EINVAL, tw_advance(self->fd, bad[i]));
	}
	EXPECT_EQ(-EINVAL, tw_advance(self->fd, TWHEEL_NEVER));
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, a_relative_time_above_s64_max_is_einval)
{
	struct twheel_op op = good_op(self, TWHEEL_IOC_ARM);

	op.flags = TWHEEL_F_REL;
	op.expires_ns = TW_S64_MAX + 1;
	EXPECT_EQ(-EINVAL, tw_arm_op(self->fd, &op));
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, an_interval_or_slack_above_s64_max_is_einval)
{
	static const __u64 bad[] = { TW_S64_MAX + 1, TWHEEL_NEVER };
	static const unsigned long cmds[] = {
		TWHEEL_IOC_ARM, TWHEEL_IOC_MODIFY,
	};
	size_t i, c;

	for (c = 0; c < ARRAY_SIZE(cmds); c++) {
		for (i = 0; i < ARRAY_SIZE(bad); i++) {
			struct twheel_op op = good_op(self, cmds[c]);

			op.interval_ns = bad[i];
			EXPECT_EQ(-EINVAL, tw_ioctl(self->fd, cmds[c], &op));
			op = good_op(self, cmds[c]);
			op.slack_ns = bad[i];
			EXPECT_EQ(-EINVAL, tw_ioctl(self->fd, cmds[c], &op));
		}
	}
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, a_count_without_an_interval_is_einval)
{
	struct twheel_op op = good_op(self, TWHEEL_IOC_ARM);

	op.count = 1;
	EXPECT_EQ(-EINVAL, tw_arm_op(self->fd, &op));
	op = good_op(self, TWHEEL_IOC_MODIFY);
	op.count = 1;
	EXPECT_EQ(-EINVAL, tw_modify_op(self->fd, &op));
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, an_unknown_misfire_is_einval)
{
	unsigned int misfire;

	for (misfire = 3; misfire < 256; misfire++) {
		struct twheel_op op = good_op(self, TWHEEL_IOC_ARM);

		op.interval_ns = TW_HOUR;
		op.misfire = misfire;
		EXPECT_EQ(-EINVAL, tw_arm_op(self->fd, &op));
		op.id = self->armed_id;
		EXPECT_EQ(-EINVAL, tw_modify_op(self->fd, &op));
	}
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, every_misfire_of_the_header_is_taken)
{
	struct twheel_op seen;
	unsigned int misfire;

	for (misfire = 0; misfire < 3; misfire++) {
		struct twheel_op op = good_op(self, TWHEEL_IOC_ARM);

		op.interval_ns = TW_HOUR;
		op.misfire = misfire;
		ASSERT_EQ(0, tw_arm_op(self->fd, &op));
		ASSERT_EQ(0, tw_modify_op(self->fd, &op));
		ASSERT_EQ(0, tw_query(self->fd, op.id, &seen));
		EXPECT_EQ(misfire, seen.misfire);
	}
}

TEST_F(abi, an_id_that_names_no_timer_is_enoent)
{
	const __u64 bad[] = {
		0, 1, 1ULL << 32, TWHEEL_NEVER, self->armed_id >> 32,
		(__u32)self->armed_id, self->armed_id + (1ULL << 32),
		self->armed_id - (1ULL << 32), self->armed_id ^ (1ULL << 63),
		self->armed_id | 0xffffffff, self->armed_id + 1000000,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		if (bad[i] == self->armed_id || bad[i] == self->ready_id)
			continue;
		EXPECT_EQ(-ENOENT, tw_cancel(self->fd, bad[i]));
		EXPECT_EQ(-ENOENT, tw_modify(self->fd, bad[i], TW_HOUR));
		EXPECT_EQ(-ENOENT, tw_state(self->fd, bad[i]));
	}
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, query_tells_all_that_was_armed)
{
	struct twheel_op op = good_op(self, TWHEEL_IOC_ARM), seen;

	op.interval_ns = 12345;
	op.count = 7;
	ASSERT_EQ(0, tw_arm_op(self->fd, &op));
	ASSERT_EQ(0, tw_query(self->fd, op.id, &seen));
	EXPECT_EQ(TWHEEL_F_ARMED, seen.flags);
	EXPECT_EQ(op.id, seen.id);
	EXPECT_EQ(op.user_data, seen.user_data);
	EXPECT_EQ(op.expires_ns, seen.expires_ns);
	EXPECT_EQ(op.interval_ns, seen.interval_ns);
	EXPECT_EQ(0, seen.slack_ns);
	EXPECT_EQ(op.count, seen.count);
	EXPECT_EQ(TWHEEL_MISFIRE_COUNT, seen.misfire);
	EXPECT_EQ(0, seen.pad[0] | seen.pad[1] | seen.pad[2]);
	EXPECT_EQ(0, seen.resv);
}

TEST_F(abi, query_of_a_ready_timer_tells_the_expiry_of_its_record)
{
	struct twheel_op op;

	ASSERT_EQ(0, tw_query(self->fd, self->ready_id, &op));
	EXPECT_EQ(TWHEEL_F_READY, op.flags);
	EXPECT_EQ(1, op.expires_ns);
	EXPECT_EQ(1, op.user_data);
}

TEST_F(abi, query_changes_nothing)
{
	struct twheel_op op;

	ASSERT_EQ(0, tw_query(self->fd, self->armed_id, &op));
	ASSERT_EQ(0, tw_query(self->fd, self->ready_id, &op));
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, cancel_and_modify_take_no_notice_of_what_they_do_not_name)
{
	/* tw_op_by_id() poisons all of it */
	EXPECT_EQ(0, tw_cancel(self->fd, self->armed_id));
	EXPECT_EQ(1, tw_cancel(self->fd, self->ready_id));
}

TEST_F(abi, modify_keeps_the_user_data)
{
	struct twheel_op op;

	ASSERT_EQ(0, tw_modify(self->fd, self->armed_id, 2 * TW_HOUR));
	ASSERT_EQ(0, tw_query(self->fd, self->armed_id, &op));
	EXPECT_EQ(2, op.user_data);
	EXPECT_EQ(2 * TW_HOUR, op.expires_ns);
}

/* Pointers: @at is where the struct begins, before the end of the memory */
static bool all_efault(const FIXTURE_DATA(abi) *self, void *at)
{
	static const unsigned long cmds[] = {
		TWHEEL_IOC_INFO, TWHEEL_IOC_SETUP, TWHEEL_IOC_ARM,
		TWHEEL_IOC_CANCEL, TWHEEL_IOC_MODIFY, TWHEEL_IOC_QUERY,
		TWHEEL_IOC_NEXT, TWHEEL_IOC_ADVANCE, TWHEEL_IOC_SUBMIT,
		TWHEEL_IOC_DRAIN, TWHEEL_IOC_LIST, TWHEEL_IOC_STATS,
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cmds); i++)
		if (tw_ioctl(self->fd, cmds[i], at) != -EFAULT)
			return false;
	return unchanged(self);
}

TEST_F(abi, a_null_pointer_is_efault)
{
	EXPECT_TRUE(all_efault(self, NULL));
}

TEST_F(abi, an_unmapped_pointer_is_efault)
{
	EXPECT_TRUE(all_efault(self, self->cliff));
}

TEST_F(abi, a_pointer_into_the_kernel_is_efault)
{
	EXPECT_TRUE(all_efault(self, (void *)-4096L));
}

TEST_F(abi, a_half_mapped_operation_is_efault)
{
	size_t i, have;

	for (i = 0; i < ARRAY_SIZE(op_cmds); i++) {
		struct twheel_op op = good_op(self, op_cmds[i]);

		for (have = 1; have < sizeof(op); have++) {
			memcpy(self->cliff - have, &op, have);
			EXPECT_EQ(-EFAULT, tw_ioctl(self->fd, op_cmds[i],
						    self->cliff - have));
		}
	}
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, a_half_mapped_struct_with_a_size_is_efault)
{
	struct twheel_advance advance = { sizeof(advance), 0, TW_HOUR };
	struct twheel_next next = { sizeof(next), 0, 0 };
	struct twheel_info info = { .size = sizeof(info) };
	size_t have;

	for (have = 1; have < sizeof(advance); have++) {
		memcpy(self->cliff - have, &advance, have);
		EXPECT_EQ(-EFAULT, tw_ioctl(self->fd, TWHEEL_IOC_ADVANCE,
					    self->cliff - have));
		memcpy(self->cliff - have, &next, have);
		EXPECT_EQ(-EFAULT, tw_ioctl(self->fd, TWHEEL_IOC_NEXT,
					    self->cliff - have));
	}
	for (have = 1; have < sizeof(info); have++) {
		memcpy(self->cliff - have, &info, have);
		EXPECT_EQ(-EFAULT, tw_ioctl(self->fd, TWHEEL_IOC_INFO,
					    self->cliff - have));
	}
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, arm_into_memory_that_cannot_be_written_arms_nothing)
{
	long page = sysconf(_SC_PAGESIZE);
	struct twheel_op op = good_op(self, TWHEEL_IOC_ARM);
	void *at = self->cliff - sizeof(op);

	memcpy(at, &op, sizeof(op));
	ASSERT_EQ(0, mprotect(self->cliff - page, page, PROT_READ));
	EXPECT_EQ(-EFAULT, tw_arm_op(self->fd, at));
	EXPECT_TRUE(unchanged(self));
}

TEST_F(abi, the_last_bytes_of_a_page_do_for_an_operation)
{
	struct twheel_op op = good_op(self, TWHEEL_IOC_ARM);
	struct twheel_op *at = (void *)(self->cliff - sizeof(op));

	*at = op;
	EXPECT_EQ(0, tw_arm_op(self->fd, at));
	EXPECT_NE(0, at->id);
}

TEST_F(abi, an_operation_need_not_be_aligned)
{
	struct twheel_op op = good_op(self, TWHEEL_IOC_ARM);
	char buf[sizeof(op) + 1];

	memcpy(buf + 1, &op, sizeof(op));
	EXPECT_EQ(0, tw_ioctl(self->fd, TWHEEL_IOC_ARM, buf + 1));
}

TEST_HARNESS_MAIN
