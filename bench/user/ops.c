// SPDX-License-Identifier: GPL-2.0
/*
 * ops.c - what one operation costs at a population
 */
#include "bench.h"

#include <sys/resource.h>

#define NEAREST		(60 * NSEC)	/* none fires while it is operated on */
#define SPAN		(3600 * NSEC)
#define REFRESHES	1000
#define PAIRS		16384
#define BUSY_MIN	100000		/* timers */
#define CHURNS		4

static bool any_wanted(enum op first, enum op last)
{
	enum op op;

	for (op = first; op <= last; op++) {
		if (wanted(op))
			return true;
	}
	return false;
}

static void anywhere(struct set *s)
{
	set_deadlines(s, now_ns() + NEAREST, SPAN);
}

/* Each of the set later than it is, in a new order. */
static void later(struct set *s)
{
	__u64 *due = s->due;
	__u64 when;
	__u32 k;

	s->due = xcalloc(s->total, sizeof(*s->due));
	anywhere(s);
	for (k = 0; k < s->n; k++) {
		when = due[s->idx[k]] + rnd_below(SPAN);
		s->when[k] = when;
		s->due[s->idx[k]] = when;
	}
	free(due);
}

/* The first of the set alone, again and again, a little later each time. */
static long refresh(const struct peer *p, const struct set *s, double *ns)
{
	struct set one = { };
	__u64 when = now_ns() + NEAREST;
	long done;
	__u32 k;

	set_init(&one, p, REFRESHES);
	for (k = 0; k < REFRESHES; k++) {
		one.idx[k] = s->idx[0];
		one.when[k] = when + k * 100 * USEC;
	}
	done = timed(p, p->move, &one, REFRESHES, config.cap, ns);
	set_free(&one);
	return done;
}

/* Objects beyond the population, armed and cancelled in groups of a batch. */
static long pairs(const struct peer *p, const struct set *s, double *ns)
{
	static __u64 when[PAIRS];
	static __u32 idx[PAIRS];
	__u64 start = now_ns(), now;
	__u32 done, k;

	for (k = 0; k < PAIRS; k++) {
		idx[k] = s->n + k % p->batch;
		when[k] = start + NEAREST + rnd_below(SPAN);
	}
	start = now_ns();
	now = start;
	for (done = 0; done < PAIRS && now - start < config.cap; now = now_ns()) {
		for (k = 0; k < p->step; k += p->batch, done += p->batch) {
			if (p->arm(idx + done, when + done, p->batch) != p->batch ||
			    p->cancel(idx + done, NULL, p->batch) != p->batch)
				return -errno;
		}
	}
	*ns = (double)(now - start) / done;
	return done;
}

/* Print what timed() measured. No limit is in the way of what is armed already. */
static void report(const struct peer *p, enum op which, __u32 n, long done, double ns)
{
	if (done < 0)
		errx(1, "%s: %s: %s", p->name, op_name(which), strerror(-done));
	if (wanted(which))
		figure(p, op_name(which), n, "ns", ns);
}

/*
 * Arm all, as whatever follows needs them, and print what one cost as @which. If
 * it cannot be done, nothing from @which on can.
 */
static bool arm(const struct peer *p, struct set *s, enum op which)
{
	long done;

	anywhere(s);
	done = timed(p, p->arm, s, s->n, NEAREST / 2, &s->arm_ns);
	if (done != s->n) {
		skip_ops(p, which, OP_DRAIN, s->n, reason(done < 0 ? -done : ETIME));
		return false;
	}
	report(p, which, s->n, done, s->arm_ns);
	return true;
}

static bool cancel_all(const struct peer *p, struct set *s)
{
	double ns;

	anywhere(s);
	return timed(p, p->cancel, s, s->n, NEAREST / 2, &ns) == s->n;
}

/*
 * "create" is to arm a timer that has never been, with all memory that it needs.
 * After it, all exist and none is armed. A linear peer takes too long to cancel all.
 */
static bool first(const struct peer *p, struct set *s)
{
	if (p->linear)
		return true;
	if (p->create) {
		report(p, OP_CREATE, s->n, s->n, s->create_ns);
		return true;
	}
	if (!arm(p, s, OP_CREATE))
		return false;
	if (!cancel_all(p, s))
		errx(1, "%s: cannot cancel all", p->name);
	return true;
}

static void drain(const struct peer *p, struct set *s)
{
	__u64 start;
	double ns;

	anywhere(s);
	if (timed(p, p->arm, s, s->n, NEAREST / 2, &ns) != s->n)
		errx(1, "%s: cannot arm once more", p->name);
	start = now_ns();
	if (p->drain() != s->n)
		errx(1, "%s: not all were drained", p->name);
	figure(p, op_name(OP_DRAIN), s->n, "ns", (double)(now_ns() - start) / s->n);
}

