/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/**
 * DOC: <linux/twheel.h> - userspace ABI for the twheel timer character device
 *
 * One open of /dev/twheel is one timing wheel. Timers are armed and cancelled
 * with the ioctls below; poll(2) tells when records of expiry are ready and
 * read(2) returns them as an array of struct twheel_event.
 *
 * Rules that hold for every call:
 *
 * - Every time is a __u64 of nanoseconds on the clock of the wheel. MONOTONIC and
 *   BOOTTIME times are those of the time namespace of the process that opened the
 *   file, for whoever else uses it, too.
 * - Structs have the same layout for 32-bit and 64-bit callers and no implicit
 *   padding. Named padding and reserved fields must be zero.
 * - Structs that may grow begin with their size, so that a program and a kernel of
 *   different age understand each other: a caller built against an older header
 *   passes a smaller size, a caller built against a newer one a larger size, up to
 *   a page. There are two kinds of them:
 *
 *   A struct that is read (SETUP, SUBMIT, NEXT, DRAIN, LIST, ADVANCE) must be zero
 *   in the bytes that the kernel does not know, or E2BIG says that something was
 *   asked for which it cannot do. Bytes that the caller does not know count as
 *   zero and are not written.
 *
 *   A struct that is only written (INFO, STATS) may hold anything in the bytes
 *   that the kernel does not know: it fills them with zeroes. Its size comes back
 *   as the number of bytes that have been told, never more than was passed, so
 *   that the struct can be passed again.
 * - A descriptor that is open for reading only reads, polls and asks: INFO, QUERY,
 *   LIST, NEXT and STATS. SETUP, ARM, CANCEL, MODIFY, SUBMIT, DRAIN and ADVANCE want
 *   one that is open for writing, and are EBADF otherwise, before anything else is
 *   looked at. Reading and polling are as with any file: one that is open for writing
 *   only cannot be read.
 * - A call that fails changes nothing, unless its description says otherwise.
 *
 * Each errno has one meaning, the same for all calls:
 *
 *   ===========  ===========================================================
 *   ENOTTY       no such ioctl
 *   EBADF        the descriptor is not open for what was asked of it
 *   E2BIG        non-zero bytes beyond the struct that this kernel knows, or a size
 *                of more than a page
 *   EINVAL       understood and wrong: an unknown flag, non-zero padding, a
 *                size too small, a time above S64_MAX other than
 *                TWHEEL_NEVER, an unknown clock, a manual clock moved backward
 *                or a clock moved that is not manual, a read buffer too small
 *                for one record
 *   EOPNOTSUPP   a known field holds a value that this build does not do
 *   EFAULT       memory of the caller that cannot be read or written
 *   ENOENT       the id names no timer: never did, or no longer does
 *   ENOSPC       the capacity of the wheel is in use
 *   ENOMEM       no memory
 *   EBUSY        set-up after set-up or after the first arm
 *   EPERM        beyond a limit that the administrator has set: capacity_max for
 *                a file, or user_memory_max for what all files of a user hold in
 *                memory, which open(2) and arming want more of
 *   EAGAIN       nothing to read, and the caller asked not to block
 *   EINTR        a signal came first
 *   ===========  ===========================================================
 */
#ifndef _UAPI_LINUX_TWHEEL_H
#define _UAPI_LINUX_TWHEEL_H

#include <linux/ioctl.h>
#include <linux/types.h>

/**
 * TWHEEL_NEVER - as a time: no expiry. A timer armed for it is parked.
 */
#define TWHEEL_NEVER		(~(__u64)0)

/**
 * TWHEEL_CLOCK_MANUAL - clock id of a clock that only TWHEEL_IOC_ADVANCE moves
 *
 * It starts at 0. For simulations and exact tests; every other rule is the same
 * as on the clocks of the kernel: CLOCK_REALTIME (0), CLOCK_MONOTONIC (1),
 * CLOCK_BOOTTIME (7) and CLOCK_TAI (11).
 */
#define TWHEEL_CLOCK_MANUAL	64

