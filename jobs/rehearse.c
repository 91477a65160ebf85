// SPDX-License-Identifier: GPL-2.0
/*
 * The wheel's manual clock has two ticks for each microsecond. The first is for jobs that are
 * over, the second for what is due: a job that ends when the next one is due does not overlap
 * with it. So the order of calls is that of the times, and what was armed for one time is called
 * in one tick.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "db.h"
#include "rehearse.h"

#define SEC_US		INT64_C(1000000)
#define MINUTE_US	(60 * SEC_US)
#define TICK_NS		UINT64_C(4096)

static uint64_t tick_of_end(const struct rehearsal *r, int64_t at_us)
{
	return (uint64_t)(at_us - r->from_us) * 2 * TICK_NS;
}

static uint64_t tick_of_fire(const struct rehearsal *r, int64_t at_us)
{
	return tick_of_end(r, at_us) + TICK_NS;
}

/* -------------------------------------------------------------------- counts */

/* Of those that are alike the first stays. */
static void offer(struct busy top[REHEARSE_TOP], const struct busy *b)
{
	int i;

	if (b->fires <= top[REHEARSE_TOP - 1].fires)
		return;
	for (i = REHEARSE_TOP - 1; i && top[i - 1].fires < b->fires; i--)
		top[i] = top[i - 1];
	top[i] = *b;
}

static void end_second(struct rehearsal *r)
{
	uint32_t *peak = &r->peak[(r->second.at_us - r->from_us) / MINUTE_US];

	offer(r->seconds, &r->second);
	if (r->second.fires > *peak)
		*peak = (uint32_t)r->second.fires;
	r->second.fires = 0;
}

static void count_fire(struct rehearsal *r, int64_t at_us)
{
	int64_t second = at_us - (at_us - r->from_us) % SEC_US;

	if (second != r->second.at_us && r->second.fires)
		end_second(r);
	r->second.at_us = second;
	r->second.fires++;
	r->minute[(at_us - r->from_us) / MINUTE_US]++;
	r->fires++;
}

static void count_minutes(struct rehearsal *r)
{
	struct busy b;
	uint32_t i;

	if (r->second.fires)
		end_second(r);
	for (i = 0; i < r->nr_minutes; i++) {
		b.at_us = r->from_us + i * MINUTE_US;
		b.fires = r->minute[i];
		offer(r->minutes, &b);
	}
}

/* ------------------------------------------------------------------ jobs that run */

static void over(struct twheel *w, struct twheel_timer *t, uint64_t missed);

/* What ends after the rehearsal is of no use; what cannot be armed is told by the caller. */
static void arm_over(struct rehearsed *s, int64_t at_us)
{
	struct rehearsal *r = s->r;

	if (at_us < r->to_us && twheel_arm_at(r->wheel, &s->over, tick_of_end(r, at_us), over))
		r->off++;
}

static void begin_job(struct rehearsed *s, int64_t at_us)
{
	struct rehearsed_service *service = s->service;

	s->running++;
	if (s->running > s->most)
		s->most = s->running;
	if (service->running >= (uint64_t)service->concurrency && !service->exceeded++)
		service->exceeded_us = at_us;
	service->running++;
	if (service->running > service->most) {
		service->most = service->running;
		service->most_us = at_us;
	}
	if (s->running == 1) {
		s->oldest_us = at_us;
		arm_over(s, at_us + s->takes_us);
	}
}

/* By what is said of overlap. Those that may run at a time end in the order in which they began. */
static void due(struct rehearsed *s, int64_t at_us)
{
	const char *overlap = s->spec->overlap ?: "allow";

	if (s->running && !s->overlaps++)
		s->overlap_us = at_us;
	if (!s->running || !strcmp(overlap, "allow")) {
		begin_job(s, at_us);
	} else if (!strcmp(overlap, "queue")) {
		s->waiting++;
		if (s->waiting > s->most_waiting)
			s->most_waiting = s->waiting;
	}
}

static void over(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct rehearsed *s = TWHEEL_CONTAINER(t, struct rehearsed, over);
	int64_t at_us = s->r->from_us + (int64_t)(twheel_now(w) / TICK_NS / 2);

	(void)missed;
	if (s->waiting) {
		s->waiting--;
		arm_over(s, at_us + s->takes_us);
		return;
	}
	s->running--;
	s->service->running--;
	if (!s->running)
		return;
	s->oldest_us = schedule_next(&s->times, s->oldest_us);
	arm_over(s, s->oldest_us + s->takes_us);
}

