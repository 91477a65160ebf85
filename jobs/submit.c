// SPDX-License-Identifier: GPL-2.0
/*
 * Jobs that come by HTTP, many in a transaction: what a commit costs is shared by those who
 * came while the one before was under way, or within a moment of each other.
 *
 * There are two lanes, each with a connection of its own: a key may have to wait for another
 * transaction that has it, and who has none shall not wait with it. All jobs of a request go
 * one way, in one statement, so that they are committed together.
 *
 * Which of many has to wait for a lock is not known before each is tried by itself, and to wait
 * takes the time of all of the lane: these tries take turns with what comes meanwhile. Who had to
 * wait by itself too is held back: one of those is tried now and then, for as long as it is worth
 * it. What it waits for is remembered, as its client will ask again.
 */
#include <stdlib.h>
#include <string.h>

#include "api.h"

#ifndef BATCH_JOBS
#define BATCH_JOBS	5000	/* 1: a commit for each, to compare with (bench/run) */
#endif
#define BATCH_BYTES	(4u << 20)
#define QUEUE_JOBS	100000
#define QUEUE_BYTES	(64u << 20)
#define TRIES		5
#define LOCK_TIMEOUT	"50"		/* ms */
#define LOCK_TIMEOUT_ONE	"10"	/* of one that is tried by itself, as it may have to wait */
#define REST_NS		(100 * TWHEEL_MSEC)	/* others have most of the time */
#define HELD_NS		TWHEEL_SEC		/* then who waits for a lock is told */
#define NR_MET		1024
#define MET_NS		(60 * TWHEEL_SEC)
#define NO_DATA_FOUND	"P0002"	/* a service that is gone */
#define LOCK_NOT_AVAILABLE	"55P03"
#define ANNOUNCE	8		/* jobs that are told one by one */
#define ANNOUNCE_US	INT64_C(70000000)	/* what is due later is found in time */

/* struct element: of a statement: a job */
struct element {
	struct submission *s;
	struct new_job *job;
	uint32_t nr;	/* which of the submission */
};

/**
 * struct lane - a connection, and what waits for it
 * @node:    whose it is
 * @db:      the connection
 * @timer:   when the next statement is sent
 * @rest_timer: of @rests
 * @queue:   submissions
 * @apart:   those of a statement that failed: each is tried by itself
 * @held:    those that waited for a lock by themselves, or that will, as others did
 * @sent:    those that are in the statement that is under way
 * @element: of that statement
 * @nr_elements: how many
 * @waits:   the timer is armed
 * @retry:   the statement failed in a way that passes: not before the timer
 * @rests:   a statement waited for a lock in vain: none of the held is tried
 * @was_one: the statement before was, or that which is under way is, of one of @apart or @held
 */
struct lane {
	struct node *node;
	struct db db;
	struct twheel_timer timer, rest_timer;
	struct list queue, apart, held, sent;
	struct element *element;
	uint32_t nr_elements;
	bool waits, retry, rests, was_one;
};

/* struct met: what a submission waited for, by its hash */
struct met {
	uint64_t hash, until_ns;
};

struct submit {
	struct lane plain, keyed;
	struct met met[NR_MET];
	uint32_t nr_jobs;
	size_t bytes;
};

static void lane_send(struct lane *lane);

/* ------------------------------------------------------------------------ knowing */

int64_t when_us(const struct node *n, const struct when *when)
{
	if (when->has_at)
		return when->at_us;
	return when->delay_ms ? clock_us(n) + when->delay_ms * 1000 : clock_least_us(n);
}

/* What is due later than any owner looks ahead is found by looking. */
static bool is_to_be_told(const struct node *n, int64_t due_us)
{
	return due_us < clock_us(n) + ANNOUNCE_US + 2000 * (int64_t)n->config->poll_ms;
}

static bool known(struct node *n, const struct job *row)
{
	if (!lease_owns(n, row->shard))
		return is_to_be_told(n, row->due_us);
	horizon_know(n, row);
	return false;
}

