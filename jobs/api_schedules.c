// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that are about schedules. The database keeps what a schedule says, and its triggers see
 * to what is planned already; whether an expression and a zone are any, and what times they have,
 * is seen here.
 */
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "schedule.h"

#define MAX_LIMIT	1000
#define UPCOMING	5
#define MAX_TRIES	5

#define AS_JSON \
	"json_strip_nulls(json_build_object('schedule', schedule, 'service', service, " \
	"'state', state, 'next', " UTC("next") ", 'error', error, 'cron', cron, 'tz', tz, " \
	"'every_ms', every_ms, 'count', count, 'start_at', " UTC("start_at") ", " \
	"'end_at', " UTC("end_at") ", 'misfire', misfire, 'misfire_ms', misfire_ms, " \
	"'overlap', overlap, 'broadcast', broadcast, 'slack_ms', slack_ms, 'paused', paused, " \
	"'bytes', bytes, 'version', version, 'last', " UTC("last") ", " \
	"'created', " UTC("created") "))::text"

/* What read_times() reads. */
#define TIMES	"cron, tz, every_ms, count, start_at, end_at, began, clock_timestamp()"

enum {
	COLUMN_CRON, COLUMN_TZ, COLUMN_EVERY, COLUMN_COUNT, COLUMN_START, COLUMN_END,
	COLUMN_BEGAN, COLUMN_CLOCK, NR_COLUMNS
};

static void unknown_schedule(struct request *r)
{
	request_error(r, 404, "unknown_schedule", NULL, "there is no such schedule");
}

static const char *text_or_null(const PGresult *result, int column)
{
	return db_is_null(result, 0, column) ? NULL : db_text(result, 0, column);
}

/* As long as the result is there. */
static struct schedule_times read_times(const PGresult *result)
{
	return (struct schedule_times){
		.cron = text_or_null(result, COLUMN_CRON),
		.tz = text_or_null(result, COLUMN_TZ),
		.every_ms = db_int8(result, 0, COLUMN_EVERY),
		.count = db_int8(result, 0, COLUMN_COUNT),
		.start_us = db_is_null(result, 0, COLUMN_START) ? INT64_MIN :
			    db_int8(result, 0, COLUMN_START),
		.end_us = db_is_null(result, 0, COLUMN_END) ? INT64_MAX :
			  db_int8(result, 0, COLUMN_END),
	};
}

/* ------------------------------------------------------------------------- GET */

static const struct db_stmt list = {
	"api_schedules",
	"select " AS_JSON ", schedule from twheel.job_schedule where schedule > $1 "
	"and ($2 is null or service = $2) order by schedule limit $3 + 1",
	{ PG_TEXT, PG_TEXT, PG_INT4 },
};

static void got_schedules(struct request *r, const PGresult *result)
{
	int nr = PQntuples(result), row;

	buf_puts(&r->out, "{\"schedules\": [");
	for (row = 0; row < nr && row < r->limit; row++) {
		if (row)
			buf_puts(&r->out, ",\n");
		buf_add(&r->out, db_text(result, row, 0), db_len(result, row, 0));
	}
	buf_puts(&r->out, "]");
	if (nr > r->limit)
		buf_printf(&r->out, ", \"next\": \"%s\"", db_text(result, row - 1, 1));
	buf_puts(&r->out, "}\n");
	request_reply(r, MHD_HTTP_OK);
}

static void get_schedules(struct request *r)
{
	const struct arg *after = request_arg(r, "after"), *service = request_arg(r, "service");
	struct db_params p = {};

	r->limit = 100;
	if (!request_number(r, "limit", 1, MAX_LIMIT, &r->limit))
		return;
	db_add_bytes(&p, after ? after->value : "", after ? after->len : 0);
	if (service)
		db_add_bytes(&p, service->value, service->len);
	else
		db_add_null(&p);
	db_add_int4(&p, r->limit);
	request_query(r, &list, &p, false, got_schedules);
}

/* A payload may be a secret: it is shown to who may write one. */
static const struct db_stmt show = {
	"api_schedule",
	"select " TIMES ", " AS_JSON ", case when $2 then payload end from twheel.job_schedule "
	"where schedule = $1",
	{ PG_TEXT, PG_BOOL },
};

/* Also if it is paused: when it would fire. */
static void add_upcoming(struct buf *out, const PGresult *result)
{
	struct schedule_times t = read_times(result);
	int64_t at = db_int8(result, 0, COLUMN_CLOCK);
	struct schedule s;
	struct bad bad;

	buf_puts(out, ",\"upcoming\":[");
	if (t.every_ms && t.start_us == INT64_MIN)
		t.start_us = db_int8(result, 0, COLUMN_BEGAN);
	for (int i = 0; i < UPCOMING && schedule_set(&s, &t, &bad); i++) {
		char text[TIME_TEXT];

		at = schedule_next(&s, at);
		if (at == SCHEDULE_NEVER)
			break;
		schedule_format(&s, at, text);
		buf_printf(out, "%s\"%s\"", i ? "," : "", text);
	}
	buf_puts(out, "]");
}

