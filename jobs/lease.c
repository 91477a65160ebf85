// SPDX-License-Identifier: GPL-2.0
/*
 * Who is alive, who owns which shard, and what the clock of the database says.
 *
 * Nothing here is a time in the database, whose clock may be set. A node counts up its row,
 * its beat, each second. Others measure by their own CLOCK_BOOTTIME how long they have seen
 * the same beat; the node itself how long ago it sent the last beat that was confirmed:
 *
 *	sent       committed       seen by another
 *	  |------------|------------------|-------------------------->
 *	  |<----- begins nothing after 3 s |
 *	                                  |<------ dead after 4 s of the same beat
 *
 * What it sent comes before what others see, so it begins nothing for a second before any
 * other may take its shards. That is for calls only, which cannot be undone, and it is not
 * relied upon: a process may be stopped between its last look at the clock and the write to
 * the socket. Who has a shard is told by its row alone, owner and fence, and each statement
 * that changes jobs for their being due locks those rows for share and joins them (fire.c).
 * The fence goes up with each owner, so that a statement of a node which had the shard
 * before, and even has it again, finds nothing.
 *
 * To take shards, a node deletes the rows of the dead, if their beat is still what it saw, and
 * ends their connections, which may hold locks though nobody is behind them. A node whose row
 * is gone has been taken for dead. It forgets all that it has in memory and joins anew, under
 * another uuid. So it does if it finds another database behind the connection. The other
 * connections of the node are on the server that this one has found last, or on none: otherwise
 * results would be sent to the old server of a failover, which does not know the attempts.
 *
 * There is no leader: nodes are ranked by uuid, and each takes as many shards as its rank is
 * to have, which it finds free, and gives away what it has beyond.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "handover.h"

#define BEAT_NS		TWHEEL_SEC
#define PAUSE_NS	(20 * TWHEEL_MSEC)	/* between beats at least */
#define VALID_NS	(3 * TWHEEL_SEC)
#define DEAD_NS		(4 * TWHEEL_SEC)

/* By more than this the clock was set; less is passed over by looks (horizon.c). */
#define SET_US		1000000

static const struct db_stmt identify = {
	.name = "identify",
	.sql = "select case when pg_is_in_recovery() then null else concat_ws(' ', c.id, "
	       "(select system_identifier from pg_control_system()), "
	       "left(pg_walfile_name(pg_current_wal_lsn()), 8)) end, "
	       "c.schema from twheel.cluster c",
};

static const struct db_stmt join = {
	.name = "join",
	.sql = "insert into twheel.node (node, name, url, schema_min, schema_max) "
	       "values ($1, $2, $3, $4, $5)",
	.types = { PG_UUID, PG_TEXT, PG_TEXT, PG_INT4, PG_INT4 },
};

static const struct db_stmt listens[] = {
	{ .name = "listen-job", .sql = "listen twheel_job" },
	{ .name = "listen-shard", .sql = "listen twheel_shard" },
	{ .name = "listen-service", .sql = "listen twheel_service" },
	{ .name = "listen-schedule", .sql = "listen twheel_schedule" },
};

/* A row for each node, and one without a node for shards that no node has. */
static const struct db_stmt beat = {
	.name = "beat",
	.sql = "with b as (update twheel.node set beat = beat + 1 where node = $1 returning 1) "
	       "select n.node, n.beat, coalesce(s.nr, 0), clock_timestamp(), "
	       "exists (select from b), (select coalesce(max(version), 0) * 100000 + count(*) "
	       "from twheel.service), pg_stat_get_live_tuples('twheel.job'::regclass), "
	       "coalesce(n.drain, false) "
	       "from twheel.node n full join (select owner, count(*) as nr from twheel.shard "
	       "group by owner) s on s.owner = n.node",
	.types = { PG_UUID },
};

/*
 * Anybody may call a session as nodes call theirs, but none of another role can be ended. The
 * dead are deleted only if their beat is still what was seen. Rows that are locked are of
 * batches that are under way, or are being taken by another.
 */