bool row_known(struct node *n, const PGresult *r, int row)
{
	const struct job job = {
		.shard = db_int(r, row, 0), .id = db_int8(r, row, 1), .due_us = db_int8(r, row, 2),
		.service = db_int(r, row, 3), .slack_ms = db_int(r, row, 4),
		.bytes = db_int(r, row, 5), .attempt = db_int(r, row, 6),
		.state = db_int(r, row, 7),
		.flags = db_int(r, row, 8),
	};

	return known(n, &job);
}

static void ignore(void *arg, const struct db_answer *answer)
{
	(void)arg;
	(void)answer;
}

static const struct db_stmt announce = {
	"submit_announce",
	"select twheel.announce(shard, job, due, service, slack_ms, null, bytes) "
	"from unnest($1, $2, $3, $4, $5, $6) u(shard, job, due, service, slack_ms, bytes)",
	{ PG_INT2_A, PG_INT8_A, PG_TIMESTAMPTZ_A, PG_INT4_A, PG_INT4_A, PG_INT4_A },
};

static const struct db_stmt announce_many = {
	"submit_announce_many", "select pg_notify('twheel_job', 'look')", {},
};

/* struct others: jobs of shards that this node does not own */
struct others {
	struct pg_array shard, job, due, service, slack, bytes;
	uint32_t nr;
};

static void others_add(struct others *o, const struct job *row)
{
	if (o->nr++ >= ANNOUNCE)
		return;
	pg_array_int2(&o->shard, row->shard);
	pg_array_int8(&o->job, row->id);
	pg_array_int8(&o->due, row->due_us);
	pg_array_int4(&o->service, row->service);
	pg_array_int4(&o->slack, row->slack_ms);
	pg_array_int4(&o->bytes, row->bytes);
}

/* After the commit. If it is lost they are found when their owners look the next time. */
static void others_tell(struct others *o, struct db *db)
{
	struct db_params p = {};

	if (o->nr && o->nr <= ANNOUNCE) {
		db_add_array(&p, &o->shard, PG_INT2);
		db_add_array(&p, &o->job, PG_INT8);
		db_add_array(&p, &o->due, PG_TIMESTAMPTZ);
		db_add_array(&p, &o->service, PG_INT4);
		db_add_array(&p, &o->slack, PG_INT4);
		db_add_array(&p, &o->bytes, PG_INT4);
		db_query(db, &announce, &p, ignore, NULL);
	} else if (o->nr) {
		db_query(db, &announce_many, &p, ignore, NULL);
	}
	pg_array_free(&o->shard);
	pg_array_free(&o->job);
	pg_array_free(&o->due);
	pg_array_free(&o->service);
	pg_array_free(&o->slack);
	pg_array_free(&o->bytes);
}

/* ------------------------------------------------------------------------ answering */

static void end(struct lane *lane, struct submission *s, const struct db_answer *answer)
{
	struct submit *submit = lane->node->submit;

	list_del(&s->link);
	submit->nr_jobs -= s->jobs->nr;
	submit->bytes -= s->bytes;
	s->done(s, answer);
}

static void end_all(struct lane *lane, const struct db_answer *answer)
{
	while (!list_is_empty(&lane->sent))
		end(lane, TWHEEL_CONTAINER(lane->sent.next, struct submission, link), answer);
}

static bool count(struct metrics *m, const struct submission *s)
{
	for (uint32_t i = 0; i < s->jobs->nr; i++) {
		if (!s->out[i].id)
			return false;
		m->submitted += s->out[i].is_new;
		m->repeated += !s->out[i].is_new;
	}
	return true;
}

/* All is committed; but if nobody could say what a key stands for its request is not answered. */
static void end_done(struct lane *lane)
{
	const struct db_answer unknown = { .status = DB_LOST, .sent = true };

	while (!list_is_empty(&lane->sent)) {
		struct submission *s = TWHEEL_CONTAINER(lane->sent.next, struct submission, link);

		end(lane, s, count(&lane->node->metrics, s) ? NULL : &unknown);
	}
}

static bool is_passing(const char *sqlstate)
{
	return !strcmp(sqlstate, "40001") || !strcmp(sqlstate, "40P01") ||
	       !strcmp(sqlstate, "55P03") || !strcmp(sqlstate, "57014");
}

static void on_timer(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct lane *lane = TWHEEL_CONTAINER(t, struct lane, timer);

	(void)w;
	(void)missed;
	lane->waits = false;
	lane->retry = false;
	lane_send(lane);
}

