// SPDX-License-Identifier: GPL-2.0
/*
 * An expression says which local times it is, and cron_next() finds the first one that is after
 * a given one: the years and months that are not in it are skipped, of a month that is in it
 * the days are found as a set, and of a day the time. What clocks do is apart from that, at the
 * end of this file.
 *
 * The two kinds of expressions are of one grammar. Quartz has more: it counts weekdays from 1,
 * which is Sunday, a step may begin at a number, ranges go on from the end of a field to its
 * beginning, and of the two fields of days one is "?". With Vixie's, a day is in either of these
 * fields if neither begins with "*", and Sunday is 0 or 7.
 */
#include <ctype.h>
#include <string.h>

#include "buf.h"
#include "cron.h"

#define DAY	86400

enum { SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK, YEAR, FIELDS };

static const char *const months[] = {
	"jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", NULL
};

static const char *const weekdays[] = {
	"sun", "mon", "tue", "wed", "thu", "fri", "sat", NULL
};

/** struct field - values of a field; the first of @names is the value @min */
static const struct field {
	int min, max;
	const char *const *names;
} fields[FIELDS] = {
	[SECOND] = { 0, 59, NULL },
	[MINUTE] = { 0, 59, NULL },
	[HOUR] = { 0, 23, NULL },
	[DAY_OF_MONTH] = { 1, 31, NULL },
	[MONTH] = { 1, 12, months },
	[DAY_OF_WEEK] = { 0, 7, weekdays },
	[YEAR] = { CRON_FIRST_YEAR, CRON_LAST_YEAR, NULL },
};

static const struct field quartz_weekday = { 1, 7, weekdays };

/**
 * struct parser - of an expression
 * @c:      what it becomes
 * @at:     where it is
 * @f:      values of the field that it is in
 * @field:  which one that is
 * @quartz: there are six fields or seven
 * @alone:  something in this field may not be in a list
 * @listed: there has been a comma
 * @all:    fields of days that begin with "*"
 * @none:   fields of days that are "?"
 * @bits:   values that are in the field
 * @error:  what is wrong, with @wrong
 * @wrong:  where
 */
struct parser {
	struct cron *c;
	const char *at;
	const struct field *f;
	int field;
	bool quartz;
	bool alone;
	bool listed;
	int all;
	int none;
	uint64_t bits[4];
	const char *error;
	const char *wrong;
};

static bool fail(struct parser *p, const char *at, const char *reason)
{
	p->wrong = at;
	p->error = reason;
	return false;
}

static bool skip(struct parser *p, char c)
{
	if (toupper((unsigned char)*p->at) != c)
		return false;
	p->at++;
	return true;
}

static bool is_end(char c)
{
	return !c || c == ' ' || c == '\t';
}

/* ------------------------------------------------------------------- values */

static bool parse_number(struct parser *p, int *value)
{
	const char *begin = p->at;

	if (!isdigit((unsigned char)*p->at))
		return fail(p, begin, is_end(*begin) ? "a value is missing" :
			    "this is not a value");
	for (*value = 0; isdigit((unsigned char)*p->at); p->at++) {
		if (p->at - begin > 4)
			return fail(p, begin, "this number is too large");
		*value = *value * 10 + *p->at - '0';
	}
	return true;
}

static bool parse_name(struct parser *p, int *value)
{
	int i;

	for (i = 0; p->f->names && p->f->names[i]; i++) {
		if (strncasecmp(p->at, p->f->names[i], 3))
			continue;
		p->at += 3;
		*value = p->f->min + i;
		return true;
	}
	return false;
}

static bool parse_value(struct parser *p, int *value)
{
	const char *begin = p->at;

	if (parse_name(p, value))
		return true;
	if (!parse_number(p, value))
		return false;
	if (*value < p->f->min)
		return fail(p, begin, "this is less than the field begins with");
	if (*value > p->f->max)
		return fail(p, begin, "this is more than the field ends with");
	return true;
}

static bool parse_step(struct parser *p, int *step)
{
	const char *begin = p->at;

	*step = 1;
	if (!skip(p, '/'))
		return true;
	if (!parse_number(p, step))
		return false;
	if (!*step)
		return fail(p, begin + 1, "a step must be at least 1");
	if (*step > p->f->max)
		return fail(p, begin + 1, "the step is longer than the field");
	return true;
}

static void add(struct parser *p, int value)
{
	/* Weekdays of both kinds begin with Sunday. */
	if (p->field == DAY_OF_WEEK)
		value = (value - (p->quartz ? 1 : 0)) % 7;
	if (p->field == YEAR)
		value -= CRON_FIRST_YEAR;
	p->bits[value / 64] |= 1ULL << value % 64;
}

