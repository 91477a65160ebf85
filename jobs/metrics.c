// SPDX-License-Identifier: GPL-2.0
/*
 * What is counted, as Prometheus reads it, and what can be asked of the node and the cluster.
 */
#include <microhttpd.h>
#include <stddef.h>
#include <string.h>

#include "api.h"

/* ------------------------------------------------------------------------ metrics */

/** struct counter - of struct metrics */
struct counter {
	const char *name, *help;
	size_t offset;
};

#define M(member) offsetof(struct metrics, member)

static const struct counter counters[] = {
	{ "jobs_fired_total", "Jobs whose time has come.", M(fired) },
	{ "jobs_handed_over_total", "Jobs handed over to queues.", M(handed) },
	{ "calls_total", "Calls that were begun.", M(called) },
	{ "calls_done_total", "Calls that were answered well.", M(done) },
	{ "calls_again_total", "Calls that failed and are repeated.", M(again) },
	{ "calls_failed_total", "Calls that failed for good.", M(failed) },
	{ "calls_accepted_total", "Calls answered 202.", M(accepted) },
	{ "calls_overdue_total", "Calls of which no result came in time.", M(overdue) },
	{ "jobs_submitted_total", "Jobs made by requests.", M(submitted) },
	{ "jobs_repeated_total", "Jobs of requests whose key had been seen.", M(repeated) },
	{ "jobs_cancelled_total", "Jobs cancelled by requests.", M(cancelled) },
	{ "jobs_moved_total", "Jobs moved by requests.", M(moved) },
	{ "jobs_planned_total", "Jobs made by schedules.", M(planned) },
	{ "jobs_skipped_total", "Jobs of schedules that were not begun.", M(skipped) },
	{ "schedules_misfired_total", "Times that a schedule was too late.", M(misfired) },
	{ "schedules_wrong_total", "Times that a schedule was found to be wrong.",
	  M(wrong_schedules) },
	{ "looks_total", "Looks for jobs.", M(looks) },
	{ "looked_jobs_total", "Jobs found by looks.", M(looked) },
	{ "batches_total", "Statements that fired jobs.", M(batches) },
	{ "shards_lost_total", "Shards that another node had taken.", M(lost_shards) },
	{ "shards_taken_total", "Shards taken.", M(taken_shards) },
	{ "joins_total", "Times the node joined its cluster.", M(joins) },
	{ "amqp_connects_total", "Connections to a broker.", M(amqp_connects) },
	{ "amqp_confirmed_total", "Messages that a broker confirmed.", M(amqp_confirmed) },
	{ "amqp_refused_total", "Messages that a broker refused.", M(amqp_refused) },
	{ "amqp_unroutable_total", "Messages for which no queue is bound.", M(amqp_unroutable) },
};

static void gauge(struct buf *out, const char *name, const char *help, double value)
{
	buf_printf(out, "# HELP twheel_%s %s\n# TYPE twheel_%s gauge\ntwheel_%s %.15g\n",
		   name, help, name, name, value);
}

/* Of powers of two from 2 us to 2^38 us, which is three days. */
static void add_lateness(const struct metrics *m, struct buf *out)
{
	static const char name[] = "twheel_late_seconds";
	uint64_t sum = 0;
	unsigned int i;

	buf_printf(out, "# HELP %s How late jobs were begun.\n# TYPE %s histogram\n", name, name);
	for (i = 0; i < 39; i++) {
		sum += m->late_us[i];
		if (i)
			buf_printf(out, "%s_bucket{le=\"%.15g\"} %llu\n", name,
				   (double)(UINT64_C(1) << i) / 1e6, (unsigned long long)sum);
	}
	sum += m->late_us[39];
	buf_printf(out, "%s_bucket{le=\"+Inf\"} %llu\n%s_sum %.15g\n%s_count %llu\n", name,
		   (unsigned long long)sum, name, (double)m->late_sum_us / 1e6, name,
		   (unsigned long long)sum);
	gauge(out, "late_max_seconds", "The latest since the start.",
	      (double)m->late_max_us / 1e6);
}

