// SPDX-License-Identifier: GPL-2.0
/*
 * Requests that are about services.
 */
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"

#define AS_JSON_WITH(headers) \
	"json_build_object('service', service, 'kind', kind, 'target', target, " \
	"'headers', " headers ", 'timeout_ms', timeout_ms, 'accept_ms', accept_ms, " \
	"'max_attempts', max_attempts, 'backoff_ms', backoff_ms, " \
	"'backoff_max_ms', backoff_max_ms, 'concurrency', concurrency, " \
	"'rate_per_s', rate_per_s, 'delivery', delivery, 'notify', notify, " \
	"'paused', paused)::text"
#define AS_JSON	AS_JSON_WITH("headers")

/* Headers have secrets in them: who may not set them sees that they are there. */
#define AS_SHOWN \
	AS_JSON_WITH("case when $2 then headers else coalesce((select jsonb_object_agg(h, '...') " \
		     "from jsonb_object_keys(headers) h), '{}') end")

static const struct db_stmt show = {
	"api_service", "select " AS_SHOWN " from twheel.service where service = $1",
	{ PG_TEXT, PG_BOOL },
};

static void ask_by_name(struct request *r, const struct db_stmt *stmt, bool writes,
			void (*got)(struct request *r, const PGresult *result))
{
	struct db_params p = {};

	db_add_bytes(&p, r->name, strlen(r->name));
	if (stmt == &show)
		db_add_bool(&p, r->roles & ROLE_ADMIN);
	request_query(r, stmt, &p, writes, got);
}

static void unknown_service(struct request *r)
{
	request_error(r, 404, "unknown_service", NULL, "there is no such service");
}

static const struct db_stmt list = {
	"api_services",
	"select " AS_SHOWN " from twheel.service where service > $1 order by service limit $3",
	{ PG_TEXT, PG_BOOL, PG_INT4 },
};

static void got_services(struct request *r, const PGresult *result)
{
	buf_puts(&r->out, "{\"services\": [");
	for (int row = 0; row < PQntuples(result); row++) {
		if (row)
			buf_puts(&r->out, ",\n");
		buf_add(&r->out, db_text(result, row, 0), db_len(result, row, 0));
	}
	buf_puts(&r->out, "]}\n");
	request_reply(r, MHD_HTTP_OK);
}

static void get_services(struct request *r)
{
	const struct arg *after = request_arg(r, "after");
	struct db_params p = {};

	r->limit = 1000;
	if (!request_number(r, "limit", 1, 1000, &r->limit))
		return;
	db_add_bytes(&p, after ? after->value : "", after ? after->len : 0);
	db_add_bool(&p, r->roles & ROLE_ADMIN);
	db_add_int4(&p, r->limit);
	request_query(r, &list, &p, false, got_services);
}

static void got_service(struct request *r, const PGresult *result)
{
	if (!PQntuples(result)) {
		unknown_service(r);
		return;
	}
	buf_add(&r->out, db_text(result, 0, 0), db_len(result, 0, 0));
	buf_puts(&r->out, "\n");
	request_reply(r, MHD_HTTP_OK);
}

static void get_service(struct request *r)
{
	ask_by_name(r, &show, false, got_service);
}

#define WHO_HAS_TARGET	"http and amqp need a target, and a queue has none"

static const struct db_stmt put = {
	"api_put_service",
	"insert into twheel.service as s (service, kind, target, headers, timeout_ms, accept_ms, "
	"max_attempts, backoff_ms, backoff_max_ms, concurrency, rate_per_s, delivery, notify, "
	"paused) values ($1, $2, coalesce($3, ''), coalesce($4, '{}')::jsonb, "
	"coalesce($5, 30000), coalesce($6, 3600000), coalesce($7, 20), coalesce($8, 1000), "
	"coalesce($9, 3600000), coalesce($10, 100), nullif($11, 0), "
	"coalesce($12, 'at_least_once'), coalesce($13, true), coalesce($14, false)) "
	"on conflict (service) do update set kind = excluded.kind, target = excluded.target, "
	"headers = excluded.headers, timeout_ms = excluded.timeout_ms, "
	"accept_ms = excluded.accept_ms, max_attempts = excluded.max_attempts, "
	"backoff_ms = excluded.backoff_ms, backoff_max_ms = excluded.backoff_max_ms, "
	"concurrency = excluded.concurrency, rate_per_s = excluded.rate_per_s, "
	"delivery = excluded.delivery, notify = excluded.notify, paused = excluded.paused, "
	"version = nextval('twheel.service_version') "
	"returning " AS_JSON ", xmax = 0, paused",
	{ PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_INT4, PG_INT4, PG_INT4, PG_INT4, PG_INT4,
	  PG_INT4, PG_FLOAT8, PG_TEXT, PG_BOOL, PG_BOOL },
};