static const struct db_stmt take = {
	.name = "take",
	.sql = "with dead as materialized ("
	       "delete from twheel.node n using unnest($2, $3) d(node, beat) "
	       "where n.node = d.node and n.beat = d.beat returning n.node"
	       "), ended as materialized ("
	       "select count(pg_terminate_backend(a.pid)) as nr from pg_stat_activity a "
	       "join dead d on a.application_name like 'twheeld ' || d.node || '%' "
	       "where a.usename = current_user"
	       "), free as materialized ("
	       "select s.shard from twheel.shard s where (select nr from ended) >= 0 "
	       "and not exists (select from twheel.node n where n.node = s.owner "
	       "and n.node not in (select node from dead)) "
	       "order by s.shard limit $4 for update of s skip locked) "
	       "update twheel.shard s set owner = $1, fence = s.fence + 1 from free "
	       "where s.shard = free.shard returning s.shard, s.fence",
	.types = { PG_UUID, PG_UUID_A, PG_INT8_A, PG_INT8 },
};

/* What is owned, after an answer was lost or if somebody disagrees. */
static const struct db_stmt mine = {
	.name = "mine",
	.sql = "select shard, fence from twheel.shard where owner = $1",
	.types = { PG_UUID },
};

/* Waits for batches that have the shard locked, which may still do what they were sent for. */
static const struct db_stmt leave = {
	.name = "leave",
	.sql = "with l as (update twheel.shard s set owner = null "
	       "from unnest($2, $3) u(shard, fence) "
	       "where s.shard = u.shard and s.fence = u.fence and s.owner = $1 returning 1), "
	       "n as (delete from twheel.node where node = $1 and $4 returning 1) "
	       "select pg_notify('twheel_shard', ''), (select count(*) from l)",
	.types = { PG_UUID, PG_INT2_A, PG_INT8_A, PG_BOOL },
};

static void send_beat(struct node *n);
static void beat_time(struct twheel *w, struct twheel_timer *t, uint64_t missed);

bool lease_is_valid(const struct node *n)
{
	return boottime_ns() < __atomic_load_n(&n->lease.valid_ns, __ATOMIC_RELAXED);
}

bool lease_owns(const struct node *n, int shard)
{
	return shard >= 0 && shard < NR_SHARDS && n->lease.hold[shard] == HOLD_OWNED;
}

int lease_any_shard(struct node *n)
{
	static unsigned int last;
	unsigned int i;

	for (i = 1; i <= NR_SHARDS; i++)
		if (lease_owns(n, (last + i) % NR_SHARDS))
			break;
	last = (last + i) % NR_SHARDS;
	return last;
}

uint64_t lease_add_params(const struct node *n, uint64_t of, struct db_params *p)
{
	struct pg_array shards = {}, fences = {};
	uint64_t sent = 0;
	int i;

	db_add_bytes(p, n->lease.node, sizeof(n->lease.node));
	for (i = 0; i < NR_SHARDS; i++) {
		if (!(of & 1ULL << i) || n->lease.hold[i] != HOLD_OWNED)
			continue;
		pg_array_int2(&shards, i);
		pg_array_int8(&fences, n->lease.fence[i]);
		sent |= 1ULL << i;
	}
	db_add_array(p, &shards, PG_INT2);
	db_add_array(p, &fences, PG_INT8);
	return sent;
}

static void own(struct node *n, int shard, int64_t fence)
{
	struct lease *l = &n->lease;

	if (shard < 0 || shard >= NR_SHARDS)
		return;
	if (l->hold[shard] == HOLD_OWNED && l->fence[shard] == fence)
		return;
	l->nr_owned += l->hold[shard] != HOLD_OWNED;
	l->hold[shard] = HOLD_OWNED;
	l->fence[shard] = fence;
	n->metrics.taken_shards++;
	horizon_own(n, shard);
	plan_own(n);
}

/* Of those in @shards; all at once, as what is in memory is gone through. */
static void disown(struct node *n, uint64_t shards, enum hold hold)
{
	struct lease *l = &n->lease;
	uint64_t owned = 0;
	int i;

	for (i = 0; i < NR_SHARDS; i++) {
		if (!(shards & 1ULL << i))
			continue;
		if (l->hold[i] == HOLD_OWNED)
			owned |= 1ULL << i;
		l->hold[i] = hold;
	}
	if (!owned)
		return;
	l->nr_owned -= (uint32_t)__builtin_popcountll(owned);
	horizon_disown(n, owned);
}

