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
#include "stress_actors.h"

/* A race is over when it is over. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	1800

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
