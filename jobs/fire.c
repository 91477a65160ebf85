// SPDX-License-Identifier: GPL-2.0
/*
 * What is due: jobs of queues are handed over, those that are to be called are marked first.
 *
 * Why nothing is begun twice, or early, or by two nodes: each batch is one statement, which
 *
 *   - locks the rows of its shards for share, in order, found by owner and fence, and takes
 *     no job of another shard. Whoever takes a shard waits for that lock; after that nothing
 *     is found, whenever the statement was sent. (That such rows exist would not do: that is
 *     told by the snapshot, where a row that is locked is looked at again.)
 *   - matches "due" as it was seen: a job that was pushed later does not fire at its old time
 *   - matches state 0: what is being called is not called again
 *   - matches shard and service, which never change, but which a notification told (lease.c)
 *   - asks the clock of the database: what this node thinks of it decides only when it is sent
 *
 * A job of a queue is thereby deleted and its row in the queue made, at one time or not at all.
 *
 * A call cannot be undone, so that first its row is marked: running, one attempt more, due
 * when it will be given up. That is committed before the first byte is sent, some ms before
 * the job is due, so that it costs no lateness. From there on either somebody records what
 * came of this attempt (finish.c), or the row is due again some time and whoever owns it
 * then finds it. If the answer to a mark is lost that is what happens as well.
 *
 * What a batch does not do is forgotten, if its shard is still held: it was cancelled, or
 * moved, or somebody else did it. But for what is still there as it was: that is not due
 * by the clock of the database, or has to wait for another of its order key, or somebody has
 * it locked. It is tried again soon.
 *
 * Jobs of schedules have flags, which others do not pay for. What is to be skipped if the one
 * before is not over, or is late and may have misfired, is looked at by a statement of its own,
 * which ends it or takes the flag away: only then it is begun. What is for each agent is handed
 * over by another one. That a statement takes none whose flags are for another is in its match, as
 * what is in memory may be what a notification told.
 *
 * An application that holds a cancel open stalls its own job and no other: a batch that waits
 * for a lock for long fails, and is sent again in a form that passes over what is locked.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"

/* A batch is so many jobs, and about so many bytes of payload that come back. */
#define BATCH		1000U
#define BATCH_BYTES	(4 << 20)

/* Jobs of a service that wait for its limits, in memory. */
#define MAX_WAITING	10000U

/*
 * So long before a job is due it may be marked. The statement has it too. Two thirds of that time a
 * job may wait for others, to be marked with them (horizon.c). A longer lead would save statements;
 * but what is marked waits by the clock of this node, so that it is early by what that gains, or
 * the database's loses, in that time. With 60 ms tests of clocks that are wrong found jobs that
 * were.
 */
#define LEAD_US		30000
#define LEAD_SQL	"interval '30 milliseconds'"

/* So much longer than a call may take nobody looks for what came of it. */
#define GRACE_NS	(2 * TWHEEL_SEC)
#define GRACE_SQL	"interval '2 seconds'"

/* No job misfires that is less late. */
#define MISFIRE_US	1000000

#define NOT_YET_NS	TWHEEL_MSEC
#define LOCKED_NS	(50 * TWHEEL_MSEC)
#define LOST_NS		(100 * TWHEEL_MSEC)

/*
 * What is sent: the shards that are held (HELD), and jobs, of which u has those of such shards. A
 * job never changes its shard.
 *
 * A table that was empty a moment ago has no statistics to go by: what is not to be looked for
 * by any index but that of the id is written so that it cannot be, and no other index that fits
 * has the id itself (0001.sql); nor is that to be read from its beginning, which would have the
 * order of a join by "=": hence DB_IS.
 */
#define JOBS \
	"u as materialized (select u.* from unnest($4, $5, $6, $7, $8) " \
	"u(id, due, shard, timeout_ms, service) where shard in (select shard from h)), "
#define UNLOCKED_JOBS \
	"u as materialized (select u.* from unnest($4, $5, $6, $7, $8) " \
	"u(id, due, shard, timeout_ms, service) join twheel.job j on " DB_IS("j.id", "u.id") \
	"where u.shard in (select shard from h) " \
	"order by u.id for update of j skip locked), "
#define AS_SEEN \
	DB_IS("j.id", "u.id") "and (j.due = u.due) is true and j.state + 0 = 0 " \
	"and j.shard + 0 = u.shard and j.service + 0 = u.service "
