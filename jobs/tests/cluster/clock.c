// SPDX-License-Identifier: GPL-2.0
/*
 * Clocks that are wrong, for a process that has this preloaded. CLOCKS is a file of struct
 * clocks, which is mapped: it may be changed at any time, and is seen at once.
 *
 * libfaketime is no use for a node: it takes each timerfd for one of the wall clock.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define SEC	1000000000LL

/**
 * struct clocks - how wrong they are
 * @by_ns:   the wall clock is ahead by so much
 * @from_ns: of CLOCK_BOOTTIME: when the others began to go wrong
 * @rate:    how fast CLOCK_BOOTTIME, CLOCK_MONOTONIC and timers of these go
 */
struct clocks {
	int64_t by_ns;
	int64_t from_ns;
	double rate;
};

static const struct clocks right = { .rate = 1 };
static const struct clocks *clocks = &right;

static void __attribute__((constructor)) open_clocks(void)
{
	const char *path = getenv("CLOCKS");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *at;

	if (fd < 0)
		return;
	at = mmap(NULL, sizeof(*clocks), PROT_READ, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED)
		clocks = at;
	close(fd);
}

static int64_t to_ns(const struct timespec *t)
{
	return t->tv_sec * SEC + t->tv_nsec;
}

static struct timespec from_ns(int64_t ns)
{
	return (struct timespec){ ns / SEC, ns % SEC };
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	int ret = (int)syscall(SYS_clock_gettime, id, t);
	int64_t past;

	if (ret)
		return ret;
	past = to_ns(t) - clocks->from_ns;
	if (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)
		*t = from_ns(to_ns(t) + __atomic_load_n(&clocks->by_ns, __ATOMIC_RELAXED));
	else if (id == CLOCK_BOOTTIME || id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_COARSE)
		*t = from_ns(clocks->from_ns + (int64_t)((double)past * clocks->rate));
	return 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	struct timespec now;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	*t = (struct timeval){ now.tv_sec, now.tv_nsec / 1000 };
	return 0;
}

time_t time(time_t *to)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (to)
		*to = now.tv_sec;
	return now.tv_sec;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *new, struct itimerspec *old)
{
	int64_t ns = to_ns(&new->it_value), from = flags & TFD_TIMER_ABSTIME ? clocks->from_ns : 0;
	struct itimerspec real = *new;

	if (ns)
		ns = from + (int64_t)((double)(ns - from) / clocks->rate);
	real.it_value = from_ns(ns);
	return (int)syscall(SYS_timerfd_settime, fd, flags, &real, old);
}