/* Forgets all, to join under another uuid. */
static void rejoin(struct node *n)
{
	struct lease *l = &n->lease;

	disown(n, ~0ULL, HOLD_NONE);
	l->joined = false;
	__atomic_store_n(&l->valid_ns, 0, __ATOMIC_RELAXED);
	l->nr_peers = 0;
	l->nr_samples = 0;
	horizon_forget(n);
	if (getrandom(l->node, sizeof(l->node), 0) != sizeof(l->node))
		abort();
	l->node[6] = (l->node[6] & 0x0f) | 0x40;
	l->node[8] = (l->node[8] & 0x3f) | 0x80;
	uuid_to_text(l->node, l->text);
}

static void reset_others(struct node *n)
{
	db_reset(&n->fire.db);
	db_reset(&n->horizon.db);
	db_reset(&n->plan.db);
	db_reset(&n->finish.db);
	db_reset(&n->services.db);
	api_reset(n);
	submit_reset(n);
}

/* On new connections, which have that uuid in their names. */
static void rejoin_later(struct node *n, const char *why)
{
	struct lease *l = &n->lease;

	log_warn("rejoin node=%s why=%s", l->text, quoted(why));
	rejoin(n);
	reset_others(n);
	db_reset(&l->db);
}

/* ------------------------------------------------------------------ the clock */

/* The best is what took least, and is not old: clocks differ in speed by less than 1 in 1000. */
static const struct clock_sample *best_sample(const struct lease *l)
{
	const struct clock_sample *s, *best = NULL;
	uint64_t badness, least = UINT64_MAX, now_ns = boottime_ns();
	unsigned int i;

	for (i = 0; i < l->nr_samples; i++) {
		s = &l->samples[i];
		badness = (s->got_ns - s->sent_ns) / 2 + (now_ns - s->got_ns) / 1000;
		if (badness < least) {
			least = badness;
			best = s;
		}
	}
	return best;
}

bool clock_is_known(const struct node *n)
{
	return n->lease.nr_samples;
}

/* What is to be added to CLOCK_BOOTTIME in us. */
static int64_t offset_us(const struct node *n)
{
	const struct clock_sample *s = best_sample(&n->lease);

	return s ? s->us - (int64_t)((s->sent_ns + s->got_ns) / 2000) : 0;
}

int64_t clock_us(const struct node *n)
{
	return offset_us(n) + boottime_ns() / 1000;
}

int64_t clock_error_us(const struct node *n)
{
	const struct clock_sample *s = best_sample(&n->lease);

	return s ? (int64_t)(s->got_ns - s->sent_ns) / 2000 + 1 : INT64_MAX;
}

int64_t clock_least_us(const struct node *n)
{
	return clock_us(n) - clock_error_us(n);
}

uint64_t clock_to_ns(const struct node *n, int64_t us)
{
	const struct clock_sample *s = best_sample(&n->lease);
	int64_t from_us;

	if (!s)
		return TWHEEL_NEVER;
	from_us = s->us - (int64_t)(s->got_ns / 1000);
	if (us <= from_us)
		return 0;
	/* What is beyond all time is not reached. */
	if (us > INT64_MAX / 1000 || us - from_us > INT64_MAX / 1000)
		return TWHEEL_NEVER;
	return (us - from_us) * 1000;
}

static void take_sample(struct node *n, int64_t us, uint64_t sent_ns)
{
	struct lease *l = &n->lease;
	uint64_t got_ns = boottime_ns();
	int64_t was_us = offset_us(n);
	bool set = l->nr_samples && (us - (int64_t)(got_ns / 1000) > was_us + SET_US ||
				     us - (int64_t)(sent_ns / 1000) < was_us - SET_US);

	if (set) {
		log_warn("clock-set by_us=%" PRId64, us - (int64_t)(got_ns / 1000) - was_us);
		l->nr_samples = 0;
	}
	l->samples[l->sample++ % NR_SAMPLES] = (struct clock_sample){ us, sent_ns, got_ns };
	if (l->nr_samples < NR_SAMPLES)
		l->nr_samples++;
	if (set) {
		l->samples[0] = l->samples[(l->sample - 1) % NR_SAMPLES];
		l->sample = 1;
		horizon_clock_set(n);
	}
}

/* ----------------------------------------------------------------------- shards */

static void took(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	int i;

	n->lease.taking = false;
	if (a->status == DB_FAILED)
		log_warn("take failed=%s", quoted(a->message));
	if (a->status != DB_DONE)
		return;
	for (i = 0; i < PQntuples(a->result); i++)
		own(n, db_int(a->result, i, 0), db_int8(a->result, i, 1));
	if (i)
		log_note("take node=%s shards=%d owned=%u of=%u", n->lease.text, i,
			 n->lease.nr_owned, n->lease.share);
}

