// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buf.h"
#include "twjob-commands.h"
#include "twjob-db.h"

#define PAGE	"1000"

/* lock_not_available, dependent_objects_still_exist, foreign_key_violation */
#define LOCKED		"55P03"
#define HAS_JOBS	"2BP01"
#define HAS_SCHEDULES	"23503"

/* invalid_text_representation, untranslatable_character: of all that is set headers alone */
#define NO_JSON		"22P02"
#define NO_JSON_TEXT	"22P05"

static const char *check_id(const char *id)
{
	int64_t nr;
	const char *err = read_number(id, 1, INT64_MAX, &nr);

	if (err)
		die(STATUS_USAGE, "'%s' is not the id of a job", id);
	return id;
}

/* What became of a job, as the functions of the schema say it. */
static int status_of(const char *fate)
{
	if (!strcmp(fate, "running"))
		return STATUS_RUNNING;
	if (!strcmp(fate, "gone") || !strcmp(fate, "unknown"))
		return STATUS_NONE;
	return 0;
}

static int tell_fate(bool json, const char *id, const char *fate)
{
	if (json)
		printf("{\"id\":%s,\"result\":\"%s\"}\n", id, fate);
	else
		printf("%s %s\n", id, fate);
	return status_of(fate);
}

static void tell_count(bool json, const char *what, uint64_t nr)
{
	end_progress();
	if (json)
		printf("{\"%s\":%llu}\n", what, (unsigned long long)nr);
	else
		printf("%llu %s\n", (unsigned long long)nr, what);
}

static int cancel_tag(PGconn *db, const struct options *opt)
{
	uint64_t nr = 0, page;

	do {
		PGresult *r = ask(db, "select twheel.cancel_tag($1, " PAGE ")", 1, &opt->tag);

		page = strtoull(PQgetvalue(r, 0, 0), NULL, 10);
		PQclear(r);
		nr += page;
		show_progress("cancelled", nr);
	} while (page == strtoull(PAGE, NULL, 10));
	tell_count(opt->json, "cancelled", nr);
	return 0;
}

int cmd_cancel(const struct options *opt, int nr, char **ids)
{
	int status = 0;
	PGconn *db;

	if (opt->tag && nr)
		die(STATUS_USAGE, "takes ids or --tag, not both");
	if (!opt->tag && !nr)
		die(STATUS_USAGE, "needs ids or --tag");
	for (int i = 0; i < nr; i++)
		check_id(ids[i]);
	db = must_open_db(opt->conninfo);
	if (opt->tag)
		status = cancel_tag(db, opt);
	for (int i = 0; i < nr; i++) {
		const char *id = ids[i];
		PGresult *r = ask(db, "select twheel.cancel($1)", 1, &id);
		int one = tell_fate(opt->json, id, PQgetvalue(r, 0, 0));

		if (one > status)
			status = one;
		PQclear(r);
	}
	PQfinish(db);
	return status;
}

int cmd_move(const struct options *opt, const char *id)
{
	char in_us[24];
	const char *params[] = { check_id(id), opt->at, in_us };
	PGconn *db;
	PGresult *r;
	int status;

	if (!opt->has_when)
		die(STATUS_USAGE, "needs --at or --in");
	snprintf(in_us, sizeof(in_us), "%lld", (long long)opt->in_us);
	db = must_open_db(opt->conninfo);
	r = ask(db, "select twheel.move($1, coalesce($2::timestamptz,"
		" clock_timestamp() + $3::bigint * interval '1 microsecond'))", 3, params);
	status = tell_fate(opt->json, id, PQgetvalue(r, 0, 0));
	PQclear(r);
	PQfinish(db);
	return status;
}

static bool is_over(const char *state)
{
	return state && (!strcmp(state, "finished") || !strcmp(state, "failed") ||
			 !strcmp(state, "cancelled") || !strcmp(state, "requeued") ||
			 !strcmp(state, "skipped"));
}

static void list_over(const struct options *opt, const char *state, const char *service)
{
	char limit[24];
	const char *params[] = { service, state, opt->tag, limit };
	PGconn *db = must_open_db(opt->conninfo);

	snprintf(limit, sizeof(limit), "%lld", (long long)opt->limit);
	print_query(db, opt->json, "select job as id, service, at, due, state, attempt, key,"
		    " order_key, tag, message, requeued from twheel.job_delay_task_backlog"
		    " where ($1::text is null or service = $1) and state = $2"
		    " and ($3::text is null or tag = $3)"
		    " order by at desc, id desc limit $4::bigint", 4, params);
	PQfinish(db);
}

