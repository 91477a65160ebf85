// SPDX-License-Identifier: GPL-2.0
/*
 * Random calls, most of them right and many mangled: bits flipped, sizes and numbers
 * changed, memory that is not there or cannot be written.
 *
 *   TWHEEL_SEED=N          that run again; the seed is printed
 *   TWHEEL_FUZZ_SECONDS=N  how long each test goes on, 5 by default
 *
 * One test foretells each call on a manual clock with a model, and asks after each
 * whether the wheel is as the model says; so that a call which fails has changed
 * nothing. It does the same again for the same seed. The other test has threads that
 * share wheels on every clock, and looks at the accounts in the end.
 */
#include "fuzz_model.h"

#include <sys/random.h>

#define SECONDS		tw_env("TWHEEL_FUZZ_SECONDS", 5)
#define HANG_SECONDS	100	/* for some hundred calls, on the slowest machine */
#define MIN_STEPS	1000	/* however slow it is */
#define NO_LIMIT	1000000	/* seconds; hangs are noticed by alarm() */
#define NR_THREADS	4

static __u64 pick_seed(void)
{
	__u64 seed = 0;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = tw_clock(CLOCK_REALTIME);
	return tw_env("TWHEEL_SEED", seed);
}

static __u64 fuzz_end(void)
{
	return tw_clock(CLOCK_MONOTONIC) + SECONDS * TW_NSEC;
}

#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	NO_LIMIT

TEST(a_model_foretells_each_call)
{
	struct model *m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	__u64 seed = pick_seed(), end = fuzz_end();
	unsigned int i;

	ASSERT_NE(MAP_FAILED, m);
	TH_LOG("TWHEEL_SEED=%#llx", seed);
	ASSERT_TRUE(fuzzer_init(&m->f, seed, m->ids));
	m->f.fd = -1;
	m->epfd = epoll_create1(EPOLL_CLOEXEC);
	ASSERT_LE(0, m->epfd);
	ASSERT_TRUE(step_open(m) && check(m, false)) {
		TH_LOG("%s", m->wrong);
	}
	while (m->steps < MIN_STEPS || tw_clock(CLOCK_MONOTONIC) < end) {
		alarm(HANG_SECONDS);
		for (i = 0; i < 100; i++, m->steps++) {
			ASSERT_TRUE(step(m)) {
				TH_LOG("TWHEEL_SEED=%#llx step %llu, call %u %#lx: %s", seed,
				       m->steps, m->call.kind, m->call.cmd, m->wrong);
			}
		}
	}
	TH_LOG("%llu steps, %llu calls that failed, %llu records", m->steps, m->failed,
	       m->records);
	EXPECT_LT(0, m->records);
}

/* Threads without a model */

static const __u32 clocks[] = {
	CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME, CLOCK_TAI, TWHEEL_CLOCK_MANUAL,
};

#define NR_WHEELS	(sizeof(clocks) / sizeof(*clocks))

struct shared_wheel {
	int fd;
	__u64 ended;		/* timers whose last record has been read */
	__u64 ids[NR_IDS];	/* written by all threads, right or not */
};

struct worker {
	pthread_t thread;
	struct fuzzer f;
	struct shared_wheel *wheels;
	__u64 end;
	__u64 calls;
	struct call call;
	const char *wrong;
	long ret;
};

static long shared_setup(int fd, __u32 clockid, bool moderate)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.clockid = clockid,
		.capacity = NR_IDS,
		.tick_ns = TW_TICK_MIN,
		.wake_delay_ns = moderate ? TW_MSEC : 0,
		.wake_batch = moderate ? 5 : 0,
	};

	return tw_ioctl(fd, TWHEEL_IOC_SETUP, &setup);
}

/* Counts the records of timers that have ended; -1 if one is early. */
static long count_ended(const char *p, long size)
{
	struct twheel_event ev;
	long ended = 0;

	for (; size > 0; size -= sizeof(ev), p += sizeof(ev)) {
		memcpy(&ev, p, sizeof(ev));
		if (ev.flags & TWHEEL_EV_CLOCK_SET)
			continue;
		if (ev.fired_ns < ev.expires_ns)
			return -1;
		ended += !(ev.flags & TWHEEL_EV_MORE);
	}
	return ended;
}

static void remember(struct fuzzer *f, __u64 id)
{
	__atomic_store_n(&f->ids[below(f, NR_IDS)], id, __ATOMIC_RELAXED);
}

static bool work_call(struct worker *w, unsigned int kind)
{
	struct fuzzer *f = &w->f;
	struct twheel_op op;
	long i;

	pick_call(f, &w->call, kind);
	w->ret = issue(f, &w->call);
	if (!is_documented(&w->call, w->ret))
		return false;
	if (kind == ARM && !w->ret)
		remember(f, w->call.out.op.id);
	for (i = 0; kind == SUBMIT && i < w->ret && i < w->call.nr_ops; i++) {
		fetch(f, &op, (char *)(uintptr_t)w->call.in.array.ops + i * sizeof(op),
		      sizeof(op));
		if (op.opcode == TWHEEL_OP_ARM && !op.res)
			remember(f, op.id);
	}
	return true;
}

static bool work_read(struct worker *w, struct shared_wheel *wheel)
{
	struct fuzzer *f = &w->f;
	size_t size = sizeof(struct twheel_event) * (1 + below(f, 20));
	char *p = below(f, 8) ? place(f, &f->array, size) : place_badly(f, &f->array, size);
	long ended;

	w->ret = read_somehow(f, p, size);
	if (w->ret < 0)
		return w->ret == -EAGAIN || w->ret == -EFAULT;
	ended = count_ended(p, w->ret);
	__atomic_fetch_add(&wheel->ended, ended, __ATOMIC_RELAXED);
	return ended >= 0;
}

