// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Which timer of the back end stands for which of the program's, and what has to be sent.
 *
 * An operation that is not sent costs nothing, and most need not be. A timer of the back
 * end, a slot, only has to expire no later than the program's timer is due: when it has,
 * one looks whether that is due by now, and if not sets the slot for when it is. So:
 *
 *   push later   a store. The slot expires in between, and is set anew then, together
 *                with all others of that read
 *   cancel       the slot loses its timer and is kept, still pending, in a pool
 *   arm          takes the slot that was last put there if it expires in time, which it
 *                always does where all time-outs are of one length. Else a slot has to be
 *                set
 *   pull earlier the slot has to be set, unless it expires in time
 *
 * What has to be set waits as long as some slot, the witness, is known to expire no later
 * than it is due: then there is a dispatch in time, which sends it with others, or calls it
 * without ever sending it. Otherwise it is sent at once, and is the next witness. So a
 * dispatch sends nothing, unless what it read was the witness or much is waiting. Then it
 * sends what is due first, which has the rest wait again: time-outs that are cancelled soon
 * are never sent.
 *
 * Nothing is lost by this: a timer is due in time or, if its slot expires before, the slot
 * is set for when it is due. And nothing fails late: a slot keeps its timer of the back
 * end when that has expired, parked, so that setting it cannot fail for want of memory
 * or by a limit. Only to get more of them can, and that is what arming does at once.
 *
 * Slots without a timer are given back when there are more of them than others, and
 * TW_SPARE: in each dispatch some, as they may be wanted again soon. What is left of them
 * when no timer is armed expires once and is at rest.
 */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"

/* At first so many chunks. */
#define TW_FIRST_ROOM	4U

static inline void tw_list_remove(struct twheel *w, uint32_t slot)
{
	struct tw_slot *s = tw_slot(w, slot);
	struct tw_list *list = &w->lists[s->state];

	if (s->state == TW_PENDING)
		return;
	*(s->prev ? &tw_slot(w, s->prev)->next : &list->first) = s->next;
	*(s->next ? &tw_slot(w, s->next)->prev : &list->last) = s->prev;
	list->nr--;
}

/* Puts a slot that is on no list at the end of one. */
static inline void tw_list_append(struct twheel *w, uint32_t slot, enum tw_state state)
{
	struct tw_slot *s = tw_slot(w, slot);
	struct tw_list *list = &w->lists[state];

	s->state = state;
	if (state == TW_PENDING)
		return;
	s->prev = list->last;
	s->next = TW_NO_SLOT;
	*(s->prev ? &tw_slot(w, s->prev)->next : &list->first) = slot;
	list->last = slot;
	list->nr++;
}

static void tw_set_state(struct twheel *w, uint32_t slot, enum tw_state state)
{
	tw_list_remove(w, slot);
	tw_list_append(w, slot, state);
}

static int tw_make_room(struct twheel *w)
{
	uint32_t room = w->room ? 2 * w->room : TW_FIRST_ROOM;
	struct tw_slot **chunks;

	if (w->nr_slots >> WHEEL_NODE_SHIFT < w->room)
		return 0;
	chunks = reallocarray(w->chunks, room, sizeof(*chunks));
	if (!chunks)
		return -ENOMEM;
	w->chunks = chunks;
	w->room = room;
	return 0;
}

/* Makes a chunk of slots for which the back end has nothing yet. */
static int tw_grow(struct twheel *w)
{
	struct tw_slot *chunk = aligned_alloc(WHEEL_NODE_SIZE, WHEEL_NODE_CHUNK_SIZE);
	uint32_t i;
	int ret;

	if (!chunk)
		return -ENOMEM;
	for (i = 0; i < WHEEL_CHUNK_NODES; i++)
		chunk[i] = (struct tw_slot){ .report_by_ns = TWHEEL_NEVER };
	ret = tw_make_room(w);
	if (!ret) {
		w->chunks[w->nr_slots >> WHEEL_NODE_SHIFT] = chunk;
		/* In any case: the array may have moved. */
		ret = w->backend->grow(w);
	}
	if (ret) {
		free(chunk);
		return ret;
	}
	for (i = 0; i < WHEEL_CHUNK_NODES; i++)
		if (w->nr_slots + i != TW_NO_SLOT)
			tw_list_append(w, w->nr_slots + i, TW_GONE);
	w->nr_slots += WHEEL_CHUNK_NODES;
	return 0;
}

