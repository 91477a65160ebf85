// SPDX-License-Identifier: GPL-2.0
/*
 * Which jobs are in memory, each with a timer: those of the shards that are owned, and due
 * soon. A node looks each few seconds for what is due until some time after the next look.
 *
 * What is due by then may be committed, moved or tried again at any time. Much is known at
 * once: from what comes in by HTTP here, and by notifications. But nothing relies on that: a
 * look finds what is new, and does so without reading again from the head of the index,
 * where what is dead can be as much as there are jobs in minutes as long as some snapshot is
 * pinned. It begins at the time of the last look, for
 *
 *   - whoever writes "due" has a transaction number first, and takes the clock's time at
 *     that if it is later;
 *   - so what gets its number later than a look began has no earlier "due" than that. A look
 *     has a number itself, and now() of it, the start of its transaction, is before that;
 *   - what had a lower number than the look, and was under way, is remembered, with the time
 *     of the look before the one that found it first, as it had no number before that. When
 *     it is not under way any more the next look begins there. It is listed in the snapshot,
 *     or is not less than its xmax, which is the number after the last one that has *ended*:
 *     of those from there to the number of the look nothing is known, and they are kept
 *     together, as if they were one.
 *
 * If the clock is set all of that is void, and the next look begins at the beginning, as does
 * the first one of a shard. Clocks that go wrong by less than SLOP_US are passed over: so
 * much earlier each look begins.
 *
 * What is in memory is what was seen, not what is: a batch does nothing about a row that is
 * not as it was (fire.c). So a job that is seen again though it is gone, or at an old time by
 * an older snapshot, costs a look-up and nothing else.
 *
 * Any login of the database may send notifications. So what is heard takes the place of nothing
 * that was read, which may be due since long and would not be read again; and there is room for
 * what is read. As it takes its turn among the jobs of its service until it is found not to be
 * there, there are no more than MAX_HEARD of such jobs, with those that were false since some
 * seconds. In doubt a look tells.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "handover.h"

#define PAGE_ROWS	16384
#define SLOP_US		2000000
#define MIN_PAUSE_NS	(20 * TWHEEL_MSEC)
#define FIRST_BUCKETS	1024
#define MAX_SLACK_MS	3600000
#define MAX_HEARD	512

/* There is one in a process; to have it in each of some million jobs would take megabytes. */
static struct node *owner;

static const struct db_stmt snapshot = {
	.name = "snapshot",
	.sql = "select now(), pg_current_snapshot()::text, pg_current_xact_id()::text",
};

/*
 * A page: for each shard what comes after its cursor, in the order of the index, which has
 * "id + 0". The rows themselves have to be visited, but no payload is.
 */
static const struct db_stmt page = {
	.name = "page",
	.sql = "select j.id, j.shard, j.due, j.service, j.state::int4, j.attempt, j.slack_ms, "
	       "octet_length(j.payload), " FLAGS_OF("j") " "
	       "from unnest($1, $2, $3) c(shard, due, id) cross join lateral ("
	       "select * from twheel.job j where j.shard = c.shard "
	       "and (j.due, j.id + 0) > (c.due, c.id) and j.due <= $4 "
	       "order by j.due, j.id + 0 limit $5) j",
	.types = { PG_INT2_A, PG_TIMESTAMPTZ_A, PG_INT8_A, PG_TIMESTAMPTZ, PG_INT8 },
};

/**
 * struct cursor - of a shard
 * @from_us: the next look begins there at the latest: the beginning after it was taken, where
 *           memory was full, or PG_INFINITY
 * @aside_us: from there on are jobs that were set aside, or PG_INFINITY
 * @due_us:  of the look that is under way: all up to there has been read
 * @id:      with that
 * @reading: there may be more
 * @looked:  is part of that look
 */
struct cursor {
	int64_t from_us;
	int64_t aside_us;
	int64_t due_us;
	int64_t id;
	bool reading;
	bool looked;
};

/**
 * struct look - for jobs
 * @cursors:  of each shard
 * @snapshots: what the last complete look, and this one, know of transactions
 * @now_us:   when this one began
 * @until_us: as far as it goes
 * @limit:    rows of a shard in the page that is under way
 * @under_way: a statement of it is
 * @again:    another one is wanted
 * @began_ns: when
 */
struct look {
	struct cursor cursors[NR_SHARDS];
	struct snapshots snapshots;
	int64_t now_us, until_us;
	int64_t limit;
	bool under_way, again;
	uint64_t began_ns;
};

