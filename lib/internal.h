/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What the parts of libtwheel know of each other.
 *
 *   twheel.c   what the program calls: timers, dispatch
 *   slots.c    which slot a timer gets, and what has to be sent: the laziness
 *   device.c   slots as timers of /dev/twheel
 *   local.c    slots as timers of a wheel in the process
 */
#ifndef LIBTWHEEL_INTERNAL_H
#define LIBTWHEEL_INTERNAL_H

/* All else is hidden. */
#pragma GCC visibility push(default)
#include <twheel.h>
#pragma GCC visibility pop

#include "../module/wheel.h"

#define TW_NO_SLOT	0U	/* slots count from 1, so that a zeroed timer has none */

/* Operations that are sent, and records that are read, in one go. */
#define TW_BATCH	256U

/*
 * Dispatches bring a back end down to twice as many timers as the program has, and so many
 * more. The latter is also what is left to fire in vain when the program has none any more.
 */
#define TW_SPARE	64U

/**
 * enum tw_state - of a slot
 * @TW_GONE:     the back end has no timer for it
 * @TW_FREE:     it has, parked; on the list of free slots
 * @TW_POOLED:   it has, pending, for a timer that was cancelled; on the list of those
 * @TW_PENDING:  it has, pending no later than the program's timer is due; on no list
 * @TW_UNSENT:   it has one that is parked, or pending too late; on the list of what is
 *               to be sent
 * @TW_REPORTED: to be looked at, as its expiry has been read, or as its timer is due and it
 *               was not sent; on that list
 * @TW_STATES:   how many that are
 */
enum tw_state {
	TW_GONE,
	TW_FREE,
	TW_POOLED,
	TW_PENDING,
	TW_UNSENT,
	TW_REPORTED,
	TW_STATES,
};

/**
 * struct tw_slot - a timer of the back end, one cache line
 * @node:         of TWHEEL_LOCAL: in the wheel
 * @id:           of TWHEEL_DEVICE: its handle, which stays
 * @timer:        the program's timer that it is for, or NULL
 * @report_by_ns: its expiry will be read by then, up to a tick later; TWHEEL_NEVER if it
 *                is parked
 * @next:         on the list that @state says
 * @prev:         on that
 * @ready_next:   of TWHEEL_LOCAL: on the list of what has expired
 * @ready_prev:   on that
 * @state:        enum tw_state
 * @ready:        of TWHEEL_LOCAL: it is on that list
 * @pad:          unused
 */
struct tw_slot {
	union {
		struct wheel_node node;
		uint64_t id;
	};
	struct twheel_timer *timer;
	__aligned_u64 report_by_ns;
	uint32_t next;
	uint32_t prev;
	uint32_t ready_next;
	uint32_t ready_prev;
	uint8_t state;
	uint8_t ready;
	uint8_t pad[14];
};

static_assert(sizeof(struct tw_slot) == WHEEL_NODE_SIZE);

/** struct tw_list - slots, by number; a list has both ends */
struct tw_list {
	uint32_t first;
	uint32_t last;
	uint32_t nr;
};

/**
 * struct tw_op - what is asked of a back end: a slot is to expire
 * @slot:       which
 * @gone:       not to expire, but to be given back
 * @expires_ns: when; TWHEEL_NEVER to park it
 * @slack_ns:   how much later it may be
 */
struct tw_op {
	uint32_t slot;
	bool gone;
	uint64_t expires_ns;
	uint64_t slack_ns;
};

/**
 * struct tw_backend - timers that expire once, and are parked then
 * @open:    makes it; w->fd is set. 0 or a negative errno
 * @close:   ends it
 * @grow:    w->chunks has a chunk more, which is not in w->nr_slots yet, and may have
 *           moved. 0 or a negative errno
 * @add:     has timers, parked, for @nr slots, TW_BATCH at most. For how many, which are
 *           the first of @slots then, or a negative errno if for none
 * @send:    does @nr operations, TW_BATCH at most. None can fail by itself. How many were
 *           done, or a negative errno if none
 * @settle:  all was sent that is to be: w->fd is to be readable when it should be
 * @take:    takes expiries, TW_BATCH at most: their slots, which are parked from then on.
 *           How many, or a negative errno. *@now_ns is a time by which they had expired
 * @next:    the instant at which w->fd gets readable by itself
 * @advance: moves the manual clock. 0 or a negative errno
 */
struct tw_backend {
	int (*open)(struct twheel *w, const struct twheel_options *options);
	void (*close)(struct twheel *w);
	int (*grow)(struct twheel *w);
	int (*add)(struct twheel *w, uint32_t *slots, uint32_t nr);
	int (*send)(struct twheel *w, const struct tw_op *ops, uint32_t nr);
	void (*settle)(struct twheel *w);
	int (*take)(struct twheel *w, uint32_t *slots, uint32_t max, uint64_t *now_ns);
	uint64_t (*next)(struct twheel *w);
	int (*advance)(struct twheel *w, uint64_t to_ns);
};

