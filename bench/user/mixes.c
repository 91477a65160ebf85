// SPDX-License-Identifier: GPL-2.0
/*
 * mixes.c - what timers cost in what programs do with them
 *
 * A program that wakes up each millisecond, has one turn of its event loop, in which
 * timers are armed, pushed later and cancelled as by its connections, and sleeps again.
 * Each peer does what its users do, and sees the time as its loop tells it.
 *
 *   connections  time-outs of 30 s, each pushed later every 100 ms
 *   rpc          deadlines of 50 ms for calls, 99 % of which are answered in time, after
 *                1 ms in the mean, their deadline cancelled then
 *   pacing       periodic timers of 1 ms
 *
 * Operations of the program are to arm, to push later and to cancel, and the expiries of
 * pacing. The time they take is that of the turns, the driver included: "no-timers" tells
 * what is to be taken off, and "one-line" what the cache misses of the program's own timers
 * take. What comes in interrupts while the program sleeps is not in it.
 * Where time stands still while the program runs (config.tsc_khz) it is told by the
 * processor's own counter; elsewhere it is the CPU time of the process.
 *
 * "sent" are the operations that a peer sends to the kernel for one of the program, "calls"
 * the system calls that it makes for timers: all but a look at the clock and the one that
 * waits for descriptors in each turn.
 */
#include "bench.h"

#include <math.h>
#include <poll.h>
#include <sys/eventfd.h>

#define STEP		MSEC
#define STEPS_A_SEC	(NSEC / STEP)

#define IDLE_TIMEOUT	(30 * NSEC)
#define PUSH_STEPS	100		/* from one push of a connection to the next */

#define RPC_TIMEOUT	(50 * MSEC)
#define RPC_LOST	100		/* of so many one is not answered */
#define RPC_MEAN_NS	(1.0 * MSEC)
#define RPC_STEPS_MAX	25		/* answers come no later, also if we are late */
#define RPC_BUCKETS	32
#define RPC_WARM_STEPS	100

#define PERIOD		MSEC
#define PERIOD_TICK	(1U << 17)
#define PACING_PART	5		/* as many operations as connections in so much less */

#define STOLEN		10		/* times the median, and the host did something else */

static struct {
	const struct peer *p;
	__u64 step;
	__u64 ops;
	double *spent_ns;		/* in each turn */
	__u32 n;
	__u32 *order;			/* of connections, and of what is free of calls */
} mix;

static struct {
	__u32 a_step;
	__u32 nr_free;
	__u32 lost;
	__u32 *next;			/* of those answered in the same step; the end is @none */
	__u32 answered[RPC_BUCKETS];	/* by step: the first */
} rpc;

static const __u32 none = UINT32_MAX;

