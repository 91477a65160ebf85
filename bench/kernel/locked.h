/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Operations of a peer on the manual clock out of what it does under its lock. It defines
 *
 *   objects[i].cookie
 *   add(i, when)        a timer that is not armed
 *   remove(i)           a timer, armed or not
 *   first(&i, &when)    the earliest: false if there is none; if PEER_HAS_EARLIEST
 */

static inline void peer_arm(u32 i, u64 when)
{
	spin_lock_bh(&lock);
	add(i, when);
	spin_unlock_bh(&lock);
}

static inline void peer_set(u32 i, u64 when)
{
	spin_lock_bh(&lock);
	remove(i);
	add(i, when);
	spin_unlock_bh(&lock);
}

static inline void peer_cancel(u32 i)
{
	spin_lock_bh(&lock);
	remove(i);
	spin_unlock_bh(&lock);
}

/* With the lock held, which is let go meanwhile. */
static inline void expire(u32 i)
{
	remove(i);
	spin_unlock_bh(&lock);
	bench_fire(&objects[i].cookie);
	spin_lock_bh(&lock);
}

#ifdef PEER_HAS_EARLIEST
static inline u64 peer_earliest(void)
{
	u64 when;
	u32 i;

	spin_lock_bh(&lock);
	if (!first(&i, &when))
		when = U64_MAX;
	spin_unlock_bh(&lock);
	return when;
}

static u64 peer_run(u64 until)
{
	u64 when, since = bench_time();
	u32 i;

	spin_lock_bh(&lock);
	while (first(&i, &when) && when <= until)
		expire(i);
	spin_unlock_bh(&lock);
	now = until;
	return bench_time() - since;
}
#endif
