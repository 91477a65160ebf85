// SPDX-License-Identifier: GPL-2.0
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../tap.h"
#include "buf.h"
#include "cron.h"

#define DAY	86400

/* "2026-03-29T01:00:00" and what follows it of the expression, separated by blanks, in UTC */
static const struct expected {
	const char *zone, *expression, *after, *times;
} table[] = {
	{ "UTC", "*/15 * * * *", "2026-01-01T00:00:00", "2026-01-01T00:15:00 2026-01-01T00:30:00" },
	{ "UTC", "5,10-12 0 * * *", "2026-01-01T00:04:59",
	  "2026-01-01T00:05:00 2026-01-01T00:10:00 2026-01-01T00:11:00 2026-01-01T00:12:00 "
	  "2026-01-02T00:05:00" },
	{ "UTC", "0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00 2032-02-29T00:00:00" },
	{ "UTC", "0 0 29 2 *", "2096-02-29T00:00:00", "2104-02-29T00:00:00" },
	{ "UTC", "0 0 31 4,6,9,11 *", "2026-01-01T00:00:00", "never" },
	/* In either field of days, unless one of them begins with "*" */
	{ "UTC", "0 0 13 * fri", "2026-11-01T00:00:00",
	  "2026-11-06T00:00:00 2026-11-13T00:00:00 2026-11-20T00:00:00 2026-11-27T00:00:00 "
	  "2026-12-04T00:00:00 2026-12-11T00:00:00 2026-12-13T00:00:00" },
	{ "UTC", "0 0 */13 * fri", "2026-11-01T00:00:00",
	  "2026-11-27T00:00:00 2027-01-01T00:00:00" },
	{ "UTC", "0 0 13 * */5", "2026-11-01T00:00:00", "2026-11-13T00:00:00 2026-12-13T00:00:00" },
	{ "UTC", "0 12 * jan-mar/2 sat-sun", "2026-01-03T11:59:59",
	  "2026-01-03T12:00:00 2026-01-04T12:00:00 2026-01-10T12:00:00" },
	{ "UTC", "0 0 * * 7", "2026-11-21T00:00:00", "2026-11-22T00:00:00 2026-11-29T00:00:00" },
	{ "UTC", "0 0 * * 0", "2026-11-21T00:00:00", "2026-11-22T00:00:00 2026-11-29T00:00:00" },
	{ "UTC", "0 0 * * 5-7", "2026-11-22T00:00:00", "2026-11-27T00:00:00 2026-11-28T00:00:00" },
	{ "UTC", "@Monthly", "2026-11-22T00:00:00", "2026-12-01T00:00:00 2027-01-01T00:00:00" },
	{ "UTC", "@hourly", "2026-11-22T00:00:00", "2026-11-22T01:00:00" },
	{ "UTC", "@weekly", "2026-11-22T00:00:00", "2026-11-29T00:00:00" },
	{ "UTC", "@yearly", "1900-01-01T00:00:00", "1970-01-01T00:00:00 1971-01-01T00:00:00" },
	{ "UTC", "* * * * *", "1969-12-31T23:59:58", "1970-01-01T00:00:00 1970-01-01T00:01:00" },
	{ "UTC", "0 0 1 1 *", "2198-06-01T00:00:00", "2199-01-01T00:00:00 never" },
	/* Quartz */
	{ "UTC", "0/20 59 23 ? * MON-FRI", "2026-11-20T23:59:00",
	  "2026-11-20T23:59:20 2026-11-20T23:59:40 2026-11-23T23:59:00" },
	{ "UTC", "0 0 0 L * ?", "2026-01-31T00:00:00", "2026-02-28T00:00:00 2026-03-31T00:00:00" },
	{ "UTC", "0 0 0 L-3 * ?", "2026-01-31T00:00:00", "2026-02-25T00:00:00" },
	{ "UTC", "0 0 0 L-30 * ?", "2026-02-01T00:00:00",
	  "2026-03-01T00:00:00 2026-05-01T00:00:00" },
	{ "UTC", "0 0 0 LW * ?", "2026-01-01T00:00:00", "2026-01-30T00:00:00 2026-02-27T00:00:00" },
	{ "UTC", "0 0 0 L-1W * ?", "2026-01-01T00:00:00",
	  "2026-01-30T00:00:00 2026-02-27T00:00:00" },
	{ "UTC", "0 0 0 15w * ?", "2026-08-01T00:00:00",
	  "2026-08-14T00:00:00 2026-09-15T00:00:00" },
	{ "UTC", "0 0 0 1W * ?", "2026-07-31T00:00:00", "2026-08-03T00:00:00 2026-09-01T00:00:00" },
	{ "UTC", "0 0 0 31W * ?", "2026-10-01T00:00:00",
	  "2026-10-30T00:00:00 2026-12-31T00:00:00" },
	{ "UTC", "0 0 0 ? * 6#3", "2026-11-01T00:00:00",
	  "2026-11-20T00:00:00 2026-12-18T00:00:00" },
	{ "UTC", "0 0 0 ? * tue#5", "2026-11-01T00:00:00",
	  "2026-12-29T00:00:00 2027-03-30T00:00:00" },
	{ "UTC", "0 0 0 ? * FRIL", "2026-11-01T00:00:00",
	  "2026-11-27T00:00:00 2026-12-25T00:00:00" },
	{ "UTC", "0 0 0 ? * MONL", "2026-11-01T00:00:00", "2026-11-30T00:00:00" },
	{ "UTC", "0 0 0 ? * 7#1", "2026-11-01T00:00:00", "2026-11-07T00:00:00" },
	{ "UTC", "0 0 0 LW 5 ?", "2026-05-01T00:00:00", "2026-05-29T00:00:00" },
	{ "UTC", "0 0 0 ? * L", "2026-11-01T00:00:00", "2026-11-07T00:00:00 2026-11-14T00:00:00" },
	{ "UTC", "0 0 22-2/2 ? NOV-FEB FRI-MON", "2026-02-28T22:00:00",
	  "2026-11-01T00:00:00 2026-11-01T02:00:00 2026-11-01T22:00:00 2026-11-02T00:00:00" },
	{ "UTC", "0 0 0 1 1 ? 2030,2040-2050/5", "2026-01-01T00:00:00",
	  "2030-01-01T00:00:00 2040-01-01T00:00:00 2045-01-01T00:00:00 2050-01-01T00:00:00 never" },
	{ "UTC", "0 0 0 1 1 ? 1999", "2026-01-01T00:00:00", "never" },
	{ "UTC", "  0\t0 0  1 1 ?  ", "2026-01-01T00:00:00", "2027-01-01T00:00:00" },
	/* Clocks are set forward in Berlin at 01:00 UTC on 29 March, and back on 25 October. */
	{ "Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00",
	  "2026-03-29T01:00:00 2026-03-30T00:30:00" },
	{ "Europe/Berlin", "0,30 2-3 29 3 *", "2026-03-28T12:00:00",
	  "2026-03-29T01:00:00 2026-03-29T01:30:00 2027-03-29T00:00:00" },
	{ "Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00",
	  "2026-10-25T00:30:00 2026-10-26T01:30:00" },
	{ "Europe/Berlin", "30 2 * * *", "2026-10-25T00:30:00", "2026-10-26T01:30:00" },
	{ "Europe/Berlin", "30 2 * * *", "2026-10-25T01:15:00", "2026-10-26T01:30:00" },
	{ "Europe/Berlin", "30 * * * *", "2026-10-25T00:00:00",
	  "2026-10-25T00:30:00 2026-10-25T01:30:00 2026-10-25T02:30:00" },
	{ "Europe/Berlin", "30 * * * *", "2026-03-29T00:00:00",
	  "2026-03-29T00:30:00 2026-03-29T01:30:00" },
	{ "Europe/Berlin", "*/30 2 * * *", "2026-03-28T12:00:00",
	  "2026-03-30T00:00:00 2026-03-30T00:30:00" },
	{ "Europe/Berlin", "0 0 2 * * ?", "2026-03-28T12:00:00", "2026-03-29T01:00:00" },
	/* A day that was left out as a whole, and clocks that are set by half an hour */
	{ "Pacific/Apia", "0 12 30 12 *", "2011-12-29T12:00:00", "2011-12-30T10:00:00" },
	{ "Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00",
	  "2026-10-03T15:30:00 2026-10-04T15:15:00" },
	{ "Asia/Kathmandu", "0 0 * * *", "2026-01-01T00:00:00", "2026-01-01T18:15:00" },
};

