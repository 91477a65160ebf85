// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the timers of each user. See users.h.
 *
 * The limit cannot change while the module is loaded, and without one nothing is
 * counted: a counter that all files of a user share costs those on other CPUs.
 *
 * Nothing is allocated or freed with the lock of the table held: who waits for memory
 * in a cgroup that has none keeps nobody else from opening and closing.
 */
#include <linux/bug.h>
#include <linux/hashtable.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "compat.h"
#include "users.h"

/* Guards the table and the number of files of all users. */
static DEFINE_SPINLOCK(tw_users_lock);
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

/*
 * One more file for the user, who is @candidate if there is none of that uid yet. NULL
 * if there is neither.
 */
static struct tw_user *tw_user_hold(kuid_t uid, struct tw_user *candidate)
{
	struct tw_user *user;

	spin_lock(&tw_users_lock);
	user = tw_user_find(uid);
	if (!user && candidate) {
		user = candidate;
		hash_add(tw_users, &user->link, __kuid_val(uid));
	}
	if (user)
		user->files++;
	spin_unlock(&tw_users_lock);
	return user;
}

static struct tw_user *tw_user_alloc(kuid_t uid)
{
	struct tw_user *user = kzalloc_obj(*user, GFP_KERNEL_ACCOUNT);

	if (!user)
		return NULL;
	user->uid = uid;
	user->share = alloc_percpu_gfp(struct tw_share, GFP_KERNEL_ACCOUNT);
	if (user->share)
		return user;
	kfree(user);
	return NULL;
}

static void tw_user_free(struct tw_user *user)
{
	free_percpu(user->share);
	kfree(user);
}

/**
 * tw_user_get() - a user has one more file
 * @uid: who. May sleep
 *
 * Return: the user or NULL if there is no memory.
 */
struct tw_user *tw_user_get(kuid_t uid)
{
	struct tw_user *user = tw_user_hold(uid, NULL), *candidate;

	if (user)
		return user;
	candidate = tw_user_alloc(uid);
	if (!candidate)
		return NULL;
	user = tw_user_hold(uid, candidate);
	/* Somebody else may have been faster. */
	if (user != candidate)
		tw_user_free(candidate);
	return user;
}

/**
 * tw_user_put() - a user has one file fewer, and none of its timers
 * @user: the user
 */
void tw_user_put(struct tw_user *user)
{
	bool last;

	spin_lock(&tw_users_lock);
	last = !--user->files;
	if (last)
		hash_del(&user->link);
	spin_unlock(&tw_users_lock);
	if (!last)
		return;
	WARN_ON_ONCE(atomic_read(&user->timers));
	tw_user_free(user);
}
