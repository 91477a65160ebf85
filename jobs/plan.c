// SPDX-License-Identifier: GPL-2.0
/*
 * Makes the jobs of schedules: for each instant one, some seconds before it is due. From then on
 * they are jobs as others are, and fire.c is as fast with them.
 *
 * Which instants a schedule has follows from what it says (schedule.c), so that it does not matter
 * who computes them, nor how often. What has been made of them is in one place, "last" of its row:
 * there is a job, or there was, or none is to be, for each instant up to that; and none for any
 * that is later. Why each instant gives exactly one job:
 *
 *   - One statement makes jobs and writes "last" behind them, if the row is what they were
 *     computed from: the same "last", and the same version of what says when ("timing"). Of two
 *     statements that know the same row the second one finds another. That is so whoever sends
 *     them; that it joins the shards that this node holds, as all batches do (fire.c), is to have
 *     one planner, not to have one job. What else there is to say, the payload and so on, it takes
 *     from the row that it has locked: edits of that do not make it fail, however many there are.
 *   - An edit, a pause and a deletion, by whatever statement of whomever, have the row locked
 *     first, and then take back what is planned and has not begun (unplan() of 0001.sql): nothing
 *     is planned in between. They set "last" back to before the first instant that was taken back,
 *     from which on all were; what has begun they leave, and "last" stays behind it. That "last" is
 *     one that was there before does no harm to who still knows that row: what it computed is
 *     right again. With other times "last" is now, or behind what has begun, and the version is
 *     another one; but as long as an instant up to now is not planned yet, "last" stays.
 *   - A transaction in a snapshot of before fails at the lock of the row if anything was planned
 *     since, and at those of jobs if one of them was begun.
 *
 * "next" in a row is when somebody is to look at it: it may be wrong without harm, but for one
 * that is too late. It is written with "last", and set to be at once by edits. What is planned by
 * an older tzdata may be too late by a newer one. So schedules with a zone are all looked at
 * (a review) when a shard is taken, and when files of tzdata change: "next" is computed again, and
 * what is planned already and is none of the instants any more is taken back as by an edit. One
 * instant may be lost: one that only the newer tzdata has, and that is before the first one that
 * was taken back by an edit of something else, some seconds before. Such an edit would have to set
 * "last" back to now, and then instants would have jobs again whose jobs somebody has cancelled.
 * tests/model/chain.py goes through all of this.
 *
 * Instants that are late by more than misfire_ms when they are planned have misfired: none is made
 * up, or the last one, or each. If that is done, what was planned of those and not begun, as the
 * whole cluster had died, misfires with them; fire.c looks at the rest of what was planned and is
 * late. If the clock of the database is set back nothing is planned until it comes to "last".
 *
 * A schedule that was paused for a day, each second and "ignore", has 86,400 instants to make up,
 * and a statement makes a thousand: in order of "next" a few of those would keep all others from
 * their times for minutes. So there are three sorts of schedules to be looked at, and each look
 * begins with the first:
 *
 *   - "next" is -infinity: it was made or edited, and nobody knows where it stands. If it is late
 *     it gives no job yet, but is told "next": many that were edited together are soon known.
 *   - It is on time: the earliest first. That is no more work than there are instants in real time;
 *     and a statement for others takes some 50 ms, where one is planned two seconds ahead.
 *   - It is late: the one that is least so first, so that what has missed some seconds does not
 *     wait for what has missed a day; and of several days one after the other comes to its end.
 *
 * What is made up is due at once, and who hands over takes what is due as it comes: so nothing is
 * made up while more waits there than goes into a batch. Without that, 38 schedules that made up a
 * day kept jobs of other queues waiting for 2 s, and for longer from second to second; with it for
 * 50 ms.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"
#include "schedule.h"

/* A schedule is planned when an instant is as near as the first, up to the second. */
#define LEAD_US		2000000
#define AHEAD_US	5000000

