// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../tap.h"
#include "buf.h"
#include "schedule.h"

#define SEC	INT64_C(1000000)

static int64_t us(const char *text)
{
	int64_t at = INT64_MIN;

	parse_time(text, strlen(text), &at);
	return at;
}

static struct schedule every(int64_t ms, int64_t count, const char *start, const char *end)
{
	struct schedule_times t = {
		.every_ms = ms, .count = count, .start_us = us(start),
		.end_us = end ? us(end) : INT64_MAX,
	};
	struct schedule s;
	struct bad bad;

	schedule_set(&s, &t, &bad);
	return s;
}

static struct schedule_times cron(const char *expression, const char *tz)
{
	return (struct schedule_times){
		.cron = expression, .tz = tz, .start_us = INT64_MIN, .end_us = INT64_MAX,
	};
}

static void intervals(void)
{
	struct schedule s = every(1500, 0, "2026-01-01T00:00:00Z", NULL);
	int64_t start = us("2026-01-01T00:00:00Z"), at = INT64_MIN;

	ok(schedule_next(&s, INT64_MIN) == start, "the first time of an interval is its start");
	ok(schedule_next(&s, start - 1) == start, "a time that is 1 us ahead is the next one");
	ok(schedule_next(&s, start) == start + 1500000, "a time is not after itself");
	ok(schedule_next(&s, start + 1) == start + 1500000, "times are counted from the start");
	ok(schedule_next(&s, INT64_MAX - 1) == SCHEDULE_NEVER, "at the end of time there are none");
	s = every(1500, 3, "2026-01-01T00:00:00Z", NULL);
	for (int i = 0; i < 3; i++)
		at = schedule_next(&s, at);
	ok(at == start + 3 * SEC, "the last of three is two intervals after the first");
	ok(schedule_next(&s, at) == SCHEDULE_NEVER, "there is none after the last of three");
	s = every(1, 0, "2026-01-01T00:00:00Z", "2036-01-01T00:00:00Z");
	ok(schedule_last(&s, start, us("2046-01-01T00:00:00Z")) == s.end_us,
	   "the last of ten years of milliseconds is found ten years after it, and not step by step");
	s = every(1000, 0, "2026-01-01T00:00:00Z", "2026-01-01T00:00:02Z");
	ok(schedule_next(&s, start + SEC) == start + 2 * SEC, "the end is one of the times");
	ok(schedule_next(&s, start + 2 * SEC) == SCHEDULE_NEVER, "there is none after the end");
}

static void expressions(void)
{
	struct schedule_times t = cron("30 2 * * *", "Europe/Berlin");
	struct bad bad = {};
	struct schedule s;

	ok(schedule_set(&s, &t, &bad), "an expression with a zone makes a schedule");
	ok(schedule_next(&s, us("2026-11-22T12:00:00Z")) == us("2026-11-23T01:30:00Z"),
	   "times are those of the zone");
	ok(schedule_next(&s, us("2026-11-23T01:29:59.999999Z")) == us("2026-11-23T01:30:00Z"),
	   "a time that is 1 us ahead is the next one, of an expression");
	ok(schedule_next(&s, us("2026-11-23T01:30:00Z")) == us("2026-11-24T01:30:00Z"),
	   "a time of an expression is not after itself");
	t.start_us = us("2026-12-01T01:30:00Z");
	schedule_set(&s, &t, &bad);
	ok(schedule_next(&s, INT64_MIN) == t.start_us, "the start is one of the times");
	t.start_us++;
	schedule_set(&s, &t, &bad);
	ok(schedule_next(&s, INT64_MIN) == us("2026-12-02T01:30:00Z"),
	   "there is none before the start");
	t.cron = "0 0 31 2 *";
	ok(schedule_set(&s, &t, &bad) && schedule_next(&s, INT64_MIN) == SCHEDULE_NEVER,
	   "a day that there is not never comes");
	t.cron = "0 25 * * *";
	ok(!schedule_set(&s, &t, &bad) && !strcmp(bad.field, "cron") &&
	   !strncmp(bad.message, "column 3: ", 10), "a wrong expression is refused by its column");
	t = cron(NULL, NULL);
	ok(!schedule_set(&s, &t, &bad) && !strcmp(bad.code, "missing_field"),
	   "neither an expression nor an interval is no schedule");
	t = cron("* * * * *", "Europe/Nowhere");
	ok(!schedule_set(&s, &t, &bad) && !strcmp(bad.code, "unknown_zone"),
	   "a zone that there is none of is refused");
	t = cron("* * * * *", "../../../etc/passwd");
	ok(!schedule_set(&s, &t, &bad) && !strcmp(bad.code, "unknown_zone"),
	   "a zone is not any file");
}

