// SPDX-License-Identifier: GPL-2.0
/*
 * What a descriptor may do that is not open for writing, or not for reading.
 */
#include "twheel_test.h"

FIXTURE(access)
{
	int fd;
	struct twheel_info before;
};

FIXTURE_VARIANT(access)
{
	int mode;
};

FIXTURE_VARIANT_ADD(access, read_only)
{
	.mode = O_RDONLY,
};

FIXTURE_VARIANT_ADD(access, write_only)
{
	.mode = O_WRONLY,
};

FIXTURE_VARIANT_ADD(access, read_and_write)
{
	.mode = O_RDWR,
};

FIXTURE_SETUP(access)
{
	self->fd = open(TW_DEVICE, variant->mode | O_NONBLOCK | O_CLOEXEC);
	ASSERT_LE(0, self->fd);
	ASSERT_EQ(0, tw_info(self->fd, &self->before));
}

FIXTURE_TEARDOWN(access)
{
	close(self->fd);
}

/* What changes something */
static const unsigned long writing_cmds[] = {
	TWHEEL_IOC_SETUP, TWHEEL_IOC_ARM, TWHEEL_IOC_CANCEL, TWHEEL_IOC_MODIFY,
	TWHEEL_IOC_SUBMIT, TWHEEL_IOC_DRAIN, TWHEEL_IOC_ADVANCE,
};

TEST_F(access, what_changes_something_looks_first_whether_it_may)
{
	long refused = variant->mode == O_RDONLY ? -EBADF : -EFAULT;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(writing_cmds); i++)
		EXPECT_EQ(refused, tw_ioctl(self->fd, writing_cmds[i], NULL));
}

TEST_F(access, what_changes_something_wants_to_be_open_for_writing)
{
	long refused = variant->mode == O_RDONLY ? -EBADF : 0;
	struct twheel_op op = tw_entry(TWHEEL_NEVER, 0);
	__u64 id;

	EXPECT_EQ(refused, tw_setup(self->fd, TWHEEL_CLOCK_MANUAL, 0, 0));
	EXPECT_EQ(refused, tw_arm_id(self->fd, TW_HOUR, 0, &id));
	EXPECT_EQ(refused, tw_modify(self->fd, id, 2 * TW_HOUR));
	EXPECT_EQ(refused, tw_cancel(self->fd, id));
	EXPECT_EQ(refused ?: 1, tw_submit(self->fd, &op, 1));
	EXPECT_EQ(refused ?: 1, tw_drain(self->fd, &op, 1));
	EXPECT_EQ(refused, tw_advance(self->fd, TW_HOUR));
}

TEST_F(access, what_was_refused_has_changed_nothing)
{
	struct twheel_op op = tw_entry(TW_HOUR, 0), was = op;
	struct twheel_info now;

	if (variant->mode != O_RDONLY)
		return;
	EXPECT_EQ(-EBADF, tw_arm_op(self->fd, &op));
	EXPECT_EQ(0, memcmp(&was, &op, sizeof(op)));
	EXPECT_EQ(-EBADF, tw_submit(self->fd, &op, 1));
	EXPECT_EQ(0, memcmp(&was, &op, sizeof(op)));
	ASSERT_EQ(0, tw_info(self->fd, &now));
	now.now_ns = self->before.now_ns;
	EXPECT_EQ(0, memcmp(&now, &self->before, sizeof(now)));
}

TEST_F(access, whoever_has_it_open_may_ask)
{
	struct twheel_stats stats;
	struct twheel_op op;
	__u64 cursor = 0;

	EXPECT_EQ(0, tw_stats(self->fd, &stats));
	EXPECT_EQ(TWHEEL_NEVER, tw_next(self->fd));
	EXPECT_EQ(-ENOENT, tw_query(self->fd, 1, &op));
	EXPECT_EQ(0, tw_list(self->fd, &op, 1, &cursor));
	EXPECT_EQ(0, tw_poll(self->fd));
	EXPECT_EQ(0, tw_counter(self->fd, "armed"));
}

TEST_F(access, an_unknown_ioctl_number_is_enotty_all_the_same)
{
	EXPECT_EQ(-ENOTTY, tw_ioctl(self->fd, _IO(TWHEEL_IOC_TYPE, 0x7f), NULL));
}

TEST_F(access, reading_wants_to_be_open_for_reading)
{
	struct twheel_event ev;

	EXPECT_EQ(variant->mode == O_WRONLY ? -EBADF : -EAGAIN,
		  tw_read(self->fd, &ev, 1));
}

TEST_HARNESS_MAIN