/* From when on one is late. */
#define ON_TIME_US	5000000

/* In a statement: schedules, instants of one and of all, and bytes of payload about. */
#define MAX_SCHEDULES_SENT	512U
#define MAX_OF_ONE	100
#define MAX_INSTANTS	1000U
#define MAX_BYTES	(4 << 20)
#define MAX_BUSY	10000U
#define REVIEW_PAGE	1000

#define MIN_PAUSE_NS	(20 * TWHEEL_MSEC)
#define BUSY_NS		(50 * TWHEEL_MSEC)
#define MAX_BUSY_NS	(400 * TWHEEL_MSEC)
#define BEHIND_US	20000
#define FAILED_NS	(500 * TWHEEL_MSEC)
#define MAX_PAUSE_NS	(60 * TWHEEL_SEC)
#define ZONES_NS	(10 * TWHEEL_SEC)
#define TRY_ZONE_US	60000000

/* Jobs that are about to be begun are none that a review asks about. */
#define BEGINS_US	200000

#define COLUMNS \
	"s.id, s.shard, s.timing, s.last, s.next, s.cron, s.tz, coalesce(s.every_ms, 0), " \
	"coalesce(s.count, 0), coalesce(s.start_at, case when s.cron is null then s.began end), " \
	"s.end_at, twheel.misfire_policy(s.misfire, s.every_ms, s.count), s.misfire_ms, " \
	"octet_length(s.payload)"

enum {
	C_ID, C_SHARD, C_TIMING, C_LAST, C_NEXT, C_CRON, C_TZ, C_EVERY, C_COUNT, C_START, C_END,
	C_MISFIRE, C_MISFIRE_MS, C_BYTES, C_PLANNED
};

/*
 * Those that are to be looked at; the row that is last has when the next one of the others is. Of
 * each sort there are some of each shard, from where they are in the index.
 */
static const struct db_stmt look = {
	.name = "plan-look",
	.sql = "(select " COLUMNS ", null from unnest($1) c(shard) cross join lateral ("
	       "(select s.*, false as late from twheel.schedule s where s.shard = c.shard "
	       "and s.next = '-infinity' and s.id <> all($3) limit 64) union all "
	       "(select s.*, false from twheel.schedule s where s.shard = c.shard "
	       "and s.next >= $5 and s.next <= $2 and s.id <> all($3) "
	       "order by s.next limit 64) union all "
	       "(select s.*, true from twheel.schedule s where s.shard = c.shard "
	       "and s.next > '-infinity' and s.next < $5 and s.id <> all($3) "
	       "order by s.next desc limit 64)) s "
	       "order by s.late, case when not s.late then s.next end, s.next desc limit $4) "
	       "union all select null, null, null, null, min(s.next), null, null, null, null, null, "
	       "null, null, null, null, null from unnest($1) c(shard) cross join lateral ("
	       "select s.next from twheel.schedule s where s.shard = c.shard and s.next > $2 "
	       "order by s.next limit 1) s",
	.types = { PG_INT2_A, PG_TIMESTAMPTZ, PG_INT4_A, PG_INT4, PG_TIMESTAMPTZ },
};

/* Those with a zone, with what is planned of them, in us since 2000. */
static const struct db_stmt review = {
	.name = "plan-review",
	.sql = "select " COLUMNS ", (select string_agg((extract(epoch from j.at) * 1000000 - "
	       "946684800000000)::int8::text, ' ') from twheel.job j where j.schedule = s.id "
	       "and j.at > clock_timestamp() and j.state = 0 and j.attempt = 0) "
	       "from twheel.schedule s where s.id > $2 and s.tz is not null "
	       "and s.shard + 0 = any($1) and s.next < 'infinity' order by s.id limit $3",
	.types = { PG_INT2_A, PG_INT4, PG_INT4 },
};

/*
 * Rows of the answer are of jobs, but the first ones: with the shards that were held, and one for
 * each schedule.
 */
