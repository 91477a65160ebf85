// SPDX-License-Identifier: GPL-2.0
/*
 * "twjob schedule": what it says is checked here, as a node would, and kept by the functions of the
 * schema.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "twjob-commands.h"
#include "twjob-schedule.h"

#define UPCOMING	5

#define UTC(time) "to_char(" time " at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"

/* What a schedule says; what is the default is left out. */
#define SAID \
	"'schedule', schedule, 'service', service, 'cron', cron, 'tz', tz, " \
	"'every_ms', every_ms, 'count', count, 'start_at', " UTC("start_at") ", " \
	"'end_at', " UTC("end_at") ", 'misfire', nullif(misfire, 'smart'), " \
	"'misfire_ms', nullif(misfire_ms, 60000), 'overlap', nullif(overlap, 'allow'), " \
	"'broadcast', nullif(broadcast, false), 'slack_ms', nullif(slack_ms, 0), " \
	"'paused', nullif(paused, false)"

#define US(time) "(extract(epoch from " time " - '2000-01-01Z'::timestamptz) * 1000000)::bigint"

int64_t clock_of_db(PGconn *db)
{
	PGresult *r = ask(db, "select " US("clock_timestamp()"), 0, NULL);
	int64_t us = strtoll(PQgetvalue(r, 0, 0), NULL, 10);

	PQclear(r);
	return us;
}

static int no_schedule(const char *name)
{
	tell("there is no schedule '%s'", name);
	return STATUS_NONE;
}

/* -------------------------------------------------------------------------- put */

static bool is_given(const struct schedule_spec *spec, enum schedule_field field)
{
	return spec->given >> field & 1;
}

/* NULL if @given is false. */
static const char *number(char text[24], int64_t value, bool given)
{
	snprintf(text, 24, "%lld", (long long)value);
	return given ? text : NULL;
}

static const char *stamp(char text[TIME_TEXT], int64_t us, bool given)
{
	if (!given)
		return NULL;
	format_time(us, text);
	return text;
}

PGresult *send_schedule(PGconn *db, const struct schedule_spec *spec)
{
	char every_ms[24], count[24], misfire_ms[24], slack_ms[24];
	char start[TIME_TEXT], end[TIME_TEXT];
	const char *params[] = {
		spec->name, spec->service, spec->cron,
		number(every_ms, spec->every_ms, spec->every_ms), spec->tz,
		number(count, spec->count, spec->count),
		stamp(start, spec->start_us, is_given(spec, SCHEDULE_START)),
		stamp(end, spec->end_us, is_given(spec, SCHEDULE_END)), spec->misfire,
		number(misfire_ms, spec->misfire_ms, spec->misfire_ms), spec->overlap,
		spec->broadcast ? "t" : "f", number(slack_ms, spec->slack_ms, true),
		spec->payload.data ? spec->payload.data : "",
		!is_given(spec, SCHEDULE_PAUSED) ? NULL : spec->paused ? "t" : "f",
	};
	int lengths[15] = { [13] = (int)spec->payload.len };
	int formats[15] = { [13] = 1 };

	return PQexecParams(db, "select twheel.schedule($1, $2, cron => $3, "
			    "every => $4::bigint * interval '1 ms', tz => $5, "
			    "count => $6::bigint, start_at => $7::timestamptz, "
			    "end_at => $8::timestamptz, misfire => $9, "
			    "misfire_ms => $10::integer, overlap => $11, "
			    "broadcast => $12::boolean, slack_ms => $13::integer, "
			    "payload => $14::bytea, paused => $15::boolean)",
			    15, NULL, params, lengths, formats, 0);
}

static int64_t read_stamp(const char *option, const char *text)
{
	int64_t us;

	if (!parse_time(text, strlen(text), &us))
		die(STATUS_USAGE, "--%s %s: not a time such as 2026-12-24T18:00:00Z", option, text);
	return us;
}

/* Texts are those of the options; the payload is its own. */
static void set_spec(struct schedule_spec *spec, const struct options *opt, char **args)
{
	const struct schedule_options *said = &opt->schedule;

	*spec = (struct schedule_spec){
		.name = args[0], .service = args[1],
		.cron = (char *)said->cron, .tz = (char *)said->tz,
		.misfire = (char *)said->misfire, .overlap = (char *)said->overlap,
		.every_ms = said->every_us / 1000, .count = said->count,
		.misfire_ms = said->grace_us / 1000, .slack_ms = opt->slack_us / 1000,
		.broadcast = said->broadcast, .paused = said->paused,
		.given = 1U << SCHEDULE_PAUSED,
	};
	if (said->start) {
		spec->given |= 1U << SCHEDULE_START;
		spec->start_us = read_stamp("start", said->start);
	}
	if (said->end) {
		spec->given |= 1U << SCHEDULE_END;
		spec->end_us = read_stamp("end", said->end);
	}
}