#define IN_ORDER \
	"and (j.order_key is null or not exists (select from twheel.job p " \
	"where p.order_key = j.order_key and p.service = j.service and p.id <> j.id " \
	"and (p.state <> 0 or (p.at, p.id) < (j.at, j.id)))) "

/*
 * Rows of an answer. The first has the shards that were held, a byte each. Then what was done,
 * and what is there still as it was.
 */
enum { ROW_HELD, ROW_DONE, ROW_STILL };

#define HELD_ROW	"select 0, null::int8, " HELD_BYTES
#define STILL_ROWS(done) \
	" union all select 2, u.id, null" done " from unnest($4, $5, $6, $8) " \
	"u(id, due, shard, service) where u.id not in (select id from d) " \
	"and exists (select from twheel.job j where " AS_SEEN ")"

#define HAND \
	"d as (delete from twheel.job j using u where " AS_SEEN \
	"and j.due <= clock_timestamp() and coalesce(j.flags, 0) & 3 = 0 " IN_ORDER \
	"returning j.*), " \
	"q as (insert into twheel.queue " \
	"(job, due, idem, service, taken, key, order_key, tag, payload) " \
	"select id, at, idem, service, attempt, key, order_key, tag, payload " \
	"from d order by at, id), " \
	"l as (insert into twheel.execlog (job, late_us, node, service, attempt, outcome) " \
	"select id, date_part('epoch', clock_timestamp() - due) * 1e6, $1, service, " \
	"attempt + 1, 4 from d) " \
	HELD_ROW " union all select 1, id, null from d" STILL_ROWS("")

#define MARK \
	"d as (update twheel.job j set state = 1, attempt = j.attempt + 1, " \
	"due = clock_timestamp() + " GRACE_SQL " + u.timeout_ms * interval '1 millisecond' " \
	"from u where " AS_SEEN "and j.due <= clock_timestamp() + " LEAD_SQL \
	" and coalesce(j.flags, 0) & 1 = 0 " IN_ORDER \
	"returning j.id, j.attempt, j.at, u.due, j.idem, j.payload, " \
	"j.order_key is not null as ordered) " \
	HELD_ROW ", null::int4, null::timestamptz, null::timestamptz, null::uuid, null::bytea, " \
	"null::text, null::timestamptz, null::bool " \
	"union all select 1, id, null, attempt, at, due, idem, payload, " \
	"twheel.token((select secret from twheel.cluster), id, attempt), " \
	"clock_timestamp(), ordered from d" \
	STILL_ROWS(", null, null, null, null, null, null, null, null")

#define TYPES { PG_UUID, PG_INT2_A, PG_INT8_A, PG_INT8_A, PG_TIMESTAMPTZ_A, PG_INT2_A, PG_INT4_A, \
		PG_INT4_A }

static const struct db_stmt hand = {
	.name = "hand", .sql = HELD JOBS HAND, .types = TYPES,
};

static const struct db_stmt hand_unlocked = {
	.name = "hand-unlocked", .sql = HELD UNLOCKED_JOBS HAND, .types = TYPES,
};

static const struct db_stmt mark = {
	.name = "mark", .sql = HELD JOBS MARK, .types = TYPES,
};

static const struct db_stmt mark_unlocked = {
	.name = "mark-unlocked", .sql = HELD UNLOCKED_JOBS MARK, .types = TYPES,
};

/* Out of the way until the service goes on: looks would find it each time. */
static const struct db_stmt park = {
	.name = "park",
	.sql = HELD JOBS
	       "d as (update twheel.job j set due = 'infinity' from u where " AS_SEEN
	       "and exists (select from twheel.service s where s.id = j.service and s.paused) "
	       "returning j.id) "
	       HELD_ROW " union all select 1, id, null from d" STILL_ROWS(""),
	.types = TYPES,
};

/*
 * To each agent that is alive, in one transaction. The last column is null if there is none, with
 * which the job is over.
 */