int cmd_ls(const struct options *opt)
{
	char limit[24];
	const char *params[] = { opt->service, opt->state, opt->tag, limit };
	PGconn *db;

	if (is_over(opt->state)) {
		list_over(opt, opt->state, opt->service);
		return 0;
	}
	snprintf(limit, sizeof(limit), "%lld", (long long)opt->limit);
	db = must_open_db(opt->conninfo);
	print_query(db, opt->json, "select id, service, due, state, attempt, key, order_key, tag,"
		    " bytes from twheel.job_delay_task"
		    " where ($1::text is null or service = $1)"
		    " and ($2::text is null or state = $2)"
		    " and ($3::text is null or tag = $3)"
		    " order by due, id limit $4::bigint", 4, params);
	PQfinish(db);
	return 0;
}

static void show_json(PGconn *db, const char *id)
{
	PGresult *r = ask(db, "select json_build_object("
		"'job', (select row_to_json(j) from twheel.job_delay_task j where j.id = $1::bigint),"
		"'calls', (select coalesce(json_agg(e order by e.at), '[]')"
		"	from twheel.job_delay_task_execlog e where e.job = $1::bigint),"
		"'ends', (select coalesce(json_agg(b order by b.at), '[]')"
		"	from twheel.job_delay_task_backlog b where b.job = $1::bigint),"
		"'was', (select b.job from twheel.job_delay_task_backlog b"
		"	where b.requeued = $1::bigint limit 1))", 1, &id);
	char *s = PQgetvalue(r, 0, 0);

	/* json_agg() puts each element on a line of its own; none is within a text. */
	for (char *nl = s; (nl = strchr(nl, '\n'));)
		*nl = ' ';
	puts(s);
	PQclear(r);
}

static void print_section(const char *title, const PGresult *r)
{
	if (!PQntuples(r))
		return;
	printf("\n%s\n", title);
	print_table(r);
}

int cmd_show(const struct options *opt, const char *id)
{
	PGresult *job, *calls, *ends, *was;
	PGconn *db;
	int found;

	check_id(id);
	db = must_open_db(opt->conninfo);
	job = ask(db, "select * from twheel.job_delay_task where id = $1", 1, &id);
	ends = ask(db, "select at, state, service, due, attempt, key, order_key, tag, message,"
		   " requeued from twheel.job_delay_task_backlog where job = $1 order by at", 1,
		   &id);
	was = ask(db, "select job, at, attempt, key, message from twheel.job_delay_task_backlog"
		  " where requeued = $1", 1, &id);
	calls = ask(db, "select at, attempt, outcome, status, late_ms, took_ms, node, message"
		    " from twheel.job_delay_task_execlog where job = $1 order by at", 1, &id);
	found = PQntuples(job) + PQntuples(ends) + PQntuples(calls);
	if (!found)
		tell("there is no job %s, and no log of one", id);
	else if (opt->json)
		show_json(db, id);
	if (found && !opt->json) {
		if (PQntuples(job))
			print_row(job, 0);
		else
			printf("%-10s %s\n", "id", id);
		print_section("attempts", calls);
		print_section("ended", ends);
		print_section("requeued from", was);
	}
	PQclear(job);
	PQclear(calls);
	PQclear(ends);
	PQclear(was);
	PQfinish(db);
	return found ? 0 : STATUS_NONE;
}

/* ------------------------------------------------------------------ services */

enum value { TEXT, MS, NUMBER, RATE, BOOL };

static const struct setting {
	const char *name;
	const char *column;
	const char *type;
	enum value value;
} settings[] = {
	{ "kind", "kind", "text", TEXT },
	{ "target", "target", "text", TEXT },
	{ "headers", "headers", "jsonb", TEXT },
	{ "timeout", "timeout_ms", "integer", MS },
	{ "accept", "accept_ms", "integer", MS },
	{ "max_attempts", "max_attempts", "integer", NUMBER },
	{ "backoff", "backoff_ms", "integer", MS },
	{ "backoff_max", "backoff_max_ms", "integer", MS },
	{ "concurrency", "concurrency", "integer", NUMBER },
	{ "rate", "rate_per_s", "double precision", RATE },
	{ "delivery", "delivery", "text", TEXT },
	{ "notify", "notify", "boolean", BOOL },
	{ "paused", "paused", "boolean", BOOL },
};

