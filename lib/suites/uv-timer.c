// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Instead of src/timer.c of libuv 1.44: the same functions, on a wheel. "run" has what else
 * is changed: that a uv_timer_t has a loop_timer, and who calls what has no name there.
 */
#include <limits.h>

#include "uv.h"
#include "unix/internal.h"

struct uv_timers {
	struct loop_timers timers;
	uv__io_t io;
};

/* Where the heap was. */
static struct uv_timers *uv_timers(const uv_loop_t *loop)
{
	return loop->timer_heap.min;
}

static uint64_t uv_to_ns(uint64_t ms)
{
	return ms > INT64_MAX / TWHEEL_MSEC ? TWHEEL_NEVER : ms * TWHEEL_MSEC;
}

static void uv_timers_wake(uv_loop_t *loop, uv__io_t *io, unsigned int events)
{
	(void)io;
	(void)events;
	uv_timers(loop)->timers.stale = true;
}

static void uv_timers_watch(uv_loop_t *loop, struct uv_timers *t)
{
	uv__io_init(&t->io, uv_timers_wake, twheel_fd(t->timers.w));
	uv__io_start(loop, &t->io, POLLIN);
}

/* Of uv_loop_init(). */
int uv__timers_open(uv_loop_t *loop)
{
	struct uv_timers *t = uv__malloc(sizeof(*t));
	int ret;

	if (!t)
		return UV_ENOMEM;
	ret = loop_timers_open(&t->timers);
	if (ret) {
		uv__free(t);
		return ret;
	}
	uv_timers_watch(loop, t);
	loop->timer_heap.min = t;
	/* That took its time, which is none of the first timers'. */
	uv__update_time(loop);
	return 0;
}

/* Of uv_loop_close(). */
void uv__timers_close(uv_loop_t *loop)
{
	struct uv_timers *t = uv_timers(loop);

	uv__io_close(loop, &t->io);
	loop_timers_close(&t->timers);
	uv__free(t);
}

/* Of uv_loop_fork(), when the epoll is the child's own already. */
int uv__timers_fork(uv_loop_t *loop)
{
	struct uv_timers *t = uv_timers(loop);
	int ret;

	uv__io_close(loop, &t->io);
	ret = loop_timers_fork(&t->timers);
	if (!ret)
		uv_timers_watch(loop, t);
	return ret;
}

int uv_timer_init(uv_loop_t *loop, uv_timer_t *handle)
{
	uv__handle_init(loop, (uv_handle_t *)handle, UV_TIMER);
	memset(&handle->wheel, 0, sizeof(handle->wheel));
	handle->timer_cb = NULL;
	handle->timeout = 0;
	handle->repeat = 0;
	return 0;
}

int uv_timer_start(uv_timer_t *handle, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
	uv_loop_t *loop = handle->loop;
	uint64_t at = loop->time + timeout < timeout ? UINT64_MAX : loop->time + timeout;
	int ret;

	if (uv__is_closing(handle) || !cb)
		return UV_EINVAL;
	ret = loop_timer_start(&uv_timers(loop)->timers, &handle->wheel, uv_to_ns(at));
	if (ret)
		return ret;
	handle->timer_cb = cb;
	handle->timeout = at;
	handle->repeat = repeat;
	uv__handle_start(handle);
	return 0;
}

int uv_timer_stop(uv_timer_t *handle)
{
	if (uv__is_active(handle)) {
		loop_timer_stop(&handle->wheel);
		uv__handle_stop(handle);
	}
	return 0;
}

int uv_timer_again(uv_timer_t *handle)
{
	if (!handle->timer_cb)
		return UV_EINVAL;
	return handle->repeat ? uv_timer_start(handle, handle->timer_cb, handle->repeat,
					       handle->repeat) : 0;
}

void uv_timer_set_repeat(uv_timer_t *handle, uint64_t repeat)
{
	handle->repeat = repeat;
}

uint64_t uv_timer_get_repeat(const uv_timer_t *handle)
{
	return handle->repeat;
}

uint64_t uv_timer_get_due_in(const uv_timer_t *handle)
{
	return handle->timeout > handle->loop->time ? handle->timeout - handle->loop->time : 0;
}

static int uv_timers_ms(const uv_loop_t *loop, uint64_t at_ns)
{
	uint64_t at = at_ns / TWHEEL_MSEC;

	if (at_ns == TWHEEL_NEVER)
		return -1;
	return at <= loop->time ? 0 : at - loop->time < INT_MAX ? at - loop->time : INT_MAX;
}

/* How long uv_run() is to wait: the descriptor of the wheel wakes it up for what is armed. */
int uv__next_timeout(const uv_loop_t *loop)
{
	return uv_timers_ms(loop, loop_timers_wait(&uv_timers(loop)->timers));
}

/* What uv_backend_timeout() says instead of @timeout, for who does not wait by epoll. */
int uv__timers_timeout(const uv_loop_t *loop, int timeout)
{
	return timeout < 0 ? uv_timers_ms(loop, twheel_next(uv_timers(loop)->timers.w)) : timeout;
}

void uv__run_timers(uv_loop_t *loop)
{
	struct loop_timers *timers = &uv_timers(loop)->timers;
	struct loop_timer *first;
	uv_timer_t *handle;

	while ((first = loop_timers_first(timers, uv_to_ns(loop->time)))) {
		handle = TWHEEL_CONTAINER(first, uv_timer_t, wheel);
		uv_timer_stop(handle);
		uv_timer_again(handle);
		handle->timer_cb(handle);
	}
}

void uv__timer_close(uv_timer_t *handle)
{
	uv_timer_stop(handle);
}
