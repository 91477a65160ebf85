// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that are about jobs. What is told of them PostgreSQL writes as JSON.
 */
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

#define CANCEL_PAGE	1000
#define MAX_LIMIT	1000
#define SCAN		20000		/* rows that a page looks through */

/* ------------------------------------------------------------------------- POST */

static void add_submitted(struct buf *out, const struct submitted *s)
{
	char at[TIME_TEXT];

	buf_printf(out, "{\"id\": %lld", (long long)s->id);
	if (s->has_at) {
		format_time(s->at_us, at);
		buf_printf(out, ", \"at\": \"%s\"", at);
	}
	buf_printf(out, ", \"new\": %s}", s->is_new ? "true" : "false");
}

static void reply_submitted(struct request *r)
{
	const struct submitted *s = r->submission.out;
	bool is_new = false;

	if (r->jobs.many)
		buf_puts(&r->out, "{\"jobs\": [");
	for (unsigned int i = 0; i < r->jobs.nr; i++) {
		if (i)
			buf_puts(&r->out, ", ");
		add_submitted(&r->out, &s[i]);
		is_new |= s[i].is_new;
	}
	buf_puts(&r->out, r->jobs.many ? "]}\n" : "\n");
	if (!r->jobs.many)
		snprintf(r->location, sizeof(r->location), "/v1/jobs/%lld", (long long)s->id);
	request_reply(r, is_new ? MHD_HTTP_CREATED : MHD_HTTP_OK);
}

static void on_submitted(struct submission *s, const struct db_answer *answer)
{
	struct request *r = TWHEEL_CONTAINER(s, struct request, submission);

	if (answer || !r->conn) {
		request_answer(r, answer);
		return;
	}
	r->pending = false;
	reply_submitted(r);
}

static void submit(struct request *r)
{
	r->submission.jobs = &r->jobs;
	r->submission.done = on_submitted;
	if (!submit_jobs(r->node, &r->submission)) {
		request_error(r, 429, "busy", NULL, "too many jobs are queued");
		return;
	}
	r->pending = true;
	r->writes = true;
}

/* Of all its jobs. The first that is not known is @unknown. */
static bool find_services(struct request *r, unsigned int *unknown)
{
	bool all = true;

	for (unsigned int i = r->jobs.nr; i-- > 0;) {
		struct new_job *job = &r->jobs.job[i];
		const struct service *s;

		if (job->service_id)
			continue;
		s = service_by_name(r->node, job->service);
		if (s && !s->gone) {
			job->service_id = s->id;
			continue;
		}
		*unknown = i;
		all = false;
	}
	return all;
}

static const struct db_stmt services_by_name = {
	"api_services_by_name",
	"select u.n, s.id from unnest($1) with ordinality u(service, n) "
	"join twheel.service s on s.service = u.service",
	{ PG_TEXT_A },
};

static void got_services(struct request *r, const PGresult *result)
{
	unsigned int i;
	char path[32] = "service";

	for (int row = 0; row < PQntuples(result); row++)
		r->jobs.job[db_int8(result, row, 0) - 1].service_id = db_int(result, row, 1);
	for (i = 0; i < r->jobs.nr && r->jobs.job[i].service_id; i++)
		;
	if (i == r->jobs.nr) {
		submit(r);
		return;
	}
	if (r->jobs.many)
		snprintf(path, sizeof(path), "jobs[%u].service", i);
	request_error(r, 422, "unknown_service", path, "there is no such service");
}

/* One that was made a moment ago may not be known here yet. */
static void look_up_services(struct request *r)
{
	struct pg_array names = {};
	struct db_params p = {};

	for (unsigned int i = 0; i < r->jobs.nr; i++)
		pg_array_bytes(&names, r->jobs.job[i].service, strlen(r->jobs.job[i].service));
	db_add_array(&p, &names, PG_TEXT);
	request_query(r, &services_by_name, &p, false, got_services);
}

static bool is_too_much(struct request *r)
{
	const struct node *n = r->node;

	if (!n->config->max_waiting || n->lease.nr_waiting < (int64_t)n->config->max_waiting)
		return false;
	r->retry_after = 10;
	request_error(r, 429, "too_many_waiting", NULL, "there are too many jobs");
	return true;
}

