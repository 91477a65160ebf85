// SPDX-License-Identifier: GPL-2.0
/*
 * Requests by HTTP: connections, who may do what, and which function answers.
 *
 * libmicrohttpd has no thread: its descriptor is in the loop. A request that waits for the
 * database is suspended. Then libmicrohttpd neither times it out nor sees that the client is
 * gone, so each one is ended by us: a statement is always answered, and every answer is a
 * reply, which resumes the connection. Only when all is closed connections may end before.
 *
 * Clients may be slow, and many. What waits for them is bounded: bodies, answers, connections and
 * the time that each of these takes. Jobs go first: what asks the database has a connection of
 * its own, and while a large body is read nothing else is done, so that there is only one at a
 * time and then as long a pause.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <netdb.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api.h"

#define MAX_CONNECTIONS		1000
#define CONNECTION_MEMORY	32768		/* headers of a request */
#define LINGER_NS		TWHEEL_SEC	/* for what comes on connections that are there */
#define IDLE_S			30		/* of a connection, or for all headers */
#define REQUEST_NS		(60 * TWHEEL_SEC)	/* for all of a body */
#define ANSWER_NS		(60 * TWHEEL_SEC)	/* for all of an answer to be taken */
#define MAX_SMALL_BODY		65536		/* of JSON but jobs */
#define MAX_HELD		(UINT64_C(256) << 20)	/* bodies of all requests */
#define MAX_DISCARDED		(2 * MAX_BODY)
#define MAX_QUEUED		1000		/* statements */
#define MAX_ROWS		20000		/* of lists that are asked for at a time */
#define MAX_ANSWERS		(UINT64_C(64) << 20)	/* that clients are to take, for lists */
#define LARGE_ANSWER		65536		/* is bounded with others of that size */
#define LARGE_BODY		65536		/* takes a while to be read */

/* Of connections there are few left: who has one does something with it, or others get it. */
#define CROWD			(MAX_CONNECTIONS / 10 * 9)
#define CROWDED_IDLE_NS		(2 * TWHEEL_SEC)
#define CROWDED_ANSWER_NS	(10 * TWHEEL_SEC)
#define LOOK_NS			TWHEEL_SEC

/**
 * struct visitor - a connection
 * @link:     on the list of all
 * @fd:       its socket, which is libmicrohttpd's
 * @since_ns: when it began, or its last request ended
 * @request:  that has its headers and has not ended; NULL if there is none
 */
struct visitor {
	struct list link;
	int fd;
	uint64_t since_ns;
	struct request *request;
};

/**
 * struct api - the server
 * @node:     whose it is
 * @daemon:   libmicrohttpd's handle
 * @fd:       of libmicrohttpd, in the loop
 * @timer:    when libmicrohttpd wants to be run, at the latest; may be too early
 * @timer_ns: what @timer is armed for; 0 if it is not
 * @db:       what answers are made of
 * @requests: all that are there
 * @held:     bytes of bodies
 * @answers:  bytes of answers that were not taken yet
 * @rows:     of lists that are asked for
 * @visitors: all connections
 * @nr_visitors: how many there are
 * @look_timer: armed while there is one, to end those that take too long
 * @large:    requests with a large body that is to be read
 * @large_timer: armed if there is one
 * @large_ns: when the next of these may be read
 * @listen_fd: where connections come in
 * @draining: the node is about to end: only what is for everybody is answered
 * @leaving:  another process has taken over: what is asked on connections that are there still
 *            is answered, and then they end
 * @linger_ns: for that there is time until then
 * @resumed:  connections were resumed, of which libmicrohttpd is not woken
 * @host:     of "listen", as it is written there
 */
struct api {
	struct node *node;
	struct MHD_Daemon *daemon;
	struct loop_fd fd;
	struct twheel_timer timer;
	uint64_t timer_ns;
	struct db db;
	struct list requests;
	size_t held, answers, rows;
	struct list visitors;
	unsigned int nr_visitors;
	struct twheel_timer look_timer;
	struct list large;
	struct twheel_timer large_timer;
	uint64_t large_ns;
	int listen_fd;
	bool draining, leaving, resumed;
	uint64_t linger_ns;
	char host[64];
};

/* -------------------------------------------------------------------- answers */

void request_reply(struct request *r, int status)
{
	r->answered = true;
	r->status = status;
	if (!r->suspended)
		return;
	r->suspended = false;
	r->node->api->resumed = true;
	MHD_resume_connection(r->conn);
}

