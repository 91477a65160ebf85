// SPDX-License-Identifier: GPL-2.0
/*
 * The device: file operations and ioctls. Alone touches user memory and alone
 * knows what may stand in an argument; hands checked values to the engine.
 */
#include <linux/compat.h>
#include <linux/device.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "abi_layout.h"
#include "compat.h"
#include "dev.h"
#include "engine.h"

/* A struct that is only written may be taken in part, but for its first fields. */
#define TW_MIN_OUT_SIZE		8

/* Operations that are copied in and out together: a page of them. */
#define TW_SUBMIT_CHUNK		64

/*
 * What may stand in the flags of any operation, so that what a call has filled in can be
 * handed to another: those that are only told, and the one that matters only to ARM and
 * MODIFY.
 */
#define TW_OP_FLAGS		(TWHEEL_F_REL | TWHEEL_F_ARMED | TWHEEL_F_READY)
#define TW_DEV_NAME		"twheel"

/* A copy that faults this often in a row without getting on is given up. */
#define TW_FAULT_RETRIES	16

/*
 * Copies in a struct that begins with its size. A newer, longer one must have nothing
 * but zeroes beyond. Every struct so far is as it was first: no shorter one is right.
 */
static int tw_get_sized(void *to, u32 size, const void __user *from)
{
	u32 usize;
	int ret;

	if (get_user(usize, (const u32 __user *)from))
		return -EFAULT;
	if (usize < size)
		return -EINVAL;
	if (usize > PAGE_SIZE)
		return -E2BIG;
	ret = copy_struct_from_user(to, size, from, usize);
	/* It may have been changed between the two looks at it. */
	*(u32 *)to = usize;
	return ret;
}

/*
 * Copies out a struct that begins with its size, after the caller said how large its own
 * is. Bytes that this kernel does not know read as zeroes, so that a caller who knows
 * them sees nothing in them that was never said.
 */
static int tw_put_sized(void __user *to, u32 usize, const void *from, u32 size)
{
	if (copy_to_user(to, from, min(usize, size)))
		return -EFAULT;
	if (usize > size && clear_user(to + size, usize - size))
		return -EFAULT;
	return 0;
}

static int tw_check_out_size(u32 usize)
{
	if (usize < TW_MIN_OUT_SIZE)
		return -EINVAL;
	return usize > PAGE_SIZE ? -E2BIG : 0;
}

static bool tw_time_valid(u64 ns)
{
	return ns <= S64_MAX;
}

static int tw_ioctl_info(struct tw_engine *e, void __user *arg)
{
	struct twheel_info info = {
		.features = TWHEEL_FEAT_SUBMIT | TWHEEL_FEAT_DRAIN | TWHEEL_FEAT_LIST |
			    TWHEEL_FEAT_STATS | TWHEEL_FEAT_SLACK |
			    TWHEEL_FEAT_BURST | TWHEEL_FEAT_SKIP |
			    TWHEEL_FEAT_CLOCK_SET | TWHEEL_FEAT_MODERATION |
			    TWHEEL_FEAT_COMMAND,
		.capacity_max = tw_capacity_max,
		.tick_ns_min = BIT_ULL(TW_TICK_SHIFT_MIN),
		.tick_ns_max = BIT_ULL(TW_TICK_SHIFT_MAX),
		.op_size = sizeof(struct twheel_op),
		.event_size = sizeof(struct twheel_event),
		.setup_size = sizeof(struct twheel_setup),
		.stats_size = sizeof(struct twheel_stats),
	};
	u32 size;
	int ret;

	if (get_user(size, (u32 __user *)arg))
		return -EFAULT;
	ret = tw_check_out_size(size);
	if (ret)
		return ret;
	tw_engine_info(e, &info);
	info.size = min_t(u32, size, sizeof(info));
	return tw_put_sized(arg, size, &info, sizeof(info));
}