static void post_jobs(struct request *r)
{
	unsigned int unknown;
	bool good;

	if (!submit_is_up(r->node)) {
		request_error(r, 503, "unavailable", NULL, "the database is not there");
		return;
	}
	if (is_too_much(r))
		return;
	if (!r->body.data)
		buf_puts(&r->body, "");
	if (r->raw)
		good = parse_raw_job(r->args, r->nr_args, r->body.data, r->body.len, &r->jobs,
				     &r->bad);
	else if (r->nr_args)
		good = bad_set(&r->bad, 400, "unknown_field", r->args[0].name,
			       "parameters are for application/octet-stream");
	else
		good = parse_jobs(r->body.data, r->body.len, &r->jobs, &r->bad);
	request_free_body(r);
	if (!good)
		request_refuse(r);
	else if (find_services(r, &unknown))
		submit(r);
	else
		look_up_services(r);
}

/* ---------------------------------------------------------------------- of one job */

static void ask_by_id(struct request *r, const struct db_stmt *stmt, bool writes,
		      void (*got)(struct request *r, const PGresult *result))
{
	struct db_params p = {};

	db_add_int8(&p, r->id);
	request_query(r, stmt, &p, writes, got);
}

static void unknown_job(struct request *r)
{
	request_error(r, 404, "unknown_job", NULL, "there is no such job");
}

static const struct db_stmt show = {
	"api_job",
	"select jsonb_strip_nulls(jsonb_build_object('id', id, 'service', service, "
	"'state', state, 'at', " UTC("due") ", 'attempt', attempt, 'key', key, "
	"'order_key', order_key, 'tag', tag, 'bytes', bytes))::text, 0 as o "
	"from twheel.job_delay_task where id = $1 "
	"union all (select jsonb_strip_nulls(jsonb_build_object('id', job, 'service', service, "
	"'state', state, 'at', " UTC("due") ", 'attempt', attempt, 'key', key, "
	"'order_key', order_key, 'tag', tag, 'ended', " UTC("at") ", 'message', message, "
	"'requeued', requeued))::text, "
	"1 as o from twheel.job_delay_task_backlog where job = $1 order by at desc limit 1) "
	"order by o limit 1",
	{ PG_INT8 },
};

static void got_job(struct request *r, const PGresult *result)
{
	if (!PQntuples(result)) {
		unknown_job(r);
		return;
	}
	buf_add(&r->out, db_text(result, 0, 0), db_len(result, 0, 0));
	buf_puts(&r->out, "\n");
	request_reply(r, MHD_HTTP_OK);
}

static void get_job(struct request *r)
{
	ask_by_id(r, &show, false, got_job);
}

/* What cancel() and move() say if they changed nothing. */
static void reply_fate(struct request *r, const char *fate)
{
	if (!strcmp(fate, "running"))
		request_error(r, 409, "running", NULL, "the job has begun");
	else if (!strcmp(fate, "gone"))
		request_error(r, 410, "gone", NULL, "the job is over");
	else
		unknown_job(r);
}

static const struct db_stmt cancel = {
	"api_cancel", "select twheel.cancel($1)", { PG_INT8 },
};

static void got_cancelled(struct request *r, const PGresult *result)
{
	struct job *job;

	if (strcmp(db_text(result, 0, 0), "cancelled")) {
		reply_fate(r, db_text(result, 0, 0));
		return;
	}
	r->node->metrics.cancelled++;
	job = horizon_find(r->node, r->id);
	if (job)
		horizon_drop(r->node, job);
	buf_printf(&r->out, "{\"id\": %lld, \"state\": \"cancelled\"}\n", (long long)r->id);
	request_reply(r, MHD_HTTP_OK);
}

static void delete_job(struct request *r)
{
	ask_by_id(r, &cancel, true, got_cancelled);
}

static const struct db_stmt move = {
	"api_move", "select twheel.move($1, $2, false)", { PG_INT8, PG_TIMESTAMPTZ },
};

