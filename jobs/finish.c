// SPDX-License-Identifier: GPL-2.0
/*
 * What came of calls.
 *
 * A result is recorded for the attempt it is of, whoever owns the shard by then: the node
 * that called is the one that knows. An attempt has its number from the mark that began it
 * (fire.c), and no mark gives it again; so a result that is late, or recorded twice because
 * the answer was lost, finds another attempt, or none, and changes nothing. That a node gave
 * an attempt up before the first byte is a result as well, and keeps the number.
 *
 * If nothing is recorded by the time that the mark gave, the owner of the shard records that
 * the attempt is over; and only then, so that takeovers leave alone what is running. It
 * matches "due" as well, by which the clock of the database decides.
 *
 * So each attempt is begun once, and is followed by another one only if it failed, was not
 * answered in time, or its result could not be recorded.
 *
 * An application may have the row of a job locked, as of one that it tried to cancel or whose
 * schedule it edits, for as long as it likes. The result of that job waits; those of others are
 * recorded. What is locked is looked for only after a statement had to wait: to do it each time
 * costs each job.
 *
 * Results are kept until they are recorded. They are no more than there are calls.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"

#define BATCH		1000

/*
 * Results wait for others, so that a statement has more than one; if the node dies meanwhile they
 * are called again, as in the time that the statement takes. Not those that others wait for.
 */
#define GATHER_NS	(50 * TWHEEL_MSEC)
#define ENOUGH		100
#define MAX_DELAY_US	INT64_C(86400000000)

#define MAX_WAIT	"100ms"			/* for rows that others have locked */
#define HELD_NS		(500 * TWHEEL_MSEC)	/* until it is seen whether they still have */
#define IS_HELD		(-2)			/* in place of a state */

/*
 * An attempt that ends its job has no line of its own in the logs, but that of the job (0001.sql).
 *
 * A row for each job that goes on, and for each that its order key lets go next. "due" is
 * written by whoever has a transaction number (horizon.c), thus by owe().
 */
#define RECORD \
	"over as (delete from twheel.job j using u where " OF_ATTEMPT "and u.outcome in (0, 2) " \
	"returning j.*, " RESULT "), " \
	"again as (update twheel.job j set state = case when u.outcome = 3 then 2 else 0 end, " \
	"due = twheel.owe() + u.delay_us * interval '1 microsecond' from u where " OF_ATTEMPT \
	"and u.outcome in (1, 3, 5) " \
	"returning j.id, j.shard, j.due, j.service, j.state, j.attempt, j.slack_ms, j.payload, " \
	"j.at, j.flags, " RESULT "), " \
	"log as (insert into twheel.execlog " \
	"(job, late_us, took_us, node, service, attempt, status, outcome, message) " \
	"select id, late_us, took_us, node, service, attempt, nullif(status, 0), outcome, " \
	"nullif(message, '') from again where outcome <> 5), " \
	"back as (insert into twheel.backlog (job, due, service, attempt, state, key, order_key, " \
	"tag, message, payload, late_us, took_us, status, node) " \
	"select id, at, service, attempt, case outcome when 0 then 3 else 4 end, key, order_key, " \
	"tag, nullif(message, ''), case outcome when 2 then payload end, " \
	"late_us, took_us, nullif(status, 0), node from over) " \
	"select id, shard, due, service, state::int4, attempt, slack_ms, octet_length(payload), " \
	FLAGS_OF("again") ", false from again " \
	"union all select k.id, k.shard, k.due, k.service, k.state, k.attempt, k.slack_ms, " \
	"octet_length(k.payload), " FLAGS_OF("k") ", true from over o cross join lateral (" \
	"select * from twheel.job p where p.order_key = o.order_key and p.service = o.service " \
	"and p.id <> o.id order by p.at, p.id limit 1) k"

/* Of u, taken along: to join that again is to compare each with each, as there is no index. */
#define RESULT "u.outcome, u.status, u.late_us, u.took_us, u.node, u.message"

#define OF_ATTEMPT \
	DB_IS("j.id", "u.id") "and j.attempt = u.attempt and j.state in (1, 2) " \
	"and (u.due is null or (j.due = u.due and j.due <= clock_timestamp())) "

#define RESULTS	\
	"(select *, $1 as node from unnest($2, $3, $4, $5, $6, $7, $8, $9, $10) " \
	"u(id, attempt, outcome, status, late_us, took_us, delay_us, due, message))"