void request_refuse(struct request *r)
{
	const struct bad *bad = &r->bad;

	r->out.len = 0;
	buf_printf(&r->out, "{\"error\": {\"code\": \"%s\", \"message\": ", bad->code);
	json_add(&r->out, bad->message, strlen(bad->message));
	if (*bad->field) {
		buf_puts(&r->out, ", \"field\": ");
		json_add(&r->out, bad->field, strlen(bad->field));
	}
	buf_puts(&r->out, "}}\n");
	r->type = NULL;
	if ((bad->status == 503 || bad->status == 429) && !r->retry_after)
		r->retry_after = 1;
	request_reply(r, bad->status);
}

void request_error(struct request *r, int status, const char *code, const char *field,
		   const char *format, ...)
{
	va_list args;

	bad_set(&r->bad, status, code, field, "%s", "");
	va_start(args, format);
	vsnprintf(r->bad.message, sizeof(r->bad.message), format, args);
	va_end(args);
	request_refuse(r);
}

/* Serialization, deadlock, a lock that is not had, a time-out, a standby, a shutdown. */
static bool is_passing(const char *sqlstate)
{
	static const char *const passing[] = {
		"40001", "40P01", "55P03", "57014", "25006", "25P03", "53", "57P", "08",
	};

	for (size_t i = 0; i < ARRAY_SIZE(passing); i++)
		if (!strncmp(sqlstate, passing[i], strlen(passing[i])))
			return true;
	return false;
}

/* See check_service() and check_schedule() of the schema. */
static void refuse_column(struct request *r, const struct db_answer *a)
{
	const char *code = "out_of_range";

	if (!strcmp(a->column, "headers"))
		code = "invalid_header";
	else if (!strcmp(a->column, "target"))
		code = "invalid_target";
	else if (!strcmp(a->column, "cron"))
		code = "invalid_cron";
	else if (!strcmp(a->column, "tz"))
		code = "unknown_zone";
	else if (!strcmp(a->column, "broadcast") || !strcmp(a->column, "kind"))
		code = "conflicting_fields";
	request_error(r, 400, code, a->column, "%s", a->message);
}

static bool is_deletion(const struct request *r)
{
	return !strcmp(r->route->method, "DELETE");
}

/* Of a service, by who has submitted to it or made a schedule meanwhile. */
static void refuse_deletion(struct request *r, const struct db_answer *a)
{
	bool has_jobs = !strcmp(a->sqlstate, "2BP01") && !a->column;

	request_error(r, 409, has_jobs ? "has_jobs" : "has_schedules", NULL,
		      "the service still has %s", has_jobs ? "jobs" : "schedules");
}

static void failed(struct request *r, const struct db_answer *a)
{
	if (a->status == DB_LOST && a->sent && r->writes) {
		request_error(r, 503, "unknown", NULL,
			      "the connection to the database ended meanwhile: it may have been done or not; what has a key can be submitted again");
	} else if (a->status == DB_LOST) {
		request_error(r, 503, "unavailable", NULL, "the database is not there");
	} else if (is_passing(a->sqlstate)) {
		request_error(r, 503, "busy", NULL, "the database could not do it now");
	} else if (!strcmp(a->sqlstate, "2BP01") ||
		   (!strcmp(a->sqlstate, "23503") && is_deletion(r))) {
		refuse_deletion(r, a);
	} else if (!strcmp(a->sqlstate, "P0002") || !strcmp(a->sqlstate, "23503")) {
		request_error(r, 422, "unknown_service", NULL, "the service is gone");
	} else if (!strcmp(a->sqlstate, "22023") && a->column) {
		refuse_column(r, a);
	} else {
		log_error("request path=%s sqlstate=%s message=%s", r->route->path, a->sqlstate,
			  quoted(a->message));
		request_error(r, 500, "internal", NULL, "the database refused it, see the log");
	}
}

void request_free_body(struct request *r)
{
	r->node->api->held -= r->held;
	r->held = 0;
	buf_free(&r->body);
	memset(&r->body, 0, sizeof(r->body));
}

static void request_free(struct request *r)
{
	request_free_body(r);
	r->node->api->answers -= r->sent;
	list_del(&r->link);
	list_del(&r->large);
	buf_free(&r->out);
	new_jobs_free(&r->jobs);
	free(r->submission.out);
	service_spec_free(&r->spec);
	schedule_spec_free(&r->schedule);
	report_free(&r->report);
	free(r);
}

void request_answer(struct request *r, const struct db_answer *answer)
{
	r->pending = false;
	if (!r->conn)
		request_free(r);
	else
		failed(r, answer);
}

static void on_answer(void *arg, const struct db_answer *answer)
{
	struct request *r = arg;

	r->node->api->rows -= r->rows;
	r->rows = 0;
	if (!r->conn || answer->status != DB_DONE) {
		request_answer(r, answer);
		return;
	}
	r->pending = false;
	r->got(r, answer->result);
}

