// SPDX-License-Identifier: GPL-2.0
/*
 * threads.c - how pairs of arm and cancel scale with threads
 *
 * "threads-own-T" is T threads with a wheel each, "threads-shared-T" is T threads on
 * one wheel. Either is the time that passes, divided by the pairs that all threads
 * have done in it: with perfect scaling two threads on two CPUs have half of what one
 * has. The program has another thread all the time, so that all figures contain what
 * the kernel does to share descriptors. Each thread arms what is armed beforehand on
 * its own wheel itself: a timerfd is in the queue of the CPU that armed it.
 */
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>

#include <linux/twheel.h>

#define NEAREST		(60 * NSEC)	/* none fires while it is operated on */
#define SPAN		(3600 * NSEC)
#define DEADLINES	4096		/* of pairs, again and again */
#define BATCH_MAX	256		/* divides DEADLINES */
#define THREADS_MAX	4

/**
 * struct worker - a thread, and the wheel or the timerfds that it works on
 * @ops:    of SUBMIT. To a page, so that threads share no line of the cache, and that
 *          copies across pages, which take longer, are not for some of them only
 * @thread: to wait for
 * @peer:   of a wheel or timerfd
 * @n:      timers armed beforehand
 * @shared: @fd belongs to all threads, and is there when they start
 * @fd:     of the wheel, or of the timerfd that pairs are done with; or -1
 * @fds:    timerfds that are armed beforehand
 * @fds_nr: entries of @fds
 * @when:   deadlines of these @n, then those of pairs
 * @start:  when the first pair began
 * @end:    when the last one ended
 * @pairs:  done
 * @lacks:  errno of why there is no wheel or not enough timerfds, or 0
 * @error:  errno of a pair, or 0
 */
struct worker {
	_Alignas(4096) struct twheel_op ops[BATCH_MAX];
	pthread_t thread;
	const struct peer *peer;
	__u32 n;
	bool shared;
	int fd;
	int *fds;
	__u32 fds_nr;
	__u64 *when;
	__u64 start;
	__u64 end;
	__u64 pairs;
	int lacks;
	int error;
};

static struct worker workers[THREADS_MAX];
static pthread_barrier_t ready;
static atomic_bool stop;

static bool arm(struct worker *w, const __u64 *when, __u32 nr)
{
	__u32 k;

	for (k = 0; k < nr; k++)
		w->ops[k] = (struct twheel_op) {
			.opcode = TWHEEL_OP_ARM,
			.expires_ns = when[k],
		};
	return wheel_submit(w->fd, w->ops, nr) == nr;
}

/* What arm() has armed: the ids are where it has left them. */
static bool cancel(struct worker *w, __u32 nr)
{
	__u32 k;

	for (k = 0; k < nr; k++)
		w->ops[k].opcode = TWHEEL_OP_CANCEL;
	return wheel_submit(w->fd, w->ops, nr) == nr;
}

static bool pair_single(const struct worker *w, __u64 when)
{
	struct twheel_op op = { .expires_ns = when };

	return !ioctl(w->fd, TWHEEL_IOC_ARM, &op) &&
		!ioctl(w->fd, TWHEEL_IOC_CANCEL, &op);
}

/* As many pairs as the peer does at a time. */
static bool pair(struct worker *w, const __u64 *when)
{
	__u32 nr = w->peer->batch;

	if (!w->peer->tick)
		return timerfd_set_one(w->fd, *when) && timerfd_set_one(w->fd, 0);
	if (nr == 1)
		return pair_single(w, *when);
	return arm(w, when, nr) && cancel(w, nr);
}

static bool make_wheel(struct worker *w)
{
	__u32 done, nr;

	w->fd = wheel_new(w->peer, w->n + THREADS_MAX * w->peer->batch);
	if (w->fd < 0)
		return false;
	for (done = 0; done < w->n; done += nr) {
		nr = w->n - done < BATCH_MAX ? w->n - done : BATCH_MAX;
		if (!arm(w, w->when + done, nr))
			return false;
	}
	return true;
}

static bool make_timerfds(struct worker *w)
{
	int fd;

	w->fds = xcalloc(w->n, sizeof(*w->fds));
	while (w->fds_nr < w->n) {
		fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
		if (fd < 0)
			return false;
		w->fds[w->fds_nr++] = fd;
		if (!timerfd_set_one(fd, w->when[w->fds_nr - 1]))
			return false;
	}
	w->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	return w->fd >= 0;
}

/* A call that did less than it was to, without an error, is none that went well. */
static int why(void)
{
	return errno ? errno : EPROTO;
}

static void make(struct worker *w)
{
	if (!(w->peer->tick ? make_wheel(w) : make_timerfds(w)))
		w->lacks = why();
}