static const struct db_stmt moved_row = {
	"api_moved",
	"select shard, id, due, service, slack_ms, length(payload), attempt, state::integer, "
	FLAGS_OF("j") " from twheel.job j where id = $1",
	{ PG_INT8 },
};

static const struct db_stmt announce_moved = {
	"api_announce",
	"select twheel.announce(shard, id, due, service, slack_ms, flags, octet_length(payload)) "
	"from twheel.job where id = $1",
	{ PG_INT8 },
};

static void reply_moved(struct request *r, const PGresult *result)
{
	char at[TIME_TEXT];

	(void)result;
	format_time(r->when.at_us, at);
	buf_printf(&r->out, "{\"id\": %lld, \"at\": \"%s\"}\n", (long long)r->id, at);
	request_reply(r, MHD_HTTP_OK);
}

/* It is moved, whatever is the matter with the connection from here on: owners look. */
static void got_moved_row(struct request *r, const PGresult *result)
{
	if (PQntuples(result) && row_known(r->node, result, 0))
		ask_by_id(r, &announce_moved, true, reply_moved);
	else
		reply_moved(r, result);
}

static void got_moved(struct request *r, const PGresult *result)
{
	if (strcmp(db_text(result, 0, 0), "moved")) {
		reply_fate(r, db_text(result, 0, 0));
		return;
	}
	r->node->metrics.moved++;
	ask_by_id(r, &moved_row, true, got_moved_row);
}

static void patch_job(struct request *r)
{
	struct db_params p = {};

	if (!parse_move(r->body.data ? r->body.data : "", r->body.len, &r->when, &r->bad)) {
		request_refuse(r);
		return;
	}
	if (!r->when.has_at && !clock_is_known(r->node)) {
		request_error(r, 503, "unavailable", NULL, "the clock is not known yet");
		return;
	}
	r->when.at_us = when_us(r->node, &r->when);
	db_add_int8(&p, r->id);
	db_add_int8(&p, r->when.at_us);
	request_query(r, &move, &p, true, got_moved);
}

static const struct db_stmt requeue = {
	"api_requeue", "select twheel.requeue($1)", { PG_INT8 },
};

static void got_requeued(struct request *r, const PGresult *result)
{
	long long id = db_int8(result, 0, 0);

	if (!id) {
		request_error(r, 404, "not_failed", NULL, "there is no such job that has failed");
		return;
	}
	buf_printf(&r->out, "{\"id\": %lld, \"requeued\": %lld}\n", id, (long long)r->id);
	snprintf(r->location, sizeof(r->location), "/v1/jobs/%lld", id);
	request_reply(r, MHD_HTTP_CREATED);
}

static void post_requeue(struct request *r)
{
	ask_by_id(r, &requeue, true, got_requeued);
}

static void on_report(void *arg, const struct db_answer *answer)
{
	struct request *r = arg;

	if (answer->status != DB_DONE || !r->conn) {
		request_answer(r, answer);
		return;
	}
	r->pending = false;
	if (!PQntuples(answer->result)) {
		request_error(r, 409, "not_running", NULL,
			      "that attempt is not running, or the token is not its own");
		return;
	}
	buf_printf(&r->out, "{\"id\": %lld, \"outcome\": \"%s\"}\n", (long long)r->id,
		   r->report.outcome);
	request_reply(r, MHD_HTTP_OK);
}

/* The token of the attempt says who may: a consumer needs none of ours. */
static void post_result(struct request *r)
{
	const char *token = MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, "Twheel-Token");

	if (!token || strlen(token) != 64 || strspn(token, "0123456789abcdef") != 64) {
		request_error(r, 401, "unauthorized", "Twheel-Token",
			      "must be what came with the call");
		return;
	}
	if (!parse_report(r->body.data ? r->body.data : "", r->body.len, &r->report, &r->bad)) {
		request_refuse(r);
		return;
	}
	r->pending = true;
	r->writes = true;
	finish_report(r->node, r->id, token, r->report.done,
		      r->report.message ? r->report.message : "", on_report, r);
}

/* ----------------------------------------------------------------------- of many */

static const struct db_stmt cancel_tag = {
	"api_cancel_tag", "select twheel.cancel_tag($1, $2)", { PG_TEXT, PG_INT4 },
};

