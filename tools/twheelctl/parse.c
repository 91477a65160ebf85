// SPDX-License-Identifier: GPL-2.0
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "parse.h"

#define COMPLAINTS_MAX	20
/* What some editors put before UTF-8 */
#define BYTE_ORDER_MARK	"\xef\xbb\xbf"
#define CRON_MAX	500

static const char too_far[] = "beyond the 292 years that a timer can wait";
static const char too_fine[] = "finer than a nanosecond";
static const char no_duration[] = "not a duration such as 1h30m, 1.5s or 250us";
static const char no_time[] =
	"not a time such as @2026-12-24T18:00:00, the same with Z, or @1766599200";

static const struct unit {
	const char *name;
	__u64 ns;
} units[] = {
	{ "w", 7 * 86400 * NSEC_PER_SEC },
	{ "d", 86400 * NSEC_PER_SEC },
	{ "h", 3600 * NSEC_PER_SEC },
	{ "m", 60 * NSEC_PER_SEC },
	{ "s", NSEC_PER_SEC },
	{ "ms", NSEC_PER_MSEC },
	{ "us", 1000 },
	{ "ns", 1 },
};

static __u64 find_unit(const char **s)
{
	size_t i, len = 0;

	while (isalpha((unsigned char)(*s)[len]))
		len++;
	for (i = 0; i < ARRAY_SIZE(units); i++) {
		if (strlen(units[i].name) != len ||
		    strncmp(*s, units[i].name, len))
			continue;
		*s += len;
		return units[i].ns;
	}
	return 0;
}

static const char *parse_fraction(const char *s, size_t len, __u64 unit,
				  __u64 *ns)
{
	*ns = 0;
	for (; len; s++, len--) {
		unit = unit % 10 ? 0 : unit / 10;
		if (!unit && *s != '0')
			return too_fine;
		*ns += unit * (*s - '0');
	}
	return NULL;
}

/* One number with digits before the point from *@s on, in units of @unit */
static const char *parse_number(const char *s, size_t len, __u64 unit,
				__u64 *ns)
{
	__u64 val = 0;

	for (; len; s++, len--) {
		if (val > (TIME_MAX_NS - (*s - '0')) / 10)
			return too_far;
		val = val * 10 + (*s - '0');
	}
	if (val > TIME_MAX_NS / unit)
		return too_far;
	*ns = val * unit;
	return NULL;
}

/* A number, a unit: "1.5h". A @unit of 0 is read from the text and returned */
static const char *parse_part(const char **s, __u64 *unit, __u64 *ns)
{
	const char *num = *s, *frac = "", *err;
	size_t len = strspn(num, DIGITS), frac_len = 0;
	__u64 part;

	*s += len;
	if (**s == '.') {
		frac = *s + 1;
		frac_len = strspn(frac, DIGITS);
		*s = frac + frac_len;
	}
	if (!len || (*frac && !frac_len))
		return no_duration;
	if (!*unit && !**s)
		return "needs a unit (ns us ms s m h d w)";
	if (!*unit)
		*unit = find_unit(s);
	if (!*unit)
		return "unknown unit (there are ns us ms s m h d w)";

	err = parse_number(num, len, *unit, ns);
	if (!err)
		err = parse_fraction(frac, frac_len, *unit, &part);
	if (err)
		return err;
	if (part > TIME_MAX_NS - *ns)
		return too_far;
	*ns += part;
	return NULL;
}

const char *parse_duration(const char *s, __u64 *ns)
{
	__u64 sum = 0, part, unit, last = ~0ULL;
	const char *err;

	*ns = 0;
	if (!strcmp(s, "0"))
		return NULL;
	if (*s == '-')
		return "a duration cannot be negative";
	do {
		unit = 0;
		err = parse_part(&s, &unit, &part);
		if (err)
			return err;
		if (unit >= last)
			return "units go from large to small, each once";
		if (part > TIME_MAX_NS - sum)
			return too_far;
		sum += part;
		last = unit;
	} while (*s);
	*ns = sum;
	return NULL;
}

/* mktime() makes 3 March of 31 February; nobody who wrote the latter meant it */
static bool normalised(const struct tm *a, const struct tm *b)
{
	return a->tm_sec != b->tm_sec || a->tm_min != b->tm_min ||
	       a->tm_hour != b->tm_hour || a->tm_mday != b->tm_mday ||
	       a->tm_mon != b->tm_mon || a->tm_year != b->tm_year;
}

static const char *parse_date(const char *s, __u64 *ns)
{
	struct tm tm = { .tm_isdst = -1 }, given;
	__u64 unit = NSEC_PER_SEC, frac = 0;
	const char *err;
	time_t sec;

	s = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);
	if (!s)
		return no_time;
	if (*s == '.') {
		size_t len = strspn(s + 1, DIGITS);

		err = parse_fraction(s + 1, len, unit, &frac);
		if (err)
			return err;
		s += 1 + len;
	}
	if (strcmp(s, "") && strcmp(s, "Z"))
		return no_time;
	given = tm;
	given.tm_isdst = -1;
	tm = given;
	sec = *s ? timegm(&tm) : mktime(&tm);
	if (normalised(&tm, &given))
		return "there is no such time";
	if (sec < 0)
		return "before 1970";
	if ((__u64)sec > TIME_MAX_NS / NSEC_PER_SEC - 1)
		return too_far;
	*ns = (__u64)sec * NSEC_PER_SEC + frac;
	return NULL;
}