static int tw_check_setup(struct twheel_setup *setup)
{
	if (setup->flags & ~TWHEEL_SETUP_CLOCK_SET || setup->pad)
		return -EINVAL;
	if (!tw_engine_clock_known(setup->clockid))
		return -EINVAL;
	if (!tw_time_valid(setup->tick_ns) || !tw_time_valid(setup->wake_delay_ns))
		return -EINVAL;
	/* With a batch alone the last records before it is full would wait for ever. */
	if (setup->wake_batch > 1 && !setup->wake_delay_ns)
		return -EINVAL;
	if (setup->flags & TWHEEL_SETUP_CLOCK_SET &&
	    setup->clockid != CLOCK_REALTIME)
		return -EINVAL;
	if (setup->capacity > tw_capacity_max)
		return -EPERM;
	return 0;
}

static int tw_ioctl_setup(struct tw_engine *e, void __user *arg)
{
	struct twheel_setup setup;
	int ret;

	ret = tw_get_sized(&setup, sizeof(setup), arg);
	if (ret)
		return ret;
	ret = tw_check_setup(&setup);
	if (ret)
		return ret;
	if (tw_engine_is_fixed(e))
		return -EBUSY;
	setup.tick_ns = tw_engine_grant_tick_ns(setup.tick_ns);
	if (!setup.capacity)
		setup.capacity = tw_capacity;
	/* Before the set-up takes effect, as a fault may not change anything. */
	if (copy_to_user(arg, &setup, sizeof(setup)))
		return -EFAULT;
	return tw_engine_setup(e, &setup);
}

/* Checks what ARM and MODIFY want to be armed. */
static int tw_check_arm(const struct twheel_op *op)
{
	if (!tw_time_valid(op->expires_ns) && op->expires_ns != TWHEEL_NEVER)
		return -EINVAL;
	if (!tw_time_valid(op->interval_ns) || !tw_time_valid(op->slack_ns))
		return -EINVAL;
	if (op->count && !op->interval_ns)
		return -EINVAL;
	if (op->misfire > TWHEEL_MISFIRE_SKIP)
		return -EINVAL;
	return 0;
}

static int tw_check_op(const struct twheel_op *op)
{
	bool arms = op->opcode == TWHEEL_OP_ARM || op->opcode == TWHEEL_OP_MODIFY;

	if (op->opcode > TWHEEL_OP_QUERY)
		return -EINVAL;
	if (op->flags & ~TW_OP_FLAGS)
		return -EINVAL;
	if (op->pad[0] || op->pad[1] || op->pad[2] || op->resv)
		return -EINVAL;
	return arms ? tw_check_arm(op) : 0;
}

/* ARM, CANCEL, MODIFY or QUERY alone. */
static int tw_ioctl_op(struct tw_engine *e, void __user *arg, u16 opcode)
{
	struct twheel_op __user *uop = arg;
	struct twheel_op op;
	u16 given;
	int ret;

	if (copy_from_user(&op, uop, sizeof(op)))
		return -EFAULT;
	/*
	 * A timer whose id cannot be told must not be armed, so try beforehand. If the
	 * page goes away in between all the same, the timer goes too.
	 */
	if (opcode == TWHEEL_OP_ARM && put_user(0, &uop->id))
		return -EFAULT;
	given = op.opcode;
	if (given > TWHEEL_OP_QUERY)
		return -EINVAL;
	op.opcode = opcode;
	ret = tw_check_op(&op);
	if (ret)
		return ret;
	op.res = 0;
	tw_engine_submit(e, &op, 1);
	if (op.res < 0)
		return op.res;

	if (opcode == TWHEEL_OP_ARM && put_user(op.id, &uop->id)) {
		op.opcode = TWHEEL_OP_CANCEL;
		tw_engine_submit(e, &op, 1);
		return -EFAULT;
	}
	if (opcode == TWHEEL_OP_QUERY) {
		op.opcode = given;
		if (copy_to_user(uop, &op, sizeof(op)))
			return -EFAULT;
	}
	return op.res;
}

/*
 * How many of the operations can be written back. Writes to each of their pages a byte
 * that was just read from there, so that nothing changes.
 */