/* Has more timers in the back end: one, or if there are many, a part of that. */
static int tw_add(struct twheel *w)
{
	uint32_t slots[TW_BATCH], nr, i, want;
	int ret;

	if (w->nr_held >= w->capacity)
		return -ENOSPC;
	want = min(1 + w->nr_held / 4, TW_BATCH);
	want = min(want, w->capacity - w->nr_held);
	if (!w->lists[TW_GONE].nr) {
		ret = tw_grow(w);
		if (ret)
			return ret;
	}
	nr = 0;
	for (i = w->lists[TW_GONE].first; i && nr < want; i = tw_slot(w, i)->next)
		slots[nr++] = i;
	ret = w->backend->add(w, slots, nr);
	for (i = 0; ret > 0 && i < (uint32_t)ret; i++)
		tw_set_state(w, slots[i], TW_FREE);
	if (ret < 0)
		return ret;
	w->nr_held += ret;
	return 0;
}

/**
 * tw_slots_destroy() - free all slots, whatever they are for
 * @w: the wheel
 */
void tw_slots_destroy(struct twheel *w)
{
	uint32_t i;

	for (i = 0; i < w->nr_slots >> WHEEL_NODE_SHIFT; i++)
		free(w->chunks[i]);
	free(w->chunks);
}

/**
 * tw_slots_adopt() - have a slot for a timer that the back end had before
 * @w:            the wheel
 * @slot:         its number, as the timer has it; anything else is passed over
 * @id:           the timer
 * @report_by_ns: as of the slot
 *
 * Return: 0 or -ENOMEM.
 */
int tw_slots_adopt(struct twheel *w, uint64_t slot, uint64_t id, uint64_t report_by_ns)
{
	struct tw_slot *s;
	int ret;

	if (slot == TW_NO_SLOT || slot >= (uint64_t)w->capacity + WHEEL_CHUNK_NODES)
		return 0;
	while (slot >= w->nr_slots) {
		ret = tw_grow(w);
		if (ret)
			return ret;
	}
	s = tw_slot(w, slot);
	if (s->state == TW_GONE) {
		s->id = id;
		w->nr_held++;
	} else if (s->id != id) {
		return 0;
	}
	s->report_by_ns = report_by_ns;
	tw_set_state(w, slot, report_by_ns == TWHEEL_NEVER ? TW_FREE : TW_POOLED);
	return 0;
}

/** struct tw_pooled - a slot, and when it is reported */
struct tw_pooled {
	uint64_t report_by_ns;
	uint32_t slot;
};

static int tw_last_first(const void *a, const void *b)
{
	const struct tw_pooled *x = a, *y = b;

	return (x->report_by_ns < y->report_by_ns) - (x->report_by_ns > y->report_by_ns);
}

/**
 * tw_slots_adopted() - pool the slots that were adopted, so that the earliest is taken first
 * @w: the wheel
 *
 * Who arms its timers in order of time finds for each the slot that it had.
 *
 * Return: 0 or -ENOMEM.
 */
int tw_slots_adopted(struct twheel *w)
{
	uint32_t slot, i, nr = w->lists[TW_POOLED].nr;
	struct tw_pooled *pooled;

	if (!nr)
		return 0;
	pooled = malloc(nr * sizeof(*pooled));
	if (!pooled)
		return -ENOMEM;
	for (slot = w->lists[TW_POOLED].first, i = 0; slot; slot = tw_slot(w, slot)->next)
		pooled[i++] = (struct tw_pooled){ tw_slot(w, slot)->report_by_ns, slot };
	qsort(pooled, nr, sizeof(*pooled), tw_last_first);
	for (i = 0; i < nr; i++)
		tw_set_state(w, pooled[i].slot, TW_POOLED);
	free(pooled);
	return 0;
}

