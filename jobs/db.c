// SPDX-License-Identifier: GPL-2.0
/*
 * What ends a connection, db_end(), only closes it and marks what was asked of it. Answers, down()
 * and the next attempt come from the loop, in turn(): so nobody is called from within what they
 * call, and an answer is given in one place.
 *
 * A statement is done when the server is ready for the next one, not when its result is there: it
 * commits in between, which may fail, or break off.
 *
 * Names of hosts are looked up by libpq, which blocks the loop for as long as that takes: the
 * configuration should name addresses, or have a resolver near.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "db.h"
#include "log.h"

#define CONNECT_NS	(5 * TWHEEL_SEC)	/* to each address */
#define ANSWER_NS	(15 * TWHEEL_SEC)	/* more than statement_timeout below */
#define BACKOFF_MIN_NS	(100 * TWHEEL_MSEC)
#define BACKOFF_MAX_NS	(3 * TWHEEL_SEC)
#define MAX_TRIES	5	/* it waits no longer after more */
#define MAX_NAME	63			/* of application_name, NAMEDATALEN - 1 */

/*
 * What every connection sets; numbers without a unit are milliseconds. How long TCP waits for this
 * node is for the server to set: until then it holds what a statement has locked whose answer is
 * not taken.
 */
#define OPTIONS "-c synchronous_commit=on -c jit=off -c statement_timeout=10000 " \
	"-c idle_in_transaction_session_timeout=3000 -c tcp_user_timeout=3000 " \
	"-c tcp_keepalives_idle=3s -c tcp_keepalives_interval=1s -c tcp_keepalives_count=3 " \
	"-c TimeZone=UTC " \
	"-c standard_conforming_strings=on -c default_transaction_isolation=read\\ committed"

struct db_req {
	struct db_req *next;
	const struct db_stmt *stmt;
	struct db_params params;
	db_fn *fn;
	void *arg;
	uint64_t sent_ns;
	bool sent;
};

static void turn(struct twheel *w, struct twheel_timer *t, uint64_t missed);
static void connected(struct loop_fd *fd, uint32_t events);
static void readable(struct loop_fd *fd, uint32_t events);
static void flush(struct db *db);

/* Parameters */

static struct buf *add_param(struct db_params *p)
{
	assert(p->nr < DB_MAX_PARAMS);
	p->v[p->nr].null = false;
	return &p->v[p->nr++].buf;
}

void db_add_bool(struct db_params *p, bool value)
{
	char byte = (char)value;

	buf_add(add_param(p), &byte, sizeof(byte));
}

void db_add_int2(struct db_params *p, int16_t value)
{
	uint16_t be = htobe16((uint16_t)value);

	buf_add(add_param(p), &be, sizeof(be));
}

void db_add_int4(struct db_params *p, int32_t value)
{
	uint32_t be = htobe32((uint32_t)value);

	buf_add(add_param(p), &be, sizeof(be));
}

void db_add_int8(struct db_params *p, int64_t value)
{
	uint64_t be = htobe64((uint64_t)value);

	buf_add(add_param(p), &be, sizeof(be));
}

void db_add_float8(struct db_params *p, double value)
{
	uint64_t be;

	memcpy(&be, &value, sizeof(be));
	be = htobe64(be);
	buf_add(add_param(p), &be, sizeof(be));
}

void db_add_bytes(struct db_params *p, const void *data, size_t len)
{
	buf_add(add_param(p), data, len);
}

void db_add_null(struct db_params *p)
{
	add_param(p);
	p->v[p->nr - 1].null = true;
}

void db_add_array(struct db_params *p, struct pg_array *a, uint32_t element)
{
	pg_array_finish(a, element);
	*add_param(p) = a->buf;
	memset(a, 0, sizeof(*a));
}

void db_params_free(struct db_params *p)
{
	uint32_t i;

	for (i = 0; i < p->nr; i++)
		buf_free(&p->v[i].buf);
	p->nr = 0;
}

/* Results */

bool db_is_null(const PGresult *r, int row, int column)
{
	return PQgetisnull(r, row, column);
}

