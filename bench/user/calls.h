/* SPDX-License-Identifier: GPL-2.0 */
/*
 * calls.h - what the linker puts in the place of a function, and what it calls the function
 * itself: see "--wrap" of ld(1)
 */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <sys/types.h>
#include <time.h>

int __real_clock_gettime(clockid_t clockid, struct timespec *ts);
int __real_ioctl(int fd, unsigned long request, ...);
ssize_t __real_read(int fd, void *buf, size_t size);
int __real_timerfd_settime(int fd, int flags, const struct itimerspec *to,
			   struct itimerspec *old);

int __wrap_clock_gettime(clockid_t clockid, struct timespec *ts);
int __wrap_ioctl(int fd, unsigned long request, ...);
ssize_t __wrap_read(int fd, void *buf, size_t size);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *to,
			   struct itimerspec *old);

#endif /* BENCH_CALLS_H */
