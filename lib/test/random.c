// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Random programs on the manual clock: each call of a function is one that a model of a few
 * lines expects, none is left out, and both back ends call the same functions in the same
 * order at the same times.
 *
 *   random [OPERATIONS [SEED]]
 */
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <twheel.h>

#define NR_TIMERS	300
#define TICK_SHIFT	20
#define SPARE		64	/* timers that a wheel may hold beyond twice those in use */

/* A timer, and what is expected of it. */
struct item {
	struct twheel_timer t;
	unsigned int name;
	bool armed;
	struct twheel_spec as;	/* with the next expiry, and the expiries left */
};

struct call {
	uint64_t now_ns;
	uint64_t missed;
	uint64_t name;
};

static struct {
	struct twheel *w;
	uint64_t now_ns;
	uint64_t slack_ns;
	uint64_t seed;
	struct item *items[NR_TIMERS];
	unsigned int armed;
	struct call *calls;
	size_t nr_calls;
	size_t room;
	unsigned long operations;
	bool in_call;
	bool ending;
} run;

static uint64_t rnd(void)
{
	uint64_t x = run.seed += 0x9e3779b97f4a7c15ULL;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static uint64_t below(uint64_t n)
{
	return rnd() % n;
}

/* Of any order of magnitude up to 2^@bits, round ones among them. */
static uint64_t some_ns(unsigned int bits)
{
	unsigned int shift = 63 - below(bits);
	uint64_t ns = rnd() >> shift;

	return below(4) ? ns : ns >> TICK_SHIFT << TICK_SHIFT;
}

static uint64_t add(uint64_t a, uint64_t b)
{
	return a == TWHEEL_NEVER ? a : a + b > INT64_MAX ? INT64_MAX : a + b;
}

static void fail(const char *what, const struct item *item)
{
	errx(1, "operation %lu, call %zu, timer %u, now %llu: %s", run.operations,
	     run.nr_calls, item ? item->name : 0, (unsigned long long)run.now_ns, what);
}

static void called(struct twheel *w, struct twheel_timer *t, uint64_t missed);

static void forget(struct item *item)
{
	item->armed = false;
	run.armed--;
}

static void arm(struct item *item)
{
	static const uint64_t lengths[] = { 30 * TWHEEL_SEC, 50 * TWHEEL_MSEC, TWHEEL_MSEC };
	struct twheel_spec as = {};
	int ret;

	switch (below(8)) {
	case 0:	/* of one length */
	case 1:
	case 2:
		as.expires_ns = lengths[below(3)];
		as.slack_ns = run.slack_ns;
		ret = twheel_arm(run.w, &item->t, as.expires_ns, called);
		as.expires_ns = add(run.now_ns, as.expires_ns);
		break;
	case 3:
		as.expires_ns = below(20) ? some_ns(45) : TWHEEL_NEVER;
		as.slack_ns = run.slack_ns;
		ret = twheel_arm_at(run.w, &item->t, as.expires_ns, called);
		break;
	case 4:
		as.interval_ns = 1 + some_ns(40);
		as.slack_ns = run.slack_ns;
		ret = twheel_every(run.w, &item->t, as.interval_ns, called);
		as.expires_ns = add(run.now_ns, as.interval_ns);
		break;
	default:
		as.expires_ns = below(40) ? add(run.now_ns, some_ns(45)) : some_ns(63);
		as.slack_ns = below(2) ? some_ns(40) : 0;
		if (below(2)) {
			as.interval_ns = 1 + some_ns(below(8) ? 40 : 62);
			as.count = below(2) ? below(10) : 0;
			as.misfire = below(3);
		}
		ret = twheel_arm_spec(run.w, &item->t, &as, called);
		as.slack_ns = as.slack_ns ?: run.slack_ns;
		break;
	}
	if (ret)
		errx(1, "not armed: %s", strerror(-ret));
	run.armed += !item->armed;
	item->armed = true;
	item->as = as;
	if (twheel_deadline(&item->t) != as.expires_ns)
		fail("the deadline is not what was armed", item);
}

static void cancel(struct item *item)
{
	if (twheel_cancel(run.w, &item->t) != item->armed)
		fail("it is not known whether it was armed", item);
	if (item->armed)
		forget(item);
}

static void renew(unsigned int name)
{
	free(run.items[name]);
	run.items[name] = calloc(1, sizeof(struct item));
	if (!run.items[name])
		err(1, "calloc");
	run.items[name]->name = name;
}

static void operate(void)
{
	unsigned int name = below(NR_TIMERS);
	struct item *item = run.items[name];

	run.operations++;
	if (below(5) < 3) {
		arm(item);
	} else {
		cancel(item);
		/* What is not armed may go. */
		if (below(2))
			renew(name);
	}
}

/* What the model says of a timer that is called now. */
static uint64_t expect(struct item *item)
{
	struct twheel_spec *as = &item->as;
	uint64_t passed = 0;

	if (!as->interval_ns) {
		forget(item);
		return 0;
	}
	if (as->misfire != TWHEEL_MISFIRE_BURST)
		passed = (run.now_ns - as->expires_ns) / as->interval_ns;
	if (as->count && passed + 1 >= as->count) {
		passed = as->count - 1;
		forget(item);
	} else {
		if (as->count)
			as->count -= passed + 1;
		as->expires_ns += (passed + 1) * as->interval_ns;
		if (as->expires_ns > INT64_MAX)
			as->expires_ns = TWHEEL_NEVER;
	}
	return as->misfire == TWHEEL_MISFIRE_COUNT ? passed : 0;
}

static void called(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct item *item = TWHEEL_CONTAINER(t, struct item, t);
	unsigned int i, nr;

	if (run.ending)
		return;
	if (w != run.w)
		fail("it is another wheel", item);
	if (!item->armed)
		fail("its function was run though it is not armed", item);
	if (item->as.expires_ns > run.now_ns)
		fail("it came early", item);
	if (missed != expect(item))
		fail("it has not missed so many", item);
	if (twheel_is_armed(t) != item->armed)
		fail("whether it is armed is wrong", item);
	if (run.nr_calls == run.room) {
		run.room = run.room ? 2 * run.room : 4096;
		run.calls = reallocarray(run.calls, run.room, sizeof(*run.calls));
		if (!run.calls)
			err(1, "reallocarray");
	}
	run.calls[run.nr_calls++] = (struct call){ run.now_ns, missed, item->name };

	nr = below(3) ? 0 : below(4);
	for (i = 0; i < nr; i++)
		operate();
	if (!below(50) && !run.in_call) {
		run.in_call = true;
		if (twheel_dispatch(w, below(5)) < 0)
			fail("no dispatch within another", NULL);
		run.in_call = false;
	}
}

static bool readable(void)
{
	struct pollfd p = { .fd = twheel_fd(run.w), .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

/* When nothing more is said to be due nothing is. */
static void verify(void)
{
	const uint64_t tick = 1ULL << TICK_SHIFT;
	struct twheel_counts counts;
	unsigned int i;

	for (i = 0; i < NR_TIMERS; i++) {
		struct item *item = run.items[i];
		uint64_t due_by = add(item->as.expires_ns, item->as.slack_ns);

		if (item->armed && due_by <= INT64_MAX - tick &&
		    (due_by + tick - 1) >> TICK_SHIFT << TICK_SHIFT <= run.now_ns)
			fail("it did not come in time", item);
	}
	twheel_stats(run.w, &counts);
	if (counts.armed != run.armed)
		fail("the wheel has not as many timers as it should", NULL);
}

static void dispatch(void)
{
	int max = below(3) ? 0 : 1 + below(20), nr;

	do {
		nr = twheel_dispatch(run.w, max);
		if (nr < 0 || (max && nr > max))
			fail("more came than was to come, or nothing", NULL);
	} while (readable());
	verify();
}

static void close_wheel(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	(void)t;
	(void)missed;
	twheel_close(w);
}

/* With whatever is armed, by itself or by a function. */
static void end(struct item *item)
{
	if (below(2)) {
		twheel_close(run.w);
		return;
	}
	run.ending = true;
	if (twheel_arm(run.w, &item->t, 0, close_wheel))
		fail("the last timer cannot be armed", item);
	/* It may have slack. */
	run.now_ns += run.slack_ns;
	while (twheel_is_armed(&item->t)) {
		run.now_ns += 1 << TICK_SHIFT;
		if (twheel_advance(run.w, run.now_ns) || twheel_dispatch(run.w, 0) < 0)
			fail("the last dispatch failed", NULL);
	}
}

static void play(enum twheel_backend backend, unsigned long operations, uint64_t seed)
{
	struct twheel_options options = { .backend = backend, .clock = TWHEEL_MANUAL };
	struct twheel_counts counts;
	uint64_t next;
	unsigned int i;
	int ret;

	memset(&run, 0, sizeof(run));
	run.seed = seed;
	run.slack_ns = below(2) ? some_ns(35) : 0;
	options.slack_ns = run.slack_ns;
	ret = twheel_open(&run.w, &options);
	if (ret)
		errx(1, "open: %s", strerror(-ret));
	for (i = 0; i < NR_TIMERS; i++)
		renew(i);
	while (run.operations < operations) {
		for (i = below(100); i > 0; i--)
			operate();
		switch (below(4)) {
		case 0:
			next = twheel_next(run.w);
			if (next != TWHEEL_NEVER && next >= run.now_ns && next < 1ULL << 50)
				run.now_ns = next;
			break;
		case 1:
			run.now_ns += below(8) << TICK_SHIFT;
			break;
		case 2:
			run.now_ns += below(1 << TICK_SHIFT);
			break;
		default:
			run.now_ns += some_ns(36);
		}
		ret = twheel_advance(run.w, run.now_ns);
		if (ret)
			errx(1, "advance: %s", strerror(-ret));
		for (i = below(3) ? 0 : below(10); i > 0; i--)
			operate();
		dispatch();
		twheel_stats(run.w, &counts);
		if (counts.pending > 2 * counts.armed + SPARE)
			fail("the wheel holds too many timers", NULL);
	}
	twheel_stats(run.w, &counts);
	printf("# %s: %zu calls, %lu operations, %llu sent, %llu system calls, %llu records\n",
	       backend == TWHEEL_DEVICE ? "device" : "local", run.nr_calls, run.operations,
	       (unsigned long long)counts.sent, (unsigned long long)counts.syscalls,
	       (unsigned long long)counts.records);
	end(run.items[0]);
	for (i = 0; i < NR_TIMERS; i++)
		free(run.items[i]);
}

static void compare(const struct call *calls, size_t nr, uint64_t seed)
{
	size_t i;

	for (i = 0; i < nr && i < run.nr_calls; i++)
		if (memcmp(&calls[i], &run.calls[i], sizeof(*calls)))
			break;
	if (i < nr || i < run.nr_calls)
		errx(1, "seed %llu: call %zu differs: at %llu timer %llu, at %llu timer %llu",
		     (unsigned long long)seed, i, (unsigned long long)calls[i].now_ns,
		     (unsigned long long)calls[i].name,
		     (unsigned long long)run.calls[i].now_ns,
		     (unsigned long long)run.calls[i].name);
}

int main(int argc, char **argv)
{
	unsigned long operations = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000000;
	uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1, seed;
	unsigned int parts = 20, nr = 0, part;
	struct twheel *w;
	bool device;

	device = !twheel_open(&w, &(struct twheel_options){ .backend = TWHEEL_DEVICE });
	if (device)
		twheel_close(w);
	printf("TAP version 13\n1..%u\n", parts);
	for (part = 0; part < parts; part++) {
		struct call *calls;
		size_t nr_calls;

		seed = first + part;
		fflush(stdout);
		play(TWHEEL_LOCAL, operations / parts, seed);
		calls = run.calls;
		nr_calls = run.nr_calls;
		if (device) {
			play(TWHEEL_DEVICE, operations / parts, seed);
			compare(calls, nr_calls, seed);
			free(run.calls);
		}
		free(calls);
		printf("ok %u random.program_%llu_does_what_the_model_says%s\n", ++nr,
		       (unsigned long long)seed, device ? "_on_both_back_ends" : "");
	}
	return 0;
}