static bool add_range(struct parser *p, const char *begin, int first, int last, int step)
{
	int length = p->f->max - p->f->min + 1, i;

	/* Sunday is the last day as well. */
	if (last < first && p->field == DAY_OF_WEEK && !p->quartz && !last)
		last = 7;
	if (last < first && (!p->quartz || p->field == YEAR))
		return fail(p, begin, "the range ends before it begins");
	if (last < first)
		last += length;
	for (i = first; i <= last; i += step)
		add(p, p->f->min + (i - p->f->min) % length);
	return true;
}

/* ------------------------------------------------------- what Quartz has besides */

static bool parse_nearest(struct parser *p)
{
	if (!skip(p, 'W'))
		return true;
	p->c->nearest = true;
	p->alone = true;
	return true;
}

/* "L", "L-3", "LW", "L-3W" */
static bool parse_last_day(struct parser *p)
{
	const char *begin = p->at;
	int before = 0;

	p->c->last_day = true;
	p->alone = true;
	if (skip(p, '-')) {
		if (!parse_number(p, &before))
			return false;
		if (before > 30)
			return fail(p, begin + 1, "no month has so many days before its last");
	}
	p->c->before_last = before;
	return parse_nearest(p);
}

/* Behind a weekday: "L" or "#3" */
static bool parse_nth(struct parser *p)
{
	const char *begin = p->at;
	int nth = NTH_LAST;

	if (skip(p, '#')) {
		if (!parse_number(p, &nth))
			return false;
		if (nth < 1 || nth > 5)
			return fail(p, begin + 1, "of a weekday there are 1 to 5 in a month");
	} else if (!skip(p, 'L')) {
		return true;
	}
	p->c->nth = nth;
	p->alone = true;
	return true;
}

static bool parse_suffix(struct parser *p)
{
	if (p->quartz && p->field == DAY_OF_MONTH)
		return parse_nearest(p);
	return p->quartz && p->field == DAY_OF_WEEK ? parse_nth(p) : true;
}

/* What only one field may have, and only with Quartz, where it begins with a letter */
static bool parse_letter(struct parser *p, bool *done)
{
	*done = p->quartz && toupper((unsigned char)*p->at) == 'L';
	if (!*done)
		return true;
	if (p->field == DAY_OF_MONTH) {
		p->at++;
		return parse_last_day(p);
	}
	if (p->field != DAY_OF_WEEK)
		return fail(p, p->at, "this is not a value");
	/* Alone it is the last day of each week. */
	p->at++;
	add(p, 7);
	return true;
}

/* ------------------------------------------------------------------- fields */

/* A value, a range, or all, each with a step */
static bool parse_element(struct parser *p)
{
	const char *begin = p->at;
	int first = p->f->min, last = p->f->max, step;
	bool done, single = false;

	if (!parse_letter(p, &done) || done)
		return !p->error;
	/* With Quartz a step alone begins with the least value. */
	if (!skip(p, '*') && !(p->quartz && *p->at == '/')) {
		if (!parse_value(p, &first))
			return false;
		last = first;
		single = !skip(p, '-');
		if (!single && !parse_value(p, &last))
			return false;
	}
	if (single && !parse_suffix(p))
		return false;
	if (single && *p->at == '/') {
		if (!p->quartz)
			return fail(p, p->at, "a step needs a range or * before it");
		last = p->f->max;
	}
	if (*p->at == '/' && p->alone)
		return fail(p, p->at, "a step cannot be used here");
	return parse_step(p, &step) && add_range(p, begin, first, last, step);
}

/* "?" stands for a field of days that does not count, the other one does then. */
static bool parse_list(struct parser *p)
{
	const char *begin = p->at;

	if (*begin == '?') {
		if (!p->quartz || (p->field != DAY_OF_MONTH && p->field != DAY_OF_WEEK))
			return fail(p, begin, "? is for days, with six fields or seven");
		p->at++;
		p->none++;
		memset(p->bits, 0xff, sizeof(p->bits));
		return is_end(*p->at) ? true : fail(p, p->at, "? stands alone");
	}
	p->alone = false;
	p->listed = false;
	for (;;) {
		if (!parse_element(p))
			return false;
		if (p->alone && (p->listed || *p->at == ','))
			return fail(p, begin, "L, W and # stand alone, not in a list");
		if (!skip(p, ','))
			break;
		p->listed = true;
	}
	return is_end(*p->at) ? true : fail(p, p->at, "this is not expected here");
}

