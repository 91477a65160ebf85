// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * The headers that put a wheel into an event loop, with the loops themselves: by HAVE_epoll,
 * HAVE_event, HAVE_ev or HAVE_uv, of which there can be one at a time.
 */
#include <errno.h>
#include <unistd.h>
#include <twheel.h>

#include "kselftest_harness.h"

#define NR	50

static struct twheel_timer timers[NR];
static int calls;
static void (*stop)(void);

static void count(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)w;
	(void)t;
	(void)missed;
	calls++;
	if (calls == NR)
		stop();
}

FIXTURE(wheel) {
	struct twheel *w;
};

FIXTURE_SETUP(wheel)
{
	int i;

	calls = 0;
	ASSERT_EQ(0, twheel_open(&self->w, NULL));
	for (i = 0; i < NR; i++)
		ASSERT_EQ(0, twheel_arm(self->w, &timers[i], i * TWHEEL_MSEC, count));
}

FIXTURE_TEARDOWN(wheel)
{
	twheel_close(self->w);
}

#ifdef HAVE_epoll
#include <twheel/epoll.h>

static bool stopped;

static void stop_epoll(void)
{
	stopped = true;
}

TEST_F(wheel, epoll_dispatches_it)
{
	struct epoll_event event;
	int ep = epoll_create1(EPOLL_CLOEXEC);

	stop = stop_epoll;
	ASSERT_EQ(0, twheel_epoll_add(ep, self->w));
	while (!stopped) {
		ASSERT_EQ(1, epoll_wait(ep, &event, 1, 10000));
		ASSERT_EQ(self->w, event.data.ptr);
		ASSERT_LE(0, twheel_dispatch(event.data.ptr, 0));
	}
	EXPECT_EQ(NR, calls);
	close(ep);
}

TEST_F(wheel, what_cannot_be_watched_is_told)
{
	EXPECT_EQ(-EBADF, twheel_epoll_add(-1, self->w));
}
#endif

#ifdef HAVE_event
#include <twheel/event.h>

static struct event_base *base;

static void stop_libevent(void)
{
	event_base_loopbreak(base);
}

TEST_F(wheel, libevent_dispatches_it)
{
	struct event *event;

	stop = stop_libevent;
	base = event_base_new();
	event = twheel_event_add(base, self->w);
	ASSERT_NE(NULL, event);
	event_base_dispatch(base);
	EXPECT_EQ(NR, calls);
	event_free(event);
	event_base_free(base);
}
#endif

#ifdef HAVE_ev
#include <twheel/ev.h>

static void stop_libev(void)
{
	ev_break(EV_DEFAULT_UC_ EVBREAK_ALL);
}

TEST_F(wheel, libev_dispatches_it)
{
	struct ev_loop *loop = EV_DEFAULT;
	ev_io io;

	stop = stop_libev;
	twheel_ev_start(EV_A_ &io, self->w);
	ev_run(EV_A_ 0);
	EXPECT_EQ(NR, calls);
	ev_io_stop(EV_A_ &io);
	ev_loop_destroy(loop);
}
#endif

#ifdef HAVE_uv
#include <twheel/uv.h>

static void stop_libuv(void)
{
	uv_stop(uv_default_loop());
}

TEST_F(wheel, libuv_dispatches_it)
{
	uv_loop_t *loop = uv_default_loop();
	uv_poll_t poll;

	stop = stop_libuv;
	ASSERT_EQ(0, twheel_uv_start(loop, &poll, self->w));
	uv_run(loop, UV_RUN_DEFAULT);
	EXPECT_EQ(NR, calls);
	uv_close((uv_handle_t *)&poll, NULL);
	uv_run(loop, UV_RUN_DEFAULT);
	uv_loop_close(loop);
}
#endif

TEST_HARNESS_MAIN