static bool is_dead(const struct peer *p, uint64_t now_ns)
{
	return now_ns - p->changed_ns >= DEAD_NS;
}

static void send_take(struct node *n, uint64_t now_ns)
{
	struct lease *l = &n->lease;
	struct pg_array dead = {}, beats = {};
	struct db_params p = {};
	unsigned int i;

	for (i = 0; i < l->nr_peers; i++) {
		if (!is_dead(&l->peers[i], now_ns))
			continue;
		pg_array_bytes(&dead, l->peers[i].node, sizeof(l->peers[i].node));
		pg_array_int8(&beats, l->peers[i].beat);
	}
	if (dead.nr)
		log_warn("dead node=%s nodes=%u", l->text, dead.nr);
	db_add_bytes(&p, l->node, sizeof(l->node));
	db_add_array(&p, &dead, PG_UUID);
	db_add_array(&p, &beats, PG_INT8);
	db_add_int8(&p, l->share > l->nr_owned ? l->share - l->nr_owned : 0);
	l->taking = true;
	db_query(&l->db, &take, &p, took, n);
}

static void left(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	int i;

	n->lease.taking = false;
	if (a->status != DB_DONE)
		return;
	for (i = 0; i < NR_SHARDS; i++)
		if (n->lease.hold[i] == HOLD_LEAVING)
			n->lease.hold[i] = HOLD_NONE;
}

/* Gives away those that are HOLD_LEAVING, and with @all the node as well. */
static void send_leave(struct node *n, bool all)
{
	struct pg_array shards = {}, fences = {};
	struct lease *l = &n->lease;
	struct db_params p = {};
	int i;

	for (i = 0; i < NR_SHARDS; i++) {
		if (l->hold[i] != HOLD_LEAVING)
			continue;
		pg_array_int2(&shards, i);
		pg_array_int8(&fences, l->fence[i]);
	}
	db_add_bytes(&p, l->node, sizeof(l->node));
	db_add_array(&p, &shards, PG_INT2);
	db_add_array(&p, &fences, PG_INT8);
	db_add_bool(&p, all);
	l->taking = true;
	db_query(&l->db, &leave, &p, left, n);
}

void lease_drain(struct node *n)
{
	uint64_t shards = 0;
	int i;

	for (i = 0; i < NR_SHARDS; i++)
		if (n->lease.hold[i] == HOLD_OWNED)
			shards |= 1ULL << i;
	disown(n, shards, HOLD_LEAVING);
	if (n->lease.joined)
		send_leave(n, true);
	n->lease.joined = false;
}

/* Gives away what is beyond its share, from the last on. */
static void leave_some(struct node *n)
{
	struct lease *l = &n->lease;
	uint32_t nr = l->nr_owned;
	uint64_t shards = 0;
	int i;

	for (i = NR_SHARDS - 1; i >= 0 && nr > l->share; i--) {
		if (l->hold[i] != HOLD_OWNED)
			continue;
		shards |= 1ULL << i;
		nr--;
	}
	disown(n, shards, HOLD_LEAVING);
	log_note("leave node=%s owned=%u", l->text, l->nr_owned);
	send_leave(n, false);
}

static void got_mine(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	uint64_t still = 0;
	int i, shard;

	n->lease.taking = false;
	if (a->status != DB_DONE)
		return;
	for (i = 0; i < PQntuples(a->result); i++) {
		shard = db_int(a->result, i, 0);
		if (shard < 0 || shard >= NR_SHARDS)
			continue;
		still |= 1ULL << shard;
		own(n, shard, db_int8(a->result, i, 1));
	}
	disown(n, ~still, HOLD_NONE);
}

static void send_mine(struct node *n)
{
	struct db_params p = {};

	db_add_bytes(&p, n->lease.node, sizeof(n->lease.node));
	n->lease.taking = true;
	db_query(&n->lease.db, &mine, &p, got_mine, n);
}

void lease_held(struct node *n, uint64_t sent, const char *held, size_t nr)
{
	uint64_t lost = 0;
	int i;

	for (i = 0; i < NR_SHARDS; i++) {
		if (!(sent & 1ULL << i) || n->lease.hold[i] != HOLD_OWNED ||
		    memchr(held, i + 1, nr))
			continue;
		log_warn("lost shard=%d", i);
		n->metrics.lost_shards++;
		lost |= 1ULL << i;
	}
	disown(n, lost, HOLD_NONE);
}

