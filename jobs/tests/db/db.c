// SPDX-License-Identifier: GPL-2.0
/*
 * Connections against a PostgreSQL that is killed, stopped and told to end them. In all of that
 * each statement is answered exactly once. with-postgres runs it.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../tap.h"
#include "db.h"
#include "log.h"

#define NR	100

/* What came of a statement. */
struct asked {
	int answers;
	int order;
	enum db_status status;
	bool sent;
	char sqlstate[8];
	int64_t number;
	uint64_t turn;
};

static struct loop loop;
static struct db db;
static PGconn *other;
static struct asked asked[NR + 8];
static int nr_asked, nr_answered, nr_up, nr_down, answered_at_down;
static uint64_t turn;
static char channel[32], payload[32];
static int nr_notified;
static bool (*until)(void);

static const struct db_stmt one = { "one", "select 1::int8", { 0 } };
static const struct db_stmt plus = { "plus", "select $1 + 1", { PG_INT8 } };
static const struct db_stmt sleeping = { "sleeping", "select 1::int8 from pg_sleep(1000)", { 0 } };
static const struct db_stmt no_column = { "no_column", "select nothing", { 0 } };
static const struct db_stmt by_zero = { "by_zero", "select 1 / $1", { PG_INT8 } };
static const struct db_stmt deferred = {
	"deferred", "insert into deferred values (1) returning 1::int8", { 0 }
};

static const struct db_stmt all_of_changing = { "changing", "select * from changing", { 0 } };
static const struct db_stmt settings = {
	"settings",
	"select (current_setting('synchronous_commit') = 'on' and "
	"current_setting('statement_timeout') = '10s' and "
	"current_setting('idle_in_transaction_session_timeout') = '3s' and "
	"current_setting('lock_timeout') = '50ms' and current_setting('TimeZone') = 'UTC' and "
	"current_setting('client_encoding') = 'UTF8' and current_setting('work_mem') = '1MB' and "
	"current_setting('application_name') = 'twheeld 00000000-0000-0000-0000-000000000000 test')"
	"::int::int8",
	{ 0 }
};

static const struct db_stmt listen_stmt = { "listen", "listen told", { 0 } };
static const struct db_stmt end_me = {
	"end_me", "select 1::int8 from pg_terminate_backend(pg_backend_pid())", { 0 }
};

static const struct db_stmt pid = { "pid", "select pg_backend_pid()::int8", { 0 } };
static const struct db_stmt length = { "length", "select length($1)::int8", { PG_BYTEA } };
static const struct db_stmt long_row = { "long_row", "select $1::int8, repeat('x', 5000000)",
	{ PG_INT8 } };
static const struct db_stmt types = {
	"types",
	"select ($1 and $2 = -2 and $3 = -3 and $4 = -4 and $5 = 0.5 and $6 = 'text' and $7 is null "
	"and $8 = array[1, null, 3]::int8[] and $9 = '{}'::int4[] and $10 = array['a', ''] "
	"and $11 = '2000-01-01 00:00:01.5+00' and $12 = '00010203-0405-0607-0809-0a0b0c0d0e0f' "
	"and $13 = '{\"a\": 1}')::int::int8, true, (-5)::int2, (-6)::int4, null::int8, 0.25::float8, "
	"'abc'::text, '\\x00ff'::bytea, '2000-01-01 00:00:02+00'::timestamptz",
	{ PG_BOOL, PG_INT2, PG_INT4, PG_INT8, PG_FLOAT8, PG_TEXT, PG_TEXT, PG_INT8_A, PG_INT4_A,
	  PG_TEXT_A, PG_TIMESTAMPTZ, PG_UUID, PG_JSONB }
};

static void answered(void *arg, const struct db_answer *a)
{
	struct asked *q = arg;

	q->answers++;
	q->status = a->status;
	q->sent = a->sent;
	q->turn = turn;
	q->order = nr_answered++;
	if (a->status == DB_FAILED)
		snprintf(q->sqlstate, sizeof(q->sqlstate), "%s", a->sqlstate);
	if (a->status == DB_DONE && PQntuples(a->result) && PQgetlength(a->result, 0, 0) == 8)
		q->number = db_int8(a->result, 0, 0);
}

static struct asked *ask_with(const struct db_stmt *stmt, struct db_params *params)
{
	struct asked *q = &asked[nr_asked++];

	q->turn = UINT64_MAX;
	db_query(&db, stmt, params, answered, q);
	return q;
}

static struct asked *ask(const struct db_stmt *stmt)
{
	return ask_with(stmt, NULL);
}

