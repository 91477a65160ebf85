// SPDX-License-Identifier: GPL-2.0
/*
 * memory.c - bytes per armed timer, in the kernel and in the program
 *
 * The kernel's share is what is neither free nor in the page cache nor a page of a
 * program: slabs, whole pages, vmalloc, page tables alike, with what is lost to
 * rounding. The rest of the system has its part in it, so for less than 10^5 timers
 * it is good for a few bytes only. Hence a wheel with fewer timers is one of many that
 * are filled alike: "memory" is what they take, the open files included, by the number of
 * timers in all of them, and so at 1 what a wheel with a single timer takes. A wheel
 * without any takes "memory-opened", and "memory-set-up" after its set-up.
 */
#include "bench.h"

#include <fcntl.h>
#include <malloc.h>

#define TOGETHER	100000	/* timers: the rest of the system is lost among them */
#define WHEELS_MAX	2000
#define ALONE_MIN	1000	/* timers of what there cannot be many of */

static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	if (write(fd, text, strlen(text)) < 0)
		fprintf(stderr, "bench_user: cannot write to %s\n", path);
	close(fd);
}

static FILE *proc_open(const char *path)
{
	FILE *f = fopen(path, "r");

	if (!f)
		errx(1, "%s: %s", path, strerror(errno));
	return f;
}

/* Free pages that a CPU keeps for itself count as used in meminfo. */
static __s64 pages_of_cpus(void)
{
	FILE *f = proc_open("/proc/zoneinfo");
	__s64 total = 0;
	char line[256];
	long nr;

	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, " count: %ld", &nr) == 1)
			total += nr;
	}
	fclose(f);
	return total * sysconf(_SC_PAGESIZE);
}

static __s64 kernel_bytes_now(void)
{
	static const char * const others[] = { "MemFree:", "Buffers:", "Cached:", "AnonPages:" };
	char line[256], key[64];
	__s64 total = 0;
	long long kb;
	size_t i;
	FILE *f;

	/* Fold in what each CPU has counted for itself. */
	put("/proc/sys/vm/stat_refresh", "1");
	f = proc_open("/proc/meminfo");
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%63s %lld", key, &kb) != 2)
			continue;
		if (!strcmp(key, "MemTotal:"))
			total += kb * 1024;
		for (i = 0; i < ARRAY_SIZE(others); i++)
			total -= strcmp(key, others[i]) ? 0 : kb * 1024;
	}
	fclose(f);
	return total - pages_of_cpus();
}

/* When what was freed last has been given back: after grace periods, in workqueues. */
static __s64 kernel_bytes(void)
{
	__s64 last, now;
	int tries = 30;

	put("/proc/sys/vm/drop_caches", "3");
	now = kernel_bytes_now();
	do {
		sleep_ns(100 * MSEC);
		last = now;
		now = kernel_bytes_now();
	} while (llabs(now - last) > 65536 && --tries);
	return now;
}

static size_t user_bytes(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

static void fill(const struct peer *p, struct set *s)
{
	size_t user = user_bytes();
	__s64 kernel = kernel_bytes();
	double ns;
	long done;

	if (!p->open(p, s->n)) {
		skip_ops(p, OP_MEMORY, OP_MEMORY, s->n, reason(errno));
		return;
	}
	done = timed(p, p->create ? p->create : p->arm, s, s->n, 60 * NSEC, &ns);
	if (done == s->n) {
		if (!p->in_process)
			figure(p, "memory", s->n, "bytes",
			       (double)(kernel_bytes() - kernel) / s->n);
		figure(p, "memory-user", s->n, "bytes",
		       (double)(user_bytes() - user) / s->n);
	} else {
		skip_ops(p, OP_MEMORY, OP_MEMORY, s->n, reason(done < 0 ? -done : ETIME));
	}
	p->close();
}

/* Open a wheel and put timers into it: its descriptor, or -1 and errno. */
typedef int make_fn(const struct peer *p, const __u64 *when, __u32 n);

static int make_unset(const struct peer *p, const __u64 *when, __u32 n)
{
	(void)p;
	(void)when;
	(void)n;
	return wheel_unset();
}

static int make_filled(const struct peer *p, const __u64 *when, __u32 n)
{
	int fd = wheel_new(p, n), error;

	if (fd < 0 || wheel_fill(fd, when, n))
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* Kernel memory of one of many wheels of @n timers each; negative, and errno, if none. */
static double wheel_bytes(const struct peer *p, make_fn *make, const __u64 *when, __u32 n)
{
	__u32 nr = n && TOGETHER / n < WHEELS_MAX ? TOGETHER / n : WHEELS_MAX, made;
	int *fds = xcalloc(nr, sizeof(*fds)), error;
	double bytes = -1;
	__s64 before;

	before = kernel_bytes();
	for (made = 0; made < nr; made++) {
		fds[made] = make(p, when, n);
		if (fds[made] < 0)
			break;
	}
	error = errno;
	if (made == nr)
		bytes = (double)(kernel_bytes() - before) / nr;
	while (made)
		close(fds[--made]);
	free(fds);
	errno = error;
	return bytes;
}

static void fill_wheels(const struct peer *p, const struct set *s)
{
	double bytes = wheel_bytes(p, make_filled, s->when, s->n);

	if (bytes < 0)
		skip_ops(p, OP_MEMORY, OP_MEMORY, s->n, reason(errno));
	else
		figure(p, op_name(OP_MEMORY), s->n, "bytes", bytes / s->n);
}

void measure_empty(const struct peer *p)
{
	double opened, set_up;

	if (!wanted(OP_MEMORY_EMPTY) || !p->tick)
		return;
	opened = wheel_bytes(p, make_unset, NULL, 0);
	set_up = opened < 0 ? opened : wheel_bytes(p, make_filled, NULL, 0);
	if (set_up < 0) {
		skip_ops(p, OP_MEMORY_EMPTY, OP_MEMORY_EMPTY, 0, reason(errno));
		return;
	}
	figure(p, "memory-opened", 0, "bytes", opened);
	figure(p, "memory-set-up", 0, "bytes", set_up);
}

void measure_memory(const struct peer *p, __u32 n)
{
	__u64 base = now_ns() + 3600 * NSEC;
	struct set s;
	__u32 k;

	if (!wanted(OP_MEMORY))
		return;
	if (!p->tick && n < ALONE_MIN) {
		skip_ops(p, OP_MEMORY, OP_MEMORY, n, "too few to tell");
		return;
	}
	set_init(&s, p, n);
	for (k = 0; k < n; k++)
		s.when[k] = base + rnd_below(3600 * NSEC);
	tally_reset(s.total);
	if (p->tick && n < TOGETHER)
		fill_wheels(p, &s);
	else
		fill(p, &s);
	set_free(&s);
}
