// SPDX-License-Identifier: GPL-2.0
/*
 * Migrations go forward only and add only, so that nodes of two versions can work at the same
 * time. Two that migrate at once do it one after the other, as each transaction begins with a
 * lock, and looks only then how far things are.
 */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "migrate.h"
#include "node.h"

/*
 * Of pg_advisory_xact_lock(): "twheel" in ASCII. Waits for who migrates, but not for ever for
 * tables: whoever came behind would wait as well.
 */
#define BEGIN "begin; select pg_advisory_xact_lock(128056201405804); " \
	"set local lock_timeout = '10s'; set local synchronous_commit = on"

static void ignore(void *arg, const PGresult *r)
{
	(void)arg;
	(void)r;
}

static void tell(PGconn *conn)
{
	fprintf(stderr, "twheeld: %s", PQerrorMessage(conn));
}

static PGconn *connect_now(const char *conninfo)
{
	static const char *const keywords[] = {
		"connect_timeout", "dbname", "fallback_application_name", "client_encoding", NULL
	};
	PGconn *conn = PQconnectdbParams(keywords, (const char *const []){
		"5", conninfo, "twheeld", "UTF8", NULL }, 1);

	if (conn && PQstatus(conn) == CONNECTION_OK) {
		PQsetNoticeReceiver(conn, ignore, NULL);
		return conn;
	}
	if (conn)
		tell(conn);
	PQfinish(conn);
	return NULL;
}

static int run(PGconn *conn, const char *sql)
{
	PGresult *r = PQexec(conn, sql);
	ExecStatusType status = PQresultStatus(r);

	PQclear(r);
	if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)
		return 0;
	tell(conn);
	return -1;
}

/* The number of the schema that is there; 0 if there is none, -1 after an error, told. */
static int present(PGconn *conn)
{
	PGresult *r = PQexec(conn, "select to_regclass('twheel.cluster') is not null");
	bool there;
	int schema;

	if (PQresultStatus(r) != PGRES_TUPLES_OK) {
		tell(conn);
		PQclear(r);
		return -1;
	}
	there = *PQgetvalue(r, 0, 0) == 't';
	PQclear(r);
	if (!there)
		return 0;
	r = PQexec(conn, "select schema from twheel.cluster");
	schema = PQntuples(r) == 1 ? atoi(PQgetvalue(r, 0, 0)) : -1;
	if (PQresultStatus(r) != PGRES_TUPLES_OK)
		tell(conn);
	else if (schema < 1)
		fputs("twheeld: twheel.cluster does not say which schema there is\n", stderr);
	PQclear(r);
	return schema < 1 ? -1 : schema;
}

static int known(void)
{
	int nr = 0;

	while (migrations[nr])
		nr++;
	return nr;
}

static int apply(PGconn *conn, int schema)
{
	char sql[64];

	snprintf(sql, sizeof(sql), "update twheel.cluster set schema = %d", schema);
	if (run(conn, migrations[schema - 1]) || run(conn, sql) || run(conn, "commit")) {
		fprintf(stderr, "twheeld: schema %d could not be made\n", schema);
		return -1;
	}
	printf("schema %d was made\n", schema);
	return 0;
}

/* The next one. 1 if there is none any more. */
static int migrate_once(PGconn *conn)
{
	int schema, newest = known();

	if (run(conn, BEGIN))
		return -1;
	schema = present(conn);
	if (schema < 0)
		return -1;
	if (schema > newest) {
		fprintf(stderr, "twheeld: the schema is %d, this version knows %d: too old\n",
			schema, newest);
		return -1;
	}
	if (schema < newest)
		return apply(conn, schema + 1);
	printf("schema %d is there\n", schema);
	return run(conn, "commit") ? -1 : 1;
}

int migrate(const char *conninfo)
{
	PGconn *conn = connect_now(conninfo);
	int result;

	if (!conn)
		return -1;
	do
		result = migrate_once(conn);
	while (!result);
	PQfinish(conn);
	return result < 0 ? -1 : 0;
}

static void does_not_fit(int schema)
{
	fprintf(stderr, "twheeld: the schema is %d, this version can work with %d to %d: ", schema,
		SCHEMA_MIN, SCHEMA_MAX);
	fputs(schema > SCHEMA_MAX ? "install a newer one\n" :
	      "run \"twheeld --migrate\" as the owner of the database\n", stderr);
}

enum schema_status schema_check(const char *conninfo)
{
	PGconn *conn = connect_now(conninfo);
	enum schema_status status = SCHEMA_WRONG;
	int schema;

	if (!conn)
		return SCHEMA_UNKNOWN;
	schema = present(conn);
	if (schema >= SCHEMA_MIN && schema <= SCHEMA_MAX)
		status = SCHEMA_FITS;
	else if (schema >= 0)
		does_not_fit(schema);
	else if (PQstatus(conn) != CONNECTION_OK)
		status = SCHEMA_UNKNOWN;
	else
		fputs("twheeld: grant twheel_node to the role of the node\n", stderr);
	PQfinish(conn);
	return status;
}
