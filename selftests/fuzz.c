// SPDX-License-Identifier: GPL-2.0
/*
 * Random calls, most of them right and many mangled: bits flipped, sizes and numbers
 * changed, memory that is not there or cannot be written.
 *
 *   TWHEEL_SEED=N          that run again; the seed is printed
 *   TWHEEL_FUZZ_SECONDS=N  how long each test goes on, 5 by default
 *
 * One test foretells each call on a manual clock with a model, and asks after each
 * whether the wheel is as the model says; so that a call which fails has changed
 * nothing. It does the same again for the same seed. The other test has threads that
 * share wheels on every clock, and looks at the accounts in the end.
 */
#include "twheel_test.h"

#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <sys/wait.h>

#define SECONDS		tw_env("TWHEEL_FUZZ_SECONDS", 5)
#define HANG_SECONDS	100	/* for some hundred calls, on the slowest machine */
#define MIN_STEPS	1000	/* however slow it is */
#define NO_LIMIT	1000000	/* seconds; hangs are noticed by alarm() */
#define NR_IDS		64	/* that are remembered of a wheel */
#define NR_OPS		80	/* more than are copied at one time */
#define MAX_HEAD	1024	/* no struct that begins with its size is longer */
#define HEAD_PAGES	2	/* room for the longest that is read, and a page */
#define ARRAY_PAGES	4
#define NR_THREADS	4
#define FLAGS_KNOWN	(TWHEEL_F_REL | TWHEEL_F_ARMED | TWHEEL_F_READY)

/* Calls, as the numbers of their ioctls */
enum { INFO, SETUP, ARM, CANCEL, MODIFY, QUERY, SUBMIT, NEXT, DRAIN, LIST, STATS, ADVANCE,
	NR_KINDS };

static const struct kind {
	unsigned long cmd;
	size_t size;
	int errnos[7];		/* those that are documented */
	unsigned int weight;
} kinds[NR_KINDS] = {
	{ TWHEEL_IOC_INFO, sizeof(struct twheel_info), { EINVAL, E2BIG, EFAULT }, 2 },
	{ TWHEEL_IOC_SETUP, sizeof(struct twheel_setup),
	  { EINVAL, E2BIG, EFAULT, EBUSY, EOPNOTSUPP, EPERM }, 2 },
	{ TWHEEL_IOC_ARM, sizeof(struct twheel_op),
	  { EINVAL, EFAULT, ENOSPC, EPERM, ENOMEM }, 12 },
	{ TWHEEL_IOC_CANCEL, sizeof(struct twheel_op), { EINVAL, EFAULT, ENOENT }, 5 },
	{ TWHEEL_IOC_MODIFY, sizeof(struct twheel_op), { EINVAL, EFAULT, ENOENT }, 8 },
	{ TWHEEL_IOC_QUERY, sizeof(struct twheel_op), { EINVAL, EFAULT, ENOENT }, 3 },
	{ TWHEEL_IOC_SUBMIT, sizeof(struct twheel_submit),
	  { EINVAL, E2BIG, ENOMEM, EFAULT }, 6 },
	{ TWHEEL_IOC_NEXT, sizeof(struct twheel_next), { EINVAL, E2BIG, EFAULT, EINTR }, 4 },
	{ TWHEEL_IOC_DRAIN, sizeof(struct twheel_drain), { EINVAL, E2BIG, EFAULT }, 2 },
	{ TWHEEL_IOC_LIST, sizeof(struct twheel_list),
	  { EINVAL, E2BIG, EFAULT, ENOMEM }, 4 },
	{ TWHEEL_IOC_STATS, sizeof(struct twheel_stats), { EINVAL, E2BIG, EFAULT }, 2 },
	{ TWHEEL_IOC_ADVANCE, sizeof(struct twheel_advance),
	  { EINVAL, E2BIG, EFAULT, EINTR }, 10 },
};

/* Memory with nothing behind its end */
struct region {
	char *start;
	char *end;
};

struct fuzzer {
	int fd;
	__u64 seed;
	__u64 now;
	__u64 tick;
	__u64 *ids;		/* NR_IDS, some of them stale or 0 */
	struct region head;
	struct region array;
	struct region readonly;
	int pipes[2];
};

enum memory { GOOD, READONLY, BAD };