/* Of another length it is another type: the statement and who reads it do not fit. */
static const char *field(const PGresult *r, int row, int column, int len)
{
	if (PQgetisnull(r, row, column))
		return NULL;
	assert(PQfformat(r, column) == 1 && PQgetlength(r, row, column) == len);
	return PQgetvalue(r, row, column);
}

bool db_bool(const PGresult *r, int row, int column)
{
	const char *v = field(r, row, column, 1);

	return v && *v;
}

int32_t db_int(const PGresult *r, int row, int column)
{
	int len = PQgetlength(r, row, column) == 2 ? 2 : 4;
	const char *v = field(r, row, column, len);
	uint16_t two;
	uint32_t four;

	if (!v)
		return 0;
	if (len == 2) {
		memcpy(&two, v, sizeof(two));
		return (int16_t)be16toh(two);
	}
	memcpy(&four, v, sizeof(four));
	return (int32_t)be32toh(four);
}

int64_t db_int8(const PGresult *r, int row, int column)
{
	const char *v = field(r, row, column, 8);
	uint64_t be;

	if (!v)
		return 0;
	memcpy(&be, v, sizeof(be));
	return (int64_t)be64toh(be);
}

double db_float8(const PGresult *r, int row, int column)
{
	uint64_t bits = (uint64_t)db_int8(r, row, column);
	double d;

	memcpy(&d, &bits, sizeof(d));
	return d;
}

const char *db_text(const PGresult *r, int row, int column)
{
	return PQgetvalue(r, row, column);
}

size_t db_len(const PGresult *r, int row, int column)
{
	return (size_t)PQgetlength(r, row, column);
}

/* uuid */

