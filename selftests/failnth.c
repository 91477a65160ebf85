// SPDX-License-Identifier: GPL-2.0
/*
 * failnth.c - each allocation and each access to user memory made to fail in turn
 *
 * A call is repeated on a fresh wheel with its first, second, third ... point of
 * failure made to fail, until it meets no more. What fails changes nothing, and works
 * the next time. Skipped where the kernel has no fault injection.
 */
#include "twheel_test.h"

#define OPS		100	/* more than the module copies at a time */
#define POINTS_MAX	400

/* Timers of the wheel before the call: all are in use of what has been allocated. */
static unsigned int population;

/* A wheel and the arguments of the call. */
struct state {
	int fd;
	__u64 id;		/* an armed timer */
	__u64 ready_id;		/* a timer that has fired */
	struct twheel_op op;
	struct twheel_op ops[OPS];
	struct twheel_event events[OPS];
	struct twheel_info info;
	struct twheel_stats stats;
};

/* Make the @nth point of failure from now on fail, in this thread. */
static bool inject(int fail_fd, unsigned int nth)
{
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", nth);

	return pwrite(fail_fd, text, len, 0) == len;
}

/* Whether it has come to that. No more fails from here on. */
static bool injected(int fail_fd)
{
	char text[16] = "";
	bool hit;

	/* This may be the access that was to fail. */
	if (pread(fail_fd, text, sizeof(text) - 1, 0) < 0)
		return false;
	hit = !strtoul(text, NULL, 10);
	return inject(fail_fd, 0) && hit;
}

FIXTURE(failnth)
{
	int fail_fd;
	struct state s;
};

FIXTURE_SETUP(failnth)
{
	static const char * const kinds[] = {
		"failslab", "fail_page_alloc", "fail_usercopy",
	};
	const char *dir = "/sys/kernel/debug";
	char path[64];
	unsigned int i;

	self->s.fd = -1;
	self->fail_fd = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
	if (self->fail_fd < 0)
		SKIP(return, "no fault injection");
	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		snprintf(path, sizeof(path), "%s/%s/verbose", dir, kinds[i]);
		if (!tw_put(path, "0"))
			SKIP(return, "no %s", kinds[i]);
		snprintf(path, sizeof(path), "%s/%s/ignore-gfp-wait", dir, kinds[i]);
		tw_put(path, "N");
	}
	tw_put("/sys/kernel/debug/fail_page_alloc/min-order", "0");
}

FIXTURE_TEARDOWN(failnth)
{
	if (self->fail_fd >= 0)
		close(self->fail_fd);
}

static bool fresh(struct state *s)
{
	unsigned int i;

	s->fd = tw_manual(TW_TICK_MIN);
	if (s->fd < 0)
		return false;
	for (i = 0; i < 3; i++)
		s->ready_id = tw_arm(s->fd, 1, i);
	if (tw_advance(s->fd, TW_MSEC))
		return false;
	for (; i < population; i++)
		s->id = tw_arm(s->fd, TW_HOUR + i, i);
	for (i = 0; i < OPS; i++)
		s->ops[i] = tw_entry(TW_HOUR, i);
	return true;
}

/* All that a wheel tells of itself, as text. */
static void describe(struct state *s, char *text, size_t size)
{
	static struct twheel_op ops[1024];
	__u64 cursor = 0;
	size_t len;
	long nr, i;

	tw_info(s->fd, &s->info);
	tw_stats(s->fd, &s->stats);
	nr = tw_list(s->fd, ops, 1024, &cursor);
	len = snprintf(text, size, "now %llu armed %u ready %u in all %llu %llu %llu\n",
		       s->info.now_ns, s->info.armed, s->info.ready, s->stats.armed,
		       s->stats.fired, s->stats.modified);
	for (i = 0; i < nr && len < size; i++)
		len += snprintf(text + len, size - len, "%llx %llu %llu\n", ops[i].id,
				ops[i].user_data, ops[i].expires_ns);
}

static char before[65536], after[65536];

static long do_info(struct state *s)
{
	return tw_info(s->fd, &s->info);
}

static long do_stats(struct state *s)
{
	return tw_stats(s->fd, &s->stats);
}

static long do_setup(struct state *s)
{
	long ret;

	close(s->fd);
	s->fd = -1;
	ret = tw_open(O_NONBLOCK);
	if (ret < 0)
		return ret;
	s->fd = ret;
	return tw_setup(s->fd, TWHEEL_CLOCK_MANUAL, 0, 0);
}

