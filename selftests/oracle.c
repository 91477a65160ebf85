// SPDX-License-Identifier: GPL-2.0
/*
 * Random calls against a dumb array that says what must come of them.
 *
 *   TWHEEL_SEED=N   another run; the seed is printed
 *   TWHEEL_STEPS=N  a longer or a shorter one
 */
#include "twheel_test.h"

#define NR_TIMERS	300
#define SEED		0x7468776565ULL
#define STEPS		30000

enum state { FREE, ARMED, READY };

struct model_timer {
	enum state state;
	__u64 id;
	__u64 user_data;
	__u64 expires;
	__u64 slack;
	__u64 interval;
	__u64 left;		/* expiries left, 0: no end */
	__u64 fired;		/* when, if ready */
	__u64 batch;		/* in which call it became ready */
};

struct model {
	int fd;
	__u64 tick;
	__u64 now;
	__u64 seed;
	__u64 batch;
	__u64 serial;
	__u64 slack_max;
	__u64 fired;		/* records read in all */
	struct model_timer timers[NR_TIMERS];
	char wrong[256];
};

static bool wrong(struct model *m, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(m->wrong, sizeof(m->wrong), fmt, args);
	va_end(args);
	return false;
}

static __u64 below(struct model *m, __u64 n)
{
	return tw_random_below(&m->seed, n);
}

/* Small numbers as often as large ones */
static __u64 skewed(struct model *m, unsigned int bits)
{
	return tw_random(&m->seed) >> (63 - below(m, bits));
}

/* Not before this does it fire; TWHEEL_NEVER: not at all */
static __u64 due_min(const struct model *m, const struct model_timer *t)
{
	return t->expires == TWHEEL_NEVER ? TWHEEL_NEVER :
	       tw_boundary(t->expires, m->tick);
}

/* By this it has fired */
static __u64 due_max(const struct model *m, const struct model_timer *t)
{
	return t->expires == TWHEEL_NEVER ? TWHEEL_NEVER :
	       tw_boundary(t->expires + t->slack, m->tick);
}

static void make_ready(struct model *m, struct model_timer *t)
{
	t->state = READY;
	t->fired = m->now;
	t->batch = m->batch;
}

/*
 * What has to be ready is, what may not be is not. Between the two, where slack
 * or a clock amid a tick leaves it open, ask.
 */
static bool settle(struct model *m, struct model_timer *t)
{
	long flags;

	if (t->state != ARMED || t->expires > m->now)
		return true;
	if (due_max(m, t) <= m->now) {
		make_ready(m, t);
		return true;
	}
	flags = tw_state(m->fd, t->id);
	if (flags == TWHEEL_F_READY)
		make_ready(m, t);
	else if (flags != TWHEEL_F_ARMED)
		return wrong(m, "state of a timer about due: %ld", flags);
	return true;
}

static __u64 pick_expiry(struct model *m)
{
	__u64 level = m->tick << (6 * below(m, 5));

	switch (below(m, 16)) {
	case 0:
		return TWHEEL_NEVER;
	case 1:
		return below(m, m->now + 1);
	case 2:
		return m->now;
	case 3:
		return m->now + below(m, m->tick);
	case 4:
		return tw_boundary(m->now + 1, level);
	case 5:
		return tw_boundary(m->now + 1, level) - 1;
	case 6:
		return tw_boundary(m->now + 1, level) + 1;
	case 7:
		return m->now + level;
	case 8:
		return m->timers[below(m, NR_TIMERS)].expires;
	default:
		return m->now + skewed(m, 52);
	}
}

static void pick_op(struct model *m, struct twheel_op *op)
{
	*op = tw_op(pick_expiry(m), ++m->serial);
	if (m->slack_max && below(m, 2))
		op->slack_ns = skewed(m, m->slack_max);
	if (below(m, 4))
		return;
	op->interval_ns = 1 + skewed(m, 45);
	if (below(m, 2))
		op->count = 1 + below(m, 20);
}

static bool model_set(struct model *m, struct model_timer *t,
		      const struct twheel_op *op)
{
	t->state = ARMED;
	t->expires = op->expires_ns;
	t->interval = op->interval_ns;
	t->slack = op->slack_ns;
	t->left = op->count;
	m->batch++;
	return settle(m, t);
}

static bool step_arm(struct model *m, struct model_timer *t)
{
	struct twheel_op op;
	long ret;

	pick_op(m, &op);
	ret = tw_arm_op(m->fd, &op);
	if (ret || !op.id)
		return wrong(m, "arm: %ld", ret);
	t->id = op.id;
	t->user_data = op.user_data;
	return model_set(m, t, &op);
}

static bool step_modify(struct model *m, struct model_timer *t)
{
	struct twheel_op op;
	long ret;

	pick_op(m, &op);
	op.id = t->id;
	ret = tw_modify_op(m->fd, &op);
	if (t->state == FREE)
		return ret == -ENOENT || wrong(m, "modify stale: %ld", ret);
	if (ret != (t->state == READY ? 1 : 0))
		return wrong(m, "modify in state %d: %ld", t->state, ret);
	return model_set(m, t, &op);
}

