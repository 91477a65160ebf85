/* SPDX-License-Identifier: GPL-2.0 */
/* Counts what all files of each user hold in memory. */
#ifndef TWHEEL_USERS_H
#define TWHEEL_USERS_H

#include <linux/atomic.h>
#include <linux/types.h>
#include <linux/uidgid.h>

#include "share.h"

/**
 * struct tw_user - a user with at least one file
 * @uid:   who it is
 * @bytes: what all files hold in memory
 * @share: what its wheels have taken of each CPU
 * @files: how many files there are; guarded as @link
 * @link:  in the table of users
 */
struct tw_user {
	kuid_t uid;
	atomic_long_t bytes;
	struct tw_share __percpu *share;
	unsigned int files;
	struct hlist_node link;
};

/* Module parameter, in main.c: bytes of all files of one user, 0 for no limit. */
extern unsigned long tw_user_memory_max;

kuid_t tw_user_who(void);
struct tw_user *tw_user_get(kuid_t uid);
void tw_user_put(struct tw_user *user);

size_t tw_user_bytes(const void *mem, size_t size);
bool tw_user_charge(struct tw_user *user, size_t bytes);
void tw_user_uncharge(struct tw_user *user, size_t bytes);

#endif /* TWHEEL_USERS_H */