static u32 tw_writable(const struct twheel_op *ops, struct twheel_op __user *uops, u32 nr)
{
	const u8 *last = (const u8 *)(ops + nr) - 1;
	u8 __user *to = (u8 __user *)uops;

	/* So they lie in two pages at most. */
	static_assert(TW_SUBMIT_CHUNK * sizeof(*ops) <= PAGE_SIZE);

	if (put_user(*(const u8 *)ops, to))
		return 0;
	if (put_user(*last, (u8 __user *)(uops + nr) - 1))
		return min_t(u32, nr, (PAGE_SIZE - offset_in_page(to)) / sizeof(*ops));
	return nr;
}

/* Does up to @nr operations. How many were tried; -EFAULT if that is none. */
static int tw_submit_chunk(struct tw_engine *e, struct twheel_op *ops,
			   struct twheel_op __user *uops, u32 nr)
{
	u32 i;

	nr -= DIV_ROUND_UP(copy_from_user(ops, uops, nr * sizeof(*ops)), sizeof(*ops));
	/* What cannot be told must not be done. */
	if (nr)
		nr = tw_writable(ops, uops, nr);
	if (!nr)
		return -EFAULT;
	for (i = 0; i < nr; i++)
		ops[i].res = tw_check_op(&ops[i]);
	tw_engine_submit(e, ops, nr);
	for (i = 0; i < nr; i++)
		if (ops[i].opcode == TWHEEL_OP_ARM && ops[i].res < 0)
			ops[i].id = 0;
	if (copy_to_user(uops, ops, nr * sizeof(*ops)))
		return -EFAULT;
	return nr;
}

static int tw_ioctl_submit(struct tw_engine *e, void __user *arg)
{
	struct twheel_op __user *uops;
	struct twheel_submit submit;
	struct twheel_op *ops;
	u32 done = 0;
	int ret;

	ret = tw_get_sized(&submit, sizeof(submit), arg);
	if (ret)
		return ret;
	if (submit.flags || submit.pad || submit.nr > INT_MAX)
		return -EINVAL;
	if (!submit.nr)
		return 0;
	uops = u64_to_user_ptr(submit.ops);
	ops = kmalloc_array(min_t(u32, submit.nr, TW_SUBMIT_CHUNK), sizeof(*ops),
			    GFP_KERNEL);
	if (!ops)
		return -ENOMEM;
	do {
		ret = tw_submit_chunk(e, ops, uops + done,
				      min_t(u32, submit.nr - done, TW_SUBMIT_CHUNK));
		if (ret < 0)
			break;
		done += ret;
		cond_resched();
	} while (done < submit.nr && !signal_pending(current));
	kfree(ops);
	return done ?: ret;
}

/* tw_copy_t: to user memory that is at hand. Runs under a spinlock. */
static u32 tw_copy_records(void *to, const void *records, size_t size, u32 nr)
{
	struct iov_iter *iter = to;
	size_t copied, whole;

	pagefault_disable();
	copied = copy_to_iter(records, nr * size, iter);
	pagefault_enable();
	whole = copied / size * size;
	iov_iter_revert(iter, copied - whole);
	return whole / size;
}

typedef u32 (*tw_take_t)(struct tw_engine *e, u32 max, tw_copy_t copy, void *to,
			 enum tw_rest *rest);

/* Takes records of @size bytes while there are any. How many, or -EFAULT. */
static ssize_t tw_take_records(struct tw_engine *e, tw_take_t take, size_t size,
			       struct iov_iter *to)
{
	unsigned int retries = 0;
	enum tw_rest rest;
	ssize_t done = 0;
	size_t room;
	u32 nr;

	while ((room = iov_iter_count(to) / size)) {
		nr = take(e, min_t(size_t, room, U32_MAX), tw_copy_records, to, &rest);
		done += nr;
		if (nr)
			retries = 0;
		if (rest == TW_REST_FAULT) {
			if (++retries > TW_FAULT_RETRIES ||
			    fault_in_iov_iter_writeable(to, size))
				return done ?: -EFAULT;
		} else if (rest == TW_REST_NONE || signal_pending(current)) {
			break;
		}
		cond_resched();
	}
	return done;
}

