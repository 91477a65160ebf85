// SPDX-License-Identifier: GPL-2.0
/*
 * What requests say. jansson tells whether a body is JSON and what is in it. Payloads are not
 * what it makes of them: they are the bytes that stood in the body, so that no number changes
 * on its way. It keeps the order of members, so the text is followed alongside.
 */
#include <jansson.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"
#include "parse.h"

/*
 * What jansson may have for one body: "[[],[],..." takes forty times its size. A tree is freed
 * before the next body is read.
 */
#define MAX_TREE	(UINT64_C(128) << 20)

/*
 * And how many values, names included: each takes a microsecond, in which the node does nothing
 * else.
 */
#define MAX_VALUES	400000

static size_t tree_used;
static bool tree_refused;	/* jansson does not always say that it had no memory */

static void *tree_malloc(size_t size)
{
	void *p;

	if (size > MAX_TREE - tree_used) {
		tree_refused = true;
		return NULL;
	}
	p = xmalloc(size);
	tree_used += malloc_usable_size(p);
	if (tree_used > MAX_TREE)
		tree_used = MAX_TREE;
	return p;
}

static void tree_free(void *p)
{
	size_t size = malloc_usable_size(p);

	tree_used -= size < tree_used ? size : tree_used;
	free(p);
}

bool bad_set(struct bad *bad, int status, const char *code, const char *field,
	     const char *format, ...)
{
	va_list args;

	bad->status = status;
	bad->code = code;
	snprintf(bad->field, sizeof(bad->field), "%s", field ? field : "");
	va_start(args, format);
	vsnprintf(bad->message, sizeof(bad->message), format, args);
	va_end(args);
	return false;
}

/* The length of the character at @p, 0 if it is none: no surrogates, nothing overlong. */
static size_t utf8_length(const unsigned char *p, size_t len)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	uint32_t c;
	size_t n;

	if (p[0] < 0x80)
		return 1;
	n = p[0] >= 0xf8 ? 0 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc0 ? 2 : 0;
	if (!n || n > len)
		return 0;
	c = p[0] & (0x7f >> n);
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
		return 0;
	return n;
}

/* How many characters, or SIZE_MAX if it is not UTF-8 or has NUL in it. */
static size_t utf8_count(const char *text, size_t len)
{
	size_t nr = 0;

	for (size_t i = 0, n; i < len; i += n, nr++) {
		n = utf8_length((const unsigned char *)text + i, len - i);
		if (!n || !text[i])
			return SIZE_MAX;
	}
	return nr;
}

bool text_is_good(const char *text, size_t len, size_t min, size_t max)
{
	size_t nr = utf8_count(text, len);

	return nr != SIZE_MAX && nr >= min && nr <= max;
}

void json_add(struct buf *b, const char *text, size_t len)
{
	if (utf8_count(text, len) == SIZE_MAX) {
		buf_puts(b, "null");
		return;
	}
	buf_puts(b, "\"");
	for (size_t i = 0; i < len; i++) {
		unsigned char c = text[i];

		if (c < 0x20 || c == 0x7f)
			buf_printf(b, "\\u%04x", c);
		else if (c == '"' || c == '\\')
			buf_printf(b, "\\%c", c);
		else
			buf_add(b, text + i, 1);
	}
	buf_puts(b, "\"");
}

bool parse_digits(const char *text, size_t len, int64_t max, int64_t *value)
{
	int64_t v = 0;

	if (!len || len > 19)
		return false;
	for (size_t i = 0; i < len; i++) {
		int digit = text[i] - '0';

		if (digit < 0 || digit > 9 || v > (max - digit) / 10)
			return false;
		v = v * 10 + digit;
	}
	*value = v;
	return true;
}

/* Days since 1970, of the Gregorian calendar. */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
	/* Years begin in March: so the day that comes and goes is the last. */
	int64_t y = month <= 2 ? year - 1 : year;
	int64_t m = month <= 2 ? month + 9 : month - 3;

	return 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1 - 719468;
}

/* A number of exactly @digits, and what has to be behind it; moves on. */
static bool take_number(const char **p, const char *end, size_t digits, int64_t max, char behind,
			int64_t *value)
{
	if ((size_t)(end - *p) < digits + !!behind || !parse_digits(*p, digits, max, value))
		return false;
	*p += digits;
	if (behind && *(*p)++ != behind)
		return false;
	return true;
}

/* ".5" and so on: up to nine digits, as us, rounded up. */
static bool take_fraction(const char **p, const char *end, int64_t *us)
{
	int64_t ns = 0;
	int digits = 0;

	*us = 0;
	if (*p == end || **p != '.')
		return true;
	for (++*p; *p < end && **p >= '0' && **p <= '9'; ++*p, digits++)
		ns = digits < 9 ? ns * 10 + **p - '0' : ns;
	if (!digits || digits > 9)
		return false;
	for (; digits < 9; digits++)
		ns *= 10;
	*us = (ns + 999) / 1000;
	return true;
}

