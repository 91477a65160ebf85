// SPDX-License-Identifier: GPL-2.0
/*
 * wakeups.c - how often many timers wake the machine and the program
 *
 * "wakeups" is what the wheel counts of its hrtimer, "wakeups-switches" how often the
 * program went to sleep. Either is to be compared with "wakeups-ticks": ticks of the
 * default wheel in which something is due.
 */
#include "bench.h"

#include <sys/resource.h>

static __u64 sleeps(void)
{
	struct rusage ru;

	getrusage(RUSAGE_THREAD, &ru);
	return ru.ru_nvcsw;
}

/* Ticks in which something is due, which it is at their end. */
static __u32 ticks_due(const struct set *s, __u64 start)
{
	__u64 span = config.wake_span / TICK + 2;
	unsigned char *seen = xcalloc(span, 1);
	__u32 nr = 0, k;
	__u64 tick;

	for (k = 0; k < s->n; k++) {
		tick = (s->when[k] - start + TICK - 1) / TICK;
		nr += !seen[tick];
		seen[tick] = 1;
	}
	free(seen);
	return nr;
}

static void spread(const struct peer *p, struct set *s)
{
	__u64 start, wakeups = 0, switches;

	if (!arm_ahead(p, s, config.wake_span, &start)) {
		skip_ops(p, OP_WAKEUPS, OP_WAKEUPS, s->n, reason(errno));
		return;
	}
	if (p->wakeups)
		wakeups = p->wakeups();
	switches = sleeps();
	tally_all(p, s->n);
	switches = sleeps() - switches;
	if (p->wakeups)
		figure(p, "wakeups", s->n, "count", p->wakeups() - wakeups);
	figure(p, "wakeups-ticks", s->n, "count", ticks_due(s, start));
	figure(p, "wakeups-switches", s->n, "count", switches);
	p->close();
}

/* With none armed any more. */
static void nothing_armed(const struct peer *p, struct set *s)
{
	__u64 start, wakeups;

	if (!arm_ahead(p, s, 0, &start)) {
		skip_ops(p, OP_WAKEUPS_IDLE, OP_WAKEUPS_IDLE, 0, reason(errno));
		return;
	}
	tally_all(p, s->n);
	wakeups = p->wakeups();
	sleep_ns(config.idle);
	figure(p, "wakeups-idle", 0, "count", p->wakeups() - wakeups);
	p->close();
}

void measure_wakeups(const struct peer *p)
{
	struct set s;

	if (wanted(OP_WAKEUPS)) {
		set_init(&s, p, config.wake_n);
		spread(p, &s);
		set_free(&s);
	}
	if (p->wakeups && wanted(OP_WAKEUPS_IDLE)) {
		set_init(&s, p, 1);
		nothing_armed(p, &s);
		set_free(&s);
	}
}