/* A queue has no target, and all else has one: what is wrong together is not written. */
static const struct db_stmt patch = {
	"api_patch_service",
	"update twheel.service as s set kind = coalesce($2, kind), target = coalesce($3, target), "
	"headers = coalesce($4::jsonb, headers), timeout_ms = coalesce($5, timeout_ms), "
	"accept_ms = coalesce($6, accept_ms), max_attempts = coalesce($7, max_attempts), "
	"backoff_ms = coalesce($8, backoff_ms), backoff_max_ms = coalesce($9, backoff_max_ms), "
	"concurrency = coalesce($10, concurrency), "
	"rate_per_s = case when $11 is null then rate_per_s else nullif($11, 0) end, "
	"delivery = coalesce($12, delivery), notify = coalesce($13, notify), "
	"paused = coalesce($14, paused), version = nextval('twheel.service_version') "
	"where service = $1 and (coalesce($2, kind) = 'queue') = (coalesce($3, target) = '') "
	"returning " AS_JSON ", false, paused",
	{ PG_TEXT, PG_TEXT, PG_TEXT, PG_TEXT, PG_INT4, PG_INT4, PG_INT4, PG_INT4, PG_INT4,
	  PG_INT4, PG_FLOAT8, PG_TEXT, PG_BOOL, PG_BOOL },
};

static const struct db_stmt exists = {
	"api_service_exists", "select from twheel.service where service = $1", { PG_TEXT },
};

static void got_exists(struct request *r, const PGresult *result)
{
	if (PQntuples(result))
		request_error(r, 400, "conflicting_fields", "target",
			      WHO_HAS_TARGET);
	else
		unknown_service(r);
}

static const struct db_stmt tell_services = {
	"api_tell_services", "select pg_notify('twheel_service', '')", {},
};

/* Others see it with their next beat; so it is sooner. */
static void changed(struct node *n)
{
	services_load(n);
	db_query(&n->services.db, &tell_services, NULL, NULL, NULL);
}

static void got_written(struct request *r, const PGresult *result)
{
	if (!PQntuples(result)) {
		ask_by_name(r, &exists, false, got_exists);
		return;
	}
	changed(r->node);
	buf_add(&r->out, db_text(result, 0, 0), db_len(result, 0, 0));
	buf_puts(&r->out, "\n");
	request_reply(r, db_bool(result, 0, 1) ? MHD_HTTP_CREATED : MHD_HTTP_OK);
}

static void add_text(struct db_params *p, const char *text)
{
	if (text)
		db_add_bytes(p, text, strlen(text));
	else
		db_add_null(p);
}

static void write_service(struct request *r, const struct db_stmt *stmt)
{
	const struct service_spec *s = &r->spec;
	const int64_t numbers[] = { s->timeout_ms, s->accept_ms, s->max_attempts, s->backoff_ms,
				    s->backoff_max_ms, s->concurrency };
	struct db_params p = {};

	db_add_bytes(&p, r->name, strlen(r->name));
	add_text(&p, s->kind);
	add_text(&p, s->target);
	add_text(&p, s->headers);
	for (int i = SERVICE_TIMEOUT; i <= SERVICE_CONCURRENCY; i++) {
		if (s->given >> i & 1)
			db_add_int4(&p, numbers[i - SERVICE_TIMEOUT]);
		else
			db_add_null(&p);
	}
	if (s->given >> SERVICE_RATE & 1)
		db_add_float8(&p, s->rate_per_s);
	else
		db_add_null(&p);
	add_text(&p, s->delivery);
	for (int i = SERVICE_NOTIFY; i <= SERVICE_PAUSED; i++) {
		if (s->given >> i & 1)
			db_add_bool(&p, i == SERVICE_NOTIFY ? s->notify : s->paused);
		else
			db_add_null(&p);
	}
	request_query(r, stmt, &p, true, got_written);
}

static bool read_service(struct request *r)
{
	if (parse_service(r->body.data ? r->body.data : "", r->body.len, &r->spec, &r->bad))
		return true;
	request_refuse(r);
	return false;
}

static void put_service(struct request *r)
{
	const struct service_spec *s = &r->spec;

	if (!read_service(r))
		return;
	if (!s->kind)
		request_error(r, 400, "missing_field", "kind", "must be http, queue or amqp");
	else if (!strcmp(s->kind, "queue") == (s->target && *s->target))
		request_error(r, 400, s->target && *s->target ? "conflicting_fields" :
			      "missing_field", "target",
			      WHO_HAS_TARGET);
	else
		write_service(r, &put);
}

static void patch_service(struct request *r)
{
	if (!read_service(r))
		return;
	if (!r->spec.given)
		request_error(r, 400, "missing_field", NULL, "there is nothing to change");
	else
		write_service(r, &patch);
}

/* What has jobs stays: they would be owed, and nobody could tell to whom. */
static const struct db_stmt remove_service = {
	"api_delete_service", "select twheel.remove_service($1)", { PG_TEXT },
};

static void got_deleted(struct request *r, const PGresult *result)
{
	if (!db_bool(result, 0, 0)) {
		unknown_service(r);
		return;
	}
	changed(r->node);
	request_reply(r, MHD_HTTP_NO_CONTENT);
}

static void delete_service(struct request *r)
{
	ask_by_name(r, &remove_service, true, got_deleted);
}

const struct route service_routes[] = {
	{ "GET", "/v1/services", ROLE_READ | ROLE_SUBMIT | ROLE_ADMIN, BODY_NONE, "after limit ",
	  get_services },
	{ "GET", "/v1/services/{service}", ROLE_READ | ROLE_SUBMIT | ROLE_ADMIN, BODY_NONE, "",
	  get_service },
	{ "PUT", "/v1/services/{service}", ROLE_ADMIN, BODY_JSON, "", put_service },
	{ "PATCH", "/v1/services/{service}", ROLE_ADMIN, BODY_JSON, "", patch_service },
	{ "DELETE", "/v1/services/{service}", ROLE_ADMIN, BODY_NONE, "", delete_service },
	{}
};
