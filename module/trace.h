/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints: every change of state of a timer, and what it costs.
 *
 * All of them name the wheel by a number that is unique while the module is loaded.
 * Times are nanoseconds on the clock of the wheel as its opener sees it.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM twheel

#if !defined(TWHEEL_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define TWHEEL_TRACE_H

#include <linux/tracepoint.h>

TRACE_EVENT(twheel_arm,
	TP_PROTO(u32 wheel, u64 id, u64 expires_ns, u64 interval_ns, u64 now_ns),
	TP_ARGS(wheel, id, expires_ns, interval_ns, now_ns),
	TP_STRUCT__entry(
		__field(u32, wheel)
		__field(u64, id)
		__field(u64, expires_ns)
		__field(u64, interval_ns)
		__field(u64, now_ns)
	),
	TP_fast_assign(
		__entry->wheel = wheel;
		__entry->id = id;
		__entry->expires_ns = expires_ns;
		__entry->interval_ns = interval_ns;
		__entry->now_ns = now_ns;
	),
	TP_printk("wheel=%u id=%#llx expires_ns=%llu interval_ns=%llu now_ns=%llu",
		  __entry->wheel, __entry->id, __entry->expires_ns,
		  __entry->interval_ns, __entry->now_ns)
);

TRACE_EVENT(twheel_cancel,
	TP_PROTO(u32 wheel, u64 id, bool was_ready),
	TP_ARGS(wheel, id, was_ready),
	TP_STRUCT__entry(
		__field(u32, wheel)
		__field(u64, id)
		__field(bool, was_ready)
	),
	TP_fast_assign(
		__entry->wheel = wheel;
		__entry->id = id;
		__entry->was_ready = was_ready;
	),
	TP_printk("wheel=%u id=%#llx was_ready=%d",
		  __entry->wheel, __entry->id, __entry->was_ready)
);

TRACE_EVENT(twheel_expire,
	TP_PROTO(u32 wheel, u64 id, u64 expires_ns, u64 now_ns),
	TP_ARGS(wheel, id, expires_ns, now_ns),
	TP_STRUCT__entry(
		__field(u32, wheel)
		__field(u64, id)
		__field(u64, expires_ns)
		__field(u64, now_ns)
	),
	TP_fast_assign(
		__entry->wheel = wheel;
		__entry->id = id;
		__entry->expires_ns = expires_ns;
		__entry->now_ns = now_ns;
	),
	TP_printk("wheel=%u id=%#llx expires_ns=%llu late_ns=%llu",
		  __entry->wheel, __entry->id, __entry->expires_ns,
		  __entry->now_ns - __entry->expires_ns)
);

TRACE_EVENT(twheel_cascade,
	TP_PROTO(u32 wheel, u64 tick, u32 cascaded, u32 expired),
	TP_ARGS(wheel, tick, cascaded, expired),
	TP_STRUCT__entry(
		__field(u32, wheel)
		__field(u64, tick)
		__field(u32, cascaded)
		__field(u32, expired)
	),
	TP_fast_assign(
		__entry->wheel = wheel;
		__entry->tick = tick;
		__entry->cascaded = cascaded;
		__entry->expired = expired;
	),
	TP_printk("wheel=%u tick=%llu cascaded=%u expired=%u",
		  __entry->wheel, __entry->tick, __entry->cascaded,
		  __entry->expired)
);

TRACE_EVENT(twheel_wake,
	TP_PROTO(u32 wheel, u32 ready),
	TP_ARGS(wheel, ready),
	TP_STRUCT__entry(
		__field(u32, wheel)
		__field(u32, ready)
	),
	TP_fast_assign(
		__entry->wheel = wheel;
		__entry->ready = ready;
	),
	TP_printk("wheel=%u ready=%u", __entry->wheel, __entry->ready)
);

#endif /* TWHEEL_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
