// SPDX-License-Identifier: GPL-2.0
/*
 * What a rehearsal comes to, as text or as JSON, and the difference of two lists.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db.h"
#include "twjob-rehearse.h"

#define SEC_US		INT64_C(1000000)
#define MINUTE_US	(60 * SEC_US)
#define EXAMPLES	3	/* of instants that come or go */
#define NAMES		3	/* of the schedules of a busy minute */

/* -------------------------------------------------------------------- texts */

static int64_t unix_seconds(int64_t us)
{
	int64_t unix_us = us + PG_EPOCH_US;

	return unix_us / SEC_US - (unix_us % SEC_US < 0);
}

static int stamp_local(int64_t local, int64_t us, char text[STAMP_TEXT])
{
	int64_t year, time = (local % 86400 + 86400) % 86400;
	int month, day, len;

	date_of_days((local - time) / 86400, &year, &month, &day);
	len = snprintf(text, STAMP_TEXT, "%04d-%02d-%02dT%02d:%02d:%02d", (int)year, month, day,
		       (int)(time / 3600), (int)(time / 60 % 60), (int)(time % 60));
	us = ((us % SEC_US) + SEC_US) % SEC_US;
	if (us % 1000)
		len += snprintf(text + len, STAMP_TEXT - len, ".%06d", (int)us);
	else if (us)
		len += snprintf(text + len, STAMP_TEXT - len, ".%03d", (int)(us / 1000));
	return len;
}

const char *stamp(const struct zone *z, int64_t us, char text[STAMP_TEXT])
{
	int64_t at = unix_seconds(us), until;
	int32_t offset = zone_offset(z, at, &until), minutes = abs(offset) / 60;
	int len = stamp_local(at + offset, us, text);

	if (!z)
		snprintf(text + len, STAMP_TEXT - len, "Z");
	else
		snprintf(text + len, STAMP_TEXT - len, "%c%02d:%02d", offset < 0 ? '-' : '+',
			 minutes / 60, minutes % 60);
	return text;
}

static const char *time_of_day(int64_t local, char text[STAMP_TEXT])
{
	int time = (int)((local % 86400 + 86400) % 86400);

	snprintf(text, STAMP_TEXT, "%02d:%02d:%02d", time / 3600, time / 60 % 60, time % 60);
	return text;
}

