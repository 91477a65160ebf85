/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/* A wheel in a loop around epoll(7) */
#ifndef TWHEEL_EPOLL_H
#define TWHEEL_EPOLL_H

#include <errno.h>
#include <sys/epoll.h>
#include <twheel.h>

/**
 * twheel_epoll_add() - watch a wheel
 * @epfd: the epoll
 * @w:    the wheel. When it comes back as data.ptr of an event, call twheel_dispatch()
 *
 * Closing the wheel ends it, unless a child has the descriptor as well: then it is taken out
 * of the epoll before, by EPOLL_CTL_DEL.
 *
 * Return: 0 or a negative errno.
 */
static inline int twheel_epoll_add(int epfd, struct twheel *w)
{
	struct epoll_event event = { EPOLLIN, { w } };

	return epoll_ctl(epfd, EPOLL_CTL_ADD, twheel_fd(w), &event) ? -errno : 0;
}

#endif /* TWHEEL_EPOLL_H */
