/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Random calls for fuzz.c: what they say, where it lies, and what may come of them.
 */
#ifndef FUZZ_CALLS_H
#define FUZZ_CALLS_H

#include "twheel_test.h"

#include <sys/uio.h>

#define NR_IDS		64	/* that are remembered of a wheel */
#define NR_OPS		80	/* more than are copied at one time */
#define MAX_HEAD	1024	/* no struct that begins with its size is longer */
#define HEAD_PAGES	2	/* room for the longest that is read, and a page */
#define ARRAY_PAGES	4
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

#endif /* FUZZ_CALLS_H */