/* -------------------------------------------------------------------------- locks */

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t len)
{
	const unsigned char *byte = data;

	while (len--)
		hash = (hash ^ *byte++) * UINT64_C(0x100000001b3);	/* FNV-1a */
	return hash;
}

/*
 * What it may wait for: its first key, as who asks again has the same ones in the same order, or
 * its service. If another one has that by chance it is only tried by itself.
 */
static uint64_t hash_of(const struct submission *s)
{
	const struct new_job *job = s->jobs->job;
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (uint32_t i = 0; i < s->jobs->nr; i++) {
		if (s->jobs->job[i].key) {
			job = &s->jobs->job[i];
			break;
		}
	}
	hash = hash_bytes(hash, &job->service_id, sizeof(job->service_id));
	return job->key ? hash_bytes(hash, job->key, strlen(job->key)) : hash;
}

static struct met *met_of(const struct lane *lane, uint64_t hash)
{
	return &lane->node->submit->met[hash % NR_MET];
}

static bool is_met(const struct lane *lane, uint64_t hash)
{
	const struct met *met = met_of(lane, hash);

	return met->hash == hash && boottime_ns() < met->until_ns;
}

/* It waited in vain, by itself: others go first. */
static void hold(struct lane *lane, struct submission *s, const struct db_answer *answer)
{
	uint64_t now = boottime_ns();

	*met_of(lane, s->hash) = (struct met){ s->hash, now + MET_NS };
	if (!s->held_ns)
		s->held_ns = now;
	if (now >= s->held_ns + HELD_NS) {
		end(lane, s, answer);
		return;
	}
	list_del(&s->link);
	list_add_tail(&lane->held, &s->link);
}

/* The sent one waits no longer, and those who wait for the same need not be tried one by one. */
static void let_go(struct lane *lane)
{
	uint64_t hash = TWHEEL_CONTAINER(lane->sent.next, struct submission, link)->hash;
	struct list *next;

	if (!is_met(lane, hash))
		return;
	met_of(lane, hash)->until_ns = 0;
	for (struct list *l = lane->held.next; l != &lane->held; l = next) {
		next = l->next;
		if (TWHEEL_CONTAINER(l, struct submission, link)->hash != hash)
			continue;
		list_del(l);
		list_add_tail(&lane->queue, l);
	}
}

/* Those that wait for too long are told, though with many of them not each was tried. */
static void on_rest(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	const struct db_answer locked = { .status = DB_FAILED, .sqlstate = LOCK_NOT_AVAILABLE,
					  .message = "another transaction has the key" };
	struct lane *lane = TWHEEL_CONTAINER(t, struct lane, rest_timer);
	uint64_t now = boottime_ns();
	struct list *next;

	(void)w;
	(void)missed;
	lane->rests = false;
	for (struct list *l = lane->held.next; l != &lane->held; l = next) {
		struct submission *s = TWHEEL_CONTAINER(l, struct submission, link);

		next = l->next;
		if (now >= s->held_ns + HELD_NS)
			end(lane, s, &locked);
	}
	lane_send(lane);
}

static void rest(struct lane *lane)
{
	if (!lane->rests)
		loop_arm(&lane->node->loop, &lane->rest_timer, REST_NS, on_rest);
	lane->rests = true;
}

/*
 * Those of a statement that failed are tried again, each by itself: of many one only may have
 * to wait for a lock, or be such that the database refuses it.
 */
static void again(struct lane *lane, const struct db_answer *answer)
{
	bool passing = is_passing(answer->sqlstate), many;
	bool locked = !strcmp(answer->sqlstate, LOCK_NOT_AVAILABLE);

	many = lane->sent.next != lane->sent.prev;
	if (!passing && strcmp(answer->sqlstate, NO_DATA_FOUND))
		log_error("submit sqlstate=%s message=%s", answer->sqlstate,
			  quoted(answer->message));
	while (!list_is_empty(&lane->sent)) {
		struct submission *s = TWHEEL_CONTAINER(lane->sent.next, struct submission, link);

		if (locked && !many) {
			hold(lane, s, answer);
			continue;
		}
		if (++s->tries >= TRIES || (!passing && !many)) {
			end(lane, s, answer);
			continue;
		}
		list_del(&s->link);
		list_add_tail(&lane->apart, &s->link);
	}
	if (locked)
		rest(lane);
	if (locked || !passing || lane->retry)
		return;
	lane->retry = true;
	lane->waits = true;
	twheel_arm(lane->node->loop.wheel, &lane->timer, 5 * TWHEEL_MSEC, on_timer);
}