void request_query(struct request *r, const struct db_stmt *stmt, struct db_params *p,
		   bool writes, void (*got)(struct request *r, const PGresult *result))
{
	struct api *api = r->node->api;

	if (r->limit && (api->rows + r->limit > MAX_ROWS || api->answers > MAX_ANSWERS)) {
		if (p)
			db_params_free(p);
		request_error(r, 429, "busy", NULL, "too much is asked for at a time");
		return;
	}
	r->pending = true;
	r->writes |= writes;
	r->got = got;
	r->rows = r->limit;
	api->rows += r->rows;
	db_query(&api->db, stmt, p, on_answer, r);
}

/* ---------------------------------------------------------------- query strings */

const struct arg *request_arg(const struct request *r, const char *name)
{
	for (unsigned int i = 0; i < r->nr_args; i++)
		if (!strcmp(r->args[i].name, name))
			return &r->args[i];
	return NULL;
}

bool request_number(struct request *r, const char *name, int64_t min, int64_t max,
		    int64_t *value)
{
	const struct arg *arg = request_arg(r, name);

	if (!arg)
		return true;
	if (parse_digits(arg->value, arg->len, max, value) && *value >= min)
		return true;
	request_error(r, 400, "out_of_range", name, "must be %lld to %lld", (long long)min,
		      (long long)max);
	return false;
}

static enum MHD_Result add_arg(void *cls, enum MHD_ValueKind kind, const char *name,
			       size_t name_len, const char *value, size_t len)
{
	struct request *r = cls;
	struct arg *arg;

	(void)kind;
	if (r->nr_args == MAX_ARGS || strlen(name) != name_len || name_len > 100 ||
	    !text_is_good(name, name_len, 1, 100)) {
		bad_set(&r->bad, 400, "unknown_field", "query", "there is no such parameter");
		return MHD_NO;
	}
	if (!text_is_good(value ? value : "", len, 1, 4000)) {
		bad_set(&r->bad, 400, "out_of_range", name,
			"must be UTF-8 without NUL, and not be empty");
		return MHD_NO;
	}
	if (request_arg(r, name)) {
		bad_set(&r->bad, 400, "duplicate_field", name, "appears twice");
		return MHD_NO;
	}
	arg = &r->args[r->nr_args++];
	arg->name = name;
	arg->value = value;
	arg->len = len;
	return MHD_YES;
}

/* Those that the route knows, each once. */
static bool read_args(struct request *r)
{
	MHD_get_connection_values_n(r->conn, MHD_GET_ARGUMENT_KIND, add_arg, r);
	if (r->bad.status)
		return false;
	for (unsigned int i = 0; r->route->params && i < r->nr_args; i++) {
		char word[104];

		snprintf(word, sizeof(word), "%s ", r->args[i].name);
		if (strchr(r->args[i].name, ' ') || !strstr(r->route->params, word))
			return bad_set(&r->bad, 400, "unknown_field", r->args[i].name,
				       "there is no such parameter");
	}
	return true;
}

/* ------------------------------------------------------------------- who may what */

static const char *header(struct request *r, const char *name)
{
	return MHD_lookup_connection_value(r->conn, MHD_HEADER_KIND, name);
}

/* All tokens are compared, so that time tells nothing. */
static const struct config_token *find_token(const struct config *c, const char *text)
{
	const struct config_token *found = NULL;
	unsigned char hash[SHA256_DIGEST_LENGTH];

	SHA256((const unsigned char *)text, strlen(text), hash);
	for (unsigned int i = 0; i < c->nr_tokens; i++)
		if (!CRYPTO_memcmp(hash, c->tokens[i].sha256, sizeof(hash)))
			found = &c->tokens[i];
	return found;
}

static bool check_token(struct request *r)
{
	const char *text = header(r, "Authorization");
	const struct config_token *token;

	if (!text)
		return bad_set(&r->bad, 401, "unauthorized", NULL, "a bearer token is needed");
	if (strncasecmp(text, "Bearer ", 7))
		return bad_set(&r->bad, 401, "unauthorized", NULL, "Authorization must be Bearer");
	token = find_token(r->node->config, text + 7 + strspn(text + 7, " "));
	if (!token)
		return bad_set(&r->bad, 401, "unauthorized", NULL, "the token is not known");
	if (!(token->roles & r->route->role))
		return bad_set(&r->bad, 403, "forbidden", NULL, "the token may not do that");
	r->roles = token->roles;
	return true;
}

