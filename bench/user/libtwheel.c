// SPDX-License-Identifier: GPL-2.0
/*
 * libtwheel.c - peers: libtwheel, with its timers in the kernel and in the process
 */
#include "bench.h"

#include <poll.h>
#include <twheel.h>

static struct {
	struct twheel *w;
	struct twheel_timer *timers;
	uint64_t now;		/* of this turn of the loop */
} all;

static void expired(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)w;
	(void)missed;
	woken();
	fired(t - all.timers);
}

static bool lib_open(const struct peer *p, __u32 n)
{
	struct twheel_options options = {
		.backend = p->in_process ? TWHEEL_LOCAL : TWHEEL_DEVICE,
		.tick_ns = p->tick,
		.capacity = 2 * n + 1000,
	};
	int ret = twheel_open(&all.w, &options);

	if (ret) {
		errno = ret == -ENOENT ? ENODEV : -ret;
		return false;
	}
	all.timers = xcalloc(n, sizeof(*all.timers));
	return true;
}

static void lib_close(void)
{
	twheel_close(all.w);
	free(all.timers);
}

/* Arms, and moves what is armed. */
static __u32 lib_arm(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;
	int ret;

	for (k = 0; k < n; k++) {
		ret = twheel_arm_at(all.w, &all.timers[idx[k]], when[k], expired);
		if (ret) {
			errno = -ret;
			break;
		}
	}
	return k;
}

static __u32 lib_cancel(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;

	(void)when;
	for (k = 0; k < n; k++)
		twheel_cancel(all.w, &all.timers[idx[k]]);
	return n;
}

static void lib_reap(void)
{
	struct pollfd p = { .fd = twheel_fd(all.w), .events = POLLIN };

	if (poll(&p, 1, -1) < 0 || twheel_dispatch(all.w, 0) < 0)
		err(1, "libtwheel");
}

/* As by an event loop: the wheel is asked if its descriptor is readable. */
static void lib_turn(void (*work)(void))
{
	struct pollfd p = { .fd = twheel_fd(all.w), .events = POLLIN };
	int ret = poll(&p, 1, 0);

	if (ret < 0 || (ret && twheel_dispatch(all.w, 0) < 0))
		err(1, "libtwheel");
	all.now = twheel_now(all.w);
	work();
}

static void lib_after(const __u32 *idx, __u64 delay, __u32 n)
{
	__u32 k;

	for (k = 0; k < n; k++)
		if (twheel_arm_at(all.w, &all.timers[idx[k]], all.now + delay, expired))
			errx(1, "twheel_arm_at failed");
}

static void lib_every(const __u32 *idx, __u64 period, __u32 n)
{
	__u32 k;

	for (k = 0; k < n; k++)
		if (twheel_every(all.w, &all.timers[idx[k]], period, expired))
			errx(1, "twheel_every failed");
}

static __u64 lib_sent(void)
{
	struct twheel_counts counts;

	twheel_stats(all.w, &counts);
	return counts.sent;
}

#define PEER(which, local)			\
	{					\
		.name = (which),		\
		.groups = GROUP_OPS | GROUP_LATENESS | GROUP_MIXES,	\
		.batch = 256,			\
		.step = 256,			\
		.tick = TICK,			\
		.in_process = (local),		\
		.open = lib_open,		\
		.arm = lib_arm,			\
		.move = lib_arm,		\
		.cancel = lib_cancel,		\
		.reap = lib_reap,		\
		.turn = lib_turn,		\
		.after = lib_after,		\
		.every = lib_every,		\
		.sent = lib_sent,		\
		.close = lib_close,		\
	}

const struct peer libtwheel_peers[] = {
	PEER("libtwheel", false),
	PEER("libtwheel-local", true),
	{ },
};
