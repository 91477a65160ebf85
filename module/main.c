// SPDX-License-Identifier: GPL-2.0
/*
 * Init, exit and parameters.
 */
#include <linux/highmem.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

#include "clockset.h"
#include "dev.h"
#include "users.h"
#include "wheel.h"

unsigned int tw_capacity = 1U << 20;
module_param_named(capacity, tw_capacity, uint, 0444);
MODULE_PARM_DESC(capacity, "timers of a file that asks for no number (1048576)");

unsigned int tw_capacity_max = 1U << 24;
module_param_named(capacity_max, tw_capacity_max, uint, 0444);
MODULE_PARM_DESC(capacity_max, "timers that a file may ask for (16777216)");

unsigned long tw_user_memory_max;
static bool tw_user_memory_told;

static int tw_set_user_memory_max(const char *val, const struct kernel_param *kp)
{
	int ret = param_set_ulong(val, kp);

	if (!ret)
		tw_user_memory_told = true;
	return ret;
}

static const struct kernel_param_ops tw_user_memory_ops = {
	.set = tw_set_user_memory_max,
	.get = param_get_ulong,
};

module_param_cb(user_memory_max, &tw_user_memory_ops, &tw_user_memory_max, 0644);
__MODULE_PARM_TYPE(user_memory_max, "ulong");
MODULE_PARM_DESC(user_memory_max,
		 "bytes that all files of one user may hold, 0 for no limit (4% of RAM)");

static int __init tw_init(void)
{
	int ret;

	if (!tw_capacity || tw_capacity > tw_capacity_max ||
	    tw_capacity_max > WHEEL_MAX_NODES) {
		pr_err("twheel: need 0 < capacity <= capacity_max <= %u\n",
		       WHEEL_MAX_NODES);
		return -EINVAL;
	}
	/* The share that epoll leaves a user; high memory is not what wheels live in. */
	if (!tw_user_memory_told)
		tw_user_memory_max =
			(totalram_pages() - totalhigh_pages()) / 25 << PAGE_SHIFT;
	ret = tw_clockset_init();
	if (ret)
		return ret;
	ret = tw_dev_register();
	if (ret)
		tw_clockset_exit();
	return ret;
}

static void __exit tw_exit(void)
{
	tw_dev_unregister();
	tw_clockset_exit();
}

module_init(tw_init);
module_exit(tw_exit);

MODULE_DESCRIPTION("Hierarchical timing wheel for user space");
MODULE_AUTHOR("The twheel authors");
#ifdef TWHEEL_VERSION
MODULE_VERSION(TWHEEL_VERSION);
#endif
MODULE_LICENSE("GPL");
