/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A node: what a process of twheeld has, and what its parts ask of each other.
 *
 *   lease.c    who is alive, who owns which shard, what the clock of the database says
 *   plan.c     makes the jobs of schedules, some time before they are due
 *   horizon.c  which jobs are in memory, each with a timer; snapshot.c: what may be new
 *   fire.c     what is due: handed over to queues, or marked as running and called
 *   call.c     calls by HTTP;  amqp.c  by RabbitMQ
 *   finish.c   what came of calls
 *   service.c  what is known of services, and their limits
 *   submit.c   jobs that come by HTTP, many in a transaction
 *   api.c      requests by HTTP;  metrics.c  what is counted
 *   handover.c how the process is replaced by another one;  handover.h  what that gets
 *
 * "us" are microseconds since 2000 of the clock of the database, "ns" are CLOCK_BOOTTIME.
 * Everything runs in one thread, but for what amqp.c has of its own. What is in memory
 * is a copy that may be lost at any time: rows are what is owed.
 */
#ifndef TWHEELD_NODE_H
#define TWHEELD_NODE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "config.h"
#include "db.h"
#include "log.h"
#include "loop.h"

#define NR_SHARDS	64
#define MAX_PAYLOAD	1048576

#define SCHEMA_MIN	1
#define SCHEMA_MAX	1

struct node;

/** struct list - links of a ring; zeroed is on no ring */
struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *head)
{
	head->next = head;
	head->prev = head;
}

static inline bool list_is_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_add_tail(struct list *head, struct list *new)
{
	new->prev = head->prev;
	new->next = head;
	head->prev->next = new;
	head->prev = new;
}

/* Also of what is on none. */
static inline void list_del(struct list *l)
{
	if (!l->next)
		return;
	l->next->prev = l->prev;
	l->prev->next = l->next;
	l->next = NULL;
	l->prev = NULL;
}

/* ------------------------------------------------------------------ lease.c */

/** enum hold - of a shard */
enum hold {
	HOLD_NONE,
	HOLD_OWNED,
	HOLD_LEAVING,	/* is being given away: nothing new is begun */
};

/** struct peer - another node, as far as its beats tell */
struct peer {
	uint8_t node[16];
	int64_t beat;
	uint64_t changed_ns;	/* when another beat was seen */
	bool listed;		/* in the answer that is looked at */
};

#define MAX_PEERS	256

/** struct clock_sample - the database said @us between @sent_ns and @got_ns */
struct clock_sample {
	int64_t us;
	uint64_t sent_ns;
	uint64_t got_ns;
};

#define NR_SAMPLES	16

/**
 * struct lease - of this node
 * @db:         its connection: beats, shards and notifications, nothing that takes long
 * @beat_timer: for the next beat
 * @node:       its uuid; another one each time it joins
 * @text:       that as text
 * @identity:   of the database and its cluster, to notice that it is another one; the other
 *              connections have no other
 * @joined:     its row is in the table
 * @untold:     that row is still that of the process before
 * @beating:    a beat is under way
 * @taking:     a statement about who owns what is under way
 * @again:      another one is wanted soon after that
 * @sent_ns:    when the last one was sent
 * @valid_ns:   nothing is begun from then on; amqp.c's thread asks too
 * @hold:       of each shard
 * @fence:      of those that it owns
 * @nr_owned:   how many have HOLD_OWNED
 * @share:      how many it is to have
 * @nr_nodes:   that are alive, this one among them
 * @peers:      the others
 * @nr_peers:   how many
 * @samples:    of the clock, a ring
 * @nr_samples: how many there are
 * @sample:     counts them: where the next one goes
 * @service_version: of the services as of the last beat, to notice that they changed
 * @nr_waiting: jobs of the cluster, as estimated now and then
 * @refused:    databases that could not be used, since the last beat
 */
