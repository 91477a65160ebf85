// SPDX-License-Identifier: GPL-2.0
/*
 * One wheel in operation. See engine.h.
 *
 * States of a timer
 * =================
 *
 *          ARM, MODIFY               expiry
 *   free ---------------> armed ---------------> ready
 *     ^                   |  ^                   | | |
 *     +--- CANCEL --------+  +---- MODIFY -------+ | |
 *     |                      +---- read, periodic -+ |
 *     +--- CANCEL; read of the last record ----------+
 *
 * A timer is in exactly one of them: armed it is in the wheel, ready it is in the
 * queue. It is its own record of expiry, hence expiring allocates nothing and
 * cannot fail, and a periodic timer that nobody reads costs no wake-ups.
 *
 * Locking
 * =======
 *
 * One spinlock an engine, taken with softirqs off. It is never held for longer than
 * a fixed number of timers takes: expiry works in batches and lets go between them,
 * reading likewise, and the table grows outside. A batch leaves everything
 * consistent, so that whatever comes between two batches is no special case.
 *
 * The records are copied out *under* the lock, with page faults off, and the timers
 * are freed or re-armed before it is let go. So there is no state "being read":
 * between the copy and the commit no cancel can come. A copy that faults takes fewer
 * records; the caller then faults the page in without the lock and comes again.
 *
 * Sleepers are woken after the unlock, by whoever releases the lock next after the
 * queue was announced. It is announced before the wake-up, and sleepers look at that
 * after they have queued themselves, with the barriers of the wait queue in between;
 * so no wake-up is lost.
 *
 * The hrtimer
 * ===========
 *
 * It is queued for @wake_tick, the lower bound of what the wheel has to do, and is
 * started anew only to come earlier. Nothing that is due now gets to it: a deadline
 * that has passed makes its timer ready in the caller's context. The callback works
 * off one budget; what then remains waits for as long as the pass took. It is neither
 * started for a time at which its user has used up its share of the CPU, nor does a
 * callback do anything then but wait for its turn, see share.c.
 * While it runs @wake_tick is 0, which is before every tick, and so nobody else starts
 * it. When the last timer is gone it is cancelled. If that comes while the callback is
 * running, the callback finds nothing left and does not start it again.
 *
 * Time
 * ====
 *
 * All times are those of the opener's time namespace; only tw_to_host() and
 * tw_from_host() convert, and clamp. A timer expires at the first tick that does not
 * begin before its expiry, so never early and less than a tick late.
 *
 * A wall clock can be set back while the callback runs, or before it looks at the
 * clock: the hrtimer core reads the time once and then runs all that was due at that,
 * again and again if it is started again for a time before. So a callback that comes
 * before its time starts nothing. It leaves that to clockset.c, whose work comes in
 * process context after every set and starts the hrtimer of every wheel on such a
 * clock anew, whether it is queued or not.
 *
 * How long readers are left alone is a duration. It has an hrtimer of its own, on a
 * clock that cannot be set.
 */
#include <linux/atomic.h>
#include <linux/err.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/nospec.h>
#include <linux/overflow.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "compat.h"
#include "engine.h"

#define CREATE_TRACE_POINTS
#include "trace.h"

/* Entries of the wheel that are visited under one hold of the lock. */
#define TW_HOLD_BUDGET	128

/* Holds of the lock in one pass, which may run in a softirq. */
#define TW_PASS_HOLDS	8

/* Least time between two passes of the hrtimer's callback. */
#define TW_GAP_NS	(20 * NSEC_PER_USEC)

/* What a pass of which nothing is known is taken to cost. */
#define TW_UNKNOWN_NS	(100 * NSEC_PER_USEC)

/* A wake-up of readers that is put off by less is not worth an hrtimer. */
#define TW_DELAY_MIN_NS	BIT_ULL(TW_TICK_SHIFT_MIN)

/* Operations that are done under one hold of the lock. */
#define TW_SUBMIT_HOLD	32

/* A wheel of no more nodes keeps their memory while it has no timers. */
#define TW_KEEP_NODES	1024

/* How long a larger one keeps it. */
#define TW_KEEP_JIFFIES	(10 * HZ)

/* Largest wheel that is checked whole at each unlock of a debugging build. */
#define TW_CHECK_NODES	1024

static atomic_t tw_engine_count = ATOMIC_INIT(0);

static void tw_lock(struct tw_engine *e)
	__acquires(&e->lock)
{
	spin_lock_bh(&e->lock);
}

static void tw_unlock(struct tw_engine *e)
	__releases(&e->lock)
{
	const char *wrong = NULL;

	if (IS_ENABLED(CONFIG_TWHEEL_DEBUG) && e->wheel.nr_nodes <= TW_CHECK_NODES)
		wrong = wheel_check(&e->wheel) ?: tw_queue_check(&e->queue, &e->timers);
	WARN_ONCE(wrong, "twheel: %s\n", wrong);
	spin_unlock_bh(&e->lock);
}

/* The last time of which the clock, and hence an expiry, is capable. */
static u64 tw_add_ns(u64 a, u64 b)
{
	return min_t(u64, a + b, S64_MAX);
}

/* A time of the opener on the clock of the host; one before the host's first is 0. */
static ktime_t tw_to_host(const struct tw_engine *e, u64 ns)
{
	s64 host_ns;

	if (check_sub_overflow((s64)ns, e->offset_ns, &host_ns))
		return KTIME_MAX;
	return ns_to_ktime(max_t(s64, host_ns, 0));
}

static u64 tw_from_host(const struct tw_engine *e, ktime_t host)
{
	s64 ns;

	if (check_add_overflow(ktime_to_ns(host), e->offset_ns, &ns))
		return S64_MAX;
	return max_t(s64, ns, 0);
}