const char *span_text(int64_t us, char text[STAMP_TEXT])
{
	static const struct {
		int64_t us;
		const char *name;
	} units[] = {
		{ 86400 * SEC_US, "d" }, { 3600 * SEC_US, "h" }, { MINUTE_US, "min" },
		{ SEC_US, "s" }, { 1000, "ms" }, { 1, "us" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(units) - 1 && (us % units[i].us || !us); i++)
		;
	snprintf(text, STAMP_TEXT, "%" PRId64 " %s", us / units[i].us, units[i].name);
	return text;
}

/* "1,234,567", of one of eight buffers that take turns */
static const char *grouped(uint64_t nr)
{
	static char texts[8][32];
	static unsigned int turn;
	char *text = texts[turn++ % 8], *p = text + 31;
	int digits = 0;

	*p = '\0';
	do {
		if (digits && digits % 3 == 0)
			*--p = ',';
		*--p = (char)('0' + nr % 10);
		digits++;
	} while (nr /= 10);
	return p;
}

static const char *service_of(const struct rehearsed *s)
{
	return s->spec->service ?: "";
}

/* -------------------------------------------------------------- clocks are set */

static int compare_changes(const void *a, const void *b)
{
	const struct zone_change *x = a, *y = b;

	if (x->change.at_us != y->change.at_us)
		return x->change.at_us < y->change.at_us ? -1 : 1;
	return strcmp(x->tz, y->tz);
}

static bool is_zone_of(const struct rehearsed *s)
{
	return s->state == REHEARSED_GOOD && s->times.zone;
}

uint32_t zone_changes(const struct rehearsal *r, struct zone_change **v)
{
	uint32_t i, j, nr = 0, nr_zones = 0;
	struct zone_change zone, *zones = xcalloc(r->nr + 1, sizeof(*zones));

	*v = NULL;
	for (i = 0; i < r->nr; i++) {
		const struct rehearsed *s = &r->v[i];

		if (!is_zone_of(s))
			continue;
		for (j = 0; j < nr_zones && zones[j].zone != s->times.zone; j++)
			;
		if (j == nr_zones)
			zones[nr_zones++] = (struct zone_change){
				.tz = s->spec->tz, .zone = s->times.zone,
			};
	}
	for (i = 0; i < nr_zones; i++) {
		zone = zones[i];
		zone.change.at_us = r->from_us - 1;
		while (clock_change_next(zone.zone, zone.change.at_us, r->to_us, &zone.change)) {
			if (!(nr & (nr - 1)))
				*v = xrealloc(*v, (nr ? 2 * nr : 1) * sizeof(**v));
			(*v)[nr++] = zone;
		}
	}
	if (nr)
		qsort(*v, nr, sizeof(**v), compare_changes);
	free(zones);
	return nr;
}

static bool is_skipped(const struct zone_change *z)
{
	return z->change.after > z->change.before;
}

/* Several local times become one, as does one that is due there in any case. */
static bool is_merged(const struct rehearsed *s, const struct zone_change *z,
		      const struct clock_effect *e)
{
	int64_t local = unix_seconds(z->change.at_us) + z->change.after;

	return e->times > 1 || cron_next(&s->times.cron, NULL, local - 1) == local;
}

static void print_effect(const struct rehearsed *s, const struct zone_change *z,
			 const struct clock_effect *e)
{
	char first[STAMP_TEXT], last[STAMP_TEXT], at[STAMP_TEXT];
	bool one = e->times == 1;

	printf("    %s: %s", s->spec->name, time_of_day(e->first, first));
	if (e->times > 1)
		printf(" to %s (%s times)", time_of_day(e->last, last), grouped(e->times));
	if (!is_skipped(z)) {
		printf(one ? " occurs twice: it fires the first time\n" :
		       " occur twice: they fire the first time\n");
		return;
	}
	printf(one ? " is skipped: it " : " are skipped: they ");
	if (e->fires_us == SCHEDULE_NEVER)
		printf(one ? "does not fire\n" : "do not fire\n");
	else
		printf("%s at %s instead%s\n", one ? "fires" : "fire",
		       stamp(z->zone, e->fires_us, at), is_merged(s, z, e) ? ", once" : "");
}

static void json_effect(const struct rehearsed *s, const struct zone_change *z,
			const struct clock_effect *e)
{
	char first[STAMP_TEXT], last[STAMP_TEXT], at[STAMP_TEXT];
	struct buf b = {};

	buf_puts(&b, "{\"type\":\"clock_effect\",\"schedule\":");
	json_add(&b, s->spec->name, strlen(s->spec->name));
	buf_printf(&b, ",\"tz\":\"%s\",\"at\":\"%s\",\"effect\":\"%s\",\"times\":%" PRIu64
		   ",\"first\":\"%s\",\"last\":\"%s\"", z->tz, stamp(z->zone, z->change.at_us, at),
		   is_skipped(z) ? "skipped" : "twice", e->times,
		   time_of_day(e->first, first), time_of_day(e->last, last));
	if (is_skipped(z) && e->fires_us != SCHEDULE_NEVER)
		buf_printf(&b, ",\"fires_at\":\"%s\",\"merged\":%s",
			   stamp(z->zone, e->fires_us, at), is_merged(s, z, e) ? "true" : "false");
	printf("%s}\n", b.data);
	buf_free(&b);
}

static void report_change(const struct rehearsal *r, const struct view *view,
			  const struct zone_change *z)
{
	uint64_t real_time = 0, others = 0;
	struct clock_effect effect;
	uint32_t i;

	for (i = 0; i < r->nr; i++) {
		const struct rehearsed *s = &r->v[i];

		if (!is_zone_of(s) || s->times.zone != z->zone)
			continue;
		if (clock_effect_get(s, &z->change, &effect))
			(view->json ? json_effect : print_effect)(s, z, &effect);
		else if (s->times.cron.real_time)
			real_time++;
		else
			others++;
	}
	if (view->json)
		return;
	if (real_time)
		printf("    %s follow%s real time\n", grouped(real_time),
		       real_time == 1 ? "s" : "");
	if (others)
		printf("    %s %s not affected\n", grouped(others), others == 1 ? "is" : "are");
}

static void report_changes(const struct rehearsal *r, const struct view *view)
{
	char at[STAMP_TEXT], local[STAMP_TEXT];
	struct zone_change *v;
	uint32_t i, nr = zone_changes(r, &v);

	if (nr && !view->json)
		puts("\nClock changes");
	for (i = 0; i < nr; i++) {
		const struct zone_change *z = &v[i];

		stamp(z->zone, z->change.at_us, at);
		if (view->json) {
			printf("{\"type\":\"clocks\",\"tz\":\"%s\",\"at\":\"%s\",\"before_s\":%d,"
			       "\"after_s\":%d}\n", z->tz, at, z->change.before, z->change.after);
		} else {
			stamp_local(unix_seconds(z->change.at_us) + z->change.before, 0, local);
			printf("  %s  %s to %s\n", z->tz, local, at);
		}
		report_change(r, view, z);
	}
	free(v);
}

/* -------------------------------------------------------------- busiest of all */

struct share {
	const struct rehearsed *s;
	uint64_t fires;
};

/* The schedules that have most of it, in that order; how many there are besides. */
static uint32_t shares_of(const struct rehearsal *r, const struct busy *b, int64_t span_us,
			  struct share top[NAMES])
{
	int64_t to_us = b->at_us + span_us < r->to_us ? b->at_us + span_us : r->to_us;
	uint32_t i, nr = 0;
	struct share share;
	int j;

	memset(top, 0, NAMES * sizeof(*top));
	for (i = 0; i < r->nr; i++) {
		share.s = &r->v[i];
		if (share.s->state != REHEARSED_GOOD)
			continue;
		share.fires = rehearse_count(share.s, b->at_us, to_us, UINT64_MAX);
		nr += share.fires > 0;
		if (share.fires <= top[NAMES - 1].fires)
			continue;
		for (j = NAMES - 1; j && top[j - 1].fires < share.fires; j--)
			top[j] = top[j - 1];
		top[j] = share;
	}
	return nr > NAMES ? nr - NAMES : 0;
}

static void print_busy(const struct rehearsal *r, const struct view *view, const char *title,
		       const struct busy v[REHEARSE_TOP], int64_t span_us)
{
	char text[STAMP_TEXT];
	struct share top[NAMES];
	uint32_t more;
	int i, j;

	printf("\n%s\n", title);
	for (i = 0; i < REHEARSE_TOP && v[i].fires; i++) {
		more = shares_of(r, &v[i], span_us, top);
		printf("  %s  %6s  ", stamp(view->zone, v[i].at_us, text), grouped(v[i].fires));
		for (j = 0; j < NAMES && top[j].fires; j++) {
			printf("%s%s", j ? ", " : "", top[j].s->spec->name);
			if (top[j].fires > 1)
				printf(" (%s)", grouped(top[j].fires));
		}
		if (more)
			printf(" and %s more", grouped(more));
		putchar('\n');
	}
}

static void json_busy(const struct view *view, const char *type,
		      const struct busy v[REHEARSE_TOP])
{
	char text[STAMP_TEXT];
	int i;

	for (i = 0; i < REHEARSE_TOP && v[i].fires; i++)
		printf("{\"type\":\"busy_%s\",\"at\":\"%s\",\"fires\":%" PRIu64 "}\n", type,
		       stamp(view->zone, v[i].at_us, text), v[i].fires);
}

/* -------------------------------------------------------------------- schedules */

static bool is_ended(const struct rehearsed *s)
{
	return s->fires && s->next_us == SCHEDULE_NEVER;
}

/* Columns of a text of UTF-8; names of schedules are ASCII. */
static int name_columns(const struct rehearsal *r)
{
	int columns = 8;
	uint32_t i;

	for (i = 0; i < r->nr; i++) {
		int len = (int)strlen(r->v[i].spec->name);

		if (r->v[i].fires && len > columns)
			columns = len;
	}
	return columns < 32 ? columns : 32;
}

static void print_schedules(const struct rehearsal *r, const struct view *view)
{
	int columns = name_columns(r), stamps = view->zone ? 25 : 20;
	char first[STAMP_TEXT], last[STAMP_TEXT];
	uint32_t i;

	printf("\n%-*s %11s  %-*s  %s\n", columns, "Schedule", "fires", stamps, "first", "last");
	for (i = 0; i < r->nr; i++) {
		const struct rehearsed *s = &r->v[i];

		if (s->fires)
			printf("%-*s %11s  %-*s  %s%s\n", columns, s->spec->name,
			       grouped(s->fires), stamps, stamp(view->zone, s->first_us, first),
			       stamp(view->zone, s->last_us, last),
			       is_ended(s) ? ", its end" : "");
	}
}

/* Those that are paused would fire if they were not. */
static void print_silent(const struct rehearsal *r, const struct view *view)
{
	bool titled = false;
	char text[STAMP_TEXT];
	uint32_t i;

	for (i = 0; i < r->nr; i++) {
		const struct rehearsed *s = &r->v[i];
		int64_t next = s->next_us;

		if (s->state == REHEARSED_WRONG || s->fires)
			continue;
		if (!titled)
			puts("\nNot in this time");
		titled = true;
		if (s->state == REHEARSED_PAUSED)
			printf("  %s: is paused\n", s->spec->name);
		else if (next == SCHEDULE_NEVER)
			printf("  %s: has ended before\n", s->spec->name);
		else
			printf("  %s: not before %s\n", s->spec->name,
			       stamp(view->zone, next, text));
	}
}

static void print_wrong(const struct rehearsal *r, const struct view *view)
{
	bool titled = false;
	uint32_t i;

	for (i = 0; i < r->nr; i++) {
		const struct rehearsed *s = &r->v[i];

		if (s->state != REHEARSED_WRONG)
			continue;
		if (!titled)
			printf("\n%sWrong%s\n", view->colour ? "\033[1;31m" : "",
			       view->colour ? "\033[0m" : "");
		titled = true;
		printf("  %s: %s", s->spec->name, s->bad.field);
		if (!strcmp(s->bad.field, "cron") && s->spec->cron) {
			char *cron = xstrdup(s->spec->cron);

			clean(cron);
			printf(" '%s'", cron);
			free(cron);
		}
		printf(": %s\n", s->bad.message);
	}
}

static void json_schedule(const struct rehearsed *s, const struct view *view)
{
	static const char *const states[] = { "good", "paused", "wrong" };
	char text[STAMP_TEXT];
	struct buf b = {};

	buf_puts(&b, "{\"type\":\"schedule\",\"schedule\":");
	json_add(&b, s->spec->name, strlen(s->spec->name));
	buf_puts(&b, ",\"service\":");
	json_add(&b, service_of(s), strlen(service_of(s)));
	buf_printf(&b, ",\"state\":\"%s\",\"fires\":%" PRIu64, states[s->state], s->fires);
	if (s->fires) {
		buf_printf(&b, ",\"first\":\"%s\"", stamp(view->zone, s->first_us, text));
		buf_printf(&b, ",\"last\":\"%s\"", stamp(view->zone, s->last_us, text));
	}
	if (s->state == REHEARSED_GOOD) {
		buf_printf(&b, ",\"next\":%s", s->next_us == SCHEDULE_NEVER ? "null" : "\"");
		if (s->next_us != SCHEDULE_NEVER)
			buf_printf(&b, "%s\"", stamp(view->zone, s->next_us, text));
	}
	if (s->state == REHEARSED_GOOD && s->takes_us) {
		buf_printf(&b, ",\"takes_us\":%" PRId64 ",\"most_at_a_time\":%" PRIu64
			   ",\"overlaps\":%" PRIu64 ",\"most_waiting\":%" PRIu64, s->takes_us,
			   s->most, s->overlaps, s->most_waiting);
		if (s->overlaps)
			buf_printf(&b, ",\"first_overlap\":\"%s\"",
				   stamp(view->zone, s->overlap_us, text));
	}
	if (s->state == REHEARSED_WRONG) {
		buf_printf(&b, ",\"code\":\"%s\",\"field\":\"%s\",\"message\":", s->bad.code,
			   s->bad.field);
		json_add(&b, s->bad.message, strlen(s->bad.message));
	}
	printf("%s}\n", b.data);
	buf_free(&b);
}

/* ---------------------------------------------------------------------- overlaps */

static void print_overlap(const struct rehearsed *s, const struct view *view)
{
	const char *overlap = s->spec->overlap ?: "allow";
	char text[STAMP_TEXT];

	printf("  %s: was due %s times while it ran, first at %s: ", s->spec->name,
	       grouped(s->overlaps), stamp(view->zone, s->overlap_us, text));
	if (!strcmp(overlap, "skip"))
		puts("those are skipped");
	else if (!strcmp(overlap, "queue"))
		printf("up to %s wait\n", grouped(s->most_waiting));
	else
		printf("up to %s at a time\n", grouped(s->most));
}

static void print_overlaps(const struct rehearsal *r, const struct view *view)
{
	bool titled = false;
	char text[STAMP_TEXT];
	uint32_t i;

	if (!view->takes) {
		puts("\nWith --takes NAME=DURATION it tells what overlaps.");
		return;
	}
	for (i = 0; i < r->nr; i++) {
		if (!r->v[i].overlaps)
			continue;
		if (!titled)
			puts("\nOverlaps");
		titled = true;
		print_overlap(&r->v[i], view);
	}
	puts("\nJobs at a time, by service");
	for (i = 0; i < r->nr_services; i++) {
		const struct rehearsed_service *s = &r->service[i];

		if (!s->most)
			continue;
		printf("  %s: up to %s of %s, first at %s\n", *s->name ? s->name : "(none)",
		       grouped(s->most), grouped((uint64_t)s->concurrency),
		       stamp(view->zone, s->most_us, text));
		if (s->exceeded)
			printf("    %s begin while %s run already, first at %s: they wait\n",
			       grouped(s->exceeded), grouped((uint64_t)s->concurrency),
			       stamp(view->zone, s->exceeded_us, text));
	}
}

static void json_services(const struct rehearsal *r, const struct view *view)
{
	char text[STAMP_TEXT];
	uint32_t i;

	for (i = 0; i < r->nr_services; i++) {
		const struct rehearsed_service *s = &r->service[i];
		struct buf b = {};

		if (!s->most)
			continue;
		buf_puts(&b, "{\"type\":\"service\",\"service\":");
		json_add(&b, s->name, strlen(s->name));
		buf_printf(&b, ",\"concurrency\":%" PRId64 ",\"most_at_a_time\":%" PRIu64
			   ",\"most_at\":\"%s\",\"exceeded\":%" PRIu64, s->concurrency, s->most,
			   stamp(view->zone, s->most_us, text), s->exceeded);
		if (s->exceeded)
			buf_printf(&b, ",\"first_exceeded\":\"%s\"",
				   stamp(view->zone, s->exceeded_us, text));
		printf("%s}\n", b.data);
		buf_free(&b);
	}
}

/* ---------------------------------------------------------------------- all of it */

static void report_json(const struct rehearsal *r, const struct view *view)
{
	char from[STAMP_TEXT], to[STAMP_TEXT];
	uint32_t i;

	for (i = 0; i < r->nr; i++)
		json_schedule(&r->v[i], view);
	json_busy(view, "minute", r->minutes);
	json_busy(view, "second", r->seconds);
	report_changes(r, view);
	json_services(r, view);
	printf("{\"type\":\"sum\",\"from\":\"%s\",\"to\":\"%s\",\"tz\":\"%s\",\"schedules\":%u,"
	       "\"fires\":%" PRIu64 ",\"real_ms\":%" PRIu64 "}\n",
	       stamp(view->zone, r->from_us, from), stamp(view->zone, r->to_us, to), view->tz,
	       r->nr, r->fires, view->real_ns / 1000000);
}

void report(const struct rehearsal *r, const struct view *view)
{
	char from[STAMP_TEXT], to[STAMP_TEXT];

	if (view->json) {
		report_json(r, view);
		return;
	}
	printf("%s schedules from %s to %s, %s\n", grouped(r->nr),
	       stamp(view->zone, r->from_us, from), stamp(view->zone, r->to_us, to), view->tz);
	printf("fire %s times: %.4g a minute, up to %s in a minute and %s in a second\n",
	       grouped(r->fires), (double)r->fires * MINUTE_US / (double)(r->to_us - r->from_us),
	       grouped(r->minutes[0].fires), grouped(r->seconds[0].fires));
	if (r->fires) {
		chart_print(r, view);
		print_busy(r, view, "Busiest minutes", r->minutes, MINUTE_US);
		print_busy(r, view, "Busiest seconds", r->seconds, SEC_US);
		print_schedules(r, view);
	}
	report_changes(r, view);
	if (r->fires)
		print_overlaps(r, view);
	print_silent(r, view);
	print_wrong(r, view);
}

/* ------------------------------------------------------------------- differences */

/**
 * struct pair - a schedule, old and new
 * @name:  of both
 * @side:  those, of which one may be NULL
 * @fired: which of them have been at this instant
 * @nr:    instants that only the first has, only the second, and both
 * @first: of the first two: some
 */
struct pair {
	const char *name;
	struct rehearsed *side[2];
	bool fired[2];
	uint64_t nr[3];
	int64_t first[2][EXAMPLES];
};

enum { GOES, COMES, STAYS };

/* struct diff: pairs, and those of this instant */
struct diff {
	struct view *view;
	uint32_t nr_old;
	struct pair *pairs;
	uint32_t nr;
	struct pair **touched;
	uint32_t nr_touched;
	bool list;
};

static void touch(struct rehearsal *r, struct rehearsed *s, int64_t at_us)
{
	struct diff *d = r->arg;
	struct pair *p = s->arg;

	(void)at_us;
	if (!p->fired[0] && !p->fired[1])
		d->touched[d->nr_touched++] = p;
	p->fired[s - r->v >= d->nr_old] = true;
}

static void print_instant(const struct diff *d, const struct pair *p, int what, int64_t at_us)
{
	static const char *const words[] = { "goes", "comes" };
	char text[STAMP_TEXT];

	stamp(d->view->zone, at_us, text);
	if (d->view->json)
		printf("{\"type\":\"%s\",\"at\":\"%s\",\"schedule\":\"%s\"}\n", words[what], text,
		       p->name);
	else
		printf("%c %s  %s\n", what == GOES ? '-' : '+', text, p->name);
}

static void settle(struct rehearsal *r, int64_t at_us)
{
	struct diff *d = r->arg;
	uint32_t i;

	for (i = 0; i < d->nr_touched; i++) {
		struct pair *p = d->touched[i];
		int what = p->fired[0] && p->fired[1] ? STAYS : p->fired[0] ? GOES : COMES;

		if (what != STAYS && p->nr[what] < EXAMPLES)
			p->first[what][p->nr[what]] = at_us;
		p->nr[what]++;
		if (d->list && what != STAYS)
			print_instant(d, p, what, at_us);
		p->fired[0] = false;
		p->fired[1] = false;
	}
	d->nr_touched = 0;
}

static int compare_rehearsed(const void *a, const void *b)
{
	struct rehearsed *const *x = a, *const *y = b;
	int order = strcmp((*x)->spec->name, (*y)->spec->name);

	return order ? order : *x < *y ? -1 : *x > *y;
}

/* Those of one name are a pair, in the order of names. */
static void make_pairs(struct rehearsal *r, struct diff *d)
{
	struct rehearsed **sorted = xmalloc((r->nr + 1) * sizeof(*sorted));
	struct pair *p = NULL;
	uint32_t i;

	for (i = 0; i < r->nr; i++)
		sorted[i] = &r->v[i];
	qsort(sorted, r->nr, sizeof(*sorted), compare_rehearsed);
	d->pairs = xcalloc(r->nr + 1, sizeof(*d->pairs));
	d->touched = xcalloc(r->nr + 1, sizeof(*d->touched));
	for (i = 0; i < r->nr; i++) {
		if (!p || strcmp(p->name, sorted[i]->spec->name))
			p = &d->pairs[d->nr++];
		p->name = sorted[i]->spec->name;
		p->side[sorted[i] - r->v >= d->nr_old] = sorted[i];
		sorted[i]->arg = p;
	}
	free(sorted);
}

static void json_examples(const struct diff *d, const struct pair *p, int what, const char *name)
{
	char text[STAMP_TEXT];
	uint64_t i;

	printf(",\"%s\":[", name);
	for (i = 0; i < p->nr[what] && i < EXAMPLES; i++)
		printf("%s\"%s\"", i ? "," : "", stamp(d->view->zone, p->first[what][i], text));
	putchar(']');
}

static const char *state_of(const struct pair *p)
{
	if (!p->side[0])
		return "new";
	if (!p->side[1])
		return "removed";
	return p->nr[COMES] || p->nr[GOES] ? "changed" : "same";
}

static void json_pair(const struct diff *d, const struct pair *p)
{
	printf("{\"type\":\"difference\",\"schedule\":\"%s\",\"state\":\"%s\",\"come\":%" PRIu64
	       ",\"go\":%" PRIu64 ",\"stay\":%" PRIu64, p->name, state_of(p), p->nr[COMES],
	       p->nr[GOES], p->nr[STAYS]);
	json_examples(d, p, COMES, "first_to_come");
	json_examples(d, p, GOES, "first_to_go");
	puts("}");
}

static void print_examples(const struct diff *d, const struct pair *p, int what, char sign)
{
	const char *colour = !d->view->colour ? "" : what == GOES ? "\033[31m" : "\033[32m";
	char text[STAMP_TEXT];
	uint64_t i;

	if (!p->nr[what])
		return;
	printf("  %s%c", colour, sign);
	for (i = 0; i < p->nr[what] && i < EXAMPLES; i++)
		printf(" %s", stamp(d->view->zone, p->first[what][i], text));
	printf("%s%s\n", p->nr[what] > EXAMPLES ? " ..." : "", *colour ? "\033[0m" : "");
}

static void print_pair(const struct diff *d, const struct pair *p)
{
	printf("%s: %s come, %s go, %s stay%s\n", p->name, grouped(p->nr[COMES]),
	       grouped(p->nr[GOES]), grouped(p->nr[STAYS]),
	       !p->side[0] ? "; it is new" : !p->side[1] ? "; it is removed" : "");
	print_examples(d, p, GOES, '-');
	print_examples(d, p, COMES, '+');
}

static void report_diff(struct rehearsal *r, const struct diff *d, const uint64_t sum[3],
			uint32_t same)
{
	char from[STAMP_TEXT], to[STAMP_TEXT];

	stamp(d->view->zone, r->from_us, from);
	stamp(d->view->zone, r->to_us, to);
	if (d->view->json) {
		printf("{\"type\":\"sum\",\"from\":\"%s\",\"to\":\"%s\",\"tz\":\"%s\",\"come\":%"
		       PRIu64 ",\"go\":%" PRIu64 ",\"stay\":%" PRIu64 ",\"same\":%u}\n", from, to,
		       d->view->tz, sum[COMES], sum[GOES], sum[STAYS], same);
		return;
	}
	printf("From %s to %s, %s: %s come, %s go, %s stay; %s of %s schedules are the same\n",
	       from, to, d->view->tz, grouped(sum[COMES]), grouped(sum[GOES]),
	       grouped(sum[STAYS]), grouped(same), grouped(d->nr));
	print_wrong(r, d->view);
}

int rehearse_diff(struct rehearsal *r, uint32_t nr_old, struct view *view, bool list)
{
	struct diff d = { .view = view, .nr_old = nr_old, .list = list };
	uint64_t sum[3] = {};
	uint32_t i, same = 0, wrong = 0;

	make_pairs(r, &d);
	r->arg = &d;
	r->fire = touch;
	r->settle = settle;
	rehearse_go(r, view);
	for (i = 0; i < d.nr; i++) {
		const struct pair *p = &d.pairs[i];
		bool is_same = !strcmp(state_of(p), "same");

		same += is_same;
		for (int what = GOES; what <= STAYS; what++)
			sum[what] += p->nr[what];
		if (view->json)
			json_pair(&d, p);
		else if (!is_same)
			print_pair(&d, p);
	}
	for (i = 0; i < r->nr; i++)
		wrong += r->v[i].state == REHEARSED_WRONG;
	report_diff(r, &d, sum, same);
	free(d.pairs);
	free(d.touched);
	if (wrong)
		return STATUS_USAGE;
	return same < d.nr ? STATUS_DIFFERS : 0;
}