static long do_arm(struct state *s)
{
	s->op = tw_op(TW_HOUR, 1);
	return tw_arm_op(s->fd, &s->op);
}

static long do_cancel(struct state *s)
{
	return tw_cancel(s->fd, s->id);
}

static long do_cancel_ready(struct state *s)
{
	return tw_cancel(s->fd, s->ready_id);
}

static long do_modify(struct state *s)
{
	return tw_modify(s->fd, s->id, 2 * TW_HOUR);
}

static long do_query(struct state *s)
{
	return tw_query(s->fd, s->id, &s->op);
}

static long do_next(struct state *s)
{
	__u64 next;

	return tw_next_err(s->fd, &next);
}

static long do_advance(struct state *s)
{
	return tw_advance(s->fd, TW_NSEC);
}

static long do_list(struct state *s)
{
	__u64 cursor = 0;

	return tw_list(s->fd, s->ops, OPS, &cursor) < 0 ? -errno : 0;
}

static long do_poll(struct state *s)
{
	long ret = tw_poll(s->fd);

	return ret < 0 ? ret : 0;
}

/* Calls that do all or nothing. */
static const struct {
	const char *name;
	long (*fn)(struct state *s);
} calls[] = {
	{ "info", do_info },
	{ "stats", do_stats },
	{ "arm", do_arm },
	{ "cancel", do_cancel },
	{ "cancel of a ready timer", do_cancel_ready },
	{ "modify", do_modify },
	{ "query", do_query },
	{ "next", do_next },
	{ "advance", do_advance },
	{ "list", do_list },
	{ "poll", do_poll },
};

/* So many timers that the next one needs no memory, some, and a larger table too. */
static const unsigned int populations[] = { 4, 64, 512 };

TEST_F(failnth, a_call_that_fails_changes_nothing_and_works_the_next_time)
{
	unsigned int c, p, nth;
	bool hit = true;
	long ret;

	for (p = 0; p < sizeof(populations) / sizeof(*populations); p++) {
		population = populations[p];
		for (c = 0; c < sizeof(calls) / sizeof(*calls); c++) {
			for (nth = 1, hit = true; hit && nth < POINTS_MAX; nth++) {
				ASSERT_TRUE(fresh(&self->s));
				describe(&self->s, before, sizeof(before));
				ASSERT_TRUE(inject(self->fail_fd, nth));
				ret = calls[c].fn(&self->s);
				hit = injected(self->fail_fd);
				describe(&self->s, after, sizeof(after));
				ASSERT_TRUE(hit || ret >= 0)
					TH_LOG("%s: %ld", calls[c].name, ret);
				if (ret < 0) {
					ASSERT_TRUE(ret == -ENOMEM || ret == -EFAULT)
						TH_LOG("%s: %ld", calls[c].name, ret);
					ASSERT_STREQ(before, after)
						TH_LOG("%s, point %u", calls[c].name, nth);
					ASSERT_LE(0, calls[c].fn(&self->s));
				}
				close(self->s.fd);
			}
			ASSERT_FALSE(hit);
		}
	}
}

/* How often the call can be made to fail: that the sweep meets what there is. */
static unsigned int points(int fail_fd, struct state *s, long (*fn)(struct state *s))
{
	unsigned int nth = 0;
	bool hit;

	do {
		if (!fresh(s) || !inject(fail_fd, ++nth))
			return 0;
		fn(s);
		hit = injected(fail_fd);
		close(s->fd);
	} while (hit && nth < POINTS_MAX);
	return nth - 1;
}

TEST_F(failnth, an_arm_that_needs_memory_has_more_points_of_failure)
{
	unsigned int with, without;

	population = 4;
	without = points(self->fail_fd, &self->s, do_arm);
	population = 64;
	with = points(self->fail_fd, &self->s, do_arm);
	EXPECT_LE(1, without);
	/* Timers, their places on the stack of free ones, and two chunks of blocks */
	EXPECT_LE(without + 4, with);
}

TEST_F(failnth, an_arm_is_done_or_not_at_all)
{
	unsigned int nth;
	bool hit = true;
	long ret;

	population = 64;
	for (nth = 1; hit && nth < POINTS_MAX; nth++) {
		ASSERT_TRUE(fresh(&self->s));
		ASSERT_TRUE(inject(self->fail_fd, nth));
		ret = do_arm(&self->s);
		hit = injected(self->fail_fd);
		ASSERT_EQ(population - 3 + (ret >= 0), tw_armed(self->s.fd));
		close(self->s.fd);
	}
	EXPECT_FALSE(hit);
}

