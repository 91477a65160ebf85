// SPDX-License-Identifier: GPL-2.0
/*
 * calls.c - system calls that a peer makes for its timers, and a clock that stands
 *
 * The linker has these called in place of the library's (--wrap), by the peers' libraries
 * as well.
 */
#include "bench.h"
#include "calls.h"

#include <stdarg.h>
#include <sys/timerfd.h>

static __u64 nr_calls;
static bool stands;
static struct timespec stands_at;

/* How many there were so far. */
__u64 timer_calls(void)
{
	return nr_calls;
}

/*
 * In user-mode Linux a look at the clock is a system call, and dear; elsewhere the vDSO
 * reads the processor's counter. Where no time passes while a program runs, it needs to
 * look but once.
 */
void clock_stand(bool stand)
{
	stands = stand && config.tsc_khz;
	if (stands)
		__real_clock_gettime(CLOCK_MONOTONIC, &stands_at);
}

int __wrap_clock_gettime(clockid_t clockid, struct timespec *ts)
{
	if (!stands || clockid != CLOCK_MONOTONIC)
		return __real_clock_gettime(clockid, ts);
	cpu_ticks();
	*ts = stands_at;
	return 0;
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	nr_calls++;
	return __real_ioctl(fd, request, arg);
}

ssize_t __wrap_read(int fd, void *buf, size_t size)
{
	nr_calls++;
	return __real_read(fd, buf, size);
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *to,
			   struct itimerspec *old)
{
	nr_calls++;
	return __real_timerfd_settime(fd, flags, to, old);
}
