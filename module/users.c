// SPDX-License-Identifier: GPL-2.0
/*
 * Counts what all files of each user hold in memory. See users.h.
 *
 * What is charged is what kmalloc() and vmalloc() really take, before they are asked;
 * what is uncharged has been freed. So the count is never below what is held, and the
 * limit bounds memory even where there are no memory cgroups. It is kept for as long
 * as the memory is, whether timers live in it or not.
 *
 * The ucounts of the kernel would be the right thing, but neither inc_ucount() nor
 * inc_rlimit_ucounts() is there for modules. In struct user_struct is no room but
 * @locked_vm, which is what RLIMIT_MEMLOCK allows the user for other things, and
 * only one's own can be had, not that of the owner of a namespace.
 *
 * Nothing is allocated or freed with the lock of the table held: who waits for memory
 * in a cgroup that has none keeps nobody else from opening and closing.
 */
#include <linux/bug.h>
#include <linux/capability.h>
#include <linux/compiler.h>
#include <linux/cred.h>
#include <linux/hashtable.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/user_namespace.h>

#include "compat.h"
#include "users.h"

/* Guards the table and the number of files of all users. */
static DEFINE_SPINLOCK(tw_users_lock);
static DEFINE_HASHTABLE(tw_users, 6);

/**
 * tw_user_who() - the user that is charged for what the caller opens
 *
 * That is its real user, but in a user namespace that somebody other than root has
 * made, it is who made the outermost such: they have many uids there, all of which
 * are theirs. In a namespace that root has made, each uid is for itself.
 *
 * Return: the uid.
 */
kuid_t tw_user_who(void)
{
	const struct user_namespace *ns;
	kuid_t uid = current_uid();

	/* The caller holds its namespace, that its parent and so on. */
	for (ns = current_user_ns(); ns != &init_user_ns; ns = ns->parent)
		if (!uid_eq(ns->owner, GLOBAL_ROOT_UID))
			uid = ns->owner;
	return uid;
}

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
 * tw_user_put() - a user has one file fewer, and nothing is charged for that any more
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
	WARN_ON_ONCE(atomic_long_read(&user->bytes));
	tw_user_free(user);
}

/**
 * tw_user_bytes() - what is charged for memory
 * @mem:  of kmalloc() or kvmalloc(), or NULL if it is still to be allocated
 * @size: what they were asked for
 *
 * Return: bytes; for NULL, the most that it may come to.
 */
size_t tw_user_bytes(const void *mem, size_t size)
{
	if (mem && is_vmalloc_addr(mem))
		return PAGE_ALIGN(size);
	return kmalloc_size_roundup(size);
}

/**
 * tw_user_charge() - a user is about to hold more memory
 * @user:  the user
 * @bytes: how much more. All that a step needs at once, or else two steps of which one
 *         could be taken may refuse each other
 *
 * Exact however many charge at the same time. Who calls with CAP_SYS_RESOURCE is
 * counted and not refused.
 *
 * Return: false if that would be too much, and it was not counted.
 */
bool tw_user_charge(struct tw_user *user, size_t bytes)
{
	unsigned long max = READ_ONCE(tw_user_memory_max);
	long held = atomic_long_read(&user->bytes);
	bool exempt = !max;

	do {
		bool beyond = bytes > max || held > max - bytes;

		/* To ask is to use it, which is recorded: only who needs it is asked. */
		if (beyond && !exempt) {
			if (!capable(CAP_SYS_RESOURCE))
				return false;
			exempt = true;
		}
	} while (!atomic_long_try_cmpxchg(&user->bytes, &held, held + bytes));
	return true;
}

/**
 * tw_user_uncharge() - a user holds less memory
 * @user:  the user
 * @bytes: how much has been freed
 */
void tw_user_uncharge(struct tw_user *user, size_t bytes)
{
	atomic_long_sub(bytes, &user->bytes);
}
