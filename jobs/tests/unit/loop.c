// SPDX-License-Identifier: GPL-2.0
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/time.h>
#include <signal.h>
#include <unistd.h>

#include "../tap.h"
#include "buf.h"
#include "loop.h"

#define NR	10

/* A pipe that is readable from the beginning. */
struct source {
	struct loop_fd fd;
	int write_fd;
	int calls;
};

static struct loop loop;
static struct source *sources[NR];
static int calls, turns;

static struct source *make_source(loop_fn *fn)
{
	struct source *s = xcalloc(1, sizeof(*s));
	int fds[2];

	if (pipe(fds) || write(fds[1], "x", 1) != 1)
		exit(1);
	s->fd.fd = fds[0];
	s->fd.fn = fn;
	s->write_fd = fds[1];
	loop_set(&loop, &s->fd, EPOLLIN);
	return s;
}

static void end_source(struct source *s)
{
	loop_set(&loop, &s->fd, 0);
	close(s->fd.fd);
	close(s->write_fd);
	free(s);
}

static void stop(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)w;
	(void)t;
	(void)missed;
	loop_stop(&loop);
}

/* What is waiting is told, and then one turn more. */
static void turn(void)
{
	struct twheel_timer timer = { 0 };

	loop.stopped = 0;
	loop_arm(&loop, &timer, 5 * TWHEEL_MSEC, stop);
	loop_run(&loop);
}

/* The first one that is called removes and frees all, itself too. */
static void free_all(struct loop_fd *fd, uint32_t events)
{
	int i;

	(void)fd;
	(void)events;
	calls++;
	for (i = 0; i < NR; i++)
		end_source(sources[i]);
}

static void removal(void)
{
	int i;

	for (i = 0; i < NR; i++)
		sources[i] = make_source(free_all);
	turn();
	ok(calls == 1, "what was removed and freed is not called for what was waited for");
}

static void count_and_remove(struct loop_fd *fd, uint32_t events)
{
	(void)events;
	((struct source *)fd)->calls++;
	loop_set(&loop, fd, 0);
}

/* The same struct for another descriptor, which has nothing to tell. */
static void replace_others(struct loop_fd *fd, uint32_t events)
{
	char c;
	int i;

	(void)events;
	for (i = 0; i < NR; i++) {
		if (&sources[i]->fd == fd)
			continue;
		loop_set(&loop, &sources[i]->fd, 0);
		if (read(sources[i]->fd.fd, &c, 1) != 1)
			exit(1);
		sources[i]->fd.fn = count_and_remove;
		loop_set(&loop, &sources[i]->fd, EPOLLIN);
	}
	loop_set(&loop, fd, 0);
}

static void replacement(void)
{
	int i, sum = 0;

	for (i = 0; i < NR; i++)
		sources[i] = make_source(replace_others);
	turn();
	for (i = 0; i < NR; i++) {
		sum += sources[i]->calls;
		end_source(sources[i]);
	}
	ok(!sum, "what was removed and added again is not called for what was before");
}

static void not_out(struct loop_fd *fd, uint32_t events)
{
	(void)fd;
	calls += !!(events & EPOLLOUT);
	loop_set(&loop, fd, 0);
}

/* Whichever comes first takes EPOLLOUT from the other. */
static void take_out(struct loop_fd *fd, uint32_t events)
{
	int i;

	(void)events;
	for (i = 0; i < 2; i++) {
		sources[i]->fd.fn = not_out;
		if (&sources[i]->fd != fd)
			loop_set(&loop, &sources[i]->fd, EPOLLIN);
	}
	loop_set(&loop, fd, 0);
}

static void change(void)
{
	struct loop_fd fds[2];
	int i;

	calls = 0;
	for (i = 0; i < 2; i++) {
		sources[i] = make_source(take_out);
		loop_set(&loop, &sources[i]->fd, 0);
		fds[i] = sources[i]->fd;
		sources[i]->fd.fd = sources[i]->write_fd;
		loop_set(&loop, &sources[i]->fd, EPOLLOUT);
	}
	turn();
	ok(!calls, "what is not waited for any more is not told");
	for (i = 0; i < 2; i++) {
		loop_set(&loop, &sources[i]->fd, 0);
		sources[i]->fd.fd = fds[i].fd;
		end_source(sources[i]);
	}
}

static void stop_first(struct loop_fd *fd, uint32_t events)
{
	(void)fd;
	(void)events;
	calls++;
	loop_stop(&loop);
}

static void stopping(void)
{
	int i;

	for (i = 0; i < NR; i++)
		sources[i] = make_source(stop_first);
	calls = 0;
	loop.stopped = 0;
	ok(!loop_run(&loop) && calls == 1, "nothing is called after the loop was stopped");
	for (i = 0; i < NR; i++)
		end_source(sources[i]);
	loop_stop(&loop);
	ok(!loop_run(&loop), "a loop that was stopped before does not begin");
}

static void idle(void *arg)
{
	turns += *(int *)arg;
}

static void idling(void)
{
	struct source *s = make_source(count_and_remove);
	int one = 1;

	loop.idle = idle;
	loop.arg = &one;
	turn();
	ok(s->calls == 1 && turns >= 2,
	   "before each wait it is told that there is nothing left to do");
	loop.idle = NULL;
	end_source(s);
}

static uint64_t fired_ns;

static void fired(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	fired_ns = boottime_ns();
	stop(w, t, missed);
}

static void timers(void)
{
	struct twheel_timer timer = { 0 };
	uint64_t began = boottime_ns();

	loop.stopped = 0;
	loop_arm(&loop, &timer, 20 * TWHEEL_MSEC, fired);
	loop_run(&loop);
	ok(fired_ns >= began + 20 * TWHEEL_MSEC, "a timer is not early");
}

static atomic_int alarms;

static void alarmed(int signo)
{
	(void)signo;
	alarms++;
}

static void signals(void)
{
	struct itimerval interval = { { 0, 2000 }, { 0, 2000 } };
	struct sigaction action = { .sa_handler = alarmed };
	struct twheel_timer timer = { 0 };
	int error;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &interval, NULL);
	loop.stopped = 0;
	loop_arm(&loop, &timer, 100 * TWHEEL_MSEC, fired);
	error = loop_run(&loop);
	memset(&interval, 0, sizeof(interval));
	setitimer(ITIMER_REAL, &interval, NULL);
	ok(!error && alarms, "a signal does not end the loop");
}

int main(void)
{
	if (loop_open(&loop, TWHEEL_LOCAL, 0))
		return 1;
	removal();
	replacement();
	change();
	stopping();
	idling();
	timers();
	signals();
	loop_close(&loop);
	return done_testing();
}