static void change(const struct peer *p, struct set *s)
{
	double ns = 0;
	long done;

	if (wanted(OP_EXTEND)) {
		later(s);
		done = timed(p, p->move, s, s->n, config.cap, &ns);
		report(p, OP_EXTEND, s->n, done, ns);
	}
	if (wanted(OP_REARM)) {
		anywhere(s);
		done = timed(p, p->move, s, s->n, config.cap, &ns);
		report(p, OP_REARM, s->n, done, ns);
	}
	if (wanted(OP_REFRESH)) {
		done = refresh(p, s, &ns);
		report(p, OP_REFRESH, s->n, done, ns);
	}
	if (wanted(OP_PAIR)) {
		done = pairs(p, s, &ns);
		report(p, OP_PAIR, s->n, done, ns);
	}
}

static void operations(const struct peer *p, struct set *s)
{
	double ns = 0;
	long done;

	if (!any_wanted(OP_CREATE, OP_DRAIN))
		return;
	if (!open_created(p, s)) {
		skip_ops(p, OP_CREATE, OP_DRAIN, s->n, reason(errno));
		return;
	}
	if (first(p, s) && any_wanted(OP_ARM, OP_DRAIN) && arm(p, s, OP_ARM)) {
		change(p, s);
		anywhere(s);
		done = timed(p, p->cancel, s, s->n, config.cap, &ns);
		report(p, OP_CANCEL, s->n, done, ns);
		if (p->nop && wanted(OP_NOP)) {
			long nops = timed(p, p->nop, s, s->n, config.cap, &ns);

			report(p, OP_NOP, s->n, nops, ns);
		}
		if (p->drain && wanted(OP_DRAIN) && done == s->n)
			drain(p, s);
	}
	p->close();
	if (tally.nr)
		errx(1, "%s: %u timers fired an hour before they were due", p->name, tally.nr);
}

/*
 * All due at once. "fire" counts from the deadline, so that it has what the kernel
 * does in interrupts before the program is told, and one wake-up: negligible for many
 * timers only. "fire-reap" counts from the wake-up: what the program sees.
 *
 * In a peer that has just been opened, timers that expire one after the other may also be
 * neighbours in memory. "fire-churned" and "fire-churned-reap" are the same after
 * churn().
 */
static void at_once(const struct peer *p, struct set *s, enum op which, const char *reap)
{
	__u64 start, end;

	if (!wanted(which))
		return;
	if (!arm_ahead(p, s, 0, &start)) {
		skip_ops(p, which, which, s->n, reason(errno));
		return;
	}
	tally_all(p, s->n);
	end = now_ns();
	p->close();
	figure(p, op_name(which), s->n, "ns", ((double)end - start) / s->n);
	figure(p, reap, s->n, "ns", (double)(end - tally.woke) / s->n);
}

static void at_once_later(const struct peer *p, struct set *s)
{
	if (p->linear) {
		skip_ops(p, OP_FIRE_CHURNED, OP_FIRE_CHURNED, s->n, reason(ETIME));
		return;
	}
	s->churns = CHURNS;
	at_once(p, s, OP_FIRE_CHURNED, "fire-churned-reap");
	s->churns = 0;
}

static __u64 cpu_ns(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * NSEC +
		(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) * USEC;
}

/* Of all CPUs since boot. The kernel tells it in hundredths of a second. */
static __u64 idle_ns(void)
{
	FILE *f = fopen("/proc/stat", "r");
	unsigned long long idle, iowait;

	if (!f || fscanf(f, "cpu %*u %*u %*u %llu %llu", &idle, &iowait) != 2)
		errx(1, "cannot read /proc/stat");
	fclose(f);
	return (idle + iowait) * (NSEC / 100);
}

/*
 * Spread out. "fire-spread" is the CPU time of the program, in which interrupts that
 * come while it sleeps are not. "fire-spread-busy" is the time in which CPUs were not
 * idle: all that there is, and all that others do, in steps of 10 ms a CPU; so it is
 * told for many timers only.
 */
static void over_time(const struct peer *p, struct set *s)
{
	__u64 start, cpu, idle, busy, clock;

	if (!wanted(OP_FIRE_SPREAD))
		return;
	if (!arm_ahead(p, s, config.spread, &start)) {
		skip_ops(p, OP_FIRE_SPREAD, OP_FIRE_SPREAD, s->n, reason(errno));
		return;
	}
	clock = now_ns();
	idle = idle_ns();
	cpu = cpu_ns();
	tally_all(p, s->n);
	cpu = cpu_ns() - cpu;
	idle = idle_ns() - idle;
	busy = (now_ns() - clock) * sysconf(_SC_NPROCESSORS_ONLN);
	p->close();
	figure(p, "fire-spread", s->n, "ns", (double)cpu / s->n);
	if (s->n >= BUSY_MIN)
		figure(p, "fire-spread-busy", s->n, "ns",
		       busy > idle ? (double)(busy - idle) / s->n : 0);
}

void measure_ops(const struct peer *p, __u32 n)
{
	struct set s;

	set_init(&s, p, n);
	operations(p, &s);
	at_once(p, &s, OP_FIRE, "fire-reap");
	at_once_later(p, &s);
	over_time(p, &s);
	set_free(&s);
}