static u64 tw_now(const struct tw_engine *e)
{
	switch (e->clockid) {
	case CLOCK_REALTIME:
		return tw_from_host(e, ktime_get_real());
	case CLOCK_BOOTTIME:
		return tw_from_host(e, ktime_get_boottime());
	case CLOCK_TAI:
		return tw_from_host(e, ktime_get_clocktai());
	case TWHEEL_CLOCK_MANUAL:
		return e->manual_ns;
	default:
		return tw_from_host(e, ktime_get());
	}
}

/* For durations: a clock that cannot be set. */
static u64 tw_steady_now(const struct tw_engine *e)
{
	return e->clockid == TWHEEL_CLOCK_MANUAL ? e->manual_ns : ktime_get_ns();
}

/*
 * The tick at which a timer that is not due yet will be: the first that does not begin
 * before @expires_ns, or, if slack lets one choose, the roundest up to its end. Timers
 * that are close together so come to share a tick.
 */
static u64 tw_expiry_tick(const struct tw_engine *e, u64 expires_ns, u64 slack_ns)
{
	u64 first, last;

	if (expires_ns == TWHEEL_NEVER)
		return U64_MAX;
	first = (expires_ns + (1ULL << e->tick_shift) - 1) >> e->tick_shift;
	if (!slack_ns)
		return first;
	last = tw_add_ns(expires_ns, slack_ns) >> e->tick_shift;
	return last > first ? wheel_roundest(first, last) : first;
}

static u64 tw_tick_ns(const struct tw_engine *e, u64 tick)
{
	return tick > (u64)S64_MAX >> e->tick_shift ? TWHEEL_NEVER :
						      tick << e->tick_shift;
}

/*
 * How long the engine has to leave the CPU alone. Who has a turn keeps it, however often
 * the hrtimer is started until then.
 */
static u64 tw_wait_ns(struct tw_engine *e)
{
	u64 now_ns, wait_ns;

	lockdep_assert_held(&e->lock);

	if (!e->turn_ns) {
		wait_ns = tw_share_wait_ns(e->timers.user->share, e->took_ns);
		if (wait_ns)
			e->turn_ns = ktime_get_ns() + wait_ns;
		return wait_ns;
	}
	now_ns = ktime_get_ns();
	return e->turn_ns > now_ns ? e->turn_ns - now_ns : 0;
}

/* Starts it for @ns, or for when the user may have the CPU again. */
static void tw_start_hrtimer(struct tw_engine *e, u64 ns)
{
	u64 wait_ns;

	lockdep_assert_held(&e->lock);

	wait_ns = tw_wait_ns(e);
	if (wait_ns)
		ns = max(ns, tw_add_ns(tw_now(e), wait_ns));
	e->stats.hrtimer_starts++;
	hrtimer_start(&e->hrtimer, tw_to_host(e, ns), HRTIMER_MODE_ABS_SOFT);
}

/* Sees to it that the engine is woken at @tick, or before. */
static void tw_wake_at(struct tw_engine *e, u64 tick)
{
	u64 ns;

	lockdep_assert_held(&e->lock);

	if (tick >= e->wake_tick || e->clockid == TWHEEL_CLOCK_MANUAL)
		return;
	ns = tw_tick_ns(e, tick);
	if (ns == TWHEEL_NEVER)
		return;
	e->wake_tick = tick;
	tw_start_hrtimer(e, ns);
}

/* An idle engine has no hrtimer queued. */
static void tw_stop_if_idle(struct tw_engine *e)
{
	lockdep_assert_held(&e->lock);

	if (e->wheel.nr_armed || e->wake_tick == U64_MAX)
		return;
	if (hrtimer_try_to_cancel(&e->hrtimer) >= 0)
		e->wake_tick = U64_MAX;
}

/* The queue is not to be announced later. */
static void tw_stop_announcer(struct tw_engine *e)
{
	lockdep_assert_held(&e->lock);

	if (e->announce_ns == TWHEEL_NEVER)
		return;
	e->announce_ns = TWHEEL_NEVER;
	/* Should its callback be at work, it finds that there is nothing to do. */
	hrtimer_try_to_cancel(&e->announcer);
}

/* Lets readers know of the queue. */
static void tw_announce(struct tw_engine *e)
{
	lockdep_assert_held(&e->lock);

	WRITE_ONCE(e->announced, true);
	tw_stop_announcer(e);
	e->wake = true;
}

/* Announces the queue if it is time. */
static void tw_announce_if_due(struct tw_engine *e)
{
	lockdep_assert_held(&e->lock);

	if (e->announce_ns != TWHEEL_NEVER && tw_steady_now(e) >= e->announce_ns)
		tw_announce(e);
}

static void tw_announce_later(struct tw_engine *e)
{
	lockdep_assert_held(&e->lock);

	e->announce_ns = tw_add_ns(tw_steady_now(e), e->wake_delay_ns);
	if (e->clockid == TWHEEL_CLOCK_MANUAL)
		return;
	e->stats.hrtimer_starts++;
	hrtimer_start(&e->announcer, ns_to_ktime(e->announce_ns), HRTIMER_MODE_ABS_SOFT);
}

/* Records have been added: announces the queue now, or sees to it that it will be. */
static void tw_moderate(struct tw_engine *e)
{
	lockdep_assert_held(&e->lock);

	e->stats.ready_max = max_t(u64, e->stats.ready_max, e->queue.nr);
	if (e->announced || e->queue.nr >= e->wake_batch || !e->wake_delay_ns)
		tw_announce(e);
	else if (e->announce_ns == TWHEEL_NEVER)
		tw_announce_later(e);
}

/* An empty queue is to be announced anew when it fills. */
static void tw_hush_if_empty(struct tw_engine *e)
{
	lockdep_assert_held(&e->lock);

	if (e->queue.nr || e->jumped)
		return;
	WRITE_ONCE(e->announced, false);
	tw_stop_announcer(e);
	tw_stop_if_idle(e);
}

/*
 * Only for timers that expired in the wheel. Of a deadline that had passed when its timer
 * was armed it is the caller who is late, or the reader.
 */