#define RESULT_TYPES \
	{ PG_UUID, PG_INT8_A, PG_INT4_A, PG_INT4_A, PG_INT4_A, PG_INT8_A, PG_INT8_A, PG_INT8_A, \
	  PG_TIMESTAMPTZ_A, PG_TEXT_A }

static const struct db_stmt record = {
	.name = "record",
	.sql = "with u as materialized " RESULTS ", " RECORD,
	.types = RESULT_TYPES,
};

/* The same, and a row for each that is locked, of which nothing is recorded. */
static const struct db_stmt record_unlocked = {
	.name = "record_unlocked",
	.sql = "with r as materialized " RESULTS ", l as materialized ("
	       "select j.id from twheel.job j where j.id = any($2) order by j.id "
	       "for update skip locked), "
	       "u as materialized (select * from r where id in (select id from l)), " RECORD
	       " union all select u.id, j.shard, null, j.service, -2, u.attempt, 0, 0, 0, false "
	       "from r u join twheel.job j on " OF_ATTEMPT "where u.id not in (select id from l)",
	.types = RESULT_TYPES,
};

/* The attempt is the one that the token is of. */
static const struct db_stmt report = {
	.name = "report",
	.sql = "with u as materialized (select j.id, j.attempt, "
	       "case when $4 then 0 when j.attempt >= s.max_attempts then 2 else 1 end as outcome, "
	       "0 as status, 0::int8 as late_us, null::int8 as took_us, "
	       "(random() * least(s.backoff_max_ms, s.backoff_ms * 2.0 ^ least(j.attempt - 1, 30)) "
	       "* 1000)::int8 as delay_us, null::timestamptz as due, $5 as message, $1 as node "
	       "from twheel.job j join twheel.service s on s.id = j.service "
	       "where j.id = $2 and j.state in (1, 2) and twheel.token(j.id, j.attempt) = $3), "
	       RECORD " union all select id, shard, null, service, -1, attempt, 0, 0, 0, false "
	       "from over",
	.types = { PG_UUID, PG_INT8, PG_TEXT, PG_BOOL, PG_TEXT },
};

static void append(struct finish *f, struct result *r)
{
	r->next = NULL;
	if (f->last)
		f->last->next = r;
	else
		f->first = r;
	f->last = r;
	f->nr++;
	f->added++;
}

static void add(struct node *n, const struct result *result)
{
	struct result *r = xmalloc(sizeof(*r));

	*r = *result;
	append(&n->finish, r);
}

bool finish_has(const struct node *n, int64_t id)
{
	const struct finish *f = &n->finish;
	const struct result *const lists[] = { f->sent, f->first, f->held };
	const struct result *r;

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
		for (r = lists[i]; r; r = r->next)
			if (r->id == id)
				return true;
	return false;
}

static void count(struct node *n, const struct result *r)
{
	struct metrics *m = &n->metrics;
	uint64_t *counters[] = {
		[OUT_DONE] = &m->done,
		[OUT_AGAIN] = &m->again,
		[OUT_FAILED] = &m->failed,
		[OUT_ACCEPTED] = &m->accepted,
	};

	if (r->outcome < ARRAY_SIZE(counters))
		++*counters[r->outcome];
}

/* What asks to be tried again, and what says that it never will do. */
static bool is_final(int32_t status)
{
	return status >= 400 && status < 500 && status != 408 && status != 425 && status != 429;
}

static void judge(const struct service *s, const struct call *c, struct result *r)
{
	r->status = c->status;
	if (c->withheld) {
		r->outcome = OUT_NOTHING;
	} else if (c->status == 202) {
		r->outcome = OUT_ACCEPTED;
		r->delay_us = s->accept_ms * INT64_C(1000);
	} else if (c->confirmed || (c->status >= 200 && c->status < 300)) {
		r->outcome = OUT_DONE;
	} else if (is_final(c->status) || (s->at_most_once && c->began_us) ||
		   (uint32_t)c->attempt >= s->max_attempts) {
		r->outcome = OUT_FAILED;
	} else {
		r->outcome = OUT_AGAIN;
		r->delay_us = c->retry_after_ms ? (int64_t)c->retry_after_ms * 1000 :
						  service_backoff_us(s, c->attempt);
	}
	if (r->delay_us > MAX_DELAY_US && r->outcome == OUT_AGAIN)
		r->delay_us = MAX_DELAY_US;
}

