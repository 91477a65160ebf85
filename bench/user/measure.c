// SPDX-License-Identifier: GPL-2.0
/*
 * measure.c - random numbers, what fired, sets of timers, time per operation
 */
#include "bench.h"

#define HOUR		(3600 * NSEC)
#define PART_NS		(10 * MSEC)	/* between two looks at the clock */
#define PART_MAX	65536
#define SLOW_NS		(45 * NSEC)	/* for what must be done to all */

struct tally tally;

void *xcalloc(size_t nr, size_t size)
{
	void *p = reallocarray(NULL, nr, size);

	if (!p)
		errx(1, "no memory for %zu times %zu bytes", nr, size);
	explicit_bzero(p, nr * size);
	return p;
}

void sleep_ns(__u64 ns)
{
	struct timespec ts = to_timespec(ns);

	nanosleep(&ts, NULL);
}

__u64 rnd(void)
{
	static __u64 state;
	static bool seeded;
	__u64 x;

	if (!seeded)
		state = config.seed;
	seeded = true;
	x = state += 0x9e3779b97f4a7c15ULL;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

void tally_reset(__u32 size)
{
	free(tally.seen);
	tally = (struct tally) { .size = size };
	tally.seen = xcalloc(size, 1);
}

/* Reap until the first @n objects have fired, each of them once. */
void tally_all(const struct peer *p, __u32 n)
{
	__u32 i;

	while (tally.nr < n)
		p->reap();
	for (i = 0; i < n; i++) {
		if (tally.seen[i] != 1)
			errx(1, "%s: timer %u of %u fired %u times", p->name, i, n,
			     tally.seen[i]);
	}
}

void set_init(struct set *s, const struct peer *p, __u32 n)
{
	__u32 i;

	*s = (struct set) { .n = n, .total = n + p->batch };
	s->idx = xcalloc(s->total, sizeof(*s->idx));
	s->when = xcalloc(s->total, sizeof(*s->when));
	s->due = xcalloc(s->total, sizeof(*s->due));
	for (i = 0; i < s->total; i++)
		s->idx[i] = i;
}

void set_free(struct set *s)
{
	free(s->idx);
	free(s->when);
	free(s->due);
}

static void shuffle(__u32 *idx, __u32 n)
{
	__u32 i, j, tmp;

	for (i = n; i > 1; i--) {
		j = rnd_below(i);
		tmp = idx[i - 1];
		idx[i - 1] = idx[j];
		idx[j] = tmp;
	}
}

/*
 * From errno, why there is no figure: a limit of the machine, or ETIME for what takes
 * too long. Any other error is one of the program or of what it measures.
 */
const char *reason(int error)
{
	switch (error) {
	case ETIME:
		return "takes too long";
	case EACCES:
	case EAGAIN:
	case EMFILE:
	case ENFILE:
	case ENODEV:
	case ENOMEM:
	case ENOSPC:
	case EPERM:
		return strerror(error);
	default:
		errx(1, "what must work does not: %s", strerror(error));
	}
}

/* A new random order, and deadlines uniform in [after, after + span]. */
void set_deadlines(struct set *s, __u64 after, __u64 span)
{
	__u32 k;

	shuffle(s->idx, s->n);
	for (k = 0; k < s->n; k++) {
		s->when[k] = after + rnd_below(span + 1);
		s->due[s->idx[k]] = s->when[k];
	}
}

/*
 * Do @fn to the first @n of the set, or to as many as fit into @cap ns: how many
 * those are and what one took, or -errno.
 */
long timed(const struct peer *p, many_fn *fn, const struct set *s, __u32 n, __u64 cap,
	   double *ns)
{
	__u64 start = now_ns(), last, now = start;
	__u32 done = 0, part = p->step;

	while (done < n && now - start < cap) {
		if (part > n - done)
			part = n - done;
		if (fn(s->idx + done, s->when + done, part) != part)
			return -errno;
		done += part;
		last = now;
		now = now_ns();
		if (now - last < PART_NS && part < PART_MAX)
			part *= 2;
	}
	*ns = (double)(now - start) / done;
	return done;
}

/* As timed(), but nothing less than all is of use: false and errno. */
static bool do_all(const struct peer *p, many_fn *fn, struct set *s, __u32 n, double *ns)
{
	long done = timed(p, fn, s, n, SLOW_NS, ns);

	if (done == n)
		return true;
	errno = done < 0 ? -done : ETIME;
	return false;
}

static bool create(const struct peer *p, struct set *s)
{
	__u64 far = now_ns() + 2 * HOUR;
	double ns;
	__u32 k;

	for (k = 0; k < s->total; k++) {
		s->idx[k] = k;
		s->when[k] = far + rnd_below(HOUR);
	}
	return do_all(p, p->create, s, s->total, &s->create_ns) &&
		do_all(p, p->cancel, s, s->total, &ns);
}

/* An open peer whose objects exist and are not armed; or false and errno. */
bool open_created(const struct peer *p, struct set *s)
{
	int error;

	tally_reset(s->total);
	if (!p->open(p, s->total))
		return false;
	if (!p->create || create(p, s))
		return true;
	error = errno;
	p->close();
	errno = error;
	return false;
}

/*
 * Arm all and cancel all, a few times, each time in other random orders and long before
 * anything is due. What a peer gives out anew for each arm, as a wheel does with the
 * indices of timers and with what its slots are made of, then comes in random order, as
 * it does in a program that has run for a while. In a fresh wheel it comes in sequence.
 */
static bool churn(const struct peer *p, struct set *s)
{
	unsigned int round;
	double ns;

	for (round = 0; round < s->churns; round++) {
		set_deadlines(s, now_ns() + 2 * HOUR, HOUR);
		if (!do_all(p, p->arm, s, s->n, &ns))
			return false;
		set_deadlines(s, now_ns() + 2 * HOUR, HOUR);
		if (!do_all(p, p->cancel, s, s->n, &ns))
			return false;
	}
	return true;
}

static bool arm_by(const struct peer *p, struct set *s, __u64 span, __u64 *start)
{
	__u64 lead = 50 * MSEC + s->n * s->arm_ns * 1.5;

	*start = (now_ns() + lead + TICK - 1) & ~(TICK - 1);
	set_deadlines(s, *start, span);
	return do_all(p, p->arm, s, s->n, &s->arm_ns);
}

/*
 * Open, churn if the set says so, and arm all for [start, start + span], where start is a
 * boundary of ticks that lies ahead when this is done: a wheel rounds deadlines up to
 * them. If it comes too late, once more with more time. False and errno if it cannot be.
 */
bool arm_ahead(const struct peer *p, struct set *s, __u64 span, __u64 *start)
{
	int tries, error;

	if (!s->arm_ns)
		s->arm_ns = 5000;
	for (tries = 0; tries < 5; tries++) {
		if (!open_created(p, s))
			return false;
		if (!churn(p, s) || !arm_by(p, s, span, start)) {
			error = errno;
			p->close();
			errno = error;
			return false;
		}
		if (now_ns() < *start)
			return true;
		p->close();
		s->arm_ns *= 2;
	}
	errno = ETIME;
	return false;
}
