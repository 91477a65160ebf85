/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who takes part in the races of stress.c: workers, which arm timers, servants and readers.
 * Each keeps an account of what it has done.
 */
#ifndef STRESS_ACTORS_H
#define STRESS_ACTORS_H

#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>

#include "twheel_test.h"

#define ROUNDS		tw_env("TWHEEL_ROUNDS", 100000)
#define SLOW_ROUNDS	(ROUNDS / 20)
#define GROUP		32	/* timers that a worker has in hand */
#define CAPACITY	1000	/* so few that a debugging build checks them all */
#define DELAY_SHIFT	19	/* delays are below 2^19 ns, most of them far below */
#define PATIENCE	10000000 /* tries to get room in a full wheel */
#define PARTS		10
#define BURST		8	/* periods of a burst */
#define PERIOD		(1ULL << 22) /* of them; ns, and the most bursts */
#define END		(~0ULL)	/* user_data that tells readers to go */

enum count {
	ARMED,
	RECORDS,	/* read, the last of their timers */
	PERIODS,	/* read, others */
	CANCELLED,	/* CANCEL returned 0 */
	WITHDRAWN,	/* CANCEL returned 1 */
	DRAINED,
	STALE,		/* CANCEL returned -ENOENT */
	MOVED,		/* MODIFY returned 0 or 1 */
	TAKEN_BACK,	/* MODIFY returned 1 */
	INTERRUPTED,	/* read returned -EINTR */
	COUNTS
};

enum role {
	WORKER,		/* ends when there are no more numbers */
	SERVANT,	/* ends when the workers have */
	READER,		/* ends at a record of END */
	NOBODY
};

struct actor {
	pthread_t thread;
	struct race *race;
	enum role role;
	void (*play)(struct actor *a);
	__u64 seed;
	__u64 count[COUNTS];
	long error;
};

struct group {
	__u32 nr;
	__u64 ids[GROUP];
	__u64 numbers[GROUP];
};

/* What the threads, and the processes, of one test share */
struct race {
	int fd;
	bool manual;
	bool periodic;		/* half of the timers are */
	void (*note)(struct actor *a, const struct twheel_event *ev);
	unsigned int delay_shift;
	__u64 rounds;
	__u64 next_number;	/* atomic */
	__u8 *fates;		/* atomic; of each number, 0 or what it was counted as */
	bool stop;		/* atomic */
	pthread_barrier_t start;
	__u64 *ids;		/* atomic; of each number */
	pthread_barrier_t round;
	unsigned int arrived;	/* atomic */
	int shared_fd;
	long results[2];
	__u64 *first;		/* of each number, what burst_and_modify() began with */
	__u8 *ended;		/* of each number, whether all of that was read */
	unsigned int nr_actors;
	struct actor actors[PARTS];
	struct actor self;	/* the test itself */
};

static bool stopped(struct race *race)
{
	return __atomic_load_n(&race->stop, __ATOMIC_ACQUIRE);
}

static void stop(struct race *race)
{
	__atomic_store_n(&race->stop, true, __ATOMIC_RELEASE);
}

static void fail(struct actor *a, long error)
{
	a->error = error ?: -EPROTO;
	stop(a->race);
}

static __u64 below(struct actor *a, __u64 bound)
{
	return tw_random_below(&a->seed, bound);
}

static void has_fate(struct actor *a, __u64 number, enum count fate)
{
	a->count[fate]++;
	if (number >= a->race->rounds ||
	    __atomic_exchange_n(&a->race->fates[number], fate, __ATOMIC_RELAXED))
		fail(a, -EEXIST);
}

/*
 * Waits for the other of two, so that both go on at the same time: first asleep, as the
 * other may not have a CPU, and then awake, as it takes long to get up.
 */