static void check_options(const struct options *opt, int nr, char **args)
{
	const struct schedule_options *said = &opt->schedule;
	bool from_stdin = nr == 3;

	if (from_stdin && strcmp(args[2], "-"))
		die(STATUS_USAGE, "does not take '%s': see --payload, --file and -", args[2]);
	if (from_stdin + !!opt->payload + !!opt->file > 1)
		die(STATUS_USAGE, "takes one of --payload, --file and -");
	if (!said->cron == !said->every_us)
		die(STATUS_USAGE, "needs --cron or --every");
	if (said->cron && said->count)
		die(STATUS_USAGE, "--count does not go with --cron");
	if (said->every_us && said->tz)
		die(STATUS_USAGE, "--tz does not go with --every");
}

/* By the names of options. */
static _Noreturn void refuse(const struct bad *bad)
{
	const char *field = bad->field;

	if (!strcmp(field, "start_at"))
		field = "start";
	else if (!strcmp(field, "end_at"))
		field = "end";
	die(bad->status == 503 ? STATUS_FAILED : STATUS_USAGE, "--%s: %s", field, bad->message);
}

/* --------------------------------------------------------------------- next times */

/* Of a row with what follows. */
#define TIMES \
	"cron, tz, every_ms, coalesce(count, 0), " US("start_at") ", " US("end_at") ", " \
	US("began") ", " US("clock_timestamp()")

static int64_t number_at(const PGresult *r, int column, int64_t null)
{
	return PQgetisnull(r, 0, column) ? null : strtoll(PQgetvalue(r, 0, column), NULL, 10);
}

static char *text_at(const PGresult *r, int column)
{
	return PQgetisnull(r, 0, column) ? NULL : PQgetvalue(r, 0, column);
}

/* Calls @fn for the next ones; none if this machine does not know the zone. */
static void each_upcoming(const PGresult *r, int most, struct buf *out,
			  void (*fn)(struct buf *out, const char *time))
{
	struct schedule_times t = {
		.cron = text_at(r, 0), .tz = text_at(r, 1), .every_ms = number_at(r, 2, 0),
		.count = number_at(r, 3, 0), .end_us = number_at(r, 5, INT64_MAX),
	};
	int64_t at = number_at(r, 7, 0);
	struct schedule s;
	struct bad bad;

	t.start_us = number_at(r, 4, t.cron ? INT64_MIN : number_at(r, 6, 0));
	if (!schedule_set(&s, &t, &bad))
		return;
	for (int i = 0; i < most; i++) {
		char text[TIME_TEXT];

		at = schedule_next(&s, at);
		if (at == SCHEDULE_NEVER)
			return;
		schedule_format(&s, at, text);
		fn(out, text);
	}
}

static PGresult *ask_times(PGconn *db, const char *name)
{
	return ask(db, "select " TIMES " from twheel.job_schedule where schedule = $1", 1, &name);
}

static void add_time(struct buf *out, const char *time)
{
	buf_printf(out, "%s\"%s\"", out->len ? "," : "", time);
}

static void print_time(struct buf *out, const char *time)
{
	(void)out;
	printf("%-10s %s\n", "upcoming", time);
}

static void print_put(PGconn *db, const struct options *opt, const char *name, bool is_new)
{
	PGresult *r = ask_times(db, name);
	struct buf next = { 0 };

	buf_puts(&next, "");
	if (PQntuples(r))
		each_upcoming(r, 1, &next, add_time);
	if (opt->json)
		printf("{\"schedule\":\"%s\",\"new\":%s,\"next\":%s}\n", name,
		       is_new ? "true" : "false", next.len ? next.data : "null");
	else
		printf("%s %s%s%.*s\n", is_new ? "created" : "replaced", name,
		       next.len ? ", next " : "", next.len ? (int)next.len - 2 : 0, next.data + 1);
	buf_free(&next);
	PQclear(r);
}

int cmd_schedule_put(const struct options *opt, int nr, char **args)
{
	struct schedule_spec spec;
	struct schedule_times t;
	struct bad bad;
	PGresult *r;
	PGconn *db;

	check_options(opt, nr, args);
	set_spec(&spec, opt, args);
	read_payload(&spec.payload, opt, nr == 3);
	t = schedule_times_of(&spec);
	db = must_open_db(opt->conninfo);
	if (!schedule_check(&t, clock_of_db(db), &bad))
		refuse(&bad);
	r = send_schedule(db, &spec);
	if (PQresultStatus(r) != PGRES_TUPLES_OK)
		end_by_error(r, db);
	print_put(db, opt, spec.name, *PQgetvalue(r, 0, 0) == 't');
	PQclear(r);
	PQfinish(db);
	buf_free(&spec.payload);
	return 0;
}

/* ------------------------------------------------------------------ ls and show */

static void add_payload(struct buf *b, const char *hex)
{
	size_t len;
	unsigned char *payload = PQunescapeBytea((const unsigned char *)hex, &len);

	if (!payload)
		die(STATUS_FAILED, "out of memory");
	json_add_payload(b, (char *)payload, len);
	PQfreemem(payload);
}

