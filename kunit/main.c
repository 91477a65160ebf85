// SPDX-License-Identifier: GPL-2.0
/*
 * What the suites share, and what module/main.c is to the code under test.
 */
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/random.h>

#include "../module/users.h"
#include "twheel_kunit.h"

static unsigned int seed;
module_param(seed, uint, 0444);
MODULE_PARM_DESC(seed, "of the random loads; 0: another each time (0)");

unsigned long tw_user_memory_max;

int tw_kunit_allocs = -1;
bool tw_kunit_capable;
unsigned int tw_kunit_asked;

/* Begins a random load. One seed repeats all loads of a run. */
void tw_kunit_seed(struct kunit *test, struct rnd_state *random)
{
	while (!seed)
		seed = get_random_u32();
	kunit_info(test, "seed=%u", seed);
	prandom_seed_state(random, seed);
}

MODULE_DESCRIPTION("KUnit tests of twheel");
MODULE_AUTHOR("The twheel authors");
MODULE_LICENSE("GPL");
