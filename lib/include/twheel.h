/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/**
 * DOC: libtwheel - timers with callbacks, in any event loop
 *
 * A wheel has timers, and one descriptor that becomes readable when there is something
 * to do for it. Put that into the event loop that is there already, and call
 * twheel_dispatch() when it is readable: that calls the functions of the timers that
 * are due. Or leave the loop to twheel_run()::
 *
 *	static void idle(struct twheel *w, struct twheel_timer *t, uint64_t missed)
 *	{
 *		close_connection(TWHEEL_CONTAINER(t, struct connection, timeout));
 *	}
 *
 *	twheel_open(&w, NULL);
 *	twheel_arm(w, &c->timeout, 30 * TWHEEL_SEC, idle);	// and again to push it later
 *	twheel_cancel(w, &c->timeout);
 *
 * Rules that hold for every function:
 *
 * - Every time is in nanoseconds on the clock of the wheel; TWHEEL_NEVER means never. A
 *   function is never called before its time. It is called less than one tick of the
 *   wheel after it, plus the slack that was given, if the program calls
 *   twheel_dispatch() as soon as the descriptor is readable.
 * - Functions that return an int return 0 or more, or a negative errno. A call that fails
 *   has changed nothing, unless its description says otherwise.
 * - A wheel belongs to one thread at a time. Threads take a wheel each. After fork(2)
 *   the child must leave the wheel alone, but for twheel_close(), which does not
 *   disturb the parent's.
 * - A function that is called for a timer may do anything with any timer, its own included:
 *   arm, move, cancel and free it. It may dispatch, which takes more stack each time. It may
 *   close the wheel, and must not use it after that. It must not leave by longjmp() or by an
 *   exception.
 * - A struct twheel_timer belongs to the program. Zero it once, before its first use. It may
 *   be freed, moved or reused whenever it is not armed: nothing ever refers to a timer that
 *   is not armed.
 */
#ifndef TWHEEL_H
#define TWHEEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/twheel.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TWHEEL_USEC	UINT64_C(1000)
#define TWHEEL_MSEC	UINT64_C(1000000)
#define TWHEEL_SEC	UINT64_C(1000000000)

/**
 * TWHEEL_CONTAINER() - the struct that a timer is in
 * @ptr:    address of the timer
 * @type:   type of the struct
 * @member: name of the timer in it
 *
 * Return: its address.
 */
#define TWHEEL_CONTAINER(ptr, type, member) \
	((type *)((char *)(ptr) - offsetof(type, member)))

struct twheel;
struct twheel_timer;

/**
 * typedef twheel_fn - what is called when a timer is due
 * @w:      the wheel
 * @t:      the timer. Unless it is periodic and goes on, it is not armed any more
 * @missed: of a periodic timer of TWHEEL_MISFIRE_COUNT: how many further periods have
 *          passed without a call. 0 otherwise
 */
typedef void twheel_fn(struct twheel *w, struct twheel_timer *t, uint64_t missed);

/*
 * A timer. Zero it, and leave what is in it to the library. One that is not periodic is its
 * first 48 bytes, which are best in one cache line where there are many.
 */
struct twheel_timer {
	twheel_fn *fn;
	uint64_t deadline_ns;
	uint64_t slack_ns;
	uint64_t report_by_ns;
	uint32_t slot;
	uint32_t key;
	uint64_t interval_ns;
	uint32_t count;
	uint8_t misfire;
	uint8_t resv[11];
};

/**
 * enum twheel_backend - where the timers of a wheel are
 * @TWHEEL_AUTO:   in the kernel if /dev/twheel can be opened, else in the process
 * @TWHEEL_DEVICE: in the kernel
 * @TWHEEL_LOCAL:  in the process, with one timerfd
 */
enum twheel_backend {
	TWHEEL_AUTO	= 0,
	TWHEEL_DEVICE	= 1,
	TWHEEL_LOCAL	= 2,
};

