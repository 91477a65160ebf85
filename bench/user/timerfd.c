// SPDX-License-Identifier: GPL-2.0
/*
 * timerfd.c - peer: one timerfd a timer, all of them in one epoll
 */
#include "bench.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#define EVENTS	256

static struct {
	int epfd;
	__u32 nr;
	int *fds;
} all;

static bool timerfd_open(const struct peer *p, __u32 n)
{
	(void)p;
	all.epfd = epoll_create1(EPOLL_CLOEXEC);
	if (all.epfd < 0)
		return false;
	all.nr = 0;
	all.fds = xcalloc(n, sizeof(*all.fds));
	return true;
}

static void timerfd_close(void)
{
	/* First, or each of the others is taken out of it one by one. */
	close(all.epfd);
	while (all.nr)
		close(all.fds[--all.nr]);
	free(all.fds);
}

/* For an absolute time; 0 disarms. */
bool timerfd_set_one(int fd, __u64 when)
{
	struct itimerspec its = { .it_value = to_timespec(when) };

	return !timerfd_settime(fd, TFD_TIMER_ABSTIME, &its, NULL);
}

/* The objects must be made in order, once. */
static __u32 timerfd_make(const __u32 *idx, const __u64 *when, __u32 n)
{
	struct epoll_event ev = { .events = EPOLLIN };
	__u32 k;
	int fd;

	for (k = 0; k < n; k++) {
		fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
		if (fd < 0)
			break;
		all.fds[all.nr++] = fd;
		ev.data.u32 = idx[k];
		if (epoll_ctl(all.epfd, EPOLL_CTL_ADD, fd, &ev) ||
		    !timerfd_set_one(fd, when[k]))
			break;
	}
	return k;
}

static __u32 timerfd_set(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;

	for (k = 0; k < n && timerfd_set_one(all.fds[idx[k]], when[k]); k++)
		;
	return k;
}

static __u32 timerfd_cancel(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;

	(void)when;
	for (k = 0; k < n && timerfd_set_one(all.fds[idx[k]], 0); k++)
		;
	return k;
}

static void timerfd_reap(void)
{
	struct epoll_event ev[EVENTS];
	int nr = epoll_wait(all.epfd, ev, EVENTS, -1);
	__u64 times;
	int k;

	if (nr <= 0)
		errx(1, "epoll_wait: %s", strerror(errno));
	woken();
	for (k = 0; k < nr; k++) {
		if (read(all.fds[ev[k].data.u32], &times, sizeof(times)) != 8 || times != 1)
			errx(1, "read of a timerfd: %s", strerror(errno));
		fired(ev[k].data.u32);
	}
}

const struct peer timerfd_peer = {
	.name = "timerfd",
	.groups = GROUP_ALL,
	.batch = 1,
	.step = 256,
	.open = timerfd_open,
	.create = timerfd_make,
	.arm = timerfd_set,
	.move = timerfd_set,
	.cancel = timerfd_cancel,
	.reap = timerfd_reap,
	.close = timerfd_close,
};