/* ------------------------------------------------------------------------ beats */

static struct peer *find_peer(struct lease *l, const void *node)
{
	struct peer *p;

	for (p = l->peers; p < l->peers + l->nr_peers; p++)
		if (!memcmp(p->node, node, sizeof(p->node)))
			return p;
	if (l->nr_peers == MAX_PEERS)
		return NULL;
	l->nr_peers++;
	*p = (struct peer){ .beat = -1 };
	memcpy(p->node, node, sizeof(p->node));
	return p;
}

static void see_peer(struct lease *l, const void *node, int64_t its_beat, uint64_t now_ns)
{
	struct peer *p = find_peer(l, node);

	if (!p)
		return;
	if (p->beat != its_beat) {
		p->beat = its_beat;
		p->changed_ns = now_ns;
	}
	p->listed = true;
}

/* Drops those that are not there any more. Whether any is dead. */
static bool count_peers(struct lease *l, uint64_t now_ns)
{
	unsigned int i, rank = 0, nr = 1;
	bool dead = false;

	for (i = 0; i < l->nr_peers;) {
		if (!l->peers[i].listed) {
			l->peers[i] = l->peers[--l->nr_peers];
			continue;
		}
		l->peers[i].listed = false;
		if (is_dead(&l->peers[i], now_ns)) {
			dead = true;
		} else {
			nr++;
			rank += memcmp(l->peers[i].node, l->node, sizeof(l->node)) < 0;
		}
		i++;
	}
	l->nr_nodes = nr;
	l->share = NR_SHARDS / nr + (rank < NR_SHARDS % nr);
	return dead;
}

/* What is to be done about shards, one thing at a time. */
static void balance(struct node *n, uint64_t now_ns, bool dead, int64_t nr_free, int64_t nr_mine)
{
	struct lease *l = &n->lease;

	if (l->taking || n->draining)
		return;
	if (nr_mine != l->nr_owned)
		send_mine(n);
	else if (dead || (nr_free && l->nr_owned < l->share))
		send_take(n, now_ns);
	else if (l->nr_owned > l->share)
		leave_some(n);
}

static void see_own(struct node *n, const PGresult *r, int row, int64_t *nr_shards)
{
	*nr_shards = db_int8(r, row, 2);
	if (db_bool(r, row, 7))
		node_drain(n);
}

static void see_beats(struct node *n, const struct db_answer *a)
{
	struct lease *l = &n->lease;
	uint64_t now_ns = boottime_ns();
	int64_t nr_free = 0, nr_mine = 0, nr;
	const PGresult *r = a->result;
	int i;

	l->refused = 0;
	__atomic_store_n(&l->valid_ns, a->sent_ns + VALID_NS, __ATOMIC_RELAXED);
	for (i = 0; i < PQntuples(r); i++) {
		nr = db_int8(r, i, 2);
		if (db_is_null(r, i, 0))
			nr_free += nr;
		else if (!memcmp(db_text(r, i, 0), l->node, sizeof(l->node)))
			see_own(n, r, i, &nr_mine);
		else
			see_peer(l, db_text(r, i, 0), db_int8(r, i, 1), now_ns);
	}
	take_sample(n, db_int8(r, 0, 3), a->sent_ns);
	if (l->service_version != db_int8(r, 0, 5)) {
		l->service_version = db_int8(r, 0, 5);
		services_load(n);
	}
	l->nr_waiting = db_int8(r, 0, 6);
	balance(n, now_ns, count_peers(l, now_ns), nr_free, nr_mine);
}

static void beaten(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	struct lease *l = &n->lease;

	l->beating = false;
	if (a->status == DB_FAILED)
		log_warn("beat failed=%s", quoted(a->message));
	if (a->status == DB_DONE && l->joined) {
		if (PQntuples(a->result) && db_bool(a->result, 0, 4))
			see_beats(n, a);
		else
			rejoin_later(n, "taken for dead");
	}
	if (l->joined)
		loop_arm(&n->loop, &l->beat_timer, l->again ? PAUSE_NS : BEAT_NS, beat_time);
}

