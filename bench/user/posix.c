// SPDX-License-Identifier: GPL-2.0
/*
 * posix.c - peer: POSIX timers, whose signals are read from a signalfd
 *
 * Each timer holds a queued signal from its creation on, so RLIMIT_SIGPENDING bounds
 * how many there can be; main() raises it.
 */
#include "bench.h"

#include <signal.h>
#include <sys/signalfd.h>

#define EVENTS	256

static struct {
	int fd;
	__u32 nr;
	timer_t *ids;
} all;

static bool posix_open(const struct peer *p, __u32 n)
{
	sigset_t set;

	(void)p;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &set, NULL);
	all.fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (all.fd < 0)
		return false;
	all.nr = 0;
	all.ids = xcalloc(n, sizeof(*all.ids));
	return true;
}

static void posix_close(void)
{
	struct timespec none = { };
	sigset_t set;

	/* Last in, first out: older kernels walk a list of those made later. */
	while (all.nr)
		timer_delete(all.ids[--all.nr]);
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	while (sigtimedwait(&set, NULL, &none) > 0)
		;
	close(all.fd);
	free(all.ids);
}

static bool set(timer_t id, __u64 when)
{
	struct itimerspec its = { .it_value = to_timespec(when) };

	return !timer_settime(id, TIMER_ABSTIME, &its, NULL);
}

/* The objects must be made in order, once. */
static __u32 posix_make(const __u32 *idx, const __u64 *when, __u32 n)
{
	struct sigevent sev = {
		.sigev_notify = SIGEV_SIGNAL,
		.sigev_signo = SIGRTMIN,
	};
	__u32 k;

	for (k = 0; k < n; k++) {
		sev.sigev_value.sival_int = idx[k];
		if (timer_create(CLOCK_MONOTONIC, &sev, &all.ids[all.nr]))
			break;
		if (!set(all.ids[all.nr++], when[k]))
			break;
	}
	return k;
}

static __u32 posix_set(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;

	for (k = 0; k < n && set(all.ids[idx[k]], when[k]); k++)
		;
	return k;
}

static __u32 posix_cancel(const __u32 *idx, const __u64 *when, __u32 n)
{
	__u32 k;

	(void)when;
	for (k = 0; k < n && set(all.ids[idx[k]], 0); k++)
		;
	return k;
}

static void posix_reap(void)
{
	static struct signalfd_siginfo info[EVENTS];
	ssize_t nr = read(all.fd, info, sizeof(info));
	ssize_t k;

	if (nr <= 0)
		errx(1, "read of a signalfd: %s", strerror(errno));
	woken();
	for (k = 0; k < nr / (ssize_t)sizeof(*info); k++)
		fired(info[k].ssi_int);
}

const struct peer posix_peer = {
	.name = "posix",
	.groups = GROUP_COMMON & ~GROUP_WAKEUPS,
	.batch = 1,
	.step = 256,
	.open = posix_open,
	.create = posix_make,
	.arm = posix_set,
	.move = posix_set,
	.cancel = posix_cancel,
	.reap = posix_reap,
	.close = posix_close,
};