static bool host_is_ours(const struct request *r, const char *host)
{
	size_t len = *host == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");
	char name[64];

	if (len >= sizeof(name) || len > strlen(host) || (host[len] && host[len] != ':'))
		return false;
	memcpy(name, host, len);
	name[len] = '\0';
	return !strcasecmp(name, "localhost") || !strcmp(name, "[::1]") ||
	       !strcmp(name, r->node->api->host) ||
	       (!strncmp(name, "127.", 4) && inet_addr(name) != INADDR_NONE);
}

/*
 * Without tokens whoever reaches the address may do all, which is for loopback alone. The
 * pages that a browser on this machine shows reach it as well: those say where they are from
 * (Origin), or, where a name was made to point to this machine, what name that was (Host).
 */
static bool check_browser(struct request *r)
{
	const char *host = header(r, "Host");

	if (header(r, "Origin"))
		return bad_set(&r->bad, 403, "browser", "Origin",
			       "without tokens requests from browsers are refused");
	if (host && !host_is_ours(r, host))
		return bad_set(&r->bad, 403, "browser", "Host",
			       "without tokens the host must be a loopback address");
	return true;
}

static bool may(struct request *r)
{
	if (!r->node->config->nr_tokens) {
		r->roles = ROLE_READ | ROLE_SUBMIT | ROLE_ADMIN;
		return check_browser(r);
	}
	return !r->route->role || check_token(r);
}

/* ------------------------------------------------------------------------ routes */

static bool match_part(struct request *r, const char *pattern, size_t pattern_len,
		       const char *part, size_t len)
{
	if (pattern_len == 4 && !strncmp(pattern, "{id}", 4))
		return parse_digits(part, len, INT64_MAX, &r->id);
	if (*pattern != '{')
		return len == pattern_len && !strncmp(part, pattern, len);
	if (!len || len >= sizeof(r->name))
		return false;
	memcpy(r->name, part, len);
	r->name[len] = '\0';
	return service_name_is_good(r->name);
}

static bool match(struct request *r, const char *pattern, const char *path)
{
	for (;;) {
		size_t pattern_len = strcspn(pattern, "/"), len = strcspn(path, "/");

		if (!match_part(r, pattern, pattern_len, path, len))
			return false;
		pattern += pattern_len;
		path += len;
		if (!*pattern || !*path)
			return *pattern == *path;
		pattern++;
		path++;
	}
}

/* Lets the answer say what there is instead: one of a few texts that live for ever. */
static const char *allow_of(unsigned int methods)
{
	static const char *const names[] = { "GET, HEAD", "POST", "PUT", "PATCH", "DELETE" };
	static char texts[32][48];
	char *text = texts[methods & 31], *to = text;

	if (*text)
		return text;
	for (unsigned int i = 0; i < 5; i++)
		if (methods >> i & 1)
			to += sprintf(to, "%s, ", names[i]);
	sprintf(to, "OPTIONS");
	return text;
}

static unsigned int method_bit(const char *method)
{
	switch (*method) {
	case 'G':
		return 1;
	case 'D':
		return 16;
	default:
		return method[1] == 'O' ? 2 : method[1] == 'U' ? 4 : 8;
	}
}

static bool find_route(struct request *r, const char *method, const char *path)
{
	const struct route *const all[] = { job_routes, service_routes, schedule_routes,
					     other_routes };
	const char *wanted = strcmp(method, "HEAD") ? method : "GET";
	unsigned int methods = 0;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		for (const struct route *route = all[i]; route->path; route++) {
			if (!match(r, route->path, path))
				continue;
			methods |= method_bit(route->method);
			if (!r->route || !strcmp(wanted, route->method))
				r->route = route;
		}
	}
	if (!methods)
		return bad_set(&r->bad, 404, "not_found", NULL, "there is no such path");
	if (!strcmp(wanted, r->route->method))
		return true;
	r->allow = allow_of(methods);
	if (!strcmp(method, "OPTIONS"))
		return bad_set(&r->bad, 204, "", NULL, "%s", "");
	return bad_set(&r->bad, 405, "method_not_allowed", NULL, "there is no such method here");
}

/* ------------------------------------------------------------------------ bodies */

static size_t body_limit(const struct request *r)
{
	if (r->route->body == BODY_NONE)
		return 0;
	if (r->route->body == BODY_JSON)
		return MAX_SMALL_BODY;
	return r->raw ? MAX_PAYLOAD : MAX_BODY;
}

static bool is_type(const char *value, const char *type)
{
	size_t len = strlen(type);

	return !strncasecmp(value, type, len) && (!value[len] || strchr("; \t", value[len]));
}

/* Content-Length if that is said, or 0. */
static int64_t body_length(struct request *r)
{
	const char *text = header(r, "Content-Length");
	int64_t len = 0;

	if (text && !parse_digits(text, strlen(text), INT64_MAX, &len))
		return INT64_MAX;
	return len;
}