enum { ROW_HELD, ROW_PLANNED, ROW_JOB, ROW_SKIPPED };

#define C_ROW	9

#define NO_JOB	"null::int2, null::timestamptz, null::int4, null::int4, null::int4, null::int4, " \
		"null::int4, null::int4"

static const struct db_stmt plan = {
	.name = "plan",
	.sql = HELD
	       "u as materialized (select * from unnest($4, $5, $6, $7, $8, $9, $10) "
	       "u(id, timing, last, until, next, misfired, error)), "
	       "l as materialized (select s.*, u.until, u.misfired from u join twheel.schedule s "
	       "on " DB_IS("s.id", "u.id") "where s.timing = u.timing and s.last = u.last "
	       "and not s.paused and s.shard + 0 in (select shard from h) "
	       "order by s.id for no key update of s skip locked), "
	       /*
		* Before there are ids: see remove_service() of 0001.sql. What a service has that
		* somebody renames or deletes waits for that, and nothing else does.
		*/
	       "v as materialized (select v.id from twheel.service v "
	       "where v.id = any(array(select l.service from l)) "
	       "order by v.id for key share skip locked), "
	       "k as materialized (select l.* from l join v on v.id = l.service), "
	       "c as materialized (select twheel.owe() as clock), "
	       "p as (update twheel.schedule s set last = u.until, next = u.next, error = u.error "
	       "from u where " DB_IS("s.id", "u.id") "and u.id in (select k.id from k) "
	       "returning s.id), "
	       "i as (insert into twheel.job (id, due, at, service, slack_ms, shard, order_key, "
	       "tag, schedule, flags, payload) select nextval('twheel.job_id'), "
	       "greatest(a.at, c.clock), a.at, k.service, k.slack_ms, k.shard, "
	       "case when k.overlap <> 'allow' then k.schedule end, k.schedule, k.id, "
	       "twheel.schedule_flags(k.overlap, k.broadcast, case when a.at < c.clock "
	       "then 'ignore' else k.misfire end), k.payload "
	       "from unnest($11, $12) a(id, at) join k using (id), c "
	       "order by a.at returning *), "
	       "m as materialized (select j.id from k join twheel.job j on "
	       DB_IS("j.schedule", "k.id") "where k.misfired is not null "
	       "and j.at <= k.misfired and j.state = 0 and j.attempt = 0 "
	       "and j.flags & 4 <> 0 for update of j skip locked), "
	       "d as (delete from twheel.job j using m where " DB_IS("j.id", "m.id")
	       "returning j.*), "
	       "b as (insert into twheel.backlog "
	       "(job, due, service, attempt, state, key, order_key, tag, message) "
	       "select id, at, service, attempt, 7, key, order_key, tag, 'misfired' from d) "
	       "select 0::int8, " NO_JOB ", 0, " HELD_BYTES " "
	       "union all select p.id, " NO_JOB ", 1, null from p "
	       "union all select i.id, i.shard, i.due, i.service, i.state::int4, i.attempt, "
	       "i.slack_ms, octet_length(i.payload), " FLAGS_OF("i") ", 2, null from i "
	       "union all select d.id, " NO_JOB ", 3, null from d",
	.types = { PG_UUID, PG_INT2_A, PG_INT8_A, PG_INT4_A, PG_INT8_A, PG_TIMESTAMPTZ_A,
		   PG_TIMESTAMPTZ_A, PG_TIMESTAMPTZ_A, PG_TIMESTAMPTZ_A, PG_TEXT_A, PG_INT4_A,
		   PG_TIMESTAMPTZ_A },
};

static const struct db_stmt replan = {
	.name = "replan",
	.sql = "select twheel.replan(u.id, u.timing, u.last) from unnest($1, $2, $3) "
	       "u(id, timing, last)",
	.types = { PG_INT4_A, PG_INT8_A, PG_TIMESTAMPTZ_A },
};

