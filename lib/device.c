// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * Slots as timers of /dev/twheel.
 *
 * A timer that expires once is gone when its record was read, and the next one for its
 * slot might not be had. So each is one with a period that ends beyond all time: after
 * its record it is parked, and stays the slot's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "internal.h"

struct tw_device {
	struct twheel_op ops[TW_BATCH];
	struct twheel_event events[TW_BATCH];
};

static int tw_device_setup(struct twheel *w, const struct twheel_options *options)
{
	struct twheel_setup setup = {
		.size = sizeof(setup),
		.clockid = w->clockid,
		.capacity = options->capacity,
		.tick_ns = options->tick_ns,
	};

	if (ioctl(w->fd, TWHEEL_IOC_SETUP, &setup))
		return -errno;
	w->capacity = setup.capacity;
	return 0;
}

static int tw_device_open(struct twheel *w, const struct twheel_options *options)
{
	struct tw_device *d;
	int ret;

	d = malloc(sizeof(*d));
	if (!d)
		return -ENOMEM;
	w->fd = open("/dev/twheel", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	ret = w->fd < 0 ? -errno : tw_device_setup(w, options);
	if (!ret) {
		w->private = d;
		return 0;
	}
	if (w->fd >= 0)
		close(w->fd);
	free(d);
	return ret;
}

static void tw_device_close(struct twheel *w)
{
	close(w->fd);
	free(w->private);
}

static int tw_device_grow(struct twheel *w)
{
	(void)w;
	return 0;
}

/* Has @nr of the operations done. How many were, each with its result, or an error. */
static int tw_submit(struct twheel *w, uint32_t nr)
{
	struct tw_device *d = w->private;
	struct twheel_submit submit = {
		.size = sizeof(submit),
		.ops = (uintptr_t)d->ops,
		.nr = nr,
	};
	int ret;

	w->counts.syscalls++;
	ret = ioctl(w->fd, TWHEEL_IOC_SUBMIT, &submit);
	return ret < 0 ? -errno : ret;
}

static int tw_device_add(struct twheel *w, uint32_t *slots, uint32_t nr)
{
	struct tw_device *d = w->private;
	int i, ret, done = 0;

	for (i = 0; i < (int)nr; i++)
		d->ops[i] = (struct twheel_op){
			.opcode = TWHEEL_OP_ARM,
			.user_data = slots[i],
			.expires_ns = TWHEEL_NEVER,
		};
	ret = tw_submit(w, nr);
	if (ret < 0)
		return ret;
	w->counts.sent += ret;
	for (i = 0; i < ret; i++) {
		if (d->ops[i].res)
			continue;
		tw_slot(w, slots[i])->id = d->ops[i].id;
		slots[done++] = slots[i];
	}
	return done ?: d->ops[0].res;
}

/* The first of the operations alone, for which the kernel needs no memory. */
static int tw_do_one(struct twheel *w)
{
	struct tw_device *d = w->private;
	struct twheel_op *op = &d->ops[0];
	int ret;

	w->counts.syscalls++;
	ret = ioctl(w->fd, op->opcode == TWHEEL_OP_CANCEL ? TWHEEL_IOC_CANCEL :
							    TWHEEL_IOC_MODIFY, op);
	return ret < 0 ? -errno : 1;
}

static int tw_device_send(struct twheel *w, const struct tw_op *ops, uint32_t nr)
{
	struct tw_device *d = w->private;
	uint32_t i;
	int ret;

	for (i = 0; i < nr; i++)
		d->ops[i] = (struct twheel_op){
			.opcode = ops[i].gone ? TWHEEL_OP_CANCEL : TWHEEL_OP_MODIFY,
			.id = tw_slot(w, ops[i].slot)->id,
			.expires_ns = ops[i].expires_ns,
			.interval_ns = INT64_MAX,
			.slack_ns = ops[i].slack_ns,
		};
	ret = tw_submit(w, nr);
	/* Event loops would not know what to do about it, and timers be late. */
	return ret == -ENOMEM ? tw_do_one(w) : ret;
}

static void tw_device_settle(struct twheel *w)
{
	(void)w;
}

static int tw_device_take(struct twheel *w, uint32_t *slots, uint32_t max, uint64_t *now_ns)
{
	struct tw_device *d = w->private;
	ssize_t i, nr;
	int taken = 0;

	w->counts.syscalls++;
	nr = read(w->fd, d->events, max * sizeof(*d->events));
	*now_ns = twheel_now(w);
	if (nr < 0)
		return errno == EAGAIN ? 0 : -errno;
	nr /= sizeof(*d->events);
	/* Who else has the descriptor may have armed what is no slot. */
	for (i = 0; i < nr; i++)
		if (d->events[i].user_data - 1 < w->nr_slots - 1ULL)
			slots[taken++] = d->events[i].user_data;
	return taken;
}

static uint64_t tw_device_next(struct twheel *w)
{
	struct twheel_next next = { .size = sizeof(next) };
	int ret;

	/* It looks for the timer for as long as it takes, unless a signal comes. */
	do {
		w->counts.syscalls++;
		ret = ioctl(w->fd, TWHEEL_IOC_NEXT, &next);
	} while (ret && errno == EINTR);
	return ret ? TWHEEL_NEVER : next.expires_ns;
}

static int tw_device_advance(struct twheel *w, uint64_t to_ns)
{
	struct twheel_advance advance = { .size = sizeof(advance), .to_ns = to_ns };

	w->counts.syscalls++;
	return ioctl(w->fd, TWHEEL_IOC_ADVANCE, &advance) ? -errno : 0;
}

const struct tw_backend tw_device = {
	.open		= tw_device_open,
	.close		= tw_device_close,
	.grow		= tw_device_grow,
	.add		= tw_device_add,
	.send		= tw_device_send,
	.settle		= tw_device_settle,
	.take		= tw_device_take,
	.next		= tw_device_next,
	.advance	= tw_device_advance,
};