static bool too_long(struct request *r)
{
	if (r->route->body == BODY_NONE)
		return bad_set(&r->bad, 400, "unexpected_body", NULL, "there must be no body");
	return bad_set(&r->bad, 413, r->raw ? "payload_too_large" : "body_too_large", NULL,
		       "the body may have at most %zu bytes", body_limit(r));
}

static bool check_body(struct request *r)
{
	const char *type = header(r, "Content-Type");
	int64_t len = body_length(r);

	if (r->route->body != BODY_NONE) {
		r->raw = r->route->body == BODY_JOBS && type &&
			 is_type(type, "application/octet-stream");
		if (!r->raw && (!type || !is_type(type, "application/json")))
			return bad_set(&r->bad, 415, "unsupported_type", "Content-Type",
				       r->route->body == BODY_JOBS ?
				       "must be application/json or application/octet-stream" :
				       "must be application/json");
	}
	if (len > (int64_t)body_limit(r))
		return too_long(r);
	if (r->node->api->held + len > MAX_HELD)
		return bad_set(&r->bad, 429, "busy", NULL, "too many requests at a time");
	return true;
}

static enum MHD_Result count_header(void *cls, enum MHD_ValueKind kind, const char *name,
				    const char *value)
{
	struct {
		unsigned int lengths, encodings;
	} *nr = cls;

	(void)kind;
	(void)value;
	nr->lengths += !strcasecmp(name, "Content-Length");
	nr->encodings += !strcasecmp(name, "Transfer-Encoding");
	return MHD_YES;
}

/* Whoever is in between may have taken the other one, and taken the rest for a request. */
static bool check_framing(struct request *r)
{
	struct {
		unsigned int lengths, encodings;
	} nr = {};

	MHD_get_connection_values(r->conn, MHD_HEADER_KIND, count_header, &nr);
	if (nr.lengths + nr.encodings <= 1)
		return true;
	r->closes = true;
	return bad_set(&r->bad, 400, "ambiguous_length", NULL,
		       "the length of the body is said more than once");
}

static bool check_request(struct request *r, const char *method, const char *path)
{
	if (!check_framing(r) || !find_route(r, method, path))
		return false;
	if (!may(r) || !check_body(r) || !read_args(r))
		return false;
	if (r->node->api->draining && r->route->role)
		return bad_set(&r->bad, 503, "draining", NULL, "this node is about to end");
	return true;
}

static enum MHD_Result receive(struct request *r, const char *data, size_t len)
{
	struct api *api = r->node->api;

	if (boottime_ns() - r->began_ns > REQUEST_NS)
		return MHD_NO;
	if (!r->bad.status && r->body.len + len > body_limit(r))
		too_long(r);
	if (!r->bad.status && api->held + len > MAX_HELD)
		bad_set(&r->bad, 429, "busy", NULL, "too many requests at a time");
	if (r->bad.status) {
		r->discarded += len;
		return r->discarded > MAX_DISCARDED ? MHD_NO : MHD_YES;
	}
	buf_add(&r->body, data, len);
	api->held += len;
	r->held += len;
	return MHD_YES;
}

/* --------------------------------------------------------------------- connections */

static void add_headers(const struct request *r, struct MHD_Response *response)
{
	char seconds[16];

	MHD_add_response_header(response, "Cache-Control", "no-store");
	MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
	if (r->status != 204)
		MHD_add_response_header(response, "Content-Type",
					r->type ? r->type : "application/json");
	if (r->status == 401)
		MHD_add_response_header(response, "WWW-Authenticate", "Bearer realm=\"twheel\"");
	if (r->allow)
		MHD_add_response_header(response, "Allow", r->allow);
	if (*r->location)
		MHD_add_response_header(response, "Location", r->location);
	if (r->retry_after) {
		snprintf(seconds, sizeof(seconds), "%u", r->retry_after);
		MHD_add_response_header(response, "Retry-After", seconds);
	}
	if (r->node->api->draining || r->node->api->leaving || r->closes)
		MHD_add_response_header(response, "Connection", "close");
}

static enum MHD_Result send_answer(struct request *r)
{
	struct api *api = r->node->api;
	struct MHD_Response *response;
	enum MHD_Result result;