struct call {
	unsigned int kind;
	unsigned long cmd;
	union {
		struct twheel_op op;
		struct twheel_info info;
		struct twheel_setup setup;
		struct twheel_submit array;	/* and twheel_drain, and ... */
		struct twheel_list list;	/* ... begin alike */
		struct twheel_next next;
		struct twheel_stats stats;
		struct twheel_advance advance;
		__u32 size;
		unsigned char bytes[MAX_HEAD];
	} in, out;
	size_t len;		/* bytes of @in */
	char *arg;
	enum memory memory;	/* of @arg */
	struct twheel_op ops[NR_OPS];
	__u32 nr_ops;
};

static __u64 below(struct fuzzer *f, __u64 n)
{
	return tw_random_below(&f->seed, n);
}

/* Small numbers as often as large ones */
static __u64 skewed(struct fuzzer *f, unsigned int bits)
{
	return tw_random(&f->seed) >> (63 - below(f, bits));
}

static bool region_init(struct region *r, size_t pages)
{
	size_t page = sysconf(_SC_PAGESIZE);

	r->start = mmap(NULL, (pages + 1) * page, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	r->end = r->start + pages * page;
	return r->start != MAP_FAILED && !mprotect(r->end, page, PROT_NONE);
}

static bool within(const struct region *r, const char *p)
{
	return p >= r->start && p < r->end;
}

static bool fuzzer_init(struct fuzzer *f, __u64 seed, __u64 *ids)
{
	f->seed = seed ? seed : 1;
	f->ids = ids;
	return region_init(&f->head, HEAD_PAGES) && region_init(&f->array, ARRAY_PAGES) &&
	       region_init(&f->readonly, 1) &&
	       !mprotect(f->readonly.start, f->readonly.end - f->readonly.start, PROT_READ) &&
	       !pipe2(f->pipes, O_CLOEXEC | O_NONBLOCK);
}

/* The region that the address is in, or NULL */
static const struct region *region_of(const struct fuzzer *f, const char *p)
{
	return within(&f->head, p) ? &f->head : within(&f->array, p) ? &f->array :
	       within(&f->readonly, p) ? &f->readonly : NULL;
}

/* Copy in as much as there is memory for. */
static void put(const struct fuzzer *f, char *to, const void *from, size_t size)
{
	const struct region *r = region_of(f, to);

	if (!r)
		return;
	if (size > (size_t)(r->end - to))
		size = r->end - to;
	if (r == &f->readonly) {
		mprotect(r->start, r->end - r->start, PROT_READ | PROT_WRITE);
		memset(r->start, TW_POISON, r->end - r->start);
	}
	memcpy(to, from, size);
	if (r == &f->readonly)
		mprotect(r->start, r->end - r->start, PROT_READ);
}

static void fetch(const struct fuzzer *f, void *to, const char *from, size_t size)
{
	const struct region *r = region_of(f, from);

	if (!r)
		return;
	if (size > (size_t)(r->end - from))
		size = r->end - from;
	memcpy(to, from, size);
}

/* How many objects the kernel can write there; they are never put into the head. */
static size_t room(const struct fuzzer *f, const char *p, size_t size)
{
	return within(&f->array, p) ? (f->array.end - p) / size : 0;
}

/* At the end of a region or just before, at an odd address too */
static char *place(struct fuzzer *f, const struct region *r, size_t size)
{
	return r->end - size - (below(f, 2) ? 0 : below(f, 64));
}

/* Memory that is too short, not there, or cannot be written */
static char *place_badly(struct fuzzer *f, const struct region *r, size_t size)
{
	switch (below(f, 6)) {
	case 0:
		return (char *)below(f, 64);
	case 1:
		return r->end + below(f, 64);
	case 2:
		return (char *)(uintptr_t)(0xffff888000000000ULL + below(f, 1 << 20));
	case 3:
		return (char *)-1L - below(f, size + 1);
	case 4:
		return f->readonly.start;
	default:
		if (size > (size_t)(r->end - r->start))
			size = r->end - r->start;
		return r->end - (size ? below(f, size) : 0);
	}
}

static __u64 pick_value(struct fuzzer *f)
{
	static const __u64 values[] = {
		0, 1, 0x7fffffff, 0x80000000, 0xffffffff, TW_S64_MAX, TW_S64_MAX + 1,
		TWHEEL_NEVER, TWHEEL_NEVER - 1, 4096, TW_POISON64,
	};
	size_t i = below(f, 2 * sizeof(values) / sizeof(*values));

	return i < sizeof(values) / sizeof(*values) ? values[i] : tw_random(&f->seed);
}

static __u64 pick_time(struct fuzzer *f)
{
	__u64 level = f->tick << (6 * below(f, 5));

	switch (below(f, 16)) {
	case 0:
		return TWHEEL_NEVER;
	case 1:
		return TW_S64_MAX - below(f, 2 * f->tick);
	case 2:
		return pick_value(f);
	case 3:
		return below(f, f->now + 1);
	case 4:
	case 5:
		return tw_boundary(f->now + 1, level) + below(f, 3) - 1;
	case 6:
		return f->now + below(f, 3);
	default:
		return f->now + skewed(f, 40);
	}
}

static void pick_op(struct fuzzer *f, struct twheel_op *op, unsigned int opcode)
{
	tw_poison(op);
	*op = tw_op_by_id(below(f, 16) ? f->ids[below(f, NR_IDS)] : pick_value(f));
	op->opcode = opcode;
	op->flags = below(f, 3) ? 0 : TWHEEL_F_REL;
	/* As though another call had filled it in */
	op->flags |= below(f, 8) ? 0 : TWHEEL_F_ARMED << below(f, 2);
	if (opcode != TWHEEL_OP_ARM && opcode != TWHEEL_OP_MODIFY)
		return;
	op->expires_ns = op->flags & TWHEEL_F_REL ? skewed(f, 40) : pick_time(f);
	op->interval_ns = below(f, 3) ? 0 : 1 + skewed(f, 40);
	op->slack_ns = below(f, 2) ? 0 : skewed(f, 40);
	op->count = op->interval_ns && below(f, 2) ? 1 + below(f, 10) : 0;
	op->misfire = below(f, 40) ? below(f, 3) : TWHEEL_MISFIRE_SKIP + 1;
	op->user_data = tw_random(&f->seed);
}

/* Of those that have twheel_submit.ops and so on */
static bool has_array(unsigned int kind)
{
	return kind == SUBMIT || kind == DRAIN || kind == LIST;
}

/* Of those that begin with their size and are written only */
static bool is_out(unsigned int kind)
{
	return kind == INFO || kind == STATS;
}

static bool is_op(unsigned int kind)
{
	return kind >= ARM && kind <= QUERY;
}

static bool is_known(unsigned long cmd)
{
	unsigned int nr = _IOC_NR(cmd);

	return nr < NR_KINDS && cmd == kinds[nr].cmd;
}

static unsigned int pick_kind(struct fuzzer *f)
{
	unsigned int kind, sum = 0;
	__u64 at;

	for (kind = 0; kind < NR_KINDS; kind++)
		sum += kinds[kind].weight;
	at = below(f, sum);
	for (kind = 0; at >= kinds[kind].weight; kind++)
		at -= kinds[kind].weight;
	return kind;
}

/* A call as it should be, but that values may be out of range */
static void build(struct fuzzer *f, struct call *c, unsigned int kind)
{
	__u32 i;

	memset(&c->in, is_out(kind) ? TW_POISON : 0, sizeof(c->in));
	c->kind = kind;
	c->cmd = kinds[kind].cmd;
	c->len = kinds[kind].size;
	c->nr_ops = 0;
	if (is_op(kind)) {
		pick_op(f, &c->in.op, kind - ARM + TWHEEL_OP_ARM);
		if (below(f, 2))
			c->in.op.opcode = TWHEEL_OP_NOP;
	} else {
		c->in.size = c->len;
	}
	if (has_array(kind)) {
		c->nr_ops = below(f, below(f, 4) ? 6 : NR_OPS + 1);
		memset(c->ops, TW_POISON, c->nr_ops * sizeof(*c->ops));
		for (i = 0; kind == SUBMIT && i < c->nr_ops; i++)
			pick_op(f, &c->ops[i], below(f, 12) % 5);
		c->in.array.nr = c->nr_ops;
		c->in.array.ops = (uintptr_t)place(f, &f->array,
						   c->nr_ops * sizeof(*c->ops));
	}
	if (kind == STATS)
		c->in.stats.flags = 0;
	if (kind == SETUP) {
		c->in.setup.clockid = TWHEEL_CLOCK_MANUAL;
		c->in.setup.tick_ns = skewed(f, 40);
		c->in.setup.capacity = 1 + below(f, NR_IDS);
	}
	if (kind == LIST && below(f, 3))
		c->in.list.cursor = below(f, NR_IDS);
	if (kind == ADVANCE)
		c->in.advance.to_ns = pick_time(f);
}

/* Any bits of it, but not those of an address, which has to be one of ours. */
static void flip(struct fuzzer *f, struct call *c)
{
	unsigned int n = 1 + below(f, 3);
	unsigned char *bytes = c->in.bytes;
	size_t at, size = c->len;

	if (c->nr_ops && below(f, 2)) {
		bytes = (void *)c->ops;
		size = c->nr_ops * sizeof(*c->ops);
	}
	while (n--) {
		at = below(f, size);
		if (has_array(c->kind) && bytes == c->in.bytes && at / 8 == 1)
			continue;
		bytes[at] ^= 1 << below(f, 8);
	}
}

static void mangle_size(struct fuzzer *f, struct call *c)
{
	size_t size = c->len, page = sysconf(_SC_PAGESIZE);

	if (is_op(c->kind))
		return;
	switch (below(f, 5)) {
	case 0:
		size = below(f, size);
		break;
	case 1:
		size = page + below(f, 2);
		break;
	case 2:
		size = pick_value(f);
		break;
	default:
		size += 1 + below(f, MAX_HEAD - size);
	}
	c->in.size = size;
	if (c->in.size <= c->len || c->in.size > MAX_HEAD)
		return;
	c->len = c->in.size;
	if (!is_out(c->kind) && below(f, 2))
		c->in.bytes[kinds[c->kind].size + below(f, c->len - kinds[c->kind].size)] =
			1 + below(f, 255);
}

static void mangle(struct fuzzer *f, struct call *c)
{
	__u64 value = pick_value(f);

	switch (below(f, 6)) {
	case 0:
		mangle_size(f, c);
		break;
	case 1:
		if (has_array(c->kind))
			c->in.array.ops = (uintptr_t)place_badly(f, &f->array,
							c->nr_ops * sizeof(*c->ops));
		break;
	case 2:
		if (!has_array(c->kind))
			memcpy(&c->in.bytes[below(f, c->len / 8) * 8], &value, 8);
		else if (below(f, 2))
			c->in.array.nr = value;
		else
			c->in.list.cursor = value;
		break;
	case 3:
		c->cmd = _IOC(below(f, 4), TWHEEL_IOC_TYPE, below(f, 2) ? c->kind : below(f, 256),
			      below(f, 2) ? _IOC_SIZE(c->cmd) : skewed(f, _IOC_SIZEBITS));
		if (is_known(c->cmd))
			c->cmd = kinds[c->kind].cmd;
		break;
	default:
		flip(f, c);
	}
}

/* Lays out the call; now and then where it cannot be. */
static void lay_out(struct fuzzer *f, struct call *c, bool badly)
{
	size_t page = sysconf(_SC_PAGESIZE), span = c->len;

	/* What is behind a long struct is poison. */
	if (!is_op(c->kind) && c->in.size > span && c->in.size <= page)
		span = c->in.size;
	/* As little as the first bytes may be asked for. */
	if (is_out(c->kind) && c->in.size < kinds[c->kind].size)
		badly = false;
	memset(f->head.start, TW_POISON, f->head.end - f->head.start);
	memset(f->array.start, TW_POISON, f->array.end - f->array.start);
	c->arg = badly ? place_badly(f, &f->head, kinds[c->kind].size) :
			 place(f, &f->head, span);
	c->memory = !badly ? GOOD : within(&f->readonly, c->arg) ? READONLY : BAD;
	if (has_array(c->kind))
		put(f, (char *)(uintptr_t)c->in.array.ops, c->ops,
		    c->nr_ops * sizeof(*c->ops));
	put(f, c->arg, c->in.bytes, c->len);
}

static long issue(struct fuzzer *f, struct call *c)
{
	long ret = tw_ioctl(f->fd, c->cmd, c->arg);

	memcpy(&c->out, &c->in, sizeof(c->out));
	fetch(f, c->out.bytes, c->arg, c->len);
	return ret;
}

static void pick_call(struct fuzzer *f, struct call *c, unsigned int kind)
{
	build(f, c, kind);
	if (!below(f, 3))
		mangle(f, c);
	lay_out(f, c, !below(f, 16));
}

static bool is_documented(const struct call *c, long ret)
{
	const int *err;

	if (!is_known(c->cmd))
		return ret == -ENOTTY;
	if (ret >= 0)
		return c->memory != BAD;
	for (err = kinds[c->kind].errnos; *err; err++)
		if (ret == -*err)
			return true;
	return false;
}

/* System calls of which nothing can come, and their errno */
static const char * const impossible[] = {
	"write", "pwrite", "pread", "lseek", "mmap", "splice", "ftruncate", "fsync",
	"unknown ioctl",
};

static bool is_impossible(struct fuzzer *f, unsigned int which)
{
	char buf[64] = "";

	errno = 0;
	switch (which) {
	case 0:
		return write(f->fd, buf, below(f, sizeof(buf))) < 0 && errno == EINVAL;
	case 1:
		return pwrite(f->fd, buf, below(f, sizeof(buf)), 0) < 0 && errno == ESPIPE;
	case 2:
		return pread(f->fd, buf, sizeof(buf), below(f, 100)) < 0 && errno == ESPIPE;
	case 3:
		return lseek(f->fd, below(f, 100), below(f, 3)) < 0 && errno == ESPIPE;
	case 4:
		return mmap(NULL, 4096, PROT_READ, below(f, 2) ? MAP_SHARED : MAP_PRIVATE,
			    f->fd, 0) == MAP_FAILED && errno == ENODEV;
	case 5:
		return splice(f->fd, NULL, f->pipes[1], NULL, 40, 0) < 0 && errno == EINVAL;
	case 6:
		return ftruncate(f->fd, below(f, 100)) < 0 && errno == EINVAL;
	case 7:
		return fsync(f->fd) < 0 && errno == EINVAL;
	default:
		return ioctl(f->fd, _IOC(below(f, 4), TWHEEL_IOC_TYPE,
					 NR_KINDS + below(f, 256 - NR_KINDS),
					 below(f, 1 << _IOC_SIZEBITS)), buf) < 0 && errno == ENOTTY;
	}
}

#define NR_IMPOSSIBLE	(sizeof(impossible) / sizeof(*impossible))

/* read() of some kind into @size bytes at @p */
static long read_somehow(struct fuzzer *f, char *p, size_t size)
{
	size_t cut = size ? below(f, size) : 0;
	struct iovec iov[2] = { { p, cut }, { p + cut, size - cut } };
	long ret;

	switch (below(f, 4)) {
	case 0:
		ret = readv(f->fd, iov, 2);
		break;
	case 1:
		ret = preadv2(f->fd, iov, 2, -1, RWF_NOWAIT);
		break;
	default:
		ret = read(f->fd, p, size);
	}
	return ret < 0 ? -errno : ret;
}

/* The model */

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

static __u64 pick_seed(void)
{
	__u64 seed = 0;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = tw_clock(CLOCK_REALTIME);
	return tw_env("TWHEEL_SEED", seed);
}

static __u64 fuzz_end(void)
{
	return tw_clock(CLOCK_MONOTONIC) + SECONDS * TW_NSEC;
}

#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	NO_LIMIT

TEST(a_model_foretells_each_call)
{
	struct model *m = mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	__u64 seed = pick_seed(), end = fuzz_end();
	unsigned int i;

	ASSERT_NE(MAP_FAILED, m);
	TH_LOG("TWHEEL_SEED=%#llx", seed);
	ASSERT_TRUE(fuzzer_init(&m->f, seed, m->ids));
	m->f.fd = -1;
	m->epfd = epoll_create1(EPOLL_CLOEXEC);
	ASSERT_LE(0, m->epfd);
	ASSERT_TRUE(step_open(m) && check(m, false)) {
		TH_LOG("%s", m->wrong);
	}
	while (m->steps < MIN_STEPS || tw_clock(CLOCK_MONOTONIC) < end) {
		alarm(HANG_SECONDS);
		for (i = 0; i < 100; i++, m->steps++) {
			ASSERT_TRUE(step(m)) {
				TH_LOG("TWHEEL_SEED=%#llx step %llu, call %u %#lx: %s", seed,
				       m->steps, m->call.kind, m->call.cmd, m->wrong);
			}
		}
	}
	TH_LOG("%llu steps, %llu calls that failed, %llu records", m->steps, m->failed,
	       m->records);
	EXPECT_LT(0, m->records);
}

/* Threads without a model */

static const __u32 clocks[] = {
	CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME, CLOCK_TAI, TWHEEL_CLOCK_MANUAL,
};

#define NR_WHEELS	(sizeof(clocks) / sizeof(*clocks))

struct shared_wheel {
	int fd;
	__u64 ended;		/* timers whose last record has been read */
	__u64 ids[NR_IDS];	/* written by all threads, right or not */
};

struct worker {
	pthread_t thread;
	struct fuzzer f;
	struct shared_wheel *wheels;
	__u64 end;
	__u64 calls;
	struct call call;
	const char *wrong;
	long ret;
};

static long shared_setup(int fd, __u32 clockid, bool moderate)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.clockid = clockid,
		.capacity = NR_IDS,
		.tick_ns = TW_TICK_MIN,
		.wake_delay_ns = moderate ? TW_MSEC : 0,
		.wake_batch = moderate ? 5 : 0,
	};

	return tw_ioctl(fd, TWHEEL_IOC_SETUP, &setup);
}

