// SPDX-License-Identifier: GPL-2.0
/*
 * hostile.c - random circumstances, all at once, for as long as one likes
 *
 *   TWHEEL_SEED=N             that plan again; the seed is printed
 *   TWHEEL_HOSTILE_SECONDS=N  how long, 5 by default
 *   TWHEEL_HEARTBEAT_MS=N     see pulse.h
 *
 * Processes of several users, some of them in time namespaces, open wheels of every kind
 * and do all calls to them, through pointers behind which userfaultfd dawdles, in readv()
 * of 1,023 pieces and by splice(). They fork, and hand wheels to each other. Meanwhile the
 * wall clock and TAI are set by any amount, a CPU comes and goes, the limit of memory
 * changes, and processes are stopped, traced and killed in whatever they do.
 *
 * A ledger in shared memory has an entry for each timer. Whoever arms one says so before,
 * and whoever learns of its end says so after: a timer that ended twice, or without having
 * been armed, or never, is an error. What a process had in its hands when it was killed
 * cannot be known; so many may be missing. A wheel is judged by its last holder. If that
 * was killed, the kernel closed the wheel, and the fate of the rest was that.
 *
 * The same seed gives each process the same numbers; how they interleave is up to the
 * scheduler.
 */
#include "pulse.h"

#include <linux/userfaultfd.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME	0x80
#endif

#define SECONDS		tw_env("TWHEEL_HOSTILE_SECONDS", 5)
#define NO_LIMIT	1000000	/* seconds; hangs are noticed by patience */
#define NR_PROCS	24	/* records of processes */
#define NR_WORKERS	6
#define NR_USERS	3
#define FIRST_USER	60000
#define NR_WHEELS	1024
#define NR_BIG		4	/* the last of them, which take a flood */
#define SMALL		512	/* timers of a wheel in its whole life */
#define BIG		(1U << 18)
#define FLOOD		200000
#define MAX_OPEN	150	/* of one process */
#define MAX_BATCH	80
#define MAX_READ	1024
#define MAX_COUNT	20	/* periods */
#define PIECES		1023
#define WINDOW_PAGES	20	/* of memory that is missing when the kernel looks */
#define SECOND_CPU	"/sys/devices/system/cpu/cpu1/online"
#define USER_LIMIT	"/sys/module/twheel/parameters/user_memory_max"

/* user_data names wheel, its generation and the timer. */
#define SERIAL_BITS	20
#define WHEEL_BITS	12

/* One timer: flags, how often it ended, periods that were told */
#define TRIED		(1U << 0)
#define ARMED		(1U << 1)
#define REFUSED		(1U << 2)
#define ENDED		(1U << 8)	/* a count, up to 255 */
#define TOLD		(1U << 16)	/* a count, wraps */

struct entry {
	__u64 id;		/* atomic; 0: not told yet */
	__u32 word;		/* atomic */
	__u16 count;		/* periods, 0: of a timer that expires once or for ever */
	__u8 periodic;
	__u8 misfire;
};

struct wheel {
	int used;		/* atomic */
	int holders;		/* atomic: processes, and messages on their way */
	__u32 generation;
	__u32 clockid;
	__u32 next;		/* atomic: the next serial number */
	__u32 lost;		/* atomic: what dead processes had in their hands */
	__u32 size;
	struct entry *entries;
};

/* What is left of a process when it is killed */
struct proc {
	int used;		/* atomic */
	pid_t pid;		/* atomic */
	bool killed;
	int in_hand_wheel;
	__u32 in_hand;		/* records or results that are not in the ledger yet */
	int wheels[MAX_OPEN];	/* indices, -1 for none */
	__u64 steps;
};

struct shared {
	bool stop;		/* atomic */
	__u32 errors;		/* atomic */
	char error[256];
	__u64 seed;
	__u64 judged;		/* atomic: wheels */
	__u64 timers;		/* atomic: that were in them */
	__u64 kills, steps, floods, passed, forks, faults, expected;	/* atomic */
	struct proc procs[NR_PROCS];
	struct wheel wheels[NR_WHEELS];
	struct entry small[NR_WHEELS - NR_BIG][SMALL];
	struct entry big[NR_BIG][BIG];
};

static struct shared *shared;
static int mailbox[2];		/* descriptors on their way; all processes have both ends */

/* A process that does calls */
struct worker {
	struct proc *proc;
	__u64 seed;
	int fds[MAX_OPEN];
	char *window;		/* memory that is missing, or that is just memory */
	int uffd;
	bool child;		/* of a worker: it does not fork */
	__u64 left;		/* steps */
};