struct lease {
	struct db db;
	struct twheel_timer beat_timer;
	uint8_t node[16];
	char text[37];
	struct db_identity identity;
	bool joined, untold, beating, taking, again;
	uint64_t valid_ns;
	uint64_t sent_ns;
	enum hold hold[NR_SHARDS];
	int64_t fence[NR_SHARDS];
	unsigned int nr_owned, share, nr_nodes;
	struct peer peers[MAX_PEERS];
	unsigned int nr_peers;
	struct clock_sample samples[NR_SAMPLES];
	unsigned int nr_samples, sample;
	int64_t service_version;
	int64_t nr_waiting;
	uint32_t refused;
};

void lease_open(struct node *n);
void lease_close(struct node *n);
void lease_drain(struct node *n);	/* gives all shards away */
void lease_leave(struct node *n);	/* another process has it */
void lease_join_anew(struct node *n);	/* under a uuid of its own, as nothing was handed over */

/* Whether this node may begin anything: to be asked just before it does, by any thread. */
bool lease_is_valid(const struct node *n);
bool lease_owns(const struct node *n, int shard);

/* A shard for a job that comes in here: an owned one in turn, or any if there is none. */
int lease_any_shard(struct node *n);

/*
 * How a statement begins that does something to shards for their owner. $1 to $3 are of
 * lease_add_params(), and h has those shards that are held, whose rows stay locked: no other node
 * takes them before it has ended. HELD_BYTES is what lease_held() is to be told.
 */
#define HELD \
	"with h as materialized (" \
	"select s.shard from twheel.shard s join unnest($2, $3) u(shard, fence) " \
	"on s.shard = u.shard and s.fence = u.fence where s.owner = $1 " \
	"order by s.shard for share of s), "
#define HELD_BYTES \
	"(select string_agg(set_byte('\\x00'::bytea, 0, shard + 1), '') from h)"

/* Adds this node, and shards @of a set that it owns with their fences. Which those are. */
uint64_t lease_add_params(const struct node *n, uint64_t of, struct db_params *p);

/*
 * Of those it @sent a statement says which it still @held, a byte each that is the shard's
 * number and 1: the others are forgotten.
 */
void lease_held(struct node *n, uint64_t sent, const char *held, size_t nr);

/* The database's clock: at least that now, its best estimate, and how wrong that may be. */
bool clock_is_known(const struct node *n);
int64_t clock_least_us(const struct node *n);
int64_t clock_us(const struct node *n);
int64_t clock_error_us(const struct node *n);

/* When the clock will have reached @us for certain; now if it has. */
uint64_t clock_to_ns(const struct node *n, int64_t us);

/* ---------------------------------------------------------------- service.c */

enum kind { KIND_HTTP, KIND_QUEUE, KIND_AMQP };

/**
 * struct service - as the table has it; once known it stays in memory
 * @next:      of struct services
 * @id:        by which jobs name it
 * @name:      by which requests do
 * @kind:      of calls, of a queue, or of messages, which count as calls
 * @gone:      deleted, or of a kind that this version does not know: its jobs wait
 * @paused:    nothing is begun
 * @at_most_once: a call that may have been read is not repeated
 * @notify:    consumers of its queue are to be told
 * @target:    URL; of AMQP EXCHANGE/ROUTING-KEY
 * @headers:   "Name: value", NULL behind the last
 * @timeout_ms: of a call
 * @accept_ms: how long a consumer that answered 202 has to report
 * @max_attempts: of a job
 * @backoff_ms: at most so long after the first attempt that failed; twice as long after each
 * @backoff_max_ms: and no longer
 * @concurrency: calls under way in the cluster
 * @rate_per_s: of calls in the cluster; 0 for any
 * @running:   calls that are under way, or whose mark is
 * @waiting:   jobs that are due and wait for a limit
 * @nr_waiting: how many
 * @behind:    there are more, which were set aside
 * @tokens:    of the rate, as of @tokens_ns
 * @tokens_ns: when that was
 * @failed:    calls that failed without one that did not
 * @closed_ns: the circuit is open until then: one call is tried
 * @timer:     when it is worth to ask again
 * @node:      whose it is
 * @to_notify: something was handed over of which consumers have not been told
 */
struct service {
	struct service *next;
	int32_t id;
	enum kind kind;
	char *name;
	char *target;
	char **headers;
	uint32_t timeout_ms, accept_ms, max_attempts, backoff_ms, backoff_max_ms, concurrency;
	double rate_per_s;
	bool gone, paused, at_most_once, notify;