/* The answer to a statement that was about the sent. False: there is nothing more to be done. */
static bool lane_answered(struct lane *lane, const struct db_answer *answer)
{
	if (answer->status == DB_DONE)
		return true;
	free(lane->element);
	lane->element = NULL;
	if (answer->status == DB_LOST)
		end_all(lane, answer);
	else
		again(lane, answer);
	lane_send(lane);
	return false;
}

/* --------------------------------------------------------------------------- keys */

static const struct db_stmt lookup = {
	"submit_lookup",
	"select u.n, l.job, (select j.at from twheel.job j where j.id = l.job) "
	"from unnest($1, $2) with ordinality u(service, key, n), "
	"lateral twheel.lookup(u.service, u.key) l(job) order by u.n",
	{ PG_INT4_A, PG_TEXT_A },
};

static void finish(struct lane *lane)
{
	free(lane->element);
	lane->element = NULL;
	if (lane->was_one)
		let_go(lane);
	end_done(lane);
	lane_send(lane);
}

static bool is_unknown(const struct element *e)
{
	return !e->s->out[e->nr].id;
}

/*
 * What was inserted is committed whatever is answered here. A key that was given up for its age
 * since it was found is not there: that is rare, and the client has to ask again.
 */
static void on_lookup(void *arg, const struct db_answer *answer)
{
	struct lane *lane = arg;
	int nr = answer->status == DB_DONE ? PQntuples(answer->result) : 0;

	for (uint32_t i = 0, row = 0; i < lane->nr_elements && (int)row < nr; i++) {
		struct submitted *out = &lane->element[i].s->out[lane->element[i].nr];

		if (out->id)
			continue;
		out->id = db_int8(answer->result, row, 1);
		out->at_us = db_int8(answer->result, row, 2);
		out->has_at = !db_is_null(answer->result, row, 2);
		row++;
	}
	finish(lane);
}

/* The keys that stood for other jobs already, or are in the statement twice. */
static void look_up(struct lane *lane)
{
	struct pg_array services = {}, keys = {};
	struct db_params p = {};

	for (uint32_t i = 0; i < lane->nr_elements; i++) {
		const struct element *e = &lane->element[i];

		if (!is_unknown(e))
			continue;
		pg_array_int4(&services, e->job->service_id);
		pg_array_bytes(&keys, e->job->key, strlen(e->job->key));
	}
	db_add_array(&p, &services, PG_INT4);
	db_add_array(&p, &keys, PG_TEXT);
	db_query(&lane->db, &lookup, &p, on_lookup, lane);
}

/* ----------------------------------------------------------------------- inserting */

static const struct db_stmt insert = {
	"submit_insert",
	"select n, job, shard, due from twheel.insert_jobs($1, $2, $3, $4, $5, $6, $7, $8)",
	{ PG_INT2_A, PG_INT4_A, PG_TIMESTAMPTZ_A, PG_TEXT_A, PG_TEXT_A, PG_TEXT_A, PG_INT4_A,
	  PG_BYTEA_A },
};

/* The time is set before, as the function depends on it, and for this transaction alone. */
static const struct db_stmt insert_one = {
	"submit_insert_one",
	"select n, job, shard, due "
	"from set_config('lock_timeout', '" LOCK_TIMEOUT_ONE "', true) t(ms), lateral "
	"twheel.insert_jobs(case when t.ms is not null then $1 end, $2, $3, $4, $5, $6, $7, $8)",
	{ PG_INT2_A, PG_INT4_A, PG_TIMESTAMPTZ_A, PG_TEXT_A, PG_TEXT_A, PG_TEXT_A, PG_INT4_A,
	  PG_BYTEA_A },
};