static void got_schedule(struct request *r, const PGresult *result)
{
	if (!PQntuples(result)) {
		unknown_schedule(r);
		return;
	}
	buf_add(&r->out, db_text(result, 0, NR_COLUMNS), db_len(result, 0, NR_COLUMNS) - 1);
	json_add_payload(&r->out, db_text(result, 0, NR_COLUMNS + 1),
			 db_len(result, 0, NR_COLUMNS + 1));
	add_upcoming(&r->out, result);
	buf_puts(&r->out, "}\n");
	request_reply(r, r->is_new ? MHD_HTTP_CREATED : MHD_HTTP_OK);
}

static void get_schedule(struct request *r)
{
	struct db_params p = {};

	db_add_bytes(&p, r->name, strlen(r->name));
	db_add_bool(&p, r->roles & (ROLE_SUBMIT | ROLE_ADMIN));
	request_query(r, &show, &p, false, got_schedule);
}

/* ------------------------------------------------------------------ PUT and PATCH */

static const struct db_stmt put = {
	"api_put_schedule",
	"insert into twheel.schedule as s (schedule, service, cron, tz, every_ms, count, "
	"start_at, end_at, misfire, misfire_ms, overlap, broadcast, slack_ms, payload, paused) "
	"select $1, v.id, $3, $4, $5, $6, $7, $8, coalesce($9, 'smart'), coalesce($10, 60000), "
	"coalesce($11, 'allow'), coalesce($12, false), coalesce($13, 0), coalesce($14, ''), "
	"coalesce($15, false) from twheel.service v where v.service = $2 "
	"on conflict (schedule) do update set service = excluded.service, cron = excluded.cron, "
	"tz = excluded.tz, every_ms = excluded.every_ms, count = excluded.count, "
	"start_at = excluded.start_at, end_at = excluded.end_at, misfire = excluded.misfire, "
	"misfire_ms = excluded.misfire_ms, overlap = excluded.overlap, "
	"broadcast = excluded.broadcast, slack_ms = excluded.slack_ms, "
	"payload = excluded.payload, paused = excluded.paused returning xmax = 0",
	{ PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_INT8, PG_INT8, PG_TIMESTAMPTZ, PG_TIMESTAMPTZ,
	  PG_TEXT, PG_INT4, PG_TEXT, PG_BOOL, PG_INT4, PG_BYTEA, PG_BOOL },
};

/* Of the version that was looked at: with another one times are looked at again. */
static const struct db_stmt patch = {
	"api_patch_schedule",
	"update twheel.schedule s "
	"set service = coalesce((select v.id from twheel.service v where v.service = $2), service), "
	"cron = $3, tz = $4, every_ms = $5, count = $6, start_at = $7, end_at = $8, "
	"misfire = coalesce($9, misfire), misfire_ms = coalesce($10, misfire_ms), "
	"overlap = coalesce($11, overlap), broadcast = coalesce($12, broadcast), "
	"slack_ms = coalesce($13, slack_ms), payload = coalesce($14, payload), "
	"paused = coalesce($15, paused) where schedule = $1 and version = $16 "
	"and ($2 is null or exists (select from twheel.service v where v.service = $2)) "
	"returning false",
	{ PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_INT8, PG_INT8, PG_TIMESTAMPTZ, PG_TIMESTAMPTZ,
	  PG_TEXT, PG_INT4, PG_TEXT, PG_BOOL, PG_INT4, PG_BYTEA, PG_BOOL, PG_INT8 },
};

static bool is_given(const struct schedule_spec *spec, enum schedule_field field)
{
	return spec->given >> field & 1;
}

static bool is_null(const struct schedule_spec *spec, enum schedule_field field)
{
	return spec->nulls >> field & 1;
}

static void add_text(struct db_params *p, const char *text)
{
	if (text)
		db_add_bytes(p, text, strlen(text));
	else
		db_add_null(p);
}

static void add_int8(struct db_params *p, int64_t value, int64_t null)
{
	if (value != null)
		db_add_int8(p, value);
	else
		db_add_null(p);
}

static void add_int4(struct db_params *p, const struct schedule_spec *spec,
		     enum schedule_field field, int64_t value)
{
	if (is_given(spec, field) || is_null(spec, field))
		db_add_int4(p, value);
	else
		db_add_null(p);
}