static void meet(struct race *race)
{
	unsigned int arrived;

	pthread_barrier_wait(&race->round);
	arrived = __atomic_add_fetch(&race->arrived, 1, __ATOMIC_ACQ_REL);
	arrived += arrived & 1;
	while ((int)(__atomic_load_n(&race->arrived, __ATOMIC_ACQUIRE) - arrived) < 0)
		sched_yield();
}

/* Does operations as an array or one by one. Each has its result in @res. */
static void do_ops(struct actor *a, struct twheel_op *ops, __u32 nr)
{
	static const unsigned long calls[] = {
		[TWHEEL_OP_ARM] = TWHEEL_IOC_ARM,
		[TWHEEL_OP_CANCEL] = TWHEEL_IOC_CANCEL,
		[TWHEEL_OP_MODIFY] = TWHEEL_IOC_MODIFY,
	};
	__u32 i;

	if (below(a, 2)) {
		if (tw_submit(a->race->fd, ops, nr) != nr)
			fail(a, -EIO);
		return;
	}
	for (i = 0; i < nr; i++)
		ops[i].res = tw_ioctl(a->race->fd, calls[ops[i].opcode], &ops[i]);
}

/* ARM or MODIFY: delays of each order of magnitude, and none at all */
static struct twheel_op random_op(struct actor *a, __u16 opcode)
{
	struct twheel_op op = tw_op(0, TW_POISON64);

	op.opcode = opcode;
	op.flags = TWHEEL_F_REL;
	op.expires_ns = below(a, 1ULL << below(a, a->race->delay_shift + 1));
	if (a->race->periodic && below(a, 2)) {
		op.interval_ns = TW_TICK_MIN / 4 + below(a, 4 * TW_TICK_MIN);
		op.count = below(a, 5);
		op.misfire = below(a, TWHEEL_MISFIRE_SKIP + 1);
	}
	return op;
}

static __u32 take_numbers(struct race *race, __u32 nr, __u64 *first)
{
	if (stopped(race))
		return 0;
	*first = __atomic_fetch_add(&race->next_number, nr, __ATOMIC_RELAXED);
	if (*first >= race->rounds)
		return 0;
	return *first + nr <= race->rounds ? nr : race->rounds - *first;
}

/* Arms some timers. False if there are no more numbers. */
static bool arm_group(struct actor *a, struct group *g)
{
	__u64 first, patience = 0;
	struct twheel_op ops[GROUP];
	__u32 i;

	g->nr = take_numbers(a->race, 1 + below(a, GROUP), &first);
	if (!g->nr)
		return false;
	for (i = 0; i < g->nr; i++) {
		ops[i] = random_op(a, TWHEEL_OP_ARM);
		ops[i].user_data = first + i;
	}
	do_ops(a, ops, g->nr);
	for (i = 0; i < g->nr; i++) {
		while (ops[i].res == -ENOSPC && !stopped(a->race) &&
		       patience++ < PATIENCE) {
			sched_yield();
			ops[i].res = tw_arm_op(a->race->fd, &ops[i]);
		}
		if (ops[i].res)
			fail(a, ops[i].res);
		g->ids[i] = ops[i].id;
		g->numbers[i] = first + i;
		__atomic_store_n(&a->race->ids[first + i], ops[i].id, __ATOMIC_RELAXED);
	}
	a->count[ARMED] += g->nr;
	return true;
}

static void cancel_group(struct actor *a, const struct group *g)
{
	struct twheel_op ops[GROUP];
	__u32 i;

	for (i = 0; i < g->nr; i++)
		ops[i] = tw_entry_by_id(TWHEEL_OP_CANCEL, g->ids[i]);
	do_ops(a, ops, g->nr);
	for (i = 0; i < g->nr; i++) {
		if (ops[i].res == 0)
			has_fate(a, g->numbers[i], CANCELLED);
		else if (ops[i].res == 1)
			has_fate(a, g->numbers[i], WITHDRAWN);
		else if (ops[i].res == -ENOENT)
			a->count[STALE]++;
		else
			fail(a, ops[i].res);
	}
}

