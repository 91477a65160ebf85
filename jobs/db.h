/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Connections to PostgreSQL: a queue of statements each, of which one is under way. What comes
 * up meanwhile is sent together by those who make batches, when their last one is answered.
 */
#ifndef TWHEELD_DB_H
#define TWHEELD_DB_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "loop.h"

/* Types, by their numbers in pg_type. */
enum {
	PG_BOOL = 16, PG_BYTEA = 17, PG_INT8 = 20, PG_INT2 = 21, PG_INT4 = 23, PG_TEXT = 25,
	PG_FLOAT8 = 701, PG_TIMESTAMPTZ = 1184, PG_UUID = 2950, PG_JSONB = 3802,
	PG_BYTEA_A = 1001, PG_INT2_A = 1005, PG_INT4_A = 1007, PG_TEXT_A = 1009,
	PG_INT8_A = 1016, PG_FLOAT8_A = 1022, PG_TIMESTAMPTZ_A = 1185, PG_UUID_A = 2951,
};

#define DB_MAX_PARAMS	16

/* For db.options: tables that were empty a moment ago have no statistics to go by. */
#define DB_BY_INDEX	"-c enable_seqscan=off -c enable_hashjoin=off -c enable_mergejoin=off"

/*
 * How to join by an index, for each row of what is joined with. With "=" the planner may have it
 * the other way round, all of the index with all rows, if it takes a table for empty where all
 * that it had is dead and not removed yet.
 */
#define DB_IS(column, value)	column " = any(array[" value "]) "

/**
 * struct db_stmt - a statement, static; prepared on a connection when it is first used there
 * @name:  of at most 60 characters
 * @sql:   one statement, with $1 and so on
 * @types: of those, up to the first 0
 */
struct db_stmt {
	const char *name;
	const char *sql;
	uint32_t types[DB_MAX_PARAMS + 1];
};

enum db_status {
	DB_DONE,	/* there is a result */
	DB_FAILED,	/* it was not done; @sqlstate says why */
	DB_LOST,	/* the connection ended: it may have been done, if it was sent at all */
};

/**
 * struct db_answer - of a statement
 * @status:   as above
 * @sent:     with DB_LOST: it was sent
 * @sqlstate: with DB_FAILED: five characters. What is passing (40001, 40P01, 57014 and so on)
 *            is up to the caller to repeat
 * @message:  with DB_FAILED: the first line of what PostgreSQL says
 * @column:   with DB_FAILED: which one is wrong, or NULL if that is not said
 * @result:   with DB_DONE: rows, all columns in binary
 * @sent_ns:  when it was sent, CLOCK_BOOTTIME
 */
struct db_answer {
	enum db_status status;
	bool sent;
	const char *sqlstate;
	const char *message;
	const char *column;
	const PGresult *result;
	uint64_t sent_ns;
};

/* May send other statements, on this connection too. */
typedef void db_fn(void *arg, const struct db_answer *answer);

struct db_req;

/**
 * struct db_params - what a statement gets; begins zeroed
 * @nr: how many
 * @v:  each; one that is null has no bytes
 */
struct db_params {
	uint32_t nr;
	struct {
		struct buf buf;
		bool null;
	} v[DB_MAX_PARAMS];
};

/* For parameters that were not asked with. */
void db_params_free(struct db_params *p);

/* Each adds a parameter; of an array it takes what it has, which is left empty. */
void db_add_bool(struct db_params *p, bool value);
void db_add_int2(struct db_params *p, int16_t value);
void db_add_int4(struct db_params *p, int32_t value);
void db_add_int8(struct db_params *p, int64_t value);	/* timestamptz as well */
void db_add_float8(struct db_params *p, double value);
/* text, bytea, uuid; jsonb begins with a byte that is 1 */
void db_add_bytes(struct db_params *p, const void *data, size_t len);
void db_add_null(struct db_params *p);
void db_add_array(struct db_params *p, struct pg_array *a, uint32_t element);	/* PG_INT8 ... */

enum db_state {
	DB_DOWN,	/* waits before it connects again */
	DB_CONNECTING,
	DB_UP,
};

/* Of the first statement. */
enum db_phase {
	DB_IDLE,	/* it is not sent yet */
	DB_PREPARING,
	DB_EXECUTING,
};

