/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * The timers of an event loop whose own were taken out: on a wheel.
 *
 * Loops promise more than a wheel does: that timers are called in the order of their times,
 * those of one time in the order in which they were started, and that the time is what the
 * loop says, which looks at the clock once in a pass. So what the wheel calls is put on a
 * list in that order, from which the loop takes what is due by its own time.
 *
 * In the environment, TWHEEL_SUITE_BACKEND is "local" or "device"; to the file
 * TWHEEL_SUITE_STATS every loop that is closed adds a line of what its wheel has done.
 */
#ifndef LIBTWHEEL_SUITES_TIMERS_H
#define LIBTWHEEL_SUITES_TIMERS_H

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <twheel.h>
#include <unistd.h>

/**
 * struct loop_timer - a timer, zeroed before its first use
 * @timer: in the wheel
 * @of:    the loop's
 * @next:  on one of its lists; NULL if it is not started
 * @prev:  on that
 * @at_ns: when it is due
 * @nr:    how many were started before it
 */
struct loop_timer {
	struct twheel_timer timer;
	struct loop_timers *of;
	struct loop_timer *next;
	struct loop_timer *prev;
	uint64_t at_ns;
	uint64_t nr;
};

/**
 * struct loop_timers - all timers of a loop
 * @w:      the wheel
 * @armed:  list of those that are armed in it
 * @due:    list of those that it has called, in order
 * @now_ns: the time of the loop when it asked last
 * @stale:  something may be due by then as well: started since, or the descriptor tells so
 * @nr:     how many were started
 */
struct loop_timers {
	struct twheel *w;
	struct loop_timer armed;
	struct loop_timer due;
	uint64_t now_ns;
	bool stale;
	uint64_t nr;
};

static inline void loop_timer_insert(struct loop_timer *t, struct loop_timer *before)
{
	t->next = before;
	t->prev = before->prev;
	t->prev->next = t;
	before->prev = t;
}

static inline void loop_timer_remove(struct loop_timer *t)
{
	t->next->prev = t->prev;
	t->prev->next = t->next;
	t->next = NULL;
}

static inline bool loop_timer_is_before(const struct loop_timer *a, const struct loop_timer *b)
{
	return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->nr < b->nr);
}

static inline void loop_timer_is_due(struct twheel *w, struct twheel_timer *timer,
				     uint64_t missed)
{
	struct loop_timer *t = TWHEEL_CONTAINER(timer, struct loop_timer, timer);
	struct loop_timer *head = &t->of->due, *before = head;

	(void)w;
	(void)missed;
	while (before->prev != head && loop_timer_is_before(t, before->prev))
		before = before->prev;
	loop_timer_remove(t);
	loop_timer_insert(t, before);
}

/* Starts @t, anew if it is started. 0 or a negative errno. */
static inline int loop_timer_start(struct loop_timers *l, struct loop_timer *t, uint64_t at_ns)
{
	int ret = twheel_arm_at(l->w, &t->timer, at_ns, loop_timer_is_due);

	if (ret)
		return ret;
	if (t->next)
		loop_timer_remove(t);
	t->of = l;
	t->at_ns = at_ns;
	t->nr = l->nr++;
	l->stale |= at_ns <= l->now_ns;
	loop_timer_insert(t, &l->armed);
	return 0;
}

static inline void loop_timer_stop(struct loop_timer *t)
{
	if (!t->next)
		return;
	twheel_cancel(t->of->w, &t->timer);
	loop_timer_remove(t);
}

/* The first timer that is due at @now_ns, which stays started; NULL if there is none. */
static inline struct loop_timer *loop_timers_first(struct loop_timers *l, uint64_t now_ns)
{
	if (l->stale || l->now_ns != now_ns) {
		l->now_ns = now_ns;
		l->stale = false;
		twheel_dispatch(l->w, 0);
	}
	return l->due.next != &l->due && l->due.next->at_ns <= now_ns ? l->due.next : NULL;
}

/* What the loop has to wait for besides the descriptor: a time, TWHEEL_NEVER if nothing. */
static inline uint64_t loop_timers_wait(const struct loop_timers *l)
{
	return l->due.next != &l->due ? l->due.next->at_ns : TWHEEL_NEVER;
}

static inline int loop_timers_open_wheel(struct loop_timers *l)
{
	const char *backend = getenv("TWHEEL_SUITE_BACKEND");
	struct twheel_options options = { .tick_ns = 1 };	/* the least that there is */

	if (backend)
		options.backend = strcmp(backend, "local") ? TWHEEL_DEVICE : TWHEEL_LOCAL;
	return twheel_open(&l->w, &options);
}

/* 0 or a negative errno */
static inline int loop_timers_open(struct loop_timers *l)
{
	memset(l, 0, sizeof(*l));
	l->armed.next = &l->armed;
	l->armed.prev = &l->armed;
	l->due.next = &l->due;
	l->due.prev = &l->due;
	return loop_timers_open_wheel(l);
}

static inline void loop_timers_report(const struct loop_timers *l)
{
	const char *path = getenv("TWHEEL_SUITE_STATS");
	struct twheel_counts c;
	int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;

	if (fd < 0)
		return;
	twheel_stats(l->w, &c);
	dprintf(fd, "operations %" PRIu64 " calls %" PRIu64 " sent %" PRIu64 " syscalls %" PRIu64
		"\n", c.arms + c.moves + c.cancels, c.calls, c.sent, c.syscalls);
	close(fd);
}

static inline void loop_timers_close(struct loop_timers *l)
{
	loop_timers_report(l);
	twheel_close(l->w);
}

/* A child of fork() takes a wheel of its own, and all timers along. 0 or a negative errno. */
static inline int loop_timers_fork(struct loop_timers *l)
{
	struct loop_timer *t;
	int ret;

	twheel_close(l->w);
	ret = loop_timers_open_wheel(l);
	for (t = l->armed.next; !ret && t != &l->armed; t = t->next) {
		memset(&t->timer, 0, sizeof(t->timer));
		ret = twheel_arm_at(l->w, &t->timer, t->at_ns, loop_timer_is_due);
	}
	return ret;
}

#endif /* LIBTWHEEL_SUITES_TIMERS_H */