/* Those that are stale leave the group. */
static void modify_group(struct actor *a, struct group *g)
{
	struct twheel_op ops[GROUP];
	__u32 i, nr = 0;

	for (i = 0; i < g->nr; i++) {
		ops[i] = random_op(a, TWHEEL_OP_MODIFY);
		ops[i].id = g->ids[i];
	}
	do_ops(a, ops, g->nr);
	for (i = 0; i < g->nr; i++) {
		if (ops[i].res == -ENOENT)
			continue;
		if (ops[i].res != 0 && ops[i].res != 1)
			fail(a, ops[i].res);
		a->count[MOVED]++;
		a->count[TAKEN_BACK] += ops[i].res == 1;
		g->ids[nr] = g->ids[i];
		g->numbers[nr++] = g->numbers[i];
	}
	g->nr = nr;
}

/* Workers */
static void arm_only(struct actor *a)
{
	struct group g;

	while (arm_group(a, &g))
		;
}

static void arm_and_cancel(struct actor *a)
{
	struct group g;

	while (arm_group(a, &g))
		cancel_group(a, &g);
}

static void arm_and_modify(struct actor *a)
{
	struct group g;
	int i;

	while (arm_group(a, &g)) {
		for (i = 0; i < 3 && g.nr; i++)
			modify_group(a, &g);
		if (g.nr && a->race->periodic)
			cancel_group(a, &g);
	}
}

static void fork_and_cancel(struct actor *a)
{
	int status, i;
	struct group g;
	pid_t pid;

	while (__atomic_load_n(&a->race->next_number, __ATOMIC_RELAXED) <
	       a->race->rounds && !stopped(a->race)) {
		pid = fork();
		if (!pid) {
			for (i = 0; i < GROUP && arm_group(a, &g); i++)
				cancel_group(a, &g);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			return fail(a, -ECHILD);
	}
}

static void arm_and_signal(struct actor *a)
{
	struct actor *to;
	struct group g;

	while (arm_group(a, &g)) {
		do
			to = &a->race->actors[below(a, a->race->nr_actors)];
		while (to->role != READER);
		pthread_kill(to->thread, below(a, 2) ? SIGUSR1 : SIGUSR2);
	}
}

/* Files of its own, each closed as a timer fires */
static void open_and_close(struct actor *a)
{
	struct twheel_info info;
	struct twheel_op op;
	__u64 i;
	int fd;

	for (i = 0; i < SLOW_ROUNDS && !stopped(a->race); i++) {
		fd = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, 0);
		if (fd < 0)
			return fail(a, fd);
		op = random_op(a, TWHEEL_OP_ARM);
		if (tw_arm_op(fd, &op) || !tw_arm_rel(fd, TW_HOUR, 0) ||
		    tw_info(fd, &info) || info.armed + info.ready != 2)
			return fail(a, -EIO);
		close(fd);
	}
}

/* What came of a set-up against another or, in odd rounds, against an arm. */
static bool judged(struct race *race, bool against_arm)
{
	bool won = !race->results[0];
	struct twheel_info info;

	if (tw_info(race->shared_fd, &info) || info.armed != against_arm ||
	    race->results[0] != (won ? 0 : -EBUSY) ||
	    race->results[1] != (against_arm || !won ? 0 : -EBUSY))
		return false;
	if (won)
		return info.clockid == TWHEEL_CLOCK_MANUAL &&
		       info.tick_ns == TW_TICK_MIN && info.capacity == 1;
	if (against_arm)
		return info.clockid == CLOCK_MONOTONIC &&
		       info.tick_ns == TW_TICK_DEFAULT;
	return info.clockid == CLOCK_BOOTTIME && info.tick_ns == TW_TICK_MAX &&
	       info.capacity == 2;
}