/* Counts the records of timers that have ended; -1 if one is early. */
static long count_ended(const char *p, long size)
{
	struct twheel_event ev;
	long ended = 0;

	for (; size > 0; size -= sizeof(ev), p += sizeof(ev)) {
		memcpy(&ev, p, sizeof(ev));
		if (ev.flags & TWHEEL_EV_CLOCK_SET)
			continue;
		if (ev.fired_ns < ev.expires_ns)
			return -1;
		ended += !(ev.flags & TWHEEL_EV_MORE);
	}
	return ended;
}

static void remember(struct fuzzer *f, __u64 id)
{
	__atomic_store_n(&f->ids[below(f, NR_IDS)], id, __ATOMIC_RELAXED);
}

static bool work_call(struct worker *w, unsigned int kind)
{
	struct fuzzer *f = &w->f;
	struct twheel_op op;
	long i;

	pick_call(f, &w->call, kind);
	w->ret = issue(f, &w->call);
	if (!is_documented(&w->call, w->ret))
		return false;
	if (kind == ARM && !w->ret)
		remember(f, w->call.out.op.id);
	for (i = 0; kind == SUBMIT && i < w->ret && i < w->call.nr_ops; i++) {
		fetch(f, &op, (char *)(uintptr_t)w->call.in.array.ops + i * sizeof(op),
		      sizeof(op));
		if (op.opcode == TWHEEL_OP_ARM && !op.res)
			remember(f, op.id);
	}
	return true;
}

