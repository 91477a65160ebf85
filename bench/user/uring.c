// SPDX-License-Identifier: GPL-2.0
/*
 * uring.c - peer: time-outs of an io_uring, submitted up to 256 at a time
 *
 * The kernel finds the time-out to remove or to update by walking the list of all:
 * with many pending, one such operation takes milliseconds.
 */
#include "bench.h"

#include <liburing.h>

#define RING	256
#define CQ_MIN	(2 * RING)
#define CQ_MAX	65536	/* beyond, the kernel keeps completions in a list */

/* In user_data: the completion of a removal or an update, not of a time-out */
#define ACK	(1ULL << 32)

static struct {
	struct io_uring ring;
	struct __kernel_timespec ts[RING];
	__u32 acks;
	int error;
} all;

static bool uring_open(const struct peer *p, __u32 n)
{
	struct io_uring_params params = {
		.flags = IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP,
		.cq_entries = n < CQ_MIN ? CQ_MIN : n > CQ_MAX ? CQ_MAX : n,
	};
	int ret = io_uring_queue_init_params(RING, &all.ring, &params);

	(void)p;
	/* Old kernels and those that have it switched off tell so in various ways. */
	errno = ret == -ENOMEM || ret == -EPERM ? -ret : ENODEV;
	all.error = 0;
	return !ret;
}

static void uring_close(void)
{
	io_uring_queue_exit(&all.ring);
}

static void completion(const struct io_uring_cqe *cqe)
{
	if (cqe->user_data & ACK) {
		all.acks++;
		if (cqe->res < 0)
			all.error = -cqe->res;
	} else if (cqe->res == -ETIME) {
		woken();
		fired(cqe->user_data);
	} else if (cqe->res != -ECANCELED) {
		all.error = -cqe->res;
	}
}

static void reap_ready(void)
{
	struct io_uring_cqe *cqe;
	unsigned int head, nr;

	do {
		nr = 0;
		io_uring_for_each_cqe(&all.ring, head, cqe) {
			completion(cqe);
			nr++;
		}
		io_uring_cq_advance(&all.ring, nr);
	} while (nr);
}

/* Submits @nr prepared entries and awaits @acks completions: false and errno. */
static bool submit(__u32 nr, __u32 acks)
{
	int ret = io_uring_submit(&all.ring);

	if (ret != (int)nr) {
		errno = ret < 0 ? -ret : EAGAIN;
		return false;
	}
	all.acks = 0;
	reap_ready();
	while (all.acks < acks && !all.error) {
		struct io_uring_cqe *cqe;

		if (!io_uring_wait_cqe(&all.ring, &cqe))
			reap_ready();
	}
	errno = all.error;
	return !all.error;
}

static struct __kernel_timespec *timespec(__u32 k, __u64 when)
{
	all.ts[k].tv_sec = when / NSEC;
	all.ts[k].tv_nsec = when % NSEC;
	return &all.ts[k];
}

static void prepare(enum op op, __u32 k, __u32 i, const __u64 *when)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&all.ring);

	if (op == OP_ARM)
		io_uring_prep_timeout(sqe, timespec(k, *when), 0, IORING_TIMEOUT_ABS);
	else if (op == OP_REARM)
		io_uring_prep_timeout_update(sqe, timespec(k, *when), i, IORING_TIMEOUT_ABS);
	else
		io_uring_prep_timeout_remove(sqe, i, 0);
	io_uring_sqe_set_data64(sqe, op == OP_ARM ? i : ACK);
}

/* A time-out itself is not completed before it is due or removed. */
static __u32 batches(enum op op, const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 done, nr, k;

	for (done = 0; done < n; done += nr) {
		nr = n - done < RING ? n - done : RING;
		for (k = 0; k < nr; k++)
			prepare(op, k, idx[done + k], when ? when + done + k : NULL);
		if (!submit(nr, op == OP_ARM ? 0 : nr))
			return done;
	}
	return n;
}

static __u32 uring_arm(const __u32 *idx, const __u64 *when, __u32 n)
{
	return batches(OP_ARM, idx, when, n);
}

static __u32 uring_move(const __u32 *idx, const __u64 *when, __u32 n)
{
	return batches(OP_REARM, idx, when, n);
}

static __u32 uring_cancel(const __u32 *idx, const __u64 *when, __u32 n)
{
	return batches(OP_CANCEL, idx, when, n);
}

static void uring_reap(void)
{
	struct io_uring_cqe *cqe;
	int ret = io_uring_wait_cqe(&all.ring, &cqe);

	if (ret == -EINTR)
		return;
	if (ret)
		errx(1, "io_uring_wait_cqe: %s", strerror(-ret));
	reap_ready();
	if (all.error)
		errx(1, "a time-out of io_uring: %s", strerror(all.error));
}

const struct peer uring_peer = {
	.name = "uring",
	.groups = GROUP_COMMON & ~GROUP_WAKEUPS,
	.batch = 4,
	.step = 4,
	.linear = true,
	.open = uring_open,
	.arm = uring_arm,
	.move = uring_move,
	.cancel = uring_cancel,
	.reap = uring_reap,
	.close = uring_close,
};
