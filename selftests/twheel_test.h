/* SPDX-License-Identifier: GPL-2.0 */
/*
 * twheel_test.h - what the kselftests of /dev/twheel share
 *
 * The helpers return what the system call returned, or -errno, and never use
 * the macros of the harness: so threads may call them, which must not leave
 * through ASSERT_*(). Everything that the kernel writes is poisoned before the
 * call, and so is every input that the call is not to look at.
 */
#ifndef TWHEEL_TEST_H
#define TWHEEL_TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

#include <linux/twheel.h>

#include <kselftest_harness.h>

/* Emulated and noisy machines are slow; a hang is all that this has to catch. */
#undef TEST_TIMEOUT_DEFAULT
#define TEST_TIMEOUT_DEFAULT	900

#define TW_DEVICE	"/dev/twheel"
#define TW_POISON	0xa5
#define TW_POISON64	0xa5a5a5a5a5a5a5a5ULL
#define TW_S64_MAX	0x7fffffffffffffffULL
#define TW_NSEC		1000000000ULL
#define TW_MSEC		1000000ULL
#define TW_HOUR		(3600 * TW_NSEC)
#define TW_TICK_MIN	(1ULL << 12)
#define TW_TICK_DEFAULT	(1ULL << 20)
#define TW_TICK_MAX	(1ULL << 30)
#define TW_PATIENCE_MS	60000	/* what must come comes within this */

#define tw_poison(obj)	memset((obj), TW_POISON, sizeof(*(obj)))

static inline long tw_ioctl(int fd, unsigned long cmd, void *arg)
{
	long ret = ioctl(fd, cmd, arg);

	return ret < 0 ? -errno : ret;
}

static inline int tw_open(int flags)
{
	int fd = open(TW_DEVICE, O_RDWR | O_CLOEXEC | flags);

	return fd < 0 ? -errno : fd;
}

static inline int tw_set_blocking(int fd)
{
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
}

static inline long tw_setup(int fd, __u32 clockid, __u64 tick, __u32 capacity)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.clockid = clockid,
		.capacity = capacity,
		.tick_ns = tick,
	};

	return tw_ioctl(fd, TWHEEL_IOC_SETUP, &setup);
}

/* An open wheel that has been set up, in non-blocking mode; or -errno. */
static inline int tw_wheel(__u32 clockid, __u64 tick, __u32 capacity)
{
	int fd = tw_open(O_NONBLOCK);
	long ret;

	if (fd < 0)
		return fd;
	ret = tw_setup(fd, clockid, tick, capacity);
	if (ret >= 0)
		return fd;
	close(fd);
	return ret;
}

static inline int tw_manual(__u64 tick)
{
	return tw_wheel(TWHEEL_CLOCK_MANUAL, tick, 0);
}

static inline long tw_info(int fd, struct twheel_info *info)
{
	tw_poison(info);
	info->size = sizeof(*info);
	return tw_ioctl(fd, TWHEEL_IOC_INFO, info);
}

/* A field of INFO that fits 32 bits, or poison if the call failed. */
static inline __u32 tw_armed(int fd)
{
	struct twheel_info info;

	return tw_info(fd, &info) ? 0xa5a5a5a5 : info.armed;
}

static inline __u32 tw_ready(int fd)
{
	struct twheel_info info;

	return tw_info(fd, &info) ? 0xa5a5a5a5 : info.ready;
}

static inline __u64 tw_features(int fd)
{
	struct twheel_info info;

	return tw_info(fd, &info) ? 0 : info.features;
}

static inline __u64 tw_now(int fd)
{
	struct twheel_info info;

	return tw_info(fd, &info) ? TW_POISON64 : info.now_ns;
}

static inline struct twheel_op tw_op(__u64 expires, __u64 user_data)
{
	return (struct twheel_op) {
		.res = (__s32)0xa5a5a5a5,
		.expires_ns = expires,
		.user_data = user_data,
	};
}

/* Poison all that an operation by id alone must not look at. */
static inline struct twheel_op tw_op_by_id(__u64 id)
{
	struct twheel_op op;

	tw_poison(&op);
	op.opcode = 0;
	op.flags = 0;
	op.id = id;
	memset(op.pad, 0, sizeof(op.pad));
	op.resv = 0;
	return op;
}

static inline long tw_arm_op(int fd, struct twheel_op *op)
{
	return tw_ioctl(fd, TWHEEL_IOC_ARM, op);
}

static inline long tw_arm_id(int fd, __u64 expires, __u64 user_data, __u64 *id)
{
	struct twheel_op op = tw_op(expires, user_data);
	long ret = tw_arm_op(fd, &op);

	*id = op.id;
	return ret;
}