static const char *parse_at(const char *s, __u64 *ns)
{
	__u64 unit = NSEC_PER_SEC;
	const char *err;

	if (!isdigit((unsigned char)*s))
		return no_time;
	if (s[strspn(s, DIGITS ".")])
		return parse_date(s, ns);
	err = parse_part(&s, &unit, ns);
	if (err)
		return err == no_duration ? no_time : err;
	return *s ? no_time : NULL;
}

const char *parse_when(const char *s, struct timer_spec *spec)
{
	spec->at = *s == '@';
	if (spec->at)
		return parse_at(s + 1, &spec->when_ns);
	return parse_duration(s, &spec->when_ns);
}

const char *parse_u32(const char *s, __u32 *val)
{
	unsigned long long v;
	char *end;

	if (!isdigit((unsigned char)*s))
		return "not a number above 0";
	errno = 0;
	v = strtoull(s, &end, 10);
	if (*end || !v)
		return "not a number above 0";
	if (errno || v > 0xffffffff)
		return "too large (at most 4294967295)";
	*val = v;
	return NULL;
}

/* Bytes of the UTF-8 character at @s, 0 if it is none */
static int utf8_len(const unsigned char *s)
{
	int i, len = *s < 0x80 ? 1 : *s < 0xc2 ? 0 : *s < 0xe0 ? 2 :
		     *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;

	for (i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* too long a form, a surrogate, beyond U+10FFFF */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

/* Labels go to terminals and into JSON as they are, so they must be harmless */
const char *check_label(const char *s)
{
	const unsigned char *p = (const unsigned char *)s;
	int len;

	if (!*p)
		return "no label";
	for (; *p; p += len) {
		len = utf8_len(p);
		if (!len)
			return "the label is not UTF-8";
		/* U+0080 to U+009F are control characters as well */
		if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] < 0xa0))
			return "the label has a control character";
	}
	return NULL;
}

__u64 last_expiry(const struct timer_spec *spec, __u64 first)
{
	__u64 more = spec->count - 1;

	if (spec->cron)
		return TIME_MAX_NS;
	if (!spec->every_ns)
		return first;
	if (!spec->count || more > (TIME_MAX_NS - first) / spec->every_ns)
		return TIME_MAX_NS;
	return first + more * spec->every_ns;
}

__u64 next_of_cron(const struct cron_spec *cron, __u64 after_ns)
{
	__s64 at = cron_next(&cron->cron, cron->zone,
			     (__s64)(after_ns / NSEC_PER_SEC));

	return at == CRON_NEVER ? TIME_MAX_NS : at * NSEC_PER_SEC;
}