/* What has been spent so far, with any beginning. */
static double spent_ns(void)
{
	struct timespec ts;

	if (config.tsc_khz)
		return cpu_ticks() * (1e6 / config.tsc_khz);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/*
 * The time spent in so many turns. By the processor's counter it is also that of whatever
 * else the machine did meanwhile; turns in which that was much count as all the others.
 */
static double spent_in_turns(__u64 nr)
{
	double sum = 0;
	__u64 k;

	qsort(mix.spent_ns, nr, sizeof(*mix.spent_ns), compare);
	for (k = 0; k < nr && mix.spent_ns[k] <= STOLEN * mix.spent_ns[nr / 2]; k++)
		sum += mix.spent_ns[k];
	return sum / k * nr;
}

/* Turns at [from, to) steps after @start: how many ns the last one was late. */
static __u64 turns(__u64 start, __u64 from, __u64 to, void (*work)(void))
{
	__u64 at = 0, now;
	double spent;

	for (mix.step = from; mix.step < to; mix.step++) {
		at = start + mix.step * STEP;
		now = now_ns();
		if (now < at)
			sleep_ns(at - now);
		clock_stand(true);
		spent = spent_ns();
		mix.p->turn(work);
		mix.spent_ns[mix.step - from] = spent_ns() - spent;
		clock_stand(false);
	}
	now = now_ns();
	return now > at ? now - at : 0;
}

static void push_some(void)
{
	__u32 part = mix.step % PUSH_STEPS;
	__u32 from = (__u64)mix.n * part / PUSH_STEPS;
	__u32 to = (__u64)mix.n * (part + 1) / PUSH_STEPS;

	mix.p->after(mix.order + from, IDLE_TIMEOUT, to - from);
	mix.ops += to - from;
}

/*
 * As in a service that has been running for long: what the peer has for a connection is
 * due at any time of the next 30 s, but not before the connection was first pushed.
 */
static void connect_all(void)
{
	__u32 k;

	for (k = 0; k < mix.n; k++)
		mix.p->after(mix.order + k, 2 * PUSH_STEPS * STEP + rnd_below(IDLE_TIMEOUT), 1);
}

/* In how many steps the answer comes. */
static __u32 answer_steps(void)
{
	double uniform = (rnd() >> 11) * 0x1p-53;
	double steps = -log1p(-uniform) * (RPC_MEAN_NS / STEP);

	return 1 + (steps < RPC_STEPS_MAX - 1 ? (__u32)steps : RPC_STEPS_MAX - 1);
}

static void timed_out(__u32 i)
{
	mix.order[rpc.nr_free++] = i;
	rpc.lost++;
}

static void end_calls(__u32 *bucket)
{
	__u32 i, first = rpc.nr_free;

	for (i = *bucket; i != none; i = rpc.next[i])
		mix.order[rpc.nr_free++] = i;
	*bucket = none;
	mix.p->cancel(mix.order + first, NULL, rpc.nr_free - first);
	mix.ops += rpc.nr_free - first;
}

static void begin_calls(void)
{
	__u32 *bucket, i, k;

	if (rpc.nr_free < rpc.a_step)
		errx(1, "%s: %u calls have not timed out", mix.p->name, mix.n - rpc.nr_free);
	rpc.nr_free -= rpc.a_step;
	for (k = 0; k < rpc.a_step; k++) {
		i = mix.order[rpc.nr_free + k];
		if (!rnd_below(RPC_LOST))
			continue;
		bucket = &rpc.answered[(mix.step + answer_steps()) % RPC_BUCKETS];
		rpc.next[i] = *bucket;
		*bucket = i;
	}
	mix.p->after(mix.order + rpc.nr_free, RPC_TIMEOUT, rpc.a_step);
	mix.ops += rpc.a_step;
}

static void answer_and_call(void)
{
	end_calls(&rpc.answered[mix.step % RPC_BUCKETS]);
	begin_calls();
}

static void pace_one(void)
{
	mix.p->every(&mix.n, PERIOD, 1);
	mix.n++;
}

static void paced(__u32 i)
{
	(void)i;
	mix.ops++;
}

static void nothing(void)
{
}

/* Opens a copy of the peer. With a tick that suits, if it has one. */
static bool begin(struct peer *mine, const struct peer *p, __u64 tick, __u32 n)
{
	*mine = *p;
	if (p->tick)
		mine->tick = tick;
	memset(&mix, 0, sizeof(mix));
	mix.p = mine;
	mix.spent_ns = xcalloc(config.mix_ns / STEP + 2 * PUSH_STEPS, sizeof(*mix.spent_ns));
	tally_reset(n);
	if (mine->open(mine, n))
		return true;
	free(mix.spent_ns);
	return false;
}

static void end(void)
{
	mix.p->close();
	free(mix.order);
	free(mix.spent_ns);
	tally_reset(0);
}

/* Figures of the turns [from, to), of which those before are over. */
static void measure(enum op op, __u32 n, __u64 start, __u64 from, __u64 to,
		    void (*work)(void))
{
	const struct peer *p = mix.p;
	__u64 sent, calls, late;
	char name[64];

	mix.ops = 0;
	sent = p->sent ? p->sent() : 0;
	calls = timer_calls();
	late = turns(start, from, to, work);
	calls = timer_calls() - calls;
	sent = p->sent ? p->sent() - sent : 0;

	/* Twice as much time for as many operations is another mix. */
	if (late > (to - from) * STEP) {
		no_figure(p, op_name(op), n, "does not keep up");
		return;
	}
	figure(p, op_name(op), n, "ns", spent_in_turns(to - from) / mix.ops);
	snprintf(name, sizeof(name), "%s-sent", op_name(op));
	small_figure(p, name, n, "per-op", (double)sent / mix.ops);
	snprintf(name, sizeof(name), "%s-calls", op_name(op));
	small_figure(p, name, n, "per-op", (double)calls / mix.ops);
}

static void connections(const struct peer *p)
{
	__u32 n = config.connections, steps = config.mix_ns / STEP;
	struct peer mine;
	struct set s;
	__u64 start;

	if (!begin(&mine, p, p->tick, n)) {
		no_figure(p, op_name(OP_MIX_CONNECTIONS), n, reason(errno));
		return;
	}
	set_init(&s, &mine, n);
	set_deadlines(&s, 0, 0);
	mix.order = s.idx;
	mix.n = n;
	s.idx = NULL;
	set_free(&s);
	mine.turn(connect_all);
	start = now_ns();
	turns(start, 0, PUSH_STEPS * 2, push_some);
	measure(OP_MIX_CONNECTIONS, n, start, PUSH_STEPS * 2, PUSH_STEPS * 2 + steps, push_some);
	end();
}

static void calls(const struct peer *p)
{
	__u32 steps = config.mix_ns / STEP, i;
	struct peer mine;
	__u64 start;

	/* Twice as many as time out in 50 ms if none is answered. */
	if (!begin(&mine, p, p->tick, config.rpcs / 10)) {
		no_figure(p, op_name(OP_MIX_RPC), config.rpcs, reason(errno));
		return;
	}
	mix.n = config.rpcs / 10;
	mix.order = xcalloc(mix.n, sizeof(*mix.order));
	rpc.next = xcalloc(mix.n, sizeof(*rpc.next));
	for (i = 0; i < mix.n; i++)
		mix.order[i] = i;
	memset(rpc.answered, 0xff, sizeof(rpc.answered));
	rpc.nr_free = mix.n;
	rpc.a_step = config.rpcs / STEPS_A_SEC;
	rpc.lost = 0;
	tally.then = timed_out;
	start = now_ns();
	turns(start, 0, RPC_WARM_STEPS, answer_and_call);
	measure(OP_MIX_RPC, config.rpcs, start, RPC_WARM_STEPS, RPC_WARM_STEPS + steps,
		answer_and_call);
	free(rpc.next);
	end();
}

static void pacing(const struct peer *p)
{
	__u32 n = config.paced, steps = config.mix_ns / STEP / PACING_PART;
	struct peer mine;
	__u64 start;

	if (!begin(&mine, p, PERIOD_TICK, n)) {
		no_figure(p, op_name(OP_MIX_PACING), n, reason(errno));
		return;
	}
	tally.then = paced;
	while (mix.n < n) {
		mine.turn(pace_one);
		sleep_ns(USEC);
	}
	start = now_ns();
	turns(start, 0, 2, nothing);
	measure(OP_MIX_PACING, n, start, 2, 2 + steps, nothing);
	end();
}

void measure_mixes(const struct peer *p)
{
	if (wanted(OP_MIX_CONNECTIONS))
		connections(p);
	if (wanted(OP_MIX_RPC))
		calls(p);
	if (wanted(OP_MIX_PACING))
		pacing(p);
}

/*
 * The program without timers, which is told of as many expiries for all that; and with a
 * cache line for each that is looked at and written when it is armed or pushed later, and
 * nothing else: the least that a timer of a connection's own can take.
 */
static struct {
	struct pollfd fd;
	__u32 paced;
	__u32 earlier;		/* moved to an earlier time: what looking is for */
	struct line {
		_Alignas(64) __u64 deadline_ns;
	} *lines;
} bare;

static bool bare_open(const struct peer *p, __u32 n)
{
	(void)p;
	(void)n;
	bare.fd.fd = eventfd(0, EFD_CLOEXEC);
	bare.fd.events = POLLIN;
	bare.paced = 0;
	bare.lines = NULL;
	return bare.fd.fd >= 0;
}

static bool line_open(const struct peer *p, __u32 n)
{
	if (!bare_open(p, n))
		return false;
	bare.lines = aligned_alloc(sizeof(*bare.lines), n * sizeof(*bare.lines));
	if (!bare.lines)
		err(1, "memory");
	memset(bare.lines, 0, n * sizeof(*bare.lines));
	return true;
}

static void bare_close(void)
{
	close(bare.fd.fd);
	free(bare.lines);
}

static void bare_turn(void (*work)(void))
{
	__u32 i;

	if (poll(&bare.fd, 1, 0) < 0)
		err(1, "poll");
	for (i = 0; i < bare.paced; i++)
		fired(i);
	work();
}

static void bare_after(const __u32 *idx, __u64 delay, __u32 n)
{
	__u64 deadline_ns = mix.step * STEP + delay;
	__u32 k;

	for (k = 0; bare.lines && k < n; k++) {
		if (bare.lines[idx[k]].deadline_ns > deadline_ns)
			bare.earlier++;
		bare.lines[idx[k]].deadline_ns = deadline_ns;
	}
}

static void bare_every(const __u32 *idx, __u64 period, __u32 n)
{
	(void)idx;
	(void)period;
	bare.paced += n;
}

static __u32 bare_cancel(const __u32 *idx, const __u64 *when, __u32 n)
{
	(void)idx;
	(void)when;
	return n;
}

#define BARE(which, how)		\
	{				\
		.name = (which),	\
		.groups = GROUP_MIXES,	\
		.batch = 1,		\
		.step = 1,		\
		.in_process = true,	\
		.open = (how),		\
		.cancel = bare_cancel,	\
		.turn = bare_turn,	\
		.after = bare_after,	\
		.every = bare_every,	\
		.close = bare_close,	\
	}

const struct peer bare_peers[] = {
	BARE("no-timers", bare_open),
	BARE("one-line", line_open),
	{ },
};