/* The id, or 0. */
static inline __u64 tw_arm(int fd, __u64 expires, __u64 user_data)
{
	__u64 id;

	return tw_arm_id(fd, expires, user_data, &id) ? 0 : id;
}

static inline __u64 tw_arm_rel(int fd, __u64 delay, __u64 user_data)
{
	struct twheel_op op = tw_op(delay, user_data);

	op.flags = TWHEEL_F_REL;
	return tw_arm_op(fd, &op) ? 0 : op.id;
}

static inline __u64 tw_arm_every(int fd, __u64 first, __u64 interval, __u32 count)
{
	struct twheel_op op = tw_op(first, first);

	op.interval_ns = interval;
	op.count = count;
	return tw_arm_op(fd, &op) ? 0 : op.id;
}

static inline long tw_cancel(int fd, __u64 id)
{
	struct twheel_op op = tw_op_by_id(id);

	return tw_ioctl(fd, TWHEEL_IOC_CANCEL, &op);
}

static inline long tw_modify_op(int fd, struct twheel_op *op)
{
	return tw_ioctl(fd, TWHEEL_IOC_MODIFY, op);
}

static inline long tw_modify(int fd, __u64 id, __u64 expires)
{
	struct twheel_op op = tw_op(expires, TW_POISON64);

	op.id = id;
	return tw_modify_op(fd, &op);
}

static inline long tw_query(int fd, __u64 id, struct twheel_op *op)
{
	*op = tw_op_by_id(id);
	return tw_ioctl(fd, TWHEEL_IOC_QUERY, op);
}

/* TWHEEL_F_ARMED or TWHEEL_F_READY, or -errno */
static inline long tw_state(int fd, __u64 id)
{
	struct twheel_op op;
	long ret = tw_query(fd, id, &op);

	return ret < 0 ? ret : op.flags;
}

static inline long tw_next_err(int fd, __u64 *next)
{
	struct twheel_next arg;
	long ret;

	tw_poison(&arg);
	arg.size = sizeof(arg);
	arg.flags = 0;
	ret = tw_ioctl(fd, TWHEEL_IOC_NEXT, &arg);
	*next = arg.expires_ns;
	return ret;
}

/* The earliest expiry, or poison if the call failed. */
static inline __u64 tw_next(int fd)
{
	__u64 next;

	return tw_next_err(fd, &next) ? TW_POISON64 : next;
}

static inline long tw_advance(int fd, __u64 to)
{
	struct twheel_advance arg = {
		.size = sizeof(arg),
		.to_ns = to,
	};

	return tw_ioctl(fd, TWHEEL_IOC_ADVANCE, &arg);
}

/* An entry of an array that arms a timer */
static inline struct twheel_op tw_entry(__u64 expires, __u64 user_data)
{
	struct twheel_op op = tw_op(expires, user_data);

	op.opcode = TWHEEL_OP_ARM;
	op.id = TW_POISON64;
	return op;
}

/* An entry of an array that names a timer, poisoned as tw_op_by_id() */
static inline struct twheel_op tw_entry_by_id(__u16 opcode, __u64 id)
{
	struct twheel_op op = tw_op_by_id(id);

	op.opcode = opcode;
	return op;
}

static inline long tw_submit(int fd, void *ops, __u32 nr)
{
	struct twheel_submit arg = {
		.size = sizeof(arg),
		.ops = (uintptr_t)ops,
		.nr = nr,
	};

	return tw_ioctl(fd, TWHEEL_IOC_SUBMIT, &arg);
}

/* Does not poison @ops, as it may be memory that cannot be written. */
static inline long tw_drain(int fd, void *ops, __u32 nr)
{
	struct twheel_drain arg = {
		.size = sizeof(arg),
		.ops = (uintptr_t)ops,
		.nr = nr,
	};

	return tw_ioctl(fd, TWHEEL_IOC_DRAIN, &arg);
}

/* Does not poison @ops either. */
static inline long tw_list(int fd, void *ops, __u32 nr, __u64 *cursor)
{
	struct twheel_list arg = {
		.size = sizeof(arg),
		.ops = (uintptr_t)ops,
		.nr = nr,
		.cursor = *cursor,
	};
	long ret = tw_ioctl(fd, TWHEEL_IOC_LIST, &arg);

	*cursor = arg.cursor;
	return ret;
}

static inline long tw_stats(int fd, struct twheel_stats *stats)
{
	tw_poison(stats);
	stats->size = sizeof(*stats);
	stats->flags = 0;
	return tw_ioctl(fd, TWHEEL_IOC_STATS, stats);
}