static void tw_count_lateness(struct tw_engine *e, const struct tw_timer *t, u64 now)
{
	u64 deadline = tw_add_ns(t->expires_ns, t->slack_ns);

	e->stats.lateness[now > deadline ? fls64(now - deadline) : 0]++;
}

/* Adds a timer to the queue. tw_moderate() is to be called once it has all of them. */
static void tw_ready_push(struct tw_engine *e, u32 index, struct tw_timer *t,
			  u64 now)
{
	lockdep_assert_held(&e->lock);

	t->node.owner |= TW_READY;
	t->fired_ns = now;
	t->place = tw_queue_push(&e->queue, &e->timers, index);
	e->stats.fired++;
	trace_twheel_expire(e->number, tw_timer_id(t, index), t->expires_ns, now);
}

/* Frees a timer that is neither armed nor ready. */
static void tw_free_timer(struct tw_engine *e, u32 index)
{
	lockdep_assert_held(&e->lock);

	tw_timers_free(&e->timers, index);
	if (!e->timers.live && e->wheel.nr_nodes > TW_KEEP_NODES)
		schedule_delayed_work(&e->trim, TW_KEEP_JIFFIES);
}

static void tw_ready_remove(struct tw_engine *e, struct tw_timer *t)
{
	lockdep_assert_held(&e->lock);

	tw_queue_remove(&e->queue, &e->timers, t->place);
	t->node.owner &= ~TW_READY;
	tw_hush_if_empty(e);
}

/*
 * Puts a timer whose @expires_ns is set where it belongs. It is armed, to be moved, or
 * neither armed nor ready. The wheel has been told that it is @now.
 */
static void tw_place(struct tw_engine *e, u32 index, struct tw_timer *t, u64 now)
{
	u64 tick;

	lockdep_assert_held(&e->lock);

	if (t->expires_ns <= now) {
		if (t->node.armed)
			wheel_cancel(&e->wheel, &t->node);
		tw_ready_push(e, index, t, now);
		tw_moderate(e);
		tw_stop_if_idle(e);
		return;
	}
	tick = tw_expiry_tick(e, t->expires_ns, t->slack_ns);
	wheel_arm(&e->wheel, index, tick);
	tw_wake_at(e, tick);
}

/* Releases the lock, and wakes readers if a record was announced meanwhile. */
static void tw_unlock_wake(struct tw_engine *e)
	__releases(&e->lock)
{
	u32 ready = e->queue.nr;
	bool wake = e->wake;

	e->wake = false;
	tw_unlock(e);
	if (!wake)
		return;
	trace_twheel_wake(e->number, ready);
	if (wq_has_sleeper(&e->wait))
		wake_up_interruptible_poll(&e->wait, EPOLLIN | EPOLLRDNORM);
}

/* Expires a batch of what is due. True if that was all. */
static bool tw_expire_batch(struct tw_engine *e, struct wheel_batch *batch)
{
	u64 now = tw_now(e);
	struct tw_timer *t;
	bool all;
	u32 i;

	lockdep_assert_held(&e->lock);

	batch->nr = 0;
	batch->cascaded = 0;
	all = wheel_advance(&e->wheel, now >> e->tick_shift, batch);
	for (i = 0; i < batch->nr; i++) {
		t = tw_timer(&e->timers, batch->expired[i]);
		tw_ready_push(e, batch->expired[i], t, now);
		tw_count_lateness(e, t, now);
	}
	if (batch->nr)
		tw_moderate(e);
	e->stats.cascaded += batch->cascaded;
	if (batch->cascaded)
		trace_twheel_cascade(e->number, now >> e->tick_shift,
				     batch->cascaded, batch->nr);
	return all;
}

/*
 * Expires what is due, as far as one budget goes. True if that was all. Readers are
 * woken once.
 */
static bool tw_pass(struct tw_engine *e)
{
	struct wheel_batch batch;
	bool all = false;
	int hold;

	for (hold = 1;; hold++) {
		tw_lock(e);
		batch.budget = TW_HOLD_BUDGET;
		while (!all && batch.budget)
			all = tw_expire_batch(e, &batch);
		if (all || hold == TW_PASS_HOLDS)
			break;
		tw_unlock(e);
	}
	e->stats.continued += !all;
	tw_unlock_wake(e);
	return all;
}

/*
 * Whether the clock was set back between the hrtimer core's look at it and ours, so that
 * the callback comes before its time. If the hrtimer was started again meanwhile it is
 * not known for when it was before, nor does it matter.
 */
static bool tw_comes_early(struct tw_engine *e)
{
	lockdep_assert_held(&e->lock);

	return e->clockset.was_set && !hrtimer_is_queued(&e->hrtimer) &&
	       tw_now(e) < tw_from_host(e, hrtimer_get_expires(&e->hrtimer));
}

/* Starts the hrtimer again at the end of a pass that began at @begin_ns. */
static void tw_go_on(struct tw_engine *e, u64 begin_ns, bool all)
{
	lockdep_assert_held(&e->lock);

	e->took_ns = ktime_get_ns() - begin_ns;
	tw_share_charge(e->timers.user->share, begin_ns, e->took_ns);
	if (all || !e->wheel.nr_armed)
		tw_wake_at(e, wheel_next_bound(&e->wheel));
	else
		tw_start_hrtimer(e, tw_add_ns(tw_now(e), max_t(u64, e->took_ns, TW_GAP_NS)));
}

/*
 * Whether the callback has come in vain, as the share is used up; the hrtimer is started
 * again then. Who has waited for its turn has it: or else those who come in vain could
 * use up the share for ever, and no one would get on.
 */