/**
 * enum twheel_feature - bits of &twheel_info.features
 * @TWHEEL_FEAT_SUBMIT:     TWHEEL_IOC_SUBMIT
 * @TWHEEL_FEAT_DRAIN:      TWHEEL_IOC_DRAIN
 * @TWHEEL_FEAT_LIST:       TWHEEL_IOC_LIST
 * @TWHEEL_FEAT_STATS:      TWHEEL_IOC_STATS
 * @TWHEEL_FEAT_SLACK:      &twheel_op.slack_ns shares wake-ups
 * @TWHEEL_FEAT_BURST:      TWHEEL_MISFIRE_BURST
 * @TWHEEL_FEAT_SKIP:       TWHEEL_MISFIRE_SKIP
 * @TWHEEL_FEAT_CLOCK_SET:  TWHEEL_SETUP_CLOCK_SET
 * @TWHEEL_FEAT_MODERATION: &twheel_setup.wake_batch, &twheel_setup.wake_delay_ns
 * @TWHEEL_FEAT_COMMAND:    &struct twheel_command, where the kernel has an io_uring
 */
enum twheel_feature {
	TWHEEL_FEAT_SUBMIT	= 1 << 0,
	TWHEEL_FEAT_DRAIN	= 1 << 1,
	TWHEEL_FEAT_LIST	= 1 << 2,
	TWHEEL_FEAT_STATS	= 1 << 3,
	TWHEEL_FEAT_SLACK	= 1 << 4,
	TWHEEL_FEAT_BURST	= 1 << 5,
	TWHEEL_FEAT_SKIP	= 1 << 6,
	TWHEEL_FEAT_CLOCK_SET	= 1 << 7,
	TWHEEL_FEAT_MODERATION	= 1 << 8,
	TWHEEL_FEAT_COMMAND	= 1 << 9,
};

/**
 * struct twheel_info - TWHEEL_IOC_INFO: what this kernel and this file offer
 * @size:         in: sizeof of the caller's struct, at least 8. out: how many bytes
 *                of it the kernel knows; the others are zero
 * @clockid:      out: clock of this wheel
 * @features:     out: bits of &enum twheel_feature
 * @now_ns:       out: time on the clock of this wheel, as the time namespace of the
 *                opener of the file has it
 * @tick_ns:      out: granularity of this wheel, a power of two, nanoseconds
 * @capacity:     out: how many timers this file may hold at one time
 * @armed:        out: timers armed now
 * @ready:        out: timers whose record waits to be read
 * @capacity_max: out: largest capacity that TWHEEL_IOC_SETUP grants
 * @tick_ns_min:  out: smallest tick that TWHEEL_IOC_SETUP grants
 * @tick_ns_max:  out: largest tick that TWHEEL_IOC_SETUP grants
 * @op_size:      out: sizeof(struct twheel_op)
 * @event_size:   out: sizeof(struct twheel_event)
 * @setup_size:   out: sizeof(struct twheel_setup)
 * @stats_size:   out: sizeof(struct twheel_stats)
 *
 * Works at any time, before set-up too. Errors: EINVAL and E2BIG (@size), EFAULT.
 */
struct twheel_info {
	__u32 size;
	__u32 clockid;
	__aligned_u64 features;
	__aligned_u64 now_ns;
	__aligned_u64 tick_ns;
	__u32 capacity;
	__u32 armed;
	__u32 ready;
	__u32 capacity_max;
	__aligned_u64 tick_ns_min;
	__aligned_u64 tick_ns_max;
	__u32 op_size;
	__u32 event_size;
	__u32 setup_size;
	__u32 stats_size;
};

/**
 * enum twheel_setup_flags - bits of &twheel_setup.flags
 * @TWHEEL_SETUP_CLOCK_SET: deliver a record of kind TWHEEL_EV_CLOCK_SET
 *                          whenever the wall clock is set. CLOCK_REALTIME only
 */