/* "Z" or "+01:00", as seconds east of Greenwich, to the end. */
static bool take_zone(const char *p, const char *end, int64_t *seconds)
{
	int64_t hour, minute;
	bool west;

	*seconds = 0;
	if (end - p == 1)
		return *p == 'Z' || *p == 'z';
	if (end - p != 6 || (*p != '+' && *p != '-'))
		return false;
	west = *p++ == '-';
	if (!take_number(&p, end, 2, 23, ':', &hour) ||
	    !take_number(&p, end, 2, 59, 0, &minute))
		return false;
	*seconds = (west ? -60 : 60) * (hour * 60 + minute);
	return true;
}

bool parse_time(const char *text, size_t len, int64_t *us)
{
	static const int month_days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int64_t year, month, day, hour, minute, second, fraction, east, unix_us;
	const char *p = text, *end = text + len;
	bool leap;

	if (!take_number(&p, end, 4, 9999, '-', &year) ||
	    !take_number(&p, end, 2, 12, '-', &month) ||
	    !take_number(&p, end, 2, 31, 0, &day) ||
	    p == end || (*p != 'T' && *p != 't'))
		return false;
	p++;
	if (!take_number(&p, end, 2, 23, ':', &hour) ||
	    !take_number(&p, end, 2, 59, ':', &minute) ||
	    !take_number(&p, end, 2, 60, 0, &second) ||	/* 60: a leap second */
	    !take_fraction(&p, end, &fraction) || !take_zone(p, end, &east))
		return false;
	leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
	if (!month || !day || day > month_days[month - 1] + (month == 2 && leap))
		return false;
	unix_us = (days_of(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - east) *
		  1000000 + fraction;
	if (unix_us < 0)
		return false;
	*us = unix_us - PG_EPOCH_US;
	return true;
}

void format_time(int64_t us, char text[TIME_TEXT])
{
	int64_t unix_us = us + PG_EPOCH_US, days, rest, era_day, y, m;

	days = unix_us / INT64_C(86400000000);
	rest = unix_us % INT64_C(86400000000);
	if (rest < 0) {
		rest += INT64_C(86400000000);
		days--;
	}
	/* The other way round: the year of which March begins at or before that day. */
	era_day = days + 719468;
	y = (era_day * 400 + 400) / 146097;
	while (365 * y + y / 4 - y / 100 + y / 400 > era_day)
		y--;
	era_day -= 365 * y + y / 4 - y / 100 + y / 400;
	m = (5 * era_day + 2) / 153;
	snprintf(text, TIME_TEXT, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ",
		 (int)(y + (m >= 10)), (int)(m < 10 ? m + 3 : m - 9),
		 (int)(era_day - (153 * m + 2) / 5 + 1), (int)(rest / INT64_C(3600000000)),
		 (int)(rest / 60000000 % 60), (int)(rest / 1000000 % 60), (int)(rest % 1000000));
}

static void base64_encode(struct buf *out, const unsigned char *data, size_t len)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

	for (size_t i = 0; i < len; i += 3) {
		uint32_t bits = (uint32_t)data[i] << 16;
		char text[4];

		if (i + 1 < len)
			bits |= (uint32_t)data[i + 1] << 8;
		if (i + 2 < len)
			bits |= data[i + 2];
		for (int d = 0; d < 4; d++)
			text[d] = i + d > len ? '=' : digits[bits >> (18 - 6 * d) & 63];
		buf_add(out, text, sizeof(text));
	}
}