/* The best slot for what is due by then: pending in time, parked, or at least not new. */
static uint32_t tw_spare_slot(const struct twheel *w, uint64_t due_by_ns)
{
	uint32_t last = w->lists[TW_POOLED].last;

	if (last && tw_slot(w, last)->report_by_ns <= due_by_ns)
		return last;
	return w->lists[TW_FREE].last ?: w->lists[TW_POOLED].first;
}

/*
 * Those that are not sent may be many and wait for long: a dispatch does not go through them
 * to find that they can wait on. What is kept does not follow when one leaves the list, so
 * that it is a bound.
 */
static void tw_note_unsent(struct twheel *w, uint64_t due_by_ns)
{
	if (w->lists[TW_UNSENT].nr == 1)
		w->unsent_by_ns = due_by_ns;
	w->unsent_by_ns = min(w->unsent_by_ns, due_by_ns);
}

/* Sees whether the slot of a timer is pending in time, or to be sent, and lets the timer know. */
static void tw_match(struct twheel *w, struct twheel_timer *t, uint64_t due_by_ns)
{
	struct tw_slot *s = tw_slot(w, t->slot);
	enum tw_state state = s->report_by_ns <= due_by_ns ? TW_PENDING : TW_UNSENT;

	if (s->state != state)
		tw_set_state(w, t->slot, state);
	t->report_by_ns = state == TW_PENDING ? s->report_by_ns : TWHEEL_NEVER;
	if (state == TW_UNSENT)
		tw_note_unsent(w, due_by_ns);
}

/**
 * tw_slots_claim() - find a slot for a timer
 * @w: the wheel
 * @t: the timer, which has none; its deadline is set
 *
 * Return: 0, or why there is none: -ENOSPC, -ENOMEM, -EPERM.
 */
int tw_slots_claim(struct twheel *w, struct twheel_timer *t)
{
	uint64_t due_by_ns = tw_due_by_ns(t);
	uint32_t slot = tw_spare_slot(w, due_by_ns);
	int ret;

	if (!slot) {
		ret = tw_add(w);
		if (ret)
			return ret;
		slot = w->lists[TW_FREE].last;
	}
	tw_slot(w, slot)->timer = t;
	t->slot = slot;
	t->key = tw_key(w, t);
	w->in_use++;
	tw_match(w, t, due_by_ns);
	return 0;
}

/**
 * tw_slots_moved() - see what a new deadline means for the slot
 * @w: the wheel
 * @t: a timer that has one
 */
void tw_slots_moved(struct twheel *w, struct twheel_timer *t)
{
	uint64_t due_by_ns = tw_due_by_ns(t);

	if (!tw_is_in_time(t, due_by_ns))
		tw_match(w, t, due_by_ns);
}

/* More than enough slots that are for no timer, by so many. */
static uint32_t tw_excess(const struct twheel *w)
{
	uint32_t enough = 2 * w->in_use + TW_SPARE;

	return w->nr_held > enough ? w->nr_held - enough : 0;
}

/**
 * tw_slots_release() - part a timer from its slot
 * @w: the wheel
 * @t: a timer that has one
 */
void tw_slots_release(struct twheel *w, struct twheel_timer *t)
{
	uint32_t slot = t->slot;
	struct tw_slot *s = tw_slot(w, slot);

	t->slot = TW_NO_SLOT;
	s->timer = NULL;
	w->in_use--;
	tw_set_state(w, slot, s->report_by_ns == TWHEEL_NEVER ? TW_FREE : TW_POOLED);
}

/* Whether there will be a dispatch in time for what is not sent. */
static bool tw_has_witness(const struct twheel *w, uint64_t due_by_ns)
{
	return tw_slot(w, w->witness)->report_by_ns <= due_by_ns;
}

/**
 * tw_slots_must_send() - whether the slot of a timer cannot wait for the next dispatch
 * @w: the wheel
 * @t: a timer that has one, which is not known to be pending in time
 *
 * Return: true if tw_slots_send() is to be called.
 */
bool tw_slots_must_send(const struct twheel *w, const struct twheel_timer *t)
{
	if (w->depth)
		return false;
	return w->lists[TW_UNSENT].nr >= TW_BATCH || !tw_has_witness(w, tw_due_by_ns(t));
}

