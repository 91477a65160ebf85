/* SPDX-License-Identifier: GPL-2.0 */
/* Counts the timers of each user, over all files. */
#ifndef TWHEEL_USERS_H
#define TWHEEL_USERS_H

#include <linux/atomic.h>
#include <linux/types.h>
#include <linux/uidgid.h>

#include "share.h"

/**
 * struct tw_user - a user with at least one file
 * @uid:    who it is
 * @timers: how many timers there are in all files
 * @share:  what its wheels have taken of each CPU
 * @files:  how many files there are; guarded as @link
 * @link:   in the table of users
 */
struct tw_user {
	kuid_t uid;
	atomic_t timers;
	struct tw_share __percpu *share;
	unsigned int files;
	struct hlist_node link;
};

/* Module parameter, in main.c: timers of all files of one user, 0 for no limit. */
extern unsigned int tw_user_max;

struct tw_user *tw_user_get(kuid_t uid);
void tw_user_put(struct tw_user *user);

/**
 * tw_user_charge() - count one more timer
 * @user: the user
 *
 * Return: false if that would be too many, and it was not counted.
 */
static inline bool tw_user_charge(struct tw_user *user)
{
	return !tw_user_max || atomic_add_unless(&user->timers, 1, tw_user_max);
}

/**
 * tw_user_uncharge() - count fewer timers
 * @user: the user
 * @nr:   how many fewer
 */
static inline void tw_user_uncharge(struct tw_user *user, u32 nr)
{
	if (tw_user_max)
		atomic_sub(nr, &user->timers);
}

#endif /* TWHEEL_USERS_H */
