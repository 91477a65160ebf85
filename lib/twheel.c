// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * What the program calls. See twheel.h; how system calls are saved is told in slots.c.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>

#include "internal.h"

/* Programs and bindings have it compiled in. */
static_assert(sizeof(void *) < 8 || sizeof(struct twheel_timer) == 64);

static const int tw_clockids[] = {
	[TWHEEL_MONOTONIC]	= CLOCK_MONOTONIC,
	[TWHEEL_BOOTTIME]	= CLOCK_BOOTTIME,
	[TWHEEL_REALTIME]	= CLOCK_REALTIME,
	[TWHEEL_TAI]		= CLOCK_TAI,
	[TWHEEL_MANUAL]		= TWHEEL_CLOCK_MANUAL,
};

static int tw_open_backend(struct twheel *w, const struct tw_backend *backend,
			   const struct twheel_options *options)
{
	w->backend = backend;
	return backend->open(w, options);
}

/* What is wrong with the program, or would be with the other back end as well. */
static bool tw_is_final(int error)
{
	return error == -EINVAL || error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}

static int tw_open_any(struct twheel *w, const struct twheel_options *options)
{
	int ret;

	if (options->backend == TWHEEL_LOCAL)
		return tw_open_backend(w, &tw_local, options);
	ret = tw_open_backend(w, &tw_device, options);
	if (ret && options->backend == TWHEEL_AUTO && !tw_is_final(ret))
		ret = tw_open_backend(w, &tw_local, options);
	return ret;
}

static bool tw_is_zero(const void *p, size_t size)
{
	const unsigned char *byte = p;

	while (size--)
		if (*byte++)
			return false;
	return true;
}

/* Threads may open wheels at the same time. */
static uint32_t tw_new_key(void)
{
	static uint32_t last;

	/* Far from each other, and so from what the addresses of two timers differ by. */
	return __atomic_add_fetch(&last, 0x9e3779b9, __ATOMIC_RELAXED);
}

int twheel_open(struct twheel **to, const struct twheel_options *options)
{
	static const struct twheel_options defaults;
	struct twheel *w;
	int ret;

	*to = NULL;
	if (!options)
		options = &defaults;
	if ((unsigned int)options->backend > TWHEEL_LOCAL ||
	    (unsigned int)options->clock > TWHEEL_MANUAL || options->slack_ns > INT64_MAX ||
	    options->tick_ns > INT64_MAX || !tw_is_zero(options->resv, sizeof(options->resv)))
		return -EINVAL;

	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->clockid = tw_clockids[options->clock];
	w->slack_ns = options->slack_ns;
	w->key = tw_new_key();
	ret = tw_open_any(w, options);
	if (ret)
		free(w);
	else
		*to = w;
	return ret;
}

static void tw_free(struct twheel *w)
{
	tw_slots_destroy(w);
	free(w);
}

int twheel_adopt(struct twheel **to, int fd, uint64_t slack_ns)
{
	struct twheel *w;
	int ret;

	*to = NULL;
	if (slack_ns > INT64_MAX)
		return -EINVAL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->backend = &tw_device;
	w->fd = fd;
	w->slack_ns = slack_ns;
	w->key = tw_new_key();
	ret = tw_device_adopt(w);
	if (ret)
		tw_free(w);
	else
		*to = w;
	return ret;
}

void twheel_close(struct twheel *w)
{
	if (!w || w->closed)
		return;
	w->backend->close(w);
	w->closed = true;
	if (!w->depth)
		tw_free(w);
}

int twheel_fd(const struct twheel *w)
{
	struct twheel *asked = (struct twheel *)w;

	/* What has been meanwhile is made up for, see tw_is_silent(). */
	if (tw_is_silent(w)) {
		asked->has_given_fd = true;
		w->backend->settle(asked);
	}
	return w->fd;
}

bool twheel_is_device(const struct twheel *w)
{
	return w->backend == &tw_device;
}

uint64_t twheel_now(const struct twheel *w)
{
	struct timespec ts;

	if (w->clockid == TWHEEL_CLOCK_MANUAL)
		return w->manual_ns;
	clock_gettime(w->clockid, &ts);
	return (uint64_t)ts.tv_sec * TWHEEL_SEC + ts.tv_nsec;
}

/* A timer that is armed in another wheel, or was copied while it was armed. */
static bool tw_is_foreign(const struct twheel *w, const struct twheel_timer *t)
{
	return t->slot && t->key != tw_key(w, t);
}

/* Sends at once what cannot wait. */
static int tw_send_if_needed(struct twheel *w, const struct twheel_timer *t)
{
	if (t->report_by_ns != TWHEEL_NEVER)
		return 0;
	return tw_slots_must_send(w, t) ? tw_slots_send(w, t) : 0;
}