/* Whether all that is not sent can wait for another dispatch. */
static bool tw_can_wait(const struct twheel *w)
{
	if (w->lists[TW_UNSENT].nr >= TW_BATCH)
		return false;
	return !w->lists[TW_UNSENT].nr || tw_has_witness(w, w->unsent_by_ns);
}

/*
 * Of what cannot wait that is sent which is due by then: the earlier half of the time over
 * which it is due. What is due later has a witness by that, and is likely to be pushed later
 * or cancelled before it needs another one. Of many, so as not to go through them often, all.
 */
static uint64_t tw_send_by_ns(const struct twheel *w)
{
	uint64_t due_by_ns, first_ns = TWHEEL_NEVER, last_ns = 0;
	uint32_t slot;

	if (w->lists[TW_UNSENT].nr >= TW_BATCH)
		return TWHEEL_NEVER;
	for (slot = w->lists[TW_UNSENT].first; slot; slot = tw_slot(w, slot)->next) {
		due_by_ns = tw_due_by_ns(tw_slot(w, slot)->timer);
		first_ns = min(first_ns, due_by_ns);
		last_ns = max(last_ns, due_by_ns);
	}
	return first_ns + (last_ns - first_ns) / 2;
}

static struct tw_op tw_op_of(const struct twheel_timer *t)
{
	return (struct tw_op){
		.slot = t->slot,
		.expires_ns = t->deadline_ns,
		.slack_ns = t->slack_ns,
	};
}

/* Collects slots that have to be set, of timers due by then, and notes what that leaves. */
static uint32_t tw_collect(const struct twheel *w, struct tw_op *ops, uint64_t by_ns,
			   uint64_t *left_by_ns)
{
	const struct twheel_timer *t;
	uint32_t slot, nr = 0;

	*left_by_ns = TWHEEL_NEVER;
	for (slot = w->lists[TW_UNSENT].first; slot && nr < TW_BATCH;
	     slot = tw_slot(w, slot)->next) {
		t = tw_slot(w, slot)->timer;
		if (tw_due_by_ns(t) <= by_ns)
			ops[nr++] = tw_op_of(t);
		else
			*left_by_ns = min(*left_by_ns, tw_due_by_ns(t));
	}
	return nr;
}

/* Adds slots that are to be given back, as far as there is room, but not the witness. */
static uint32_t tw_collect_excess(const struct twheel *w, struct tw_op *ops, uint32_t nr)
{
	uint32_t slot, end = min(nr + tw_excess(w), TW_BATCH);

	/* First those that were used last, which are in the cache still. */
	for (slot = w->lists[TW_FREE].last; slot && nr < end; slot = tw_slot(w, slot)->prev)
		ops[nr++] = (struct tw_op){ .slot = slot, .gone = true };
	for (slot = w->lists[TW_POOLED].first; slot && nr < end; slot = tw_slot(w, slot)->next)
		if (slot != w->witness)
			ops[nr++] = (struct tw_op){ .slot = slot, .gone = true };
	return nr;
}

static void tw_sent(struct twheel *w, const struct tw_op *op)
{
	struct tw_slot *s = tw_slot(w, op->slot);

	s->report_by_ns = op->gone ? TWHEEL_NEVER : tw_add_ns(op->expires_ns, op->slack_ns);
	tw_set_state(w, op->slot, op->gone ? TW_GONE : TW_PENDING);
	if (s->timer)
		s->timer->report_by_ns = s->report_by_ns;
	w->nr_held -= op->gone;
	w->counts.sent++;
	if (s->report_by_ns < tw_slot(w, w->witness)->report_by_ns)
		w->witness = op->slot;
}

static int tw_send(struct twheel *w, uint64_t by_ns, bool tidy)
{
	struct tw_op ops[TW_BATCH];
	uint32_t i, nr, set;
	uint64_t left_by_ns;
	int ret;

	do {
		set = tw_collect(w, ops, by_ns, &left_by_ns);
		nr = tidy ? tw_collect_excess(w, ops, set) : set;
		ret = nr ? w->backend->send(w, ops, nr) : 0;
		if (ret < 0)
			return ret;
		for (i = 0; i < (uint32_t)ret; i++)
			tw_sent(w, &ops[i]);
	} while (i < set || set == TW_BATCH);
	w->unsent_by_ns = left_by_ns;
	return 0;
}