static int base64_digit(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* With padding, without blanks, and with no bits left over: one text for each payload. */
static bool base64_decode(const char *text, size_t len, struct buf *out)
{
	uint32_t bits = 0;
	size_t pad = 0;

	if (len % 4)
		return false;
	while (pad < 2 && pad < len && text[len - pad - 1] == '=')
		pad++;
	for (size_t i = 0; i < len; i++) {
		int digit = i < len - pad ? base64_digit(text[i]) : 0;
		char bytes[3];

		if (digit < 0)
			return false;
		bits = bits << 6 | digit;
		if (i % 4 != 3)
			continue;
		bytes[0] = bits >> 16;
		bytes[1] = bits >> 8;
		bytes[2] = bits;
		if (i + 1 == len && ((pad && bytes[2]) || (pad == 2 && bytes[1])))
			return false;
		buf_add(out, bytes, i + 1 == len ? 3 - pad : 3);
		bits = 0;
	}
	return true;
}

/* ------------------------------------------------------------- following the text */

static const char *skip_blanks(const char *p)
{
	return p + strspn(p, " \t\r\n");
}

/* Behind the value at @p, of what is known to be JSON. */
static const char *skip_value(const char *p)
{
	int depth = 0;

	do {
		if (*p == '"') {
			for (p++; *p != '"'; p++)
				p += *p == '\\';
			p++;
		} else if (*p == '[' || *p == '{') {
			depth++;
			p++;
		} else if (*p == ']' || *p == '}') {
			depth--;
			p++;
		} else if (depth) {
			p++;
		} else {
			p += strcspn(p, " \t\r\n,]}");
		}
	} while (depth);
	return p;
}

/* struct member: of an object, while it is gone through */
struct member {
	const char *name;
	json_t *value;
	const char *text;	/* the value as it is in the body */
	size_t len;		/* of that */
};

/* -------------------------------------------------------------------- fields */

enum type { T_TEXT, T_INT, T_BOOL, T_TIME, T_RATE, T_HEADERS, T_JSON, T_BYTES, T_BASE64 };

/**
 * struct field - of an object
 * @name:   in the object
 * @type:   of its value
 * @null:   null is as if it were not there
 * @offset: where in the struct
 * @min:    of a number, or of the characters of a text
 * @max:    the same
 */
struct field {
	const char *name;
	enum type type;
	bool null;
	size_t offset;
	int64_t min, max;
};

static bool wrong_type(struct bad *bad, const char *path, const char *what)
{
	return bad_set(bad, 400, "wrong_type", path, "must be %s", what);
}

static bool field_text(const struct field *f, json_t *v, char **out, const char *path,
		       struct bad *bad)
{
	if (!json_is_string(v))
		return wrong_type(bad, path, "a string");
	if (!text_is_good(json_string_value(v), json_string_length(v), f->min, f->max))
		return bad_set(bad, 400, "out_of_range", path,
			       "must be %d to %d characters, without U+0000",
			       (int)f->min, (int)f->max);
	*out = xstrdup(json_string_value(v));
	return true;
}

static bool field_int(const struct field *f, json_t *v, int64_t *out, const char *path,
		      struct bad *bad)
{
	double real = json_number_value(v);

	if (!json_is_number(v))
		return wrong_type(bad, path, "a whole number");
	if (!(real >= (double)f->min && real <= (double)f->max))
		return bad_set(bad, 400, "out_of_range", path, "must be %lld to %lld",
			       (long long)f->min, (long long)f->max);
	*out = (int64_t)real;
	if ((double)*out != real)
		return wrong_type(bad, path, "a whole number");
	return true;
}

static bool field_time(json_t *v, int64_t *out, const char *path, struct bad *bad)
{
	if (!json_is_string(v))
		return wrong_type(bad, path, "a string");
	if (!parse_time(json_string_value(v), json_string_length(v), out))
		return bad_set(bad, 400, "invalid_time", path,
			       "must be a time of RFC 3339 with a zone, of the years 1970 to 9999");
	return true;
}

/* In events a second; null or 0 for any. The table takes what is above 0. */
static bool field_rate(json_t *v, double *out, const char *path, struct bad *bad)
{
	*out = 0;
	if (json_is_null(v))
		return true;
	if (!json_is_number(v))
		return wrong_type(bad, path, "a number or null");
	*out = json_number_value(v);
	if (*out != 0 && !(*out >= 1e-6 && *out <= 1e6))
		return bad_set(bad, 400, "out_of_range", path,
			       "must be 0.000001 to 1000000, or 0 or null for any");
	return true;
}

static int add_to_buf(const char *data, size_t len, void *arg)
{
	buf_add(arg, data, len);
	return 0;
}

/* What they may be the database says, but that it can have no U+0000. */
static bool field_headers(json_t *v, char **out, const char *path, struct bad *bad)
{
	struct buf text = {};
	const char *name;
	json_t *value;

	if (!json_is_object(v))
		return wrong_type(bad, path, "an object of strings");
	json_object_foreach(v, name, value) {
		if (strlen(json_string_value(value) ?: "") == json_string_length(value))
			continue;
		return bad_set(bad, 400, "invalid_header", path, "must be without U+0000");
	}
	json_dump_callback(v, add_to_buf, &text, JSON_COMPACT);
	*out = text.data;
	return true;
}

static bool too_large(struct bad *bad, const char *path)
{
	return bad_set(bad, 413, "payload_too_large", path, "a payload has at most %d bytes",
		       MAX_PAYLOAD);
}

static bool field_payload(const struct field *f, const struct member *m, struct buf *out,
			  const char *path, struct bad *bad)
{
	const char *data = m->text;
	size_t len = m->len;

	if (f->type != T_JSON) {
		if (!json_is_string(m->value))
			return wrong_type(bad, path, "a string");
		data = json_string_value(m->value);
		len = json_string_length(m->value);
	}
	if (len > (f->type == T_BASE64 ? (MAX_PAYLOAD + 2) / 3 * 4 : MAX_PAYLOAD))
		return too_large(bad, path);
	buf_free(out);
	memset(out, 0, sizeof(*out));
	if (f->type != T_BASE64)
		buf_add(out, data, len);
	else if (!base64_decode(data, len, out))
		return bad_set(bad, 400, "invalid_base64", path,
			       "must be base64 of RFC 4648 with padding");
	return out->len <= MAX_PAYLOAD || too_large(bad, path);
}

static bool field_read(const struct field *f, const struct member *m, void *into,
		       const char *path, struct bad *bad)
{
	void *out = (char *)into + f->offset;

	switch (f->type) {
	case T_TEXT:
		return field_text(f, m->value, out, path, bad);
	case T_INT:
		return field_int(f, m->value, out, path, bad);
	case T_BOOL:
		*(bool *)out = json_is_true(m->value);
		return json_is_boolean(m->value) || wrong_type(bad, path, "true or false");
	case T_TIME:
		return field_time(m->value, out, path, bad);
	case T_RATE:
		return field_rate(m->value, out, path, bad);
	case T_HEADERS:
		return field_headers(m->value, out, path, bad);
	default:
		return field_payload(f, m, out, path, bad);
	}
}

/* Cuts the name of a field that is unknown, and at the end of a character. */
static void field_path(char path[128], const char *prefix, const char *name)
{
	size_t len = snprintf(path, 128, "%s%s", prefix, name);

	if (len < 128)
		return;
	for (len = 127; len && (path[len - 1] & 0xc0) == 0x80; len--)
		;
	if (len && (path[len - 1] & 0x80))
		len--;
	path[len] = '\0';
}

static bool read_member(const struct field *fields, unsigned int nr, const struct member *m,
			const char *prefix, void *into, uint32_t *given, struct bad *bad)
{
	char path[128];
	unsigned int i;

	field_path(path, prefix, m->name);
	for (i = 0; i < nr && strcmp(fields[i].name, m->name); i++)
		;
	if (i == nr)
		return bad_set(bad, 400, "unknown_field", path, "there is no such field");
	if (fields[i].null && json_is_null(m->value))
		return true;
	*given |= UINT32_C(1) << i;
	return field_read(&fields[i], m, into, path, bad);
}

/* @text: the object in the body, NULL if there is none; moves it behind. */
static bool read_object(const struct field *fields, unsigned int nr, json_t *object,
			const char **text, const char *prefix, void *into, uint32_t *given,
			struct bad *bad)
{
	const char *p = text ? *text + 1 : NULL;
	struct member m = {};

	*given = 0;
	json_object_foreach(object, m.name, m.value) {
		if (p) {
			p = skip_blanks(skip_value(skip_blanks(p)));
			m.text = skip_blanks(p + 1);	/* behind the colon */
			p = skip_value(m.text);
			m.len = p - m.text;
			p = skip_blanks(p) + 1;		/* behind the comma */
		}
		if (!read_member(fields, nr, &m, prefix, into, given, bad))
			return false;
	}
	if (text)
		*text = skip_value(*text);
	return true;
}

static json_t *bad_json(const json_error_t *e, struct bad *bad)
{
	const char *code = "invalid_json";

	if (tree_refused) {
		bad_set(bad, 413, "too_complex", NULL, "the body has too many parts");
		return NULL;
	}
	switch (json_error_code(e)) {
	case json_error_duplicate_key:
		code = "duplicate_field";
		break;
	case json_error_stack_overflow:
		code = "too_deep";
		break;
	case json_error_numeric_overflow:
		code = "number_too_large";
		break;
	case json_error_invalid_utf8:
		code = "invalid_utf8";
		break;
	default:
		break;
	}
	/* What jansson says may quote the body, which may be anything: only ASCII is passed on. */
	bad_set(bad, 400, code, NULL, "line %d, column %d: %s", e->line, e->column, e->text);
	for (char *p = bad->message; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e)
			*p = '?';
	return NULL;
}

/* At least how many values and names there are; exactly if it is JSON. */
static size_t count_values(const char *body, size_t len)
{
	const char *p, *end = body + len;
	bool in_text = false;
	size_t nr = 1;

	for (p = body; p < end; p++) {
		if (in_text && *p == '\\')
			p++;
		else if (*p == '"')
			in_text = !in_text;
		else if (!in_text)
			nr += *p == ',' || *p == ':' || *p == '[' || *p == '{';
	}
	return nr;
}

/*
 * Whole numbers are read as reals too: there are larger ones in payloads than 64 bits hold,
 * and those of fields are below 2^53.
 */
static json_t *load(const char *body, size_t len, struct bad *bad)
{
	json_error_t e;
	json_t *root;

	json_set_alloc_funcs(tree_malloc, tree_free);
	tree_refused = count_values(body, len) > MAX_VALUES;
	if (tree_refused)
		return bad_json(NULL, bad);
	root = json_loadb(body, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL |
			  JSON_DECODE_INT_AS_REAL, &e);
	if (!root)
		return bad_json(&e, bad);
	if (json_is_object(root))
		return root;
	json_decref(root);
	bad_set(bad, 400, "wrong_type", NULL, "the body must be an object");
	return NULL;
}

/* A body that is one small object. */
static bool read_body(const char *body, size_t len, const struct field *fields, unsigned int nr,
		      void *into, uint32_t *given, struct bad *bad)
{
	json_t *root = load(body, len, bad);
	bool good;

	if (!root)
		return false;
	good = read_object(fields, nr, root, NULL, "", into, given, bad);
	json_decref(root);
	return good;
}

/* ---------------------------------------------------------------------- jobs */

enum { JOB_F_SERVICE, JOB_F_AT, JOB_F_DELAY, JOB_F_PAYLOAD, JOB_F_BASE64, JOB_F_TEXT };

#define JOB(member) offsetof(struct new_job, member)

static const struct field job_fields[] = {
	{ "service", T_TEXT, false, JOB(service), 1, 100 },
	{ "at", T_TIME, true, JOB(when.at_us), 0, 0 },
	{ "delay_ms", T_INT, true, JOB(when.delay_ms), 0, MAX_DELAY_MS },
	{ "payload", T_JSON, false, JOB(payload), 0, 0 },
	{ "payload_base64", T_BASE64, true, JOB(payload), 0, 0 },
	{ "payload_text", T_BYTES, true, JOB(payload), 0, 0 },
	{ "key", T_TEXT, true, JOB(key), 1, MAX_TEXT },
	{ "order_key", T_TEXT, true, JOB(order_key), 1, MAX_TEXT },
	{ "tag", T_TEXT, true, JOB(tag), 1, MAX_TEXT },
	{ "slack_ms", T_INT, true, JOB(slack_ms), 0, 3600000 },
};

static bool is_given(uint32_t given, int field)
{
	return given >> field & 1;
}

static bool both(struct bad *bad, const char *prefix, const char *field, const char *other)
{
	char path[128];

	field_path(path, prefix, field);
	return bad_set(bad, 400, "conflicting_fields", path, "does not go with %s", other);
}

static bool check_when(uint32_t given, int at, int delay, const char *prefix, struct when *when,
		       struct bad *bad)
{
	when->has_at = is_given(given, at);
	if (when->has_at && is_given(given, delay))
		return both(bad, prefix, "delay_ms", "at");
	return true;
}

/* @field is that of "payload"; the other two are behind it. */
static bool check_payload(uint32_t given, int field, const char *prefix, struct bad *bad)
{
	if (is_given(given, field + 1) && is_given(given, field))
		return both(bad, prefix, "payload_base64", "payload");
	if (is_given(given, field + 2) && (is_given(given, field) || is_given(given, field + 1)))
		return both(bad, prefix, "payload_text", "payload or payload_base64");
	return true;
}

static bool check_job(struct new_job *job, uint32_t given, const char *prefix, struct bad *bad)
{
	char path[128];

	if (!is_given(given, JOB_F_SERVICE)) {
		field_path(path, prefix, "service");
		return bad_set(bad, 400, "missing_field", path, "a job needs a service");
	}
	if (!check_payload(given, JOB_F_PAYLOAD, prefix, bad))
		return false;
	return check_when(given, JOB_F_AT, JOB_F_DELAY, prefix, &job->when, bad);
}

static struct new_job *new_jobs_add(struct new_jobs *jobs)
{
	struct new_job *job;

	if (!(jobs->nr & (jobs->nr - 1)))
		jobs->job = xrealloc(jobs->job, (jobs->nr ? 2 * jobs->nr : 1) *
				     sizeof(*jobs->job));
	job = &jobs->job[jobs->nr++];
	memset(job, 0, sizeof(*job));
	return job;
}

static bool read_job(struct new_jobs *jobs, json_t *object, const char **text, const char *prefix,
		     struct bad *bad)
{
	struct new_job *job = new_jobs_add(jobs);
	uint32_t given;

	return read_object(job_fields, ARRAY_SIZE(job_fields), object, text, prefix, job, &given,
			   bad) &&
	       check_job(job, given, prefix, bad);
}

static bool read_many(struct new_jobs *jobs, json_t *array, const char *text, struct bad *bad)
{
	char prefix[32];
	json_t *object;
	size_t i;

	jobs->many = true;
	if (!json_is_array(array))
		return wrong_type(bad, "jobs", "an array");
	if (!json_array_size(array))
		return bad_set(bad, 400, "out_of_range", "jobs", "must not be empty");
	if (json_array_size(array) > MAX_JOBS)
		return bad_set(bad, 413, "too_many_jobs", "jobs", "must be at most %d", MAX_JOBS);
	json_array_foreach(array, i, object) {
		text = skip_blanks(text + 1);	/* behind the bracket or comma */
		snprintf(prefix, sizeof(prefix), "jobs[%zu]", i);
		if (!json_is_object(object))
			return wrong_type(bad, prefix, "an object");
		snprintf(prefix, sizeof(prefix), "jobs[%zu].", i);
		if (!read_job(jobs, object, &text, prefix, bad))
			return false;
		text = skip_blanks(text);
	}
	return true;
}

static bool read_jobs(struct new_jobs *jobs, json_t *root, const char *body, struct bad *bad)
{
	json_t *array = json_object_get(root, "jobs");
	const char *text = skip_blanks(body), *name;
	json_t *value;

	if (!array)
		return read_job(jobs, root, &text, "", bad);
	json_object_foreach(root, name, value)
		if (value != array)
			return bad_set(bad, 400, "conflicting_fields", "jobs",
				       "does not go with other fields");
	text = skip_blanks(skip_value(skip_blanks(text + 1)));	/* the colon */
	return read_many(jobs, array, skip_blanks(text + 1), bad);
}

bool parse_jobs(const char *body, size_t len, struct new_jobs *jobs, struct bad *bad)
{
	json_t *root = load(body, len, bad);
	bool good;

	if (!root)
		return false;
	good = read_jobs(jobs, root, body, bad);
	json_decref(root);
	if (!good)
		new_jobs_free(jobs);
	return good;
}

/* What an argument says, as the field of an object would. */
static json_t *arg_value(const struct arg *arg)
{
	int64_t number;

	if (strcmp(arg->name, "delay_ms") && strcmp(arg->name, "slack_ms"))
		return json_stringn(arg->value, arg->len);
	if (!parse_digits(arg->value, arg->len, INT64_MAX, &number))
		return json_null();
	return json_real(number);
}

static bool read_args(json_t *object, const struct arg *args, unsigned int nr, struct bad *bad)
{
	for (unsigned int i = 0; i < nr; i++) {
		const struct arg *arg = &args[i];
		json_t *value;

		if (!text_is_good(arg->name, strlen(arg->name), 1, 100) ||
		    !strncmp(arg->name, "payload", 7))
			return bad_set(bad, 400, "unknown_field", "query",
				       "there is no such parameter");
		if (json_object_get(object, arg->name))
			return bad_set(bad, 400, "duplicate_field", arg->name, "appears twice");
		value = arg_value(arg);
		if (!value)
			return bad_set(bad, 400, "invalid_utf8", arg->name, "must be UTF-8");
		if (json_is_null(value))
			return bad_set(bad, 400, "wrong_type", arg->name,
				       "must be a whole number");
		json_object_set_new(object, arg->name, value);
	}
	return true;
}

bool parse_raw_job(const struct arg *args, unsigned int nr, const char *body, size_t len,
		   struct new_jobs *jobs, struct bad *bad)
{
	json_t *object;
	bool good;

	if (len > MAX_PAYLOAD)
		return too_large(bad, NULL);
	json_set_alloc_funcs(tree_malloc, tree_free);
	object = json_object();
	good = read_args(object, args, nr, bad) && read_job(jobs, object, NULL, "", bad);
	json_decref(object);
	if (good)
		buf_add(&jobs->job[0].payload, body, len);
	else
		new_jobs_free(jobs);
	return good;
}

void new_jobs_free(struct new_jobs *jobs)
{
	for (unsigned int i = 0; i < jobs->nr; i++) {
		struct new_job *job = &jobs->job[i];

		free(job->service);
		free(job->key);
		free(job->order_key);
		free(job->tag);
		buf_free(&job->payload);
	}
	free(jobs->job);
	memset(jobs, 0, sizeof(*jobs));
}

/* -------------------------------------------------------------------- others */

#define SPEC(member) offsetof(struct service_spec, member)

/* As check_service() of the schema has it. */
static const struct field service_fields[NR_SERVICE_FIELDS] = {
	[SERVICE_KIND] = { "kind", T_TEXT, false, SPEC(kind), 1, 100 },
	[SERVICE_TARGET] = { "target", T_TEXT, false, SPEC(target), 0, 2000 },
	[SERVICE_HEADERS] = { "headers", T_HEADERS, false, SPEC(headers), 0, 0 },
	[SERVICE_TIMEOUT] = { "timeout_ms", T_INT, false, SPEC(timeout_ms), 1, 3600000 },
	[SERVICE_ACCEPT] = { "accept_ms", T_INT, false, SPEC(accept_ms), 1, 2000000000 },
	[SERVICE_ATTEMPTS] = { "max_attempts", T_INT, false, SPEC(max_attempts), 1, 32000 },
	[SERVICE_BACKOFF] = { "backoff_ms", T_INT, false, SPEC(backoff_ms), 1, 86400000 },
	[SERVICE_BACKOFF_MAX] = { "backoff_max_ms", T_INT, false, SPEC(backoff_max_ms), 1,
				  86400000 },
	[SERVICE_CONCURRENCY] = { "concurrency", T_INT, false, SPEC(concurrency), 1, 100000 },
	[SERVICE_RATE] = { "rate_per_s", T_RATE, false, SPEC(rate_per_s), 0, 0 },
	[SERVICE_DELIVERY] = { "delivery", T_TEXT, false, SPEC(delivery), 1, 100 },
	[SERVICE_NOTIFY] = { "notify", T_BOOL, false, SPEC(notify), 0, 0 },
	[SERVICE_PAUSED] = { "paused", T_BOOL, false, SPEC(paused), 0, 0 },
};

bool service_name_is_good(const char *name)
{
	static const char good[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len = strspn(name, good);

	return len && len <= 100 && !name[len] && !strchr("._-", *name);
}

static bool is_one_of(const char *text, const char *one, const char *other)
{
	return !text || !strcmp(text, one) || !strcmp(text, other);
}

static bool check_service(const struct service_spec *spec, struct bad *bad)
{
	if (!is_one_of(spec->kind, "http", "queue") && strcmp(spec->kind, "amqp"))
		return bad_set(bad, 400, "out_of_range", "kind", "must be http, queue or amqp");
	if (!is_one_of(spec->delivery, "at_least_once", "at_most_once"))
		return bad_set(bad, 400, "out_of_range", "delivery",
			       "must be at_least_once or at_most_once");
	return true;
}

bool parse_service(const char *body, size_t len, struct service_spec *spec, struct bad *bad)
{
	if (read_body(body, len, service_fields, NR_SERVICE_FIELDS, spec, &spec->given, bad) &&
	    check_service(spec, bad))
		return true;
	service_spec_free(spec);
	return false;
}

void service_spec_free(struct service_spec *spec)
{
	free(spec->kind);
	free(spec->target);
	free(spec->headers);
	free(spec->delivery);
	memset(spec, 0, sizeof(*spec));
}

#define TIMES(member) offsetof(struct schedule_spec, member)

/* As the schema has it. */
static const struct field schedule_fields[NR_SCHEDULE_FIELDS] = {
	[SCHEDULE_NAME] = { "schedule", T_TEXT, false, TIMES(name), 1, 100 },
	[SCHEDULE_SERVICE] = { "service", T_TEXT, false, TIMES(service), 1, 100 },
	[SCHEDULE_CRON] = { "cron", T_TEXT, true, TIMES(cron), 1, MAX_TEXT },
	[SCHEDULE_TZ] = { "tz", T_TEXT, true, TIMES(tz), 1, 100 },
	[SCHEDULE_EVERY] = { "every_ms", T_INT, true, TIMES(every_ms), 1, MAX_DELAY_MS },
	[SCHEDULE_COUNT] = { "count", T_INT, true, TIMES(count), 1, INT64_C(1) << 53 },
	[SCHEDULE_START] = { "start_at", T_TIME, true, TIMES(start_us), 0, 0 },
	[SCHEDULE_END] = { "end_at", T_TIME, true, TIMES(end_us), 0, 0 },
	[SCHEDULE_MISFIRE] = { "misfire", T_TEXT, false, TIMES(misfire), 1, 100 },
	[SCHEDULE_MISFIRE_MS] = { "misfire_ms", T_INT, false, TIMES(misfire_ms), 1000, 86400000 },
	[SCHEDULE_OVERLAP] = { "overlap", T_TEXT, false, TIMES(overlap), 1, 100 },
	[SCHEDULE_BROADCAST] = { "broadcast", T_BOOL, false, TIMES(broadcast), 0, 0 },
	[SCHEDULE_SLACK] = { "slack_ms", T_INT, true, TIMES(slack_ms), 0, 3600000 },
	[SCHEDULE_PAYLOAD] = { "payload", T_JSON, false, TIMES(payload), 0, 0 },
	[SCHEDULE_BASE64] = { "payload_base64", T_BASE64, true, TIMES(payload), 0, 0 },
	[SCHEDULE_TEXT] = { "payload_text", T_BYTES, true, TIMES(payload), 0, 0 },
	[SCHEDULE_PAUSED] = { "paused", T_BOOL, false, TIMES(paused), 0, 0 },
};

static bool check_schedule(const struct schedule_spec *spec, const char *prefix, struct bad *bad)
{
	char path[128];

	if (!is_one_of(spec->misfire, "smart", "fire_now") &&
	    !is_one_of(spec->misfire, "do_nothing", "ignore")) {
		field_path(path, prefix, "misfire");
		return bad_set(bad, 400, "out_of_range", path,
			       "must be smart, fire_now, do_nothing or ignore");
	}
	if (!is_one_of(spec->overlap, "allow", "skip") &&
	    !is_one_of(spec->overlap, "queue", "queue")) {
		field_path(path, prefix, "overlap");
		return bad_set(bad, 400, "out_of_range", path, "must be allow, skip or queue");
	}
	if (spec->cron && spec->every_ms)
		return both(bad, prefix, "every_ms", "cron");
	if (spec->cron && spec->count)
		return both(bad, prefix, "count", "cron");
	if (spec->every_ms && spec->tz)
		return both(bad, prefix, "tz", "every_ms");
	return check_payload(spec->given, SCHEDULE_PAYLOAD, prefix, bad);
}

static bool read_schedule(struct schedule_spec *spec, json_t *object, const char **text,
			  const char *prefix, struct bad *bad)
{
	for (unsigned int i = 0; i < NR_SCHEDULE_FIELDS; i++)
		if (schedule_fields[i].null &&
		    json_is_null(json_object_get(object, schedule_fields[i].name)))
			spec->nulls |= UINT32_C(1) << i;
	return read_object(schedule_fields, NR_SCHEDULE_FIELDS, object, text, prefix, spec,
			   &spec->given, bad) &&
	       check_schedule(spec, prefix, bad);
}

bool parse_schedule(const char *body, size_t len, struct schedule_spec *spec, struct bad *bad)
{
	const char *text = skip_blanks(body);
	json_t *root = load(body, len, bad);
	bool good;

	if (!root)
		return false;
	good = read_schedule(spec, root, &text, "", bad);
	json_decref(root);
	if (!good)
		schedule_spec_free(spec);
	return good;
}

static int compare_names(const void *a, const void *b)
{
	const struct schedule_spec *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

static bool check_names(const struct schedule_spec *specs, unsigned int nr, struct bad *bad)
{
	const struct schedule_spec **sorted = xmalloc((nr + 1) * sizeof(*sorted));
	bool good = true;
	unsigned int i;

	for (i = 0; i < nr; i++)
		sorted[i] = &specs[i];
	qsort(sorted, nr, sizeof(*sorted), compare_names);
	for (i = 1; i < nr && good; i++)
		if (!compare_names(&sorted[i - 1], &sorted[i]))
			good = bad_set(bad, 400, "duplicate_schedule", "schedules",
				       "there are two with the name %s", sorted[i]->name);
	free(sorted);
	return good;
}

static bool read_schedules(json_t *array, const char *text, struct schedule_spec *specs,
			   unsigned int nr, struct bad *bad)
{
	char prefix[64];

	for (unsigned int i = 0; i < nr; i++) {
		json_t *object = json_array_get(array, i);

		text = skip_blanks(text + 1);	/* behind the bracket or comma */
		snprintf(prefix, sizeof(prefix), "schedules[%u]", i);
		if (!json_is_object(object))
			return wrong_type(bad, prefix, "an object");
		snprintf(prefix, sizeof(prefix), "schedules[%u].", i);
		if (!read_schedule(&specs[i], object, &text, prefix, bad))
			return false;
		if (!specs[i].name || !service_name_is_good(specs[i].name)) {
			field_path(bad->field, prefix, "schedule");
			return bad_set(bad, 400, "missing_field", strdupa(bad->field),
				       "must be a name of letters, digits and, not first, "
				       "._-");
		}
		text = skip_blanks(text);
	}
	return check_names(specs, nr, bad);
}

bool parse_schedules(const char *body, size_t len, struct schedule_spec **specs,
		     unsigned int *nr, struct bad *bad)
{
	json_t *root = load(body, len, bad), *array;
	const char *text = skip_blanks(body);
	bool good;

	*specs = NULL;
	*nr = 0;
	if (!root)
		return false;
	array = json_object_get(root, "schedules");
	if (!json_is_array(array) || json_object_size(root) != 1) {
		good = bad_set(bad, 400, "wrong_type", "schedules",
			       "must be the only member, and an array");
	} else if (json_array_size(array) > MAX_SCHEDULES) {
		good = bad_set(bad, 413, "too_many_schedules", "schedules", "must be at most %d",
			       MAX_SCHEDULES);
	} else {
		*nr = json_array_size(array);
		*specs = xcalloc(*nr + 1, sizeof(**specs));
		text = skip_blanks(skip_value(skip_blanks(text + 1)));	/* the colon */
		good = read_schedules(array, skip_blanks(text + 1), *specs, *nr, bad);
	}
	json_decref(root);
	if (!good) {
		schedule_specs_free(*specs, *nr);
		*specs = NULL;
		*nr = 0;
	}
	return good;
}

void schedule_spec_free(struct schedule_spec *spec)
{
	free(spec->name);
	free(spec->service);
	free(spec->cron);
	free(spec->tz);
	free(spec->misfire);
	free(spec->overlap);
	buf_free(&spec->payload);
	memset(spec, 0, sizeof(*spec));
}

void schedule_specs_free(struct schedule_spec *specs, unsigned int nr)
{
	for (unsigned int i = 0; i < nr; i++)
		schedule_spec_free(&specs[i]);
	free(specs);
}

/* What would be read as another payload, or not at all, is not. */
static bool is_read_as_json(const char *data, size_t len)
{
	struct schedule_spec *specs;
	struct buf text = {};
	struct bad bad;
	unsigned int nr;
	bool same;

	buf_puts(&text, "{\"schedules\": [{\"schedule\": \"x\", \"payload\": ");
	buf_add(&text, data, len);
	buf_puts(&text, "}]}");
	same = parse_schedules(text.data, text.len, &specs, &nr, &bad) && nr == 1 &&
	       specs[0].payload.len == len && !memcmp(specs[0].payload.data, data, len);
	schedule_specs_free(specs, nr);
	buf_free(&text);
	return same;
}

void json_add_payload(struct buf *b, const char *data, size_t len)
{
	if (!len)
		return;
	if (is_read_as_json(data, len)) {
		buf_puts(b, ",\"payload\":");
		buf_add(b, data, len);
	} else if (utf8_count(data, len) != SIZE_MAX) {
		buf_puts(b, ",\"payload_text\":");
		json_add(b, data, len);
	} else {
		buf_puts(b, ",\"payload_base64\":\"");
		base64_encode(b, (const unsigned char *)data, len);
		buf_puts(b, "\"");
	}
}

bool parse_move(const char *body, size_t len, struct when *when, struct bad *bad)
{
	static const struct field fields[] = {
		{ "at", T_TIME, true, offsetof(struct when, at_us), 0, 0 },
		{ "delay_ms", T_INT, true, offsetof(struct when, delay_ms), 0, MAX_DELAY_MS },
	};
	uint32_t given;

	if (!read_body(body, len, fields, ARRAY_SIZE(fields), when, &given, bad) ||
	    !check_when(given, 0, 1, "", when, bad))
		return false;
	return given || bad_set(bad, 400, "missing_field", "at", "at or delay_ms is needed");
}

bool parse_report(const char *body, size_t len, struct report *report, struct bad *bad)
{
	static const struct field fields[] = {
		{ "outcome", T_TEXT, false, offsetof(struct report, outcome), 1, 100 },
		{ "message", T_TEXT, true, offsetof(struct report, message), 0, 1000 },
	};
	uint32_t given;
	bool good;

	good = read_body(body, len, fields, ARRAY_SIZE(fields), report, &given, bad);
	if (good && !report->outcome)
		good = bad_set(bad, 400, "missing_field", "outcome", "must be done or failed");
	else if (good && !is_one_of(report->outcome, "done", "failed"))
		good = bad_set(bad, 400, "out_of_range", "outcome", "must be done or failed");
	if (!good)
		report_free(report);
	else
		report->done = !strcmp(report->outcome, "done");
	return good;
}

void report_free(struct report *report)
{
	free(report->outcome);
	free(report->message);
	memset(report, 0, sizeof(*report));
}