extern const struct tw_backend tw_device, tw_local;

/* device.c: in the place of open(): with w->fd, and its timers as slots. */
int tw_device_adopt(struct twheel *w);

/**
 * struct twheel - a wheel
 * @backend:   where its timers are
 * @private:   the back end's
 * @fd:        what the program waits for
 * @clockid:   the clock, TWHEEL_CLOCK_MANUAL among them
 * @manual_ns: what that one says
 * @slack_ns:  of timers without one of their own
 * @key:       see tw_key()
 * @chunks:    slots, WHEEL_CHUNK_NODES in each, so that they stay where they are
 * @nr_slots:  how many, slot 0, which is never used, among them
 * @room:      chunks for which there is room in @chunks
 * @capacity:  how many the back end may have at one time
 * @nr_held:   how many it has
 * @in_use:    how many of the program's timers are armed
 * @lists:     slots, by state
 * @witness:   a slot. What is due no earlier than it expires need not be sent before
 * @unsent_by_ns: no timer that is not sent has to be called by an earlier time
 * @depth:     calls of twheel_dispatch() within each other
 * @closed:    by a function; memory is freed when the last of those calls returns
 * @stopped:   twheel_run() is to return
 * @has_given_fd: the program knows the descriptor, see tw_is_silent()
 * @counts:    for twheel_stats()
 */
struct twheel {
	const struct tw_backend *backend;
	void *private;
	int fd;
	int clockid;
	uint64_t manual_ns;
	uint64_t slack_ns;
	uint32_t key;
	struct tw_slot **chunks;
	uint32_t nr_slots;
	uint32_t room;
	uint32_t capacity;
	uint32_t nr_held;
	uint32_t in_use;
	struct tw_list lists[TW_STATES];
	uint32_t witness;
	uint64_t unsent_by_ns;
	int depth;
	bool closed;
	bool stopped;
	bool has_given_fd;
	struct twheel_counts counts;
};

/*
 * In a simulation nobody waits: the descriptor need not tell anything before the program has
 * asked for it, and a step takes no system call.
 */
static inline bool tw_is_silent(const struct twheel *w)
{
	return w->clockid == TWHEEL_CLOCK_MANUAL && w->backend == &tw_local && !w->has_given_fd;
}

static inline struct tw_slot *tw_slot(const struct twheel *w, uint32_t slot)
{
	return &w->chunks[slot >> WHEEL_NODE_SHIFT][slot & (WHEEL_CHUNK_NODES - 1)];
}

/* The sum, or the end of time. */
static inline uint64_t tw_add_ns(uint64_t ns, uint64_t more_ns)
{
	uint64_t sum = ns + more_ns;

	return ns == TWHEEL_NEVER ? ns : sum < ns || sum > INT64_MAX ? INT64_MAX : sum;
}

/*
 * What an armed timer has in it, where it is. There another wheel of the process has it only
 * when 2^32 have been, and this one has it only 16 GiB away.
 */
static inline uint32_t tw_key(const struct twheel *w, const struct twheel_timer *t)
{
	return w->key ^ (uint32_t)((uintptr_t)t >> 2);
}

/* When the program is to be called at the latest, but for less than a tick. */
static inline uint64_t tw_due_by_ns(const struct twheel_timer *t)
{
	return tw_add_ns(t->deadline_ns, t->slack_ns);
}

/*
 * Whether the slot of an armed timer is pending, by then at the latest. The timer knows: with
 * many of them a look at the slot would be another cache miss. What it knows is TWHEEL_NEVER
 * unless the slot is in state TW_PENDING.
 */
static inline bool tw_is_in_time(const struct twheel_timer *t, uint64_t due_by_ns)
{
	return t->report_by_ns <= due_by_ns && t->report_by_ns != TWHEEL_NEVER;
}

/* slots.c */
void tw_slots_destroy(struct twheel *w);
int tw_slots_adopt(struct twheel *w, uint64_t slot, uint64_t id, uint64_t report_by_ns);
int tw_slots_adopted(struct twheel *w);
int tw_slots_claim(struct twheel *w, struct twheel_timer *t);
void tw_slots_moved(struct twheel *w, struct twheel_timer *t);
void tw_slots_release(struct twheel *w, struct twheel_timer *t);
bool tw_slots_must_send(const struct twheel *w, const struct twheel_timer *t);
int tw_slots_flush(struct twheel *w);
int tw_slots_send(struct twheel *w, const struct twheel_timer *t);
int tw_slots_tidy(struct twheel *w);
int tw_slots_take(struct twheel *w, uint32_t max, uint64_t *now_ns);
bool tw_slots_look(struct twheel *w, struct twheel_timer **t);

#endif /* LIBTWHEEL_INTERNAL_H */