static bool step_cancel(struct model *m, struct model_timer *t)
{
	long ret = tw_cancel(m->fd, t->id);

	if (t->state == FREE)
		return ret == -ENOENT || wrong(m, "cancel stale: %ld", ret);
	if (ret != (t->state == READY ? 1 : 0))
		return wrong(m, "cancel in state %d: %ld", t->state, ret);
	t->state = FREE;
	return true;
}

static bool step_query(struct model *m, struct model_timer *t)
{
	struct twheel_op op;
	long ret = tw_query(m->fd, t->id, &op);

	if (t->state == FREE)
		return ret == -ENOENT || wrong(m, "query stale: %ld", ret);
	if (ret)
		return wrong(m, "query: %ld", ret);
	if (op.flags != (t->state == READY ? TWHEEL_F_READY : TWHEEL_F_ARMED))
		return wrong(m, "state %d, query %#x", t->state, op.flags);
	if (op.expires_ns != t->expires || op.interval_ns != t->interval ||
	    op.slack_ns != t->slack || op.user_data != t->user_data)
		return wrong(m, "query tells other values");
	if (t->state == ARMED && op.count != t->left)
		return wrong(m, "%llu left, query %u", t->left, op.count);
	return true;
}

static __u64 model_next(const struct model *m, bool latest)
{
	__u64 next = TWHEEL_NEVER;
	size_t i;

	for (i = 0; i < NR_TIMERS; i++) {
		const struct model_timer *t = &m->timers[i];
		__u64 due = latest ? due_max(m, t) : due_min(m, t);

		if (t->state == ARMED && due < next)
			next = due;
	}
	return next;
}

static bool step_next(struct model *m)
{
	__u64 next = tw_next(m->fd);

	if (next >= model_next(m, false) && next <= model_next(m, true))
		return true;
	return wrong(m, "NEXT %llu, expected %llu to %llu", next,
		     model_next(m, false), model_next(m, true));
}

static __u64 pick_advance(struct model *m)
{
	__u64 next = model_next(m, false);

	if (next == TWHEEL_NEVER || next < m->now)
		next = m->now;
	switch (below(m, 8)) {
	case 0:
		return next;
	case 1:
		return next > m->now ? next - 1 : next;
	case 2:
		return tw_boundary(m->now + 1, m->tick << (6 * below(m, 5)));
	case 3:
		return m->now + skewed(m, 50);
	case 4:
		return m->now;
	default:
		return m->now + skewed(m, 30);
	}
}

static bool step_advance(struct model *m)
{
	__u64 to = pick_advance(m);
	long ret = tw_advance(m->fd, to);
	size_t i;

	if (ret)
		return wrong(m, "advance to %llu: %ld", to, ret);
	m->now = to;
	m->batch++;
	for (i = 0; i < NR_TIMERS; i++)
		if (!settle(m, &m->timers[i]))
			return false;
	return true;
}

static struct model_timer *model_find(struct model *m, __u64 id)
{
	size_t i;

	for (i = 0; i < NR_TIMERS; i++)
		if (m->timers[i].state == READY && m->timers[i].id == id)
			return &m->timers[i];
	return NULL;
}

/* Is there one whose record ought to have come before that of @t? */
static bool overtaken(struct model *m, const struct model_timer *t)
{
	size_t i;

	for (i = 0; i < NR_TIMERS; i++) {
		const struct model_timer *o = &m->timers[i];

		if (o->state != READY)
			continue;
		if (o->batch < t->batch)
			return true;
		if (o->batch == t->batch && !m->slack_max &&
		    due_min(m, o) < due_min(m, t))
			return true;
	}
	return false;
}

/* What reading the record does to the timer, and the overrun it tells */
static __u64 model_reap(struct model *m, struct model_timer *t, bool *more)
{
	__u64 overrun = 0;

	if (t->interval)
		overrun = (m->now - t->expires) / t->interval;
	if (t->left && overrun >= t->left)
		overrun = t->left - 1;
	*more = t->interval && (!t->left || overrun + 1 < t->left);
	t->state = *more ? ARMED : FREE;
	if (*more)
		t->expires += (overrun + 1) * t->interval;
	if (t->left)
		t->left -= overrun + 1;
	return overrun > 0xffffffff ? 0xffffffff : overrun;
}

