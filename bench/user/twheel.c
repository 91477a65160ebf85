// SPDX-License-Identifier: GPL-2.0
/*
 * twheel.c - peers: /dev/twheel, by single ioctls and by batches of SUBMIT
 */
#include "bench.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <linux/twheel.h>

#define RECORDS	4096	/* of one read and of one DRAIN */

static struct {
	int fd;
	__u32 submit;
	__u64 *ids;
	struct twheel_op ops[RECORDS];
	struct twheel_event events[RECORDS];
	bool turning;		/* operations are collected, and sent at the end of the turn */
	__u32 nr_queued;
	__u64 now;		/* of this turn of the loop */
	__u64 period;		/* of all, 0: they expire once, and their handles are gone */
	__u64 sent;		/* in turns */
} wheel;

/* A wheel as it is opened, without set-up: its descriptor, or -1 and errno. */
int wheel_unset(void)
{
	int fd = open("/dev/twheel", O_RDWR | O_CLOEXEC);

	if (fd < 0 && errno == ENOENT)
		errno = ENODEV;
	return fd;
}

/* A wheel that has been set up: its descriptor, or -1 and errno. */
int wheel_new(const struct peer *p, __u32 capacity)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.clockid = CLOCK_MONOTONIC,
		.capacity = capacity,
		.tick_ns = p->tick,
	};
	int fd = wheel_unset(), error;

	if (fd < 0)
		return -1;
	if (ioctl(fd, TWHEEL_IOC_SETUP, &setup)) {
		error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	if (setup.tick_ns != p->tick)
		errx(1, "%s: a tick of %llu ns, not %llu", p->name, setup.tick_ns, p->tick);
	return fd;
}

/* How many of the operations were tried, or -1 and errno. */
static int submit(int fd, struct twheel_op *ops, __u32 n)
{
	struct twheel_submit arg = {
		.size = sizeof(arg),
		.ops = (uintptr_t)ops,
		.nr = n,
	};

	return ioctl(fd, TWHEEL_IOC_SUBMIT, &arg);
}

/* How many of the operations went well, counted from the first; errno of the next. */
__u32 wheel_submit(int fd, struct twheel_op *ops, __u32 n)
{
	int tried = submit(fd, ops, n);
	int k;

	for (k = 0; k < tried; k++) {
		if (ops[k].res) {
			errno = ops[k].res < 0 ? -ops[k].res : EPROTO;
			return k;
		}
	}
	return tried < 0 ? 0 : tried;
}

/* Arm timers of which nobody keeps the handles: false and errno if not all can be. */
bool wheel_fill(int fd, const __u64 *when, __u32 n)
{
	__u32 done, nr, k;

	for (done = 0; done < n; done += nr) {
		nr = n - done < RECORDS ? n - done : RECORDS;
		for (k = 0; k < nr; k++)
			wheel.ops[k] = (struct twheel_op) {
				.opcode = TWHEEL_OP_ARM,
				.expires_ns = when[done + k],
			};
		if (wheel_submit(fd, wheel.ops, nr) != nr)
			return false;
	}
	return true;
}

static bool wheel_open(const struct peer *p, __u32 n)
{
	wheel.fd = wheel_new(p, n);
	if (wheel.fd < 0)
		return false;
	wheel.submit = p->submit;
	wheel.period = 0;
	wheel.ids = xcalloc(n, sizeof(*wheel.ids));
	return true;
}

static void wheel_close(void)
{
	close(wheel.fd);
	free(wheel.ids);
}

/* Inline, as the loops below: each opcode is to cost what it costs alone. */
static __always_inline struct twheel_op operation(__u16 opcode, __u32 i, const __u64 *when)
{
	return (struct twheel_op) {
		.opcode = opcode,
		.id = opcode == TWHEEL_OP_ARM || opcode == TWHEEL_OP_NOP ? 0 : wheel.ids[i],
		.user_data = opcode == TWHEEL_OP_ARM ? i : 0,
		.expires_ns = when ? *when : 0,
	};
}

static __always_inline __u32 each(unsigned long cmd, __u16 opcode, const __u32 *idx,
				  const __u64 *when, __u32 n)
{
	struct twheel_op op;
	__u32 k;

	for (k = 0; k < n; k++) {
		op = operation(opcode, idx[k], when ? when + k : NULL);
		if (ioctl(wheel.fd, cmd, &op))
			break;
		if (opcode == TWHEEL_OP_ARM)
			wheel.ids[idx[k]] = op.id;
	}
	return k;
}

static __u32 arm_each(const __u32 *idx, const __u64 *when, __u32 n)
{
	return each(TWHEEL_IOC_ARM, TWHEEL_OP_ARM, idx, when, n);
}

static __u32 move_each(const __u32 *idx, const __u64 *when, __u32 n)
{
	return each(TWHEEL_IOC_MODIFY, TWHEEL_OP_MODIFY, idx, when, n);
}

static __u32 cancel_each(const __u32 *idx, const __u64 *when, __u32 n)
{
	(void)when;
	return each(TWHEEL_IOC_CANCEL, TWHEEL_OP_CANCEL, idx, NULL, n);
}

/* A call that the wheel does not know: what it takes to get there and back. */
static __u32 nop_each(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;

	(void)idx;
	(void)when;
	for (k = 0; k < n; k++) {
		if (!ioctl(wheel.fd, _IO(TWHEEL_IOC_TYPE, 0xff)) || errno != ENOTTY)
			break;
	}
	return k;
}