void uuid_to_text(const void *uuid, char *text)
{
	const unsigned char *u = uuid;
	int i;

	for (i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*text++ = '-';
		text += sprintf(text, "%02x", u[i]);
	}
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

bool uuid_from_text(const char *text, void *uuid)
{
	unsigned char u[16];
	int i, high, low;

	for (i = 0; i < 16; i++) {
		if ((i == 4 || i == 6 || i == 8 || i == 10) && *text++ != '-')
			return false;
		high = hex_digit(*text);
		if (high < 0)
			return false;
		low = hex_digit(text[1]);
		if (low < 0)
			return false;
		u[i] = (unsigned char)(high << 4 | low);
		text += 2;
	}
	if (*text)
		return false;
	memcpy(uuid, u, sizeof(u));
	return true;
}

/* Answers */

static struct db_req *pop(struct db_req **first, struct db_req **last)
{
	struct db_req *req = *first;

	*first = req->next;
	if (last && !*first)
		*last = NULL;
	return req;
}

/* Takes @req, which is in no list any more. */
static void answer(struct db *db, struct db_req *req, const struct db_answer *a)
{
	db->nr_queued--;
	if (req->fn)
		req->fn(req->arg, a);
	db_params_free(&req->params);
	free(req);
}

static void answer_lost(struct db *db)
{
	struct db_answer a = { .status = DB_LOST };
	struct db_req *req;

	while (db->lost) {
		req = pop(&db->lost, NULL);
		a.sent = req->sent;
		a.sent_ns = req->sent_ns;
		answer(db, req, &a);
	}
}

/* What is asked from here on waits for the turn after. */
static void move_to_lost(struct db *db)
{
	struct db_req **end = &db->lost;

	while (*end)
		end = &(*end)->next;
	*end = db->first;
	db->first = NULL;
	db->last = NULL;
}

static void soon(struct db *db)
{
	if (!twheel_is_armed(&db->turn))
		loop_arm(db->loop, &db->turn, 0, turn);
}

/*
 * libpq closes the socket itself when it finds the connection broken. From then on another may
 * have the number: nobody may be called in between.
 */
static void look_at_socket(struct db *db)
{
	if (db->fd.events && PQsocket(db->conn) != db->fd.fd)
		loop_closed(db->loop, &db->fd);
}

static void close_connection(struct db *db)
{
	look_at_socket(db);
	if (db->fd.events)
		loop_set(db->loop, &db->fd, 0);
	twheel_cancel(db->loop->wheel, &db->timer);
	PQfinish(db->conn);
	db->conn = NULL;
	PQclear(db->result);
	db->result = NULL;
	free(db->prepared);
	db->prepared = NULL;
	db->nr_prepared = 0;
	db->phase = DB_IDLE;
	db->state = DB_DOWN;
}

static void db_end(struct db *db)
{
	if (db->closing || db->ended)
		return;
	db->was_up = db->state == DB_UP;
	db->ended = true;
	close_connection(db);
	move_to_lost(db);
	soon(db);
}

/* Connecting */

static void tell(const struct db *db, const char *event)
{
	char *end, message[256];

	snprintf(message, sizeof(message), "%s", db->conn ? PQerrorMessage(db->conn) : "");
	end = strchr(message, '\n');
	if (end)
		*end = '\0';
	log_warn("%s connection=%s message=%s", event, db->what, quoted(message));
}

static void notice(void *arg, const char *message)
{
	const struct db *db = arg;

	log_debug("database-notice connection=%s message=%s", db->what, quoted(message));
}

static void connect_timeout(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct db *db = TWHEEL_CONTAINER(t, struct db, timer);

	(void)w;
	(void)missed;
	log_warn("database-connect-timeout connection=%s", db->what);
	db_end(db);
}

static void unanswered(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct db *db = TWHEEL_CONTAINER(t, struct db, timer);
	uint64_t now = boottime_ns();

	(void)w;
	(void)missed;
	if (db->phase == DB_IDLE)
		return;
	if (now < db->sent_ns + ANSWER_NS) {
		loop_arm(db->loop, &db->timer, db->sent_ns + ANSWER_NS - now, unanswered);
		return;
	}
	log_warn("database-no-answer connection=%s statement=%s", db->what, db->first->stmt->name);
	db_end(db);
}

static void is_up(struct db *db)
{
	twheel_cancel(db->loop->wheel, &db->timer);
	PQsetnonblocking(db->conn, 1);
	db->fd.fn = readable;
	db->fd.fd = PQsocket(db->conn);
	loop_set(db->loop, &db->fd, EPOLLIN);
	db->state = DB_UP;
	log_info("database-connected connection=%s backend=%d", db->what, PQbackendPID(db->conn));
	/* What was asked before is lost, though its turn, which is near, has not come yet. */
	move_to_lost(db);
	if (db->up)
		db->up(db->arg);
}

static bool is_expected(const struct db *db)
{
	const PGresult *r = db->result;

	return PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1 &&
	       !PQgetisnull(r, 0, 0) && !strcmp(PQgetvalue(r, 0, 0), db->identity->is);
}

static void identified(struct db *db)
{
	if (PQresultStatus(db->result) != PGRES_TUPLES_OK) {
		tell(db, "database-not-identified");
		db_end(db);
	} else if (!is_expected(db)) {
		log_warn("database-is-another connection=%s identity=%s expected=%s", db->what,
			 quoted(PQntuples(db->result) ? PQgetvalue(db->result, 0, 0) : ""),
			 quoted(db->identity->is));
		db_end(db);
	} else {
		PQclear(db->result);
		db->result = NULL;
		is_up(db);
	}
}

static void identifying(struct loop_fd *fd, uint32_t events)
{
	struct db *db = TWHEEL_CONTAINER(fd, struct db, fd);
	PGresult *r;
	bool busy;

	(void)events;
	PQconsumeInput(db->conn);
	for (;;) {
		busy = PQisBusy(db->conn);
		look_at_socket(db);
		if (busy) {
			flush(db);
			return;
		}
		r = PQgetResult(db->conn);
		look_at_socket(db);
		if (!r)
			break;
		PQclear(db->result);
		db->result = r;
	}
	identified(db);
}

/* Still under the timeout of the connection. */
static void identify(struct db *db)
{
	int sent;

	PQsetnonblocking(db->conn, 1);
	db->fd.fn = identifying;
	db->fd.fd = PQsocket(db->conn);
	loop_set(db->loop, &db->fd, EPOLLIN);
	sent = PQsendQuery(db->conn, db->identity->stmt->sql);
	look_at_socket(db);
	if (!sent) {
		tell(db, "database-lost");
		db_end(db);
		return;
	}
	flush(db);
}

/* The socket may be another one after each step, with the same number too. */
static void poll_connection(struct db *db)
{
	int before = PQsocket(db->conn);
	PostgresPollingStatusType status;

	if (db->fd.events)
		loop_set(db->loop, &db->fd, 0);
	status = PQconnectPoll(db->conn);
	if (status == PGRES_POLLING_OK) {
		if (db->identity)
			identify(db);
		else
			is_up(db);
		return;
	}
	if (status == PGRES_POLLING_FAILED || PQsocket(db->conn) < 0) {
		tell(db, "database-connect-failed");
		db_end(db);
		return;
	}
	if (PQsocket(db->conn) != before)	/* the next address of several */
		loop_arm(db->loop, &db->timer, CONNECT_NS, connect_timeout);
	db->fd.fn = connected;
	db->fd.fd = PQsocket(db->conn);
	loop_set(db->loop, &db->fd, status == PGRES_POLLING_READING ? EPOLLIN : EPOLLOUT);
}

static void connected(struct loop_fd *fd, uint32_t events)
{
	(void)events;
	poll_connection(TWHEEL_CONTAINER(fd, struct db, fd));
}

/* Options of @conninfo stay, behind ours but before those of who uses the connection. */
static void add_options(const struct db *db, struct buf *b)
{
	PQconninfoOption *all = PQconninfoParse(db->conninfo, NULL), *o;

	buf_puts(b, OPTIONS);
	for (o = all; o && o->keyword; o++)
		if (!strcmp(o->keyword, "options") && o->val)
			buf_printf(b, " %s", o->val);
	PQconninfoFree(all);
	if (db->options)
		buf_printf(b, " %s", db->options);
}

static PGconn *start_connection(const struct db *db)
{
	static const char *const keywords[] = {
		"dbname", "application_name", "options", "client_encoding", "keepalives",
		"keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout",
		NULL
	};
	char name[MAX_NAME + 1];
	struct buf options = { 0 };
	PGconn *conn;

	snprintf(name, sizeof(name), "twheeld %s%s%s", db->node, *db->node ? " " : "", db->what);
	add_options(db, &options);
	conn = PQconnectStartParams(keywords, (const char *const []){
		db->conninfo, name, options.data, "UTF8", "1", "3", "1", "3", "3000", NULL }, 1);
	buf_free(&options);
	return conn;
}

static void begin_connection(struct db *db)
{
	if (db->identity && !*db->identity->is)
		return;
	db->state = DB_CONNECTING;
	db->conn = start_connection(db);
	if (!db->conn || PQstatus(db->conn) == CONNECTION_BAD || PQsocket(db->conn) < 0) {
		tell(db, "database-connect-failed");
		db_end(db);
		return;
	}
	PQsetNoticeProcessor(db->conn, notice, db);
	loop_arm(db->loop, &db->timer, CONNECT_NS, connect_timeout);
	/* The first step is as if PQconnectPoll() had asked to write. */
	db->fd.fn = connected;
	db->fd.fd = PQsocket(db->conn);
	loop_set(db->loop, &db->fd, EPOLLOUT);
}

static void try_again(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)w;
	(void)missed;
	begin_connection(TWHEEL_CONTAINER(t, struct db, timer));
}