void add_schedules(struct buf *b, PGconn *db, const char *service)
{
	PGresult *r = ask(db, "select json_strip_nulls(json_build_object(" SAID ")), payload "
			  "from twheel.job_schedule where ($1::text is null or service = $1) "
			  "order by schedule collate \"C\"", 1, &service);

	buf_puts(b, "{\"schedules\": [");
	for (int row = 0; row < PQntuples(r); row++) {
		buf_puts(b, row ? ",\n" : "\n");
		buf_add(b, PQgetvalue(r, row, 0), PQgetlength(r, row, 0) - 1);
		add_payload(b, PQgetvalue(r, row, 1));
		buf_puts(b, "}");
	}
	buf_puts(b, "\n]}\n");
	PQclear(r);
}

int cmd_schedule_ls(const struct options *opt)
{
	PGconn *db = must_open_db(opt->conninfo);
	struct buf b = { 0 };

	if (opt->json) {
		add_schedules(&b, db, opt->service);
		fwrite(b.data, 1, b.len, stdout);
		buf_free(&b);
	} else {
		print_query(db, false, "select schedule, service, state, coalesce(cron || "
			    "coalesce(' ' || tz, ''), 'each ' || "
			    "justify_hours(every_ms * interval '1 ms')) as times, next, error "
			    "from twheel.job_schedule where ($1::text is null or service = $1) "
			    "order by schedule", 1, &opt->service);
	}
	PQfinish(db);
	return 0;
}

/* In a line: a payload may have more, but not within a text. */
static void show_json(PGconn *db, const char *name, const PGresult *times)
{
	PGresult *r = ask(db, "select json_strip_nulls(json_build_object(" SAID ", 'state', state, "
			  "'next', " UTC("next") ", 'error', error, 'version', version, 'last', "
			  UTC("last") ", 'created', " UTC("created") ")), payload "
			  "from twheel.job_schedule where schedule = $1", 1, &name);
	struct buf b = { 0 }, upcoming = { 0 };

	if (PQntuples(r)) {
		buf_add(&b, PQgetvalue(r, 0, 0), PQgetlength(r, 0, 0) - 1);
		add_payload(&b, PQgetvalue(r, 0, 1));
		buf_puts(&upcoming, "");
		each_upcoming(times, UPCOMING, &upcoming, add_time);
		buf_printf(&b, ",\"upcoming\":[%s]}", upcoming.data);
		for (char *nl = b.data; (nl = strpbrk(nl, "\r\n"));)
			*nl = ' ';
		puts(b.data);
	}
	buf_free(&b);
	buf_free(&upcoming);
	PQclear(r);
}

int cmd_schedule_show(const struct options *opt, const char *name)
{
	PGconn *db = must_open_db(opt->conninfo);
	PGresult *times = ask_times(db, name), *r;
	int status = 0;

	if (!PQntuples(times)) {
		status = no_schedule(name);
	} else if (opt->json) {
		show_json(db, name, times);
	} else {
		r = ask(db, "select schedule, service, state, error, cron, tz, "
			"justify_hours(every_ms * interval '1 ms') as every, count, start_at, "
			"end_at, misfire, misfire_ms, overlap, nullif(broadcast, false) as broadcast, "
			"nullif(slack_ms, 0) as slack_ms, bytes, version, created, next "
			"from twheel.job_schedule where schedule = $1", 1, &name);
		if (PQntuples(r))
			print_row(r, 0);
		PQclear(r);
		each_upcoming(times, UPCOMING, NULL, print_time);
	}
	PQclear(times);
	PQfinish(db);
	return status;
}

/* ------------------------------------------------------------------------ others */

/* @sql tells whether there is a schedule $1. */
static int change(const struct options *opt, const char *sql, const char *name)
{
	PGconn *db = must_open_db(opt->conninfo);
	PGresult *r = ask(db, sql, 1, &name);
	int status = *PQgetvalue(r, 0, 0) == 't' ? 0 : no_schedule(name);

	PQclear(r);
	PQfinish(db);
	return status;
}

int cmd_schedule_rm(const struct options *opt, const char *name)
{
	return change(opt, "select twheel.unschedule($1)", name);
}

int cmd_schedule_pause(const struct options *opt, const char *name, bool paused)
{
	return change(opt, paused ? "select twheel.pause_schedule($1)" :
				    "select twheel.pause_schedule($1, false)", name);
}

int cmd_schedule_run(const struct options *opt, const char *name)
{
	PGconn *db = must_open_db(opt->conninfo);
	PGresult *r = ask(db, "select twheel.run_schedule($1)", 1, &name);
	int status = 0;

	if (PQgetisnull(r, 0, 0))
		status = no_schedule(name);
	else
		printf(opt->json ? "{\"id\":%s}\n" : "%s\n", PQgetvalue(r, 0, 0));
	PQclear(r);
	PQfinish(db);
	return status;
}
