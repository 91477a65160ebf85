/* SPDX-License-Identifier: GPL-2.0 */
/* PostgreSQL, and what came from there on standard output. */
#ifndef TWJOB_DB_H
#define TWJOB_DB_H

#include "twjob.h"

PGconn *must_open_db(const char *conninfo);

/* Rows with a line of names above; a null is "-". */
void print_table(const PGresult *r);

/* A row, a line for each of its columns that is not null. */
void print_row(const PGresult *r, int row);

/* The first column of each row, a line each: JSON that PostgreSQL has made. */
void print_lines(const PGresult *r);

/* A list of rows as a table, or, if @json, an object each. @sql selects from there. */
void print_query(PGconn *db, bool json, const char *sql, int nr, const char *const *params);

/* How far it is, on a terminal. */
void show_progress(const char *what, uint64_t nr);
void end_progress(void);

#endif
