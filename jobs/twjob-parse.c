// SPDX-License-Identifier: GPL-2.0
/* Durations, times and numbers of twjob's arguments. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "twjob.h"

#define DIGITS		"0123456789"
/* What PostgreSQL can add to any time of this millennium. */
#define DURATION_MAX_US	(INT64_C(1000) * 366 * 86400 * USEC_PER_SEC)

static const char no_duration[] = "not a duration such as 90s, 1h30m or 2d";
static const char no_time[] = "not a time such as 2026-12-24T18:00:00Z or now";

static const struct unit {
	const char *name;
	int64_t us;
} units[] = {
	{ "w", INT64_C(7) * 86400 * USEC_PER_SEC },
	{ "d", INT64_C(86400) * USEC_PER_SEC },
	{ "h", INT64_C(3600) * USEC_PER_SEC },
	{ "m", INT64_C(60) * USEC_PER_SEC },
	{ "s", USEC_PER_SEC },
	{ "ms", 1000 },
	{ "us", 1 },
};

static int64_t find_unit(const char **s)
{
	size_t len = 0;

	while (isalpha((unsigned char)(*s)[len]))
		len++;
	for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
		if (strlen(units[i].name) != len || strncmp(*s, units[i].name, len))
			continue;
		*s += len;
		return units[i].us;
	}
	return 0;
}

/* A number and its unit, from *@s on: "1.5h". */
static const char *parse_part(const char **s, int64_t *unit, int64_t *us)
{
	const char *digits = *s, *frac = NULL;
	size_t len = strspn(digits, DIGITS);
	int64_t value = 0;

	*s += len;
	if (**s == '.') {
		frac = *s + 1;
		*s = frac + strspn(frac, DIGITS);
	}
	if (!len || frac == *s)
		return no_duration;
	if (!**s)
		return "needs a unit (there are us ms s m h d w)";
	*unit = find_unit(s);
	if (!*unit)
		return "unknown unit (there are us ms s m h d w)";
	for (; len; digits++, len--) {
		value = value * 10 + (*digits - '0');
		if (value > DURATION_MAX_US / *unit)
			return "longer than 1000 years";
	}
	*us = value * *unit;
	for (int64_t part = *unit; frac && isdigit((unsigned char)*frac); frac++) {
		if (*frac != '0' && (part % 10 || !part))
			return "finer than a microsecond";
		part /= 10;
		*us += part * (*frac - '0');
	}
	return NULL;
}

const char *read_duration(const char *s, int64_t *us)
{
	int64_t sum = 0, last = INT64_MAX, unit, part;
	const char *err;

	*us = 0;
	if (!strcmp(s, "0"))
		return NULL;
	if (*s == '-')
		return "a duration cannot be negative";
	do {
		err = parse_part(&s, &unit, &part);
		if (err)
			return err;
		if (unit >= last)
			return "units go from large to small, each once";
		sum += part;
		if (sum > DURATION_MAX_US)
			return "longer than 1000 years";
		last = unit;
	} while (*s);
	*us = sum;
	return NULL;
}

/* Two digits at *@s, at most @most, and @behind if that is not 0; -1 if it is anything else. */
static int two_digits(const char **s, int most, char behind)
{
	int value;

	if (!isdigit((unsigned char)(*s)[0]) || !isdigit((unsigned char)(*s)[1]))
		return -1;
	value = ((*s)[0] - '0') * 10 + ((*s)[1] - '0');
	*s += 2;
	if (value > most)
		return -1;
	if (!behind)
		return value;
	return *(*s)++ == behind ? value : -1;
}

static bool is_date(const char **s)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int century, year, month, day, leap;

	century = two_digits(s, 99, 0);
	if (century < 0)
		return false;
	year = two_digits(s, 99, '-');
	if (year < 0)
		return false;
	month = two_digits(s, 12, '-');
	if (month < 1)
		return false;
	day = two_digits(s, 31, 0);
	year += century * 100;
	leap = month == 2 && year % 4 == 0 && (year % 100 || year % 400 == 0);
	return year > 0 && day > 0 && day <= days[month - 1] + leap;
}

/* PostgreSQL knows no offset of 16 hours. */
static bool is_offset(const char **s)
{
	if (**s == 'Z' || **s == 'z') {
		(*s)++;
		return true;
	}
	if (**s != '+' && **s != '-')
		return false;
	(*s)++;
	return two_digits(s, 15, ':') >= 0 && two_digits(s, 59, 0) >= 0;
}

/* RFC 3339, without leap seconds. */
static const char *check_time(const char *s)
{
	if (!is_date(&s) || (*s != 'T' && *s != 't' && *s != ' '))
		return no_time;
	s++;
	if (two_digits(&s, 23, ':') < 0 || two_digits(&s, 59, ':') < 0 ||
	    two_digits(&s, 59, 0) < 0)
		return no_time;
	if (*s == '.') {
		size_t len = strspn(s + 1, DIGITS);

		if (!len || len > 9)
			return no_time;
		s += 1 + len;
	}
	if (!*s)
		return "needs Z or an offset such as +01:00 at its end";
	return is_offset(&s) && !*s ? NULL : no_time;
}

const char *read_when(const char *s, struct options *opt)
{
	const char *err;

	opt->in_us = 0;
	opt->at = NULL;
	if (!strcmp(s, "now"))
		return NULL;
	err = check_time(s);
	if (!err)
		opt->at = s;
	return err;
}

const char *read_number(const char *s, int64_t least, int64_t most, int64_t *nr)
{
	static char err[80];
	char *end;

	errno = 0;
	*nr = strtoll(s, &end, 10);
	if (isdigit((unsigned char)*s) && !*end && !errno && *nr >= least && *nr <= most)
		return NULL;
	snprintf(err, sizeof(err), "not a number from %lld to %lld", (long long)least,
		 (long long)most);
	return err;
}
