/* SPDX-License-Identifier: GPL-2.0 */
/* Tells who wants to know that the wall clock was set. */
#ifndef TWHEEL_CLOCKSET_H
#define TWHEEL_CLOCKSET_H

#include <linux/ktime.h>
#include <linux/list.h>
#include <linux/types.h>

/**
 * struct tw_clockset - somebody who wants to know
 * @was_set:  called in process context, once or more after each set of any clock, with the
 *            jump of @clock in ns since the last call: forward, backward or 0. Several
 *            sets may come as one
 * @clock:    the clock
 * @ahead_ns: what it was ahead of CLOCK_BOOTTIME when last looked at
 * @link:     in the list of all
 */
struct tw_clockset {
	void (*was_set)(struct tw_clockset *cs, s64 jump_ns);
	enum tk_offsets clock;
	s64 ahead_ns;
	struct list_head link;
};

int tw_clockset_init(void);
void tw_clockset_exit(void);
void tw_clockset_look(void);
void tw_clockset_add(struct tw_clockset *cs, u32 clockid);
void tw_clockset_remove(struct tw_clockset *cs);

#endif /* TWHEEL_CLOCKSET_H */