/* Between half of it and all of it, so that nodes do not come all at once. */
static uint64_t backoff(struct db *db)
{
	uint64_t delay = BACKOFF_MIN_NS << (db->tries < MAX_TRIES ? db->tries : MAX_TRIES);

	db->tries++;
	if (delay > BACKOFF_MAX_NS)
		delay = BACKOFF_MAX_NS;
	return delay / 2 + arc4random_uniform((uint32_t)(delay / 2 / TWHEEL_USEC)) * TWHEEL_USEC;
}

static void turn(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct db *db = TWHEEL_CONTAINER(t, struct db, turn);
	bool ended = db->ended, was_up = db->was_up;

	(void)w;
	(void)missed;
	if (db->state != DB_UP)
		move_to_lost(db);
	answer_lost(db);
	if (db->closing || !ended)
		return;
	db->was_up = false;
	if (was_up && db->down)
		db->down(db->arg);
	if (db->closing)
		return;
	db->ended = false;
	loop_arm(db->loop, &db->timer, backoff(db), try_again);
}

/* Statements */

static bool is_prepared(const struct db *db, const struct db_stmt *stmt)
{
	uint32_t i;

	for (i = 0; i < db->nr_prepared; i++)
		if (db->prepared[i] == stmt)
			return true;
	return false;
}

