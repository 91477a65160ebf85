/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What requests say: JSON bodies, times and numbers, checked against their bounds. Knows
 * nothing of HTTP or of a node.
 */
#ifndef TWHEELD_PARSE_H
#define TWHEELD_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"

#define MAX_BODY	16777216	/* of a request */
#define MAX_JOBS	10000		/* in a request */
#define MAX_SCHEDULES	100000		/* in a file */
#define MAX_TEXT	500		/* characters of keys and tags */
#define MAX_DELAY_MS	INT64_C(3155760000000)	/* 100 years */

/**
 * struct bad - why a request is refused
 * @status:  of HTTP
 * @code:    for programs
 * @field:   which field it is about; empty if none
 * @message: for people
 */
struct bad {
	int status;
	const char *code;
	char field[128];
	char message[256];
};

/* Says so, and returns false. */
bool bad_set(struct bad *bad, int status, const char *code, const char *field,
	     const char *format, ...) __attribute__((format(printf, 5, 6)));

/* struct when: a time: at_us if has_at, else delay_ms from now */
struct when {
	bool has_at;
	int64_t at_us;
	int64_t delay_ms;
};

/**
 * struct new_job - as a request has it
 * @service:    its name
 * @key:        may be NULL
 * @order_key:  may be NULL
 * @tag:        may be NULL
 * @when:       it is to be done
 * @slack_ms:   how much later that may be
 * @payload:    what it is about
 * @service_id: what was found for the name, 0 before
 */
struct new_job {
	char *service, *key, *order_key, *tag;
	struct when when;
	int64_t slack_ms;
	struct buf payload;
	int32_t service_id;
};

/**
 * struct new_jobs - those of a request; zeroed is none
 * @job:  those
 * @nr:   how many
 * @many: was an array, and is answered by one
 */
struct new_jobs {
	struct new_job *job;
	unsigned int nr;
	bool many;
};

/* All or none: what was refused leaves nothing to be freed. @body has a NUL behind it. */
bool parse_jobs(const char *body, size_t len, struct new_jobs *jobs, struct bad *bad);

/* struct arg: of a query string */
struct arg {
	const char *name, *value;
	size_t len;	/* of the value */
};

/* A job whose payload is the body: the rest of it is in arguments. */
bool parse_raw_job(const struct arg *args, unsigned int nr, const char *body, size_t len,
		   struct new_jobs *jobs, struct bad *bad);
void new_jobs_free(struct new_jobs *jobs);

enum service_field {
	SERVICE_KIND, SERVICE_TARGET, SERVICE_HEADERS, SERVICE_TIMEOUT, SERVICE_ACCEPT,
	SERVICE_ATTEMPTS, SERVICE_BACKOFF, SERVICE_BACKOFF_MAX, SERVICE_CONCURRENCY,
	SERVICE_RATE, SERVICE_DELIVERY, SERVICE_NOTIFY, SERVICE_PAUSED, NR_SERVICE_FIELDS
};

/**
 * struct service_spec - what a request says of a service
 * @given:    bits of enum service_field: the others are not said
 * @kind:     "http", "queue" or "amqp"
 * @target:   URL
 * @headers:  as JSON
 * @delivery: "at_least_once" or "at_most_once"
 * @timeout_ms: as the others below, see struct service
 * @accept_ms: the same
 * @max_attempts: the same
 * @backoff_ms: the same
 * @backoff_max_ms: the same
 * @concurrency: the same
 * @rate_per_s: 0 for any
 * @notify:   as in struct service
 * @paused:   the same
 */
struct service_spec {
	uint32_t given;
	char *kind, *target, *headers, *delivery;
	int64_t timeout_ms, accept_ms, max_attempts, backoff_ms, backoff_max_ms, concurrency;
	double rate_per_s;
	bool notify, paused;
};

bool parse_service(const char *body, size_t len, struct service_spec *spec, struct bad *bad);
void service_spec_free(struct service_spec *spec);
bool service_name_is_good(const char *name);

enum schedule_field {
	SCHEDULE_NAME, SCHEDULE_SERVICE, SCHEDULE_CRON, SCHEDULE_TZ, SCHEDULE_EVERY,
	SCHEDULE_COUNT, SCHEDULE_START, SCHEDULE_END, SCHEDULE_MISFIRE, SCHEDULE_MISFIRE_MS,
	SCHEDULE_OVERLAP, SCHEDULE_BROADCAST, SCHEDULE_SLACK, SCHEDULE_PAYLOAD,
	SCHEDULE_BASE64, SCHEDULE_TEXT, SCHEDULE_PAUSED, NR_SCHEDULE_FIELDS
};

/**
 * struct schedule_spec - what a request says of a schedule
 * @given:     bits of enum schedule_field: the others are not said, and are 0 or NULL here
 * @nulls:     the same, of those that are said to be null, and may be: they are not @given
 * @name:      of it; in a file of them
 * @service:   its name
 * @cron:      an expression, or NULL
 * @tz:        of that
 * @every_ms:  else
 * @count:     of those; 0 for no end
 * @start_us:  us since 2000
 * @end_us:    the same
 * @misfire:   "smart", "fire_now", "do_nothing" or "ignore"
 * @misfire_ms: what is later than that has misfired
 * @overlap:   "allow", "skip" or "queue"
 * @broadcast: to each agent of the service
 * @slack_ms:  as of a job
 * @payload:   as of a job
 * @paused:    nothing is fired
 */
struct schedule_spec {
	uint32_t given, nulls;
	char *name, *service, *cron, *tz, *misfire, *overlap;
	int64_t every_ms, count, start_us, end_us, misfire_ms, slack_ms;
	struct buf payload;
	bool broadcast, paused;
};

/* What each of the fields may be; whether they make a schedule is seen by schedule_set(). */
bool parse_schedule(const char *body, size_t len, struct schedule_spec *spec, struct bad *bad);
void schedule_spec_free(struct schedule_spec *spec);

/* {"schedules": [...]}, each with its name, which no other has */
bool parse_schedules(const char *body, size_t len, struct schedule_spec **specs,
		     unsigned int *nr, struct bad *bad);
void schedule_specs_free(struct schedule_spec *specs, unsigned int nr);

/*
 * Appends a payload as a member of an object that has others: JSON as it is, text, or base64,
 * whichever is read as the same bytes. Nothing if it is empty.
 */
void json_add_payload(struct buf *b, const char *data, size_t len);

/* {"at": ...} or {"delay_ms": ...} */
bool parse_move(const char *body, size_t len, struct when *when, struct bad *bad);

/**
 * struct report - of a consumer
 * @outcome: as it says
 * @message: may be NULL
 * @done:    the outcome is that, not a failure
 */
struct report {
	char *outcome, *message;
	bool done;
};

bool parse_report(const char *body, size_t len, struct report *report, struct bad *bad);
void report_free(struct report *report);

/* RFC 3339 to us since 2000, of 1970 to 9999. What is finer than 1 us is rounded up. */
bool parse_time(const char *text, size_t len, int64_t *us);

#define TIME_TEXT	32
void format_time(int64_t us, char text[TIME_TEXT]);

/* Decimal digits, and nothing else. */
bool parse_digits(const char *text, size_t len, int64_t max, int64_t *value);

/* UTF-8 without NUL, of @min to @max characters. */
bool text_is_good(const char *text, size_t len, size_t min, size_t max);

/* Appends it in quotes. What is not UTF-8 is appended as null. */
void json_add(struct buf *b, const char *text, size_t len);

#endif