/**
 * enum twheel_clock - the clock of a wheel
 * @TWHEEL_MONOTONIC: time since boot without suspend, which nobody can set
 * @TWHEEL_BOOTTIME:  the same with suspend
 * @TWHEEL_REALTIME:  the wall clock; timers follow when it is set
 * @TWHEEL_TAI:       the wall clock without leap seconds. In the process a change of
 *                    its distance from the wall clock is seen with the next wake-up only
 * @TWHEEL_MANUAL:    begins at 0 and is moved by twheel_advance() only, for tests and
 *                    simulations
 */
enum twheel_clock {
	TWHEEL_MONOTONIC	= 0,
	TWHEEL_BOOTTIME		= 1,
	TWHEEL_REALTIME		= 2,
	TWHEEL_TAI		= 3,
	TWHEEL_MANUAL		= 4,
};

/**
 * struct twheel_options - for twheel_open(); zeroes are the defaults
 * @backend:  where the timers are
 * @clock:    which clock
 * @tick_ns:  granularity: the largest power of two that is not above this, of 4,096 ns
 *            to 1.07 s. 0: 1.05 ms
 * @slack_ns: slack of each timer that is armed without one of its own
 * @capacity: the largest number of timers at one time. 0: the default of the device, or
 *            in the process as many as there can be
 * @resv:     must be 0
 */
struct twheel_options {
	enum twheel_backend backend;
	enum twheel_clock clock;
	uint64_t tick_ns;
	uint64_t slack_ns;
	uint32_t capacity;
	uint32_t resv[7];
};

/**
 * struct twheel_spec - for twheel_arm_spec(): everything about a timer
 * @expires_ns:  when it is due first, an absolute time; TWHEEL_NEVER parks it
 * @interval_ns: the period after that. 0: it is due once
 * @slack_ns:    how much later it may be called, so that wake-ups are shared and
 *               operations saved. 0: twheel_options.slack_ns
 * @count:       how often a periodic timer is due in all, including periods that are
 *               missed. 0: until it is cancelled
 * @misfire:     what happens to periods that pass without a call, enum twheel_misfire:
 *               TWHEEL_MISFIRE_COUNT (one call, with their number), _BURST (a call for
 *               each), _SKIP (one call, without their number)
 * @resv:        must be 0
 */
struct twheel_spec {
	uint64_t expires_ns;
	uint64_t interval_ns;
	uint64_t slack_ns;
	uint32_t count;
	uint8_t misfire;
	uint8_t resv[11];
};

/**
 * struct twheel_counts - for twheel_stats(): what has been going on
 * @armed:    timers armed now
 * @pending:  timers of the kernel (or of the wheel in the process) that are held for them
 * @arms:     timers armed by the program
 * @moves:    timers that were armed again while they were armed
 * @cancels:  armed timers that were cancelled
 * @calls:    functions called
 * @records:  expiries that were read
 * @sent:     operations that were sent to acquire, set or give back timers of the kernel
 * @syscalls: system calls, except those to wait, to read the clock and to poll the
 *            descriptor
 * @resv:     0
 * @lateness: calls that were late by l ns, 2^(i-1) <= l < 2^i; [0]: not at all. What slack
 *            allows counts as late here
 */
struct twheel_counts {
	uint64_t armed;
	uint64_t pending;
	uint64_t arms;
	uint64_t moves;
	uint64_t cancels;
	uint64_t calls;
	uint64_t records;
	uint64_t sent;
	uint64_t syscalls;
	uint64_t resv[7];
	uint64_t lateness[64];
};

/**
 * twheel_open() - make a wheel
 * @w:       out: the wheel; NULL after an error
 * @options: what differs from the defaults, or NULL
 *
 * With TWHEEL_AUTO it works on any Linux, module or not.
 *
 * Return: 0. -EINVAL: wrong options. -ENOMEM, -EMFILE, -ENFILE. If the device was asked
 * for, also what open(2) and TWHEEL_IOC_SETUP say: -ENOENT (no module), -EACCES. -EPERM:
 * beyond a limit of the device, or more capacity than there can be.
 */