static struct asked *ask_number(const struct db_stmt *stmt, int64_t number)
{
	struct db_params params = { 0 };

	db_add_int8(&params, number);
	return ask_with(stmt, &params);
}

static void begin(void)
{
	memset(asked, 0, sizeof(asked));
	nr_asked = 0;
	nr_answered = 0;
}

static void came_up(void *arg)
{
	(void)arg;
	nr_up++;
}

static void went_down(void *arg)
{
	(void)arg;
	nr_down++;
	answered_at_down = nr_answered;
}

static void notified(void *arg, const char *from, const char *text)
{
	(void)arg;
	snprintf(channel, sizeof(channel), "%s", from);
	snprintf(payload, sizeof(payload), "%s", text);
	nr_notified++;
}

static void idle(void *arg)
{
	(void)arg;
	turn++;
	if (until())
		loop_stop(&loop);
}

/* There is no other bound of time than alarm(). */
static void run_until(bool (*condition)(void))
{
	until = condition;
	loop.stopped = 0;
	if (loop_run(&loop))
		exit(1);
}

static bool all_answered(void) { return nr_answered >= nr_asked; }
static bool is_up(void) { return db.state == DB_UP; }
static bool was_notified(void) { return nr_notified > 0; }

static bool was_down_and_up(void)
{
	return nr_down && db.state == DB_UP;
}

/* Connected for this test, with what it counts at zero. */
static void begin_connected(void)
{
	run_until(is_up);
	begin();
	nr_up = 0;
	nr_down = 0;
}

static bool each_once(void)
{
	int i;

	for (i = 0; i < nr_asked; i++)
		if (asked[i].answers != 1)
			return false;
	return nr_answered == nr_asked;
}

static void postgres(const char *command)
{
	char text[512];

	snprintf(text, sizeof(text), "'%s' %s '%s' >/dev/null", getenv("POSTGRES"), command,
		 getenv("POSTGRES_DIR"));
	if (system(text)) {
		puts("Bail out! PostgreSQL does not do that");
		exit(1);
	}
}

static void execute(const char *sql)
{
	PGresult *r;

	if (!other || PQstatus(other) != CONNECTION_OK) {
		PQfinish(other);
		other = PQconnectdb(getenv("CONNINFO"));
	}
	r = PQexec(other, sql);
	if (PQresultStatus(r) != PGRES_COMMAND_OK && PQresultStatus(r) != PGRES_TUPLES_OK) {
		printf("Bail out! %s", PQerrorMessage(other));
		exit(1);
	}
	PQclear(r);
}

static void not_connected(void)
{
	struct asked *q;

	begin();
	q = ask(&one);
	ask(&one);
	ok(!q->answers, "a statement is not answered from within the call");
	run_until(all_answered);
	ok(each_once() && q->status == DB_LOST && !q->sent,
	   "a statement without a connection is lost, and was not sent");
}

static void in_order(void)
{
	bool good = true;
	int i;

	begin_connected();
	for (i = 0; i < NR; i++)
		ask_number(&plus, i);
	run_until(all_answered);
	for (i = 0; i < NR; i++)
		good &= asked[i].status == DB_DONE && asked[i].number == i + 1 &&
			asked[i].order == i;
	ok(good && each_once(), "statements are answered once and in order");
	ok(db.nr_prepared == 1, "a statement is prepared once");
	ok(db_is_idle(&db) && !db.nr_queued, "a connection with nothing to do is idle");
}

static void session(void)
{
	struct asked *q;

	begin_connected();
	q = ask(&settings);
	run_until(all_answered);
	ok(q->number == 1, "a connection has its settings, and those of who uses it");
}

static bool fields_are_right;

static void look_at_fields(void *arg, const struct db_answer *a)
{
	const PGresult *r = a->result;

	answered(arg, a);
	if (a->status != DB_DONE) {
		printf("# %s\n", a->message ? a->message : "lost");
		return;
	}
	fields_are_right = db_int8(r, 0, 0) == 1 && db_bool(r, 0, 1) && db_int(r, 0, 2) == -5 &&
		db_int(r, 0, 3) == -6 && db_is_null(r, 0, 4) && !db_int8(r, 0, 4) &&
		db_float8(r, 0, 5) == 0.25 && !strcmp(db_text(r, 0, 6), "abc") &&
		db_len(r, 0, 7) == 2 && !memcmp(db_text(r, 0, 7), "\0\xff", 2) &&
		db_int8(r, 0, 8) == 2000000;
}