/* They are left in memory: when they would be due there is no row. */
static void got_tag_cancelled(struct request *r, const PGresult *result)
{
	int nr = db_int(result, 0, 0);

	r->node->metrics.cancelled += nr;
	buf_printf(&r->out, "{\"cancelled\": %d, \"more\": %s}\n", nr,
		   nr >= r->limit ? "true" : "false");
	request_reply(r, MHD_HTTP_OK);
}

static bool read_tag(struct request *r, const struct arg **tag)
{
	*tag = request_arg(r, "tag");
	if (!*tag || text_is_good((*tag)->value, (*tag)->len, 1, MAX_TEXT))
		return true;
	request_error(r, 400, "out_of_range", "tag", "must be 1 to %d characters", MAX_TEXT);
	return false;
}

static void delete_jobs(struct request *r)
{
	const struct arg *tag;
	struct db_params p = {};

	r->limit = CANCEL_PAGE;
	if (!read_tag(r, &tag) || !request_number(r, "limit", 1, MAX_LIMIT, &r->limit))
		return;
	if (!tag) {
		request_error(r, 400, "missing_field", "tag", "a tag is needed");
		return;
	}
	db_add_bytes(&p, tag->value, tag->len);
	db_add_int4(&p, r->limit);
	request_query(r, &cancel_tag, &p, true, got_tag_cancelled);
}

/*
 * A page looks through a bounded number of rows, of each table: if there may be more behind
 * those, what comes after the least of their ends is left to the next page, which begins there.
 * $1 after, $2 limit, $3 service, $4 state, $5 tag, $6 how many are looked through.
 */
#define PAGE(what) \
	", e as (select least(" what ") as last) " \
	"select e.last, a.id, jsonb_strip_nulls(jsonb_build_object('id', a.id, " \
	"'service', a.service, 'state', a.state, 'at', " UTC("a.due") ", " \
	"'attempt', a.attempt, 'key', a.key, 'order_key', a.order_key, 'tag', a.tag, " \
	"'bytes', a.bytes, 'ended', " UTC("a.ended") ", 'message', a.message, " \
	"'requeued', a.requeued))::text " \
	"from e left join lateral (select * from rows where (e.last is null or id <= e.last) " \
	"and ($3 is null or service = $3) and ($4 is null or state = $4) " \
	"order by id limit $2 + 1) a on true order by a.id"

#define SCANNED(table) \
	"(select max(id) from " table " having count(*) = $6)"

#define WAITING(tag) \
	"with j as materialized (select id, service, at, due, state, attempt, key, order_key, " \
	"tag, length(payload) as bytes from twheel.job where id > $1" tag \
	" order by id limit $6), " \
	"q as materialized (select job as id, service, due, visible, began, taken, key, " \
	"order_key, tag, length(payload) as bytes from twheel.queue where job > $1" tag \
	" order by job limit $6), rows as (" \
	"select j.id, s.service, j.at as due, twheel.job_state(j.state, j.due) as state, " \
	"j.attempt, j.key, j.order_key, j.tag, j.bytes, null::timestamptz as ended, " \
	"null::text as message, null::int8 as requeued " \
	"from j join twheel.service s on s.id = j.service " \
	"union all select q.id, s.service, q.due, twheel.queue_state(q.visible, q.began), " \
	"q.taken, q.key, q.order_key, q.tag, q.bytes, null, null, null " \
	"from q join twheel.service s on s.id = q.service)" \
	PAGE(SCANNED("j") ", " SCANNED("q"))

#define OVER(tag) \
	"with b as materialized (select job as id, service, due, state, attempt, key, " \
	"order_key, tag, at, message, requeued from twheel.backlog where job > $1" tag \
	" order by job limit $6), rows as (" \
	"select b.id, s.service, b.due, twheel.end_state(b.state) as state, b.attempt, b.key, " \
	"b.order_key, b.tag, null::integer as bytes, b.at as ended, b.message, b.requeued " \
	"from b left join twheel.service s on s.id = b.service)" PAGE(SCANNED("b"))

