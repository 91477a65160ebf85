/* SPDX-License-Identifier: GPL-2.0 */
/* What became of the timers: counts, lateness, text and JSON */
#ifndef TWHEELCTL_REPORT_H
#define TWHEELCTL_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <linux/twheel.h>

#include "parse.h"

/* 64 steps an octave: a percentile is at most 1.6 % above the true one */
#define LATE_STEPS	64
#define LATE_BUCKETS	(LATE_STEPS * 59)

/**
 * struct report - the sums of one run
 * @clock:     name of the clock
 * @virtual:   it is the manual clock
 * @tick_ns:   granularity of the wheel
 * @armed:     timers armed
 * @left_out:  timers that --from and --limit left out
 * @records:   records read
 * @fired:     expiries that they stand for
 * @lost:      expiries that should have come and did not
 * @doubled:   expiries that came and should not have
 * @early:     records with fired_ns < expires_ns
 * @left:      timers still to fire at the end
 * @late_max:  largest lateness
 * @elapsed_ns: time of the run on the clock of the wheel
 * @real_ns:   real time of the run
 * @wakeups:   wake-ups it took; known if @has_wakeups
 * @commands:  commands of --exec that were started, if @has_commands
 * @commands_failed: those that failed
 * @commands_running: those that had not ended when the run was stopped
 * @late:      lateness of the records, in logarithmic buckets
 */
struct report {
	const char *clock;
	bool virtual;
	bool has_wakeups;
	bool has_commands;
	__u64 tick_ns;
	__u64 armed;
	__u64 left_out;
	__u64 records;
	__u64 fired;
	__u64 lost;
	__u64 doubled;
	__u64 early;
	__u64 left;
	__u64 late_max;
	__u64 elapsed_ns;
	__u64 real_ns;
	__u64 wakeups;
	__u64 commands;
	__u64 commands_failed;
	__u64 commands_running;
	__u64 late[LATE_BUCKETS];
};

#define FMT_NS_LEN	32

const char *format_ns(char buf[static FMT_NS_LEN], __u64 ns);
const char *clock_name(__u32 clockid);
void print_json_string(const char *s);

void count_event(struct report *r, const struct twheel_event *ev);
void print_event(const struct timer_spec *spec, const struct twheel_event *ev,
		 __u64 base, bool json);
void print_summary(const struct report *r, bool json);

#endif /* TWHEELCTL_REPORT_H */