static bool work_read(struct worker *w, struct shared_wheel *wheel)
{
	struct fuzzer *f = &w->f;
	size_t size = sizeof(struct twheel_event) * (1 + below(f, 20));
	char *p = below(f, 8) ? place(f, &f->array, size) : place_badly(f, &f->array, size);
	long ended;

	w->ret = read_somehow(f, p, size);
	if (w->ret < 0)
		return w->ret == -EAGAIN || w->ret == -EFAULT;
	ended = count_ended(p, w->ret);
	__atomic_fetch_add(&wheel->ended, ended, __ATOMIC_RELAXED);
	return ended >= 0;
}

/* A wheel of its own, closed with what is in it by this process or by a child. */
static bool work_alone(struct worker *w)
{
	__u64 ids[NR_IDS] = {}, *shared = w->f.ids;
	int fd = w->f.fd, status;
	bool right = true;
	unsigned int i;
	pid_t pid;

	w->f.fd = tw_open(O_NONBLOCK);
	w->f.ids = ids;
	w->ret = w->f.fd;
	if (w->f.fd < 0)
		return false;
	shared_setup(w->f.fd, clocks[below(&w->f, NR_WHEELS)], below(&w->f, 2));
	for (i = below(&w->f, 20); i && right; i--)
		right = work_call(w, pick_kind(&w->f));
	pid = below(&w->f, 8) ? -1 : fork();
	if (!pid)
		_exit(!work_call(w, SUBMIT));
	close(w->f.fd);
	if (pid > 0)
		right &= waitpid(pid, &status, 0) == pid && !status;
	w->f.fd = fd;
	w->f.ids = shared;
	return right;
}

