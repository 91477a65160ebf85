// SPDX-License-Identifier: GPL-2.0
/*
 * Races with exact accounts. Each timer has a number and exactly one fate: it is read,
 * cancelled or drained, whoever else arms, moves, fires, reads, looks, forks or sends
 * signals meanwhile. In the end what the threads have counted is what the wheel has
 * counted, and nothing is left.
 *
 *   TWHEEL_ROUNDS=N  timers of each race, 100000 by default; rounds that open a
 *                    file or put a thread to sleep are a twentieth of it
 */
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>

#include "twheel_test.h"

/* A race is over when it is over. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	1800

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

/* The race */
static void *shared_memory(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void init_actor(struct race *race, struct actor *a, enum role as,
		       void (*play)(struct actor *a))
{
	a->race = race;
	a->role = as;
	a->play = play;
	a->seed = 1 + (a - race->actors);
}

static void add(struct race *race, unsigned int nr, enum role as,
		void (*play)(struct actor *a))
{
	while (nr--)
		init_actor(race, &race->actors[race->nr_actors++], as, play);
}

static void *act(void *arg)
{
	struct actor *a = arg;

	pthread_barrier_wait(&a->race->start);
	a->play(a);
	return NULL;
}

static bool start(struct race *race)
{
	unsigned int i;

	if (pthread_barrier_init(&race->start, NULL, race->nr_actors + 1))
		return false;
	for (i = 0; i < race->nr_actors; i++)
		if (pthread_create(&race->actors[i].thread, NULL, act,
				   &race->actors[i]))
			return false;
	pthread_barrier_wait(&race->start);
	return true;
}

static void join(struct race *race, enum role role)
{
	unsigned int i;

	for (i = 0; i < race->nr_actors; i++)
		if (race->actors[i].role == role)
			pthread_join(race->actors[i].thread, NULL);
}

/* Readers take everything, unless a wake-up is lost; the next would hide that. */
static bool settled(int fd)
{
	__u64 end = tw_clock(CLOCK_MONOTONIC) + TW_PATIENCE_MS * TW_MSEC;
	struct twheel_info info;

	while (tw_info(fd, &info) || info.armed || info.ready) {
		if (tw_clock(CLOCK_MONOTONIC) > end)
			return false;
		tw_sleep_ms(1);
	}
	return true;
}

static __u64 total(struct race *race, enum count count)
{
	__u64 sum = race->self.count[count];
	unsigned int i;

	for (i = 0; i < race->nr_actors; i++)
		sum += race->actors[i].count[count];
	return sum;
}

/* Records of END that are read: by each reader and in the end by the test */
static __u64 ends(struct race *race)
{
	__u64 nr = 1;
	unsigned int i;

	for (i = 0; i < race->nr_actors; i++)
		nr += race->actors[i].role == READER;
	return nr;
}

static __u64 without_fate(struct race *race)
{
	__u64 i, nr = 0;

	for (i = 0; i < race->rounds; i++)
		nr += !race->fates[i];
	return nr;
}

static void run(struct __test_metadata *_metadata, struct race *race)
{
	struct twheel_stats stats;
	struct twheel_event ev;
	unsigned int i;
	__u64 begin;

	if (race->manual)
		add(race, 1, SERVANT, advance_on);
	begin = tw_clock(CLOCK_MONOTONIC);
	ASSERT_TRUE(start(race));
	join(race, WORKER);
	stop(race);
	join(race, SERVANT);
	for (i = 0; i < race->nr_actors; i++)
		ASSERT_EQ(0, race->actors[i].error);
	ASSERT_TRUE(settled(race->fd));
	arm_end(&race->self);
	join(race, READER);
	ASSERT_EQ(1, tw_read(race->fd, &ev, 1));
	ASSERT_EQ(END, ev.user_data);
	race->self.count[RECORDS]++;

	TH_LOG("%llu ms; %llu armed: %llu read, %llu cancelled, %llu withdrawn, %llu drained",
	       (tw_clock(CLOCK_MONOTONIC) - begin) / TW_MSEC, total(race, ARMED),
	       total(race, RECORDS), total(race, CANCELLED), total(race, WITHDRAWN),
	       total(race, DRAINED));
	TH_LOG("%llu periods read, %llu cancelled in vain, %llu moved, %llu of these unread",
	       total(race, PERIODS), total(race, STALE), total(race, MOVED),
	       total(race, TAKEN_BACK));
	for (i = 0; i < race->nr_actors; i++)
		EXPECT_EQ(0, race->actors[i].error);
	EXPECT_EQ(total(race, ARMED), total(race, RECORDS) + total(race, CANCELLED) +
				      total(race, WITHDRAWN) + total(race, DRAINED));
	EXPECT_EQ(0, tw_armed(race->fd));
	EXPECT_EQ(0, tw_ready(race->fd));
	EXPECT_EQ(TWHEEL_NEVER, tw_counter(race->fd, "next_wake_ns"));
	ASSERT_EQ(0, tw_stats(race->fd, &stats));
	EXPECT_EQ(total(race, ARMED), stats.armed);
	EXPECT_EQ(total(race, CANCELLED) + total(race, WITHDRAWN) +
		  total(race, DRAINED), stats.cancelled);
	EXPECT_EQ(total(race, MOVED), stats.modified);
	EXPECT_EQ(total(race, RECORDS) + total(race, PERIODS) +
		  total(race, WITHDRAWN) + total(race, TAKEN_BACK), stats.fired);
	EXPECT_TRUE(follows(&stats, &stats));
}

static struct race *new_race(__u32 clockid)
{
	struct race *race = shared_memory(sizeof(*race));

	if (!race)
		return NULL;
	race->note = note;
	race->delay_shift = DELAY_SHIFT;
	race->rounds = ROUNDS;
	race->fates = shared_memory(race->rounds);
	race->ids = shared_memory(race->rounds * sizeof(*race->ids));
	race->fd = tw_wheel(clockid, TW_TICK_MIN, CAPACITY);
	init_actor(race, &race->self, NOBODY, NULL);
	if (!race->fates || !race->ids || race->fd < 0 || tw_set_blocking(race->fd))
		return NULL;
	return race;
}

FIXTURE(race)
{
	struct race *race;
};

FIXTURE_VARIANT(race)
{
	__u32 clockid;
};

FIXTURE_VARIANT_ADD(race, monotonic)
{
	.clockid = CLOCK_MONOTONIC,
};

FIXTURE_VARIANT_ADD(race, manual)
{
	.clockid = TWHEEL_CLOCK_MANUAL,
};

FIXTURE_SETUP(race)
{
	self->race = new_race(variant->clockid);
	ASSERT_NE(NULL, self->race);
	self->race->manual = variant->clockid == TWHEEL_CLOCK_MANUAL;
}

FIXTURE_TEARDOWN(race)
{
	close(self->race->fd);
}

/* P6 */
TEST_F(race, cancel_against_expiry_leaves_each_timer_one_fate)
{
	add(self->race, 2, WORKER, arm_and_cancel);
	add(self->race, 1, READER, read_on);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
}

/* A timer that expires is not out of reach for a moment. */
TEST_F(race, no_timer_is_stale_where_nobody_reads)
{
	self->race->periodic = true;
	add(self->race, 1, WORKER, arm_and_cancel);
	add(self->race, 1, WORKER, arm_and_modify);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
	EXPECT_EQ(0, total(self->race, STALE));
}

/* All are ready at once, so that the readers are what cancel races with. */
TEST_F(race, cancel_against_read_leaves_each_timer_one_fate)
{
	self->race->delay_shift = 0;
	add(self->race, 2, WORKER, arm_and_cancel);
	add(self->race, 2, READER, read_on);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
	EXPECT_EQ(total(self->race, RECORDS) - ends(self->race),
		  total(self->race, STALE));
}

TEST_F(race, cancel_against_cancel_succeeds_for_one)
{
	add(self->race, 2, WORKER, arm_and_cancel);
	add(self->race, 1, SERVANT, cancel_others);
	add(self->race, 1, READER, read_on);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
}

/* P7 */
TEST_F(race, modify_against_expiry_leaves_each_timer_one_record)
{
	add(self->race, 2, WORKER, arm_and_modify);
	add(self->race, 1, READER, read_on);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
}

TEST_F(race, periodic_timers_can_be_read_modified_and_cancelled_at_once)
{
	self->race->periodic = true;
	add(self->race, 2, WORKER, arm_and_modify);
	add(self->race, 2, READER, read_on);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
}

TEST_F(race, four_readers_get_each_record_once)
{
	add(self->race, 2, WORKER, arm_only);
	add(self->race, 4, READER, read_on);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
}

TEST_F(race, drain_against_expiry_and_read_leaves_each_timer_one_fate)
{
	add(self->race, 1, WORKER, arm_only);
	add(self->race, 1, WORKER, arm_and_cancel);
	add(self->race, 1, SERVANT, drain_on);
	add(self->race, 1, READER, read_on);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
}

TEST_F(race, everything_at_once_leaves_each_timer_one_fate)
{
	self->race->periodic = true;
	add(self->race, 2, WORKER, arm_and_cancel);
	add(self->race, 2, WORKER, arm_and_modify);
	add(self->race, 1, SERVANT, drain_on);
	add(self->race, 1, SERVANT, look_on);
	add(self->race, 2, READER, read_on);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
}

static void no_op(int sig)
{
	(void)sig;
}

/* One signal interrupts a read, the other restarts it. */
TEST_F(race, signals_during_reads_lose_nothing)
{
	struct sigaction interrupt = { .sa_handler = no_op };
	struct sigaction restart = { .sa_handler = no_op, .sa_flags = SA_RESTART };

	ASSERT_EQ(0, sigaction(SIGUSR1, &interrupt, NULL));
	ASSERT_EQ(0, sigaction(SIGUSR2, &restart, NULL));
	add(self->race, 2, WORKER, arm_and_signal);
	add(self->race, 2, READER, read_on);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
	TH_LOG("%llu reads interrupted", total(self->race, INTERRUPTED));
}

TEST_F(race, children_that_share_the_file_lose_nothing)
{
	add(self->race, 2, WORKER, fork_and_cancel);
	add(self->race, 1, READER, read_on);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
}

TEST_F(race, files_closed_as_their_timers_fire_do_not_disturb_another)
{
	add(self->race, 2, WORKER, open_and_close);
	add(self->race, 1, WORKER, arm_and_cancel);
	add(self->race, 1, READER, read_on);
	run(_metadata, self->race);
	EXPECT_EQ(0, without_fate(self->race));
}

/* Of each burst the first few periods were read, and all if the timer ended by itself. */
static __u64 torn_bursts(struct race *race)
{
	__u64 i, torn = 0;

	for (i = 0; i < race->rounds; i++)
		torn += race->fates[i] & (race->fates[i] + 1) ||
			(race->ended[i] && race->fates[i] != (1 << BURST) - 1);
	return torn;
}

TEST(bursts_that_two_read_and_one_modifies_have_each_period_once)
{
	struct race *race = new_race(TWHEEL_CLOCK_MANUAL);

	ASSERT_NE(NULL, race);
	if (race->rounds > PERIOD)
		race->rounds = PERIOD;
	race->first = calloc(race->rounds, sizeof(*race->first));
	race->ended = calloc(race->rounds, 1);
	ASSERT_TRUE(race->first && race->ended);
	race->note = note_burst;
	add(race, 1, WORKER, burst_and_modify);
	add(race, 2, READER, read_on);
	run(_metadata, race);
	EXPECT_EQ(0, torn_bursts(race));
	close(race->fd);
}

TEST(set_up_against_set_up_and_arm_is_done_whole_or_not_at_all)
{
	struct race *race = new_race(CLOCK_MONOTONIC);

	ASSERT_NE(NULL, race);
	race->rounds = SLOW_ROUNDS;
	add(race, 2, WORKER, set_up);
	ASSERT_EQ(0, pthread_barrier_init(&race->round, NULL, 2));
	ASSERT_TRUE(start(race));
	join(race, WORKER);
	EXPECT_EQ(0, race->actors[0].error);
	TH_LOG("%llu of %llu came first", race->actors[0].count[ARMED], race->rounds);
	close(race->fd);
}

/*
 * P19: two threads, each asleep until a timer fires that the other has armed. Each
 * wake-up has to come; a lost one stops both.
 */
struct player {
	pthread_t thread;
	int own, other, epoll;
	bool (*wait)(struct player *p);
	bool all;		/* an edge is told once: reads all there is */
	__u64 rounds;
	__u64 got;		/* atomic */
	bool done;		/* atomic */
	__u64 next;		/* what is added to the number of a ball: 1 for who begins */
	long error;
};

static bool wait_in_read(struct player *p)
{
	return p;
}

static bool wait_in_poll(struct player *p)
{
	return tw_poll_for(p->own, POLLIN, -1) == POLLIN;
}

static bool wait_in_epoll(struct player *p)
{
	struct epoll_event event;

	return epoll_wait(p->epoll, &event, 1, -1) == 1 && event.events & EPOLLIN;
}

/* Two timers, of which the second may have to wait for the first to fire. */
static bool serve(struct player *p, __u64 *seed, __u64 ball)
{
	int i;

	for (i = 0; i < 2; i++)
		if (!tw_arm_rel(p->other, tw_random_below(seed, 2) ? 0 :
				tw_random_below(seed, 64 * TW_TICK_MIN), ball))
			return false;
	return true;
}

static bool receive(struct player *p, __u64 ball)
{
	struct twheel_event ev[2];
	long got, ret, i;

	for (got = 0; got < 2; got += ret) {
		if (!p->wait(p))
			return false;
		ret = tw_read(p->own, ev, p->all ? 2 - got : 1);
		if (ret <= 0)
			return false;
		for (i = 0; i < ret; i++)
			if (ev[i].user_data != ball)
				return false;
	}
	return true;
}

static void *play(void *arg)
{
	struct player *p = arg;
	__u64 seed = 1 + p->next, i;

	if (p->next && !serve(p, &seed, 0))
		p->error = -EIO;
	for (i = 0; i < p->rounds && !p->error; i++) {
		if (!receive(p, i))
			p->error = -EPROTO;
		else if (!serve(p, &seed, p->next + i))
			p->error = -EIO;
		__atomic_store_n(&p->got, i + 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&p->done, true, __ATOMIC_RELEASE);
	return NULL;
}

static __u64 progress(struct player *p)
{
	return __atomic_load_n(&p[0].got, __ATOMIC_ACQUIRE) +
	       __atomic_load_n(&p[1].got, __ATOMIC_ACQUIRE);
}

/* Until both are done, or have got nothing for long. */
static bool played(struct player *p)
{
	__u64 last = tw_clock(CLOCK_MONOTONIC), got = 0;

	while (!__atomic_load_n(&p[0].done, __ATOMIC_ACQUIRE) ||
	       !__atomic_load_n(&p[1].done, __ATOMIC_ACQUIRE)) {
		if (progress(p) != got) {
			got = progress(p);
			last = tw_clock(CLOCK_MONOTONIC);
		}
		if (tw_clock(CLOCK_MONOTONIC) - last > TW_PATIENCE_MS * TW_MSEC)
			return false;
		tw_sleep_ms(10);
	}
	return true;
}

FIXTURE(wakeup)
{
	struct player p[2];
};

FIXTURE_VARIANT(wakeup)
{
	bool (*wait)(struct player *p);
	__u32 events;
};

FIXTURE_VARIANT_ADD(wakeup, in_read)
{
	.wait = wait_in_read,
};

FIXTURE_VARIANT_ADD(wakeup, in_poll)
{
	.wait = wait_in_poll,
};

FIXTURE_VARIANT_ADD(wakeup, in_epoll)
{
	.wait = wait_in_epoll,
	.events = EPOLLIN,
};

FIXTURE_VARIANT_ADD(wakeup, in_epoll_with_edges)
{
	.wait = wait_in_epoll,
	.events = EPOLLIN | EPOLLET,
};

FIXTURE_SETUP(wakeup)
{
	struct epoll_event event = { .events = variant->events };
	int i;

	for (i = 0; i < 2; i++) {
		struct player *p = &self->p[i];

		p->own = tw_wheel(CLOCK_MONOTONIC, TW_TICK_MIN, 0);
		ASSERT_LE(0, p->own);
		ASSERT_EQ(0, tw_set_blocking(p->own));
		p->epoll = epoll_create1(EPOLL_CLOEXEC);
		ASSERT_EQ(0, epoll_ctl(p->epoll, EPOLL_CTL_ADD, p->own, &event));
		p->wait = variant->wait;
		p->all = variant->events & EPOLLET;
		p->rounds = SLOW_ROUNDS;
		p->next = i;
	}
	self->p[0].other = self->p[1].own;
	self->p[1].other = self->p[0].own;
}

FIXTURE_TEARDOWN(wakeup)
{
	close(self->p[0].own);
	close(self->p[1].own);
}

TEST_F(wakeup, of_a_sleeper_is_never_lost)
{
	__u64 begin = tw_clock(CLOCK_MONOTONIC);
	int i;

	for (i = 0; i < 2; i++)
		ASSERT_EQ(0, pthread_create(&self->p[i].thread, NULL, play,
					    &self->p[i]));
	ASSERT_TRUE(played(self->p));
	TH_LOG("%llu ms, %llu wake-ups", (tw_clock(CLOCK_MONOTONIC) - begin) / TW_MSEC,
	       progress(self->p));
	EXPECT_EQ(0, self->p[0].error);
	EXPECT_EQ(0, self->p[1].error);
}

/* Memory that comes and goes until it is told to stay. */
struct flicker {
	void *at;
	size_t size;
	bool stop;	/* atomic */
};

static void *flicker(void *arg)
{
	struct flicker *f = arg;

	while (!__atomic_load_n(&f->stop, __ATOMIC_ACQUIRE)) {
		mprotect(f->at, f->size, PROT_READ);
		mprotect(f->at, f->size, PROT_READ | PROT_WRITE);
	}
	return NULL;
}

/* P22: the memory goes between the trial of writing and the writing. */
TEST(an_arm_whose_id_cannot_be_told_leaves_no_timer)
{
	struct flicker f = { .size = sysconf(_SC_PAGESIZE) };
	int fd = tw_wheel(TWHEEL_CLOCK_MANUAL, TW_TICK_MIN, ROUNDS);
	__u64 i, told = 0, faults = 0;
	struct twheel_op op;
	pthread_t thread;
	long ret;

	f.at = mmap(NULL, f.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, f.at);
	op = tw_op(TW_HOUR, 0);
	memcpy(f.at, &op, sizeof(op));
	ASSERT_EQ(0, pthread_create(&thread, NULL, flicker, &f));
	for (i = 0; i < ROUNDS; i++) {
		ret = tw_arm_op(fd, f.at);
		told += !ret;
		faults += ret == -EFAULT;
	}
	__atomic_store_n(&f.stop, true, __ATOMIC_RELEASE);
	ASSERT_EQ(0, pthread_join(thread, NULL));
	TH_LOG("%llu told, %llu faults", told, faults);
	EXPECT_EQ(ROUNDS, told + faults);
	EXPECT_EQ(told, tw_armed(fd));
	close(fd);
	munmap(f.at, f.size);
}

TEST_HARNESS_MAIN