static void round_trip(void)
{
	struct db_params p = { 0 };
	struct pg_array a = { 0 };
	char uuid[16], text[37];

	begin_connected();
	db_add_bool(&p, true);
	db_add_int2(&p, -2);
	db_add_int4(&p, -3);
	db_add_int8(&p, -4);
	db_add_float8(&p, 0.5);
	db_add_bytes(&p, "text", 4);
	db_add_null(&p);
	pg_array_int8(&a, 1);
	pg_array_null(&a);
	pg_array_int8(&a, 3);
	db_add_array(&p, &a, PG_INT8);
	db_add_array(&p, &a, PG_INT4);
	pg_array_bytes(&a, "a", 1);
	pg_array_bytes(&a, "", 0);
	db_add_array(&p, &a, PG_TEXT);
	db_add_int8(&p, 1500000);
	ok(uuid_from_text("00010203-0405-0607-0809-0A0b0c0d0e0f", uuid), "a uuid can be read");
	db_add_bytes(&p, uuid, sizeof(uuid));
	db_add_bytes(&p, "\1{\"a\":1}", 8);
	nr_asked++;
	db_query(&db, &types, &p, look_at_fields, &asked[0]);
	ok(!p.nr && !a.nr, "a statement takes what is in its parameters");
	run_until(all_answered);
	ok(fields_are_right, "parameters and fields keep their values");
	uuid_to_text(uuid, text);
	ok(!strcmp(text, "00010203-0405-0607-0809-0a0b0c0d0e0f"), "a uuid can be written");
	ok(!uuid_from_text("00010203-0405-0607-0809-0a0b0c0d0e0", uuid) &&
	   !uuid_from_text("00010203-0405-0607-0809-0a0b0c0d0e0f0", uuid) &&
	   !uuid_from_text("000102030405-0607-0809-0a0b0c0d0e0f00", uuid) &&
	   !uuid_from_text("", uuid) && !uuid_from_text("g", uuid), "what is no uuid is not read");
}

static void large(void)
{
	const size_t len = 20 << 20;
	struct db_params p = { 0 };
	struct asked *q;
	char *data = xcalloc(1, len);

	begin_connected();
	db_add_bytes(&p, data, len);
	free(data);
	q = ask_with(&length, &p);
	ask_number(&long_row, 3);
	run_until(all_answered);
	ok(q->number == (int64_t)len, "a parameter is sent that no socket takes at once");
	ok(asked[1].number == 3, "a row is taken that does not come at once");
}

static void failures(void)
{
	struct asked *q[5];

	execute("create table deferred (i int unique deferrable initially deferred)");
	execute("insert into deferred values (1)");
	begin_connected();
	q[0] = ask(&no_column);
	q[1] = ask_number(&by_zero, 0);
	q[2] = ask(&deferred);
	q[3] = ask(&no_column);
	q[4] = ask(&one);
	run_until(all_answered);
	ok(q[0]->status == DB_FAILED && !strcmp(q[0]->sqlstate, "42703"),
	   "a statement that cannot be prepared has failed");
	ok(q[1]->status == DB_FAILED && !strcmp(q[1]->sqlstate, "22012"),
	   "a statement that cannot be done has failed");
	ok(q[2]->status == DB_FAILED && !strcmp(q[2]->sqlstate, "23505"),
	   "a statement that had a result, but could not be committed, has failed");
	ok(q[3]->status == DB_FAILED, "what could not be prepared is tried again");
	ok(q[4]->status == DB_DONE && !nr_down, "a failure leaves the connection as it is");
	ok(each_once(), "what fails is answered once");
}

static void changed_table(void)
{
	struct asked *q;

	execute("create table changing (i int8)");
	execute("insert into changing values (7)");
	begin_connected();
	ask(&all_of_changing);
	run_until(all_answered);
	execute("alter table changing add j int8");
	q = ask(&all_of_changing);
	run_until(all_answered);
	ok(q->status == DB_FAILED && !strcmp(q->sqlstate, "0A000"),
	   "a statement of a table that has changed fails once");
	run_until(was_down_and_up);
	q = ask(&all_of_changing);
	run_until(all_answered);
	ok(q->status == DB_DONE && q->number == 7, "and is prepared anew");
}

static void notifications(void)
{
	begin_connected();
	ask(&listen_stmt);
	run_until(all_answered);
	execute("notify told, 'a text'");
	run_until(was_notified);
	ok(nr_notified == 1 && !strcmp(channel, "told") && !strcmp(payload, "a text"),
	   "a notification comes while nothing is asked");
}

static bool is_executing(void)
{
	return db.phase == DB_EXECUTING;
}

