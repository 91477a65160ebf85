// SPDX-License-Identifier: GPL-2.0
/*
 * uring.c - io_uring: reads, multishot polls, multishot reads and commands
 *
 * Built where liburing is. Skipped where the kernel has io_uring switched off; what only
 * newer kernels have is skipped on older ones. Each test is done with a ring that one
 * enters, and with one whose thread in the kernel looks for submissions.
 */
#include "twheel_test.h"

#include <liburing.h>

#define ENTRIES		8
#define BUFFERS		4	/* of one record each */
#define GROUP		7

/* As in the kernel since 6.7; the headers of liburing may be older. */
#define OP_READ_MULTISHOT	49

FIXTURE(uring)
{
	int fd;
	bool ring_made;
	struct io_uring ring;
	struct twheel_event ev[BUFFERS];
	struct io_uring_buf_ring *group;
};

FIXTURE_VARIANT(uring)
{
	unsigned int flags;
};

FIXTURE_VARIANT_ADD(uring, entered)
{
	.flags = 0,
};

FIXTURE_VARIANT_ADD(uring, polled)
{
	.flags = IORING_SETUP_SQPOLL,
};

FIXTURE_SETUP(uring)
{
	struct io_uring_params params = {
		.flags = variant->flags,
		.sq_thread_idle = 100,
	};

	self->group = NULL;
	self->fd = tw_manual(TW_TICK_MIN);
	ASSERT_LE(0, self->fd);
	self->ring_made = !io_uring_queue_init_params(ENTRIES, &self->ring, &params);
	if (!self->ring_made)
		SKIP(return, "no io_uring");
}

FIXTURE_TEARDOWN(uring)
{
	if (self->ring_made)
		io_uring_queue_exit(&self->ring);
	free(self->group);
	close(self->fd);
}

static bool fire(int fd)
{
	__u64 due = tw_now(fd) + TW_TICK_MIN;

	return tw_arm(fd, due, 0) && !tw_advance(fd, due);
}

/*
 * All @nr that are prepared. Where a thread of the kernel takes them, those before are in the
 * count for as long as it has not said that it has them, though they may have completed.
 */
static bool submit(struct io_uring *ring, int nr)
{
	return io_uring_submit(ring) >= nr;
}

/* The result of the next completion, or -ETIME. */
static int completion(struct io_uring *ring, unsigned int *flags)
{
	struct __kernel_timespec patience = { .tv_sec = TW_PATIENCE_MS / 1000 };
	struct io_uring_cqe *cqe;
	int ret = io_uring_wait_cqe_timeout(ring, &cqe, &patience);

	if (ret)
		return ret;
	ret = cqe->res;
	*flags = cqe->flags;
	io_uring_cqe_seen(ring, cqe);
	return ret;
}

TEST_F(uring, a_read_returns_a_record_that_is_ready)
{
	unsigned int flags;

	ASSERT_TRUE(fire(self->fd));
	io_uring_prep_read(io_uring_get_sqe(&self->ring), self->fd, self->ev,
			   sizeof(self->ev), 0);
	ASSERT_TRUE(submit(&self->ring, 1));
	EXPECT_EQ((int)sizeof(*self->ev), completion(&self->ring, &flags));
}

TEST_F(uring, a_read_that_must_wait_completes_when_a_timer_fires)
{
	unsigned int flags;

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	io_uring_prep_read(io_uring_get_sqe(&self->ring), self->fd, self->ev,
			   sizeof(self->ev), 0);
	ASSERT_TRUE(submit(&self->ring, 1));
	ASSERT_TRUE(fire(self->fd));
	EXPECT_EQ((int)sizeof(*self->ev), completion(&self->ring, &flags));
}

TEST_F(uring, a_multishot_poll_tells_of_each_firing)
{
	unsigned int i, flags = 0;

	io_uring_prep_poll_multishot(io_uring_get_sqe(&self->ring), self->fd,
				     POLLIN);
	ASSERT_TRUE(submit(&self->ring, 1));
	for (i = 0; i < 3; i++) {
		ASSERT_TRUE(fire(self->fd));
		ASSERT_TRUE(completion(&self->ring, &flags) & POLLIN);
		ASSERT_TRUE(flags & IORING_CQE_F_MORE);
		ASSERT_EQ(1, tw_read(self->fd, self->ev, 4));
	}
}

/* Commands: SUBMIT without a call of its own */
static struct io_uring_sqe *prep_command(struct io_uring *ring, int fd, __u32 cmd_op,
					 const struct twheel_submit *arg, __u64 resv)
{
	struct twheel_command command = { .arg = (uintptr_t)arg, .resv = resv };
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

	io_uring_prep_rw(IORING_OP_URING_CMD, sqe, fd, NULL, 0, cmd_op);
	memcpy((char *)sqe + offsetof(struct io_uring_sqe, cmd), &command, sizeof(command));
	return sqe;
}