	bool to_notify, behind;
	uint32_t running, failed, nr_waiting;
	struct list waiting;
	double tokens;
	uint64_t tokens_ns;
	uint64_t closed_ns;
	struct twheel_timer timer;
	struct node *node;
};

struct services {
	struct db db;		/* also for what api.c asks: nothing here is urgent */
	struct service *first;
	bool loading, again, loaded;
	int64_t forget_page;
	bool unparking;
	int unpark_left;
	int32_t unpark_service;	/* the next page begins behind that job of it */
	int64_t unpark_id;
	struct twheel_timer unpark_timer;
	struct twheel_timer timer;
};

void services_open(struct node *n);
void services_close(struct node *n);
void services_load(struct node *n);
struct service *service_by_id(struct node *n, int32_t id);
struct service *service_by_name(struct node *n, const char *name);

/*
 * Whether a call may begin now. If so it counts as running until service_ended(), or
 * service_unbegin() if it did not begin. If not fire_service() is called when it is worth to
 * ask again.
 */
bool service_begin(struct node *n, struct service *s);
void service_unbegin(struct node *n, struct service *s);
void service_ended(struct node *n, struct service *s, bool at_fault);

/* Brings back the jobs of services that were paused and are not any more, of its own shards. */
void unpark(struct node *n);

/* How long after an attempt failed the next one comes. */
int64_t service_backoff_us(const struct service *s, uint32_t attempt);

/* ---------------------------------------------------------------- horizon.c */

/* Of a job, as in the table. */
enum { JOB_DELAY = 0, JOB_RUNNING = 1, JOB_ACCEPTED = 2 };

/*
 * The same: skipped if another of its order key is not over, for each agent, to be looked at if it
 * is late. And not in the table: it was owed late, as its service was paused.
 */
enum { JOB_SKIPS = 1, JOB_CAST = 2, JOB_MISFIRES = 4, JOB_LATE = 8 };

#define FLAGS_OF(j) \
	"(coalesce(" j ".flags, 0) | case when " j ".due > " j ".at + interval '1 second' " \
	"then 8 else 0 end)::int4"

/**
 * struct job - a row that is due soon
 * @timer:    when it is to be looked at
 * @chain:    in the table of those in memory, by id
 * @link:     on a list of fire.c once it is due
 * @id:       of the row
 * @due_us:   as in the row: what is done with it is done only if that is so still
 * @service:  its id
 * @slack_ms: how much later it may be
 * @bytes:    of its payload
 * @attempt:  how many were begun
 * @shard:    whose owner has it in memory
 * @state:    JOB_DELAY, JOB_RUNNING or JOB_ACCEPTED
 * @flags:    JOB_SKIPS and so on
 * @busy:     in a statement that is under way
 * @dropped:  forgotten meanwhile: to be freed when that is answered
 * @begun:    counts as running for its service
 * @waiting:  is on the list of its service
 * @heard:    of a notification, and not read yet: there may be none
 * @tries:    how often it was there and could not be begun
 */
struct job {
	struct twheel_timer timer;
	struct job *chain;
	struct list link;
	int64_t id;
	int64_t due_us;
	int32_t service;
	int32_t slack_ms;
	int32_t bytes;
	int32_t attempt;
	int8_t shard;
	uint8_t state, flags;
	bool busy, dropped, begun, waiting, heard;
	uint8_t tries;
};

/* @timers: of jobs, which another process may have had before; with so much @capacity. */
struct horizon {
	struct db db;
	struct loop_wheel timers;
	uint64_t capacity;
	struct job **table;
	uint32_t nr_buckets, nr_jobs;
	uint32_t nr_heard;	/* in memory that were heard of and not read */
	uint32_t nr_false;	/* of such, those that were not there; forgotten at ... */
	uint64_t doubt_ns;	/* ... this time */
	bool was_full;		/* there are rows that did not fit */
	struct twheel_timer timer;
	struct look *look;
};

int horizon_init(struct node *n);	/* 0, or -1 after it was told why */
void horizon_open(struct node *n);
void horizon_close(struct node *n);