enum twheel_setup_flags {
	TWHEEL_SETUP_CLOCK_SET	= 1 << 0,
};

/**
 * struct twheel_setup - TWHEEL_IOC_SETUP: choose clock, tick and capacity
 * @size:          in: sizeof of the caller's struct, at least 40
 * @flags:         in: bits of &enum twheel_setup_flags
 * @clockid:       in: CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI
 *                 or TWHEEL_CLOCK_MANUAL. Beware that 0 is CLOCK_REALTIME
 * @capacity:      in: how many timers, 0 for the default. out: granted
 * @tick_ns:       in: granularity wished for, 0 for the default. out: granted, the
 *                 largest power of two that is not above the wish; but for a wish
 *                 below tick_ns_min of TWHEEL_IOC_INFO that, and for one above
 *                 tick_ns_max that
 * @wake_delay_ns: in: a reader is woken at the latest this long after the first
 *                 record became ready, whatever the tick. It is a duration, of
 *                 CLOCK_MONOTONIC: a set of the wall clock does not move it. On a
 *                 manual clock it is that clock's time, to the ns. A very short one
 *                 may count as none. 0: at once
 * @wake_batch:    in: a reader is woken once this many records are ready.
 *                 0 or 1: at the first. More than that wants a @wake_delay_ns, or a
 *                 batch that does not fill would never be told of: EINVAL
 * @pad:           must be 0
 *
 * Optional: a wheel that is armed without it has CLOCK_MONOTONIC, a tick of
 * 2^20 ns (1.05 ms) and the default capacity of the module. Once, and before
 * the first arm. Errors: EINVAL, E2BIG, EFAULT, EBUSY, EOPNOTSUPP, EPERM
 * (@capacity above &twheel_info.capacity_max).
 */
struct twheel_setup {
	__u32 size;
	__u32 flags;
	__u32 clockid;
	__u32 capacity;
	__aligned_u64 tick_ns;
	__aligned_u64 wake_delay_ns;
	__u32 wake_batch;
	__u32 pad;
};

/**
 * enum twheel_opcode - &twheel_op.opcode
 * @TWHEEL_OP_NOP:    nothing. In a single call, as each of these: what the ioctl
 *                    number says
 * @TWHEEL_OP_ARM:    as TWHEEL_IOC_ARM
 * @TWHEEL_OP_CANCEL: as TWHEEL_IOC_CANCEL
 * @TWHEEL_OP_MODIFY: as TWHEEL_IOC_MODIFY
 * @TWHEEL_OP_QUERY:  as TWHEEL_IOC_QUERY
 */
enum twheel_opcode {
	TWHEEL_OP_NOP		= 0,
	TWHEEL_OP_ARM		= 1,
	TWHEEL_OP_CANCEL	= 2,
	TWHEEL_OP_MODIFY	= 3,
	TWHEEL_OP_QUERY		= 4,
};

/**
 * enum twheel_op_flags - bits of &twheel_op.flags
 * @TWHEEL_F_REL:   in, ARM and MODIFY: @expires_ns counts from now. Means nothing to
 *                  the others
 * @TWHEEL_F_ARMED: out, QUERY and LIST: the timer is in the wheel. Not looked at on
 *                  input
 * @TWHEEL_F_READY: out, QUERY: the timer has expired and its record waits. Not looked
 *                  at on input
 *
 * So a struct that one call has filled in can be handed to any other. Every other bit
 * is EINVAL.
 */
enum twheel_op_flags {
	TWHEEL_F_REL		= 1 << 0,
	TWHEEL_F_ARMED		= 1 << 8,
	TWHEEL_F_READY		= 1 << 9,
};

/**
 * enum twheel_misfire - what becomes of periods that pass before a read
 * @TWHEEL_MISFIRE_COUNT: one record, the others are counted in &twheel_event.overrun
 * @TWHEEL_MISFIRE_BURST: one record for each, with an overrun of 0
 * @TWHEEL_MISFIRE_SKIP:  no record for the missed ones, and an overrun of 0
 *
 * By each of them the timer keeps its phase, and periods that were missed use up
 * &twheel_op.count, whether they are told of or not.
 */