static const struct wrong {
	const char *expression;
	unsigned int column;
} wrong[] = {
	{ "", 1 }, { "   ", 1 }, { "* * * *", 1 }, { "0 0 0 1 1 ? 2030 *", 1 }, { "@reboot", 1 },
	{ "60 * * * *", 1 }, { "* 24 * * *", 3 }, { "* * 0 * *", 5 }, { "* * 32 * *", 5 },
	{ "* * * 13 *", 7 }, { "* * * * 8", 9 }, { "* * * foo *", 7 }, { "* * * janu *", 10 },
	{ "*/0 * * * *", 3 }, { "*/99 * * * *", 3 }, { "5/10 * * * *", 2 }, { "1- * * * *", 3 },
	{ "1,,2 * * * *", 3 }, { "1, * * * *", 3 }, { "10-5 * * * *", 1 }, { "*-5 * * * *", 2 },
	{ "-1 * * * *", 1 }, { "1.5 * * * *", 2 }, { "99999999999999999999 * * * *", 1 },
	{ "* * ? * *", 5 }, { "* * L * *", 5 }, { "* * 5W * *", 6 }, { "* * * * 5#1", 10 },
	{ "* * * * 5L", 10 }, { "0 0 0 * * *", 7 }, { "0 0 0 ? * ?", 7 }, { "0 0 0 1 * 1", 7 },
	{ "0 0 ? 1 * ?", 5 }, { "0 0 0 ?,1 * *", 8 }, { "0 0 0 1W,2 * ?", 7 },
	{ "0 0 0 2,1W * ?", 7 }, { "0 0 0 L,2 * ?", 7 }, { "0 0 0 L-31 * ?", 9 },
	{ "0 0 0 ? * 6#0", 13 }, { "0 0 0 ? * 6#6", 13 }, { "0 0 0 ? * 2,6#3", 11 },
	{ "0 0 0 ? * 0", 11 }, { "0 0 0 ? * 8", 11 }, { "0 0 0 1 1 ? 1969", 13 },
	{ "0 0 0 1 1 ? 2200", 13 }, { "0 0 0 1 1 ? 2050-2040", 13 }, { "0 0 0 L/2 * ?", 8 },
	{ "0 0 L 1 * ?", 5 }, { "0 0 0 1W/2 * ?", 9 }, { "\xff * * * *", 1 },
};

