/* SPDX-License-Identifier: GPL-2.0 */
/*
 * bench.h - what the parts of bench_user share
 *
 * A peer is one way to have many timers: twheel, the kernel's other timers, event
 * loops. Its timers are objects numbered from 0. All deadlines are nanoseconds of
 * CLOCK_MONOTONIC. Operations take many objects in one call, so that the indirect
 * call is not part of what is measured, and so that peers which know batches can
 * use them.
 */
#ifndef BENCH_H
#define BENCH_H

#include <err.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <linux/types.h>

#define NSEC		1000000000ULL
#define MSEC		1000000ULL
#define USEC		1000ULL
#define TICK		(1ULL << 20)	/* of a twheel without set-up */
#define MAX_LIST	16
#define PATIENCE_S	600		/* for one measurement, or it hangs */

#define ARRAY_SIZE(a)	(sizeof(a) / sizeof(*(a)))

enum op_group {
	GROUP_OPS	= 1 << 0,
	GROUP_LATENESS	= 1 << 1,
	GROUP_WAKEUPS	= 1 << 2,
	GROUP_MEMORY	= 1 << 3,
	GROUP_THREADS	= 1 << 4,
	GROUP_ALL	= (1 << 5) - 1,
	GROUP_MIXES	= 1 << 5,		/* if asked for */
	GROUP_COMMON	= GROUP_ALL & ~GROUP_THREADS,	/* as any peer can */
};

enum op {
	OP_CREATE,
	OP_ARM,
	OP_EXTEND,
	OP_REARM,
	OP_REFRESH,
	OP_PAIR,
	OP_CANCEL,
	OP_NOP,
	OP_DRAIN,
	OP_FIRE,
	OP_FIRE_CHURNED,
	OP_FIRE_SPREAD,
	OP_LATE_100US,
	OP_LATE_1MS,
	OP_LATE_10MS,
	OP_LATE_100MS,
	OP_WAKEUPS,
	OP_WAKEUPS_IDLE,
	OP_MEMORY,
	OP_MEMORY_EMPTY,
	OP_THREADS_OWN_1,
	OP_THREADS_OWN_2,
	OP_THREADS_OWN_4,
	OP_THREADS_SHARED_1,
	OP_THREADS_SHARED_2,
	OP_THREADS_SHARED_4,
	OP_MIX_CONNECTIONS,
	OP_MIX_RPC,
	OP_MIX_PACING,
	OP_NR,
};

/*
 * One operation on each of @n objects, @idx in this order, to the deadlines @when in
 * the same order. Returns how many were done; if not all, errno tells why.
 */
typedef __u32 many_fn(const __u32 *idx, const __u64 *when, __u32 n);

/**
 * struct peer - one way to have timers
 * @name:       as in the output
 * @groups:     of what to measure
 * @batch:      objects that pairs of arm and cancel are done with at a time
 * @step:       operations between two looks at the clock, at least @batch; few where
 *              one may take milliseconds
 * @submit:     of a wheel: operations per ioctl, 1 for the single calls
 * @tick:       of a wheel: its granularity, 0 for other peers
 * @in_process: the kernel knows of one timer at most
 * @linear:     to cancel or to move one takes time in proportion to how many there are
 * @open:       prepare for so many objects: false and errno
 * @create:     make objects and arm them, for peers whose objects cost something in
 *              the kernel: the other operations are then on objects that exist
 * @arm:        arm objects that are not armed
 * @move:       give armed objects another deadline
 * @cancel:     disarm armed objects, without looking at the deadlines
 * @nop:        call the kernel so often for nothing
 * @drain:      disarm all: how many were
 * @reap:       wait until some have expired, tell it with woken() and fired()
 * @wakeups:    times that a clock woke the peer's part of the kernel so far
 * @turn:       one turn of the event loop, without waiting: what has expired is told with
 *              fired(), and @work called, which may @after, @every and @cancel
 * @after:      in a turn: arm objects, or give those that are armed another deadline, so
 *              many ns from when the loop says that it is
 * @every:      in a turn: arm objects that are not armed, to expire again and again
 * @sent:       operations sent to the kernel so far, NULL: there are none
 * @close:      give everything back, whatever is armed or has fired
 */
struct peer {
	const char *name;
	unsigned int groups;
	__u32 batch;
	__u32 step;
	__u32 submit;
	__u64 tick;
	bool in_process;
	bool linear;
	bool (*open)(const struct peer *p, __u32 n);
	many_fn *create;
	many_fn *arm;
	many_fn *move;
	many_fn *cancel;
	many_fn *nop;
	__u32 (*drain)(void);
	void (*reap)(void);
	__u64 (*wakeups)(void);
	void (*turn)(void (*work)(void));
	void (*after)(const __u32 *idx, __u64 delay, __u32 n);
	void (*every)(const __u32 *idx, __u64 period, __u32 n);
	__u64 (*sent)(void);
	void (*close)(void);
};

extern const struct peer twheel_peers[];	/* these end with a nameless one */
extern const struct peer libtwheel_peers[];
extern const struct peer timerfd_peer;
extern const struct peer heap_peer;
extern const struct peer posix_peer;
extern const struct peer uring_peer;
extern const struct peer libevent_peer;
extern const struct peer libev_peer;
extern const struct peer libuv_peer;
extern const struct peer bare_peers[];

struct twheel_op;

