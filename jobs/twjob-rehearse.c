// SPDX-License-Identifier: GPL-2.0
/*
 * "twjob rehearse": schedules of files, or of a database, in virtual time.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "db.h"
#include "loop.h"
#include "twjob-commands.h"
#include "twjob-db.h"
#include "twjob-rehearse.h"
#include "twjob-schedule.h"

#define DAY_US		(INT64_C(86400) * USEC_PER_SEC)
#define DEFAULT_US	(30 * DAY_US)
#define LAST_YEAR	2199	/* of expressions */

/* ---------------------------------------------------------------------- input */

/**
 * struct input - schedules that were read
 * @specs: those
 * @nr:    how many
 * @concurrency: of services, from the database, or NULL
 */
struct input {
	struct schedule_spec *specs;
	unsigned int nr;
	PGresult *concurrency;
};

static void add_specs(struct input *in, const char *name, const struct buf *text)
{
	struct schedule_spec *specs;
	struct bad bad;
	unsigned int nr;

	if (!parse_schedules(text->data, text->len, &specs, &nr, &bad))
		die(STATUS_USAGE, "%s: %s%s%s", name, bad.field, *bad.field ? ": " : "",
		    bad.message);
	if (nr > MAX_SCHEDULES - in->nr)
		die(STATUS_USAGE, "%s: there are more than %d schedules", name, MAX_SCHEDULES);
	in->specs = xrealloc(in->specs, (in->nr + nr + 1) * sizeof(*specs));
	memcpy(in->specs + in->nr, specs, nr * sizeof(*specs));
	in->nr += nr;
	free(specs);
}

static void read_file(struct input *in, const char *name)
{
	struct buf text = {};

	read_schedules_file(&text, name);
	add_specs(in, name, &text);
	buf_free(&text);
}

static int compare_specs(const void *a, const void *b)
{
	const struct schedule_spec *const *x = a, *const *y = b;

	return strcmp((*x)->name, (*y)->name);
}

/* In each file that is seen to already. */
static void check_names(const struct input *in)
{
	const struct schedule_spec **sorted = xmalloc((in->nr + 1) * sizeof(*sorted));
	unsigned int i;

	for (i = 0; i < in->nr; i++)
		sorted[i] = &in->specs[i];
	qsort(sorted, in->nr, sizeof(*sorted), compare_specs);
	for (i = 1; i < in->nr; i++)
		if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
			die(STATUS_USAGE, "schedule %s is in two files", sorted[i]->name);
	free(sorted);
}

/* In the form of a file. What has an interval and no start began when it got that. */
static void read_database(struct input *in, const struct options *opt)
{
	static const char sql[] =
		"select json_build_object('schedules', coalesce(json_agg(json_strip_nulls("
		"json_build_object('schedule', schedule, 'service', service, 'cron', cron, "
		"'tz', tz, 'every_ms', every_ms, 'count', count, "
		"'start_at', to_char(case when every_ms is not null "
		"then coalesce(start_at, began) else start_at end at time zone 'UTC', "
		"'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), "
		"'end_at', to_char(end_at at time zone 'UTC', "
		"'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'), "
		"'overlap', overlap, 'paused', paused)) order by schedule), '[]'))::text "
		"from twheel.job_schedule";
	PGconn *db = must_open_db(opt->conninfo);
	PGresult *r = ask(db, sql, 0, NULL);
	struct buf text = {};

	buf_puts(&text, PQgetvalue(r, 0, 0));
	PQclear(r);
	add_specs(in, "the database", &text);
	buf_free(&text);
	in->concurrency = ask(db, "select service, concurrency from twheel.job_callback_service",
			      0, NULL);
	PQfinish(db);
}

static void input_free(struct input *in)
{
	schedule_specs_free(in->specs, in->nr);
	PQclear(in->concurrency);
}

/* ----------------------------------------------------------------------- time */

static int64_t begin_of(const struct zone *z, int64_t year, int month)
{
	int64_t local = days_of_date(year, month, 1) * 86400;

	return zone_instant(z, local) * USEC_PER_SEC - PG_EPOCH_US;
}

/* "2027" or "2026-12", from its begin to its end in the zone */
static void set_calendar(const struct view *view, const struct options *opt, int64_t *from_us,
			 int64_t *to_us)
{
	const char *text = opt->year ?: opt->month, *option = opt->year ? "year" : "month";
	int64_t year, month = 1;
	bool good;

	good = strlen(text) == (opt->year ? 4 : 7) && parse_digits(text, 4, LAST_YEAR, &year) &&
	       year >= 1970;
	if (good && opt->month)
		good = text[4] == '-' && parse_digits(text + 5, 2, 12, &month) && month;
	if (!good)
		die(STATUS_USAGE, "--%s %s: not one such as %s, of 1970 to %d", option, text,
		    opt->year ? "2027" : "2026-12", LAST_YEAR);
	*from_us = begin_of(view->zone, year, (int)month);
	*to_us = opt->year ? begin_of(view->zone, year + 1, 1) :
			     begin_of(view->zone, year + (month == 12), (int)(month % 12 + 1));
}