#define CAST \
	"d as (delete from twheel.job j using u where " AS_SEEN \
	"and j.due <= clock_timestamp() and j.flags & 3 = 2 " IN_ORDER "returning j.*), " \
	"q as (insert into twheel.queue " \
	"(job, due, idem, service, taken, agent, key, order_key, tag, payload) " \
	"select d.id, d.at, d.idem, d.service, d.attempt, a.agent, d.key, d.order_key, d.tag, " \
	"d.payload from d join twheel.agent a on " DB_IS("a.service", "d.service") \
	"where twheel.is_alive(a.seen) order by d.at, d.id returning job), " \
	"l as (insert into twheel.execlog (job, late_us, node, service, attempt, outcome) " \
	"select id, date_part('epoch', clock_timestamp() - due) * 1e6, $1, service, " \
	"attempt + 1, 4 from d where id in (select job from q)), " \
	"b as (insert into twheel.backlog " \
	"(job, due, service, attempt, state, key, order_key, tag, message) " \
	"select id, at, service, attempt, 7, key, order_key, tag, 'no agent is there' " \
	"from d where id not in (select job from q)) " \
	HELD_ROW " union all select 1, id, (select ''::bytea from q where q.job = d.id limit 1) " \
	"from d" STILL_ROWS("")

static const struct db_stmt cast = {
	.name = "cast", .sql = HELD JOBS CAST, .types = TYPES,
};

static const struct db_stmt cast_unlocked = {
	.name = "cast-unlocked", .sql = HELD UNLOCKED_JOBS CAST, .types = TYPES,
};

/*
 * Whether what is late has misfired by its schedule: then, or if it was never to be, it is not
 * begun. Of several the last one is, which may be one that is still to be planned (plan.c).
 */
#define MISFIRED(job) job " < clock_timestamp() - s.misfire_ms * interval '1 millisecond' "
#define MISFIRE \
	"case when (" MISFIRED("j.at") ") is not true then null " \
	"when twheel.misfire_policy(s.misfire, s.every_ms, s.count) = 'do_nothing' " \
	"then 'misfired' " \
	"when exists (select from twheel.job k where k.schedule = j.schedule and k.at > j.at " \
	"and " MISFIRED("k.at") ") or s.next > '-infinity' and " MISFIRED("s.next") \
	"then 'misfired, as a later one did' end"
#define OVERLAP \
	"case when exists (select from twheel.job p where p.order_key = j.order_key " \
	"and p.service = j.service and p.id <> j.id " \
	"and (p.state <> 0 or (p.at, p.id) < (j.at, j.id))) " \
	"or exists (select from twheel.queue q where q.order_key = j.order_key " \
	"and q.service = j.service) then 'the one before is not over' end"

/*
 * Looked at for one of the two reasons at a time, and not for that one again. The last column is
 * what it is to be looked at for still, or null if it is over.
 */
static const struct db_stmt check = {
	.name = "check",
	.sql = HELD JOBS
	       "f as materialized (select j.*, j.flags & 4 <> 0 and j.attempt = 0 "
	       "and j.at < clock_timestamp() - interval '1 second' as is_late "
	       "from twheel.job j, u where " AS_SEEN "and j.due <= clock_timestamp() "
	       "order by j.id for update of j skip locked), "
	       "c as materialized (select j.*, case when j.is_late then " MISFIRE " "
	       "when j.flags & 1 <> 0 then " OVERLAP " end as why, "
	       "j.flags & case when j.is_late then 3 else 2 end as rest "
	       "from f j left join twheel.schedule s on " DB_IS("s.id", "j.schedule") "), "
	       "d as (select c.id from c), "
	       "g as (delete from twheel.job j using c where " DB_IS("j.id", "c.id")
	       "and c.why is not null returning j.*, c.why), "
	       "k as (update twheel.job j set flags = nullif(c.rest, 0) from c "
	       "where " DB_IS("j.id", "c.id") "and c.why is null returning j.id, c.rest), "
	       "b as (insert into twheel.backlog "
	       "(job, due, service, attempt, state, key, order_key, tag, message) "
	       "select id, at, service, attempt, 7, key, order_key, tag, why from g) "
	       HELD_ROW " union all select 1, id, null from g "
	       "union all select 1, id, set_byte('\\x00'::bytea, 0, rest) from k"
	       STILL_ROWS(""),
	.types = TYPES,
};

static const struct db_stmt tell = {
	.name = "tell",
	.sql = "select pg_notify('twheel_queue', s) from unnest($1) s",
	.types = { PG_TEXT_A },
};

/**
 * struct sent - a job of a batch
 * @id:         its
 * @timeout_ms: of its service, as it was sent
 * @job:        NULL once it was seen in the answer, and may be gone
 */
struct sent {
	int64_t id;
	uint32_t timeout_ms;
	struct job *job;
};