/* A shard was taken, or is not owned any more; all that are in memory are to be forgotten. */
void horizon_own(struct node *n, int shard);
void horizon_disown(struct node *n, uint64_t shards);
void horizon_forget(struct node *n);

/*
 * A row that is known to be committed; of a shard that is not owned it is none of ours. What
 * was known of it before is not any more.
 */
void horizon_know(struct node *n, const struct job *row);

/* Of the columns id, shard, due, service, state, attempt, slack_ms, bytes, FLAGS_OF(). */
struct job horizon_row(const PGresult *r, int row);

/* The same of what a notification says, by whomever. */
void horizon_hear(struct node *n, const struct job *row);

/* A batch found no such row. */
void horizon_is_false(struct node *n, const struct job *job);

/* Its row is gone, or is not what it was. */
void horizon_drop(struct node *n, struct job *job);

/* The same, though its row is what it was: it is looked for again some time. */
void horizon_put_off(struct node *n, struct job *job);

/* The same, but not before horizon_catch_up(): more wait for a service than are of use. */
void horizon_set_aside(struct node *n, struct job *job);
void horizon_catch_up(struct node *n);
struct job *horizon_find(struct node *n, int64_t id);

/* Looks at once for what may have come; or again for all, if the clock was set. */
void horizon_look(struct node *n);
void horizon_clock_set(struct node *n);

/*
 * For handover.c: whether a look is under way; the descriptor of the timers, -1 if that is of no
 * use to others; whether they rest; another's descriptor instead, which is closed if that is not
 * possible.
 */
bool horizon_looks(const struct node *n);
int horizon_wheel_fd(const struct node *n);
void horizon_rest(struct node *n, bool rest);
bool horizon_adopt(struct node *n, int fd, uint64_t capacity);

/* ------------------------------------------------------------------- plan.c */

/**
 * struct plan - how far it is
 * @db:        its connection
 * @timer:     for the next look at schedules
 * @zones_timer: for a look whether tzdata has changed
 * @under_way: a statement is
 * @again:     another look is wanted, at all of them
 * @began_ns:  when the last one began
 * @next_us:   when one of those is to be looked at that were passed over
 * @on_time_us: what was to be looked at before that is late, in the look that is under way
 * @busy:      schedules that could not be planned, as somebody has them, or their service, locked,
 *             or has changed them
 * @nr_busy:   how many
 * @busy_ns:   when they are tried again, TWHEEL_NEVER if there are none
 * @busy_pause_ns: how long after they were found
 * @review:    those with a zone are to be looked at, whatever their time
 * @reviewed:  up to that one
 */
struct plan {
	struct db db;
	struct twheel_timer timer, zones_timer;
	bool under_way, again;
	uint64_t began_ns;
	int64_t next_us, on_time_us;
	int32_t *busy;
	uint32_t nr_busy;
	uint64_t busy_ns, busy_pause_ns;
	bool review;
	int32_t reviewed;
};

void plan_open(struct node *n);
void plan_close(struct node *n);

/* Looks soon: something was edited, the clock was set, or nobody may have told for a while. */
void plan_look(struct node *n);

/* A shard was taken. */
void plan_own(struct node *n);

/* ------------------------------------------------------------------- fire.c */

struct fire {
	struct db db;
	struct list queue;	/* to be handed over */
	struct list mark;	/* to be called */
	struct list cast;	/* to be handed over to each agent */
	struct list check;	/* may be skipped */
	struct list over;	/* running or accepted, and the time for that is over */
	struct list given_up;	/* of those */
	uint64_t given_up_after;	/* so many results are recorded */
	struct list park;	/* of a paused service */
	struct list unknown;	/* of a service that is not known */
};

void fire_open(struct node *n);
void fire_close(struct node *n);

/* A job is due, or will be within the lead that calls have. */
void fire_job(struct node *n, struct job *job);

/* Those that wait for a limit of a service can be tried again. */
void fire_service(struct node *n, struct service *s);

/* It is not for fire.c any more: was to be begun and is not, or waited. */
void fire_forget(struct node *n, struct job *job);

