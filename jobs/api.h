/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Requests by HTTP: what api.c, which has the connections, and those who answer have of each
 * other.
 */
#ifndef TWHEELD_API_H
#define TWHEELD_API_H

#include "node.h"
#include "parse.h"

struct MHD_Connection;
struct request;
struct visitor;

/**
 * struct submission - jobs to be inserted in one transaction; submit.c
 * @link:  submit.c's
 * @jobs:  with their services' ids
 * @out:   out: an element for each
 * @done:  called once, never from within submit_jobs(). @answer is NULL if all are committed
 * @bytes: submit.c's: of payloads
 * @keyed: submit.c's: there is a key among them
 * @hash:  submit.c's: of what it may have to wait for
 * @held_ns: submit.c's: since when it waits for a lock that somebody holds, or 0
 * @tries: submit.c's: how many statements that it was in have failed
 */
struct submission {
	struct list link;
	struct new_jobs *jobs;
	struct submitted {
		int64_t id;
		int64_t at_us;
		bool has_at, is_new;
	} *out;
	void (*done)(struct submission *s, const struct db_answer *answer);
	size_t bytes;
	uint64_t hash, held_ns;
	bool keyed;
	unsigned int tries;
};

/* False, with nothing done, if too much is queued. */
bool submit_jobs(struct node *n, struct submission *s);

/* Whether there is a connection for it. */
bool submit_is_up(const struct node *n);

/* us since 2000 of what a request says, by the database's clock. */
int64_t when_us(const struct node *n, const struct when *when);

/*
 * A row that this node may have to fire, or others: (shard, id, due, service, slack_ms, bytes,
 * attempt, state). True if it is to be announced.
 */
bool row_known(struct node *n, const PGresult *r, int row);

#define UTC(time) "to_char(" time " at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"

enum body { BODY_NONE, BODY_JSON, BODY_LARGE, BODY_JOBS };	/* large: with a payload */

/**
 * struct route - what can be asked
 * @method: of HTTP
 * @path:   with {id}, or {service} or {schedule}, for one part
 * @role:   one of those has to be the token's; 0 for everybody
 * @body:   what it has to be
 * @params: of the query string, a blank behind each; NULL if @fn checks them
 * @fn:     called when all of the request is there
 */
struct route {
	const char *method, *path;
	unsigned int role;
	enum body body;
	const char *params;
	void (*fn)(struct request *r);
};

#define MAX_ARGS	16

/**
 * struct request - from its headers until its answer is sent or the client is gone
 * @link:      on the list of all
 * @node:      whose it is
 * @conn:      NULL if that is gone while a statement is under way: nobody waits for it
 * @route:     what is asked; NULL if there is no such path
 * @roles:     what who asks may do
 * @id:        of the path
 * @name:      of the path, of a service or a schedule
 * @raw:       the body is a payload
 * @args:      of the query string
 * @nr_args:   how many
 * @body:      as far as it has come
 * @held:      bytes of it that count in those of all requests
 * @discarded: bytes of it that were thrown away, as the request is refused
 * @visitor:   the connection, as long as @conn is there
 * @large:     on the list of those with a large body to be read
 * @rows:      that count in those of all lists that are asked for
 * @sent:      bytes that count in those of all answers
 * @answered_ns: when the answer began to be sent; 0 before
 * @closes:    the connection ends with the answer
 * @began_ns:  when its headers had come
 * @bad:       why it is refused, if its status is set
 * @pending:   a statement is under way for it; holds it in memory
 * @suspended: MHD leaves the connection alone, and does not see it end
 * @answered:  @status, @out and so on are what is to be sent
 * @got:       what is called with the result of the statement
 * @writes:    that changes something: if the connection is lost nobody knows whether it did
 * @status:    of HTTP
 * @out:       the body of the answer
 * @type:      of that; NULL for JSON
 * @allow:     the header of that name; NULL for none
 * @location:  the header of that name; empty for none
 * @retry_after: the header of that name, in seconds; 0 for none
 * @jobs:      to be submitted
 * @submission: that they are submitted with
 * @when:      to be moved to
 * @spec:      of a service that is to be made or changed
 * @schedule:  the same of a schedule
 * @is_new:    it was made, and is shown
 * @tries:     how often it was another one when it was to be changed
 * @report:    of a consumer
 * @limit:     of what is listed
 * @after:     the id that comes before what is listed
 */
struct request {
	struct list link;
	struct node *node;
	struct MHD_Connection *conn;
	const struct route *route;
	unsigned int roles;
	int64_t id;
	char name[101];
	bool raw;
	struct arg args[MAX_ARGS];
	unsigned int nr_args;
	struct buf body;
	size_t held, discarded, rows, sent;
	uint64_t began_ns, answered_ns;
	struct visitor *visitor;
	struct list large;
	struct bad bad;

	bool pending, suspended, answered, writes, closes;
	void (*got)(struct request *r, const PGresult *result);
	int status;
	struct buf out;
	const char *type, *allow;
	char location[48];
	unsigned int retry_after;

	struct new_jobs jobs;
	struct submission submission;
	struct when when;
	struct service_spec spec;
	struct schedule_spec schedule;
	bool is_new;
	unsigned int tries;
	struct report report;
	int64_t limit, after;
};

/* Of the query string; NULL if it is not there. Its text has no NUL in it and is UTF-8. */
const struct arg *request_arg(const struct request *r, const char *name);

/* A number of that; @value is left alone if it is not there. False if it was answered. */
bool request_number(struct request *r, const char *name, int64_t min, int64_t max,
		    int64_t *value);

/* Asks the database, and calls @got with what it says. If it says nothing that is answered. */
void request_query(struct request *r, const struct db_stmt *stmt, struct db_params *p,
		   bool writes, void (*got)(struct request *r, const PGresult *result));

/* Each request is answered once, by one of these. The first sends what is in @out. */
void request_reply(struct request *r, int status);
void request_refuse(struct request *r);		/* as @bad says */
void request_error(struct request *r, int status, const char *code, const char *field,
		   const char *format, ...) __attribute__((format(printf, 5, 6)));

/*
 * A statement that was not sent by request_query() was answered, and there is nothing to send
 * but that it failed, or nobody to send it to.
 */
void request_answer(struct request *r, const struct db_answer *answer);

/* The body is not needed any more. */
void request_free_body(struct request *r);

extern const struct route job_routes[], service_routes[], schedule_routes[],
	other_routes[];

/* metrics.c */
void metrics_write(struct node *n, struct buf *out);

#endif
