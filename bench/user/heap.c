// SPDX-License-Identifier: GPL-2.0
/*
 * heap.c - peer: one timerfd, armed for the earliest of a binary heap
 *
 * What many programs do by hand. The timerfd is set when the earliest deadline has
 * changed, once a call: an event loop does so before it sleeps.
 */
#include "bench.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

struct entry {
	__u64 when;
	__u32 i;
};

static struct {
	int epfd;
	int fd;
	__u32 nr;
	__u64 set;		/* for when the timerfd is armed, 0: it is not */
	struct entry *at;	/* [1..nr] */
	__u32 *pos;		/* of each object, 0: it is not armed */
	__u64 period;		/* of all, 0: they expire once */
	__u64 now;		/* of this turn of the loop */
	__u64 sets;		/* of the timerfd */
} heap;

static void put(__u32 pos, struct entry e)
{
	heap.at[pos] = e;
	heap.pos[e.i] = pos;
}

static void sift(__u32 pos, struct entry e)
{
	__u32 child;

	for (; pos > 1 && e.when < heap.at[pos / 2].when; pos /= 2)
		put(pos, heap.at[pos / 2]);
	while ((child = 2 * pos) <= heap.nr) {
		if (child < heap.nr && heap.at[child + 1].when < heap.at[child].when)
			child++;
		if (e.when <= heap.at[child].when)
			break;
		put(pos, heap.at[child]);
		pos = child;
	}
	put(pos, e);
}

static void heap_remove(__u32 pos)
{
	struct entry last = heap.at[heap.nr--];

	heap.pos[heap.at[pos].i] = 0;
	if (pos <= heap.nr)
		sift(pos, last);
}

static void set_earliest(void)
{
	__u64 when = heap.nr ? heap.at[1].when : 0;

	if (when == heap.set)
		return;
	heap.set = when;
	heap.sets++;
	if (!timerfd_set_one(heap.fd, when))
		errx(1, "timerfd_settime: %s", strerror(errno));
}

static bool heap_open(const struct peer *p, __u32 n)
{
	struct epoll_event ev = { .events = EPOLLIN };

	(void)p;
	heap.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (heap.fd < 0)
		return false;
	heap.epfd = epoll_create1(EPOLL_CLOEXEC);
	if (heap.epfd < 0 || epoll_ctl(heap.epfd, EPOLL_CTL_ADD, heap.fd, &ev))
		errx(1, "epoll: %s", strerror(errno));
	heap.nr = 0;
	heap.set = 0;
	heap.period = 0;
	heap.at = xcalloc(n + 1, sizeof(*heap.at));
	heap.pos = xcalloc(n, sizeof(*heap.pos));
	return true;
}

static void heap_close(void)
{
	close(heap.epfd);
	close(heap.fd);
	free(heap.at);
	free(heap.pos);
}

static __u32 heap_arm(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;

	for (k = 0; k < n; k++) {
		heap.nr++;
		sift(heap.nr, (struct entry) { .when = when[k], .i = idx[k] });
	}
	set_earliest();
	return n;
}

static __u32 heap_move(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;

	for (k = 0; k < n; k++)
		sift(heap.pos[idx[k]], (struct entry) { .when = when[k], .i = idx[k] });
	set_earliest();
	return n;
}

static __u32 heap_cancel(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;

	(void)when;
	for (k = 0; k < n; k++)
		heap_remove(heap.pos[idx[k]]);
	set_earliest();
	return n;
}

static void expire(void)
{
	struct entry e;
	__u64 times;

	woken();
	if (read(heap.fd, &times, sizeof(times)) != sizeof(times))
		errx(1, "read of a timerfd: %s", strerror(errno));
	heap.set = 0;
	while (heap.nr && heap.at[1].when <= heap.now) {
		e = heap.at[1];
		e.when += heap.period;
		if (heap.period)
			sift(1, e);
		else
			heap_remove(1);
		fired(e.i);
	}
}

static void heap_reap(void)
{
	struct epoll_event ev;

	if (epoll_wait(heap.epfd, &ev, 1, -1) != 1)
		errx(1, "epoll_wait: %s", strerror(errno));
	heap.now = now_ns();
	expire();
	set_earliest();
}

static void heap_turn(void (*work)(void))
{
	struct epoll_event ev;
	int nr = epoll_wait(heap.epfd, &ev, 1, 0);

	if (nr < 0)
		errx(1, "epoll_wait: %s", strerror(errno));
	heap.now = now_ns();
	if (nr)
		expire();
	work();
	set_earliest();
}

static void heap_after(const __u32 *idx, __u64 delay, __u32 n)
{
	__u32 k;

	for (k = 0; k < n; k++)
		sift(heap.pos[idx[k]] ?: ++heap.nr,
		     (struct entry) { .when = heap.now + delay, .i = idx[k] });
}

static void heap_every(const __u32 *idx, __u64 period, __u32 n)
{
	heap.period = period;
	heap_after(idx, period, n);
}

static __u64 heap_sent(void)
{
	return heap.sets;
}

const struct peer heap_peer = {
	.name = "timerfd-heap",
	.groups = GROUP_COMMON | GROUP_MIXES,
	.batch = 256,
	.step = 256,
	.in_process = true,
	.open = heap_open,
	.arm = heap_arm,
	.move = heap_move,
	.cancel = heap_cancel,
	.reap = heap_reap,
	.turn = heap_turn,
	.after = heap_after,
	.every = heap_every,
	.sent = heap_sent,
	.close = heap_close,
};
