// SPDX-License-Identifier: GPL-2.0
/*
 * Times of schedules, and the zones that are in use.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "buf.h"
#include "db.h"
#include "schedule.h"

#define SEC_US	INT64_C(1000000)

/* --------------------------------------------------------------------- zones */

/**
 * struct known_zone - a zone that was asked for
 * @next: of all
 * @name: as it was asked for
 * @zone: NULL if there is none
 * @error: then: why
 * @file: what its file was like when it was read: a new one has another inode or time
 */
struct known_zone {
	struct known_zone *next;
	char *name;
	struct zone *zone;
	int error;
	struct stat file;
};

static struct known_zone *known;

/* Files that cannot be looked at are all alike. */
static void look_at_file(const char *name, struct stat *st)
{
	const char *dir = getenv("TZDIR") ?: "/usr/share/zoneinfo";
	struct buf path = {};

	buf_printf(&path, "%s/%s", dir, name);
	if (stat(path.data, st))
		memset(st, 0, sizeof(*st));
	buf_free(&path);
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* Looked at before it is read: what changes in between is found the next time. */
static void read_zone(struct known_zone *k)
{
	look_at_file(k->name, &k->file);
	k->error = zone_open(&k->zone, k->name);
}

const struct zone *zones_get(const char *name, int *error)
{
	struct known_zone *k;

	for (k = known; k && strcmp(k->name, name); k = k->next)
		;
	if (!k) {
		k = xcalloc(1, sizeof(*k));
		k->name = xstrdup(name);
		read_zone(k);
		/* Names that are none would fill the memory: what is asked for is anybody's. */
		if (!k->zone) {
			*error = k->error;
			free(k->name);
			free(k);
			return NULL;
		}
		k->next = known;
		known = k;
	}
	*error = k->error;
	return k->zone;
}

bool zones_check(void)
{
	bool changed = false;
	struct known_zone *k;
	struct stat st;

	for (k = known; k; k = k->next) {
		look_at_file(k->name, &st);
		if (is_same_file(&st, &k->file))
			continue;
		zone_close(k->zone);
		read_zone(k);
		changed = true;
	}
	return changed;
}

/* --------------------------------------------------------------------- times */

static bool set_zone(struct schedule *s, const char *tz, struct bad *bad)
{
	int error;

	if (!tz || !strcmp(tz, "UTC"))
		return true;
	s->zone = zones_get(tz, &error);
	if (s->zone)
		return true;
	if (error == -ENOENT || error == -ENOTDIR || error == -EINVAL)
		return bad_set(bad, 400, "unknown_zone", "tz", "there is no such time zone");
	return bad_set(bad, 503, "unreadable_zone", "tz", "the time zone cannot be read: %s",
		       strerror(-error));
}

bool schedule_set(struct schedule *s, const struct schedule_times *t, struct bad *bad)
{
	struct cron_error e;

	*s = (struct schedule){
		.every_us = t->cron ? 0 : t->every_ms * 1000,
		.count = t->count,
		.start_us = t->start_us,
		.end_us = t->end_us,
	};
	if (!t->cron)
		return s->every_us > 0 || bad_set(bad, 400, "missing_field", "cron",
						  "cron or every_ms is needed");
	if (!cron_parse(&s->cron, t->cron, &e))
		return bad_set(bad, 400, "invalid_cron", "cron", "column %u: %s", e.column,
			       e.reason);
	return set_zone(s, t->tz, bad);
}

/* Rounded down, also before 1970. */
static int64_t unix_seconds(int64_t us)
{
	int64_t unix_us = us + PG_EPOCH_US;

	return unix_us / SEC_US - (unix_us % SEC_US < 0);
}

static int64_t next_of_cron(const struct schedule *s, int64_t after_us)
{
	int64_t at = cron_next(&s->cron, s->zone, unix_seconds(after_us));

	return at == CRON_NEVER ? SCHEDULE_NEVER : at * SEC_US - PG_EPOCH_US;
}

/* The times are those of start + n * every: nothing that is late moves them. */
static int64_t next_of_simple(const struct schedule *s, int64_t after_us)
{
	int64_t n, at;

	if (after_us < s->start_us)
		return s->start_us;
	n = (after_us - s->start_us) / s->every_us + 1;
	if ((s->count && n >= s->count) || __builtin_mul_overflow(n, s->every_us, &at) ||
	    __builtin_add_overflow(at, s->start_us, &at))
		return SCHEDULE_NEVER;
	return at;
}

/* No schedule is before 1970, nor are times up to there of use: it keeps sums from overflow. */
#define FIRST_US	(-PG_EPOCH_US - 1)

int64_t schedule_next(const struct schedule *s, int64_t after_us)
{
	int64_t at;

	if (after_us < FIRST_US)
		after_us = FIRST_US;
	if (after_us >= s->end_us)
		return SCHEDULE_NEVER;
	if (after_us < s->start_us)
		after_us = s->start_us - 1;
	at = s->every_us ? next_of_simple(s, after_us) : next_of_cron(s, after_us);
	return at > s->end_us ? SCHEDULE_NEVER : at;
}

int64_t schedule_last(const struct schedule *s, int64_t after_us, int64_t until_us)
{
	int64_t last = schedule_next(s, after_us), high = until_us, middle, at;

	if (last > until_us)
		return SCHEDULE_NEVER;
	/* None is later than "high". There may be millions of them: none is looked at in turn. */
	while (last < high) {
		middle = last + (high - last) / 2;
		at = schedule_next(s, middle);
		if (at <= until_us)
			last = at;
		else
			high = middle;
	}
	return last;
}

struct schedule_times schedule_times_of(const struct schedule_spec *spec)
{
	return (struct schedule_times){
		.cron = spec->cron,
		.tz = spec->tz,
		.every_ms = spec->every_ms,
		.count = spec->count,
		.start_us = spec->given >> SCHEDULE_START & 1 ? spec->start_us : INT64_MIN,
		.end_us = spec->given >> SCHEDULE_END & 1 ? spec->end_us : INT64_MAX,
	};
}

bool schedule_check(const struct schedule_times *t, int64_t now_us, struct bad *bad)
{
	struct schedule_times times = *t;
	struct schedule s;

	if (t->cron && t->count)
		return bad_set(bad, 400, "conflicting_fields", "count", "does not go with cron");
	if (t->every_ms && t->tz)
		return bad_set(bad, 400, "conflicting_fields", "tz", "does not go with every_ms");
	if (t->end_us <= t->start_us)
		return bad_set(bad, 400, "out_of_range", "end_at", "must be after start_at");
	if (t->every_ms && t->start_us == INT64_MIN)
		times.start_us = now_us + 1;
	if (!schedule_set(&s, &times, bad))
		return false;
	if (schedule_next(&s, now_us) != SCHEDULE_NEVER)
		return true;
	return bad_set(bad, 400, "never_fires", t->end_us <= now_us ? "end_at" :
		       t->cron ? "cron" : "start_at", "there is no such time from now on");
}

void schedule_format(const struct schedule *s, int64_t at_us, char text[TIME_TEXT])
{
	int64_t until;
	int32_t east;
	unsigned int minutes;

	format_time(at_us, text);
	if (!s->zone)
		return;
	east = zone_offset(s->zone, unix_seconds(at_us), &until);
	/* RFC 3339 has offsets of minutes. */
	if (east % 60)
		return;
	minutes = abs(east) / 60;
	format_time(at_us + east * SEC_US, text);
	/* Times in a zone are of whole seconds. */
	snprintf(text + strcspn(text, "."), 7, "%c%02u:%02u", east < 0 ? '-' : '+',
		 minutes / 60 % 100, minutes % 60);
}
