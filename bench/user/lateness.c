// SPDX-License-Identifier: GPL-2.0
/*
 * lateness.c - how long after the deadline of one timer the program knows of it
 *
 * On an idle machine, and with one busy thread per CPU that is no less important. The
 * program sleeps for up to a tick before it arms, or all deadlines would have the
 * phase of the tick that woke it. Sleeping in epoll_wait() is subject to the 50 us of
 * timer slack that programs have unless they ask for less.
 */
#include "bench.h"

#include <pthread.h>

#define MAX_CPUS	256

static const struct {
	enum op op;
	const char *name;
	__u64 ns;
} delays[] = {
	{ OP_LATE_100US, "100us", 100 * USEC },
	{ OP_LATE_1MS, "1ms", MSEC },
	{ OP_LATE_10MS, "10ms", 10 * MSEC },
	{ OP_LATE_100MS, "100ms", 100 * MSEC },
};

static struct {
	pthread_t threads[MAX_CPUS];
	int nr;
	int stop;
} load;

static void *spin(void *arg)
{
	while (!__atomic_load_n(&load.stop, __ATOMIC_RELAXED))
		;
	return arg;
}

static void load_start(void)
{
	int cpus = sysconf(_SC_NPROCESSORS_ONLN);

	load.stop = 0;
	for (load.nr = 0; load.nr < cpus && load.nr < MAX_CPUS; load.nr++) {
		if (pthread_create(&load.threads[load.nr], NULL, spin, NULL))
			errx(1, "cannot start a thread");
	}
}

static void load_stop(void)
{
	__atomic_store_n(&load.stop, 1, __ATOMIC_RELAXED);
	while (load.nr)
		pthread_join(load.threads[--load.nr], NULL);
}

static int compare(const void *a, const void *b)
{
	const __s64 *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void percentiles(const struct peer *p, const char *what, const char *delay,
			const char *loaded, __s64 *at, unsigned int nr)
{
	static const struct {
		const char *name;
		unsigned int percent;
	} points[] = {
		{ "p50", 50 }, { "p90", 90 }, { "p99", 99 }, { "max", 100 },
	};
	unsigned int rank;
	char op[64];
	size_t i;

	qsort(at, nr, sizeof(*at), compare);
	for (i = 0; i < ARRAY_SIZE(points); i++) {
		snprintf(op, sizeof(op), "%s-%s-%s-%s", what, delay, loaded,
			 points[i].name);
		rank = (nr * points[i].percent + 99) / 100;
		figure(p, op, 1, "ns", at[rank - 1]);
	}
}

static void sample(const struct peer *p, __u32 objects, __u64 delay, __s64 *late, __s64 *lag)
{
	static const __u32 first;
	__u64 when;

	tally_reset(objects);
	sleep_ns(rnd_below(TICK));
	when = now_ns() + delay;
	if (p->arm(&first, &when, 1) != 1)
		errx(1, "%s: cannot arm one timer: %s", p->name, strerror(errno));
	tally_all(p, 1);
	*late = tally.woke - when;
	*lag = tally.lag;
	/* The libraries count from a time that they took a little earlier. */
	if (*late < 0 && !p->in_process)
		errx(1, "%s: %lld ns early", p->name, -*late);
}

static void late(const struct peer *p, struct set *s, size_t i, const char *loaded)
{
	unsigned int nr = config.samples, k;
	__s64 *at, *lag;

	if (delays[i].ns > 10 * MSEC)
		nr = (nr + 5) / 6;
	at = xcalloc(nr, sizeof(*at));
	lag = xcalloc(nr, sizeof(*lag));
	for (k = 0; k < nr; k++)
		sample(p, s->total, delays[i].ns, &at[k], &lag[k]);
	percentiles(p, "late", delays[i].name, loaded, at, nr);
	if (p->tick)
		percentiles(p, "fired", delays[i].name, loaded, lag, nr);
	free(at);
	free(lag);
}

static void late_all(const struct peer *p, struct set *s, const char *loaded)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(delays); i++) {
		if (wanted(delays[i].op))
			late(p, s, i, loaded);
	}
}

void measure_lateness(const struct peer *p)
{
	struct set s;

	set_init(&s, p, 1);
	if (open_created(p, &s)) {
		late_all(p, &s, "idle");
		load_start();
		late_all(p, &s, "busy");
		load_stop();
		p->close();
	} else {
		skip_ops(p, OP_LATE_100US, OP_LATE_100MS, 1, reason(errno));
	}
	set_free(&s);
}