/* The last time, against all of them. */
static void lasts(void)
{
	static const char *const texts[] = { "* * * * *", "*/7 3-5 * * *", "* * 4 * * ?",
					     "0 0 1 * *", "0 0 29 2 *" };
	int64_t base = us("2024-01-01T00:00:00Z");
	bool good = true;
	struct bad bad;

	srand(1);
	for (int i = 0; i < 400; i++) {
		struct schedule_times t = cron(texts[i % 5], NULL);
		int64_t after = base + rand() % 4000000 * SEC, last = SCHEDULE_NEVER, at;
		int64_t until = after + rand() % (i % 5 == 2 ? 90000 : 4000000) * SEC;
		struct schedule s;

		schedule_set(&s, &t, &bad);
		for (at = schedule_next(&s, after); at <= until; at = schedule_next(&s, at))
			last = at;
		good &= schedule_last(&s, after, until) == last;
	}
	ok(good, "the last time up to another is the last of all");
}

static bool copy(const char *from, const char *to)
{
	char text[200];

	snprintf(text, sizeof(text), "cp '%s' '%s.new' && mv '%s.new' '%s'", from, to, to, to);
	return !system(text);
}

static void tzdata(void)
{
	char dir[] = "/tmp/zonesXXXXXX", path[100];
	const char *berlin = "/usr/share/zoneinfo/Europe/Berlin";
	const char *tokyo = "/usr/share/zoneinfo/Asia/Tokyo";
	struct schedule_times t = cron("0 12 * * *", "Here");
	int64_t at = us("2026-01-01T00:00:00Z");
	struct schedule s;
	struct bad bad;

	if (!mkdtemp(dir))
		exit(1);
	snprintf(path, sizeof(path), "%s/Here", dir);
	setenv("TZDIR", dir, 1);
	zones_check();	/* those of before are gone */
	ok(!schedule_set(&s, &t, &bad), "a zone is looked for in TZDIR");
	if (!copy(berlin, path))
		exit(1);
	ok(schedule_set(&s, &t, &bad) && schedule_next(&s, at) == us("2026-01-01T11:00:00Z"),
	   "a zone that came later is found");
	ok(!zones_check(), "nothing has changed if nothing has");
	if (!copy(tokyo, path))
		exit(1);
	ok(zones_check(), "a file that is another one is noticed");
	schedule_set(&s, &t, &bad);
	ok(schedule_next(&s, at) == us("2026-01-01T03:00:00Z"), "times are those of the new file");
	unlink(path);
	ok(zones_check() && !schedule_set(&s, &t, &bad), "a zone that was removed is not used");
	rmdir(dir);
	unsetenv("TZDIR");
}

static bool parses(const char *body, struct bad *bad)
{
	struct schedule_spec *specs;
	unsigned int nr;
	bool good = parse_schedules(body, strlen(body), &specs, &nr, bad);

	if (good)
		schedule_specs_free(specs, nr);
	return good;
}

#define ONE	"{\"schedule\": \"a\", \"service\": \"s\", \"cron\": \"* * * * *\"}"

