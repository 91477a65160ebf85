/* SPDX-License-Identifier: GPL-2.0 */
/*
 * All differences between kernel versions. The module is written against the
 * newest kernel; this fills in what older ones lack. Nothing else in the module
 * names a version.
 */
#ifndef TWHEEL_COMPAT_H
#define TWHEEL_COMPAT_H

#include <linux/device.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/time_namespace.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "twheel needs Linux 6.1 or newer"
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void
tw_hrtimer_setup(struct hrtimer *timer,
		 enum hrtimer_restart (*function)(struct hrtimer *),
		 clockid_t clockid, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clockid, mode);
	timer->function = function;
}

#define hrtimer_setup tw_hrtimer_setup
#endif

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
static inline struct class *tw_class_create(const char *name)
{
	return class_create(THIS_MODULE, name);
}

#undef class_create
#define class_create tw_class_create
#endif

/* What the devnode() of a class may not change */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 2, 0)
#define tw_devnode_const
#else
#define tw_devnode_const const
#endif

#ifndef kzalloc_obj
#define kzalloc_obj(obj, gfp) kzalloc(sizeof(obj), gfp)
#endif

#ifndef kvzalloc_obj
#define kvzalloc_obj(obj, gfp) kvzalloc(sizeof(obj), gfp)
#endif

/*
 * What the time namespace of the caller adds to a clock of the host, in ns.
 * timens_ktime_to_host() would subtract it, but what it calls is exported only
 * lately; timens_add_*() are inline everywhere.
 */
static inline s64 tw_timens_offset_ns(clockid_t clockid)
{
	struct timespec64 ts = {};

	if (clockid == CLOCK_MONOTONIC)
		timens_add_monotonic(&ts);
	else if (clockid == CLOCK_BOOTTIME)
		timens_add_boottime(&ts);
	return timespec64_to_ns(&ts);
}

/*
 * Commands of an io_uring. What stands in the entry of the submission queue, as a pointer
 * to @type: that memory is shared with user space.
 */
#ifdef __has_include	/* which sparse does not have */
#if __has_include("linux/io_uring/cmd.h")
#define TW_URING_HAS_HEADER
#endif
#endif

#ifdef TW_URING_HAS_HEADER
#include <linux/io_uring/cmd.h>
#ifdef io_uring_sqe_cmd
#define tw_uring_payload(command, type) io_uring_sqe_cmd((command)->sqe, type)
#else
#define tw_uring_payload(command, type) ((const type *)io_uring_sqe_cmd((command)->sqe))
#endif
#else
#include <linux/io_uring.h>
#define tw_uring_payload(command, type) ((const type *)(command)->cmd)
#define TW_URING_POSTS_RESULT
#endif

#ifndef IORING_URING_CMD_MASK
#define IORING_URING_CMD_MASK IORING_URING_CMD_FIXED
#endif

/* To be returned by a command. Old kernels take a result above 0 for a failure. */
static inline int tw_uring_answer(struct io_uring_cmd *cmd, int ret,
				  unsigned int issue_flags)
{
#ifdef TW_URING_POSTS_RESULT
	io_uring_cmd_done(cmd, ret, 0, issue_flags);
	return -EIOCBQUEUED;
#else
	return ret;
#endif
}

#endif /* TWHEEL_COMPAT_H */