enum twheel_misfire {
	TWHEEL_MISFIRE_COUNT	= 0,
	TWHEEL_MISFIRE_BURST	= 1,
	TWHEEL_MISFIRE_SKIP	= 2,
};

/**
 * struct twheel_op - one operation on one timer (64 bytes, does not grow)
 * @opcode:      in: in an array the operation. A single call does what the ioctl
 *               number says, whichever of &enum twheel_opcode stands here
 * @flags:       in: TWHEEL_F_REL. out (QUERY): the state of the timer and nothing else
 * @res:         out, in an array only: what the single call would have returned,
 *               an error as a negative errno. Ignored on input
 * @id:          in (all but ARM): the handle. out (ARM): the handle, never 0; or 0
 *               after an error
 * @user_data:   in (ARM): comes back in every record. out (QUERY). Not read by
 *               the others
 * @expires_ns:  in (ARM, MODIFY): first expiry, absolute or with TWHEEL_F_REL from
 *               now; at most S64_MAX, or TWHEEL_NEVER for a parked timer. A sum
 *               with now beyond S64_MAX is S64_MAX; a period that ends beyond it
 *               parks the timer, as does an expiry after the last tick that
 *               begins before it. out (QUERY): the next expiry, or for a ready
 *               timer the one its record tells
 * @interval_ns: in (ARM, MODIFY): period, at most S64_MAX: the timer expires at
 *               @expires_ns plus k times this, k = 0, 1, 2 and so on, however late
 *               it is noticed or read. 0: expires once. out (QUERY)
 * @slack_ns:    in (ARM, MODIFY): may expire that much later, at most S64_MAX.
 *               out (QUERY)
 * @count:       in (ARM, MODIFY): how many expiries a periodic timer has in all,
 *               those that are missed included. 0: until cancelled. Must be 0
 *               without @interval_ns. out (QUERY): expiries left, 0 for no end
 * @misfire:     in (ARM, MODIFY): &enum twheel_misfire. out (QUERY)
 * @pad:         must be 0
 * @resv:        must be 0
 *
 * Fields that an operation does not name are not looked at, except for @opcode,
 * @flags, @pad and @resv: these must always be 0 or understood.
 *
 * A relative time becomes an absolute one when it is armed. On a clock that can be
 * set, CLOCK_REALTIME or CLOCK_TAI, it moves with the clock from then on: who means
 * a duration takes CLOCK_MONOTONIC or CLOCK_BOOTTIME.
 */
struct twheel_op {
	__u16 opcode;
	__u16 flags;
	__s32 res;
	__aligned_u64 id;
	__aligned_u64 user_data;
	__aligned_u64 expires_ns;
	__aligned_u64 interval_ns;
	__aligned_u64 slack_ns;
	__u32 count;
	__u8 misfire;
	__u8 pad[3];
	__aligned_u64 resv;
};

/**
 * enum twheel_event_flags - bits of &twheel_event.flags
 * @TWHEEL_EV_MORE:      the timer lives on and will expire again (periodic)
 * @TWHEEL_EV_CLOCK_SET: not a timer: the wall clock was set. @id and @user_data
 *                       are 0, @expires_ns is the jump in two's complement,
 *                       @fired_ns when it was noticed, on the clock as it is set
 *
 * The record of a set stands before those of all timers, and readers are told of it at
 * once, whatever &twheel_setup.wake_batch and wake_delay_ns. There is one at most: what
 * is set before it is read is added to it, so it tells the sum of the jumps, which may
 * be 0, and the time of the last.
 */
enum twheel_event_flags {
	TWHEEL_EV_MORE		= 1 << 0,
	TWHEEL_EV_CLOCK_SET	= 1 << 1,
};

