/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A model of a wheel with a manual clock, for fuzz.c: it takes a step, which is a random call
 * or another thing that programs do, and tells whether the wheel did what it foretold.
 */
#ifndef FUZZ_MODEL_H
#define FUZZ_MODEL_H

#include "fuzz_calls.h"

#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/wait.h>

enum state { DEAD, ARMED, READY, EITHER };

struct timer {
	enum state state;
	struct twheel_op op;	/* as QUERY tells it, flags apart */
	__u64 fired;
};

struct model {
	struct fuzzer f;
	__u32 capacity;
	int epfd;
	__u64 ids[NR_IDS];	/* of @timers */
	struct timer timers[NR_IDS];
	struct twheel_stats stats;
	__u64 noticed;		/* of the fired those that the wheel was late or in time for */
	struct call call;
	char before[ARRAY_PAGES * 65536];
	__u64 steps;
	__u64 records;
	__u64 failed;
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

static struct timer *model_find(struct model *m, __u64 id)
{
	size_t i;

	for (i = 0; i < NR_IDS; i++)
		if (m->ids[i] == id && m->timers[i].state != DEAD)
			return &m->timers[i];
	return NULL;
}

static __u32 model_count(const struct model *m, enum state state)
{
	__u32 i, n = 0;

	for (i = 0; i < NR_IDS; i++)
		n += m->timers[i].state == state;
	return n;
}

static __u64 reachable(__u64 ns)
{
	return ns > TW_S64_MAX ? TWHEEL_NEVER : ns;
}

/* Not before this does it fire ... */
static __u64 due_min(const struct model *m, const struct timer *t)
{
	return t->op.expires_ns == TWHEEL_NEVER ? TWHEEL_NEVER :
	       reachable(tw_boundary(t->op.expires_ns, m->f.tick));
}

/* ... and by this it has */
static __u64 due_max(const struct model *m, const struct timer *t)
{
	__u64 end = t->op.expires_ns + t->op.slack_ns;

	if (t->op.expires_ns == TWHEEL_NEVER)
		return TWHEEL_NEVER;
	end = (end > TW_S64_MAX ? TW_S64_MAX : end) & ~(m->f.tick - 1);
	return end > due_min(m, t) ? end : due_min(m, t);
}

/* A timer whose expiry has been set */
static void model_place(struct model *m, struct timer *t)
{
	t->state = t->op.expires_ns > m->f.now ? ARMED : READY;
	if (t->state == READY) {
		t->fired = m->f.now;
		m->stats.fired++;
	}
}

static bool is_valid(const struct twheel_op *op)
{
	bool arms = op->opcode == TWHEEL_OP_ARM || op->opcode == TWHEEL_OP_MODIFY;

	if (op->opcode > TWHEEL_OP_QUERY || op->flags & ~FLAGS_KNOWN ||
	    op->pad[0] || op->pad[1] || op->pad[2] || op->resv)
		return false;
	return !arms || ((op->expires_ns <= TW_S64_MAX || op->expires_ns == TWHEEL_NEVER) &&
			 op->interval_ns <= TW_S64_MAX && op->slack_ns <= TW_S64_MAX &&
			 (op->interval_ns || !op->count) &&
			 op->misfire <= TWHEEL_MISFIRE_SKIP);
}

/* What an operation returns */
static long foretell(struct model *m, const struct twheel_op *op)
{
	struct timer *t = model_find(m, op->id);

	if (!is_valid(op))
		return -EINVAL;
	if (op->opcode == TWHEEL_OP_NOP)
		return 0;
	if (op->opcode == TWHEEL_OP_ARM)
		return model_count(m, DEAD) == NR_IDS - m->capacity ? -ENOSPC : 0;
	if (!t)
		return -ENOENT;
	return op->opcode != TWHEEL_OP_QUERY && t->state == READY;
}

static bool tells(struct model *m, const struct timer *t, const struct twheel_op *op)
{
	if (op->user_data == t->op.user_data && op->expires_ns == t->op.expires_ns &&
	    op->interval_ns == t->op.interval_ns && op->slack_ns == t->op.slack_ns &&
	    op->count == t->op.count && op->misfire == t->op.misfire)
		return true;
	return wrong(m, "expiry %llu every %llu slack %llu count %u, not %llu %llu %llu %u",
		     op->expires_ns, op->interval_ns, op->slack_ns, op->count,
		     t->op.expires_ns, t->op.interval_ns, t->op.slack_ns, t->op.count);
}

static void model_assign(struct model *m, struct timer *t, const struct twheel_op *op)
{
	__u64 user_data = t->op.user_data;

	t->op = *op;
	if (op->opcode == TWHEEL_OP_MODIFY)
		t->op.user_data = user_data;
	if (op->flags & TWHEEL_F_REL && op->expires_ns != TWHEEL_NEVER) {
		t->op.expires_ns += m->f.now;
		if (t->op.expires_ns > TW_S64_MAX)
			t->op.expires_ns = TW_S64_MAX;
	}
	model_place(m, t);
}

static bool model_arm(struct model *m, const struct twheel_op *in, __u64 id)
{
	size_t i, at = below(&m->f, NR_IDS);

	for (i = 0; i < NR_IDS; i++)
		if (!id || m->ids[i] == id)
			return wrong(m, "arm gives id %#llx", id);
	while (m->timers[at].state != DEAD)
		at = (at + 1) % NR_IDS;
	m->ids[at] = id;
	m->stats.armed++;
	model_assign(m, &m->timers[at], in);
	return true;
}

/* What became of an operation that returned @ret */
static bool model_do(struct model *m, const struct twheel_op *in,
		     const struct twheel_op *out, long ret)
{
	struct timer *t = model_find(m, in->id);
	long foretold = foretell(m, in);

	if (ret != foretold)
		return wrong(m, "operation %u returns %ld instead of %ld", in->opcode, ret,
			     foretold);
	if (ret < 0)
		return in->opcode != TWHEEL_OP_ARM || !out->id || wrong(m, "id after an error");
	switch (in->opcode) {
	case TWHEEL_OP_ARM:
		return model_arm(m, in, out->id);
	case TWHEEL_OP_CANCEL:
		t->state = DEAD;
		m->stats.cancelled++;
		return true;
	case TWHEEL_OP_MODIFY:
		m->stats.modified++;
		model_assign(m, t, in);
		return true;
	case TWHEEL_OP_QUERY:
		if (t->state == EITHER) {
			t->state = ARMED;
			if (out->flags == TWHEEL_F_READY) {
				t->state = READY;
				t->fired = m->f.now;
				m->stats.fired++;
				m->noticed++;
			}
		}
		if (out->flags != (t->state == READY ? TWHEEL_F_READY : TWHEEL_F_ARMED))
			return wrong(m, "%#llx is in state %d, not %#x", in->id, t->state,
				     out->flags);
		return tells(m, t, out);
	}
	return true;
}

static bool done_op(struct model *m, struct call *c, long ret)
{
	struct twheel_op op = c->in.op;

	if (c->memory != GOOD && ret == -EFAULT)
		return true;
	if (op.opcode <= TWHEEL_OP_QUERY)
		op.opcode = c->kind - ARM + TWHEEL_OP_ARM;
	if ((c->kind == CANCEL || c->kind == MODIFY) &&
	    memcmp(&c->in.op, &c->out.op, sizeof(op)))
		return wrong(m, "something was written");
	return model_do(m, &op, &c->out.op, ret);
}

static bool done_submit(struct model *m, struct call *c, long ret)
{
	char *p = (char *)(uintptr_t)c->in.array.ops;
	long i, fit = room(&m->f, p, sizeof(struct twheel_op));
	struct twheel_op in, out;

	if (fit > c->in.array.nr)
		fit = c->in.array.nr;
	if (ret != (fit || !c->in.array.nr ? fit : -EFAULT))
		return wrong(m, "%ld of %u were tried, %ld could be", ret, c->in.array.nr, fit);
	for (i = 0; i < fit; i++) {
		memcpy(&out, p + i * sizeof(out), sizeof(out));
		memcpy(&in, m->before + (p - m->f.array.start) + i * sizeof(in), sizeof(in));
		if (!model_do(m, &in, &out, out.res))
			return false;
	}
	return true;
}

/* Timers of an array: each armed, in this order, and what is told of them. */
static bool are_armed(struct model *m, const char *p, long nr, __u32 begin, __u16 flags)
{
	struct twheel_op op;
	struct timer *t;

	for (; nr > 0; nr--, p += sizeof(op)) {
		memcpy(&op, p, sizeof(op));
		t = model_find(m, op.id);
		if (!t || t->state != ARMED || op.opcode != TWHEEL_OP_ARM || op.flags != flags)
			return wrong(m, "%#llx, flags %#x: not armed", op.id, op.flags);
		if (flags && (__u32)op.id < begin)
			return wrong(m, "%#llx is out of order", op.id);
		begin = (__u32)op.id + 1;
		if (!tells(m, t, &op))
			return false;
		if (flags)
			continue;
		t->state = DEAD;
		m->stats.cancelled++;
	}
	return true;
}

static bool done_drain(struct model *m, struct call *c, long ret)
{
	char *p = (char *)(uintptr_t)c->in.array.ops;
	long due = model_count(m, ARMED), fit = room(&m->f, p, sizeof(struct twheel_op));

	if (due > c->in.array.nr)
		due = c->in.array.nr;
	if (ret != (due <= fit ? due : fit ? fit : -EFAULT))
		return wrong(m, "drained %ld of %ld with room for %ld", ret, due, fit);
	return are_armed(m, p, ret, 0, 0);
}

static bool done_list(struct model *m, struct call *c, long ret)
{
	char *p = (char *)(uintptr_t)c->in.array.ops;
	long i, due = 0, fit = room(&m->f, p, sizeof(struct twheel_op));

	for (i = 0; i < NR_IDS; i++)
		due += m->timers[i].state == ARMED && (__u32)m->ids[i] >= c->in.list.cursor;
	if (due > c->in.array.nr)
		due = c->in.array.nr;
	if (c->memory != GOOD)
		return ret < 0 || wrong(m, "listed with no room for the cursor");
	if (ret != (due <= fit ? due : -EFAULT))
		return wrong(m, "listed %ld of %ld with room for %ld", ret, due, fit);
	if (ret >= 0 && ret < c->in.array.nr && c->out.list.cursor)
		return wrong(m, "the list goes on at %llu", c->out.list.cursor);
	return are_armed(m, p, ret, c->in.list.cursor, TWHEEL_F_ARMED);
}

static bool done_next(struct model *m, struct call *c, long ret)
{
	__u64 from = TWHEEL_NEVER, to = TWHEEL_NEVER;
	size_t i;

	if (c->memory != GOOD)
		return ret < 0 || wrong(m, "no room for an answer");
	for (i = 0; i < NR_IDS; i++) {
		const struct timer *t = &m->timers[i];

		if (t->state != ARMED)
			continue;
		from = due_min(m, t) < from ? due_min(m, t) : from;
		to = due_max(m, t) < to ? due_max(m, t) : to;
	}
	if (ret || c->out.next.expires_ns < from || c->out.next.expires_ns > to)
		return wrong(m, "NEXT returns %ld: %llu, expected %llu to %llu", ret,
			     c->out.next.expires_ns, from, to);
	return true;
}

static bool done_advance(struct model *m, struct call *c, long ret)
{
	size_t i;

	if (c->in.advance.to_ns > TW_S64_MAX || c->in.advance.to_ns < m->f.now)
		return ret == -EINVAL || wrong(m, "ADVANCE to %llu", c->in.advance.to_ns);
	if (ret)
		return wrong(m, "ADVANCE returns %ld", ret);
	m->f.now = c->in.advance.to_ns;
	for (i = 0; i < NR_IDS; i++) {
		struct timer *t = &m->timers[i];

		if (t->state == ARMED && due_max(m, t) <= m->f.now) {
			model_place(m, t);
			m->noticed++;
		} else if (t->state == ARMED && t->op.expires_ns <= m->f.now) {
			t->state = EITHER;
		}
	}
	return true;
}

/* What is wrong with the head of a struct that begins with its size, or 0 */
static long head_errno(const struct call *c)
{
	size_t i, size = kinds[c->kind].size;

	if (c->in.size < (is_out(c->kind) ? 8 : size))
		return -EINVAL;
	if (is_out(c->kind) && c->in.size > sysconf(_SC_PAGESIZE))
		return -E2BIG;
	if (is_out(c->kind))
		return c->kind == STATS && c->in.stats.flags ? -EINVAL : 0;
	if (c->in.size > c->len)
		return -E2BIG;
	for (i = size; i < c->in.size; i++)
		if (c->in.bytes[i])
			return -E2BIG;
	if (c->kind != SETUP && c->in.array.flags)
		return -EINVAL;
	if (has_array(c->kind) && (c->in.array.pad || c->in.array.nr > 0x7fffffff))
		return -EINVAL;
	if (c->kind == LIST && c->in.list.cursor > 0xffffffff)
		return -EINVAL;
	return 0;
}

static bool done_out(struct model *m, struct call *c, long ret)
{
	size_t size = c->in.size < c->len ? c->in.size : c->len, i;

	if (memcmp(&c->in.bytes[size], &c->out.bytes[size], c->len - size))
		return wrong(m, "wrote more than was asked for");
	for (i = kinds[c->kind].size; c->memory == GOOD && i < size; i++)
		if (c->out.bytes[i])
			return wrong(m, "wrote what it does not know");
	return ret == (c->memory == GOOD ? 0 : -EFAULT) || wrong(m, "returns %ld", ret);
}

static bool done(struct model *m, struct call *c, long ret)
{
	long err;

	if (!is_documented(c, ret))
		return wrong(m, "returns %ld", ret);
	if (!is_known(c->cmd) || c->memory == BAD)
		return true;
	if (is_op(c->kind))
		return done_op(m, c, ret);
	err = head_errno(c);
	if (err)
		return ret == err || (ret == -EFAULT && c->memory != GOOD) ||
		       wrong(m, "returns %ld instead of %ld", ret, err);
	switch (c->kind) {
	case SETUP:
		return ret < 0 || wrong(m, "set up twice");
	case SUBMIT:
		return done_submit(m, c, ret);
	case NEXT:
		return done_next(m, c, ret);
	case DRAIN:
		return done_drain(m, c, ret);
	case LIST:
		return done_list(m, c, ret);
	case ADVANCE:
		return done_advance(m, c, ret);
	default:
		return done_out(m, c, ret);
	}
}

static bool step_call(struct model *m)
{
	struct call *c = &m->call;
	struct fuzzer *f = &m->f;
	char *behind;
	long ret;

	pick_call(f, c, pick_kind(f));
	memcpy(m->before, f->array.start, f->array.end - f->array.start);
	ret = issue(f, c);
	m->failed += ret < 0;
	behind = c->arg + c->len;
	/* A struct of up to a page that is only written is filled up with zeroes. */
	for (; !ret && is_out(c->kind) && behind < c->arg + c->in.size; behind++)
		if (*behind)
			return wrong(m, "not filled with zeroes");
	if (c->memory == GOOD && !tw_poisoned(behind, f->head.end - behind))
		return wrong(m, "wrote behind the struct");
	return done(m, c, ret);
}

static bool check_record(struct model *m, const struct twheel_event *ev)
{
	struct timer *t = model_find(m, ev->id);
	__u64 dropped = 0, overrun = 0;
	bool more;

	if (!t || t->state != READY)
		return wrong(m, "record of %#llx, not ready", ev->id);
	if (t->op.interval_ns && t->op.misfire != TWHEEL_MISFIRE_BURST)
		dropped = (m->f.now - t->op.expires_ns) / t->op.interval_ns;
	if (t->op.count && dropped >= t->op.count)
		dropped = t->op.count - 1;
	if (t->op.misfire == TWHEEL_MISFIRE_COUNT)
		overrun = dropped > 0xffffffff ? 0xffffffff : dropped;
	more = t->op.interval_ns && (!t->op.count || dropped + 1 < t->op.count);
	if (ev->user_data != t->op.user_data || ev->expires_ns != t->op.expires_ns ||
	    ev->fired_ns != t->fired || ev->overrun != overrun ||
	    ev->flags != (more ? TWHEEL_EV_MORE : 0))
		return wrong(m, "due %llu fired %llu overrun %llu, record says %llu %llu %u %#x",
			     t->op.expires_ns, t->fired, overrun, ev->expires_ns,
			     ev->fired_ns, ev->overrun, ev->flags);
	m->records++;
	t->state = DEAD;
	if (!more)
		return true;
	t->op.expires_ns = reachable(t->op.expires_ns + (dropped + 1) * t->op.interval_ns);
	if (t->op.count)
		t->op.count -= dropped + 1;
	model_place(m, t);
	return true;
}

static bool step_read(struct model *m)
{
	struct fuzzer *f = &m->f;
	size_t size = below(f, 4) ? 40 * below(f, 8) : skewed(f, 20);
	bool badly = !below(f, 6);
	char *p = badly ? place_badly(f, &f->array, size) :
			  place(f, &f->array, size % (40 * 300));
	size_t fit = room(f, p, sizeof(struct twheel_event));
	struct twheel_event ev;
	long i, ret;

	memset(f->array.start, TW_POISON, f->array.end - f->array.start);
	ret = read_somehow(f, p, size);
	if (fit > size / sizeof(ev))
		fit = size / sizeof(ev);
	if (ret == -EFAULT)
		return !fit || wrong(m, "read fails with room for %zu", fit);
	if (ret == -EINVAL)
		return size < sizeof(ev) || wrong(m, "read of %zu bytes fails", size);
	if (ret == -EAGAIN)
		return !model_count(m, READY) || wrong(m, "read nothing");
	if (!ret && !size)	/* readv() alone */
		return true;
	if (ret <= 0 || ret % sizeof(ev) || ret / sizeof(ev) > fit)
		return wrong(m, "read of %zu at %p returns %ld with room for %zu", size, p, ret,
			     fit);
	for (i = 0; i < ret; i += sizeof(ev)) {
		memcpy(&ev, p + i, sizeof(ev));
		if (!check_record(m, &ev))
			return false;
	}
	return ret / sizeof(ev) == fit || !model_count(m, READY) ||
	       wrong(m, "read %zu, room for %zu, some are ready", ret / sizeof(ev), fit);
}

static bool step_impossible(struct model *m)
{
	unsigned int which = below(&m->f, NR_IMPOSSIBLE);

	return is_impossible(&m->f, which) ||
	       wrong(m, "%s: errno %d", impossible[which], errno);
}

static bool step_poll(struct model *m)
{
	bool ready = model_count(m, READY);
	struct epoll_event event;
	long ret;

	ret = tw_poll(m->f.fd);
	if (ret != (ready ? POLLIN | POLLRDNORM : 0))
		return wrong(m, "poll says %#lx, ready %d", ret, ready);
	ret = epoll_wait(m->epfd, &event, 1, 0);
	return ret == ready || wrong(m, "epoll_wait() returns %ld, ready %d", ret, ready);
}

static bool step_simple(struct model *m)
{
	switch (below(&m->f, 16)) {
	case 0:
	case 1:
	case 2:
		return step_read(m);
	case 3:
		return step_impossible(m);
	case 4:
		return step_poll(m);
	default:
		return step_call(m);
	}
}

/* The wheel belongs to the open file: a child does as well as anybody. */
static bool step_in_child(struct model *m)
{
	int status;
	pid_t pid = fork();

	if (!pid)
		_exit(!step_simple(m));
	return (pid > 0 && waitpid(pid, &status, 0) == pid && !status) ||
	       *m->wrong || wrong(m, "the child died");
}

static bool step_dup(struct model *m)
{
	int fd = m->f.fd;

	m->f.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return (m->f.fd >= 0 && !close(fd)) || wrong(m, "dup: errno %d", errno);
}

/* Another wheel, after calls which are to come to nothing, or else it is dropped. */
static bool step_open(struct model *m)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct fuzzer *f = &m->f;
	unsigned int shift = 12 + below(f, 19), i;
	long ret;