/* Services are known now, for which some may have waited. */
void fire_known(struct node *n);

/* Whether more is due than goes into a batch: nothing is to be added that has time. */
bool fire_is_behind(const struct node *n);

/* Sends what has come together; called before the loop waits. */
void fire_flush(struct node *n);

/* Counts how late something was begun. */
void fire_note_late(struct node *n, int64_t late_us);

/* How long before a job is due its timer fires. */
uint64_t fire_lead_us(struct node *n, const struct job *job);

/* ------------------------------------------------------------------- call.c */

/**
 * struct call - an attempt of a job, marked in its row
 * @node:        that makes it
 * @link:        of who makes it: call.c or amqp.c
 * @timer:       the same
 * @service:     of which it counts as running
 * @id:          the job
 * @attempt:     which, from 1 on
 * @at_us:       when the job was to be done
 * @due_us:      when this attempt is to begin
 * @begin_ns:    when it is to be sent
 * @deadline_ns: when it is given up
 * @idem:        for the header Idempotency-Key
 * @token:       for the header Twheel-Token: who has it may report what came of it
 * @payload:     the body
 * @ordered:     another job may wait for what comes of it
 * @began_us:    out: when it was sent, or 0 if it was not
 * @began_ns:    out: the same
 * @withheld:    out: it was not sent as this node may not begin anything: as if not marked.
 *               Else that it could not be sent is a failure as others are, see @message
 * @confirmed:   out: the broker has it
 * @status:      out: of HTTP, or 0 if there was no answer
 * @retry_after_ms: out: 0 if not said
 * @message:     out: what went wrong, or what was answered, cut
 * @easy:        of who makes it
 */
struct call {
	struct node *node;
	struct list link;
	struct twheel_timer timer;
	struct service *service;
	int64_t id;
	int32_t attempt;
	int64_t at_us;
	int64_t due_us;
	uint64_t begin_ns;
	uint64_t deadline_ns;
	char idem[37];
	char token[65];
	struct buf payload;
	bool ordered;

	int64_t began_us;
	uint64_t began_ns;
	bool withheld;
	bool confirmed;
	int32_t status;
	uint64_t retry_after_ms;
	char message[256];
	void *easy;
};

/**
 * struct calls - those that are under way
 * @nr:   how many, those of amqp.c too
 * @curl: call.c's
 */
struct calls {
	unsigned int nr;
	struct calls_curl *curl;
};

void calls_open(struct node *n);
void calls_close(struct node *n);	/* ends all, without telling anybody */

/*
 * Sends it at begin_ns, and calls finish_call() exactly once when it has ended, never from
 * within. It asks lease_is_valid() once more when the connection stands and before the first
 * byte is written: if not, the call ends with began_us == 0 and is @withheld.
 */
void call_start(struct node *n, struct call *call);

/* Whether this node calls for that job. It goes through all calls: for what is rare. */
bool call_is_under_way(const struct node *n, int64_t id);

/* As RFC 3339 has it; empty for what that cannot say. */
void us_to_text(int64_t us, char *text, size_t size);

/* ------------------------------------------------------------------- amqp.c */

enum amqp_state { AMQP_DOWN, AMQP_UP, AMQP_BLOCKED };

/** struct amqp_view - the broker as it is now, if there is one, and messages that wait for it */
struct amqp_view {
	bool used;
	enum amqp_state state;
	unsigned int nr_queued;
};

void amqp_open(struct node *n);
void amqp_close(struct node *n);	/* as calls_close() */

/* As call_start(): it is done when the broker has confirmed it. */
void amqp_start(struct node *n, struct call *call);
bool amqp_is_under_way(const struct node *n, int64_t id);

/* What waits for a broker that takes nothing is left to other nodes. */
void amqp_drain(struct node *n);
struct amqp_view amqp_look(struct node *n);

/* ----------------------------------------------------------------- finish.c */

enum outcome {
	OUT_DONE = 0, OUT_AGAIN = 1, OUT_FAILED = 2, OUT_ACCEPTED = 3, OUT_HANDED = 4,
	OUT_NOTHING = 5,	/* did not begin: as if it had not been marked */
};

