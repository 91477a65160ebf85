// SPDX-License-Identifier: GPL-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "twjob-db.h"

/* The length of the character of UTF-8 that begins there, 0 if none does. */
static size_t utf8_len(const unsigned char *s)
{
	size_t len = *s < 0xc2 ? 0 : *s < 0xe0 ? 2 : *s < 0xf0 ? 3 : *s < 0xf5 ? 4 : 0;

	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f) ||
	    (*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] > 0x8f))
		return 0;
	return len;
}

/* Also what terminals take for control characters: U+0080 to U+009F. */
void clean(char *text)
{
	unsigned char *s = (unsigned char *)text;

	while (*s) {
		size_t len = 1;

		if (*s < ' ' || *s == 0x7f)
			*s = '?';
		else if (*s >= 0x80)
			len = utf8_len(s);
		if (len == 2 && *s == 0xc2 && s[1] < 0xa0)
			len = 0;
		if (!len) {
			*s = '?';
			len = 1;
		}
		s += len;
	}
}

static void quiet(void *arg, const char *message)
{
	(void)arg;
	(void)message;
}

/* What stands in conninfo goes before what stands here. */
PGconn *open_db(const char *conninfo, char *why)
{
	const char *const names[] = {
		"fallback_application_name", "connect_timeout", "tcp_user_timeout",
		"client_encoding", "dbname", NULL,
	};
	const char *const values[] = {
		"twjob", "10", "10000", "UTF8", conninfo ? conninfo : "", NULL,
	};
	PGconn *db = PQconnectdbParams(names, values, 1);
	PGresult *r;
	bool ok;

	if (!db || PQstatus(db) != CONNECTION_OK) {
		snprintf(why, 256, "%s", db ? PQerrorMessage(db) : "out of memory");
		goto failed;
	}
	PQsetNoticeProcessor(db, quiet, NULL);
	r = PQexec(db, "set synchronous_commit = on");
	ok = PQresultStatus(r) == PGRES_COMMAND_OK;
	PQclear(r);
	if (ok)
		return db;
	snprintf(why, 256, "%s", PQerrorMessage(db));
failed:
	why[strcspn(why, "\n")] = '\0';
	PQfinish(db);
	return NULL;
}

PGconn *must_open_db(const char *conninfo)
{
	char why[256];
	PGconn *db = open_db(conninfo, why);

	if (!db)
		die(STATUS_FAILED, "%s", why);
	return db;
}

const char *sqlstate_of(const PGresult *r)
{
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);

	return state ? state : "";
}

static bool is_one_of(const char *state, const char *states)
{
	return *state && strstr(states, state);
}

int tell_error(const PGresult *r, const PGconn *db)
{
	const char *state = sqlstate_of(r);
	const char *message = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
	char line[512];

	if (is_one_of(state, "3F000 42P01 42883")) {
		tell("this database has no schema of twheeld yet: see twheeld --migrate");
		return STATUS_FAILED;
	}
	if (!strcmp(state, "42501")) {
		tell("%s: %s%s", message,
		     "jobs are for members of role twheel_app; services, nodes and drain for ",
		     "those of twheel_node, or for the owner of the schema");
		return STATUS_FAILED;
	}
	snprintf(line, sizeof(line), "%s", message ? message : PQerrorMessage(db));
	line[strcspn(line, "\n")] = '\0';
	tell("%s", *line ? line : "the connection to PostgreSQL was lost");
	if (!strcmp(state, "P0002"))
		return STATUS_NONE;
	/* Of classes 22 and 23: a value that PostgreSQL does not take. */
	return !strncmp(state, "22", 2) || !strncmp(state, "23", 2) || !strcmp(state, "54000") ?
		STATUS_USAGE : STATUS_FAILED;
}

void end_by_error(PGresult *r, PGconn *db)
{
	int status = tell_error(r, db);

	PQclear(r);
	PQfinish(db);
	exit(status);
}

PGresult *ask(PGconn *db, const char *sql, int nr, const char *const *params)
{
	PGresult *r = PQexecParams(db, sql, nr, NULL, params, NULL, NULL, 0);
	ExecStatusType status = PQresultStatus(r);

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		end_by_error(r, db);
	return r;
}

static char *cell(const PGresult *r, int row, int column)
{
	char *text;

	if (PQgetisnull(r, row, column))
		return xstrdup("-");
	text = xstrdup(PQgetvalue(r, row, column));
	clean(text);
	return text;
}

/* Characters, as far as one is a column. */
static int width_of(const char *s)
{
	int width = 0;

	for (; *s; s++)
		width += (*s & 0xc0) != 0x80;
	return width;
}

static void print_cell(const char *text, int width, bool last)
{
	fputs(text, stdout);
	if (last)
		putchar('\n');
	else
		printf("%*s", width - width_of(text) + 2, "");
}

void print_table(const PGresult *r)
{
	int nr = PQnfields(r), rows = PQntuples(r);
	int *width = xcalloc((size_t)nr, sizeof(*width));

	for (int c = 0; c < nr; c++) {
		width[c] = width_of(PQfname(r, c));
		for (int row = 0; row < rows; row++) {
			char *text = cell(r, row, c);

			if (width_of(text) > width[c])
				width[c] = width_of(text);
			free(text);
		}
	}
	for (int c = 0; c < nr; c++)
		print_cell(PQfname(r, c), width[c], c == nr - 1);
	for (int row = 0; row < rows; row++) {
		for (int c = 0; c < nr; c++) {
			char *text = cell(r, row, c);

			print_cell(text, width[c], c == nr - 1);
			free(text);
		}
	}
	free(width);
}

void print_row(const PGresult *r, int row)
{
	for (int c = 0; c < PQnfields(r); c++) {
		char *text;

		if (PQgetisnull(r, row, c))
			continue;
		text = cell(r, row, c);
		printf("%-10s %s\n", PQfname(r, c), text);
		free(text);
	}
}

void print_lines(const PGresult *r)
{
	for (int row = 0; row < PQntuples(r); row++)
		puts(PQgetvalue(r, row, 0));
}

void print_query(PGconn *db, bool json, const char *sql, int nr, const char *const *params)
{
	struct buf b = { 0 };
	PGresult *r;

	if (json)
		buf_printf(&b, "select row_to_json(t) from (%s) t", sql);
	else
		buf_puts(&b, sql);
	r = ask(db, b.data, nr, params);
	if (json)
		print_lines(r);
	else
		print_table(r);
	PQclear(r);
	buf_free(&b);
}

static bool on_terminal(void)
{
	static int known = -1;
	const char *term = getenv("TERM");

	if (known < 0)
		known = isatty(STDERR_FILENO) && term && strcmp(term, "dumb");
	return known;
}

void show_progress(const char *what, uint64_t nr)
{
	if (on_terminal())
		fprintf(stderr, "\r%llu %s", (unsigned long long)nr, what);
}

void end_progress(void)
{
	if (on_terminal())
		fputs("\r\033[K", stderr);
}
