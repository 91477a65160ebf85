/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Proof by compilation of every size, offset and number of the ABI: the same for every
 * architecture and both word sizes. For the module and for user space; needs no C
 * library, so that it also compiles with -m32 where no 32-bit one is installed.
 */
#ifndef TWHEEL_ABI_LAYOUT_H
#define TWHEEL_ABI_LAYOUT_H

#ifdef __KERNEL__
#include <linux/stddef.h>
#else
#include <stddef.h>
#endif

#include "../uapi/linux/twheel.h"

#define SIZE_IS(type, size)						\
	_Static_assert(sizeof(struct type) == (size), #type)
#define FIELD_IS(type, field, offset, size)				\
	_Static_assert(offsetof(struct type, field) == (offset) &&	\
		       sizeof(((struct type *)0)->field) == (size),	\
		       #type "." #field)
#define VALUE_IS(name, value)						\
	_Static_assert((name) == (value), #name)

SIZE_IS(twheel_info, 80);
FIELD_IS(twheel_info, size, 0, 4);
FIELD_IS(twheel_info, clockid, 4, 4);
FIELD_IS(twheel_info, features, 8, 8);
FIELD_IS(twheel_info, now_ns, 16, 8);
FIELD_IS(twheel_info, tick_ns, 24, 8);
FIELD_IS(twheel_info, capacity, 32, 4);
FIELD_IS(twheel_info, armed, 36, 4);
FIELD_IS(twheel_info, ready, 40, 4);
FIELD_IS(twheel_info, capacity_max, 44, 4);
FIELD_IS(twheel_info, tick_ns_min, 48, 8);
FIELD_IS(twheel_info, tick_ns_max, 56, 8);
FIELD_IS(twheel_info, op_size, 64, 4);
FIELD_IS(twheel_info, event_size, 68, 4);
FIELD_IS(twheel_info, setup_size, 72, 4);
FIELD_IS(twheel_info, stats_size, 76, 4);

SIZE_IS(twheel_setup, 40);
FIELD_IS(twheel_setup, size, 0, 4);
FIELD_IS(twheel_setup, flags, 4, 4);
FIELD_IS(twheel_setup, clockid, 8, 4);
FIELD_IS(twheel_setup, capacity, 12, 4);
FIELD_IS(twheel_setup, tick_ns, 16, 8);
FIELD_IS(twheel_setup, wake_delay_ns, 24, 8);
FIELD_IS(twheel_setup, wake_batch, 32, 4);
FIELD_IS(twheel_setup, pad, 36, 4);

SIZE_IS(twheel_op, 64);
FIELD_IS(twheel_op, opcode, 0, 2);
FIELD_IS(twheel_op, flags, 2, 2);
FIELD_IS(twheel_op, res, 4, 4);
FIELD_IS(twheel_op, id, 8, 8);
FIELD_IS(twheel_op, user_data, 16, 8);
FIELD_IS(twheel_op, expires_ns, 24, 8);
FIELD_IS(twheel_op, interval_ns, 32, 8);
FIELD_IS(twheel_op, slack_ns, 40, 8);
FIELD_IS(twheel_op, count, 48, 4);
FIELD_IS(twheel_op, misfire, 52, 1);
FIELD_IS(twheel_op, pad, 53, 3);
FIELD_IS(twheel_op, resv, 56, 8);

SIZE_IS(twheel_event, 40);
FIELD_IS(twheel_event, id, 0, 8);
FIELD_IS(twheel_event, user_data, 8, 8);
FIELD_IS(twheel_event, expires_ns, 16, 8);
FIELD_IS(twheel_event, fired_ns, 24, 8);
FIELD_IS(twheel_event, overrun, 32, 4);
FIELD_IS(twheel_event, flags, 36, 4);

SIZE_IS(twheel_submit, 24);
FIELD_IS(twheel_submit, size, 0, 4);
FIELD_IS(twheel_submit, flags, 4, 4);
FIELD_IS(twheel_submit, ops, 8, 8);
FIELD_IS(twheel_submit, nr, 16, 4);
FIELD_IS(twheel_submit, pad, 20, 4);

SIZE_IS(twheel_command, 16);
FIELD_IS(twheel_command, arg, 0, 8);
FIELD_IS(twheel_command, resv, 8, 8);

SIZE_IS(twheel_next, 16);
FIELD_IS(twheel_next, size, 0, 4);
FIELD_IS(twheel_next, flags, 4, 4);
FIELD_IS(twheel_next, expires_ns, 8, 8);

SIZE_IS(twheel_drain, 24);
FIELD_IS(twheel_drain, size, 0, 4);
FIELD_IS(twheel_drain, flags, 4, 4);
FIELD_IS(twheel_drain, ops, 8, 8);
FIELD_IS(twheel_drain, nr, 16, 4);
FIELD_IS(twheel_drain, pad, 20, 4);

SIZE_IS(twheel_list, 32);
FIELD_IS(twheel_list, size, 0, 4);
FIELD_IS(twheel_list, flags, 4, 4);
FIELD_IS(twheel_list, ops, 8, 8);
FIELD_IS(twheel_list, nr, 16, 4);
FIELD_IS(twheel_list, pad, 20, 4);
FIELD_IS(twheel_list, cursor, 24, 8);

SIZE_IS(twheel_stats, 608);
FIELD_IS(twheel_stats, size, 0, 4);
FIELD_IS(twheel_stats, flags, 4, 4);
FIELD_IS(twheel_stats, armed, 8, 8);
FIELD_IS(twheel_stats, fired, 16, 8);
FIELD_IS(twheel_stats, cancelled, 24, 8);
FIELD_IS(twheel_stats, modified, 32, 8);
FIELD_IS(twheel_stats, cascaded, 40, 8);
FIELD_IS(twheel_stats, wakeups, 48, 8);
FIELD_IS(twheel_stats, hrtimer_starts, 56, 8);
FIELD_IS(twheel_stats, continued, 64, 8);
FIELD_IS(twheel_stats, ready_max, 72, 8);
FIELD_IS(twheel_stats, resv, 80, 16);
FIELD_IS(twheel_stats, lateness, 96, 512);

SIZE_IS(twheel_advance, 16);
FIELD_IS(twheel_advance, size, 0, 4);
FIELD_IS(twheel_advance, flags, 4, 4);
FIELD_IS(twheel_advance, to_ns, 8, 8);

VALUE_IS(TWHEEL_NEVER, 0xffffffffffffffffULL);
VALUE_IS(TWHEEL_CLOCK_MANUAL, 64);
VALUE_IS(TWHEEL_FEAT_SUBMIT, 0x1);
VALUE_IS(TWHEEL_FEAT_DRAIN, 0x2);
VALUE_IS(TWHEEL_FEAT_LIST, 0x4);
VALUE_IS(TWHEEL_FEAT_STATS, 0x8);
VALUE_IS(TWHEEL_FEAT_SLACK, 0x10);
VALUE_IS(TWHEEL_FEAT_BURST, 0x20);
VALUE_IS(TWHEEL_FEAT_SKIP, 0x40);
VALUE_IS(TWHEEL_FEAT_CLOCK_SET, 0x80);
VALUE_IS(TWHEEL_FEAT_MODERATION, 0x100);
VALUE_IS(TWHEEL_FEAT_COMMAND, 0x200);
VALUE_IS(TWHEEL_SETUP_CLOCK_SET, 0x1);
VALUE_IS(TWHEEL_OP_NOP, 0);
VALUE_IS(TWHEEL_OP_ARM, 1);
VALUE_IS(TWHEEL_OP_CANCEL, 2);
VALUE_IS(TWHEEL_OP_MODIFY, 3);
VALUE_IS(TWHEEL_OP_QUERY, 4);
VALUE_IS(TWHEEL_F_REL, 0x1);
VALUE_IS(TWHEEL_F_ARMED, 0x100);
VALUE_IS(TWHEEL_F_READY, 0x200);
VALUE_IS(TWHEEL_MISFIRE_COUNT, 0);
VALUE_IS(TWHEEL_MISFIRE_BURST, 1);
VALUE_IS(TWHEEL_MISFIRE_SKIP, 2);
VALUE_IS(TWHEEL_EV_MORE, 0x1);
VALUE_IS(TWHEEL_EV_CLOCK_SET, 0x2);
VALUE_IS(TWHEEL_LATENESS_BUCKETS, 64);

VALUE_IS(TWHEEL_IOC_INFO, 0x0000bb00U);
VALUE_IS(TWHEEL_IOC_SETUP, 0x0000bb01U);
VALUE_IS(TWHEEL_IOC_ARM, 0xc040bb02U);
VALUE_IS(TWHEEL_IOC_CANCEL, 0xc040bb03U);
VALUE_IS(TWHEEL_IOC_MODIFY, 0xc040bb04U);
VALUE_IS(TWHEEL_IOC_QUERY, 0xc040bb05U);
VALUE_IS(TWHEEL_IOC_SUBMIT, 0x0000bb06U);
VALUE_IS(TWHEEL_IOC_NEXT, 0x0000bb07U);
VALUE_IS(TWHEEL_IOC_DRAIN, 0x0000bb08U);
VALUE_IS(TWHEEL_IOC_LIST, 0x0000bb09U);
VALUE_IS(TWHEEL_IOC_STATS, 0x0000bb0aU);
VALUE_IS(TWHEEL_IOC_ADVANCE, 0x0000bb0bU);

#undef SIZE_IS
#undef FIELD_IS
#undef VALUE_IS

#endif /* TWHEEL_ABI_LAYOUT_H */