/**
 * struct twheel_event - one record of expiry, what read(2) returns (40 bytes)
 * @id:         out: the timer. Stale from now on unless TWHEEL_EV_MORE is set
 * @user_data:  out: as armed
 * @expires_ns: out: when the timer was due, absolute
 * @fired_ns:   out: when the wheel noticed; never before @expires_ns. If the expiry
 *              had passed when it was armed: when that was. So it is with the
 *              periods of TWHEEL_MISFIRE_BURST that were missed: each is armed by the
 *              read(2) that takes the record before it, and has the time of that
 * @overrun:    out, by TWHEEL_MISFIRE_COUNT: further periods that had passed when the
 *              record was read. 2^32 - 1 stands for that and more. 0 by the other
 *              policies, and for what expires once
 * @flags:      out: bits of &enum twheel_event_flags
 *
 * read(2) returns whole records only, as many as are ready and fit, in order of
 * firing. It blocks for the first only. EINVAL: room for less than one. EFAULT:
 * no record was copied, and none is lost. A fault after the first whole record
 * shortens the read instead.
 *
 * A record that has been read cannot be withdrawn any more: CANCEL is ENOENT from then
 * on, or stops only what a periodic timer would still do, while the record may wait in
 * a buffer to be looked at, perhaps that of another thread. So if @user_data is the
 * address of something, that must not be freed before the last record has been looked
 * at, or CANCEL has returned 0 or 1; of a periodic timer not before both: CANCEL, and a
 * look at all records that had been read by then.
 */
struct twheel_event {
	__aligned_u64 id;
	__aligned_u64 user_data;
	__aligned_u64 expires_ns;
	__aligned_u64 fired_ns;
	__u32 overrun;
	__u32 flags;
};

/**
 * struct twheel_submit - TWHEEL_IOC_SUBMIT: many operations in one call
 * @size:  in: sizeof of the caller's struct, at least 24
 * @flags: must be 0
 * @ops:   in: address of an array of struct twheel_op. Those that were tried are
 *         written back, with @res and with what the single call would have written
 * @nr:    in: entries of @ops, at most INT_MAX
 * @pad:   must be 0
 *
 * Returns how many entries were tried, each with its own @res; a bad entry does
 * not stop the rest. What cannot be read and written back is not tried. Errors:
 * EINVAL, E2BIG, ENOMEM; EFAULT if that is so of the first entry; after a fault or a
 * signal later on the count so far is returned, and what was done stays done. Nor does
 * a signal have to be handled for that: work that an io_uring has for the thread is
 * one. So submit what is left, until all of it was tried or a call fails. If
 * another thread takes the memory away during the call, up to 64 entries beyond that
 * count may have been done too.
 */
struct twheel_submit {
	__u32 size;
	__u32 flags;
	__aligned_u64 ops;
	__u32 nr;
	__u32 pad;
};

/**
 * struct twheel_command - SUBMIT by an io_uring: what stands in &io_uring_sqe.cmd
 * @arg:  in: address of a struct twheel_submit
 * @resv: must be 0
 *
 * For an entry of opcode IORING_OP_URING_CMD whose @cmd_op is TWHEEL_IOC_SUBMIT. Its
 * result is that of the ioctl, and it is complete when the entry has been submitted, so
 * that what is in the entry and in the struct need not live longer. EOPNOTSUPP: this
 * kernel or this module has no commands. ENOTTY: no such command.
 */
struct twheel_command {
	__aligned_u64 arg;
	__aligned_u64 resv;
};

/**
 * struct twheel_next - TWHEEL_IOC_NEXT: when the wheel fires next
 * @size:       in: sizeof of the caller's struct, at least 16
 * @flags:      must be 0
 * @expires_ns: out: the exact instant at which the earliest armed timer fires:
 *              its expiry (and what its slack adds) rounded up to the tick.
 *              TWHEEL_NEVER if no timer is armed or all are parked
 *
 * Advancing a manual clock to @expires_ns fires at least one timer. Errors:
 * EINVAL, E2BIG, EFAULT, EINTR.
 */
struct twheel_next {
	__u32 size;
	__u32 flags;
	__aligned_u64 expires_ns;
};

