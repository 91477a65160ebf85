/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Loops over the operations of the peer whose file includes this. It defines
 *
 *   peer_open(), peer_close(), peer_when(), peer_run()   see struct peer
 *   peer_arm(i, when), peer_set(i, when), peer_cancel(i)
 *   peer_earliest()                                      if PEER_HAS_EARLIEST
 *   PEER_TIMER(place)    what they take as the i of a place; by default bench.order[place]
 */

#ifndef PEER_TIMER
#define PEER_TIMER(place)	bench.order[place]
#endif

static struct cost loop_arm(void)
{
	u64 since = bench_time();
	u32 i;

	for (i = 0; i < bench.nr && !bench_enough(i, since); i++)
		peer_arm(PEER_TIMER(i), bench.when[i]);
	return (struct cost){ bench_time() - since, i };
}

static struct cost loop_set(void)
{
	u64 since = bench_time();
	u32 i;

	for (i = 0; i < bench.nr && !bench_enough(i, since); i++)
		peer_set(PEER_TIMER(i), bench.when[i]);
	return (struct cost){ bench_time() - since, i };
}

static struct cost loop_cancel(void)
{
	u64 since = bench_time();
	u32 i;

	for (i = 0; i < bench.nr && !bench_enough(i, since); i++)
		peer_cancel(PEER_TIMER(i));
	return (struct cost){ bench_time() - since, i };
}

static struct cost loop_pair(void)
{
	u64 since = bench_time();
	u32 i;

	for (i = 0; i < bench.nr && !bench_enough(i, since); i++) {
		peer_cancel(PEER_TIMER(i));
		peer_arm(PEER_TIMER(i), bench.when[i]);
	}
	return (struct cost){ bench_time() - since, i };
}

static inline void loop_settle(void)
{
	/* What was begun is over: nothing is to hide in the cache misses of another. */
	rmb();
}

static struct cost loop_alone(void)
{
	u64 since = bench_time();
	u32 i;

	for (i = 0; i < bench.nr && !bench_enough(i, since); i++) {
		peer_arm(PEER_TIMER(i), bench.when[i]);
		loop_settle();
	}
	return (struct cost){ bench_time() - since, i };
}

#ifdef PEER_HAS_EARLIEST
static struct cost loop_next(bool ask)
{
	u64 since = bench_time();
	u32 i;

	for (i = 0; i < bench.nr && !bench_enough(i, since); i++) {
		peer_set(PEER_TIMER(i), bench.when[i]);
		loop_settle();
		if (ask)
			bench.sum += peer_earliest();
		loop_settle();
	}
	return (struct cost){ bench_time() - since, i };
}

static struct cost once_earliest(void)
{
	u64 since = bench_time();

	bench.sum += peer_earliest();
	return (struct cost){ bench_time() - since, 1 };
}
#else
#define loop_next	NULL
#define once_earliest	NULL
#endif

#define PEER_LOOPS			\
	.open = peer_open,		\
	.close = peer_close,		\
	.when = peer_when,		\
	.arm = loop_arm,		\
	.set = loop_set,		\
	.cancel = loop_cancel,		\
	.pair = loop_pair,		\
	.alone = loop_alone,		\
	.next = loop_next,		\
	.earliest = once_earliest,	\
	.run = peer_run