static bool tw_must_wait(struct tw_engine *e, u64 begin_ns)
{
	struct tw_share __percpu *shares = e->timers.user->share;

	lockdep_assert_held(&e->lock);

	if (e->turn_ns) {
		e->turn_ns = 0;
		return false;
	}
	if (!e->wheel.nr_armed || !tw_share_is_used_up(shares))
		return false;
	tw_share_charge(shares, begin_ns, ktime_get_ns() - begin_ns);
	tw_start_hrtimer(e, tw_now(e));
	return true;
}

static enum hrtimer_restart tw_hrtimer_callback(struct hrtimer *hrtimer)
{
	struct tw_engine *e = container_of(hrtimer, struct tw_engine, hrtimer);
	u64 raced_tick, begin_ns = ktime_get_ns();
	bool early, waits, all;

	tw_lock(e);
	e->stats.wakeups++;
	early = tw_comes_early(e);
	/* Somebody may have started it again before the lock was taken. */
	raced_tick = hrtimer_is_queued(hrtimer) ? e->wake_tick : U64_MAX;
	e->wake_tick = early ? U64_MAX : 0;
	waits = !early && tw_must_wait(e, begin_ns);
	tw_unlock(e);
	if (early)
		tw_clockset_look();
	if (early || waits)
		return HRTIMER_NORESTART;

	all = tw_pass(e);

	tw_lock(e);
	if (all || !e->wheel.nr_armed)
		e->wake_tick = raced_tick;
	tw_go_on(e, begin_ns, all);
	tw_unlock(e);
	return HRTIMER_NORESTART;
}

static enum hrtimer_restart tw_announcer_callback(struct hrtimer *announcer)
{
	struct tw_engine *e = container_of(announcer, struct tw_engine, announcer);
	u64 begin_ns = ktime_get_ns();

	tw_lock(e);
	e->stats.wakeups++;
	tw_announce_if_due(e);
	tw_share_charge(e->timers.user->share, begin_ns, ktime_get_ns() - begin_ns);
	tw_unlock_wake(e);
	return HRTIMER_NORESTART;
}

/*
 * The wall clock may have been set, by @jump_ns in all since the last time. The hrtimer is
 * started anew: without high resolution the kernel does not look by itself whether one has
 * become due by that, and a callback that came early has left it to us. If it is at work
 * just now it may have looked at the clock before it was set: it is looked at again.
 *
 * The record, if it is wanted, waits at the head of the queue.
 */
static void tw_was_set(struct tw_clockset *cs, s64 jump_ns)
{
	struct tw_engine *e = container_of(cs, struct tw_engine, clockset);

	tw_lock(e);
	if (hrtimer_try_to_cancel(&e->hrtimer) >= 0) {
		e->wake_tick = U64_MAX;
		tw_wake_at(e, wheel_next_bound(&e->wheel));
	} else {
		tw_clockset_look();
	}
	if (e->tell_sets && jump_ns) {
		e->jump_ns = e->jumped ? e->jump_ns + jump_ns : jump_ns;
		e->jump_at_ns = tw_now(e);
		e->jumped = true;
		tw_announce(e);
	}
	tw_unlock_wake(e);
}

/* On a manual clock neither is ever started, but they are there all the same. */
static void tw_setup_hrtimers(struct tw_engine *e)
{
	clockid_t clockid = e->clockid;

	if (clockid == TWHEEL_CLOCK_MANUAL)
		clockid = CLOCK_MONOTONIC;
	hrtimer_setup(&e->hrtimer, tw_hrtimer_callback, clockid,
		      HRTIMER_MODE_ABS_SOFT);
	hrtimer_setup(&e->announcer, tw_announcer_callback, CLOCK_MONOTONIC,
		      HRTIMER_MODE_ABS_SOFT);
}

/* Gives memory back, unless there are timers again. */
static void tw_trim(struct work_struct *work)
{
	struct tw_engine *e = container_of(work, struct tw_engine, trim.work);
	struct tw_timers old;
	bool released;

	/* Who grows it may wait for memory; this is not to wait with it. */
	if (!mutex_trylock(&e->grow_lock)) {
		schedule_delayed_work(&e->trim, TW_KEEP_JIFFIES);
		return;
	}
	tw_lock(e);
	released = tw_timers_release(&e->timers, tw_now(e) >> e->tick_shift, &old);
	tw_unlock(e);
	mutex_unlock(&e->grow_lock);
	if (released)
		tw_timers_destroy(&old);
}

static struct tw_engine *tw_engine_alloc(struct tw_user *user)
{
	size_t bytes = tw_user_bytes(NULL, sizeof(struct tw_engine));
	struct tw_engine *e;

	if (!tw_user_charge(user, bytes))
		return ERR_PTR(-EPERM);
	e = kvzalloc_obj(*e, GFP_KERNEL_ACCOUNT);
	tw_user_uncharge(user, bytes - (e ? tw_user_bytes(e, sizeof(*e)) : 0));
	return e ?: ERR_PTR(-ENOMEM);
}

/**
 * tw_engine_create() - make an engine with the default clock and tick
 * @capacity: how many timers it may have
 *
 * It takes the time namespace of the caller and is charged to the caller's user. May
 * sleep.
 *
 * Return: the engine, -ENOMEM, or -EPERM if the user may hold no more memory.
 */
struct tw_engine *tw_engine_create(u32 capacity)
{
	struct tw_user *user = tw_user_get(tw_user_who());
	struct tw_engine *e;

	if (!user)
		return ERR_PTR(-ENOMEM);
	e = tw_engine_alloc(user);
	if (IS_ERR(e)) {
		tw_user_put(user);
		return e;
	}
	spin_lock_init(&e->lock);
	mutex_init(&e->grow_lock);
	init_waitqueue_head(&e->wait);
	INIT_DELAYED_WORK(&e->trim, tw_trim);
	wheel_init(&e->wheel, 0);
	tw_queue_init(&e->queue);
	tw_timers_init(&e->timers, &e->wheel, &e->queue, user, capacity);
	e->clockid = CLOCK_MONOTONIC;
	e->tick_shift = TW_TICK_SHIFT_DEFAULT;
	e->number = atomic_inc_return(&tw_engine_count);
	e->mono_ns = tw_timens_offset_ns(CLOCK_MONOTONIC);
	e->boot_ns = tw_timens_offset_ns(CLOCK_BOOTTIME);
	e->offset_ns = e->mono_ns;
	e->wake_tick = U64_MAX;
	e->took_ns = TW_UNKNOWN_NS;
	e->announce_ns = TWHEEL_NEVER;
	e->stats.size = sizeof(e->stats);
	tw_setup_hrtimers(e);
	return e;
}

