// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Instead of the heap of ev_timers in ev.c of libev 4.33, which includes this. "test" has
 * what else is changed: that an ev_timer has a loop_timer, and who calls what is new here.
 */
struct ev_timers {
	struct loop_timers all;
	ev_io io;
};

static uint64_t timers_ns(ev_tstamp at)
{
	return at <= 0 ? 0 : at < INT64_MAX / TWHEEL_SEC ? at * TWHEEL_SEC : TWHEEL_NEVER;
}

/* The timers are looked for in each pass, before watchers are called. */
static void timers_wake(EV_P_ ev_io *io, int events)
{
	(void)io;
	(void)events;
	timers->all.stale = true;
}

/* The loop does not live on because of this, and only the least of idle watchers waits. */
static void timers_watch(EV_P)
{
	ev_io_init(&timers->io, timers_wake, twheel_fd(timers->all.w), EV_READ);
	ev_set_priority(&timers->io, EV_MINPRI);
	ev_io_start(EV_A_ &timers->io);
	ev_unref(EV_A);
}

/* As libev does without memory. */
static void timers_must(int ret)
{
	if (!ret)
		return;
	fprintf(stderr, "libev: timers: %s\n", strerror(-ret));
	abort();
}

/* Of loop_init(). */
static void timers_open(EV_P)
{
	timers = ev_malloc(sizeof(*timers));
	timers_must(loop_timers_open(&timers->all));
	timers_watch(EV_A);
}

/* Of ev_loop_destroy(), when nobody watches any more. */
static void timers_close(EV_P)
{
	loop_timers_close(&timers->all);
	ev_free(timers);
	timers = NULL;
	timercnt = 0;
}

/* Of loop_fork(), when the epoll is the child's own already. */
static void timers_fork(EV_P)
{
	ev_ref(EV_A);
	ev_io_stop(EV_A_ &timers->io);
	timers_must(loop_timers_fork(&timers->all));
	timers_watch(EV_A);
}

static void timers_verify_list(EV_P_ const struct loop_timer *head, int *nr)
{
	struct loop_timer *t;

	for (t = head->next; t != head; t = t->next, ++*nr)
		verify_watcher(EV_A_ (W)TWHEEL_CONTAINER(t, ev_timer, wheel));
}

static void timers_verify(EV_P)
{
	int nr = 0;

	timers_verify_list(EV_A_ &timers->all.armed, &nr);
	timers_verify_list(EV_A_ &timers->all.due, &nr);
	assert(("libev: timers are lost", nr == timercnt));
}

/* How long to wait: the descriptor of the wheel wakes the loop up for what is armed. */
static ev_tstamp timers_wait(EV_P)
{
	uint64_t at_ns = loop_timers_wait(&timers->all);

	return at_ns == TWHEEL_NEVER ? MAX_BLOCKTIME2 : (ev_tstamp)at_ns / TWHEEL_SEC - mn_now;
}

static void timers_start(EV_P_ ev_timer *w)
{
	timers_must(loop_timer_start(&timers->all, &w->wheel, timers_ns(ev_at(w))));
}

/* Without a monotonic clock, which Linux has. */
static void timers_reschedule(EV_P_ ev_tstamp adjust)
{
	(void)EV_A;
	(void)adjust;
	timers_must(-EOPNOTSUPP);
}

/* What is due right now is due the next time: libev wants time to have passed. */
static void timers_reify(EV_P)
{
	struct loop_timer *first;
	bool any = false;
	ev_timer *w;

	if (ev_is_pending(&timers->io)) {
		clear_pending(EV_A_ (W)&timers->io);
		timers->all.stale = true;
	}
	while ((first = loop_timers_first(&timers->all, timers_ns(mn_now) - 1))) {
		w = TWHEEL_CONTAINER(first, ev_timer, wheel);
		if (w->repeat) {
			ev_at(w) += w->repeat;
			if (ev_at(w) < mn_now)
				ev_at(w) = mn_now;
			timers_start(EV_A_ w);
		} else {
			ev_timer_stop(EV_A_ w);
		}
		feed_reverse(EV_A_ (W)w);
		any = true;
	}
	if (any)
		feed_reverse_done(EV_A_ EV_TIMER);
}

void ev_timer_start(EV_P_ ev_timer *w) EV_NOEXCEPT
{
	if (ev_is_active(w))
		return;
	assert(("libev: negative repeat of an ev_timer", w->repeat >= 0));
	ev_at(w) += mn_now;
	memset(&w->wheel, 0, sizeof(w->wheel));
	timers_start(EV_A_ w);
	timercnt++;
	ev_start(EV_A_ (W)w, 1);
}

void ev_timer_stop(EV_P_ ev_timer *w) EV_NOEXCEPT
{
	clear_pending(EV_A_ (W)w);
	if (!ev_is_active(w))
		return;
	loop_timer_stop(&w->wheel);
	timercnt--;
	ev_at(w) -= mn_now;
	ev_stop(EV_A_ (W)w);
}

void ev_timer_again(EV_P_ ev_timer *w) EV_NOEXCEPT
{
	clear_pending(EV_A_ (W)w);
	if (!w->repeat) {
		ev_timer_stop(EV_A_ w);
	} else if (ev_is_active(w)) {
		ev_at(w) = mn_now + w->repeat;
		timers_start(EV_A_ w);
	} else {
		ev_at(w) = w->repeat;
		ev_timer_start(EV_A_ w);
	}
}