static void add_bool(struct db_params *p, const struct schedule_spec *spec,
		     enum schedule_field field, bool value)
{
	if (is_given(spec, field))
		db_add_bool(p, value);
	else
		db_add_null(p);
}

#define PAYLOADS \
	(1U << SCHEDULE_PAYLOAD | 1U << SCHEDULE_BASE64 | 1U << SCHEDULE_TEXT)

/* The first fifteen of both statements. */
static void add_said(struct db_params *p, struct request *r, const struct schedule_times *t)
{
	const struct schedule_spec *spec = &r->schedule;

	db_add_bytes(p, r->name, strlen(r->name));
	add_text(p, spec->service);
	add_text(p, t->cron);
	add_text(p, t->tz);
	add_int8(p, t->every_ms, 0);
	add_int8(p, t->count, 0);
	add_int8(p, t->start_us, INT64_MIN);
	add_int8(p, t->end_us, INT64_MAX);
	add_text(p, spec->misfire);
	add_int4(p, spec, SCHEDULE_MISFIRE_MS, spec->misfire_ms);
	add_text(p, spec->overlap);
	add_bool(p, spec, SCHEDULE_BROADCAST, spec->broadcast);
	add_int4(p, spec, SCHEDULE_SLACK, spec->slack_ms);
	if (spec->given & PAYLOADS)
		db_add_bytes(p, spec->payload.data ? spec->payload.data : "", spec->payload.len);
	else
		db_add_null(p);
	add_bool(p, spec, SCHEDULE_PAUSED, spec->paused);
}

static void unknown_service(struct request *r)
{
	request_error(r, 422, "unknown_service", "service", "there is no such service");
}

static void got_put(struct request *r, const PGresult *result)
{
	if (!PQntuples(result)) {
		unknown_service(r);
		return;
	}
	r->is_new = db_bool(result, 0, 0);
	get_schedule(r);
}

static bool read_schedule(struct request *r)
{
	const struct schedule_spec *spec = &r->schedule;
	bool good;

	if (!r->body.data)
		buf_puts(&r->body, "");
	good = parse_schedule(r->body.data, r->body.len, &r->schedule, &r->bad);
	request_free_body(r);
	if (good && spec->name && strcmp(spec->name, r->name))
		good = bad_set(&r->bad, 400, "conflicting_fields", "schedule",
			       "must be the name that the path has, or not be there");
	if (!good)
		request_refuse(r);
	return good;
}

static void put_schedule(struct request *r)
{
	const struct when now = {};
	struct schedule_times t;
	struct db_params p = {};

	if (!read_schedule(r))
		return;
	t = schedule_times_of(&r->schedule);
	if (!clock_is_known(r->node)) {
		request_error(r, 503, "unavailable", NULL, "the clock is not known yet");
	} else if (!r->schedule.service) {
		request_error(r, 400, "missing_field", "service", "a schedule needs a service");
	} else if (!schedule_check(&t, when_us(r->node, &now), &r->bad)) {
		request_refuse(r);
	} else {
		add_said(&p, r, &t);
		request_query(r, &put, &p, true, got_put);
	}
}

/* Times of one kind go when the other kind comes. */
static void merge_times(struct schedule_times *t, const struct schedule_spec *spec)
{
	if (spec->cron || is_null(spec, SCHEDULE_EVERY)) {
		t->every_ms = 0;
		t->count = 0;
	}
	if (spec->every_ms || is_null(spec, SCHEDULE_CRON)) {
		t->cron = NULL;
		t->tz = NULL;
	}
	if (spec->cron)
		t->cron = spec->cron;
	if (spec->tz || is_null(spec, SCHEDULE_TZ))
		t->tz = spec->tz;
	if (spec->every_ms)
		t->every_ms = spec->every_ms;
	if (spec->count || is_null(spec, SCHEDULE_COUNT))
		t->count = spec->count;
	if (is_given(spec, SCHEDULE_START))
		t->start_us = spec->start_us;
	else if (is_null(spec, SCHEDULE_START))
		t->start_us = INT64_MIN;
	if (is_given(spec, SCHEDULE_END))
		t->end_us = spec->end_us;
	else if (is_null(spec, SCHEDULE_END))
		t->end_us = INT64_MAX;
}

static const struct db_stmt look = {
	"api_look_at_schedule",
	"select " TIMES ", version, $2 is null or exists (select from twheel.service v "
	"where v.service = $2) from twheel.schedule where schedule = $1",
	{ PG_TEXT, PG_TEXT },
};

static void look_at_schedule(struct request *r);

static void got_patched(struct request *r, const PGresult *result)
{
	if (PQntuples(result))
		get_schedule(r);
	else if (r->tries++ < MAX_TRIES)
		look_at_schedule(r);
	else
		request_error(r, 503, "busy", NULL, "others change it all the time");
}