static int64_t time_of(const char *text)
{
	struct tm tm = {};

	return strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) ? timegm(&tm) : -1;
}

static void text_of(int64_t at, char *text, size_t size)
{
	time_t t = at;
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(text, size, at == CRON_NEVER ? "never" : "%Y-%m-%dT%H:%M:%S", &tm);
}

static bool is_as_expected(const struct expected *e)
{
	char got[1000] = "", one[32];
	int64_t at = time_of(e->after);
	struct cron_error error;
	struct zone *z;
	struct cron c;

	if (zone_open(&z, e->zone) || !cron_parse(&c, e->expression, &error))
		return false;
	while (strlen(got) < strlen(e->times) && at != CRON_NEVER) {
		at = cron_next(&c, z, at);
		text_of(at, one, sizeof(one));
		snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", *got ? " " : "",
			 one);
	}
	zone_close(z);
	if (strcmp(got, e->times))
		printf("# %s in %s: %s\n", e->expression, e->zone, got);
	return !strcmp(got, e->times);
}

static void tables(void)
{
	char name[200];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(table); i++) {
		snprintf(name, sizeof(name), "%s in %s after %s", table[i].expression,
			 table[i].zone, table[i].after);
		ok(is_as_expected(&table[i]), name);
	}
}

static void errors(void)
{
	struct cron_error error;
	struct cron c;
	char name[200];
	size_t i;
	bool good;

	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		error = (struct cron_error){};
		good = !cron_parse(&c, wrong[i].expression, &error) && error.reason &&
		       error.column == wrong[i].column;
		if (!good)
			printf("# column %u: %s\n", error.column, error.reason ?: "none");
		snprintf(name, sizeof(name), "\"%s\" is refused, with the column",
			 (unsigned char)*wrong[i].expression < 128 ? wrong[i].expression : "?");
		ok(good, name);
	}
}

/* ------------------------------------------------------------------- the oracle */

static uint64_t state = 1;

static int below(int n)
{
	state = state * 6364136223846793005 + 1442695040888963407;
	return (int)((state >> 33) % (uint64_t)n);
}

/* An expression, and the same as a table of what is in each field */
static bool in[5][64];
static bool stars[5];