static void on_insert(void *arg, const struct db_answer *answer)
{
	struct lane *lane = arg;
	struct others others = {};
	bool all = true;

	if (!lane_answered(lane, answer))
		return;
	for (int i = 0; i < PQntuples(answer->result); i++) {
		int64_t nr = db_int8(answer->result, i, 0) - 1;
		struct element *e = &lane->element[nr];
		struct submitted *out = &e->s->out[e->nr];
		struct job row = {};

		row.id = db_int8(answer->result, i, 1);
		if (!row.id) {
			all = false;
			continue;
		}
		row.shard = db_int(answer->result, i, 2);
		row.due_us = db_int8(answer->result, i, 3);
		row.service = e->job->service_id;
		row.slack_ms = e->job->slack_ms;
		row.bytes = e->job->payload.len;
		out->id = row.id;
		out->has_at = true;
		out->is_new = true;
		if (known(lane->node, &row))
			others_add(&others, &row);
	}
	others_tell(&others, &lane->db);
	if (all)
		finish(lane);
	else
		look_up(lane);
}

static void add_text(struct pg_array *a, const char *text)
{
	if (text)
		pg_array_bytes(a, text, strlen(text));
	else
		pg_array_null(a);
}

static void insert_elements(struct lane *lane)
{
	struct pg_array shards = {}, services = {}, ats = {}, keys = {}, orders = {}, tags = {},
			slacks = {}, payloads = {};
	int shard = lease_any_shard(lane->node);
	struct db_params p = {};

	for (uint32_t i = 0; i < lane->nr_elements; i++) {
		const struct element *e = &lane->element[i];

		pg_array_int2(&shards, shard);
		pg_array_int4(&services, e->job->service_id);
		pg_array_int8(&ats, e->s->out[e->nr].at_us);
		add_text(&keys, e->job->key);
		add_text(&orders, e->job->order_key);
		add_text(&tags, e->job->tag);
		pg_array_int4(&slacks, e->job->slack_ms);
		pg_array_bytes(&payloads, e->job->payload.len ? e->job->payload.data : "",
			       e->job->payload.len);
	}
	db_add_array(&p, &shards, PG_INT2);
	db_add_array(&p, &services, PG_INT4);
	db_add_array(&p, &ats, PG_TIMESTAMPTZ);
	db_add_array(&p, &keys, PG_TEXT);
	db_add_array(&p, &orders, PG_TEXT);
	db_add_array(&p, &tags, PG_TEXT);
	db_add_array(&p, &slacks, PG_INT4);
	db_add_array(&p, &payloads, PG_BYTEA);
	db_query(&lane->db, lane->was_one ? &insert_one : &insert, &p, on_insert, lane);
}

static void add_elements(struct lane *lane, struct submission *s)
{
	for (uint32_t i = 0; i < s->jobs->nr; i++) {
		lane->element[lane->nr_elements++] = (struct element){ s, &s->jobs->job[i], i };
		s->out[i] = (struct submitted){
			.at_us = when_us(lane->node, &s->jobs->job[i].when),
		};
	}
}

/* Whose turn it is. NULL: nobody waits, or not for the connection. */
static struct list *next_list(struct lane *lane)
{
	struct list *one = NULL;

	if (!list_is_empty(&lane->apart))
		one = &lane->apart;
	else if (!list_is_empty(&lane->held) && !lane->rests)
		one = &lane->held;
	if (list_is_empty(&lane->queue) || (one && !lane->was_one))
		return one;
	return &lane->queue;
}

/* Moves what goes into the next statement to the sent, and says how many jobs that are. */
static uint32_t choose(struct lane *lane)
{
	struct list *from = next_list(lane);
	uint32_t nr = 0;
	size_t bytes = 0;

	if (!from)
		return 0;
	lane->was_one = from != &lane->queue;
	while (!list_is_empty(from)) {
		struct submission *s = TWHEEL_CONTAINER(from->next, struct submission, link);

		if (nr && (lane->was_one || nr + s->jobs->nr > BATCH_JOBS ||
			   bytes + s->bytes > BATCH_BYTES))
			break;
		list_del(&s->link);
		list_add_tail(&lane->sent, &s->link);
		nr += s->jobs->nr;
		bytes += s->bytes;
	}
	return nr;
}