/* A label, of what may have any byte in it but NUL. */
static void add_label(struct buf *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			buf_printf(out, "\\%c", *text);
		else if (*text == '\n')
			buf_puts(out, "\\n");
		else
			buf_add(out, text, 1);
	}
}

static void add_services(struct node *n, struct buf *out)
{
	buf_puts(out, "# HELP twheel_service_running Calls that are under way.\n"
		 "# TYPE twheel_service_running gauge\n");
	for (const struct service *s = n->services.first; s; s = s->next) {
		if (s->gone)
			continue;
		buf_puts(out, "twheel_service_running{service=\"");
		add_label(out, s->name);
		buf_printf(out, "\"} %u\n", s->running);
	}
	buf_puts(out, "# HELP twheel_service_circuit_open Whether its calls are held back.\n"
		 "# TYPE twheel_service_circuit_open gauge\n");
	for (const struct service *s = n->services.first; s; s = s->next) {
		if (s->gone)
			continue;
		buf_puts(out, "twheel_service_circuit_open{service=\"");
		add_label(out, s->name);
		buf_printf(out, "\"} %d\n", s->closed_ns > boottime_ns());
	}
}

/* Of a node that has a broker. */
static void add_amqp(struct node *n, struct buf *out)
{
	const struct amqp_view v = amqp_look(n);

	if (!v.used)
		return;
	gauge(out, "amqp_connected", "Whether there is a connection to a broker.",
	      v.state != AMQP_DOWN);
	gauge(out, "amqp_blocked", "Whether the broker takes nothing, as it lacks memory or disk.",
	      v.state == AMQP_BLOCKED);
	gauge(out, "amqp_queued", "Messages that wait to be sent.", v.nr_queued);
}

void metrics_write(struct node *n, struct buf *out)
{
	const struct metrics *m = &n->metrics;

	for (size_t i = 0; i < ARRAY_SIZE(counters); i++) {
		const struct counter *c = &counters[i];
		uint64_t value = *(const uint64_t *)((const char *)m + c->offset);

		buf_printf(out, "# HELP twheel_%s %s\n# TYPE twheel_%s counter\ntwheel_%s %llu\n",
			   c->name, c->help, c->name, c->name, (unsigned long long)value);
	}
	add_lateness(m, out);
	gauge(out, "jobs_in_memory", "Jobs that have a timer.", n->horizon.nr_jobs);
	gauge(out, "jobs_waiting", "Jobs of the cluster, as estimated.", n->lease.nr_waiting);
	gauge(out, "shards_owned", "Shards of this node.", n->lease.nr_owned);
	gauge(out, "nodes", "Nodes that are alive.", n->lease.nr_nodes);
	gauge(out, "lease_valid", "Whether it may fire.", lease_is_valid(n));
	gauge(out, "calls_running", "Calls that are under way.", n->calls.nr);
	gauge(out, "results_waiting", "Results that are to be recorded.",
	      n->finish.nr + n->finish.nr_held);
	if (clock_is_known(n))
		gauge(out, "clock_error_seconds", "How wrong the database's clock may be known.",
		      (double)clock_error_us(n) / 1e6);
	add_amqp(n, out);
	add_services(n, out);
}

static void get_metrics(struct request *r)
{
	metrics_write(r->node, &r->out);
	r->type = "text/plain; version=0.0.4; charset=utf-8";
	request_reply(r, MHD_HTTP_OK);
}

/* ------------------------------------------------------------------------- health */

static void get_health(struct request *r)
{
	buf_puts(&r->out, "{\"status\": \"ok\"}\n");
	request_reply(r, MHD_HTTP_OK);
}

static const char *not_ready(const struct node *n)
{
	/* Of another process, which is the node by now; this one has connections of it still. */
	if (n->successor.has_all)
		return NULL;
	if (n->draining)
		return "the node is about to end";
	if (n->services.db.state != DB_UP || !submit_is_up(n) || !api_is_up(n))
		return "the database is not there";
	if (!n->lease.joined)
		return "the node has not joined";
	if (!lease_is_valid(n))
		return "the lease is over";
	return NULL;
}

