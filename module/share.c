// SPDX-License-Identifier: GPL-2.0
/*
 * How much of a CPU the wheels of a user may take.
 *
 * Expiry runs in softirqs, for which no scheduler and no cgroup accounts. So each pass
 * is paid for: after it the user's wheels leave the CPU alone for as long as it took,
 * all together, however many they are. Each CPU has an account a user that tells when
 * everything is paid for, and each pass moves that on by twice its time. A wheel that
 * would be woken before then has to wait, and so has one that is woken all the same, as
 * it was queued before. Each wheel that waits gets a turn of its own, after those before,
 * lest they all come at once; when that comes it has its pass, whatever is to be paid for.
 *
 * As long as no more than TW_CREDIT_NS have to be paid for nobody waits. So wheels that
 * are lightly used are on time, by the tick, and a flood comes in bursts of not much more
 * than that, which is what the timers of others wait for.
 *
 * There is an account for each user lest one whose wheels do little has to wait behind
 * the wheels of one who floods. Should several flood one CPU, each pass costs as many
 * times more: half of the CPU is for others, whoever is in the other half. They are
 * counted in windows of time, those of this window or, if they were more, of the last.
 */
#include <linux/ktime.h>
#include <linux/minmax.h>

#include "share.h"

/* What a user may take before it has to wait. */
#define TW_CREDIT_NS	NSEC_PER_MSEC

/* The interrupt and the softirq that lead to a pass, which it cannot measure. */
#define TW_ENTRY_NS	(5 * NSEC_PER_USEC)

/*
 * The work of a pass is bounded, but for those that it wakes. What took longer was not
 * the CPU at work, but a virtual machine that stood still, or a thread that was preempted.
 */
#define TW_TOOK_MAX_NS	(50 * NSEC_PER_MSEC)

/* Turns are given this far ahead; those who gave theirs up may have left them empty. */
#define TW_TURNS_NS	NSEC_PER_SEC

/* A window of 8 ms. */
#define TW_WINDOW_SHIFT	23

/**
 * struct tw_crowd - the users who flood one CPU
 * @window: this window of time
 * @users:  who had something to pay for in this window
 * @before: who had in the window before
 */
struct tw_crowd {
	u64 window;
	u32 users;
	u32 before;
};

static DEFINE_PER_CPU(struct tw_crowd, tw_crowd);

/* How many users flood this CPU. @share is one of them if it is ahead. */
static u32 tw_share_crowd(struct tw_share *share, u64 now_ns)
{
	struct tw_crowd *crowd = this_cpu_ptr(&tw_crowd);
	u64 window = now_ns >> TW_WINDOW_SHIFT;

	if (crowd->window != window) {
		crowd->before = crowd->window + 1 == window ? crowd->users : 0;
		crowd->users = 0;
		crowd->window = window;
	}
	if (share->free_at_ns > now_ns && share->window != window) {
		share->window = window;
		crowd->users++;
	}
	return max3(crowd->users, crowd->before, 1U);
}

static bool tw_share_is_ahead(const struct tw_share *share, u64 now_ns)
{
	return share->free_at_ns > now_ns + TW_CREDIT_NS;
}

/**
 * tw_share_is_used_up() - whether the wheels of a user have to leave this CPU alone
 * @shares: the user's; softirqs are off
 *
 * Return: true if they have to.
 */
bool tw_share_is_used_up(struct tw_share __percpu *shares)
{
	const struct tw_share *share = this_cpu_ptr(shares);

	/* Most have never to, and are spared a look at the clock. */
	return share->free_at_ns && tw_share_is_ahead(share, ktime_get_ns());
}

/**
 * tw_share_wait_ns() - give a wheel a turn if it has to wait for one
 * @shares:  the user's; softirqs are off
 * @cost_ns: what the pass of this wheel is likely to take
 *
 * Return: for how long, 0 if it need not.
 */
u64 tw_share_wait_ns(struct tw_share __percpu *shares, u64 cost_ns)
{
	struct tw_share *share = this_cpu_ptr(shares);
	u64 turn_ns, now_ns;

	if (!share->free_at_ns)
		return 0;
	now_ns = ktime_get_ns();
	if (!tw_share_is_ahead(share, now_ns))
		return 0;
	turn_ns = max(share->turn_ns, share->free_at_ns);
	if (turn_ns > share->free_at_ns + TW_TURNS_NS)
		turn_ns = share->free_at_ns;
	share->turn_ns = turn_ns + 2 * (min_t(u64, cost_ns, TW_TOOK_MAX_NS) + TW_ENTRY_NS);
	return turn_ns - now_ns;
}

/**
 * tw_share_charge() - a user has had this CPU
 * @shares:   the user's; softirqs are off, and have been since @begin_ns
 * @begin_ns: since when, CLOCK_MONOTONIC of the host
 * @took_ns:  for how long
 */
void tw_share_charge(struct tw_share __percpu *shares, u64 begin_ns, u64 took_ns)
{
	struct tw_share *share = this_cpu_ptr(shares);
	u32 crowd = tw_share_crowd(share, begin_ns);

	took_ns = min_t(u64, took_ns, TW_TOOK_MAX_NS) + TW_ENTRY_NS;
	share->free_at_ns = max(share->free_at_ns, begin_ns) + 2 * crowd * took_ns;
}
