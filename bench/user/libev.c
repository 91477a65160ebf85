// SPDX-License-Identifier: GPL-2.0
/*
 * libev.c - peer: the timers of libev
 */
#include "bench.h"

#include <ev.h>

static struct {
	struct ev_loop *loop;
	ev_timer *timers;
	ev_check check;		/* runs @work in a turn, after the timers */
	void (*work)(void);
} all;

static void expired(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop;
	(void)revents;
	woken();
	fired(w - all.timers);
}

static void checked(struct ev_loop *loop, ev_check *w, int revents)
{
	(void)loop;
	(void)w;
	(void)revents;
	all.work();
}

static bool libev_open(const struct peer *p, __u32 n)
{
	__u32 i;

	(void)p;
	all.loop = ev_loop_new(0);
	if (!all.loop)
		return false;
	all.timers = xcalloc(n, sizeof(*all.timers));
	ev_check_init(&all.check, checked);
	ev_set_priority(&all.check, EV_MINPRI);
	for (i = 0; i < n; i++)
		ev_timer_init(&all.timers[i], expired, 0., 0.);
	return true;
}

static void libev_close(void)
{
	ev_loop_destroy(all.loop);
	free(all.timers);
}

/* Takes the time for the loop and for us at once, as delays count from it. */
static __u64 loop_now(void)
{
	ev_now_update(all.loop);
	return now_ns();
}

static double delay(__u64 when, __u64 now)
{
	return when > now ? (when - now) * 1e-9 : 0.;
}

static __u32 libev_arm(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u64 now = loop_now();
	ev_timer *w;
	__u32 k;

	for (k = 0; k < n; k++) {
		w = &all.timers[idx[k]];
		ev_timer_set(w, delay(when[k], now), 0.);
		ev_timer_start(all.loop, w);
	}
	return n;
}

/*
 * The library's way to move a timer is to call it periodic. It is cancelled before it
 * has expired.
 */
static __u32 libev_move(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u64 now = loop_now();
	ev_timer *w;
	__u32 k;

	for (k = 0; k < n; k++) {
		w = &all.timers[idx[k]];
		w->repeat = delay(when[k], now);
		ev_timer_again(all.loop, w);
	}
	return n;
}

static __u32 libev_cancel(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;

	(void)when;
	for (k = 0; k < n; k++)
		ev_timer_stop(all.loop, &all.timers[idx[k]]);
	return n;
}

static void libev_reap(void)
{
	if (!ev_run(all.loop, EVRUN_ONCE) && !tally.nr)
		errx(1, "ev_run found nothing to wait for");
}

static void libev_turn(void (*work)(void))
{
	all.work = work;
	if (!ev_is_active(&all.check))
		ev_check_start(all.loop, &all.check);
	ev_run(all.loop, EVRUN_NOWAIT);
}

static void libev_after(const __u32 *idx, __u64 delay, __u32 n)
{
	ev_timer *w;
	__u32 k;

	for (k = 0; k < n; k++) {
		w = &all.timers[idx[k]];
		if (ev_is_active(w)) {
			w->repeat = delay * 1e-9;
			ev_timer_again(all.loop, w);
		} else {
			ev_timer_set(w, delay * 1e-9, 0.);
			ev_timer_start(all.loop, w);
		}
	}
}

static void libev_every(const __u32 *idx, __u64 period, __u32 n)
{
	__u32 k;

	for (k = 0; k < n; k++) {
		ev_timer_set(&all.timers[idx[k]], period * 1e-9, period * 1e-9);
		ev_timer_start(all.loop, &all.timers[idx[k]]);
	}
}

const struct peer libev_peer = {
	.name = "libev",
	.groups = (GROUP_COMMON & ~GROUP_WAKEUPS) | GROUP_MIXES,
	.batch = 256,
	.step = 256,
	.in_process = true,
	.open = libev_open,
	.arm = libev_arm,
	.move = libev_move,
	.cancel = libev_cancel,
	.reap = libev_reap,
	.turn = libev_turn,
	.after = libev_after,
	.every = libev_every,
	.close = libev_close,
};