static const char *check_ms(char *to, size_t size, const char *value)
{
	int64_t us;
	const char *err = read_duration(value, &us);

	if (err)
		return err;
	if (us % 1000 || us / 1000 > INT32_MAX || !us)
		return "must be in whole milliseconds, up to 24 days";
	snprintf(to, size, "%lld", (long long)(us / 1000));
	return NULL;
}

/* Sets @to to what the database takes for it; "" is null. */
static const char *check_value(enum value value, char *to, size_t size, const char *s)
{
	int64_t nr;
	double rate;
	char *end;

	snprintf(to, size, "%s", s);
	switch (value) {
	case MS:
		return check_ms(to, size, s);
	case NUMBER:
		return read_number(s, 1, 100000, &nr);
	case BOOL:
		return strcmp(s, "true") && strcmp(s, "false") ? "must be true or false" : NULL;
	case RATE:
		if (!strcmp(s, "none")) {
			*to = '\0';
			return NULL;
		}
		rate = strtod(s, &end);
		return *end || !(rate > 0 && rate <= 1e6) ?
			"must be a number above 0 and up to 1000000, or none" : NULL;
	default:
		return strlen(s) >= size ? "is too long" : NULL;
	}
}

/**
 * struct change - of a service
 * @set:    "column = $2, ..."
 * @names:  "column, ..."
 * @values: "$2::type, ..."
 * @params: the name of the service, and those
 * @text:   of each setting that is given
 * @nr:     how many there are
 * @has_kind: one of them is the kind
 */
struct change {
	struct buf set, names, values;
	const char *params[ARRAY_SIZE(settings) + 1];
	char text[ARRAY_SIZE(settings)][4000];
	int nr;
	bool has_kind;
};

static void add_setting(struct change *c, const char *arg)
{
	const char *equals = strchr(arg, '='), *err;
	size_t len = equals ? (size_t)(equals - arg) : 0, i;
	char *text;

	if (!equals)
		die(STATUS_USAGE, "'%s' is not KEY=VALUE", arg);
	for (i = 0; i < ARRAY_SIZE(settings); i++) {
		if (strlen(settings[i].name) == len && !strncmp(settings[i].name, arg, len))
			break;
	}
	if (i == ARRAY_SIZE(settings))
		die(STATUS_USAGE, "there is no setting '%.*s', see --help", (int)len, arg);
	text = c->text[i];
	for (int p = 1; p < c->nr; p++) {
		if (c->params[p] == text || (!c->params[p] && settings[i].value == RATE))
			die(STATUS_USAGE, "%s is given twice", settings[i].name);
	}
	err = check_value(settings[i].value, text, sizeof(c->text[i]), equals + 1);
	if (err)
		die(STATUS_USAGE, "%s: %s", arg, err);
	c->has_kind |= !strcmp(settings[i].name, "kind");
	c->params[c->nr++] = settings[i].value == RATE && !*text ? NULL : text;
	buf_printf(&c->set, "%s = $%d::%s, ", settings[i].column, c->nr, settings[i].type);
	buf_printf(&c->names, ", %s", settings[i].column);
	buf_printf(&c->values, ", $%d::%s", c->nr, settings[i].type);
}

static bool changes(PGconn *db, const char *sql, const struct change *c)
{
	PGresult *r = PQexecParams(db, sql, c->nr, NULL, c->params, NULL, NULL, 0);
	bool changed = strcmp(PQcmdTuples(r), "0");

	if (!strcmp(sqlstate_of(r), NO_JSON) || !strcmp(sqlstate_of(r), NO_JSON_TEXT))
		die(STATUS_USAGE, "headers must be a JSON object of strings");
	if (PQresultStatus(r) != PGRES_COMMAND_OK)
		end_by_error(r, db);

	PQclear(r);
	return changed;
}

/* So that nodes need not find it out. */
static void tell_nodes(PGconn *db)
{
	PQclear(ask(db, "select pg_notify('twheel_service', '')", 0, NULL));
}

int cmd_service_set(const struct options *opt, int nr, char **args)
{
	static struct change c;
	struct buf update = { 0 }, insert = { 0 };
	PGconn *db;

	c.params[c.nr++] = args[0];
	for (int i = 1; i < nr; i++)
		add_setting(&c, args[i]);
	buf_printf(&update,
		   "update twheel.service set %sversion = nextval('twheel.service_version') "
		   "where service = $1", c.set.data);
	buf_printf(&insert, "insert into twheel.service (service%s) values ($1%s)"
		   " on conflict do nothing", c.names.data, c.values.data);
	db = must_open_db(opt->conninfo);
	if (!changes(db, update.data, &c)) {
		if (!c.has_kind)
			die(STATUS_USAGE, "there is no service '%s' yet: kind=http, queue or amqp?",
			    args[0]);
		/* Nothing is inserted if somebody made it meanwhile. */
		if (!changes(db, insert.data, &c))
			changes(db, update.data, &c);
	}
	tell_nodes(db);
	PQfinish(db);
	buf_free(&update);
	buf_free(&insert);
	buf_free(&c.set);
	buf_free(&c.names);
	buf_free(&c.values);
	return 0;
}