static const char *work(struct worker *w)
{
	struct shared_wheel *wheel = &w->wheels[below(&w->f, NR_WHEELS)];

	w->f.fd = wheel->fd;
	w->f.ids = wheel->ids;
	w->f.tick = TW_TICK_MIN;
	w->f.now = tw_now(wheel->fd);
	switch (below(&w->f, 32)) {
	case 0:
		return work_alone(w) ? NULL : "on a wheel alone";
	case 1:
		return is_impossible(&w->f, below(&w->f, NR_IMPOSSIBLE)) ? NULL : "impossible";
	case 2:
	case 3:
		return tw_poll(wheel->fd) < 0 ? "poll" : NULL;
	case 4:
	case 5:
	case 6:
	case 7:
		return work_read(w, wheel) ? NULL : "read";
	default:
		return work_call(w, pick_kind(&w->f)) ? NULL : "call";
	}
}

static void *worker(void *arg)
{
	struct worker *w = arg;

	for (; !w->wrong && (w->calls < MIN_STEPS || tw_clock(CLOCK_MONOTONIC) < w->end);
	     w->calls++)
		w->wrong = work(w);
	return NULL;
}

/* Read and cancel until nothing is left: the timers whose last record came, or -1. */
static long empty(int fd)
{
	struct twheel_event ev[NR_IDS];
	struct twheel_op ops[NR_IDS];
	struct twheel_info info;
	long i, nr, ended = 0;
	unsigned int rounds;

	for (rounds = 0; rounds < 1000; rounds++) {
		if (tw_info(fd, &info))
			return -1;
		if (!info.armed && !info.ready)
			return ended;
		if (tw_drain(fd, ops, NR_IDS) < 0)
			return -1;
		nr = tw_read(fd, ev, NR_IDS);
		for (i = 0; i < nr; i++) {
			if (ev[i].flags & TWHEEL_EV_MORE)
				tw_cancel(fd, ev[i].id);
			else if (!(ev[i].flags & TWHEEL_EV_CLOCK_SET))
				ended++;
		}
	}
	return -1;
}