	if (f->fd >= 0 && close(f->fd))
		return wrong(m, "close: errno %d", errno);
	do {
		f->fd = tw_open(O_NONBLOCK);
		ret = f->fd < 0 ? f->fd : -1;
		for (i = below(f, 4); i && ret < 0 && f->fd >= 0; i--) {
			build(f, &m->call, SETUP);
			mangle(f, &m->call);
			lay_out(f, &m->call, !below(f, 4));
			if (!is_known(m->call.cmd) || m->call.kind != SETUP)
				continue;
			ret = issue(f, &m->call);
			if (!is_documented(&m->call, ret))
				return wrong(m, "set-up returns %ld", ret);
		}
		if (ret >= 0)
			close(f->fd);
	} while (ret >= 0);
	m->capacity = 1 + below(f, NR_IDS);
	ret = tw_setup(f->fd, TWHEEL_CLOCK_MANUAL, 1ULL << shift, m->capacity);
	if (ret)
		return wrong(m, "open and set-up: %ld", ret);
	f->tick = 1ULL << shift;
	f->now = 0;
	memset(m->ids, 0, sizeof(m->ids));
	memset(m->timers, 0, sizeof(m->timers));
	memset(&m->stats, 0, sizeof(m->stats));
	m->noticed = 0;
	return !epoll_ctl(m->epfd, EPOLL_CTL_ADD, f->fd, &event) ||
	       wrong(m, "epoll_ctl: errno %d", errno);
}