static void *work(void *arg)
{
	struct worker *w = arg;
	const __u64 *when;
	__u32 k;

	if (!w->shared)
		make(w);
	when = w->when + w->n;
	pthread_barrier_wait(&ready);
	w->start = now_ns();
	for (k = 0; !w->lacks && !atomic_load(&stop); k = (k + w->peer->batch) % DEADLINES) {
		if (!pair(w, when + k)) {
			w->error = why();
			break;
		}
		w->pairs += w->peer->batch;
	}
	w->end = now_ns();
	return NULL;
}

/* Here, as rnd() is for one thread only. */
static void prepare(const struct peer *p, __u32 n, unsigned int nr, bool shared)
{
	__u64 after = now_ns() + NEAREST;
	struct worker *w;
	__u32 k;

	memset(workers, 0, sizeof(workers));
	for (w = workers; w < workers + nr; w++) {
		w->peer = p;
		w->n = n;
		w->shared = shared;
		w->fd = -1;
		w->when = xcalloc((size_t)n + DEADLINES, sizeof(*w->when));
		for (k = 0; k < n + DEADLINES; k++)
			w->when[k] = after + rnd_below(SPAN);
	}
	if (shared)
		make(workers);
	for (w = workers + 1; shared && w < workers + nr; w++)
		w->fd = workers->fd;
}

static void work_together(unsigned int nr)
{
	unsigned int i;
	int error;

	atomic_store(&stop, false);
	pthread_barrier_init(&ready, NULL, nr + 1);
	for (i = 0; i < nr; i++) {
		error = pthread_create(&workers[i].thread, NULL, work, &workers[i]);
		if (error)
			errx(1, "no thread: %s", strerror(error));
	}
	pthread_barrier_wait(&ready);
	sleep_ns(config.pairing);
	atomic_store(&stop, true);
	for (i = 0; i < nr; i++)
		pthread_join(workers[i].thread, NULL);
	pthread_barrier_destroy(&ready);
}

/* What was armed beforehand is armed, and nothing else. */
static void check(const struct worker *w)
{
	struct twheel_info info = { .size = sizeof(info) };
	struct itimerspec its = { };

	if (w->error)
		errx(1, "%s: a pair: %s", w->peer->name, strerror(w->error));
	if (!w->peer->tick) {
		if (timerfd_gettime(w->fd, &its) || its.it_value.tv_sec || its.it_value.tv_nsec)
			errx(1, "%s: a pair has left its timer armed", w->peer->name);
		return;
	}
	if (ioctl(w->fd, TWHEEL_IOC_INFO, &info))
		errx(1, "%s: INFO: %s", w->peer->name, strerror(errno));
	if (info.armed != w->n || info.ready)
		errx(1, "%s: %u timers are armed and %u ready, not %u and 0", w->peer->name,
		     info.armed, info.ready, w->n);
}

static void report(enum op op, unsigned int nr)
{
	__u64 start = UINT64_MAX, end = 0, pairs = 0;
	const struct worker *w;

	for (w = workers; w < workers + nr; w++) {
		if (w->lacks) {
			skip_ops(w->peer, op, op, w->n, reason(w->lacks));
			return;
		}
	}
	for (w = workers; w < workers + nr; w++) {
		check(w);
		start = w->start < start ? w->start : start;
		end = w->end > end ? w->end : end;
		pairs += w->pairs;
	}
	figure(workers->peer, op_name(op), workers->n, "ns", (double)(end - start) / pairs);
}

static void give_back(unsigned int nr)
{
	struct worker *w;

	for (w = workers; w < workers + nr; w++) {
		if (w->fd >= 0 && (!w->shared || w == workers))
			close(w->fd);
		while (w->fds_nr)
			close(w->fds[--w->fds_nr]);
		free(w->fds);
		free(w->when);
	}
}

void measure_threads(const struct peer *p, __u32 n)
{
	static const struct {
		enum op op;
		unsigned int nr;
		bool shared;
	} all[] = {
		{ OP_THREADS_OWN_1, 1, false },
		{ OP_THREADS_OWN_2, 2, false },
		{ OP_THREADS_OWN_4, THREADS_MAX, false },
		{ OP_THREADS_SHARED_1, 1, true },
		{ OP_THREADS_SHARED_2, 2, true },
		{ OP_THREADS_SHARED_4, THREADS_MAX, true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		if (!wanted(all[i].op) || (all[i].shared && !p->tick))
			continue;
		prepare(p, n, all[i].nr, all[i].shared);
		if (!workers->lacks)
			work_together(all[i].nr);
		report(all[i].op, all[i].nr);
		give_back(all[i].nr);
	}
}