/* How many records, at most @max, or -errno; a torn record is -EPROTO. */
static inline long tw_read(int fd, struct twheel_event *ev, size_t max)
{
	ssize_t ret;

	memset(ev, TW_POISON, max * sizeof(*ev));
	ret = read(fd, ev, max * sizeof(*ev));
	if (ret < 0)
		return -errno;
	return ret % sizeof(*ev) ? -EPROTO : (long)(ret / sizeof(*ev));
}

/* Read and forget all that is ready: how many, or -errno. */
static inline long tw_discard(int fd)
{
	static __thread struct twheel_event ev[256];
	long total = 0, ret;

	while ((ret = tw_read(fd, ev, 256)) > 0)
		total += ret;
	return ret == -EAGAIN ? total : ret;
}

/* What poll() says at once: revents, or -errno. */
static inline long tw_poll_for(int fd, short events, int timeout_ms)
{
	struct pollfd pfd = { .fd = fd, .events = events };
	int ret;

	pfd.revents = (short)0xa5a5;
	ret = poll(&pfd, 1, timeout_ms);
	return ret < 0 ? -errno : pfd.revents;
}

static inline long tw_poll(int fd)
{
	return tw_poll_for(fd, ~(POLLNVAL | POLLERR | POLLHUP), 0);
}

/* Wait until something can be read: true, or false when patience ends. */
static inline bool tw_wait_readable(int fd)
{
	return tw_poll_for(fd, POLLIN, TW_PATIENCE_MS) == POLLIN;
}

static inline __u64 tw_clock(clockid_t clockid)
{
	struct timespec ts;

	clock_gettime(clockid, &ts);
	return ts.tv_sec * TW_NSEC + ts.tv_nsec;
}

static inline void tw_sleep_ms(unsigned int ms)
{
	__u64 end = tw_clock(CLOCK_MONOTONIC) + ms * TW_MSEC;
	__u64 now;

	while ((now = tw_clock(CLOCK_MONOTONIC)) < end)
		usleep((end - now) / 1000 + 1);
}

/* The first boundary of a tick at or after @ns, when a timer fires. */
static inline __u64 tw_boundary(__u64 ns, __u64 tick)
{
	return (ns + tick - 1) & ~(tick - 1);
}

/*
 * The value of @key in the fdinfo of @fd: 0 and *@value, TWHEEL_NEVER for
 * "never"; or -errno.
 */
static inline long tw_fdinfo(int fd, const char *key, __u64 *value)
{
	size_t len = strlen(key);
	char path[64], line[128];
	long ret = -ENOENT;
	FILE *f;

	*value = TW_POISON64;
	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	f = fopen(path, "r");
	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		char *end, *text = line + len + 2;

		if (strncmp(line, key, len) || strncmp(line + len, ":\t", 2))
			continue;
		ret = 0;
		if (!strcmp(text, "never\n")) {
			*value = TWHEEL_NEVER;
			break;
		}
		*value = strtoull(text, &end, 10);
		if (end == text || *end != '\n')
			ret = -EPROTO;
		break;
	}
	fclose(f);
	return ret;
}

/* A counter of the fdinfo, or poison */
static inline __u64 tw_counter(int fd, const char *key)
{
	__u64 value;

	return tw_fdinfo(fd, key, &value) ? TW_POISON64 : value;
}

/* xorshift64*: repeatable everywhere */
static inline __u64 tw_random(__u64 *state)
{
	__u64 x = *state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*state = x;
	return x * 0x2545f4914f6cdd1dULL;
}

static inline __u64 tw_random_below(__u64 *state, __u64 below)
{
	return (tw_random(state) >> 16) % below;
}

/* As the shell does: echo text >path */
static inline bool tw_put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	bool written;

	if (fd < 0)
		return false;
	written = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	close(fd);
	return written;
}

/* A number of the environment */
static inline __u64 tw_env(const char *name, __u64 fallback)
{
	const char *text = getenv(name);

	return text && *text ? strtoull(text, NULL, 0) : fallback;
}

static inline bool tw_set_wall_clock(__u64 ns)
{
	struct timespec ts = {
		.tv_sec = ns / TW_NSEC,
		.tv_nsec = ns % TW_NSEC,
	};

	return !clock_settime(CLOCK_REALTIME, &ts);
}

static inline bool tw_move_wall_clock(__s64 by)
{
	return tw_set_wall_clock(tw_clock(CLOCK_REALTIME) + by);
}

/* How far TAI is ahead of the wall clock; the kernel knows whole seconds. */
static inline bool tw_set_tai(long seconds)
{
	struct timex tx = {
		.modes = ADJ_TAI,
		.constant = seconds,
	};

	return adjtimex(&tx) >= 0;
}