static void random_field(char *text, int field)
{
	static const int min[] = { 0, 0, 1, 1, 0 }, max[] = { 59, 23, 31, 12, 6 };
	int lo = min[field], hi = max[field], step = 1, i, k, nr = 1 + below(2);

	memset(in[field], 0, sizeof(in[field]));
	stars[field] = false;
	if (below(field == 1 ? 4 : 2)) {
		stars[field] = true;
		if (below(3)) {
			sprintf(text, "*");
		} else {
			step = 1 + below(max[field]);
			sprintf(text, "*/%d", step);
		}
		for (i = lo; i <= hi; i += step)
			in[field][i] = true;
		return;
	}
	for (k = 0; k < nr; k++) {
		int a = lo + below(hi - lo + 1), b = a + below(hi - a + 1);

		step = 1 + below(5);
		if (a == b)
			step = 1;
		text += sprintf(text, a == b ? "%s%d" : "%s%d-%d/%d", k ? "," : "", a, b, step);
		for (i = a; i <= b; i += step)
			in[field][i] = true;
	}
}

static bool matches(int64_t at)
{
	time_t t = at;
	struct tm tm;
	bool day, weekday;

	localtime_r(&t, &tm);
	day = in[2][tm.tm_mday];
	weekday = in[4][tm.tm_wday];
	return in[0][tm.tm_min] && in[1][tm.tm_hour] && in[3][tm.tm_mon + 1] &&
	       (stars[2] || stars[4] ? day && weekday : day || weekday);
}

/* Was the same local time an hour ago as well, that is, is it there for the second time? */
static bool is_second(const struct zone *z, int64_t at)
{
	int64_t until;

	return zone_instant(z, at + zone_offset(z, at, &until)) < at;
}

/* What is left out is looked for where clocks are set: minutes of the gap before @at. */
static bool gap_matches(const struct zone *z, int64_t at)
{
	int64_t until, gap, i;

	gap = zone_offset(z, at, &until) - zone_offset(z, at - 1, &until);
	for (i = 60; i <= gap; i += 60) {
		/* A local time as an instant of before the change */
		int64_t local = at + zone_offset(z, at, &until) - i;
		time_t t = local;
		struct tm tm;
		bool day, weekday;

		gmtime_r(&t, &tm);
		day = in[2][tm.tm_mday];
		weekday = in[4][tm.tm_wday];
		if (in[0][tm.tm_min] && in[1][tm.tm_hour] && in[3][tm.tm_mon + 1] &&
		    (stars[2] || stars[4] ? day && weekday : day || weekday))
			return true;
	}
	return false;
}

/* Minute by minute, by the C library's local time, up to some days from @after */
static int64_t dumb_next(const struct zone *z, int64_t after, int64_t until)
{
	bool real = stars[0] || stars[1];
	int64_t at;

	for (at = after - after % 60 + 60; at < until; at += 60) {
		if (!real && gap_matches(z, at))
			return at;
		if (matches(at) && (real || !is_second(z, at)))
			return at;
	}
	return CRON_NEVER;
}

static bool one_random(const struct zone *z)
{
	char text[200], *end = text;
	int64_t at, until, dumb, next;
	struct cron_error error;
	struct cron c;
	int i;

	for (i = 0; i < 5; i++) {
		random_field(end, i);
		end += strlen(end);
		end += sprintf(end, "%s", i < 4 ? " " : "");
	}
	/* Where clocks are set in 2026, or anywhere */
	at = below(2) ? days_of_date(2026, below(2) ? 3 : 10, 20 + below(12)) * DAY + below(DAY) :
			days_of_date(1975 + below(100), 1 + below(12), 1 + below(28)) * DAY;
	until = at + 20 * DAY;
	if (!cron_parse(&c, text, &error))
		return false;
	for (i = 0; i < 5 && at < until; i++, at = next) {
		dumb = dumb_next(z, at, until);
		next = cron_next(&c, z, at);
		if (dumb == next || (dumb == CRON_NEVER && next >= until))
			continue;
		printf("# %s after %lld: %lld, not %lld\n", text, (long long)at,
		       (long long)next, (long long)dumb);
		return false;
	}
	return true;
}

static void oracle(const char *name, int nr)
{
	struct zone *z;
	bool good = !zone_open(&z, name);
	char sentence[100];
	int i;

	setenv("TZ", name, 1);
	tzset();
	for (i = 0; i < nr && good; i++)
		good = one_random(z);
	zone_close(z);
	snprintf(sentence, sizeof(sentence), "in %s it is as minute by minute", name);
	ok(good, sentence);
}

int main(int argc, char **argv)
{
	int nr = argc > 1 ? atoi(argv[1]) : 300;

	tables();
	errors();
	oracle("UTC", nr);
	oracle("Europe/Berlin", nr);
	oracle("America/St_Johns", nr);
	oracle("Australia/Lord_Howe", nr);
	oracle("Africa/Casablanca", nr);
	return done_testing();
}