/**
 * struct twheel_drain - TWHEEL_IOC_DRAIN: disarm everything, hand it back
 * @size:  in: sizeof of the caller's struct, at least 24
 * @flags: must be 0
 * @ops:   in: address of an array of struct twheel_op that is filled with the
 *         unfired timers, ready to be submitted to another wheel
 * @nr:    in: entries of @ops, at most INT_MAX
 * @pad:   must be 0
 *
 * Returns how many were handed back; call again until it returns 0. Records that
 * are ready stay readable; a periodic timer is armed again when its record is read.
 * Errors: EINVAL, E2BIG; EFAULT (nothing is lost).
 */
struct twheel_drain {
	__u32 size;
	__u32 flags;
	__aligned_u64 ops;
	__u32 nr;
	__u32 pad;
};

/**
 * struct twheel_list - TWHEEL_IOC_LIST: look at the armed timers
 * @size:   in: sizeof of the caller's struct, at least 32
 * @flags:  must be 0
 * @ops:    in: address of an array of struct twheel_op, filled as by QUERY, ready to
 *          be submitted to another wheel
 * @nr:     in: entries of @ops, at most INT_MAX
 * @pad:    must be 0
 * @cursor: in: 0 to begin, then what came out. out: where to go on; 0 at the end
 *
 * Returns how many were written. Nothing changes. A timer that is armed during
 * the whole walk is seen once. Errors: EINVAL, E2BIG, EFAULT, ENOMEM.
 */
struct twheel_list {
	__u32 size;
	__u32 flags;
	__aligned_u64 ops;
	__u32 nr;
	__u32 pad;
	__aligned_u64 cursor;
};

/**
 * TWHEEL_LATENESS_BUCKETS - entries of &twheel_stats.lateness
 */
#define TWHEEL_LATENESS_BUCKETS	64

/**
 * struct twheel_stats - TWHEEL_IOC_STATS: counters of this wheel since open
 * @size:           in: sizeof of the caller's struct, at least 8. out: how many
 *                  bytes of it the kernel knows; the others are zero
 * @flags:          must be 0
 * @armed:          out: timers armed
 * @fired:          out: records that were put into the queue
 * @cancelled:      out: timers cancelled while armed or ready, or drained
 * @modified:       out: timers re-armed in place
 * @cascaded:       out: moves of a timer from a coarse slot to a finer one
 * @wakeups:        out: times the wheel was woken by its clock
 * @hrtimer_starts: out: times a wake-up was programmed
 * @continued:      out: passes that used up their budget
 * @ready_max:      out: largest number of records that waited
 * @resv:           out: 0
 * @lateness:       out: expiries that the wheel noticed with a lateness l in ns,
 *                  where 2^(i-1) <= l < 2^i; [0]: none at all; slack counts as on
 *                  time. What had passed when it was armed, by ARM, by MODIFY or, as
 *                  a further period, by read(2), is counted in @fired alone: it is
 *                  not the wheel that was late
 *
 * Errors: EINVAL, E2BIG (@size), EFAULT.
 */
struct twheel_stats {
	__u32 size;
	__u32 flags;
	__aligned_u64 armed;
	__aligned_u64 fired;
	__aligned_u64 cancelled;
	__aligned_u64 modified;
	__aligned_u64 cascaded;
	__aligned_u64 wakeups;
	__aligned_u64 hrtimer_starts;
	__aligned_u64 continued;
	__aligned_u64 ready_max;
	__aligned_u64 resv[2];
	__aligned_u64 lateness[TWHEEL_LATENESS_BUCKETS];
};