static int64_t read_stamp(const char *option, const char *text)
{
	struct timespec now;
	int64_t us;

	if (!strcmp(text, "now")) {
		clock_gettime(CLOCK_REALTIME, &now);
		return now.tv_sec * INT64_C(1000000) / (60 * USEC_PER_SEC) * (60 * USEC_PER_SEC) -
		       PG_EPOCH_US;
	}
	if (!parse_time(text, strlen(text), &us))
		die(STATUS_USAGE, "--%s %s: not a time such as 2026-12-24T18:00:00Z or now", option,
		    text);
	return us;
}

static void set_time(const struct view *view, const struct options *opt, int64_t *from_us,
		     int64_t *to_us)
{
	if (!!opt->month + !!opt->year + (opt->from || opt->to || opt->for_us) > 1)
		die(STATUS_USAGE,
		    "give only one of --month, --year, and --from with --to or --for");
	if (opt->to && opt->for_us)
		die(STATUS_USAGE, "give only one of --to and --for");
	if (opt->month || opt->year) {
		set_calendar(view, opt, from_us, to_us);
		return;
	}
	*from_us = read_stamp("from", opt->from ?: "now");
	*to_us = opt->to ? read_stamp("to", opt->to) :
			   *from_us + (opt->for_us ?: DEFAULT_US);
	if (*to_us <= *from_us)
		die(STATUS_USAGE, "--to must be later than --from");
	if (*to_us - *from_us > REHEARSE_MAX_US)
		die(STATUS_USAGE, "a rehearsal is limited to ten years");
	if (*to_us > begin_of(NULL, LAST_YEAR + 1, 1))
		die(STATUS_USAGE, "expressions end with the year %d", LAST_YEAR);
}

static void set_zone(struct view *view, const char *tz)
{
	int error;

	view->tz = tz ?: "UTC";
	if (!strcmp(view->tz, "UTC"))
		return;
	view->zone = zones_get(tz, &error);
	if (!view->zone)
		die(STATUS_USAGE, "--tz %s: %s", tz, error == -ENOENT || error == -EINVAL ?
		    "there is no such time zone" : strerror(-error));
}

/* ------------------------------------------------------------------- settings */

/* "NAME=VALUE": that of a schedule, or else of all of a service */
static bool set_takes_of(struct rehearsal *r, const char *name, size_t len, int64_t us,
			 bool service)
{
	bool found = false;
	uint32_t i;

	for (i = 0; i < r->nr; i++) {
		const char *is = service ? r->v[i].service->name : r->v[i].spec->name;

		if (strlen(is) != len || strncmp(is, name, len))
			continue;
		r->v[i].takes_us = us;
		found = true;
	}
	return found;
}

/* From the general to the particular, whatever the order in which they were given. */
static void set_takes(struct rehearsal *r, const struct options *opt)
{
	bool *known = xcalloc(opt->nr_takes + 1, sizeof(*known));
	const char *err;
	int64_t us;
	int pass, i;
	uint32_t j;

	for (pass = 0; pass < 3; pass++) {
		for (i = 0; i < opt->nr_takes; i++) {
			const char *arg = opt->takes[i], *equals = strrchr(arg, '=');

			err = read_duration(equals ? equals + 1 : arg, &us);
			if (!err && us > REHEARSE_MAX_US)
				err = "longer than ten years";
			if (err)
				die(STATUS_USAGE, "--takes %s: %s", arg, err);
			if (!equals && !pass)
				for (j = 0; j < r->nr; j++)
					r->v[j].takes_us = us;
			if (!equals)
				known[i] = true;
			else if (pass)
				known[i] |= set_takes_of(r, arg, equals - arg, us, pass == 1);
		}
	}
	for (i = 0; i < opt->nr_takes; i++)
		if (!known[i])
			die(STATUS_USAGE, "--takes %s: there is no such schedule or service",
			    opt->takes[i]);
	free(known);
}

static struct rehearsed_service *find_service(struct rehearsal *r, const char *name, size_t len)
{
	uint32_t i;

	for (i = 0; i < r->nr_services; i++)
		if (strlen(r->service[i].name) == len && !strncmp(r->service[i].name, name, len))
			return &r->service[i];
	return NULL;
}

static void set_concurrency(struct rehearsal *r, const struct options *opt,
			    const PGresult *known)
{
	struct rehearsed_service *service;
	const char *err;
	int i;

	for (i = 0; known && i < PQntuples(known); i++) {
		const char *name = PQgetvalue(known, i, 0);

		service = find_service(r, name, strlen(name));
		if (service)
			service->concurrency = strtol(PQgetvalue(known, i, 1), NULL, 10);
	}
	for (i = 0; i < opt->nr_concurrency; i++) {
		const char *arg = opt->concurrency[i], *equals = strchr(arg, '=');

		service = equals ? find_service(r, arg, equals - arg) : NULL;
		if (!service)
			die(STATUS_USAGE, "--concurrency %s: not SERVICE=N of an existing service",
			    arg);
		err = read_number(equals + 1, 1, 100000, &service->concurrency);
		if (err)
			die(STATUS_USAGE, "--concurrency %s: %s", arg, err);
	}
}

