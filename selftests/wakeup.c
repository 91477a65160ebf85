// SPDX-License-Identifier: GPL-2.0
/*
 * Wake-ups: none is lost, however the sleeper waits.
 *
 *   TWHEEL_ROUNDS=N  twenty times the rounds, as of stress.c; 100000 by default
 */
#include "twheel_test.h"

#include <sys/epoll.h>

/* A race is over when it is over. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	1800

#define ROUNDS		(tw_env("TWHEEL_ROUNDS", 100000) / 20)

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
		p->rounds = ROUNDS;
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

TEST_HARNESS_MAIN