/* ------------------------------------------------------------------- the table */

static struct job **bucket(struct horizon *h, int64_t id)
{
	uint64_t hash = (uint64_t)id * 0x9e3779b97f4a7c15;

	return &h->table[hash >> 32 & (h->nr_buckets - 1)];
}

struct job *horizon_find(struct node *n, int64_t id)
{
	struct job *job = *bucket(&n->horizon, id);

	while (job && job->id != id)
		job = job->chain;
	return job;
}

static void grow(struct horizon *h)
{
	struct job **old = h->table, *job, *next, **to;
	uint32_t i, nr = h->nr_buckets;

	h->nr_buckets = 2 * nr;
	h->table = xcalloc(h->nr_buckets, sizeof(*h->table));
	for (i = 0; i < nr; i++) {
		for (job = old[i]; job; job = next) {
			next = job->chain;
			to = bucket(h, job->id);
			job->chain = *to;
			*to = job;
		}
	}
	free(old);
}

static void insert(struct horizon *h, struct job *job)
{
	struct job **to;

	if (h->nr_jobs == h->nr_buckets)
		grow(h);
	to = bucket(h, job->id);
	job->chain = *to;
	*to = job;
	h->nr_jobs++;
	h->nr_heard += job->heard;
}

/* By half, so that looks are few. Who has not been full is not asked more often than it polls. */
static void look_if_room(struct node *n)
{
	struct horizon *h = &n->horizon;

	if (!h->was_full || h->nr_jobs > n->config->max_in_memory / 2)
		return;
	h->was_full = false;
	horizon_look(n);
}

void horizon_drop(struct node *n, struct job *job)
{
	struct job **at = bucket(&n->horizon, job->id);

	if (!job->dropped) {
		while (*at != job)
			at = &(*at)->chain;
		*at = job->chain;
		n->horizon.nr_jobs--;
		n->horizon.nr_heard -= job->heard;
		look_if_room(n);
	}
	twheel_cancel(n->horizon.timers.wheel, &job->timer);
	list_del(&job->link);
	/* A statement that is under way refers to it. */
	job->dropped = true;
	if (job->busy)
		return;
	fire_forget(n, job);
	free(job);
}

/* The next look has to begin there at the latest. */
static void look_from(struct node *n, int shard, int64_t due_us)
{
	struct cursor *c = &n->horizon.look->cursors[shard];

	if (due_us < c->from_us)
		c->from_us = due_us;
}

void horizon_put_off(struct node *n, struct job *job)
{
	look_from(n, job->shard, job->due_us);
	horizon_drop(n, job);
}

void horizon_set_aside(struct node *n, struct job *job)
{
	struct cursor *c = &n->horizon.look->cursors[job->shard];

	if (job->due_us < c->aside_us)
		c->aside_us = job->due_us;
	horizon_drop(n, job);
}

void horizon_catch_up(struct node *n)
{
	struct cursor *c;
	int i;

	for (i = 0; i < NR_SHARDS; i++) {
		c = &n->horizon.look->cursors[i];
		look_from(n, i, c->aside_us);
		c->aside_us = PG_INFINITY;
	}
	horizon_look(n);
}

static void drop_all(struct node *n, uint64_t shards)
{
	struct horizon *h = &n->horizon;
	struct job *job, *next;
	uint32_t i;

	for (i = 0; i < h->nr_buckets; i++) {
		for (job = h->table[i]; job; job = next) {
			next = job->chain;
			if (shards & 1ULL << job->shard)
				horizon_drop(n, job);
		}
	}
}

/* ------------------------------------------------------------------------- jobs */

static uint64_t ahead_us(const struct node *n)
{
	return 2 * n->config->poll_ms * 1000;
}

static void due(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct job *job = TWHEEL_CONTAINER(t, struct job, timer);

	(void)w;
	(void)missed;
	fire_job(owner, job);
}

/* When it is due, but for what it is to be looked at earlier. */
static uint64_t look_at_ns(struct node *n, const struct job *job)
{
	return clock_to_ns(n, job->due_us - (int64_t)fire_lead_us(n, job));
}