#define LIST_TYPES	{ PG_INT8, PG_INT4, PG_TEXT, PG_TEXT, PG_TEXT, PG_INT4 }

static const struct db_stmt lists[2][2] = {
	{ { "api_waiting", WAITING(" and $5 is null"), LIST_TYPES },
	  { "api_waiting_tag", WAITING(" and tag = $5"), LIST_TYPES } },
	{ { "api_over", OVER(" and $5 is null"), LIST_TYPES },
	  { "api_over_tag", OVER(" and tag = $5"), LIST_TYPES } },
};

static void got_jobs(struct request *r, const PGresult *result)
{
	int nr = PQntuples(result), row;
	int64_t next = 0;

	buf_puts(&r->out, "{\"jobs\": [");
	for (row = 0; row < nr && row < r->limit && !db_is_null(result, row, 1); row++) {
		if (row)
			buf_puts(&r->out, ", ");
		buf_add(&r->out, db_text(result, row, 2), db_len(result, row, 2));
	}
	buf_puts(&r->out, "]");
	if (nr > r->limit)
		next = db_int8(result, r->limit - 1, 1);
	else if (!db_is_null(result, 0, 0))
		next = db_int8(result, 0, 0);
	if (next)
		buf_printf(&r->out, ", \"next\": %lld", (long long)next);
	buf_puts(&r->out, "}\n");
	request_reply(r, MHD_HTTP_OK);
}

static bool is_in(const char *const *list, const char *text)
{
	for (; *list; list++)
		if (!strcmp(*list, text))
			return true;
	return false;
}

static void add_arg(struct db_params *p, const struct arg *arg)
{
	if (arg)
		db_add_bytes(p, arg->value, arg->len);
	else
		db_add_null(p);
}

static void get_jobs(struct request *r)
{
	static const char *const owed[] = { "delay", "ready", "paused", "running", "accepted", 0 };
	static const char *const over[] = {
		"finished", "failed", "cancelled", "requeued", "skipped", 0,
	};
	const struct arg *state = request_arg(r, "state"), *tag;
	struct db_params p = {};
	bool is_over;

	r->limit = 100;
	if (!read_tag(r, &tag) || !request_number(r, "limit", 1, MAX_LIMIT, &r->limit) ||
	    !request_number(r, "after", 0, INT64_MAX, &r->after))
		return;
	is_over = state && is_in(over, state->value);
	if (state && !is_over && !is_in(owed, state->value)) {
		request_error(r, 400, "out_of_range", "state", "there is no such state");
		return;
	}
	db_add_int8(&p, r->after);
	db_add_int4(&p, r->limit);
	add_arg(&p, request_arg(r, "service"));
	add_arg(&p, state);
	add_arg(&p, tag);
	db_add_int4(&p, state || request_arg(r, "service") ? SCAN : r->limit + 1);
	request_query(r, &lists[is_over][!!tag], &p, false, got_jobs);
}

const struct route job_routes[] = {
	{ "POST", "/v1/jobs", ROLE_SUBMIT | ROLE_ADMIN, BODY_JOBS, NULL, post_jobs },
	{ "GET", "/v1/jobs", ROLE_READ | ROLE_ADMIN, BODY_NONE,
	  "service state tag after limit ", get_jobs },
	{ "DELETE", "/v1/jobs", ROLE_SUBMIT | ROLE_ADMIN, BODY_NONE, "tag limit ", delete_jobs },
	{ "GET", "/v1/jobs/{id}", ROLE_READ | ROLE_SUBMIT | ROLE_ADMIN, BODY_NONE, "", get_job },
	{ "DELETE", "/v1/jobs/{id}", ROLE_SUBMIT | ROLE_ADMIN, BODY_NONE, "", delete_job },
	{ "PATCH", "/v1/jobs/{id}", ROLE_SUBMIT | ROLE_ADMIN, BODY_JSON, "", patch_job },
	{ "POST", "/v1/jobs/{id}/result", 0, BODY_JSON, "", post_result },
	{ "POST", "/v1/jobs/{id}/requeue", ROLE_SUBMIT | ROLE_ADMIN, BODY_NONE, "", post_requeue },
	{}
};