static int tw_ioctl_drain(struct tw_engine *e, void __user *arg)
{
	struct twheel_drain drain;
	struct iov_iter to;
	int ret;

	ret = tw_get_sized(&drain, sizeof(drain), arg);
	if (ret)
		return ret;
	if (drain.flags || drain.pad || drain.nr > INT_MAX)
		return -EINVAL;
	iov_iter_ubuf(&to, READ, u64_to_user_ptr(drain.ops),
		      (size_t)drain.nr * sizeof(struct twheel_op));
	return tw_take_records(e, tw_engine_drain, sizeof(struct twheel_op), &to);
}

static int tw_ioctl_list(struct tw_engine *e, void __user *arg)
{
	struct twheel_list __user *ulist = arg;
	struct twheel_op __user *uops;
	struct twheel_list list;
	struct twheel_op *ops;
	u32 cursor, next, nr, done = 0;
	int ret;

	ret = tw_get_sized(&list, sizeof(list), arg);
	if (ret)
		return ret;
	if (list.flags || list.pad || list.nr > INT_MAX || list.cursor > U32_MAX)
		return -EINVAL;
	uops = u64_to_user_ptr(list.ops);
	cursor = list.cursor;
	ops = kmalloc_array(TW_SUBMIT_CHUNK, sizeof(*ops), GFP_KERNEL);
	if (!ops)
		return -ENOMEM;
	while (done < list.nr) {
		next = cursor;
		nr = tw_engine_list(e, &next, ops,
				    min_t(u32, list.nr - done, TW_SUBMIT_CHUNK));
		if (copy_to_user(uops + done, ops, nr * sizeof(*ops))) {
			ret = -EFAULT;
			break;
		}
		done += nr;
		cursor = next;
		if (!cursor || signal_pending(current))
			break;
		cond_resched();
	}
	kfree(ops);
	if (put_user(cursor, &ulist->cursor))
		return -EFAULT;
	return done ?: ret;
}

static int tw_ioctl_stats(struct tw_engine *e, void __user *arg)
{
	struct {
		u32 size;
		u32 flags;
	} head;
	struct twheel_stats stats;
	u64 wake_ns;
	int ret;

	if (copy_from_user(&head, arg, sizeof(head)))
		return -EFAULT;
	ret = tw_check_out_size(head.size);
	if (ret)
		return ret;
	if (head.flags)
		return -EINVAL;
	tw_engine_stats(e, &stats, &wake_ns);
	stats.size = min_t(u32, head.size, sizeof(stats));
	return tw_put_sized(arg, head.size, &stats, sizeof(stats));
}

static int tw_ioctl_next(struct tw_engine *e, void __user *arg)
{
	struct twheel_next __user *unext = arg;
	struct twheel_next next;
	int ret;

	ret = tw_get_sized(&next, sizeof(next), arg);
	if (ret)
		return ret;
	if (next.flags)
		return -EINVAL;
	ret = tw_engine_next(e, &next.expires_ns);
	if (ret)
		return ret;
	return put_user(next.expires_ns, &unext->expires_ns);
}

static int tw_ioctl_advance(struct tw_engine *e, void __user *arg)
{
	struct twheel_advance advance;
	int ret;

	ret = tw_get_sized(&advance, sizeof(advance), arg);
	if (ret)
		return ret;
	if (advance.flags || !tw_time_valid(advance.to_ns))
		return -EINVAL;
	return tw_engine_advance(e, advance.to_ns);
}

/* Who only reads may look, wait and read, and no more. */
static bool tw_cmd_only_looks(unsigned int cmd)
{
	switch (cmd) {
	case TWHEEL_IOC_SETUP:
	case TWHEEL_IOC_ARM:
	case TWHEEL_IOC_CANCEL:
	case TWHEEL_IOC_MODIFY:
	case TWHEEL_IOC_SUBMIT:
	case TWHEEL_IOC_DRAIN:
	case TWHEEL_IOC_ADVANCE:
		return false;
	default:
		return true;
	}
}

