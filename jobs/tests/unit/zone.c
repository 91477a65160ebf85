// SPDX-License-Identifier: GPL-2.0
/*
 * Zones against the C library, which reads the same files. All of them, with "all" as an
 * argument; else a few that have each something of their own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../tap.h"
#include "buf.h"
#include "zone.h"

#define HOUR	3600
#define DAY	(24 * HOUR)
#define YEARS(n)	((n) * 31556952LL)

static const char *const names[] = {
	"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Europe/Dublin",
	"Africa/Casablanca", "Asia/Kathmandu", "Pacific/Apia", "America/St_Johns",
	"Antarctica/Troll", "America/Nuuk", "Asia/Gaza", "Pacific/Kiritimati", "Africa/Monrovia",
};

static int32_t of_library(int64_t at)
{
	time_t t = at;
	struct tm tm;

	localtime_r(&t, &tm);
	return (int32_t)tm.tm_gmtoff;
}

/* At each change, a second before it, and in between, from 1970 to 2100. */
static bool is_as_library(const char *name)
{
	int64_t at, until, steps = 0;
	struct zone *z;
	bool good = true;

	if (zone_open(&z, name))
		return false;
	setenv("TZ", name, 1);
	tzset();
	for (at = 0; at < YEARS(130) && good; at = until) {
		good = zone_offset(z, at, &until) == of_library(at) && until > at;
		if (until > at + 5 * DAY)
			until = at + 5 * DAY;
		good &= of_library(until - 1) == of_library(at);
		good &= ++steps < 100000;
	}
	if (!good)
		printf("# %s differs at %lld\n", name, (long long)at);
	zone_close(z);
	return good;
}

/* Each local time is found again, if it is there, and is no later than one that is after it. */
static bool is_found_again(const char *name)
{
	int64_t at, local, back, last = INT64_MIN, until;
	struct zone *z;
	bool good = true;

	if (zone_open(&z, name))
		return false;
	for (local = YEARS(10); local < YEARS(70) && good; local += 1799) {
		at = zone_instant(z, local);
		back = at + zone_offset(z, at, &until);
		good = at >= last && back >= local;
		if (back != local)	/* left out: clocks are set at that very instant */
			good &= zone_offset(z, at - 1, &until) != back - at && until == at;
		last = at;
	}
	zone_close(z);
	return good;
}

static void as_library(int nr, const char *const *which)
{
	bool good = true, found = true;
	int i;

	for (i = 0; i < nr; i++) {
		good &= is_as_library(which[i]);
		found &= is_found_again(which[i]);
	}
	ok(good, "offsets are those of the C library");
	ok(found, "each local time is found, in order");
}

static int64_t utc(int year, int month, int day, int hour, int minute)
{
	return days_of_date(year, month, day) * DAY + hour * HOUR + minute * 60;
}

static void set_clocks(void)
{
	struct zone *z;

	ok(!zone_open(&z, "Europe/Berlin"), "a zone is read");
	ok(zone_instant(z, utc(2026, 3, 29, 2, 30)) == utc(2026, 3, 29, 1, 0),
	   "a local time that is left out is when clocks are set");
	ok(zone_instant(z, utc(2026, 10, 25, 2, 30)) == utc(2026, 10, 25, 0, 30),
	   "of a local time that is there twice the first counts");
	ok(zone_instant(z, utc(2026, 10, 25, 3, 0)) == utc(2026, 10, 25, 2, 0),
	   "what is after it comes after it");
	ok(zone_instant(z, utc(2080, 7, 1, 12, 0)) == utc(2080, 7, 1, 10, 0),
	   "years that are not in the file go by its rule");
	zone_close(z);
}

static void days(void)
{
	int64_t day, year;
	int month, of_month, last = 0;
	bool good = true;

	for (day = -200000; day < 200000; day++) {
		date_of_days(day, &year, &month, &of_month);
		good &= days_of_date(year, month, of_month) == day;
		good &= of_month == last + 1 || (of_month == 1 && last >= 28) || day == -200000;
		last = of_month;
	}
	ok(good, "each day has a date, one after the other");
	ok(days_of_date(2000, 2, 29) == 11016, "2000 had a leap day");
	ok(weekday_of_days(days_of_date(2026, 11, 22)) == 0, "2026-11-22 is a Sunday");
	ok(weekday_of_days(-1) == 3, "1969-12-31 was a Wednesday");
}