/* Two of these: the first sets up, the second does so too or arms. */
static void set_up(struct actor *a)
{
	struct race *race = a->race;
	bool first = a == race->actors;
	__u64 i, jitter, id;

	for (i = 0; i < race->rounds; i++) {
		if (first)
			race->shared_fd = tw_open(O_NONBLOCK);
		meet(race);
		for (jitter = below(a, 32); jitter; jitter--)
			tw_clock(CLOCK_MONOTONIC);
		if (first)
			race->results[0] = tw_setup(race->shared_fd,
						    TWHEEL_CLOCK_MANUAL, TW_TICK_MIN, 1);
		else if (i & 1)
			race->results[1] = tw_arm_id(race->shared_fd, TWHEEL_NEVER, 0,
						     &id);
		else
			race->results[1] = tw_setup(race->shared_fd, CLOCK_BOOTTIME,
						    TW_TICK_MAX, 2);
		meet(race);
		if (!first)
			continue;
		a->count[ARMED] += !race->results[0];
		if (!judged(race, i & 1))
			a->error = -EBADMSG;
		close(race->shared_fd);
	}
}

/*
 * One timer, moved again and again while its periods are read. The lower digits of its
 * expiries tell which move they belong to, the upper ones count the periods.
 */
static void burst_and_modify(struct actor *a)
{
	struct twheel_op op = { .id = 0 };
	struct race *race = a->race;
	__u64 i, now = 0, id = 0;
	long ret;

	for (i = 0; i < race->rounds && !stopped(race); i++) {
		race->first[i] = now / PERIOD + below(a, 3);
		op = tw_op(race->first[i] * PERIOD + i, 0);
		op.id = id;
		op.interval_ns = PERIOD;
		op.count = BURST;
		op.misfire = TWHEEL_MISFIRE_BURST;
		ret = i ? tw_modify_op(race->fd, &op) : -ENOENT;
		if (ret == -ENOENT) {
			if (i)
				race->ended[i - 1] = true;
			ret = tw_arm_op(race->fd, &op);
			id = op.id;
			a->count[ARMED]++;
		} else {
			a->count[MOVED]++;
			a->count[TAKEN_BACK] += ret == 1;
		}
		if (ret < 0)
			return fail(a, ret);
		now += below(a, (BURST + 4) * PERIOD);
		ret = tw_advance(race->fd, now);
		if (ret)
			return fail(a, ret);
		if (below(a, 2))
			sched_yield();
	}
	ret = tw_cancel(race->fd, id);
	a->count[CANCELLED] += ret == 0;
	a->count[WITHDRAWN] += ret == 1;
	race->ended[i - 1] = ret == -ENOENT;
}

/* Servants */
static void cancel_others(struct actor *a)
{
	__u64 number, end;
	struct group g;

	while (!stopped(a->race)) {
		end = __atomic_load_n(&a->race->next_number, __ATOMIC_RELAXED);
		g.nr = 0;
		for (number = end > GROUP ? end - GROUP : 0;
		     number < end && number < a->race->rounds; number++) {
			g.ids[g.nr] = __atomic_load_n(&a->race->ids[number],
						      __ATOMIC_RELAXED);
			g.numbers[g.nr] = number;
			g.nr += g.ids[g.nr] != 0;
		}
		if (g.nr)
			cancel_group(a, &g);
		else
			sched_yield();
	}
}

static void advance_on(struct actor *a)
{
	__u64 now = 0;
	long ret;

	while (!stopped(a->race) || tw_armed(a->race->fd)) {
		now += below(a, 8 * TW_TICK_MIN);
		ret = tw_advance(a->race->fd, now);
		if (ret)
			return fail(a, ret);
	}
}

static void drain_on(struct actor *a)
{
	struct twheel_op ops[8];
	long ret, i;

	while (!stopped(a->race)) {
		ret = tw_drain(a->race->fd, ops, 1 + below(a, ARRAY_SIZE(ops)));
		if (ret < 0)
			return fail(a, ret);
		for (i = 0; i < ret; i++)
			has_fate(a, ops[i].user_data, DRAINED);
		sched_yield();
	}
}