/**
 * struct batch - schedules to be planned in a statement
 * @node:     whose
 * @ids:      of the schedules
 * @timings:  of each, which version
 * @lasts:    as they are
 * @untils:   as they are to be
 * @nexts:    the same
 * @misfired: up to there instants of it have, or none
 * @errors:   or none
 * @of:       for each instant the schedule
 * @ats:      the instant
 * @nr_instants: how many
 * @bytes:    of payload that jobs of this batch have
 * @next_us:  the least of @nexts
 * @shards:   in which they are
 * @nr:       how many schedules
 * @id:       of each
 * @done:     each is planned
 * @review:   they were found by one
 */
struct batch {
	struct node *node;
	struct pg_array ids, timings, lasts, untils, nexts, misfired, errors, of, ats;
	uint32_t nr_instants;
	int64_t bytes, next_us;
	uint64_t shards;
	bool review;
	uint32_t nr;
	int32_t id[MAX_SCHEDULES_SENT];
	bool done[MAX_SCHEDULES_SENT];
};

static void plan_time(struct twheel *w, struct twheel_timer *t, uint64_t missed);

static void look_in(struct node *n, uint64_t delay_ns)
{
	loop_arm(&n->loop, &n->plan.timer, delay_ns, plan_time);
}

void plan_look(struct node *n)
{
	uint64_t soon_ns = n->plan.began_ns + MIN_PAUSE_NS, now_ns = boottime_ns();

	n->plan.again = true;
	if (!n->plan.under_way)
		look_in(n, soon_ns > now_ns ? soon_ns - now_ns : 0);
}

static void plan_review(struct node *n)
{
	n->plan.review = true;
	n->plan.reviewed = 0;
	plan_look(n);
}

void plan_own(struct node *n)
{
	plan_review(n);
}

static void add_shards(struct node *n, struct db_params *p)
{
	struct pg_array shards = {};
	int i;

	for (i = 0; i < NR_SHARDS; i++)
		if (lease_owns(n, i))
			pg_array_int2(&shards, i);
	db_add_array(p, &shards, PG_INT2);
}

/* ------------------------------------------------------------- what is to be made */

static int64_t time_or(const PGresult *r, int row, int column, int64_t other)
{
	return db_is_null(r, row, column) ? other : db_int8(r, row, column);
}

static bool set_schedule(struct schedule *s, const PGresult *r, int i, struct bad *bad)
{
	const struct schedule_times times = {
		.cron = db_is_null(r, i, C_CRON) ? NULL : db_text(r, i, C_CRON),
		.tz = db_is_null(r, i, C_TZ) ? NULL : db_text(r, i, C_TZ),
		.every_ms = db_int8(r, i, C_EVERY),
		.count = db_int8(r, i, C_COUNT),
		.start_us = time_or(r, i, C_START, INT64_MIN),
		.end_us = time_or(r, i, C_END, INT64_MAX),
	};

	return schedule_set(s, &times, bad);
}

static struct batch *new_batch(struct node *n)
{
	struct batch *b = xcalloc(1, sizeof(*b));

	b->node = n;
	b->next_us = PG_INFINITY;
	return b;
}

static void free_batch(struct batch *b)
{
	pg_array_free(&b->ids);
	pg_array_free(&b->timings);
	pg_array_free(&b->lasts);
	pg_array_free(&b->untils);
	pg_array_free(&b->nexts);
	pg_array_free(&b->misfired);
	pg_array_free(&b->errors);
	pg_array_free(&b->of);
	pg_array_free(&b->ats);
	free(b);
}

static bool is_full(const struct batch *b)
{
	return b->nr == MAX_SCHEDULES_SENT || b->nr_instants >= MAX_INSTANTS ||
	       b->bytes >= MAX_BYTES;
}

