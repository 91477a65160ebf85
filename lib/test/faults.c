// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Whatever fails, and whenever: the call that is made says so, nothing is lost by it, and
 * when it does not fail any more all goes on. Each allocation, and each call of the device,
 * is made to fail in turn.
 */
#include <errno.h>
#include <stdarg.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <twheel.h>

#include "kselftest_harness.h"
#include "wrap.h"

#define NR	500
#define MSEC	(1ULL << 20)

/* What fails: the call after so many that go well; 0 for none. */
static long left_malloc, left_ioctl;
static int ioctl_errno;
/* And what is done in the place of a SUBMIT that has failed. */
static bool alone_as_well = true, submit_failed;

static bool fails(long *left)
{
	if (!*left)
		return false;
	(*left)--;
	return !*left;
}

void *__wrap_malloc(size_t size)
{
	return fails(&left_malloc) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t nr, size_t size)
{
	return fails(&left_malloc) ? NULL : __real_calloc(nr, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	return fails(&left_malloc) ? NULL : __real_aligned_alloc(align, size);
}

void *__wrap_reallocarray(void *p, size_t nr, size_t size)
{
	return fails(&left_malloc) ? NULL : __real_reallocarray(p, nr, size);
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (alone_as_well && submit_failed &&
	    (request == TWHEEL_IOC_MODIFY || request == TWHEEL_IOC_CANCEL))
		goto fail;
	submit_failed = false;
	if (!fails(&left_ioctl))
		return __real_ioctl(fd, request, arg);
	submit_failed = request == TWHEEL_IOC_SUBMIT;
fail:
	errno = ioctl_errno;
	return -1;
}

struct item {
	struct twheel_timer t;
	bool armed;
	uint64_t deadline_ns;
	int calls;
};

static struct item items[NR];

static void note(struct twheel *w, struct twheel_timer *t, uint64_t missed)
{
	struct item *item = TWHEEL_CONTAINER(t, struct item, t);
	(void)w;
	(void)missed;

	item->calls++;
	item->armed = false;
}

FIXTURE(faults) {
	struct twheel *w;
};

FIXTURE_VARIANT(faults) {
	enum twheel_backend backend;
	long *left;
	int error;
};

FIXTURE_VARIANT_ADD(faults, memory_local) {
	.backend = TWHEEL_LOCAL, .left = &left_malloc, .error = ENOMEM,
};

FIXTURE_VARIANT_ADD(faults, memory_device) {
	.backend = TWHEEL_DEVICE, .left = &left_malloc, .error = ENOMEM,
};

FIXTURE_VARIANT_ADD(faults, calls_of_the_device) {
	.backend = TWHEEL_DEVICE, .left = &left_ioctl, .error = ENOMEM,
};

FIXTURE_SETUP(faults)
{
	struct twheel_options options = { .backend = variant->backend };
	int ret;

	ioctl_errno = variant->error;
	ret = twheel_open(&self->w, &options);
	if (ret == -ENOENT)
		SKIP(return, "no /dev/twheel");
	twheel_close(self->w);
}

FIXTURE_TEARDOWN(faults)
{
	left_malloc = 0;
	left_ioctl = 0;
}

static bool readable(const struct twheel *w)
{
	struct pollfd p = { .fd = twheel_fd(w), .events = POLLIN };

	return poll(&p, 1, 0) == 1;
}

/* Arms or moves a timer. If that fails nothing has changed. 1 if it failed. */
static int arm(struct __test_metadata *_metadata, struct twheel *w, struct item *item,
	       uint64_t deadline_ns)
{
	int ret = twheel_arm_at(w, &item->t, deadline_ns, note);

	if (!ret) {
		item->armed = true;
		item->deadline_ns = deadline_ns;
		return 0;
	}
	EXPECT_EQ(-ENOMEM, ret);
	EXPECT_EQ(item->armed, twheel_is_armed(&item->t));
	if (item->armed)
		EXPECT_EQ(item->deadline_ns, twheel_deadline(&item->t));
	return 1;
}

/* How many calls failed, of a program that arms, moves, cancels and waits. */
static int play(struct __test_metadata *_metadata, struct twheel *w)
{
	int i, ret, failed = 0;
	uint64_t now_ns;

	for (i = 0; i < NR; i++) {
		ret = arm(_metadata, w, &items[i], (1000 - i) * MSEC);
		failed += ret;
		/* What there was before is as it was, and can be used. */
		if (ret && i)
			arm(_metadata, w, &items[0], (500 - i) * MSEC);
	}
	for (i = 0; i < NR; i += 3)
		failed += arm(_metadata, w, &items[i], (100 + i) * MSEC);
	for (i = 1; i < NR; i += 3) {
		EXPECT_EQ(items[i].armed, twheel_cancel(w, &items[i].t));
		items[i].armed = false;
	}
	for (now_ns = 0; now_ns <= 1100 * MSEC; now_ns += 50 * MSEC) {
		while (twheel_advance(w, now_ns))
			failed++;
		do {
			ret = twheel_dispatch(w, 0);
			failed += ret < 0;
		} while (ret < 0 || readable(w));
		for (i = 0; i < NR; i++)
			EXPECT_FALSE(items[i].armed && items[i].deadline_ns <= now_ns);
	}
	return failed;
}

TEST_F(faults, each_is_told_by_the_call_that_is_made_and_nothing_is_lost)
{
	struct twheel_options options = {
		.backend = variant->backend,
		.clock = TWHEEL_MANUAL,
	};
	bool hit = true;
	long nth;
	int ret;

	for (nth = 1; hit; nth += 1 + nth / 20) {
		memset(items, 0, sizeof(items));
		*variant->left = nth;
		ret = twheel_open(&self->w, &options);
		if (ret) {
			ASSERT_EQ(-variant->error, ret);
			continue;
		}
		ret = play(_metadata, self->w);
		hit = !*variant->left;
		EXPECT_EQ(hit, ret) TH_LOG("%ld", nth);
		*variant->left = 0;
		twheel_close(self->w);
	}
	EXPECT_LT(5, nth);
}

/* What only the device can fail at. */
FIXTURE(device) {
	struct twheel *w;
};

FIXTURE_SETUP(device)
{
	struct twheel_options options = {
		.backend = TWHEEL_DEVICE,
		.clock = TWHEEL_MANUAL,
	};
	int ret = twheel_open(&self->w, &options);

	if (ret == -ENOENT)
		SKIP(return, "no /dev/twheel");
	ASSERT_EQ(0, ret);
	memset(items, 0, sizeof(items));
	ioctl_errno = ENOMEM;
	alone_as_well = true;
}

FIXTURE_TEARDOWN(device)
{
	left_ioctl = 0;
	twheel_close(self->w);
}

TEST_F(device, next_is_now_when_nothing_can_be_sent)
{
	ASSERT_EQ(0, twheel_advance(self->w, 10 * MSEC));
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 20 * MSEC, note));
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[1].t, 30 * MSEC, note));
	left_ioctl = 1;
	EXPECT_EQ(10 * MSEC, twheel_next(self->w));
	left_ioctl = 0;
	submit_failed = false;
	EXPECT_EQ(20 * MSEC, twheel_next(self->w));
}