/** struct batch - of jobs that are in a statement, with @shards; @sent is in order of id */
struct batch {
	struct node *node;
	const struct db_stmt *stmt;
	const struct db_stmt *unlocked;
	uint64_t shards;
	uint32_t nr;
	struct sent sent[BATCH];
};

uint64_t fire_lead_us(struct node *n, const struct job *job)
{
	struct service *s = service_by_id(n, job->service);

	/* Whether another one is over is looked at when it is due. */
	return s && s->kind != KIND_QUEUE && job->state == JOB_DELAY &&
	       !(job->flags & JOB_SKIPS) ? LEAD_US : 0;
}

/* From here on it counts as running, until it is called or dropped. */
static bool begin(struct node *n, struct service *s, struct job *job)
{
	job->begun = service_begin(n, s);
	return job->begun;
}

/* There is room for those that were set aside. */
static void catch_up(struct node *n, struct service *s)
{
	if (!s->behind || s->nr_waiting >= MAX_WAITING / 2)
		return;
	s->behind = false;
	horizon_catch_up(n);
}

void fire_forget(struct node *n, struct job *job)
{
	struct service *s = service_by_id(n, job->service);
	bool begun = job->begun;

	job->begun = false;
	if (job->waiting) {
		job->waiting = false;
		s->nr_waiting--;
		catch_up(n, s);
	}
	if (begun)
		service_unbegin(n, s);
}

/* A service that is slow, or does not answer, does not fill the memory that is for all. */
static void wait_for_turn(struct node *n, struct job *job, struct service *s)
{
	if (s->nr_waiting >= MAX_WAITING) {
		s->behind = true;
		horizon_set_aside(n, job);
		return;
	}
	s->nr_waiting++;
	job->waiting = true;
	list_add_tail(&s->waiting, &job->link);
}

/* One of a schedule that may be none to be begun. */
static bool is_to_check(const struct node *n, const struct job *job)
{
	if (job->flags & JOB_SKIPS)
		return true;
	return job->flags & JOB_MISFIRES && !job->attempt &&
	       (job->flags & JOB_LATE || clock_us(n) - job->due_us > MISFIRE_US);
}

static void sort(struct node *n, struct job *job, struct service *s)
{
	if (s->paused)
		list_add_tail(&n->fire.park, &job->link);
	else if (is_to_check(n, job))
		list_add_tail(&n->fire.check, &job->link);
	else if (s->kind == KIND_QUEUE && job->flags & JOB_CAST)
		list_add_tail(&n->fire.cast, &job->link);
	else if (s->kind == KIND_QUEUE)
		list_add_tail(&n->fire.queue, &job->link);
	else if (begin(n, s, job))
		list_add_tail(&n->fire.mark, &job->link);
	else
		wait_for_turn(n, job, s);
}

/* One that was made just now will be known, and one that is gone has no jobs for long. */
static void wait_for_service(struct node *n, struct job *job, const struct service *s)
{
	list_add_tail(&n->fire.unknown, &job->link);
	if (!s)
		services_load(n);
}

void fire_job(struct node *n, struct job *job)
{
	struct service *s = service_by_id(n, job->service);

	if (job->state != JOB_DELAY)
		list_add_tail(&n->fire.over, &job->link);
	else if (s && !s->gone)
		sort(n, job, s);
	else
		wait_for_service(n, job, s);
}

/* Those that are not known still stay: to ask for them again here would never end. */
void fire_known(struct node *n)
{
	struct list *head = &n->fire.unknown, *at, *next;
	struct service *s;
	struct job *job;

	for (at = head->next; at != head; at = next) {
		next = at->next;
		job = TWHEEL_CONTAINER(at, struct job, link);
		s = service_by_id(n, job->service);
		if (!s || s->gone)
			continue;
		list_del(at);
		fire_job(n, job);
	}
}

void fire_service(struct node *n, struct service *s)
{
	struct list *to = &n->fire.queue;
	struct job *job;

	if (s->paused)
		to = &n->fire.park;
	else if (s->kind != KIND_QUEUE)
		to = &n->fire.mark;

	while (!list_is_empty(&s->waiting)) {
		job = TWHEEL_CONTAINER(s->waiting.next, struct job, link);
		if (to == &n->fire.mark && !begin(n, s, job))
			break;
		list_del(&job->link);
		list_add_tail(to, &job->link);
		job->waiting = false;
		s->nr_waiting--;
	}
	catch_up(n, s);
}