static void keep(struct parser *p, const char *begin)
{
	struct cron *c = p->c;

	switch (p->field) {
	case SECOND:
		c->seconds = p->bits[0];
		break;
	case MINUTE:
		c->minutes = p->bits[0];
		break;
	case HOUR:
		c->hours = (uint32_t)p->bits[0];
		break;
	case DAY_OF_MONTH:
		c->days = (uint32_t)p->bits[0];
		p->all += *begin == '*';
		break;
	case MONTH:
		c->months = (uint16_t)p->bits[0];
		break;
	case DAY_OF_WEEK:
		c->weekdays = (uint8_t)p->bits[0];
		p->all += *begin == '*';
		break;
	case YEAR:
		memcpy(c->years, p->bits, sizeof(c->years));
		break;
	}
	if (p->field <= HOUR && *begin == '*')
		c->real_time = true;
}

static void skip_blanks(struct parser *p)
{
	while (*p->at == ' ' || *p->at == '\t')
		p->at++;
}

static bool parse_field(struct parser *p, int field)
{
	const char *begin = p->at;

	p->field = field;
	p->f = field == DAY_OF_WEEK && p->quartz ? &quartz_weekday : &fields[field];
	memset(p->bits, 0, sizeof(p->bits));
	if (!parse_list(p))
		return false;
	keep(p, begin);
	return true;
}

static int count_fields(const char *text)
{
	int nr = 0;

	for (;;) {
		while (*text == ' ' || *text == '\t')
			text++;
		if (!*text)
			return nr;
		nr++;
		while (!is_end(*text))
			text++;
	}
}

static bool parse_fields(struct parser *p)
{
	int nr = count_fields(p->at), field;
	const char *days = p->at;

	if (nr < 5 || nr > 7)
		return fail(p, p->at, nr ? "there are five fields, or six or seven as with Quartz" :
					   "it is empty");
	p->quartz = nr > 5;
	p->c->seconds = 1;
	memset(p->c->years, 0xff, sizeof(p->c->years));
	for (field = p->quartz ? SECOND : MINUTE; field < (nr == 7 ? FIELDS : YEAR); field++) {
		skip_blanks(p);
		if (field == DAY_OF_MONTH)
			days = p->at;
		if (!parse_field(p, field))
			return false;
	}
	if (p->quartz && p->none != 1)
		return fail(p, days, "of the two fields of days one is ?, the other is not");
	p->c->either = !p->quartz && !p->all;
	return true;
}