static void arm(struct node *n, struct job *job, uint64_t expires_ns)
{
	struct twheel_spec spec = {
		.expires_ns = expires_ns,
		.slack_ns = job->slack_ms * TWHEEL_MSEC,
	};
	uint64_t gather_ns = fire_lead_us(n, job) * TWHEEL_USEC * 2 / 3;
	int ret;

	if (spec.slack_ns < gather_ns && spec.expires_ns > boottime_ns())
		spec.slack_ns = gather_ns;
	ret = twheel_arm_spec(n->horizon.timers.wheel, &job->timer, &spec, due);
	if (ret) {
		log_error("no-timer job=%" PRId64 " error=%d", job->id, -ret);
		horizon_put_off(n, job);
	}
}

static bool is_full(const struct node *n)
{
	return n->horizon.nr_jobs >= n->config->max_in_memory;
}

static bool is_same(const struct job *job, const struct job *row)
{
	return job->due_us == row->due_us && job->state == row->state &&
	       job->shard == row->shard && job->service == row->service &&
	       job->slack_ms == row->slack_ms && !((job->flags ^ row->flags) & ~JOB_LATE);
}

void horizon_is_false(struct node *n, const struct job *job)
{
	n->horizon.nr_false += job->heard;
}

/* A false job counts for as long as it takes until the next look at the latest. */
static bool believes(struct node *n)
{
	struct horizon *h = &n->horizon;

	if (boottime_ns() >= h->doubt_ns) {
		h->doubt_ns = boottime_ns() + n->config->poll_ms * TWHEEL_MSEC;
		h->nr_false = 0;
	}
	return h->nr_heard + h->nr_false < MAX_HEARD &&
	       h->nr_jobs < n->config->max_in_memory / 2;
}

void horizon_hear(struct node *n, const struct job *row)
{
	struct job *job = horizon_find(n, row->id);
	struct service *s = service_by_id(n, row->service);

	if (!lease_owns(n, row->shard) || (job && is_same(job, row)))
		return;
	if (job || !s || s->gone || row->slack_ms < 0 || row->slack_ms > MAX_SLACK_MS ||
	    !believes(n))
		horizon_look(n);
	else
		horizon_know(n, row);
}

struct job horizon_row(const PGresult *r, int row)
{
	return (struct job){
		.id = db_int8(r, row, 0),
		.shard = db_int(r, row, 1),
		.due_us = db_int8(r, row, 2),
		.service = db_int(r, row, 3),
		.state = db_int(r, row, 4),
		.attempt = db_int(r, row, 5),
		.slack_ms = db_int(r, row, 6),
		.bytes = db_int(r, row, 7),
		.flags = db_int(r, row, 8),
	};
}

static void know(struct node *n, const struct job *row, uint64_t expires_ns)
{
	struct job *job = horizon_find(n, row->id);

	if (!lease_owns(n, row->shard) || row->due_us == PG_INFINITY)
		return;
	if (job && is_same(job, row)) {
		job->bytes = row->bytes;
		n->horizon.nr_heard -= job->heard;
		job->heard = false;
		return;
	}
	if (job)
		horizon_drop(n, job);
	/* What is due later is found later. */
	if (row->due_us > clock_us(n) + (int64_t)ahead_us(n) + SLOP_US)
		return;
	if (is_full(n)) {
		n->horizon.was_full = true;
		look_from(n, row->shard, row->due_us);
		return;
	}
	job = xmalloc(sizeof(*job));
	*job = *row;
	insert(&n->horizon, job);
	arm(n, job, expires_ns ?: look_at_ns(n, job));
}

void horizon_know(struct node *n, const struct job *row)
{
	/* What is known too late to be handed over has to be found. */
	if (n->successor.phase == SUCC_TAKES)
		n->successor.is_behind = true;
	know(n, row, 0);
}

/* ------------------------------------------------------------------------ looks */

static void next_page(struct node *n);
static void look_time(struct twheel *w, struct twheel_timer *t, uint64_t missed);

static void look_in(struct node *n, uint64_t delay_ns)
{
	loop_arm(&n->loop, &n->horizon.timer, delay_ns, look_time);
}

static void look_failed(struct node *n, const struct db_answer *a)
{
	n->horizon.look->under_way = false;
	if (a->status == DB_FAILED)
		log_warn("look failed=%s", quoted(a->message));
	look_in(n, n->config->poll_ms * TWHEEL_MSEC / 8);
}

/* A little earlier, for what is not noticed of clocks. */
static int64_t begin_us(const struct look *l)
{
	int64_t from_us = snapshots_from_us(&l->snapshots);

	return from_us < PG_MINUS_INF + SLOP_US ? PG_MINUS_INF : from_us - SLOP_US;
}