int cmd_service_ls(const struct options *opt)
{
	PGconn *db = must_open_db(opt->conninfo);

	print_query(db, opt->json, "select * from twheel.job_callback_service order by service",
		    0, NULL);
	PQfinish(db);
	return 0;
}

/* A statement that changes the service $1. */
static int change_service(const struct options *opt, const char *sql, const char *name)
{
	PGconn *db = must_open_db(opt->conninfo);
	PGresult *r = ask(db, sql, 1, &name);
	int status = strcmp(PQcmdTuples(r), "0") ? 0 : STATUS_NONE;

	if (status)
		tell("there is no service '%s'", name);
	else
		tell_nodes(db);
	PQclear(r);
	PQfinish(db);
	return status;
}

int cmd_service_pause(const struct options *opt, const char *name, bool paused)
{
	return change_service(opt, paused ?
		"update twheel.service set paused = true,"
		" version = nextval('twheel.service_version') where service = $1" :
		"update twheel.service set paused = false,"
		" version = nextval('twheel.service_version') where service = $1", name);
}

#define REMOVE_TRIES	40	/* of 50 ms */

int cmd_service_rm(const struct options *opt, const char *name)
{
	static const char sql[] = "select twheel.remove_service($1)";
	PGconn *db = must_open_db(opt->conninfo);
	PGresult *r = NULL;
	const char *state = LOCKED;
	int status;

	for (int i = 0; i < REMOVE_TRIES && !strcmp(state, LOCKED); i++) {
		PQclear(r);
		r = PQexecParams(db, sql, 1, NULL, &name, NULL, NULL, 0);
		state = sqlstate_of(r);
	}
	if (!strcmp(state, HAS_SCHEDULES) ||
	    (!strcmp(state, HAS_JOBS) && PQresultErrorField(r, PG_DIAG_COLUMN_NAME))) {
		tell("service '%s' has schedules: remove them first", name);
		status = STATUS_RUNNING;
	} else if (!strcmp(state, HAS_JOBS)) {
		tell("service '%s' has jobs: cancel or finish them first", name);
		status = STATUS_RUNNING;
	} else if (!strcmp(state, LOCKED)) {
		tell("an open transaction has submitted to '%s': try again later", name);
		status = STATUS_RUNNING;
	} else if (PQresultStatus(r) != PGRES_TUPLES_OK) {
		status = tell_error(r, db);
	} else if (*PQgetvalue(r, 0, 0) != 't') {
		tell("there is no service '%s'", name);
		status = STATUS_NONE;
	} else {
		tell_nodes(db);
		status = 0;
	}
	PQclear(r);
	PQfinish(db);
	return status;
}

/* ---------------------------------------------------------------- dead letters */

int cmd_dead_ls(const struct options *opt, const char *service)
{
	list_over(opt, "failed", service);
	return 0;
}

int cmd_dead_requeue(const struct options *opt, int nr, char **ids)
{
	int status = 0;
	PGconn *db;

	for (int i = 0; i < nr; i++)
		check_id(ids[i]);
	db = must_open_db(opt->conninfo);
	for (int i = 0; i < nr; i++) {
		const char *id = ids[i];
		PGresult *r = ask(db, "select twheel.requeue($1)", 1, &id);

		if (PQgetisnull(r, 0, 0)) {
			tell("there is no dead job %s", id);
			status = STATUS_NONE;
		} else if (opt->json) {
			printf("{\"dead\":%s,\"id\":%s}\n", id, PQgetvalue(r, 0, 0));
		} else {
			puts(PQgetvalue(r, 0, 0));
		}
		PQclear(r);
	}
	PQfinish(db);
	return status;
}

