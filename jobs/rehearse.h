/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Schedules in virtual time: a wheel with the manual clock has a timer for each of them, which is
 * armed for its next time whenever it is called, as a node would see to it. So a year takes
 * seconds, and what is counted is what the wheel does. Knows nothing of a database or a terminal.
 */
#ifndef TWHEELD_REHEARSE_H
#define TWHEELD_REHEARSE_H

#include <stdbool.h>
#include <stdint.h>
#include <twheel.h>

#include "schedule.h"

#define REHEARSE_MAX_US		(INT64_C(3660) * 86400 * 1000000)	/* ten years */
#define REHEARSE_MAX_FIRES	UINT64_C(50000000)
#define REHEARSE_TOP		5

enum rehearsed_state { REHEARSED_GOOD, REHEARSED_PAUSED, REHEARSED_WRONG };

/**
 * struct rehearsed_service - what runs at a time
 * @name:        of it
 * @concurrency: what may
 * @running:     now
 * @most:        of that
 * @most_us:     when first
 * @exceeded:    how many began while as many as may ran already
 * @exceeded_us: the first of those
 */
struct rehearsed_service {
	const char *name;
	int64_t concurrency;
	uint64_t running, most, exceeded;
	int64_t most_us, exceeded_us;
};

/**
 * struct rehearsed - a schedule; times are us since 2000
 * @timer:    for @next_us
 * @over:     for the end of the one of its jobs that ends first
 * @spec:     what it says
 * @times:    the same
 * @state:    only what is REHEARSED_GOOD is fired
 * @bad:      what is wrong, if it is
 * @service:  where its jobs run
 * @arg:      whoever's
 * @next_us:  its next time, SCHEDULE_NEVER if there is none
 * @first_us: with @fires
 * @last_us:  the same
 * @fires:    how often
 * @takes_us: how long a job takes; 0 if that is not looked at
 * @oldest_us: when the one that ends first was due, of what may overlap
 * @running:  jobs
 * @most:     of that
 * @waiting:  what is to run one after the other
 * @most_waiting: of that
 * @overlaps: how often it was due while a job of it ran
 * @overlap_us: the first of those
 * @r:        the rehearsal that it is in
 */
struct rehearsed {
	struct twheel_timer timer, over;
	const struct schedule_spec *spec;
	struct schedule times;
	enum rehearsed_state state;
	struct bad bad;
	struct rehearsed_service *service;
	void *arg;
	int64_t next_us, first_us, last_us;
	uint64_t fires;
	int64_t takes_us, oldest_us;
	uint64_t running, most, waiting, most_waiting, overlaps;
	int64_t overlap_us;
	struct rehearsal *r;
};

/* struct busy: a minute or a second, and how many were fired in it */
struct busy {
	int64_t at_us;
	uint64_t fires;
};

/**
 * struct rehearsal - of schedules
 * @from_us:  since then
 * @to_us:    and before that
 * @v:        those
 * @nr:       how many
 * @service:  those of them
 * @nr_services: how many
 * @fire:     NULL, or called for each time, in order
 * @settle:   NULL, or called when all of an instant have been
 * @arg:      for those
 * @minute:   fires in each, from @from_us on
 * @peak:     the most in a second of that minute
 * @nr_minutes: how many
 * @fires:    in all
 * @seconds:  the busiest ones, those with the most first
 * @minutes:  the same
 * @off:      how often the wheel was not at the time that a timer was armed for: never
 * @too_many: given up: there are more than REHEARSE_MAX_FIRES
 * @stop_us:  then: how far it got
 */
struct rehearsal {
	int64_t from_us, to_us;
	struct rehearsed *v;
	uint32_t nr;
	struct rehearsed_service *service;
	uint32_t nr_services;
	void (*fire)(struct rehearsal *r, struct rehearsed *s, int64_t at_us);
	void (*settle)(struct rehearsal *r, int64_t at_us);
	void *arg;
	uint32_t *minute, *peak;
	uint32_t nr_minutes;
	uint64_t fires;
	struct busy seconds[REHEARSE_TOP], minutes[REHEARSE_TOP];
	uint64_t off;
	bool too_many;
	int64_t stop_us;

	/* private: */
	struct twheel *wheel;
	struct busy second;
};

/**
 * rehearse_init() - look at schedules
 * @r:     out: the rehearsal, for rehearse_free()
 * @specs: what they say; stay with the rehearsal
 * @nr:    how many
 * @from_us: when it begins; what each so many milliseconds has no start begins then
 * @to_us: when it ends; REHEARSE_MAX_US later at most
 *
 * A schedule that is wrong, or that never fires, says so by its state.
 */
void rehearse_init(struct rehearsal *r, const struct schedule_spec *specs, uint32_t nr,
		   int64_t from_us, int64_t to_us);

/**
 * rehearse_run() - go through all of the time
 * @r: the rehearsal
 *
 * Return: 0, or a negative errno.
 */
int rehearse_run(struct rehearsal *r);
void rehearse_free(struct rehearsal *r);

/* Which of those that are often due is the most so: by what it says, else by what it did. */
const struct rehearsed *rehearse_most(const struct rehearsal *r);

/* How often the schedule is due from @from_us on and before @to_us, at most @max. */
uint64_t rehearse_count(const struct rehearsed *s, int64_t from_us, int64_t to_us, uint64_t max);

/**
 * struct clock_change - clocks are set
 * @at_us:  when
 * @before: what is to be added to UTC for local time, in seconds
 * @after:  the same from then on
 */
struct clock_change {
	int64_t at_us;
	int32_t before, after;
};

/* The next one after that and before @to_us, or false. */
bool clock_change_next(const struct zone *z, int64_t after_us, int64_t to_us,
		       struct clock_change *change);

/**
 * struct clock_effect - what that does to a schedule that names local times
 * @times:    how many of them are skipped, or occur twice
 * @first:    the first of those, in seconds since 1970 of local time
 * @last:     the last
 * @fires_us: if they are skipped: when it fires instead; SCHEDULE_NEVER if it does not
 */
struct clock_effect {
	uint64_t times;
	int64_t first, last;
	int64_t fires_us;
};

/* False if there is none: it goes by real time, or has no time there. */
bool clock_effect_get(const struct rehearsed *s, const struct clock_change *change,
		      struct clock_effect *effect);

#endif