static void begin_shards(struct node *n)
{
	struct look *l = n->horizon.look;
	int64_t from_us = begin_us(l);
	struct cursor *c;
	int i;

	for (i = 0; i < NR_SHARDS; i++) {
		c = &l->cursors[i];
		c->reading = lease_owns(n, i);
		c->looked = c->reading;
		c->due_us = c->from_us < from_us ? c->from_us : from_us;
		c->id = INT64_MIN;
		/* What is set from now on is for the next look. */
		if (c->looked)
			c->from_us = PG_INFINITY;
	}
}

static void looked(struct node *n)
{
	struct look *l = n->horizon.look;

	l->under_way = false;
	n->metrics.looks++;
	snapshots_end(&l->snapshots, l->now_us);
	if (l->again || l->snapshots.voided)
		look_in(n, MIN_PAUSE_NS);
	else
		look_in(n, n->config->poll_ms * TWHEEL_MSEC);
}

/* A look that came to nothing: what its shards were to begin with they still are. */
static void give_up(struct node *n)
{
	struct look *l = n->horizon.look;
	int i;

	for (i = 0; i < NR_SHARDS; i++)
		if (l->cursors[i].looked)
			l->cursors[i].from_us = PG_MINUS_INF;
}

static void got_page(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	struct look *l = n->horizon.look;
	int64_t rows[NR_SHARDS] = {};
	const PGresult *r = a->result;
	struct cursor *c;
	struct job row;
	int i;

	if (a->status != DB_DONE) {
		give_up(n);
		look_failed(n, a);
		return;
	}
	for (i = 0; i < PQntuples(r); i++) {
		row = horizon_row(r, i);
		c = &l->cursors[row.shard];
		c->due_us = row.due_us;
		c->id = row.id;
		rows[row.shard]++;
		horizon_know(n, &row);
	}
	n->metrics.looked += i;
	for (i = 0; i < NR_SHARDS; i++)
		if (rows[i] < l->limit)
			l->cursors[i].reading = false;
	next_page(n);
}

/* Memory is full: those that were not read to their end are gone on with. */
static void stop_reading(struct look *l)
{
	struct cursor *c;

	for (c = l->cursors; c < l->cursors + NR_SHARDS; c++) {
		if (c->reading && c->due_us < c->from_us)
			c->from_us = c->due_us;
		c->reading = false;
	}
}

static void next_page(struct node *n)
{
	struct look *l = n->horizon.look;
	struct pg_array shards = {}, dues = {}, ids = {};
	struct db_params p = {};
	struct cursor *c;
	int i;

	if (is_full(n)) {
		n->horizon.was_full = true;
		stop_reading(l);
	}
	for (i = 0; i < NR_SHARDS; i++) {
		c = &l->cursors[i];
		if (!c->reading)
			continue;
		pg_array_int2(&shards, i);
		pg_array_int8(&dues, c->due_us);
		pg_array_int8(&ids, c->id);
	}
	if (!shards.nr) {
		looked(n);
		return;
	}
	/* Of each shard what is due first: the others have room as well. */
	l->limit = n->config->max_in_memory < PAGE_ROWS ? n->config->max_in_memory : PAGE_ROWS;
	l->limit = l->limit > shards.nr ? l->limit / shards.nr : 1;
	db_add_array(&p, &shards, PG_INT2);
	db_add_array(&p, &dues, PG_TIMESTAMPTZ);
	db_add_array(&p, &ids, PG_INT8);
	db_add_int8(&p, l->until_us);
	db_add_int8(&p, l->limit);
	db_query(&n->horizon.db, &page, &p, got_page, n);
}

static void got_snapshot(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	struct look *l = n->horizon.look;

	if (a->status != DB_DONE) {
		look_failed(n, a);
		return;
	}
	l->now_us = db_int8(a->result, 0, 0);
	l->until_us = l->now_us + ahead_us(n);
	snapshots_begin(&l->snapshots, db_text(a->result, 0, 1),
			strtoull(db_text(a->result, 0, 2), NULL, 10));
	begin_shards(n);
	next_page(n);
}