/* What the program says of a timer. What only periodic ones have may be a cache miss. */
static inline void tw_set(struct twheel_timer *t, const struct twheel_timer *as)
{
	t->fn = as->fn;
	t->deadline_ns = as->deadline_ns;
	t->slack_ns = as->slack_ns;
	t->interval_ns = as->interval_ns;
	if (!as->interval_ns)
		return;
	t->count = as->count;
	t->misfire = as->misfire;
}

static int tw_send_moved(struct twheel *w, struct twheel_timer *t, const struct twheel_timer *to)
{
	struct twheel_timer old = {};
	int ret;

	tw_set(&old, t);
	tw_set(t, to);
	tw_slots_moved(w, t);
	ret = tw_send_if_needed(w, t);
	if (ret) {
		tw_set(t, &old);
		/* It may have been sent. */
		t->report_by_ns = TWHEEL_NEVER;
		tw_slots_moved(w, t);
		return ret;
	}
	w->counts.moves++;
	return 0;
}

/* Arms one that is not armed, which was set. */
static int tw_arm_new(struct twheel *w, struct twheel_timer *t)
{
	int ret = tw_slots_claim(w, t);

	if (ret)
		return ret;
	ret = tw_send_if_needed(w, t);
	if (ret) {
		tw_slots_release(w, t);
		return ret;
	}
	w->counts.arms++;
	return 0;
}

static int tw_arm(struct twheel *w, struct twheel_timer *t, const struct twheel_timer *as)
{
	if (!as->fn || tw_is_foreign(w, t))
		return -EINVAL;
	if (t->slot && !tw_is_in_time(t, tw_due_by_ns(as)))
		return tw_send_moved(w, t, as);
	tw_set(t, as);
	if (!t->slot)
		return tw_arm_new(w, t);
	w->counts.moves++;
	return 0;
}

static int tw_move_once(struct twheel *w, struct twheel_timer *t, uint64_t expires_ns,
			twheel_fn *fn)
{
	struct twheel_timer to = {
		.fn = fn,
		.deadline_ns = expires_ns,
		.slack_ns = w->slack_ns,
	};

	return tw_send_moved(w, t, &to);
}

/*
 * The same as tw_arm(), for what is done most often, without a struct to tell it: its stores
 * are for the stack. While a processor waits for the cache miss of a timer that is pushed
 * later it goes on to the next ones until it has no room for their stores.
 */
int twheel_arm_at(struct twheel *w, struct twheel_timer *t, uint64_t expires_ns,
		  twheel_fn *fn)
{
	uint64_t slack_ns = w->slack_ns;

	if (!fn || (expires_ns > INT64_MAX && expires_ns != TWHEEL_NEVER) ||
	    tw_is_foreign(w, t))
		return -EINVAL;
	if (t->slot && !tw_is_in_time(t, tw_add_ns(expires_ns, slack_ns)))
		return tw_move_once(w, t, expires_ns, fn);
	t->fn = fn;
	t->deadline_ns = expires_ns;
	t->slack_ns = slack_ns;
	t->interval_ns = 0;
	if (!t->slot)
		return tw_arm_new(w, t);
	w->counts.moves++;
	return 0;
}

int twheel_arm(struct twheel *w, struct twheel_timer *t, uint64_t delay_ns, twheel_fn *fn)
{
	if (delay_ns > INT64_MAX && delay_ns != TWHEEL_NEVER)
		return -EINVAL;
	return twheel_arm_at(w, t, delay_ns == TWHEEL_NEVER ? delay_ns :
			     tw_add_ns(twheel_now(w), delay_ns), fn);
}

int twheel_every(struct twheel *w, struct twheel_timer *t, uint64_t interval_ns,
		 twheel_fn *fn)
{
	struct twheel_spec spec = {
		.expires_ns = tw_add_ns(twheel_now(w), interval_ns),
		.interval_ns = interval_ns,
	};

	return interval_ns ? twheel_arm_spec(w, t, &spec, fn) : -EINVAL;
}

int twheel_arm_spec(struct twheel *w, struct twheel_timer *t, const struct twheel_spec *spec,
		    twheel_fn *fn)
{
	struct twheel_timer as = {
		.fn = fn,
		.deadline_ns = spec->expires_ns,
		.slack_ns = spec->slack_ns ?: w->slack_ns,
		.interval_ns = spec->interval_ns,
		.count = spec->count,
		.misfire = spec->misfire,
	};

	if ((spec->expires_ns > INT64_MAX && spec->expires_ns != TWHEEL_NEVER) ||
	    spec->interval_ns > INT64_MAX || spec->slack_ns > INT64_MAX ||
	    (spec->count && !spec->interval_ns) || spec->misfire > TWHEEL_MISFIRE_SKIP ||
	    !tw_is_zero(spec->resv, sizeof(spec->resv)))
		return -EINVAL;
	return tw_arm(w, t, &as);
}

int twheel_cancel(struct twheel *w, struct twheel_timer *t)
{
	if (tw_is_foreign(w, t))
		return -EINVAL;
	if (!t->slot)
		return 0;
	tw_slots_release(w, t);
	w->counts.cancels++;
	return 1;
}

