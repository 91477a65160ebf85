/* SPDX-License-Identifier: GPL-2.0 */
/* Tells who wants to know that the wall clock was set. */
#ifndef TWHEEL_CLOCKSET_H
#define TWHEEL_CLOCKSET_H

#include <linux/list.h>
#include <linux/types.h>

/**
 * struct tw_clockset - somebody who wants to know
 * @was_set: called in process context with the jump in ns, forward or backward.
 *           Several sets may come as one
 * @wall_ns: what the wall clock was ahead of CLOCK_BOOTTIME when last looked at
 * @link:    in the list of all
 */
struct tw_clockset {
	void (*was_set)(struct tw_clockset *cs, s64 jump_ns);
	s64 wall_ns;
	struct list_head link;
};

int tw_clockset_init(void);
void tw_clockset_exit(void);
void tw_clockset_add(struct tw_clockset *cs);
void tw_clockset_remove(struct tw_clockset *cs);

#endif /* TWHEEL_CLOCKSET_H */
