// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "loop.h"

#define MAX_EVENTS	64

uint64_t boottime_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_BOOTTIME, &now);
	return (uint64_t)now.tv_sec * TWHEEL_SEC + (uint64_t)now.tv_nsec;
}

static void __attribute__((noreturn)) fatal(const char *what, int error)
{
	log_error("loop-broken what=%s error=%s", what, quoted(strerror(error)));
	abort();
}

static void timers_due(struct loop_fd *fd, uint32_t events)
{
	struct loop_wheel *w = TWHEEL_CONTAINER(fd, struct loop_wheel, fd);
	int error;

	(void)events;
	error = twheel_dispatch(w->wheel, 0);
	if (error < 0)
		fatal("dispatch", -error);
}

/* What of the present batch is still to come for @fd is forgotten: it may be freed. */
static void forget(struct loop *loop, const struct loop_fd *fd)
{
	int i;

	for (i = 0; i < loop->nr_batch; i++)
		if (loop->batch[i].data.ptr == fd)
			loop->batch[i].data.ptr = NULL;
}

void loop_set(struct loop *loop, struct loop_fd *fd, uint32_t events)
{
	struct epoll_event event = { .events = events, .data.ptr = fd };
	int op = EPOLL_CTL_MOD;

	if (events == fd->events)
		return;
	if (!events) {
		op = EPOLL_CTL_DEL;
		forget(loop, fd);
	} else if (!fd->events) {
		op = EPOLL_CTL_ADD;
	}
	if (epoll_ctl(loop->epoll_fd, op, fd->fd, &event))
		fatal("epoll_ctl", errno);
	fd->events = events;
}

/* Another process may have its descriptor, which would keep it in the loop. */
void loop_set_wheel(struct loop *loop, struct loop_wheel *w, struct twheel *wheel)
{
	if (w->wheel) {
		loop_set(loop, &w->fd, 0);
		twheel_close(w->wheel);
	}
	w->wheel = wheel;
	if (!wheel)
		return;
	w->fd = (struct loop_fd){ .fn = timers_due, .fd = twheel_fd(wheel) };
	loop_set(loop, &w->fd, EPOLLIN);
}

int loop_open(struct loop *loop, enum twheel_backend backend, uint32_t capacity)
{
	struct twheel_options options = {
		.backend = backend, .clock = TWHEEL_BOOTTIME, .capacity = capacity,
	};
	struct twheel *wheel;
	int error;

	memset(loop, 0, sizeof(*loop));
	loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll_fd < 0)
		return -errno;
	error = twheel_open(&wheel, &options);
	if (error < 0) {
		close(loop->epoll_fd);
		loop->epoll_fd = -1;
		return error;
	}
	loop_set_wheel(loop, &loop->timers, wheel);
	loop->wheel = wheel;
	return 0;
}

void loop_close(struct loop *loop)
{
	loop_set_wheel(loop, &loop->timers, NULL);
	loop->wheel = NULL;
	close(loop->epoll_fd);
	loop->epoll_fd = -1;
}

void loop_closed(struct loop *loop, struct loop_fd *fd)
{
	forget(loop, fd);
	fd->events = 0;
}

static void call(const struct epoll_event *event)
{
	struct loop_fd *fd = event->data.ptr;
	uint32_t events;

	if (!fd)
		return;
	/* What it is to be called for may have changed since the wait. */
	events = event->events & (fd->events | EPOLLERR | EPOLLHUP);
	if (events)
		fd->fn(fd, events);
}

int loop_run(struct loop *loop)
{
	struct epoll_event batch[MAX_EVENTS];
	int i, nr;

	while (!loop->stopped) {
		if (loop->idle)
			loop->idle(loop->arg);
		if (loop->stopped)
			break;
		nr = epoll_wait(loop->epoll_fd, batch, MAX_EVENTS, -1);
		if (nr < 0 && errno != EINTR)
			return -errno;
		loop->batch = batch;
		loop->nr_batch = nr < 0 ? 0 : nr;
		for (i = 0; i < loop->nr_batch && !loop->stopped; i++)
			call(&batch[i]);
		loop->batch = NULL;
		loop->nr_batch = 0;
	}
	return 0;
}

void loop_stop(struct loop *loop)
{
	loop->stopped = 1;
}

void loop_arm(struct loop *loop, struct twheel_timer *timer, uint64_t delay_ns, twheel_fn *fn)
{
	int error = twheel_arm(loop->wheel, timer, delay_ns, fn);

	if (error < 0)
		fatal("arm", -error);
}
