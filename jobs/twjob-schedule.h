/* SPDX-License-Identifier: GPL-2.0 */
/* What commands about schedules have of each other. */
#ifndef TWJOB_SCHEDULE_H
#define TWJOB_SCHEDULE_H

#include "parse.h"
#include "schedule.h"
#include "twjob-db.h"

/* us since 2000, of the database's clock */
int64_t clock_of_db(PGconn *db);

/* Makes or replaces the schedule, as a row: whether it is new. PQresultStatus() tells if it failed. */
PGresult *send_schedule(PGconn *db, const struct schedule_spec *spec);

/* Appends {"schedules": [...]}, of that service or of all, as parse_schedules() reads it. */
void add_schedules(struct buf *b, PGconn *db, const char *service);

#endif