static void refused(void)
{
	static const char *const bad[] = {
		"", "/etc/passwd", "../../etc/passwd", "Europe", "tzdata.zi", "Europe/Berlin ",
		"Europe/\xc3\x85land", "right/Europe/Berlin",
	};
	char longest[300];
	struct zone *z;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		int ret = zone_open(&z, bad[i]);

		ok((ret == -EINVAL || ret == -ENOENT) && !z, "what is no zone is refused");
	}
	memset(longest, 'a', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = 0;
	ok(zone_open(&z, longest) == -EINVAL, "a name that is too long is refused");
	ok(zone_open(&z, "Mars/Olympus") == -ENOENT, "a zone that is not there is not there");
}

static void put(struct buf *b, uint64_t value, int bytes)
{
	char c;

	while (bytes--) {
		c = (char)(value >> 8 * bytes);
		buf_add(b, &c, 1);
	}
}

static void header(struct buf *b, uint32_t changes, uint32_t types)
{
	buf_add(b, "TZif2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
	put(b, 0, 4);
	put(b, 0, 4);
	put(b, 0, 4);
	put(b, changes, 4);
	put(b, types, 4);
	put(b, 4, 4);
}

/* A file of one type, without changes, with that rule. */
static int parse_rule(const char *rule, struct zone **z)
{
	struct buf b = {};
	int i, ret;

	for (i = 0; i < 2; i++) {
		header(&b, 0, 1);
		put(&b, 0, 6);
		buf_add(&b, "UTC", 4);
	}
	buf_printf(&b, "\n%s\n", rule);
	ret = zone_parse(z, b.data, b.len);
	/* No shorter file is one. */
	while (!ret && b.len--) {
		struct zone *none;

		if (!zone_parse(&none, b.data, b.len)) {
			zone_close(none);
			ret = 1;
		}
	}
	buf_free(&b);
	return ret;
}

static void rules(void)
{
	static const char *const bad[] = {
		"X", "EST", "EST5EDT", "EST5EDT,M3.2.0", "EST5EDT,M13.2.0,M11.1.0",
		"EST5EDT,M3.6.0,M11.1.0", "EST5EDT,M3.2.7,M11.1.0", "EST25", "EST5EDT,J0,J1",
		"EST5EDT,366,1", "EST5EDT,M3.2.0/168,M11.1.0", "EST5EDT,M3.2.0,M11.1.0x", "<X5",
		"EST5:60",
	};
	int64_t until;
	struct zone *z;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(bad); i++)
		ok(parse_rule(bad[i], &z) == -EINVAL && !z, "a rule that is wrong is refused");
	ok(!parse_rule("<+0530>-5:30", &z), "a rule may have a name with a number in it");
	ok(zone_offset(z, 0, &until) == 5 * HOUR + 1800 && until == ZONE_FOREVER,
	   "east is negative in a rule");
	zone_close(z);
	ok(!parse_rule("XXX3EDT4,0/0,J365/23", &z), "summer time may last for all of the year");
	ok(zone_offset(z, utc(2030, 1, 1, 4, 0) - 1, &until) == -4 * HOUR &&
	   zone_offset(z, utc(2030, 1, 1, 4, 0), &until) == -4 * HOUR &&
	   zone_offset(z, utc(2030, 7, 1, 0, 0), &until) == -4 * HOUR, "it does then");
	zone_close(z);
	ok(!parse_rule("IST-1GMT0,M10.5.0,M3.5.0/1", &z), "summer time may be what is normal");
	ok(zone_offset(z, utc(2030, 7, 1, 0, 0), &until) == HOUR &&
	   zone_offset(z, utc(2030, 12, 1, 0, 0), &until) == 0, "as in Ireland");
	zone_close(z);
	ok(!parse_rule("AAA0BBB,J60/-2,J300/26", &z), "clocks may be set on another day");
	zone_offset(z, utc(2032, 1, 1, 0, 0), &until);
	ok(until == utc(2032, 2, 29, 22, 0), "and the day is counted without leap days");
	zone_close(z);
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		as_library(argc - 1, (const char *const *)argv + 1);
		return done_testing();
	}
	days();
	set_clocks();
	as_library(ARRAY_SIZE(names), names);
	refused();
	rules();
	return done_testing();
}
