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

/*
 * The timers that are armed, parked ones too. One that expires once is somebody else's, as
 * are those whose number is no slot's.
 */
static int tw_adopt_armed(struct twheel *w)
{
	struct tw_device *d = w->private;
	struct twheel_list list = {
		.size = sizeof(list),
		.ops = (uintptr_t)d->ops,
		.nr = TW_BATCH,
	};
	const struct twheel_op *op;
	int nr, ret = 0;

	do {
		w->counts.syscalls++;
		nr = ioctl(w->fd, TWHEEL_IOC_LIST, &list);
		if (nr < 0)
			return -errno;
		for (op = d->ops; op < d->ops + nr && !ret; op++)
			if (op->expires_ns == TWHEEL_NEVER)
				ret = tw_slots_adopt(w, op->user_data, op->id, TWHEEL_NEVER);
			else if (op->interval_ns == INT64_MAX)
				ret = tw_slots_adopt(w, op->user_data, op->id,
						     tw_add_ns(op->expires_ns, op->slack_ns));
	} while (!ret && list.cursor);
	return ret;
}

/* Those that have expired: who reads that parks them. */
static int tw_adopt_expired(struct twheel *w)
{
	struct tw_device *d = w->private;
	const struct twheel_event *event;
	ssize_t nr;
	int ret = 0;

	for (;;) {
		w->counts.syscalls++;
		nr = read(w->fd, d->events, sizeof(d->events));
		if (nr < 0)
			return errno == EAGAIN ? 0 : -errno;
		nr /= sizeof(*event);
		for (event = d->events; event < d->events + nr && !ret; event++)
			if (event->flags & TWHEEL_EV_MORE)
				ret = tw_slots_adopt(w, event->user_data, event->id,
						     TWHEEL_NEVER);
		if (ret)
			return ret;
	}
}

/* In this order: what expires meanwhile is found twice, and not never. */
static int tw_adopt_timers(struct twheel *w)
{
	return tw_adopt_armed(w) ?: tw_adopt_expired(w) ?: tw_slots_adopted(w);
}

int tw_device_adopt(struct twheel *w)
{
	struct twheel_info info = { .size = sizeof(info) };
	int ret, flags = fcntl(w->fd, F_GETFL);

	if (flags < 0 || ioctl(w->fd, TWHEEL_IOC_INFO, &info))
		return -errno;
	/* As it was opened; who has the descriptor may have changed that. */
	if (fcntl(w->fd, F_SETFL, flags | O_NONBLOCK) || fcntl(w->fd, F_SETFD, FD_CLOEXEC))
		return -errno;
	w->clockid = info.clockid;
	w->capacity = info.capacity;
	w->manual_ns = info.now_ns;
	w->private = malloc(sizeof(struct tw_device));
	if (!w->private)
		return -ENOMEM;
	ret = tw_adopt_timers(w);
	if (ret)
		free(w->private);
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