static void prepared(struct db *db)
{
	db->phase = DB_IDLE;
	db->prepared = xrealloc(db->prepared, (db->nr_prepared + 1) * sizeof(*db->prepared));
	db->prepared[db->nr_prepared++] = db->first->stmt;
}

static void flush(struct db *db)
{
	int more = PQflush(db->conn);

	look_at_socket(db);
	if (more < 0 || !db->fd.events) {
		tell(db, "database-lost");
		db_end(db);
		return;
	}
	loop_set(db->loop, &db->fd, more ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

static int send_prepare(struct db *db, const struct db_stmt *stmt)
{
	int nr = 0;

	while (nr < DB_MAX_PARAMS && stmt->types[nr])
		nr++;
	return PQsendPrepare(db->conn, stmt->name, stmt->sql, nr, stmt->types);
}

static int send_execute(struct db *db, struct db_req *req)
{
	const char *values[DB_MAX_PARAMS];
	int lengths[DB_MAX_PARAMS], formats[DB_MAX_PARAMS], sent;
	struct db_params *p = &req->params;
	uint32_t i;

	for (i = 0; i < p->nr; i++) {
		assert(p->v[i].buf.len <= INT32_MAX);
		values[i] = p->v[i].null ? NULL : p->v[i].buf.data;
		lengths[i] = (int)p->v[i].buf.len;
		formats[i] = 1;
	}
	req->sent = true;
	req->sent_ns = db->sent_ns;
	sent = PQsendQueryPrepared(db->conn, req->stmt->name, (int)p->nr, values, lengths, formats,
				   1);
	db_params_free(p);
	return sent;
}

static void send_next(struct db *db)
{
	struct db_req *req = db->first;
	int sent;

	if (db->state != DB_UP || db->phase != DB_IDLE || !req)
		return;
	if (PQstatus(db->conn) == CONNECTION_BAD) {
		tell(db, "database-lost");
		db_end(db);
		return;
	}
	db->sent_ns = boottime_ns();
	if (is_prepared(db, req->stmt)) {
		db->phase = DB_EXECUTING;
		sent = send_execute(db, req);
	} else {
		db->phase = DB_PREPARING;
		sent = send_prepare(db, req->stmt);
	}
	look_at_socket(db);
	if (!sent) {
		tell(db, "database-lost");
		db_end(db);
		return;
	}
	if (!twheel_is_armed(&db->timer))
		loop_arm(db->loop, &db->timer, ANSWER_NS, unanswered);
	flush(db);
}

/* The server ends the connection with this: whether it did what was asked is not known. */
static bool ends_connection(const PGresult *r)
{
	const char *severity = PQresultErrorField(r, PG_DIAG_SEVERITY_NONLOCALIZED);

	return !severity || !strcmp(severity, "FATAL") || !strcmp(severity, "PANIC");
}

/*
 * What was prepared cannot be used any more, as a table is another one now (0A000) or the
 * statement is gone (26000): only a new connection has it prepared again.
 */
static bool is_stale(const char *sqlstate)
{
	return !strcmp(sqlstate, "0A000") || !strcmp(sqlstate, "26000");
}

static void answer_failed(struct db *db, const PGresult *r)
{
	struct db_answer a = { .status = DB_FAILED, .sent = true, .sent_ns = db->sent_ns };
	bool stale = db->phase == DB_EXECUTING;

	a.sqlstate = PQresultErrorField(r, PG_DIAG_SQLSTATE);
	a.message = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
	a.column = PQresultErrorField(r, PG_DIAG_COLUMN_NAME);
	if (!a.sqlstate)
		a.sqlstate = "XX000";
	if (!a.message)
		a.message = "";
	stale = stale && is_stale(a.sqlstate);
	db->phase = DB_IDLE;
	log_debug("statement-failed connection=%s statement=%s sqlstate=%s message=%s", db->what,
		  db->first->stmt->name, a.sqlstate, quoted(a.message));
	answer(db, pop(&db->first, &db->last), &a);
	if (stale && db->state == DB_UP)
		db_end(db);
}

static void answer_done(struct db *db, const PGresult *r)
{
	struct db_answer a = { .status = DB_DONE, .sent = true, .sent_ns = db->sent_ns };

	db->phase = DB_IDLE;
	db->tries = 0;
	a.result = r;
	answer(db, pop(&db->first, &db->last), &a);
}

/* The server is ready for the next one. */
static void finished(struct db *db)
{
	PGresult *r = db->result;
	ExecStatusType status = PQresultStatus(r);

	db->result = NULL;
	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		answer_failed(db, r);
	else if (db->phase == DB_EXECUTING)
		answer_done(db, r);
	else
		prepared(db);
	PQclear(r);
	send_next(db);
}

/* An error after a result is of the commit, and counts. True if there is no more of it now. */
static bool take_result(struct db *db)
{
	PGresult *r;
	bool busy;

	if (db->state != DB_UP || db->phase == DB_IDLE)
		return true;
	busy = PQisBusy(db->conn);
	look_at_socket(db);
	if (busy)
		return true;
	r = PQgetResult(db->conn);
	look_at_socket(db);
	if (!r && db->result) {
		finished(db);
		return false;
	}
	if (!r || (PQresultStatus(r) == PGRES_FATAL_ERROR && ends_connection(r))) {
		tell(db, "database-lost");
		PQclear(r);
		db_end(db);
		return true;
	}
	PQclear(db->result);
	db->result = r;
	return false;
}

static void take_notifications(struct db *db)
{
	PGnotify *n;

	while (db->state == DB_UP) {
		n = PQnotifies(db->conn);
		look_at_socket(db);
		if (!n)
			return;
		if (db->notify)
			db->notify(db->arg, n->relname, n->extra);
		PQfreemem(n);
	}
}

static void readable(struct loop_fd *fd, uint32_t events)
{
	struct db *db = TWHEEL_CONTAINER(fd, struct db, fd);

	(void)events;
	/* What came before the end is taken yet: it may have been done. */
	PQconsumeInput(db->conn);
	look_at_socket(db);
	while (!take_result(db))
		;
	take_notifications(db);
	if (db->state != DB_UP)
		return;
	if (PQstatus(db->conn) == CONNECTION_BAD) {
		tell(db, "database-lost");
		db_end(db);
		return;
	}
	flush(db);
}

void db_open(struct db *db)
{
	db->closing = false;
	db->ended = false;
	begin_connection(db);
}

void db_close(struct db *db)
{
	if (db->closing || !db->loop)	/* it may never have been opened */
		return;
	db->closing = true;
	close_connection(db);
	twheel_cancel(db->loop->wheel, &db->turn);
	move_to_lost(db);
	answer_lost(db);
}

void db_reset(struct db *db)
{
	if (db->state != DB_DOWN)
		db_end(db);
	else if (!db->ended && !db->closing)
		loop_arm(db->loop, &db->timer, 0, try_again);
}

/* Statements that were answered would have it begin with the shortest pause each time. */
void db_refuse(struct db *db, uint32_t times)
{
	db->tries = times;
	db_reset(db);
}

void db_query(struct db *db, const struct db_stmt *stmt, struct db_params *params, db_fn *fn,
	      void *arg)
{
	struct db_req *req = xcalloc(1, sizeof(*req));

	req->stmt = stmt;
	req->fn = fn;
	req->arg = arg;
	if (params) {
		req->params = *params;
		memset(params, 0, sizeof(*params));
	}
	db->nr_queued++;
	if (db->closing) {
		answer(db, req, &(struct db_answer){ .status = DB_LOST });
		return;
	}
	if (db->last)
		db->last->next = req;
	else
		db->first = req;
	db->last = req;
	if (db->state == DB_UP)
		send_next(db);
	else
		soon(db);
}