static void add_schedule(struct batch *b, const PGresult *r, int i, int64_t until_us,
			 int64_t next_us, int64_t misfired_us, const char *error)
{
	b->id[b->nr++] = db_int(r, i, C_ID);
	b->shards |= 1ULL << db_int(r, i, C_SHARD);
	pg_array_int4(&b->ids, db_int(r, i, C_ID));
	pg_array_int8(&b->timings, db_int8(r, i, C_TIMING));
	pg_array_int8(&b->lasts, db_int8(r, i, C_LAST));
	pg_array_int8(&b->untils, until_us);
	pg_array_int8(&b->nexts, next_us);
	if (misfired_us == PG_MINUS_INF)
		pg_array_null(&b->misfired);
	else
		pg_array_int8(&b->misfired, misfired_us);
	if (error)
		pg_array_bytes(&b->errors, error, strlen(error));
	else
		pg_array_null(&b->errors);
	if (next_us < b->next_us)
		b->next_us = next_us;
}

static void add_instant(struct batch *b, const PGresult *r, int i, int64_t at_us)
{
	pg_array_int4(&b->of, db_int(r, i, C_ID));
	pg_array_int8(&b->ats, at_us);
	b->bytes += db_int(r, i, C_BYTES);
	b->nr_instants++;
}

/* A zone may be there some time; what else is wrong has to be edited. */
static void add_wrong(struct batch *b, const PGresult *r, int i, const struct bad *bad)
{
	int64_t next_us = strcmp(bad->field, "tz") ? PG_INFINITY : clock_us(b->node) + TRY_ZONE_US;

	b->node->metrics.wrong_schedules++;
	log_warn("schedule=%d wrong=%s", db_int(r, i, C_ID), quoted(bad->message));
	add_schedule(b, r, i, db_int8(r, i, C_LAST), next_us, PG_MINUS_INF, bad->message);
}

/* From "last" on, up to what is near. */
static void add_row(struct batch *b, const PGresult *r, int i)
{
	const char *misfire = db_text(r, i, C_MISFIRE);
	int64_t now_us = clock_us(b->node), last_us = db_int8(r, i, C_LAST), at_us;
	int64_t missed_us = now_us - db_int(r, i, C_MISFIRE_MS) * INT64_C(1000);
	int64_t misfired_us = PG_MINUS_INF;
	int most = MAX_OF_ONE;
	struct schedule s;
	struct bad bad;

	if (!set_schedule(&s, r, i, &bad)) {
		add_wrong(b, r, i, &bad);
		return;
	}
	if (strcmp(misfire, "ignore")) {
		at_us = schedule_last(&s, last_us, missed_us);
		if (at_us != SCHEDULE_NEVER) {
			b->node->metrics.misfired++;
			misfired_us = at_us;
			last_us = at_us;
			if (!strcmp(misfire, "fire_now"))
				add_instant(b, r, i, at_us);
		}
	}
	at_us = schedule_next(&s, last_us);
	/* It takes its turn among those that are late. */
	if (db_int8(r, i, C_NEXT) == PG_MINUS_INF && at_us < now_us - ON_TIME_US)
		most = 0;
	while (at_us <= now_us + AHEAD_US && most-- > 0 && b->bytes < MAX_BYTES) {
		add_instant(b, r, i, at_us);
		last_us = at_us;
		at_us = schedule_next(&s, at_us);
	}
	add_schedule(b, r, i, last_us, at_us, misfired_us, NULL);
}

/* ------------------------------------------------------------------------- sending */

static void next_look(struct node *n);
static void next_review(struct node *n);

static void failed(struct node *n, const struct db_stmt *stmt, const struct db_answer *a)
{
	n->plan.under_way = false;
	if (a->status == DB_FAILED)
		log_warn("%s failed=%s", stmt->name, quoted(a->message));
	/* It may be done. */
	successor_look(n);
	look_in(n, FAILED_NS);
}

