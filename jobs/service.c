// SPDX-License-Identifier: GPL-2.0
/*
 * Services as the table has them, and what limits their calls.
 *
 * The limits are of the cluster, and each node takes its part of them: nodes do not ask each
 * other. A limit of less than one a node is one a node.
 *
 * A service that fails again and again, with no answer or with one that says that it is at
 * fault, is given a rest that grows; then one call is tried.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "node.h"

/* The circuit opens after so many failures in a row, for so long at first and at most. */
#define FAILURES	10
#define REST_NS		(500 * TWHEEL_MSEC)
#define MAX_REST_SHIFT	6

#define HOUSEKEEPING_NS	(60 * TWHEEL_SEC)
#define FORGET_PAGES	2000
#define UNPARK_PAGE	1000
#define UNPARK_AGAIN_NS	(5 * TWHEEL_SEC)

static const struct db_stmt load = {
	.name = "services",
	.sql = "select id, service, kind, target, headers::text, timeout_ms, accept_ms, "
	       "max_attempts, backoff_ms, backoff_max_ms, concurrency, coalesce(rate_per_s, 0), "
	       "delivery = 'at_most_once', notify, paused from twheel.service",
};

static const struct db_stmt partitions = {
	.name = "partitions",
	.sql = "select twheel.partitions($1)",
	.types = { PG_INT4 },
};

/* What is for consumers that are gone. */
static const struct db_stmt bury = { .name = "bury", .sql = "select twheel.bury()" };

/* Some pages of it at a time, as no index is worth what it costs each key. */
static const struct db_stmt forget = {
	.name = "forget",
	.sql = "with p as materialized (select s.ctid as row from twheel.seen s "
	       "where s.ctid >= format('(%s,0)', $1)::tid "
	       "and s.ctid < format('(%s,0)', $1 + $2)::tid and s.until < clock_timestamp() "
	       "and not exists (select from twheel.job j where j.id = s.job) "
	       "for update skip locked), d as (delete from twheel.seen s "
	       "where s.ctid = any(array(select row from p)) and s.until < clock_timestamp() "
	       "returning 1) "
	       "select $1 + $2 < pg_relation_size('twheel.seen') / "
	       "current_setting('block_size')::int8, (select count(*) from d)",
	.types = { PG_INT8, PG_INT8 },
};

/*
 * From a job of a service on: those of services that are paused still are not gone through.
 * It is written so that no other index fits than that of what is parked.
 */
static const struct db_stmt unpark_page = {
	.name = "unpark",
	.sql = "with c as materialized (select twheel.owe() as clock), p as materialized ("
	       "select s.id as service, j.id from twheel.service s cross join lateral ("
	       "select j.id from twheel.job j where j.service = s.id and j.due = 'infinity' "
	       "and j.id + 0 > case when s.id = $3 then $4 else 0 end and j.shard + 0 = any($1) "
	       "and j.state = 0 order by j.id + 0 limit $2 for update skip locked) j "
	       "where not s.paused and s.id >= $3 order by s.id, j.id limit $2), "
	       "d as (update twheel.job j set due = greatest(j.at, c.clock) from c "
	       "where j.id = any(array(select p.id from p)) returning j.*) "
	       "select d.shard, d.id, d.due, d.service, d.slack_ms, length(d.payload), d.attempt, "
	       "d.state::integer, " FLAGS_OF("d") " from d order by d.service, d.id",
	.types = { PG_INT2_A, PG_INT4, PG_INT4, PG_INT8 },
};

struct service *service_by_id(struct node *n, int32_t id)
{
	struct service *s = n->services.first;

	while (s && s->id != id)
		s = s->next;
	return s;
}

struct service *service_by_name(struct node *n, const char *name)
{
	struct service *s = n->services.first;

	while (s && (s->gone || strcmp(s->name, name)))
		s = s->next;
	return s;
}

/* Part of this node in what is for all of them. */
static double part(const struct node *n, double of_all)
{
	return of_all / (n->lease.nr_nodes ?: 1);
}

static uint32_t most_running(const struct node *n, const struct service *s)
{
	uint32_t most = part(n, s->concurrency);

	return most ?: 1;
}

static void ask_again(struct twheel *w, struct twheel_timer *t, uint64_t missed);

static void ask_in(struct node *n, struct service *s, uint64_t delay_ns)
{
	s->node = n;
	if (!twheel_is_armed(&s->timer))
		loop_arm(&n->loop, &s->timer, delay_ns, ask_again);
}

static void ask_again(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct service *s = TWHEEL_CONTAINER(t, struct service, timer);

	(void)w;
	(void)missed;
	fire_service(s->node, s);
}