static void send_beat(struct node *n)
{
	struct lease *l = &n->lease;
	struct db_params p = {};

	if (l->beating || !l->joined || l->db.state != DB_UP)
		return;
	l->beating = true;
	l->again = false;
	l->sent_ns = boottime_ns();
	db_add_bytes(&p, l->node, sizeof(l->node));
	db_query(&l->db, &beat, &p, beaten, n);
}

static void beat_time(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct lease *l = TWHEEL_CONTAINER(t, struct lease, beat_timer);

	(void)w;
	(void)missed;
	send_beat(node_of_lease(l));
}

/* ---------------------------------------------------------------------- joining */

static void joined(void *arg, const struct db_answer *a)
{
	struct node *n = arg;

	if (a->status == DB_FAILED) {
		log_error("join failed=%s", quoted(a->message));
		db_refuse(&n->lease.db, n->lease.refused++);
	}
	if (a->status != DB_DONE || n->draining)
		return;
	n->lease.joined = true;
	n->lease.untold = false;
	n->metrics.joins++;
	log_note("join node=%s name=%s", n->lease.text, quoted(n->config->name));
	send_beat(n);
}

/* With what is told of it. */
static void send_self(struct node *n, const struct db_stmt *stmt, db_fn *fn)
{
	struct db_params p = {};

	db_add_bytes(&p, n->lease.node, sizeof(n->lease.node));
	db_add_bytes(&p, n->config->name, strlen(n->config->name));
	db_add_bytes(&p, n->config->url ?: "", strlen(n->config->url ?: ""));
	db_add_int4(&p, SCHEMA_MIN);
	db_add_int4(&p, SCHEMA_MAX);
	db_query(&n->lease.db, stmt, &p, fn, n);
}

/* Of the new configuration. */
static const struct db_stmt rename_node = {
	.name = "rename",
	.sql = "update twheel.node set name = $2, url = $3, schema_min = $4, schema_max = $5 "
	       "where node = $1",
	.types = { PG_UUID, PG_TEXT, PG_TEXT, PG_INT4, PG_INT4 },
};

static void renamed(void *arg, const struct db_answer *a)
{
	struct node *n = arg;

	if (a->status == DB_FAILED)
		log_warn("rename failed=%s", quoted(a->message));
	if (a->status == DB_DONE)
		n->lease.untold = false;
}

static void identified(void *arg, const struct db_answer *a)
{
	struct node *n = arg;
	struct lease *l = &n->lease;
	bool usable = a->status == DB_DONE && PQntuples(a->result) == 1;
	const char *is;
	bool changed;

	if (a->status == DB_LOST)
		return;
	if (!usable || db_is_null(a->result, 0, 0) || db_int(a->result, 0, 1) < SCHEMA_MIN ||
	    db_int(a->result, 0, 1) > SCHEMA_MAX) {
		log_error("database not_usable=%s",
			  quoted(!usable ? a->message ?: "no cluster" :
				 db_is_null(a->result, 0, 0) ? "in recovery" : "schema"));
		db_refuse(&l->db, l->refused++);
		return;
	}
	is = db_text(a->result, 0, 0);
	changed = strcmp(l->identity.is, is);
	snprintf(l->identity.is, sizeof(l->identity.is), "%s", is);
	if (changed)
		reset_others(n);
	/* The others still record what came of calls. */
	if (n->draining || n->predecessor.waits)
		return;
	if (l->joined && changed) {
		rejoin_later(n, "another database");
		return;
	}
	if (!l->joined) {
		send_self(n, &join, joined);
		return;
	}
	if (l->untold)
		send_self(n, &rename_node, renamed);
	/* What was announced meanwhile was not heard. */
	horizon_look(n);
	plan_look(n);
	send_beat(n);
}

static void lease_up(void *arg)
{
	struct node *n = arg;
	unsigned int i;

	n->lease.taking = false;
	for (i = 0; i < ARRAY_SIZE(listens) && !n->draining; i++)
		db_query(&n->lease.db, &listens[i], &(struct db_params){}, NULL, NULL);
	db_query(&n->lease.db, &identify, &(struct db_params){}, identified, n);
}

/* Anybody may send any number of notifications. */
static void beat_soon(struct node *n)
{
	struct lease *l = &n->lease;
	uint64_t soon_ns = l->sent_ns + PAUSE_NS, now_ns = boottime_ns();

	if (l->beating)
		l->again = true;
	else if (l->joined && twheel_deadline(&l->beat_timer) > soon_ns)
		loop_arm(&n->loop, &l->beat_timer, soon_ns > now_ns ? soon_ns - now_ns : 0,
			 beat_time);
}

