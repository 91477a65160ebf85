// SPDX-License-Identifier: GPL-2.0
/*
 * What the operations of module/wheel.c cost, in ns, by the number of timers.
 *
 * Timers are worked on in random order, so that each is a cache miss once there are
 * many. They lie in 2 MiB pages where possible: the kernel's direct map has such, too.
 * Each figure is the median of several rounds, in processor time, for neighbours may be
 * noisy. Arguments: numbers of timers.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "../../module/wheel.h"

#define HUGE_PAGE	(2UL << 20)
#define HOUR		3600000U	/* in ticks of a millisecond, as is all here */
#define YEAR		(365ULL * 24 * HOUR)
#define START		1000000000ULL
#define MAX_ROUNDS	101
#define MAX_COLUMNS	8

enum row {
	ARM, LATER, ANYWHERE, CANCEL, ARM_AGAIN, AT_ONCE, SIXTY_TICKS, IN_ORDER,
	IN_ORDER_CASCADES, NEXT_FIRST, NEXT_REARM, NEXT_CANCEL, NEXT_KNOWN, IDLE_YEAR,
	IDLE_TICK, MISS, NR_ROWS
};

static const char * const names[] = {
	[ARM] = "arm",
	[LATER] = "re-arm later",
	[ANYWHERE] = "re-arm anywhere in the hour",
	[CANCEL] = "cancel",
	[ARM_AGAIN] = "arm after a cancel",
	[AT_ONCE] = "expire, all due at once",
	[SIXTY_TICKS] = "expire, spread over 60 ticks",
	[IN_ORDER] = "expire, spread over an hour, in order",
	[IN_ORDER_CASCADES] = "  (cascades of each timer)",
	[NEXT_FIRST] = "earliest, exact: visit of an entry",
	[NEXT_REARM] = "earliest, exact, after each re-arm (both)",
	[NEXT_CANCEL] = "earliest, exact, and its cancel (both)",
	[NEXT_KNOWN] = "earliest, exact, if known",
	[IDLE_YEAR] = "advance by an idle year",
	[IDLE_TICK] = "advance by an idle tick",
	[MISS] = "  (read of a random timer, independent)",
};

static struct wheel wheel;
static struct wheel *const w = &wheel;
static u32 nr;
static u32 *order;
static u32 *delay;
static double samples[NR_ROWS][MAX_ROUNDS];
static u32 round_nr;
static u64 seed = 1;
u64 sink;		/* not static, so that what is added to it has to be computed */

