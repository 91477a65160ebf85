/* SPDX-License-Identifier: GPL-2.0 */
/*
 * One epoll loop, in which everything runs. Timers are libtwheel's, on CLOCK_BOOTTIME.
 */
#ifndef TWHEELD_LOOP_H
#define TWHEELD_LOOP_H

#include <stdint.h>
#include <twheel.h>

struct loop_fd;
typedef void loop_fn(struct loop_fd *fd, uint32_t events);

/** struct loop_fd - a descriptor; embedded in whose it is */
struct loop_fd {
	loop_fn *fn;
	int fd;
	uint32_t events;	/* EPOLLIN and so on; 0 while it is not in the loop */
};

struct epoll_event;

/** struct loop_wheel - a wheel of timers that is in the loop */
struct loop_wheel {
	struct twheel *wheel;
	struct loop_fd fd;
};

/**
 * struct loop - the loop
 * @wheel: for timers; there may be others, see loop_set_wheel()
 * @idle:  called before each wait, NULL or a function; what was put together in this turn
 *         can be sent there
 * @arg:   for that
 * @epoll_fd: what it waits for
 * @stopped:  by loop_stop()
 *
 * All else is loop.c's.
 */
struct loop {
	struct twheel *wheel;
	int epoll_fd;
	int stopped;
	void (*idle)(void *arg);
	void *arg;

	/* private: */
	struct loop_wheel timers;
	struct epoll_event *batch;	/* what was waited for and is being told */
	int nr_batch;
};

/* @capacity: as twheel_options has it. 0 or a negative errno. */
int loop_open(struct loop *loop, enum twheel_backend backend, uint32_t capacity);
void loop_close(struct loop *loop);

/*
 * Adds, changes or, with no @events, removes. A descriptor is removed before it is closed; a
 * function may remove and free any, its own too: what was waited for is not told then.
 */
void loop_set(struct loop *loop, struct loop_fd *fd, uint32_t events);

/*
 * Has @wheel, on CLOCK_BOOTTIME, dispatched in the loop, in the place of the one that @w has, if
 * any, which is closed. With NULL there is none.
 */
void loop_set_wheel(struct loop *loop, struct loop_wheel *w, struct twheel *wheel);

/* Somebody has closed it, which removed it as well. Nothing else may be opened before. */
void loop_closed(struct loop *loop, struct loop_fd *fd);

/* Until loop_stop(), which ends it before the next call. 0 or a negative errno. */
int loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/* As twheel_arm(), for timers without which there is no going on: if it fails the process ends. */
void loop_arm(struct loop *loop, struct twheel_timer *timer, uint64_t delay_ns, twheel_fn *fn);

/* CLOCK_BOOTTIME, in ns. */
uint64_t boottime_ns(void);

#endif
