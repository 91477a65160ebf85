/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the suites share. Each includes the file that it tests and so reaches its static
 * functions; together they are a module of its own, which has a copy of the whole code
 * and may be loaded beside twheel.ko.
 */
#ifndef TWHEEL_KUNIT_H
#define TWHEEL_KUNIT_H

#include <kunit/test.h>
#include <linux/prandom.h>
#include <linux/slab.h>
#include <linux/types.h>

/* How many more allocations of the code under test succeed; negative: all of them. */
extern int tw_kunit_allocs;

/* Whether the code under test has the capability that it asks for; how often it asked */
extern bool tw_kunit_capable;
extern unsigned int tw_kunit_asked;

void tw_kunit_seed(struct kunit *test, struct rnd_state *random);

static inline bool tw_kunit_may_alloc(void)
{
	return tw_kunit_allocs < 0 || (tw_kunit_allocs && tw_kunit_allocs--);
}

static inline u32 tw_kunit_below(struct rnd_state *random, u32 n)
{
	return prandom_u32_state(random) % n;
}

static inline u64 tw_kunit_u64(struct rnd_state *random)
{
	return (u64)prandom_u32_state(random) << 32 | prandom_u32_state(random);
}

#endif /* TWHEEL_KUNIT_H */