/**
 * struct db_identity - which server connections are to have, if there are several to be found
 * @stmt: asks for it, without parameters; the first column of its row is text, null if the server
 *        is not to be used
 * @is:   what that has to be; empty while it is not known
 *
 * Who changes it resets the connections.
 */
struct db_identity {
	const struct db_stmt *stmt;
	char is[128];
};

/**
 * struct db - a connection; is made anew for ever when it ends
 * @what:      its name in logs and in application_name
 * @loop:      the loop
 * @conninfo:  keywords and values of libpq
 * @node:      what application_name has besides; empty if none
 * @options:   settings besides those that all have, "-c lock_timeout=50 -c enable_seqscan=off",
 *             or NULL
 * @identity:  of the server, without which it is not up: another one is taken for a server that
 *             cannot be reached. NULL if any will do
 * @up:        called each time it is connected, before anything is sent; may queue statements
 * @down:      called when a connection that was up has ended, after all its statements were
 *             answered with DB_LOST
 * @notify:    called for each notification
 * @arg:       for these three
 * @state:     others may look at it
 *
 * All else is db.c's.
 */
struct db {
	const char *what;
	struct loop *loop;
	const char *conninfo;
	const char *node;
	const char *options;
	const struct db_identity *identity;
	void (*up)(void *arg);
	void (*down)(void *arg);
	void (*notify)(void *arg, const char *channel, const char *payload);
	void *arg;

	enum db_state state;
	/* private: */
	PGconn *conn;
	struct loop_fd fd;
	struct twheel_timer timer;	/* of the state, or of the statement that is under way */
	struct twheel_timer turn;	/* for answers that come from the loop */
	struct db_req *first, *last;
	struct db_req *lost;		/* is answered DB_LOST in the next turn */
	uint32_t nr_queued;
	uint64_t sent_ns;
	const struct db_stmt **prepared;
	uint32_t nr_prepared;
	uint32_t tries;
	enum db_phase phase;
	PGresult *result;
	bool was_up;
	bool ended;
	bool closing;
};

/*
 * Begins to connect, or waits for a reset if the identity is not known. What is set in @db before
 * is all that is above "All else".
 */
void db_open(struct db *db);

/*
 * Ends it: what it was asked is answered DB_LOST from within, then nothing is called any more.
 * Functions of @db itself may do this, but the memory has to stay for this turn of the loop.
 */
void db_close(struct db *db);

/*
 * Ends the connection at once and connects anew: what it was asked is answered DB_LOST, in the
 * next turn of the loop. One that waits before it connects waits no longer.
 */
void db_reset(struct db *db);

/*
 * The same for what an answer says of the server, so many @times before: the pause is as if it had
 * not been reached.
 */
void db_refuse(struct db *db, uint32_t times);

/*
 * Queues a statement and takes what is in @params, which may be NULL, as @fn may if nobody is to
 * be told. Is answered exactly once,
 * and never from within this call, but for a connection that is closed: DB_LOST at once. Without
 * a connection the answer is DB_LOST, not sent, in the next turn of the loop.
 */
void db_query(struct db *db, const struct db_stmt *stmt, struct db_params *params, db_fn *fn,
	      void *arg);

/* Whether it is connected and nothing is queued: a batch can go now. */
static inline bool db_is_idle(const struct db *db)
{
	return db->state == DB_UP && !db->first;
}

/* Fields of a result, which is in binary. Of a null: 0, or an empty text. */
bool db_is_null(const PGresult *r, int row, int column);
bool db_bool(const PGresult *r, int row, int column);
int32_t db_int(const PGresult *r, int row, int column);		/* int2 and int4 */
int64_t db_int8(const PGresult *r, int row, int column);	/* timestamptz as well */
double db_float8(const PGresult *r, int row, int column);
const char *db_text(const PGresult *r, int row, int column);	/* text, bytea: NUL behind it */
size_t db_len(const PGresult *r, int row, int column);

/* uuid to and from text: 16 bytes, 37 characters. */
void uuid_to_text(const void *uuid, char *text);
bool uuid_from_text(const char *text, void *uuid);

/* Times of PostgreSQL are in us since 2000; infinities are the ends of int64_t. */
#define PG_EPOCH_US	INT64_C(946684800000000)
#define PG_INFINITY	INT64_MAX
#define PG_MINUS_INF	INT64_MIN

#endif