TEST_F(failnth, opening_and_setting_up_fail_and_work_the_next_time)
{
	unsigned int nth;
	bool hit = true;
	long ret;

	population = 4;
	for (nth = 1; hit && nth < POINTS_MAX; nth++) {
		ASSERT_TRUE(fresh(&self->s));
		ASSERT_TRUE(inject(self->fail_fd, nth));
		ret = do_setup(&self->s);
		hit = injected(self->fail_fd);
		if (ret < 0) {
			ASSERT_TRUE(hit);
			ASSERT_TRUE(ret == -ENOMEM || ret == -EFAULT || ret == -ENODEV) {
				TH_LOG("%ld", ret);
			}
			/* The set-up that failed has not used up the only one. */
			if (self->s.fd >= 0)
				ASSERT_EQ(0, tw_setup(self->s.fd, TWHEEL_CLOCK_MANUAL, 0, 0));
		}
		if (self->s.fd >= 0)
			close(self->s.fd);
	}
	EXPECT_FALSE(hit);
	EXPECT_LT(5, nth);
}

TEST_F(failnth, a_submit_tells_of_all_that_was_done_but_in_one_chunk)
{
	unsigned int nth, armed, i;
	bool hit = true;
	long ret;

	population = 4;
	for (nth = 1; hit && nth < POINTS_MAX; nth++) {
		unsigned int told = 0;

		ASSERT_TRUE(fresh(&self->s));
		ASSERT_TRUE(inject(self->fail_fd, nth));
		ret = tw_submit(self->s.fd, self->s.ops, OPS);
		hit = injected(self->fail_fd);
		armed = tw_armed(self->s.fd) - 1;
		for (i = 0; ret > 0 && i < ret; i++)
			told += !self->s.ops[i].res;
		if (ret < 0)
			ASSERT_TRUE(ret == -EFAULT || ret == -ENOMEM);
		/* Memory that can be written when tried and not when used: a chunk. */
		ASSERT_LE(told, armed);
		ASSERT_LE(armed, told + 64);
		for (i = 0; ret > 0 && i < ret; i++)
			ASSERT_TRUE(!self->s.ops[i].res || self->s.ops[i].res == -ENOMEM);
		close(self->s.fd);
	}
	EXPECT_FALSE(hit);
	EXPECT_LT(2, nth);
	EXPECT_EQ(OPS, ret);
}

TEST_F(failnth, a_read_that_faults_loses_no_record)
{
	unsigned int nth, i, seen;
	bool hit = true;
	long ret;

	population = 0;
	for (nth = 1; hit && nth < POINTS_MAX; nth++) {
		__u64 sum = 0;

		ASSERT_TRUE(fresh(&self->s));
		for (i = 3; i < OPS; i++)
			ASSERT_NE(0, tw_arm(self->s.fd, 1, i));
		ASSERT_TRUE(inject(self->fail_fd, nth));
		ret = tw_read(self->s.fd, self->s.events, OPS);
		hit = injected(self->fail_fd);
		ASSERT_TRUE(hit || ret == OPS);
		ASSERT_TRUE(ret == -EFAULT || ret > 0);
		seen = ret > 0 ? ret : 0;
		for (i = 0; i < seen; i++)
			sum += self->s.events[i].user_data;
		while ((ret = tw_read(self->s.fd, self->s.events, OPS)) > 0)
			for (i = 0; i < ret; i++, seen++)
				sum += self->s.events[i].user_data;
		ASSERT_EQ(OPS, seen);
		ASSERT_EQ(OPS * (OPS - 1) / 2, sum);
		close(self->s.fd);
	}
	EXPECT_FALSE(hit);
	EXPECT_LT(2, nth);
}

TEST_F(failnth, a_drain_that_faults_loses_no_timer)
{
	unsigned int nth;
	bool hit = true;
	long ret;

	population = OPS;
	for (nth = 1; hit && nth < POINTS_MAX; nth++) {
		ASSERT_TRUE(fresh(&self->s));
		ASSERT_TRUE(inject(self->fail_fd, nth));
		ret = tw_drain(self->s.fd, self->s.ops, OPS);
		hit = injected(self->fail_fd);
		ASSERT_TRUE(hit || ret == population - 3);
		ASSERT_TRUE(ret == -EFAULT || ret > 0);
		ASSERT_EQ(population - 3, tw_armed(self->s.fd) + (ret > 0 ? ret : 0));
		close(self->s.fd);
	}
	EXPECT_FALSE(hit);
	EXPECT_LT(2, nth);
}

TEST_HARNESS_MAIN