static bool has_token(struct node *n, struct service *s, uint64_t now_ns)
{
	double rate = part(n, s->rate_per_s), most = rate / 10 > 1 ? rate / 10 : 1;

	if (!s->rate_per_s)
		return true;
	s->tokens += (now_ns - s->tokens_ns) * rate / 1e9;
	s->tokens_ns = now_ns;
	if (s->tokens > most)
		s->tokens = most;
	if (s->tokens >= 1)
		return true;
	ask_in(n, s, (1 - s->tokens) * 1e9 / rate + 1);
	return false;
}

bool service_begin(struct node *n, struct service *s)
{
	uint64_t now_ns = boottime_ns();

	if (s->running >= most_running(n, s))
		return false;
	if (s->failed >= FAILURES && now_ns < s->closed_ns) {
		ask_in(n, s, s->closed_ns - now_ns);
		return false;
	}
	if (s->failed >= FAILURES && s->running)
		return false;
	if (!has_token(n, s, now_ns))
		return false;
	if (s->rate_per_s)
		s->tokens--;
	s->running++;
	return true;
}

void service_unbegin(struct node *n, struct service *s)
{
	s->running--;
	if (s->rate_per_s)
		s->tokens++;
	fire_service(n, s);
}

void service_ended(struct node *n, struct service *s, bool at_fault)
{
	uint32_t shift;

	s->running--;
	if (!at_fault) {
		s->failed = 0;
	} else if (++s->failed >= FAILURES) {
		shift = s->failed - FAILURES;
		s->closed_ns = boottime_ns() +
			(REST_NS << (shift < MAX_REST_SHIFT ? shift : MAX_REST_SHIFT));
		if (s->failed == FAILURES)
			log_warn("circuit-open service=%s", s->name);
	}
	fire_service(n, s);
}

int64_t service_backoff_us(const struct service *s, uint32_t attempt)
{
	uint32_t shift = attempt ? attempt - 1 : 0;
	uint64_t most_ms = (uint64_t)s->backoff_ms << (shift < 30 ? shift : 30);

	if (most_ms > s->backoff_max_ms)
		most_ms = s->backoff_max_ms;
	return drand48() * most_ms * 1000;
}

/* ---------------------------------------------------------------------- loading */

static char **read_headers(const char *text)
{
	json_t *json = json_loads(text, 0, NULL), *value;
	char **headers, *line;
	const char *name;
	size_t i = 0;

	headers = xcalloc(json_object_size(json) + 1, sizeof(*headers));
	json_object_foreach(json, name, value) {
		if (!json_is_string(value))
			continue;
		if (asprintf(&line, "%s: %s", name, json_string_value(value)) < 0)
			abort();
		headers[i++] = line;
	}
	json_decref(json);
	return headers;
}

static void free_headers(char **headers)
{
	char **h;

	for (h = headers; h && *h; h++)
		free(*h);
	free(headers);
}

static struct service *make(struct node *n, int32_t id)
{
	struct service *s = xcalloc(1, sizeof(*s));

	s->id = id;
	s->node = n;
	list_init(&s->waiting);
	s->next = n->services.first;
	n->services.first = s;
	return s;
}

/* Whether it is a kind that this version knows. */
static bool read_kind(const char *text, enum kind *kind)
{
	static const char *const kinds[] = {
		[KIND_HTTP] = "http", [KIND_QUEUE] = "queue", [KIND_AMQP] = "amqp",
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(kinds) && strcmp(kinds[i], text); i++)
		;
	*kind = i < ARRAY_SIZE(kinds) ? (enum kind)i : KIND_HTTP;
	return i < ARRAY_SIZE(kinds);
}

static void set(char **to, const char *text)
{
	if (*to && !strcmp(*to, text))
		return;
	free(*to);
	*to = xstrdup(text);
}

/* Whether it was paused and is not any more. */
static bool read_service(struct node *n, const PGresult *r, int i)
{
	struct service *s = service_by_id(n, db_int(r, i, 0)) ?: make(n, db_int(r, i, 0));
	bool goes_on;

	set(&s->name, db_text(r, i, 1));
	s->gone = !read_kind(db_text(r, i, 2), &s->kind);
	set(&s->target, db_text(r, i, 3));
	free_headers(s->headers);
	s->headers = read_headers(db_text(r, i, 4));
	s->timeout_ms = db_int(r, i, 5);
	s->accept_ms = db_int(r, i, 6);
	s->max_attempts = db_int(r, i, 7);
	s->backoff_ms = db_int(r, i, 8);
	s->backoff_max_ms = db_int(r, i, 9);
	s->concurrency = db_int(r, i, 10);
	s->rate_per_s = db_float8(r, i, 11);
	s->at_most_once = db_bool(r, i, 12);
	s->notify = db_bool(r, i, 13);
	goes_on = s->paused && !db_bool(r, i, 14);
	s->paused = db_bool(r, i, 14);
	return goes_on;
}