static int run_command(struct io_uring *ring, int fd, __u32 cmd_op,
		       const struct twheel_submit *arg, __u64 resv)
{
	unsigned int flags;

	prep_command(ring, fd, cmd_op, arg, resv);
	return submit(ring, 1) ? completion(ring, &flags) : -EPROTO;
}

TEST_F(uring, a_command_does_what_submit_does)
{
	static struct twheel_op ops[300];
	struct twheel_submit arg = {
		.size = sizeof(arg),
		.ops = (uintptr_t)ops,
		.nr = ARRAY_SIZE(ops),
	};
	__u32 i;

	for (i = 0; i < ARRAY_SIZE(ops); i++)
		ops[i] = tw_entry(TW_HOUR, i);
	ops[7].resv = 1;
	ASSERT_EQ((int)ARRAY_SIZE(ops),
		  run_command(&self->ring, self->fd, TWHEEL_IOC_SUBMIT, &arg, 0));
	EXPECT_EQ(-EINVAL, ops[7].res);
	EXPECT_EQ(ARRAY_SIZE(ops) - 1, tw_armed(self->fd));
	for (i = 0; i < ARRAY_SIZE(ops); i++)
		if (i != 7)
			ASSERT_EQ(TWHEEL_F_ARMED, tw_state(self->fd, ops[i].id));
}

TEST_F(uring, a_read_that_is_linked_to_a_command_has_its_records)
{
	struct twheel_op op = tw_entry(0, 7);
	struct twheel_submit arg = {
		.size = sizeof(arg),
		.ops = (uintptr_t)&op,
		.nr = 1,
	};
	unsigned int flags;

	prep_command(&self->ring, self->fd, TWHEEL_IOC_SUBMIT, &arg, 0)->flags = IOSQE_IO_LINK;
	io_uring_prep_read(io_uring_get_sqe(&self->ring), self->fd, self->ev,
			   sizeof(self->ev), 0);
	ASSERT_TRUE(submit(&self->ring, 2));
	EXPECT_EQ(1, completion(&self->ring, &flags));
	EXPECT_EQ((int)sizeof(*self->ev), completion(&self->ring, &flags));
	EXPECT_EQ(7, self->ev[0].user_data);
}

TEST_F(uring, a_command_fails_as_submit_does)
{
	struct twheel_op op = tw_entry(TW_HOUR, 0);
	struct twheel_submit arg = {
		.size = sizeof(arg),
		.ops = (uintptr_t)&op,
		.nr = 1,
	};
	int fd = open(TW_DEVICE, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	EXPECT_EQ(-EBADF, run_command(&self->ring, fd, TWHEEL_IOC_SUBMIT, &arg, 0));
	EXPECT_EQ(-ENOTTY, run_command(&self->ring, self->fd, TWHEEL_IOC_ARM, &arg, 0));
	EXPECT_EQ(-EINVAL, run_command(&self->ring, self->fd, TWHEEL_IOC_SUBMIT, &arg, 1));
	EXPECT_EQ(-EFAULT, run_command(&self->ring, self->fd, TWHEEL_IOC_SUBMIT, NULL, 0));
	arg.flags = 1;
	EXPECT_EQ(-EINVAL, run_command(&self->ring, self->fd, TWHEEL_IOC_SUBMIT, &arg, 0));
	EXPECT_EQ(0, tw_armed(self->fd));
	close(fd);
}

/* Multishot reads */
static bool has_multishot_read(struct io_uring *ring)
{
	struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
	bool has = probe && io_uring_opcode_supported(probe, OP_READ_MULTISHOT);

	io_uring_free_probe(probe);
	return has;
}

static void give_buffer(FIXTURE_DATA(uring) *self, unsigned int i, size_t size)
{
	io_uring_buf_ring_add(self->group, &self->ev[i], size, i,
			      io_uring_buf_ring_mask(BUFFERS), 0);
	io_uring_buf_ring_advance(self->group, 1);
}

/* Of @nr buffers of @size bytes, in the order of ev[] */
static bool give_buffers(FIXTURE_DATA(uring) *self, unsigned int nr, size_t size)
{
	struct io_uring_buf_reg reg = { .ring_entries = BUFFERS, .bgid = GROUP };
	size_t page = sysconf(_SC_PAGESIZE);
	unsigned int i;

	self->group = aligned_alloc(page, page);
	if (!self->group)
		return false;
	memset(self->group, 0, page);
	reg.ring_addr = (uintptr_t)self->group;
	if (io_uring_register_buf_ring(&self->ring, &reg, 0))
		return false;
	tw_poison(&self->ev);
	for (i = 0; i < nr; i++)
		give_buffer(self, i, size);
	return true;
}

static bool start_multishot(FIXTURE_DATA(uring) *self)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&self->ring);

	io_uring_prep_read(sqe, self->fd, NULL, 0, -1);
	sqe->opcode = OP_READ_MULTISHOT;
	sqe->flags = IOSQE_BUFFER_SELECT;
	sqe->buf_group = GROUP;
	return submit(&self->ring, 1);
}

