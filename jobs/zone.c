// SPDX-License-Identifier: GPL-2.0
/*
 * Files of tzdata (RFC 9636): a list of instants at which local time changes, and for what
 * comes after the last one a rule as in the variable TZ of POSIX.
 *
 * All numbers of a file are checked when it is read, so that nothing else has to doubt them.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "buf.h"
#include "zone.h"

#define MAX_FILE	(1 << 20)
#define MAX_NAME	128
#define HEADER_BYTES	44
#define DAY		86400

/**
 * struct rule - when clocks are set each year, by the local time before that
 * @kind:    'J': day 1 to 365, as if there were no leap days; 'D': day 0 to 365;
 *           'M': a weekday of a month
 * @day:     that day, or the weekday, 0 to 6
 * @month:   1 to 12
 * @week:    1 to 5, where 5 is the last one
 * @seconds: after the begin of the day; may be before it, or days later
 */
struct rule {
	char kind;
	int day;
	int month;
	int week;
	int32_t seconds;
};

/**
 * struct zone - a zone
 * @nr:        changes
 * @at:        when they are, in order
 * @offset:    local time from then on
 * @first:     local time before all of them
 * @has_rule:  the rest counts from the last one on; else what it changed to stays
 * @has_dst:   clocks are set twice a year
 * @std:       local time
 * @dst:       local time from @begin to @end
 * @begin:     of that
 * @end:       of that
 */
struct zone {
	uint32_t nr;
	int64_t *at;
	int32_t *offset;
	int32_t first;
	bool has_rule;
	bool has_dst;
	int32_t std, dst;
	struct rule begin, end;
};

/* --------------------------------------------------------------------- calendar */

static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

