// SPDX-License-Identifier: GPL-2.0
/*
 * Compares schedules with the calendars of systemd, which systemd-analyze(1) shows: expressions
 * that both can say, in each zone, after instants around each change of it.
 *
 *   systemd LIBRARY SHARE ZONE...
 *
 * LIBRARY is libsystemd-shared, which systemd-analyze has them from: as a program it would take an
 * hour. SHARE is how many of the expressions each zone has: one in so many, others in others.
 *
 * Where clocks are set the two do not mean the same. What differs is only counted if it is one of
 * these, and else is a failure:
 *
 *   left-out   clocks are set forward over a time: here it comes when they are, there not
 *   twice      clocks are set back: here a time that is there twice comes the first time alone;
 *              there also the second time, if it is asked for what follows the first
 *   real-time  "*" in hours or minutes: here it goes on as the hours pass, there none comes in
 *              what is there the second time
 *   second     clocks are set back for good: here a time that is there twice comes the first time,
 *              there the second time
 *   stuck      clocks are set forward within a day: a right time comes here, and not there
 *              ("Infinite loop in calendar calculation", or without a word)
 *   past       clocks are set back: there the answer is not after the instant that was asked for
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buf.h"
#include "cron.h"

#define BEGIN	(3 * DAY)		/* local times before 1970 are none of ours */
#define END	INT64_C(4102444800)	/* 2100 */
#define DAY	86400
#define NEXT	3			/* times after each instant */

static const struct {
	const char *cron, *calendar;
} expressions[] = {
	{ "30 2 * * *", "*-*-* 02:30:00" },
	{ "0 0 * * *", "*-*-* 00:00:00" },
	{ "30 1 * * 0", "Sun *-*-* 01:30:00" },
	{ "0 3 * 3,10,11 *", "*-03,10,11-* 03:00:00" },
	{ "59 23 * * 1-5", "Mon..Fri *-*-* 23:59:00" },
	{ "15 0-3 * * *", "*-*-* 00..03:15:00" },
	{ "*/20 * * * *", "*-*-* *:00/20:00" },
	{ "45 */2 * * *", "*-*-* 00/2:45:00" },
	{ "0 4 1,15 * *", "*-*-01,15 04:00:00" },
	{ "0 12 29 2 *", "*-02-29 12:00:00" },
	{ "10,50 2 25-31 * *", "*-*-25..31 02:10,50:00" },
	{ "30 0 0 ? * *", "*-*-* 00:00:30" },
	{ "0 0 23 L * ?", "*-*~01 23:00:00" },
};

#define NR	(ARRAY_SIZE(expressions))

enum { SAME, LEFT_OUT, TWICE, REAL_TIME, SECOND, STUCK, PAST, WRONG, CLASSES };

static const char *const classes[CLASSES] = {
	"the same", "left-out", "twice", "real-time", "second", "stuck", "past", "wrong"
};

static struct cron crons[NR];
static void *calendars[NR];
static uint64_t found[CLASSES];
static int (*next_usec)(const void *spec, uint64_t usec, uint64_t *next);

static bool open_library(const char *path)
{
	int (*from_string)(const char *text, void **spec);
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	struct cron_error error;
	size_t i;

	if (!library)
		return false;
	*(void **)&from_string = dlsym(library, "calendar_spec_from_string");
	*(void **)&next_usec = dlsym(library, "calendar_spec_next_usec");
	if (!from_string || !next_usec)
		return false;
	for (i = 0; i < NR; i++)
		if (from_string(expressions[i].calendar, &calendars[i]) < 0 ||
		    !cron_parse(&crons[i], expressions[i].cron, &error))
			return false;
	return true;
}

static int64_t next_there(size_t i, int64_t after)
{
	uint64_t next;

	if (next_usec(calendars[i], (uint64_t)after * 1000000, &next) < 0)
		return CRON_NEVER;
	return (int64_t)(next / 1000000);
}

/*
 * The last change up to an instant, within two days: by how much clocks are set, 0 if not, and if
 * the instant is CRON_NEVER.
 */
