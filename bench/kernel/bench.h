/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the timers that are compared, the peers, and main.c know of each other.
 *
 * A peer is a file that defines the operations peer_*() as inline functions, includes
 * loops.h, which makes loops of them, and exports these as a struct peer. So no
 * operation is called through a pointer.
 *
 * Time is the peer's: jiffies, nanoseconds, or milliseconds that begin at BENCH_START
 * and go by when run() says so.
 */
#ifndef TWHEEL_BENCH_H
#define TWHEEL_BENCH_H

#include <linux/ktime.h>
#include <linux/types.h>

#define BENCH_START	1000000000ULL
#define BENCH_SECOND	1000U
#define BENCH_HOUR	(3600ULL * BENCH_SECOND)
#define BENCH_YEAR	(365 * 24 * BENCH_HOUR)

/**
 * struct bench - what a loop works on
 * @n:      timers
 * @nr:     operations of the loop, on the first places of @order
 * @order:  the timers in the order in which they are worked on
 * @when:   for each place in @order a deadline, in the time of the peer
 * @handle: for each place in @order what a peer calls its timer there, as it likes
 * @fired:  timers that have expired since open()
 * @sum:    of what was read of them
 */
struct bench {
	u32 n;
	u32 nr;
	u32 *order;
	u64 *when;
	u64 *handle;
	u64 fired;
	u64 sum;
};

extern struct bench bench;

/**
 * struct cost - of a loop
 * @time: spent
 * @nr:   operations done in it; fewer than @bench.nr if they took too long
 */
struct cost {
	u64 time;
	u32 nr;
};

/**
 * struct peer - timers of one kind
 * @name:     as printed
 * @max_n:    with more timers it would take for ever
 * @max_idle: a longer time than this would take for ever (ms)
 * @places:   gives a timer another place in memory each time that it is armed
 * @real:     goes by the kernel's clock; run() sleeps
 * @open:     makes @bench.n timers
 * @close:    may be called with timers armed, or none made
 * @when:     a deadline, in milliseconds from now
 * @arm:      timers that are not armed
 * @set:      timers, armed or not
 * @cancel:   timers, armed or not
 * @pair:     cancels and arms, timer by timer
 * @alone:    arms, each to its end before the next. NULL if it does many at a time
 * @next:     sets timers like that; if it is told to, asks for the earliest deadline in
 *            between. NULL if that cannot be asked
 * @earliest: the earliest deadline, NULL if it cannot be asked
 * @run:      lets time pass, and the timers expire that it makes due
 */
struct peer {
	const char *name;
	u32 max_n;
	u64 max_idle;
	bool places;
	bool real;
	int (*open)(void);
	void (*close)(void);
	u64 (*when)(u64 ms);
	struct cost (*arm)(void);
	struct cost (*set)(void);
	struct cost (*cancel)(void);
	struct cost (*pair)(void);
	struct cost (*alone)(void);
	struct cost (*next)(bool ask);
	struct cost (*earliest)(void);
	u64 (*run)(u64 until);
};

extern const struct peer peer_wheel, peer_engine, peer_engine_32, peer_timer_list,
	peer_hrtimer, peer_timerqueue, peer_min_heap, peer_sorted_list, peer_list,
	peer_rounds, peer_kafka;

extern unsigned int tsc_khz;
extern unsigned int patience_ms;

/*
 * The time of day stands still in user-mode Linux while its clock is one that jumps,
 * the processor's counter does not.
 */
static inline u64 bench_time(void)
{
#ifdef CONFIG_UML_X86
	if (tsc_khz)
		return __builtin_ia32_rdtsc();
#endif
	return ktime_get_ns();
}

static inline u64 bench_patience(void)
{
	return (u64)patience_ms * (tsc_khz ?: NSEC_PER_MSEC);
}

/* Whether a loop has gone on for too long. */
static inline bool bench_enough(u32 i, u64 since)
{
	return unlikely(!(i & 0xff) && bench_time() - since > bench_patience());
}

/* What is done for a timer that has expired: its owner looks at it. */
static inline void bench_fire(const u64 *cookie)
{
	bench.fired++;
	bench.sum += *cookie;
}

int softirq_begin(void);
void softirq_end(void);
void softirq_watch(unsigned int vec);
u64 softirq_time(void);

/**
 * typedef report_t - takes a figure
 * @peer:   what was measured
 * @op:     at what
 * @n:      among how many timers
 * @ns_100: the figure, in hundredths of a nanosecond
 */
typedef void (*report_t)(const char *peer, const char *op, u64 n, s64 ns_100);

int late_measure(report_t to);

#endif /* TWHEEL_BENCH_H */
