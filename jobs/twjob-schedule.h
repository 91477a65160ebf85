/* SPDX-License-Identifier: GPL-2.0 */
/* What commands about schedules have of each other. */
#ifndef TWJOB_SCHEDULE_H
#define TWJOB_SCHEDULE_H

#include "parse.h"
#include "schedule.h"
#include "twjob-db.h"

/* us since 2000, of the database's clock */
int64_t clock_of_db(PGconn *db);

/*
 * Makes or replaces it; if it does not say whether it is paused that stays as it is. A row with
 * whether it is new, or PQresultStatus() tells that it failed.
 */
PGresult *send_schedule(PGconn *db, const struct schedule_spec *spec);

/* Appends {"schedules": [...]}, of that service or of all, as parse_schedules() reads it. */
void add_schedules(struct buf *b, PGconn *db, const char *service);

/* A file, or standard input if that is "-"; ends twjob if it cannot be read. */
void read_schedules_file(struct buf *b, const char *name);

#endif
