// SPDX-License-Identifier: GPL-2.0
/*
 * twheel.c - peers: /dev/twheel, by single ioctls and by batches of SUBMIT
 */
#include "bench.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <linux/twheel.h>

#define RECORDS	4096	/* of one read and of one DRAIN */

static struct {
	int fd;
	__u32 submit;
	__u64 *ids;
	struct twheel_op ops[RECORDS];
	struct twheel_event events[RECORDS];
} wheel;

static bool wheel_open(const struct peer *p, __u32 n)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.clockid = CLOCK_MONOTONIC,
		.capacity = n,
		.tick_ns = p->tick,
	};

	wheel.fd = open("/dev/twheel", O_RDWR | O_CLOEXEC);
	if (wheel.fd < 0) {
		errno = errno == ENOENT ? ENODEV : errno;
		return false;
	}
	if (ioctl(wheel.fd, TWHEEL_IOC_SETUP, &setup)) {
		close(wheel.fd);
		return false;
	}
	if (setup.tick_ns != p->tick)
		errx(1, "%s: a tick of %llu ns, not %llu", p->name, setup.tick_ns, p->tick);
	wheel.submit = p->submit;
	wheel.ids = xcalloc(n, sizeof(*wheel.ids));
	return true;
}

static void wheel_close(void)
{
	close(wheel.fd);
	free(wheel.ids);
}

static __u32 arm_each(const __u32 *idx, const __u64 *when, __u32 n)
{
	struct twheel_op op = { };
	__u32 k;

	for (k = 0; k < n; k++) {
		op.user_data = idx[k];
		op.expires_ns = when[k];
		if (ioctl(wheel.fd, TWHEEL_IOC_ARM, &op))
			break;
		wheel.ids[idx[k]] = op.id;
	}
	return k;
}

static __u32 move_each(const __u32 *idx, const __u64 *when, __u32 n)
{
	struct twheel_op op = { };
	__u32 k;

	for (k = 0; k < n; k++) {
		op.id = wheel.ids[idx[k]];
		op.expires_ns = when[k];
		if (ioctl(wheel.fd, TWHEEL_IOC_MODIFY, &op))
			break;
	}
	return k;
}

static __u32 cancel_each(const __u32 *idx, const __u64 *when, __u32 n)
{
	struct twheel_op op = { };
	__u32 k;

	(void)when;
	for (k = 0; k < n; k++) {
		op.id = wheel.ids[idx[k]];
		if (ioctl(wheel.fd, TWHEEL_IOC_CANCEL, &op))
			break;
	}
	return k;
}

/* Submits the first @n of wheel.ops: how many of them went well. */
static __u32 submit(__u32 n)
{
	struct twheel_submit arg = {
		.size = sizeof(arg),
		.ops = (uintptr_t)wheel.ops,
		.nr = n,
	};
	int tried = ioctl(wheel.fd, TWHEEL_IOC_SUBMIT, &arg);
	int k;

	for (k = 0; k < tried; k++) {
		if (wheel.ops[k].res) {
			errno = wheel.ops[k].res < 0 ? -wheel.ops[k].res : EPROTO;
			return k;
		}
	}
	return tried < 0 ? 0 : tried;
}

static inline __u32 min_u32(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

static __u32 arm_submit(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 done, good, nr, k;

	for (done = 0; done < n; done += nr) {
		nr = min_u32(wheel.submit, n - done);
		for (k = 0; k < nr; k++)
			wheel.ops[k] = (struct twheel_op) {
				.opcode = TWHEEL_OP_ARM,
				.user_data = idx[done + k],
				.expires_ns = when[done + k],
			};
		good = submit(nr);
		for (k = 0; k < good; k++)
			wheel.ids[idx[done + k]] = wheel.ops[k].id;
		if (good < nr)
			return done + good;
	}
	return n;
}

static __u32 move_submit(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 done, good, nr, k;

	for (done = 0; done < n; done += nr) {
		nr = min_u32(wheel.submit, n - done);
		for (k = 0; k < nr; k++)
			wheel.ops[k] = (struct twheel_op) {
				.opcode = TWHEEL_OP_MODIFY,
				.id = wheel.ids[idx[done + k]],
				.expires_ns = when[done + k],
			};
		good = submit(nr);
		if (good < nr)
			return done + good;
	}
	return n;
}

static __u32 cancel_submit(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 done, good, nr, k;

	(void)when;
	for (done = 0; done < n; done += nr) {
		nr = min_u32(wheel.submit, n - done);
		for (k = 0; k < nr; k++)
			wheel.ops[k] = (struct twheel_op) {
				.opcode = TWHEEL_OP_CANCEL,
				.id = wheel.ids[idx[done + k]],
			};
		good = submit(nr);
		if (good < nr)
			return done + good;
	}
	return n;
}

static __u32 wheel_drain(void)
{
	struct twheel_drain arg = {
		.size = sizeof(arg),
		.ops = (uintptr_t)wheel.ops,
		.nr = RECORDS,
	};
	__u32 total = 0;
	int nr;

	while ((nr = ioctl(wheel.fd, TWHEEL_IOC_DRAIN, &arg)) > 0)
		total += nr;
	if (nr < 0)
		errx(1, "DRAIN: %s", strerror(errno));
	return total;
}

static void wheel_reap(void)
{
	ssize_t nr = read(wheel.fd, wheel.events, sizeof(wheel.events));
	ssize_t k;

	if (nr <= 0)
		errx(1, "read of /dev/twheel: %s", strerror(errno));
	woken();
	nr /= sizeof(*wheel.events);
	for (k = 0; k < nr; k++)
		fired(wheel.events[k].user_data);
	tally.lag = wheel.events[nr - 1].fired_ns - wheel.events[nr - 1].expires_ns;
}

static __u64 wheel_wakeups(void)
{
	struct twheel_stats stats = { .size = sizeof(stats) };

	if (ioctl(wheel.fd, TWHEEL_IOC_STATS, &stats))
		errx(1, "STATS: %s", strerror(errno));
	return stats.wakeups;
}

#define SINGLE(name_, groups_, tick_) {	\
	.name = (name_),		\
	.groups = (groups_),		\
	.batch = 1,			\
	.step = 256,			\
	.submit = 1,			\
	.tick = (tick_),		\
	.open = wheel_open,		\
	.arm = arm_each,		\
	.move = move_each,		\
	.cancel = cancel_each,		\
	.drain = wheel_drain,		\
	.reap = wheel_reap,		\
	.wakeups = wheel_wakeups,	\
	.close = wheel_close,		\
}

#define SUBMIT(name_, groups_, submit_, step_) {	\
	.name = (name_),		\
	.groups = (groups_),		\
	.batch = (submit_),		\
	.step = (step_),		\
	.submit = (submit_),		\
	.tick = TICK,			\
	.open = wheel_open,		\
	.arm = arm_submit,		\
	.move = move_submit,		\
	.cancel = cancel_submit,	\
	.reap = wheel_reap,		\
	.close = wheel_close,		\
}

const struct peer twheel_peers[] = {
	SINGLE("twheel", GROUP_ALL, TICK),
	SINGLE("twheel-4us", GROUP_LATENESS, 4096),
	SUBMIT("twheel-submit-16", GROUP_OPS, 16, 256),
	SUBMIT("twheel-submit-256", GROUP_OPS | GROUP_THREADS, 256, 256),
	SUBMIT("twheel-submit-4096", GROUP_OPS, 4096, 4096),
	{ }
};