/**
 * tw_engine_destroy() - disarm and free everything
 * @e: the engine; nobody else uses it any more. May sleep
 */
void tw_engine_destroy(struct tw_engine *e)
{
	size_t bytes = tw_user_bytes(e, sizeof(*e));
	struct tw_user *user = e->timers.user;

	if (e->clockset.was_set)
		tw_clockset_remove(&e->clockset);
	hrtimer_cancel(&e->hrtimer);
	hrtimer_cancel(&e->announcer);
	cancel_delayed_work_sync(&e->trim);
	tw_timers_destroy(&e->timers);
	kvfree(e);
	tw_user_uncharge(user, bytes);
	tw_user_put(user);
}

/**
 * tw_engine_clock_known() - whether there is such a clock
 * @clockid: as in struct twheel_setup
 *
 * Return: true if tw_engine_setup() takes it.
 */
bool tw_engine_clock_known(u32 clockid)
{
	return clockid == CLOCK_REALTIME || clockid == CLOCK_MONOTONIC ||
	       clockid == CLOCK_BOOTTIME || clockid == CLOCK_TAI ||
	       clockid == TWHEEL_CLOCK_MANUAL;
}

/**
 * tw_engine_grant_tick_ns() - the tick that is granted to a wish
 * @tick_ns: the wish, 0 for the default
 *
 * Return: a power of two of nanoseconds.
 */
u64 tw_engine_grant_tick_ns(u64 tick_ns)
{
	if (!tick_ns)
		return BIT_ULL(TW_TICK_SHIFT_DEFAULT);
	return BIT_ULL(clamp_t(int, fls64(tick_ns) - 1, TW_TICK_SHIFT_MIN,
			       TW_TICK_SHIFT_MAX));
}

/**
 * tw_engine_is_fixed() - whether it is too late for tw_engine_setup()
 * @e: the engine
 *
 * Return: true after a set-up or an arm.
 */
bool tw_engine_is_fixed(struct tw_engine *e)
{
	bool fixed;

	tw_lock(e);
	fixed = e->fixed;
	tw_unlock(e);
	return fixed;
}

/* What is left of a set-up if an arm has not been faster. */
static int tw_fix(struct tw_engine *e, const struct twheel_setup *setup)
{
	int ret = -EBUSY;

	tw_lock(e);
	if (!e->fixed) {
		e->fixed = true;
		e->clockid = setup->clockid;
		e->tick_shift = fls64(setup->tick_ns) - 1;
		e->timers.capacity = setup->capacity;
		e->wake_batch = setup->wake_batch;
		e->wake_delay_ns = setup->wake_delay_ns;
		if (e->clockid != TWHEEL_CLOCK_MANUAL && e->wake_delay_ns < TW_DELAY_MIN_NS)
			e->wake_delay_ns = 0;
		e->offset_ns = e->clockid == CLOCK_MONOTONIC ? e->mono_ns :
			       e->clockid == CLOCK_BOOTTIME  ? e->boot_ns : 0;
		e->tell_sets = setup->flags & TWHEEL_SETUP_CLOCK_SET;
		tw_setup_hrtimers(e);
		ret = 0;
	}
	tw_unlock(e);
	return ret;
}

/**
 * tw_engine_setup() - choose clock, tick and capacity
 * @e:     the engine
 * @setup: a known clock, a tick that can be granted, a capacity
 *
 * May sleep.
 *
 * Return: 0, or -EBUSY after a set-up or an arm.
 */
int tw_engine_setup(struct tw_engine *e, const struct twheel_setup *setup)
{
	bool watches = setup->clockid == CLOCK_REALTIME || setup->clockid == CLOCK_TAI;
	int ret = -EBUSY;

	/* Watches the clock before it can have a timer, and nobody else sets it up. */
	mutex_lock(&e->grow_lock);
	if (tw_engine_is_fixed(e))
		goto out;
	if (watches) {
		e->clockset.was_set = tw_was_set;
		tw_clockset_add(&e->clockset, setup->clockid);
	}
	ret = tw_fix(e, setup);
	if (ret && watches) {
		tw_clockset_remove(&e->clockset);
		e->clockset.was_set = NULL;
	}
out:
	mutex_unlock(&e->grow_lock);
	return ret;
}

/**
 * tw_engine_info() - fill in what depends on the engine
 * @e:    the engine
 * @info: clockid, now, tick, capacity, armed and ready are written
 */
void tw_engine_info(struct tw_engine *e, struct twheel_info *info)
{
	tw_lock(e);
	info->clockid = e->clockid;
	info->now_ns = tw_now(e);
	info->tick_ns = BIT_ULL(e->tick_shift);
	info->capacity = e->timers.capacity;
	info->armed = e->wheel.nr_armed;
	info->ready = e->queue.nr;
	tw_unlock(e);
}

/**
 * tw_engine_stats() - take a copy of the counters
 * @e:       the engine
 * @stats:   out: counters, all of one instant
 * @wake_ns: out: when an hrtimer wakes the engine, TWHEEL_NEVER if none is queued
 */