static void files(void)
{
	struct schedule_spec *specs;
	struct bad bad = {};
	unsigned int nr;
	const char *two = "{\"schedules\": [" ONE ", {\"schedule\": \"b\", \"every_ms\": 5, "
			  "\"payload\": {\"x\": [1, 2]}}]}";

	ok(parse_schedules(two, strlen(two), &specs, &nr, &bad) && nr == 2,
	   "a file has many schedules");
	ok(specs[1].payload.len == 13 && !memcmp(specs[1].payload.data, "{\"x\": [1, 2]}", 13),
	   "each has the payload that stands there");
	schedule_specs_free(specs, nr);
	ok(parses("{\"schedules\": []}", &bad), "a file may have none");
	ok(!parses("{\"schedules\": [" ONE ", " ONE "]}", &bad) &&
	   !strcmp(bad.code, "duplicate_schedule"), "a name is there once");
	ok(!parses("{\"schedules\": [{\"cron\": \"* * * * *\"}]}", &bad) &&
	   !strcmp(bad.field, "schedules[0].schedule"), "each needs a name");
	ok(!parses("{\"schedules\": [" ONE ", 5]}", &bad) && !strcmp(bad.field, "schedules[1]"),
	   "a number is no schedule");
	ok(!parses("{\"schedules\": {}}", &bad), "an object is no array of them");
	ok(!parses("{\"schedules\": [{\"schedule\": \"a\", \"cron\": \"x\", \"every_ms\": 1}]}",
		   &bad) && !strcmp(bad.code, "conflicting_fields"),
	   "an interval does not go with an expression");
	ok(!parses("{\"schedules\": [{\"schedule\": \"a\", \"misfire\": \"no\"}]}", &bad) &&
	   !strcmp(bad.field, "schedules[0].misfire"), "a policy has to be one of them");
}

static bool is_refused(struct schedule_times t, const char *code, const char *field)
{
	struct bad bad = {};

	return !schedule_check(&t, us("2026-06-01T00:00:00Z"), &bad) && !strcmp(bad.code, code) &&
	       !strcmp(bad.field, field);
}

static void checks(void)
{
	struct schedule_times daily = cron("@daily", NULL), t;
	struct schedule_times each = { .every_ms = 5, .start_us = INT64_MIN, .end_us = INT64_MAX };
	struct bad bad;

	ok(schedule_check(&daily, us("2026-06-01T00:00:00Z"), &bad), "@daily has times");
	ok(schedule_check(&each, us("2026-06-01T00:00:00Z"), &bad),
	   "an interval that does not say when begins now");
	t = daily;
	t.count = 1;
	ok(is_refused(t, "conflicting_fields", "count"), "an expression has no count");
	t = each;
	t.tz = "Asia/Tokyo";
	ok(is_refused(t, "conflicting_fields", "tz"), "an interval has no zone");
	t = daily;
	t.start_us = us("2026-07-01T00:00:00Z");
	t.end_us = t.start_us;
	ok(is_refused(t, "out_of_range", "end_at"), "the end is after the start");
	ok(is_refused(cron("0 0 30 2 *", NULL), "never_fires", "cron"), "no February has 30 days");
	t = each;
	t.end_us = us("2026-05-01T00:00:00Z");
	ok(is_refused(t, "never_fires", "end_at"), "what has ended fires never");
	t = each;
	t.start_us = us("2026-05-01T00:00:00Z");
	t.count = 3;
	ok(is_refused(t, "never_fires", "start_at"), "all times of a count may be over");
	ok(is_refused(cron("@daily", "Europe/Berlin/x"), "unknown_zone", "tz"),
	   "there is no zone behind a file");
}

static void stamps(void)
{
	struct schedule_times t = cron("@daily", "America/St_Johns");
	char text[TIME_TEXT];
	struct schedule s;
	struct bad bad;

	schedule_set(&s, &t, &bad);
	schedule_format(&s, us("2026-01-01T03:30:00Z"), text);
	ok(!strcmp(text, "2026-01-01T00:00:00-03:30"), "a time is told in the zone");
	t.tz = "Europe/Paris";
	schedule_set(&s, &t, &bad);
	schedule_format(&s, us("2026-07-01T22:00:00Z"), text);
	ok(!strcmp(text, "2026-07-02T00:00:00+02:00"), "its offset is that of the day");
	s = every(1500, 0, "2026-01-01T00:00:00Z", NULL);
	schedule_format(&s, us("2026-01-01T00:00:01.5Z"), text);
	ok(!strcmp(text, "2026-01-01T00:00:01.500000Z"), "that of an interval in UTC");
}

int main(void)
{
	intervals();
	expressions();
	lasts();
	tzdata();
	files();
	checks();
	stamps();
	return done_testing();
}