/* Kernels that look for bugs put guards around what is allocated. */
static inline bool tw_guarded(void)
{
	char line[256];
	bool found = false;
	FILE *f = fopen("/proc/kallsyms", "r");

	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, " kasan_report\n") || strstr(line, " kmemleak_scan\n");
	if (f)
		fclose(f);
	return found;
}

/*
 * @nr, of which a kernel that is slow for its checks is spared all but TWHEEL_PERCENT:
 * how often something is repeated that has no variable of its own.
 */
static inline __u32 tw_many(__u32 nr)
{
	__u64 some = nr * tw_env("TWHEEL_PERCENT", 100) / 100;

	return some ? some : 1;
}

/* One bit a number, to see that each came once. */
struct tw_bitmap {
	unsigned char *bits;
	size_t nr;
};

static inline bool tw_bitmap_init(struct tw_bitmap *map, size_t nr)
{
	map->nr = nr;
	map->bits = calloc((nr + 7) / 8, 1);
	return map->bits;
}

/* False if @i is out of range or was seen before. */
static inline bool tw_bitmap_add(struct tw_bitmap *map, __u64 i)
{
	unsigned char bit = 1 << (i & 7);

	if (i >= map->nr || (map->bits[i / 8] & bit))
		return false;
	map->bits[i / 8] |= bit;
	return true;
}

/* So many pages and one that is not there: the end of the last, or NULL. */
static inline char *tw_cliff_of(size_t pages)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *p = mmap(NULL, (pages + 1) * page, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED || munmap(p + pages * page, page))
		return NULL;
	memset(p, TW_POISON, pages * page);
	return p + pages * page;
}

static inline char *tw_cliff(void)
{
	return tw_cliff_of(1);
}

/* Whether all of it is poison */
static inline bool tw_poisoned(const void *at, size_t size)
{
	const unsigned char *p = at;

	while (size && *p == TW_POISON) {
		p++;
		size--;
	}
	return !size;
}

/* A thread that is expected to fall asleep in a system call. */
struct tw_sleeper {
	pthread_t thread;
	pid_t tid;		/* set by the thread, by tw_sleeper_begin() */
	int fd;
	long ret;
	int done;
	struct twheel_event ev;
};

static inline void tw_sleeper_begin(struct tw_sleeper *s)
{
	__atomic_store_n(&s->tid, syscall(SYS_gettid), __ATOMIC_RELEASE);
}

static inline void tw_sleeper_end(struct tw_sleeper *s, long ret)
{
	s->ret = ret;
	__atomic_store_n(&s->done, 1, __ATOMIC_RELEASE);
}

static inline bool tw_sleeper_done(struct tw_sleeper *s)
{
	return __atomic_load_n(&s->done, __ATOMIC_ACQUIRE);
}

static inline char tw_thread_state(pid_t tid)
{
	char path[64], line[256] = "";
	char *paren;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (!fgets(line, sizeof(line), f))
		line[0] = 0;
	fclose(f);
	paren = strrchr(line, ')');
	return paren && paren[1] ? paren[2] : 0;
}

/* Wait until the thread sleeps; false if it ended instead, or never does. */
static inline bool tw_sleeper_asleep(struct tw_sleeper *s)
{
	unsigned int asleep = 0, i;
	pid_t tid;

	for (i = 0; i < TW_PATIENCE_MS && !tw_sleeper_done(s); i++) {
		tid = __atomic_load_n(&s->tid, __ATOMIC_ACQUIRE);
		asleep = tid && tw_thread_state(tid) == 'S' ? asleep + 1 : 0;
		if (asleep == 20)
			return true;
		tw_sleep_ms(1);
	}
	return false;
}

static inline bool tw_sleeper_joined(struct tw_sleeper *s)
{
	unsigned int i;

	for (i = 0; i < TW_PATIENCE_MS && !tw_sleeper_done(s); i++)
		tw_sleep_ms(1);
	return tw_sleeper_done(s) && !pthread_join(s->thread, NULL);
}

static inline void *tw_sleeper_read(void *arg)
{
	struct tw_sleeper *s = arg;

	tw_sleeper_begin(s);
	tw_sleeper_end(s, tw_read(s->fd, &s->ev, 1));
	return NULL;
}

static inline void *tw_sleeper_poll(void *arg)
{
	struct tw_sleeper *s = arg;

	tw_sleeper_begin(s);
	tw_sleeper_end(s, tw_poll_for(s->fd, POLLIN | POLLRDNORM, -1));
	return NULL;
}

static inline bool tw_sleeper_start(struct tw_sleeper *s, int fd,
				    void *(*fn)(void *))
{
	memset(s, 0, sizeof(*s));
	s->fd = fd;
	return !pthread_create(&s->thread, NULL, fn, s);
}

#endif /* TWHEEL_TEST_H */