void tw_engine_stats(struct tw_engine *e, struct twheel_stats *stats, u64 *wake_ns)
{
	u64 steady_ns = ktime_get_ns();

	tw_lock(e);
	*stats = e->stats;
	*wake_ns = TWHEEL_NEVER;
	if (hrtimer_is_queued(&e->hrtimer))
		*wake_ns = tw_from_host(e, hrtimer_get_expires(&e->hrtimer));
	if (hrtimer_is_queued(&e->announcer)) {
		u64 left_ns = max(e->announce_ns, steady_ns) - steady_ns;

		*wake_ns = min(*wake_ns, tw_add_ns(tw_now(e), left_ns));
	}
	tw_unlock(e);
}

/**
 * tw_engine_memory() - what the user is charged for it
 * @e: the engine
 *
 * Return: bytes.
 */
size_t tw_engine_memory(struct tw_engine *e)
{
	size_t bytes = tw_user_bytes(e, sizeof(*e));

	tw_lock(e);
	bytes += e->timers.bytes;
	tw_unlock(e);
	return bytes;
}

/* Makes room for more timers. */
static int tw_grow(struct tw_engine *e)
{
	struct tw_growth growth;
	bool full;
	int ret = 0;

	mutex_lock(&e->grow_lock);
	/* Somebody else may have freed a timer, or grown the table, meanwhile. */
	tw_lock(e);
	full = !e->timers.nr_free;
	tw_unlock(e);
	if (!full)
		goto out;
	ret = tw_timers_prepare(&e->timers, &growth);
	if (!ret) {
		tw_lock(e);
		tw_timers_install(&e->timers, &growth);
		tw_unlock(e);
	}
	tw_timers_discard(&growth);
out:
	mutex_unlock(&e->grow_lock);
	return ret;
}

/* Takes over what ARM and MODIFY say. */
static void tw_assign(struct tw_timer *t, const struct twheel_op *op, u64 now)
{
	t->expires_ns = op->expires_ns;
	if (op->flags & TWHEEL_F_REL && op->expires_ns != TWHEEL_NEVER)
		t->expires_ns = tw_add_ns(now, op->expires_ns);
	t->interval_ns = op->interval_ns;
	t->slack_ns = op->slack_ns;
	t->count = op->count;
	t->node.owner = op->misfire << TW_MISFIRE_SHIFT;
}

static u8 tw_misfire(const struct tw_timer *t)
{
	return t->node.owner >> TW_MISFIRE_SHIFT;
}

/* What QUERY, LIST and DRAIN tell of a timer. */
static void tw_tell(const struct tw_timer *t, struct twheel_op *op)
{
	op->user_data = t->user_data;
	op->expires_ns = t->expires_ns;
	op->interval_ns = t->interval_ns;
	op->slack_ns = t->slack_ns;
	op->count = t->count;
	op->misfire = tw_misfire(t);
}

/* -EAGAIN: the table of timers has to grow first. */
static int tw_do_arm(struct tw_engine *e, struct twheel_op *op, u64 now)
{
	struct tw_timer *t;
	u32 index;
	int ret;

	ret = tw_timers_alloc(&e->timers, &index);
	if (ret)
		return ret;
	e->fixed = true;
	t = tw_timer(&e->timers, index);
	t->user_data = op->user_data;
	tw_assign(t, op, now);
	op->id = tw_timer_id(t, index);
	e->stats.armed++;
	trace_twheel_arm(e->number, op->id, t->expires_ns, t->interval_ns, now);
	tw_place(e, index, t, now);
	return 0;
}

static int tw_do_cancel(struct tw_engine *e, const struct twheel_op *op)
{
	struct tw_timer *t;
	bool ready;
	u32 index;

	t = tw_timers_find(&e->timers, op->id, &index);
	if (!t)
		return -ENOENT;
	ready = !t->node.armed;
	if (ready)
		tw_ready_remove(e, t);
	else
		wheel_cancel(&e->wheel, &t->node);
	tw_free_timer(e, index);
	e->stats.cancelled++;
	trace_twheel_cancel(e->number, op->id, ready);
	tw_stop_if_idle(e);
	return ready;
}

static int tw_do_modify(struct tw_engine *e, const struct twheel_op *op, u64 now)
{
	struct tw_timer *t;
	bool ready;
	u32 index;

	t = tw_timers_find(&e->timers, op->id, &index);
	if (!t)
		return -ENOENT;
	ready = !t->node.armed;
	if (ready)
		tw_ready_remove(e, t);
	tw_assign(t, op, now);
	e->stats.modified++;
	trace_twheel_arm(e->number, op->id, t->expires_ns, t->interval_ns, now);
	tw_place(e, index, t, now);
	return ready;
}

static int tw_do_query(struct tw_engine *e, struct twheel_op *op)
{
	struct tw_timer *t;
	u32 index;

	t = tw_timers_find(&e->timers, op->id, &index);
	if (!t)
		return -ENOENT;
	op->flags = t->node.armed ? TWHEEL_F_ARMED : TWHEEL_F_READY;
	tw_tell(t, op);
	return 0;
}

/* What the ioctl that this is would return, or -EAGAIN as tw_do_arm(). */
static int tw_do(struct tw_engine *e, struct twheel_op *op, u64 now)
{
	lockdep_assert_held(&e->lock);

	switch (op->opcode) {
	case TWHEEL_OP_ARM:
		return tw_do_arm(e, op, now);
	case TWHEEL_OP_CANCEL:
		return tw_do_cancel(e, op);
	case TWHEEL_OP_MODIFY:
		return tw_do_modify(e, op, now);
	case TWHEEL_OP_QUERY:
		return tw_do_query(e, op);
	default:
		return 0;
	}
}

/*
 * Has the timers at hand when the operations get to them, all misses at once. Inline for
 * the same reason as in wheel.c.
 */
static __always_inline void tw_prefetch_ops(const struct tw_engine *e,
					    const struct twheel_op *ops, u32 nr)
{
	u32 i, index, nr_nodes = e->wheel.nr_nodes;

	for (i = 0; i < nr; i++) {
		index = (u32)ops[i].id;
		if (ops[i].opcode == TWHEEL_OP_ARM || index >= nr_nodes)
			continue;
		index = array_index_nospec(index, nr_nodes);
		prefetchw(tw_timer(&e->timers, index));
	}
}

