/* SPDX-License-Identifier: GPL-2.0 */
/* The device: arming, reaping, looking */
#ifndef TWHEELCTL_RUN_H
#define TWHEELCTL_RUN_H

#include "parse.h"

enum exit_code {
	EXIT_RUN_OK	= 0,
	EXIT_RUN_BAD	= 1,	/* a timer was early, lost or doubled */
	EXIT_USAGE	= 2,
	EXIT_DEVICE	= 3,
	EXIT_COMMAND	= 4,	/* a command of --exec failed */
};

/**
 * struct options - what the command line says
 * @device:   path of the device
 * @clockid:  clock, -1 if none was given
 * @tick_ns:  granularity wished for, 0: default
 * @slack_ns: slack of every timer
 * @for_ns:   stop after this long, 0: when all is done
 * @from_ns:  only timers whose last expiry is later, if @has_from
 * @limit_ns: only timers whose last expiry is not later, if @has_limit
 * @capacity: of the wheel, 0: as many as there are timers
 * @every_ns: arm: interval
 * @count:    arm: expiries
 * @label:    arm: name of the timer
 * @exec:     command to run for each record, or NULL
 * @proc:     top: where processes are
 * @interval_ns: top: between two looks, 0: default
 * @sort:     top: number of the key
 * @once:     top: print one table
 * @root:     doctor: what goes before all paths
 * @svg:      plot: SVG
 * @json:     output for machines
 * @quiet:    only the summary
 * @brief:    a summary only if something is left to fire
 * @dry_run:  print what would be armed
 * @help:     print the help of the command
 */
struct options {
	const char *device;
	const char *label;
	const char *exec;
	int clockid;
	__u32 capacity;
	__u32 count;
	__u64 tick_ns;
	__u64 slack_ns;
	__u64 every_ns;
	__u64 for_ns;
	__u64 from_ns;
	__u64 limit_ns;
	const char *proc;
	const char *root;
	__u64 interval_ns;
	unsigned char sort;
	bool once;
	bool svg;
	bool has_from;
	bool has_limit;
	bool json;
	bool quiet;
	bool brief;
	bool dry_run;
	bool help;
};

/* Arms all of @file, waits for it, prints; returns an exit code */
int run_timers(const struct options *opt, const struct timer_file *file);

#endif /* TWHEELCTL_RUN_H */