static __always_inline __u32 batches(__u16 opcode, const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 done, good, nr, k;

	for (done = 0; done < n; done += nr) {
		nr = wheel.submit < n - done ? wheel.submit : n - done;
		for (k = 0; k < nr; k++)
			wheel.ops[k] = operation(opcode, idx[done + k],
						 when ? when + done + k : NULL);
		good = wheel_submit(wheel.fd, wheel.ops, nr);
		for (k = 0; opcode == TWHEEL_OP_ARM && k < good; k++)
			wheel.ids[idx[done + k]] = wheel.ops[k].id;
		if (good < nr)
			return done + good;
	}
	return n;
}

static __u32 arm_submit(const __u32 *idx, const __u64 *when, __u32 n)
{
	return batches(TWHEEL_OP_ARM, idx, when, n);
}

static __u32 move_submit(const __u32 *idx, const __u64 *when, __u32 n)
{
	return batches(TWHEEL_OP_MODIFY, idx, when, n);
}

static void wheel_reap(void)
{
	ssize_t nr = read(wheel.fd, wheel.events, sizeof(wheel.events));
	ssize_t k;

	if (nr <= 0)
		errx(1, "read of /dev/twheel: %s", strerror(errno));
	woken();
	nr /= sizeof(*wheel.events);
	for (k = 0; k < nr; k++) {
		if (!wheel.period)
			wheel.ids[wheel.events[k].user_data] = 0;
		fired(wheel.events[k].user_data);
	}
	tally.lag = wheel.events[nr - 1].fired_ns - wheel.events[nr - 1].expires_ns;
}

/* In one SUBMIT what was queued. None of it is about a timer that is gone. */
static void send_queued(void)
{
	__u32 k;

	if (submit(wheel.fd, wheel.ops, wheel.nr_queued) != (int)wheel.nr_queued)
		errx(1, "SUBMIT: %s", strerror(errno));
	for (k = 0; k < wheel.nr_queued; k++) {
		if (wheel.ops[k].res < 0)
			errx(1, "SUBMIT: %s", strerror(-wheel.ops[k].res));
		if (wheel.ops[k].opcode == TWHEEL_OP_ARM)
			wheel.ids[wheel.ops[k].user_data] = wheel.ops[k].id;
	}
	wheel.sent += wheel.nr_queued;
	wheel.nr_queued = 0;
}

static void queue(struct twheel_op op)
{
	wheel.ops[wheel.nr_queued++] = op;
	if (wheel.nr_queued == wheel.submit)
		send_queued();
}

static void turn_submit(void (*work)(void))
{
	struct pollfd p = { .fd = wheel.fd, .events = POLLIN };
	int ret = poll(&p, 1, 0);

	if (ret < 0)
		errx(1, "poll: %s", strerror(errno));
	if (ret)
		wheel_reap();
	wheel.now = now_ns();
	wheel.turning = true;
	work();
	wheel.turning = false;
	if (wheel.nr_queued)
		send_queued();
}

static void after_submit(const __u32 *idx, __u64 delay, __u32 n)
{
	__u64 when = wheel.now + delay;
	__u32 k;

	for (k = 0; k < n; k++)
		queue(operation(wheel.ids[idx[k]] ? TWHEEL_OP_MODIFY : TWHEEL_OP_ARM, idx[k],
				&when));
}

static void every_submit(const __u32 *idx, __u64 period, __u32 n)
{
	__u64 when = wheel.now + period;
	struct twheel_op op;
	__u32 k;

	wheel.period = period;
	for (k = 0; k < n; k++) {
		op = operation(TWHEEL_OP_ARM, idx[k], &when);
		op.interval_ns = period;
		queue(op);
	}
}

static __u64 sent_submit(void)
{
	return wheel.sent;
}

static void queue_cancels(const __u32 *idx, __u32 n)
{
	__u32 k;

	for (k = 0; k < n; k++) {
		queue(operation(TWHEEL_OP_CANCEL, idx[k], NULL));
		wheel.ids[idx[k]] = 0;
	}
}

static __u32 cancel_submit(const __u32 *idx, const __u64 *when, __u32 n)
{
	(void)when;
	if (wheel.turning) {
		queue_cancels(idx, n);
		return n;
	}
	return batches(TWHEEL_OP_CANCEL, idx, NULL, n);
}

/* Operations that do nothing: what it takes to copy and to check them. */
static __u32 nop_submit(const __u32 *idx, const __u64 *when, __u32 n)
{
	(void)when;
	return batches(TWHEEL_OP_NOP, idx, NULL, n);
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
	.nop = nop_each,		\
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
	.nop = nop_submit,		\
	.reap = wheel_reap,		\
	.turn = turn_submit,		\
	.after = after_submit,		\
	.every = every_submit,		\
	.sent = sent_submit,		\
	.close = wheel_close,		\
}

const struct peer twheel_peers[] = {
	SINGLE("twheel", GROUP_ALL, TICK),
	SINGLE("twheel-4us", GROUP_LATENESS, 4096),
	SUBMIT("twheel-submit-16", GROUP_OPS, 16, 256),
	SUBMIT("twheel-submit-256", GROUP_OPS | GROUP_THREADS | GROUP_MIXES, 256, 256),
	SUBMIT("twheel-submit-4096", GROUP_OPS, 4096, 4096),
	{ }
};
