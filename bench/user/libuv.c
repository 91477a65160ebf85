// SPDX-License-Identifier: GPL-2.0
/*
 * libuv.c - peer: the timers of libuv, which know milliseconds only
 */
#include "bench.h"

#include <uv.h>

static struct {
	uv_loop_t loop;
	uv_timer_t *timers;
	__u32 nr;
	uv_prepare_t prepare;	/* runs @work in a turn, after the timers */
	void (*work)(void);
} all;

static void expired(uv_timer_t *timer)
{
	woken();
	fired(timer - all.timers);
}

static void prepared(uv_prepare_t *prepare)
{
	(void)prepare;
	all.work();
}

static bool libuv_open(const struct peer *p, __u32 n)
{
	int ret = uv_loop_init(&all.loop);
	__u32 i;

	(void)p;
	errno = -ret;
	if (ret)
		return false;
	all.nr = n;
	all.timers = xcalloc(n, sizeof(*all.timers));
	for (i = 0; i < n; i++)
		uv_timer_init(&all.loop, &all.timers[i]);
	uv_prepare_init(&all.loop, &all.prepare);
	return true;
}

static void libuv_close(void)
{
	__u32 i;

	for (i = 0; i < all.nr; i++)
		uv_close((uv_handle_t *)&all.timers[i], NULL);
	uv_close((uv_handle_t *)&all.prepare, NULL);
	uv_run(&all.loop, UV_RUN_NOWAIT);
	if (uv_loop_close(&all.loop))
		errx(1, "uv_loop_close failed");
	free(all.timers);
}

/* Rounded up, so as not to be early. */
static __u32 libuv_start(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u64 msec, now;
	__u32 k;

	uv_update_time(&all.loop);
	now = uv_now(&all.loop);
	for (k = 0; k < n; k++) {
		msec = (when[k] + MSEC - 1) / MSEC;
		uv_timer_start(&all.timers[idx[k]], expired, msec > now ? msec - now : 0, 0);
	}
	return n;
}

static __u32 libuv_cancel(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;

	(void)when;
	for (k = 0; k < n; k++)
		uv_timer_stop(&all.timers[idx[k]]);
	return n;
}

static void libuv_reap(void)
{
	if (!uv_run(&all.loop, UV_RUN_ONCE) && !tally.nr)
		errx(1, "uv_run found nothing to wait for");
}

static void libuv_turn(void (*work)(void))
{
	all.work = work;
	uv_prepare_start(&all.prepare, prepared);
	uv_run(&all.loop, UV_RUN_NOWAIT);
}

static void libuv_after(const __u32 *idx, __u64 delay, __u32 n)
{
	__u32 k;

	for (k = 0; k < n; k++)
		uv_timer_start(&all.timers[idx[k]], expired, delay / MSEC, 0);
}

static void libuv_every(const __u32 *idx, __u64 period, __u32 n)
{
	__u32 k;

	for (k = 0; k < n; k++)
		uv_timer_start(&all.timers[idx[k]], expired, period / MSEC, period / MSEC);
}

const struct peer libuv_peer = {
	.name = "libuv",
	.groups = GROUP_COMMON | GROUP_MIXES,
	.batch = 256,
	.step = 256,
	.in_process = true,
	.open = libuv_open,
	.arm = libuv_start,
	.move = libuv_start,
	.cancel = libuv_cancel,
	.reap = libuv_reap,
	.turn = libuv_turn,
	.after = libuv_after,
	.every = libuv_every,
	.close = libuv_close,
};