/* The first of NR is under way when @end ends the connection; true if all was told as it was. */
static bool lost_queue(void (*end)(void))
{
	bool good;
	int i;

	begin_connected();
	ask(&sleeping);
	for (i = 1; i < NR; i++)
		ask(&one);
	run_until(is_executing);
	end();
	run_until(all_answered);
	good = each_once() && nr_down == 1 && answered_at_down == NR;
	for (i = 0; i < NR; i++)
		good &= asked[i].status == DB_LOST && asked[i].sent == !i && asked[i].order == i;
	return good;
}

static void kill_postgres(void) { postgres("kill"); }
static void reset(void) { db_reset(&db); }

static void end_backend(void)
{
	execute("select pg_terminate_backend(pid) from pg_stat_activity "
		"where application_name like 'twheeld %'");
}

static void losses(void)
{
	struct asked *q;

	ok(lost_queue(end_backend), "of a queue that is lost the first was sent, the others not");
	run_until(is_up);
	ok(nr_up == 1, "a connection that has ended is made anew");
	ok(lost_queue(reset), "a connection that is reset loses its queue");
	ok(lost_queue(kill_postgres), "a server that is killed loses a queue");
	begin();
	q = ask(&one);
	run_until(all_answered);
	ok(q->status == DB_LOST && !q->sent && nr_down == 1,
	   "while there is no server a statement is lost, and was not sent");
	postgres("start");
	run_until(is_up);
	q = ask(&one);
	run_until(all_answered);
	ok(nr_up == 1 && q->number == 1, "when the server is back statements are prepared anew");

	begin_connected();
	q = ask(&end_me);
	run_until(all_answered);
	ok(q->status == DB_LOST && q->sent,
	   "a statement on which the server ends the connection may have been done");
}

/* Asks again at once, as long as it is lost. */
static void insist(void *arg, const struct db_answer *a)
{
	struct asked *q = arg;

	answered(arg, a);
	if (a->status == DB_LOST && !db.closing) {
		nr_asked++;
		db_query(&db, &one, NULL, insist, q);
	}
}

static void insisting(void)
{
	begin_connected();
	nr_asked++;
	db_query(&db, &sleeping, NULL, insist, &asked[0]);
	run_until(is_executing);
	db_reset(&db);
	run_until(all_answered);
	ok(asked[0].status == DB_DONE && nr_answered == asked[0].answers,
	   "who asks again from an answer gets one in the end");
}

static void reset_within(void *arg, const struct db_answer *a)
{
	answered(arg, a);
	db_reset(&db);
}

static void resetting_within(void)
{
	begin_connected();
	nr_asked++;
	db_query(&db, &one, NULL, reset_within, &asked[0]);
	asked[1].turn = UINT64_MAX;
	ask(&one);
	run_until(all_answered);
	ok(each_once() && asked[0].status == DB_DONE && asked[1].status == DB_LOST &&
	   !asked[1].sent && nr_down == 1, "a connection can be reset from an answer");
}

static void close_within(void *arg, const struct db_answer *a)
{
	answered(arg, a);
	db_close(&db);
}

static void closing(void)
{
	int i;

	begin_connected();
	nr_asked++;
	db_query(&db, &one, NULL, close_within, &asked[0]);
	for (i = 1; i < NR; i++)
		ask(&one);
	run_until(all_answered);
	ok(each_once() && asked[NR - 1].status == DB_LOST && !nr_down,
	   "a connection can be closed from an answer, and answers the rest");
	ask(&one);
	ok(asked[NR].answers == 1 && asked[NR].status == DB_LOST,
	   "a connection that is closed answers at once");
	db_close(&db);
	ok(each_once(), "a connection can be closed twice");
}

static struct db identified_db;
static struct db_identity identity;
static int nr_identified_up, nr_identified_down;

static const struct db_stmt which = {
	"which", "select (select name from server), 1 from pg_sleep(0.05)", { 0 }
};

static void identified_up(void *arg)
{
	(void)arg;
	nr_identified_up++;
}

static void identified_down(void *arg)
{
	(void)arg;
	nr_identified_down++;
}

static bool identified_is_up(void) { return identified_db.state == DB_UP; }
static bool identified_tried(void) { return identified_db.tries >= 2; }