int twheel_open(struct twheel **w, const struct twheel_options *options);

/**
 * twheel_adopt() - make a wheel of the descriptor of another process's
 * @w:        out: the wheel; NULL after an error
 * @fd:       twheel_fd() of a wheel of the device, as it came with SCM_RIGHTS or was kept
 *            across execve(2). Is the wheel's from then on
 * @slack_ns: as of struct twheel_options
 *
 * For a process that takes the place of another one. The wheel has the clock, the tick and the
 * capacity that it was opened with. None of its timers is known to this process: arm them
 * again. That sends nothing for those that are armed for the same times, in order of these,
 * as the timers of the kernel are still there. Those of them for which none is armed expire
 * once, without a call.
 *
 * Whose wheel it was must use it no more, but for twheel_close(), which does not disturb the
 * new one. Both have to be in the same time namespace.
 *
 * Return: 0. -EBADF, -ENOTTY: @fd is no wheel of the device. -EINVAL: wrong @slack_ns. -ENOMEM.
 * After an error @fd is still the caller's; after -ENOMEM what had expired may be lost.
 */
int twheel_adopt(struct twheel **w, int fd, uint64_t slack_ns);

/**
 * twheel_close() - end a wheel
 * @w: the wheel, or NULL
 *
 * Armed timers are forgotten: their functions are not called, and the timers are not touched,
 * so that their memory may have been freed before. Zero a timer that was armed before it is
 * used with another wheel.
 */
void twheel_close(struct twheel *w);

/**
 * twheel_fd() - the descriptor to wait for
 * @w: the wheel
 *
 * It is readable, level-triggered, when twheel_dispatch() has something to do. Only
 * poll(2), select(2), epoll(7) and the like may be used with it.
 *
 * Return: the descriptor.
 */
int twheel_fd(const struct twheel *w);

/**
 * twheel_is_device() - where the timers are
 * @w: the wheel
 *
 * Return: whether they are in the kernel.
 */
bool twheel_is_device(const struct twheel *w);

/**
 * twheel_now() - the time
 * @w: the wheel
 *
 * Return: nanoseconds on the clock of the wheel.
 */
uint64_t twheel_now(const struct twheel *w);

/**
 * twheel_arm() - call a function once, after a time
 * @w:        the wheel
 * @t:        the timer. If it is armed, this moves it; the time and function that it was
 *            armed with before are forgotten
 * @delay_ns: from now
 * @fn:       the function
 *
 * Return: 0. -EINVAL: no function, a time beyond INT64_MAX other than TWHEEL_NEVER, or @t
 * is armed, but not in this wheel. If it is not armed, also -ENOSPC: the capacity is in use.
 * -ENOMEM. -EPERM: beyond a limit of the device, see user_memory_max of the module.
 */
int twheel_arm(struct twheel *w, struct twheel_timer *t, uint64_t delay_ns, twheel_fn *fn);

/**
 * twheel_arm_at() - call a function once, at a time
 * @w:          the wheel
 * @t:          the timer, as for twheel_arm()
 * @expires_ns: absolute. What has passed is due at once; TWHEEL_NEVER never
 * @fn:         the function
 *
 * Return: as twheel_arm().
 */
int twheel_arm_at(struct twheel *w, struct twheel_timer *t, uint64_t expires_ns,
		  twheel_fn *fn);

/**
 * twheel_every() - call a function again and again
 * @w:           the wheel
 * @t:           the timer, as for twheel_arm()
 * @interval_ns: the period, which is also the time until the first call; there is no
 *               drift. Not 0
 * @fn:          the function
 *
 * Return: as twheel_arm().
 */
int twheel_every(struct twheel *w, struct twheel_timer *t, uint64_t interval_ns,
		 twheel_fn *fn);