/*
 * Does operations up to the first that needs the table to grow, under one hold of the
 * lock. How many.
 */
static u32 tw_do_some(struct tw_engine *e, struct twheel_op *ops, u32 nr)
{
	u32 done;
	u64 now;
	int ret;

	tw_lock(e);
	now = tw_now(e);
	wheel_forward(&e->wheel, now >> e->tick_shift);
	if (nr > 1)
		tw_prefetch_ops(e, ops, nr);
	for (done = 0; done < nr; done++) {
		if (ops[done].res)
			continue;
		ret = tw_do(e, &ops[done], now);
		if (ret == -EAGAIN)
			break;
		ops[done].res = ret;
	}
	tw_unlock_wake(e);
	return done;
}

/**
 * tw_engine_submit() - do some operations, in order
 * @e:   the engine
 * @ops: in: operations that are checked, with a @res of 0; one with another @res is
 *       left out. out: @res, and what the ioctl of each operation writes
 * @nr:  how many
 *
 * May sleep for memory.
 */
void tw_engine_submit(struct tw_engine *e, struct twheel_op *ops, u32 nr)
{
	u32 done;
	int ret;

	while (nr) {
		done = tw_do_some(e, ops, min_t(u32, nr, TW_SUBMIT_HOLD));
		ops += done;
		nr -= done;
		if (done || !nr)
			continue;
		ret = tw_grow(e);
		if (ret) {
			ops->res = ret;
			ops++;
			nr--;
		}
	}
}

/**
 * tw_engine_readable() - whether a reader need not wait
 * @e: the engine; no lock is needed
 *
 * Return: true if there are records, and enough of them or old enough ones.
 */
bool tw_engine_readable(const struct tw_engine *e)
{
	return READ_ONCE(e->announced);
}

/**
 * tw_engine_next() - when the earliest timer fires
 * @e:          the engine
 * @expires_ns: out: when, or TWHEEL_NEVER
 *
 * What is due by now is expired first. May sleep.
 *
 * Return: 0 or -ERESTARTSYS.
 */
int tw_engine_next(struct tw_engine *e, u64 *expires_ns)
{
	bool known;
	u64 tick;

	for (;;) {
		if (tw_pass(e)) {
			tw_lock(e);
			known = wheel_next(&e->wheel, &tick, TW_HOLD_BUDGET);
			if (known)
				*expires_ns = tw_tick_ns(e, tick);
			tw_unlock(e);
			if (known)
				return 0;
		}
		if (signal_pending(current))
			return -ERESTARTSYS;
		cond_resched();
	}
}

/**
 * tw_engine_advance() - move a manual clock
 * @e:     the engine
 * @to_ns: the new now, at most S64_MAX
 *
 * May sleep.
 *
 * Return: 0, -EINVAL if the clock is not manual or would go back, -EINTR if a fatal
 * signal came before all had expired.
 */
int tw_engine_advance(struct tw_engine *e, u64 to_ns)
{
	tw_lock(e);
	if (e->clockid != TWHEEL_CLOCK_MANUAL || to_ns < e->manual_ns) {
		tw_unlock(e);
		return -EINVAL;
	}
	e->manual_ns = to_ns;
	if (wheel_next_bound(&e->wheel) <= to_ns >> e->tick_shift ||
	    e->announce_ns <= to_ns)
		e->stats.wakeups++;
	tw_announce_if_due(e);
	tw_unlock_wake(e);

	while (!tw_pass(e)) {
		if (fatal_signal_pending(current))
			return -EINTR;
		cond_resched();
	}
	return 0;
}

/* Further periods of a ready periodic timer that have passed. */
static u64 tw_missed(const struct tw_timer *t, u64 now)
{
	u64 missed;

	if (now < t->expires_ns)
		return 0;
	missed = div64_u64(now - t->expires_ns, t->interval_ns);
	return t->count ? min_t(u64, missed, t->count - 1) : missed;
}

/* Those of them that the next record does away with, told or not. */
static u64 tw_dropped(const struct tw_timer *t, u64 now)
{
	return tw_misfire(t) == TWHEEL_MISFIRE_BURST ? 0 : tw_missed(t, now);
}

/* Whether a periodic timer ends with its next record. */
static bool tw_ends(const struct tw_timer *t, u64 dropped)
{
	return t->count && dropped + 1 == t->count;
}

/* What the record of a periodic timer tells besides. */
static void tw_fill_periods(const struct tw_timer *t, u64 now,
			    struct twheel_event *event)
{
	u64 dropped = tw_dropped(t, now);

	if (!tw_ends(t, dropped))
		event->flags = TWHEEL_EV_MORE;
	if (tw_misfire(t) == TWHEEL_MISFIRE_COUNT)
		event->overrun = min_t(u64, dropped, U32_MAX);
}

static void tw_fill_event(const struct tw_timer *t, u32 index, u64 now,
			  struct twheel_event *event)
{
	*event = (struct twheel_event){
		.id = tw_timer_id(t, index),
		.user_data = t->user_data,
		.expires_ns = t->expires_ns,
		.fired_ns = t->fired_ns,
	};
	if (t->interval_ns)
		tw_fill_periods(t, now, event);
}

static void tw_fill_jump(const struct tw_engine *e, struct twheel_event *event)
{
	*event = (struct twheel_event){
		.expires_ns = e->jump_ns,
		.fired_ns = e->jump_at_ns,
		.flags = TWHEEL_EV_CLOCK_SET,
	};
}