/* "SHARD ID DUE SERVICE SLACK FLAGS BYTES", with DUE in us since 1970. */
static void hear_job(struct node *n, const char *payload)
{
	struct job row = { .heard = true };
	int shard;

	if (sscanf(payload, "%d %" SCNd64 " %" SCNd64 " %" SCNd32 " %" SCNd32 " %" SCNu8
		   " %" SCNd32, &shard, &row.id, &row.due_us, &row.service, &row.slack_ms,
		   &row.flags, &row.bytes) < 7 || row.bytes < 0) {
		horizon_look(n);
		return;
	}
	if (!lease_owns(n, shard))
		return;
	row.shard = shard;
	row.flags &= JOB_SKIPS | JOB_CAST | JOB_MISFIRES;
	if (__builtin_sub_overflow(row.due_us, PG_EPOCH_US, &row.due_us))
		return;
	horizon_hear(n, &row);
}

static void lease_notify(void *arg, const char *channel, const char *payload)
{
	struct node *n = arg;

	n->predecessor.is_behind |= n->predecessor.waits;
	if (!strcmp(channel, "twheel_job"))
		hear_job(n, payload);
	else if (!strcmp(channel, "twheel_shard"))
		beat_soon(n);
	else if (!strcmp(channel, "twheel_service"))
		services_load(n);
	else if (!strcmp(channel, "twheel_schedule"))
		plan_look(n);
}

/* ------------------------------------------------------------------ handing over */

/* What is being given away is not handed over: beats tell what comes of it. */
void lease_give(struct node *n, struct given *g, struct buf *more)
{
	struct lease *l = &n->lease;
	int i;

	memcpy(g->node, l->node, sizeof(g->node));
	memcpy(g->identity, l->identity.is, sizeof(g->identity));
	g->valid_ns = l->valid_ns;
	g->nr_nodes = l->nr_nodes;
	for (i = 0; i < NR_SHARDS; i++) {
		g->shards[i].is_owned = l->hold[i] == HOLD_OWNED;
		g->shards[i].fence = l->fence[i];
	}
	g->nr_samples = l->nr_samples;
	buf_add(more, l->samples, l->nr_samples * sizeof(*l->samples));
}

void lease_take(struct node *n, const struct given *g)
{
	struct lease *l = &n->lease;
	uint32_t i;

	for (i = 0; i < NR_SHARDS; i++) {
		l->hold[i] = g->shards[i].is_owned ? HOLD_OWNED : HOLD_NONE;
		l->fence[i] = g->shards[i].fence;
		l->nr_owned += g->shards[i].is_owned;
	}
	for (i = 0; i < g->nr_samples && i < NR_SAMPLES; i++)
		l->samples[i] = given_samples(g)[i];
	l->nr_samples = i;
	l->sample = i;
	__atomic_store_n(&l->valid_ns, g->valid_ns, __ATOMIC_RELAXED);
	/* Until a beat is answered: limits are divided among so many. */
	l->nr_nodes = g->nr_nodes;
	l->joined = true;
	l->untold = true;
	send_self(n, &rename_node, renamed);
	send_beat(n);
	plan_own(n);
}

/* All of it is another process's. */
void lease_leave(struct node *n)
{
	disown(n, ~0ULL, HOLD_NONE);
	n->lease.joined = false;
	twheel_cancel(n->loop.wheel, &n->lease.beat_timer);
}

void lease_join_anew(struct node *n)
{
	rejoin_later(n, "not taken over");
}

/* ------------------------------------------------------------------------------- */

void lease_open(struct node *n)
{
	struct lease *l = &n->lease;

	rejoin(n);
	if (n->predecessor.waits) {
		memcpy(l->node, n->predecessor.node, sizeof(l->node));
		uuid_to_text(l->node, l->text);
	}
	l->identity.stmt = &identify;
	l->db = (struct db){
		.what = "lease",
		.loop = &n->loop,
		.conninfo = n->config->database,
		.node = l->text,
		.up = lease_up,
		.notify = lease_notify,
		.arg = n,
	};
	db_open(&l->db);
}

void lease_close(struct node *n)
{
	twheel_cancel(n->loop.wheel, &n->lease.beat_timer);
	db_close(&n->lease.db);
}