static void look_time(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct horizon *h = TWHEEL_CONTAINER(t, struct horizon, timer);
	struct node *n = TWHEEL_CONTAINER(h, struct node, horizon);

	(void)w;
	(void)missed;
	if (h->look->under_way)
		return;
	if (node_rests(n) || !n->lease.nr_owned || !clock_is_known(n) || h->db.state != DB_UP) {
		look_in(n, n->config->poll_ms * TWHEEL_MSEC / 8);
		return;
	}
	h->look->under_way = true;
	h->look->again = false;
	h->look->snapshots.voided = false;
	h->look->began_ns = boottime_ns();
	db_query(&h->db, &snapshot, &(struct db_params){}, got_snapshot, n);
}

void horizon_look(struct node *n)
{
	struct look *l = n->horizon.look;
	uint64_t pause_ns, now_ns = boottime_ns();

	l->again = true;
	if (n->successor.phase == SUCC_TAKES)
		n->successor.is_behind = true;
	if (l->under_way)
		return;
	pause_ns = l->began_ns + MIN_PAUSE_NS;
	look_in(n, pause_ns > now_ns ? pause_ns - now_ns : 0);
}

void horizon_clock_set(struct node *n)
{
	struct horizon *h = &n->horizon;
	struct look *l = h->look;
	struct job *job, *next;
	uint32_t i;

	snapshots_void(&l->snapshots);
	for (i = 0; i < h->nr_buckets; i++) {
		for (job = h->table[i]; job; job = next) {
			next = job->chain;
			if (twheel_is_armed(&job->timer))
				arm(n, job, look_at_ns(n, job));
		}
	}
	horizon_look(n);
	plan_look(n);
}

void horizon_own(struct node *n, int shard)
{
	n->horizon.look->cursors[shard].from_us = PG_MINUS_INF;
	n->horizon.look->cursors[shard].aside_us = PG_INFINITY;
	n->horizon.look->cursors[shard].looked = false;
	horizon_look(n);
}

void horizon_disown(struct node *n, uint64_t shards)
{
	drop_all(n, shards);
}

void horizon_forget(struct node *n)
{
	struct look *l = n->horizon.look;

	drop_all(n, ~0ULL);
	snapshots_void(&l->snapshots);
}

/* ------------------------------------------------------------------ handing over */

bool horizon_looks(const struct node *n)
{
	return n->horizon.look->under_way;
}

int horizon_wheel_fd(const struct node *n)
{
	const struct twheel *wheel = n->horizon.timers.wheel;

	return twheel_is_device(wheel) ? twheel_fd(wheel) : -1;
}

void horizon_rest(struct node *n, bool rest)
{
	loop_set(&n->loop, &n->horizon.timers.fd, rest ? 0 : EPOLLIN);
}

bool horizon_adopt(struct node *n, int fd, uint64_t capacity)
{
	struct twheel *wheel;

	if (fd < 0)
		return false;
	if (config_backend(n->config) == TWHEEL_LOCAL ||
	    capacity < n->config->max_in_memory || twheel_adopt(&wheel, fd, 0)) {
		close(fd);
		return false;
	}
	loop_set_wheel(&n->loop, &n->horizon.timers, wheel);
	n->horizon.capacity = capacity;
	return true;
}

static int by_due(const void *a, const void *b)
{
	const struct given_job *x = a, *y = b;

	return (x->due_us > y->due_us) - (x->due_us < y->due_us);
}

static void give_job(struct buf *more, const struct job *job)
{
	const struct given_job row = {
		.id = job->id, .due_us = job->due_us, .service = job->service,
		.slack_ms = job->slack_ms, .bytes = job->bytes, .attempt = job->attempt,
		.shard = job->shard, .state = job->state, .flags = job->flags,
		.heard = job->heard,
		.expires_ns = twheel_is_armed(&job->timer) ? twheel_deadline(&job->timer) : 0,
	};

	buf_add(more, &row, sizeof(row));
}

/* A look that is under way comes to nothing here. */
static int64_t from_us(const struct look *l, int shard)
{
	const struct cursor *c = &l->cursors[shard];

	return l->under_way && c->looked ? PG_MINUS_INF : c->from_us;
}