int wheel_unset(void);
int wheel_new(const struct peer *p, __u32 capacity);
bool wheel_fill(int fd, const __u64 *when, __u32 n);
__u32 wheel_submit(int fd, struct twheel_op *ops, __u32 n);
bool timerfd_set_one(int fd, __u64 when);

/**
 * struct config - the command line
 * @ops:       bit for each &enum op that is wanted
 * @n:         populations, for the operations and threads, and for memory
 * @n_nr:      entries of @n
 * @rounds:    how often everything is repeated
 * @round:     the present one, from 1
 * @seed:      of the random numbers
 * @samples:   of lateness for delays up to 10 ms; a sixth of them for longer ones
 * @wake_n:    timers in the count of wake-ups
 * @wake_span: ns over which they are spread
 * @spread:    ns over which those of fire-spread are spread
 * @idle:      ns of looking at an idle wheel
 * @pairing:   ns for which threads do pairs
 * @cap:       ns after which an operation is not repeated any more
 * @connections: of the mix of that name
 * @rpcs:      calls a second in the mix of those
 * @paced:     timers in the mix of pacing
 * @mix_ns:    how long a mix goes on
 * @tsc_khz:   of the processor's counter, for the mixes, if time stands still while the
 *             program runs; else 0
 */
struct config {
	__u64 ops;
	__u32 n[2][MAX_LIST];
	unsigned int n_nr[2];
	unsigned int rounds;
	unsigned int round;
	__u64 seed;
	unsigned int samples;
	__u32 wake_n;
	__u64 wake_span;
	__u64 spread;
	__u64 idle;
	__u64 pairing;
	__u64 cap;
	__u32 connections;
	__u32 rpcs;
	__u32 paced;
	__u64 mix_ns;
	__u64 tsc_khz;
};

extern struct config config;

static inline bool wanted(enum op op)
{
	return config.ops & (1ULL << op);
}

/**
 * struct tally - what has fired since tally_reset()
 * @seen: how often each object fired
 * @size: objects
 * @nr:   how often all of them fired
 * @woke: when the program was first told
 * @lag:  of a wheel: fired_ns - expires_ns of the last record
 * @then: is called for each that fires, if it is there
 */
struct tally {
	unsigned char *seen;
	__u32 size;
	__u32 nr;
	__u64 woke;
	__u64 lag;
	void (*then)(__u32 i);
};

extern struct tally tally;

void tally_reset(__u32 size);
void tally_all(const struct peer *p, __u32 n);

static inline __u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC + ts.tv_nsec;
}

static inline struct timespec to_timespec(__u64 ns)
{
	return (struct timespec) {
		.tv_sec = ns / NSEC,
		.tv_nsec = ns % NSEC,
	};
}

/* A peer calls this as soon as it learns that something has expired. */
static inline void woken(void)
{
	if (!tally.woke)
		tally.woke = now_ns();
}

static inline void fired(__u32 i)
{
	if (i >= tally.size)
		errx(1, "there is no object %u to expire", i);
	tally.seen[i]++;
	tally.nr++;
	if (tally.then)
		tally.then(i);
}

/* The processor's own counter, 0 if it is not known how to read it */
static inline __u64 cpu_ticks(void)
{
#ifdef __x86_64__
	return __builtin_ia32_rdtsc();
#else
	return 0;
#endif
}

__u64 timer_calls(void);
void clock_stand(bool stand);

/* Random numbers: splitmix64 */
__u64 rnd(void);

static inline __u64 rnd_below(__u64 below)
{
	return ((__uint128_t)rnd() * below) >> 64;
}

/* Zeroed, and without page faults later on */
void *xcalloc(size_t nr, size_t size);
void sleep_ns(__u64 ns);

/**
 * struct set - the timers of one measurement
 * @n:      population
 * @total:  objects: some more, which only pairs use
 * @idx:    objects in the order of use
 * @when:   deadlines in the same order
 * @due:    deadline of each object
 * @churns: how often arm_ahead() arms and cancels all of them first
 * @arm_ns: what arming one costs, as far as known
 * @create_ns: what making and arming one costs, if it must be made
 */
struct set {
	__u32 n;
	__u32 total;
	__u32 *idx;
	__u64 *when;
	__u64 *due;
	unsigned int churns;
	double arm_ns;
	double create_ns;
};

void set_init(struct set *s, const struct peer *p, __u32 n);
void set_free(struct set *s);
void set_deadlines(struct set *s, __u64 after, __u64 span);
long timed(const struct peer *p, many_fn *fn, const struct set *s, __u32 n, __u64 cap,
	   double *ns);
bool open_created(const struct peer *p, struct set *s);
bool arm_ahead(const struct peer *p, struct set *s, __u64 span, __u64 *start);

/* Results, and why there is none */
void figure(const struct peer *p, const char *op, __u32 n, const char *unit,
	    double value);
void small_figure(const struct peer *p, const char *op, __u32 n, const char *unit,
		  double value);
void no_figure(const struct peer *p, const char *op, __u32 n, const char *why);
void skip_ops(const struct peer *p, enum op first, enum op last, __u32 n,
	      const char *why);
const char *op_name(enum op op);

/* A bit for each operation of the groups */
__u64 ops_of(enum op_group group);

const char *reason(int error);

void measure_ops(const struct peer *p, __u32 n);
void measure_lateness(const struct peer *p);
void measure_wakeups(const struct peer *p);
void measure_memory(const struct peer *p, __u32 n);
void measure_empty(const struct peer *p);
void measure_threads(const struct peer *p, __u32 n);
void measure_mixes(const struct peer *p);

#endif /* BENCH_H */
