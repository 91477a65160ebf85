/* SPDX-License-Identifier: GPL-2.0 */
/* How much of a CPU the wheels of a user may take. */
#ifndef TWHEEL_SHARE_H
#define TWHEEL_SHARE_H

#include <linux/percpu.h>
#include <linux/types.h>

/**
 * struct tw_share - what the wheels of a user have taken of one CPU
 * @free_at_ns: when that is paid for, CLOCK_MONOTONIC of the host. Written on its CPU
 *              only, with softirqs off
 * @turn_ns:    when the next wheel that has to wait will have its turn
 * @window:     the last window in which the user was counted as busy, see share.c
 */
struct tw_share {
	u64 free_at_ns;
	u64 turn_ns;
	u64 window;
};

bool tw_share_is_used_up(struct tw_share __percpu *shares);
u64 tw_share_wait_ns(struct tw_share __percpu *shares, u64 cost_ns);
void tw_share_charge(struct tw_share __percpu *shares, u64 begin_ns, u64 took_ns);

#endif /* TWHEEL_SHARE_H */