static void identities(void)
{
	execute("create table server (name text)");
	execute("insert into server values ('this')");
	begin_connected();
	identity.stmt = &which;
	identified_db = (struct db){
		.what = "identified", .loop = &loop, .conninfo = db.conninfo, .node = "",
		.identity = &identity, .up = identified_up, .down = identified_down,
	};
	db_open(&identified_db);
	ask(&one);
	run_until(all_answered);
	ok(identified_db.state == DB_DOWN && !identified_db.tries,
	   "a connection waits until it is known which server it is to have");
	snprintf(identity.is, sizeof(identity.is), "another");
	db_reset(&identified_db);
	run_until(identified_tried);
	ok(!nr_identified_up && !nr_identified_down, "one that has another server is not up");
	snprintf(identity.is, sizeof(identity.is), "this");
	run_until(identified_is_up);
	ok(nr_identified_up == 1, "one that has the server is");
	execute("update server set name = null");
	identified_db.tries = 0;
	db_reset(&identified_db);
	run_until(identified_tried);
	ok(nr_identified_up == 1 && nr_identified_down == 1,
	   "nor is one whose server is not to be used");
	execute("drop table server");
	identified_db.tries = 0;
	run_until(identified_tried);
	ok(nr_identified_up == 1, "nor one whose server does not know what it is");
	db_close(&identified_db);
}

/* A server that takes connections and says nothing. */
static char mute_dir[] = "/tmp/twheeld-mute-XXXXXX";
static struct sockaddr_un mute_address = { .sun_family = AF_UNIX };
static struct loop_fd mute;
static struct db mute_db;
static char mute_conninfo[64];
static int nr_mute, mute_fds[16];

static void accept_mute(struct loop_fd *fd, uint32_t events)
{
	(void)events;
	if (nr_mute < 16)
		mute_fds[nr_mute++] = accept(fd->fd, NULL, NULL);
}

static void open_mute(void)
{
	if (!mkdtemp(mute_dir))
		exit(1);
	snprintf(mute_address.sun_path, sizeof(mute_address.sun_path), "%s/.s.PGSQL.5432",
		 mute_dir);
	snprintf(mute_conninfo, sizeof(mute_conninfo), "host=%s port=5432 user=x", mute_dir);
	mute.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	mute.fn = accept_mute;
	if (mute.fd < 0 ||
	    bind(mute.fd, (struct sockaddr *)&mute_address, sizeof(mute_address)) ||
	    listen(mute.fd, 16))
		exit(1);
	loop_set(&loop, &mute, EPOLLIN);
	mute_db = (struct db){
		.what = "mute", .loop = &loop, .conninfo = mute_conninfo, .node = "",
	};
	db_open(&mute_db);
}

static void close_mute(void)
{
	db_close(&mute_db);
	loop_set(&loop, &mute, 0);
	close(mute.fd);
	unlink(mute_address.sun_path);
	rmdir(mute_dir);
}

static bool mute_twice(void) { return nr_mute >= 2; }

static void silence(void)
{
	uint64_t asked_ns, began;
	struct asked *q;
	pid_t backend;

	begin_connected();
	ask(&one);
	q = ask(&pid);
	run_until(all_answered);
	backend = (pid_t)q->number;
	/* It does not answer what comes after that, however fast it is. */
	kill(backend, SIGSTOP);
	asked_ns = boottime_ns();
	ask(&one);
	run_until(is_executing);
	began = boottime_ns();
	open_mute();
	run_until(mute_twice);
	ok(boottime_ns() - began >= 5 * TWHEEL_SEC,
	   "a server that takes a connection and says nothing is tried anew after 5 s");
	close_mute();
	run_until(all_answered);
	ok(each_once() && asked[2].status == DB_LOST && asked[2].sent &&
	   boottime_ns() - asked_ns >= 14 * TWHEEL_SEC,
	   "a statement without an answer is lost after 15 s");
	kill(backend, SIGCONT);
}

int main(void)
{
	static char conninfo[512];

	alarm(300);
	log_level = getenv("VERBOSE") ? LOG_D : LOG_E;
	if (!getenv("CONNINFO") || loop_open(&loop, TWHEEL_LOCAL, 0))
		return 1;
	snprintf(conninfo, sizeof(conninfo), "%s options='-c work_mem=1MB'", getenv("CONNINFO"));
	loop.idle = idle;
	db = (struct db){
		.what = "test", .loop = &loop, .conninfo = conninfo,
		.node = "00000000-0000-0000-0000-000000000000", .options = "-c lock_timeout=50ms",
		.up = came_up, .down = went_down, .notify = notified,
	};
	db_open(&db);
	not_connected();
	in_order();
	session();
	round_trip();
	large();
	failures();
	changed_table();
	notifications();
	identities();
	losses();
	insisting();
	resetting_within();
	silence();
	closing();
	loop_close(&loop);
	PQfinish(other);
	return done_testing();
}