	/* Payloads are large, too. Twice, so that lists alone do not keep these out. */
	if (r->out.len > LARGE_ANSWER && api->answers + r->out.len > 2 * MAX_ANSWERS && !r->writes)
		request_error(r, 429, "busy", NULL, "too many answers wait for their clients");
	if (r->status == 204)
		r->out.len = 0;
	response = MHD_create_response_from_buffer(r->out.len, r->out.len ? r->out.data : "",
						   r->out.len ? MHD_RESPMEM_MUST_FREE :
						   MHD_RESPMEM_PERSISTENT);
	if (!response)
		return MHD_NO;
	r->sent = r->out.len;
	api->answers += r->sent;
	r->answered_ns = boottime_ns();
	if (r->out.len)
		memset(&r->out, 0, sizeof(r->out));
	add_headers(r, response);
	result = MHD_queue_response(r->conn, r->status, response);
	MHD_destroy_response(response);
	return result;
}

/*
 * The headers are there. If nobody waits with the body for our word it is best read and thrown
 * away: what ends a connection with bytes unread may take the answer with it.
 */
static enum MHD_Result begin(struct api *api, struct MHD_Connection *conn, const char *path,
			     const char *method, struct request **cls)
{
	struct request *r = xcalloc(1, sizeof(*r));

	r->node = api->node;
	r->conn = conn;
	r->began_ns = boottime_ns();
	list_add_tail(&api->requests, &r->link);
	*cls = r;
	r->visitor = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
			     ->socket_context;
	r->visitor->request = r;
	if (check_request(r, method, path))
		return MHD_YES;
	if (!r->closes && !header(r, "Expect") && body_length(r) <= MAX_DISCARDED)
		return MHD_YES;
	request_refuse(r);
	return send_answer(r);
}

static void read_large(struct twheel *w, struct twheel_timer *t, uint64_t missed);

static void arm_large(struct api *api)
{
	uint64_t now_ns = boottime_ns();

	loop_arm(&api->node->loop, &api->large_timer,
		 api->large_ns > now_ns ? api->large_ns - now_ns : 0, read_large);
}

static void read_large(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct api *api = TWHEEL_CONTAINER(t, struct api, large_timer);
	struct request *r = TWHEEL_CONTAINER(api->large.next, struct request, large);
	uint64_t begin_ns = boottime_ns();

	(void)w;
	(void)missed;
	list_del(&r->large);
	r->route->fn(r);
	api->large_ns = 2 * boottime_ns() - begin_ns;
	if (!list_is_empty(&api->large))
		arm_large(api);
}

/* The connection is left alone until that is answered. */
static void read_later(struct request *r)
{
	struct api *api = r->node->api;
	bool is_first = list_is_empty(&api->large);

	list_add_tail(&api->large, &r->large);
	if (is_first)
		arm_large(api);
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *path,
				  const char *method, const char *version, const char *data,
				  size_t *len, void **req_cls)
{
	struct request *r = *req_cls;
	size_t got = *len;

	(void)version;
	if (!r)
		return begin(cls, conn, path, method, (struct request **)req_cls);
	if (got) {
		*len = 0;
		return receive(r, data, got);
	}
	if (!r->answered) {
		if (r->bad.status)
			request_refuse(r);
		else if (r->node->api->db.nr_queued > MAX_QUEUED)
			request_error(r, 429, "busy", NULL, "too many requests are queued");
		else if (r->body.len > LARGE_BODY)
			read_later(r);
		else
			r->route->fn(r);
	}
	if (r->answered)
		return send_answer(r);
	r->suspended = true;
	MHD_suspend_connection(conn);
	return MHD_YES;
}

static void on_completed(void *cls, struct MHD_Connection *conn, void **req_cls,
			 enum MHD_RequestTerminationCode code)
{
	struct request *r = *req_cls;

	(void)cls;
	(void)conn;
	(void)code;
	*req_cls = NULL;
	if (!r)
		return;
	r->conn = NULL;
	r->visitor->since_ns = boottime_ns();
	r->visitor->request = NULL;
	if (!r->pending)
		request_free(r);
}

/* Whether the client has had its time; not while it waits for us. */
static bool is_over(const struct api *api, const struct visitor *v, uint64_t now_ns)
{
	bool crowded = api->nr_visitors > CROWD;
	const struct request *r = v->request;

	if (!r)
		return now_ns - v->since_ns > (crowded ? CROWDED_IDLE_NS : IDLE_S * TWHEEL_SEC);
	if (r->answered_ns)
		return now_ns - r->answered_ns > (crowded ? CROWDED_ANSWER_NS : ANSWER_NS);
	return !r->suspended && now_ns - r->began_ns > REQUEST_NS;
}

/* libmicrohttpd looks at nothing but how long ago the last byte was. It sees that they end. */
static void look(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct api *api = TWHEEL_CONTAINER(t, struct api, look_timer);
	uint64_t now_ns = boottime_ns();

	(void)w;
	(void)missed;
	for (struct list *l = api->visitors.next; l != &api->visitors; l = l->next) {
		struct visitor *v = TWHEEL_CONTAINER(l, struct visitor, link);

		if (is_over(api, v, now_ns))
			shutdown(v->fd, SHUT_RDWR);
	}
	if (api->nr_visitors)
		loop_arm(&api->node->loop, t, LOOK_NS, look);
}

