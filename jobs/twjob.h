/* SPDX-License-Identifier: GPL-2.0 */
/*
 * twjob: jobs of twheeld from the command line. It talks to PostgreSQL alone, and waits for
 * each answer.
 */
#ifndef TWJOB_H
#define TWJOB_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "buf.h"

#define USEC_PER_SEC	1000000
#define MAX_PAYLOAD	1048576

/* Exit statuses; 0 is success. */
enum {
	STATUS_FAILED = 1,
	STATUS_USAGE = 2,
	STATUS_NONE = 3,	/* no such job, service or node */
	STATUS_RUNNING = 4,	/* too late for what was asked */
	STATUS_DIFFERS = 5,	/* of two files that were compared */
};

/* struct schedule_options: of "schedule" */
struct schedule_options {
	const char *cron, *tz, *start, *end, *misfire, *overlap;
	int64_t every_us, count, grace_us;
	bool broadcast, paused, prune, dry_run;
};

/** struct options - of all commands; NULL or 0 if not given */
struct options {
	const char *conninfo;
	const char *at;		/* a time as PostgreSQL takes it; NULL: as in_us says */
	int64_t in_us;		/* from now on */
	bool has_when;
	const char *key, *order_key, *tag, *payload, *file, *service, *state, *agent;
	int64_t slack_us;
	int64_t visible_us;
	int64_t wait_us;
	int64_t limit;
	int64_t nr_workers;
	bool lines, json, until_empty, help;
	/* of "rehearse" */
	const char *from, *to, *month, *year, *tz, *svg;
	const char **takes, **concurrency;
	int nr_takes, nr_concurrency;
	int64_t for_us;
	bool list, diff;
	struct schedule_options schedule;
	char **command;		/* of "work", NULL behind its last argument */
};

/* What is wrong with the text, or NULL. */
const char *read_duration(const char *s, int64_t *us);
const char *read_when(const char *s, struct options *opt);
const char *read_number(const char *s, int64_t least, int64_t most, int64_t *nr);

/* What --payload, --file or standard input say. */
void read_payload(struct buf *b, const struct options *opt, bool from_stdin);

void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void die(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Makes a text fit for a terminal and a line: valid UTF-8 without control characters. */
void clean(char *text);

/* A connection, or NULL after @why was set to a line of up to 256 characters. */
PGconn *open_db(const char *conninfo, char *why);

/* Ends twjob if the statement failed; parameters and results are text. */
PGresult *ask(PGconn *db, const char *sql, int nr, const char *const *params);

/* The exit status after an error, which is told. */
int tell_error(const PGresult *r, const PGconn *db);
_Noreturn void end_by_error(PGresult *r, PGconn *db);
const char *sqlstate_of(const PGresult *r);

/* Runs a command for each row of a queue; the exit status. */
int work(const struct options *opt, const char *service);

#endif