static void *map(size_t size)
{
	size_t whole = (size + 2 * HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	char *p = mmap(NULL, whole, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	p += -(uintptr_t)p % HUGE_PAGE;
	madvise(p, size, MADV_HUGEPAGE);
	return p;
}

static u64 rnd(void)
{
	u64 z = seed += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static u64 ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ULL + ts.tv_nsec;
}

static void note(enum row row, u64 since, u64 count)
{
	samples[row][round_nr] = (double)(ns() - since) / (count ? count : 1);
}

/* The chunks of a page each, cut from the large pages. */
static char *node_memory, *block_memory;

static void start(void)
{
	u32 i, chunks = (nr + WHEEL_CHUNK_NODES - 1) / WHEEL_CHUNK_NODES;
	u32 nr_blocks = wheel_blocks_for(chunks * WHEEL_CHUNK_NODES);
	void **nodes = w->nodes;
	struct wheel_block **blocks = w->blocks;

	wheel_init(w, START);
	w->nodes = nodes;
	w->blocks = blocks;
	memset(node_memory, 0, (size_t)chunks * WHEEL_NODE_CHUNK_SIZE);
	for (i = 0; w->nr_blocks < nr_blocks; i++)
		wheel_add_blocks(w, block_memory + i * WHEEL_BLOCK_CHUNK_SIZE);
	for (i = 0; i < chunks; i++)
		wheel_add_nodes(w, node_memory + (size_t)i * WHEEL_NODE_CHUNK_SIZE);
}

/* Another random order, and other delays. */
static void shuffle(u32 ticks)
{
	u32 i, j, swap;

	for (i = nr - 1; i; i--) {
		j = rnd() % (i + 1);
		swap = order[i];
		order[i] = order[j];
		order[j] = swap;
	}
	for (i = 0; i < nr; i++)
		delay[i] = 1 + rnd() % ticks;
}

static void arm_all(enum row row)
{
	u64 t = ns();
	u32 i;

	for (i = 0; i < nr; i++)
		wheel_arm(w, order[i], START + delay[i]);
	if (row < NR_ROWS)
		note(row, t, nr);
}

static void cancel_all(enum row row)
{
	u64 t = ns();
	u32 i;

	for (i = 0; i < nr; i++)
		wheel_cancel(w, wheel_node(w, order[i]));
	if (row < NR_ROWS)
		note(row, t, nr);
}

/* From one tick at which something may be due to the next. */
static void expire(enum row row, u64 tick)
{
	struct wheel_batch batch;
	u64 t = ns(), sum = 0, cascaded = 0, bound;
	bool all;
	u32 i;

	while ((bound = wheel_next_bound(w)) != U64_MAX) {
		if (bound > tick)
			tick = bound;
		do {
			batch.budget = 256;
			batch.nr = 0;
			batch.cascaded = 0;
			all = wheel_advance(w, tick, &batch);
			cascaded += batch.cascaded;
			for (i = 0; i < batch.nr; i++)
				sum += batch.expired[i];
		} while (!all);
	}
	note(row, t, nr);
	sink += sum;
	if (row == IN_ORDER)
		samples[IN_ORDER_CASCADES][round_nr] = (double)cascaded / nr;
}

static void measure_arming(void)
{
	u64 t;
	u32 i;

	start();
	shuffle(HOUR);
	arm_all(ARM);
	shuffle(HOUR);
	t = ns();
	for (i = 0; i < nr; i++)
		wheel_arm(w, order[i], START + HOUR + delay[i]);
	note(LATER, t, nr);
	start();
	shuffle(HOUR);
	arm_all(NR_ROWS);
	shuffle(HOUR);
	arm_all(ANYWHERE);
	shuffle(HOUR);
	cancel_all(CANCEL);
	shuffle(HOUR);
	arm_all(ARM_AGAIN);
	t = ns();
	for (i = 0; i < nr; i++)
		sink += wheel_node(w, order[i])->owner;
	note(MISS, t, nr);
}

static void measure_expiry(void)
{
	start();
	shuffle(1);
	arm_all(NR_ROWS);
	expire(AT_ONCE, START + 1);
	start();
	shuffle(60);
	arm_all(NR_ROWS);
	expire(SIXTY_TICKS, START);
	start();
	shuffle(HOUR);
	arm_all(NR_ROWS);
	expire(IN_ORDER, START);
}

static void measure_next(void)
{
	u32 i, n = nr < 20000 ? nr : 20000, visits = 0;
	u64 t, expires;

	/* Half of the timers are cancelled: a slot of stale entries and others. */
	start();
	shuffle(200);
	for (i = 0; i < nr; i++)
		delay[i] += 4096;
	arm_all(NR_ROWS);
	for (i = 0; i < nr; i += 2)
		wheel_cancel(w, wheel_node(w, order[i]));
	wheel_arm(w, order[1], START + 4096);
	wheel_cancel(w, wheel_node(w, order[1]));
	t = ns();
	while (!wheel_next(w, &expires, 64))
		visits += 64;
	note(NEXT_FIRST, t, visits + 64);

	start();
	shuffle(HOUR);
	arm_all(NR_ROWS);
	wheel_next(w, &expires, U32_MAX);
	shuffle(HOUR);
	t = ns();
	for (i = 0; i < n; i++) {
		wheel_arm(w, order[i], START + delay[i]);
		wheel_next(w, &expires, U32_MAX);
		sink += expires;
	}
	note(NEXT_REARM, t, n);
	t = ns();
	for (i = 0; i < 1000; i++) {
		wheel_next(w, &expires, U32_MAX);
		sink += expires;
	}
	note(NEXT_KNOWN, t, 1000);
	/* Armed in order, so that it is known which timer is the earliest. */
	start();
	for (i = 0; i < nr; i++)
		order[i] = i;
	for (i = 0; i < nr; i++)
		delay[i] = 1 + (u64)i * HOUR / nr;
	arm_all(NR_ROWS);
	t = ns();
	for (i = 0; i < n; i++) {
		wheel_next(w, &expires, U32_MAX);
		sink += expires;
		wheel_cancel(w, wheel_node(w, order[i]));
	}
	note(NEXT_CANCEL, t, n);
}

static void idle(enum row row, u64 step)
{
	struct wheel_batch batch;
	u64 tick = START, t;
	u32 i;

	start();
	wheel_arm(w, 0, U64_MAX);
	for (i = 1; i < nr; i++)
		wheel_arm(w, i, START + 20000 * YEAR + i);
	t = ns();
	for (i = 0; i < 1000; i++) {
		batch.budget = 256;
		batch.nr = 0;
		batch.cascaded = 0;
		tick += step;
		wheel_advance(w, tick, &batch);
	}
	note(row, t, 1000);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The medians of all rows for one number of timers. */
static void measure(u32 n, double *medians, u32 stride)
{
	u32 i, chunks = n / WHEEL_CHUNK_NODES + 1, rounds;
	u32 row, nr_blocks = wheel_blocks_for(chunks * WHEEL_CHUNK_NODES) +
			     WHEEL_CHUNK_BLOCKS;

	nr = n;
	rounds = nr >= 1000000 ? 5 : nr >= 100000 ? 11 : MAX_ROUNDS;
	node_memory = map((size_t)chunks * WHEEL_NODE_CHUNK_SIZE);
	block_memory = map((size_t)nr_blocks * sizeof(struct wheel_block));
	w->nodes = map(chunks * sizeof(void *));
	w->blocks = map((nr_blocks / WHEEL_CHUNK_BLOCKS + 1) * sizeof(void *));
	order = map(nr * sizeof(u32));
	delay = map(nr * sizeof(u32));
	for (i = 0; i < nr; i++)
		order[i] = i;
	for (round_nr = 0; round_nr < rounds; round_nr++) {
		measure_arming();
		measure_expiry();
		measure_next();
		idle(IDLE_YEAR, YEAR);
		idle(IDLE_TICK, 1);
	}
	for (row = 0; row < NR_ROWS; row++) {
		qsort(samples[row], rounds, sizeof(double), compare);
		medians[row * stride] = samples[row][rounds / 2];
	}
}

int main(int argc, char **argv)
{
	u32 counts[MAX_COLUMNS] = { 1000, 100000, 1000000 }, columns = 3, row, i;
	double medians[NR_ROWS][MAX_COLUMNS];

	if (argc > 1) {
		columns = argc - 1 < MAX_COLUMNS ? argc - 1 : MAX_COLUMNS;
		for (i = 0; i < columns; i++)
			counts[i] = strtoul(argv[i + 1], NULL, 0);
	}
	for (i = 0; i < columns; i++) {
		if (counts[i] < 2 || counts[i] > WHEEL_MAX_NODES / 2) {
			fprintf(stderr, "usage: %s [TIMERS]...\n", argv[0]);
			return 2;
		}
		measure(counts[i], &medians[0][i], MAX_COLUMNS);
	}
	printf("%-42s", "ns per operation, timers:");
	for (i = 0; i < columns; i++)
		printf("%10u", counts[i]);
	printf("\n");
	for (row = 0; row < NR_ROWS; row++) {
		printf("%-42s", names[row]);
		for (i = 0; i < columns; i++)
			printf("%10.1f", medians[row][i]);
		printf("\n");
	}
	return 0;
}
