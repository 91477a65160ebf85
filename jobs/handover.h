/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a process of twheeld hands to the one that takes its place, in memory that both see: a
 * struct given, and behind it samples, transactions and jobs. The two may be of different
 * versions, so that this has a layout of its own: who changes it changes GIVEN_MAGIC.
 */
#ifndef TWHEELD_HANDOVER_H
#define TWHEELD_HANDOVER_H

#include <assert.h>

#include "node.h"
#include "snapshot.h"

#define GIVEN_MAGIC	"twheeld1"

/**
 * struct given_shard - a shard
 * @fence:    with which it is owned
 * @from_us:  see struct cursor
 * @aside_us: see struct cursor
 * @is_owned: is it
 */
struct given_shard {
	int64_t fence;
	int64_t from_us;
	int64_t aside_us;
	uint64_t is_owned;
};

/**
 * struct given_job - a job that is in memory; all but the timer as of struct job
 * @id:         of the row
 * @due_us:     as in the row
 * @expires_ns: of its timer; 0 if it is not armed, as the job is due
 * @service:    its id
 * @slack_ms:   how much later it may be
 * @bytes:      of its payload
 * @attempt:    how many were begun
 * @shard:      as in the row
 * @state:      JOB_DELAY and so on
 * @flags:      JOB_SKIPS and so on
 * @heard:      of a notification, and not read yet
 * @pad:        0
 */
struct given_job {
	int64_t id;
	int64_t due_us;
	uint64_t expires_ns;
	int32_t service;
	int32_t slack_ms;
	int32_t bytes;
	int32_t attempt;
	int8_t shard;
	uint8_t state;
	uint8_t flags;
	uint8_t heard;
	uint8_t pad[4];
};

/**
 * struct given - all of it
 * @magic:      GIVEN_MAGIC without the NUL
 * @node:       the uuid, which stays
 * @identity:   of the database
 * @valid_ns:   see struct lease
 * @last_us:    see struct snapshots
 * @nr_samples: of the clock
 * @nr_running: transactions of the last look
 * @nr_jobs:    in order of @due_us
 * @is_joined:  else there is nothing to be handed over
 * @look_ns:    when the next look is to begin
 * @capacity:   of the wheel of jobs
 * @ends_ns:    by then the process has ended, and all from which it took over
 * @nr_nodes:   see struct lease
 * @pad:        0
 * @shards:     all
 */
struct given {
	char magic[8];
	uint8_t node[16];
	char identity[128];
	uint64_t valid_ns;
	int64_t last_us;
	uint32_t nr_samples;
	uint32_t nr_running;
	uint32_t nr_jobs;
	uint32_t is_joined;
	uint64_t look_ns;
	uint64_t capacity;
	uint64_t ends_ns;
	uint32_t nr_nodes;
	uint32_t pad;
	struct given_shard shards[NR_SHARDS];
};

static_assert(sizeof(struct given_shard) == 32, "the layout");
static_assert(sizeof(struct given_job) == 48, "the layout");
static_assert(sizeof(struct given) == 216 + NR_SHARDS * sizeof(struct given_shard),
	      "the layout");
static_assert(sizeof(struct clock_sample) == 24, "the layout");
static_assert(sizeof(struct running) == 24, "the layout");

/* What is behind it. */
static inline const struct clock_sample *given_samples(const struct given *g)
{
	return (const struct clock_sample *)(g + 1);
}

static inline const struct running *given_running(const struct given *g)
{
	return (const struct running *)(given_samples(g) + g->nr_samples);
}

static inline const struct given_job *given_jobs(const struct given *g)
{
	return (const struct given_job *)(given_running(g) + g->nr_running);
}

static inline size_t given_size(const struct given *g)
{
	return sizeof(*g) + g->nr_samples * sizeof(struct clock_sample) +
	       g->nr_running * sizeof(struct running) + g->nr_jobs * sizeof(struct given_job);
}

/* Each fills in its part of the struct, and adds what is behind that, in this order. */
void lease_give(struct node *n, struct given *g, struct buf *more);
void horizon_give(struct node *n, struct given *g, struct buf *more);

/* Has what was given, as if it had always been here. */
void lease_take(struct node *n, const struct given *g);
void horizon_take(struct node *n, const struct given *g);

#endif