/* Years begin in March here, so that the leap day is the last one. */
int64_t days_of_date(int64_t year, int month, int day)
{
	int64_t y = year - (month <= 2), era = floor_div(y, 400);
	int64_t of_era = y - era * 400;
	int of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;

	return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

void date_of_days(int64_t days, int64_t *year, int *month, int *day)
{
	int64_t era = floor_div(days + 719468, 146097);
	int64_t of_era = days + 719468 - era * 146097;
	int64_t y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	int of_year = (int)(of_era - (365 * y + y / 4 - y / 100));
	int m = (5 * of_year + 2) / 153;

	*day = of_year - (153 * m + 2) / 5 + 1;
	*month = m < 10 ? m + 3 : m - 9;
	*year = y + era * 400 + (*month <= 2);
}

static bool is_leap(int64_t year)
{
	return year % 4 == 0 && (year % 100 || year % 400 == 0);
}

/* ------------------------------------------------------------------- rules */

/* The day of a year, since 1970, on which clocks are set. */
static int64_t rule_day(const struct rule *r, int64_t year)
{
	int64_t day;

	switch (r->kind) {
	case 'J':
		/* Day 60 is the first of March. */
		return days_of_date(year, 1, 1) + r->day - 1 + (r->day >= 60 && is_leap(year));
	case 'D':
		return days_of_date(year, 1, 1) + r->day;
	}
	if (r->week < 5) {
		day = days_of_date(year, r->month, 1);
		return day + (r->day - weekday_of_days(day) + 7) % 7 + 7 * (r->week - 1);
	}
	day = days_of_date(year + (r->month == 12), r->month % 12 + 1, 1) - 1;
	return day - (weekday_of_days(day) - r->day + 7) % 7;
}

/*
 * Where one time ends when the other begins, as where one of them lasts for all of the year,
 * the one that begins counts.
 */
static int32_t offset_by_rule(const struct zone *z, int64_t at, int64_t *until)
{
	int64_t year, y, when[2], last = INT64_MIN;
	int32_t offset = z->std, after[2] = { z->std, z->dst };
	int month, day, i;

	*until = ZONE_FOREVER;
	if (!z->has_dst)
		return offset;
	date_of_days(floor_div(at + z->std, DAY), &year, &month, &day);
	for (y = year - 1; y <= year + 2; y++) {
		when[0] = rule_day(&z->end, y) * DAY + z->end.seconds - z->dst;
		when[1] = rule_day(&z->begin, y) * DAY + z->begin.seconds - z->std;
		for (i = 0; i < 2; i++) {
			if (when[i] > at && when[i] < *until)
				*until = when[i];
			if (when[i] <= at && when[i] + i > last) {
				last = when[i] + i;
				offset = after[i];
			}
		}
	}
	return offset;
}

/* "EST" or "<-03>" */
static const char *skip_name(const char *s)
{
	const char *begin = s;

	if (*s == '<') {
		do
			s++;
		while (isalnum((unsigned char)*s) || *s == '+' || *s == '-');
		return *s == '>' ? s + 1 : NULL;
	}
	while (isalpha((unsigned char)*s))
		s++;
	return s - begin >= 3 ? s : NULL;
}

static const char *parse_number(const char *s, int min, int max, int *value)
{
	const char *begin = s;

	for (*value = 0; isdigit((unsigned char)*s) && s - begin < 4; s++)
		*value = *value * 10 + *s - '0';
	return s > begin && *value >= min && *value <= max ? s : NULL;
}

/* "[+-]hh[:mm[:ss]]" */
static const char *parse_time(const char *s, int max_hours, int32_t *seconds)
{
	int sign = *s == '-' ? -1 : 1, hours, minutes = 0, rest = 0;

	if (*s == '-' || *s == '+')
		s++;
	s = parse_number(s, 0, max_hours, &hours);
	if (s && *s == ':') {
		s = parse_number(s + 1, 0, 59, &minutes);
		if (s && *s == ':')
			s = parse_number(s + 1, 0, 59, &rest);
	}
	*seconds = sign * (hours * 3600 + minutes * 60 + rest);
	return s;
}

/* ",M3.2.0/2:00:00" */
static const char *parse_rule(const char *s, struct rule *r)
{
	if (*s != ',')
		return NULL;
	s++;
	r->seconds = 2 * 3600;
	if (*s == 'J') {
		r->kind = 'J';
		s = parse_number(s + 1, 1, 365, &r->day);
	} else if (*s == 'M') {
		r->kind = 'M';
		s = parse_number(s + 1, 1, 12, &r->month);
		s = s && *s == '.' ? parse_number(s + 1, 1, 5, &r->week) : NULL;
		s = s && *s == '.' ? parse_number(s + 1, 0, 6, &r->day) : NULL;
	} else {
		r->kind = 'D';
		s = parse_number(s, 0, 365, &r->day);
	}
	return s && *s == '/' ? parse_time(s + 1, 167, &r->seconds) : s;
}

/* All of a rule; west of Greenwich is positive in it. */
static bool parse_rules(struct zone *z, const char *s)
{
	int32_t west;

	z->has_rule = *s;
	if (!*s)
		return true;
	s = skip_name(s);
	s = s ? parse_time(s, 24, &west) : NULL;
	if (!s)
		return false;
	z->std = -west;
	if (!*s)
		return true;
	z->has_dst = true;
	z->dst = z->std + 3600;
	s = skip_name(s);
	if (s && *s != ',') {
		s = parse_time(s, 24, &west);
		z->dst = -west;
	}
	s = s ? parse_rule(s, &z->begin) : NULL;
	s = s ? parse_rule(s, &z->end) : NULL;
	return s && !*s;
}

/* ------------------------------------------------------------------- files */

/** struct part - what a header says of the part behind it, and where that is */
struct part {
	const uint8_t *data;
	uint32_t isut, isstd, leaps, changes, types, chars;
	uint32_t time_bytes;
};

static int64_t big_endian(const uint8_t *p, uint32_t bytes)
{
	uint64_t v = bytes == 4 && p[0] & 0x80 ? UINT64_MAX : 0;

	while (bytes--)
		v = v << 8 | *p++;
	return (int64_t)v;
}

/* Where the part ends, or NULL if it is none or does not fit. */
static const uint8_t *parse_header(struct part *p, const uint8_t *at, const uint8_t *end,
				   uint32_t time_bytes)
{
	uint64_t bytes;

	if (end - at < HEADER_BYTES || memcmp(at, "TZif", 4))
		return NULL;
	p->isut = big_endian(at + 20, 4);
	p->isstd = big_endian(at + 24, 4);
	p->leaps = big_endian(at + 28, 4);
	p->changes = big_endian(at + 32, 4);
	p->types = big_endian(at + 36, 4);
	p->chars = big_endian(at + 40, 4);
	p->time_bytes = time_bytes;
	p->data = at + HEADER_BYTES;
	bytes = (uint64_t)p->changes * (time_bytes + 1) + (uint64_t)p->types * 6 + p->chars +
		(uint64_t)p->leaps * (time_bytes + 4) + p->isstd + (uint64_t)p->isut;
	return bytes <= (uint64_t)(end - p->data) ? p->data + bytes : NULL;
}

static bool read_part(struct zone *z, const struct part *p)
{
	const uint8_t *index = p->data + (uint64_t)p->changes * p->time_bytes;
	const uint8_t *types = index + p->changes;
	uint32_t i;

	if (!p->types || p->types > 256 || p->leaps)
		return false;
	for (i = 0; i < p->types; i++)
		if (llabs(big_endian(types + i * 6, 4)) > ZONE_MAX_OFFSET)
			return false;
	z->nr = p->changes;
	z->first = (int32_t)big_endian(types, 4);
	z->at = xcalloc(z->nr + 1, sizeof(*z->at));
	z->offset = xcalloc(z->nr + 1, sizeof(*z->offset));
	for (i = 0; i < z->nr; i++) {
		z->at[i] = big_endian(p->data + (uint64_t)i * p->time_bytes, p->time_bytes);
		if (index[i] >= p->types || (i && z->at[i] <= z->at[i - 1]))
			return false;
		z->offset[i] = (int32_t)big_endian(types + index[i] * 6, 4);
	}
	return true;
}

/* The rule is between two ends of line. */
static bool read_footer(struct zone *z, const uint8_t *at, const uint8_t *end)
{
	const uint8_t *stop;
	char text[128];

	if (at == end || *at != '\n')
		return false;
	at++;
	stop = memchr(at, '\n', end - at);
	if (!stop || stop - at >= (ptrdiff_t)sizeof(text) || memchr(at, 0, stop - at))
		return false;
	memcpy(text, at, stop - at);
	text[stop - at] = 0;
	return parse_rules(z, text);
}

/* The first part is for who knows of no 64 bits, and counts only if there is no other. */
static bool read_file(struct zone *z, const uint8_t *at, const uint8_t *end)
{
	struct part part;
	const uint8_t *rest = parse_header(&part, at, end, 4);

	if (!rest)
		return false;
	if (at[4] < '2')
		return read_part(z, &part);
	rest = parse_header(&part, rest, end, 8);
	return rest && read_part(z, &part) && read_footer(z, rest, end);
}

int zone_parse(struct zone **to, const void *data, uint64_t len)
{
	struct zone *z = xcalloc(1, sizeof(*z));

	*to = NULL;
	if (!read_file(z, data, (const uint8_t *)data + len)) {
		zone_close(z);
		return -EINVAL;
	}
	*to = z;
	return 0;
}

void zone_close(struct zone *z)
{
	if (!z)
		return;
	free(z->at);
	free(z->offset);
	free(z);
}

/* Names of files below the folder and nothing else */
static bool is_name(const char *name)
{
	const char *c;

	for (c = name; *c; c++)
		if (!isalnum((unsigned char)*c) && !strchr("_+-/", *c))
			return false;
	return *name && *name != '/' && c - name <= MAX_NAME;
}

static int read_whole(int fd, struct buf *b)
{
	static char chunk[65536];
	ssize_t nr;

	while ((nr = read(fd, chunk, sizeof(chunk))) > 0) {
		buf_add(b, chunk, nr);
		if (b->len > MAX_FILE)
			return -EINVAL;
	}
	return nr < 0 ? -errno : 0;
}

int zone_open(struct zone **z, const char *name)
{
	const char *dir = getenv("TZDIR") ?: "/usr/share/zoneinfo";
	struct buf path = {}, file = {};
	struct stat st;
	int fd, ret;

	*z = NULL;
	if (!is_name(name))
		return -EINVAL;
	buf_printf(&path, "%s/%s", dir, name);
	fd = open(path.data, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ret = fd < 0 ? -errno : 0;
	buf_free(&path);
	if (fd < 0)
		return ret;
	ret = fstat(fd, &st) || !S_ISREG(st.st_mode) ? -EINVAL : read_whole(fd, &file);
	close(fd);
	if (!ret)
		ret = zone_parse(z, file.data, file.len);
	buf_free(&file);
	return ret;
}

/* ------------------------------------------------------------------- times */

/* How many changes have been by then. */
static uint32_t changes_by(const struct zone *z, int64_t at)
{
	uint32_t low = 0, high = z->nr, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (z->at[middle] <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int32_t zone_offset(const struct zone *z, int64_t at, int64_t *until)
{
	uint32_t nr;

	*until = ZONE_FOREVER;
	if (!z)
		return 0;
	nr = changes_by(z, at);
	if (nr == z->nr && z->has_rule)
		return offset_by_rule(z, at, until);
	if (nr < z->nr)
		*until = z->at[nr];
	return nr ? z->offset[nr - 1] : z->first;
}

int64_t zone_instant(const struct zone *z, int64_t local)
{
	int64_t from = local - ZONE_MAX_OFFSET, until, at;

	for (;;) {
		at = local - zone_offset(z, from, &until);
		if (at < from)
			return from;
		if (at < until)
			return at;
		from = until;
	}
}
