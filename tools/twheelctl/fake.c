// SPDX-License-Identifier: GPL-2.0
/*
 * A device that breaks its promises, to see that twheelctl notices. It takes the
 * place of /dev/twheel at link time (--wrap). Time is virtual on every clock and
 * moves when the program sleeps. TWHEEL_FAKE names what goes wrong:
 *
 *   early   records are a nanosecond early
 *   lose    the second timer is forgotten when it expires
 *   forget  ... and with it all the others
 *   double  the second record comes twice
 *   more    a periodic timer expires once too often
 *   less    ... and once too seldom
 *   stuck   nothing ever fires
 *   noread  read fails
 *   noarm   the third arm fails
 *   INT     the program gets SIGINT when it sleeps
 *   TERM    ... or SIGTERM
 *   back    the clock is set back by 50 s when 100 s have passed
 *   ahead   ... and ahead by an hour
 *   errno N open fails with that
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/twheel.h>

#include "fake.h"

#define TIMERS	16
#define EVENTS	256
#define TICK	1048576ULL

static struct twheel_op timers[TIMERS];
static struct twheel_event events[EVENTS];
static unsigned int armed, nr_timers, ready, last_id;
static int tells_of_sets;
static unsigned long long now = 1000000;
static int wheel = -1, clockid = 1;

static int breaks(const char *how)
{
	const char *env = getenv("TWHEEL_FAKE");

	return env && !strcmp(env, how);
}

static unsigned long long next_expiry(void)
{
	unsigned long long next = TWHEEL_NEVER;
	unsigned int i;

	for (i = 0; i < nr_timers; i++)
		if (timers[i].id && timers[i].expires_ns < next)
			next = timers[i].expires_ns;
	return next == TWHEEL_NEVER ? next : (next + TICK - 1) / TICK * TICK;
}

static void fire(struct twheel_op *op)
{
	struct twheel_event ev = {
		.id = op->id,
		.user_data = op->user_data,
		.expires_ns = op->expires_ns,
		.fired_ns = breaks("early") ? op->expires_ns - 1 : now,
	};
	int extra = breaks("more") ? 1 : breaks("less") ? -1 : 0;

	op->res++;
	if (op->interval_ns &&
	    (!op->count || op->res < (int)op->count + extra)) {
		ev.flags = TWHEEL_EV_MORE;
		op->expires_ns += op->interval_ns;
	} else {
		op->id = 0;
		armed--;
	}
	if (ev.user_data == 1 && (breaks("lose") || breaks("forget"))) {
		armed = breaks("forget") ? 0 : armed;
		nr_timers = breaks("forget") ? 0 : nr_timers;
		return;
	}
	events[ready++] = ev;
	if (ready == 2 && breaks("double"))
		events[ready++] = ev;
}

/* What stands before the timers that are due then */
static void set_clock(void)
{
	static int done;
	long long jump = breaks("back") ? -50 : breaks("ahead") ? 3600 : 0;

	if (done || !jump || now < 100000000000ULL)
		return;
	done = 1;
	now += jump * 1000000000LL;
	if (tells_of_sets)
		events[ready++] = (struct twheel_event){
			.flags = TWHEEL_EV_CLOCK_SET,
			.fired_ns = now,
		};
}

static void advance(unsigned long long to)
{
	unsigned int i;

	now = to;
	set_clock();
	for (i = 0; i < nr_timers && !breaks("stuck"); i++)
		if (timers[i].id && timers[i].expires_ns <= now)
			fire(&timers[i]);
}

static int arm(struct twheel_op *op)
{
	unsigned int i;

	if (breaks("noarm") && armed == 2) {
		errno = ENOMEM;
		return -1;
	}
	for (i = 0; i < nr_timers && timers[i].id; i++)
		;
	if (i == TIMERS)
		return -1;
	nr_timers += i == nr_timers;
	armed++;
	op->id = ++last_id;
	timers[i] = *op;
	timers[i].res = 0;
	return 0;
}

static int modify(const struct twheel_op *op)
{
	unsigned int i;

	for (i = 0; i < nr_timers; i++) {
		if (timers[i].id != op->id)
			continue;
		timers[i].expires_ns = op->expires_ns;
		return 0;
	}
	errno = ENOENT;
	return -1;
}

int __wrap_open(const char *path, int flags, ...)
{
	static const char name[] = "/dev/twheel";
	size_t len = strlen(path);

	if (len < strlen(name) || strcmp(path + len - strlen(name), name))
		return __real_open(path, flags);
	if (getenv("TWHEEL_FAKE") && sscanf(getenv("TWHEEL_FAKE"), "errno %d", &errno) == 1)
		return -1;
	wheel = __real_open("/dev/null", flags);
	return wheel;
}

int __wrap_ioctl(int fd, unsigned long cmd, ...)
{
	struct twheel_setup *setup;
	struct twheel_info *info;
	va_list args;
	void *arg;

	va_start(args, cmd);
	arg = va_arg(args, void *);
	va_end(args);
	errno = ENOTTY;
	if (fd != wheel)
		return -1;
	switch (cmd) {
	case TWHEEL_IOC_INFO:
		info = arg;
		info->now_ns = now;
		info->clockid = clockid;
		info->armed = armed;
		info->ready = ready;
		return 0;
	case TWHEEL_IOC_SETUP:
		setup = arg;
		setup->tick_ns = TICK;
		clockid = setup->clockid;
		tells_of_sets = setup->flags & TWHEEL_SETUP_CLOCK_SET;
		return 0;
	case TWHEEL_IOC_ARM:
		return arm(arg);
	case TWHEEL_IOC_MODIFY:
		return modify(arg);
	case TWHEEL_IOC_NEXT:
		((struct twheel_next *)arg)->expires_ns = next_expiry();
		return 0;
	case TWHEEL_IOC_ADVANCE:
		advance(((struct twheel_advance *)arg)->to_ns);
		return 0;
	}
	return -1;
}

ssize_t __wrap_read(int fd, void *buf, size_t len)
{
	unsigned int nr = len / sizeof(events[0]);

	if (fd != wheel)
		return __real_read(fd, buf, len);
	nr = nr < ready ? nr : ready;
	errno = !nr ? EAGAIN : EIO;
	if (!nr || breaks("noread"))
		return -1;
	memcpy(buf, events, nr * sizeof(events[0]));
	ready -= nr;
	memmove(events, events + nr, ready * sizeof(events[0]));
	return nr * sizeof(events[0]);
}

int __wrap_ppoll(struct pollfd *pfd, nfds_t nr, const struct timespec *ts,
		 const sigset_t *mask)
{
	unsigned long long sleep = ts->tv_sec * 1000000000ULL + ts->tv_nsec;
	unsigned long long next = next_expiry();

	/* commands of --exec and the looks of top take real time */
	if (!nr || pfd->fd != wheel)
		return __real_ppoll(pfd, nr, ts, mask);
	if (breaks("INT") || breaks("TERM")) {
		raise(breaks("INT") ? SIGINT : SIGTERM);
		return __real_ppoll(NULL, 0, ts, mask);
	}
	advance(next > now && next < now + sleep ? next : now + sleep);
	return !!ready;
}