/**
 * struct result - of an attempt
 * @next:     of struct finish
 * @id:       the job
 * @attempt:  which, from 1 on
 * @outcome:  what came of it
 * @status:   of HTTP, or 0 if there was no answer
 * @late_us:  when it was sent, after it was due
 * @took_us:  from then until it ended
 * @delay_us: for OUT_AGAIN until the next one, for OUT_ACCEPTED until it is given up
 * @due_us:   if not PG_INFINITY only if that is what the row has, and it has passed
 * @message:  what went wrong, or what was answered, cut
 */
struct result {
	struct result *next;
	int64_t id;
	int32_t attempt;
	enum outcome outcome;
	int32_t status;
	int64_t late_us;
	int64_t took_us;
	int64_t delay_us;
	int64_t due_us;
	char message[256];
};

/**
 * struct finish - results to be recorded
 * @db:    its connection
 * @first: not sent yet
 * @last:  of those; NULL if there is none
 * @sent:  in a statement that is under way
 * @held:  of jobs that others had locked: not of those two, but added anew
 * @nr:    how many are not sent, or under way
 * @nr_held: how many there are of those
 * @added: how many there ever were; they are recorded in that order
 * @timer: armed while they wait for others, or after a failure
 * @held_timer: armed while there is one in @held
 * @ripe:  they have waited
 * @failed: they wait after a failure
 * @careful: the next statement leaves alone what is locked
 * @sent_careful: that which is under way does
 */
struct finish {
	struct db db;
	struct result *first, *last, *sent, *held;
	unsigned int nr, nr_held;
	uint64_t added;
	bool ripe, failed, careful, sent_careful;
	struct twheel_timer timer, held_timer;
};

void finish_open(struct node *n);
void finish_close(struct node *n);

/* A call has ended: decides what is to be done, and frees it. */
void finish_call(struct node *n, struct call *call);

/* Whether a result of that job is known here and not recorded yet. */
bool finish_has(const struct node *n, int64_t id);

/* The time of an attempt is over, and nobody recorded what came of it. */
void finish_overdue(struct node *n, const struct job *job);
void finish_flush(struct node *n);

/*
 * What a consumer that had answered 202 reports. @fn gets rows, none if the token is not that
 * of the attempt that is running.
 */
void finish_report(struct node *n, int64_t id, const char *token, bool done, const char *message,
		   db_fn *fn, void *arg);

/* ---------------------------------------------------- submit.c, api.c, metrics.c */

struct api;

void api_open(struct node *n);		/* ends the process if it cannot listen */
void api_serve(struct node *n);		/* begins with it */
int api_listens(const struct node *n);	/* where, or -1 */
void api_drain(struct node *n);		/* no new requests */
void api_leave(struct node *n);		/* no new connections, and an end to those that are there */
void api_flush(struct node *n);		/* sends answers; called before the loop waits */
bool api_is_idle(const struct node *n);	/* nobody waits for an answer */
bool api_is_up(const struct node *n);	/* there is a connection for it, if it is to be */
void api_reset(struct node *n);		/* that is made anew */
void api_close(struct node *n);
void submit_open(struct node *n);
void submit_close(struct node *n);
void submit_flush(struct node *n);
void submit_reset(struct node *n);
bool submit_is_open(const struct node *n);	/* its connections stand */
bool submit_is_idle(const struct node *n);	/* all is done, and told */

/* -------------------------------------------------------------------- handover.c */

/**
 * enum successor_phase - how far it is
 * @SUCC_NONE:   there is none
 * @SUCC_STARTS: it was started
 * @SUCC_RESTS:  it is ready, and this one comes to rest: no look begins
 * @SUCC_TAKES:  it was given all, and nothing begins here
 * @SUCC_STANDS: it has taken over, and this one is to end
 */
enum successor_phase { SUCC_NONE, SUCC_STARTS, SUCC_RESTS, SUCC_TAKES, SUCC_STANDS };

