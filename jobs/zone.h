/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Time zones, out of the files of tzdata.
 *
 * Times are seconds since 1970 UTC. The C library has no call that asks for a zone by its name
 * without setting the one of the whole process, and none that tells when an offset ends.
 */
#ifndef TWHEELD_ZONE_H
#define TWHEELD_ZONE_H

#include <stdint.h>

#define ZONE_FOREVER	INT64_MAX

/* No local time is farther from UTC (RFC 9636). */
#define ZONE_MAX_OFFSET	(26 * 3600)

struct zone;

/**
 * zone_open() - read a zone
 * @z:    out: the zone, for zone_close(); NULL if it fails
 * @name: as "Europe/Berlin"
 *
 * Files are looked for in $TZDIR, else in /usr/share/zoneinfo. A zone whose days have leap
 * seconds ("right/") is refused: its times are not those of the system.
 *
 * Return: 0, -EINVAL if the name or the file is not one of a zone, -ENOENT if there is none by
 * the name, or another negative errno.
 */
int zone_open(struct zone **z, const char *name);

/* The same of a file's content; the fuzzer begins here. */
int zone_parse(struct zone **z, const void *data, uint64_t len);

/** zone_close() - the end of it; NULL is all right */
void zone_close(struct zone *z);

/**
 * zone_offset() - what is to be added to UTC for local time
 * @z:        the zone; NULL is UTC
 * @at:       an instant
 * @until:    out: it may be another from then on, which is after @at; ZONE_FOREVER if never
 *
 * Return: seconds.
 */
int32_t zone_offset(const struct zone *z, int64_t at, int64_t *until);

/**
 * zone_instant() - when a local time is
 * @z:     the zone; NULL is UTC
 * @local: seconds since 1970-01-01 00:00 there, as if each day had 86,400 of them
 *
 * Return: the instant: the first one if clocks are set back and there are two, and when clocks
 * are set forward if it is left out.
 */
int64_t zone_instant(const struct zone *z, int64_t local);

/* Days since 1970-01-01 of a date of the Gregorian calendar, and back. @month is 1 to 12. */
int64_t days_of_date(int64_t year, int month, int day);
void date_of_days(int64_t days, int64_t *year, int *month, int *day);

/* 0 is Sunday. */
static inline int weekday_of_days(int64_t days)
{
	return (int)(((days + 4) % 7 + 7) % 7);
}

#endif