static void count(__u64 *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static bool stopped(void)
{
	return __atomic_load_n(&shared->stop, __ATOMIC_ACQUIRE);
}

static void error(const char *format, ...)
{
	va_list args;

	if (__atomic_fetch_add(&shared->errors, 1, __ATOMIC_ACQ_REL))
		return;
	va_start(args, format);
	vsnprintf(shared->error, sizeof(shared->error), format, args);
	va_end(args);
}

static __u64 below(struct worker *w, __u64 n)
{
	return tw_random_below(&w->seed, n);
}

static bool one_in(struct worker *w, unsigned int n)
{
	return !below(w, n);
}

/*
 * The ledger
 */

static __u64 name_of(int wheel, __u32 serial)
{
	return (__u64)shared->wheels[wheel].generation << (SERIAL_BITS + WHEEL_BITS) |
	       (__u64)wheel << SERIAL_BITS | serial;
}

/* The entry of a timer that the kernel told of, or NULL */
static struct entry *entry_of(int wheel, __u64 user_data)
{
	struct wheel *l = &shared->wheels[wheel];
	__u32 serial = user_data & ((1U << SERIAL_BITS) - 1);

	if (serial >= l->size || user_data != name_of(wheel, serial) ||
	    !(__atomic_load_n(&l->entries[serial].word, __ATOMIC_ACQUIRE) & TRIED)) {
		error("wheel %d: a timer %llx that nobody armed", wheel, user_data);
		return NULL;
	}
	return &l->entries[serial];
}

static void ended(int wheel, struct entry *entry, const char *how)
{
	__u32 word = __atomic_add_fetch(&entry->word, ENDED, __ATOMIC_ACQ_REL);

	if ((word / ENDED & 0xff) != 1)
		error("wheel %d, clock %u: timer %d had an end before it was %s", wheel,
		      shared->wheels[wheel].clockid,
		      (int)(entry - shared->wheels[wheel].entries), how);
	if (word & REFUSED)
		error("wheel %d: a timer that was refused was %s", wheel, how);
}

static void told(int wheel, struct entry *entry, const struct twheel_event *ev)
{
	__u32 periods = ev->overrun + 1, word;

	word = __atomic_add_fetch(&entry->word, periods * TOLD, __ATOMIC_ACQ_REL);
	if (!(ev->flags & TWHEEL_EV_MORE)) {
		ended(wheel, entry, "read");
		/* What another reader has taken may not be in the ledger yet. */
		if (entry->count && entry->misfire != TWHEEL_MISFIRE_SKIP &&
		    word / TOLD > entry->count)
			error("wheel %d: %u periods of %u", wheel, word / TOLD, entry->count);
	}
}

static void note_record(int wheel, const struct twheel_event *ev)
{
	struct entry *entry;

	if (ev->flags & TWHEEL_EV_CLOCK_SET)
		return;
	if (ev->fired_ns < ev->expires_ns)
		error("wheel %d, clock %u: early by %llu ns", wheel,
		      shared->wheels[wheel].clockid, ev->expires_ns - ev->fired_ns);
	entry = entry_of(wheel, ev->user_data);
	if (entry)
		told(wheel, entry, ev);
}

static void take_in_hand(struct worker *w, int wheel, __u32 nr)
{
	w->proc->in_hand_wheel = wheel;
	__atomic_store_n(&w->proc->in_hand, nr, __ATOMIC_RELEASE);
}

static void lay_down(struct worker *w)
{
	__atomic_store_n(&w->proc->in_hand, 0, __ATOMIC_RELEASE);
}

/* A wheel of the ledger with one holder, or -1 */
static int take_wheel(bool big)
{
	int i = big ? NR_WHEELS - NR_BIG : 0, end = big ? NR_WHEELS : NR_WHEELS - NR_BIG, was;
	struct wheel *l;

	for (; i < end; i++) {
		l = &shared->wheels[i];
		was = 0;
		if (!__atomic_compare_exchange_n(&l->used, &was, 1, false, __ATOMIC_ACQ_REL,
						 __ATOMIC_RELAXED))
			continue;
		l->size = big ? BIG : SMALL;
		l->entries = big ? shared->big[i - (NR_WHEELS - NR_BIG)] : shared->small[i];
		memset(l->entries, 0, l->next * sizeof(*l->entries));
		l->generation++;
		l->next = 0;
		l->lost = 0;
		__atomic_store_n(&l->holders, 1, __ATOMIC_RELEASE);
		return i;
	}
	return -1;
}

/* True if that was the last holder, who then gives the wheel back. */
static bool let_go(int wheel)
{
	return __atomic_sub_fetch(&shared->wheels[wheel].holders, 1, __ATOMIC_ACQ_REL) == 0;
}

static void give_back(int wheel)
{
	__atomic_store_n(&shared->wheels[wheel].used, 0, __ATOMIC_RELEASE);
}

/*
 * Calls
 */

/* Memory for the kernel to fault on, emptied anew, or memory */
static void *window(struct worker *w, size_t size)
{
	size_t page = sysconf(_SC_PAGESIZE), offset;

	madvise(w->window, WINDOW_PAGES * page, MADV_DONTNEED);
	if (w->uffd >= 0)
		count(&shared->faults);
	offset = below(w, WINDOW_PAGES * page - size) & ~7UL;
	return w->window + offset;
}

/* Fills in pages some time after they were missed. */
static void *serve_faults(void *arg)
{
	struct worker *w = arg;
	size_t page = sysconf(_SC_PAGESIZE);
	struct uffdio_zeropage zero;
	struct uffd_msg msg;
	__u64 seed = 7;

	while (read(w->uffd, &msg, sizeof(msg)) == sizeof(msg)) {
		if (msg.event != UFFD_EVENT_PAGEFAULT)
			continue;
		if (!tw_random_below(&seed, 8))
			usleep(tw_random_below(&seed, 3000));
		memset(&zero, 0, sizeof(zero));
		zero.range.start = msg.arg.pagefault.address & ~(page - 1);
		zero.range.len = page;
		ioctl(w->uffd, UFFDIO_ZEROPAGE, &zero);
	}
	return NULL;
}

/* Has to be root; without it the window is plain memory. */
static void open_window(struct worker *w)
{
	size_t size = WINDOW_PAGES * sysconf(_SC_PAGESIZE);
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct uffdio_api api = { .api = UFFD_API };

	w->window = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	w->uffd = syscall(SYS_userfaultfd, O_CLOEXEC);
	reg.range.start = (uintptr_t)w->window;
	reg.range.len = size;
	if (w->uffd >= 0 && (ioctl(w->uffd, UFFDIO_API, &api) ||
			     ioctl(w->uffd, UFFDIO_REGISTER, &reg))) {
		close(w->uffd);
		w->uffd = -1;
	}
}

/* The wheel that is open at @i */
static struct wheel *wheel_at(struct worker *w, unsigned int i)
{
	return &shared->wheels[w->proc->wheels[i]];
}

static __u64 random_expiry(struct worker *w, int fd)
{
	static const __u64 spans[] = { 10000, TW_MSEC, 20 * TW_MSEC, TW_NSEC, TW_HOUR,
		1000 * TW_HOUR };
	__u64 now = tw_now(fd);

	switch (below(w, 12)) {
	case 0:
		return TWHEEL_NEVER;
	case 1:
		return TW_S64_MAX - below(w, 4 * TW_TICK_MAX);
	case 2:
		return below(w, now ? now : 1);
	default:
		return now + below(w, spans[below(w, ARRAY_SIZE(spans))]);
	}
}

/* Fills in @op and its entry: false if the wheel has had its share of timers. */
static bool prepare_arm(struct worker *w, unsigned int i, struct twheel_op *op)
{
	struct wheel *l = wheel_at(w, i);
	__u32 serial = __atomic_fetch_add(&l->next, 1, __ATOMIC_ACQ_REL);
	struct entry *entry = &l->entries[serial];

	if (serial >= l->size) {
		__atomic_fetch_sub(&l->next, 1, __ATOMIC_ACQ_REL);
		return false;
	}
	*op = tw_entry(random_expiry(w, w->fds[i]), name_of(w->proc->wheels[i], serial));
	if (one_in(w, 4) && op->expires_ns <= TW_S64_MAX)
		op->slack_ns = below(w, 10 * TW_MSEC);
	if (one_in(w, 4)) {
		op->interval_ns = 1 + below(w, 5 * TW_MSEC);
		op->count = below(w, MAX_COUNT);
		op->misfire = below(w, 3);
	}
	entry->id = 0;
	entry->count = op->count;
	entry->periodic = op->interval_ns != 0;
	entry->misfire = op->misfire;
	__atomic_store_n(&entry->word, TRIED, __ATOMIC_RELEASE);
	return true;
}

static bool may_refuse(long ret)
{
	return ret == -ENOSPC || ret == -EPERM || ret == -ENOMEM;
}

static void note_arm(struct worker *w, unsigned int i, const struct twheel_op *op, long ret)
{
	struct entry *entry = entry_of(w->proc->wheels[i], op->user_data);

	if (!entry)
		return;
	if (!ret) {
		__atomic_store_n(&entry->id, op->id, __ATOMIC_RELEASE);
		__atomic_fetch_or(&entry->word, ARMED, __ATOMIC_ACQ_REL);
		return;
	}
	if (!may_refuse(ret))
		error("an arm returned %ld", ret);
	if (__atomic_fetch_or(&entry->word, REFUSED, __ATOMIC_ACQ_REL) / ENDED & 0xff)
		error("a timer that was refused had ended");
}

static void do_arm(struct worker *w, unsigned int i)
{
	struct twheel_op op, *at = &op;
	long ret;

	if (!prepare_arm(w, i, &op))
		return;
	if (one_in(w, 4)) {
		at = window(w, sizeof(op));
		*at = op;
	}
	ret = tw_arm_op(w->fds[i], at);
	op.id = at->id;
	note_arm(w, i, &op, ret);
}

/* A timer of the wheel that may live, or NULL */
static struct entry *some_entry(struct worker *w, unsigned int i)
{
	struct wheel *l = wheel_at(w, i);
	__u32 next = __atomic_load_n(&l->next, __ATOMIC_ACQUIRE);

	return next ? &l->entries[below(w, next < l->size ? next : l->size)] : NULL;
}

static void note_cancel(struct worker *w, unsigned int i, struct entry *entry, long ret)
{
	if (ret >= 0)
		ended(w->proc->wheels[i], entry, "cancelled");
	else if (ret != -ENOENT)
		error("a cancel returned %ld", ret);
}

static void do_cancel(struct worker *w, unsigned int i)
{
	struct entry *entry = some_entry(w, i);
	__u64 id = entry ? __atomic_load_n(&entry->id, __ATOMIC_ACQUIRE) : 0;
	struct twheel_op op = tw_op_by_id(id), *at = &op;

	if (!id)
		return;
	if (one_in(w, 4)) {
		at = window(w, sizeof(op));
		*at = op;
	}
	take_in_hand(w, w->proc->wheels[i], 1);
	note_cancel(w, i, entry, tw_ioctl(w->fds[i], TWHEEL_IOC_CANCEL, at));
	lay_down(w);
}

/* One that expires once: how many periods another has left is hard to say. */
static void do_modify(struct worker *w, unsigned int i)
{
	struct entry *entry = some_entry(w, i);
	__u64 id = entry ? __atomic_load_n(&entry->id, __ATOMIC_ACQUIRE) : 0;
	long ret;

	if (!id || entry->periodic)
		return;
	ret = tw_modify(w->fds[i], id, random_expiry(w, w->fds[i]));
	if (ret < 0 && ret != -ENOENT)
		error("a modify returned %ld", ret);
}

static void do_query(struct worker *w, unsigned int i)
{
	struct entry *entry = some_entry(w, i);
	__u64 id = entry ? __atomic_load_n(&entry->id, __ATOMIC_ACQUIRE) : 0;
	struct twheel_op op;
	long ret;

	if (!id)
		return;
	ret = tw_query(w->fds[i], id, &op);
	if (ret && ret != -ENOENT)
		error("a query returned %ld", ret);
	if (!ret && &shared->wheels[w->proc->wheels[i]].entries[op.user_data &
			((1U << SERIAL_BITS) - 1)] != entry)
		error("a query told of another timer");
}

static void do_submit(struct worker *w, unsigned int i)
{
	struct entry *entries[MAX_BATCH];
	struct twheel_op ops[MAX_BATCH], *at = ops;
	__u32 nr = 1 + below(w, MAX_BATCH), k, done;
	__u64 id;
	long ret;

	for (k = 0; k < nr; k++) {
		entries[k] = one_in(w, 3) ? some_entry(w, i) : NULL;
		id = entries[k] ? __atomic_load_n(&entries[k]->id, __ATOMIC_ACQUIRE) : 0;
		if (id)
			ops[k] = tw_entry_by_id(TWHEEL_OP_CANCEL, id);
		else if (!prepare_arm(w, i, &ops[k]))
			break;
	}
	nr = k;
	if (one_in(w, 3)) {
		at = window(w, sizeof(ops));
		memcpy(at, ops, nr * sizeof(*ops));
	}
	take_in_hand(w, w->proc->wheels[i], nr);
	ret = tw_submit(w->fds[i], at, nr);
	if (ret < 0 && nr && !may_refuse(ret) && ret != -EINTR)
		error("a submit of %u returned %ld", nr, ret);
	done = ret > 0 ? ret : 0;
	for (k = 0; k < nr; k++) {
		if (ops[k].opcode == TWHEEL_OP_CANCEL && k < done)
			note_cancel(w, i, entries[k], at[k].res);
		else if (ops[k].opcode == TWHEEL_OP_ARM && k < done)
			note_arm(w, i, &at[k], at[k].res);
	}
	lay_down(w);
}

static void note_records(struct worker *w, unsigned int i, const struct twheel_event *ev,
			 long nr)
{
	long k;

	for (k = 0; k < nr; k++)
		note_record(w->proc->wheels[i], &ev[k]);
	lay_down(w);
}

static bool read_well(ssize_t ret)
{
	if (ret > 0 && ret % sizeof(struct twheel_event))
		error("a read tore a record: %zd bytes", ret);
	else if (ret <= 0 && errno != EAGAIN && errno != EINTR)
		error("a read failed: %s", strerror(errno));
	return ret > 0;
}

static void do_read(struct worker *w, unsigned int i)
{
	static struct twheel_event ev[MAX_READ];
	struct twheel_event *at = ev;
	size_t nr = 1 + below(w, one_in(w, 4) ? MAX_READ : 8);
	ssize_t ret;

	if (one_in(w, 4))
		at = window(w, nr * sizeof(*ev));
	take_in_hand(w, w->proc->wheels[i], nr);
	ret = read(w->fds[i], at, nr * sizeof(*ev));
	if (read_well(ret))
		note_records(w, i, at, ret / sizeof(*ev));
	lay_down(w);
}

static void do_readv(struct worker *w, unsigned int i)
{
	struct iovec iov[PIECES];
	size_t at = 0, k, size = 9 * PIECES;
	struct twheel_event *ev;
	char *buf = window(w, size);
	ssize_t ret;

	for (k = 0; k < PIECES; k++) {
		iov[k].iov_base = buf + at;
		iov[k].iov_len = below(w, 10);
		at += iov[k].iov_len;
	}
	take_in_hand(w, w->proc->wheels[i], size / sizeof(*ev));
	ret = readv(w->fds[i], iov, PIECES);
	ev = (struct twheel_event *)buf;
	if (read_well(ret))
		note_records(w, i, ev, ret / sizeof(*ev));
	lay_down(w);
}

/* Whether a kernel can splice from a device that knows nothing of it is its business. */
static void do_splice(struct worker *w, unsigned int i)
{
	struct twheel_event ev[8];
	int pipes[2];
	ssize_t ret;

	if (pipe2(pipes, O_CLOEXEC | O_NONBLOCK))
		return;
	take_in_hand(w, w->proc->wheels[i], ARRAY_SIZE(ev));
	ret = splice(w->fds[i], NULL, pipes[1], NULL, sizeof(ev), SPLICE_F_NONBLOCK);
	if (ret > 0 && read(pipes[0], ev, ret) == ret)
		note_records(w, i, ev, ret / sizeof(*ev));
	lay_down(w);
	close(pipes[0]);
	close(pipes[1]);
}

static void note_drained(struct worker *w, unsigned int i, const struct twheel_op *ops, long nr)
{
	int wheel = w->proc->wheels[i];
	struct entry *entry;
	long k;

	for (k = 0; k < nr; k++) {
		entry = entry_of(wheel, ops[k].user_data);
		if (entry)
			ended(wheel, entry, "drained");
	}
	lay_down(w);
}

static long do_drain(struct worker *w, unsigned int i)
{
	struct twheel_op ops[MAX_BATCH], *at = one_in(w, 2) ? ops : window(w, sizeof(ops));
	long nr;

	take_in_hand(w, w->proc->wheels[i], MAX_BATCH);
	nr = tw_drain(w->fds[i], at, MAX_BATCH);
	if (nr < 0 && nr != -EINTR)
		error("a drain returned %ld", nr);
	note_drained(w, i, at, nr);
	return nr;
}

static void do_look(struct worker *w, unsigned int i)
{
	struct twheel_op ops[16];
	struct twheel_stats stats;
	__u64 cursor = 0, next;
	long nr;

	if (tw_stats(w->fds[i], &stats))
		error("STATS failed");
	nr = tw_next_err(w->fds[i], &next);
	if (nr && nr != -EINTR)
		error("NEXT returned %ld", nr);
	do {
		nr = tw_list(w->fds[i], ops, ARRAY_SIZE(ops), &cursor);
		if (nr < 0 && nr != -EINTR)
			error("LIST returned %ld", nr);
	} while (nr > 0 && cursor && one_in(w, 2));
	tw_fdinfo(w->fds[i], "wakeups", &next);
}

static void do_wait(struct worker *w, unsigned int i)
{
	tw_poll_for(w->fds[i], POLLIN, below(w, 5));
}

static void do_advance(struct worker *w, unsigned int i)
{
	static const __u64 spans[] = { 10000, TW_MSEC, TW_NSEC, TW_HOUR };
	long ret;

	if (wheel_at(w, i)->clockid != TWHEEL_CLOCK_MANUAL)
		return;
	/* Another may have advanced it further meanwhile. */
	ret = tw_advance(w->fds[i], tw_now(w->fds[i]) +
			 below(w, spans[below(w, ARRAY_SIZE(spans))]));
	if (ret && ret != -EINVAL && ret != -EINTR)
		error("ADVANCE returned %ld", ret);
}

/* Where nobody but this process can take it, a record that is due wakes a poll. */
static void do_expect(struct worker *w, unsigned int i)
{
	struct wheel *l = wheel_at(w, i);
	__u32 serial;
	__u64 id;

	if (__atomic_load_n(&l->holders, __ATOMIC_ACQUIRE) != 1 ||
	    (l->clockid != CLOCK_MONOTONIC && l->clockid != CLOCK_BOOTTIME))
		return;
	serial = __atomic_fetch_add(&l->next, 1, __ATOMIC_ACQ_REL);
	if (serial >= l->size) {
		__atomic_fetch_sub(&l->next, 1, __ATOMIC_ACQ_REL);
		return;
	}
	__atomic_store_n(&l->entries[serial].word, TRIED, __ATOMIC_RELEASE);
	id = tw_arm_rel(w->fds[i], below(w, 20 * TW_MSEC), name_of(w->proc->wheels[i], serial));
	if (!id) {
		__atomic_fetch_or(&l->entries[serial].word, REFUSED, __ATOMIC_ACQ_REL);
		return;
	}
	__atomic_store_n(&l->entries[serial].id, id, __ATOMIC_RELEASE);
	__atomic_fetch_or(&l->entries[serial].word, ARMED, __ATOMIC_ACQ_REL);
	count(&shared->expected);
	if (!tw_wait_readable(w->fds[i]))
		error("clock %u: a wake-up is lost", l->clockid);
}

/* All of one tick, while clocks are being set */
static void do_flood(struct worker *w, unsigned int i)
{
	static struct twheel_op ops[256];
	struct wheel *l = wheel_at(w, i);
	__u64 expires = tw_now(w->fds[i]) + 200 * TW_MSEC;
	__u32 done = 0, serial, k;

	if (l->size != BIG || __atomic_load_n(&l->next, __ATOMIC_ACQUIRE))
		return;
	count(&shared->floods);
	while (done < FLOOD && !stopped()) {
		serial = __atomic_fetch_add(&l->next, ARRAY_SIZE(ops), __ATOMIC_ACQ_REL);
		if (serial + ARRAY_SIZE(ops) > l->size)
			return;
		for (k = 0; k < ARRAY_SIZE(ops); k++) {
			ops[k] = tw_entry(expires, name_of(w->proc->wheels[i], serial + k));
			__atomic_store_n(&l->entries[serial + k].word, TRIED,
					 __ATOMIC_RELEASE);
		}
		if (tw_submit(w->fds[i], ops, ARRAY_SIZE(ops)) != ARRAY_SIZE(ops))
			return;
		for (k = 0; k < ARRAY_SIZE(ops); k++)
			note_arm(w, i, &ops[k], ops[k].res);
		done += ARRAY_SIZE(ops);
	}
}

/*
 * Holders
 */

/* Of a timer that lives on there may be records for ever. */
static void end_periodic(struct worker *w, unsigned int i, const struct twheel_event *ev,
			 long nr)
{
	int wheel = w->proc->wheels[i];
	struct entry *entry;
	long k;

	for (k = 0; k < nr; k++) {
		if (!(ev[k].flags & TWHEEL_EV_MORE))
			continue;
		entry = entry_of(wheel, ev[k].user_data);
		if (entry)
			note_cancel(w, i, entry, tw_cancel(w->fds[i], ev[k].id));
	}
}

/* Nobody else has the wheel: all of its timers end, and the ledger has to be even. */
static void settle_and_judge(struct worker *w, unsigned int i)
{
	static struct twheel_event ev[MAX_READ];
	int wheel = w->proc->wheels[i];
	struct wheel *l = &shared->wheels[wheel];
	__u32 serial, missing = 0, word;
	struct twheel_info info;
	long nr;

	do {
		while (do_drain(w, i) > 0)
			;
		while ((nr = tw_read(w->fds[i], ev, MAX_READ)) > 0) {
			note_records(w, i, ev, nr);
			end_periodic(w, i, ev, nr);
		}
		if (tw_info(w->fds[i], &info))
			error("INFO failed");
	} while (info.armed || info.ready);
	for (serial = 0; serial < l->next && serial < l->size; serial++) {
		word = __atomic_load_n(&l->entries[serial].word, __ATOMIC_ACQUIRE);
		missing += word & ARMED && !(word / ENDED & 0xff);
	}
	if (missing > __atomic_load_n(&l->lost, __ATOMIC_ACQUIRE))
		error("wheel %d, clock %u: %u of %u timers have no fate, %u may", wheel,
		      l->clockid, missing, l->next, l->lost);
	count(&shared->judged);
	__atomic_fetch_add(&shared->timers, l->next, __ATOMIC_RELAXED);
}

static int free_place(struct worker *w)
{
	int i;

	for (i = 0; i < MAX_OPEN; i++)
		if (w->proc->wheels[i] < 0)
			return i;
	return -1;
}

static void do_close(struct worker *w, unsigned int i)
{
	int wheel = w->proc->wheels[i];
	bool alone = __atomic_load_n(&shared->wheels[wheel].holders, __ATOMIC_ACQUIRE) == 1;

	if (alone)
		settle_and_judge(w, i);
	close(w->fds[i]);
	w->fds[i] = -1;
	w->proc->wheels[i] = -1;
	if (let_go(wheel))
		give_back(wheel);
}

static bool set_up_somehow(struct worker *w, int fd, __u32 clockid, bool big)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.clockid = clockid,
		.tick_ns = one_in(w, 2) ? TW_TICK_MIN : 1ULL << (12 + below(w, 19)),
		.capacity = big ? BIG : one_in(w, 4) ? 1 + below(w, SMALL) : SMALL,
	};

	if (one_in(w, 3)) {
		setup.wake_batch = below(w, 100);
		setup.wake_delay_ns = 1 + below(w, 300 * TW_MSEC);
	}
	if (clockid == CLOCK_REALTIME && one_in(w, 2))
		setup.flags = TWHEEL_SETUP_CLOCK_SET;
	return !tw_ioctl(fd, TWHEEL_IOC_SETUP, &setup);
}