static void loaded(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	struct services *l = &n->services;
	bool goes_on = false;
	struct service *s;
	int i;

	l->loading = false;
	if (a->status == DB_FAILED)
		log_warn("services failed=%s", quoted(a->message));
	if (a->status == DB_DONE) {
		l->loaded = true;
		for (s = l->first; s; s = s->next)
			s->gone = true;
		for (i = 0; i < PQntuples(a->result); i++)
			goes_on |= read_service(n, a->result, i);
		for (s = l->first; s; s = s->next)
			fire_service(n, s);
		fire_known(n);
	}
	if (goes_on)
		unpark(n);
	if (l->again)
		services_load(n);
}

void services_load(struct node *n)
{
	struct services *l = &n->services;

	l->again = l->loading || l->db.state != DB_UP;
	if (l->again)
		return;
	l->loading = true;
	db_query(&l->db, &load, &(struct db_params){}, loaded, n);
}

static void services_up(void *arg)
{
	services_load(arg);
}

static void unpark_next(struct node *n);

static void unpark_time(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct services *l = TWHEEL_CONTAINER(t, struct services, unpark_timer);

	(void)w;
	(void)missed;
	unpark_next(TWHEEL_CONTAINER(l, struct node, services));
}

static void unparked(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	struct services *l = &n->services;
	int i, nr = a->status == DB_DONE ? PQntuples(a->result) : 0;

	l->unparking = false;
	for (i = 0; i < nr; i++)
		row_known(n, a->result, i);
	if (i)
		successor_look(n);
	l->unpark_service = nr == UNPARK_PAGE ? db_int(a->result, nr - 1, 3) : 0;
	l->unpark_id = nr == UNPARK_PAGE ? db_int8(a->result, nr - 1, 1) : 0;
	if (nr == UNPARK_PAGE)
		unpark_next(n);
	else if (a->status != DB_DONE || --l->unpark_left > 0)
		loop_arm(&n->loop, &l->unpark_timer, UNPARK_AGAIN_NS, unpark_time);
}

static void unpark_next(struct node *n)
{
	struct services *l = &n->services;
	struct pg_array shards = {};
	struct db_params p = {};
	int i;

	if (l->unparking || n->draining)
		return;
	l->unparking = true;
	for (i = 0; i < NR_SHARDS; i++)
		if (lease_owns(n, i))
			pg_array_int2(&shards, i);
	db_add_array(&p, &shards, PG_INT2);
	db_add_int4(&p, UNPARK_PAGE);
	db_add_int4(&p, l->unpark_service);
	db_add_int8(&p, l->unpark_id);
	db_query(&l->db, &unpark_page, &p, unparked, n);
}

/* Twice: what parks them may have begun before the service went on, and end later. */
void unpark(struct node *n)
{
	n->services.unpark_left = 2;
	unpark_next(n);
}

static void forgotten(void *arg, const struct db_answer *a)
{
	struct services *l = &((struct node *)arg)->services;

	if (a->status == DB_DONE)
		l->forget_page = db_bool(a->result, 0, 0) ? l->forget_page + FORGET_PAGES : 0;
}

/*
 * Logs get their partitions, keys are forgotten, and jobs come back that were parked by who did
 * not know yet that the service goes on. All nodes do it, and little is to do.
 */
static void keep_house(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct services *l = TWHEEL_CONTAINER(t, struct services, timer);
	struct node *n = TWHEEL_CONTAINER(l, struct node, services);
	struct db_params p = {};

	(void)w;
	(void)missed;
	loop_arm(&n->loop, t, HOUSEKEEPING_NS, keep_house);
	if (l->db.state != DB_UP)
		return;
	db_add_int4(&p, n->config->keep_days);
	db_query(&l->db, &partitions, &p, NULL, NULL);
	db_query(&l->db, &bury, NULL, NULL, NULL);
	unpark(n);
	p = (struct db_params){};
	db_add_int8(&p, l->forget_page);
	db_add_int8(&p, FORGET_PAGES);
	db_query(&l->db, &forget, &p, forgotten, n);
}

void services_open(struct node *n)
{
	struct services *l = &n->services;

	l->db = (struct db){
		.what = "services",
		.loop = &n->loop,
		.conninfo = n->config->database,
		.node = n->lease.text,
		.identity = &n->lease.identity,
		.options = "-c lock_timeout=200ms -c enable_seqscan=off",
		.up = services_up,
		.arg = n,
	};
	db_open(&l->db);
	loop_arm(&n->loop, &l->timer, TWHEEL_SEC, keep_house);
}

void services_close(struct node *n)
{
	struct services *l = &n->services;
	struct service *s;

	db_close(&l->db);
	twheel_cancel(n->loop.wheel, &l->timer);
	twheel_cancel(n->loop.wheel, &l->unpark_timer);
	while ((s = l->first)) {
		l->first = s->next;
		twheel_cancel(n->loop.wheel, &s->timer);
		free_headers(s->headers);
		free(s->name);
		free(s->target);
		free(s);
	}
}
