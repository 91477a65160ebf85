// SPDX-License-Identifier: GPL-2.0
/*
 * The device: file operations and ioctls. Alone touches user memory and alone
 * knows what may stand in an argument; hands checked values to the engine.
 */
#include <linux/compat.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pagemap.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "abi_layout.h"
#include "dev.h"
#include "engine.h"

/* A struct that is only written may be taken in part, but for its first fields. */
#define TW_MIN_OUT_SIZE		8

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

static bool tw_time_valid(u64 ns)
{
	return ns <= S64_MAX;
}

static int tw_ioctl_info(struct tw_engine *e, void __user *arg)
{
	struct twheel_info info = {
		.size = sizeof(info),
		.features = TWHEEL_FEAT_SLACK,
		.capacity_max = tw_capacity_max,
		.tick_ns_min = BIT_ULL(TW_TICK_SHIFT_MIN),
		.tick_ns_max = BIT_ULL(TW_TICK_SHIFT_MAX),
		.op_size = sizeof(struct twheel_op),
		.event_size = sizeof(struct twheel_event),
		.setup_size = sizeof(struct twheel_setup),
		.stats_size = sizeof(struct twheel_stats),
	};
	u32 size;

	if (get_user(size, (u32 __user *)arg))
		return -EFAULT;
	if (size < TW_MIN_OUT_SIZE)
		return -EINVAL;
	tw_engine_info(e, &info);
	if (copy_to_user(arg, &info, min_t(u32, size, sizeof(info))))
		return -EFAULT;
	return 0;
}