/* Passed over for some time, also by looks that others are the reason of. */
static void set_busy(struct node *n, int32_t id)
{
	struct plan *p = &n->plan;

	if (p->nr_busy < MAX_BUSY)
		p->busy[p->nr_busy++] = id;
	if (p->busy_ns == TWHEEL_NEVER)
		p->busy_ns = boottime_ns() + p->busy_pause_ns;
}

/*
 * They are tried again if it is time, or if something was edited, which may be one of them. A lock
 * that is held for longer is asked for less often.
 */
static void forget_busy(struct plan *p)
{
	if (!p->again && p->began_ns < p->busy_ns)
		return;
	p->busy_pause_ns = p->nr_busy ? 2 * p->busy_pause_ns : BUSY_NS;
	if (p->busy_pause_ns > MAX_BUSY_NS)
		p->busy_pause_ns = MAX_BUSY_NS;
	p->busy_ns = TWHEEL_NEVER;
	p->nr_busy = 0;
}

/* Of those that were sent, which are sorted, those that nothing was done about. */
static void find_busy(struct node *n, struct batch *b)
{
	uint32_t i;

	for (i = 0; i < b->nr; i++)
		if (!b->done[i])
			set_busy(n, b->id[i]);
}

static int compare(const void *a, const void *b)
{
	const int32_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static void is_done(struct batch *b, int32_t id)
{
	const int32_t *found = bsearch(&id, b->id, b->nr, sizeof(*b->id), compare);

	if (found)
		b->done[found - b->id] = true;
}

static void read_answer(struct node *n, struct batch *b, const PGresult *r)
{
	struct job row;
	int i;

	for (i = 0; i < PQntuples(r); i++) {
		switch (db_int(r, i, C_ROW)) {
		case ROW_PLANNED:
			is_done(b, db_int8(r, i, 0));
			break;
		case ROW_JOB:
			row = horizon_row(r, i);
			horizon_know(n, &row);
			n->metrics.planned++;
			break;
		case ROW_SKIPPED:
			n->metrics.skipped++;
			break;
		default:
			break;
		}
	}
	find_busy(n, b);
	/* Last, as it forgets the jobs of shards that are lost. */
	for (i = 0; i < PQntuples(r); i++)
		if (db_int(r, i, C_ROW) == ROW_HELD)
			lease_held(n, b->shards, db_text(r, i, C_ROW + 1),
				   db_len(r, i, C_ROW + 1));
}

static void look_by(struct node *n, int64_t next_us)
{
	if (next_us < n->plan.next_us)
		n->plan.next_us = next_us;
}

static void got_planned(void *arg, const struct db_answer *a)
{
	struct batch *b = arg;
	struct node *n = b->node;

	if (a->status != DB_DONE) {
		failed(n, &plan, a);
		free_batch(b);
		return;
	}
	look_by(n, b->next_us);
	read_answer(n, b, a->result);
	successor_look(n);
	if (b->review)
		next_review(n);
	else
		next_look(n);
	free_batch(b);
}

static void send_batch(struct node *n, struct batch *b)
{
	struct db_params p = {};

	b->shards = lease_add_params(n, b->shards, &p);
	db_add_array(&p, &b->ids, PG_INT4);
	db_add_array(&p, &b->timings, PG_INT8);
	db_add_array(&p, &b->lasts, PG_TIMESTAMPTZ);
	db_add_array(&p, &b->untils, PG_TIMESTAMPTZ);
	db_add_array(&p, &b->nexts, PG_TIMESTAMPTZ);
	db_add_array(&p, &b->misfired, PG_TIMESTAMPTZ);
	db_add_array(&p, &b->errors, PG_TEXT);
	db_add_array(&p, &b->of, PG_INT4);
	db_add_array(&p, &b->ats, PG_TIMESTAMPTZ);
	qsort(b->id, b->nr, sizeof(*b->id), compare);
	db_query(&n->plan.db, &plan, &p, got_planned, b);
}

/* ------------------------------------------------------------------------- looking */

/* All has been looked at. */
static void end(struct node *n)
{
	struct plan *p = &n->plan;
	uint64_t at_ns, now_ns = boottime_ns();

	p->under_way = false;
	if (p->again) {
		plan_look(n);
		return;
	}
	at_ns = p->next_us == PG_INFINITY ? TWHEEL_NEVER : clock_to_ns(n, p->next_us - LEAD_US);
	if (p->nr_busy && at_ns > p->busy_ns)
		at_ns = p->busy_ns;
	if (at_ns < p->began_ns + MIN_PAUSE_NS)
		at_ns = p->began_ns + MIN_PAUSE_NS;
	if (at_ns > now_ns + MAX_PAUSE_NS)
		at_ns = now_ns + MAX_PAUSE_NS;
	look_in(n, at_ns > now_ns ? at_ns - now_ns : 0);
}

static void got_look(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	const PGresult *r = a->result;
	bool behind = fire_is_behind(n);
	int64_t next_us;
	struct batch *b;
	int i;

	if (a->status != DB_DONE) {
		failed(n, &look, a);
		return;
	}
	b = new_batch(n);
	for (i = 0; i < PQntuples(r); i++) {
		next_us = time_or(r, i, C_NEXT, PG_INFINITY);
		if (db_is_null(r, i, C_ID))
			look_by(n, next_us);
		else if (behind && next_us > PG_MINUS_INF && next_us < n->plan.on_time_us)
			look_by(n, clock_us(n) + LEAD_US + BEHIND_US);
		else if (!is_full(b))
			add_row(b, r, i);
	}
	if (b->nr) {
		send_batch(n, b);
		return;
	}
	free_batch(b);
	if (n->plan.review)
		next_review(n);
	else
		end(n);
}

static void next_look(struct node *n)
{
	struct plan *p = &n->plan;
	struct pg_array busy = {};
	struct db_params params = {};
	uint32_t i;

	if (p->nr_busy == MAX_BUSY) {
		end(n);
		return;
	}
	for (i = 0; i < p->nr_busy; i++)
		pg_array_int4(&busy, p->busy[i]);
	p->on_time_us = clock_us(n) - ON_TIME_US;
	add_shards(n, &params);
	db_add_int8(&params, clock_us(n) + LEAD_US);
	db_add_array(&params, &busy, PG_INT4);
	db_add_int4(&params, MAX_SCHEDULES_SENT);
	db_add_int8(&params, p->on_time_us);
	db_query(&p->db, &look, &params, got_look, n);
}

/* Whether what is planned for after @from_us are times of it; they are in @text. */
static bool is_planned(const struct schedule *s, const char *text, int64_t from_us)
{
	char *end_of;
	int64_t at_us;

	for (;; text = end_of) {
		at_us = strtoll(text, &end_of, 10);
		if (end_of == text)
			return true;
		if (at_us > from_us && schedule_next(s, at_us - 1) != at_us)
			return false;
	}
}

static void replanned(void *arg, const struct db_answer *a)
{
	struct node *n = arg;

	if (a->status == DB_DONE)
		log_note("replanned schedules=%d", PQntuples(a->result));
	if (a->status == DB_FAILED)
		log_warn("replan failed=%s", quoted(a->message));
	if (a->status == DB_DONE)
		plan_look(n);
	else
		plan_review(n);
}

/* What is near is looked at anyway. */
static void review_row(struct batch *b, const PGresult *r, int i, struct batch *wrong)
{
	int64_t now_us = clock_us(b->node);
	struct schedule s;
	struct bad bad;

	if (!set_schedule(&s, r, i, &bad))
		return;
	if (!is_planned(&s, db_text(r, i, C_PLANNED), now_us + BEGINS_US))
		add_schedule(wrong, r, i, 0, 0, PG_MINUS_INF, NULL);
	else if (db_int8(r, i, C_NEXT) > now_us + LEAD_US &&
		 schedule_next(&s, db_int8(r, i, C_LAST)) != db_int8(r, i, C_NEXT))
		add_row(b, r, i);
}

static void send_replan(struct node *n, struct batch *wrong)
{
	struct db_params p = {};

	if (wrong->nr) {
		db_add_array(&p, &wrong->ids, PG_INT4);
		db_add_array(&p, &wrong->timings, PG_INT8);
		db_add_array(&p, &wrong->lasts, PG_TIMESTAMPTZ);
		db_query(&n->plan.db, &replan, &p, replanned, n);
	}
	free_batch(wrong);
}

static void got_review(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	struct batch *b, *wrong;
	int i, nr;

	if (a->status != DB_DONE) {
		failed(n, &review, a);
		return;
	}
	b = new_batch(n);
	wrong = new_batch(n);
	b->review = true;
	nr = PQntuples(a->result);
	for (i = 0; i < nr && !is_full(b) && !is_full(wrong); i++) {
		review_row(b, a->result, i, wrong);
		n->plan.reviewed = db_int(a->result, i, C_ID);
	}
	if (i == nr && nr < REVIEW_PAGE)
		n->plan.review = false;
	send_replan(n, wrong);
	if (b->nr) {
		send_batch(n, b);
		return;
	}
	free_batch(b);
	next_review(n);
}

static void next_review(struct node *n)
{
	struct db_params p = {};

	if (!n->plan.review) {
		end(n);
		return;
	}
	add_shards(n, &p);
	db_add_int4(&p, n->plan.reviewed);
	db_add_int4(&p, REVIEW_PAGE);
	db_query(&n->plan.db, &review, &p, got_review, n);
}

static void plan_time(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct plan *p = TWHEEL_CONTAINER(t, struct plan, timer);
	struct node *n = TWHEEL_CONTAINER(p, struct node, plan);

	(void)w;
	(void)missed;
	if (n->draining || node_rests(n) || p->under_way)
		return;
	if (!n->lease.nr_owned || !clock_is_known(n) || p->db.state != DB_UP) {
		look_in(n, FAILED_NS);
		return;
	}
	p->under_way = true;
	p->next_us = PG_INFINITY;
	p->began_ns = boottime_ns();
	forget_busy(p);
	p->again = false;
	next_look(n);
}

static void zones_time(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct plan *p = TWHEEL_CONTAINER(t, struct plan, zones_timer);
	struct node *n = TWHEEL_CONTAINER(p, struct node, plan);

	(void)w;
	(void)missed;
	loop_arm(&n->loop, t, ZONES_NS, zones_time);
	if (!zones_check())
		return;
	log_note("tzdata changed");
	plan_review(n);
}

void plan_open(struct node *n)
{
	struct plan *p = &n->plan;

	p->busy = xmalloc(MAX_BUSY * sizeof(*p->busy));
	p->db = (struct db){
		.what = "plan",
		.loop = &n->loop,
		.conninfo = n->config->database,
		.node = n->lease.text,
		.identity = &n->lease.identity,
		/*
		 * It waits for no application, and is early enough to wait for files to grow. What
		 * is not joined by an index (DB_IS) is to be hashed: how many there are of what is
		 * sent nobody tells the planner.
		 */
		.options = "-c lock_timeout=1s -c enable_seqscan=off -c enable_nestloop=off",
		.arg = n,
	};
	db_open(&p->db);
	look_in(n, 0);
	loop_arm(&n->loop, &p->zones_timer, ZONES_NS, zones_time);
}

void plan_close(struct node *n)
{
	struct plan *p = &n->plan;

	db_close(&p->db);
	twheel_cancel(n->loop.wheel, &p->timer);
	twheel_cancel(n->loop.wheel, &p->zones_timer);
	free(p->busy);
}