/**
 * twheel_arm_spec() - arm a timer with all of its properties
 * @w:    the wheel
 * @t:    the timer, as for twheel_arm()
 * @spec: the properties
 * @fn:   the function
 *
 * Return: as twheel_arm().
 */
int twheel_arm_spec(struct twheel *w, struct twheel_timer *t, const struct twheel_spec *spec,
		    twheel_fn *fn);

/**
 * twheel_cancel() - cancel a timer
 * @w: the wheel
 * @t: the timer
 *
 * After this its function is not called, and nothing refers to the timer.
 *
 * Return: 1 if it was armed, 0 if it was not. -EINVAL: it is armed, but not in this wheel.
 */
int twheel_cancel(struct twheel *w, struct twheel_timer *t);

/**
 * twheel_is_armed() - whether a timer is armed
 * @t: the timer
 *
 * Return: whether it is.
 */
static inline bool twheel_is_armed(const struct twheel_timer *t)
{
	return t->slot != 0;
}

/**
 * twheel_deadline() - when a timer is due next
 * @t: the timer
 *
 * Return: the time; TWHEEL_NEVER if it is not armed.
 */
static inline uint64_t twheel_deadline(const struct twheel_timer *t)
{
	return t->slot ? t->deadline_ns : TWHEEL_NEVER;
}

/**
 * twheel_dispatch() - call what is due
 * @w:   the wheel
 * @max: the most functions that are called; 0 for all that are due
 *
 * Does not wait. If it stops at @max the descriptor stays readable. It also stays readable if
 * timers have several periods to make up for (TWHEEL_MISFIRE_BURST): one dispatch does not call
 * many more functions than there are timers. While a function runs, the descriptor does not
 * tell what is due: a function that wants to wait for it has to dispatch first.
 *
 * Return: how many were called. -EINVAL: @max is negative. Other errors only if something was
 * done to the descriptor that may not be; functions may have been called before.
 */
int twheel_dispatch(struct twheel *w, int max);

/**
 * twheel_flush() - send operations that wait to be sent to the kernel
 * @w: the wheel
 *
 * Never needed: operations that wait are sent in time. It is for programs that are about to
 * stop running for long, or want to know that the kernel has accepted everything.
 *
 * Return: 0, or an error as of twheel_dispatch().
 */
int twheel_flush(struct twheel *w);

/**
 * twheel_next() - when twheel_dispatch() is to be called next
 * @w: the wheel
 *
 * For programs that cannot wait for a descriptor, and for simulations. Nothing is due before
 * that time; at that time there may be nothing due either, if timers were moved or cancelled.
 *
 * Return: the time, TWHEEL_NEVER if there is none.
 */
uint64_t twheel_next(struct twheel *w);

/**
 * twheel_run() - dispatch until no timer is armed, or until twheel_stop()
 * @w: the wheel; not of a manual clock, which nobody would move: -EINVAL
 *
 * Return: 0, or an error of poll(2) or of twheel_dispatch(); -EINTR if a signal came.
 */
int twheel_run(struct twheel *w);

/**
 * twheel_stop() - have twheel_run() return
 * @w: the wheel
 *
 * It returns when all that is due has been called. For functions that it calls, not for other
 * threads or signal handlers.
 */
void twheel_stop(struct twheel *w);

/**
 * twheel_advance() - move the manual clock
 * @w:     the wheel
 * @to_ns: the new time, not before the present one. Timers whose tick has begun by then
 *         are called by the next twheel_dispatch()
 *
 * Return: 0. -EINVAL: not a manual clock, or backwards.
 */
int twheel_advance(struct twheel *w, uint64_t to_ns);

/**
 * twheel_stats() - tell what has been going on
 * @w:      the wheel
 * @counts: out: see struct twheel_counts
 */
void twheel_stats(const struct twheel *w, struct twheel_counts *counts);

#ifdef __cplusplus
}
#endif

#endif /* TWHEEL_H */