/* Each copy of the counters is of one instant, and they only grow. */
static bool follows(const struct twheel_stats *last, const struct twheel_stats *now)
{
	__u64 late = 0;
	int i;

	for (i = 0; i < TWHEEL_LATENESS_BUCKETS; i++)
		late += now->lateness[i];
	return late <= now->fired && last->armed <= now->armed &&
	       last->fired <= now->fired && last->cancelled <= now->cancelled &&
	       last->modified <= now->modified && now->cancelled <= now->armed;
}

static long walk(struct actor *a)
{
	struct twheel_op ops[10], op;
	__u64 cursor = 0;
	long ret, i;

	do {
		ret = tw_list(a->race->fd, ops, 1 + below(a, ARRAY_SIZE(ops)), &cursor);
		for (i = 0; i < ret; i++) {
			if (ops[i].flags != TWHEEL_F_ARMED ||
			    ops[i].user_data >= a->race->rounds)
				return -EBADMSG;
			if (tw_query(a->race->fd, ops[i].id, &op) &&
			    errno != ENOENT)
				return -errno;
		}
	} while (ret >= 0 && cursor && !stopped(a->race));
	return ret < 0 ? ret : 0;
}

static void look_on(struct actor *a)
{
	struct twheel_stats last = { 0 }, now;
	__u64 next;
	long ret;

	while (!stopped(a->race)) {
		ret = tw_stats(a->race->fd, &now);
		if (ret || !follows(&last, &now))
			return fail(a, ret);
		last = now;
		ret = tw_next_err(a->race->fd, &next) ?: walk(a);
		if (ret)
			return fail(a, ret);
		if (tw_counter(a->race->fd, "arms") < now.armed)
			return fail(a, -EBADMSG);
	}
}

/* Readers */
static void note(struct actor *a, const struct twheel_event *ev)
{
	if (ev->flags & TWHEEL_EV_MORE)
		a->count[PERIODS]++;
	else
		has_fate(a, ev->user_data, RECORDS);
}

static void note_burst(struct actor *a, const struct twheel_event *ev)
{
	__u64 number = ev->expires_ns % PERIOD;
	__u64 period = ev->expires_ns / PERIOD - a->race->first[number];
	bool last = period == BURST - 1;
	__u8 bit = 1 << period;

	if (period >= BURST || last != !(ev->flags & TWHEEL_EV_MORE) || ev->overrun ||
	    __atomic_fetch_or(&a->race->fates[number], bit, __ATOMIC_RELAXED) & bit)
		fail(a, -EBADMSG);
	a->count[last ? RECORDS : PERIODS]++;
}

static void arm_end(struct actor *a)
{
	if (!tw_arm(a->race->fd, 0, END))
		fail(a, -EIO);
	a->count[ARMED]++;
}

/* Half of the time asleep in poll, half in read. The last record is passed on. */
static void read_on(struct actor *a)
{
	struct twheel_event ev[16];
	bool more = true;
	long ret, i;

	while (more) {
		if (below(a, 2))
			tw_poll_for(a->race->fd, POLLIN, -1);
		ret = tw_read(a->race->fd, ev, 1 + below(a, ARRAY_SIZE(ev)));
		if (ret == -EINTR) {
			a->count[INTERRUPTED]++;
			continue;
		}
		if (ret <= 0)
			return fail(a, ret);
		for (i = 0; i < ret; i++) {
			if (ev[i].fired_ns < ev[i].expires_ns)
				fail(a, -ETIME);
			if (ev[i].user_data != END) {
				a->race->note(a, &ev[i]);
				continue;
			}
			a->count[RECORDS]++;
			more = false;
		}
	}
	arm_end(a);
}

#endif /* STRESS_ACTORS_H */