static int32_t change_before(const struct zone *z, int64_t instant, int64_t *at)
{
	int64_t begin = instant - 2 * DAY, until;
	int32_t before, by = 0;

	if (instant == CRON_NEVER)
		return 0;
	for (; ; begin = until) {
		before = zone_offset(z, begin, &until);
		if (until > instant)
			return by;
		by = zone_offset(z, until, &begin) - before ?: by;
		*at = until;
	}
}

static bool is_second(const struct zone *z, int64_t instant)
{
	int64_t at;
	int32_t by = change_before(z, instant, &at);

	return by < 0 && instant < at - by;
}

/* By the C library; of which days only the month is looked at. */
static bool is_time_of(const struct cron *c, int64_t instant)
{
	time_t at = instant;
	struct tm tm;

	localtime_r(&at, &tm);
	return c->seconds >> tm.tm_sec & 1 && c->minutes >> tm.tm_min & 1 &&
	       c->hours >> tm.tm_hour & 1 && c->months >> (tm.tm_mon + 1) & 1;
}

static int class_of(const struct zone *z, size_t i, int64_t after, int64_t here, int64_t there)
{
	int64_t at;
	int32_t by;

	if (there <= after)
		return change_before(z, after + DAY, &at) < 0 ? PAST : WRONG;
	if (here < there && change_before(z, here, &at) > 0 && at == here && !crons[i].real_time)
		return LEFT_OUT;
	if (there < here && is_second(z, there) && !crons[i].real_time)
		return TWICE;
	if (here < there && is_second(z, here) && crons[i].real_time)
		return REAL_TIME;
	by = change_before(z, there, &at);
	if (here < there && is_second(z, there) && there - here == -by)
		return SECOND;
	if (here < there && change_before(z, here + DAY, &at) > 0 && at > here - DAY &&
	    is_time_of(&crons[i], here))
		return STUCK;
	return WRONG;
}

static void tell(const char *zone, size_t i, int64_t after, int64_t here, int64_t there)
{
	if (found[WRONG] > 20)
		return;
	printf("# %s %s after %" PRId64 ": %" PRId64 ", not %" PRId64 "\n", zone,
	       expressions[i].cron, after, here, there);
}

static void compare(const struct zone *z, const char *zone, size_t i, int64_t after)
{
	int64_t here, there;
	int nr, class;

	for (nr = 0; nr < NEXT; nr++) {
		here = cron_next(&crons[i], z, after);
		there = next_there(i, after);
		class = here == there ? SAME : class_of(z, i, after, here, there);
		found[class]++;
		if (class == WRONG)
			tell(zone, i, after, here, there);
		after = there > after && there < here ? there : here;
		if (after >= END)
			return;
	}
}

static void compare_zone(const char *name, unsigned int share, unsigned int turn)
{
	static const int around[] = { -2 * DAY, -7200, -1, 0, 1800, 7200 };
	int64_t at, until;
	struct zone *z;
	size_t i, j;

	if (zone_open(&z, name)) {
		found[WRONG]++;
		printf("# there is no zone %s\n", name);
		return;
	}
	setenv("TZ", name, 1);
	tzset();
	for (at = BEGIN; at < END; at = until) {
		zone_offset(z, at, &until);
		for (i = 0; i < NR; i++)
			for (j = 0; j < ARRAY_SIZE(around); j++)
				if (!((i + j * NR + turn) % share) && at + around[j] >= BEGIN)
					compare(z, name, i, at + around[j]);
	}
	zone_close(z);
}

int main(int argc, char **argv)
{
	uint64_t sum = 0;
	int i;

	if (argc < 4 || !open_library(argv[1])) {
		fprintf(stderr, "systemd: %s has no calendars\n", argc > 1 ? argv[1] : "nothing");
		return 2;
	}
	for (i = 3; i < argc; i++)
		compare_zone(argv[i], (unsigned int)atoi(argv[2]), (unsigned int)i);
	for (i = 0; i < CLASSES; i++) {
		printf("# %" PRIu64 " %s\n", found[i], classes[i]);
		sum += found[i];
	}
	printf("# %" PRIu64 " compared\n", sum);
	return found[WRONG] || !sum;
}