TEST_F(device, a_signal_does_not_hide_what_is_next)
{
	ASSERT_EQ(0, twheel_arm_at(self->w, &items[0].t, 20 * MSEC, note));
	ioctl_errno = EINTR;
	left_ioctl = 1;
	EXPECT_EQ(20 * MSEC, twheel_next(self->w));
	EXPECT_EQ(0, left_ioctl);
}

TEST_F(device, many_operations_for_which_there_is_no_memory_are_done_alone)
{
	int i, nr, called = 0;

	alone_as_well = false;
	for (i = 0; i < NR; i++)
		ASSERT_EQ(0, twheel_arm_at(self->w, &items[i].t, (10 + i % 7) * MSEC, note));
	for (i = 0; i < NR; i++)
		ASSERT_EQ(0, twheel_arm_at(self->w, &items[i].t, (500 - i) * MSEC, note));
	for (i = 1; i <= 500; i++) {
		left_ioctl = i % 3;
		ASSERT_EQ(0, twheel_flush(self->w));
		left_ioctl = 0;
		ASSERT_EQ(0, twheel_advance(self->w, i * MSEC));
		left_ioctl = i % 2;
		while (readable(self->w)) {
			nr = twheel_dispatch(self->w, 0);
			ASSERT_LE(0, nr);
			called += nr;
		}
	}
	EXPECT_EQ(NR, called);
}

TEST_HARNESS_MAIN