static void get_ready(struct request *r)
{
	const char *why = not_ready(r->node);

	if (why) {
		request_error(r, 503, "not_ready", NULL, "%s", why);
		return;
	}
	buf_puts(&r->out, "{\"status\": \"ready\"}\n");
	request_reply(r, MHD_HTTP_OK);
}

/* ------------------------------------------------------------------------ cluster */

static void reply_rows(struct request *r, const PGresult *result, const char *name)
{
	buf_printf(&r->out, "{\"%s\": [", name);
	for (int row = 0; row < PQntuples(result); row++) {
		if (row)
			buf_puts(&r->out, ",\n");
		buf_add(&r->out, db_text(result, row, 0), db_len(result, row, 0));
	}
	buf_puts(&r->out, "]}\n");
	request_reply(r, MHD_HTTP_OK);
}

/* The first of each shard, of which the first are taken. */
static const struct db_stmt next = {
	"api_next",
	"select json_build_object('id', j.id, 'service', s.service, 'at', " UTC("j.at") ", "
	"'due', " UTC("j.due") ", 'shard', j.shard, 'node', h.owner)::text "
	"from twheel.shard h, lateral (select * from twheel.job j where j.shard = h.shard "
	"and j.state = 0 and j.due < 'infinity' order by j.due, j.id + 0 limit $1) j "
	"left join twheel.service s on s.id = j.service order by j.due, j.id limit $1",
	{ PG_INT4 },
};

static void got_next(struct request *r, const PGresult *result)
{
	reply_rows(r, result, "jobs");
}

static void get_next(struct request *r)
{
	struct db_params p = {};

	r->limit = 20;
	if (!request_number(r, "limit", 1, 1000, &r->limit))
		return;
	db_add_int4(&p, r->limit);
	request_query(r, &next, &p, false, got_next);
}

static const struct db_stmt nodes = {
	"api_nodes",
	"select json_build_object('node', n.node, 'name', n.name, 'url', n.url, 'beat', n.beat, "
	"'started', " UTC("n.started") ", 'schema_min', n.schema_min, "
	"'schema_max', n.schema_max, 'shards', (select count(*) from twheel.shard h "
	"where h.owner = n.node), 'this', n.node = $1)::text "
	"from twheel.node n order by n.started, n.node limit 1000",
	{ PG_UUID },
};

static void got_nodes(struct request *r, const PGresult *result)
{
	reply_rows(r, result, "nodes");
}

static void get_nodes(struct request *r)
{
	struct db_params p = {};

	db_add_bytes(&p, r->node->lease.node, sizeof(r->node->lease.node));
	request_query(r, &nodes, &p, false, got_nodes);
}

/* ------------------------------------------------------------------------ OpenAPI */

extern const char openapi_begin[], openapi_end[];

__asm__(".pushsection .rodata\n"
	"openapi_begin: .incbin \"openapi.json\"\n"
	"openapi_end: .byte 0\n"
	".popsection\n");

static void get_openapi(struct request *r)
{
	buf_add(&r->out, openapi_begin, openapi_end - openapi_begin);
	request_reply(r, MHD_HTTP_OK);
}

const struct route other_routes[] = {
	{ "GET", "/healthz", 0, BODY_NONE, "", get_health },
	{ "GET", "/readyz", 0, BODY_NONE, "", get_ready },
	{ "GET", "/metrics", ROLE_READ | ROLE_ADMIN, BODY_NONE, "", get_metrics },
	{ "GET", "/v1/next", ROLE_READ | ROLE_ADMIN, BODY_NONE, "limit ", get_next },
	{ "GET", "/v1/nodes", ROLE_READ | ROLE_ADMIN, BODY_NONE, "", get_nodes },
	{ "GET", "/v1/openapi", 0, BODY_NONE, "", get_openapi },
	{}
};