/*
 * Moves a timer that is due on to its next period, or parts it from its slot. How many
 * further periods have passed that are told of.
 */
static uint64_t tw_next_period(struct twheel *w, struct twheel_timer *t, uint64_t now_ns)
{
	uint64_t passed;

	if (!t->interval_ns) {
		tw_slots_release(w, t);
		return 0;
	}
	passed = t->misfire == TWHEEL_MISFIRE_BURST ? 0 :
						      (now_ns - t->deadline_ns) / t->interval_ns;
	if (t->count && passed >= t->count - 1) {
		passed = t->count - 1;
		tw_slots_release(w, t);
	} else {
		if (t->count)
			t->count -= passed + 1;
		/* All but the last period has passed, so that only the sum can overflow. */
		t->deadline_ns += (passed + 1) * t->interval_ns;
		if (t->deadline_ns > INT64_MAX)
			t->deadline_ns = TWHEEL_NEVER;
		tw_slots_moved(w, t);
	}
	return t->misfire == TWHEEL_MISFIRE_COUNT ? passed : 0;
}

static void tw_call(struct twheel *w, struct twheel_timer *t, uint64_t now_ns)
{
	uint64_t late_ns = now_ns - t->deadline_ns;
	twheel_fn *fn = t->fn;

	w->counts.calls++;
	w->counts.lateness[fls64(late_ns)]++;
	fn(w, t, tw_next_period(w, t, now_ns));
}

/* Looks at what was taken. How many functions were called, @max at most. */
static int tw_call_due(struct twheel *w, int max, uint64_t now_ns)
{
	struct twheel_timer *t;
	int called = 0;

	while (called < max && !w->closed && tw_slots_look(w, &t)) {
		if (!t)
			continue;
		if (t->deadline_ns > now_ns) {
			tw_slots_moved(w, t);
			continue;
		}
		tw_call(w, t, now_ns);
		called++;
	}
	return called;
}

/* In one call no slot is looked at much more than once, or it might not come to an end. */
static int tw_dispatch(struct twheel *w, int max)
{
	uint32_t want, budget = w->nr_held + 1;
	int nr, ret = 0, called = 0;
	uint64_t now_ns;

	/* What an earlier dispatch left, or one that this is a part of. */
	if (w->lists[TW_REPORTED].nr)
		called = tw_call_due(w, max, twheel_now(w));
	do {
		want = min(min(TW_BATCH, budget), (uint32_t)(max - called));
		nr = want && !w->closed ? tw_slots_take(w, want, &now_ns) : 0;
		if (nr < 0)
			return nr;
		budget -= nr;
		if (nr)
			called += tw_call_due(w, max - called, now_ns);
		if (!w->closed)
			ret = tw_slots_tidy(w);
	} while (!ret && want && (uint32_t)nr == want);
	if (!w->closed)
		w->backend->settle(w);
	return ret ?: called;
}

int twheel_dispatch(struct twheel *w, int max)
{
	int ret;

	if (max < 0)
		return -EINVAL;
	w->depth++;
	ret = tw_dispatch(w, max ?: INT32_MAX);
	w->depth--;
	if (w->closed && !w->depth)
		tw_free(w);
	return ret;
}

int twheel_flush(struct twheel *w)
{
	return tw_slots_flush(w);
}

static bool tw_is_readable(const struct twheel *w)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

uint64_t twheel_next(struct twheel *w)
{
	/* If it cannot be sent, or if something is about to be looked at: at once. */
	if (tw_slots_flush(w) || w->lists[TW_REPORTED].nr ||
	    (!tw_is_silent(w) && tw_is_readable(w)))
		return twheel_now(w);
	return w->backend->next(w);
}

int twheel_run(struct twheel *w)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	int ret;

	if (w->clockid == TWHEEL_CLOCK_MANUAL)
		return -EINVAL;
	/* A function may close the wheel. */
	w->depth++;
	w->stopped = false;
	/* First what has been taken by a dispatch that this is a part of. */
	do {
		ret = tw_dispatch(w, INT32_MAX);
		if (ret < 0 || w->closed || w->stopped || !w->in_use)
			break;
		ret = poll(&p, 1, -1) < 0 ? -errno : 0;
	} while (!ret);
	w->depth--;
	if (w->closed && !w->depth)
		tw_free(w);
	return min(ret, 0);
}

void twheel_stop(struct twheel *w)
{
	w->stopped = true;
}

int twheel_advance(struct twheel *w, uint64_t to_ns)
{
	int ret;

	if (w->clockid != TWHEEL_CLOCK_MANUAL || to_ns < w->manual_ns || to_ns > INT64_MAX)
		return -EINVAL;
	ret = w->backend->advance(w, to_ns);
	if (!ret)
		w->manual_ns = to_ns;
	return ret;
}

void twheel_stats(const struct twheel *w, struct twheel_counts *counts)
{
	*counts = w->counts;
	counts->armed = w->in_use;
	counts->pending = w->nr_held;
}
