// SPDX-License-Identifier: GPL-2.0
/*
 * uring.c - io_uring: reads and multishot polls of the descriptor
 *
 * Built where liburing is. Skipped where the kernel has io_uring switched off.
 */
#include "twheel_test.h"

#include <liburing.h>

#define ENTRIES	8

FIXTURE(uring)
{
	int fd;
	bool ring_made;
	struct io_uring ring;
	struct twheel_event ev[4];
};

FIXTURE_SETUP(uring)
{
	self->fd = tw_manual(TW_TICK_MIN);
	ASSERT_LE(0, self->fd);
	self->ring_made = !io_uring_queue_init(ENTRIES, &self->ring, 0);
	if (!self->ring_made)
		SKIP(return, "no io_uring");
}

FIXTURE_TEARDOWN(uring)
{
	if (self->ring_made)
		io_uring_queue_exit(&self->ring);
	close(self->fd);
}

static bool fire(int fd)
{
	__u64 due = tw_now(fd) + TW_TICK_MIN;

	return tw_arm(fd, due, 0) && !tw_advance(fd, due);
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
	ASSERT_EQ(1, io_uring_submit(&self->ring));
	EXPECT_EQ((int)sizeof(*self->ev), completion(&self->ring, &flags));
}

TEST_F(uring, a_read_that_must_wait_completes_when_a_timer_fires)
{
	unsigned int flags;

	ASSERT_EQ(0, tw_set_blocking(self->fd));
	io_uring_prep_read(io_uring_get_sqe(&self->ring), self->fd, self->ev,
			   sizeof(self->ev), 0);
	ASSERT_EQ(1, io_uring_submit(&self->ring));
	ASSERT_TRUE(fire(self->fd));
	EXPECT_EQ((int)sizeof(*self->ev), completion(&self->ring, &flags));
}

TEST_F(uring, a_multishot_poll_tells_of_each_firing)
{
	unsigned int i, flags = 0;

	io_uring_prep_poll_multishot(io_uring_get_sqe(&self->ring), self->fd,
				     POLLIN);
	ASSERT_EQ(1, io_uring_submit(&self->ring));
	for (i = 0; i < 3; i++) {
		ASSERT_TRUE(fire(self->fd));
		ASSERT_TRUE(completion(&self->ring, &flags) & POLLIN);
		ASSERT_TRUE(flags & IORING_CQE_F_MORE);
		ASSERT_EQ(1, tw_read(self->fd, self->ev, 4));
	}
}

TEST_HARNESS_MAIN
