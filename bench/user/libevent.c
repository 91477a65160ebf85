// SPDX-License-Identifier: GPL-2.0
/*
 * libevent.c - peer: the timers of libevent
 *
 * Operations run inside a callback of the loop, as in a program: there the library
 * knows the time and does not ask for it once an event. Its clock is the precise one
 * (CLOCK_MONOTONIC); the default one is wrong by up to a jiffy.
 */
#include "bench.h"

#include <event2/event.h>
#include <event2/event_struct.h>

static struct {
	struct event_base *base;
	struct event *events;
	struct event call;		/* runs @op in the loop */
	void (*op)(void);
	bool turning;			/* operations are called from within @op */
	const __u32 *idx;
	const __u64 *when;
	__u32 n;
} all;

static void expired(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	woken();
	fired((uintptr_t)arg);
}

static void called(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	all.op();
}

static bool libevent_open(const struct peer *p, __u32 n)
{
	struct event_config *cfg = event_config_new();
	__u32 i;

	(void)p;
	event_config_set_flag(cfg, EVENT_BASE_FLAG_PRECISE_TIMER);
	all.base = event_base_new_with_config(cfg);
	event_config_free(cfg);
	if (!all.base)
		return false;
	event_assign(&all.call, all.base, -1, 0, called, NULL);
	all.events = xcalloc(n, sizeof(*all.events));
	for (i = 0; i < n; i++)
		event_assign(&all.events[i], all.base, -1, 0, expired,
			     (void *)(uintptr_t)i);
	return true;
}

static void libevent_close(void)
{
	event_base_free(all.base);
	free(all.events);
}

static __u32 in_loop(void (*op)(void), const __u32 *idx, const __u64 *when, __u32 n)
{
	all.idx = idx;
	all.when = when;
	all.n = n;
	if (all.turning) {
		op();
		return n;
	}
	all.op = op;
	event_active(&all.call, EV_TIMEOUT, 0);
	if (event_base_loop(all.base, EVLOOP_ONCE | EVLOOP_NONBLOCK) < 0)
		return 0;
	return n;
}

static void add_all(void)
{
	__u64 now = now_ns();
	struct timeval tv;
	__u64 usec;
	__u32 k;

	for (k = 0; k < all.n; k++) {
		usec = all.when[k] > now ? (all.when[k] - now + USEC - 1) / USEC : 0;
		tv.tv_sec = usec / 1000000;
		tv.tv_usec = usec % 1000000;
		event_add(&all.events[all.idx[k]], &tv);
	}
}

static void delete_all(void)
{
	__u32 k;

	for (k = 0; k < all.n; k++)
		event_del(&all.events[all.idx[k]]);
}

static __u32 libevent_add(const __u32 *idx, const __u64 *when, __u32 n)
{
	return in_loop(add_all, idx, when, n);
}

static __u32 libevent_cancel(const __u32 *idx, const __u64 *when, __u32 n)
{
	return in_loop(delete_all, idx, when, n);
}

static void libevent_reap(void)
{
	if (event_base_loop(all.base, EVLOOP_ONCE))
		errx(1, "event_base_loop found nothing to wait for");
}

static void libevent_turn(void (*work)(void))
{
	all.op = work;
	all.turning = true;
	event_active(&all.call, EV_TIMEOUT, 0);
	if (event_base_loop(all.base, EVLOOP_ONCE | EVLOOP_NONBLOCK) < 0)
		errx(1, "event_base_loop failed");
	all.turning = false;
}

static struct timeval to_timeval(__u64 ns)
{
	return (struct timeval) {
		.tv_sec = ns / NSEC,
		.tv_usec = ns % NSEC / USEC,
	};
}

static void libevent_after(const __u32 *idx, __u64 delay, __u32 n)
{
	struct timeval tv = to_timeval(delay);
	__u32 k;

	for (k = 0; k < n; k++)
		event_add(&all.events[idx[k]], &tv);
}

static void libevent_every(const __u32 *idx, __u64 period, __u32 n)
{
	struct timeval tv = to_timeval(period);
	__u32 k;

	for (k = 0; k < n; k++) {
		event_assign(&all.events[idx[k]], all.base, -1, EV_PERSIST, expired,
			     (void *)(uintptr_t)idx[k]);
		event_add(&all.events[idx[k]], &tv);
	}
}

const struct peer libevent_peer = {
	.name = "libevent",
	.groups = (GROUP_COMMON & ~GROUP_WAKEUPS) | GROUP_MIXES,
	.batch = 256,
	.step = 256,
	.in_process = true,
	.open = libevent_open,
	.arm = libevent_add,
	.move = libevent_add,
	.cancel = libevent_cancel,
	.reap = libevent_reap,
	.turn = libevent_turn,
	.after = libevent_after,
	.every = libevent_every,
	.close = libevent_close,
};
