// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the timers of each user. See users.h.
 *
 * The limit cannot change while the module is loaded, and without one nothing is
 * counted: a counter that all files of a user share costs those on other CPUs.
 */
#include <linux/bug.h>
#include <linux/hashtable.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/slab.h>

#include "compat.h"
#include "users.h"

/* Guards the table and the number of files of all users. */
static DEFINE_MUTEX(tw_users_lock);
static DEFINE_HASHTABLE(tw_users, 6);

static struct tw_user *tw_user_find(kuid_t uid)
{
	struct tw_user *user;

	lockdep_assert_held(&tw_users_lock);

	hash_for_each_possible(tw_users, user, link, __kuid_val(uid))
		if (uid_eq(user->uid, uid))
			return user;
	return NULL;
}

/**
 * tw_user_get() - a user has one more file
 * @uid: who. May sleep
 *
 * Return: the user or NULL if there is no memory.
 */
struct tw_user *tw_user_get(kuid_t uid)
{
	struct tw_user *user;

	mutex_lock(&tw_users_lock);
	user = tw_user_find(uid);
	if (!user) {
		user = kzalloc_obj(*user, GFP_KERNEL_ACCOUNT);
		if (!user)
			goto out;
		user->share = alloc_percpu_gfp(struct tw_share, GFP_KERNEL_ACCOUNT);
		if (!user->share) {
			kfree(user);
			user = NULL;
			goto out;
		}
		user->uid = uid;
		hash_add(tw_users, &user->link, __kuid_val(uid));
	}
	user->files++;
out:
	mutex_unlock(&tw_users_lock);
	return user;
}

/**
 * tw_user_put() - a user has one file fewer, and none of its timers
 * @user: the user. May sleep
 */
void tw_user_put(struct tw_user *user)
{
	mutex_lock(&tw_users_lock);
	if (!--user->files) {
		WARN_ON_ONCE(atomic_read(&user->timers));
		hash_del(&user->link);
		free_percpu(user->share);
		kfree(user);
	}
	mutex_unlock(&tw_users_lock);
}