/* ---------------------------------------------------------------------- fires */

static void fire(struct twheel *w, struct twheel_timer *t, uint64_t missed);

static void arm_next(struct rehearsed *s, int64_t after_us)
{
	struct rehearsal *r = s->r;

	s->next_us = schedule_next(&s->times, after_us);
	if (s->next_us < r->to_us &&
	    twheel_arm_at(r->wheel, &s->timer, tick_of_fire(r, s->next_us), fire))
		r->off++;
}

static void fire(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct rehearsed *s = TWHEEL_CONTAINER(t, struct rehearsed, timer);
	struct rehearsal *r = s->r;
	int64_t at_us = s->next_us;

	(void)missed;
	if (twheel_now(w) != tick_of_fire(r, at_us))
		r->off++;
	if (!s->fires++)
		s->first_us = at_us;
	s->last_us = at_us;
	count_fire(r, at_us);
	if (r->fire)
		r->fire(r, s, at_us);
	if (s->takes_us)
		due(s, at_us);
	arm_next(s, at_us);
}

static int go_through(struct rehearsal *r)
{
	uint64_t next, end = tick_of_end(r, r->to_us);
	int nr;

	while ((next = twheel_next(r->wheel)) < end) {
		nr = twheel_advance(r->wheel, next);
		nr = nr ?: twheel_dispatch(r->wheel, 0);
		if (nr < 0)
			return nr;
		r->stop_us = r->from_us + (int64_t)(next / TICK_NS / 2);
		if (r->settle)
			r->settle(r, r->stop_us);
		if (r->fires > REHEARSE_MAX_FIRES) {
			r->too_many = true;
			break;
		}
	}
	return 0;
}

/* What goes by milliseconds alone need not be gone through to see that it is too much. */
static bool is_too_much(struct rehearsal *r)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < r->nr; i++)
		if (r->v[i].state == REHEARSED_GOOD && r->v[i].times.every_us)
			sum += rehearse_count(&r->v[i], r->from_us, r->to_us, UINT64_MAX);
	return sum > REHEARSE_MAX_FIRES;
}

int rehearse_run(struct rehearsal *r)
{
	const struct twheel_options options = {
		.backend = TWHEEL_LOCAL, .clock = TWHEEL_MANUAL, .tick_ns = TICK_NS,
	};
	uint32_t i;
	int ret;

	r->stop_us = r->from_us;
	r->too_many = is_too_much(r);
	if (r->too_many)
		return 0;
	ret = twheel_open(&r->wheel, &options);
	if (ret)
		return ret;
	for (i = 0; i < r->nr; i++)
		if (r->v[i].state == REHEARSED_GOOD)
			arm_next(&r->v[i], r->from_us - 1);
	ret = go_through(r);
	twheel_close(r->wheel);
	count_minutes(r);
	return ret;
}

/* ------------------------------------------------------------------ schedules */

uint64_t rehearse_count(const struct rehearsed *s, int64_t from_us, int64_t to_us, uint64_t max)
{
	int64_t at = schedule_next(&s->times, from_us - 1), last;
	uint64_t nr = 0;

	if (!s->times.every_us) {
		for (; at < to_us && nr < max; nr++)
			at = schedule_next(&s->times, at);
		return nr;
	}
	if (at >= to_us)
		return 0;
	last = s->times.end_us < to_us ? s->times.end_us : to_us - 1;
	nr = (uint64_t)(last - at) / (uint64_t)s->times.every_us + 1;
	if (s->times.count) {
		uint64_t left = (uint64_t)s->times.count -
				(uint64_t)(at - s->times.start_us) / (uint64_t)s->times.every_us;

		nr = nr < left ? nr : left;
	}
	return nr < max ? nr : max;
}

const struct rehearsed *rehearse_most(const struct rehearsal *r)
{
	const struct rehearsed *most = NULL;
	uint64_t nr, most_nr = 0;
	uint32_t i;

	for (i = 0; i < r->nr; i++) {
		const struct rehearsed *s = &r->v[i];

		if (s->state != REHEARSED_GOOD)
			continue;
		nr = s->times.every_us ? rehearse_count(s, r->from_us, r->to_us, UINT64_MAX) :
					 s->fires;
		if (nr <= most_nr)
			continue;
		most_nr = nr;
		most = s;
	}
	return most;
}