static bool check_record(struct model *m, const struct twheel_event *ev)
{
	struct model_timer *t = model_find(m, ev->id);
	__u64 overrun;
	bool more;

	if (!t)
		return wrong(m, "record of %#llx, not ready", ev->id);
	if (overtaken(m, t))
		return wrong(m, "record of %#llx is out of order", ev->id);
	if (ev->expires_ns != t->expires || ev->fired_ns != t->fired ||
	    ev->user_data != t->user_data)
		return wrong(m, "due %llu fired %llu, record says %llu %llu",
			     t->expires, t->fired, ev->expires_ns, ev->fired_ns);
	if (ev->fired_ns < ev->expires_ns)
		return wrong(m, "early");
	overrun = model_reap(m, t, &more);
	if (ev->overrun != overrun || ev->flags != (more ? TWHEEL_EV_MORE : 0))
		return wrong(m, "overrun %llu more %d, record says %u %#x",
			     overrun, more, ev->overrun, ev->flags);
	m->fired++;
	return settle(m, t);
}

static size_t model_count(const struct model *m, enum state state)
{
	size_t i, n = 0;

	for (i = 0; i < NR_TIMERS; i++)
		n += m->timers[i].state == state;
	return n;
}

static bool step_read(struct model *m)
{
	struct twheel_event ev[NR_TIMERS];
	size_t max = 1 + below(m, below(m, 2) ? 4 : NR_TIMERS);
	size_t have = model_count(m, READY);
	long i, ret, expected;

	expected = have < max ? have : max;
	ret = tw_read(m->fd, ev, max);
	if (ret != (expected ? expected : -EAGAIN))
		return wrong(m, "read %ld, expected %ld", ret, expected);
	m->batch++;
	for (i = 0; i < ret; i++)
		if (!check_record(m, &ev[i]))
			return false;
	return true;
}

static bool check_counts(struct model *m)
{
	__u32 armed = tw_armed(m->fd), ready = tw_ready(m->fd);

	if (armed == model_count(m, ARMED) && ready == model_count(m, READY))
		return true;
	return wrong(m, "armed %u ready %u, expected %zu %zu", armed, ready,
		     model_count(m, ARMED), model_count(m, READY));
}

static bool step(struct model *m)
{
	struct model_timer *t = &m->timers[below(m, NR_TIMERS)];

	switch (below(m, 16)) {
	case 0:
	case 1:
		return step_advance(m);
	case 2:
		return step_next(m);
	case 3:
		return step_read(m);
	case 4:
		return step_query(m, t);
	case 5:
		return check_counts(m);
	case 6:
	case 7:
		return step_cancel(m, t);
	case 8:
	case 9:
	case 10:
		return step_modify(m, t);
	default:
		return t->state == FREE ? step_arm(m, t) : step_modify(m, t);
	}
}

FIXTURE(oracle)
{
	struct model *m;
};

FIXTURE_VARIANT(oracle)
{
	__u64 tick;
	__u64 start;
	__u64 slack_max;	/* bits */
};

FIXTURE_VARIANT_ADD(oracle, from_zero)
{
	.tick = TW_TICK_DEFAULT,
};

FIXTURE_VARIANT_ADD(oracle, with_the_smallest_tick)
{
	.tick = TW_TICK_MIN,
};

FIXTURE_VARIANT_ADD(oracle, with_the_largest_tick)
{
	.tick = TW_TICK_MAX,
};

FIXTURE_VARIANT_ADD(oracle, across_2_to_the_32_ticks)
{
	.tick = TW_TICK_MIN,
	.start = (1ULL << 44) - 1000 * TW_TICK_MIN,
};

FIXTURE_VARIANT_ADD(oracle, across_the_middle_of_time)
{
	.tick = TW_TICK_DEFAULT,
	.start = (1ULL << 62) - 1000 * TW_TICK_DEFAULT,
};

FIXTURE_VARIANT_ADD(oracle, with_slack)
{
	.tick = TW_TICK_DEFAULT,
	.slack_max = 40,
};

FIXTURE_SETUP(oracle)
{
	struct model *m = calloc(1, sizeof(*m));

	ASSERT_NE(NULL, m);
	self->m = m;
	m->tick = variant->tick;
	m->slack_max = variant->slack_max;
	m->now = variant->start;
	m->seed = tw_env("TWHEEL_SEED", SEED);
	TH_LOG("TWHEEL_SEED=%#llx", m->seed);
	ASSERT_NE(0, m->seed);
	m->fd = tw_manual(m->tick);
	ASSERT_LE(0, m->fd);
	ASSERT_EQ(0, tw_advance(m->fd, m->now));
}

FIXTURE_TEARDOWN(oracle)
{
	close(self->m->fd);
}

TEST_F(oracle, random_calls_do_what_a_sorted_list_would)
{
	__u64 i, steps = tw_env("TWHEEL_STEPS", tw_many(STEPS));

	for (i = 0; i < steps; i++) {
		ASSERT_TRUE(step(self->m)) {
			TH_LOG("step %llu now %llu: %s", i, self->m->now,
			       self->m->wrong);
		}
	}
	TH_LOG("%llu records", self->m->fired);
	EXPECT_LT(0, self->m->fired);
}

TEST_HARNESS_MAIN