#define TIME_FIELDS \
	(1U << SCHEDULE_CRON | 1U << SCHEDULE_TZ | 1U << SCHEDULE_EVERY | 1U << SCHEDULE_COUNT | \
	 1U << SCHEDULE_START | 1U << SCHEDULE_END)

/* A schedule that has ended, or has a zone that is gone, can be paused, or have another payload. */
static void got_look(struct request *r, const PGresult *result)
{
	const struct schedule_spec *spec = &r->schedule;
	struct schedule_times t, begun;
	struct db_params p = {};

	if (!PQntuples(result)) {
		unknown_schedule(r);
		return;
	}
	if (!db_bool(result, 0, NR_COLUMNS + 1)) {
		unknown_service(r);
		return;
	}
	t = read_times(result);
	merge_times(&t, spec);
	begun = t;
	if (t.every_ms == db_int8(result, 0, COLUMN_EVERY) && t.start_us == INT64_MIN &&
	    db_is_null(result, 0, COLUMN_START))
		begun.start_us = db_int8(result, 0, COLUMN_BEGAN);
	if ((spec->given | spec->nulls) & TIME_FIELDS &&
	    !schedule_check(t.cron ? &t : &begun, db_int8(result, 0, COLUMN_CLOCK), &r->bad)) {
		request_refuse(r);
		return;
	}
	add_said(&p, r, &t);
	db_add_int8(&p, db_int8(result, 0, NR_COLUMNS));
	request_query(r, &patch, &p, true, got_patched);
}

static void look_at_schedule(struct request *r)
{
	struct db_params p = {};

	db_add_bytes(&p, r->name, strlen(r->name));
	add_text(&p, r->schedule.service);
	request_query(r, &look, &p, false, got_look);
}

static void patch_schedule(struct request *r)
{
	if (!read_schedule(r))
		return;
	if (!((r->schedule.given | r->schedule.nulls) & ~(1U << SCHEDULE_NAME)))
		request_error(r, 400, "missing_field", NULL, "there is nothing to change");
	else
		look_at_schedule(r);
}

/* ----------------------------------------------------------------------- others */

static void ask_by_name(struct request *r, const struct db_stmt *stmt,
			void (*got)(struct request *r, const PGresult *result))
{
	struct db_params p = {};

	db_add_bytes(&p, r->name, strlen(r->name));
	request_query(r, stmt, &p, true, got);
}

static const struct db_stmt unschedule = {
	"api_unschedule", "select twheel.unschedule($1)", { PG_TEXT },
};

static void got_deleted(struct request *r, const PGresult *result)
{
	if (db_bool(result, 0, 0))
		request_reply(r, MHD_HTTP_NO_CONTENT);
	else
		unknown_schedule(r);
}

static void delete_schedule(struct request *r)
{
	ask_by_name(r, &unschedule, got_deleted);
}

static const struct db_stmt run = {
	"api_run_schedule", "select twheel.run_schedule($1)", { PG_TEXT },
};

static void got_run(struct request *r, const PGresult *result)
{
	long long id = db_int8(result, 0, 0);

	if (!id) {
		unknown_schedule(r);
		return;
	}
	buf_printf(&r->out, "{\"id\": %lld, \"schedule\": \"%s\"}\n", id, r->name);
	snprintf(r->location, sizeof(r->location), "/v1/jobs/%lld", id);
	request_reply(r, MHD_HTTP_CREATED);
}

static void run_schedule(struct request *r)
{
	ask_by_name(r, &run, got_run);
}

const struct route schedule_routes[] = {
	{ "GET", "/v1/schedules", ROLE_READ | ROLE_SUBMIT | ROLE_ADMIN, BODY_NONE,
	  "service after limit ", get_schedules },
	{ "GET", "/v1/schedules/{schedule}", ROLE_READ | ROLE_SUBMIT | ROLE_ADMIN, BODY_NONE, "",
	  get_schedule },
	{ "PUT", "/v1/schedules/{schedule}", ROLE_SUBMIT | ROLE_ADMIN, BODY_LARGE, "",
	  put_schedule },
	{ "PATCH", "/v1/schedules/{schedule}", ROLE_SUBMIT | ROLE_ADMIN, BODY_LARGE, "",
	  patch_schedule },
	{ "DELETE", "/v1/schedules/{schedule}", ROLE_SUBMIT | ROLE_ADMIN, BODY_NONE, "",
	  delete_schedule },
	{ "POST", "/v1/schedules/{schedule}/run", ROLE_SUBMIT | ROLE_ADMIN, BODY_NONE, "",
	  run_schedule },
	{}
};