/* What dies again meanwhile is not had again: it would not end. */
int cmd_dead_requeue_all(const struct options *opt, const char *service)
{
	PGconn *db = must_open_db(opt->conninfo);
	PGresult *now = ask(db, "select clock_timestamp()", 0, NULL);
	const char *params[] = { service, PQgetvalue(now, 0, 0) };
	uint64_t nr = 0;
	int rows;

	do {
		PGresult *r = ask(db, "select twheel.requeue(d.job) from ("
			"select job from twheel.job_delay_task_backlog where service = $1"
			" and state = 'failed' and at <= $2::timestamptz"
			" order by at, job limit " PAGE ") d", 2, params);

		rows = PQntuples(r);
		for (int i = 0; i < rows; i++)
			nr += !PQgetisnull(r, i, 0);
		PQclear(r);
		show_progress("requeued", nr);
	} while (rows);
	PQclear(now);
	PQfinish(db);
	tell_count(opt->json, "requeued", nr);
	return 0;
}

/* ----------------------------------------------------------------------- nodes */

#define LOOKS		18
#define LOOK_NS		250000000

/* Whether each beat is another one than before; new nodes do not count. */
static bool all_beat(const PGresult *before, const PGresult *now, struct buf *alive)
{
	int nr = 0;

	alive->len = 0;
	buf_puts(alive, "{");
	for (int i = 0; i < PQntuples(before); i++) {
		for (int j = 0; j < PQntuples(now); j++) {
			if (strcmp(PQgetvalue(before, i, 0), PQgetvalue(now, j, 0)) ||
			    !strcmp(PQgetvalue(before, i, 1), PQgetvalue(now, j, 1)))
				continue;
			buf_printf(alive, "%s%s", nr++ ? "," : "", PQgetvalue(now, j, 0));
		}
	}
	buf_puts(alive, "}");
	return nr == PQntuples(before);
}

int cmd_nodes(const struct options *opt)
{
	static const char beats[] = "select node, beat from twheel.node";
	static const struct timespec pause = { .tv_nsec = LOOK_NS };
	PGconn *db = must_open_db(opt->conninfo);
	PGresult *before = ask(db, beats, 0, NULL), *r;
	struct buf alive = { 0 };
	const char *param;
	bool all = false;

	buf_puts(&alive, "{}");
	for (int i = 0; i < LOOKS && !all && PQntuples(before); i++) {
		nanosleep(&pause, NULL);
		r = ask(db, beats, 0, NULL);
		all = all_beat(before, r, &alive);
		PQclear(r);
	}
	PQclear(before);
	param = alive.data;
	print_query(db, opt->json, "select n.node, n.name,"
		" case when n.node = any ($1::uuid[]) then 'alive' else 'silent' end as state,"
		" (select count(*) from twheel.shard s where s.owner = n.node) as shards,"
		" n.started, n.schema_min, n.schema_max, n.url"
		" from twheel.node n order by n.name, n.node", 1, &param);
	r = ask(db, "select count(*) from twheel.shard where owner is null"
		" or owner not in (select node from twheel.node)", 0, NULL);
	if (strcmp(PQgetvalue(r, 0, 0), "0"))
		tell("%s shards have no owner: their jobs wait", PQgetvalue(r, 0, 0));
	PQclear(r);
	PQfinish(db);
	buf_free(&alive);
	return 0;
}

/* Also done when the node is gone. */
static int wait_for_drain(PGconn *db, const char *node, int64_t us)
{
	static const struct timespec pause = { .tv_nsec = LOOK_NS };
	int64_t waited = 0;
	bool owns = true;

	while (owns && waited <= us) {
		PGresult *r;

		nanosleep(&pause, NULL);
		waited += LOOK_NS / 1000;
		r = ask(db, "select exists (select from twheel.shard where owner = $1::uuid)", 1,
			&node);
		owns = *PQgetvalue(r, 0, 0) == 't';
		PQclear(r);
	}
	if (!owns)
		return 0;
	tell("the node still owns shards");
	return STATUS_FAILED;
}

int cmd_drain(const struct options *opt, const char *node)
{
	PGconn *db = must_open_db(opt->conninfo);
	PGresult *found = ask(db, "select node from twheel.node where name = $1 or node::text = $1",
			      1, &node);
	int nr = PQntuples(found), status = 0;
	const char *uuid;

	if (!nr)
		die(STATUS_NONE, "there is no node '%s'", node);
	if (nr > 1)
		die(STATUS_USAGE, "%d nodes have the name '%s': give the uuid, see twjob nodes", nr,
		    node);
	uuid = PQgetvalue(found, 0, 0);
	PQclear(ask(db, "update twheel.node set drain = true where node = $1::uuid", 1, &uuid));
	PQclear(ask(db, "select pg_notify('twheel_shard', '')", 0, NULL));
	if (opt->wait_us)
		status = wait_for_drain(db, uuid, opt->wait_us);
	PQclear(found);
	PQfinish(db);
	return status;
}