static void on_connection(void *cls, struct MHD_Connection *conn, void **context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct visitor *v = *context;
	struct api *api = cls;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		v = xcalloc(1, sizeof(*v));
		v->fd = MHD_get_connection_info(conn, MHD_CONNECTION_INFO_CONNECTION_FD)
				->connect_fd;
		v->since_ns = boottime_ns();
		list_add_tail(&api->visitors, &v->link);
		*context = v;
		if (!api->nr_visitors++)
			loop_arm(&api->node->loop, &api->look_timer, LOOK_NS, look);
		return;
	}
	list_del(&v->link);
	free(v);
	api->nr_visitors--;
}

static void on_timer(struct twheel *w, struct twheel_timer *t, uint64_t missed);

/* What is over for certain is done at once; the timer is moved only if it would be too late. */
static void run(struct api *api)
{
	MHD_UNSIGNED_LONG_LONG ms = 0;
	uint64_t at_ns;
	int rounds = 0;

	api->resumed = false;
	do {
		MHD_run(api->daemon);
		if (MHD_get_timeout(api->daemon, &ms) != MHD_YES)
			return;
	} while (!ms && ++rounds < 16);
	at_ns = boottime_ns() + ms * TWHEEL_MSEC;
	if (api->timer_ns && api->timer_ns <= at_ns)
		return;
	api->timer_ns = at_ns;
	twheel_arm(api->node->loop.wheel, &api->timer, ms * TWHEEL_MSEC, on_timer);
}

static void on_timer(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct api *api = TWHEEL_CONTAINER(t, struct api, timer);

	(void)w;
	(void)missed;
	api->timer_ns = 0;
	run(api);
}

static void on_fd(struct loop_fd *fd, uint32_t events)
{
	(void)events;
	run(TWHEEL_CONTAINER(fd, struct api, fd));
}

static void on_log(void *arg, const char *format, va_list args)
	__attribute__((format(printf, 2, 0)));

static void on_log(void *arg, const char *format, va_list args)
{
	char text[256];

	(void)arg;
	vsnprintf(text, sizeof(text), format, args);
	text[strcspn(text, "\n")] = '\0';
	log_debug("http message=%s", quoted(text));
}

/* -------------------------------------------------------------------- open and close */

static void cannot_listen(const char *where, const char *why)
{
	log_error("cannot-listen address=%s error=%s", quoted(where), quoted(why));
	exit(1);
}

/* "ADDRESS:PORT", an IPv6 address in brackets. */
static struct addrinfo *resolve(const char *where, char *host, size_t room)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
					.ai_socktype = SOCK_STREAM };
	const char *colon = strrchr(where, ':');
	struct addrinfo *ai;
	char address[64];
	size_t len;
	int error;

	len = colon ? (size_t)(colon - where) : room;
	if (len >= room || len >= sizeof(address))
		cannot_listen(where, "must be ADDRESS:PORT");
	memcpy(host, where, len);
	host[len] = '\0';
	snprintf(address, sizeof(address), "%s", *host == '[' ? host + 1 : host);
	address[strcspn(address, "]")] = '\0';
	error = getaddrinfo(*address ? address : NULL, colon + 1, &hints, &ai);
	if (error)
		cannot_listen(where, gai_strerror(error));
	return ai;
}

/* Whether the predecessor listens there: then it is not bound again. */
static bool is_bound_to(int fd, const struct addrinfo *ai)
{
	struct sockaddr_storage bound = {};
	socklen_t len = sizeof(bound);

	return fd >= 0 && !getsockname(fd, (struct sockaddr *)&bound, &len) &&
	       len == ai->ai_addrlen && !memcmp(&bound, ai->ai_addr, len);
}

static int bind_to(const struct addrinfo *ai)
{
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;

	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) &&
	    !bind(fd, ai->ai_addr, ai->ai_addrlen) && !listen(fd, 1024))
		return fd;
	return -1;
}

static int listen_at(struct api *api, const char *where)
{
	struct addrinfo *ai = resolve(where, api->host, sizeof(api->host));
	struct predecessor *p = &api->node->predecessor;
	struct sockaddr_in6 bound = {};
	socklen_t len = sizeof(bound);
	int fd = -1;

	if (is_bound_to(p->listen_fd, ai)) {
		fd = p->listen_fd;
		p->listen_fd = -1;
	} else {
		fd = bind_to(ai);
	}
	if (fd < 0 || getsockname(fd, (struct sockaddr *)&bound, &len))
		cannot_listen(where, strerror(errno));
	freeaddrinfo(ai);
	/* The port is at the same place in both families. */
	log_note("http-listens address=%s port=%d", quoted(api->host), ntohs(bound.sin6_port));
	return fd;
}