/**
 * struct twheel_advance - TWHEEL_IOC_ADVANCE: move a manual clock forward
 * @size:  in: sizeof of the caller's struct, at least 16
 * @flags: must be 0
 * @to_ns: in: the new now, not before the present one and at most S64_MAX
 *
 * When it returns the clock stands at @to_ns, to the ns, and every timer that fires by
 * then is ready, with @to_ns in its &twheel_event.fired_ns. As on any clock timers fire
 * when a tick begins: what expires within the tick that @to_ns lies in stays armed until
 * the next one begins, as TWHEEL_IOC_NEXT tells, and a move within a tick fires nothing.
 * What is armed for a time that has passed is ready at once, within a tick as well.
 *
 * Errors: EINVAL (also: not a manual clock), E2BIG, EFAULT; EINTR if a fatal signal
 * came, after which the clock stands at @to_ns and the rest fires with the next call.
 */
struct twheel_advance {
	__u32 size;
	__u32 flags;
	__aligned_u64 to_ns;
};

#define TWHEEL_IOC_TYPE		0xBB

/*
 * Structs that begin with their size have numbers without one, so that the
 * number stays as the struct grows.
 */

/**
 * TWHEEL_IOC_INFO - see struct twheel_info
 */
#define TWHEEL_IOC_INFO		_IO(TWHEEL_IOC_TYPE, 0x00)
/**
 * TWHEEL_IOC_SETUP - see struct twheel_setup
 */
#define TWHEEL_IOC_SETUP	_IO(TWHEEL_IOC_TYPE, 0x01)
/**
 * TWHEEL_IOC_ARM - arm a timer; @id is written
 *
 * A deadline that has passed is ready at once. Returns 0. Errors: EINVAL,
 * EFAULT, ENOSPC, EPERM, ENOMEM; after each of them no timer is armed and @id is 0.
 */
#define TWHEEL_IOC_ARM		_IOWR(TWHEEL_IOC_TYPE, 0x02, struct twheel_op)
/**
 * TWHEEL_IOC_CANCEL - cancel a timer; its id is stale when this returns
 *
 * Returns 0 if it was armed: no record will come. Returns 1 if it had expired
 * unread: the record is withdrawn. Errors: EINVAL, EFAULT, ENOENT.
 */
#define TWHEEL_IOC_CANCEL	_IOWR(TWHEEL_IOC_TYPE, 0x03, struct twheel_op)
/**
 * TWHEEL_IOC_MODIFY - arm a timer anew in place; id and user_data stay
 *
 * Returns as TWHEEL_IOC_CANCEL: 1 if an unread record was withdrawn. Errors:
 * EINVAL, EFAULT, ENOENT.
 */
#define TWHEEL_IOC_MODIFY	_IOWR(TWHEEL_IOC_TYPE, 0x04, struct twheel_op)
/**
 * TWHEEL_IOC_QUERY - fill in the rest of a struct twheel_op from its id
 *
 * Returns 0. Errors: EINVAL, EFAULT, ENOENT.
 */
#define TWHEEL_IOC_QUERY	_IOWR(TWHEEL_IOC_TYPE, 0x05, struct twheel_op)
/**
 * TWHEEL_IOC_SUBMIT - see struct twheel_submit
 */
#define TWHEEL_IOC_SUBMIT	_IO(TWHEEL_IOC_TYPE, 0x06)
/**
 * TWHEEL_IOC_NEXT - see struct twheel_next
 */
#define TWHEEL_IOC_NEXT		_IO(TWHEEL_IOC_TYPE, 0x07)
/**
 * TWHEEL_IOC_DRAIN - see struct twheel_drain
 */
#define TWHEEL_IOC_DRAIN	_IO(TWHEEL_IOC_TYPE, 0x08)
/**
 * TWHEEL_IOC_LIST - see struct twheel_list
 */
#define TWHEEL_IOC_LIST		_IO(TWHEEL_IOC_TYPE, 0x09)
/**
 * TWHEEL_IOC_STATS - see struct twheel_stats
 */
#define TWHEEL_IOC_STATS	_IO(TWHEEL_IOC_TYPE, 0x0a)
/**
 * TWHEEL_IOC_ADVANCE - see struct twheel_advance
 */
#define TWHEEL_IOC_ADVANCE	_IO(TWHEEL_IOC_TYPE, 0x0b)

#endif /* _UAPI_LINUX_TWHEEL_H */