/* Is the wheel as the model says? It tells the state that slack leaves open. */
static bool check(struct model *m, bool failed)
{
	struct twheel_op in, ops[NR_IDS];
	struct twheel_stats stats, expected;
	struct twheel_info info;
	__u64 sum = 0;
	size_t i;

	for (i = 0; i < NR_IDS; i++)
		ops[i] = tw_entry_by_id(TWHEEL_OP_QUERY, m->ids[i]);
	if (tw_submit(m->f.fd, ops, NR_IDS) != NR_IDS)
		return wrong(m, "cannot query");
	for (i = 0; i < NR_IDS; i++) {
		in = tw_entry_by_id(TWHEEL_OP_QUERY, m->ids[i]);
		if (!model_do(m, &in, &ops[i], ops[i].res))
			return false;
	}
	if (tw_info(m->f.fd, &info) || info.now_ns != m->f.now || info.tick_ns != m->f.tick ||
	    info.capacity != m->capacity || info.armed != model_count(m, ARMED) ||
	    info.ready != model_count(m, READY))
		return wrong(m, "now %llu armed %u ready %u, not %llu %u %u", info.now_ns,
			     info.armed, info.ready, m->f.now, model_count(m, ARMED),
			     model_count(m, READY));
	if (tw_stats(m->f.fd, &stats))
		return wrong(m, "no STATS");
	expected = m->stats;
	for (i = 0; i < TWHEEL_LATENESS_BUCKETS; i++)
		sum += stats.lateness[i];
	if (sum != m->noticed || stats.hrtimer_starts)
		return wrong(m, "%llu fired, lateness of %llu, %llu wake-ups", stats.fired, sum,
			     stats.hrtimer_starts);
	/* Others are counted too, but never by a call that fails. */
	if (!failed) {
		expected = stats;
		expected.armed = m->stats.armed;
		expected.cancelled = m->stats.cancelled;
		expected.modified = m->stats.modified;
		expected.fired = m->stats.fired;
	}
	if (memcmp(&stats, &expected, sizeof(stats)))
		return wrong(m, "armed %llu cancelled %llu modified %llu fired %llu, or others",
			     stats.armed, stats.cancelled, stats.modified, stats.fired);
	m->stats = stats;
	return true;
}

static bool step(struct model *m)
{
	__u64 failed = m->failed;
	bool right;

	switch (below(&m->f, 256)) {
	case 0:
		right = step_open(m);
		break;
	case 1:
		right = step_dup(m);
		break;
	case 2:
		right = step_in_child(m);
		break;
	default:
		right = step_simple(m);
	}
	return right && check(m, m->failed > failed);
}

#endif /* FUZZ_MODEL_H */
