// SPDX-License-Identifier: GPL-2.0
/*
 * Starts and ends what a node consists of.
 *
 * To drain: shards are given away at once, in one statement, which other nodes are told of.
 * Calls that are under way end by themselves, or at the end of the time that there is for
 * that, and what came of them is recorded; what is cut off is over when its mark says so. So
 * end those as well that have handed their shards over to another process (handover.c).
 */
#include <stdlib.h>
#include <time.h>

#include "node.h"

#define DRAIN_LOOK_NS	(10 * TWHEEL_MSEC)

/* What came together in a turn of the loop. */
static void flush(void *arg)
{
	struct node *n = arg;

	predecessor_flush(n);
	submit_flush(n);
	finish_flush(n);
	/* Between two batches there is rest. */
	successor_flush(n);
	fire_flush(n);
	api_flush(n);
}

int node_start(struct node *n, const struct config *c)
{
	srand48(boottime_ns());
	n->config = c;
	n->loop.idle = flush;
	n->loop.arg = n;
	if (predecessor_open(n) || horizon_init(n))
		return -1;
	lease_open(n);
	services_open(n);
	horizon_open(n);
	plan_open(n);
	fire_open(n);
	calls_open(n);
	amqp_open(n);
	finish_open(n);
	submit_open(n);
	api_open(n);
	if (!n->predecessor.waits)
		api_serve(n);
	return 0;
}

/* Nothing was asked that is not answered: others may wait to be told of jobs, or services. */
static bool is_drained(const struct node *n)
{
	return !n->fire.db.first && !n->finish.db.first && !n->services.db.first &&
	       !n->plan.db.first && !n->calls.nr && !n->finish.nr && !n->finish.nr_held &&
	       !n->lease.taking && submit_is_idle(n) && api_is_idle(n);
}

/* What comes of calls of the process before this one is told by way of this one. */
static bool is_between(const struct node *n)
{
	return n->successor.phase == SUCC_STANDS && predecessor_goes_on(n);
}

static void drain_time(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct node *n = TWHEEL_CONTAINER(t, struct node, drain_timer);

	(void)w;
	(void)missed;
	amqp_drain(n);
	if ((!is_drained(n) && boottime_ns() < n->drain_until_ns) || is_between(n)) {
		loop_arm(&n->loop, t, DRAIN_LOOK_NS, drain_time);
		return;
	}
	if (!is_drained(n))
		successor_look(n);
	log_note("drained calls=%u results=%u", n->calls.nr, n->finish.nr + n->finish.nr_held);
	loop_stop(&n->loop);
}

static void begin_drain(struct node *n, const char *how)
{
	log_note("%s node=%s shards=%u calls=%u", how, n->lease.text, n->lease.nr_owned,
		 n->calls.nr);
	n->draining = true;
	n->drain_until_ns = boottime_ns() + n->config->drain_ms * TWHEEL_MSEC;
	loop_arm(&n->loop, &n->drain_timer, 0, drain_time);
}

void node_drain(struct node *n)
{
	if (n->draining)
		return;
	if (n->successor.phase != SUCC_STANDS)
		successor_end(n);
	begin_drain(n, "drain");
	lease_drain(n);
	api_drain(n);
}

void node_leave(struct node *n)
{
	begin_drain(n, "hand-over");
	lease_leave(n);
	api_leave(n);
}

void node_stop(struct node *n)
{
	successor_end(n);
	predecessor_close(n);
	twheel_cancel(n->loop.wheel, &n->drain_timer);
	api_close(n);
	submit_close(n);
	calls_close(n);
	amqp_close(n);
	fire_close(n);
	finish_close(n);
	lease_close(n);
	plan_close(n);
	horizon_close(n);
	services_close(n);
}