void complain(struct timer_file *file, unsigned int line, const char *what,
	      const char *text)
{
	if (file->bad++ >= COMPLAINTS_MAX)
		return;
	fprintf(stderr, "%s:%u: %s: '", file->name, line, what);
	for (; *text; text++)
		fputc((unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text,
		      stderr);
	fputs("'\n", stderr);
}

/* What is around it may be anything: a file that is no text, say */
static void complain_of_nul(struct timer_file *file, unsigned int line, size_t column)
{
	if (file->bad++ < COMPLAINTS_MAX)
		fprintf(stderr, "%s:%u:%zu: a NUL byte\n", file->name, line, column);
}

/* Where the scan of a line stands, and the text that an error would name */
struct cursor {
	const char *p;
	char text[64];
};

static void next_word(struct cursor *c)
{
	size_t len;

	c->p += strspn(c->p, " \t");
	len = strcspn(c->p, " \t");
	snprintf(c->text, sizeof(c->text), "%.*s", (int)len, c->p);
	/* cut in the middle of a number it would be another number */
	if (len >= sizeof(c->text))
		memcpy(c->text + sizeof(c->text) - 4, "...", 4);
	c->p += len;
}

static bool eat_word(struct cursor *c, const char *word)
{
	size_t len = strlen(word);
	const char *p = c->p + strspn(c->p, " \t");

	if (strncmp(p, word, len) || (p[len] && !strchr(" \t", p[len])))
		return false;
	c->p = p + len;
	return true;
}

static void *xrealloc(void *p, size_t size)
{
	void *new = realloc(p, size);

	if (!new) {
		perror("twheelctl");
		exit(3);
	}
	return new;
}

static char *copy_text(const char *text, size_t len)
{
	char *copy = xrealloc(NULL, len + 1);

	copy[len] = '\0';
	return memcpy(copy, text, len);
}

/* In quotes, as it has blanks; but "@daily" and the like need none */
static const char *parse_expression(struct cursor *c, struct cron_spec *cron)
{
	static char wrong[128];
	struct cron_error e;
	const char *begin;
	size_t len;

	c->p += strspn(c->p, " \t");
	begin = c->p + (*c->p == '"');
	len = strcspn(begin, begin > c->p ? "\"" : " \t");
	snprintf(c->text, sizeof(c->text), "%.*s", (int)len, begin);
	if (*begin != '@' && begin == c->p)
		return "an expression is in quotes, or is @daily and so on";
	if (begin > c->p && begin[len] != '"')
		return "the quote has no end";
	if (len > CRON_MAX)
		return "the expression is longer than 500 characters";
	cron->text = copy_text(begin, len);
	c->p = begin + len + (begin > c->p);
	if (*c->p && !strchr(" \t", *c->p))
		return "there is no blank behind the expression";
	if (cron_parse(&cron->cron, cron->text, &e))
		return NULL;
	snprintf(wrong, sizeof(wrong), "column %u: %s", e.column, e.reason);
	return wrong;
}

static const char *parse_cron(struct cursor *c, struct timer_spec *spec)
{
	struct cron_spec *cron = xrealloc(NULL, sizeof(*cron));
	const char *err;

	memset(cron, 0, sizeof(*cron));
	spec->cron = cron;
	err = parse_expression(c, cron);
	if (err)
		return err;
	if (next_of_cron(cron, 0) == TIME_MAX_NS)
		return "there is no such time";
	if (eat_word(c, "tz")) {
		next_word(c);
		cron->tz = copy_text(c->text, strlen(c->text));
		if (strcmp(cron->tz, "UTC") && zone_open(&cron->zone, cron->tz))
			return "there is no such time zone";
	}
	if (!eat_word(c, "count"))
		return NULL;
	next_word(c);
	return parse_u32(c->text, &spec->count);
}

static const char *parse_delay(struct cursor *c, struct timer_spec *spec)
{
	const char *err;

	next_word(c);
	err = parse_when(c->text, spec);
	if (!err && eat_word(c, "every")) {
		next_word(c);
		err = parse_duration(c->text, &spec->every_ns);
		if (!err && !spec->every_ns)
			err = "an interval cannot be 0";
	}
	if (!err && eat_word(c, "count")) {
		next_word(c);
		err = parse_u32(c->text, &spec->count);
		if (!err && !spec->every_ns)
			err = "count without every";
	}
	return err;
}

static const char *parse_line(struct cursor *c, struct timer_spec *spec)
{
	const char *line = c->p, *err;

	err = eat_word(c, "cron") ? parse_cron(c, spec) : parse_delay(c, spec);
	if (err)
		return err;
	c->p += strspn(c->p, " \t");
	snprintf(c->text, sizeof(c->text), "%s", *c->p ? c->p : line);
	return check_label(c->p);
}

void free_timer(struct timer_spec *spec)
{
	if (spec->cron) {
		zone_close(spec->cron->zone);
		free(spec->cron->text);
		free(spec->cron->tz);
	}
	free(spec->cron);
	free(spec->label);
}

static void add_line(struct timer_file *file, const char *line,
		     unsigned int nr)
{
	struct cursor c = { .p = line };
	struct timer_spec spec = { .line = nr };
	const char *err = parse_line(&c, &spec);

	if (err) {
		complain(file, nr, err, c.text);
		free_timer(&spec);
		return;
	}
	if (!(file->nr & (file->nr - 1)))
		file->v = xrealloc(file->v, (file->nr ? file->nr * 2 : 1) *
				   sizeof(*file->v));
	spec.label = copy_text(c.p, strlen(c.p));
	file->v[file->nr++] = spec;
}

static int load_lines(FILE *in, struct timer_file *file)
{
	unsigned int nr = 0;
	char *line = NULL;
	size_t size = 0;
	ssize_t len;
	const char *p;

	while ((len = getline(&line, &size, in)) >= 0) {
		nr++;
		if (strlen(line) != (size_t)len) {
			complain_of_nul(file, nr, strlen(line) + 1);
			continue;
		}
		while (len && strchr(" \t\r\n", line[len - 1]))
			line[--len] = '\0';
		p = line;
		if (nr == 1 && !strncmp(p, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)))
			p += strlen(BYTE_ORDER_MARK);
		p += strspn(p, " \t");
		if (*p && *p != '#')
			add_line(file, p, nr);
	}
	free(line);
	return ferror(in) ? -errno : 0;
}

/* Returns 0 with the bad lines counted in @file, or a negative errno */
int load_file(const char *path, struct timer_file *file)
{
	bool is_stdin = !strcmp(path, "-");
	FILE *in = is_stdin ? stdin : fopen(path, "re");
	int ret;

	file->name = is_stdin ? "stdin" : path;
	if (!in)
		return -errno;
	ret = load_lines(in, file);
	if (!is_stdin)
		fclose(in);
	return ret;
}