/* In order, in which arming finds the timers of the wheel that is adopted. */
void horizon_give(struct node *n, struct given *g, struct buf *more)
{
	struct horizon *h = &n->horizon;
	struct look *l = h->look;
	const struct job *job;
	size_t begin;
	uint32_t i;

	for (i = 0; i < NR_SHARDS; i++) {
		g->shards[i].from_us = from_us(l, i);
		g->shards[i].aside_us = l->cursors[i].aside_us;
	}
	g->capacity = h->capacity;
	/* One that is under way begins anew, one that is wanted is not put off. */
	g->look_ns = l->under_way || l->again ? 0 : twheel_deadline(&h->timer);
	g->last_us = l->snapshots.last_us;
	g->nr_running = l->snapshots.nr_running;
	buf_add(more, l->snapshots.running, g->nr_running * sizeof(*l->snapshots.running));
	begin = more->len;
	for (i = 0; i < h->nr_buckets; i++)
		for (job = h->table[i]; job; job = job->chain)
			give_job(more, job);
	g->nr_jobs = h->nr_jobs;
	if (g->nr_jobs)
		qsort(more->data + begin, g->nr_jobs, sizeof(struct given_job), by_due);
}

static void take_job(struct node *n, const struct given_job *g)
{
	const struct job row = {
		.id = g->id, .due_us = g->due_us, .service = g->service,
		.slack_ms = g->slack_ms, .bytes = g->bytes, .attempt = g->attempt,
		.shard = g->shard, .state = g->state, .flags = g->flags, .heard = g->heard,
	};

	know(n, &row, g->expires_ns);
}

void horizon_take(struct node *n, const struct given *g)
{
	struct look *l = n->horizon.look;
	uint64_t poll_ns = n->config->poll_ms * TWHEEL_MSEC, now_ns = boottime_ns();
	bool aside = false;
	uint32_t i;

	for (i = 0; i < NR_SHARDS; i++) {
		l->cursors[i].from_us = g->shards[i].from_us;
		l->cursors[i].aside_us = g->shards[i].aside_us;
		aside |= lease_owns(n, i) && g->shards[i].aside_us != PG_INFINITY;
	}
	snapshots_take(&l->snapshots, g->last_us, given_running(g), g->nr_running);
	for (i = 0; i < g->nr_jobs; i++)
		take_job(n, &given_jobs(g)[i]);
	/* There may be jobs that did not fit into the memory of the predecessor. */
	for (i = 0; i < NR_SHARDS; i++)
		n->horizon.was_full |= lease_owns(n, i) && l->cursors[i].from_us != PG_INFINITY;
	/* The predecessor may have looked more often, and not as far. */
	if (g->look_ns < now_ns + poll_ns)
		poll_ns = g->look_ns > now_ns ? g->look_ns - now_ns : 0;
	look_in(n, poll_ns);
	look_if_room(n);
	/* For which services jobs were set aside is not known: those that still wait are again. */
	if (aside)
		horizon_catch_up(n);
	if (n->predecessor.is_behind)
		horizon_look(n);
}

/* ------------------------------------------------------------------------------- */

int horizon_init(struct node *n)
{
	struct twheel_options options = {
		.backend = config_backend(n->config), .clock = TWHEEL_BOOTTIME,
		.capacity = n->config->max_in_memory,
	};
	struct horizon *h = &n->horizon;
	struct twheel *wheel;
	int error = twheel_open(&wheel, &options);

	if (error) {
		log_error("start-failed what=wheel backend=%s error=%s", n->config->backend,
			  quoted(strerror(-error)));
		return -1;
	}
	log_info("wheel backend=%s", twheel_is_device(wheel) ? "device" : "local");
	loop_set_wheel(&n->loop, &h->timers, wheel);
	owner = n;
	h->capacity = options.capacity;
	h->nr_buckets = FIRST_BUCKETS;
	h->table = xcalloc(h->nr_buckets, sizeof(*h->table));
	h->look = xcalloc(1, sizeof(*h->look));
	snapshots_init(&h->look->snapshots);
	return 0;
}

void horizon_open(struct node *n)
{
	struct horizon *h = &n->horizon;

	h->db = (struct db){
		.what = "look",
		.loop = &n->loop,
		.conninfo = n->config->database,
		.node = n->lease.text,
		.identity = &n->lease.identity,
		.options = DB_BY_INDEX,
		.arg = n,
	};
	db_open(&h->db);
	look_in(n, 0);
}

void horizon_close(struct node *n)
{
	db_close(&n->horizon.db);
	n->horizon.was_full = false;
	twheel_cancel(n->loop.wheel, &n->horizon.timer);
	drop_all(n, ~0ULL);
	free(n->horizon.table);
	snapshots_free(&n->horizon.look->snapshots);
	free(n->horizon.look);
	loop_set_wheel(&n->loop, &n->horizon.timers, NULL);
}