TEST_F(uring, a_multishot_read_gives_each_record_without_another_submission)
{
	unsigned int i, flags = 0;

	if (!has_multishot_read(&self->ring))
		SKIP(return, "no multishot reads");
	ASSERT_TRUE(give_buffers(self, BUFFERS, sizeof(*self->ev)));
	ASSERT_TRUE(start_multishot(self));
	for (i = 0; i < 3 * BUFFERS; i++) {
		struct twheel_event *ev = &self->ev[i % BUFFERS];

		ASSERT_TRUE(fire(self->fd));
		ASSERT_EQ((int)sizeof(*ev), completion(&self->ring, &flags));
		ASSERT_TRUE(flags & IORING_CQE_F_MORE);
		ASSERT_EQ(i % BUFFERS, flags >> IORING_CQE_BUFFER_SHIFT);
		ASSERT_EQ((i + 1) * TW_TICK_MIN, ev->expires_ns);
		tw_poison(ev);
		give_buffer(self, i % BUFFERS, sizeof(*ev));
	}
}

TEST_F(uring, a_multishot_read_without_a_buffer_ends_and_loses_nothing)
{
	unsigned int i, flags = 0;
	struct twheel_event ev;

	if (!has_multishot_read(&self->ring))
		SKIP(return, "no multishot reads");
	ASSERT_TRUE(give_buffers(self, 2, sizeof(*self->ev)));
	ASSERT_TRUE(start_multishot(self));
	for (i = 0; i < 2; i++) {
		ASSERT_TRUE(fire(self->fd));
		ASSERT_EQ((int)sizeof(ev), completion(&self->ring, &flags));
	}
	ASSERT_TRUE(fire(self->fd));
	EXPECT_EQ(-ENOBUFS, completion(&self->ring, &flags));
	EXPECT_FALSE(flags & IORING_CQE_F_MORE);
	ASSERT_EQ(1, tw_read(self->fd, &ev, 1));
	EXPECT_EQ(3 * TW_TICK_MIN, ev.expires_ns);
}

TEST_F(uring, a_multishot_read_into_less_than_a_record_is_einval_and_loses_nothing)
{
	struct twheel_event ev;
	unsigned int flags = 0;

	if (!has_multishot_read(&self->ring))
		SKIP(return, "no multishot reads");
	ASSERT_TRUE(give_buffers(self, 1, sizeof(ev) - 1));
	ASSERT_TRUE(start_multishot(self));
	ASSERT_TRUE(fire(self->fd));
	EXPECT_EQ(-EINVAL, completion(&self->ring, &flags));
	EXPECT_FALSE(flags & IORING_CQE_F_MORE);
	EXPECT_EQ(1, tw_read(self->fd, &ev, 1));
}

/* The work that a completion puts off for its thread may cut the array short. */
TEST_F(uring, an_array_amid_a_multishot_read_is_done_in_pieces_and_whole)
{
	static struct twheel_op ops[1000];
	__u32 nr = ARRAY_SIZE(ops), done = 0, i;
	unsigned int flags = 0;
	long ret;

	if (!has_multishot_read(&self->ring))
		SKIP(return, "no multishot reads");
	ASSERT_TRUE(give_buffers(self, BUFFERS, sizeof(*self->ev)));
	ASSERT_TRUE(start_multishot(self));
	for (i = 0; i < nr; i++)
		ops[i] = tw_entry(0, i);
	for (; done < nr; done += ret) {
		ret = tw_submit(self->fd, ops + done, nr - done);
		ASSERT_LT(0, ret);
	}
	/* Each record comes once and in order, whoever reads it. */
	for (i = 0; i < nr; i++) {
		int size = completion(&self->ring, &flags);

		if (size == -ENOBUFS)
			break;
		ASSERT_EQ((int)sizeof(*self->ev), size);
		ASSERT_EQ(i, self->ev[i % BUFFERS].user_data);
		give_buffer(self, i % BUFFERS, sizeof(*self->ev));
		if (!(flags & IORING_CQE_F_MORE))
			ASSERT_TRUE(start_multishot(self));
	}
	EXPECT_EQ(nr, i + tw_discard(self->fd));
}

/* Before 6.7 the kernel does not know it. */
TEST_F(uring, a_multishot_read_that_the_kernel_does_not_know_is_einval)
{
	unsigned int flags = 0;

	if (has_multishot_read(&self->ring))
		SKIP(return, "there are multishot reads");
	ASSERT_TRUE(start_multishot(self));
	EXPECT_EQ(-EINVAL, completion(&self->ring, &flags));
}

TEST_HARNESS_MAIN