/**
 * tw_slots_flush() - send all that is to be sent
 * @w: the wheel
 *
 * Return: 0, or the error of the back end, after which some may have been sent.
 */
int tw_slots_flush(struct twheel *w)
{
	int ret = tw_send(w, TWHEEL_NEVER, false);

	w->backend->settle(w);
	return ret;
}

/**
 * tw_slots_send() - send what tw_slots_must_send() says
 * @w: the wheel
 * @t: the timer: if there are not many it is sent alone
 *
 * Return: as tw_slots_flush().
 */
int tw_slots_send(struct twheel *w, const struct twheel_timer *t)
{
	struct tw_op op = tw_op_of(t);
	int ret;

	if (w->lists[TW_UNSENT].nr >= TW_BATCH)
		return tw_slots_flush(w);
	ret = w->backend->send(w, &op, 1);
	if (ret > 0)
		tw_sent(w, &op);
	w->backend->settle(w);
	return min(ret, 0);
}

/**
 * tw_slots_tidy() - send what cannot wait for another dispatch, and give slots back
 * @w: the wheel
 *
 * Whoever calls it has the back end settle when there is no more to do.
 *
 * Return: as tw_slots_flush().
 */
int tw_slots_tidy(struct twheel *w)
{
	bool wait = tw_can_wait(w);

	if (wait && !tw_excess(w))
		return 0;
	return tw_send(w, wait ? 0 : tw_send_by_ns(w), true);
}

/*
 * Of what was not sent and cannot wait takes what is due by now: it need not be sent any more.
 * How many.
 */
static int tw_take_unsent(struct twheel *w, uint64_t now_ns, int max)
{
	uint32_t slot, next;
	int nr = 0;

	if (tw_can_wait(w))
		return 0;
	for (slot = w->lists[TW_UNSENT].first; slot && nr < max; slot = next) {
		next = tw_slot(w, slot)->next;
		if (tw_slot(w, slot)->timer->deadline_ns > now_ns)
			continue;
		tw_set_state(w, slot, TW_REPORTED);
		nr++;
	}
	return nr;
}

/**
 * tw_slots_take() - take what is due, and what has expired in the back end
 * @w:      the wheel
 * @max:    at most so many, TW_BATCH at most
 * @now_ns: out: the time, by which all of them were due
 *
 * All are taken before any is looked at: to move or to release a timer takes its slot off
 * the list of those, and it may be another timer's by then.
 *
 * Return: how many, or a negative errno.
 */
int tw_slots_take(struct twheel *w, uint32_t max, uint64_t *now_ns)
{
	struct twheel_timer *t;
	uint32_t slots[TW_BATCH];
	int i, nr;

	nr = w->backend->take(w, slots, max, now_ns);
	for (i = 0; i < nr; i++)
		prefetchw(tw_slot(w, slots[i]));
	for (i = 0; i < nr; i++) {
		prefetchw(tw_slot(w, slots[i])->timer);
		tw_slot(w, slots[i])->report_by_ns = TWHEEL_NEVER;
		tw_set_state(w, slots[i], TW_REPORTED);
		w->counts.records++;
	}
	for (i = 0; i < nr; i++) {
		t = tw_slot(w, slots[i])->timer;
		if (t)
			t->report_by_ns = TWHEEL_NEVER;
	}
	return nr < 0 ? nr : nr + tw_take_unsent(w, *now_ns, max - nr);
}

/**
 * tw_slots_look() - look at the first slot whose expiry was taken
 * @w: the wheel
 * @t: out: its timer, for tw_slots_release() or tw_slots_moved(); NULL if it has none
 *
 * Return: false if there is no such slot.
 */
bool tw_slots_look(struct twheel *w, struct twheel_timer **t)
{
	uint32_t slot = w->lists[TW_REPORTED].first;

	if (!slot)
		return false;
	*t = tw_slot(w, slot)->timer;
	/* If it is parked that is as good as any time that is too late. */
	tw_set_state(w, slot, *t ? TW_PENDING : TW_FREE);
	return true;
}