static int tw_check_setup(struct twheel_setup *setup)
{
	if (setup->flags & ~TWHEEL_SETUP_CLOCK_SET || setup->pad)
		return -EINVAL;
	if (!tw_engine_clock_known(setup->clockid))
		return -EINVAL;
	if (!tw_time_valid(setup->tick_ns) || !tw_time_valid(setup->wake_delay_ns))
		return -EINVAL;
	if (setup->flags & TWHEEL_SETUP_CLOCK_SET &&
	    setup->clockid != CLOCK_REALTIME)
		return -EINVAL;
	if (setup->flags || setup->wake_delay_ns || setup->wake_batch > 1)
		return -EOPNOTSUPP;
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

/* Checks what all operations have in common. */
static int tw_check_op(const struct twheel_op *op, u16 opcode, u16 flags)
{
	if (op->opcode != TWHEEL_OP_NOP && op->opcode != opcode)
		return -EINVAL;
	if (op->flags & ~flags)
		return -EINVAL;
	if (op->pad[0] || op->pad[1] || op->pad[2] || op->resv)
		return -EINVAL;
	return 0;
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
	if (op->misfire != TWHEEL_MISFIRE_COUNT)
		return -EOPNOTSUPP;
	return 0;
}

static int tw_ioctl_arm(struct tw_engine *e, void __user *arg)
{
	struct twheel_op __user *uop = arg;
	struct twheel_op op;
	int ret;
	u64 id;

	/*
	 * A timer whose id cannot be told must not be armed, so try beforehand. If the
	 * page goes away in between all the same, the timer goes too.
	 */
	if (copy_from_user(&op, uop, sizeof(op)) || put_user(0, &uop->id))
		return -EFAULT;
	ret = tw_check_op(&op, TWHEEL_OP_ARM, TWHEEL_F_REL);
	if (!ret)
		ret = tw_check_arm(&op);
	if (ret)
		return ret;
	ret = tw_engine_arm(e, &op, &id);
	if (ret)
		return ret;
	if (put_user(id, &uop->id)) {
		tw_engine_cancel(e, id);
		return -EFAULT;
	}
	return 0;
}

static int tw_ioctl_cancel(struct tw_engine *e, void __user *arg)
{
	struct twheel_op op;
	int ret;

	if (copy_from_user(&op, arg, sizeof(op)))
		return -EFAULT;
	ret = tw_check_op(&op, TWHEEL_OP_CANCEL, 0);
	if (ret)
		return ret;
	return tw_engine_cancel(e, op.id);
}

static int tw_ioctl_modify(struct tw_engine *e, void __user *arg)
{
	struct twheel_op op;
	int ret;

	if (copy_from_user(&op, arg, sizeof(op)))
		return -EFAULT;
	ret = tw_check_op(&op, TWHEEL_OP_MODIFY, TWHEEL_F_REL);
	if (!ret)
		ret = tw_check_arm(&op);
	if (ret)
		return ret;
	return tw_engine_modify(e, &op);
}

static int tw_ioctl_query(struct tw_engine *e, void __user *arg)
{
	struct twheel_op op;
	int ret;

	if (copy_from_user(&op, arg, sizeof(op)))
		return -EFAULT;
	ret = tw_check_op(&op, TWHEEL_OP_QUERY, 0);
	if (!ret)
		ret = tw_engine_query(e, &op);
	if (ret)
		return ret;
	if (copy_to_user(arg, &op, sizeof(op)))
		return -EFAULT;
	return 0;
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

static long tw_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct tw_engine *e = file->private_data;
	void __user *uarg = (void __user *)arg;

	switch (cmd) {
	case TWHEEL_IOC_INFO:
		return tw_ioctl_info(e, uarg);
	case TWHEEL_IOC_SETUP:
		return tw_ioctl_setup(e, uarg);
	case TWHEEL_IOC_ARM:
		return tw_ioctl_arm(e, uarg);
	case TWHEEL_IOC_CANCEL:
		return tw_ioctl_cancel(e, uarg);
	case TWHEEL_IOC_MODIFY:
		return tw_ioctl_modify(e, uarg);
	case TWHEEL_IOC_QUERY:
		return tw_ioctl_query(e, uarg);
	case TWHEEL_IOC_NEXT:
		return tw_ioctl_next(e, uarg);
	case TWHEEL_IOC_ADVANCE:
		return tw_ioctl_advance(e, uarg);
	default:
		return -ENOTTY;
	}
}

/* tw_copy_t: to user memory that is at hand. Runs under a spinlock. */
static u32 tw_copy_events(void *to, const struct twheel_event *events, u32 nr)
{
	struct iov_iter *iter = to;
	size_t copied, whole;

	pagefault_disable();
	copied = copy_to_iter(events, nr * sizeof(*events), iter);
	pagefault_enable();
	whole = copied / sizeof(*events) * sizeof(*events);
	iov_iter_revert(iter, copied - whole);
	return whole / sizeof(*events);
}

/* Reads what is ready. -EAGAIN if that is nothing. */
static ssize_t tw_read_ready(struct tw_engine *e, struct iov_iter *to)
{
	unsigned int retries = 0;
	ssize_t done = 0;
	size_t room;
	bool fault;
	u32 nr;

	while ((room = iov_iter_count(to) / sizeof(struct twheel_event))) {
		nr = tw_engine_read(e, min_t(size_t, room, U32_MAX),
				    tw_copy_events, to, &fault);
		done += nr * sizeof(struct twheel_event);
		if (fault) {
			retries = nr ? 0 : retries + 1;
			if (retries > TW_FAULT_RETRIES ||
			    fault_in_iov_iter_writeable(to, sizeof(struct twheel_event)))
				return done ?: -EFAULT;
		} else if (nr < TW_READ_BATCH || signal_pending(current)) {
			break;
		}
		cond_resched();
	}
	return done ?: -EAGAIN;
}

static ssize_t tw_read_iter(struct kiocb *iocb, struct iov_iter *to)
{
	struct file *file = iocb->ki_filp;
	struct tw_engine *e = file->private_data;
	ssize_t ret;

	if (iov_iter_count(to) < sizeof(struct twheel_event))
		return -EINVAL;
	for (;;) {
		ret = tw_read_ready(e, to);
		if (ret != -EAGAIN)
			return ret;
		if (file->f_flags & O_NONBLOCK || iocb->ki_flags & IOCB_NOWAIT)
			return -EAGAIN;
		ret = wait_event_interruptible(e->wait, READ_ONCE(e->nr_ready));
		if (ret)
			return ret;
	}
}

static __poll_t tw_poll(struct file *file, poll_table *wait)
{
	struct tw_engine *e = file->private_data;

	poll_wait(file, &e->wait, wait);
	return READ_ONCE(e->nr_ready) ? EPOLLIN | EPOLLRDNORM : 0;
}

static void tw_show_fdinfo(struct seq_file *m, struct file *file)
{
	struct tw_engine *e = file->private_data;
	struct twheel_info info = {};
	struct tw_stats stats;
	u64 wake_ns;

	tw_engine_info(e, &info);
	tw_engine_stats(e, &stats, &wake_ns);
	seq_printf(m, "clockid:\t%u\n", info.clockid);
	seq_printf(m, "now_ns:\t%llu\n", info.now_ns);
	seq_printf(m, "tick_ns:\t%llu\n", info.tick_ns);
	seq_printf(m, "capacity:\t%u\n", info.capacity);
	seq_printf(m, "armed:\t%u\n", info.armed);
	seq_printf(m, "ready:\t%u\n", info.ready);
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
}

static int tw_open(struct inode *inode, struct file *file)
{
	struct tw_engine *e = tw_engine_create(tw_capacity);

	if (!e)
		return -ENOMEM;
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
	.show_fdinfo	= tw_show_fdinfo,
};

static struct miscdevice tw_misc = {
	.name	= "twheel",
	.fops	= &tw_fops,
	.mode	= 0666,
};

/**
 * tw_dev_register() - make /dev/twheel
 *
 * Open to everybody, as timerfd is: what it uses is charged to the caller.
 *
 * Return: 0 or a negative errno.
 */
int tw_dev_register(void)
{
	/* Anew each time: deregistering leaves the number that was given. */
	tw_misc.minor = MISC_DYNAMIC_MINOR;
	return misc_register(&tw_misc);
}

/**
 * tw_dev_unregister() - take /dev/twheel away
 */
void tw_dev_unregister(void)
{
	misc_deregister(&tw_misc);
}