static bool is_utf8(void)
{
	const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
	const char *value;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		value = getenv(names[i]);
		if (value && *value)
			return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
	}
	return false;
}

static void look_at_terminal(struct view *view)
{
	const char *term = getenv("TERM"), *none = getenv("NO_COLOR");
	const char *columns = getenv("COLUMNS");
	struct winsize size = {};
	bool dumb = term && !strcmp(term, "dumb");
	int64_t nr;

	view->width = 80;
	if (columns && parse_digits(columns, strlen(columns), 1000, &nr) && nr)
		view->width = (int)nr;
	else if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col)
		view->width = size.ws_col;
	view->width = view->width < 40 ? 40 : view->width > 200 ? 200 : view->width;
	view->utf8 = !dumb && is_utf8();
	view->colour = term && !dumb && !(none && *none) && isatty(STDOUT_FILENO);
}

/* -------------------------------------------------------------------- command */

static void print_fire(struct rehearsal *r, struct rehearsed *s, int64_t at_us)
{
	const struct view *view = r->arg;
	const char *service = s->spec->service ?: "";
	char text[STAMP_TEXT];
	struct buf b = {};

	stamp(view->zone, at_us, text);
	if (!view->json) {
		printf("%s  %s%s%s\n", text, s->spec->name, *service ? "  " : "", service);
		return;
	}
	buf_printf(&b, "{\"type\":\"fire\",\"at\":\"%s\",\"schedule\":", text);
	json_add(&b, s->spec->name, strlen(s->spec->name));
	buf_puts(&b, ",\"service\":");
	json_add(&b, service, strlen(service));
	printf("%s}\n", b.data);
	buf_free(&b);
}

void rehearse_go(struct rehearsal *r, struct view *view)
{
	uint64_t begin = boottime_ns();
	int error = rehearse_run(r);
	const struct rehearsed *most;
	char until[STAMP_TEXT];

	view->real_ns = boottime_ns() - begin;
	if (error)
		die(STATUS_FAILED, "the wheel: %s", strerror(-error));
	if (r->off)
		die(STATUS_FAILED, "the wheel was off its time %llu times: this is a bug",
		    (unsigned long long)r->off);
	if (!r->too_many)
		return;
	most = rehearse_most(r);
	stamp(view->zone, r->fires ? r->stop_us : r->to_us, until);
	die(STATUS_USAGE,
	    "more than %llu times until %s, of which %s has %llu: choose a shorter time",
	    (unsigned long long)REHEARSE_MAX_FIRES, until, most->spec->name,
	    (unsigned long long)(most->times.every_us && !r->fires ?
	     rehearse_count(most, r->from_us, r->to_us, UINT64_MAX) : most->fires));
}

static int status_of(const struct rehearsal *r)
{
	uint32_t i;

	for (i = 0; i < r->nr; i++)
		if (r->v[i].state == REHEARSED_WRONG)
			return STATUS_USAGE;
	return 0;
}

static int diff(const struct options *opt, struct view *view, char **files)
{
	struct input in = {};
	int64_t from_us, to_us;
	unsigned int nr_old;
	struct rehearsal r;
	int status;

	if (opt->svg || opt->nr_takes || opt->nr_concurrency)
		die(STATUS_USAGE, "--diff does not go with --svg, --takes and --concurrency");
	set_time(view, opt, &from_us, &to_us);
	read_file(&in, files[0]);
	nr_old = in.nr;
	read_file(&in, files[1]);
	rehearse_init(&r, in.specs, in.nr, from_us, to_us);
	status = rehearse_diff(&r, nr_old, view, opt->list);
	rehearse_free(&r);
	input_free(&in);
	return status;
}

int cmd_rehearse(const struct options *opt, int nr, char **files)
{
	struct view view = { .takes = opt->nr_takes, .json = opt->json };
	int64_t from_us, to_us;
	struct input in = {};
	struct rehearsal r;
	int i, status;

	look_at_terminal(&view);
	set_zone(&view, opt->tz);
	if (opt->diff && nr != 2)
		die(STATUS_USAGE, "--diff needs two files");
	if (opt->diff)
		return diff(opt, &view, files);
	set_time(&view, opt, &from_us, &to_us);
	for (i = 0; i < nr; i++)
		read_file(&in, files[i]);
	if (nr)
		check_names(&in);
	else
		read_database(&in, opt);
	rehearse_init(&r, in.specs, in.nr, from_us, to_us);
	set_takes(&r, opt);
	set_concurrency(&r, opt, in.concurrency);
	r.arg = &view;
	r.fire = opt->list ? print_fire : NULL;
	rehearse_go(&r, &view);
	if (opt->svg)
		chart_svg(&r, &view, opt->svg);
	report(&r, &view);
	status = status_of(&r);
	rehearse_free(&r);
	input_free(&in);
	return status;
}
