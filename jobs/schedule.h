/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The times of a schedule: those of an expression of cron in a zone, or one each so many
 * milliseconds. They follow from what the schedule says alone, so that whoever computes them, and
 * when, gets the same. Knows nothing of a node.
 */
#ifndef TWHEELD_SCHEDULE_H
#define TWHEELD_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "cron.h"
#include "parse.h"

#define SCHEDULE_NEVER	INT64_MAX

/**
 * struct schedule_times - what a schedule says of its times; times are us since 2000
 * @cron:     an expression, see cron_parse(), or NULL
 * @tz:       the zone of that; NULL is UTC
 * @every_ms: without @cron: between two of them
 * @count:    of those: how many there are, 0 for no end
 * @start_us: none is before that: INT64_MIN if that is not said, but of @every_ms the first one
 *            is then
 * @end_us:   none is after that; INT64_MAX if that is not said
 */
struct schedule_times {
	const char *cron, *tz;
	int64_t every_ms, count;
	int64_t start_us, end_us;
};

/**
 * struct schedule - the same, to be computed with; holds nothing that is to be freed
 * @cron:     if @every_us is 0
 * @zone:     of that, as zones_get() has it; NULL is UTC
 * @every_us: between two
 * @count:    of those, 0 for no end
 * @start_us: as above
 * @end_us:   as above
 */
struct schedule {
	struct cron cron;
	const struct zone *zone;
	int64_t every_us, count;
	int64_t start_us, end_us;
};

/**
 * schedule_set() - look at what a schedule says of its times
 * @s:   out: it, good until zones_check() is called
 * @t:   what it says
 * @bad: out: why not; the fields are those of schedules of the API. An expression is refused with
 *       the column, and a zone that there is none of, but not what never comes: see
 *       schedule_next()
 *
 * Return: false if something is wrong.
 */
bool schedule_set(struct schedule *s, const struct schedule_times *t, struct bad *bad);

/**
 * schedule_next() - the next time of a schedule
 * @s:        it
 * @after_us: us since 2000
 *
 * Return: the first one after that, in us since 2000, or SCHEDULE_NEVER.
 */
int64_t schedule_next(const struct schedule *s, int64_t after_us);

/* schedule_last() - the latest time that is after @after_us and not after @until_us, or NEVER */
int64_t schedule_last(const struct schedule *s, int64_t after_us, int64_t until_us);

/* What a request says; @start_us is INT64_MIN if it says none, also of @every_ms. */
struct schedule_times schedule_times_of(const struct schedule_spec *spec);

/**
 * schedule_check() - whether somebody may have these times
 * @t:      as above: what begins at no certain time begins now
 * @now_us: us since 2000
 * @bad:    out: why not; besides what schedule_set() says, what contradicts itself, and what has no
 *          time from now on
 *
 * Return: false if something is wrong.
 */
bool schedule_check(const struct schedule_times *t, int64_t now_us, struct bad *bad);

/* schedule_format() - a time in RFC 3339, in the zone of the schedule */
void schedule_format(const struct schedule *s, int64_t at_us, char text[TIME_TEXT]);

/**
 * zones_get() - a zone, which is read once
 * @name:  as "Europe/Berlin"
 * @error: out: as of zone_open()
 *
 * Return: NULL if there is none. Others stay until zones_check().
 */
const struct zone *zones_get(const char *name, int *error);

/**
 * zones_check() - look whether tzdata has changed
 *
 * What zones_get() gave before is not to be used any more.
 *
 * Return: true if a zone that was read is another one now, or is gone.
 */
bool zones_check(void);

#endif