static long tw_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct tw_engine *e = file->private_data;
	void __user *uarg = (void __user *)arg;

	if (!(file->f_mode & FMODE_WRITE || tw_cmd_only_looks(cmd)))
		return -EBADF;
	switch (cmd) {
	case TWHEEL_IOC_INFO:
		return tw_ioctl_info(e, uarg);
	case TWHEEL_IOC_SETUP:
		return tw_ioctl_setup(e, uarg);
	case TWHEEL_IOC_ARM:
		return tw_ioctl_op(e, uarg, TWHEEL_OP_ARM);
	case TWHEEL_IOC_CANCEL:
		return tw_ioctl_op(e, uarg, TWHEEL_OP_CANCEL);
	case TWHEEL_IOC_MODIFY:
		return tw_ioctl_op(e, uarg, TWHEEL_OP_MODIFY);
	case TWHEEL_IOC_QUERY:
		return tw_ioctl_op(e, uarg, TWHEEL_OP_QUERY);
	case TWHEEL_IOC_SUBMIT:
		return tw_ioctl_submit(e, uarg);
	case TWHEEL_IOC_DRAIN:
		return tw_ioctl_drain(e, uarg);
	case TWHEEL_IOC_LIST:
		return tw_ioctl_list(e, uarg);
	case TWHEEL_IOC_STATS:
		return tw_ioctl_stats(e, uarg);
	case TWHEEL_IOC_NEXT:
		return tw_ioctl_next(e, uarg);
	case TWHEEL_IOC_ADVANCE:
		return tw_ioctl_advance(e, uarg);
	default:
		return -ENOTTY;
	}
}

static int tw_do_uring_cmd(struct io_uring_cmd *cmd)
{
	const struct twheel_command *shared = tw_uring_payload(cmd, struct twheel_command);
	struct twheel_command command = {
		.arg = READ_ONCE(shared->arg),
		.resv = READ_ONCE(shared->resv),
	};

	if (cmd->cmd_op != TWHEEL_IOC_SUBMIT)
		return -ENOTTY;
	if (!(cmd->file->f_mode & FMODE_WRITE))
		return -EBADF;
	if (command.resv || cmd->flags & IORING_URING_CMD_MASK)
		return -EINVAL;
	return tw_ioctl_submit(cmd->file->private_data, u64_to_user_ptr(command.arg));
}

/*
 * Is answered at once, whether or not it may sleep: it does so for memory alone, as does
 * the io_uring itself when it takes an entry in.
 */
static int tw_uring_cmd(struct io_uring_cmd *cmd, unsigned int issue_flags)
{
	return tw_uring_answer(cmd, tw_do_uring_cmd(cmd), issue_flags);
}

static ssize_t tw_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct file *file = iocb->ki_filp;
	struct tw_engine *e = file->private_data;
	bool block = !(file->f_flags & O_NONBLOCK || iocb->ki_flags & IOCB_NOWAIT);
	ssize_t ret = 0;

	if (iov_iter_count(to) < sizeof(struct twheel_event))
		return -EINVAL;
	do {
		if (block)
			ret = wait_event_interruptible(e->wait, tw_engine_readable(e));
		if (ret)
			return ret;
		/* Another reader may be faster. */
		ret = tw_take_records(e, tw_engine_read,
				      sizeof(struct twheel_event), to);
		if (ret < 0)
			return ret;
		if (ret)
			return ret * sizeof(struct twheel_event);
	} while (block);
	return -EAGAIN;
}

static __poll_t tw_poll(struct file *file, poll_table *wait)
{
	struct tw_engine *e = file->private_data;

	poll_wait(file, &e->wait, wait);
	/* Queued before it looks: older kernels leave that to us. Pairs with tw_unlock_wake(). */
	smp_mb();
	return tw_engine_readable(e) ? EPOLLIN | EPOLLRDNORM : 0;
}