/**
 * struct successor - the process that is to take the place of this one
 * @phase:         how far it is
 * @pid:           it
 * @fd:            to it
 * @timer:         of the phase
 * @rest_until_ns: SUCC_RESTS ends by then
 * @is_behind:     in SUCC_TAKES something became known here
 * @has_all:       in SUCC_STANDS: it is the same node
 */
struct successor {
	enum successor_phase phase;
	pid_t pid;
	struct loop_fd fd;
	struct twheel_timer timer;
	uint64_t rest_until_ns;
	bool is_behind, has_all;
};

/**
 * struct predecessor - the process whose place this one takes
 * @fd:        to it
 * @node:      its uuid
 * @listen_fd: where it listens; -1 if nowhere, or if the API has it
 * @waits:     nothing was handed over yet
 * @told:      that this one is ready
 * @stands:    it has forgotten all that was handed over, or has ended
 * @is_behind: something was heard meanwhile
 * @ends_ns:   by then it has ended, if it handed over
 */
struct predecessor {
	struct loop_fd fd;
	uint8_t node[16];
	int listen_fd;
	bool waits, told, stands, is_behind;
	uint64_t ends_ns;
};

void successor_start(struct node *n);	/* or another one, if it is not ready yet */
void successor_end(struct node *n);	/* it is not to take over */
void successor_look(struct node *n);	/* has it look for what this one has done */
void successor_flush(struct node *n);

/* Whether there is one is in the environment. 0, or -1 after it was told what is wrong. */
int predecessor_open(struct node *n);
void predecessor_close(struct node *n);
void predecessor_flush(struct node *n);

/* Whether it is there still, or one before it, as calls are under way there. */
bool predecessor_goes_on(const struct node *n);

/** struct metrics - counters since the start; lateness by powers of two of us */
struct metrics {
	uint64_t fired, handed, called, done, again, failed, accepted, overdue;
	uint64_t submitted, repeated, cancelled, moved;
	uint64_t amqp_connects, amqp_confirmed, amqp_refused, amqp_unroutable;
	uint64_t looks, looked, batches, lost_shards, taken_shards, joins;
	uint64_t planned, misfired, skipped, wrong_schedules;
	uint64_t late_us[40];
	uint64_t late_sum_us, late_max_us;
};

/**
 * struct node - all of it
 * @config:   outlives it
 * @program:  of this process, for another one
 * @argv:     its arguments
 * @loop:     which all of it runs in
 * @lease:    lease.c's
 * @services: service.c's
 * @horizon:  horizon.c's
 * @plan:     plan.c's
 * @fire:     fire.c's
 * @calls:    call.c's
 * @amqp:     amqp.c's
 * @finish:   finish.c's
 * @submit:   submit.c's
 * @api:      api.c's; NULL if there is no HTTP
 * @metrics:  counted by all
 * @successor: handover.c's
 * @predecessor: handover.c's
 * @drain_timer: looks whether all is done
 * @drain_until_ns: ends by then, done or not
 * @draining: it is about to end: nothing new is begun
 */
struct node {
	const struct config *config;
	const char *program;
	char **argv;
	struct loop loop;
	struct lease lease;
	struct services services;
	struct horizon horizon;
	struct plan plan;
	struct fire fire;
	struct calls calls;
	struct amqp *amqp;
	struct finish finish;
	struct submit *submit;
	struct api *api;
	struct metrics metrics;
	struct successor successor;
	struct predecessor predecessor;
	struct twheel_timer drain_timer;
	uint64_t drain_until_ns;
	bool draining;
};

/* Starts all of it in n->loop, which is open. 0, or -1 after it was told why. */
int node_start(struct node *n, const struct config *c);

/* Gives the shards away, lets calls end, records their results, and stops the loop. */
void node_drain(struct node *n);

/* The same for shards that are another process's already. */
void node_leave(struct node *n);
void node_stop(struct node *n);

/* Comes to rest, to hand over what is in memory: nothing is looked for. */
static inline bool node_rests(const struct node *n)
{
	return n->successor.phase == SUCC_RESTS || n->successor.phase == SUCC_TAKES;
}

static inline struct node *node_of_lease(struct lease *l)
{
	return TWHEEL_CONTAINER(l, struct node, lease);
}

#endif
