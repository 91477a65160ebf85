// SPDX-License-Identifier: GPL-2.0
/*
 * Init, exit and parameters.
 */
#include <linux/init.h>
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

unsigned int tw_user_max;
module_param_named(user_max, tw_user_max, uint, 0444);
MODULE_PARM_DESC(user_max, "timers of all files of one user, 0 for no limit (0)");

static int __init tw_init(void)
{
	int ret;

	if (tw_user_max > INT_MAX) {
		pr_err("twheel: need user_max <= %d\n", INT_MAX);
		return -EINVAL;
	}
	if (!tw_capacity || tw_capacity > tw_capacity_max ||
	    tw_capacity_max > WHEEL_MAX_NODES) {
		pr_err("twheel: need 0 < capacity <= capacity_max <= %u\n",
		       WHEEL_MAX_NODES);
		return -EINVAL;
	}
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
MODULE_LICENSE("GPL");