static void tw_show_fdinfo(struct seq_file *m, struct file *file)
{
	struct tw_engine *e = file->private_data;
	struct twheel_info info = {};
	struct twheel_stats stats;
	u64 wake_ns;
	int i;

	tw_engine_info(e, &info);
	tw_engine_stats(e, &stats, &wake_ns);
	seq_printf(m, "clockid:\t%u\n", info.clockid);
	seq_printf(m, "now_ns:\t%llu\n", info.now_ns);
	seq_printf(m, "tick_ns:\t%llu\n", info.tick_ns);
	seq_printf(m, "capacity:\t%u\n", info.capacity);
	seq_printf(m, "armed:\t%u\n", info.armed);
	seq_printf(m, "ready:\t%u\n", info.ready);
	seq_printf(m, "memory:\t%zu\n", tw_engine_memory(e));
	if (wake_ns == TWHEEL_NEVER)
		seq_puts(m, "next_wake_ns:\tnever\n");
	else
		seq_printf(m, "next_wake_ns:\t%llu\n", wake_ns);
	seq_printf(m, "arms:\t%llu\n", stats.armed);
	seq_printf(m, "fired:\t%llu\n", stats.fired);
	seq_printf(m, "cancelled:\t%llu\n", stats.cancelled);
	seq_printf(m, "modified:\t%llu\n", stats.modified);
	seq_printf(m, "cascaded:\t%llu\n", stats.cascaded);
	seq_printf(m, "wakeups:\t%llu\n", stats.wakeups);
	seq_printf(m, "hrtimer_starts:\t%llu\n", stats.hrtimer_starts);
	seq_printf(m, "continued:\t%llu\n", stats.continued);
	seq_printf(m, "ready_max:\t%llu\n", stats.ready_max);
	for (i = 0; i < TWHEEL_LATENESS_BUCKETS; i++)
		if (stats.lateness[i])
			seq_printf(m, "late_below_%lluns:\t%llu\n", BIT_ULL(i),
				   stats.lateness[i]);
}

static int tw_open(struct inode *inode, struct file *file)
{
	struct tw_engine *e = tw_engine_create(tw_capacity);

	if (IS_ERR(e))
		return PTR_ERR(e);
	file->private_data = e;
	file->f_mode |= FMODE_NOWAIT;
	return stream_open(inode, file);
}

static int tw_release(struct inode *inode, struct file *file)
{
	tw_engine_destroy(file->private_data);
	return 0;
}

static const struct file_operations tw_fops = {
	.owner		= THIS_MODULE,
	.open		= tw_open,
	.release	= tw_release,
	.read_iter	= tw_read_iter,
	.poll		= tw_poll,
	.unlocked_ioctl	= tw_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.uring_cmd	= tw_uring_cmd,
	.show_fdinfo	= tw_show_fdinfo,
};

/* Not a misc device: those hold a lock of all of them while tw_open() allocates. */
static struct class *tw_class;
static int tw_major;

/* Open to everybody, as timerfd is: what it uses is charged to the caller. */
static char *tw_devnode(tw_devnode_const struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = 0666;
	return NULL;
}

/**
 * tw_dev_register() - make /dev/twheel
 *
 * Return: 0 or a negative errno.
 */
int tw_dev_register(void)
{
	struct device *dev;
	int ret;

	ret = __register_chrdev(0, 0, 1, TW_DEV_NAME, &tw_fops);
	if (ret < 0)
		return ret;
	tw_major = ret;
	tw_class = class_create(TW_DEV_NAME);
	if (IS_ERR(tw_class)) {
		ret = PTR_ERR(tw_class);
		goto err_class;
	}
	tw_class->devnode = tw_devnode;
	dev = device_create(tw_class, NULL, MKDEV(tw_major, 0), NULL, TW_DEV_NAME);
	if (IS_ERR(dev)) {
		ret = PTR_ERR(dev);
		goto err_device;
	}
	return 0;

err_device:
	class_destroy(tw_class);
err_class:
	__unregister_chrdev(tw_major, 0, 1, TW_DEV_NAME);
	return ret;
}

/**
 * tw_dev_unregister() - take /dev/twheel away
 */
void tw_dev_unregister(void)
{
	device_destroy(tw_class, MKDEV(tw_major, 0));
	class_destroy(tw_class);
	__unregister_chrdev(tw_major, 0, 1, TW_DEV_NAME);
}