/* What has come together, if the connection is free. If it is not there they are told. */
static void lane_send(struct lane *lane)
{
	uint32_t nr;

	if (!list_is_empty(&lane->sent) || lane->retry)
		return;
	nr = choose(lane);
	if (!nr)
		return;
	if (lane->waits)
		twheel_cancel(lane->node->loop.wheel, &lane->timer);
	lane->waits = false;
	lane->element = xmalloc(nr * sizeof(*lane->element));
	lane->nr_elements = 0;
	for (struct list *l = lane->sent.next; l != &lane->sent; l = l->next)
		add_elements(lane, TWHEEL_CONTAINER(l, struct submission, link));
	insert_elements(lane);
}

bool submit_is_up(const struct node *n)
{
	return n->submit->plain.db.state == DB_UP && clock_is_known(n);
}

bool submit_is_idle(const struct node *n)
{
	return !n->submit->nr_jobs && !n->submit->plain.db.first && !n->submit->keyed.db.first;
}

bool submit_is_open(const struct node *n)
{
	return n->submit->plain.db.state == DB_UP && n->submit->keyed.db.state == DB_UP;
}

bool submit_jobs(struct node *n, struct submission *s)
{
	struct submit *submit = n->submit;
	struct lane *lane;

	s->bytes = 0;
	s->keyed = false;
	for (uint32_t i = 0; i < s->jobs->nr; i++) {
		s->bytes += s->jobs->job[i].payload.len;
		s->keyed |= !!s->jobs->job[i].key;
	}
	if (submit->nr_jobs + s->jobs->nr > QUEUE_JOBS || submit->bytes + s->bytes > QUEUE_BYTES)
		return false;
	submit->nr_jobs += s->jobs->nr;
	submit->bytes += s->bytes;
	s->out = xcalloc(s->jobs->nr, sizeof(*s->out));
	s->hash = hash_of(s);
	lane = s->keyed ? &submit->keyed : &submit->plain;
	s->held_ns = is_met(lane, s->hash) ? boottime_ns() : 0;
	list_add_tail(s->held_ns ? &lane->held : &lane->queue, &s->link);
	if (lane->waits || !list_is_empty(&lane->sent))
		return true;
	lane->waits = true;
	twheel_arm(n->loop.wheel, &lane->timer, n->config->submit_group_us * TWHEEL_USEC, on_timer);
	return true;
}

/* Before the loop waits: what is not to wait for others, or is enough. */
static void lane_flush(struct lane *lane)
{
	if (!lane->node->config->submit_group_us || lane->node->draining ||
	    lane->node->submit->nr_jobs >= BATCH_JOBS)
		lane_send(lane);
}

void submit_flush(struct node *n)
{
	if (!n->submit)
		return;
	lane_flush(&n->submit->plain);
	lane_flush(&n->submit->keyed);
}

/* ------------------------------------------------------------------------- opening */

static void lane_open(struct node *n, struct lane *lane, const char *what)
{
	lane->node = n;
	list_init(&lane->queue);
	list_init(&lane->apart);
	list_init(&lane->held);
	list_init(&lane->sent);
	lane->db.what = what;
	lane->db.loop = &n->loop;
	lane->db.conninfo = n->config->database;
	lane->db.node = n->lease.text;
	lane->db.identity = &n->lease.identity;
	/* An application that keeps a key for long must not stop the other keys. */
	lane->db.options = "-c lock_timeout=" LOCK_TIMEOUT;
	db_open(&lane->db);
}

void submit_open(struct node *n)
{
	n->submit = xcalloc(1, sizeof(*n->submit));
	lane_open(n, &n->submit->plain, "submit");
	lane_open(n, &n->submit->keyed, "submit-keyed");
}

void submit_reset(struct node *n)
{
	db_reset(&n->submit->plain.db);
	db_reset(&n->submit->keyed.db);
}

/* What is queued still is not done: who has to know is told by api_close(). */
void submit_close(struct node *n)
{
	struct lane *lanes[] = { &n->submit->plain, &n->submit->keyed };

	for (int i = 0; i < 2; i++) {
		db_close(&lanes[i]->db);
		twheel_cancel(n->loop.wheel, &lanes[i]->timer);
		twheel_cancel(n->loop.wheel, &lanes[i]->rest_timer);
		free(lanes[i]->element);
	}
	free(n->submit);
	n->submit = NULL;
}