void finish_call(struct node *n, struct call *c)
{
	struct result r = {
		.id = c->id,
		.attempt = c->attempt,
		.due_us = PG_INFINITY,
	};

	judge(c->service, c, &r);
	if (c->began_us) {
		/* By the clock as it is known here, which may be behind by what a call takes. */
		r.late_us = c->began_us > c->due_us ? c->began_us - c->due_us : 0;
		r.took_us = (boottime_ns() - c->began_ns) / 1000;
		fire_note_late(n, r.late_us);
	}
	snprintf(r.message, sizeof(r.message), "%s", r.outcome == OUT_DONE ? "" : c->message);
	count(n, &r);
	if (!c->withheld)
		service_ended(n, c->service, c->status ? c->status >= 500 : !c->confirmed);
	else
		service_unbegin(n, c->service);
	add(n, &r);
	n->finish.ripe |= c->ordered;
	buf_free(&c->payload);
	free(c);
}

void finish_overdue(struct node *n, const struct job *job)
{
	struct service *s = service_by_id(n, job->service);
	struct result r = {
		.id = job->id,
		.attempt = job->attempt,
		.outcome = OUT_FAILED,
		.due_us = job->due_us,
		.message = "no result in time",
	};

	if (s && !s->at_most_once && (uint32_t)job->attempt < s->max_attempts) {
		r.outcome = OUT_AGAIN;
		r.delay_us = service_backoff_us(s, job->attempt);
	}
	count(n, &r);
	add(n, &r);
}

/*
 * Those that go on, if they are of this node, and those that waited for one that is over. A
 * report has a row for what is over as well.
 */
static void go_on(struct node *n, const PGresult *r)
{
	struct job row, *job;
	int i;

	for (i = 0; i < PQntuples(r); i++) {
		if (db_int(r, i, 4) < 0)
			continue;
		row = horizon_row(r, i);
		job = horizon_find(n, row.id);
		/* It waits for some ms more each time that it could not begin. */
		if (db_bool(r, i, 9) && job && job->tries && !job->busy)
			horizon_drop(n, job);
		horizon_know(n, &row);
	}
	/* These may be its jobs. */
	if (i)
		successor_look(n);
}

static void waited(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct finish *f = TWHEEL_CONTAINER(t, struct finish, timer);

	(void)w;
	(void)missed;
	/* The loop flushes when it has nothing to do. */
	f->ripe = true;
	f->failed = false;
}

/* They are as if they were recorded to whoever waits for those before, and come anew later. */
static void try_held(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct finish *f = TWHEEL_CONTAINER(t, struct finish, held_timer);
	struct result *r;

	(void)w;
	(void)missed;
	while ((r = f->held)) {
		f->held = r->next;
		append(f, r);
	}
	f->nr_held = 0;
	f->careful = true;
	f->ripe = true;
}

static bool is_held(const PGresult *rows, const struct result *result)
{
	int i;

	for (i = 0; i < PQntuples(rows); i++)
		if (db_int(rows, i, 4) == IS_HELD && db_int8(rows, i, 0) == result->id &&
		    db_int(rows, i, 5) == result->attempt)
			return true;
	return false;
}

static void settle(struct node *n, const PGresult *rows)
{
	struct finish *f = &n->finish;
	struct result *r, **end = &f->held;

	while (*end)
		end = &(*end)->next;
	while ((r = f->sent)) {
		f->sent = r->next;
		f->nr--;
		if (!f->sent_careful || !is_held(rows, r)) {
			free(r);
			continue;
		}
		r->next = NULL;
		*end = r;
		end = &r->next;
		f->nr_held++;
	}
	if (f->held && !twheel_is_armed(&f->held_timer))
		loop_arm(&n->loop, &f->held_timer, HELD_NS, try_held);
}

/* Before the others. */
static void put_back(struct finish *f)
{
	struct result *last;

	for (last = f->sent; last->next; last = last->next)
		;
	last->next = f->first;
	if (!f->first)
		f->last = last;
	f->first = f->sent;
	f->sent = NULL;
}

static void recorded(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	struct finish *f = &n->finish;

	if (a->status == DB_DONE) {
		go_on(n, a->result);
		settle(n, a->result);
		return;
	}
	put_back(f);
	if (a->status == DB_FAILED && !f->sent_careful && !strcmp(a->sqlstate, "55P03")) {
		f->careful = true;
		f->ripe = true;
		return;
	}
	f->careful |= f->sent_careful;
	if (a->status == DB_FAILED)
		log_warn("record failed=%s state=%s", quoted(a->message), a->sqlstate);
	f->failed = a->status == DB_FAILED;
	if (f->failed)
		loop_arm(&n->loop, &f->timer, 50 * TWHEEL_MSEC, waited);
}