static void do_open(struct worker *w)
{
	static const __u32 clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME,
		CLOCK_TAI, TWHEEL_CLOCK_MANUAL };
	__u32 clockid = clocks[below(w, ARRAY_SIZE(clocks))];
	bool big = one_in(w, 30);
	int place = free_place(w), wheel, fd;

	wheel = place < 0 ? -1 : take_wheel(big);
	if (wheel < 0)
		return;
	shared->wheels[wheel].clockid = clockid;
	w->proc->wheels[place] = wheel;
	fd = tw_open(O_NONBLOCK);
	if (fd < 0 || !set_up_somehow(w, fd, clockid, big)) {
		if (fd >= 0)
			error("a set-up failed");
		else if (!may_refuse(fd) && fd != -EMFILE && fd != -ENFILE)
			error("open returned %d", fd);
		w->proc->wheels[place] = -1;
		let_go(wheel);
		give_back(wheel);
		return;
	}
	w->fds[place] = fd;
	if (big)
		do_flood(w, place);
}

/* A message holds the wheel while it is on its way. */
static void do_send(struct worker *w, unsigned int i)
{
	char control[CMSG_SPACE(sizeof(int))] = { };
	int wheel = w->proc->wheels[i];
	struct iovec iov = { .iov_base = &wheel, .iov_len = sizeof(wheel) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cmsg), &w->fds[i], sizeof(int));
	__atomic_fetch_add(&shared->wheels[wheel].holders, 1, __ATOMIC_ACQ_REL);
	if (sendmsg(mailbox[0], &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		let_go(wheel);
	else
		count(&shared->passed);
}

/* True if there was one. */
static bool do_receive(struct worker *w)
{
	char control[CMSG_SPACE(sizeof(int))] = { };
	int wheel = -1, place = free_place(w);
	struct iovec iov = { .iov_base = &wheel, .iov_len = sizeof(wheel) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *cmsg;

	if (place < 0 || recvmsg(mailbox[1], &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
		return false;
	cmsg = CMSG_FIRSTHDR(&msg);
	if (!cmsg) {
		if (let_go(wheel))	/* no descriptor was free */
			give_back(wheel);
		return true;
	}
	w->proc->wheels[place] = wheel;
	memcpy(&w->fds[place], CMSG_DATA(cmsg), sizeof(int));
	return true;
}

/*
 * Processes
 */

static struct proc *take_proc(void)
{
	int i, k, was;

	for (i = 0; i < NR_PROCS; i++) {
		was = 0;
		if (!__atomic_compare_exchange_n(&shared->procs[i].used, &was, 1, false,
						 __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		shared->procs[i].pid = 0;
		shared->procs[i].killed = false;
		shared->procs[i].in_hand = 0;
		for (k = 0; k < MAX_OPEN; k++)
			shared->procs[i].wheels[k] = -1;
		return &shared->procs[i];
	}
	return NULL;
}

/* What a process that was killed held is no longer held by it. */
static void bury(struct proc *proc)
{
	__u32 in_hand = __atomic_load_n(&proc->in_hand, __ATOMIC_ACQUIRE);
	int i;

	if (in_hand)
		__atomic_fetch_add(&shared->wheels[proc->in_hand_wheel].lost, in_hand,
				   __ATOMIC_ACQ_REL);
	for (i = 0; i < MAX_OPEN; i++)
		if (proc->wheels[i] >= 0 && let_go(proc->wheels[i]))
			give_back(proc->wheels[i]);
	__atomic_store_n(&proc->used, 0, __ATOMIC_RELEASE);
}

/* The child goes on from here, for some steps. */
static void do_fork(struct worker *w)
{
	struct proc *proc;
	pid_t pid;
	int i;

	proc = w->child ? NULL : take_proc();
	if (!proc)
		return;
	for (i = 0; i < MAX_OPEN; i++) {
		if (w->proc->wheels[i] >= 0)
			__atomic_fetch_add(&wheel_at(w, i)->holders, 1, __ATOMIC_ACQ_REL);
		proc->wheels[i] = w->proc->wheels[i];
	}
	count(&shared->forks);
	pid = fork();
	if (pid < 0) {
		bury(proc);
		return;
	}
	if (pid)
		return;
	w->proc = proc;
	/* By itself: its parent may be stopped here until it has ended. */
	__atomic_store_n(&proc->pid, getpid(), __ATOMIC_RELEASE);
	w->child = true;
	w->uffd = -1;		/* what was missing is zeroes here */
	w->seed ^= 0x5bd1e995;
	w->left = 1 + below(w, 200);
}

static void do_something(struct worker *w)
{
	static void (*const calls[])(struct worker *w, unsigned int i) = {
		do_arm, do_arm, do_submit, do_submit, do_cancel, do_modify, do_query, do_read,
		do_read, do_readv, do_splice, do_look, do_wait, do_advance, do_expect,
	};
	unsigned int i = below(w, MAX_OPEN);

	if (one_in(w, 300))
		do_fork(w);
	else if (one_in(w, 50))
		do_receive(w);
	else if (w->proc->wheels[i] < 0)
		do_open(w);
	else if (one_in(w, 60))
		do_close(w, i);
	else if (one_in(w, 60))
		do_send(w, i);
	else if (one_in(w, 100))
		do_drain(w, i);
	else
		calls[below(w, ARRAY_SIZE(calls))](w, i);
}

static void work(struct worker *w)
{
	unsigned int i;

	for (w->left = ~0ULL; !stopped() && w->left; w->left--) {
		do_something(w);
		w->proc->steps++;
	}
	for (i = 0; i < MAX_OPEN; i++)
		if (w->proc->wheels[i] >= 0)
			do_close(w, i);
}

/* Any offset that the kernel takes. Where there are no time namespaces, none. */
static void enter_timens(struct worker *w)
{
	static const long spans[] = { 10, 1000, 1000000, 146L * 365 * 24 * 3600 };
	static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_BOOTTIME };
	static const char * const names[] = { "monotonic", "boottime" };
	long uptime, offset;
	char text[64];
	unsigned int i;
	int fd;

	if (unshare(CLONE_NEWTIME))
		return;
	for (i = 0; i < ARRAY_SIZE(clocks); i++) {
		uptime = tw_clock(clocks[i]) / TW_NSEC;
		offset = one_in(w, 2) ? -(long)below(w, uptime + 1) :
			 (long)below(w, spans[below(w, ARRAY_SIZE(spans))]);
		if (one_in(w, 3))
			offset = -uptime;
		snprintf(text, sizeof(text), "%s %ld %llu", names[i], offset,
			 offset == -uptime ? 0 : below(w, TW_NSEC));
		tw_put("/proc/self/timens_offsets", text);
	}
	fd = open("/proc/self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		setns(fd, CLONE_NEWTIME);
		close(fd);
	}
}

static int be_worker(struct proc *proc, __u64 number)
{
	static struct worker worker;
	struct worker *w = &worker;
	pthread_t thread;

	w->proc = proc;
	w->seed = (shared->seed ^ (number + 1) * 0x9e3779b97f4a7c15ULL) | 1;
	memset(w->fds, 0xff, sizeof(w->fds));
	open_window(w);
	if (one_in(w, 2))
		enter_timens(w);
	if (!one_in(w, 3) && setuid(FIRST_USER + below(w, NR_USERS)))
		error("a worker could not become another user");
	if (w->uffd >= 0 && pthread_create(&thread, NULL, serve_faults, w))
		error("a worker has no thread");
	work(w);
	return 0;
}

static bool start_worker(__u64 number)
{
	struct proc *proc = take_proc();
	pid_t pid;

	if (!proc)
		return true;	/* there are enough, with their children */
	pid = fork();
	if (!pid)
		_exit(be_worker(proc, number));
	if (pid < 0)
		return false;
	__atomic_store_n(&proc->pid, pid, __ATOMIC_RELEASE);
	return true;
}

static struct proc *proc_of(pid_t pid)
{
	int i;

	for (i = 0; i < NR_PROCS; i++)
		if (__atomic_load_n(&shared->procs[i].used, __ATOMIC_ACQUIRE) &&
		    __atomic_load_n(&shared->procs[i].pid, __ATOMIC_ACQUIRE) == pid)
			return &shared->procs[i];
	return NULL;
}

/*
 * A process has ended. One that was traced when it did is told of twice, unless it is a
 * child of our own: once more when its parent has ended as well, and until then it is there.
 */
static void reap(pid_t pid, int status)
{
	struct proc *proc = proc_of(pid);
	bool killed = proc && proc->killed;

	if (!kill(pid, 0))
		return;
	if (WIFSIGNALED(status) && !(killed && WTERMSIG(status) == SIGKILL))
		error("a process died of signal %d", WTERMSIG(status));
	if (proc)
		bury(proc);
}

static int reap_all(void)
{
	int nr = 0, status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
		if (!WIFSTOPPED(status))
			reap(pid, status);
		nr++;
	}
	return pid < 0 ? -1 : nr;
}

static pid_t some_pid(__u64 *seed)
{
	struct proc *proc = &shared->procs[tw_random_below(seed, NR_PROCS)];

	return __atomic_load_n(&proc->used, __ATOMIC_ACQUIRE) ?
	       __atomic_load_n(&proc->pid, __ATOMIC_ACQUIRE) : 0;
}

/* Waits for it to stop: false if it ended instead, or does not stop in time. */
static bool wait_stopped(pid_t pid)
{
	unsigned int i;
	int status;
	pid_t ret;

	for (i = 0; i < TW_PATIENCE_MS; i++) {
		ret = waitpid(pid, &status, WNOHANG | __WALL);
		if (ret == pid && !WIFSTOPPED(status))
			reap(pid, status);
		if (ret)
			return ret == pid && WIFSTOPPED(status);
		tw_sleep_ms(1);
	}
	error("a process cannot be traced");
	return false;
}

/* Stops it by ptrace, where it is and then at some system calls. */
static void trace(__u64 *seed, pid_t pid)
{
	unsigned int i = tw_random_below(seed, 6);

	if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD))
		return;
	if (ptrace(PTRACE_INTERRUPT, pid, 0, 0) || !wait_stopped(pid))
		return;
	while (i--)
		if (ptrace(PTRACE_SYSCALL, pid, 0, 0) || !wait_stopped(pid))
			return;
	ptrace(PTRACE_DETACH, pid, 0, 0);
}

static void torment(__u64 *seed)
{
	pid_t pid = some_pid(seed);
	struct proc *proc = pid ? proc_of(pid) : NULL;

	if (!proc)
		return;
	switch (tw_random_below(seed, 4)) {
	case 0:
		proc->killed = true;
		count(&shared->kills);
		kill(pid, SIGKILL);
		break;
	case 1:
		kill(pid, SIGSTOP);
		tw_sleep_ms(tw_random_below(seed, 100));
		kill(pid, SIGCONT);
		break;
	case 2:
		trace(seed, pid);
		break;
	}
}

/*
 * Clocks and CPUs
 */

/* By nanoseconds to years, on the whole neither forward nor backward for long */
static void *set_clocks(void *arg)
{
	const __u64 begin = tw_clock(CLOCK_REALTIME);
	__u64 seed = (shared->seed ^ 0xc10c) | 1, by;
	(void)arg;

	while (!stopped()) {
		by = 1 + tw_random_below(&seed, 1ULL << (1 + tw_random_below(&seed, 58)));
		if (!tw_random_below(&seed, 3))
			tw_set_tai(tw_random_below(&seed, 1ULL << tw_random_below(&seed, 17)));
		else if (!tw_random_below(&seed, 4))
			tw_set_wall_clock(begin);
		else if (tw_random_below(&seed, 2) && tw_clock(CLOCK_REALTIME) > by)
			tw_set_wall_clock(tw_clock(CLOCK_REALTIME) - by);
		else if (tw_clock(CLOCK_REALTIME) < begin + 1000000 * TW_HOUR)
			tw_set_wall_clock(tw_clock(CLOCK_REALTIME) + by);
		count(&shared->steps);
		usleep(tw_random_below(&seed, tw_random_below(&seed, 4) ? 3000 : 100000));
	}
	return NULL;
}

/* The second CPU comes and goes, and so does the limit of memory. */
static void *change_machine(void *arg)
{
	static const char * const limits[] = { "0", "1000000", "100000000", "20000000" };
	__u64 seed = (shared->seed ^ 0xc9d5) | 1;
	(void)arg;

	while (!stopped()) {
		tw_put(SECOND_CPU, tw_random_below(&seed, 2) ? "0" : "1");
		if (!access(USER_LIMIT, W_OK))
			tw_put(USER_LIMIT, limits[tw_random_below(&seed, ARRAY_SIZE(limits))]);
		usleep(tw_random_below(&seed, 500000));
	}
	tw_put(SECOND_CPU, "1");
	return NULL;
}

/*
 * All of it
 */

static __u64 choose_seed(void)
{
	__u64 seed = 0;

	if (getrandom(&seed, sizeof(seed), 0) != sizeof(seed))
		seed = tw_clock(CLOCK_REALTIME);
	return tw_env("TWHEEL_SEED", seed);
}

FIXTURE(hostile)
{
	struct tw_pulses pulses;
	__u64 offset;		/* wall clock less monotonic clock */
	char limit[32];
	pthread_t clocks;
	pthread_t machine;
};

FIXTURE_SETUP(hostile)
{
	FILE *f = fopen(USER_LIMIT, "r");

	if (f && fgets(self->limit, sizeof(self->limit), f))
		fclose(f);
	self->offset = tw_clock(CLOCK_REALTIME) - tw_clock(CLOCK_MONOTONIC);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ASSERT_NE(MAP_FAILED, shared);
	shared->seed = choose_seed();
	ASSERT_EQ(0, socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, mailbox));
	/* So that no process is anybody else's to bury */
	ASSERT_EQ(0, prctl(PR_SET_CHILD_SUBREAPER, 1));
	ASSERT_TRUE(tw_pulses_start(&self->pulses));
}

FIXTURE_TEARDOWN(hostile)
{
	tw_set_tai(0);
	tw_set_wall_clock(tw_clock(CLOCK_MONOTONIC) + self->offset);
	if (*self->limit)
		tw_put(USER_LIMIT, self->limit);
	tw_put(SECOND_CPU, "1");
}

/* False if some do not end although they were told to. */
static bool wait_for_all(void)
{
	__u64 end = tw_clock(CLOCK_MONOTONIC) + 2 * TW_PATIENCE_MS * TW_MSEC;
	int i;

	while (reap_all() >= 0) {
		if (tw_clock(CLOCK_MONOTONIC) > end)
			return false;
		/* Somebody may have been stopped, and woken before it was. */
		for (i = 0; i < NR_PROCS; i++)
			if (__atomic_load_n(&shared->procs[i].used, __ATOMIC_ACQUIRE) &&
			    __atomic_load_n(&shared->procs[i].pid, __ATOMIC_ACQUIRE) > 0)
				kill(shared->procs[i].pid, SIGCONT);
		tw_sleep_ms(10);
	}
	return true;
}

/* What is still on its way is judged here. */
static void empty_mailbox(void)
{
	struct worker w = { .proc = take_proc(), .seed = 1, .uffd = -1 };
	unsigned int i;

	memset(w.fds, 0xff, sizeof(w.fds));
	w.window = mmap(NULL, WINDOW_PAGES * sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	while (do_receive(&w))
		for (i = 0; i < MAX_OPEN; i++)
			if (w.proc->wheels[i] >= 0)
				do_close(&w, i);
}

TEST_F_TIMEOUT(hostile, whatever_happens_each_timer_has_one_fate_and_no_cpu_is_held, NO_LIMIT)
{
	__u64 end = tw_clock(CLOCK_MONOTONIC) + SECONDS * TW_NSEC, number = 0, seed;

	TH_LOG("TWHEEL_SEED=%llu", shared->seed);
	seed = shared->seed | 1;
	while (number < NR_WORKERS)
		ASSERT_TRUE(start_worker(number++));
	ASSERT_EQ(0, pthread_create(&self->clocks, NULL, set_clocks, NULL));
	ASSERT_EQ(0, pthread_create(&self->machine, NULL, change_machine, NULL));
	while (tw_clock(CLOCK_MONOTONIC) < end && !shared->errors &&
	       tw_pulses_beat(&self->pulses)) {
		torment(&seed);
		tw_sleep_ms(tw_random_below(&seed, 50));
		reap_all();
		if (shared->kills + NR_WORKERS > number)
			ASSERT_TRUE(start_worker(number++));
	}
	__atomic_store_n(&shared->stop, true, __ATOMIC_RELEASE);
	pthread_join(self->clocks, NULL);
	pthread_join(self->machine, NULL);
	EXPECT_TRUE(wait_for_all());
	empty_mailbox();
	TH_LOG("%llu wheels judged, %llu timers, %llu wake-ups expected", shared->judged,
	       shared->timers, shared->expected);
	TH_LOG("%llu kills, %llu forks, %llu wheels passed on, %llu windows", shared->kills,
	       shared->forks, shared->passed, shared->faults);
	TH_LOG("%llu steps, %llu floods, a CPU was held for %llu ms", shared->steps,
	       shared->floods, tw_pulses_held_ns(&self->pulses) / TW_MSEC);
	EXPECT_EQ(0, shared->errors) {
		TH_LOG("%s", shared->error);
	}
	EXPECT_TRUE(tw_pulses_beat(&self->pulses));
	EXPECT_LT(0, shared->judged);
	tw_pulses_stop(&self->pulses);
}

TEST_HARNESS_MAIN
