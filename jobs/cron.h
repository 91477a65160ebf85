/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Expressions of cron: Vixie's with five fields, and those of Quartz with six or seven.
 */
#ifndef TWHEELD_CRON_H
#define TWHEELD_CRON_H

#include <stdbool.h>
#include <stdint.h>

#include "zone.h"

#define CRON_NEVER	INT64_MAX
#define CRON_FIRST_YEAR	1970
#define CRON_LAST_YEAR	2199

/**
 * struct cron - an expression, as sets of bits
 * @seconds:     from 0 on
 * @minutes:     from 0 on
 * @hours:       from 0 on
 * @days:        of the month; bit 1 is the first
 * @months:      bit 1 is January
 * @weekdays:    bit 0 is Sunday
 * @years:       from CRON_FIRST_YEAR on
 * @either:      a day has to be in one of the two fields, not in both
 * @last_day:    @before_last days before the last one of the month ("L", "L-3")
 * @before_last: with that
 * @nearest:     the weekday from Monday to Friday that is nearest to that day, or to the one
 *               of @days, in the same month ("LW", "15W")
 * @nth:         only the nth of those weekdays in a month ("6#3"), 1 to 5; or the last one
 *               ("6L"), NTH_LAST; 0 if all
 * @real_time:   seconds, minutes or hours begin with "*": it is fired as the hours pass, also
 *               where clocks are set. Others are at a local time, and each of those comes once
 */
struct cron {
	uint64_t seconds;
	uint64_t minutes;
	uint32_t hours;
	uint32_t days;
	uint16_t months;
	uint8_t weekdays;
	uint64_t years[4];
	bool either;
	bool last_day;
	uint8_t before_last;
	bool nearest;
	uint8_t nth;
	bool real_time;
};

#define NTH_LAST	6

/**
 * struct cron_error - what is wrong with an expression
 * @column: where, from 1 on
 * @reason: what, as part of a sentence
 */
struct cron_error {
	unsigned int column;
	const char *reason;
};

/**
 * cron_parse() - read an expression
 * @c:     out: it
 * @text:  five fields (minute, hour, day of the month, month, day of the week) as of Vixie's
 *         cron, or six or seven as of Quartz (a second before them, a year behind), or
 *         "@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually"
 * @error: out: what is wrong
 *
 * That there is such a day at all is not checked: see cron_next().
 *
 * Return: false if it is wrong.
 */
bool cron_parse(struct cron *c, const char *text, struct cron_error *error);

/**
 * cron_next() - the next time
 * @c:     an expression
 * @z:     where; NULL is UTC
 * @after: an instant, as seconds since 1970 UTC
 *
 * Where clocks are set it is as with Vixie's cron. A time that is left out comes when clocks are
 * set forward, one that is there twice comes the first time, and what goes by real time
 * (@real_time) takes no notice.
 *
 * Return: the first instant after @after, or CRON_NEVER if there is none up to CRON_LAST_YEAR.
 */
int64_t cron_next(const struct cron *c, const struct zone *z, int64_t after);

#endif