static void send_results(struct node *n)
{
	struct pg_array ids = {}, attempts = {}, outcomes = {}, statuses = {}, lates = {};
	struct pg_array tooks = {}, delays = {}, dues = {}, messages = {};
	struct finish *f = &n->finish;
	struct db_params p = {};
	struct result *r, *last = NULL;
	int i;

	if (!f->first)
		return;
	for (i = 0, r = f->first; r && i < BATCH; i++, r = r->next) {
		pg_array_int8(&ids, r->id);
		pg_array_int4(&attempts, r->attempt);
		pg_array_int4(&outcomes, r->outcome);
		pg_array_int4(&statuses, r->status);
		pg_array_int8(&lates, r->late_us);
		pg_array_int8(&tooks, r->took_us);
		pg_array_int8(&delays, r->delay_us);
		if (r->due_us == PG_INFINITY)
			pg_array_null(&dues);
		else
			pg_array_int8(&dues, r->due_us);
		pg_array_bytes(&messages, r->message, strlen(r->message));
		last = r;
	}
	f->sent = f->first;
	f->first = last->next;
	if (!f->first)
		f->last = NULL;
	last->next = NULL;
	db_add_bytes(&p, n->lease.node, sizeof(n->lease.node));
	db_add_array(&p, &ids, PG_INT8);
	db_add_array(&p, &attempts, PG_INT4);
	db_add_array(&p, &outcomes, PG_INT4);
	db_add_array(&p, &statuses, PG_INT4);
	db_add_array(&p, &lates, PG_INT8);
	db_add_array(&p, &tooks, PG_INT8);
	db_add_array(&p, &delays, PG_INT8);
	db_add_array(&p, &dues, PG_TIMESTAMPTZ);
	db_add_array(&p, &messages, PG_TEXT);
	f->sent_careful = f->careful;
	f->careful = false;
	db_query(&f->db, f->sent_careful ? &record_unlocked : &record, &p, recorded, n);
}

void finish_flush(struct node *n)
{
	struct finish *f = &n->finish;

	if (!f->first || f->sent || f->failed || f->db.state != DB_UP)
		return;
	if (f->ripe || f->nr >= ENOUGH || n->draining) {
		f->ripe = false;
		twheel_cancel(n->loop.wheel, &f->timer);
		send_results(n);
	} else if (!twheel_is_armed(&f->timer)) {
		loop_arm(&n->loop, &f->timer, GATHER_NS, waited);
	}
}

/* struct reported - who is to be told of a report */
struct reported {
	struct node *node;
	db_fn *fn;
	void *arg;
};

static void reported(void *arg, const struct db_answer *a)
{
	struct reported *r = arg;

	if (a->status == DB_DONE)
		go_on(r->node, a->result);
	r->fn(r->arg, a);
	free(r);
}

void finish_report(struct node *n, int64_t id, const char *token, bool is_done,
		   const char *message, db_fn *fn, void *arg)
{
	struct reported *r = xmalloc(sizeof(*r));
	struct db_params p = {};

	*r = (struct reported){ n, fn, arg };
	db_add_bytes(&p, n->lease.node, sizeof(n->lease.node));
	db_add_int8(&p, id);
	db_add_bytes(&p, token, strlen(token));
	db_add_bool(&p, is_done);
	db_add_bytes(&p, message, strlen(message));
	db_query(&n->finish.db, &report, &p, reported, r);
}

void finish_open(struct node *n)
{
	struct finish *f = &n->finish;

	f->db = (struct db){
		.what = "finish",
		.loop = &n->loop,
		.conninfo = n->config->database,
		.node = n->lease.text,
		.identity = &n->lease.identity,
		.options = "-c lock_timeout=" MAX_WAIT " " DB_BY_INDEX,
		.arg = n,
	};
	db_open(&f->db);
}

void finish_close(struct node *n)
{
	struct finish *f = &n->finish;
	struct result *r;

	db_close(&f->db);
	twheel_cancel(n->loop.wheel, &f->timer);
	twheel_cancel(n->loop.wheel, &f->held_timer);
	while ((r = f->sent ?: f->first ?: f->held)) {
		if (f->sent)
			f->sent = r->next;
		else if (f->first)
			f->first = r->next;
		else
			f->held = r->next;
		free(r);
	}
}