static const char *of_name(const char *text)
{
	static const char *const names[][2] = {
		{ "@hourly", "0 * * * *" }, { "@daily", "0 0 * * *" },
		{ "@midnight", "0 0 * * *" }, { "@weekly", "0 0 * * 0" },
		{ "@monthly", "0 0 1 * *" }, { "@yearly", "0 0 1 1 *" },
		{ "@annually", "0 0 1 1 *" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcasecmp(text, names[i][0]))
			return names[i][1];
	return NULL;
}

bool cron_parse(struct cron *c, const char *text, struct cron_error *error)
{
	const char *of = *text == '@' ? of_name(text) : text;
	struct parser p = { .c = c, .at = of };

	memset(c, 0, sizeof(*c));
	if (!of)
		fail(&p, text, "there is no such name");
	else if (parse_fields(&p))
		return true;
	error->column = (unsigned int)(p.wrong - (of ?: text)) + 1;
	error->reason = p.error;
	return false;
}

/* ------------------------------------------------------------------- local time */

static int days_in_month(int64_t year, int month)
{
	return (int)(days_of_date(year + (month == 12), month % 12 + 1, 1) -
		     days_of_date(year, month, 1));
}

/* The day from Monday to Friday that is nearest to one, in the same month. */
static int nearest_weekday(int64_t first, int day, int nr_days)
{
	switch (weekday_of_days(first + day - 1)) {
	case 0:
		return day == nr_days ? day - 2 : day + 1;
	case 6:
		return day == 1 ? day + 2 : day - 1;
	}
	return day;
}

/* Bit 1 is the first. */
static uint32_t days_by_month(const struct cron *c, int64_t first, int nr_days)
{
	int day = nr_days - c->before_last;

	if (!c->last_day) {
		if (!c->nearest)
			return c->days;
		day = __builtin_ctz(c->days);
	}
	if (day < 1 || day > nr_days)
		return 0;
	return 1U << (c->nearest ? nearest_weekday(first, day, nr_days) : day);
}

static uint32_t days_by_week(const struct cron *c, int64_t first, int nr_days)
{
	uint32_t days = 0;
	int day;

	for (day = 1; day <= nr_days; day++) {
		if (!(c->weekdays >> weekday_of_days(first + day - 1) & 1))
			continue;
		if (c->nth == NTH_LAST ? day + 7 > nr_days : !c->nth || (day + 6) / 7 == c->nth)
			days |= 1U << day;
	}
	return days;
}

static uint32_t days_of_month(const struct cron *c, int64_t year, int month)
{
	int64_t first = days_of_date(year, month, 1);
	int nr_days = days_in_month(year, month);
	uint32_t by_month = days_by_month(c, first, nr_days);
	uint32_t by_week = days_by_week(c, first, nr_days);

	return (c->either ? by_month | by_week : by_month & by_week) &
	       ((2ULL << nr_days) - 1);
}

/* The first bit from @from on, or -1 */
static int next_bit(uint64_t bits, int from)
{
	if (from > 63 || !(bits >> from))
		return -1;
	return from + __builtin_ctzll(bits >> from);
}

/* The first time of a day, from that second of it on, or -1 */
static int next_time(const struct cron *c, int from)
{
	int hour = from / 3600, minute = from / 60 % 60, second = from % 60, at;

	at = next_bit(c->hours, hour);
	if (at == hour) {
		at = next_bit(c->minutes, minute);
		if (at == minute) {
			at = next_bit(c->seconds, second);
			if (at >= 0)
				return hour * 3600 + minute * 60 + at;
			at = next_bit(c->minutes, minute + 1);
		}
		if (at >= 0)
			return hour * 3600 + at * 60 + next_bit(c->seconds, 0);
		at = next_bit(c->hours, hour + 1);
	}
	if (at < 0)
		return -1;
	return at * 3600 + next_bit(c->minutes, 0) * 60 + next_bit(c->seconds, 0);
}

static bool has_year(const struct cron *c, int64_t year)
{
	uint64_t i = (uint64_t)(year - CRON_FIRST_YEAR);

	return c->years[i / 64] >> i % 64 & 1;
}

/* The first day, from that one on, as days since 1970, or -1 */
static int64_t next_day(const struct cron *c, int64_t from)
{
	int64_t year;
	int month, day, at;

	date_of_days(from, &year, &month, &day);
	for (; year <= CRON_LAST_YEAR; year++, month = 1, day = 1) {
		if (!has_year(c, year))
			continue;
		for (; month <= 12; month++, day = 1) {
			if (!(c->months >> month & 1))
				continue;
			at = next_bit(days_of_month(c, year, month), day);
			if (at > 0)
				return days_of_date(year, month, at);
		}
	}
	return -1;
}

/* The first local time, from that one on, as zone_instant() has them, or CRON_NEVER */
static int64_t next_local(const struct cron *c, int64_t from)
{
	int64_t today, day;
	int time;

	if (from < 0)
		from = 0;
	today = from / DAY;
	day = next_day(c, today);
	if (day == today) {
		time = next_time(c, (int)(from % DAY));
		if (time >= 0)
			return day * DAY + time;
		day = next_day(c, today + 1);
	}
	return day < 0 ? CRON_NEVER : day * DAY + next_time(c, 0);
}

/* ------------------------------------------------------------------- real time */

/* Of times that are there twice both count, and none that is left out. */
static int64_t next_real(const struct cron *c, const struct zone *z, int64_t from)
{
	int64_t until, local;
	int32_t offset;

	for (;; from = until) {
		offset = zone_offset(z, from, &until);
		local = next_local(c, from + offset);
		if (local == CRON_NEVER)
			return CRON_NEVER;
		if (local - offset < until)
			return local - offset;
	}
}

int64_t cron_next(const struct cron *c, const struct zone *z, int64_t after)
{
	int64_t until, local, at;

	if (after >= days_of_date(CRON_LAST_YEAR + 2, 1, 1) * DAY)
		return CRON_NEVER;
	if (after < -ZONE_MAX_OFFSET - DAY)
		after = -ZONE_MAX_OFFSET - DAY;
	if (c->real_time)
		return next_real(c, z, after + 1);
	local = after + zone_offset(z, after, &until);
	do {
		local = next_local(c, local + 1);
		if (local == CRON_NEVER)
			return CRON_NEVER;
		at = zone_instant(z, local);
	} while (at <= after);
	return at;
}