/* Moves a periodic timer on to its next expiry. False if its last record was told. */
static bool tw_next_period(struct tw_timer *t, u64 now)
{
	u64 dropped = tw_dropped(t, now);

	if (tw_ends(t, dropped))
		return false;
	/* Neither factor nor sum can overflow: all but the last period has passed. */
	t->expires_ns += (dropped + 1) * t->interval_ns;
	if (t->expires_ns > S64_MAX)
		t->expires_ns = TWHEEL_NEVER;
	if (t->count)
		t->count -= dropped + 1;
	return true;
}

/* A timer has been told, and its record taken off the queue. */
static void tw_consume(struct tw_engine *e, u32 index, u64 now)
{
	struct tw_timer *t = tw_timer(&e->timers, index);

	lockdep_assert_held(&e->lock);

	t->node.owner &= ~TW_READY;
	if (t->interval_ns && tw_next_period(t, now))
		tw_place(e, index, t, now);
	else
		tw_free_timer(e, index);
}

/**
 * tw_engine_read() - hand over the first records of the queue
 * @e:    the engine
 * @max:  at most so many
 * @copy: takes them; see there
 * @to:   for @copy
 * @rest: out: why it stopped
 *
 * Hands over at most TW_READ_BATCH.
 *
 * Return: how many were taken.
 */
u32 tw_engine_read(struct tw_engine *e, u32 max, tw_copy_t copy, void *to,
		   enum tw_rest *rest)
{
	u32 index[TW_READ_BATCH], i, taken, nr, jumped;
	u64 now;

	tw_lock(e);
	max = min_t(u32, max, TW_READ_BATCH);
	now = tw_now(e);
	jumped = e->jumped;
	if (jumped)
		tw_fill_jump(e, e->events);
	nr = tw_queue_peek(&e->queue, &e->timers, index, max - jumped);
	for (i = 0; i < nr; i++)
		tw_fill_event(tw_timer(&e->timers, index[i]), index[i], now,
			      &e->events[jumped + i]);
	nr += jumped;
	taken = nr ? copy(to, e->events, sizeof(*e->events), nr) : 0;
	wheel_forward(&e->wheel, now >> e->tick_shift);
	if (taken) {
		e->jumped = false;
		tw_queue_shift(&e->queue, taken - jumped);
		tw_hush_if_empty(e);
	}
	for (i = jumped; i < taken; i++)
		tw_consume(e, index[i - jumped], now);
	*rest = taken < nr  ? TW_REST_FAULT :
		e->queue.nr ? TW_REST_MORE : TW_REST_NONE;
	tw_unlock_wake(e);
	return taken;
}

/* Fills in the armed timers from @next on, as far as one hold of the lock goes. */
static u32 tw_collect(struct tw_engine *e, u32 *next, struct twheel_op *ops, u32 max)
{
	u32 nr = 0, end = e->wheel.nr_nodes;
	const struct tw_timer *t;

	lockdep_assert_held(&e->lock);

	if (end - *next > TW_HOLD_BUDGET)
		end = *next + TW_HOLD_BUDGET;
	for (; *next < end && nr < max; ++*next) {
		t = tw_timer(&e->timers, *next);
		if (!t->node.armed)
			continue;
		ops[nr] = (struct twheel_op){
			.opcode = TWHEEL_OP_ARM,
			.id = tw_timer_id(t, *next),
		};
		tw_tell(t, &ops[nr++]);
	}
	return nr;
}

/* Frees a timer that has been handed back. */
static void tw_disarm(struct tw_engine *e, const struct twheel_op *op)
{
	u32 index = (u32)op->id;

	wheel_cancel(&e->wheel, &tw_timer(&e->timers, index)->node);
	tw_free_timer(e, index);
	e->stats.cancelled++;
	trace_twheel_cancel(e->number, op->id, false);
}

/**
 * tw_engine_drain() - disarm timers and hand them back
 * @e:    the engine
 * @max:  at most so many
 * @copy: takes them; see there
 * @to:   for @copy
 * @rest: out: why it stopped
 *
 * Hands back at most TW_READ_BATCH.
 *
 * Return: how many were taken; 0 only if none is armed, or upon a fault.
 */
u32 tw_engine_drain(struct tw_engine *e, u32 max, tw_copy_t copy, void *to,
		    enum tw_rest *rest)
{
	u32 i, nr, from, taken = 0;

	max = min_t(u32, max, TW_READ_BATCH);
	do {
		tw_lock(e);
		if (e->drain_next >= e->wheel.nr_nodes)
			e->drain_next = 0;
		from = e->drain_next;
		nr = tw_collect(e, &e->drain_next, e->ops, max);
		if (nr)
			taken = copy(to, e->ops, sizeof(*e->ops), nr);
		for (i = 0; i < taken; i++)
			tw_disarm(e, &e->ops[i]);
		if (taken < nr)
			e->drain_next = from;
		tw_stop_if_idle(e);
		*rest = taken < nr	  ? TW_REST_FAULT :
			e->wheel.nr_armed ? TW_REST_MORE : TW_REST_NONE;
		tw_unlock(e);
		cond_resched();
	} while (!nr && *rest == TW_REST_MORE && !fatal_signal_pending(current));
	return taken;
}

/**
 * tw_engine_list() - look at armed timers
 * @e:      the engine
 * @cursor: in: where to begin. out: where to go on, 0 at the end
 * @ops:    out: the timers
 * @max:    at most so many
 *
 * Return: how many were found in one hold of the lock, which may be none although
 * there are more.
 */
u32 tw_engine_list(struct tw_engine *e, u32 *cursor, struct twheel_op *ops, u32 max)
{
	u32 i, nr = 0;

	tw_lock(e);
	if (*cursor < e->wheel.nr_nodes) {
		*cursor = array_index_nospec(*cursor, e->wheel.nr_nodes);
		nr = tw_collect(e, cursor, ops, max);
	}
	if (*cursor >= e->wheel.nr_nodes)
		*cursor = 0;
	tw_unlock(e);
	for (i = 0; i < nr; i++)
		ops[i].flags = TWHEEL_F_ARMED;
	return nr;
}