int api_listens(const struct node *n)
{
	return n->api ? n->api->listen_fd : -1;
}

void api_open(struct node *n)
{
	struct api *api;

	if (!strcmp(n->config->listen, "none"))
		return;
	api = xcalloc(1, sizeof(*api));
	api->node = n;
	list_init(&api->requests);
	list_init(&api->visitors);
	list_init(&api->large);
	api->listen_fd = listen_at(api, n->config->listen);
	n->api = api;
	/* All requests wait on it, so none waits long for a lock. */
	api->db = (struct db){
		.what = "api",
		.loop = &n->loop,
		.conninfo = n->config->database,
		.node = n->lease.text,
		.identity = &n->lease.identity,
		.options = "-c lock_timeout=200ms -c enable_seqscan=off",
		.arg = n,
	};
	db_open(&api->db);
}

void api_serve(struct node *n)
{
	const union MHD_DaemonInfo *info;
	struct api *api = n->api;

	if (!api)
		return;
	api->daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
				       MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, api,
				       MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
				       MHD_OPTION_LISTEN_SOCKET, api->listen_fd,
				       MHD_OPTION_NOTIFY_COMPLETED, on_completed, api,
				       MHD_OPTION_NOTIFY_CONNECTION, on_connection, api,
				       MHD_OPTION_CONNECTION_LIMIT, MAX_CONNECTIONS,
				       MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S,
				       MHD_OPTION_CONNECTION_MEMORY_LIMIT,
				       (size_t)CONNECTION_MEMORY,
				       MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_END);
	info = api->daemon ? MHD_get_daemon_info(api->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!info)
		cannot_listen(n->config->listen, "cannot start the HTTP server");
	api->fd.fn = on_fd;
	api->fd.fd = info->epoll_fd;
	loop_set(&n->loop, &api->fd, EPOLLIN);
	run(api);
}

bool api_is_up(const struct node *n)
{
	return !n->api || n->api->db.state == DB_UP;
}

void api_reset(struct node *n)
{
	if (n->api)
		db_reset(&n->api->db);
}

void api_flush(struct node *n)
{
	if (n->api && n->api->resumed)
		run(n->api);
}

/* Nothing is under way for anybody who waits for an answer. */
bool api_is_idle(const struct node *n)
{
	const struct api *api = n->api;

	if (!api)
		return true;
	if (api->leaving && api->nr_visitors && boottime_ns() < api->linger_ns)
		return false;
	if (api->db.first)
		return false;
	for (const struct list *l = api->requests.next; l != &api->requests; l = l->next)
		if (TWHEEL_CONTAINER(l, struct request, link)->suspended)
			return false;
	return true;
}

static void close_listener(struct api *api)
{
	if (api->listen_fd < 0)
		return;
	/* It may be another process's by now, which libmicrohttpd does not need to know. */
	if (!api->daemon || MHD_quiesce_daemon(api->daemon) == api->listen_fd)
		close(api->listen_fd);
	api->listen_fd = -1;
	if (api->daemon)
		run(api);
}

void api_drain(struct node *n)
{
	struct api *api = n->api;

	if (!api || api->draining)
		return;
	api->draining = true;
	close_listener(api);
}

void api_leave(struct node *n)
{
	struct api *api = n->api;

	if (!api || api->leaving)
		return;
	api->leaving = true;
	api->linger_ns = boottime_ns() + LINGER_NS;
	close_listener(api);
}

/*
 * Those for which a statement is under way are freed when that is answered, if it ever is:
 * what was asked on a connection that is closed is not.
 */
void api_close(struct node *n)
{
	struct api *api = n->api;

	if (!api)
		return;
	api_drain(n);
	if (!api->daemon) {
		db_close(&api->db);
		return;
	}
	for (struct list *l = api->requests.next; l != &api->requests; l = l->next) {
		struct request *r = TWHEEL_CONTAINER(l, struct request, link);

		if (r->suspended)
			request_error(r, 503, r->writes ? "unknown" : "draining", NULL,
				      "this node has ended");
	}
	run(api);
	loop_set(&n->loop, &api->fd, 0);
	twheel_cancel(n->loop.wheel, &api->timer);
	twheel_cancel(n->loop.wheel, &api->look_timer);
	twheel_cancel(n->loop.wheel, &api->large_timer);
	MHD_stop_daemon(api->daemon);
	api->daemon = NULL;
	db_close(&api->db);
}