/* A wheel of its own, closed with what is in it by this process or by a child. */
static bool work_alone(struct worker *w)
{
	__u64 ids[NR_IDS] = {}, *shared = w->f.ids;
	int fd = w->f.fd, status;
	bool right = true;
	unsigned int i;
	pid_t pid;

	w->f.fd = tw_open(O_NONBLOCK);
	w->f.ids = ids;
	w->ret = w->f.fd;
	if (w->f.fd < 0)
		return false;
	shared_setup(w->f.fd, clocks[below(&w->f, NR_WHEELS)], below(&w->f, 2));
	for (i = below(&w->f, 20); i && right; i--)
		right = work_call(w, pick_kind(&w->f));
	pid = below(&w->f, 8) ? -1 : fork();
	if (!pid)
		_exit(!work_call(w, SUBMIT));
	close(w->f.fd);
	if (pid > 0)
		right &= waitpid(pid, &status, 0) == pid && !status;
	w->f.fd = fd;
	w->f.ids = shared;
	return right;
}

static const char *work(struct worker *w)
{
	struct shared_wheel *wheel = &w->wheels[below(&w->f, NR_WHEELS)];

	w->f.fd = wheel->fd;
	w->f.ids = wheel->ids;
	w->f.tick = TW_TICK_MIN;
	w->f.now = tw_now(wheel->fd);
	switch (below(&w->f, 32)) {
	case 0:
		return work_alone(w) ? NULL : "on a wheel alone";
	case 1:
		return is_impossible(&w->f, below(&w->f, NR_IMPOSSIBLE)) ? NULL : "impossible";
	case 2:
	case 3:
		return tw_poll(wheel->fd) < 0 ? "poll" : NULL;
	case 4:
	case 5:
	case 6:
	case 7:
		return work_read(w, wheel) ? NULL : "read";
	default:
		return work_call(w, pick_kind(&w->f)) ? NULL : "call";
	}
}

static void *worker(void *arg)
{
	struct worker *w = arg;

	for (; !w->wrong && (w->calls < MIN_STEPS || tw_clock(CLOCK_MONOTONIC) < w->end);
	     w->calls++)
		w->wrong = work(w);
	return NULL;
}

/* Read and cancel until nothing is left: the timers whose last record came, or -1. */
static long empty(int fd)
{
	struct twheel_event ev[NR_IDS];
	struct twheel_op ops[NR_IDS];
	struct twheel_info info;
	long i, nr, ended = 0;
	unsigned int rounds;

	for (rounds = 0; rounds < 1000; rounds++) {
		if (tw_info(fd, &info))
			return -1;
		if (!info.armed && !info.ready)
			return ended;
		if (tw_drain(fd, ops, NR_IDS) < 0)
			return -1;
		nr = tw_read(fd, ev, NR_IDS);
		for (i = 0; i < nr; i++) {
			if (ev[i].flags & TWHEEL_EV_MORE)
				tw_cancel(fd, ev[i].id);
			else if (!(ev[i].flags & TWHEEL_EV_CLOCK_SET))
				ended++;
		}
	}
	return -1;
}

static bool goes_idle(int fd)
{
	unsigned int i;

	for (i = 0; i < TW_PATIENCE_MS; i++) {
		if (tw_counter(fd, "next_wake_ns") == TWHEEL_NEVER)
			return true;
		tw_sleep_ms(1);
	}
	return false;
}

TEST(threads_on_shared_wheels_leave_the_accounts_right)
{
	static struct worker workers[NR_THREADS];
	static struct shared_wheel wheels[NR_WHEELS];
	__u64 seed = pick_seed(), end = fuzz_end(), calls = 0, sum;
	struct twheel_stats stats;
	size_t i, j;
	long ended;

	TH_LOG("TWHEEL_SEED=%#llx", seed);
	alarm(SECONDS + HANG_SECONDS);
	for (i = 0; i < NR_WHEELS; i++) {
		wheels[i].fd = tw_open(O_NONBLOCK);
		ASSERT_LE(0, wheels[i].fd);
		ASSERT_EQ(0, shared_setup(wheels[i].fd, clocks[i], i % 2));
	}
	for (i = 0; i < NR_THREADS; i++) {
		ASSERT_TRUE(fuzzer_init(&workers[i].f, seed + i, NULL));
		workers[i].wheels = wheels;
		workers[i].end = end;
		ASSERT_EQ(0, pthread_create(&workers[i].thread, NULL, worker, &workers[i]));
	}
	for (i = 0; i < NR_THREADS; i++) {
		ASSERT_EQ(0, pthread_join(workers[i].thread, NULL));
		EXPECT_EQ(NULL, workers[i].wrong) {
			TH_LOG("%s: call %u %#lx returns %ld", workers[i].wrong,
			       workers[i].call.kind, workers[i].call.cmd, workers[i].ret);
		}
		calls += workers[i].calls;
	}
	for (i = 0; i < NR_WHEELS; i++) {
		ended = empty(wheels[i].fd);
		ASSERT_LE(0, ended);
		ASSERT_EQ(0, tw_stats(wheels[i].fd, &stats));
		EXPECT_EQ(stats.armed, stats.cancelled + wheels[i].ended + ended);
		for (sum = 0, j = 0; j < TWHEEL_LATENESS_BUCKETS; j++)
			sum += stats.lateness[j];
		EXPECT_GE(stats.fired, sum);
		EXPECT_LT(0, stats.fired);
		EXPECT_TRUE(goes_idle(wheels[i].fd));
		close(wheels[i].fd);
	}
	TH_LOG("%llu calls", calls);
}

TEST_HARNESS_MAIN