static void set_times(struct rehearsed *s, int64_t from_us)
{
	const struct schedule_spec *spec = s->spec;
	struct schedule_times times = schedule_times_of(spec);

	if (!spec->cron && times.start_us == INT64_MIN)
		times.start_us = from_us;
	s->state = REHEARSED_WRONG;
	if (!schedule_set(&s->times, &times, &s->bad))
		return;
	if (schedule_next(&s->times, INT64_MIN) == SCHEDULE_NEVER)
		bad_set(&s->bad, 400, "never_fires", spec->cron ? "cron" : "end_at",
			"there is no such time");
	else
		s->state = spec->paused ? REHEARSED_PAUSED : REHEARSED_GOOD;
}

static int compare_services(const void *a, const void *b)
{
	const struct rehearsed *const *x = a, *const *y = b;

	return strcmp((*x)->spec->service ?: "", (*y)->spec->service ?: "");
}

/* Sorted, so that there may be many. */
static void set_services(struct rehearsal *r)
{
	struct rehearsed **sorted = xmalloc((r->nr + 1) * sizeof(*sorted));
	uint32_t i;

	for (i = 0; i < r->nr; i++)
		sorted[i] = &r->v[i];
	qsort(sorted, r->nr, sizeof(*sorted), compare_services);
	r->service = xcalloc(r->nr + 1, sizeof(*r->service));
	for (i = 0; i < r->nr; i++) {
		if (!i || compare_services(&sorted[i - 1], &sorted[i]))
			r->service[r->nr_services++] = (struct rehearsed_service){
				.name = sorted[i]->spec->service ?: "",
				.concurrency = 100,	/* as the schema has it */
			};
		sorted[i]->service = &r->service[r->nr_services - 1];
	}
	free(sorted);
}

void rehearse_init(struct rehearsal *r, const struct schedule_spec *specs, uint32_t nr,
		   int64_t from_us, int64_t to_us)
{
	uint32_t i;

	*r = (struct rehearsal){ .from_us = from_us, .to_us = to_us, .nr = nr };
	r->nr_minutes = (uint32_t)((to_us - from_us + MINUTE_US - 1) / MINUTE_US);
	r->minute = xcalloc(r->nr_minutes + 1, sizeof(*r->minute));
	r->peak = xcalloc(r->nr_minutes + 1, sizeof(*r->peak));
	r->v = xcalloc(nr + 1, sizeof(*r->v));
	for (i = 0; i < nr; i++) {
		r->v[i].r = r;
		r->v[i].spec = &specs[i];
		r->v[i].next_us = SCHEDULE_NEVER;
		set_times(&r->v[i], from_us);
	}
	set_services(r);
}

void rehearse_free(struct rehearsal *r)
{
	free(r->minute);
	free(r->peak);
	free(r->v);
	free(r->service);
}

/* --------------------------------------------------------------- clocks are set */

static int64_t unix_seconds(int64_t us)
{
	int64_t unix_us = us + PG_EPOCH_US;

	return unix_us / SEC_US - (unix_us % SEC_US < 0);
}

bool clock_change_next(const struct zone *z, int64_t after_us, int64_t to_us,
		       struct clock_change *change)
{
	int64_t at = unix_seconds(after_us), end = unix_seconds(to_us - 1), until, later;

	for (;; at = until) {
		change->before = zone_offset(z, at, &until);
		if (until > end)
			return false;
		change->after = zone_offset(z, until, &later);
		if (change->after != change->before)
			break;
	}
	change->at_us = until * SEC_US - PG_EPOCH_US;
	return true;
}

/* Local times are had as if they were UTC, where each is there once. */
bool clock_effect_get(const struct rehearsed *s, const struct clock_change *change,
		      struct clock_effect *effect)
{
	int64_t at = unix_seconds(change->at_us), end, local;
	bool skipped = change->after > change->before;

	memset(effect, 0, sizeof(*effect));
	if (s->times.every_us || s->times.cron.real_time ||
	    change->at_us < s->times.start_us || change->at_us > s->times.end_us)
		return false;
	local = at + (skipped ? change->before : change->after);
	end = at + (skipped ? change->after : change->before);
	while ((local = cron_next(&s->times.cron, NULL, local - 1)) < end) {
		if (!effect->times++)
			effect->first = local;
		effect->last = local++;
	}
	effect->fires_us = schedule_next(&s->times, change->at_us - 1);
	if (effect->fires_us != change->at_us)
		effect->fires_us = SCHEDULE_NEVER;
	return effect->times;
}