static bool goes_idle(int fd)
{
	unsigned int i;

	for (i = 0; i < TW_PATIENCE_MS; i++) {
		if (tw_counter(fd, "next_wake_ns") == TWHEEL_NEVER)
			return true;
		tw_sleep_ms(1);
	}
	return false;
}

TEST(threads_on_shared_wheels_leave_the_accounts_right)
{
	static struct worker workers[NR_THREADS];
	static struct shared_wheel wheels[NR_WHEELS];
	__u64 seed = pick_seed(), end = fuzz_end(), calls = 0, sum;
	struct twheel_stats stats;
	size_t i, j;
	long ended;

	TH_LOG("TWHEEL_SEED=%#llx", seed);
	alarm(SECONDS + HANG_SECONDS);
	for (i = 0; i < NR_WHEELS; i++) {
		wheels[i].fd = tw_open(O_NONBLOCK);
		ASSERT_LE(0, wheels[i].fd);
		ASSERT_EQ(0, shared_setup(wheels[i].fd, clocks[i], i % 2));
	}
	for (i = 0; i < NR_THREADS; i++) {
		ASSERT_TRUE(fuzzer_init(&workers[i].f, seed + i, NULL));
		workers[i].wheels = wheels;
		workers[i].end = end;
		ASSERT_EQ(0, pthread_create(&workers[i].thread, NULL, worker, &workers[i]));
	}
	for (i = 0; i < NR_THREADS; i++) {
		ASSERT_EQ(0, pthread_join(workers[i].thread, NULL));
		EXPECT_EQ(NULL, workers[i].wrong) {
			TH_LOG("%s: call %u %#lx returns %ld", workers[i].wrong,
			       workers[i].call.kind, workers[i].call.cmd, workers[i].ret);
		}
		calls += workers[i].calls;
	}
	for (i = 0; i < NR_WHEELS; i++) {
		ended = empty(wheels[i].fd);
		ASSERT_LE(0, ended);
		ASSERT_EQ(0, tw_stats(wheels[i].fd, &stats));
		EXPECT_EQ(stats.armed, stats.cancelled + wheels[i].ended + ended);
		for (sum = 0, j = 0; j < TWHEEL_LATENESS_BUCKETS; j++)
			sum += stats.lateness[j];
		EXPECT_GE(stats.fired, sum);
		EXPECT_LT(0, stats.fired);
		EXPECT_TRUE(goes_idle(wheels[i].fd));
		close(wheels[i].fd);
	}
	TH_LOG("%llu calls", calls);
}

TEST_HARNESS_MAIN