static void again(struct twheel *w, struct twheel_timer *t, uint64_t missed);

static void try_again(struct node *n, struct job *job, uint64_t delay_ns)
{
	fire_forget(n, job);
	if (job->dropped)
		horizon_drop(n, job);
	else if (twheel_arm(n->horizon.timers.wheel, &job->timer, delay_ns, again))
		horizon_put_off(n, job);
}

static struct node *owner;

static void again(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)w;
	(void)missed;
	fire_job(owner, TWHEEL_CONTAINER(t, struct job, timer));
}

static int compare(const void *a, const void *b)
{
	const struct sent *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

static struct sent *find(struct batch *b, int64_t id)
{
	struct sent key = { .id = id };

	return bsearch(&key, b->sent, b->nr, sizeof(*b->sent), compare);
}

/* Takes a job out of the batch. */
static struct job *take(struct sent *found)
{
	struct job *job = found ? found->job : NULL;

	if (!job)
		return NULL;
	found->job = NULL;
	job->busy = false;
	return job;
}

void fire_note_late(struct node *n, int64_t late_us)
{
	uint64_t us = late_us > 0 ? late_us : 0;

	n->metrics.fired++;
	n->metrics.late_us[us ? 64 - __builtin_clzll(us) : 0]++;
	n->metrics.late_sum_us += us;
	if (us > n->metrics.late_max_us)
		n->metrics.late_max_us = us;
}

/*
 * Sends it when the job is due; by the clock of the database, as of the answer to the mark. That
 * may have come late: nothing is sent any more when others may look for what came of it, which
 * is by the time that the mark gave, and that was given after the mark was sent. How long the
 * service gives a call may have changed since: it is what the mark was sent with that counts.
 * Nothing was marked longer before it is due than it may be, whatever the clock was set to since.
 */
static void begin_call(struct node *n, const struct db_answer *a, int i, struct service *s,
		       uint32_t timeout_ms)
{
	const PGresult *r = a->result;
	struct call *c = xcalloc(1, sizeof(*c));
	int64_t wait_us = db_int8(r, i, 5) - db_int8(r, i, 9);
	uint64_t now_ns = boottime_ns(), last_ns = a->sent_ns + GRACE_NS / 2;

	*c = (struct call){
		.node = n,
		.service = s,
		.id = db_int8(r, i, 1),
		.attempt = db_int(r, i, 3),
		.at_us = db_int8(r, i, 4),
		.due_us = db_int8(r, i, 5),
		.ordered = db_bool(r, i, 10),
	};
	uuid_to_text(db_text(r, i, 6), c->idem);
	buf_add(&c->payload, db_text(r, i, 7), db_len(r, i, 7));
	snprintf(c->token, sizeof(c->token), "%s", db_text(r, i, 8));
	if (wait_us > LEAD_US)
		wait_us = LEAD_US;
	c->begin_ns = wait_us > 0 ? now_ns + wait_us * 1000 : now_ns;
	c->deadline_ns = (c->begin_ns < last_ns ? c->begin_ns : last_ns) +
			 timeout_ms * TWHEEL_MSEC;
	n->metrics.called++;
	if (s->kind == KIND_AMQP)
		amqp_start(n, c);
	else
		call_start(n, c);
}

static void handed(struct node *n, struct job *job, struct service *s)
{
	n->metrics.handed++;
	fire_note_late(n, clock_us(n) - job->due_us);
	s->to_notify = s->notify;
}

/* It goes on, if it is not over. */
static void checked(struct node *n, struct job *job, const struct db_answer *a, int i)
{
	if (db_is_null(a->result, i, 2))
		n->metrics.skipped++;
	else
		job->flags = *db_text(a->result, i, 2);
	if (db_is_null(a->result, i, 2) || job->dropped)
		horizon_drop(n, job);
	else
		fire_job(n, job);
}

static void done(struct node *n, struct batch *b, const struct db_answer *a, int i)
{
	struct sent *sent = find(b, db_int8(a->result, i, 1));
	struct job *job = take(sent);
	struct service *s;

	if (!job)
		return;
	if (b->stmt == &check) {
		checked(n, job, a, i);
		return;
	}
	s = service_by_id(n, job->service);
	if (b->unlocked == &mark_unlocked) {
		job->begun = false;
		begin_call(n, a, i, s, sent->timeout_ms);
	} else if (b->unlocked == &cast_unlocked && db_is_null(a->result, i, 2)) {
		n->metrics.skipped++;
	} else if (b->unlocked != &park) {
		handed(n, job, s);
	}
	horizon_drop(n, job);
}

static void still(struct node *n, struct batch *b, int64_t id)
{
	struct job *job = take(find(b, id));

	if (!job)
		return;
	if (b->stmt == b->unlocked)
		try_again(n, job, LOCKED_NS);
	else if (job->due_us > clock_us(n))
		try_again(n, job, NOT_YET_NS + (job->due_us - clock_us(n)) * 1000);
	else
		try_again(n, job, NOT_YET_NS << (job->tries < 10 ? job->tries++ : 10));
}

/* It was not as it was seen, or the shard is not held, whose jobs are forgotten. */
static void not_there(struct node *n, struct job *job)
{
	job->busy = false;
	horizon_is_false(n, job);
	horizon_drop(n, job);
}

static void send_tell(struct node *n)
{
	struct pg_array names = {};
	struct db_params p = {};
	struct service *s;

	for (s = n->services.first; s; s = s->next) {
		if (!s->to_notify)
			continue;
		s->to_notify = false;
		pg_array_bytes(&names, s->name, strlen(s->name));
	}
	if (!names.nr)
		return;
	db_add_array(&p, &names, PG_TEXT);
	db_query(&n->finish.db, &tell, &p, NULL, NULL);
}

static void send_batch(struct node *n, struct batch *b);

/* Nothing was done, or nobody knows: then what was is not as it was seen any more. */
static void batch_failed(struct node *n, struct batch *b, const struct db_answer *a)
{
	bool locked = a->status == DB_FAILED && !strcmp(a->sqlstate, "55P03");
	uint32_t i;

	if (a->status == DB_FAILED && !locked)
		log_warn("batch=%s failed=%s state=%s", b->stmt->name, quoted(a->message),
			 a->sqlstate);
	if (locked && b->stmt != b->unlocked) {
		b->stmt = b->unlocked;
		send_batch(n, b);
		return;
	}
	for (i = 0; i < b->nr; i++) {
		b->sent[i].job->busy = false;
		try_again(n, b->sent[i].job, a->status == DB_LOST ? LOST_NS : LOCKED_NS);
	}
	free(b);
}

static void answered(void *arg, const struct db_answer *a)
{
	struct batch *b = arg;
	struct node *n = b->node;
	uint32_t i;
	int row;

	if (a->status != DB_DONE) {
		batch_failed(n, b, a);
		return;
	}
	n->metrics.batches++;
	for (row = 0; row < PQntuples(a->result); row++) {
		if (db_int(a->result, row, 0) == ROW_DONE)
			done(n, b, a, row);
		else if (db_int(a->result, row, 0) == ROW_STILL)
			still(n, b, db_int8(a->result, row, 1));
	}
	for (i = 0; i < b->nr; i++)
		if (b->sent[i].job)
			not_there(n, b->sent[i].job);
	lease_held(n, b->shards, db_text(a->result, 0, 2), db_len(a->result, 0, 2));
	free(b);
	send_tell(n);
}

static void send_batch(struct node *n, struct batch *b)
{
	struct pg_array ids = {}, dues = {}, shards = {}, timeouts = {}, services = {};
	struct db_params p = {};
	uint64_t shards_of = 0;
	struct service *s;
	uint32_t i;

	/* No others: each costs a lock of its row, which is a write. */
	for (i = 0; i < b->nr; i++)
		shards_of |= 1ULL << b->sent[i].job->shard;
	b->shards = lease_add_params(n, shards_of, &p);
	for (i = 0; i < b->nr; i++) {
		s = service_by_id(n, b->sent[i].job->service);
		pg_array_int8(&ids, b->sent[i].id);
		pg_array_int8(&dues, b->sent[i].job->due_us);
		pg_array_int2(&shards, b->sent[i].job->shard);
		b->sent[i].timeout_ms = s ? s->timeout_ms : 0;
		pg_array_int4(&timeouts, b->sent[i].timeout_ms);
		pg_array_int4(&services, b->sent[i].job->service);
	}
	db_add_array(&p, &ids, PG_INT8);
	db_add_array(&p, &dues, PG_TIMESTAMPTZ);
	db_add_array(&p, &shards, PG_INT2);
	db_add_array(&p, &timeouts, PG_INT4);
	db_add_array(&p, &services, PG_INT4);
	db_query(&n->fire.db, b->stmt, &p, answered, b);
}

/* Takes what is on a list into one statement. */
static void flush(struct node *n, struct list *list, const struct db_stmt *stmt,
		  const struct db_stmt *unlocked)
{
	struct batch *b;
	struct job *job;
	int64_t bytes = 0;

	if (list_is_empty(list))
		return;
	b = xmalloc(sizeof(*b));
	b->node = n;
	b->stmt = stmt;
	b->unlocked = unlocked;
	b->nr = 0;
	while (!list_is_empty(list) && b->nr < BATCH && bytes < BATCH_BYTES) {
		job = TWHEEL_CONTAINER(list->next, struct job, link);
		list_del(&job->link);
		job->busy = true;
		bytes += job->bytes;
		b->sent[b->nr++] = (struct sent){ .id = job->id, .job = job };
	}
	qsort(b->sent, b->nr, sizeof(*b->sent), compare);
	send_batch(n, b);
}

/*
 * A call of this node ends by a clock that is not set; if it is over by the database's it may be
 * that this one was, by an hour: what comes of it is told soon. So it is of a call of the process
 * that this one took over from, which may wait to record what came of it.
 */
static void give_up(struct node *n)
{
	struct list *over = &n->fire.over;
	struct job *job;

	while (!list_is_empty(over)) {
		job = TWHEEL_CONTAINER(over->next, struct job, link);
		list_del(&job->link);
		if (job->state == JOB_RUNNING &&
		    (call_is_under_way(n, job->id) || amqp_is_under_way(n, job->id) ||
		     predecessor_goes_on(n)))
			try_again(n, job, TWHEEL_SEC);
		else
			list_add_tail(&n->fire.given_up, &job->link);
	}
}

/*
 * What came of it may be known here, and wait to be recorded, for as long as the database does
 * not answer: that there is none is told only when all is recorded that was there before, but for
 * what others have locked.
 */
static void flush_over(struct node *n)
{
	struct fire *f = &n->fire;
	struct job *job;

	if (list_is_empty(&f->given_up)) {
		give_up(n);
		f->given_up_after = n->finish.added;
	}
	if (n->finish.added - n->finish.nr < f->given_up_after)
		return;
	while (!list_is_empty(&f->given_up)) {
		job = TWHEEL_CONTAINER(f->given_up.next, struct job, link);
		if (finish_has(n, job->id)) {
			list_del(&job->link);
			try_again(n, job, TWHEEL_SEC);
			continue;
		}
		n->metrics.overdue++;
		finish_overdue(n, job);
		horizon_drop(n, job);
	}
}

static bool is_long(const struct list *head)
{
	const struct list *at;
	unsigned int nr = 0;

	for (at = head->next; at != head && nr < BATCH; at = at->next)
		nr++;
	return nr == BATCH;
}

bool fire_is_behind(const struct node *n)
{
	const struct fire *f = &n->fire;

	return is_long(&f->check) || is_long(&f->queue) || is_long(&f->cast) ||
	       is_long(&f->mark) || is_long(&f->park);
}

void fire_flush(struct node *n)
{
	if (!lease_is_valid(n) || n->draining || n->successor.phase == SUCC_TAKES)
		return;
	flush_over(n);
	if (!db_is_idle(&n->fire.db))
		return;
	flush(n, &n->fire.check, &check, &check);
	flush(n, &n->fire.queue, &hand, &hand_unlocked);
	flush(n, &n->fire.cast, &cast, &cast_unlocked);
	flush(n, &n->fire.mark, &mark, &mark_unlocked);
	flush(n, &n->fire.park, &park, &park);
}

void fire_open(struct node *n)
{
	struct fire *f = &n->fire;

	owner = n;
	list_init(&f->queue);
	list_init(&f->mark);
	list_init(&f->cast);
	list_init(&f->check);
	list_init(&f->over);
	list_init(&f->given_up);
	list_init(&f->park);
	list_init(&f->unknown);
	f->db = (struct db){
		.what = "fire",
		.loop = &n->loop,
		.conninfo = n->config->database,
		.node = n->lease.text,
		.identity = &n->lease.identity,
		.options = "-c lock_timeout=50ms " DB_BY_INDEX,
		.arg = n,
	};
	db_open(&f->db);
}

void fire_close(struct node *n)
{
	db_close(&n->fire.db);
}
